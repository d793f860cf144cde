"""The path of optimal weights, against projections and norms minimised one by one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.allocation.costs import Costs
from convexmarket.allocation.path import common_stretches, minimise, point_at, stationary_beta
from convexmarket.allocation.simplex import norm_minimiser

#: Costs up to 1 with the cheapest at 0 or above, tied and not, and caps that fit hardly or well.
PLAIN = np.array([0.05, 0.1, 0.3, 0.45, 0.8, 1.0])
TIED = np.array([0.1, 0.1, 0.1, 0.4, 0.4, 0.9, 1.0, 1.0])
FREE = np.array([0.0, 0.0, 0.3, 0.7, 0.7, 1.0])
MARKETS = [
    (psi, cap)
    for psi in (PLAIN, TIED, FREE, np.full(4, 1.0), np.array([1.0]))
    for cap in (1.0, 0.5, 0.3, 1 / psi.size)
    if cap * psi.size >= 1 - 1e-12 and (psi[0] < 1 or cap == 1)
]


def least(psi, cap, rate):
    """Return the least of ``||a|| + rate*psi'a``, and where it is."""
    limits = np.full(psi.size, max(cap, (1 + 1e-15) / psi.size))
    weights = norm_minimiser(rate * psi, 1.0, limits).weights
    return float(np.linalg.norm(weights) + rate * (psi @ weights)), weights


@pytest.mark.parametrize("rho", [1e-3, 0.1, 2.0])
def test_the_stationary_point_of_a_piece_is_its_local_minimum(rho):
    """F = ||a|| + r*psi'a + rho/r with ||a||^2 = N0 + beta^2 W, psi'a = p0 - beta W, on a grid."""
    norm2 = 0.3
    for spread, cost in product((0.01, 0.2, 1.0, 3.0), (0.05, 0.5, 2.0)):
        beta = np.geomspace(1e-3, min(cost / spread, 1e3) * (1 - 1e-9), 200_001)
        norm = np.sqrt(norm2 + beta**2 * spread)
        rate = beta / norm
        value = norm + rate * (cost - beta * spread) + rho / rate
        minima = np.flatnonzero((value[1:-1] < value[:-2]) & (value[1:-1] < value[2:])) + 1
        found = stationary_beta(*(np.array([x]) for x in (spread, cost, norm2)), rho)[0]
        assert minima.size <= 1
        if minima.size:
            assert found == pytest.approx(beta[minima[0]], rel=2e-4), (spread, cost)
        else:
            assert not beta[0] < found < beta[-1], (spread, cost)


@st.composite
def long_markets(draw):
    """Costs of a market, tied and not, a cap that any but one fit, and a cost of the optimum."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.sampled_from([2, 3, 9, 40, 400, 3000]))
    psi = np.sort(draw(st.sampled_from([rng.random, rng.exponential]))(size=m))
    if draw(st.booleans()):
        psi = np.ceil(psi * draw(st.sampled_from([3, 30]))) / 3
    if draw(st.booleans()):
        psi[0] *= 1e-3
    cap = min(1.0, draw(st.sampled_from([1.0, 1.001, 1.5, 5.0, np.inf])) / (m - 1))
    return psi, cap, rng


@given(long_markets(), st.floats(-6, 3))
def test_common_stretches_hold_the_optimum_of_every_market_with_a_seller_replaced(market, decade):
    psi, cap, rng = market
    base, rho, dearest = Costs(psi), 10**decade, 2.0 * psi[-1]
    ranks = np.concatenate(([0, psi.size - 1], rng.integers(psi.size, size=30)))
    other = psi[0] + (dearest - psi[0]) * rng.random(32)
    new = np.where(rng.random(32) < 0.4, np.inf, other)
    new[:6] = np.inf, np.inf, psi[0], dearest, psi[-1], psi[psi.size // 2]
    rate = float(minimise(base, 1 / cap, rho).rate[0]) * 10 ** rng.uniform(-1, 1)
    stretches = common_stretches(base, 1 / cap, rho, [rate], dearest)
    alone, within = base.replaced(psi[ranks], new), base.replaced(psi[ranks], new, stretches)
    for best in (lambda costs: minimise(costs, 1 / cap, rho),
                 lambda costs: point_at(costs, 1 / cap, rho, rate)):  # fmt: skip
        np.testing.assert_allclose(best(within).value, best(alone).value, rtol=1e-12)
