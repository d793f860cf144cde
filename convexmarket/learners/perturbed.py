r"""Linear models trained by objective perturbation, which minimises a noisy objective exactly.

.. math:: \sum_i a_i \ell(w^\top x_i; y_i) + b'^\top w + \tfrac{\Lambda}{2}\|w\|^2,

where :math:`b' = (2LR/\eta)\,b` and :math:`b` has a density proportional to :math:`e^{-\|b\|}`.
Rows have norm at most R. The loss is convex and L-Lipschitz with curvature at most c. Anjarlekar,
Etesami and Srikant (Algorithm 1, Eq. 12) use the logistic loss and R = 1. The guarantee of row i is
at most :math:`a_i\eta + \log(1 + c\,a_iR^2/\Lambda)`, plus the cost of a second noise that covers
the error of the minimiser (:mod:`convexmarket.privacy.accounting`).

**A public rule for Lambda.** With regularization "auto", Lambda is
:math:`2LR\sqrt{n(n+1)}/(\eta W)` for models of norm :math:`W = \frac sR(\eta/n)^{1/4}`, or larger
if the second noise requires it (docs/theory/objective-perturbation.md). If eta depends on Lambda,
eta and Lambda are computed from one equation.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.base import ClassifierMixin, RegressorMixin

from convexmarket.checks import aligned, check_choice, check_positives, check_scales
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import ParameterError, SolverError
from convexmarket.learners.domain import Ball, Classes, Domain, Granted, Interval, Perturbation
from convexmarket.learners.losses import (
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    Loss,
    lipschitz_risk_constants,
)
from convexmarket.learners.minimiser import (
    PartedObjective,
    PartedRows,
    PerturbedObjective,
    minimise,
)
from convexmarket.learners.private_learner import PrivateLearner
from convexmarket.privacy.accounting import (
    Accounting,
    calibrate_eta,
    default_solver_epsilon,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.exact_noise import gamma_sphere_draw, gamma_sphere_error
from convexmarket.privacy.lattice import lattice_blur, lattice_release
from convexmarket.privacy.random_sources import RandomSource, gamma_sphere_log_density

Floats = NDArray[np.float64]
Calibration: TypeAlias = Literal["total", "noise"]

ROUNDINGS = 4  # number of roundings of a coordinate of the noise after its draw
#: Share of a row's epsilon that the second noise can use before the row is dropped.
LARGEST_SHARE = 0.03
LEAST_OF_MEAN = 0.01  # share of the mean epsilon above which a row is never dropped
BELOW = 2.0**-50  # eta is reduced by this share to cover rounding errors
UNIT = 2.0**-53
#: Largest standard deviation of the second noise in a margin or in a label, if Lambda is "auto".
BLUR_OF_MARGINS, BLUR_OF_LABELS = 0.1, 0.003
RANGE = 1e-90, 1e90  # bounds on Lambda if it is "auto"
NO_NOISE = 1e-6  # Lambda of a fit without noise, divided by the curvature of the loss


@dataclass(frozen=True)
class SecondNoise:
    """The learner's parameters ``tol`` and ``solver_epsilon``, which determine the second noise."""

    tol: Literal["auto"] | float = "auto"
    solver_epsilon: Literal["auto"] | float | None = "auto"

    def check(self) -> None:
        """Raise a ParameterError if a parameter is out of its range."""
        tol, cost = self.tol, self.solver_epsilon
        if tol != "auto":
            (check_positives if cost is None else check_scales)(tol=tol)
        if cost not in ("auto", None):
            check_scales(solver_epsilon=cost)

    def unit(self, n_rows: int, eta: float = np.inf) -> float:
        """Return the tolerance for rows of norm 1, slopes up to 1 and at most 10,000 features."""
        if not isinstance(self.tol, str):
            return self.tol
        return 1e-12 + UNIT * (8.0 * n_rows + 2e6 / eta)

    def granted(self, granted: Granted) -> Granted:
        """Drop rows for which exact noise is too expensive, and return the remaining epsilons."""
        if self.solver_epsilon != "auto" or not np.isfinite(granted.epsilon).all():
            return granted
        n_rows = granted.positive.size
        least = min(self.unit(n_rows) / LARGEST_SHARE**2, LEAST_OF_MEAN / n_rows)
        worth = np.where(granted.weights() >= least, granted.positive, 0.0)
        return Granted(granted.spread(worth))

    def paid(self, sold: Floats, unit: float) -> float:
        """Return the epsilon that the second noise uses, or 0 if no second noise is added."""
        asking = sold[np.isfinite(sold)]
        if self.solver_epsilon is None or not asking.size:
            return 0.0
        cost = self.solver_epsilon
        return default_solver_epsilon(asking, unit) if isinstance(cost, str) else cost


