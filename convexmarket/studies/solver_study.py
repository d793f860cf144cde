"""Comparison of solvers and formulations on the subproblems of markets."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from inspect import signature
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import cvxpy as cp
import joblib
import numpy as np
import pandas as pd
from cloudpickle import dumps

from convexmarket import checks
from convexmarket.allocation.solver_calls import solver_version
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.market import Market
from convexmarket.studies import verdicts
from convexmarket.studies.execution import Execution, Reply
from convexmarket.studies.measure import EXACT, REFERENCE, Row, measure_run, warm_up
from convexmarket.studies.progress import Progress
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import market_digest, named_entries
from convexmarket.studies.subproblems import problem_classes
from convexmarket.studies.subproblems.problem_classes import CLASSES, Family

DEFAULT_SOLVERS = ("exact", "CLARABEL", "ECOS", "SCS", "OSQP", "HIGHS")
KEYS = {
    "runs": tuple(verdicts.RUN),
    "references": tuple(verdicts.INSTANCE),
    "means": (*verdicts.GROUP, "size", *verdicts.CONTENDER),
    "profiles": (*verdicts.GROUP, *verdicts.CONTENDER, "tau"),
}

#: Statuses of a run after which the runs of larger sizes are skipped.
_LIMITS = {"time limit", "memory limit", "unsupported"}

CAVEATS = (
    "Times apply to this machine, these versions and one thread. They include the time of CVXPY.",
    "Whether a run counts as solved depends on its residuals and on the chosen tolerances.",
    "The parameter of the second solve changes moderately; smaller changes favour warm starts.",
    "The results for other problems may differ.",
    "A class that has none of the chosen formulations uses its first formulation.",
)


class Problem(NamedTuple):
    """A problem in a solver study, with its subproblems and a digest of its definition."""

    families: Sequence[Family]
    digest: str


def compare_solvers(
    problems: Any,
    *,
    solvers: Sequence[Any] = DEFAULT_SOLVERS,
    formulations: Sequence[str] = (),
    classes: Sequence[str] = (),
    sizes: Sequence[int] | None = None,
    draws: int = 1,
    settings: Mapping[str, Any] | None = None,
    time_limit: float = 60.0,
    memory_limit: float = 4_000.0,
    jobs: int = 1,
    seed: int = 0,
    journal: str | PathLike[str] | None = None,
    progress: bool | Progress = True,
) -> Runs:
    """Compare solvers and formulations on the subproblems of markets.

    Each run is a process with a time limit and a memory limit. It solves a problem, changes a
    parameter, and solves the problem again with a warm start. The residuals of the returned points
    determine the outcome of the run.

    Parameters
    ----------
    problems : sequence, or mapping of str
        Each problem is a :class:`Market`, a function or a class name. A function maps a size, and
        optionally a generator, to a market. The classes are "allocation", "certified search",
        "given guarantees", "budget", "variants", "weighted logistic regression", "ridge",
        "semi-interactive fit" and "z-block".
    solvers : sequence of str or CVXPY solvers
        CVXPY's names of solvers, or objects with CVXPY's solver interface. "exact" selects the
        exact methods of this package. ``facts["absent"]`` lists CVXPY's solvers that are not
        installed.
    formulations : sequence of str
        Names such as "primal", "dual" or "projection"; all by default. A class without any of the
        given formulations uses its first formulation.
    classes : sequence of str
        Classes of subproblems. By default, all classes are compared.
    sizes : sequence of int, optional
        Numbers of sellers, rows or points, required for functions and class names.
    draws : int
        Number of instances of each problem and size.
    settings : mapping of str to mapping, optional
        Each setting is ``{"tolerance": float, "options": {solver: {option: value}}}``. The
        tolerance is the largest error of a solved run. The options are passed to the solver. The
        default, ``{"default": None}``, is a tolerance of 1e-3 with CVXPY's default options.
    time_limit, memory_limit : float
        Limit on the time of a run in seconds, and limit on its memory in megabytes.
    jobs : int
        Number of parallel runs, or -1 for one run per core.
    seed : int
        Seed of the instances and of the order of the runs.
    journal : path, optional
        File that records each completed run. The same call continues an interrupted study.
    progress : bool or callable
        Whether to print progress to standard error, or a function of (stage, done, total).

    Returns
    -------
    Runs
        The result contains these tables.

        - ``runs`` has a row for each run. Its keys are problem, problem_class, instance, size,
          seed, setting, formulation and solver. outcome is "solved", "wrong", "inaccurate",
          "failed", "time limit", "memory limit", "crashed" or "unsupported". Times in seconds are
          declaration_s, compilation_s, solver_s, recovery_s and total_s. Errors are
          primal_residual, violation, dual_residual, gap and excess (the relative error of the
          objective). accuracy is the largest error. The prefix ``again_`` marks the second solve.
        - ``references`` has the best known objective of each instance, and its certainty.
        - ``means`` has the counts of outcomes and the shifted geometric means of the times. The
          time of a run that is not solved is its time limit.
        - ``profiles`` has the performance profiles of the times.

    Raises
    ------
    ParameterError
        If an argument is not valid, or another study is writing the journal.
    NotSupportedError
        If no solver is installed, or a market has no subproblem to compare.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5)
    >>> runs = cm.compare_solvers([market], solvers=["CLARABEL", "OSQP"])  # doctest: +SKIP
    >>> runs.to_frame()[["solver", "formulation", "outcome", "total_s"]]  # doctest: +SKIP
    """
    checks.check_count("draws", draws)
    if sizes is not None:
        checks.check_list("sizes", sizes, "numbers, such as [100, 1000]")
        sizes = [checks.check_count("sizes", size, 2) for size in sizes]
    checks.check_positives(time_limit=time_limit, memory_limit=memory_limit)
    execution = Execution(jobs, time_limit, memory_limit, journal, progress)
    every = sorted({form for each in CLASSES.values() for form in each})
    filters = {"formulations": (formulations, every), "classes": (classes, sorted(CLASSES))}
    for argument, (names, valid) in filters.items():
        checks.check_list(argument, names, "names")
        for name in names:
            if name not in valid:
                raise ParameterError(f"{argument} names {name!r}; known are {', '.join(valid)}")
    chosen, absent = _solvers(solvers)
    versions = {
        name: solver_version(each) if isinstance(each, str) else joblib.hash(dumps(type(each)))
        for name, each in chosen.items()
    }
    tolerances, options = _settings(settings or {"default": None}, chosen, absent)
    entries = named_entries("problems", problems)
    named = {name: _problem(name, entry, sizes) for name, entry in entries.items()}
    common = [seed, time_limit, memory_limit, version("convexmarket"), version("cvxpy")]
    cells, calls = list[dict[str, Any]](), dict[str, tuple[Any, ...]]()
    for name, family in ((n, each) for n, problem in named.items() for each in problem.families):
        if classes and family.problem_class not in classes:
            continue
        known = CLASSES[family.problem_class]
        forms = [each for each in formulations or known if each in known] or [known[0]]
        pairs = [(s, f, v) for s, v in options for f in ([EXACT] if v == EXACT else forms)]
        contenders = [(REFERENCE, REFERENCE, REFERENCE), *pairs]
        able = [size for size in sizes or () if size <= family.largest]
        places = product(able, range(draws)) if family.own_size is None else [(family.own_size, 0)]
        for place, contender in product(places, contenders):
            labels = name, family.problem_class, family.name, *place, *contender
            cell: dict[str, Any] = dict(zip(verdicts.RUN, labels, strict=True))
            setting, form, solver = contender
            method, given = chosen.get(solver, REFERENCE), options.get((setting, solver), {})
            cell |= {"options": json.dumps(given), "time_limit_s": time_limit}
            key = joblib.hash([cell, named[name].digest, versions.get(solver), common])
            cells.append(cell | {"key": key})
            calls[key] = family.make, place[0], (seed, place[1]), form, method, given
    if not cells:
        kinds = f" of the classes {', '.join(classes)}" if classes else ""
        raise ParameterError(f"problems: no problem has a subproblem{kinds}; name others")
    # References run first, and other runs by increasing size. Runs of equal size have a random
    # order, so that a gradual change of the machine's speed affects all contenders equally.
    cells = [cells[place] for place in np.random.default_rng(seed).permutation(len(cells))]
    cells.sort(key=lambda cell: (cell["setting"] != REFERENCE, cell["size"]))
    ordered = {cell["key"]: calls[cell["key"]] for cell in cells}
    replies = execution.run(measure_run, ordered, "runs", _foregone(cells))
    table = verdicts.tabulate((cell, replies[cell["key"]]) for cell in cells)
    references = verdicts.references_of(table)
    runs = verdicts.judge(table, references, tolerances)
    machine = {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()}
    facts = {"absent": absent, "machine": machine, "caveats": CAVEATS, "seed": seed}
    tables = {"runs": runs, "references": references, **summarise(runs)}
    return Runs(kind="solvers", keys=KEYS, tables=tables, facts=facts)


def summarise(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Compute the means and the profiles of runs whose solver supports the problem."""
    able = verdicts.counted(runs)
    races = able[able.solver != EXACT]
    tables = {} if able.empty else {"means": verdicts.means(able)}
    return tables if races.empty else tables | {"profiles": verdicts.profiles(races)}


