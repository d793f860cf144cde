"""Tables for papers: LaTeX with booktabs, and a document that shows them all.

The text is for pdfLaTeX with the fonts of its T1 encoding. Greek letters, superscripts and
relations become mathematics; a sign that no rule covers is written as its code point.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

from convexmarket.lab.report.shown import Column, ShownTable

__all__ = ["escape_latex", "latex_document", "latex_table", "slug"]

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
WIDEST_HEADER = 10  # characters on one line, unless the cells below are wider
SIZES = {"footnotesize": 160, "scriptsize": 180, "tiny": 210}  # characters on the document's line
TEXT_WIDTH = 40  # characters; a column of longer text is broken into lines
MOST_TEXT = 0.5  # of the line, for the columns of long text together


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
        A ``table`` with a ``tabular``, or a ``longtable`` if it has more than 20 rows; in a size
        in which it fits on a landscape page, without its last columns if there is none.
    """
    columns = _fitting(table.columns)
    caption = escape_latex(table.caption)
    if table.n_shown < table.n_rows:
        caption += f" The first {table.n_shown:,} of {table.n_rows:,} rows."
    if len(columns) < len(table.columns):
        caption += f" The first {len(columns)} of {len(table.columns)} columns."
    head = f"\\caption{{{caption}}}\\label{{tab:{slug(title)}-{table.name}}}"
    header = f"{_row([_header(column) for column in columns])}\n\\midrule"
    body = [
        _row([_cell(column.cells[row], column) for column in columns])
        for row in range(table.n_shown)
    ]
    size = next(size for size, fits in SIZES.items() if _width(columns) <= fits)
    types = _types(columns, SIZES[size])
    lines = ["% needs \\usepackage{array,booktabs,longtable}"]
    if table.n_shown > LONGEST_FLOAT:
        lines += [f"{{\\{size}", f"\\begin{{longtable}}{{{types}}}", f"{head}\\\\"]
        lines += ["\\toprule", header, "\\endfirsthead", "\\toprule", header, "\\endhead"]
        lines += ["\\bottomrule", "\\endfoot", *body, "\\end{longtable}}"]
    else:
        lines += ["\\begin{table}[htbp]", "\\centering", head, f"\\{size}"]
        lines += [f"\\begin{{tabular}}{{{types}}}", "\\toprule", header, *body, "\\bottomrule"]
        lines += ["\\end{tabular}", "\\end{table}"]
    return "\n".join(lines) + "\n"


def _width(columns: Sequence[Column]) -> int:
    """Return about how many characters a row takes, a space between columns as two."""
    widest = (max(map(len, [*one.cells, *_header_lines(one)]), default=0) for one in columns)
    return sum(2 + min(TEXT_WIDTH, width) for width in widest)


def _is_long(column: Column) -> bool:
    return max(map(len, column.cells), default=0) > TEXT_WIDTH


def _fitting(columns: Sequence[Column]) -> Sequence[Column]:
    """Return the first columns that fit on a line in the smallest size, and at least one."""
    widest = max(SIZES.values())
    fitting = [n for n in range(1, len(columns) + 1) if _width(columns[:n]) <= widest]
    return columns[: max(fitting, default=0)]


def _types(columns: Sequence[Column], line: int) -> str:
    """Return the columns' types; those of long text share what the others leave of the line."""
    left = 1 - _width([column for column in columns if not _is_long(column)]) / line
    share = min(left, MOST_TEXT) / max(sum(map(_is_long, columns)), 1)
    text = rf">{{\raggedright\arraybackslash}}p{{{share:.2f}\linewidth}}"
    short = {"number": "r", "word": "l", "text": "l"}
    return "".join(text if _is_long(one) else short[one.kind] for one in columns) or "l"


def _header_lines(column: Column) -> list[str]:
    """Break a header into lines as narrow as its column."""
    width = max([WIDEST_HEADER, *map(len, column.cells)])
    return textwrap.wrap(column.header, width, break_long_words=False)


def _header(column: Column) -> str:
    lines = [escape_latex(line) for line in _header_lines(column)]
    if len(lines) < 2:
        return "".join(lines)
    stacked = r"\\".join(lines)
    return f"\\shortstack[{'r' if column.kind == 'number' else 'l'}]{{{stacked}}}"


def _cell(cell: str, column: Column) -> str:
    return escape_latex(cell.replace("-", "−", 1) if column.kind == "number" else cell)


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def latex_document(title: str, names: Sequence[str]) -> str:
    """Write a document that shows ``tables/<name>.tex`` for every name."""
    tables = "\n".join(f"\\input{{tables/{name}}}" for name in names)
    return rf"""\documentclass{{article}}
\usepackage[utf8]{{inputenc}}
\usepackage[T1]{{fontenc}}
\usepackage{{lmodern}}
\usepackage[a4paper,landscape,margin=12mm]{{geometry}}
\usepackage{{array,booktabs,longtable}}
\setlength{{\tabcolsep}}{{4pt}}
\setlength{{\belowcaptionskip}}{{4pt}}
\begin{{document}}
\section*{{{escape_latex(title)}}}
{tables}
\end{{document}}
"""
