"""Audits of incentives: gains of misreports, alone or in pairs, and losses of truthful sellers.

An audit does not rely on the theory. It solves the market again at every misreport that it tries,
and compares payment and guarantee with those of the truth. The papers' problem is audited exactly.
In other markets, the part of a gain that the gaps of the solves may explain does not count.

The truth is the best reply of each seller alone, not of pairs. A small change of one seller's
report reduces its surplus to second order, and changes the rent of another seller to first order.
So nearly any two sellers gain if they agree and share the gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.dispatch import allocate, best_method
from convexmarket.allocation.partitioned_sellers import PartedAllocation
from convexmarket.checks import (
    check_callable,
    check_count,
    check_instance,
    check_jobs,
    check_share,
    generator_of,
    shown,
)
from convexmarket.display import Shown, axes
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.incentives.rents import ExactCurve, SolvedCurve
from convexmarket.incentives.rules import (
    ACCURACY_OF_ESTIMATES,
    curve_of,
    for_each_seller,
    payments,
    reports_of,
    scales,
)
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import PriorOrPriors, SellerParts, Sellers

__all__ = [
    "Build",
    "CoalitionAudit",
    "IncentiveAudit",
    "PaymentIdentity",
    "PaymentRule",
    "audit_incentives",
    "audit_parts",
    "check_payment_identity",
    "truthful_payment",
    "virtual_cost_payment",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: A function from the reports of all sellers, shape (m,), to their market.
Build = Callable[[Floats], Market]

#: A payment rule: a function from report z, privacy cost u(eps(z)), rent (the integral of u(eps)
#: from z to the top of the support) and virtual cost psi(z), each of shape (n,), to payments.
PaymentRule = Callable[[Floats, Floats, Floats, Floats], Floats]

#: Quantile of the highest misreport if the support is unbounded.
_LIKELY = 0.999
#: Misreports next to the truth, relative to it.
_NEAR = 1e-2


def truthful_payment(report: Floats, epsilon: Floats, rent: Floats, _: Floats) -> Floats:
    """Compute payments by A's Eq. (8): the cost plus the rent.

    Parameters
    ----------
    report, epsilon, rent, virtual_cost : ndarray
        Several reports of one seller, the guarantees sold, the integrals of guarantees over higher
        reports, and the virtual costs. They are passed by position.

    Returns
    -------
    ndarray
        Payment at each report, in the currency of the reports.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.incentives import truthful_payment
    >>> c, epsilon, rent, psi = (np.array([x]) for x in (0.4, 2.0, 0.3, 0.8))
    >>> truthful_payment(c, epsilon, rent, psi)
    array([1.1])
    """
    return report * epsilon + rent


def virtual_cost_payment(_: Floats, epsilon: Floats, __: Floats, virtual_cost: Floats) -> Floats:
    """Compute ``psi(c) * eps`` (B, Theorem A.3): right in expectation, but not truthful.

    Parameters
    ----------
    report, epsilon, rent, virtual_cost : ndarray
        As for :func:`truthful_payment`.

    Returns
    -------
    ndarray
        Payment at each report, in the currency of the reports.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.incentives import virtual_cost_payment
    >>> c, epsilon, rent, psi = (np.array([x]) for x in (0.4, 2.0, 0.3, 0.8))
    >>> virtual_cost_payment(c, epsilon, rent, psi)
    array([1.6])
    """
    sold = epsilon > 0
    return np.where(sold, np.where(sold, virtual_cost, 0.0) * epsilon, 0.0)


@dataclass(frozen=True, eq=False)
class CoalitionAudit(Shown):
    """Gains of pairs of sellers from joint misreports.

    Attributes
    ----------
    tolerance : float
        Largest gain that counts as rounding, in the currency of the payments.
    """

    _table: pd.DataFrame
    tolerance: float

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair, indexed by the ids ``first`` and ``second``.

        Returns
        -------
        DataFrame
            surplus (payments less costs of both, at the truth), max_gain (largest increase of the
            surplus by a joint misreport, less the solver's errors; at least 0), first_report,
            second_report (the reports of that gain) and share (max_gain over surplus; NaN without
            surplus).
        """
        return self._table.set_index(["first", "second"])

    @property
    def n_gaining(self) -> int:
        """Number of pairs that gain more than rounding."""
        return int((self._table["max_gain"] > self.tolerance).sum())

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


