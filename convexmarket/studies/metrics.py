"""Success rates, mean times and performance profiles of the contenders in a solver study.

A *contender* is a solver with a formulation. It is compared with the others of its *group*: the
runs of one problem class under one setting, of all sizes together or of one size. All functions
take a frame with a row per run. A run whose outcome is "unsupported" counts nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from convexmarket.studies.measure import EXACT
from convexmarket.studies.verdicts import OUTCOMES

__all__ = [
    "CONTENDER",
    "COUNTED",
    "FLOOR",
    "counted",
    "means",
    "profiles",
    "rates",
    "seconds",
    "shifted_geometric_mean",
    "step_function",
    "wide",
]

CONTENDER = ["solver", "formulation"]
INSTANCE = ["problem", "instance", "size", "seed"]
GROUP = ["problem_class", "setting"]
#: The outcomes of runs that count.
COUNTED = tuple(name for name in OUTCOMES if name != "unsupported")
#: The parts of the time of a run.
PARTS = ("declaration", "compilation", "solver", "recovery")
#: Seconds added to every time before the geometric mean, so that milliseconds do not decide it.
SHIFT = 0.01
#: Relative errors below this are rounding.
FLOOR = 1e-16

_CONFIDENCE = 0.95


def counted(runs: pd.DataFrame) -> pd.DataFrame:
    """Select the runs with a solver that supports the problem."""
    return runs[runs.outcome != "unsupported"]


def _groups(runs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the labels and the rows of each class and setting: all sizes (NaN), then each."""
    for labels, rows in counted(runs).groupby(GROUP, sort=False):
        place = dict(zip(GROUP, labels, strict=True))
        yield {**place, "size": np.nan}, rows
        for size, sized in rows.groupby("size", sort=True):
            yield {**place, "size": float(str(size))}, sized


def _contenders(rows: pd.DataFrame) -> Iterator[tuple[Any, dict[str, Any], pd.DataFrame]]:
    for contender, part in rows.groupby(CONTENDER, sort=False):
        yield contender, dict(zip(CONTENDER, contender, strict=True)), part


def rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Count the outcomes of each contender, one row per group and contender.

    success is the share solved and wrong_rate the share of wrong answers, each with the ends of
    Wilson's 95 % interval. The size is NaN where all sizes are together.
    """
    table = []
    for place, rows in _groups(runs):
        for _, labels, part in _contenders(rows):
            counts = {name.replace(" ", "_"): int((part.outcome == name).sum()) for name in COUNTED}
            row = {**place, **labels, "runs": len(part), **counts}
            for name, count in (("success", counts["solved"]), ("wrong_rate", counts["wrong"])):
                ends = binomtest(count, len(part)).proportion_ci(_CONFIDENCE, method="wilson")
                row |= {name: count / len(part), f"{name}_low": ends.low, f"{name}_high": ends.high}
            table.append(row)
    return pd.DataFrame(table)


def shifted_geometric_mean(values: pd.DataFrame, shift: float = SHIFT) -> pd.Series:
    """Return the geometric mean of each column plus a shift, less the shift.

    Examples
    --------
    >>> shifted_geometric_mean(pd.DataFrame({"x": [1.0, 7.0]}), shift=1.0)["x"].round(12)
    np.float64(3.0)
    """
    return (values + shift).transform(np.log).mean(skipna=False).transform(np.exp) - shift


def seconds(runs: pd.DataFrame) -> pd.Series:
    """Return the time of the first solve of each run; infinite for unsolved runs."""
    return runs.total_s.where(runs.outcome == "solved", np.inf)


def _again_seconds(runs: pd.DataFrame) -> pd.Series:
    """Return the time of the second solve of each run; NaN for contenders without one."""
    requested = runs.again_total_s.notna()
    known = runs.again_total_s.where(requested & (runs.outcome == "solved"), np.inf)
    return known.where(requested.groupby([runs[name] for name in CONTENDER]).transform("any"))


def wide(runs: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Pivot values to a row per instance and a column per contender, in order of appearance.

    NaN stands where a contender was not given an instance.
    """
    order = pd.MultiIndex.from_frame(runs[CONTENDER].drop_duplicates())
    table = runs.assign(value=values).pivot(index=INSTANCE, columns=CONTENDER, values="value")
    return table[order]


