"""Define data sets, models and checks that several test modules use."""

import sys
from functools import cache, partial
from types import ModuleType

import cvxpy as cp
import numpy as np
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.base import clone

import convexmarket as cm
from convexmarket.learners import AbsoluteLoss, HuberLoss, LogisticLoss, PrivateLogisticRegression
from convexmarket.learners.losses import loss_of
from convexmarket.learners.perturbed import objective_perturbation_log_density
from convexmarket.learners.ridge_math import solve_ridge
from convexmarket.privacy import Simulation
from convexmarket.privacy.sensitivity import ridge_sensitivity
from tests import ROOT

TUTORIAL = ROOT / "docs" / "tutorials" / "plot_9_a_learner_of_your_own.py"


@cache
def noisy_descent():
    """Return the learner class of the tutorial on user-defined learners."""
    module = sys.modules["tutorial"] = ModuleType("tutorial")  # allows models to be pickled
    exec(TUTORIAL.read_text().partition("# %%")[0], vars(module))
    return module.NoisyDescent


def output_ridge(regularization=1.0, **options) -> cm.PersonalizedRidge:
    """Return a ridge learner with output perturbation (PDP-OP) and the given options."""
    given = {"perturbation": "output", "fit_intercept": False} | options
    return cm.PersonalizedRidge(regularization, **given)


PRIVATE_RIDGES = [output_ridge, partial(output_ridge, weighting="equal")]


def algorithm_1(regularization=0.01, accounting="paper", **parameters) -> PrivateLogisticRegression:
    """Return a learner that uses Algorithm 1 of the paper and can exceed the granted epsilon."""
    given = {"calibration": "noise", "solver_epsilon": None, "tol": 1e-9} | parameters
    return PrivateLogisticRegression(regularization, accounting=accounting, **given)


def ridge_sample(seed, n=60, d=3):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    y = np.clip(X @ rng.normal(size=d) / d + 0.1 * rng.normal(size=n), -1, 1)
    return X, y, rng.uniform(0.05, 1.0, n)


