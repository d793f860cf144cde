"""The certified search finds the global minimum, and its certificate does not believe solvers."""

import warnings
from dataclasses import replace
from importlib import metadata
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation import bounds, cuts, search
from convexmarket.allocation.bounds import eta_range
from convexmarket.allocation.eta_search import search_eta
from convexmarket.allocation.formulations import FixedEtaProblem, optimal_weights
from convexmarket.allocation.result import SolveRecord
from convexmarket.allocation.search import certify_weights, line_search
from convexmarket.allocation.simplex import cheapest_purchase, project_capped_simplex
from convexmarket.errors import (
    InfeasibleMarketError,
    NotSupportedError,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.market import Market, StandardForm
from tests.allocation.brute_force import brute_force
from tests.allocation.builders import (
    COSTS,
    FORMULATIONS,
    POINT,
    form,
    forms,
    market_of,
    sellers_of,
    three_roots,
    uniform_market,
)

STANDARD = market_of(form())


class Exact:
    """Solves exactly, with bounds that are too low by a blur."""

    def __init__(self, whole, blur=0.0):
        self.form, self.blur, self.records = whole, blur, []
        self.ends = eta_range(whole)[:2]

    def solve(self, eta):
        weights = optimal_weights(self.form, self.form.gamma * eta)
        found, record = certify_weights(self.form, eta, weights, "exact", 0.0)
        self.records.append(replace(record, lower=record.lower - self.blur))
        return replace(found, cut=replace(found.cut, const=-self.blur))

    def search(self, gap, max_solves, progress=None):
        """Return the best point and the bound, as a line search finds them."""
        low, patience = self.ends[0], search._PATIENCE
        return search_eta(self, low, gap, max_solves, progress, patience)


def assert_certificate_holds(allocation, form, seed=0):
    """The bound lies below the objective at the answer, at random points and at the optimum."""
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
@pytest.mark.parametrize("solver", ["CLARABEL", "ECOS", "SCS"])
def test_global_minimum_of_the_instance_with_three_roots(formulation, solver):
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
    found = [line_search(market, formulation, gap=1e-7) for formulation in FORMULATIONS]
    for allocation in found:
        assert_certificate_holds(allocation, market.standard_form, seed)
        assert allocation.gap <= 1e-5
    assert max(a.lower_bound for a in found) <= min(a.objective for a in found) * (1 + 1e-9)


@given(forms())
def test_the_search_meets_brute_force_in_few_solves(form):
    exact = Exact(form)
    best, bound = exact.search(1e-7, 200)
    expected = brute_force(form)
    assert bound <= expected * (1 + 1e-9)
    assert best.objective <= expected * (1 + 1e-7)
    assert best.objective - bound <= 1.0001e-7 * best.objective
    assert len(exact.records) <= 12


@given(forms(zeros=True))
def test_free_sellers_are_worth_a_finite_eta_or_said_to_be_endless(form):
    psi = form.virtual_costs
    assume(np.count_nonzero(psi == 0) * form.max_weight >= 1)
    limit = form.mu / np.sqrt(np.count_nonzero(psi == 0))
    expected = np.inf if (psi == 0).all() else brute_force(form)
    try:
        found = line_search(market_of(form), "projection", gap=1e-7)
    except UnattainedOptimumError as error:
        assert "eta -> infinity" in str(error)  # noqa: PT017 - either outcome may be right
        assert expected >= limit * (1 - 1e-9)
    else:
        assert found.objective < limit
        assert found.lower_bound <= expected * (1 + 1e-9)
        assert found.objective <= expected * (1 + 1e-6)


def test_a_free_seller_may_leave_the_optimum_finite():
    market = Market.standard(sellers_of([0.0] + [0.001] * 40), mu=10, sigma=0.01, gamma=0.1)
    allocation = line_search(market)
    assert allocation.objective < 10 / 1  # the limit: all weight on the free seller
    assert allocation.objective == pytest.approx(brute_force(market.standard_form), rel=1e-6)


@pytest.mark.parametrize("solver", ["CLARABEL", "ECOS", "SCS", "OSQP", "HIGHS"])
def test_projection_with_every_solver(solver):
    market = uniform_market(40, cap=3)
    allocation = line_search(market, "projection", solver, gap=1e-7)
    assert allocation.gap <= 1e-7
    assert allocation.objective == pytest.approx(brute_force(market.standard_form), rel=1e-7)


def test_a_line_search_says_where_its_answer_comes_from():
    seen = []
    found = line_search(STANDARD, "dual", progress=seen.append)
    exact = cm.allocate(STANDARD)
    assert found.objective == pytest.approx(exact.objective, rel=1e-6)
    assert found.multiplier == pytest.approx(exact.multiplier, rel=1e-3)
    assert found.solves == tuple(seen)
    assert (found.method, found.formulation, found.solver) == ("line_search", "dual", "CLARABEL")
    assert (found.tolerance, found.binding) == (1e-6, ())
    assert found.solver_version == metadata.version("clarabel")
    assert 0 < sum(record.seconds for record in seen) <= found.seconds < 60


def test_max_solves_leaves_an_honest_gap():
    gaps = []
    for most in (1, 2):
        allocation = line_search(market_of(three_roots()), max_solves=most, gap=1e-9)
        assert len(allocation.solves) == most
        gaps.append(allocation.gap)
        assert_certificate_holds(allocation, three_roots())
    assert gaps[0] > 1e-3 > gaps[1] > 1e-9


def test_money_has_no_units():
    """Multiplying all money by a constant scales the objective and nothing else."""
    form = three_roots()
    for scale in (1e-6, 1e6):
        scaled = replace(
            form, mu=form.mu * scale, sigma=form.sigma * scale, gamma=form.gamma * scale
        )
        allocation = line_search(market_of(scaled), gap=1e-8)
        assert allocation.gap <= 1e-8
        assert allocation.objective == pytest.approx(1.9946349581 * scale, rel=1e-8)


# -------------------------------------------------------------------- edge cases


@pytest.mark.parametrize(
    ("eta_range", "binding"),
    [((0.5, 1.0), ("eta_high",)), ((4.0, 5.0), ("eta_low",)), ((1.0, 30.0), ())],
)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_eta_range(eta_range, binding, formulation):
    form = replace(three_roots(), eta_low=eta_range[0], eta_high=eta_range[1])
    allocation = line_search(market_of(form), formulation)
    assert allocation.binding == binding
    assert allocation.gap <= 1e-6
    assert allocation.objective == pytest.approx(brute_force(form), rel=1e-6)


def test_range_makes_free_data_and_noiseless_markets_well_posed():
    free = StandardForm(np.zeros(4), 1.0, 1.0, 1.0, eta_low=1.0, eta_high=2.0)
    allocation = line_search(market_of(free))
    assert (allocation.eta, allocation.binding) == (2.0, ("eta_high",))
    assert allocation.objective == pytest.approx(0.5 + 0.5)
    noiseless = StandardForm(np.array([1.0, 2.0]), 1.0, 0.0, 1.0, eta_low=1.0, eta_high=2.0)
    allocation = line_search(market_of(noiseless))
    assert (allocation.eta, allocation.binding) == (1.0, ("eta_low",))


@pytest.mark.parametrize("k", [None, 1.0, 1.5])
def test_without_spread_the_cheapest_sell(k):
    psi = np.array([0.5, 0.2, 0.9, 0.4])
    cap = 1.0 if k is None else k / 4
    form = StandardForm(psi, 0.0, 2.0, 3.0, max_weight=cap)
    allocation = line_search(market_of(form))
    assert allocation.objective == pytest.approx(2 * np.sqrt(6 * cheapest_purchase(psi, cap)))
    assert_certificate_holds(allocation, form)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_uniform_weights_when_the_cap_is_one(formulation):
    form = StandardForm(np.array([0.1, 0.5, 3.0]), 1.0, 2.0, 3.0, max_weight=1 / 3)
    allocation = line_search(market_of(form), formulation)
    np.testing.assert_allclose(allocation.weights, 1 / 3)
    assert allocation.eta == pytest.approx(np.sqrt(2 / (3 * 1.2)))


def test_one_seller():
    form = StandardForm(np.array([0.5]), 1.0, 2.0, 3.0)
    allocation = line_search(market_of(form))
    assert allocation.objective == pytest.approx(1 + 2 * np.sqrt(3.0))


def test_infinite_virtual_costs_get_nothing():
    sellers = sellers_of([0.5, np.inf, 0.7])
    allocation = line_search(Market.standard(sellers, mu=1, sigma=1, gamma=1))
    assert allocation.weights.shape == (3,)
    assert allocation.weights[1] == 0
    capped = Market.standard(sellers, mu=1, sigma=1, gamma=1, cap=1.2)
    with pytest.raises(InfeasibleMarketError, match="raise the cap"):
        line_search(capped)


def test_optimum_at_zero_is_refused_in_words():
    market = market_of(form([1.0, 2.0], sigma=0.0))
    with pytest.raises(UnattainedOptimumError, match="EtaRange"):
        line_search(market)


@pytest.mark.parametrize("psi", [[0.0, 0.0], [0.0, 5.0]])
def test_optimum_at_infinity_is_refused_in_words(psi):
    market = market_of(form(psi, mu=0.01))
    with pytest.raises(UnattainedOptimumError, match="eta -> infinity"):
        line_search(market)


# ---------------------------------------------------- nobody believes the solver


def test_lying_solver_widens_the_gap_only(monkeypatch):
    rng = np.random.default_rng(5)
    monkeypatch.setattr(
        FixedEtaProblem, "weights", property(lambda _: rng.dirichlet(np.full(45, 0.1)))
    )
    allocation = line_search(market_of(three_roots()))
    assert allocation.gap > 0.01
    assert len(allocation.solves) < 100
    assert_certificate_holds(allocation, three_roots())


@pytest.mark.parametrize("factor", [1 + 1e-5, 1.5])
def test_mutated_lower_bound_is_caught(monkeypatch, factor):
    honest = bounds.dual_bound
    monkeypatch.setattr(bounds, "dual_bound", lambda *args: factor * honest(*args))
    allocation = line_search(market_of(three_roots()), gap=1e-9)
    with pytest.raises(AssertionError):
        assert_certificate_holds(allocation, three_roots())


def test_mutated_chord_is_caught(monkeypatch):
    honest = cuts.segment_bound

    def too_steep(start, slope, noise, low, high):
        return honest(start, 1.5 * slope, noise, low, high)

    monkeypatch.setattr(cuts, "segment_bound", too_steep)
    allocation = line_search(market_of(three_roots()), max_solves=4, gap=1e-9)
    with pytest.raises(AssertionError):
        assert_certificate_holds(allocation, three_roots())


# ------------------------------------------------------------ when the search ends


@pytest.mark.parametrize("gap", [0.5, 1e-2, 1e-6])
def test_the_search_ends_as_soon_as_the_gap_is_met(gap):
    seen, exact = [], Exact(form())
    found, bound = exact.search(gap, 100, seen.append)
    assert 0 <= found.objective - bound <= gap * found.objective
    assert exact.records == seen
    assert len(seen) <= {0.5: 1, 1e-2: 2, 1e-6: 3}[gap]
    if len(seen) > 1:  # one less does not do
        fewer = Exact(form())
        rough, below = fewer.search(gap, len(seen) - 1)
        assert rough.objective - below > gap * rough.objective
        assert len(fewer.records) == len(seen) - 1
    best = cm.allocate(STANDARD).objective
    assert bound <= best * (1 + 1e-12)
    assert found.objective >= best * (1 - 1e-12)


def test_a_search_that_gets_no_closer_is_given_up():
    """Bounds that are off by a constant: no number of solves closes the gap."""
    exact = Exact(form(), blur=0.05)
    found, bound = exact.search(1e-9, 500)
    assert len(exact.records) < 40
    assert 0.04 <= found.objective - bound <= 0.08


def test_free_sellers_are_worth_no_finite_eta_once_the_bound_says_so():
    """The optimum tends to mu/sqrt(2), and every point found lies above that."""
    endless = form((0.0, 0.0, 4.0), mu=1.0, sigma=1.0)
    with pytest.raises(UnattainedOptimumError, match=r"0\.7071067812.*eta -> infinity"):
        line_search(market_of(endless), gap=1e-9, max_solves=100)


# ------------------------------------------------------- what is made of weights


def test_weights_are_judged_at_their_best_eta_wherever_that_is():
    """Where no noise pays for privacy they stay at the eta that they were found for."""
    for changes, expected in (({"sigma": 0.0}, 1.6), ({"sigma": 0.02}, 0.3), ({}, 3.1)):
        found, _ = certify_weights(form(**changes), 1.6, POINT, "optimal", 0.0)
        assert found.eta == pytest.approx(expected, abs=0.05)
        assert found.objective == pytest.approx(form(**changes).objective(POINT, found.eta))
        nearby = [form(**changes).objective(POINT, found.eta * f) for f in (0.99, 1.01)]
        assert min(nearby) > found.objective or changes == {"sigma": 0.0}


def test_a_record_is_of_the_whole_objective():
    weights = POINT
    found, record = certify_weights(form(), 1.6, weights, "optimal", 0.25)
    upper = np.linalg.norm(weights) + 0.8 * weights @ COSTS + 2 / 1.6
    best = np.linalg.norm(optimal_weights(form(), 0.8))
    best += 0.8 * optimal_weights(form(), 0.8) @ [0.2, 0.4, 1.0] + 2 / 1.6
    assert record == SolveRecord(1.6, pytest.approx(upper), record.lower, "optimal", 0.25)
    assert best * (1 - 2e-5) <= record.lower == found.cut(1.6) <= best
    assert found.eta == pytest.approx(np.sqrt(2.0 / (0.5 * weights @ COSTS)))
    stays, _ = certify_weights(form((0.0, 1.0)), 1.6, np.array([1.0, 0.0]), "", 0.0)
    assert stays.eta == 1.6


def test_the_cut_of_any_weights_is_below_the_optimum_at_every_eta():
    """Also between two eta, and between those at which it does not touch."""
    found, _ = certify_weights(form(), 1.6, POINT, "optimal", 0.0)
    etas = np.geomspace(0.1, 30, 200)
    best = [form().objective(optimal_weights(form(), 0.5 * eta), eta) * (1 + 1e-12) for eta in etas]
    values = [found.cut(eta) for eta in etas]
    assert np.all(np.array(values) <= best)
    for low, high in ((0, 40), (40, 41), (90, 110), (150, 199)):
        assert found.cut.minimum(etas[low], etas[high])[1] <= min(best[low : high + 1])
    assert found.cut.minimum(etas[100], np.inf)[1] <= min(best[100:])


def test_the_range_that_keeps_weights_from_a_better_eta():
    best = np.sqrt(2.0 / (0.5 * POINT @ COSTS))

    def binding(**ends):
        point, record = certify_weights(form(**ends), 1.6, POINT, "", 0.0)
        found = search.assemble(
            form(**ends), np.full(3, True), point, 0.0, (record,), method="", seconds=0.0,
            tolerance=1.0,
        )  # fmt: skip
        return found.binding

    assert binding(eta_low=best * 1.1) == ("eta_low",)
    assert binding(eta_high=best * 0.9) == ("eta_high",)
    assert binding(eta_low=best * 0.9, eta_high=best * 1.1) == ()


# -------------------------------------------------------- what a solver is given


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 3, 0, 4, 1, 2]])
@pytest.mark.parametrize(("cap", "dearest"), [(1.0, 0.1), (0.45, 0.3), (0.3, 5.0), (1 / 6, 1e6)])
def test_costs_are_lowered_only_where_nobody_buys(cap, dearest, order):
    """The marginal price is at most that of the n cheapest, who carry all, plus mu*cap*sqrt(m)."""
    psi = np.array([0.1, 0.2, 0.3, 5.0, 80.0, 1e6])[order]
    for t, mu in product((0.3, 3.0), (1.0, 3.0)):
        whole = form(psi, mu=mu, max_weight=cap)
        lowered = search._relevant_costs(whole, t)
        ceiling = 2 * (dearest + mu * min(1.0, cap * np.sqrt(6)) / t)
        np.testing.assert_allclose(lowered, np.minimum(psi, ceiling), rtol=1e-12)
        for later in (t, 2 * t, 10 * t):
            weights = optimal_weights(replace(whole, virtual_costs=lowered), later)
            np.testing.assert_allclose(weights, optimal_weights(whole, later), atol=1e-12)


