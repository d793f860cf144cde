"""Test accounts as context managers: automatic charges, the identity of rows, and budgets."""

from __future__ import annotations

import contextvars
import threading

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.errors import (
    BudgetExceededError,
    ParameterError,
    SellersError,
    WeakGuaranteeWarning,
)
from convexmarket.privacy import PrivacyAccountant, RowAccount, account, reserve
from convexmarket.privacy.active import names_of
from tests.privacy.builders import guarantee

NAMES = ["Ann", "Bob", "Eve", "Ida"]


def table(rows=4, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.random((rows, 1)), columns=["age"], index=NAMES[:rows])
    return X, rng.random(rows)


def ridge(**options):
    return cm.PersonalizedRidge(1.0, feature_range=(0.0, 1.0), target_range=(0.0, 1.0), **options)


def charge(epsilon, names=None, delta=0.0, **options):
    reserve(
        guarantee(epsilon, delta), names=None if names is None else pd.Index(names), **options
    )()


@pytest.fixture
def counted():
    """Open an account with an infinite budget, which records the charges of a test."""
    with account(budget=np.inf) as opened:
        yield opened


# ------------------------------------------------------------------------------- counting


def test_fits_without_an_accountant_are_counted_row_by_row(counted) -> None:
    X, y = table()
    first = ridge().fit(X, y, epsilon=[0.1, 0.2, 0.3, 0.4]).epsilon_
    second = ridge().fit(X.iloc[[3, 0]], y[:2], epsilon=[0.5, 1.0]).epsilon_
    ann, bob, eve, ida = first + np.array([second[1], 0.0, 0.0, second[0]])
    assert counted.spent.to_dict() == {"Ann": ann, "Bob": bob, "Eve": eve, "Ida": ida}
    assert 1.05 < ann <= 1.1
    assert counted.spent_unnamed == 0.0
    assert [largest for _, largest, _ in counted.releases] == [first[3], second[1]]


def test_the_total_of_the_process_includes_fits_without_an_open_account() -> None:
    whole = account()
    n_releases, spent = len(whole.releases), whole.spent_unnamed
    X, y = table()
    model = ridge().fit(X.to_numpy(), y, epsilon=0.25)
    assert np.all(np.isinf(whole.budget))
    assert len(whole.releases) == n_releases + 1
    assert whole.spent_unnamed == spent + model.epsilon_.max()
    assert repr(whole).startswith("<RowAccount of ")


def test_the_privacy_loss_of_a_leak_is_unbounded(counted) -> None:
    X, y = table()
    with pytest.warns(cm.PrivacyLeakWarning):
        cm.PersonalizedRidge(1.0, feature_range=None, target_range=(0.0, 1.0)).fit(
            X, y, epsilon=0.25
        )
    assert np.isinf(counted.spent).all()
    with (
        account(budget=5.0),
        pytest.warns(cm.PrivacyLeakWarning),
        pytest.raises(ParameterError, match="cannot be charged to an account with a budget"),
    ):
        cm.PersonalizedRidge(1.0, feature_range=None, target_range=(0.0, 1.0)).fit(
            X, y, epsilon=0.25
        )


# ------------------------------------------------------------------------- identity of rows


def test_a_charge_of_unnamed_rows_counts_for_every_row(counted) -> None:
    charge([0.5, 0.25], ["Ann", "Bob"])
    charge([0.1, 0.4])
    charge([0.5], ["Eve"])
    assert counted.spent.to_dict() == pytest.approx({"Ann": 0.9, "Bob": 0.65, "Eve": 0.9})
    assert counted.spent_unnamed == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (pd.DataFrame([[1.0], [2.0]], index=["Ann", "Bob"]), True),
        (pd.DataFrame([[1.0], [2.0]], index=[5, 7]), True),
        (pd.DataFrame(np.zeros((4, 1))).iloc[[3, 0, 1]], True),
        (pd.DataFrame([[1.0], [2.0]]).iloc[[1]], False),
        (pd.DataFrame([[1.0], [2.0]]), False),
        (pd.DataFrame([[1.0], [2.0]]).iloc[[1, 0]], False),
        (pd.DataFrame([[1.0], [2.0]], index=["1", 1]), False),
        (pd.DataFrame([[1.0], [2.0]], index=["Zo\u00eb", "Zoe\u0308"]), False),
        (pd.DataFrame([[1.0], [2.0]], index=[("Ann", 1), ("Bob", 1)]), False),
        (pd.DataFrame([[1.0], [2.0]], index=["Ann ", "Bob"]), False),
        (pd.DataFrame([[1.0], [2.0]], index=["Ann", "Ann"]), False),
        (np.array([[1.0], [2.0]]), False),
        ([[1.0], [2.0]], False),
    ],
)
def test_rows_are_named_by_an_index_with_unique_labels(rows, named) -> None:
    names = names_of(rows)
    assert (names is not None) == named
    if named:
        assert names.tolist() == [str(name) for name in rows.index]


# ---------------------------------------------------------------------------------- budgets


