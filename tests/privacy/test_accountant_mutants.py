"""Limits of an account to the last digit, what it brings forward, and what a refusal says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from convexmarket.errors import BudgetExceededError, ParameterError
from convexmarket.privacy import Guarantee, PrivacyAccountant
from convexmarket.privacy.accountant import _epsilon_of_rho, _rho_of_epsilon


def release(epsilon, delta=0.0, name="a release") -> Guarantee:
    return Guarantee(np.asarray(epsilon, dtype=float), delta, name, "tight", ())


# --------------------------------------------------------------------------------- limits


def test_a_budget_may_be_used_up_to_rounding_and_no_further() -> None:
    account = PrivacyAccountant([1.0, 3.0])
    account.check(release([1.0 + 0.9e-12, 3.0]))
    with pytest.raises(BudgetExceededError, match="1 of 2 rows sold: row 0"):
        account.check(release([1.0 + 2e-12, 3.0]))
    account.charge(release([1.0, 1.0]))
    with pytest.raises(BudgetExceededError, match="1 of 2 rows sold: row 0"):
        account.check(release([1e-9, 1.0]))
    account.check(release([0.0, 2.0]))
    assert account.remaining.tolist() == [0.0, 2.0]
    assert account.spent.tolist() == [1.0, 1.0]


def test_the_deltas_of_releases_add_up_to_the_accounts_and_no_further() -> None:
    account = PrivacyAccountant([5.0, 5.0], delta=1e-6)
    account.charge(release([1.0, 0.0], delta=6e-7))
    assert account.spent_delta.tolist() == [6e-7, 0.0]
    with pytest.raises(BudgetExceededError, match="delta of 1 of 2 rows: row 0 has"):
        account.check(release([1.0, 1.0], delta=6e-7))
    account.check(release([0.0, 1.0], delta=6e-7))
    account.check(release([1.0, 1.0], delta=4e-7))
    account.check(release([1.0, 1.0], delta=4e-7 * (1 + 1e-13)))
    with pytest.raises(BudgetExceededError, match="delta"):
        account.check(release([1.0, 1.0], delta=4e-7 * (1 + 1e-9)))


def test_advanced_composition_keeps_half_of_delta_for_itself() -> None:
    account = PrivacyAccountant([5.0, 5.0, 0.0], delta=1e-6, composition="advanced")
    assert account.spent_delta.tolist() == [0.0, 0.0, 0.0]
    account.charge(release([0.1, 0.0, 0.0], delta=3e-7))
    np.testing.assert_allclose(account.spent_delta, [8e-7, 0.0, 0.0])
    account.check(release([0.1, 0.0, 0.0], delta=2e-7))
    with pytest.raises(BudgetExceededError, match="delta"):
        account.check(release([0.1, 0.0, 0.0], delta=2.1e-7))


@pytest.mark.parametrize("budget", [0.01, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("delta", [1e-9, 0.1])
def test_what_may_be_used_under_advanced_composition_solves_its_equation(budget, delta) -> None:
    """rho + 2*sqrt(rho*log(1/delta')) is the budget; so is what was spent once rho is used."""
    account = PrivacyAccountant([budget, np.inf], delta, composition="advanced")
    log = np.log(2.0 / delta)
    rho = brentq(lambda r: r + 2 * np.sqrt(r * log) - budget, 0.0, budget, xtol=1e-300)
    limit = account._limit()
    assert limit[0] == pytest.approx(rho, rel=1e-10)
    assert limit[1] == np.inf
    largest = float(account.remaining[0])
    assert largest * np.tanh(largest / 2) == pytest.approx(rho, rel=1e-9)
    account.charge(release([largest, 1.0]))
    assert account.spent[0] == pytest.approx(budget, rel=1e-9)
    assert account.remaining[0] == pytest.approx(0.0, abs=1e-6)
    assert account.remaining[1] == np.inf


@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 0.03, 1.0, 7.0, 300.0])
def test_the_price_of_an_epsilon_can_be_inverted(epsilon) -> None:
    rho = _rho_of_epsilon(np.array([epsilon, np.inf]))
    assert rho[0] == pytest.approx(epsilon * np.tanh(epsilon / 2))
    back = _epsilon_of_rho(rho)
    assert back[0] == pytest.approx(epsilon, rel=1e-12)
    assert back[0] <= epsilon
    assert back[1] == np.inf


def test_a_check_charges_nothing_and_a_charge_is_written_down() -> None:
    account = PrivacyAccountant([1.0, 2.0])
    account.check(release([0.5, 0.5]))
    assert account.spent.tolist() == [0.0, 0.0]
    assert account.releases == ()
    account.charge(release([0.25, 0.5], name="first"))
    account.charge(release([0.5], name="second"), rows=[1])
    assert account.releases == (("first", 0.5, 0.0), ("second", 0.5, 0.0))
    assert account.spent.tolist() == [0.25, 1.0]
    with pytest.raises(BudgetExceededError):
        account.charge(release([1.0, 0.1]))
    assert account.spent.tolist() == [0.25, 1.0]
    assert len(account.releases) == 2


