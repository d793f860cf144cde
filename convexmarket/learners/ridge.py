r"""Ridge regression with a guarantee for each seller.

The model minimises the weighted mean of squared errors plus :math:`\lambda\|\theta\|^2`. On the
unit scale, public ranges map features to [0, 1] and labels to [-1, 1]. All parameters are computed
from the epsilons, the shape of X and the ranges (docs/theory/ridge.md, section 7.4).

**Objective perturbation** uses the Huber loss, which is linear for residuals above a threshold T.
The threshold bounds the effect of a row on the model. One public rule determines :math:`\lambda`
(:mod:`.perturbed`), and another rule determines T:

.. math:: T = \min\Big(1, \max\Big(\frac18, \frac1{160}\sqrt{\frac\eta n}\Big)\Big).

With **statistics and output** perturbation, :math:`\lambda` minimises a bound on the excess loss.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import sqrt
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, clone

from convexmarket.allocation.guarantees import weights_for_guarantees
from convexmarket.checks import (
    aligned,
    check_choice,
    check_instance,
    check_nonnegative,
    check_scales,
    is_number,
)
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.learners.domain import (
    TRACE,
    Box,
    Domain,
    Granted,
    Interval,
    Perturbation,
    Range,
    dense_rows,
)
from convexmarket.learners.losses import HuberLoss, lipschitz_risk_constants
from convexmarket.learners.perturbed import ObjectivePerturbation, SecondNoise
from convexmarket.learners.private_learner import PrivateLearner
from convexmarket.learners.ridge_math import (
    NoisyLoss,
    OutputPerturbation,
    StatisticsPerturbation,
    noise_length,
    noisy_loss,
    ridge_risk_constants,
    statistics_sensitivity,
)
from convexmarket.privacy.accounting import check_weights
from convexmarket.privacy.guarantee import check_delta
from convexmarket.privacy.random_sources import RandomSource
from convexmarket.privacy.sensitivity import Sensitivity, ridge_sensitivity

Floats = NDArray[np.float64]
Where: TypeAlias = Literal["auto", "objective", "statistics", "output"]
Weighting: TypeAlias = Literal["granted", "bound", "equal"]
Rounding: TypeAlias = Literal["auto"] | float | None

#: Bounds on the Huber threshold, and the divisor of sqrt(eta / n_coefficients) in its formula.
THRESHOLDS, INFORMATION = (0.125, 1.0), 160.0
#: Candidates for lambda with output perturbation.
LAMBDAS = np.geomspace(1e-4, 1e2, 121)


@dataclass(eq=False, repr=False)
class PersonalizedRidge(RegressorMixin, PrivateLearner):
    r"""Ridge regression with a privacy guarantee for each row.

    Parameters
    ----------
    regularization : "auto" or float, default "auto"
        :math:`\lambda` on the unit scale. If ``"auto"``, a public rule determines it. Zero is valid
        only if used epsilons are infinite.
    perturbation : {"auto", "objective", "statistics", "output"}, default "auto"
        Quantity to which noise is added: the objective, sums over rows, or the model (PDP-OP).
        ``"auto"`` is ``"objective"``, which had the lowest error in most simulations. The noise of
        ``"statistics"`` increases with the square of the number of features.
    weighting : {"granted", "bound", "equal"} or array_like of shape (n_rows,), default "granted"
        If ``"granted"``, weights are proportional to epsilon, which minimises the noise. If
        ``"bound"``, weights within epsilon minimise the bound of :meth:`risk` for ``label_noise``.
        If ``"equal"``, all rows have equal weights and the smallest epsilon. An array of
        nonnegative weights must sum to one and must not depend on the data.
    fit_intercept : bool, default True
        Whether to append a constant feature, which is regularised like the other features. If True,
        features are centred unless the perturbation is ``"output"``.
    max_norm, sensitivity : float or None, default None; {"tight", "paper"}, default "tight"
        For ``"output"``, arguments of :func:`~convexmarket.privacy.sensitivity.ridge_sensitivity`.
    label_noise : float or None, default None
        Public standard deviation of the label noise on the unit scale, for ``weighting="bound"``.
    failure_probability : float, default 0.05
        Probability that the bound of :meth:`risk` fails, for ``weighting="bound"``.
    delta : float, default 0.0
        Probability with which a row's privacy loss can exceed its epsilon. Positive values require
        ``"statistics"`` with an intercept. Gaussian noise then grows with the number of features.
    feature_range, target_range : pairs, or None, default (0, 1) and (-1, 1)
        Public lowest and highest values of the features (numbers or arrays) and of the labels.
        If ``None``, they are computed from the rows, and a
        :class:`~convexmarket.errors.PrivacyLeakWarning` is issued. Predictions are clipped to
        ``target_range``.
    rounding : "auto", float or None, default "auto"
        For ``"output"``, a bound on the lattice step, a power of two. The model on the unit scale
        is rounded to this lattice before exact discrete noise is added. If ``"auto"``, rounding
        increases the noise by less than 1 %, and rows with less than a millionth of the mean weight
        are dropped. If ``None``, or ``"auto"`` without a bound on the error of the solve, the noise
        is in floating point, as in the paper. The last digits of this noise can reveal rows, so a
        :class:`~convexmarket.errors.PrivacyLeakWarning` is issued except in simulations.
    features, epsilon, random_state : default None
        See :class:`PrivateLogisticRegression`. Tables are mapped to the unit box.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_features,), float
        The released model, in the units of the data.
    epsilon_, guarantee_ : ndarray of shape (n_rows,), Guarantee
        Epsilon of each row in nats, which is at most the granted epsilon, and the full guarantee.
    regularization_, rounding_ : float, float or None
        :math:`\lambda` of the fit, and the lattice step, which is None for floating-point noise.
    noise_rate_ : float
        :math:`\eta` of ``"output"`` and ``"statistics"``. The density of each coordinate is
        proportional to :math:`e^{-\eta|z_j|}` on the unit scale. Floating-point
        noise has density :math:`e^{-\eta\|z\|}`, and Gaussian noise has deviation :math:`1/\eta`.

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
    >>> from convexmarket.privacy import Simulation
    >>> model = PersonalizedRidge().fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    >>> bool(np.all(model.epsilon_ <= epsilon)), model.score(X, y) > 0.9
    (True, True)
    """

    regularization: float | Literal["auto"] = "auto"
    _: KW_ONLY
    perturbation: Where = "auto"
    weighting: Weighting | ArrayLike = "granted"
    fit_intercept: bool = True
    max_norm: float | None = None
    sensitivity: Sensitivity = "tight"
    label_noise: float | None = None
    failure_probability: float = 0.05
    delta: float = 0.0
    feature_range: Range | None = (0.0, 1.0)
    target_range: tuple[float, float] | None = (-1.0, 1.0)
    rounding: Rounding = "auto"
    features: PublicFeatures | None = None
    epsilon: ArrayLike | None = None
    random_state: RandomSource = None

    _model = "ridge regression"
    _public = ("feature_range", "target_range")
    _box = True
    _exactness = "rounding"

    def risk(
        self,
        n_features: int,
        *,
        label_noise: float | None = None,
        failure_probability: float = 0.05,
    ) -> tuple[float, float]:
        r"""Compute (mu, sigma) of the bound ``mu * ||a|| + sigma / eta`` in the market's objective.

        For ``"objective"``, the excess loss of models of norm 1 is bounded
        (:func:`~convexmarket.learners.lipschitz_risk_constants`). Otherwise, the error of the model
        on the unit scale is bounded (:func:`~convexmarket.learners.ridge_risk_constants`), where a
        regularization of ``"auto"`` is replaced by 1. With ``"statistics"``, noise N in the feature
        moments and n in the label moments changes the model by at most
        :math:`(\|N\|\,\|\theta\| + \|n\|)/\lambda`.

        Parameters
        ----------
        n_features : int
        label_noise, failure_probability : float
            ``label_noise`` is the value of the constructor by default, or 1 if both are None.
        """
        if label_noise is None:
            label_noise = 1.0 if self.label_noise is None else self.label_noise
        size = n_features + self._appends()
        if self._where() == "objective":
            chances, reach = (failure_probability, failure_probability), self._norm(size)
            return lipschitz_risk_constants(HuberLoss(THRESHOLDS[0]), *chances, reach, size)
        value = 1.0 if isinstance(self.regularization, str) else self.regularization
        terms = value, size, label_noise, failure_probability
        if self._where() == "output":
            exact = self.rounding is not None
            return ridge_risk_constants(*terms, self.max_norm, self.sensitivity, exact=exact)
        mu, _ = ridge_risk_constants(*terms)
        norm = np.sqrt(min(value, size)) / (min(value, size) + value)
        count = n_features * (n_features + 3) // 2 + (n_features + 1) * bool(self.fit_intercept)
        length = sqrt(2.0 * (1.0 + norm**2)) * noise_length(count, failure_probability) / value
        kappa = statistics_sensitivity(n_features, centred=bool(self.fit_intercept))
        return mu, float(kappa * length)

    def _answers(self, values: Floats) -> Floats:
        return values if self.target_range is None else np.clip(values, *self.target_range)

    def _where(self) -> str:
        return "objective" if self.perturbation == "auto" else self.perturbation

    def _appends(self) -> bool:
        given = self.features is not None and self.features.intercept
        return bool(self.fit_intercept) and not (given and self._where() == "objective")

    def _norm(self, size: int) -> float:
        return float(np.sqrt(size) / 2.0 if self.fit_intercept else np.sqrt(size))

    def _check_parameters(self) -> None:
        check_choice("perturbation", self.perturbation, Where)
        for name in ("max_norm", "label_noise", "failure_probability"):
            value = getattr(self, name)
            if not (is_number(value) or (value is None and name != "failure_probability")):
                raise ParameterError(f"{name} must be a number, got {value!r}")
        if self.regularization not in ("auto", 0):
            check_scales(regularization=self.regularization)
        if isinstance(self.rounding, str) and self.rounding != "auto":
            raise ParameterError(f"rounding must be 'auto', a step or None, got {self.rounding!r}")
        check_delta(self.delta)
        usual = {"max_norm": None, "sensitivity": "tight", "rounding": "auto", "delta": 0}
        for name, value in usual.items():
            of = "statistics" if name == "delta" else "output"
            if self._where() != of and getattr(self, name) != value:
                raise ParameterError(
                    f"{name} = {getattr(self, name)!r} is for perturbation={of!r}; pass "
                    f"this perturbation, or {name}={value!r}"
                )

    def _domain(self, n_features: int, X: Any = None, y: Any = None) -> Domain:
        centred = self._where() != "output" and self.fit_intercept
        constant = self._appends() * (0.5 if self._where() == "objective" else 1.0)
        options = {"centre": 0.5 * bool(centred), "constant": constant}
        box = Box.of(self.feature_range, n_features, X, **options)
        labels = Interval.of(self.target_range, y)
        return Domain(box, labels, labels.middle, labels.half)

    def _granted(self, granted: Granted) -> Granted:
        return SecondNoise().granted(granted) if self._where() == "objective" else granted

    def _plan(self, granted: Granted, n_features: int, domain: Domain) -> Perturbation:
        weights, sold = self._weights(granted, n_features), granted.positive
        where, size = self._where(), n_features + self._appends()
        used = weights > 0
        eta = float(np.min(sold[used] / weights[used]))
        if where == "objective" and np.isfinite(eta):
            if self.regularization == 0:
                check_scales(regularization=self.regularization)
            threshold = float(np.clip(np.sqrt(eta / size) / INFORMATION, *THRESHOLDS))
            options: Any = {"data_norm": self._norm(size), "loss": HuberLoss(threshold)}
            options |= {"second": SecondNoise(), "norm": 0.28 * size**0.25}
            return ObjectivePerturbation(weights, sold, self.regularization, size, **options)
        value = self.regularization
        if isinstance(value, str):
            value = self._public_lambda(eta, n_features)
        if np.isfinite(eta):
            check_scales(regularization=value)
            if where == "statistics":
                options = {"centred": bool(self.fit_intercept), "delta": self.delta}
                return StatisticsPerturbation(weights, sold, value, n_features, **options)
        options = {"max_norm": self.max_norm, "sensitivity": self.sensitivity}
        options["rounding"] = self.rounding
        return OutputPerturbation(weights, sold, value, size, **options)

    def _public_lambda(self, eta: float, n_features: int) -> float:
        size = n_features + bool(self.fit_intercept)
        if np.isinf(eta):
            return 1e-6
        if self._where() == "statistics":
            kappa = statistics_sensitivity(n_features, centred=bool(self.fit_intercept))
            return float(2.0 * np.sqrt(size) * kappa / eta)
        options = self.max_norm, self.sensitivity
        kappas = np.array([ridge_sensitivity(x, size, *options) for x in LAMBDAS])
        noise = size / 3.0 * 2.0 * size * (kappas / eta) ** 2
        return float(LAMBDAS[np.argmin(noise + LAMBDAS / 4.0)])

    def _weights(self, granted: Granted, n_features: int) -> Floats:
        if not isinstance(self.weighting, str):
            weights = check_weights(self.weighting, granted.epsilon.size)
            if np.any(weights[~granted.used]):
                raise ParameterError(
                    "weighting is positive in rows that granted an epsilon of 0; set these "
                    "weights to 0, and scale the other weights so that they sum to 1"
                )
            return weights[granted.used]
        check_choice("weighting", self.weighting, Weighting)
        sold = granted.positive
        if self.weighting == "equal":
            return np.full(sold.size, 1.0 / sold.size)
        if self.weighting == "granted" or np.isinf(sold).any():
            return granted.weights()
        if self.label_noise is None:
            raise ParameterError(
                "weighting='bound' needs label_noise, the standard deviation of the label noise; "
                "pass a public value, or use weighting='granted'"
            )
        mu, sigma = self.risk(n_features, failure_probability=self.failure_probability)
        weights = weights_for_guarantees(sold, mu, sigma)[0]
        if self.rounding != "auto":
            return weights
        # Otherwise, a row with a tiny epsilon would determine the noise for all rows.
        nonzero = np.where(weights * weights.size < TRACE, 0.0, weights)
        return np.asarray(nonzero / nonzero.sum())


def expected_loss(
    estimator: PersonalizedRidge,
    X: ArrayLike,
    y: ArrayLike,
    X_test: ArrayLike,
    y_test: ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    penalty: float = 0.0,
) -> NoisyLoss:
    r"""Compute the expected test loss of a model with output perturbation.

    Predictions are not clipped. The result depends on private rows and must not be published.

    Parameters
    ----------
    estimator : PersonalizedRidge
        Estimator with ``perturbation="output"``, or any estimator if used epsilons are infinite.
    X, y, X_test, y_test, epsilon
        Arguments of ``fit``, and test rows.
    penalty : float, default 0
        :math:`\lambda` of the regularised test loss. 0 gives the mean squared error.

    Returns
    -------
    mean, std : float
        Expectation and standard deviation, in squared units of the label.

    Raises
    ------
    DataError
        If a row is outside the public ranges.
    NotSupportedError
        If the estimator does not use output perturbation.

    Examples
    --------
    >>> from convexmarket.learners import PersonalizedRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((500, 2))
    >>> y = X @ [0.5, -0.25]
    >>> ridge = PersonalizedRidge(0.1, perturbation="output")
    >>> loss = expected_loss(ridge, X, y, X, y, epsilon=1.0)
    >>> 0.0 < loss.std < 3 * loss.mean
    True
    """
    check_instance("estimator", estimator, PersonalizedRidge)
    check_nonnegative("penalty", penalty)
    default = estimator.epsilon if epsilon is None else epsilon
    X, y, epsilon = aligned(X=X, y=y, epsilon=default)
    X_test, y_test = aligned(X_test=X_test, y_test=y_test)
    estimator = clone(estimator)
    granted, plan, domain, data = estimator._begun(X, y, epsilon)
    data = data or estimator._read(X, y, granted)
    rows, labels = estimator._checked(*data, granted, domain)
    assert isinstance(domain.rows, Box)
    options: Any = {"box": True, "dtype": np.float64, "y_numeric": True, "reset": False}
    test_rows, test_labels = dense_rows(estimator, X_test, y_test, **options)
    if not isinstance(plan, OutputPerturbation):
        raise NotSupportedError(
            "the expected loss needs a closed form, which exists only for perturbation='output'"
        )
    half = domain.half
    test, truth = domain.rows.rows(test_rows, check=False), (test_labels - domain.middle) / half
    loss = noisy_loss(plan.solve(rows, labels), plan.rate, test, truth, penalty, plan.step)
    return NoisyLoss(loss.mean * half**2, loss.std * half**2)
