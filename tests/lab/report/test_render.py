"""The renderer: what it writes, what it escapes, what it replaces and what it leaves alone."""

from __future__ import annotations

import itertools
import json
import re
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as MatplotlibFigure

from convexmarket.errors import DataError, ParameterError
from convexmarket.lab import build_report, write_report
from convexmarket.lab.report import render
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import settings_table
from convexmarket.lab.report.render import fenced, plain
from convexmarket.lab.report.shown import shown_table
from convexmarket.lab.report.words import escape_markdown, format_number, format_value
from tests.lab.report.builders import ALL, Page, dead_links, plain_blanks, save_a_frame

write_folder = partial(render.write_folder, formats=ALL)

EVIL = "<script>alert('x')</script> | **bold** &amp; \"quoted\" [a](b)"


def draw_line() -> MatplotlibFigure:
    figure = MatplotlibFigure(figsize=(4, 2))
    axes = figure.subplots()
    axes.plot([1, 2, 3], [1, 4, 9], marker="o")
    axes.set_title("squares")
    return figure


def make_report(**changes: Any) -> Report:
    frame = pd.DataFrame(
        {
            "id": [EVIL, "plain", None],
            "payment": [1234567.891, np.nan, 0.0000012],
            "bought": [True, False, True],
        }
    )
    section = Section(
        heading=f"A heading {EVIL}",
        prose=(f"A paragraph {EVIL}",),
        points=(f"A point {EVIL}",),
        figures=(
            Figure("squares", f"A caption {EVIL}", draw_line, f"An alternative {EVIL}"),
            Figure("again", "The same once more", draw_line, "The same line."),
        ),
        tables=(Table("offers", f"A table {EVIL}", frame, {"payment": EVIL}),),
    )
    parts: dict[str, Any] = {
        "title": f"A title {EVIL}",
        "summary": (f"A summary {EVIL}",),
        "sections": (section,),
        "results": {"numbers": np.array([1.0, np.nan, np.inf]), "frame": frame},
        "facts": (Fact(f"A fact {EVIL}", EVIL),),
        "warning": f"A warning {EVIL}",
    }
    return Report(**(parts | changes))


def test_a_warning_comes_first(tmp_path: Path) -> None:
    page = write_folder(make_report(warning="Beware."), tmp_path / "warned")
    for text in (page.read_text(), (page.parent / "report.md").read_text()):
        body = text[text.index("A title") :]
        assert 0 < body.index("Beware.") < body.index("Summary") < body.index("A fact")
    plain = write_folder(make_report(warning=""), tmp_path / "plain")
    assert 'class="warning"' not in plain.read_text()