def test_a_market_is_given_to_a_solver_without_units():
    """Costs relative to their mean, money relative to the size of V; nothing but a unit is lost."""
    for money, cap in ((1.0, 1.0), (1e5, 0.5)):
        whole = form(mu=3.0 * money, gamma=0.5 * money, max_weight=cap)
        scaled, unit = search._dimensionless(whole, 0.8)
        plain = scaled.standard_form
        assert plain.virtual_costs.mean() == pytest.approx(1.0)
        assert plain.mu / np.sqrt(3) + 0.8 * unit == pytest.approx(1.0)
        assert (plain.gamma, plain.sigma) == (1.0, 0.0)
        assert plain.max_weight == pytest.approx(cap)
        for t in (0.8 * money, 3.0 * money):
            np.testing.assert_allclose(
                optimal_weights(plain, t * unit), optimal_weights(whole, t), atol=1e-9
            )
    free, unit = search._dimensionless(form((0.0, 0.0)), 0.8)
    assert np.all(free.standard_form.virtual_costs == 0)
    assert np.isfinite(unit)


# ---------------------------------------------------------------------- refusals


def test_solver_that_is_not_installed():
    with pytest.raises(NotSupportedError, match=r"NOSUCH.*CLARABEL"):
        line_search(market_of(three_roots()), solver="NOSUCH")


