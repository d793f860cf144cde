"""The audit reports a gain if and only if the market or the rule is not truthful."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.errors import ParameterError, UnattainedOptimumError
from convexmarket.incentives.audit import audit_incentives
from tests import one_in
from tests.incentives import builders
from tests.incentives.builders import PRIORS, draw, prior_of, virtual_cost_payment

pytestmark = pytest.mark.filterwarnings("error:(invalid|divide|overflow):RuntimeWarning")


def market_of(name, m, *, seed=0, mu=1.0, cap=None, eta_range=None):
    sellers = draw(prior_of(name), m, seed)
    return cm.Market.standard(sellers, mu=mu, sigma=1.0, gamma=0.5, cap=cap, eta_range=eta_range)


@given(
    st.sampled_from(sorted(PRIORS)),
    st.integers(3, 5),
    st.integers(0, 10**6),
    st.floats(-1, 1).map(lambda exponent: 10.0**exponent),
    st.sampled_from([None, 1.6, 2.0, 3.0]),
    st.sampled_from([None, (0.5, 5.0)]),
)
def test_no_seller_gains_by_a_misreport_or_loses_by_participation(
    name, m, seed, mu, cap, eta_range
):
    market = market_of(name, m, seed=seed, mu=mu, cap=cap, eta_range=eta_range)
    audit = audit_incentives(market, misreports=5)
    assert audit.is_incentive_compatible, audit.to_frame()
    assert audit.is_individually_rational, audit.to_frame()
    # The true report is audited too, so the largest gain is not negative.
    assert audit.max_gain >= 0
    assert audit.n_sellers == len(audit.to_frame()) == m
    paid = cm.payments(market, cm.allocate(market))
    np.testing.assert_allclose(
        audit.to_frame()["payment"], paid, rtol=1e-8, atol=1e-12 * paid.max()
    )


RULES = {
    "the virtual cost": virtual_cost_payment,
    "only the cost": lambda report, epsilon, *_: report * epsilon,
    "half the rent": lambda report, epsilon, rent, _: report * epsilon + 0.5 * rent,
    "a tenth more rent": lambda report, epsilon, rent, _: report * epsilon + 1.1 * rent,
}


@pytest.mark.parametrize("cap", one_in(2, [None, 2.0]))
@pytest.mark.parametrize("name", RULES)
def test_a_wrong_rule_is_refuted(name, cap):
    market = market_of("uniform", 10, cap=cap)
    assert audit_incentives(market, misreports=40).is_incentive_compatible
    audit = audit_incentives(market, rule=RULES[name], misreports=40)
    assert not audit.is_incentive_compatible
    assert audit.max_gain > 1e-5
    gains = audit.to_frame()["max_gain"]
    best = audit.to_frame().loc[gains.idxmax()]
    assert best["best_misreport"] != best["sensitivity"]


def strong_losses(reports):
    """Return a market in which the losses of sellers decrease with their reports."""
    terms = 2 * cm.Spread() + cm.Noise() + 0.5 * cm.Payments() + cm.Losses(-20 * reports)
    return cm.Market(cm.Sellers(reports, cm.Uniform(0.1, 1.0)), terms)


def smooth(reports):
    """Return a market in which only the payments depend on the reports."""
    terms = 2 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments()
    return cm.Market(cm.Sellers(reports, cm.Uniform(0.1, 1.0)), terms)


def standard(reports):
    """Return a market of the papers' form."""
    sellers = cm.Sellers(reports, cm.Uniform(0.1, 1.0))
    return cm.Market.standard(sellers, mu=1.0, sigma=1.0, gamma=0.5)


def weak_losses(reports):
    """Return a market whose losses depend on the reports too weakly to increase sales."""
    terms = 2 * cm.Spread() + cm.Noise() + 0.5 * cm.Payments() + cm.Losses(-0.5 * reports)
    return cm.Market(cm.Sellers(reports, cm.Uniform(1.0, 5.0)), terms)


def cap_by_report(reports):
    """Return a market of the papers' form with a cap that increases with the first report."""
    sellers = cm.Sellers(reports, cm.Uniform(0.1, 1.0))
    cap = 1.05 + 1.5 * float(reports[0])
    return cm.Market.standard(sellers, mu=0.05, sigma=1.0, gamma=0.5, cap=cap)


