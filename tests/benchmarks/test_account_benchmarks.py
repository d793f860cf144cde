"""Accounts of privacy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from convexmarket.privacy import PrivacyAccountant
from tests.privacy.builders import MAKERS, SEQUENCES, admitted, most_admitted


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_releases_that_an_account_admits_are_counted(benchmark, name) -> None:
    """Count the releases that an account admits, and compare the count with dp-accounting."""
    epsilon, delta, _, sequence = SEQUENCES[name]
    count = benchmark.pedantic(admitted, (sequence, epsilon, delta), rounds=1)
    largest = most_admitted(sequence, epsilon, delta, count)
    benchmark.extra_info |= {
        "epsilon": epsilon,
        "delta": delta,
        "sum of epsilons": basic(sequence, epsilon),
        "admitted": count,
        "dp-accounting": largest,
        "ratio": f"{largest / count:.2f}",
    }


def basic(sequence, epsilon: float) -> int:
    """Count the releases under basic composition, where Gaussian noise has an infinite epsilon."""
    sums = itertools.accumulate(s if law != "gaussian" else np.inf for law, s in sequence())
    return sum(1 for _ in itertools.takewhile(lambda total: total <= epsilon * (1 + 1e-9), sums))


@pytest.mark.parametrize("law", sorted(MAKERS))
def test_charges_of_many_rows_are_timed(benchmark, law) -> None:
    """Measure the fastest of 30 charges of 100,000 rows with different budgets (goal: 5 ms)."""
    rng = np.random.default_rng(0)
    account = PrivacyAccountant(rng.uniform(0.5, 2.0, 100_000), 1e-6)
    release = MAKERS[law](rng.uniform(1e-4, 1e-3, 100_000))
    benchmark.pedantic(account.charge, (release,), rounds=30)
    benchmark.extra_info |= {"law": law, "seconds": benchmark.stats.stats.min}
