"""The figures of releases of predictions side by side: a panel for each of the papers' models."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from convexmarket.lab.report.figures import (
    INK,
    MUTED,
    RULE,
    WIDTH,
    series_label,
    series_style,
)
from convexmarket.lab.report.words import format_number

__all__ = [
    "Curve",
    "Panel",
    "accuracy_over_epsilon",
    "accuracy_over_size",
    "error_over_size",
    "sizes_needed",
    "updates_over_questions",
]

#: A curve: what it is called, and its rows.
Curve = tuple[str, pd.DataFrame]
#: A heading, and the curves below it.
Panel = tuple[str, Sequence[Curve]]

_LINE = 40  # characters of a name that stand beside each other above a panel
_NAME = 34  # and beside the chart of sizes
_STEP = 1.03  # by which curves are moved apart
_NARROW, _WIDE = 8, 200  # ratios of values with many ticks in a decade, and with few
_TICKS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))
_ROOM = 0.0265  # of the width of a panel, for a character of a tick's label
_SIZES = "n, private rows (log scale)"
_FAR = 5  # times the updates used: so many allowed are above the panel
_TITLES = 0.84  # of the width of a figure's columns, for titles
_DASHES = (0, (8, 3))


def accuracy_over_epsilon(panels: Sequence[Panel], without: float, majority: float) -> Figure:
    """Draw the accuracy over epsilon, at one size.

    Parameters
    ----------
    panels : sequence of (str, curves)
        Curves with columns epsilon, accuracy, accuracy_low and accuracy_high.
    without : float
        Accuracy of the model without noise.
    majority : float
        Of whoever always says the commoner label.
    """
    figure, grid = _grid(panels, 2.45)
    for axes, (_, curves) in zip(grid, panels, strict=True):
        _accuracies(axes, curves, "epsilon")
        axes.axhline(without, color=INK, lw=1.0, ls=_DASHES)
        axes.axhline(majority, color=INK, lw=1.0, ls=":")
        _run_axis(axes, curves, "epsilon", "ε of the whole release (log scale)")
    return _with_references(figure, grid, panels)


def accuracy_over_size(panels: Sequence[Panel], without: pd.DataFrame, majority: float) -> Figure:
    """Draw the accuracy over the number of private rows, at one epsilon.

    Parameters
    ----------
    panels : sequence of (str, curves)
        Curves with columns size, accuracy, accuracy_low and accuracy_high.
    without : DataFrame
        Columns size and accuracy, of the model without noise.
    majority : float
        As for :func:`accuracy_over_epsilon`.
    """
    figure, grid = _grid(panels, 2.45)
    for axes, (_, curves) in zip(grid, panels, strict=True):
        _accuracies(axes, curves, "size")
        axes.plot(without["size"], without.accuracy, color=INK, lw=1.0, ls=_DASHES)
        axes.axhline(majority, color=INK, lw=1.0, ls=":")
        _run_axis(axes, curves, "size", _SIZES)
    return _with_references(figure, grid, panels)


def error_over_size(panels: Sequence[Panel], useful: float) -> Figure:
    """Draw what is measured (solid) and what theory bounds (dotted) over n, on log scales.

    Parameters
    ----------
    panels : sequence of (str, curves)
        Curves with columns size, measured and bound.
    useful : float
        The largest error that is of use in theory.
    """
    figure, grid = _grid(panels, 2.75, sharey=False)
    for axes, (_, curves) in zip(grid, panels, strict=True):
        for position, (name, rows) in enumerate(curves):
            look = series_style(position)
            # Markers tell measured lines apart, as dashes would look like bounds; they get smaller,
            # so that where lines lie on each other all are seen.
            solid = look | {"linestyle": "-", "markersize": 8.5 - position}
            axes.plot(rows["size"], rows.measured, label=_label(name), **solid)
            axes.plot(rows["size"], rows.bound, color=look["color"], lw=1.4, ls=":")
        axes.axhline(useful, color=INK, lw=1.0, ls=_DASHES)
        shown = pd.concat([rows[["measured", "bound"]].stack() for _, rows in curves])
        _log_y(axes, [*shown, useful])
        _run_axis(axes, curves, "size", _SIZES)
    references: dict[str, dict[str, Any]] = {
        "measured": {"color": MUTED, "marker": "o"},
        "theory's bound": {"color": MUTED, "ls": ":", "lw": 1.4},
        f"of use in theory: {format_number(useful)}": {"color": INK, "ls": _DASHES, "lw": 1.0},
    }
    return _finished(figure, grid, panels, "error of a prediction (log scale)", references)


def updates_over_questions(panels: Sequence[Panel], most: Sequence[int]) -> Figure:
    """Draw how many updates were used after so many questions.

    Parameters
    ----------
    panels : sequence of (str, curves)
        A release each, and the same curves in all, with columns queries, updates, low and high; a
        curve without rows is not drawn.
    most : sequence of int
        How many updates each release may make.
    """
    columns = min(3, len(panels))
    rows_of_panels = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.3 * rows_of_panels))
    grid = list(figure.subplots(rows_of_panels, columns, squeeze=False).flat)
    for axes in grid[len(panels) :]:
        axes.remove()
    for axes, (heading, curves), limit in zip(grid, panels, most, strict=False):
        for position, (name, rows) in enumerate(curves):
            look = series_style(position) | {"markersize": 4}
            every = max(1, len(rows) // 6)
            axes.plot(rows.queries, rows.updates, label=name, markevery=every, **look)
            axes.fill_between(
                rows.queries, rows.low, rows.high, color=look["color"], alpha=0.16, lw=0
            )
        used = max([1.0, *(value for _, rows in curves for value in rows.high)])
        axes.axhline(limit, color=INK, lw=1.0, ls=_DASHES, label="updates allowed")
        top = 1.08 * limit if limit < _FAR * used else 1.3 * used
        axes.set_ylim(-0.03 * top, top)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_title(f"{_heading(heading, _TITLES * WIDTH / columns)}\n{limit:,} allowed")
        axes.set_xlabel("questions asked")
    for axes in grid[: len(panels) : columns]:
        axes.set_ylabel("updates used")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure


def sizes_needed(panels: Sequence[tuple[str, pd.DataFrame]], studied: tuple[int, int]) -> Figure:
    """Draw from which n on every release is of use: by theory hollow, as measured filled.

    Parameters
    ----------
    panels : sequence of (str, DataFrame)
        For an epsilon each, columns release, n_bound and n_measured.
    studied : (int, int)
        The smallest and the largest size of the study.
    """
    names = [fill(str(name), _NAME) for name in panels[0][1].release]
    lines = sum(name.count("\n") + 1 for name in names)
    figure = Figure(figsize=(WIDTH, 1.2 + 0.14 * lines + 0.16 * len(names)))
    row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    places = np.arange(len(names))
    kinds = (("n_bound", "by theory's bound", "white", 1), ("n_measured", "as measured", None, 0))
    for axes, (heading, rows) in zip(row, panels, strict=True):
        axes.axvspan(*studied, color=RULE, alpha=0.5, lw=0, zorder=0, label="sizes of the study")
        for column, label, inside, look in kinds:
            style = series_style(look)
            axes.plot(
                rows[column],
                places,
                ls="none",
                label=label,
                marker=style["marker"],
                color=style["color"],
                markerfacecolor=inside or style["color"],
                clip_on=False,
                zorder=3,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
        axes.set_title(heading)
    row[0].set_yticks(places, [series_label(name) for name in names])
    row[0].set_ylim(len(names) - 0.5, -0.5)
    row[len(row) // 2].set_xlabel("n, private rows (log scale)")
    handles = row[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=3)
    return figure


# ---------------------------------------------------------------------------------------- pieces


def _grid(panels: Sequence[Panel], height: float, sharey: bool = True) -> tuple[Figure, list[Axes]]:
    """Return a figure with two panels in a row, or one."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    lines = max(_label(name).count("\n") + 1 for _, curves in panels for name, _ in curves)
    tallest = max(len(curves) for _, curves in panels)
    figure = Figure(figsize=(WIDTH, 0.4 + rows * (height + 0.16 * tallest * lines)))
    grid = list(figure.subplots(rows, columns, sharey=sharey, squeeze=False).flat)
    for axes in grid[len(panels) :]:
        axes.remove()
    return figure, grid[: len(panels)]


