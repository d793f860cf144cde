"""What a contender costs at any size, and what taking the cheapest by that model loses."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from convexmarket.lab.study.measure import EXACT
from convexmarket.lab.study.metrics import CONTENDER, contender_key, groups, seconds, wide

__all__ = ["costs", "fit_cost", "predict", "regrets"]

_UNIT = 1000.0


def _powers(sizes: ArrayLike) -> NDArray[np.float64]:
    return np.vander(np.asarray(sizes, dtype=float) / _UNIT, 3, increasing=True)


def fit_cost(sizes: ArrayLike, times: ArrayLike) -> NDArray[np.float64]:
    """Fit ``time = a + b*(size/1000) + c*(size/1000)**2``, a, b, c >= 0, by relative errors.

    Examples
    --------
    >>> fit_cost([1000, 2000, 4000], [3.0, 5.0, 9.0]).round(9)
    array([1., 2., 0.])
    """
    known = np.asarray(times, dtype=float)
    found: NDArray[np.float64] = nnls(_powers(sizes) / known[:, None], np.ones(known.size))[0]
    return found


def predict(cost: ArrayLike, sizes: ArrayLike) -> NDArray[np.float64]:
    """Return the times that a fit expects at some sizes."""
    return _powers(sizes) @ np.asarray(cost, dtype=float)


def costs(runs: pd.DataFrame) -> pd.DataFrame:
    """Fit the first solve of every contender that solves all it was given, at two sizes or more.

    Returns
    -------
    DataFrame
        One row per class, setting and contender: constant, linear and quadratic, in seconds, for
        sizes in thousands.
    """
    rows: list[dict[str, Any]] = []
    for place, group in groups(runs):
        rows += [
            {**place, **contender_key(contender),
             **dict(zip(("constant", "linear", "quadratic"), cost, strict=True))}
            for contender, cost in _fitted(group).items()
        ]  # fmt: skip
    columns = ["problem_class", "setting", *CONTENDER, "constant", "linear", "quadratic"]
    return pd.DataFrame(rows, columns=columns)


def _fitted(group: pd.DataFrame) -> dict[Hashable, NDArray[np.float64]]:
    return {
        contender: fit_cost(own["size"], own.total_s)
        for contender, own in group[group.solver != EXACT].groupby(CONTENDER, sort=False)
        if (own.outcome == "solved").all() and own["size"].nunique() > 1
    }


def regrets(runs: pd.DataFrame) -> pd.DataFrame:
    """Choose a contender for the largest size from fits to the others, and see what that costs.

    Returns
    -------
    DataFrame
        One row per class and setting with three sizes or more: size (the largest), solver and
        formulation chosen, regret (geometric mean over the instances of its time, the limit where
        it does not solve, over that of the fastest on each), and worst_choice, the same of the
        contender that would have been the worst.
    """
    rows = []
    for place, group in groups(runs):
        largest = group["size"].max()
        known, held = group[group["size"] < largest], group[group["size"] == largest]
        fits = _fitted(known) if known["size"].nunique() > 1 else {}
        held = held[held.solver != EXACT]
        times = wide(held, seconds(held).where(held.outcome == "solved", held.time_limit_s))
        fits = {key: fit for key, fit in fits.items() if key in times}
        if not fits:
            continue
        chosen: Any = min(fits, key=lambda key: float(predict(fits[key], [largest])[0]))
        regret = np.exp(np.log(times.div(times.min(axis=1), axis=0)).mean())
        rows.append(
            {**place, "size": largest, **contender_key(chosen),
             "regret": float(regret[chosen]), "worst_choice": float(regret.max())}
        )  # fmt: skip
    columns = ["problem_class", "setting", "size", *CONTENDER, "regret", "worst_choice"]
    return pd.DataFrame(rows, columns=columns)
