"""The account refuses what a row did not sell, whatever was charged before and in which order."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convexmarket.errors import BudgetExceededError, NotSupportedError, ParameterError
from convexmarket.learners import PersonalizedRidge, PrivateLogisticRegression
from convexmarket.privacy import PrivacyAccountant
from tests.privacy.builders import Moment, check_advanced_composition, guarantee

NEAR = 1e-9  # relative; a decision this close to the budget may fall either way


def state(account: PrivacyAccountant):
    arrays = account.spent, account.spent_delta, account.remaining, account.budget
    return [array.tobytes() for array in arrays], account.releases


class Ledger:
    """An independent account: exact sums of epsilons, and compensated sums of moments."""

    def __init__(self, budget, delta, composition) -> None:
        self.budget, self.delta, self.composition = budget, delta, composition
        self.charges: list[list[float]] = [[] for _ in budget]
        self.deltas: list[list[float]] = [[] for _ in budget]

    def sum(self, row: int, *more: float) -> float:
        return float(sum(map(Fraction, [*self.charges[row], *more]), Fraction(0)))

    def moment(self, row: int) -> Moment | None:
        counted = self.composition == "advanced" and self.delta > 0 and self.budget[row] > 0
        return Moment(self.budget[row], self.delta) if counted else None

    def spent(self, row: int) -> float:
        moment = self.moment(row)
        epsilon = math.inf if moment is None else moment.epsilon(self.charges[row])
        return max(0.0, min(self.sum(row), epsilon))  # below 0 the moments promise more than asked

    def ratio(self, row: int, epsilon: float, delta: float) -> float:
        """How much of what may be used would be used; above one is too much."""
        if epsilon == 0:
            return 0.0
        room = self.delta if self.composition == "basic" else self.delta / 2
        deltas = float(sum(map(Fraction, [*self.deltas[row], delta]), Fraction(0)))
        worst = self.sum(row, epsilon) / self.budget[row] if self.budget[row] > 0 else math.inf
        moment = self.moment(row)
        if moment is not None:
            most = moment.order * self.budget[row] - moment.short
            worst = min(worst, moment.of([*self.charges[row], epsilon]) / most)
        return max(worst, deltas / room if room > 0 else (math.inf if deltas > 0 else 0.0))

    def charge(self, row: int, epsilon: float, delta: float) -> None:
        if epsilon > 0:
            self.charges[row].append(epsilon)
            self.deltas[row].append(delta)


@st.composite
def histories(draw):
    """Return budgets, a delta, a composition, and releases that press against the budgets."""
    n_rows = draw(st.integers(1, 5))
    budget = [draw(st.sampled_from([0.0, 1e-6, 0.3, 1.0, 7.0, 500.0])) for _ in range(n_rows)]
    composition = draw(st.sampled_from(["basic", "advanced"]))
    delta = draw(st.sampled_from([1e-9, 1e-3, 0.0]))
    releases = []
    for _ in range(draw(st.integers(1, 25))):
        rows = draw(st.lists(st.integers(0, n_rows - 1), min_size=1, unique=True))
        shares = draw(st.lists(st.sampled_from([0.0, 1e-3, 0.1, 0.4, 1.0]), min_size=5, max_size=5))
        epsilon = [share * draw(st.floats(0.5, 1.0)) for share in shares[: len(rows)]]
        part = draw(st.sampled_from([0.0, 0.0, 0.1, 0.4]))
        releases.append((rows, epsilon, part * delta))
    return budget, delta, composition, releases


@example(([1e-6], 1e-3, "advanced", [([0], [0.0], 0.0)]))
@given(histories())
def test_no_history_of_releases_exceeds_what_was_sold(history) -> None:
    budget, delta, composition, releases = history
    account = PrivacyAccountant(budget, delta, composition=composition)
    ledger = Ledger(budget, delta, composition)
    n_charged = 0
    for rows, shares, release_delta in releases:
        epsilon = [share * budget[row] for share, row in zip(shares, rows, strict=True)]
        release = guarantee(epsilon, release_delta)
        ratio = max(
            ledger.ratio(row, e, release_delta) for row, e in zip(rows, epsilon, strict=True)
        )
        before = state(account)
        if release_delta > 0 and not any(epsilon):
            with pytest.raises(ParameterError, match="epsilon zero in every row"):
                account.charge(release, rows)
            assert state(account) == before
            continue
        refused = False
        try:
            account.check(release, rows)
        except BudgetExceededError:
            refused = True
        assert state(account) == before  # asking costs nothing
        if refused:
            assert ratio > 1 - NEAR
            with pytest.raises(BudgetExceededError, match=r"a release would exceed"):
                account.charge(release, rows)
            assert state(account) == before
            continue
        assert ratio < 1 + NEAR
        account.charge(release, rows)
        n_charged += 1
        for row, e in zip(rows, epsilon, strict=True):
            ledger.charge(row, e, release_delta)
        assert np.all(account.spent <= account.budget * (1 + 1e-11))
        assert np.all(account.spent_delta <= delta * (1 + 1e-11))
    assert len(account.releases) == n_charged
    check_spending(account, ledger)
    check_remaining(account)


def check_spending(account: PrivacyAccountant, ledger: Ledger) -> None:
    """Recompute what was spent from the list of charges."""
    for row in range(len(ledger.charges)):
        # What follows from moments is a difference of numbers of the budget's size.
        near = NEAR * ledger.budget[row]
        assert account.spent[row] == pytest.approx(ledger.spent(row), rel=NEAR, abs=near)
        own = math.fsum(ledger.deltas[row])
        own += 0.0 if account.spent[row] == account._used[row] else ledger.delta / 2
        assert account.spent_delta[row] == pytest.approx(own, rel=1e-12, abs=1e-300)


def check_remaining(account: PrivacyAccountant) -> None:
    """Hold what remains to be chargeable row by row, and a little more not to be."""
    remaining = account.remaining
    assert np.all(remaining >= 0)
    account.check(guarantee(remaining))
    # near zero the moment of a release falls with the square of its epsilon
    little = 1e-9 if account.composition == "basic" else 1e-5
    for row in np.flatnonzero(account.budget > 0):
        more = remaining[row] + little * account.budget[row]
        with pytest.raises(BudgetExceededError, match=f"row {row} has spent"):
            account.check(guarantee(np.eye(account.budget.size)[row] * more))


@pytest.mark.parametrize("composition", ["basic", "advanced"])
@pytest.mark.parametrize("budget", [1e-6, 0.01, 1.0, 30.0, 1e4])
def test_what_remains_can_be_charged_and_nothing_after_it(composition, budget) -> None:
    account = PrivacyAccountant([budget], 1e-6, composition=composition)
    ledger = Ledger([budget], 1e-6, composition)
    for share in (1 / 3, 1 / 3, 1 / 3, 1.0):
        epsilon = share * account.remaining
        account.charge(guarantee(epsilon))
        ledger.charge(0, epsilon[0], 0.0)
    assert account.spent == pytest.approx(account.budget, rel=1e-9)
    assert ledger.spent(0) == pytest.approx(budget, rel=1e-9)
    with pytest.raises(BudgetExceededError, match="row 0 has spent"):
        account.charge(guarantee([1e-3 * budget]))


def test_a_budget_may_be_used_up_to_rounding_and_no_further() -> None:
    account = PrivacyAccountant([1.0, 3.0])
    account.check(guarantee([1.0 + 0.9e-12, 3.0]))
    with pytest.raises(BudgetExceededError, match="1 of 2 rows sold: row 0"):
        account.check(guarantee([1.0 + 2e-12, 3.0]))
    account.charge(guarantee([1.0, 1.0]))
    with pytest.raises(BudgetExceededError, match="1 of 2 rows sold: row 0"):
        account.check(guarantee([1e-9, 1.0]))
    account.check(guarantee([0.0, 2.0]))
    assert account.remaining.tolist() == [0.0, 2.0]
    assert account.spent.tolist() == [1.0, 1.0]


def test_the_deltas_of_releases_add_up_to_the_accounts_and_no_further() -> None:
    account = PrivacyAccountant([5.0, 5.0], delta=1e-6, composition="basic")
    account.charge(guarantee([1.0, 0.0], delta=6e-7))
    assert account.spent_delta.tolist() == [6e-7, 0.0]
    with pytest.raises(BudgetExceededError, match="delta of 1 of 2 rows: row 0 has"):
        account.check(guarantee([1.0, 1.0], delta=6e-7))
    account.check(guarantee([0.0, 1.0], delta=6e-7))
    account.check(guarantee([1.0, 1.0], delta=4e-7))
    account.check(guarantee([1.0, 1.0], delta=4e-7 * (1 + 1e-13)))
    with pytest.raises(BudgetExceededError, match="delta"):
        account.check(guarantee([1.0, 1.0], delta=4e-7 * (1 + 1e-9)))


# --------------------------------------------------------------------- what "advanced" promises


@pytest.mark.parametrize(("budget", "each"), [(0.5, 0.01), (2.0, 0.01), (10.0, 0.1), (10.0, 0.3)])
@pytest.mark.parametrize("delta", [1e-8, 1e-4])
def test_advanced_composition_keeps_its_promise_to_the_worst_mechanism(budget, each, delta) -> None:
    check_advanced_composition(budget, each, delta)


def test_many_small_releases_cost_less_than_their_sum_and_few_no_more() -> None:
    many, few = (PrivacyAccountant([1.0], 1e-6) for _ in range(2))
    for _ in range(400):
        many.charge(guarantee([0.01]))
    assert many.spent[0] < 1.0 < 400 * 0.01
    few.charge(guarantee([0.7]))
    assert few.spent[0] == 0.7
    few.charge(guarantee([0.3]))
    assert few.spent[0] == 1.0
    with pytest.raises(BudgetExceededError):
        few.charge(guarantee([0.01]))


@pytest.mark.parametrize("release_delta", [0.0, 2e-7, 5e-7])
def test_half_of_the_delta_is_kept_for_the_composition(release_delta) -> None:
    account = PrivacyAccountant([1.0, 1.0], 1e-6)
    assert np.array_equal(account.spent_delta, [0.0, 0.0])
    account.charge(guarantee([0.1], release_delta), rows=[1])
    assert account.spent[1] == 0.1  # by itself, and needs no composition
    assert account.spent_delta == pytest.approx([0.0, release_delta])
    account.charge(guarantee([0.1], 5e-7 - release_delta), rows=[1])
    for _ in range(200):
        account.charge(guarantee([0.005]), rows=[1])
    assert account.spent[1] < 1.0 < 0.2 + 200 * 0.005
    assert account.spent_delta == pytest.approx([0.0, 1e-6])
    with pytest.raises(BudgetExceededError, match="would exceed the delta of 1 of 2 rows: row 1"):
        account.charge(guarantee([0.1, 0.1], 1e-9))
    account.charge(guarantee([0.1], 5e-7), rows=[0])


def test_a_release_of_the_accounts_whole_delta_is_told_how_to_be_paid() -> None:
    whole = guarantee([1.0], 1e-6)
    with pytest.raises(BudgetExceededError, match=r"half of which.*unless that is 'basic'"):
        PrivacyAccountant([1.0], 1e-6).charge(whole)
    PrivacyAccountant([1.0], 1e-6, composition="basic").charge(whole)


# ------------------------------------------------------------------------------ one at a time


class Meeting(PrivacyAccountant):
    """An account in which two charges wait for each other before either is written down."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.barrier = threading.Barrier(2)

    def _after(self, *arguments):
        result = super()._after(*arguments)
        with contextlib.suppress(threading.BrokenBarrierError):
            self.barrier.wait(0.2)
        return result


