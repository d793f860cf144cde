"""The figures of a solver study: performance profiles, growth with size, and where time goes.

A solver has its colour and marker, a formulation its dashes, the same in every panel of a figure.
A panel shows the best formulation of each solver first, and no more lines than a reader can follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from convexmarket.lab.kinds.solver_study.words import contender_name, short_class
from convexmarket.lab.report.figures import INK, MUTED, WIDTH, mark_series, series_style
from convexmarket.lab.report.model import Series
from convexmarket.lab.report.words import format_number
from convexmarket.lab.study.metrics import PARTS
from convexmarket.lab.study.profiles import FLOOR

__all__ = [
    "Panel",
    "accuracy_profiles",
    "solver_series",
    "split_bars",
    "time_over_size",
    "time_profiles",
]

_COLUMNS = 2
_PANEL_HEIGHT = 2.35
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))
#: Neighbours in a bar differ in lightness as well as in hue.
_PART_COLOURS = ("#3a9bd9", "#f3d08f", "#0a4f80", "#b9bfc6")


@dataclass(frozen=True, eq=False)
class Panel:
    """One panel: a problem class under a setting, and what to draw of it.

    Attributes
    ----------
    problem_class : str
    contenders : list of (str, str)
        Solver and formulation of each line.
    rows : DataFrame
        The numbers, with columns solver and formulation.
    limit : float
        Seconds after which a run was stopped.
    tolerance : float
        What the setting asks of the answers.
    """

    problem_class: str
    contenders: list[tuple[str, str]]
    rows: pd.DataFrame
    limit: float = np.nan
    tolerance: float = np.nan

    def line(self, contender: tuple[str, str]) -> pd.DataFrame:
        """Return the rows of one contender."""
        solver, formulation = contender
        return self.rows[(self.rows.solver == solver) & (self.rows.formulation == formulation)]

    @property
    def formulations(self) -> list[str]:
        """The formulations of the solvers; the exact method has none."""
        return list(dict.fromkeys(name for solver, name in self.contenders if solver != name))

    def dashes(self, formulation: str) -> Any:
        """Return the line style of a formulation."""
        names = self.formulations
        return _DASHES[names.index(formulation) % len(_DASHES)] if formulation in names else "-"


def solver_series(solvers: Sequence[str]) -> tuple[Series, ...]:
    """Return what the legend of the page toggles: one series per solver."""
    return tuple(Series(name, series_style(i)["color"]) for i, name in enumerate(solvers))


def time_profiles(panels: Sequence[Panel], solvers: Sequence[str]) -> Figure:
    """Draw the share of instances solved within a factor of the fastest solver's time."""
    figure, grid = _panels(panels)
    for axes, panel in zip(grid, panels, strict=True):
        _steps(axes, panel, solvers, last=max(2.0, 1.3 * float(panel.rows.tau.max())))
        axes.set_xlim(left=1.0)
        axes.set_xlabel("time, × the fastest solver (log scale)")
    return _finished(figure, grid, panels, solvers, "instances solved")


def accuracy_profiles(panels: Sequence[Panel], solvers: Sequence[str]) -> Figure:
    """Draw the share of instances that are answered at least so accurately."""
    figure, grid = _panels(panels)
    for axes, panel in zip(grid, panels, strict=True):
        _steps(axes, panel, solvers, last=max(1e-2, 3.0 * float(panel.rows.tau.max())))
        axes.set_xlim(left=FLOOR)
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.axvline(panel.tolerance, color=INK, lw=0.9, ls=(0, (2, 2)), zorder=1)
        axes.set_xlabel("relative error (log scale)")
    return _finished(figure, grid, panels, solvers, "instances answered")


