"""Tables in LaTeX: whatever the text, they parse (tests/page has pdfLaTeX compile them)."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.lab.report.latex import escape_latex, latex_table
from convexmarket.lab.report.model import Table
from convexmarket.lab.report.shown import shown_table

latexwalker = pytest.importorskip("pylatexenc.latexwalker", reason="pylatexenc is not installed")


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
        r"% needs \usepackage{booktabs,longtable}",
        r"\begin{table}[htbp]",
        r"\centering",
        r"\caption{Offers 50\% $\gamma$}",
        r"\label{tab:a-b-offers}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"50\% $\gamma$ & a long payment \\",
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
    assert r"\caption{Rows. The first 30 of 1,234 rows.} \label{tab:title-long}" in text
    assert r"\begin{longtable}{rl}" in text
    assert len(re.findall(r"^\d+ & many", text, re.M)) == 30


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
