"""Exact evaluations at every eta: where they start, whom they refuse, and their multipliers."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.projections import (
    ProjectableForm,
    Projections,
    _price,
    projectable_form,
    solve_projections,
)

COSTS = np.array([0.1, 0.4, 0.4, 0.9])


def market(*constraints, costs=COSTS, objective=None):
    sellers = cm.Sellers(virtual_costs=np.where(np.isfinite(costs), costs, 1.0))
    for i in np.flatnonzero(np.isinf(costs)):
        sellers = sellers.with_virtual_cost(i, np.inf)
    return cm.Market(sellers, objective or cm.Spread() + cm.Noise() + cm.Payments(), constraints)


def form(squared=False, **changes) -> ProjectableForm:
    given = {
        "virtual_costs": COSTS,
        "losses": np.array([0.3, 0.0, 0.1, 0.0]),
        "spread": cm.SquaredSpread() if squared else cm.Spread(),
        "mu": 2.0,
        "sigma": 0.5,
        "gamma": 0.7,
        "max_weight": 1.0,
        "max_epsilon": np.inf,
        "eta_low": 0.0,
        "eta_high": np.inf,
    }
    return ProjectableForm(**(given | changes))


BOUNDED = {"max_weight": np.array([0.4, 0.3, 1.0, 1.0]), "max_epsilon": np.array([9, 9, 0.3, 9])}


# ------------------------------------------------------------------------------ one eta


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("changes", [{}, {"max_weight": 0.3}, {"max_epsilon": 0.3}, BOUNDED])
@pytest.mark.parametrize("eta", [0.2, 1.0])
def test_a_projection_is_optimal_and_its_cut_proves_it(squared, changes, eta) -> None:
    problem = form(squared, **changes)
    a = cp.Variable(4, nonneg=True)
    spread = cp.sum_squares(a) if squared else cp.norm(a)
    prices = problem.losses + 0.7 * eta * COSTS
    limit = np.minimum(problem.max_weight, problem.max_epsilon / eta)
    constraints = [cp.sum(a) == 1, a <= np.broadcast_to(limit, 4)]
    declared = cp.Problem(cp.Minimize(2.0 * spread + prices @ a), constraints)
    declared.solve(solver="CLARABEL")
    runner = Projections(problem)
    found = runner.solve(eta)
    np.testing.assert_allclose(found.weights, a.value, atol=1e-5)
    assert found.objective == pytest.approx(declared.value + 0.5 / eta, rel=1e-8)
    assert found.cut(eta) == pytest.approx(found.objective, rel=1e-9)
    assert found.cut.price == pytest.approx(-constraints[0].dual_value, abs=1e-4)
    # What a cut says of other values of eta is never more than what is possible there.
    for other in (0.5 * eta, 0.9 * eta, 1.2 * eta, 4.0 * eta):
        if other <= problem.largest_eta():
            assert found.cut(other) <= runner.solve(other).objective * (1 + 1e-10)
    record = runner.records[0]
    assert (record.eta, record.upper, record.lower) == (eta, found.objective, found.cut(eta))


def test_the_price_of_a_vertex_is_that_of_the_dearest_bought() -> None:
    marginal = np.array([1.0, 3.0, 2.0])
    assert _price(np.array([0.5, 0.5, 0.0]), marginal, np.array([0.0, 0.0, 0.5])) == 3.0
    assert _price(np.array([0.5, 0.4, 0.1]), marginal, np.array([0.0, 0.1, 0.4])) == 2.5


def test_the_search_starts_where_noise_and_payments_balance() -> None:
    assert Projections(form()).first() == pytest.approx(np.sqrt(0.5 / (0.7 * 0.45)))
    free = {"virtual_costs": np.zeros(4)}
    assert Projections(form(**free)).first() == 1.0
    assert Projections(form(**free, eta_high=6.0)).first() == 3.0
    assert Projections(form(gamma=0.0, max_epsilon=0.5)).first() == 1.0
    assert Projections(form(gamma=0.0, max_epsilon=0.5, max_weight=0.3)).first() == 1.0 / 1.2 * 1.2


def test_the_range_that_is_searched() -> None:
    region = Projections(form(max_epsilon=0.5, eta_low=0.3)).region
    assert (region.low, region.high) == (0.3, 2.0)
    assert Projections(form(max_epsilon=0.5, eta_high=1.5)).region.high == 1.5
    edge = Projections(form(max_epsilon=0.5, eta_low=2.0 * (1 + 0.9e-12))).region
    assert edge.low == edge.high == 2.0
    with pytest.raises(cm.InfeasibleMarketError, match=r"^4 sellers at no .* 0\.5 sell 2 in all"):
        Projections(form(max_epsilon=0.5, eta_low=2.0 * (1 + 1.1e-12)))


# ---------------------------------------------------------------------------- whole markets


def test_seconds_of_evaluations_are_part_of_the_whole() -> None:
    found = solve_projections(market(cm.MaxEpsilon(0.5)))
    assert len(found.solves) > 1
    assert all(record.seconds >= 0 for record in found.solves)
    assert sum(record.seconds for record in found.solves) <= found.seconds < 60


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_free_sellers_without_a_bound_have_no_optimum(scale) -> None:
    free = market(costs=np.zeros(3), objective=scale * (cm.Spread() + cm.Noise()) + cm.Payments())
    with pytest.raises(cm.UnattainedOptimumError):
        solve_projections(free)
    bounded = solve_projections(
        market(cm.EtaRange(1.0, 8.0), costs=np.zeros(3), objective=free.objective)
    )
    assert bounded.eta == pytest.approx(8.0)
    assert bounded.objective == pytest.approx(scale * (1 / np.sqrt(3) + 1 / 8), rel=1e-9)


def test_a_range_of_one_eta_binds_at_both_ends() -> None:
    found = solve_projections(market(cm.EtaRange(0.5, 0.5), cm.Cap(2.0)))
    assert found.eta == 0.5
    assert found.binding == ("eta_low", "eta_high")
    free = solve_projections(market(cm.EtaRange(1e-3, 1e3), cm.Cap(2.0)))
    assert free.binding == ()


def test_who_cannot_sell_is_left_out() -> None:
    costs = np.array([0.1, np.inf, 0.4, 0.9, 0.2])
    caps, most = np.array([2.0, 5, 0, 5, 5]), np.array([5.0, 5, 5, 0.4, 5])
    declared = market(cm.Cap(caps), cm.MaxEpsilon(most), costs=costs)
    problem, able = projectable_form(declared).restricted()
    assert able.tolist() == [True, False, False, True, True]
    assert problem.max_weight.tolist() == [0.4, 1.0, 1.0]
    assert problem.max_epsilon.tolist() == [5.0, 0.4, 5.0]
    assert problem.virtual_costs.tolist() == [0.1, 0.9, 0.2]
    found = solve_projections(declared)
    assert found.weights[~able].tolist() == [0.0, 0.0]
    alone = solve_projections(market(cm.Cap([1.2, 3, 3]), cm.MaxEpsilon([5, 0.4, 5]),
                                     costs=costs[able]))  # fmt: skip
    assert found.objective == pytest.approx(alone.objective, rel=1e-9)


def test_markets_in_which_nobody_or_too_few_can_sell() -> None:
    with pytest.raises(cm.InfeasibleMarketError, match="infinite virtual cost: nobody can sell"):
        projectable_form(market(costs=np.full(4, np.inf))).restricted()
    nobody = market(cm.Cap([0, 4, 0, 4]), costs=np.array([0.1, np.inf, 0.1, np.inf]))
    with pytest.raises(cm.InfeasibleMarketError, match="excluded by a bound of zero"):
        projectable_form(nobody).restricted()
    # The caps are to blame, though what is asked for is more than those guarantees add up to too.
    some = np.array([0.1, np.inf, 0.3, np.inf])
    few = market(cm.Cap(1.9), cm.MaxEpsilon(0.1), cm.EtaRange(5.0, 9.0), costs=some)
    with pytest.raises(cm.InfeasibleMarketError, match=r"2 weights .* 0\.475 cannot sum to one"):
        projectable_form(few).restricted()
    enough = market(cm.Cap(2.0), costs=some)
    assert solve_projections(enough).weights.tolist() == [0.5, 0.0, 0.5, 0.0]


@pytest.mark.parametrize(
    "objective",
    [
        cm.Noise() + cm.Payments(),
        cm.Spread() + cm.SquaredSpread() + cm.Noise() + cm.Payments(),
        cm.Spread(3) + cm.Noise() + cm.Payments(),
        cm.Spread() + cm.Noise(),
    ],
)
def test_other_markets_are_refused(objective) -> None:
    assert projectable_form(market(objective=objective)) is None
    with pytest.raises(cm.NotSupportedError, match=r"^projections serve sums"):
        solve_projections(market(objective=objective))


def test_a_market_in_numbers() -> None:
    objective = 3 * cm.SquaredSpread() + 0.5 * cm.Noise() + 2 * cm.Losses([1.0, 0, 0, 4])
    declared = market(
        cm.MaxEpsilon(0.5), cm.MaxEpsilon([1, 0.2, 1, 1]), cm.EtaRange(0.1, 3), cm.EtaRange(0.2, 7),
        cm.Cap(2.0), objective=objective + cm.Losses([0, 1.0, 0, 0]),
    )  # fmt: skip
    found = projectable_form(declared)
    assert isinstance(found.spread, cm.SquaredSpread)
    assert (found.mu, found.sigma, found.gamma) == (3.0, 0.5, 0.0)
    assert found.losses.tolist() == [2.0, 1.0, 0.0, 8.0]
    assert (found.eta_low, found.eta_high, found.max_weight) == (0.2, 3.0, 0.5)
    assert found.max_epsilon.tolist() == [0.5, 0.2, 0.5, 0.5]
    plain = projectable_form(market())
    assert (plain.eta_low, plain.eta_high, plain.max_weight) == (0.0, np.inf, 1.0)
    assert plain.losses.tolist() == [0.0] * 4
    without_noise = cm.Spread() + cm.Payments()
    with pytest.raises(cm.UnattainedOptimumError, match="sigma"):
        solve_projections(market(objective=without_noise))


@pytest.mark.parametrize(
    ("objective", "limits", "eta", "binding"),
    [
        (cm.SquaredSpread() + cm.Noise() + cm.Payments(), (0.1, 0.5), 0.5, ("eta_high",)),
        (cm.SquaredSpread() + cm.Noise() + cm.Payments(), (9.0, 20.0), 9.0, ("eta_low",)),
        (cm.SquaredSpread() + cm.Payments(), (0.5, 2.0), 0.5, ("eta_low",)),
    ],
)
def test_an_end_of_the_range_that_decides_is_met_and_named(objective, limits, eta, binding):
    sellers = cm.Sellers(virtual_costs=[0.1, 0.4, 0.4, 0.9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cm.allocate(cm.Market(sellers, objective, [cm.EtaRange(*limits)]))
    assert found.method == "projections"
    assert found.eta == eta
    assert found.binding == binding
    assert found.gap <= 1e-10
