"""Marks: the figures of reports, declared over a frame.

A mark says which columns are x, y and the ends of an interval, which tells series apart, and which
panels; how it looks is the same in all reports. A kind draws by itself only what no mark can say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from convexmarket.lab.report.figures import INK, WIDTH, series_label, series_style
from convexmarket.lab.report.words import format_number

__all__ = ["Curve", "Dots", "Scatter"]

#: Ratios of the largest value to the smallest up to which a logarithmic axis has even ticks, and
#: ticks at 1, 2 and 5; beyond, it has powers of ten.
_NARROW, _WIDE = 8.0, 200.0
_STEP = 1.045
#: Ticks on the logarithmic axes of all panels side by side, and the steps between even ticks.
_TICKS, _STEPS = 10, (1, 2, 2.5, 5, 10)
_GREY = (0, (8, 3))
#: Characters of all titles, or of all labels, side by side; and of a row of the legend.
_TITLES, _LABELS, _LEGEND = 70, 84, 92
#: Markers on a line of many points, at most.
_MARKERS = 14


@dataclass(frozen=True, eq=False)
class _Mark:
    """What all marks say.

    Attributes
    ----------
    frame : DataFrame
    x, y : str
        Columns.
    x_label, y_label : str
        With the unit.
    hue : str, optional
        The column whose values are series, in the order of their appearance.
    series : sequence of str
        All series that there are, where the frame lacks some and each is to look as elsewhere.
    panels : str, optional
        The column whose values are panels side by side.
    log : str
        The axes that are logarithmic, of "xy"; values that are not positive are left out there.
    free : str
        The axes, of "xy", that each panel has for itself.
    height : float
        In inches.
    levels : mapping of str to float
        Horizontal lines, by their label.
    """

    frame: pd.DataFrame
    x: str
    y: str
    x_label: str = ""
    y_label: str = ""
    hue: str | None = None
    series: Sequence[str] = ()
    panels: str | None = None
    log: str = ""
    free: str = ""
    height: float = 3.5
    levels: Mapping[str, float] = field(default_factory=dict)

    def __call__(self) -> Figure:
        """Draw it."""
        groups = _by(self.frame, self.panels)
        figure = Figure(figsize=(WIDTH, self.height))
        row = figure.subplots(
            1, len(groups), sharex="x" not in self.free, sharey="y" not in self.free, squeeze=False
        )[0]
        names = list(self.series) or [name for name, _ in _by(self.frame, self.hue)]
        for axes, (title, rows) in zip(row, groups, strict=True):
            for name, series in _by(rows, self.hue):
                position = names.index(name)
                self._draw(axes, series, series_label(name), position, len(names))
            for label, level in self.levels.items():
                axes.axhline(level, color=INK, lw=1.0, ls=":", label=label)
            axes.set_title(
                fill(title, max(8, _TITLES // len(groups))) if len(groups) > 1 else self.y_label
            )
            axes.set_xlabel(fill(self.x_label, max(8, _LABELS // len(groups))))
        if len(groups) > 1:
            row[0].set_ylabel(self.y_label)
        for axes, (_, rows) in zip(row, groups, strict=True):
            self._scales(axes, rows, len(groups))
        handles: dict[str, Any] = {}
        for axes in row:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        if len(handles) > 1:
            columns = min(4, len(handles), _LEGEND // (max(map(len, handles)) + 7))
            figure.legend(
                handles.values(),
                handles.keys(),
                loc="outside upper left",
                ncols=max(1, columns),
            )
        return figure

    def _draw(self, axes: Axes, rows: pd.DataFrame, label: str, position: int, n: int) -> None:
        raise NotImplementedError

    def _values(self, rows: pd.DataFrame, which: str) -> pd.Series:
        """Return what an axis has to show."""
        return rows[self.x if which == "x" else self.y]

    def _scales(self, axes: Axes, rows: pd.DataFrame, n_panels: int, which: str = "xy") -> None:
        for axis in which:
            values = self._values(rows if axis in self.free else self.frame, axis)
            scale = _logarithmic if axis in self.log else _linear
            scale(axes, axis, values, n_panels)


@dataclass(frozen=True, eq=False)
class Curve(_Mark):
    """Lines over x, with intervals where there are some.

    Attributes
    ----------
    low, high : str, optional
        Columns of the ends of an interval around y.
    thin : mapping of str to str
        Columns that are drawn as thin dashed lines, by their label: what y is compared with.
    hollow : str, optional
        A column that is positive where the marker is to be hollow.
    order : str, optional
        The column along which points are joined; by default x.
    """

    low: str | None = None
    high: str | None = None
    thin: Mapping[str, str] = field(default_factory=dict)
    hollow: str | None = None
    order: str | None = None

    def _draw(self, axes: Axes, rows: pd.DataFrame, label: str, position: int, n: int) -> None:
        rows = rows.sort_values(self.order or self.x, kind="stable")
        for thin, column in self.thin.items():
            seen = rows[rows[column].notna()]
            axes.plot(seen[self.x], seen[column], color=INK, lw=1.0, ls=_GREY, label=thin)
        known = rows[np.isfinite(rows[self.y].astype(float))]
        look = series_style(position)
        x, y, errors = known[self.x].astype(float), known[self.y], None
        if self.low is not None and self.high is not None:
            shift = position - (n - 1) / 2  # side by side, where they would hide each other
            x = x * _STEP**shift if "x" in self.log else x
            ends = y - known[self.low], known[self.high] - y
            errors = [np.fmax(end.astype(float).fillna(0.0), 0.0) for end in ends]
        every = -(-len(known) // _MARKERS) or 1
        axes.errorbar(
            x, y, yerr=errors, label=label, capsize=2.5, elinewidth=1.0, markevery=every, **look
        )
        if self.hollow is not None:
            some = (known[self.hollow] > 0).to_numpy()
            axes.plot(
                x[some], y[some], ls="none", marker=look["marker"], zorder=4,
                markerfacecolor="white", markeredgecolor=look["color"],
            )  # fmt: skip

    def _values(self, rows: pd.DataFrame, which: str) -> pd.Series:
        found = super()._values(rows, which)
        if which == "x":
            return found
        others = [rows[column] for column in self.thin.values()]
        return pd.concat([found, *others, pd.Series(list(self.levels.values()), dtype=float)])


@dataclass(frozen=True, eq=False)
class Scatter(_Mark):
    """Points; many of them are drawn as a picture.

    Attributes
    ----------
    labels : str, optional
        A column of words that stand beside the points.
    """

    labels: str | None = None

    def _draw(self, axes: Axes, rows: pd.DataFrame, label: str, position: int, n: int) -> None:
        look = series_style(position)
        axes.scatter(
            rows[self.x], rows[self.y], s=14, marker=look["marker"], facecolors="none",
            edgecolors=look["color"], linewidths=0.9, label=label, rasterized=len(rows) > 200,
        )  # fmt: skip
        if self.labels is not None:
            for x, y, words in zip(rows[self.x], rows[self.y], rows[self.labels], strict=True):
                axes.annotate(
                    str(words), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7
                )


def _by(frame: pd.DataFrame, column: str | None) -> list[tuple[str, pd.DataFrame]]:
    if column is None:
        return [("", frame)]
    return [(str(name), rows) for name, rows in frame.groupby(column, sort=False)]


def _logarithmic(axes: Axes, which: str, values: pd.Series, n_panels: int = 1) -> None:
    """Make an axis logarithmic, with ticks at round numbers however narrow the range."""
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    numbers = values.astype(float)
    known = numbers[np.isfinite(numbers) & (numbers > 0)]
    axes.set(**{f"{which}scale": "log"})
    ratio = float(known.max() / known.min()) if len(known) else 1.0
    if ratio == 1.0 and len(known):
        axes.set(**{f"{which}lim": (known.min() / 2, 2 * known.max())})
    if which == "y" and ratio < _NARROW:
        axis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    else:
        subs: tuple[int, ...] = (1, 2, 5) if ratio < _WIDE else (1,)
        if which == "x" and len(subs) * np.log10(ratio) > _TICKS / n_panels:
            subs = (1, 3) if 2 * np.log10(ratio) < _TICKS / n_panels else (1,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=_TICKS))
    axis.set_minor_locator(NullLocator())
    digits = 5 if ratio < _NARROW else 3
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, digits)))


def _linear(axes: Axes, which: str, values: pd.Series, n_panels: int = 1) -> None:
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    axis.set_major_locator(MaxNLocator(4 if which == "x" and n_panels > 2 else 6, steps=_STEPS))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, digits=5)))
    numbers = values.astype(float)
    if which == "y" and len(numbers) and np.nanmin([*numbers, np.inf]) >= 0:
        axes.set_ylim(bottom=0)


@dataclass(frozen=True, eq=False)
class Dots(_Mark):
    """Values x of categories y, which stand below each other in the order of their appearance.

    Attributes
    ----------
    low, high : str, optional
        Columns of the ends of an interval around x.
    """

    low: str | None = None
    high: str | None = None

    def _categories(self) -> list[str]:
        return [str(name) for name in dict.fromkeys(self.frame[self.y])]

    def _draw(self, axes: Axes, rows: pd.DataFrame, label: str, position: int, n: int) -> None:
        look = series_style(position) | {"linestyle": "none"}
        places = np.array([self._categories().index(str(name)) for name in rows[self.y]])
        x, errors = rows[self.x].astype(float), None
        if self.low is not None and self.high is not None:
            ends = x - rows[self.low], rows[self.high] - x
            errors = [np.fmax(end.astype(float).fillna(0.0), 0.0) for end in ends]
        shift = 0.7 * ((position + 0.5) / n - 0.5)  # below each other, where one would hide another
        axes.errorbar(x, places + shift, xerr=errors, label=label, capsize=2.5, **look)

    def _scales(self, axes: Axes, rows: pd.DataFrame, n_panels: int, which: str = "xy") -> None:
        super()._scales(axes, rows, n_panels, "x")
        names = self._categories()
        axes.set_yticks(range(len(names)), [fill(series_label(name), 24) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        if "x" not in self.log and rows[self.x].min() >= 0:
            axes.set_xlim(left=0)
