"""What changed in one frame of results from one run to another.

Rows are matched on the columns that say what a row is about, not on those that hold what came out,
so that neither the order of rows nor an added row makes everything different. What measures the
machine (times, memory) differs in every run: it is compared by ratios, and is never a difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.lab.report.diff_records import SINGLE_VALUES
from convexmarket.lab.report.words import MISSING, count

__all__ = ["COLUMNS", "FrameDiff", "compare_frames"]

#: Below it a difference is rounding of zero, however large it is relative to the numbers.
ROUNDING = 1e-15
#: Columns that measure the machine.
MEASURED = re.compile(r"(^|[._])seconds$|_s$|(^|_)time_ratio$|_mb$|^timings\.")
#: Columns that only number what was done: the job, the processor, the session.
IGNORED = ["core", "key", "session"]
#: Columns of text that say what came out, or by what; they never tell rows apart.
OUTCOMES = {
    *("found", "message", "outcome", "reason", "remark", "solver_version", "status", "verdict")
}
#: Columns of floats that say what a row is about.
SETTINGS = {
    "epsilon",
    "fraction",
    "gamma",
    "mu",
    "regularization",
    "sigma",
    "size",
    "tau",
    "value",
    "x",
}
INDEX = re.compile(r"\[\d+\]")

#: The columns of the tables that a :class:`FrameDiff` contributes rows to.
COLUMNS = {
    "frames": ["frame", "matched by", "rows in both", "only in A", "only in B", "cells", "differ"],
    "numbers": ["frame", "column", "cells", "differ", "missing", "largest", "where", "a", "b"],
    "texts": ["frame", "column", "where", "a", "b"],
    "rows": ["frame", "what", "only in"],
    "timings": ["frame", "column", "cells", "a", "b", "ratio"],
}


@dataclass
class FrameDiff:
    """What differs in a frame; the lists hold rows of the tables in :data:`COLUMNS`."""

    name: str
    matched_by: str
    shared: int
    only_in_a: int
    only_in_b: int
    cells: int = 0
    differ: int = 0
    exact: bool = True
    numbers: list[tuple[Any, ...]] = field(default_factory=list)
    texts: list[tuple[Any, ...]] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    timings: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def frames(self) -> list[tuple[Any, ...]]:
        """How the frame was compared, as one row."""
        rows = (self.shared, self.only_in_a, self.only_in_b)
        return [(self.name, self.matched_by, *rows, self.cells, self.differ)]


@dataclass(frozen=True)
class _Matched:
    """The rows that both runs have, in the same order, and what they are about."""

    a: pd.DataFrame
    b: pd.DataFrame
    labels: tuple[str, ...]

    def where(self, row: int, column: str, group: str) -> str:
        """Say which row a cell is in, and which column if it is one of a group."""
        return ", ".join(filter(None, (self.labels[row], column if column != group else "")))


def compare_frames(name: str, a: pd.DataFrame, b: pd.DataFrame, tolerance: float) -> FrameDiff:
    """Compare a frame of run A with that of run B.

    Parameters
    ----------
    name : str
    a, b : pandas.DataFrame
        As :func:`convexmarket.lab.report.diff_records.read_record` returns them; without any column
        where a run has no such frame.
    tolerance : float
        Relative difference up to which two numbers count as the same.
    """
    if a.columns.empty != b.columns.empty:
        side, alone = ("A", a) if b.columns.empty else ("B", b)
        lengths = (len(a), len(b))
        what = f"the whole frame ({count(len(alone), 'row')})"
        return FrameDiff(name, "", 0, *lengths, exact=False, rows=[(name, what, side)])
    a, b = (side.drop(columns=IGNORED, errors="ignore") for side in (a, b))
    # A list in a cell became columns; a shorter list lacks values, and is no other table.
    every = dict.fromkeys([*_columns(a), *_columns(b)])
    a, b = (
        side.reindex(columns=[name for name in every if name in side or INDEX.search(name)])
        for side in (a, b)
    )
    keys = None if name == SINGLE_VALUES else identifying_columns(a, b)
    own, others = _labels(a, keys), _labels(b, keys)
    here, there = own.isin(others), others.isin(own)
    matched_by = ", ".join(keys) if keys else ("" if name == SINGLE_VALUES else "position")
    found = FrameDiff(name, matched_by, int(here.sum()), int((~here).sum()), int((~there).sum()))
    for side, frame, other, rest in (("A", a, b, own[~here]), ("B", b, a, others[~there])):
        noun = "" if name == SINGLE_VALUES else "column "
        lacking = [column for column in _columns(frame) if column not in other]
        found.rows += [(name, f"{noun}{c}", side) for c in lacking if not MEASURED.search(c)]
        found.rows += [(name, _words(label), side) for label in rest]
    found.exact = not found.rows
    shared = own[here]
    labels = tuple("" if name == SINGLE_VALUES else _words(label) for label in shared)
    matched = _Matched(a[here], b.iloc[others.get_indexer(shared)], labels)
    for group, columns in _groups(matched, keys or ()):
        _compare_group(found, matched, group, columns, tolerance)
    return found


def _columns(frame: pd.DataFrame) -> list[str]:
    return [str(column) for column in frame.columns]


def identifying_columns(a: pd.DataFrame, b: pd.DataFrame) -> list[str] | None:
    """Return the first columns that tell the rows of both frames apart, if there are any.

    Floats are taken only by the names of settings: what was computed tells nothing of a row's
    meaning, and may differ. Nor may text that says what came out.
    """
    possible = [
        column
        for column in sorted(_columns(a), key=lambda name: name != "says")  # claims go by it
        if column in b
        and column not in OUTCOMES
        and not MEASURED.search(column)
        and (column in SETTINGS or (_names(a[column]) and _names(b[column])))
    ]
    for end in range(1, len(possible) + 1):
        if _unique(a, b, possible[:end]):
            keys = possible[:end]
            break
    else:
        return None
    for column in reversed(keys):  # a setting that an earlier column stands for
        fewer = [key for key in keys if key != column]
        if fewer and column in SETTINGS and _unique(a, b, fewer):
            keys = fewer
    return keys


def _names(column: pd.Series) -> bool:
    return not (pd.api.types.is_float_dtype(column) or pd.api.types.is_bool_dtype(column))


def _unique(a: pd.DataFrame, b: pd.DataFrame, keys: list[str]) -> bool:
    return _labels(a, keys).is_unique and _labels(b, keys).is_unique


def _labels(frame: pd.DataFrame, keys: Sequence[str] | None) -> pd.Index:
    """Return what the rows are about: the identifying cells as text, or else the position."""
    if not keys:
        return pd.RangeIndex(len(frame))
    return pd.MultiIndex.from_arrays([[_text(key, cell) for cell in frame[key]] for key in keys])


def _text(key: str, cell: Any) -> str:
    """Write an identifying cell; text speaks for itself, and the last bits say nothing."""
    if isinstance(cell, str):
        return cell
    if cell is None or cell != cell:
        return f"{key} {MISSING}"
    return f"{key} {cell:.12g}" if isinstance(cell, float) else f"{key} {cell}"


def _words(label: Any) -> str:
    return ", ".join(label) if isinstance(label, tuple) else f"row {label + 1:,}"


def _groups(matched: _Matched, keys: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns to compare; those that a list was spread over are one group."""
    groups: dict[str, list[str]] = {}
    for column in _columns(matched.a):
        if column in matched.b and column not in keys:
            groups.setdefault(INDEX.sub("[*]", column), []).append(column)
    yield from groups.items()


