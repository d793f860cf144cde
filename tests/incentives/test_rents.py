"""Payments in any market: against the exact ones, closed forms and sums that enclose them.

Rents over curves that are known in closed form need no market to be solved.
"""

import dataclasses
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import cvxpy as cp
import joblib
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import erf

import convexmarket as cm
from convexmarket.errors import AllocationError, InfeasibleMarketError, NotSupportedError
from convexmarket.incentives.rents import (
    Chords,
    CurvePoint,
    SolvedCurve,
    chord_rent,
    end_of_sales,
    quadrature_rent,
    sales_end_between,
)
from tests import one_in
from tests.incentives.builders import (
    PRIORS,
    alone,
    assert_one_seller_is_paid_for_an_exponential_cost,
    assert_sums_enclose_the_payment,
    draw,
    prior_of,
    quotas,
    quotas_without_a_budget,
    sold_at,
    spread_market,
    spread_under_budget,
)

module = importlib.import_module("convexmarket.incentives.rents")


# ------------------------------------------------------- the papers' problem is the oracle


@given(
    st.sampled_from(sorted(PRIORS)),
    st.integers(2, 9),
    st.integers(0, 10**6),
    st.floats(-1, 1).map(lambda exponent: 10.0**exponent),
    st.sampled_from([None, 1.5, 3.0]),
)
@example(name="empirical", m=5, seed=248, mu=1.0, cap=None)  # psi jumps at the bottom already
@example(name="two humps, ironed", m=2, seed=1000000, mu=1.0, cap=None)  # a kink in one step
def test_chords_meet_the_exact_rent_within_the_error_they_claim(name, m, seed, mu, cap):
    prior = prior_of(name)
    sellers = draw(prior, m, seed)
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
        assert abs(found.value - exact) <= found.error + 1e-8 * paid[seller]
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
    prior = prior_of(name)
    sellers = draw(prior, 5, 3)
    market = cm.Market.standard(sellers, mu=2.0, sigma=1, gamma=0.6)
    allocation = cm.allocate(market)
    seller = int(np.argmax(allocation.weights))
    report = float(sellers.sensitivities[seller])
    exact = cm.payments(market, allocation)[seller] - report * allocation.epsilon[seller]
    curve = SolvedCurve(market, allocation, gap=1e-9)
    found = quadrature_rent(curve, prior, seller, report, 1e-5)
    assert abs(found.value - exact) <= found.error + 1e-6


# ------------------------------------------------------------------------ convex costs


def test_one_seller_with_a_quadratic_cost_is_a_formula():
    """sigma/eps + gamma*psi*eps^2 is least at eps^3 = sigma/(2*gamma*psi) = 2/psi, psi = 2z."""
    market = alone(0.4, cm.Uniform(0.0, 1.0), cm.PowerCost(2))
    allocation = cm.allocate(market, gap=1e-9)
    assert allocation.epsilon[0] == pytest.approx(0.4 ** (-1 / 3), rel=1e-3)
    # c*eps^2 + int_c^1 z^(-2/3) dz
    expected = 0.4 ** (1 / 3) + 3 * (1 - 0.4 ** (1 / 3))
    found = cm.incentives.estimate_payments(market, allocation)
    assert found.amounts[0] == pytest.approx(expected, rel=1e-3)  # what is sold has its error too
    rent = found.amounts[0] - 0.4 * allocation.epsilon[0] ** 2
    assert abs(rent - 3 * (1 - 0.4 ** (1 / 3))) <= found.errors[0] + 1e-12
    assert found.errors[0] < 1e-4
    assert found.method == "envelope"
    assert cm.payments(market, allocation) == pytest.approx(found.amounts)


@pytest.mark.parametrize("name", ["beta, ironed at the top", "empirical"])
def test_one_seller_with_an_exponential_cost(name):
    assert_one_seller_is_paid_for_an_exponential_cost(prior_of(name), accuracy=1e-3)


@pytest.mark.parametrize(
    ("name", "pieces"),
    one_in(
        2,
        [
            ("truncated normal", {"spread": 1.5 * cm.terms.SquaredSpread()}),
            ("two humps, ironed", {"cost": cm.terms.ExponentialCost(), "constraints": [cm.Cap(2)]}),
            ("exponential", {"spread": 1.5 * cm.Spread(p=3)}),
            ("uniform", {"constraints": [cm.GroupShare(list("aab"), at_least={"b": 0.4})]}),
        ],
    ),
)
def test_sums_over_markets_solved_again_enclose_the_payment(name, pieces):
    market = spread_market(prior_of(name), **pieces, m=3)
    report = market.sellers.sensitivities[0]
    top = min(prior_of(name).support[1], report + 2.0)
    assert_sums_enclose_the_payment(market, 0, np.linspace(report, top, 6), accuracy=1e-2)


# ------------------------------------------------------------- reports that do not matter


def test_where_reports_do_not_matter_everybody_is_paid_the_price_of_the_dearest():
    priors = {"a": cm.Uniform(0.1, 1.0), "b": cm.Uniform(0.1, 2.0)}
    sellers = cm.Sellers([0.2, 0.5, 0.7], priors, groups=["a", "b", "a"])
    market = cm.Market(sellers, cm.Spread() + cm.Noise(), [cm.MaxEpsilon([0.5, 1.0, 0.0])])
    allocation = cm.allocate(market)
    found = cm.incentives.estimate_payments(market, allocation)
    np.testing.assert_allclose(found.amounts, np.array([1.0, 2.0, 1.0]) * allocation.epsilon)
    assert found.method == "constant"
    assert found.amounts[2] == 0
    assert not found.errors.any()


