"""Write a report as a folder: HTML, Markdown, PNG and JSON; LaTeX, CSV, SVG and PDF on demand.

The page needs no network: styles, figures and one script stand in it, and without the script it is
complete. Everything that came from data is escaped on the way in, and a content security policy
forbids the page to load anything, or to run anything but that script, should escaping fail. What
single sellers reported only the owner of its files may read, and a file or folder that is replaced
keeps its mode and owner. The folder is built next to its destination and then renamed, so an
interrupted run leaves the previous report as it was.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from joblib import Parallel, cpu_count, delayed
from markdown_it import MarkdownIt
from markupsafe import Markup
from rich.console import Console
from rich.progress import track

from convexmarket.checks import check_choice
from convexmarket.data.csv_cells import write_csv
from convexmarket.errors import DataError, ParameterError
from convexmarket.io import keep_access
from convexmarket.lab.report.citations import PAPERS_HEADING
from convexmarket.lab.report.latex import latex_table
from convexmarket.lab.report.model import ATTACHMENT, Figure, Report
from convexmarket.lab.report.results import RESULTS, is_ours, plain, write_results
from convexmarket.lab.report.saving import (
    inline_svg,
    one_note_about_glyphs,
    save_figure,
)
from convexmarket.lab.report.shown import shown_table
from convexmarket.lab.report.words import escape_markdown, printable
from convexmarket.lab.report.workshop import FRESH, replace, workshop

__all__ = ["Format", "check_replaceable", "markdown_page", "plain", "write_folder"]

PAGE = "index.html"
MARKDOWN = "report.md"
MODEL = "model.json"
WRITTEN = re.compile(
    "|".join(map(re.escape, (PAGE, MARKDOWN, RESULTS, MODEL)))
    + rf"|{ATTACHMENT.pattern}"
    + r"|tables(/[a-z0-9_-]+\.(csv|parquet|tex))?|figures(/[a-z0-9_-]+\.(svg|png|pdf))?"
)
OWNER_ONLY = 0o600
#: What is written on demand: tables as CSV and LaTeX, figures as SVG and PDF.
Format: TypeAlias = Literal["csv", "tex", "svg", "pdf"]
#: From so many figures on, drawing side by side is worth the start of other processes.
MANY_FIGURES = 8


class Script(NamedTuple):
    """A script that stands in the page, and what the page's policy says to allow it."""

    code: Markup
    allowed: str


def write_folder(report: Report, out_dir: str | Path, formats: Collection[Format] = ()) -> Path:
    """Write a report into a folder and return the path of its HTML page.

    Parameters
    ----------
    report : Report
    out_dir : path
        The folder; an earlier report there is replaced, all at once.
    formats : collection of {"csv", "tex", "svg", "pdf"}
        What to write besides: tables as CSV and LaTeX, figures as SVG and PDF.

    Returns
    -------
    pathlib.Path
        ``out_dir/index.html``; next to it are ``report.md``, ``results.json`` with its long tables
        as ``tables/*.parquet``, ``figures/*.png``, ``model.json`` where a model was released, and
        what the report has attached.

    Raises
    ------
    ParameterError
        If ``out_dir`` is a file, or a folder with something in it that no report wrote, or a
        format is none.
    DataError
        If the disk is full, or the folder may not be written; the former report is as it was.
    """
    for one in formats:
        check_choice("formats", one, Format)
    target = Path(out_dir).resolve()
    check_replaceable(target)
    try:
        with workshop(target) as folder:
            fresh = folder / FRESH
            fresh.mkdir()
            _write_contents(report, fresh, formats)
            _close(report, fresh, target)
            replace(target, folder)
    except OSError as error:
        raise DataError(
            f"{target}: the report could not be written ({error.strerror or error}); what was "
            "there before is as it was"
        ) from error
    return target / PAGE


