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
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
    SymmetricalLogLocator,
)
from numpy.typing import NDArray

from convexmarket.lab.report.figures import (
    INK,
    MANY_POINTS,
    WIDE,
    WIDTH,
    series_label,
    series_style,
)
from convexmarket.lab.report.words import format_number

__all__ = ["Curve", "Dots", "Profile", "Scatter", "Tiles", "even_ticks", "show_covered"]

#: Ratio of the largest value to the smallest up to which a logarithmic y has even ticks.
_NARROW = 8.0
_STEP, _SHIFT = 1.045, 0.008
#: Ticks on the axes of all panels side by side, at most, and the steps between even ticks.
_TICKS, _STEPS = 10, (1, 2, 2.5, 5, 10)
#: How near to each other two of them may be, in parts of the mean distance.
_APART = 0.8
_GREY = (0, (8, 3))
#: Points (of a page) up to which a line covers another; how wide and pale that one then is.
_COVERED, _WIDER, _PALE = 1.0, 3.0, 0.45
#: Points of a line that have a marker each, at most; and markers of a line of more.
_MARKERS, _FEW = 25, 6
#: Of the kinds of a tile, the best first.
_TILES = ("#7fb8da", "#d7e6f0", "#f0b48a", "#c9ced4")
#: Words on them, which are light in every scheme of colours.
_ON_TILES = "black"
#: Characters of all labels side by side, of a row of the legend, and of a name above a panel.
_LABELS, _LEGEND, _NAME = 84, 92, 40


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
    names : sequence of str
        The series in another order, or some that this frame does not have: their looks are kept.
    panels : str, optional
        The column whose values are panels side by side.
    log : str
        The axes that are logarithmic, of "xy"; values that are not positive are left out there.
    wide : bool
        Whether y is logarithmic where its values span widely, on both sides of zero if need be; the
        title says so.
    free : str
        The axes, of "xy", that each panel has for itself.
    own : bool
        Whether each panel has series of its own, which are named above it.
    zero : bool
        Whether a linear y begins at zero.
    columns : int
        Of panels; more of them stand below each other.
    height : float
        Of a row of panels, in inches.
    levels : mapping of str to float
        Horizontal lines, by their label.
    rug : mapping of str to sequence of float
        Values of x, by their label: short lines at the bottom of each panel.
    """

    frame: pd.DataFrame
    x: str
    y: str
    x_label: str = ""
    y_label: str = ""
    hue: str | None = None
    names: Sequence[str] = ()
    panels: str | None = None
    log: str = ""
    wide: bool = False
    free: str = ""
    own: bool = False
    zero: bool = True
    columns: int = 4
    height: float = 3.5
    levels: Mapping[str, float] = field(default_factory=dict)
    rug: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __call__(self) -> Figure:
        """Draw it."""
        groups = _by(self.frame, self.panels)
        columns = min(self.columns, len(groups))
        n_rows = -(-len(groups) // columns)
        names = [[name for name, _ in _by(rows, self.hue)] for _, rows in groups]
        lines = max(fill(name, _NAME).count("\n") + 1 for own in names for name in own)
        above = 0.2 + 0.16 * lines * max(map(len, names)) if self.own else 0.0
        figure = Figure(figsize=(WIDTH, (self.height + above) * n_rows))
        grid = figure.subplots(
            n_rows, columns, squeeze=False, sharex="x" not in self.free, sharey="y" not in self.free
        ).ravel()
        row = grid[: len(groups)]
        for axes in grid[len(groups) :]:
            axes.remove()
        for axes, (_, rows), own in zip(row, groups, names, strict=True):
            among = own if self.own else self._names
            for name, series in _by(rows, self.hue):
                label = series_label(fill(name, _NAME) if self.own else name)
                self._draw(axes, series, label, among.index(name), len(among))
            for label, level in self.levels.items():
                self._level(axes, level, label)
            for label, places in self.rug.items():
                _rug(axes, places, label)
        for axes, (title, rows), own in zip(row, groups, names, strict=True):
            scale = self._scales(axes, rows, columns)  # when all are drawn that share an axis
            told = f"{title if len(groups) > 1 else self.y_label}{scale}"
            if self.own:
                _named_above(axes, told, [series_label(fill(name, _NAME)) for name in own])
            else:
                axes.set_title(_fitted(told, 0.76 * WIDTH / columns) if columns > 1 else told)
        for axes in row[-columns:]:
            axes.set_xlabel(fill(self.x_label, max(8, _LABELS // columns)))
            axes.tick_params(labelbottom=True)
        if len(groups) > 1 or self.own:
            for axes in row[::columns]:
                axes.set_ylabel(self.y_label)
        _legend(figure)
        return figure

    @property
    def _names(self) -> list[str]:
        return list(self.names) or [name for name, _ in _by(self.frame, self.hue)]

    def _draw(self, axes: Axes, rows: pd.DataFrame, label: str, position: int, n: int) -> None:
        raise NotImplementedError

    def _level(self, axes: Axes, level: float, label: str) -> None:
        axes.axhline(level, color=INK, lw=1.0, ls=":", label=label)

    def _values(self, rows: pd.DataFrame, which: str) -> pd.Series:
        """Return what an axis has to show."""
        return rows[self.x if which == "x" else self.y]

    def _scales(self, axes: Axes, rows: pd.DataFrame, beside: int) -> str:
        """Scale the axes of a panel, and return what its title says of that."""
        words = ""
        for which in "xy":
            values = self._values(rows if which in self.free else self.frame, which).astype(float)
            if which in self.log:
                _logarithmic(axes, which, values, beside)
            elif not (which == "y" and self.wide and (words := _wide(axes, values))):
                _linear(axes, which, values, beside, self.zero)
        return words


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
    dotted : str, optional
        A column that is drawn dotted in the colour of the series, which is then not.
    """

    low: str | None = None
    high: str | None = None
    thin: Mapping[str, str] = field(default_factory=dict)
    hollow: str | None = None
    order: str | None = None
    dotted: str | None = None

    def _draw(self, axes: Axes, rows: pd.DataFrame, label: str, position: int, n: int) -> None:
        rows = rows.sort_values(self.order or self.x, kind="stable")
        for thin, column in self.thin.items():
            seen = rows[rows[column].notna()]
            axes.plot(seen[self.x], seen[column], color=INK, lw=1.0, ls=_GREY, label=thin)
        known = rows[np.isfinite(rows[self.y].astype(float))]
        look = series_style(position)
        if self.dotted is not None:  # smaller and smaller, where markers lie on each other
            look |= {"linestyle": "-", "markersize": max(8.5 - position, 3.0)}
        x, y, errors = known[self.x].astype(float), known[self.y], None
        if self.low is not None and self.high is not None:
            shift = position - (n - 1) / 2  # side by side, where they would hide each other
            wide = float(self.frame[self.x].max() - self.frame[self.x].min())
            x = x * _STEP**shift if "x" in self.log else x + _SHIFT * wide * shift
            ends = y - known[self.low], known[self.high] - y
            errors = [np.fmax(end.astype(float).fillna(0.0), 0.0) for end in ends]
        every = None  # beyond so many points it is a curve, with a few markers to tell it by
        if len(known) > _MARKERS:
            step = len(known) // _FEW
            every = (position * step // n, step)
        axes.errorbar(
            x, y, yerr=errors, label=label, capsize=2.5, elinewidth=1.0, markevery=every, **look
        )
        if self.dotted is not None:
            axes.plot(rows[self.x], rows[self.dotted], color=look["color"], lw=1.4, ls=":")
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
        others = [rows[column] for column in (*self.thin.values(), self.dotted) if column]
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
            edgecolors=look["color"], linewidths=0.9, label=label,
            rasterized=len(rows) > MANY_POINTS,
        )  # fmt: skip
        if self.labels is not None:
            for x, y, words in zip(rows[self.x], rows[self.y], rows[self.labels], strict=True):
                axes.annotate(
                    str(words), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7
                )


