"""Verdicts on curves, from paired draws.

Each draw has a value at every point of a curve, so that luck that the points share does not count
as a difference between them. A verdict is whether a claim holds, and what was measured. Where a
part of a claim holds, the verdict is False and its text begins with "in part".
"""

import numpy as np
import pandas as pd
from scipy.stats import linregress, t

ROUNDING = 1e-12


def change(before, after):
    """Mean of the paired differences ``after - before``, with the ends of its 95% interval."""
    first, second = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    moved = second - first
    rounding = ROUNDING * np.abs([first, second]).max()
    if np.ptp(moved) <= rounding:
        mean = 0.0 if abs(moved.mean()) <= rounding else moved.mean()
        return mean, mean, mean
    half = t.ppf(0.975, moved.size - 1) * moved.std(ddof=1) / np.sqrt(moved.size)
    return moved.mean(), moved.mean() - half, moved.mean() + half


def interval(found):
    """Write a mean and its interval."""
    return "{:+.3g} (95% interval {:+.3g} to {:+.3g})".format(*found)


def falls(values):
    """Check that curves fall: from end to end, and never significantly rise between neighbours.

    ``values`` has a row for each draw and a column for each point; so in all functions below.
    """
    steps = [change(a, b) for a, b in zip(values.T, values.T[1:], strict=False)]
    against = sum(low > 0 for _, low, _ in steps)
    ends = change(values[:, 0], values[:, -1])
    text = f"from {values[:, 0].mean():.3g} to {values[:, -1].mean():.3g}: {interval(ends)}"
    if ends[2] >= 0:
        return False, text
    if against:
        return False, f"in part: {text}; {against} of {len(steps)} steps the other way"
    return True, text


def rises(values):
    """Check that curves rise, as :func:`falls` does."""
    holds, _ = falls(-values)
    ends = change(values[:, 0], values[:, -1])
    text = f"from {values[:, 0].mean():.3g} to {values[:, -1].mean():.3g}: {interval(ends)}"
    return holds, f"in part: {text}" if ends[1] > 0 and not holds else text


def falls_then_rises(values):
    """Check that curves fall to their lowest point and rise from there."""
    means = values.mean(axis=0)
    lowest = int(means.argmin())
    down, up = change(values[:, 0], values[:, lowest]), change(values[:, lowest], values[:, -1])
    text = f"{means[0]:.3g}, at its lowest {means[lowest]:.3g}, at last {means[-1]:.3g}"
    parts = (down[2] < 0) + (up[1] > 0)
    return parts == 2, ("in part: " if parts == 1 else "") + text


def vanishes(values):
    """Check that the mean falls to at most 1% of its first value."""
    first, last = values[:, 0].mean(), values[:, -1].mean()
    holds = abs(last) <= 0.01 * abs(first)
    part = not holds and change(values[:, 0], values[:, -1])[2] < 0
    return holds, f"{'in part: ' if part else ''}from {first:.3g} to {last:.3g}"


def stays(values):
    """Check that no mean is off the first by more than 5% of it."""
    means = values.mean(axis=0)
    holds = bool(np.abs(means - means[0]).max() <= 0.05 * abs(means[0]))
    return holds, f"between {means.min():.3g} and {means.max():.3g}"


def approaches_one(values):
    """Check that the distance to 1 falls, by its logarithm, to at most 0.01."""
    distance = np.abs(values - 1.0)
    logs = np.log(np.maximum(distance, ROUNDING))
    holds, _ = falls(logs)
    first, last = distance.mean(axis=0)[[0, -1]]
    factor = np.exp(change(logs[:, 0], logs[:, -1]))
    part = factor[2] < 1 and not (holds and last <= 0.01)
    text = f"distance to 1 from {first:.3g} to {last:.3g}, by a factor of {factor[0]:.2g}"
    return holds and last <= 0.01, f"{'in part: ' if part else ''}{text}"


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
    half = t.ppf(0.975, x.size - 2) * line.stderr if x.size > 2 else np.inf
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    found = [line.slope, line.slope - half, line.slope + half, last, x.size]
    return pd.Series(found, index=["slope", "low", "high", "last", "n_points"])


def falls_as_power(sizes, values, exponent):
    """Check that means fall at least as fast as a power of the size; in part if they may."""
    fit = power_fit(sizes, values.mean(axis=0))
    text = f"exponent {fit.slope:.3f} (95% interval {fit.low:.3f} to {fit.high:.3f})"
    part = fit.low <= exponent < fit.high
    return fit.high <= exponent, f"{'in part: ' if part else ''}{text}"


def curves(draws, measure, along):
    """Return one curve for each draw that has finite values at every point, (draws, points)."""
    wide = draws.pivot_table(index="draw", columns=along, values=measure, dropna=False)
    values = wide.to_numpy(dtype=float)
    return values[np.isfinite(values).all(axis=1)]


def mean_interval(values, name):
    """Mean and 95% interval of finite values, as entries of a row."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if known.size == 0:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    half = np.nan
    if known.size > 1:
        half = t.ppf(0.975, known.size - 1) * known.std(ddof=1) / np.sqrt(known.size)
    mean = known.mean()
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
