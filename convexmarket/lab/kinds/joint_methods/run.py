"""The ways to solve the joint problem, side by side: who finds the best, and how long it takes.

All methods of one instance run one after the other in one job, so that their times compare; jobs
share instances. A method that fails, hangs or is not installed is a row that says so.
"""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pandas as pd
from joblib import delayed

from convexmarket.deal import package_version, versions
from convexmarket.errors import ConvexMarketError, NotSupportedError
from convexmarket.joint import (
    JointMarket,
    allocate_jointly,
    convexity_ratio,
    convexity_threshold,
)
from convexmarket.joint.nonlinear import check_nonlinear_solver
from convexmarket.lab.failures import failure_status
from convexmarket.lab.kinds.joint_methods.claims import SOLVED, joint_methods_claims
from convexmarket.lab.kinds.joint_methods.problem import (
    JointGroupTable,
    JointMethodsProblem,
    JointMethodTable,
)
from convexmarket.lab.problem.classification import ClassificationData, SyntheticData, WdbcData
from convexmarket.lab.problem.rows import load_rows
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.market import Market
from convexmarket.privacy import gamma_sphere_noise
from convexmarket.sellers import Sellers
from convexmarket.terms import Cap, Noise, Payments, Spread, SquaredSpread

__all__ = ["run_joint_methods"]

Row = dict[str, Any]

#: Beside SOLVED and the failures below: why a method has no answer.
ABSENT, TIMED_OUT, CRASHED = "absent", "timed out", "crashed"

# Purposes of random numbers: each has a branch of the seed to itself.
_SIZES, _SENSITIVITIES, _STARTS, _RESTARTS, _NOISE = range(5)

CAVEATS = (
    "The best is the best that any of the methods found. Where no lower bound is known, a better "
    "answer may exist that none of them found.",
    "Times are those of these implementations, at their tolerances, on this machine. The methods "
    "stop at different accuracies, and start from different numbers of points.",
    "Random instances are small, and separable by construction. What holds on them need not hold "
    "on others.",
)


@dataclass(frozen=True, eq=False)
class Instance:
    """One joint problem of a group."""

    group: JointGroupTable
    place: tuple[int, int]
    joint: JointMarket
    data_norm: float
    seed: int

    @property
    def labels(self) -> Row:
        """What a row of a table is about."""
        return {"group": self.group.name, "instance": self.place[1]}

    def rng(self, purpose: int, *more: int) -> np.random.Generator:
        """Return random numbers for a purpose, the same for each caller."""
        return _rng(self.seed, purpose, *self.place, *more)


def run_joint_methods(
    problem: JointMethodsProblem, progress: Progress | None = None
) -> Result[JointMethodsProblem]:
    """Run every method on every instance of its groups.

    Parameters
    ----------
    problem : JointMethodsProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        The same for the same problem, whatever the number of jobs; times apart. Its tables:

        runs
            One row per group, instance and method: status, message, objective, lower_bound, excess
            (over the best objective of all methods, relative to it), over_bound (over the largest
            lower bound of all), residual, eta, seconds, time_ratio (to the group's first
            alternating method), steps (entries of the trace), certificate (what is known of
            optimality), starts (descents made) and starts_range (of their objectives, relative).
        instances
            One row per group and instance: n_sellers, n_features, spread, regularization, convexity
            (the ratio; inside the convex region if below 1), inside, sigma_max_squared, paper_needs
            (m*R^2) and paper_certifies (2*Lambda*mu is larger; both of the squared spread alone),
            exponential_convex (Lambda >= lambda_conv), best, best_eta and lower_bound.
        descents
            Projected gradient descents from random models at the best eta found: group, instance,
            start, objective, excess and model_distance (from the model of the best descent,
            relative).

    Raises
    ------
    ConvexMarketError
        If an instance cannot be built.

    Notes
    -----
    Methods that run in a process of their own ask of a script that calls this what the module
    :mod:`multiprocessing` does: to do so under ``if __name__ == "__main__":``.
    """
    stages = Stages(progress)
    places = [(g, k) for g, group in enumerate(problem.groups) for k in range(group.instances)]
    calls = (delayed(_study)(problem, place) for place in places)
    found = stages.parallel("solve", problem.run.workers, calls)
    instances = pd.DataFrame([row for row, _, _ in found])
    runs = pd.DataFrame([row for _, rows, _ in found for row in rows])
    descents = pd.DataFrame([row for _, _, rows in found for row in rows])
    return Result(
        problem=problem,
        tables={
            "runs": runs,
            "instances": instances,
            "descents": descents,
        },
        claims=tuple(joint_methods_claims(runs, instances, descents)),
        caveats=CAVEATS,
        timings=stages.timings(),
        provenance=provenance_of(
            problem,
            versions=versions() | {"unopy": package_version("unopy")},
        ),
    )


