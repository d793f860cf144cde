"""``compare_solvers``: solvers and formulations on the subproblems of markets."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from inspect import signature
from itertools import pairwise, product
from os import PathLike
from typing import Any, NamedTuple

import cloudpickle
import cvxpy as cp
import joblib
import numpy as np
import pandas as pd

from convexmarket.allocation.solver_calls import solver_version
from convexmarket.checks import (
    check_count,
    check_instance,
    check_list,
    check_positive,
    check_positives,
    shown,
)
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.market import Market
from convexmarket.studies import verdicts
from convexmarket.studies.execution import Execution, Reply
from convexmarket.studies.measure import EXACT, REFERENCE, measure_run, warm_up
from convexmarket.studies.progress import Progress
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import market_digest, named_entries
from convexmarket.studies.subproblems.problem_classes import (
    CLASSES,
    Family,
    families_of_class,
    families_of_market,
)

DEFAULT_SOLVERS = ("exact", "CLARABEL", "ECOS", "SCS", "OSQP", "HIGHS")
KEYS = {
    "runs": verdicts.RUN,
    "references": verdicts.INSTANCE,
    "rates": (*verdicts.GROUP, "size", *verdicts.CONTENDER),
    "means": (*verdicts.GROUP, "size", *verdicts.CONTENDER),
    "profiles": (*verdicts.GROUP, "of", *verdicts.CONTENDER, "tau"),
}

#: Largest error of a solved run under the options of CVXPY.
_TOLERANCE = 1e-3
#: Outcomes that also apply to larger runs; keys of a setting.
_LIMITS = {"time limit", "memory limit", "unsupported"}
_OF_SETTING = {"tolerance", "options"}

CAVEATS = (
    "Times are of this machine, these versions and one thread, and include CVXPY's time; other "
    "machines order solvers differently.",
    "Whether a run counts as solved depends on residuals computed from the returned point, and on "
    "the tolerances chosen for this study.",
    "The changed parameter is one change of moderate size; warm starts gain more from smaller "
    "ones.",
    "Instances come from the problems named above; other problems may differ.",
    "A class that has none of the chosen formulations uses its first formulation.",
)

#: The options of each setting and solver.
_Options = dict[tuple[str, str], Any]


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
        Each is a :class:`Market`, solved at its own size; a function of the size, or of the size
        and a random number generator, that returns a market; or a class: "allocation",
        "certified search", "given guarantees", "budget", "variants", "weighted logistic
        regression", "ridge", "semi-interactive fit", "z-block". Functions and classes need
        ``sizes``.
    solvers : sequence of str or CVXPY solvers
        CVXPY's names; "exact", the methods of this package without a conic solver; or objects with
        CVXPY's solver interface. Solvers that are not installed are listed in ``facts["absent"]``.
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
    pin : bool
        Whether each run is bound to one core.
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
        sizes = [check_count("sizes", size, 2) for size in sizes]
    check_positives(time_limit=time_limit, memory_limit=memory_limit)
    execution = Execution(jobs, time_limit, memory_limit, journal, progress, pin)
    _check_names("formulations", formulations, {name for each in CLASSES.values() for name in each})
    _check_names("classes", classes, set(CLASSES))
    chosen, absent = _solvers(solvers)
    tolerances, options = _settings({"default": None} if settings is None else settings, chosen)
    entries = {
        name: _problem(name, entry, sizes)
        for name, entry in named_entries("problems", problems).items()
    }
    common = [seed, time_limit, memory_limit, version("convexmarket"), version("cvxpy")]
    cells, calls = list[dict[str, Any]](), dict[str, tuple[Any, ...]]()
    families = [(name, digest, each) for name, (some, digest) in entries.items() for each in some]
    for name, digest, family in families:
        if classes and family.problem_class not in classes:
            continue
        known = CLASSES[family.problem_class]
        names = [each for each in formulations if each in known]
        names = names or list(known[:1] if formulations else known)
        contenders = [(REFERENCE, REFERENCE, REFERENCE)]
        for setting, solver in options:
            forms = [EXACT] if chosen[solver] == EXACT else names
            contenders += [(setting, form, solver) for form in forms]
        able = [size for size in sizes or () if size <= family.largest]
        places = product(able, range(draws)) if family.own_size is None else [(family.own_size, 0)]
        for (size, draw), contender in product(places, contenders):
            setting, formulation, solver = contender
            method, given = chosen.get(solver, REFERENCE), options.get((setting, solver), {})
            place = name, family.problem_class, family.name, size, draw, *contender
            cell: dict[str, Any] = dict(zip(verdicts.RUN, place, strict=True))
            cell |= {"options": json.dumps(given), "time_limit_s": time_limit}
            key = cell["key"] = joblib.hash([cell, digest, _identity(method), common])
            cells.append(cell)
            calls[key] = family.make, size, (seed, draw), formulation, method, given
    if not cells:
        raise ParameterError(
            f"problems: none has a subproblem of the classes {', '.join(classes) or 'known'}; name "
            "other problems or classes"
        )
    # References first, then by increasing size, in random order within a size, so that a drift of
    # the machine affects all contenders equally.
    cells = [cells[place] for place in np.random.default_rng(seed).permutation(len(cells))]
    cells.sort(key=lambda cell: (cell["setting"] != REFERENCE, cell["size"]))
    ordered = {cell["key"]: calls[cell["key"]] for cell in cells}
    replies = execution.run(measure_run, ordered, "runs", _foregone(cells))
    records = [(cell, replies[cell["key"]]) for cell in cells]
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
    if verdicts.counted(runs).empty:
        return {}
    parts = verdicts.rates, verdicts.means, verdicts.profiles
    return {part.__name__: part(runs) for part in parts}


def _identity(solver: Any) -> str:
    """Return the version of a solver, or a digest of the user's code."""
    if isinstance(solver, str):
        return solver_version(solver)
    return str(joblib.hash(cloudpickle.dumps(type(solver))))


