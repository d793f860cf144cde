"""What changed between two runs, in words: for a page, and for the terminal."""

from __future__ import annotations

from collections import Counter
from textwrap import shorten
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as MatplotlibFigure
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table as RichTable

from convexmarket.deal import versions
from convexmarket.lab.report.diff import Diff
from convexmarket.lab.report.diff_records import SINGLE_VALUES
from convexmarket.lab.report.figures import INK, WIDTH, series_style
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.words import count, format_number, format_value, listing

__all__ = ["diff_report", "diff_summary", "diff_words"]

NAMED = 3  # how many of the changes a sentence names
DRAWN = 25  # how many columns the figure has
LISTED = 10  # how many rows of a table the terminal shows
LETTERS = 70  # how much of a text the terminal and the summary show

_BY_ID = r"\bid\b"  # in what rows were matched by
_DIGITS = {"a": ".8g", "b": ".8g", "largest": ".3g"}
_SIDES = {"a": "A", "b": "B"}


def diff_words(diff: Diff) -> tuple[str, ...]:
    """Say what changed, in paragraphs: the answer first, then the most important."""
    inputs = "Same inputs" if diff.inputs.empty else "Different inputs"
    made_with = "same versions" if diff.versions.empty else "different versions"
    if diff.n_differ:
        results = "different results"
    elif not diff.same_results:
        results = "the same results as far as both runs have them (timings apart)"
    elif diff.exact:
        results = "results identical (timings apart)"
    else:
        results = f"results the same to {diff.tolerance:g} (timings apart)"
    paragraphs = (
        f"{inputs}, {made_with}, {results}.",
        _verdict_words(diff),
        _key_words("Inputs", diff.inputs),
        "" if diff.words.empty else "The problem is described in other words.",
        _key_words("Versions and machine", diff.versions),
        _number_words(diff),
        _text_words(diff),
        _row_words(diff),
        _timing_words(diff),
    )
    return tuple(paragraph for paragraph in paragraphs if paragraph)


def _verdict_words(diff: Diff) -> str:
    verdicts = diff.verdicts
    if verdicts.empty:
        return ""
    changes = [f"{row.where}: {row.a} in A, {row.b} in B" for row in verdicts.itertuples()]
    return f"{count(len(verdicts), 'verdict')} on claims changed. {_some(changes)}."


def _key_words(what: str, changed: pd.DataFrame) -> str:
    if changed.empty:
        return ""
    changes = [
        f"{key} is {_short(_setting(a))} in A and {_short(_setting(b))} in B"
        for key, a, b in changed.to_numpy()
    ]
    return f"{what}: {_some(changes)}."


def _number_words(diff: Diff) -> str:
    numbers = diff.numbers
    if numbers.empty:
        return ""
    cells = int(numbers["differ"].sum())
    words = []
    if cells:
        first = numbers.iloc[0]
        words.append(
            f"{count(cells, 'number')} in {count(int((numbers['differ'] > 0).sum()), 'column')} "
            f"{'differs' if cells == 1 else 'differ'} by more than {diff.tolerance:g}, relative "
            f"to the larger. The largest "
            f"difference is {format_number(first.largest)}, in {_place(first)}: "
            f"{first.a:.10g} in A, {first.b:.10g} in B."
        )
    if missing := int(numbers.missing.sum()):
        words.append(f"Cells with a finite number in one run only: {missing:,}.")
    return " ".join(words)


def _text_words(diff: Diff) -> str:
    texts = diff.texts.drop(diff.verdicts.index)
    if texts.empty:
        return ""
    columns = Counter(zip(texts.frame, texts.column, strict=True))
    changes = [f"{column} of {frame} ({number:,})" for (frame, column), number in columns.items()]
    return f"{count(len(texts), 'cell')} of text changed: {_some(changes)}."


def _row_words(diff: Diff) -> str:
    if diff.rows.empty:
        return ""
    sides = [f"{int((diff.rows['only in'] == side).sum()):,} in {side} only" for side in "AB"]
    return f"Rows and columns that one run alone has: {listing(sides)}."