@pytest.mark.parametrize("rows", [[0, 0], [0, 3], [-1, 1], [0.0, 1.0], [0, 1, 2], [[0, 1]]])
def test_rows_are_different_positions_of_the_account(rows) -> None:
    account = PrivacyAccountant([1.0, 1.0, 1.0])
    account.check(release([0.5, 0.5]), rows=[2, 0])
    with pytest.raises(ParameterError, match="rows must"):
        account.check(release([0.5, 0.5]), rows=rows)
    with pytest.raises(ParameterError, match="covers 2 rows, but the account has 3"):
        account.check(release([0.5, 0.5]))


# -------------------------------------------------------------------------- brought forward


@pytest.mark.parametrize("composition", ["basic", "advanced"])
def test_what_is_brought_forward_is_what_would_have_been_charged(composition) -> None:
    one, other = (PrivacyAccountant([3.0, 3.0, 3.0], 1e-5, composition=composition) for _ in "ab")
    one.charge(release([0.3, 0.2], delta=1e-6), rows=[0, 2])
    one.charge(release([0.1], delta=2e-6), rows=[0])
    other.bring_forward([0, 2, 0], [0.3, 0.2, 0.1], [1e-6, 1e-6, 2e-6])
    np.testing.assert_allclose(other.spent, one.spent, rtol=1e-14)
    np.testing.assert_allclose(other.spent_delta, one.spent_delta, rtol=1e-14)
    np.testing.assert_allclose(other.remaining, one.remaining, rtol=1e-14)
    other.bring_forward([], [], [])
    np.testing.assert_allclose(other.spent, one.spent, rtol=1e-14)


def test_facts_count_where_they_exceed_a_budget() -> None:
    account = PrivacyAccountant([1.0, 1.0])
    account.bring_forward([1, 1], [0.8, 0.7], [0.0, 0.0])
    assert account.spent.tolist() == [0.0, 1.5]
    assert account.remaining.tolist() == [1.0, 0.0]
    with pytest.raises(BudgetExceededError):
        account.check(release([1e-6]), rows=[1])


@pytest.mark.parametrize(
    ("rows", "epsilon", "delta", "words"),
    [
        ([0], [0.1, 0.2], [0.0, 0.0], "shapes"),
        ([0, 1], [0.1, 0.2], [0.0], "shapes"),
        ([[0, 1]], [[0.1, 0.2]], [[0.0, 0.0]], "shapes"),
        ([2], [0.1], [0.0], "positions from 0 to 1"),
        ([-1], [0.1], [0.0], "positions from 0 to 1"),
        ([0, 1], [0.1, -0.1], [0.0, 0.0], "nonnegative"),
        ([0, 1], [0.1, 0.1], [0.0, -1e-9], "nonnegative"),
    ],
)
def test_what_cannot_be_brought_forward_is_refused(rows, epsilon, delta, words) -> None:
    account = PrivacyAccountant([1.0, 1.0])
    with pytest.raises(ParameterError, match=words):
        account.bring_forward(rows, epsilon, delta)
    assert account.spent.tolist() == [0.0, 0.0]


def test_a_refusal_calls_the_rows_by_their_ids() -> None:
    account = PrivacyAccountant([1.0, 1.0], 1e-6, ids=["ann", "bob"])
    with pytest.raises(BudgetExceededError, match=r"row 1 \('bob'\) has spent 0 of epsilon 1"):
        account.check(release([0.5, 1.5]))
    with pytest.raises(BudgetExceededError, match=r"row 0 \('ann'\) has spent 0 of 1e-06"):
        account.check(release([0.5, 0.5], delta=1e-3))
    for ids in (["ann"], ["ann", "bob", "eve"]):
        with pytest.raises(ParameterError, match=f"ids names {len(ids)} rows, and epsilon has 2"):
            PrivacyAccountant([1.0, 1.0], ids=ids)


def test_rows_that_are_not_used_are_not_asked_for_room() -> None:
    """What was brought forward may exceed a budget; a release that leaves those rows out may go."""
    account = PrivacyAccountant([1.0, 1.0], 1e-6)
    account.bring_forward([1, 1, 0], [0.8, 0.7, 0.0], [1e-6, 1e-6, 0.0])
    assert account.spent.tolist() == [0.0, 1.5]
    account.charge(release([1.0, 0.0], delta=1e-6))
    account.charge(release([0.0, 0.0]))
    assert account.spent.tolist() == [1.0, 1.5]
    assert account.spent_delta.tolist() == [1e-6, 2e-6]


@pytest.mark.parametrize("delta", [1.0, -0.1, np.nan])
def test_a_release_has_a_delta_below_one(delta) -> None:
    account = PrivacyAccountant([1.0], 0.5)
    with pytest.raises(ParameterError, match="delta must be at least 0 and below 1"):
        account.charge(release([0.5], delta=delta))
    assert account.spent.tolist() == [0.0]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_row_without_a_limit_is_no_cause_for_warnings() -> None:
    account = PrivacyAccountant([np.inf, 1.0], 1e-6, composition="advanced")
    account.charge(release([2.0, 0.01]))
    assert account.remaining[0] == np.inf
