"""Regression tests for all defects that fuzzing has found."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError, ProblemFileError
from convexmarket.priors.parsing import prior_from_dict
from convexmarket.privacy import Simulation
from convexmarket.studies.files import load_file, parse_file
from tests.campaign.fuzz.files import check_bytes
from tests.campaign.fuzz.mathematics import check_prior, variant_market
from tests.campaign.fuzz.running import time_limit
from tests.campaign.fuzz.values import X, Y, joint_market, market
from tests.lists import price_list
from tests.release.builders import bound_of

CORPUS = Path(__file__).parent / "corpus"
HUGE = 10**400
PRIOR, BUYER = cm.Uniform(0, 2), {"mu": 1.0, "sigma": 1.0, "gamma": 0.5}

#: Calls that formerly raised an untyped error, did not return, or returned a wrong result.
REFUSED = {
    "a folder with a null character": lambda: cm.OnlineMarket("a\0b"),
    "a number instead of markets": lambda: cm.Study(0.5),
    "a prior's parameter too large for a float": lambda: cm.Uniform(0, HUGE),
    "a prior whose mean leaves its support": lambda: cm.priors.TruncatedNormal(
        3e13, 79.4, 1.0, 80.4
    ),
    "a support with endless recursion in scipy": lambda: check_prior(
        (4, [0.01949, 1.0, 1e154, 1.7976931348623157e308])
    ),
    "costs that cannot be distinguished": lambda: cm.allocate(
        standard([0.0, 0.0, 0.0, 5e-324], mu=1, sigma=1, gamma=1, eta_range=(1.0, 1.0))
    ),
    "weights of the objective whose sums overflow": lambda: cm.allocate(
        standard([1.0, 0.03162, 1.0], mu=1.7976931348623157e308, sigma=1, gamma=1.79e308)
    ),
    "a weight of the spread that cancels other terms": lambda: cm.allocate(
        standard([0.001909, 1.0, 0.001909, 0.001909], mu=1e154, sigma=960.9, gamma=0.001909, cap=2)
    ),
    "a weight of the noise that rounds to zero": lambda: cm.allocate(
        standard([0.74, 1.5, 0.86], mu=1, sigma=1e-320, gamma=0.5)
    ),
    "costs that differ by too many orders of magnitude": lambda: cm.allocate(
        standard([1e16, 1.0, 2.3e-308, 1e16, 1.0, 1.79e308], mu=1e300, sigma=1e16, gamma=1e-16)
    ),
    "a regularization too small for the data": lambda: cm.PrivateLogisticRegression(5e-324).fit(
        X, Y, epsilon=2.0 / len(X)
    ),
    "a threshold of 1e-160": lambda: bound_of(
        "suggest_updates", 1e-160, 100.0, 1 - 1e-16, max_queries=4, max_norm=1.0, accounting="paper"
    ),
    "more draws than an array holds": lambda: cm.priors.Mixture(
        [0.5, 0.5], [cm.Uniform(0, 1), cm.Uniform(0, 2)]
    ).sample(10**30, np.random.default_rng(0)),
    "payments where mu is negligible": lambda: _paid_with_negligible_mu(),
    "a label too large for a float": lambda: cm.PersonalizedRidge(1.0).fit(
        X, [HUGE] * len(X), epsilon=1.0
    ),
    "payments where virtual costs overflow": lambda: _paid_near_overflow(),
    "a guarantee too large for a float": lambda: cm.PersonalizedRidge(1.0).fit(X, Y, epsilon=HUGE),
    "a regularization too large for eta": lambda: cm.PrivateLogisticRegression(
        1.7976931348623157e308
    ).fit(X, Y, epsilon=1.0),
    "an epsilon that is nearly infinite": lambda: cm.PrivateLogisticRegression().fit(
        X, Y, epsilon=1e300
    ),
    "rows whose squares overflow": lambda: cm.JointMarket(
        market(), [[1e160, 0.0], [-0.5, 0.5], [0.2, -0.9]], [1, -1, 1], regularization=0.1
    ),
    "a cap too large for a float": lambda: cm.Cap(HUGE),
    "a weight too large for a float": lambda: HUGE * cm.Noise(),
    "mu too large for a float": lambda: cm.Market.standard(
        market().sellers, mu=HUGE, sigma=1, gamma=1
    ),
    "residuals at eta = 0": lambda: cm.joint.first_order_residuals(
        joint_market(), [0.1, 0.2], np.full(6, 1 / 6), 0.0
    ),
    "noise that overflows": lambda: cm.PrivateLogisticRegression(classes=(-1, 1)).fit(
        X, Y, epsilon=1e-300
    ),
    "a density lost to rounding": lambda: cm.Beta(1e17, 1e17),
    "nearly equal logarithms": lambda: cm.priors.LogNormal(1.0, 4.8e-10),
    "a prior whose evaluation takes minutes": lambda: prior_from_dict(
        {"family": "scipy", "distribution": "studentized_range", "args": [3.0, 10.0]}
    ),
    "an objective that overflows": lambda: cm.allocate(
        standard([0.0], mu=0.0, sigma=1.0, gamma=1.0, eta_range=(5e-324, 5e-324))
    ),
    "a gamma whose product with eta underflows": lambda: cm.allocate(
        standard([1.0], mu=1.0, sigma=5e-324, gamma=5e-324, eta_range=(5e-324, 5e-324))
    ),
    "undefined weights of a mixture": lambda: cm.priors.Mixture(np.nan, [PRIOR, PRIOR]),
    "an error bound that overflows": lambda: bound_of(
        "function", 1.7976931348623157e308, 1.7976931348623157e308, 1e-5, n_queries=10
    ),
}


def standard(psi: list[float], **buyer: object) -> cm.Market:
    return cm.Market.standard(cm.Sellers(virtual_costs=psi), **buyer)


def _paid_with_negligible_mu() -> np.ndarray:
    prior = cm.priors.LogNormal(678.1, 0.747)
    sellers = cm.Sellers(prior.quantile([0.31, 0.0022, 0.67, 0.97, 0.5]), prior)
    costly = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.0411, cap=2.46)
    return cm.payments(costly, cm.allocate(costly))


def _paid_near_overflow() -> np.ndarray:
    prior = cm.Beta(2.3e-308, 1.0, 9.955470023946748e-45, 1.0)
    market = cm.Market.standard(
        cm.Sellers(np.full(5, prior.support[0]), prior), mu=1, sigma=1e13, gamma=0.148776, cap=1
    )
    return cm.payments(market, cm.allocate(market))


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_calls_raise_typed_errors(what):
    with pytest.raises(cm.ConvexMarketError) as raised, time_limit(10.0):
        REFUSED[what]()
    assert len(str(raised.value)) > 10


@pytest.mark.parametrize(
    "case",
    [
        (8, [0.06298, 1.0, 977.4, 1.0]),  # a second normalisation changed the last bit
        (4, [1.0, 0.001829, 0.231, 0.001829]),  # all quantiles round to the upper end
        (4, [941.1, 0.1566, 0.0112, 0.5844]),  # 6,000 standard deviations from the mean
        (5, [1.0, 76272500.0, 1.0, 1.0]),  # quantiles underflow to 0 or overflow
        (8, [57.1457, 1e300, 1e154, 1e16]),  # the density of the tail is 0 in floating point
    ],
)
def test_extreme_priors_satisfy_their_definitions(case):
    check_prior(case)


def test_the_mean_of_equal_samples_equals_the_sample():
    prior = cm.EmpiricalPrior([0.2047] * 5)
    assert prior.mean == 0.2047
    assert prior.support == (0.2047, 0.2047)


NUMBERS_OF_ALL_SIZES = {
    "psi": [38272900000.0, 1405730.0, 1.0, 0.0794328], "spread": [(1.0, 3)], "noise": 1.0,
    "payments": 147.998, "cost": 2, "losses": None,
    "constraints": [(4, [150074000000.0, 7746990000000.0, 708885.0, 23591400.0]),
                    (0, [6.5886e-12, 0.0222535, 1.0, 1.0])],
}  # fmt: skip
INFEASIBLE_SOLVER_POINT = {
    "psi": [112.369, 12943.7, 5.88119e-13, 0.999992], "spread": [(1.0, 1)], "noise": 8.63405,
    "payments": None, "cost": 0, "losses": None,
    "constraints": [(1, [1.0, 1.0, 67752900000.0, 1.0]),
                    (2, [1.39383e-10, 100000000.0, 8.63405, 1.0])],
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "gap"), [(NUMBERS_OF_ALL_SIZES, 1e-4), (INFEASIBLE_SOLVER_POINT, 1e-6)]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_variants_with_numbers_of_all_sizes_are_certified(case, gap):
    result = cm.allocate(variant_market(case), gap=gap)
    assert result.lower_bound <= result.objective
    assert result.gap <= gap


def test_payments_are_accurate_if_sales_end_far_below_the_support():
    """Compare rents with SciPy's quadrature. Formerly, errors were relative to a larger rent."""
    prior = cm.priors.TruncatedNormal(0.0794328, 1.0, 79.4328, 4509450079.4328)
    reports = np.asarray(prior.quantile([1e-4, 1e-9, 1 / 3, 0.6]))
    psi = np.asarray(prior.virtual_cost(reports))
    buyer = {"mu": 1e7, "sigma": 1.0, "gamma": 0.04}
    market = cm.Market.standard(cm.Sellers(reports, prior), cap=1.0, **buyer)
    result = cm.allocate(market)
    rents = cm.payments(market, result) - reports * result.epsilon

    def sold(z: float) -> float:
        mean = (psi[:3].sum() + float(prior.virtual_cost(z))) / 4
        return float(np.sqrt(buyer["sigma"] / buyer["gamma"] / mean) / 4)

    ends = np.append(reports[3], 79.4328 + np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]))
    parts = [quad(sold, low, high)[0] for low, high in itertools.pairwise(ends)]
    assert rents[3] == pytest.approx(sum(parts), rel=1e-7)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.toml")), ids=lambda path: path.stem)
