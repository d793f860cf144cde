"""The pieces of a report, as data: what it says, apart from how it is written.

An experiment describes its outcome with these classes and hands the :class:`Report` to
:func:`convexmarket.lab.report.render.write_folder`, which knows nothing about the experiment. All
text is plain text: the renderer escapes it, so that what came out of a data file stays text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure as MatplotlibFigure

from convexmarket.errors import ParameterError
from convexmarket.lab.report.words import escape_markdown

__all__ = [
    "Block",
    "Fact",
    "Figure",
    "Listing",
    "Report",
    "Section",
    "Table",
    "in_markdown",
]

FILE_STEM = re.compile(r"[a-z0-9][a-z0-9_-]*")
ATTACHMENT = re.compile(r"runs\.jsonl")


def _check_name(kind: str, name: str) -> None:
    if not FILE_STEM.fullmatch(name):
        raise ParameterError(
            f"the {kind} is named {name!r}; it becomes a file name, so use lower-case letters, "
            "digits, '_' and '-'"
        )


@dataclass(frozen=True, eq=False)
class Table:
    """A table: shortened on the page if long, complete in ``tables/<name>.csv``.

    The rows that the page shows are also in ``tables/<name>.tex``.

    Parameters
    ----------
    name : str
        Stem of the files.
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
    complete : pandas.DataFrame, optional
        What the CSV file holds, where that is more than the page shows, or in another order.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    headers: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    rows_shown: int = 30
    complete: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        _check_name("table", self.name)

    @property
    def stored(self) -> pd.DataFrame:
        """What the CSV file holds."""
        return self.frame if self.complete is None else self.complete

    @property
    def of_sellers(self) -> bool:
        """Whether a row is what a single seller reported."""
        return {"id", "sensitivity"} <= set(self.stored.columns)


@dataclass(frozen=True)
class Figure:
    """A figure: inline on the page, and in ``figures/<name>`` as ``.svg``, ``.png`` and ``.pdf``.

    Parameters
    ----------
    name : str
        Stem of the files.
    caption : str
    draw : callable
        Returns the Matplotlib figure; called under the style of
        :func:`convexmarket.lab.report.figures.report_style`.
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
class Listing:
    """A text to the letter, such as a problem file; folded on the page."""

    caption: str
    text: str


#: What a section consists of; text is Markdown.
Block: TypeAlias = Markup | Figure | Table | Listing

#: How many tables a page shows at once; and those that it shows folded at its end in any case.
MOST_TABLES = 8
FOLDED = {"certificates", "draws", "runs", "instances", "machine", "provenance", "timings"}


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, a list of points, figures and tables, in this order.

    Or with a ``body`` of Markdown, figures and tables in an order of its own, as a template gives.
    """

    heading: str
    prose: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    body: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        for kind, name in ((Figure, "figures"), (Table, "tables")):
            told = tuple(block for block in self.body if isinstance(block, kind))
            object.__setattr__(self, name, (*getattr(self, name), *told))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What stands below the heading, in its order."""
        return self.body or (*in_markdown(self.prose, self.points), *self.figures, *self.tables)

    @property
    def text(self) -> Markup:
        """Its Markdown, without figures and tables."""
        return Markup("\n\n").join(block for block in self.blocks if isinstance(block, Markup))


def in_markdown(paragraphs: Iterable[str], points: Iterable[str] = ()) -> tuple[Markup, ...]:
    """Write plain paragraphs, and a list of points, as Markdown."""
    listed = "\n".join(f"- {escape_markdown(point)}" for point in points)
    return tuple(Markup(text) for text in (*map(escape_markdown, paragraphs), listed) if text)


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
    summary : tuple of str or Block
        What is read before everything else: paragraphs, the first of them what was found; from a
        template also a figure.
    sections : tuple of Section
    results : dataclass instance or mapping
        What ``results.json`` holds: what the experiment returned, from which the report can be
        written again; or plain values.
    facts : tuple of Fact
        The numbers to read first.
    warning : str
        What nobody may miss, said before everything else.
    model : str
        What ``model.json`` holds, where a model was released.
    attachments : mapping of str to bytes
        Further files of the folder, such as ``runs.jsonl``, by name.
    of_sellers : bool, default False
        Whether all of its tables may speak of single sellers, and not only those that say so
        themselves.

    Raises
    ------
    ParameterError
        If two tables, or two figures, have the same name, or an attachment has one that no report
        writes.
    """

    title: str
    summary: tuple[str | Block, ...]
    sections: tuple[Section, ...]
    results: Any
    facts: tuple[Fact, ...] = ()
    warning: str = ""
    model: str = ""
    attachments: Mapping[str, bytes] = field(default_factory=dict)
    of_sellers: bool = False

    def __post_init__(self) -> None:
        for name in self.attachments:
            if not ATTACHMENT.fullmatch(name):
                raise ParameterError(
                    f"an attachment is named {name!r}; a report's folder may hold "
                    f"{ATTACHMENT.pattern.replace(chr(92), '')}"
                )
        for kind, pieces in (("tables", self.tables), ("figures", self.figures)):
            names = Counter(piece.name for piece in pieces)
            twice = [name for name, times in names.items() if times > 1]
            if twice:
                raise ParameterError(f"two {kind} are named {twice[0]!r}; give each its own name")

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table, in the order of the page."""
        return tuple(table for section in self._parts for table in section.tables)

    @property
    def appendix(self) -> tuple[Table, ...]:
        """The tables that stand folded at the end of the page."""
        open_ones = [table for table in self.tables if table.name not in FOLDED][:MOST_TABLES]
        return tuple(table for table in self.tables if table not in open_ones)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure, in the order of the page."""
        return tuple(figure for section in self._parts for figure in section.figures)

    @property
    def lead(self) -> tuple[Block, ...]:
        """What is read before everything else; the text is Markdown."""
        return tuple(
            Markup(escape_markdown(block)) if isinstance(block, str) else block
            for block in self.summary
        )

    @property
    def _parts(self) -> tuple[Section, ...]:
        return (Section("", body=self.lead), *self.sections)

    @property
    def private_tables(self) -> tuple[str, ...]:
        """Names of the tables that tell what single sellers reported."""
        return tuple(table.name for table in self.tables if self.of_sellers or table.of_sellers)
