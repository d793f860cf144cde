"""Test the distributions of noise with many draws."""

import pytest

from tests.privacy.builders import check_gamma_sphere, check_lattice_law


@pytest.mark.parametrize("n_features", [1, 2, 3, 5, 30])
def test_norms_are_gamma_and_directions_uniform_and_independent(n_features):
    check_gamma_sphere(n_features, 50_000, least_p=1e-4)


@pytest.mark.parametrize("scale", [1, 2, 3, 12])
def test_the_lattice_sampler_has_the_stated_law(scale):
    check_lattice_law(scale, 200_000, off=0.05)
