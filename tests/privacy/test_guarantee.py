"""Test the comparison, statements, constructors and errors of guarantees."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from convexmarket.errors import ParameterError
from convexmarket.privacy import Guarantee, Profile
from tests.privacy.builders import guarantee


def test_guarantees_compare_by_value() -> None:
    single, same = guarantee([0.5, 0.0], 1e-6), guarantee([0.5, -0.0], 1e-6)
    assert single == same == pickle.loads(pickle.dumps(single))
    assert len({single, same}) == 1
    others = [
        guarantee([0.5, 0.1], 1e-6),
        guarantee([0.5], 1e-6),
        guarantee([0.5, 0.0]),
        guarantee([0.5, 0.0], 1e-6, "another release"),
        Guarantee(single.epsilon, 1e-6, single.mechanism, single.accounting, ("a secret",)),
        "a release",
    ]
    assert single not in others


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (0.0, 0.0, "at most 1-fold, and guesses the right one with probability at most 50.0 % "),
        (1.0, 0.0, "at most 2.72-fold, and guesses the right one with probability at most 73.1 %"),
        (1.0, 0.3, "2.72-fold (except with probability 0.3), and guesses the right one with proba"),
        (
            7.0,
            0.0,
            "at most 1,097-fold, and guesses the right one with probability at most 99.909 ",
        ),
        (16.0, 0.0, "at most e^16-fold, and guesses the right one with probability close to 1 "),
        (
            1e307,
            0.0,
            "at most e^1e+307-fold, and guesses the right one with probability close to 1 ",
        ),
        (np.inf, 0.0, "can learn the value of a row with certainty: no noise protects the row"),
    ],
)
def test_the_statement_describes_the_row_with_the_largest_epsilon(epsilon, delta, words) -> None:
    with np.errstate(over="raise", invalid="raise"):
        assert words in str(guarantee([0.0, epsilon], delta))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 0.0), (1.0, 0.2), (3.0, 1e-3)])
def test_the_stated_guessing_probability_is_that_of_the_worst_mechanism(epsilon, delta) -> None:
    """Compare the stated probability with randomised response, which is the worst mechanism."""
    right = delta + (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon))
    assert f"at most {100 * right:.1f} % instead" in str(guarantee([epsilon], delta))


def test_the_constructors_state_the_epsilon_of_their_profile() -> None:
    laplace, gaussian = Guarantee.laplace([0.5, 0.0]), Guarantee.gaussian([0.25, 0.0], 1e-5)
    assert laplace == Guarantee.laplace([0.5, 0.0]) != Guarantee.pure([0.5, 0.0])
    assert laplace.epsilon.tolist() == [0.5, 0.0]
    assert gaussian.epsilon == pytest.approx([0.926, 0.0], abs=1e-3)
    hidden = Guarantee.gaussian([1e-9, 0.0], 1e-5).epsilon  # this shift has epsilon 0 at this delta
    assert hidden[0] > 0 == hidden[1]
    assert (gaussian.profile.law, gaussian.profile.failure) == ("gaussian", 0.0)
    plain = guarantee([0.5], 1e-6).profile
    assert (plain.law, plain.shift.tolist(), plain.failure) == ("pure", [0.5], 1e-6)


@pytest.mark.parametrize(
    ("losses", "probabilities", "delta", "words"),
    [
        ([0.5, -0.5], [0.5, 0.5], 0.0, "increasing"),
        ([-0.5, 0.5], [0.5, -0.1], 0.0, "nonnegative"),
        ([-0.5, 0.5], [0.8, 0.8], 0.0, "at most one"),
        ([-0.5, 0.5], [0.4, 0.5], 0.05, "infinite loss"),
    ],
)
def test_a_wrong_distribution_of_losses_is_refused(losses, probabilities, delta, words) -> None:
    with pytest.raises(ParameterError, match=words):
        Guarantee.from_losses(losses, probabilities, 1, delta)


def test_a_profile_has_a_shift_for_each_row() -> None:
    with pytest.raises(ParameterError, match="profile has 1 rows, and epsilon has 2"):
        Guarantee([0.5, 0.5], 0.0, "a sum", "tight", (), Profile("pure", [0.5]))
    with pytest.raises(ParameterError, match="zero in the same rows"):
        Guarantee([0.5, 0.0], 0.0, "a sum", "tight", (), Profile("gaussian", [0.5, 0.5]))
    with pytest.raises(ParameterError, match="law"):
        Profile("normal", [0.5])
    with pytest.raises(ParameterError, match="shift"):
        Profile("laplace", [-0.5])


@pytest.mark.parametrize(
    ("mechanism", "accounting", "assumptions"),
    [
        ("a \ud800", "tight", ()),
        ("a model", "\udfff", ()),
        ("a model", "tight", ("fine", "\ud800")),
        ("a model", "tight", (1,)),
        ("a model", "tight", "text"),
    ],
)
def test_texts_that_cannot_be_stored_are_refused(mechanism, accounting, assumptions) -> None:
    with pytest.raises(ParameterError, match=r"cannot be stored as text|assumptions must be"):
        Guarantee([1.0], 0.0, mechanism, accounting, assumptions)


def test_a_guarantee_without_assumptions_is_marked_as_declared() -> None:
    marked = "declared by the user, not audited"
    declared = Guarantee([1.0], 0.0, "mine", "none", ())
    proven = guarantee([1.0])
    for show in (str, repr, Guarantee.statement, Guarantee._repr_html_):
        assert marked in show(declared)
        assert marked not in show(proven)
