"""The sellers who matter to an optimum, found in a few passes over all, without sorting them.

The path of optimal weights needs of the sellers only how many there are below a threshold, their
costs' sum and sum of squares. A first pass counts the sellers in cells. The cells' lower and upper
edges make two markets that all sellers lie between, so that ``r^2`` and ``psi'a`` on the path are
bounded at every edge (:func:`convexmarket.allocation.path.sandwich`), and a cell
where the path can neither be stationary nor cap anybody is known by its sums alone. The others are
counted again in finer cells until few sellers are left, who are fetched one by one.

A nonnegative double is ordered as its bits are, as an integer. So cells are shifts of these
integers, exact at any scale: no cost is ever on the wrong side of an edge.

Every pass maps a function over parts of the costs, in any order, and adds up small results: parts
may lie in one array or on many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.bounds import rates_of
from convexmarket.allocation.costs import Costs, StructOfArrays
from convexmarket.allocation.path import Path, sandwich
from convexmarket.market import StandardForm

__all__ = ["Each", "Pass", "blocks_of", "screen_sellers"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 1 << 15
#: Bits of a double that the first cells leave open: 128 cells from each power of two to the next.
_FIRST_SHIFT = 45
#: Cells into which a stretch is split, as a power of two.
_SPLIT = 12
#: Times that sellers are counted, in cells of at most 2^-31 of their cost in the end; a seller who
#: still matters is fetched.
_COUNTS = 3
_INFINITY = int(np.array(np.inf).view(np.int64))
#: What a pass does with a part of the costs.
Pass = Callable[[Iterable[Floats]], Any]
#: Maps such a function over all parts of the costs; one pass.
Each = Callable[[Pass], Sequence[Any]]


def blocks_of(psi: Floats) -> Iterator[Floats]:
    """Yield pieces that fit in a processor's cache."""
    return (psi[start : start + _BLOCK] for start in range(0, psi.size, _BLOCK))


@dataclass(frozen=True)
class _Cells(StructOfArrays):
    """Cells in ascending order, each with its edges, as integers, and how many sellers it holds."""

    low: Ints
    high: Ints
    number: Ints


def screen_sellers(
    each: Each,
    form: StandardForm,
    ceiling: Callable[[float], float],
    most: int,
    check: Callable[[int], None] | None = None,
    instead: tuple[float, float] | None = None,
) -> tuple[Costs, float]:
    """Return the costs with all that matters to an optimum known one by one, and a limit.

    Nobody is bought from above the limit.

    Parameters
    ----------
    each : callable
        Maps a function over the parts of the virtual costs >= 0, each an iterable of blocks;
        nothing is bought at infinite costs.
    form : StandardForm
        Whose virtual costs are not looked at.
    ceiling : callable
        Given a cost at which enough sellers can be had to fill the cap, returns one above which
        nobody is bought from.
    most : int
        Number of sellers to fetch, unless more matter.
    check : callable, optional
        Called with the number of sellers at finite costs, before they are looked at further.
    instead : (float, float), optional
        Let one seller leave, or cost anything from the one to the other instead.
    """
    cells = _counted(each, [(0, _INFINITY, _FIRST_SHIFT)], trimmed=True)
    if check is not None:
        check(int(cells.number.sum()))
    filling = int(np.ceil(1.0 / form.max_weight * (1 - 1e-15)))
    spare = int(instead is not None)
    full = int(np.searchsorted(np.cumsum(cells.number), filling + spare))
    limit = ceiling(float(_value(cells.high[min(full, cells.high.size - 1)])))
    cells = cells[_value(cells.low) <= limit]
    dearest = None
    if instead is not None:
        floor, dearest = _keys(np.array(instead[:1])), min(instead[1], limit)
        if floor[0] < cells.low[0]:
            cells = _Cells.joined([_Cells(floor, cells.low[:1], np.zeros(1, np.int64)), cells])
    for counts in range(1, _COUNTS + 1):
        stationary, matters, endless = _judged(cells, form, filling, dearest)
        runs = _runs(matters)
        spans = [(int(cells.low[a]), int(cells.high[b - 1])) for a, b in runs]
        shifts = [max((high - low - 1).bit_length() - _SPLIT, 0) for low, high in spans]
        widest = [
            int((cells.high - cells.low)[a:b][cells.number[a:b] > 0].max(initial=0))
            for a, b in runs
        ]
        split = any(width >> shift > 1 for width, shift in zip(widest, shifts, strict=True))
        if cells.number[matters].sum() <= most or not split or counts == _COUNTS:
            break
        windows = [(*span, shift) for span, shift in zip(spans, shifts, strict=True)]
        cells = _Cells.joined([cells[~matters], _counted(each, windows)])
        cells = cells[np.argsort(cells.low)]
    wanted = [bool(stationary[a:b].any()) for a, b in runs]
    ends = int(cells.low[0]), int(cells.high[-1])
    costs = _fetched(each, spans, wanted, ends, endless)
    return costs, limit if endless else float(costs.psi[-1])


