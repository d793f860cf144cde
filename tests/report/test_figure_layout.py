"""Titles and labels of every shipped figure lie within it and off each other."""

import itertools

import pytest
from matplotlib.figure import Figure

from convexmarket.report import build_report, read_results
from convexmarket.report.figures import plain_ticks, report_style
from tests import ROOT

REPORTS = ROOT / "reports"
NAMES = sorted(path.parent.name for path in REPORTS.glob("*/results.json"))


def misplaced(figure: Figure) -> list[str]:
    """Return the titles and labels that are cut off, and the pairs that lie on each other."""
    figure.draw_without_rendering()
    texts = [
        text
        for axes in figure.axes
        for text in (axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label)
    ]
    boxes = [
        (text.get_text(), text.get_window_extent())
        for text in [*texts, *figure.texts]
        if text.get_text()
    ]
    width, height = figure.bbox.width + 1, figure.bbox.height + 1
    cut = [
        text for text, box in boxes if min(box.x0, box.y0) < -1 or box.x1 > width or box.y1 > height
    ]
    return cut + [
        f"{text} / {other}"
        for (text, a), (other, b) in itertools.combinations(boxes, 2)
        if max(a.x0, b.x0) + 1 < min(a.x1, b.x1) and max(a.y0, b.y0) + 1 < min(a.y1, b.y1)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_titles_and_labels_have_room(name: str) -> None:
    found = {}
    for figure in build_report(read_results(REPORTS / name)).figures:
        with report_style(figure.name):
            drawn = figure.draw()
            plain_ticks(drawn)
            found[figure.name] = misplaced(drawn)
    assert found
    assert not any(found.values()), found


def test_what_has_no_room_is_found() -> None:
    with report_style("crowded"):
        figure = Figure(figsize=(4, 2))
        for axes in figure.subplots(1, 2):
            axes.set_xlabel("a label that is much too long for half of it")
        assert misplaced(figure)
