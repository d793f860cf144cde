"""Test certificates of markets in which the terms and the costs differ by orders of magnitude."""

import pytest

import convexmarket as cm
from tests.allocation.test_variants import GAP, far_apart


@pytest.mark.parametrize("seed", range(150))
def test_terms_of_very_different_sizes_are_certified(seed):
    result = cm.allocate(far_apart(seed))
    assert result.gap <= GAP
    assert len(result.solves) <= 40
