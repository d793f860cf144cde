"""Test help, errors, and the commands ``run``, ``price`` and ``schema``."""

import json
import re
import warnings

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import convexmarket as cm
from convexmarket.cli import app, consoles
from convexmarket.errors import UselessModelWarning
from convexmarket.report import figures
from tests import PROBLEMS
from tests.cli.builders import draw_nothing, invoke, one_setting_each, plain

QUICKSTART = str(PROBLEMS / "quickstart.toml")
FAST = one_setting_each("run.jobs=1")
TERMS = ["--prior", "uniform:0.02,0.10", "--mu", "1", "--sigma", "100"]
PRICE = [*TERMS, "--gamma", "0.001"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sellers.csv").write_text("id,sensitivity\nAnn,0.03\nBob,0.05\n")
    return tmp_path


def test_run_writes_a_report_prints_its_path_and_opens_it(here, monkeypatch):
    monkeypatch.setattr(figures, "saved", draw_nothing)
    opened = []
    monkeypatch.setattr(consoles.webbrowser, "open", opened.append)
    done = invoke("run", QUICKSTART, *FAST, "--open")
    assert done.exit_code == 0, done.output
    page = here / "out" / "quickstart" / "index.html"
    assert opened == [page.as_uri()]
    for words in ("Two sellers", "out/quickstart/index.html", "The overall error of the mechanism"):
        assert words in done.stdout
    results = json.loads((page.parent / "results.json").read_text())
    assert results["settings"]["problem file"]["overrides"][0] == "objective.gamma=[0.01]"


def test_run_of_a_regression_market_states_the_unit_of_an_error(here, monkeypatch):
    monkeypatch.setattr(figures, "saved", draw_nothing)
    few = ["objective.gamma=[0.01]", "learner.regularization=[0.3]"]
    few = [part for setting in (*few, "data.train_fraction=0.06") for part in ("--set", setting)]
    done = invoke("run", PROBLEMS / "medical-market.toml", *few, "--jobs", "1", "--out", "mine")
    assert done.exit_code == 0, done.output
    assert "dollars" in done.stdout
    assert (here / "mine" / "index.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "none.toml"], "none.toml: No such file or directory"),
        (["run", QUICKSTART, "--set", "objective.gama=1"], "did you mean 'gamma'?"),
        (["run", QUICKSTART, "--set", "objective.gamma=abc"], "is not a TOML value"),
        (["run", QUICKSTART, "--jobs", "-2"], "run.jobs"),
        (["price", "none.csv", *PRICE, "--out", "o.csv"], "none.csv: No such file"),
        (["price", "sellers.csv", *TERMS, "--out", "o.csv"], "give one of --gamma and --budget"),
        (
            ["price", "sellers.csv", *PRICE, "--budget", "1", "--out", "o.csv"],
            "give one of --gamma and --budget",
        ),
        (
            ["price", "sellers.csv", *PRICE, "--prior", "unifrm:0,1", "--out", "o.csv"],
            "prior family 'unifrm' is unknown",
        ),
        (["price", "sellers.csv", *PRICE, "--gamma", "0", "--out", "o.csv"], "gamma must be a"),
        (["price", "sellers.csv", *PRICE, "--sigma", "0", "--out", "o.csv"], "sigma must be a"),
        (["price", "sellers.csv", *PRICE, "--cap", "0.5", "--out", "o.csv"], "cap >= 1"),
        (["price", "sellers.csv", *PRICE, "--out", "sellers.csv"], "is the list of reports"),
        (["price", "sellers.csv", *PRICE, "--out", "o.txt"], "o.txt ends in neither .csv nor"),
        (
            ["price", "sellers.csv", *PRICE, "--at-least", "a:0.3", "--out", "o.csv"],
            "--at-least requires --group-column",
        ),
        (
            ["price", "sellers.csv", *PRICE, "--group-column", "g", "--out", "o.csv"],
            "--group-column requires --at-least; add --at-least, or remove --group-column",
        ),
    ],
)
def test_an_error_prints_one_line_without_a_traceback(here, arguments, words):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert words in plain(done.stderr)
    assert done.stderr.startswith("error: ")
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert not (here / "o.csv").exists()


