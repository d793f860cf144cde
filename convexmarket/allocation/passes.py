"""The sellers that affect an optimum, computed in a few passes over all sellers without sorting.

A first pass counts the sellers in cells. The lower and upper edges of the cells are the costs of
two markets that enclose the given market and bound the path of its optimal weights
(:func:`convexmarket.allocation.path.sandwich`). A cell where the path is neither stationary nor at
the cap is represented by its sums. The other cells are refined until few sellers remain, which are
fetched individually.

Nonnegative doubles have the same order as their bits, read as integers. So cells are shifts of
these integers, which are exact at any scale. Every pass maps a function over parts of the costs, in
any order, and adds up small results. The parts may be in one array or on many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.path import Costs, Path, rates_of, sandwich
from convexmarket.allocation.simplex import check_feasible
from convexmarket.market import StandardForm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Costs that fit in a processor's cache.
_BLOCK = 1 << 15
#: Bits of a double below the first cells: 128 cells from each power of two to the next.
_FIRST_SHIFT = 45
#: Logarithm to base 2 of the number of cells of a refined stretch.
_SPLIT = 12
#: Number of counts; the last cells have a width of at most 2^-31 of their cost.
_COUNTS = 3
_INFINITY = int(np.array(np.inf).view(np.int64))
#: The function of a pass, from a part of the costs to a small result.
Pass = Callable[[Iterable[Floats]], Any]
#: A map of such a function over all parts of the costs; one pass.
Each = Callable[[Pass], Sequence[Any]]


def blocks_of(psi: Floats) -> Iterator[Floats]:
    """Yield blocks that fit in a processor's cache."""
    return (psi[start : start + _BLOCK] for start in range(0, psi.size, _BLOCK))


def highest_cost_bought(form: StandardForm, g: float) -> float:
    """Return a virtual cost above which no seller sells at the optimum.

    The cheapest sellers, up to cost g, can have all weight; one of them is below the cap. If a
    seller with cost psi sells at the optimum, moving its weight to that seller does not help, so
    t*(psi - g) <= mu. A stationary point has t^2*psi'a = sigma*gamma. Its objective exceeds
    2*sigma*gamma/t, and is at most that of the cheapest sellers. The end of a range of eta bounds t
    directly.
    """
    if g == np.inf:
        return g
    c = form.sigma * form.gamma
    one_over_t = [1.0 / (form.gamma * eta) for eta in form.eta_range if 0 < eta < np.inf]
    if form.sigma > 0 and form.eta_low == 0:
        root = float(np.sqrt(c) / np.sqrt(g)) if g > 0 else np.inf
        t = min(root, form.gamma * form.eta_high)
        achieved = form.mu + (c / t + t * g if t < np.inf else 0.0)
        one_over_t.append(achieved / (2.0 * c))
    return g + form.mu * max(one_over_t)


