"""Payments against an independent quadrature that solves the market again at each report."""

import importlib
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

import convexmarket as cm
from convexmarket.allocation.curve import OwnReportCurve

# NaN and infinity are never met by accident. (SciPy warns of its own root finding elsewhere.)
pytestmark = pytest.mark.filterwarnings("error:(invalid|divide|overflow):RuntimeWarning")
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
module = importlib.import_module("convexmarket.payments")  # not the function of that name


# -------------------------------------------------------------------------- oracle


def guarantee(market, seller, report):
    """Return what the seller sells when it reports this: the whole market solved again."""
    sellers = market.sellers.with_report(seller, report)
    changed = cm.Market(sellers, market.objective, market.constraints)
    return float(cm.allocate(changed).epsilon[seller])


def edge(market, seller, low, high, holds):
    """Return where a monotone condition on the guarantee ceases to hold, by bisection."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(guarantee(market, seller, middle)) else (low, middle)
    return 0.5 * (low + high)


def jumps(market, seller, low, high):
    """Return the reports at which the guarantee jumps, each to the last digit.

    A long interval with too much of the whole drop is halved until it is one jump or none.
    """
    at_low, at_high = (guarantee(market, seller, z) for z in (low, high))
    found, stack = [], [(low, high, at_low, at_high)]
    smallest = 0.02 * (at_low - at_high)
    while stack:
        a, b, at_a, at_b = stack.pop()
        if at_a - at_b <= smallest:
            continue
        middle = 0.5 * (a + b)
        if b - a < 1e-13 * b:
            found.append(middle)
            continue
        at_middle = guarantee(market, seller, middle)
        stack += [(a, middle, at_a, at_middle), (middle, b, at_middle, at_b)]
    return sorted(found)


def oracle(market, seller):
    """Return the payment by A's Eq. (8), by adaptive quadrature between kinks and jumps."""
    prior, reports = market.sellers.prior_of(seller), market.sellers.sensitivities
    report, top = reports[seller], prior.support[1]
    sold = guarantee(market, seller, report)
    if sold == 0:
        return 0.0
    if np.isinf(top):
        top = report + prior.mean
        while guarantee(market, seller, top) > 0:
            top = report + 2 * (top - report)
    if not OwnReportCurve(market.standard_form).can_do_without():
        top *= 1 - 1e-13  # at the top itself psi may be infinite, and the market infeasible
    elif guarantee(market, seller, top) == 0:
        top = edge(market, seller, report, top, lambda epsilon: epsilon > 0)
    # Quadrature is told where to look closely: beside the ends of ironed intervals, ...
    closely = np.add.outer(prior.breakpoints, [-1e-3 * top, 0.0, 1e-3 * top]).ravel()
    inner = [z for z in (*reports, *closely) if report < z < top]  # ... and where others are.
    cuts = np.unique([report, *jumps(market, seller, report, top), *inner, top])
    accuracy = 1e-9 * sold * (report + 0.1 * (top - report))
    rent = sum(
        quad(lambda z: guarantee(market, seller, z), a, b, epsabs=accuracy, epsrel=0, limit=300)[0]
        for a, b in pairwise(cuts)
        if b - a > 1e-12 * top
    )
    return report * sold + rent


def assert_paid_exactly(market, sellers, rel=1e-8):
    allocation = cm.allocate(market)
    paid = cm.payments(market, allocation)
    for seller in sellers:
        assert paid[seller] == pytest.approx(oracle(market, seller), rel=rel, abs=1e-300)
    assert np.all(paid >= market.sellers.sensitivities * allocation.epsilon)
    assert not paid[allocation.weights == 0].any()
    return paid


# ------------------------------------------------------------------------- markets


PRIORS = {
    "uniform": cm.Uniform(0.1, 1.0),
    "uniform from zero": cm.Uniform(0.0, 1.0),
    "power": cm.Power(2.5, 1.0),
    "beta affine": cm.Beta(3, 1, 0.0, 1.0),
    "beta, infinite at the top": cm.Beta(2, 2, 0.05, 1.0),
    "beta, ironed at the top": cm.Beta(2, 0.5, 0.1, 1.0),
    "exponential": cm.Exponential(0.4),
    "lognormal": cm.LogNormal(-1.0, 0.5),
    "truncated normal": cm.TruncatedNormal(0.5, 0.2, 0.1, 1.0),
    "empirical": cm.EmpiricalPrior(np.round(np.random.default_rng(0).uniform(0.1, 1, 12), 2)),
    "two humps, ironed": cm.Prior.from_scipy(
        scipy.stats.rv_histogram((np.array([8, 1, 6]), np.array([0.1, 0.4, 0.7, 1.0])))()
    ),
    "mixture, ironed": cm.Mixture(
        [2, 1], [cm.TruncatedNormal(0.3, 0.06, 0.1, 1.0), cm.TruncatedNormal(0.8, 0.05, 0.1, 1.0)]
    ),
}


