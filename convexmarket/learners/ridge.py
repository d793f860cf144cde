r"""Ridge regression by output perturbation, under a guarantee chosen seller by seller.

The released model is the weighted ridge solution plus noise of density :math:`e^{-\eta_z\|z\|}`
(PDP-OP, Algorithm 1 of Acharya, Boenisch, Naidu and Ziani). :class:`PersonalizedRidge` weighs each
row by what its owner granted; the baselines of the paper have the same interface.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from convexmarket.allocation.guarantees import weights_for_guarantees
from convexmarket.errors import DataError, ParameterError, PrivacyLeakWarning
from convexmarket.learners.ridge_math import (
    Matrix,
    NoisyLoss,
    Vector,
    chunks,
    noise_rate,
    noisy_loss,
    ridge_risk_constants,
    sampling_probabilities,
    solve_ridge,
)
from convexmarket.privacy.accounting import Guarantee, check_weights
from convexmarket.privacy.noise import RandomSource, gamma_sphere_noise, resolve_generator
from convexmarket.privacy.sensitivity import Sensitivity, ridge_sensitivity

__all__ = [
    "NonPersonalizedRidge",
    "NonPrivateRidge",
    "PersonalizedRidge",
    "SampledRidge",
    "expected_loss",
]

Range: TypeAlias = tuple[ArrayLike, ArrayLike]

RANGE_SLACK = 1e-12  # of the range's width; rows scaled to it in floating point may exceed it


@dataclass(frozen=True, eq=False)
class Domain:
    """The public box that rows and labels lie in, mapped to [0, 1]^d and [-1, 1]."""

    low: Vector
    width: Vector
    centre: float
    half: float

    def unit_rows(self, X: Matrix) -> UnitRows:
        """Return the rows on the unit scale, computed when they are asked for."""
        return UnitRows(X, self)

    def unit_labels(self, y: Vector) -> Vector:
        """Return the labels on the unit scale."""
        return (y - self.centre) / self.half


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Rows on the unit scale, a slice at a time, so that no scaled copy of the data is kept."""

    X: Matrix
    domain: Domain

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and of features."""
        return self.X.shape

    def __getitem__(self, rows: slice) -> Matrix:
        return (self.X[rows] - self.domain.low) / self.domain.width


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a release decides without looking at the data."""

    weights: Vector
    rate: float
    epsilon: Vector


class _RidgeRelease(RegressorMixin, BaseEstimator):
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
        try:
            checked = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        except ValueError as error:
            raise DataError(str(error)) from error
        X, y = (np.asarray(part, dtype=np.float64) for part in checked)
        granted = _checked_epsilon(epsilon, y.size)
        low, width = self._features(X)
        bottom, top = self._targets(y)
        domain = Domain(low, width, (bottom + top) / 2.0, (top - bottom) / 2.0)
        _check_rows(domain.unit_rows(X))
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
            _warn("feature_range")
            low, high = X.min(axis=0), X.max(axis=0)
            low = np.where(high > low, low, high - 1.0)  # a constant column becomes one
            return low, high - low
        low, high = (_per_feature(bound, X.shape[1]) for bound in self.feature_range)
        return low, _positive_width("feature_range", low, high)

    def _targets(self, y: Vector) -> tuple[float, float]:
        """Return the public range of the labels."""
        if self.target_range is None:
            _warn("target_range")
            low, high = float(y.min()), float(y.max())
            return (low, high) if high > low else (low - 1.0, high + 1.0)
        low, high = (float(bound) for bound in self.target_range)
        _positive_width("target_range", np.array([low]), np.array([high]))
        return low, high

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
            noise = "no noise was added: there is no guarantee"
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


class PersonalizedRidge(_RidgeRelease):
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
        kept = np.minimum(weights * kappa * rate, epsilon, where=used, out=np.zeros_like(weights))
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


