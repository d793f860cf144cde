"""Draw figures in the style of reports, with series that colour-blind readers can distinguish."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import style, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from convexmarket.errors import ParameterError
from convexmarket.report.table_formats import format_number

WIDTH = 6.0  # page width in inches; labels are legible on a phone
INK, MUTED, RULE = "#22272e", "#59636e", "#d5dae0"
_COLORS = ["0072b2", "d55e00", "00785a", "a03f7a", "9a6a00", "4b4b4b", "3a9bd9", "b3261e"]
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))
SERIES: tuple[dict[str, Any], ...] = tuple(
    {"color": f"#{color}", "marker": marker, "linestyle": dashes}
    for color, marker, dashes in zip(_COLORS, "os^DvPX<", 2 * _DASHES, strict=True)
)
# fmt: off
STYLE: dict[str, Any] = {
    "figure.figsize": (WIDTH, 3.4), "figure.constrained_layout.use": True, "savefig.dpi": 150,
    "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK, "text.parse_math": False,
    "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.labelcolor": INK, "axes.edgecolor": MUTED, "axes.formatter.useoffset": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": RULE, "grid.linewidth": 0.6,
    "xtick.color": MUTED, "xtick.labelcolor": INK, "xtick.labelsize": 8,
    "ytick.color": MUTED, "ytick.labelcolor": INK, "ytick.labelsize": 8,
    "lines.linewidth": 1.6, "lines.markersize": 5, "legend.fontsize": 8.5,
    "legend.frameon": False, "svg.fonttype": "none", "pdf.fonttype": 42,
}
# fmt: on
#: Largest ratio of the ends of a log axis with linear ticks, and number of markers on long lines.
_NARROW, _MARKERS = 8.0, 25


def report_style(name: str = "figure") -> AbstractContextManager[None]:
    """Return a context with the style of reports. ``name`` seeds the ids of an SVG file."""
    return style.context({**STYLE, "svg.hashsalt": name}, after_reset=True)


def lines(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str | None = None,
    panels: str | None = None,
    low: str | None = None,
    high: str | None = None,
    log: str = "",
    levels: Mapping[str, float] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    joined: bool = True,
) -> Figure:
    """Draw lines over x, with bands between ``low`` and ``high`` and horizontal ``levels``.

    The column ``hue`` names at most eight series, and the column ``panels`` names the panels, which
    share their axes. ``log`` names the logarithmic axes. If not ``joined``, only points are drawn.
    """
    groups, series, levels = _groups(frame, panels), _series(frame, hue), levels or {}
    with report_style():
        figure = Figure(figsize=(WIDTH, 3.4))
        row = figure.subplots(1, len(groups), sharex=True, sharey=True, squeeze=False)[0]
        heights = [frame[each] for each in (y, low, high) if each]
        heights.append(pd.Series(levels, dtype=float))
        for axes, (title, rows) in zip(row, groups, strict=True):
            for name, points in _groups(rows, hue):
                look = series[name] | {"linestyle": "none", "markerfacecolor": "none"}
                if joined:
                    points = points.sort_values(x, kind="stable")
                    look = series[name] | {"markevery": max(1, len(points) // _MARKERS)}
                axes.plot(points[x], points[y], label=_label(name), **look)
                if low is not None and high is not None:
                    edges = (points[end].fillna(points[y]) for end in (low, high))
                    axes.fill_between(points[x], *edges, color=look["color"], alpha=0.16, lw=0)
            for place, (label, level) in enumerate(levels.items()):
                dashes = (":", (0, (8, 3)))[place % 2]
                axes.axhline(level, color=INK, lw=1.0, ls=dashes, label=label)
            axes.set_title(title)
            axes.set_xlabel((xlabel or _label(x)) + " (log scale)" * ("x" in log))
        for axes in row:
            _scale(axes, "x", frame[x], log="x" in log, panels=len(row))
            _scale(axes, "y", pd.concat(heights), log="y" in log)
        row[0].set_ylabel((ylabel or _label(y)) + " (log scale)" * ("y" in log))
        _legend(figure)
    return figure


def bars(data: pd.DataFrame, x: str, y: str, *, hue: str | None = None, xlabel: str = "") -> Figure:
    """Draw a horizontal bar of length ``x`` for each category ``y`` and series ``hue``."""
    series, (codes, categories) = _series(data, hue), pd.factorize(data[y].astype(str))
    places, height = pd.Series(codes, data.index), 0.8 / len(series)
    with report_style():
        figure = Figure(figsize=(WIDTH, 0.9 + 0.22 * len(categories) * max(1.0, len(series) / 1.5)))
        axes = figure.subplots()
        for position, (name, rows) in enumerate(_groups(data, hue)):
            middle = places[rows.index] + (position + 0.5) * height - 0.4
            color = series[name]["color"]
            axes.barh(middle, rows[x], 0.9 * height, color=color, label=_label(name))
        axes.set_yticks(range(len(categories)), [_label(name) for name in categories])
        axes.set_ylim(len(categories) - 0.45, -0.55)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(xlabel or _label(x))
        _scale(axes, "x", data[x])
        _legend(figure)
    return figure


def _scale(axes: Axes, which: str, data: pd.Series, *, log: bool = False, panels: int = 1) -> None:
    """Scale an axis, and set ticks at round numbers. Side-by-side panels have fewer ticks."""
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    data = data.astype(float)
    data = data[np.isfinite(data) & ((data > 0) | (not log))]
    most, digits = max(3, 10 // panels) if which == "x" else 10, 5
    locator: ticker.Locator = ticker.MaxNLocator(min(6, most), steps=[1, 2, 2.5, 5, 10])
    if log:
        axes.set(**{f"{which}scale": "log"})
        axis.set_minor_locator(ticker.NullLocator())
        narrow = not len(data) or data.max() < _NARROW * data.min()
        digits = 5 if narrow else 3
        ticks = _log_ticks(data, most) if len(data) else []
        if len(ticks) >= 2 and not (which == "y" and narrow):
            locator = ticker.FixedLocator(ticks)
    elif which == "y" and len(data) and data.min() >= 0:
        axes.set_ylim(bottom=0, top=None if data.max() > 0 else 1.0)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_number(value, digits)))


def _log_ticks(values: pd.Series, most: int) -> list[float]:
    """Choose the densest ticks at round numbers, at most ``most`` and not too close together."""
    low, high = float(values.min()), float(values.max())
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in (range(1, 10), (1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in ticks if 0.95 * low <= tick <= 1.05 * high]
        apart = np.diff(np.log(ticks)).min(initial=np.inf)
        if len(ticks) <= most and apart >= 0.8 * math.log(high / low) / most:
            return ticks
    return ticks[:: -(-len(ticks) // most)]


def drawn(plot: Callable[[], Any]) -> Figure:
    """Call a ``plot()`` method in the style of reports, with new current Axes, and close both."""
    from matplotlib import pyplot as plt

    with report_style():
        current, axes = plt.figure(), np.asarray(plot(), dtype=object).ravel()[0]
    figure = getattr(axes, "figure", axes)
    plt.close(current)
    plt.close(figure)
    return figure


def saved(figure: Figure, kind: str, name: str) -> bytes:
    """Return the content of a PNG, SVG or PDF file, which is equal for equal figures.

    Default logarithmic ticks are labelled as in reports, and covered lines are made visible.
    """
    omitted = {"png": ["Software"], "svg": ["Date", "Creator"]}
    metadata = dict.fromkeys(omitted.get(kind, ["CreationDate", "Creator", "Producer"]))
    content, smaller = BytesIO(), BytesIO()
    with report_style(name):
        for axes in figure.axes:
            place = axes.get_subplotspec()
            panels = place.get_geometry()[1] if place else 1
            for which, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
                if isinstance(axis.get_major_locator(), ticker.LogLocator):
                    ends = pd.Series(axis.get_view_interval())
                    _scale(axes, which, ends, log=True, panels=panels)
                elif isinstance(axis.get_major_formatter(), ticker.LogFormatter):
                    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: format_number(x)))
            _show_covered(axes, 72.0 / figure.dpi)
        quick: Any = {"pil_kwargs": {"compress_level": 0}} if kind == "png" else {}
        figure.savefig(content, format=kind, metadata=metadata, **quick)
    if kind != "png":
        return content.getvalue()
    from PIL import Image

    with Image.open(content) as image:
        how: Any = {"method": Image.Quantize.MAXCOVERAGE, "kmeans": 1, "dither": Image.Dither.NONE}
        image.convert("RGB").quantize(48, **how).save(smaller, format="png", optimize=True)
    return smaller.getvalue()


def _show_covered(axes: Axes, points_per_pixel: float) -> None:
    """Draw each line that later lines hide as a wide and transparent line."""
    axes.get_xlim(), axes.get_ylim()  # autoscale the axes
    size = points_per_pixel * np.array(axes.get_window_extent().size)
    paths: list[tuple[Any, NDArray[np.float64]]] = []
    for line in axes.get_lines():
        if line.get_transform() == axes.transData and line.get_linestyle() != "None":
            corners = np.asarray(line.get_xydata(), float)
            path = size * (axes.transScale + axes.transLimits).transform(corners)
            paths.append((line, path[np.isfinite(path).all(axis=1)]))
    for place, (line, path) in enumerate(paths):
        if above := sum(_covers(cover, path) for _, cover in paths[place + 1 :]):
            wider = line.get_linewidth() + 3.0 * above
            line.set(linewidth=wider, markersize=line.get_markersize() + 3.0 * above, alpha=0.45)


def _covers(above: NDArray[np.float64], path: NDArray[np.float64]) -> bool:
    if min(len(above), len(path)) < 2 or (np.diff(above[:, 0]) < 0).any():
        return False
    points = np.concatenate([path, (path[1:] + path[:-1]) / 2])
    height = np.interp(points[:, 0], above[:, 0], above[:, 1], left=np.inf, right=np.inf)
    return bool(np.abs(points[:, 1] - height).max() <= 1.0)


def _label(name: object) -> str:
    """Replace underscores in a name by blanks. Legends omit names that begin with underscores."""
    text = str(name).replace("_", " ")
    return text if len(text) <= 60 else f"{text[:59]}…"


def _groups(frame: pd.DataFrame, column: str | None) -> list[tuple[str, pd.DataFrame]]:
    if column is None:
        return [("", frame)]
    return [(str(name), rows) for name, rows in frame.groupby(column, sort=False)]


def _series(frame: pd.DataFrame, hue: str | None) -> dict[str, dict[str, Any]]:
    names = [name for name, _ in _groups(frame, hue)]
    if len(names) > len(SERIES):
        raise ParameterError(f"a figure has at most {len(SERIES)} series; split it into panels")
    return dict(zip(names, SERIES, strict=False))


def _legend(figure: Figure) -> None:
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if len(handles) > 1:
        columns = max(1, min(4, len(handles), 84 // (max(map(len, handles)) + 7)))
        figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=columns)
