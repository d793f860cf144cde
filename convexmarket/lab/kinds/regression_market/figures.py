"""The figures of the market for ridge regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from convexmarket.lab.report.figures import INK, MUTED, WIDTH, series_style
from convexmarket.lab.report.words import format_number

__all__ = ["bound_terms", "error_over_payments", "market_and_one_price"]

#: Errors and losses beyond this many times the constant's are left out of the picture.
HIGHEST = 1.6
LOWEST_SHARE = -0.6


def error_over_payments(
    curve: pd.DataFrame, constant_rmse: float, plain_rmse: float, unit: str, money: str
) -> Figure:
    """Draw the test error over total payments, one panel per scenario, one line per lambda.

    Parameters
    ----------
    curve : pandas.DataFrame
        Columns scenario, regularization, payments, rmse, rmse_low and rmse_high.
    constant_rmse, plain_rmse : float
        Of predicting a constant, and of the best regression without noise.
    unit, money : str
        Of the errors and of the payments.
    """
    scenarios = list(curve.groupby("scenario", sort=False))
    figure = Figure(figsize=(WIDTH, 3.8))
    panels = figure.subplots(1, len(scenarios), sharey=True, squeeze=False)[0]
    for axes, (scenario, rows) in zip(panels, scenarios, strict=True):
        for position, (value, line) in enumerate(rows.groupby("regularization")):
            ordered, look = line.sort_values("payments"), series_style(position)
            axes.plot(ordered.payments, ordered.rmse, label=_named("λ", value), **look)
            axes.fill_between(
                ordered.payments,
                ordered.rmse_low,
                ordered.rmse_high,
                color=look["color"],
                alpha=0.14,
                lw=0,
            )
        axes.axhline(
            constant_rmse, color=INK, linestyle=(0, (8, 3)), lw=1.1, label="constant prediction"
        )
        axes.axhline(
            plain_rmse, color=MUTED, linestyle=(0, (2, 2)), lw=1.1, label="without privacy"
        )
        axes.set_title(f"{scenario} sensitivities")
        _money_axis(axes)
    _name_money(figure, money)
    panels[0].set_ylim(0, HIGHEST * constant_rmse)
    panels[0].yaxis.set_major_locator(MaxNLocator(6))
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    panels[0].set_ylabel(f"test RMSE ({unit})")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
    return figure


def market_and_one_price(curve: pd.DataFrame, money: str) -> Figure:
    """Draw the share explained by the market and by one price for all, one panel per lambda.

    Parameters
    ----------
    curve : pandas.DataFrame
        Columns regularization, payments, explained and uniform_explained, of one scenario.
    money : str
        The unit of payments.
    """
    groups = list(curve.groupby("regularization"))
    figure = Figure(figsize=(WIDTH, 3.2))
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (value, line) in zip(panels, groups, strict=True):
        ordered = line.sort_values("payments")
        for position, (column, name) in enumerate(
            (("explained", "the market"), ("uniform_explained", "one price for all"))
        ):
            axes.plot(ordered.payments, ordered[column], label=name, **series_style(position))
        axes.axhline(0.0, color=INK, lw=0.8)
        axes.set_title(_named("λ", value))
        _money_axis(axes)
    _name_money(figure, money)
    highest = float(np.nanmax(curve[["explained", "uniform_explained"]].to_numpy()))
    panels[0].set_ylim(LOWEST_SHARE, max(0.2, 1.15 * highest))
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
    panels[0].set_ylabel("share explained")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def bound_terms(curve: pd.DataFrame, coef_norm: float) -> Figure:
    """Draw the three terms of the bound as stacked bars over gamma, one panel per lambda.

    Parameters
    ----------
    curve : pandas.DataFrame
        Columns regularization, gamma, bias, privacy and labels, of one scenario.
    coef_norm : float
        What the bound is without any data: the norm of the true coefficients.
    """
    groups = list(curve.groupby("regularization"))
    figure = Figure(figsize=(WIDTH, 3.2))
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    words = {"bias": "bias", "labels": "noise of the labels", "privacy": "noise for privacy"}
    for axes, (value, rows) in zip(panels, groups, strict=True):
        ordered = rows.sort_values("gamma")
        places, bottom = np.arange(len(ordered)), np.zeros(len(ordered))
        for position, (column, name) in enumerate(words.items()):
            height = ordered[column].to_numpy()
            color = series_style(position)["color"]
            hatch = ("", "///", "...")[position]
            axes.bar(
                places, height, bottom=bottom, color=color, label=name, hatch=hatch, edgecolor="w"
            )
            bottom = bottom + height
        axes.axhline(
            coef_norm, color=INK, linestyle=(0, (8, 3)), lw=1.1, label="the zero model's error"
        )
        axes.set_title(_named("λ", value))
        axes.set_xticks(places, [format_number(gamma) for gamma in ordered.gamma], rotation=60)
        axes.set_xlabel("γ, weight of payments")
        axes.grid(axis="x", visible=False)
    panels[0].set_ylabel("bound on ‖θ* − θ̂‖")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure


def _name_money(figure: Figure, money: str) -> None:
    """Name the horizontal axis of all panels once: one label each has no room."""
    figure.supxlabel(f"total payments ({money}, log scale)", fontsize="medium")


def _money_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=9))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))


def _named(symbol: str, value: Any) -> str:
    return f"{symbol} = {format_number(value)}"
