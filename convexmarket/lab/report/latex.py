"""Tables in LaTeX, by pandas' Styler.

The text is for pdfLaTeX with the fonts of its T1 encoding. Greek letters, superscripts and
relations become mathematics; a sign that no rule covers is written as its code point.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from itertools import zip_longest

import pandas as pd

from convexmarket.lab.report.shown import ShownTable

__all__ = ["escape_latex", "latex_table", "slug"]

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    '"': r"\textquotedbl{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: f"{{{character}}}" for character in "[]*"},  # options, behind a line's end
    "\N{NO-BREAK SPACE}": "~",
    "–": "{--}",
    "—": "{---}",
    "‘": "{`}",
    "’": "{'}",
    "“": "{``}",
    "”": "{''}",
    "…": r"\dots{}",
}
SYMBOLS = {
    "−": "-",
    "×": r"\times",
    "·": r"\cdot",
    "±": r"\pm",
    "≤": r"\leq",
    "≥": r"\geq",
    "≠": r"\neq",
    "≈": r"\approx",
    "∞": r"\infty",
    "∈": r"\in",
    "∑": r"\sum",
    "√": r"\surd",
    "→": r"\rightarrow",
    "←": r"\leftarrow",
    "‖": r"\Vert",
    "′": r"\prime",
    "ℓ": r"\ell",
    "µ": r"\mu",  # the micro sign
}
LIGATURES = "-,'"  # signs that T1 fonts join to another one
GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)")
GREEK_CAPITALS = {"GAMMA", "DELTA", "THETA", "LAMDA", "XI", "PI", "SIGMA", "UPSILON", "PHI", "PSI"}
GREEK_CAPITALS |= {"OMEGA"}  # LaTeX has no command for those that look Latin
RAISED = re.compile(r"<(super|sub)> ([0-9A-F]{4})")
LONGEST_FLOAT = 20  # rows; a longer table breaks over pages


def escape_latex(text: str) -> str:
    r"""Write plain text so that pdfLaTeX prints it as it is.

    Examples
    --------
    >>> print(escape_latex("50% of γ ≤ 10⁻⁵ & more"))
    50\% of $\gamma$ $\leq$ 10$^{-}$$^{5}$ \& more
    >>> print(escape_latex("Zoë, 中"))
    Zoë, {[}U+4E2D{]}
    """
    text = re.sub(r"[ \t\r\n\u2028\u2029]+", " ", text).strip(" ")
    return "".join(
        _escape_character(one) + ("{}" if one == other and one in LIGATURES else "")
        for one, other in zip_longest(text, text[1:])
    )


def _escape_character(character: str) -> str:
    if character in SPECIAL:
        return SPECIAL[character]
    if " " <= character <= "~" or _is_accented(character):
        return character
    mathematics = _mathematics(character)
    return f"${mathematics}$" if mathematics else f"{{[}}U+{ord(character):04X}{{]}}"


def _is_accented(character: str) -> bool:
    """Tell whether a letter is Latin with one accent that the T1 fonts have."""
    if not "À" <= character <= "ž":
        return False
    decomposed = unicodedata.normalize("NFD", character)
    return decomposed[0].isascii() and len(decomposed) == 2


def _mathematics(character: str) -> str:
    """Return the command of a sign of mathematics, or nothing."""
    if character in SYMBOLS:
        return SYMBOLS[character]
    if raised := RAISED.fullmatch(unicodedata.decomposition(character)):
        inner = chr(int(raised[2], 16))
        inner = SYMBOLS.get(inner, inner)
        mark = "^" if raised[1] == "super" else "_"
        return f"{mark}{{{inner}}}" if re.fullmatch(r"[0-9A-Za-z()=+-]", inner) else ""
    greek = GREEK.fullmatch(unicodedata.name(character, ""))
    if greek and "Α" <= character <= "ω":
        case, name = greek.groups()
        command = name.replace("LAMDA", "LAMBDA")
        if case == "SMALL" and name != "OMICRON":
            return f"\\{command.lower()}"
        if name in GREEK_CAPITALS and case == "CAPITAL":
            return f"\\{command.capitalize()}"
    return ""


def slug(title: str) -> str:
    """Turn a title into a short word for labels.

    Examples
    --------
    >>> slug("Breast cancer: 569 sellers, one market, and a few words more")
    'breast-cancer-569-sellers-one-market-and'
    >>> slug("?")
    'report'
    """
    words = re.sub(r"[^a-z0-9]+", " ", title.lower())
    return textwrap.shorten(words, 40, placeholder="").replace(" ", "-") or "report"


def latex_table(table: ShownTable, title: str) -> str:
    """Write the rows that the page shows as a table with a caption and a label.

    Parameters
    ----------
    table : ShownTable
    title : str
        The report's; the label is ``tab:<short title>-<table's name>``.

    Returns
    -------
    str
        A ``table`` with a ``tabular``, or a ``longtable`` if it has more than 20 rows.
    """
    caption = escape_latex(table.caption)
    if table.n_shown < table.n_rows:
        caption += f" The first {table.n_shown:,} of {table.n_rows:,} rows."
    cells = {
        number: [cell.replace("-", "−", 1) if one.kind == "number" else cell for cell in one.cells]
        for number, one in enumerate(table.columns)
    }
    headers: dict[object, str] = {0: "", **{n: o.header for n, o in enumerate(table.columns)}}
    style = pd.DataFrame(cells or {0: []}, dtype=object).style.hide(axis="index")
    style.format(lambda cell: escape_latex(str(cell))).format_index(
        lambda n: escape_latex(headers[n]), axis="columns"
    )
    long = table.n_shown > LONGEST_FLOAT
    text = style.to_latex(
        caption=caption, label=f"tab:{slug(title)}-{table.name}", hrules=True,
        column_format="".join("r" if one.kind == "number" else "l" for one in table.columns) or "l",
        environment="longtable" if long else None,
        position=None if long else "htbp", position_float=None if long else "centering",
    )  # fmt: skip
    return f"% needs \\usepackage{{booktabs,longtable}}\n{text}"
