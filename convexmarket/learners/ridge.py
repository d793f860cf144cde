r"""Ridge regression by output perturbation, under a guarantee chosen seller by seller.

The released model is the weighted ridge solution plus noise of density :math:`e^{-\eta_z\|z\|}`
(PDP-OP, Algorithm 1 of Acharya, Boenisch, Naidu and Ziani). :class:`PersonalizedRidge` weighs each
row by what its owner granted; the baselines of the paper are in
:mod:`.ridge_baselines`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from convexmarket.allocation.guarantees import weights_for_guarantees
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.ridge_domain import (
    RANGE_SLACK,
    Domain,
    Range,
    check_rows,
    checked_epsilon,
    is_number,
    pair_of_bounds,
    per_feature,
    positive_width,
    warn_of_leak,
)
from convexmarket.learners.ridge_math import (
    Matrix,
    Vector,
    noise_rate,
    ridge_risk_constants,
    solve_ridge,
)
from convexmarket.privacy.accounting import Guarantee, check_weights
from convexmarket.privacy.noise import RandomSource, gamma_sphere_noise, resolve_generator
from convexmarket.privacy.sensitivity import Sensitivity, ridge_sensitivity

__all__ = ["PersonalizedRidge", "Plan", "RidgeRelease"]

SMALLEST_RATE = 1e-280  # of the noise, which would overflow below it


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a release decides without looking at the data."""

    weights: Vector
    rate: float
    epsilon: Vector


