"""Reports as papers: tables in LaTeX by pandas' Styler, and a document with text and figures.

The text is for pdfLaTeX with the fonts of its T1 encoding. Greek letters, superscripts and
relations become mathematics; a sign that no rule covers is written as its code point.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import zip_longest

import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from convexmarket.lab.report.model import Block, Figure, Listing, Report
from convexmarket.lab.report.shown import Column, ShownTable

__all__ = ["escape_latex", "latex_document", "latex_table", "latex_text", "slug"]

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
PORTRAIT = 105  # characters in the first size on a page that does not lie on a side
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
    size = next(size for size, fits in SIZES.items() if _width(columns) <= fits)
    cells = {n: [_cell(cell, one) for cell in one.cells] for n, one in enumerate(columns)}
    style = pd.DataFrame(cells or {0: []}, dtype=object).style.hide(axis="index")
    headers: dict[object, str] = {0: "", **{n: _header(one) for n, one in enumerate(columns)}}
    style.format_index(headers.__getitem__, axis="columns")
    long = table.n_shown > LONGEST_FLOAT
    text = style.to_latex(
        caption=caption, label=f"tab:{slug(title)}-{table.name}", hrules=True,
        column_format=_types(columns, SIZES[size]), environment="longtable" if long else None,
        position=None if long else "htbp", position_float=None if long else "centering",
    )  # fmt: skip
    if long:
        text = f"{{\\{size}\n{text}}}\n"
    else:  # a float begins in the normal size
        text = text.replace("\\begin{tabular}", f"\\{size}\n\\begin{{tabular}}", 1)
    return f"% needs \\usepackage{{array,booktabs,longtable}}\n{text}"


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


def latex_document(report: Report, shown: Mapping[str, ShownTable]) -> str:
    """Write a document with the text, figures and tables of a report; wide tables lie on a side.

    Parameters
    ----------
    report : Report
    shown : mapping of str to ShownTable
        The tables, each of which is also in ``tables/<name>.tex``.
    """
    folded = {table.name for table in report.appendix}

    def written(block: Block) -> str:
        if isinstance(block, Markup):
            return latex_text(block)
        if isinstance(block, Figure):
            return FIGURE.format(name=block.name, caption=escape_latex(block.caption))
        if isinstance(block, Listing):
            lines = (f"\\mbox{{}}{escape_latex(line)}\\par" for line in block.text.splitlines())
            letters = "\n".join([f"\\textbf{{{escape_latex(block.caption)}}}\\par", *lines])
            return f"{{\\footnotesize\\ttfamily\\raggedright\n{letters}\n}}\n"
        return "" if block.name in folded else inserted(block.name)

    def inserted(name: str) -> str:
        text = f"\\input{{tables/{name}}}\n"
        wide = _width(_fitting(shown[name].columns)) > PORTRAIT
        return f"\\begin{{landscape}}\n{text}\\end{{landscape}}\n" if wide else text

    parts = [f"\\section*{{{escape_latex(report.title)}}}"]
    if report.warning:
        parts.append(f"\\textbf{{{escape_latex(report.warning)}}}\n")
    parts += map(written, report.lead)
    facts = [f"\\item {escape_latex(f'{one.label}: {one.value}')}" for one in report.facts]
    if facts:
        parts += ["\\begin{itemize}", *facts, "\\end{itemize}"]
    for section in report.sections:
        parts.append(f"\\subsection*{{{escape_latex(section.heading)}}}")
        parts += map(written, section.blocks)
    if folded:
        parts += ["\\clearpage", "\\subsection*{Appendix}"]
        parts += [inserted(table.name) for table in report.appendix]
    return DOCUMENT.replace("CONTENT", "\n".join(parts))


def latex_text(markdown: str) -> str:
    r"""Write Markdown as LaTeX; links keep their words only.

    Examples
    --------
    >>> print(latex_text("**γ** is 5%, see [this](#there)").strip())
    \textbf{$\gamma$} is 5\%, see this
    """
    parts = []
    for token in MarkdownIt("commonmark", {"html": False}).parse(markdown):
        parts.append(MARKS.get(token.type, ""))
        for child in token.children or ():
            text = escape_latex(child.content)
            before, after = (" " * child.content[at:][:1].isspace() for at in (0, -1))
            code = child.type == "code_inline"
            parts.append(f"\\texttt{{{text}}}" if code else f"{before}{text}{after}")
            parts.append(MARKS.get(child.type, ""))
        if not token.children and token.content:
            parts.append(f"{escape_latex(token.content)}\n\n")
    return "".join(parts)


#: What a token of markdown-it becomes.
MARKS = {
    "paragraph_close": "\n\n",
    "bullet_list_open": "\\begin{itemize}\n",
    "bullet_list_close": "\\end{itemize}\n",
    "ordered_list_open": "\\begin{enumerate}\n",
    "ordered_list_close": "\\end{enumerate}\n",
    "list_item_open": "\\item ",
    "blockquote_open": "\\begin{quote}\n",
    "blockquote_close": "\\end{quote}\n",
    "heading_open": "\\subsubsection*{",
    "heading_close": "}\n",
    "strong_open": "\\textbf{",
    "strong_close": "}",
    "em_open": "\\emph{",
    "em_close": "}",
    "softbreak": "\n",
    "hardbreak": "\\newline{}",
}
FIGURE = r"""\begin{{figure}}[htbp]
\centering
\includegraphics[width=\linewidth,height=0.8\textheight,keepaspectratio]{{figures/{name}}}
\caption{{{caption}}}
\end{{figure}}
"""
DOCUMENT = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{lmodern}
\usepackage[a4paper,margin=12mm]{geometry}
\usepackage{array,booktabs,graphicx,longtable,lscape}
\setlength{\tabcolsep}{4pt}
\setlength{\belowcaptionskip}{4pt}
\extrafloats{200}
\begin{document}
CONTENT
\end{document}
"""
