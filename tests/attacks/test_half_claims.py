"""Every mechanism keeps its claim, and an audit refutes a claim of half of what it loses."""

from dataclasses import replace

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.learners.base import PrivateLearner
from convexmarket.privacy import Guarantee, Simulation
from tests import one_in
from tests.attacks.builders import rows
from tests.learners.builders import output_ridge

SHARES = {1.0: True, 0.5: False}
#: Learners, and the epsilon of all rows together.
LEARNERS = {
    "logistic": (cm.PrivateLogisticRegression(0.05), 300.0),
    "hinge": (cm.learners.PrivateLinearSVC(0.05), 300.0),
    "Huber": (cm.learners.PrivateHuberRegressor(0.05), 300.0),
    "objective": (cm.PersonalizedRidge(), 30.0),
    "output": (output_ridge(30.0), 30.0),
    "output in floating point": (output_ridge(30.0, rounding=None), 30.0),
}
POINT = np.array([[1.0, 0.0]])
RELEASES = {
    "test set": lambda erm, **terms: cm.TestSetRelease(erm, POINT, delta=0.0, **terms),
    "interactive": lambda erm, **terms: cm.InteractiveRelease(
        erm, delta=1e-6, max_queries=1, max_updates=1, threshold=0.0, **terms
    ),
}


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", one_in(3, LEARNERS))
def test_a_learner_keeps_its_claim_and_not_half_of_it(name, share, monkeypatch):
    whole = PrivateLearner._guarantee

    def stated(*terms):
        guarantee = whole(*terms)
        return replace(guarantee, epsilon=share * guarantee.epsilon, profile=None)

    monkeypatch.setattr(PrivateLearner, "_guarantee", stated)
    learner, eta = LEARNERS[name]
    X, y, weights = rows()
    if "feature_range" in learner.get_params():
        X = (X + 1.0) / 2.0
    options = {"epsilon": eta * weights, "draws": 30, "rows": [0], "random_state": 0}
    audit = cm.audit_privacy(learner, X, y, **options)
    assert audit.passed is SHARES[share], audit.statement()


@pytest.mark.campaign  # statistical audits
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", RELEASES)
def test_a_release_keeps_its_claim_and_not_half_of_it(name, share):
    X, y = np.vstack([POINT, np.zeros((9, 2))]), np.repeat([-1, 1], 5)

    def mechanism(X, y):
        erm = cm.KernelERM("hinge", "linear", regularization=1.0, data_norm=1.0).fit(X, y)
        return lambda seed: RELEASES[name](erm, epsilon=4.0, random_state=Simulation(seed))

    claim = Guarantee(np.full(10, 4.0 * share), 1e-6, name, "exact", ())
    options = {"points": POINT, "replacements": (POINT, [1]), "rows": [0], "draws": 800}
    audit = cm.audit_privacy(mechanism, X, y, guarantee=claim, random_state=0, **options)
    assert audit.passed is SHARES[share], audit.statement()


@pytest.mark.campaign  # a statistical audit
@pytest.mark.parametrize("share", SHARES)
def test_sums_keep_their_claim_and_not_half_of_it(share):
    """Under strong regularization the intercept is the noisy sum of the labels."""
    learner = cm.PersonalizedRidge(1e3, perturbation="statistics")

    def mechanism(X, y):
        return lambda seed: learner.fit(X, y, epsilon=4.0, random_state=Simulation(seed))

    claim = Guarantee(np.full(10, 4.0 * share), 0.0, "sums", "exact", ())
    X, y = np.full((10, 1), 0.5), np.repeat([-1.0, 1.0], 5)
    options = {"view": lambda model: [model.intercept_], "rows": [0], "draws": 6000}
    options["replacements"] = ([[0.5]], [1.0])
    audit = cm.audit_privacy(mechanism, X, y, guarantee=claim, random_state=0, **options)
    assert audit.passed is SHARES[share], audit.statement()
