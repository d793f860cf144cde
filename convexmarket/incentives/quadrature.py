"""Vectorised quadrature and root finding for many functions of one variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize.elementwise import find_root

__all__ = ["NODES", "adaptive", "cut", "first_root"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: A jump is accepted after this number of halvings, or in an interval of this relative length.
_MAX_DEPTH, _SHORTEST = 60, 1e-12


def _clenshaw_curtis(n: int) -> tuple[Floats, Floats]:
    """Return the n + 1 nodes and the weights of the Clenshaw-Curtis rule on [-1, 1]."""
    j, k = np.arange(n + 1), np.arange(1, n // 2 + 1)
    share = np.where(2 * k == n, 1.0, 2.0) / (4.0 * k * k - 1.0)
    weights = (2.0 - 2.0 * np.cos(2.0 * np.pi * np.outer(j, k) / n) @ share) / n
    weights[[0, -1]] *= 0.5
    return -np.cos(np.pi * j / n), weights


#: Nodes of nested rules with 6, 12 and 24 intervals, which include the ends to detect jumps there.
NODES = _clenshaw_curtis(24)[0]
_RULES = np.zeros((NODES.size, 3))
for _k, _stride in enumerate((4, 2, 1)):
    _RULES[::_stride, _k] = _clenshaw_curtis(24 // _stride)[1]


def adaptive(
    f: Callable[[Ints, Floats], Floats],
    start: Floats,
    end: Floats,
    tolerance: Floats,
    breakpoints: Floats | Sequence[float] = (),
    most: int = 4096,
) -> tuple[Floats, Floats]:
    """Integrate ``f(k, z)`` over z in [start[k], end[k]], for every k, and bound the errors.

    Intervals are cut at breakpoints. Intervals are halved until three rules agree, their length is
    negligible, or parts have ``most`` intervals on average. (Two rules can agree by chance.)
    """
    total, error = np.zeros((2, start.size))
    owner, low, high = cut(start, end, np.asarray(breakpoints))
    left = most * owner.size
    for depth in range(_MAX_DEPTH):
        left -= owner.size
        half, middle = 0.5 * (high - low), 0.5 * (high + low)
        z = middle[:, None] + half[:, None] * NODES
        z[:, 0], z[:, -1] = low, high  # rounding must not put an end outside the support
        values = f(np.repeat(owner, NODES.size), z.ravel()).reshape(z.shape)
        integrals = half[:, None] * (values @ _RULES)
        apart = np.abs(np.diff(integrals))
        good = (apart.max(axis=1) <= tolerance[owner]) | (half <= _SHORTEST * np.abs(middle))
        good |= (left < 0) | (depth == _MAX_DEPTH - 1)
        np.add.at(total, owner[good], integrals[good, -1])
        np.add.at(error, owner[good], apart[good, -1])
        owner, low, middle, high = (part[~good] for part in (owner, low, middle, high))
        owner, low, high = np.tile(owner, 2), np.append(low, middle), np.append(middle, high)
        if not owner.size:
            break
    return total, error


def cut(start: Floats, end: Floats, breakpoints: Floats) -> tuple[Ints, Floats, Floats]:
    """Cut intervals at interior breakpoints; return each part's interval number and ends."""
    first = np.searchsorted(breakpoints, start, side="right")
    inside = np.maximum(np.searchsorted(breakpoints, end) - first, 0)
    owner = np.repeat(np.arange(start.size), inside + 1)
    place = np.arange(owner.size) - np.repeat(np.cumsum(inside + 1) - inside - 1, inside + 1)
    padded = np.append(breakpoints, 0.0)
    low = np.where(place == 0, start[owner], padded[first[owner] + place - 1])
    high = np.where(place == inside[owner], end[owner], padded[first[owner] + place])
    return owner, low, np.maximum(low, high)


def first_root(
    f: Callable[[Floats, Any], Floats], which: NDArray[Any], start: Floats, top: float, step: float
) -> Floats:
    """Compute, for each k, the smallest z in [start[k], top] with f(z, which[k]) >= 0.

    ``f`` is nondecreasing in z. If ``top`` is infinite, the search begins with the given step.
    """
    root = start.copy()
    below = np.flatnonzero(f(start, which) < 0)
    low, which = start[below], which[below]
    high = np.full(below.size, top) if np.isfinite(top) else low + step
    while np.any(short := f(high, which) < 0) and np.isinf(top):
        high = np.where(short, low + 2.0 * (high - low), high)
    inside = ~short

    def signed(z: Floats, which: Any) -> Floats:
        excess = f(z, which) + 0.0  # converts -0.0 to 0.0
        return np.copysign(np.clip(np.abs(excess), 1e-300, 1e200), excess)

    bracket, args = (low[inside], high[inside]), (which[inside],)
    between = cast(Any, find_root)(signed, bracket, args=args)  # SciPy's stubs lack args
    high[inside] = np.where(between.f_x >= 0, between.x, between.bracket[1])  # at or above the root
    root[below] = high
    return root