def test_where_reports_do_not_matter_an_unbounded_prior_is_refused():
    market = cm.Market(
        cm.Sellers([0.2, 0.5], cm.priors.Exponential(1.0)),
        cm.Spread() + cm.Noise(),
        [cm.MaxEpsilon(1.0)],
    )
    with pytest.raises(NotSupportedError, match=r"does not depend on the reports.*bounded"):
        cm.payments(market, cm.allocate(market))


def test_a_seller_who_is_needed_and_whose_price_has_no_limit_is_refused():
    market = spread_market(prior_of("exponential"), cm.PowerCost(2), [cm.Cap(1)])
    with pytest.raises(NotSupportedError, match=r"no largest sensitivity.*cannot do without"):
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


def test_without_truthful_prices_payments_are_refused():
    limited = budget_market()
    own = cm.Market(limited.sellers, cm.Spread() + cm.Noise() + 1.0 * Dearest())
    allocation = cm.allocate(limited)
    for market, words in (
        (limited, "not guaranteed to exist in this market: the budget.*calibrate_gamma"),
        (own, "not known to exist in this market: .*Dearest.*reads the virtual costs"),
    ):
        for pay in (cm.payments, cm.incentives.estimate_payments):
            with pytest.raises(NotSupportedError, match=words + ".*assume_monotone=True"):
                pay(market, allocation)


def check_eq_8_without_its_promise(n_reports, tol=0.1):
    market = budget_market()
    allocation = cm.allocate(market, gap=1e-8)
    found = cm.incentives.estimate_payments(
        market, allocation, tol=tol, sellers=[0], assume_monotone=True
    )
    assert (found.method, found.incentives) == ("quadrature", "not guaranteed")
    assert "not guaranteed" in repr(found)
    z = np.linspace(0.2, 1.0, n_reports)
    sold = sold_at(market, 0, z)
    rent = found.amounts[0] - 0.2 * allocation.epsilon[0]
    assert np.diff(z) @ sold[1:] <= rent <= np.diff(z) @ sold[:-1]


# ---------------------------------------------------------------------------- a budget alone


@pytest.mark.campaign
@given(
    spread=st.sampled_from(
        [
            (0.7 * cm.Spread(), []),
            (2.0 * cm.Spread(3.5), []),
            (1.0 * cm.Spread(1.2), []),
            (1.0 * cm.terms.SquaredSpread(), [cm.Cap(1.6)]),
            (0.3 * cm.terms.NegativeEntropy(), [cm.Cap(2)]),
        ]
    ),
    seed=st.integers(0, 10**6),
)
@example((0.7 * cm.Spread(), []), 150)  # neither report sells anything
def test_beside_one_spread_a_dearer_seller_sells_no_more_under_a_budget(spread, seed):
    """docs/theory.md, section 9.4."""
    rng = np.random.default_rng(seed)
    reports = rng.uniform(0.05, 1.0, size=4) ** rng.choice([1, 3])
    market = spread_under_budget(spread[0], reports, spread[1])
    assert market.incentives == "by construction"
    sold = sold_at(market, 0, np.sort(rng.uniform(0.02, 1.0, 2)), gap=1e-9)
    assert sold[1] <= sold[0] * (1 + 1e-4) + 1e-9  # what a solver leaves of nothing


def test_payments_under_a_budget_alone_are_truthful():
    market = spread_under_budget(1.0 * cm.Spread(), [0.3, 0.6])
    audit = cm.audit_incentives(market, misreports=3, max_sellers=1)
    assert audit.is_incentive_compatible
    assert audit.max_rise == 0


def draws_the_first():
    """Return a generator that takes the first of four for a sample of one; a campaign has all."""
    return np.random.default_rng(11)


def test_under_a_budget_and_quotas_a_dearer_seller_sells_more():
    """docs/theory.md, section 9.4: no payment rule makes this market truthful."""
    market = quotas(0.2)
    assert market.incentives == "not guaranteed"
    cheap, dear = sold_at(market, 0, [0.2, 0.5], gap=1e-9)
    assert dear > 1.2 * cheap


@pytest.mark.campaign  # a market is solved again for each lie
def test_the_audit_finds_what_a_seller_gains_by_lying_under_a_budget_and_quotas():
    audit = cm.audit_incentives(
        quotas(0.2), misreports=12, max_sellers=1, random_state=draws_the_first()
    )
    assert not audit.is_incentive_compatible
    first = audit.to_frame().reset_index().iloc[0]
    assert first.id == 0
    assert first.max_gain > 0.01
    assert 0.3 < first.best_misreport < 0.7
    assert first.max_rise > 0.05


@pytest.mark.campaign
def test_a_weight_of_payments_instead_is_truthful_under_the_same_quotas():
    audit = cm.audit_incentives(
        quotas_without_a_budget(), misreports=4, max_sellers=1, random_state=draws_the_first()
    )
    assert audit.is_incentive_compatible
    assert audit.max_rise == 0


# ----------------------------------------------------------------------------- contracts


def test_some_sellers_in_their_order_at_once_with_progress():
    market = spread_market(cm.Uniform(0.1, 1.0), spread=3.0 * cm.terms.SquaredSpread())
    allocation = cm.allocate(market, gap=1e-8)
    seen = []
    everyone = cm.incentives.estimate_payments(
        market, allocation, progress=lambda done, of: seen.append((done, of))
    )
    bought = allocation.n_bought
    assert seen[-1] == (bought, bought)
    assert len(seen) == bought
    assert everyone.n_solves >= bought
    with joblib.parallel_config(backend="threading"):
        some = cm.incentives.estimate_payments(market, allocation, sellers=[3, 1], jobs=2)
    assert some.sellers.tolist() == [3, 1]
    np.testing.assert_allclose(some.amounts, everyone.amounts[[3, 1]], rtol=1e-4)
    assert np.all(everyone.amounts >= market.sellers.sensitivities * allocation.epsilon - 1e-12)
    assert "total=" in repr(everyone)


def test_a_rough_allocation_is_not_paid_silently():
    check_rough_allocation(3)


