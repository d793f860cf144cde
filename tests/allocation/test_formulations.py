"""The three formulations agree, comply with DPP, and return feasible weights."""

import cvxpy as cp
import numpy as np
import pytest

from convexmarket.allocation import declare
from convexmarket.allocation.exact_solver import dual_bound
from convexmarket.allocation.formulations import optimal_weights
from convexmarket.errors import InfeasibleMarketError, NotSupportedError, ParameterError
from convexmarket.market import Market, StandardForm
from convexmarket.terms import EtaRange, Noise, Payments, Spread
from tests.allocation import builders
from tests.allocation.builders import FORMULATIONS, sellers_of, uniform_market

PSI = np.array([0.1, 0.2, 0.2, 9.0])


def form(psi=PSI, **changes) -> StandardForm:
    return builders.form(psi, **changes)


# -------------------------------------------------------------- the declarations


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("cap", [None, 2])
def test_declarations_are_dpp_compliant_cvxpy_problems(formulation, cap):
    problem = declare(uniform_market(cap=cap), 900.0, formulation)
    assert isinstance(problem, cp.Problem)
    assert problem.is_dcp(dpp=True)
    assert problem.formulation == formulation
    assert ("beta" if formulation == "projection" else "eta") in problem.param_dict
    assert problem.eta == pytest.approx(900, rel=1e-9)


# --------------------------------------------- sellers with infinite costs


def test_sellers_with_infinite_virtual_cost_get_no_weight():
    numbers = {"mu": 1.0, "sigma": 1.0, "gamma": 1.0, "cap": 2.0}
    market = Market.standard(sellers_of([0.5, np.inf, 1.0, np.inf]), **numbers)
    for formulation in FORMULATIONS:
        problem = declare(market, 1.0, formulation)
        problem.solve(solver="CLARABEL")
        np.testing.assert_allclose(problem.weights, [0.5, 0, 0.5, 0], atol=1e-6)
    with pytest.raises(InfeasibleMarketError, match="raise the cap"):
        declare(Market.standard(sellers_of([0.5, np.inf, np.inf]), **numbers), 1.0)
    with pytest.raises(InfeasibleMarketError, match="infinite virtual cost"):
        declare(Market.standard(sellers_of([np.inf]), **numbers), 1.0)


# ------------------------------------------------------------ weights and prices


@pytest.mark.parametrize("cap", [1.0, 0.4, 0.25])
@pytest.mark.parametrize("t", [0.05, 1.0, 8.0])
def test_optimal_weights_and_bounds_agree_with_the_declaration(cap, t):
    market = form(max_weight=cap)
    a = cp.Variable(4, nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.norm(a) + t * PSI @ a), [cp.sum(a) == 1, a <= cap])
    problem.solve(solver="CLARABEL")
    weights = optimal_weights(market, t)
    np.testing.assert_allclose(weights, a.value, atol=1e-4)
    assert dual_bound(market, t * PSI, weights) == pytest.approx(problem.value, rel=1e-7)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("formulation", ["dual", "projection"])
def test_only_the_primal_is_supported_without_a_spread(formulation):
    market = uniform_market(mu=0.0)
    with pytest.raises(NotSupportedError, match="formulation='primal'"):
        declare(market, 1.0, formulation)
    problem = declare(market, 1.0)
    problem.solve(solver="CLARABEL")
    assert problem.weights.argmax() == market.sellers.virtual_costs.argmin()


@pytest.mark.parametrize("formulation", ["primal", "dual", "projection"])
def test_a_declaration_accepts_eta_within_1e_9_of_the_range(formulation):
    ranged = uniform_market(3, eta_range=(1.0, 2.0))
    problem = declare(ranged, 1.5, formulation)
    for eta in (1.0, 2.0, 1 - 0.9e-9, 2 * (1 + 0.9e-9)):
        problem.eta = eta
        assert problem.eta == pytest.approx(eta, rel=1e-7)
    for eta in (1 - 1e-8, 2 * (1 + 1e-8), 0.0, np.inf):
        with pytest.raises(ParameterError, match=r"eta is .* EtaRange|eta must be .* > 0"):
            problem.eta = eta


@pytest.mark.parametrize("formulation", ["dual", "projection"])
def test_nonstandard_markets_support_only_the_primal(formulation):
    sellers = sellers_of([1.0, 2.0])
    market = Market(sellers, Spread(3) + Noise() + Payments(), [EtaRange(1, 2)])
    with pytest.raises(NotSupportedError, match=f"{formulation} formulation.*Payments.*primal"):
        declare(market, 1.0, formulation)
    assert declare(market, 1.0).solve() > 0
    with pytest.raises(ParameterError, match="eta is 3, outside what EtaRange"):
        declare(market, 3)