def time_over_size(panels: Sequence[Panel], solvers: Sequence[str]) -> Figure:
    """Draw the time of solved runs over the size; a cross at the limit where runs did not solve.

    The rows of a panel have columns size, seconds (geometric mean of the solved runs, or NaN) and
    missed (how many did not solve).
    """
    figure, grid = _panels(panels)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_yscale("log")
        for position, contender in enumerate(panel.contenders):
            line = panel.line(contender).sort_values("size")
            number = solvers.index(contender[0])
            look = series_style(number) | {"linestyle": panel.dashes(contender[1])}
            artists = axes.plot(line["size"], line.seconds, markersize=4, **look)
            missed = line[line.missed > 0]
            shift = 1.0 + 0.07 * (position - (len(panel.contenders) - 1) / 2)
            artists += axes.plot(
                missed["size"] * shift,
                np.full(len(missed), panel.limit),
                ls="none",
                marker="x",
                markersize=5,
                markeredgewidth=1.3,
                color=look["color"],
            )
            for artist in artists:
                mark_series(artist, number)
        axes.axhline(panel.limit, color=MUTED, lw=0.8, ls=(0, (2, 2)), zorder=1)
        axes.set_xscale("log")
        sizes = sorted(set(panel.rows["size"]))
        axes.set_xlim(sizes[0] / 1.6, sizes[-1] * 1.6)
        axes.set_xticks(sizes, [_compact(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(numticks=7))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
        axes.set_xlabel("size (log scale)")
    return _finished(figure, grid, panels, solvers, "seconds (log scale)")


def split_bars(panels: Sequence[Panel]) -> Figure:
    """Draw how the time of solved runs divides, one bar per contender and a panel per class.

    The rows of a panel have columns ``<part>_share`` and total_s.
    """
    counts = [len(panel.contenders) for panel in panels]
    figure = Figure(figsize=(WIDTH, 0.7 + sum(0.5 + 0.21 * number for number in counts)))
    column = figure.subplots(
        len(panels), 1, sharex=True, squeeze=False, height_ratios=[2 + n for n in counts]
    )[:, 0]
    for axes, panel in zip(column, panels, strict=True):
        lines = pd.concat([panel.line(contender) for contender in panel.contenders])
        places = np.arange(len(lines))[::-1]
        left = np.zeros(len(lines))
        for part, color in zip(PARTS, _PART_COLOURS, strict=True):
            width = lines[f"{part}_share"].fillna(0.0).to_numpy()
            axes.barh(
                places,
                width,
                left=left,
                height=0.72,
                color=color,
                edgecolor="white",
                linewidth=0.4,
                label=part,
            )
            left = left + width
        names = [contender_name(*contender) for contender in panel.contenders]
        axes.set_yticks(places, names)
        axes.set_title(panel.problem_class)
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.6, len(lines) - 0.4)
        axes.grid(visible=False)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    column[-1].set_xlabel("share of the time of a first solve, mean over solved runs")
    figure.legend(*column[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure


# ---------------------------------------------------------------------------------------- pieces


def _panels(panels: Sequence[Panel]) -> tuple[Figure, list[Axes]]:
    """Return a figure with one axes per panel; a last odd one leaves its neighbour's place free."""
    rows = -(-len(panels) // _COLUMNS)
    columns = min(_COLUMNS, len(panels))
    figure = Figure(figsize=(WIDTH, 0.55 + _PANEL_HEIGHT * rows))
    grid = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    return figure, grid[: len(panels)]


def _steps(axes: Axes, panel: Panel, solvers: Sequence[str], last: float) -> None:
    """Draw shares as functions of tau, each going on to the last tau."""
    axes.set_xscale("log")
    for contender in panel.contenders:
        line = panel.line(contender)
        number = solvers.index(contender[0])
        look = series_style(number) | {"linestyle": panel.dashes(contender[1])}
        del look["marker"]
        (artist,) = axes.step(
            [*line.tau, last], [*line.share, line.share.iloc[-1]], where="post", **look
        )
        mark_series(artist, number)
    axes.set_xlim(right=last)
    if last < 100.0:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    axes.set_ylim(-0.03, 1.05)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _finished(
    figure: Figure,
    grid: Sequence[Axes],
    panels: Sequence[Panel],
    solvers: Sequence[str],
    what: str,
) -> Figure:
    """Name the panels, and draw a legend of solvers above and of formulations in each panel."""
    for place, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
        axes.set_title(short_class(panel.problem_class))
        if place % _COLUMNS == 0:
            axes.set_ylabel(what)
        handles = [
            Line2D([], [], color=MUTED, linestyle=panel.dashes(name), label=name)
            for name in panel.formulations
        ]
        if handles:
            look: dict[str, Any] = {"frameon": True, "framealpha": 0.75, "edgecolor": "none"}
            axes.legend(
                handles=handles,
                fontsize=7,
                handlelength=2.6,
                labelspacing=0.25,
                borderpad=0.2,
                **look,
            )
    shown = {solver for panel in panels for solver, _ in panel.contenders}
    figure.legend(
        handles=[
            Line2D([], [], label=name, **{**series_style(i), "linestyle": "-"})
            for i, name in enumerate(solvers)
            if name in shown
        ],
        loc="outside upper left",
        ncols=6,
    )
    return figure


def _compact(size: float) -> str:
    """Write a size on an axis.

    Examples
    --------
    >>> _compact(300), _compact(20_000), _compact(1_500_000)
    ('300', '20k', '1.5M')
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if size >= 10 * unit or (size >= unit and size % (unit / 10) == 0):
            return f"{format_number(size / unit)}{letter}"
    return format_number(size)