def test_the_list_has_priors_of_every_kind():
    assert not PRIORS["two humps, ironed"].is_regular
    assert not PRIORS["beta, ironed at the top"].is_regular
    assert PRIORS["empirical"].is_step
    assert PRIORS["beta affine"].virtual_cost_slope is not None
    assert np.isinf(PRIORS["exponential"].support[1])


def draw(prior, m, seed):
    return cm.Sellers(prior.sample(m, np.random.default_rng(seed)), prior)


# --------------------------------------------------------------------- exact to 1e-8


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("name", PRIORS)
def test_payments_meet_quadrature(name, cap):
    sellers = draw(PRIORS[name], 6, seed=3)
    market = cm.Market.standard(sellers, mu=1.5, sigma=1.0, gamma=0.6, cap=cap)
    bought = np.flatnonzero(cm.allocate(market).weights)
    # A mixture's ironed psi has thousands of kinks, where the oracle's quadrature is less exact.
    assert_paid_exactly(market, bought[[0, -1]], rel=1e-6 if "mixture" in name else 1e-8)


@pytest.mark.parametrize("n_cheap", [1, 2])
@pytest.mark.parametrize(
    "prior",
    [
        cm.Uniform(0.0, 1.0),
        cm.Exponential(1.0),
        cm.Beta(1.0, 1.5, 0.0, 1.2),
        cm.Power(3.0, 1.0),
        cm.EmpiricalPrior(np.linspace(0.004, 1, 100)),
    ],
)
def test_payments_where_the_optimum_jumps_between_branches(n_cheap, prior):
    """Somewhere the best answer ceases to rest on few cheap sellers and turns to the many.

    With two of them a cap of one half keeps either from carrying everything.
    """
    sellers = cm.Sellers([0.005] * n_cheap + [0.5] * 44, prior)
    market = cm.Market.standard(
        sellers,
        mu=1.5 * n_cheap**0.4,
        sigma=2.5,
        gamma=0.25 / sellers.virtual_costs[-1],
        cap=None if n_cheap == 1 else 23,
    )
    found = jumps(market, 0, 0.005, 0.45)
    assert found  # the instance is what it is meant to be
    drop = max(np.ptp([guarantee(market, 0, z * f) for f in (1 - 1e-9, 1 + 1e-9)]) for z in found)
    assert drop > 0.1 * guarantee(market, 0, 0.005)
    assert_paid_exactly(market, [0, n_cheap])


@pytest.mark.parametrize("prior", [cm.Uniform(0.1, 1.0), cm.Beta(2, 2, 0.1, 1.0)])
@pytest.mark.parametrize("eta_range", [(0.1, 1.0), (6.0, 9.0), (0.5, 50.0), (2.0, 2.0)])
def test_payments_in_a_range_of_eta(prior, eta_range):
    sellers = draw(prior, 5, seed=1)
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.6, cap=2, eta_range=eta_range)
    assert_paid_exactly(market, [0])


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_payments_of_the_naive_model_are_posted_prices(sigma):
    """Without spread the cheapest sells everything, at the report where another becomes cheaper."""
    sellers = cm.Sellers([0.3, 0.5, 0.8], cm.Uniform(0.1, 1.0))
    market = cm.Market.standard(sellers, mu=0, sigma=sigma, gamma=0.6, eta_range=(2.0, 2.0))
    paid = cm.payments(market, cm.allocate(market))
    np.testing.assert_allclose(paid, [2.0 * 0.5, 0, 0], rtol=1e-12)


def test_one_seller_is_paid_up_to_the_top():
    """Alone, eps(z) = sqrt(sigma/(gamma*psi(z))): the payment is a formula."""
    market = cm.Market.standard(cm.Sellers([0.4], cm.Uniform(0.0, 1.0)), mu=1, sigma=2.0, gamma=0.5)
    # 0.4*sqrt(4/0.8) + int_0.4^1 sqrt(4/(2z)) dz
    expected = 0.4 * np.sqrt(5) + 2 * np.sqrt(2) * (1 - np.sqrt(0.4))
    assert cm.payments(market, cm.allocate(market)) == pytest.approx([expected], rel=1e-12)


