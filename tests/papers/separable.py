r"""Compute bounds for rows that a hyperplane separates with a margin.

With probability :math:`1-\delta-\delta'`, every model of norm at most :math:`\beta` errs on at most
:math:`\frac1{\ln2}\sum a_i\ln(1+e^{-z_i}) + \mu\|a\|` of the rows. The trained model minimises this
sum plus :math:`b'^\top w`. The minimum is at most the objective of :math:`\beta w^*`, where
:math:`w^*` is the separator. The sum is therefore at most
:math:`\ln(1+e^{-\rho\beta}) + 2\beta\|b'\|`. The noise counts twice, so
:math:`\sigma = 2\cdot2\beta q/\ln2`. The weights must not depend on the rows.
"""

from typing import NamedTuple

import cvxpy as cp
import numpy as np
from scipy.optimize import brentq, minimize_scalar

from tests.papers.risk import logistic_risk_constants

LN2 = float(np.log(2.0))


def loss_limit(n_sellers, mu, sigma, gamma, *, density, order=0, share=1.0):
    r"""Compute the leading orders of spread, noise and payments (A, IX.2 and V.1).

    The virtual cost x has the density ``h*x**n`` near 0, and a share xi of the m expected sellers
    arrives. At order 0 (Assumption IV.3), the sum of the three parts is
    :math:`\frac{4}{\sqrt3}h^{-1/4}\sigma^{1/4}\mu^{1/2}\gamma^{1/4}m^{-1/4}`. The last term of
    :math:`E_4` in Eq. (48) is xi instead of the printed 3*xi.
    """
    n = order
    power = mu**2 * gamma ** (n + 1) * (n + 1) ** 2 * (n + 2) / (2.0 * density * sigma * n_sellers)
    noise = np.sqrt((n + 1) / (n + 3) * sigma * power ** (1.0 / (n + 2)))
    return np.array([2.0 * noise / (n + 1) / np.sqrt(share), noise / share, noise * share])


def separation_margin(X, y):
    """Return the largest margin of a separator through the origin (A, Assumption IV.4), or 0.

    By duality, the margin is the distance from the origin to the convex hull of the y_i x_i.
    """
    signed = np.asarray(y, dtype=float)[:, None] * np.asarray(X, dtype=float)
    scale = np.linalg.norm(signed, axis=1).max() or 1.0
    mix, nearest = cp.Variable(len(signed), nonneg=True), cp.Variable(signed.shape[1])
    hull = [nearest == (signed / scale).T @ mix, cp.sum(mix) == 1]
    cp.Problem(cp.Minimize(cp.sum_squares(nearest)), hull).solve(solver="CLARABEL")
    share = np.maximum(mix.value, 0.0)
    point = signed.T @ (share / share.sum())
    distance = np.linalg.norm(point)
    return max(0.0, float((signed @ point).min() / distance)) if distance > 0 else 0.0


class ErrorBound(NamedTuple):
    training: float
    spread: float
    noise: float


def separable_error_bound(weights, eta, *, margin, n_features, max_norm, regularization=0.0):
    r"""Bound the rate of wrong predictions after a purchase of m separable rows.

    The weights must not depend on the rows. The norm of the model is at most ``max_norm``.
    Regularization adds :math:`\Lambda\beta^2/2`. For many sellers, ``training`` tends to
    :math:`\log_2(1+e^{-\rho\beta})`, and spread and noise tend to 0 (A, Theorems IV.5 and V.1). The
    theorem is false with the natural logarithm, which A prints.
    """
    mu, sigma = logistic_risk_constants(0.05, 0.05, max_norm, n_features)
    fitted = np.logaddexp(0.0, -margin * max_norm) + regularization / 2 * max_norm**2
    return ErrorBound(
        float(fitted / LN2 + sigma / eta), mu * float(np.linalg.norm(weights)), sigma / eta
    )


def separable_tail(excess, n_sellers, gamma, *, density, n_features, max_norm, share=1.0):
    r"""Bound the probability that the loss is ``excess`` or more above its limit for many sellers.

    The result is the leading order in m for a buyer who minimises the bound on the loss. A, Theorem
    IV.5 states :math:`O(e^{-\nu m^{1/4}/(2\beta)})`. Here the exponent is larger, because mu grows
    with :math:`\sqrt{\ln(1/\delta)}` and not with :math:`\ln(1/\delta)`.
    """

    def above(log_chance):
        chance = float(np.exp(log_chance))
        mu, sigma = logistic_risk_constants(chance, chance, max_norm, n_features)
        buyer = (mu, 2.0 * sigma, gamma)
        return loss_limit(n_sellers, *buyer, density=density, share=share).sum() - excess

    least, most = np.log(1e-290), np.log(0.5)
    if above(most) >= 0:
        return 1.0
    return 2.0 * float(np.exp(least if above(least) <= 0 else brentq(above, least, most)))


class SeparableLimit(NamedTuple):
    """Limits of error and payments for many sellers, and the bound on the norm of the model."""

    error: float
    payments: float
    total: float
    max_norm: float


def separable_limit(margin, lowest_cost, gamma, noise_norm, max_norm=None):
    r"""Bound error plus payments for infinitely many sellers with costs of at least p (B, 3.4).

    ``total`` is :math:`\log_2(1+e^{-\rho\beta}) + 2\sqrt{\sigma p\gamma}` with :math:`\sigma =
    4\beta\|b\|/\ln2`. The default :math:`\beta` minimises the bound. B uses :math:`\beta =
    1/\sqrt{p\gamma}` and treats sigma as a constant, although sigma is proportional to beta. The
    bound of B is of order :math:`(p\gamma)^{1/4}`. The best order is about the square of this.
    """

    def half(beta):
        return np.sqrt(_noise(beta, noise_norm) * lowest_cost * gamma)

    beta = max_norm or _best_norm(lambda norm: _fit(margin, norm) + 2.0 * half(norm), margin)
    fit, custom = _fit(margin, beta), half(beta)
    return SeparableLimit(fit + custom, custom / gamma, fit + 2.0 * custom, beta)


def separable_budget(error, margin, lowest_cost, noise_norm):
    """Compute payments that suffice for a given error and any number of sellers (A, I.A)."""

    def budget(beta):
        room = error - _fit(margin, beta)
        return lowest_cost * _noise(beta, noise_norm) / room if room > 0 else np.inf

    return float(budget(_best_norm(budget, margin)))


def _fit(margin, beta):
    return float(np.logaddexp(0.0, -margin * beta)) / LN2


def _noise(beta, noise_norm):
    return 4.0 * beta * noise_norm / LN2


def _best_norm(bound, margin):
    """Minimise the bound over the norm, which can have a second local minimum near 0."""
    norms = np.geomspace(1e-3, 1e6, 400) / margin
    best = int(np.argmin([bound(beta) for beta in norms]))
    ends = norms[max(best - 1, 0)], norms[min(best + 1, norms.size - 1)]
    return float(minimize_scalar(bound, bounds=ends, method="bounded").x)
