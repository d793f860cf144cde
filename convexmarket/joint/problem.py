r"""The joint problem: model, weights and total privacy together, as data.

.. math:: \min_{w,\, a,\, \eta}\; \sum_i a_i \log(1 + e^{-y_i w^\top x_i})
          + \tfrac{\Lambda}{2}\|w\|^2 + \frac{\mathrm{noise}(w)}{\eta} + \mathrm{market}(a, \eta)

(A, Eq. 17; B, Eq. 10). The market is any :class:`Market`; its spread is A's square or B's norm. As
published, with ``noise(w) = 2*b'w`` for a noise vector b that was drawn beforehand, the objective
has no minimum: along ``w = -(2/(Lambda*eta))*b`` it falls like ``-2*||b||^2/(Lambda*eta^2)`` as eta
tends to 0. Such a problem is refused; there are three remedies to choose from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gamma as gamma_distribution

from convexmarket.checks import (
    aligned,
    check_choice,
    check_instance,
    check_positive,
    check_share,
    checked_numbers,
    labels_of,
)
from convexmarket.errors import DataError, ParameterError, UnattainedOptimumError
from convexmarket.market import Market
from convexmarket.terms import Losses, Noise

__all__ = ["JointMarket", "NoiseModel"]

Floats = NDArray[np.float64]
NoiseModel = Literal["expected", "worst-case", "realised"]

#: Relative excess of sigma over the largest gain from noise, for a minimum to be attained.
_MARGIN = 1e-6
#: Largest ratio of the norm of a row to the root of the regularization, whose square is finite.
_LARGEST_NORM = 1e150


@dataclass(frozen=True, eq=False, repr=False)
class JointMarket:
    """A buyer's problem in which the model is chosen with the purchases.

    Neither the model nor the payments carry a privacy guarantee: weights and eta are chosen by
    looking at the data (A, Proposition II.2, needs them chosen without).

    Parameters
    ----------
    market : Market
        The buyer's other terms: spread, noise, payments.
    X : array_like, shape (m, n_features)
        One row for each seller.
    y : array_like, shape (m,)
        Labels, -1 or 1.
    regularization : float
        Lambda, > 0.
    noise : {"expected", "worst-case", "realised"}
        The addition of objective perturbation, over eta: nothing on average; at most
        ``2*r*||w||`` with r the quantile of ``||b||`` that is exceeded with
        ``failure_probability`` (A, Theorem II.4); or ``2*b'w`` for a vector b that is known.
    noise_vector : array_like, shape (n_features,), optional
        b, for "realised".
    failure_probability : float
        delta', for "worst-case".
    max_norm : float, optional
        beta, a bound on ``||w||``.

    Raises
    ------
    ParameterError, DataError
        If an argument is not of its kind.

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> X, y = np.array([[0.6, 0.8], [-0.6, 0.2], [0.3, -0.9]]), np.array([1, -1, -1])
    >>> sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> objective = 2.0 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments()
    >>> market = cm.Market(sellers, objective)
    >>> joint = cm.JointMarket(market, X, y, regularization=0.5)
    >>> cm.allocate_jointly(joint).status
    'global'
    """

    market: Market
    X: Any
    y: Any
    regularization: float = field(kw_only=True)
    noise: NoiseModel = field(default="expected", kw_only=True)
    noise_vector: Any = field(default=None, kw_only=True)
    failure_probability: float = field(default=0.05, kw_only=True)
    max_norm: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        market, vector = self.market, self.noise_vector
        check_instance("market", market, Market)
        X, y = aligned(X=self.X, y=self.y)
        market.sellers.check_labels("X", labels_of(X))
        market.sellers.check_labels("y", labels_of(y))
        X, y = _checked_rows(X, y, len(market.sellers))
        regularization = check_positive("regularization", self.regularization)
        if self.max_norm is not None:
            check_positive("max_norm", self.max_norm)
        longest = float(np.linalg.norm(X, axis=1).max())
        if not longest < _LARGEST_NORM * np.sqrt(regularization):
            raise DataError(
                f"a row of X has norm {longest:g}, too large for regularization ="
                f" {regularization:g} in double precision; scale the rows down"
            )
        check_choice("noise", self.noise, NoiseModel)
        check_share("failure_probability", self.failure_probability)
        if self.noise == "realised":
            vector = _checked_vector(vector, X.shape[1])
        elif vector is not None:
            raise ParameterError(f'a noise_vector is for noise="realised", not {self.noise!r}')
        vars(self).update(X=X, y=y, regularization=regularization, noise_vector=vector)

    @cached_property
    def noise_radius(self) -> float:
        """The quantile r of ``||b||`` in "worst-case" noise; b is Gamma(n_features, 1)."""
        return float(gamma_distribution(self.X.shape[1]).ppf(1 - self.failure_probability))

    @property
    def sigma(self) -> float:
        """The market's weight of 1/eta."""
        return self.market.form.sigma

    @property
    def eta_low(self) -> float:
        """The lower end of the market's EtaRange, else 0."""
        return self.market.form.eta_low

    def losses(self, model: Floats) -> Floats:
        """Compute the logistic loss of every row, shape (m,).

        Parameters
        ----------
        model : array_like of shape (n_features,)
        """
        return np.logaddexp(0.0, -self.y * (self.X @ model))

    def noise_price(self, model: Floats) -> float:
        """Compute the factor of 1/eta in the objective at a model, the market's sigma included.

        Parameters
        ----------
        model : array_like of shape (n_features,)
        """
        if self.noise == "worst-case":
            return self.sigma + 2.0 * self.noise_radius * float(np.linalg.norm(model))
        if self.noise_vector is not None:
            return self.sigma + 2.0 * float(self.noise_vector @ model)
        return self.sigma

    def objective(self, model: Floats, weights: Floats, eta: float) -> float:
        """Compute the objective at a point.

        Parameters
        ----------
        model : array_like of shape (n_features,)
        weights : array_like of shape (m,)
        eta : float > 0
        """
        costs = self.market.sellers.virtual_costs
        costs = np.where((weights > 0) | np.isfinite(costs), costs, 0.0)
        market = self.market.objective.value(weights, eta, costs)
        fit = float(weights @ self.losses(model)) + self.regularization / 2 * float(model @ model)
        return market + fit + (self.noise_price(model) - self.sigma) / eta

    def purchase_market(self, model: Floats) -> Market:
        """Return the market in weights and eta that remains for a given model.

        It is allocated like any other; its sigma may not be negative.

        Parameters
        ----------
        model : array_like of shape (n_features,)
        """
        losses, noise = Losses(self.losses(model)), self.noise_price(model) * Noise()
        objective = losses + noise + self.market.objective.without_noise
        return Market(self.market.sellers, objective, self.market.constraints)

    def check_bounded(self) -> None:
        """Refuse a problem without a minimum, with the remedies.

        Raises
        ------
        UnattainedOptimumError
        """
        if self.eta_low > 0:
            return
        if self.noise_vector is not None:
            length = float(np.linalg.norm(self.noise_vector))
            enough = None if self.max_norm is None else 2 * self.max_norm * length
            if enough is None or self.sigma <= enough * (1 + _MARGIN):
                need = "2*max_norm*||b||" if enough is None else f"{enough:.6g} = 2*max_norm*||b||"
                raise UnattainedOptimumError(
                    "with a realised noise vector b the objective has no minimum: along w = "
                    "-(2/(Lambda*eta))*b it falls like -2*||b||^2/(Lambda*eta^2) as eta tends to "
                    'zero, faster than sigma/eta grows. Choose noise="expected" (the noise is zero '
                    'on average) or noise="worst-case"; or give max_norm and a sigma above '
                    f"{need} (sigma is {self.sigma:.6g}); or an EtaRange(low, high), which then "
                    "decides the answer"
                )
        elif self.sigma == 0:
            raise UnattainedOptimumError(
                "sigma, the weight of Noise, is 0: without a model, less privacy is always "
                "cheaper, and eta tends to 0; give sigma > 0, or an EtaRange(low, high), which "
                "then decides the answer (the naive model of the papers)"
            )

    def __repr__(self) -> str:
        m, n = self.X.shape
        return f"JointMarket({m} rows of {n} features, noise={self.noise!r}, {self.market!r})"


