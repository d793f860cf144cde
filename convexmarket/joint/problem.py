r"""Define the joint problem of choosing model, weights and total privacy.

.. math:: \min_{w,\, a,\, \eta}\; \sum_i a_i \log(1 + e^{-y_i w^\top x_i})
          + \tfrac{\Lambda}{2}\|w\|^2 + \frac{\mathrm{noise}(w)}{\eta} + \mathrm{market}(a, \eta)

(A, Eq. 17; B, Eq. 10). The market is any :class:`Market`. The spread of the market is squared in A,
but not in B. The published objective, with ``noise(w) = 2*b'w`` for a noise vector b that was drawn
beforehand, has no minimum. Along ``w = -(2/(Lambda*eta))*b``, the objective decreases like
``-2*||b||^2/(Lambda*eta^2)`` as eta tends to 0. The error raised in this case lists three remedies.

For a fixed eta and the squared spread ``mu*||a||^2``, the objective is jointly convex in (w, a) if
``2*Lambda*mu >= sigma_max(X)^2``. The proof bounds the Schur complement of the Hessian from below
by ``Lambda*I - X'D^2X/(2*mu)``, where D is diagonal with entries between -1 and 1. Theorem VIII.1
of A requires m instead of ``sigma_max(X)^2``, which is at most m if rows have norm at most 1.

For the spread ``mu*||a||``, the condition ``Lambda*mu >= m*r^3*sigma_max(X)^2`` is sufficient,
where r is the largest ``||a||`` that the cap allows (docs/theory.md, section 10).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

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
    shown,
)
from convexmarket.errors import DataError, NotSupportedError, ParameterError, UnattainedOptimumError
from convexmarket.market import Market
from convexmarket.terms import Losses, Noise

Floats = NDArray[np.float64]
NoiseModel = Literal["expected", "worst-case", "realised"]

#: Relative margin by which sigma must exceed the largest gain from noise.
_MARGIN = 1e-6
#: Largest ratio of a row's norm to the square root of the regularization. Its square is finite.
_LARGEST_NORM = 1e150
#: Smallest c for which ``exp(z)*(l(w'x) + c/2*(w'x)^2)`` is convex in (w, z).
#: It is the maximum of ``(l'(t)^2 - l(t)*l''(t)) / l(t)`` for ``l(t) = log(1 + exp(-t))``.
CONVEXITY = 0.2620117781146428


@dataclass(frozen=True, eq=False, repr=False)
class JointMarket:
    """The problem of a buyer who chooses the model and the purchases jointly.

    Neither the model nor the payments have a privacy guarantee, because weights and eta depend on
    the data. Proposition II.2 of A excludes this dependence.

    Parameters
    ----------
    market : Market
        The market, with terms such as spread, noise and payments, but without the losses.
    X, y : array_like, shapes (m, n_features) and (m,)
        One row for each seller, and its label, -1 or 1.
    regularization, max_norm : float, float or None
        Parameter Lambda > 0, and bound beta on ``||w||``.
    noise : {"expected", "worst-case", "realised"}
        The noise term of objective perturbation, times eta. If "expected", it is zero. If
        "worst-case", it is ``2*r*||w||``, where ``||b||`` exceeds r with ``failure_probability``
        (A, Theorem II.4). If "realised", it is ``2*b'w`` for a known ``noise_vector`` b.
    noise_vector, failure_probability : array_like of shape (n_features,), float

    Raises
    ------
    ParameterError, DataError
        If an argument is invalid.

    Examples
    --------
    >>> import convexmarket as cm
    >>> X, y = [[0.6, 0.8], [-0.6, 0.2], [0.3, -0.9]], [1, -1, -1]
    >>> sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> objective = 2.0 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments()
    >>> joint = cm.JointMarket(cm.Market(sellers, objective), X, y, regularization=0.5)
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
                f" {regularization:g} in double precision; scale the rows to smaller norms"
            )
        check_choice("noise", self.noise, NoiseModel)
        check_share("failure_probability", self.failure_probability)
        if self.noise == "realised":
            vector = checked_vector("noise_vector", vector, X.shape[1])
        elif vector is not None:
            raise ParameterError(f'a noise_vector requires noise="realised", not {self.noise!r}')
        vars(self).update(X=X, y=y, regularization=regularization, noise_vector=vector)

    @cached_property
    def noise_radius(self) -> float:
        """The quantile r of ``||b||``, which has a Gamma distribution, for "worst-case" noise."""
        return float(gamma_distribution(self.X.shape[1]).ppf(1 - self.failure_probability))

    @property
    def sigma(self) -> float:
        """The weight of 1/eta in the market's objective."""
        return self.market.form.sigma

    def losses(self, model: Floats) -> Floats:
        """Compute the logistic loss of a model for each row, shape (m,).

        Parameters
        ----------
        model : array_like of shape (n_features,)
        """
        return np.logaddexp(0.0, -self.y * (self.X @ model))

    def noise_price(self, model: Floats) -> float:
        """Compute the factor of 1/eta in the objective, including the market's sigma.

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
        model, weights, eta : array_like of shape (n_features,), (m,), float > 0
        """
        form = self.market.form
        market = form.objective(weights, eta)  # much faster than by CVXPY
        if form.other_terms or form.payments:
            costs = np.where((weights > 0) | np.isfinite(form.virtual_costs), form.virtual_costs, 0)
            market = self.market.objective.value(weights, eta, costs)
        fit = float(weights @ self.losses(model)) + self.regularization / 2 * float(model @ model)
        return market + fit + (self.noise_price(model) - self.sigma) / eta

    def purchase_market(self, model: Floats) -> Market:
        """Return the market that determines weights and eta for a given model.

        Parameters
        ----------
        model : array_like of shape (n_features,)
        """
        losses, noise = Losses(self.losses(model)), self.noise_price(model) * Noise()
        objective = losses + noise + self.market.objective.without_noise
        return Market(self.market.sellers, objective, self.market.constraints)

    def check_bounded(self) -> None:
        """Raise an error with remedies if the problem has no minimum.

        Raises
        ------
        UnattainedOptimumError
        """
        if self.market.form.eta_low > 0 or (self.noise_vector is None and self.sigma > 0):
            return
        if self.noise_vector is None:
            raise UnattainedOptimumError(
                "sigma, the weight of Noise, is 0, so eta tends to 0. Give sigma > 0, or an "
                "EtaRange(low, high) that determines eta, as in the naive model of the papers"
            )
        enough, need = np.inf, "2*max_norm*||b||"
        if self.max_norm is not None:
            enough = 2 * self.max_norm * float(np.linalg.norm(self.noise_vector))
            need = f"{enough:.6g} = {need}"
        if self.sigma <= enough * (1 + _MARGIN):
            raise UnattainedOptimumError(
                "with a realised noise vector b, the objective has no minimum: along w = "
                "-(2/(Lambda*eta))*b, it decreases without bound as eta tends to 0. "
                'Choose noise="expected" (zero on average) or noise="worst-case", give max_norm '
                f"and a sigma above {need} (sigma is {self.sigma:.6g}), or add an EtaRange(low, "
                "high), which then determines eta"
            )

    def __repr__(self) -> str:
        m, n = self.X.shape
        return f"JointMarket({m} rows of {n} features, noise={self.noise!r}, {self.market!r})"


