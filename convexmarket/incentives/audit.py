"""Audits of incentives: gains of misreports, alone or in pairs, and losses of truthful sellers.

An audit does not rely on the theory. It solves the market again at every misreport that it tries,
and compares payment and guarantee with those of the truth. The papers' problem is audited exactly.
In other markets, the part of a gain that the gaps of the solves may explain does not count.

The truth is the best reply of each seller alone, not of pairs. A small change of one seller's
report reduces its surplus to second order, and changes the rent of another seller to first order.
So nearly any two sellers gain if they agree and share the gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.choose_method import allocate, best_method
from convexmarket.allocation.partitioned_sellers import PartedAllocation
from convexmarket.checks import check_callable, check_count, check_instance, generator_of, shown
from convexmarket.display import Shown, axes
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.incentives.rents import ExactCurve, SolvedCurve
from convexmarket.incentives.rules import (
    ACCURACY_OF_ESTIMATES,
    curve_of,
    payments,
    reports_of,
    scales,
)
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import PriorOrPriors, Sellers

__all__ = [
    "Build",
    "IncentiveAudit",
    "PaymentIdentity",
    "PaymentRule",
    "audit_incentives",
    "check_payment_identity",
    "virtual_cost_payment",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Curve = ExactCurve | SolvedCurve

#: A function from the reports of all sellers, shape (m,), to their market.
Build = Callable[[Floats], Market]

#: A payment rule: a function from report z, privacy cost u(eps(z)), rent (the integral of u(eps)
#: from z to the top of the support) and virtual cost psi(z), each of shape (n,), to payments.
PaymentRule = Callable[[Floats, Floats, Floats, Floats], Floats]

#: Relative gap of solves that are not exact, and rounding of exact and of other gains.
_GAP, _EXACT, _SOLVED = 1e-8, 1e-9, 1e-6
#: Quantile of the highest misreport if the support is unbounded; misreports next to the truth.
_LIKELY, _NEAR = 0.999, (0.99, 1.01)
#: Misreports of pairs, as shares of the support and multiples of the truth: solved, and exact.
_PAIRS: Any = ([], [0.9, 1.1]), ([0.25, 0.5, 0.75, 1.0], [0.9, 0.99, 1.01, 1.1])


def virtual_cost_payment(_: Floats, epsilon: Floats, __: Floats, virtual_cost: Floats) -> Floats:
    """Compute ``psi(c) * eps`` (B, Theorem A.3): right in expectation, but not truthful.

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
    >>> from convexmarket.incentives import virtual_cost_payment
    >>> c, epsilon, rent, psi = (np.array([x]) for x in (0.4, 2.0, 0.3, 0.8))
    >>> virtual_cost_payment(c, epsilon, rent, psi)
    array([1.6])
    """
    return np.multiply(virtual_cost, epsilon, out=np.zeros(epsilon.shape), where=epsilon > 0)


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
    coalitions : DataFrame or None
        One row per pair, if requested, indexed by the ids ``first`` and ``second``: surplus
        (payments less costs of both, at the truth), max_gain (largest increase of the surplus by a
        joint misreport, less the solver's errors; at least 0), first_report, second_report (the
        reports of that gain) and share (max_gain over surplus; NaN without surplus). All other
        results are about single misreports.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> audit = cm.audit_incentives(market)
    >>> audit.is_incentive_compatible, bool(audit.max_gain < 1e-9)
    (True, True)
    """

    _table: pd.DataFrame
    n_sellers: int
    n_misreports: int
    tolerance: float
    coalitions: pd.DataFrame | None = None

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
        return self._table.copy()

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
    def is_incentive_compatible(self) -> bool:
        """Whether no misreport of a seller alone gained more than rounding."""
        return self.max_gain <= self.tolerance

    @property
    def is_individually_rational(self) -> bool:
        """Whether no audited seller loses more than rounding by participating."""
        return self.min_surplus >= -self.tolerance

    def summary(self) -> dict[str, Any]:
        """Return the results as plain values for JSON."""
        return {
            "sellers": self.n_sellers,
            "sellers_audited": len(self._table),
            "misreports_per_seller": self.n_misreports,
            "largest_gain_from_misreporting": self.max_gain,
            "smallest_surplus": self.min_surplus,
            "tolerance": self.tolerance,
            "incentive_compatible": self.is_incentive_compatible,
            "individually_rational": self.is_individually_rational,
        }

    def __repr__(self) -> str:
        pairs = ""
        if self.coalitions is not None:
            gaining = int((self.coalitions["max_gain"] > self.tolerance).sum())
            pairs = f", {gaining} of {len(self.coalitions)} pairs gain together"
        return (
            f"IncentiveAudit({len(self._table)} of {self.n_sellers} sellers, "
            f"{self.n_misreports} misreports each: max_gain={self.max_gain:.2e}, "
            f"max_rise={self.max_rise:.2e}, min_surplus={self.min_surplus:.2e}, "
            f"tolerance={self.tolerance:.1e}{pairs})"
        )