@dataclass(frozen=True, eq=False)
class IncentiveAudit(Shown):
    """The results of an audit.

    Attributes
    ----------
    n_sellers : int
        Number of sellers of the market; the audit may cover a sample.
    n_misreports : int
        Smallest number of misreports tried for a seller.
    tolerance : float
        Largest gain or loss that counts as rounding, in the currency of the payments.
    expected_payment : float
        Sum of psi(c_i)*u(eps_i), which equals ``total_payment`` in expectation over the prior (A,
        Eq. 9).
    coalitions : CoalitionAudit or None
        Gains of joint misreports, if requested. All other results are about single misreports.
    """

    _table: pd.DataFrame
    n_sellers: int
    n_misreports: int
    tolerance: float
    expected_payment: float
    _total: Callable[[], float]
    coalitions: CoalitionAudit | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return one row per audited seller, indexed by id.

        Returns
        -------
        DataFrame
            sensitivity, epsilon, payment, surplus (payment less cost, at the truth), max_gain
            (largest increase of the surplus by a misreport, less errors of integration and of the
            solver), best_misreport and max_rise (largest increase of the guarantee from one report
            to the next higher one, beyond such errors; at least 0).
        """
        return self._table.set_index("id")

    def plot(self, ax: Any = None) -> Any:
        """Plot the largest gain of any misreport against the sensitivity of each seller.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        ax = axes(ax, xlabel="sensitivity", ylabel="largest gain of a misreport")
        ax.plot(self._table["sensitivity"], self._table["max_gain"], ".", ms=4)
        ax.axhline(self.tolerance, color="0.6", lw=1, label="rounding")
        ax.legend()
        return ax

    @cached_property
    def total_payment(self) -> float:
        """Sum of the truthful payments of all sellers, computed on first access.

        NaN if the audit covers a sample and the market is not the papers' problem.
        """
        return self._total()

    @property
    def max_gain(self) -> float:
        """Largest gain of any audited seller, alone, from any misreport tried."""
        return float(self._table["max_gain"].max())

    @property
    def min_surplus(self) -> float:
        """Smallest surplus of any audited seller at its truthful report."""
        return float(self._table["surplus"].min())

    @property
    def max_rise(self) -> float:
        """Largest increase of an audited seller's guarantee with its report; 0 if monotone."""
        return float(self._table["max_rise"].max())

    @property
    def is_monotone(self) -> bool:
        """Whether no audited guarantee rises with the report."""
        return self.max_rise == 0

    @property
    def is_incentive_compatible(self) -> bool:
        """Whether no misreport of a seller alone gained more than rounding."""
        return self.max_gain <= self.tolerance

    @property
    def is_individually_rational(self) -> bool:
        """Whether no audited seller loses more than rounding by participating."""
        return self.min_surplus >= -self.tolerance

    def __repr__(self) -> str:
        pairs = f", {self.coalitions!r}" if self.coalitions else ""
        return (
            f"IncentiveAudit({len(self._table)} of {self.n_sellers} sellers, "
            f"{self.n_misreports} misreports each: max_gain={self.max_gain:.2e}, "
            f"max_rise={self.max_rise:.2e}, min_surplus={self.min_surplus:.2e}, "
            f"tolerance={self.tolerance:.1e}{pairs})"
        )