@dataclass(frozen=True, eq=False)
class Dots(_Mark):
    """Values in rows, a row for each category y; panels stand below each other, or ``beside``.

    Several values of a category and series are spread over its row, with a bar at their median.
    The height follows from the rows.

    Attributes
    ----------
    low, high : str, optional
        Columns of the ends of an interval around x.
    hollow : str, optional
        A column that is positive where the dot is to be hollow.
    beside : bool
        Whether panels, of the same categories, stand beside each other.
    """

    low: str | None = None
    high: str | None = None
    hollow: str | None = None
    beside: bool = False

    def __call__(self) -> Figure:
        """Draw it."""
        groups = _by(self.frame, self.panels)
        own = [
            [fill(series_label(name), 34) for name, _ in _by(rows, self.y)] for _, rows in groups
        ]
        sizes = [len(names) + 1.0 for names in own][: 1 if self.beside else None]
        lines = max(name.count("\n") + 1 for names in own for name in names)
        most = max(rows.groupby(self.y)[self.hue or self.y].nunique().max() for _, rows in groups)
        height = max(0.12 + 0.12 * lines, 0.16 + 0.08 * most)
        figure = Figure(figsize=(WIDTH, 0.6 + height * sum(sizes) + 0.2 * len(sizes)))
        columns = len(groups) if self.beside else 1
        grid = figure.subplots(
            len(sizes), columns, sharex="x" not in self.free, sharey=self.beside, squeeze=False,
            height_ratios=sizes,
        ).ravel()  # fmt: skip
        some = self.frame if self.hollow is None else self.frame[~(self.frame[self.hollow] > 0)]
        full = {name for name, _ in _by(some, self.hue)}  # the legend shows them filled
        for axes, (title, rows), names in zip(grid, groups, own, strict=True):
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(names) - 0.45, -0.55)
            axes.grid(axis="y", visible=False)
            axes.set_title(title if len(groups) > 1 else self.y_label)
            for place, (_, values) in enumerate(_by(rows, self.y)):
                dots = _by(values, self.hue)
                for number, (name, own_dots) in enumerate(dots):
                    look = series_style(self._names.index(name))
                    label = series_label(name) if self.hue else ""
                    middle = place + (number + 0.5) / len(dots) - 0.5
                    self._row(
                        axes, own_dots, label, look, middle, 0.38 / len(dots), full=name in full
                    )
            for label, level in self.levels.items():
                axes.axvline(level, color=INK, lw=1.0, ls=":", label=label)
        for axes, (_, rows) in zip(grid, groups, strict=True):
            among = rows if "x" in self.free else self.frame
            ends = [among[name].astype(float) for name in (self.x, self.low, self.high) if name]
            shown = pd.concat([*ends, pd.Series(list(self.levels.values()), dtype=float)])
            if "x" in self.log:
                _logarithmic(axes, "x", shown, columns)
            else:
                _linear(axes, "x", shown, columns)
                if np.nanmin([*shown, np.inf]) >= 0:
                    axes.set_xlim(left=0)
        grid[len(grid) // 2 if self.beside else -1].set_xlabel(self.x_label)
        _legend(figure)
        return figure

    def _row(
        self,
        axes: Axes,
        rows: pd.DataFrame,
        label: str,
        look: Mapping[str, Any],
        middle: float,
        half: float,
        *,
        full: bool,
    ) -> None:
        x = rows[self.x].astype(float)
        y = middle + (np.linspace(-0.6, 0.6, len(x)) * half if len(x) > 1 else np.zeros(1))
        if self.low is not None and self.high is not None:
            axes.hlines(y, rows[self.low], rows[self.high], color=look["color"], lw=1.0)
        some = np.zeros(len(x), bool) if self.hollow is None else (rows[self.hollow] > 0).to_numpy()
        dots: dict[str, Any] = {"ls": "none", "markersize": 4, "alpha": 0.65, "clip_on": False}
        dots |= {"marker": look["marker"], "color": look["color"]}
        face = look["color"] if full else "white"
        axes.plot([], [], label=label or None, markerfacecolor=face, **dots | {"clip_on": True})
        for chosen, face in ((~some, look["color"]), (some, "white")):
            if chosen.any():  # the layout cannot measure unclipped lines without points
                axes.plot(x[chosen], y[chosen], markerfacecolor=face, **dots)
        if len(x) > 1:
            axes.vlines(x.median(), middle - half, middle + half, color=INK, lw=1.6, zorder=3)


@dataclass(frozen=True, eq=False)
class Profile(_Mark):
    """Steps: the share y that is reached at x, and holds up to the next x.

    Each line has a marker where it reaches its last share. Earlier series are drawn wider, so that
    those that coincide show; ``levels`` are vertical.
    """

    def __call__(self) -> Figure:
        """Draw it."""
        figure = super().__call__()
        for axes in figure.axes:
            axes.set_xlim(right=self._last)
            axes.set_ylim(-0.04, 1.08)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        return figure

    @property
    def _last(self) -> float:
        """Where the lines end."""
        return 2.0 * float(self._values(self.frame, "x").max())

    def _draw(self, axes: Axes, rows: pd.DataFrame, label: str, position: int, n: int) -> None:
        rows = rows.sort_values(self.x, kind="stable")
        look, shares = series_style(position), rows[self.y].to_list()
        reached = [len(rows) - 1]
        look |= {"linestyle": "-", "lw": 1.3 + 2.4 * (n - 1 - position) / max(n - 1, 1)}
        axes.step(
            [*rows[self.x], self._last], [*shares, shares[-1]], where="post", label=label,
            markevery=reached, markerfacecolor="white", solid_capstyle="butt", **look,
        )  # fmt: skip

    def _level(self, axes: Axes, level: float, label: str) -> None:
        axes.axvline(level, color=INK, lw=1.0, ls=":", label=label)

    def _values(self, rows: pd.DataFrame, which: str) -> pd.Series:
        found = super()._values(rows, which)
        if which == "y":
            return found
        return pd.concat([found, pd.Series(list(self.levels.values()), dtype=float)])


@dataclass(frozen=True, eq=False)
class Tiles:
    """A matrix of tiles that is read at a glance: what became of each row in each column.

    Attributes
    ----------
    frame : DataFrame
        One row for each tile; a tile without a row stays blank.
    x, hue : str
        Columns of the frame: the columns of the matrix, in groups that are named above them.
    y, panels : str
        The rows of the matrix; panels stand below each other.
    kind : str
        The column that colours.
    kinds : sequence of str
        At most four kinds, the best first.
    words : str
        The column of what stands in a tile: a few characters.
    x_label : str
    """

    frame: pd.DataFrame
    x: str
    y: str
    hue: str
    panels: str
    kind: str
    kinds: Sequence[str]
    words: str
    x_label: str = ""

    def __call__(self) -> Figure:
        """Draw it."""
        known = set(zip(self.frame[self.hue], self.frame[self.x], strict=True))
        places = sorted(self.frame[self.x].unique())
        columns = [
            (name, place)
            for name in self.frame[self.hue].unique()
            for place in places
            if (name, place) in known
        ]
        starts = {name: n for n, (name, _) in reversed(list(enumerate(columns)))}
        ends = {name: n for n, (name, _) in enumerate(columns)}
        groups = _by(self.frame, self.panels)
        sizes = [rows[self.y].nunique() for _, rows in groups]
        figure = Figure(figsize=(WIDTH, 0.7 + 0.21 * sum(sizes) + 0.27 * len(sizes)))
        grid = figure.subplots(len(sizes), 1, sharex=True, squeeze=False, height_ratios=sizes)
        colours = ListedColormap(list(_TILES[: len(self.kinds)]))
        for axes, (title, rows) in zip(grid.ravel(), groups, strict=True):
            names = list(rows[self.y].unique())
            cells = np.full((len(names), len(columns)), np.nan)
            for row in rows.to_dict("records"):
                place = names.index(row[self.y]), columns.index((row[self.hue], row[self.x]))
                cells[place] = self.kinds.index(row[self.kind])
                axes.text(
                    place[1],
                    place[0],
                    row[self.words],
                    color=_ON_TILES,
                    ha="center",
                    va="center",
                    fontsize=6,
                )
            axes.imshow(cells, cmap=colours, vmin=-0.5, vmax=len(self.kinds) - 0.5, aspect="auto")
            axes.set_yticks(range(len(names)), [series_label(name) for name in names])
            axes.set_title(title, fontsize=8.5)
            axes.grid(visible=False)
            axes.tick_params(length=0)
            for start in starts.values():
                axes.axvline(start - 0.5, color=INK, lw=0.8)
        above = grid[0, 0].secondary_xaxis("top")
        above.set_xticks(
            [(starts[name] + ends[name]) / 2 for name in ends],
            [series_label(name) for name in ends],
            fontsize=7,
        )
        above.tick_params(length=0, pad=14)
        above.spines["top"].set_visible(False)
        sized = [f"{place:,.0f}" for _, place in columns]
        grid[-1, 0].set_xticks(range(len(columns)), sized, rotation=90, fontsize=7)
        grid[-1, 0].set_xlabel(self.x_label)
        handles = [Patch(facecolor=colour) for colour in _TILES[: len(self.kinds)]]
        figure.legend(handles, list(self.kinds), loc="outside upper left", ncols=len(self.kinds))
        return figure


def _rug(axes: Axes, places: Sequence[float], label: str) -> None:
    """Draw short lines in the lowest tenth of a panel, whatever the scale of y is."""
    many = len(places) > MANY_POINTS
    axes.vlines(
        places, 0.0, 0.055, transform=axes.get_xaxis_transform(), color=INK, lw=0.6,
        alpha=0.2 if many else 0.55, rasterized=many, label=label,
    )  # fmt: skip


def _fitted(title: str, inches: float) -> str:
    """Break a title into lines that are no wider, as titles are drawn."""
    font = FontProperties(weight=rcParams["axes.titleweight"], size=rcParams["axes.titlesize"])

    def fits(line: str) -> bool:
        drawn = TextPath((0, 0), line, size=font.get_size_in_points(), prop=font)
        return bool(drawn.get_extents().width <= 72.0 * inches)

    def broken(line: str) -> str:
        tries = (fill(line, characters) for characters in range(max(len(line), 2), 1, -1))
        return next((lines for lines in tries if all(map(fits, lines.split("\n")))), line)

    return "\n".join(map(broken, title.split("\n")))


def _named_above(axes: Axes, title: str, names: Sequence[str]) -> None:
    """Name the series of a panel above it, under its title."""
    found = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    legend = axes.legend(
        [found[name] for name in names], names, title=title, loc="lower left", fontsize=8,
        bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, alignment="left",
    )  # fmt: skip
    legend.get_title().set_fontweight("bold")


def _legend(figure: Figure) -> None:
    """Name once, where there is more than one, all series that no panel names."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        legend = axes.get_legend()
        named = {text.get_text() for text in legend.get_texts()} if legend else set()
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label not in named:
                handles.setdefault(label, handle)
    if len(handles) > 1 or (handles and any(axes.get_legend() for axes in figure.axes)):
        columns = min(4, len(handles), max(1, _LEGEND // (max(map(len, handles)) + 7)))
        figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=columns)


def _by(frame: pd.DataFrame, column: str | None) -> list[tuple[str, pd.DataFrame]]:
    if column is None:
        return [("", frame)]
    return [(str(name), rows) for name, rows in frame.groupby(column, sort=False)]


def _wide(axes: Axes, values: pd.Series) -> str:
    """Make y logarithmic where its values span widely, and return what the title then says."""
    known = values[np.isfinite(values)]
    sizes = known[known != 0].abs()
    if not len(sizes) or known.min() == 0 or sizes.max() <= WIDE * sizes.min():
        return ""
    if known.min() > 0:
        _logarithmic(axes, "y", values)
        return " (log scale)"
    least = max(1.0, 10.0 ** np.floor(np.log10(sizes.min())))
    axes.set_yscale("symlog", linthresh=least)
    axes.autoscale_view()
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=least))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    return f" (log scale beyond ±{format_number(least)})"


def _logarithmic(axes: Axes, which: str, values: pd.Series, beside: int = 1) -> None:
    """Make an axis logarithmic, with ticks at round numbers however narrow the range.

    There are fewer of them the more panels stand beside each other.
    """
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    known = values[np.isfinite(values) & (values > 0)]
    axes.set(**{f"{which}scale": "log"})
    ratio = float(known.max() / known.min()) if len(known) else 1.0
    if ratio == 1.0 and len(known):
        axes.set(**{f"{which}lim": (known.min() / 2, 2 * known.max())})
    ticks = _log_ticks(known, max(3, _TICKS // beside) if which == "x" else _TICKS)
    if (which == "y" and ratio < _NARROW) or len(ticks) < 2:
        axis.set_major_locator(MaxNLocator(min(6, max(3, _TICKS // beside)), steps=_STEPS))
    else:
        axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    digits = 5 if ratio < _NARROW else 3
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, digits)))


def _log_ticks(values: pd.Series, most: int) -> list[float]:
    """Return the densest round numbers between values, at most so many and so far apart."""
    if not len(values):
        return []
    low, high = float(values.min()), float(values.max())
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks: list[float] = []
    for digits in (range(1, 10), (1, 2, 5), (1, 3), (1,)):
        round_ones = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in round_ones if 0.95 * low <= tick <= 1.05 * high]
        apart = np.diff(np.log(ticks)).min(initial=np.inf)
        if len(ticks) <= most and apart >= _APART * np.log(high / low) / most:
            return ticks
    return ticks[:: -(-len(ticks) // most)]


def even_ticks(figure: Figure) -> None:
    """Give the logarithmic axes of a kind's own drawing the ticks that marks have."""
    for axes in figure.axes:
        place = axes.get_subplotspec()
        for which, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if isinstance(axis.get_major_locator(), LogLocator):
                ends = pd.Series(axis.get_view_interval())
                _logarithmic(axes, which, ends, place.get_geometry()[1] if place else 1)
            elif isinstance(axis.get_major_formatter(), LogFormatter):  # ticks of its own
                axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))


