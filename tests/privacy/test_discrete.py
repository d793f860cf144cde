"""Discrete Gaussian noise: its law, exactly, and what it hides, against real Gaussian noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from convexmarket.privacy.composition import ORDERS, moments
from convexmarket.privacy.lattice import accept_exponential, discrete_gaussian
from tests.privacy.builders import REJECTED, discrete_gaussian_log_density, lattice_p_value


@pytest.mark.parametrize("scale", [1, 2, 7])
def test_the_sampler_has_the_law(scale):
    draws = discrete_gaussian(scale, 20_000, np.random.default_rng(1))
    assert lattice_p_value(draws, scale, discrete_gaussian_log_density) > REJECTED
    moved = draws + np.arange(20_000) % 2
    assert lattice_p_value(moved, scale, discrete_gaussian_log_density) < REJECTED


@pytest.mark.parametrize("part", [0, 30, 100, 250])
def test_a_part_is_accepted_with_the_probability_of_its_exponent(part):
    accepted = accept_exponential(np.full(20_000, part), 100, np.random.default_rng(4))
    chance = np.exp(-part / 100)
    assert stats.binomtest(int(accepted.sum()), 20_000, chance).pvalue > REJECTED


# ------------------------------------------------------------------ what it hides


def log_laws(scale, shift):
    outputs = np.arange(-40 * scale, 40 * scale + shift + 1)
    return [discrete_gaussian_log_density(outputs - at, scale) for at in (0, shift)]


@given(scale=st.integers(1, 9), shift=st.integers(1, 6))
def test_moments_of_a_shift_by_integers_are_at_most_those_of_real_noise(scale, shift):
    here, there = log_laws(scale, shift)
    for place in range(0, np.searchsorted(ORDERS, 20.0), 17):
        order = ORDERS[place]
        exponents = (1 + order) * here - order * there
        moment = exponents.max() + np.log(np.exp(exponents - exponents.max()).sum())
        claimed = moments("gaussian", shift / scale)[place]
        assert moment <= claimed * (1 + 1e-9) + 1e-12


@given(scale=st.integers(4, 12), shift=st.integers(1, 8), epsilon=st.floats(0.0, 3.0))
def test_its_delta_is_at_most_that_of_real_noise_a_little_narrower(scale, shift, epsilon):
    here, there = log_laws(scale, shift)
    gain = here - there > epsilon
    delta = float(np.exp(here[gain]) @ -np.expm1(epsilon + there[gain] - here[gain]))
    moved = shift / np.sqrt(scale**2 - 9)
    low, high = moved / 2 - epsilon / moved, -moved / 2 - epsilon / moved
    claimed = stats.norm.cdf(low) - np.exp(epsilon) * stats.norm.cdf(high)
    assert delta <= claimed * (1 + 1e-9) + 1e-15