def test_a_budget_refuses_the_fit_that_would_exceed_it_and_charges_nothing(counted) -> None:
    X, y = table()
    with account(budget=1.0) as clinic:
        ridge().fit(X[:2], y[:2], epsilon=0.75)
        ridge().fit(X[2:], y[2:], epsilon=0.75)
        before = clinic.spent.to_dict()
        with pytest.raises(BudgetExceededError, match=r"row 'Ida' has spent 0\.7\d+ of epsilon 1"):
            ridge().fit(X[3:], y[3:], epsilon=0.75)
        with pytest.raises(BudgetExceededError, match="row 'Ann'"):
            ridge().fit(X.to_numpy(), y, epsilon=0.75)
        assert clinic.spent.to_dict() == before
        assert counted.spent.to_dict() == before
    ridge().fit(X[3:], y[3:], epsilon=0.75)
    assert clinic.spent.to_dict() == before
    with clinic, pytest.raises(BudgetExceededError, match="'Ida'"):
        ridge().fit(X[3:], y[3:], epsilon=0.75)


def test_budgets_can_be_given_by_name() -> None:
    sold = pd.Series({"Ann": 1.0, "Bob": 0.5})
    with account(budget=sold) as opened:
        charge([0.5, 0.5], ["Bob", "Ann"])
        for epsilon, names in (([0.1], ["Bob"]), ([0.1], ["Eve"]), ([0.1], None)):
            with pytest.raises(BudgetExceededError):
                charge(epsilon, names)
        charge([0.5], ["Ann"])
        assert opened.spent.to_dict() == {"Ann": 1.0, "Bob": 0.5}


def test_nested_accounts_are_all_charged_or_none() -> None:
    with account(budget=1.0) as outer, account(budget=10.0) as inner:
        charge([0.75])
        with pytest.raises(BudgetExceededError):
            charge([0.75])
        assert account() is inner
        assert outer.spent_unnamed == inner.spent_unnamed == 0.75
        with outer:  # an account that is opened twice is charged only once
            charge([0.25])
        assert outer.spent_unnamed == inner.spent_unnamed == 1.0
    assert account() is not inner


def test_a_budget_holds_for_all_threads() -> None:
    accepted = []

    def work() -> None:
        for _ in range(50):
            try:
                charge([2.0**-6, 2.0**-7], ["Ann", "Bob"])
            except BudgetExceededError:
                return
            accepted.append(1)

    with account(budget=1.0) as opened:
        contexts = [contextvars.copy_context() for _ in range(8)]
        threads = [threading.Thread(target=context.run, args=(work,)) for context in contexts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(accepted) == len(opened.releases) == 64
    assert opened.spent.to_dict() == {"Ann": 1.0, "Bob": 0.5}


@pytest.mark.parametrize(
    ("budget", "delta", "words"),
    [
        ([1.0, 2.0], 0.0, "a Series indexed by the names"),
        ("1", 0.0, "one number for all rows"),
        (-1.0, 0.0, "one budget >= 0"),
        (np.nan, 0.0, "one budget >= 0"),
        (1.0, 1.0, "delta must be"),
        (pd.Series([1.0, 2.0], index=["Ann", "Ann"]), 0.0, "ids must be distinct"),
    ],
)
def test_an_invalid_budget_is_refused(budget, delta, words) -> None:
    with pytest.raises((ParameterError, SellersError), match=words):
        account(budget, delta)


def test_row_positions_require_an_accountant() -> None:
    with pytest.raises(ParameterError, match="also pass accountant="):
        reserve(guarantee([0.1]), rows=[0])
    with pytest.raises(ParameterError, match="accountant must be a PrivacyAccountant"):
        reserve(guarantee([0.1]), 1.0)
    assert isinstance(account(budget=1.0), RowAccount)


# --------------------------------------------------------------------- releases without protection


def test_a_weak_guarantee_raises_a_warning(counted) -> None:
    with pytest.warns(WeakGuaranteeWarning, match=r"epsilon = 16, a weak.*probability close to 1"):
        charge([0.1, 16.0])


# -------------------------------------------------------------------------- unopened accounts


def test_a_release_gives_a_warning_about_an_unopened_account() -> None:
    X, y = table()
    forgotten = account(budget=1.0)
    with pytest.warns(cm.PrivacyLeakWarning, match="never opened.*with account"):
        ridge().fit(X, y, epsilon=0.5)
    assert forgotten.releases == ()


def test_a_thread_outside_the_context_of_an_account_gives_a_warning() -> None:
    caught = []

    def work() -> None:
        with pytest.warns(cm.PrivacyLeakWarning, match="copy_context"):
            charge([0.5], ["Ann"])
        caught.append(account())

    with account(budget=1.0) as opened:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert opened.releases == ()
    assert caught == [account()]
    assert account().spent["Ann"] >= 0.5


def test_names_of_some_rows_are_compared_with_the_ids_of_these_rows():
    sold = PrivacyAccountant([1.0, 1.0, 1.0], ids=["ann", "ben", "cleo"])
    reserve(guarantee([0.5]), sold, [2], names=pd.Index(["cleo"]))()
    assert sold.spent.tolist() == [0.0, 0.0, 0.5]
    with pytest.raises(ParameterError, match="not the ids of the account in their order"):
        reserve(guarantee([0.5]), sold, [0], names=pd.Index(["cleo"]))
