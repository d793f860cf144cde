"""Titles and labels of figures lie within them and off each other: all shipped, and hard ones."""

from __future__ import annotations

import pytest

from convexmarket.lab import build_report
from convexmarket.lab.report.results import read_results
from tests import PROBLEMS, ROOT
from tests.lab.report.builders import drawn, misplaced

REPORTS = ROOT / "reports"
NAMES = sorted(path.stem for path in PROBLEMS.glob("*.toml") if (REPORTS / path.stem).exists())


@pytest.mark.parametrize("name", NAMES)
def test_titles_and_labels_of_shipped_figures_have_room(name: str) -> None:
    report = build_report(read_results(REPORTS / name))
    found = {figure.name: misplaced(drawn(report, figure.name)) for figure in report.figures}
    assert found
    assert not any(found.values()), found
