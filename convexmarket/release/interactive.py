r"""Answer questions interactively, most of them without privacy cost (K, Algorithm 1).

The prediction of a public model is compared with the true prediction plus Laplace noise. If the
difference is within a threshold, the answer is the public prediction. Otherwise, the answer is the
noisy prediction, and the public model is updated. Only updates have a privacy cost, and at most B
updates are allowed.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_count, check_positives, check_share
from convexmarket.errors import QueriesExhaustedError, UpdatesExhaustedError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.privacy import Account, RandomSource
from convexmarket.privacy.composition import Composition
from convexmarket.release.calibrated_release import SingleCopy, bounded_predictions
from convexmarket.release.lattice_noise import laplace_noise
from convexmarket.release.scales import interactive_epsilon

Floats = NDArray[np.float64]

BLOCK = 64  # number of answers whose noise is drawn at a time


class Counts(NamedTuple):
    """Numbers of questions and updates of an interactive release."""

    queries: int
    updates: int


class InteractiveRelease(SingleCopy):
    r"""Private predictions for questions that arrive one after another.

    Parameters
    ----------
    erm : KernelERM
        Fitted model.
    epsilon : float or array_like of shape (n_rows,)
        Privacy cost of the whole release in nats, as one number or one number for each row.
    delta : float
        Strictly between 0 and 1.
    max_queries : int
        Number T of questions. The threshold depends on T, but the cost does not.
    max_updates : int
        Number B of updates of the public model. See
        :func:`~convexmarket.release.ErrorBounds.suggest_updates`.
    failure_probability : float, default 0.05
        Probability beta that the error of an answer exceeds :attr:`error_bound`.
    accounting : {"tight", "paper"}, default "tight"
        Bound for the scale of the noise. ``"paper"`` is ``200*sqrt(B)*S*log(4/delta)/epsilon`` (K,
        Theorem 9, which prints S inside the root). ``"tight"`` is computed from the moments of the
        privacy loss, and is hundreds of times smaller than ``"paper"`` (docs/theory.md, section
        12).
    threshold : float, optional
        Difference above which the public model is updated. The default is
        ``4*scale*log(2*T/failure_probability)``, as in the paper. The guarantee does not depend on
        the threshold. A lower threshold causes more updates.
    accountant : Account, optional
        Account that is charged in full before noise is drawn. By default, all open accounts are
        charged; see :func:`convexmarket.privacy.account`.
    rows : array_like of int, optional
        Positions of the model's rows in the accountant.
    random_state : None, Simulation or another source, default None
        Source of the noise; see :class:`~convexmarket.PrivateLogisticRegression`.

    Attributes
    ----------
    guarantee : Guarantee
    scale, threshold : float
        Public scale of the Laplace noise, and threshold, in units of the predictions.
    error_bound : float
        Bound on the error of all answers with probability ``1 - failure_probability``. The bound is
        the threshold plus a quarter of the default threshold.
    predictor : PublicPredictor
        The public model, a combination of at most B kernels at the points of updates. This model
        can be published and evaluated at any points.

    Raises
    ------
    ParameterError
        If an argument is out of range.
    DataError
        If the model is not fitted.
    BudgetExceededError
        If a budget is exceeded.

    Notes
    -----
    Rounds without an update have no cost. Let L be the privacy loss of the transcript and U the
    number of updates, at most B. Then :math:`e^{\lambda L - \kappa U}` is a supermartingale for
    sufficiently small lambda and a suitable kappa.

    References
    ----------
    Jain and Thakurta, Differentially Private Learning with Kernels, Algorithm 1, Theorems 2 and 3;
    Gupta, Roth and Ullman, Iterative Constructions and Private Data Release, Theorem 4.1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (20_000, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> erm = KernelERM(regularization=0.1).fit(X, y)
    >>> release = InteractiveRelease(
    ...     erm, 1.0, 1e-6, max_queries=100, max_updates=5, threshold=0.3
    ... )
    >>> release.predict([[0.6, 0.1], [-0.6, 0.2], [0.5, -0.1]]) > 0
    array([ True, False,  True])
    >>> release.remaining.queries
    97
    """

    def __init__(
        self,
        erm: KernelERM,
        epsilon: ArrayLike,
        delta: float,
        *,
        max_queries: int,
        max_updates: int,
        failure_probability: float = 0.05,
        accounting: Composition = "tight",
        threshold: float | None = None,
        accountant: Account | None = None,
        rows: ArrayLike | None = None,
        random_state: RandomSource = None,
    ) -> None:
        sold = self._open(erm, epsilon, delta, accounting, " for the sparse-vector scheme")
        self._max_queries = check_count("max_queries", max_queries)
        self._max_updates = check_count("max_updates", max_updates)
        check_share("failure_probability", failure_probability)
        if threshold is not None and threshold != 0:
            check_positives(threshold=threshold)
        calibration = interactive_epsilon(self._max_updates, delta, accounting)
        noise = laplace_noise(self._erm, sold, calibration, delta)
        usual = 4.0 * noise.scale * float(np.log(2.0 * self._max_queries / failure_probability))
        self.threshold = usual if threshold is None else float(threshold)
        # Rounding and the lattice each shift the tail of the noise by half a step.
        self.error_bound = self.threshold + usual / 4.0 + noise.step
        self._generator = self._charge(
            noise,
            f"up to {max_queries} predictions, at most {max_updates} of them noisy (sparse vector)",
            "questions depend on the rows only through earlier answers",
            accountant,
            rows,
            random_state,
        )
        self._drawn: list[float] = []
        self._queries = self._updates = 0
        self._lock = Lock()
        self.predictor = self._public()

    @property
    def spent(self) -> Counts:
        """Numbers of questions and updates so far. The guarantee covers the whole release."""
        return Counts(self._queries, self._updates)

    @property
    def remaining(self) -> Counts:
        """Numbers of remaining questions and updates."""
        return Counts(self._max_queries - self._queries, self._max_updates - self._updates)

    def predict(self, X: ArrayLike) -> Floats:
        """Answer questions in order.

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
            If a row is malformed or outside the domain. In this case, no question is answered.
        QueriesExhaustedError
            If there are more rows than remaining questions. In this case, no question is answered.
        UpdatesExhaustedError
            If no update remains. ``answers`` of the error contains the answers of this call.
        """
        self._check_process()
        points = self._checked_points(X)
        if not len(points):
            return np.zeros(0)
        free = ".predictor answers any number of questions at no cost; a new release costs"
        values = self._noise.rounded(bounded_predictions(self._erm, points)).tolist()
        answers: list[float] = []
        with self._lock:
            if len(points) > self.remaining.queries:
                raise QueriesExhaustedError(
                    f"X has {len(points)} questions, but only {self.remaining.queries} of "
                    f"max_queries = {self._max_queries} are left, so no question was answered. "
                    f"{free} "
                    "epsilon again"
                )
            for point, value in zip(points, values, strict=True):
                if self.remaining.updates == 0:
                    raise UpdatesExhaustedError(
                        f"all max_updates = {self._max_updates} updates are used, after "
                        f"{self._queries} questions; {len(answers)} of the {len(points)} questions "
                        f"in X were answered (.answers of this error). {free} epsilon again",
                        tuple(answers),
                    )
                if not self._drawn:  # process many questions together for speed
                    self._drawn = self._noise.added_to(np.zeros(BLOCK), self._generator).tolist()
                answers.append(self._answer(point, value + self._drawn.pop()))
        return np.array(answers)

    def _answer(self, point: Floats, noisy: float) -> float:
        public = float(self.predictor.predict(point[None, :])[0])
        self._queries += 1
        if abs(noisy - public) <= self.threshold:
            return public
        self._updates += 1
        self.predictor = self.predictor.corrected(point, noisy, self._erm.norm_bound_)
        return noisy
