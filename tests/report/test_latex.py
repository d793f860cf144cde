"""Tables in LaTeX: whatever the text, they parse, and pdfLaTeX compiles them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.report import Report, Section, Table
from convexmarket.report.latex import escape_latex, latex_table
from convexmarket.report.render import write_folder
from convexmarket.report.shown import shown_table

latexwalker = pytest.importorskip("pylatexenc.latexwalker", reason="pylatexenc is not installed")

HOSTILE = r"\input{/etc/passwd} 50% & $x_1$ #1 ~ ^ {} [a] *, -- --- << '' `` ,, \\ \end{table}"
SIGNS = "γ ε ηψΛΣ × ≤ ≥ ≠ ≈ ∞ 10⁻¹² x₁ – — − ± · → ‖a‖ Zoë Łódź Ørsted ß 中 🎲 ½ © ’quoted‘ …"
KNOWN = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA0, 0x2300)]))


def parse(text: str) -> list[object]:
    """Parse strictly: braces, environments and mathematics must close."""
    return latexwalker.LatexWalker(text, tolerant_parsing=False).get_latex_nodes()[0]


def make_table(text: str = "plain") -> Table:
    frame = pd.DataFrame(
        {"who": [text, "[1] first", "* second"], "payment": [-1234.5, 2.5e-9, np.nan]}
    )
    return Table("offers", f"Offers {text}", frame, {"who": text, "payment": "a long payment"})


def test_a_table_by_hand() -> None:
    assert latex_table(shown_table(make_table("50% γ")), "A & B").splitlines() == [
        r"% needs \usepackage{array,booktabs,longtable}",
        r"\begin{table}[htbp]",
        r"\centering",
        r"\caption{Offers 50\% $\gamma$}\label{tab:a-b-offers}",
        r"\footnotesize",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"50\% $\gamma$ & \shortstack[r]{a long\\payment} \\",
        r"\midrule",
        r"50\% $\gamma$ & $-$1,234 \\",
        r"{[}1{]} first & 2.5~$\times$~10$^{-}$$^{9}$ \\",
        r"{*} second & {--} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_a_long_table_breaks_over_pages_and_says_what_it_leaves_out() -> None:
    frame = pd.DataFrame({"row": range(1234), "words": ["many words " * 9] * 1234})
    text = latex_table(shown_table(Table("long", "Rows.", frame)), "Title")
    parse(text)
    assert r"\begin{longtable}" in text
    assert r"\begin{table}" not in text
    assert r"\caption{Rows. The first 30 of 1,234 rows.}\label{tab:title-long}" in text
    assert r"{r>{\raggedright\arraybackslash}p{0.50\linewidth}}" in text
    assert len(re.findall(r"^\d+ & many", text, re.M)) == 30


def test_a_wide_table_is_small_and_a_wider_one_loses_its_last_columns() -> None:
    def sized(columns: int) -> str:
        frame = pd.DataFrame({f"c{i}": ["eight ch"] for i in range(columns)})
        return latex_table(shown_table(Table("wide", "Wide.", frame)), "Title")

    assert [
        re.findall(r"\\(footnotesize|scriptsize|tiny)", sized(n)) for n in (16, 17, 19, 22)
    ] == [
        ["footnotesize"],
        ["scriptsize"],
        ["tiny"],
        ["tiny"],
    ]
    assert "columns." not in sized(21)
    assert r"\caption{Wide. The first 21 of 22 columns.}" in sized(22)
    assert rf"\begin{{tabular}}{{{21 * 'l'}}}" in sized(22)


@given(st.text())
def test_any_text_parses_and_stays_in_its_cell(text: str) -> None:
    escaped = escape_latex(text)
    assert all(not isinstance(node, latexwalker.LatexEnvironmentNode) for node in parse(escaped))
    assert not re.search(r"(?<!\\)[&#%~]", escaped.replace("~", "", text.count("\xa0")))
    assert "\n" not in escaped
    if re.fullmatch(r"[A-Za-z0-9 .;:!?()/+=|@]*", text):
        assert escaped == " ".join(text.split(" ")).strip(" ")


@given(st.text())
def test_a_row_has_as_many_cells_whatever_they_say(text: str) -> None:
    table = latex_table(shown_table(make_table(text)), text)
    parse(table)
    rows = [line for line in table.splitlines() if line.endswith(r" \\")]
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [1] * 4


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("--", "-{}-"),
        ("it''s", "it'{}'s"),
        ("Λ ΣΠ Α", r"$\Lambda$ $\Sigma$$\Pi$ {[}U+0391{]}"),
        ("ο ς ϵ", "{[}U+03BF{]} {[}U+03C2{]} {[}U+03F5{]}"),
        ("x\ud800", "x{[}U+D800{]}"),
        ("a\n\tb", "a b"),
        ("", ""),
    ],
)
def test_escapes(text: str, escaped: str) -> None:
    assert escape_latex(text) == escaped


def find_latex() -> str | None:
    """Return pdfLaTeX if it has the packages that the document needs."""
    latex, find = shutil.which("pdflatex"), shutil.which("kpsewhich")
    if latex is None or find is None:
        return None
    needed = ["booktabs.sty", "longtable.sty", "array.sty", "geometry.sty", "lmodern.sty"]
    found = subprocess.run([find, *needed], capture_output=True, text=True, check=False)
    return latex if found.returncode == 0 else None


@pytest.mark.skipif(find_latex() is None, reason="no pdflatex with booktabs on this machine")
def test_pdflatex_compiles_the_document_with_all_tables(tmp_path: Path) -> None:
    signs = pd.DataFrame({"sign": list(KNOWN), "twice": [2 * sign for sign in KNOWN]})
    tables = (
        make_table(f"{HOSTILE} {SIGNS}"),
        Table("signs", "Every sign below U+2300.", signs, rows_shown=len(signs)),
        Table("empty", "Nothing", pd.DataFrame({"a": [], "b": []})),
        Table("nothing", "Not even columns", pd.DataFrame()),
        Table("words", "Words", pd.DataFrame({HOSTILE: ["long words " * 30], "b": [HOSTILE]})),
    )
    report = Report(f"Title {HOSTILE}", (), (Section("All", tables=tables),), {})
    folder = write_folder(report, tmp_path / "report").parent
    command = [find_latex(), "-halt-on-error", "-interaction=nonstopmode", "-no-shell-escape"]
    done = subprocess.run(
        [*map(str, command), f"-output-directory={tmp_path}", "report.tex"],
        cwd=folder,
        capture_output=True,
        encoding="latin-1",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert "Missing character" not in (tmp_path / "report.log").read_text(encoding="latin-1")
