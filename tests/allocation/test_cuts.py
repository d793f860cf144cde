"""Cuts from points and multipliers are valid lower bounds, and are tangent at the optimum."""

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.cuts import KeptSpreadCut, Linearizer
from convexmarket.allocation.views import FixedEta, MarketExpressions
from tests.allocation import builders
from tests.allocation.brute_force import ACCURATE, BruteForce
from tests.allocation.builders import COST_FUNCTIONS, COSTS, POINT, SPREADS


def linearizer(objective, *constraints, costs=COSTS, scale=1.0) -> Linearizer:
    return Linearizer(
        MarketExpressions(builders.market(*constraints, objective=objective, costs=costs), scale)
    )


def solved(maker, eta):
    """Solve at a fixed eta, and return the weights, the value and the multipliers."""
    problem = FixedEta(maker.view, eta, kinks=True)
    problem.solve(solver="CLARABEL", **ACCURATE)
    return problem.weights, problem.value, *problem.proof()


# ------------------------------------------------------------- rounding errors


@given(st.integers(0, 2**32 - 1))
def test_a_computed_bound_is_at_most_the_bound_in_exact_arithmetic(seed):
    """The constant and the linear part cancel, so the rounding errors of the sum are visible."""
    rng = np.random.default_rng(seed)
    costs, slopes = -rng.uniform(1, 2, 4), -rng.uniform(1, 2, 4)
    eta, noise = 10.0 ** rng.uniform(-3, 9), rng.uniform()
    const = -float((costs + eta * slopes).min())
    cut = KeptSpreadCut(const, noise, costs, slopes, lambda linear: float(linear.min()), 0.0)
    pairs = zip(costs.tolist(), slopes.tolist(), strict=True)
    least = min(Fraction(a) + Fraction(eta) * Fraction(b) for a, b in pairs)
    rest = Fraction(noise) / Fraction(eta)
    exact = Fraction(const) + least + rest
    assert Fraction(cut(eta)) <= exact
    assert exact - Fraction(cut(eta)) <= Fraction(1e-13) * (1 + abs(Fraction(const)) + rest)


# ------------------------------------------------------------- below the optimum


def assert_cuts_are_valid(spread, cost, eta, seed):
    """Check cuts with the solver's multipliers, without multipliers and with random multipliers."""
    rng, m = np.random.default_rng(seed), 5
    objective = 1.0 * cm.Noise() + 0.7 * cm.Payments(cost)
    objective += 0.5 * spread if spread else 0.1 * cm.Noise()
    constraints = [cm.Cap(2.5), cm.MaxEpsilon(1.2), cm.GroupShare([0, 0, 1, 1, 1], {0: 0.3})]
    reports = np.random.default_rng(0).uniform(0.1, 1, m)
    market = cm.Market(cm.Sellers(reports, prior=cm.Uniform(0.1, 1)), objective, constraints)
    brute, linearizer = BruteForce(market), Linearizer(MarketExpressions(market))
    grid = np.geomspace(0.05, 5.9, 15)
    optimal = np.array([brute(point) for point in grid])
    assert np.isfinite(optimal).all()
    weights, best, duals, hints = solved(linearizer, eta)
    correct = linearizer.cut(weights, eta, duals, hints)
    random_duals = [rng.normal(size=np.shape(dual)) for dual in duals]
    others = [
        linearizer.cut(weights, eta, [None] * len(duals), {}),
        linearizer.cut(rng.dirichlet(np.ones(m)), eta, duals, {}),
        linearizer.cut(rng.dirichlet(np.ones(m)), 3.3 * eta, random_duals, {}),
    ]
    assert correct(eta) == pytest.approx(best, rel=1e-6)
    for cut in [correct, *others, *(correct.blend(other, 0.3) for other in others)]:
        values = np.array([cut(point) for point in grid])
        assert np.all(values <= optimal + 1e-7 * np.abs(optimal))
        for low, high in ((0, 0.2), (0.05, 0.5), (0.3, 5.0), (1.0, np.inf)):
            inside = optimal[(grid >= low) & (grid <= high)]
            assert cut.minimum(low, high)[1] <= inside.min() * (1 + 1e-7)


@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([cm.Spread(), None]))
def test_blended_multipliers_bound_the_interval_between_two_cuts(seed, spread):
    """Compare the bound with convex combinations of the two cuts on a grid of eta."""
    rng, n = np.random.default_rng(seed), 4

    def lowest(costs):
        return spread.simplex_minimum(0.7, costs) if spread else np.min(costs, axis=-1)

    def tangent():
        costs, slopes = rng.normal(size=(2, n)) * np.exp(rng.normal(size=(2, 1)))
        return KeptSpreadCut(rng.normal(), rng.normal(), costs, slopes, lowest, 0.0)

    cuts, low = (tangent(), tangent()), np.exp(rng.normal())
    high = low * (1 + np.exp(rng.normal()))
    _, bound = cuts[0].interval_bound(cuts[1], low, high)
    shares = np.linspace(0, 1, 201)
    between = [cuts[0].blend(cuts[1], share)(low + share * (high - low)) for share in shares]
    scale = 1 + max(map(abs, between))
    assert bound <= min(between) + 1e-12 * scale
    assert cuts[0].interval_bound(cuts[0], low, high) == pytest.approx(
        cuts[0].minimum(low, high), rel=1e-9
    )


