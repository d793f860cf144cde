"""Markets whose numbers have nothing to do with each other, each certified."""

import pytest

import convexmarket as cm
from tests.allocation.test_variants import GAP, far_apart


@pytest.mark.parametrize("seed", range(150))
def test_sizes_that_are_far_apart_are_certified(seed):
    result = cm.allocate(far_apart(seed))
    assert result.gap <= GAP
    assert len(result.solves) <= 40
