"""The figures of variants side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from convexmarket.lab.report.figures import INK, RULE, WIDTH, series_label, series_style
from convexmarket.lab.report.words import format_number
from convexmarket.terms import PrivacyCost

__all__ = [
    "WIDE",
    "allocations",
    "curves_over_key",
    "flat_pieces",
    "frontier",
    "group_bars",
    "limits",
    "privacy_costs",
    "virtual_costs",
]

#: Above this ratio of the largest to the smallest value an axis is logarithmic.
WIDE = 4.0
#: Ticks that a logarithmic axis may have within a factor of ten, from many to few.
_DECADES = ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
#: Characters of all titles side by side, and how many columns leave no room for units.
_TITLE, _NARROW = 70, 3
_SENSITIVITY = "sensitivity c (money per unit of ε)"
_EXPECTED = "expected payments (money)"
#: Markers on a line of many sellers, at most.
_MARKERS = 12


def allocations(sellers: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Draw epsilon against sensitivity, one line per variant and one panel per group.

    Parameters
    ----------
    sellers : pandas.DataFrame
        Columns variant, group, sensitivity and epsilon.
    names : sequence of str
        The variants, in the order of their styles.
    """
    groups = list(sellers.groupby("group", sort=False))
    figure = Figure(figsize=(WIDTH, 4.0))
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (group, rows) in zip(panels, groups, strict=True):
        for position, name in enumerate(names):
            line = rows[rows.variant == name].sort_values("sensitivity")
            look = series_style(position)
            axes.plot(
                line.sensitivity,
                line.epsilon,
                label=series_label(name),
                markevery=max(1, len(line) // _MARKERS),
                **look | {"markersize": 4, "linewidth": 1.3},
            )
        if group:
            axes.set_title(str(group))
        axes.set_xlabel(_SENSITIVITY)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    panels[0].set_ylabel("privacy sold, ε")
    panels[0].set_ylim(bottom=0)
    _legend(figure, panels[0])
    return figure


def frontier(points: pd.DataFrame, names: Sequence[str], whole: Sequence[str]) -> Figure:
    """Draw error, spread and noise against expected payments, one curve per swept variant.

    Parameters
    ----------
    points : pandas.DataFrame
        Columns variant, value, expected_payments, error, spread and noise.
    names : sequence of str
        The variants, in the order of their styles.
    whole : sequence of str
        Those that are a curve; the others are one point each.
    """
    figure = Figure(figsize=(WIDTH, 5.2))
    grid = figure.add_gridspec(2, 2, height_ratios=(1.45, 1))
    main = figure.add_subplot(grid[0, :])
    panels = [main, figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])]
    words = {
        "error": "error: spread and noise terms",
        "spread": "spread ‖a‖",
        "noise": "noise 1/η",
    }
    for axes, (column, name) in zip(panels, words.items(), strict=True):
        for position, variant in enumerate(names):
            rows = points[points.variant == variant].sort_values("value")
            look = series_style(position)
            if variant not in whole:
                look |= {"linestyle": "", "markersize": 8}
            axes.plot(rows.expected_payments, rows[column], label=series_label(variant), **look)
        _scale(axes, points.expected_payments, "x", most=8 if axes is main else 5)
        _scale(axes, points[column], "y", most=7)
        axes.set_title(name)
        axes.set_xlabel(_EXPECTED)
    _legend(figure, main)
    return figure


def curves_over_key(points: pd.DataFrame, names: Sequence[str], key: str) -> Figure:
    """Draw objective, largest guarantee and number of sellers over the value that is swept.

    Parameters
    ----------
    points : pandas.DataFrame
        Columns variant, value, objective, epsilon_max and n_bought, of variants with one swept key.
    names : sequence of str
        The variants, in the order of their styles; absent ones are left out.
    key : str
        What is swept.
    """
    figure = Figure(figsize=(WIDTH, 2.9))
    panels = figure.subplots(1, 3)
    words = {
        "objective": "objective",
        "epsilon_max": "largest ε sold",
        "n_bought": "sellers bought from",
    }
    for axes, (column, name) in zip(panels, words.items(), strict=True):
        for position, variant in enumerate(names):
            rows = points[points.variant == variant].sort_values("value")
            if len(rows):
                axes.plot(
                    rows.value, rows[column], label=series_label(variant), **series_style(position)
                )
        _scale(axes, points.value, "x", most=4)
        _scale(axes, points[column], "y", most=7)
        axes.set_title(name)
        axes.set_xlabel(key)
    _legend(figure, panels[0])
    return figure