def audit_incentives(
    market: Market,
    *,
    build: Build | None = None,
    rule: PaymentRule = truthful_payment,
    misreports: int | None = None,
    max_sellers: int | None = None,
    gap: float = 1e-8,
    random_state: np.random.Generator | int = 0,
    progress: Callable[[int, int], None] | None = None,
    jobs: int = 1,
    coalitions: int = 0,
) -> IncentiveAudit:
    """Measure the gains of misreports of every seller, or of a sample.

    Each seller misreports alone, while all others report the truth. Sellers in partitions are
    sampled, and the sample is fetched.

    Parameters
    ----------
    market : Market
        With sellers whose priors are known, at their true reports.
    build : callable, optional
        Function from the reports of all sellers, shape (m,), to their market; it returns ``market``
        at the true reports. It is needed if numbers in the market depend on the reports, such as
        ``Losses(-20 * reports)``. The market is then built at every misreport, with the payments of
        :func:`payments` there.
    rule : callable
        Payment rule to audit; Eq. (8) by default.
    misreports : int, optional
        Number of reports per seller, evenly spaced over those at which it sells, in addition to the
        top of the support and two near the truth. 33 for the papers' problem, 9 with projections,
        else 3; with ``build`` 12, over the whole support (to the 0.999 quantile if it has no top).
    max_sellers : int, optional
        Size of the sample of sellers: 200 for the papers' problem, 16 with projections, else 12.
    gap : float
        Relative gap of the solves, where they are not exact.
    random_state : numpy.random.Generator or int, default 0
        Draws the sample and the pairs.
    progress : callable, optional
        Called with the number of sellers done and to be done, where solves are not exact.
    jobs : int
        Processes that work at once, where solves are not exact.
    coalitions : int
        Random pairs that try joint misreports: 80 for the papers' problem (1 or 10 per cent more or
        less, quarters of the support), else 8 (10 per cent more or less).

    Returns
    -------
    IncentiveAudit

    Raises
    ------
    ParameterError
        If ``build`` does not return a market of sellers with the given reports, or differs from
        ``market`` at the truth.
    NotSupportedError
        If ``build`` or ``coalitions`` are given and sellers are in partitions.
    ConvexMarketError
        If a market built at a misreport has no optimum or no payments. The message names the seller
        and the report.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    >>> cm.audit_incentives(market).is_incentive_compatible
    True

    Each seller alone gains nothing. The pair gains by joint misreports:

    >>> cm.audit_incentives(market, coalitions=1).coalitions
    CoalitionAudit(1 of 1 pairs gain together: median 10.05%, largest 10.05% of their surplus)

    Other uses of the reports by the buyer are audited with ``build``:

    >>> def build(reports):
    ...     terms = 2 * cm.Spread() + cm.Noise() + 0.5 * cm.Payments() + cm.Losses(-20 * reports)
    ...     return cm.Market(cm.Sellers(reports, prior=cm.Uniform(0, 1)), terms)
    >>> market = build(sellers.sensitivities)
    >>> cm.audit_incentives(market).is_incentive_compatible
    True
    >>> cm.audit_incentives(market, build=build).is_incentive_compatible
    False
    """
    check_instance("market", market, Market)
    check_callable("build", build)
    parts = market.sellers.parts
    if parts is not None and (build is not None or coalitions):
        raise NotSupportedError(
            "build and coalitions are for sellers in memory: leave them out, or give "
            "Sellers(sensitivities.compute(), prior)"
        )
    exact = parts is not None or (market.form.exact is not None and build is None)
    if exact:
        usual = 33, 200
    elif build is not None:
        usual = 12, 12
    else:
        usual = (3, 12) if best_method(market) == "branch_and_bound" else (9, 16)
    misreports = check_count("misreports", usual[0] if misreports is None else misreports, 2)
    max_sellers = check_count("max_sellers", usual[1] if max_sellers is None else max_sellers)
    check_share("gap", gap)
    check_callable("rule", rule, optional=False)
    check_callable("progress", progress)
    check_jobs(jobs)
    check_count("coalitions", coalitions, 0)
    if coalitions and len(market.sellers) < 2:
        raise ParameterError(f"coalitions is {coalitions}, and there is one seller; leave it out")
    rng = generator_of(random_state)
    if parts is not None:
        whole: Any = allocate(market)
        return audit_parts(parts, market, whole, rule, misreports, max_sellers, rng)
    who = _sample(reports_of(market).size, max_sellers, rng)
    allocation = allocate(market, gap=gap)
    if build is not None:
        _check_build(build, market, allocation, gap)
    tries = _Tries(market, build, gap, curve_of(market, allocation, gap))
    if exact:
        trials = tries({}, misreports, who)
    else:
        work = partial(tries, {}, misreports)
        trials = [trial for (trial,) in for_each_seller(work, who, jobs, progress)]
    rounding, pairs = 1e-9 if exact else 1e-6, None
    if coalitions:
        sells = np.flatnonzero(allocation.epsilon > 0)
        first = rng.choice(sells, coalitions)
        away = rng.integers(1, len(market.sellers), coalitions)
        couples = np.column_stack((first, (first + away) % len(market.sellers)))
        pair_row = partial(_pair_row, tries, rule, exact, couples)
        numbers = np.arange(coalitions)
        if exact:
            jobs, progress = 1, None
        rows = for_each_seller(pair_row, numbers, jobs, progress)
        pairs = _coalitions(market, couples, rows, rounding)
    sold, bought = market.privacy_cost(allocation.epsilon), allocation.weights > 0
    expected = float(market.sellers.virtual_costs[bought] @ sold[bought])
    ids = [market.sellers.ids[i] for i in who]
    total = allocation if exact else None
    return _audit_of(market, total, expected, ids, trials, rule, rounding, pairs)


