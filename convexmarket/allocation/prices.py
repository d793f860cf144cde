r"""Shadow prices, the rates at which the optimal objective falls as constraints are relaxed.

For a market in numbers, prices follow from the optimal point. With :math:`g = \nabla_a F` and
the multipliers tau of ``sum a = 1``, z of the caps, w of the largest guarantees, lambda of the
budget and h of the range of eta,

.. math:: g_i + \lambda\eta\psi_i + z_i + \eta w_i = \tau \;\text{ where } a_i > 0, \qquad
          F_\eta + \lambda\psi^\top a + w^\top a + h = 0 .

The multipliers are the least-squares solution in (tau, lambda, h). Undetermined prices are NaN. In
all other markets, prices are the multipliers of the solver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.market import Market
from convexmarket.terms import Constraint, MarketNumbers
from convexmarket.terms.pieces import Quantities

__all__ = ["binding_constraints", "pricing_of"]

Floats = NDArray[np.float64]

#: Relative slack up to which a constraint is treated as binding.
_BINDS = 1e-6
#: Relative singular value below which a multiplier is treated as undetermined.
_SINGULAR = 1e-8


def binding_constraints(market: Market, best: Allocation) -> tuple[str, ...]:
    """Return the class names of all binding inequalities, excluding ranges of eta."""
    costs = MarketNumbers(market.form.virtual_costs)
    return tuple(type(p).__name__ for p in market.constraints if _binds(p, best, costs))


def _binds(piece: Constraint, best: Allocation, costs: MarketNumbers) -> bool:
    bounds, weights, most = piece.numbers(costs), best.weights, 1 - _BINDS
    sold = weights > 0
    if bounds is None:
        psi = np.where(sold, costs.virtual_costs, 0.0)
        items = piece.constraints(Quantities.at(weights, best.eta, psi))
        sides = [item.args for item in items if isinstance(item, cp.constraints.Inequality)]
        return any(_meet(*(np.asarray(x.value, dtype=float) for x in pair)) for pair in sides)
    if bounds.budgets:
        return bool(bounds.virtual_costs[sold] @ best.epsilon[sold] >= most * bounds.budget)
    limited = np.min(bounds.max_weight) < 1 or bounds.is_bounded
    return bool(limited and np.any(weights >= most * bounds.limit(best.eta), where=sold))


def _meet(low: Floats, high: Floats) -> bool:
    size = np.maximum(np.abs(low), np.abs(high))
    return bool(np.any((high - low <= _BINDS * size) & (size > 0)))


def pricing_of(
    market: Market,
    best: Allocation,
    multipliers: Sequence[Sequence[Floats | None]] | None = None,
    slope: float = 0.0,
) -> Callable[[], tuple[Any, ...]]:
    """Return a function that computes the prices; with parameters, they are computed immediately.

    ``multipliers`` are the solver's multipliers of each constraint, and ``slope`` is the derivative
    of the optimal objective with respect to eta. A market in numbers requires neither argument.
    """
    price = partial(_prices, market.constraints, market.form, best, multipliers, slope)
    return partial(tuple, price()) if market.form.parametric else price


def _prices(
    constraints: Sequence[Constraint],
    form: MarketNumbers,
    best: Allocation,
    multipliers: Sequence[Sequence[Floats | None]] | None,
    slope: float,
) -> tuple[Any, ...]:
    """Compute the shadow prices in the order of the constraints."""
    eta, m, costs = best.eta, best.weights.size, MarketNumbers(form.virtual_costs)
    if not form.rest:
        dual = _multipliers(form, best.weights, eta)
        return tuple(_price(piece.numbers(costs), form, *dual, eta) for piece in constraints)
    mean, prices = float(np.where(form.active, form.virtual_costs, 0.0).mean()), list[Any]()
    for piece, given in zip(constraints, multipliers or [()] * len(constraints), strict=True):
        duals = [np.nan if each is None else np.asarray(each, dtype=float) for each in given]
        if not duals:
            prices.append(np.nan)
        elif (bounds := piece.numbers(costs)) is None:
            prices.append(piece.shadow_prices(duals))
        else:
            first = duals[0] * np.ones(m)
            spent = float(np.sum(duals[0])) / (eta * mean if mean > 0 else eta)
            prices.append(_price(bounds, bounds, first, m / eta * first, spent, -slope, eta))
    return tuple(prices)


def _multipliers(
    form: MarketNumbers, weights: Floats, eta: float
) -> tuple[Floats, Floats, float, float]:
    """Compute the multipliers of caps, largest guarantees, the budget and eta at the optimum."""
    m, sells = weights.size, weights > 0
    psi, epsilon = np.where(sells, form.virtual_costs, 0.0), eta * weights
    marginal = form.gamma * psi
    for weight, cost in form.payments:
        known = cost.derivatives(epsilon)
        marginal = marginal + weight * psi * (np.nan if known is None else known[0])
    slope = (form.mu / np.linalg.norm(weights) + 2.0 * form.mu_squared) * weights
    slope += form.losses + eta * marginal
    slope_eta = float(marginal @ weights) - form.sigma / eta**2
    if np.isnan(slope).any():  # the cost has no known derivative
        return slope * np.nan, slope * np.nan, np.nan, np.nan
    capped = sells & (weights >= form.max_weight * (1 - _BINDS))
    full = sells & (epsilon >= form.max_epsilon * (1 - _BINDS))
    free = sells & ~capped & ~full
    paid = float(psi @ epsilon) >= form.budget * (1 - _BINDS)
    at_end = min(abs(eta - form.eta_low), abs(eta - form.eta_high)) <= _BINDS * eta
    # The columns are for tau, lambda and h. The rows are for sellers strictly between their bounds
    # and for eta. The unit is money.
    rows = np.stack([np.ones(m), -eta * psi, np.zeros(m)], axis=1)
    sold = np.where(full, weights, 0.0)
    last = np.array([sold.sum(), eta * float(psi @ (weights - sold)), eta])
    unknown = np.array([True, paid, at_end])
    matrix = np.concatenate([rows[free] * weights[free, None], last[None]])[:, unknown]
    aim = np.append((slope * weights)[free], float(sold @ slope) - eta * slope_eta)
    size = np.linalg.norm(matrix, axis=0)
    size[size == 0] = 1.0
    inverse = np.linalg.pinv(matrix / size, rcond=_SINGULAR)
    vague = np.any(np.abs(np.eye(size.size) - inverse @ (matrix / size)) > _BINDS, axis=0)
    solution = np.zeros(3)
    solution[unknown] = np.where(vague, np.nan, inverse @ aim / size)
    tau, spent, end = solution.tolist()
    rent = np.maximum(tau - slope - spent * eta * psi, 0.0)
    at_cap, at_bound = np.where(capped, rent / m, 0.0), np.where(full, rent / eta, 0.0)
    at_cap[capped & full] = at_bound[capped & full] = np.nan  # only their sum is unique
    return at_cap, at_bound, spent, end


def _price(
    bounds: MarketNumbers | None,
    form: MarketNumbers,
    at_cap: Floats,
    at_bound: Floats,
    spent: float,
    end: float,
    eta: float,
) -> Any:
    """Return the price of a constraint from its bounds and the multipliers of the market."""
    assert bounds is not None
    if bounds.budgets:
        return spent if bounds.budget <= form.budget * (1 + _BINDS) else 0.0
    if bounds.eta_high < np.inf:  # the multiplier of eta is <= 0 at the low end
        low, high = (abs(eta - each) <= _BINDS * eta for each in bounds.eta_range)
        return (min(end, 0.0) if low else 0.0), (max(end, 0.0) if high else 0.0)
    limit, tightest, prices = bounds.max_weight, form.max_weight, at_cap
    if np.any(np.isfinite(bounds.max_epsilon)):
        limit, tightest, prices = bounds.max_epsilon, form.max_epsilon, at_bound
    price = np.where(limit <= tightest * (1 + _BINDS), prices, 0.0)
    price = np.where(np.equal(limit, 0.0), np.nan, price)  # undetermined for excluded sellers
    return price if np.ndim(limit) else float(price.sum())