def _timing_words(diff: Diff) -> str:
    total = diff.timings[diff.timings.column == "timings.total"]
    if total.empty:
        return ""
    seconds = total.iloc[0]
    return (
        f"Time in all: {format_number(seconds.a)} s in A and {format_number(seconds.b)} s in B, a "
        f"ratio of {format_number(seconds.ratio)}."
    )


def _some(changes: list[str]) -> str:
    """Name the first few, and say how many more there are."""
    more = len(changes) - NAMED
    return "; ".join([*changes[:NAMED], *([f"and {more:,} more"] if more > 0 else [])])


def _place(row: Any) -> str:
    """Say in which cell of which table something is."""
    table = "" if row.frame == SINGLE_VALUES else f" of {row.frame}"
    return f"{row.column}{table}{', at ' if row['where'] else ''}{row['where']}"


def _setting(value: Any) -> str:
    """Write a setting in full: digits and types are what may have changed."""
    return "not set" if value is None else str(value)


def _short(value: Any) -> Any:
    """Cut long text."""
    return shorten(value, LETTERS, placeholder=" …") if isinstance(value, str) else value


def diff_report(diff: Diff) -> Report:
    """Describe what changed between two runs as a report."""
    headline, *rest = diff_words(diff)
    title = f"Two runs compared: {diff.title or diff.problem_kind}"
    # What an index of reports reads of any report.
    described = {
        "problem": {"kind": "diff", "title": title, "description": headline},
        "provenance": {"versions": versions()},
    }
    return Report(
        title=title,
        summary=(headline, f"A is {diff.a}, B is {diff.b}.", *rest),
        sections=tuple(part for part in _sections(diff) if part.prose or part.tables),
        results={**diff.as_data(), **described},
        facts=(
            Fact("Inputs that changed", f"{len(diff.inputs):,}"),
            Fact("Versions that changed", f"{len(diff.versions):,}"),
            Fact("Cells that differ", f"{diff.n_differ:,} of {int(diff.frames.cells.sum()):,}"),
            Fact("Rows and columns in one run only", f"{len(diff.rows):,}"),
        ),
        of_sellers=bool(diff.frames["matched by"].astype(str).str.contains(_BY_ID).any()),
    )


def _sections(diff: Diff) -> list[Section]:
    inputs = pd.concat([diff.inputs, diff.words], ignore_index=True)
    return [
        _section(
            "Verdicts that changed",
            Table(
                "verdicts",
                "Claims of the papers whose verdict is not the same.",
                diff.verdicts.drop(columns=["frame", "column"]),
                {**_SIDES, "where": "claim"},
            ),
        ),
        _section(
            "Inputs",
            Table("inputs", "Keys of the problem that changed.", inputs.map(_setting), _SIDES),
            diff.problem_file,
        ),
        _section(
            "Versions and machine",
            Table("versions", "What the runs were made with.", diff.versions.map(_setting), _SIDES),
        ),
        _section(
            "Numbers that differ",
            Table(
                "numbers",
                "Columns of numbers: how many cells differ, the largest difference (relative to "
                "the larger number), where it is, and the two numbers there.",
                diff.numbers.drop(columns="cells"),
                {**_SIDES, "missing": "in one run only", "largest": "largest difference"},
                _DIGITS,
            ),
            figures=_figures(diff),
        ),
        _section(
            "Text that differs",
            Table(
                "texts",
                "Cells of text and truth values; what came out stands first.",
                diff.texts,
                _SIDES,
            ),
        ),
        _section(
            "Rows and columns of one run only",
            Table("rows", "What the other run does not have.", diff.rows),
        ),
        _section(
            "Timings",
            Table(
                "timings",
                "Times (in seconds) and memory (in MB) differ from run to run, and never count as "
                "a difference: medians over the cells that both runs measured, and the median "
                "ratio.",
                diff.timings,
                {"a": "median in A", "b": "median in B", "ratio": "B over A"},
            ),
        ),
        _section(
            "How it was compared",
            Table(
                "frames",
                "The tables of the results, and the columns on which their rows were matched.",
                diff.frames,
            ),
            "Rows are matched on the columns that say what a row is about, whatever their order; "
            "by position where no columns tell all rows apart. Two numbers are the same if they "
            f"differ by at most {diff.tolerance:g}, relative to the larger, or by no more than "
            "rounding of zero. “Single values” are the results that stand in no table.",
        ),
    ]