def audit_incentives(
    market: Market,
    *,
    allocation: Any = None,
    build: Build | None = None,
    rule: PaymentRule | None = None,
    misreports: int | None = None,
    max_sellers: int | None = None,
    coalitions: int = 0,
    random_state: np.random.Generator | int = 0,
) -> IncentiveAudit:
    """Measure the gains of misreports of every seller, or of a sample.

    Each seller misreports alone, while all others report the truth. Sellers in partitions are
    sampled, and the sample is fetched.

    Parameters
    ----------
    market : Market
        With sellers whose priors are known, at their true reports.
    allocation : Allocation or PartedAllocation, optional
        The result of ``allocate(market)``, if it was computed before.
    build : callable, optional
        Function from the reports of all sellers, shape (m,), to their market; it returns ``market``
        at the true reports. It is needed if numbers in the market depend on the reports, such as
        ``Losses(-20 * reports)``. The market is then built at every misreport, with the payments of
        :func:`payments` there.
    rule : callable, optional
        Payment rule to audit: a function as :func:`virtual_cost_payment`; Eq. (8) by default.
    misreports : int, optional
        Number of reports per seller, evenly spaced over those at which it sells, in addition to the
        top of the support and two near the truth. 33 for the papers' problem, 9 with projections,
        else 3; with ``build`` 12, over the whole support (to the 0.999 quantile if it has no top).
    max_sellers : int, optional
        Size of the sample of sellers: 200 for the papers' problem, 16 with projections, else 12.
    coalitions : int
        Random pairs that try joint misreports: 80 for the papers' problem (1 or 10 per cent more or
        less, quarters of the support), else 8 (10 per cent more or less).
    random_state : numpy.random.Generator or int, default 0
        Draws the sample and the pairs.

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

    >>> cm.audit_incentives(market, coalitions=1).coalitions["share"].round(4).tolist()
    [0.1005]

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
    if allocation is not None:
        kinds = (Allocation, PartedAllocation)
        check_instance("allocation", allocation, kinds, "what allocate(market) returned")
    check_callable("build", build)
    check_callable("rule", rule)
    check_count("coalitions", coalitions, 0)
    sellers, parts = market.sellers, market.sellers.parts
    if parts is not None and (build is not None or coalitions):
        raise NotSupportedError(
            "build and coalitions are for sellers in memory: leave them out, or give "
            "Sellers(sensitivities.compute(), prior)"
        )
    m, exact = len(sellers), parts is not None or (market.form.exact is not None and build is None)
    if exact:
        usual = 33, 200
    elif build is not None:
        usual = 12, 12
    else:
        usual = (3, 12) if best_method(market) == "branch_and_bound" else (9, 16)
    count = check_count("misreports", usual[0] if misreports is None else misreports, 2)
    most = check_count("max_sellers", usual[1] if max_sellers is None else max_sellers)
    if coalitions and m < 2:
        raise ParameterError(f"coalitions is {coalitions}, and there is one seller; leave it out")
    rng = generator_of(random_state)
    who = np.arange(m) if m <= most else np.sort(rng.choice(m, most, replace=False))
    if parts is not None:
        whole: Any = allocate(market) if allocation is None else allocation
        truth, ids = parts.take(who)
        place = np.arange(truth.size)
        trials = _alone(ExactCurve(whole.curve(truth)), [(whole.prior, place)], place, truth, count)
        return _audit_of(ids, trials, rule, _EXACT, m)
    truth = reports_of(market)
    if allocation is None or not exact:
        allocation = allocate(market, gap=_GAP)
    curve, rounding, pairs = curve_of(market, allocation, _GAP), _EXACT if exact else _SOLVED, None

    def tried(seller: int, z: Floats, lies: Mapping[int, float]) -> _Trial:
        if build is not None:
            return _built(build, market, seller, z, lies)
        changed, others = curve, sellers
        if lies:
            for i, lie in lies.items():
                others = others.with_report(i, lie)
            lying = Market(others, market.objective, market.constraints)
            changed = curve_of(lying, allocate(lying, gap=_GAP), _GAP)
        return _tried(changed, sellers.prior_of(seller), np.array([seller]), z[None])[0].relative()

    if build is None:
        trials = _alone(curve, sellers.by_prior(who), who, truth[who], count)
    else:
        _check_build(build, market, allocation)
        steps = _steps(count)
        trials = [tried(i, _reports_to_try(market, i, steps, _NEAR), {}) for i in who.tolist()]
    if coalitions:
        first = rng.choice(np.flatnonzero(allocation.epsilon > 0), coalitions)
        second = (first + rng.integers(1, m, coalitions)) % m
        shares = _PAIRS[exact]
        couples = [
            {i: _reports_to_try(market, i, *shares) for i in pair}
            for pair in zip(first.tolist(), second.tolist(), strict=True)
        ]
        pairs = _coalitions(tried, rule, couples, sellers.ids)
    return _audit_of([sellers.ids[i] for i in who], trials, rule, rounding, m, pairs)


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

    def gains(self, rule: PaymentRule | None) -> tuple[Floats, Floats, Floats]:
        """Return payment, surplus and a bound on the error of the surplus at each report."""
        away = np.abs(self.report - self.report[0])
        doubt = self.rent_doubt + away * (self.sold_doubt + self.sold_doubt[0])
        payment = self.report * self.sold + self.rent
        if rule is not None:
            payment = rule(self.report, self.sold, self.rent, self.virtual)
        return payment, payment - self.report[0] * self.sold, doubt

    def relative(self) -> _Trial:
        """Rents from one integral: their errors beyond that of the truth cancel."""
        return self._replace(rent_doubt=np.abs(self.rent_doubt - self.rent_doubt[0]))


def _alone(
    curve: Curve, groups: Iterable[tuple[Prior, Ints]], who: Ints, truth: Floats, count: int
) -> list[_Trial]:
    """Try the misreports of sellers, each alone; groups are priors and the places of sellers."""
    trials: dict[int, _Trial] = {}
    for prior, place in groups:
        z = _misreports(curve, prior, who[place], truth[place], count)
        trials |= dict(zip(place.tolist(), _tried(curve, prior, who[place], z), strict=True))
    return [trials[k].relative() for k in range(who.size)]


def _built(
    build: Build, market: Market, seller: int, z: Floats, lies: Mapping[int, float]
) -> _Trial:
    """Build, solve and pay the market at each report of one seller."""
    who, columns, truth = np.array([seller]), [], reports_of(market)[seller]
    for report in z.tolist():
        try:
            changed = {**lies, seller: report} if lies or report != truth else {}
            built = _market_at(build, market, changed) if changed else market
            answer = allocate(built, gap=_GAP)
            tolerance = ACCURACY_OF_ESTIMATES * scales(built, answer)[who]
            curve, prior = curve_of(built, answer, _GAP), built.sellers.prior_of(seller)
            columns += _tried(curve, prior, who, np.array([[report]]), tolerance)
        except ConvexMarketError as error:
            raise type(error)(f"where seller {seller} reports {report:.6g}: {error}") from error
    trial = _Trial(*map(np.concatenate, zip(*columns, strict=True)))
    return trial._replace(rent_doubt=trial.rent_doubt + trial.rent_doubt[0])


def _tried(
    curve: Curve, prior: Prior, seller: Ints, z: Floats, tolerance: Floats | float = np.inf
) -> list[_Trial]:
    """Return the answers and rents of one market at reports z, a row for each seller."""
    who, reports = np.repeat(seller, z.shape[1]), z.ravel()
    virtual = np.asarray(prior.ironed_virtual_cost(reports))
    answers = curve.answers(who, virtual)
    rent, error = np.zeros((2, reports.size))
    if np.any(answers.sold > 0):
        rent, error = curve.rents(prior, who, reports, np.broadcast_to(tolerance, reports.shape))
    columns = (reports, virtual, *answers[:2], rent, error, answers.doubt)
    return [_Trial(*rows) for rows in zip(*(c.reshape(z.shape) for c in columns), strict=True)]


def _misreports(curve: Curve, prior: Prior, seller: Ints, truth: Floats, count: int) -> Floats:
    """Return the truth and the misreports to try, shape (n, count + 4)."""
    low, high = prior.support
    ceases = curve.last_sale(prior, seller, truth)
    top = np.full(seller.size, high) if np.isfinite(high) else 2.0 * ceases
    if np.isfinite(high) and np.isinf(prior.ironed_virtual_cost(high)):  # may be infeasible there
        top = np.minimum(top, low + 0.999 * (top - low))
        ceases = np.minimum(ceases, top)
    spread = low + np.outer(ceases - low, _steps(count))
    return np.column_stack((truth, spread, top, _near(truth, prior, _NEAR)))


def _steps(count: int) -> Floats:
    """Return shares of a range from half a step above its bottom, where privacy may be free."""
    return np.linspace(0.5 / count, 1.0, count)


def _near(truth: ArrayLike, prior: Prior, factors: ArrayLike) -> Floats:
    """Return multiples of the truth, at most half way to the ends of the support."""
    at, (low, high) = np.asarray(truth)[..., None], prior.support
    return np.clip(at * np.asarray(factors), 0.5 * (at + low), 0.5 * (at + high))


def _reports_to_try(market: Market, seller: int, shares: ArrayLike, factors: ArrayLike) -> Floats:
    """Return the truth, and misreports at shares of the support and at multiples of the truth."""
    prior, truth = market.sellers.prior_of(seller), float(reports_of(market)[seller])
    low, top = prior.support
    if np.isinf(top):
        top = max(float(prior.quantile(_LIKELY)), 2.0 * truth)
    spread = low + (top - low) * np.asarray(shares)
    lies = np.setdiff1d([*spread, *_near(truth, prior, factors)], truth)
    return np.append(truth, lies[np.isfinite(prior.ironed_virtual_cost(lies))])


def _market_at(build: Build, market: Market, lies: Mapping[int, float]) -> Market:
    """Build the market from the reports, after replacing some of them by misreports."""
    reports = reports_of(market).copy()
    reports[list(lies)] = list(lies.values())
    built = build(reports.copy())
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
    returned = built.sellers.sensitivities
    if returned is None or not np.allclose(returned, reports, rtol=1e-9, atol=0.0):
        raise ParameterError(
            "build returned a market with other reports than its argument; create the sellers from "
            "the argument, as in Sellers(reports, prior=...)"
        )
    return built


def _check_build(build: Build, market: Market, allocation: Any) -> None:
    """Check that the function returns the market at the true reports."""
    built = _market_at(build, market, {})
    again = allocate(built, gap=_GAP)
    costs = np.allclose(built.sellers.virtual_costs, market.sellers.virtual_costs, rtol=1e-9)
    low = max(again.lower_bound, allocation.lower_bound)
    high = min(again.objective, allocation.objective)
    if not costs or low > high + 1e-9 * abs(allocation.objective):
        raise ParameterError(
            "market must be build(true reports), with the same priors, but build returns another: "
            f"its optimum is {again.objective:.10g}, that of market {allocation.objective:.10g}"
        )


def _audit_of(
    ids: list[Any],
    trials: list[_Trial],
    rule: PaymentRule | None,
    rounding: float,
    n_sellers: int,
    pairs: pd.DataFrame | None = None,
) -> IncentiveAudit:
    """Summarise the surplus of each seller's misreports relative to a truthful report."""
    rows, largest = [], 0.0
    for id, trial in zip(ids, trials, strict=True):
        payment, surplus, doubt = trial.gains(rule)
        gains = surplus - surplus[0] - doubt
        gains[0] = 0.0
        best = int(np.argmax(gains))
        largest = max(largest, float(np.max(np.abs(payment))))
        order = np.argsort(trial.report, kind="stable")
        epsilon, sold, off = (c[order] for c in (trial.epsilon, trial.sold, trial.sold_doubt))
        off = off * np.divide(epsilon, sold, out=np.zeros_like(off), where=epsilon > 0)
        rise = float(np.max(np.diff(epsilon) - off[1:] - off[:-1], initial=0.0))
        rows.append(
            {
                "id": id,
                "sensitivity": float(trial.report[0]),
                "epsilon": float(trial.epsilon[0]),
                "payment": float(payment[0]),
                "surplus": float(surplus[0]),
                "max_gain": float(gains[best]),
                "best_misreport": float(trial.report[best]),
                "max_rise": rise if rise > rounding * float(epsilon.max()) else 0.0,
            }
        )
    n_misreports, tolerance = min(trial.report.size for trial in trials) - 1, rounding * largest
    if pairs is not None:
        pairs["share"] = (pairs["max_gain"] / pairs["surplus"]).where(pairs["surplus"] > tolerance)
    table = pd.DataFrame(rows).set_index("id")
    return IncentiveAudit(table, n_sellers, n_misreports, tolerance, pairs)


