"""Projections find the optima of CVXPY declarations, at a fixed eta and over all eta."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.projections import ProjectableForm, Projections, solve_projections
from convexmarket.errors import InfeasibleMarketError, NotSupportedError
from tests.allocation import builders

COSTS = np.array([0.1, 0.4, 0.4, 0.9])
PAID = cm.Spread() + cm.Noise() + cm.Payments()


def market(*constraints, costs=COSTS, objective=PAID):
    return builders.market(*constraints, costs=costs, objective=objective)


def form(squared=False, **changes) -> ProjectableForm:
    defaults = {
        "virtual_costs": COSTS,
        "losses": np.array([0.3, 0.0, 0.1, 0.0]),
        "mu_squared" if squared else "mu": 2.0,
        "sigma": 0.5,
        "gamma": 0.7,
    }
    return ProjectableForm(**(defaults | changes))


BOUNDED = {"max_weight": np.array([0.4, 0.3, 1.0, 1.0]), "max_epsilon": np.array([9, 9, 0.3, 9])}


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("changes", [{}, {"max_weight": 0.3}, {"max_epsilon": 0.3}, BOUNDED])
@pytest.mark.parametrize("eta", [0.2, 1.0])
def test_a_projection_is_optimal_and_its_cut_proves_it(squared, changes, eta):
    problem = form(squared, **changes)
    a = cp.Variable(4, nonneg=True)
    spread = cp.sum_squares(a) if squared else cp.norm(a)
    prices = problem.losses + 0.7 * eta * COSTS
    limit = np.minimum(problem.max_weight, problem.max_epsilon / eta)
    constraints = [cp.sum(a) == 1, a <= np.broadcast_to(limit, 4)]
    declared = cp.Problem(cp.Minimize(2.0 * spread + prices @ a), constraints)
    declared.solve(solver="CLARABEL")
    runner = Projections(problem)
    result = runner.solve(eta)
    np.testing.assert_allclose(result.weights, a.value, atol=1e-5)
    assert result.objective == pytest.approx(declared.value + 0.5 / eta, rel=1e-8)
    assert result.cut(eta) == pytest.approx(result.objective, rel=1e-9)
    assert result.cut.price == pytest.approx(-constraints[0].dual_value, abs=1e-4)
    # At other values of eta, a cut is at most the optimal value.
    for other in (0.5 * eta, 0.9 * eta, 1.2 * eta, 4.0 * eta):
        if other <= problem.largest_eta():
            assert result.cut(other) <= runner.solve(other).objective * (1 + 1e-10)
    record = runner.records[0]
    assert (record.eta, record.upper, record.lower) == (eta, result.objective, result.cut(eta))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("objective", "limits", "eta", "binding"),
    [
        (cm.terms.SquaredSpread() + cm.Noise() + cm.Payments(), (0.1, 0.5), 0.5, ("eta_high",)),
        (cm.terms.SquaredSpread() + cm.Noise() + cm.Payments(), (9.0, 20.0), 9.0, ("eta_low",)),
        (cm.terms.SquaredSpread() + cm.Payments(), (0.5, 2.0), 0.5, ("eta_low",)),
    ],
)
def test_eta_equals_the_binding_end_of_the_range(objective, limits, eta, binding):
    result = cm.allocate(market(cm.EtaRange(*limits), objective=objective))
    assert result.method == "projections"
    assert result.eta == eta
    assert result.binding == binding
    assert result.gap <= 1e-10


@pytest.mark.parametrize("spread", [cm.Spread(), cm.terms.SquaredSpread()], ids=repr)
@pytest.mark.parametrize("cap", [1, 1.5, np.array([0.5, 2.0, 1.0, 0.5, 1.0]), 2.2])
@pytest.mark.parametrize("mu", [1e-7, 1e-3])
def test_caps_with_a_tiny_spread_are_solved_in_few_solves(spread, cap, mu):
    """The multipliers of the caps depend strongly on eta, so the cuts include the caps."""
    objective = mu * spread + 0.26 * cm.Payments() + 1.57 * cm.Noise()
    costs = [0.0, 0.2956, 0.5597, 0.813, 0.1206]
    declared = market(cm.Cap(cap), costs=costs, objective=objective)
    result = solve_projections(declared)
    assert result.gap <= 1e-10
    assert len(result.solves) <= 10
    runner = Projections(ProjectableForm.of(declared.form)[0])
    for eta in np.geomspace(0.5, 50.0, 60):  # the lower bound equals the objective at every eta
        runner.solve(eta)
    assert max(record.upper / record.lower for record in runner.records) <= 1 + 1e-10


def test_markets_with_too_few_sellers_are_infeasible():
    with pytest.raises(InfeasibleMarketError, match="infinite virtual cost or a zero bound"):
        ProjectableForm.of(market(costs=np.full(4, np.inf)).form)
    no_seller = market(cm.Cap([0, 4, 0, 4]), costs=np.array([0.1, np.inf, 0.1, np.inf]))
    with pytest.raises(InfeasibleMarketError, match="a zero bound"):
        ProjectableForm.of(no_seller.form)
    # The error names the caps, although the largest guarantees also have a sum below the range.
    some = np.array([0.1, np.inf, 0.3, np.inf])
    few = market(cm.Cap(1.9), cm.MaxEpsilon(0.1), cm.EtaRange(5.0, 9.0), costs=some)
    with pytest.raises(InfeasibleMarketError, match=r"2 weights .* 0\.475 cannot sum to one"):
        ProjectableForm.of(few.form)
    enough = market(cm.Cap(2.0), costs=some)
    assert solve_projections(enough).weights.tolist() == [0.5, 0.0, 0.5, 0.0]


@pytest.mark.parametrize(
    "objective",
    [
        cm.Noise() + cm.Payments(),
        cm.Spread() + cm.terms.SquaredSpread() + cm.Noise() + cm.Payments(),
        cm.Spread(3) + cm.Noise() + cm.Payments(),
        cm.Spread() + cm.Noise(),
    ],
)
def test_unsupported_markets_are_refused(objective):
    assert ProjectableForm.of(market(objective=objective).form) is None
    with pytest.raises(NotSupportedError, match=r"^projections support sums"):
        solve_projections(market(objective=objective))


@example(147)  # only one seller sells, so the prices of the constraints are not unique
@example(185)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_bounds_on_shares_give_the_optimum_of_the_conic_declaration(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(3, 12))
    groups = np.r_[0, 1, rng.integers(0, 2, m - 2)]
    share = {0: rng.uniform(0, 0.6)}
    kind = rng.choice(["at_least", "at_most", "equal"])
    bound = cm.GroupShare(groups, **{kind: True if kind == "equal" else share})
    more = [cm.Cap(8)] if rng.random() < 0.5 else [cm.MaxEpsilon(10 ** rng.uniform(-1, 1))]
    mu, sigma, gamma = 10 ** rng.uniform(-1, 1, 3)
    spread = cm.terms.SquaredSpread() if rng.random() < 0.3 else cm.Spread()
    objective = mu * spread + sigma * cm.Noise() + gamma * cm.Payments()
    if rng.random() < 0.5:
        objective = objective + cm.terms.Losses(rng.normal(size=m))
    declared = market(bound, *more, costs=rng.uniform(0.1, 2, m), objective=objective)
    try:
        result = cm.allocate(declared)
    except InfeasibleMarketError:
        with pytest.raises(InfeasibleMarketError):
            cm.allocate(declared, "branch_and_bound")
        return
    conic = cm.allocate(declared, "branch_and_bound")
    assert result.method == "projections"
    assert result.gap < 1e-8
    share_of_0 = result.weights[groups == 0].sum()
    low, high = {"at_least": (share[0], 1), "at_most": (0, share[0]), "equal": (0.5, 0.5)}[kind]
    assert low - 1e-12 <= share_of_0 <= high + 1e-12
    slack = 1e-7 * conic.scale
    assert result.objective <= conic.objective + slack
    assert result.objective >= conic.lower_bound - slack


def test_shares_that_contradict_the_caps_are_infeasible():
    bounds = [cm.GroupShare([0, 1, 1, 1], at_least={0: 0.6}), cm.Cap(2)]
    with pytest.raises(InfeasibleMarketError, match=r"GroupShare.* contradicts itself or a Cap"):
        cm.allocate(market(*bounds))
