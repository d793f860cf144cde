"""Sorted costs with their prefix sums, for one market or for many that differ in one seller."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, Self

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
    def joined(cls, parts: Sequence[Self], axis: int = 0) -> Self:
        """Concatenate several structures."""
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(
            *(
                type(part[0]).joined(part, axis)
                if isinstance(part[0], StructOfArrays)
                else np.concatenate(part, axis)
                for part in fields
            )
        )


class Costs:
    """The costs of markets in rows, each of one seller or of a group, centred and scaled.

    There is one market, or many made by :meth:`replaced`. In each of these, the row of one seller
    of the first market remains with one seller less, and one row is added for a new cost. Methods
    take ranks k of rows, one or more for each market.

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

    #: Replaced sellers: row, scaled old cost, rank of the new cost, scaled new cost.
    row: Ints
    old: Floats
    place: Ints
    y: Floats
    #: Number of rows of each market; whether no seller is replaced, which saves operations.
    size: Ints
    _is_first = True

    def __init__(
        self,
        psi: Floats,
        numbers: Ints | None = None,
        means: Floats | None = None,
        squares: Floats | float = 0.0,
        stretches: Ints | None = None,
    ) -> None:
        self.psi, self.stretches = psi, stretches
        self.scale, self.lowest = float(psi[-1]) or 1.0, float(psi[0])
        self.offset, self.x = self.lowest / self.scale, self.scaled(psi)
        self._numbers = np.ones(psi.size, np.intp) if numbers is None else numbers
        self._means, self._squares = psi if means is None else means, squares
        x = self.x if means is None else self.scaled(means)
        first = self._numbers * x
        second = first * x + squares / self.scale / self.scale
        self._sums = []
        for part in (self._numbers, first, second):
            self._sums.append(np.zeros(psi.size + 1, part.dtype))
            np.cumsum(part, out=self._sums[-1][1:])
        # No seller is replaced.
        self.row = self.place = self.size = np.array([psi.size])
        self.old = self.y = np.zeros(1)

    @classmethod
    def sorted(cls, psi: Floats, limit: float = np.inf) -> Self:
        """Create costs with one seller in each row, without costs above a limit or infinite."""
        limit = min(limit, np.finfo(float).max)
        return cls(psi[: np.searchsorted(psi, limit, side="right")])

    def replaced(self, old: Floats, psi: Floats) -> Costs:
        """Build markets: in market k the cost ``old[k]`` of one seller becomes ``psi[k]``.

        An infinite ``psi`` removes the seller. An ``old`` beyond the last row adds a seller.
        """
        many, comes, last = copy(self), psi < np.inf, self.psi[-1]
        many._is_first, many.size = False, self.psi.size + comes
        there = (old < last) | ((old == last) & (self._numbers[-1] > 0))
        many.row = np.searchsorted(self.psi, old, side="right") - 1
        many.row = np.where(there, many.row, self.psi.size)
        many.old = np.where(there, self.scaled(old), 0.0)
        many.place, many.y = np.searchsorted(self.psi, psi), np.where(comes, self.scaled(psi), 0.0)
        return many

    @property
    def count(self) -> int:
        """Number of markets."""
        return self.size.size

    def __getitem__(self, e: Any) -> Costs:
        """Select markets, by an index of any shape."""
        if self._is_first:
            return self
        some = copy(self)
        for name in ("row", "old", "place", "y", "size"):
            setattr(some, name, getattr(self, name)[e])
        return some

    def scaled(self, psi: Any) -> Any:
        """Centre and scale costs."""
        return (psi - self.lowest) / self.scale

    def _rows(self, k: Ints) -> tuple[Ints, Any, Any]:
        """Return rows of the first market, and whether the new and the old cost are in them."""
        if self._is_first:
            return k, 0, 0
        come = k > self.place
        rows = k - come
        return rows, come, rows > self.row

    def sums(self, k: Ints) -> tuple[Ints, Floats, Floats]:
        """Return the number of sellers in the first k rows, their sum of costs and of squares."""
        rows, come, left = self._rows(k)
        counts, firsts, seconds = self._sums
        number, first, second = counts[rows], firsts[rows], seconds[rows]
        if self._is_first:
            return number, first, second
        old, new = left * self.old, come * self.y
        return number - left + come, first - old + new, second - old * old + new * new

    def number(self, k: Ints) -> Ints:
        """Return the number of sellers in the first k rows."""
        rows, come, left = self._rows(k)
        return self._sums[0][rows] - left + come

    def position(self, number: Ints) -> Ints:
        """Return the largest k with at most ``number`` sellers in the first k rows."""
        if self._is_first:
            return np.searchsorted(self._sums[0], number, side="right") - 1
        behind = self._without(number - 1) + 1
        upto = np.minimum(self._without(number), self.place)
        return np.where(behind > self.place, behind, upto)

    def _without(self, number: Ints) -> Ints:
        """Return the same for the first market without the old cost."""
        more, most = (
            np.searchsorted(self._sums[0], some, side="right") - 1 for some in (number + 1, number)
        )
        return np.where(more > self.row, more, most)

    def value(self, k: Ints) -> Floats:
        """Return the cost at a rank, centred and scaled."""
        if self._is_first:
            return self.x[k]
        rows = np.minimum(k - (k > self.place), self.psi.size - 1)
        return np.where(k == self.place, self.y, self.x[rows])

    def rows_below(self, level: Floats, side: Literal["left", "right"]) -> Ints:
        """Return the number of rows below a level, or up to it if ``side`` is "right"."""
        new = self.y < level if side == "left" else self.y <= level
        return np.searchsorted(self.x, level, side=side) + (new & (self.size > self.psi.size))

    def ties(self, k: Ints) -> tuple[Ints, Ints]:
        """Return the numbers of rows below the cost at a rank, and up to it."""
        value = self.value(k)
        return self.rows_below(value, "left"), self.rows_below(value, "right")

    def deviations(self, j: int, q: int, origin: float) -> tuple[float, float]:
        """Return the mean deviation of rows j to q from ``origin``, and the scaled variation."""
        numbers, deviation = self._numbers[j:q], (self._means[j:q] - origin) / self.scale
        mean = float((numbers * deviation).sum()) / int(numbers.sum())
        deviation -= mean
        squares = np.broadcast_to(self._squares, self.psi.shape)[j:q] / self.scale / self.scale
        return mean * self.scale, float((squares + numbers * deviation**2).sum())

    def total(self, j: int) -> float:
        """Return the sum of the costs in the first j rows."""
        return float((self._numbers[:j] * self._means[:j]).sum())
