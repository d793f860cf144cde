r"""Rows that a hyperplane separates with a margin: what a model on bought privacy is then worth.

With probability :math:`1-\delta-\delta'`, every model of norm at most :math:`\beta` errs on at most
:math:`\frac1{\ln2}\sum a_i\ln(1+e^{-z_i}) + \mu\|a\|` of the rows. The trained one minimises that
sum plus :math:`b'^\top w`, so that it does no worse than :math:`\beta w^*`, :math:`w^*` the
separator, and the sum is at most :math:`\ln(1+e^{-\rho\beta}) + 2\beta\|b'\|`: the noise counts
twice, :math:`\sigma = 2\cdot2\beta q/\ln2`. This is true of any weights chosen without the rows,
offline, online, under any budget; what remains is how small a market makes
:math:`\mu\|a\| + \sigma/\eta`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar

from convexmarket.allocation.limits import loss_limit
from convexmarket.allocation.solvers import run_solver
from convexmarket.checks import (
    check_nonnegative,
    check_positive,
    check_positives,
    check_share,
    checked_numbers,
)
from convexmarket.errors import DataError, SolverError
from convexmarket.learners.risk import (
    LogisticErrorBound,
    logistic_error_bound,
    logistic_risk_constants,
)

__all__ = [
    "SeparableLimit",
    "separable_budget",
    "separable_error_bound",
    "separable_limit",
    "separable_tail",
    "separation_margin",
]

LN2 = float(np.log(2.0))
#: Norms of models that are compared first, in units of 1/margin.
_NORMS = np.geomspace(1e-3, 1e6, 400)
#: The smallest failure probability that is told apart from none.
_LEAST = 1e-290


def separation_margin(X: ArrayLike, y: ArrayLike) -> float:
    r"""Return the margin of the best separator through the origin (A, Assumption IV.4).

    It is private: it looks at every row.

    Parameters
    ----------
    X : array_like of shape (n_rows, n_features)
    y : array_like of shape (n_rows,)
        Labels, -1 or 1.

    Returns
    -------
    float
        :math:`\rho = \max_{\|w\|\le1} \min_i y_i w^\top x_i`, attained by the direction that was
        found; 0 where no hyperplane separates the rows.

    Raises
    ------
    DataError
        If X and y are not rows with labels.
    SolverError
        If the margin of the direction is not the distance that bounds every margin.

    Notes
    -----
    By duality :math:`\rho` is the distance from the origin to the convex hull of the
    :math:`y_i x_i`, one QP, whose value is proven by the direction to the nearest point.

    Examples
    --------
    >>> round(separation_margin([[0.6, 0.8], [0.8, -0.6]], [1, 1]), 6)
    0.707107
    """
    rows, labels = checked_numbers("X", X), checked_numbers("y", y)
    if rows.ndim != 2 or not rows.size or labels.shape != rows.shape[:1]:
        raise DataError(f"X has shape {rows.shape}, y {labels.shape}; give a label for each row")
    if not np.isfinite(rows).all() or not np.isin(labels, (-1.0, 1.0)).all():
        raise DataError("X must be finite, and labels -1 or 1")
    signed = labels[:, None] * rows
    scale = float(np.linalg.norm(signed, axis=1).max())
    if scale == 0.0:
        return 0.0
    signed = signed / scale
    nearest, mix = cp.Variable(rows.shape[1]), cp.Variable(len(rows), nonneg=True)
    constraints = [nearest == signed.T @ mix, cp.sum(mix) == 1]
    status = run_solver(cp.Problem(cp.Minimize(cp.sum_squares(nearest)), constraints), "CLARABEL")
    if mix.value is None:
        raise SolverError(f"the margin was not found: {status}")
    share = np.maximum(mix.value, 0.0)
    point = signed.T @ (share / share.sum())
    distance = float(np.linalg.norm(point))
    reached = float((signed @ point).min()) / distance if distance > 0 else 0.0
    if distance - max(reached, 0.0) > 1e-4:
        raise SolverError(f"the margin is between {max(reached, 0) * scale} and {distance * scale}")
    return max(reached, 0.0) * scale


def separable_error_bound(
    weights: ArrayLike,
    eta: float,
    *,
    margin: float,
    n_features: int,
    max_norm: float,
    regularization: float = 0.0,
    failure_probability: float = 0.05,
    noise_failure_probability: float = 0.05,
) -> LogisticErrorBound:
    r"""Bound the share of wrong predictions after a purchase of separable rows, whatever m.

    Parameters
    ----------
    weights, eta
        Chosen without the rows: of an allocation, or of an online market.
    margin : float
        :math:`\rho > 0`, of rows of norm at most one.
    n_features : int
    max_norm : float
        :math:`\beta`: the model minimises over the ball of this radius, or is known to lie in it.
    regularization : float, default 0
        :math:`\Lambda`. It costs :math:`\Lambda\beta^2/2`, which is 0 only for a model of norm
        exactly :math:`\beta`, A's premise.
    failure_probability, noise_failure_probability : float
        :math:`\delta, \delta'`.

    Returns
    -------
    LogisticErrorBound
        ``training`` tends to :math:`\log_2(1+e^{-\rho\beta})`, and spread and noise to 0, for
        many sellers under A's Assumption IV.3 (A, Theorem IV.5; Theorem V.1).

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    A prints the natural logarithm, under which the theorem is false: a short model may be wrong on
    nine rows in ten at a loss below ln 2. What is bounded is error plus
    :math:`\gamma\psi^\top\varepsilon`, of which payments have the mean, and the mean only.

    Examples
    --------
    >>> weights = np.full(40_000, 1 / 40_000)
    >>> bound = separable_error_bound(weights, 4e4, margin=0.5, n_features=2, max_norm=8.0)
    >>> round(bound.training, 3), round(bound.total, 3)
    (0.029, 0.189)
    """
    check_positives(margin=margin, max_norm=max_norm, eta=eta)
    check_nonnegative("regularization", regularization)
    chances = (failure_probability, noise_failure_probability)
    _, sigma = logistic_risk_constants(*chances, max_norm, n_features)
    fitted = float(np.logaddexp(0.0, -margin * max_norm)) + regularization / 2 * max_norm**2
    return logistic_error_bound(
        weights,
        eta,
        objective=fitted + LN2 * sigma / eta,
        n_features=n_features,
        max_norm=max_norm,
        failure_probability=failure_probability,
        noise_failure_probability=noise_failure_probability,
    )


def separable_tail(
    excess: float,
    n_sellers: int,
    gamma: float,
    *,
    density: float,
    n_features: int,
    max_norm: float,
    order: int = 0,
    share: float = 1.0,
) -> float:
    r"""Return with which probability error plus payments may exceed its limit by more.

    Parameters
    ----------
    excess : float
        :math:`\nu` above :math:`\log_2(1+e^{-\rho\beta})`.
    n_sellers, gamma, density, order, share
        As for :func:`~convexmarket.allocation.limits.loss_limit`.
    n_features : int
    max_norm : float
        :math:`\beta`.

    Returns
    -------
    float
        At most, to the leading order in m, if the buyer minimises this very bound; 1 where it says
        nothing, and never below 2e-290.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    A, Theorem IV.5 has :math:`O(e^{-\nu m^{1/4}/(2\beta)})`, and with a fraction :math:`\xi` of the
    sellers (Theorem V.1) :math:`\nu\xi`. Its proof gives an exponent that falls with gamma and
    :math:`E_2`, which the statement drops. Here mu grows with :math:`\sqrt{\ln(1/\delta)}` where
    the paper's grows with :math:`\ln(1/\delta)`: the exponent is of order :math:`\nu^2\sqrt m`, so
    that the statement is true for large m whatever the constants.

    Examples
    --------
    >>> market = {"density": 1 / 8, "n_features": 2, "max_norm": 5.0}
    >>> [float(f"{separable_tail(0.5, m, 1e-6, **market):.2g}") for m in (10**4, 10**5, 10**6)]
    [1.5e-19, 1.3e-70, 3.6e-240]
    """
    check_positives(excess=excess)

    def above(log_chance: float) -> float:
        chance = float(np.exp(log_chance))
        mu, sigma = logistic_risk_constants(chance, chance, max_norm, n_features)
        buyer = (mu, 2.0 * sigma, gamma)
        loss = loss_limit(n_sellers, *buyer, density=density, order=order, share=share)
        return loss.total - excess

    least, most = float(np.log(_LEAST)), float(np.log(0.5))
    if above(most) >= 0:
        return 1.0
    found = least if above(least) <= 0 else brentq(above, least, most)
    return 2.0 * float(np.exp(found))


class SeparableLimit(NamedTuple):
    """Error and payments for many sellers, and the norm of the model that they are reached with."""

    error: float
    payments: float
    total: float
    max_norm: float


def separable_limit(
    margin: float,
    lowest_cost: float,
    gamma: float,
    noise_norm: float,
    *,
    max_norm: float | None = None,
) -> SeparableLimit:
    r"""Bound error plus payments for infinitely many sellers, none cheaper than p (B, Theorem 3.4).

    Parameters
    ----------
    margin : float
        :math:`\rho`; B writes delta.
    lowest_cost : float
        p > 0, the bottom of the virtual costs, next to which there are ever more sellers.
    gamma : float
    noise_norm : float
        :math:`\|b\|`, as drawn or a quantile of Gamma(n, 1).
    max_norm : float, optional
        :math:`\beta`; where left out, that of the smallest bound. B takes
        :math:`1/\sqrt{p\gamma}`.

    Returns
    -------
    SeparableLimit
        ``total`` is :math:`\log_2(1+e^{-\rho\beta}) + 2\sqrt{\sigma p\gamma}` with
        :math:`\sigma = 4\beta\|b\|/\ln2`; ``payments`` are :math:`\sqrt{\sigma p/\gamma}`.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    B treats sigma as a constant at :math:`\beta = 1/\sqrt{p\gamma}`, yet its own sigma is
    proportional to beta: the bound is of order :math:`(p\gamma)^{1/4}`, as printed, only since the
    term of ``||b||`` is too. The best norm is near :math:`\ln(1/(p\gamma))/\rho`, and the bound of
    order :math:`\sqrt{p\gamma\ln(1/(p\gamma))}`. The proof's Eq. (29) drops the 2 of the
    statement, and for p = 0 takes :math:`\eta = m^{-k'}` where :math:`m^{k'}` is meant.

    Examples
    --------
    >>> limit = separable_limit(0.5, 1e-4, 1e-2, 4.0)
    >>> round(limit.total, 4), round(limit.max_norm, 2)
    (0.0368, 12.55)
    """
    check_positives(margin=margin, lowest_cost=lowest_cost, gamma=gamma, noise_norm=noise_norm)

    def total(beta: float) -> float:
        return _fit(margin, beta) + 2.0 * np.sqrt(_noise(beta, noise_norm) * lowest_cost * gamma)

    beta = _best_norm(total, margin) if max_norm is None else check_positive("max_norm", max_norm)
    sigma = _noise(beta, noise_norm)
    half = float(np.sqrt(sigma * lowest_cost * gamma))
    fit = _fit(margin, beta)
    return SeparableLimit(fit + half, half / gamma, fit + 2.0 * half, beta)


def separable_budget(error: float, margin: float, lowest_cost: float, noise_norm: float) -> float:
    r"""Return the payments that are enough for an error, however many sellers (A, Section I.A).

    Parameters
    ----------
    error : float
        Share of wrong predictions to stay below, between 0 and 1.
    margin, lowest_cost, noise_norm
        As for :func:`separable_limit`.

    Returns
    -------
    float
        :math:`p\,\sigma(\beta)/(e - \log_2(1+e^{-\rho\beta}))` at the best norm, for many sellers:
        finite for every error, proportional to p, and so ever less where virtual costs reach 0.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Examples
    --------
    >>> round(separable_budget(0.1, 0.5, 1e-4, 4.0), 4)
    0.2464
    """
    check_share("error", error)
    check_positives(margin=margin, lowest_cost=lowest_cost, noise_norm=noise_norm)

    def budget(beta: float) -> float:
        room = error - _fit(margin, beta)
        return lowest_cost * _noise(beta, noise_norm) / room if room > 0 else np.inf

    return float(budget(_best_norm(budget, margin)))


def _fit(margin: float, beta: float) -> float:
    return float(np.logaddexp(0.0, -margin * beta)) / LN2


def _noise(beta: float, noise_norm: float) -> float:
    return 4.0 * beta * noise_norm / LN2


def _best_norm(bound: Callable[[float], float], margin: float) -> float:
    """Return the norm with the smallest bound, which may have a second minimum next to 0."""
    norms = _NORMS / margin
    best = int(np.argmin([bound(beta) for beta in norms]))
    ends = norms[max(best - 1, 0)], norms[min(best + 1, norms.size - 1)]
    return float(minimize_scalar(bound, bounds=ends, method="bounded").x)
