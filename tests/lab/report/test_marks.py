"""The marks of figures: what a frame holds is seen whole."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from convexmarket.lab.report.figures import report_style
from convexmarket.lab.report.marks import Curve, Dots


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


def test_rows_of_dots_grow_with_their_series() -> None:
    frame = pd.DataFrame({"x": 1.0, "row": np.repeat(["a", "b"], 6), "hue": list("uvwxyz") * 2})
    few = Dots(frame[frame.hue < "v"], x="x", y="row", hue="hue")()
    many = Dots(frame, x="x", y="row", hue="hue")()
    assert many.get_figheight() > few.get_figheight() + 0.5
