"""Names from a stranger's file on the pages of every kind of report, in the index and in diffs.

The shipped results are given hostile names, wherever a problem file or a seller may choose one, and
written again. Figures are left out here: tests/lab/report/test_hostile_names.py draws such names.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from convexmarket.cli.consoles import PlainConsole
from convexmarket.lab import build_report, write_report
from convexmarket.lab.report import render
from convexmarket.lab.report.diff import diff_results
from convexmarket.lab.report.diff_report import diff_summary
from convexmarket.lab.report.index import write_index
from convexmarket.lab.report.results import read_results
from convexmarket.lab.report.terminal import summary
from tests import ROOT, one_in
from tests.lab.report.builders import ALL, STORED

REPORTS = ROOT / "reports"
SHIPPED = {
    "tradeoff": "quickstart",
    "tradeoff-ridge": "medical-market",
    "online-market": "online-clinic",
    "variants": "variants-groups",
}
HOSTILE = "=<q-x y='\">[b]\x1b\u202e"
#: What a problem file says freely.
FREE = {"title", "description", "notes", "name", "label", "says", "remark", "money"}
#: What tells one kind of table from another, though it may be called like a name.
TAGS = {"kind", "method"}
#: What tells one kind of learner from another.
TOLD = {"PersonalizedRidge", "PrivateLogisticRegression"}
ID = re.compile(r"p\d{3}|row-\d+")


def named(problem: Any, inside: bool = False) -> set[str]:
    """Return the texts that a problem file may choose."""
    if isinstance(problem, str):
        return {problem} if inside and problem else set()
    if isinstance(problem, list):
        return set().union(*(named(item, inside) for item in problem))
    if isinstance(problem, dict):
        return set().union(*(named(item, key in FREE) for key, item in problem.items()))
    return set()


def renamed(value: Any, names: set[str]) -> Any:
    """Return results with a hostile text before each of these names, and before ids."""
    if isinstance(value, str) and (
        value in names or value.split(",")[0] in names or ID.fullmatch(value)
    ):
        return f"{HOSTILE}{value}"
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {
            f"{HOSTILE}{key}" if key in names else key: (
                item if key in TAGS else renamed(item, names)
            )
            for key, item in value.items()
        }
    return value


def rewritten(table: Path, names: set[str], most: int) -> str:
    """Rename in a table of its own, too, of which so many rows do; return its new checksum."""
    frame = pd.read_parquet(table)
    frame = frame[:: -(-len(frame) // most) or 1]
    words = {name: frame[name].map(lambda cell: renamed(cell, names)) for name in frame}
    words = {name: cells.astype(frame[name].dtype) for name, cells in words.items()}
    frame.assign(**words).to_parquet(table, index=False)
    return hashlib.sha256(table.read_bytes()).hexdigest()


def hostile_results(kind: str, folder: Path, most_rows: int = 300) -> Any:
    if (REPORTS / SHIPPED[kind] / "tables").exists():
        shutil.copytree(REPORTS / SHIPPED[kind] / "tables", folder / "tables")
    found = json.loads((REPORTS / SHIPPED[kind] / "results.json").read_text("utf-8"))
    problem = {key: item for key, item in found["problem"].items() if key != "source"}
    names = named(problem) - TOLD
    for part in found["tables"].values():
        if isinstance(part, dict) and "parquet" in part:
            part["sha256"] = rewritten(folder / part["parquet"], names, most_rows)
    (folder / "results.json").write_text(json.dumps(renamed(found, names)), "utf-8")
    return read_results(folder)


class Page(HTMLParser):
    """The tags and attributes of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def check_files(folder: Path) -> None:
    page = (folder / "index.html").read_text("utf-8")
    parsed = Page(page)
    assert "&lt;q-x" in page
    assert "q-x" not in parsed.tags
    assert parsed.tags.count("script") == 1
    assert not [name for name in parsed.attributes if name.startswith("on") or name == "y"]
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".md", ".tex"):
            text = path.read_text("utf-8")
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text), path
            assert "<q-x" not in text, path
        if path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                cells = [cell for row in csv.reader(file) for cell in row]
            assert not [cell for cell in cells if cell.startswith(("=", "@", "\t"))], path


def shown(words: Any) -> str:
    console = PlainConsole(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(*words, sep="\n")
    return capture.get()


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "save_figure", lambda *_: "<svg></svg>")


def test_every_kind_is_here() -> None:
    assert set(SHIPPED) == set(STORED)


@pytest.mark.parametrize("kind", one_in(4, SHIPPED))
def test_pages_of_hostile_names(kind: str, tmp_path: Path, without_figures: None) -> None:
    check_pages(hostile_results(kind, tmp_path), tmp_path)


def check_pages(found: Any, folder: Path) -> None:
    write_report(found, folder / "report", ALL)
    check_files(folder / "report")
    told = shown(summary(build_report(found)))
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert "=<q-x y='\">[b]\ufffd\ufffd" in told


def test_hostile_names_are_read_back_as_they_were(tmp_path: Path, without_figures: None) -> None:
    found = hostile_results("variants", tmp_path)
    write_report(found, tmp_path / "report", ALL)
    again = read_results(tmp_path / "report")
    assert again.problem.title.startswith(HOSTILE)
    pd.testing.assert_frame_equal(again.tables["points"], found.tables["points"])


def test_a_diff_and_an_index_of_hostile_names(tmp_path: Path, without_figures: None) -> None:
    for name, kind in (("a", "variants"), ("b", "variants")):
        (tmp_path / name).mkdir()
        found = hostile_results(kind, tmp_path / name)
        write_report(found, tmp_path / "reports" / name)
    results = tmp_path / "reports" / "b" / "results.json"
    text = results.read_text("utf-8").replace("\u202eequal", "\u202eother")
    results.write_text(text, "utf-8")
    found = diff_results(tmp_path / "reports" / "a", tmp_path / "reports" / "b")
    write_report(found, tmp_path / "diff", ALL)
    check_files(tmp_path / "diff")
    told = shown(diff_summary(found))
    assert "\x1b" not in told
    write_index(tmp_path / "reports")
    page = (tmp_path / "reports" / "index.html").read_text("utf-8")
    assert "q-x" not in Page(page).tags
    assert "&lt;q-x" in page
    assert "<q-x" not in (tmp_path / "reports" / "README.md").read_text("utf-8")


def test_a_plain_console_shows_what_another_would_obey() -> None:
    assert shown(["a\x1b[31mb\u202ec\n", "[bold]d[/bold]"]) == "a\ufffd[31mb\ufffdc\n\nd\n"
    console = Console(width=200)
    with console.capture() as capture:
        console.print("a\x1b[31mb")
    assert "\x1b" in capture.get()  # or the test above could not fail
