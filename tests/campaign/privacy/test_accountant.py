"""Advanced composition over thousands of releases."""

import pytest

from tests.privacy.builders import check_advanced_composition


@pytest.mark.parametrize(("budget", "each"), [(10.0, 0.01), (20.0, 0.02), (5.0, 0.003)])
@pytest.mark.parametrize("delta", [1e-8, 1e-4])
def test_advanced_composition_keeps_its_promise_to_the_worst_mechanism(budget, each, delta):
    check_advanced_composition(budget, each, delta)
