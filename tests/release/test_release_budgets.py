"""Releases on a shared account do not exceed a budget, and refused releases are not charged."""

from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, DataError, ParameterError
from tests.release.builders import QUERIES, made_of, source

N_ROWS, N_ACCOUNT = 12, 20
X = np.random.default_rng(0).uniform(-0.7, 0.7, (N_ROWS, 2))
LABELS = np.where(X[:, 0] > 0, 1, -1)
KINDS = ["interactive", "test set", "process", "public", "function"]


class Counting(cm.KernelERM):
    """Model that counts calls of its private predictions."""

    counter: ClassVar[list[int]] = [0]  # shared with copies of the model

    @property
    def reads(self):
        return self.counter[0]

    def decision_function(self, X):
        self.counter[0] += 1
        return super().decision_function(X)


@cache
def fitted(regularization=0.1, zero_rows=0):
    weights = np.ones(N_ROWS)
    weights[:zero_rows] = 0.0
    return Counting(regularization=regularization, data_norm=1.0).fit(X, LABELS, epsilon=weights)


def release(kind, erm, epsilon, delta, account, rows, generator):
    """Create the release that ``kind`` names, and query interactive and function releases."""
    terms = {"accountant": account, "rows": rows, "random_state": source(generator)}
    created = made_of(kind, erm, epsilon=epsilon, delta=delta, **terms)
    if kind in ("interactive", "function"):
        created.predict(QUERIES)
    return created


