"""Sellers in partitions give the same allocation as sellers in memory."""

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket import partitions
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError, SellersError

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

PRIOR = cm.Uniform(0.02, 0.10)
STANDARD = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001}


@pytest.fixture(autouse=True)
def synchronous():
    """Run Dask synchronously, in the thread of the test."""
    with dask.config.set(scheduler="synchronous"):
        yield


def allocate(reports, prior=PRIOR, **options):
    make = cm.Sellers if isinstance(reports, np.ndarray) else partitions.sellers
    return cm.allocate(cm.Market.standard(make(reports, prior), **STANDARD | options))


def assert_same(reports, chunks, prior=PRIOR, **options):
    parts = da.from_array(reports, chunks=(chunks,))
    try:
        expected = allocate(reports, prior, **options)
    except ConvexMarketError as error:
        with pytest.raises(type(error)):
            allocate(parts, prior, **options)
        return
    result = allocate(parts, prior, **options)
    assert result.objective == pytest.approx(expected.objective, rel=1e-12)
    assert result.gap <= 1e-12
    assert result.binding == expected.binding
    assert result.n_bought == pytest.approx(expected.n_bought, abs=reports.size / 100)
    np.testing.assert_allclose(
        result.epsilon.compute(), expected.epsilon, rtol=1e-9, atol=1e-12 * expected.eta
    )


@given(
    st.lists(st.floats(0.02, 0.10) | st.sampled_from([0.03, 0.05]), min_size=1, max_size=40),
    st.data(),
    st.sampled_from([{}, {"cap": 3.0}, {"cap": 1.0}, {"mu": 0.01}, {"eta_range": (1.0, 9.0)}]),
)
def test_any_partitions_give_the_same_allocation(reports, data, options):
    cuts = data.draw(st.lists(st.integers(0, len(reports)), max_size=4).map(sorted))
    chunks = tuple(int(n) for n in np.diff([0, *cuts, len(reports)]) if n)
    assert_same(np.array(reports), chunks, **options)


def test_sellers_can_be_read_from_a_parquet_folder(tmp_path):
    reports = PRIOR.sample(500, np.random.default_rng(1))
    for part, rows in enumerate(np.array_split(np.arange(500), 3)):
        table = pd.DataFrame({"c": reports[rows], "name": [f"s{row}" for row in rows]})
        table.to_parquet(tmp_path / f"{part}.parquet")
    table = dd.read_parquet(tmp_path)
    sellers = partitions.sellers(table["c"], PRIOR, table["name"])
    assert len(sellers) == 500
    market = cm.Market(sellers, cm.Spread() + 100 * cm.Noise() + 0.001 * cm.Payments(), [cm.Cap(3)])
    result, expected = cm.allocate(market), allocate(reports, cap=3.0)
    assert result.objective == pytest.approx(expected.objective, rel=1e-12)
    assert result.certificate()["n_bought"] == expected.n_bought
    offers = table.assign(epsilon=result.epsilon).compute()
    np.testing.assert_allclose(offers["epsilon"], expected.epsilon, rtol=1e-9, atol=1e-12)
    # Dask can merge small files, but the error message contains the number of the file.
    pd.DataFrame({"c": [0.05, 9.0], "name": ["t0", "t1"]}).to_parquet(tmp_path / "3.parquet")
    with pytest.raises(SellersError, match="row 1 of partition 3 contains"):
        partitions.sellers(dd.read_parquet(tmp_path)["c"], PRIOR)


def test_errors_name_the_partition_and_the_row():
    reports = np.full(9, 0.05)
    for bad in (np.nan, 0.2, -0.05, np.inf):
        changed = reports.copy()
        changed[7] = bad
        with pytest.raises(SellersError, match="row 1 of partition 2 contains no number in"):
            partitions.sellers(da.from_array(changed, chunks=3), PRIOR)
    with pytest.raises(SellersError, match="all partitions are empty"):
        partitions.sellers(dd.from_pandas(pd.Series([], dtype=float), npartitions=1), PRIOR)
    with pytest.raises(SellersError, match="column of numbers"):
        partitions.sellers(da.from_array(np.full((2, 2), 0.05)), PRIOR)
    with pytest.raises(SellersError, match="which is not a prior"):
        partitions.sellers(da.from_array(reports), [PRIOR] * 9)


@pytest.mark.parametrize("at_a_time", [1 << 24, 2])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({7: "s1"}, "id 's1' belongs to more than one seller, row 1 of partition 0 and row 1 of"),
        ({7: None}, "row 1 of partition 2: the id is missing"),
        ({7: " s"}, "row 1 of partition 2: id ' s' begins"),
        ({}, None),
    ],
)
def test_repeated_and_invalid_ids_in_partitions_are_refused(
    changed, message, at_a_time, monkeypatch
):
    monkeypatch.setattr(partitions, "_HASHES", at_a_time)
    names = [changed.get(row, f"s{row}") for row in range(9)]
    table = dd.from_pandas(pd.DataFrame({"c": 0.05, "name": names}), chunksize=3)
    if message is None:
        partitions.sellers(table["c"], PRIOR, table["name"])
        return
    with pytest.raises(SellersError, match=message):
        partitions.sellers(table["c"], PRIOR, table["name"])


@pytest.mark.parametrize("options", [{"mu": 0.0}, {"gamma": 0.0}])
def test_markets_without_an_exact_method_need_sellers_in_memory(options):
    with pytest.raises((NotSupportedError, ParameterError)):
        allocate(da.from_array(np.full(9, 0.05), chunks=3), **options)


def test_markets_without_support_for_partitions_are_refused():
    sellers = partitions.sellers(da.from_array(np.full(9, 0.05), chunks=3), PRIOR)
    objective = cm.Spread() + cm.Noise() + cm.Payments()
    with pytest.raises(NotSupportedError, match="partitions support mu"):
        cm.allocate(cm.Market(sellers, objective, [cm.MaxEpsilon(1.0)]))
    market = cm.Market(sellers, objective)
    for call in (cm.declare, lambda m: cm.allocate(m, "line_search")):
        with pytest.raises(NotSupportedError, match="for other uses, give Sellers"):
            call(market)