@pytest.mark.parametrize("others", [[], [0.6], [0.6, 1.0]])
def test_a_seller_nobody_can_replace_where_the_virtual_cost_is_infinite_at_the_top(others):
    cap = None if not others else (len(others) + 1) / 2
    market = cm.Market.standard(
        cm.Sellers([0.4, *others], cm.Beta(2, 2)), mu=1, sigma=1, gamma=0.5, cap=cap
    )
    assert_paid_exactly(market, [0])


@settings(relaxed, max_examples=40)
@given(
    st.sampled_from([name for name in PRIORS if PRIORS[name].virtual_cost_slope is not None]),
    st.integers(1, 30),
    st.integers(0, 10**6),
    st.sampled_from([None, 1.0, 1.2, 3.0]),
    st.floats(-1.5, 1.5),
)
def test_closed_form_and_quadrature_agree(name, m, seed, cap, exponent):
    """Where psi is affine: a difference of objectives, or the integral of the curve."""
    prior = PRIORS[name]
    market = cm.Market.standard(
        draw(prior, m, seed), mu=10**exponent, sigma=1, gamma=0.5, cap=cap and min(cap, m)
    )
    allocation = cm.allocate(market)
    curve, who = OwnReportCurve(market.standard_form), np.flatnonzero(allocation.weights)
    reports = market.sellers.sensitivities[who]
    closed = module.information_rents(curve, prior, who, reports)
    integrated = module._quadrature(curve, prior, who, reports)
    paid = reports * allocation.epsilon[who] + integrated
    np.testing.assert_allclose(closed, integrated, atol=1e-9 * paid.min())


@settings(relaxed, max_examples=25)
@given(st.sampled_from(sorted(PRIORS)), st.integers(2, 12), st.integers(0, 10**6), st.booleans())
def test_rents_are_the_trapezoid_of_the_curve(name, m, seed, capped):
    """Bounds that need no smoothness: guarantees fall, so upper and lower sums enclose the rent."""
    prior = PRIORS[name]
    cap = 1.5 if capped else None
    market = cm.Market.standard(draw(prior, m, seed), mu=1, sigma=1, gamma=0.5, cap=cap)
    reports = market.sellers.sensitivities
    who = np.arange(m)
    curve = OwnReportCurve(market.standard_form)
    if not curve.can_do_without() and np.isinf(prior.support[1]):
        return
    rents = module.information_rents(curve, prior, who, reports)
    end = module.last_sale(curve, prior, who, reports)
    for seller in who:
        z = np.linspace(reports[seller], max(end[seller], reports[seller]), 400)
        psi = np.asarray(prior.ironed_virtual_cost(z))
        epsilon = curve(np.full(z.size, seller), psi).epsilon
        upper = float(np.diff(z) @ epsilon[:-1])
        lower = float(np.diff(z) @ epsilon[1:])
        slack = 1e-9 * (upper + 1e-12)
        assert lower - slack <= rents[seller] <= upper + slack
        beyond = end[seller] * (1 + 1e-9)
        if beyond < prior.support[1]:
            psi = np.asarray(prior.ironed_virtual_cost([beyond]))
            assert curve(np.array([seller]), psi).epsilon == 0


# -------------------------------------------------- what the papers' formulas get wrong


def test_integrating_beyond_the_support_overpays():
    """Eq. (8) to infinity, with psi = 2c - c_lo continued past c_hi, breaks Eq. (9)."""
    prior, rng = cm.Uniform(0.1, 1.0), np.random.default_rng(7)
    wrong, right, virtual = [], [], []
    for _ in range(300):
        sellers = cm.Sellers(prior.sample(3, rng), prior)
        market = cm.Market.standard(sellers, mu=5, sigma=2, gamma=0.2)
        allocation = cm.allocate(market)
        paid = cm.payments(market, allocation)
        right.append(paid.sum())
        virtual.append(sellers.virtual_costs @ allocation.epsilon)
        # The rest of the integral: from the top, along the formula, to where nothing is sold.
        curve, who = OwnReportCurve(market.standard_form), np.arange(3)
        at_top = curve(who, np.full(3, float(prior.virtual_cost(1.0)))).value
        without = curve(who, np.full(3, np.inf)).value
        wrong.append(paid.sum() + ((without - at_top) / (0.2 * 2.0)).sum())

    def z_score(paid):
        difference = np.array(paid) - virtual
        return difference.mean() / (difference.std(ddof=1) / np.sqrt(difference.size))

    assert abs(z_score(right)) < 4
    assert z_score(wrong) > 10


