"""Payments in any market: against the exact ones, closed forms and sums that enclose them."""

import importlib
import itertools

import cvxpy as cp
import numpy as np
import pytest
import scipy.stats
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq

import convexmarket as cm
from convexmarket.rents import Chords, SolvedCurve, chord_rent, quadrature_rent

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
module = importlib.import_module("convexmarket.payments")  # not the function of that name

PRIORS = {
    "uniform": cm.Uniform(0.1, 1.0),
    "power": cm.Power(2.5, 1.0),
    "beta, infinite at the top": cm.Beta(2, 2, 0.05, 1.0),
    "beta, ironed at the top": cm.Beta(2, 0.5, 0.1, 1.0),
    "exponential": cm.Exponential(0.4),
    "lognormal": cm.LogNormal(-1.0, 0.5),
    "truncated normal": cm.TruncatedNormal(0.5, 0.2, 0.1, 1.0),
    "empirical": cm.EmpiricalPrior(np.round(np.random.default_rng(0).uniform(0.1, 1, 12), 2)),
    "long sample": cm.EmpiricalPrior(np.random.default_rng(0).uniform(0.1, 1, 60)),
    "two humps, ironed": cm.Prior.from_scipy(
        scipy.stats.rv_histogram((np.array([8, 1, 6]), np.array([0.1, 0.4, 0.7, 1.0])))()
    ),
    "mixture with jumps": cm.Mixture([3, 1], [cm.Uniform(0.1, 0.6), cm.Uniform(0.3, 1)]),
    "mixture, ironed": cm.Mixture(
        [1, 1], [cm.TruncatedNormal(0.3, 0.05, 0.1, 1), cm.TruncatedNormal(0.8, 0.05, 0.1, 1)]
    ),
}


# ------------------------------------------------------- the papers' problem is the oracle


@settings(relaxed, max_examples=40)
@given(
    st.sampled_from(sorted(PRIORS)),
    st.integers(2, 9),
    st.integers(0, 10**6),
    st.floats(-1, 1).map(lambda exponent: 10.0**exponent),
    st.sampled_from([None, 1.5, 3.0]),
)
def test_chords_meet_the_exact_rent_within_the_error_they_claim(name, m, seed, mu, cap):
    prior = PRIORS[name]
    sellers = cm.Sellers.draw(m, prior, np.random.default_rng(seed))
    market = cm.Market.standard(sellers, mu=mu, sigma=1, gamma=0.6, cap=cap and min(cap, m))
    allocation = cm.allocate(market)
    if cap is not None and np.isinf(prior.support[1]) and cap * (m - 1) < m:
        return
    paid = cm.payments(market, allocation)
    curve = SolvedCurve(market, allocation, gap=1e-9)
    for seller in np.flatnonzero(allocation.weights)[:2]:
        report = float(sellers.sensitivities[seller])
        found = chord_rent(curve, prior, seller, report, 1e-4 * paid[seller])
        exact = paid[seller] - report * allocation.epsilon[seller]
        assert abs(found.value - exact) <= found.error + 1e-6 * paid[seller]
        assert found.error <= 1.01e-4 * paid[seller]


def test_a_jump_between_branches_is_within_the_error():
    sellers = cm.Sellers([0.005] + [0.5] * 44, cm.Beta(1.0, 1.5, 0.0, 1.2))
    market = cm.Market.standard(sellers, mu=1.5, sigma=2.5, gamma=0.25 / sellers.virtual_costs[-1])
    allocation = cm.allocate(market)
    paid = cm.payments(market, allocation)
    exact = paid[0] - 0.005 * allocation.epsilon[0]
    curve = SolvedCurve(market, allocation, gap=1e-9)
    for tolerance in (1e-2, 1e-3, 1e-4):
        found = chord_rent(curve, sellers.prior, 0, 0.005, tolerance * exact)
        assert abs(found.value - exact) <= found.error <= tolerance * exact


@pytest.mark.parametrize("name", ["uniform", "empirical", "mixture, ironed", "exponential"])
def test_quadrature_meets_the_exact_rent(name):
    prior = PRIORS[name]
    sellers = cm.Sellers.draw(5, prior, np.random.default_rng(3))
    market = cm.Market.standard(sellers, mu=2.0, sigma=1, gamma=0.6)
    allocation = cm.allocate(market)
    seller = int(np.argmax(allocation.weights))
    report = float(sellers.sensitivities[seller])
    exact = cm.payments(market, allocation)[seller] - report * allocation.epsilon[seller]
    curve = SolvedCurve(market, allocation, gap=1e-9)
    found = quadrature_rent(curve, prior, seller, report, 1e-5)
    assert abs(found.value - exact) <= found.error + 1e-6


