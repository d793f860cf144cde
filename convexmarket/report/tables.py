"""Numbers and tables as a reader sees them: HTML and LaTeX by pandas' Styler, and Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

__all__ = ["MISSING", "Table", "escape_markdown", "format_cell", "format_number", "printable"]

MISSING = "–"
#: Rows of a table that a page shows.
ROWS = 25
_NO_BREAK = "\N{NO-BREAK SPACE}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_BLANKS = re.compile(r"[ \t\r\n\u2028\u2029]+")  # a no-break space stays
_SPECIAL = re.compile(r"([\\`*_\[\]|~<>&])")
_BLOCK_START = re.compile(r"^(#+|[+=-]|\d+(?=[.)]))(?=[.)]?(?:[ =-]|$))")

_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)


def format_number(value: float | int | None, digits: int = 3) -> str:
    """Format a number with a given number of significant digits, without trailing zeros.

    Examples
    --------
    >>> format_number(1234567), format_number(0.0012345), format_number(1234.5)
    ('1,234,567', '0.00123', '1,234')
    >>> print(format_number(2.5e-9), format_number(float("nan")), format_number(float("inf")))
    2.5 × 10⁻⁹ – ∞
    """
    if value is None or math.isnan(value):
        return MISSING
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    exponent = int(power)
    if -4 <= exponent < 6:
        return _trimmed(f"{value:,.{max(0, digits - 1 - exponent)}f}")
    power = f"10{str(exponent).translate(_SUPERSCRIPTS)}"
    mantissa = _trimmed(mantissa)
    return power if mantissa == "1" else f"{mantissa}{_NO_BREAK}×{_NO_BREAK}{power}"


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def format_cell(value: Any, spec: str = "") -> str:
    """Format one cell of a table; a missing value becomes a dash.

    Examples
    --------
    >>> format_cell(0.5, ".3f"), format_cell(True), format_cell(None), format_cell("Ann")
    ('0.500', 'yes', '–', 'Ann')
    """
    if value is None or value is pd.NA or value is pd.NaT:
        return MISSING
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if spec and math.isfinite(value):
            return format(value, spec)
        return format_number(value, digits=4)
    return printable(str(value))


def printable(text: str) -> str:
    r"""Replace control characters, which terminals obey and XML forbids, by U+FFFD.

    Examples
    --------
    >>> printable("Ann\x1b[31m")
    'Ann�[31m'
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_markdown(value: object) -> str:
    r"""Escape text so that Markdown shows it unchanged, in one line.

    Use it for names from data in ``report.add(text)``.

    Examples
    --------
    >>> print(escape_markdown("# <b>|"))
    \# \<b\>\|
    """
    text = printable(_BLANKS.sub(" ", str(value)).strip(" "))
    return _BLOCK_START.sub(_escape_block_start, _SPECIAL.sub(r"\\\1", text))


def _escape_block_start(match: re.Match[str]) -> str:
    """Keep a paragraph from being a heading, a rule or a list: '# x', '---', '- x', '1. x'."""
    mark = match[1]
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _decimals(values: pd.Series) -> str:
    """Return a format with equally many decimals, or nothing where the sizes differ too much."""
    if not pd.api.types.is_float_dtype(values.dtype):
        return ""
    sizes = values[np.isfinite(values) & (values != 0)].abs().to_numpy(float)
    if not len(sizes):
        return ""
    high, low = (math.floor(math.log10(size)) for size in (sizes.max(), sizes.min()))
    decimals = max(3 - high, 1 - low, 0)
    decimals = max(len(_trimmed(f"{size:.{decimals}f}").partition(".")[2]) for size in sizes)
    return f",.{decimals}f" if high >= -4 and max(high, 0) + 1 + decimals <= 7 else ""


@dataclass(frozen=True, eq=False)
class Table:
    """A table of a report.

    Attributes
    ----------
    name : str
        Stem of its files and its name in ``results.json``.
    caption : str
    frame : pandas.DataFrame
        Columns with text as names; the index is not shown.
    keys : sequence of str
        Columns that identify a row.
    formats : mapping of str to str
        Format specifications of columns, such as ``".2f"``.
    headers : mapping of str to str
        Headers of columns; by default their names with blanks for underscores.
    rows : int
        Number of rows that a page shows.
    appendix : bool
    private : bool
        Whether a row describes one seller.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    keys: Sequence[str] = ()
    formats: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    rows: int = ROWS
    appendix: bool = False
    private: bool = False

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.frame.columns]

    @property
    def shown(self) -> pd.DataFrame:
        """The rows that a page shows, with headers as column names."""
        headers = [self.headers.get(name, name.replace("_", " ")) for name in self.columns]
        return self.frame.head(self.rows).set_axis(headers, axis=1)

    @property
    def note(self) -> str:
        """The caption, with the number of rows where some are not shown."""
        n_rows = len(self.frame)
        if n_rows <= self.rows:
            return self.caption
        return f"{self.caption} (first {self.rows:,} of {n_rows:,} rows)".lstrip()

    def _formatters(self, default: str | None = None) -> dict[int, Any]:
        specs = [
            self.formats.get(name, _decimals(self.frame[name]) if default is None else default)
            for name in self.columns
        ]
        return {place: partial(format_cell, spec=spec) for place, spec in enumerate(specs)}

    @property
    def _numeric(self) -> list[bool]:
        return [
            pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
            for dtype in self.frame.dtypes
        ]

    def _styler(self, syntax: str, default: str | None = None) -> Styler:
        """Return the formatted and escaped table; columns are numbered, as headers may repeat."""
        shown = self.shown.reset_index(drop=True)
        headers = [printable(str(name)) for name in shown.columns]
        styler = shown.set_axis(range(shown.shape[1]), axis=1).style.hide(axis="index")
        styler = styler.format(self._formatters(default), escape=syntax, na_rep=MISSING)
        if syntax == "html":
            return styler.relabel_index([escape(name) for name in headers], axis="columns")
        styler = styler.relabel_index(headers, axis="columns")
        return styler.format_index(escape=syntax, axis="columns")

    def html(self) -> str:
        """Return the table as an HTML ``table`` element."""
        rules = [
            {"selector": f".col{place}", "props": "text-align: right"}
            for place, numeric in enumerate(self._numeric)
            if numeric
        ]
        styler = self._styler("html").set_table_styles(rules)  # type: ignore[arg-type]
        return str(styler.set_uuid(f"table-{self.name}").to_html(cell_ids=False))

    def markdown(self) -> str:
        """Return the table as a Markdown table."""
        shown = self.shown
        columns = [
            [escape_markdown(write(cell)) for cell in shown.iloc[:, place]]
            for place, write in self._formatters().items()
        ]
        rule = ["---:" if numeric else "---" for numeric in self._numeric]
        headers = [escape_markdown(name) for name in shown.columns]
        rows = [headers, rule, *map(list, zip(*columns, strict=True))]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def latex(self) -> str:
        """Return the table as a LaTeX ``table`` environment for the package ``booktabs``."""
        columns = "".join("r" if numeric else "l" for numeric in self._numeric)
        styler = self._styler("latex", default=",.4g")
        caption = printable(self.note).translate(_LATEX)
        return str(styler.to_latex(column_format=columns, hrules=True, caption=caption))