def _study(
    problem: JointMethodsProblem, place: tuple[int, int]
) -> tuple[Row, list[Row], list[Row]]:
    """Return what is known of an instance, a row for each method, and one for each descent."""
    instance = _instance(problem, place)
    methods = problem.methods_of(instance.group)
    rows = [_run(problem, instance, method) for method in methods]
    solved = [row for row in rows if row["status"] == SOLVED]
    best = min(solved, key=lambda row: row["objective"], default=_without("", ""))
    bound = max((row["lower_bound"] for row in solved), default=-np.inf)
    bound = bound if np.isfinite(bound) else np.nan
    clock = next((row["seconds"] for row in solved if row["method"] == "alternating"), np.nan)
    runs = [
        instance.labels
        | row
        | {
            "excess": _relative(row["objective"], best["objective"]),
            "over_bound": _relative(row["objective"], bound),
            "time_ratio": row["seconds"] / clock if row["status"] == SOLVED else np.nan,
        }
        for row in rows
    ]
    known = {"best": best["objective"], "best_eta": best["eta"], "lower_bound": bound}
    descents = _descents(problem, instance, best) if solved else []
    return instance.labels | _described(instance) | known, runs, descents


def _relative(value: float, reference: float) -> float:
    return (value - reference) / max(abs(reference), float(np.finfo(float).tiny))


# ---------------------------------------------------------------------------------- the instances


def _instance(problem: JointMethodsProblem, place: tuple[int, int]) -> Instance:
    group = problem.groups[place[0]]
    seed = problem.run.seed
    rows = load_rows(_data(group, place[1], _rng(seed, _SIZES, *place)))
    drawn = problem.prior.sample(rows.y_train.size, _rng(seed, _SENSITIVITIES, *place))
    sellers = Sellers(drawn, problem.prior)
    spread = SquaredSpread() if group.spread == "squared" else Spread()
    market = Market(
        sellers,
        group.mu * spread + group.sigma * Noise() + group.gamma * Payments(),
        [] if group.cap is None else [Cap(group.cap)],
    )
    regularization = group.regularization
    if group.convexity is not None:  # the ratio is inversely proportional to Lambda
        plain = JointMarket(market, rows.X_train, rows.y_train, regularization=1.0)
        regularization = convexity_ratio(plain) / group.convexity
    assert regularization is not None
    table, noise_vector = problem.joint, None
    if table.noise == "realised":
        noise_vector = gamma_sphere_noise(rows.X_train.shape[1], _rng(seed, _NOISE, *place))
    joint = JointMarket(
        market,
        rows.X_train,
        rows.y_train,
        regularization=regularization,
        noise=table.noise,
        noise_vector=noise_vector,
        failure_probability=table.failure_probability,
        max_norm=table.max_norm,
    )
    return Instance(group, place, joint, rows.data_norm, seed)


