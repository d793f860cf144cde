"""``compare_solvers``: solvers and formulations on the subproblems of markets."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from inspect import signature
from itertools import product
from os import PathLike
from typing import Any, NamedTuple

import cloudpickle
import cvxpy as cp
import numpy as np
import pandas as pd

from convexmarket.allocation.solver_calls import solver_version
from convexmarket.checks import check_count, check_list, check_positive, shown
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.market import Market
from convexmarket.studies import verdicts
from convexmarket.studies.execution import Execution, Reply, short_digest
from convexmarket.studies.measure import EXACT, REFERENCE, measure_run, warm_up
from convexmarket.studies.progress import Progress
from convexmarket.studies.runs import Runs
from convexmarket.studies.settings import SETTINGS, options_of
from convexmarket.studies.study import market_digest, named_entries
from convexmarket.studies.subproblems import problem_classes

DEFAULT_SOLVERS = ("exact", "CLARABEL", "ECOS", "SCS", "OSQP", "HIGHS")
KEYS = {
    "runs": verdicts.RUN,
    "references": verdicts.INSTANCE,
    "rates": (*verdicts.GROUP, "size", *verdicts.CONTENDER),
    "means": (*verdicts.GROUP, "size", *verdicts.CONTENDER),
    "profiles": (*verdicts.GROUP, "of", *verdicts.CONTENDER, "tau"),
}

CAVEATS = (
    "Times are of this machine, these versions and one thread, and include CVXPY's part; other "
    "machines order solvers differently.",
    "A run counts as solved by residuals that we compute from the returned point, with tolerances "
    "that we chose.",
    "The changed parameter is one change of moderate size; warm starts gain more from smaller "
    "ones.",
    "Instances come from the problems named above; other problems may differ.",
    "A class that has none of the chosen formulations uses its first.",
)

#: The labels of a run, and the arguments of its measurement.
_Run = tuple[dict[str, Any], tuple[Any, ...]]


class Problem(NamedTuple):
    """One problem of a solver study: its subproblems, and a digest of its definition."""

    families: Sequence[problem_classes.Family]
    digest: str


def compare_solvers(
    problems: Any,
    *,
    solvers: Sequence[Any] | Mapping[str, Any] = DEFAULT_SOLVERS,
    formulations: Sequence[str] = (),
    classes: Sequence[str] = (),
    sizes: Sequence[int] | None = None,
    draws: int = 1,
    settings: Sequence[str] | Mapping[str, Any] = ("default",),
    time_limit: float = 60.0,
    memory_limit: float = 4_000.0,
    jobs: int = 1,
    pin: bool = True,
    seed: int = 0,
    journal: str | PathLike[str] | None = None,
    progress: bool | Progress = True,
) -> Runs:
    """Compare solvers and formulations on the subproblems of markets.

    Each run is made in a separate process with limits on time and memory. It declares, compiles
    and solves the problem, changes a parameter and solves again with a warm start. Residuals are
    computed from the returned points; the solver's status is not trusted.

    Parameters
    ----------
    problems : sequence, or mapping of str
        Each a :class:`Market`, at its size; a function ``n -> Market``, or ``(n, draw) -> Market``
        with a generator of random numbers; or the name of a class of subproblems: "allocation",
        "certified search", "given guarantees", "budget", "variants", "weighted logistic
        regression", "ridge", "semi-interactive fit", "z-block". Functions and classes need
        ``sizes``.
    solvers : sequence of str or CVXPY solvers, or mapping of str to either
        CVXPY's names, and "exact", the methods of this package without a conic solver. Solvers that
        are not installed are listed in ``facts["absent"]``.
    formulations : sequence of str
        Such as "primal", "dual", "projection"; all by default. A class that has none of them uses
        its first.
    classes : sequence of str
        Classes of subproblems; all by default.
    sizes : sequence of int, optional
        Sellers, rows or points, for functions and names of classes.
    draws : int
        Instances of each problem and size, for functions and names of classes.
    settings : sequence of str, or mapping of str to mapping
        "default" (CVXPY's options), "solver-default" (the solver's), "low", "mid", "high"
        (tolerances 1e-3, 1e-6, 1e-9). In a mapping each has ``{"tolerance": float, "options":
        {solver: {option: value}}}``, or None for one of these names.
    time_limit, memory_limit : float
        Seconds and megabytes of a run.
    jobs : int
        Runs at a time; -1 for one per core.
    pin : bool
        Whether each run is bound to one core.
    seed : int
        Of the instances and of the order of the runs.
    journal : path, optional
        File that records each run when it ends; the same call resumes from it.
    progress : bool or callable
        Whether to print progress on standard error, or a function of (stage, done, total).

    Returns
    -------
    Runs
        With the tables

        - ``runs``: one row per run. Its keys are problem, problem_class, instance, size, seed,
          setting, formulation and solver. outcome is "solved", "wrong", "inaccurate", "failed",
          "time limit", "memory limit", "crashed" or "unsupported"; status and message are the
          solver's. Seconds: declaration_s, compilation_s, solver_s, recovery_s, total_s.
          primal_residual, violation, dual_residual, gap, excess (relative error of the objective)
          and accuracy (the largest of these). The same with the prefix ``again_`` for the second
          solve;
        - ``references``: the best known objective of each instance, and its certainty;
        - ``rates``: outcomes of each solver and formulation, with Wilson intervals;
        - ``means``: shifted geometric means of the times; a failure counts as the time limit;
        - ``profiles``: performance profiles.

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
    check_count("draws", draws)
    if sizes is not None:
        check_list("sizes", sizes, "numbers, such as [100, 1000]")
        for size in sizes:
            check_count("sizes", size, 2)
    check_positive("time_limit", time_limit)
    check_positive("memory_limit", memory_limit)
    execution = Execution(jobs, time_limit, memory_limit, journal, progress, pin)
    _check_names(
        "formulations",
        formulations,
        {name for each in problem_classes.CLASSES.values() for name in each},
    )
    _check_names("classes", classes, set(problem_classes.CLASSES))
    chosen, absent = _solvers(solvers)
    tolerances, options = _settings(settings, chosen)
    entries = {
        name: _problem(name, entry, sizes)
        for name, entry in named_entries("problems", problems).items()
    }
    limits = [time_limit, memory_limit, version("convexmarket")]
    identity = {name: _identity(solver) for name, solver in chosen.items()}
    runs: list[_Run] = []
    families = [(name, family) for name, each in entries.items() for family in each.families]
    for name, family in families:
        if classes and family.problem_class not in classes:
            continue
        known = problem_classes.CLASSES[family.problem_class]
        names = [each for each in formulations if each in known]
        names = names or list(known[:1] if formulations else known)
        contenders = [
            (setting, solver, formulation)
            for setting, solver in options
            for formulation in ((EXACT,) if chosen[solver] == EXACT else names)
        ]
        repeats = 1 if family.own_size is not None and not sizes else draws
        for size, draw in product(family.sizes(sizes or ()), range(repeats)):
            place = (name, family.problem_class, family.name, size, draw)
            for setting, solver, formulation in [(REFERENCE,) * 3, *contenders]:
                interface = chosen.get(solver, REFERENCE)
                given = {} if interface in (EXACT, REFERENCE) else options[setting, solver]
                labels: dict[str, Any] = dict(zip(verdicts.INSTANCE, place, strict=True))
                labels |= {"formulation": formulation, "solver": solver, "setting": setting}
                # A solver without options in a setting runs with none.
                text = json.dumps(given) if given else ""
                labels["options"] = "no setting known" if given is None else text
                digest = entries[name].digest
                key = short_digest(labels, seed, digest, identity.get(solver), limits)
                labels |= {"key": key, "time_limit_s": time_limit}
                call = (family.make, size, (seed, draw), formulation, interface, given or {})
                runs.append((labels, call))
    if not runs:
        raise ParameterError(
            f"problems: none has a subproblem of the classes {', '.join(classes) or 'known'}; name "
            "other problems or classes"
        )
    # References first, then from the smallest size up, in random order within a size: drift of the
    # machine affects all contenders equally.
    runs = [runs[place] for place in np.random.default_rng(seed).permutation(len(runs))]
    runs.sort(key=lambda run: (run[0]["setting"] != REFERENCE, run[0]["size"]))
    calls = {labels["key"]: call for labels, call in runs}
    decide = _foregone([labels for labels, _ in runs])
    replies = execution.run(measure_run, calls, "runs", decide)
    records = [(labels, replies[labels["key"]]) for labels, _ in runs]
    references = verdicts.references_of(records)
    table = verdicts.judge(records, references, tolerances)
    return Runs(
        kind="solvers",
        keys=KEYS,
        tables={"runs": table, "references": references, **summarise(table)},
        facts={
            "absent": absent,
            "machine": {
                "cpus": sorted({reply["processor"] for reply in replies.values()}),
                "cores": os.cpu_count(),
                "system": platform.platform(),
                "pinned": bool((table.core >= 0).all()),
            },
            "caveats": CAVEATS,
            "seed": seed,
        },
    )


