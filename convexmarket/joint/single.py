r"""The joint problem without a spread: the global optimum buys from a single seller.

For every model and eta the objective is then linear in the weights, and after the best model it is
concave in them: a vertex of the simplex is optimal. Alternation stops at poor ones. The best model
for one row is a multiple of it, and what remains to be minimised over the model's norm s,
:math:`\log(1+e^{-rs}) + \Lambda s^2/2 + \kappa s`, depends on the norm r of the row alone.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import newton
from scipy.special import expit

from convexmarket.errors import InfeasibleMarketError
from convexmarket.joint.model_step import best_model, norm_price
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.result import JointAllocation, TracePoint

__all__ = ["buy_from_one"]

Floats = NDArray[np.float64]


def buy_from_one(joint: JointMarket) -> JointAllocation | None:
    """Return the global optimum of a market without a spread, or None if it is another market.

    That is the papers' naive model, mu = 0: noise, linear payments and losses, under an EtaRange at
    most. Noise in the model must be "expected", or "worst-case" at a given eta.

    Raises
    ------
    InfeasibleMarketError
        If no seller can sell.
    """
    began = time.perf_counter()
    form = joint.market.form
    low, high = form.eta_range
    curved = form.rest or form.payments or form.mu or form.mu_squared
    known = joint.noise == "expected" or (joint.noise == "worst-case" and low == high)
    if curved or form.is_limited or not known:
        return None
    costs = form.gamma * form.virtual_costs
    if not np.isfinite(costs).any():
        raise InfeasibleMarketError("every seller has an infinite virtual cost: no seller can sell")
    etas = np.full(costs.size, low)
    if joint.sigma > 0:
        with np.errstate(divide="ignore"):
            etas = np.clip(np.sqrt(joint.sigma / costs), low, high)
    if not np.isfinite(etas).all():  # some seller's privacy is free: no optimum is attained
        return None
    etas = np.where(np.isfinite(costs), etas, 1.0)
    values = _fits(joint, norm_price(joint, low)) if low > 0 else _fits(joint, 0.0)
    best = int(np.argmin(values + form.losses + etas * costs + joint.sigma / etas))
    weights, eta = np.eye(costs.size)[best], float(etas[best])
    model = best_model(joint, weights, eta)
    objective = joint.objective(model, weights, eta)
    prices = joint.losses(model) + form.losses + eta * costs
    seconds = time.perf_counter() - began
    return JointAllocation(
        model=model,
        weights=weights,
        eta=eta,
        objective=objective,
        lower_bound=objective,
        residual=float(prices[best] - prices.min()) / abs(objective),
        status="global",
        method="every seller alone",
        seconds=seconds,
        trace=(TracePoint(0, "every seller alone", eta, objective, seconds),),
        starts=(objective,),
        binding=tuple(name for name, end in (("eta_low", low), ("eta_high", high)) if eta == end),
    )


def _fits(joint: JointMarket, kappa: float) -> Floats:
    """Return the least loss of a model of each row alone, its regularization included.

    The slope in the norm of the model rises and is concave, so that Newton's method climbs to its
    zero from 0 without leaping over it.
    """
    lengths = np.linalg.norm(joint.X, axis=1)
    margins = np.zeros(lengths.size)  # t = r*s, whatever the scale of the rows
    worth = lengths / 2 > kappa
    if worth.any():
        r = lengths[worth]
        pull, price = joint.regularization / r**2, kappa / r

        def slope(t: Floats) -> Floats:
            return np.asarray(pull * t + price - expit(-t))

        def curvature(t: Floats) -> Floats:
            return np.asarray(pull + expit(t) * expit(-t))

        margins[worth] = newton(slope, np.zeros(r.size), curvature, tol=1e-12, maxiter=1000)
    norms = np.divide(margins, lengths, out=np.zeros_like(margins), where=lengths > 0)
    if joint.max_norm is not None:
        norms = np.minimum(norms, joint.max_norm)
    fits = np.logaddexp(0.0, -lengths * norms) + joint.regularization / 2 * norms**2
    return np.asarray(fits + kappa * norms)
