"""Sorted costs with their prefix sums: of one market, and of many that differ in one seller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Arrays",
    "Costs",
    "Floats",
    "GroupedCosts",
    "Ints",
    "Replaced",
    "ReplacedInGroups",
    "SortedCosts",
    "of_market",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_BLOCK = 1 << 15


class Arrays:
    """Arrays of one shape, the fields of a dataclass, that are indexed and joined together."""

    def __getitem__(self, index: Any) -> Self:
        return type(self)(*(part[index] for part in vars(self).values()))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return several one after the other."""
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(
            *(
                type(one[0]).joined(one) if isinstance(one[0], Arrays) else np.concatenate(one)
                for one in fields
            )
        )


class Costs(Protocol):
    """Sorted costs of one or many markets; ``e`` says which market, ``k`` is a rank."""

    offset: float
    size: Ints  # of each market, or of all of them
    count: int
    stretches: tuple[Ints, Ints, Ints] | None  # of a market between two nodes, if known

    def number(self, e: Ints, k: Ints) -> Ints:
        """Return how many sellers the k smallest costs are of."""

    def position(self, e: Ints, number: Ints) -> Ints:
        """Return the k from which on :meth:`number` is more than this."""

    def value(self, e: Ints, k: Ints) -> Floats:
        """Return the k-th smallest cost."""

    def sum1(self, e: Ints, k: Ints) -> Floats:
        """Return the sum of the k smallest costs."""

    def sums(self, e: Ints, k: Ints) -> tuple[Floats, Floats]:
        """Return the sum of the k smallest costs, and that of their squares."""

    def ties(self, e: Ints, k: Ints) -> tuple[Ints, Ints]:
        """Return how many costs are below, and at or below, the k-th smallest one."""


def of_market(values: NDArray[Any], e: Ints) -> NDArray[Any]:
    """Return the values of markets e; one for all markets is left to broadcast."""
    return values if values.size == 1 else values[e]


class OneSellerEach:
    """Costs that each are of one seller."""

    stretches: tuple[Ints, Ints, Ints] | None = None

    def number(self, e: Ints, k: Ints) -> Ints:
        """Return how many sellers the k smallest costs are of."""
        return k

    def position(self, e: Ints, number: Ints) -> Ints:
        """Return the k from which on :meth:`number` is more than this."""
        return number


class SortedCosts(OneSellerEach):
    """The costs of one market, centred and scaled, with their prefix sums.

    Parameters
    ----------
    psi : ndarray, shape (m,)
        Virtual costs >= 0 in ascending order, at least one of them within the limit.
    limit : float, optional
        Sellers who cost more, or infinitely much, are left out.
    """

    def __init__(self, psi: Floats, limit: float = np.inf) -> None:
        if not psi[-1] <= min(limit, np.finfo(float).max):
            limit = min(limit, np.finfo(float).max)
            psi = psi[: np.searchsorted(psi, limit, side="right")]
        self.psi = psi
        self.scale = float(psi[-1]) or 1.0
        self.lowest = float(psi[0])
        self.offset = self.lowest / self.scale
        self.size = np.array([psi.size])
        self.count = 1
        # Built in place: at a million sellers, fresh memory costs as much as the arithmetic.
        self.s1 = np.zeros(psi.size + 1)
        self.s2 = np.zeros(psi.size + 1)
        x, squares = self.s1[1:], self.s2[1:]
        np.subtract(psi, self.lowest, out=x)
        x /= self.scale
        np.multiply(x, x, out=squares)
        np.cumsum(x, out=x)
        np.cumsum(squares, out=squares)

    def deviations(self, j: int, q: int, origin: float, unit: float) -> tuple[float, float]:
        """Return the mean deviation of costs j to q from ``origin``, and the squares about it.

        Both in a unit that keeps them within double precision; a power of two rounds nothing. Block
        by block, because a million fresh deviations cost more than the arithmetic.
        """
        values = self.psi[j:q]
        blocks = range(0, values.size, _BLOCK)
        sums = (float(((values[i : i + _BLOCK] - origin) / unit).sum()) for i in blocks)
        mean = sum(sums) / values.size
        squares = 0.0
        for i in blocks:
            deviation = values[i : i + _BLOCK] - origin
            deviation /= unit
            deviation -= mean
            deviation *= deviation
            squares += float(deviation.sum())
        return mean, squares

    def total(self, j: int, unit: float) -> float:
        """Return the sum of the j smallest costs, in a unit."""
        return float((self.psi[:j] / unit).sum())

    def scaled(self, psi: Floats) -> Floats:
        """Return costs centred and scaled as these are."""
        return (psi - self.lowest) / self.scale

    def value(self, e: Ints, k: Ints) -> Floats:
        """Return the k-th smallest cost."""
        return self.scaled(self.psi[k])

    def sum1(self, e: Ints, k: Ints) -> Floats:
        """Return the sum of the k smallest costs."""
        return self.s1[k]

    def sums(self, e: Ints, k: Ints) -> tuple[Floats, Floats]:
        """Return the sum of the k smallest costs, and that of their squares."""
        return self.s1[k], self.s2[k]

    def ties(self, e: Ints, k: Ints) -> tuple[Ints, Ints]:
        """Return how many costs are below, and at or below, the k-th smallest one."""
        value = self.psi[k]
        return np.searchsorted(self.psi, value), np.searchsorted(self.psi, value, side="right")


