"""What became of every run: its word against what we computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from convexmarket.lab.study.matrices import ABSOLUTE
from convexmarket.lab.study.measure import AGAIN, EXACT, MEASURED
from convexmarket.lab.study.plan import Run
from convexmarket.lab.study.settings import ACCURACIES

__all__ = ["OUTCOMES", "judge", "outcome_of", "references_of"]

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
#: What tells an instance from others.
INSTANCE = ("problem", "problem_class", "instance", "size", "seed")

#: Largest residual of a solve whose value is taken for granted, and by how much that has to be
#: better than a reference to refute it, relative to it.
_VERIFIED, _REFUTES = 1e-6, 1e-5

_RESIDUALS = ("primal_residual", "violation", "dual_residual", "gap")
_CLAIMS_SOLVED = (cp.OPTIMAL, EXACT)
_CLAIMS_IMPOSSIBLE = (cp.INFEASIBLE, cp.UNBOUNDED)
_HEDGES = (cp.OPTIMAL_INACCURATE, cp.INFEASIBLE_INACCURATE, cp.UNBOUNDED_INACCURATE)
_NUMBERS = tuple(name for name in MEASURED if name not in ("status", "message"))


def outcome_of(status: str, accuracy: float, tolerance: float) -> str:
    """Return what became of a solve that came to an end.

    Parameters
    ----------
    status : str
        The solver's word, in CVXPY's spelling.
    accuracy : float
        Largest of the relative errors and residuals that we computed; NaN where there is no point.
    tolerance : float
        What it may be at most.

    Returns
    -------
    str
        "solved" if the solver says so, be it with hesitation, and our residuals agree; "wrong" if
        it says so without hesitation and they do not, or if it calls a problem infeasible or
        unbounded that is not; "inaccurate" if it said that itself; "unsupported"; else "failed".
    """
    accurate = accuracy <= tolerance
    if status in _CLAIMS_SOLVED:
        return "solved" if accurate else "wrong"
    if status in _CLAIMS_IMPOSSIBLE:
        return "wrong"
    if status in _HEDGES:
        return "solved" if accurate else "inaccurate"
    return "unsupported" if status == "unsupported" else "failed"


def references_of(
    records: Iterable[tuple[Run, Mapping[str, Any]]],
    others: Iterable[tuple[Run, Mapping[str, Any]]] = (),
) -> pd.DataFrame:
    """Return the values that runs are measured against, one row per instance.

    Parameters
    ----------
    records : iterable of (Run, dict)
        References with what :func:`convexmarket.lab.study.isolation.run_isolated` returned.
    others : iterable of (Run, dict)
        The other runs. One whose residuals are tiny, and whose value is better than the reference
        nevertheless, refutes it, be that an exact method of ours, and takes its place.

    Returns
    -------
    DataFrame
        The columns of :data:`INSTANCE`; certainty, "exact", "refuted", "none" or what is left open;
        doubt, that as a number; reference and again_reference; message.
    """
    rows = []
    for run, reply in records:
        found = reply.get("result", {})
        rows.append(
            {name: getattr(run, name) for name in INSTANCE}
            | {
                "certainty": found.get("certainty", "none"),
                "doubt": found.get("doubt", np.nan),
                "reference": found.get("objective", np.nan),
                "again_reference": found.get("again_objective", np.nan),
                "message": found.get("message", "") or _ending(reply),
            }
        )
    known = {tuple(row[name] for name in INSTANCE): row for row in rows}
    for run, reply in others:
        row = known[tuple(getattr(run, name) for name in INSTANCE)]
        for prefix in ("", AGAIN):
            value, size = _verified(reply.get("result", {}), prefix)
            reference = row[prefix + "reference"]
            if value < reference - _REFUTES * max(abs(reference), size):
                row |= {prefix + "reference": value, "certainty": "refuted", "doubt": _VERIFIED}
                row["message"] = f"{run.solver}, {run.formulation} found a better value"
    columns = [*INSTANCE, "certainty", "doubt", "reference", "again_reference", "message"]
    return pd.DataFrame(rows, columns=columns).sort_values(list(INSTANCE), ignore_index=True)


def _verified(found: Mapping[str, Any], prefix: str) -> tuple[float, float]:
    """Return the value of a solve that its residuals prove, and its scale; inf of any other."""
    if found.get(prefix + "status") not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        return np.inf, 0.0
    proven = max(found[prefix + name] for name in _RESIDUALS) <= _VERIFIED
    value = found[prefix + "objective"]
    return (value, found[prefix + "scale"]) if proven and np.isfinite(value) else (np.inf, 0.0)


def judge(
    records: Iterable[tuple[str, Run, Mapping[str, Any]]],
    references: pd.DataFrame,
    tolerances: Mapping[str, float],
    seconds: float,
) -> pd.DataFrame:
    """Return one row per run: what was measured, and what became of it.

    Parameters
    ----------
    records : iterable of (key, Run, dict)
    references : DataFrame
        From :func:`references_of`.
    tolerances : mapping of str to float
        By setting. Of "low", "mid" and "high" they hold for the residuals of the matrices that the
        solver got, in their units, which is what it was asked for; of others for the accuracy.
    seconds : float
        The limit of a run.
    """
    known = references.set_index(list(INSTANCE))
    values: dict[Any, dict[str, Any]] = known.T.to_dict()
    rows = []
    for key, run, reply in records:
        target = values[tuple(getattr(run, name) for name in INSTANCE)]
        absolute = run.setting in ACCURACIES and run.solver != EXACT
        rows.append(
            {"key": key, **run.labels}
            | _judged(reply, target, tolerances[run.setting], absolute)
            | {"time_limit_s": seconds}
        )
    order = [*INSTANCE, "setting", "formulation", "solver"]
    return pd.DataFrame(rows).sort_values(order, ignore_index=True)


def _judged(
    reply: Mapping[str, Any], target: Mapping[str, Any], tolerance: float, absolute: bool
) -> dict[str, Any]:
    found = dict(reply.get("result", {}))
    row: dict[str, Any] = {
        "solver_version": found.get("solver_version", ""),
        "tolerance": tolerance,
        "status": found.get("status", reply.get("status", "")),
        "message": found.get("message", "") or _ending(reply),
        "declaration_s": found.get("declaration_s", np.nan),
        "certainty": target["certainty"],
        "peak_memory_mb": reply.get("peak_memory_mb", np.nan),
        "added_memory_mb": found.get("added_memory_mb", np.nan),
        "core": reply.get("core", -1),
        "session": reply.get("session", 1),
    }
    outcomes = []
    for prefix in ("", AGAIN):
        row |= {prefix + name: found.get(prefix + name, np.nan) for name in _NUMBERS}
        # A reference that is less certain than the run has to be is none.
        trusted = target["doubt"] <= tolerance
        reference = target[prefix + "reference"] if trusted else np.nan
        value, size = row[prefix + "objective"], row.pop(prefix + "scale")
        excess = (value - reference) / np.nanmax([abs(reference), size, np.finfo(float).tiny])
        residuals = [row[prefix + name] for name in _RESIDUALS]
        # Without a reference the residuals have to do; without an objective nothing does.
        errors = [*residuals, 0.0 if np.isnan(reference) else abs(excess)]
        accuracy = float(np.max(errors)) if np.isfinite(value) else np.inf
        row |= {
            prefix + "reference": reference,
            prefix + "excess": excess,
            prefix + "accuracy": accuracy,
        }
        if prefix + "status" in found:
            asked = [row[prefix + name] for name in ABSOLUTE]
            held = float(np.max(asked)) if absolute and not np.isnan(asked).any() else accuracy
            outcomes.append(outcome_of(found[prefix + "status"], held, tolerance))
    if reply["ended"] != "finished":
        outcomes = ["failed" if reply["ended"] == "error" else reply["ended"]]
    row["again_cold_s"] = found.get(AGAIN + "cold_s", np.nan)
    row["again_status"] = found.get(AGAIN + "status", "")
    row["again_message"] = found.get(AGAIN + "message", "")
    row["outcome"] = next((name for name in outcomes if name != "solved"), "solved")
    return row


def _ending(reply: Mapping[str, Any]) -> str:
    """Return the last line that was printed, of a run that did not come to its end."""
    lines = str(reply.get("log", "")).strip().splitlines()
    return lines[-1] if lines and reply["ended"] != "finished" else ""
