"""Test the command ``convexmarket diff``: output, files, exit codes and errors."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

import convexmarket as cm
from convexmarket import cli


def write(folder, error=0.1, status="solved"):
    report = cm.Report("A [bold]market[/bold]", settings={"seed": 0})
    rows = [["<b>", 0.5, error, status], ["<b>", 1.0, 0.2, "solved"]]
    frame = pd.DataFrame(rows, columns=["model", "gamma", "error", "status"])
    report.add(frame, name="curve", keys=["model", "gamma"])
    report.write(folder)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to a folder with a report, an equal report, and a report with different results."""
    monkeypatch.chdir(tmp_path)
    write("a")
    write("again")
    write("b", 0.4, "[red]failed[/red]")
    return tmp_path


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, ["diff", *arguments])


def test_exit_code_reports_differences_on_request(here):
    write("c", 0.4)
    exits = {"": 0, "--exit-code": 1, "--exit-code --tolerance 0.7": 1}
    exits |= {"--exit-code --tolerance 0.8": 0}
    for options, code in exits.items():
        assert invoke("a", "c", *options.split()).exit_code == code


def test_the_numbers_of_differences_are_printed(here):
    assert invoke("a", "again").stdout == "Differences, except times: nothing.\n"
    text = invoke("a", "b").stdout
    assert text.startswith("Differences, except times: 2 results.\n\nFirst of 2 differences\n")
    assert "curve <b>, gamma 0.5" in text
    assert "[red]failed[/red]" in text


def test_data_are_printed_as_json(here):
    done = invoke("a", "b/results.json", "--json")
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert not data["same"]
    number, status = data["differences"][::-1]
    assert (number["column"], status["column"]) == ("error", "status")
    assert (number["a"], number["b"], number["relative"]) == (0.1, 0.4, pytest.approx(0.75))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "nowhere"], "name the folder of a report"),
        (["a", "b", "--tolerance", "-1"], "tolerance must be a finite number >= 0, got -1"),
    ],
)
@pytest.mark.usefixtures("here")
def test_an_error_is_printed_on_one_line(arguments, words):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
