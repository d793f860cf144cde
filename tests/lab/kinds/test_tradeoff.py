"""The trade-off experiment: exact facts about what it reports, and that it repeats."""

import numpy as np
import pandas as pd
import pytest

from convexmarket.data.datasets import synthetic
from convexmarket.errors import ParameterError, ProblemFileError
from convexmarket.lab import report_of, run_problem
from convexmarket.lab.kinds.tradeoff.run import run_tradeoff
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.privacy import Guarantee, Simulation

TINY = """
kind = "tradeoff"
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
mu = [0.1, 1.0]
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
    return parse_problem(TINY, overrides)


@pytest.fixture(scope="module")
def result():
    return run_tradeoff(tiny())


def test_one_row_for_each_scenario_model_and_gamma(result):
    expected = [
        (scenario, model, gamma)
        for scenario in ("independent", "correlated")
        for model in ("mechanism", "naive")
        for gamma in (0.001, 0.01)
    ]
    assert list(result.tables["curve"][KEY].itertuples(index=False, name=None)) == expected
    assert len(result.tables["draws"]) == 8 * 3
    assert len(result.tables["sellers"]) == 8 * 40
    assert len(result.certificates) == 8
    assert list(result.tables["audits"][KEY].itertuples(index=False, name=None)) == [
        row for row in expected if row[1] == "mechanism"
    ]


def test_the_same_with_two_jobs(result, two_jobs):
    other = run_tradeoff(tiny(two_jobs))
    pd.testing.assert_frame_equal(other.tables["curve"], result.tables["curve"])
    pd.testing.assert_frame_equal(other.tables["draws"], result.tables["draws"])
    pd.testing.assert_frame_equal(other.tables["sellers"], result.tables["sellers"])
    assert other.numbers["baseline_error"] == result.numbers["baseline_error"]


def test_another_seed_is_another_run(result):
    few = ("objective.gamma=[0.001]", "objective.mu=[1.0]", "learner.draws=1")
    other = run_tradeoff(tiny("run.seed=1", *few))
    assert not np.array_equal(
        other.tables["sellers"].sensitivity[:40], result.tables["sellers"].sensitivity[:40]
    )


def test_the_curve_sums_up_draws_and_sellers(result):
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


def test_the_total_guarantee_is_what_was_sold_plus_delta_where_it_is_the_paper_s():
    found = run_tradeoff(
        tiny('learner.calibration="noise"', 'learner.accounting="paper"', "objective.gamma=[0.001]")
    )
    table = found.tables["sellers"].merge(
        found.tables["curve"][[*KEY, "eta", "regularization"]], on=KEY
    )
    largest = table.groupby(KEY).weight.transform("max")
    np.testing.assert_allclose(table.epsilon, table.weight * table.eta)
    used = table.weight > 0
    assert (table.guarantee[~used] == 0).all()
    table["delta"] = 2 * np.log1p(largest / table.regularization)
    table = table[used]
    second = table.guarantee - table.epsilon - table.delta  # what hides the distance left
    groups = table.assign(second=second).groupby(KEY)
    assert (second >= -1e-12).all()
    assert (groups.second.max() - groups.second.min() <= 1e-12).all()
    assert (groups.second.max() <= 0.01 * groups.epsilon.min()).all()


def test_the_total_is_what_was_sold_when_calibrated_to_be(result):
    bought = result.tables["sellers"][result.tables["sellers"].weight > 0]
    assert (bought.guarantee <= bought.epsilon * (1 + 1e-12)).all()


def test_calibration_refuses_purchases_that_are_too_small():
    with pytest.raises(ParameterError, match=r"naive model at gamma.* use a larger regularization"):
        run_tradeoff(
            tiny(
                'learner.calibration="total"',
                "objective.gamma=[0.001]",
                "learner.regularization=[0.01]",
                "naive.eta_range=[0.001, 0.002]",
            )
        )


def test_nobody_loses_and_nobody_gains_by_lying(result):
    assert (result.tables["sellers"].surplus >= -1e-12).all()
    assert (result.tables["sellers"].payment[result.tables["sellers"].weight == 0] == 0).all()
    assert result.tables["audits"].incentive_compatible.all()
    assert result.tables["audits"].individually_rational.all()


def test_the_naive_model_buys_from_the_cheapest(result):
    naive = result.tables["sellers"][
        (result.tables["sellers"].model == "naive") & (result.tables["sellers"].weight > 0)
    ]
    assert (naive.sensitivity == result.tables["sellers"].sensitivity.min()).all()
    rows = result.tables["curve"][result.tables["curve"].model == "naive"]
    assert (rows.mu == 0).all()
    assert (rows.sigma == 0).all()
    assert rows.eta.between(5.0, 200.0).all()


def test_every_allocation_is_certified(result):
    assert (result.tables["curve"].gap < 1e-12).all()
    for certificate, row in zip(
        result.certificates, result.tables["curve"].itertuples(), strict=True
    ):
        assert certificate["objective"] == row.objective
        assert certificate["gamma"] == row.gamma


def test_correlation_sorts_sensitivities_by_the_feature():
    found = run_tradeoff(tiny("objective.gamma=[0.001]", 'sellers.scenarios=["correlated"]'))
    data = synthetic(40, 2, 0, 50, 60)
    reports = found.tables["sellers"].sensitivity[:40].to_numpy()
    assert (np.diff(reports[np.argsort(data.X_train[:, 1])]) >= 0).all()


def test_the_baseline_is_the_learner_without_noise(result):
    data = synthetic(40, 2, 0, 50, 60)
    model = PrivateLogisticRegression(result.numbers["baseline_regularization"])
    model.fit(data.X_train, data.y_train, epsilon=np.inf)
    assert result.numbers["baseline_error"] == pytest.approx(
        1 - model.score(data.X_test, data.y_test)
    )


def test_what_one_class_said_of_all_is_wrong_on_is_the_rarer_class(result):
    labels = synthetic(40, 2, 0, 50, 60).y_test
    rarer = min((labels == 1).mean(), (labels == -1).mean())
    assert result.numbers["one_class_error"] == pytest.approx(rarer)


def test_a_draw_can_be_trained_again(result):
    data = synthetic(40, 2, 0, 50, 60)
    row = result.tables["curve"].iloc[0]
    weights = result.tables["sellers"].weight[:40].to_numpy()
    seed = np.random.SeedSequence(0, spawn_key=(1, 2))
    model = PrivateLogisticRegression(row.regularization)
    model.fit(data.X_train, data.y_train, epsilon=weights * row.eta, random_state=Simulation(seed))
    drawn = result.tables["draws"].test_error[2]
    assert drawn == pytest.approx(1 - model.score(data.X_test, data.y_test))


def test_progress_reaches_the_end_of_every_stage():
    calls = []
    few = ("objective.gamma=[0.001]", "objective.mu=[1.0]", "learner.draws=1")
    run_problem(tiny(*few), lambda *call: calls.append(call))
    last = {stage: (done, total) for stage, done, total in calls}
    assert set(last) == {"allocate and pay", "train", "audit"}
    assert all(done == total for done, total in last.values())


def test_inline_rows_and_given_sensitivities():
    found = run_tradeoff(
        tiny(
            'data={source="inline", features=[[1.0], [-1.0]], labels=[1, -1]}',
            "sellers={sensitivities=[0.03, 0.05]}",
        )
    )
    assert list(found.tables["sellers"].sensitivity[:2]) == [0.03, 0.05]
    np.testing.assert_allclose(found.tables["sellers"].virtual_cost[:2], [0.04, 0.08])


def test_what_does_not_fit_the_data():
    with pytest.raises(ProblemFileError, match="2 entries for 40 training rows"):
        run_tradeoff(tiny("sellers={sensitivities=[0.03, 0.05]}"))
    with pytest.raises(ProblemFileError, match=r"correlated_with must .*, got 'x9'"):
        run_tradeoff(tiny('sellers.correlated_with="x9"'))
    with pytest.raises(ProblemFileError, match="a position below 2"):
        run_tradeoff(tiny("sellers.correlated_with=2"))


class Coin:
    """A learner of a user's own: it guesses, and so tells nothing of anybody."""

    def __init__(self, regularization, weight=1.0):
        self.weight = weight * regularization

    def risk(self, n_features):
        return 1.0, float(n_features)

    def fit(self, X, y, *, epsilon, rows=None, accountant=None):
        self.guarantee_ = Guarantee(np.zeros(len(y)), 0.0, "a guess", "exact", ())
        return self

    def predict(self, X):
        return np.where(self.weight * X[:, 0] > 0, 1.0, -1.0)