def check_rough_allocation(m):
    """Its gap shows in the errors, and payments refuses."""
    market = spread_market(cm.Uniform(0.1, 1.0), cm.PowerCost(2), m=m)
    good = cm.allocate(market, gap=1e-8)
    rough = dataclasses.replace(good, lower_bound=good.objective * (1 - 9e-4))
    found = cm.incentives.estimate_payments(market, rough)
    assert found.errors.max() < 1e-5  # the bound is found again

    def value(factor):
        eta = factor * good.eta
        return market.objective.value(good.weights, eta, market.sellers.virtual_costs)

    poor = dataclasses.replace(good, eta=1.02 * good.eta, objective=value(1.02))
    assert 1e-5 < poor.gap < 1e-3
    assert cm.incentives.estimate_payments(market, poor).errors.max() > 1e-4
    poor = dataclasses.replace(good, eta=1.04 * good.eta, objective=value(1.04))
    with pytest.raises(AllocationError, match=r"not known well enough.*allocate with a smaller"):
        cm.payments(market, poor)


def test_an_allocation_that_is_not_the_optimum_of_this_market_is_refused():
    """Same value, but not the least: certified for another market."""
    market = spread_market(cm.Uniform(0.1, 1.0), spread=1.0 * cm.terms.SquaredSpread())
    good = cm.allocate(market, gap=1e-8)
    eta = 2 * good.eta
    objective = market.objective.value(good.weights, eta, market.sellers.virtual_costs)
    wrong = dataclasses.replace(good, eta=eta, objective=objective, lower_bound=objective)
    with pytest.raises(AllocationError, match="but the optimum of this market is"):
        cm.payments(market, wrong)


# ------------------------------------------------------- curves that are known in closed form


@dataclass
class FormulaCurve:
    """The answers of a buyer who buys so much at a virtual cost, and its integral from 0.

    The optimum has gamma times the integral; its bounds are off by a gap.
    """

    sold: Callable[[float], float]
    integral: Callable[[float], float]
    gamma: float = 0.7
    gap: float = 0.0
    without: float = np.inf  # the optimum without the seller
    asked: list = field(default_factory=list)

    def at(self, seller: int, y: float) -> CurvePoint:
        self.asked.append(y)
        out = np.isinf(y)
        value = self.without if out else 5.0 + self.gamma * self.integral(y)
        sold = 0.0 if out else self.sold(y)
        return CurvePoint(value + self.gap, value, sold, sold)


def jump_integral(y):
    near, far = min(y, 0.8), min(max(y, 0.8), 3.0)
    return 3 * near - 0.1 * near**2 + 0.9 * (far - 0.8) - 0.15 * (far**2 - 0.64)


#: What is sold at a virtual cost, its integral, and where it ends.
SHAPES = {
    "line": (lambda y: max(2.0 - y, 0.0), lambda y: 2 * min(y, 2.0) - min(y, 2.0) ** 2 / 2, 2.0),
    "hyperbola": (lambda y: 1 / (0.3 + y) ** 2, lambda y: 1 / 0.3 - 1 / (0.3 + y), np.inf),
    "jump": (lambda y: 3 - 0.2 * y if y < 0.8 else max(0.9 - 0.3 * y, 0.0), jump_integral, 3.0),
    "constant": (lambda y: 1.5, lambda y: 1.5 * y, np.inf),
}


def known(shape, gamma=0.7, gap=0.0, needed=False) -> FormulaCurve:
    sold, integral, end = SHAPES[shape]
    without = np.inf if needed or np.isinf(end) else 5.0 + gamma * integral(end)
    return FormulaCurve(sold, integral, gamma, gap, without)


#: Priors of an affine, a smooth, a step-wise and a kinked virtual cost.
KINDS = ["uniform", "power", "truncated normal", "empirical", "two humps, ironed"]


def place_of(prior, level, low, high) -> float:
    """The report at which the virtual cost reaches a level, by bisection."""
    for _ in range(55):
        middle = 0.5 * (low + high)
        reached = float(prior.ironed_virtual_cost(middle)) >= level
        low, high = (low, middle) if reached else (middle, high)
    return high


def exact_rent(curve, prior, report) -> float:
    """The integral of what is sold over the reports, cut finely at all that may bend or jump."""
    top = prior.support[1]
    bends = [place_of(prior, level, report, top) for level in (0.8, 2.0, 3.0)]
    kinks = np.concatenate((prior.breakpoints, np.nextafter(prior.breakpoints, np.inf), bends))
    cuts = np.unique([*np.linspace(report, top, 60), *kinks[(kinks > report) & (kinks < top)]])
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half, middle = np.diff(cuts) / 2, (cuts[1:] + cuts[:-1]) / 2
    costs = np.asarray(prior.ironed_virtual_cost(middle[:, None] + half[:, None] * nodes))
    sold = np.array([[curve.sold(float(y)) for y in row] for row in costs])
    return float(half @ (sold @ weights))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KINDS)
def test_chords_enclose_the_rent_and_meet_the_tolerance(name, shape):
    prior, report = prior_of(name), 0.3
    exact = exact_rent(known(shape), prior, report)
    for tolerance in (1e-1, 1e-3):
        found = chord_rent(known(shape), prior, 0, report, tolerance)
        assert abs(found.value - exact) <= found.error + 1e-5
        assert found.error <= tolerance
    rough = chord_rent(known(shape, gap=1e-3), prior, 0, report, 1e-2)
    assert abs(rough.value - exact) <= rough.error + 1e-5
    assert rough.error > 0


