"""Test purchases with a problem file: agreement with cm.buy, public rows and errors."""

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.privacy import Simulation
from convexmarket.studies.files import load_file, parse_file
from convexmarket.studies.files.people import read_people
from tests.learners.builders import output_ridge
from tests.studies.files.builders import REGRESSION, TRADEOFF, TWO_SELLERS, patients, written

TABLE = patients(300)
PUBLIC = {"age": (18, 100), "bmi": (15, 50), "smoker": ["no", "former", "yes"]}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def sale(place):
    problem = load_file(written(place, TRADEOFF, TABLE))
    return problem.buy(random_state=Simulation(0)), read_people(problem)["test"].index


def test_buying_from_a_file_equals_cm_buy(sale):
    """Compare the purchase with the result of cm.buy for the settings of the file."""
    deal, test = sale
    sold = TABLE.loc[deal.offers.index]
    by_hand = cm.buy(
        sold,
        ask="ask",
        target="ill",
        prior=cm.Uniform(0.02, 0.1),
        learner=cm.PrivateLogisticRegression(
            0.03,
            features=cm.PublicFeatures(PUBLIC, missing="indicator"),
            classes=("no", "yes"),
            cap=2,
            tol=1e-9,
        ),
        objective=1.0 * cm.Spread() + 10.0 * cm.Noise(),
        constraints=[cm.Cap(2)],
        gamma=0.002,
        test=TABLE.loc[test],
        random_state=Simulation(0),
    )
    pd.testing.assert_frame_equal(
        deal.offers, by_hand.offers, check_names=False, check_index_type=False
    )
    assert deal.offers.index.name is None, "the key for the column of ids is id"
    np.testing.assert_array_equal(deal.model.coef_, by_hand.model.coef_)
    assert str(deal) == str(by_hand)


def test_public_rows_are_not_sold_and_measure_the_model(sale):
    deal, test = sale
    assert len(deal.offers) == 150
    assert not set(deal.offers.index) & set(test)
    wrong = deal.model.predict(TABLE.loc[test]) != TABLE.loc[test, "ill"]
    assert deal.test_errors["model"] == wrong.mean()


def test_a_regression_uses_the_risk_constants_of_its_learner(place, tmp_path):
    problem = load_file(written(tmp_path, REGRESSION, TABLE))
    deal = problem.buy(random_state=Simulation(0))
    learner = output_ridge(0.3)
    width = problem.data.public_features.n_features_out_
    mu, sigma = learner.risk(width, label_noise=0.2, failure_probability=0.05)
    standard = deal.market.standard_form
    assert (standard.mu, standard.sigma, standard.gamma) == (mu, sigma, 0.01)
    assert deal.model.target_range == (-60_000, 60_000)
    assert np.isfinite(deal.test_errors["model"])


def test_gamma_or_a_budget_replaces_the_setting_of_the_file(place):
    problem = load_file(written(place, TRADEOFF, TABLE))
    assert problem.buy(gamma=0.01).market.standard_form.gamma == 0.01
    deal = problem.buy(budget=5.0)
    assert str(deal.incentives) == "by construction"
    assert 3.0 < deal.offers["payment"].sum() < 7.0
    with pytest.raises(ParameterError, match="gamma or budget, not both"):
        problem.buy(gamma=0.01, budget=5.0)


@pytest.mark.campaign  # payments require one allocation per seller
def test_a_group_receives_its_minimum_share(place):
    problem = load_file(written(place, TRADEOFF, TABLE))
    deal = problem.buy(group="region", at_least={"north": 0.7})
    weights = deal.offers["weight"]
    north = TABLE.loc[weights.index, "region"] == "north"
    assert weights[north].sum() >= 0.7 - 1e-6
    free = problem.buy(group="region").offers["weight"]
    assert free[north].sum() < 0.69
    with pytest.raises(ParameterError, match="--group-column"):
        problem.buy(at_least={"north": 0.7})
    with pytest.raises(ParameterError, match="'west', which no seller is in"):
        problem.buy(group="region", at_least={"west": 0.1})


@pytest.mark.parametrize("column", ["patient", "ask", "ill", "age"])
def test_private_columns_cannot_define_groups(place, column):
    problem = load_file(written(place, TRADEOFF, TABLE))
    with pytest.raises(ParameterError, match=f"'{column}' is private"):
        problem.buy(group=column, at_least={"west": 0.1})  # an error for "west" lists all groups


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("objective.gamma=[0.1, 0.2]", "objective.gamma lists 0.1, 0.2"),
        ("objective.mu=[1, 2]", "objective.mu lists 1, 2"),
        ("objective.sigma=[1, 2]", "--set objective.sigma=[1.0]"),
        ("learner.regularization=[0.1, 0.2]", "learner.regularization lists"),
    ],
)
def test_candidates_in_the_file_are_refused(place, setting, key):
    problem = load_file(written(place, TRADEOFF, TABLE), [setting])
    with pytest.raises(ParameterError) as caught:
        problem.buy()
    assert key in str(caught.value)
    assert "fixed before reports and rows are read" in str(caught.value)


def test_purchases_without_reports_or_a_table_are_refused(place):
    simulated = TRADEOFF.replace('report = "ask"\n', "")
    for problem in (load_file(written(place, simulated, TABLE)), parse_file(TWO_SELLERS)):
        with pytest.raises(NotSupportedError, match="buying needs a table with a column"):
            problem.buy()