@pytest.mark.parametrize("locked", [True, False])
def test_two_threads_cannot_sell_the_same_epsilon(locked) -> None:
    account = Meeting([1.0])
    if not locked:
        account._lock = contextlib.nullcontext()
    outcomes: list[str] = []

    def work() -> None:
        try:
            account.charge(guarantee([0.75]))
            outcomes.append("charged")
        except BudgetExceededError:
            outcomes.append("refused")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # without its lock the account would say yes twice, so the meeting does put it to the test
    assert sorted(outcomes) == ["charged", "refused" if locked else "charged"]
    assert account.spent[0] == 0.75


def test_many_threads_charge_exactly_the_budget() -> None:
    account = PrivacyAccountant([1.0, 1.0])
    accepted = []

    def work() -> None:
        for _ in range(100):
            with contextlib.suppress(BudgetExceededError):
                account.charge(guarantee([2.0**-7, 2.0**-8]))
                accepted.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == len(account.releases) == 128
    assert np.array_equal(account.spent, [1.0, 0.5])


# --------------------------------------------------------------------------- brought forward


@pytest.mark.parametrize("composition", ["basic", "advanced"])
def test_what_is_brought_forward_is_what_would_have_been_charged(composition) -> None:
    one, other = (PrivacyAccountant([3.0, 3.0, 3.0], 1e-5, composition=composition) for _ in "ab")
    one.charge(guarantee([0.3, 0.2], delta=1e-6), rows=[0, 2])
    one.charge(guarantee([0.1], delta=2e-6), rows=[0])
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
        account.check(guarantee([1e-6]), rows=[1])