@st.composite
def attempts(draw):
    """Draw the kind of a release, its rows, their epsilons and its delta."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = rng.permutation(N_ACCOUNT)[:N_ROWS]
    epsilon = draw(st.floats(0.05, 1.0)) * rng.choice([0.3, 1.0, 2.0], size=N_ROWS)
    return draw(st.sampled_from(KINDS)), rows, epsilon, draw(st.sampled_from([1e-7, 1e-5, 4e-4]))


@given(
    sequence=st.lists(attempts(), min_size=1, max_size=10),
    seed=st.integers(0, 2**32),
    composition=st.sampled_from(["basic", "advanced"]),
    zero_rows=st.sampled_from([0, 3]),
)
def test_no_sequence_of_releases_exceeds_a_budget(sequence, seed, composition, zero_rows):
    generator, erm = np.random.default_rng(seed), fitted(zero_rows=zero_rows)
    budget = generator.uniform(0.2, 3.0, N_ACCOUNT)
    account = cm.PrivacyAccountant(budget, 1e-3, composition=composition)
    charges, deltas = [[] for _ in budget], np.zeros(N_ACCOUNT)
    for kind, rows, epsilon, delta in sequence:
        before = account.spent, account.releases, generator.bit_generator.state, erm.reads
        try:
            created = release(kind, erm, epsilon, delta, account, rows, generator)
        except BudgetExceededError:
            assert np.array_equal(account.spent, before[0])
            assert (account.releases, generator.bit_generator.state, erm.reads) == before[1:]
            continue
        assert erm.reads > before[3]
        assert generator.bit_generator.state != before[2]
        spent = created.guarantee.epsilon
        assert np.all(spent[:zero_rows] == 0.0)
        for row, single in zip(rows, spent, strict=True):
            charges[row].append(single)
        deltas[rows] += np.where(spent > 0, delta, 0.0)
        assert len(account.releases) == len(before[1]) + 1
    assert np.all(account.spent <= budget * (1.0 + 1e-9))
    if composition == "basic":
        total = np.array([sum(row) for row in charges])
        assert account.spent == pytest.approx(total, abs=1e-12)
        assert account.spent_delta == pytest.approx(deltas, rel=1e-12)
        assert np.all(deltas <= 1e-3 * (1.0 + 1e-9))
    else:
        assert np.all(account.spent_delta <= 1e-3 * (1.0 + 1e-9))


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_release_has_no_side_effects(monkeypatch, kind):
    def fail(*_):
        raise AssertionError("private rows were read")

    budget = np.full(N_ACCOUNT, 2.0)
    budget[7] = 0.5
    account, generator = cm.PrivacyAccountant(budget, 1e-3), np.random.default_rng(3)
    before, erm = generator.bit_generator.state, fitted()
    monkeypatch.setattr(Counting, "decision_function", fail)
    with pytest.raises(BudgetExceededError, match=r"1 of 20 rows.*row 7 .*needs 1"):
        release(kind, erm, 1.0, 1e-6, account, np.arange(N_ROWS), generator)
    assert generator.bit_generator.state == before
    assert account.releases == ()
    assert not account.spent.any()
    # a release that does not use this row is admitted and reads predictions
    with pytest.raises(AssertionError, match="were read"):
        release(kind, erm, 1.0, 1e-6, account, np.arange(8, 8 + N_ROWS), generator)
    assert len(account.releases) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "rows", [np.arange(3), np.zeros(N_ROWS, dtype=int), np.arange(N_ROWS) + 15, np.ones(N_ROWS)]
)
def test_invalid_positions_are_refused_before_any_work(kind, rows):
    account, generator = cm.PrivacyAccountant(np.full(N_ACCOUNT, 9.0), 1e-3), 0
    reads = fitted().reads
    with pytest.raises(ParameterError, match="rows"):
        release(kind, fitted(), 1.0, 1e-6, account, rows, generator)
    assert account.releases == ()
    assert fitted().reads == reads


@pytest.mark.parametrize("accounting", ["tight", "paper"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_exceeds_its_epsilon_and_some_row_nearly_attains_it(kind, accounting):
    erm, granted = fitted(zero_rows=3), np.linspace(0.5, 1.5, N_ROWS)
    options = {} if kind == "function" else {"accounting": accounting}
    release, noisier = (
        made_of(kind, erm, epsilon=epsilon, **options) for epsilon in (granted, granted / 2)
    )
    epsilon = release.guarantee.epsilon
    assert np.all(epsilon[:3] == 0.0)
    assert np.all(epsilon <= granted)
    assert (epsilon / granted).max() > 0.999
    assert noisier.scale > release.scale
    assert release.guarantee.assumptions[0].startswith("SIMULATION")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": -1.0}, "epsilon must be nonnegative and finite"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"epsilon": 1e-200}, "beyond the range of floating point"),
        ({"epsilon": 0.0}, "12 rows have epsilon 0"),
        ({"epsilon": np.ones(3)}, r"epsilon has shape \(3,\)"),
        ({"delta": 1.0}, "delta"),
        ({"rows": np.arange(3)}, "rows"),
        ({"random_state": "seed"}, "random_state"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_argument_raises_an_error_without_a_charge(kind, changes, words):
    account = cm.PrivacyAccountant(np.full(N_ROWS, 10.0), 1e-3)
    with pytest.raises(ParameterError, match=words):
        made_of(kind, fitted(), accountant=account, **changes)
    assert account.releases == ()


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("interactive", {"delta": 0.0}, "delta.*sparse-vector"),
        ("interactive", {"max_queries": 0}, "max_queries"),
        ("interactive", {"max_updates": 2.5}, "max_updates"),
        ("interactive", {"threshold": -1.0}, "threshold"),
        ("interactive", {"failure_probability": 1.0}, "failure_probability"),
        ("interactive", {"accounting": "pdp"}, "accounting"),
        ("function", {"delta": 0.0}, "delta.*Gaussian process"),
        ("process", {"delta": 0.0}, "delta.*Gaussian process"),
        ("process", {"noise": "gaussian"}, "noise"),
        ("process", {"max_norm": -1.0}, "max_norm"),
        ("process", {"X": np.zeros((0, 2))}, "X has no points"),
        ("public", {"rounds": 0}, "rounds"),
        ("public", {"net_radius": -1.0}, "net_radius"),
        ("public", {"accounting": "paper", "delta": 0.0}, "paper's accounting"),
    ],
)
def test_errors_name_invalid_options_of_each_release(kind, changes, words):
    with pytest.raises(ParameterError, match=words):
        made_of(kind, fitted(), **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unfitted_model_is_refused(kind):
    with pytest.raises(DataError, match="not fitted"):
        made_of(kind, cm.KernelERM())


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[3.0, 0.0]], "norm"),
        ([[np.nan, 0.1]], "finite|missing|NaN"),
        ([[0.1, 0.1, 0.1]], "2 features"),
        ([["a", "b"]], "numbers"),
    ],
)
@pytest.mark.parametrize("kind", ["interactive", "function"])
def test_queries_outside_the_domain_are_refused_without_effect(kind, rows, words):
    queried, other = made_of(kind, fitted()), made_of(kind, fitted())
    with pytest.raises(DataError, match=words):
        queried.predict(rows)
    assert np.array_equal(queried.predict(QUERIES), other.predict(QUERIES))
    assert queried.predict(np.zeros((0, 2))).size == 0
