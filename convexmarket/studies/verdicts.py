"""Outcomes of the runs of a solver study, and their rates, mean times and profiles.

A *contender* is a solver with a formulation. Contenders are compared within a *group*: the runs of
one problem class under one setting, of all sizes together or of one size. Runs with the outcome
"unsupported" are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy.stats import binomtest

from convexmarket.studies.execution import ending
from convexmarket.studies.measure import AGAIN, EXACT, REFERENCE, RESIDUALS

#: The outcomes of runs that count.
COUNTED = ("solved", "wrong", "inaccurate", "failed", "time limit", "memory limit", "crashed")
#: Key columns of an instance, a run, a contender and a group.
INSTANCE = ("problem", "problem_class", "instance", "size", "seed")
RUN = (*INSTANCE, "setting", "formulation", "solver")
CONTENDER = ["solver", "formulation"]
GROUP = ["problem_class", "setting"]
#: Relative errors below this are rounding.
FLOOR = 1e-16

#: Largest residual of a proven value, and the relative improvement by which a proven value refutes
#: a reference.
_VERIFIED, _REFUTES = 1e-6, 1e-5
#: Seconds added to every time before the geometric mean, which reduces the effect of milliseconds.
_SHIFT = 0.01
#: Numerical measurements of each solve, and of a run.
OF_SOLVE: tuple[str, ...] = ("compilation_s", "solver_s", "recovery_s", "total_s", "iterations")
OF_SOLVE += ("objective", "scale", *RESIDUALS)
_OF_RUN = ("declaration_s", "again_cold_s", "peak_memory_mb")
#: Measurements of a run without any.
_BLANK: dict[str, Any] = {
    prefix + name: "" for prefix in ("", AGAIN) for name in ("status", "message")
}
_BLANK |= {prefix + name: np.nan for prefix in ("", AGAIN) for name in OF_SOLVE}
_BLANK |= {"solver_version": "", "core": -1} | dict.fromkeys(_OF_RUN, np.nan)
_OF_REPLY = ("status", "peak_memory_mb", "core")

#: The labels and the results of a run.
Record = tuple[Mapping[str, Any], Mapping[str, Any]]


def outcome_of(status: str, accuracy: float, tolerance: float) -> str:
    """Return the outcome of a solve within the limits, from a status in CVXPY's spelling.

    It is "solved" if the status is optimal or inaccurate and the computed accuracy suffices;
    "wrong" if the status is optimal and the accuracy does not suffice, or if the status is
    infeasible or unbounded (all problems have an optimum); "inaccurate" for other inaccurate
    statuses; "unsupported"; and otherwise "failed".
    """
    if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, EXACT) and accuracy <= tolerance:
        return "solved"
    if status in (cp.OPTIMAL, EXACT, cp.INFEASIBLE, cp.UNBOUNDED):
        return "wrong"
    if status.endswith("_inaccurate"):
        return "inaccurate"
    return "unsupported" if status == "unsupported" else "failed"


def references_of(records: Sequence[Record]) -> pd.DataFrame:
    """Return the objectives that runs are compared with, one row per instance.

    The records of references come first. A run with tiny residuals and a better value than the
    reference refutes and replaces it, even if the reference is an exact method. ``certainty`` is
    "exact", "refuted", "none" or describes the residuals; ``doubt`` is the uncertainty.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for labels, reply in records:
        place, result = tuple(labels[name] for name in INSTANCE), reply.get("result", {})
        if labels["setting"] == REFERENCE:
            rows[place] = dict(zip(INSTANCE, place, strict=True)) | {
                "certainty": result.get("certainty", "none"),
                "doubt": result.get("doubt", np.nan),
                "reference": result.get("objective", np.nan),
                "again_reference": result.get("again_objective", np.nan),
                "message": result.get("message", "") or ending(reply),
            }
            continue
        row = rows[place]
        for prefix in ("", AGAIN):
            if result.get(prefix + "status") not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
                continue
            value, reference = result[prefix + "objective"], row[prefix + "reference"]
            least = _REFUTES * max(abs(reference), result[prefix + "scale"])
            proven = max(result[prefix + name] for name in RESIDUALS) <= _VERIFIED
            if proven and np.isfinite(value) and value < reference - least:
                row |= {prefix + "reference": value, "certainty": "refuted", "doubt": _VERIFIED}
                row["message"] = f"{labels['solver']}, {labels['formulation']} has a better value"
    return pd.DataFrame(rows.values()).sort_values(list(INSTANCE), ignore_index=True)


def judge(
    records: Iterable[Record], references: pd.DataFrame, tolerances: Mapping[str, float]
) -> pd.DataFrame:
    """Judge the runs, without references: one row each with labels, measurements and outcome.

    The tolerance of a setting bounds the accuracy. A reference with an uncertainty above the
    tolerance is not used.
    """
    rows = []
    for labels, reply in records:
        if labels["setting"] != REFERENCE:
            known = {name: reply[name] for name in _OF_REPLY if name in reply}
            row = {**labels, **_BLANK, **known, **reply.get("result", {}), "ended": reply["ended"]}
            rows.append(row | {"message": row["message"] or ending(reply)})
    targets = references[[*INSTANCE, "certainty", "doubt", "reference", "again_reference"]]
    runs = pd.DataFrame(rows).merge(targets, on=list(INSTANCE))
    runs["tolerance"] = runs.setting.map(tolerances)
    trusted = runs.pop("doubt") <= runs.tolerance
    outcomes = runs.pop("ended").replace({"finished": "solved", "error": "failed"})
    for prefix in ("", AGAIN):
        reference = runs[prefix + "reference"].where(trusted)
        value, size = runs[prefix + "objective"], runs.pop(prefix + "scale")
        least = np.fmax(np.fmax(reference.abs(), size), np.finfo(float).tiny)
        excess: pd.Series = (value - reference) / least
        # Without a reference, residuals are used; without an objective, the answer is not verified.
        errors = runs[[prefix + name for name in RESIDUALS]]
        errors = errors.assign(excess=excess.abs().where(reference.notna(), 0.0))
        accuracy = errors.max(axis=1, skipna=False).where(np.isfinite(value), np.inf)
        for name, column in (("reference", reference), ("excess", excess), ("accuracy", accuracy)):
            runs[prefix + name] = column
        solves = zip(runs[prefix + "status"], accuracy, runs.tolerance, strict=True)
        judged = pd.Series([outcome_of(*solve) for solve in solves], index=runs.index)
        outcomes = outcomes.where((outcomes != "solved") | (runs[prefix + "status"] == ""), judged)
    return runs.assign(outcome=outcomes).sort_values(list(RUN), ignore_index=True)


