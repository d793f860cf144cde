r"""Bound the privacy loss of several noisy answers, and compute the resulting epsilons.

Let P and Q be the distributions of the answers on two data sets that differ in one row. The privacy
loss is :math:`L = \log P/Q`. Bounds on :math:`\psi(\lambda) = \log E_P\, e^{\lambda L}` add up over
answers, even if questions are adaptive. Each :math:`\lambda` of :data:`ORDERS` gives an epsilon for
a given delta. ``"paper"`` uses the composition theorems of Jain and Thakurta. The other proofs are
in docs/theory.md, section 12.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize.elementwise import find_root
from scipy.special import log_expit, log_ndtr, xlogy

__all__ = ["ORDERS", "Composition", "advanced_composition", "conversion", "epsilon_of_moments"]
__all__ += ["gaussian_epsilon", "gaussian_shift", "moment", "moments", "update_moments"]

#: Method of composing the answers of one release.
Composition: TypeAlias = Literal["tight", "paper"]

Floats = NDArray[np.float64]

#: Orders lambda of the moments. The steps of 4% increase an epsilon by less than 0.1%.
ORDERS: Floats = np.geomspace(1e-3, 1e8, 640)

BISECTIONS = 80  # number of bisection steps, larger than the number of bits of a float
LARGEST_EPSILON = 1e12  # largest epsilon to which Gaussian noise is calibrated
LARGEST_LOG = 700.0  # largest exponent without overflow
SLACK = 1e-9  # relative margin for the error of a root


def moments(law: str, shift: ArrayLike) -> Floats:
    """Compute all moments of an answer by :func:`moment`, shape (..., n_orders)."""
    return moment(law, ORDERS, np.asarray(shift, dtype=np.float64)[..., None])


def moment(law: str, order: ArrayLike, shift: ArrayLike) -> Floats:
    r"""Compute one moment of an answer with a :class:`~convexmarket.privacy.guarantee.Profile`.

    - "gaussian": :math:`\lambda(\lambda+1)s^2/2`. This is also a bound for several Laplace answers
      and for any answer of epsilon s. A quarter of this moment is a bound for a choice whose loss
      has range s.
    - "laplace": :math:`\log\frac{(1+\lambda) e^{\lambda s} + \lambda
      e^{-(1+\lambda)s}}{1+2\lambda}`, exactly.
    - "pure": :math:`\log\frac{e^{(1+\lambda)s} + e^{-\lambda s}}{1+e^s}`, which randomised response
      attains. It is at most :math:`\lambda(\lambda+1)\,s\tanh(s/2)`.
    """
    orders, size = np.asarray(order, dtype=np.float64), np.asarray(shift, dtype=np.float64)
    if law == "gaussian":
        return orders * (orders + 1.0) * size**2 / 2.0
    twice = 1.0 + 2.0 * orders
    if law == "laplace":
        rest = np.log1p(np.expm1(-twice * size) * (orders / twice))
    else:
        rare, common = np.exp(-twice * size), np.exp(-size)
        rest = np.log1p((rare - common) / (1.0 + common))
    return np.maximum(orders * size + rest, 0.0)


def update_moments(epsilon: ArrayLike) -> Floats:
    r"""Bound the moments of one update of the sparse-vector scheme and the answers before it.

    If every answer is epsilon-differentially private, the moment of B updates is at most
    :math:`B\kappa`, and other rounds have no cost. :math:`\kappa(\lambda)` is the largest of three
    values, and infinite if :math:`e^{(1+\lambda)\epsilon} \ge 1+e^\epsilon`.
    """
    size, both = np.asarray(epsilon, dtype=np.float64)[..., None], moments("pure", epsilon)
    normal = np.logaddexp(0.0, size)
    # Case 1: a public answer becomes e^epsilon times more probable, and an update less probable.
    room = np.minimum((1.0 + ORDERS) * size - normal, 0.0)
    with np.errstate(divide="ignore"):  # the bound can be infinite
        common = -ORDERS * size - normal - np.log1p(-np.exp(room))
    # Case 2: the reverse of case 1. Case 3 (``both``): the update occurs on both data sets.
    rare = (1.0 + ORDERS) * size - normal - np.log1p(-np.exp(-ORDERS * size - normal))
    return np.maximum(np.maximum(common, rare), both)


def epsilon_of_moments(bounds: Floats, delta: float) -> Floats:
    """Convert bounds on the moments to an epsilon at this delta with :func:`conversion`."""
    values = (bounds + conversion(ORDERS, delta)) / ORDERS
    return np.maximum(values.min(axis=-1), 0.0)


def conversion(order: ArrayLike, delta: float) -> Floats:
    r"""Compute :math:`\lambda\epsilon` minus the largest allowed moment at this delta.

    See Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, Proposition 12.
    """
    orders = np.asarray(order, dtype=np.float64)
    return np.log(1.0 / delta) + xlogy(orders, orders) - (1.0 + orders) * np.log1p(orders)


def gaussian_epsilon(shift: ArrayLike, delta: float) -> Floats:
    """Compute the epsilon of Gaussian noise, rounded up, from its standardised shift and delta."""
    shifts = np.asarray(shift, dtype=np.float64)
    bounded = np.isfinite(shifts) & (shifts > 0)
    size, goal = shifts[bounded], np.log(delta)
    low: Floats = np.zeros_like(size)
    high: Floats = size * (size / 2.0 + np.sqrt(-2.0 * goal))
    high = np.where(_gaussian_log_delta(size, low)[0] <= goal, 0.0, high)
    middle = high
    for _ in range(BISECTIONS):
        log_delta, log_slope = _gaussian_log_delta(size, middle)
        enough = log_delta <= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        # Newton's method, with steps slightly beyond the root so that low and high converge to it
        root = middle + (log_delta - goal) * np.exp(log_delta - log_slope)
        root *= np.where(enough, 1.0 - 1e-15, 1.0 + 1e-15)
        middle = np.where((low < root) & (root < high), root, (low + high) / 2.0)
        if not ((low < middle) & (middle < high)).any():
            break
    epsilon = np.where(shifts > 0, np.inf, 0.0)
    epsilon[bounded] = high
    return epsilon


def gaussian_shift(epsilon: ArrayLike, delta: ArrayLike, pure: ArrayLike = 0.0) -> Floats:
    """Compute the largest shift of Gaussian noise with this epsilon, rounded down.

    The noise and a pure release of epsilon ``pure`` together have at most this epsilon.
    """
    budget, other, deltas = np.broadcast_arrays(epsilon, pure, delta)
    terms = np.stack([np.minimum(budget, other + LARGEST_EPSILON), other, deltas])

    def excess(shift: Floats, budget: Floats, other: Floats, delta: Floats) -> Floats:
        up, down = (_gaussian_log_delta(shift, budget - sign * other)[0] for sign in (1.0, -1.0))
        total = np.logaddexp(up + log_expit(other), down + log_expit(-other))
        return np.maximum(total - np.log(delta), -1e4)

    distinct, places = np.unique(terms.reshape(3, -1), axis=1, return_inverse=True)
    high = np.sqrt(2.0 * (distinct[0] - distinct[1])) + 10.0
    root = find_root(excess, (distinct[2], high), args=tuple(distinct))
    return np.asarray(root.x[places.ravel()] * (1.0 - SLACK)).reshape(budget.shape)


def advanced_composition(epsilon: ArrayLike, count: int, delta: float) -> Floats:
    r"""Compute :math:`\sqrt{2k\log(1/\delta)}\,\epsilon + k\epsilon(e^\epsilon-1)` (K, 11)."""
    each = np.asarray(epsilon, dtype=np.float64)
    growth = np.expm1(np.minimum(each, LARGEST_LOG))
    return np.sqrt(2.0 * count * np.log(1.0 / delta)) * each + count * each * growth


def _gaussian_log_delta(shift: Floats, epsilon: Floats) -> tuple[Floats, Floats]:
    """Compute the logs of delta (Balle and Wang, Theorem 8) and of -d(delta)/d(epsilon)."""
    tail = log_ndtr(shift / 2.0 - epsilon / shift)
    other = epsilon + log_ndtr(-shift / 2.0 - epsilon / shift)
    with np.errstate(divide="ignore"):
        return tail + np.log1p(-np.exp(np.minimum(other - tail, 0.0))), other
