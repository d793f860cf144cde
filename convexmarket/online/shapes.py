"""What the buyer wants of sellers who are known by their prior only, and how purchases are shared.

Whatever the total, the optimal guarantees are proportional to ``min(v, w)``, v being a seller's
margin at some price and w where the cap cuts it off (A, Eq. 13, in expectation). Here are the
moments of that shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import InfeasibleMarketError
from convexmarket.online.margins import Margins

__all__ = ["ROUNDING", "Buyer", "Shape", "cheapest_price", "shape_at"]

Floats = NDArray[np.float64]

_MAX_DOUBLINGS = 1000
_BISECTIONS = 60
#: Error of a sum of moments by rounding, relative to its largest terms.
ROUNDING = 8.0 * float(np.finfo(float).eps)


@dataclass(frozen=True)
class Buyer:
    """What the buyer wants (A, Eq. 11), and how many sellers are expected.

    Attributes
    ----------
    mu, sigma, gamma : float
    m : int
        Sellers expected in all.
    cap : float
        k; infinite where there is none.
    """

    mu: float
    sigma: float
    gamma: float
    m: int
    cap: float = np.inf

    def loss(self, norm: Any, eta: Any, cost: Any) -> Any:
        """Return ``mu*||eps||/eta + sigma/eta + gamma*psi'eps``."""
        return (self.mu * norm + self.sigma) / eta + self.gamma * cost


@dataclass(frozen=True)
class Shape:
    """Moments of ``min(v, w)`` at prices p: how purchases are shared out, up to a factor.

    Attributes
    ----------
    width : w, where the cap binds; else the largest margin
    first, second, cost : E[min(v, w)], E[min(v, w)^2], E[psi*min(v, w)]
    doubt : relative error of ``second`` by rounding and by quadrature
    """

    width: Floats
    first: Floats
    second: Floats
    cost: Floats
    doubt: Floats


def shape_at(margins: Margins, price: Floats, cap: Floats | float) -> Shape:
    """Return the shape at each price, its largest weight ``w/E[min(v, w)]`` at most the cap."""
    share, first, second = margins.moments(price)
    width = np.maximum(price - margins.lowest, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rounding = ROUNDING * share * width * width
        capped = width > cap * first
        if not np.any(capped):
            doubt = np.minimum(rounding / second + margins.error, 1.0)
            return Shape(width, first, second, price * first - second, doubt)
    # E[min(v, w)]/w falls from P(psi <= p) to E[v]/(p - lowest): find the last w where it is 1/cap,
    # up to rounding, as there may be a range of them.
    slack = ROUNDING * first
    low, high = np.zeros_like(width), width
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        under = first - margins.moments(price - middle)[1] >= middle / cap - slack
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    width = np.where(capped, low, width)
    _, first_full, second_full = margins.moments(price - width)
    full = capped * first_full
    first = np.where(capped, width / cap, first)
    second = second - capped * second_full - 2.0 * width * full
    with np.errstate(divide="ignore", invalid="ignore"):  # digits are lost where w is small
        second = np.clip(second, first * first / share, width * first)
        doubt = np.minimum(rounding / second + margins.error, 1.0)
    return Shape(width, first, second, price * first - second - width * full, doubt)


def cheapest_price(margins: Margins, cap: float) -> float:
    """Return the price below which a share of 1/cap of the sellers, which is needed, is not met."""
    low, high = margins.lowest, margins.lowest + margins.unit
    if np.isinf(cap) or margins.moments(np.array(low))[0] * cap > 1:
        return low
    for _ in range(_MAX_DOUBLINGS):
        if margins.moments(np.array(high))[0] * cap > 1:
            break
        high = low + 2.0 * (high - low)
    else:
        raise InfeasibleMarketError(
            f"cap is {cap:g}: weights of at most that times the average cannot sum to one; give a "
            "cap > 1"
        )
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if margins.moments(np.array(middle))[0] * cap > 1:
            high = middle
        else:
            low = middle
    return high
