"""What changed from one run to another: inputs, versions and machine, results."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from convexmarket.checks import check_nonnegative
from convexmarket.errors import ParameterError
from convexmarket.lab.report.diff_frames import COLUMNS, OUTCOMES, FrameDiff, compare_frames
from convexmarket.lab.report.diff_records import Record, read_record

__all__ = ["Diff", "diff_results"]

FORMAT = "convexmarket-diff/1"
#: Frames of a kind of problem that summarise times; the runs that they rest on are compared.
SUMMARIES: dict[str, set[str]] = {}
#: Keys of a problem that decide nothing.
WORDS = re.compile(r"(title|description|notes)\b")


@dataclass(frozen=True)
class Diff:
    """What changed from run A to run B.

    Attributes
    ----------
    a, b : str
        The two reports, as they were named.
    problem_kind, title : str
        Of the problem (the title is A's).
    tolerance : float
        Relative difference up to which two numbers count as the same.
    inputs : pandas.DataFrame
        Keys of the problem that changed: key, a, b.
    words : pandas.DataFrame
        The same of its title, description and notes, which decide nothing.
    problem_file : str
        What became of the text of the problem file, in a sentence.
    versions : pandas.DataFrame
        What changed in versions and machine: key, a, b.
    frames : pandas.DataFrame
        Every frame of the results: frame, matched by, rows in both, only in A, only in B, cells
        (compared) and differ (how many).
    numbers : pandas.DataFrame
        Columns of numbers that differ, the largest relative difference first: frame, column,
        cells, differ, missing (a finite number in one run only), largest (relative to the larger
        number), where it is, and the two numbers there.
    texts : pandas.DataFrame
        Cells of text or truth values that differ, verdicts and statuses first: frame, column,
        where, a, b.
    rows : pandas.DataFrame
        Rows and columns of one run only: frame, what, only in.
    timings : pandas.DataFrame
        What measures the machine: frame, column, cells, medians a and b, median ratio B to A.
    exact : bool
        Whether the results are the same to the last bit, and not just within the tolerance.
    """

    a: str
    b: str
    problem_kind: str
    title: str
    tolerance: float
    inputs: pd.DataFrame
    words: pd.DataFrame
    problem_file: str
    versions: pd.DataFrame
    frames: pd.DataFrame
    numbers: pd.DataFrame
    texts: pd.DataFrame
    rows: pd.DataFrame
    timings: pd.DataFrame
    exact: bool

    @property
    def same_results(self) -> bool:
        """Whether nothing differs in the results, beyond the tolerance and timings apart."""
        return self.numbers.empty and self.texts.empty and self.rows.empty

    @property
    def n_differ(self) -> int:
        """How many cells of the results differ, in rows that both runs have."""
        return int(self.frames["differ"].sum())

    @property
    def verdicts(self) -> pd.DataFrame:
        """The claims of the papers whose verdict changed, as rows of ``texts``."""
        return self.texts[(self.texts.frame == "claims") & (self.texts.column == "verdict")]

    def as_data(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; tables become lists of rows."""
        named = {part.name: getattr(self, part.name) for part in fields(self)}
        return {"format": FORMAT, "kind": "diff", "same_results": self.same_results, **named}


def diff_results(a: str | Path, b: str | Path, tolerance: float = 1e-9) -> Diff:
    """Compare the results of two runs of the same kind of problem.

    Parameters
    ----------
    a, b : path
        Folders of reports, or their results.json; of any version of the package.
    tolerance : float
        Two numbers are the same if they differ by no more than this, relative to the larger.

    Returns
    -------
    Diff

    Raises
    ------
    ParameterError
        If a file is missing, the kinds are not the same, or the tolerance is negative.
    NotSupportedError
        If a file is of another format, or itself a comparison.
    DataError
        If a file, or a table that it refers to, is damaged.
    """
    check_nonnegative("tolerance", tolerance)
    first, second = read_record(a), read_record(b)
    if first.kind != second.kind:
        raise ParameterError(
            f"{a} is of the kind {first.kind!r} and {b} of the kind {second.kind!r}; "
            "only reports of the same kind can be compared"
        )
    empty = pd.DataFrame()
    found = [
        compare_frames(
            name, first.frames.get(name, empty), second.frames.get(name, empty), tolerance
        )
        for name in dict.fromkeys([*first.frames, *second.frames])
        if name not in SUMMARIES.get(first.kind, ())
    ]
    inputs = _changed_keys(first.problem, second.problem)
    words = inputs.key.map(lambda key: WORDS.match(key) is not None).astype(bool)
    numbers, texts = _gather(found, "numbers"), _gather(found, "texts")
    order = [(name != "verdict", name not in OUTCOMES) for name in texts.column]
    return Diff(
        a=str(a),
        b=str(b),
        problem_kind=first.kind,
        title=str(first.problem.get("title", "")),
        tolerance=tolerance,
        inputs=inputs[~words].reset_index(drop=True),
        words=inputs[words].reset_index(drop=True),
        problem_file=_problem_file_words(first, second),
        versions=_changed_keys(first.versions, second.versions),
        frames=_gather(found, "frames"),
        numbers=numbers.sort_values("largest", ascending=False, kind="stable", ignore_index=True),
        texts=texts.iloc[sorted(range(len(order)), key=order.__getitem__)].reset_index(drop=True),
        rows=_gather(found, "rows"),
        timings=_gather(found, "timings"),
        exact=all(part.exact for part in found),
    )


def _gather(found: list[FrameDiff], table: str) -> pd.DataFrame:
    rows = [row for part in found for row in getattr(part, table)]
    # Text may be missing, and truth values stand among it: all as they were.
    return pd.DataFrame(rows, columns=COLUMNS[table], dtype=object if table == "texts" else None)


def _changed_keys(a: dict[str, Any], b: dict[str, Any]) -> pd.DataFrame:
    """List the keys whose values differ; to be absent is to be null."""
    rows = [
        (key, a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)
    ]
    return pd.DataFrame(rows, columns=["key", "a", "b"], dtype=object)


def _problem_file_words(a: Record, b: Record) -> str:
    """Say whether the problem file's text changed, and whether that means anything."""
    if a.problem_file is None or b.problem_file is None:
        return "Not both runs came from a problem file."
    first, second = a.problem_file.get("text", ""), b.problem_file.get("text", "")
    overrides = [list(side.get("overrides", [])) for side in (a.problem_file, b.problem_file)]
    words = "The text of the problem file is the same."
    if first != second:
        words = "The text of the problem file changed."
        meaning = _toml(first)
        if meaning is not None and meaning == _toml(second):
            words = "The text of the problem file changed only in comments or layout."
    if overrides[0] != overrides[1]:
        said = [", ".join(settings) or "nothing" for settings in overrides]
        words += f" Set on the command line: {said[0]} in A, {said[1]} in B."
    return words


def _toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
