"""Priors and policies that are built when they are asked for, and what holds of them."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

import convexmarket as cm
from convexmarket.allocation.exact_solver import solve_exact
from convexmarket.errors import SolverError
from convexmarket.market import StandardForm

#: An online market that trains a model in the end, as a problem file.
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


def cut_off(policy):
    """Return a policy that never grants more than half of what this one does, without planning."""
    described = policy.to_dict()
    described["plan"]["largest"] = 0.5 * policy.quote(policy.support[0]).epsilon
    return cm.online.policy_from_dict(described)


def some_reports(policy, n, seed=0):
    """Return reports from the bottom of the support to beyond the last sale."""
    low, high = policy.support
    top = high if np.isfinite(high) else policy.prior.quantile(0.999)
    u = np.random.default_rng(seed).uniform(0, 1, n)
    return low + (top - low) * u**3


def dense_cells(prior):
    """Return probabilities and virtual costs of some 100,000 cells of the support."""
    low = prior.support[0]
    close = low + (prior.quantile(0.5) - low) * 0.5 ** np.arange(0.0, 50.0, 0.01)
    levels = np.linspace(0, 1 - 1e-9, 50_001)
    nodes = np.unique(np.concatenate(([low], close, prior.quantile(levels), prior.breakpoints)))
    nodes = np.union1d(nodes, np.linspace(low, nodes[-1], 50_001))
    middle = 0.5 * (nodes[1:] + nodes[:-1])
    return np.diff(prior.cdf(nodes)), prior.ironed_virtual_cost(middle)


def expectation(cells, function):
    """Return E[function(psi(c))] as a sum over cells."""
    return cells[0] @ function(cells[1])


def quantile_form(policy, n):
    """Return the market of n sellers at even quantiles of the prior, as the plan sees it."""
    prior = policy.prior
    psi = prior.ironed_virtual_cost(prior.quantile((np.arange(n) + 0.5) / n))
    cap = min(1.0, (policy.cap or np.inf) / n)
    mu = policy.mu * np.sqrt(n / policy.expected_sellers)
    return StandardForm(psi, mu, policy.sigma, policy.gamma, cap)


def check_the_plan_is_the_optimum(name, m, cap, n):
    """The plan is that of the exact solver for n even quantiles of the prior."""
    policy = policy_of(name, m, cap)
    plan = policy.plan
    assert 0 <= plan.gap <= 1e-9
    many = solve_exact(quantile_form(policy, n))
    assert plan.objective == pytest.approx(many.objective, rel=2e-5)
    assert plan.eta == pytest.approx(many.eta, rel=2e-3)
    assert plan.terms.largest == (np.inf if cap is None else cap * plan.eta / m)


def check_payments(policy, n):
    """A, Eq. (8), the integral by scipy from the quoted guarantees alone, of n reports."""
    high = policy.support[1]
    edges = policy.prior.breakpoints
    for report in some_reports(policy, n):
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
    """Truth is a best reply and nobody loses: at the reports the audit takes, and at n."""
    audit = cm.online.audit_quotes(policy)
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
    assert audit.max_rise <= 1e-12 * policy.quote(policy.support[0]).epsilon
    reports = some_reports(policy, n)
    audit = cm.online.audit_quotes(policy, reports, some_reports(policy, n, seed=1))
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
    assert (audit.n_truths, audit.n_misreports) == (n, n)


def check_expected_payments(policy, n):
    """A, Eq. (9): E[t] = E[psi*eps], here for one seller and exactly."""
    levels = np.linspace(0, 1, n + 1)
    levels = 0.5 * (levels[1:] + levels[:-1])
    reports = policy.prior.quantile(levels**2)
    epsilon, payment = policy.quote(reports)
    some = epsilon > 0
    costs = policy.prior.ironed_virtual_cost(reports[some])
    weight = 2 * levels[some]
    expected = (weight * costs * epsilon[some]).sum()
    assert (weight * payment[some]).sum() == pytest.approx(expected, rel=1e-3)
    m = policy.expected_sellers
    assert m * (weight * epsilon[some]).sum() / levels.size == pytest.approx(
        policy.plan.eta, rel=1e-3
    )


#: The design's figures: prior, sellers, and the mean of 20 draws of online over offline loss.
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
    """Return online over offline losses of so many draws."""
    policy, found = policy_of(m), []
    for draw in range(draws):
        sellers = cm.Sellers.draw(m, prior, np.random.default_rng([seed, draw]))
        offline = cm.allocate(cm.Market.standard(sellers, **UNIT), "exact").objective
        found.append(cm.run_online(policy, sellers.sensitivities).loss(prior) / offline)
    return np.array(found)


def adaptive(m, prior=None, **options):
    prior = cm.Uniform(1, 5) if prior is None else prior
    return cm.online.AdaptivePolicy(cm.OnlinePolicy(prior, m, **UNIT), **options)


def check_the_published_ratio(prior, m, published, draws):
    """It should be one of those that 20 of our draws give."""
    found = ratios(lambda m: cm.OnlinePolicy(prior, m, **UNIT), prior, m, draws)
    assert (found >= 1 - 1e-9).all()
    means = np.random.default_rng(0).choice(found, (20_000, 20)).mean(axis=1)
    low, high = np.quantile(means, [1e-3, 1 - 1e-3])
    assert low - 5e-4 <= published <= high + 5e-4
    assert high - low < 4 * (published - 1) + 5e-3


def check_the_ratio_for_a_hundred_thousand(draws):
    prior = cm.Uniform(1, 5)
    found = ratios(lambda m: cm.OnlinePolicy(prior, m, **UNIT), prior, 10**5, draws, seed=1)
    assert found.mean() < 1.005


def check_replanning_helps(m, draws, **options):
    prior = cm.Uniform(0, 4)
    fixed = ratios(lambda m: cm.OnlinePolicy(prior, m, **UNIT), prior, m, draws)
    anew = ratios(lambda m: adaptive(m, prior, **options), prior, m, draws)
    assert (fixed - anew).mean() > 3 * (fixed - anew).std(ddof=1) / np.sqrt(draws)


def check_a_prior_can_be_learnt(m, draws, **options):
    truth, guess = cm.Uniform(1, 5), cm.Uniform(1, 20)
    known = ratios(lambda m: adaptive(m, truth, **options), truth, m, draws)
    learnt = ratios(lambda m: adaptive(m, guess, learn=True, **options), truth, m, draws)
    stuck = ratios(lambda m: cm.OnlinePolicy(guess, m, **UNIT), truth, m, draws)
    assert learnt.mean() / known.mean() < 1.01
    assert stuck.mean() / known.mean() > 1.3


def check_units_do_not_matter(name, cap, scale):
    def policy(unit):
        prior = cm.Beta(2, 5, 0, unit) if name == "beta" else cm.Uniform(0, unit)
        return cm.OnlinePolicy(prior, 100, 1.0, 2.0, 0.5 / unit, cap)

    here, there = policy(1.0), policy(scale)
    assert there.plan.objective == pytest.approx(here.plan.objective, rel=1e-9)
    assert there.quote(0.05 * scale).epsilon == pytest.approx(here.quote(0.05).epsilon, rel=1e-6)


def check_the_bound_is_true_or_refused(prior, m, mu, sigma, gamma, cap):
    """Buying equally from the cheapest share q costs at most this, whatever the plan says."""
    try:
        plan = cm.OnlinePolicy(prior, m, mu, sigma, gamma, cap).plan
    except SolverError:
        return
    shares = np.linspace(1 / (cap or m), 1.0, 400) if cap else np.geomspace(1e-6, 1.0, 400)
    if prior.is_step:
        shares = np.array([1 / prior.size, 1.0])
    top = prior.quantile(shares)
    simple = mu / np.sqrt(shares * m) + 2 * np.sqrt(sigma * gamma * top)
    assert plan.lower_bound <= simple.min() * (1 + 1e-9)
    assert plan.lower_bound <= plan.objective
