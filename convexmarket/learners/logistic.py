r"""Logistic regression by objective perturbation, under a guarantee chosen seller by seller.

The released model is the exact minimiser of

.. math:: \sum_i a_i \log(1+e^{-y_i w^\top x_i}) + b'^\top w + \tfrac{\Lambda}{2}\|w\|^2,

with :math:`b' = (2R/\eta)\,b`, :math:`b` of density proportional to :math:`e^{-\|b\|}` and
:math:`\|x_i\| \le R` (Algorithm 1 and Eq. 12 of Anjarlekar, Etesami and Srikant, who take R = 1).
Here are the estimator that users hold and the constants of its excess risk. What the release
guarantees is the business of :mod:`convexmarket.privacy.accounting`, how the minimiser is found
that of :mod:`convexmarket.learners.minimiser`.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammainccinv
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from convexmarket.errors import DataError, ParameterError, PrivacyLeakWarning, SolverError
from convexmarket.learners.labels import binary_signs, check_classes
from convexmarket.learners.minimiser import LogisticObjective, Matrix, Vector, minimise
from convexmarket.privacy.accounting import (
    Accounting,
    Guarantee,
    calibrate_eta,
    check_weights,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.noise import RandomSource, gamma_sphere_noise, resolve_generator

__all__ = ["PrivateLogisticRegression", "logistic_risk_constants"]

NORM_SLACK = 1e-12  # relative; rows scaled to the bound in floating point may exceed it by rounding


def logistic_risk_constants(
    delta: float, delta_prime: float, beta: float, n_features: int
) -> tuple[float, float]:
    r"""Return the (mu, sigma) of the excess risk ``mu * ||a|| + sigma / eta``.

    Parameters
    ----------
    delta : float
        Failure probability of the concentration inequality, in (0, 1).
    delta_prime : float
        Probability that the noise is larger than assumed, in (0, 1).
    beta : float
        Bound on the norm of the model, positive. For rows bounded by ``data_norm`` other than one,
        pass ``beta * data_norm``.
    n_features : int
        Dimension of the model, at least 1.

    Returns
    -------
    mu, sigma : float
        Weights of the spread of the weights and of the noise.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    Anjarlekar, Etesami and Srikant, Theorem II.4, as printed and with natural logarithms:
    :math:`\mu = \frac{3\ln(1/\delta)}{\sqrt2}\log(1+e^\beta) + \frac{\beta}{\ln 2}` and
    :math:`\sigma = (\frac{6\ln(1/\delta)}{\sqrt2} + 1)\,2\beta\,v^{-1}(\delta')`, where v is the
    survival function of a Gamma variable of shape n and scale 2. The proof has the square root of
    :math:`\ln(1/\delta)`, so the printed constants are safe for :math:`\delta \le 1/e` only.

    Examples
    --------
    >>> mu, sigma = logistic_risk_constants(0.05, 0.05, beta=1.0, n_features=10)
    >>> round(mu, 3), round(sigma, 3)
    (9.788, 861.262)
    """
    for name, value in (("delta", delta), ("delta_prime", delta_prime)):
        if not 0 < value < 1:
            raise ParameterError(f"{name} must lie strictly between 0 and 1, not {value!r}.")
    if not (np.isfinite(beta) and beta > 0):
        raise ParameterError(f"beta must be positive and finite, not {beta!r}.")
    if n_features < 1:
        raise ParameterError(f"n_features must be at least 1, not {n_features!r}.")
    concentration = 3.0 * np.log(1.0 / delta) / np.sqrt(2.0)
    mu = concentration * np.logaddexp(0.0, beta) + beta / np.log(2.0)
    noise_quantile = 2.0 * gammainccinv(n_features, delta_prime)
    sigma = (2.0 * concentration + 1.0) * 2.0 * beta * noise_quantile
    return float(mu), float(sigma)


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):
    r"""Binary logistic regression whose coefficients keep what was sold to each seller.

    Parameters
    ----------
    regularization : float, default 0.01
        Lambda, positive; the quadratic term is ``regularization / 2 * ||w||**2``.
    data_norm : float or None, default 1.0
        Public bound R on the Euclidean norm of every row. ``None`` takes the largest norm of the
        private rows, with a :class:`~convexmarket.errors.PrivacyLeakWarning`.
    classes : pair of labels or None, default (-1, 1)
        The public label set; the second label is the positive one. ``None`` infers it from the
        private labels, with a :class:`~convexmarket.errors.PrivacyLeakWarning`.
    accounting : {"tight", "joint", "paper"}, default "tight"
        Which bound on the privacy loss is reported, see
        :func:`~convexmarket.privacy.objective_perturbation_guarantee`. It changes the released
        model under ``calibration="total"`` only. ``"joint"`` is the smallest of the three.
    calibration : {"noise", "total"}, default "noise"
        ``"noise"``: eta sets the noise, as in Algorithm 1 of the paper, and ``epsilon_`` reports
        the total, which exceeds ``weights * eta`` by the Jacobian's share. ``"total"``: the noise
        is increased until ``epsilon_ <= weights * eta`` in every row with a positive weight, so
        that the total is what was sold; refused where no amount of noise does it. Under
        ``accounting="joint"`` the two agree as soon as ``regularization * eta`` is at least
        ``2 * data_norm**2``.
    cap : float or None, default None
        The market's public k, where weights are at most k / n_sellers; used by
        ``accounting="paper"`` only.
    tol : float, default 1e-9
        Largest Euclidean norm of the objective's gradient at the released coefficients.
    random_state : None, int, SeedSequence, Generator or RandomState, default None
        Source of the noise. ``None`` takes a fresh seed from the operating system. With a fixed
        seed the guarantee holds only towards those who do not know it, and two models fitted with
        the same seed share their noise, so releasing both breaks the guarantee.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The released model w. There is no intercept: for one, append a constant column to X and
        let ``data_norm`` bound the rows with it.
    classes_ : ndarray of shape (2,)
        The label set.
    epsilon_ : ndarray of shape (n_sellers,)
        Total guarantee of each row, in nats.
    guarantee_ : Guarantee
        The same with its assumptions in words.
    eta_ : float
        The eta that set the noise.
    data_norm_ : float
        The bound R that set the noise.
    gradient_norm_ : float
        Euclidean norm of the objective's gradient at ``coef_``, at most ``tol``. A diagnostic for
        whoever trains the model: only ``coef_`` is covered by the guarantee.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has string names.

    Notes
    -----
    The noise vector is not kept: with ``coef_`` it would reveal the data's gradient.

    References
    ----------
    Anjarlekar, Etesami and Srikant, Mechanism Design for Heterogeneous Differentially Private
    Data Acquisition for Logistic Regression, Algorithm 1, Eq. 12, Proposition II.2.

    Examples
    --------
    >>> X = np.array([[0.6, 0.8], [0.8, 0.6], [-0.6, 0.2], [-0.9, 0.1]])
    >>> y = np.array([1, 1, -1, -1])
    >>> model = PrivateLogisticRegression(regularization=0.1, random_state=0)
    >>> model = model.fit(X, y, weights=[0.4, 0.2, 0.2, 0.2], eta=100.0)
    >>> model.predict(X)
    array([ 1,  1, -1, -1])
    >>> model.epsilon_.round(3)
    array([40.693, 20.405, 20.405, 20.405])
    """

    def __init__(
        self,
        regularization: float = 0.01,
        *,
        data_norm: float | None = 1.0,
        classes: tuple[Any, Any] | None = (-1, 1),
        accounting: Accounting = "tight",
        calibration: Literal["noise", "total"] = "noise",
        cap: float | None = None,
        tol: float = 1e-9,
        random_state: RandomSource = None,
    ) -> None:
        self.regularization = regularization
        self.data_norm = data_norm
        self.classes = classes
        self.accounting = accounting
        self.calibration = calibration
        self.cap = cap
        self.tol = tol
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None, *, eta: float
    ) -> Self:
        """Draw the noise and release the minimiser.

        Parameters
        ----------
        X : array_like of shape (n_sellers, n_features)
            Rows of Euclidean norm at most ``data_norm``.
        y : array_like of shape (n_sellers,)
            Labels from ``classes``.
        weights : array_like of shape (n_sellers,), optional
            Nonnegative, summing to one, chosen without looking at the data; equal by default. A
            row of weight zero is not used.
        eta : float
            Total privacy sold, the sum of the sellers' epsilon: positive, chosen without looking
            at the data. Infinity is the model without noise and without a guarantee.

        Returns
        -------
        PrivateLogisticRegression
            The fitted estimator.

        Raises
        ------
        ParameterError
            If a parameter, the weights or eta are out of range, or under ``calibration="total"``
            eta is too small.
        DataError
            If the data are malformed, a row is longer than ``data_norm`` or a label unknown.
        SolverError
            If the gradient norm ``tol`` is not reached; nothing is released then.
        """
        self._check_parameters()
        X, y = self._validated(X, y)
        if weights is None:
            weights = np.full(X.shape[0], 1.0 / X.shape[0])
        weights = check_weights(weights, X.shape[0])
        classes, signs = binary_signs(y, self.classes)
        data_norm = self._checked_data_norm(X)
        noise_eta, guarantee = self._account(weights, eta, data_norm, classes)
        coef, gradient_norm = self._release(X, signs, weights, noise_eta, data_norm)
        # Only now, so that a failed fit leaves no half of a model behind.
        self.classes_, self.data_norm_, self.eta_ = classes, data_norm, noise_eta
        self.guarantee_, self.epsilon_ = guarantee, guarantee.epsilon
        self.coef_, self.gradient_norm_ = coef, gradient_norm
        return self

    def decision_function(self, X: ArrayLike) -> Vector:
        """Return the margin ``w'x`` of each row; positive means the second class.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False) @ self.coef_

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        margins = self.decision_function(X)
        return self.classes_[(margins > 0).astype(np.intp)]

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return the logistic probability of each class.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Columns in the order of ``classes_``.
        """
        margins = self.decision_function(X)
        return np.column_stack([expit(-margins), expit(margins)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_parameters(self) -> None:
        if self.calibration not in ("noise", "total"):
            raise ParameterError(
                f"calibration must be 'noise' or 'total', not {self.calibration!r}."
            )
        if self.data_norm is not None and not (np.isfinite(self.data_norm) and self.data_norm > 0):
            raise ParameterError(f"data_norm must be positive and finite, not {self.data_norm!r}.")
        if not self.tol > 0:
            raise ParameterError(f"tol must be positive, not {self.tol!r}.")
        check_classes(self.classes)

    def _validated(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, NDArray[Any]]:
        try:
            return validate_data(self, X, y, dtype=np.float64, order="C")
        except ValueError as error:
            raise DataError(str(error)) from error

    def _checked_data_norm(self, X: Matrix) -> float:
        """Return the bound R, after checking the rows against it."""
        norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        if self.data_norm is None:
            warnings.warn(
                "data_norm was computed from the private rows, so no guarantee covers it: pass a"
                " public bound, and project the rows on it with convexmarket.datasets.scale_rows.",
                PrivacyLeakWarning,
                stacklevel=3,
            )
            return float(norms.max()) or 1.0
        too_long = np.count_nonzero(norms > self.data_norm * (1.0 + NORM_SLACK))
        if too_long:
            raise DataError(
                f"{too_long} of {X.shape[0]} rows are longer than data_norm = {self.data_norm:g}:"
                " project each row on the ball with convexmarket.datasets.scale_rows, or pass a"
                " larger public bound."
            )
        return float(self.data_norm)

    def _account(
        self, weights: Vector, eta: float, data_norm: float, classes: NDArray[Any]
    ) -> tuple[float, Guarantee]:
        """Return the eta of the noise and the guarantee that follows from it."""
        arguments = (self.regularization, data_norm, self.accounting, self.cap)
        if self.calibration == "total":
            eta = calibrate_eta(weights, eta, *arguments)
        guarantee = Guarantee(
            epsilon=objective_perturbation_guarantee(weights, eta, *arguments),
            delta=0.0,
            mechanism="logistic regression by objective perturbation",
            accounting=self.accounting,
            assumptions=self._assumptions(eta, data_norm, classes),
        )
        return float(eta), guarantee

    def _assumptions(self, eta: float, data_norm: float, classes: NDArray[Any]) -> tuple[str, ...]:
        public_norm = f"every row's norm is at most {data_norm:g}, a bound that is public"
        public_classes = f"the label set {tuple(classes.tolist())} is public"
        if self.data_norm is None:
            public_norm = "VIOLATED: the bound on the norms was computed from the private rows"
        if self.classes is None:
            public_classes = "VIOLATED: the label set was inferred from the private labels"
        noise = "the noise comes from a fresh seed of the operating system, and is kept nowhere"
        if self.random_state is not None:
            noise = "the random_state that was passed stays secret and is used for no other release"
        if np.isinf(eta):
            noise = "no noise was added: rows with a positive weight have no guarantee"
        return (
            public_norm,
            public_classes,
            "weights, eta and regularization were chosen without looking at the data",
            f"the coefficients are the exact minimiser: the gradient norm is at most {self.tol:g}",
            noise,
            "noise and coefficients are real numbers: they are computed in double precision",
            "only the coefficients are published, once",
        )

    def _release(
        self, X: Matrix, signs: Vector, weights: Vector, eta: float, data_norm: float
    ) -> tuple[Vector, float]:
        """Draw the noise, minimise, and refuse anything but a minimiser."""
        rng = resolve_generator(self.random_state)
        shift = np.zeros(X.shape[1])
        if np.isfinite(eta):
            shift = 2.0 * data_norm / eta * gamma_sphere_noise(X.shape[1], rng)
        used = weights > 0
        if not used.all():
            X, signs, weights = X[used], signs[used], weights[used]
        objective = LogisticObjective(X, signs, weights, shift, self.regularization)
        try:
            coef = minimise(objective, data_norm, self.tol / 2.0)
        except np.linalg.LinAlgError as error:
            raise SolverError(f"scipy.optimize.minimize (dogleg) failed: {error}") from error
        gradient_norm = float(np.linalg.norm(objective.gradient(coef)))
        if not gradient_norm <= self.tol:
            raise SolverError(
                f"scipy.optimize (dogleg, then hybr) stopped at a gradient norm of"
                f" {gradient_norm:.3g}, above tol = {self.tol:g}, so nothing is released: use a"
                " larger regularization, or a larger eta if the noise dwarfs the data."
            )
        return coef, gradient_norm