def audit_parts(
    parts: SellerParts,
    market: Market,
    allocation: PartedAllocation,
    rule: PaymentRule = truthful_payment,
    misreports: int = 33,
    max_sellers: int = 200,
    rng: np.random.Generator | int = 0,
) -> IncentiveAudit:
    """Audit the papers' problem for a sample of sellers in parts, whose reports are fetched.

    The sellers that the allocation fetched suffice for all markets with one other report.

    Raises
    ------
    NotSupportedError
        If the cap leaves no seller out.
    """
    who = _sample(len(parts), max_sellers, generator_of(rng))
    reports, ids = parts.take(who)
    curve, own = ExactCurve(allocation.curve(reports)), np.arange(who.size)
    z = _misreports(curve, allocation.prior, own, reports, misreports)
    trials = _tried(curve, allocation.prior, own, z)
    return _audit_of(market, allocation, allocation.expected_payment, ids, trials, rule, 1e-9)


def _sample(m: int, most: int, rng: np.random.Generator) -> Ints:
    """Return the sorted positions of a sample of sellers, or of all if they are few."""
    return np.arange(m) if m <= most else np.sort(rng.choice(m, most, replace=False))


class _Trial(NamedTuple):
    """Guarantees and rents of one seller at several reports; the truth comes first.

    ``rent_doubt`` and ``sold_doubt`` bound the errors of the rent, relative to that of the truth,
    and of u(eps).
    """

    report: Floats
    virtual: Floats
    epsilon: Floats
    sold: Floats
    rent: Floats
    rent_doubt: Floats
    sold_doubt: Floats

    def gains(self, rule: PaymentRule) -> tuple[Floats, Floats, Floats]:
        """Return payment, surplus and a bound on the error of the surplus at each report."""
        away = np.abs(self.report - self.report[0])
        doubt = self.rent_doubt + away * (self.sold_doubt + self.sold_doubt[0])
        payment = rule(self.report, self.sold, self.rent, self.virtual)
        return payment, payment - self.report[0] * self.sold, doubt


@dataclass(frozen=True)
class _Tries:
    """Trials of misreports of single sellers, at given misreports of others."""

    market: Market
    build: Build | None
    gap: float
    curve: ExactCurve | SolvedCurve

    def __call__(
        self, lies: dict[int, float], misreports: int | Floats, sellers: Any
    ) -> list[_Trial]:
        """Return the trials; ``misreports`` is their number, or reports with the truth first."""
        who, market, curve = np.atleast_1d(sellers), self.market, self.curve
        if self.build is not None:
            return [self._built(self.build, lies, misreports, int(i)) for i in who]
        if lies:
            market = _market_at(partial(_with_reports, market), market, lies)
            curve = curve_of(market, allocate(market, gap=self.gap), self.gap)
        truth, trials = reports_of(self.market), dict[int, _Trial]()
        for prior, place in market.sellers.by_prior(who):
            own = who[place]
            if isinstance(misreports, int):
                z = _misreports(curve, prior, own, truth[own], misreports)
            else:
                z = misreports[None]
            trials |= dict(zip(place.tolist(), _tried(curve, prior, own, z), strict=True))
        # Rents of a seller come from one integral, so errors beyond the truth cancel.
        return [
            trial._replace(rent_doubt=np.abs(trial.rent_doubt - trial.rent_doubt[0]))
            for trial in (trials[k] for k in range(who.size))
        ]

    def _built(
        self, build: Build, lies: dict[int, float], misreports: int | Floats, seller: int
    ) -> _Trial:
        """Build, solve and pay the market at each report of one seller."""
        market, who, columns = self.market, np.array([seller]), []
        prior, truth = market.sellers.prior_of(seller), float(reports_of(market)[seller])
        if isinstance(misreports, int):
            spread = _spread(prior.support[0], _top_of(prior, truth), misreports)
            misreports = np.append(truth, np.setdiff1d([*spread, *_near(truth, prior)], truth))
        for report in misreports[np.isfinite(prior.ironed_virtual_cost(misreports))]:
            try:
                changed = lies | {seller: float(report)} if lies or report != truth else {}
                built = _market_at(build, market, changed) if changed else market
                answer = allocate(built, gap=self.gap)
                tolerance = ACCURACY_OF_ESTIMATES * scales(built, answer)[who]
                curve, z = curve_of(built, answer, self.gap), np.array([[report]])
                columns += _tried(curve, built.sellers.prior_of(seller), who, z, tolerance)
            except ConvexMarketError as error:
                raise type(error)(f"where seller {seller} reports {report:.6g}: {error}") from error
        trial = _Trial(*map(np.concatenate, zip(*columns, strict=True)))
        return trial._replace(rent_doubt=trial.rent_doubt + trial.rent_doubt[0])


