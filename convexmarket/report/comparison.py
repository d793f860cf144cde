"""The differences between two reports, and between two sets of draws for a headline."""

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

from convexmarket.checks import check_nonnegative, checked_numbers, shown
from convexmarket.errors import ParameterError
from convexmarket.report.document import Report, read_report
from convexmarket.report.table_formats import Table, format_cell, format_number

#: Differences below these are rounding: absolute for cells, of the larger number for draws.
_ROUNDING, _OF_DRAWS = 1e-15, 1e-12
#: Columns that measure the machine; they are not compared.
_MEASURED = re.compile(r"(^|_)seconds$|_s$|_mb$|(^|_)time_ratio$")


@dataclass(frozen=True, eq=False)
class Diff:
    """The differences from report A to report B, except for columns of times and memory.

    Attributes
    ----------
    tolerance : float
        Relative difference up to which two numbers are the same.
    settings, versions : pandas.DataFrame
        Keys with different values.
    cells : pandas.DataFrame
        Cells that differ: verdicts of claims first, then the largest differences.
    rows : pandas.DataFrame
        Tables, columns and rows of one report only.
    n_cells : int
        Number of cells that were compared.

    Examples
    --------
    >>> import pandas as pd
    >>> import convexmarket as cm
    >>> from convexmarket.report import compare_reports
    >>> reports = [cm.Report('A study'), cm.Report('A study')]
    >>> for loss, report in enumerate(reports):
    ...     report.add(pd.DataFrame({'n': [10], 'loss': [loss]}), name='losses', keys=['n'])
    >>> compare_reports(*reports).same
    False
    """

    tolerance: float
    settings: pd.DataFrame
    versions: pd.DataFrame
    cells: pd.DataFrame
    rows: pd.DataFrame
    n_cells: int

    @property
    def same(self) -> bool:
        """True if all cells agree and both reports have the same rows."""
        return self.cells.empty and self.rows.empty

    def to_frame(self) -> pd.DataFrame:
        """Return the cells that differ."""
        return self.cells

    def statements(self) -> list[str]:
        """Return the differences in sentences, the answer first."""
        answer = f"the same results to {self.tolerance:g}" if self.same else "different results"
        verdicts = self.cells.query("table == 'claims' and column == 'verdict'")
        kinds = {"setting": self.settings, "version": self.versions}
        counts = [f"{len(frame) or 'no'} different {kind}s" for kind, frame in kinds.items()]
        texts = [f"{', '.join([*counts, answer])} (times apart).".capitalize()]
        for kind, frame in {"verdict": verdicts[["row", "a", "b"]], **kinds}.items():
            for key, a, b in frame.to_numpy()[:3]:
                texts.append(f"The {kind} {key!r} is {shown(a, str)} in A, {shown(b, str)} in B.")
        only = self.rows.head(3).itertuples()
        texts += [f"Only in {row.only_in}: {row.row} of {row.table}." for row in only]
        if len(self.cells):
            first = self.cells.iloc[len(verdicts) % len(self.cells)]
            a, b = (format_cell(cell, ".10g") for cell in (first.a, first.b))
            texts.append(
                f"{len(self.cells):,} of {self.n_cells:,} cells differ. The largest difference is "
                f"{format_number(first.relative)}, in {first.column} of {first.table} at "
                f"{first.row}: {a} in A, {b} in B."
            )
        return texts


def compare_reports(
    a: Report | str | Path, b: Report | str | Path, *, tolerance: float = 1e-9
) -> Diff:
    """Compare the tables of two reports by their keys, and without keys by position.

    Parameters
    ----------
    a, b : Report or path
        Reports, or folders of reports.
    tolerance : float, default 1e-9
        Numbers are the same if they differ by no more, relative to the larger one.
    """
    check_nonnegative("tolerance", tolerance)
    left, right = (side if isinstance(side, Report) else read_report(side) for side in (a, b))
    tables, others = ({t.name: t for t in side.tables} for side in (left, right))
    cells, rows = [], []
    for name in tables | others:
        if name in tables and name in others:
            compared, only = _compare_tables(tables[name], others[name])
            cells += [(name, *cell) for cell in compared]
            rows += [(name, *row) for row in only]
        else:
            rows.append((name, "the table", "A" if name in tables else "B"))
    differ = [cell for cell in cells if cell[-1] > tolerance]
    differ.sort(key=lambda c: (c[0] != "claims" or c[2] != "verdict", -c[-1]))
    columns = ["table", "row", "column", "a", "b", "relative"]
    return Diff(
        tolerance,
        _changes(_flat(left.settings), _flat(right.settings)),
        _changes(left.versions, right.versions),
        pd.DataFrame(differ, columns=columns).astype({"a": object, "b": object}),
        pd.DataFrame(rows, columns=["table", "row", "only_in"]),
        len(cells),
    )


