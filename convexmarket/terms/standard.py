"""The four pieces of the papers' problem (A, Eq. 11), and a range for eta."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import cvxpy as cp
import numpy as np

from convexmarket.errors import ParameterError
from convexmarket.terms.base import Constraint, Quantities, Term

__all__ = ["Cap", "EtaRange", "Noise", "Payments", "Spread"]


@dataclass(frozen=True)
class Spread(Term):
    """The Euclidean norm of the weights, ||a||_2: the price of relying on few sellers.

    It is the term ``mu * ||a||`` of the excess risk (A, Theorem II.4) and smallest, ``1/sqrt(m)``,
    when all sellers count alike.
    """

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return ||a||_2."""
        return cp.norm(quantities.weights, 2)


@dataclass(frozen=True)
class Noise(Term):
    """The reciprocal of the total privacy bought, 1/eta: the price of the noise in the model.

    It is the term ``sigma / eta`` of the excess risk (A, Theorem II.4).
    """

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return 1/eta."""
        return quantities.inverse_eta


@dataclass(frozen=True)
class Payments(Term):
    """The expected payments, sum_i psi(c_i) eps_i (A, Eq. 9)."""

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return psi' eps."""
        return quantities.virtual_costs @ quantities.epsilon


@dataclass(frozen=True)
class Cap(Constraint):
    """No seller may weigh more than ``k`` times the average: a_i <= k/m (A, Eq. 11).

    Parameters
    ----------
    k : float
        At least 1, or the weights could not sum to one. ``k = 1`` makes all weights equal.
    """

    k: float

    def __post_init__(self) -> None:
        if not isinstance(self.k, Real) or not np.isfinite(self.k) or self.k < 1:
            raise ParameterError(
                f"cap is {self.k!r}, but m weights of at most cap/m can only sum to one if "
                "cap >= 1; give a number >= 1, or leave the cap out"
            )

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return a_i <= k/m, written for m*a, whose entries are of order one."""
        m = quantities.weights.size
        return [m * quantities.weights <= self.k]


@dataclass(frozen=True)
class EtaRange(Constraint):
    """The total privacy bought lies between two public numbers, low <= eta <= high.

    It makes an otherwise degenerate market well posed (the papers' naive model, mu = sigma = 0),
    and is what the papers' grid over eta amounts to. When a bound is active, it decided the
    answer; :attr:`Allocation.binding` says so.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        numbers = isinstance(self.low, Real) and isinstance(self.high, Real)
        if not numbers or not 0 < self.low <= self.high < np.inf:
            raise ParameterError(
                f"eta range is ({self.low!r}, {self.high!r}); give two finite numbers with "
                "0 < low <= high"
            )

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return 1/high <= 1/eta <= 1/low."""
        return [
            quantities.inverse_eta >= 1.0 / self.high,
            quantities.inverse_eta <= 1.0 / self.low,
        ]
