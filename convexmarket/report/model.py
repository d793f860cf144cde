"""The pieces of a report, as data: what it says, apart from how it is written.

An experiment describes its outcome with these classes and hands the :class:`Report` to
:func:`convexmarket.report.render.write_folder`, which knows nothing about the experiment. All text
is plain text: the renderer escapes it, so that what came out of a data file stays text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as MatplotlibFigure

from convexmarket.errors import ParameterError

__all__ = ["Fact", "Figure", "Report", "Section", "Table"]

FILE_STEM = re.compile(r"[a-z0-9][a-z0-9_-]*")


def _check_name(kind: str, name: str) -> None:
    if not FILE_STEM.fullmatch(name):
        raise ParameterError(
            f"the {kind} is named {name!r}; it becomes a file name, so use lower-case letters, "
            "digits, '_' and '-'"
        )


@dataclass(frozen=True)
class Table:
    """A table: shortened on the page if long, complete in ``tables/<name>.csv``.

    Parameters
    ----------
    name : str
        Stem of the CSV file.
    caption : str
    frame : pandas.DataFrame
        The columns; the index is not written.
    headers : mapping of str to str
        Words above a column on the page; by default its name with blanks for underscores.
    formats : mapping of str to str
        Format specification of a column's numbers, such as ``".2f"`` or ``",d"``; by default four
        significant digits.
    rows_shown : int
        How many rows the page shows.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    headers: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    rows_shown: int = 30

    def __post_init__(self) -> None:
        _check_name("table", self.name)


@dataclass(frozen=True)
class Figure:
    """A figure: inline on the page, and in ``figures/<name>.svg`` and ``figures/<name>.png``.

    Parameters
    ----------
    name : str
        Stem of the files.
    caption : str
    draw : callable
        Returns the Matplotlib figure; called under the style of
        :func:`convexmarket.report.figures.report_style`.
    alt : str
        What the figure shows, for readers who do not see it.
    """

    name: str
    caption: str
    draw: Callable[[], MatplotlibFigure]
    alt: str

    def __post_init__(self) -> None:
        _check_name("figure", self.name)


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, a list of points, figures and tables, in this order."""

    heading: str
    prose: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Fact:
    """One number to read first: what it is, and its value as text."""

    label: str
    value: str


@dataclass(frozen=True)
class Report:
    """A report: what it is about, what came out, and everything behind it.

    Parameters
    ----------
    title : str
    summary : tuple of str
        Paragraphs in plain language, read before everything else.
    sections : tuple of Section
    results : mapping
        What ``results.json`` holds: everything needed to reproduce the run.
    facts : tuple of Fact
        The numbers to read first.
    warning : str
        What nobody may miss, said before everything else.
    model : str
        What ``model.json`` holds, where a model was released.

    Raises
    ------
    ParameterError
        If two tables, or two figures, have the same name.
    """

    title: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
    results: Mapping[str, Any]
    facts: tuple[Fact, ...] = ()
    warning: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        for kind, pieces in (("tables", self.tables), ("figures", self.figures)):
            names = Counter(piece.name for piece in pieces)
            twice = [name for name, times in names.items() if times > 1]
            if twice:
                raise ParameterError(f"two {kind} are named {twice[0]!r}; give each its own name")

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table, in the order of the page."""
        return tuple(table for section in self.sections for table in section.tables)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure, in the order of the page."""
        return tuple(figure for section in self.sections for figure in section.figures)
