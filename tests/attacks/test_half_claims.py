"""Audits confirm the claimed epsilon of every mechanism, and refute half of this epsilon."""

from dataclasses import replace

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.learners.private_learner import PrivateLearner
from convexmarket.privacy import Guarantee, Simulation
from tests import one_in
from tests.attacks.builders import rows
from tests.learners.builders import output_ridge

SHARES = {1.0: True, 0.5: False}
#: Learners, and the total epsilon of the rows for which each learner is audited.
LEARNERS = {
    "logistic": (cm.PrivateLogisticRegression(0.05), 300.0),
    "hinge": (cm.learners.PrivateLinearSVC(0.05), 300.0),
    "Huber": (cm.learners.PrivateHuberRegressor(0.05), 300.0),
    "objective": (cm.PersonalizedRidge(), 30.0),
    "output": (output_ridge(30.0), 30.0),
    "output in floating point": (output_ridge(30.0, rounding=None), 30.0),
}
POINT = np.array([[1.0, 0.0]])


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", one_in(3, LEARNERS))
def test_a_learner_passes_with_its_claim_and_fails_with_half_of_it(name, share, monkeypatch):
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


def by_draws(release, X, y, share, **options):
    """Audit a release with an epsilon of 4 that claims only a share of this epsilon."""
    claim = Guarantee(np.full(len(X), 4.0 * share), 0.0, "a release", "exact", ())
    return cm.audit_privacy(release, X, y, guarantee=claim, rows=[0], random_state=0, **options)


@pytest.mark.campaign  # the audit of this release requires more draws
@pytest.mark.parametrize("share", SHARES)
def test_a_release_passes_with_its_claim_and_fails_with_half_of_it(share):
    X, y = np.vstack([POINT, np.zeros((9, 2))]), np.repeat([-1, 1], 5)

    def release(X, y):
        erm = cm.KernelERM("hinge", "linear", regularization=1.0, data_norm=1.0).fit(X, y)
        return lambda seed: cm.TestSetRelease(erm, POINT, 4.0, 0.0, random_state=Simulation(seed))

    options = {"points": POINT, "replacements": (POINT, [1]), "draws": 800}
    audit = by_draws(release, X, y, share, **options)
    assert audit.passed is SHARES[share], audit.statement()


@pytest.mark.campaign  # statistical audits are slow
@pytest.mark.parametrize("share", SHARES)
def test_statistics_pass_with_their_claim_and_fail_with_half_of_it(share):
    """With strong regularization, the model is proportional to noisy sums that contain labels."""
    learner = cm.PersonalizedRidge(1e3, perturbation="statistics")
    X, y = np.ones((10, 1)), np.repeat([-1.0, 1.0], 5)

    def release(X, y):
        return lambda seed: learner.fit(X, y, epsilon=4.0, random_state=Simulation(seed))

    options = {"view": lambda model: np.append(model.coef_, model.intercept_), "draws": 4000}
    audit = by_draws(release, X, y, share, replacements=([[1.0]], [1.0]), **options)
    assert audit.passed is SHARES[share], audit.statement()