def _checked_rows(X: ArrayLike, y: ArrayLike, n_sellers: int) -> tuple[Floats, Floats]:
    rows = np.array(checked_numbers("X", X, DataError, truth_values=True))
    labels = np.array(checked_numbers("y", y, DataError, truth_values=True))
    fault = ""
    if rows.shape != (n_sellers, rows.size // n_sellers) or not rows.size:
        fault = f"X has shape {rows.shape}; give a row of features for each of {n_sellers} sellers"
    elif labels.shape != (n_sellers,):
        fault = f"y has shape {labels.shape}; give one label for each of {n_sellers} rows"
    elif not np.isfinite(rows).all():
        fault = "X contains entries that are not finite; fill or drop them"
    elif not np.isin(labels, (-1.0, 1.0)).all():
        fault = "labels must be -1 or 1"
    if fault:
        raise DataError(fault)
    rows.flags.writeable = labels.flags.writeable = False
    return rows, labels


def checked_vector(name: str, values: Any, size: int, least: float = -np.inf) -> Floats:
    """Check a vector of finite numbers >= ``least``, and return a read-only copy."""
    array = np.array(checked_numbers(name, () if values is None else values))
    if array.shape != (size,) or not np.all(np.isfinite(array) & (array >= least)):
        what = f"{size} finite numbers" + f" >= {least:g}" * (least > -np.inf)
        raise ParameterError(f"{name} has shape {array.shape}; give {what}")
    array.flags.writeable = False
    return array


def convexity_threshold(X: ArrayLike) -> float:
    """Compute the regularization above which the objective is convex in (w, z), with a = exp(z).

    The objective is convex on ``sum exp(z) <= 1`` (B, Theorem 4.1, with a corrected constant). The
    feasible set ``sum exp(z) = 1`` is not convex, so several local minima can exist.

    Parameters
    ----------
    X : array_like, shape (m, n_features)

    Returns
    -------
    float

    Raises
    ------
    ParameterError
        If X is not a table of finite numbers.

    Examples
    --------
    >>> round(convexity_threshold([[0.6, 0.8], [0.0, 0.5]]), 10)
    0.2620117781
    """
    rows = checked_numbers("X", X)
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise ParameterError(f"X has shape {rows.shape}; give a table of finite numbers")
    return CONVEXITY * float(np.einsum("ij,ij->i", rows, rows).max())


def convexity_ratio(joint: JointMarket) -> float:
    """Compute a ratio such that values below 1 imply convexity in (w, a) for a fixed eta.

    The ratio is ``sigma_max(X)^2/(2*Lambda*mu)`` with a squared spread,
    ``m*r^3*sigma_max(X)^2/(Lambda*mu)`` with a norm, and infinity without a spread.

    Parameters
    ----------
    joint : JointMarket

    Returns
    -------
    float

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 10 * cm.terms.SquaredSpread() + cm.Noise() + cm.Payments())
    >>> joint = cm.JointMarket(market, [[0.6], [-0.8]], [1, -1], regularization=1.0)
    >>> round(cm.joint.convexity_ratio(joint), 4)
    0.05
    """
    check_instance("joint", joint, JointMarket)
    form = joint.market.form
    largest = float(np.sqrt(np.max(form.max_weight)))  # ||a||^2 <= max a * sum a
    curvature = 2.0 * form.mu_squared + form.mu / (form.virtual_costs.size * largest**3)
    if curvature == 0:
        return np.inf
    spectral = float(np.linalg.norm(joint.X, 2)) ** 2
    return spectral / (joint.regularization * curvature)


class FirstOrderResiduals(NamedTuple):
    """Residuals of the first-order conditions of B's Theorem 3.3 at a point.

    Let ``t_i = (tau - gamma*eta*psi_i - loss_i)_+``, with the multiplier tau such that
    ``sum t_i = mu/||a||``. The fields are ``a_i - (||a||/mu)*t_i``, tau, ``||t|| - mu``, and
    ``eta - sqrt(noise(w)/(gamma*psi'a))`` divided by eta.
    """

    weights: Floats
    tau: float
    normalisation: float
    eta: float

    @property
    def largest(self) -> float:
        """The largest absolute residual."""
        return max(float(np.max(np.abs(self.weights))), abs(self.normalisation), abs(self.eta))


def first_order_residuals(
    joint: JointMarket, model: ArrayLike, weights: ArrayLike, eta: float
) -> FirstOrderResiduals:
    """Evaluate the first-order conditions of B's Theorem 3.3 at a point.

    Parameters
    ----------
    joint : JointMarket
        A problem with ``mu*Spread()``, noise and linear payments, without a cap.
    model, weights, eta
        Model of shape (n_features,), weights of shape (m,), and total privacy.

    Returns
    -------
    FirstOrderResiduals

    Raises
    ------
    NotSupportedError
        If the theorem does not apply to the market.
    ParameterError
        If shapes do not match.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=50, sigma=1, gamma=0.1)
    >>> joint = cm.JointMarket(market, [[0.6], [-0.8]], [1, -1], regularization=1.0)
    >>> best = cm.allocate_jointly(joint)
    >>> cm.joint.first_order_residuals(joint, best.model, best.weights, best.eta).largest < 1e-6
    True
    """
    check_instance("joint", joint, JointMarket)
    eta = check_positive("eta", eta)
    form = joint.market.standard_form
    if form is None or form.max_weight < 1 or form.mu == 0:
        raise NotSupportedError(
            "Theorem 3.3 requires Spread(), Noise() and linear Payments() without a cap, got "
            f"{shown(joint.market)}"
        )
    m, n = joint.X.shape
    w, a = checked_vector("model", model, n), checked_vector("weights", weights, m)
    if not np.any(a > 0):
        raise ParameterError("weights must not all be zero")
    norm = float(np.linalg.norm(a))
    prices = joint.losses(w) + form.gamma * eta * form.virtual_costs
    tau = _level(prices, form.mu / norm)
    margins = np.maximum(tau - prices, 0.0)
    paid = form.gamma * form.expected_cost(a)
    best_eta = np.sqrt(max(joint.noise_price(w), 0.0) / paid) if paid > 0 else np.inf
    return FirstOrderResiduals(
        weights=a - norm / form.mu * margins,
        tau=tau,
        normalisation=float(np.linalg.norm(margins)) - form.mu,
        eta=float((eta - best_eta) / eta),
    )


def _level(prices: Floats, total: float) -> float:
    ordered = np.sort(prices[np.isfinite(prices)])
    levels = (total + np.cumsum(ordered)) / np.arange(1, ordered.size + 1)
    return float(levels.min())
