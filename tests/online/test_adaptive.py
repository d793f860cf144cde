"""Test adaptive policies, streams of sellers, and ratios of online to offline loss."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize

import convexmarket as cm
from convexmarket.errors import ParameterError
from convexmarket.online.atoms import Atoms
from convexmarket.online.plan import Buyer, plan_atoms
from tests import one_in
from tests.online.builders import PUBLISHED, UNIT, adaptive, ratios

# ---------------------------------------------------------------- reference figures


@pytest.mark.parametrize(("prior", "m", "published"), one_in(7, PUBLISHED), ids=str)
def test_competitive_ratios_agree_with_the_reference(prior, m, published):
    """The published ratio lies within the central 99.8 % of simulated means of 20 draws."""
    result = ratios(
        lambda m: cm.OnlinePolicy(prior, m, **UNIT), prior, m, 150 if m <= 10**4 else 60
    )
    assert (result >= 1 - 1e-9).all()
    means = np.random.default_rng(0).choice(result, (20_000, 20)).mean(axis=1)
    low, high = np.quantile(means, [1e-3, 1 - 1e-3])
    assert low - 5e-4 <= published <= high + 5e-4
    assert high - low < 4 * (published - 1) + 5e-3


def test_the_loss_is_infinite_if_no_seller_sells():
    """On U[0, 4], all virtual costs exceed the price in about 3 % of markets with 100 sellers."""
    prior = cm.Uniform(0, 4)
    policy = cm.OnlinePolicy(prior, 100, **UNIT)
    outcome = cm.run_online(policy, np.full(100, 3.0))
    assert outcome.loss(prior) == outcome.paid_loss() == np.inf
    with pytest.raises(cm.errors.PriorError, match=r"prior is 0\.5, which is not a prior"):
        outcome.loss(0.5)
    assert outcome.n_bought == 0
    assert np.isnan(outcome.weights).all()
    without_sellers = (1 - policy.plan.cutoff / 2 / 4) ** 100
    assert 0.01 < without_sellers < 0.05


# ------------------------------------------------------------------------------ streams


@pytest.mark.parametrize(
    ("reports", "words"),
    [([], "shape"), ([[1.0]], "shape"), (["a"], "must hold numbers"), (2.0, "shape")],
)
def test_invalid_streams_are_refused(reports, words):
    with pytest.raises(ParameterError, match=words):
        cm.run_online(cm.OnlinePolicy(cm.Uniform(1, 5), 10, **UNIT), reports)
    with pytest.raises(ParameterError, match=r"policy must .*, got 'greedy'"):
        cm.run_online("greedy", [1.0])


# ------------------------------------------------------------------- plans for later sellers


# The cap sets the total epsilon in the first example, and the number of sellers in the second.
@example([1.0], 1, [0.0625], (0.0, 0.0, 0.0), 1.5)
@example([0.0625, 1.0, 2.0, 3.0], 16, [2.0], (0.0, 0.0, 0.0), 2.34375)
@given(
    costs=st.lists(st.floats(0.05, 20), min_size=1, max_size=5),
    remaining=st.integers(1, 40),
    sold=st.lists(st.floats(0.01, 3), min_size=1, max_size=10),
    weights=st.tuples(*[st.floats(-1.5, 1.5)] * 3),
    cap=st.none() | st.floats(1.2, 5),
)
def test_plans_for_later_sellers_equal_brute_force(costs, remaining, sold, weights, cap):
    """SciPy optimises a guarantee for each cost, starting at the plan and at random points."""
    mu, sigma, gamma = 10.0 ** np.array(weights)
    costs, sold = np.unique(costs), np.array(sold)
    mass = np.full(costs.size, 1 / costs.size)
    m = remaining + sold.size
    buyer = Buyer(mu, sigma, gamma, m, cap or np.inf)
    total, squares = sold.sum(), sold @ sold
    plan = plan_atoms(Atoms(costs, mass), buyer, remaining, total, squares)
    assert plan.lower_bound <= plan.objective * (1 + 1e-12)
    assert plan.gap <= 1e-8

    def loss(epsilon):
        eta = total + remaining * mass @ epsilon
        norm = np.sqrt(squares + remaining * mass @ epsilon**2)
        return (mu * norm + sigma) / eta + gamma * remaining * mass @ (costs * epsilon)

    planned = plan.terms.epsilon(costs)
    assert loss(planned) == pytest.approx(plan.objective, rel=1e-6)
    assert plan.objective <= loss(np.zeros(costs.size)) * (1 + 1e-12)
    limits = [
        {"type": "ineq", "fun": lambda e, k=k: (cap / m) * (total + remaining * mass @ e) - e[k]}
        for k in range(costs.size)
        if cap
    ]
    rng = np.random.default_rng(0)
    for start in [planned, *rng.uniform(0, 2 * plan.eta / m + 1e-3, (2, costs.size))]:
        other = minimize(
            loss, start, bounds=[(0, None)] * costs.size, constraints=limits, method="SLSQP"
        ).x
        other = np.maximum(other, 0)
        if cap:
            within = (cap / m) * (total + remaining * mass @ other) - other.max()
            if within < -1e-9:
                continue
        assert plan.objective <= loss(other) * (1 + 1e-6)


# ------------------------------------------------------------------------- adaptive policies

LOOKING_BACK = [{}, {"learn": True}, {"learn": True, "replan": False}]


@pytest.mark.parametrize("options", one_in(3, LOOKING_BACK))
def test_a_quote_depends_only_on_its_report_and_earlier_reports(options):
    m = 50
    policy = adaptive(m, **options)
    rng = np.random.default_rng(3)
    reports = rng.uniform(1, 5, m)
    quoted = cm.run_online(policy, reports)
    for place in (0, 9, 10, 27, m - 10):
        changed = np.concatenate((reports[: place + 1], rng.uniform(1, 5, m - 1 - place)))
        repeated = cm.run_online(policy, changed)
        np.testing.assert_array_equal(repeated.epsilon[: place + 1], quoted.epsilon[: place + 1])
        np.testing.assert_array_equal(repeated.payments[: place + 1], quoted.payments[: place + 1])


@pytest.mark.parametrize(
    "options", one_in(2, [{}, {"learn": True}, {"learn": True, "trust_guess": True}])
)
def test_all_plans_are_truthful(options):
    prior = cm.Uniform(1, 5)
    outcome = cm.run_online(adaptive(150, **options), prior.sample(150, np.random.default_rng(1)))
    assert len(outcome.policies) == len(adaptive(150).stages) + 1
    for policy in outcome.policies:
        audit = cm.online.audit_quotes(policy)
        assert audit.is_incentive_compatible
        assert audit.is_individually_rational
        assert policy.support == (1, 5)


@pytest.mark.campaign
def test_learning_the_prior_reduces_the_loss():
    truth, guess = cm.Uniform(1, 5), cm.Uniform(1, 20)
    with_truth = ratios(lambda m: adaptive(m, truth), truth, 3000, 3)
    with_learning = ratios(lambda m: adaptive(m, guess, learn=True), truth, 3000, 3)
    without_learning = ratios(lambda m: cm.OnlinePolicy(guess, m, **UNIT), truth, 3000, 3)
    assert with_learning.mean() / with_truth.mean() < 1.01
    assert without_learning.mean() / with_truth.mean() > 1.3


@pytest.mark.campaign
def test_replanning_reduces_the_loss():
    m, draws = 1000, 20
    prior = cm.Uniform(0, 4)
    fixed = ratios(lambda m: cm.OnlinePolicy(prior, m, **UNIT), prior, m, draws)
    replanned = ratios(lambda m: adaptive(m, prior), prior, m, draws)
    assert (fixed - replanned).mean() > 3 * (fixed - replanned).std(ddof=1) / np.sqrt(draws)


def test_the_first_stage_buys_nothing_if_the_guess_is_not_trusted():
    reports = cm.Uniform(1, 5).sample(200, np.random.default_rng(0))
    reports[:10] = 1.0
    untrusted = cm.run_online(adaptive(200, learn=True), reports)
    assert not untrusted.epsilon[:10].any()
    assert not untrusted.payments[:10].any()
    assert untrusted.epsilon[10:].any()
    trusted = cm.run_online(adaptive(200, learn=True, trust_guess=True), reports)
    assert trusted.epsilon[:10].all()


@given(
    reports=st.lists(st.sampled_from([0.0, 1e-12, 0.5, 3.9]) | st.floats(0, 4), min_size=1),
    sold=st.floats(0, 10),
    replan=st.booleans(),
)
def test_terms_after_any_reports_are_finite_and_truthful(reports, sold, replan):
    policy = adaptive(1000, cm.Uniform(0, 4), learn=True, replan=replan)
    n = len(reports)
    terms = policy.replanned(np.array(reports), np.full(n, sold))
    assert terms.support == (0, 4)
    epsilon, payment = terms.quote(np.linspace(0, 4, 101))
    assert np.isfinite(epsilon).all()
    assert np.isfinite(payment).all()
    assert (np.diff(epsilon) <= 1e-12 * epsilon[0]).all()
    audit = cm.online.audit_quotes(terms)
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational


def test_stages_grow_then_shrink_and_end_before_the_last_seller():
    policy = adaptive(100)
    assert policy.stages == (10, 15, 22, 34, 66, 78, 85, 90)
    with pytest.raises(ParameterError, match="no seller remains"):
        policy.replanned(np.ones(100), np.zeros(100))


@pytest.mark.parametrize("options", [{}, {"learn": True}])
def test_an_adaptive_policy_is_unchanged_by_a_json_round_trip(options):
    policy = adaptive(100, **options)
    loaded = cm.online.policy_from_dict(json.loads(json.dumps(policy.to_dict(), allow_nan=False)))
    reports = cm.Uniform(1, 5).sample(100, np.random.default_rng(2))
    before, after = cm.run_online(policy, reports), cm.run_online(loaded, reports)
    np.testing.assert_array_equal(before.payments, after.payments)
    for terms in before.policies:
        copied = cm.online.policy_from_dict(
            json.loads(json.dumps(terms.to_dict(), allow_nan=False))
        )
        np.testing.assert_array_equal(copied.quote(reports).payment, terms.quote(reports).payment)
    assert repr(loaded) == repr(policy)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replan": False}, "replan and learn are both False"),
        ({"replan": 1}, "replan must be True or False, got 1"),
        ({"learn": "yes"}, "learn must .*, got 'yes'"),
        ({"m": 19}, "more than half of the 19 expected sellers"),
    ],
)
def test_errors_name_invalid_options(options, words):
    with pytest.raises(ParameterError, match=words):
        adaptive(**{"m": 100} | options)


def test_an_adaptive_policy_refuses_algorithm_3():
    start = cm.OnlinePolicy(cm.Uniform(0, 4), 100, **UNIT, rule="algorithm-3")
    with pytest.raises(ParameterError, match=r'algorithm-3.*rule="expectation"'):
        cm.online.AdaptivePolicy(start)
    with pytest.raises(ParameterError, match=r"start must .*, got None"):
        cm.online.AdaptivePolicy(None)


def test_denormal_reports_give_finite_terms():
    policy = cm.online.AdaptivePolicy(
        cm.OnlinePolicy(cm.Uniform(0, 1), 100, **UNIT, cap=1.5), learn=True, replan=False
    )
    reports = np.array([5e-324] * 40)
    terms = policy.replanned(reports, np.zeros(40))
    epsilon, payment = terms.quote(np.linspace(0, 1, 50))
    assert np.isfinite(epsilon).all()
    assert np.isfinite(payment).all()
