"""How seeds become generators, and the noise, draw by draw."""

from __future__ import annotations

import numpy as np
import pytest

from convexmarket.errors import ParameterError
from convexmarket.privacy import gamma_sphere_noise, resolve_generator


def test_a_random_state_hands_over_256_bits() -> None:
    """Eight words of 32 bits, each with all its values."""
    seeds = [
        resolve_generator(np.random.RandomState(seed)).bit_generator.seed_seq.entropy
        for seed in range(300)
    ]
    words = np.array(seeds, dtype=np.uint64)
    assert words.shape == (300, 8)
    assert words.max() < 2**32
    assert words.max() > 0.99 * 2**32
    assert words.min() < 0.01 * 2**32
    assert np.unique(words).size > 0.99 * words.size


def test_the_smallest_seed_and_the_smallest_dimension() -> None:
    assert resolve_generator(0).random() == np.random.default_rng(0).random()
    assert gamma_sphere_noise(1, np.random.default_rng(0)).shape == (1,)
    for n_features in (0, -1):
        with pytest.raises(ParameterError, match="n_features"):
            gamma_sphere_noise(n_features, np.random.default_rng(0))


@pytest.mark.parametrize("n_features", [1, 4])
def test_noise_is_a_direction_times_an_independent_norm(n_features) -> None:
    """Two generators in step: the direction by normals, then the norm by a gamma."""
    noise = gamma_sphere_noise(n_features, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    direction = rng.standard_normal(n_features)
    norm = rng.gamma(n_features)
    assert np.linalg.norm(noise) == pytest.approx(norm, rel=1e-12)
    cosine = noise @ direction / np.linalg.norm(noise) / np.linalg.norm(direction)
    assert cosine == pytest.approx(1.0)