def _checked_rows(X: ArrayLike, y: ArrayLike, n_sellers: int) -> tuple[Floats, Floats]:
    rows, labels = (
        np.array(checked_numbers(name, values, DataError, truth_values=True))
        for name, values in (("X", X), ("y", y))
    )
    if rows.shape != (n_sellers, rows.size // n_sellers) or not rows.size:
        raise DataError(
            f"X has shape {rows.shape}; give one row of features for each of {n_sellers} sellers"
        )
    if labels.shape != (n_sellers,):
        raise DataError(f"y has shape {labels.shape}; give one label for each of {n_sellers} rows")
    if not np.isfinite(rows).all():
        raise DataError("X holds entries that are not finite; fill or drop them")
    if not np.isin(labels, (-1.0, 1.0)).all():
        raise DataError("labels must be -1 or 1")
    rows.flags.writeable = labels.flags.writeable = False
    return rows, labels


def _checked_vector(vector: ArrayLike | None, n_features: int) -> Floats:
    if vector is None:
        raise ParameterError(
            'noise="realised" needs the noise_vector b, for example '
            "convexmarket.privacy.gamma_sphere_noise(n_features, rng)"
        )
    array = np.array(checked_numbers("noise_vector", vector))
    if array.shape != (n_features,) or not np.isfinite(array).all():
        raise ParameterError(
            f"noise_vector has shape {array.shape}; give {n_features} finite numbers, one for each "
            "feature"
        )
    array.flags.writeable = False
    return array
