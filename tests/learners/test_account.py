"""Test that fits are charged before noise is drawn, and that refused fits do not read rows."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, DataError, ParameterError, SolverError
from convexmarket.privacy import PrivacyAccountant, Simulation
from tests.learners.builders import output_ridge

X = np.array([[0.6, 0.8], [0.8, 0.6], [0.3, 0.2], [0.9, 0.1]])
Y = np.array([1, 1, -1, -1])
SOLD = np.array([10.0, 5.0, 5.0, 0.0])
LEARNERS = {
    "logistic": partial(cm.PrivateLogisticRegression, 0.1),
    "without a second noise": partial(cm.PrivateLogisticRegression, 0.1, solver_epsilon=None),
    "ridge": cm.PersonalizedRidge,
    "statistics": partial(cm.PersonalizedRidge, perturbation="statistics"),
    "output": output_ridge,
    "output, equal": partial(output_ridge, weighting="equal"),
    "output in floating point": partial(output_ridge, rounding=None),
}
every_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)


class Sealed:
    """Table that raises an error if its values are read."""

    def __init__(self, *shape):
        self.shape = shape

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("the data were read")

    __iter__ = __getitem__ = __array__


class Watchful:
    """Account that records its calls and the state of the noise generator at each call."""

    def __init__(self, rng):
        self.rng, self.calls = rng, []

    def _note(self, name, guarantee, rows=None):
        self.calls.append((name, guarantee, self.rng.bit_generator.state))

    def check(self, *terms):
        self._note("check", *terms)

    def charge(self, *terms):
        self._note("charge", *terms)


@every_learner
def test_the_guarantee_is_charged_once_and_in_full(make):
    account = PrivacyAccountant(np.full(6, 50.0))
    terms = {"epsilon": SOLD, "random_state": Simulation(0)}
    model = make().fit(X, Y, accountant=account, rows=[5, 0, 3, 2], **terms)
    expected = np.zeros(6)
    expected[[5, 0, 3, 2]] = model.epsilon_
    assert np.array_equal(account.spent, expected)
    assert [release[0] for release in account.releases] == [model.guarantee_.mechanism]
    assert np.array_equal(make().fit(X, Y, **terms).coef_, model.coef_)


@every_learner
def test_no_row_is_read_before_its_budget_is_checked(make):
    account = PrivacyAccountant([9.0, 9.0, 9.0, 0.0])
    sealed = {"X": Sealed(4, 2), "y": Sealed(4), "accountant": account}
    with pytest.raises(BudgetExceededError, match="row 0"):
        make().fit(**sealed, epsilon=[20.0, 20.0, 20.0, 0.0])
    for payer in (account, None):
        with pytest.raises(AssertionError, match="were read"):  # this budget suffices
            make().fit(**sealed | {"accountant": payer}, epsilon=SOLD / 2)
    assert np.array_equal(account.spent, np.zeros(4))


def test_a_refused_fit_changes_neither_model_nor_account():
    rng = np.random.default_rng(0)
    account = PrivacyAccountant(np.full(4, 15.0))
    terms = {"epsilon": SOLD, "accountant": account, "random_state": Simulation(rng)}
    model = cm.PrivateLogisticRegression(0.1).fit(X, Y, **terms)
    before, spent, state = dict(vars(model)), account.spent, rng.bit_generator.state
    with pytest.raises(BudgetExceededError, match="row 0 has spent"):
        model.fit(X, Y, **terms)
    assert all(vars(model)[name] is value for name, value in before.items())
    assert np.array_equal(account.spent, spent)
    assert rng.bit_generator.state == state


@every_learner
def test_the_account_is_charged_before_the_noise_is_drawn(make):
    rng = np.random.default_rng(0)
    account, state = Watchful(rng), rng.bit_generator.state
    terms = {"accountant": account, "random_state": Simulation(rng)}
    model = make().fit(X, Y, epsilon=SOLD, **terms)
    assert [name for name, *_ in account.calls] == ["check", "charge"]
    assert all(guarantee is model.guarantee_ for _, guarantee, _ in account.calls)
    assert all(before == state for *_, before in account.calls)
    assert rng.bit_generator.state != state


@every_learner
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"X": 2.0 * X}, DataError),
        ({"y": [1, 1, -1, -1, 1]}, DataError),
        ({"y": [1, 3, -1, -1]}, DataError),
        ({"X": np.where(X > 0.7, np.nan, X)}, DataError),
        ({"epsilon": [0.5, 0.5]}, ParameterError),
        ({"random_state": "secret"}, ParameterError),
    ],
)
def test_refused_arguments_are_not_charged(make, change, error):
    account = PrivacyAccountant(np.full(4, 50.0))
    with pytest.raises(error):
        make().fit(**{"X": X, "y": Y, "epsilon": SOLD} | change, accountant=account)
    assert account.releases == ()


def test_a_failure_after_the_charge_stays_charged(monkeypatch):
    account = PrivacyAccountant(np.full(4, 50.0))
    model = cm.PrivateLogisticRegression(0.1)
    monkeypatch.setattr(
        "convexmarket.learners.perturbed.minimise", lambda objective, *_: objective.shift + 1.0
    )
    with pytest.raises(SolverError, match="nothing is released"):
        model.fit(X, Y, epsilon=SOLD, accountant=account, random_state=Simulation(0))
    assert not hasattr(model, "coef_")
    assert 9.0 < account.spent[0] <= 10.0
    assert account.spent[3] == 0.0


@every_learner
def test_a_domain_read_from_private_rows_cannot_be_charged(make):
    account = PrivacyAccountant(np.full(4, 50.0))
    for leak in {"data_norm", "classes", "feature_range", "target_range"} & set(
        make().get_params()
    ):
        model = make().set_params(**{leak: None})
        with pytest.raises(ParameterError, match=f"{leak}=None.*public"):
            model.fit(Sealed(4, 2), Sealed(4), epsilon=5.0, accountant=account)
    assert account.releases == ()


@every_learner
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"rows": [0, 1, 2, 3]}, ParameterError, "pass accountant="),
        ({"accountant": "mine"}, ParameterError, "PrivacyAccountant"),
        ({"accountant": PrivacyAccountant([9.0])}, ParameterError, "pass rows="),
        (
            {"accountant": PrivacyAccountant(np.full(4, 9.0)), "rows": [0, 0, 1, 2]},
            ParameterError,
            "distinct integers",
        ),
        (
            {"accountant": PrivacyAccountant(np.full(4, 9.0)), "epsilon": np.inf},
            BudgetExceededError,
            "needs inf",
        ),
    ],
)
def test_an_invalid_account_is_refused_before_the_data_are_read(make, change, error, words):
    with pytest.raises(error, match=words):
        make().fit(Sealed(4, 2), Sealed(4), **{"epsilon": 9.0} | change)


def test_a_fit_without_noise_needs_an_infinite_budget():
    account = PrivacyAccountant(np.full(4, np.inf))
    fitted = output_ridge(epsilon=np.inf).fit(X, Y, accountant=account)
    assert np.array_equal(fitted.coef_, output_ridge(epsilon=np.inf).fit(X, Y).coef_)


@every_learner
def test_rows_with_epsilon_zero_are_never_read(make):
    rng = np.random.default_rng(5)
    rows, epsilon = rng.uniform(0.0, 0.5, (60, 3)), rng.uniform(2.0, 5.0, 60)
    labels, unused = np.where(rows[:, 0] > 0.25, 1, -1), np.arange(60) % 3 == 0
    epsilon[unused] = 0.0

    def fit(X, y, granted=epsilon):
        return make().fit(X, y, epsilon=granted, random_state=Simulation(0))

    model, alone = fit(rows, labels), fit(rows[~unused], labels[~unused], epsilon[~unused])
    assert np.array_equal(model.coef_, alone.coef_)
    assert np.array_equal(model.epsilon_[~unused], alone.epsilon_)
    assert np.all(model.epsilon_[unused] == 0)
    rows[unused], other = np.nan, labels.astype(object)
    rows[0], other[unused] = 1e300, "stranger"
    for X in (rows, rows.tolist(), pd.DataFrame(rows, columns=["a", "b", "c"])):
        after = fit(X, np.where(unused, 5, labels))
        assert np.array_equal(after.coef_, model.coef_)
    assert list(after.feature_names_in_) == ["a", "b", "c"]
    assert np.array_equal(fit(rows, list(other)).coef_, model.coef_)
