r"""What truthful sellers earn beyond their cost, in any market, by solving it at other reports.

A seller who reports c earns the integral of u(eps(z)) over all dearer reports z (A, Eq. 8, with
the convex privacy cost u of B). Let F(y) be the buyer's optimal objective when the seller's virtual
cost is y. As a minimum of functions that are affine in y, F is concave, and its slope is
gamma*u(eps(y)), gamma being the weight of the payments. Over an interval on which psi is affine
with slope k, the integral is therefore a difference of two optimal objectives, over gamma*k; jumps
of the optimum are included, and the certificates of the two solves bound its error.

Elsewhere psi is replaced, between reports that are solved, by the chord through its values there.
Where the chord takes the values of psi at reports that are off by up to b, the integral is off by
at most b times the drop of u(eps) over the cell: integrate by parts, u(eps) never rising. The cell
that contributes most is split until this is small enough. Nothing is assumed of psi but that it
never falls; ironed intervals and jumps are no matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.integrate import quad

from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.result import Allocation, CertifiedPurchase
from convexmarket.errors import InfeasibleMarketError, NotSupportedError
from convexmarket.market import Market
from convexmarket.priors import Prior

__all__ = [
    "CurvePoint",
    "Estimate",
    "SolvedCurve",
    "chord_rent",
    "doubt_of_sold",
    "end_of_sales",
    "for_each_seller",
    "quadrature_rent",
    "sales_end_between",
]

Floats = NDArray[np.float64]
T = TypeVar("T")

#: Reports at which a virtual cost is looked at, evenly spaced and ever closer to the own report.
_TABLE = 16385
#: Kinks of a virtual cost that are cut at from the start.
_FEW = 8
#: A seller who sells less than this of what it sells at the truth counts as out.
_NOTHING = 1e-9
_MAX_DOUBLINGS = 60
#: How often an interval is halved to find where sales end.
_HALVINGS = 10
#: However evenly u(eps) seems to fall, the bound for any fall is not reduced by more than this.
_SMOOTHEST = 0.05


@dataclass(frozen=True)
class CurvePoint:
    """The market's answer at one virtual cost of one seller.

    Attributes
    ----------
    upper, lower : float
        Bounds on the buyer's optimal objective.
    epsilon : float
        What the seller sells.
    sold : float
        u(epsilon), what selling it costs per unit of sensitivity.
    """

    upper: float
    lower: float
    epsilon: float
    sold: float


@dataclass(frozen=True)
class Estimate:
    """A number and how far it may be off."""

    value: float
    error: float


class SolvedCurve:
    """The market's answers as one seller's virtual cost varies; solved where asked, and kept.

    The allocation is the answer at the truth, and ``gap`` that of each other solve.
    """

    def __init__(self, market: Market, allocation: Allocation, gap: float) -> None:
        self.market = market
        self.gamma = market.form.price_of_money
        self.n_solves = 0
        self._gap = gap
        self._nearest = self._truth = allocation
        self._known: dict[tuple[int, float], CurvePoint] = {}

    def at(self, seller: int, virtual_cost: float) -> CurvePoint:
        """Solve the market with this virtual cost of the seller; +inf takes it out.

        A market that cannot do without the seller has an infinite objective there.
        """
        key = seller, virtual_cost
        if key not in self._known:
            try:
                self._known[key] = self._point(self._solve(seller, virtual_cost), seller)
            except InfeasibleMarketError:
                if np.isfinite(virtual_cost):
                    raise
                self._known[key] = CurvePoint(np.inf, np.inf, 0.0, 0.0)
        return self._known[key]

    def _point(self, allocation: CertifiedPurchase, seller: int) -> CurvePoint:
        epsilon = float(allocation.epsilon[seller])
        sold = float(self.market.privacy_cost(epsilon))
        return CurvePoint(allocation.objective, allocation.lower_bound, epsilon, sold)

    def _solve(self, seller: int, virtual_cost: float) -> CertifiedPurchase:
        if virtual_cost == self.market.sellers.virtual_costs[seller]:
            return self._truth
        sellers = self.market.sellers.with_virtual_cost(seller, virtual_cost)
        changed = Market(sellers, self.market.objective, self.market.constraints)
        self.n_solves += 1
        # One report changes little: a search that starts at the last answer is soon done.
        self._nearest = allocate(changed, gap=self._gap, start=self._nearest)
        return self._nearest


def for_each_seller(
    work: Callable[[int], T],
    sellers: NDArray[np.intp],
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> list[T]:
    """Return what the work for each seller gives, done in processes, with word of how far it is."""
    found = []
    tasks = (delayed(work)(int(seller)) for seller in sellers)
    for one in Parallel(n_jobs=jobs, return_as="generator")(tasks):
        found.append(one)
        if progress is not None:
            progress(len(found), sellers.size)
    return found


def _sold(curve: SolvedCurve, prior: Prior, seller: int, report: float) -> float:
    return curve.at(seller, float(prior.ironed_virtual_cost(report))).sold


def end_of_sales(curve: SolvedCurve, prior: Prior, seller: int, report: float) -> float:
    """Return the top of the support; if there is none, a report at which nothing is bought.

    Raises
    ------
    NotSupportedError
        If neither exists, so that the seller could ask for any price.
    """
    top = prior.support[1]
    if np.isfinite(top):
        return top
    if np.isfinite(curve.at(seller, np.inf).upper):
        nothing = _NOTHING * _sold(curve, prior, seller, report)
        for doubling in range(_MAX_DOUBLINGS):
            further = report + prior.mean * 2.0**doubling
            if _sold(curve, prior, seller, further) <= nothing:
                return further
    raise NotSupportedError(
        f"{prior!r} has no largest sensitivity, and the buyer cannot do without this seller, so "
        "that no finite payment is truthful; use a prior with bounded support, or constraints "
        "that the others can meet"
    )


def sales_end_between(
    curve: SolvedCurve, prior: Prior, seller: int, low: float, high: float, halvings: int
) -> tuple[float, float]:
    """Return two reports between which the seller ceases to sell; (high, high) if it never does."""

    def sells(z: float) -> bool:
        return _sold(curve, prior, seller, z) > _NOTHING

    if sells(high):
        return high, high
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sells(middle) else (low, middle)
    return low, high


def chord_rent(
    curve: SolvedCurve,
    prior: Prior,
    seller: int,
    report: float,
    tolerance: float,
    max_solves: int = 100,
) -> Estimate:
    """Return the integral of u(eps) from the report to the top, reports entering by payments only.

    No further report is solved once the error is ``tolerance``, or at ``max_solves`` of them; the
    error then says where it stands.
    """
    end = end_of_sales(curve, prior, seller, report)
    chords = Chords(curve, prior, seller, report, end)
    while len(chords.cells) < max_solves and chords.error > tolerance:
        if chords.reducible < 0.1 * tolerance or not chords.split():
            break
    error = chords.error
    if np.isinf(prior.support[1]):  # F/f does not fall there, so psi rises at least as fast as c
        last, out = chords.point(-1), curve.at(seller, np.inf)
        error += max(0.0, out.upper - last.lower) / curve.gamma
    return Estimate(chords.value, error)


@dataclass(frozen=True)
class Cell:
    """The integral of u(eps) over the reports between two places of a table.

    Attributes
    ----------
    first, last : int
    value, error : float
        The integral, and how far it may be off.
    reducible : float
        The part of the error that solving between the ends would reduce; the rest is the gaps'.
    roughness : float
        How far u(eps) may be from falling evenly with the virtual cost: 1 says nothing is known.
    """

    first: int
    last: int
    value: float
    error: float
    reducible: float
    roughness: float


class Chords:
    """The integral of u(eps) over reports, cell by cell between those that are solved.

    From ``start`` to ``end``, with reports between them that are ``solved`` in any case. Where
    reports enter by the payments only (``envelope``), objectives may be used.

    Attributes
    ----------
    z, y : ndarray
        Reports, from the first to the last, and their virtual costs; known without solving.
    cells : list of Cell
        In order of the reports.
    """

    def __init__(
        self,
        curve: SolvedCurve,
        prior: Prior,
        seller: int,
        start: float,
        end: float,
        solved: Floats | None = None,
        envelope: bool = True,
    ) -> None:
        self._envelope = envelope
        self._curve = curve
        self._seller = seller
        self._affine = prior.virtual_cost_slope is not None
        cuts = np.empty(0) if solved is None else solved
        if self._affine or start >= end:
            self.z = np.unique([start, *cuts, max(start, end)])
        else:
            kinks = prior.breakpoints
            if prior.is_step:  # the bottom of the support is a step, too, though no breakpoint
                kinks = np.append(prior.support[0], kinks)
            kinks = kinks[(kinks >= start) & (kinks < end)]
            kinks = np.concatenate((kinks, np.nextafter(kinks, np.inf)))  # psi may jump there
            closer = start + (end - start) * np.geomspace(1e-6, 1.0, _TABLE)
            even = np.linspace(start, end, _TABLE)
            inside = np.unique(np.concatenate((even, closer, kinks, cuts)))
            self.z = inside[(inside >= start) & (inside <= end)]
            cuts = np.concatenate((cuts, kinks if kinks.size <= 2 * _FEW else ()))
        self.y = np.maximum.accumulate(np.asarray(prior.ironed_virtual_cost(self.z), dtype=float))
        self._between = _off_the_table(self.z, self.y)
        nodes = np.unique([0, *np.searchsorted(self.z, cuts), self.z.size - 1])
        self.cells = [self._cell(a, b, 1.0) for a, b in pairwise(nodes)]

    @property
    def value(self) -> float:
        """The integral."""
        return sum(cell.value for cell in self.cells)

    @property
    def error(self) -> float:
        """How far it may be off."""
        return sum(cell.error for cell in self.cells)

    @property
    def reducible(self) -> float:
        """The part of the error that more solves would reduce."""
        return sum(cell.reducible for cell in self.cells)

    def point(self, place: int) -> CurvePoint:
        """Solve the market at a place of the table."""
        return self._curve.at(self._seller, float(self.y[place]))

    def split(self) -> bool:
        """Solve one more report, inside the worst cell; return whether there was one."""
        divisible = [k for k, cell in enumerate(self.cells) if cell.last - cell.first > 1]
        worst = max(divisible, key=lambda k: self.cells[k].reducible, default=None)
        if worst is None or self.cells[worst].reducible <= 0:
            return False
        a, b = self.cells[worst].first, self.cells[worst].last
        middle = (a + b) // 2
        if np.isfinite(self.y[b]):
            middle = a + 1 + int(np.argmax(np.abs(self._off_chord(a, b)[1:-1])))
        roughness = max(0.5 * self.cells[worst].roughness, self._roughness(a, middle, b))
        halves = [self._cell(a, middle, roughness), self._cell(middle, b, roughness)]
        self.cells[worst : worst + 1] = halves
        return True

    def _roughness(self, a: int, middle: int, b: int) -> float:
        """Compare what is sold in the middle with a line between the ends; a jump shows as 1."""
        left, right = self.point(a).sold, self.point(b).sold
        if left <= right or np.isinf(self.y[b]):
            return 1.0
        share = (left - self.point(middle).sold) / (left - right)
        even = (self.y[middle] - self.y[a]) / (self.y[b] - self.y[a])
        return min(1.0, max(_SMOOTHEST, 2.0 * abs(share - even)))

    def _cell(self, a: int, b: int, roughness: float) -> Cell:
        """Integrate by the objectives or by what is sold at the ends, whichever is surer."""
        ends = self._by_ends(a, b, roughness)
        if not (self._envelope and self.y[a] < self.y[b] < np.inf):
            return ends
        return min(self._by_objectives(ends), ends, key=lambda cell: cell.error)

    def _by_ends(self, a: int, b: int, roughness: float) -> Cell:
        """Integrate by the mean of what is sold at the ends, which is known where psi is flat."""
        left, right = self.point(a).sold, self.point(b).sold
        width = float(self.z[b] - self.z[a])
        uneven = 0.5 * width * abs(left - right)
        error = width * self.doubt(a) + uneven
        return Cell(a, b, 0.5 * width * (left + right), error, uneven, roughness)

    def _by_objectives(self, ends: Cell) -> Cell:
        """Integrate along the chord by the objectives at its ends, and add how far psi is off."""
        a, b, roughness = ends.first, ends.last, ends.roughness
        left, right = self.point(a), self.point(b)
        drop = max(0.0, left.sold - right.sold)
        slope = self._slope(a, b) / self._curve.gamma
        value = slope * (right.upper - left.upper)
        gap = slope * max(left.upper - left.lower, right.upper - right.lower)
        if self._affine:
            return Cell(a, b, max(value, 0.0), gap, 0.0, roughness)
        if drop > 0:  # what the objectives say of the way between the ends
            uneven = abs(value - ends.value) / (self.z[b] - self.z[a])
            roughness = min(1.0, max(roughness, 4.0 * uneven / drop))
        shift, spread = self._bend(a, b)
        bent = roughness * spread * drop
        return Cell(a, b, max(value + shift * drop, 0.0), gap + bent, bent, roughness)

    def _slope(self, a: int, b: int) -> float:
        """Return the slope dz/dy of the chord, where psi rises to a finite value."""
        return float((self.z[b] - self.z[a]) / (self.y[b] - self.y[a]))

    def _off_chord(self, a: int, b: int) -> Floats:
        """Return how far places from a to b are from where their chord has their virtual costs."""
        z, y = self.z[a : b + 1], self.y[a : b + 1]
        return z - (z[0] + self._slope(a, b) * (y - y[0]))

    def _bend(self, a: int, b: int) -> tuple[float, float]:
        """Return how far psi is from its chord, averaged as if u(eps) fell evenly, and a bound."""
        at, rises = self._off_chord(a, b), np.diff(self.y[a : b + 1])
        mean = float(0.5 * (at[1:] + at[:-1]) @ rises / rises.sum())
        bound = max(mean - float(at.min()), float(at.max()) - mean)
        return mean, bound + self._slope(a, b) * float(self._between[a:b].max())

    def doubt(self, place: int) -> float:
        """Return how far ``sold`` may be off at a place."""
        return doubt_of_sold(self.point(place), float(self.y[place]), self._curve.gamma)


def _off_the_table(z: Floats, y: Floats) -> Floats:
    """Return how far psi may be off the line between neighbours in a table, shape (n - 1,).

    A kink between them changes the slopes to both sides by at least that, over their distance.
    """
    width = np.diff(z)
    with np.errstate(over="ignore", invalid="ignore"):  # where psi becomes infinite
        turns = np.abs(np.diff(np.diff(y) / width))
    return width * np.fmin(np.append(np.inf, turns), np.append(turns, np.inf))


def doubt_of_sold(point: CurvePoint, virtual_cost: float, gamma: float) -> float:
    """Return how far ``sold`` may be off, by the gap and an elasticity of one."""
    spent = virtual_cost * point.sold * gamma if gamma > 0 else abs(point.upper)
    if not 0 < spent < np.inf:
        return 0.0
    return point.sold * float(np.sqrt(2.0 * max(point.upper - point.lower, 0.0) / spent))


def quadrature_rent(
    curve: SolvedCurve, prior: Prior, seller: int, report: float, tolerance: float
) -> Estimate:
    """Return the integral of u(eps) from the report to the top, whatever reports do to it."""
    end = end_of_sales(curve, prior, seller, report)
    if end <= report:
        return Estimate(0.0, 0.0)
    end, out = sales_end_between(curve, prior, seller, report, end, _HALVINGS)
    kinks = prior.breakpoints
    kinks = kinks[(kinks > report) & (kinks < end)][:_FEW]
    value, error, *_ = quad(
        lambda z: _sold(curve, prior, seller, z),
        report,
        end,
        points=kinks if kinks.size else None,
        epsabs=tolerance,
        epsrel=0.0,
        limit=_FEW + 2,
        full_output=1,
    )
    rest = 0.5 * (out - end) * _sold(curve, prior, seller, end)
    return Estimate(float(value) + rest, float(error) + rest)