def _value(key: Any) -> Any:
    return np.asarray(key, dtype=np.int64).view(np.float64)


def _runs(chosen: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where stretches of True begin and end."""
    ends = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return [(int(a), int(b)) for a, b in ends.reshape(-1, 2)]


def _keys(block: Floats) -> Ints:
    return (block + 0.0).view(np.int64)  # the negative zero is no negative integer


def _count(windows: Sequence[tuple[int, int, int]], blocks: Iterable[Floats]) -> list[Any]:
    """Return for each window the cells that hold sellers, and how many."""
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
    return [(np.flatnonzero(count), count[count > 0]) for count in counts]


def _counted(each: Each, windows: Sequence[tuple[int, int, int]], trimmed: bool = False) -> _Cells:
    """Count the sellers in the cells of windows; the space between those with sellers is one.

    ``trimmed`` leaves out what lies before the first and after the last seller.
    """
    found = each(partial(_count, windows))
    lows, highs, numbers = [], [], []
    for place, (low, high, shift) in enumerate(windows):
        at, number = _added([part[place] for part in found])
        begin = low + (at << shift)
        end = np.minimum(begin + (1 << shift), high)
        edges = np.concatenate(([low], np.column_stack((begin, end)).ravel(), [high]))
        filled = np.zeros(edges.size - 1, np.int64)
        filled[1::2] = number
        real = edges[1:] > edges[:-1]
        if trimmed:
            real[[0, -1]] = False
        lows.append(edges[:-1][real])
        highs.append(edges[1:][real])
        numbers.append(filled[real])
    return _Cells(*(np.concatenate(part) for part in (lows, highs, numbers)))


def _added(found: Sequence[tuple[Any, Ints]]) -> tuple[Any, Ints]:
    """Return distinct values in order, and how many there are in all."""
    values, place = np.unique(np.concatenate([one[0] for one in found]), return_inverse=True)
    number = np.zeros(values.size, np.int64)
    np.add.at(number, place, np.concatenate([one[1] for one in found]))
    return values, number


def _judged(
    cells: _Cells, form: StandardForm, filling: int, dearest: float | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], bool]:
    """Return which cells may hold a stationary point, which matter to it, and whether the end does.

    Those that matter hold a stationary point, or the last seller at the cap there, or the dearest
    of the cheapest sellers who can carry the whole weight. Beyond the end everybody is bought from.
    With all at the upper edges, and all at the lower ones, are two markets between which it lies;
    where one seller may leave or cost something else, one has a seller less, the other one more.
    """
    edges = np.append(_value(cells.low), _value(cells.high[-1]))
    last, spare = cells.number.size - 1, int(dearest is not None)
    fewer, more = np.append(0, cells.number), np.append(cells.number, 0)
    fewer[np.flatnonzero(fewer)[0]] -= spare
    more[0] += spare
    few, many = (Path(Costs(edges, some), 1.0 / form.max_weight) for some in (fewer, more))
    nodes = np.arange(edges.size + 1)
    rho, _, rates = rates_of(form, few.costs)
    dear = (dearest or 0.0) / few.costs.scale
    stationary, *betas = sandwich(few, many, nodes, rho, rates, dear)
    if not stationary.any():  # the scales are too far apart to tell
        stationary[:] = True
    touched = np.zeros(last + 2, np.int64)
    if form.max_weight < 1:
        # Costs between which the dearest seller at the cap is.
        unit = few.costs.scale * form.max_weight
        with np.errstate(divide="ignore"):
            least, widest = (unit / beta for beta in betas)
        low = np.append(edges[1:] - widest[1:-1], -np.inf)
        ends = np.append(edges[1:], edges[-1])
        high = np.where(np.isinf(betas[0][:-1]), ends, edges - least[:-1])
        where = np.flatnonzero(stationary & (high >= edges[0]))
        first = np.clip(np.searchsorted(edges, low[where]) - 1, 0, last)
        until = np.clip(np.searchsorted(edges, high[where], side="right") - 1, first, last)
        np.add.at(touched, first, 1)
        np.add.at(touched, until + 1, -1)
    ranks = filling + np.arange(-spare, spare + 1)
    number = np.cumsum(cells.number)
    matters = stationary[:-1] | (np.cumsum(touched[:-1]) > 0)
    matters[np.searchsorted(number, np.clip(ranks, 1, number[-1]))] = True
    return stationary[:-1], matters, bool(stationary[-1])


def _fetch(spans: Sequence[tuple[int, int]], end: int, blocks: Iterable[Floats]) -> Any:
    """Return who is in the spans, each cost with its number, and the sums of those in between."""
    fetched = [np.empty(0)]
    borders = [0, *(key for span in spans for key in span), end]
    gaps = list(zip(borders[::2], borders[1::2], strict=True))
    sums = np.zeros((len(gaps), 3))
    for block in blocks:
        keys = _keys(block)
        fetched += [block[(keys >= low) & (keys < high)] for low, high in spans]
        for place, (low, high) in enumerate(gaps):
            if low < high:
                some = block[(keys >= low) & (keys < high)]
                if some.size:
                    mean = some.mean()
                    some -= mean
                    some *= some
                    sums[place] = _merged(sums[place], (some.size, mean, some.sum()))
    costs, numbers = np.unique(np.concatenate(fetched), return_counts=True)
    return costs, numbers, sums


def _merged(one: Any, other: Any) -> tuple[float, float, float]:
    """Return the number, mean and sum of squares about it of two groups together."""
    n = one[0] + other[0]
    apart = other[1] - one[1]
    share = other[0] / n if n else 0.0
    return n, one[1] + apart * share, one[2] + other[2] + apart * apart * one[0] * share


def _fetched(
    each: Each,
    spans: Sequence[tuple[int, int]],
    wanted: Sequence[bool],
    ends: tuple[int, int],
    endless: bool,
) -> Costs:
    """Fetch the sellers in spans, and put them in rows with groups of those in between.

    An empty row begins every span, and one ends the costs where the path matters beyond.
    """
    first, end = ends
    found = each(partial(_fetch, spans, end if endless else spans[-1][1]))
    sums = found[0][2]
    for _, _, more in found[1:]:
        sums = np.array([_merged(*pair) for pair in zip(sums, more, strict=True)])
    costs, numbers = _added([part[:2] for part in found])
    lows, highs = _value(np.transpose(spans))
    edges, empty = np.append(_value(first), highs), np.append(lows, _value([end] * endless))
    psi = np.concatenate((edges, empty, costs))
    order = np.argsort(psi, kind="stable")
    psi = psi[order]
    columns = (
        (sums[:, 0].astype(np.int64), np.zeros(empty.size, np.int64), numbers),
        (np.where(sums[:, 0] > 0, sums[:, 1], edges), empty, costs),
        (sums[:, 2], np.zeros(empty.size), np.zeros(costs.size)),
    )
    chosen = np.flatnonzero(wanted)
    stretches = np.searchsorted(psi, np.column_stack((lows[chosen], highs[chosen])))
    if endless:
        stretches = np.vstack((stretches, [psi.size - 1, psi.size]))
    numbers, means, squares = (np.concatenate(part)[order] for part in columns)
    return Costs(psi, numbers, means, squares, stretches)