def means(runs: pd.DataFrame, shift: float = SHIFT) -> pd.DataFrame:
    """Compare the mean times of contenders on their common instances.

    A run that does not solve counts as its time limit. Contenders that were given all instances of
    the group are compared on all of them, and the others have no mean. Without such contenders,
    all are compared on their common instances.

    Returns
    -------
    DataFrame
        One row per group and contender: instances (their number), total_s and again_total_s
        (shifted geometric means of the first and the second solve), relative and again_relative
        (divided by the group's smallest), again_ratio (geometric mean of second to first solve,
        where both are right), warm_ratio (of the solver's part of the second with a warm start to
        that without), ``<part>_share`` of the time of solved runs, accuracy (median) and
        peak_memory_mb (the largest).
    """
    table = []
    for place, rows in _groups(runs):
        times = {"": seconds(rows), "again_": _again_seconds(rows)}
        shared = {name: _shared_means(rows, column, shift) for name, column in times.items()}
        rows = rows.assign(ratio=times["again_"] / times[""])
        for contender, labels, part in _contenders(rows):
            row: dict[str, Any] = {**place, **labels, "instances": shared[""][contender][0]}
            for name, ranks in shared.items():
                row |= dict(
                    zip((f"{name}total_s", f"{name}relative"), ranks[contender][1:], strict=True)
                )
            solved = part[part.outcome == "solved"]
            warm = solved.again_solver_s / solved.again_cold_s
            for name, ratios in (
                ("again_ratio", part.ratio[np.isfinite(part.ratio)]),
                ("warm_ratio", warm),
            ):
                row[name] = np.exp(np.log(ratios).mean())
            row |= {f"{p}_share": (solved[f"{p}_s"] / solved.total_s).mean() for p in PARTS}
            row["accuracy"] = part.accuracy.where(np.isfinite(part.accuracy)).median()
            row["peak_memory_mb"] = part.peak_memory_mb.max()
            table.append(row)
    return pd.DataFrame(table)


def _shared_means(rows: pd.DataFrame, times: pd.Series, shift: float) -> dict[Any, Any]:
    """Return for each contender the number of shared instances, the mean, and its ratio."""
    table = wide(rows, times.where(times != np.inf, rows.time_limit_s))
    shared = table if table.notna().all().any() else table.dropna()
    mean = shifted_geometric_mean(shared, shift)
    counts = np.where(mean.isna(), 0, len(shared))
    return dict(zip(table.columns, zip(counts, mean, mean / mean.min(), strict=True), strict=True))


def step_function(values: ArrayLike, start: float) -> pd.DataFrame:
    """Return the share of values that are at most tau, for increasing tau from ``start``.

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
    """Return performance profiles of time and of accuracy, over all sizes of a group.

    Of time, tau is the ratio to the fastest solver on the same instance (Dolan and Moré, 2002); the
    exact method takes no part. Of accuracy, tau is the accuracy itself, at least ``FLOOR``. The
    shares are of the instances that the contender was given, solved or not.
    """
    pieces = []
    for place, rows in _groups(runs):
        if not np.isnan(place.pop("size")):
            continue
        solvers = rows[rows.solver != EXACT]
        times = wide(solvers, seconds(solvers))
        fastest = times.min(axis=1)
        ratios = times.div(fastest.where(np.isfinite(fastest), 1.0), axis=0)
        accuracies = wide(rows, rows.accuracy.fillna(np.inf))
        for of, table, start in (("time", ratios, 1.0), ("accuracy", accuracies, FLOOR)):
            for contender in table.columns.tolist():
                key = {**place, "of": of, **dict(zip(CONTENDER, contender, strict=True))}
                steps = step_function(table[contender].dropna(), start)
                pieces.append(pd.DataFrame(key, index=steps.index).join(steps))
    return pd.concat(pieces, ignore_index=True)
