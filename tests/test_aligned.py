"""Columns with a different order of rows are aligned by labels or refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import convexmarket as cm
from convexmarket import terms
from convexmarket.checks import aligned
from convexmarket.errors import DataError, ParameterError

NAMES = ["Ann", "Bob", "Cid", "Dot", "Eve", "Fay"]


def patients():
    """Return a table of patients that is indexed by name."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(-0.4, 0.4, (6, 2)), index=NAMES, columns=["age", "bmi"])
    table["ill"] = np.where(table["age"] > 0, 1, -1)
    table["granted"] = [0.5, 1.0, 2.0, 3.0, 5.0, 8.0]
    return table


def backwards(column):
    return column.iloc[::-1]


def ridge():
    return cm.PersonalizedRidge(
        1.0, perturbation="output", feature_range=(-1, 1), target_range=(-1, 1)
    )


def noise():
    return cm.privacy.Simulation(0)


@pytest.mark.parametrize(
    ("learner", "fitted"),
    [
        (ridge(), "coef_"),
        (cm.PrivateLogisticRegression(1.0), "epsilon_"),
        (cm.KernelERM(gamma=1.0, regularization=1.0, data_norm=1.0), "row_sensitivities_"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_labels_and_epsilon_in_another_order_are_matched_to_the_rows(learner, fitted):
    table = patients()
    X, y, granted = table[["age", "bmi"]], table["ill"], table["granted"]
    source = {} if fitted == "row_sensitivities_" else {"random_state": cm.privacy.Simulation}
    models = [
        clone(learner).fit(
            X, y[order], epsilon=granted[order], **{k: v(0) for k, v in source.items()}
        )
        for order in (NAMES, NAMES[::-1])
    ]
    np.testing.assert_array_equal(*(getattr(model, fitted) for model in models))
    if source:
        assert np.all(models[1].epsilon_ <= granted)


def test_losses_audits_and_releases_match_columns():
    table = patients()
    X, y, granted = table[["age", "bmi"]], table["ill"], table["granted"]
    orders = granted, backwards(granted)
    losses = [cm.learners.expected_loss(ridge(), X, y, X, y, epsilon=each) for each in orders]
    assert losses[0].mean == losses[1].mean
    options = {"rows": [0], "draws": 2, "random_state": 0}
    model = cm.PrivateLogisticRegression(1.0)
    audits = [cm.audit_privacy(model, X, y, epsilon=each, **options) for each in orders]
    assert audits[0].to_frame().equals(audits[1].to_frame())
    erm = cm.KernelERM(gamma=1.0, regularization=1.0, data_norm=1.0).fit(X, y, epsilon=granted)
    points = X.to_numpy()[:1]
    releases = [
        cm.TestSetRelease(erm, points, epsilon=each, delta=1e-6, random_state=noise())
        for each in orders
    ]
    assert np.all(releases[1].guarantee.epsilon <= granted)
    np.testing.assert_array_equal(releases[0].guarantee.epsilon, releases[1].guarantee.epsilon)
    with pytest.raises(DataError, match="the rows of erm and epsilon have different"):
        cm.TestSetRelease(erm, points, pd.Series(np.ones(6)), delta=1e-6)


def test_sellers_are_matched_and_shown_by_name():
    asks = pd.Series([0.1, 0.6, 0.7], index=["Ann", "Bob", "Cid"])
    group = pd.Series(["old", "young", "young"], index=["Cid", "Ann", "Bob"])
    priors = {"young": cm.Uniform(0, 1), "old": cm.Uniform(0.5, 1)}
    sellers = cm.Sellers(asks, priors, groups=group)
    assert sellers.ids == ("Ann", "Bob", "Cid")
    assert sellers.groups.tolist() == ["young", "young", "old"]
    np.testing.assert_allclose(sellers.virtual_costs, [0.2, 1.2, 0.9])
    each = pd.Series([priors[name] for name in group], index=group.index)
    np.testing.assert_allclose(cm.Sellers(asks, each).virtual_costs, [0.2, 1.2, 0.9])
    assert cm.Sellers(asks, cm.Uniform(0, 1), ids=["a", "b", "c"]).ids == ("a", "b", "c")
    assert cm.Sellers(asks.reset_index(drop=True), cm.Uniform(0, 1)).ids == range(3)
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5)
    offers = cm.allocate(market).to_frame()
    assert offers.index.tolist() == ["Ann", "Bob", "Cid"]
    assert cm.audit_incentives(market).to_frame().index.tolist() == ["Ann", "Bob", "Cid"]


def test_ids_in_a_list_are_labels():
    asks = [0.1, 0.6]
    group = pd.Series(["old", "young"], index=["Bob", "Ann"])
    with pytest.raises(DataError, match="labels of a column are not the sellers"):
        cm.Sellers(asks, cm.Uniform(0, 1), ids=["Ann", "Bob"], groups=group)
    rows = group.reset_index(drop=True)
    assert cm.Sellers(asks, cm.Uniform(0, 1), ids=["Ann", "Bob"], groups=rows).groups[0] == "old"


BASE = cm.Spread() + cm.Noise() + cm.Payments()


@pytest.mark.parametrize(
    "declare",
    [
        lambda sellers, column: cm.Market(sellers, BASE + terms.Losses(column)),
        lambda sellers, column: cm.Market(sellers, BASE + terms.Fairness("minimax", column)),
        lambda sellers, column: cm.Market(sellers, BASE + cm.Spread(reference=column / 21)),
        lambda sellers, column: cm.Market(sellers, BASE, [cm.GroupShare(column > 3, {True: 0.5})]),
        lambda sellers, column: cm.Market(sellers, BASE, [cm.MaxEpsilon(column)]),
    ],
)
def test_pieces_with_sellers_in_another_order_are_refused(declare):
    sellers = cm.Sellers(patients()["granted"] / 10, prior=cm.Uniform(0, 1))
    column = pd.Series(np.arange(1.0, 7.0), index=NAMES)
    declare(sellers, column)
    for other in (backwards(column), column.reset_index(drop=True)):
        with pytest.raises(DataError, match="not the sellers' ids in their order"):
            declare(sellers, other)
    unnamed = cm.Sellers(patients()["granted"].to_numpy() / 10, prior=cm.Uniform(0, 1))
    declare(unnamed, backwards(column))


def test_buyers_with_sellers_in_another_order_are_refused():
    asks = patients()["granted"] / 10
    limit = pd.Series(np.full(6, 2.0), index=NAMES)

    def buyer(column):
        sellers = cm.Sellers(column, prior=cm.Uniform(0, 1))
        return cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.1)

    assert cm.allocate_together([buyer(asks), buyer(asks / 2)], [cm.MaxEpsilon(2.0)]).gap < 1e-6
    with pytest.raises(ParameterError, match="in the same order"):
        cm.allocate_together([buyer(asks), buyer(backwards(asks))], [cm.MaxEpsilon(2.0)])
    with pytest.raises(DataError, match="MaxEpsilon"):
        cm.allocate_together([buyer(asks)], [cm.MaxEpsilon(backwards(limit))])


def test_moments_are_matched_by_feature_names():
    table = patients()[["age", "bmi"]]
    means = pd.Series([0.1, 0.2], index=["bmi", "age"])
    np.testing.assert_array_equal(terms.Moments(table, means, 0.1).b, [0.2, 0.1])


def test_joint_problems_and_ledgers_match_columns(tmp_path):
    table = patients()
    sellers = cm.Sellers(table["granted"] / 10, prior=cm.Uniform(0, 1))
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    X, y = table[["age", "bmi"]], table["ill"]
    joint = cm.JointMarket(market, X, backwards(y), regularization=0.1)
    np.testing.assert_array_equal(joint.y, y)
    with pytest.raises(DataError, match="labels of X"):
        cm.JointMarket(market, backwards(X), y, regularization=0.1)
    ledger = cm.Ledger.create(tmp_path / "sold.sqlite", delta=1e-6)
    names = pd.Series(NAMES, index=NAMES)
    ledger.sell(names, backwards(table["granted"]), 1.0)
    sold = ledger.sales().set_index("id")["epsilon"]
    assert sold.to_dict() == table["granted"].to_dict()


def test_correlated_reports_match_rows_by_label():
    table = patients()
    reports = pd.Series(np.arange(6.0), index=NAMES)
    np.testing.assert_array_equal(
        cm.datasets.correlate(backwards(reports), table[["age"]], 0),
        cm.datasets.correlate(backwards(reports), table[["age"]].iloc[::-1], 0),
    )


def test_default_labels_are_refused_next_to_other_labels():
    table = patients()
    X, y = table[["age", "bmi"]], table["ill"].to_numpy()
    granted = pd.Series(table["granted"].to_numpy())
    with pytest.raises(DataError, match=r"default .* epsilon\.to_numpy\(\)"):
        ridge().fit(X, y, epsilon=granted)
    shuffled = X.reset_index(drop=True).iloc[::-1]
    with pytest.raises(DataError, match="default"):
        ridge().fit(shuffled, y, epsilon=granted)
    ridge().fit(X, y, epsilon=granted.to_numpy())
    ridge().fit(X.reset_index(drop=True), y, epsilon=granted)


def test_errors_name_labels_that_cannot_be_matched():
    ask = pd.Series([1.0, 2.0], index=["a", "b"])
    with pytest.raises(DataError, match="only one of them has the label 'a'"):
        aligned(ask=ask, site=ask.set_axis(["b", "c"]))
    with pytest.raises(DataError, match="only one of them has the label 'c'"):
        aligned(ask=ask, site=pd.Series([1, 2, 3], index=list("abc")))
    twice = ask.set_axis(["a", "a"])
    for pair in ((ask, twice), (twice, twice)):
        with pytest.raises(DataError, match="'a' belongs to more than one row"):
            aligned(ask=pair[0], site=pair[1])
    with pytest.raises(DataError, match="'a' belongs to more than one row of sensitiv"):
        cm.Sellers(twice, cm.Uniform(0, 3))
    with pytest.raises(DataError, match="y has none; give it labels"):
        aligned(ask=ask, site=backwards(ask), y=[1, 2])
    assert aligned(ask=ask, site=ask, y=[1, 2])[2] == [1, 2]
    assert aligned(ask=ask, level=0.5, none=None)[1:] == (0.5, None)