TRUTH = np.array([0.3, 0.55, 0.7])
#: For each market, the function that builds it, the true sensitivities and the largest gain.
CAPTURED = {
    "losses": (strong_losses, TRUTH, 0.788),
    "mild losses": (weak_losses, np.array([3.54785, 2.07915, 1.16389, 1.06611]), 0.1225),
    "a cap": (cap_by_report, np.array([0.12, 0.55, 0.9]), 0.11),
}


def surplus(build, truth, seller, report, pay=cm.payments):
    """Compute the surplus of a seller who reports ``report`` if all other sellers are truthful."""
    reports = truth.copy()
    reports[seller] = report
    market = build(reports)
    allocation = cm.allocate(market, gap=1e-8)
    return float(pay(market, allocation)[seller] - truth[seller] * allocation.epsilon[seller])


@pytest.mark.parametrize("name", one_in(3, CAPTURED))
def test_rebuilt_markets_reveal_gains_through_numbers_that_depend_on_reports(name):
    build, truth, largest = CAPTURED[name]
    market = build(truth)
    assert market.incentives == "by construction"
    assert "provided that no number" in market.incentives.reason
    plain = audit_incentives(market)
    assert plain.is_incentive_compatible
    assert plain.max_rise == 0
    audit = audit_incentives(market, build=build)
    assert not audit.is_incentive_compatible
    assert audit.is_individually_rational
    assert audit.max_gain == pytest.approx(largest, rel=0.02)
    low, high = market.sellers.priors[0].support
    for seller, row in audit.to_frame().reset_index().iterrows():
        truthful = surplus(build, truth, seller, truth[seller])
        assert row.surplus == pytest.approx(truthful, abs=1e-4)
        misreport = surplus(build, truth, seller, row.best_misreport)
        assert row.max_gain == pytest.approx(misreport - truthful, abs=5e-4)
        grid = np.linspace(low, high, 6)[1:]
        best = max(surplus(build, truth, seller, report) for report in grid)
        assert row.max_gain > 0.97 * (best - truthful) - 1e-3


@pytest.mark.parametrize("build", [smooth, standard])
def test_rebuilding_a_truthful_market_does_not_change_the_verdict(build):
    market = build(TRUTH)
    plain, other = audit_incentives(market), audit_incentives(market, build=build)
    assert other.is_incentive_compatible
    assert other.is_individually_rational
    assert other.max_rise == 0
    assert other.n_misreports >= 12
    np.testing.assert_allclose(other.to_frame()["epsilon"], plain.to_frame()["epsilon"], rtol=1e-6)
    paid = cm.payments(market, cm.allocate(market, gap=1e-8))
    np.testing.assert_allclose(other.to_frame()["payment"], paid, rtol=1e-4)


WRONG_BUILDS = {
    "build must be .*a function.*, got 3": 3,
    r"build returned array.*; give a function from the reports": lambda c: c,
    r"build returned Market\(2 sellers": lambda c: smooth(c[:2]),
    "a Market of sellers with these reports": lambda _: smooth(TRUTH),
    r"returned .* 1 \* Spread": lambda c: cm.Market(cm.Sellers(virtual_costs=c), cm.Spread()),
    "but in the result of build, seller 0 sells .* instead of": standard,
    "with the same priors, but in the result of build": lambda c: cm.Market(
        cm.Sellers(c, cm.Uniform(0.0, 1.0)), smooth(c).objective
    ),
}


@pytest.mark.parametrize("words", WRONG_BUILDS)
def test_an_invalid_build_function_is_refused(words):
    with pytest.raises(ParameterError, match=words):
        audit_incentives(smooth(TRUTH), build=WRONG_BUILDS[words])


def without_noise(reports):
    """Return a market without an optimum if the first report is at least 0.8."""
    sigma = max(0.0, 0.8 - float(reports[0]))
    sellers = cm.Sellers(reports, cm.Uniform(0.1, 1.0))
    return cm.Market.standard(sellers, mu=1.0, sigma=sigma, gamma=0.5)


def test_an_error_at_a_misreport_names_the_misreport():
    with pytest.raises(UnattainedOptimumError, match=r"where seller 0 reports 0\.\d+: ."):
        audit_incentives(without_noise(TRUTH), build=without_noise)


