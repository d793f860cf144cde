"""The comparison of two sets of draws, for headlines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from convexmarket.checks import checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.report.table_formats import format_number

#: Of the larger number: differences below it are rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Comparison:
    """The difference of two means, with its 95 % confidence interval.

    Attributes
    ----------
    mean_a, mean_b : float
    estimate : float
        ``mean_a - mean_b``.
    low, high : float
        Ends of the interval of the difference.
    n_pairs : int
        Pairs, or the smaller number of values where they are not paired.

    Examples
    --------
    >>> from convexmarket.report import compare
    >>> compare([1.0, 1.1, 0.9], [2.0, 2.2, 2.1]).verdict
    'lower'
    """

    mean_a: float
    mean_b: float
    estimate: float
    low: float
    high: float
    n_pairs: int

    @property
    def verdict(self) -> Literal["lower", "higher", "tie"]:
        """Of a compared with b; a tie where the interval contains zero."""
        return "higher" if self.low > 0 else "lower" if self.high < 0 else "tie"

    @property
    def interval(self) -> str:
        """The interval in words; unless the verdict is a tie, that of the absolute difference."""
        if self.n_pairs == 1 and self.low == self.high:
            return "exact"
        ends = [self.low, self.high]
        low, high = map(format_number, ends if self.verdict == "tie" else sorted(map(abs, ends)))
        return f"95 % interval {low} to {high}, n = {self.n_pairs:,}"

    def sentence(self, a: str, b: str) -> str:
        """Return the result as a sentence; a and b are noun phrases, a with a capital letter."""
        size = format_number(abs(self.estimate))
        if self.verdict == "tie":
            return f"{a} and {b} tie: they differ by {size} ({self.interval})."
        if self.mean_b:
            share = abs(self.estimate / self.mean_b)
            times = f"{format_number(share)} times" if share >= 10 else f"{100 * share:.3g} %"
            size += f" ({times})"
        return f"{a} is {size} {self.verdict} than {b} ({self.interval})."


def compare(a: ArrayLike, b: ArrayLike, *, paired: bool = True) -> Comparison:
    """Compare two sets of draws by their means.

    The interval is that of a paired t-test, or of Welch's test. That of a single draw is infinite,
    unless a and b are the same number.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        One number for each draw.
    paired : bool, default True
        Whether ``a[i]`` and ``b[i]`` come from the same draw.

    Returns
    -------
    Comparison

    Raises
    ------
    ParameterError
        If the numbers are not finite, or paired draws have different lengths.

    Examples
    --------
    >>> result = compare([1.0, 1.1, 0.9], [1.4, 1.6, 1.3])
    >>> result.verdict, round(result.estimate, 3)
    ('lower', -0.433)
    """
    left, right = checked_numbers("a", a), checked_numbers("b", b)
    if paired and left.shape != right.shape:
        raise ParameterError(
            f"a has {left.size} draws and b has {right.size}; pass pairs, or paired=False"
        )
    if not (left.size and right.size and np.isfinite(left).all() and np.isfinite(right).all()):
        raise ParameterError("a and b must hold finite numbers, at least one each; leave out NaN")
    n_pairs, estimate = min(left.size, right.size), float(left.mean() - right.mean())
    spread = (left - right).std() if paired else max(left.std(), right.std())
    rounding = _ROUNDING * max(np.abs(left).max(), np.abs(right).max())
    if n_pairs < 2:
        low, high = (estimate, estimate) if estimate == 0 else (-np.inf, np.inf)
    elif spread <= rounding:  # the same difference in all draws
        low = high = estimate if abs(estimate) > rounding else 0.0
    elif paired:
        low, high = stats.ttest_rel(left, right).confidence_interval()
    else:
        low, high = stats.ttest_ind(left, right, equal_var=False).confidence_interval()
    means = float(left.mean()), float(right.mean())
    return Comparison(*means, estimate, float(low), float(high), n_pairs)
