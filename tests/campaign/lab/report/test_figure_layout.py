"""Titles and labels of figures lie within them and off each other: all shipped, and hard ones."""

from __future__ import annotations

import pytest

from convexmarket.lab import build_report
from convexmarket.lab.report.results import read_results
from tests import ROOT
from tests.lab.report.builders import check_long_name, crowded, drawn, made, misplaced

REPORTS = ROOT / "reports"
NAMES = sorted(path.parent.name for path in REPORTS.glob("*/results.json"))


@pytest.mark.parametrize("name", NAMES)
def test_titles_and_labels_of_shipped_figures_have_room(name: str) -> None:
    report = build_report(read_results(REPORTS / name))
    found = {figure.name: misplaced(drawn(report, figure.name)) for figure in report.figures}
    assert found
    assert not any(found.values()), found


@pytest.mark.parametrize(
    "overrides",
    [
        ("study.sizes=[100000]", "study.epsilons=[1.0]"),
        ("study.sizes=[30000, 50000, 70000, 100000, 200000, 300000, 400000]",),
    ],
)
def test_nothing_lies_on_anything_else_however_many_sizes(overrides: tuple[str, ...]) -> None:
    report = build_report(made(*overrides))
    found = {figure.name: crowded(drawn(report, figure.name)) for figure in report.figures}
    assert not any(found.values()), found


@pytest.mark.parametrize("name", ["accuracy-epsilon", "error-size", "sizes-needed", "updates"])
@pytest.mark.parametrize(
    "long",
    [
        "a name of sixty characters, as long as a label may ever be.",
        "WIDE LETTERS " * 4 + "MMMMMMMM",
        60 * "M",
    ],
)
def test_long_names_are_broken(name: str, long: str) -> None:
    check_long_name(long, name)
