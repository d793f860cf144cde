"""Audits of incentives: does anyone alone gain by lying, does anyone lose by taking part.

An audit does not take the theory's word. It solves the market again at every misreport it tries,
computes what the seller would then be paid and what it would then sell, and compares that with
the truth. The papers' problem is audited exactly; any other market up to the gaps of its solves,
and a gain counts only as far as these do not explain it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.parted import PartedAllocation
from convexmarket.allocation.result import Allocation
from convexmarket.checks import (
    check_callable,
    check_count,
    check_instance,
    check_jobs,
    check_share,
    generator_of,
)
from convexmarket.display import Shown, axes
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.incentives.coalitions import CoalitionAudit, audit_pairs
from convexmarket.incentives.exact_rents import information_rents, last_sale
from convexmarket.incentives.rents import (
    Chords,
    SolvedCurve,
    end_of_sales,
    for_each_seller,
    sales_end_between,
)
from convexmarket.incentives.rules import method_of, payments, reports_of
from convexmarket.incentives.trials import (
    Build,
    PaymentRule,
    built_market,
    terms_of,
    top_of,
    truthful_payment,
    virtual_cost_payment,
)
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import PriorOrPriors, SellerParts, Sellers

__all__ = [
    "Build",
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

#: Misreports next to the truth, relative to it.
_NEAR = np.array([1e-3, 1e-2])
#: How often an interval is halved to find where sales end.
_HALVINGS = 5


@dataclass(frozen=True, eq=False)
class IncentiveAudit(Shown):
    """What an audit found.

    Attributes
    ----------
    n_sellers : int
        Sellers of the market; a sample of them may have been audited.
    n_misreports : int
        Misreports tried per seller, at least.
    tolerance : float
        Gains and losses up to this, in the currency of the payments, count as rounding.
    expected_payment : float
        Sum of psi(c_i)*u(eps_i), which equals ``total_payment`` in expectation over the prior (A,
        Eq. 9).
    coalitions : CoalitionAudit or None
        What pairs gain who lie together, where it was asked for. All else here is about sellers
        who lie alone.
    """

    _table: pd.DataFrame
    n_sellers: int
    n_misreports: int
    tolerance: float
    expected_payment: float
    _total: Callable[[], float]
    coalitions: CoalitionAudit | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return one row per audited seller, by its id.

        Returns
        -------
        DataFrame
            sensitivity, epsilon, payment, surplus (payment less cost, at the truth), max_gain
            (largest surplus of any misreport tried, less the truthful one, and less what errors of
            integration and of the solver explain), best_misreport and max_rise (the most that the
            guarantee rises from one report tried to the next dearer one, beyond such errors; 0
            where it never does).
        """
        return self._table.set_index("id")

    def plot(self, ax: Any = None) -> Any:
        """Draw the largest gain of any misreport against what each seller reported.

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
        """Sum of the truthful payments of all sellers, computed when asked for.

        NaN where not all were audited and the market is not the papers' problem.
        """
        return self._total()

    @property
    def max_gain(self) -> float:
        """Largest gain of any audited seller, alone, from any misreport tried."""
        return float(self._table["max_gain"].max())

    @property
    def min_surplus(self) -> float:
        """Smallest surplus of any audited seller who tells the truth."""
        return float(self._table["surplus"].min())

    @property
    def max_rise(self) -> float:
        """Most that any audited seller's guarantee rises with its report; 0 in a sound market."""
        return float(self._table["max_rise"].max())

    @property
    def is_monotone(self) -> bool:
        """Whether no guarantee was seen to rise with the report."""
        return self.max_rise == 0

    @property
    def is_incentive_compatible(self) -> bool:
        """Whether no misreport of a seller alone gained more than rounding."""
        return self.max_gain <= self.tolerance

    @property
    def is_individually_rational(self) -> bool:
        """Whether nobody lost more than rounding by taking part."""
        return self.min_surplus >= -self.tolerance

    def __repr__(self) -> str:
        return (
            f"IncentiveAudit({len(self._table)} of {self.n_sellers} sellers, "
            f"{self.n_misreports} misreports each: max_gain={self.max_gain:.2e}, "
            f"max_rise={self.max_rise:.2e}, min_surplus={self.min_surplus:.2e}, "
            f"tolerance={self.tolerance:.1e}"
            + (f", {self.coalitions!r}" if self.coalitions else "")
            + ")"
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
    """Try misreports of every seller (or of a sample) and report the largest gain and loss.

    Each seller is tried alone, all others telling the truth; pairs who lie together gain in most
    markets, and ``coalitions`` says how much. Of sellers in partitions the sample is fetched, in
    part of a pass; ``build`` and ``coalitions`` are for sellers in memory.

    Parameters
    ----------
    market : Market
        With sellers whose priors are known, at their true reports.
    build : callable, optional
        From the reports of all sellers, shape (m,), to the market that they make; it has to give
        ``market`` at the true ones. Needed where numbers in the market depend on the reports, such
        as ``Losses(-20 * reports)``: the audit cannot see that in the market alone, and keeps them
        as they are. With it the market is built again at every misreport and pays what
        :func:`payments` pays there, which keeps the numbers of that report while it integrates;
        this takes as long as ``misreports`` times the payments.
    rule : callable
        Payment rule to audit; Eq. (8) unless said otherwise.
    misreports : int, optional
        Reports tried per seller, spread evenly over the part of the support where it sells, with
        the report at which it ceases to sell tried from both sides, the top of the support, and
        reports next to the truth. 33 for the papers' problem, else 6. With ``build`` 12, over the
        whole support (to the 0.999 quantile if it has no top) and next to the truth.
    max_sellers : int, optional
        Above this number, a random sample of so many sellers is audited. 200 for the papers'
        problem, else 50.
    gap : float
        Relative gap of the solves, where they are not exact.
    random_state : numpy.random.Generator or int, default 0
        Draws the sample and the pairs; a fixed one where left out.
    progress : callable, optional
        Called with the number of sellers done and to be done, where solves are not exact.
    jobs : int
        Processes that work at once, where solves are not exact.
    coalitions : int
        Random pairs that try joint misreports. Each seller of a pair reports the truth, 1 or 10 per
        cent more or less, or a quarter of its support: 80 joint misreports, solved exactly. Outside
        the papers' problem 10 per cent more or less, 8 joint misreports, each a market solved anew
        and two payments.

    Returns
    -------
    IncentiveAudit

    Raises
    ------
    ParameterError
        If ``build`` returns something else than a market of sellers with the reports it was
        given, or another market than ``market`` at the truth.
    NotSupportedError
        If ``build`` or ``coalitions`` are given and sellers are in partitions.
    ConvexMarketError
        Of the kind that was raised, naming the seller and the report, if a market that was built
        at a misreport has no optimum or no payments.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    >>> cm.audit_incentives(market).is_incentive_compatible
    True

    That is about each of them alone. Together they gain:

    >>> cm.audit_incentives(market, coalitions=1).coalitions
    CoalitionAudit(1 of 1 pairs gain together: median 10.05%, largest 10.05% of their surplus)

    What the buyer makes of the reports elsewhere is seen through ``build`` only:

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
    if misreports is None:
        misreports = 33 if exact else 6 if build is None else 12
    if max_sellers is None:
        max_sellers = 200 if exact else 50
    check_count("misreports", misreports, 2)
    check_count("max_sellers", max_sellers)
    check_share("gap", gap)
    check_callable("rule", rule, optional=False)
    check_callable("progress", progress)
    check_jobs(jobs)
    check_count("coalitions", coalitions, 0)
    if coalitions and len(market.sellers) < 2:
        raise ParameterError(f"coalitions is {coalitions}, and there is one seller; leave it out")
    rng = generator_of(random_state)
    if parts is not None:
        allocated: Any = allocate(market)
        options: dict[str, Any] = {"misreports": misreports, "max_sellers": max_sellers}
        return audit_parts(parts, market, allocated, rule, rng=rng, **options)
    who = _sample(reports_of(market).size, max_sellers, rng)
    allocation = allocate(market, gap=gap)
    if build is not None:
        _check_build(build, market, allocation, gap)
    if exact:
        form = market.form.exact
        assert form is not None  # as for exact
        curve = OwnReportCurve(form)
        by_prior = [(prior, who[place]) for prior, place in market.sellers.by_prior(who)]
        found = _exact_trials(curve, by_prior, reports_of(market), misreports)
        trials = [found[i] for i in who.tolist()]
    else:
        tries = _solved_trial if build is None else partial(_built_trial, build)
        trial_of = partial(tries, market, allocation, misreports, gap)
        trials = for_each_seller(trial_of, who, jobs, progress)
    rounding = 1e-9 if exact else 1e-6
    ids = [market.sellers.ids[i] for i in who]
    pairs = None
    if coalitions:
        pairs = audit_pairs(
            market,
            allocation,
            coalitions,
            build=build,
            rule=rule,
            gap=gap,
            rounding=rounding,
            rng=rng,
            progress=None if exact else progress,
            jobs=1 if exact else jobs,
        )
    sold = market.privacy_cost(allocation.epsilon)
    bought = allocation.weights > 0
    expected = float(market.sellers.virtual_costs[bought] @ sold[bought])
    total = allocation if exact else None
    return _audit_of(market, total, expected, ids, trials, rule, rounding, pairs)


def audit_parts(
    parts: SellerParts,
    market: Market,
    allocation: PartedAllocation,
    rule: PaymentRule = truthful_payment,
    *,
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
    curve, everyone = allocation.curve(reports), np.arange(who.size)
    found = _exact_trials(curve, [(allocation.prior, everyone)], reports, misreports)
    trials = [found[i] for i in everyone.tolist()]
    return _audit_of(market, allocation, allocation.expected_payment, ids, trials, rule, 1e-9)


def _sample(m: int, most: int, rng: np.random.Generator) -> Ints:
    """Return the positions of some sellers, in order; of all where there are few."""
    return np.arange(m) if m <= most else np.sort(rng.choice(m, most, replace=False))


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
    """Return what trials found; ``exact`` is the allocation, where payments are exact."""
    rows = [_row(id, trial, rule, rounding) for id, trial in zip(ids, trials, strict=True)]
    table = pd.DataFrame(rows).drop(columns="largest_payment")
    return IncentiveAudit(
        _table=table,
        n_sellers=len(market.sellers),
        n_misreports=min(trial.report.size for trial in trials) - 1,
        tolerance=rounding * max(row["largest_payment"] for row in rows),
        expected_payment=expected,
        _total=partial(_total_payment, market, exact, table),
        coalitions=pairs,
    )


def _total_payment(market: Market, exact: Any, table: pd.DataFrame) -> float:
    """Return the sum of all payments: by the exact rule, or of all sellers in the table."""
    if exact is not None:
        total = payments(market, exact).sum()
        return float(total.compute() if hasattr(total, "compute") else total)
    return float(table["payment"].sum()) if len(table) == len(market.sellers) else np.nan


def _check_build(build: Build, market: Market, allocation: Allocation, gap: float) -> None:
    """Refuse a function that does not give the market at the true reports."""
    built = built_market(build, reports_of(market))
    again = allocate(built, gap=gap)
    costs = np.allclose(built.sellers.virtual_costs, market.sellers.virtual_costs, rtol=1e-9)
    slack = 1e-9 * abs(allocation.objective)
    if not (
        costs
        and again.lower_bound <= allocation.objective + slack
        and allocation.lower_bound <= again.objective + slack
    ):
        raise ParameterError(
            "market must be build(true reports), with the same priors, and build makes another: its"
            f" optimum is {again.objective:.10g}, that of market {allocation.objective:.10g}"
        )


@dataclass(frozen=True, eq=False)
class _Trial:
    """What one seller would sell and earn at the reports tried; the truth comes first.

    ``rent_doubt`` is how far the rent may be off relative to that of the truth, and ``sold_doubt``
    how far u(eps) may be.
    """

    report: Floats
    virtual: Floats
    epsilon: Floats
    sold: Floats
    rent: Floats
    rent_doubt: Floats
    sold_doubt: Floats


def _row(id: Any, trial: _Trial, rule: PaymentRule, rounding: float) -> dict[str, Any]:
    """Compare each report of one seller with its truth."""
    truth = float(trial.report[0])
    payment = rule(trial.report, trial.sold, trial.rent, trial.virtual)
    surplus = payment - truth * trial.sold
    doubt = trial.rent_doubt + np.abs(trial.report - truth) * (
        trial.sold_doubt + trial.sold_doubt[0]
    )
    gains = surplus - surplus[0] - doubt
    gains[0] = 0.0
    best = int(np.argmax(gains))
    order = np.argsort(trial.report, kind="stable")
    epsilon, off = trial.epsilon[order], trial.sold_doubt[order]
    scale = np.divide(epsilon, trial.sold[order], out=np.zeros_like(off), where=epsilon > 0)
    rises = np.diff(epsilon) - (off * scale)[1:] - (off * scale)[:-1]
    rise = float(rises.max(initial=0.0))
    return {
        "id": id,
        "sensitivity": truth,
        "epsilon": float(trial.epsilon[0]),
        "payment": float(payment[0]),
        "surplus": float(surplus[0]),
        "max_gain": float(gains[best]),
        "best_misreport": float(trial.report[best]),
        "max_rise": rise if rise > rounding * float(epsilon.max()) else 0.0,
        "largest_payment": float(np.max(np.abs(payment))),
    }


def _exact_trials(
    curve: OwnReportCurve, by_prior: list[tuple[Prior, Ints]], reports: Floats, misreports: int
) -> dict[int, _Trial]:
    """Solve at all misreports of all sellers at once."""
    trials = {}
    for prior, own in by_prior:
        z = _misreports(curve, prior, own, reports[own], misreports)
        seller, virtual = np.repeat(own, z.shape[1]), np.asarray(prior.ironed_virtual_cost(z))
        sold = curve(seller, virtual.ravel()).epsilon.reshape(z.shape)
        rent = information_rents(curve, prior, seller, z.ravel()).reshape(z.shape)
        none = np.zeros(z.shape[1])
        for k, i in enumerate(own):
            trials[int(i)] = _Trial(z[k], virtual[k], sold[k], sold[k], rent[k], none, none)
    return trials


def _misreports(
    curve: OwnReportCurve, prior: Prior, seller: Ints, truth: Floats, count: int
) -> Floats:
    """Return the truth and the misreports to try, shape (n, count + 8)."""
    low, high = prior.support
    ceases = last_sale(curve, prior, seller, np.full(seller.size, low))
    step = 1e-6 * (ceases - low)
    top = np.full(seller.size, high) if np.isfinite(high) else 2.0 * ceases
    edges = np.column_stack((ceases - step, np.minimum(ceases + step, top), top))
    spread = _spread(low, ceases, count)
    return np.column_stack((truth, spread, edges, _near(truth, prior)))


def _spread(low: float, high: ArrayLike, count: int) -> Floats:
    """Return reports up to each end, from half a step above the bottom: privacy may be free there.

    Shape (..., count) for ends of the shape (...).
    """
    width = np.asarray(high)[..., None] - low
    return low + width * np.linspace(0.5 / count, 1.0, count)


def _near(truth: ArrayLike, prior: Prior) -> Floats:
    """Return reports next to the truth, inside the support, shape (..., 4) for a truth of (...)."""
    own = np.asarray(truth)[..., None]
    middle = [0.5 * (own + end) for end in prior.support]
    nearby = np.maximum(own * (1 - _NEAR), middle[0]), np.minimum(own * (1 + _NEAR), middle[1])
    return np.concatenate(nearby, axis=-1)


def _built_trial(
    build: Build, market: Market, allocation: Allocation, misreports: int, gap: float, seller: int
) -> _Trial:
    """Build, solve and pay the market at each report tried."""
    reports, prior = reports_of(market), market.sellers.prior_of(seller)
    truth, low = float(reports[seller]), prior.support[0]
    tried = np.append(_spread(low, top_of(prior, truth), misreports), _near(truth, prior))
    tried = np.setdiff1d(tried, truth)
    # At the top the virtual cost may be infinite: nothing is sold there, or there is no market.
    tried = tried[np.isfinite(prior.ironed_virtual_cost(tried))]
    rows = [terms_of(market, allocation, seller, gap)]
    for report in tried:
        lie = reports.copy()
        lie[seller] = report
        try:
            built = built_market(build, lie)
            rows.append(terms_of(built, allocate(built, gap=gap), seller, gap))
        except ConvexMarketError as error:
            raise type(error)(f"where seller {seller} reports {report:.6g}: {error}") from error
    z, virtual, epsilon, sold, amount, off, sold_doubt = np.array(rows).T
    return _Trial(
        report=z,
        virtual=virtual,
        epsilon=epsilon,
        sold=sold,
        rent=amount - z * sold,
        rent_doubt=off + off[0],
        sold_doubt=sold_doubt,
    )


def _solved_trial(
    market: Market, allocation: Allocation, misreports: int, gap: float, seller: int
) -> _Trial:
    """Solve the market at reports between which its rents are integrated."""
    curve = SolvedCurve(market, allocation, gap)
    prior, truth = market.sellers.prior_of(seller), float(reports_of(market)[seller])
    low, end = prior.support[0], end_of_sales(curve, prior, seller, truth)
    _, ceases = sales_end_between(curve, prior, seller, low, end, _HALVINGS)
    spread = _spread(low, ceases, misreports)
    tried = np.unique([*spread, *_near(truth, prior), truth, end])
    envelope = method_of(market, assume_monotone=True) == "envelope"
    chords = Chords(curve, prior, seller, tried[0], tried[-1], tried, envelope)
    nodes = np.array([*(cell.first for cell in chords.cells), chords.z.size - 1])
    points = [chords.point(node) for node in nodes]
    parts = np.array([(cell.value, cell.error) for cell in chords.cells])
    rent = np.append(np.cumsum(parts[::-1, 0])[::-1], 0.0)
    behind = np.append(0.0, np.cumsum(parts[:, 1]))
    own = int(np.argmin(np.abs(chords.z[nodes] - truth)))
    # At the top itself the cost may be infinite, and the market then without an answer.
    answered = [k for k, point in enumerate(points) if np.isfinite(point.upper) and k != own]
    order = [own, *answered]
    return _Trial(
        report=chords.z[nodes][order],
        virtual=chords.y[nodes][order],
        epsilon=np.array([points[k].epsilon for k in order]),
        sold=np.array([points[k].sold for k in order]),
        rent=rent[order],
        rent_doubt=np.abs(behind - behind[own])[order],
        sold_doubt=np.array([chords.doubt(int(nodes[k])) for k in order]),
    )


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
        The group of each seller, where priors are per group.
    draws : int
        Markets that are drawn, at least 2.
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
        sides[draw] = (
            payments(market, allocation).sum(),
            sellers.virtual_costs @ allocation.epsilon,
        )
    difference = sides[:, 0] - sides[:, 1]
    return PaymentIdentity(
        mean_payment=float(sides[:, 0].mean()),
        mean_virtual_cost=float(sides[:, 1].mean()),
        standard_error=float(difference.std(ddof=1) / np.sqrt(draws)),
        draws=draws,
    )