@pytest.mark.parametrize(
    "arguments",
    [{"gap": 0.0}, {"gap": -1e-6}, {"gap": np.inf}, {"max_solves": 0}, {"max_solves": -3}],
)
def test_a_line_search_refuses_bad_limits_before_any_work(arguments, monkeypatch):
    monkeypatch.setattr(search, "check_solver", None)
    with pytest.raises(ParameterError, match=next(iter(arguments))):
        line_search(STANDARD, **arguments)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_failed_solver_names_itself_and_a_remedy(formulation):
    with pytest.raises(SolverError) as caught:
        line_search(market_of(three_roots()), formulation, solver_options={"max_iter": 1})
    message = str(caught.value)
    assert message.startswith("CLARABEL ")
    assert f"{formulation} formulation at eta = " in message
    assert "user_limit" in message
    assert "another solver" in message
    assert ("projection'" in message) == (formulation != "projection")


def test_solver_that_cannot_solve_cones():
    with pytest.raises(SolverError, match=r"^OSQP .*projection"):
        line_search(market_of(three_roots()), "primal", "OSQP")


def test_a_failing_solver_is_named_with_the_eta_it_failed_at():
    low, high, _ = eta_range(form())
    eta = low**0.95 * high**0.05  # next to the lowest that can be optimal
    with pytest.raises(SolverError, match=f"dual formulation at eta = {eta:.10g}"):
        line_search(STANDARD, "dual", solver_options={"max_iter": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = line_search(STANDARD, solver="clarabel", max_solves=1)
    assert found.solver == "CLARABEL"
    assert len(found.solves) == 1
    assert found.solves[0].eta == pytest.approx(eta)


def test_what_a_solver_returned_is_named_where_it_is_no_number(monkeypatch):
    """The status alone would say that all is well."""

    class Problem:
        formulation = "primal"

        @property
        def weights(self):
            raise SolverError("no finite numbers")

    monkeypatch.setattr(search, "run_solver", lambda *_: cp.OPTIMAL)
    with pytest.raises(SolverError) as caught:
        search._solve(Problem(), "ECOS", "2.0", 1.25, None)
    assert str(caught.value) == (
        "ECOS 2.0 failed on the primal formulation at eta = 1.25 (status optimal, but no finite "
        "numbers); try formulation='projection', the best conditioned one, or another solver"
    )
