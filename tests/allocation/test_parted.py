"""Sellers in partitions are bought from as if they were in one memory."""

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation import DaskSellers, allocate_parts, parted
from convexmarket.errors import (
    ConvexMarketError,
    NotSupportedError,
    ParameterError,
    SellersError,
)

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

PRIOR = cm.Uniform(0.02, 0.10)
STANDARD = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001}


@pytest.fixture(autouse=True)
def at_once():
    """Everything is computed in this thread."""
    with dask.config.set(scheduler="synchronous"):
        yield


def in_memory(reports, prior=PRIOR, **wanted):
    return cm.allocate(cm.Market.standard(cm.Sellers(reports, prior), **STANDARD | wanted))


def assert_same(reports, chunks, prior=PRIOR, **wanted):
    sellers = DaskSellers(da.from_array(reports, chunks=(chunks,)), prior)
    try:
        expected = in_memory(reports, prior, **wanted)
    except ConvexMarketError as error:
        with pytest.raises(type(error)):
            allocate_parts(sellers, **STANDARD | wanted)
        return
    found = allocate_parts(sellers, **STANDARD | wanted)
    assert found.objective == pytest.approx(expected.objective, rel=1e-12)
    assert found.gap <= 1e-12
    assert found.binding == expected.binding
    assert found.n_bought == pytest.approx(expected.n_bought, abs=reports.size / 100)  # ties
    np.testing.assert_allclose(
        found.epsilon(reports), expected.epsilon, rtol=1e-9, atol=1e-12 * expected.eta
    )


@given(
    st.lists(st.floats(0.02, 0.10) | st.sampled_from([0.03, 0.05]), min_size=1, max_size=40),
    st.data(),
    st.sampled_from([{}, {"cap": 3.0}, {"cap": 1.0}, {"mu": 0.01}, {"eta_range": (1.0, 9.0)}]),
)
def test_any_partitions_give_the_same(reports, data, wanted):
    cuts = data.draw(st.lists(st.integers(0, len(reports)), max_size=4).map(sorted))
    chunks = tuple(int(n) for n in np.diff([0, *cuts, len(reports)]) if n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parted, "_MOST", 3)
        assert_same(np.array(reports), chunks, **wanted)


@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize("mu", [1.0, 100.0])
@pytest.mark.parametrize("prior", [PRIOR, cm.Beta(2, 5)], ids=["uniform", "beta"])
def test_many_sellers_take_few_passes(prior, mu, cap, monkeypatch):
    monkeypatch.setattr(parted, "_MOST", 3_000)
    reports = prior.sample(30_000, np.random.default_rng(0))
    assert_same(reports, (11_000, 1, 18_999), prior, mu=mu, cap=cap)
    sellers = DaskSellers(da.from_array(reports, chunks=9_000), prior)
    found = allocate_parts(sellers, **STANDARD | {"mu": mu, "cap": cap})
    assert sellers.n_passes == found.n_passes <= 5


def test_a_column_of_a_parquet_folder_is_bought_from(tmp_path):
    reports = PRIOR.sample(500, np.random.default_rng(1))
    for part, rows in enumerate(np.array_split(reports, 3)):
        pd.DataFrame({"c": rows, "name": "s"}).to_parquet(tmp_path / f"{part}.parquet")
    column = dd.read_parquet(tmp_path)["c"]
    found = allocate_parts(DaskSellers(column, PRIOR), **STANDARD, cap=3.0)
    expected = in_memory(reports, cap=3.0)
    assert found.objective == pytest.approx(expected.objective, rel=1e-12)
    bought = column.map_partitions(found.epsilon, meta=("epsilon", float)).compute()
    np.testing.assert_allclose(bought, expected.epsilon, rtol=1e-9, atol=1e-12)


def test_what_is_wrong_is_named_by_partition_and_row():
    reports = np.full(9, 0.05)
    for bad in (np.nan, 0.2, -0.05, np.inf):
        changed = reports.copy()
        changed[7] = bad
        with pytest.raises(SellersError, match="row 1 of partition 2 holds no number in"):
            DaskSellers(da.from_array(changed, chunks=3), PRIOR)
    with pytest.raises(SellersError, match="no sellers in any partition"):
        DaskSellers(da.from_array(np.empty(0)), PRIOR)
    with pytest.raises(ParameterError, match="sensitivities is a ndarray"):
        DaskSellers(reports, PRIOR)


@pytest.mark.parametrize("wanted", [{"mu": 0.0}, {"gamma": 0.0}])
def test_markets_without_a_path_are_for_memory(wanted):
    sellers = DaskSellers(da.from_array(np.full(9, 0.05), chunks=3), PRIOR)
    with pytest.raises((NotSupportedError, ParameterError)):
        allocate_parts(sellers, **STANDARD | wanted)


@pytest.mark.parametrize("cap", [0.5, np.nan, np.inf])
def test_a_cap_that_nobody_can_keep_is_refused(cap):
    sellers = DaskSellers(da.from_array(np.full(9, 0.05), chunks=3), PRIOR)
    with pytest.raises(ParameterError, match="cap is"):
        allocate_parts(sellers, **STANDARD, cap=cap)


def test_sellers_who_cost_infinitely_much_cannot_fill_the_cap():
    prior = cm.Prior.from_scipy(__import__("scipy.stats").stats.triang(1.0, 0, 1))
    reports = np.array([0.2, 0.3, 1.0, 1.0])
    assert_same(reports, (2, 2), prior, cap=1.5)