def test_cells_cover_the_reports_and_can_be_asked_for():
    prior = PRIORS["truncated normal"]
    market = cm.Market.standard(cm.Sellers([0.3, 0.5], prior), mu=1, sigma=1, gamma=0.6)
    curve = SolvedCurve(market, cm.allocate(market), gap=1e-9)
    chords = Chords(curve, prior, 0, 0.3, 0.9, np.array([0.4, 0.7]))
    assert [float(chords.z[cell.first]) for cell in chords.cells] == [0.3, 0.4, 0.7]
    before = chords.error
    assert chords.split()
    assert chords.error < before
    assert all(a.last == b.first for a, b in itertools.pairwise(chords.cells))
    empty = Chords(curve, prior, 0, 0.9, 0.9)
    assert (empty.value, empty.error, empty.split()) == (0, 0, False)


# ------------------------------------------------------------------------ convex costs


def alone(report, prior, cost, sigma=2.0, gamma=0.5):
    objective = cm.Spread() + sigma * cm.Noise() + gamma * cm.Payments(cost)
    return cm.Market(cm.Sellers([report], prior), objective)


def test_one_seller_with_a_quadratic_cost_is_a_formula():
    """sigma/eps + gamma*psi*eps^2 is least at eps^3 = sigma/(2*gamma*psi) = 2/psi, psi = 2z."""
    market = alone(0.4, cm.Uniform(0.0, 1.0), cm.PowerCost(2))
    allocation = cm.allocate(market, gap=1e-9)
    assert allocation.epsilon[0] == pytest.approx(0.4 ** (-1 / 3), rel=1e-3)
    # c*eps^2 + int_c^1 z^(-2/3) dz
    expected = 0.4 ** (1 / 3) + 3 * (1 - 0.4 ** (1 / 3))
    found = cm.estimate_payments(market, allocation)
    assert found.amounts[0] == pytest.approx(expected, rel=1e-3)  # what is sold has its error too
    rent = found.amounts[0] - 0.4 * allocation.epsilon[0] ** 2
    assert abs(rent - 3 * (1 - 0.4 ** (1 / 3))) <= found.errors[0] + 1e-12
    assert found.errors[0] < 1e-4
    assert found.method == "envelope"
    assert cm.payments(market, allocation) == pytest.approx(found.amounts)


@pytest.mark.parametrize("name", ["truncated normal", "mixture, ironed", "empirical"])
def test_one_seller_with_an_exponential_cost(name):
    prior = PRIORS[name]
    report = float(prior.quantile(0.3))
    market = alone(report, prior, cm.ExponentialCost())
    allocation = cm.allocate(market, gap=1e-9)

    def sold(z):  # sigma/eps^2 = gamma*psi*exp(eps)
        psi = float(prior.ironed_virtual_cost(z))
        return np.expm1(brentq(lambda e: 2.0 / e**2 - 0.5 * psi * np.exp(e), 1e-9, 99))

    ends = np.unique([report, *prior.breakpoints[prior.breakpoints > report], prior.support[1]])
    rent = sum(quad(sold, a, b, limit=200)[0] for a, b in itertools.pairwise(ends))
    found = cm.estimate_payments(market, allocation)
    paid_rent = found.amounts[0] - report * np.expm1(allocation.epsilon[0])
    assert abs(paid_rent - rent) <= found.errors[0] + 1e-9
    assert found.errors[0] < 0.01 * found.amounts[0]


