"""Each part pays its own sellers, the same as if all were in one memory."""

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation import parted, path
from convexmarket.errors import AllocationError, ConvexMarketError, NotSupportedError

da = pytest.importorskip("dask.array")

PRIOR = cm.Uniform(0.02, 0.10)
STANDARD = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001}


@pytest.fixture(autouse=True)
def at_once():
    with dask.config.set(scheduler="synchronous"):
        yield


def market_of(reports, prior=PRIOR, **wanted):
    return cm.Market.standard(cm.Sellers(reports, prior), **STANDARD | wanted)


def assert_paid_alike(reports, chunks, prior=PRIOR, **wanted):
    market = market_of(reports, prior, **wanted)
    try:
        expected = cm.payments(market, cm.allocate(market))
    except ConvexMarketError:
        return
    market = market_of(da.from_array(reports, chunks=chunks), prior, **wanted)
    found = cm.allocate(market)
    try:
        paid = cm.payments(market, found).compute()
    except NotSupportedError:
        assert (reports.size - 1) * found._form.max_weight < 1
        return
    np.testing.assert_allclose(paid, expected, rtol=2e-9, atol=1e-10 * expected.max())


@given(
    st.lists(st.floats(0.02, 0.10) | st.sampled_from([0.03, 0.05]), min_size=2, max_size=40),
    st.integers(1, 40),
    st.sampled_from([{}, {"cap": 3.0}, {"cap": 1.2}, {"mu": 0.01}, {"eta_range": (1.0, 9.0)}]),
)
def test_any_partitions_are_paid_the_same(reports, chunks, wanted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parted, "_MOST", 3)
        patch.setattr(parted, "_MANY", 2)
        assert_paid_alike(np.array(reports), chunks, **wanted)


@pytest.mark.parametrize(
    ("mu", "cap"), [(1.0, None), (100.0, None), (1.0, 5.0), (100.0, 5.0), (1.0, 1.5)]
)
@pytest.mark.parametrize("most_shared", [0, 8])
def test_many_sellers_are_paid_the_same(mu, cap, most_shared, monkeypatch):
    monkeypatch.setattr(parted, "_MOST", 500)
    monkeypatch.setattr(parted, "_MANY", 20)
    monkeypatch.setattr(path, "_MOST_SHARED", most_shared)
    reports = PRIOR.sample(5_000, np.random.default_rng(0))
    assert_paid_alike(reports, 1_700, mu=mu, cap=cap)
    assert_paid_alike(np.round(reports, 3), 1_700, mu=mu, cap=cap)


def test_priors_without_an_affine_virtual_cost(monkeypatch):
    monkeypatch.setattr(parted, "_MOST", 20)
    prior = cm.Beta(2, 5)
    assert_paid_alike(prior.sample(200, np.random.default_rng(0)), 90, prior, cap=4.0)


@pytest.mark.parametrize("n_low", [1, 2, 30])
def test_where_the_optimum_jumps_between_branches(n_low):
    """A few cheap sellers beside many dear ones: whoever leaves may move the optimum far away."""
    prior = cm.Uniform(0.0, 1.0)
    reports = np.append(np.full(n_low, 0.001), np.linspace(0.5, 0.52, 44 * n_low))
    for mu in (2.0, 3.0, 4.0):
        wanted = {"mu": mu * np.sqrt(n_low), "sigma": 2.5, "gamma": 0.25}
        assert_paid_alike(reports, 20, prior, **wanted)


def test_whom_nobody_can_replace_is_for_memory():
    market = market_of(da.from_array(np.full(9, 0.05), chunks=4), cap=1.0)
    with pytest.raises(NotSupportedError, match="cannot do without anyone"):
        cm.payments(market, cm.allocate(market))


def test_the_allocation_has_to_be_of_these_sellers():
    one, other = (market_of(da.from_array(np.full(9, 0.05), chunks=4)) for _ in range(2))
    with pytest.raises(AllocationError, match="not of this market's sellers"):
        cm.payments(one, cm.allocate(other))
