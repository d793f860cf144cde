"""The stored reports are small, and agree with their problem files and scripts."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from convexmarket.cli.experiments import report_names
from convexmarket.report import read_report, read_tables
from convexmarket.studies.files import load_file
from convexmarket.studies.files.loading import subproblems_of
from problems.papers.__main__ import NAMES
from tests import ROOT, one_in

REPORTS = ROOT / "reports"
FILES = report_names(ROOT / "problems")
PAPERS = {name.replace("_", "-") for name in NAMES}
VARIANTS = [name for name in FILES if name.startswith("variants-")]


@pytest.mark.parametrize("name", one_in(2, VARIANTS))
def test_a_run_without_payments_reproduces_the_stored_markets_and_draws(name):
    overrides = ["run.jobs=1", "run.payments='none'", "run.audits='none'", "run.compare.draws=2"]
    new = load_file(FILES[name], overrides).perform(progress=False).tables
    stored = read_tables(REPORTS / name)
    for table, keys in (("runs", ["market", "value"]), ("draws", ["market", "draw"])):
        merged = new[table].merge(stored[table], on=keys, suffixes=("", "_stored"))
        assert len(merged) == len(new[table]) > 0
        for column in ("objective", "error", "n_effective", "epsilon_max", "expected_payments"):
            np.testing.assert_allclose(merged[column], merged[f"{column}_stored"], 1e-4)


@pytest.mark.parametrize("name", one_in(2, ["quickstart", "medical-market", "wdbc", "synthetic"]))
def test_a_run_of_one_candidate_reproduces_a_stored_point(name):
    problem, curve = load_file(FILES[name]), read_tables(REPORTS / name)["curve"]
    gamma = problem.objective.gamma[1]
    curve = curve[curve.gamma == gamma]
    rows = curve.query("model == 'mechanism'") if "model" in curve else curve[curve.marked]
    row = rows.iloc[0]
    overrides = [f"objective.gamma=[{gamma}]", f"learner.regularization=[{row.regularization}]"]
    overrides += [f"sellers.scenarios=['{row.scenario}']", "run.jobs=1"]
    if "model" in curve:
        overrides += [f"objective.mu=[{row.mu}]", f"objective.sigma=[{row.sigma}]"]
        overrides += ["learner.tuning='free'", "naive.grid=2"]
    (new,) = [
        each
        for each in load_file(FILES[name], overrides)
        .perform(progress=False)
        .tables["curve"]
        .itertuples()
        if getattr(each, "model", "mechanism") == "mechanism"
    ]
    for column in ("eta", "payments", "error_mean" if "model" in curve else "rmse"):
        assert getattr(new, column) == pytest.approx(row[column], rel=1e-6)


@pytest.mark.parametrize("name", one_in(2, [name for name in FILES if "online-" in name]))
def test_an_online_market_reproduces_the_stored_offers(name):
    overrides = ["run.jobs=1", "simulation.draws=1"]
    new = load_file(FILES[name], overrides).perform(progress=False).tables["offers"]
    stored = read_tables(REPORTS / name)["offers"]
    assert new[["id", "status"]].equals(stored[["id", "status"]])
    for column in ("epsilon", "payment", "guarantee"):
        np.testing.assert_allclose(new[column], stored[column], 1e-5, 1e-9)


def test_small_problems_of_the_solver_study_have_their_stored_outcomes():
    overrides = ["study.solvers=['exact', 'CLARABEL']", "study.sizes=[100]", "study.draws=1"]
    overrides += ["study.problems=['allocation', 'budget', 'z-block', 'ridge']", "run.jobs=1"]
    problem = load_file(FILES["solver-study"], overrides)
    new = problem.perform(subproblems_of, progress=False).tables["runs"]
    stored = read_tables(REPORTS / "solver-study")["all-runs"]
    keys = ["problem", "instance", "formulation", "solver", "setting", "size", "seed"]
    merged = new.merge(stored, on=keys, suffixes=("", "_stored"))
    assert len(merged) == len(new) > 10
    assert (merged.outcome == merged.outcome_stored).all()
    solved = merged[merged.outcome == "solved"]
    np.testing.assert_allclose(solved.objective, solved.objective_stored, 1e-5)


def test_every_experiment_has_a_report_and_every_report_has_an_experiment():
    assert {path.parent.name for path in REPORTS.glob("*/index.html")} == set(FILES) | PAPERS


@pytest.mark.parametrize("name", FILES)
def test_the_report_of_a_study_contains_its_current_file(name):
    stored = read_report(REPORTS / name).settings["problem file"]
    assert stored["text"] == FILES[name].read_text(encoding="utf-8")
    assert not stored["overrides"]


@pytest.mark.parametrize("name", one_in(4, FILES))
def test_the_pages_are_reproduced_from_the_stored_results(name):
    report = read_report(REPORTS / name)
    assert report.to_markdown() == (REPORTS / name / "report.md").read_text()
    assert report.to_html() == (REPORTS / name / "index.html").read_text()


@pytest.mark.parametrize("name", [*FILES, *sorted(PAPERS)])
def test_a_page_is_short(name):
    page = (REPORTS / name / "index.html").read_text()
    assert page.count("<img") <= 3
    assert page.count("<table>") <= 2
    hidden = r"<(head|style|script|table)\b.*?</\1>|<[^>]+>"
    assert len(re.sub(hidden, " ", page, flags=re.DOTALL).split()) <= 400


@pytest.mark.parametrize("name", [*FILES, *sorted(PAPERS)])
def test_a_report_contains_its_page_and_no_derived_files(name):
    folder = REPORTS / name
    for file in ("index.html", "report.md", "results.json"):
        assert (folder / file).stat().st_size > 0
    kinds = {path.suffix for path in folder.rglob("*.*")}
    assert kinds <= {".html", ".md", ".json", ".png", ".parquet", ".jsonl"}
    assert list(folder.glob("figures/*.png"))


def test_the_index_contains_the_finding_of_each_report():
    for page, target in (("index.html", "index.html"), ("README.md", "report.md")):
        text = (REPORTS / page).read_text()
        assert all(f"{name}/{target}" in text for name in [*FILES, *PAPERS])
        assert "cannot be read" not in text
    for name in [*FILES, *PAPERS]:
        finding = json.loads((REPORTS / name / "results.json").read_text())["finding"]
        assert finding
        assert finding in text


def test_all_reports_have_at_most_8_megabytes():
    sizes = [path.stat().st_size for path in REPORTS.rglob("*") if path.is_file()]
    assert sum(sizes) <= 8e6


@pytest.mark.parametrize("name", ["wdbc", "synthetic"])
def test_no_chosen_candidate_is_at_the_end_of_its_grid(name):
    problem, tables = load_file(FILES[name]), read_tables(REPORTS / name)
    curve, runs = tables["curve"], tables["runs"]
    bought = curve[curve.model == "mechanism"]
    assert problem.objective.mu is None  # the risk bound determines mu
    assert set(bought.sigma).isdisjoint(
        [min(problem.objective.sigma), max(problem.objective.sigma)]
    )
    # Between the two largest values of Lambda, the errors decrease by less than 0.02.
    *_, second, last = sorted(problem.learner.regularization)
    keys = ["scenario", "gamma", "sigma"]
    errors = runs.merge(bought[keys]).pivot_table("test_error", keys, "regularization")
    assert (errors[second] - errors[last]).max() < 0.02


def test_the_headline_of_wdbc_includes_the_choice_of_lambda():
    report = read_report(REPORTS / "wdbc")
    assert "Λ chosen within the privacy sold" in report.finding
    lower = re.search(r"lower at (\d+)", report.finding)[1]
    assert f"at {lower} of 10 points" in (ROOT / "docs/statements.toml").read_text()


def test_the_headline_of_the_medical_market_compares_all_points_of_its_table():
    report = read_report(REPORTS / "medical-market")
    curve = {table.name: table.frame for table in report.tables}["curve"]
    units = load_file(FILES["medical-market"]).units.per_label
    lower = 1 - (curve.rmse / curve.uniform_rmse).prod() ** (1 / len(curve))
    assert f"{lower:.0%} lower than that of one price for all" in report.finding
    assert f"lower at {(curve.rmse < curve.uniform_rmse).sum()})" in report.finding
    assert f"{curve.rmse.min() * units:,.0f} dollars" in report.finding
    useful = (curve.rmse < report.settings["constant_rmse"]).sum()
    assert f"at {useful} of {len(curve)} points" in report.finding


def test_no_page_states_that_a_constraint_lowers_the_optimal_error():
    text = (REPORTS / "variants-budget/report.md").read_text()
    (sentence,) = re.findall(r"errors of “budget and a cap of 1\.5” and “over γ” differ .*", text)
    assert "-" not in re.search(r"by (.*) to", sentence)[1]


def test_the_headline_of_the_joint_methods_counts_the_best_results_of_each_method():
    finding = read_report(REPORTS / "joint-methods").finding
    summary = read_tables(REPORTS / "joint-methods")["summary"]
    outside = summary[summary.group.str.contains("outside|not in a")].groupby("name")
    written = re.findall(r"(\d+) times by “([^”]+)”", finding)
    assert {name: int(count) for count, name in written} == outside.best.sum().to_dict()
    assert f"On {outside.instances.sum().max()} instances outside" in finding


@pytest.mark.parametrize("part", ["ridge-synthetic", "ridge-medical"])
def test_orders_of_methods_are_counted_over_all_sweeps(part):
    tables = read_tables(REPORTS / "ridge")
    cells, orders = tables[f"{part}-cells"], tables[f"{part}-orderings"]
    claims = tables["claims"][tables["claims"].claim.str.startswith(f"{part}: PDP-OP < ")]
    assert set(orders.sweep) == set(cells.sweep)
    for verdict in claims.verdict[claims.verdict != "holds"]:
        assert verdict.endswith(f" of {len(orders)}")


def test_the_solver_study_counts_the_classes_of_its_table():
    finding, fastest = (
        read_report(REPORTS / "solver-study").finding,
        read_tables(REPORTS / "solver-study")["fastest"],
    )
    solved, classes = map(int, re.search(r"in (\d+) of (\d+) comparisons", finding).groups())
    named = fastest.fastest.fillna("").astype(str)
    assert (solved, classes) == ((named != "").sum(), len(fastest))
    solvers = named[named != ""].str.partition(",")[0].value_counts()
    assert int(re.search(r"most often \((\d+) times\)", finding)[1]) == solvers.max()
    decided = (fastest.low > 1).sum()
    assert finding.endswith(f"the 95 % interval to the next one excludes a tie in {decided}.")


def test_the_frontier_contains_each_point_once():
    tables = {table.name: table.frame for table in read_report(REPORTS / "limits").tables}
    frontier = tables["limits-promise-frontier"]
    criteria = ["error", "expected_payments", "epsilon_max"]
    assert not frontier[criteria].round(9).duplicated().any()
    assert len(frontier) < tables["limits-promise-points"].efficient.sum()


def test_payments_in_the_theory_of_many_sellers_equal_the_payments_of_the_report():
    text = " ".join((ROOT / "docs/theory/many-sellers.md").read_text().split())
    written = re.search(r"payments decrease from ([\d.]+) for .* to ([\d.]+) for", text).groups()
    tables = {table.name: table.frame for table in read_report(REPORTS / "online-uniform").tables}
    payments = tables["online-near-zero-points"].payments
    assert written == (f"{payments.iloc[0]:.3f}", f"{payments.iloc[-1]:.3f}")


def test_reports_contain_no_absolute_paths():
    for path in REPORTS.glob("*/results.json"):
        file = json.loads(path.read_text())["settings"].get("problem file")
        assert file is None or not Path(file["path"]).is_absolute(), path
