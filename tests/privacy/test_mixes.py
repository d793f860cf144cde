"""What several releases cost together: at most their sum, at least what they can reveal."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import gammaln

from convexmarket.privacy import PrivacyAccountant

#: Each a list of (epsilon, how many).
MIXES = [
    [(1, 1)],
    [(0.5, 2)],
    [(1, 4)],
    [(2, 3)],
    [(0.1, 10)],
    [(0.1, 30)],
    [(0.1, 100)],
    [(0.01, 100)],
    [(0.01, 1000)],
    [(0.3, 20)],
    [(0.5, 50)],
    [(1, 20)],
    [(3, 5)],
    [(1, 1), (0.1, 10)],
    [(1, 1), (0.05, 100)],
    [(2, 1), (0.1, 50)],
    [(0.5, 5), (0.1, 20), (0.02, 100)],
    [(1, 3), (0.2, 30)],
    [(3, 1), (0.01, 500)],
    [(0.3, 4), (0.7, 4), (0.05, 200)],
]


def exact_epsilon(mix, delta) -> float:
    """Of randomised responses, the worst mechanisms of these epsilons: all sums of their losses."""
    losses, log_p = np.zeros(1), np.zeros(1)
    for epsilon, count in mix:
        true = np.arange(count + 1)
        choices = gammaln(count + 1) - gammaln(true + 1) - gammaln(count - true + 1)
        own = choices + true * epsilon - count * np.logaddexp(0.0, epsilon)
        losses = np.add.outer(losses, epsilon * (2 * true - count)).ravel()
        log_p = np.add.outer(log_p, own).ravel()
    low, high = 0.0, float(losses.max())
    for _ in range(50):
        middle = (low + high) / 2
        enough = np.exp(log_p) @ np.maximum(-np.expm1(np.minimum(middle - losses, 0.0)), 0) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


def admits(mix, budget, delta) -> bool:
    account = PrivacyAccountant([budget], delta)
    epsilons, counts = zip(*mix, strict=True)
    charges = np.repeat(epsilons, counts)
    none = np.zeros(charges.size)
    account.bring_forward(none, charges, none)
    return bool(account.spent[0] <= budget * (1 + 1e-12))


def smallest_budget(mix, delta) -> float:
    low, high = 0.0, float(sum(epsilon * count for epsilon, count in mix))
    assert admits(mix, high, delta)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if admits(mix, middle, delta) else (middle, high)
    return high


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
@pytest.mark.parametrize("mix", MIXES, ids=str)
def test_a_mix_costs_no_more_than_its_sum_and_no_less_than_it_reveals(mix, delta) -> None:
    needed = smallest_budget(mix, delta)
    assert exact_epsilon(mix, delta) <= needed * (1 + 1e-9)
    assert needed <= sum(epsilon * count for epsilon, count in mix)
    rho = sum(epsilon * np.tanh(epsilon / 2) * count for epsilon, count in mix)
    assert needed <= (rho + 2 * np.sqrt(rho * np.log(2 / delta))) * (1 + 1e-9)
    assert needed <= (1.3 if delta == 1e-6 else 1.6) * exact_epsilon(mix, delta)


@pytest.mark.parametrize("mix", MIXES[5::3], ids=str)
def test_who_sells_more_allows_what_was_allowed_before(mix) -> None:
    """So that a ledger may record sales between releases."""
    needed = smallest_budget(mix, 1e-5)
    for more in (1 + 1e-9, 1.001, 1.1, 1.5, 4.0, 100.0):
        assert admits(mix, more * needed, 1e-5), more


@pytest.mark.parametrize(
    ("budget", "delta", "steps", "unit"),
    [(1.0, 0.1, (1, 4), 0.1), (2.0, 0.02, (1, 10), 0.1), (0.6, 0.3, (1, 3), 0.1)],
)
def test_no_adaptive_choice_of_releases_breaks_the_promise(budget, delta, steps, unit) -> None:
    """The best adversary, by dynamic programming: it sees the loss, then chooses or stops."""
    counts = []
    for step in steps:
        account, count = PrivacyAccountant([budget], delta), 0
        while account.spent[0] <= budget * (1 + 1e-12):
            account.bring_forward([0], [step * unit], [0.0])
            count += 1
        counts.append(count)

    def allowed(*many) -> bool:
        used = [(step * unit, count) for step, count in zip(steps, many, strict=True) if count]
        return not used or admits(used, budget, delta)

    reach = sum(step * count for step, count in zip(steps, counts, strict=True))
    losses = unit * np.arange(-reach, reach + 1)
    stop = np.maximum(-np.expm1(np.minimum(budget - losses, 0.0)), 0.0)
    value: dict[tuple[int, int], np.ndarray] = {}
    for many in itertools.product(*(range(count, -1, -1) for count in counts)):
        if not allowed(*many):
            continue
        best = stop.copy()
        for axis, step in enumerate(steps):
            after = value.get(tuple(n + (place == axis) for place, n in enumerate(many)))
            if after is not None:
                up = 1 / (1 + np.exp(-step * unit))
                goes = up * np.roll(after, -step) + (1 - up) * np.roll(after, step)
                best[step:-step] = np.maximum(best, goes)[step:-step]
        value[many] = best
    assert stop[reach] < value[0, 0][reach] <= delta / 2
