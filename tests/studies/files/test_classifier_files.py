"""Test problem files of markets with a classifier: consistency of tables, and errors."""

import numpy as np
import pytest

from convexmarket.data.datasets import synthetic
from convexmarket.errors import ParameterError, ProblemFileError
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.studies.files import parse_file

TINY = """
kind = "market"
title = "Tiny"
[data]
source = "synthetic"
n_sellers = 40
n_features = 2
n_validation = 50
n_test = 60
[prior]
family = "uniform"
low = 0.02
high = 0.1
[sellers]
scenarios = ["independent", "correlated"]
correlated_with = "x1"
[objective]
gamma = [0.001, 0.01]
mu = [1.0]
sigma = [0.5, 5.0]
[learner]
regularization = [0.01, 0.1]
draws = 3
[naive]
eta_range = [5.0, 200.0]
grid = 3
[run]
jobs = 1
"""

KEY = ["scenario", "model", "gamma"]


def tiny(*overrides: str):
    return parse_file(TINY, overrides)


def run(*overrides: str):
    return tiny(*overrides).perform(progress=False)


@pytest.fixture(scope="module")
def result():
    return run()


def test_tables_have_one_row_for_each_scenario_model_and_gamma(result):
    expected = [
        (scenario, model, gamma)
        for scenario in ("independent", "correlated")
        for model in ("mechanism", "naive")
        for gamma in (0.001, 0.01)
    ]
    curve = result.tables["curve"][KEY].itertuples(index=False, name=None)
    assert sorted(curve) == sorted(expected)
    assert len(result.tables["draws"]) == 8 * 3
    assert len(result.tables["sellers"]) == 8 * 40
    audits = result.tables["audits"][KEY].itertuples(index=False, name=None)
    assert list(audits) == [row for row in expected if row[1] == "mechanism"]


def test_the_curve_summarises_draws_and_sellers(result):
    draws = result.tables["draws"].groupby(KEY, sort=False).test_error
    sellers = result.tables["sellers"].groupby(KEY, sort=False)
    curve = result.tables["curve"].set_index(KEY)
    np.testing.assert_allclose(curve.error_mean, draws.mean())
    np.testing.assert_allclose(curve.error_std, draws.std())
    np.testing.assert_allclose(curve.payments, sellers.payment.sum())
    np.testing.assert_allclose(curve.eta, sellers.epsilon.sum())
    np.testing.assert_allclose(curve.epsilon_max, sellers.epsilon.max())
    np.testing.assert_allclose(curve.guarantee_max, sellers.guarantee.max())
    assert list(curve.n_bought) == list(sellers.weight.agg(lambda a: (a > 0).sum()))
    gammas = result.tables["curve"].gamma.to_numpy()
    np.testing.assert_allclose(curve.overall_mean, curve.error_mean + gammas * curve.payments)


def test_calibration_refuses_purchases_that_are_too_small():
    few = ["objective.gamma=[0.001]", "learner.regularization=[0.01]"]
    with pytest.raises(ParameterError, match=r"naive model at gamma.* use a larger regularization"):
        run("naive.eta_range=[0.001, 0.002]", *few)


def test_no_seller_loses_or_gains_by_a_misreport(result):
    sellers, audits = result.tables["sellers"], result.tables["audits"]
    assert (sellers.surplus >= -1e-12).all()
    assert (sellers.payment[sellers.weight == 0] == 0).all()
    assert audits[["incentive_compatible", "individually_rational"]].all(axis=None)


def test_the_naive_model_buys_from_the_cheapest_seller(result):
    sellers = result.tables["sellers"]
    naive = sellers.query("model == 'naive' and weight > 0")
    assert (naive.sensitivity == sellers.sensitivity.min()).all()
    rows = result.tables["curve"].query("model == 'naive'")
    assert (rows[["mu", "sigma"]] == 0).all(axis=None)
    assert rows.eta.between(5.0, 200.0).all()


def test_the_page_is_short_and_compares_paired_draws(result):
    report = tiny().report(result)
    assert "overall error of the mechanism is" in report.finding
    assert report.finding.endswith("of 4 points.")
    assert len([each for each in report.figures if not each.appendix]) == 3
    assert [each.name for each in report.tables if not each.appendix] == ["claims", "tradeoff"]
    assert len(report.to_markdown().split("|")[0].split()) < 400
    claims = report.tables[0].frame.set_index("claim").verdict
    assert claims["No tested misreport is profitable"] == "holds"
    assert report.settings["problem"]["objective"]["gamma"] == [0.001, 0.01]