def summarise(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Compute rates, means and profiles of runs; empty if no solver supports any problem."""
    parts = (
        (verdicts.rates, verdicts.means, verdicts.profiles) if len(verdicts.counted(runs)) else ()
    )
    return {part.__name__: part(runs) for part in parts}


# ------------------------------------------------------------------------------ arguments


def _check_names(argument: str, names: Sequence[str], known: set[str]) -> None:
    check_list(argument, names, "names")
    if unknown := [name for name in names if not isinstance(name, str) or name not in known]:
        raise ParameterError(
            f"{argument} names {unknown[0]!r}; known are {', '.join(sorted(known))}"
        )


def _solvers(solvers: Sequence[Any] | Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the solvers by name, in CVXPY's form, and the names of solvers not installed."""
    check_list("solvers", solvers, "names")
    installed = cp.installed_solvers()
    chosen: dict[str, Any] = {}
    absent = []
    given: Any = solvers.items() if isinstance(solvers, Mapping) else ((None, s) for s in solvers)
    for name, solver in given:
        if not isinstance(solver, str):
            if not callable(getattr(solver, "name", None)):
                raise ParameterError(
                    f"solvers names {shown(solver)}; give names such as 'CLARABEL', or solvers "
                    "with CVXPY's interface"
                )
            name = solver.name() if name is None else name
            if name.upper() in {other.upper() for other in (*installed, EXACT, REFERENCE)}:
                raise ParameterError(f"solvers: your solver is named {name!r}, which is taken")
            chosen[name] = solver
        elif solver == EXACT or solver.upper() in installed:
            official = solver if solver == EXACT else solver.upper()
            chosen[name or official] = official
        else:
            absent.append(name or solver)
    if not chosen:
        raise NotSupportedError(
            f"none of the solvers {', '.join(absent) or '(none given)'} is installed; CVXPY finds "
            f"{', '.join(sorted(installed))}"
        )
    return chosen, absent


def _identity(solver: Any) -> Any:
    """Identify a solver: by its version, or by the code of a user-defined solver."""
    if not isinstance(solver, str):
        return hashlib.sha256(cloudpickle.dumps(type(solver))).hexdigest()
    return None if solver == EXACT else [version("cvxpy"), solver_version(solver)]


#: The options of each setting and solver; None if no options are known.
_Options = dict[tuple[str, str], Any]


def _settings(
    settings: Sequence[str] | Mapping[str, Any], solvers: Mapping[str, Any]
) -> tuple[dict[str, float], _Options]:
    """Return the largest error of a solved run in each setting, and the options."""
    given = settings if isinstance(settings, Mapping) else dict.fromkeys(settings)
    tolerances: dict[str, float] = {}
    options: _Options = {}
    for name, value in given.items():
        if value is None and name in SETTINGS:
            tolerances[name] = SETTINGS[name]
            options |= {(name, solver): options_of(name, solver) for solver in solvers}
            continue
        if name in (*SETTINGS, REFERENCE):
            raise ParameterError(f"settings: {name!r} is a reserved name; choose another name")
        if not (
            isinstance(value, Mapping) and {"tolerance"} <= set(value) <= {"tolerance", "options"}
        ):
            raise ParameterError(
                f"settings names {name!r}, with {value!r}; known are "
                f'{", ".join(map(repr, SETTINGS))}, or give {{"tolerance": 1e-4, "options": '
                '{"CLARABEL": {...}}}'
            )
        tolerances[name] = check_positive(f"settings.{name}.tolerance", value["tolerance"])
        named = {solver.upper(): each for solver, each in value.get("options", {}).items()}
        for solver, interface in solvers.items():
            options[name, solver] = named.get(solver.upper(), None if named else {})
            if interface != EXACT and options[name, solver]:
                _check_options(
                    f"settings.{name}.options.{solver}", interface, options[name, solver]
                )
    return tolerances, options


def _check_options(argument: str, solver: Any, options: Mapping[str, Any]) -> None:
    try:
        warm_up(solver, **options)
    except cp.error.SolverError:
        pass  # options such as few iterations may prevent a solution
    except Exception as error:
        raise ParameterError(
            f"{argument}: the solver refuses {options!r} ({type(error).__name__}: {error}); give "
            "options of this solver"
        ) from None


def _problem(name: str, entry: Any, sizes: Sequence[int] | None) -> Problem:
    """Return the subproblems of one entry of ``problems``."""
    if isinstance(entry, Problem):
        return entry
    if isinstance(entry, Market):
        if sizes is not None:
            raise ParameterError(
                f"problems: {name!r} is a Market of a fixed size; with sizes, give a function n -> "
                "Market or the name of a class, or leave out sizes"
            )
        return Problem(problem_classes.families_of_market(entry), market_digest(entry))
    if sizes is None or isinstance(sizes, str) or not len(sizes):
        raise ParameterError(f"sizes: {name!r} needs sizes, such as sizes=[100, 1000]")
    if isinstance(entry, str):
        return Problem(problem_classes.families_of_class(entry), f"class {entry}")
    if not callable(entry):
        raise ParameterError(
            f"problems: {name!r} is a {type(entry).__name__}; give a Market, a function n -> "
            "Market or the name of a class"
        )
    draws = len(signature(entry).parameters) > 1

    def market_of(size: int, rng: np.random.Generator) -> Market:
        market = entry(size, rng) if draws else entry(size)
        if not isinstance(market, Market):
            raise ParameterError(
                f"problems: {name!r} returned a {type(market).__name__} for n = {size}; return a "
                "Market"
            )
        return market

    example = market_of(min(sizes), np.random.default_rng(0))
    return Problem(problem_classes.families_of_market(example, market_of), market_digest(example))


def _foregone(
    runs: Sequence[Mapping[str, Any]],
) -> Callable[[str, Mapping[str, Reply]], Reply | None]:
    """Build the rule that skips a run after a limit, or an unsupported problem, at a smaller size.

    The smaller runs have the next smaller size, and any draw.
    """
    alike: dict[Any, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    places = {}
    for labels in runs:
        place = tuple(labels[name] for name in verdicts.RUN if name not in ("size", "seed"))
        alike[place][labels["size"]].append(labels["key"])
        places[labels["key"]] = place, labels["size"]

    def decide(key: str, replies: Mapping[str, Reply]) -> Reply | None:
        place, size = places[key]
        below = max((other for other in alike[place] if other < size), default=None)
        if below is None or REFERENCE in place:
            return None
        smaller = [replies.get(other, {}) for other in alike[place][below]]
        if len(endings := {_limit(reply) for reply in smaller}) > 1 or "" in endings:
            return None
        text = f"not run: every instance of size {below} ended so"
        return smaller[0] | {"key": key, "peak_memory_mb": float("nan"), "log": text}

    return decide


def _limit(reply: Reply) -> str:
    """Return an ending that also applies to larger runs: a limit, or an unsupported problem."""
    if reply.get("ended") in ("time limit", "memory limit"):
        return str(reply["ended"])
    return "unsupported" if reply.get("result", {}).get("status") == "unsupported" else ""
