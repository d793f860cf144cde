"""How figures look, and the figures of the trade-off experiment.

Series differ in marker and line style as well as in colour, and the colours (Okabe and Ito's) are
told apart by colour-blind readers. Figures are drawn without pyplot: no global state, no display.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

from convexmarket.lab.report.words import format_number, share

__all__ = [
    "distributions",
    "frontier",
    "overall_error",
    "report_style",
    "series_label",
    "series_style",
    "tradeoff_curve",
    "who_is_bought_from",
]

WIDTH = 6.8  # inches; the text column of the page
INK = "#22272e"
MUTED = "#59636e"
RULE = "#d5dae0"
SERIES: tuple[dict[str, Any], ...] = (
    {"color": "#0072b2", "marker": "o", "linestyle": "-"},
    {"color": "#d55e00", "marker": "s", "linestyle": (0, (5, 2))},
    {"color": "#00785a", "marker": "^", "linestyle": (0, (1.2, 1.6))},
    {"color": "#a03f7a", "marker": "D", "linestyle": (0, (6, 2, 1.2, 2))},
    {"color": "#9a6a00", "marker": "v", "linestyle": "-"},
    {"color": "#4b4b4b", "marker": "P", "linestyle": (0, (5, 2))},
    {"color": "#3a9bd9", "marker": "X", "linestyle": (0, (1.2, 1.6))},
    {"color": "#b3261e", "marker": "<", "linestyle": (0, (6, 2, 1.2, 2))},
)
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-4, 6),
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "figure.figsize": (WIDTH, 3.4),
    "figure.constrained_layout.use": True,
    "savefig.dpi": 120,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
MANY_POINTS = 200
WIDE = 30.0  # ratio of values beyond which a scale is logarithmic


def report_style(name: str) -> AbstractContextManager[None]:
    """Return a context that draws in the one style of all reports.

    The user's own Matplotlib settings neither show nor change. The name of the figure is what the
    ids in its SVG derive from; by default they would be random.
    """
    return style.context({**STYLE, "svg.hashsalt": name}, after_reset=True)


def series_style(position: int) -> dict[str, Any]:
    """Return colour, marker and line style of a series, for ``Axes.plot``."""
    return dict(SERIES[position % len(SERIES)])


def series_label(name: object) -> str:
    """Return a name from data as a label that the legend shows.

    Matplotlib leaves out what begins with an underscore; behind a space of no width it does not.
    """
    text = str(name)
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


def gamma_axis(axes: Axes, gammas: Sequence[float], panels: int = 1) -> None:
    """Make the horizontal axis gamma's: logarithmic, with ticks at the values that were run.

    Where so many panels stand side by side that labels would touch, some ticks are left out.
    """
    axes.set_xscale("log")
    axes.set_xlabel("γ, the weight of payments (log scale)")
    ticks: list[float] = []
    width = max(np.log(max(gammas) / min(gammas)), 1e-12)
    for gamma in sorted(set(gammas)):
        if not ticks or np.log(gamma / ticks[-1]) / width > 0.09 * panels:
            ticks.append(gamma)
    axes.set_xticks(ticks, [format_number(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def value_axis(axes: Axes, values: pd.Series, which: Literal["x", "y"] = "y") -> str:
    """Make an axis logarithmic where positive values span more than a factor ``WIDE``.

    Returns
    -------
    str
        What to say about the scale: ``" (log scale)"`` or nothing.
    """
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    finite = values[np.isfinite(values)]
    if len(finite) and finite.min() > 0 and finite.max() > WIDE * finite.min():
        axes.set(**{f"{which}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
        return " (log scale)"
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, digits=5)))
    if len(finite) and finite.min() >= 0:
        axes.set(**{f"{which}lim": (0, None)})
    return ""


def line_with_spread(
    axes: Axes, x: pd.Series, mean: pd.Series, spread: pd.Series, label: str, position: int
) -> None:
    """Plot a mean with a band of one standard deviation on either side."""
    look = series_style(position)
    axes.plot(x, mean, label=label, clip_on=False, **look)
    width = spread.fillna(0.0)
    axes.fill_between(x, mean - width, mean + width, color=look["color"], alpha=0.16, lw=0)
    for edge in (mean - width, mean + width):
        axes.plot(x, edge, color=look["color"], linestyle=look["linestyle"], lw=0.5, alpha=0.6)


def tradeoff_curve(
    curve: pd.DataFrame, baseline_error: float, paid: str = "Total payments to sellers (money)"
) -> Figure:
    """Draw test error and payments over gamma, one series per model (A and B, Fig. 2a).

    Parameters
    ----------
    curve : pandas.DataFrame
        Columns model, gamma, error_mean, error_std and payments, of one scenario.
    baseline_error : float
        Test error of the model without privacy.
    paid : str
        What the payments are.
    """
    figure = Figure(figsize=(WIDTH, 5.0))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.15, 1))
    for position, (model, rows) in enumerate(_by(curve, "model")):
        line_with_spread(above, rows.gamma, rows.error_mean, rows.error_std, model, position)
        below.plot(rows.gamma, rows.payments, label=model, clip_on=False, **series_style(position))
    above.axhline(
        baseline_error,
        color=INK,
        linestyle=(0, (8, 3)),
        lw=1.1,
        label="without privacy",
        clip_on=False,
        zorder=3,
    )
    above.set_title("Test error (share misclassified)")
    above.set_ylim(bottom=0)
    scale = value_axis(below, curve.payments)
    below.set_title(f"{paid}{scale}")
    gamma_axis(below, list(curve.gamma))
    above.tick_params(labelbottom=False)
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def frontier(points: pd.DataFrame, error: str, payments: str) -> Figure:
    """Draw error against payments, one line per series, with gamma at the ends of the first.

    Parameters
    ----------
    points : pandas.DataFrame
        Columns model, gamma, error_mean and payments, of one scenario.
    error, payments : str
        What these two are, with their units.
    """
    figure = Figure(figsize=(WIDTH, 3.6))
    axes = figure.subplots()
    axes.margins(x=0.08, y=0.12)
    points = points[np.isfinite(points.error_mean) & np.isfinite(points.payments)]
    for position, (model, line) in enumerate(_by(points, "model")):
        look = series_style(position)
        axes.plot(line.payments, line.error_mean, label=series_label(model), clip_on=False, **look)
        if position == 0:
            for _, end in line.iloc[sorted({0, len(line) - 1})].iterrows():
                axes.annotate(
                    f"γ = {format_number(end.gamma)}", (end.payments, end.error_mean), (4, 6),
                    textcoords="offset points", fontsize=8, color=look["color"],
                )  # fmt: skip
    scales = value_axis(axes, points.error_mean), value_axis(axes, points.payments, "x")
    axes.set_title(f"{error[:1].upper()}{error[1:]}{scales[0]}")
    axes.set_xlabel(f"{payments}{scales[1]}")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def overall_error(curve: pd.DataFrame) -> Figure:
    """Draw error + gamma * payments over gamma, one panel per scenario (A and B, Fig. 2b)."""
    scenarios = _by(curve, "scenario")
    figure = Figure(figsize=(WIDTH, 3.3))
    panels = figure.subplots(1, len(scenarios), sharey=True, squeeze=False)[0]
    for axes, (scenario, rows) in zip(panels, scenarios, strict=True):
        for position, (model, line) in enumerate(_by(rows, "model")):
            line_with_spread(axes, line.gamma, line.overall_mean, line.overall_std, model, position)
        axes.set_title(f"{scenario} sensitivities")
        gamma_axis(axes, list(rows.gamma), len(scenarios))
        axes.set_xlabel("γ (log scale)")
    scale = value_axis(panels[0], curve.overall_mean)
    panels[0].set_ylabel(f"test error + γ × payments{scale}")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def who_is_bought_from(sellers: pd.DataFrame, money: str = "money") -> Figure:
    """Draw epsilon against sensitivity, one series per gamma and one panel per scenario.

    The scale is logarithmic, and without those who sell nothing, where the most that is sold at
    some gamma would be next to nothing beside the most at another.

    Parameters
    ----------
    sellers : pandas.DataFrame
        Columns scenario, gamma, sensitivity and epsilon, of one model and a few gammas.
    money : str
        The unit of payments.
    """
    sold = sellers[sellers.epsilon > 0]
    most = sold.groupby(["scenario", "gamma"]).epsilon.max()
    wide = len(most) > 0 and most.max() > WIDE * most.min()
    scenarios = _by(sellers, "scenario")
    figure = Figure(figsize=(WIDTH, 3.4))
    panels = figure.subplots(1, len(scenarios), sharey=True, squeeze=False)[0]
    for axes, (scenario, rows) in zip(panels, scenarios, strict=True):
        for position, (gamma, offered) in enumerate(_by(rows, "gamma")):
            offers = offered[offered.epsilon > 0] if wide else offered
            look = series_style(position)
            axes.scatter(
                offers.sensitivity,
                offers.epsilon,
                s=12,
                marker=look["marker"],
                facecolors="none",
                edgecolors=look["color"],
                linewidths=0.9,
                label=f"γ = {format_number(gamma)}",
                rasterized=len(offers) > MANY_POINTS,
            )
        axes.set_title(f"{scenario} sensitivities")
        axes.set_xlabel(f"sensitivity c ({money} per unit of ε)")
        axes.xaxis.set_major_locator(MaxNLocator(5))
    scale = value_axis(panels[0], sold.epsilon) if wide else ""
    panels[0].set_ylabel(f"privacy sold, ε{scale}")
    if not wide:
        panels[0].set_ylim(bottom=0 if len(sold) else None)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=4, markerscale=1.7
    )
    return figure


def distributions(sellers: pd.DataFrame, money: str = "money") -> Figure:
    """Draw histograms of epsilon and payment of the sellers bought from, one row per gamma.

    Parameters
    ----------
    sellers : pandas.DataFrame
        Columns gamma, epsilon and payment, of one scenario, one model and a few gammas.
    money : str
        The unit of payments.
    """
    groups = _by(sellers, "gamma")
    figure = Figure(figsize=(WIDTH, 0.7 + 1.65 * len(groups)))
    grid = figure.subplots(len(groups), 2, squeeze=False)
    for row, (gamma, offers) in zip(grid, groups, strict=True):
        bought = offers[offers.epsilon > 0]
        _histogram(row[0], bought.epsilon, series_style(0)["color"])
        _histogram(row[1], bought.payment, series_style(2)["color"])
        row[0].set_title(
            f"γ = {format_number(gamma)}: bought from {share(len(bought), len(offers), 'seller')}"
        )
        row[0].set_ylabel("sellers")
    grid[-1, 0].set_xlabel("privacy sold, ε")
    grid[-1, 1].set_xlabel(f"payment ({money})")
    return figure


def _histogram(axes: Axes, values: pd.Series, color: str) -> None:
    if len(values):
        low, high = float(values.min()), float(values.max())
        pad = 0.05 * abs(high) if np.isclose(low, high) else 0.0
        bins = int(np.clip(np.sqrt(len(values)), 5, 30)) if pad == 0 else 1
        axes.hist(values, bins=bins, range=(low - pad, high + pad), color=color, edgecolor="white")
    else:
        axes.text(0.5, 0.5, "nobody is bought from", transform=axes.transAxes, ha="center")
    axes.grid(axis="x", visible=False)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _by(frame: pd.DataFrame, column: str) -> list[tuple[Any, pd.DataFrame]]:
    """Split a frame by a column, in order of appearance; rows sorted by gamma if they have it."""
    groups = frame.groupby(column, sort=False)
    order = "gamma"
    return [
        (key, rows.sort_values(order, kind="stable") if order in rows else rows)
        for key, rows in groups
    ]
