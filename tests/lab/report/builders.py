"""What the tests of reports share: the stored results, made-up ones, and what a report says."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_it import MarkdownIt
from matplotlib.figure import Figure

from convexmarket.lab.report.figures import report_style
from convexmarket.lab.report.marks import even_ticks, show_covered
from convexmarket.lab.report.model import Report
from convexmarket.lab.report.results import read_results
from convexmarket.lab.report.saving import compact_svg
from convexmarket.lab.result import Result
from tests import ROOT

#: A folder for every kind, or family of learners: problem.toml, results.json and its report.md.
GOLDEN = ROOT / "tests" / "lab" / "report" / "golden"
STORED = sorted(folder.parent.name for folder in GOLDEN.glob("*/problem.toml"))
#: All that a report may hold besides.
ALL = ("csv", "tex", "svg", "pdf")
#: Results that nobody ran: every outcome is in them, and no time that somebody's machine took.
MADE_UP: tuple[str, ...] = ()


@cache
def stored(kind: str) -> Any:
    """Return the small result of a kind that is stored."""
    return read_results(GOLDEN / kind)


def problem_text(kind: str) -> str:
    """Return the problem file of a stored result."""
    return (GOLDEN / kind / "problem.toml").read_text(encoding="utf-8")


def words(report: Report) -> str:
    """Return what a report says, captions apart."""
    lead = [block for block in report.lead if isinstance(block, str)]
    return plain("\n\n".join([*lead, *(section.text for section in report.sections)]))


def words_of(report: Report, heading: str) -> str:
    """Return what the section says whose heading begins so."""
    part = next(item for item in report.sections if item.heading.startswith(heading))
    return plain(part.text)


def plain(markdown: str) -> str:
    """Return Markdown as its reader sees it, in one line."""
    shown = html.unescape(re.sub(r"<[^>]+>", "", MarkdownIt().render(markdown)))
    return plain_blanks(" ".join(shown.split("\n")))


def plain_blanks(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def headings(report: Report) -> list[str]:
    return [section.heading for section in report.sections]


def facts(report: Report) -> dict[str, str]:
    return {plain_blanks(fact.label): fact.value for fact in report.facts}


def table(report: Report, name: str) -> pd.DataFrame:
    (found,) = (item.frame for item in report.tables if item.name == name)
    return found


def altered(result: Result, **parts: Any) -> Result:
    """Return a result with other tables, numbers or fields."""
    own = {name: part for name, part in parts.items() if name in vars(result)}
    parts = {name: part for name, part in parts.items() if name not in own}
    tables = {name: part for name, part in parts.items() if isinstance(part, pd.DataFrame)}
    assert tables.keys() <= result.tables.keys()
    assert parts.keys() - tables <= result.numbers.keys()
    numbers = {name: part for name, part in parts.items() if name not in tables}
    changed = {"tables": result.tables | tables, "numbers": result.numbers | numbers}
    return replace(result, **(changed | own))


# -------------------------------------------------------------------------------------- figures


def drawn(report: Report, name: str) -> Figure:
    """Draw a figure as the report's files show it."""
    (piece,) = (figure for figure in report.figures if figure.name == name)
    return laid_out(piece.draw, name)


def laid_out(draw: Callable[[], Figure], name: str) -> Figure:
    with report_style(name):
        figure = draw()
        even_ticks(figure)
        show_covered(figure)
        figure.draw_without_rendering()
    return figure


def save_svg_only(draw: Callable[[], Figure], stem: Path, formats: Collection[str] = ()) -> str:
    """Draw a figure once, which is enough to see what it shows; its other files are empty."""
    drawing = BytesIO()
    with report_style(stem.name):
        figure = draw()
        even_ticks(figure)
        show_covered(figure)
        figure.savefig(drawing, format="svg", metadata={"Date": None, "Creator": None})
    return _figure_files(compact_svg(drawing.getvalue().decode("utf-8")), stem, formats)


def save_a_frame(draw: Callable[[], Figure], stem: Path, formats: Collection[str] = ()) -> str:
    """Stand in for a figure where a test is about everything else."""
    return _figure_files(f"<svg><title>{stem.name}</title></svg>", stem, formats)


def _figure_files(svg: str, stem: Path, formats: Collection[str]) -> str:
    contents = {"svg": svg, "png": "", "pdf": ""}
    for kind in ("png", *(kind for kind in formats if kind in contents)):
        stem.with_suffix(f".{kind}").write_text(contents[kind], encoding="utf-8")
    return svg


def misplaced(figure: Figure) -> list[str]:
    """Return the titles and labels that are cut off, and the pairs that lie on each other."""
    texts = [
        text
        for axes in figure.axes
        for text in (axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label)
    ]
    return collisions(
        figure,
        [
            (text.get_text(), text.get_window_extent())
            for text in [*texts, *figure.texts]
            if text.get_text()
        ],
    )


def crowded(figure: Figure) -> list[str]:
    """Do the same with legends and the labels of ticks."""
    boxes = [(str(legend), legend.get_window_extent()) for legend in figure.legends]
    for axes in figure.axes:
        legend = axes.get_legend()
        ticks = [tick.label1 for tick in axes.xaxis.get_major_ticks()]
        texts = [axes._left_title, axes.title, axes.xaxis.label, axes.yaxis.label, *ticks]
        found = [text for text in texts if text.get_text()] + ([legend] if legend else [])
        low, high = axes.get_xlim()
        boxes += [
            (str(artist), artist.get_window_extent())
            for artist in found
            if artist.get_visible()
            and not (artist in ticks and not low <= artist.get_position()[0] <= high)
        ]
    return collisions(figure, boxes)


def collisions(figure: Figure, boxes: list[tuple[str, Any]]) -> list[str]:
    width, height = figure.bbox.width + 1, figure.bbox.height + 1
    cut = [
        name for name, box in boxes if min(box.x0, box.y0) < -1 or box.x1 > width or box.y1 > height
    ]
    return cut + [
        f"{name} / {other}"
        for (name, a), (other, b) in itertools.combinations(boxes, 2)
        if max(a.x0, b.x0) + 1 < min(a.x1, b.x1) and max(a.y0, b.y0) + 1 < min(a.y1, b.y1)
    ]


# ---------------------------------------------------------------------------------------- pages


class Page(HTMLParser):
    """What a page consists of: start tags with attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.tags if attributes.get("id")]


def dead_links(page: Page, folder: Path) -> list[str]:
    """Return what the page refers to and neither it nor its folder has."""
    ids = set(page.ids)
    found = []
    for tag, attributes in page.tags:
        target = attributes.get("href") or attributes.get("xlink:href") or ""
        if target.startswith("#"):
            found += [target] * (target[1:] not in ids)
        elif tag == "a" and not target.startswith("https://"):
            found += [target] * (not (folder / target).is_file())
        label = attributes.get("aria-labelledby")
        found += [label] * (label is not None and label not in ids)
    return found