class RidgeRelease(RegressorMixin, BaseEstimator):
    """What every estimator here shares: the domain, the fit, the guarantee, the prediction."""

    alpha: float
    bound: float | None
    sensitivity: Sensitivity
    feature_range: Range | None
    target_range: tuple[float, float] | None
    random_state: RandomSource

    @abstractmethod
    def _plan(self, epsilon: Vector, n_features: int, rng: np.random.Generator) -> Plan:
        """Decide weights and noise from the guarantees alone."""

    def _assumptions(self) -> tuple[str, ...]:
        """Say what the guarantee of this estimator rests on, beyond what all share."""
        return ()

    def fit(self, X: ArrayLike, y: ArrayLike, *, epsilon: ArrayLike) -> Self:
        """Solve, add the noise, and keep only what may be published.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
            Rows within ``feature_range``.
        y : array_like of shape (n_rows,)
            Labels within ``target_range``.
        epsilon : array_like of shape (n_rows,), or float
            Guarantee of each row, or one for all: positive, in nats, chosen without looking at
            the data. Infinity is a row that asks for none.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If a parameter or epsilon is out of its range.
        DataError
            If the data are malformed, or a row or a label lies outside its public range.
        """
        X, labels, granted, domain = self._prepare(X, y, epsilon)
        rng = resolve_generator(self.random_state)
        plan = self._plan(granted, X.shape[1], rng)
        if plan.rate < SMALLEST_RATE:
            raise ParameterError(
                f"alpha = {self.alpha!r} and an epsilon of {granted.min():g} need noise beyond the"
                " range of floating point: use a larger alpha, or leave out the smallest epsilon."
            )
        model = solve_ridge(domain.unit_rows(X), labels, plan.weights, self.alpha)
        if np.isfinite(plan.rate):
            model = model + gamma_sphere_noise(model.size, rng) / plan.rate
        # Only now, so that a failed fit leaves no half of a model behind.
        self.coef_ = domain.half * model / domain.width
        self.intercept_ = float(domain.centre - self.coef_ @ domain.low)
        self.noise_rate_ = plan.rate
        self.guarantee_ = self._guarantee(plan)
        self.epsilon_ = self.guarantee_.epsilon
        return self

    def predict(self, X: ArrayLike) -> Vector:
        """Return ``X @ coef_ + intercept_``.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        rows = np.asarray(validate_data(self, X, dtype=np.float64, reset=False))
        return np.asarray(rows @ self.coef_ + self.intercept_)

    def _prepare(
        self, X: ArrayLike, y: ArrayLike, epsilon: ArrayLike
    ) -> tuple[Matrix, Vector, Vector, Domain]:
        """Return the rows, the labels on the unit scale, the guarantees and the domain."""
        for name in ("alpha", "bound", "label_noise", "delta"):
            value = getattr(self, name, None)
            if not (is_number(value) or (value is None and name != "alpha")):
                raise ParameterError(f"{name} must be a number, not {value!r}.")
        try:
            checked = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        except ValueError as error:
            raise DataError(str(error)) from error
        X, y = (np.asarray(part, dtype=np.float64) for part in checked)
        granted = checked_epsilon(epsilon, y.size)
        low, width = self._features(X)
        bottom, top = self._targets(y)
        domain = Domain(low, width, (bottom + top) / 2.0, (top - bottom) / 2.0)
        check_rows(domain.unit_rows(X))
        labels = domain.unit_labels(y)
        outside = np.count_nonzero(np.abs(labels) > 1.0 + RANGE_SLACK)
        if outside:
            raise DataError(
                f"{outside} of {y.size} labels lie outside target_range = ({bottom:g}, {top:g}):"
                " pass a wider public range, or clip the labels to it one by one."
            )
        return X, labels, granted, domain

    def _features(self, X: Matrix) -> tuple[Vector, Vector]:
        """Return low and width of every column."""
        if self.feature_range is None:
            warn_of_leak("feature_range")
            low, high = X.min(axis=0), X.max(axis=0)
            low = np.where(high > low, low, high - 1.0)  # a constant column becomes one
            return low, high - low
        bounds = pair_of_bounds("feature_range", self.feature_range)
        low, high = (per_feature(bound, X.shape[1]) for bound in bounds)
        return low, positive_width("feature_range", low, high)

    def _targets(self, y: Vector) -> tuple[float, float]:
        """Return the public range of the labels."""
        if self.target_range is None:
            warn_of_leak("target_range")
            low, high = float(y.min()), float(y.max())
            return (low, high) if high > low else (low - 1.0, high + 1.0)
        bottom, top = pair_of_bounds("target_range", self.target_range)
        if bottom.size != 1 or top.size != 1:
            raise ParameterError(f"target_range must be two numbers, not {self.target_range!r}.")
        positive_width("target_range", bottom, top)
        return float(bottom), float(top)

    def _guarantee(self, plan: Plan) -> Guarantee:
        ranges = "rows and labels lie within feature_range and target_range, which are public"
        leaking = [
            name for name in ("feature_range", "target_range") if getattr(self, name) is None
        ]
        if leaking:
            ranges = f"VIOLATED: {' and '.join(leaking)} computed from the private rows"
        noise = "the noise comes from a fresh seed of the operating system, and is kept nowhere"
        if self.random_state is not None:
            noise = "the random_state that was passed stays secret and is used for no other release"
        if np.isinf(plan.rate):
            noise = "no noise was added: rows with a positive weight have no guarantee"
        assumptions = (
            ranges,
            *self._assumptions(),
            "epsilon and all parameters were chosen without looking at the data",
            noise,
            "noise and coefficients are real numbers: they are computed in double precision",
            "only the coefficients are published, once",
        )
        if self.bound is not None:
            assumptions += (
                f"the minimiser without regularisation has norm at most {self.bound:g} on this"
                " data set and on every neighbour of it, and that is public",
            )
        return Guarantee(
            epsilon=plan.epsilon,
            delta=0.0,
            mechanism="ridge regression by output perturbation",
            accounting=f"{self.sensitivity} sensitivity",
            assumptions=assumptions,
        )

    def _kappa(self, n_features: int) -> float:
        """Return how far one row can move the model, per unit of weight."""
        return ridge_sensitivity(self.alpha, n_features, self.bound, self.sensitivity)


class PersonalizedRidge(RidgeRelease):
    r"""Ridge regression whose coefficients keep what was promised to each row (PDP-OP).

    Parameters
    ----------
    alpha : float, default 1.0
        :math:`\lambda`, positive. The loss is the weighted mean of squared errors plus
        ``alpha * ||coef||**2``, on the unit scale.
    bound : float or None, default None
        Public bound B on the norm of the minimiser without regularisation, on the unit scale, for
        this data set and every neighbour (Theorem 3.4). ``None`` needs no such knowledge
        (Theorem 3.2).
    weights : {"proportional", "optimal"} or array_like of shape (n_rows,), default "proportional"
        ``"proportional"`` to epsilon, as in the paper: the least noise. ``"optimal"`` minimises
        Theorem 3.6's bound under the same guarantees, which trades noise for spread and needs
        ``label_noise``. Or weights of your own, nonnegative and summing to one, chosen without
        looking at the data.
    sensitivity : {"tight", "paper"}, default "tight"
        How far a row can move the model: :func:`~convexmarket.privacy.ridge_sensitivity`. For
        the same guarantees ``"tight"`` adds less noise.
    label_noise : float or None, default None
        Public standard deviation of the labels' noise, on the unit scale; for
        ``weights="optimal"``.
    delta : float, default 0.05
        Chance that Theorem 3.6's bound fails; for ``weights="optimal"``.
    feature_range : pair, or None, default (0, 1)
        Public lowest and highest values of the features, numbers or one per feature; mapped to
        [0, 1]. ``None`` takes them from the private rows, with a
        :class:`~convexmarket.errors.PrivacyLeakWarning`.
    target_range : pair of floats, or None, default (-1, 1)
        The same for the labels; mapped to [-1, 1].
    random_state : None, int, SeedSequence, Generator or RandomState, default None
        Source of the noise. ``None`` takes a fresh seed from the operating system. With a fixed
        seed the guarantee holds only towards those who do not know it, and for one release.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The released model, in the units of the data.
    intercept_ : float
        What the ranges shift: zero on the unit scale. A fitted intercept is a constant column of
        X, which is regularised and perturbed like the others.
    epsilon_ : ndarray of shape (n_rows,)
        Guarantee of each row, in nats; at most what was granted, and just that under
        proportional weights.
    guarantee_ : Guarantee
        The same with its assumptions in words.
    noise_rate_ : float
        :math:`\eta` of the paper: the noise has density :math:`e^{-\eta\|z\|}` on the unit scale.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    The solution without noise is not kept.

    References
    ----------
    Acharya, Boenisch, Naidu and Ziani, Personalized Differential Privacy for Ridge Regression,
    Algorithm 1, Theorems 3.2, 3.4 and 3.6.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((1000, 2))
    >>> y = X @ [0.5, -0.25]
    >>> epsilon = rng.uniform(0.5, 2.0, size=1000)
    >>> model = PersonalizedRidge(alpha=0.1, random_state=0).fit(X, y, epsilon=epsilon)
    >>> model.coef_.shape, bool(np.all(model.epsilon_ <= epsilon))
    ((2,), True)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        bound: float | None = None,
        weights: Literal["proportional", "optimal"] | ArrayLike = "proportional",
        sensitivity: Sensitivity = "tight",
        label_noise: float | None = None,
        delta: float = 0.05,
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        random_state: RandomSource = None,
    ) -> None:
        self.alpha = alpha
        self.bound = bound
        self.weights = weights
        self.sensitivity = sensitivity
        self.label_noise = label_noise
        self.delta = delta
        self.feature_range = feature_range
        self.target_range = target_range
        self.random_state = random_state

    def _plan(self, epsilon: Vector, n_features: int, rng: np.random.Generator) -> Plan:
        kappa = self._kappa(n_features)
        weights = self._weights(epsilon, n_features)
        rate = noise_rate(weights, epsilon, kappa)
        used = weights > 0
        kept = np.zeros_like(weights)  # a row without weight loses nothing
        kept[used] = np.minimum(weights[used] * kappa * rate, epsilon[used])
        return Plan(weights, rate, kept)

    def _weights(self, epsilon: Vector, n_features: int) -> Vector:
        if not isinstance(self.weights, str):
            return check_weights(self.weights, epsilon.size)
        if self.weights not in ("proportional", "optimal"):
            raise ParameterError(
                f"weights must be 'proportional', 'optimal' or an array, not {self.weights!r}."
            )
        if not np.all(np.isfinite(epsilon)):
            return np.isinf(epsilon) / np.count_nonzero(np.isinf(epsilon))
        if self.weights == "proportional":
            return np.asarray(epsilon / epsilon.sum())
        if self.label_noise is None:
            raise ParameterError(
                "weights='optimal' needs label_noise, the standard deviation of the labels' noise:"
                " pass what is publicly known about it, or use weights='proportional'."
            )
        mu, sigma = ridge_risk_constants(
            self.alpha, n_features, self.label_noise, self.delta, self.bound, self.sensitivity
        )
        return weights_for_guarantees(epsilon, mu, sigma)[0]
