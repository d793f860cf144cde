r"""Training the buyer's model as instances of a solver study: logistic and ridge regression.

Weights of order 1/m multiply every row. ``unscaled`` is the objective as it is written; the others
multiply the logistic objective by m, or move the weights of ridge regression into the squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike

from convexmarket.allocation.views import numbers
from convexmarket.checks import check_count, check_positive
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.learners.ridge_math import solve_ridge
from convexmarket.privacy import gamma_sphere_noise
from convexmarket.privacy.accounting import check_weights
from convexmarket.studies.subproblems.base import Floats, Instance

__all__ = ["RidgeInstance", "WeightedLogisticInstance", "draw_rows", "unknown_formulation"]

#: Length of the jitter of a row that is drawn again, relative to the row.
JITTER = 0.01
#: Norm of the gradient that the exact model is computed to, relative to the longest row.
_TOLERANCE = 1e-13


def draw_rows(
    X: ArrayLike, y: ArrayLike, size: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return as many labelled rows as a study asks for.

    Parameters
    ----------
    X, y : array_like, shape (n_rows, n_features) and (n_rows,)
    size : int
        Up to ``n_rows`` they are a sample without replacement. Beyond that they are all rows, and
        others drawn with replacement that are turned a little, by a jitter of 1% of their length:
        no row is longer than the one it was drawn from, and labels are kept.
    rng : numpy.random.Generator

    Returns
    -------
    rows, labels : ndarray, shape (size, n_features) and (size,)

    Raises
    ------
    DataError
        If the data are not finite numbers, one label for each row.
    ParameterError
        If size is not positive.
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


def unknown_formulation(instance: Instance, formulation: str) -> ParameterError:
    """Return the error of a formulation that an instance does not have."""
    known = ", ".join(instance.formulations)
    return ParameterError(f"formulation is {formulation!r}; {instance.problem_class} has {known}")


@dataclass(frozen=True, eq=False)
class WeightedLogisticInstance(Instance):
    r"""Logistic regression by objective perturbation, trained again under other noise.

    .. math:: \min_w\; \sum_j a_j \log(1 + e^{-y_j w^\top x_j}) + \tfrac{\Lambda}{2}\|w\|^2
              + b^\top w

    ``primal`` multiplies it by the number of rows; ``unscaled`` is it as it is written. ``dual`` is

    .. math:: \max_{0 \le \alpha \le 1,\; w}\; \sum_j a_j (H(\alpha_j) + H(1-\alpha_j))
              - \tfrac{\Lambda}{2}\|w\|^2
              \quad\text{s.t.}\quad \Lambda w = \sum_j a_j \alpha_j y_j x_j - b,

    times the number of rows, with :math:`H(t) = -t\log t`. The answer is the model w throughout.

    Parameters
    ----------
    X, y : ndarray, shape (size, n_features) and (size,)
        Rows, and labels -1 or 1.
    weights : ndarray, shape (size,)
        a: nonnegative, summing to one.
    regularization : float
        Lambda, > 0.
    noise, changed_noise : ndarray, shape (n_features,)
        Both values of b.
    """

    problem_class = "weighted logistic regression"
    formulations = ("primal", "dual", "unscaled")

    X: Floats
    y: Floats
    weights: Floats
    regularization: float
    noise: Floats
    changed_noise: Floats

    def __post_init__(self) -> None:
        check_weights(self.weights, len(self.X))
        check_positive("regularization", self.regularization)
        if not np.isin(self.y, (-1.0, 1.0)).all():
            raise DataError("y holds labels other than -1 and 1; map the two classes to them")

    @classmethod
    def draw(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        weights: ArrayLike,
        regularization: float,
        noise_scale: float,
        rng: np.random.Generator,
    ) -> Self:
        """Draw the rows and the noise.

        Parameters
        ----------
        X, y : array_like
            Rows to draw from, see :func:`draw_rows`.
        weights : array_like, shape (size,)
            Of the sellers bought from and the others, who are left out.
        regularization : float
        noise_scale : float
            What multiplies noise of density ``exp(-||b||)``: ``2*data_norm/eta``.
        rng : numpy.random.Generator
        """
        a = check_weights(weights)
        rows, labels = draw_rows(X, y, a.size, rng)
        used = a > 0
        noise, other = (noise_scale * gamma_sphere_noise(rows.shape[1], rng) for _ in range(2))
        return cls(rows[used], labels[used], a[used], regularization, noise, other)

    def declare(self, formulation: str) -> cp.Problem:
        """Return the problem with the first noise."""
        m, n_features = self.X.shape
        w = cp.Variable(n_features, name="w")
        noise = cp.Parameter(n_features, name="noise", value=self.noise)
        signed = self.y[:, None] * self.X
        if formulation == "dual":
            alpha = cp.Variable(m, name="alpha")
            weighted = (m * self.weights) @ (cp.entr(alpha) + cp.entr(1 - alpha))
            stationary = (self.weights[:, None] * signed).T @ alpha - noise
            return cp.Problem(
                cp.Maximize(weighted - (m * self.regularization / 2) * cp.sum_squares(w)),
                [self.regularization * w == stationary],
            )
        if formulation not in self.formulations:
            raise unknown_formulation(self, formulation)
        scale = 1 if formulation == "unscaled" else m
        losses = (scale * self.weights) @ cp.logistic(-signed @ w)
        quadratic = (scale * self.regularization / 2) * cp.sum_squares(w)
        return cp.Problem(cp.Minimize(losses + quadratic + scale * (noise @ w)))

    def change(self, problem: cp.Problem) -> None:
        """Draw other noise."""
        problem.param_dict["noise"].value = self.changed_noise

    def answer(self, problem: cp.Problem) -> Floats:
        """Return the model w, shape (n_features,)."""
        return numbers(problem.var_dict["w"])

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the objective of a model."""
        return self._perturbed(changed).value_and_gradient(answer)[0]

    def violation(self, answer: Floats) -> float:
        """Return 0: every model is allowed."""
        del answer
        return 0.0

    def exact(self, changed: bool) -> Floats:
        """Return the model by Newton's method, as it is released."""
        longest = float(np.linalg.norm(self.X, axis=1).max()) or 1.0
        return minimise(self._perturbed(changed), _TOLERANCE * longest)

    def _perturbed(self, changed: bool) -> PerturbedObjective:
        noise = self.changed_noise if changed else self.noise
        return PerturbedObjective(self.X, self.y, self.weights, noise, self.regularization)