def show_covered(figure: Figure) -> None:
    """Draw a line wide and pale, and its markers, where later lines cover all of it."""
    for axes in figure.axes:
        lines = [
            line
            for line in axes.get_lines()
            if line.get_transform() == axes.transData
            and line.get_linestyle() != "None"
            and line.get_drawstyle() == "default"  # steps are wider already
        ]
        axes.get_xlim(), axes.get_ylim()  # settles them
        size = 72.0 * np.array(axes.get_window_extent().size) / figure.dpi
        scale = axes.transScale + axes.transLimits
        paths = [
            size * scale.transform(np.asarray(line.get_xydata(), dtype=float)) for line in lines
        ]
        paths = [path[np.isfinite(path).all(axis=1)] for path in paths]
        for place, (line, path) in enumerate(zip(lines, paths, strict=True)):
            above = sum(
                line.get_color() != other.get_color() and _covers(cover, path)
                for other, cover in zip(lines[place + 1 :], paths[place + 1 :], strict=True)
            )
            if above:
                line.set(
                    linewidth=line.get_linewidth() + _WIDER * above,
                    markersize=line.get_markersize() + _WIDER * above,
                    alpha=_PALE,
                )


def _covers(above: NDArray[np.float64], path: NDArray[np.float64]) -> bool:
    """Say whether some points of a path, and points halfway between two, lie on another path."""
    if min(len(above), len(path)) < 2:
        return False
    points = np.concatenate([path, (path[1:] + path[:-1]) / 2])
    points = points[:: 1 + len(points) // MANY_POINTS, None]
    start, along = above[:-1], np.diff(above, axis=0)
    length = np.maximum((along**2).sum(axis=1), 1e-12)
    share = np.clip(((points - start) * along).sum(axis=2) / length, 0.0, 1.0)
    apart = np.linalg.norm(points - start - share[..., None] * along, axis=2)
    return bool(apart.min(axis=1).max() <= _COVERED)


def _linear(axes: Axes, which: str, values: pd.Series, beside: int = 1, zero: bool = True) -> None:
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    axis.set_major_locator(MaxNLocator(4 if which == "x" and beside > 2 else 6, steps=_STEPS))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, digits=5)))
    if zero and which == "y" and len(values) and np.nanmin([*values, np.inf]) >= 0:
        axes.set_ylim(bottom=0, top=None if np.nanmax([*values, 0.0]) > 0 else 1.0)
