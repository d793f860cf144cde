"""Everything that fuzzing has found, and what has to happen instead."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import DataError, ProblemFileError
from convexmarket.experiments import price_offers
from convexmarket.priors.parsing import prior_from_dict
from convexmarket.problems import load_problem, parse_problem

from .calls import market, policy
from .files import check_bytes
from .lists import BUYER, PRIOR
from .mathematics import check_prior, variant_market
from .running import time_limit

CORPUS = Path(__file__).parent / "corpus"
HUGE = 10**400

#: Calls that ended in an error of Python or numpy, in a hang, or in an answer.
REFUSED = {
    "a prior's parameter too large for a float": lambda: cm.Uniform(0, HUGE),
    "a sample too large for a float": lambda: cm.EmpiricalPrior([1, HUGE]),
    "a prior whose mean leaves its support": lambda: cm.TruncatedNormal(3e13, 79.4, 1.0, 80.4),
    "a scipy prior with a word for a parameter": lambda: prior_from_dict(
        {"family": "scipy", "distribution": "gamma", "args": ["a"]}
    ),
    "a density at a word": lambda: cm.Uniform(0, 1).pdf("x"),
    "a probability at a date": lambda: cm.Gamma(1, 1).cdf("2020-01-01"),
    "a guarantee that is a word": lambda: cm.Guarantee("x", 0.0, "m", "tight", ()),
    "a guarantee that is undefined": lambda: cm.Guarantee([None], 0.0, "m", "tight", ()),
    "an account of words": lambda: cm.PrivacyAccountant("x"),
    "an audit of no policy": lambda: cm.audit_quotes(None),
    "an audit of no report": lambda: cm.audit_quotes(policy(), []),
    "an online market in no folder": lambda: cm.OnlineMarket(1.0),
    "constants of a logistic risk at nothing": lambda: cm.logistic_risk_constants(
        None, 0.1, 1.0, 2
    ),
    "constants of a ridge risk at a decimal": lambda: cm.ridge_risk_constants(
        Decimal("NaN"), 2, 0.1, 0.1
    ),
    "the loss of no estimator": lambda: cm.expected_loss(
        0, [[0.5]], [0.1], [[0.5]], [0.1], epsilon=1.0
    ),
    "a cap too large for a float": lambda: cm.Cap(HUGE),
    "a budget too large for a float": lambda: cm.Budget(HUGE),
    "a range too large for a float": lambda: cm.EtaRange(1, HUGE),
    "a power too large for a float": lambda: cm.PowerCost(HUGE),
    "a weight too large for a float": lambda: HUGE * cm.Noise(),
    "groups of several lengths": lambda: cm.GroupShare([[1.0], [1.0, 2.0]], equal=True),
    "mu too large for a float": lambda: cm.Market.standard(
        market().sellers, mu=HUGE, sigma=1, gamma=1
    ),
    "gamma that is a decimal": lambda: cm.Market.standard(
        market().sellers, mu=1, sigma=1, gamma=Decimal("0.1")
    ),
    "ids that are no list": lambda: cm.Sellers(virtual_costs=[1.0], ids=True),
    "ids that are lists": lambda: cm.Sellers(virtual_costs=[1.0], ids=[[1]]),
    "groups of sellers of several lengths": lambda: cm.Sellers(
        virtual_costs=[1.0, 2.0], groups=[[1.0], [1.0, 2.0]]
    ),
    "a seller who is not there": lambda: market().sellers.with_report(3, 0.2),
    "a seller with a word for a position": lambda: market().sellers.with_virtual_cost("", 0.2),
    "a virtual cost that is a list": lambda: market().sellers.with_virtual_cost(0, []),
    "payments of no market": lambda: cm.payments(None, cm.allocate(market())),
    "payments of no allocation": lambda: cm.payments(market(), 0.5),
    "payments as accurate as a word": lambda: cm.estimate_payments(
        market(), cm.allocate(market()), accuracy="x"
    ),
    "payments by no process": lambda: cm.estimate_payments(market(), cm.allocate(market()), jobs=0),
    "payments of sellers in lists of several lengths": lambda: cm.estimate_payments(
        market(), cm.allocate(market()), sellers=[[1], [1, 2]]
    ),
    "an audit of no market": lambda: cm.audit_incentives(None),
    "an audit with no rule": lambda: cm.audit_incentives(market(), rule=None),
    "an audit of half a misreport": lambda: cm.audit_incentives(market(), misreports=2.5),
    "an identity of one draw": lambda: cm.check_payment_identity(
        cm.Uniform(0, 1), 3, mu=1, sigma=1, gamma=1, draws=1, rng=np.random.default_rng(0)
    ),
    "a declaration of no market": lambda: cm.declare(None),
    "a declaration at eta of a word": lambda: cm.declare(market(), "x"),
    "a method that is an array": lambda: cm.allocate(market(), np.zeros(2)),
    "guarantees that are words": lambda: cm.weights_for_guarantees(["a"], 1.0, 1.0),
    "guarantees and a mu of nothing": lambda: cm.weights_for_guarantees([1.0], None, 1.0),
    "residuals at eta = 0": lambda: cm.first_order_residuals(
        _joint(), [0.1, 0.2], np.full(6, 1 / 6), 0.0
    ),
    "residuals of nothing": lambda: cm.first_order_residuals(None, [0.1], [1.0], 1.0),
    "convexity of a number": lambda: cm.convexity_ratio(1.0),
    "convexity of words": lambda: cm.convexity_threshold([["a"]]),
    "a bound beyond floating point": lambda: cm.function_error_bound(
        1.7976931348623157e308, 1.7976931348623157e308, 1e-5, n_queries=10
    ),
}


def _joint() -> cm.JointMarket:
    from .calls import joint_market

    return joint_market()


@pytest.mark.parametrize("what", REFUSED)
def test_bad_calls_are_refused(what):
    with pytest.raises(cm.ConvexMarketError) as raised, time_limit(10.0):
        REFUSED[what]()
    assert len(str(raised.value)) > 10


@pytest.mark.parametrize(
    "case",
    [
        (8, [0.06298, 1.0, 977.4, 1.0]),  # shares divided by their sum twice differed by one bit
        (4, [1.0, 0.001829, 0.231, 0.001829]),  # everything within rounding of the top
        (5, [1.0, 76272500.0, 1.0, 1.0]),  # quantiles 0 and inf
    ],
)
def test_priors_at_their_ends(case):
    check_prior(case)


def test_a_bound_that_is_not_a_number_is_no_proof():
    case = {
        "psi": [38272900000.0, 1405730.0, 1.0, 0.0794328],
        "spread": [(1.0, 3)],
        "noise": 1.0,
        "payments": 147.998,
        "cost": 2,
        "losses": None,
        "constraints": [
            (4, [150074000000.0, 7746990000000.0, 708885.0, 23591400.0]),
            (0, [6.5886e-12, 0.0222535, 1.0, 1.0]),
        ],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.warns(cm.LooseCertificateWarning):
            found = cm.allocate(variant_market(case), gap=1e-4)
    assert found.lower_bound == -np.inf
    assert found.gap == np.inf


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.toml")), ids=lambda path: path.stem)
def test_problem_files(path):
    """A file whose name starts with "good" is accepted, any other refused by its own error."""
    if path.stem.startswith("good"):
        assert check_bytes(path.read_bytes()) == "accepted"
        return
    with pytest.raises(ProblemFileError, match=path.name), time_limit(10.0):
        load_problem(path)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.csv*")), ids=lambda path: path.name)
def test_lists(path):
    if path.stem.startswith("good"):
        assert len(price_offers(path, PRIOR, **BUYER).table) > 0
        return
    with pytest.raises(DataError, match=path.name.partition(".")[0]), time_limit(10.0):
        price_offers(path, PRIOR, **BUYER)


@pytest.mark.parametrize(
    "value", ["9" * 5000, "[" * 3000 + "]" * 3000, "{a = " * 3000 + "}" * 3000]
)
def test_settings_beyond_what_toml_reads(value):
    with pytest.raises(ProblemFileError, match="--set title"):
        parse_problem('kind = "tradeoff"', [f"title={value}"])
