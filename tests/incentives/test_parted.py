"""Payments and audits are equal for sellers in partitions and in memory."""

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket import partitions
from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.errors import AllocationError, ConvexMarketError, NotSupportedError
from convexmarket.incentives import rents
from tests.incentives.builders import virtual_cost_payment

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

PRIOR = cm.Uniform(0.02, 0.10)
STANDARD = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001}


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def market_of(reports, prior=PRIOR, **options):
    make = cm.Sellers if isinstance(reports, np.ndarray) else partitions.sellers
    return cm.Market.standard(make(reports, prior), **STANDARD | options)


def assert_equal_payments(reports, chunks, prior=PRIOR, **options):
    market = market_of(reports, prior, **options)
    try:
        expected = cm.payments(market, cm.allocate(market))
    except ConvexMarketError:
        return
    market = market_of(da.from_array(reports, chunks=chunks), prior, **options)
    result = cm.allocate(market)
    try:
        paid = cm.payments(market, result).compute()
    except NotSupportedError:
        assert (reports.size - 1) * result._curve.form.max_weight < 1
        return
    np.testing.assert_allclose(paid, expected, rtol=3e-10, atol=1e-12 * expected.max())


@given(
    st.lists(st.floats(0.02, 0.10) | st.sampled_from([0.03, 0.05]), min_size=2, max_size=40),
    st.integers(1, 40),
    st.sampled_from([{}, {"cap": 3.0}, {"cap": 1.2}, {"mu": 0.01}, {"eta_range": (1.0, 9.0)}]),
)
def test_payments_in_any_partitions_equal_payments_in_memory(reports, chunks, options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rents, "_MANY", 2)
        assert_equal_payments(np.array(reports), chunks, **options)


@pytest.mark.parametrize(
    ("mu", "cap"), [(1.0, None), (100.0, None), (1.0, 5.0), (100.0, 5.0), (1.0, 1.5)]
)
@pytest.mark.parametrize("many", [20, 256])
def test_payments_of_many_sellers_in_partitions_equal_payments_in_memory(
    mu, cap, many, monkeypatch
):
    monkeypatch.setattr(rents, "_MANY", many)
    reports = PRIOR.sample(2_000, np.random.default_rng(0))
    assert_equal_payments(reports, 700, mu=mu, cap=cap)
    assert_equal_payments(np.round(reports, 3), 700, mu=mu, cap=cap)


@pytest.mark.parametrize("prior", [PRIOR, cm.Beta(2, 5)])
@pytest.mark.parametrize("rule", [None, virtual_cost_payment])
def test_an_audit_of_partitions_equals_the_audit_in_memory(prior, rule):
    """Some misreports are far below all reports that the audit reads."""
    reports = np.maximum(prior.sample(200, np.random.default_rng(0)), prior.quantile(0.3))
    ids = [f"s{k}" for k in range(200)]
    frame = dd.from_pandas(pd.DataFrame({"id": ids, "report": reports}), npartitions=3)
    options = {"max_sellers": 7, "misreports": 9, "rule": rule, "random_state": 1}
    parts = partitions.sellers(frame["report"], prior, frame["id"])
    sellers = cm.Sellers(reports, prior, ids), parts
    in_memory, result = (
        cm.audit_incentives(cm.Market.standard(part, **STANDARD, cap=4.0), **options)
        for part in sellers
    )
    assert result.is_incentive_compatible is (rule is not virtual_cost_payment)
    best = "best_misreport"  # this column is arbitrary if no misreport gives a gain
    pd.testing.assert_frame_equal(
        result.to_frame().drop(columns=best),
        in_memory.to_frame().drop(columns=best),
        rtol=1e-9,
        atol=result.tolerance,
    )
    for name in ("n_sellers", "n_misreports", "tolerance"):
        assert getattr(result, name) == pytest.approx(getattr(in_memory, name), rel=1e-9), name


@pytest.mark.parametrize("seed", range(26))
def test_any_report_of_any_seller_has_the_same_value_as_in_memory(seed):
    """At very low reports, the curve needs costs that the allocation did not read."""
    rng, prior = np.random.default_rng(seed), cm.Uniform(0.0, 1.0)
    reports = rng.uniform(rng.choice([0.3, 0.6, 0.9]), 1.0, rng.integers(2, 100))
    mu, sigma = 10 ** rng.uniform(-2, 2), 10 ** rng.uniform(-2, 1)
    options = {"mu": mu, "sigma": sigma, "gamma": 0.25, "cap": rng.choice([None, 1.5, 3.0])}
    expected = OwnReportCurve(market_of(reports, prior, **options).standard_form)
    market = market_of(da.from_array(reports, chunks=40), prior, **options)
    try:
        result = cm.allocate(market).curve(reports)
    except NotSupportedError:
        assert expected.needs_each
        return
    costs = prior.ironed_virtual_cost([1e-6, 1e-3, 0.05, 0.2, 0.3, 0.5, 0.9])
    seller, psi = np.repeat(np.arange(reports.size), 7), np.tile(costs, reports.size)
    value = expected(seller, psi).value
    np.testing.assert_allclose(result(seller, psi).value, value, rtol=1e-11)


def test_audits_that_need_sellers_in_memory_are_refused():
    market = market_of(da.from_array(np.full(9, 0.05), chunks=4))
    for options in ({"build": lambda reports: market}, {"coalitions": 1}):
        with pytest.raises(NotSupportedError, match="require sellers in memory"):
            cm.audit_incentives(market, **options)


def test_an_indispensable_seller_needs_sellers_in_memory():
    market = market_of(da.from_array(np.full(9, 0.05), chunks=4), cap=1.0)
    with pytest.raises(NotSupportedError, match="this cap every seller is needed"):
        cm.payments(market, cm.allocate(market))


def test_the_allocation_of_other_sellers_is_refused():
    single, other = (market_of(da.from_array(np.full(9, 0.05), chunks=4)) for _ in range(2))
    with pytest.raises(AllocationError, match="which has other sellers"):
        cm.payments(single, cm.allocate(other))
