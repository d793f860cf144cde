"""Test partitions with 10^3 to 10^7 sellers in markets that require many passes."""

import dask
import numpy as np
import pytest

import convexmarket as cm
from convexmarket import partitions
from convexmarket.errors import ConvexMarketError

da = pytest.importorskip("dask.array")

PRIOR, UNIT = cm.Uniform(0.02, 0.10), cm.Uniform(0, 1)


def market_of(kind, m, rng):
    """Draw a prior, reports and the weights of the terms for a market with mu = 1."""
    standard = {"sigma": 100.0, "gamma": 0.001}
    if kind == "several roots":
        few = m // 45
        reports = np.append(np.full(few, 0.001), np.linspace(0.5, 0.52, m - few))
        return UNIT, reports, {"sigma": 2.5, "gamma": 0.25, "mu": 0.1 * np.sqrt(few)}
    drawn = PRIOR.sample(m, rng)
    close = np.clip(0.06 + 1e-9 * rng.standard_normal(m), 0.02, 0.10)
    given = {
        "random": (PRIOR, drawn),
        "tied": (PRIOR, np.round(drawn, 3)),
        "close": (PRIOR, close),
        "far apart": (UNIT, rng.uniform(0, 1, m) ** 8),
        "not affine": (cm.Beta(2, 5), cm.Beta(2, 5).sample(m, rng)),
    }
    return *given[kind], standard | {"mu": 1.0}


@pytest.mark.parametrize("m", [10**3, 10**4, 10**5, 10**6, 10**7])
@pytest.mark.parametrize(
    "kind", ["random", "tied", "close", "far apart", "not affine", "several roots"]
)
def test_two_passes_give_the_optimum_of_sellers_in_memory(kind, m):
    rng = np.random.default_rng(m)
    prior, reports, standard = market_of(kind, m, rng)
    ends = np.sort(rng.integers(0, m, 7))
    chunks = tuple(int(n) for n in np.diff([0, *ends, m]) if n)
    sellers = partitions.sellers(da.from_array(reports, chunks=(chunks,)), prior)
    for mu in (0.01, 1.0, 30.0, 1000.0):
        for cap in (None, 5.0, 1.5):
            given = standard | {"mu": mu * standard["mu"], "cap": cap}
            try:
                expected = cm.allocate(cm.Market.standard(cm.Sellers(reports, prior), **given))
            except ConvexMarketError:
                continue
            with dask.config.set(scheduler="threads"):
                result = cm.allocate(cm.Market.standard(sellers, **given))
            assert result.gap < 1e-12
            assert result.objective == pytest.approx(expected.objective, rel=1e-12)
            weights = result.weights_of(reports)
            largest = expected.weights.max()
            np.testing.assert_allclose(weights, expected.weights, rtol=0, atol=1e-10 * largest)
