"""Test the command ``convexmarket compare``: output, reports, journals and errors."""

import json
import shutil

import pytest

from convexmarket.cli.experiments import journal_of
from convexmarket.report import read_tables
from tests import PROBLEMS
from tests.cli.builders import invoke, plain

FEW = ["--sizes", "20", "--draws", "1", "--classes", "allocation", "--jobs", "1"]
FEW += ["--formulations", "primal,projection"]
SOLVERS = ["--solvers", "exact,clarabel,OSQP,NAG"]


@pytest.fixture
def market(tmp_path):
    return shutil.copy(PROBLEMS / "quickstart.toml", tmp_path / "market.toml")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Run one comparison, and return the folder of its report and the printed text."""
    folder = tmp_path_factory.mktemp("compared")
    market = shutil.copy(PROBLEMS / "quickstart.toml", folder / "market.toml")
    done = invoke("compare", market, *FEW, *SOLVERS, "--out", folder / "report")
    assert done.exit_code == 0, done.output
    return folder, plain(done.output)


def test_a_comparison_writes_a_report_and_prints_the_findings(compared):
    folder, text = compared
    assert "OSQP cannot take allocation (primal)." in text
    assert "Not installed: NAG." in text
    results = json.loads((folder / "report" / "results.json").read_text())
    assert results["title"] == "Solvers compared"
    assert len(read_tables(folder / "report")["all-runs"]) == 1 + 2 * 2
    # a reference, an exact method, and 2 solvers with 2 formulations each
    assert len(journal_of(folder / "report").read_text().splitlines()) == 1 + 1 + 2 * 2


def test_a_repeated_command_uses_the_recorded_runs(compared, tmp_path):
    folder = shutil.copytree(compared[0], tmp_path / "again")
    journal = journal_of(folder / "report")
    before = journal.read_bytes()
    again = invoke("compare", folder / "market.toml", *FEW, *SOLVERS, "--out", folder / "report")
    assert again.exit_code == 0
    assert journal.read_bytes() == before
    fresh = invoke(
        "compare", folder / "market.toml", *FEW, "--solvers", "exact", "--out",
        folder / "report", "--fresh",
    )  # fmt: skip
    assert fresh.exit_code == 0
    assert len(journal.read_text().splitlines()) == 2


def test_a_file_of_kind_solvers_is_run_and_its_report_rewritten(compared, tmp_path):
    folder, _ = compared
    file = folder / "study.toml"
    file.write_text(
        'kind = "solvers"\ntitle = "S"\n[study]\nproblems = ["market.toml"]\nsizes = [20]\n'
        'draws = 1\nsolvers = ["exact"]\nclasses = ["allocation"]\n[run]\njobs = 1\n'
    )
    done = invoke("run", file, "--out", folder / "other")
    assert done.exit_code == 0, done.output
    page = (folder / "other" / "report.md").read_text()
    done = invoke("report", folder / "other", "--out", folder / "copy")
    assert done.exit_code == 0, done.output
    assert (folder / "copy" / "report.md").read_text() == page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sizes", "20,ten"], "'--sizes': give numbers such as 100,1000, not '20,ten'"),
        (["--sizes", "0"], "sizes must be a whole number >= 2"),
        (["--draws", "0"], "draws must be a whole number >= 1"),
        (["--solvers", "NONESUCH"], "solvers names 'NONESUCH'; known are CBC"),
        (["--classes", "nonesuch"], "classes names 'nonesuch'"),
        (["--classes", "ridge"], "no problem has a subproblem of the classes ridge"),
        (["--time-limit", "nan"], "time_limit must be"),
        (["nosuch"], "nosuch is neither a file nor a problem class; known are 'allocation'"),
    ],
)
def test_invalid_options_are_reported_before_any_run(market, tmp_path, arguments, words):
    out = tmp_path / "report"
    done = invoke("compare", market, "--sizes", "20", "--out", out, *arguments)
    assert done.exit_code == 2
    assert words in plain(done.output)
    assert not out.exists()


def test_a_folder_without_a_report_is_kept(market, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").write_text("ten years")
    done = invoke("compare", market, "--out", tmp_path / "mine")
    assert done.exit_code == 2
    assert "no results.json" in plain(done.output)
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["thesis.doc"]
