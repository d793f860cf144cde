"""The runs of a study, in the order in which they are made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import cvxpy as cp
import numpy as np

from convexmarket.allocation.solvers import solver_version
from convexmarket.errors import NotSupportedError, ParameterError, ProblemFileError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem
from convexmarket.lab.problem.base import ProblemModel
from convexmarket.lab.problem.loading import load_problem
from convexmarket.lab.study.families import CLASSES, Family
from convexmarket.lab.study.measure import EXACT, REFERENCE
from convexmarket.lab.study.plugins import plugin_digest

__all__ = ["UNKNOWN", "Plan", "Run", "plan_runs"]

#: What a setting passes to a solver that it does not know: nothing.
UNKNOWN = "no setting known"


@dataclass(frozen=True)
class Run:
    """One run of a study: which instance, and how it is solved.

    Attributes
    ----------
    problem : str
        Short name of the problem file.
    problem_class, instance : str
        Which of its subproblems.
    size, seed : int
    formulation, solver, setting : str
        All three "reference" for the run that others are measured against.
    options : str
        What the setting passes to the solver, or "no setting known".
    """

    problem: str
    problem_class: str
    instance: str
    size: int
    seed: int
    formulation: str
    solver: str
    setting: str
    options: str = ""

    @property
    def is_reference(self) -> bool:
        """Whether the run says what is right."""
        return self.setting == REFERENCE

    @property
    def labels(self) -> dict[str, Any]:
        """What the rows of a table say of the run."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that a study does.

    Attributes
    ----------
    runs : dict of str to Run
        By key, references first, the others from the smallest size to the largest, each size in
        random order, so that what drifts on the machine hits all contenders alike.
    jobs : dict of str to dict
        What :func:`convexmarket.lab.study.isolation.run_isolated` takes, by key.
    absent : tuple of str
        Solvers that were named and are not installed.
    substituted : tuple of str
        Classes that have none of the formulations named, with the one they use.
    smaller : dict of str to tuple of str
        By key, the runs that are alike in all but the seed, one size below.
    """

    runs: dict[str, Run]
    jobs: dict[str, dict[str, Any]]
    absent: tuple[str, ...]
    substituted: tuple[str, ...]
    smaller: dict[str, tuple[str, ...]]


def plan_runs(study: SolverStudyProblem, plugins: Mapping[str, str]) -> Plan:
    """Return the runs of a study.

    Parameters
    ----------
    study : SolverStudyProblem
    plugins : mapping of str to str
        Solvers of the user's own: a name, and "module:Class" of a CVXPY solver interface.

    Raises
    ------
    ProblemFileError
        If a problem file cannot be read, or has no subproblem of the classes named.
    ParameterError
        If a class or a formulation that is named is none, a solver of the user's own has a name of
        ours, or cannot be imported.
    NotSupportedError
        If no solver that is named is installed.
    """
    _check_names(study, plugins)
    solvers, absent = _solvers(study, plugins)
    problems = {name: load_problem(path) for name, path in study.files().items()}
    problems = {n: p for n, p in problems.items() if not isinstance(p, SolverStudyProblem)}
    wanted = {name: _wanted(study, problem) for name, problem in problems.items()}
    if not any(wanted.values()):
        raise ProblemFileError(
            f"{', '.join(study.study.problems)}: no subproblem of the classes "
            f"{', '.join(study.study.classes) or 'known'}; name other files or classes"
        )
    runs = [
        run
        for name, found in wanted.items()
        for family in found
        for run in _runs(study, name, family, solvers)
    ]
    order = np.random.default_rng(study.run.seed).permutation(len(runs))
    runs = sorted((runs[k] for k in order), key=lambda run: (not run.is_reference, run.size))
    digests = {name: plugin_digest(place) for name, place in plugins.items()}
    jobs = [_job(study, problems[run.problem], run, plugins, digests) for run in runs]
    keys = [_key(job) for job in jobs]
    named = set(study.study.formulations)
    kinds = {family.kind for found in wanted.values() for family in found}
    substituted = {
        f"{kind.problem_class}: {kind.formulations[0]}"
        for kind in kinds
        if named and not named & set(kind.formulations)
    }
    return Plan(
        dict(zip(keys, runs, strict=True)),
        dict(zip(keys, jobs, strict=True)),
        absent,
        tuple(sorted(substituted)),
        _smaller(dict(zip(keys, runs, strict=True))),
    )


def _smaller(runs: dict[str, Run]) -> dict[str, tuple[str, ...]]:
    alike: dict[Run, dict[int, list[str]]] = {}
    for key, run in runs.items():
        sizes = alike.setdefault(replace(run, size=0, seed=0), {})
        sizes.setdefault(run.size, []).append(key)
    return {
        key: tuple(sizes[max(below)])
        for sizes in alike.values()
        for size, keys in sizes.items()
        if (below := [other for other in sizes if other < size])
        for key in keys
    }


def _check_names(study: SolverStudyProblem, plugins: Mapping[str, str]) -> None:
    formulations = {name for kind in CLASSES for name in kind.formulations}
    for wanted, named, known in (
        ("study.classes", study.study.classes, {kind.problem_class for kind in CLASSES}),
        ("study.formulations", study.study.formulations, formulations),
    ):
        unknown = [name for name in named if name not in known]
        if unknown:
            raise ParameterError(
                f"{wanted} names {unknown[0]!r}; known are {', '.join(sorted(known))}"
            )
    taken = {name.upper() for name in (*cp.installed_solvers(), EXACT, REFERENCE)}
    for name in plugins:
        if name.upper() in taken:
            raise ParameterError(f"a solver of your own is named {name!r}, which is taken")


def _solvers(
    study: SolverStudyProblem, plugins: Mapping[str, str]
) -> tuple[list[str], tuple[str, ...]]:
    """Return the solvers that can be used, and those that are absent."""
    installed = cp.installed_solvers()
    present, absent = [], []
    for name in dict.fromkeys([*study.study.solvers, *plugins]):
        if name in plugins or name == EXACT:
            present.append(name)
        elif name.upper() in installed:
            present.append(name.upper())
        else:
            absent.append(name)
    if not present:
        raise NotSupportedError(
            f"none of the solvers {', '.join(absent)} is installed; CVXPY finds "
            f"{', '.join(sorted(installed))}"
        )
    return present, tuple(absent)


def _wanted(study: SolverStudyProblem, problem: ProblemModel) -> list[Family]:
    classes = study.study.classes
    return [
        f
        for f in KINDS[problem.kind].subproblems(problem)
        if not classes or f.problem_class in classes
    ]


def _formulations(study: SolverStudyProblem, family: Family) -> list[str]:
    known, named = family.kind.formulations, study.study.formulations
    return [name for name in known if not named or name in named] or [known[0]]


def _runs(
    study: SolverStudyProblem, name: str, family: Family, solvers: list[str]
) -> Iterator[Run]:
    methods = [
        (formulation, solver)
        for solver in solvers
        for formulation in ([EXACT] if solver == EXACT else _formulations(study, family))
    ]
    for size in family.sizes(study.study.sizes):
        for seed in range(study.study.seeds):
            place = (name, family.problem_class, family.name, size, seed)
            yield Run(*place, REFERENCE, REFERENCE, REFERENCE)
            for setting in study.study.settings:
                for formulation, solver in methods:
                    options = {} if solver == EXACT else study.options(setting, solver)
                    told = UNKNOWN if options is None else json.dumps(options) if options else ""
                    yield Run(*place, formulation, solver, setting, told)


def _job(
    study: SolverStudyProblem,
    problem: ProblemModel,
    run: Run,
    plugins: Mapping[str, str],
    digests: Mapping[str, str],
) -> dict[str, Any]:
    assert problem.source is not None
    patience = 3.0 if run.is_reference else 1.0
    return {
        "problem": {
            "path": problem.source.path,
            "text": problem.source.text,
            "overrides": list(problem.source.overrides),
        },
        "name": run.problem,
        "problem_class": run.problem_class,
        "instance": run.instance,
        "size": run.size,
        "seed": [study.run.seed, run.seed],
        "formulation": run.formulation,
        "setting": run.setting,
        "solver": run.solver,
        "plugin": plugins.get(run.solver, ""),
        "plugin_digest": digests.get(run.solver, ""),
        "options": {} if run.options in ("", UNKNOWN) else json.loads(run.options),
        "seconds": patience * study.limits.seconds,
        "megabytes": study.limits.megabytes,
        "versions": [version("convexmarket"), *_version_of(run.solver)],
    }


def _version_of(solver: str) -> list[str]:
    return [] if solver in (EXACT, REFERENCE) else [version("cvxpy"), solver_version(solver)]


def _key(job: dict[str, Any]) -> str:
    """Return a name for what is run, the same in every session and wherever the file lies."""
    told = job | {"problem": {key: job["problem"][key] for key in ("text", "overrides")}}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:20]
