"""What the runs of a solver study say of each contender: how often it solves, and at what cost.

A *contender* is a solver with a formulation. It is compared with others of its *group*: the runs of
one problem class under one setting, of all sizes together or of one size. An *instance* is what
contenders share: a problem of given numbers. All functions take a frame with a row per run and
return a frame. A run solves if its outcome is "solved", which is said of both of its solves
together; one whose outcome is "unsupported" counts nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from convexmarket.studies.verdicts import OUTCOMES

__all__ = [
    "CONTENDER",
    "COUNTED",
    "INSTANCE",
    "PARTS",
    "SHIFT",
    "contender_key",
    "counted",
    "groups",
    "means",
    "rates",
    "resolve_seconds",
    "seconds",
    "shifted_geometric_mean",
    "sized_groups",
    "wide",
]

CONTENDER = ["solver", "formulation"]
INSTANCE = ["problem", "instance", "size", "seed"]
#: What a run that counts can come to.
COUNTED = tuple(name for name in OUTCOMES if name != "unsupported")
#: What the time of a run is spent on.
PARTS = ("declaration", "compilation", "solver", "recovery")
#: Seconds added to every time before the geometric mean, so that milliseconds do not decide it.
SHIFT = 0.01

_CONFIDENCE = 0.95


def counted(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose solver can take the problem."""
    return runs[runs.outcome != "unsupported"]