@pytest.mark.parametrize("gamma", [0.2, 3.0])
def test_an_affine_virtual_cost_needs_the_two_ends_only(gamma):
    """F differs by gamma*slope times the rent; a gap of F is a gap of the rent over the same."""
    prior, curve = prior_of("uniform"), known("jump", gamma, gap=1e-4)
    found = chord_rent(curve, prior, 0, 0.25, 1e-2)
    low, high = 2 * 0.25 - 0.1, 1.9
    rent = (curve.integral(high) - curve.integral(low)) / 2
    assert found.value == pytest.approx(rent, rel=1e-9)
    assert found.error == pytest.approx(1e-4 / (2 * gamma), rel=1e-6)
    assert np.unique(np.round(curve.asked, 12)).tolist() == pytest.approx([low, high])


def test_the_report_at_the_top_earns_nothing_more():
    for name in ("uniform", "truncated normal"):
        found = chord_rent(known("line"), prior_of(name), 0, 1.0, 1e-6)
        assert (found.value, found.error) == (0.0, 0.0)
        integral = quadrature_rent(known("line"), prior_of(name), 0, 1.0, 1e-6)
        assert (integral.value, integral.error) == (0.0, 0.0)


def test_solves_stop_where_they_are_told_to():
    prior = prior_of("truncated normal")
    tight = chord_rent(known("hyperbola"), prior, 0, 0.2, 1e-12, max_solves=7)
    exact = exact_rent(known("hyperbola"), prior, 0.2)
    assert abs(tight.value - exact) <= tight.error
    curve = known("hyperbola")
    chord_rent(curve, prior, 0, 0.2, 1e-12, max_solves=7)
    assert len(set(curve.asked)) == 8  # seven cells


@pytest.mark.parametrize("halvings", [1, 4, 10])
def test_sales_end_between_two_reports_that_close_in(halvings):
    prior = prior_of("uniform")
    curve = known("line")  # sold up to psi = 2z - 0.1 = 2, beyond the top ...
    assert sales_end_between(curve, prior, 0, 0.2, 0.99, halvings) == (0.99, 0.99)
    curve = known("jump")  # ... or never, or to psi = 3
    wide = cm.Uniform(0.0, 4.0)
    low, high = sales_end_between(curve, wide, 0, 0.2, 4.0, halvings)
    assert high - low == pytest.approx(3.8 / 2**halvings)
    assert low <= 1.5 <= high
    assert curve.sold(2 * low) > 1e-9


@pytest.mark.parametrize("report", [0.2, 0.9])
def test_quadrature_of_a_curve_that_ends(report):
    wide = cm.Uniform(0.0, 4.0)
    for shape in ("line", "jump", "hyperbola"):
        curve = known(shape)
        found = quadrature_rent(curve, wide, 0, report, 1e-8)
        assert abs(found.value - exact_rent(curve, wide, report)) <= found.error + 1e-6
        assert found.error < 1e-2


@pytest.mark.parametrize("name", ["two humps, ironed", "empirical"])
def test_quadrature_is_cut_at_the_kinks_of_the_virtual_cost(name):
    curve = known("line")
    found = quadrature_rent(curve, prior_of(name), 0, 0.2, 1e-6)
    assert found.value == pytest.approx(exact_rent(curve, prior_of(name), 0.2), abs=3e-5)


def test_an_endless_price_ends_where_next_to_nothing_is_sold():
    prior = cm.priors.Exponential(0.4)
    end = end_of_sales(known("line"), prior, 0, 0.1)
    doubled = (end - 0.1) / prior.mean
    assert np.log2(doubled) == pytest.approx(round(np.log2(doubled)), abs=1e-9)
    assert float(prior.ironed_virtual_cost(end)) >= 2.0
    before = 0.1 + (end - 0.1) / 2
    assert end == 0.1 + prior.mean or float(prior.ironed_virtual_cost(before)) < 2.0
    with pytest.raises(NotSupportedError, match="cannot do without"):
        end_of_sales(known("line", needed=True), prior, 0, 0.1)
    with pytest.raises(NotSupportedError, match="cannot do without"):
        end_of_sales(known("constant"), prior, 0, 0.1)
    assert end_of_sales(known("constant"), prior_of("uniform"), 0, 0.1) == 1.0


def test_what_may_be_sold_beyond_the_end_is_in_the_error():
    prior, gap = cm.priors.Exponential(0.4), 1e-3
    found = chord_rent(known("line", gap=gap), prior, 0, 0.1, 1e-2)
    clean = chord_rent(known("line"), prior, 0, 0.1, 1e-2)
    exact = quad(lambda z: max(2 - float(prior.ironed_virtual_cost(z)), 0), 0.1, 2.0,
                 points=[1.0], limit=200)[0]  # fmt: skip
    assert abs(found.value - exact) <= found.error
    assert abs(clean.value - exact) <= clean.error + 1e-9
    assert found.error >= gap / 0.7  # the optimum without the seller is known no better


# ------------------------------------------------------------------------------- cells


def chords(shape="hyperbola", name="truncated normal", start=0.3, end=1.0, **options) -> Chords:
    gap = options.pop("gap", 0.0)
    return Chords(known(shape, gap=gap), prior_of(name), 0, start, end, **options)


@pytest.mark.parametrize("name", KINDS)
def test_the_table_rises_from_the_first_report_to_the_last(name):
    made = chords(name=name)
    assert (made.z[0], made.z[-1]) == (0.3, 1.0)
    assert np.all(np.diff(made.z) > 0)
    assert np.all(made.y[1:] >= made.y[:-1])
    np.testing.assert_allclose(
        made.y, prior_of(name).ironed_virtual_cost(made.z), rtol=1e-9, atol=1e-9
    )
    affine = prior_of(name).virtual_cost_slope is not None
    assert made.z.size == 2 if affine else made.z.size > 30_000
    if not affine:
        kinks = prior_of(name).breakpoints
        kinks = kinks[(kinks >= 0.3) & (kinks < 1.0)]
        assert np.isin(kinks, made.z).all()
        assert np.isin(np.nextafter(kinks, np.inf), made.z).all()
        firsts = made.z[[cell.first for cell in made.cells]]
        if kinks.size <= 8:
            assert np.isin(kinks[kinks > 0.3], firsts).all()


