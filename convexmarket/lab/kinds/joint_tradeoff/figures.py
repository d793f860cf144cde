"""The figures of the joint problem over gamma that the trade-off does not have."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from convexmarket.lab.report.figures import INK, MANY_POINTS, WIDTH, gamma_axis, series_style

__all__ = ["differences", "purchases"]


def differences(comparisons: pd.DataFrame) -> Figure:
    """Draw the joint model's overall error minus another's, one panel per scenario.

    Parameters
    ----------
    comparisons : pandas.DataFrame
        Columns scenario, gamma, overall, low and high, of one other model.
    """
    scenarios = list(comparisons.groupby("scenario", sort=False))
    figure = Figure(figsize=(WIDTH, 2.9))
    panels = figure.subplots(1, len(scenarios), sharey=True, squeeze=False)[0]
    look = {"color": series_style(0)["color"], "marker": "o", "linestyle": "none"}
    for axes, (scenario, rows) in zip(panels, scenarios, strict=True):
        axes.axhline(0.0, color=INK, lw=0.9)
        reach = np.array([rows.overall - rows.low, rows.high - rows.overall])
        axes.errorbar(rows.gamma, rows.overall, yerr=reach, capsize=3, **look)
        axes.set_title(f"{scenario} sensitivities")
        gamma_axis(axes, list(rows.gamma), len(scenarios))
        axes.set_xlabel("γ (log scale)")
        axes.yaxis.set_major_locator(MaxNLocator(6))
    panels[0].set_ylabel("difference in overall error")
    return figure


def purchases(sellers: pd.DataFrame) -> Figure:
    """Draw weights against loss and against sensitivity, one series per model.

    Parameters
    ----------
    sellers : pandas.DataFrame
        Columns model, weight, sensitivity and loss (under one and the same model), of one scenario
        and gamma.
    """
    figure = Figure(figsize=(WIDTH, 3.2))
    panels = figure.subplots(1, 2, sharey=True)
    names = {"loss": "loss of the row", "sensitivity": "sensitivity c (money per unit of ε)"}
    for axes, (column, label) in zip(panels, names.items(), strict=True):
        for position, (model, rows) in enumerate(sellers.groupby("model", sort=False)):
            look = series_style(position)
            axes.scatter(
                rows[column],
                len(rows) * rows.weight,
                s=13,
                marker=look["marker"],
                facecolors="none",
                edgecolors=look["color"],
                linewidths=0.9,
                label=model,
                rasterized=len(rows) > MANY_POINTS,
            )
        axes.set_xlabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    panels[0].set_ylabel("weight, in multiples of the average")
    panels[0].set_ylim(bottom=0)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2, markerscale=1.6
    )
    return figure
