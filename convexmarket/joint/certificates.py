r"""Conditions for a convex joint problem, and residuals of its first-order conditions.

For a fixed eta, with the squared spread ``mu*||a||^2``, the objective is jointly convex in (w, a)
if ``2*Lambda*mu >= sigma_max(X)^2``: the Schur complement of its Hessian is at least
``Lambda*I - X'D^2X/(2*mu)`` with D between -1 and 1. A's Theorem VIII.1 asks for m in the place of
``sigma_max(X)^2``, which is never larger (rows of norm at most one).

With the norm ``mu*||a||`` curvature is left in the directions within the simplex only: at least
``mu/(m*||a||^3)``, so that ``Lambda*mu >= m*r^3*sigma_max(X)^2`` suffices with r the largest norm
that the cap allows (docs/theory.md, section 10).

In the exponential variables ``a = exp(z)`` the objective, but not the set ``sum exp(z) = 1``, is
convex from ``lambda_conv = kappa * max ||x_i||^2`` on; see :func:`convexity_threshold`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from convexmarket.checks import check_instance, check_positive, checked_numbers, shown
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.joint.problem import JointMarket

__all__ = [
    "FirstOrderResiduals",
    "convexity_constant",
    "convexity_ratio",
    "convexity_threshold",
    "first_order_residuals",
]

Floats = NDArray[np.float64]


@cache
def convexity_constant() -> float:
    """Return max over t of ``(l'(t)^2 - l(t)*l''(t)) / l(t)`` for ``l(t) = log(1 + exp(-t))``.

    ``exp(z)*l(w'x) + exp(z)*(c/2)*(w'x)^2`` is convex in (w, z) if and only if c is at least this.
    """

    def excess(t: float) -> float:
        wrong = 1.0 / (1.0 + np.exp(t))
        return float(wrong * (1.0 - wrong) - wrong**2 / np.logaddexp(0.0, -t))

    return -float(
        minimize_scalar(excess, bounds=(-10.0, 5.0), method="bounded", options={"xatol": 1e-12}).fun
    )


def convexity_threshold(X: ArrayLike) -> float:
    """Return lambda_conv, above which the objective is jointly convex in (w, z), a = exp(z).

    Convex on ``sum exp(z) <= 1`` (B, Theorem 4.1, with the right constant). The feasible set
    ``sum exp(z) = 1`` is not convex, so that several local minima remain possible.

    Parameters
    ----------
    X : array_like, shape (m, n_features)

    Returns
    -------
    float
        The smallest regularization that suffices.

    Raises
    ------
    ParameterError
        If X is not a table of finite numbers.

    Examples
    --------
    >>> import convexmarket as cm
    >>> round(cm.joint.convexity_threshold([[0.6, 0.8], [0.0, 0.5]]), 10)
    0.2620117781
    """
    rows = checked_numbers("X", X)
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise ParameterError(f"X has shape {rows.shape}; give a table of finite numbers")
    return convexity_constant() * float(np.einsum("ij,ij->i", rows, rows).max())


def convexity_ratio(joint: JointMarket) -> float:
    """Compute the ratio that certifies convexity in (w, a) for a fixed eta.

    It is ``sigma_max(X)^2/(2*Lambda*mu)`` with a squared spread,
    ``m*r^3*sigma_max(X)^2/(Lambda*mu)`` with a norm, and inf with neither.

    Parameters
    ----------
    joint : JointMarket

    Returns
    -------
    float
        Without a unit; below 1 the problem is convex for every fixed eta.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 100 * cm.Spread() + cm.Noise() + 0.1 * cm.Payments())
    >>> X, y = [[1.0], [-1.0], [0.5]], [1, -1, 1]
    >>> joint = cm.JointMarket(market, X, y, regularization=1.0)
    >>> round(cm.joint.convexity_ratio(joint), 4)
    0.0675
    """
    check_instance("joint", joint, JointMarket)
    form = joint.market.form
    largest = float(np.sqrt(np.max(form.max_weight)))  # ||a||^2 <= max a * sum a
    curvature = 2.0 * form.mu_squared + form.mu / (form.virtual_costs.size * largest**3)
    if curvature == 0:
        return np.inf
    spectral = float(np.linalg.norm(joint.X, 2)) ** 2
    return spectral / (joint.regularization * curvature)


@dataclass(frozen=True, eq=False)
class FirstOrderResiduals:
    """Residuals of a point in the first-order conditions of B's Theorem 3.3.

    Attributes
    ----------
    weights : ndarray, shape (m,)
        ``a_i - (||a||/mu)*(tau - gamma*eta*psi_i - loss_i)_+``.
    tau : float
        The multiplier that makes ``sum (tau - ...)_+`` equal to ``mu/||a||``.
    normalisation : float
        ``||(tau - gamma*eta*psi - loss)_+|| - mu``: that the formula's weights have the norm of a.
    eta : float
        ``eta - sqrt(noise(w)/(gamma*psi'a))``, relative to eta.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.joint import FirstOrderResiduals
    >>> FirstOrderResiduals(np.array([1e-9, 0.0]), tau=2.0, normalisation=0.0, eta=1e-8).largest
    1e-08
    """

    weights: Floats
    tau: float
    normalisation: float
    eta: float

    @property
    def largest(self) -> float:
        """The largest residual; weights are counted relative to the largest weight."""
        return max(float(np.max(np.abs(self.weights))), abs(self.normalisation), abs(self.eta))


def first_order_residuals(
    joint: JointMarket, model: ArrayLike, weights: ArrayLike, eta: float
) -> FirstOrderResiduals:
    """Evaluate the first-order conditions of B's Theorem 3.3 at any candidate.

    Parameters
    ----------
    joint : JointMarket
        With ``mu*Spread()``, noise and linear payments, without a cap.
    model : array_like, shape (n_features,)
    weights : array_like, shape (m,)
    eta : float

    Returns
    -------
    FirstOrderResiduals
        Zero at a stationary point, in the units of the objective.

    Raises
    ------
    NotSupportedError
        If the market has other pieces than the theorem.
    ParameterError
        If the model or the weights have another shape, or the weights are all zero.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 100 * cm.Spread() + cm.Noise() + 0.1 * cm.Payments())
    >>> X, y = [[1.0], [-1.0], [0.5]], [1, -1, 1]
    >>> joint = cm.JointMarket(market, X, y, regularization=1.0)
    >>> best = cm.allocate_jointly(joint)
    >>> residuals = cm.joint.first_order_residuals(joint, best.model, best.weights, best.eta)
    >>> residuals.largest < 1e-6
    True
    """
    check_instance("joint", joint, JointMarket)
    eta = check_positive("eta", eta)
    form = joint.market.standard_form
    if form is None or form.max_weight < 1 or form.mu == 0:
        raise NotSupportedError(
            "Theorem 3.3 is about Spread(), Noise() and linear Payments() without a cap; this is "
            f"{shown(joint.market)}"
        )
    w, a = checked_numbers("model", model), checked_numbers("weights", weights)
    m, n = joint.X.shape
    if w.shape != (n,) or a.shape != (m,) or not (np.isfinite(a).all() and np.any(a > 0)):
        raise ParameterError(
            f"model and weights have shapes {w.shape} and {a.shape}; give a coefficient for each "
            f"of {n} features, and a finite number for each of {m} sellers, not all zero"
        )
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
    """Return tau with ``sum (tau - prices)_+ = total``."""
    ordered = np.sort(prices[np.isfinite(prices)])
    filled = np.arange(1, ordered.size + 1) * ordered - np.cumsum(ordered)
    count = int(np.searchsorted(filled, total))
    return float((total + ordered[:count].sum()) / count)
