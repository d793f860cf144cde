"""A report: blocks of text, tables, figures and claims, written as a folder."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from convexmarket.arguments import check_choice, shown
from convexmarket.data.csv_cells import write_csv
from convexmarket.deal import versions
from convexmarket.errors import DataError, ParameterError
from convexmarket.report.results import (
    RESULTS,
    is_report,
    plain,
    read_bytes,
    read_content,
    restored_table,
    stored_table,
    tidy,
    write_content,
)
from convexmarket.report.tables import ROWS, Table, escape_markdown, printable
from convexmarket.writing import keep_access

__all__ = ["Format", "Report", "check_folder", "page", "read_report", "read_tables"]

Format: TypeAlias = Literal["md", "html", "csv", "tex", "svg", "pdf"]
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_ATTACHMENT = re.compile(r"[a-z0-9][a-z0-9_-]*\.(json|jsonl|toml|csv|txt)")
_CLAIMS = "claims"
_PRIVATE = 0o600
#: Whole-report pages: Markdown file, HTML file, whether they hold the appendix.
_PAGES = (("report.md", "index.html", False), ("appendix.md", "appendix.html", True))


@dataclass(frozen=True)
class Text:
    """Markdown."""

    markdown: str
    appendix: bool = False


@dataclass(frozen=True, eq=False)
class Figure:
    """A Matplotlib figure, or the PNG file of one."""

    name: str
    caption: str
    alt: str
    picture: Any
    appendix: bool = False

    def saved(self, kind: str) -> bytes:
        """Return the figure as the content of a PNG, SVG or PDF file.

        Raises
        ------
        ParameterError
            If the report was read from a folder, which stores PNG only.
        """
        if isinstance(self.picture, bytes):
            if kind != "png":
                raise ParameterError(
                    f"the figure {self.name!r} is stored as PNG only; write {kind.upper()} files "
                    "when the experiment is run"
                )
            return self.picture
        from convexmarket.report.figures import saved

        return saved(self.picture, kind, self.name)


Block: TypeAlias = Text | Figure | Table


class Report:
    """A report of any experiment, built block by block.

    Parameters
    ----------
    title : str
    question : str, optional
        What the experiment is to answer.
    settings : mapping, optional
        What was run: parameters, seeds, the text of a problem file. :func:`compare_reports` lists
        what changed in them.

    Attributes
    ----------
    finding : str
        The headline; see :meth:`headline`.
    blocks : list
        Text, tables and figures in their order.
    versions : dict
        Versions of the packages in use.

    See Also
    --------
    compare : the difference of two quantities with an interval and a verdict, for headlines.
    compare_reports : what changed from one report to another.

    Notes
    -----
    Titles, headlines, captions and claims are plain text, which is escaped. Text passed to
    :meth:`add` is Markdown: put :func:`escape_markdown` around names that come from data. HTML in
    it is shown as text.

    Examples
    --------
    >>> import pandas as pd
    >>> report = Report("Budget or price?", question="Which one pays less?")
    >>> points = pd.DataFrame({"gamma": [0.1, 1.0], "paid": [4.0, 3.0]})
    >>> report.add("Two values of gamma.")
    >>> report.add(points, caption="Payments", name="points", keys=["gamma"])
    >>> report.claim("Payments fall in gamma", holds=points.paid.is_monotonic_decreasing)
    >>> report.claim("Payments exceed 3.5", holds=points.set_index("gamma").paid > 3.5)
    >>> print(report.to_markdown()[:130])
    # Budget or price?
    <BLANKLINE>
    *Which one pays less?*
    <BLANKLINE>
    Two values of gamma.
    <BLANKLINE>
    **Payments**
    <BLANKLINE>
    | gamma | paid |
    | ---: | ---: |
    | 0.1 | 4 |
    | 1.0 | 3 |
    >>> report.tables[-1].frame[["verdict", "detail"]].to_numpy().tolist()
    [['holds', ''], ['holds in 1 of 2', 'Fails at 1.0.']]
    >>> report.write("reports/budget")  # doctest: +SKIP
    """

    def __init__(
        self, title: str, *, question: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.title = _text("title", title)
        self.question = _text("question", question) if question else ""
        self.settings: dict[str, Any] = plain(settings or {})
        self.finding = ""
        self.versions: dict[str, str] = versions()
        self.blocks: list[Block] = []
        self.attachments: dict[str, bytes] = {}

    def headline(self, finding: str) -> None:
        """Set the finding of the report in one sentence, which the index repeats.

        Compute it from the results, for instance by :meth:`Comparison.sentence`.
        """
        self.finding = _text("finding", finding)

    def add(
        self,
        block: Any,
        caption: str = "",
        *,
        name: str | None = None,
        alt: str = "",
        keys: Sequence[str] = (),
        formats: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        rows: int = ROWS,
        private: bool = False,
        appendix: bool = False,
    ) -> None:
        """Add text, a table, a figure, or a result with its statements, table and plot.

        Parameters
        ----------
        block : str, DataFrame, matplotlib Figure or object
            Markdown; a table; a figure; or an object with at least one of the methods
            ``statements()``, ``to_frame()`` and ``plot()``, all of which are used.
        caption : str
            Of a table or figure.
        name : str, optional
            Stem of the files, of lower-case letters, digits, ``_`` and ``-``; by default
            ``table-1`` or ``figure-1``.
        alt : str
            What a figure shows, for readers who do not see it; by default the caption.
        keys : sequence of str
            Columns of a table that identify its rows, by which two reports are compared. Default:
            named index levels, or ``frame.attrs["keys"]``.
        formats, headers : mapping of str to str, optional
            Format specification and header of columns; by default four significant digits and the
            column's name.
        rows : int, default 25
            Rows that the page shows; ``results.json`` and CSV hold all.
        private : bool, default False
            Whether the table describes single sellers. The files of the report are then readable
            by their owner only. A table with columns ``id`` and ``sensitivity`` is private anyway.
        appendix : bool, default False
            Whether the block belongs to ``appendix.md`` and ``appendix.html``.

        Raises
        ------
        ParameterError
            If the block is none of these, a name is taken or no file name, or a key, format or
            header names no column, or the keys do not identify rows.
        """
        if isinstance(block, str):
            self.blocks.append(Text(block, appendix))
        elif isinstance(block, pd.DataFrame):
            options = (formats or {}, headers or {}, rows, appendix)
            self._add_table(block, caption, name, keys, options, private)
        elif hasattr(block, "savefig"):
            self._add_figure(block, caption, name, alt, appendix)
        else:
            self._add_result(block, caption, name, alt, appendix)

    def _add_table(
        self,
        frame: pd.DataFrame,
        caption: str,
        name: str | None,
        keys: Sequence[str],
        options: tuple[Mapping[str, str], Mapping[str, str], int, bool],
        private: bool,
    ) -> None:
        name = self._name(name, Table)
        named = [str(level) for level in frame.index.names if level is not None]
        keys = list(keys) or named or list(frame.attrs.get("keys", []))
        frame = tidy(name, frame)
        formats, headers, rows, appendix = options
        missing = [column for column in (*keys, *formats, *headers) if column not in frame]
        if missing:
            raise ParameterError(
                f"the table {name!r} has no column {missing[0]!r}; its columns are "
                f"{', '.join(map(repr, frame))}"
            )
        if keys and frame.duplicated(list(keys)).any():
            raise ParameterError(
                f"the keys {', '.join(keys)} do not identify the rows of the table {name!r}; add "
                "a column to keys"
            )
        private = private or {"id", "sensitivity"} <= set(frame)
        table = Table(name, caption, frame, keys, formats, headers, rows, appendix, private)
        self.blocks.append(table)

    def _add_figure(
        self, figure: Any, caption: str, name: str | None, alt: str, appendix: bool
    ) -> None:
        if not (alt or caption):
            raise ParameterError("a figure needs alt=, a text for readers who do not see it")
        name = self._name(name, Figure)
        self.blocks.append(Figure(name, caption, alt or caption, figure, appendix))

    def _add_result(
        self, result: Any, caption: str, name: str | None, alt: str, appendix: bool
    ) -> None:
        methods = ("statements", "to_frame", "plot")
        parts = {m: getattr(result, m) for m in methods if callable(getattr(result, m, None))}
        if not parts or isinstance(result, type):
            raise ParameterError(
                "add a string, a DataFrame, a Matplotlib figure or an object with statements(), "
                f"to_frame() or plot(), got {shown(result)}"
            )
        if "statements" in parts:
            points = [f"- {escape_markdown(point)}" for point in parts["statements"]()]
            self.add("\n".join(points), appendix=appendix)
        if "plot" in parts:
            from convexmarket.report.figures import drawn

            words = alt or caption or f"Plot of the {type(result).__name__.lower()}"
            self._add_figure(drawn(parts["plot"]), caption, name, words, appendix)
        if "to_frame" in parts:
            self.add(parts["to_frame"](), caption, name=name, appendix=appendix)

    def claim(self, text: str, *, holds: Any = None, source: str = "", detail: str = "") -> None:
        """Add a claim with its verdict to the table of claims.

        Parameters
        ----------
        text : str
        holds : bool, sequence of bool or None
            Whether the results confirm it, computed from them. Of several truth values the verdict
            gives their number, and of a Series the labels of those that are False. None if it was
            not tested.
        source : str
            Who makes the claim, such as "A, Fig. 2".
        detail : str
            The numbers behind the verdict.

        Raises
        ------
        ParameterError
            If ``holds`` is no truth value.
        """
        verdict, exceptions = _verdict(holds)
        detail = " ".join(part for part in (detail, exceptions) if part)
        row = [_text("text", text), verdict, source, detail]
        claims = next((b for b in self.tables if b.name == _CLAIMS), None)
        columns = ["claim", "verdict", "source", "detail"]
        before = [] if claims is None else claims.frame.to_numpy().tolist()
        frame = pd.DataFrame([*before, row], columns=columns, dtype="str")
        if frame.claim.duplicated().any():
            raise ParameterError(f"the claim {text!r} is made twice; give each its own text")
        table = Table(_CLAIMS, "Claims and verdicts", frame, ["claim"], rows=len(frame))
        if claims is None:
            self.blocks.append(table)
        else:
            self.blocks[self.blocks.index(claims)] = table

    def attach(self, name: str, content: str | bytes) -> None:
        """Add a file to the folder, such as a journal or a model.

        Parameters
        ----------
        name : str
            Such as ``runs.jsonl`` or ``model.json``.
        content : str or bytes

        Raises
        ------
        ParameterError
            If the name is no plain file name, or not one of JSON, TOML, CSV or text.
        """
        if not _ATTACHMENT.fullmatch(name) or name == RESULTS:
            raise ParameterError(
                f"name must be a file name such as 'runs.jsonl' or 'model.json', got {name!r}"
            )
        self.attachments[name] = content.encode() if isinstance(content, str) else content

    @property
    def tables(self) -> list[Table]:
        """The tables, claims among them."""
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Figure]:
        """The figures."""
        return [block for block in self.blocks if isinstance(block, Figure)]

    def _name(self, name: str | None, kind: type[Table] | type[Figure]) -> str:
        taken = [block.name for block in self.blocks if isinstance(block, kind)]
        stem = kind.__name__.lower()
        name = f"{stem}-{len(taken) + 1}" if name is None else name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError(
                f"the {stem} is named {shown(name)}; it becomes a file name, so use lower-case "
                "letters, digits, '_' and '-'"
            )
        if name in taken or (kind is Table and name == _CLAIMS):
            raise ParameterError(f"two {stem}s are named {name!r}; give each its own name")
        return name

    # ------------------------------------------------------------------------------- writing

    def to_markdown(self, *, appendix: bool = False) -> str:
        """Return the report, or its appendix, as Markdown."""
        parts = [f"# {escape_markdown(self.title)}"]
        if not appendix:
            parts += [f"*{escape_markdown(self.question)}*"] if self.question else []
            parts += [f"**{escape_markdown(self.finding)}**"] if self.finding else []
        for block in self._of(appendix):
            if isinstance(block, Text):
                parts.append(printable(block.markdown.strip("\n")))
            elif isinstance(block, Figure):
                parts.append(f"![{escape_markdown(block.alt)}](figures/{block.name}.png)")
                parts += [escape_markdown(block.caption)] if block.caption else []
            else:
                parts += [f"**{escape_markdown(block.note)}**"] if block.note else []
                parts.append(block.markdown())
        if not appendix and self._of(appendix=True):
            parts.append("More in the [appendix](appendix.md).")
        return "\n\n".join([*parts, f"---\n\n{self._footer}"]) + "\n"

    @property
    def _footer(self) -> str:
        named = [f"{name} {self.versions[name]}" for name in ("convexmarket", "cvxpy", "python")]
        return f"Data of all tables: [{RESULTS}]({RESULTS}). Made with {', '.join(named)}."

    def _of(self, appendix: bool) -> list[Block]:
        return [block for block in self.blocks if block.appendix == appendix]

    def _body(self, appendix: bool, *, inline: bool = False) -> Markup:
        """Return the blocks as HTML; inline figures stand in the text as data."""
        parts: list[str] = []
        for block in self._of(appendix):
            if isinstance(block, Text):
                parts.append(html_of(block.markdown))
            elif isinstance(block, Figure):
                source = f"figures/{block.name}.png"
                if inline:
                    source = f"data:image/png;base64,{b64encode(block.saved('png')).decode()}"
                alt, caption = (escape(printable(text)) for text in (block.alt, block.caption))
                parts.append(
                    f'<figure><div class="card"><img src="{source}" alt="{alt}"></div>'
                    f"<figcaption>{caption}</figcaption></figure>"
                )
            else:
                parts.append(
                    f'<figure class="table" id="{block.name}"><figcaption>'
                    f"{escape(printable(block.note))}</figcaption>"
                    f'<div class="scroll" tabindex="0">{block.html()}</div></figure>'
                )
        return Markup("\n".join(parts))

    def to_html(self, *, appendix: bool = False) -> str:
        """Return the report, or its appendix, as a page that refers to ``figures/``."""
        links = {"Appendix": "appendix.html"} if self._of(appendix=True) else {}
        return page(
            self.title,
            self._body(appendix),
            question="" if appendix else self.question,
            finding="" if appendix else self.finding,
            links={"Report": "index.html"} if appendix else links,
            footer=html_of(self._footer),
        )

    def _repr_html_(self) -> str:
        lead = f"<h2>{escape(printable(self.title))}</h2>"
        if self.finding:
            lead += f"<p><strong>{escape(printable(self.finding))}</strong></p>"
        return lead + self._body(appendix=False, inline=True)

    def write(
        self,
        folder: str | Path,
        formats: Collection[Format] = ("md", "html"),
        force: bool = False,
    ) -> Path:
        """Write the report as a folder, all at once.

        Parameters
        ----------
        folder : path
            A report in it is replaced.
        formats : collection of {"md", "html", "csv", "tex", "svg", "pdf"}
            Pages as Markdown and HTML; besides, tables as CSV and LaTeX, figures as SVG and PDF.
            Figures as PNG and ``results.json`` are always written.
        force : bool, default False
            Whether a folder that holds something else may be replaced, with all files in it.

        Returns
        -------
        pathlib.Path
            ``folder/index.html``, or without HTML ``folder/report.md``.

        Raises
        ------
        ParameterError
            If the folder holds files and no ``results.json`` of a report, or a format is unknown.
        DataError
            If the folder cannot be written; what was there before is unchanged.
        """
        for each in formats:
            check_choice("formats", each, Format)
        target = Path(folder).resolve()
        check_folder(target, force=force)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            workplace = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
            try:
                fresh = workplace / "fresh"
                fresh.mkdir()
                self._write(fresh, formats)
                for path in (fresh, *fresh.rglob("*")):
                    if path.is_file() and any(table.private for table in self.tables):
                        path.chmod(_PRIVATE)
                    keep_access(target / path.relative_to(fresh), path)
                _exchange(target, fresh, workplace / "former")
            finally:
                shutil.rmtree(workplace, ignore_errors=True)
        except OSError as error:
            raise DataError(
                f"{target}: the report could not be written ({error.strerror or error}); what was "
                "there before is unchanged"
            ) from error
        return target / ("index.html" if "html" in formats else "report.md")

    def _write(self, folder: Path, formats: Collection[Format]) -> None:
        for markdown, html, appendix in _PAGES:
            if appendix and not self._of(appendix=True):
                continue
            if "md" in formats:
                (folder / markdown).write_text(self.to_markdown(appendix=appendix), "utf-8")
            if "html" in formats:
                (folder / html).write_text(self.to_html(appendix=appendix), "utf-8")
        (folder / "figures").mkdir()
        (folder / "tables").mkdir()
        for figure in self.figures:
            for kind in ("png", *({"svg", "pdf"} & set(formats))):
                (folder / f"figures/{figure.name}.{kind}").write_bytes(figure.saved(kind))
        for table in self.tables:
            if "csv" in formats:
                place = folder / f"tables/{table.name}.csv"
                with open(place, "x", encoding="utf-8", newline="") as file:
                    write_csv(table.frame, file)
            if "tex" in formats:
                (folder / f"tables/{table.name}.tex").write_text(table.latex(), "utf-8")
        for name, content in self.attachments.items():
            (folder / name).write_bytes(content)
        blocks = []
        for block in self.blocks:
            if isinstance(block, Table):
                described = stored_table(block, folder)
            else:
                described = {key: cell for key, cell in vars(block).items() if key != "picture"}
            blocks.append({"kind": type(block).__name__.lower(), **described})
        named = ("title", "question", "finding", "settings", "versions")
        described = {each: getattr(self, each) for each in named}
        attached = {"attachments": sorted(self.attachments)}
        write_content({**described, **attached, "blocks": blocks}, folder)
        for each in ("figures", "tables"):
            with suppress(OSError):  # not empty
                (folder / each).rmdir()


def read_report(folder: str | Path) -> Report:
    """Read a report from its folder.

    Parameters
    ----------
    folder : path
        The folder that :meth:`Report.write` wrote, or the ``results.json`` in it.

    Returns
    -------
    Report
        The same text, claims and tables; figures are the stored PNG files.

    Raises
    ------
    DataError
        If a file is missing or damaged, or a table was changed after it was written.
    """
    file = Path(folder)
    file = file / RESULTS if file.is_dir() else file
    place = file.parent
    content = read_content(file)
    try:
        report = Report(
            content["title"], question=content["question"], settings=content["settings"]
        )
        report.finding, report.versions = content["finding"], content["versions"]
        for block in content["blocks"]:
            kind = block.pop("kind")
            if kind != "text" and not _NAME.fullmatch(block["name"]):
                raise ValueError(f"the {kind} {block['name']!r} has no valid name")
            if kind == "table":
                report.blocks.append(restored_table(block, place))
            elif kind == "figure":
                picture = read_bytes(place / f"figures/{block['name']}.png")
                report.blocks.append(Figure(picture=picture, **block))
            else:
                report.blocks.append(Text(**block))
        for name in content["attachments"]:
            if _ATTACHMENT.fullmatch(name):
                report.attach(name, read_bytes(place / name))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{file} is damaged ({type(error).__name__}: {error}); restore the folder, or run the "
            "experiment again"
        ) from None
    return report


def read_tables(folder: str | Path) -> dict[str, pd.DataFrame]:
    """Read the tables of a report, to the last bit.

    Parameters
    ----------
    folder : path
        The folder of a report, or its ``results.json``.

    Returns
    -------
    dict of str to pandas.DataFrame
        Tables by name, claims among them.

    Examples
    --------
    >>> read_tables("reports/wdbc")["curve"].groupby("model").payments.sum()  # doctest: +SKIP
    """
    return {table.name: table.frame for table in read_report(folder).tables}


def check_folder(folder: Path, *, force: bool = False) -> None:
    """Check that a report may be written into a folder, before a long run.

    Raises
    ------
    ParameterError
        If it is a file, the working directory lies in it, or it holds files and no report and
        ``force`` is False.
    """
    target = folder.resolve()
    if not target.exists():
        return
    if not target.is_dir():
        raise ParameterError(f"{target} is a file; name a folder for the report")
    if Path.cwd().is_relative_to(target):
        raise ParameterError(
            f"the working directory lies in {target}, which would be replaced; run the command "
            "from another folder"
        )
    if not force and any(target.iterdir()) and not is_report(target):
        raise ParameterError(
            f"the folder {target} holds files and no {RESULTS} of a report; choose another folder, "
            "or pass --force (in Python force=True) to replace all of it"
        )


def _exchange(target: Path, fresh: Path, former: Path) -> None:
    """Move the fresh folder to its place, or leave the former one there."""
    if not target.exists():
        os.replace(fresh, target)
        return
    os.replace(target, former)
    try:
        os.replace(fresh, target)
    except BaseException:
        os.replace(former, target)
        raise


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"{name} must be a text that is not empty, got {shown(value)}")
    return value


def _verdict(holds: Any) -> tuple[str, str]:
    """Return the verdict, and the labels of what fails where some do."""
    if holds is None:
        return "not tested", ""
    values = np.asarray(holds)
    if values.dtype != bool or values.ndim > 1 or not values.size:
        raise ParameterError(f"holds must be True, False, None or truth values, got {shown(holds)}")
    if values.all() or not values.any():
        return ("holds" if values.all() else "does not hold"), ""
    verdict = f"holds in {values.sum():,} of {values.size:,}"
    if not isinstance(holds, pd.Series):
        return verdict, ""
    failing = [str(label) for label in holds.index[~values]]
    more = f" and {len(failing) - 5} more" if len(failing) > 5 else ""
    return verdict, f"Fails at {', '.join(failing[:5])}{more}."


# ---------------------------------------------------------------------------------------- HTML


def html_of(markdown: str) -> Markup:
    """Render Markdown; HTML in it is shown as text."""
    return Markup(
        MarkdownIt("commonmark", {"html": False}).enable("table").render(printable(markdown))
    )


@cache
def _template() -> tuple[Any, Markup, Markup]:
    """Return the template of pages, their script and their style."""
    environment = Environment(
        loader=PackageLoader("convexmarket.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    folder = files("convexmarket.report").joinpath("templates")
    script, style = (folder.joinpath(name).read_text("utf-8") for name in ("page.js", "page.css"))
    return environment.get_template("page.html.j2"), Markup(script), Markup(style)


def page(
    title: str,
    body: Markup,
    *,
    question: str = "",
    finding: str = "",
    links: Mapping[str, str] | None = None,
    footer: str = "",
) -> str:
    """Return an HTML page in the style of reports, which loads nothing from elsewhere."""
    template, script, style = _template()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    words = {"title": title, "question": question, "finding": finding}
    return str(
        template.render(
            **{name: printable(text) for name, text in words.items()},
            body=body, links=links or {}, footer=footer,
            script=script, style=style, script_hash=f"sha256-{digest}",
        )
    )  # fmt: skip
