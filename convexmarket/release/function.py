r"""Release the whole prediction function by adding a Gaussian process.

Replacing row i changes the model by at most :math:`2LR_\phi a_i/\lambda` in the RKHS, in any
direction. A Gaussian process with the kernel as covariance is isotropic in this space. Therefore,
any number of answers, even to adaptive questions, has the same privacy cost as one answer. Jain and
Thakurta do not consider this release.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.errors import NotSupportedError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.learners.predictor import PublicPredictor
from convexmarket.privacy import Account, RandomSource
from convexmarket.release.calibrated_release import SingleCopy, bounded_predictions
from convexmarket.release.fit import KernelBasis
from convexmarket.release.lattice_noise import MOST_POINTS, Process, process_noise

Floats = NDArray[np.float64]


class FunctionRelease(SingleCopy):
    r"""Private predictions at up to 5,000 points with the privacy cost of one prediction.

    Parameters
    ----------
    erm, epsilon, accountant, rows, random_state
        See :class:`~convexmarket.InteractiveRelease`.
    delta : float
        Strictly between 0 and 1.

    Attributes
    ----------
    guarantee : Guarantee
    scale : float
        Standard deviation of the noise per unit of feature norm.

    Raises
    ------
    ParameterError, DataError, BudgetExceededError
        See :class:`~convexmarket.InteractiveRelease`.

    Notes
    -----
    The noise is drawn at each new point and stored. It is exact discrete Gaussian noise in the
    coordinates of the model, and its scale covers rounding errors. The epsilon is computed exactly
    (Balle and Wang).

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
            "questions depend on the rows only through earlier answers; this object contains the"
            " noise, so it is as private as the rows",
            accountant,
            rows,
            random_state,
        )
        self._process = Process(self._erm, noise, generator)
        self._answers: Floats = np.zeros(0)
        self._places: dict[bytes, int] = {}  # position of the answer at each point
        self._lock = Lock()

    def predict(self, X: ArrayLike) -> Floats:
        """Predict at rows of the public domain.

        Parameters
        ----------
        X : array_like of shape (n_questions, n_features)
            Rows of the public domain.

        Returns
        -------
        ndarray of shape (n_questions,)
            Released predictions. Their signs are the predicted labels of a classifier.

        Raises
        ------
        DataError
            If a row is malformed or outside the domain.
        NotSupportedError
            If the total number of answers exceeds 5,000. Use :attr:`predictor` for more points.
        """
        self._check_process()
        points = self._checked_points(X)
        keys = [(row + 0.0).tobytes() for row in points]  # -0.0 is 0.0
        with self._lock:
            fresh = dict(zip(keys, range(len(keys)), strict=True))  # count each new point once
            fresh = {key: place for key, place in fresh.items() if key not in self._places}
            if fresh:
                self._ask(points[list(fresh.values())], list(fresh))
            return self._answers[[self._places[key] for key in keys]]

    def _ask(self, points: Floats, keys: list[bytes]) -> None:
        total = len(self._answers) + len(points)
        if total > MOST_POINTS:
            raise NotSupportedError(
                f"{len(points):,} more answers would make {total:,}, above the limit of "
                f"{MOST_POINTS:,} of a Gaussian process; use .predictor, which is public"
            )
        answers = self._process.at(points, bounded_predictions(self._erm, points))
        self._places.update(zip(keys, range(len(self._answers), total), strict=True))
        self._answers = np.append(self._answers, answers)

    @property
    def predictor(self) -> PublicPredictor:
        """Public predictor that is fitted to all answers so far."""
        with self._lock:
            points, answers = self._process.points, self._answers
        if not len(points):
            return self._public()
        basis = KernelBasis(self._erm.kernel_(points, points))
        beta = basis.fit(answers, self._erm.norm_bound_)
        return self._public(points, basis.coefficients(beta))
