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

from convexmarket.errors import NotSupportedError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.learners.predictor import PublicPredictor
from convexmarket.privacy import Account, RandomSource
from convexmarket.release.base import SingleCopy, bounded_predictions
from convexmarket.release.fit import KernelBasis
from convexmarket.release.noise import MOST_POINTS, Process, process_noise

__all__ = ["FunctionRelease"]

Floats = NDArray[np.float64]


class FunctionRelease(SingleCopy):
    r"""Private predictions at any points, as many as wanted, for the price of one.

    Parameters
    ----------
    erm, epsilon, accountant, rows, random_state
        As for :class:`~convexmarket.InteractiveRelease`.
    delta : float
        Strictly between 0 and 1.

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
    The draw is made where it is looked at, and remembered there: 5,000 different questions at most.
    Exact discrete Gaussian noise in the model's coordinates hides a shift of
    :math:`2LR_\phi a_i/(\lambda s)` standard deviations, and what rounding adds, for which the
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
    >>> release = FunctionRelease(erm, epsilon=1.0, delta=1e-6)
    >>> release.predict([[0.6, 0.1], [-0.6, 0.2]]) > 0
    array([ True, False])
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
        sold = self._open(erm, epsilon, delta, why_delta=" for a Gaussian process")
        noise = process_noise(self._erm, sold, delta)
        generator = self._charge(
            noise,
            "the prediction function with a Gaussian process added",
            "questions may depend on earlier answers, and not on the rows in any other way; this"
            " object remembers the draw, so that it is as private as the rows",
            accountant,
            rows,
            random_state,
        )
        self._process = Process(self._erm, noise, generator)
        self._answers: Floats = np.zeros(0)
        self._places: dict[bytes, int] = {}  # of the points that were asked about
        self._lock = Lock()
        self._stay_here()

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
        self._check_process()
        points = self._checked_points(X)
        keys = [(row + 0.0).tobytes() for row in points]  # -0.0 is 0.0
        with self._lock:
            first = {key: place for place, key in reversed([*enumerate(keys)])}
            fresh = sorted(place for key, place in first.items() if key not in self._places)
            if fresh:
                self._ask(points[fresh], [keys[place] for place in fresh])
            return self._answers[[self._places[key] for key in keys]]

    def _ask(self, points: Floats, keys: list[bytes]) -> None:
        n_old, n_new = len(self._answers), len(points)
        if n_old + n_new > MOST_POINTS:
            raise NotSupportedError(
                f"{n_new:,} more answers would make {n_old + n_new:,}, and a Gaussian process "
                f"remembers {MOST_POINTS:,} at most; use .predictor, which is public"
            )
        answers = self._process.at(points, bounded_predictions(self._erm, points))
        self._answers = np.append(self._answers, answers)
        self._places.update(zip(keys, range(n_old, n_old + n_new), strict=True))

    @property
    def predictor(self) -> PublicPredictor:
        """A function that was fitted to all answers so far, and may be published."""
        with self._lock:
            points, answers = self._process.points, self._answers
        if not len(points):
            return self._public()
        gram = self._erm.kernel_(points, points)
        basis = KernelBasis((gram + gram.T) / 2.0)
        beta = basis.fit(answers, self._erm.norm_bound_)
        return self._public(points, basis.coefficients(beta))
