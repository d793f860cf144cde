"""Markdown parsers recognise all tables, and do not read asterisks in products as emphasis."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from convexmarket.report import escape_markdown
from tests import ROOT

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "convexmarket/**/*.md", "problems/**/*.md")
    for path in ROOT.glob(pattern)
    if "generated" not in path.parts  # these pages are generated with the site
)
REPORTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("reports/**/*.md"))
#: Characters that can precede or follow emphasis: blanks, punctuation and brackets.
BEFORE = re.compile(r"[\s(\[“‘\"'—–|]")
AFTER = re.compile(r"[\s)\]”’\"'—–|.,;:!?]")
#: LaTeX formulas, which are not Markdown.
LATEX = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.DOTALL)
#: Characters that occur in formulas.
FORMULA = re.compile(r"[\^=<>+*]")


def parse(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def tables(tokens: list[Token]) -> int:
    return sum(token.type == "table_open" for token in tokens)


def blocks_of_bars(text: str, tokens: list[Token]) -> int:
    """Count the blocks of consecutive lines outside code that begin with a bar."""
    code = {
        line
        for token in tokens
        if token.type in ("fence", "code_block")
        for line in range(*(token.map or (0, 0)))
    }
    bars = [
        number not in code and line.lstrip().startswith("|")
        for number, line in enumerate(text.split("\n"))
    ]
    return sum(bar and not before for before, bar in zip([False, *bars], bars, strict=False))


def accidents(tokens: list[Token]) -> list[str]:
    """Return the emphasised texts that are adjacent to a formula or part of a formula."""
    result = []
    for token in tokens:
        children = token.children or []
        for opening, child in enumerate(children):
            if child.type not in ("em_open", "strong_open"):
                continue
            closed = child.type.replace("open", "close")
            closing = next(
                place
                for place in range(opening, len(children))
                if children[place].type == closed and children[place].level == child.level
            )
            inside = "".join(
                single.content for single in children[opening:closing] if single.type == "text"
            )
            before, after = shown(children[:opening])[-1:], shown(children[closing + 1 :])[:1]
            if (
                (before and not BEFORE.fullmatch(before))
                or (after and not AFTER.fullmatch(after))
                or (child.type == "em_open" and FORMULA.search(inside))
                or inside.count("(") != inside.count(")")
            ):
                result.append(f"{before}{child.markup}{inside}{child.markup}{after}")
    return result


def shown(tokens: list[Token]) -> str:
    """Return the text of inline tokens, with a letter for code and a blank for a line break."""
    text = {"softbreak": " ", "hardbreak": " ", "code_inline": "x", "image": "x"}
    return "".join(text.get(token.type, token.content) for token in tokens)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_table_of_a_document_is_parsed_as_one_table(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    tokens = parse(text)
    assert tables(tokens) == blocks_of_bars(text, tokens)


@pytest.mark.parametrize("name", REPORTS)
def test_every_table_of_a_shipped_report_is_parsed_as_one_table(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    tokens = parse(text)
    assert tables(tokens) == blocks_of_bars(text, tokens)
    page = (ROOT / name).with_name("appendix.html" if "appendix" in name else "index.html")
    assert tables(tokens) == page.read_text(encoding="utf-8").count("<table")
    assert not accidents(tokens)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_product_of_a_document_becomes_emphasis(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not accidents(parse(LATEX.sub("x", text)))


@pytest.mark.parametrize(
    "text", ["*Here.* Let", "(*any*)", "**A**: x", "a *b* c", "so *a and b*, c", "**`a*b`** is"]
)
def test_intended_emphasis_is_accepted(text: str) -> None:
    assert any(child.type.endswith("_open") for child in parse(text)[1].children or [])
    assert not accidents(parse(text))


@pytest.mark.parametrize(
    "text",
    ["a*b and c*d", "sum (a)*b with c*d", "f(x)*y + z*(w)", "so *a(b* c", "x *y = z* w", "`a`*b*c"],
)
def test_accidental_emphasis_is_detected(text: str) -> None:
    assert accidents(parse(text))


@pytest.mark.parametrize("text", ["a*b*c", "*x*", "a_b_", "|", r"\|", "---:", "a | b", "`*`"])
def test_escaped_text_is_shown_unchanged_in_a_cell(text: str) -> None:
    cell = escape_markdown(text)
    tokens = parse(f"| h | i |\n|:---|---:|\n| {cell} | x |\n")
    cells = [token for token in tokens if token.type == "inline"]
    assert tables(tokens) == 1
    assert [shown(single.children or []) for single in cells] == ["h", "i", text, "x"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs/theory").glob("*.md")), ids=lambda p: p.stem)
def test_theory_pages_start_with_a_theorem_and_name_existing_files(path: Path) -> None:
    text = path.read_text()
    opening, theorem, _ = text.partition("**Theorem")
    assert theorem
    assert opening.count("\n") < 15
    assert "Proof" not in opening
    for file in re.findall(r"`([\w/]+\.py)`", text):
        places = ("convexmarket", "tests", "problems/papers", ".")
        assert any((ROOT / place / file).exists() for place in places), file
