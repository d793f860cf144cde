"""``allocate_jointly``: one entry, every method."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from convexmarket.errors import ParameterError
from convexmarket.joint.alternating import Descent, GlobalSearch, alternate, certify
from convexmarket.joint.certificates import convexity_ratio
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import PurchaseStep
from convexmarket.joint.result import JointAllocation, JointStatus, TracePoint
from convexmarket.terms import EtaRange

__all__ = ["allocate_jointly"]

JointMethod = Literal["alternating"]


def allocate_jointly(
    joint: JointMarket,
    method: JointMethod = "alternating",
    *,
    solver: str | None = None,
    starts: int = 5,
    gap: float = 1e-8,
    tolerance: float = 1e-12,
    max_iterations: int = 1000,
    rng: np.random.Generator | None = None,
    progress: Callable[[TracePoint], None] | None = None,
) -> JointAllocation:
    """Choose model, weights and total privacy at once.

    Parameters
    ----------
    joint : JointMarket
    method : {"alternating"}
        Best model for the purchases, best purchases for the model, in turn.
    solver : str, optional
        Solve the purchases by a conic solver; exact where left out and the market allows it.
    starts : int
        Descents to run where the problem is not known to be convex: from no model, from the model
        of equal weights, and from random ones.
    gap : float
        Relative gap at which the search over eta ends, where a lower bound is known.
    tolerance : float
        A descent ends when an iteration gains less, relative to the objective.
    max_iterations : int
        For each descent.
    rng : numpy.random.Generator, optional
        Draws random starts; a fixed one where left out.
    progress : callable, optional
        Called with every :class:`TracePoint`.

    Returns
    -------
    JointAllocation

    Raises
    ------
    UnattainedOptimumError
        If the problem has no minimum; the message says why and what to choose.
    ParameterError
        If an argument is out of its range.
    InfeasibleMarketError, SolverError
        If there is no answer.
    """
    began = time.perf_counter()
    if not isinstance(joint, JointMarket):
        raise ParameterError(f"joint is {joint!r}; give a JointMarket")
    if method not in get_args(JointMethod):
        known = ", ".join(map(repr, get_args(JointMethod)))
        raise ParameterError(f"method is {method!r}; choose one of {known}")
    if starts < 1 or max_iterations < 1:
        raise ParameterError(
            f"starts is {starts} and max_iterations {max_iterations}; give at least 1 of each"
        )
    joint.check_bounded()
    step = PurchaseStep(joint, solver)
    convex = convexity_ratio(joint) < 1
    models = _starts(joint, 1 if convex else starts, rng)
    found = alternate(joint, step, models, tolerance, max_iterations, progress)
    best = min(found, key=lambda descent: descent.objective)
    trace = [point for descent in found for point in descent.trace]
    bound = -np.inf
    status: JointStatus = "global for this eta" if convex else "best of several starts"
    search = GlobalSearch.of(joint, step, tolerance)
    if search is not None:
        search.model = best.model
        other, bound = certify(search, best.eta, gap, 200)
        if other.objective < best.objective:  # another eta, from where alternation goes on
            last = Descent(joint, step, len(found), progress)
            last.model, last.eta = other.model, other.eta
            last.run(tolerance, max_iterations)
            trace += last.trace
            best = last
        bound = min(bound, best.objective)
        status = "global"
    return JointAllocation(
        model=best.model,
        weights=best.weights,
        eta=best.eta,
        objective=best.objective,
        lower_bound=bound,
        residual=best.residual,
        status=status,
        method=method,
        seconds=time.perf_counter() - began,
        trace=tuple(trace),
        starts=tuple(descent.objective for descent in found),
        binding=_binding(joint, best.eta),
    )


def _starts(joint: JointMarket, count: int, rng: np.random.Generator | None) -> list[Any]:
    """Return models to start from: none, and random ones of the length that losses suggest."""
    rng = np.random.default_rng(0) if rng is None else rng
    n = joint.X.shape[1]
    slope = joint.X.T @ joint.y / (2 * joint.X.shape[0])
    length = float(np.linalg.norm(slope)) / joint.regularization
    draws = [length * rng.normal(size=n) / np.sqrt(n) for _ in range(max(count - 2, 0))]
    return [np.zeros(n), slope / joint.regularization, *draws][:count]


def _binding(joint: JointMarket, eta: float) -> tuple[str, ...]:
    ranges = [item for item in joint.market.constraints if isinstance(item, EtaRange)]
    found = []
    for name, end in (("eta_low", "low"), ("eta_high", "high")):
        if any(abs(eta - getattr(item, end)) <= 1e-9 * eta for item in ranges):
            found.append(name)
    return tuple(found)