def _tried(
    curve: ExactCurve | SolvedCurve,
    prior: Prior,
    seller: Ints,
    z: Floats,
    tolerance: Floats | float = np.inf,
) -> list[_Trial]:
    """Return the answers and rents of one market at reports z, a row for each seller."""
    who, reports = np.repeat(seller, z.shape[1]), z.ravel()
    virtual = np.asarray(prior.ironed_virtual_cost(reports))
    answers = curve.answers(who, virtual)
    rent, error = np.zeros((2, reports.size))
    if np.any(answers.sold > 0):
        tolerances = np.broadcast_to(tolerance, reports.shape)
        rent, error = curve.rents(prior, who, reports, tolerances)
    columns = (reports, virtual, *answers[:2], rent, error, answers.doubt)
    return [_Trial(*rows) for rows in zip(*(c.reshape(z.shape) for c in columns), strict=True)]


def _misreports(
    curve: ExactCurve | SolvedCurve, prior: Prior, seller: Ints, truth: Floats, count: int
) -> Floats:
    """Return the truth and the misreports to try, shape (n, count + 4)."""
    low, high = prior.support
    ceases = curve.last_sale(prior, seller, truth)
    top = np.full(seller.size, high) if np.isfinite(high) else 2.0 * ceases
    if np.isfinite(high) and np.isinf(prior.ironed_virtual_cost(high)):  # may be infeasible there
        top = np.minimum(top, low + 0.999 * (top - low))
        ceases = np.minimum(ceases, top)
    return np.column_stack((truth, _spread(low, ceases, count), top, _near(truth, prior)))


def _spread(low: float, high: ArrayLike, count: int) -> Floats:
    """Return reports from half a step above the bottom up to each end, shape (..., count).

    Privacy may be free at the bottom.
    """
    width = np.asarray(high)[..., None] - low
    return low + width * np.linspace(0.5 / count, 1.0, count)


def _near(truth: ArrayLike, prior: Prior) -> Floats:
    """Return reports on both sides of the truth, inside the support, shape (..., 2)."""
    own, (low, high) = np.asarray(truth)[..., None], prior.support
    below = np.maximum(own * (1 - _NEAR), 0.5 * (own + low))
    return np.concatenate((below, np.minimum(own * (1 + _NEAR), 0.5 * (own + high))), axis=-1)


def _top_of(prior: Prior, truth: float) -> float:
    """Return the top of a support, or a high quantile if it is unbounded."""
    high = prior.support[1]
    return high if np.isfinite(high) else max(float(prior.quantile(_LIKELY)), 2.0 * truth)


def _with_reports(market: Market, reports: Floats) -> Market:
    """Return the market at other reports, with all other numbers unchanged."""
    sellers = market.sellers
    for i in np.flatnonzero(reports != reports_of(market)):
        sellers = sellers.with_report(int(i), float(reports[i]))
    return Market(sellers, market.objective, market.constraints)


def _market_at(made: Build, market: Market, lies: dict[int, float]) -> Market:
    """Return the market built from the reports, some of which are replaced by misreports."""
    reports = reports_of(market).copy()
    reports[list(lies)] = list(lies.values())
    built = made(reports.copy())
    if not isinstance(built, Market):
        raise ParameterError(
            f"build returned {shown(built)}; give a function from the reports, shape (m,), to a "
            "Market"
        )
    if len(built.sellers) != reports.size:
        raise ParameterError(
            f"build returned a market of {len(built.sellers)} sellers for {reports.size} reports; "
            "give one seller for each report, in their order"
        )
    own = built.sellers.sensitivities
    if own is None or not np.allclose(own, reports, rtol=1e-9, atol=0.0):
        raise ParameterError(
            "build returned a market with other reports than its argument; create the sellers from "
            "the argument, as in Sellers(reports, prior=...)"
        )
    return built


