"""Markets of any form."""

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from tests.allocation.battery import GAP, figures
from tests.campaign.allocation.test_table_of_variants import SELLERS, VARIANTS, lines

PRIOR = cm.Uniform(1, 5)
M, MARKETS = 500, 20
#: Privacy costs, and the largest allowed numbers of solves until the gap is 1e-6.
COSTS = {
    "linear": (cm.terms.LinearCost(), 40),
    "power 1.5": (cm.PowerCost(1.5), 150),
    "power 2": (cm.PowerCost(2), 150),
    "power 3": (cm.PowerCost(3), 150),
    "exponential": (cm.terms.ExponentialCost(), 150),
}
LIMITS = {
    "free": [],
    "cap": [cm.Cap(3)],
    "largest guarantee": [cm.MaxEpsilon(0.3)],
    "cap, largest guarantee, group share": [
        cm.Cap(3),
        cm.MaxEpsilon(0.3),
        cm.GroupShare(np.arange(M) % 2, at_least={0: 0.6}),
    ],
}


def random_market(seed, cost, limits, spread=None):
    """Draw a market of 500 sellers with random mu, sigma and gamma."""
    rng = np.random.default_rng(seed)
    sellers = cm.Sellers(PRIOR.sample(M, rng), prior=PRIOR)
    mu, sigma, gamma = np.exp(rng.normal(size=3)) * [1.0, 10.0, 0.001]
    objective = mu * (spread or cm.Spread()) + sigma * cm.Noise() + gamma * cm.Payments(cost)
    return cm.Market(sellers, objective, limits)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("cost", COSTS)
def test_few_solves_reach_a_gap_of_a_millionth(benchmark, cost, limits):
    """Count the convex programs until the gap is 1e-6, in 20 random markets of 500 sellers."""
    privacy_cost, allowed = COSTS[cost]
    markets = [random_market(seed, privacy_cost, LIMITS[limits]) for seed in range(MARKETS)]

    def run():
        return [cm.allocate(market, "branch_and_bound") for market in markets]

    result = benchmark.pedantic(run, rounds=1)
    counts = [len(allocation.solves) for allocation in result]
    gaps = [allocation.gap for allocation in result]
    benchmark.extra_info.update(most=max(counts), mean=float(np.mean(counts)), gap=max(gaps))
    assert max(counts) <= allowed
    assert max(gaps) <= 1e-6


def test_one_market_is_allocated_for_fifty_budgets(benchmark):
    """Measure the time of allocations for fifty budgets and 1,000 sellers."""
    rng = np.random.default_rng(0)
    sellers = cm.Sellers(PRIOR.sample(1000, rng), prior=PRIOR)
    budget = cp.Parameter(nonneg=True, name="budget")
    market = cm.Market(sellers, 1.0 * cm.Spread() + 50 * cm.Noise(), [cm.Budget(budget)])
    values = np.geomspace(10, 5000, 50)

    def run():
        return [cm.allocate(market) for budget.value in values]

    result = benchmark.pedantic(run, rounds=3)
    benchmark.extra_info["gap"] = max(allocation.gap for allocation in result)
    assert max(allocation.gap for allocation in result) <= 1e-6
    objectives = [allocation.objective for allocation in result]
    assert np.all(np.diff(objectives) < 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_needs_few_lines_of_code(benchmark, variant):
    """Count the lines of code of each variant, and compare its optimum with a search on a grid.

    The market has 40 sellers. ``excess`` and ``bound`` are the objective and the lower bound minus
    the minimum of the grid, divided by this minimum. A positive ``bound`` would be an error.
    """
    market = cm.Market(SELLERS, *VARIANTS[variant])
    benchmark.pedantic(cm.allocate, (market,), {"gap": GAP}, rounds=1)
    result = figures(market)
    benchmark.extra_info.update(
        lines=lines(*VARIANTS[variant]),
        gap=result.gap,
        solves=result.solves,
        excess=result.excess,
        bound=result.above,
    )
