"""The certified search finds the global minimum. Its certificate is valid for any solver output."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.formulations import line_search
from convexmarket.allocation.simplex import project_capped_simplex
from convexmarket.allocation.views import DeclaredMarket
from convexmarket.errors import SolverError, UnattainedOptimumError
from tests.allocation.brute_force import brute_force
from tests.allocation.builders import FORMULATIONS, form, forms, market_of, three_roots

STANDARD = market_of(form())


def assert_certificate_holds(allocation, form, seed=0):
    """Check that an allocation is feasible and its lower bound is valid at random points."""
    slack = 1e-9 * abs(allocation.objective)
    assert allocation.objective == pytest.approx(
        form.objective(allocation.weights, allocation.eta), rel=1e-12
    )
    assert allocation.weights.sum() == pytest.approx(1, abs=1e-9)
    assert allocation.weights.min() >= 0
    assert allocation.weights.max() <= form.max_weight * (1 + 1e-9)
    assert form.eta_low <= allocation.eta * (1 + 1e-12)
    assert allocation.eta <= form.eta_high * (1 + 1e-12)
    assert allocation.lower_bound <= allocation.objective + slack
    rng = np.random.default_rng(seed)
    for _ in range(20):
        point = project_capped_simplex(
            rng.exponential(size=allocation.weights.size), form.max_weight
        )
        eta = np.clip(allocation.eta * 10 ** rng.uniform(-1, 1), form.eta_low, form.eta_high)
        assert allocation.lower_bound <= form.objective(point, eta) + slack
    for record in allocation.solves:
        assert record.lower <= record.upper * (1 + 1e-9)
    if form.mu > 0:
        assert allocation.lower_bound <= brute_force(form) + slack


# ---------------------------------------------------------------- whole searches


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("solver", sorted({"CLARABEL", "ECOS", "SCS"} & {*cp.installed_solvers()}))
def test_the_line_search_finds_the_best_of_three_roots(formulation, solver):
    allocation = line_search(market_of(three_roots()), formulation, solver, gap=1e-9)
    assert allocation.objective == pytest.approx(1.9946349581, abs=2e-9)
    assert allocation.eta == pytest.approx(3.2672302966, rel=1e-4)
    assert allocation.multiplier == pytest.approx(0.3763006421, rel=1e-4)
    assert allocation.gap <= 1e-9
    assert_certificate_holds(allocation, three_roots())
    assert (allocation.method, allocation.formulation) == ("line_search", formulation)
    assert (allocation.solver, allocation.tolerance) == (solver, 1e-9)
    assert allocation.solver_version[0].isdigit()


@given(forms(), st.integers(0, 1000))
def test_formulations_agree(form, seed):
    market = market_of(form)
    result = [line_search(market, formulation, gap=1e-7) for formulation in FORMULATIONS]
    for allocation in result:
        assert_certificate_holds(allocation, market.standard_form, seed)
        assert allocation.gap <= 1e-5
    assert max(a.lower_bound for a in result) <= min(a.objective for a in result) * (1 + 1e-9)


@given(forms(zeros=True))
def test_free_sellers_have_a_finite_eta_or_raise_an_error(form):
    psi = form.virtual_costs
    assume(np.count_nonzero(psi == 0) * form.max_weight >= 1)
    limit = form.mu / np.sqrt(np.count_nonzero(psi == 0))
    expected = np.inf if (psi == 0).all() else brute_force(form)
    try:
        result = line_search(market_of(form), "projection", gap=1e-7)
    except UnattainedOptimumError as error:
        assert "eta tends to infinity" in str(error)  # noqa: PT017 - both outcomes are valid
        assert expected >= limit * (1 - 1e-9)
    else:
        assert result.objective < limit or result.gap <= 1e-7
        assert result.lower_bound <= expected * (1 + 1e-9)
        assert result.objective <= expected * (1 + 1e-6)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("psi", [[0.0, 1.0, 0.03125], [0.0, 0.0], [0.0, 5.0]])
def test_an_infimum_beyond_the_outermost_solve_is_recognised(psi, formulation):
    """At the largest eta of the search, the objective still decreases in eta."""
    market = cm.Market.standard(cm.Sellers(virtual_costs=psi), mu=1, sigma=1, gamma=10)
    with pytest.raises(UnattainedOptimumError, match="eta tends to infinity"):
        line_search(market, formulation, gap=1e-7)


# ---------------------------------------------------- bounds do not rely on the solver


def test_wrong_weights_of_a_solver_only_widen_the_gap(monkeypatch):
    rng = np.random.default_rng(5)
    monkeypatch.setattr(
        DeclaredMarket, "weights", property(lambda _: rng.dirichlet(np.full(45, 0.1)))
    )
    allocation = line_search(market_of(three_roots()))
    assert allocation.gap > 0.01
    assert len(allocation.solves) < 100
    assert_certificate_holds(allocation, three_roots())


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_the_error_of_a_failed_solver_names_the_solver_and_a_remedy(formulation):
    message = f"^CLARABEL .*{formulation} formulation at eta = .*user_limit.*another solver"
    with pytest.raises(SolverError, match=message):
        line_search(market_of(three_roots()), formulation, solver_options={"max_iter": 1})
