"""Calibrate the weight of payments to a budget, based only on the prior.

A budget constraint depends on the reports, so a seller's guarantee can increase with the report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.exact_solver import solve_exact
from convexmarket.checks import check_count, check_positive, generator_of, shown
from convexmarket.errors import ParameterError
from convexmarket.market import Market, as_objective
from convexmarket.sellers import PriorOrPriors, Sellers
from convexmarket.terms import Constraint, MarketNumbers, Objective, Payments, PrivacyCost, Term

__all__ = ["GammaCalibration", "calibrate_gamma"]

Floats = NDArray[np.float64]

#: Relative gap of inexact solves, and factor and largest number of the steps that bracket gamma.
_GAP, _FACTOR, _STEPS = 1e-6, 4.0, 42


@dataclass(frozen=True)
class GammaCalibration:
    """Weight of payments, and the expected payments with this weight.

    Attributes
    ----------
    gamma, budget : float
    expected_payment, standard_error : float
        Average of sum psi(c_i) u(eps_i) over the drawn markets, and its standard error. The average
        equals the budget, unless the payments are discontinuous at ``gamma``.
    objective : Objective
        Objective of the buyer, including the payments with the weight ``gamma``.

    Examples
    --------
    >>> import convexmarket as cm
    >>> result = cm.calibrate_gamma(1.0, cm.Uniform(0, 1), 5, cm.Spread() + cm.Noise(), draws=20)
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

    Truthful payments exist, because the weight does not depend on the reports, unlike a
    :class:`Budget`. Payments equal the budget on average over draws from the prior (A, Eq. 9).

    Parameters
    ----------
    budget : float
        Largest expected total payment, > 0, in the currency of the sensitivities.
    prior, n_sellers, groups
        As in :meth:`Sellers.draw`.
    objective : Objective or Term
        The buyer's objective without payments, such as ``1.0 * Spread() + 100 * Noise()``.
    constraints : iterable of Constraint
        Constraints that do not depend on the reports.
    privacy_cost : PrivacyCost, optional
        Privacy cost u, linear by default.
    draws : int
        Number of drawn markets, at least 2.
    random_state : numpy.random.Generator or int, default 0

    Returns
    -------
    GammaCalibration

    Raises
    ------
    ParameterError
        If payments are not truthful for any weight, or no weight satisfies the budget.

    Examples
    --------
    >>> import convexmarket as cm
    >>> prior = cm.Uniform(0.02, 0.10)
    >>> calibration = cm.calibrate_gamma(5.0, prior, 20, cm.Spread() + 10 * cm.Noise(), draws=20)
    >>> round(calibration.expected_payment, 6)
    5.0
    >>> market = cm.Market(cm.Sellers.draw(20, prior, random_state=1), calibration.objective)
    >>> print(market.incentives)
    by construction
    """
    check_positive("the budget", budget)
    draws, rng = check_count("draws", draws, 2), generator_of(random_state)
    objective = as_objective(objective)
    sigma = MarketNumbers().plus(objective.parts).sigma
    if sigma == 0 or any(part.term.privacy_cost is not None for part in objective.parts):
        raise ParameterError(
            f"the objective {shown(objective)} must contain Noise(), without which privacy has no "
            "value; omit payments, whose weight is computed, and give privacy_cost=... instead"
        )
    term = Payments() if privacy_cost is None else Payments(privacy_cost)
    drawn = [Sellers.draw(n_sellers, prior, rng, groups=groups) for _ in range(draws)]
    first = Market(drawn[0], objective + 1.0 * term, constraints)
    if first.incentives != "by construction":
        raise ParameterError(f"no weight makes this market truthful: {first.incentives.reason}")
    forms = [Market(each, first.objective, first.constraints).form.exact for each in drawn]

    @cache
    def spending(log_gamma: float) -> Floats:
        """Compute each market's total virtual cost, which equals its payments in expectation."""
        gamma, spent = float(np.exp(log_gamma)), []
        for sellers, form in zip(drawn, forms, strict=True):
            if form is not None:  # faster than a new market
                best = solve_exact(replace(form, gamma=gamma))
            else:
                market = Market(sellers, objective + gamma * term, first.constraints)
                best = allocate(market, gap=_GAP)
            cost, bought = np.asarray(first.privacy_cost(best.epsilon)), best.weights > 0
            spent.append(float(sellers.virtual_costs[bought] @ cost[bought]))
        return np.array(spent)

    def excess(log_gamma: float) -> float:
        return float(np.log(max(spending(log_gamma).mean(), np.finfo(float).tiny) / budget))

    # Without a spread, sigma/eta = gamma*psi*eta at the optimum, and psi*eta is the budget.
    typical = float(np.median(np.concatenate([sellers.virtual_costs for sellers in drawn])))
    log_gamma = float(np.log(sigma * typical) - 2.0 * np.log(budget))
    step = np.copysign(np.log(_FACTOR), excess(log_gamma))
    for _ in range(_STEPS):
        if excess(log_gamma) * excess(log_gamma + step) <= 0:
            break
        log_gamma += step
    else:
        raise ParameterError(
            f"the budget is {budget:g}, but under the constraints the buyer spends "
            f"{spending(log_gamma).mean():.6g} even at gamma = {np.exp(log_gamma):.3g}; "
            f"{'raise' if step > 0 else 'lower'} the budget or relax the constraints"
        )
    log_gamma = float(brentq(excess, log_gamma, log_gamma + step, xtol=1e-8))
    gamma, spent = float(np.exp(log_gamma)), spending(log_gamma)
    error = float(spent.std(ddof=1) / np.sqrt(draws))
    return GammaCalibration(gamma, budget, float(spent.mean()), error, objective + gamma * term)
