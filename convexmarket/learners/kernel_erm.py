r"""Regularised empirical risk minimisation in a reproducing kernel Hilbert space (RKHS).

.. math:: w^* = \arg\min_w \sum_i a_i\,\ell(\langle w, \phi(x_i)\rangle; y_i)
          + \tfrac{\lambda}{2}\|w\|^2, \qquad a_i = 1/n \text{ by default}

(K, Eq. 2). The fitted model contains rows and must be kept private. With an L-Lipschitz loss and
:math:`\|\phi(x)\| \le R_\phi`, replacing row i changes :math:`w^*` by at most
:math:`2LR_\phi a_i/\lambda`, and any prediction by at most :math:`R_\phi` times this bound.

The risk is minimised over the span of the feature vectors of some rows. The duality gap bounds the
distance from the minimiser over the whole space. This bound is included in the sensitivities.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import check_is_fitted

from convexmarket.checks import (
    aligned,
    check_count,
    check_scales,
    checked_numbers,
    labels_of,
    moderate,
)
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import DataError, ParameterError, SolverError
from convexmarket.learners.domain import Classes, Granted, dense_rows
from convexmarket.learners.losses import Loss, lipschitz_risk_constants, loss_of
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.learners.predictor import Kernel, cholesky_features
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.active import names_of
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.random_sources import RandomSource

Floats = NDArray[np.float64]

# First and last width of the parabola that replaces a kink. Each step divides the width by ten.
FIRST_WIDTH, LAST_WIDTH = 1.0, 1e-15


@dataclass(eq=False, repr=False)
class KernelERM(BaseEstimator):
    """Regularised empirical risk minimiser with a kernel, and its sensitivity.

    Parameters
    ----------
    loss : {"logistic", "hinge", "huber", "absolute"} or Loss, default "logistic"
        "logistic" and "hinge" are for classification, "huber" and "absolute" for real labels.
    kernel, gamma, degree, coef0
        As in :func:`sklearn.metrics.pairwise.pairwise_kernels`: "linear", "poly", "rbf",
        "laplacian" or "cosine". gamma is 1 / n_features by default.
    regularization : float, default 0.1
        Parameter lambda. The term ``regularization / 2 * ||w||**2`` is added to the mean loss.
    data_norm : float or None, default None
        Public bound on the norm of every private or queried row. The kernels "linear" and "poly"
        require this bound, which determines R_phi. R_phi is 1 for the other kernels.
    classes, features, epsilon
        See :class:`PrivateLogisticRegression`.
    tol : float, default 0.01
        Largest error of a prediction, in units of ``sensitivity_``.

    Attributes
    ----------
    sensitivity_ : float
        Largest change of any prediction when one row is replaced, ``2*L*R_phi**2*max(a)/lambda``,
        for exact minimisers (K, Theorem 2).
    row_sensitivities_ : ndarray of shape (n_rows,)
        Sensitivity to each row plus twice the allowed error, or zero for rows of weight zero.
    norm_bound_ : float
        Public bound on the norm of the model, ``min(L*R_phi/lambda, sqrt(loss(0)/lambda))`` plus
        the allowed error.
    prediction_error_, feature_bound_ : float
        Certified bound on the error of any prediction, and R_phi.
    kernel_, classes_, row_names_, assumptions_
        The kernel, the label set, the names of the rows in open accounts, and the assumptions of
        the sensitivities.
    pivots_, dual_coef_, norm_
        Rows whose feature vectors span the subspace, their coefficients, and the norm of the model
        in the RKHS. These attributes are private.
    guarantee_ : Guarantee
        Infinite epsilon for every used row. Only a release of predictions has a finite epsilon.

    References
    ----------
    Jain and Thakurta, Differentially Private Learning with Kernels, Theorem 2.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (200, 2))
    >>> y = np.where(np.linalg.norm(X, axis=1) < 0.5, 1, -1)
    >>> erm = KernelERM(gamma=8.0, regularization=0.01).fit(X, y)
    >>> float((erm.predict(X) == y).mean()), erm.sensitivity_
    (0.985, 1.0)
    """

    loss: Literal["logistic", "hinge", "huber", "absolute"] | Loss = "logistic"
    kernel: str = "rbf"
    regularization: float = 0.1
    _: KW_ONLY
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0
    data_norm: float | None = None
    classes: tuple[Any, Any] | None = (-1, 1)
    tol: float = 0.01
    features: PublicFeatures | None = None
    epsilon: ArrayLike | None = None

    def risk(
        self,
        n_features: int,
        *,
        n_points: int = 1,
        failure_probability: float = 0.05,
        noise_failure_probability: float = 0.05,
    ) -> tuple[float, float]:
        r"""Compute (mu, sigma), the weights of spread and noise in the error of a release.

        :func:`~convexmarket.learners.lipschitz_risk_constants` gives mu for predictions up to
        ``norm_bound_`` times R_phi. :math:`\sigma = 2L^2R_\phi^2 T\ln(T/\delta')/\lambda` for T
        points that :class:`~convexmarket.TestSetRelease` publishes with ``delta=0``.

        Parameters
        ----------
        n_features, n_points, failure_probability, noise_failure_probability
        """
        check_count("n_points", n_points)
        loss, kernel = loss_of(self.loss), self._bounded_kernel(n_features)
        reach = kernel.feature_bound * norm_bound(loss, kernel, self.regularization)
        chances = failure_probability, noise_failure_probability
        mu = lipschitz_risk_constants(loss, *chances, reach, n_features)[0]
        pull = 2.0 * (loss.lipschitz * kernel.feature_bound) ** 2 / self.regularization
        length = n_points * np.log(n_points / noise_failure_probability)
        return mu, float(pull * length / (loss.at_zero if loss.classifies else 1.0))

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        epsilon: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        accountant: Account | None = None,
        random_state: RandomSource = None,
    ) -> Self:
        """Compute the minimiser to within the tolerance.

        Parameters
        ----------
        X, y, epsilon, random_state
            As in private learners. The weights are proportional to epsilon, which is 1 by default.
        rows, accountant
            Not accepted, because fitting does not release the model.

        Raises
        ------
        ParameterError
            If an argument is out of range, or the features have no public bound.
        DataError
            If the data are malformed or outside the domain.
        SolverError
            If the tolerance is not reached.
        """
        if accountant is not None or rows is not None:
            raise ParameterError(
                "accountant and rows are arguments of a release, and KernelERM.fit does not "
                "release the model; pass them to the release"
            )
        names, labels = names_of(X), labels_of(y) if labels_of(X) is None else labels_of(X)
        loss, classes = loss_of(self.loss), None
        check_scales(regularization=self.regularization, tol=self.tol)
        X, y, epsilon = aligned(X=X, y=y, epsilon=self.epsilon if epsilon is None else epsilon)
        granted = Granted.of(X, 1.0 if epsilon is None else epsilon)
        options: Any = {"dtype": np.float64, "order": "C", "y_numeric": not loss.classifies}
        matrix, targets = dense_rows(self, *granted.rows(X, y), **options)
        kernel = self._bounded_kernel(matrix.shape[1])
        kernel.check_domain(matrix, "X")
        if loss.classifies:
            classes = Classes.of(self.classes, targets)
            targets = classes.numbers(targets)
        else:
            targets = moderate(checked_numbers("y", targets, DataError, truth_values=True))
        weights = granted.weights()
        shifts = 2.0 * loss.lipschitz * kernel.feature_bound**2 / self.regularization * weights
        sensitivity = float(shifts.max())
        allowed, used = self.tol * sensitivity, weights > 0
        distance_allowed = allowed / kernel.feature_bound
        # At most half of the allowed error is due to the residuals of the features.
        outside = distance_allowed * self.regularization / (2.0 * loss.lipschitz)
        matrix, weights = matrix[used], weights[used]
        pivots, features, residuals = cholesky_features(kernel, matrix, weights, outside)
        terms = targets[used], weights, loss, self.regularization, distance_allowed
        theta, distance = minimum_in_span(features, np.sqrt(residuals), *terms)
        error = distance * kernel.feature_bound
        if not error <= allowed:
            raise SolverError(
                f"Newton's method stopped with an error of {error:.3g} in a prediction, above tol "
                f"* sensitivity_ = {allowed:.3g}; use a larger tol or a larger regularization"
            )
        # Attributes are set last, so that a failed fit does not leave a partial model.
        self.dual_coef_ = solve_triangular(features[pivots], theta, lower=True, trans="T")
        self.pivots_ = matrix[pivots]
        self.norm_ = float(np.linalg.norm(theta))
        self.kernel_, self.feature_bound_ = kernel, kernel.feature_bound
        self.sensitivity_ = sensitivity
        self.row_sensitivities_ = granted.spread(np.where(used, shifts + 2.0 * allowed, 0.0))
        self.norm_bound_ = norm_bound(loss, kernel, self.regularization) + distance_allowed
        self.prediction_error_ = error
        self.row_names_, self._labels = names, labels
        self.assumptions_ = self._assumptions(kernel, classes)
        self.guarantee_ = Guarantee(
            epsilon=granted.spread(np.where(used, np.inf, 0.0)),
            delta=0.0,
            mechanism="a minimiser without noise, which must not be published",
            accounting="exact",
            assumptions=("the model is not released; only released predictions have a guarantee",),
        )
        if classes is not None:
            self.classes_ = classes.values
        elif hasattr(self, "classes_"):  # remove attributes of an earlier fit with another loss
            del self.classes_
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the predictions ``<w, phi(x)>``, which are private.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        """
        check_is_fitted(self)
        rows = dense_rows(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.kernel_(rows, self.pivots_) @ self.dual_coef_)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class or the real-valued label of each row. Predictions are private.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        """
        return self.labels(self.decision_function(X))

    def labels(self, predictions: ArrayLike) -> NDArray[Any]:
        """Convert predictions to labels. For real labels, predictions are returned unchanged.

        Parameters
        ----------
        predictions : array_like

        Raises
        ------
        ParameterError
            If a prediction is NaN.
        """
        check_is_fitted(self)
        values = checked_numbers("predictions", predictions)
        if np.any(np.isnan(values)):
            raise ParameterError("predictions contain NaN, and NaN has no label; omit these rows")
        if not hasattr(self, "classes_"):
            return values
        return np.asarray(self.classes_[(values > 0).astype(np.intp)])

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Compute the accuracy, or the coefficient of determination if labels are real numbers.

        Parameters
        ----------
        X, y : array_like of shape (n_rows, n_features), (n_rows,)

        Raises
        ------
        DataError
            If y is not one-dimensional.
        """
        if np.ndim(y) != 1:
            raise DataError(f"y has shape {np.shape(y)}; give one label for each row")
        measure = accuracy_score if hasattr(self, "classes_") else r2_score
        return float(measure(y, self.predict(X)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if loss_of(self.loss).classifies:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=False)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    def _assumptions(self, kernel: Kernel, classes: Classes | None) -> tuple[str, ...]:
        norm = kernel.data_norm
        rows = "" if norm is None else f", and the rows have norm at most {norm:g}"
        assumptions = [
            "the features of private and queried rows have norm at most "
            f"{kernel.feature_bound:g}{rows}; the bounds are public"
        ]
        if not isinstance(self.loss, str):
            slope = self.loss.lipschitz
            assumptions.append(f"{self.loss!r} is convex, with slopes of at most {slope:g}")
        if classes is not None:
            inferred = "VIOLATED: the label set was inferred from the private labels"
            assumptions.append(inferred if self.classes is None else classes.assumption)
        error = f"the noise covers the solver's error of at most {self.tol:g} * sensitivity_"
        return (*assumptions, error)

    def _bounded_kernel(self, n_features: int) -> Kernel:
        gamma = 1.0 / n_features if self.gamma is None else self.gamma
        return Kernel(self.kernel, gamma, self.degree, self.coef0, self.data_norm)


def minimum_in_span(
    features: Floats,
    outside: Floats,
    targets: Floats,
    weights: Floats,
    loss: Loss,
    regularization: float,
    tol: float,
) -> tuple[Floats, float]:
    """Minimise the risk of a kernel model over a subspace of the RKHS.

    ``features`` are the coordinates of rows in an orthonormal basis, and ``outside`` are their
    distances from the subspace. Return a model and a bound on its distance from the minimiser.
    """
    theta = best = np.zeros(features.shape[1])
    nearest, width = np.inf, FIRST_WIDTH
    while True:
        smooth = loss.smoothed(width)
        terms = weights, np.zeros_like(theta), regularization, smooth
        objective = PerturbedObjective(features, targets, *terms)
        theta = minimise(objective, 1e-3 * regularization * tol, theta)
        distance = certified_distance(objective, loss, outside, theta)
        if distance < nearest:
            best, nearest = theta, distance
        if nearest <= tol or smooth is loss or width <= LAST_WIDTH:
            return best, nearest
        width /= 10.0


def certified_distance(
    smoothed: PerturbedObjective, loss: Loss, outside: Floats, theta: Floats
) -> float:
    r"""Bound the distance of a model from the minimiser over the whole RKHS.

    By strong convexity, the squared distance is at most :math:`2/\lambda` times the duality gap of
    w and u, where u are the negative slopes of the smoothed loss. The gap is
    :math:`\sum_i a_i(\ell_i + \ell_i^*(-u_i) + u_i f_i) + \|\lambda w - q\|^2/(2\lambda)` with
    :math:`q = \sum_i a_i u_i \phi(x_i)`. This formula avoids cancellation.
    """
    f, weights = smoothed.X @ theta, smoothed.weights
    slopes = smoothed.loss.derivatives(f, smoothed.targets)[1]
    inside = smoothed.gradient(theta)
    beyond = (weights * np.abs(slopes)) @ outside
    gaps = weights @ loss.fenchel_gaps(f, smoothed.targets, slopes)
    squared = inside @ inside + beyond**2 + 2.0 * smoothed.regularization * gaps
    return float(np.sqrt(squared)) / smoothed.regularization


def norm_bound(loss: Loss, kernel: Kernel, regularization: float) -> float:
    r"""Bound the norm of the minimiser by :math:`\min(LR_\phi/\lambda, \sqrt{\ell(0)/\lambda})`."""
    by_slope = loss.lipschitz * kernel.feature_bound / regularization
    return float(min(by_slope, np.sqrt(loss.at_zero / regularization)))
