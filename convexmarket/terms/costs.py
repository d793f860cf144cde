"""The cost of lost privacy to a seller: u(eps), convex, increasing, u(0) = 0 (B, section 4).

A seller with sensitivity c who sells eps bears the cost ``c * u(eps)``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import as_float, is_iterable
from convexmarket.errors import ParameterError
from convexmarket.terms.records import Record, checked, in_interval, record

__all__ = ["ExponentialCost", "LinearCost", "PowerCost", "PrivacyCost", "TieredCost"]

Floats = NDArray[np.float64]


class PrivacyCost(Record):
    """A privacy cost u, the same for all sellers.

    Subclass it and write :meth:`expression`, elementwise convex and increasing with u(0) = 0.

    Examples
    --------
    >>> import cvxpy as cp
    >>> class Cubed(PrivacyCost):
    ...     def expression(self, epsilon):
    ...         return cp.power(epsilon, 3)
    >>> Cubed()([1.0, 2.0])
    array([1., 8.])
    """

    definition = "expression"
    _argument = "(eps_i)"
    #: Whether u(eps) = eps.
    is_linear: bool = False

    @abstractmethod
    def expression(self, epsilon: cp.Expression) -> cp.Expression:
        """Return u(eps), entry by entry, as a convex CVXPY expression.

        Parameters
        ----------
        epsilon : cvxpy.Expression
        """

    def __call__(self, epsilon: ArrayLike) -> Floats:
        """Return u(eps) for numbers eps >= 0; same shape as ``epsilon``."""
        value = np.asarray(epsilon, dtype=float)
        return np.asarray(self.expression(cp.Constant(value.ravel())).value).reshape(value.shape)

    def priced(self, costs: Any, epsilon: cp.Expression) -> cp.Expression:
        """Return ``costs'u(eps)``, scaled for a solver."""
        return costs @ self.expression(epsilon)

    def derivatives(self, epsilon: Floats) -> tuple[Floats, Floats] | None:
        """Compute u'(eps) and u''(eps) at positive guarantees; None if unknown."""
        return None


@record
class PowerCost(PrivacyCost):
    """u(eps) = eps ** power, with a power of at least 1; 1 is the linear cost.

    Examples
    --------
    >>> PowerCost(2)([0.5, 2.0])
    array([0.25, 4.  ])
    """

    formula_template = "eps_i^{power}"
    power: float = checked(in_interval, interval="[1, inf)")

    @property
    def is_linear(self) -> bool:  # type: ignore[override]
        return self.power == 1

    def expression(self, epsilon: cp.Expression) -> cp.Expression:
        return epsilon if self.power == 1 else cp.power(epsilon, float(self.power))

    def derivatives(self, epsilon: Floats) -> tuple[Floats, Floats]:
        p = self.power
        if p == 1:
            return np.ones_like(epsilon), np.zeros_like(epsilon)
        with np.errstate(divide="ignore"):  # at 0 for p < 2
            return p * epsilon ** (p - 1), p * (p - 1) * epsilon ** (p - 2)


@record
class LinearCost(PowerCost):
    """u(eps) = eps (A, section II).

    Examples
    --------
    >>> LinearCost()([0.5, 2.0])
    array([0.5, 2. ])
    """

    formula_template = "eps_i"
    power: float = field(default=1.0, init=False)


@record
class ExponentialCost(PrivacyCost):
    """u(eps) = exp(eps) - 1: the largest factor of an adversary's odds, minus one.

    Examples
    --------
    >>> ExponentialCost()([0.0, 1.0]).round(3)
    array([0.   , 1.718])
    """

    formula_template = "(exp(eps_i) - 1)"

    def expression(self, epsilon: cp.Expression) -> cp.Expression:
        return cp.exp(epsilon) - 1

    def priced(self, costs: Any, epsilon: cp.Expression) -> cp.Expression:
        if isinstance(costs, cp.Expression):
            return super().priced(costs, epsilon)
        paid = costs > 0  # entries of the sum are of order one
        return cp.sum(cp.exp(epsilon[paid] + np.log(costs[paid]))) - costs.sum()

    def __call__(self, epsilon: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.expm1(np.asarray(epsilon, dtype=float))

    def derivatives(self, epsilon: Floats) -> tuple[Floats, Floats]:
        return (self(epsilon) + 1.0,) * 2


@record
class TieredCost(PrivacyCost):
    """A piecewise linear u, such as the tariffs of a contract: ``u'(eps) = slopes[k]`` in tier k.

    The slopes are > 0 and do not fall; the thresholds are the ends of all tiers but the last.

    Examples
    --------
    >>> TieredCost([1.0, 3.0], [1.0])([0.5, 2.0])
    array([0.5, 4. ])
    """

    slopes: Sequence[float]
    thresholds: Sequence[float] = ()

    def __post_init__(self) -> None:
        slopes, ends = (
            tuple(map(as_float, given)) if is_iterable(given) else ()
            for given in (self.slopes, self.thresholds)
        )
        finite = all(0 < number < np.inf for number in slopes + ends)
        rising = sorted(slopes) == list(slopes) and sorted(set(ends)) == list(ends)
        if not finite or not rising or len(slopes) != len(ends) + 1:
            raise ParameterError(
                "slopes must be finite, > 0 and not fall, and thresholds be one number less, > 0 "
                f"and increasing, got {self.slopes!r} and {self.thresholds!r}"
            )
        object.__setattr__(self, "slopes", slopes)
        object.__setattr__(self, "thresholds", ends)

    @property
    def _rises(self) -> list[tuple[float, float]]:
        return list(zip(np.diff(self.slopes).tolist(), self.thresholds, strict=True))

    @property
    def formula(self) -> str:
        rises = "".join(f" + {rise:g} (eps_i - {end:g})_+" for rise, end in self._rises)
        return f"({self.slopes[0]:g} eps_i{rises})"

    def expression(self, epsilon: cp.Expression) -> cp.Expression:
        rises = (rise * cp.pos(epsilon - end) for rise, end in self._rises)
        return sum(rises, self.slopes[0] * epsilon)