class ObjectivePerturbation(Perturbation):
    """Objective perturbation of a linear model. ``norm`` is the scale s of the rule for Lambda."""

    def __init__(
        self,
        weights: Floats,
        sold: Floats,
        regularization: float | str,
        n_features: int,
        *,
        data_norm: float,
        loss: Loss,
        second: SecondNoise,
        accounting: Accounting = "general",
        cap: float | None = None,
        calibration: Calibration = "total",
        norm: float = 1.0,
    ) -> None:
        used = weights > 0
        eta = float(np.min(sold[used] / weights[used]))
        tol = unit = second.unit(weights.size, eta)
        paid = second.paid(sold[used], unit)
        if isinstance(second.tol, str):
            tol *= loss.lipschitz * data_norm
        if isinstance(regularization, str):
            regularization = public_regularization(
                weights[used], sold[used] - paid, n_features, data_norm, loss, norm
            )
            if paid:
                seen = BLUR_OF_MARGINS if loss.classifies else BLUR_OF_LABELS
                least = 2.0 * np.sqrt(2.0 * n_features) * data_norm * tol / (seen * paid)
                regularization = max(regularization, float(least))
        terms = (regularization, data_norm, accounting, cap, paid, loss.curvature)
        if calibration == "total":
            eta = calibrate_eta(weights, eta * (1.0 - BELOW), *terms)
        epsilon = np.where(used, objective_perturbation_guarantee(weights, eta, *terms), 0.0)
        if calibration == "total" and np.isfinite(eta):
            epsilon = np.minimum(epsilon, sold)
        distance = tol / regularization  # distance of the solver's point from the minimiser
        self.weights, self.epsilon, self.regularization = weights, epsilon, regularization
        self.data_norm, self.loss, self.accounting = data_norm, loss, accounting
        self.eta, self.tol, self.paid = eta, tol, paid  # epsilon that the second noise uses
        self.unit = 2.0 * loss.lipschitz * data_norm / eta  # scale of the noise in the gradient
        self.noisy, self.exact = bool(np.isfinite(eta)), second.solver_epsilon is not None
        #: Lattice step and scale of the second noise, or None if there is no second noise.
        self.blur = lattice_blur(distance, n_features, paid) if paid else None
        kind = "exact noise on a lattice" if paid else "noise in plain floating point"
        self.name = "by objective perturbation" + f", {kind}" * self.noisy
        if paid:
            self.assumptions = (
                f"the gradient norm is at most {tol:g}; a second noise, exact on a lattice, covers"
                f" the distance of at most {distance:.3g} to the minimiser and uses {paid:.3g} of"
                " each row's epsilon",
                "arithmetic follows IEEE 754; log1p, sin, cos and hypot are accurate to two units"
                " in the last place",
                "the solver also succeeds on neighbouring data; the failure of a fit is not "
                "covered",
            )
        else:
            self.assumptions = (
                "the coefficients are the exact minimiser (the gradient norm is at most "
                f"{tol:g}), or digits below {2.0 * distance:.3g} are not read",
                "noise and coefficients, computed in double precision, are treated as real numbers",
            )

    def release(
        self, X: Floats | PartedRows, y: Floats, rng: np.random.Generator
    ) -> tuple[Floats, dict[str, Any]]:
        """Return the noisy minimiser and its fitted attributes, or raise a SolverError."""
        weights, n_features = self.weights, X.shape[1]
        if not (used := weights > 0).all():  # a weight can round to zero
            X, y, weights = X[used], y[used], weights[used]
        shift = np.zeros(n_features)
        if self.noisy:
            shift = self.unit * gamma_sphere_draw(n_features, rng)
        kind: Any = PartedObjective if isinstance(X, PartedRows) else PerturbedObjective
        objective = kind(X, y, weights, shift, self.regularization, self.loss)
        slack, step = 0.0, None
        if self.blur is not None:
            slack = gamma_sphere_error(ROUNDINGS) * float(np.linalg.norm(shift))
        coef, bound = self._minimum(objective, slack)
        if self.blur is not None:
            step, bound = self.blur[0], self.tol  # public, unlike the computed bound
            try:
                coef = lattice_release(coef, *self.blur, rng)
            except ParameterError as error:
                raise SolverError(
                    f"the coefficients cannot be rounded to steps of {step:g}, so nothing is "
                    "released; use a larger eta (buy more privacy), regularization or tol"
                ) from error
        return coef, {
            "eta_": self.eta,
            "regularization_": self.regularization,
            "rounding_": step,
            "gradient_norm_": bound,
            "tol_": self.tol,
            "solver_epsilon_": self.paid,
        }

    def _minimum(self, objective: PerturbedObjective, slack: float) -> tuple[Floats, float]:
        """Return an approximate minimiser and a proven bound on the norm of its gradient."""
        coef = minimise(objective, self.tol / 2.0)
        computed, rounding = objective.gradient_norm(coef)
        bound = computed + rounding + slack
        if not bound <= self.tol:
            raise SolverError(
                f"Newton's method stopped at a gradient norm of {computed:.3g}, with a rounding "
                f"error of at most {rounding + slack:.3g}: above tol = {self.tol:g}, so nothing is "
                "released; use a larger regularization, tol or eta"
            )
        return coef, bound

    def noise_effect(self, second: Floats) -> float:
        """Compute the standard deviation of noisy predictions at half the loss curvature."""
        gradient = self.unit * np.sqrt(second.size + 1.0)
        bent = second * self.loss.curvature / 2.0
        return float(gradient * np.sqrt(np.sum(second / (bent + self.regularization) ** 2)))