@given(
    st.sampled_from([*SPREADS, None]),
    st.sampled_from(COST_FUNCTIONS),
    st.floats(0.3, 4.0),
    st.integers(0, 2**32 - 1),
)
def test_a_cut_is_below_the_optimum_everywhere(spread, cost, eta, seed):
    assert_cuts_are_valid(spread, cost, eta, seed)


@given(st.integers(0, 2**32 - 1))
def test_the_minimum_over_the_simplex_equals_the_optimum_of_a_declaration(seed):
    """Also check that the minimum is at most the value at feasible points."""
    rng = np.random.default_rng(seed)
    for term in [cm.Spread(p) for p in (1.05, 1.5, 2, 7, np.inf)] + SPREADS[4:]:
        m, weight = rng.choice([1, 2, 7]), rng.choice([1e-3, 1.0, 50.0])
        costs = rng.normal(size=(2, m)) * 10.0 ** rng.integers(-3, 4, (2, 1))
        result = term.simplex_minimum(weight, costs)
        assert result.shape == (2,)
        for row, value in zip(costs, result, strict=True):
            a = cp.Variable(m, nonneg=True)
            spread = term.expression(cm.terms.Quantities(a, a, cp.Constant(1), row))
            unit = weight + np.abs(row).max()
            objective = (weight / unit) * spread + (row / unit) @ a
            best = cp.Problem(cp.Minimize(objective), [cp.sum(a) == 1]).solve(solver="CLARABEL")
            assert value == pytest.approx(unit * best, abs=2e-6 * unit), term
            for point in rng.dirichlet(np.ones(m), 6):
                at = cm.terms.Quantities.at(point, 1.0, row)
                objective = weight * float(term.expression(at).value) + row @ point
                assert value <= objective + 1e-12 * unit, term


# ---------------------------------------------------------------------- tangents


def test_invalid_multipliers_are_ignored():
    """Negative multipliers of inequalities are replaced by zero. NaN and infinity are ignored."""
    maker = linearizer(cm.Noise() + cm.Payments(), cm.Cap(2.0))
    without_dual = maker.cut(POINT, 2.0, [None], {})
    for dual in (np.full(3, -1.0), np.full(3, np.nan), np.array([1.0, np.inf, 0.0])):
        cut = maker.cut(POINT, 2.0, [dual], {})
        np.testing.assert_array_equal(cut.costs, without_dual.costs)
        assert cut.const == without_dual.const
    with_dual = maker.cut(POINT, 2.0, [np.array([-1.0, 0.5, 0.0])], {})
    np.testing.assert_allclose(with_dual.costs - without_dual.costs, [0, 1.5, 0])


# -------------------------------------------------------------- tangency

MARKETS = {
    "a spread": (cm.Spread() + cm.Noise() + 0.5 * cm.Payments(), []),
    "a cost": (0.1 * cm.Noise() + 0.5 * cm.Payments(cm.PowerCost(2)), []),
    "a spread and a bound": (
        cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments(cm.terms.ExponentialCost()),
        [cm.Cap(1.4), cm.MaxEpsilon([0.7, 3.0, 3.0])],
    ),
    "the largest weight and a cost": (
        0.4 * cm.Spread(np.inf) + cm.Noise() + 0.5 * cm.Payments(cm.PowerCost(2)),
        [],
    ),
    "the largest weight and a spread": (
        0.8 * cm.Spread(np.inf) + 0.3 * cm.Spread() + cm.Noise() + 0.5 * cm.Payments(),
        [],
    ),
}


@pytest.mark.parametrize("name", MARKETS)
def test_a_cut_is_tangent_to_the_optimal_value_and_below_it(name):
    objective, constraints = MARKETS[name]
    market = builders.market(*constraints, objective=objective)
    maker = Linearizer(MarketExpressions(market, 0.5))
    weights, value, *proof = solved(maker, 1.5)
    cut = maker.cut(weights, 1.5, *proof)
    assert cut(1.5) == pytest.approx(value, rel=1e-7)
    ends = {eta: solved(maker, eta)[1] for eta in (0.3, 1.48, 1.52, 1.9)}
    for eta, best in ends.items():
        assert cut(eta) <= best * (1 + 1e-7)
    slope = (ends[1.52] - ends[1.48]) / 0.04
    assert (cut(1.52) - cut(1.48)) / 0.04 == pytest.approx(slope, abs=0.02)