def _cpu() -> str:
    with suppress(OSError, IndexError):
        return Path("/proc/cpuinfo").read_text().split("model name")[1].split("\n")[0].strip(" \t:")
    return platform.processor() or platform.machine()


def _solvers(solvers: Sequence[Any]) -> tuple[dict[str, Any], list[str]]:
    checks.check_list("solvers", solvers, "names")
    installed, chosen, absent = [*cp.installed_solvers(), EXACT], dict[str, Any](), list[str]()
    known = sorted({*installed, *cp.settings.SOLVERS})
    for solver in solvers:
        given = getattr(type(solver), "name", lambda _: "")  # a class has no name
        name = solver if isinstance(solver, str) else given(solver)
        spelled = next((each for each in known if each.lower() == name.lower()), "")
        if isinstance(solver, str) and not spelled:
            raise ParameterError(f"solvers names {solver!r}; known are {', '.join(known)}")
        if isinstance(solver, str):
            chosen |= {spelled: spelled} if spelled in installed else {}
            absent += [] if spelled in installed else [spelled]
        elif not name:
            kinds = "give names such as 'CLARABEL', or objects with CVXPY's interface"
            raise ParameterError(f"solvers names {checks.shown(solver)}; {kinds}")
        elif spelled or name.lower() == REFERENCE:
            raise ParameterError(f"solvers: rename your solver {name!r}; this name is reserved")
        else:
            chosen[name] = solver
    if not chosen:
        reason = f"is installed; CVXPY finds {', '.join(sorted(installed))}"
        raise NotSupportedError(f"no solver in solvers={absent} {reason}")
    return chosen, absent


