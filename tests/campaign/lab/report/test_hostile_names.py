"""Every figure of a report whose names are hostile."""

from __future__ import annotations

from pathlib import Path

from convexmarket.lab import build_report
from convexmarket.lab.kinds.variants.run import run_variants
from convexmarket.lab.problem.loading import parse_problem
from tests.lab.report import test_hostile_names as hostile


def test_all_figures_of_hostile_names_are_drawn(tmp_path: Path) -> None:
    report = build_report(run_variants(parse_problem(hostile.PROBLEM)))
    assert len(report.figures) > len(hostile.DRAWN)
    folder = tmp_path / "report"
    warned = hostile.warnings_of(report, folder)
    hostile.test_names_stand_in_the_figures_as_they_are(folder)
    hostile.test_no_file_holds_control_characters(folder)
    hostile.test_letters_without_a_glyph_give_one_note(folder, warned)