def test_rows_that_are_not_used_are_not_asked_for_room() -> None:
    """What was brought forward may exceed a budget; a release that leaves those rows out may go."""
    account = PrivacyAccountant([1.0, 1.0], 1e-6, composition="basic")
    account.bring_forward([1, 1, 0], [0.8, 0.7, 0.0], [1e-6, 1e-6, 0.0])
    assert account.spent.tolist() == [0.0, 1.5]
    account.charge(guarantee([1.0, 0.0], delta=1e-6))
    account.charge(guarantee([0.0, 0.0]))
    assert account.spent.tolist() == [1.0, 1.5]
    assert account.spent_delta.tolist() == [1e-6, 2e-6]


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


# ----------------------------------------------------------------------- what can be charged


def test_the_learners_guarantees_can_be_charged() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((20, 3)) / 2
    y = np.where(X[:, 0] > 0.25, 1, -1)
    account = PrivacyAccountant(np.full(30, 10.0), 1e-6)
    logistic = PrivateLogisticRegression(0.1).fit(X, y, epsilon=2.0)
    ridge = PersonalizedRidge().fit(X, X[:, 0], epsilon=np.linspace(0.1, 1.0, 20))
    account.charge(logistic.guarantee_, rows=np.arange(20))
    account.charge(ridge.guarantee_, rows=np.arange(10, 30))
    expected = np.zeros(30)
    expected[:20] += logistic.guarantee_.epsilon
    expected[10:] += ridge.guarantee_.epsilon
    assert np.array_equal(account.spent, expected)
    names = [name for name, _, _ in account.releases]
    assert names == [logistic.guarantee_.mechanism, ridge.guarantee_.mechanism]
    everything = PrivateLogisticRegression(0.1).fit(X, y, epsilon=np.inf).guarantee_
    with pytest.raises(BudgetExceededError, match="needs inf"):
        account.charge(everything, rows=np.arange(20))