def _compare_tables(a: Table, b: Table) -> tuple[list[tuple[Any, ...]], list[tuple[str, str]]]:
    """Return common cells with their relative difference; rows and columns of one table only."""
    keys = list(a.keys) if list(a.keys) == list(b.keys) else []
    left, right = (side.frame.set_axis(_labels(side.frame, keys)) for side in (a, b))
    rows = []
    for side, one, other in (("A", left, right), ("B", right, left)):
        only = [f"column {column}" for column in one.columns.difference(other.columns, sort=False)]
        rows += [(row, side) for row in [*only, *one.index.difference(other.index)]]
    left, right = left.align(right, join="inner")
    return [
        (row, column, one, other, _relative_difference(one, other))
        for column in left
        if column not in keys and not _MEASURED.search(str(column))
        for row, one, other in zip(left.index, left[column], right[column], strict=True)
    ], rows


def _labels(frame: pd.DataFrame, keys: list[str]) -> list[str]:
    if not keys:
        return [f"row {place + 1}" for place in range(len(frame))]
    texts = [[f"{k} {c:.12g}" if isinstance(c, float) else str(c) for c in frame[k]] for k in keys]
    return [", ".join(cells) for cells in zip(*texts, strict=True)]


def _relative_difference(a: Any, b: Any) -> float:
    """Return a difference relative to the larger number; infinite if cells are not comparable."""
    if a == b or (pd.isna(a) and pd.isna(b)):
        return 0.0
    if not {type(a), type(b)} <= {int, float} or not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b)) if abs(a - b) > _ROUNDING else 0.0


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> pd.DataFrame:
    rows = [(key, a.get(key), b.get(key)) for key in {**a, **b} if a.get(key) != b.get(key)]
    return pd.DataFrame(rows, columns=["key", "a", "b"], dtype=object)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return nested settings as values by their path of keys."""
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

    ``n_pairs`` counts pairs, or the smaller number of values where they are not paired.

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
        """Verdict on a compared with b; a tie if the interval contains zero."""
        return "higher" if self.low > 0 else "lower" if self.high < 0 else "tie"

    @property
    def interval(self) -> str:
        """The interval as text; for the absolute difference, unless the verdict is a tie."""
        if self.n_pairs == 1 and self.low == self.high:
            return "exact"
        ends = [self.low, self.high]
        low, high = map(format_number, ends if self.verdict == "tie" else sorted(map(abs, ends)))
        return f"95 % interval {low} to {high}, n = {self.n_pairs:,}"

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
        if self.mean_b:
            share = abs(self.estimate / self.mean_b)
            size += f" ({format_number(share)} times)" if share >= 10 else f" ({100 * share:.3g} %)"
        return f"{a} is {size} {self.verdict} than {b} ({self.interval})."


def compare(a: ArrayLike, b: ArrayLike, *, paired: bool = True) -> Comparison:
    """Compare the means of two sets of finite numbers by a paired t-test, or by Welch's test.

    The interval of a single draw is infinite, unless a and b are the same number.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        One number for each draw.
    paired : bool, default True
        Whether ``a[i]`` and ``b[i]`` come from the same draw.
    """
    left, right = checked_numbers("a", a), checked_numbers("b", b)
    if paired and left.shape != right.shape:
        raise ParameterError(f"a has {left.size} draws, b has {right.size}; pass paired=False")
    if not (left.size and right.size and np.isfinite([left.sum(), right.sum()]).all()):
        raise ParameterError("a and b must hold finite numbers, at least one each; leave out NaN")
    n_pairs, estimate = min(left.size, right.size), float(left.mean() - right.mean())
    spread = (left - right).std() if paired else max(left.std(), right.std())
    rounding = _OF_DRAWS * max(np.abs(left).max(), np.abs(right).max())
    if n_pairs < 2:
        low, high = (estimate, estimate) if estimate == 0 else (-np.inf, np.inf)
    elif spread <= rounding:  # the same difference in all draws
        low = high = estimate if abs(estimate) > rounding else 0.0
    else:
        test = stats.ttest_rel if paired else partial(stats.ttest_ind, equal_var=False)
        low, high = test(left, right).confidence_interval()
    means = float(left.mean()), float(right.mean())
    return Comparison(*means, estimate, float(low), float(high), n_pairs)
