"""The marks of figures: what a frame holds is seen whole."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from convexmarket.lab.report.figures import report_style
from convexmarket.lab.report.marks import Curve, Dots, Tiles, show_covered
from convexmarket.lab.report.saving import PAGE_COLOURS
from tests.lab.report.builders import laid_out


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
@pytest.mark.parametrize("free", ["", "x", "y"])
def test_no_panel_cuts_off_what_another_one_lacks(log: str, free: str) -> None:
    """Panels share an axis whatever their order: the tallest may come last."""
    x = np.array([1.0, 2.0, 5.0])
    frame = pd.concat(
        pd.DataFrame({"x": x, "y": size * x, "panel": f"panel {size}"}) for size in (1, 7, 90)
    )
    with report_style("x"):
        figure = Curve(frame, x="x", y="y", panels="panel", log=log, free=free)()
    for axes, (_, rows) in zip(figure.axes, frame.groupby("panel", sort=False), strict=True):
        low, high = axes.get_ylim()
        assert low <= rows.y.min()
        assert rows.y.max() <= high


@given(
    shape=st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=9),
    offsets=st.lists(st.sampled_from([0.0, 1e-4, 0.2, -0.3]), min_size=1, max_size=4),
    log=st.sampled_from(["", "y", "xy"]),
    half=st.booleans(),
)
def test_a_line_shows_under_those_that_lie_on_it(shape, offsets, log, half) -> None:
    x = np.arange(1.0, len(shape) + 1.0)
    lines = [
        pd.DataFrame({"x": x, "y": np.exp(np.array(shape) + offset), "hue": f"line {number}"})
        for number, offset in enumerate(offsets)
    ]
    if half:  # the last one covers a part of the others alone
        lines[-1] = lines[-1][:2]
    with report_style("x"):
        figure = Curve(pd.concat(lines), x="x", y="y", hue="hue", log=log)()
        show_covered(figure)
    drawn = figure.axes[0].get_lines()
    for place, line in enumerate(drawn):
        later = offsets[place + 1 : len(offsets) - half]
        above = sum(abs(offset - offsets[place]) < 0.01 for offset in later)
        assert line.get_linewidth() == pytest.approx(1.6 + 3.0 * above)
        assert line.get_markersize() == pytest.approx(5.0 + 3.0 * above)
        assert (line.get_alpha() or 1.0) < 1.0 or not above


def test_a_line_shows_where_only_its_own_colour_covers_it() -> None:
    figure = Figure()
    axes = figure.subplots()
    for colour in ("black", "black", "red"):
        axes.plot([0, 1, 2], [0, 1, 0], color=colour, lw=1.0)
    axes.axhline(0.0, lw=1.0)
    show_covered(figure)
    assert [line.get_linewidth() for line in axes.get_lines()] == [4.0, 4.0, 1.0, 1.0]


@given(low=st.floats(1e-6, 1e6), ratio=st.floats(1.01, 1e12), log=st.sampled_from(["y", "xy"]))
@example(0.1, 10.76, "y")
def test_labels_of_logarithmic_axes_have_room(low, ratio, log) -> None:
    y = low * np.geomspace(1.0, ratio, 5)
    figure = laid_out(Curve(pd.DataFrame({"x": y, "y": y}), x="x", y="y", log=log), "x")
    (axes,) = figure.axes
    bottom, top = axes.get_ylim()
    labels = [
        tick.label1.get_window_extent()
        for tick in axes.yaxis.get_major_ticks()
        if bottom <= tick.get_loc() <= top
    ]
    labels.sort(key=lambda box: box.y0)
    assert len(labels) > 1
    for below, above in itertools.pairwise(labels):
        assert below.y1 <= above.y0 + 1.0


def test_rows_of_dots_grow_with_their_series() -> None:
    frame = pd.DataFrame({"x": 1.0, "row": np.repeat(["a", "b"], 6), "hue": list("uvwxyz") * 2})
    few = Dots(frame[frame.hue < "v"], x="x", y="row", hue="hue")()
    many = Dots(frame, x="x", y="row", hue="hue")()
    assert many.get_figheight() > few.get_figheight() + 0.5


def test_tiles_show_every_cell_where_it_belongs() -> None:
    frame = pd.DataFrame(
        [
            ("one", "f", "A", 10, "good", "1.0"),
            ("one", "f", "B", 10, "bad", "x"),
            ("one", "g", "A", 100, "good", "7"),
            ("two", "h", "B", 10, "bad", "y"),
        ],
        columns=["panel", "row", "group", "size", "kind", "words"],
    )
    tiles = Tiles(
        frame, x="size", y="row", hue="group", panels="panel", kind="kind",
        kinds=("good", "bad"), words="words",
    )  # fmt: skip
    first, second = tiles().axes[:2]
    colours = {to_hex(text.get_color()) for text in (*first.texts, *second.texts)}
    assert not colours & set(PAGE_COLOURS), "the tiles are light on a dark page too"
    assert [label.get_text() for label in second.get_xticklabels()] == ["10", "100", "10"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["f", "g"]
    assert {text.get_text(): text.get_position() for text in first.texts} == {
        "1.0": (0, 0), "x": (2, 0), "7": (1, 1)
    }  # fmt: skip
    shown = [np.ma.filled(axes.images[0].get_array(), -1).tolist() for axes in (first, second)]
    assert shown == [[[0, -1, 1], [-1, 0, -1]], [[-1, -1, 1]]]
