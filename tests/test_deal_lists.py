"""Test certificates, atomic writes, budgets and groups of offers from CSV files."""

import hashlib
import json
import os

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError, UnattainedOptimumError
from convexmarket.priors import Uniform
from tests.lists import price_list

PRIOR = Uniform(0.02, 0.10)
OBJECTIVE = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001}


def priced(path, **options):
    return price_list(path, PRIOR, **(OBJECTIVE | options))


def file_with(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "sellers.csv"
    path.write_bytes(text.encode(encoding))
    return path


#: Content of an existing file of offers.
EARLIER = "id,epsilon\nsomebody,0.5\n"


@pytest.fixture
def offers():
    reports = pd.DataFrame({"id": ["a", "b", "c"], "sensitivity": [0.03, 0.05, 0.09]})
    return price_list(reports, PRIOR, **OBJECTIVE)


def test_the_certificate_is_consistent(offers):
    certificate = offers.to_dict(offers.audit())
    table, totals = offers.offers, certificate["totals"]
    assert totals["payments"] == table.payment.sum()
    assert totals["epsilon"] == pytest.approx(certificate["optimality"]["eta"])
    bought = table.epsilon > 0
    expected = ((2 * table.ask - 0.02) * table.epsilon)[bought].sum()
    assert totals["expected_payments"] == pytest.approx(expected)
    np.testing.assert_allclose(table.surplus, table.payment - table.ask * table.epsilon)
    assert totals["smallest_surplus"] == table.surplus.min() >= 0
    assert certificate["audit"]["incentive_compatible"]
    assert certificate["audit"]["sellers_audited"] == 3
    assert certificate["priors"] == [{"family": "uniform", "low": 0.02, "high": 0.10}]
    assert json.loads(json.dumps(certificate, allow_nan=False)) == certificate


def test_the_certificate_names_its_input(tmp_path):
    path = file_with(tmp_path, "id,c\nAnn,0.03\n")
    source = priced(path).to_dict()["input"]
    assert source == {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_either_both_files_or_no_files_are_written(offers, tmp_path):
    target = tmp_path / "offers.csv"
    target.write_text(EARLIER)
    (tmp_path / "offers.certificate.json").mkdir()
    with pytest.raises(DataError, match="nothing was written"):
        offers.write(target, force=True)
    assert target.read_text() == EARLIER
    assert sorted(os.listdir(tmp_path)) == ["offers.certificate.json", "offers.csv"]


def test_a_failed_write_leaves_no_files(offers, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device", "offers.csv")

    monkeypatch.setattr(pyarrow.csv, "write_csv", fail)
    with pytest.raises(DataError, match="No space left on device; nothing was written"):
        offers.write(tmp_path / "offers.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_range_of_eta_allows_free_sellers():
    reports = pd.DataFrame({"ask": [0.0, 0.6, 0.7]}, index=["Ann", "Bob", "Cem"])
    arguments = {"prior": Uniform(0, 1), "objective": cm.Spread() + cm.Noise(), "gamma": 0.5}
    with pytest.raises(UnattainedOptimumError, match="EtaRange"):
        cm.price(reports, **arguments)
    offers = cm.price(reports, **arguments, constraints=[cm.EtaRange(0.5, 4.0)])
    assert offers.offers["epsilon"].sum() == pytest.approx(4.0)
    assert offers.certificate["binding"] == ["eta_high"]


def random_table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    reports = PRIOR.sample(n, rng)
    groups = np.where(reports < 0.06, "south", "north")
    return pd.DataFrame({"id": range(n), "ask": reports, "region": groups})


def test_a_budget_determines_gamma_without_the_reports():
    objective = 1.0 * cm.Spread() + 100.0 * cm.Noise()
    gamma = cm.calibrate_gamma(5.0, PRIOR, 20, objective, [cm.Cap(2)], draws=25).gamma
    records = []
    for seed in (0, 1):
        offers = price_list(random_table(20, seed), PRIOR, mu=1, sigma=100, budget=5.0, cap=2)
        expected = price_list(random_table(20, seed), PRIOR, mu=1, sigma=100, gamma=gamma, cap=2)
        pd.testing.assert_frame_equal(offers.offers, expected.offers)
        records.append(offers.to_dict())
        assert "payments amount to 5 on average" in records[-1]["statements"][-1]
    assert records[0]["objective"] == records[1]["objective"] == repr(expected.market.objective)
    assert records[0]["budget"] == 5.0


def test_a_group_receives_its_minimum_share():
    table = random_table(2)
    free = price_list(table, PRIOR, **OBJECTIVE, group="region")
    pd.testing.assert_frame_equal(free.offers, price_list(table, PRIOR, **OBJECTIVE).offers)
    north = (table["region"] == "north").to_numpy()
    assert free.offers["weight"][north].sum() < 0.8
    offers = price_list(table, PRIOR, **OBJECTIVE, group="region", at_least={"north": 0.9})
    assert offers.offers["weight"][north].sum() >= 0.9 - 1e-6
    assert offers.to_dict()["constraints"] == ["sum_{i in north} a_i >= 0.9"]


def test_unknown_groups_are_refused(tmp_path):
    table = random_table(5)
    with pytest.raises(ParameterError, match="give the column of groups as group"):
        price_list(table, PRIOR, **OBJECTIVE, at_least={"north": 0.5})
    with pytest.raises(DataError, match="no column is called 'country'"):
        price_list(table, PRIOR, **OBJECTIVE, group="country")
    table.to_csv(tmp_path / "private.csv", index=False)
    for reports in (table, tmp_path / "private.csv"):
        with pytest.raises(ParameterError, match="is the column of ids or reports"):
            price_list(reports, PRIOR, **OBJECTIVE, group=table.columns[1])
    table.loc[3, "region"] = " "
    table.to_csv(tmp_path / "sellers.csv", index=False)
    for reports, place in ((table, "row 4"), (tmp_path / "sellers.csv", "line 5")):
        with pytest.raises(DataError, match=f"{place}: the group is missing"):
            price_list(reports, PRIOR, **OBJECTIVE, group="Region")