def test_the_frame_has_a_row_for_each_seller():
    sellers = cm.Sellers([0.2, 0.9, 0.3], cm.Uniform(0.1, 1.0), ids=["Ann", "Bob", "Cy"])
    market = cm.Market.standard(sellers, mu=0.2, sigma=1, gamma=0.5)
    audit = audit_incentives(market, misreports=10)
    allocation, table = cm.allocate(market), audit.to_frame()
    assert list(table.index) == ["Ann", "Bob", "Cy"]
    np.testing.assert_allclose(table.sensitivity, [0.2, 0.9, 0.3])
    np.testing.assert_allclose(table.epsilon, allocation.epsilon, atol=1e-12)
    np.testing.assert_allclose(table.surplus, table.payment - table.sensitivity * table.epsilon)
    assert allocation.epsilon[1] == 0  # Bob sells nothing, but the audit contains Bob
    assert table.payment.iloc[1] == 0
    assert "max_gain" in repr(audit)
    assert "min_surplus" in repr(audit)


@pytest.mark.campaign
def test_audits_of_markets_for_projections_use_nine_reports_of_sixteen_sellers():
    sellers = draw(prior_of("uniform"), 18, 0)
    objective = cm.Spread() + cm.Noise() + 0.5 * cm.Payments()
    shares = cm.GroupShare([0, 1] * 9, at_least={0: 0.3})
    audit = audit_incentives(cm.Market(sellers, objective, [cm.Cap(5), shares]))
    assert len(audit.to_frame()) == 16
    assert audit.n_misreports >= 9
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational


def test_audits_of_large_markets_sample_sellers():
    market = market_of("uniform", 100, mu=50.0)
    audit = audit_incentives(market, max_sellers=40, misreports=9)
    assert (audit.n_sellers, len(audit.to_frame())) == (100, 40)
    assert audit.to_frame().index.is_unique
    assert audit.is_incentive_compatible
    repeated = audit_incentives(market, max_sellers=40, misreports=9)
    assert list(repeated.to_frame().index) == list(audit.to_frame().index)
    rng = np.random.default_rng(1)
    other = audit_incentives(market, max_sellers=40, misreports=9, random_state=rng)
    assert list(other.to_frame().index) != list(audit.to_frame().index)


def z_score(paid, virtual):
    difference = np.asarray(paid) - virtual
    return difference.mean() / (difference.std(ddof=1) / np.sqrt(difference.size))


def simulated(prior, m, draws, **buyer):
    """Return the total payment and the total virtual cost of markets with newly drawn sellers."""
    totals, rng = [], np.random.default_rng(12)
    for _ in range(draws):
        market = cm.Market.standard(cm.Sellers.draw(m, prior, rng), sigma=1, gamma=0.5, **buyer)
        allocation = cm.allocate(market)
        virtual = market.sellers.virtual_costs @ allocation.epsilon
        totals.append((cm.payments(market, allocation).sum(), virtual))
    return np.transpose(totals)


@pytest.mark.parametrize(
    ("name", "cap", "draws"),
    one_in(
        5,
        [
            ("uniform", None, 100),
            ("power below one", 1.5, 100),
            ("empirical", None, 40),
            ("exponential", None, 300),
            ("two humps, ironed", 1.5, 300),
        ],
    ),
)
def test_expected_payments_equal_expected_virtual_costs(name, cap, draws):
    """Check Eq. (9) of paper A with simulated markets."""
    paid, virtual = simulated(prior_of(name), 5, draws, mu=1.0, cap=cap)
    assert abs(z_score(paid, virtual)) < 4
    np.testing.assert_allclose(paid.mean(), virtual.mean(), rtol=0.2)


