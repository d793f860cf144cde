"""The report of every kind's stored result: its Markdown to the letter, its page, its figures."""

from __future__ import annotations

import difflib

import pytest
from matplotlib.figure import Figure
from rich.markup import escape

from convexmarket.lab import build_report, run_problem, write_report
from convexmarket.lab.problem.loading import load_problem
from convexmarket.lab.report import render
from convexmarket.lab.report.render import markdown_page
from convexmarket.lab.report.terminal import first_paragraph, summary
from tests import one_in
from tests.lab.report.builders import (
    GOLDEN,
    MADE_UP,
    STORED,
    Page,
    dead_links,
    laid_out,
    misplaced,
    save_a_frame,
    stored,
)

#: What makes a fresh run quick, and leaves every frame and column that the report reads.
QUICK = {}


@pytest.mark.parametrize("kind", STORED)
def test_the_markdown_is_that_of_the_golden_file(kind: str) -> None:
    golden = (GOLDEN / kind / "report.md").read_text(encoding="utf-8")
    rendered = markdown_page(build_report(stored(kind)))
    changes = difflib.unified_diff(
        golden.splitlines(), rendered.splitlines(), "golden", "rendered", n=1, lineterm=""
    )
    assert golden == rendered, "\n".join(
        ["if it should read so: python -m tests.lab.report.golden " + kind, *changes]
    )


@pytest.mark.parametrize("kind", one_in(6, STORED))
def test_the_page_is_whole(kind: str, tmp_path, monkeypatch) -> None:
    """Links lead somewhere, ids are unique, names are text, figures are there and have room."""
    crowds = {}

    def save(draw, stem, formats=()):
        figure = laid_out(draw, stem.name)
        crowds[stem.name] = misplaced(figure)
        return save_a_frame(draw, stem, formats)

    monkeypatch.setattr(render, "save_figure", save)
    report = build_report(stored(kind))
    path = write_report(report, tmp_path / "report")
    page = Page(path.read_text(encoding="utf-8"))
    assert not dead_links(page, path.parent)
    assert len(page.ids) == len(set(page.ids))
    assert {tag for tag, _ in page.tags}.isdisjoint({"b", "i"})
    assert report.title in page.words
    assert "<b>" in report.title
    assert sum(tag == "svg" for tag, _ in page.tags) == len(report.figures) > 0
    assert sum(tag == "table" for tag, _ in page.tags) == len(report.tables)
    assert all(figure.alt and figure.caption for figure in report.figures)
    assert not any(crowds.values()), crowds
    for figure in report.figures:
        assert (path.parent / "figures" / f"{figure.name}.png").exists()


#: Those that take long wait for the campaign.
SLOW = [kind for kind in STORED if kind not in ("online-market", "tradeoff")]
RUNS = ["online-market", *one_in(len(STORED), ["tradeoff", *SLOW])]


@pytest.mark.parametrize("kind", RUNS)
def test_a_fresh_run_has_the_fields_and_columns_of_the_stored_one(kind: str) -> None:
    settings = [*QUICK.get(kind, []), "run.jobs=1"]
    problem = load_problem(GOLDEN / kind / "problem.toml", settings)
    fresh, old = run_problem(problem), stored(kind)
    assert type(fresh) is type(old)
    fresh_tables, old_tables = fresh.tables, old.tables
    assert list(fresh_tables) == list(old_tables)
    for name, table in fresh_tables.items():
        found, known = list(table), list(old_tables[name])
        # A result that is made up holds what the report reads, and nothing else.
        assert set(known) <= set(found) if kind in MADE_UP else known == found, name
    assert markdown_page(build_report(fresh))


def test_what_has_no_room_is_found() -> None:
    def draw() -> Figure:
        figure = Figure(figsize=(4, 2))
        for axes in figure.subplots(1, 2):
            axes.set_xlabel("a label that is much too long for half of it")
        return figure

    assert misplaced(laid_out(draw, "crowded"))


@pytest.mark.parametrize("kind", STORED)
def test_the_terminal_says_what_the_page_says_first(kind):
    report = build_report(stored(kind))
    title, *said, facts = summary(report)
    assert report.title in title
    assert said == [
        escape(text) for text in (report.warning, first_paragraph(report.lead[0])) if text
    ]
    labels, values = (list(column.cells) for column in facts.columns)
    assert labels == [escape(fact.label) for fact in report.facts]
    assert values == [escape(fact.value) for fact in report.facts]