@pytest.fixture(autouse=True)
def _saved(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw and save nothing but a frame, where the test does not look at figures."""
    if "folder" in request.fixturenames:
        return

    def save(draw: Callable[[], MatplotlibFigure], stem: Path, formats=()) -> str:
        if stem.name == "broken":
            draw()
        return save_a_frame(draw, stem, formats)

    monkeypatch.setattr(render, "save_figure", save)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = write_folder(make_report(), tmp_path_factory.mktemp("reports") / "one")
    return page.parent


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "index.html").read_text(encoding="utf-8"))


def test_the_folder_holds_no_more_than_is_asked_for(tmp_path: Path) -> None:
    page = render.write_folder(make_report(), tmp_path / "few")
    written = {path.relative_to(page.parent).as_posix() for path in page.parent.rglob("*.*")}
    figures = {"figures/squares.png", "figures/again.png"}
    assert written == {"index.html", "report.md", "results.json", *figures}
    assert not dead_links(Page(page.read_text()), page.parent)
    more = render.write_folder(make_report(), tmp_path / "few", ["csv", "pdf"])
    added = {path.relative_to(more.parent).as_posix() for path in more.parent.rglob("*.*")}
    assert added - written == {"tables/offers.csv", "figures/squares.pdf", "figures/again.pdf"}
    assert not dead_links(Page(more.read_text()), more.parent)


def test_a_format_that_is_none_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"formats must .*, got 'docx'"):
        render.write_folder(make_report(), tmp_path / "few", ["docx"])
    assert not list(tmp_path.iterdir())


def test_the_folder_holds_every_format(folder: Path) -> None:
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    assert written == {
        "index.html",
        "report.md",
        "results.json",
        "tables/offers.csv",
        "tables/offers.tex",
        "figures/squares.svg",
        "figures/squares.png",
        "figures/squares.pdf",
        "figures/again.svg",
        "figures/again.png",
        "figures/again.pdf",
    }
    assert not list(folder.parent.glob(".one-*"))


def test_data_never_becomes_markup(folder: Path, page: Page) -> None:
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}]
    text = " ".join(page.words)
    for start in ("A title", "A summary", "A heading", "A paragraph", "A point", "A caption"):
        assert f"{start} {EVIL}" in text
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert "<script" not in markdown
    assert "**bold**" not in markdown
    assert "[a](b)" not in markdown


def test_a_bar_in_a_cell_does_not_split_it_in_markdown(folder: Path) -> None:
    lines = (folder / "report.md").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| id "))
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in lines[start : start + 5]]
    assert cells == [4] * 5


def test_the_page_loads_nothing(folder: Path, page: Page) -> None:
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "object", "embed"}
        for name in ("src", "href", "xlink:href"):
            value = attributes.get(name)
            if value is not None:
                assert value.startswith(("#", "data:", "figures/", "tables/", "re")), value
    policy = [a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a]
    script = (folder / "index.html").read_text("utf-8").split("<script>")[1].split("</script>")[0]
    digest = b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii")
    assert policy == [
        "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    ]
    assert "@import" not in (folder / "index.html").read_text(encoding="utf-8")


def test_links_lead_somewhere(folder: Path, page: Page) -> None:
    assert not dead_links(page, folder)


def test_ids_are_unique_although_figures_are_inline(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))


def test_structure_is_accessible(page: Page) -> None:
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(headings))
    assert all(a.get("scope") == "col" for t, a in page.tags if t == "th")
    images = [a for _, a in page.tags if a.get("role") == "img"]
    assert [a["aria-label"] for a in images] == [f"An alternative {EVIL}", "The same line."]
    regions = [a for _, a in page.tags if a.get("role") == "region"]
    assert len(regions) == 3
    assert all(a["tabindex"] == "0" for a in regions)
    assert ("html", {"lang": "en"}) in page.tags


def test_what_is_missing_is_a_dash(page: Page) -> None:
    cells = [word for word in page.words if word == "–"]
    assert len(cells) == 2  # the id that is None, the payment that is not a number


def test_a_long_table_is_cut_on_the_page_and_whole_in_its_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({"row": range(1234)})
    section = Section("Long", tables=(Table("long", "Many rows", frame),))
    index = write_folder(make_report(sections=(section,)), tmp_path / "long")
    text = index.read_text(encoding="utf-8")
    assert text.count("<tr>") == 1 + 30
    assert "The first 30 of 1,234 rows" in text
    assert len(pd.read_csv(index.parent / "tables" / "long.csv")) == 1234
    assert "The first 30 of 1,234 rows" in (index.parent / "report.md").read_text(encoding="utf-8")


def test_csv_keeps_every_digit(folder: Path) -> None:
    frame = pd.read_csv(folder / "tables" / "offers.csv")
    assert frame.id[0] == EVIL
    assert frame.payment[0] == 1234567.891


def test_results_are_strict_json(folder: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = (folder / "results.json").read_text(encoding="utf-8")
    results = json.loads(text, parse_constant=refuse)
    assert results["numbers"] == [1.0, None, "Infinity"]
    assert results["frame"][1] == {"id": "plain", "payment": None, "bought": False}


def test_svg_files_are_well_formed(folder: Path) -> None:
    for path in (folder / "figures").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_same_report_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = write_folder(make_report(), tmp_path / "again").parent
    for path in folder.rglob("*.*"):
        assert path.read_bytes() == (again / path.relative_to(folder)).read_bytes(), path.name


def test_the_users_settings_neither_show_nor_change(folder: Path, tmp_path: Path) -> None:
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        again = write_folder(make_report(), tmp_path / "again").parent
        assert mpl.rcParams["font.size"] == 30
    for path in folder.glob("figures/*"):
        assert path.read_bytes() == (again / "figures" / path.name).read_bytes()


def test_a_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report"
    write_folder(make_report(), target)
    write_folder(make_report(title="Second", sections=()), target)
    assert "Second" in (target / "index.html").read_text(encoding="utf-8")
    assert not list((target / "figures").iterdir())
    assert [path.name for path in target.parent.iterdir()] == ["report"]


def test_an_interrupted_run_leaves_the_earlier_report(tmp_path: Path) -> None:
    def interrupt() -> MatplotlibFigure:
        raise KeyboardInterrupt

    target = tmp_path / "report"
    index = write_folder(make_report(), target)
    before = index.read_bytes()
    broken = Section("Broken", figures=(Figure("broken", "", interrupt, ""),))
    with pytest.raises(KeyboardInterrupt):
        write_folder(make_report(sections=(broken,)), target)
    assert index.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_failing_exchange_brings_the_earlier_report_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report"
    before = write_folder(make_report(), target).read_bytes()
    rename = Path.rename

    def fail_on_fresh(self: Path, goal: Path) -> Path:
        if self.name == "fresh":
            raise OSError("no space left")
        return rename(self, goal)

    monkeypatch.setattr(Path, "rename", fail_on_fresh)
    with pytest.raises(DataError, match=r"no space left\); what was there before is as it was"):
        write_folder(make_report(), target)
    assert (target / "index.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


@pytest.mark.parametrize("foreign", ["thesis.tex", "tables/mine.xlsx", "figures/deep/a.svg"])
def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path, foreign: str) -> None:
    target = tmp_path / "report"
    write_folder(make_report(), target)
    (target / foreign).parent.mkdir(exist_ok=True)
    (target / foreign).write_text("precious")
    with pytest.raises(ParameterError, match=re.escape(foreign.split("/a.")[0])):
        write_folder(make_report(), target)
    assert (target / foreign).read_text() == "precious"


@pytest.mark.parametrize(
    "mine",
    [
        ("results.json", "figures/photo.png", "tables/measured.csv"),
        ("index.html",),
        ("index.html", "report.md", "results.json"),
    ],
)
def test_a_folder_that_only_looks_like_a_report_is_left_alone(
    tmp_path: Path, mine: tuple[str, ...]
) -> None:
    target = tmp_path / "paper"
    for name in mine:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text("precious")
    with pytest.raises(ParameterError, match=r"no results\.json of convexmarket"):
        write_folder(make_report(), target)
    assert all((target / name).read_text() == "precious" for name in mine)


def test_a_report_whose_page_was_deleted_is_replaced(tmp_path: Path) -> None:
    page = write_folder(make_report(), tmp_path / "report")
    page.unlink()
    assert write_folder(make_report(), tmp_path / "report").is_file()


def test_the_working_directory_is_not_pulled_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(make_report(), tmp_path / "report")
    monkeypatch.chdir(tmp_path / "report" / "tables")
    with pytest.raises(ParameterError, match="working directory"):
        write_folder(make_report(), tmp_path / "report")


@pytest.mark.parametrize("nth", [1, 2, 3])  # the lock, the former report, the new one
def test_an_interrupt_right_after_a_rename_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    target = tmp_path / "report"
    before = write_folder(make_report(), target).read_bytes()
    rename, calls = Path.rename, itertools.count(1)

    def rename_and_interrupt(self: Path, goal: Path) -> Path:
        found = rename(self, goal)
        if next(calls) == nth:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Path, "rename", rename_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_folder(make_report(title="Second"), target)
    found = (target / "index.html").read_bytes()
    assert (found == before) == (nth < 3)
    assert (b"Second" in found) == (nth == 3)
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_attachments_stand_in_the_folder_and_are_replaced_with_it(tmp_path: Path) -> None:
    report = make_report(attachments={"runs.jsonl": b'{"a": 1}\n'})
    for _ in range(2):
        page = write_folder(report, tmp_path / "report")
    assert (page.parent / "runs.jsonl").read_bytes() == b'{"a": 1}\n'
    assert 'href="runs.jsonl"' in page.read_text(encoding="utf-8")
    with pytest.raises(ParameterError, match=r"named '\.\./up'; .* runs\.jsonl"):
        make_report(attachments={"../up": b""})


def test_cells_that_do_not_read_as_numbers_carry_their_value() -> None:
    frame = pd.DataFrame(
        {
            "payment": [1234567.0, 0.25, 2.5e-9, np.inf, np.nan],
            "mixed": pd.Series([1234, "no", True, None, 0.5], dtype=object),
        }
    )
    payment, mixed = shown_table(Table("offers", "", frame)).columns
    assert payment.cells[1:2] == ["0.25"]
    assert payment.keys == ["1234567", "", "2.5e-09", "Infinity", ""]
    assert mixed.keys == ["1234", "", "", "", ""]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("precious")
    with pytest.raises(ParameterError, match="is a file"):
        write_folder(make_report(), tmp_path / "report")


def test_the_folder_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    target = write_folder(make_report(), tmp_path / "report").parent
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_names_must_be_file_names_and_differ() -> None:
    with pytest.raises(ParameterError, match="file name"):
        Table("../up", "", pd.DataFrame())
    with pytest.raises(ParameterError, match="file name"):
        Figure("A B", "", draw_line, "")
    table = Table("same", "", pd.DataFrame())
    with pytest.raises(ParameterError, match="two tables are named 'same'"):
        make_report(sections=(Section("One", tables=(table, table)),))


def test_empty_table_and_repeated_headings(tmp_path: Path) -> None:
    empty = Table("empty", "No rows", pd.DataFrame({"a": [], "b": []}))
    sections = (Section("Same", tables=(empty,)), Section("Same"), Section("Größe?"), Section("?"))
    text = write_folder(make_report(sections=sections), tmp_path / "r").read_text(encoding="utf-8")
    ids = Page(text).ids
    assert len(ids) == len(set(ids))


def test_write_report_takes_a_report_and_names_what_it_cannot_take(tmp_path: Path) -> None:
    report = make_report()
    assert build_report(report) is report
    assert write_report(report, str(tmp_path / "r")) == (tmp_path / "r" / "index.html").resolve()
    with pytest.raises(ParameterError, match="no report for a dict"):
        write_report({}, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.00001234, "-1.23 × 10⁻⁵"),
        (0.00099999, "0.001"),
        (999.6, "1,000"),
        (1e6, "10⁶"),
        (1234567, "1,234,567"),
        (np.int64(3), "3"),
        (float("-inf"), "-∞"),
        (None, "–"),
        (5e-324, "4.94 × 10⁻³²⁴"),
        (1.7e308, "1.7 × 10³⁰⁸"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert plain_blanks(format_number(value)) == text


def test_values_of_tables() -> None:
    assert format_value(np.bool_(True)) == "yes"
    assert format_value(pd.NA) == format_value(np.float64("nan"), ".3f") == "–"
    assert format_value(np.int64(1200), ",d") == "1,200"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("# not a heading", "\\# not a heading"),
        ("1. not a list", "1\\. not a list"),
        ("- nor this", "\\- nor this"),
        ("0.5 stays", "0.5 stays"),
        ("-0.5 stays", "-0.5 stays"),
        ("two\n\nlines", "two lines"),
        ("a_b", "a\\_b"),
    ],
)
def test_markdown_escapes(text: str, escaped: str) -> None:
    assert escape_markdown(text) == escaped


def test_plain_values() -> None:
    assert plain({1: (np.int64(2), Path("x"))}) == {"1": [2, "x"]}
    assert plain(pd.Series([1.5, np.nan])) == [1.5, None]


def test_a_column_has_equally_many_decimals_where_its_sizes_allow() -> None:
    numbers = {"even": [0.5, 12.25, 3.0], "wide": [1e-9, 1.0, 2e7], "whole": [1.0, 2.0, 3.0]}
    frame = pd.DataFrame(numbers)
    even, wide, whole = (column.cells for column in shown_table(Table("t", "", frame)).columns)
    assert even == ["0.50", "12.25", "3.00"]
    assert wide == ["10⁻⁹", "1", "2 × 10⁷".replace(" ", "\N{NO-BREAK SPACE}")]
    assert whole == ["1", "2", "3"]


def test_a_table_a_little_too_long_is_whole_and_a_ninth_is_in_the_appendix() -> None:
    assert shown_table(Table("t", "", pd.DataFrame({"a": range(45)}), rows_shown=40)).n_shown == 45
    tables = tuple(Table(f"t{i}", "", pd.DataFrame({"a": [i]})) for i in range(9))
    report = Report("Nine", (), (Section("All", tables=tables),), {})
    assert [one.name for one in report.appendix] == ["t8"]


def test_a_problem_file_stands_to_the_letter() -> None:
    assert fenced("a = '```'\n<b>\n") == "````toml\na = '```'\n<b>\n````"


def test_settings_are_one_row_each_without_the_text_of_problem_files() -> None:
    files = [{"name": "a", "file": {"path": "a.toml", "text": "kind = 1"}}, {"name": "b"}]
    told = {"seed": 0, "sizes": [1, 2], "studied": files, "problem_file": {"text": "kind = 2"}}
    assert settings_table("provenance", "Where from.", told).frame.to_numpy().tolist() == [
        ["seed", 0],
        ["sizes", "1, 2"],
        ["studied.1.name", "a"],
        ["studied.1.file.path", "a.toml"],
        ["studied.2.name", "b"],
    ]