@pytest.mark.parametrize(("gamma", "weak"), [("0.001", True), ("50", False)])
def test_price_writes_offers_and_a_certificate_and_marks_large_epsilons(here, gamma, weak):
    options = ["--gamma", gamma, "--cap", "1.5", "--out", "offers.csv"]
    done = invoke("price", "sellers.csv", *TERMS, *options)
    assert done.exit_code == 0, done.output
    assert (here / "offers.csv").read_text().startswith('"id","ask","epsilon",')
    certificate = json.loads((here / "offers.certificate.json").read_text())
    assert len(certificate["constraints"]) == 1
    assert "sellers sell privacy for" in plain(done.stdout)
    assert "Wrote offers.certificate.json" in done.stdout
    assert "reveals the report of its seller" in plain(done.stderr)
    assert (pd.read_csv("offers.csv").epsilon.max() > 10) == weak
    assert ("is a weak promise" in plain(done.stdout)) == weak


def test_prices_satisfy_a_budget_and_quotas(here):
    table = pd.DataFrame({"who": list("ab"), "asks": [0.03, 0.09], "region": ["north", "south"]})
    table.to_csv("grouped.csv", index=False)
    named = ["--id-column", "who", "--sensitivity-column", "asks"]
    done = invoke("price", "grouped.csv", *TERMS, *named, "--budget", "1", "--out", "b.csv")
    assert done.exit_code == 0, done.output
    assert json.loads((here / "b.certificate.json").read_text())["budget"] == 1.0
    assert "budget, met on average over the prior 1" in plain(done.stdout)
    quota = ["--group-column", "region", "--at-least", "south:0.5"]
    done = invoke("price", "grouped.csv", *PRICE, *named, *quota, "--out", "g.csv")
    assert done.exit_code == 0, done.output
    assert pd.read_csv("g.csv").weight[table.region == "south"].sum() >= 0.5 - 1e-6
    done = invoke("price", "grouped.csv", *PRICE, "--out", "o.csv")
    assert done.exit_code == 2
    assert "Name one of them with --id-column (id in Python, sellers.id in a file)" in plain(
        done.stderr
    )


@pytest.mark.parametrize("given", [[], ["--mu", "1"], ["--sigma", "100"]])
@pytest.mark.usefixtures("here")
def test_price_explains_how_mu_and_sigma_are_chosen(given):
    terms = ["--prior", "uniform:0.02,0.10", "--budget", "1", *given, "--out", "o.csv"]
    done = invoke("price", "sellers.csv", *terms)
    assert done.exit_code == 2
    mu, sigma = cm.PrivateLogisticRegression().risk(n_features=10)
    constants = f"{mu:.3g} and {sigma:.3g}"
    assert re.search(rf"^error: give --mu and --sigma: .* is {constants}, see", plain(done.stderr))
    assert constants in plain(invoke("price", "--help").stdout)


def test_the_schema_is_printed_as_json():
    assert json.loads(invoke("schema").stdout)["$defs"]


def commands(group=None, names=()):
    """Yield the name and the Click object of every command."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield (*names, name), command


def test_the_help_of_all_fourteen_commands_fits_80_columns():
    names = [name for name, _ in commands()]
    assert len(names) == 14
    for name in names:
        text = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*name, "--help"]).stdout
        assert "…" not in text
        if name[0] not in ("online", "schema"):
            assert f"convexmarket {name[0]} " in text.split("Examples")[1]


def test_help_lists_version_completion_and_examples():
    assert invoke("--version").stdout.startswith("convexmarket ")
    text = plain(invoke("--help").stdout)
    assert "--install-completion" in text
    assert "convexmarket price sellers.csv" in text


def test_a_warning_of_the_package_prints_one_line_without_code(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)

    def command():
        for category in (UselessModelWarning, UserWarning):
            print(warnings.formatwarning("less noise", category, "code.py", 3, "f()"))

    with pytest.raises(SystemExit):
        consoles.run_to_the_end(command)
    ours, usual = capsys.readouterr().out.strip().split("\n\n")
    assert ours == "warning: less noise"
    assert "code.py:3: UserWarning: less noise" in usual
