"""The command line, as a user meets it."""

import json
import re

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import convexmarket as cm
from convexmarket import cli
from convexmarket.cli import app
from convexmarket.report import figures
from convexmarket.studies.files import json_schema
from tests import PROBLEMS
from tests.cli.builders import draw_nothing, invoke, one_setting_each, plain

QUICKSTART = str(PROBLEMS / "quickstart.toml")
FAST = one_setting_each("run.jobs=1")
PRICE = ["--prior", "uniform:0.02,0.10", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def _no_figures(monkeypatch):
    monkeypatch.setattr(figures, "saved", draw_nothing)


@pytest.mark.usefixtures("_no_figures")
def test_run_writes_a_report_and_says_where(here):
    done = invoke("run", QUICKSTART, *FAST)
    assert done.exit_code == 0, done.output
    page = here / "out" / "quickstart" / "index.html"
    assert page.is_file()
    assert str(page) in done.stdout.replace("\n", "")
    assert "Two sellers" in done.stdout
    assert "The overall error of the mechanism" in done.stdout
    results = json.loads((page.parent / "results.json").read_text())
    assert results["settings"]["problem file"]["overrides"][0] == "objective.gamma=[0.01]"


@pytest.mark.usefixtures("_no_figures")
def test_run_of_a_regression_market_tells_what_an_error_is(here):
    few = ["--set", "objective.gamma=[0.01]", "--set", "learner.draws=2", "--jobs", "1"]
    few += ["--set", "learner.regularization=[0.3, 1.0]"]
    done = invoke("run", str(PROBLEMS / "medical-market.toml"), *few)
    assert done.exit_code == 0, done.output
    assert "dollars" in done.stdout
    assert (here / "out" / "medical-market" / "index.html").is_file()


@pytest.mark.usefixtures("_no_figures")
def test_run_takes_a_folder_and_opens_it(here, monkeypatch):
    opened = []
    monkeypatch.setattr(cli.webbrowser, "open", opened.append)
    done = invoke("run", QUICKSTART, *FAST, "--out", "mine", "--open")
    assert done.exit_code == 0, done.output
    assert opened == [(here / "mine" / "index.html").as_uri()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "none.toml"], "none.toml: No such file or directory"),
        (["run", QUICKSTART, "--set", "objective.gama=1"], "did you mean 'gamma'?"),
        (["run", QUICKSTART, "--set", "objective.gamma=abc"], "is not a TOML value"),
        (["run", QUICKSTART, "--jobs", "0"], "run.jobs: no job would do the work"),
        (["price", "none.csv", *PRICE, "--out", "o.csv"], "none.csv: No such file"),
        (
            ["schema", "--out", "/dev/null/a.json"],
            "nothing can be written in /dev/null (Not a directory)",
        ),
    ],
)
@pytest.mark.usefixtures("here")
def test_errors_are_one_message_without_a_traceback(arguments, said):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert said in plain(done.stderr)
    assert done.stderr.startswith("error: ")
    assert done.stdout == ""
    assert "Traceback" not in done.output
    assert done.stderr.count("\n") == 1


def test_price_writes_offers_and_their_certificate(here):
    (here / "sellers.csv").write_text("id,sensitivity\nAnn,0.03\nBob,0.05\n")
    done = invoke("price", "sellers.csv", *PRICE, "--cap", "1.5", "--out", "offers.csv")
    assert done.exit_code == 0, done.output
    assert (here / "offers.csv").read_text().startswith('"id","sensitivity","virtual_cost",')
    certificate = json.loads((here / "offers.certificate.json").read_text())
    assert certificate["objective"]["cap"] == 1.5
    assert "Bought from" in done.stdout
    assert "Wrote offers.certificate.json" in done.stdout
    assert "tells what its seller reported" in plain(done.stderr)


@pytest.mark.parametrize(("gamma", "weak"), [("0.001", True), ("50", False)])
def test_price_says_where_a_promise_is_weak(here, gamma, weak):
    (here / "sellers.csv").write_text("id,sensitivity\nAnn,0.03\nBob,0.05\n")
    wanted = ["--prior", "uniform:0.02,0.10", "--mu", "1", "--sigma", "100", "--gamma", gamma]
    done = invoke("price", "sellers.csv", *wanted, "--out", "offers.csv")
    assert done.exit_code == 0, done.output
    assert (pd.read_csv("offers.csv").epsilon.max() > 10) == weak
    assert ("is a weak promise" in plain(done.stdout)) == weak