# ---------------------------------------------------------------------------- the summaries


def counted(runs: pd.DataFrame) -> pd.DataFrame:
    """Select the runs with a solver that supports the problem."""
    return runs[runs.outcome != "unsupported"]


def _groups(runs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the labels and the rows of each class and setting: all sizes (NaN), then each."""
    for labels, rows in counted(runs).groupby(GROUP, sort=False):
        for size in (np.nan, *sorted(rows["size"].unique())):
            part = rows if np.isnan(size) else rows[rows["size"] == size]
            yield {**dict(zip(GROUP, labels, strict=True)), "size": float(size)}, part


def rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Count the outcomes of each contender, one row per group and contender.

    success is the share of solved runs, wrong_rate the share of wrong answers, with the ends of
    Wilson's 95 % interval. The size is NaN for all sizes together.
    """
    table = []
    for place, rows in _groups(runs):
        for contender, part in rows.groupby(CONTENDER, sort=False):
            row = place | dict(zip(CONTENDER, contender, strict=True)) | {"runs": len(part)}
            row |= {name.replace(" ", "_"): int((part.outcome == name).sum()) for name in COUNTED}
            for name, count in (("success", row["solved"]), ("wrong_rate", row["wrong"])):
                ends = binomtest(count, len(part)).proportion_ci(method="wilson")
                row |= {name: count / len(part), f"{name}_low": ends.low, f"{name}_high": ends.high}
            table.append(row)
    return pd.DataFrame(table)


def shifted_geometric_mean(values: pd.DataFrame, shift: float = _SHIFT) -> pd.Series:
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


def wide(runs: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Pivot values to a row per instance and a column per contender, in order of appearance.

    Instances without a run of a contender have the value NaN.
    """
    order = pd.MultiIndex.from_frame(runs[CONTENDER].drop_duplicates())
    index = [name for name in INSTANCE if name != "problem_class"]
    return runs.assign(value=values).pivot(index=index, columns=CONTENDER, values="value")[order]


def means(runs: pd.DataFrame, shift: float = _SHIFT) -> pd.DataFrame:
    """Compare the mean times of contenders on their common instances.

    A run that is not solved counts as its time limit. Contenders with runs of all instances of the
    group are compared on all instances, and other contenders have no mean. Without such contenders,
    all are compared on their common instances. again_ratio is the mean time of the second solve
    relative to the first, and warm_ratio the solver's time with a warm start over that without.
    """
    tables = []
    for place, rows in _groups(runs):
        times = wide(rows, rows.total_s.where(rows.outcome == "solved", rows.time_limit_s))
        shared = times if times.notna().all().any() else times.dropna()
        mean = shifted_geometric_mean(shared, shift)
        table = pd.DataFrame({"instances": np.where(mean.isna(), 0, len(shared)), "total_s": mean})
        table["relative"] = mean / mean.min()
        solved = rows[rows.outcome == "solved"].set_index(CONTENDER)
        ratios = pd.DataFrame({"again_ratio": solved.again_total_s / solved.total_s})
        ratios["warm_ratio"] = solved.again_solver_s / solved.again_cold_s
        logs = ratios.transform(np.log).groupby(level=CONTENDER).mean()
        table = table.join(logs.transform(np.exp))
        tables.append(table.reset_index().assign(**place))
    return pd.concat(tables, ignore_index=True)


def profiles(runs: pd.DataFrame) -> pd.DataFrame:
    """Return performance profiles of time and of accuracy, over all sizes of a group.

    For time, tau is the ratio to the fastest solver on the same instance (Dolan and Moré, 2002);
    the exact method is excluded. For accuracy, tau is the accuracy, but at least ``FLOOR``. Shares
    are relative to all instances that were assigned to the contender.
    """
    pieces = []
    for labels, rows in counted(runs).groupby(GROUP, sort=False):
        solvers = rows[rows.solver != EXACT]
        times = wide(solvers, seconds(solvers))
        fastest = times.min(axis=1)
        ratios = times.div(fastest.where(np.isfinite(fastest), 1.0), axis=0)
        accuracies = wide(rows, rows.accuracy.fillna(np.inf))
        for of, table, start in (("time", ratios, 1.0), ("accuracy", accuracies, FLOOR)):
            for contender in table.columns.tolist():
                key = dict(zip([*GROUP, "of", *CONTENDER], [*labels, of, *contender], strict=True))
                values = np.sort(table[contender].dropna().clip(lower=start))
                tau = np.unique([start, *values[np.isfinite(values)]])
                share = np.searchsorted(values, tau, side="right") / values.size
                pieces.append(pd.DataFrame({"tau": tau, "share": share}).assign(**key))
    return pd.concat(pieces, ignore_index=True)
