"""``compare_solvers``: solvers and formulations on the subproblems of markets."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from inspect import signature
from itertools import pairwise, product
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import cvxpy as cp
import joblib
import numpy as np
import pandas as pd

from convexmarket import checks
from convexmarket.allocation.solver_calls import solver_version
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.market import Market
from convexmarket.studies import verdicts
from convexmarket.studies.execution import Execution, Reply
from convexmarket.studies.measure import EXACT, REFERENCE, measure_run, warm_up
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

#: The setting "default": the options of CVXPY, and the largest error of a solved run.
_DEFAULT = {"tolerance": 1e-3}
#: Outcomes that also apply to larger runs.
_LIMITS = {"time limit", "memory limit", "unsupported"}

CAVEATS = (
    "Times are of this machine, these versions and one thread, and include CVXPY's time.",
    "Whether a run counts as solved depends on the residuals of the point and on the tolerances.",
    "The changed parameter is one change of moderate size; smaller ones favour warm starts.",
    "Instances come from the problems named above; other problems may differ.",
    "A class that has none of the chosen formulations uses its first formulation.",
)


class Problem(NamedTuple):
    """One problem of a solver study: its subproblems, and a digest of its definition."""

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

    Each run is a process with limits. It declares, compiles and solves the problem, changes a
    parameter and solves again with a warm start. Outcomes follow from residuals of the points.

    Parameters
    ----------
    problems : sequence, or mapping of str
        Each is a :class:`Market`, solved at its own size; a function of the size, or of the size
        and a random number generator, that returns a market; or a class: "allocation",
        "certified search", "given guarantees", "budget", "variants", "weighted logistic
        regression", "ridge", "semi-interactive fit", "z-block". Functions and classes need
        ``sizes``.
    solvers : sequence of str or CVXPY solvers
        CVXPY's names; "exact", the methods of this package without a conic solver; or objects with
        CVXPY's solver interface. ``facts["absent"]`` lists solvers that are not installed.
    formulations : sequence of str
        Such as "primal", "dual", "projection"; all by default. A class that has none of these uses
        its first formulation.
    classes : sequence of str
        Classes of subproblems; all by default.
    sizes : sequence of int, optional
        Numbers of sellers, rows or points, for functions and names of classes.
    draws : int
        Number of instances of each problem and size, for functions and names of classes.
    settings : mapping of str to mapping, optional
        For each name ``{"tolerance": float, "options": {solver: {option: value}}}``: the largest
        error of a solved run, and options of CVXPY's solve. "default" may be None: CVXPY's options
        and 1e-3, as without settings.
    time_limit, memory_limit : float
        Largest time of a run in seconds, and largest memory in megabytes.
    jobs : int
        Number of parallel runs; -1 for one per core.
    seed : int
        Seed of the instances and of the order of the runs.
    journal : path, optional
        File that records each run when it ends; the same call resumes from it.
    progress : bool or callable
        Whether to print progress to standard error, or a function of (stage, done, total).

    Returns
    -------
    Runs
        With the tables

        - ``runs``: one row per run. Its keys are problem, problem_class, instance, size, seed,
          setting, formulation and solver. outcome is "solved", "wrong", "inaccurate", "failed",
          "time limit", "memory limit", "crashed" or "unsupported". Seconds: declaration_s,
          compilation_s, solver_s, recovery_s, total_s. primal_residual, violation, dual_residual,
          gap, excess (of the objective) and accuracy (the largest). The same with the prefix
          ``again_`` for the second solve;
        - ``references``: the best known objective of each instance, and its certainty;
        - ``means``: counts of outcomes, and shifted geometric means with failures as time limits;
        - ``profiles``: performance profiles of the times.

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
    _check_names("formulations", formulations, {name for each in CLASSES.values() for name in each})
    _check_names("classes", classes, set(CLASSES))
    chosen, absent = _solvers(solvers)
    tolerances, options = _settings({"default": None} if settings is None else settings, chosen)
    entries = named_entries("problems", problems)
    named = {name: _problem(name, entry, sizes) for name, entry in entries.items()}
    common = [seed, time_limit, memory_limit, version("convexmarket"), version("cvxpy")]
    cells, calls = list[dict[str, Any]](), dict[str, tuple[Any, ...]]()
    for name, digest, family in (
        (name, digest, family)
        for name, (families, digest) in named.items()
        for family in families
        if not classes or family.problem_class in classes
    ):
        known = CLASSES[family.problem_class]
        forms = [each for each in formulations or known if each in known] or [known[0]]
        contenders = [(REFERENCE, REFERENCE, REFERENCE)] + [
            (setting, form, solver)
            for setting, solver in options
            for form in ([EXACT] if solver == EXACT else forms)
        ]
        able = [size for size in sizes or () if size <= family.largest]
        places = product(able, range(draws)) if family.own_size is None else [(family.own_size, 0)]
        for place, contender in product(places, contenders):
            labels = name, family.problem_class, family.name, *place, *contender
            cell: dict[str, Any] = dict(zip(verdicts.RUN, labels, strict=True))
            method = chosen.get(cell["solver"], REFERENCE)
            given = options.get((cell["setting"], cell["solver"]), {})
            cell |= {"options": json.dumps(given), "time_limit_s": time_limit}
            key = cell["key"] = joblib.hash([cell, digest, _identity(method), common])
            cells.append(cell)
            calls[key] = family.make, place[0], (seed, place[1]), contender[1], method, given
    if not cells:
        kinds = ", ".join(classes) or "known"
        raise ParameterError(f"problems: none has a subproblem of the classes {kinds}; name others")
    # References first, then by increasing size, in random order within a size, so that a drift of
    # the machine affects all contenders equally.
    cells = [cells[place] for place in np.random.default_rng(seed).permutation(len(cells))]
    cells.sort(key=lambda cell: (cell["setting"] != REFERENCE, cell["size"]))
    ordered = {cell["key"]: calls[cell["key"]] for cell in cells}
    replies = execution.run(measure_run, ordered, "runs", _foregone(cells))
    table = verdicts.tabulate((cell, replies[cell["key"]]) for cell in cells)
    references = verdicts.references_of(table)
    runs = verdicts.judge(table, references, tolerances)
    return Runs(
        kind="solvers",
        keys=KEYS,
        tables={"runs": runs, "references": references, **summarise(runs)},
        facts={
            "absent": absent,
            "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()},
            "caveats": CAVEATS,
            "seed": seed,
        },
    )


def summarise(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Compute means and profiles of the runs that count."""
    able = verdicts.counted(runs)
    races = able[able.solver != EXACT]
    tables = {} if able.empty else {"means": verdicts.means(able)}
    return tables if races.empty else tables | {"profiles": verdicts.profiles(races)}