class NonPersonalizedRidge(_RidgeRelease):
    """Ridge regression that gives everybody what the most demanding row asks for.

    The baseline of Acharya et al., section 4.1: equal weights, and noise for the smallest epsilon.

    Parameters
    ----------
    alpha, bound, sensitivity, feature_range, target_range, random_state
        As for :class:`PersonalizedRidge`, which describes the fitted attributes too.

    Examples
    --------
    >>> X, y = np.full((3, 1), 0.5), np.zeros(3)
    >>> NonPersonalizedRidge(random_state=0).fit(X, y, epsilon=[1.0, 2.0, 3.0]).epsilon_
    array([1., 1., 1.])
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        bound: float | None = None,
        sensitivity: Sensitivity = "tight",
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        random_state: RandomSource = None,
    ) -> None:
        self.alpha = alpha
        self.bound = bound
        self.sensitivity = sensitivity
        self.feature_range = feature_range
        self.target_range = target_range
        self.random_state = random_state

    def _plan(self, epsilon: Vector, n_features: int, rng: np.random.Generator) -> Plan:
        least = np.full_like(epsilon, epsilon.min())
        weights = np.full_like(epsilon, 1.0 / epsilon.size)
        return Plan(weights, noise_rate(weights, least, self._kappa(n_features)), least)


class SampledRidge(_RidgeRelease):
    r"""Ridge regression on a sample that leaves out demanding rows more often.

    The baseline of Jorgensen, Yu and Cormode (2015): row i is kept with probability
    :math:`(e^{\varepsilon_i}-1)/(e^t-1)`, or surely if :math:`\varepsilon_i \ge t`, and the sample
    goes into a mechanism that guarantees t to everybody.

    Parameters
    ----------
    threshold : {"max", "mean"} or float, default "max"
        t: the largest epsilon, their mean, or a positive number.
    normalization : {"rows", "sample"}, default "rows"
        ``"rows"``: a row that is not sampled is replaced by a null row, so that weights stay
        1 / n_rows and the noise does not depend on the size of the sample; then the guarantee is
        proven. ``"sample"``: weights and noise follow the size of the sample, as in the
        experiments of Acharya et al.; replacing a row is then not covered by the argument of
        amplification by sampling, and only t is guaranteed.
    alpha, bound, sensitivity, feature_range, target_range, random_state
        As for :class:`PersonalizedRidge`, which describes the fitted attributes too.

    Notes
    -----
    Under ``"rows"``, let P be the release's distribution, Q and Q' that with the row and with its
    replacement in the sample, and N that with the null row. All three are within a factor
    :math:`e^t` of each other, so :math:`Q - Q' \le (e^t-1)\min(N, Q')`, whence
    :math:`P = (1-p)N + pQ \le (1 + p(e^t-1))\,P'`, and that is :math:`e^{\varepsilon_i}`.

    Which rows were sampled, and under ``"sample"`` their number, hence ``noise_rate_``, is not to
    be published.

    Examples
    --------
    >>> X, y = np.full((3, 1), 0.5), np.zeros(3)
    >>> SampledRidge(threshold="mean", random_state=0).fit(X, y, epsilon=[1.0, 2.0, 3.0]).epsilon_
    array([1., 2., 2.])
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        threshold: Literal["max", "mean"] | float = "max",
        normalization: Literal["rows", "sample"] = "rows",
        bound: float | None = None,
        sensitivity: Sensitivity = "tight",
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        random_state: RandomSource = None,
    ) -> None:
        self.alpha = alpha
        self.threshold = threshold
        self.normalization = normalization
        self.bound = bound
        self.sensitivity = sensitivity
        self.feature_range = feature_range
        self.target_range = target_range
        self.random_state = random_state

    def _plan(self, epsilon: Vector, n_features: int, rng: np.random.Generator) -> Plan:
        threshold = self._threshold(epsilon)
        kept = rng.random(epsilon.size) < sampling_probabilities(epsilon, threshold)
        if self.normalization == "rows":
            divisor, guaranteed = epsilon.size, np.minimum(epsilon, threshold)
        elif self.normalization == "sample":
            divisor, guaranteed = int(kept.sum()), np.full_like(epsilon, threshold)
        else:
            raise ParameterError(
                f"normalization must be 'rows' or 'sample', not {self.normalization!r}."
            )
        if not divisor:  # nothing was sampled: the zero model, which needs no noise
            return Plan(kept.astype(np.float64), np.inf, guaranteed)
        rate = threshold * divisor / self._kappa(n_features)
        return Plan(kept / divisor, float(rate), guaranteed)

    def _threshold(self, epsilon: Vector) -> float:
        if self.threshold in ("max", "mean"):
            threshold = float(epsilon.max() if self.threshold == "max" else epsilon.mean())
        elif isinstance(self.threshold, str):
            raise ParameterError(
                f"threshold must be 'max', 'mean' or a positive number, not {self.threshold!r}."
            )
        else:
            threshold = float(self.threshold)
        if not 0 < threshold < np.inf:
            raise ParameterError(f"the threshold must be positive and finite, not {threshold!r}.")
        return threshold

    def _assumptions(self) -> tuple[str, ...]:
        return ("which rows were sampled is kept secret, and so is their number",)


class NonPrivateRidge(_RidgeRelease):
    """Ridge regression without noise and without a guarantee: what privacy is compared with.

    Parameters
    ----------
    alpha : float, default 1.0
        Nonnegative; zero is least squares, of least norm where it is not unique.
    feature_range, target_range
        As for :class:`PersonalizedRidge`, which describes the fitted attributes too.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0]]), np.array([0.0, 0.5])
    >>> NonPrivateRidge(alpha=0.0).fit(X, y).coef_.round(6)
    array([0.5])
    """

    bound = None
    sensitivity = "tight"
    random_state = 0

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
    ) -> None:
        self.alpha = alpha
        self.feature_range = feature_range
        self.target_range = target_range

    def fit(self, X: ArrayLike, y: ArrayLike, *, epsilon: ArrayLike = np.inf) -> Self:
        """Solve, and release the solution as it is; ``epsilon`` is not kept to.

        Parameters
        ----------
        X, y, epsilon
            As for :meth:`PersonalizedRidge.fit`.

        Returns
        -------
        self
        """
        return super().fit(X, y, epsilon=epsilon)

    def _plan(self, epsilon: Vector, n_features: int, rng: np.random.Generator) -> Plan:
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise ParameterError(f"alpha must be nonnegative and finite, not {self.alpha!r}.")
        size = epsilon.size
        return Plan(np.full(size, 1.0 / size), np.inf, np.full(size, np.inf))


