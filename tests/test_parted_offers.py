"""Offers in partitions equal offers in memory, and a failed write creates no files."""

import json

import dask
import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket import partitions
from convexmarket.errors import DataError, ParameterError, SellersError
from tests.lists import price_list

dd = pytest.importorskip("dask.dataframe")

PRIOR = cm.Uniform(0.02, 0.10)
STANDARD = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001}


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def write_sellers(folder, change=lambda table: table):
    """Write 300 sellers to two Parquet files. The first file has several row groups."""
    reports = PRIOR.sample(300, np.random.default_rng(0))
    table = change(pd.DataFrame({"id": [f"s{k}" for k in range(300)], "cost": reports}))
    folder.mkdir()
    table[:200].to_parquet(folder / "a.parquet", row_group_size=70)
    table[200:].to_parquet(folder / "b.parquet")
    return table


def write_offers(folder, **options):
    arguments = {**STANDARD, "id": "id"} | options
    deal = price_list(partitions.table(folder / "sellers"), PRIOR, **arguments)
    deal.write(folder / "offers", audit=deal.audit(max_sellers=50))
    return deal


def test_offers_in_partitions_equal_offers_in_memory(tmp_path):
    table = write_sellers(tmp_path / "sellers")
    arguments = {**STANDARD, "cap": 3.0}
    result = write_offers(tmp_path, cap=3.0)
    expected = price_list(table, PRIOR, **arguments)
    offers = dd.read_parquet(tmp_path / "offers").compute()
    assert offers["id"].tolist() == table["id"].tolist()
    for table_of_offers in (offers.set_index("id"), result.offers.compute()):
        pd.testing.assert_frame_equal(
            table_of_offers, expected.offers, rtol=1e-8, atol=1e-10, check_index_type=False
        )
    stated = json.loads((tmp_path / "offers" / partitions.CERTIFICATE).read_text())
    assert stated["totals"] == result.totals
    assert result.certificate["gap"] < 1e-12
    again = price_list(partitions.table(tmp_path / "sellers"), PRIOR, id="id", **arguments)
    for totals in (result.totals, again.totals):
        assert totals == pytest.approx(expected.totals, rel=1e-9)
    audit = expected.audit(max_sellers=50)
    gain = stated["audit"]["largest_gain_from_misreporting"]
    assert gain == pytest.approx(audit.max_gain, abs=audit.tolerance)
    assert str(result) == str(expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["offers", "sellers"]
    with pytest.raises(ParameterError, match="name a new folder"):
        result.write(tmp_path / "offers")


def changed(row, column, value):
    def change(table):
        table.loc[row, column] = value
        return table

    return change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (changed(250, "cost", 0.3), SellersError, "row 50 of partition 3 contains no number"),
        (changed(150, "cost", np.nan), SellersError, "row 10 of partition 2 contains no number"),
        (changed(299, "id", "s7"), SellersError, "row 7 of partition 0 and row 99 of partition 3"),
        (changed(280, "id", None), SellersError, "row 80 of partition 3: the id is missing"),
        (lambda table: table.astype({"cost": str}), SellersError, "one column of numbers"),
        (lambda table: table.drop(columns="id"), DataError, "no column is called 'id'"),
    ],
)
def test_errors_name_the_partition_and_row_of_wrong_cells_before_files_are_written(
    tmp_path, change, error, message
):
    write_sellers(tmp_path / "sellers", change)
    with pytest.raises(error, match=message):
        write_offers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["sellers"]


@pytest.mark.parametrize("lost", [slice(4, 600), slice(-8, None)], ids=["page", "footer"])
def test_the_error_names_an_unreadable_file(tmp_path, lost):
    write_sellers(tmp_path / "sellers")
    broken = tmp_path / "sellers" / "b.parquet"
    content = np.frombuffer(broken.read_bytes(), np.uint8).copy()
    content[lost] = 0
    broken.write_bytes(content.tobytes())
    with pytest.raises(DataError, match=r"b\.parquet cannot be read as Parquet"):
        write_offers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["sellers"]


def test_a_full_disk_leaves_no_files(tmp_path, monkeypatch):
    write_sellers(tmp_path / "sellers")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(DataError, match="No space left on device; nothing was written"):
        write_offers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["sellers"]


def test_a_dask_table_gives_the_same_offers_and_refuses_a_budget():
    table = pd.DataFrame({"name": list("abc"), "asks": [0.03, 0.05, 0.09]})
    arguments = {**STANDARD, "id": "name", "ask": "asks"}
    parted = price_list(partitions.table(dd.from_pandas(table, npartitions=2)), PRIOR, **arguments)
    whole = price_list(table, PRIOR, **arguments)
    np.testing.assert_allclose(parted.offers.compute(), whole.offers, rtol=1e-9)
    assert parted.audit().is_incentive_compatible
    with pytest.raises(ParameterError, match="requires gamma"):
        price_list(partitions.table(dd.from_pandas(table, 1)), PRIOR, mu=1, sigma=1, budget=2.0)
    with pytest.raises(DataError, match="Dask DataFrame, or the path"):
        partitions.table(table)