def _check_build(build: Build, market: Market, allocation: Allocation, gap: float) -> None:
    """Check that the function returns the market at the true reports."""
    built = _market_at(build, market, {})
    again = allocate(built, gap=gap)
    costs = np.allclose(built.sellers.virtual_costs, market.sellers.virtual_costs, rtol=1e-9)
    slack = 1e-9 * abs(allocation.objective)
    if not (
        costs
        and again.lower_bound <= allocation.objective + slack
        and allocation.lower_bound <= again.objective + slack
    ):
        raise ParameterError(
            "market must be build(true reports), with the same priors, but build returns another: "
            f"its optimum is {again.objective:.10g}, that of market {allocation.objective:.10g}"
        )


def _audit_of(
    market: Market,
    exact: Any,
    expected: float,
    ids: list[Any],
    trials: list[_Trial],
    rule: PaymentRule,
    rounding: float,
    pairs: CoalitionAudit | None = None,
) -> IncentiveAudit:
    """Return the results of trials; ``exact`` is the allocation if payments are exact."""
    rows = [_row(id, trial, rule, rounding) for id, trial in zip(ids, trials, strict=True)]
    table = pd.DataFrame(rows).drop(columns="largest_payment")

    def total() -> float:
        if exact is not None:
            paid: Any = payments(market, exact).sum()
            return float(paid.compute() if hasattr(paid, "compute") else paid)
        return float(table["payment"].sum()) if len(table) == len(market.sellers) else np.nan

    return IncentiveAudit(
        _table=table,
        n_sellers=len(market.sellers),
        n_misreports=min(trial.report.size for trial in trials) - 1,
        tolerance=rounding * max(row["largest_payment"] for row in rows),
        expected_payment=expected,
        _total=total,
        coalitions=pairs,
    )


def _row(id: Any, trial: _Trial, rule: PaymentRule, rounding: float) -> dict[str, Any]:
    """Compare the reports of one seller with the truth."""
    payment, surplus, doubt = trial.gains(rule)
    gains = surplus - surplus[0] - doubt
    gains[0] = 0.0
    best = int(np.argmax(gains))
    order = np.argsort(trial.report, kind="stable")
    epsilon, off = trial.epsilon[order], trial.sold_doubt[order]
    scale = np.divide(epsilon, trial.sold[order], out=np.zeros_like(off), where=epsilon > 0)
    rise = float(np.max(np.diff(epsilon) - (off * scale)[1:] - (off * scale)[:-1], initial=0.0))
    return {
        "id": id,
        "sensitivity": float(trial.report[0]),
        "epsilon": float(trial.epsilon[0]),
        "payment": float(payment[0]),
        "surplus": float(surplus[0]),
        "max_gain": float(gains[best]),
        "best_misreport": float(trial.report[best]),
        "max_rise": rise if rise > rounding * float(epsilon.max()) else 0.0,
        "largest_payment": float(np.max(np.abs(payment))),
    }


def _pair_row(
    tries: _Tries, rule: PaymentRule, exact: bool, pairs: Ints, number: int
) -> tuple[float, ...]:
    """Try a grid of joint misreports of one pair; return surplus, gain, where, largest payment."""
    pair = pairs[number].tolist()
    grids = [_pair_reports(tries.market, i, exact) for i in pair]
    surplus, doubt, paid = np.zeros((3, grids[0].size, grids[1].size))
    for k, (i, other) in enumerate((pair, pair[::-1])):
        rows = []
        for lie in grids[1 - k]:
            lies = {other: float(lie)} if lie != grids[1 - k][0] else {}
            rows.append(tries(lies, grids[k], i)[0].gains(rule))
        for whole, part in zip((paid, surplus, doubt), np.array(rows).swapaxes(0, 1), strict=True):
            whole += part.T if k == 0 else part
    gains = surplus - surplus[0, 0] - doubt
    gains[0, 0] = 0.0
    at = np.unravel_index(int(np.argmax(gains)), gains.shape)
    return surplus[0, 0], gains[at], grids[0][at[0]], grids[1][at[1]], float(np.abs(paid).max())