def check_replaceable(target: Path) -> None:
    """Check that a folder holds an earlier report, or nothing, so that a report may replace it.

    Parameters
    ----------
    target : pathlib.Path

    Raises
    ------
    ParameterError
        If the target is a file, holds no ``results.json`` of this package or a file with a name
        that no report uses, or if the command runs in it.
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise ParameterError(f"{target} is a file; name a folder for the report")
    names = [path.relative_to(target).as_posix() for path in sorted(target.rglob("*"))]
    foreign = next((name for name in names if not WRITTEN.fullmatch(name)), None)
    if foreign is not None:
        raise ParameterError(
            f"the folder {target} holds {foreign!r}, which no report wrote; move it away or choose "
            "another folder, because writing a report replaces the whole folder"
        )
    if not all(map(ATTACHMENT.fullmatch, names)) and not is_ours(target):
        raise ParameterError(
            f"the folder {target} holds files and no {RESULTS} of convexmarket; choose another "
            "folder, because writing a report replaces the whole folder"
        )
    if Path.cwd().is_relative_to(target):
        raise ParameterError(
            f"the working directory lies in {target}, which would be replaced; run the command "
            "from outside of it"
        )


def _write_contents(report: Report, folder: Path, formats: Collection[Format]) -> None:
    (folder / "tables").mkdir()
    if "csv" in formats:
        for table in report.tables:
            place = folder / "tables" / f"{table.name}.csv"
            with open(place, "x", encoding="utf-8", newline="") as file:
                write_csv(table.stored, file)
    (folder / "figures").mkdir()
    drawings = {
        figure.name: (number, inline_svg(svg, number))
        for number, (figure, svg) in enumerate(_drawn(report.figures, folder, formats))
    }
    shown = {table.name: shown_table(table) for table in report.tables}
    if "tex" in formats:
        for name, view in shown.items():
            text = latex_table(view, report.title)
            (folder / "tables" / f"{name}.tex").write_text(text, encoding="utf-8")
    context = {
        "report": report,
        "formats": formats,
        "drawings": drawings,
        "shown": shown,
        "anchors": _anchors(report),
        "script": page_script(),
    }
    page = html_environment().get_template(f"{PAGE}.j2").render(context)
    (folder / PAGE).write_text(page, encoding="utf-8")
    (folder / MARKDOWN).write_text(markdown_page(report, formats), encoding="utf-8")
    write_results(report.results, folder)
    with suppress(OSError):  # where nothing is in it
        (folder / "tables").rmdir()
    if report.model:
        (folder / MODEL).write_text(report.model, encoding="utf-8")
    for name, content in report.attachments.items():
        (folder / name).write_bytes(content)


def _drawn(
    figures: Collection[Figure], folder: Path, formats: Collection[Format]
) -> Iterator[tuple[Figure, str]]:
    """Save all figures, many of them side by side, and yield each with its SVG."""
    alone = (
        parent_process() is None
    )  # where reports are written side by side, their figures are not
    jobs = cpu_count() if alone and len(figures) >= MANY_FIGURES else 1
    calls = (
        delayed(save_figure)(figure.draw, folder / "figures" / figure.name, formats)
        for figure in figures
    )
    console = Console(stderr=True)
    with one_note_about_glyphs():
        drawn = Parallel(jobs, return_as="generator")(calls)
        shown = track(
            drawn, "figures", len(figures), console=console, transient=True, disable=jobs == 1
        )
        yield from zip(figures, shown, strict=True)


def _close(report: Report, fresh: Path, target: Path) -> None:
    """Let the owner alone read what sellers reported, and nobody what was closed to them before."""
    public = {*report.attachments}
    for table in report.tables:
        if table.name not in report.private_tables:
            public |= {f"tables/{table.name}.csv", f"tables/{table.name}.tex"}
    for path in (fresh, *fresh.rglob("*")):
        inside = path.relative_to(fresh)
        if report.private_tables and path.is_file() and inside.as_posix() not in public:
            path.chmod(OWNER_ONLY)
        keep_access(target / inside, path)


def markdown_page(report: Report, formats: Collection[Format] = ()) -> str:
    """Return the report as Markdown; its figures need not be drawn for that."""
    shown = {table.name: shown_table(table) for table in report.tables}
    template = markdown_environment().get_template(f"{MARKDOWN}.j2")
    return template.render(report=report, shown=shown, formats=formats)


def _anchors(report: Report) -> list[str]:
    """Name the sections for links inside the page, each name once."""
    anchors: list[str] = []
    for number, section in enumerate(report.sections, start=1):
        slug = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-")
        if section.heading == PAPERS_HEADING:
            anchors.append("papers")
            continue
        taken = not slug or f"section-{slug}" in anchors
        anchors.append(f"section-{number}" if taken else f"section-{slug}")
    return anchors


def page_script() -> Script:
    """Return the script of the pages, with the hash by which they allow it and nothing else."""
    source = files("convexmarket.lab.report").joinpath("templates", "report.js").read_text("utf-8")
    code = shorter(source)
    digest = b64encode(sha256(code.encode("utf-8")).digest()).decode("ascii")
    return Script(Markup(code), f"sha256-{digest}")


def shorter(source: str) -> str:
    """Leave out the indentation and the remarks of a script or a style."""
    return re.sub(r"(?m)^\s+|^\s*//.*\n", "", f"\n{source}")


def _printable_text(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def html_of(text: str) -> Markup:
    """Return Markdown as HTML; what would be HTML in it stays text."""
    return Markup(MarkdownIt("commonmark", {"html": False}).render(text).rstrip("\n"))


@cache  # templates are compiled once
def html_environment() -> Environment:
    """Return the templates' environment for HTML: every expression is escaped."""
    environment = Environment(
        loader=PackageLoader("convexmarket.lab.report"),
        autoescape=True,
        finalize=_printable_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"markdown": html_of, "shorter": shorter}
    return environment


def fenced(text: str) -> Markup:
    """Write a text to the letter, as Markdown: between fences longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    letters = printable(text.replace("\r\n", "\n").strip("\n"))
    return Markup(f"{fence}toml\n{letters}\n{fence}")


@cache
def markdown_environment() -> Environment:
    """Return the templates' environment for Markdown: every expression is escaped."""
    environment = Environment(
        loader=PackageLoader("convexmarket.lab.report"),
        autoescape=False,  # HTML's escaping; finalize escapes for Markdown, HTML included
        finalize=escape_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["fenced"] = fenced
    return environment