def _section(heading: str, table: Table, *prose: str, figures: tuple[Figure, ...] = ()) -> Section:
    """Return a section whose table stands there if it has rows."""
    return Section(heading, prose, figures=figures, tables=() if table.frame.empty else (table,))


def _figures(diff: Diff) -> tuple[Figure, ...]:
    drawn = diff.numbers.dropna(subset="largest").head(DRAWN)
    if drawn.empty:
        return ()
    first = drawn.iloc[0]
    return (
        Figure(
            "differences",
            "The largest relative difference in each column of numbers"
            f"{'' if len(drawn) == len(diff.numbers) else f'; the {len(drawn)} largest'}. "
            "At 1 the smaller number is next to nothing beside the larger; above 1 the sign "
            "changed.",
            lambda: draw_differences(drawn),
            f"The largest is {format_number(first.largest)}, in {first.column} of {first.frame}.",
        ),
    )


def draw_differences(numbers: pd.DataFrame) -> MatplotlibFigure:
    """Draw the largest relative difference in each column, one dot each, on a log scale.

    Parameters
    ----------
    numbers : pandas.DataFrame
        Columns frame, column and largest, the largest first.
    """
    figure = MatplotlibFigure(figsize=(WIDTH, 0.9 + 0.24 * len(numbers)))
    axes = figure.subplots()
    rows = range(len(numbers))
    look = series_style(0)
    least = 10.0 ** np.floor(np.log10(0.9 * numbers.largest.min()))
    axes.hlines(rows, least, numbers.largest, color=look["color"], lw=1)
    axes.plot(numbers.largest, rows, look["marker"], color=look["color"], clip_on=False)
    axes.set_xscale("log")
    axes.set_xlim(least, max(1.3, 1.1 * numbers.largest.max()))
    axes.axvline(1.0, color=INK, lw=0.8, linestyle=(0, (4, 3)))
    axes.set_yticks(rows, _columns(numbers))
    axes.set_ylim(len(numbers) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("largest difference, relative to the larger number (log scale)")
    return figure


def _columns(numbers: pd.DataFrame) -> list[str]:
    pairs = zip(numbers.frame, numbers.column, strict=True)
    return [column if frame == SINGLE_VALUES else f"{frame}: {column}" for frame, column in pairs]


def diff_summary(diff: Diff) -> list[RichTable | str]:
    """Return what the terminal shows: the words, and the first rows of what changed."""
    headline, *rest = (escape(paragraph) for paragraph in diff_words(diff))
    files = escape(diff.problem_file)
    shown: list[RichTable | str] = [f"[bold]{headline}[/bold]", *rest, files]
    numbers = diff.numbers.assign(column=_columns(diff.numbers))
    for title, frame in (
        ("Inputs", diff.inputs.map(_setting)),
        ("Versions and machine", diff.versions.map(_setting)),
        ("Numbers that differ", numbers[["column", "differ", "missing", "largest", "a", "b"]]),
        ("Text that differs", diff.texts),
        ("Rows and columns of one run only", diff.rows),
    ):
        if not frame.empty:
            shown.append(_rich(title, frame))
    return shown


def _rich(title: str, frame: pd.DataFrame) -> RichTable:
    more = len(frame) - LISTED
    table = RichTable(
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        caption=f"and {more:,} more" if more > 0 else None,
        caption_justify="left",
    )
    for column in frame:
        number = pd.api.types.is_numeric_dtype(frame[column])
        header = _SIDES.get(str(column), str(column))
        table.add_column(header, justify="right" if number else "left", no_wrap=number)
    for row in frame.head(LISTED).to_dict("records"):
        cells = [
            format_value(_short(cell), _DIGITS.get(str(name), "")) for name, cell in row.items()
        ]
        table.add_row(*map(escape, cells))
    return table