FEW = ("objective.gamma=[0.001]", "objective.mu=[1.0]", "learner.draws=1", "naive.grid=1")


def test_another_learner_is_named_in_the_file_and_ones_own_on_the_command_line():
    own = f'learner.name="{__name__}:Coin"'
    found = run_tradeoff(tiny(own, "learner.options={weight=2.0}", *FEW))
    assert (found.tables["sellers"].guarantee == 0).all()
    data = synthetic(40, 2, 0, 50, 60)
    missed = np.mean(np.sign(data.X_test[:, 0]) != data.y_test)
    np.testing.assert_allclose(found.tables["curve"].error_mean, missed)
    linear = run_tradeoff(tiny('learner.name="PrivateLinearSVC"', *FEW)).tables["sellers"]
    assert (linear.guarantee <= linear.epsilon * (1 + 1e-12)).all()
    assert linear.guarantee.max() > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Ridge", "no learner"),
        ("load_model", "no learner"),
        ("abc:ABC", "no learner"),
        ("nobody:C", "cannot be imported"),
    ],
)
def test_what_is_no_learner_is_refused(name, words):
    with pytest.raises(ParameterError, match=words):
        run_tradeoff(tiny(f'learner.name="{name}"', *FEW))
    with pytest.raises(ProblemFileError, match=r"objective\.risk is the bound of"):
        tiny(f'learner.name="{name}"', "objective={gamma=[0.01], risk={n_features=2}}")
    with pytest.raises(ProblemFileError, match="names no code"):
        parse_problem(TINY.replace("[learner]", '[learner]\nname = "os:abc"'))


def test_only_problems_can_be_run():
    with pytest.raises(ParameterError, match="no experiment runs a dict"):
        run_problem({})


def test_tuning_that_is_charged_costs_what_was_sold_and_no_more():
    found = run_tradeoff(tiny("learner.tuning='charged'", "sellers.scenarios=['independent']"))
    curve = found.tables["curve"].set_index(["model", "gamma"])
    free, charged = curve.loc["mechanism"], curve.loc["charged tuning"]
    assert charged.regularization.isna().all()
    for same in ("mu", "sigma", "eta", "payments", "epsilon_max"):
        np.testing.assert_array_equal(charged[same], free[same])
    sellers = found.tables["sellers"].query("model == 'charged tuning'")
    np.testing.assert_array_equal(sellers.guarantee, sellers.epsilon)
    assert (charged.error_mean < 0.5).all()
    draws = found.tables["draws"].query("model == 'charged tuning'")
    np.testing.assert_allclose(draws.groupby("gamma").test_error.mean(), charged.error_mean)
    assert "with Λ chosen at the sellers' expense" in report_of(found).finding
    few = ["objective.gamma=[0.01]", "learner.tuning='charged'", "learner.calibration='noise'"]
    with pytest.raises(ProblemFileError, match="calibration"):
        tiny(*few)