def _heading(name: str, inches: float) -> str:
    """Break a name into lines that are no wider, as titles are drawn."""
    font = FontProperties(weight=rcParams["axes.titleweight"])

    def fits(line: str) -> bool:
        drawn = TextPath((0, 0), line, size=rcParams["axes.titlesize"], prop=font)
        return bool(drawn.get_extents().width <= 72.0 * inches)

    broken = (fill(name, characters) for characters in range(len(name), 1, -1))
    return next((lines for lines in broken if all(map(fits, lines.split("\n")))), name)


def _label(name: str) -> str:
    return series_label(fill(name, _LINE))


def _accuracies(axes: Axes, curves: Sequence[Curve], along: str) -> None:
    """Draw accuracies with error bars, side by side where they would hide each other."""
    for position, (name, rows) in enumerate(curves):
        look: dict[str, Any] = series_style(position) | {"linewidth": 1.3, "markersize": 4.5}
        low = (rows.accuracy - rows.accuracy_low).fillna(0.0)
        high = (rows.accuracy_high - rows.accuracy).fillna(0.0)
        x = rows[along] * _STEP ** (position - (len(curves) - 1) / 2)
        axes.errorbar(
            x,
            rows.accuracy,
            yerr=[low, high],
            label=_label(name),
            capsize=2.0,
            elinewidth=0.9,
            **look,
        )
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))


