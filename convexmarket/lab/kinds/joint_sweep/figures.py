"""The figures of a joint problem along a sweep: means over draws, with intervals of 95%."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from scipy.stats import t as student

from convexmarket.lab.report.figures import WIDTH, line_with_spread, value_axis
from convexmarket.lab.report.words import format_number

__all__ = ["WORDS", "errors", "losses", "purchase"]

#: What each measure is, in words.
WORDS = {
    "objective": "objective",
    "eta": "η",
    "n_bought": "sellers bought from",
    "weight_variance": "variance of the weights",
    "two_step_eta": "η, chosen without the data",
    "two_step_weight_variance": "variance of the weights, chosen without the data",
    "expected_payments": "expected payments",
    "train_error": "training error",
    "test_error": "test error",
    "noiseless_train_error": "training error without noise",
    "noiseless_test_error": "test error without noise",
    "empirical_loss": "weighted loss",
    "mean_loss": "unweighted loss",
    "residual": "residual",
}
_WIDE = 30
_DECADES = 1_000
_CONFIDENCE = 0.95


def errors(points: pd.DataFrame, label: str) -> Figure:
    """Draw training and test error of the released model, and the latter without noise."""
    figure = Figure(figsize=(WIDTH, 3.4))
    axes = figure.subplots()
    names = ("train_error", "test_error", "noiseless_test_error")
    _panel(axes, points, names, "Misclassified")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
    _sweep_axis(axes, points.x, label)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def losses(points: pd.DataFrame, label: str) -> Figure:
    """Draw the weighted and the unweighted loss of the released model."""
    figure = Figure(figsize=(WIDTH, 3.2))
    axes = figure.subplots()
    _panel(axes, points, ("empirical_loss", "mean_loss"), "Logistic loss")
    _sweep_axis(axes, points.x, label)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def purchase(points: pd.DataFrame, label: str) -> Figure:
    """Draw η, how many are bought from, the variance of the weights, and the objective."""
    figure = Figure(figsize=(WIDTH, 5.0))
    grid = figure.subplots(2, 2, sharex=True)
    _panel(grid[0, 0], points, ("eta", "two_step_eta"), "η, total privacy bought")
    _panel(grid[0, 1], points, ("n_bought",), "Sellers bought from")
    variances = ("weight_variance", "two_step_weight_variance")
    _panel(grid[1, 0], points, variances, "Variance of the weights")
    _panel(grid[1, 1], points, ("objective",), "Objective")
    for axes in grid[1]:
        _sweep_axis(axes, points.x, label, panels=2)
    handles, _ = grid[1, 0].get_legend_handles_labels()
    labels = ["joint problem", "chosen without looking at the data (η and variance)"]
    figure.legend(handles, labels[: len(handles)], loc="outside upper left", ncols=2)
    return figure


def _panel(axes: Axes, points: pd.DataFrame, names: Sequence[str], title: str) -> None:
    """Draw the means of some measures, each with the 95% interval of its mean."""
    shown = [name for name in names if points[name].notna().any()]
    degrees = np.maximum(points.solved.to_numpy() - 1, 1)
    factor = student.ppf((1 + _CONFIDENCE) / 2, degrees)
    for position, name in enumerate(shown):
        half = points[f"{name}_se"].fillna(0.0) * factor
        line_with_spread(axes, points.x, points[name], half, WORDS[name], position)
    values = pd.concat([points[name] for name in shown])
    axes.set_title(f"{title}{_value_scale(axes, values)}")


def _value_scale(axes: Axes, values: pd.Series) -> str:
    """Make the vertical axis logarithmic where that shows more; on both sides of zero if need be.

    Returns
    -------
    str
        What to say about the scale.
    """
    finite = values[np.isfinite(values)]
    sizes = finite.abs()[finite != 0]
    if len(finite) and finite.min() < 0 and sizes.max() > _WIDE * sizes.min():
        axes.set_yscale("symlog", linthresh=max(1.0, float(sizes.min())))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
        return " (log scale beyond ±1)" if sizes.min() <= 1 else " (log scale)"
    words = value_axis(axes, values)
    if words and sizes.max() > _DECADES * sizes.min():
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
    return words


def _sweep_axis(axes: Axes, values: pd.Series, label: str, panels: int = 1) -> None:
    """Make the horizontal axis that of the sweep; logarithmic where values span widely."""
    if values.min() > 0 and values.max() > _WIDE * values.min():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=10 // panels))
        axes.xaxis.set_minor_locator(NullLocator())
        label = f"{label} (log scale)"
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8 // panels))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    axes.set_xlabel(label)
