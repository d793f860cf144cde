"""What personalised ridge regression is compared with: one guarantee for all, sampling, none."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import check_nonnegative, check_positive, is_number
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import ParameterError
from convexmarket.learners.granted import Granted
from convexmarket.learners.ridge_domain import Range
from convexmarket.learners.ridge_lattice import RidgeLattice
from convexmarket.learners.ridge_math import (
    Vector,
    noise_rate,
    sampling_probabilities,
)
from convexmarket.learners.ridge_release import Plan, RidgeRelease, Rounding
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.noise import RandomSource
from convexmarket.privacy.sensitivity import Sensitivity

__all__ = ["NonPersonalizedRidge", "NonPrivateRidge", "SampledRidge"]

CHANCE_ERROR = 1e-15  # relative; more than what a computed chance is off by


class NonPersonalizedRidge(RidgeRelease):
    """Ridge regression that gives everybody what the most demanding row asks for.

    The baseline of Acharya et al., section 4.1: equal weights, and noise for the smallest epsilon.

    Parameters
    ----------
    regularization, max_norm, sensitivity, feature_range, target_range, rounding, features, epsilon
        As for :class:`PersonalizedRidge`, which describes the fitted attributes too.

    Examples
    --------
    >>> from convexmarket.privacy import Simulation
    >>> X, y = np.full((3, 1), 0.5), np.zeros(3)
    >>> model = NonPersonalizedRidge()
    >>> model.fit(X, y, epsilon=[1.0, 2.0, 0.0], random_state=Simulation(0)).epsilon_.round(2)
    array([1., 1., 0.])
    """

    def __init__(
        self,
        regularization: float = 1.0,
        *,
        max_norm: float | None = None,
        sensitivity: Sensitivity = "tight",
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        rounding: Rounding = "auto",
        features: PublicFeatures | None = None,
        epsilon: ArrayLike | None = None,
    ) -> None:
        self.regularization = regularization
        self.max_norm = max_norm
        self.sensitivity = sensitivity
        self.feature_range = feature_range
        self.target_range = target_range
        self.rounding = rounding
        self.features = features
        self.epsilon = epsilon

    def _plan(self, granted: Granted, n_features: int, rng: np.random.Generator) -> Plan:
        epsilon = granted.positive
        least = np.full_like(epsilon, epsilon.min())
        weights = np.full_like(epsilon, 1.0 / epsilon.size)
        rate = noise_rate(weights, least, self._kappa(n_features))
        return Plan(weights, rate, least, weights, least)


class SampledRidge(RidgeRelease):
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
    regularization, max_norm, sensitivity, feature_range, target_range, rounding, features, epsilon
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

    def __init__(
        self,
        regularization: float = 1.0,
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

    def _plan(self, granted: Granted, n_features: int, rng: np.random.Generator) -> Plan:
        epsilon = granted.positive
        threshold = self._threshold(epsilon)
        kept = rng.random(epsilon.size) < _attainable(sampling_probabilities(epsilon, threshold))
        if self.normalization == "rows":
            divisor, guaranteed = epsilon.size, np.minimum(epsilon, threshold)
        elif self.normalization == "sample":
            divisor, guaranteed = int(kept.sum()), np.full_like(epsilon, threshold)
        else:
            raise ParameterError(
                f"normalization must be 'rows' or 'sample', got {self.normalization!r}"
            )
        sold = np.full_like(epsilon, threshold)
        if not divisor:  # nothing was sampled: the zero model, which needs no noise
            nothing = np.zeros_like(epsilon)
            return Plan(nothing, np.inf, guaranteed, nothing, sold)
        rate = threshold * divisor / self._kappa(n_features)
        exposure = np.full_like(epsilon, 1.0 / divisor)
        return Plan(kept / divisor, float(rate), guaranteed, exposure, sold)

    def _kept(self, plan: Plan, lattice: RidgeLattice | None) -> Vector:
        """Return what sampling makes of the threshold, whatever noise keeps that."""
        return plan.epsilon

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

    def _assumptions(self) -> tuple[str, ...]:
        return ("which rows were sampled is kept secret, and so is their number",)


def _attainable(chances: Vector) -> Vector:
    """Round chances down to multiples of 2**-53, with which a uniform double is below them.

    Without this a chance below 2**-53 would be one of 2**-53, times ``exp(threshold)`` in the loss.
    """
    below = np.floor(chances * (1.0 - CHANCE_ERROR) * 2.0**53) / 2.0**53
    return np.where(chances < 1.0, below, chances)


class NonPrivateRidge(RidgeRelease):
    """Ridge regression without noise and without a guarantee: what privacy is compared with.

    Parameters
    ----------
    regularization : float, default 1.0
        Nonnegative; zero is least squares, of least norm where it is not unique.
    feature_range, target_range, features
        As for :class:`PersonalizedRidge`, which describes the fitted attributes too.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0]]), np.array([0.0, 0.5])
    >>> NonPrivateRidge(regularization=0.0).fit(X, y).coef_.round(6)
    array([0.5])
    """

    max_norm = None
    sensitivity = "tight"
    rounding = None
    epsilon = np.inf

    def __init__(
        self,
        regularization: float = 1.0,
        *,
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        features: PublicFeatures | None = None,
    ) -> None:
        self.regularization = regularization
        self.feature_range = feature_range
        self.target_range = target_range
        self.features = features

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
        """Solve, and release the solution as it is; ``epsilon`` is not kept to.

        Parameters
        ----------
        X, y, epsilon, rows, accountant, random_state
            As for :meth:`PersonalizedRidge.fit`. A row of epsilon 0 is not used; only rows of an
            infinite budget can pay for this.

        Returns
        -------
        self
        """
        return super().fit(X, y, epsilon=epsilon, rows=rows, accountant=accountant)

    def _plan(self, granted: Granted, n_features: int, rng: np.random.Generator) -> Plan:
        epsilon = granted.positive
        check_nonnegative("regularization", self.regularization)
        size = epsilon.size
        weights, nothing = np.full(size, 1.0 / size), np.full(size, np.inf)
        return Plan(weights, np.inf, nothing, weights, nothing)
