"""A report that is rendered again from its results has the same figures, drawn anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from convexmarket.lab import rewrite_report, write_report
from convexmarket.lab.report import render
from tests.lab.report.builders import ALL, STORED, save_svg_only, stored


@pytest.mark.parametrize("kind", STORED)
def test_figures_are_drawn_again_byte_for_byte(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(render, "save_figure", save_svg_only)
    first = write_report(stored(kind), tmp_path / "first", ALL).parent
    again = rewrite_report(first, tmp_path / "again", ALL).parent
    files = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    assert any(path.suffix == ".svg" for path in files)
    for path in files:
        assert (first / path).read_bytes() == (again / path).read_bytes(), path
