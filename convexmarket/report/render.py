"""Write a report as a folder: HTML, Markdown, CSV, SVG, PNG and JSON.

The page needs neither a network nor a script: styles and figures stand in it. Everything that came
from data is escaped on the way in, and a content security policy forbids the page to load or run
anything, should that fail. The folder is built next to its destination and then renamed, so an
interrupted run leaves the previous report as it was.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from convexmarket.errors import ParameterError
from convexmarket.report.figures import save_figure
from convexmarket.report.model import Report, Table
from convexmarket.report.words import format_value

__all__ = ["check_replaceable", "plain", "write_folder"]

PAGE = "index.html"
MARKDOWN = "report.md"
RESULTS = "results.json"
MODEL = "model.json"
WRITTEN = re.compile(
    rf"{re.escape(PAGE)}|{re.escape(MARKDOWN)}|{re.escape(RESULTS)}|{re.escape(MODEL)}"
    r"|tables(/[a-z0-9_-]+\.csv)?|figures(/[a-z0-9_-]+\.(svg|png))?"
)
LONGEST_WORD = 24  # characters of a cell that stay on one line
MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
BLANKS = re.compile(r"[ \t\r\n]+")  # a no-break space is not one of them
MARKDOWN_BLOCK = re.compile(r"^(#+|[+=-]|\d+(?=[.)]))(?=[.)]?(?:[ =-]|$))")


@dataclass(frozen=True)
class Column:
    """One column of a table as the page shows it."""

    header: str
    kind: str  # "number", "word" (short, kept on one line) or "text"
    cells: list[str]


@dataclass(frozen=True)
class ShownTable:
    """A table as the page shows it: text, and how many rows there are in all."""

    name: str
    caption: str
    columns: list[Column]
    n_rows: int
    n_shown: int

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells, row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def write_folder(report: Report, out_dir: str | Path) -> Path:
    """Write a report into a folder and return the path of its HTML page.

    Parameters
    ----------
    report : Report
    out_dir : path
        The folder; an earlier report there is replaced, all at once.

    Returns
    -------
    pathlib.Path
        ``out_dir/index.html``; next to it are ``report.md``, ``results.json``, ``tables/*.csv`` and
        ``figures/*.svg`` and ``*.png``, and ``model.json`` where a model was released.

    Raises
    ------
    ParameterError
        If ``out_dir`` is a file, or a folder with something in it that no report wrote.
    """
    target = Path(out_dir).resolve()
    check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as workshop:
        fresh = Path(workshop, "fresh")
        fresh.mkdir()
        _write_contents(report, fresh)
        check_replaceable(target)
        _replace(target, fresh, Path(workshop, "previous"))
    return target / PAGE


def check_replaceable(target: Path) -> None:
    """Refuse to remove anything but an earlier report.

    Raises
    ------
    ParameterError
        If the target is a file, or a folder with something in it that no report wrote.
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise ParameterError(f"{target} is a file; a report needs a folder of its own")
    for path in sorted(target.rglob("*")):
        inside = path.relative_to(target).as_posix()
        if not WRITTEN.fullmatch(inside):
            raise ParameterError(
                f"the folder {target} holds {inside!r}, which no report wrote; move it away or "
                "choose another folder, because writing a report replaces the whole folder"
            )


def _replace(target: Path, fresh: Path, previous: Path) -> None:
    """Put the fresh folder in the target's place, or leave the target as it was."""
    if not target.exists():
        fresh.rename(target)
        return
    target.rename(previous)
    try:
        fresh.rename(target)
    except BaseException:
        if not target.exists():
            previous.rename(target)
        raise


def _write_contents(report: Report, folder: Path) -> None:
    (folder / "tables").mkdir()
    for table in report.tables:
        table.frame.to_csv(
            folder / "tables" / f"{table.name}.csv", index=False, lineterminator="\n"
        )
    (folder / "figures").mkdir()
    drawings = {}
    for figure in report.figures:
        svg = save_figure(figure.draw, folder / "figures" / figure.name)
        drawings[figure.name] = inline_svg(svg, figure.name)
    shown = {table.name: shown_table(table) for table in report.tables}
    anchors = _anchors(report)
    context = {"report": report, "drawings": drawings, "shown": shown, "anchors": anchors}
    for name, environment in ((PAGE, html_environment()), (MARKDOWN, markdown_environment())):
        text = environment.get_template(f"{name}.j2").render(context)
        (folder / name).write_text(text, encoding="utf-8")
    results = json.dumps(plain(report.results), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / RESULTS).write_text(results + "\n", encoding="utf-8")
    if report.model:
        (folder / MODEL).write_text(report.model, encoding="utf-8")


def _anchors(report: Report) -> list[str]:
    """Name the sections for links inside the page, each name once."""
    anchors: list[str] = []
    for number, section in enumerate(report.sections, start=1):
        slug = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-")
        taken = not slug or f"section-{slug}" in anchors
        anchors.append(f"section-{number}" if taken else f"section-{slug}")
    return anchors


def shown_table(table: Table) -> ShownTable:
    """Turn the first rows of a table into text."""
    frame = table.frame.head(table.rows_shown)
    columns = []
    for position, name in enumerate(frame.columns):
        values = frame.iloc[:, position]
        spec = table.formats.get(name, "")
        cells = [format_value(value, spec) for value in values]
        header = table.headers.get(name, str(name).replace("_", " "))
        columns.append(Column(header, _kind(values, cells), cells))
    return ShownTable(table.name, table.caption, columns, len(table.frame), len(frame))


def _kind(values: pd.Series, cells: list[str]) -> str:
    dtype = values.dtype
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype):
        return "number"
    return "word" if all(len(cell) <= LONGEST_WORD for cell in cells) else "text"


def inline_svg(svg: str, name: str) -> Markup:
    """Return an SVG file's drawing ready to stand in a page.

    The prologue goes, the page sets the size, and every id gets the figure's name in front: ids are
    shared by the whole page. The accessible name stands on the element around it.
    """
    drawing = svg[svg.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r'\bid="', f'id="{name}-', drawing)
    drawing = re.sub(r'href="#', f'href="#{name}-', drawing)
    drawing = re.sub(r"url\(#", f"url(#{name}-", drawing)
    drawing = re.sub(
        r'<style type="text/css">\*\{(.*?)\}</style>',
        rf'<style type="text/css">#drawing-{name} *{{\1}}</style>',
        drawing,
    )
    return Markup(drawing.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1))


def escape_markdown(value: Any) -> str:
    """Escape text so that Markdown shows it as it is, unless a template calls it safe."""
    if isinstance(value, Markup):
        return value
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = MARKDOWN_SPECIAL.sub(r"\\\1", BLANKS.sub(" ", text).strip(" "))
    return MARKDOWN_BLOCK.sub(_escape_block_start, text)


def _escape_block_start(match: re.Match[str]) -> str:
    """Keep a paragraph from being a heading, a rule or a list: '# x', '---', '- x', '1. x'."""
    mark = match[1]
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def html_environment() -> Environment:
    """Return the templates' environment for HTML: every expression is escaped."""
    return Environment(
        loader=PackageLoader("convexmarket.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def markdown_environment() -> Environment:
    """Return the templates' environment for Markdown: every expression is escaped."""
    return Environment(
        loader=PackageLoader("convexmarket.report"),
        autoescape=False,  # HTML's escaping; finalize escapes for Markdown, HTML included
        finalize=escape_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def plain(value: Any) -> Any:
    """Turn results into what strict JSON can hold.

    Arrays and frames become lists, not-a-number becomes null, and an infinity becomes the string
    "Infinity" or "-Infinity", because JSON has no number for it.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, pd.DataFrame):
        return [plain(row) for row in value.to_dict(orient="records")]
    if isinstance(value, np.ndarray | pd.Series):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
