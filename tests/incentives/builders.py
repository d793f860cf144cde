"""Build priors and small markets, and compute payments independently of the package."""

import functools
from itertools import pairwise

import numpy as np
import scipy.stats
from scipy.integrate import quad

import convexmarket as cm
from convexmarket.allocation.curve import OwnReportCurve


def normals(first, second, top=1.0):
    return [cm.priors.TruncatedNormal(*parameters, 0.1, top) for parameters in (first, second)]


def two_humps():
    bins = np.array([8, 1, 6]), np.array([0.1, 0.4, 0.7, 1.0])
    return cm.Prior.from_scipy(scipy.stats.rv_histogram(bins)())


#: Functions that create the priors of the payment tests.
PRIORS = {
    "uniform": lambda: cm.Uniform(0.1, 1.0),
    "uniform from zero": lambda: cm.Uniform(0.0, 1.0),
    "power": lambda: cm.priors.Power(2.5, 1.0),
    "power below one": lambda: cm.priors.Power(0.5, 1.0),
    "beta affine": lambda: cm.Beta(3, 1, 0.0, 1.0),
    "beta, infinite at the top": lambda: cm.Beta(2, 2, 0.05, 1.0),
    "beta, ironed at the top": lambda: cm.Beta(2, 0.5, 0.1, 1.0),
    "exponential": lambda: cm.priors.Exponential(0.4),
    "lognormal": lambda: cm.priors.LogNormal(-1.0, 0.5),
    "truncated normal": lambda: cm.priors.TruncatedNormal(0.5, 0.2, 0.1, 1.0),
    "empirical": lambda: cm.EmpiricalPrior([0.15, 0.3, 0.32, 0.5, 0.77, 0.9]),
    "long sample": lambda: cm.EmpiricalPrior(np.random.default_rng(0).uniform(0.1, 1, 60)),
    "two humps, ironed": two_humps,
    "mixture with jumps": lambda: cm.priors.Mixture(
        [3, 1], [cm.Uniform(0.1, 0.6), cm.Uniform(0.3, 1)]
    ),
    "mixture, ironed": lambda: cm.priors.Mixture([2, 1], normals((0.3, 0.06), (0.8, 0.05))),
}


@functools.cache
def prior_of(name):
    return PRIORS[name]()


def accuracy_under(name):
    """Return the required relative accuracy of payments under a prior."""
    return 1e-6 if name == "mixture, ironed" else 1e-8


def draw(prior, m, seed):
    return cm.Sellers.draw(m, prior, np.random.default_rng(seed))


def small_market(**changes):
    sellers = cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0))
    return cm.Market.standard(sellers, **{"mu": 1, "sigma": 1, "gamma": 0.5, **changes})


def with_report(market, seller, report):
    sellers = market.sellers.with_report(seller, float(report))
    return cm.Market(sellers, market.objective, market.constraints)


def guarantee(market, seller, report):
    """Return the guarantee of a seller after an allocation with a changed report."""
    return float(cm.allocate(with_report(market, seller, report)).epsilon[seller])


def virtual_cost_payment(report, sold, rent, virtual_cost):
    """Compute psi(c) * u(eps), the payment of paper B's Theorem A.3, which is not truthful."""
    return np.multiply(virtual_cost, sold, out=np.zeros(sold.shape), where=sold > 0)


# ------------------------------------------------------------------ an independent quadrature


def guarantee_with_masks(market, seller, report):
    """Return the guarantee at a report, and a mask of the active bounds on weights and eta."""
    result = cm.allocate(with_report(market, seller, report))
    weights, form = result.weights, market.standard_form
    active = (weights > 0, weights >= form.max_weight, [result.eta == form.eta_low])
    return float(result.epsilon[seller]), np.concatenate(active)


def corners(market, seller, low, high):
    """Return the reports at which the guarantee jumps or has a kink.

    The search bisects intervals with a large drop or a change of the active set. It stops when an
    interval is so short that payments change by less than 1e-13 of the drop.
    """
    at_low, at_high = (guarantee_with_masks(market, seller, z) for z in (low, high))
    result, stack = [], [(low, high, at_low, at_high)]
    smallest = 0.02 * (at_low[0] - at_high[0])
    while stack:
        a, b, at_a, at_b = stack.pop()
        if at_a[0] - at_b[0] <= smallest and np.array_equal(at_a[1], at_b[1]):
            continue
        middle = 0.5 * (a + b)
        if b - a < 1e-13 * b:
            result.append(middle)
            continue
        at_middle = guarantee_with_masks(market, seller, middle)
        stack += [(a, middle, at_a, at_middle), (middle, b, at_middle, at_b)]
    return sorted(result)


