"""Test the distribution, the guarantee and the rounding of exact noise on a lattice."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from convexmarket.errors import ParameterError
from convexmarket.privacy.composition import ORDERS, moments
from convexmarket.privacy.lattice import (
    accept_exponential,
    discrete_gaussian,
    discrete_laplace,
    lattice_blur,
    lattice_epsilon,
    lattice_moves,
    lattice_release,
    lattice_scale,
    lattice_step,
    whole_steps,
)
from tests.privacy.builders import (
    REJECTED,
    check_lattice_law,
    discrete_gaussian_log_density,
    lattice_p_value,
)


def rounded(values, step):
    """Divide values by the lattice step, and round the ratios to integers."""
    return whole_steps(values, step, math.inf).tolist()


# ------------------------------------------------------------------ the sampler


@pytest.mark.parametrize("scale", [1, 2, 3, 12])
def test_the_sampler_has_the_stated_law(scale):
    check_lattice_law(scale, 10_000, off=0.2)


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_the_sampler_uses_only_integers(draw):
    class IntegersOnly:
        """Generator that draws only uniform integers."""

        def __init__(self):
            self._rng = np.random.default_rng(0)

        def integers(self, *args, **kwargs):
            return self._rng.integers(*args, **kwargs)

    draws = draw(5, 100, IntegersOnly())
    assert np.array_equal(draws, draw(5, 100, np.random.default_rng(0)))
    assert draws.dtype == np.int64


@pytest.mark.parametrize("scale", [1, 2, 7])
def test_the_gaussian_sampler_has_the_stated_law(scale):
    draws = discrete_gaussian(scale, 20_000, np.random.default_rng(1))
    assert lattice_p_value(draws, scale, discrete_gaussian_log_density) > REJECTED
    moved = draws + np.arange(20_000) % 2
    assert lattice_p_value(moved, scale, discrete_gaussian_log_density) < REJECTED


@pytest.mark.parametrize("part", [0, 30, 100, 250])
def test_acceptance_probabilities_equal_the_exponential(part):
    accepted = accept_exponential(np.full(20_000, part), 100, np.random.default_rng(4))
    chance = np.exp(-part / 100)
    assert stats.binomtest(int(accepted.sum()), 20_000, chance).pvalue > REJECTED


# ------------------------------------------------------------------ the release


@given(st.floats(min_value=2.0**-400, max_value=2.0**400))
def test_a_step_is_the_next_lower_power_of_two(rounding):
    step = lattice_step(rounding)
    assert math.frexp(step)[0] == 0.5
    assert step <= rounding < 2 * step


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4),
    st.integers(-30, 5),
    st.integers(0, 2**32 - 1),
)
def test_sums_on_the_lattice_are_exact(values, exponent, seed):
    step = 2.0**exponent
    released = lattice_release(values, step, 1000, np.random.default_rng(seed))
    noise = discrete_laplace(1000, len(values), np.random.default_rng(seed))
    for value, result, drawn in zip(values, released.tolist(), noise.tolist(), strict=True):
        nearest = Fraction(result) - drawn * Fraction(step)
        assert nearest / Fraction(step) == int(nearest / Fraction(step))
        assert -Fraction(step) / 2 < nearest - Fraction(value) + 0 <= Fraction(step) / 2


def test_values_that_cannot_be_exact_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ParameterError, match="exceeds 2"):
        lattice_release([2.0**60], 1.0, 4, rng)
    with pytest.raises(ParameterError, match="power of two"):
        lattice_release([1.0], 0.3, 4, rng)
    with pytest.raises(ParameterError, match="exceeds 2"):
        lattice_release([math.inf], 1.0, 4, rng)
    with pytest.raises(ParameterError, match="too fine"):
        lattice_moves(1.0, 2.0**-60, 1)
    with pytest.raises(ParameterError, match="coarser rounding"):
        lattice_scale([2.0**44], [1e-3])


# ------------------------------------------------------------------ the guarantee


neighbours = st.integers(1, 3).flatmap(
    lambda d: st.tuples(*[st.lists(st.floats(-3.0, 3.0), min_size=d, max_size=d)] * 2)
)


def largest_loss(first, second, scale):
    """Compute the exact maximum of the privacy loss over all outputs.

    The loss is a sum over coordinates. Each term of the sum is extreme at a rounded value, so only
    rounded values are enumerated.
    """
    sides = [(a, b) for a, b in zip(first, second, strict=True)]
    return max(
        sum((abs(o - b) - abs(o - a) for o, (a, b) in zip(output, sides, strict=True)))
        / Fraction(scale)
        for output in product(*sides)
    )


@given(neighbours, st.integers(-4, 1), st.integers(1, 50))
@example(([0.49], [0.51]), 0, 1)
@example(([0.5], [1.5]), 0, 1)
@example(([0.0, 0.4999], [0.5, 0.5001]), 0, 3)
@example(([-0.5, -0.5], [0.5, 0.5]), 0, 7)
def test_no_privacy_loss_exceeds_the_claim(pair, exponent, scale):
    step = 2.0**exponent
    exact = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(*pair, strict=True))
    shift = np.nextafter(float(exact), np.inf) if exact else 0.0
    moves = float(lattice_moves(shift, step, len(pair[0])))
    loss = largest_loss(rounded(pair[0], step), rounded(pair[1], step), scale)
    assert loss <= Fraction(moves) / scale
    if exact:
        assert Fraction(moves) / scale < (Fraction(shift) / Fraction(step) + len(pair[0])) / scale
    assert loss <= Fraction(float(lattice_epsilon([moves], scale)[0]))


def test_the_claim_is_attained():
    """Check a tiny change that rounds all coordinates to other integers."""
    low, high = [0.4999] * 3, [0.5001] * 3
    moves = float(lattice_moves(0.0007, 1.0, 3))
    assert largest_loss(rounded(low, 1.0), rounded(high, 1.0), 5) == Fraction(moves) / 5


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(1e-3, 50.0)), min_size=1, max_size=8))
def test_a_calibrated_scale_satisfies_every_epsilon_exactly(rows):
    moves, epsilon = np.array(rows).T
    scale = lattice_scale(moves, epsilon)
    for moved, sold in rows:
        assert Fraction(moved) / scale <= Fraction(sold)
    needed = max(Fraction(moved) / Fraction(sold) for moved, sold in rows)
    assert scale <= needed * (1 + Fraction(1, 10**11)) + 1
    charged = lattice_epsilon(moves, scale)
    assert all(Fraction(c) >= Fraction(int(m)) / scale for c, m in zip(charged, moves, strict=True))


@given(
    n=st.integers(1, 4),
    distance=st.floats(1e-12, 1e3),
    epsilon=st.floats(1e-4, 3.0),
    seed=st.integers(0, 2**32),
)
def test_the_second_noise_hides_which_of_two_near_vectors_was_computed(n, distance, epsilon, seed):
    """Compare two results whose errors have the maximal norm and opposite directions."""
    step, scale = lattice_blur(distance, n, epsilon)
    rng = np.random.default_rng(seed)
    error = rng.choice([-1.0, 1.0], n) if seed % 2 else rng.standard_normal(n)
    error *= distance / np.linalg.norm(error) * (1.0 - 1e-9)
    ideal = rng.uniform(-1.0, 1.0, n) * 1e3 * distance
    sides = [rounded(ideal + sign * error, step) for sign in (-1.0, 1.0)]
    assert largest_loss(*sides, scale) <= Fraction(epsilon)
    # the noise is only slightly larger than necessary for the worst direction
    assert step * scale <= (1 + 1 / 8) * 2 * math.sqrt(n) * distance / epsilon + step


# ------------------------------------------------------------------ Gaussian noise


def log_laws(scale, shift):
    outputs = np.arange(-40 * scale, 40 * scale + shift + 1)
    return [discrete_gaussian_log_density(outputs - at, scale) for at in (0, shift)]


@given(scale=st.integers(1, 9), shift=st.integers(1, 6))
def test_moments_of_integer_shifts_are_at_most_those_of_real_noise(scale, shift):
    here, there = log_laws(scale, shift)
    for place in range(0, np.searchsorted(ORDERS, 20.0), 17):
        order = ORDERS[place]
        exponents = (1 + order) * here - order * there
        moment = exponents.max() + np.log(np.exp(exponents - exponents.max()).sum())
        claimed = moments("gaussian", shift / scale)[place]
        assert moment <= claimed * (1 + 1e-9) + 1e-12


@given(scale=st.integers(4, 12), shift=st.integers(1, 8), epsilon=st.floats(0.0, 3.0))
def test_delta_is_at_most_that_of_slightly_narrower_real_noise(scale, shift, epsilon):
    here, there = log_laws(scale, shift)
    gain = here - there > epsilon
    delta = float(np.exp(here[gain]) @ -np.expm1(epsilon + there[gain] - here[gain]))
    moved = shift / np.sqrt(scale**2 - 9)
    low, high = moved / 2 - epsilon / moved, -moved / 2 - epsilon / moved
    claimed = stats.norm.cdf(low) - np.exp(epsilon) * stats.norm.cdf(high)
    assert delta <= claimed * (1 + 1e-9) + 1e-15