@dataclass(frozen=True, eq=False)
class RidgeInstance(Instance):
    r"""Weighted ridge regression, trained again on other labels.

    .. math:: \min_\theta\; \sum_j a_j (y_j - x_j^\top\theta)^2 + \lambda\|\theta\|^2

    ``primal`` is the sum of squares of :math:`\sqrt{m a_j}(y_j - x_j^\top\theta)`; ``unscaled``
    keeps the weights outside the squares. ``normal`` is the quadratic form of the matrix of the
    normal equations, ``factor`` the same by its triangular factor, found without squaring: both are
    of the size of the model, not of the data.

    Parameters
    ----------
    X : ndarray, shape (size, n_features)
    y, changed_y : ndarray, shape (size,)
        Both values of the labels.
    weights : ndarray, shape (size,)
        a: nonnegative, summing to one.
    regularization : float
        lambda, > 0.
    """

    problem_class = "ridge"
    formulations = ("primal", "unscaled", "normal", "factor")

    X: Floats
    y: Floats
    changed_y: Floats
    weights: Floats
    regularization: float

    def __post_init__(self) -> None:
        check_weights(self.weights, len(self.X))
        check_positive("regularization", self.regularization)

    @classmethod
    def draw(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        weights: ArrayLike,
        regularization: float,
        label_noise: float,
        rng: np.random.Generator,
    ) -> Self:
        """Draw the rows, and next year's labels.

        Parameters
        ----------
        X, y : array_like
            Rows to draw from, see :func:`draw_rows`.
        weights : array_like, shape (size,)
        regularization : float
        label_noise : float
            Standard deviation of what the labels change by.
        rng : numpy.random.Generator
        """
        a = check_weights(weights)
        rows, labels = draw_rows(X, y, a.size, rng)
        changed = labels + label_noise * rng.standard_normal(a.size)
        return cls(rows, labels, changed, a, regularization)

    def declare(self, formulation: str) -> cp.Problem:
        """Return the problem with the first labels."""
        m, n_features = self.X.shape
        theta = cp.Variable(n_features, name="theta")
        if formulation == "normal":
            moment = cp.Parameter(n_features, name="moment", value=self._moment(self.y))
            energy = cp.Parameter(nonneg=True, name="energy", value=self._energy(self.y))
            form = cp.quad_form(theta, cp.psd_wrap(self._normal_matrix()))
            return cp.Problem(cp.Minimize(form - 2 * (moment @ theta) + energy))
        if formulation == "factor":
            triangle = self._triangle(self.y)
            target = cp.Parameter(n_features + 1, name="target", value=triangle[:, -1])
            return cp.Problem(cp.Minimize(cp.sum_squares(triangle[:, :-1] @ theta - target)))
        labels = cp.Parameter(m, name="labels", value=self.y)
        penalty = self.regularization * cp.sum_squares(theta)
        if formulation == "unscaled":
            squares = cp.square(self.X @ theta - labels)
            return cp.Problem(cp.Minimize(self.weights @ squares + penalty))
        if formulation != "primal":
            raise unknown_formulation(self, formulation)
        root = np.sqrt(m * self.weights)
        residuals = (root[:, None] * self.X) @ theta - cp.multiply(root, labels)
        return cp.Problem(cp.Minimize(cp.sum_squares(residuals) + m * penalty))

    def change(self, problem: cp.Problem) -> None:
        """Take next year's labels."""
        parameters = problem.param_dict
        if "target" in parameters:
            parameters["target"].value = self._triangle(self.changed_y)[:, -1]
        elif "moment" in parameters:
            parameters["moment"].value = self._moment(self.changed_y)
            parameters["energy"].value = self._energy(self.changed_y)
        else:
            parameters["labels"].value = self.changed_y

    def answer(self, problem: cp.Problem) -> Floats:
        """Return the model theta, shape (n_features,)."""
        return numbers(problem.var_dict["theta"])

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the objective of a model."""
        residuals = (self.changed_y if changed else self.y) - self.X @ answer
        return float(self.weights @ residuals**2 + self.regularization * answer @ answer)

    def violation(self, answer: Floats) -> float:
        """Return 0: every model is allowed."""
        del answer
        return 0.0

    def exact(self, changed: bool) -> Floats:
        """Return the model by the normal equations, as it is released."""
        labels = self.changed_y if changed else self.y
        return solve_ridge(self.X, labels, self.weights, self.regularization)

    def _normal_matrix(self) -> Floats:
        gram = (self.weights[:, None] * self.X).T @ self.X
        return gram + self.regularization * np.eye(gram.shape[0])

    def _moment(self, labels: Floats) -> Floats:
        return np.asarray(self.X.T @ (self.weights * labels))

    def _energy(self, labels: Floats) -> float:
        return float(self.weights @ labels**2)

    def _triangle(self, labels: Floats) -> Floats:
        """Return R with ``||R (theta, -1)||^2`` the objective, shape (n_features + 1,) twice."""
        n_features = self.X.shape[1]
        rows = np.sqrt(self.weights)[:, None] * np.column_stack([self.X, labels])
        ridge = np.sqrt(self.regularization) * np.eye(n_features, n_features + 1)
        return np.asarray(np.linalg.qr(np.vstack([rows, ridge]), mode="r"))