def test_cells_adjoin_and_splitting_lowers_what_can_be_lowered():
    made = chords()
    reducible = [made.reducible]
    for _ in range(12):
        assert made.split()
        assert all(a.last == b.first for a, b in pairwise(made.cells))
        assert (made.cells[0].first, made.cells[-1].last) == (0, made.z.size - 1)
        reducible.append(made.reducible)
    assert reducible[-1] < 0.05 * reducible[0]
    assert made.value == pytest.approx(sum(cell.value for cell in made.cells))
    assert made.error == pytest.approx(sum(cell.error for cell in made.cells))
    assert made.reducible == pytest.approx(sum(cell.reducible for cell in made.cells))


def test_the_worst_cell_is_split():
    made = chords("jump", "truncated normal")
    for _ in range(6):
        worst = max(made.cells, key=lambda cell: cell.reducible)
        before = list(made.cells)
        made.split()
        gone = [cell for cell in before if cell not in made.cells]
        assert gone == [worst]


def test_without_the_envelope_the_ends_bound_the_rent():
    """Upper and lower sums: half the width times the drop, around the mean of the ends."""
    made = chords(envelope=False, solved=np.array([0.5, 0.8]))
    assert [float(made.z[cell.first]) for cell in made.cells] == [0.3, 0.5, 0.8]
    for cell, (a, b) in zip(made.cells, [(0.3, 0.5), (0.5, 0.8), (0.8, 1.0)], strict=True):
        left, right = (
            made._curve.sold(float(prior_of("truncated normal").ironed_virtual_cost(z)))
            for z in (a, b)
        )
        assert cell.value == pytest.approx((b - a) * (left + right) / 2, rel=1e-9)
        assert cell.error == pytest.approx((b - a) * (left - right) / 2, rel=1e-9)
        assert cell.reducible == cell.error


def test_on_an_ironed_interval_there_is_one_answer():
    prior = prior_of("two humps, ironed")
    low, high = prior.breakpoints[:2]
    assert np.ptp(prior.ironed_virtual_cost([low, high])) < 1e-12
    made = chords(name="two humps, ironed", start=low, end=high)
    assert made.error == 0
    sold = made._curve.sold(float(prior.ironed_virtual_cost(low)))
    assert made.value == pytest.approx((high - low) * sold, rel=1e-9)
    assert not made.split()


def test_the_doubt_about_what_is_sold_is_a_root_of_the_gap():
    """With an elasticity of one the objective rises by spent/2 * (relative move)^2."""
    made = chords(gap=0.02)
    y, sold = float(made.y[0]), made.point(0).sold
    spent = 0.7 * y * sold
    assert made.doubt(0) == pytest.approx(sold * np.sqrt(2 * 0.02 / spent))
    assert chords().doubt(0) == 0
    unpaid = chords(gap=0.02)
    unpaid._curve.gamma = 0.0
    upper = unpaid.point(0).upper
    assert unpaid.doubt(0) == pytest.approx(sold * np.sqrt(2 * 0.02 / upper))


def test_roughness_is_one_at_a_jump_and_little_where_sales_fall_evenly():
    even, jump = chords("line"), chords("jump")
    end = int(np.searchsorted(even.y, 1.9))
    middle = end // 2
    assert even._roughness(0, middle, end) == 0.05
    assert even._roughness(0, 0, 0) == 1.0
    assert jump._roughness(0, int(np.searchsorted(jump.y, 0.8)), end) > 0.5
    curved = chords("hyperbola")
    left, centre, right = (curved.point(k).sold for k in (0, middle, end))
    share = (left - centre) / (left - right)
    line = (curved.y[middle] - curved.y[0]) / (curved.y[end] - curved.y[0])
    assert curved._roughness(0, middle, end) == pytest.approx(min(1.0, 2 * abs(share - line)))


# ------------------------------------------------- falls and virtual costs of any formula


@dataclass
class Psi:
    """A prior of which the virtual cost is all that matters here, on reports from 0 to 1."""

    ironed_virtual_cost: Callable
    breakpoints: np.ndarray = field(default_factory=lambda: np.empty(0))
    support: tuple[float, float] = (0.0, 1.0)
    virtual_cost_slope: float | None = None
    is_step: bool = False
    mean: float = 0.5


def step(place: float) -> FormulaCurve:
    """One is sold up to a virtual cost, and nothing beyond."""
    return FormulaCurve(lambda y: float(y < place), lambda y: min(y, place))


def even() -> FormulaCurve:
    return FormulaCurve(lambda y: 2.0 - y, lambda y: 2 * y - y**2 / 2)


def dying(scale: float = 1.0) -> FormulaCurve:
    return FormulaCurve(
        lambda y: float(np.exp(-y / scale)),
        lambda y: float(-scale * np.expm1(-y / scale)),
        without=5.0 + 0.7 * scale,
    )


CONVEX, CONCAVE = Psi(np.square), Psi(np.sqrt)


@pytest.mark.parametrize(("psi", "rent"), [(CONVEX, 2 - 1 / 3), (CONCAVE, 2 - 2 / 3)])
def test_one_chord_knows_the_rent_where_sales_fall_evenly(psi, rent):
    """Its slope is 1 here; how far psi is from it, on the average over virtual costs, is added."""
    curve = even()
    made = Chords(curve, psi, 0, 0.0, 1.0)
    assert made.value == pytest.approx(rent, rel=1e-6)
    assert len(made.cells) == 1
    assert set(curve.asked) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("psi", "report_at"), [(CONVEX, np.sqrt), (CONCAVE, np.square)], ids=["convex", "concave"]
)
def test_the_error_of_a_chord_is_what_the_worst_jump_can_make_of_it(psi, report_at):
    errors, claims = [], []
    for place in np.linspace(0.004, 0.996, 32):
        made = Chords(step(place), psi, 0, 0.0, 1.0)
        errors.append(abs(made.value - report_at(place)))
        claims.append(made.error)
    assert np.all(np.array(errors) <= np.array(claims) + 1e-9)
    assert max(errors) > 0.9 * max(claims)  # and not much more than that
    assert max(claims) == pytest.approx(1 / 6, rel=1e-2)


