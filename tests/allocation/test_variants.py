"""Allocating a market gives a certified optimum that matches brute force, or raises an error."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.views import FixedEta
from convexmarket.errors import (
    InfeasibleMarketError,
    LooseCertificateWarning,
    NotSupportedError,
    SolverError,
    UnattainedOptimumError,
)
from tests import one_in
from tests.allocation.battery import assert_certified, figures
from tests.allocation.brute_force import BruteForce
from tests.allocation.builders import (
    FALSE_VALUES,
    Bound,
    Own,
    check_feasible,
    positive,
    random_market,
)

seeds = st.integers(0, 2**32 - 1)
GAP = 1e-6
BASE = 1.0 * cm.Spread() + 1.0 * cm.Noise()


def random_sellers(m=6, seed=0):
    rng = np.random.default_rng(seed)
    return cm.Sellers(rng.uniform(0.1, 1, m), prior=cm.Uniform(0.1, 1))


# ------------------------------------------------------------------ against brute force


def compare_with_brute_force(seed):
    """Check that the objective and the lower bound agree with the optimum from brute force."""
    market = random_market(np.random.default_rng(seed))
    try:
        allocation = cm.allocate(market, gap=GAP)
    except InfeasibleMarketError:
        brute = BruteForce(market)
        assert all(np.isinf(brute(eta)) for eta in np.geomspace(1e-3, 1e3, 13))
        return
    best = BruteForce(market).minimum(allocation.eta)
    scale = abs(best)
    assert allocation.lower_bound <= best + 1e-8 * scale
    assert allocation.objective <= best + 1.5 * GAP * scale
    assert allocation.gap <= GAP
    assert len(allocation.solves) <= 40
    check_feasible(market, allocation)
    value = market.objective.value(allocation.weights, allocation.eta, market.sellers.virtual_costs)
    assert allocation.objective == pytest.approx(value, rel=1e-9)


#: These seeds cover all pairs of spread and cost, all methods, and infeasible constraints.
VARIED = [0, 3, 5, 7, 8, 9, 10, 28, 33, 35, 38, 40, 46, 51, 63, 65, 87, 92, 101, 114, 134, 149]


@pytest.mark.parametrize("seed", one_in(8, VARIED))
def test_optima_of_varied_markets_equal_brute_force(seed):
    compare_with_brute_force(seed)


@pytest.mark.campaign
@example(220)  # Clarabel converges slowly near the largest eta that the budget allows
@given(seeds)
def test_optima_of_random_markets_equal_brute_force(seed):
    compare_with_brute_force(seed)


@given(seeds)
def test_branch_and_bound_agrees_with_the_exact_solver(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 40))
    market = cm.Market.standard(
        cm.Sellers(virtual_costs=rng.exponential(1, m) + 1e-3),
        mu=positive(rng),
        sigma=positive(rng),
        gamma=positive(rng),
        cap=rng.uniform(1, 4) if rng.random() < 0.5 else None,
    )
    exact = cm.allocate(market)
    result = cm.allocate(market, "branch_and_bound", gap=GAP)
    assert result.lower_bound <= exact.objective * (1 + 1e-9)
    assert exact.objective * (1 - 1e-9) <= result.objective <= exact.objective * (1 + GAP)


# ------------------------------------------------------------------ certificates


def test_wrong_weights_of_a_solver_do_not_invalidate_the_certificate(monkeypatch):
    """Wrong weights widen the gap, but the bound remains valid."""
    market = cm.Market(random_sellers(), BASE + 0.5 * cm.Payments(cm.PowerCost(2)), [cm.Cap(5)])
    truth = cm.allocate(market, gap=1e-8)
    rng = np.random.default_rng(0)
    exact = FixedEta.weights.fget
    monkeypatch.setattr(FixedEta, "weights", property(lambda self: _disturbed(exact(self), rng)))
    result = cm.allocate(market, "branch_and_bound", max_solves=15)
    assert result.lower_bound <= truth.objective <= result.objective * (1 + 1e-8)
    assert result.gap > 1e-5
    check_feasible(market, result)


def false_value(kind, rng, dual):
    """Return a false value for a multiplier, or None if the multiplier is None."""
    return None if dual is None else FALSE_VALUES[kind](rng, np.asarray(dual, dtype=float))


def kinks(name):
    """Return a market with kinks in its objective or in a constraint."""
    matrix = np.random.default_rng(3).normal(size=(4, 6))
    noise, payments = 6.0 * cm.Noise(), (1 / 6) * cm.Payments()
    objective, bounds = {
        "a maximum": (0.5 * Own(lambda q: cp.max(cp.abs(matrix @ q.epsilon))), [cm.Cap(3)]),
        "absolute values": (0.5 * Own(lambda q: cp.norm1(q.epsilon - 1)), []),
        "the largest": (0.5 * cm.terms.CVaR(0.6), [cm.MaxEpsilon(3.0)]),
        "squares": (0.5 * Own(lambda q: cp.sum_squares(matrix @ q.epsilon)), [cm.Cap(3)]),
        "sorted": (0.5 * Own(lambda q: cp.dotsort(q.epsilon, [2.0, 1.0])), []),
        "a spectrum": (Own(lambda q: cp.normNuc(cp.reshape(q.epsilon - 1, (2, 3), order="F"))), []),
        "a bound on a maximum": (
            0.1 * cm.Spread(),
            [Bound(lambda q: [cp.max(matrix @ q.weights) <= 0.2])],
        ),
        "a bound on guarantees": (
            0.1 * cm.Spread(),
            [Bound(lambda q: [cp.sum_largest(q.epsilon, 2) <= 3, cp.norm(q.epsilon) <= 3])],
        ),
        "a cost": (cm.Payments(cm.terms.TieredCost([0.1, 1], [0.5])), [cm.Cap(2)]),
    }[name]
    limits = [*bounds, cm.EtaRange(0.5, 50)]
    return cm.Market(random_sellers(), objective + noise + payments, limits)


KINKED = ["a maximum", "absolute values", "the largest", "squares", "sorted", "a spectrum"]
KINKED += ["a bound on a maximum", "a bound on guarantees", "a cost"]


def assert_valid_bounds(name, kind, monkeypatch):
    """Check that bounds are valid if the multipliers of kinks, or all multipliers, are false."""
    market, rng = kinks(name), np.random.default_rng(len(name))
    truth = cm.allocate(market, "branch_and_bound")
    proof = FixedEta.proof
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for false_duals in (False, True):

            def false_proof(problem, false_duals=false_duals):
                duals, hints = proof(problem)
                duals = [false_value(kind, rng, dual) for dual in duals] if false_duals else duals
                return duals, {k: false_value(kind, rng, d) for k, d in hints.items()}

            monkeypatch.setattr(FixedEta, "proof", false_proof)
            result = cm.allocate(market, "branch_and_bound", max_solves=4)
            assert result.lower_bound <= truth.objective + 1e-9 * abs(truth.objective)
            assert result.objective >= truth.lower_bound - 1e-9 * abs(truth.objective)
            check_feasible(market, result)


#: One kind of false multiplier for each market. The campaign tests all combinations.
PAIRS = [(name, list(FALSE_VALUES)[i % len(FALSE_VALUES)]) for i, name in enumerate(KINKED)]


@pytest.mark.parametrize(("name", "kind"), one_in(2, PAIRS))
def test_meaningless_multipliers_give_valid_bounds(name, kind, monkeypatch):
    assert_valid_bounds(name, kind, monkeypatch)


def _disturbed(weights, rng):
    weights = np.maximum(weights * (1 + 2e-2 * rng.normal(size=weights.size)), 0)
    return weights / weights.sum()


MISSED = {
    "branch_and_bound": BASE + 0.5 * cm.Payments(cm.PowerCost(2)),
    "projections": cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments(),
    "line_search": BASE + 0.5 * cm.Payments(),
}


@pytest.mark.parametrize("method", MISSED)
def test_a_missed_gap_warns_at_the_line_of_the_caller(method):
    market = cm.Market(random_sellers(), MISSED[method])
    with pytest.warns(LooseCertificateWarning, match="relative gap of .* requested") as caught:
        result = cm.allocate(market, method, max_solves=1)
    assert result.gap > result.tolerance
    assert [warning.filename for warning in caught] == [__file__]


def far_apart(seed):
    """Draw a market whose terms differ by orders of magnitude."""
    r = np.random.default_rng(seed)
    m = int(r.integers(2, 40))
    mu, sigma, gamma = (np.exp(r.uniform(a, b)) for a, b in ((-3, 3), (0, 9), (-9, 0)))
    sellers = cm.Sellers(r.uniform(0.02, 0.1, m), prior=cm.Uniform(0.02, 0.1))
    payments = gamma * cm.Payments(cm.terms.ExponentialCost())
    return cm.Market(sellers, mu * cm.Spread() + sigma * cm.Noise() + payments)


@pytest.mark.parametrize("seed", one_in(3, [2, 4, 28, 11, 77, 149, 135]))
def test_terms_of_very_different_sizes_are_certified(seed):
    assert cm.allocate(far_apart(seed)).gap <= GAP


# ------------------------------------------------------------------ parameters


def with_a_parameter():
    distance = cp.Parameter(nonneg=True, value=0.0)
    term = Own(lambda q: distance * cp.norm1(q.weights - 1 / 6))
    return distance, cm.Market(random_sellers(), BASE + term + 0.5 * cm.Payments())


def test_a_parameter_changed_between_allocations_takes_effect():
    distance, market = with_a_parameter()
    result = []
    for value in (0.0, 3.0):
        distance.value = value
        result.append(cm.allocate(market, gap=GAP))
        assert_certified(figures(market))
    assert result[1].objective > result[0].objective + 0.01
    np.testing.assert_allclose(result[1].weights, 1 / 6, atol=1e-5)


def test_a_parameter_changed_during_an_allocation_has_no_effect():
    distance, market = with_a_parameter()
    distance.value = 0.1
    unchanged = cm.allocate(market)

    def change(record):
        distance.value = 100.0

    result = cm.allocate(market, progress=change)
    assert distance.value == 100.0
    assert len(result.solves) > 1
    assert result.objective == pytest.approx(unchanged.objective, rel=1e-12)
    np.testing.assert_allclose(result.weights, unchanged.weights, atol=1e-12)


# ------------------------------------------------------------------ markets without an optimum

NO_OPTIMUM = {
    "eta is not limited": (
        BASE,
        [cm.Cap(2)],
        "eta tends to infinity.*no payment or constraint limits",
    ),
    "no term needs privacy": (
        1.0 * cm.Spread(3) + 1.0 * cm.Payments(cm.PowerCost(2)),
        [],
        "eta tends to 0.*sigma > 0, or an EtaRange",
    ),
    "no term needs privacy, with a limit": (
        1.0 * cm.Spread() + 1.0 * cm.Payments(),
        [cm.MaxEpsilon(1.0)],
        "eta tends to 0",
    ),
}


@pytest.mark.parametrize("name", NO_OPTIMUM)
def test_an_unattained_optimum_raises_an_error(name):
    objective, constraints, message = NO_OPTIMUM[name]
    with pytest.raises(UnattainedOptimumError, match=message):
        cm.allocate(cm.Market(random_sellers(), objective, constraints))


CLASHES = {
    "cap and share": (
        [cm.Cap(1.0), cm.GroupShare(list("aabbbb"), at_least={"a": 0.6})],
        r"that sum to one satisfy Cap\(1\), GroupShare\(<. entries>, at_least=.*; loosen one",
    ),
    "shares only": (
        [cm.GroupShare(list("aabbbb"), at_least={"a": 0.6, "b": 0.6})],
        "no weights that sum to one satisfy GroupShare",
    ),
    "too little for the range": (
        [cm.Cap(5), cm.MaxEpsilon(0.1), cm.EtaRange(1, 2), cm.Budget(100)],
        r"no weights that sum to one satisfy MaxEpsilon\(0.1\), EtaRange\(1, 2\); loosen",
    ),
}


@pytest.mark.parametrize("payments", [None, cm.PowerCost(2)])
@pytest.mark.parametrize("name", CLASHES)
def test_errors_name_contradictory_constraints(name, payments):
    constraints, message = CLASHES[name]
    objective = BASE + 0.1 * cm.Payments(payments) if payments else BASE
    with pytest.raises(InfeasibleMarketError, match=message):
        cm.allocate(cm.Market(random_sellers(), objective, constraints))


def test_a_method_that_does_not_support_a_market_is_refused():
    market = cm.Market(random_sellers(), BASE + 0.5 * cm.Payments(cm.PowerCost(2)))
    with pytest.raises(NotSupportedError, match="the exact solver supports sums of"):
        cm.allocate(market, "exact")


# ------------------------------------------------------------------ special markets


def test_sellers_with_infinite_cost_get_no_weight():
    prior = cm.Beta(2, 2)  # the density is zero at the upper end, so psi is infinite there
    sellers = cm.Sellers([0.2, 0.5, 1.0], prior=prior)
    assert np.isinf(sellers.virtual_costs[2])
    for objective, constraints in (
        (BASE + 0.5 * cm.Payments(cm.PowerCost(2)), [cm.Cap(2)]),
        (BASE, [cm.Budget(1.0)]),
        (BASE + 0.5 * cm.Payments(), [cm.MaxEpsilon(0.5)]),
    ):
        result = cm.allocate(cm.Market(sellers, objective, constraints))
        assert result.weights[2] == 0
        assert result.gap <= GAP
    with pytest.raises(InfeasibleMarketError, match=r"Cap\(1\).*1 sellers with infinite"):
        cm.allocate(cm.Market(sellers, BASE, [cm.Cap(1), cm.Budget(1.0)]), "branch_and_bound")


# --------------------------------------------------- cases from an adversarial review


V = (1.0, 2.0, 3.0, 4.0, 5.0)


def market_with(costs, objective, *constraints):
    return cm.Market(cm.Sellers(virtual_costs=costs), objective, constraints)


@pytest.mark.parametrize(
    ("low", "high"),
    one_in(2, [(1, 1), (1 / 3, 1 / 3), (1e6, 1.1e6), (1e3, 1.1e3), (1e-6, 1e-5), (1, 1e9)]),
)
def test_any_range_of_eta_gives_a_certified_optimum(low, high):
    market = market_with(V[:4], cm.Spread(3) + cm.Noise() + cm.Payments(), cm.EtaRange(low, high))
    result = cm.allocate(market)
    assert low <= result.eta <= high
    assert result.gap <= GAP
    brute = BruteForce(market)
    values = [brute(eta) for eta in np.geomspace(low, min(high, 9e2 + low), 30)]
    assert result.lower_bound <= min(values) * (1 + 1e-8)
    assert result.objective <= min(values) * (1 + 1e-6)


def test_a_wrong_simplex_minimum_is_detected():
    class WrongMinimum(cm.Term):
        def expression(self, quantities):
            return cp.sum_squares(quantities.weights)

        def simplex_minimum(self, weight, costs):
            return costs.min(axis=-1) + 10.0

    with pytest.raises(SolverError, match=r"exceeds the objective .* simplex_minimum"):
        cm.allocate(market_with(V, WrongMinimum() + cm.Noise() + cm.Payments()))


@pytest.mark.parametrize("least", [2.0, 20.0])
def test_a_range_without_an_upper_end_is_searched_from_below(least):
    """No weights are feasible at the eta that would be optimal without the constraint."""
    objective = cm.Spread() + cm.Noise() + 5.0 * cm.Payments()
    at_least = Bound(lambda q: [q.weights >= least * q.inverse_eta])
    result = cm.allocate(market_with([0.2, 0.4, 1.0], objective, at_least))
    np.testing.assert_allclose(result.epsilon, least, rtol=1e-4)
    spent = 5.0 * least * (0.2 + 0.4 + 1.0) + 1 / (3 * least) + 1 / np.sqrt(3)
    assert result.objective == pytest.approx(spent, rel=1e-4)


def test_small_weights_are_kept_if_the_constraints_need_them():
    """If the smallest weights were omitted, the three largest weights would exceed the bound."""
    rng = np.random.default_rng(200)
    sellers = cm.Sellers(rng.uniform(0.1, 1, 200), prior=cm.Uniform(0.1, 1))
    bound = Bound(lambda q: [cp.sum_largest(200 * q.weights, 3) <= 7.5])
    objective = 200 * cm.Noise() + (1 / 200) * cm.Payments()
    result = cm.allocate(cm.Market(sellers, objective, [bound]))
    assert np.sort(200 * result.weights)[-3:].sum() <= 7.5 + 1e-9
    assert result.gap <= 1e-6