def test_wrong_payments_violate_the_payment_identity():
    paid, virtual = simulated(prior_of("uniform"), 10, 100, mu=3)
    assert z_score(0.9 * paid, virtual) < -4
    assert z_score(1.1 * paid, virtual) > 4


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_sellers_with_equal_ironed_costs_get_equal_and_truthful_offers(mu):
    """The first three of the four reports are in the same ironed interval."""
    sellers = cm.Sellers([0.45, 0.5, 0.6, 0.99], prior_of("two humps, ironed"))
    assert np.ptp(sellers.virtual_costs[:3]) == 0
    market = cm.Market.standard(sellers, mu=mu, sigma=1.0, gamma=1.0)
    allocation = cm.allocate(market)
    assert np.ptp(allocation.epsilon[:3]) <= 1e-12
    assert allocation.epsilon[0] > 0
    assert np.ptp(cm.payments(market, allocation)[:3]) <= 1e-9
    audit = cm.audit_incentives(market)
    assert audit.is_incentive_compatible
    assert audit.is_individually_rational
    assert audit.max_rise == 0


def test_virtual_cost_payments_reward_higher_reports():
    """Under Theorem A.3 of paper B, the seller with sensitivity 0.2 gains by a higher report."""
    sellers = cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0), ids=["Ann", "Bob", "Cy"])
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5)
    table = audit_incentives(market, rule=virtual_cost_payment).to_frame()
    assert table.loc["Ann", "best_misreport"] > 0.2
    assert table.loc["Ann", "max_gain"] > 0.01
    # The gain is the increase of the surplus between two allocations.
    misreport = table.loc["Ann", "best_misreport"]
    surplus = []
    for report in (0.2, misreport):
        changed = cm.Market(sellers.with_report(0, report), market.objective)
        epsilon = cm.allocate(changed).epsilon[0]
        surplus.append((changed.sellers.virtual_costs[0] - 0.2) * epsilon)
    assert table.loc["Ann", "max_gain"] == pytest.approx(surplus[1] - surplus[0], rel=1e-9)


@pytest.mark.parametrize(
    "market",
    [
        builders.spread_under_budget(cm.Spread(), [0.2, 0.4, 0.7]),
        pytest.param(builders.quotas(0.2), marks=pytest.mark.campaign),
    ],
)
def test_audited_payments_in_conic_markets_equal_integrals_within_their_errors(market):
    row = audit_incentives(market, misreports=2).to_frame().loc[0]
    z = np.linspace(0.2, market.sellers.priors[0].support[1], 231)
    sold = builders.epsilon_at(market, 0, z, gap=1e-9)
    paid = 0.2 * sold[0] + np.trapezoid(sold, z)
    assert 0 < row.payment_error < 1e-3 * paid
    assert row.payment == pytest.approx(paid, abs=row.payment_error + 1e-4 * paid)


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_audits_include_reports_slightly_below_and_above_the_truth(factor):
    truth = 0.4

    def rule(report, epsilon, rent, virtual_cost):
        return report * epsilon + rent + 10.0 * (np.abs(report / truth - factor) < 1e-6)

    sellers = cm.Sellers([truth, 0.5, 0.6], prior=cm.Uniform(0, 1))
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5)
    assert cm.audit_incentives(market, rule=rule, misreports=3).max_gain > 9.0
    with pytest.raises(ParameterError, match="rule must return a payment for each report"):
        cm.audit_incentives(market, rule=lambda *_: [1.0])


@pytest.mark.campaign
def test_integration_beyond_the_support_gives_excessive_payments():
    """Payments by Eq. (8) violate Eq. (9) if psi = 2c - c_lo is also used above c_hi."""
    prior, rng = cm.Uniform(0.1, 1.0), np.random.default_rng(7)
    wrong, right, virtual = [], [], []
    for _ in range(300):
        sellers = cm.Sellers(prior.sample(3, rng), prior)
        market = cm.Market.standard(sellers, mu=5, sigma=2, gamma=0.2)
        allocation = cm.allocate(market)
        paid = cm.payments(market, allocation)
        right.append(paid.sum())
        virtual.append(sellers.virtual_costs @ allocation.epsilon)
        # Add the integral above c_hi, as if the formula of psi were valid there.
        curve, places = OwnReportCurve(market.standard_form), np.arange(3)
        at_top = curve(places, np.full(3, float(prior.virtual_cost(1.0)))).value
        without = curve(places, np.full(3, np.inf)).value
        wrong.append(paid.sum() + ((without - at_top) / (0.2 * 2.0)).sum())

    assert abs(z_score(right, virtual)) < 4
    assert z_score(wrong, virtual) > 10
