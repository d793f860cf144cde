"""Instances for others to solve, as matrices, and what qpbenchmark found of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy import sparse

from convexmarket.data.tables import read_table
from convexmarket.errors import DataError
from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem
from convexmarket.lab.study.families import build_instance
from convexmarket.lab.study.markets import SearchInstance
from convexmarket.lab.study.matrices import MatrixProblem, returned_point
from convexmarket.lab.study.measure import EXACT
from convexmarket.lab.study.plan import Run, plan_runs
from convexmarket.lab.study.verdicts import outcome_of

__all__ = ["export_instances", "import_runs", "instance_name"]

#: Entries of the dense matrices of a problem that qpbenchmark's own format still takes.
LARGEST = 4_000_000
_TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
_THEIRS = {"low_accuracy": "low", "mid_accuracy": "mid", "high_accuracy": "high"}
_COLUMNS = ["problem", "solver", "settings", "runtime", "found"]
_RESIDUALS = ["primal_residual", "dual_residual", "duality_gap"]


def instance_name(run: Run) -> str:
    """Return the name of an instance in one formulation, which is that of its file."""
    parts = (run.problem, run.problem_class, run.instance, run.formulation, run.size, run.seed)
    return "_".join(str(part).replace(" ", "-").replace("/", "-") for part in parts if part != "")


def export_instances(study: SolverStudyProblem, folder: Path) -> pd.DataFrame:
    """Write every instance in every formulation as matrices, with its optimum.

    Each is ``<name>.npz``: P, A and G as sparse parts (``P_data``, ``P_indices``, ``P_indptr``,
    ``P_shape``), q, b, h, lb, ub, optimum and gap, for
    ``min 0.5*x'Px + q'x, Ax = b, Gx + s = h, lb <= x <= ub`` with s nonnegative, but for its last
    rows, which lie in second-order cones of ``soc`` rows each, and then in ``exp`` exponential
    cones. Quadratic programs that are small enough when dense are in ``qpbenchmark.parquet`` too,
    which qpbenchmark reads as a test set.

    Returns
    -------
    DataFrame
        One row per file: name, what it is of, rows, columns, optimum and gap (what its primal and
        dual values leave open); also written as ``index.csv``.
    """
    plan = plan_runs(study, {})
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    dense: list[dict[str, Any]] = []
    for key, run in plan.runs.items():
        name = instance_name(run)
        if run.is_reference or run.solver == EXACT or any(name == row["name"] for row in rows):
            continue
        instance = build_instance(plan.jobs[key])
        if isinstance(instance, SearchInstance):
            continue
        problem = instance.declare(run.formulation)
        data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts=dict(_TIGHT))
        raw = chain.solve_via_data(problem, data, solver_opts=dict(_TIGHT))
        matrices = MatrixProblem.of(data)
        x, y = returned_point(chain.solver, raw, inverse[-1])
        optimum = float(0.5 * x @ (matrices.P @ x) + matrices.q @ x)
        A, G = matrices.A[: matrices.zero].tocsc(), matrices.A[matrices.zero :].tocsc()
        b, h = matrices.b[: matrices.zero], matrices.b[matrices.zero :]
        numbers = {"q": matrices.q, "b": b, "h": h, "soc": np.array(matrices.soc, dtype=int)}
        ends = {"lb": np.full(x.size, -np.inf), "ub": np.full(x.size, np.inf)}
        known = {"exp": matrices.exp, "optimum": optimum, "gap": matrices.residuals(x, y)[2]}
        parts: dict[str, Any] = {
            f"{letter}_{part}": getattr(matrix, part)
            for letter, matrix in (("P", matrices.P), ("A", A), ("G", G))
            for part in ("data", "indices", "indptr", "shape")
        }
        np.savez_compressed(folder / f"{name}.npz", **(parts | numbers | ends | known))
        places = {part: getattr(run, part) for part in ("problem", "problem_class", "instance")}
        sizes = {"size": run.size, "seed": run.seed, "formulation": run.formulation}
        shape = {"rows": len(matrices.b), "columns": x.size}
        rows.append({"name": name, **places, **sizes, **shape, **known})
        if not (matrices.soc or matrices.exp) and (len(matrices.b) + x.size) * x.size <= LARGEST:
            entry = {"name": name, "q": matrices.q, "lb": None, "ub": None}
            for letter, side, matrix, values in (("G", "h", G, h), ("A", "b", A, b)):
                full = _flat(matrix) if len(values) else None
                entry |= {letter: full, side: values if len(values) else None}
            dense.append(entry | {"P": _flat(matrices.P)})
    table = pd.DataFrame(rows)
    table.to_csv(folder / "index.csv", index=False)
    if dense:
        pd.DataFrame(dense).to_parquet(folder / "qpbenchmark.parquet", index=False)
    return table


def _flat(matrix: sparse.csc_array) -> np.ndarray:
    return np.asarray(matrix.toarray(), dtype=float).ravel()


def import_runs(study: SolverStudyProblem, path: Path) -> pd.DataFrame:
    """Return qpbenchmark's results on exported instances, as rows of a study's runs.

    Parameters
    ----------
    study : SolverStudyProblem
        As it was exported.
    path : Path
        Results of qpbenchmark, CSV or Parquet.

    Returns
    -------
    DataFrame
        Their solvers are named as in ``piqp (qpbenchmark)``; "found" is what the solver says, and
        the residuals are those that qpbenchmark computed, absolute.

    Raises
    ------
    DataError
        If it is no such file, or none of its problems and settings is of this study.
    """
    try:
        theirs = read_table(path)[[*_COLUMNS, *_RESIDUALS]]
    except KeyError as error:
        raise DataError(f"{path} holds no results of qpbenchmark ({error})") from None
    runs = [run for run in plan_runs(study, {}).runs.values() if not run.is_reference]
    known = {instance_name(run): run for run in runs if run.solver != EXACT}
    rows = []
    for entry in theirs.to_dict("records"):
        run, setting = (
            known.get(entry["problem"]),
            _THEIRS.get(entry["settings"], entry["settings"]),
        )
        if run is None or setting not in study.study.settings:
            continue
        residuals = [float(entry[name]) for name in _RESIDUALS]
        accuracy = float(np.max(residuals)) if entry["found"] else np.inf
        tolerance = study.tolerance(setting)
        status = cp.OPTIMAL if entry["found"] else "solver_error"
        names = ("absolute_primal", "absolute_dual", "absolute_gap")
        times = {"solver_s": entry["runtime"], "total_s": entry["runtime"]}
        rows.append(
            run.labels
            | {"key": f"{entry['problem']}/{entry['solver']}/{setting}", "setting": setting}
            | {"solver": f"{entry['solver']} (qpbenchmark)", "options": "", "message": ""}
            | {"status": status, "outcome": outcome_of(status, accuracy, tolerance)}
            | {"accuracy": accuracy, "tolerance": tolerance, **times}
            | {"time_limit_s": study.limits.seconds, "certainty": "none", "core": -1, "session": 1}
            | {"solver_version": "", "again_status": "", "again_message": ""}
            | dict(zip(names, residuals, strict=True))
        )
    if not rows:
        raise DataError(
            f"{path} has no problem and setting of this study; export it with the same options, "
            "and name the settings low, mid or high"
        )
    return pd.DataFrame(rows)
