"""Several buyers of the same sellers, against a grid over every eta, and under nonsense prices."""

import warnings

import numpy as np
import pytest

from convexmarket.allocation.together import _Buyers
from convexmarket.errors import LooseCertificateWarning
from tests.allocation.test_together import CASES, brute_force, buyer, is_certified

#: What no prices share out; the warning says so.
OPEN = "caps, and a bound of one buyer's own"


@pytest.mark.parametrize("name", CASES)
def test_buyers_together_meet_brute_force(name):
    markets, limit = CASES[name]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", LooseCertificateWarning)
        found = is_certified(markets, limit)
    assert (
        (found.gap > 1e-6)
        == (name == OPEN)
        == any(issubclass(one.category, LooseCertificateWarning) for one in said)
    )
    assert found.gap <= 1e-3
    best = brute_force(markets, limit, found)
    assert found.lower_bound <= best * (1 + 1e-8)
    assert found.objective <= best * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_the_prices_the_bound_is_below_what_can_be_bought(seed):
    """The bound of nonsense prices is one, too."""
    rng = np.random.default_rng(seed)
    markets, limit = [buyer(1.0), buyer(3.0)], np.full(3, 0.5)
    buyers = _Buyers(markets, limit, "CLARABEL", None)
    point = buyers.start()
    object.__setattr__(point, "prices", rng.exponential(10.0 ** rng.uniform(-3, 1), 3))
    assert buyers.bound(point, 1e-3)[0] <= 6.230768765 * (1 + 1e-8)