def test_a_row_that_is_not_used_pays_nothing() -> None:
    account = PrivacyAccountant([0.0, 1.0], 1e-6, composition="basic")
    account.charge(guarantee([0.0, 1.0], 1e-6))
    assert np.array_equal(account.spent, [0.0, 1.0])
    assert np.array_equal(account.spent_delta, [0.0, 1e-6])
    with pytest.raises(BudgetExceededError, match=r"1 of 2 rows sold: row 0 has spent 0"):
        account.charge(guarantee([1e-300, 0.0]))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("composition", ["basic", "advanced"])
def test_a_row_without_a_limit_may_lose_everything(composition) -> None:
    account = PrivacyAccountant([np.inf, 1.0], 1e-6, composition=composition)
    for epsilon in (1.0, 1e4, np.inf):
        account.charge(guarantee([epsilon]), rows=[0])
        assert account.remaining[0] == np.inf
    assert account.spent[0] == np.inf
    assert account.spent[1] == 0.0


def test_the_refusal_says_what_is_left_and_what_to_do() -> None:
    account = PrivacyAccountant([3.0, 1.0, 1.0])
    account.charge(guarantee([0.5, 0.25, 0.5], mechanism="first"))
    with pytest.raises(BudgetExceededError) as caught:
        account.charge(guarantee([0.8, 0.8, 0.8], mechanism="second"))
    for words in (
        "second would exceed what 2 of 3 rows sold",
        "row 1 has spent 0.25 of epsilon 1, and this release needs 0.8",
        "Nothing was charged and nothing released: buy more, or release with a smaller epsilon",
    ):
        assert words in str(caught.value)
    assert account.releases == (("first", 0.5, 0.0),)


def test_a_refusal_calls_the_rows_by_their_ids() -> None:
    account = PrivacyAccountant([1.0, 1.0], 1e-6, composition="basic", ids=["ann", "bob"])
    with pytest.raises(BudgetExceededError, match=r"row 1 \('bob'\) has spent 0 of epsilon 1"):
        account.check(guarantee([0.5, 1.5]))
    with pytest.raises(BudgetExceededError, match=r"row 0 \('ann'\) has spent 0 of 1e-06"):
        account.check(guarantee([0.5, 0.5], delta=1e-3))
    for ids in (["ann"], ["ann", "bob", "eve"]):
        with pytest.raises(ParameterError, match=f"ids names {len(ids)} rows, and epsilon has 2"):
            PrivacyAccountant([1.0, 1.0], ids=ids)


