"""Pages of hostile names with all rows of the shipped tables."""

from pathlib import Path

import pytest

from convexmarket.lab.report import render
from tests.hardening.test_hostile_pages import SHIPPED, check_pages, hostile_results


@pytest.mark.parametrize("kind", SHIPPED)
def test_pages_of_hostile_names_in_all_rows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "save_figure", lambda *_: "<svg></svg>")
    check_pages(hostile_results(kind, tmp_path, most_rows=10**9), tmp_path)
