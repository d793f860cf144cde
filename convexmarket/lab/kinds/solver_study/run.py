"""Comparing solvers and formulations: every run on its own, recorded, judged and summarised."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import joblib
import pandas as pd

from convexmarket.errors import NotSupportedError
from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem
from convexmarket.lab.problem.loading import load_problem, parse_problem
from convexmarket.lab.provenance import problem_file, provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.lab.study.cores import can_pin, usable_cores
from convexmarket.lab.study.isolation import run_isolated
from convexmarket.lab.study.journal import Journal
from convexmarket.lab.study.plan import Plan, plan_runs
from convexmarket.lab.study.summary import summarise
from convexmarket.lab.study.verdicts import judge, references_of

__all__ = ["compare_solvers", "run_solver_study", "solver_study"]

CAVEATS = (
    "Times are of this machine, these versions and one thread, with CVXPY's own work in them; "
    "other machines order solvers differently.",
    "A run counts as solved by residuals that we compute from the point returned, with tolerances "
    "that we chose; a solver that is stopped by its own may be as good as another that goes on.",
    "The changed parameter is one change of moderate size; warm starts gain more from smaller "
    "ones.",
    "Instances are drawn from the problem files named, and say nothing of others.",
)


def solver_study(
    files: Iterable[str | Path],
    *,
    solvers: Iterable[str] | None = None,
    formulations: Iterable[str] = (),
    classes: Iterable[str] = (),
    sizes: Iterable[int] = (100, 1_000),
    seeds: int = 3,
    settings: Iterable[str] = ("default",),
    seconds: float = 60.0,
    megabytes: float = 4_000.0,
    jobs: int = -1,
    pin: bool = True,
    seed: int = 0,
    title: str = "Solvers compared",
) -> SolverStudyProblem:
    """Return the study that arguments describe, as from a problem file that says the same.

    Parameters
    ----------
    files : iterable of path
        Problem files whose subproblems to solve.
    solvers : iterable of str, optional
        In CVXPY's spelling, and "exact"; those that come with the package where left out.
    formulations, classes : iterable of str
        All where left out.
    sizes : iterable of int
        Sellers, rows or points.
    seeds : int
        Instances of each problem and size.
    settings : iterable of str
        "default", "solver-default", "low", "mid", "high".
    seconds, megabytes : float
        What a run has.
    jobs : int
        Runs at a time; -1: one per core.
    pin : bool
        Whether a run has a core of its own.
    seed : int
        Of the instances, and of the order of the runs.
    title : str

    Raises
    ------
    ProblemFileError
        If an argument is out of its range.
    """
    tables: dict[str, dict[str, Any]] = {
        "study": {
            "problems": [str(path) for path in files],
            "formulations": list(formulations),
            "classes": list(classes),
            "sizes": list(sizes),
            "seeds": seeds,
            "settings": list(settings),
        },
        "limits": {"seconds": float(seconds), "megabytes": float(megabytes)},
        "run": {"seed": seed, "jobs": jobs, "pin": pin},
    }
    if solvers is not None:
        tables["study"]["solvers"] = list(solvers)
    lines = ['kind = "solver-study"', f"title = {_toml(title)}"]
    for name, entries in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {_toml(own)}" for key, own in entries.items())]
    problem = parse_problem("\n".join(lines) + "\n", path="compare")
    assert isinstance(problem, SolverStudyProblem)
    return problem


def _toml(value: Any) -> str:
    """Write text, a number or a list as TOML, which spells them as JSON does, but for two."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("NaN", "nan").replace("Infinity", "inf") if type(value) is float else text