def public_regularization(
    weights: ArrayLike,
    sold: ArrayLike,
    n_features: int,
    data_norm: float,
    loss: Loss,
    norm: float,
) -> float:
    """Compute Lambda from public quantities. ``norm`` is the rule's scale s for rows of norm 1."""
    shares, bounds = np.asarray(weights, dtype=np.float64), np.asarray(sold, dtype=np.float64)
    if np.all(shares == shares[0]):  # the smallest epsilon determines eta
        shares, bounds = shares[:1], np.array([bounds.min()])
    bent = loss.curvature * data_norm**2
    if np.isinf(bounds).all() or not np.all(bounds > 0):  # no noise, or a row without epsilon
        return float(np.clip(NO_NOISE * bent, *RANGE))
    goal = np.log(2.0 * loss.lipschitz * data_norm**2 / norm)
    goal += np.log(n_features * (n_features + 1.0)) / 2.0 + np.log(n_features) / 4.0
    sizes = np.log(bent) + np.log(shares)

    def excess(log_regularization: float) -> float:
        lost = np.logaddexp(0.0, sizes - log_regularization)
        eta = float(np.min((bounds - lost) / shares))
        return log_regularization + 1.25 * np.log(eta) - goal if eta > 0.0 else -1.0

    low = goal - 1.25 * float(np.log(np.min(bounds / shares)))
    # At this bound, eta is at least half of its largest value.
    half = np.max(sizes - np.log(np.expm1(np.minimum(bounds, 500.0) / 2.0)))
    root = brentq(excess, low - 1e-3, max(float(half), low + 2.0), xtol=1e-7)
    return float(np.clip(np.exp(np.clip(root, *np.log(RANGE))), *RANGE))


def objective_perturbation_log_density(
    w: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    eta: float,
    regularization: float,
    data_norm: float = 1.0,
    loss: Loss | None = None,
) -> float:
    r"""Compute the log density of the released model at w for given data.

    The density is :math:`\log h(b(w)) + n\log\frac{\eta}{2LR} + \log\det J(w)`, where h is the
    density of the noise, b(w) is the noise for which w is the minimiser, and J is the Hessian of
    the noiseless objective. The privacy loss is the difference of two log densities.
    """
    X, y, weights = aligned(X=X, y=y, weights=weights)
    point, rows, labels, shares = (np.asarray(v, dtype=np.float64) for v in (w, X, y, weights))
    loss = LogisticLoss() if loss is None else loss
    none = np.zeros_like(point)
    objective = PerturbedObjective(rows, labels, shares, none, regularization, loss)
    per_unit = eta / (2.0 * loss.lipschitz * data_norm)
    noise_norm = per_unit * float(np.linalg.norm(objective.gradient(point)))
    density = gamma_sphere_log_density(noise_norm, point.size)
    log_volume = float(np.linalg.slogdet(objective.hessian(point))[1])
    return density + point.size * float(np.log(per_unit)) + log_volume


