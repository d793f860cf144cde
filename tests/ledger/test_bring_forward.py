"""An account that takes over earlier charges is the account that made them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.errors import BudgetExceededError, ParameterError
from convexmarket.privacy import Guarantee, PrivacyAccountant

BUDGET = [0.0, 0.3, 1.0, 7.0]


def guarantee(epsilon, delta=0.0):
    return Guarantee(np.asarray(epsilon, dtype=float), delta, "a release", "tight", ())


@given(
    releases=st.lists(
        st.tuples(
            st.lists(st.sampled_from([0.0, 1e-3, 0.01, 0.1]), min_size=4, max_size=4),
            st.sampled_from([0.0, 1e-8]),
        ),
        max_size=12,
    ),
    composition=st.sampled_from(["basic", "advanced"]),
)
def test_charges_brought_forward_are_those_that_were_made(releases, composition):
    made = PrivacyAccountant(BUDGET, 1e-6, composition=composition)
    rows, epsilons, deltas = [], [], []
    for shares, delta in releases:
        epsilon = np.array(shares) * BUDGET
        if not epsilon.any():
            delta = 0.0  # a delta of no row is refused
        try:
            made.charge(guarantee(epsilon, delta))
        except BudgetExceededError:
            continue
        used = np.flatnonzero(epsilon)
        rows.extend(used)
        epsilons.extend(epsilon[used])
        deltas.extend([delta] * used.size)
    taken_over = PrivacyAccountant(BUDGET, 1e-6, composition=composition)
    taken_over.bring_forward(rows, epsilons, deltas)
    for name in ("spent", "spent_delta", "remaining", "budget"):
        assert np.array_equal(getattr(taken_over, name), getattr(made, name))


def test_what_exceeds_a_budget_counts_all_the_same():
    account = PrivacyAccountant([1.0, 1.0])
    account.bring_forward([0], [3.0], [0.0])
    assert account.remaining.tolist() == [0.0, 1.0]
    with pytest.raises(BudgetExceededError, match="row 0 has spent 3 of epsilon 1"):
        account.charge(guarantee([0.1, 0.1]))


@pytest.mark.parametrize(
    ("charges", "words"),
    [
        (([0], [1.0, 2.0], [0.0]), "have shapes"),
        (([[0]], [[1.0]], [[0.0]]), "have shapes"),
        (([2], [1.0], [0.0]), "positions from 0 to 1"),
        (([-1], [1.0], [0.0]), "positions from 0 to 1"),
        (([0], [-1.0], [0.0]), "nonnegative"),
        (([0], [np.nan], [0.0]), "nonnegative"),
        (([0], [1.0], [-1e-9]), "nonnegative"),
    ],
)
def test_charges_that_cannot_be_one(charges, words):
    account = PrivacyAccountant([1.0, 1.0])
    with pytest.raises(ParameterError, match=words):
        account.bring_forward(*charges)
    assert account.spent.tolist() == [0.0, 0.0]


def test_refusals_name_the_rows():
    account = PrivacyAccountant([1.0, 1.0], 1e-6, composition="basic", ids=["Ann", "Bob"])
    with pytest.raises(BudgetExceededError, match=r"row 1 \('Bob'\) has spent 0 of epsilon 1"):
        account.charge(guarantee([0.5, 1.5]))
    with pytest.raises(BudgetExceededError, match=r"row 0 \('Ann'\) has spent 0 of 1e-06"):
        account.charge(guarantee([0.5, 0.5], 1e-3))
    with pytest.raises(ParameterError, match="ids names 1 rows, and epsilon has 2"):
        PrivacyAccountant([1.0, 1.0], ids=["Ann"])