def test_correlation_sorts_sensitivities_by_the_feature():
    answer = run(*FEW, 'sellers.scenarios=["correlated"]')
    data = synthetic(40, 2, 0, 50, 60)
    reports = answer.tables["sellers"].sensitivity[:40].to_numpy()
    assert (np.diff(reports[np.argsort(data.X_train[:, 1])]) >= 0).all()


def test_the_baseline_is_the_learner_without_noise(result):
    data = synthetic(40, 2, 0, 50, 60)
    model = PrivateLogisticRegression(result.facts["baseline_regularization"])
    accuracy = model.fit(data.X_train, data.y_train, epsilon=np.inf).score(data.X_test, data.y_test)
    assert result.facts["baseline_error"] == pytest.approx(1 - accuracy)


def test_settings_that_contradict_the_data_are_refused():
    with pytest.raises(ProblemFileError, match="sensitivities has 2 entries for 40 rows"):
        run("sellers={sensitivities=[0.03, 0.05]}")
    with pytest.raises(ProblemFileError, match=r"correlated_with must .*, got 'x9'"):
        run('sellers.correlated_with="x9"')
    with pytest.raises(ProblemFileError, match="a position below 2"):
        run("sellers.correlated_with=2")


FEW = ("objective.gamma=[0.001]", "objective.mu=[1.0]", "learner.draws=1", "naive.grid=1")


def test_a_market_without_any_result_raises_the_error_of_a_candidate():
    with pytest.raises(
        ParameterError, match=r"no candidate of the mechanism model at gamma = 1e\+308"
    ):
        run("objective.gamma=[1e308]", 'sellers={scenarios=["independent"]}', "objective.mu=[1]")


def test_a_file_can_name_another_learner():
    linear = run('learner.name="PrivateLinearSVC"', *FEW).tables["sellers"]
    assert (linear.guarantee <= linear.epsilon * (1 + 1e-12)).all()
    assert linear.guarantee.max() > 0
    for name in ("Ridge", "load_model", "os:abc"):
        with pytest.raises(ProblemFileError, match=f"learner.name is '{name}'; "):
            run(f'learner.name="{name}"', *FEW)


def test_the_finding_is_the_error_if_there_is_no_naive_model():
    text = TINY.replace("[naive]\neta_range = [5.0, 200.0]\ngrid = 3\n", "")
    problem = parse_file(text, FEW[:3])
    runs = problem.perform(progress=False)
    assert set(runs.tables["curve"].model) == {"mechanism"}
    assert problem.report(runs).finding.startswith("At γ = 0.001 (independent sensitivities), ")


def test_charged_tuning_stays_within_the_privacy_sold():
    answer = run("learner.tuning='charged'", "sellers.scenarios=['independent']", FEW[1])
    curve = answer.tables["curve"].set_index(["model", "gamma"])
    free, charged = curve.loc["mechanism"], curve.loc["charged tuning"]
    assert charged.regularization.isna().all()
    for same in ("mu", "sigma", "eta", "payments", "epsilon_max"):
        np.testing.assert_array_equal(charged[same], free[same])
    sellers = answer.tables["sellers"].query("model == 'charged tuning'")
    np.testing.assert_array_equal(sellers.guarantee, sellers.epsilon)
    assert (charged.error_mean < 0.5).all()
    draws = answer.tables["draws"].query("model == 'charged tuning'")
    np.testing.assert_allclose(draws.groupby("gamma").test_error.mean(), charged.error_mean)
    problem = tiny("learner.tuning='charged'", "sellers.scenarios=['independent']")
    assert "with Λ chosen within the privacy sold" in problem.report(answer).finding
    with pytest.raises(ProblemFileError, match="calibration"):
        tiny("learner.tuning='charged'", "learner.calibration='noise'")


def test_the_public_rule_for_lambda_needs_no_candidates():
    curve = run('learner.regularization="auto"', *FEW).tables["curve"]
    assert set(curve.regularization) == {"auto"}
    assert (curve.guarantee_max <= curve.epsilon_max * (1 + 1e-12)).all()
    assert curve.error_mean.between(0, 0.5).all()