def _rng(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _data(group: JointGroupTable, number: int, rng: np.random.Generator) -> ClassificationData:
    """Return the group's data with the instance's own seed, and size."""
    data = group.data
    if isinstance(data, SyntheticData):
        sizes = {}
        if group.sizes is not None:
            sizes = {
                "n_sellers": int(rng.integers(*group.sizes.n_sellers, endpoint=True)),
                "n_features": int(rng.integers(*group.sizes.n_features, endpoint=True)),
            }
        return data.model_copy(update={"data_seed": data.data_seed + number, **sizes})
    if isinstance(data, WdbcData):
        return data.model_copy(update={"split_seed": data.split_seed + number})
    return data


def _described(instance: Instance) -> Row:
    """Return size, Lambda and what is known of convexity."""
    joint, group = instance.joint, instance.group
    m, n = joint.X.shape
    ratio = convexity_ratio(joint)
    squared = group.spread == "squared"
    needed = m * instance.data_norm**2
    return {
        "n_sellers": m,
        "n_features": n,
        "spread": group.spread,
        "regularization": joint.regularization,
        "convexity": ratio,
        "inside": ratio < 1,
        "sigma_max_squared": float(np.linalg.norm(joint.X, 2)) ** 2,
        "paper_needs": needed if squared else np.nan,
        "paper_certifies": 2 * joint.regularization * group.mu > needed if squared else None,
        "exponential_convex": joint.regularization >= convexity_threshold(joint.X),
    }


# ------------------------------------------------------------------------------------ the methods


def _run(problem: JointMethodsProblem, instance: Instance, method: JointMethodTable) -> Row:
    row = {"name": method.name, "method": method.method}
    if method.method == "nlp":
        try:
            check_nonlinear_solver()
        except NotSupportedError as error:
            return row | _without(ABSENT, str(error))
    call = (_attempt, instance, method, method.starts or problem.joint.starts)
    if method.isolated:
        return row | _isolated(*call, seconds=problem.run.time_limit)
    return row | _attempt(*call[1:])


def _attempt(instance: Instance, method: JointMethodTable, starts: int) -> Row:
    """Return what one method found; every method draws the same starts."""
    began = time.perf_counter()
    try:
        found = allocate_jointly(
            instance.joint,
            method.method,
            starts=starts,
            random_state=instance.rng(_STARTS),
            **method.options,
        )
    except ConvexMarketError as error:
        return _without(failure_status(error), str(error), time.perf_counter() - began)
    return {
        "status": SOLVED,
        "message": "",
        "objective": found.objective,
        "lower_bound": found.lower_bound,
        "residual": found.residual,
        "eta": found.eta,
        "seconds": found.seconds,
        "steps": len(found.trace),
        "certificate": found.status,
        "starts": len(found.starts),
        "starts_range": _relative(max(found.starts), min(found.starts)),
    }


def _without(status: str, message: str, seconds: float = np.nan) -> Row:
    """Return the row of a method that has no answer."""
    numbers = dict.fromkeys(("objective", "lower_bound", "residual", "eta", "starts_range"), np.nan)
    empty = {"seconds": seconds, "steps": 0, "certificate": None, "starts": 0}
    return {"status": status, "message": message} | numbers | empty


def _isolated(call: Callable[..., Row], *arguments: Any, seconds: float) -> Row:
    """Call in a process of its own, which is killed when its time is over."""
    # A fork of a server that has imported everything starts at once; not every system has one.
    forks = "forkserver" in mp.get_all_start_methods()
    context = mp.get_context("forkserver") if forks else mp.get_context("spawn")
    if forks:
        context.set_forkserver_preload([__name__])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, call, *arguments), daemon=True)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return _without(TIMED_OUT, f"no answer within {seconds:g} seconds", seconds)
        row: Row = receiver.recv()
        return row
    except EOFError:
        process.join()
        return _without(CRASHED, f"the process ended with exit code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()


def _send(sender: Connection, call: Callable[..., Row], *arguments: Any) -> None:
    sender.send(call(*arguments))


def _descents(problem: JointMethodsProblem, instance: Instance, best: Row) -> list[Row]:
    """Descend from random models at the best eta found, as the papers do at each of theirs."""
    average = best["eta"] / len(instance.joint.market.sellers)
    try:
        found = [
            allocate_jointly(
                instance.joint,
                "projected_gradient",
                grid=1,
                eps_max=average,
                random_state=instance.rng(_RESTARTS, start),
            )
            for start in range(problem.run.restarts)
        ]
    except ConvexMarketError:
        return []  # where the method cannot serve the market its run says so
    lowest = min(found, key=lambda descent: descent.objective)
    length = max(float(np.linalg.norm(lowest.model)), float(np.finfo(float).tiny))
    return [
        instance.labels
        | {
            "start": start,
            "objective": descent.objective,
            "excess": _relative(descent.objective, best["objective"]),
            "model_distance": float(np.linalg.norm(descent.model - lowest.model)) / length,
        }
        for start, descent in enumerate(found)
    ]