@dataclass(eq=False, repr=False)
class ObjectiveLearner(PrivateLearner):
    """Base class of learners that use objective perturbation."""

    regularization: float | Literal["auto"] = "auto"
    _: KW_ONLY
    data_norm: float | None = 1.0
    calibration: Calibration = "total"
    tol: float | Literal["auto"] = "auto"
    solver_epsilon: Literal["auto"] | float | None = "auto"
    features: PublicFeatures | None = None
    epsilon: ArrayLike | None = None
    random_state: RandomSource = None

    _exactness = "solver_epsilon"
    #: Scale s in the rule for Lambda with one feature, and number of features up to which s grows.
    _norm: ClassVar[tuple[float, int]]

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss, after checking its parameters."""

    @abstractmethod
    def _labels(self, y: Any = None) -> Classes | Interval:
        """Return the domain of the labels. If the parameter is None, compute the domain from y."""

    def risk(
        self,
        n_features: int,
        *,
        failure_probability: float = 0.05,
        noise_failure_probability: float = 0.05,
        max_norm: float = 1.0,
    ) -> tuple[float, float]:
        """Compute the constants mu and sigma of the excess risk.

        Parameters
        ----------
        n_features, failure_probability, noise_failure_probability
            See :func:`lipschitz_risk_constants`.
        max_norm : float, default 1.0
            Bound on the norm of the model.
        """
        check_scales(data_norm=self.data_norm, max_norm=max_norm)
        targets = getattr(self, "target_range", None) or (-1.0, 1.0)
        chances = failure_probability, noise_failure_probability
        reach = max_norm * float(self.data_norm or 1.0)
        return lipschitz_risk_constants(self._loss(), *chances, reach, n_features, targets)

    def _check_parameters(self) -> None:
        check_choice("calibration", self.calibration, Calibration)
        if self.regularization != "auto":
            check_scales(regularization=self.regularization)
        if self.data_norm is not None:
            check_scales(data_norm=self.data_norm)
        SecondNoise(self.tol, self.solver_epsilon).check()
        self._loss()
        if not self._leaking():
            self._labels()

    def _domain(self, n_features: int, X: Any = None, y: Any = None) -> Domain:
        return Domain(Ball.of(self.data_norm, X), self._labels(y))

    def _granted(self, granted: Granted) -> Granted:
        return SecondNoise(self.tol, self.solver_epsilon).granted(granted)

    def _plan(self, granted: Granted, n_features: int, domain: Domain) -> ObjectivePerturbation:
        assert isinstance(domain.rows, Ball)
        return ObjectivePerturbation(
            *(granted.weights(), granted.positive, self.regularization, n_features),
            data_norm=domain.rows.data_norm,
            loss=self._loss(),
            second=SecondNoise(self.tol, self.solver_epsilon),
            accounting=getattr(self, "accounting", "general"),
            cap=getattr(self, "cap", None),
            calibration=self.calibration,
            norm=self._norm[0] * min(n_features, self._norm[1]) ** 0.5,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class _Classifier(ClassifierMixin, ObjectiveLearner):
    """Base class of classifiers with two public labels."""

    classes: tuple[Any, Any] | None = (-1, 1)

    _public = ("data_norm", "classes")

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the margin ``X @ coef_`` of each row, which is positive for the second class."""
        return self._predicted(X)

    def _answers(self, values: Floats) -> NDArray[Any]:
        return self.classes_[(values > 0).astype(np.intp)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _labels(self, y: Any = None) -> Classes:
        return Classes.of(self.classes, y)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(_Classifier):
    """Binary logistic regression with a privacy guarantee for each seller.

    Parameters
    ----------
    regularization : "auto" or float, default "auto"
        Parameter Lambda of the term ``regularization / 2 * ||w||**2``. If ``"auto"``, Lambda is
        computed from public numbers (:mod:`convexmarket.learners.perturbed`).
    data_norm : float or None, default 1.0
        Public bound R on the Euclidean norm of every row. If ``None``, it is computed from the
        private rows, and a :class:`~convexmarket.errors.PrivacyLeakWarning` is issued.
    classes : pair of labels or None, default (-1, 1)
        Public labels, of which the second is the positive class. If ``None``, they are read from
        the private labels with the same warning.
    accounting, cap : {"sharp", "general", "paper"}, default "sharp"; float or None, default None
        The bound on the privacy loss, as in
        :func:`~convexmarket.privacy.accounting.objective_perturbation_guarantee`. ``"paper"`` is
        the bound of Proposition II.2, where the weights are at most ``cap / n_sellers``.
    calibration : {"total", "noise"}, default "total"
        With ``"total"``, ``epsilon_`` is at most the granted epsilon of each row. With ``"noise"``,
        as in Algorithm 1, ``epsilon_`` can exceed the granted epsilon.
    tol : "auto" or float, default "auto"
        Largest norm of the gradient at which the solver stops, including rounding errors.
        If ``"auto"``, the tolerance is computed from the number of rows and eta.
    solver_epsilon : "auto", float or None, default "auto"
        Epsilon that every used row spends on a second noise, which covers the errors of the solver
        and of floating point. This noise is exact discrete noise on a lattice, with scale
        ``2 * sqrt(n_features) * tol / (solver_epsilon * regularization)``. If ``"auto"``, the
        second noise uses the share ``sqrt(tol / smallest weight)`` of epsilon to balance the two
        noises. A row is dropped if this share is above 3 per cent and the row's epsilon is below 1
        per cent of the mean. If ``None``, the second noise is omitted. The guarantee then assumes
        that digits below ``2 * tol / regularization`` are not read. Except in simulations, a
        :class:`~convexmarket.errors.PrivacyLeakWarning` is issued.
    features : PublicFeatures or None, default None
        Public ranges and categories that map the rows of a table X into a ball.
    epsilon, random_state : default None
        Default values of the arguments of ``fit``.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_features,), float
        The released model w, and intercept 0. To fit an intercept, append a constant column to X.
    epsilon_, guarantee_ : ndarray of shape (n_sellers,), Guarantee
        Epsilon of each row in nats, and the full guarantee with its assumptions.
    classes_, eta_, regularization_, data_norm_, tol_, solver_epsilon_
        The label set, the eta that determined the noise, and the parameters that were used.
    rounding_ : float or None
        The lattice step of ``coef_``, or None without a second noise.
    gradient_norm_ : float
        Proven bound on the norm of the gradient. With a second noise, it is the public ``tol_``.

    References
    ----------
    Anjarlekar, Etesami and Srikant, Algorithm 1, Eq. 12, Proposition II.2; Iyengar, Near, Song,
    Thakkar, Thakurta and Wang, Towards Practical Differentially Private Convex Optimization.

    Examples
    --------
    >>> from convexmarket.privacy import Simulation
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (1000, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> epsilon = rng.choice([0.0, 0.5, 1.0], 1000)
    >>> model = PrivateLogisticRegression().fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    >>> bool(np.all(model.epsilon_ <= epsilon)), model.score(X, y) > 0.95
    (True, True)
    """

    accounting: Accounting = "sharp"
    cap: float | None = None

    _model = "logistic regression"
    _norm = 0.72, 32

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each class for each row, shape (n_rows, 2).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        """
        margins = self.decision_function(X)
        return np.column_stack([expit(-margins), expit(margins)])

    def _loss(self) -> LogisticLoss:
        return LogisticLoss()


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(_Classifier):
    """Linear support vector machine with a smoothed hinge loss and a guarantee for each seller.

    Parameters
    ----------
    others
        As in :class:`PrivateLogisticRegression`.
    width : float, default 1.0
        Width of the parabola that replaces the kink. The curvature of the loss is ``1 / width``.

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

    width: float = 1.0

    _model = "a support vector machine"
    _norm = 2.5, 1

    def _loss(self) -> HingeLoss:
        check_scales(width=self.width)
        return HingeLoss(self.width)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(RegressorMixin, ObjectiveLearner):
    r"""Linear regression with the Huber loss and a guarantee for each seller.

    Parameters
    ----------
    others
        As in :class:`PrivateLogisticRegression`.
    threshold : float, default 1.0
        Size of the residual above which the loss is linear. In :class:`PersonalizedRidge`, the
        threshold is computed by a public rule, and an intercept is fitted.
    target_range : pair of floats, default (-1, 1)
        Public bounds on the labels.

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

    threshold: float = 1.0
    target_range: tuple[float, float] | None = (-1.0, 1.0)

    _model = "Huber regression"
    _norm = 0.5, 1
    _public = ("data_norm", "target_range")

    def _loss(self) -> HuberLoss:
        check_scales(threshold=self.threshold)
        return HuberLoss(self.threshold)

    def _labels(self, y: Any = None) -> Interval:
        return Interval.of(self.target_range, y)
