"""The figures of the study of online policies: means over draws, error bars of 95% intervals.

A hollow marker stands where some draws bought nothing, so that the mean is over the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from convexmarket.lab.report.figures import INK, WIDTH, series_style
from convexmarket.lab.report.words import format_number

__all__ = ["POLICIES", "Series", "excess_over_m", "loss_over_m", "ratio_over_xi", "regret_over_m"]

#: What each policy is called.
POLICIES = {
    "expectation": "general rule",
    "algorithm-3": "Algorithm 3",
    "replanned": "rest planned anew",
    "learnt": "prior learnt",
    "guess": "guess kept",
}
#: A curve: its name, and its rows of the table of points.
Series = tuple[str, pd.DataFrame]

_SIZES = "m, sellers expected (log scale)"
_NARROW = 8
_WIDE = 200
_BELOW_ONE = 0.97
_STEP = 1.045


def loss_over_m(series: Sequence[Series], offline: Sequence[Series], floor: float) -> Figure:
    """Draw the loss over m, and the optimum in hindsight as thin lines (A, Fig. 3, left).

    Parameters
    ----------
    series : sequence of (str, DataFrame)
        Curves with columns size, loss, loss_low, loss_high and empty.
    offline : sequence of (str, DataFrame)
        Optima in hindsight, with columns size and offline; one for all curves, or one for each.
    floor : float
        No loss is smaller; a line, if positive.
    """
    figure, axes = _axes(3.7)
    values = _bars(axes, series, "loss")
    for position, (name, rows) in enumerate(offline):
        shared = len(offline) < len(series)
        color = INK if shared else series_style(position)["color"]
        label = name if position == 0 else None
        axes.plot(rows["size"], rows.offline, color=color, lw=1.0, ls=(0, (8, 3)), label=label)
    values = pd.concat([values, *(rows.offline for _, rows in offline)])
    if floor > 0:
        sizes = [min(rows["size"].min() for _, rows in series) / _STEP]
        sizes.append(max(rows["size"].max() for _, rows in series) * _STEP)
        label = f"no loss is below {format_number(floor)}"
        axes.plot(sizes, [floor, floor], color=INK, lw=1.0, ls=":", label=label)
        values = pd.concat([values, pd.Series([floor])])
    _log_y(axes, values)
    return _finished(figure, axes, "Loss, A's Eq. (11), a number without unit (log scale)")


def excess_over_m(series: Sequence[Series]) -> Figure:
    """Draw by how much the competitive ratio exceeds 1 (A, Fig. 3, right)."""
    figure, axes = _axes(3.5)
    shifted = [
        (
            name,
            rows.assign(
                excess=rows.ratio - 1,
                excess_low=rows.ratio_low - 1,
                excess_high=rows.ratio_high - 1,
            ),
        )
        for name, rows in series
    ]
    _log_y(axes, _bars(axes, shifted, "excess"))
    _log_y_floor(axes, shifted, "excess")
    return _finished(
        figure, axes, "Competitive ratio less 1, as a share of the optimum in hindsight (log scale)"
    )


def regret_over_m(series: Sequence[Series]) -> Figure:
    """Draw what it costs not to know the prior."""
    figure, axes = _axes(3.5)
    values = _bars(axes, series, "regret")
    scale = ""
    if len(values) and values.min() > 0:
        _log_y(axes, values)
        _log_y_floor(axes, series, "regret")
        scale = " (log scale)"
    return _finished(figure, axes, f"Regret, as a share of the loss with known prior{scale}")


def ratio_over_xi(panels: Sequence[tuple[str, Sequence[Series]]]) -> Figure:
    """Draw the competitive ratio over the fraction that comes, one panel per policy.

    Parameters
    ----------
    panels : sequence of (str, series)
        The name of a policy, and a curve for each m with columns fraction, ratio and its interval.
    """
    figure = Figure(figsize=(WIDTH, 3.7))
    row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    everything = []
    for axes, (name, series) in zip(row, panels, strict=True):
        everything.append(_bars(axes, series, "ratio", along="fraction"))
        rows = series[0][1]
        if rows.ratio_limit.notna().all():
            limit = rows.fraction, rows.ratio_limit
            axes.plot(*limit, color=INK, lw=1.0, ls=":", label="limit for many sellers")
        axes.set_title(name)
        axes.set_xlabel("ξ, share of the expected sellers who come")
        axes.xaxis.set_major_locator(MaxNLocator(6))
    values = pd.concat(everything)
    _log_y(row[0], pd.concat([values, pd.Series([1.0])]))
    highs = pd.concat([rows.ratio_high for _, series in panels for _, rows in series])
    row[0].set_ylim(_BELOW_ONE, np.fmin(1.1 * highs.max(), 2.0 * values.max()))
    row[0].set_ylabel("competitive ratio (log scale)")
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure


# ---------------------------------------------------------------------------------------- pieces


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots()
    axes.set_xscale("log")
    return figure, axes


def _finished(figure: Figure, axes: Axes, what: str) -> Figure:
    low, high = axes.get_xlim()
    if high < 1.5 * low:  # a single size
        axes.set_xlim(low / 2, 2 * high)
    axes.xaxis.set_major_locator(LogLocator(numticks=10))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    axes.set_xlabel(_SIZES)
    axes.set_title(what)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def _bars(axes: Axes, series: Sequence[Series], name: str, along: str = "size") -> pd.Series:
    """Draw curves with error bars, side by side where they would hide each other.

    Returns
    -------
    Series
        The means that were drawn.
    """
    drawn = [pd.Series(dtype=float)]
    for position, (label, rows) in enumerate(series):
        known = rows[np.isfinite(rows[name])]
        look: dict[str, Any] = series_style(position)
        shift = position - (len(series) - 1) / 2
        x = known[along] * _STEP**shift if along == "size" else known[along] + 0.004 * shift
        low = (known[name] - known[f"{name}_low"]).fillna(0.0)
        high = (known[f"{name}_high"] - known[name]).fillna(0.0)
        axes.errorbar(
            x, known[name], yerr=[low, high], label=label, capsize=2.5, elinewidth=1.0, **look
        )
        some = known["empty"] > 0
        axes.plot(
            x[some],
            known[name][some],
            ls="none",
            marker=look["marker"],
            markerfacecolor="white",
            markeredgecolor=look["color"],
            zorder=4,
        )
        drawn.append(known[name])
    return pd.concat([values for values in drawn if len(values)] or drawn)


def _log_y(axes: Axes, values: pd.Series) -> None:
    """Make the vertical axis logarithmic, with ticks at round numbers however narrow the range."""
    known = values[np.isfinite(values) & (values > 0)]
    axes.set_yscale("log", nonpositive="clip")
    width = known.max() / known.min() if len(known) else 1.0
    if width < _NARROW:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    elif width < _WIDE:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    else:
        axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))


def _log_y_floor(axes: Axes, series: Sequence[Series], name: str) -> None:
    """End the vertical axis below the means; an interval that reaches zero runs out of it."""
    lows = pd.concat([rows[f"{name}_low"].where(rows[f"{name}_low"] > 0) for _, rows in series])
    means = pd.concat([rows[name].where(rows[name] > 0) for _, rows in series])
    lowest = np.nanmin([np.nanmin([*lows, np.inf]), np.nanmin([*means, np.inf])])
    if np.isfinite(lowest):
        axes.set_ylim(bottom=max(lowest / 2.0, np.nanmin(means) / 10.0))
