"""Payments for joint optima, and solvers under which no payment is truthful."""

from functools import partial

import numpy as np
import pytest
from scipy.integrate import simpson

import convexmarket as cm
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.joint import audit_joint_reports, joint_payments
from tests.joint.builders import instance


def small(report=0.3):
    """Three sellers who sell very different amounts, inside the convex region."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(3, 2)) / 4, np.array([1, -1, 1])
    sellers = cm.Sellers([report, 0.2, 0.9], prior=cm.Uniform(0.1, 1))
    objective = 3.0 * cm.terms.SquaredSpread() + 2.0 * cm.Noise() + 1.0 * cm.Payments()
    return cm.JointMarket(cm.Market(sellers, objective), X, y, regularization=0.5)


def test_payments_are_the_cost_and_the_area_under_what_dearer_reports_sell():
    joint = small()
    found = joint_payments(joint, cm.allocate_jointly(joint), sellers=[0])
    reports = np.linspace(0.3, 1.0, 9)
    sold = [cm.allocate_jointly(small(z)).epsilon[0] for z in reports]
    area = 0.3 * sold[0] + simpson(sold, x=reports)
    assert found.amounts[0] == pytest.approx(area, rel=3e-3)
    assert found.errors[0] < 1e-3 * found.amounts[0]
    assert sold[-1] < 0.8 * sold[0]


def test_the_truth_is_the_best_reply_at_a_certified_optimum():
    surplus = []
    for z in (0.3, 0.25, 0.35, 0.9):
        joint = small(z)
        best = cm.allocate_jointly(joint)
        paid = joint_payments(joint, best, sellers=[0])
        surplus.append(paid.amounts[0] - 0.3 * best.epsilon[0])
    doubt = 2 * paid.errors[0] + 1e-6
    assert surplus[0] > 0
    assert max(surplus[1:]) <= surplus[0] + doubt
    assert min(surplus[1:]) < 0.9 * surplus[0]
    assert audit_joint_reports(joint, misreports=2, sellers=[0]).unavoidable_gain.max() < 1e-9


def trap():
    """Alternation from no model goes where the first purchase points: its seventh seller's way."""
    X = np.array([[1.0]] * 5 + [[-5.5], [0.5]])
    sellers = cm.Sellers([0.3] * 6 + [0.35], prior=cm.Uniform(0, 1))
    objective = cm.terms.SquaredSpread() + 0.1 * cm.Noise() + 0.1 * cm.Payments()
    return cm.JointMarket(cm.Market(sellers, objective), X, np.ones(7), regularization=0.05)


def test_no_payment_is_truthful_at_a_local_optimum():
    joint, solve = trap(), partial(cm.allocate_jointly, starts=1)
    with pytest.raises(NotSupportedError, match="best of several starts"):
        joint_payments(joint, solve(joint))
    seen = audit_joint_reports(joint, solve, misreports=8, sellers=[6]).loc[6]
    assert seen.lower < seen.higher
    sold = []
    for z in (seen.lower, seen.higher):
        sellers = cm.Sellers([0.3] * 6 + [z], prior=cm.Uniform(0, 1))
        market = cm.Market(sellers, joint.market.objective)
        again = cm.JointMarket(market, joint.X, joint.y, regularization=0.05)
        sold.append(solve(again).epsilon[6])
    assert sold[1] - sold[0] == pytest.approx(seen.rise)
    assert seen.rise > 0.02
    # whatever is paid at either report, the two lies gain this much together
    for paid in np.random.default_rng(0).normal(size=(50, 2)):
        gains = [
            (paid[1 - k] - z * sold[1 - k]) - (paid[k] - z * sold[k])
            for k, z in enumerate((seen.lower, seen.higher))
        ]
        assert sum(gains) == pytest.approx(2 * seen.unavoidable_gain)
        assert max(gains) >= seen.unavoidable_gain - 1e-12


def test_what_cannot_be_paid_is_refused():
    joint = instance(4, 2)
    with pytest.raises(ParameterError, match="another market"):
        joint_payments(instance(5, 2), cm.allocate_jointly(joint))
    budget = instance(4, 2, constraints=[cm.Budget(2.0)])
    with pytest.raises(NotSupportedError):
        joint_payments(budget, cm.allocate_jointly(joint))
