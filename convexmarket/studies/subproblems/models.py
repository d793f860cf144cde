r"""Subproblems of models: logistic and ridge regression, the fit to predictions, and the z-block.

Weights of order 1/m multiply every row. ``unscaled`` is the objective as it is written. The other
formulations multiply the logistic objective by m, or move the weights of ridge regression into the
squares.
"""

from __future__ import annotations

from typing import cast

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from convexmarket.allocation.views import FixedEta
from convexmarket.checks import (
    check_count,
    check_nonnegative,
    check_positive,
    check_positives,
    shown,
)
from convexmarket.errors import DataError, NotSupportedError
from convexmarket.joint import ExponentialBlock, JointMarket, best_model
from convexmarket.joint.steps import PurchaseStep
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.learners.ridge_math import solve_ridge
from convexmarket.privacy import gamma_sphere_noise
from convexmarket.privacy.accounting import check_weights
from convexmarket.release import FitFormulation, KernelBasis, declare_fit
from convexmarket.studies.subproblems.instances import Declared, Floats, Instance, numbers
from convexmarket.studies.subproblems.markets import off_simplex

__all__ = [
    "draw_fit",
    "draw_logistic",
    "draw_ridge",
    "draw_rows",
    "fit",
    "logistic",
    "ridge",
    "z_block",
]

#: Length of the perturbation of a repeated row, relative to the row.
JITTER = 0.01
#: Largest number of points for a decomposition of the dense kernel matrix.
LARGEST = 2000
#: Norm of the gradient at the exact model, relative to the longest row.
_TOLERANCE = 1e-13


def _feasible(_answer: Floats) -> float:
    return 0.0


