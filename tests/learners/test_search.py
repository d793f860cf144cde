"""Test that the private choice among trained candidates satisfies the guarantees."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, ParameterError
from convexmarket.learners import PrivateSearch
from convexmarket.privacy import PrivacyAccountant

rng = np.random.default_rng(0)
X = rng.uniform(-0.7, 0.7, (300, 2))
Y = np.where(X[:, 0] > 0, 1, -1)
GRID = {"regularization": [0.05, 0.2, 5.0]}
PUBLIC = (X[200:], Y[200:])


def search(**options):
    return PrivateSearch(cm.PrivateLogisticRegression(), GRID, validation=PUBLIC, **options)


@pytest.mark.parametrize("gamma", [0.5, 0.1, 1e-3, 1e-6])
def test_the_best_of_random_trials_costs_twice_the_epsilon_of_one_trial(gamma):
    """Compute the privacy losses of worst-case pairs from the probabilities of the results."""

    def published(law):
        # probability that one trial is at least as good as each result
        above = np.append(np.cumsum(law[::-1])[::-1], 0.0)
        # distribution of the best trial, by the generating function of the number of trials
        pgf = np.log(gamma + (1.0 - gamma) * above) / np.log(gamma)
        return pgf[1:] - pgf[:-1]

    worst, epsilon = 0.0, 1.0
    for share in 10.0 ** -np.linspace(0.05, 9.0, 200):
        for split in (0.5, 1e-3):
            single = np.array([1.0 - share, share * split, share * (1.0 - split)])
            other = single * [1.0, np.exp(-epsilon), np.exp(epsilon)]
            other[0] = 1.0 - other[1:].sum()
            if not np.exp(-epsilon) <= other[0] / single[0] <= np.exp(epsilon):
                continue
            ratios = np.log(published(single) / published(other))
            worst = max(worst, float(np.abs(ratios).max()))
    assert worst <= 2.0 * epsilon + 1e-9
    assert worst > (1.9 if gamma <= 1e-6 else 1.0) * epsilon


@pytest.mark.parametrize(("charge", "share"), [("trials", 1 / 2), ("sum", 1 / 3)])
def test_the_search_is_charged_once_and_each_fit_keeps_its_share(charge, share):
    epsilon = rng.uniform(2.0, 6.0, 200)
    account = PrivacyAccountant(epsilon)
    result = search(charge=charge).fit(X[:200], Y[:200], epsilon=epsilon, accountant=account)
    np.testing.assert_array_equal(account.spent, epsilon)
    np.testing.assert_array_equal(result.epsilon_, epsilon)
    inner = result.best_estimator_.guarantee_.epsilon
    assert np.all(inner <= share * epsilon)
    assert inner.max() > 0.9 * share * epsilon.max()
    assert result.best_params_["regularization"] in GRID["regularization"]
    assert (result.scores_ is None) == (charge == "trials")
    assert result.score(*PUBLIC) > 0.5
    assert result.predict(X).shape == (300,)
    mu, sigma = cm.PrivateLogisticRegression().risk(2)
    assert result.risk(2) == (mu, pytest.approx(sigma / share))
    with pytest.raises(BudgetExceededError):
        result.fit(X[:200], Y[:200], epsilon=epsilon, accountant=account)


@pytest.mark.parametrize(
    "options", [{"charge": "free"}, {"trials": 1.0}, {"grid": {}}, {"grid": {"regularization": []}}]
)
def test_invalid_searches_are_refused_before_any_charge(options):
    account = PrivacyAccountant(np.full(200, 1.0))
    with pytest.raises(ParameterError, match=r"charge|trials|grid"):
        search().set_params(**options).fit(X[:200], Y[:200], epsilon=1.0, accountant=account)
    assert not np.any(account.spent)
    with pytest.raises(ParameterError, match="regularization"):
        search(charge="sum").set_params(grid={"regularization": [1e-9]}).fit(
            X[:200], Y[:200], epsilon=1.0, accountant=account
        )
    assert not np.any(account.spent)
