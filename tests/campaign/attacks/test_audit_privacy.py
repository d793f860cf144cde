"""Test audits of larger data sets with more draws, and the rate of false refutations."""

import pytest

import convexmarket as cm
from tests.attacks.builders import (
    check_statistical_bound,
    laplace_audit,
    logistic_audit,
    ridge_audit,
    rows,
)
from tests.attacks.test_audit_privacy import (
    BROKEN,
    BROKEN_RIDGES,
    RIDGES,
    check_caught,
    check_honest_ridge,
)


@pytest.mark.parametrize(("accounting", "calibration"), [("sharp", "total"), ("paper", "noise")])
def test_a_correct_logistic_regression_passes(accounting, calibration):
    learner = cm.PrivateLogisticRegression(0.05, accounting=accounting, calibration=calibration)
    audit = logistic_audit(learner, data=rows(60, 4), draws=400, n_rows=5)
    assert audit.passed, audit.statement()


def test_correct_mechanisms_are_rarely_refuted():
    """At confidence 0.99, 40 seeds give four or more false refutations with probability 1/1500."""
    learner = cm.PrivateLogisticRegression(0.1)
    options = {"data": rows(30, 2), "eta": 100.0, "rows": [0], "confidence": 0.99}
    refuted = [
        seed
        for seed in range(40)
        if not logistic_audit(learner, random_state=seed, **options).passed
    ]
    assert len(refuted) <= 3, refuted


@pytest.mark.parametrize("mutant", BROKEN)
def test_a_broken_logistic_regression_of_many_rows_is_refuted(mutant):
    check_caught(mutant, data=rows(60, 4), draws=160)


@pytest.mark.parametrize("name", RIDGES)
def test_a_ridge_regression_of_many_rows_passes(name):
    draws = 1000 if name == "floating point" else 200  # sampling exact noise is slow
    check_honest_ridge(name, size=50, draws=draws, n_rows=5)


@pytest.mark.parametrize("learner", BROKEN_RIDGES, ids=str)
def test_a_broken_ridge_regression_of_many_rows_is_refuted(learner):
    assert not ridge_audit(learner, size=50, rows=[0, 5, 9]).passed


def test_a_statistical_bound_rarely_exceeds_the_true_loss():
    check_statistical_bound(200, draws=600)


def test_frequencies_prove_nearly_all_of_the_loss_of_a_laplace_mechanism():
    audit = laplace_audit(1.0, claimed=1.0, draws=100_000)
    assert 0.9 < audit.measured[0] <= 1.0