def test_fuzzed_problem_files_are_accepted_or_refused(path):
    """The loader accepts files named "good..." and rejects all other files with a typed error."""
    if path.stem.startswith("good"):
        assert check_bytes(path.read_bytes()) == "accepted"
        return
    with pytest.raises(ProblemFileError, match=path.name), time_limit(10.0):
        load_file(path)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.csv*")), ids=lambda path: path.name)
def test_fuzzed_lists_are_accepted_or_refused(path):
    if path.stem.startswith("good"):
        assert len(price_list(path, PRIOR, **BUYER).offers) > 0
        return
    with pytest.raises(DataError, match=path.name.partition(".")[0]), time_limit(10.0):
        price_list(path, PRIOR, **BUYER)


@pytest.mark.parametrize(
    "value", ["9" * 5000, "[" * 3000 + "]" * 3000, "{a = " * 3000 + "}" * 3000]
)
def test_settings_that_toml_cannot_parse_are_refused(value):
    with pytest.raises(ProblemFileError, match="--set title"):
        parse_file('kind = "market"', [f"title={value}"])


@pytest.mark.parametrize("unit", [1e-250, 1e-170, 1e160, 1e250])
@pytest.mark.parametrize("cap", [None, 1.5])
def test_allocations_do_not_depend_on_the_unit_of_money(unit, cap):
    costs = np.array([0.2, 0.5, 0.9, 1.4])
    buyer = {"mu": 1, "sigma": 0.3, "cap": cap}
    expected = cm.allocate(standard(costs, gamma=0.5, **buyer))
    result = cm.allocate(standard(costs * unit, gamma=0.5 / unit, **buyer))
    np.testing.assert_allclose(result.weights, expected.weights, rtol=1e-12)
    assert result.eta == pytest.approx(expected.eta, rel=1e-12)
    assert result.objective == pytest.approx(expected.objective, rel=1e-12)


def test_guarantees_whose_sum_overflows_are_refused():
    guarantees = [1.7e308, 1e-16, 1.0, 1.7e308, 5e-324]
    rows = [[0.2], [0.1], [0.3], [0.4], [0.5]], [1.0, 1.0, -1.0, -1.0, -1.0]
    with pytest.raises(ParameterError, match="epsilon must be between"):
        cm.PersonalizedRidge(1.0).fit(*rows, epsilon=guarantees, random_state=Simulation(0))
    smaller = np.minimum(guarantees, 1e100)
    model = cm.PersonalizedRidge(0.01, perturbation="output", rounding=None)
    model.fit(*rows, epsilon=smaller, random_state=Simulation(0))
    assert 0 < model.noise_rate_ < np.inf


def test_an_account_with_the_largest_finite_budget_can_be_charged():
    account = cm.PrivacyAccountant([np.finfo(float).max], 1e-6)
    account.charge(cm.Guarantee(np.array([1.0]), 0.0, "m", "sharp", ()))
    assert account.spent == [1.0]
