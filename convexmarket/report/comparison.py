"""Compare two reports, or two sets of draws for a headline."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from convexmarket.checks import check_nonnegative, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.report.document import Report, read_report
from convexmarket.report.table_formats import format_number

#: Absolute tolerance of compared cells, and tolerance of draws relative to the largest draw.
_ROUNDING, _OF_DRAWS = 1e-15, 1e-12
#: Columns of times and memory, which are not compared.
_MEASURED = re.compile(r"(^|_)seconds$|_s$|_mb$|(^|_)time_ratio$")
_PARTS = ("result", "setting", "version")
ABSENT = "not in this report"


def compare_reports(
    a: Report | str | Path, b: Report | str | Path, *, tolerance: float = 1e-9
) -> pd.DataFrame:
    """Compare the tables, settings and versions of two reports, except times and memory.

    Rows are matched by common keys of the tables, or else by position. The result has a row for
    each difference, with verdicts first. The columns are ``part`` ("result", "setting" or
    "version"), ``table``, ``row``, ``column``, values ``a`` and ``b``, and ``relative`` difference.

    Parameters
    ----------
    a, b : Report or path
        Reports, or folders of reports.
    tolerance : float, default 1e-9
        Largest difference of equal numbers, relative to the larger number.
    """
    check_nonnegative("tolerance", tolerance)
    left, right = (side if isinstance(side, Report) else read_report(side) for side in (a, b))
    keys = {table.name: list(table.keys) for table in left.tables}
    keyed = [table.name for table in right.tables if keys.get(table.name) == list(table.keys)]
    cells, others = _cells(left, keyed), _cells(right, keyed)
    rows = []
    for place in cells | others:
        before, after = cells.get(place, ABSENT), others.get(place, ABSENT)
        if (relative := _relative_difference(before, after)) > tolerance:
            rows.append((*place, before, after, relative))
    rows.sort(key=lambda row: (_PARTS.index(row[0]), row[1:4:2] != ("claims", "verdict"), -row[-1]))
    columns = ["part", "table", "row", "column", "a", "b", "relative"]
    return pd.DataFrame(rows, columns=columns).astype({"a": object, "b": object})


def _cells(report: Report, keyed: list[str]) -> dict[tuple[str, str, str, str], Any]:
    cells = {("setting", "", key, ""): value for key, value in _flat(report.settings).items()}
    cells |= {("version", "", key, ""): value for key, value in report.versions.items()}
    for table in report.tables:
        rows = _labels(table.frame, list(table.keys) if table.name in keyed else [])
        for column in table.frame:
            if not _MEASURED.search(str(column)):
                values = zip(rows, table.frame[column], strict=True)
                cells |= {("result", table.name, row, str(column)): cell for row, cell in values}
    return cells


def _labels(frame: pd.DataFrame, keys: list[str]) -> list[str]:
    texts = [[f"{k} {c:.12g}" if isinstance(c, float) else str(c) for c in frame[k]] for k in keys]
    texts = texts or [[f"row {place + 1}" for place in range(len(frame))]]
    return [", ".join(cells) for cells in zip(*texts, strict=True)]


def _relative_difference(a: Any, b: Any) -> float:
    """Compute a difference relative to the larger number, or inf if cells are not comparable."""
    if a == b or (pd.isna(a) and pd.isna(b)):
        return 0.0
    if not {type(a), type(b)} <= {int, float} or not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b)) if abs(a - b) > _ROUNDING else 0.0


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        items = [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{path}[{place}]", item) for place, item in enumerate(value)]
    else:
        return {path: value}
    return {name: leaf for key, item in items for name, leaf in _flat(item, key).items()}


@dataclass(frozen=True)
class Comparison:
    """The difference ``estimate = mean_a - mean_b``, and the ends of its 95 % interval.

    ``n_pairs`` is the number of pairs, or the smaller of the numbers ``n_draws`` without pairs.

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
    n_draws: tuple[int, int] | None = None

    @property
    def verdict(self) -> Literal["lower", "higher", "tie"]:
        """Verdict on a compared with b, which is "tie" if the interval contains zero."""
        return "higher" if self.low > 0 else "lower" if self.high < 0 else "tie"

    @property
    def interval(self) -> str:
        """Text of the interval. If the verdict is not a tie, the ends are absolute differences."""
        if self.n_pairs == 1 and self.low == self.high:
            return "exact"
        ends = [self.low, self.high]
        low, high = map(format_number, ends if self.verdict == "tie" else sorted(map(abs, ends)))
        sizes = " and ".join(f"{size:,}" for size in self.n_draws or [self.n_pairs])
        return f"95 % interval {low} to {high}, n = {sizes}"

    def sentence(self, a: str, b: str) -> str:
        """Return the result as a sentence.

        Parameters
        ----------
        a, b : str
            Noun phrases for the two quantities, such as "The error of the mechanism".
        """
        size = format_number(self.estimate)
        if self.verdict == "tie":
            words = f"{a} and {b} do not differ" + " significantly" * (self.low < self.high)
            return f"{words}: the first minus the second is {size} ({self.interval})."
        size = size.removeprefix("-")
        if self.mean_b:
            share = abs(self.estimate / self.mean_b)
            size += f" ({format_number(share)} times)" if share >= 10 else f" ({100 * share:.3g} %)"
        return f"{a} is {size} {self.verdict} than {b} ({self.interval})."


def compare(a: ArrayLike, b: ArrayLike, *, paired: bool = True) -> Comparison:
    """Compare the means of two sets of finite numbers by a paired t-test, or by Welch's test.

    If a or b has a single draw, the interval is infinite, unless a and b are equal.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        One number for each draw.
    paired : bool, default True
        Whether ``a[i]`` and ``b[i]`` are from the same draw.
    """
    left, right = checked_numbers("a", a), checked_numbers("b", b)
    if paired and left.shape != right.shape:
        raise ParameterError(f"a has {left.size} draws, b has {right.size}; pass paired=False")
    if not (left.size and right.size and np.isfinite([left.sum(), right.sum()]).all()):
        raise ParameterError("a and b must contain finite numbers, at least one each; omit NaN")
    n_pairs, estimate = min(left.size, right.size), float(left.mean() - right.mean())
    spread = (left - right).std() if paired else max(left.std(), right.std())
    rounding = _OF_DRAWS * max(np.abs(left).max(), np.abs(right).max())
    if n_pairs < 2:
        low, high = (0.0, 0.0) if np.array_equal(left, right) else (-np.inf, np.inf)
    elif spread <= rounding:  # all draws have the same difference
        low = high = estimate if abs(estimate) > rounding else 0.0
    else:
        test = stats.ttest_rel if paired else partial(stats.ttest_ind, equal_var=False)
        low, high = test(left, right).confidence_interval()
    means, sizes = (float(left.mean()), float(right.mean())), (left.size, right.size)
    rest = n_pairs, None if paired else sizes
    return Comparison(*means, estimate, float(low), float(high), *rest)
