"""Test that an account never exceeds the budget of a row."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import expit, ndtr
from scipy.stats import norm

from convexmarket.errors import BudgetExceededError, NotSupportedError, ParameterError, SellersError
from convexmarket.privacy import Guarantee, PrivacyAccountant
from tests import one_in
from tests.privacy.builders import (
    MAKERS,
    SEQUENCES,
    admitted,
    delta_of,
    guarantee,
    largest_of_losses,
    most_admitted,
)

NEAR = 1e-9  # relative distance to the budget at which rounding can change a decision


def state(account: PrivacyAccountant):
    arrays = account.spent, account.spent_delta, account.remaining, account.budget
    return [array.tobytes() for array in arrays], account.releases


# ------------------------------------------------------------------- basic composition


@st.composite
def histories(draw):
    """Draw budgets, a delta, and releases whose epsilons are fractions of the budgets."""
    n_rows = draw(st.integers(1, 5))
    budget = [draw(st.sampled_from([0.0, 1e-6, 0.3, 1.0, 7.0, 500.0])) for _ in range(n_rows)]
    delta = draw(st.sampled_from([1e-9, 1e-3, 0.0]))
    releases = []
    for _ in range(draw(st.integers(1, 25))):
        rows = draw(st.lists(st.integers(0, n_rows - 1), min_size=1, unique=True))
        shares = draw(st.lists(st.sampled_from([0.0, 1e-3, 0.1, 0.4, 1.0]), min_size=5, max_size=5))
        epsilon = [share * draw(st.floats(0.5, 1.0)) for share in shares[: len(rows)]]
        part = draw(st.sampled_from([0.0, 0.0, 0.1, 0.4]))
        releases.append((rows, epsilon, part * delta))
    return budget, delta, releases


@example(([1e-6], 1e-3, [([0], [0.0], 0.0)]))
@given(histories())
def test_no_history_of_releases_exceeds_the_budget(history) -> None:
    budget, delta, releases = history
    account = PrivacyAccountant(budget, delta, composition="basic")
    used, deltas = [Fraction(0)] * len(budget), [Fraction(0)] * len(budget)
    for rows, shares, release_delta in releases:
        epsilon = [share * budget[row] for share, row in zip(shares, rows, strict=True)]
        if release_delta > 0 and not any(epsilon):
            continue
        ratio, before = 0.0, state(account)
        for row, e in zip(rows, epsilon, strict=True):
            if e > 0:
                ratio = max(ratio, float(used[row] + Fraction(e)) / budget[row])
                total = float(deltas[row] + Fraction(release_delta))
                ratio = max(ratio, total / delta if delta else 0.0)
        try:
            account.charge(guarantee(epsilon, release_delta), rows)
        except BudgetExceededError:
            assert ratio > 1 - NEAR
            assert state(account) == before
            continue
        assert ratio < 1 + NEAR
        for row, e in zip(rows, epsilon, strict=True):
            if e > 0:
                used[row] += Fraction(e)
                deltas[row] += Fraction(release_delta)
    assert account.spent == pytest.approx([float(each) for each in used], rel=1e-12)
    assert account.spent_delta == pytest.approx([float(each) for each in deltas], rel=1e-12)


def test_a_budget_can_be_exhausted_up_to_rounding_but_not_exceeded() -> None:
    account = PrivacyAccountant([1.0, 3.0])
    account.check(guarantee([1.0 + 0.9e-12, 3.0]))
    with pytest.raises(BudgetExceededError, match="1 of 2 rows: row 0"):
        account.check(guarantee([1.0 + 2e-12, 3.0]))
    account.charge(guarantee([1.0, 1.0]))
    with pytest.raises(BudgetExceededError, match="1 of 2 rows: row 0"):
        account.check(guarantee([1e-9, 1.0]))
    account.check(guarantee([0.0, 2.0]))
    assert account.remaining.tolist() == [0.0, 2.0]
    assert account.spent.tolist() == [1.0, 1.0]


# ------------------------------------------------------------------- composition by profile


@pytest.mark.parametrize("name", one_in(3, SEQUENCES))
def test_admitted_sequences_are_nearly_as_long_as_with_exact_accounting(name) -> None:
    epsilon, delta, ratio, sequence = SEQUENCES[name]
    count = admitted(sequence, epsilon, delta)
    assert delta_of(itertools.islice(sequence(), count), epsilon) <= delta
    assert most_admitted(sequence, epsilon, delta, count) <= ratio * count


@given(
    st.sampled_from(["pure", "laplace"]),
    st.floats(0.001, 1.0),
    st.floats(2.0, 50.0),
    st.floats(-8.0, 8.0),
)
def test_a_release_is_dominated_by_its_equivalent_gaussian_noise(
    law, shift, reserves, place
) -> None:
    """Compare the hockey-stick divergences of a release and of its equivalent Gaussian noise."""
    sharp = shift**2 * (1 + shift**2 / 8) if law == "pure" else shift**2 * (1 - shift / 6)
    reserve = 1.125 * sharp * reserves
    cost = sharp + sharp**2 / (4 * reserve)
    loss = place * math.sqrt(reserve + cost) + (reserve + cost) / 2
    with_release = expected_divergence(law, shift, reserve, loss)
    assert with_release <= divergence(reserve + cost, loss) * (1 + 1e-7)
    # compare the divergences without a reserve
    mu = math.sqrt(math.pi / 2) * shift
    corner = expit(shift) if law == "pure" else 1 - math.exp(-shift / 2) / 2
    assert corner <= ndtr(mu / 2) * (1 + 1e-12)


def divergence(square: float, loss) -> np.ndarray:
    mu = math.sqrt(square)
    return norm.sf(loss / mu - mu / 2) - np.exp(loss + norm.logsf(loss / mu + mu / 2))


def expected_divergence(law: str, shift: float, square: float, loss: float) -> float:
    if law == "pure":
        sides = divergence(square, loss - shift), divergence(square, loss + shift)
        return expit(shift) * sides[0] + expit(-shift) * sides[1]
    nodes, weights = np.polynomial.legendre.leggauss(200)
    ends = divergence(square, loss - shift) + math.exp(-shift) * divergence(square, loss + shift)
    between = np.exp((shift * nodes - shift) / 2) / 4 * divergence(square, loss - shift * nodes)
    return ends / 2 + shift * float(weights @ between)


@pytest.mark.parametrize(
    ("budget", "delta", "steps", "unit"),
    one_in(3, [(2.0, 0.02, (1, 10), 0.2), (1.0, 0.1, (1, 4), 0.1), (0.6, 0.3, (1, 3), 0.15)]),
)
def test_no_adaptive_choice_of_releases_exceeds_delta(budget, delta, steps, unit) -> None:
    """Compute the delta of the best adaptive adversary by dynamic programming over losses."""

    def fits(many) -> bool:
        account = PrivacyAccountant([budget], delta)
        for step, count in zip(steps, many, strict=True):
            size, none = [step * unit] * count, [0.0] * count
            account.bring_forward([0] * count, "pure", size, none, size, none)
        return bool(account._fits(account._sums)[0])

    counts = [next(n for n in itertools.count() if not fits((n, 0))), 0]
    counts[1] = next(n for n in itertools.count() if not fits((0, n)))
    reach = sum(step * count for step, count in zip(steps, counts, strict=True))
    losses = unit * np.arange(-reach, reach + 1)
    stop = np.maximum(-np.expm1(np.minimum(budget - losses, 0.0)), 0.0)
    value: dict[tuple[int, ...], np.ndarray] = {}
    for many in itertools.product(*(range(count, -1, -1) for count in counts)):
        if not fits(many):
            continue
        best = stop.copy()
        for axis, step in enumerate(steps):
            after = value.get(tuple(n + (place == axis) for place, n in enumerate(many)))
            if after is not None:
                up = expit(step * unit)
                goes = up * np.roll(after, -step) + (1 - up) * np.roll(after, step)
                best[step:-step] = np.maximum(best, goes)[step:-step]
        value[many] = best
    assert stop[reach] < value[0, 0][reach] <= delta


@given(st.lists(st.sampled_from(sorted(MAKERS)), min_size=1, max_size=40), st.floats(1.0, 4.0))
def test_a_larger_budget_admits_all_releases_of_a_smaller_one(laws, more) -> None:
    small, large = PrivacyAccountant([1.0], 1e-5), PrivacyAccountant([more], 1e-5)
    for place, law in enumerate(laws):
        release = MAKERS[law]([0.02 * (1 + place % 7)])
        with contextlib.suppress(BudgetExceededError):
            small.charge(release)
            large.charge(release)
    assert len(large.releases) == len(small.releases)


@pytest.mark.parametrize("budget", [1e-6, 0.01, 1.0, 30.0, 1e4])
def test_exactly_the_remaining_epsilon_can_be_charged(budget) -> None:
    account = PrivacyAccountant([budget], 1e-6)
    for share in (0.01, 1 / 3, 1 / 3, 1.0):
        remaining = account.remaining
        account.check(guarantee(remaining))
        with pytest.raises(BudgetExceededError, match="row 0 has spent"):
            account.check(guarantee(remaining + 1e-5 * budget))
        account.charge(guarantee(share * remaining))
    assert account.spent[0] <= budget * (1 + 1e-11)


def test_gaussian_releases_use_no_delta_except_in_basic_accounts() -> None:
    release = Guarantee.gaussian([0.1], delta=1e-6)
    advanced = PrivacyAccountant([1.0], 1e-6)
    for _ in range(5):
        advanced.charge(release)
    assert advanced.spent[0] < 1.0 < 5 * release.epsilon[0]
    assert advanced.spent_delta == pytest.approx([0.9e-6])
    basic = PrivacyAccountant([1.0], 1e-6, composition="basic")
    basic.charge(release)
    with pytest.raises(BudgetExceededError, match="delta"):
        basic.charge(release)


def test_a_tenth_of_delta_is_reserved_for_failures_of_releases() -> None:
    account = PrivacyAccountant([1.0], 1e-6)
    account.charge(guarantee([0.1], 1e-7))
    with pytest.raises(BudgetExceededError, match="can use a tenth of delta unless"):
        account.charge(guarantee([0.1], 1e-9))
    PrivacyAccountant([1.0], 1e-6, composition="basic").charge(guarantee([1.0], 1e-6))


def test_a_discretised_loss_distribution_composes_as_gaussian_noise() -> None:
    shift, step = 0.3, 1e-3
    edges = np.arange(-3.0, 3.0, step)  # losses are normally distributed with mean shift^2 / 2
    below = norm.cdf(edges, shift**2 / 2, shift)
    mass = np.diff(np.r_[0.0, below])
    release = Guarantee.from_losses(edges, mass, 1, delta=1e-5)
    exact = Guarantee.gaussian([shift], delta=1e-5)
    assert exact.epsilon[0] <= release.epsilon[0] <= exact.epsilon[0] + 2 * step
    assert shift <= release.profile.shift[0] <= 1.05 * shift
    assert release.epsilon[0] >= largest_of_losses(edges, mass, 1e-5) - 1e-9
    account = PrivacyAccountant([1.0], 1e-4)
    account.charge(release)
    assert account.spent_delta[0] <= 1e-4


# ------------------------------------------------------------ threads, earlier charges


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


@pytest.mark.parametrize("law", sorted(MAKERS))
@pytest.mark.parametrize("composition", ["basic", "advanced"])
def test_earlier_charges_count_like_new_charges(law, composition) -> None:
    single, other = (PrivacyAccountant([9.0, 9.0], 1e-4, composition=composition) for _ in "ab")
    releases = [MAKERS[law]([0.3, 0.2]), MAKERS[law]([0.1, 0.4])]
    for release in releases:
        single.charge(release)
    epsilon = np.concatenate([release.epsilon for release in releases])
    shift = np.concatenate([release.profile.shift for release in releases])
    delta, failure = np.full(4, releases[0].delta), np.full(4, releases[0].profile.failure)
    other.bring_forward([0, 1, 0, 1], law, epsilon, delta, shift, failure)
    np.testing.assert_allclose(other.spent, single.spent, rtol=1e-14)
    np.testing.assert_allclose(other.spent_delta, single.spent_delta, rtol=1e-14)
    np.testing.assert_allclose(other.remaining, single.remaining, rtol=1e-12)
    other.bring_forward([], law, [], [], [], [])
    np.testing.assert_allclose(other.spent, single.spent, rtol=1e-14)


def test_twenty_small_releases_spend_less_than_their_sum() -> None:
    account = PrivacyAccountant([2.0], 1e-6, composition="advanced")
    for _ in range(20):
        account.charge(MAKERS["laplace"]([0.1]))
    assert 1.8 < account.spent[0] < 1.95


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("composition", ["basic", "advanced"])
def test_a_row_with_an_infinite_budget_admits_any_release(composition) -> None:
    account = PrivacyAccountant([np.inf, 1.0], 1e-6, composition=composition)
    for epsilon in (1.0, 1e4, np.inf):
        account.charge(guarantee([epsilon]), rows=[0])
        assert account.remaining[0] == np.inf
    assert account.spent[0] == np.inf
    assert account.spent[1] == 0.0


def test_a_refusal_names_the_rows_by_their_ids() -> None:
    account = PrivacyAccountant([1.0, 1.0], 1e-6, composition="basic", ids=["ann", "bob"])
    with pytest.raises(BudgetExceededError, match=r"row 'bob' has spent 0 of epsilon 1"):
        account.check(guarantee([0.5, 1.5]))
    with pytest.raises(BudgetExceededError, match=r"row 'ann'.* spent 0 of delta 1e-06"):
        account.check(guarantee([0.5, 0.5], delta=1e-3))
    for ids in (["ann"], ["ann", "bob", "eve"]):
        with pytest.raises(SellersError, match=f"{len(ids)} ids for 2 sellers"):
            PrivacyAccountant([1.0, 1.0], ids=ids)


def test_the_attributes_of_an_account_are_read_only() -> None:
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epsilon": []}, "epsilon must be a nonempty vector"),
        ({"epsilon": 1.0}, "epsilon must be a nonempty vector"),
        ({"epsilon": [[1.0]]}, "nonempty vector"),
        ({"epsilon": [1.0, -1.0]}, "one budget >= 0 per row"),
        ({"epsilon": [np.nan]}, "one budget >= 0 per row"),
        ({"delta": -0.1}, r"delta.*got -0\.1"),
        ({"delta": 1.0}, "delta must be at least 0"),
        ({"delta": np.nan}, "delta must be at least 0"),
        ({"composition": "rdp"}, "composition must be one of 'basic', 'advanced', got 'rdp'"),
    ],
)
def test_an_invalid_account_is_refused(arguments, words) -> None:
    with pytest.raises(ParameterError, match=words):
        PrivacyAccountant(**({"epsilon": [1.0]} | arguments))


@pytest.mark.parametrize(
    ("epsilon", "rows", "words"),
    [
        ([0.1], None, "covers 1 rows, and the account has 3; pass rows="),
        ([0.1, 0.1, 0.1, 0.1], None, "covers 4 rows"),
        ([0.1], [0, 1], "a list of 1 distinct integers"),
        ([0.1], [[0]], "a list of 1 distinct integers"),
        ([0.1], [0.0], "a list of 1 distinct integers"),
        ([0.1], [True], "a list of 1 distinct integers"),
        ([0.1], [3], "distinct integers from 0 to 2"),
        ([0.1], [-1], "distinct integers from 0 to 2"),
        ([0.1, 0.1], [1, 1], "distinct integers from 0 to 2"),
        ([np.nan, 0.1, 0.1], None, "nonnegative numbers, one per row"),
        ([-0.1, 0.1, 0.1], None, "nonnegative numbers, one per row"),
    ],
)
@pytest.mark.parametrize("composition", ["basic", "advanced"])
def test_an_invalid_charge_is_refused_and_changes_nothing(
    epsilon, rows, words, composition
) -> None:
    account = PrivacyAccountant([1.0, 1.0, 1.0], 1e-6, composition=composition)
    account.charge(guarantee([0.01, 0.01, 0.01]))
    before = state(account)
    for method in (account.check, account.charge):
        with pytest.raises(ParameterError, match=words):
            method(guarantee(epsilon), rows)
    assert state(account) == before


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_an_account_cannot_be_copied(copied) -> None:
    with pytest.raises(NotSupportedError, match=r"cannot be copied or pickled.*Ledger"):
        copied(PrivacyAccountant([1.0]))


@pytest.mark.parametrize(("epsilon", "budget"), [(0.02, 1.0), (0.3, 10.0), (0.5, 30.0)])
def test_the_spent_epsilon_is_not_understated(epsilon, budget):
    """Check that an account has less than epsilon left when it refuses a release of epsilon."""
    account, release = PrivacyAccountant([budget], 1e-6), Guarantee.pure([epsilon])
    with contextlib.suppress(BudgetExceededError):
        while True:
            account.charge(release)
    assert account.spent[0] <= budget < account.spent[0] + epsilon
