"""Laws of noise, with many draws."""

from fractions import Fraction

import pytest

from tests.privacy.builders import check_gamma_sphere, check_lattice_law


@pytest.mark.parametrize("n_features", [1, 2, 3, 5, 30])
def test_the_norm_is_gamma_and_the_direction_uniform_and_independent(n_features):
    check_gamma_sphere(n_features, 50_000, least_p=1e-4)


@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, Fraction(5, 2), Fraction(7, 3), 12], ids=str)
def test_the_lattice_sampler_has_the_law(scale):
    check_lattice_law(Fraction(scale), 200_000, off=Fraction(1, 20))