def spread_market(prior, cost=None, constraints=(), spread=None, m=4, seed=2):
    sellers = cm.Sellers.draw(m, prior, np.random.default_rng(seed))
    payments = cm.Payments() if cost is None else cm.Payments(cost)
    objective = (1.5 * cm.Spread() if spread is None else spread) + cm.Noise() + 0.6 * payments
    return cm.Market(sellers, objective, constraints)


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("uniform", {"cost": cm.PowerCost(2)}),
        ("truncated normal", {"spread": 1.5 * cm.SquaredSpread()}),
        ("mixture, ironed", {"cost": cm.ExponentialCost(), "constraints": [cm.Cap(2)]}),
        ("exponential", {"spread": 1.5 * cm.Spread(p=3)}),
        ("uniform", {"constraints": [cm.GroupShare(list("aabb"), at_least={"b": 0.4})]}),
    ],
)
def test_sums_over_markets_solved_again_enclose_the_payment(name, pieces):
    """u(eps) falls with the report, so that upper and lower sums need no smoothness."""
    prior = PRIORS[name]
    market = spread_market(prior, **pieces)
    allocation = cm.allocate(market, gap=1e-8)
    seller = int(np.argmax(allocation.weights))
    found = cm.estimate_payments(market, allocation, sellers=[seller])
    report = market.sellers.sensitivities[seller]
    top = min(prior.support[1], report + 2.0)
    z = np.linspace(report, top, 13)
    sold = []
    for other in z:
        changed = cm.Market(
            market.sellers.with_report(seller, float(other)), market.objective, market.constraints
        )
        epsilon = cm.allocate(changed, gap=1e-8).epsilon[seller]
        sold.append(float(market.privacy_cost(epsilon)))
    assert np.all(np.diff(sold) <= 1e-3 * sold[0])
    rent = found.amounts[0] - report * sold[0]
    slack = found.errors[0] + 1e-3 * sold[0] * (top - report)
    assert np.diff(z) @ sold[1:] - slack <= rent <= np.diff(z) @ sold[:-1] + slack
    assert found.errors[0] < 2e-3 * found.amounts[0]
    middle = 0.5 * np.diff(z) @ (np.add(sold[1:], sold[:-1]))
    assert rent == pytest.approx(middle, rel=0.2)


# ------------------------------------------------------------- reports that do not matter


def test_where_reports_do_not_matter_everybody_is_paid_the_price_of_the_dearest():
    priors = {"a": cm.Uniform(0.1, 1.0), "b": cm.Uniform(0.1, 2.0)}
    sellers = cm.Sellers([0.2, 0.5, 0.7], priors, groups=["a", "b", "a"])
    market = cm.Market(sellers, cm.Spread() + cm.Noise(), [cm.MaxEpsilon([0.5, 1.0, 0.0])])
    allocation = cm.allocate(market)
    found = cm.estimate_payments(market, allocation)
    np.testing.assert_allclose(found.amounts, np.array([1.0, 2.0, 1.0]) * allocation.epsilon)
    assert found.method == "constant"
    assert found.amounts[2] == 0
    assert not found.errors.any()


def test_where_reports_do_not_matter_an_unbounded_prior_is_refused():
    market = cm.Market(
        cm.Sellers([0.2, 0.5], cm.Exponential(1.0)), cm.Spread() + cm.Noise(), [cm.MaxEpsilon(1.0)]
    )
    with pytest.raises(cm.NotSupportedError, match=r"does not depend on the reports.*bounded"):
        cm.payments(market, cm.allocate(market))


def test_a_seller_who_is_needed_and_whose_price_has_no_limit_is_refused():
    market = spread_market(PRIORS["exponential"], cm.PowerCost(2), [cm.Cap(1)])
    with pytest.raises(cm.NotSupportedError, match=r"no largest sensitivity.*cannot do without"):
        cm.payments(market, cm.allocate(market, gap=1e-8))


# --------------------------------------------------------------- no truthful prices known


def budget_market():
    sellers = cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0))
    limits = [cm.Budget(0.5), cm.MaxEpsilon(10.0)]
    return cm.Market(sellers, 1.0 * cm.Spread() + 1.0 * cm.Noise(), limits)


class Dearest(cm.Term):
    """A user's own term that reads the reports."""

    def expression(self, quantities):
        return cp.max(cp.multiply(quantities.virtual_costs, quantities.weights))


@pytest.mark.parametrize(
    ("market", "words"),
    [
        (budget_market(), "not guaranteed to exist in this market: the budget.*calibrate_gamma"),
        (
            cm.Market(budget_market().sellers, cm.Spread() + cm.Noise() + 1.0 * Dearest()),
            "not known to exist in this market: .*Dearest.*reads the virtual costs",
        ),
    ],
)
def test_without_truthful_prices_payments_are_refused(market, words):
    allocation = cm.allocate(budget_market())
    for pay in (cm.payments, cm.estimate_payments):
        with pytest.raises(cm.NotSupportedError, match=words + ".*assume_monotone=True"):
            pay(market, allocation)


