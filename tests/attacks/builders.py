"""Define small data sets and mechanisms to audit, and checks of audits."""

import numpy as np
from scipy import stats

import convexmarket as cm
from convexmarket.privacy import Guarantee


def rows(n_rows=10, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None]
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=n_rows) > 0, 1, -1)
    return X, y, rng.dirichlet(np.full(n_rows, 2.0))


def logistic_audit(mechanism, eta=300.0, data=None, **options):
    X, y, weights = data or rows()
    options = {"random_state": 0, "draws": 30, "n_rows": 1} | options
    return cm.audit_privacy(mechanism, X, y, epsilon=weights * eta, **options)


def ridge_audit(mechanism, epsilon=None, size=20, **options):
    rng = np.random.default_rng(0)
    X, y = rng.random((size, 3)), rng.uniform(-1, 1, size)
    granted = rng.uniform(0.5, 2.0, size) if epsilon is None else epsilon
    options = {"random_state": 0, "draws": 40, "n_rows": 1} | options
    return cm.audit_privacy(mechanism, X, y, epsilon=granted, **options)


def laplace_audit(scale, claimed, delta=0.0, **options):
    """Audit a sum of labels with Laplace noise. Replacing a row changes the sum by one."""
    X, y = np.eye(10), np.repeat([0, 1], 5)

    def mechanism(X, y):
        return lambda seed: y.sum() + np.random.default_rng(seed).laplace(scale=scale)

    guarantee = Guarantee(np.full(10, claimed), delta, "a sum", "exact", ())
    options = {"replacements": (X[:1], [1]), "random_state": 0} | options
    return cm.audit_privacy(
        mechanism, X, y, rows=[0], guarantee=guarantee, view=lambda answer: [answer], **options
    )


def check_statistical_bound(count, draws):
    """Check that at most about 10 % of the bounds at confidence 0.9 exceed the true loss."""
    excesses = sum(
        laplace_audit(1.0, 1.0, draws=draws, confidence=0.9, random_state=seed).measured[0] > 1.0
        for seed in range(count)
    )
    assert excesses <= stats.binom.isf(0.01, count, 0.1), excesses