def limits(points: pd.DataFrame, names: Sequence[str], drawn: Sequence[str]) -> Figure:
    """Draw the objective against the largest guarantee sold, one curve per limit.

    Parameters
    ----------
    points : pandas.DataFrame
        Columns variant, value, objective and epsilon_max.
    names : sequence of str
        The variants, in the order of their styles.
    drawn : sequence of str
        Those whose curves are drawn.
    """
    figure = Figure(figsize=(WIDTH, 3.4))
    axes = figure.subplots()
    for position, name in enumerate(names):
        if name in drawn:
            rows = points[points.variant == name].sort_values("value")
            axes.plot(
                rows.epsilon_max, rows.objective, label=series_label(name), **series_style(position)
            )
    shown = points[points.variant.isin(drawn)]
    _scale(axes, shown.epsilon_max, "x", most=9)
    _scale(axes, shown.objective, "y", most=7)
    axes.set_xlabel("largest ε sold")
    axes.set_ylabel("objective")
    _legend(figure, axes)
    return figure


def privacy_costs(costs: Mapping[str, PrivacyCost], highest: float) -> Figure:
    """Draw the privacy cost u(epsilon) of every variant up to the largest guarantee sold.

    Parameters
    ----------
    costs : mapping of str to PrivacyCost
        By variant, in the order of their styles.
    highest : float
        The largest guarantee.
    """
    figure = Figure(figsize=(WIDTH, 3.0))
    axes = figure.subplots()
    epsilon = np.linspace(0.0, highest, 121)
    for position, (name, cost) in enumerate(costs.items()):
        look = series_style(position) | {"markersize": 4, "linewidth": 1.3}
        axes.plot(epsilon, cost(epsilon), label=series_label(name), markevery=_MARKERS, **look)
    axes.set_xlabel("privacy sold, ε")
    axes.set_ylabel("privacy cost u(ε)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _legend(figure, axes)
    return figure


def group_bars(groups: pd.DataFrame, names: Sequence[str], payment: str, title: str) -> Figure:
    """Draw the share of weight and the payment per head of every group, by variant.

    Parameters
    ----------
    groups : pandas.DataFrame
        Columns variant, group, share_of_sellers, share_of_weight and that of the payment.
    names : sequence of str
        The variants, in the order of their styles.
    payment : str
        The column of payments per seller.
    title : str
        What these payments are called.
    """
    kinds = list(dict.fromkeys(groups.group))
    places, width = np.arange(len(kinds)), 0.8 / len(names)
    figure = Figure(figsize=(WIDTH, 3.6))
    panels = figure.subplots(1, 2)
    for axes, column in zip(panels, ("share_of_weight", payment), strict=True):
        for position, name in enumerate(names):
            rows = groups[groups.variant == name].set_index("group")
            axes.bar(
                places + (position - (len(names) - 1) / 2) * width,
                rows[column].reindex(kinds),
                0.92 * width,
                label=series_label(name),
                color=series_style(position)["color"],
            )
        axes.set_xticks(places, kinds)
        axes.grid(axis="x", visible=False)
        axes.set_ylim(bottom=0)
    shares = groups.drop_duplicates("group").set_index("group").share_of_sellers[kinds]
    panels[0].hlines(
        shares,
        places - 0.45,
        places + 0.45,
        color=INK,
        linestyle=(0, (4, 2)),
        lw=1.2,
        label="share of the sellers",
    )
    panels[0].set_title("share of the weight")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
    panels[1].set_title(f"{title} (money)")
    _legend(figure, panels[0])
    return figure


def virtual_costs(curves: pd.DataFrame) -> Figure:
    """Draw density, and raw and ironed virtual cost, over the sensitivity, one column per prior.

    Parameters
    ----------
    curves : pandas.DataFrame
        Columns variant, group, sensitivity, density, raw and ironed; the rows of a prior in order.
    """
    priors = list(curves.groupby(["variant", "group"], sort=False))
    figure = Figure(figsize=(WIDTH, 4.6))
    grid = figure.subplots(2, len(priors), squeeze=False, sharex="col", height_ratios=(1, 1.7))
    for (above, below), (names, rows) in zip(grid.T, priors, strict=True):
        look = {"color": series_style(0)["color"], "lw": 1.8}
        above.plot(rows.sensitivity, rows.density, **look | {"color": INK, "lw": 1.2})
        below.plot(rows.sensitivity, rows.ironed, label="ironed ψ", **look)
        below.plot(
            rows.sensitivity, rows.raw, color=INK, lw=1.2, ls=(0, (4, 2)), label="raw ψ, c + F/f"
        )
        for low, high in flat_pieces(rows):
            for axes in (above, below):
                axes.axvspan(low, high, color=RULE, alpha=0.6, lw=0, zorder=0, label="ironed")
        above.set_title(fill(", ".join(str(name) for name in names if name), _TITLE // len(priors)))
        below.set_xlabel(_SENSITIVITY if len(priors) < _NARROW else "sensitivity c")
        # Near the top of a support psi may grow without bound.
        top = 1.3 * float(rows[["raw", "ironed"]].quantile(0.9).max())
        below.set_ylim(0, min(top, 1.05 * float(rows.raw.max())))
        above.set_ylim(bottom=0)
        for axes in (above, below):
            axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    grid[0, 0].set_ylabel("density f")
    grid[1, 0].set_ylabel("virtual cost ψ")
    _legend(figure, *grid[1])
    return figure


def flat_pieces(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Return the intervals of sensitivities on which a tabulated ironed virtual cost is flat.

    Parameters
    ----------
    rows : pandas.DataFrame
        Columns sensitivity and ironed of one prior, in order.

    Examples
    --------
    >>> flat_pieces(pd.DataFrame({"sensitivity": [1.0, 2.0, 3.0, 4.0], "ironed": [1, 5, 5, 7]}))
    [(2.0, 3.0)]
    """
    levels = rows.ironed.to_numpy(dtype=float)
    flat = np.isclose(np.diff(levels), 0.0, rtol=0.0, atol=1e-9 * np.abs(levels).max())
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flat, [0]))))
    c = rows.sensitivity.to_numpy(dtype=float)
    return [(float(c[start]), float(c[end])) for start, end in edges.reshape(-1, 2)]


def _scale(axes: Axes, values: pd.Series, which: str, most: int) -> None:
    """Make an axis logarithmic where its values spread widely; so many ticks at most."""
    finite = values[np.isfinite(values)]
    axis = axes.xaxis if which == "x" else axes.yaxis
    if len(finite) and finite.min() > 0 and finite.max() > WIDE * finite.min():
        axes.set(**{f"{which}scale": "log"})
        axis.set_major_locator(FixedLocator(_log_ticks(finite.min(), finite.max(), most)))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(min(most, 5), steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers from low to high, as many as there may be."""
    powers = [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    ticks: list[float] = []
    for decade in _DECADES:
        ticks = [power * digit for power in powers for digit in decade]
        ticks = [tick for tick in ticks if 0.98 * low <= tick <= 1.02 * high]
        if len(ticks) <= most:
            break
    return ticks


def _legend(figure: Figure, *panels: Axes) -> None:
    """Put the legend above the panels, in few columns where names are long."""
    entries = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    longest = max(map(len, entries))
    columns = max(1, min(len(entries), 88 // (longest + 7)))
    figure.legend(entries.values(), entries, loc="outside upper left", ncols=columns)
