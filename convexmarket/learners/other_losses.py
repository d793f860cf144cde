r"""Objective perturbation with other losses than the logistic one.

A loss that is convex, L-Lipschitz and of curvature at most c keeps
:math:`a_i\eta + \log(1 + c\,a_iR^2/\Lambda)` for row i; its slope may be kinked, as those of the
Huber loss and of the Huberised hinge are (docs/theory.md, section 6).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from convexmarket.checks import check_scales, checked_numbers
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.loss_risk import lipschitz_risk_constants
from convexmarket.learners.losses import HingeLoss, HuberLoss
from convexmarket.learners.minimiser import Vector
from convexmarket.learners.objective import Calibration, ObjectiveClassifier, ObjectiveRelease
from convexmarket.learners.ridge_domain import RANGE_SLACK, pair_of_bounds, positive_width

__all__ = ["PrivateHuberRegressor", "PrivateLinearSVC"]


class PrivateLinearSVC(ObjectiveClassifier):
    r"""Linear support vector machine with a Huberised hinge, under what was sold to each seller.

    Parameters
    ----------
    regularization : float, default 0.05
        Lambda, positive; the quadratic term is ``regularization / 2 * ||w||**2``.
    width : float, default 1.0
        Of the parabola that replaces the hinge's kink; the loss's curvature is one over it.
    data_norm, classes, calibration, tol, minimum_epsilon, features, epsilon
        As for :class:`PrivateLogisticRegression`, as are the attributes.

    Examples
    --------
    >>> from convexmarket.privacy import Simulation
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (1000, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> model = PrivateLinearSVC().fit(X, y, epsilon=1.0, random_state=Simulation(0))
    >>> bool(np.all(model.epsilon_ <= 1.0)), model.score(X, y) > 0.9
    (True, True)
    """

    _mechanism = "a support vector machine"

    def __init__(
        self,
        regularization: float = 0.05,
        *,
        width: float = 1.0,
        data_norm: float | None = 1.0,
        classes: tuple[Any, Any] | None = (-1, 1),
        calibration: Calibration = "total",
        tol: float = 1e-9,
        minimum_epsilon: Literal["auto"] | float | None = "auto",
        features: PublicFeatures | None = None,
        epsilon: ArrayLike | None = None,
    ) -> None:
        self.regularization = regularization
        self.width = width
        self.data_norm = data_norm
        self.classes = classes
        self.calibration = calibration
        self.tol = tol
        self.minimum_epsilon = minimum_epsilon
        self.features = features
        self.epsilon = epsilon

    def risk(
        self,
        n_features: int,
        *,
        failure_probability: float = 0.05,
        noise_failure_probability: float = 0.05,
        max_norm: float = 1.0,
    ) -> tuple[float, float]:
        """Return (mu, sigma) of :func:`lipschitz_risk_constants`, in shares of wrong labels."""
        return _risk(self, n_features, failure_probability, noise_failure_probability, max_norm)

    def _loss(self) -> HingeLoss:
        check_scales(width=self.width)
        return HingeLoss(self.width)


class PrivateHuberRegressor(RegressorMixin, ObjectiveRelease):
    r"""Linear regression with the Huber loss, under what was sold to each seller.

    Parameters
    ----------
    regularization : float, default 0.05
        Lambda, positive; the quadratic term is ``regularization / 2 * ||w||**2``.
    threshold : float, default 1.0
        Residual at which half of its square becomes linear: the most that a row can pull, so that
        a smaller one takes less noise.
    data_norm : float or None, default 1.0
        Public bound on the Euclidean norm of every row.
    target_range : pair of floats, default (-1, 1)
        Public lowest and highest label.
    calibration, tol, minimum_epsilon, features, epsilon
        As for :class:`PrivateLogisticRegression`, as are the attributes.

    Examples
    --------
    >>> from convexmarket.privacy import Simulation
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (1000, 2))
    >>> y = X @ [0.5, -0.25]
    >>> model = PrivateHuberRegressor().fit(X, y, epsilon=1.0, random_state=Simulation(0))
    >>> bool(np.all(model.epsilon_ <= 1.0)), model.score(X, y) > 0.5
    (True, True)
    """

    _mechanism = "Huber regression"
    _domain_name = "target_range"

    def __init__(
        self,
        regularization: float = 0.05,
        *,
        threshold: float = 1.0,
        data_norm: float | None = 1.0,
        target_range: tuple[float, float] = (-1.0, 1.0),
        calibration: Calibration = "total",
        tol: float = 1e-9,
        minimum_epsilon: Literal["auto"] | float | None = "auto",
        features: PublicFeatures | None = None,
        epsilon: ArrayLike | None = None,
    ) -> None:
        self.regularization = regularization
        self.threshold = threshold
        self.data_norm = data_norm
        self.target_range = target_range
        self.calibration = calibration
        self.tol = tol
        self.minimum_epsilon = minimum_epsilon
        self.features = features
        self.epsilon = epsilon

    def risk(
        self,
        n_features: int,
        *,
        failure_probability: float = 0.05,
        noise_failure_probability: float = 0.05,
        max_norm: float = 1.0,
    ) -> tuple[float, float]:
        """Return (mu, sigma) of :func:`lipschitz_risk_constants`, in units of the loss."""
        return _risk(self, n_features, failure_probability, noise_failure_probability, max_norm)

    def predict(self, X: ArrayLike) -> Vector:
        """Return ``X @ coef_``.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._margins(X)

    def _loss(self) -> HuberLoss:
        check_scales(threshold=self.threshold)
        return HuberLoss(self.threshold)

    def _domain(self) -> NDArray[Any]:
        low, high = pair_of_bounds("target_range", self.target_range)
        if low.ndim or high.ndim:
            raise ParameterError(f"target_range must be two numbers, got {self.target_range!r}")
        positive_width("target_range", low, high)
        return np.array([low, high])

    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], Vector]:
        low, high = self._domain()
        labels = checked_numbers("y", y, DataError, truth_values=True)
        slack = RANGE_SLACK * (high - low)
        outside = np.count_nonzero(~((labels >= low - slack) & (labels <= high + slack)))
        if outside:
            raise DataError(
                f"{outside} of {labels.size} labels lie outside target_range = ({low:g}, "
                f"{high:g}); pass a wider public range, or clip the labels to it one by one"
            )
        return np.array([low, high]), np.clip(labels, low, high)

    def _keep(self, domain: NDArray[Any]) -> None:
        """Nothing: the range is a parameter."""

    def _public_labels(self, domain: NDArray[Any]) -> str:
        return f"labels lie in ({domain[0]:g}, {domain[1]:g}), a range that is public"


def _risk(
    learner: PrivateLinearSVC | PrivateHuberRegressor,
    n_features: int,
    failure_probability: float,
    noise_failure_probability: float,
    max_norm: float,
) -> tuple[float, float]:
    check_scales(data_norm=learner.data_norm, max_norm=max_norm)
    reach = max_norm * float(learner.data_norm or 1.0)
    loss, domain = learner._loss(), (-1.0, 1.0)
    if isinstance(learner, PrivateHuberRegressor):
        low, high = learner._domain()
        domain = float(low), float(high)
    return lipschitz_risk_constants(
        loss, failure_probability, noise_failure_probability, reach, n_features, domain
    )
