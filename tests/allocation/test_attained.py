"""The search finds every optimum that is attained, at any eta and for any terms.

The stored optima are minima over grids of eta, where CVXPY solves the market at each eta.
"""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import convexmarket as cm
from convexmarket.allocation.conic import Conic
from convexmarket.allocation.eta_search import Evaluated
from convexmarket.errors import LooseCertificateWarning, SolverError
from tests import one_in
from tests.allocation.builders import Own

M = 3
EQUAL = cm.Sellers(virtual_costs=np.ones(M))
SELLERS = cm.Sellers(virtual_costs=np.array([0.2, 0.6, 1.2]))
X = cp.Variable(M)
UNIT_BOX = cp.suppfunc(X, [X >= -0.1, X <= 0.3])


def norm(a, eps, s):
    return cp.norm(a, 2)


def noise(a, eps, s):
    return s


def cost(a, eps, s):
    return np.array([0.2, 0.6, 1.2]) @ eps


def bias(a, eps, s):
    return np.array([-5.0, 0.0, 0.0]) @ a


#: The term of the package that is equivalent to each function.
SHIPPED = {norm: cm.Spread(), noise: cm.Noise(), cost: cm.Payments()}

#: Stored optimum and terms of each market. A test of the campaign recomputes the optimum.
CASES = {
    "total variation": (-3.000000001, noise, bias, lambda a, eps, s: cp.tv(eps)),
    "standard deviation": (-3.626821905, noise, bias, lambda a, eps, s: cp.std(eps)),
    "above the mean": (-3.367006898, noise, bias, lambda a, eps, s: cp.max(eps) - cp.sum(eps) / M),
    "a utility without noise": (-1.020706921, norm, cost, lambda a, eps, s: -cp.sum(cp.sqrt(eps))),
    "a logarithmic utility": (
        1.565603913,
        norm,
        cost,
        lambda a, eps, s: -cp.sum(cp.log(0.1 + eps)),
    ),
    "a geometric mean": (1.815309028, norm, cost, noise, lambda a, eps, s: -0.3 * cp.geo_mean(eps)),
    "squares over 1/eta": (1.732050808, norm, noise, lambda a, eps, s: cp.quad_over_lin(a, s)),
    "the logarithm of 1/eta": (1.577350269, norm, noise, lambda a, eps, s: -cp.log(s)),
    "a target for 1/eta": (1.027350269, norm, noise, lambda a, eps, s: cp.square(s - 0.7)),
    "entropy of 1/eta": (2.473711946, norm, noise, lambda a, eps, s: cp.kl_div(s, 3.0)),
    "guarantees below one": (
        44.38329653,
        norm,
        lambda a, eps, s: 100 * s,
        lambda a, eps, s: -cp.sum(cp.log(1 - eps)),
    ),
    "1/eta below a half": (2.7070393, norm, noise, cost, lambda a, eps, s: -cp.log(1 - 2 * s)),
    "an optimum of zero": (
        -0.157087674,
        norm,
        noise,
        cost,
        lambda a, eps, s: cp.sum(a) * -(1 / np.sqrt(3) + 2.0),
        lambda a, eps, s: cp.square(cp.sum(eps)) * 0.0 + cp.sum_squares(a),
    ),
    "a nonlinear function": (
        2.886751347,
        norm,
        noise,
        lambda a, eps, s: cp.sum(cp.maximum(cp.reshape(eps, (M, 1), order="F"), s)),
    ),
    "a support function": (1.672795383, norm, noise, lambda a, eps, s: UNIT_BOX(eps)),
    "a support function of a sum": (
        2.145615784,
        norm,
        noise,
        cost,
        lambda a, eps, s: UNIT_BOX(2 * eps - 1),
    ),
}


def market_of(terms, sellers):
    parts = [
        SHIPPED.get(term) or Own(lambda q, t=term: t(q.weights, q.epsilon, q.inverse_eta))
        for term in terms
    ]
    return cm.Market(sellers, sum(parts[1:], 1.0 * parts[0]))