@pytest.mark.parametrize(
    ("sold", "integral"),
    [
        # evenly for a while, then at once: what the first halves say is not true of the rest
        (lambda y: 1 - y if y < 0.25 else 0.75 * (y < 0.98), lambda y: (
            y - y**2 / 2 if y < 0.25 else 0.21875 + 0.75 * (min(y, 0.98) - 0.25)
        )),
        (lambda y: float(y < 0.3), lambda y: min(y, 0.3)),
        (lambda y: 1 / (0.1 + y), lambda y: np.log1p(y / 0.1)),
    ],
    ids=["even, then a jump", "jump", "smooth"],
)  # fmt: skip
@pytest.mark.parametrize("unit", [1.0, 0.05])
@pytest.mark.parametrize("psi", [CONVEX, CONCAVE], ids=["convex", "concave"])
def test_every_cell_encloses_its_own_part_of_the_rent(psi, unit, sold, integral):
    scaled = FormulaCurve(lambda y: unit * sold(y), lambda y: unit * integral(y))
    made = Chords(scaled, psi, 0, 0.0, 1.0)
    jumps = [z for y in (0.25, 0.3, 0.98) for z in (y**2, np.sqrt(y))]
    for _ in range(6):
        for cell in made.cells:
            low, high = made.z[[cell.first, cell.last]]
            cuts = [low, *sorted(z for z in jumps if low < z < high), high]
            exact = sum(
                quad(lambda z: sold(float(psi.ironed_virtual_cost(z))), a, b)[0]
                for a, b in pairwise(cuts)
            )
            assert abs(cell.value / unit - exact) <= cell.error / unit + 1e-8
        assert made.split()


def test_trust_in_an_even_fall_grows_by_half_a_split_and_a_jump_takes_it_away():
    made = Chords(even(), CONVEX, 0, 0.0, 1.0)
    assert made.cells[0].roughness == 1.0
    for depth in range(1, 7):
        for _ in range(2 ** (depth - 1)):
            assert made.split()
        roughness = [cell.roughness for cell in made.cells]
        assert min(roughness) >= max(0.5**depth, 0.05)
        if depth == 1:
            assert roughness == [0.5, 0.5]
    assert max(roughness) < 0.2
    jump = Chords(step(0.3), CONVEX, 0, 0.0, 1.0)
    for _ in range(5):
        jump.split()
        (holding,) = (c for c in jump.cells if jump.y[c.first] < 0.3 <= jump.y[c.last])
        assert 0.8 < holding.roughness <= 1.0


def test_few_solves_do_where_sales_fall_evenly():
    """The tolerance is met after a handful; at a jump, cells have to close in on it."""
    few, many = even(), step(0.3)
    found = chord_rent(few, CONVEX, 0, 0.0, 2e-3)
    assert found.value == pytest.approx(5 / 3, rel=1e-6)
    assert found.error <= 2e-3
    assert len(set(few.asked)) <= 8
    found = chord_rent(many, CONVEX, 0, 0.0, 1e-6)
    assert abs(found.value - np.sqrt(0.3)) <= found.error <= 1e-6
    assert len(set(many.asked)) <= 30


def test_a_cell_is_cut_where_the_virtual_cost_is_farthest_from_its_chord():
    """Not in the middle of it: psi bends at 0.9, between two lines."""
    bent = Psi(lambda z: np.maximum(z, 0.9 + 20 * (z - 0.9)))
    made = Chords(even(), bent, 0, 0.0, 1.0)
    assert made.split()
    assert made.z[made.cells[0].last] == pytest.approx(0.9, abs=1e-4)
    assert made.error < 1e-3
    steep = Psi(lambda z: np.maximum(0.05 * z, 0.005 + 5 * (z - 0.1)))
    made = Chords(even(), steep, 0, 0.0, 1.0)
    assert made.split()
    assert made.z[made.cells[0].last] == pytest.approx(0.1, abs=1e-4)


@pytest.mark.parametrize("scale", [1.0, 1e8])
def test_of_a_fall_to_an_infinite_virtual_cost_nothing_is_known(scale):
    """Not even where hardly less is sold up to the last finite one."""
    prior = cm.Beta(2, 2, 0.05, 1.0)
    made = Chords(dying(scale), prior, 0, 0.9, 1.0)
    assert np.isinf(made.y[-1])
    assert len(made.cells) == 1
    assert made.split()
    assert [cell.roughness for cell in made.cells] == [1.0, 1.0]
    exact = quad(lambda z: np.exp(-float(prior.ironed_virtual_cost(z)) / scale), 0.9, 1.0)[0]
    for _ in range(12):
        assert abs(made.value - exact) <= made.error + 1e-8  # the table's own steps are lines
        made.split()
    assert made.error < 1e-3


