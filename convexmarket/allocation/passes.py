"""Find the sellers that affect an optimum, by two passes over all sellers without sorting.

The first pass counts the sellers in cells. Two markets with costs at the edges of the cells enclose
the path of optimal weights (docs/theory.md, section 3.3). If a cell can contain neither a
stationary point nor the border of the sellers at the cap, only sums over the cell are needed. The
second pass fetches these sums, and the individual costs of the other cells. Every pass maps a
function over the parts of the costs, in one array or on several machines, and adds the results.

The number of a cell consists of the high bits of a double, which have the order of the doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.path import Costs, Floats, Markets, may_matter
from convexmarket.allocation.simplex import check_feasible
from convexmarket.market import StandardForm

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Number of costs in a block, chosen so that a block fits in a processor's cache.
_BLOCK = 1 << 15
#: Number of low bits of a double that vary within a cell. A factor of two has at least 128 cells.
_SHIFT = 45
#: Base-2 logarithm of the smallest number of cells.
_CELLS = 9
#: Relative extension of the interval of costs that allows for rounding errors.
_SLACK = 1e-9
#: Type of a function that summarises one part of the costs.
Pass = Callable[[Iterable[Floats]], Any]
#: Type of a function that applies a :data:`Pass` to all parts of the costs.
Each = Callable[[Pass], Sequence[Any]]


def blocks_of(psi: Floats) -> Iterator[Floats]:
    """Yield blocks of the costs that fit in a processor's cache."""
    return (psi[start : start + _BLOCK] for start in range(0, psi.size, _BLOCK))


def highest_cost_bought(form: StandardForm, g: float) -> float:
    """Return a virtual cost above which no seller sells at the optimum.

    The sellers with costs up to g can have the whole weight, and one of them is below the cap. If a
    seller with cost psi sells at the optimum, moving its weight to that seller does not reduce the
    objective, so t*(psi - g) <= mu. A stationary point has t^2*psi'a = sigma*gamma. Its objective
    exceeds 2*sigma*gamma/t, and is at most the objective of the cheapest sellers. Bounds on eta
    bound t directly.
    """
    c, one_over_t = form.sigma * form.gamma, 1.0 / (form.gamma * (form.eta_low or form.eta_high))
    if g < np.inf and c > 0 and form.eta_low == 0:
        root = float(np.sqrt(c) / np.sqrt(g)) if g > 0 else np.inf
        t = min(root, form.gamma * form.eta_high)
        achieved = form.mu + (c / t + t * g if t < np.inf else 0.0)
        one_over_t = max(one_over_t, achieved / (2.0 * c))
    return g + form.mu * one_over_t


def screen_sellers(
    each: Each, form: StandardForm, m: int, low: float, high: float, spare: int
) -> tuple[Costs, float]:
    """Return costs with a row for each seller that affects an optimum, and a limit.

    Sellers above the limit sell nothing. ``each`` maps a function over the parts of the m virtual
    costs, which are between ``low`` and ``high`` or infinite; costs in the ``form`` are ignored.
    With ``spare = 1``, one seller may leave the market or change its cost within this range.
    """
    bottom, top = _keys(np.array([low * (1 - _SLACK), min(high, 1e308) * (1 + _SLACK)])).tolist()
    shift = min(max((top - bottom).bit_length() - _CELLS, 0), _SHIFT)
    cells, number = _added(each(partial(_count, bottom, shift, (top - bottom >> shift) + 1)))
    check_feasible(form, int(number.sum()), m)
    # Neighbouring empty cells are merged.
    keys = np.unique(np.concatenate([cells, cells + 1]))
    numbers = np.zeros(keys.size - 1, np.int64)
    numbers[np.searchsorted(keys, cells)] = number
    edges = ((keys << shift) + bottom).view(np.float64)
    filling = int(np.ceil(1.0 / form.max_weight * (1 - 1e-15)))
    full = int(np.searchsorted(np.cumsum(numbers), filling + spare))
    limit = highest_cost_bought(form, float(edges[min(full + 1, numbers.size)]))
    last = np.flatnonzero(numbers * (edges[:-1] <= limit))[-1]
    edges, numbers = edges[: last + 2], numbers[: last + 1]
    if spare and low < edges[0]:
        edges, numbers = np.append(low, edges), np.append(0, numbers)
    stationary, matters = _relevant_cells(edges, numbers, form, filling, spare, min(high, limit))
    endless, matters[-1] = stationary[-1], False
    runs = np.flatnonzero(np.diff(matters, prepend=False))
    wanted = np.logical_or.reduceat(stationary & matters, runs)[::2]
    borders = np.concatenate((edges[:1], edges[runs], edges[-1:] if endless else edges[runs[-1:]]))
    # Deviations from a mean cost of each group avoid cancellation.
    place = np.searchsorted(borders, edges[:-1], side="right")
    totals = np.bincount(place, numbers * edges[:-1], borders.size)
    origins = (totals / np.maximum(np.bincount(place, numbers, borders.size), 1))[1::2]
    results = each(partial(_fetch, borders, origins))
    costs = _costs(results, borders, origins, wanted, endless)
    return costs, limit if endless else float(costs.psi[-1])


def _keys(block: Floats) -> Ints:
    return (block + 0.0).view(np.int64)  # the sum converts -0.0 to 0.0


def _count(bottom: int, shift: int, n_cells: int, blocks: Iterable[Floats]) -> tuple[Ints, Ints]:
    """Return the numbers of the nonempty cells, and the number of sellers in each cell."""
    counts = np.zeros(n_cells, np.int64)
    for block in blocks:
        keys = _keys(block[block < np.inf])
        if keys.size:
            keys -= bottom
            keys >>= shift
            first = int(keys.min())
            keys -= first
            here = np.bincount(keys)
            counts[first : first + here.size] += here
    cells = np.flatnonzero(counts)
    return cells, counts[cells]


