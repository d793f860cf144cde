"""``allocate_jointly``: alternating minimisation, or the exponential change of variables."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import SolveRecord
from convexmarket.checks import (
    check_callable,
    check_choice,
    check_count,
    check_instance,
    check_positive,
    generator_of,
)
from convexmarket.joint.alternating import Descent, GlobalSearch, alternate, certify
from convexmarket.joint.certificates import convexity_ratio
from convexmarket.joint.exponential import solve_exponential
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import PurchaseStep
from convexmarket.joint.result import JointAllocation, JointStatus, TracePoint
from convexmarket.joint.single import buy_from_one

__all__ = ["allocate_jointly"]

JointMethod = Literal["alternating", "exponential"]

#: Relative gap that rounding may leave open.
_ROUNDING = 1e-12
#: Gain that the blocks may leave at a point that counts as satisfying first-order conditions.
_STATIONARY = 1e-6


def allocate_jointly(
    joint: JointMarket,
    method: JointMethod = "alternating",
    *,
    starts: int = 5,
    gap: float = 1e-8,
    solver: str | None = None,
    tol: float | None = None,
    max_iterations: int | None = None,
    random_state: np.random.Generator | int = 0,
    progress: Callable[[TracePoint], None] | None = None,
) -> JointAllocation:
    """Choose model, weights and total privacy at once.

    Parameters
    ----------
    joint : JointMarket
    method : {"alternating", "exponential"}
        - "alternating": the best model for the purchases and the best purchases for the model, in
          turn, with a global certificate where the problem is convex for a fixed eta; without a
          spread, the papers' naive model, it compares every seller alone, which is exact;
        - "exponential": weights as a = exp(z), by the convex-concave procedure with exponential
          cones (B, section 4).
    starts : int
        Descents to run where the problem is not known to be convex: from no model, from the
        direction of the class means, and from random ones; with realised noise one more, where
        noise pays most.
    gap : float
        Relative gap at which the search over eta ends, where a lower bound is known.
    solver : str, optional
        A conic solver of CVXPY: for the purchases of "alternating", which are exact by default, and
        for the weights of "exponential", by default CLARABEL.
    tol : float, optional
        Relative gain of an iteration at which a descent ends; 1e-12 and 1e-9 by default.
    max_iterations : int, optional
        Of each descent; 1000 and 200 by default.
    random_state : numpy.random.Generator or int, default 0
        Draws random starts.
    progress : callable, optional
        Called with every :class:`TracePoint`.

    Returns
    -------
    JointAllocation

    Raises
    ------
    UnattainedOptimumError
        If the problem has no minimum; the message names the reason and the remedies.
    ParameterError
        If an argument is out of its range.
    NotSupportedError, CurvatureError
        If the method cannot serve this market.
    InfeasibleMarketError, SolverError
        If there is no answer.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 100 * cm.Spread() + cm.Noise() + 0.1 * cm.Payments())
    >>> X, y = [[1.0], [-1.0], [0.5]], [1, -1, 1]
    >>> found = cm.allocate_jointly(cm.JointMarket(market, X, y, regularization=1.0))
    >>> found.weights.round(3), round(found.eta, 3)
    (array([0.335, 0.334, 0.331]), 3.278)
    """
    began = time.perf_counter()
    check_instance("joint", joint, JointMarket)
    check_choice("method", method, JointMethod)
    check_count("starts", starts)
    check_positive("gap", gap)
    options: dict[str, Any] = {"solver": solver, "progress": progress}
    if tol is not None:
        options["tol"] = check_positive("tol", tol)
    if max_iterations is not None:
        options["max_iterations"] = check_count("max_iterations", max_iterations)
    check_callable("progress", progress)
    rng = generator_of(random_state)
    joint.check_bounded()
    alone = buy_from_one(joint) if method == "alternating" and solver is None else None
    if alone is not None:
        return alone
    convex, bound = convexity_ratio(joint) < 1, -np.inf
    solves: tuple[SolveRecord, ...] = ()
    if method == "alternating":
        models = _starts(joint, 1 if convex else starts, rng)
        descents, bound, solves = _alternating(joint, models, gap, **options)
    else:
        descents = _exponential(joint, _starts(joint, starts, rng), options)
    best = min(descents, key=lambda descent: descent.objective)
    status: JointStatus = "best of several starts"
    if bound >= best.objective - max(gap, _ROUNDING) * abs(best.objective):
        status = "global"
    elif convex and best.residual <= _STATIONARY:
        status = "global for this eta"
    ends = zip(("eta_low", "eta_high"), joint.market.form.eta_range, strict=True)
    result = JointAllocation(
        model=best.model,
        weights=best.weights,
        eta=best.eta,
        objective=best.objective,
        lower_bound=min(bound, best.objective),
        residual=best.residual,
        status=status,
        method=method,
        seconds=time.perf_counter() - began,
        trace=tuple(point for descent in descents for point in descent.trace),
        solves=solves,
        starts=tuple(descent.objective for descent in descents),
        binding=tuple(name for name, end in ends if abs(best.eta - end) <= 1e-9 * best.eta),
    )
    if bound > -np.inf and status != "global":
        result.warn_if_loose(
            gap,
            "the problem is at the edge of where it is convex; try a larger mu or regularization",
        )
    return result


def _alternating(
    joint: JointMarket,
    models: list[NDArray[np.float64]],
    gap: float,
    progress: Callable[[TracePoint], None] | None,
    solver: str | None,
    tol: float = 1e-12,
    max_iterations: int = 1000,
) -> tuple[list[Descent], float, tuple[SolveRecord, ...]]:
    """Return all descents; where one is known, a lower bound, and the search that proves it."""
    step = PurchaseStep(joint, solver)
    descents = alternate(joint, step, models, tol, max_iterations, progress)
    search = GlobalSearch.of(joint, step, tol)
    if search is None:
        return descents, -np.inf, ()
    search.model = descents[0].model
    other, bound = certify(search, descents[0].eta, gap, 200)
    if other.objective < descents[0].objective:  # another eta, from where alternation goes on
        last = Descent(joint, step, len(descents), progress)
        last.model, last.eta = other.model, other.eta
        last.run(tol, max_iterations)
        descents.append(last)
    return descents, bound, tuple(search.records)


def _exponential(
    joint: JointMarket, models: list[NDArray[np.float64]], options: dict[str, Any]
) -> list[Descent]:
    """Return a descent in z from the best purchases for each model."""
    step, descents = PurchaseStep(joint), []
    options["solver"] = options["solver"] or "CLARABEL"
    for number, model in enumerate(models):
        bought = step(model)
        # A descent in z only multiplies weights: no weight may start from zero.
        weights = (bought.weights + 1.0 / bought.weights.size) / 2.0
        descents.append(solve_exponential(joint, bought.eta, weights, start=number, **options))
    return descents


def _starts(joint: JointMarket, count: int, rng: np.random.Generator) -> list[NDArray[np.float64]]:
    """Return models to start from: none, the class means, and random ones of that length.

    Against realised noise one more comes first: along the ray on which noise pays most.
    """
    n = joint.X.shape[1]
    slope = joint.X.T @ joint.y / (2 * joint.X.shape[0])
    length = float(np.linalg.norm(slope)) / joint.regularization
    draws = [length * rng.normal(size=n) / np.sqrt(n) for _ in range(max(count - 2, 0))]
    models = [np.zeros(n), slope / joint.regularization, *draws][:count]
    models = [joint.shortened(model) for model in models]
    b = joint.noise_vector
    if b is None or not b.any():
        return models
    reach = [] if joint.max_norm is None else [joint.max_norm / float(np.linalg.norm(b))]
    if joint.eta_low > 0:
        reach.append(2.0 / (joint.regularization * joint.eta_low))
    return [-min(reach) * b, *models]