def _check_names(argument: str, names: Sequence[str], known: set[str]) -> None:
    check_list(argument, names, "names")
    if unknown := [name for name in names if not isinstance(name, str) or name not in known]:
        raise ParameterError(
            f"{argument} names {unknown[0]!r}; known are {', '.join(sorted(known))}"
        )


def _solvers(solvers: Sequence[Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the solvers by name, in CVXPY's form, and the names of solvers not installed."""
    check_list("solvers", solvers, "names")
    known, chosen, absent = (*cp.installed_solvers(), EXACT), dict[str, Any](), []
    for solver in solvers:
        if isinstance(solver, str):
            name = solver if solver == EXACT else solver.upper()
            if name in known:
                chosen[name] = name
            else:
                absent.append(solver)
        elif not callable(getattr(solver, "name", None)):
            raise ParameterError(
                f"solvers names {shown(solver)}; give names such as 'CLARABEL', or solvers with "
                "CVXPY's interface"
            )
        elif (name := solver.name()).upper() in {other.upper() for other in (*known, REFERENCE)}:
            raise ParameterError(f"solvers: your solver is named {name!r}, which is taken")
        else:
            chosen[name] = solver
    if not chosen:
        raise NotSupportedError(
            f"none of the solvers {', '.join(absent) or '(none given)'} is installed; CVXPY finds "
            f"{', '.join(sorted(known))}"
        )
    return chosen, absent


def _settings(
    settings: Mapping[str, Any], solvers: Mapping[str, Any]
) -> tuple[dict[str, float], _Options]:
    """Return the largest error of a solved run in each setting, and the options."""
    check_instance("settings", settings, Mapping, 'options by name, {"mine": {...}}')
    tolerances: dict[str, float] = {}
    options: _Options = {}
    for name, given in settings.items():
        value: Any = given
        if name == "default" and value is None:
            value = {"tolerance": _TOLERANCE}
        if not isinstance(value, Mapping) or not {"tolerance"} <= set(value) <= _OF_SETTING:
            raise ParameterError(
                f'settings names {name!r}, with {value!r}; give {{"tolerance": 1e-4, "options": '
                '{"CLARABEL": {...}}}'
            )
        if name == REFERENCE:
            raise ParameterError(f"settings: {name!r} is a reserved name; choose another name")
        tolerances[name] = check_positive(f"settings.{name}.tolerance", value["tolerance"])
        named = {solver.upper(): each for solver, each in value.get("options", {}).items()}
        for solver, method in solvers.items():
            chosen = options[name, solver] = named.get(solver.upper(), {})
            if method == EXACT or not chosen:
                continue
            try:
                warm_up(method, **chosen)
            except cp.error.SolverError:
                pass  # options such as few iterations may prevent a solution
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
            raise ParameterError(
                f"problems: {name!r} is a Market of a fixed size; with sizes, give a function n -> "
                "Market or the name of a class, or leave out sizes"
            )
        return Problem(families_of_market(entry), market_digest(entry))
    if not sizes:
        raise ParameterError(f"sizes: {name!r} needs sizes, such as sizes=[100, 1000]")
    if isinstance(entry, str):
        return Problem(families_of_class(entry), f"class {entry}")
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
    return Problem(families_of_market(example, market_of), market_digest(example))


def _foregone(
    cells: Sequence[Mapping[str, Any]],
) -> Callable[[str, Mapping[str, Reply]], Reply | None]:
    """Build the rule that skips a run if all runs of the next smaller size reached the same limit.

    The runs have the same contender and any draw. "Unsupported" counts as a limit.
    """
    smaller: dict[str, tuple[int, list[str]]] = {}
    contenders = pd.DataFrame([cell for cell in cells if cell["setting"] != REFERENCE])
    alike = [name for name in verdicts.RUN if name not in ("size", "seed")]
    for _, runs in contenders.groupby(alike):
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
