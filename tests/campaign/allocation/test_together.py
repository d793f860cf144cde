"""Several buyers of the same sellers: a grid over every eta, and prices next to the best."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.together import _Buyers
from convexmarket.errors import LooseCertificateWarning
from tests.allocation.test_together import CASES, brute_force, is_certified

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


def test_whatever_the_prices_the_bound_is_nowhere_above():
    """Next to the best prices it nearly touches, and anywhere else it is below."""
    markets, limit = CASES["sold out"]
    found = cm.allocate_together(markets, [cm.MaxEpsilon(limit)])
    buyers = _Buyers(markets, np.full(3, limit), "CLARABEL", None)
    best = buyers.start()
    for factors in ([1, 1, 1], [1.01, 0.99, 1.0], [0.0, 2.0, 1.0]):
        prices = found.prices * factors
        bound, _, _ = buyers.bound(replace(best, prices=prices, objective=np.inf), 1e-6)
        assert bound <= found.objective * (1 + 1e-7)
    assert found.lower_bound >= found.objective * (1 - 1e-6)