def compare_solvers(
    files: Iterable[str | Path],
    *,
    progress: Progress | None = None,
    journal: Path | None = None,
    plugins: Mapping[str, str] | None = None,
    **study: Any,
) -> Result[SolverStudyProblem]:
    """Compare solvers and formulations: ``convexmarket compare`` in Python.

    Parameters
    ----------
    files : iterable of path
        Problem files whose subproblems to solve.
    progress, journal, plugins
        As of :func:`run_solver_study`.
    **study
        As of :func:`solver_study`: solvers, formulations, classes, sizes, seeds, settings, ...

    Examples
    --------
    >>> from convexmarket.lab import compare_solvers
    >>> result = compare_solvers(
    ...     ["problems/quickstart.toml"],
    ...     solvers=["exact", "CLARABEL"],
    ...     classes=["allocation"],
    ...     formulations=["primal", "dual"],
    ...     sizes=[20],
    ...     seeds=1,
    ... )  # doctest: +SKIP
    >>> result.tables["runs"][["solver", "formulation", "outcome", "total_s"]]  # doctest: +SKIP
    """
    problem = solver_study(files, **study)
    return run_solver_study(problem, progress, journal=journal, plugins=plugins)


def run_solver_study(
    problem: SolverStudyProblem,
    progress: Progress | None = None,
    *,
    journal: Path | None = None,
    plugins: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Result[SolverStudyProblem]:
    """Compare solvers and formulations on the subproblems of problem files.

    Every run happens in a process of its own, with limits on its time and memory.

    Parameters
    ----------
    problem : SolverStudyProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.
    journal : path, optional
        File that every run is written to when it has ended. Runs that it holds already are not
        made again, so that an interrupted study goes on where it stopped.
    plugins : mapping of str to str, optional
        Solvers of your own: a name, and ``"module:Class"`` of a CVXPY solver interface that can be
        imported.
    fresh : bool
        Whether to forget what the journal holds.

    Returns
    -------
    Result
        Its tables, and two numbers:

        - ``runs``: One row per run: key; problem (the file), problem_class, instance,
          size, seed; formulation, solver, solver_version, setting, tolerance,
          time_limit_s; outcome (see :func:`convexmarket.lab.study.verdicts.outcome_of`, or
          "time limit", "memory limit", "crashed"), status (the solver's word) and message.
          Seconds: declaration_s, compilation_s, solver_s, recovery_s, total_s. iterations,
          objective, reference, certainty (of the reference), excess (relative error of the
          objective); primal_residual, violation, dual_residual and gap
          (:mod:`convexmarket.lab.study.kkt`), accuracy (the worst of these five). The same
          with the prefix again_ for the solve with a changed parameter. peak_memory_mb of
          the process, added_memory_mb of it by the run; core (-1: not pinned) and session.
        - ``references``: One row per instance: reference and again_reference (best
          objective known), certainty ("exact"; or what the residuals of the tightest solve
          leave open, and doubt, that as a number; "refuted" where a run found a better
          one; "none"), message.
        - ``rates``, ``means``, ``profiles``: See
          :mod:`convexmarket.lab.study.summary`.
        - ``absent``: Solvers that were named and are not installed.
        - ``machine``: cpus (the processors that runs were made on), cores, system, pinned,
          can_pin, sessions.

    Raises
    ------
    ProblemFileError
        If a problem file cannot be read, or has no subproblem of the classes named.
    NotSupportedError
        If none of the solvers is installed, or the system has no ``fork``.
    ParameterError
        If another study is writing the journal.
    """
    if not hasattr(os, "fork"):
        raise NotSupportedError("solver studies fork processes; run them on Linux or macOS")
    stages = Stages(progress)
    plan = plan_runs(problem, dict(plugins or {}))
    with contextlib.ExitStack() as stack:
        if journal is None:
            journal = Path(stack.enter_context(tempfile.TemporaryDirectory()), "runs.jsonl")
        records = stack.enter_context(Journal(journal))
        if fresh:
            records.clear()
        _run(plan, problem, records, _parallel(problem.run.jobs), stages)
        found = {entry["key"]: entry for entry in records.records if entry["key"] in plan.runs}
    others = [(key, run, found[key]) for key, run in plan.runs.items() if not run.is_reference]
    references = references_of(
        ((run, found[key]) for key, run in plan.runs.items() if run.is_reference),
        ((run, reply) for _, run, reply in others),
    )
    runs = judge(
        others,
        references,
        {name: problem.tolerance(name) for name in problem.study.settings},
        problem.limits.seconds,
    )
    return Result(
        problem=problem,
        tables={"runs": runs, "references": references, **summarise(runs)},
        numbers={
            "absent": list(plan.absent),
            "machine": _machine(runs, {entry["processor"] for entry in found.values()}),
        },
        caveats=(*CAVEATS, *_substitutions(plan)),
        timings=stages.timings(),
        provenance=provenance_of(
            problem,
            studied=[
                {"name": name, "file": problem_file(load_problem(path))}
                for name, path in problem.files().items()
            ],
        ),
    )


def _parallel(jobs: int) -> joblib.Parallel:
    """Return what makes runs side by side: threads that wait for processes."""
    cores = len(usable_cores())
    return joblib.Parallel(
        min(jobs, cores) if jobs > 0 else cores,
        backend="threading",
        batch_size=1,
        pre_dispatch="n_jobs",
        return_as="generator_unordered",
    )


def _run(
    plan: Plan,
    problem: SolverStudyProblem,
    records: Journal,
    parallel: joblib.Parallel,
    stages: Stages,
) -> None:
    """Make the runs that are not recorded, and record each as it ends.

    A run that an exception of ours ended is made again: what caused it may have been mended.
    """
    done = {entry["key"] for entry in records.records if entry["ended"] != "error"}
    session = 1 + max((entry["session"] for entry in records.records), default=0)
    left = [key for key in plan.runs if key not in done]
    with stages("run", len(plan.runs)) as advance:
        for _ in range(len(plan.runs) - len(left)):
            advance()
        calls = (
            joblib.delayed(_perform)(
                key, plan.jobs[key], problem.run.pin, _foregone(plan, key, records)
            )
            for key in left
        )
        for key, reply in parallel(calls):
            records.append({"key": key, "session": session, **reply})
            advance()


def _perform(
    key: str, job: dict[str, Any], pin: bool, known: dict[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    """Make one run, if its reply is not known already."""
    return key, known or run_isolated(job, pin)


def _foregone(plan: Plan, key: str, records: Journal) -> dict[str, Any] | None:
    """Return the reply of a run that smaller ones have decided: beyond a limit, or unsupported."""
    keys = plan.smaller.get(key, ())
    smaller = {entry["key"]: entry for entry in records.records if entry["key"] in keys}
    ends = {_limit(entry) for entry in smaller.values()}
    if plan.runs[key].is_reference or len(smaller) < len(keys) or len(ends) != 1 or None in ends:
        return None
    entry = smaller[keys[0]]
    return {
        **{name: value for name, value in entry.items() if name not in ("key", "session")},
        "peak_memory_mb": float("nan"),
        "log": f"not run: every instance of size {plan.runs[keys[0]].size} ended so",
    }


def _limit(entry: dict[str, Any]) -> str | None:
    """Return what also ends every larger run: a limit, or a problem that a solver cannot take."""
    if entry["ended"] in ("time limit", "memory limit"):
        return str(entry["ended"])
    unable = entry.get("result", {}).get("status") == "unsupported"
    return "unsupported" if unable else None


def _machine(runs: pd.DataFrame, processors: set[str]) -> dict[str, Any]:
    """Return what timings depend on."""
    return {
        "cpus": sorted(processors),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "pinned": bool((runs.core >= 0).all()),
        "can_pin": can_pin(),
        "sessions": int(runs.session.nunique()),
    }


def _substitutions(plan: Plan) -> Iterable[str]:
    if plan.substituted:
        yield (
            "Classes that have none of the formulations named use their first: "
            f"{', '.join(plan.substituted)}."
        )
