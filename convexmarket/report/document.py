"""Reports of text, tables, figures and claims, written as folders."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from io import StringIO
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pandas as pd

from convexmarket.checks import check_choice, check_instance, check_list, shown
from convexmarket.data.csv_cells import write_csv
from convexmarket.deal import versions
from convexmarket.errors import DataError, ParameterError
from convexmarket.io import keep_access, write_together
from convexmarket.report import results
from convexmarket.report.folders import put_back, replacing
from convexmarket.report.results import FORMAT, RESULTS, plain
from convexmarket.report.table_formats import Table, escape_markdown, html_of, printable

Format: TypeAlias = Literal["csv", "tex", "svg", "pdf"]
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_ATTACHMENT = re.compile(r"(?!results\.)[a-z0-9][a-z0-9_-]*\.(json|jsonl|toml|csv|txt)")
_CLAIMS, _COLUMNS = "claims", ["claim", "verdict", "source", "detail"]
_FIELDS = ("title", "question", "finding", "settings", "versions")
#: Largest numbers of words, figures, tables and claims on a page, and of labels in a verdict.
_WORDS, _FIGURES, _TABLES, _CLAIMED, _NAMED = 400, 3, 2, 8, 5


@dataclass(frozen=True)
class Text:
    """A block of Markdown text."""

    markdown: str
    appendix: bool = False
    name: ClassVar[str] = ""

    def to_markdown(self) -> str:
        """Return the text."""
        return printable(self.markdown.strip("\n"))


@dataclass(frozen=True, eq=False)
class Figure:
    """A Matplotlib figure, or the content of its PNG file."""

    name: str
    caption: str
    alt: str
    picture: Any
    appendix: bool = False

    def saved(self, kind: str) -> bytes:
        """Return the content of a PNG, SVG or PDF file."""
        if not isinstance(self.picture, bytes):
            from convexmarket.report.figures import saved

            return saved(self.picture, kind, self.name)
        if kind != "png":
            raise ParameterError(f"the figure {self.name!r} is stored as PNG only; draw it again")
        return self.picture

    def to_markdown(self) -> str:
        """Return the image and its caption."""
        image = f"![{escape_markdown(self.alt)}](figures/{self.name}.png)"
        return f"{image}\n\n{escape_markdown(self.caption)}".strip()


Block: TypeAlias = Text | Figure | Table


class Report:
    """A report of an experiment, as a sequence of blocks.

    A page shows at most 400 words of text, 3 figures and 2 tables, including the table of claims.
    If there are more than 8 claims, this table contains only the claims that do not hold. The
    appendix contains the remaining blocks. Titles, headlines, captions and claims are plain text.
    Text of :meth:`add` is Markdown with HTML as text. Escape names by :func:`escape_markdown`.

    Parameters
    ----------
    title : str
    question : str, optional
        The question that the experiment answers.
    settings : mapping, optional
        Parameters, seeds and the text of a problem file, for :func:`compare_reports`.

    Examples
    --------
    >>> import pandas as pd
    >>> report = Report("Budget or price?", question="Which one pays less?")
    >>> points = pd.DataFrame({"gamma": [0.1, 1.0], "paid": [4.0, 3.0]})
    >>> report.add(points, caption="Payments", name="points", keys=["gamma"])
    >>> report.claim("Payments fall in gamma", holds=points.paid.is_monotonic_decreasing)
    >>> report.claim("Payments exceed 3.5", holds=points.set_index("gamma").paid > 3.5)
    >>> report.claims[["verdict", "detail"]].to_numpy().tolist()
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
        self.versions = dict(versions())
        self.blocks: list[Block] = []
        self.attachments: dict[str, bytes] = {}

    def headline(self, finding: str) -> None:
        """Set the headline, a finding in one sentence such as :meth:`Comparison.sentence`.

        Parameters
        ----------
        finding : str
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
        appendix: bool = False,
        rows: int | None = None,
    ) -> None:
        """Add text, a table, a figure, or a result with its statements, plot and table.

        If a table has the columns ``id`` and ``sensitivity``, only the owner can read the files.
        An index of a table becomes a column, unless it consists of integers and has no name.

        Parameters
        ----------
        block : str, DataFrame, Series, matplotlib Figure or Axes, or object
            Markdown, a table, a figure as it is when the report is written, or an object with some
            of ``statements()`` or ``certificate()``, ``plot()`` and ``to_frame()``. All are used.
        caption : str, optional
            Caption of a table or figure.
        name : str, optional
            Stem of the names of the files. The default is numbered, such as ``table-1``.
        alt : str, optional
            Text alternative of a figure. The default is the caption.
        keys : sequence of str
            Columns that identify the rows of a table. By default, named levels of the index, or
            ``frame.attrs["keys"]``.
        formats, headers : mapping of str to str, optional
            Format specifications and headers of columns.
        appendix : bool
            Whether the block belongs to the appendix.
        rows : int, optional
            Number of rows of a table to show. The default is 8, or 15 in the appendix.

        Raises
        ------
        ParameterError
            If the block has another type, or a name, key, format or header is invalid.
        """
        figure = block if hasattr(block, "savefig") else getattr(block, "figure", None)
        block = block.to_frame() if isinstance(block, pd.Series) else block
        if isinstance(block, str):
            self.blocks.append(Text(block, appendix))
        elif isinstance(block, pd.DataFrame):
            name = self._free_name(name, Table)
            levels = [str(level) for level in block.index.names if level is not None]
            keys = list(keys) or levels or list(block.attrs.get("keys", []))
            frame, formats, headers = results.tidy(name, block), formats or {}, headers or {}
            for column in {*keys, *formats, *headers} - {*frame}:
                known = ", ".join(map(repr, frame))
                raise ParameterError(f"the table {name!r} has no column {column!r}; it has {known}")
            if keys and frame.duplicated(keys).any():
                named = ", ".join(keys)
                raise ParameterError(f"the keys {named} do not identify the rows of {name!r}")
            rows, private = rows or (15 if appendix else 8), {"id", "sensitivity"} <= {*frame}
            looks = formats, headers, rows, private, appendix
            self.blocks.append(Table(name, caption, frame, keys, *looks))
        elif hasattr(figure, "savefig"):
            if not (alt or caption):
                raise ParameterError("a figure needs alt=, a description for screen readers")
            name = self._free_name(name, Figure)
            self.blocks.append(Figure(name, caption, alt or caption, figure, appendix))
        else:
            methods = ("statements", "plot", "to_frame")
            statements, plot, to_frame = (getattr(block, each, None) for each in methods)
            if isinstance(block, type) or not (statements or plot or to_frame):
                kinds = "a string, a DataFrame, a figure or an object with statements()"
                raise ParameterError(f"add {kinds}, plot() or to_frame(), got {shown(block)}")
            if statements or callable(getattr(block, "certificate", None)):
                texts = statements() if statements else [results.sentence(block.certificate())]
                points = [f"- {escape_markdown(text)}" for text in texts]
                self.add("\n".join(points), appendix=appendix)
            if plot:
                from convexmarket.report.figures import drawn

                alt = alt or caption or f"Plot of {type(block).__name__}"
                self.add(drawn(plot), caption, name=name, alt=alt, appendix=appendix)
            if to_frame:
                self.add(to_frame(), caption, name=name, appendix=appendix)

    def _free_name(self, name: str | None, kind: type[Table | Figure]) -> str:
        taken = [block.name for block in self.blocks if isinstance(block, kind)]
        word = kind.__name__.lower()
        name = _file_name(f"{word}-{len(taken) + 1}" if name is None else name, _NAME)
        if name in (*taken, _CLAIMS):
            raise ParameterError(f"two {word}s are named {name!r}; give them different names")
        return name

    def claim(self, text: str, *, holds: Any = None, source: str = "", detail: str = "") -> None:
        """Add a claim with its verdict to the table of claims.

        Parameters
        ----------
        text, source : str
            Unique text of the claim, and its source, such as "A, Fig. 2".
        holds : bool, sequence of bool or None
            Whether the results confirm the claim, or None if it was not tested. For several values,
            the verdict is the number of True values. For a Series, the verdict also lists the
            labels of the False values.
        detail : str
            Numbers that support the verdict.
        """
        verdict, exceptions = _verdict(holds)
        row = [_text("text", text, {*self.claims.claim}), verdict, source]
        rows = [*self.claims.to_numpy().tolist(), [*row, f"{detail} {exceptions}".strip()]]
        frame = pd.DataFrame(rows, columns=_COLUMNS, dtype="str")
        table = Table(_CLAIMS, "Claims", frame, ["claim"], rows=len(frame))
        self.blocks = [table if block.name == _CLAIMS else block for block in self.blocks]
        self.blocks += [table] if len(frame) == 1 else []

    def attach(self, name: str, content: str | bytes) -> None:
        """Add a file to the folder of the report.

        Parameters
        ----------
        name : str
            Name of a JSON, TOML, CSV or text file, such as ``model.json``.
        content : bytes or str
        """
        content = content.encode() if isinstance(content, str) else content
        self.attachments[_file_name(name, _ATTACHMENT)] = content

    def __repr__(self) -> str:
        return f"Report({self.title!r}: {len(self.blocks)} blocks, {len(self.claims)} claims)"

    @property
    def tables(self) -> list[Table]:
        """The tables, including the claims."""
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Figure]:
        """The figures."""
        return [block for block in self.blocks if isinstance(block, Figure)]

    @property
    def claims(self) -> pd.DataFrame:
        """The claims with their verdicts, sources and details."""
        tables = (table.frame for table in self.tables if table.name == _CLAIMS)
        return next(tables, pd.DataFrame(columns=_COLUMNS))

    def to_markdown(self, *, appendix: bool = False) -> str:
        """Return the report, or its appendix, as Markdown.

        Parameters
        ----------
        appendix : bool, default False
        """
        lead = [f"# {escape_markdown(self.title)}"]
        if not appendix:
            lead += [f"*{escape_markdown(self.question)}*"] if self.question else []
            lead += [f"**{escape_markdown(self.finding)}**"] if self.finding else []
        return "\n\n".join([*lead, self._body(appendix)]) + "\n"

    def to_html(self, *, appendix: bool = False) -> str:
        """Return the report, or its appendix, as an HTML page that refers to ``figures/``.

        Parameters
        ----------
        appendix : bool, default False
        """
        lead = ("", "") if appendix else (self.question, self.finding)
        body = self._body(appendix).replace("(appendix.md)", "(appendix.html)")
        return _page(self.title, *lead, body)

    def _body(self, appendix: bool) -> str:
        texts = [block.to_markdown() for block in self._shown(appendix)]
        if not appendix and self._shown(True):
            texts.append("The [appendix](appendix.md) contains further results.")
        named = [f"{name} {self.versions.get(name)}" for name in ("convexmarket", "python")]
        footer = f"All data: [{RESULTS}]({RESULTS}). Made with {', '.join(named)}."
        return "\n\n".join([*texts, "---", footer])

    def _shown(self, appendix: bool) -> list[Block]:
        words = _WORDS - len(f"{self.question} {self.finding}".split())
        left = {Text: words, Figure: _FIGURES, Table: _TABLES - (len(self.claims) > 0)}
        blocks: list[Block] = []
        for block in self.blocks:
            if isinstance(block, Table) and block.name == _CLAIMS:
                many = len(block.frame) > _CLAIMED
                blocks += _failing(block) if many and not appendix else [block] * (many == appendix)
                continue
            cost = len(block.markdown.split()) if isinstance(block, Text) else 1
            fits = not block.appendix and cost <= left[type(block)]
            left[type(block)] -= cost if fits else 0
            blocks += [block] * (fits != appendix)
        return blocks

    def _repr_html_(self) -> str:
        html = html_of(self.to_markdown())
        for figure in self.figures:
            data = f"data:image/png;base64,{b64encode(figure.saved('png')).decode()}"
            html = html.replace(f'src="figures/{figure.name}.png"', f'src="{data}"')
        return html

    def write(
        self, folder: str | Path, formats: Collection[Format] = (), force: bool = False
    ) -> Path:
        """Write the report to a folder atomically, and return the path of ``index.html``.

        Parameters
        ----------
        folder : path
            An existing report in the folder is replaced.
        formats : collection of {"csv", "tex", "svg", "pdf"}
            Further formats: tables as CSV and LaTeX, figures as SVG and PDF. Pages in HTML and
            Markdown, PNG files and ``results.json`` are always written.
        force : bool, default False
            Whether to replace a folder with other content, including all of its files.

        Raises
        ------
        ParameterError, DataError
            If the folder contains files but no report, a format is unknown, or the folder cannot be
            written. The former content of the folder is unchanged.
        """
        check_list("formats", formats, "formats such as csv")
        for each in formats:
            check_choice("formats", each, Format)
        check_instance("folder", folder, (str, PathLike), "the path of a folder")
        target = Path(folder).resolve()
        check_folder(target, force=force)
        private = any(table.private for table in self.tables)
        try:
            with replacing(target) as fresh:
                for name, content in self._files(formats).items():
                    (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                    (fresh / name).write_bytes(content)
                for path in (fresh, *fresh.rglob("*")):
                    if private and path.is_file():
                        path.chmod(0o600)
                    keep_access(target / path.relative_to(fresh), path)
        except OSError as error:
            why = f"the report could not be written ({error.strerror or error})"
            raise DataError(f"{target}: {why}; a former report is unchanged") from error
        return target / "index.html"

    def _files(self, formats: Collection[Format]) -> dict[str, bytes]:
        files: dict[str, str | bytes] = dict(self.attachments)
        for md, html, appendix in (("report", "index", False), ("appendix", "appendix", True)):
            if self._shown(appendix) or not appendix:
                files[f"{md}.md"] = self.to_markdown(appendix=appendix)
                files[f"{html}.html"] = self.to_html(appendix=appendix)
        blocks = []
        for block in self.blocks:
            fields = {k: v for k, v in vars(block).items() if k not in ("picture", "frame")}
            if isinstance(block, Figure):
                for kind in ("png", *({"svg", "pdf"} & set(formats))):
                    files[f"figures/{block.name}.{kind}"] = block.saved(kind)
            elif isinstance(block, Table):
                rows, content = results.stored_frame(block.frame)
                fields |= rows
                if content:
                    files[f"tables/{block.name}.parquet"] = content
                if "tex" in formats:
                    files[f"tables/{block.name}.tex"] = block.to_latex()
                if "csv" in formats:
                    write_csv(block.frame, cells := StringIO(newline=""))
                    files[f"tables/{block.name}.csv"] = cells.getvalue()
            blocks.append({"kind": type(block).__name__, **plain(fields)})
        described = {"format": FORMAT, **{each: getattr(self, each) for each in _FIELDS}}
        described |= {"files": sorted(self.attachments), "blocks": blocks}
        files[RESULTS] = json.dumps(described, ensure_ascii=False, allow_nan=False)
        return {name: t.encode() if isinstance(t, str) else t for name, t in files.items()}


def read_report(folder: str | Path) -> Report:
    """Read a report with figures as PNG, or raise a DataError if a file is damaged.

    Parameters
    ----------
    folder : path
        A folder written by :meth:`Report.write`, or its ``results.json``.
    """
    check_instance("folder", folder, (str, PathLike), "the folder of a report")
    file = Path(folder)
    put_back((file.parent if file.name == RESULTS else file).resolve())
    file = file / RESULTS if file.is_dir() else file
    place, content = file.parent, results.read_content(file)
    try:
        report = Report(content["title"])
        for each in _FIELDS:
            setattr(report, each, content[each])
        for fields in content["blocks"]:
            kind, name = fields.pop("kind"), _file_name(fields.get("name", "text"), _NAME)
            if kind == "Table":
                stored = {k: fields.pop(k, None) for k in ("columns", "dtypes", "data", "sha256")}
                fields["frame"] = results.restored_frame(name, stored, place)
            elif kind == "Figure":
                fields["picture"] = results.read_bytes(place / f"figures/{name}.png")
            report.blocks.append({"Table": Table, "Figure": Figure, "Text": Text}[kind](**fields))
        for name in content["files"]:
            report.attach(name, results.read_bytes(place / Path(name).name))
    except DataError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        why = f"is damaged ({type(error).__name__}: {error})"
        raise DataError(f"{file} {why}; restore it, or run the experiment again") from None
    return report


def read_tables(folder: str | Path) -> dict[str, pd.DataFrame]:
    """Read the tables of a report by name, including the claims, with exact values."""
    return {table.name: table.frame for table in read_report(folder).tables}


def write_index(reports: str | Path, *, force: bool = False) -> Path:
    """Write ``README.md`` and ``index.html`` as an index of the reports in a folder.

    Parameters
    ----------
    reports : path
        Folder whose subfolders contain reports. The index marks reports that cannot be read.
    force : bool, default False
        Whether to replace an existing ``README.md`` and ``index.html``.
    """
    folder = Path(reports).resolve()
    if not folder.is_dir() or (folder / RESULTS).exists():
        raise ParameterError(f"{folder} is not a folder of reports; name the parent folder")
    lines = ""
    for file in sorted(folder.glob(f"*/{RESULTS}")):
        name = file.parent.name
        title, finding = name, "This report cannot be read."
        with suppress(DataError, KeyError):
            content = results.read_content(file)
            title, finding = content["title"], content["finding"] or content["question"]
        link = f"[{escape_markdown(title)}](<{name}/report.md>)"
        lines += f"- {link}: {escape_markdown(finding)}\n"
    html = _page("Reports", "", "", lines.replace("/report.md>", "/index.html>"))
    texts = {"index.html": html, "README.md": f"# Reports\n\n{lines}"}
    write_together({folder / name: text.encode() for name, text in texts.items()}, force=force)
    return folder / "index.html"


def check_folder(folder: Path, *, force: bool = False) -> None:
    """Raise an error for a file, a folder without a report, or a parent of the working folder."""
    target = folder.resolve()
    if target.exists() and not target.is_dir():
        raise ParameterError(f"{target} is a file; name a folder for the report")
    if Path.cwd().is_relative_to(target):
        raise ParameterError(f"the working directory is in {target}; run from another folder")
    other = min((path.name for path in target.glob("*")), default="")
    if other and not (force or results.is_report(target)):
        remedy = "choose another folder, or pass --force (force=True in Python) to replace it all"
        raise ParameterError(f"{target} contains {other!r} and no {RESULTS} of a report; {remedy}")


def _file_name(name: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(name, str) or not pattern.fullmatch(name):
        kind = "a file name in lower case, such as 'error-2' or 'runs.jsonl'"
        raise ParameterError(f"name must be {kind}, got {shown(name)}")
    return name


def _text(name: str, value: object, taken: Collection[str] = ()) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"{name} must be a text that is not empty, got {shown(value)}")
    if value in taken:
        raise ParameterError(f"the claim {value!r} is made twice; give claims different texts")
    return value


def _failing(claims: Table) -> list[Block]:
    others = claims.frame[claims.frame.verdict != "holds"]
    n, m = len(claims.frame), len(claims.frame) - len(others)
    text = Text(f"{m} of {n} claims hold; the appendix has all.")
    caption = "Claims that do not hold, or hold in part"
    tables = [replace(claims, frame=others.head(_CLAIMED), caption=caption)] if len(others) else []
    return [text, *tables]


def _verdict(holds: Any) -> tuple[str, str]:
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
    labels = [x if isinstance(x, tuple) else (x,) for x in holds.index[~values]]
    failing = "; ".join(", ".join(map(str, label)) for label in labels[:_NAMED])
    return verdict, f"Fails at {failing}{'; ...' if len(labels) > _NAMED else '.'}"


def _page(title: str, question: str, finding: str, markdown: str) -> str:
    folder = Path(__file__).parent / "templates"
    files = {each: (folder / f"page.{each}").read_text("utf-8") for each in ("html", "css", "js")}
    digest = b64encode(sha256(files["js"].encode()).digest()).decode()
    texts = {"title": title, "question": question, "finding": finding}
    parts = {name: escape(printable(text)) for name, text in texts.items()}
    parts |= {"style": files["css"], "script": files["js"], "digest": digest}
    return Template(files["html"]).substitute(parts, body=html_of(markdown))
