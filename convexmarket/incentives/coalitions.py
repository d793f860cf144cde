"""What two sellers gain who lie together: truth is the best reply of each alone, not of pairs.

Eq. (8) pays a seller for what it would sell at dearer reports, given what the others report. Where
one of two changes its report a little, it loses little of its own surplus (of second order), and
moves the rent of the other (of first order, in one direction or the other): so nearly any two gain
who agree, share what they gain and trust each other. How much is found by trying.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.result import Allocation
from convexmarket.display import Shown
from convexmarket.errors import ConvexMarketError
from convexmarket.incentives.exact_rents import information_rents
from convexmarket.incentives.rents import for_each_seller
from convexmarket.incentives.rules import reports_of
from convexmarket.incentives.trials import Build, PaymentRule, built_market, terms_of, top_of
from convexmarket.market import Market

__all__ = ["CoalitionAudit", "audit_pairs"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Misreports relative to the truth: where the papers' problem is solved exactly, and elsewhere.
_NEAR = {True: np.array([0.9, 0.99, 1.01, 1.1]), False: np.array([0.9, 1.1])}
#: Misreports in shares of the support, where solves are exact.
_SPREAD = {True: np.array([0.25, 0.5, 0.75, 1.0]), False: np.array([])}


@dataclass(frozen=True, eq=False)
class CoalitionAudit(Shown):
    """What pairs of sellers gain who misreport together.

    Attributes
    ----------
    n_misreports : int
        Joint misreports tried per pair, at most.
    tolerance : float
        Gains up to this, in the currency of the payments, count as rounding.
    """

    _table: pd.DataFrame
    n_misreports: int
    tolerance: float

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair, by its ids, first and second.

        Returns
        -------
        DataFrame
            surplus (payments less costs of both, at the truth), max_gain (largest surplus of any
            joint misreport tried, less the truthful one, and less what errors of the solver
            explain; 0 where none gains), first_report, second_report (where that is) and share
            (max_gain over surplus; missing where there is no surplus).
        """
        return self._table.set_index(["first", "second"])

    @property
    def n_gaining(self) -> int:
        """Pairs that gain more than rounding."""
        return int((self._table["max_gain"] > self.tolerance).sum())

    @property
    def max_gain(self) -> float:
        """Largest joint gain of any pair, in the currency of the payments."""
        return float(self._table["max_gain"].max())

    @property
    def median_share(self) -> float:
        """Median over the pairs of the gain, as a share of their joint surplus at the truth."""
        return float(self._table["share"].median())

    @property
    def max_share(self) -> float:
        """Largest gain as a share of the joint surplus at the truth."""
        return float(self._table["share"].max())

    def __repr__(self) -> str:
        return (
            f"CoalitionAudit({self.n_gaining} of {len(self._table)} pairs gain together: median "
            f"{self.median_share:.2%}, largest {self.max_share:.2%} of their surplus)"
        )


def audit_pairs(
    market: Market,
    allocation: Allocation,
    n_pairs: int,
    *,
    build: Build | None,
    rule: PaymentRule,
    gap: float,
    rounding: float,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None,
    jobs: int,
) -> CoalitionAudit:
    """Let random pairs try a small grid of joint misreports; see ``audit_incentives``.

    The first of a pair is one who sells at the truth, the second anybody else.
    """
    sells = np.flatnonzero(allocation.epsilon > 0)
    first = rng.choice(sells, n_pairs)
    second = (first + rng.integers(1, len(market.sellers), n_pairs)) % len(market.sellers)
    pairs = np.column_stack((first, second))
    exact = market.form.exact is not None and build is None
    grids = [[_reports(market, int(one), exact) for one in pair] for pair in pairs]
    if exact:
        surpluses = _exact_surpluses(market, rule)
    else:
        made = build if build is not None else partial(_with_reports, market)
        surpluses = partial(_solved_surpluses, market, allocation, made, rule, gap)

    def row_of(number: int) -> tuple[float, ...]:
        pair, grid = pairs[number], grids[number]
        surplus, paid = surpluses(pair, grid)
        gains = surplus - surplus[0, 0]
        gains[0, 0] = 0.0
        at = np.unravel_index(int(np.argmax(gains)), gains.shape)
        return (surplus[0, 0], gains[at], grid[0][at[0]], grid[1][at[1]], paid)

    rows = np.array(for_each_seller(row_of, np.arange(n_pairs), jobs, progress))
    ids = market.sellers.ids
    surplus, gain, own, other, paid = rows.T
    tolerance = rounding * float(paid.max())
    some = surplus > tolerance
    table = pd.DataFrame(
        {
            "first": [ids[i] for i in first],
            "second": [ids[j] for j in second],
            "surplus": surplus,
            "max_gain": gain,
            "first_report": own,
            "second_report": other,
            "share": np.divide(gain, surplus, out=np.full(n_pairs, np.nan), where=some),
        }
    )
    most = max(one.size * two.size - 1 for one, two in grids)
    return CoalitionAudit(table, most, tolerance)


