"""False multipliers of every kind, in every market, give valid certificates."""

import pytest

from tests.allocation.builders import NONSENSE
from tests.allocation.test_variants import KINKED, proves_nothing_wrong


@pytest.mark.parametrize("kind", NONSENSE)
@pytest.mark.parametrize("name", KINKED)
def test_meaningless_multipliers_give_valid_bounds(name, kind, monkeypatch):
    proves_nothing_wrong(name, kind, monkeypatch)
