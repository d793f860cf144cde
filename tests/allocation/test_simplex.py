"""Test projections, purchases and norms on the capped simplex, with ties and tight caps."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convexmarket.allocation.simplex import (
    cheapest_purchase,
    feasible_limits,
    largest_eta,
    norm_minimiser,
    project_capped_simplex,
)
from convexmarket.errors import InfeasibleMarketError, ParameterError


def projected(point, limits):
    """Compute the exact projection in rational arithmetic from all breakpoints."""
    point, limits = ([Fraction(float(x)) for x in part] for part in (point, limits))

    def weights(level):
        return [min(max(x - level, 0), cap) for x, cap in zip(point, limits, strict=True)]

    levels = sorted({*point, *(x - cap for x, cap in zip(point, limits, strict=True))})
    k = next(k for k, level in enumerate(levels) if sum(weights(level)) <= 1)
    high, low = levels[k], levels[max(k - 1, 0)]
    least, most = sum(weights(high)), sum(weights(low))
    level = high - (1 - least) * (high - low) / (most - least) if most > 1 else high
    return np.array(weights(level), dtype=float)


@given(st.integers(0, 2**32 - 1))
def test_a_projection_is_accurate_to_the_last_digits(seed):
    """Points are far from the origin or have ties, and some caps have a sum close to one."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 40))
    point = [
        rng.normal(size=m),
        rng.random(m) * 10.0 ** rng.integers(-8, 9),
        np.round(rng.normal(size=m), 1),
        rng.choice([-0.5, 0.0, 0.25, 0.5, 9.0], m),
        -rng.pareto(0.5, m),
        rng.choice([0.0, 1e-12, 1e6, -1e16], m),
    ][rng.integers(6)]
    limits = [
        np.full(m, rng.uniform(1, 3) / m),
        rng.uniform(0, 3 / m, m),
        np.where(rng.random(m) < 0.3, 0, 2.0 / m),
        rng.choice([0.0, 0.25, 0.5, 1.6], m),
        10.0 ** rng.uniform(-6, 0, m),
    ][rng.integers(5)]
    if limits.sum() < 1:
        with pytest.raises(InfeasibleMarketError, match="cannot sum to one"):
            project_capped_simplex(point, limits)
        return
    result = project_capped_simplex(point, limits)
    assert result.sum() == pytest.approx(1.0, abs=4e-16)
    assert np.all((result >= 0) & (result <= limits))
    np.testing.assert_allclose(result, projected(point - point.max(), limits), atol=1e-15)


def test_entries_of_minus_infinity_project_to_zero():
    result = project_capped_simplex([-np.inf, -2e5, 0.0, -np.inf, 0.0], 0.4)
    np.testing.assert_allclose(result, [0.0, 0.2, 0.4, 0.0, 0.4], atol=1e-15)
    vertex = project_capped_simplex([-np.inf, -7.0], np.array([3.0, 1.0]))
    assert vertex.tolist() == [0.0, 1.0]
    with pytest.raises(InfeasibleMarketError, match=r"1 weights of at most 0\.4 .* at most 0\.4;"):
        project_capped_simplex([-np.inf, 3.0], 0.4)
    with pytest.raises(InfeasibleMarketError, match=r"0 weights of at most 0 "):
        feasible_limits(np.zeros(3))
    for bad in ([0.0, np.inf], [np.nan, 0.0]):
        with pytest.raises(ParameterError, match=r"NaN or \+inf"):
            project_capped_simplex(bad)


@given(
    st.lists(st.sampled_from([0.0, 0.0, 0.2, 1.0, 1.0, 4.0, 30.0]), min_size=1, max_size=7),
    st.sampled_from([0.0, 1e-12, 0.1, 0.7, 1.3, 99.0]),
)
def test_the_cheapest_purchase_fills_the_cheapest_sellers_first(costs, excess):
    costs = np.array(costs)
    cap = min(1.0, (1.0 + excess) / costs.size)
    filled = np.diff(np.minimum(cap * np.arange(costs.size + 1), 1.0))
    expected = float(np.sort(costs) @ filled)
    assert cheapest_purchase(costs, cap) == pytest.approx(expected, rel=1e-11, abs=1e-15)
    shifted = cheapest_purchase(costs + 2.0, cap)  # sellers with weight zero do not change the cost
    assert shifted == pytest.approx(expected + 2.0, rel=1e-11)


@example([0.3, 0.0, 0.0, 2.0], [0.5, 0.4, 0.4, 1.0], 0.5)
@example([0.3, 0.0, 0.0, 2.0], 0.3, 0.5)
@example([-1.0, 0.0, 80.0, 2.0], 1.0, 40.0)
@given(
    st.lists(st.sampled_from([-1.0, 0.0, 0.0, 0.3, 2.0, 80.0]), min_size=4, max_size=4),
    st.lists(st.sampled_from([0.15, 0.4, 0.5, 1.0]), min_size=4, max_size=4).filter(
        lambda caps: sum(caps) >= 1
    )
    | st.sampled_from([0.25, 0.3, 0.6, 1.0]),
    st.sampled_from([1e-3, 0.5, 1.0, 40.0]),
)
def test_the_norm_is_minimised_under_common_and_individual_caps(costs, caps, mu):
    costs, caps = np.array(costs), np.array(caps)
    weights = norm_minimiser(costs, mu, np.broadcast_to(caps, 4)).weights
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert np.all((weights >= 0) & (weights <= caps))
    slope = mu * weights / np.linalg.norm(weights) + costs
    least, most = slope[weights < caps - 1e-12], slope[weights > 1e-12]
    if least.size and most.size:  # no shift of weight between sellers lowers the objective
        assert most.max() <= least.min() + 1e-9 * (mu + np.ptp(costs))


@pytest.mark.parametrize(
    ("caps", "bounds", "expected"),
    [
        (1 / 3, 0.5, 1.5),
        ([0.2, 0.5, 0.5], 0.5, 1.0 / 0.8),  # the first weight reaches its cap at eta = 2.5
        ([0.2, 0.5, 0.5], [0.1, 0.5, 0.9], 1.2),
        ([0.2, 0.3, 0.5], [0.1, 0.5, 0.9], 0.5),  # the caps sum to one
        ([0.2, 0.6, 0.6], [0.6, 0.2, 0.2], 0.5),
        (0.4, [0.5, np.inf, 0.5], np.inf),
    ],
)
def test_the_largest_total_guarantee_satisfies_all_bounds(caps, bounds, expected):
    result = largest_eta(np.array(caps), np.array(bounds), 3)
    assert result == pytest.approx(expected, rel=1e-14)
    if result < np.inf:
        caps, bounds = np.broadcast_to(caps, 3), np.broadcast_to(bounds, 3)
        at, beyond = (np.minimum(caps, bounds / (result * x)).sum() for x in (1, 1.01))
        assert at == pytest.approx(1.0, rel=1e-14)
        assert beyond < 1
