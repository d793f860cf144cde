"""A fit is charged before its noise is drawn, and asks before it looks at a row."""

from __future__ import annotations

import numpy as np
import pytest

from convexmarket.errors import BudgetExceededError, DataError, ParameterError, SolverError
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.privacy import PrivacyAccountant, Simulation

X = np.array([[0.6, 0.8], [0.8, 0.6], [-0.6, 0.2], [-0.9, 0.1]])
Y = np.array([1, 1, -1, -1])
SOLD = np.array([10.0, 5.0, 5.0, 0.0])


class Sealed:
    """Rows that can be counted, and break when anything else is asked of them."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("the data were looked at")

    __iter__ = __getitem__ = __array__


class Watchful(PrivacyAccountant):
    """Notes how far the source of noise has got when it is charged."""

    def __init__(self, epsilon, rng: np.random.Generator) -> None:
        super().__init__(epsilon)
        self.rng, self.states = rng, []

    def charge(self, guarantee, rows=None) -> None:
        self.states.append(self.rng.bit_generator.state)
        super().charge(guarantee, rows)


@pytest.mark.parametrize("solver_epsilon", [None, 0.5])
def test_what_is_charged_is_the_guarantee(solver_epsilon) -> None:
    account = PrivacyAccountant(np.full(6, 50.0))
    model = PrivateLogisticRegression(0.1, solver_epsilon=solver_epsilon)
    model.fit(X, Y, epsilon=SOLD, accountant=account, rows=[5, 0, 3, 2], random_state=Simulation(0))
    expected = np.zeros(6)
    expected[[5, 0, 3, 2]] = model.epsilon_
    assert np.array_equal(account.spent, expected)
    assert account.releases[0][0] == model.guarantee_.mechanism
    alone = PrivateLogisticRegression(0.1, solver_epsilon=solver_epsilon)
    assert np.array_equal(
        alone.fit(X, Y, epsilon=SOLD, random_state=Simulation(0)).coef_, model.coef_
    )


def test_no_row_is_looked_at_before_it_can_pay() -> None:
    account = PrivacyAccountant([9.0, 9.0, 9.0, 0.0])
    model = PrivateLogisticRegression(0.1)
    sealed = {"X": Sealed(4, 2), "y": Sealed(4), "accountant": account}
    with pytest.raises(BudgetExceededError, match="row 0"):
        model.fit(**sealed, epsilon=SOLD, random_state=Simulation(0))
    with pytest.raises(AssertionError, match="looked at"):  # now it may look
        model.fit(**sealed, epsilon=SOLD / 2, random_state=Simulation(0))
    assert np.array_equal(account.spent, np.zeros(4))
    with pytest.raises(AssertionError, match="looked at"):  # nobody to ask
        model.fit(sealed["X"], sealed["y"], epsilon=SOLD / 2, random_state=Simulation(0))


def test_a_refused_fit_leaves_everything_as_it_was() -> None:
    rng = np.random.default_rng(0)
    account = PrivacyAccountant(np.full(4, 15.0))
    model = PrivateLogisticRegression(0.1)
    model.fit(X, Y, epsilon=SOLD, accountant=account, random_state=Simulation(rng))
    before, spent, state = dict(vars(model)), account.spent, rng.bit_generator.state
    with pytest.raises(BudgetExceededError, match="row 0 has spent"):
        model.fit(X, Y, epsilon=SOLD, accountant=account, random_state=Simulation(rng))
    assert all(vars(model)[name] is value for name, value in before.items())
    assert np.array_equal(account.spent, spent)
    assert rng.bit_generator.state == state


def test_the_charge_comes_before_the_noise() -> None:
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    account = Watchful(np.full(4, 50.0), rng)
    model = PrivateLogisticRegression(0.1, solver_epsilon=0.1)
    model.fit(X, Y, epsilon=SOLD, accountant=account, random_state=Simulation(rng))
    assert account.states == [state]
    assert rng.bit_generator.state != state


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"X": 2.0 * X}, DataError),
        ({"y": [1, 1, -1, -1, 1]}, DataError),
        ({"y": [1, 3, -1, -1]}, DataError),
        ({"X": np.where(X > 0.7, np.nan, X)}, DataError),
        ({"epsilon": [0.5, 0.5]}, ParameterError),
    ],
)
def test_data_that_are_refused_cost_nothing(change, error) -> None:
    account = PrivacyAccountant(np.full(4, 50.0))
    arguments = {"X": X, "y": Y, "epsilon": SOLD} | change
    with pytest.raises(error):
        PrivateLogisticRegression(0.1).fit(**arguments, accountant=account)
    assert account.releases == ()


def test_a_bad_source_of_noise_costs_nothing() -> None:
    account = PrivacyAccountant(np.full(4, 50.0))
    with pytest.raises(ParameterError, match="random_state"):
        PrivateLogisticRegression().fit(
            X, Y, epsilon=9.0, accountant=account, random_state="secret"
        )
    assert account.releases == ()


def test_a_fit_that_fails_after_the_charge_stays_charged(monkeypatch) -> None:
    account = PrivacyAccountant(np.full(4, 50.0))
    model = PrivateLogisticRegression(0.1)
    monkeypatch.setattr(
        "convexmarket.learners.perturbed.minimise", lambda objective, *_: objective.shift + 1.0
    )
    with pytest.raises(SolverError, match="nothing is released"):
        model.fit(X, Y, epsilon=SOLD, accountant=account, random_state=Simulation(0))
    assert not hasattr(model, "coef_")
    assert 9.0 < account.spent[0] <= 10.0
    assert account.spent[3] == 0.0


@pytest.mark.parametrize("leak", ["data_norm", "classes"])
def test_what_reads_private_data_cannot_be_charged(leak) -> None:
    account = PrivacyAccountant(np.full(4, 50.0))
    model = PrivateLogisticRegression(0.1, **{leak: None})
    with pytest.raises(ParameterError, match=f"{leak}=None.*public"):
        model.fit(Sealed(4, 2), Sealed(4), epsilon=5.0, accountant=account)
    assert account.releases == ()


@pytest.mark.parametrize(
    ("charged", "error", "words"),
    [
        ({"rows": [0, 1, 2, 3]}, ParameterError, "pass accountant="),
        ({"accountant": "mine"}, ParameterError, "PrivacyAccountant"),
        ({"accountant": PrivacyAccountant([9.0])}, ParameterError, "pass rows="),
        (
            {"accountant": PrivacyAccountant(np.full(4, 9.0)), "rows": [0, 0, 1, 2]},
            ParameterError,
            "different positions",
        ),
        (
            {"accountant": PrivacyAccountant(np.full(4, 9.0)), "epsilon": np.inf},
            BudgetExceededError,
            "needs inf",
        ),
    ],
)
def test_a_bad_account_is_named_before_the_data_are_seen(charged, error, words) -> None:
    with pytest.raises(error, match=words):
        PrivateLogisticRegression().fit(Sealed(4, 2), Sealed(4), **{"epsilon": 9.0} | charged)
