"""Two contenders at a time: how much faster one is where both solve, and who solves alone."""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import DegenerateDataWarning, bootstrap

from convexmarket.lab.study.metrics import CONTENDER, contender_key, seconds, sized_groups, wide

__all__ = ["FEWEST_PAIRS", "bootstrap_interval", "pairs"]

#: Of fewer pairs, even if all agree, one in twenty such samples or more does so by chance
#: (``2 * 0.5**5 > 0.05``); there is no interval then.
FEWEST_PAIRS = 6

_CONFIDENCE = 0.95
_RESAMPLES = 1999
_SEED = 0


def bootstrap_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bootstrap's 95% interval of a mean: BCa, or percentiles where that degenerates.

    Parameters
    ----------
    values : ndarray, shape (n,)

    Returns
    -------
    low, high : float
        The same in every call; NaN for fewer than ``FEWEST_PAIRS`` values.
    """
    if values.size < FEWEST_PAIRS:
        return np.nan, np.nan
    if np.ptp(values) == 0.0:
        return float(values[0]), float(values[0])
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateDataWarning)
            interval = bootstrap(
                (values,),
                np.mean,
                n_resamples=_RESAMPLES,
                confidence_level=_CONFIDENCE,
                method=method,
                random_state=np.random.default_rng(_SEED),
            ).confidence_interval
        if np.isfinite(interval.low) and np.isfinite(interval.high):
            break
    return float(interval.low), float(interval.high)


def pairs(runs: pd.DataFrame) -> pd.DataFrame:
    """Compare every two contenders of a group on the instances that both were given.

    Parameters
    ----------
    runs : DataFrame

    Returns
    -------
    DataFrame
        One row per group and pair: solver and formulation; other_solver and other_formulation;
        instances (given to both), pairs (solved by both), ratio (geometric mean of the time of the
        first over that of the other, on these pairs), low and high (its 95% interval by bootstrap
        over the pairs), alone and other_alone (share of the instances that only one solves).
    """
    table = []
    for place, rows in sized_groups(runs):
        times = wide(rows, seconds(rows))
        for (one, first), (other, second) in combinations(times.items(), 2):
            found = _compared(first.to_numpy(), second.to_numpy())
            if found:
                others = {f"other_{name}": of for name, of in contender_key(other).items()}
                table.append({**place, **contender_key(one), **others, **found})
    return pd.DataFrame(table, columns=_COLUMNS)


def _compared(one: NDArray[np.float64], other: NDArray[np.float64]) -> dict[str, float]:
    """Compare the times of two contenders, instance by instance; nothing if they share none."""
    both = ~(np.isnan(one) | np.isnan(other))
    if not both.any():
        return {}
    first, second = np.isfinite(one[both]), np.isfinite(other[both])
    solved = first & second
    logs = np.log(one[both][solved]) - np.log(other[both][solved])
    low, high = np.exp(bootstrap_interval(logs))
    return {
        "instances": int(both.sum()),
        "pairs": logs.size,
        "ratio": float(np.exp(logs.mean())) if logs.size else np.nan,
        "low": float(low),
        "high": float(high),
        "alone": float((first & ~second).mean()),
        "other_alone": float((second & ~first).mean()),
    }


_COLUMNS = [
    *("problem_class", "setting", "size", *CONTENDER),
    *(f"other_{name}" for name in CONTENDER),
    *("instances", "pairs", "ratio", "low", "high", "alone", "other_alone"),
]
