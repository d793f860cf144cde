"""Noisy gradient descent: any differentiable model, under a guarantee chosen seller by seller.

In each step every row's gradient is clipped, weighted by what the row granted and rounded to whole
numbers; these are added up, and discrete Gaussian noise to them. Nothing rests on a minimiser or on
a bound on the rows.

What row i loses, and why nothing is wasted, docs/theory/noisy-descent.md proves.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from convexmarket.arguments import aligned, check_count, check_scales
from convexmarket.errors import ParameterError
from convexmarket.learners.granted import Granted, dense_rows
from convexmarket.learners.labels import binary_signs, check_classes
from convexmarket.learners.logistic_risk import logistic_risk_constants
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.active import admit, names_of
from convexmarket.privacy.composition import gaussian_shift
from convexmarket.privacy.guarantee import WEAK, Guarantee, check_delta
from convexmarket.privacy.lattice import (
    LENGTH_ROUNDING,
    MOST_STEPS,
    clipped_steps,
    discrete_gaussian,
)
from convexmarket.privacy.noise import RandomSource, noise_assumption, resolve_generator

__all__ = ["NoisyDescent"]

Floats = NDArray[np.float64]

DEVIATION = 2**36  # of the noise, in whole numbers: what rounding costs is far below
ROUNDING = LENGTH_ROUNDING  # relative; more than a clipped length or a shift is off by


class NoisyDescent(ClassifierMixin, BaseEstimator):
    r"""Binary classification by noisy gradient descent, linear or with one hidden layer.

    Parameters
    ----------
    hidden : int, default 0
        Units of the hidden layer, ``v'tanh(Wx)``; 0 is logistic regression, ``w'x``.
    steps : int, default 50
        T. More of them get nearer to the minimum, and each is noisier.
    max_norm : float, default 10.0
        How far the parameters may be from where they start.
    clip : float, default 1.0
        C: a longer gradient of a row is made this long. Rows of norm at most C are never clipped
        in the linear model.
    delta : float, default 1e-6
        With which probability a row may lose more than epsilon, see :class:`Guarantee`.
    classes : pair of labels, default (-1, 1)
        The public label set; the second label is the positive one.
    epsilon : float, array_like of shape (n_rows,) or None, default None
        What ``fit`` takes where it gets no ``epsilon``, as in a pipeline.

    Attributes
    ----------
    coef_ : ndarray of shape (n_parameters,)
        The mean of the later half of the iterates; W by rows and then v where there is a hidden
        layer.
    classes_ : ndarray of shape (2,)
    guarantee_ : Guarantee
        Just what each row granted.
    n_features_in_ : int

    Examples
    --------
    >>> from convexmarket.privacy import Simulation
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (1000, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> epsilon = rng.choice([0.0, 0.5, 1.0], 1000)
    >>> model = NoisyDescent().fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    >>> bool(np.all(model.guarantee_.epsilon <= epsilon)), model.score(X, y)
    (True, 0.971)
    """

    def __init__(
        self,
        hidden: int = 0,
        *,
        steps: int = 50,
        max_norm: float = 10.0,
        clip: float = 1.0,
        delta: float = 1e-6,
        classes: tuple[Any, Any] = (-1, 1),
        epsilon: ArrayLike | None = None,
    ) -> None:
        self.hidden = hidden
        self.steps = steps
        self.max_norm = max_norm
        self.clip = clip
        self.delta = delta
        self.classes = classes
        self.epsilon = epsilon

    def risk(self, n_features: int, *, failure_probability: float = 0.05) -> tuple[float, float]:
        r"""Return (mu, sigma): how spread and noise hurt the linear model, for a market.

        Parameters
        ----------
        n_features : int
        failure_probability : float, default 0.05
            Of the concentration inequality.

        Returns
        -------
        mu, sigma : float
            mu is that of :func:`logistic_risk_constants`. A descent whose gradients have noise of
            variance v in d directions ends, on average, within
            :math:`D\sqrt{(C^2 + dv)/T} \le DC/\sqrt T + D\sqrt{dv/T}` of the best model of norm D,
            and the second is :math:`2DC\sqrt d/\sum\mu_i`. A row's shift is at least what it is at
            epsilon 10, per unit of epsilon, if it granted no more.
        """
        self._check_parameters()
        reach = self.max_norm * self.clip
        mu, _ = logistic_risk_constants(failure_probability, 0.5, reach, n_features)
        rate = float(gaussian_shift(WEAK, self.delta)) / WEAK
        return mu, 2.0 * reach * float(np.sqrt(self._size(n_features))) / (rate * np.log(2.0))

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
        """Release a model of the rows, each under what it granted.

        Parameters
        ----------
        X, y, epsilon, rows, accountant, random_state
            As for :class:`PrivateLogisticRegression`. Rows need no bound: entries beyond 1e150 in
            size are clipped to it, and those below 1e-150 are 0.

        Returns
        -------
        NoisyDescent
            The fitted estimator.

        Raises
        ------
        ParameterError
            If a parameter or epsilon is out of range.
        BudgetExceededError
            If a row cannot pay. Nothing was charged then, and no row looked at.
        DataError
            If the data are malformed or sparse, or a label is unknown.
        """
        default = self.epsilon if epsilon is None else epsilon
        X, y, epsilon, rows = aligned(X=X, y=y, epsilon=default, rows=rows)
        self._check_parameters()
        granted = Granted.of(X, epsilon, None)
        kept = self._promise(granted, random_state)
        charge = admit(kept, accountant, rows, names=names_of(X), random_state=random_state)
        matrix, labels = dense_rows(self, *granted.rows(X, y), dtype=np.float64, order="C")
        classes, signs = binary_signs(labels, self.classes)
        rng = resolve_generator(random_state)
        charge()
        radii = self._radii(granted, self._size(matrix.shape[1]))
        noisy = bool(np.isfinite(granted.positive).all())
        self.coef_ = self._descend(matrix, signs, radii, noisy, rng)
        self.classes_, self.guarantee_ = classes, kept
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the margin of each row; positive means the second class."""
        check_is_fitted(self)
        return self._margins(dense_rows(self, X, dtype=np.float64, reset=False), self.coef_)[0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row."""
        return self.classes_[(self.decision_function(X) > 0).astype(np.intp)]

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the logistic probability of each class, in the order of ``classes_``."""
        margins = self.decision_function(X)
        return np.column_stack([expit(-margins), expit(margins)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_parameters(self) -> None:
        if self.hidden != 0:
            check_count("hidden", self.hidden)
        check_count("steps", self.steps)
        check_scales(max_norm=self.max_norm, clip=self.clip)
        check_delta(self.delta, positive=True, why="Gaussian noise needs one")
        check_classes(self.classes)
        if self.classes is None:
            raise ParameterError("classes is missing; pass the public (negative, positive) labels")

    def _promise(self, granted: Granted, random_state: RandomSource) -> Guarantee:
        some = granted.spread(granted.weights()) > 0
        noisy = bool(np.isfinite(granted.positive).all())
        return Guarantee(
            epsilon=np.where(some, granted.epsilon, 0.0),
            delta=self.delta,
            mechanism=f"gradient descent in {self.steps} steps, exact Gaussian noise on a lattice",
            accounting="Gaussian",
            assumptions=(
                noise_assumption(random_state, any_noise=noisy),
                f"the label set {tuple(self.classes)} is public",
                "epsilon and all parameters were chosen without looking at the data",
                "a row's computed gradient depends on no other row",
            ),
        )

    def _size(self, n_features: int) -> int:
        return self.hidden * (n_features + 1) if self.hidden else n_features

    def _radii(self, granted: Granted, size: int) -> Floats:
        """Return how long each row's whole numbers may be; a row too small for one has none."""
        weights = granted.weights()
        if np.isinf(granted.positive).any():
            return np.where(weights > 0, float(DEVIATION), 0.0)
        deviation = np.sqrt(float(DEVIATION) ** 2 - 9.0)
        shift = gaussian_shift(granted.positive, self.delta) * deviation / np.sqrt(self.steps)
        radii = np.maximum(shift * (1.0 - ROUNDING) - np.sqrt(size), 0.0) / 2.0 / (1.0 + ROUNDING)
        radii = np.minimum(radii, MOST_STEPS / radii.size)
        if not radii.any():
            raise ParameterError(
                f"epsilon is at most {granted.epsilon.max():g}, too little for {self.steps} steps "
                f"of {size} parameters; buy more privacy"
            )
        return np.asarray(radii)

    def _descend(
        self, X: Floats, signs: Floats, radii: Floats, noisy: bool, rng: np.random.Generator
    ) -> Floats:
        """Return the mean of the later half of the iterates."""
        size = self._size(X.shape[1])
        start = rng.normal(size=size) * bool(self.hidden) / np.sqrt(max(self.hidden, 1))
        total = radii.sum()
        noise = size * (DEVIATION / total) ** 2 if noisy else 0.0
        pace = self.max_norm / np.sqrt(self.steps * (1.0 + noise))
        parameters, mean = start, np.zeros(size)
        later = range(self.steps // 2, self.steps)
        for step in range(self.steps):
            gradients = self._gradients(X, signs, parameters)
            summed = clipped_steps(gradients, self.clip, radii).sum(axis=0)
            if noisy:
                summed = summed + np.array(discrete_gaussian(DEVIATION, size, rng), dtype=np.int64)
            moved = parameters - pace * (summed / total) - start
            parameters = start + moved * min(
                1.0, self.max_norm / max(float(np.linalg.norm(moved)), 1e-9)
            )
            mean += parameters / len(later) * (step in later)
        return mean

    def _margins(self, X: Floats, parameters: Floats) -> tuple[Floats, Floats]:
        """Return the margin of each row, and what the hidden units say."""
        if not self.hidden:
            return X @ parameters, X
        inner, outer = parameters[: -self.hidden], parameters[-self.hidden :]
        units = np.tanh(X @ inner.reshape(self.hidden, -1).T)
        return units @ outer, units

    def _gradients(self, X: Floats, signs: Floats, parameters: Floats) -> Floats:
        """Return the gradient of each row's logistic loss."""
        margins, units = self._margins(X, parameters)
        slopes = (-signs * expit(-signs * margins))[:, None]
        if not self.hidden:
            return slopes * X
        inward = slopes * parameters[-self.hidden :] * (1.0 - units**2)
        return np.hstack([(inward[:, :, None] * X[:, None, :]).reshape(len(X), -1), slopes * units])
