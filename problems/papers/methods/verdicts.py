"""Verdicts on curves from paired draws.

Each draw has a value at every point of a curve. Points are compared within each draw, so adding a
constant to a curve has no effect. Each function accepts an array of shape (draws, points). It
returns whether each part of a claim holds, and a text with the measurement.
"""

from itertools import pairwise

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from scipy.stats import linregress

from convexmarket.report import compare


def falls(values):
    """Check that curves decrease from end to end without a significant increase between points."""
    steps = [compare(b, a).verdict != "higher" for a, b in pairwise(values.T)]
    ends = compare(values[:, -1], values[:, 0])
    text = f"from {ends.mean_b:.3g} to {ends.mean_a:.3g} ({ends.interval})"
    return [ends.verdict == "lower", all(steps)], text


def rises(values):
    """Check that curves increase, as in :func:`falls`."""
    ends = compare(values[:, -1], values[:, 0])
    return falls(-values)[0], f"from {ends.mean_b:.3g} to {ends.mean_a:.3g} ({ends.interval})"


def falls_then_rises(values):
    """Check that curves decrease to their lowest point and then increase."""
    first, lowest, last = (values[:, k] for k in (0, values.mean(axis=0).argmin(), -1))
    text = f"from {first.mean():.3g} to a minimum of {lowest.mean():.3g}, then {last.mean():.3g}"
    return [compare(lowest, end).verdict == "lower" for end in (first, last)], text


def vanishes(values):
    """Check that the mean decreases to at most 1% of its first value."""
    ends = compare(values[:, -1], values[:, 0])
    gone = bool(abs(ends.mean_a) <= 0.01 * abs(ends.mean_b))
    return [ends.verdict == "lower", gone], f"from {ends.mean_b:.3g} to {ends.mean_a:.3g}"


def stays(values):
    """Check that no mean differs from the first mean by more than 5%."""
    means = values.mean(axis=0)
    holds = np.abs(means - means[0]) <= 0.05 * abs(means[0])
    return bool(holds.all()), f"between {means.min():.3g} and {means.max():.3g}"


def approaches_one(values):
    """Check that the distance to 1 decreases, on a log scale, to at most 0.01."""
    distance = np.abs(values - 1.0)
    holds, _ = falls(np.log(np.maximum(distance, 1e-12)))
    first, last = distance.mean(axis=0)[[0, -1]]
    return [*holds, bool(last <= 0.01)], f"distance to 1 from {first:.3g} to {last:.3g}"


def power_fit(sizes, means):
    """Fit a power of the size to positive means.

    Returns
    -------
    Series
        slope (the exponent), low and high (its 95% interval from the scatter of the points), last
        (the exponent between the last two sizes), n_points.
    """
    x, y = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(means, dtype=float))
    line = linregress(x, y)
    half = stdtrit(x.size - 2, 0.975) * line.stderr if x.size > 2 else np.inf
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    result = [line.slope, line.slope - half, line.slope + half, last, x.size]
    return pd.Series(result, index=["slope", "low", "high", "last", "n_points"])


def falls_as_power(sizes, values, exponent):
    """Check that both ends of the 95% interval of the exponent are at most the given exponent."""
    fit = power_fit(sizes, values.mean(axis=0))
    interval = f"95% interval {fit.low:.3f} to {fit.high:.3f}" if fit.n_points > 2 else "two sizes"
    text = f"exponent {fit.slope:.3f} ({interval})"
    return [bool(fit.low <= exponent), bool(fit.high <= exponent)], text


def curves(draws, measure, along):
    """Return the curves of the draws with only finite values, as an array (draws, points)."""
    names, rows = np.unique(draws["draw"], return_inverse=True)
    points, columns = np.unique(draws[along], return_inverse=True)
    if len(set(zip(rows.tolist(), columns.tolist(), strict=True))) < len(draws):
        raise ValueError("a draw has several values at one point")
    values = np.full((names.size, points.size), np.nan)
    values[rows, columns] = draws[measure]
    return values[np.isfinite(values).all(axis=1)]


def mean_interval(values, name):
    """Return the mean and the 95% interval of the finite values as a dictionary."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if known.size == 0:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    half = np.nan
    if known.size > 1:
        half = stdtrit(known.size - 1, 0.975) * known.std(ddof=1) / np.sqrt(known.size)
    mean = known.mean()
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
