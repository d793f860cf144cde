"""The exact solver at ranges, free sellers, ties and units, against norms minimised one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from convexmarket.allocation import exact
from convexmarket.allocation.costs import SortedCosts
from convexmarket.allocation.exact import (
    check_feasible,
    highest_cost_bought,
    ratio_of_scales,
    solve_at,
    solve_exact,
)
from convexmarket.allocation.formulations import optimal_weights
from convexmarket.errors import InfeasibleMarketError, SolverError, UnattainedOptimumError
from convexmarket.market import StandardForm

PSI = np.array([0.3, 0.9, 0.1, 2.0, 0.3])


def form(psi=PSI, **changes) -> StandardForm:
    given = {"mu": 1.0, "sigma": 0.5, "gamma": 1.0, "max_weight": 1.0}
    return StandardForm(virtual_costs=np.array(psi, dtype=float), **(given | changes))


def value_at(market: StandardForm, eta: float) -> float:
    return market.objective(optimal_weights(market, market.gamma * eta), eta)


def searched(market: StandardForm) -> tuple[float, float]:
    """Return the best eta and its value from a grid, refined."""
    low, high = max(market.eta_low, 1e-6), min(market.eta_high, 1e6)
    grid = np.geomspace(low, high, 40)
    values = [value_at(market, eta) for eta in grid]
    k = int(np.argmin(values))
    if k in (0, 39):
        return float(grid[k]), values[k]
    ends = np.log(grid[k - 1]), np.log(grid[k + 1])
    best = minimize_scalar(
        lambda x: value_at(market, np.exp(x)), bounds=ends, method="bounded",
        options={"xatol": 1e-9},
    )  # fmt: skip
    return float(np.exp(best.x)), float(best.fun)


# ------------------------------------------------------------------------------- ranges


@pytest.mark.parametrize(
    ("mu", "gamma", "cap"), [(1.0, 1.0, 0.2), (1.0, 50.0, 1.0), (40.0, 1.0, 0.4), (3.0, 1e-3, 0.4)]
)
def test_a_range_binds_only_where_the_optimum_is_outside(mu, gamma, cap) -> None:
    market = form(mu=mu, gamma=gamma, max_weight=cap)
    free = solve_exact(market)
    eta, value = searched(market)
    assert free.eta == pytest.approx(eta, rel=1e-4)
    assert free.objective == pytest.approx(value, rel=1e-9)
    assert free.binding == ()
    for low, high, binding in [
        (0.8, 1.3, ()),
        (1e-4, 1.01, ()),
        (0.99, 1e5, ()),
        (1.0 + 1e-6, 7.0, ("eta_low",)),
        (1.5, 7.0, ("eta_low",)),
        (0.1, 1.0 - 1e-6, ("eta_high",)),
        (0.1, 0.6, ("eta_high",)),
    ]:
        ranged = replace(market, eta_low=low * free.eta, eta_high=high * free.eta)
        found = solve_exact(ranged)
        assert found.binding == binding
        if not binding:
            assert found.eta == pytest.approx(free.eta, rel=1e-12)
            assert found.objective == pytest.approx(free.objective, rel=1e-14)
        else:
            end = ranged.eta_low if binding == ("eta_low",) else ranged.eta_high
            assert found.eta == end
            assert found.objective == pytest.approx(value_at(market, end), rel=1e-12)
            same = solve_at(market, end)
            np.testing.assert_allclose(found.weights, same.weights, rtol=1e-14)
            assert found.lower_bound <= found.objective
            assert found.objective - found.lower_bound <= 1e-12 * found.objective


@pytest.mark.parametrize("ends", [{"eta_low": 2.0}, {"eta_high": 0.05}, {"eta_low": 1e-3}])
def test_a_range_with_one_end(ends) -> None:
    market = form(**ends)
    eta, value = searched(market)
    found = solve_exact(market)
    assert found.objective == pytest.approx(value, rel=1e-8)
    assert found.eta == pytest.approx(eta, rel=1e-4)
    assert found.binding == (() if ends == {"eta_low": 1e-3} else tuple(ends))


def test_without_noise_the_least_privacy_of_the_range_is_best() -> None:
    for mu in (0.0, 1.0):
        found = solve_exact(form(sigma=0.0, mu=mu, eta_low=0.7, eta_high=3.0))
        assert found.eta == 0.7
        assert found.binding == ("eta_low",)
        if mu:
            assert found.objective == pytest.approx(value_at(form(sigma=0.0), 0.7), rel=1e-12)
        else:
            assert found.objective == pytest.approx(0.7 * 0.1, rel=1e-14)


# ----------------------------------------------------------- sellers who are left out


@pytest.mark.parametrize("cap", [1.0, 0.5, 0.3])
@pytest.mark.parametrize("sigma", [1e-3, 0.5, 30.0])
@pytest.mark.parametrize("ends", [{}, {"eta_low": 0.3, "eta_high": 4.0}, {"eta_high": 0.2}])
def test_the_highest_cost_bought_is_above_all_that_are_bought(cap, sigma, ends) -> None:
    for psi in (PSI, np.array([0.0, 0.4, 0.4, 3.0]), np.append(PSI, np.inf)):
        market = form(psi, max_weight=cap, sigma=sigma, **ends)
        ceiling = highest_cost_bought(market, np.sort(psi))
        found = solve_exact(market) if psi[0] or ends or cap < 1 else None
        if found is not None:
            assert psi[found.weights > 0].max() <= ceiling
        spared = highest_cost_bought(market, np.sort(psi), spare=1)
        assert spared >= ceiling


def test_the_highest_cost_bought_by_hand() -> None:
    ordered = np.array([0.1, 0.3, 0.9, 2.0])
    by_hand = {
        1.0: 0.1 + (1.0 + 2 * np.sqrt(0.5 * 0.1)) / (2 * 0.5),
        0.5: 0.3 + (1.0 + 2 * np.sqrt(0.5 * 0.3)) / (2 * 0.5),
        0.3: 2.0 + (1.0 + 2 * np.sqrt(0.5 * 2.0)) / (2 * 0.5),
    }
    for cap, expected in by_hand.items():
        assert highest_cost_bought(form(max_weight=cap), ordered) == pytest.approx(expected)
    assert highest_cost_bought(form(max_weight=0.5), ordered, spare=1) == pytest.approx(
        0.9 + 1.0 + 2 * np.sqrt(0.5 * 0.9)
    )
    # A free seller fills the cap at an objective of mu in the end: t*psi <= mu, 2*c/t < mu.
    free = np.array([0.0, 0.3, 0.9])
    assert highest_cost_bought(form(mu=3.0), free) == pytest.approx(9.0)
    held = form(eta_low=0.25, eta_high=0.5, mu=3.0, gamma=2.0)
    assert highest_cost_bought(held, ordered) == pytest.approx(0.1 + 3.0 / 0.5)
    assert highest_cost_bought(form(sigma=0.0, eta_low=2.0), ordered) == pytest.approx(0.6)
    assert highest_cost_bought(form(), np.array([np.inf, np.inf])) == np.inf


def test_leaving_out_sellers_of_a_large_market_with_few_costs(monkeypatch) -> None:
    """Half of them tie at the least cost: whoever is left out, those stay."""
    monkeypatch.setattr(exact, "_WORTH_PRUNING", 100)
    monkeypatch.setattr(exact, "_SAMPLE", 50)
    for costs in ([0.2, 0.2, 0.5, 9.0], [0.2], [0.2, 0.4], [0.2, 0.3, 40.0, 41.0]):
        psi = np.resize(costs, 200)
        for sigma in (0.01, 1.0, 100.0):
            market = form(psi, sigma=sigma)
            found = solve_exact(market)
            assert found.objective == pytest.approx(value_at(market, found.eta), rel=1e-12)
            with monkeypatch.context() as patch:
                patch.setattr(exact, "_WORTH_PRUNING", np.inf)
                whole = solve_exact(market)
            np.testing.assert_allclose(found.weights, whole.weights, rtol=1e-9, atol=1e-15)
            assert found.objective == pytest.approx(whole.objective, rel=1e-14)
            assert found.objective - found.lower_bound <= 1e-12 * found.objective


# ---------------------------------------------------------------- without a path


@pytest.mark.parametrize(
    ("cap", "weights"),
    [
        (1.0, [0.0, 0.0, 1.0, 0.0, 0.0]),
        (0.5, [0.25, 0.0, 0.5, 0.0, 0.25]),
        (1 / 3, [1 / 3, 0.0, 1 / 3, 0.0, 1 / 3]),
        (0.3, [0.3, 0.1, 0.3, 0.0, 0.3]),
        (0.2, [0.2] * 5),
    ],
)
def test_without_spread_those_who_tie_share_alike(cap, weights) -> None:
    market = form(mu=0.0, max_weight=cap, gamma=2.0)
    found = solve_exact(market)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-12)
    cost = float(PSI @ weights)
    assert found.eta == pytest.approx(np.sqrt(0.5 / (2.0 * cost)))
    assert found.objective == pytest.approx(2 * np.sqrt(0.5 * 2.0 * cost))
    assert found.lower_bound == found.objective
    marginal = PSI[np.array(weights) > 0].max()
    assert found.multiplier == pytest.approx(2.0 * marginal)
    assert found.binding == ()
    for eta, binding in ((found.eta * 2, "eta_low"), (found.eta / 2, "eta_high")):
        ends = {"eta_low": eta, "eta_high": np.inf} if binding == "eta_low" else {"eta_high": eta}
        held = solve_exact(replace(market, **ends))
        assert (held.eta, held.binding) == (eta, (binding,))
        assert held.objective == pytest.approx(0.5 / eta + 2.0 * eta * cost)
        assert solve_at(market, eta).objective == pytest.approx(held.objective)
        assert solve_at(market, eta).binding == ()


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_free_sellers_are_bounded_by_a_range_or_refused(mu) -> None:
    psi = [0.0, 0.6, 0.0, 0.8]
    for cap in (1.0, 0.5):
        market = form(psi, mu=mu, max_weight=cap)
        with pytest.raises(UnattainedOptimumError, match=r"^2 sellers have a virtual cost of 0"):
            solve_exact(market)
        found = solve_exact(replace(market, eta_high=30.0))
        assert (found.eta, found.binding) == (30.0, ("eta_high",))
        np.testing.assert_allclose(found.weights, [0.5, 0.0, 0.5, 0.0], atol=1e-12)
        # Only from below: still without end.
        with pytest.raises(UnattainedOptimumError, match="eta = infinity"):
            solve_exact(replace(market, eta_low=1.0))
    capped = form(psi, mu=mu, max_weight=0.3)
    found = solve_exact(capped)
    assert found.weights.sum() == pytest.approx(1.0)
    if mu:
        assert found.objective == pytest.approx(searched(capped)[1], rel=1e-9)
    else:
        assert found.objective == pytest.approx(2 * np.sqrt(0.5 * (0.3 * 0.6 + 0.1 * 0.8)))


# -------------------------------------------------------------------------- refusals


def test_caps_are_met_up_to_rounding() -> None:
    for m in (3, 7, 49):
        market = form(np.full(m, 0.5), max_weight=np.nextafter(1 / m, 0))
        check_feasible(market)
        np.testing.assert_allclose(solve_exact(market).weights, 1 / m, rtol=1e-14)
    with pytest.raises(InfeasibleMarketError, match=r"^5 of 5 sellers .* cap of 0\.95.* 0\.95 of"):
        check_feasible(form(max_weight=0.19))
    with pytest.raises(InfeasibleMarketError, match=r"^4 of 5 .* cap of 1 they .* 0\.8 of"):
        check_feasible(form([1.0, np.inf, 1.0, 1.0, 1.0], max_weight=0.2))
    check_feasible(form([1.0, np.inf, 1.0, 1.0, 1.0], max_weight=0.25))
    check_feasible(form(eta_low=2.0, eta_high=2.0))
    with pytest.raises(InfeasibleMarketError, match=r"at least 2 and at most 1\.9;"):
        check_feasible(form(eta_low=2.0, eta_high=1.9))


def test_scales_that_double_precision_cannot_weigh() -> None:
    costs = SortedCosts(np.sort(PSI))
    assert ratio_of_scales(form(mu=2.0, gamma=3.0), costs) == pytest.approx(0.5 * 3.0 * 2.0 / 4.0)
    assert ratio_of_scales(form(sigma=0.0), costs) == 0.0
    for mu in (1e-200, 1e200):
        with pytest.raises(SolverError, match="further apart"):
            ratio_of_scales(form(mu=mu, sigma=1e-3), costs)
    for sigma, gamma in ((1e-300, 1e300), (1e300, 1e-300)):
        found = solve_exact(form(mu=0.0, sigma=sigma, gamma=gamma))
        assert found.eta == pytest.approx(np.sqrt(sigma) / np.sqrt(gamma) / np.sqrt(0.1))
    for sigma, gamma, psi in ((1e-320, 1e308, 1e100), (1e308, 1e-308, 1e-300)):
        with (
            np.errstate(over="ignore"),
            pytest.raises(SolverError, match=r"further apart .* closer$"),
        ):
            solve_exact(form([psi, psi], mu=0.0, sigma=sigma, gamma=gamma))


def test_costs_that_vanish_are_said_to() -> None:
    """Half of the smallest number there is, twice, is nothing."""
    with pytest.raises(SolverError, match="further apart"):
        solve_exact(form([5e-324, 5e-324], mu=1e-3, sigma=2.0))
