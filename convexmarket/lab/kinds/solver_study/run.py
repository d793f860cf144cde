"""Comparing solvers and formulations: every run on its own, recorded, judged and summarised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from convexmarket.lab.kinds import KINDS
from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem
from convexmarket.lab.problem.loading import load_problem, parse_problem
from convexmarket.lab.provenance import problem_file, provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.studies.plugins import load_plugin
from convexmarket.studies.settings import SETTINGS
from convexmarket.studies.solvers import Problem
from convexmarket.studies.solvers import compare_solvers as comparison

__all__ = ["compare_solvers", "run_solver_study", "solver_study"]


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
          time_limit_s; outcome (see :func:`convexmarket.studies.verdicts.outcome_of`, or
          "time limit", "memory limit", "crashed"), status (the solver's word) and message.
          Seconds: declaration_s, compilation_s, solver_s, recovery_s, total_s. iterations,
          objective, reference, certainty (of the reference), excess (relative error of the
          objective); primal_residual, violation, dual_residual and gap
          (:mod:`convexmarket.studies.kkt`), accuracy (the worst of these five). The same
          with the prefix again_ for the solve with a changed parameter. peak_memory_mb of
          the process, added_memory_mb of it by the run; core (-1: not pinned) and session.
        - ``references``: One row per instance: reference and again_reference (best
          objective known), certainty ("exact"; or what the residuals of the tightest solve
          leave open, and doubt, that as a number; "refuted" where a run found a better
          one; "none"), message.
        - ``rates``, ``means``, ``profiles``: See
          :mod:`convexmarket.studies.solvers`.
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
    stages = Stages(progress)
    problems = {name: load_problem(path) for name, path in problem.files().items()}
    entries = {
        name: Problem(KINDS[one.kind].subproblems(one), str(problem_file(one)))
        for name, one in problems.items()
        if not isinstance(one, SolverStudyProblem)
    }
    if fresh and journal is not None:
        journal.unlink(missing_ok=True)
    study, own = problem.study, dict(plugins or {})
    with stages("run", 1):
        runs = comparison(
            entries,
            solvers={name: name for name in study.solvers}
            | {name: load_plugin(place)() for name, place in own.items()},
            formulations=study.formulations,
            classes=study.classes,
            sizes=study.sizes,
            draws=study.seeds,
            settings={
                name: None if name in SETTINGS else problem.settings[name].model_dump()
                for name in study.settings
            },
            time_limit=problem.limits.seconds,
            memory_limit=problem.limits.megabytes,
            jobs=problem.run.jobs,
            pin=problem.run.pin,
            seed=problem.run.seed,
            journal=journal,
            progress=progress or False,
        )
    return Result(
        problem=problem,
        tables=dict(runs.tables),
        numbers={"absent": runs.facts["absent"], "machine": runs.facts["machine"]},
        caveats=tuple(runs.facts["caveats"]),
        timings=stages.timings(),
        provenance=provenance_of(
            problem,
            studied=[{"name": name, "file": problem_file(one)} for name, one in problems.items()],
        ),
    )
