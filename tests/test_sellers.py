"""Sellers are validated and immutable, and errors state a remedy."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.stats

import convexmarket as cm
from convexmarket.errors import ParameterError, PriorError, PriorFromReportsWarning, SellersError


def uniform():
    return cm.Uniform(0.1, 1.0)


def test_virtual_costs_follow_the_value_of_a_parameter():
    costs = cp.Parameter(2, nonneg=True, name="costs")
    sellers = cm.Sellers(virtual_costs=costs)
    assert len(sellers) == 2
    with pytest.raises(ParameterError, match="'costs' has no value; set it"):
        _ = sellers.virtual_costs
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    for values in ([0.1, 0.2], [0.3, 0.4]):
        costs.value = values
        assert sellers.virtual_costs.tolist() == values
        of_numbers = cm.Market.standard(cm.Sellers(virtual_costs=values), mu=1, sigma=1, gamma=1)
        assert cm.allocate(market).objective == cm.allocate(of_numbers).objective
    assert sellers.with_virtual_cost(0, 5.0).virtual_costs.tolist() == [5.0, 0.4]


def two_groups():
    return {"young": cm.Uniform(0.0, 1.0), "old": cm.Beta(2, 1, 0.5, 2.0)}


def test_sellers_can_have_a_prior_for_each_group():
    priors, groups = two_groups(), ["old", "young", "old"]
    sellers = cm.Sellers([0.6, 0.2, 1.0], priors, groups=groups)
    expected = [
        float(priors[group].virtual_cost(c))
        for group, c in zip(groups, [0.6, 0.2, 1.0], strict=True)
    ]
    np.testing.assert_allclose(sellers.virtual_costs, expected)
    assert sellers.priors == (priors["old"], priors["young"])
    assert sellers.groups.tolist() == groups
    assert [(p, places.tolist()) for p, places in sellers.by_prior()] == [
        (priors["old"], [0, 2]),
        (priors["young"], [1]),
    ]
    assert [(p, places.tolist()) for p, places in sellers.by_prior(np.array([1, 2]))] == [
        (priors["old"], [1]),
        (priors["young"], [0]),
    ]
    assert sellers.prior_of(1) == priors["young"]
    assert repr(sellers) == (
        "Sellers(3 sellers, 2 priors: Beta(2.0, 1.0, 0.5, 2.0), Uniform(0.0, 1.0))"
    )


def test_each_seller_can_have_a_prior():
    priors = [cm.Uniform(0, 1), cm.Uniform(0, 2), cm.Uniform(0, 1.0), cm.Uniform(0, 3)]
    sellers = cm.Sellers([0.5, 0.5, 0.7, 2.5], priors)
    assert len(sellers.priors) == 3
    assert [places.tolist() for _, places in sellers.by_prior()] == [[0, 2], [1], [3]]
    assert [sellers.prior_of(i) for i in range(4)] == priors
    many = cm.Sellers([0.5] * 5, [cm.Uniform(0, k) for k in range(1, 6)])
    assert repr(many).endswith("Uniform(0.0, 3.0), ...)")


def test_with_report_uses_the_prior_of_the_seller():
    sellers = cm.Sellers([0.6, 0.2], two_groups(), groups=["old", "young"], ids="ab")
    changed = sellers.with_report(0, 1.8)
    expected = cm.Sellers([1.8, 0.2], two_groups(), groups=["old", "young"])
    np.testing.assert_array_equal(changed.virtual_costs, expected.virtual_costs)
    np.testing.assert_array_equal(changed.sensitivities, [1.8, 0.2])
    assert (changed.priors, changed.ids) == (expected.priors, ("a", "b"))
    assert changed.groups.tolist() == ["old", "young"]
    assert changed.prior_of(0) == two_groups()["old"]
    with pytest.raises(PriorError, match=r"not in the support \[0, 1\]"):
        sellers.with_report(1, 1.8)
    with pytest.raises(
        SellersError, match=r"sensitivity\[0\] must be a finite number >= 0, got nan"
    ):
        sellers.with_report(1, np.nan)


def test_with_virtual_cost_changes_one_seller():
    sellers = cm.Sellers([0.2, 0.5], uniform(), ids="ab", groups=["x", "y"])
    out = sellers.with_virtual_cost(0, np.inf)
    assert out.virtual_costs.tolist() == [np.inf, sellers.virtual_costs[1]]
    assert (out.sensitivities, out.priors, out.ids) == (None, (), ("a", "b"))
    assert out.groups.tolist() == ["x", "y"]
    assert not out.virtual_costs.flags.writeable
    with pytest.raises(SellersError, match="virtual_cost must be a number >= 0, or inf, got -1"):
        sellers.with_virtual_cost(0, -1)


def test_drawn_sellers_follow_their_priors():
    rng = np.random.default_rng(0)
    groups = ["old", "young"] * 500
    sellers = cm.Sellers.draw(1000, two_groups(), rng, groups=groups)
    for prior, places in sellers.by_prior():
        assert scipy.stats.kstest(sellers.sensitivities[places], prior.cdf).pvalue > 1e-3
    single = cm.Sellers.draw(5, uniform(), np.random.default_rng(1))
    np.testing.assert_array_equal(
        single.sensitivities, uniform().sample(5, np.random.default_rng(1))
    )
    individual = cm.Sellers.draw(2, iter([cm.Uniform(0, 1), cm.Uniform(1, 2)]), rng)
    assert individual.sensitivities[0] < 1 < individual.sensitivities[1]


#: Invalid calls by the class of the error and by a pattern of its message.
BAD = {
    SellersError: {
        "give either sensitivities .* got neither": lambda: cm.Sellers(),
        "give either sensitivities .* got both": lambda: cm.Sellers(
            [0.2], uniform(), virtual_costs=[0.3]
        ),
        r"a parameter of shape \(2,\); give cp.Parameter\(m, nonneg=True\)": lambda: cm.Sellers(
            virtual_costs=cp.Parameter(2)
        ),
        r"prior is None, .* Uniform\(0.02, 0.10\)": lambda: cm.Sellers([0.2]),
        "1 priors for 2 sellers; give one for each": lambda: cm.Sellers([0.2, 0.3], [uniform()]),
        r"prior\[1\] is 3, which is not a prior": lambda: cm.Sellers([0.2, 0.3], [uniform(), 3]),
        r"groups\[1\] is 'middle', but prior has no such group; .* 'young', 'old'": lambda: (
            cm.Sellers([0.2, 0.3], two_groups(), groups=["young", "middle"])
        ),
        r"groups has shape \(2,\) for 1 sellers; give one group for each": lambda: cm.Sellers(
            [0.2], uniform(), groups=["a", "b"]
        ),
        r"sensitivities has shape \(0,\); give one number for each": lambda: cm.Sellers(
            [], uniform()
        ),
        "sensitivities must hold numbers: row 0 is not a number": lambda: cm.Sellers(
            ["cheap", "costly"], uniform()
        ),
        "no reports to change": lambda: cm.Sellers(virtual_costs=[1.0]).with_report(0, 0.5),
        r"sensitivities\[1\] must be a finite number >= 0, got nan": lambda: cm.Sellers(
            [0.2, np.nan], uniform()
        ),
        r"virtual_costs\[0\] must be a finite number >= 0, got -1e-09": lambda: cm.Sellers(
            virtual_costs=[-1e-9]
        ),
        "1 ids for 2 sellers; give one for each": lambda: cm.Sellers(
            [0.2, 0.3], uniform(), ids=["Ann"]
        ),
        "id 'Ann' belongs to more than one seller; ids must be distinct": lambda: cm.Sellers(
            [0.2, 0.3, 0.4], uniform(), ids=["Ann", "Bob", "Ann"]
        ),
    },
    PriorError: {
        r"not in the support \[0.5, 2\] .* first is sensitivities\[1\] \(group 'old'\)": lambda: (
            cm.Sellers([0.7, 0.2], two_groups(), groups=["young", "old"])
        ),
        (
            r"1 of 2 sensitivities are not in the support \[0.1, 1\] of Uniform\(0.1, 1.0\); "
            r"the first is sensitivities\[1\]. Correct the reports, or declare a prior"
        ): lambda: cm.Sellers([0.2, 0.05], uniform()),
    },
    ParameterError: {
        "n_sellers must be a whole number >= 1, got 0": lambda: cm.Sellers.draw(
            0, uniform(), np.random.default_rng(0)
        ),
    },
}


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [(error, *case) for error, cases in BAD.items() for case in cases.items()],
)
def test_refusals_name_argument_value_and_remedy(error, words, call):
    with pytest.raises(error, match=words) as raised:
        call()
    assert isinstance(raised.value, cm.ConvexMarketError)


GAMMA = scipy.stats.gamma(2, scale=0.05)


def test_every_public_function_accepts_a_frozen_distribution():
    prior, objective = cm.Prior.from_scipy(GAMMA), cm.Spread() + cm.Noise()
    people = pd.DataFrame({"ask": [0.1, 0.2]})
    deals = [
        cm.price(people, ask="ask", prior=p, objective=objective, gamma=1) for p in (GAMMA, prior)
    ]
    assert deals[0].offers.equals(deals[1].offers)
    buyer = {"mu": 1.0, "sigma": 1.0, "gamma": 0.5}
    plans = [cm.OnlinePolicy(p, 10, **buyer) for p in (GAMMA, prior)]
    assert plans[0].quote([0.1]) == plans[1].quote([0.1])
    weights = [cm.calibrate_gamma(1.0, p, 5, objective, draws=3).gamma for p in (GAMMA, prior)]
    assert weights[0] == weights[1]
    mixtures = [cm.priors.Mixture([1, 1], [p, cm.Uniform(0, 1)]) for p in (GAMMA, prior)]
    assert mixtures[0] == mixtures[1]


def own_sample(reports):
    """Build a market whose prior is the empirical distribution of the reports."""
    sellers = cm.Sellers(reports, cm.EmpiricalPrior(reports))
    return cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5)


def test_a_prior_computed_from_the_reports_warns_and_is_not_truthful():
    reports = np.array([0.2, 0.25, 0.3, 0.9])
    with pytest.warns(PriorFromReportsWarning, match="contains every report.*past reports"):
        market = own_sample(reports)
    with pytest.warns(PriorFromReportsWarning):
        audit = cm.audit_incentives(market, build=own_sample)
    assert market.incentives == "unknown"
    assert "each report affects its own price" in market.incentives.reason
    assert not audit.is_incentive_compatible


@pytest.mark.parametrize(
    ("reports", "sample", "from_reports"),
    [
        ([0.2, 0.3], [0.2, 0.3], True),
        ([0.2, 0.3], [0.1, 0.2, 0.3, 0.4], True),
        ([0.3, 0.3], [0.2, 0.3, 0.3], True),
        ([0.3, 0.3], [0.2, 0.3], False),  # only one of the two equal reports is in the sample
        ([0.2, 0.25], [0.2, 0.3], False),
        ([0.2], [0.2, 0.3], False),  # there is only one seller
    ],
)
def test_a_sample_that_contains_all_reports_is_treated_as_computed_from_them(
    reports, sample, from_reports
):
    sellers = cm.Sellers(reports, cm.EmpiricalPrior(sample))
    assert sellers.prior_is_from_reports is from_reports


def test_without_payments_a_prior_has_no_effect_on_incentives():
    sellers = cm.Sellers([0.2, 0.3], cm.EmpiricalPrior([0.2, 0.3]))
    with pytest.warns(PriorFromReportsWarning):
        market = cm.Market(sellers, cm.Spread() + cm.Noise(), [cm.MaxEpsilon(1.0)])
    assert market.incentives == "by construction"
    with pytest.warns(PriorFromReportsWarning):
        market = cm.Market(sellers, cm.Spread() + cm.Noise(), [cm.Budget(1.0)])
    assert market.incentives == "unknown"