def draw_rows(
    X: ArrayLike, y: ArrayLike, size: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw labelled rows from a data set.

    Up to their number, rows are drawn without replacement. Beyond that, all rows are used once. The
    others are drawn with replacement, perturbed by 1 % of their length, and scaled to the length of
    the original.

    Raises
    ------
    DataError
        If the data are not finite numbers with one label for each row.
    """
    rows, labels = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    if rows.ndim != 2 or not rows.size or labels.shape != rows.shape[:1]:
        raise DataError(
            f"X has shape {rows.shape} and y {labels.shape}; give rows of features and one label "
            "for each"
        )
    if not (np.isfinite(rows).all() and np.isfinite(labels).all()):
        raise DataError("X or y holds entries that are not finite; fill or drop them")
    check_count("size", size)
    n_rows, n_features = rows.shape
    if size <= n_rows:
        picked = rng.choice(n_rows, size, replace=False)
        return rows[picked], labels[picked]
    again = rng.integers(n_rows, size=size - n_rows)
    lengths = np.linalg.norm(rows[again], axis=1, keepdims=True)
    turned = rng.standard_normal((again.size, n_features)) * (JITTER / np.sqrt(n_features))
    turned = rows[again] + lengths * turned
    now = np.linalg.norm(turned, axis=1, keepdims=True)
    turned *= lengths / np.maximum(now, np.finfo(float).tiny)
    return np.vstack([rows, turned]), np.concatenate([labels, labels[again]])


def logistic(
    X: Floats, y: Floats, weights: Floats, regularization: float, noise: Floats
) -> Instance:
    r"""Return logistic regression by objective perturbation, with two draws of the noise.

    .. math:: \min_w\; \sum_j a_j \log(1 + e^{-y_j w^\top x_j}) + \tfrac{\Lambda}{2}\|w\|^2
              + b^\top w

    ``primal`` multiplies it by the number of rows. ``dual`` is

    .. math:: \max_{0 \le \alpha \le 1,\; w}\; \sum_j a_j (H(\alpha_j) + H(1-\alpha_j))
              - \tfrac{\Lambda}{2}\|w\|^2
              \quad\text{s.t.}\quad \Lambda w = \sum_j a_j \alpha_j y_j x_j - b,

    times the number of rows, with :math:`H(t) = -t\log t`. The answer is the model w. The labels y
    are -1 or 1, the weights a sum to one, and ``noise`` holds both values of b, shape
    (2, n_features).
    """
    check_weights(weights, len(X))
    check_positive("regularization", regularization)
    if not np.isin(y, (-1.0, 1.0)).all():
        raise DataError("y holds labels other than -1 and 1; map the two classes to them")
    m, n_features = X.shape
    signed = y[:, None] * X
    perturbed = [PerturbedObjective(X, y, weights, b, regularization) for b in noise]

    def declared(formulation: str) -> Declared:
        w = cp.Variable(n_features, name="w")
        b = cp.Parameter(n_features, name="noise", value=noise[0])
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

        def change() -> None:
            b.value = noise[1]

        return Declared(problem, change, lambda: numbers(w))

    def exact(changed: bool) -> Floats:
        longest = float(np.linalg.norm(X, axis=1).max()) or 1.0
        return minimise(perturbed[changed], _TOLERANCE * longest)

    return Instance(
        "weighted logistic regression",
        declared,
        lambda w, changed: perturbed[changed].value_and_gradient(w)[0],
        _feasible,
        exact,
    )


def draw_logistic(
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    regularization: float,
    noise_scale: float,
    rng: np.random.Generator,
) -> Instance:
    """Draw the rows and the noise of :func:`logistic`; sellers with weight zero are left out.

    ``noise_scale`` multiplies noise of density ``exp(-||b||)``: ``2*data_norm/eta``.
    """
    a = check_weights(weights)
    rows, labels = draw_rows(X, y, a.size, rng)
    used = a > 0
    noise = [noise_scale * gamma_sphere_noise(rows.shape[1], rng) for _ in range(2)]
    return logistic(rows[used], labels[used], a[used], regularization, np.array(noise))


def ridge(X: Floats, labels: Floats, weights: Floats, regularization: float) -> Instance:
    r"""Return weighted ridge regression, with two vectors of labels.

    .. math:: \min_\theta\; \sum_j a_j (y_j - x_j^\top\theta)^2 + \lambda\|\theta\|^2

    ``primal`` is the sum of squares of :math:`\sqrt{m a_j}(y_j - x_j^\top\theta)`; ``unscaled``
    keeps the weights outside the squares. ``normal`` is the quadratic form of the normal equations,
    and ``factor`` the same by a triangular factor, computed without squaring; both have the size of
    the model. The answer is theta. ``labels`` holds both values of y, shape (2, size).
    """
    check_weights(weights, len(X))
    check_positive("regularization", regularization)
    m, n_features = X.shape
    root = np.sqrt(weights)[:, None]

    def triangle(y: Floats) -> Floats:
        """Return R with ``||R (theta, -1)||^2`` the objective, shape (n_features + 1,) twice."""
        penalty = np.sqrt(regularization) * np.eye(n_features, n_features + 1)
        return np.asarray(np.linalg.qr(np.vstack([root * np.column_stack([X, y]), penalty]), "r"))

    def parameters(formulation: str, y: Floats) -> Floats:
        if formulation == "normal":
            return np.append(X.T @ (weights * y), weights @ y**2)
        return triangle(y)[:, -1] if formulation == "factor" else y

    def declared(formulation: str) -> Declared:
        theta = cp.Variable(n_features, name="theta")
        first = parameters(formulation, labels[0])
        data = cp.Parameter(first.size, name="data", value=first)
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

        def change() -> None:
            data.value = parameters(formulation, labels[1])

        return Declared(cp.Problem(cp.Minimize(objective)), change, lambda: numbers(theta))

    def objective(theta: Floats, changed: bool) -> float:
        residuals = labels[int(changed)] - X @ theta
        return float(weights @ residuals**2 + regularization * theta @ theta)

    def exact(changed: bool) -> Floats:
        return solve_ridge(X, labels[int(changed)], weights, regularization)

    return Instance("ridge", declared, objective, _feasible, exact)


def draw_ridge(
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    regularization: float,
    label_noise: float,
    rng: np.random.Generator,
) -> Instance:
    """Draw the rows of :func:`ridge`; the second labels are the first with Gaussian noise."""
    a = check_weights(weights)
    rows, labels = draw_rows(X, y, a.size, rng)
    changed = labels + label_noise * rng.standard_normal(a.size)
    return ridge(rows, np.array([labels, changed]), a, regularization)


def fit(kernel: Floats, predictions: Floats, max_norm: float) -> Instance:
    r"""Return the fit to noisy predictions (K, Theorems 4 and 5), with two draws of the noise.

    A private model predicts at T public points. Its predictions p are released with noise, and a
    public model f, no larger than the private one may be, is fitted to them:

    .. math:: \min_f\; \sum_{t} (f(z_t) - p_t)^2 \quad\text{s.t.}\quad \|f\|_{\mathcal H} \le C

    (K has the mean where this has the sum.) With the kernel matrix
    :math:`K = U\,\mathrm{diag}(d)\,U^\top` and :math:`f = \sum_s c_s k(z_s, \cdot)`, ``quadratic``
    is the problem in c, under :math:`c^\top K c \le C^2`. ``primal`` takes the coefficients
    :math:`\beta = \mathrm{diag}(\sqrt d)\,U^\top c` in an orthonormal basis; ``diagonal`` turns the
    predictions into that basis. The answer is f at the points, followed by its norm.
    ``predictions`` holds both values of p, shape (2, T), and T is at most 2,000.
    """
    check_positive("max_norm", max_norm)
    _check_size(len(kernel))

    def declared(formulation: str) -> Declared:
        problem = declare_fit(kernel, max_norm, cast(FitFormulation, formulation))
        problem.fit_to(predictions[0])
        return Declared(
            problem,
            lambda: problem.fit_to(predictions[1]),
            lambda: np.append(numbers(problem.values), numbers(problem.norm)),
        )

    def exact(changed: bool) -> Floats:
        basis = KernelBasis(kernel)
        beta = basis.fit(predictions[int(changed)], max_norm)
        return np.append(basis.values(beta), np.linalg.norm(beta))

    return Instance(
        "semi-interactive fit",
        declared,
        lambda answer, changed: float(np.sum((answer[:-1] - predictions[int(changed)]) ** 2)),
        lambda answer: max(0.0, float(answer[-1]) / max_norm - 1.0),
        exact,
        # The best objective may be zero; the objective at f = 0 is positive.
        lambda changed: float(np.sum(predictions[int(changed)] ** 2)),
    )


def draw_fit(
    points: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    bandwidth: float,
    regularization: float,
    noise_scale: float,
    size: int,
    rng: np.random.Generator,
) -> Instance:
    """Train the private model of :func:`fit`, and draw points and noise; its norm is the bound.

    The model is kernel ridge regression on private rows ``X, y``, with the kernel
    ``exp(-||x - z||^2 / (2*bandwidth^2))``. ``size`` public rows are drawn from ``points``, and the
    noise in a prediction is Laplace noise of a scale.
    """
    check_positives(bandwidth=bandwidth, regularization=regularization)
    check_nonnegative("noise_scale", noise_scale)
    private_rows, public_rows = np.asarray(X, dtype=float), np.asarray(points, dtype=float)
    _check_size(size)
    _check_size(len(private_rows))
    gamma = 1.0 / (2.0 * bandwidth**2)
    model = KernelRidge(alpha=regularization * len(private_rows), kernel="rbf", gamma=gamma)
    dual = model.fit(private_rows, y).dual_coef_
    norm = np.sqrt(dual @ rbf_kernel(private_rows, gamma=gamma) @ dual)
    drawn = draw_rows(public_rows, np.zeros(len(public_rows)), size, rng)[0]
    noisy = model.predict(drawn) + rng.laplace(scale=noise_scale, size=(2, size))
    return fit(rbf_kernel(drawn, gamma=gamma), noisy, float(norm))


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise NotSupportedError(
            f"size is {size}: the dense kernel of so many points would have {size**2:,} entries; "
            f"take {LARGEST:,} points at most"
        )


def z_block(joint: JointMarket) -> Instance:
    """Return the best weights of a joint market at a fixed eta, for the losses of two models.

    ``exponential`` is :class:`~convexmarket.joint.ExponentialBlock` in z = log(a), with the
    constraint ``sum exp(z) >= 1`` replaced by its tangent at the optimal weights, where the
    convex-concave procedure ends. ``purchase`` is the same choice in ``m*a``. Both have the same
    optimum. Eta is the best one without a model; the models are the first two of the alternating
    method. The noise in the model does not depend on the weights and is left out. The answer is the
    weights of all sellers.

    Raises
    ------
    NotSupportedError
        If the market has another piece than a spread or squared spread (mu > 0), noise and linear
        payments under caps and largest guarantees, so that the optimum is not known.
    """
    purchases = PurchaseStep(joint)
    if purchases.form is None:
        raise NotSupportedError(
            "the z-block of a study is linearised at the optimal weights, which are known for "
            "Spread() or SquaredSpread() (with mu > 0), Noise and linear Payments under Cap, "
            f"EtaRange and MaxEpsilon; this is {shown(joint.market)}"
        )
    form, able = purchases.form
    start = purchases(np.zeros(joint.X.shape[1]))
    eta, costs = start.eta, joint.market.sellers.virtual_costs
    models = [best_model(joint, start.weights, eta)]
    models.append(best_model(joint, purchases.at(models[0], eta).weights, eta))
    losses = [joint.losses(model) for model in models]
    optima = [purchases.at(model, eta).weights for model in models]

    def weights_of(scaled: Floats) -> Floats:
        weights = np.zeros(able.size)
        weights[able] = scaled / able.size
        return weights

    def declared(formulation: str) -> Declared:
        if formulation == "exponential":
            block = ExponentialBlock(joint, losses[0], eta, optima[0])
            (z,) = block.variables()

            def change_block() -> None:
                block.place(losses[1], optima[1])

            return Declared(block, change_block, lambda: weights_of(np.exp(numbers(z))))
        market = FixedEta(joint.market, eta)
        (scaled,) = market.variables()
        each = cp.Parameter(scaled.size, name="losses", nonneg=True, value=losses[0][able])
        objective = market.objective + cp.Minimize(each @ scaled / able.size)

        def change() -> None:
            each.value = losses[1][able]

        problem = cp.Problem(objective, market.constraints)
        return Declared(problem, change, lambda: weights_of(numbers(scaled)))

    return Instance(
        "z-block",
        declared,
        lambda weights, changed: (
            joint.market.objective.value(weights, eta, costs)
            + float(losses[int(changed)] @ weights)
        ),
        lambda weights: off_simplex(weights[able], form.limit(eta)),
        lambda changed: purchases.at(models[int(changed)], eta).weights,
    )
