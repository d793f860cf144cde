"""Test the commands ``convexmarket init`` and ``convexmarket buy`` on tables of patients."""

import json
import re
import stat

import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.report import read_tables
from tests.cli.builders import draw_nothing, invoke, plain
from tests.studies.files.builders import TRADEOFF, declared, patients, written


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patients(200).to_csv(tmp_path / "patients.csv")
    return tmp_path


def test_init_and_buy_lead_from_a_table_to_a_recorded_sale(here):
    done = invoke("init", "patients.csv")
    assert done.exit_code == 0, done.output
    text = plain(done.stdout)
    assert text.startswith("id: patient report: ask label: not recognised; declare it in the file")
    assert "Wrote market.toml Replace every" in text
    refused = invoke("run", "market.toml")
    assert refused.exit_code == 2
    assert "data.features.age, " in plain(refused.stderr)

    draft = here / "market.toml"
    draft.write_text(declared(draft.read_text()))
    assert invoke("ledger", "books.sqlite", "--create").exit_code == 0
    message = ["--budget", "5", "--out", "sale", "--ledger", "books.sqlite"]
    refused = invoke("buy", "market.toml", *message)
    assert "give --set learner.regularization=[0.01]" in plain(refused.stderr)
    message += ["--set", "learner.regularization=[0.03]"]
    done = invoke("buy", "market.toml", *message)
    assert done.exit_code == 0, (done.output, done.exception)
    text = plain(done.stdout)
    assert "sellers sell privacy for" in text
    result = re.search(r"On the public test rows, the error is 0\.\d+; .* is 0\.(\d{1,4})\.", text)
    assert 0 < float(f"0.{result[1]}") <= 0.5
    assert "in books.sqlite, and charged the model to the ledger Wrote sale/deal.md" in text

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (here / "sale").iterdir()}
    names = ["certificate.json", "deal.md", "model.json", "offers.csv"]
    assert modes == dict.fromkeys(names, 0o600)
    offers = pd.read_csv(here / "sale" / "offers.csv", index_col="id", float_precision="round_trip")
    model = cm.load_model(here / "sale" / "model.json")
    assert len(model.predict(patients(5))) == 5
    certificate = json.loads((here / "sale" / "certificate.json").read_text())
    assert certificate["optimality"]["gap"] < 1e-6
    assert certificate["input"]["file"] == "patients.csv"
    with cm.Ledger(here / "books.sqlite") as ledger:
        recorded = ledger.sales().set_index("id")["epsilon"]
    assert recorded.sort_index().equals(offers["epsilon"][offers["epsilon"] > 0].sort_index())

    refused = invoke("ledger", "books.sqlite", "--record", "sale/offers.csv")
    assert "and would count twice" in plain(refused.stderr)
    message[3] = "other"
    again = invoke("buy", "market.toml", *message)
    assert again.exit_code == 2
    assert "and would count twice" in plain(again.stderr)
    assert not (here / "other" / "deal.md").exists()
    assert invoke("buy", "market.toml", *message, "--again").exit_code == 0


def test_the_text_of_an_invalid_report_is_shown_only_on_request(here):
    table = pd.read_csv(here / "patients.csv").astype({"ask": str, "age": str})
    table.loc[2, "ask"] = table.loc[3, "age"] = "k.A."
    table.to_csv(here / "patients.csv", index=False)
    assert invoke("init", "patients.csv").exit_code == 0
    draft = here / "market.toml"
    draft.write_text(declared(draft.read_text()))
    prior = ["--prior", "uniform:0,1", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]
    price = ["price", "patients.csv", *prior, "--id-column", "patient", "--out", "offers.csv"]
    buy = ["buy", "market.toml", "--budget", "5", "--out", "sale"]
    buy += ["--set", "learner.regularization=[0.03]"]
    for command in (price, buy):
        for options, shown in (([], False), (["--show-cells"], True)):
            done = invoke(*command, *options)
            assert done.exit_code == 2, done.output
            assert "patients.csv: line 4: the report" in plain(done.stderr)
            assert ("k.A." in plain(done.stderr)) == shown
    table.loc[2, "ask"] = "0.05"
    table.to_csv(here / "patients.csv", index=False)
    assert invoke(*buy).exit_code == 2
    for empty in (["--na-values", "k.A."], ["--set", 'data.na_values=["k.A."]']):
        done = invoke(*buy, "--set", 'data.missing="middle"', *empty, "--force")
        assert done.exit_code == 0, done.output


def test_existing_files_are_kept(here):
    (here / "market.toml").write_text("mine")
    done = invoke("init", "patients.csv")
    assert done.exit_code == 2
    assert "market.toml exists; pass --force" in plain(done.stderr)
    assert (here / "market.toml").read_text() == "mine"
    assert invoke("init", "patients.csv", "--force").exit_code == 0

    written(here, TRADEOFF, patients(120))
    assert invoke("buy", "market.toml", "--out", "sale").exit_code == 0
    before = (here / "sale" / "model.json").read_bytes()
    done = invoke("buy", "market.toml", "--out", "sale")
    assert done.exit_code == 2
    assert "--out sale/deal.md exists; pass --force" in plain(done.stderr)
    assert (here / "sale" / "model.json").read_bytes() == before
    assert invoke("buy", "market.toml", "--out", "sale", "--force").exit_code == 0
    assert (here / "sale" / "model.json").read_bytes() != before, "the noise is fresh"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--at-least", "north"], "--at-least must be GROUP:SHARE, such as north:0.3"),
        (["--at-least", "north:0.3"], "--at-least requires --group-column"),
        (["--group-column", "site"], "--group-column requires --at-least"),
        (["--group-column", "nowhere", "--at-least", "a:0.5"], "no column is called 'nowhere'"),
        (["--again"], "--again requires --ledger"),
        (["--ledger", "none.sqlite"], "none.sqlite"),
        (["--gamma", "0.1", "--budget", "3"], "give gamma or budget, not both"),
    ],
)
def test_invalid_options_of_buy_are_refused(here, options, words):
    written(here, TRADEOFF, patients(120))
    done = invoke("buy", "market.toml", "--out", "sale", *options)
    assert done.exit_code == 2, done.output
    assert words in plain(done.stderr)
    assert not (here / "sale").exists()


def test_run_accepts_another_table(here, monkeypatch):
    monkeypatch.setattr("convexmarket.report.figures.saved", draw_nothing)
    written(here, TRADEOFF, patients(120))
    patients(140, seed=1).to_csv("more.csv")
    done = invoke("run", "market.toml", "--set", "data.file='more.csv'", "--out", "report")
    assert done.exit_code == 0, done.output
    assert "Rows of more.csv" in (here / "report/results.json").read_text()
    assert read_tables(here / "report")["sellers"].id.nunique() == 70