def test_price_meets_a_budget_and_quotas(here):
    table = pd.DataFrame({"id": list("ab"), "ask": [0.03, 0.09]})
    table["region"] = ["north", "south"]
    table.to_csv("grouped.csv", index=False)
    wanted = ["--prior", "uniform:0.02,0.10", "--mu", "1", "--sigma", "100"]
    quota = ["--group-column", "region", "--at-least", "south:0.5"]
    done = invoke("price", "grouped.csv", *wanted, "--budget", "1", "--out", "b.csv")
    assert done.exit_code == 0, done.output
    assert json.loads((here / "b.certificate.json").read_text())["objective"]["budget"] == 1.0
    assert "budget, met on average over the prior 1" in plain(done.stdout)
    done = invoke("price", "grouped.csv", *wanted, "--gamma", "0.001", *quota, "--out", "g.csv")
    assert done.exit_code == 0, done.output
    weights = pd.read_csv("g.csv").weight
    assert weights[table.region == "south"].sum() >= 0.5 - 1e-6
    for both in ([], ["--budget", "1", "--gamma", "1"]):
        done = invoke("price", "grouped.csv", *wanted, *both, "--out", "o.csv")
        assert done.exit_code == 2
        assert "give one of --gamma and --budget" in plain(done.stderr)


@pytest.mark.parametrize("given", [[], ["--mu", "1"], ["--sigma", "100"]])
@pytest.mark.usefixtures("here")
def test_price_says_how_mu_and_sigma_are_chosen(given):
    wanted = ["--prior", "uniform:0.02,0.10", "--budget", "1", *given, "--out", "o.csv"]
    done = invoke("price", "sellers.csv", *wanted)
    assert done.exit_code == 2
    mu, sigma = cm.PrivateLogisticRegression().risk(n_features=10)
    constants = f"{mu:.3g} and {sigma:.3g}"
    assert re.search(rf"^error: give --mu and --sigma: .* is {constants}, see", plain(done.stderr))
    assert constants in plain(invoke("price", "--help").stdout)


def test_price_takes_the_names_of_columns(here):
    (here / "s.csv").write_text("who;asks\nAnn;0,03\nBob;0,05\n")
    named = ["--id-column", "who", "--sensitivity-column", "asks"]
    assert invoke("price", "s.csv", *PRICE, *named, "--out", "o.csv").exit_code == 0
    done = invoke("price", "s.csv", *PRICE, "--out", "o2.csv")
    assert done.exit_code == 2
    assert (
        "the first line has 2 columns of other names. Name one of them with --id-column (id in"
        in plain(done.stderr)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--prior", "unifrm:0,1"], "prior family 'unifrm' is unknown"),
        (["--gamma", "0"], "gamma must be a finite number > 0, got 0.0"),
        (["--cap", "0.5"], "cap >= 1"),
        (["--out", "sellers.csv"], "--out sellers.csv is the list of reports"),
    ],
)
def test_price_refuses_in_words(here, change, said):
    (here / "sellers.csv").write_text("id,sensitivity\nAnn,0.03\nBob,0.05\n")
    done = invoke("price", "sellers.csv", *PRICE, "--out", "offers.csv", *change)
    assert done.exit_code == 2
    assert said in plain(done.stderr)
    assert not (here / "offers.csv").exists()


def test_schema_is_printed_or_written(here):
    assert json.loads(invoke("schema").stdout) == json_schema()
    assert invoke("schema", "--out", "schema.json").exit_code == 0
    assert json.loads((here / "schema.json").read_text()) == json_schema()
    assert invoke("schema", "--out", "new/folder/schema.json").exit_code == 0
    assert json.loads((here / "new" / "folder" / "schema.json").read_text()) == json_schema()


def test_version_is_an_option():
    done = invoke("--version")
    assert done.exit_code == 0
    assert done.stdout.startswith("convexmarket ")


def commands(group=None, names=()):
    """Yield every command as what is typed, with what Click knows of it."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield (*names, name), command


def test_no_help_is_cut_off_at_80_columns():
    for names, _ in commands():
        assert "…" not in CliRunner(env={"COLUMNS": "80"}).invoke(app, [*names, "--help"]).stdout


def test_json_means_the_same_in_every_command():
    options = [each for _, command in commands() for each in command.params]
    found = {(each.is_flag, each.help) for each in options if "--json" in each.opts}
    assert found == {(True, "Print the results as JSON.")}


def test_help_teaches_by_example():
    assert "convexmarket run problems/wdbc.toml" in plain(invoke("--help").stdout)
    assert "--set objective.gamma=[0.001,0.01]" in plain(invoke("run", "--help").stdout)
    assert "convexmarket price sellers.csv" in plain(invoke("price", "--help").stdout)


def test_shell_completion_is_offered():
    assert "--install-completion" in plain(invoke("--help").stdout)