def _coalitions(
    tried: Callable[[int, Floats, Mapping[int, float]], _Trial],
    rule: PaymentRule | None,
    couples: list[dict[int, Floats]],
    ids: Sequence[Any],
) -> pd.DataFrame:
    """Try all joint misreports of each pair, given the reports of both with the truth first."""
    rows = []
    for grids in couples:
        (one, ones), (other, others) = grids.items()
        sums = np.zeros((3, ones.size, others.size))  # payments, surpluses, errors
        for k, lie in enumerate(others.tolist()):
            sums[:, :, k] += tried(one, ones, {other: lie} if k else {}).gains(rule)
        for k, lie in enumerate(ones.tolist()):
            sums[:, k] += tried(other, others, {one: lie} if k else {}).gains(rule)
        _, surplus, doubt = sums
        gains = surplus - surplus[0, 0] - doubt
        gains[0, 0] = 0.0
        first, second = np.unravel_index(int(np.argmax(gains)), gains.shape)
        rows.append(
            {
                "first": ids[one],
                "second": ids[other],
                "surplus": surplus[0, 0],
                "max_gain": gains[first, second],
                "first_report": ones[first],
                "second_report": others[second],
            }
        )
    return pd.DataFrame(rows).set_index(["first", "second"])


class PaymentIdentity(NamedTuple):
    """A simulation of E[sum t_i] = E[sum psi(c_i) eps_i] (A, Eq. 9).

    Attributes
    ----------
    mean_payment, mean_virtual_cost : float
        Averages of both sides over the draws.
    standard_error : float
        Standard error of the average difference.

    Examples
    --------
    >>> import convexmarket as cm
    >>> uniform = cm.Uniform(0, 1)
    >>> identity = cm.incentives.check_payment_identity(
    ...     uniform, 5, mu=1, sigma=1, gamma=1, draws=50, random_state=0
    ... )
    >>> abs(identity.z_score) < 3
    True
    """

    mean_payment: float
    mean_virtual_cost: float
    standard_error: float

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
    draws: int = 400,
    random_state: np.random.Generator | int,
) -> PaymentIdentity:
    """Draw markets from the prior, and compare payments with virtual costs (A, Eq. 9).

    Parameters
    ----------
    prior : Prior
    n_sellers : int
        Sellers of each market.
    mu, sigma, gamma, cap : float
        Of the market, as in :meth:`Market.standard`.
    draws : int
        Number of markets to draw, at least 2.
    random_state : int or numpy.random.Generator

    Returns
    -------
    PaymentIdentity
        In the currency of the sensitivities.

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
        sellers = Sellers.draw(n_sellers, prior, rng)
        market = Market.standard(sellers, mu=mu, sigma=sigma, gamma=gamma, cap=cap)
        allocation = allocate(market, method="exact")
        paid = payments(market, allocation).sum()
        sides[draw] = paid, sellers.virtual_costs @ allocation.epsilon
    mean, difference = sides.mean(axis=0), sides[:, 0] - sides[:, 1]
    error = float(difference.std(ddof=1) / np.sqrt(draws))
    return PaymentIdentity(float(mean[0]), float(mean[1]), error)
