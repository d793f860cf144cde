r"""Linear models by objective perturbation, under a guarantee chosen seller by seller.

The released model is the minimiser of a perturbed objective (:mod:`.perturbed`). A loss that is
convex, L-Lipschitz and of curvature at most c keeps
:math:`a_i\eta + \log(1 + c\,a_iR^2/\Lambda)` for row i; its slope may be kinked, as those of the
Huber loss and of the Huberised hinge are (docs/theory.md, section 6). The logistic loss has a
sharper bound.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin, RegressorMixin

from convexmarket.checks import check_choice, check_scales
from convexmarket.data.features import PublicFeatures
from convexmarket.learners.domain import Ball, Classes, Domain, Interval
from convexmarket.learners.granted import Granted
from convexmarket.learners.losses import (
    Constants,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    Loss,
    lipschitz_risk_constants,
    logistic_risk_constants,
)
from convexmarket.learners.perturbed import Calibration, ObjectivePerturbation, SecondNoise
from convexmarket.learners.private_learner import PrivateLearner
from convexmarket.privacy.accounting import Accounting
from convexmarket.privacy.random_sources import RandomSource

__all__ = [
    "ObjectiveLearner",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class ObjectiveLearner(PrivateLearner):
    """A loss, and the plan of objective perturbation for it."""

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
    #: Scale of the norms of models in the rule for the regularization.
    _norm: ClassVar[float]

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss, after checking its parameters."""

    @abstractmethod
    def _labels(self, y: Any = None) -> Classes | Interval:
        """Return the public labels; None reads them from y."""

    def risk(
        self,
        n_features: int,
        *,
        failure_probability: float = 0.05,
        noise_failure_probability: float = 0.05,
        max_norm: float = 1.0,
    ) -> tuple[float, float]:
        """Return (mu, sigma) of :func:`lipschitz_risk_constants`, with the same arguments.

        ``max_norm`` bounds the norm of the model; times ``data_norm`` it is the reach.
        """
        labels = self._labels()
        targets = (labels.low, labels.high) if isinstance(labels, Interval) else (-1.0, 1.0)
        chances = failure_probability, noise_failure_probability
        reach = self._reach(max_norm)
        return lipschitz_risk_constants(self._loss(), *chances, reach, n_features, targets)

    def _reach(self, max_norm: float) -> float:
        check_scales(data_norm=self.data_norm, max_norm=max_norm)
        return max_norm * float(self.data_norm or 1.0)

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
            norm=self._norm,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class _Classifier(ClassifierMixin, ObjectiveLearner):
    """Classifier of two labels, from a public set."""

    classes: tuple[Any, Any] | None = (-1, 1)

    _public = ("data_norm", "classes")

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the margin ``X @ coef_`` of each row; positive means the second class."""
        return self._predicted(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row."""
        margins = self.decision_function(X)
        return self.classes_[(margins > 0).astype(np.intp)]

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
        Lambda; the quadratic term is ``regularization / 2 * ||w||**2``. ``"auto"`` follows from
        public numbers alone (:mod:`convexmarket.learners.perturbed`).
    data_norm, classes : float or None, default 1.0; pair of labels or None, default (-1, 1)
        Public bound R on the Euclidean norm of every row, and the public labels, of which the
        second is the positive one. ``None`` reads them from the private rows, with a
        :class:`~convexmarket.errors.PrivacyLeakWarning`.
    accounting : {"sharp", "general", "paper"}, default "sharp"
        The bound on the privacy loss, as in
        :func:`~convexmarket.privacy.objective_perturbation_guarantee`. ``"paper"`` is Proposition
        II.2, for reproduction.
    calibration : {"total", "noise"}, default "total"
        ``"total"``: ``epsilon_`` is at most the granted epsilon of each row. ``"noise"`` is
        Algorithm 1 as printed, for reproduction: the total exceeds it by the Jacobian's share.
    cap : float or None, default None
        The market's public k, where weights are at most k / n_sellers; for ``accounting="paper"``.
    tol : "auto" or float, default "auto"
        Largest Euclidean norm of the objective's gradient where the solver stops, rounding errors
        included. ``"auto"`` follows from the number of rows.
    solver_epsilon : "auto", float or None, default "auto"
        Cost, to every used row, of a second noise that covers the errors of the solver and of
        floating point: exact discrete noise on a lattice, of scale
        ``2 * sqrt(n_features) * tol / (solver_epsilon * regularization)``. Under
        ``calibration="total"`` the cost is part of the granted epsilon. ``"auto"`` equates the
        costs of both noises, with a share of ``sqrt(tol / smallest weight)``, and drops rows with a
        share above 3 per cent and less than 1 per cent of the mean epsilon. ``None`` adds no second
        noise: the guarantee then assumes that digits below ``2 * tol / regularization`` are not
        read, with a :class:`~convexmarket.errors.PrivacyLeakWarning` unless it is a simulation.
    features : PublicFeatures or None, default None
        Public ranges and categories of the columns of a table X, whose rows then lie in a ball.
    epsilon, random_state : default None
        Defaults of the arguments of ``fit``.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_features,), float
        The released model w, and zero. For an intercept append a constant column to X, and let
        ``data_norm`` bound the rows with it.
    epsilon_, guarantee_ : ndarray of shape (n_sellers,), Guarantee
        Total guarantee of each row, in nats, and the same with its assumptions.
    classes_, eta_, regularization_, data_norm_, tol_, solver_epsilon_
        The label set, the eta that set the noise, and the parameters that were used.
    rounding_ : float or None
        The step of the lattice of ``coef_``; None without a second noise.
    gradient_norm_ : float
        Proven bound on the norm of the objective's gradient where the solver stopped; with a second
        noise ``tol``, as the norm that was reached depends on the rows.

    References
    ----------
    Anjarlekar, Etesami and Srikant, Mechanism Design for Heterogeneous Differentially Private
    Data Acquisition for Logistic Regression, Algorithm 1, Eq. 12, Proposition II.2; Iyengar, Near,
    Song, Thakkar, Thakurta and Wang, Towards Practical Differentially Private Convex Optimization.

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
    _norm = 2.5

    def risk(
        self,
        n_features: int,
        *,
        failure_probability: float = 0.05,
        noise_failure_probability: float = 0.05,
        max_norm: float = 1.0,
        constants: Constants = "proven",
    ) -> tuple[float, float]:
        """Return (mu, sigma) of :func:`logistic_risk_constants`.

        Parameters
        ----------
        n_features, failure_probability, noise_failure_probability, max_norm, constants
            As for that function.
        """
        chances = failure_probability, noise_failure_probability
        reach = self._reach(max_norm)
        return logistic_risk_constants(*chances, reach, n_features, constants=constants)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the logistic probability of each class, shape (n_samples, 2).

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
    """Linear support vector machine with a Huberised hinge, under what was sold to each seller.

    Parameters
    ----------
    others
        As for :class:`PrivateLogisticRegression`, as are the attributes.
    width : float, default 1.0
        Of the parabola that replaces the hinge's kink; the loss's curvature is one over it.

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
    _norm = 2.5

    def _loss(self) -> HingeLoss:
        check_scales(width=self.width)
        return HingeLoss(self.width)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(RegressorMixin, ObjectiveLearner):
    r"""Linear regression with the Huber loss, under what was sold to each seller.

    For labels in a public range, :class:`PersonalizedRidge` chooses scale, threshold and intercept.

    Parameters
    ----------
    others
        As for :class:`PrivateLogisticRegression`, as are the attributes.
    threshold : float, default 1.0
        Residual at which half of its square becomes linear; a smaller one takes less noise.
    target_range : pair of floats, default (-1, 1)
        Public lowest and highest label.

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
    _norm = 0.5
    _public = ("data_norm", "target_range")

    def predict(self, X: ArrayLike) -> Floats:
        """Return ``X @ coef_``."""
        return self._predicted(X)

    def _loss(self) -> HuberLoss:
        check_scales(threshold=self.threshold)
        return HuberLoss(self.threshold)

    def _labels(self, y: Any = None) -> Interval:
        return Interval.of(self.target_range, y)
