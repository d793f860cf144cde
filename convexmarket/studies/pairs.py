"""Two contenders: how much faster one is where both solve."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import DegenerateDataWarning, bootstrap

from convexmarket.studies.metrics import CONTENDER, seconds, wide

__all__ = ["FEWEST_PAIRS", "bootstrap_interval", "time_ratio"]

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


def time_ratio(
    runs: pd.DataFrame, one: Mapping[Any, Any], other: Mapping[Any, Any]
) -> dict[str, float]:
    """Compare the times of two contenders on the instances that both solve.

    Parameters
    ----------
    runs : DataFrame
        Of one class and setting.
    one, other : mapping
        With solver and formulation.

    Returns
    -------
    dict
        ratio (geometric mean of the time of the first over that of the other), low and high (its
        95% interval by bootstrap over the instances); NaN for fewer than ``FEWEST_PAIRS``.
    """
    times = wide(runs, seconds(runs))
    logs = np.log(times[tuple(one[name] for name in CONTENDER)])
    logs = (logs - np.log(times[tuple(other[name] for name in CONTENDER)])).to_numpy()
    logs = logs[np.isfinite(logs)]
    ratio = np.exp(logs.mean()) if logs.size else np.nan
    low, high = np.exp(bootstrap_interval(logs))
    return {"ratio": float(ratio), "low": float(low), "high": float(high)}
