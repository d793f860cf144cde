"""Create priors and policies, and check payments, truthfulness and losses of policies."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

import convexmarket as cm
from convexmarket.market import StandardForm

#: Problem file of an online market that trains a model when the market closes.
TRAINED_MARKET = """
kind = "online"
title = "A small market"
[prior]
family = "uniform"
low = 1.0
high = 5.0
[buyer]
expected_sellers = 8
mu = 1.0
sigma = 10.0
gamma = 0.1
[data]
source = "csv"
file = "rows.csv"
label = "label"
classes = ["no", "yes"]
features = { one = [-1, 1], two = [-1, 1] }
[learner]
regularization = 1.0
"""
UNIT = {"mu": 1.0, "sigma": 1.0, "gamma": 1.0}
PRIORS = {
    "uniform from 0": lambda: cm.Uniform(0, 4),
    "uniform": lambda: cm.Uniform(1, 5),
    "power": lambda: cm.priors.Power(3.0, 2.0),
    "root": lambda: cm.priors.Power(0.4, 1.0),
    "beta": lambda: cm.Beta(2, 5),
    "arcsine": lambda: cm.Beta(0.5, 0.5),
    "falling": lambda: cm.Beta(1, 3, 0.02, 0.1),
    "exponential": lambda: cm.priors.Exponential(0.05),
    "lognormal": lambda: cm.priors.LogNormal(0.0, 1.0),
    "gamma": lambda: cm.priors.Gamma(0.5, 1.0),
    "normal": lambda: cm.priors.TruncatedNormal(1.0, 0.5, 0.1, 3.0),
    "mixture": lambda: cm.priors.Mixture([1, 3], [cm.Uniform(0, 1), cm.Uniform(0.5, 2)]),
    "weibull": lambda: cm.Prior.from_scipy(stats.weibull_min(1.5)),
    "sample": lambda: cm.EmpiricalPrior(np.random.default_rng(0).lognormal(0, 1, 40)),
    "ties": lambda: cm.EmpiricalPrior([1.0, 2.0, 2.0, 3.0, 8.0]),
    "one": lambda: cm.EmpiricalPrior([2.0]),
}
SAMPLES = ["sample", "ties", "one"]
CONTINUOUS = [name for name in PRIORS if name not in SAMPLES]


@cache
def policy_of(name, m, cap):
    return cm.OnlinePolicy(PRIORS[name](), m, 1.0, 2.0, 0.5, cap)


def with_half_cap(policy):
    """Return a copy of a policy whose largest guarantee is halved and whose plan is unchanged."""
    described = policy.to_dict()
    described["plan"]["largest"] = 0.5 * policy.quote(policy.support[0]).epsilon
    return cm.online.policy_from_dict(described)


def random_reports(policy, n):
    """Draw reports, most of which are near the lower end of the support."""
    low, high = policy.support
    top = high if np.isfinite(high) else policy.prior.quantile(0.999)
    u = np.random.default_rng(0).uniform(0, 1, n)
    return low + (top - low) * u**3


def dense_cells(prior):
    """Return the probabilities and the virtual costs of 100,000 cells of the support."""
    low = prior.support[0]
    close = low + (prior.quantile(0.5) - low) * 0.5 ** np.arange(0.0, 50.0, 0.01)
    levels = np.linspace(0, 1 - 1e-9, 50_001)
    nodes = np.unique(np.concatenate(([low], close, prior.quantile(levels), prior.breakpoints)))
    nodes = np.union1d(nodes, np.linspace(low, nodes[-1], 50_001))
    middle = 0.5 * (nodes[1:] + nodes[:-1])
    return np.diff(prior.cdf(nodes)), prior.ironed_virtual_cost(middle)


def expectation(cells, function):
    """Compute E[function(psi(c))] as a sum over cells of the support."""
    return cells[0] @ function(cells[1])


def quantile_form(policy, n):
    """Return the standard form for n sellers at equally spaced quantiles of the prior."""
    prior = policy.prior
    psi = prior.ironed_virtual_cost(prior.quantile((np.arange(n) + 0.5) / n))
    cap = min(1.0, (policy.cap or np.inf) / n)
    mu = policy.mu * np.sqrt(n / policy.expected_sellers)
    return StandardForm(psi, mu, policy.sigma, policy.gamma, cap)


def check_payments(policy, n):
    """Compare payments for n reports with Eq. (8) of paper A, which SciPy integrates."""
    high = policy.support[1]
    edges = policy.prior.breakpoints
    for report in random_reports(policy, n):
        epsilon, payment = policy.quote(report)
        reports = np.linspace(report, min(high, policy.prior.quantile(1 - 1e-9)), 2001)
        selling = reports[policy.quote(reports).epsilon > 0]
        rent = 0.0
        if selling.size:
            end = min(selling[-1] + reports[1] - reports[0], reports[-1])
            kinks = edges[(edges > report) & (edges < end)]
            cuts = np.unique([report, *kinks, *np.linspace(report, end, 40)])
            for a, b in pairwise(cuts):
                rent += integrate.quad(lambda z: policy.quote(z).epsilon, a, b, limit=200)[0]
        largest = policy.quote(policy.support[0])
        assert payment == pytest.approx(
            report * epsilon + rent, rel=1e-6, abs=1e-8 * max(largest.payment, 1e-300)
        )


def check_truth(policy, n):
    """Check truthfulness and individual rationality at the default and at n random reports."""
    audit = cm.online.audit_quotes(policy)
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
    assert audit.max_rise <= 1e-12 * policy.quote(policy.support[0]).epsilon
    reports = random_reports(policy, n)
    audit = cm.online.audit_quotes(policy, reports)
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
    assert (audit.n_sellers, audit.n_misreports) == (n, n)


#: Prior, number of sellers, and published ratio of online to offline loss (mean of 20 draws).
PUBLISHED = [
    (cm.Uniform(1, 5), 10**2, 1.071),
    (cm.Uniform(1, 5), 10**3, 1.017),
    (cm.Uniform(1, 5), 10**4, 1.005),
    (cm.Uniform(1, 5), 10**5, 1.001),
    (cm.Uniform(0, 4), 10**3, 1.029),
    (cm.Uniform(0, 4), 10**4, 1.015),
    (cm.Uniform(0, 4), 10**5, 1.003),
]


def ratios(policy_of, prior, m, draws, seed=0):
    """Compute the ratio of online to offline loss for each random draw of sellers."""
    policy, result = policy_of(m), []
    for draw in range(draws):
        sellers = cm.Sellers.draw(m, prior, np.random.default_rng([seed, draw]))
        offline = cm.allocate(cm.Market.standard(sellers, **UNIT), "exact").objective
        result.append(cm.run_online(policy, sellers.sensitivities).loss(prior) / offline)
    return np.array(result)


def adaptive(m, prior=None, **options):
    prior = cm.Uniform(1, 5) if prior is None else prior
    return cm.online.AdaptivePolicy(cm.OnlinePolicy(prior, m, **UNIT), **options)
