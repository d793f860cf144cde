"""The noise has the density it claims, and its seed is handled as documented."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from convexmarket.errors import ParameterError
from convexmarket.privacy import (
    gamma_sphere_log_density,
    gamma_sphere_noise,
    resolve_generator,
    secure_generator,
)


def draw(n_features: int, n_draws: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(7)
    return np.array([gamma_sphere_noise(n_features, rng) for _ in range(n_draws)])


@pytest.mark.parametrize("n_features", [1, 2, 5, 30])
def test_the_norm_is_gamma(n_features: int) -> None:
    norms = np.linalg.norm(draw(n_features), axis=1)
    assert stats.kstest(norms, stats.gamma(n_features).cdf).pvalue > 1e-3


def test_the_direction_is_uniform_and_independent_of_the_norm() -> None:
    noise = draw(3)
    norms = np.linalg.norm(noise, axis=1)
    # Archimedes: each coordinate of a uniform point on the sphere in three dimensions is uniform.
    for cosine in (noise / norms[:, None]).T:
        assert stats.kstest(cosine, stats.uniform(-1, 2).cdf).pvalue > 1e-3
        assert abs(stats.spearmanr(cosine, norms).statistic) < 0.06


def test_one_dimension_is_laplace() -> None:
    assert stats.kstest(draw(1)[:, 0], stats.laplace.cdf).pvalue > 1e-3


@pytest.mark.parametrize("n_features", [1, 2, 3, 6])
def test_the_density_integrates_to_one_over_spheres(n_features: int) -> None:
    area = {1: 2.0, 2: 2 * np.pi, 3: 4 * np.pi, 6: np.pi**3}[n_features]

    def shell(radius: float) -> float:
        density = np.exp(gamma_sphere_log_density(radius, n_features))
        return area * radius ** (n_features - 1) * density

    assert integrate.quad(shell, 0, np.inf)[0] == pytest.approx(1.0, rel=1e-7)


def test_noise_needs_a_dimension() -> None:
    with pytest.raises(ParameterError, match="n_features"):
        gamma_sphere_noise(0, np.random.default_rng(0))


def test_secure_generators_differ() -> None:
    assert secure_generator().random() != secure_generator().random()
    assert resolve_generator(None).random() != resolve_generator(None).random()


@pytest.mark.parametrize(
    "make", [lambda: 3, lambda: np.int64(3), lambda: np.random.SeedSequence(3)]
)
def test_a_seed_reproduces(make) -> None:
    assert resolve_generator(make()).random() == np.random.default_rng(3).random()


def test_a_generator_is_used_as_it_is() -> None:
    rng = np.random.default_rng(3)
    assert resolve_generator(rng) is rng


def test_a_random_state_reproduces_and_advances() -> None:
    state = np.random.RandomState(3)
    first, second = resolve_generator(state).random(), resolve_generator(state).random()
    assert first != second
    assert first == resolve_generator(np.random.RandomState(3)).random()


@pytest.mark.parametrize("bad", ["seed", 1.5, -1, True])
def test_a_wrong_seed_is_refused(bad) -> None:
    with pytest.raises(ParameterError, match="random_state"):
        resolve_generator(bad)
