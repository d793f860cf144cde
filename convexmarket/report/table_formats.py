"""Format numbers and tables as HTML, as Markdown, and as LaTeX by the pandas Styler."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any
from unicodedata import name as name_of

import numpy as np
import pandas as pd
from markdown_it import MarkdownIt
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype

MISSING = "–"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_BLANKS = re.compile(r"[ \t\r\n\u2028\u2029]+")  # a no-break space is kept
_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
#: Pattern of the start of a heading, a rule or a list, such as '# x', '---', '- x' and '1. x'.
_BLOCK_START = re.compile(r"^(?:(#+|[+=-])|(\d+)(?=[.)]))(?=[.)]?(?:[ =-]|$))")
#: Escapes of characters in LaTeX. At the start of a row, "[" and "*" would be arguments.
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"[": "{[}", "*": "{*}", "Λ": r"$\Lambda$", "×": r"$\times$", "∞": r"$\infty$"}
    | {sign: f"$\\{name_of(sign).split()[-1].lower()}$" for sign in "αβγδεζηθικμνξοπρστυφχψω"}
    | {"λ": r"$\lambda$", "ς": r"$\varsigma$"}
)


def format_number(value: float | int | None, digits: int = 3) -> str:
    """Format a number with ``digits`` significant digits, such as 1,234 or 2.5 × 10⁻⁹."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0 or isinstance(value, int | np.integer):
        return f"{int(value):,}"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    exponent = int(power)
    if -4 <= exponent < 6:
        return _trimmed(f"{value:,.{max(0, digits - 1 - exponent)}f}")
    text = f"{_trimmed(mantissa)}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10"
    return text.removeprefix("1\xa0×\xa0") + str(exponent).translate(_SUPERSCRIPTS)


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def format_cell(value: Any, spec: str = "") -> str:
    """Format one cell of a table, with a dash for a missing value."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or not isinstance(value, int | float | np.number):
        return MISSING if value is None else printable(str(value))
    number: Any = value
    return format(number, spec) if spec and math.isfinite(number) else format_number(number, 4)


def printable(text: str) -> str:
    """Replace control characters, which terminals interpret and XML forbids, by U+FFFD."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_markdown(value: object) -> str:
    """Escape text, such as names from data, so that Markdown shows it unchanged on one line."""
    text = printable(_BLANKS.sub(" ", escape(str(value), quote=False)).strip(" "))
    text = _SPECIAL.sub(r"\\\1", text)
    return _BLOCK_START.sub(lambda start: f"\\{start[1]}" if start[1] else f"{start[2]}\\", text)


def html_of(markdown: str) -> str:
    """Render Markdown with scrolling tables. HTML in Markdown is shown as text."""
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    renderer.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>')
    renderer.add_render_rule("table_close", lambda *_: "</table></div>")
    return str(renderer.render(printable(markdown)))


def _decimals(values: pd.Series) -> str:
    """Return a format with a fixed number of decimals, or "" if magnitudes differ too much."""
    sizes = np.abs(values.to_numpy(float)) if is_float_dtype(values) else np.empty(0)
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    if not sizes.size:
        return ""
    high, low = (math.floor(math.log10(size)) for size in (sizes.max(), sizes.min()))
    decimals = max(3 - high, 1 - low, 0)
    while decimals and all(f"{size:.{decimals}f}".endswith("0") for size in sizes):
        decimals -= 1
    return f",.{decimals}f" if high >= -4 and max(high, 0) + 1 + decimals <= 7 else ""


@dataclass(frozen=True, eq=False)
class Table:
    """A table of a report. :meth:`Report.add` describes the attributes."""

    name: str
    caption: str
    frame: pd.DataFrame
    keys: Sequence[str] = ()
    formats: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    rows: int = 25
    private: bool = False
    appendix: bool = False

    @property
    def note(self) -> str:
        """The caption, with the number of rows if some rows are not shown."""
        n_rows = len(self.frame)
        more = f" (first {self.rows:,} of {n_rows:,} rows)" if n_rows > self.rows else ""
        return printable(f"{self.caption}{more}".strip())

    def _cells(
        self, escape: Callable[[str], str], default: str | None = None
    ) -> tuple[list[bool], list[list[str]]]:
        """Format and escape headers and rows, and return them with a mask of numeric columns."""
        numeric, columns = [], []
        for name, values in self.frame.items():
            spec = self.formats.get(str(name), _decimals(values) if default is None else default)
            cells = [format_cell(cell, spec) for cell in values.head(self.rows).tolist()]
            header = printable(self.headers.get(str(name), str(name).replace("_", " ")))
            columns.append([escape(text) for text in (header, *cells)])
            numeric.append(is_numeric_dtype(values) and not is_bool_dtype(values))
        return numeric, [list(row) for row in zip(*columns, strict=True)]

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        numeric, (head, *rows) = self._cells(escape_markdown)
        rule = ["---:" if each else "---" for each in numeric]
        text = "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))
        return f"**{escape_markdown(self.note)}**\n\n{text}" if self.note else text

    def to_latex(self) -> str:
        """Return the table as a LaTeX ``table`` environment for the package ``booktabs``."""
        numeric, (head, *rows) = self._cells(lambda text: text.translate(_LATEX), ",.4g")
        table = pd.DataFrame(rows, columns=pd.Index(range(len(head)))).style.hide(axis="index")
        styler = table.format_index(lambda place: head[int(str(place))], axis="columns")
        columns = "".join("r" if each else "l" for each in numeric)
        caption = self.note.translate(_LATEX)
        return str(styler.to_latex(column_format=columns, hrules=True, caption=caption))
