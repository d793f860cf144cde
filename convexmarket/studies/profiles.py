"""Performance profiles: the share of instances that a contender solves within a factor of the best.

E. D. Dolan and J. J. Moré, Benchmarking optimization software with performance profiles,
Mathematical Programming 91, 2002.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from convexmarket.studies.measure import EXACT
from convexmarket.studies.metrics import contender_key, groups, seconds, wide

__all__ = ["FLOOR", "profiles", "step_function"]

#: A relative error below it is rounding.
FLOOR = 1e-16


def step_function(values: ArrayLike, start: float) -> pd.DataFrame:
    """Return which share of the values is at most tau, as a function of tau.

    Parameters
    ----------
    values : array_like, shape (n,)
        Infinite where nothing was reached.
    start : float
        The smallest tau.

    Returns
    -------
    DataFrame
        Columns tau (increasing, from ``start``) and share; the share holds up to the next tau, and
        the last share for ever.

    Examples
    --------
    >>> step_function([2.0, 1.0, np.inf, 2.0], start=1.0).to_numpy().tolist()
    [[1.0, 0.25], [2.0, 0.75]]
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    finite = ordered[np.isfinite(ordered)]
    tau = np.unique(np.append(finite[finite > start], start))
    share = np.searchsorted(ordered, tau, side="right") / ordered.size
    return pd.DataFrame({"tau": tau, "share": share})


def profiles(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the profiles of time and of accuracy of every contender, over all sizes of a group.

    Of time, tau is the ratio to the fastest solver on the same instance; the exact method, which
    is no solver, takes no part. Of accuracy, tau is the accuracy itself, not a ratio, because it
    needs no comparison to mean something; answers that are exact to rounding count as ``FLOOR``.
    What a contender does not solve, it does at no tau; of accuracy, that is what has no answer to
    measure. The shares are of the instances that the contender was given.

    Parameters
    ----------
    runs : DataFrame

    Returns
    -------
    DataFrame
        Columns problem_class, setting, of ("time" or "accuracy"), solver, formulation, tau and
        share.
    """
    pieces = []
    for place, rows in groups(runs):
        solvers = rows[rows.solver != EXACT]
        times = wide(solvers, seconds(solvers))
        fastest = times.min(axis=1)
        ratios = times.div(fastest.where(np.isfinite(fastest), 1.0), axis=0)
        accuracies = wide(rows, rows.accuracy.fillna(np.inf))
        for of, table, start in (("time", ratios, 1.0), ("accuracy", accuracies, FLOOR)):
            for contender in table:
                key = {**place, "of": of, **contender_key(contender)}
                steps = step_function(table[contender].dropna(), start)
                pieces.append(pd.DataFrame(key, index=steps.index).join(steps))
    return pd.concat(pieces, ignore_index=True)
