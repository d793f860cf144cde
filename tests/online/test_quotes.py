"""Quotes: payments against an independent integral, incentives, both fronts of a policy."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import convexmarket as cm

PRIORS = [
    cm.Uniform(0, 4),
    cm.Uniform(1, 5),
    cm.Power(3.0, 2.0),
    cm.Power(0.4, 1.0),
    cm.Beta(2, 5),
    cm.Beta(0.5, 0.5),
    cm.Exponential(0.05),
    cm.LogNormal(0.0, 1.0),
    cm.TruncatedNormal(1.0, 0.5, 0.1, 3.0),
    cm.Mixture([1, 3], [cm.Uniform(0, 1), cm.Uniform(0.5, 2)]),
    cm.Prior.from_scipy(stats.weibull_min(1.5)),
    cm.EmpiricalPrior(np.random.default_rng(0).lognormal(0, 1, 40)),
    cm.EmpiricalPrior([1.0, 2.0, 2.0, 3.0, 8.0]),
    cm.EmpiricalPrior([2.0]),
]
POLICIES = [
    cm.OnlinePolicy(prior, m, 1.0, 2.0, 0.5, cap)
    for prior in PRIORS
    for m, cap in ((20, None), (10**4, None), (300, 2.0))
]


def some_reports(policy, n, seed=0):
    """Return reports from the bottom of the support to beyond the last sale."""
    low, high = policy.support
    top = high if np.isfinite(high) else policy.prior.quantile(0.999)
    u = np.random.default_rng(seed).uniform(0, 1, n)
    return low + (top - low) * u**3


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_payments_are_cost_and_the_integral_of_dearer_sales(policy):
    """A, Eq. (8), the integral by scipy from the quoted guarantees alone."""
    high = policy.support[1]
    edges = policy.prior.breakpoints
    for report in some_reports(policy, 6):
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


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_truth_is_a_best_reply_and_nobody_loses(policy):
    audit = cm.audit_quotes(policy)
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
    assert audit.max_rise <= 1e-12 * policy.quote(policy.support[0]).epsilon
    reports = some_reports(policy, 300)
    audit = cm.audit_quotes(policy, reports, some_reports(policy, 300, seed=1))
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
    assert (audit.n_truths, audit.n_misreports) == (300, 300)


def test_the_audit_catches_other_payments(monkeypatch):
    policy = cm.OnlinePolicy(cm.Uniform(1, 5), 100, 1, 1, 1)
    quote = policy.quote

    def virtual(sensitivity):  # psi*eps, right in expectation only (B, Theorem A.3)
        epsilon = quote(sensitivity).epsilon
        return cm.Quote(epsilon, (2 * np.asarray(sensitivity) - 1) * epsilon)

    def first_price(sensitivity):
        epsilon = quote(sensitivity).epsilon
        return cm.Quote(epsilon, np.asarray(sensitivity) * epsilon * 0.999)

    monkeypatch.setattr(policy, "quote", virtual)
    assert not cm.audit_quotes(policy).is_incentive_compatible
    monkeypatch.setattr(policy, "quote", first_price)
    audit = cm.audit_quotes(policy)
    assert not audit.is_incentive_compatible
    assert not audit.is_individually_rational


@pytest.mark.parametrize("policy", POLICIES[::3], ids=repr)
def test_expected_payments_are_expected_virtual_costs(policy):
    """A, Eq. (9): E[t] = E[psi*eps], here for one seller and exactly."""
    levels = np.linspace(0, 1, 400_001)
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


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_one_report_is_quoted_as_many_are(data):
    policy = data.draw(st.sampled_from(POLICIES))
    low, high = policy.support
    top = high if np.isfinite(high) else float(policy.prior.quantile(0.99))
    report = data.draw(st.floats(low, top))
    one = policy.quote(report)
    many = policy.quote(np.full((2, 3), report))
    assert isinstance(one.epsilon, float)
    assert isinstance(one.payment, float)
    assert many.epsilon.shape == many.payment.shape == (2, 3)
    np.testing.assert_allclose(many.epsilon, one.epsilon, rtol=1e-14)
    np.testing.assert_allclose(many.payment, one.payment, rtol=1e-13, atol=1e-300)
    assert one.epsilon >= 0
    assert one.payment >= report * one.epsilon * (1 - 1e-14)


def test_many_more_reports_than_a_block():
    policy = cm.OnlinePolicy(cm.Uniform(1, 5), 100, 1, 1, 1)
    reports = np.random.default_rng(0).uniform(1, 5, 50_001)
    whole, parts = policy.quote(reports), [policy.quote(part) for part in reports.reshape(7, -1)]
    np.testing.assert_array_equal(whole.epsilon, np.concatenate([part.epsilon for part in parts]))
    np.testing.assert_array_equal(whole.payment, np.concatenate([part.payment for part in parts]))
    assert policy.quote([]).epsilon.shape == (0,)


def test_who_reports_the_top_is_paid_its_cost_at_most():
    policy = cm.OnlinePolicy(cm.Uniform(1, 1.1), 4, 1, 1, 1)
    epsilon, payment = policy.quote(1.1)
    assert epsilon > 0
    assert payment == pytest.approx(1.1 * epsilon, rel=1e-14)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_policy_survives_json(policy):
    again = cm.policy_from_dict(json.loads(json.dumps(policy.to_dict(), allow_nan=False)))
    reports = some_reports(policy, 200)
    for before, after in zip(policy.quote(reports), again.quote(reports), strict=True):
        np.testing.assert_array_equal(before, after)
    assert again.plan == policy.plan
    assert repr(again) == repr(policy)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (0.99, r"1 of 1 sensitivities are not in the support \[1, 5\].*the first is 0.99"),
        (5.01, "the first is 5.01"),
        (float("nan"), "the first is nan"),
        (float("inf"), "the first is inf"),
        (-1, "the first is -1"),
        ([2, 7, 9], "2 of 3 sensitivities.*the first is 7"),
    ],
)
def test_reports_outside_the_support_are_refused(report, words):
    policy = cm.OnlinePolicy(cm.Uniform(1, 5), 100, 1, 1, 1)
    with pytest.raises(cm.PriorError, match=words):
        policy.quote(report)


def test_infinite_reports_have_no_quote_even_where_the_prior_has_no_top():
    with pytest.raises(cm.PriorError, match="the first is inf"):
        cm.OnlinePolicy(cm.Exponential(1.0), 100, 1, 1, 1).quote([1.0, np.inf])


@pytest.mark.parametrize("report", ["0.1x", None, [[1], [1, 2]], object()])
def test_reports_that_are_no_numbers(report):
    with pytest.raises(cm.ConvexMarketError):
        cm.OnlinePolicy(cm.Uniform(1, 5), 100, 1, 1, 1).quote(report)


@pytest.mark.parametrize(
    "described",
    [None, [], {}, {"policy": "other"}, {"policy": "fixed"}, {"policy": "adaptive", "start": {}}],
)
def test_what_describes_no_policy(described):
    with pytest.raises(cm.ParameterError, match="to_dict"):
        cm.policy_from_dict(described)


@pytest.mark.parametrize(
    ("prior", "m", "mu", "sigma", "gamma", "cap"),
    [
        (cm.Uniform(0, 0.00456762), 130, 3.3e9, 1.0, 1.0, 1.00008),
        (cm.Uniform(17604.73, 17656.71), 4, 6.3e5, 2.8e-6, 1e-7, 1.0014),
        (cm.Uniform(1, 5), 100, 1e9, 1.0, 1.0, 1.5),
        (cm.Uniform(1, 5), 100, 1e8, 1.0, 1.0, None),
    ],
    ids=str,
)
def test_rents_keep_their_digits_where_the_price_is_far_above_all_costs(
    prior, m, mu, sigma, gamma, cap
):
    policy = cm.OnlinePolicy(prior, m, mu, sigma, gamma, cap)
    low, high = prior.support
    for report in np.linspace(low, high, 7):
        fine = np.linspace(report, high, 20_001)
        rent = integrate.trapezoid(policy.quote(fine).epsilon, fine)
        epsilon, payment = policy.quote(report)
        assert payment - report * epsilon == pytest.approx(rent, rel=1e-6, abs=1e-12 * payment)
    assert cm.audit_quotes(policy).is_incentive_compatible


@pytest.mark.parametrize("mu", [1.0, 1e8, 1e12, 1e15])
@pytest.mark.parametrize(
    "prior",
    [cm.Beta(2, 5), cm.Exponential(0.05), cm.LogNormal(0, 1), cm.TruncatedNormal(1, 0.5, 0.5, 3)],
    ids=repr,
)
def test_truth_is_a_best_reply_up_to_the_top_where_nearly_everybody_sells(prior, mu):
    """Sales may go on beyond the quantiles that matter to an expectation."""
    policy = cm.OnlinePolicy(prior, 100, mu, 1, 1)
    low, high = policy.support
    top = high if np.isfinite(high) else prior.quantile(1 - 1e-15)
    close = top - (top - low) * np.geomspace(1e-12, 1, 200)
    reports = np.unique(np.concatenate((np.linspace(low, top, 301), close)))
    audit = cm.audit_quotes(policy, reports, reports)
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