def oracle(market, seller, rel):
    """Compute the payment of paper A, Eq. (8), by adaptive quadrature between kinks."""
    prior, reports = market.sellers.prior_of(seller), market.sellers.sensitivities
    report, top = reports[seller], prior.support[1]
    sold = guarantee(market, seller, report)
    if sold == 0:
        return 0.0
    if np.isinf(top):
        top = report + prior.mean
        while guarantee(market, seller, top) > 0:
            top = report + 2 * (top - report)
    if OwnReportCurve(market.standard_form).needs_each:
        top *= 1 - 1e-13  # psi can be infinite at ``top``
    # The quadrature has breakpoints near the ends of ironed intervals and at other reports.
    offsets = [0.0] if prior.is_step else [-1e-3 * top, 0.0, 1e-3 * top]
    closely = np.add.outer(prior.breakpoints, offsets).ravel()
    inner = [z for z in (*reports, *closely) if report < z < top]
    cuts = np.unique([report, *corners(market, seller, report, top), *inner, top])
    accuracy = 0.1 * rel * sold * (report + 0.1 * (top - report))
    rent = sum(
        quad(lambda z: guarantee(market, seller, z), a, b, epsabs=accuracy, epsrel=0, limit=300)[0]
        for a, b in pairwise(cuts)
        if b - a > 1e-12 * top
    )
    return report * sold + rent


def assert_exact_payments(market, sellers, rel=1e-8):
    allocation = cm.allocate(market)
    paid = cm.payments(market, allocation)
    for seller in sellers:
        expected = oracle(market, seller, rel)
        np.testing.assert_allclose(paid[seller], expected, rtol=rel, err_msg=f"seller {seller}")
    assert np.all(paid >= market.sellers.sensitivities * allocation.epsilon)
    assert not paid[allocation.weights == 0].any()
    return paid


# ------------------------------------------------------------- markets without closed-form payments


def single_seller_market(report, prior, cost, sigma=2.0, gamma=0.5):
    objective = cm.Spread() + sigma * cm.Noise() + gamma * cm.Payments(cost)
    return cm.Market(cm.Sellers([report], prior), objective)


def spread_market(prior, cost=None, constraints=(), spread=None, m=4, seed=2):
    payments = cm.Payments() if cost is None else cm.Payments(cost)
    objective = (1.5 * cm.Spread() if spread is None else spread) + cm.Noise() + 0.6 * payments
    return cm.Market(draw(prior, m, seed), objective, constraints)


def spread_under_budget(spread, reports, others=()):
    sellers = cm.Sellers(reports, cm.Uniform(0.0, 1.0))
    return cm.Market(sellers, spread + 0.5 * cm.Noise(), [cm.Budget(0.5), *others])


def quotas(report):
    """Return a market in which the budget and the quotas make two sellers complements."""
    sellers = cm.Sellers([report, 2.3, 0.01, 0.005], cm.Uniform(0, 2.5))
    sex = ["woman", "man", "woman", "man"]
    place = ["north", "south", "south", "north"]
    limits = [
        cm.Budget(1.0),
        cm.GroupShare(sex, at_least={"woman": 0.82}, at_most={"woman": 0.82}),
        cm.GroupShare(place, at_least={"south": 0.74}, at_most={"south": 0.74}),
    ]
    return cm.Market(sellers, 1.0 * cm.terms.SquaredSpread() + 0.3 * cm.Noise(), limits)


def quotas_without_a_budget():
    market = quotas(0.2)
    objective = market.objective + 0.5 * cm.Payments()
    return cm.Market(market.sellers, objective, market.constraints[1:])


def epsilon_at(market, seller, reports, gap=1e-6):
    """Compute the privacy cost u(eps) of a seller from a new allocation at each report."""
    result = [cm.allocate(with_report(market, seller, z), gap=gap).epsilon[seller] for z in reports]
    return np.array([float(market.privacy_cost(epsilon)) for epsilon in result])


def assert_sums_enclose_the_payment(market, seller, z, accuracy):
    """Check that the rent is between lower and upper Riemann sums of the decreasing u(eps)."""
    result = cm.incentives.estimate_payments(
        market, cm.allocate(market, gap=1e-8), sellers=[seller], tol=accuracy
    )
    report, sold = z[0], epsilon_at(market, seller, z, gap=1e-8)
    assert report == market.sellers.sensitivities[seller]
    assert np.all(np.diff(sold) <= 1e-3 * sold[0])
    rent = result.amounts[0] - report * sold[0]
    slack = result.errors[0] + 1e-3 * sold[0] * (z[-1] - report)
    assert np.diff(z) @ sold[1:] - slack <= rent <= np.diff(z) @ sold[:-1] + slack
    assert result.errors[0] < max(2e-3, 2 * accuracy) * result.amounts[0]
    middle = 0.5 * np.diff(z) @ (sold[1:] + sold[:-1])
    np.testing.assert_allclose(rent, middle, rtol=0.2)
