"""Logistic regression by objective perturbation, under a guarantee chosen seller by seller."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit

from convexmarket.checks import check_scales
from convexmarket.data.features import PublicFeatures
from convexmarket.learners.logistic_risk import Constants, logistic_risk_constants
from convexmarket.learners.losses import LogisticLoss
from convexmarket.learners.minimiser import Matrix
from convexmarket.learners.objective import Calibration, ObjectiveClassifier
from convexmarket.privacy.accounting import Accounting

__all__ = ["PrivateLogisticRegression"]


class PrivateLogisticRegression(ObjectiveClassifier):
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
    accounting : {"sharp", "general", "paper"}, default "sharp"
        Which bound on the privacy loss is reported, see
        :func:`~convexmarket.privacy.objective_perturbation_guarantee`. It decides the noise under
        ``calibration="total"``. ``"paper"`` is Proposition II.2, for reproduction.
    calibration : {"total", "noise"}, default "total"
        ``"total"``: the noise is such that ``epsilon_`` is at most what each row granted; refused,
        with a regularization that would do, where no amount of noise does it. ``"noise"`` is
        Algorithm 1 as printed, for reproduction: what was granted sets the noise alone, and the
        total exceeds it by the Jacobian's share, which the guarantee says.
    cap : float or None, default None
        The market's public k, where weights are at most k / n_sellers; used by
        ``accounting="paper"`` only.
    tol : float, default 1e-9
        Largest Euclidean norm of the objective's gradient where the solver stops. It is a promise
        about real numbers: a bound on the rounding errors of the computed gradient counts.
    minimum_epsilon : "auto", float or None, default "auto"
        What every row that is used pays for a second noise, which hides in what the solver and
        floating point leave open: the coefficients are rounded to a lattice and get exact discrete
        noise of scale ``2 * sqrt(n_features) * tol / (minimum_epsilon * regularization)``. Under
        ``calibration="total"`` it is part of what was sold. ``"auto"`` takes the share at which
        both noises cost the same, ``sqrt(tol / smallest weight)``; rows for whom that would be
        above 3 per cent are left out, if they granted less than 1 per cent of the mean. ``None``
        adds no second noise: the guarantee then assumes that nobody looks at digits below
        ``2 * tol / regularization``, with a :class:`~convexmarket.errors.PrivacyLeakWarning` unless
        it is a simulation.
    features : PublicFeatures or None, default None
        What is public of the columns of a table X, so that ``fit`` and ``predict`` take the table
        as it is. Its rows lie in a ball that is to be no larger than that of ``data_norm``.
    epsilon : float, array_like of shape (n_sellers,) or None, default None
        What ``fit`` takes where it gets no ``epsilon``, as in a pipeline.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The released model w.
    intercept_ : float
        Zero. For an intercept append a constant column to X, and let ``data_norm`` bound the rows
        with it: it is then regularised and perturbed like the others.
    classes_ : ndarray of shape (2,)
        The label set.
    epsilon_ : ndarray of shape (n_sellers,)
        Total guarantee of each row, in nats; zero for a row that granted nothing.
    guarantee_ : Guarantee
        The same with its assumptions in words.
    eta_ : float
        The eta that set the noise.
    data_norm_ : float
        The bound R that set the noise.
    rounding_ : float or None
        The step of the lattice of ``coef_``; None without a second noise.
    gradient_norm_ : float
        Proven bound on the Euclidean norm of the objective's gradient where the solver stopped:
        ``tol``, as what was reached tells of the rows; that only where ``minimum_epsilon`` is None.
    minimum_epsilon_ : float
        What each row that is used pays for the second noise; zero without it.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, where X has string names.

    Notes
    -----
    The noise vector is not kept: with ``coef_`` it would reveal the data's gradient.

    The point where the solver stops is within ``tol / regularization`` of the exact minimiser, and
    where in that ball may depend on every row: a solver could write a row's label there. What is
    read from the coefficients with no finer resolution than ``2 * tol / regularization`` keeps
    ``epsilon_`` all the same, which is what ``minimum_epsilon=None`` assumes. Otherwise a second
    noise covers the ball, whatever the solver does in it (docs/theory.md, section 13).

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
    >>> bool(np.all(model.epsilon_ <= epsilon)), model.score(X, y)
    (True, 0.983)
    """

    _mechanism = "logistic regression"

    def __init__(
        self,
        regularization: float = 0.01,
        *,
        data_norm: float | None = 1.0,
        classes: tuple[Any, Any] | None = (-1, 1),
        accounting: Accounting = "sharp",
        calibration: Calibration = "total",
        cap: float | None = None,
        tol: float = 1e-9,
        minimum_epsilon: Literal["auto"] | float | None = "auto",
        features: PublicFeatures | None = None,
        epsilon: ArrayLike | None = None,
    ) -> None:
        self.regularization = regularization
        self.data_norm = data_norm
        self.classes = classes
        self.accounting = accounting
        self.calibration = calibration
        self.cap = cap
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
        constants: Constants = "proven",
    ) -> tuple[float, float]:
        """Return (mu, sigma): how spread and noise hurt this learner, for a market's objective.

        Parameters
        ----------
        n_features : int
        failure_probability, noise_failure_probability, max_norm, constants
            As for :func:`~convexmarket.learners.logistic_risk_constants`.

        Returns
        -------
        mu, sigma : float
            Of the bound ``mu * ||a|| + sigma / eta`` on the excess risk (A, Theorem II.4).

        Raises
        ------
        ParameterError
            If an argument is out of its range, or ``data_norm`` is None.
        """
        check_scales(data_norm=self.data_norm, max_norm=max_norm)
        reach = max_norm * float(self.data_norm or 1.0)
        return logistic_risk_constants(
            failure_probability, noise_failure_probability, reach, n_features, constants=constants
        )

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

    def predict_log_proba(self, X: ArrayLike) -> Matrix:
        """Return the logarithm of :meth:`predict_proba`, exact where that is next to zero.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Columns in the order of ``classes_``.
        """
        margins = self.decision_function(X)
        return np.column_stack([log_expit(-margins), log_expit(margins)])

    def _loss(self) -> LogisticLoss:
        return LogisticLoss()

    def _accounting(self) -> tuple[Accounting, float | None]:
        return self.accounting, self.cap