def test_where_as_much_is_sold_at_both_ends_nothing_is_left_to_solve():
    made = chords("constant")
    assert made.value == pytest.approx(1.5 * 0.7, rel=1e-9)
    assert made.reducible == 0
    assert not made.split()
    assert made._roughness(0, made.z.size // 2, made.z.size - 1) == 1.0


def test_sales_that_seem_to_rise_by_the_gap_of_a_solve_take_nothing_off_the_error():
    curve = FormulaCurve(lambda y: 1.0 + 1e-6 * y, lambda y: y)
    made = Chords(curve, CONVEX, 0, 0.0, 1.0)
    assert made.value == pytest.approx(1.0, abs=1e-5)
    assert made.error >= 0
    assert made.reducible >= 0


def test_nothing_sold_is_not_doubted_nor_bounds_that_cross_by_rounding():
    sold = chords("line", "uniform", end=2.5, gap=0.02)
    assert sold.point(1).sold == 0
    assert sold.doubt(1) == 0
    crossed = chords(name="uniform", gap=-1e-15)
    assert crossed.point(0).upper < crossed.point(0).lower
    assert crossed.doubt(0) == 0


@pytest.mark.parametrize(("n", "cut"), [(5, True), (8, True), (9, False), (12, False)])
def test_few_kinks_are_cut_at_from_the_start_and_many_are_found(n, cut):
    kinks = np.linspace(0.05, 0.95, n)
    staircase = Psi(lambda z: z + 0.05 * np.searchsorted(kinks, z), kinks)
    made = Chords(even(), staircase, 0, 0.0, 1.0, solved=np.array([0.4321]))
    ends = made.z[[cell.last for cell in made.cells]]
    if cut:
        assert set(ends) == {0.4321, 1.0, *kinks, *np.nextafter(kinks, 1.0)}
    else:
        assert set(ends) == {0.4321, 1.0}
    rent = 1.5 - 0.05 * float(np.sum(1.0 - kinks))
    found = chord_rent(even(), staircase, 0, 0.0, 1e-3)
    assert abs(found.value - rent) <= found.error + 1e-9
    assert found.error <= 1e-3


def test_a_report_at_a_kink_is_cut_from_what_follows_the_jump():
    staircase = Psi(lambda z: z + 0.5 * (z > 0.25), np.array([0.25]))
    made = Chords(even(), staircase, 0, 0.25, 1.0)
    assert made.z[made.cells[0].last] == np.nextafter(0.25, 1.0)
    assert made.z[2] - 0.25 == pytest.approx(1e-6 * 0.75)  # the table is finest beside the report
    assert made.value == pytest.approx(0.75 * 1.5 - 0.5 * (1 - 0.25**2), rel=1e-9)
    assert made.error < 1e-9


@pytest.mark.parametrize(("options", "most"), [({}, 100), ({"max_solves": 7}, 7)])
def test_a_tolerance_that_is_out_of_reach_ends_at_a_hundred_or_as_told(options, most):
    curve = dying()
    found = chord_rent(curve, CONVEX, 0, 0.0, 1e-12, **options)
    assert len(set(curve.asked)) == most + 1
    assert abs(found.value - np.sqrt(np.pi) / 2 * erf(1)) <= found.error
    assert found.error > 1e-12


@pytest.mark.parametrize("far", [3.0, 40.0, 1e9, 1e200])
def test_an_end_of_sales_however_far_off_is_met_by_doubling(far):
    prior = cm.priors.Exponential(0.4)  # psi rises like exp(z / mean)
    curve = FormulaCurve(lambda y: float(y < far), lambda y: min(y, far), without=9.0)
    end = end_of_sales(curve, prior, 0, 0.1)
    assert float(prior.ironed_virtual_cost(end)) >= far
    half = 0.1 + 0.5 * (end - 0.1)
    assert end == 0.1 + prior.mean or float(prior.ironed_virtual_cost(half)) < far
    assert len(curve.asked) <= 12


def test_sales_end_at_once_for_a_seller_who_sells_nothing():
    prior = cm.priors.Exponential(0.4)
    curve = FormulaCurve(lambda y: 0.0, lambda y: 0.0, without=5.0)
    assert end_of_sales(curve, prior, 0, 0.1) == 0.1 + prior.mean
    found = chord_rent(curve, prior, 0, 0.1, 1e-6)
    assert (found.value, found.error) == (0.0, 0.0)
    assert quadrature_rent(curve, prior, 0, 0.1, 1e-6) == found


def test_sales_that_end_at_the_last_report_leave_nothing_to_the_error():
    """The optimum there, and not before, is compared with that without the seller."""
    prior = cm.priors.Exponential(0.4)
    place = float(prior.ironed_virtual_cost(0.1 + 4 * prior.mean)) * (1 - 1e-12)
    curve = FormulaCurve(
        lambda y: float(y < place), lambda y: min(y, place), without=5 + 0.7 * place
    )
    found = chord_rent(curve, prior, 0, 0.1, 1e-4)
    assert found.value == pytest.approx(4 * prior.mean, abs=1e-4)
    assert found.error <= 1e-4


def test_what_the_market_without_the_seller_may_cost_more_is_in_the_error():
    """It counts beside an endless support only, over gamma, and never against the error."""
    prior, errors = cm.priors.Exponential(0.4), []
    total = 5.0 + 0.7 * 2.0
    for more in (-0.05, 0.0, 0.05):
        curve = FormulaCurve(
            lambda y: max(2.0 - y, 0.0),
            lambda y: 2 * min(y, 2.0) - min(y, 2.0) ** 2 / 2,
            without=total + more,
        )
        errors.append(chord_rent(curve, prior, 0, 0.1, 1e-2).error)
        bounded = chord_rent(curve, cm.Uniform(0.0, 4.0), 0, 0.1, 1e-2)
        assert bounded.error == 0
    assert errors[0] == pytest.approx(errors[1], abs=1e-12)
    assert errors[2] - errors[1] == pytest.approx(0.05 / 0.7, rel=1e-9)


# --------------------------------------------------------------------------- quadrature


@pytest.mark.parametrize("report", [0.0, 0.4])
def test_quadrature_meets_a_rent_in_closed_form(report):
    found = quadrature_rent(dying(), CONVEX, 0, report, 1e-10)
    exact = np.sqrt(np.pi) / 2 * (erf(1) - erf(report))
    assert found.value == pytest.approx(exact, rel=1e-12)
    assert found.error < 1e-10


def test_quadrature_solves_no_more_than_the_tolerance_asks_for():
    """A rule of 21 points does for little accuracy, and the number of intervals has a limit."""
    exact = 10 / 1.05 + np.arctan(np.sqrt(20)) / (2 * 0.05**1.5)  # of 1/(0.05 + z^2)^2
    asked = []
    for tolerance in (1e-2, 1e-4, 1e-14):
        curve = FormulaCurve(lambda y: (0.05 + y) ** -2, lambda y: 20 - 1 / (0.05 + y))
        found = quadrature_rent(curve, CONVEX, 0, 0.0, tolerance)
        assert abs(found.value - exact) <= found.error
        assert tolerance == 1e-14 or found.error <= tolerance
        asked.append(len(curve.asked))
    assert asked[0] <= 21 + 3
    assert asked[0] < asked[1] < asked[2]
    assert asked[2] <= 21 * 19 + 3


def test_what_may_be_sold_where_sales_end_is_added_by_half():
    """A step is closed in on to a thousandth of the reports; the rest is no quadrature's."""
    curve = FormulaCurve(lambda y: float(y < 0.7), lambda y: min(y, 0.7))
    found = quadrature_rent(curve, Psi(lambda z: z), 0, 0.1, 1e-6)
    width = 0.9 / 2**10
    assert abs(found.value - 0.6) <= 0.5 * width + 1e-12
    assert found.error == pytest.approx(0.5 * width, rel=1e-6)


# ------------------------------------------------------------------- markets that are solved


def test_a_market_is_solved_once_at_each_cost_and_not_at_the_truth():
    market = cm.Market.standard(
        cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0)), mu=1, sigma=1, gamma=0.5
    )
    allocation = cm.allocate(market)
    curve = SolvedCurve(market, allocation, gap=1e-8)
    own = float(market.sellers.virtual_costs[1])
    point = curve.at(1, own)
    assert curve.n_solves == 0
    assert (point.upper, point.lower) == (allocation.objective, allocation.lower_bound)
    assert point.epsilon == point.sold == allocation.epsilon[1]
    first = curve.at(1, 1.1)
    assert curve.at(1, 1.1) is first
    assert curve.n_solves == 1
    changed = cm.Market(market.sellers.with_virtual_cost(1, 1.1), market.objective)
    assert first.upper == pytest.approx(cm.allocate(changed).objective, rel=1e-12)
    assert curve.at(0, 1.1).epsilon != first.epsilon
    assert curve.n_solves == 2
    gone = curve.at(1, np.inf)
    assert gone.sold == 0
    assert np.isfinite(gone.upper)