def _cpu() -> str:
    with suppress(OSError, IndexError):
        return Path("/proc/cpuinfo").read_text().split("model name")[1].split("\n")[0].strip(" \t:")
    return platform.processor() or platform.machine()


def _identity(solver: Any) -> str:
    """Return the version of a solver, or a digest of the user's code."""
    if isinstance(solver, str):
        return solver_version(solver)
    return str(joblib.hash(cloudpickle.dumps(type(solver))))


def _check_names(argument: str, names: Sequence[str], known: set[str]) -> None:
    checks.check_list(argument, names, "names")
    for name in names:
        if name not in list(known):
            raise ParameterError(f"{argument} names {name!r}; known are {', '.join(sorted(known))}")


def _solvers(solvers: Sequence[Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the solvers by name, in CVXPY's form, and the names of solvers not installed."""
    checks.check_list("solvers", solvers, "names")
    known, chosen, absent = [*cp.installed_solvers(), EXACT], dict[str, Any](), []
    for solver in solvers:
        name = solver if isinstance(solver, str) else getattr(solver, "name", str)()
        spelled = next((each for each in known if each.lower() == name.lower()), None)
        if isinstance(solver, str):
            chosen |= {spelled: spelled} if spelled else {}
            absent += [] if spelled else [solver]
        elif not name:
            kinds = "give names such as 'CLARABEL', or solvers with CVXPY's interface"
            raise ParameterError(f"solvers names {checks.shown(solver)}; {kinds}")
        elif spelled or name.lower() == REFERENCE:
            raise ParameterError(f"solvers: your solver is named {name!r}, which is taken")
        else:
            chosen[name] = solver
    if not chosen:
        found = f"is installed; CVXPY finds {', '.join(sorted(known))}"
        raise NotSupportedError(f"none of the solvers {', '.join(absent)} {found}")
    return chosen, absent


def _settings(
    settings: Mapping[str, Any], solvers: Mapping[str, Any]
) -> tuple[dict[str, float], dict[tuple[str, str], Any]]:
    """Return the largest error of a solved run in each setting, and options by setting, solver."""
    checks.check_instance("settings", settings, Mapping, 'options by name, {"mine": {...}}')
    tolerances, options = dict[str, float](), dict[tuple[str, str], Any]()
    for name, given in settings.items():
        value: Any = _DEFAULT if name == "default" and given is None else given
        keys = set(value) if isinstance(value, Mapping) else set()
        if not {"tolerance"} <= keys <= {"tolerance", "options"} or name == REFERENCE:
            raise ParameterError(
                f'settings names {name!r}, with {value!r}; give {{"tolerance": 1e-4, "options": '
                f'{{"CLARABEL": {{...}}}}}}; {REFERENCE!r} is a reserved name'
            )
        tolerances[name] = checks.check_positive(f"settings.{name}.tolerance", value["tolerance"])
        named = {solver.upper(): each for solver, each in value.get("options", {}).items()}
        for solver, method in solvers.items():
            chosen = options[name, solver] = named.get(solver.upper(), {})
            if not chosen or solver == EXACT:
                continue
            try:
                with suppress(cp.error.SolverError):  # few iterations may prevent a solution
                    warm_up(method, **chosen)
            except Exception as error:
                raise ParameterError(
                    f"settings.{name}.options.{solver}: the solver refuses {chosen!r} "
                    f"({type(error).__name__}: {error}); give options of this solver"
                ) from None
    return tolerances, options


def _problem(name: str, entry: Any, sizes: Sequence[int] | None) -> Problem:
    """Return the subproblems of one entry of ``problems``."""
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
            raise ParameterError(
                f"problems: {name!r} gives a {type(market).__name__} for n = {size}; give a "
                "Market, a function n -> Market or the name of a class"
            )
        return market

    example = market_of(min(sizes), np.random.default_rng(0))
    families = problem_classes.families_of_market(example, market_of)
    return Problem(families, market_digest(example))


def _foregone(
    cells: Sequence[Mapping[str, Any]],
) -> Callable[[str, Mapping[str, Reply]], Reply | None]:
    """Build the rule that skips a run if all draws of the next smaller size hit the same limit."""
    alike = [name for name in verdicts.RUN if name not in ("size", "seed")]
    smaller = dict[str, tuple[int, list[str]]]()
    for _, runs in pd.DataFrame(cells).groupby(alike):
        sizes = runs.groupby("size").key.agg(list)
        for below, size in pairwise(sizes.index):
            smaller |= dict.fromkeys(sizes[size], (below, sizes[below]))

    def decide(key: str, replies: Mapping[str, Reply]) -> Reply | None:
        below, keys = smaller.get(key, (0, []))
        earlier = [replies.get(each, {}) for each in keys]
        endings = {r.get("result", {}).get("status", r.get("ended")) for r in earlier}
        if len(endings) != 1 or not endings <= _LIMITS:
            return None
        text = f"not run: every instance of size {below} ended in this way"
        return earlier[0] | {"key": key, "peak_memory_mb": float("nan"), "log": text}

    return decide
