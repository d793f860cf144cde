"""The reports in the repository are those of its problem files and scripts, and small enough."""

import re

import pytest

from convexmarket.cli.report import report_names
from convexmarket.report import read_report
from convexmarket.studies.files import load_file
from problems.papers.__main__ import NAMES
from tests import ROOT, one_in

REPORTS = ROOT / "reports"
FILES = report_names(ROOT / "problems")
PAPERS = {name.replace("_", "-") for name in NAMES}


def test_every_experiment_has_a_report_and_every_report_an_experiment():
    assert {path.parent.name for path in REPORTS.glob("*/index.html")} == set(FILES) | PAPERS


@pytest.mark.parametrize("name", FILES)
def test_the_report_of_a_study_is_of_this_very_file(name):
    stored = read_report(REPORTS / name).settings["problem file"]
    assert stored["text"] == load_file(FILES[name]).source.text
    assert not stored["overrides"]


@pytest.mark.parametrize("name", one_in(4, FILES))
def test_the_pages_follow_from_the_stored_results(name):
    report = read_report(REPORTS / name)
    assert report.to_markdown() == (REPORTS / name / "report.md").read_text()
    assert report.to_html() == (REPORTS / name / "index.html").read_text()


@pytest.mark.parametrize("name", [*FILES, *sorted(PAPERS)])
def test_a_page_is_short(name):
    page = (REPORTS / name / "index.html").read_text()
    assert page.count("<img") <= 3
    assert page.count("<table>") <= 2
    texts = re.findall(r"<(p|li)[^>]*>(.*?)</\1>", page, re.DOTALL)
    assert sum(len(text.split()) for _, text in texts) <= 410  # with the links to the data


@pytest.mark.parametrize("name", [*FILES, *sorted(PAPERS)])
def test_a_report_holds_its_page_and_nothing_that_can_be_written_again(name):
    folder = REPORTS / name
    for file in ("index.html", "report.md", "results.json"):
        assert (folder / file).stat().st_size > 0
    kinds = {path.suffix for path in folder.rglob("*.*")}
    assert kinds <= {".html", ".md", ".json", ".png", ".parquet", ".jsonl"}
    assert list(folder.glob("figures/*.png"))


def test_the_index_gives_the_finding_of_each():
    for page, target in (("index.html", "index.html"), ("README.md", "report.md")):
        text = (REPORTS / page).read_text()
        assert all(f"{name}/{target}" in text for name in FILES)
    assert "cannot be read" not in text
    assert all(read_report(REPORTS / name).finding for name in list(FILES)[::8])


def test_together_they_stay_small():
    sizes = [path.stat().st_size for path in REPORTS.rglob("*") if path.is_file()]
    assert sum(sizes) <= 8e6