def _pair_reports(market: Market, seller: int, exact: bool) -> Floats:
    """Return the truth of a seller and its misreports inside the support."""
    prior, truth = market.sellers.prior_of(seller), float(reports_of(market)[seller])
    low, top = prior.support[0], _top_of(prior, truth)
    near = truth * np.array([0.9, 0.99, 1.01, 1.1] if exact else [0.9, 1.1])
    near = np.clip(near, 0.5 * (low + truth), 0.5 * (truth + top))
    spread = low + (top - low) * np.array([0.25, 0.5, 0.75, 1.0] if exact else [])
    lies = np.setdiff1d([*near, *spread], truth)
    return np.append(truth, lies[np.isfinite(prior.ironed_virtual_cost(lies))])


def _coalitions(
    market: Market, pairs: Ints, rows: list[tuple[float, ...]], rounding: float
) -> CoalitionAudit:
    """Return the results of pairs."""
    surplus, gain, own, other, paid = np.array(rows).T
    tolerance, ids = rounding * float(paid.max()), market.sellers.ids
    some = surplus > tolerance
    table = pd.DataFrame(
        {
            "first": [ids[i] for i in pairs[:, 0]],
            "second": [ids[j] for j in pairs[:, 1]],
            "surplus": surplus,
            "max_gain": gain,
            "first_report": own,
            "second_report": other,
            "share": np.divide(gain, surplus, out=np.full(surplus.size, np.nan), where=some),
        }
    )
    return CoalitionAudit(table, tolerance)


@dataclass(frozen=True)
class PaymentIdentity:
    """A simulation of E[sum t_i] = E[sum psi(c_i) eps_i] (A, Eq. 9).

    Attributes
    ----------
    mean_payment, mean_virtual_cost : float
        Averages of both sides over the draws.
    standard_error : float
        Standard error of the average difference.
    draws : int
    """

    mean_payment: float
    mean_virtual_cost: float
    standard_error: float
    draws: int

    @property
    def z_score(self) -> float:
        """Difference of the sides in standard errors; beyond 4 the identity is refuted."""
        return (self.mean_payment - self.mean_virtual_cost) / self.standard_error


def check_payment_identity(
    prior: PriorOrPriors,
    n_sellers: int,
    *,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None = None,
    groups: Any = None,
    draws: int = 400,
    random_state: np.random.Generator | int,
) -> PaymentIdentity:
    """Draw markets from the prior, or priors, and compare payments with virtual costs (Eq. 9).

    Parameters
    ----------
    prior : Prior, or mapping from group to Prior
    n_sellers : int
        Sellers of each market.
    mu, sigma, gamma, cap : float
        Of the market, as in :meth:`Market.standard`.
    groups : array_like of length n_sellers, optional
        The group of each seller, if priors are given by group.
    draws : int
        Number of markets to draw, at least 2.
    random_state : int or numpy.random.Generator

    Returns
    -------
    PaymentIdentity
        Mean payment and mean virtual cost, in the currency of the sensitivities.

    Raises
    ------
    ParameterError, PriorError
        If an argument is out of its range.

    Examples
    --------
    >>> import convexmarket as cm
    >>> identity = cm.incentives.check_payment_identity(
    ...     cm.Uniform(0, 1), 5, mu=1, sigma=1, gamma=1, draws=50, random_state=0
    ... )
    >>> abs(identity.mean_payment - identity.mean_virtual_cost) < 3 * identity.standard_error
    True
    """
    sides, rng = np.empty((check_count("draws", draws, 2), 2)), generator_of(random_state)
    for draw in range(draws):
        sellers = Sellers.draw(n_sellers, prior, rng, groups=groups)
        market = Market.standard(sellers, mu=mu, sigma=sigma, gamma=gamma, cap=cap)
        allocation = allocate(market, method="exact")
        paid = payments(market, allocation).sum()
        sides[draw] = paid, sellers.virtual_costs @ allocation.epsilon
    mean, difference = sides.mean(axis=0), sides[:, 0] - sides[:, 1]
    error = float(difference.std(ddof=1) / np.sqrt(draws))
    return PaymentIdentity(float(mean[0]), float(mean[1]), error, draws)
