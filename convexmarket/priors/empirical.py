"""The prior of a sample: no density, a piecewise linear expected-cost curve, exact ironing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from convexmarket.checks import checked_numbers
from convexmarket.errors import PriorError
from convexmarket.priors.prior import FloatArray, Prior

__all__ = ["EmpiricalPrior"]


class EmpiricalPrior(Prior):
    """The discrete prior of a sample: each distinct value with its frequency.

    On the distinct values v_1 < ... < v_n with frequencies f_k and F_k = f_1 + ... + f_k, the
    expected-cost curve joins the points (F_k, v_k*F_k), and its slopes are the virtual costs

        psi(v_1) = v_1,    psi(v_k) = v_k + (v_k - v_{k-1})*F_{k-1}/f_k.

    A report between two values counts as the higher one: psi is a step function, continuous from
    the left.

    Parameters
    ----------
    samples : array_like
        Sensitivities, finite and >= 0, at least one; a single distinct value is allowed.
    counts : array_like of int, same shape, optional
        How often each sample occurs, at least once; once where left out.

    Attributes
    ----------
    values, counts, masses : ndarray, shape (n,)
        The distinct samples, increasing, how often each occurs, and their probabilities.
    size : int
        Number of samples.

    Raises
    ------
    PriorError
        If the sample is empty, or an entry is not finite and >= 0.

    Examples
    --------
    >>> EmpiricalPrior([1, 2, 2, 4]).virtual_cost([1, 2, 4])
    array([ 1. ,  2.5, 10. ])
    """

    is_step = True
    family = "empirical"
    example = "empirical:sensitivities.csv"

    def __init__(self, samples: ArrayLike, counts: ArrayLike | None = None) -> None:
        drawn = checked_numbers("samples", samples).ravel()
        bad = ~((drawn >= 0) & np.isfinite(drawn))
        if drawn.size == 0:
            raise PriorError("samples is empty; give at least one sensitivity")
        if bad.any():
            raise PriorError(
                f"samples[{np.argmax(bad)}] = {drawn[bad][0]} is not a sensitivity; "
                f"remove the {bad.sum()} of {drawn.size} samples that are not finite and >= 0"
            )
        times = None if counts is None else checked_numbers("counts", counts).ravel()
        if times is not None and times.size != drawn.size:
            raise PriorError(
                f"counts has {times.size} entries for {drawn.size} samples; give one for each"
            )
        if (
            times is not None
            and (wrong := ~((times >= 1) & (times < 2.0**53) & (times % 1 == 0))).any()
        ):
            raise PriorError(
                f"counts[{np.argmax(wrong)}] = {times[wrong][0]:g} is not a number of times; give "
                "whole numbers of at least 1"
            )
        self.values, place = np.unique(drawn, return_inverse=True)
        self.counts = np.bincount(place, times).astype(np.int64)
        self._below = np.cumsum(self.counts)
        self.size = int(self._below[-1])
        self.masses = self.counts / self.size
        for array in (self.values, self.counts, self.masses):
            array.flags.writeable = False
        gaps = np.diff(self.values, prepend=self.values[0])
        self._raw = self.values + gaps * (self._below - self.counts) / self.counts
        self._hull = isotonic_regression(self._raw, weights=self.counts).x
        self.support = float(self.values[0]), float(self.values[-1])
        mean = float(np.average(self.values, weights=self.counts))
        self.mean = min(max(mean, self.support[0]), self.support[1])  # rounding moves it out
        self.is_regular = bool(np.all(np.diff(self._raw) > 0))

    @property
    def breakpoints(self) -> FloatArray:
        """The sample values strictly inside the support at which the ironed psi jumps."""
        jumps = np.flatnonzero(np.diff(self._hull) > 0)
        return self.values[jumps[jumps > 0]]

    def contains(self, reports: FloatArray) -> bool:
        """Whether each report is in the sample, at least as often as among the reports."""
        values, times = np.unique(reports, return_counts=True)
        place = np.searchsorted(self.values[:-1], values)
        return bool(np.all((self.values[place] == values) & (self.counts[place] >= times)))

    def to_dict(self) -> dict[str, Any]:
        """Describe the distinct samples, and their counts if a sample repeats."""
        described: dict[str, Any] = {"family": self.family, "samples": self.values.tolist()}
        return described | ({"counts": self.counts.tolist()} if self.counts.max() > 1 else {})

    def cdf(self, c: ArrayLike) -> FloatArray:
        """Compute F(c), the share of samples of at most c; same shape as ``c``."""
        position = np.searchsorted(self.values, checked_numbers("c", c), side="right")
        return np.append(0, self._below)[position] / self.size

    def pdf(self, c: ArrayLike) -> FloatArray:
        """Raise an error, as a discrete prior has no density.

        Raises
        ------
        PriorError
            Always.
        """
        raise PriorError(f"{self!r} is discrete and has no density; use cdf, or a continuous prior")

    def _quantile(self, u: FloatArray) -> FloatArray:
        # Compared with cdf's own quotients, so that quantile(cdf(v)) is v whatever the rounding.
        return self.values[np.searchsorted(self._below / self.size, u, side="left")]

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        rank = rng.integers(self.size, size=size)
        return self.values[np.searchsorted(self._below, rank, side="right")]

    def _virtual_cost(self, c: FloatArray) -> FloatArray:
        return self._raw[np.searchsorted(self.values, c, side="left")]

    def _ironed_virtual_cost(self, c: FloatArray) -> FloatArray:
        return self._hull[np.searchsorted(self.values, c, side="left")]

    def _key(self) -> Any:
        return self.values.tobytes(), self.counts.tobytes()

    def __repr__(self) -> str:
        if self.size <= 10:
            return f"EmpiricalPrior({np.repeat(self.values, self.counts).tolist()})"
        low, high = self.support
        return f"EmpiricalPrior(<{self.size} samples in [{low:g}, {high:g}]>)"