def _reports(market: Market, seller: int, exact: bool) -> Floats:
    """Return the truth of a seller and the misreports that it tries, inside the support."""
    prior, truth = market.sellers.prior_of(seller), float(reports_of(market)[seller])
    low, top = prior.support[0], top_of(prior, truth)
    near = np.clip(truth * _NEAR[exact], 0.5 * (low + truth), 0.5 * (truth + top))
    lies = np.setdiff1d([*near, *(low + (top - low) * _SPREAD[exact])], truth)
    return np.append(truth, lies[np.isfinite(prior.ironed_virtual_cost(lies))])


def _exact_surpluses(
    market: Market, rule: PaymentRule
) -> Callable[[Ints, list[Floats]], tuple[Floats, float]]:
    """Return what gives the joint surplus of a pair at all its joint reports, solved exactly."""
    form = market.form.exact
    assert form is not None  # as for exact
    truth, sellers = reports_of(market), market.sellers

    def own_surplus(one: int, z: Floats, other: int, lies: Floats) -> tuple[Floats, Floats]:
        """Return surplus and payment of one seller at its reports, by those of another."""
        prior = sellers.prior_of(one)
        virtual = np.asarray(prior.ironed_virtual_cost(z))
        surplus, paid = np.empty((z.size, lies.size)), np.empty((z.size, lies.size))
        for k, cost in enumerate(sellers.prior_of(other).ironed_virtual_cost(lies)):
            costs = form.virtual_costs.copy()
            costs[other] = cost
            curve = OwnReportCurve(replace(form, virtual_costs=costs))
            sold = curve(np.full(z.size, one), virtual).epsilon
            some = np.flatnonzero(sold > 0)  # who sells nothing earns nothing
            rent = np.zeros(z.size)
            rent[some] = information_rents(curve, prior, np.full(some.size, one), z[some])
            paid[:, k] = rule(z, sold, rent, virtual)
            surplus[:, k] = paid[:, k] - truth[one] * sold
        return surplus, paid

    def surpluses(pair: Ints, grid: list[Floats]) -> tuple[Floats, float]:
        (one, two), (first, second) = pair, grid
        own, paid = own_surplus(one, first, two, second)
        other, paid_other = own_surplus(two, second, one, first)
        return own + other.T, float(np.abs(paid + paid_other.T).max())

    return surpluses


def _with_reports(market: Market, reports: Floats) -> Market:
    """Return the market at other reports, all its other numbers as they are."""
    sellers = market.sellers
    for one in np.flatnonzero(reports != reports_of(market)):
        sellers = sellers.with_report(int(one), float(reports[one]))
    return Market(sellers, market.objective, market.constraints)


def _solved_surpluses(
    market: Market,
    allocation: Allocation,
    build: Build,
    rule: PaymentRule,
    gap: float,
    pair: Ints,
    grid: list[Floats],
) -> tuple[Floats, float]:
    """Return the joint surplus at each joint report, less what it may be off beside the truth."""
    truth, largest = reports_of(market), 0.0
    surplus, doubt = np.empty((2, grid[0].size, grid[1].size))
    for at in np.ndindex(surplus.shape):
        lie = truth.copy()
        lie[pair] = [own[k] for own, k in zip(grid, at, strict=True)]
        try:
            made = built_market(build, lie) if any(at) else market
            bought = allocate(made, gap=gap) if any(at) else allocation
            rows = np.array([terms_of(made, bought, int(one), gap) for one in pair])
        except ConvexMarketError as error:
            told = " and ".join(f"seller {one} reports {lie[one]:.6g}" for one in pair)
            raise type(error)(f"where {told}: {error}") from error
        z, virtual, _, sold, amount, off, sold_doubt = rows.T
        paid = rule(z, sold, amount - z * sold, virtual)
        surplus[at] = (paid - truth[pair] * sold).sum()
        doubt[at] = (off + np.abs(z - truth[pair]) * sold_doubt).sum()
        largest = max(largest, float(np.abs(paid).sum()))
    doubt += doubt[0, 0]
    doubt[0, 0] = 0.0
    return surplus - doubt, largest
