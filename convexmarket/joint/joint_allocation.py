"""Solve the joint problem by alternating minimisation or a change of variables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import CertifiedPurchase, SolveRecord
from convexmarket.allocation.eta_search import search_eta
from convexmarket.checks import (
    check_choice,
    check_count,
    check_instance,
    check_positive,
    generator_of,
)
from convexmarket.errors import InfeasibleMarketError
from convexmarket.joint.alternating import (
    MAX_SOLVES,
    Descent,
    GlobalSearch,
    PurchaseStep,
    best_model,
)
from convexmarket.joint.exponential import solve_exponential
from convexmarket.joint.problem import JointMarket, convexity_ratio

Floats = NDArray[np.float64]
JointMethod = Literal["alternating", "exponential"]
JointStatus = Literal["global", "global for this eta", "best of several starts"]

#: Relative gap that is attributed to rounding errors.
_ROUNDING = 1e-12
#: Largest residual for which a point is treated as stationary.
_STATIONARY = 1e-6
#: Relative gain at which a descent ends, and largest number of iterations, for each method.
_DEFAULTS = {"alternating": (1e-12, 1000), "exponential": (1e-9, 200)}


@dataclass(frozen=True, eq=False, repr=False)
class JointAllocation(CertifiedPurchase):
    """A model, weights and total privacy, with a certificate or evidence of optimality.

    ``lower_bound`` bounds the objective over all models, weights and eta. It is -inf if unknown.
    ``residual`` bounds the relative gain of changing only the model, or only weights and eta.
    ``status`` is "global" (proven by the lower bound up to the gap), "global for this eta" (the
    problem is convex for a fixed eta), or "best of several starts". ``solves`` are the steps of the
    search that computes the lower bound. ``starts`` are the final objectives of all descents.
    ``binding`` lists the active bounds of an EtaRange.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3], cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> joint = cm.JointMarket(market, [[0.6], [-0.6]], [1, -1], regularization=0.5)
    >>> best = cm.allocate_jointly(joint)
    >>> best.status, best.weights.round(2)
    ('best of several starts', array([0.82, 0.18]))
    """

    model: Floats
    weights: Floats
    eta: float
    objective: float
    lower_bound: float
    residual: float
    status: JointStatus
    method: str
    seconds: float
    solves: tuple[SolveRecord, ...]
    starts: tuple[float, ...]
    binding: tuple[str, ...]

    def __post_init__(self) -> None:
        self.model.flags.writeable = self.weights.flags.writeable = False

    def statement(self) -> str:
        """Return a warning that the result has no privacy guarantee."""
        return (
            "neither the model nor the payments have a privacy guarantee, because weights, eta "
            "and model depend on the data; for privacy, use allocate() and train a private learner"
        )

    def __repr__(self) -> str:
        return (
            f"JointAllocation(eta={self.eta:.6g}, objective={self.objective:.10g}, "
            f"status={self.status!r}, gap={self.gap:.1e}, residual={self.residual:.1e}, bought "
            f"{self.n_bought} of {self.weights.size}, method={self.method!r})"
        )


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
) -> JointAllocation:
    """Choose the model, the weights and the total privacy jointly.

    Parameters
    ----------
    joint : JointMarket
    method : {"alternating", "exponential"}
        "alternating" computes the best model for the purchases, then the best purchases for the
        model, and repeats these steps. If the problem is convex for a fixed eta, a global
        certificate is computed. Without a spread (the papers' naive model), the optimum, a purchase
        from a single seller, is computed exactly. "exponential" applies the convex-concave
        procedure to weights a = exp(z) (B, section 4).
    starts : int
        Number of descents if the problem is not known to be convex. The initial models are zero,
        the class means, and random models. With realised noise, an additional descent starts at the
        model for which noise reduces the objective most.
    gap : float
        For convex problems, the relative gap at which the search over eta ends.
    solver : str, optional
        A conic solver of CVXPY for the purchases. By default, purchases are computed exactly for
        "alternating" and with CLARABEL for "exponential".
    tol, max_iterations : float and int, optional
        Relative gain at which a descent ends, and its largest number of iterations. The defaults
        are 1e-12 and 1000 for "alternating", and 1e-9 and 200 for "exponential".
    random_state : numpy.random.Generator or int, default 0
        Source of the random initial models.

    Returns
    -------
    JointAllocation

    Raises
    ------
    UnattainedOptimumError
        If the problem has no minimum.
    InfeasibleMarketError
        If the market is infeasible.
    ParameterError
        If an argument is out of range.
    NotSupportedError
        If the method does not support the market.
    SolverError
        If the solver fails.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 100 * cm.Spread() + cm.Noise() + 0.1 * cm.Payments())
    >>> X, y = [[1.0], [-1.0], [0.5]], [1, -1, 1]
    >>> best = cm.allocate_jointly(cm.JointMarket(market, X, y, regularization=1.0))
    >>> best.weights.round(3), round(best.eta, 3)
    (array([0.335, 0.334, 0.331]), 3.278)
    """
    began = time.perf_counter()
    check_instance("joint", joint, JointMarket)
    check_choice("method", method, JointMethod)
    check_count("starts", starts)
    check_positive("gap", gap)
    usual = _DEFAULTS[method]
    tol = check_positive("tol", usual[0] if tol is None else tol)
    most = check_count("max_iterations", usual[1] if max_iterations is None else max_iterations)
    rng = generator_of(random_state)
    joint.check_bounded()
    convex, bound = convexity_ratio(joint) < 1, -np.inf
    solves: Sequence[SolveRecord] = ()
    descents: list[Descent] = []
    step = PurchaseStep(joint, None if method == "exponential" else solver)
    if method == "exponential":
        for model in _starts(joint, starts, rng):
            bought = step(model)
            # A descent in z multiplies weights, so initial weights must be positive.
            weights = (bought.weights + 1.0 / bought.weights.size) / 2.0
            conic = solver or "CLARABEL"
            descents.append(solve_exponential(joint, bought.eta, weights, conic, tol, most))
    elif solver is None and (alone := _best_alone(joint)) is not None:
        descents, bound = [alone], alone.objective
    else:
        for model in _starts(joint, 1 if convex else starts, rng):
            descents.append(Descent(joint, step, model))
            descents[-1].run(tol, most)
        if convex and step.form is not None and joint.noise != "realised":
            search = GlobalSearch(descents[0], tol)
            bound = search_eta(search, descents[0].eta, gap, MAX_SOLVES, None)[1]
            if search.best is not descents[0]:  # alternate from the best eta of the search
                descents.append(Descent(joint, step, search.best.model))
                descents[-1].eta = search.best.eta
                descents[-1].run(tol, most)
            solves = search.records
    best = min(descents, key=lambda descent: descent.objective)
    if np.isinf(best.residual):
        best.measure()
    status: JointStatus = "best of several starts"
    if bound >= best.objective - max(gap, _ROUNDING) * abs(best.objective):
        status = "global"
    elif convex and best.residual <= _STATIONARY:
        status = "global for this eta"
    ends = zip(("eta_low", "eta_high"), joint.market.form.eta_range, strict=True)
    result = JointAllocation(
        **{name: getattr(best, name) for name in ("model", "weights", "eta", "objective")},
        lower_bound=min(bound, best.objective),
        residual=best.residual,
        status=status,
        method=method,
        seconds=time.perf_counter() - began,
        solves=tuple(solves),
        starts=tuple(descent.objective for descent in descents),
        binding=tuple(name for name, end in ends if abs(best.eta - end) <= 1e-9 * best.eta),
    )
    if bound > -np.inf and status != "global":
        result.warn_if_loose(gap, "the problem is barely convex; use a larger mu or regularization")
    return result


def _starts(joint: JointMarket, count: int, rng: np.random.Generator) -> list[Floats]:
    """Return initial models: zero, the class means, and random models of similar norm.

    With realised noise, a model is added on the ray on which noise reduces the objective most.
    """
    n, longest = joint.X.shape[1], joint.max_norm or np.inf
    means = joint.X.T @ joint.y / (2 * joint.X.shape[0]) / joint.regularization
    length = float(np.linalg.norm(means))
    draws = [length * rng.normal(size=n) / np.sqrt(n) for _ in range(max(count - 2, 0))]
    models = [np.zeros(n), means, *draws][:count]
    models = [model * min(1.0, longest / (np.linalg.norm(model) or 1.0)) for model in models]
    b = joint.noise_vector
    if b is None or not b.any():
        return models
    reach = longest / float(np.linalg.norm(b))
    if (low := joint.market.form.eta_low) > 0:
        reach = min(reach, 2.0 / (joint.regularization * low))
    return [-reach * b, *models]


def _best_alone(joint: JointMarket) -> Descent | None:
    """Return the global optimum of a market without a spread, or None for other markets.

    The papers' naive model has noise, linear payments and losses, and optionally an EtaRange.
    The minimum over models is a concave function of the weights, so a single seller is optimal.
    """
    form = joint.market.form
    low, high = form.eta_range
    curved = form.rest or form.payments or form.mu or form.mu_squared or form.is_limited
    if curved or not (joint.noise == "expected" or (joint.noise == "worst-case" and low == high)):
        return None
    costs = form.gamma * form.virtual_costs
    able = np.flatnonzero(np.isfinite(costs))
    if not able.size:
        raise InfeasibleMarketError("all virtual costs are infinite: no seller can sell")
    if joint.sigma > 0 and high == np.inf and np.any(costs[able] == 0):
        return None  # no optimum is attained, because a seller has cost zero
    best = Descent(joint, PurchaseStep(joint), np.zeros(joint.X.shape[1]))
    for seller in able:
        eta, weights = low, np.zeros(costs.size)
        weights[seller] = 1.0
        if joint.sigma > 0:
            cost = float(costs[seller])
            eta = float(np.clip(np.sqrt(joint.sigma / cost) if cost > 0 else np.inf, low, high))
        best.take(best_model(joint, weights, eta), weights, eta)
    prices = joint.losses(best.model) + form.losses + best.eta * costs
    best.residual = float(prices[best.weights > 0][0] - prices.min()) / best.scale
    return best
