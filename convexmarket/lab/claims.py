"""What a paper claims, beside what we measure.

A claim about a curve is tested on paired draws: each draw has a value at every point of the curve,
so that luck which the points share does not count as a difference between them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import linregress, ttest_1samp
from scipy.stats import t as student

__all__ = [
    "CONFIDENCE",
    "Change",
    "Claim",
    "PowerFit",
    "Verdict",
    "check_shape",
    "mean_interval",
    "paired_change",
    "power_fit",
]

Floats = NDArray[np.float64]
Verdict = Literal["reproduced", "reproduced in part", "not reproduced"]

CONFIDENCE = 0.95
#: Differences below this share of the values are rounding.
_ROUNDING = 1e-12
#: Relative to the first value: what has "vanished", and what has "not changed".
_VANISHED = 0.01
_UNCHANGED = 0.05


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and what came of it here.

    Attributes
    ----------
    source : str
        Paper and place, such as "B, appendix B, Figure 4".
    says : str
        The claim, in our words.
    verdict : str
        "reproduced", "reproduced in part" or "not reproduced".
    found : str
        What was measured, in numbers.
    remark : str
        Why, where that needs saying.
    """

    source: str
    says: str
    verdict: Verdict
    found: str
    remark: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Change:
    """The mean of paired differences, and its confidence interval at 95%."""

    mean: float
    low: float
    high: float

    @property
    def rises(self) -> bool:
        """Whether the interval lies above zero."""
        return self.low > 0

    @property
    def falls(self) -> bool:
        """Whether the interval lies below zero."""
        return self.high < 0

    def __str__(self) -> str:
        if not np.isfinite(self.low):
            return f"{self.mean:+.3g} (one draw has no interval)"
        return f"{self.mean:+.3g} (95% interval {self.low:+.3g} to {self.high:+.3g})"


def paired_change(before: Floats, after: Floats) -> Change:
    """Return by how much paired values change on average.

    Parameters
    ----------
    before, after : ndarray, shape (draws,)
        The interval of one draw is everything: nothing can be told from it.
    """
    first, second = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    difference = second - first
    mean = float(difference.mean())
    rounding = _ROUNDING * float(np.abs([first, second]).max())
    if difference.size > 1 and abs(mean) <= rounding and np.ptp(difference) <= rounding:
        return Change(0.0, 0.0, 0.0)
    if difference.size == 1:
        return Change(mean, -np.inf, np.inf)
    if np.ptp(difference) <= rounding:
        return Change(mean, mean, mean)
    interval = ttest_1samp(difference, 0.0).confidence_interval(CONFIDENCE)
    return Change(mean, float(interval.low), float(interval.high))


def check_shape(values: Floats, shape: str) -> tuple[Verdict, str]:
    """Check what is claimed of a curve against paired draws of it.

    Parameters
    ----------
    values : ndarray, shape (draws, points)
        In the order of the points.
    shape : str
        "rises" and "falls": from the first point to the last, and never significantly the other
        way between neighbours (else in part); "falls, then rises": to the lowest point within the
        curve and from there on (in part if only one of both); "vanishes": falls to at most 1% of
        where it began; "does not change": no point is off the first by more than 5% of it.

    Returns
    -------
    verdict : str
    found : str
        In numbers.
    """
    means = values.mean(axis=0)
    lowest = int(means.argmin())
    ends = paired_change(values[:, 0], values[:, -1])
    span = f"from {means[0]:.3g} to {means[-1]:.3g}: {ends}"
    if shape in ("rises", "falls"):
        sign = 1.0 if shape == "rises" else -1.0
        steps = [paired_change(*pair) for pair in zip(values.T, values.T[1:], strict=False)]
        against = [step for step in steps if (step.falls if sign > 0 else step.rises)]
        if not (ends.rises if sign > 0 else ends.falls):
            return "not reproduced", span
        if against:
            words = f"steps the other way: {len(against)} of {len(steps)}"
            return "reproduced in part", f"{span}; {words}"
        return "reproduced", span
    if shape == "falls, then rises":
        down = paired_change(values[:, 0], values[:, lowest])
        up = paired_change(values[:, lowest], values[:, -1])
        found = f"{means[0]:.3g} at first, {means[lowest]:.3g} at the lowest, {means[-1]:.3g} at "
        found += f"last: {down}, then {up}"
        verdicts: tuple[Verdict, ...] = (
            "not reproduced",
            "reproduced in part",
            "reproduced",
        )
        return verdicts[down.falls + up.rises], found
    if shape == "vanishes":
        left = abs(means[-1]) / max(abs(means[0]), np.finfo(float).tiny)
        falls = ends.falls or (values.shape[0] == 1 and means[-1] < means[0])
        found = f"from {means[0]:.3g} to {means[-1]:.3g}"
        if left <= _VANISHED:
            return "reproduced", found
        return ("reproduced in part" if falls else "not reproduced"), found
    off = float(np.abs(means - means[0]).max()) / max(abs(means[0]), np.finfo(float).tiny)
    found = f"between {means.min():.3g} and {means.max():.3g}"
    return ("reproduced" if off <= _UNCHANGED else "not reproduced"), found


class PowerFit(NamedTuple):
    """A straight line through ``log(value)`` over ``log(m)``.

    Attributes
    ----------
    slope : float
        The exponent; NaN with fewer than two points.
    low, high : float
        Its 95% interval, from the scatter of the points around the line; infinite with fewer than
        three points.
    last : float
        The exponent between the last two points.
    n_points : int
    """

    slope: float
    low: float
    high: float
    last: float
    n_points: int

    def __str__(self) -> str:
        words = f"exponent {self.slope:.3f}"
        if np.isfinite(self.low):
            words += f" (95% interval {self.low:.3f} to {self.high:.3f})"
        return f"{words}, {self.last:.3f} between the last two sizes"


def power_fit(sizes: ArrayLike, values: ArrayLike) -> PowerFit:
    """Fit a power of m to values, by least squares of the logarithms.

    Parameters
    ----------
    sizes : array_like, shape (n,)
        m, increasing.
    values : array_like, shape (n,)
        Means over draws; those that are not positive and finite are left out.
    """
    m, means = np.asarray(sizes, dtype=float), np.asarray(values, dtype=float)
    known = np.isfinite(means) & (means > 0)
    x, y = np.log(m[known]), np.log(means[known])
    if x.size < 2:
        return PowerFit(np.nan, -np.inf, np.inf, np.nan, int(x.size))
    line = linregress(x, y)
    last = float((y[-1] - y[-2]) / (x[-1] - x[-2]))
    half = np.inf
    if x.size > 2:
        error = np.nan_to_num(line.stderr)  # a level line has none
        half = float(student.ppf((1.0 + CONFIDENCE) / 2.0, x.size - 2) * error)
    slope = float(line.slope)
    return PowerFit(slope, slope - half, slope + half, last, int(x.size))


def mean_interval(values: pd.Series[Any], name: str) -> dict[str, float]:
    """Return mean and 95% interval of what is finite; no interval of a single value."""
    known = values.to_numpy(dtype=float)
    known = known[np.isfinite(known)]
    if known.size == 0:
        return {name: np.nan, f"{name}_low": np.nan, f"{name}_high": np.nan}
    mean, half = float(known.mean()), np.nan
    if known.size > 1:
        deviation = float(known.std(ddof=1)) / np.sqrt(known.size)
        half = float(student.ppf((1.0 + CONFIDENCE) / 2.0, known.size - 1)) * deviation
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
