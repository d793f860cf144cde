"""Exact allocations and payments.

The sensitivities are uniform on [0.02, 0.10], sigma = 100 and gamma = 0.001. With mu = 1 few
sellers sell, and with mu = 100 nearly all sellers sell.
"""

import subprocess
import sys

import numpy as np
import pytest

import convexmarket as cm
from tests.benchmarks.timing import ratio

PRIOR = cm.Uniform(0.02, 0.10)
#: Values of mu at which few or nearly all sellers sell.
BUYERS = {"few bought": 1.0, "nearly all bought": 100.0}
CAPS = [None, 5.0]
PRIORS = {"uniform": PRIOR, "beta": cm.Beta(2, 5, 0.02, 0.10)}


def market_of(m, mu=1.0, cap=None, prior=PRIOR):
    sellers = cm.Sellers(prior.sample(m, np.random.default_rng(0)), prior)
    return cm.Market.standard(sellers, mu=mu, sigma=100, gamma=0.001, cap=cap)


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("buyer", BUYERS)
@pytest.mark.parametrize("sellers", [10**5, 10**6, 10**7])
def test_exact_allocations_are_certified_and_timed(benchmark, sellers, buyer, cap):
    """Measure an exact allocation, relative to sorting the costs (goal: a ratio of 1.5)."""
    market = market_of(sellers, BUYERS[buyer], cap)
    costs = market.sellers.virtual_costs
    allocation = benchmark.pedantic(cm.allocate, (market,), rounds=5, warmup_rounds=2)
    benchmark.extra_info["/ numpy.sort"] = ratio(
        lambda: cm.allocate(market), lambda: np.sort(costs), rounds=9
    )
    benchmark.extra_info["bought"] = allocation.n_bought
    assert allocation.gap <= 1e-12


TEN_MILLION = """
import resource
import sys
import numpy as np
import convexmarket as cm
rng = np.random.default_rng(0)
sellers = cm.Sellers(virtual_costs=2 * rng.uniform(0.02, 0.10, 10_000_000) - 0.02)
mu, cap = eval(sys.argv[1])
market = cm.Market.standard(sellers, mu=mu, sigma=100, gamma=0.001, cap=cap)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
allocation = cm.allocate(market)
assert allocation.gap <= 1e-12
print(before / 2**20, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is not in KiB")
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("buyer", BUYERS)
def test_ten_million_sellers_need_less_than_three_gib(benchmark, buyer, cap):
    """Measure the peak memory of an allocation to ten million sellers (goal: 3 GiB)."""
    command = [sys.executable, "-c", TEN_MILLION, repr((BUYERS[buyer], cap))]
    result = benchmark.pedantic(
        lambda: subprocess.run(command, capture_output=True, text=True, check=True), rounds=1
    )
    before, peak = map(float, result.stdout.split())
    benchmark.extra_info["peak, GiB"] = peak
    benchmark.extra_info["before, GiB"] = before
    assert peak < 3  # the memory does not depend on the load of the machine


SOLVERS = {
    "primal": ("CLARABEL", "ECOS"),
    "dual": ("CLARABEL", "ECOS"),
    "projection": ("CLARABEL", "OSQP"),
}


@pytest.mark.parametrize("cap", CAPS)
def test_certified_searches_find_the_exact_optimum(benchmark, cap):
    """Measure searches to a gap of 1e-7 for 1,000 sellers, relative to the exact method."""
    market = market_of(1000, cap=cap)
    exact = benchmark.pedantic(cm.allocate, (market,), rounds=50, warmup_rounds=5)
    times = {}
    for formulation, solvers in SOLVERS.items():
        for solver in solvers:

            def search(formulation=formulation, solver=solver):
                return cm.allocate(
                    market, method="line_search", formulation=formulation, solver=solver, gap=1e-7
                )

            searched = search()
            assert searched.gap <= 1e-7
            assert searched.objective == pytest.approx(exact.objective, rel=1e-7)
            times[f"{formulation}, {solver}"] = ratio(search, lambda: cm.allocate(market), rounds=5)
    benchmark.extra_info.update(times)


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("buyer", BUYERS)
@pytest.mark.parametrize("prior", PRIORS)
def test_payments_of_many_sellers_cover_their_costs(benchmark, prior, buyer, cap):
    """Measure the time to compute payments of 100,000 sellers, relative to an allocation.

    The goal is a ratio of 60 for affine virtual costs, and of 300 otherwise (beta priors).
    """
    market = market_of(100_000, BUYERS[buyer], cap, PRIORS[prior])
    allocation = cm.allocate(market)
    paid = benchmark.pedantic(cm.payments, (market, allocation), rounds=3, warmup_rounds=1)
    benchmark.extra_info["/ allocation"] = ratio(
        lambda: cm.payments(market, allocation), lambda: cm.allocate(market), rounds=5
    )
    benchmark.extra_info["bought"] = allocation.n_bought
    assert np.all(paid >= market.sellers.sensitivities * allocation.epsilon)
