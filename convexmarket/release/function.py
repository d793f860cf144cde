r"""The whole function at once: a draw of a Gaussian process hides it everywhere.

Not one of the three models of Jain and Thakurta, and the yardstick for them. Replacing row i moves
the model by :math:`2LR_\phi a_i/\lambda` in the RKHS, in whatever direction. A Gaussian process
whose covariance is the kernel is the noise that is equally wide in all directions, so the cost of
any number of answers, to questions that depend on earlier answers, is that of one.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from convexmarket.errors import NotSupportedError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.privacy import Account, Guarantee, RandomSource
from convexmarket.release.base import (
    SingleCopy,
    admit,
    assumptions_of,
    check_terms,
    classes_of,
    fitted_copy,
)
from convexmarket.release.fit import KernelBasis
from convexmarket.release.predictor import PublicPredictor, check_rows
from convexmarket.release.scales import calibrate, function_epsilon

__all__ = ["FunctionRelease", "process_draw"]

Floats = NDArray[np.float64]

LARGEST = 5_000  # answers among which noise is correlated
#: Relative to the squared bound on features: independent noise, added so that factorisations
#: exist. More noise than was promised, so it costs nothing.
JITTER = 1e-9


class FunctionRelease(SingleCopy):
    r"""Private predictions at any points, as many as wanted, for the price of one.

    Parameters
    ----------
    erm : KernelERM
        Fitted.
    epsilon : float or array_like of shape (n_rows,)
        Of the whole release, in nats: for every row, or row by row what each sold.
    delta : float
        Strictly between 0 and 1.
    accountant : Account, optional
        Charged in full before anything is drawn; by default the accounts that are open,
        :func:`convexmarket.privacy.account`.
    rows : array_like of int, optional
        Positions of the model's rows in the accountant.
    random_state : None, int, SeedSequence, Generator or RandomState, default None
        Source of the noise; as for :class:`~convexmarket.PrivateLogisticRegression`.

    Attributes
    ----------
    guarantee : Guarantee
    scale : float
        Standard deviation of the noise per unit of feature norm.

    Raises
    ------
    ParameterError
        If an argument is out of its range.
    DataError
        If the model is not fitted.
    BudgetExceededError
        If the accountant refuses.

    Notes
    -----
    The draw is made where it is looked at, and remembered there: 5,000 answers at most. The noise
    in the model is :math:`2LR_\phi a_i/(\lambda s)` standard deviations of a Gaussian, whose
    epsilon is exact (Balle and Wang).

    References
    ----------
    Hall, Rinaldo and Wasserman, Differential Privacy for Functions and Functional Data, Journal of
    Machine Learning Research 14 (2013), Corollary 9.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (5_000, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> erm = KernelERM(regularization=0.1).fit(X, y)
    >>> release = FunctionRelease(erm, epsilon=1.0, delta=1e-6, random_state=0)
    >>> release.predict([[0.6, 0.1], [-0.6, 0.2]]).round(1)
    array([ 0.6, -0.6])
    """

    def __init__(
        self,
        erm: KernelERM,
        epsilon: ArrayLike,
        delta: float,
        *,
        accountant: Account | None = None,
        rows: ArrayLike | None = None,
        random_state: RandomSource = None,
    ) -> None:
        erm, names = fitted_copy(erm)
        self._erm = erm
        sold = check_terms(erm, epsilon, delta, "tight", " for a Gaussian process")
        shifts = erm.row_sensitivities_ / erm.feature_bound_
        self.scale, guaranteed = calibrate(shifts, sold, function_epsilon(delta))
        guarantee = Guarantee(
            guaranteed,
            delta,
            "the prediction function with a Gaussian process added",
            "exact",
            assumptions_of(
                erm,
                random_state,
                "questions may depend on earlier answers, and not on the rows in any other way",
                "this object remembers the draw, so that it is as private as the rows",
            ),
        )
        generator = admit(erm, guarantee, accountant, rows, random_state)
        self.guarantee = guarantee
        self._names = names
        self._process = _Process(erm, generator)
        self._answers = np.zeros(0)
        self._lock = Lock()

    def predict(self, X: ArrayLike) -> Floats:
        """Answer questions.

        Parameters
        ----------
        X : array_like of shape (n_questions, n_features)
            Rows of the public domain.

        Returns
        -------
        ndarray of shape (n_questions,)
            Released predictions; their signs are the labels of a model that classifies.

        Raises
        ------
        DataError
            If a row is malformed or outside the domain.
        NotSupportedError
            If the answers would be more than 5,000 in all. :attr:`predictor` then answers the rest.
        """
        points = check_rows(X, self._erm.n_features_in_, self._names)
        if not len(points):
            return np.zeros(0)
        self._erm.kernel_.check_domain(points, "X")
        truth = self._erm.decision_function(points)
        with self._lock:
            answers = truth + self.scale * self._process.at(points)
            self._answers = np.append(self._answers, answers)
        return answers

    @property
    def predictor(self) -> PublicPredictor:
        """A function that was fitted to all answers so far, and may be published."""
        with self._lock:
            points, answers = self._process.points, self._answers
        gram = self._erm.kernel_(points, points)
        coefficients = np.zeros(0)
        if len(gram):
            basis = KernelBasis((gram + gram.T) / 2.0)
            beta = basis.fit(answers, self._erm.norm_bound_)
            coefficients = basis.coefficients(beta)
        return PublicPredictor(
            self._erm.kernel_,
            points,
            coefficients,
            self.guarantee,
            classes_of(self._erm),
            self._names,
        )


class _Process:
    """A draw of a centred Gaussian process, point by point, each given all before it."""

    def __init__(self, erm: KernelERM, generator: np.random.Generator) -> None:
        self._kernel, self._generator = erm.kernel_, generator
        self._jitter = JITTER * erm.feature_bound_**2
        self.points: Floats = np.zeros((0, erm.n_features_in_))
        self._triangle: Floats = np.zeros((0, 0))  # Cholesky factor of the points' covariance
        self._normals: Floats = np.zeros(0)  # the independent numbers behind the draw

    def at(self, points: Floats) -> Floats:
        """Return the draw at more points, shape (n_points,)."""
        n_old, n_new = len(self.points), len(points)
        if n_old + n_new > LARGEST:
            raise NotSupportedError(
                f"{n_new:,} more answers would make {n_old + n_new:,}, and a Gaussian process"
                f" remembers {LARGEST:,} at most: use .predictor, which is public."
            )
        inside = self._kernel(points, points)
        inside[np.diag_indices(n_new)] += self._jitter
        across: Floats = np.zeros((n_new, n_old))
        if n_old:
            between = self._kernel(self.points, points)
            across = np.asarray(solve_triangular(self._triangle, between, lower=True)).T
        corner = np.linalg.cholesky(inside - across @ across.T)
        triangle = np.zeros((n_old + n_new, n_old + n_new))
        triangle[:n_old, :n_old] = self._triangle
        triangle[n_old:, :n_old], triangle[n_old:, n_old:] = across, corner
        normals = self._generator.standard_normal(n_new)
        self.points = np.vstack([self.points, points])
        self._triangle, self._normals = triangle, np.append(self._normals, normals)
        return np.asarray(triangle[n_old:] @ self._normals)


def process_draw(gram: Floats, feature_bound: float, generator: np.random.Generator) -> Floats:
    """Draw a Gaussian process at points with this kernel matrix, shape (n_points,)."""
    covariance = gram.copy()
    covariance[np.diag_indices_from(covariance)] += JITTER * feature_bound**2
    return np.asarray(np.linalg.cholesky(covariance) @ generator.standard_normal(len(gram)))
