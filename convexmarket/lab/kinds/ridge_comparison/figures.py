"""The figures of the comparison of private ridge regressions."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from convexmarket.lab.kinds.ridge_comparison.run import METHODS
from convexmarket.lab.report.figures import INK, MUTED, WIDTH, series_style
from convexmarket.lab.report.words import format_number

__all__ = ["error_bound", "gain_ratios", "losses_over"]

PARAMETERS = {
    "regularization": "λ",
    "eps_conservative": "ε of the conservatives",
    "eps_medium": "ε of the mediums",
    "f_conservative": "fraction of conservatives",
    "row_fraction": "fraction of the rows",
    "label_noise": "assumed noise of the labels",
}
LOSSES = {"unreg": "test loss", "reg": "regularised test loss"}
SHOWN = ("pdp_op", "jorgensen_max", "jorgensen_mean", "nonpersonalized")


def losses_over(
    cells: pd.DataFrame, published: pd.DataFrame, statistic: str, methods: tuple[str, ...] = SHOWN
) -> Figure:
    """Draw a statistic of both losses over the parameter of a sweep.

    Parameters
    ----------
    cells : pandas.DataFrame
        The cells of one sweep.
    published : pandas.DataFrame
        The published cells of the same sweep, drawn as crosses.
    statistic : {"mean", "std"}
        Lines are medians over the draws, bands 5% to 95%.
    methods : tuple of str
    """
    figure = Figure(figsize=(WIDTH, 3.6))
    panels = figure.subplots(1, 2)
    parameter = str(cells.parameter.iloc[0])
    for axes, (loss, label) in zip(panels, LOSSES.items(), strict=True):
        for position, method in enumerate(methods):
            rows = cells[(cells.method == method) & (cells.loss == loss)].sort_values("value")
            look = series_style(position)
            axes.plot(rows.value, rows[statistic], label=METHODS[method], **look)
            low, high = rows[f"{statistic}_low"], rows[f"{statistic}_high"]
            axes.fill_between(rows.value, low, high, color=look["color"], alpha=0.14, lw=0)
            printed = published[
                (published.method == method)
                & (published.loss == loss)
                & (published.statistic == statistic)
            ]
            axes.plot(
                printed.value,
                printed.published,
                linestyle="none",
                marker="x",
                color=look["color"],
                markersize=6,
                markeredgewidth=1.4,
                zorder=5,
            )
        axes.set_yscale("log")
        axes.set_title(label)
        _parameter_axis(axes, parameter)
    of = "loss" if statistic == "mean" else "standard deviation of the loss"
    panels[0].set_ylabel(f"{of} (log scale)")
    handles, labels = panels[0].get_legend_handles_labels()
    if not published[published.statistic == statistic].empty:
        (cross,) = panels[0].plot([], [], linestyle="none", marker="x", color=INK)
        handles, labels = [*handles, cross], [*labels, "published"]
    figure.legend(handles, labels, loc="outside upper left", ncols=5, columnspacing=1.2)
    return figure


def gain_ratios(gains: pd.DataFrame, method: str, parameter: str) -> Figure:
    """Draw the loss of a method over that of PDP-OP as published, over one parameter.

    Parameters
    ----------
    gains : pandas.DataFrame
        Columns value, loss, ratio of one method in one sweep.
    method, parameter : str
    """
    figure = Figure(figsize=(WIDTH, 3.0))
    axes = figure.subplots()
    for position, (loss, label) in enumerate(LOSSES.items()):
        rows = gains[gains.loss == loss].sort_values("value")
        axes.plot(rows.value, rows.ratio, label=label, **series_style(position))
    axes.axhline(1.0, color=INK, lw=1.0, linestyle=(0, (8, 3)))
    if gains.ratio.max() > 2.0 * gains.ratio.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    _parameter_axis(axes, parameter)
    axes.set_ylabel(f"{METHODS[method]},\nloss over the paper's choice")
    axes.legend()
    return figure


def error_bound(bound: pd.DataFrame, coef_norm: float, best: float | None) -> Figure:
    """Draw the three terms of Theorem 3.6 over lambda, with the lambda that minimises them."""
    figure = Figure(figsize=(WIDTH, 3.4))
    axes = figure.subplots()
    names = {"bias": "regularisation", "privacy": "privacy noise", "labels": "label noise"}
    for position, (name, label) in enumerate(names.items()):
        if (bound[name] > 0).any():
            look = series_style(position) | {"marker": ""}
            axes.plot(bound.regularization, bound[name], label=label, **look)
    axes.plot(bound.regularization, bound.total, color=INK, lw=2.2, label="sum")
    axes.axhline(coef_norm, color=MUTED, linestyle=(0, (2, 2)), lw=1.1, label="the zero model")
    if best is not None:
        lowest = float(bound.total.min())
        axes.plot([best], [lowest], marker="o", color=INK, linestyle="none", markersize=7)
        axes.annotate(
            f"λ = {best:.3g}", (best, lowest), xytext=(6, -14), textcoords="offset points"
        )
    _log(axes)
    axes.set_yscale("log")
    axes.set_ylim(coef_norm * 1e-4, float(np.quantile(bound.total, 0.9)))
    axes.set_xlabel("λ, the regularisation (log scale)")
    axes.set_ylabel("bound on the distance to\nthe true model (log scale)")
    figure.legend(loc="outside upper left", ncols=5)
    return figure


def _parameter_axis(axes: Axes, parameter: str) -> None:
    """Name the horizontal axis, and make it logarithmic for parameters that span decades."""
    decades = parameter in ("regularization", "label_noise")
    axes.set_xlabel(PARAMETERS[parameter] + " (log scale)" * decades)
    if decades:
        _log(axes)


def _log(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(numticks=12))
    axes.xaxis.set_minor_formatter(NullFormatter())