@st.composite
def neighbours(draw):
    """Draw two neighbouring data sets, the index of the changed row, epsilons and lambda."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d = draw(st.integers(1, 5))
    n = d + draw(st.integers(0, 6))
    X, y = rng.random((n, d)), rng.uniform(-1, 1, n)
    if draw(st.booleans()):
        X, y = np.round(X), np.where(y > 0, 1.0, -1.0)
    X2, y2, row = X.copy(), y.copy(), int(rng.integers(n))
    X2[row] = np.round(rng.random(d))
    y2[row] = -y[row] if draw(st.booleans()) else rng.choice([-1.0, 1.0])
    epsilon = rng.exponential(size=n) + 1e-3
    return X, y, X2, y2, row, epsilon, 10.0 ** draw(st.floats(-2, 2))


def solution(X, y, weights, alpha):
    return np.linalg.solve((X.T * weights) @ X + alpha * np.eye(X.shape[1]), X.T @ (weights * y))


def check_simulation(estimator, penalty, fits) -> None:
    """Check that the expected loss and its standard deviation agree with simulated fits."""
    X, y, epsilon = ridge_sample(11, 30)
    X_test, y_test, _ = ridge_sample(12, 40)
    model = estimator(regularization=0.5, target_range=(-2.0, 1.0))
    expected = cm.learners.expected_loss(
        model, X, y, X_test, y_test, epsilon=epsilon, penalty=penalty
    )
    rng, losses = np.random.default_rng(3), []
    for _ in range(fits):
        fitted = clone(model).fit(X, y, epsilon=epsilon, random_state=Simulation(rng))
        # The penalty applies to coefficients on the unit scale.
        unit = fitted.coef_ / 1.5
        error = np.mean((y_test - fitted.predict(X_test)) ** 2)
        losses.append(error + 1.5**2 * penalty * unit @ unit)
    losses = np.array(losses)
    standard_error = losses.std() / np.sqrt(losses.size)
    assert abs(losses.mean() - expected.mean) < 4 * standard_error
    fourth = np.mean((losses - losses.mean()) ** 4)
    spread_error = np.sqrt((fourth - losses.var() ** 2) / losses.size)
    assert abs(losses.var() - expected.std**2) < 5 * spread_error


def check_ridge_noise(fits) -> None:
    """Check that the noise has gamma-distributed norms and uniform directions."""
    X, y, epsilon = ridge_sample(6, 40, 3)
    model, rng = output_ridge(1.0, rounding=None), np.random.default_rng(0)
    exact = solution(X, y, epsilon / epsilon.sum(), 1.0)
    source = Simulation(rng)
    released = [model.fit(X, y, epsilon=epsilon, random_state=source).coef_ for _ in range(fits)]
    noise = np.array(released) - exact
    rate = epsilon.sum() / ridge_sensitivity(1.0, 3)
    norms = np.linalg.norm(noise, axis=1)
    assert stats.kstest(norms, stats.gamma(3, scale=1 / rate).cdf).pvalue > 0.01
    # The first coordinate of a uniform direction in three dimensions is uniform.
    assert stats.kstest(noise[:, 0] / norms, stats.uniform(-1, 2).cdf).pvalue > 0.01


def check_lattice_noise(fits) -> None:
    """Check that coordinates of the noise are independent and have a discrete Laplace law."""
    X, y, epsilon = ridge_sample(4, 40, 3)
    step = 2.0**-30
    model, rng = output_ridge(1.0, rounding=step), np.random.default_rng(0)
    exact = solve_ridge(X, y, epsilon / epsilon.sum(), 1.0)
    source = Simulation(rng)
    released = np.array(
        [model.fit(X, y, epsilon=epsilon, random_state=source).coef_ for _ in range(fits)]
    )
    assert np.array_equal(released / step, np.rint(released / step))
    noise = (released - exact) * model.noise_rate_
    assert stats.kstest(noise.ravel(), stats.laplace.cdf).pvalue > 1e-3
    assert abs(stats.spearmanr(noise[:, 0], noise[:, 1]).statistic) < 4 / np.sqrt(fits)


def check_released_density(X, y, weights, data_norm, fits, cells) -> None:
    """Check that released models have the density that audits and proofs use."""
    rng = np.random.default_rng(0)
    model = algorithm_1(0.5, data_norm=data_norm)
    released = [
        model.fit(X, y, epsilon=weights * 3.0, random_state=Simulation(rng)).coef_[0]
        for _ in range(fits)
    ]
    grid = np.linspace(-150, 150, cells + 1)
    terms = (X, y, weights, 3.0, 0.5, data_norm)
    density = [objective_perturbation_log_density([w], *terms) for w in grid]
    cdf = integrate.cumulative_trapezoid(np.exp(density), grid, initial=0.0)
    assert abs(cdf[-1] - 1) < 1e-3
    assert stats.kstest(released, lambda w: np.interp(w, grid, cdf)).pvalue > 1e-3


def kernel_erm(loss="logistic", kernel="rbf", regularization=0.1, **others) -> cm.KernelERM:
    options = {"data_norm": 1.0, "gamma": 2.0} | others
    return cm.KernelERM(loss, kernel, regularization, **options)


def rkhs_distance(first: cm.KernelERM, second: cm.KernelERM) -> float:
    """Compute the distance between two models in the RKHS."""
    points = np.vstack([first.pivots_, second.pivots_])
    coefficients = np.append(first.dual_coef_, -second.dual_coef_)
    if not len(points):
        return 0.0
    return float(np.sqrt(max(coefficients @ first.kernel_(points, points) @ coefficients, 0.0)))


def declared_losses(loss, f, y):
    """Express the losses of predictions ``f`` for labels ``y`` in CVXPY."""
    if isinstance(loss, LogisticLoss):
        return cp.logistic(-cp.multiply(y, f))
    if isinstance(loss, HuberLoss):
        return cp.huber(f - y, loss.threshold) / 2
    if isinstance(loss, AbsoluteLoss):
        return (
            cp.abs(f - y)
            if not loss.width
            else cp.huber((f - y) / loss.width, 1) * (loss.width / 2)
        )
    short = cp.pos(1 - cp.multiply(y, f))
    return short if not loss.width else cp.huber(short / loss.width, 1) * (loss.width / 2)


def declared_kernel_erm(erm, X, y, epsilon=None, losses=declared_losses) -> cp.Problem:
    """Declare the training problem of a kernel model in CVXPY. The variable is "beta"."""
    weights = np.full(len(y), 1.0) if epsilon is None else np.asarray(epsilon)
    X, y, weights = X[weights > 0], np.asarray(y)[weights > 0], weights[weights > 0]
    gram = erm.kernel_(X, X)
    beta = cp.Variable(len(gram), name="beta")
    # With the square root of the kernel matrix, the penalty is a sum of squares.
    values, vectors = np.linalg.eigh(gram)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    penalty = erm.regularization / 2.0 * cp.sum_squares(root @ beta)
    risk = weights / weights.sum() @ losses(loss_of(erm.loss), gram @ beta, y)
    return cp.Problem(cp.Minimize(risk + penalty))
