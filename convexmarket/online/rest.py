r"""A plan that starts in the middle: for the sellers still to come, given what was sold already.

After a total E of privacy whose squares sum to Q, the buyer minimises over the guarantees of the
m' sellers to come

.. math:: (\mu\sqrt{Q + m' E[\epsilon^2]} + \sigma)/S + \gamma m' E[\psi\epsilon],
          \qquad S = E + m' E[\epsilon].

For each S that is convex, and its optimum has the shape ``kappa*min(v, w)`` for the one price at
which ``kappa*mu = gamma*N*S``, N being the norm; S is searched.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convexmarket.online.curves import Terms
from convexmarket.online.margins import Margins
from convexmarket.online.plan import Plan
from convexmarket.online.shapes import Buyer, Shape, shape_at

__all__ = ["plan_rest"]

Floats = NDArray[np.float64]

_BISECTIONS = 60
#: Totals tried for the rest of a plan.
_TOTALS = 129
#: Then what lies between the neighbours of the best is looked at closer, this often, at so many:
#: under a cap the loss has kinks, where its error is proportional to the last step.
_ZOOMS = 7
_CLOSER = 33
#: The last total that is tried lies so much below the largest under the cap, relatively.
_INSIDE = 1e-12


def plan_rest(margins: Margins, buyer: Buyer, remaining: int, total: float, squares: float) -> Plan:
    """Return a plan for the sellers still to come, given what was sold already.

    The best of a search over the total; nothing is proved of it.

    Parameters
    ----------
    margins : Margins
    buyer : Buyer
    remaining : int
        How many are still to come, at least 1.
    total, squares : float
        Sums of the guarantees sold so far, > 0, and of their squares.
    """
    rest = _Rest(margins, buyer, remaining, total, squares)
    centre = np.log(np.sqrt(buyer.sigma / buyer.gamma / max(margins.lowest + margins.unit, 1e-300)))
    centre = max(float(centre), np.log(total))
    top = min(centre + 14.0, rest.log_limit)
    logs = np.linspace(min(np.log(total), top) - 14.0, top, _TOTALS)
    values = rest.loss(np.exp(logs))
    for _ in range(_ZOOMS):
        nearest = int(np.argmin(values))
        logs = np.linspace(
            logs[max(nearest - 1, 0)], logs[min(nearest + 1, logs.size - 1)], _CLOSER
        )
        values = rest.loss(np.exp(logs))
    more = np.exp(logs[[int(np.argmin(values))]])
    nothing = float(buyer.loss(np.sqrt(squares), total, 0.0))
    objective = float(rest.loss(more)[0])
    if nothing <= objective:
        return Plan(Terms(margins.lowest, 0.0), total, nothing)
    price, scale, _ = rest.at(more)
    eta = total + float(more[0])
    largest = buyer.cap * eta / buyer.m
    return Plan(Terms(float(price[0]), float(scale[0]), largest), eta, objective)


class _Rest:
    """The best way to buy any further total of privacy."""

    def __init__(
        self, margins: Margins, buyer: Buyer, remaining: int, total: float, squares: float
    ) -> None:
        self._margins, self._buyer, self._remaining = margins, buyer, remaining
        self._total, self._squares = total, squares
        self._unit = margins.unit
        #: Logarithm of the largest further total under the cap, where all to come sell the same.
        self.log_limit = np.inf
        if (share := buyer.cap * remaining / buyer.m) < 1:
            self.log_limit = np.log(total) + np.log(share / (1 - share)) - _INSIDE

    def _caps(self, more: Floats) -> Floats | float:
        """Return the cap relative to the average of the rest, where guarantees are eta*k/m."""
        buyer = self._buyer
        if np.isinf(buyer.cap):
            return np.inf
        return buyer.cap / buyer.m * (self._total + more) * self._remaining / more

    def at(self, more: Floats) -> tuple[Floats, Floats, Shape]:
        """Return price, scale and shape of the best purchase of each total ``more``."""
        buyer, m = self._buyer, self._remaining
        caps = self._caps(more)
        eta = self._total + more
        low, high = np.full(more.shape, -690.0), np.full(more.shape, 200.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            shape = shape_at(self._margins, self._price(middle), caps)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                scale = more / (m * shape.first)
                spread = np.sqrt(self._squares / scale / scale + m * shape.second)
            enough = (shape.first > 0) & (buyer.mu <= buyer.gamma * eta * spread)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        price = self._price(high)
        shape = shape_at(self._margins, price, caps)
        with np.errstate(divide="ignore"):
            return price, more / (m * shape.first), shape

    def _price(self, log: Floats) -> Floats:
        return self._margins.lowest + self._unit * np.exp(log)

    def loss(self, more: Floats) -> Floats:
        """Return the loss at each further total; infinite where the cap excludes it."""
        _, scale, shape = self.at(more)
        m = self._remaining
        with np.errstate(invalid="ignore", over="ignore"):
            norm = np.sqrt(self._squares + m * scale * scale * shape.second)
            loss = self._buyer.loss(norm, self._total + more, m * scale * shape.cost)
        possible = np.isfinite(loss) & (np.asarray(self._caps(more)) > 1)
        return np.where(possible, loss, np.inf)