def _run_axis(axes: Axes, curves: Sequence[Curve], along: str, label: str) -> None:
    """Make the horizontal axis logarithmic, with ticks at what was run as far as there is room."""
    values = sorted({float(value) for _, rows in curves for value in rows[along]}, reverse=True)
    axes.set_xscale("log")
    axes.set_xlabel(label)
    if len(values) == 1:
        axes.set_xlim(values[0] / 2.0, 2.0 * values[0])
    room = _ROOM * max(len(format_number(value)) for value in values)
    ticks: list[float] = []
    for value in values:
        if not ticks or np.log(ticks[-1] / value) > room * np.log(values[0] / values[-1]):
            ticks.append(value)
    axes.set_xticks(ticks, [format_number(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _log_y(axes: Axes, values: Sequence[float]) -> None:
    """Make the vertical axis logarithmic, with ticks at round numbers however narrow the range."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known) & (known > 0)]
    axes.set_yscale("log")
    width = known.max() / known.min()
    subs = _TICKS[0] if width < _NARROW else _TICKS[1] if width < _WIDE else _TICKS[2]
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=10))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))


def _with_references(figure: Figure, grid: Sequence[Axes], panels: Sequence[Panel]) -> Figure:
    low, high = grid[0].get_ylim()
    grid[0].set_ylim(max(0.0, low), min(1.02, high))
    references = {
        "without noise": {"color": INK, "ls": _DASHES, "lw": 1.0},
        "always the commoner label": {"color": INK, "ls": ":", "lw": 1.0},
    }
    return _finished(figure, grid, panels, "accuracy on test rows", references)


def _finished(
    figure: Figure,
    grid: Sequence[Axes],
    panels: Sequence[Panel],
    what: str,
    references: dict[str, dict[str, Any]],
) -> Figure:
    """Name the axes, put the names of curves above their panel, and what all share above all."""
    for place, (axes, (heading, _)) in enumerate(zip(grid, panels, strict=True)):
        if place % 2 == 0:
            axes.set_ylabel(what)
        handles, labels = axes.get_legend_handles_labels()
        legend = axes.legend(
            handles,
            labels,
            title=heading,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.2,
            alignment="left",
            fontsize=8,
        )
        legend.get_title().set_fontweight("bold")
    lines = [grid[0].plot([], [], **look)[0] for look in references.values()]
    figure.legend(lines, references, loc="outside upper left", ncols=3)
    return figure