def groups(runs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Split runs into groups, class by class and setting by setting.

    Yields
    ------
    place : dict
        problem_class and setting.
    rows : DataFrame
        The runs of the group that count, of all sizes.
    """
    kinds = counted(runs).groupby(["problem_class", "setting"], sort=False)
    for (problem_class, setting), rows in kinds:
        yield {"problem_class": problem_class, "setting": setting}, rows


def sized_groups(runs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Split runs into groups of all sizes, each followed by its groups of one size.

    Yields
    ------
    place : dict
        problem_class, setting and size; NaN stands for all sizes together.
    rows : DataFrame
        The runs of the group that count.
    """
    for place, rows in groups(runs):
        yield {**place, "size": np.nan}, rows
        for size, sized in rows.groupby("size", sort=True):
            yield {**place, "size": float(str(size))}, sized


def contender_key(contender: Any) -> dict[str, str]:
    """Return the columns that tell a contender from others, from the key of its group."""
    return dict(zip(CONTENDER, contender, strict=True))


def rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Count outcomes, and bound how often a contender solves and how often it is wrong.

    Parameters
    ----------
    runs : DataFrame
        Columns problem_class, setting, size, solver, formulation and outcome.

    Returns
    -------
    DataFrame
        One row per group and contender: runs, a count of each outcome, success (the share solved)
        and wrong_rate, each with the ends of Wilson's 95% interval (``_low``, ``_high``). The size
        is NaN where all sizes are together.
    """
    table = []
    for place, rows in sized_groups(runs):
        for contender, own in rows.groupby(CONTENDER, sort=False):
            found = Counter(own.outcome)
            counts = {name.replace(" ", "_"): found[name] for name in COUNTED}
            table.append(
                {
                    **place,
                    **contender_key(contender),
                    "runs": len(own),
                    **counts,
                    **_rate("success", counts["solved"], len(own)),
                    **_rate("wrong_rate", counts["wrong"], len(own)),
                }
            )
    return pd.DataFrame(table)


def _rate(name: str, part: int, whole: int) -> dict[str, float]:
    interval = binomtest(part, whole).proportion_ci(_CONFIDENCE, method="wilson")
    return {name: part / whole, f"{name}_low": interval.low, f"{name}_high": interval.high}


def shifted_geometric_mean(values: pd.DataFrame, shift: float = SHIFT) -> pd.Series:
    """Return the geometric mean of each column plus a shift, less the shift.

    Examples
    --------
    >>> shifted_geometric_mean(pd.DataFrame({"x": [1.0, 7.0]}), shift=1.0)["x"].round(12)
    np.float64(3.0)
    """
    return (values + shift).transform(np.log).mean(skipna=False).transform(np.exp) - shift


def seconds(runs: pd.DataFrame) -> pd.Series:
    """Return the time of the first solve of each run; infinite where it did not solve."""
    return runs.total_s.where(runs.outcome == "solved", np.inf)


def resolve_seconds(runs: pd.DataFrame) -> pd.Series:
    """Return the time of the second solve of each run; infinite where it did not solve.

    A contender that is never asked to solve again keeps NaN.
    """
    asked = runs.again_total_s.notna()
    known = runs.again_total_s.where(asked & (runs.outcome == "solved"), np.inf)
    return known.where(asked.groupby([runs[name] for name in CONTENDER]).transform("any"))


def wide(runs: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Lay values out with a row per instance and a column per contender, in order of appearance.

    NaN stands where a contender was not given an instance.
    """
    order = pd.MultiIndex.from_frame(runs[CONTENDER].drop_duplicates())
    table = runs.assign(value=values).pivot(index=INSTANCE, columns=CONTENDER, values="value")
    return table[order]


def means(runs: pd.DataFrame, shift: float = SHIFT) -> pd.DataFrame:
    """Compare what contenders take, on the instances that they share.

    A run that does not solve counts as long as its time limit. Where some contenders were given
    all instances of the group, these are compared on all of them, and the others have no mean;
    where none was, all are compared on the instances that every one was given.

    Parameters
    ----------
    runs : DataFrame
    shift : float
        Seconds; see :func:`shifted_geometric_mean`.

    Returns
    -------
    DataFrame
        One row per group and contender: instances (how many the means are over), total_s and
        again_total_s (shifted geometric means of the first and the second solve, in seconds),
        relative and again_relative (divided by the group's smallest), again_ratio (geometric mean
        of second to first solve, where both are right), warm_ratio (of the solver's part of the
        second with a warm start to that without), ``<part>_share`` of the time of solved
        runs, on average, accuracy (median over the runs that have one) and peak_memory_mb (the
        largest).
    """
    table = []
    for place, rows in sized_groups(runs):
        rows = rows.assign(first=seconds(rows), again=resolve_seconds(rows))
        first = _shared_means(rows, rows["first"], shift)
        again = _shared_means(rows, rows["again"], shift)
        for contender, own in rows.groupby(CONTENDER, sort=False):
            instances, total, relative = first[contender]
            _, again_total, again_relative = again[contender]
            ratio = own["again"] / own["first"]
            ratio = ratio[np.isfinite(ratio)]
            solved = own[own.outcome == "solved"]
            warm = solved.again_solver_s / solved.again_cold_s
            table.append(
                {
                    **place,
                    **contender_key(contender),
                    "instances": instances,
                    "total_s": total,
                    "relative": relative,
                    "again_total_s": again_total,
                    "again_relative": again_relative,
                    "again_ratio": np.exp(np.log(ratio).mean()),
                    "warm_ratio": np.exp(np.log(warm).mean()),
                    **{
                        f"{part}_share": (solved[f"{part}_s"] / solved.total_s).mean()
                        for part in PARTS
                    },
                    "accuracy": own.accuracy.where(np.isfinite(own.accuracy)).median(),
                    "peak_memory_mb": own.peak_memory_mb.max(),
                }
            )
    return pd.DataFrame(table)


def _shared_means(
    rows: pd.DataFrame, times: pd.Series, shift: float
) -> dict[Hashable, tuple[int, float, float]]:
    """Return of each contender how many instances its mean is over, the mean, and its ratio."""
    table = wide(rows, times.where(times != np.inf, rows.time_limit_s))
    full = table.notna().all()
    shared = table if full.any() else table.dropna()
    mean = shifted_geometric_mean(shared, shift)
    relative = mean / mean.min()
    return {
        contender: (
            0 if np.isnan(mean[contender]) else len(shared),
            mean[contender],
            relative[contender],
        )
        for contender in table.columns
    }