def test_paying_the_virtual_cost_is_not_truthful():
    """t = psi(c)*eps (B, Theorem A.3): some seller gains by claiming a higher sensitivity."""
    prior = cm.Uniform(0.1, 1.0)
    market = cm.Market.standard(cm.Sellers([0.2, 0.5, 0.7], prior), mu=1, sigma=1, gamma=0.5)
    truth = 0.2

    def surplus(report):
        return (float(prior.virtual_cost(report)) - truth) * guarantee(market, 0, report)

    reports = np.linspace(0.2, 0.95, 16)
    assert max(surplus(z) for z in reports) > surplus(truth) * 1.05

    def truthful_surplus(report):
        changed = cm.Market(market.sellers.with_report(0, report), market.objective)
        allocation = cm.allocate(changed)
        return float(cm.payments(changed, allocation)[0] - truth * allocation.epsilon[0])

    honest = truthful_surplus(truth)
    assert all(truthful_surplus(z) <= honest + 1e-12 for z in reports)


# ----------------------------------------------------------------------- contracts


def small_market(**changes):
    sellers = cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0))
    return cm.Market.standard(sellers, **{"mu": 1, "sigma": 1, "gamma": 0.5, **changes})


def test_without_a_prior_payments_are_refused():
    market = cm.Market.standard(cm.Sellers(virtual_costs=[0.1, 0.2]), mu=1, sigma=1, gamma=1)
    with pytest.raises(cm.SellersError, match=r"depend on the reports and the prior: give Sellers"):
        cm.payments(market, cm.allocate(market))


def test_the_allocation_of_another_market_is_refused():
    other = cm.Market.standard(cm.Sellers(virtual_costs=[0.1, 0.2]), mu=1, sigma=1, gamma=1)
    with pytest.raises(cm.AllocationError, match="for 2 sellers, the market has 3"):
        cm.payments(small_market(), cm.allocate(other))


def test_an_uncertified_allocation_is_refused():
    market = small_market()
    rough = cm.allocate(market, method="line_search", max_solves=1, gap=1e-9)
    assert rough.gap > 1e-3
    with pytest.raises(cm.AllocationError, match=r"away from its lower bound.*method='exact'"):
        cm.payments(market, rough)


@pytest.mark.parametrize("other", [2 * cm.SquaredSpread(), 1.1 * cm.Spread(p=3)])
def test_the_allocation_of_another_objective_is_refused(other):
    standard = small_market()
    market = cm.Market(standard.sellers, standard.objective + other)
    with pytest.raises(cm.AllocationError, match="is the allocation of another one"):
        cm.payments(market, cm.allocate(standard))


@pytest.mark.parametrize("formulation", ["primal", "dual", "projection"])
def test_the_certified_search_pays_the_same(formulation):
    market = small_market(cap=1.5)
    exact = cm.payments(market, cm.allocate(market))
    searched = cm.allocate(market, method="line_search", formulation=formulation, gap=1e-8)
    np.testing.assert_allclose(cm.payments(market, searched), exact, rtol=1e-3)


@pytest.mark.parametrize(
    ("sensitivities", "cap"), [([0.3], None), ([0.3, 0.4], 1.0), ([0.3, 0.4, 0.5], 1.4)]
)
def test_no_finite_payment_is_truthful_where_a_price_has_no_top_and_nobody_else(sensitivities, cap):
    sellers = cm.Sellers(sensitivities, cm.Exponential(0.5))
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5, cap=cap)
    with pytest.raises(cm.NotSupportedError, match=r"no largest sensitivity.*bounded support"):
        cm.payments(market, cm.allocate(market))


