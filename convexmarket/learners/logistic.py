r"""Logistic regression by objective perturbation, under a guarantee chosen seller by seller.

The released model is the exact minimiser of

.. math:: \sum_i a_i \log(1+e^{-y_i w^\top x_i}) + b'^\top w + \tfrac{\Lambda}{2}\|w\|^2,

with :math:`b' = (2R/\eta)\,b`, :math:`b` of density proportional to :math:`e^{-\|b\|}` and
:math:`\|x_i\| \le R` (Algorithm 1 and Eq. 12 of Anjarlekar, Etesami and Srikant, who take R = 1).
Here is the estimator that users hold. What the release guarantees is the business of
:mod:`convexmarket.privacy.accounting`, the noise and the minimiser that of
:mod:`convexmarket.learners.perturbed`, and what to do about its being found only nearly that of
:mod:`convexmarket.privacy.approximate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from convexmarket.arguments import aligned, check_choice, check_positives, is_number
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import ParameterError
from convexmarket.learners.granted import Granted, dense_rows
from convexmarket.learners.labels import binary_signs, check_classes
from convexmarket.learners.logistic_risk import Constants, logistic_risk_constants
from convexmarket.learners.minimiser import Matrix, Vector
from convexmarket.learners.norms import bounded_rows
from convexmarket.learners.perturbed import perturbed_minimum
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.accounting import (
    Accounting,
    calibrate_eta,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.active import names_of
from convexmarket.privacy.admission import admit
from convexmarket.privacy.approximate import default_minimum_epsilon
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.lattice import lattice_blur
from convexmarket.privacy.noise import (
    RandomSource,
    noise_assumption,
    resolve_generator,
    warn_of_plain_noise,
)
from convexmarket.privacy.selection import warn_of_search

__all__ = ["PrivateLogisticRegression"]

Calibration = Literal["total", "noise"]

#: By default the second noise costs no row more than this share of what it granted, ...
LARGEST_SHARE = 0.03
#: ... as rows for whom it would are left out, unless they weigh more than this share of the mean.
LEAST_OF_MEAN = 0.01

#: Relative; eta is this much below what was granted in all, so that its roundings do not exceed it.
BELOW = 2.0**-50


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
    accounting : {"sharp", "paper"}, default "sharp"
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
    feature_names_in_ : ndarray of shape (n_features_in_,)
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
        check_positives(data_norm=self.data_norm, max_norm=max_norm)
        reach = max_norm * float(self.data_norm or 1.0)
        return logistic_risk_constants(
            failure_probability, noise_failure_probability, reach, n_features, constants=constants
        )

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
        """Draw the noise and release the minimiser.

        Parameters
        ----------
        X : array_like of shape (n_sellers, n_features)
            Rows of Euclidean norm at most ``data_norm``.
        y : array_like of shape (n_sellers,)
            Labels from ``classes``.
        epsilon : array_like of shape (n_sellers,), or float
            What each row granted, or one number for all: nonnegative, in nats, chosen without
            looking at the data. The constructor's by default. Rows are weighted in proportion. One
            that granted 0 is not used: it is dropped before anything looks at what it holds.
            Infinity is a row that asks for nothing: only such rows are used then, without noise.
        rows : array_like of int, shape (n_sellers,), optional
            Positions of the rows in the account; all of its rows by default.
        accountant : Account, optional
            Charged with the guarantee, a :class:`~convexmarket.PrivacyAccountant` for instance; by
            default the accounts that are open, :func:`convexmarket.privacy.account`. It is asked
            before the data are looked at, but for their number of rows, and charged before the
            noise is drawn. A fit that fails later stays charged: that it failed, and how long it
            took, depends on the rows, and whoever tried again for free could choose among noises by
            it.
        random_state : None or Simulation, default None
            Source of the noise; ``None`` takes a fresh seed from the operating system. It is not
            kept. A :class:`~convexmarket.privacy.Simulation` draws the same noise again, and
            protects nobody. A seed by itself raises a
            :class:`~convexmarket.errors.PrivacyLeakWarning`.

        Returns
        -------
        PrivateLogisticRegression
            The fitted estimator.

        Raises
        ------
        ParameterError
            If a parameter or epsilon is out of range, no amount of noise keeps what was granted,
            or an accountant is given where ``data_norm`` or ``classes`` would be read from private
            data.
        BudgetExceededError
            If a row cannot pay. Nothing was charged then, and no row looked at.
        DataError
            If the data are malformed or sparse, a row is longer than ``data_norm`` or a label
            unknown.
        SolverError
            If the gradient norm ``tol`` is not reached; nothing is released then.
        """
        default = self.epsilon if epsilon is None else epsilon
        X, y, epsilon, rows = aligned(X=X, y=y, epsilon=default, rows=rows)
        self._check_parameters()
        granted = self._granted(X, epsilon)
        names = names_of(X)
        charge: Callable[[], None] | None = None
        if not self._reads_rows or accountant is not None or rows is not None:
            promised = self._promise(granted, random_state)
            charge = admit(promised, accountant, rows, names=names, random_state=random_state)
        used = granted.rows(X, y)
        matrix, labels = dense_rows(self, *used, dtype=(np.float64, np.float32), order="C")
        classes, signs = binary_signs(labels, self.classes)
        matrix, data_norm = bounded_rows(matrix, self.data_norm)
        noise_eta, guarantee = self._account(granted, data_norm, classes, random_state)
        if self.minimum_epsilon is None and np.isfinite(noise_eta):
            warn_of_plain_noise("minimum_epsilon", random_state)
        rng = resolve_generator(random_state)
        if charge is None:
            charge = admit(guarantee, names=names, random_state=random_state)
        charge()
        weights = granted.weights()
        blur = self._blur(granted, matrix.shape[1])
        coef, gradient_norm = perturbed_minimum(
            matrix[weights > 0],
            signs[weights > 0],
            weights[weights > 0],
            noise_eta,
            self.regularization,
            data_norm=data_norm,
            tol=self.tol,
            blur=blur,
            rng=rng,
        )
        # Only now, so that a failed fit leaves no half of a model behind.
        self.classes_, self.data_norm_, self.eta_ = classes, data_norm, noise_eta
        self.guarantee_, self.epsilon_ = guarantee, guarantee.epsilon
        self.coef_, self.intercept_ = coef, 0.0
        self.gradient_norm_ = gradient_norm if blur is None else self.tol
        self.rounding_ = None if blur is None else blur[0]
        self.minimum_epsilon_ = self._paid(granted)
        return self

    def promise(self, epsilon: ArrayLike) -> Guarantee:
        """Return the guarantee that a fit would carry, from public quantities alone.

        Parameters
        ----------
        epsilon : array_like of shape (n_sellers,)
            What each row would grant.

        Raises
        ------
        ParameterError
            As ``fit`` would, or if ``data_norm`` or ``classes`` are to be read from private rows.
        """
        self._check_parameters()
        return self._promise(self._granted(np.asarray(epsilon), epsilon), None)

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
        warn_of_search(self.guarantee_, X)
        rows = dense_rows(self, X, dtype=np.float64, reset=False)
        return np.asarray(rows @ self.coef_ + self.intercept_)

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_parameters(self) -> None:
        check_choice("calibration", self.calibration, Calibration)
        if self.data_norm is not None:
            check_positives(data_norm=self.data_norm)
        check_positives(regularization=self.regularization)
        if not (is_number(self.tol) and self.tol > 0):
            raise ParameterError(f"tol must be positive, not {self.tol!r}.")
        if self.minimum_epsilon is not None:
            check_positives(tol=self.tol)
            if isinstance(self.minimum_epsilon, str) and self.minimum_epsilon != "auto":
                raise ParameterError(
                    f"minimum_epsilon must be 'auto', a number or None, not"
                    f" {self.minimum_epsilon!r}."
                )
            if self.minimum_epsilon != "auto":
                check_positives(minimum_epsilon=self.minimum_epsilon)
        check_classes(self.classes)

    @property
    def _reads_rows(self) -> bool:
        """Whether what the guarantee rests on is read from the private rows."""
        return self.data_norm is None or self.classes is None

    def _promise(self, granted: Granted, random_state: RandomSource) -> Guarantee:
        if self.data_norm is None or self.classes is None:
            raise ParameterError(
                "data_norm=None and classes=None are read from the private rows, so no guarantee"
                " can be promised or charged to an accountant: pass a public bound and a public"
                " label set."
            )
        return self._account(granted, self.data_norm, np.asarray(self.classes), random_state)[1]

    def _account(
        self,
        granted: Granted,
        data_norm: float,
        classes: NDArray[Any],
        random_state: RandomSource,
    ) -> tuple[float, Guarantee]:
        """Return the eta of the noise and the guarantee that follows from it."""
        paid = self._paid(granted)
        arguments = (self.regularization, data_norm, self.accounting, self.cap, paid)
        mechanism = "logistic regression by objective perturbation"
        weights = granted.spread(granted.weights())
        with np.errstate(over="ignore"):
            eta = float(granted.positive.sum())
        if np.isinf(eta) and not np.isinf(granted.positive).any():
            raise ParameterError(
                f"epsilon sums to more than a float holds, up to {granted.epsilon.max():g}; give"
                " smaller guarantees, or infinity for no privacy."
            )
        if self.calibration == "total":
            eta = calibrate_eta(weights, eta * (1.0 - BELOW), *arguments)
        if np.isfinite(eta):
            mechanism += ", exact noise on a lattice" if paid else ", noise in plain floating point"
        total = objective_perturbation_guarantee(weights, eta, *arguments)
        total = np.where(weights > 0, total, 0.0)
        guarantee = Guarantee(
            epsilon=total,
            delta=0.0,
            mechanism=mechanism,
            accounting=self.accounting,
            assumptions=(
                noise_assumption(random_state, any_noise=bool(np.isfinite(eta))),
                *_exceeding(total, granted.epsilon),
                *self._assumptions(paid, data_norm, classes),
            ),
        )
        return eta, guarantee

    def _granted(self, X: ArrayLike, epsilon: ArrayLike | None) -> Granted:
        """Return what each row granted, without those for whom exact noise is too dear."""
        granted = Granted.of(X, epsilon, self.epsilon)
        if self.minimum_epsilon == "auto" and np.isfinite(granted.epsilon).all():
            least = LEAST_OF_MEAN / granted.positive.size
            return granted.above(min(self.tol / LARGEST_SHARE**2, least))
        return granted

    def _paid(self, granted: Granted) -> float:
        """Return what each row pays for the second noise; 0 where there is none."""
        if self.minimum_epsilon is None or np.isinf(granted.epsilon).any():
            return 0.0
        if isinstance(self.minimum_epsilon, str):
            return default_minimum_epsilon(granted.positive, self.tol)
        return self.minimum_epsilon

    def _blur(self, granted: Granted, n_features: int) -> tuple[float, int] | None:
        """Return step and scale of the second noise."""
        paid = self._paid(granted)
        return lattice_blur(self.tol / self.regularization, n_features, paid) if paid else None

    def _assumptions(self, paid: float, data_norm: float, classes: NDArray[Any]) -> tuple[str, ...]:
        public_norm = f"every row's norm is at most {data_norm:g}, a bound that is public"
        public_classes = f"the label set {tuple(classes.tolist())} is public"
        if self.data_norm is None:
            public_norm = "VIOLATED: the bound on the norms was computed from the private rows"
        if self.classes is None:
            public_classes = "VIOLATED: the label set was inferred from the private labels"
        return (
            public_norm,
            public_classes,
            "epsilon and all parameters were chosen without looking at the data",
            *self._nearness(paid),
            "only the coefficients are published, once",
        )

    def _nearness(self, paid: float) -> tuple[str, ...]:
        """Say what is assumed of the solver and of floating point."""
        reached = f"the gradient norm is at most {self.tol:g}"
        distance = self.tol / self.regularization
        if not paid:
            return (
                "the coefficients are the exact minimiser, or are read no finer than"
                f" {2.0 * distance:.3g}: {reached}, the distance at most {distance:.3g}",
                "noise and coefficients are real numbers: they are computed in double precision",
            )
        return (
            f"{reached} where the solver stopped, and a second noise, exact on a lattice, hides the"
            f" distance of at most {distance:.3g} from the minimiser, for {paid:.3g} of each"
            " row's epsilon",
            "arithmetic is that of IEEE 754, and the C library's log1p, sin, cos and hypot are"
            " right to two units in the last place",
            "with one row replaced the solver would have got there as well: a fit that fails"
            " releases nothing, but that it failed is not covered",
        )


def _exceeding(total: Vector, granted: Vector) -> tuple[str, ...]:
    """Say by how much a total exceeds what was granted, as under ``calibration="noise"``."""
    over = total > granted
    if not over.any():
        return ()
    return (
        f"EXCEEDED: {np.count_nonzero(over)} of {total.size} rows lose more than they granted, up"
        f" to {np.max(total[over] / granted[over]):.3g} times as much: calibration='noise' leaves"
        " out the Jacobian's share",
    )