class GroupedCosts(SortedCosts):
    """The costs of one market, of which some are known one by one and the others in groups.

    Parameters
    ----------
    psi : ndarray, shape (n,)
        Costs in ascending order; of a group, no more than its smallest.
    numbers : ndarray of int, shape (n,)
        How many sellers have each cost, or are in the group; may be 0.
    means, squares : ndarray, shape (n,)
        Of a group, the mean cost and the sum of squares about it; the cost and 0 elsewhere.
    stretches : ndarray of int, shape (s, 2)
        Nodes between which all costs are known one by one, and outside of which the path is not
        stationary.
    limit : float
        A cost above which nobody is bought from.
    """

    def __init__(
        self,
        psi: Floats,
        numbers: Ints,
        means: Floats,
        squares: Floats,
        stretches: Ints | None = None,
        limit: float = np.inf,
    ) -> None:
        self.psi, self.limit = psi, limit
        if stretches is not None:
            self.stretches = np.zeros(len(stretches), dtype=np.intp), *stretches.T
        self._numbers, self._means, self._squares = numbers, means, squares
        self.scale = float(psi[-1]) or 1.0
        self.lowest = float(psi[0])
        self.offset = self.lowest / self.scale
        self.size = np.array([psi.size])
        self.count = 1
        x = self.scaled(means)
        self._n, self.s1, self.s2 = (
            np.concatenate(([0], np.cumsum(part)))
            for part in (numbers, numbers * x, squares / self.scale**2 + numbers * x * x)
        )

    def groups(self, k: int) -> tuple[Ints, Floats, Floats]:
        """Return numbers, means and squares of the k smallest costs."""
        return self._numbers[:k], self._means[:k], self._squares[:k]

    def number(self, e: Ints, k: Ints) -> Ints:
        """Return how many sellers the k smallest costs are of."""
        return self._n[k]

    def position(self, e: Ints, number: Ints) -> Ints:
        """Return the k from which on :meth:`number` is more than this."""
        return np.searchsorted(self._n, number, side="right") - 1

    def deviations(self, j: int, q: int, origin: float, unit: float) -> tuple[float, float]:
        """Return the mean deviation of costs j to q from ``origin``, and the squares about it."""
        numbers, deviation = self._numbers[j:q], (self._means[j:q] - origin) / unit
        mean = float((numbers * deviation).sum()) / int(numbers.sum())
        deviation -= mean
        return mean, float((self._squares[j:q] / unit**2 + numbers * deviation**2).sum())

    def total(self, j: int, unit: float) -> float:
        """Return the sum of the j smallest costs, in a unit."""
        return float((self._numbers[:j] * (self._means[:j] / unit)).sum())


class Replaced(OneSellerEach):
    """Many markets, each the base market with one seller's cost replaced.

    Parameters
    ----------
    base : SortedCosts
    rank : ndarray of int, shape (n,)
        Which seller, counted from the cheapest of the whole market.
    psi : ndarray, shape (n,)
        The cost that the seller has instead, in the units of the base's ``psi``; +inf removes
        the seller.
    """

    def __init__(self, base: SortedCosts, rank: Ints, psi: Floats) -> None:
        self.base = base
        self.offset = base.offset
        self.rank = rank
        self.psi = psi
        self.y = base.scaled(psi)
        m = base.psi.size
        present = rank < m  # else the base left the seller out as too dear
        self.old_psi = np.where(present, base.psi[np.minimum(rank, m - 1)], np.inf)
        self.old = base.scaled(self.old_psi)
        gone = np.isinf(psi)
        # Where y goes among the others; a seller who left stands behind the last of them.
        self.place = np.searchsorted(base.psi, psi) - (psi > self.old_psi)
        self.place[gone] = m
        self.size = m + ~present - gone.astype(np.intp)
        self.count = rank.size

    def some(self, e: Ints) -> Replaced:
        """Return only some of the markets."""
        return Replaced(self.base, self.rank[e], self.psi[e])

    def _others(self, e: Ints, k: Ints) -> Ints:
        """Return the base rank of the k-th of the sellers that were not replaced."""
        return k + (k >= self.rank[e])

    def value(self, e: Ints, k: Ints) -> Floats:
        """Return the k-th smallest cost."""
        place = self.place[e]
        other = self._others(e, k - (k > place))
        found = self.base.psi[np.minimum(other, self.base.psi.size - 1)]
        return np.where(k == place, self.y[e], self.base.scaled(found))

    def _among(self, e: Ints, k: Ints) -> tuple[Ints, Floats, Floats]:
        """Return how many of the base are among the k smallest, who has left and who has come."""
        has_new = k > self.place[e]
        others = k - has_new
        has_old = others > self.rank[e]
        left = np.where(has_old, self.old[e], 0.0)
        return others + has_old, left, np.where(has_new, self.y[e], 0.0)

    def sum1(self, e: Ints, k: Ints) -> Floats:
        """Return the sum of the k smallest costs."""
        k, left, come = self._among(e, k)
        return self.base.s1[k] - left + come

    def sums(self, e: Ints, k: Ints) -> tuple[Floats, Floats]:
        """Return the sum of the k smallest costs, and that of their squares."""
        k, left, come = self._among(e, k)
        return self.base.s1[k] - left + come, self.base.s2[k] - left * left + come * come

    def ties(self, e: Ints, k: Ints) -> tuple[Ints, Ints]:
        """Return how many costs are below, and at or below, the k-th smallest one."""
        psi = self.base.psi
        other = np.minimum(self._others(e, k - (k > self.place[e])), psi.size - 1)
        value = np.where(k == self.place[e], self.psi[e], psi[other])
        counts = []
        for side, own in (("left", np.less), ("right", np.less_equal)):
            count = np.searchsorted(psi, value, side=side)  # type: ignore[call-overload]
            counts.append(count - own(self.old_psi[e], value) + own(self.psi[e], value))
        return counts[0], counts[1]


