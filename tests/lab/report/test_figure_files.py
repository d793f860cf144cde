"""Figures as files, and two of a trade-off: small, the same every time, and nothing lost."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as MatplotlibFigure
from PIL import Image

from convexmarket.lab.report.figures import frontier, series_style, who_is_bought_from
from convexmarket.lab.report.saving import compact_svg, inline_svg, save_figure
from tests.lab.report.builders import ALL

TITLE = 'γ <b> & 0.123456 -- M 1 2 id="series-0"'


def draw() -> MatplotlibFigure:
    figure = MatplotlibFigure(figsize=(4, 2))
    axes = figure.subplots()
    for position in range(2):
        axes.plot([1, 2, 3], [position, 1, 1 / 3], marker="o")
        axes.fill_between([1, 2], [0, 0], [1, 1])
    axes.set_title(TITLE)
    return figure


@pytest.mark.campaign
def test_three_files_without_dates_and_with_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    svg = save_figure(draw, tmp_path / "lines", ALL)
    save_figure(draw, tmp_path / "again" / "lines", ALL)
    for suffix in ("svg", "png", "pdf"):
        content = (tmp_path / f"lines.{suffix}").read_bytes()
        assert content == (tmp_path / "again" / f"lines.{suffix}").read_bytes()
        assert b"atplotlib" not in re.sub(rb"<g id=\"matplotlib", b"", content)
    assert svg == (tmp_path / "lines.svg").read_text(encoding="utf-8")
    with Image.open(tmp_path / "lines.png") as picture:
        assert (picture.mode, picture.size, picture.info) == ("P", (480, 240), {})
    assert (tmp_path / "lines.pdf").read_bytes().startswith(b"%PDF")


def test_the_png_keeps_the_colours_of_its_lines(tmp_path: Path) -> None:
    def lines() -> MatplotlibFigure:
        figure = MatplotlibFigure(figsize=(4, 3))
        axes = figure.subplots()
        for position in range(8):
            axes.plot([0, 1], [position, position], **series_style(position))
        return figure

    save_figure(lines, tmp_path / "lines")
    with Image.open(tmp_path / "lines.png") as picture:
        shown = np.array(picture.convert("RGB"), dtype=int).reshape(-1, 3)
    for position in range(8):
        colour = series_style(position)["color"]
        wanted = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
        assert np.abs(shown - wanted).max(axis=1).min() <= 4


def test_the_svg_keeps_text_and_what_is_referred_to(tmp_path: Path) -> None:
    root = ElementTree.fromstring(save_figure(draw, tmp_path / "lines"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert TITLE in texts
    ids = {element.get("id") for element in root.iter()}
    referred = {
        reference
        for element in root.iter()
        for value in element.attrib.values()
        for reference in re.findall(r"^#(.+)|url\(#(.+?)\)", value)
    }
    assert referred
    assert {one or other for one, other in referred} <= ids


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ('<path d="M 1.239 2 \nL -0.001 -0.45 \nz\n" />', '<path d="M1.2 2L0 -0.45z" />'),
        ('<use x="-0.451" y="-10.007" />', '<use x="-0.45" y="-10" />'),
        ('<image transform="matrix(0.70711 0 0 -1.00001 0 0)"/>',) * 2,
        ('<text>a id="series-1" url(#b) 0.123</text>',) * 2,
        ('<g transform="scale(0.015625) translate(10.0049 0)"/>',
         '<g transform="scale(0.015625) translate(10 0)"/>'),
        ('<g id="text_1" style="fill: #fff; opacity: 0.25"/>',
         '<g style="fill:#fff;opacity:0.25"/>'),
        ("<!-- a comment --><text>0.123456  a: b</text>", "<text>0.123456  a: b</text>"),
        ("<g>\n  <g id='a'>\n<path/></g>\n</g>", "<g id='a'>\n<path/></g>"),
    ],
)  # fmt: skip
def test_what_is_shortened(long: str, short: str) -> None:
    svg = compact_svg(f'<?xml version="1.0"?><svg>{long}</svg>')
    assert "".join(svg.split("\n")) == "".join(f"<svg>{short}</svg>".split("\n"))


def test_an_inline_drawing_has_ids_of_its_own_and_its_text_unchanged(tmp_path: Path) -> None:
    inline = str(inline_svg(save_figure(draw, tmp_path / "lines"), 3))
    root = ElementTree.fromstring(inline)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert ids
    assert all(name and name.startswith("f3i") for name in ids)
    assert set(re.findall(r"url\(#([^)]+)\)", inline)) <= set(ids)
    assert TITLE in [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert root.get("width") is None


def test_the_frontier_by_hand() -> None:
    points = pd.DataFrame(
        {
            "model": ["a", "a", "b", "b"],
            "gamma": [0.1, 0.01, 0.1, 0.01],
            "error_mean": [0.1, 0.5, 0.3, np.nan],
            "payments": [1.0, 12345.0, 0.0, 1.0],
        }
    )
    (axes,) = frontier(points, "test error (share)", "payments (money)").axes
    assert axes.get_title() == "Test error (share)"
    assert axes.get_xlabel() == "payments (money)"
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {"a": [[12345.0, 0.5], [1.0, 0.1]], "b": [[0.0, 0.3]]}
    assert [text.get_text() for text in axes.texts] == ["γ = 0.01", "γ = 0.1"]


@pytest.mark.parametrize(
    ("epsilon", "scale", "drawn"),
    [
        ([4.0, 0.0, 1.0, 0.0], "linear", [[4.0, 0.0], [1.0, 0.0]]),
        ([40.0, 0.0, 1.0, 0.001], "log", [[40.0], [1.0, 0.001]]),  # who sells nothing is left out
        ([0.0, 0.0, 0.0, 0.0], "linear", [[0.0, 0.0], [0.0, 0.0]]),
    ],
)
def test_who_is_bought_from_by_hand(
    epsilon: list[float], scale: str, drawn: list[list[float]]
) -> None:
    sellers = pd.DataFrame(
        {
            "scenario": "own",
            "gamma": [0.1, 0.1, 1.0, 1.0],
            "sensitivity": [1.0, 2.0, 1.0, 2.0],
            "epsilon": epsilon,
        }
    )
    (axes,) = who_is_bought_from(sellers, "francs").axes
    assert axes.get_xlabel() == "sensitivity c (francs per unit of ε)"
    assert axes.get_yscale() == scale
    assert ("log scale" in axes.get_ylabel()) == (scale == "log")
    assert [list(one.get_offsets()[:, 1]) for one in axes.collections] == drawn
