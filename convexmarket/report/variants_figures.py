"""The figures of variants side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from convexmarket.report.figures import INK, MUTED, WIDTH, series_style
from convexmarket.report.words import format_number

__all__ = ["allocations", "curves_over_key", "frontier", "group_bars", "virtual_costs"]

#: Above this ratio of the largest to the smallest value an axis is logarithmic.
_WIDE = 4.0
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
                label=name,
                markevery=max(1, len(line) // _MARKERS),
                **look | {"markersize": 4, "linewidth": 1.3},
            )
        if group:
            axes.set_title(str(group))
        axes.set_xlabel("sensitivity c of the seller")
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
            axes.plot(rows.expected_payments, rows[column], label=variant, **look)
        _scale(axes, points.expected_payments, "x")
        _scale(axes, points[column], "y")
        axes.set_title(name)
        axes.set_xlabel("expected payments")
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
                axes.plot(rows.value, rows[column], label=variant, **series_style(position))
        _scale(axes, points.value, "x")
        _scale(axes, points[column], "y")
        axes.set_title(name)
        axes.set_xlabel(key)
    _legend(figure, panels[0])
    return figure


def group_bars(groups: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Draw the share of weight and the expected payment per head of every group, by variant.

    Parameters
    ----------
    groups : pandas.DataFrame
        Columns variant, group, share_of_sellers, share_of_weight and expected_payment_mean.
    names : sequence of str
        The variants, in the order of their styles.
    """
    kinds = list(dict.fromkeys(groups.group))
    places, width = np.arange(len(kinds)), 0.8 / len(names)
    figure = Figure(figsize=(WIDTH, 3.6))
    panels = figure.subplots(1, 2)
    for axes, column in zip(panels, ("share_of_weight", "expected_payment_mean"), strict=True):
        for position, name in enumerate(names):
            rows = groups[groups.variant == name].set_index("group")
            axes.bar(
                places + (position - (len(names) - 1) / 2) * width,
                rows[column].reindex(kinds),
                0.92 * width,
                label=name,
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
    panels[0].set_title("Share of the weight")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
    panels[1].set_title("Expected payment per seller")
    _legend(figure, panels[0])
    return figure


def virtual_costs(curves: pd.DataFrame) -> Figure:
    """Draw raw and ironed virtual costs over the sensitivity, one panel per ironed prior.

    Parameters
    ----------
    curves : pandas.DataFrame
        Columns prior, sensitivity, raw and ironed.
    """
    groups = list(curves.groupby("prior", sort=False))
    figure = Figure(figsize=(WIDTH, 3.2))
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, (prior, rows) in zip(panels, groups, strict=True):
        axes.plot(rows.sensitivity, rows.raw, color=MUTED, lw=1.2, ls=(0, (4, 2)), label="raw ψ")
        axes.plot(
            rows.sensitivity, rows.ironed, color=series_style(0)["color"], lw=1.8, label="ironed ψ"
        )
        axes.set_title(str(prior))
        axes.set_xlabel("sensitivity c")
        # Near the top of a support psi may grow without bound.
        top = 1.3 * float(rows[["raw", "ironed"]].quantile(0.9).max())
        axes.set_ylim(0, min(top, 1.05 * float(rows.raw.max())))
    panels[0].set_ylabel("virtual cost")
    _legend(figure, panels[0])
    return figure


def _scale(axes: Axes, values: pd.Series, which: str) -> None:
    """Make an axis logarithmic where its values spread widely."""
    finite = values[np.isfinite(values)]
    axis = axes.xaxis if which == "x" else axes.yaxis
    if len(finite) and finite.min() > 0 and finite.max() > _WIDE * finite.min():
        axes.set(**{f"{which}scale": "log"})
        subs = (1.0, 2.0, 5.0) if finite.max() < 100 * finite.min() else (1.0, 3.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=8))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))


def _legend(figure: Figure, axes: Axes) -> None:
    """Put the legend above the panels, in few columns where names are long."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels))
    columns = max(1, min(len(labels), 88 // (longest + 7)))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)
