"""Markets in the rows of a file of the user's own, from the problem file to the page."""

import stat

import numpy as np
import pandas as pd
import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.lab import report_of, run_problem
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.problem.loading import load_problem
from tests.cli.builders import draw_nothing
from tests.lab.builders import REGRESSION, TRADEOFF, patients, written

SIMULATED = {
    "tradeoff": TRADEOFF.replace('report = "ask"\n', ""),
    "ridge": REGRESSION.replace('report = "ask"\n', ""),
}
TEXTS = {"tradeoff": TRADEOFF, "ridge": REGRESSION}
#: Nobody else has it, so that it could be found again.
RARE = 31.718281828


@pytest.fixture(autouse=True)
def _no_drawings(monkeypatch):
    monkeypatch.setattr("convexmarket.report.figures.saved", draw_nothing)


def table_with_a_rare_cell():
    table = patients(120)
    table.iloc[:, table.columns.get_loc("bmi")] = RARE + np.arange(120) * 1e-6
    return table


@pytest.mark.parametrize("kind", TEXTS)
def test_the_sellers_own_reports_are_bought_from(kind, tmp_path):
    table = patients(120)
    result = run_problem(load_problem(written(tmp_path, TEXTS[kind], table)))
    assert set(result.tables["sellers"].scenario) == {"reported"}
    reports = result.tables["sellers"].drop_duplicates("id").set_index("id").sensitivity
    pd.testing.assert_series_equal(
        reports, table["ask"].loc[reports.index], check_names=False, check_index_type=False
    )
    assert len(reports) == result.provenance["rows"]["train"] == (60 if kind == "tradeoff" else 84)
    assert (result.tables["sellers"].payment > 0).any()
    text = report_of(result).to_markdown()
    assert "The reports are the column “ask” of “patients" in text
    assert "Public rows, which are not bought: " in text
    assert "36 for test" in text


@pytest.mark.parametrize("kind", TEXTS)
def test_simulated_reports_are_called_so_first(kind, tmp_path):
    settings = ['sellers.scenarios=["independent", "correlated"]', 'sellers.correlated_with="age"']
    result = run_problem(load_problem(written(tmp_path, SIMULATED[kind]), settings))
    assert set(result.tables["sellers"].scenario) == {"independent", "correlated"}
    assert set(result.tables["sellers"].id) < set(patients(120).index)
    assert "The reports are simulated." in report_of(result).to_markdown()


@pytest.mark.parametrize("kind", TEXTS)
def test_the_page_tells_nothing_else_of_the_file_and_is_its_owners(kind, tmp_path):
    problem = load_problem(written(tmp_path, TEXTS[kind], table_with_a_rare_cell()))
    page = report_of(run_problem(problem)).write(tmp_path / "report")
    files = [path for path in page.parent.rglob("*") if path.is_file()]
    rare = str(RARE)[:8]
    assert rare in (tmp_path / "patients.csv").read_text()
    for path in files:
        is_table = path.suffix == ".parquet"
        text = pd.read_parquet(path).to_csv() if is_table else path.read_text(errors="replace")
        assert rare not in text, path.name
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_public_rows_are_not_bought(tmp_path):
    """What a public row asks changes nothing, and what it holds changes no purchase."""
    table = patients(120)
    result = run_problem(load_problem(written(tmp_path, TRADEOFF, table)))
    public = table.index.difference(result.tables["sellers"].id)
    assert len(public) == 60
    other = table.copy()
    other.loc[public, "ask"] = 0.05
    other.loc[public, "age"] = 20
    again = run_problem(load_problem(written(tmp_path, TRADEOFF, other)))
    bought = ["id", "sensitivity", "epsilon", "payment"]
    of_mechanism = [
        found.tables["sellers"][found.tables["sellers"].model == "mechanism"][bought].reset_index(
            drop=True
        )
        for found in (result, again)
    ]
    pd.testing.assert_frame_equal(*of_mechanism)


def test_studies_of_solvers_take_such_files(tmp_path):
    for text in TEXTS.values():
        problem = load_problem(written(tmp_path, text))
        families = KINDS["tradeoff"].subproblems(problem)
        rng = np.random.default_rng(0)
        assert len([family.make(20, rng) for family in families]) >= 2


def test_a_feature_to_correlate_with_has_to_be_one(tmp_path):
    settings = ['sellers.scenarios=["correlated"]', 'sellers.correlated_with="region"']
    problem = load_problem(written(tmp_path, SIMULATED["tradeoff"]), settings)
    with pytest.raises(ProblemFileError, match=r"correlated_with must .*, got 'region'"):
        run_problem(problem)
