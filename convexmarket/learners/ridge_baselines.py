"""The baseline of Jorgensen, Yu and Cormode (2015): ridge regression on a sample of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import check_positive, is_number
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import ParameterError
from convexmarket.learners.base import Domain
from convexmarket.learners.domain import Range
from convexmarket.learners.granted import Granted
from convexmarket.learners.ridge import PersonalizedRidge, Rounding
from convexmarket.learners.ridge_math import Vector
from convexmarket.learners.ridge_noise import OutputPerturbation
from convexmarket.privacy.noise import RandomSource
from convexmarket.privacy.sensitivity import Sensitivity

__all__ = ["SampledRidge", "sampling_probabilities"]

CHANCE_ERROR = 1e-15  # relative; more than what a computed chance is off by


class SampledRidge(PersonalizedRidge):
    r"""Ridge regression on a sample that leaves out demanding rows more often.

    The baseline of Jorgensen, Yu and Cormode (2015): row i is kept with probability
    :math:`(e^{\varepsilon_i}-1)/(e^t-1)`, or surely if :math:`\varepsilon_i \ge t`, and the sample
    goes into a mechanism that guarantees t to everybody.

    Parameters
    ----------
    threshold : {"max", "mean"} or float, default "max"
        t: the largest epsilon, their mean, or a positive number.
    normalization : {"rows", "sample"}, default "rows"
        ``"rows"``: a row that is not sampled is replaced by a null row, so that weights stay
        1 / n_rows and the noise does not depend on the size of the sample; then the guarantee is
        proven. ``"sample"``: weights and noise follow the size of the sample, as in the
        experiments of Acharya et al.; replacing a row is then not covered by the argument of
        amplification by sampling, and only t is guaranteed.
    regularization, max_norm, sensitivity, rounding : optional
        As for :class:`PersonalizedRidge`.
    feature_range, target_range, features, epsilon, random_state
        As for :class:`PersonalizedRidge`, which describes the fitted attributes too.

    Notes
    -----
    Under ``"rows"``, let P be the release's distribution, Q and Q' that with the row and with its
    replacement in the sample, and N that with the null row. All three are within a factor
    :math:`e^t` of each other, so :math:`Q - Q' \le (e^t-1)\min(N, Q')`, whence
    :math:`P = (1-p)N + pQ \le (1 + p(e^t-1))\,P'`, and that is :math:`e^{\varepsilon_i}`.

    Which rows were sampled, and under ``"sample"`` their number, hence ``noise_rate_``, is not to
    be published.

    Examples
    --------
    >>> from convexmarket.privacy import Simulation
    >>> X, y = np.full((3, 1), 0.5), np.zeros(3)
    >>> model = SampledRidge(threshold="mean")
    >>> model.fit(X, y, epsilon=[1.0, 2.0, 3.0], random_state=Simulation(0)).epsilon_
    array([1., 2., 2.])
    """

    perturbation = "output"
    weighting = "equal"
    fit_intercept = False
    label_noise = None
    failure_probability = 0.05
    delta = 0.0

    def __init__(
        self,
        regularization: float | Literal["auto"] = "auto",
        *,
        threshold: Literal["max", "mean"] | float = "max",
        normalization: Literal["rows", "sample"] = "rows",
        max_norm: float | None = None,
        sensitivity: Sensitivity = "tight",
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        rounding: Rounding = "auto",
        features: PublicFeatures | None = None,
        epsilon: ArrayLike | None = None,
        random_state: RandomSource = None,
    ) -> None:
        self.regularization = regularization
        self.threshold = threshold
        self.normalization = normalization
        self.max_norm = max_norm
        self.sensitivity = sensitivity
        self.feature_range = feature_range
        self.target_range = target_range
        self.rounding = rounding
        self.features = features
        self.epsilon = epsilon
        self.random_state = random_state

    def _plan(
        self, granted: Granted, n_features: int, domain: Domain, rng: np.random.Generator
    ) -> OutputPerturbation:
        sold = granted.positive
        threshold = self._threshold(sold)
        drawn = rng.random(sold.size) < _attainable(sampling_probabilities(sold, threshold))
        if self.normalization == "rows":
            divisor, guaranteed = sold.size, np.minimum(sold, threshold)
        elif self.normalization == "sample":
            divisor, guaranteed = int(drawn.sum()), np.full_like(sold, threshold)
        else:
            raise ParameterError(
                f"normalization must be 'rows' or 'sample', got {self.normalization!r}"
            )
        whole = np.full_like(sold, threshold)
        options: dict[str, Any] = {"rounding": self.rounding, "max_norm": self.max_norm}
        value = self.regularization
        if value == "auto":
            value = self._public_lambda(whole / whole.sum(), whole, n_features)
        assert not isinstance(value, str)
        plan = OutputPerturbation.of(
            drawn / max(divisor, 1),
            whole,
            value,
            n_features,
            sensitivity=self.sensitivity,
            exposure=np.full_like(sold, 1.0 / divisor if divisor else 0.0),
            **options,
        )
        secret = "which rows were sampled is kept secret, and so is their number"
        return replace(plan, epsilon=guaranteed, extra=(secret, *plan.extra))

    def _threshold(self, epsilon: Vector) -> float:
        if isinstance(self.threshold, str) and self.threshold in ("max", "mean"):
            threshold = float(epsilon.max() if self.threshold == "max" else epsilon.mean())
        elif not is_number(self.threshold):
            raise ParameterError(
                f"threshold must be 'max', 'mean' or a positive number, got {self.threshold!r}"
            )
        else:
            threshold = float(self.threshold)
        return check_positive("threshold", threshold)


def sampling_probabilities(epsilon: ArrayLike, threshold: float) -> Vector:
    r"""Return the chance of each row to be sampled (Jorgensen, Yu and Cormode, 2015).

    Parameters
    ----------
    epsilon : array_like of shape (n_rows,)
        Positive guarantees.
    threshold : float
        t, the guarantee of the mechanism that the sample goes into; positive.

    Returns
    -------
    ndarray of shape (n_rows,)
        :math:`(e^{\varepsilon_i}-1)/(e^t-1)` below the threshold, one from there on.

    Examples
    --------
    >>> sampling_probabilities([0.1, 1.0, 2.0], threshold=1.0).round(4)
    array([0.0612, 1.    , 1.    ])
    """
    array = np.asarray(epsilon, dtype=np.float64)
    below = np.minimum(array, threshold)
    # exp(below - t) * (1 - e^-below) / (1 - e^-t) never overflows.
    ratio = np.exp(below - threshold) * np.expm1(-below) / np.expm1(-threshold)
    return np.asarray(np.where(array < threshold, ratio, 1.0))


def _attainable(chances: Vector) -> Vector:
    """Round chances down to multiples of 2**-53, with which a uniform double is below them.

    Without this a chance below 2**-53 would be one of 2**-53, times ``exp(threshold)`` in the loss.
    """
    below = np.floor(chances * (1.0 - CHANCE_ERROR) * 2.0**53) / 2.0**53
    return np.where(chances < 1.0, below, chances)