def test_sellers_alike_are_paid_alike_and_the_order_does_not_matter():
    sensitivities = np.array([0.3, 0.2, 0.3, 0.9, 0.2])
    order = np.array([4, 2, 0, 1, 3])
    for prior in (cm.Uniform(0.1, 1.0), cm.Beta(2, 2, 0.1, 1.0)):
        market, shuffled = (
            cm.Market.standard(cm.Sellers(c, prior), mu=1, sigma=1, gamma=0.5, cap=3)
            for c in (sensitivities, sensitivities[order])
        )
        paid = cm.payments(market, cm.allocate(market))
        assert paid[0] == pytest.approx(paid[2], rel=1e-13)
        again = cm.payments(shuffled, cm.allocate(shuffled))
        np.testing.assert_allclose(again, paid[order], rtol=1e-11)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_money_has_no_unit(scale):
    prior, scaled = cm.Beta(2, 2, 0.1, 1.0), cm.Beta(2, 2, 0.1 * scale, scale)
    c = np.array([0.2, 0.5, 0.7])
    market = cm.Market.standard(cm.Sellers(c, prior), mu=1, sigma=1, gamma=0.5)
    other = cm.Market.standard(cm.Sellers(c * scale, scaled), mu=1, sigma=1, gamma=0.5 / scale)
    paid = cm.payments(market, cm.allocate(market))
    np.testing.assert_allclose(cm.payments(other, cm.allocate(other)), paid * scale, rtol=1e-8)


@pytest.mark.parametrize(
    "prior", [cm.TruncatedNormal(0.05, 0.02, 0.02, 0.1), cm.Beta(2, 5, 0.02, 0.1)]
)
def test_a_report_at_the_bottom_of_the_support_is_paid(prior):
    market = cm.Market.standard(cm.Sellers([0.02, 0.05, 0.06], prior), mu=1, sigma=1, gamma=1)
    allocation = cm.allocate(market)
    paid = cm.payments(market, allocation)
    assert np.all(paid >= np.array([0.02, 0.05, 0.06]) * allocation.epsilon)
    assert cm.audit_incentives(market).is_incentive_compatible


def test_the_allocation_of_a_like_market_is_refused():
    sellers = cm.Sellers([0.1, 0.6], cm.Uniform(0, 1))
    one = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    other = cm.Market.standard(sellers, mu=2, sigma=100, gamma=0.5)
    with pytest.raises(cm.AllocationError, match="another one"):
        cm.payments(one, cm.allocate(other))


# -------------------------------------------------------------------------- several priors


def test_each_seller_is_paid_by_its_own_prior():
    priors = {"young": cm.Uniform(0.1, 1.0), "old": cm.Beta(2, 2, 0.2, 2.0)}
    groups = ["young", "old", "young", "old"]
    sellers = cm.Sellers([0.3, 0.4, 0.6, 0.5], priors, groups=groups)
    market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5, cap=2)
    paid = assert_paid_exactly(market, range(4))
    # The same report is worth another payment in another group.
    swapped = cm.Sellers([0.3, 0.4, 0.6, 0.5], priors, groups=groups[::-1])
    other = cm.Market.standard(swapped, mu=2, sigma=1, gamma=0.5, cap=2)
    assert abs(cm.payments(other, cm.allocate(other))[0] - paid[0]) > 0.01
    each = cm.Sellers([0.3, 0.4, 0.6, 0.5], [priors[group] for group in groups])
    same = cm.Market.standard(each, mu=2, sigma=1, gamma=0.5, cap=2)
    np.testing.assert_array_equal(cm.payments(same, cm.allocate(same)), paid)


# ------------------------------------------------------------------------ ironing and ties


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_sellers_on_an_ironed_interval_are_treated_and_paid_alike(mu):
    prior = PRIORS["mixture, ironed"]
    low, high = prior.breakpoints[:2]
    assert np.ptp(prior.ironed_virtual_cost([low, high])) < 1e-12
    reports = [low + 0.1 * (high - low), 0.95, high - 0.1 * (high - low), 0.5 * (low + high)]
    market = cm.Market.standard(
        cm.Sellers(reports, prior), mu=mu, sigma=1, gamma=0.6, cap=4 / 2.5, eta_range=(0.5, 9)
    )
    allocation = cm.allocate(market)
    paid = cm.payments(market, allocation)
    tied = [0, 2, 3]
    assert np.ptp(allocation.epsilon[tied]) < 1e-12
    assert allocation.epsilon[0] > 0
    # c*eps + (high - c)*eps + the rest: the report cancels.
    np.testing.assert_allclose(paid[tied], paid[0], rtol=1e-8)
    # An integral over a fine grid, every point of which is a market solved again.
    z = np.linspace(reports[0], prior.support[1], 1500)
    sold = np.array([guarantee(market, 0, report) for report in z])
    upper, lower = np.diff(z) @ sold[:-1], np.diff(z) @ sold[1:]
    rent = paid[0] - reports[0] * allocation.epsilon[0]
    assert lower - 1e-12 <= rent <= upper + 1e-12
    assert upper - lower < 0.02 * rent
