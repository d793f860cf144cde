"""Sorted costs with their prefix sums, for one market or for many that differ in one seller."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Costs", "Floats", "Ints", "StructOfArrays"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


class StructOfArrays:
    """A dataclass whose fields are arrays of one shape; indexing and joining act on all fields."""

    def __getitem__(self, index: Any) -> Self:
        return type(self)(*(part[index] for part in vars(self).values()))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate several structures."""
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(
            *(
                type(part[0]).joined(part)
                if isinstance(part[0], StructOfArrays)
                else np.concatenate(part)
                for part in fields
            )
        )


class Costs:
    """The costs of a market in rows, each of one seller or of a group, centred and scaled.

    :meth:`replaced` gives many markets at once. The row of a replaced seller stays, with one
    seller less, and one row is added for the new cost. Methods take ranks k of rows, one or more
    for each market.

    Parameters
    ----------
    psi : ndarray, shape (n,)
        Virtual costs >= 0 in ascending order; for a group, at most its smallest.
    numbers : ndarray of int, shape (n,), optional
        Number of sellers in each row, possibly 0; 1 by default.
    means, squares : ndarray, shape (n,), optional
        Mean cost of each group, and its sum of squares about the mean.
    stretches : ndarray of int, shape (s, 2), optional
        Ranges of ranks, one of which contains the optimum.
    """

    def __init__(
        self,
        psi: Floats,
        numbers: Ints | None = None,
        means: Floats | None = None,
        squares: Floats | None = None,
        stretches: Ints | None = None,
    ) -> None:
        self.psi, self.stretches = psi, stretches
        self.scale = float(psi[-1]) or 1.0
        self.lowest = float(psi[0])
        self.offset = self.lowest / self.scale
        self.x = self.scaled(psi)
        self.size, self.count = np.array([psi.size]), 1
        self._each = numbers is None
        self._numbers = np.ones(psi.size, np.intp) if numbers is None else numbers
        self._means = psi if means is None else means
        self._squares = np.broadcast_to(0.0, psi.size) if squares is None else squares
        x = self.x if means is None else self.scaled(means)
        first = self._numbers * x
        second = first * x if squares is None else first * x + squares / self.scale / self.scale
        self._sums = [np.zeros(psi.size + 1, part.dtype) for part in (self._numbers, first, second)]
        for sums, part in zip(self._sums, (self._numbers, first, second), strict=True):
            np.cumsum(part, out=sums[1:])

    @classmethod
    def sorted(cls, psi: Floats, limit: float = np.inf) -> Self:
        """Create costs with one seller in each row, without costs above a limit or infinite."""
        limit = min(limit, np.finfo(float).max)
        return cls(psi[: np.searchsorted(psi, limit, side="right")])

    def replaced(self, old: Floats, psi: Floats) -> Costs:
        """Build markets: in market k the cost ``old[k]`` of one seller becomes ``psi[k]``.

        An infinite ``psi`` removes the seller. An ``old`` beyond the last row adds a seller.
        """
        many, rows, last = copy(self), self.psi.size, self.psi[-1]
        there = (old < last) | ((old == last) & (self._numbers[-1] > 0))
        many.has_replaced = True
        many.row = np.where(there, np.searchsorted(self.psi, old, side="right") - 1, rows)
        many.old = np.where(there, self.scaled(old), 0.0)
        gone = np.isinf(psi)
        many.new, many.place = psi, np.searchsorted(self.psi, psi)
        many.y = np.where(gone, 0.0, self.scaled(psi))
        many.size = rows + 1 - gone.astype(np.intp)
        many.count = psi.size
        return many

    #: Replaced sellers: row, scaled old cost, new cost, its rank, scaled new cost.
    row: Ints
    old: Floats
    new: Floats
    place: Ints
    y: Floats
    has_replaced = False

    def __getitem__(self, e: Any) -> Costs:
        """Select markets, by an index of any shape."""
        if not self.has_replaced:
            return self
        some = copy(self)
        for name in ("row", "old", "new", "place", "y", "size"):
            setattr(some, name, getattr(self, name)[e])
        some.count = some.size.size
        return some

    def scaled(self, psi: Any) -> Any:
        """Centre and scale costs."""
        return (psi - self.lowest) / self.scale

    def sums(self, k: Ints) -> tuple[Ints, Floats, Floats]:
        """Return the number of sellers in the first k rows, their sum of costs and of squares."""
        if not self.has_replaced:
            number, first, second = (part[k] for part in self._sums)
            return number, first, second
        come = k > self.place
        rows = k - come
        left = rows > self.row
        number, first, second = (part[rows] for part in self._sums)
        old, new = left * self.old, come * self.y
        return number - left + come, first - old + new, second - old * old + new * new

    def number(self, k: Ints) -> Ints:
        """Return the number of sellers in the first k rows."""
        if not self.has_replaced:
            return self._sums[0][k]
        come = k > self.place
        rows = k - come
        return self._sums[0][rows] - (rows > self.row) + come

    def position(self, number: Ints) -> Ints:
        """Return the largest k with at most ``number`` sellers in the first k rows."""
        if not self.has_replaced:
            return self._position(number)
        place = self.place
        behind = self._without(number - 1) + 1
        return np.where(behind > place, behind, np.minimum(self._without(number), place))

    def _position(self, number: Ints) -> Ints:
        if self._each:
            return np.minimum(number, self.psi.size)
        return np.searchsorted(self._sums[0], number, side="right") - 1

    def _without(self, number: Ints) -> Ints:
        more = self._position(number + 1)
        return np.where(more > self.row, more, self._position(number))

    def _row(self, k: Ints) -> Ints:
        """Return the row of the original market at a rank."""
        return np.minimum(k - (k > self.place), self.psi.size - 1)

    def value(self, k: Ints) -> Floats:
        """Return the cost at a rank, centred and scaled."""
        if not self.has_replaced:
            return self.x[k]
        return np.where(k == self.place, self.y, self.x[self._row(k)])

    def rows_below(self, level: Floats, side: str) -> Ints:
        """Return the number of rows below a level, or up to it if ``side`` is "right"."""
        below = np.searchsorted(self.x, level, side=side)  # type: ignore[call-overload]
        new = self.y < level if side == "left" else self.y <= level
        return np.where(np.isinf(self.new), below, below + new)

    def ties(self, k: Ints) -> tuple[Ints, Ints]:
        """Return the numbers of rows below the cost at a rank, and up to it."""
        many = self.has_replaced
        value = np.where(k == self.place, self.new, self.psi[self._row(k)]) if many else self.psi[k]
        below = np.searchsorted(self.psi, value)
        upto = np.searchsorted(self.psi, value, side="right")
        return (below + (self.new < value), upto + (self.new <= value)) if many else (below, upto)

    def deviations(self, j: int, q: int, origin: float) -> tuple[float, float]:
        """Return the mean deviation of rows j to q from ``origin``, and the scaled variation."""
        numbers, deviation = self._numbers[j:q], (self._means[j:q] - origin) / self.scale
        mean = float((numbers * deviation).sum()) / int(numbers.sum())
        deviation -= mean
        squares = self._squares[j:q] / self.scale / self.scale + numbers * deviation**2
        return mean * self.scale, float(squares.sum())

    def total(self, j: int) -> float:
        """Return the sum of the costs in the first j rows."""
        return float((self._numbers[:j] * self._means[:j]).sum())
