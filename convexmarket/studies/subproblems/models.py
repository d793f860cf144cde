"""Subproblems of models: logistic and ridge regression, the fit to predictions, and the z-block."""

from __future__ import annotations

from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from convexmarket.allocation import allocate, declare
from convexmarket.allocation.views import spread_out
from convexmarket.checks import shown
from convexmarket.errors import NotSupportedError
from convexmarket.joint import ExponentialBlock, JointMarket, best_model
from convexmarket.joint.alternating import PurchaseStep
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.learners.ridge_math import solve_ridge
from convexmarket.market import Market
from convexmarket.privacy.random_sources import gamma_sphere_noise
from convexmarket.release.fit import KernelBasis
from convexmarket.studies.subproblems.markets import Declared, Instance, off_simplex, values_of

Floats = NDArray[np.float64]

_TOLERANCE = 1e-13  # gradient norm at the exact model, relative to the norm of the longest row
_MOST_PRIVATE = 500  # largest number of private rows that train the model of a fit
_PREDICTION_NOISE = 0.2  # scale of the noise in each prediction


def draw_rows(X: Floats, y: Floats, size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw labelled rows from a data set, with replacement if the set has too few rows."""
    picked = rng.choice(len(X), size, replace=size > len(X))
    return X[picked], y[picked]


def logistic(
    X: Floats, y: Floats, weights: Floats, regularization: float, noise: Floats
) -> Instance:
    r"""Return the problem of logistic regression with objective perturbation, for two noise draws.

    .. math:: \min_w\; \sum_j a_j \log(1 + e^{-y_j w^\top x_j}) + \tfrac{\Lambda}{2}\|w\|^2
              + b^\top w

    The formulations ``primal`` and ``dual`` multiply the objective by the number of rows.
    """
    m, n_features = X.shape
    signed = y[:, None] * X
    longest = float(np.linalg.norm(X, axis=1).max()) or 1.0

    perturbed = partial(PerturbedObjective, X, y, weights, regularization=regularization)

    def declared(formulation: str) -> Declared:
        w, b = cp.Variable(n_features, name="w"), cp.Parameter(n_features, name="noise")
        scale = 1 if formulation == "unscaled" else m
        quadratic = (scale * regularization / 2) * cp.sum_squares(w)
        if formulation == "dual":
            alpha = cp.Variable(m, name="alpha")
            entropies = (m * weights) @ (cp.entr(alpha) + cp.entr(1 - alpha))
            stationary = regularization * w == (weights[:, None] * signed).T @ alpha - b
            problem = cp.Problem(cp.Maximize(entropies - quadratic), [stationary])
        else:
            losses = (scale * weights) @ cp.logistic(-signed @ w)
            problem = cp.Problem(cp.Minimize(losses + quadratic + scale * (b @ w)))
        return Declared(problem, partial(setattr, b, "value"), values_of(w))

    return Instance(
        "weighted logistic regression",
        (noise[0], noise[1]),
        declared,
        lambda w, b: perturbed(b).value_and_gradient(w)[0],
        lambda b: minimise(perturbed(b), _TOLERANCE * longest),
    )


def draw_logistic(
    rows: Any, market: Market, regularization: float, rng: np.random.Generator
) -> Instance:
    """Draw rows and noise for :func:`logistic`, for the positive weights of a market."""
    bought = allocate(market)
    X, y = draw_rows(rows.X_train, rows.y_train, bought.weights.size, rng)
    used, scale = bought.weights > 0, 2.0 * rows.data_norm / bought.eta
    noise = np.array([scale * gamma_sphere_noise(X.shape[1], rng) for _ in range(2)])
    return logistic(X[used], y[used], bought.weights[used], regularization, noise)


def ridge(X: Floats, labels: Floats, weights: Floats, regularization: float) -> Instance:
    r"""Return the problem of weighted ridge regression, for two vectors of labels.

    .. math:: \min_\theta\; \sum_j a_j (y_j - x_j^\top\theta)^2 + \lambda\|\theta\|^2

    ``primal`` multiplies the residuals by :math:`\sqrt{m a_j}`. ``normal`` is the quadratic form of
    the normal equations, and ``factor`` uses a triangular factor of this quadratic form.
    """
    m, n_features = X.shape
    root = np.sqrt(weights)[:, None]

    def triangle(y: Floats) -> Floats:
        """Compute the triangular R such that the objective is ``||R (theta, -1)||^2``."""
        penalty = np.sqrt(regularization) * np.eye(n_features, n_features + 1)
        return np.asarray(np.linalg.qr(np.vstack([root * np.column_stack([X, y]), penalty]), "r"))

    def data_of(y: Floats, formulation: str) -> Floats:
        if formulation == "normal":
            return np.append(X.T @ (weights * y), weights @ y**2)
        return triangle(y)[:, -1] if formulation == "factor" else y

    def declared(formulation: str) -> Declared:
        theta = cp.Variable(n_features, name="theta")
        data = cp.Parameter(data_of(labels[0], formulation).size, name="data")
        penalty = regularization * cp.sum_squares(theta)
        if formulation == "normal":
            matrix = (root * X).T @ (root * X) + regularization * np.eye(n_features)
            form = cp.quad_form(theta, cp.psd_wrap(matrix))
            objective = form - 2 * (data[:-1] @ theta) + data[-1]
        elif formulation == "factor":
            objective = cp.sum_squares(triangle(labels[0])[:, :-1] @ theta - data)
        elif formulation == "unscaled":
            objective = weights @ cp.square(X @ theta - data) + penalty
        else:
            scaled = np.sqrt(m) * root
            residuals = (scaled * X) @ theta - cp.multiply(scaled[:, 0], data)
            objective = cp.sum_squares(residuals) + m * penalty
        return Declared(
            cp.Problem(cp.Minimize(objective)),
            lambda y: setattr(data, "value", data_of(y, formulation)),
            values_of(theta),
        )

    return Instance(
        "ridge",
        (labels[0], labels[1]),
        declared,
        lambda theta, y: float(weights @ (y - X @ theta) ** 2 + regularization * theta @ theta),
        lambda y: solve_ridge(X, y, weights, regularization),
    )


def fit(kernel: Floats, predictions: Floats, max_norm: float) -> Instance:
    r"""Return the problem of fitting noisy predictions (K, Theorems 4 and 5), for two noise draws.

    The answer contains the fitted values at the points, and the norm of the fitted function.
    ``diagonal`` computes residuals in the kernel's eigenbasis. ``quadratic`` uses the kernel.
    """
    basis, size = KernelBasis(kernel), len(kernel)
    rank = basis.roots.size

    def declared(formulation: str) -> Declared:
        diagonal = formulation == "diagonal"
        beta = cp.Variable(size if formulation == "quadratic" else rank, name="beta")
        data = cp.Parameter(rank + 1 if diagonal else size, name="predictions")
        if formulation == "quadratic":
            values, square = kernel @ beta, cp.quad_form(beta, cp.psd_wrap(kernel))
            bound, norm = square <= max_norm**2, cp.sqrt(square)
        else:
            values, norm = (basis.vectors * basis.roots) @ beta, cp.norm(beta, 2)
            bound = norm <= max_norm
        inside = cp.hstack([cp.multiply(basis.roots, beta), 0.0]) if diagonal else values

        def place(p: Floats) -> None:
            turned = basis.vectors.T @ p
            rest = np.linalg.norm(p - basis.vectors @ turned)
            data.value = np.append(turned, rest) if diagonal else p

        problem = cp.Problem(cp.Minimize(cp.sum_squares(inside - data)), [bound])
        return Declared(problem, place, values_of(values, norm))

    def exact(p: Floats) -> Floats:
        beta = basis.fit(p, max_norm)
        return np.append(basis.values(beta), np.linalg.norm(beta))

    return Instance(
        "semi-interactive fit",
        (predictions[0], predictions[1]),
        declared,
        lambda answer, p: float(np.sum((answer[:-1] - p) ** 2)),
        exact,
        lambda answer: max(0.0, float(answer[-1]) / max_norm - 1.0),
        # The optimal objective can be zero, whereas the objective of f = 0 is positive.
        lambda p: float(np.sum(p**2)),
    )


def draw_fit(rows: Any, regularization: float, size: int, rng: np.random.Generator) -> Instance:
    """Draw points for :func:`fit`, and noisy predictions of kernel ridge regression."""
    X, y = rows.X_train[:_MOST_PRIVATE], rows.y_train[:_MOST_PRIVATE]
    kernel = partial(rbf_kernel, gamma=2.0 / rows.data_norm**2)
    model = KernelRidge(alpha=regularization * len(X), kernel="precomputed")
    dual = model.fit(kernel(X), y).dual_coef_
    points = draw_rows(rows.X_test, np.zeros(len(rows.X_test)), size, rng)[0]
    noisy = kernel(points, X) @ dual + rng.laplace(scale=_PREDICTION_NOISE, size=(2, size))
    return fit(kernel(points), noisy, float(np.sqrt(dual @ kernel(X) @ dual)))


def z_block(joint: JointMarket) -> Instance:
    """Return the subproblem in the weights of a joint market at a fixed eta, for two models.

    ``exponential`` is a step of the convex-concave procedure in z = log(a), linearised at the
    optimal weights. ``purchase`` is the same problem in ``m*a``. Eta is optimal for the zero model.
    """
    purchases = PurchaseStep(joint)
    if purchases.form is None:
        needed = "the z-block is linearised at the optimal weights of the method 'projections'"
        raise NotSupportedError(f"{needed}, which does not support {shown(joint.market)}")
    form, able = purchases.form
    start = purchases(np.zeros(joint.X.shape[1]))
    eta, costs = start.eta, joint.market.sellers.virtual_costs

    def optimum(model: Floats) -> Floats:
        return purchases.at(model, eta).weights

    first = best_model(joint, start.weights, eta)
    models = [first, best_model(joint, optimum(first), eta)]
    best, losses = [optimum(model) for model in models], [joint.losses(model) for model in models]

    def declared(formulation: str) -> Declared:
        if formulation == "exponential":
            block = ExponentialBlock(joint, losses[0], eta, best[0])
            weights = spread_out(cp.exp(block.variables()[0]), able) / able.size
            return Declared(block, lambda k: block.place(losses[k], best[k]), values_of(weights))
        market = declare(joint.market, eta)
        scaled = market.variables()[0]
        charged = cp.Parameter(scaled.size, name="losses", nonneg=True)
        charge = cp.Minimize(charged @ scaled / able.size)
        return Declared(
            cp.Problem(market.objective + charge, market.constraints),
            lambda k: setattr(charged, "value", losses[k][able]),
            values_of(spread_out(scaled, able) / able.size),
        )

    return Instance(
        "z-block",
        (0, 1),
        declared,
        lambda a, k: joint.market.objective.value(a, eta, costs) + float(losses[k] @ a),
        lambda k: optimum(models[k]),
        lambda weights: off_simplex(weights[able], form.limit(eta)),
    )
