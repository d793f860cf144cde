"""Outcomes of the runs of a solver study, and means and profiles of their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from convexmarket.studies.execution import ending
from convexmarket.studies.measure import AGAIN, EXACT, REFERENCE, RESIDUALS, Row

#: Outcomes of runs whose solver supports the problem.
COUNTED = ("solved", "wrong", "inaccurate", "failed", "time limit", "memory limit", "crashed")
INSTANCE = ["problem", "problem_class", "instance", "size", "seed"]
RUN = [*INSTANCE, "setting", "formulation", "solver"]
CONTENDER = ["solver", "formulation"]
GROUP = ["problem_class", "setting"]
_VERIFIED = 1e-6  # largest residual at which a value counts as proven
_REFUTES = 1e-5  # relative improvement by which a proven value refutes a reference
_SHIFT = 0.01  # seconds added to each time to reduce the influence of very short times
OF_SOLVE = ["compilation_s", "solver_s", "recovery_s", "total_s", "objective", "scale", *RESIDUALS]
_TEXTS = ["status", "message", "again_status", "again_message"]
_MEASURED = [prefix + name for prefix in ("", AGAIN) for name in OF_SOLVE]
_MEASURED += [*_TEXTS, "declaration_s", "again_cold_s", "peak_memory_mb"]
_REFERENCE = ["certainty", "doubt", "reference", "again_reference"]


def tabulate(records: Iterable[tuple[Row, Row]]) -> pd.DataFrame:
    """Tabulate the labels and the reply of each run. Missing texts become empty strings."""
    table = pd.DataFrame(
        {**labels, **reply, **reply.get("result", {}), "log": ending(reply), **labels}
        for labels, reply in records
    )
    table = table.reindex(columns=[*dict.fromkeys([*table, *_MEASURED, "certainty", "doubt"])])
    table[_TEXTS] = table[_TEXTS].astype(object).fillna("").astype(str)
    table["message"] = table.message.where(table.message != "", table.log)
    return table.drop(columns=["log", "result"], errors="ignore")


def references_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the reference objective of each instance, its certainty, and its largest residual.

    A run with small residuals replaces a reference, even an exact one, if its objective is lower.
    """
    is_reference = table.setting == REFERENCE
    values = {prefix + "objective": prefix + "reference" for prefix in ("", AGAIN)}
    references = table[is_reference].rename(columns=values).set_index(INSTANCE).sort_index()
    references = references[[*_REFERENCE, "message"]].fillna({"certainty": "none"})
    for prefix in ("", AGAIN):
        value, solved = prefix + "objective", (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
        errors = table[[prefix + name for name in RESIDUALS]].max(axis=1, skipna=False)
        proven = ~is_reference & table[prefix + "status"].isin(solved) & (errors <= _VERIFIED)
        best = table[proven & np.isfinite(table[value])].sort_values(value)
        best = best.drop_duplicates(INSTANCE).set_index(INSTANCE).reindex(references.index)
        reference = references[prefix + "reference"]
        least = _REFUTES * np.fmax(reference.abs(), best[prefix + "scale"])
        refuted = best[value] < reference - least
        if not refuted.any():
            continue
        references.loc[refuted, prefix + "reference"] = best[value]
        references.loc[refuted, ["certainty", "doubt"]] = "refuted", _VERIFIED
        better = best.solver + ", " + best.formulation + " has a better value"
        references.loc[refuted, "message"] = better
    return references.reset_index()


def judge(
    table: pd.DataFrame, references: pd.DataFrame, tolerances: Mapping[str, float]
) -> pd.DataFrame:
    """Add accuracies and outcomes to the runs, given the tolerance of each setting."""
    runs = table[table.setting != REFERENCE].drop(columns=["certainty", "doubt"])
    runs = runs.merge(references[[*INSTANCE, *_REFERENCE]], on=INSTANCE)
    runs["tolerance"] = runs.setting.map(tolerances)
    trusted = runs.pop("doubt") <= runs.tolerance
    outcomes = runs.pop("ended").replace({"finished": "solved", "error": "failed"})
    for prefix in ("", AGAIN):
        reference = runs[prefix + "reference"].where(trusted)
        value, size = runs[prefix + "objective"], runs.pop(prefix + "scale")
        least = np.fmax(np.fmax(reference.abs(), size), np.finfo(float).tiny)
        excess: pd.Series = (value - reference) / least
        # Without a trusted reference, only residuals are used. Without an objective, the accuracy
        # is infinite.
        errors = runs[[prefix + name for name in RESIDUALS]]
        errors = errors.assign(excess=excess.abs().where(reference.notna(), 0.0))
        accuracy = errors.max(axis=1, skipna=False).where(np.isfinite(value), np.inf)
        columns = {"reference": reference, "excess": excess, "accuracy": accuracy}
        runs = runs.assign(**{prefix + name: column for name, column in columns.items()})
        status = runs[prefix + "status"]
        judged = outcomes_of(status, accuracy <= runs.tolerance)
        outcomes = outcomes.where((outcomes != "solved") | (status == ""), judged)
    return runs.assign(outcome=outcomes).sort_values(RUN, ignore_index=True)


def outcomes_of(status: pd.Series, accurate: pd.Series) -> pd.Series:
    """Determine outcomes from CVXPY's statuses, for problems that have an optimum."""
    optimal = status.isin([cp.OPTIMAL, EXACT])
    rules = {
        "solved": (optimal | (status == cp.OPTIMAL_INACCURATE)) & accurate,
        "wrong": optimal | status.isin([cp.INFEASIBLE, cp.UNBOUNDED]),
        "inaccurate": status.str.endswith("_inaccurate"),
        "unsupported": status == "unsupported",
    }
    outcomes = np.select(list(rules.values()), list(rules), "failed")
    return pd.Series(outcomes, status.index, dtype=object)


def counted(runs: pd.DataFrame) -> pd.DataFrame:
    """Select the runs whose solver supports the problem."""
    return runs[runs.outcome != "unsupported"]


def shifted_geometric_mean(values: pd.DataFrame, shift: float = _SHIFT) -> pd.Series:
    """Compute ``exp(mean(log(x + shift))) - shift`` for each column x."""
    return (values + shift).transform(np.log).mean(skipna=False).transform(np.exp) - shift


def wide(runs: pd.DataFrame, unsolved: Any = np.inf) -> pd.DataFrame:
    """Pivot times to one row per instance and one column per contender. Missing runs are NaN."""
    order = pd.MultiIndex.from_frame(runs[CONTENDER].drop_duplicates())
    values = runs.total_s.where(runs.outcome == "solved", unsolved)
    times = runs[[*INSTANCE, *CONTENDER]].assign(value=values)
    return times.set_index([*INSTANCE, *CONTENDER]).value.unstack(CONTENDER)[order]


def means(runs: pd.DataFrame, shift: float = _SHIFT) -> pd.DataFrame:
    """Count the outcomes of contenders, and compare their mean times on common instances.

    The time of an unsolved run is its time limit. If at least one contender has runs of all
    instances, contenders with missing runs have no mean. again_ratio is the mean ratio of the
    times of the second and the first solve. warm_ratio is the mean ratio of the solver's times
    with and without a warm start.
    """
    tables = {}
    for group, rows in counted(runs).groupby([*GROUP, "size"], sort=False):
        times = wide(rows, rows.time_limit_s)
        shared = times if times.notna().all().any() else times.dropna()
        counts = rows.groupby(CONTENDER).outcome.value_counts().unstack(fill_value=0)
        table = counts.reindex(columns=COUNTED, fill_value=0)
        table.insert(0, "runs", counts.sum(axis=1))
        table["success"] = table.solved / table.runs
        table["total_s"] = mean = shifted_geometric_mean(shared, shift)
        table["instances"] = np.where(mean.isna(), 0, len(shared))
        table["relative"] = mean / mean.min()
        solved = rows[rows.outcome == "solved"].set_index(CONTENDER)
        ratios = pd.DataFrame({"again_ratio": solved.again_total_s / solved.total_s})
        ratios["warm_ratio"] = solved.again_solver_s / solved.again_cold_s
        logs = ratios.transform(np.log).groupby(level=CONTENDER).mean()
        tables[group] = table.join(logs.transform(np.exp))
    return pd.concat(tables, names=[*GROUP, "size"]).reset_index()


def profiles(runs: pd.DataFrame) -> pd.DataFrame:
    """Compute the performance profiles of contenders (Dolan and Moré, 2002)."""
    pieces = {}
    for group, rows in runs.groupby(GROUP, sort=False):
        times = wide(rows)
        fastest = times.min(axis=1)
        ratios = times.div(fastest.where(np.isfinite(fastest), 1.0), axis=0)
        for contender in ratios.columns.tolist():
            values = np.sort(ratios[contender].dropna())
            tau = np.unique([1.0, *values[np.isfinite(values)]])
            share = np.searchsorted(values, tau, side="right") / values.size
            pieces[*group, *contender] = pd.DataFrame({"tau": tau, "share": share})
    return pd.concat(pieces, names=[*GROUP, *CONTENDER]).droplevel(-1).reset_index()