def screen_sellers(
    each: Each, form: StandardForm, m: int, most: int, instead: tuple[float, float] | None = None
) -> tuple[Costs, float]:
    """Return costs with a row for each seller that affects an optimum, and a limit.

    Sellers above the limit sell nothing. ``each`` maps a function over the parts of the m virtual
    costs, each an iterable of blocks; costs in the ``form`` are ignored. Up to ``most`` sellers are
    fetched, unless more affect the optimum. One seller may leave, or have a cost in the range
    ``instead``.
    """
    everything, nothing = np.array([[0, _INFINITY, _FIRST_SHIFT]]), np.zeros(0, np.int64)
    edges, number = _counted(each, everything, nothing, nothing, nothing)
    check_feasible(form, int(number.sum()), m)
    filling = int(np.ceil(1.0 / form.max_weight * (1 - 1e-15)))
    full = int(np.searchsorted(np.cumsum(number), filling + (instead is not None)))
    limit = highest_cost_bought(form, float(_value(edges[min(full + 1, number.size)])))
    sold, highest = np.flatnonzero(number * (_value(edges[:-1]) <= limit)), None
    edges, number = edges[sold[0] : sold[-1] + 2], number[sold[0] : sold[-1] + 1]
    if instead is not None:
        floor, highest = _keys(np.array(instead[:1])), min(instead[1], limit)
        if floor[0] < edges[0]:
            edges, number = np.append(floor, edges), np.append(0, number)
    for counts in range(1, _COUNTS + 1):
        stationary, matters, endless = classify_cells(edges, number, form, filling, highest)
        runs = np.flatnonzero(np.diff(matters, prepend=False, append=False))
        low, high = edges[runs].reshape(-1, 2).T
        shift = np.maximum(np.frexp(high - low - 1.0)[1] - _SPLIT, 0)
        widths = np.append(np.diff(edges) * (number > 0), 0)
        finer = np.maximum.reduceat(widths, runs)[::2] >> shift > 1
        if number[matters].sum() <= most or not finer.any() or counts == _COUNTS:
            break
        rest = edges[:-1][~matters], edges[1:][~matters], number[~matters]
        edges, number = _counted(each, np.column_stack((low, high, shift)), *rest)
    wanted = np.logical_or.reduceat(np.append(stationary, False), runs)[::2]
    borders = np.concatenate((edges[:1], edges[runs], edges[-1:] if endless else high[-1:]))
    costs = _fetched(each, borders, wanted, endless)
    return costs, limit if endless else float(costs.psi[-1])


def _value(key: Any) -> Any:
    return np.asarray(key, dtype=np.int64).view(np.float64)


def _keys(block: Floats) -> Ints:
    return (block + 0.0).view(np.int64)  # the sum turns -0.0 into 0.0


def _count(windows: Ints, blocks: Iterable[Floats]) -> tuple[Ints, Ints]:
    """Return the lower edges of the cells in windows that contain sellers, and their numbers."""
    counts = [np.zeros(((high - 1 - low) >> shift) + 1, np.int64) for low, high, shift in windows]
    for block in blocks:
        keys = _keys(block)
        for (low, high, shift), count in zip(windows, counts, strict=True):
            inside = keys[(keys >= low) & (keys < high)]
            if inside.size:
                inside -= low
                inside >>= shift
                first = int(inside.min())
                inside -= first
                here = np.bincount(inside)
                count[first : first + here.size] += here
    pairs = zip(windows, counts, strict=True)
    begin = [low + (np.flatnonzero(count) << shift) for (low, _, shift), count in pairs]
    return np.concatenate(begin), np.concatenate([count[count > 0] for count in counts])


def _counted(
    each: Each, windows: Ints, rest_low: Ints, rest_high: Ints, rest_number: Ints
) -> tuple[Ints, Ints]:
    """Count the sellers in the cells of windows; neighbouring empty cells become one.

    Returns the edges of these and all other cells in ascending order, and their numbers of sellers.
    """
    low, high, shift = windows.T
    begin, number = _added(each(partial(_count, windows)))
    window = np.searchsorted(low, begin, side="right") - 1
    end = np.minimum(begin + (1 << shift[window]), high[window])
    edges = np.unique(np.concatenate((rest_low, rest_high, low, high, begin, end)))
    numbers = np.zeros(edges.size - 1, np.int64)
    numbers[np.searchsorted(edges, begin)] = number
    numbers[np.searchsorted(edges, rest_low)] = rest_number
    return edges, numbers


def _added(counts: Sequence[Any]) -> tuple[Any, Ints]:
    """Return the distinct values in order, with their total numbers."""
    values, place = np.unique(np.concatenate([part[0] for part in counts]), return_inverse=True)
    number = np.zeros(values.size, np.int64)
    np.add.at(number, place, np.concatenate([part[1] for part in counts]))
    return values, number