def test_eq_8_can_be_computed_without_its_promise():
    market = budget_market()
    allocation = cm.allocate(market, gap=1e-8)
    found = cm.estimate_payments(
        market, allocation, accuracy=0.1, sellers=[0], assume_monotone=True
    )
    assert (found.method, found.incentives) == ("quadrature", "not guaranteed")
    assert "not guaranteed" in repr(found)
    z = np.linspace(0.2, 1.0, 15)
    sold = [
        cm.allocate(
            cm.Market(market.sellers.with_report(0, c), market.objective, market.constraints)
        ).epsilon[0]
        for c in z
    ]
    rent = found.amounts[0] - 0.2 * allocation.epsilon[0]
    assert np.diff(z) @ sold[1:] <= rent <= np.diff(z) @ sold[:-1]


# ---------------------------------------------------------------------------- a budget alone


def spread_under_budget(spread, reports, others=()):
    sellers = cm.Sellers(reports, cm.Uniform(0.0, 1.0))
    return cm.Market(sellers, spread + 0.5 * cm.Noise(), [cm.Budget(0.5), *others])


@settings(max_examples=12, deadline=None)
@given(
    spread=st.sampled_from(
        [
            (0.7 * cm.Spread(), []),
            (2.0 * cm.Spread(3.5), []),
            (1.0 * cm.Spread(1.2), []),
            (1.0 * cm.SquaredSpread(), [cm.Cap(1.6)]),
            (0.3 * cm.NegativeEntropy(), [cm.Cap(2)]),
        ]
    ),
    seed=st.integers(0, 10**6),
)
def test_beside_one_spread_a_dearer_seller_sells_no_more_under_a_budget(spread, seed):
    """docs/theory.md, section 9.4."""
    rng = np.random.default_rng(seed)
    reports = rng.uniform(0.05, 1.0, size=4) ** rng.choice([1, 3])
    sold = []
    for z in np.linspace(0.02, 1.0, 9):
        reports[0] = z
        market = spread_under_budget(spread[0], reports, spread[1])
        assert market.incentives == "by construction"
        sold.append(cm.allocate(market, gap=1e-9).epsilon[0])
    assert np.max(np.diff(sold)) <= 1e-4 * max(sold)


def test_payments_under_a_budget_alone_are_truthful():
    market = spread_under_budget(1.0 * cm.Spread(), [0.3, 0.5, 0.8])
    found = cm.estimate_payments(market, cm.allocate(market, gap=1e-8))
    assert (found.method, found.incentives) == ("quadrature", "by construction")
    audit = cm.audit_incentives(market)
    assert audit.is_incentive_compatible
    assert audit.max_rise == 0


def quotas(report):
    """A market with a budget and quotas that make the first two of four sellers complements."""
    sellers = cm.Sellers([report, 2.3, 0.01, 0.005], cm.Uniform(0, 2.5))
    sex = ["woman", "man", "woman", "man"]
    place = ["north", "south", "south", "north"]
    limits = [
        cm.Budget(1.0),
        cm.GroupShare(sex, at_least={"woman": 0.82}, at_most={"woman": 0.82}),
        cm.GroupShare(place, at_least={"south": 0.74}, at_most={"south": 0.74}),
    ]
    return cm.Market(sellers, 1.0 * cm.SquaredSpread() + 0.3 * cm.Noise(), limits)


def test_under_a_budget_and_quotas_a_seller_gains_by_lying():
    """docs/theory.md, section 9.4: no payment rule makes this market truthful."""
    market, dearer = quotas(0.2), quotas(0.5)
    assert market.incentives == "not guaranteed"
    cheap, dear = cm.allocate(market, gap=1e-9), cm.allocate(dearer, gap=1e-9)
    assert dear.epsilon[0] > 1.2 * cheap.epsilon[0]
    audit = cm.audit_incentives(market, misreports=12)
    assert not audit.is_incentive_compatible
    first = audit.table.iloc[0]
    assert first.max_gain > 0.01
    assert 0.3 < first.best_misreport < 0.7
    assert first.max_rise > 0.05


