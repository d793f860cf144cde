"""The certified search finds the global minimum, and its certificate does not believe solvers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from convexmarket.allocation import bounds
from convexmarket.allocation.bounds import (
    concave_envelope,
    dual_bound,
    lowest_bound,
    outer_problem,
    segment_bound,
)
from convexmarket.allocation.formulations import FixedEtaProblem
from convexmarket.allocation.search import (
    certify_weights,
    line_search,
    minimise_certified,
)
from convexmarket.allocation.simplex import cheapest_purchase, project_capped_simplex
from convexmarket.errors import (
    InfeasibleMarketError,
    NotSupportedError,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.market import Market, StandardForm
from convexmarket.sellers import Sellers

FORMULATIONS = ["primal", "dual", "projection"]


# ------------------------------------------------------------------------- oracles


def brute_force(form):
    """Return the least objective: a fine grid over beta, each point projected by bisection.

    Every optimal a is the projection of -beta*psi for some beta, and eta is best for given a.
    """
    psi, m = form.virtual_costs, form.virtual_costs.size
    spread = (psi.max() - psi.min()) or psi.max()
    exponents = np.linspace(-4, 9, 3000)
    for _ in range(4):
        beta = 10.0 ** exponents[:, None] / spread / m
        v = -beta * (psi - psi.min())
        low, high = v.min(1, keepdims=True) - 2.0, np.ones_like(beta)
        for _ in range(100):
            middle = (low + high) / 2
            above = np.clip(v - middle, 0, form.max_weight).sum(1, keepdims=True) >= 1
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        a = np.clip(v - low, 0, form.max_weight)
        a /= a.sum(1, keepdims=True)
        with np.errstate(divide="ignore"):
            eta = np.sqrt(form.sigma / (form.gamma * (a @ psi)))
        eta = np.clip(eta, max(form.eta_low, 1e-300), min(form.eta_high, 1e300))
        values = form.mu * np.linalg.norm(a, axis=1)
        values += form.sigma / eta + form.gamma * eta * (a @ psi)
        best = int(values.argmin())
        around = exponents[[max(best - 1, 0), min(best + 1, exponents.size - 1)]]
        exponents = np.linspace(*around, 300)
    return float(values.min())


class ExactEvaluator:
    """V by bisection over beta: no solver, no tolerance."""

    def __init__(self, form):
        self.form = form
        self.count = 0

    def evaluate(self, t):
        self.count += 1
        low, high = 0.0, t / self.form.mu
        for _ in range(200):
            beta = (low + high) / 2
            a = project_capped_simplex(-beta * self.form.virtual_costs, self.form.max_weight)
            if beta * self.form.mu / np.linalg.norm(a) < t:
                low = beta
            else:
                high = beta
        return certify_weights(self.form, t, a, "exact", 0.0)


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


# ------------------------------------------------------------------------- markets


def three_roots():
    """Section 2 of the design: a local minimum at 3.0707, the global one at 1.9946."""
    return Market.standard(Sellers(virtual_costs=[0.002] + [1.0] * 44), mu=3, sigma=2.5, gamma=0.25)


costs = st.lists(
    st.one_of(st.sampled_from([0.002, 0.5, 1.0, 1.0, 100.0]), st.floats(0.01, 10)),
    min_size=1,
    max_size=16,
)
exponents = st.floats(-2, 2)


@st.composite
def forms(draw, zeros=False):
    psi = np.array(draw(costs))
    if zeros:
        psi[: draw(st.integers(1, psi.size))] = 0.0
    if draw(st.booleans()):
        psi = np.full(psi.size, psi[0])
    k = draw(st.sampled_from([None, 1.0, 1.3, 2.0]))
    return StandardForm(
        virtual_costs=psi * 10.0 ** draw(st.integers(-6, 6)),
        mu=10 ** draw(exponents),
        sigma=10 ** draw(exponents),
        gamma=10 ** draw(exponents),
        max_weight=1.0 if k is None else min(1.0, k / psi.size),
    )


def market_of(form):
    m = form.virtual_costs.size
    return Market.standard(
        Sellers(virtual_costs=form.virtual_costs),
        mu=form.mu,
        sigma=form.sigma,
        gamma=form.gamma,
        cap=max(1.0, m * form.max_weight) if form.max_weight < 1 else None,
        eta_range=(form.eta_low, form.eta_high) if form.eta_high < np.inf else None,
    )


# --------------------------------------------------------------------- whole search


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("solver", ["CLARABEL", "ECOS", "SCS"])
def test_global_minimum_of_the_instance_with_three_roots(formulation, solver):
    allocation = line_search(three_roots(), formulation, solver, gap=1e-9)
    assert allocation.objective == pytest.approx(1.9946349581, abs=2e-9)
    assert allocation.eta == pytest.approx(3.2672302966, rel=1e-4)
    assert allocation.multiplier == pytest.approx(0.3763006421, rel=1e-4)
    assert allocation.gap <= 1e-9
    assert_certificate_holds(allocation, three_roots().standard_form)
    assert (allocation.method, allocation.formulation) == ("line_search", formulation)
    assert (allocation.solver, allocation.tolerance) == (solver, 1e-9)
    assert allocation.solver_version[0].isdigit()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(forms(), st.integers(0, 1000))
def test_formulations_agree(form, seed):
    market = market_of(form)
    found = [line_search(market, formulation, gap=1e-7) for formulation in FORMULATIONS]
    for allocation in found:
        assert_certificate_holds(allocation, market.standard_form, seed)
        assert allocation.gap <= 1e-5
    assert max(a.lower_bound for a in found) <= min(a.objective for a in found) * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(forms())
def test_generic_loop_meets_brute_force_in_few_solves(form):
    evaluator = ExactEvaluator(form)
    outer = outer_problem(form)
    outcome = minimise_certified(outer, form, evaluator, 1e-7, 200)
    expected = brute_force(form)
    assert outcome.lower_bound <= expected * (1 + 1e-9)
    assert outcome.best.objective <= expected * (1 + 1e-7)
    assert outcome.best.objective - outcome.lower_bound <= 1.0001e-7 * outcome.best.objective
    assert evaluator.count <= 20


@settings(deadline=None, max_examples=40)
@given(forms(zeros=True))
def test_free_sellers_are_worth_a_finite_eta_or_said_to_be_endless(form):
    psi = form.virtual_costs
    assume(np.count_nonzero(psi == 0) * form.max_weight >= 1)
    limit = form.mu / np.sqrt(np.count_nonzero(psi == 0))
    expected = np.inf if (psi == 0).all() else brute_force(form)
    try:
        outer = outer_problem(form)
        outcome = minimise_certified(outer, form, ExactEvaluator(form), 1e-7, 200)
    except UnattainedOptimumError as error:
        assert "eta -> infinity" in str(error)  # noqa: PT017 - either outcome may be right
        assert expected >= limit * (1 - 1e-9)
    else:
        assert outcome.best.objective < limit
        assert outcome.lower_bound <= expected * (1 + 1e-9)
        assert outcome.best.objective <= expected * (1 + 1e-6)


def test_a_free_seller_may_leave_the_optimum_finite():
    market = Market.standard(
        Sellers(virtual_costs=[0.0] + [0.001] * 40), mu=10, sigma=0.01, gamma=0.1
    )
    allocation = line_search(market)
    assert allocation.objective < 10 / 1  # the limit: all weight on the free seller
    assert allocation.objective == pytest.approx(brute_force(market.standard_form), rel=1e-6)


@pytest.mark.parametrize("solver", ["CLARABEL", "ECOS", "SCS", "OSQP", "HIGHS"])
def test_projection_with_every_solver(solver):
    psi = 2 * np.random.default_rng(3).uniform(0.02, 0.1, 40) - 0.02
    market = Market.standard(Sellers(virtual_costs=psi), mu=1, sigma=100, gamma=0.001, cap=3)
    allocation = line_search(market, "projection", solver, gap=1e-7)
    assert allocation.gap <= 1e-7
    assert allocation.objective == pytest.approx(brute_force(market.standard_form), rel=1e-7)


def test_progress_is_told_every_solve():
    seen = []
    allocation = line_search(three_roots(), progress=seen.append)
    assert tuple(seen) == allocation.solves
    assert all(record.status == "optimal" and record.seconds > 0 for record in seen)


def test_max_solves_leaves_an_honest_gap():
    allocation = line_search(three_roots(), max_solves=2, gap=1e-9)
    assert len(allocation.solves) == 2
    assert allocation.gap > 1e-3
    assert_certificate_holds(allocation, three_roots().standard_form)


# ----------------------------------------------------------------------- edge cases


@pytest.mark.parametrize(
    ("eta_range", "binding"),
    [((0.5, 1.0), ("eta_high",)), ((4.0, 5.0), ("eta_low",)), ((1.0, 30.0), ())],
)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_eta_range(eta_range, binding, formulation):
    form = replace(three_roots().standard_form, eta_low=eta_range[0], eta_high=eta_range[1])
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
    sellers = Sellers(virtual_costs=[0.5, 1.0, 0.7])
    object.__setattr__(sellers, "virtual_costs", np.array([0.5, np.inf, 0.7]))
    allocation = line_search(Market.standard(sellers, mu=1, sigma=1, gamma=1))
    assert allocation.weights.shape == (3,)
    assert allocation.weights[1] == 0
    capped = Market.standard(sellers, mu=1, sigma=1, gamma=1, cap=1.2)
    with pytest.raises(InfeasibleMarketError, match="raise the cap"):
        line_search(capped)


def test_optimum_at_zero_is_refused_in_words():
    market = Market.standard(Sellers(virtual_costs=[1.0, 2.0]), mu=1, sigma=0, gamma=1)
    with pytest.raises(UnattainedOptimumError, match="EtaRange"):
        line_search(market)


@pytest.mark.parametrize("psi", [[0.0, 0.0], [0.0, 5.0]])
def test_optimum_at_infinity_is_refused_in_words(psi):
    market = Market.standard(Sellers(virtual_costs=psi), mu=0.01, sigma=1, gamma=1)
    with pytest.raises(UnattainedOptimumError, match="eta -> infinity"):
        line_search(market)


# -------------------------------------------------------------------------- refusals


def test_solver_that_is_not_installed():
    with pytest.raises(NotSupportedError, match=r"NOSUCH.*CLARABEL"):
        line_search(three_roots(), solver="NOSUCH")


@pytest.mark.parametrize("arguments", [{"gap": 0.0}, {"gap": np.nan}, {"max_solves": 0}])
def test_bad_arguments(arguments):
    with pytest.raises(ParameterError, match=next(iter(arguments))):
        line_search(three_roots(), **arguments)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_failed_solver_names_itself_and_a_remedy(formulation):
    with pytest.raises(SolverError) as caught:
        line_search(three_roots(), formulation, solver_options={"max_iter": 1})
    message = str(caught.value)
    assert message.startswith("CLARABEL ")
    assert f"{formulation} formulation at eta = " in message
    assert "user_limit" in message
    assert "another solver" in message
    assert ("projection'" in message) == (formulation != "projection")


def test_solver_that_cannot_solve_cones():
    with pytest.raises(SolverError, match=r"^OSQP .*projection"):
        line_search(three_roots(), "primal", "OSQP")


# ---------------------------------------------------------- nobody believes the solver


def test_lying_solver_widens_the_gap_only(monkeypatch):
    rng = np.random.default_rng(5)
    monkeypatch.setattr(
        FixedEtaProblem, "weights", property(lambda _: rng.dirichlet(np.full(45, 0.1)))
    )
    allocation = line_search(three_roots())
    assert allocation.gap > 0.01
    assert len(allocation.solves) < 100
    assert_certificate_holds(allocation, three_roots().standard_form)


@pytest.mark.parametrize("factor", [1 + 1e-5, 1.5])
def test_mutated_lower_bound_is_caught(monkeypatch, factor):
    honest = bounds.dual_bound
    monkeypatch.setattr(bounds, "dual_bound", lambda *args: factor * honest(*args))
    allocation = line_search(three_roots(), gap=1e-9)
    with pytest.raises(AssertionError):
        assert_certificate_holds(allocation, three_roots().standard_form)


def test_mutated_chord_is_caught(monkeypatch):
    honest = bounds.segment_bound

    def too_steep(point, slope, noise, low, high):
        return honest(point, 1.5 * slope, noise, low, high)

    monkeypatch.setattr(bounds, "segment_bound", too_steep)
    allocation = line_search(three_roots(), max_solves=4, gap=1e-9)
    with pytest.raises(AssertionError):
        assert_certificate_holds(allocation, three_roots().standard_form)


@settings(deadline=None)
@given(forms(), st.floats(-3, 3), st.integers(0, 1000))
def test_any_weights_prove_a_valid_bound(form, exponent, seed):
    rng = np.random.default_rng(seed)
    m = form.virtual_costs.size
    t = 10**exponent / form.virtual_costs.mean()
    anything = rng.exponential(size=m)
    proved = [dual_bound(form, t, anything), bounds.best_lower_bound(form, t, anything)]
    optimum = ExactEvaluator(form).evaluate(t)
    assert optimum.lower == pytest.approx(optimum.upper, rel=1e-7)
    for bound in proved:
        assert bound <= optimum.upper * (1 + 1e-12)


# ------------------------------------------------------------------- pure functions


@settings(deadline=None)
@given(costs, st.sampled_from([1.0, 1.1, 2.0, 3.0, 100.0]))
def test_cheapest_purchase_is_the_linear_program(values, k):
    values = np.array(values)
    cap = min(1.0, k / values.size)
    filled = np.diff(np.minimum(cap * np.arange(values.size + 1), 1.0))
    assert cheapest_purchase(values, cap) == pytest.approx(np.sort(values) @ filled)


def test_concave_envelope_drops_points_below():
    points = [(0.0, 0.0), (1.0, 1.0), (2.0, 0.5), (3.0, 2.0), (3.0, 1.0)]
    assert concave_envelope(points) == [(0.0, 0.0), (1.0, 1.0), (3.0, 2.0)]


@given(st.floats(0, 5), st.floats(0, 5), st.floats(0.1, 2), st.floats(0.1, 9))
def test_segment_bound_is_below_the_curve_and_attained(slope, noise, low, width):
    high = low + width
    t, bound = segment_bound((low, 1.0), slope, noise, low, high)
    grid = np.linspace(low, high, 200)
    assert bound <= (1 + slope * (grid - low) + noise / grid).min() + 1e-12
    assert low <= t <= high
    assert bound == pytest.approx(1 + slope * (t - low) + noise / t)


def test_bound_covers_the_unbounded_tail():
    form = StandardForm(np.array([0.01, 1.0]), 1.0, 1.0, 1.0)
    outer = replace(outer_problem(form), high=np.inf)
    candidate = lowest_bound(outer, [])
    assert candidate.right == np.inf
    assert candidate.bound <= brute_force(form)


def test_money_has_no_units():
    """Multiplying all money by a constant scales the objective and nothing else."""
    form = three_roots().standard_form
    for scale in (1e-6, 1e6):
        scaled = replace(
            form, mu=form.mu * scale, sigma=form.sigma * scale, gamma=form.gamma * scale
        )
        allocation = line_search(market_of(scaled), gap=1e-8)
        assert allocation.gap <= 1e-8
        assert allocation.objective == pytest.approx(1.9946349581 * scale, rel=1e-8)