class ReplacedInGroups:
    """Many markets, each a base market of which most is known in groups, with one cost replaced.

    Rows are those of the base, and one more for the cost that has come; the row of the one that has
    left stays, with one seller less.

    Parameters
    ----------
    base : GroupedCosts
    old : ndarray, shape (n,)
        Costs of the sellers who are replaced.
    psi : ndarray, shape (n,)
        What they cost instead; +inf removes them.
    """

    def __init__(self, base: GroupedCosts, old: Floats, psi: Floats) -> None:
        self.base, self.offset, self.psi = base, base.offset, psi
        self.old, self.y = base.scaled(old), base.scaled(psi)
        rows = base.psi.size
        self.row = np.searchsorted(base.psi, old, side="right") - 1
        self.row[old >= base.psi[-1]] = rows  # too dear to be there
        self.place = np.searchsorted(base.psi, psi)
        self.size = rows + 1 - np.isinf(psi).astype(np.intp)
        self.count = psi.size
        self.stretches = None
        if base.stretches is not None:
            _, *ends = base.stretches
            begin, end = (k + (self.place[:, None] <= k) for k in ends)
            e = np.repeat(np.arange(psi.size), begin.shape[1])
            self.stretches = e, begin.ravel(), end.ravel()

    def _among(self, e: Ints, k: Ints) -> tuple[Ints, Any, Any]:
        """Return how many rows of the base are among the first k, if one has left and if come."""
        has_new = k > self.place[e]
        rows = k - has_new
        return rows, rows > self.row[e], has_new

    def number(self, e: Ints, k: Ints) -> Ints:
        """Return how many sellers the k smallest costs are of."""
        rows, left, come = self._among(e, k)
        return self.base.number(e, rows) - left + come

    def position(self, e: Ints, number: Ints) -> Ints:
        """Return the k from which on :meth:`number` is more than this."""

        def without(number: Ints) -> Ints:
            more = self.base.position(e, number + 1)
            return np.where(more > self.row[e], more, self.base.position(e, number))

        behind = without(number - 1) + 1
        place = self.place[e]
        return np.where(behind > place, behind, np.minimum(without(number), place))

    def value(self, e: Ints, k: Ints) -> Floats:
        """Return the k-th smallest cost."""
        return np.where(k == self.place[e], self.y[e], self.base.scaled(self._row(e, k)))

    def _row(self, e: Ints, k: Ints) -> Floats:
        return self.base.psi[np.minimum(k - (k > self.place[e]), self.base.psi.size - 1)]

    def sum1(self, e: Ints, k: Ints) -> Floats:
        """Return the sum of the k smallest costs."""
        rows, left, come = self._among(e, k)
        old, y = np.where(left, self.old[e], 0.0), np.where(come, self.y[e], 0.0)
        return self.base.s1[rows] - old + y

    def sums(self, e: Ints, k: Ints) -> tuple[Floats, Floats]:
        """Return the sum of the k smallest costs, and that of their squares."""
        rows, left, come = self._among(e, k)
        old, y = np.where(left, self.old[e], 0.0), np.where(come, self.y[e], 0.0)
        return self.base.s1[rows] - old + y, self.base.s2[rows] - old * old + y * y

    def ties(self, e: Ints, k: Ints) -> tuple[Ints, Ints]:
        """Return how many costs are below, and at or below, the k-th smallest one."""
        value = np.where(k == self.place[e], self.psi[e], self._row(e, k))
        below = np.searchsorted(self.base.psi, value) + (self.psi[e] < value)
        upto = np.searchsorted(self.base.psi, value, side="right") + (self.psi[e] <= value)
        return below, upto