def _added(counts: Sequence[Any]) -> tuple[Any, Ints]:
    """Return the sorted distinct values in all parts, and their total counts."""
    values, place = np.unique(np.concatenate([part[0] for part in counts]), return_inverse=True)
    number = np.zeros(values.size, np.int64)
    np.add.at(number, place, np.concatenate([part[1] for part in counts]))
    return values, number


def _relevant_cells(
    edges: Floats, number: Ints, form: StandardForm, filling: int, spare: int, highest: float
) -> tuple[Mask, Mask]:
    """Return masks of the cells with a stationary point and of all relevant cells.

    A relevant cell contains a stationary point, the last seller at the cap there, or the most
    expensive of the cheapest sellers who can have the whole weight. The additional last element of
    both masks is true if the path can be stationary where all sellers sell. The rates at the ends
    of the range of eta also count as stationary.

    The sellers of a cell are at its upper edge in the market ``few`` and at its lower edge in
    ``many``. With ``spare = 1``, one market has one seller less, and the other has one seller more,
    with a cost of at most ``highest``. At equal tau, the cost above which no seller sells, more and
    cheaper sellers increase 1/r^2, 1/beta and ``(tau - psi'a)/beta``.
    """
    fewer, more = np.append(0, number), np.append(number, 0)
    fewer[np.flatnonzero(fewer)[0]] -= spare
    more[0] += spare
    few, many = (Markets(Costs(edges, some)).under(1.0 / form.max_weight) for some in (fewer, more))
    costs, filled = few.costs, many.piece(many.floor, many.first).cost[0]
    nodes = np.arange(edges.size + 1)
    low, high = (markets.nodes(0 * nodes, nodes) for markets in (few, many))
    beyond = low.cost[-1] + spare * highest / costs.scale / max(int(costs.sums[0][-1]), 1)
    tau = costs.offset + costs.x[np.minimum(nodes, edges.size - 1)]
    endless = np.isinf(low.beta)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = low.beta / high.beta
        least = tau - (tau - high.cost) * ratio
        most = np.fmin(tau - (tau - low.cost) / ratio, tau)
        # Bounds on the difference in cost between a seller at the cap and tau.
        narrow, wide = (costs.scale * form.max_weight / path.beta for path in (low, high))
    least = np.fmax(np.where(endless, filled, least), filled)[:-1]
    most = np.append(np.where(endless, tau, most)[1:-1], beyond)
    rho, unit = costs.units(form)
    rates = [eta * unit for eta in form.eta_range if 0 < eta < np.inf]
    stationary = may_matter((high.rate2[1:], low.rate2[:-1]), (least, most), rho, rates)
    if not stationary.any():  # because of rounding errors
        stationary[:] = True
    matters = stationary.copy()
    if form.max_weight < 1:
        upper, last = np.append(edges[1:], edges[-1]), number.size - 1
        lowest = np.append(upper[:-1] - wide[1:-1], -np.inf)
        top = np.where(endless[:-1], upper, edges - narrow[:-1])
        where = np.flatnonzero(stationary & (top >= edges[0]))
        first = np.clip(np.searchsorted(edges, lowest[where]) - 1, 0, last)
        until = np.clip(np.searchsorted(edges, top[where], side="right") - 1, first, last)
        for start, end in zip(first, until, strict=True):
            matters[start : end + 1] = True
    ranks, total = filling + np.arange(-spare, spare + 1), np.cumsum(number)
    matters[np.searchsorted(total, np.clip(ranks, 1, total[-1]))] = True
    return stationary, matters


def _fetch(
    borders: Floats, origins: Floats, blocks: Iterable[Floats]
) -> tuple[Floats, Ints, Floats]:
    """Return the distinct costs in every second interval, their counts, and sums over the others.

    The sums are the number of sellers, deviations from the origin and squared deviations.
    """
    fetched, sums = [np.empty(0)], np.zeros((3, borders.size // 2))
    for block in blocks:
        for place, (low, high) in enumerate(pairwise(borders)):
            some = block[(block >= low) & (block < high)] if low < high else block[:0]
            if place % 2:
                fetched.append(some)
            elif some.size:
                some -= origins[place // 2]
                sums[:, place // 2] += some.size, some.sum(), some @ some
    return *np.unique(np.concatenate(fetched), return_counts=True), sums


def _costs(
    results: Sequence[Any], borders: Floats, origins: Floats, wanted: Mask, endless: bool
) -> Costs:
    """Return the rows of the fetched sellers and of the groups between them.

    Each fetched interval starts with an empty row, as does the interval beyond the last one.
    """
    size, first, second = sum(part[2] for part in results)
    first, second = first / np.maximum(size, 1), second - first * first / np.maximum(size, 1)
    costs, numbers = _added(results)
    edges, empty = borders[:-1:2], borders[1::2] if endless else borders[1:-1:2]
    psi, nothing = np.concatenate((edges, empty, costs)), np.zeros(empty.size, np.int64)
    order = np.argsort(psi, kind="stable")
    stretches = np.searchsorted(psi[order], borders[1:-1].reshape(-1, 2)[wanted])
    if endless:
        stretches = np.vstack((stretches, [psi.size - 1, psi.size]))
    return Costs(
        psi[order],
        np.concatenate((size.astype(np.int64), nothing, numbers))[order],
        np.concatenate((np.where(size > 0, origins + first, edges), empty, costs))[order],
        np.concatenate((np.maximum(second, 0.0), np.zeros(empty.size + costs.size)))[order],
        stretches,
    )
