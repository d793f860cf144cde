"""Certificates are valid for all combinations of false multipliers and markets."""

import pytest

from tests.allocation.builders import FALSE_VALUES
from tests.allocation.test_variants import KINKED, assert_valid_bounds


@pytest.mark.parametrize("kind", FALSE_VALUES)
@pytest.mark.parametrize("name", KINKED)
def test_meaningless_multipliers_give_valid_bounds(name, kind, monkeypatch):
    assert_valid_bounds(name, kind, monkeypatch)