def expected_loss(
    estimator: _RidgeRelease,
    X: ArrayLike,
    y: ArrayLike,
    X_test: ArrayLike,
    y_test: ArrayLike,
    *,
    epsilon: ArrayLike = np.inf,
    penalty: float = 0.0,
    samples: int = 200,
    random_state: RandomSource = 0,
) -> NoisyLoss:
    r"""Test loss that an estimator is to be expected to have, over its own noise.

    Nothing is released: the result depends on the private rows, without a guarantee.

    Parameters
    ----------
    estimator : PersonalizedRidge, NonPersonalizedRidge, SampledRidge or NonPrivateRidge
        Fitted or not; it is left as it is.
    X, y, epsilon
        What it would be fitted on.
    X_test, y_test : array_like
        Rows to measure the loss on.
    penalty : float, default 0
        :math:`\lambda` of the regularised test loss; 0 is the mean squared error.
    samples : int, default 200
        How often a :class:`SampledRidge` draws its sample. The noise is integrated in closed form,
        so the other estimators need no simulation.
    random_state : default 0
        Source of these draws.

    Returns
    -------
    NoisyLoss
        In squared units of the label.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((500, 2))
    >>> y = X @ [0.5, -0.25]
    >>> loss = expected_loss(PersonalizedRidge(0.1), X, y, X, y, epsilon=1.0)
    >>> 0.0 < loss.std < 3 * loss.mean
    True
    """
    if samples < 1:
        raise ParameterError(f"samples must be at least 1, not {samples!r}.")
    estimator = clone(estimator)
    X, labels, granted, domain = estimator._prepare(X, y, epsilon)
    rows = domain.unit_rows(X)
    test = domain.unit_rows(np.asarray(X_test, dtype=np.float64))[:]
    truth = domain.unit_labels(np.asarray(y_test, dtype=np.float64))
    rng = resolve_generator(random_state)
    losses = []
    for _ in range(samples if isinstance(estimator, SampledRidge) else 1):
        plan = estimator._plan(granted, X.shape[1], rng)
        model = solve_ridge(rows, labels, plan.weights, estimator.alpha)
        losses.append(noisy_loss(model, plan.rate, test, truth, penalty))
    means = np.array([loss.mean for loss in losses]) * domain.half**2
    stds = np.array([loss.std for loss in losses]) * domain.half**2
    # The law of total variance: over the noise given the sample, and over the sample.
    return NoisyLoss(
        mean=float(means.mean()),
        std=float(np.sqrt(np.mean(stds**2) + means.var())),
        simulation_error=float(means.std() / np.sqrt(means.size)),
    )


def _checked_epsilon(epsilon: ArrayLike, n_rows: int) -> Vector:
    """Return one positive guarantee per row."""
    array = np.asarray(epsilon, dtype=np.float64)
    if array.ndim == 0:
        array = np.full(n_rows, float(array))
    if array.shape != (n_rows,):
        raise ParameterError(
            f"epsilon has shape {array.shape} for {n_rows} rows; give one number per row, or one"
            " for all."
        )
    if not np.all(array > 0):
        raise ParameterError(
            "epsilon must be positive: leave out the rows of those who sell no privacy."
        )
    return array


def _per_feature(bound: ArrayLike, n_features: int) -> Vector:
    array = np.asarray(bound, dtype=np.float64)
    if array.shape not in ((), (n_features,)):
        raise ParameterError(
            f"feature_range has a bound of shape {array.shape} for {n_features} features; give a"
            " number, or one per feature."
        )
    return np.broadcast_to(array, n_features)


def _positive_width(name: str, low: Vector, high: Vector) -> Vector:
    width = high - low
    if not (np.all(np.isfinite(width)) and np.all(width > 0)):
        raise ParameterError(f"{name} must be finite with low < high, not ({low}, {high}).")
    return width


def _check_rows(rows: UnitRows) -> None:
    """Refuse rows outside their domain, a few thousand at a time."""
    outside = 0
    for part in chunks(rows.shape[0]):
        unit = rows[part]
        if unit.min() < -RANGE_SLACK or unit.max() > 1.0 + RANGE_SLACK:
            bad = (unit < -RANGE_SLACK) | (unit > 1.0 + RANGE_SLACK)
            outside += int(np.count_nonzero(bad.any(axis=1)))
    if outside:
        raise DataError(
            f"{outside} of {rows.shape[0]} rows lie outside feature_range: pass a wider public"
            " range, or clip each row to it."
        )


def _warn(name: str) -> None:
    warnings.warn(
        f"{name} was computed from the private rows, so no guarantee covers it: pass a public"
        " range.",
        PrivacyLeakWarning,
        stacklevel=5,
    )
