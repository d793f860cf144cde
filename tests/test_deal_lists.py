"""Offers from CSV files: certificates, atomic writes, budgets and groups."""

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


#: Former offers.
OLD = "id,epsilon\nsomebody,0.5\n"


@pytest.fixture
def offers():
    reports = pd.DataFrame({"id": ["a", "b", "c"], "sensitivity": [0.03, 0.05, 0.09]})
    return price_list(reports, PRIOR, **OBJECTIVE)


def test_the_certificate_is_consistent(offers):
    stated = offers.to_dict(offers.audit())
    table, totals = offers.offers, stated["totals"]
    assert totals["payments"] == table.payment.sum()
    assert totals["epsilon"] == pytest.approx(stated["optimality"]["eta"])
    bought = table.epsilon > 0
    expected = ((2 * table.ask - 0.02) * table.epsilon)[bought].sum()
    assert totals["expected_payments"] == pytest.approx(expected)
    np.testing.assert_allclose(table.surplus, table.payment - table.ask * table.epsilon)
    assert totals["smallest_surplus"] == table.surplus.min() >= 0
    assert stated["audit"]["incentive_compatible"]
    assert stated["audit"]["sellers_audited"] == 3
    assert stated["priors"] == [{"family": "uniform", "low": 0.02, "high": 0.10}]
    assert json.loads(json.dumps(stated, allow_nan=False)) == stated


def test_the_certificate_names_its_input(tmp_path):
    path = file_with(tmp_path, "id,c\nAnn,0.03\n")
    source = priced(path).to_dict()["input"]
    assert source == {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_both_files_are_written_or_neither(offers, tmp_path):
    target = tmp_path / "offers.csv"
    target.write_text(OLD)
    (tmp_path / "offers.certificate.json").mkdir()  # so that the second file cannot be written
    with pytest.raises(DataError, match="nothing was written"):
        offers.write(target, force=True)
    assert target.read_text() == OLD
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
    given = {"prior": Uniform(0, 1), "objective": cm.Spread() + cm.Noise(), "gamma": 0.5}
    with pytest.raises(UnattainedOptimumError, match="EtaRange"):
        cm.price(reports, **given)
    offers = cm.price(reports, **given, constraints=[cm.EtaRange(0.5, 4.0)])
    assert offers.offers["epsilon"].sum() == pytest.approx(4.0)
    assert offers.certificate["binding"] == ["eta_high"]


def drawn(n=60, seed=0):
    rng = np.random.default_rng(seed)
    reports = PRIOR.sample(n, rng)
    groups = np.where(reports < 0.06, "south", "north")
    return pd.DataFrame({"id": range(n), "ask": reports, "region": groups})


def test_a_budget_determines_gamma_without_the_reports():
    aim = 1.0 * cm.Spread() + 100.0 * cm.Noise()
    gamma = cm.calibrate_gamma(5.0, PRIOR, 60, aim, [cm.Cap(2)], draws=25).gamma
    stated = []
    for seed in (0, 1):
        offers = price_list(drawn(seed=seed), PRIOR, mu=1, sigma=100, budget=5.0, cap=2)
        known = price_list(drawn(seed=seed), PRIOR, mu=1, sigma=100, gamma=gamma, cap=2)
        pd.testing.assert_frame_equal(offers.offers, known.offers)
        stated.append(offers.to_dict())
        assert "payments amount to 5 on average" in stated[-1]["statements"][-1]
    assert stated[0]["objective"] == stated[1]["objective"] == repr(known.market.objective)
    assert stated[0]["budget"] == 5.0


def test_a_group_has_its_share():
    table = drawn(2)
    free = price_list(table, PRIOR, **OBJECTIVE, group="region")
    pd.testing.assert_frame_equal(free.offers, price_list(table, PRIOR, **OBJECTIVE).offers)
    north = (table["region"] == "north").to_numpy()
    assert free.offers["weight"][north].sum() < 0.8
    offers = price_list(table, PRIOR, **OBJECTIVE, group="region", at_least={"north": 0.9})
    assert offers.offers["weight"][north].sum() >= 0.9 - 1e-6
    assert offers.to_dict()["constraints"] == ["sum_{i in north} a_i >= 0.9"]


def test_unknown_groups_are_refused(tmp_path):
    table = drawn(5)
    with pytest.raises(ParameterError, match="give the column of groups as group"):
        price_list(table, PRIOR, **OBJECTIVE, at_least={"north": 0.5})
    with pytest.raises(DataError, match="no column is called 'country'"):
        price_list(table, PRIOR, **OBJECTIVE, group="country")
    table.loc[3, "region"] = " "
    table.to_csv(tmp_path / "sellers.csv", index=False)
    for reports, place in ((table, "row 4"), (tmp_path / "sellers.csv", "line 5")):
        with pytest.raises(DataError, match=f"{place}: the group is missing"):
            price_list(reports, PRIOR, **OBJECTIVE, group="Region")