def test_whom_a_market_needs_makes_it_infinitely_dear():
    market = cm.Market.standard(
        cm.Sellers([0.2, 0.5], cm.Uniform(0.1, 1.0)), mu=1, sigma=1, gamma=0.5, cap=1
    )
    curve = SolvedCurve(market, cm.allocate(market), gap=1e-8)
    gone = curve.at(0, np.inf)
    assert (gone.upper, gone.lower, gone.epsilon, gone.sold) == (np.inf, np.inf, 0.0, 0.0)


def test_a_market_that_fails_at_a_price_is_no_market_without_the_seller(monkeypatch):
    def fail(changed, *arguments, **options):
        raise InfeasibleMarketError("nothing meets the constraints")

    market = cm.Market.standard(
        cm.Sellers([0.2, 0.5], cm.Uniform(0.1, 1.0)), mu=1, sigma=1, gamma=0.5
    )
    curve = SolvedCurve(market, cm.allocate(market), gap=1e-5)
    monkeypatch.setattr(module, "allocate", fail)
    with pytest.raises(InfeasibleMarketError):
        curve.at(0, 1.1)
    assert curve.at(0, np.inf).upper == np.inf


def test_a_solve_starts_where_the_last_one_ended(monkeypatch):
    """At the truth, then at the guarantees of the market that was solved before."""
    market = cm.Market.standard(
        cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0)), mu=1, sigma=1, gamma=0.5
    )
    exact, seen = cm.allocate(market), []

    def solve(changed, **options):
        seen.append(options)
        return dataclasses.replace(exact, eta=exact.eta + len(seen))

    monkeypatch.setattr(module, "allocate", solve)
    curve = SolvedCurve(market, exact, gap=1e-5)
    for cost in (1.1, 1.2, 1.1, 1.3):
        curve.at(1, cost)
    assert [options["gap"] for options in seen] == [1e-5] * 3
    assert [options["start"].eta for options in seen] == [exact.eta + k for k in range(3)]


def test_a_virtual_cost_that_ends_infinite_is_cut_where_it_begins_to_matter():
    """The density of a narrow truncated normal underflows long before its support ends."""
    prior = cm.priors.TruncatedNormal(0.1, 0.002, 0.0, 1.0)
    assert np.isinf(prior.virtual_cost(0.5))
    curve = dying()
    rent = chord_rent(curve, prior, 0, 0.1, 1e-5)
    truth = quad(lambda z: np.exp(-float(prior.virtual_cost(z))), 0.1, 0.2, points=[0.105])[0]
    assert abs(rent.value - truth) <= rent.error
    assert rent.error <= 1e-5


def test_one_step_of_the_table_is_no_certainty():
    """Sales that end between two reports of the table, where psi bends steeply."""
    prior = cm.Beta(2, 2, 0, 1)
    curve = step(2000.0)
    rent = chord_rent(curve, prior, 0, 0.1, 1e-7)
    end = brentq(lambda z: float(prior.virtual_cost(z)) - 2000.0, 0.5, 1 - 1e-9, xtol=1e-15)
    assert 0 < abs(rent.value - (end - 0.1)) <= rent.error
