"""Calibration of the weight of payments to a budget, from the prior alone.

A budget constraint depends on the reports and may raise a seller's guarantee with its report. With
a weight gamma that depends on the prior alone, the market with ``gamma * Payments()`` in its
objective has truthful prices. It meets the budget on average over markets, not in each market.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.allocation.choose_method import allocate
from convexmarket.checks import check_count, check_positive, generator_of, shown
from convexmarket.errors import ParameterError
from convexmarket.market import Market, as_objective
from convexmarket.sellers import PriorOrPriors, Sellers
from convexmarket.terms import (
    Constraint,
    LinearCost,
    MarketNumbers,
    Objective,
    Payments,
    PrivacyCost,
    Term,
)

__all__ = ["GammaCalibration", "calibrate_gamma"]

Floats = NDArray[np.float64]

#: Relative gap of solves that are not exact.
_GAP = 1e-6
#: Number of draws for a first estimate of gamma. Then, for these and for all draws: the factor of
#: the first step of the bracketing, and the accuracy of the logarithm of gamma.
_FEW, _STAGES = 8, ((8.0, 1e-3), (1.5, 1e-8))
#: Factor of further steps of the bracketing, and their number.
_STEP, _MAX_STEPS = 8.0, 28


@dataclass(frozen=True)
class GammaCalibration:
    """A weight of payments and its expected payments.

    Attributes
    ----------
    gamma : float
    budget : float
    expected_payment : float
        Average of sum psi(c_i) u(eps_i) over the draws at this gamma. It equals the budget, unless
        the payments of the drawn markets are discontinuous there.
    standard_error : float
        Standard error of that average, as an estimate of the expectation over the prior.
    objective : Objective
        The buyer's objective, with the payments at this weight.

    Examples
    --------
    >>> import convexmarket as cm
    >>> objective = cm.Spread() + cm.Noise()
    >>> result = cm.calibrate_gamma(1.0, cm.Uniform(0, 1), 5, objective, draws=20)
    >>> abs(result.expected_payment - 1.0) < 1e-3
    True
    """

    gamma: float
    budget: float
    expected_payment: float
    standard_error: float
    objective: Objective


def calibrate_gamma(
    budget: float,
    prior: PriorOrPriors,
    n_sellers: int,
    objective: Objective | Term,
    constraints: Iterable[Constraint] = (),
    *,
    privacy_cost: PrivacyCost | None = None,
    groups: Any = None,
    draws: int = 200,
    random_state: np.random.Generator | int = 0,
) -> GammaCalibration:
    """Compute the weight of payments at which the expected payments equal the budget.

    It depends on the prior, the number of sellers and the buyer's problem, not on the reports. So
    truthful prices exist, which a :class:`Budget` does not guarantee. Payments equal the budget on
    average over sellers drawn from the prior (A, Eq. 9).

    Parameters
    ----------
    budget : float
        Largest expected total payment, > 0, in the currency of the sensitivities.
    prior : Prior, sequence of Priors, or mapping from group to Prior
        As in :class:`Sellers`.
    n_sellers : int
    objective : Objective or Term
        The buyer's objective without payments, such as ``1.0 * Spread() + 100 * Noise()``.
    constraints : iterable of Constraint
        Constraints that do not depend on the reports.
    privacy_cost : PrivacyCost, optional
        u; linear by default.
    groups : array_like, length n_sellers, optional
        The group of each seller, if the prior is given by group.
    draws : int
        Number of markets to average over, the same for all weights; at least 2.
    random_state : numpy.random.Generator or int, default 0
        Source of the draws.

    Returns
    -------
    GammaCalibration

    Raises
    ------
    ParameterError
        If an argument is out of its range, the objective has payments or no noise term, a
        constraint depends on the reports, or no weight meets the budget.

    Examples
    --------
    >>> import convexmarket as cm
    >>> prior = cm.Uniform(0.02, 0.10)
    >>> calibration = cm.calibrate_gamma(5.0, prior, 20, cm.Spread() + 10 * cm.Noise())
    >>> round(calibration.expected_payment, 6)
    5.0
    >>> market = cm.Market(cm.Sellers.draw(20, prior, random_state=1), calibration.objective)
    >>> print(market.incentives)
    by construction
    """
    budget = check_positive("the budget", budget)
    draws = check_count("draws", draws, 2)
    rng = generator_of(random_state)
    objective = _without_payments(objective)
    term = Payments(LinearCost() if privacy_cost is None else privacy_cost)
    drawn = [Sellers.draw(n_sellers, prior, rng, groups=groups) for _ in range(draws)]
    first = Market(drawn[0], objective + 1.0 * term, constraints)
    if first.incentives != "by construction":
        raise ParameterError(
            f"no weight of payments makes this market truthful: {first.incentives.reason}"
        )

    @cache
    def spending(log_gamma: float, some: int) -> Floats:
        """Compute the expected payments of some drawn markets."""
        whole = objective + float(np.exp(log_gamma)) * term
        return np.array([_spent(Market(each, whole, first.constraints)) for each in drawn[:some]])

    # Without a spread, sigma/eta = gamma*psi*eta, and psi*eta is the budget.
    typical = float(np.median(np.concatenate([sellers.virtual_costs for sellers in drawn])))
    sigma = MarketNumbers().plus(objective.parts).sigma
    log_gamma = float(np.log(sigma * typical) - 2.0 * np.log(budget))
    for some, (factor, accuracy) in zip((min(draws, _FEW), draws), _STAGES, strict=True):

        def excess(log_gamma: float, some: int = some) -> float:
            mean = max(float(spending(log_gamma, some).mean()), np.finfo(float).tiny)
            return float(np.log(mean / budget))

        low, high = _enclose(excess, log_gamma, budget, factor)
        log_gamma = low if low == high else float(brentq(excess, low, high, xtol=accuracy))
    spent = spending(log_gamma, draws)
    return GammaCalibration(
        gamma=float(np.exp(log_gamma)),
        budget=budget,
        expected_payment=float(spent.mean()),
        standard_error=float(spent.std(ddof=1) / np.sqrt(draws)),
        objective=objective + float(np.exp(log_gamma)) * term,
    )


def _spent(market: Market) -> float:
    """Return the virtual cost of the purchase, which equals the expected payments."""
    allocation = allocate(market, gap=_GAP)
    bought = allocation.weights > 0
    cost = np.asarray(market.privacy_cost(allocation.epsilon))
    return float(market.sellers.virtual_costs[bought] @ cost[bought])


def _enclose(
    excess: Callable[[float], float], start: float, budget: float, factor: float
) -> tuple[float, float]:
    """Return logarithms of weights with payments above and below the budget."""
    here, beyond = start, excess(start)
    direction = 1.0 if beyond > 0 else -1.0
    for _ in range(_MAX_STEPS):
        if beyond == 0:
            return here, here
        there = here + direction * np.log(factor)
        beyond = excess(there)
        if beyond * direction <= 0:
            return min(here, there), max(here, there)
        here, factor = there, _STEP
    spends = budget * np.exp(beyond)
    way = ("expensive", "up") if direction > 0 else ("cheap", "down")
    kinds = ("make the buyer spend", "raise"), ("keep the buyer from spending more than", "lower")
    kind, remedy = kinds[direction < 0]
    raise ParameterError(
        f"the budget is {budget:g}, but the constraints {kind} {spends:.6g} however {way[0]} "
        f"privacy is (gamma {way[1]} to {np.exp(here):.3g}); {remedy} the budget or relax the "
        "constraints"
    )


def _without_payments(objective: Objective | Term) -> Objective:
    """Return the buyer's objective, checked to have noise and no payments."""
    objective = as_objective(objective)
    if any(part.term.privacy_cost is not None for part in objective.parts):
        raise ParameterError(
            f"the objective {shown(objective)} has payments, and their weight is to be computed; "
            "leave them out (privacy_cost=... sets the privacy cost)"
        )
    if MarketNumbers().plus(objective.parts).sigma == 0:
        raise ParameterError(
            f"the objective {shown(objective)} has no Noise(), so privacy has no value for the "
            "buyer; add sigma * Noise() with sigma > 0"
        )
    return objective