def best_of_grid(terms):
    """Solve a CVXPY declaration at each eta of a grid, and return the smallest optimum."""
    a = cp.Variable(M, nonneg=True)

    def at(log_eta):
        eta = float(np.exp(log_eta))
        objective = sum(term(a, eta * a, cp.Constant(1.0 / eta)) for term in terms)
        problem = cp.Problem(cp.Minimize(objective), [cp.sum(a) == 1])
        try:
            value = problem.solve(solver="CLARABEL")
        except (cp.error.SolverError, ValueError):
            return np.inf
        usable = problem.status == cp.OPTIMAL and value is not None and np.isfinite(value)
        return value if usable else np.inf

    grid = np.linspace(np.log(1e-2), np.log(1e3), 60)
    values = [at(x) for x in grid]
    k = int(np.argmin(values))
    ends = grid[max(k - 1, 0)], grid[min(k + 1, grid.size - 1)]
    fine = minimize_scalar(at, bounds=ends, method="bounded", options={"xatol": 1e-7})
    return min(values[k], fine.fun)


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_the_stored_optimum_equals_the_minimum_over_a_grid(name):
    optimum, *terms = CASES[name]
    assert optimum == pytest.approx(best_of_grid(terms), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_an_attained_optimum_is_found_and_certified(name):
    expected, *terms = CASES[name]
    market = market_of(terms, EQUAL if bias in terms else SELLERS)
    result = cm.allocate(market)
    size = max(abs(expected), result.scale or 0.0)
    assert result.gap <= 1e-6
    assert result.objective == pytest.approx(expected, abs=3e-6 * size)
    assert result.lower_bound <= expected + 1e-7 * size


def test_the_exact_method_supports_an_optimum_of_zero():
    """Equal losses of all sellers shift the objective by a constant."""
    objective = cm.Spread() + cm.Noise() + cm.Payments()
    least = cm.allocate(cm.Market(SELLERS, objective)).objective
    shifted = cm.allocate(cm.Market(SELLERS, objective + cm.Losses(np.full(M, -least))))
    assert shifted.objective == pytest.approx(0.0, abs=1e-9)
    assert shifted.lower_bound <= shifted.objective


@pytest.mark.parametrize("eta", one_in(3, [1e8, 1e10, 1e12, 1e14, 1e16]))
@pytest.mark.parametrize(
    "name", one_in(4, ["a utility without noise", "total variation", "payments"])
)
def test_a_bound_at_a_large_eta_is_below_a_feasible_value(name, eta):
    terms = (norm, noise, cost) if name == "payments" else CASES[name][1:]
    result = Conic(market_of(terms, EQUAL if bias in terms else SELLERS))
    point = result.solve(min(eta, 1e6))
    assert isinstance(point, Evaluated)
    a = point.weights
    values = [term(cp.Constant(a), cp.Constant(eta * a), cp.Constant(1 / eta)) for term in terms]
    feasible = sum(float(value.value) for value in values)
    assert point.cut(eta) <= feasible


@pytest.mark.parametrize("tiny", [1e-9, 1e-15, 1e-20])
@pytest.mark.parametrize("cost", [cm.Payments(), cm.Payments(cm.PowerCost(2))], ids=repr)
def test_an_optimum_at_a_very_large_eta_is_certified(tiny, cost):
    """The payments have a tiny weight, so the gap is small even far below the optimal eta."""
    result = cm.allocate(
        cm.Market(SELLERS, cm.Spread() + cm.Noise() + tiny * cost), "branch_and_bound"
    )
    assert result.gap <= 1e-6


def test_an_infimum_at_infinite_eta_gives_a_warning_and_a_valid_bound():
    """The second seller's guarantee has a finite limit as eta tends to infinity."""
    sellers = cm.Sellers(virtual_costs=np.array([0.0, 1.0]))
    objective = 0.1 * cm.Spread() + cm.Noise() + 0.1 * cm.Payments()
    market = cm.Market(sellers, objective + Own(lambda q: cp.exp(-q.epsilon[1])))
    with pytest.warns(LooseCertificateWarning, match="infimum may be at eta = 0 or infinity"):
        result = cm.allocate(market)
    assert result.lower_bound <= 0.43026
    assert 0.43025 <= result.objective <= 0.4304


@pytest.mark.parametrize("first", [0.2, 0.3])
def test_weights_that_violate_an_equation_are_refused(first):
    sellers = cm.Sellers([0.1, 0.2, 0.3, 0.4], cm.Uniform(0, 1))
    market = cm.Market(sellers, cm.Spread() + cm.Noise(), [cm.GroupShare([0, 0, 1, 1], equal=True)])
    with pytest.raises(SolverError, match=r"violates a constraint by 1\.0e-01"):
        Conic(market).repaired(np.array([first, first, 0.5 - first, 0.5 - first]), 2.0)
