"""Constraints on the weighted sellers: public moments and the effective size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.checks import aligned, as_float
from convexmarket.errors import ParameterError
from convexmarket.terms.base import Constraint, Quantities
from convexmarket.terms.formula import number
from convexmarket.terms.values import ByValue, brief, checked_matrix, checked_vector, one_or_each

__all__ = ["EffectiveSize", "Moments"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Moments(ByValue, Constraint):
    """Weighted averages of public features match targets: ``|A'a - b| <= tol``, each one.

    With the averages of a population (a census) as b, the purchase represents it in these features.
    Statistics calls it calibration of weights (Deville and Sarndal, 1992).

    Parameters
    ----------
    A : array_like or scipy sparse matrix, shape (m, k)
        Public features of each seller, one per column.
    b : array_like, shape (k,)
        Targets of their weighted averages.
    tol : float or array_like, shape (k,)
        Largest deviation, >= 0, in the units of each feature.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.Payments()
    >>> market = cm.Market(sellers, objective, [cm.terms.Moments([[30.0], [40.0], [65.0]], [45.0])])
    >>> cm.allocate(market).weights.round(3)
    array([0.345, 0.316, 0.338])
    """

    each_seller = ("A", "A")
    A: Any
    b: Floats
    tol: float | Floats = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.A, pd.DataFrame):
            _, b, tol = aligned(**{"A.T": self.A.T, "b": self.b, "tol": self.tol})
            object.__setattr__(self, "b", b)
            object.__setattr__(self, "tol", tol)
        A = checked_matrix("A", self.A, "a row of public features for each seller")
        b = checked_vector("b", self.b, "one for each column of A")
        tol = one_or_each("tol", self.tol, "0.1", zero=True, each="column of A")
        for name, values in (("b", b), ("tol", tol)):
            if isinstance(values, np.ndarray) and values.size != A.shape[1]:
                raise ParameterError(
                    f"{name} has {values.size} entries for {A.shape[1]} columns of A; give one for "
                    "each"
                )
        for name, value in (("A", A), ("b", b), ("tol", tol)):
            object.__setattr__(self, name, value)

    @property
    def formula(self) -> str:
        """The bound on each moment."""
        return "A'a = b" if not np.any(self.tol) else f"|A'a - b| <= {number(self.tol, 'tol')}"

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return ``-tol <= A'a - b <= tol``, with each feature scaled to a largest value of one."""
        largest = abs(sparse.csc_array(self.A)).max(axis=0).toarray().ravel()
        unit = np.where(largest > 0, largest, 1.0)
        off = cp.multiply(1 / unit, self.A.T @ quantities.weights - self.b)
        room = np.broadcast_to(self.tol, unit.shape) / unit
        some = room > 0
        found = [off[some] <= room[some], -room[some] <= off[some]] if some.any() else []
        return found if some.all() else [*found, off[~some] == 0]

    def __repr__(self) -> str:
        return f"Moments({self.A.shape[1]} of {self.A.shape[0]} sellers, tol={brief(self.tol)})"


@dataclass(frozen=True)
class EffectiveSize(Constraint):
    """The effective size of the weights is at least n: ``1/||a||^2 >= n`` (Kish, 1965).

    An average with weights a is as precise as one of that many rows.

    Parameters
    ----------
    n : float
        From 1 (no restriction) to the number of sellers, which makes all weights equal.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.Payments()
    >>> market = cm.Market(sellers, objective, [cm.terms.EffectiveSize(2.9)])
    >>> cm.allocate(market).weights.round(3)
    array([0.402, 0.346, 0.252])
    """

    formula_template = "1/||a||_2^2 >= {n}"
    at_most_all = ("n", "the effective size")
    n: float

    def __post_init__(self) -> None:
        if not 1 <= as_float(self.n) < np.inf:
            raise ParameterError(
                "the effective size must be a finite number >= 1, such as half the number of "
                f"sellers, got {self.n!r}"
            )

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return ``||m*a|| <= m*n^(-1/2)``."""
        m = quantities.weights.size
        if self.n == m:  # a ball of a single point
            return [m * quantities.weights == 1]
        return [cp.norm(m * quantities.weights) <= m / np.sqrt(self.n)]
