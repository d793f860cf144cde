"""The sellers that affect an optimum, computed in a few passes over all, without sorting them.

The path of optimal weights depends on the number of sellers below thresholds, and on their sums of
costs and squares. A first pass counts the sellers in cells. The lower and upper edges of the cells
are the costs of two markets that enclose the given one. They bound ``r^2`` and ``psi'a`` on the
path at every edge (:func:`convexmarket.allocation.path.sandwich`). A cell where the path is neither
stationary nor at the cap is represented by its sums alone. The other cells are refined until few
sellers remain, which are fetched individually.

Nonnegative doubles have the same order as their bits, read as integers. So cells are shifts of
these integers, which are exact at any scale.

Every pass maps a function over parts of the costs, in any order, and adds up small results. The
parts may be in one array or on many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.path import Path, rates_of, sandwich
from convexmarket.allocation.sorted_costs import Costs, StructOfArrays
from convexmarket.market import StandardForm

__all__ = ["Each", "Pass", "blocks_of", "screen_sellers"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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


@dataclass(frozen=True)
class _Cells(StructOfArrays):
    """Cells in ascending order: edges as integers, and numbers of sellers."""

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
    """Return costs with a row for each seller that affects an optimum, and a limit.

    Nothing is bought above the limit.

    Parameters
    ----------
    each : callable
        Maps a function over the parts of the virtual costs >= 0, each an iterable of blocks;
        nothing is bought at infinite costs.
    form : StandardForm
        The market; its virtual costs are ignored.
    ceiling : callable
        Maps a cost up to which sellers can carry all weight to an upper limit for purchases.
    most : int
        Number of sellers to fetch, unless more affect the optimum.
    check : callable, optional
        Called with the number of sellers at finite costs after the first pass.
    instead : (float, float), optional
        Range of further costs of one seller, which may also leave.
    """
    cells = _counted(each, [(0, _INFINITY, _FIRST_SHIFT)], trimmed=True)
    if check is not None:
        check(int(cells.number.sum()))
    filling = int(np.ceil(1.0 / form.max_weight * (1 - 1e-15)))
    spare = int(instead is not None)
    full = int(np.searchsorted(np.cumsum(cells.number), filling + spare))
    limit = ceiling(float(_value(cells.high[min(full, cells.high.size - 1)])))
    cells = cells[_value(cells.low) <= limit]
    highest = None
    if instead is not None:
        floor, highest = _keys(np.array(instead[:1])), min(instead[1], limit)
        if floor[0] < cells.low[0]:
            cells = _Cells.joined([_Cells(floor, cells.low[:1], np.zeros(1, np.int64)), cells])
    for counts in range(1, _COUNTS + 1):
        stationary, matters, endless = classify_cells(cells, form, filling, highest)
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
    """Return the begin and end of each run of True."""
    ends = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return [(int(a), int(b)) for a, b in ends.reshape(-1, 2)]


def _keys(block: Floats) -> Ints:
    return (block + 0.0).view(np.int64)  # the sum turns -0.0 into 0.0


def _count(windows: Sequence[tuple[int, int, int]], blocks: Iterable[Floats]) -> list[Any]:
    """Return the cells of each window that contain sellers, with their numbers."""
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
    """Count the sellers in the cells of windows; neighbouring empty cells become one.

    ``trimmed`` omits the empty cells at both ends.
    """
    counts = each(partial(_count, windows))
    lows, highs, numbers = [], [], []
    for place, (low, high, shift) in enumerate(windows):
        at, number = _added([part[place] for part in counts])
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


def _added(counts: Sequence[tuple[Any, Ints]]) -> tuple[Any, Ints]:
    """Return the distinct values in order, with their total numbers."""
    values, place = np.unique(np.concatenate([part[0] for part in counts]), return_inverse=True)
    number = np.zeros(values.size, np.int64)
    np.add.at(number, place, np.concatenate([part[1] for part in counts]))
    return values, number


def classify_cells(
    cells: _Cells, form: StandardForm, filling: int, highest: float | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], bool]:
    """Return masks of cells with a stationary point and of relevant cells, and the end's flag.

    A relevant cell contains a stationary point, the last seller at the cap there, or the most
    expensive of the cheapest sellers who can carry the whole weight. Beyond the end, all sellers
    sell. The market is enclosed by two markets, with all costs at upper or at lower edges. If one
    seller may leave or change its cost, the first has one seller less, the second one more.
    """
    edges = np.append(_value(cells.low), _value(cells.high[-1]))
    last, spare = cells.number.size - 1, int(highest is not None)
    fewer, more = np.append(0, cells.number), np.append(cells.number, 0)
    fewer[np.flatnonzero(fewer)[0]] -= spare
    more[0] += spare
    few, many = (Path(Costs(edges, some), 1.0 / form.max_weight) for some in (fewer, more))
    nodes = np.arange(edges.size + 1)
    rho, _, rates = rates_of(form, few.costs)
    scaled_highest = (highest or 0.0) / few.costs.scale
    stationary, *betas = sandwich(few, many, nodes, rho, rates, scaled_highest)
    if not stationary.any():  # rounding errors, as scales differ too much
        stationary[:] = True
    touched = np.zeros(last + 2, np.int64)
    if form.max_weight < 1:
        # Bounds on the highest cost at the cap.
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
    """Return the distinct costs inside the spans with their numbers, and the sums between spans."""
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


def _merged(first: Any, second: Any) -> tuple[float, float, float]:
    """Return the size, the mean, and the sum of squares about the mean, of two groups together."""
    n = first[0] + second[0]
    apart = second[1] - first[1]
    share = second[0] / n if n else 0.0
    return n, first[1] + apart * share, first[2] + second[2] + apart * apart * first[0] * share


def _fetched(
    each: Each,
    spans: Sequence[tuple[int, int]],
    wanted: Sequence[bool],
    ends: tuple[int, int],
    endless: bool,
) -> Costs:
    """Fetch the sellers in spans; return rows for them and for the groups between spans.

    An empty row begins every span; another one ends the costs if the optimum may be beyond.
    """
    first, end = ends
    results = each(partial(_fetch, spans, end if endless else spans[-1][1]))
    sums = results[0][2]
    for _, _, more in results[1:]:
        sums = np.array([_merged(*pair) for pair in zip(sums, more, strict=True)])
    costs, numbers = _added([part[:2] for part in results])
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
