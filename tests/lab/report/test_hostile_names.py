"""Names that a figure or a file could read as something else than names."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from PIL import Image

from convexmarket.lab import build_report, write_report
from convexmarket.lab.kinds.variants.run import run_variants
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.figures import report_style, series_label
from convexmarket.lab.report.model import Block, Report
from convexmarket.lab.report.model import Figure as Drawing
from convexmarket.lab.report.render import escape_markdown, html_environment
from convexmarket.lab.report.saving import one_note_about_glyphs, save_figure
from tests.lab.report.builders import ALL

VARIANTS = [r"bad $\foo$ x", "A $1 of $2", "_hidden", "red \x1b[31m", "\N{ROCKET}"]
GROUPS = [r"$\bar$", "_low"]
#: The figures that name variants and groups.
DRAWN = ("allocations", "groups")
PROBLEM = """
kind = "variants"
title = "T \\u001b[31m"
[sellers]
groups = [ { name = '$\\bar$', count = 3 }, { name = "_low", count = 3 } ]
[prior]
family = "uniform"
low = 1.0
high = 5.0
[objective]
spread = { weight = 1.0 }
noise = { weight = 1.0 }
payments = { weight = 0.02 }
[run]
jobs = 1
[[variants]]
name = 'bad $\\foo$ x'
[[variants]]
name = "A $1 of $2"
constraints.cap = 1.5
[[variants]]
name = "_hidden"
objective.payments.privacy_cost = { power = 2 }
[[variants]]
name = "red \\u001b[31m"
constraints.cap = 1.4
[[variants]]
name = "\N{ROCKET}"
constraints.cap = 1.3
"""


@pytest.fixture(scope="module")
def warned() -> list[str]:
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, warned: list[str]) -> Path:
    report = build_report(run_variants(parse_problem(PROBLEM)))
    sections = tuple(
        replace(part, figures=(), tables=(), body=tuple(filter(shown, part.body)))
        for part in report.sections
    )
    report = replace(report, summary=tuple(filter(shown, report.summary)), sections=sections)
    target = tmp_path_factory.mktemp("hostile") / "report"
    warned += warnings_of(report, target)
    return target


def shown(block: Block) -> bool:
    return not isinstance(block, Drawing) or block.name in DRAWN


def warnings_of(report: Report, target: Path) -> list[str]:
    """Write a report, and return what is warned of on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write_report(report, target, ALL)
    return [str(one.message) for one in caught]


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)  # an ill-formed drawing ends here
    return ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.campaign
def test_names_stand_in_the_figures_as_they_are(folder: Path) -> None:
    drawn = {
        path.stem: texts(path.read_text("utf-8")) for path in (folder / "figures").glob("*.svg")
    }
    shown = [name.replace("\x1b", "\ufffd") for name in VARIANTS]
    for figure in DRAWN:
        assert {name.lstrip("\u200b") for name in drawn[figure]} >= {*shown, *GROUPS}


@pytest.mark.campaign
def test_no_file_holds_control_characters(folder: Path) -> None:
    for file in ("index.html", "report.md"):
        text = (folder / file).read_text("utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    assert "red \ufffd[31m" in (folder / "index.html").read_text("utf-8")


@pytest.mark.campaign
def test_letters_without_a_glyph_give_one_note(folder: Path, warned: list[str]) -> None:
    assert (folder / "index.html").exists()
    assert [one for one in warned if "lyph" in one or "font" in one] == [
        "the font of the figures lacks some characters of names, which are boxes in PNG and PDF; "
        "the page and the SVG have them"
    ]


def test_other_warnings_are_passed_on() -> None:
    with pytest.warns(UserWarning, match="^mind the gap$") as caught, one_note_about_glyphs():
        warnings.warn("mind the gap", stacklevel=1)
    assert len(caught) == 1


def test_powers_of_ten_are_written_without_mathematics(tmp_path: Path) -> None:
    def draw() -> Figure:
        figure = Figure()
        axes = figure.subplots()
        axes.plot([1e-7, 1e7], [1.0, 3.0])
        axes.set(xscale="log", yscale="log", xticks=[1e-7, 1e-3, 1e6])
        return figure

    written = texts(save_figure(draw, tmp_path / "log"))
    assert {"10⁻⁷", "0.001", "10⁶"} <= set(written)
    assert "2" in written  # a minor tick of a scale of less than one decade
    assert not any("$" in one or "{" in one for one in written)


def test_control_characters_and_dollars_reach_all_formats(tmp_path: Path) -> None:
    def draw() -> Figure:
        figure = Figure(figsize=(2, 1))
        figure.text(0.5, 0.5, "a\x00\x1b$b$")
        return figure

    with one_note_about_glyphs(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert texts(save_figure(draw, tmp_path / "text", ALL)) == ["a\ufffd\ufffd$b$"]
    with Image.open(tmp_path / "text.png") as picture:
        assert len(picture.getcolors() or []) > 1
    assert (tmp_path / "text.pdf").read_bytes().startswith(b"%PDF")


def test_a_label_is_shown_whatever_it_begins_with() -> None:
    assert series_label("plain _x") == "plain _x"
    with report_style("x"):
        figure = Figure()
        axes = figure.subplots()
        axes.plot([1], label=series_label("_x"))
        legend = axes.legend()
    assert [one.get_text() for one in legend.get_texts()] == ["\u200b_x"]


@pytest.mark.parametrize("bad", ["\x00", "\x07", "\x0b", "\x1b", "\x7f", "\x9b", "\ufffe"])
def test_control_characters_in_markdown_and_html(bad: str) -> None:
    assert escape_markdown(f"a{bad}b") == "a\ufffdb"
    page = html_environment().from_string("<p title='{{ x }}'>{{ x }}</p>{{ 3 }}")
    assert page.render(x=f"a{bad}<") == "<p title='a\ufffd&lt;'>a\ufffd&lt;</p>3"
