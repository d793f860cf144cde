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

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from convexmarket.arguments import aligned, check_positives, is_number, warn_user
from convexmarket.errors import DataError, ParameterError, PrivacyLeakWarning
from convexmarket.learners.labels import binary_signs, check_classes
from convexmarket.learners.minimiser import Matrix, Vector
from convexmarket.learners.perturbed import perturbed_minimum
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.accounting import (
    Accounting,
    Guarantee,
    calibrate_eta,
    check_weights,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.admission import check_account
from convexmarket.privacy.approximate import approximate_minimum_rate
from convexmarket.privacy.noise import RandomSource, resolve_generator

__all__ = ["PrivateLogisticRegression"]

NORM_SLACK = 1e-12  # relative; rows scaled to the bound in floating point may exceed it by rounding


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
    accounting : {"tight", "sharp", "joint", "paper"}, default "tight"
        Which bound on the privacy loss is reported, see
        :func:`~convexmarket.privacy.objective_perturbation_guarantee`. It changes the released
        model under ``calibration="total"`` only. ``"sharp"`` is the smallest of the four.
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
        Largest Euclidean norm of the objective's gradient where the solver stops. It is a promise
        about real numbers: a bound on the rounding errors of the computed gradient counts.
    minimum_epsilon : float or None, default None
        ``None`` releases the point where the solver stops, and the guarantee assumes that it is
        the exact minimiser, or that nobody looks at digits below ``2 * tol / regularization``. A
        number pays so much epsilon in every row that is used for a second noise, of mean norm
        ``2 * n_features * tol / (minimum_epsilon * regularization)``, after which neither is
        assumed. Under ``calibration="total"`` it is part of what was sold.
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
        Proven bound, at most ``tol``, on the Euclidean norm of the objective's gradient where the
        solver stopped: at ``coef_``, without the second noise. A diagnostic for whoever trains the
        model: only ``coef_`` is covered by the guarantee.
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
    ``epsilon_`` all the same, so by default the guarantee says which of the two it assumes. With
    ``minimum_epsilon`` a second noise covers the ball, whatever the solver does in it
    (docs/theory.md, section 13).

    References
    ----------
    Anjarlekar, Etesami and Srikant, Mechanism Design for Heterogeneous Differentially Private
    Data Acquisition for Logistic Regression, Algorithm 1, Eq. 12, Proposition II.2; Iyengar, Near,
    Song, Thakkar, Thakurta and Wang, Towards Practical Differentially Private Convex Optimization.

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

    A row that is not used pays nothing for the second noise either:

    >>> model = PrivateLogisticRegression(0.1, minimum_epsilon=0.01, random_state=0)
    >>> model.fit(X, y, weights=[0.5, 0.25, 0.25, 0.0], eta=100.0).epsilon_.round(3)
    array([50.821, 25.496, 25.496,  0.   ])
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
        minimum_epsilon: float | None = None,
        random_state: RandomSource = None,
    ) -> None:
        self.regularization = regularization
        self.data_norm = data_norm
        self.classes = classes
        self.accounting = accounting
        self.calibration = calibration
        self.cap = cap
        self.tol = tol
        self.minimum_epsilon = minimum_epsilon
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        eta: float,
        accountant: Account | None = None,
        rows: ArrayLike | None = None,
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
            row of weight zero is not used: it is dropped before anything looks at what it holds.
        eta : float
            Total privacy sold, the sum of the sellers' epsilon: positive, chosen without looking
            at the data. Infinity is the model without noise and without a guarantee.
        accountant : Account, optional
            Charged with the guarantee, a :class:`~convexmarket.PrivacyAccountant` for instance. It
            is asked before the data are looked at, but for their number of rows, and charged
            before the noise is drawn. A fit that fails later stays charged: that it failed, and
            how long it took, depends on the rows, and whoever tried again for free could choose
            among noises by it.
        rows : array_like of int, shape (n_sellers,), optional
            Positions of the rows in the account; all of its rows by default.

        Returns
        -------
        PrivateLogisticRegression
            The fitted estimator.

        Raises
        ------
        ParameterError
            If a parameter, the weights or eta are out of range, under ``calibration="total"`` eta
            is too small, or an accountant is given where ``data_norm`` or ``classes`` would be
            read from private data.
        BudgetExceededError
            If a row cannot pay. Nothing was charged then, and no row looked at.
        DataError
            If the data are malformed, a row is longer than ``data_norm`` or a label unknown.
        SolverError
            If the gradient norm ``tol`` is not reached; nothing is released then.
        """
        X, y, weights, rows = aligned(X=X, y=y, weights=weights, rows=rows)
        self._check_parameters()
        weights = self._checked_weights(weights, X)
        if accountant is not None or rows is not None:
            self._check_account(accountant, rows, weights, eta)
        X, y = self._validated(X, y, weights > 0)
        classes, signs = binary_signs(y, self.classes)
        data_norm = self._checked_data_norm(X)
        noise_eta, guarantee = self._account(weights, eta, data_norm, classes)
        rng = resolve_generator(self.random_state)
        if accountant is not None:
            accountant.charge(guarantee, rows)
        coef, gradient_norm = perturbed_minimum(
            X,
            signs,
            weights[weights > 0],
            noise_eta,
            self.regularization,
            data_norm=data_norm,
            tol=self.tol,
            minimum_rate=self._minimum_rate(eta),
            rng=rng,
        )
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
        if self.data_norm is not None:
            check_positives(data_norm=self.data_norm)
        check_positives(regularization=self.regularization)
        if not (is_number(self.tol) and self.tol > 0):
            raise ParameterError(f"tol must be positive, not {self.tol!r}.")
        if self.minimum_epsilon is not None:
            check_positives(minimum_epsilon=self.minimum_epsilon, tol=self.tol)
        check_classes(self.classes)

    def _checked_weights(self, weights: ArrayLike | None, X: ArrayLike) -> Vector:
        """Return the weights, of which nothing but their number depends on the data."""
        try:
            n_rows = _num_samples(X)
        except TypeError as error:
            raise DataError(f"X must be a matrix of rows: {error}") from error
        if n_rows == 0:
            raise DataError("Found array with 0 sample(s), X must have at least one row.")
        return check_weights(np.full(n_rows, 1.0 / n_rows) if weights is None else weights, n_rows)

    def _check_account(
        self, accountant: Account | None, rows: ArrayLike | None, weights: Vector, eta: float
    ) -> None:
        """Refuse, from public quantities alone, what would not be paid for."""
        if self.data_norm is None or self.classes is None:
            raise ParameterError(
                "data_norm=None and classes=None are read from the private rows, so no guarantee"
                " can be charged to an accountant: pass a public bound and a public label set."
            )
        classes = np.asarray(self.classes)
        check_account(accountant, self._account(weights, eta, self.data_norm, classes)[1], rows)

    def _validated(
        self, X: ArrayLike, y: ArrayLike, used: NDArray[np.bool_]
    ) -> tuple[Matrix, NDArray[Any]]:
        """Return the rows that are used, and their labels."""
        try:
            if not used.all() and y is not None:
                X, y = (_safe_indexing(part, used) for part in indexable(X, y))
            return validate_data(self, X, y, dtype=np.float64, order="C")
        except ValueError as error:
            raise DataError(str(error)) from error

    def _checked_data_norm(self, X: Matrix) -> float:
        """Return the bound R, after checking the rows against it."""
        norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        if self.data_norm is None:
            warn_user(
                "data_norm was computed from the private rows, so no guarantee covers it: pass a"
                " public bound, and project the rows on it with convexmarket.datasets.scale_rows.",
                PrivacyLeakWarning,
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
        paid = self.minimum_epsilon or 0.0
        arguments = (self.regularization, data_norm, self.accounting, self.cap, paid)
        mechanism = "logistic regression by objective perturbation"
        if self.minimum_epsilon is not None:
            mechanism += " of an approximate minimum"
        if self.calibration == "total":
            eta = calibrate_eta(weights, eta, *arguments)
        guarantee = Guarantee(
            epsilon=objective_perturbation_guarantee(weights, eta, *arguments),
            delta=0.0,
            mechanism=mechanism,
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
        real = "noise and coefficients are real numbers: they are computed in double precision"
        if self._minimum_rate(eta) is not None:
            real = (
                "the second noise and its sum with the coefficients are real numbers, the first"
                " noise is one to the last digits, which tol counts: all are computed in double"
                " precision"
            )
        return (
            public_norm,
            public_classes,
            "weights, eta and regularization were chosen without looking at the data",
            *self._nearness(eta),
            noise,
            real,
            "only the coefficients are published, once",
        )

    def _minimum_rate(self, eta: float) -> float | None:
        """Return the rate of the second noise; without the first there is nothing to save."""
        if self.minimum_epsilon is None or np.isinf(eta):
            return None
        return approximate_minimum_rate(self.minimum_epsilon, self.tol, self.regularization)

    def _nearness(self, eta: float) -> tuple[str, ...]:
        """Say what is assumed of the solver."""
        reached = f"the gradient norm is at most {self.tol:g}"
        distance = self.tol / self.regularization
        rate = self._minimum_rate(eta)
        if rate is None:
            return (
                "the coefficients are the exact minimiser, or are read no finer than"
                f" {2.0 * distance:.3g}: {reached}, the distance at most {distance:.3g}",
            )
        return (
            f"{reached} where the solver stopped, and a second noise of density proportional to"
            f" exp(-{rate:.6g} * norm) hides the distance of at most {distance:.3g} from the"
            " minimiser",
            "with one row replaced the solver would have got there as well: a fit that fails"
            " releases nothing, but that it failed is not covered",
        )
