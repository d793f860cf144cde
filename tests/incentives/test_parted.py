"""Each part pays its own sellers, the same as if all were in one memory."""

from functools import partial

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation import DaskSellers, allocate_parts, parted
from convexmarket.errors import ConvexMarketError, NotSupportedError
from convexmarket.incentives import part_payments

da = pytest.importorskip("dask.array")

PRIOR = cm.Uniform(0.02, 0.10)
STANDARD = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001}


@pytest.fixture(autouse=True)
def at_once():
    with dask.config.set(scheduler="synchronous"):
        yield


def assert_paid_alike(reports, chunks, prior=PRIOR, **wanted):
    sellers = DaskSellers(da.from_array(reports, chunks=chunks), prior)
    found = allocate_parts(sellers, **STANDARD | wanted)
    market = cm.Market.standard(cm.Sellers(reports, prior), **STANDARD | wanted)
    try:
        expected = cm.payments(market, cm.allocate(market))
    except ConvexMarketError:
        return
    try:
        half = reports.size // 2
        paid = [part_payments(found, part) for part in (reports[:half], reports[half:])]
    except NotSupportedError:
        assert (reports.size - 1) * found._form.max_weight < 1
        return
    paid = np.concatenate(paid)
    np.testing.assert_allclose(paid, expected, rtol=2e-9, atol=1e-10 * expected.max())


@given(
    st.lists(st.floats(0.02, 0.10) | st.sampled_from([0.03, 0.05]), min_size=2, max_size=40),
    st.integers(1, 40),
    st.sampled_from([{}, {"cap": 3.0}, {"cap": 1.2}, {"mu": 0.01}, {"eta_range": (1.0, 9.0)}]),
)
def test_any_partitions_are_paid_the_same(reports, chunks, wanted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parted, "_MOST", 3)
        assert_paid_alike(np.array(reports), chunks, **wanted)


@pytest.mark.parametrize(
    ("mu", "cap"), [(1.0, None), (100.0, None), (1.0, 5.0), (100.0, 5.0), (1.0, 1.5)]
)
def test_many_sellers_are_paid_the_same(mu, cap, monkeypatch):
    monkeypatch.setattr(parted, "_MOST", 500)
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
    reports = PRIOR.sample(9, np.random.default_rng(0))
    found = allocate_parts(DaskSellers(da.from_array(reports), PRIOR), **STANDARD, cap=1.0)
    with pytest.raises(NotSupportedError, match="cannot do without anyone"):
        part_payments(found, reports)


def test_a_dask_array_is_paid_where_it_is():
    reports = PRIOR.sample(300, np.random.default_rng(0))
    x = da.from_array(reports, chunks=70)
    found = allocate_parts(DaskSellers(x, PRIOR), **STANDARD)
    paid = x.map_blocks(partial(part_payments, found), dtype=float).compute()
    np.testing.assert_allclose(paid, part_payments(found, reports), rtol=1e-12)