def _settings(
    settings: Mapping[str, Any], solvers: Mapping[str, Any], absent: Sequence[str]
) -> tuple[dict[str, float], dict[tuple[str, str], Any]]:
    """Return the tolerance of each setting, and the options of each setting and solver."""
    checks.check_instance("settings", settings, Mapping, 'options by name, {"mine": {...}}')
    tolerances, options = dict[str, float](), dict[tuple[str, str], Any]()
    for name, given in settings.items():
        value: Any = {"tolerance": 1e-3} if name == "default" and given is None else given
        keys = set(value) if isinstance(value, Mapping) else set()
        if not {"tolerance"} <= keys <= {"tolerance", "options"} or name == REFERENCE:
            form = '{"tolerance": 1e-4, "options": {"CLARABEL": {...}}}'
            wrong = f"settings names {name!r}, with {value!r}; give {form}"
            raise ParameterError(f"{wrong}; {REFERENCE!r} is a reserved name")
        tolerances[name] = checks.check_positive(f"settings.{name}.tolerance", value["tolerance"])
        named = {solver.upper(): each for solver, each in value.get("options", {}).items()}
        if other := sorted({*named} - {each.upper() for each in (*solvers, *absent)}):
            given = f"settings.{name}.options names {other[0]!r}"
            raise ParameterError(f"{given}; the compared solvers are {', '.join(solvers)}")
        for solver, method in solvers.items():
            chosen = options[name, solver] = named.get(solver.upper(), {})
            if not chosen or solver == EXACT:
                continue
            try:
                with suppress(cp.error.SolverError):  # too few iterations can prevent a solution
                    warm_up(method, **chosen)
            except Exception as error:
                place, reason = f"settings.{name}.options.{solver}", type(error).__name__
                raise ParameterError(
                    f"{place}: the solver rejects {chosen!r} ({reason}: {error}); give others"
                ) from None
    return tolerances, options


def _problem(name: str, entry: Any, sizes: Sequence[int] | None) -> Problem:
    if isinstance(entry, Problem):
        return entry
    if isinstance(entry, Market):
        if sizes is not None:
            raise ParameterError(f"problems: {name!r} is a Market of a fixed size; leave out sizes")
        return Problem(problem_classes.families_of_market(entry), market_digest(entry))
    if not sizes:
        raise ParameterError(f"sizes: {name!r} needs sizes, such as sizes=[100, 1000]")
    if isinstance(entry, str):
        return Problem(problem_classes.families_of_class(entry), f"class {entry}")

    def market_of(size: int, rng: np.random.Generator) -> Market:
        market = entry
        if callable(entry):
            market = entry(size, rng) if len(signature(entry).parameters) > 1 else entry(size)
        if not isinstance(market, Market):
            wrong = f"problems: {name!r} is a {type(market).__name__} for n = {size}"
            raise ParameterError(f"{wrong}; give a Market, a function n -> Market or a class name")
        return market

    example = market_of(min(sizes), np.random.default_rng(0))
    return Problem(problem_classes.families_of_market(example, market_of), market_digest(example))


def _foregone(cells: Sequence[Row]) -> Callable[[str, Mapping[str, Reply]], Reply | None]:
    """Build the rule that skips a run if the run of the next smaller size reached a limit."""
    smaller, last = dict[str, Any](), dict[tuple[Any, ...], Any]()
    for cell in cells:  # cells are sorted by increasing size
        place = tuple(cell[name] for name in verdicts.RUN if name != "size")
        smaller[cell["key"]], last[place] = last.get(place), cell

    def decide(key: str, replies: Mapping[str, Reply]) -> Reply | None:
        below = smaller[key] or {"key": "", "size": 0}
        earlier = replies.get(below["key"], {})
        if earlier.get("result", {}).get("status", earlier.get("ended")) not in _LIMITS:
            return None
        text = f"skipped because the run of size {below['size']} had the same outcome"
        return earlier | {"key": key, "peak_memory_mb": float("nan"), "log": text}

    return decide
