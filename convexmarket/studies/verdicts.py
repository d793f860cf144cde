"""The outcome of every run of a solver study: the solver's status against our residuals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from convexmarket.studies.measure import AGAIN, EXACT, MEASURED, REFERENCE, RESIDUALS
from convexmarket.studies.residuals import ABSOLUTE
from convexmarket.studies.settings import ACCURACIES

__all__ = ["INSTANCE", "OUTCOMES", "RUN", "judge", "outcome_of", "references_of"]

OUTCOMES = (
    "solved",
    "wrong",
    "inaccurate",
    "failed",
    "time limit",
    "memory limit",
    "crashed",
    "unsupported",
)
#: Key columns of an instance, and of a run.
INSTANCE = ("problem", "problem_class", "instance", "size", "seed")
RUN = (*INSTANCE, "setting", "formulation", "solver")

#: Largest residual of a proven value, and the relative improvement by which a proven value refutes
#: a reference.
_VERIFIED, _REFUTES = 1e-6, 1e-5

_NUMBERS = tuple(name for name in MEASURED if name not in ("status", "message"))

Labels = Mapping[str, Any]
Reply = Mapping[str, Any]


def outcome_of(status: str, accuracy: float, tolerance: float) -> str:
    """Return the outcome of a solve that ended by itself, with a status in CVXPY's spelling.

    That is "solved" if the status is optimal, accurate or not, and the computed accuracy agrees;
    "wrong" if the status is optimal without reservation and it does not, or if it is infeasible or
    unbounded for a problem that is neither; "inaccurate" if the status itself is; "unsupported";
    else "failed".
    """
    accurate = accuracy <= tolerance
    if status in (cp.OPTIMAL, EXACT):
        return "solved" if accurate else "wrong"
    if status in (cp.INFEASIBLE, cp.UNBOUNDED):
        return "wrong"
    if status in (cp.OPTIMAL_INACCURATE, cp.INFEASIBLE_INACCURATE, cp.UNBOUNDED_INACCURATE):
        return "solved" if accurate else "inaccurate"
    return "unsupported" if status == "unsupported" else "failed"


def references_of(records: Iterable[tuple[Labels, Reply]]) -> pd.DataFrame:
    """Return the objectives that runs are compared with, one row per instance.

    A run whose residuals are tiny, and whose value is still better than the reference, refutes it
    and takes its place, even if the reference is an exact method. certainty is "exact", "refuted",
    "none" or describes the residuals; doubt is the same as a number.
    """
    records = list(records)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for labels, reply in records:
        if labels["setting"] == REFERENCE:
            result = reply.get("result", {})
            place = {name: labels[name] for name in INSTANCE}
            rows[tuple(place.values())] = place | {
                "certainty": result.get("certainty", "none"),
                "doubt": result.get("doubt", np.nan),
                "reference": result.get("objective", np.nan),
                "again_reference": result.get("again_objective", np.nan),
                "message": result.get("message", "") or _ending(reply),
            }
    for labels, reply in records:
        row = rows[tuple(labels[name] for name in INSTANCE)]
        for prefix in ("", AGAIN) if labels["setting"] != REFERENCE else ():
            value, size = _verified(reply.get("result", {}), prefix)
            reference = row[prefix + "reference"]
            if value < reference - _REFUTES * max(abs(reference), size):
                row |= {prefix + "reference": value, "certainty": "refuted", "doubt": _VERIFIED}
                row["message"] = f"{labels['solver']}, {labels['formulation']} has a better value"
    columns = [*INSTANCE, "certainty", "doubt", "reference", "again_reference", "message"]
    table = pd.DataFrame(list(rows.values()), columns=columns)
    return table.sort_values(list(INSTANCE), ignore_index=True)


def _verified(result: Mapping[str, Any], prefix: str) -> tuple[float, float]:
    """Return the value and the scale of a solve; inf unless its residuals prove the value."""
    if result.get(prefix + "status") in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        value = result[prefix + "objective"]
        if np.isfinite(value) and max(result[prefix + name] for name in RESIDUALS) <= _VERIFIED:
            return value, result[prefix + "scale"]
    return np.inf, 0.0


def judge(
    records: Iterable[tuple[Labels, Reply]],
    references: pd.DataFrame,
    tolerances: Mapping[str, float],
) -> pd.DataFrame:
    """Judge the runs, without references: one row each with labels, measurements and outcome.

    The tolerances of "low", "mid" and "high" bound the residuals of the matrices that the solver
    received, in their units, because that is the tolerance that the solver was given. The others
    bound the accuracy.
    """
    targets: dict[Any, dict[str, Any]] = references.set_index(list(INSTANCE)).T.to_dict()
    rows = []
    for labels, reply in records:
        if (setting := labels["setting"]) != REFERENCE:
            target = targets[tuple(labels[name] for name in INSTANCE)]
            absolute = setting in ACCURACIES and labels["solver"] != EXACT
            rows.append(dict(labels) | classify_cells(reply, target, tolerances[setting], absolute))
    return pd.DataFrame(rows).sort_values(list(RUN), ignore_index=True)


def classify_cells(
    reply: Reply, target: Mapping[str, Any], tolerance: float, absolute: bool
) -> dict[str, Any]:
    result = dict(reply.get("result", {}))
    row: dict[str, Any] = {
        "solver_version": result.get("solver_version", ""),
        "tolerance": tolerance,
        "status": result.get("status", reply.get("status", "")),
        "message": result.get("message", "") or _ending(reply),
        "declaration_s": result.get("declaration_s", np.nan),
        "certainty": target["certainty"],
        "peak_memory_mb": reply.get("peak_memory_mb", np.nan),
        "core": reply.get("core", -1),
    }
    outcomes = []
    for prefix in ("", AGAIN):
        row |= {prefix + name: result.get(prefix + name, np.nan) for name in _NUMBERS}
        # A reference with an uncertainty above the tolerance is not used.
        trusted = target["doubt"] <= tolerance
        reference = target[prefix + "reference"] if trusted else np.nan
        value, size = row[prefix + "objective"], row.pop(prefix + "scale")
        excess = (value - reference) / np.nanmax([abs(reference), size, np.finfo(float).tiny])
        # Without a reference the residuals decide; without an objective the answer is unverified.
        errors = [row[prefix + name] for name in RESIDUALS]
        errors.append(0.0 if np.isnan(reference) else abs(excess))
        accuracy = float(np.max(errors)) if np.isfinite(value) else np.inf
        for name, number in (("reference", reference), ("excess", excess), ("accuracy", accuracy)):
            row[prefix + name] = number
        if prefix + "status" in result:
            errors = [row[prefix + name] for name in ABSOLUTE]
            reached = float(np.max(errors)) if absolute and not np.isnan(errors).any() else accuracy
            outcomes.append(outcome_of(result[prefix + "status"], reached, tolerance))
    if reply["ended"] != "finished":
        outcomes = ["failed" if reply["ended"] == "error" else reply["ended"]]
    row["again_cold_s"] = result.get(AGAIN + "cold_s", np.nan)
    row["again_status"] = result.get(AGAIN + "status", "")
    row["again_message"] = result.get(AGAIN + "message", "")
    row["outcome"] = next((name for name in outcomes if name != "solved"), "solved")
    return row


def _ending(reply: Reply) -> str:
    """Return the last printed line of a run that did not finish."""
    lines = str(reply.get("log", "")).strip().splitlines()
    return lines[-1] if lines and reply["ended"] != "finished" else ""
