"""Compare quoted payments with an independent integral, and audit incentives of quotes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

import convexmarket as cm
from convexmarket.errors import ParameterError, PriorError
from tests import one_in
from tests.online.builders import PRIORS, check_payments, check_truth, policy_of, with_half_cap

#: The arguments of each policy: name of the prior, expected number of sellers, and cap.
CASES = [(name, 20, None) for name in PRIORS]
CASES += [(name, *terms) for name in PRIORS for terms in ((10**4, None), (300, 2.0))]


@pytest.mark.parametrize("case", one_in(7, map(pytest.param, CASES)), ids=str)
def test_payments_equal_the_cost_plus_the_integral_over_higher_reports(case):
    check_payments(policy_of(*case), 2)


@pytest.mark.parametrize("name", one_in(4, PRIORS))
def test_policies_with_a_largest_guarantee_are_truthful(name):
    policy = with_half_cap(policy_of(name, 20, None))
    check_payments(policy, 2)
    check_truth(policy, 100)


@pytest.mark.parametrize("case", one_in(4, map(pytest.param, CASES)), ids=str)
def test_policies_are_truthful_and_no_seller_loses(case):
    check_truth(policy_of(*case), 100)


def test_the_audit_refutes_wrong_payments(monkeypatch):
    policy = cm.OnlinePolicy(cm.Uniform(1, 5), 100, 1, 1, 1)
    quote = policy.quote

    def virtual(sensitivity):  # psi*eps has the correct mean (B, A.3)
        epsilon = quote(sensitivity).epsilon
        return cm.online.Quote(epsilon, (2 * np.asarray(sensitivity) - 1) * epsilon)

    def first_price(sensitivity):
        epsilon = quote(sensitivity).epsilon
        return cm.online.Quote(epsilon, np.asarray(sensitivity) * epsilon * 0.999)

    monkeypatch.setattr(policy, "quote", virtual)
    assert not cm.online.audit_quotes(policy).is_incentive_compatible
    monkeypatch.setattr(policy, "quote", first_price)
    audit = cm.online.audit_quotes(policy)
    assert not audit.is_incentive_compatible
    assert not audit.is_individually_rational


@pytest.mark.parametrize("name", PRIORS)
def test_expected_payments_equal_expected_virtual_costs(name):
    """Check E[t] = E[psi*eps], Eq. (9) of paper A, for one seller."""
    policy = policy_of(name, 20, None)
    levels = np.linspace(0, 1, 40_001)
    levels = 0.5 * (levels[1:] + levels[:-1])
    reports = policy.prior.quantile(levels**2)
    epsilon, payment = policy.quote(reports)
    selling = epsilon > 0
    costs = policy.prior.ironed_virtual_cost(reports[selling])
    weight = 2 * levels[selling]
    expected = (weight * costs * epsilon[selling]).sum()
    assert (weight * payment[selling]).sum() == pytest.approx(expected, rel=1e-3)
    m = policy.expected_sellers
    assert m * (weight * epsilon[selling]).sum() / levels.size == pytest.approx(
        policy.plan.eta, rel=1e-3
    )


@given(data=st.data())
def test_scalar_and_array_quotes_agree(data):
    policy = policy_of(*data.draw(st.sampled_from(CASES)))
    low, high = policy.support
    top = high if np.isfinite(high) else float(policy.prior.quantile(0.99))
    report = data.draw(st.floats(low, top))
    single = policy.quote(report)
    repeated = policy.quote(np.full((2, 3), report))
    assert isinstance(single.epsilon, float)
    assert isinstance(single.payment, float)
    assert repeated.epsilon.shape == repeated.payment.shape == (2, 3)
    np.testing.assert_allclose(repeated.epsilon, single.epsilon, rtol=1e-14)
    np.testing.assert_allclose(repeated.payment, single.payment, rtol=1e-13, atol=1e-300)
    assert single.epsilon >= 0
    assert single.payment >= report * single.epsilon * (1 - 1e-14)


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
    with pytest.raises(PriorError, match=words):
        policy.quote(report)


@pytest.mark.parametrize(
    "described",
    [None, [], {}, {"policy": "other"}, {"policy": "fixed"}, {"policy": "adaptive", "start": {}}],
)
def test_invalid_descriptions_of_policies_are_refused(described):
    with pytest.raises(ParameterError, match="to_dict"):
        cm.online.policy_from_dict(described)


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
def test_rents_are_accurate_if_the_price_far_exceeds_all_costs(prior, m, mu, sigma, gamma, cap):
    policy = cm.OnlinePolicy(prior, m, mu, sigma, gamma, cap)
    low, high = prior.support
    for report in np.linspace(low, high, 7):
        fine = np.linspace(report, high, 20_001)
        rent = integrate.trapezoid(policy.quote(fine).epsilon, fine)
        epsilon, payment = policy.quote(report)
        assert payment - report * epsilon == pytest.approx(rent, rel=1e-6, abs=1e-12 * payment)
    assert cm.online.audit_quotes(policy).is_incentive_compatible


@pytest.mark.parametrize("mu", one_in(4, [1.0, 1e8, 1e12, 1e15]))
@pytest.mark.parametrize(
    "prior",
    [
        cm.Beta(2, 5),
        cm.priors.Exponential(0.05),
        cm.priors.LogNormal(0, 1),
        cm.priors.TruncatedNormal(1, 0.5, 0.5, 3),
    ],
    ids=repr,
)
def test_policies_are_truthful_up_to_the_top_if_nearly_all_sellers_sell(prior, mu):
    """Sellers above the highest quantile that is used for expectations can also sell."""
    policy = cm.OnlinePolicy(prior, 100, mu, 1, 1)
    low, high = policy.support
    top = high if np.isfinite(high) else prior.quantile(1 - 1e-15)
    close = top - (top - low) * np.geomspace(1e-12, 1, 200)
    reports = np.unique(np.concatenate((np.linspace(low, top, 301), close)))
    audit = cm.online.audit_quotes(policy, reports)
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