def test_a_weight_of_payments_instead_is_truthful_under_the_same_quotas():
    market = quotas(0.2)
    objective = market.objective + 0.5 * cm.Payments()
    audit = cm.audit_incentives(cm.Market(market.sellers, objective, market.constraints[1:]))
    assert audit.is_incentive_compatible
    assert audit.max_rise == 0


# ----------------------------------------------------------------------------- contracts


def test_some_sellers_with_progress_and_processes():
    market = spread_market(cm.Uniform(0.1, 1.0), spread=3.0 * cm.SquaredSpread(), m=5)
    allocation = cm.allocate(market, gap=1e-8)
    seen = []
    everyone = cm.estimate_payments(
        market, allocation, progress=lambda done, of: seen.append((done, of))
    )
    bought = allocation.n_bought
    assert seen[-1] == (bought, bought)
    assert len(seen) == bought
    assert everyone.n_solves >= bought
    some = cm.estimate_payments(market, allocation, sellers=[3, 1], jobs=2)
    assert some.sellers.tolist() == [3, 1]
    np.testing.assert_allclose(some.amounts, everyone.amounts[[3, 1]], rtol=1e-4)
    assert np.all(everyone.amounts >= market.sellers.sensitivities * allocation.epsilon - 1e-12)
    assert "total=" in repr(everyone)


def test_the_papers_problem_is_paid_exactly():
    sellers = cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0))
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5)
    allocation = cm.allocate(market)
    found = cm.estimate_payments(market, allocation, sellers=[2, 0])
    assert found.method == "exact"
    np.testing.assert_array_equal(found.amounts, cm.payments(market, allocation)[[2, 0]])
    assert np.all(found.errors <= 1e-9)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"accuracy": 0}, "accuracy is 0; give a number between 0 and 1"),
        ({"gap": 2}, "gap is 2; give a number between 0 and 1"),
        ({"sellers": [9]}, r"sellers is \[9\]; give positions from 0 to 3"),
        ({"sellers": [0.5]}, "give positions from 0 to 3"),
    ],
)
def test_wrong_arguments_are_named(wrong, words):
    market = spread_market(cm.Uniform(0.1, 1.0), spread=cm.SquaredSpread() * 1.0)
    with pytest.raises(cm.ParameterError, match=words):
        cm.estimate_payments(market, cm.allocate(market), **wrong)


def test_a_rough_allocation_is_not_paid_silently():
    """Its gap shows in the errors, and payments refuses."""
    market = spread_market(cm.Uniform(0.1, 1.0), cm.PowerCost(2), m=6)
    good = cm.allocate(market, gap=1e-8)
    rough = cm.Allocation(**{**vars_of(good), "lower_bound": good.objective * (1 - 9e-4)})
    found = cm.estimate_payments(market, rough)
    assert found.errors.max() < 1e-5  # the bound is found again

    def value(factor):
        eta = factor * good.eta
        return market.objective.value(good.weights, eta, market.sellers.virtual_costs)

    others = {"eta": 1.02 * good.eta, "objective": value(1.02), "lower_bound": good.lower_bound}
    poor = cm.Allocation(**{**vars_of(good), **others})
    assert 1e-5 < poor.gap < 1e-3
    assert cm.estimate_payments(market, poor).errors.max() > 1e-4
    poor = cm.Allocation(**{**vars_of(poor), "eta": 1.04 * good.eta, "objective": value(1.04)})
    with pytest.raises(cm.AllocationError, match=r"not known well enough.*allocate with a smaller"):
        cm.payments(market, poor)


def vars_of(allocation):
    names = ("weights", "eta", "objective", "lower_bound", "multiplier", "method", "seconds")
    return {name: getattr(allocation, name) for name in names}


def test_an_allocation_that_is_not_the_optimum_of_this_market_is_refused():
    """Same value, but not the least: certified for another market."""
    market = spread_market(cm.Uniform(0.1, 1.0), spread=1.0 * cm.SquaredSpread())
    good = cm.allocate(market, gap=1e-8)
    eta = 2 * good.eta
    objective = market.objective.value(good.weights, eta, market.sellers.virtual_costs)
    wrong = cm.Allocation(
        **{**vars_of(good), "eta": eta, "objective": objective, "lower_bound": objective}
    )
    with pytest.raises(cm.AllocationError, match="but the optimum of this market is"):
        cm.payments(market, wrong)