def _compare_group(
    found: FrameDiff, matched: _Matched, group: str, columns: list[str], tolerance: float
) -> None:
    """Add what differs in columns of one meaning to what was found."""
    a, b = matched.a[columns], matched.b[columns]
    numeric = all(_numeric(a[column], b[column]) for column in columns)
    if MEASURED.search(group):
        if numeric:
            found.timings += _ratios(found.name, group, a.to_numpy(float), b.to_numpy(float))
        return
    found.cells += a.size
    if not numeric:
        left, right = (side.astype(object).where(side.notna(), None).to_numpy() for side in (a, b))
        changed = np.argwhere(np.asarray(left != right, dtype=bool))
        found.differ += len(changed)
        found.exact &= not len(changed)
        found.texts += [
            (found.name, group, matched.where(i, columns[j], group), left[i, j], right[i, j])
            for i, j in changed
        ]
        return
    left, right = a.to_numpy(float), b.to_numpy(float)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    relative = relative_difference(left, right)
    missing = ~same & np.isnan(relative)
    differ = relative > tolerance
    found.exact &= bool(same.all())
    number = int((differ | missing).sum())
    found.differ += number
    if number:
        largest = np.where(differ, relative, 0.0) if differ.any() else missing
        i, j = np.unravel_index(int(largest.argmax()), largest.shape)
        counts = (a.size, int(differ.sum()), int(missing.sum()))
        size = float(relative[i, j])
        place = matched.where(int(i), columns[int(j)], group)
        found.numbers.append(
            (found.name, group, *counts, size, place, float(left[i, j]), float(right[i, j]))
        )


def _numeric(a: pd.Series, b: pd.Series) -> bool:
    """Whether both columns hold numbers, or one does and the other nothing."""
    return all(
        (pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column))
        or bool(column.isna().all())
        for column in (a, b)
    )


def relative_difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return differences relative to the larger number; NaN unless both are finite.

    Examples
    --------
    >>> relative_difference(np.array([1.0, 0.0, 1e-17]), np.array([2.0, np.inf, 0.0]))
    array([0.5, nan, 0. ])
    """
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    larger = np.maximum(np.abs(a), np.abs(b))
    scale = np.where(larger > 0, larger, 1.0)
    with np.errstate(over="ignore"):
        rounding = np.abs(a - b) <= ROUNDING
    relative = np.where(rounding, 0.0, np.abs(a / scale - b / scale))
    return np.where(finite, relative, np.nan)


def _ratios(
    name: str, group: str, a: NDArray[np.float64], b: NDArray[np.float64]
) -> list[tuple[Any, ...]]:
    """Return medians and the median ratio of what both runs measured, if they did."""
    both = (a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)
    if not both.any():
        return []
    medians = float(np.median(a[both])), float(np.median(b[both]))
    return [(name, group, int(both.sum()), *medians, float(np.median(b[both] / a[both])))]