def classify_cells(
    edges: Ints, number: Ints, form: StandardForm, filling: int, highest: float | None
) -> tuple[Mask, Mask, bool]:
    """Return masks of cells with a stationary point and of relevant cells, and the end's flag.

    A relevant cell contains a stationary point, the last seller at the cap there, or the most
    expensive of the cheapest sellers who can have the whole weight. Beyond the end, all sellers
    sell. If one seller may leave or change its cost, one enclosing market has one seller less, and
    the other one more.
    """
    psi, last, spare = _value(edges), number.size - 1, int(highest is not None)
    fewer, more = np.append(0, number), np.append(number, 0)
    fewer[np.flatnonzero(fewer)[0]] -= spare
    more[0] += spare
    few, many = (Path(Costs(psi, some), 1.0 / form.max_weight) for some in (fewer, more))
    rho, _, rates = rates_of(form, few.costs)
    stationary, *betas = sandwich(few, many, rho, rates, (highest or 0.0) / few.costs.scale)
    if not stationary.any():  # rounding errors, as scales differ too much
        stationary[:] = True
    matters = stationary[:-1].copy()
    if form.max_weight < 1:
        # Bounds on the highest cost at the cap.
        unit = few.costs.scale * form.max_weight
        with np.errstate(divide="ignore"):
            least, widest = (unit / beta for beta in betas)
        low = np.append(psi[1:] - widest[1:-1], -np.inf)
        high = np.where(np.isinf(betas[0][:-1]), np.append(psi[1:], psi[-1]), psi - least[:-1])
        where = np.flatnonzero(stationary & (high >= psi[0]))
        first = np.clip(np.searchsorted(psi, low[where]) - 1, 0, last)
        until = np.clip(np.searchsorted(psi, high[where], side="right") - 1, first, last)
        for start, end in zip(first, until, strict=True):
            matters[start : end + 1] = True
    ranks, total = filling + np.arange(-spare, spare + 1), np.cumsum(number)
    matters[np.searchsorted(total, np.clip(ranks, 1, total[-1]))] = True
    return stationary[:-1], matters, bool(stationary[-1])


def _fetch(borders: Ints, blocks: Iterable[Floats]) -> tuple[Floats, Ints, Floats]:
    """Return the costs in every second interval with their numbers, and the sums of the others."""
    fetched, sums = [np.empty(0)], np.zeros((borders.size // 2, 3))
    for block in blocks:
        keys = _keys(block)
        for place, (low, high) in enumerate(pairwise(borders.tolist())):
            some = block[(keys >= low) & (keys < high)] if low < high else block[:0]
            if place % 2:
                fetched.append(some)
            elif some.size:
                mean = some.mean()
                some -= mean
                sums[place // 2] = _merged(sums[place // 2], (some.size, mean, some @ some))
    return *np.unique(np.concatenate(fetched), return_counts=True), sums


def _merged(first: Any, second: Any) -> Any:
    """Merge the sizes, means, and sums of squares about the means, of two groups."""
    n = first[0] + second[0]
    apart, share = second[1] - first[1], second[0] / np.maximum(n, 1)
    return n, first[1] + apart * share, first[2] + second[2] + apart * apart * first[0] * share


def _fetched(each: Each, borders: Ints, wanted: Mask, endless: bool) -> Costs:
    """Fetch the sellers in every second interval; return rows for them and for the groups between.

    An empty row begins every such interval; another one ends the costs if the optimum may be
    beyond.
    """
    results = each(partial(_fetch, borders))
    size, mean, squares = reduce(_merged, (sums.T for _, _, sums in results))
    costs, numbers = _added(results)
    edges, empty = _value(borders[:-1:2].copy()), _value(borders[1::2].copy())
    empty = empty if endless else empty[:-1]
    psi, nothing = np.concatenate((edges, empty, costs)), np.zeros(empty.size, np.int64)
    order = np.argsort(psi, kind="stable")
    psi = psi[order]
    stretches = np.searchsorted(psi, _value(borders[1:-1]).reshape(-1, 2)[wanted])
    if endless:
        stretches = np.vstack((stretches, [psi.size - 1, psi.size]))
    return Costs(
        psi,
        np.concatenate((size.astype(np.int64), nothing, numbers))[order],
        np.concatenate((np.where(size > 0, mean, edges), empty, costs))[order],
        np.concatenate((squares, np.zeros(empty.size + costs.size)))[order],
        stretches,
    )
