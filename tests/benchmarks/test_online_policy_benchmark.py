"""Online policies, in memory."""

import numpy as np
import pytest

import convexmarket as cm

UNIT = {"mu": 1.0, "sigma": 1.0, "gamma": 1.0}
PRIORS = {
    "uniform": cm.Uniform(1, 5),
    "beta": cm.Beta(2, 5),
    "sample": cm.EmpiricalPrior(np.random.default_rng(0).lognormal(0, 1, 1000)),
}
N = 10**7


@pytest.mark.parametrize("name", PRIORS)
def test_many_quotes_are_vectorised(benchmark, name):
    """Measure vectorised quotes: 10^7 for the uniform prior and 10^5 for other priors."""
    prior = PRIORS[name]
    n = N if name == "uniform" else N // 100
    policy = cm.OnlinePolicy(prior, 10**5, **UNIT)
    reports = prior.sample(n, np.random.default_rng(0))
    quoted = benchmark.pedantic(policy.quote, (reports,), rounds=5, warmup_rounds=1)
    assert quoted.epsilon.any()
    benchmark.extra_info["quotes per second"] = round(n / benchmark.stats.stats.median)


@pytest.mark.parametrize("name", PRIORS)
def test_one_quote_is_timed(benchmark, name):
    """Measure one quote."""
    prior = PRIORS[name]
    policy = cm.OnlinePolicy(prior, 10**5, **UNIT)
    report = float(prior.quantile(0.001))
    assert benchmark(policy.quote, report).epsilon > 0


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("name", PRIORS)
def test_a_plan_for_many_sellers_is_certified(benchmark, name, cap):
    """Measure the computation of a plan for 10^5 sellers."""
    policy = benchmark.pedantic(
        cm.OnlinePolicy, (PRIORS[name], 10**5), {**UNIT, "cap": cap}, rounds=3
    )
    assert policy.plan.gap <= 1e-9
