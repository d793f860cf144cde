"""Test the sharp guarantee for many data sets and regularizations."""

import pytest

from tests.privacy.test_sharp import REGULARIZATIONS, check_claim, check_profile, neighbours_of

#: Regularizations that equal 0.01 to 20 when rows of norm 0.5, 1 or 3 are scaled to norm 1.
STRENGTHS = [one / norm**2 for one in (0.01, 0.1, 1.0, 20.0) for norm in (0.5, 1.0, 3.0)]


@pytest.mark.parametrize("regularization", [*REGULARIZATIONS, 1e4])
def test_no_configuration_of_sixty_thousand_exceeds_the_profile(regularization):
    check_profile(regularization, 60_000)


@neighbours_of(STRENGTHS)
def test_no_data_set_of_other_regularizations_exceeds_the_claim(
    n_features, n_rows, strength, scale, norm, seed
):
    check_claim(n_features, n_rows, strength, scale, norm, seed)
