"""What is better than what, by how much: the comparison behind a headline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from convexmarket.checks import check_share, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.report.tables import format_number

__all__ = ["Comparison", "compare"]

#: Of the larger mean: differences below it are rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Comparison:
    """The difference of two means, with a confidence interval.

    Attributes
    ----------
    mean_a, mean_b : float
    estimate : float
        ``mean_a - mean_b``.
    low, high : float
        Ends of the interval of the difference.
    verdict : {"lower", "higher", "tie"}
        Of a compared with b; a tie where the interval contains zero.
    n_pairs : int
        Pairs, or the smaller number of values where they are not paired.
    confidence : float
    """

    mean_a: float
    mean_b: float
    estimate: float
    low: float
    high: float
    verdict: Literal["lower", "higher", "tie"]
    n_pairs: int
    confidence: float = 0.95

    @property
    def relative(self) -> float:
        """The difference as a share of ``mean_b``; NaN where that is zero."""
        return self.estimate / abs(self.mean_b) if self.mean_b else float("nan")

    @property
    def interval(self) -> str:
        """The interval in words; of the size of the difference where the verdict is no tie."""
        ends = [self.low, self.high]
        if self.verdict != "tie":
            ends = sorted(map(abs, ends))
        low, high = map(format_number, ends)
        return f"{100 * self.confidence:g} % interval {low} to {high}, n = {self.n_pairs:,}"

    def sentence(self, a: str, b: str) -> str:
        """Return the result as a sentence.

        Parameters
        ----------
        a, b : str
            Noun phrases for the two quantities, such as "The error of the mechanism".
        """
        size = format_number(abs(self.estimate))
        if self.verdict == "tie":
            return f"{a} and {b} tie: they differ by {size} ({self.interval})."
        share = "" if np.isnan(self.relative) else f" ({percent(abs(self.relative))})"
        return f"{a} is {size}{share} {self.verdict} than {b} ({self.interval})."


def percent(share: float) -> str:
    """Return a share as a percentage with three digits, and from tenfold on as a multiple."""
    return f"{format_number(share)} times" if share >= 10 else f"{100 * share:.3g} %"


def compare(
    a: ArrayLike, b: ArrayLike, *, paired: bool = True, confidence: float = 0.95
) -> Comparison:
    """Compare two sets of draws by their means.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        One number for each draw. Paired draws have the same length and order.
    paired : bool, default True
        Whether ``a[i]`` and ``b[i]`` come from the same draw. The interval is that of a paired
        t-test, otherwise that of Welch's test.
    confidence : float, default 0.95

    Returns
    -------
    Comparison
        With a tie where the interval contains zero. A single draw, whose interval is infinite, is
        a tie unless a and b hold exact numbers that are equal.

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
    confidence = check_share("confidence", confidence)
    if paired and left.shape != right.shape:
        raise ParameterError(
            f"a has {left.size} draws and b has {right.size}; pass pairs, or paired=False"
        )
    if not (left.size and right.size and np.isfinite(left).all() and np.isfinite(right).all()):
        raise ParameterError("a and b must hold finite numbers, at least one each; leave out NaN")
    n_pairs = min(left.size, right.size)
    estimate = float(left.mean() - right.mean())
    spread = (left - right).std() if paired else max(left.std(), right.std())
    rounding = _ROUNDING * max(np.abs(left).max(), np.abs(right).max())
    if n_pairs < 2:
        low, high = (estimate, estimate) if estimate == 0 else (-np.inf, np.inf)
    elif spread <= rounding:  # the same difference in all draws
        low = high = estimate if abs(estimate) > rounding else 0.0
    else:
        if paired:
            test = stats.ttest_rel(left, right)
        else:
            test = stats.ttest_ind(left, right, equal_var=False)
        low, high = test.confidence_interval(confidence)
    verdict: Literal["lower", "higher", "tie"] = "tie"
    if low > 0 or high < 0:
        verdict = "higher" if low > 0 else "lower"
    means = float(left.mean()), float(right.mean())
    return Comparison(*means, estimate, float(low), float(high), verdict, n_pairs, confidence)
