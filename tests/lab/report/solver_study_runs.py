"""Made-up runs of a solver study, with every outcome in them: what the tests of its report read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.result import Result
from convexmarket.studies.metrics import PARTS
from convexmarket.studies.solvers import summarise
from tests.lab.report.builders import altered, problem_text

SIZES = (100, 100_000)
SETTINGS = {"default": 1e-6, "high-accuracy": 1e-9}
LIMIT = 60.0
#: Class: formulation -> how much slower than the first formulation it is.
CLASSES = {
    "allocation": {"projection": 1.0, "primal": 2.5, "dual": 4.0, "unscaled": 3.0},
    "ridge": {"factor": 1.0, "primal": 6.0},
    "weighted logistic regression": {"primal": 8.0, "dual": 20.0},
}
#: Solver: seconds at size 100, exponent of growth, accuracy.
SOLVERS = {
    "CLARABEL": (0.004, 0.95, 1e-9),
    "ECOS": (0.005, 1.05, 1e-8),
    "SCS": (0.003, 1.25, 5e-7),
    "OSQP": (0.002, 1.1, 1e-6),
}


def make_runs(
    seeds: int = 3, sizes: tuple[int, ...] = SIZES, settings: tuple[str, ...] = ("default",)
) -> pd.DataFrame:
    """Return the runs; the same in every call."""
    rng = np.random.default_rng(7)
    rows = [
        _run(rng, problem_class, formulation, slower, solver, setting, size, seed)
        for setting in settings
        for problem_class, formulations in CLASSES.items()
        for size in sizes
        for seed in range(seeds)
        for formulation, slower in formulations.items()
        for solver in SOLVERS
    ]
    rows += [
        _run(rng, "allocation", "exact", 1.0, "exact", setting, size, seed)
        for setting in settings
        for size in sizes
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows)


def _run(
    rng: np.random.Generator,
    problem_class: str,
    formulation: str,
    slower: float,
    solver: str,
    setting: str,
    size: int,
    seed: int,
) -> dict[str, Any]:
    base, power, accuracy = SOLVERS.get(solver, (0.0002, 1.0, 1e-16))
    tolerance = SETTINGS[setting]
    solve = base * slower * (size / 100) ** power * rng.lognormal(0, 0.1)
    parts = {
        "declaration_s": 0.004 * rng.lognormal(0, 0.1),
        "compilation_s": (0.006 + 2e-6 * size) * slower * rng.lognormal(0, 0.1),
        "solver_s": solve,
        "recovery_s": 0.0005 * rng.lognormal(0, 0.1),
    }
    if solver == "exact":
        parts |= {"declaration_s": 0.0, "compilation_s": 0.0}
    measured = accuracy * rng.lognormal(0, 0.5) * (1.0 if setting == "default" else 0.01)
    outcome, status, message = "solved", "optimal", ""
    if "logistic" in problem_class and solver == "OSQP":
        outcome, status, message = "unsupported", "", "OSQP has no exponential cones"
    elif formulation == "unscaled" and solver == "ECOS" and size >= 10_000:
        outcome, status, message = "failed", "solver_error", "Numerical problems (-10)"
    elif formulation == "unscaled" and solver == "CLARABEL" and size == 100_000:
        outcome, status, message = "wrong", "infeasible", "says infeasible; a feasible point exists"
    elif formulation == "dual" and solver == "SCS" and size == 100_000:
        outcome, status, message = "memory limit", "", "more than 4 GB"
    elif sum(parts.values()) > LIMIT:
        outcome, status, message = "time limit", "", "stopped after 60 s"
    elif formulation == "dual" and solver == "ECOS" and size == 100_000 and seed == 0:
        outcome, status, message = "crashed", "", "signal 11"
    elif measured > tolerance and solver == "SCS":
        outcome, status = ("wrong", "optimal") if seed % 2 else ("inaccurate", "optimal_inaccurate")
    answered = outcome in ("solved", "inaccurate") or (outcome, status) == ("wrong", "optimal")
    if outcome == "solved":
        measured = min(measured, 0.9 * tolerance)
    total = sum(parts.values())
    again = {
        "again_compilation_s": parts["compilation_s"] / 20,
        "again_solver_s": 0.8 * solve,
        "again_cold_s": solve,
        "again_recovery_s": parts["recovery_s"],
    }
    exact = solver == "exact"
    nan_parts = dict.fromkeys(parts, np.nan)
    return {
        "key": f"{problem_class}/{formulation}/{solver}/{setting}/{size}/{seed}",
        "problem_class": problem_class,
        "problem": "quickstart",
        "instance": "",
        "size": size,
        "seed": seed,
        "formulation": formulation,
        "solver": solver,
        "solver_version": "" if exact else "1.2.3",
        "setting": setting,
        "options": "",
        "tolerance": tolerance,
        "outcome": outcome,
        "status": status,
        "message": message,
        **(parts if answered else nan_parts),
        "total_s": total if answered else np.nan,
        **(again if answered and not exact else dict.fromkeys(again, np.nan)),
        "again_total_s": sum(again.values()) if answered and not exact else np.nan,
        "iterations": float(rng.integers(8, 30)) if answered and not exact else np.nan,
        "again_iterations": float(rng.integers(8, 30)) if answered and not exact else np.nan,
        "peak_memory_mb": 150 + 0.004 * size * slower,
        "added_memory_mb": 0.004 * size * slower,
        "objective": 2.0 * (1 + measured) if answered else np.nan,
        "reference": 2.0,
        "certainty": "exact" if seed else "gap 3e-10",
        "excess": measured if answered else np.nan,
        "primal_residual": measured / 3 if answered else np.nan,
        "violation": measured / 5 if answered else np.nan,
        "dual_residual": measured / 4 if answered else np.nan,
        "gap": measured / 2 if answered else np.nan,
        "accuracy": measured if answered else np.inf,
        "again_accuracy": measured * 0.7 if answered and not exact else np.nan,
        "again_status": status if answered and not exact else "",
        "again_reference": 3.0,
        "time_limit_s": LIMIT,
        "core": 1,
        "session": 1 + (setting != "default"),
    }


def race(
    problem_class: str, times: dict[str, list[float]], sizes: tuple[int, ...] = (100,)
) -> pd.DataFrame:
    """Return runs of contenders ("solver/formulation") that take these seconds, seed after seed.

    The same at every size; NaN is a run that fails, and where the list is shorter than others, the
    contender cannot take the instances that are left.
    """
    rows = []
    for contender, seconds in times.items():
        solver, formulation = contender.split("/")
        for size in sizes:
            for seed, total in enumerate(seconds):
                solved = not np.isnan(total)
                rows.append(
                    {
                        "problem_class": problem_class,
                        "problem": "quickstart",
                        "instance": "",
                        "size": size,
                        "seed": seed,
                        "formulation": formulation,
                        "solver": solver,
                        "setting": "default",
                        "options": "",
                        "tolerance": 1e-6,
                        "outcome": "solved" if solved else "failed",
                        **{f"{part}_s": total / 4 for part in PARTS},
                        "total_s": total,
                        "again_total_s": total / 2,
                        "again_solver_s": total / 4,
                        "again_cold_s": total / 2,
                        "accuracy": 1e-9 if solved else np.inf,
                        "again_accuracy": 1e-9 if solved else np.nan,
                        "peak_memory_mb": 200.0,
                        "time_limit_s": LIMIT,
                    }
                )
    return pd.DataFrame(rows)


def make_result(runs: pd.DataFrame | None = None, **changes: Any) -> Result[SolverStudyProblem]:
    """Return a result, summarised from runs."""
    runs = make_runs() if runs is None else runs
    machine = {
        "cpus": ["Some CPU at 2 GHz"],
        "cores": 4,
        "system": "Linux 6",
        "pinned": True,
        "can_pin": True,
        "sessions": 2,
    }
    result = Result(
        problem=parse_problem(problem_text("solver-study")),
        tables={
            "runs": runs,
            "references": pd.DataFrame({"reference": [2.0], "certainty": ["exact"]}),
            **summarise(runs),
        },
        numbers={"absent": ["MOSEK"], "machine": machine},
        caveats=("A caveat of the run.",),
        timings={"run": 12.0},
        provenance={"versions": {"cvxpy": "1.7"}, "seed": 0},
    )
    return altered(result, **changes)