def test_the_account_cannot_be_changed_from_outside() -> None:
    budget = np.array([1.0, 2.0])
    account = PrivacyAccountant(budget, 0.25, composition="basic")
    budget[0] = 100.0
    with pytest.raises(ValueError, match="read-only"):
        account.budget[0] = 100.0
    account.charge(guarantee([0.5, 0.5], 0.125))
    for view in (account.spent, account.spent_delta, account.remaining):
        view[:] = -100.0
    assert np.array_equal(account.budget, [1.0, 2.0])
    assert np.array_equal(account.spent, [0.5, 0.5])
    assert np.array_equal(account.spent_delta, [0.125, 0.125])
    assert np.array_equal(account.remaining, [0.5, 1.5])
    assert (account.delta, account.composition) == (0.25, "basic")


# -------------------------------------------------------------------------- failure contract


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epsilon": []}, "epsilon must be a nonempty vector"),
        ({"epsilon": 1.0}, "epsilon must be a nonempty vector"),
        ({"epsilon": [[1.0]]}, r"not of shape \(1, 1\)"),
        ({"epsilon": [1.0, -1.0]}, "epsilon must be nonnegative"),
        ({"epsilon": [np.nan]}, "epsilon must be nonnegative"),
        ({"delta": -0.1}, r"delta.*got -0\.1"),
        ({"delta": 1.0}, "delta must be at least 0"),
        ({"delta": np.nan}, "delta must be at least 0"),
        ({"composition": "rdp"}, "composition must be one of 'basic', 'advanced', got 'rdp'"),
    ],
)
def test_a_bad_account_is_refused(arguments, words) -> None:
    with pytest.raises(ParameterError, match=words):
        PrivacyAccountant(**({"epsilon": [1.0]} | arguments))


@pytest.mark.parametrize(
    ("epsilon", "rows", "words"),
    [
        ([0.1], None, "covers 1 rows, but the account has 3; pass rows="),
        ([0.1, 0.1, 0.1, 0.1], None, "covers 4 rows"),
        ([0.1], [0, 1], "rows must hold 1 integers"),
        ([0.1], [[0]], "rows must hold 1 integers"),
        ([0.1], [0.0], "rows must hold 1 integers"),
        ([0.1], [True], "rows must hold 1 integers"),
        ([0.1], [3], "different positions from 0 to 2"),
        ([0.1], [-1], "different positions from 0 to 2"),
        ([0.1, 0.1], [1, 1], "different positions from 0 to 2"),
        ([np.nan, 0.1, 0.1], None, "negative or undefined epsilon"),
        ([-0.1, 0.1, 0.1], None, "negative or undefined epsilon"),
    ],
)
@pytest.mark.parametrize("composition", ["basic", "advanced"])
def test_a_bad_charge_is_refused_and_changes_nothing(epsilon, rows, words, composition) -> None:
    account = PrivacyAccountant([1.0, 1.0, 1.0], 1e-6, composition=composition)
    account.charge(guarantee([0.01, 0.01, 0.01]))
    before = state(account)
    for method in (account.check, account.charge):
        with pytest.raises(ParameterError, match=words):
            method(guarantee(epsilon), rows)
    assert state(account) == before


@pytest.mark.parametrize("delta", [1.0, -0.1, np.nan])
def test_a_release_has_a_delta_below_one(delta) -> None:
    account = PrivacyAccountant([1.0], 0.5)
    with pytest.raises(ParameterError, match="delta must be at least 0 and below 1"):
        account.charge(guarantee([0.5], delta=delta))
    assert account.spent.tolist() == [0.0]


def test_a_delta_without_any_epsilon_is_refused():
    account = PrivacyAccountant([1.0, 2.0], 0.5, composition="basic")
    before = state(account)
    for rows, epsilon in ((None, [0.0, 0.0]), ([1], [0.0])):
        for step in (account.check, account.charge):
            with pytest.raises(ParameterError, match="give used rows a positive epsilon"):
                step(guarantee(epsilon, 0.25), rows)
    assert state(account) == before
    account.charge(guarantee([0.0, 0.0]))
    account.charge(guarantee([0.0, 0.1], 0.25))
    assert account.spent_delta.tolist() == [0.0, 0.25]


@pytest.mark.parametrize("epsilon", [0.1, [[0.1, 0.2]]])
def test_a_guarantee_is_a_list_over_rows(epsilon) -> None:
    with pytest.raises(ParameterError, match="give a list with a number >= 0 for each row"):
        guarantee(epsilon)


def test_a_guarantee_to_nobody_says_so() -> None:
    assert str(guarantee([])).endswith("no row was used, so nothing is promised to anybody.")


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_there_is_one_of_an_account(copied) -> None:
    with pytest.raises(NotSupportedError, match=r"cannot be copied or pickled.*Ledger"):
        copied(PrivacyAccountant([1.0]))
