"""Audit incentives by measuring the gains from single and joint misreports.

An audit solves the market again at every misreport, and compares surplus and guarantee with their
values at the true report. Bounds on errors due to gaps of the solves are subtracted from each gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.choose_method import allocate, best_method
from convexmarket.allocation.partitioned_sellers import PartedAllocation
from convexmarket.checks import check_count, check_instance, generator_of, shown
from convexmarket.display import Shown, axes
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.incentives.rents import Curve, ExactCurve
from convexmarket.incentives.rules import curve_of, reports_of
from convexmarket.market import Market
from convexmarket.priors import Prior

__all__ = ["Build", "IncentiveAudit", "PaymentRule", "audit_incentives"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Function from the reports of all sellers, shape (m,), to the market of these sellers.
Build = Callable[[Floats], Market]

#: Payment rule, as described for the parameter ``rule`` of :func:`audit_incentives`.
PaymentRule = Callable[[Floats, Floats, Floats, Floats], Floats]

_GAP, _TOL = 1e-8, 5e-2  # relative gap of solves and relative error of payments without a curve
_EXACT, _SOLVED = 1e-9, 1e-6  # tolerances for rounding in gains, after exact and inexact solves
_NEAR = (0.99, 1.01)  # multiples of the true report that serve as misreports
#: Joint misreports (fractions of the support, multiples of the truth) for inexact and exact solves.
_PAIRS: Any = ([], [0.9, 1.1]), ([0.25, 0.5, 0.75, 1.0], [0.9, 0.99, 1.01, 1.1])


@dataclass(frozen=True, eq=False)
class IncentiveAudit(Shown):
    """Results of an incentive audit of single misreports and, if requested, of pairs.

    Attributes
    ----------
    n_sellers, n_misreports : int
        Number of sellers in the market, and number of misreports of each audited seller.
    tolerance : float
        Largest gain or loss that is treated as rounding, in the currency of the payments.
    coalitions : DataFrame or None
        Table with one row for each pair, indexed by the ids ``first`` and ``second``. The columns
        are surplus (payments less costs of the pair at the truth), max_gain (largest increase of
        the surplus by a joint misreport, less errors), first_report and second_report (the reports
        with this gain), and share (max_gain divided by surplus).

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
        """Return a table with one row for each audited seller, indexed by id.

        Returns
        -------
        DataFrame
            Columns: sensitivity, epsilon, payment, payment_error (bound on the error of its rent,
            as in :func:`estimate_payments`), surplus (payment less cost), max_gain (largest
            increase of the surplus by a misreport, less errors), best_misreport and max_rise
            (largest increase of the guarantee from one report to the next, less errors).
        """
        return self._table.copy()

    def plot(self, ax: Any = None) -> Any:
        """Plot the largest gain of any misreport against the sensitivity of each seller."""
        ax = axes(ax, xlabel="sensitivity", ylabel="largest gain of a misreport")
        ax.plot(self._table["sensitivity"], self._table["max_gain"], ".", ms=4)
        ax.axhline(self.tolerance, color="0.6", lw=1, label="rounding")
        ax.legend()
        return ax

    @property
    def max_gain(self) -> float:
        """Largest gain of any audited seller from a single misreport."""
        return float(self._table["max_gain"].max())

    @property
    def min_surplus(self) -> float:
        """Smallest surplus of any audited seller at the true report."""
        return float(self._table["surplus"].min())

    @property
    def max_rise(self) -> float:
        """Largest increase of a guarantee with the seller's report, or 0 if none increases."""
        return float(self._table["max_rise"].max())

    @property
    def is_incentive_compatible(self) -> bool:
        """Whether no single misreport increases the surplus by more than the tolerance."""
        return self.max_gain <= self.tolerance

    @property
    def is_individually_rational(self) -> bool:
        """Whether no audited seller loses more than the tolerance by participating."""
        return self.min_surplus >= -self.tolerance

    def summary(self) -> dict[str, Any]:
        """Return the results as a JSON-compatible dictionary."""
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
    """Measure the gains from misreports for all sellers or for a sample of sellers.

    Parameters
    ----------
    market : Market
        Market at the true reports. The sellers must have priors.
    allocation : Allocation or PartedAllocation, optional
        Result of ``allocate(market)``, if it was already computed.
    build : callable, optional
        Function from the reports of all sellers, shape (m,), to their market. ``build`` is required
        if numbers in the market depend on the reports, such as ``Losses(-20 * reports)``. The audit
        then builds the market and computes the payments at every misreport.
    rule : callable, optional
        Payment rule to audit, Eq. (8) by default. The function computes payments from the reports
        z, the privacy costs u(eps(z)), the rents (integrals of u(eps) from z to the top of the
        support) and the virtual costs psi(z), each of shape (n,).
    misreports : int, optional
        Number of misreports of each seller, in addition to the top of the support and two reports
        near the truth. By default, 33 misreports cover the reports at which the seller sells in the
        papers' problem, and 12 misreports cover the support with ``build``. In other markets, 9
        misreports, or 3 if projections do not apply, extend to 4 times the truth.
    max_sellers : int, optional
        Largest number of audited sellers. The default is 200 for the papers' problem, 16 if
        projections solve the market, and 12 otherwise.
    coalitions : int
        Number of random pairs. In the papers' problem, 80 joint misreports of each pair are tested
        (deviations of 1 % and 10 %, quarters of the support); in other markets, 8 (of 10 %).
    random_state : numpy.random.Generator or int, default 0
        Random numbers for the sample of sellers and for the pairs.

    Returns
    -------
    IncentiveAudit

    Raises
    ------
    ParameterError
        If ``build`` does not return ``market`` at the true reports.
    NotSupportedError
        If ``build`` or ``coalitions`` is given, but the sellers are in partitions.
    ConvexMarketError
        If a market built at a misreport has no optimum or no payments.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    >>> cm.audit_incentives(market).is_incentive_compatible
    True
    """
    check_instance("market", market, Market)
    if allocation is not None:
        kinds = (Allocation, PartedAllocation)
        check_instance("allocation", allocation, kinds, "the result of allocate(market)")
    check_instance("build", build, Callable | None, "a function, or None")
    check_instance("rule", rule, Callable | None, "a function, or None")
    check_count("coalitions", coalitions, 0)
    sellers, parts, m = market.sellers, market.sellers.parts, len(market.sellers)
    if parts is not None and (build is not None or coalitions):
        raise NotSupportedError(
            "build and coalitions require sellers in memory; use Sellers(reports.compute(), prior)"
        )
    if coalitions and m < 2:
        raise ParameterError(f"coalitions is {coalitions}, but the market has one seller; omit it")
    exact = parts is not None or (market.form.exact is not None and build is None)
    usual = (33, 200) if exact else (12, 12)
    if not exact and build is None:
        usual = (3, 12) if best_method(market) == "branch_and_bound" else (9, 16)
    count = check_count("misreports", usual[0] if misreports is None else misreports, 2)
    most = check_count("max_sellers", usual[1] if max_sellers is None else max_sellers)
    rng = generator_of(random_state)
    who = np.arange(m) if m <= most else np.sort(rng.choice(m, most, replace=False))
    shares = np.linspace(0.5 / count, 1.0, count)  # omit the lower end, where privacy can be free
    if parts is not None:
        whole: Any = allocate(market) if allocation is None else allocation
        some, ids = parts.take(who)
        groups = [(whole.prior, np.arange(who.size))]
        trial = _all_alone(ExactCurve(whole.curve(some)), groups, groups[0][1], some, shares)
        return _audit_of(ids, trial, rule, _EXACT, m)
    truth = reports_of(market)
    if allocation is None or not exact:
        allocation = allocate(market, gap=_GAP)
    curve, pairs = curve_of(market, allocation, _GAP, _TOL), None

    def tried(seller: int, z: Floats, lies: Mapping[int, float]) -> _Trial:
        if build is not None:
            return _built(build, truth, seller, z, lies)
        changed, others = curve, sellers
        for i, lie in lies.items():
            others = others.with_report(i, lie)
        if lies:
            lying = Market(others, market.objective, market.constraints)
            changed = curve_of(lying, allocate(lying, gap=_GAP), _GAP, _TOL)
        return _tried(changed, sellers.prior_of(seller), np.array([seller]), z[None])

    def reports(seller: int, shares: ArrayLike, factors: ArrayLike) -> Floats:
        prior, at = sellers.prior_of(seller), truth[[seller]]
        return _reports(prior, at, _top(prior, at), shares, factors)[0]

    if build is None:
        trial = _all_alone(curve, sellers.by_prior(who), who, truth[who], shares)
    else:
        trial = _joined([tried(i, reports(i, shares, _NEAR), {}) for i in who.tolist()])
        costs, sold = market.sellers.virtual_costs[who], allocation.epsilon[who]
        same = np.allclose(trial.virtual[:, 0], costs, rtol=1e-9)
        if not same or not np.allclose(trial.epsilon[:, 0], sold, 1e-2, 1e-2 * sold.max()):
            raise ParameterError(
                "market must be build(true reports), with the same priors, but in the result of "
                f"build, seller {who[0]} sells {trial.epsilon[0, 0]:.6g} instead of {sold[0]:.6g}"
            )
    if coalitions:
        first = rng.choice(np.flatnonzero(allocation.epsilon > 0), coalitions)
        couples = np.column_stack((first, (first + rng.integers(1, m, coalitions)) % m)).tolist()
        rows = [_pair(tried, rule, {i: reports(i, *_PAIRS[exact]) for i in two}) for two in couples]
        names = [tuple(sellers.ids[i] for i in two) for two in couples]
        pairs = pd.DataFrame(rows, pd.MultiIndex.from_tuples(names, names=["first", "second"]))
    ids = [sellers.ids[i] for i in who]
    return _audit_of(ids, trial, rule, _EXACT if exact else _SOLVED, m, pairs)


class _Trial(NamedTuple):
    """Outcomes of reports. Each row is a seller, and the first column is its true report."""

    report: Floats
    virtual: Floats
    epsilon: Floats
    sold: Floats
    rent: Floats
    rent_error: Floats
    sold_error: Floats
    gain_error: Floats  # bound on the error of the difference to the rent at the truth

    def surplus(self, rule: PaymentRule | None) -> tuple[Floats, Floats, Floats, Floats]:
        """Return payments, surpluses, and bounds on the errors of gains and of surpluses."""
        truth, payment = self.report[:, :1], self.report * self.sold + self.rent
        if rule is not None:
            rows = zip(self.report, self.sold, self.rent, self.virtual, strict=True)
            answers = np.array([rule(*row) for row in rows], dtype=object)
            if answers.shape != self.report.shape or pd.isna(answers).any():
                raise ParameterError("rule must return a payment for each report, of shape (n,)")
            payment = answers.astype(float)
        off = np.abs(self.report - truth) * (self.sold_error + self.sold_error[:, :1])
        return payment, payment - truth * self.sold, self.gain_error + off, self.rent_error + off


def _joined(trials: list[_Trial], axis: int = 0) -> _Trial:
    return _Trial(*(np.concatenate(parts, axis) for parts in zip(*trials, strict=True)))


def _all_alone(
    curve: Curve, groups: Iterable[tuple[Prior, Ints]], who: Ints, truth: Floats, shares: Floats
) -> _Trial:
    """Compute the outcomes of single misreports, where a group is a prior and its sellers."""
    trials, places = [], []
    for prior, place in groups:
        ceases = curve.last_sale(prior, who[place], truth[place])
        top = _top(prior, ceases)
        z = _reports(prior, truth[place], np.minimum(ceases, top), shares, _NEAR)
        trials.append(_tried(curve, prior, who[place], np.column_stack((z, top))))
        places.append(place)
    order = np.argsort(np.concatenate(places))
    return _Trial(*(column[order] for column in _joined(trials)))


def _answers(curve: Curve, prior: Prior, seller: Ints, z: Floats, coarse: bool) -> _Trial:
    """Compute guarantees and rents at the reports z in one market, one row for each seller."""
    who, reports = np.repeat(seller, z.shape[1]), z.ravel()
    virtual = np.asarray(prior.ironed_virtual_cost(reports))
    epsilon, sold, doubt = curve.answers(who, virtual)
    rent, error = np.zeros((2, reports.size))
    if np.any(sold > 0):
        rent, error = curve.rents(prior, who, reports, coarse)
    columns = (reports, virtual, epsilon, sold, rent, error, doubt, error)
    return _Trial(*(column.reshape(z.shape) for column in columns))


def _tried(curve: Curve, prior: Prior, seller: Ints, z: Floats) -> _Trial:
    """Compute outcomes. Rents are accurate at the truth; their differences to it are coarse."""
    trial = _answers(curve, prior, seller, z, coarse=True)
    rent, error = trial.rent[:, :1].copy(), trial.rent_error[:, :1].copy()
    some = np.flatnonzero(trial.sold[:, 0] > 0)
    rent[some, 0], error[some, 0] = curve.rents(prior, seller[some], z[some, 0])
    rents = trial.rent + (rent - trial.rent[:, :1])
    apart = np.abs(trial.rent_error - trial.rent_error[:, :1])
    return trial._replace(rent=rents, rent_error=error + apart, gain_error=apart)


def _built(
    build: Build, truth: Floats, seller: int, z: Floats, lies: Mapping[int, float]
) -> _Trial:
    """Build a market for each report of one seller, and compute the seller's outcomes."""
    trials, who = [], np.array([seller])
    for report in z.tolist():
        reports = truth.copy()
        reports[[*lies, seller]] = [*lies.values(), report]
        try:
            market = build(reports.copy())
            given = market.sellers.sensitivities if isinstance(market, Market) else None
            if given is None or len(given) != len(truth) or not np.allclose(given, reports, atol=0):
                raise ParameterError(
                    f"build returned {shown(market)}; give a function from the reports, shape (m,),"
                    " to a Market of sellers with these reports"
                )
            answer = allocate(market, gap=_GAP)
            curve, prior = curve_of(market, answer, _GAP), market.sellers.prior_of(seller)
            trials.append(_answers(curve, prior, who, np.array([[report]]), coarse=False))
        except ConvexMarketError as error:
            raise type(error)(f"where seller {seller} reports {report:.6g}: {error}") from error
    trial = _joined(trials, axis=1)
    return trial._replace(gain_error=trial.rent_error + trial.rent_error[:, :1])


def _top(prior: Prior, least: Floats) -> Floats:
    """Return each seller's highest misreport: the upper end of the support or a high quantile."""
    low, high = prior.support
    if np.isinf(high):
        return np.maximum(prior.quantile(0.999), 2.0 * least)
    if np.isinf(prior.ironed_virtual_cost(high)):  # the market can be infeasible at this end
        high = low + 0.999 * (high - low)
    return np.full(least.size, high)


def _reports(
    prior: Prior, truth: Floats, end: Floats, shares: ArrayLike, factors: ArrayLike
) -> Floats:
    """Return true reports, reports between the lower end and ``end``, and reports near the truth.

    Reports near the truth cover at most half of the interval to each end of the support.
    """
    (low, high), at = prior.support, truth[:, None]
    near = np.clip(at * np.asarray(factors), 0.5 * (at + low), 0.5 * (at + high))
    return np.column_stack((truth, low + np.outer(end - low, np.asarray(shares)), near))


def _audit_of(
    ids: list[Any],
    trial: _Trial,
    rule: PaymentRule | None,
    rounding: float,
    n_sellers: int,
    pairs: pd.DataFrame | None = None,
) -> IncentiveAudit:
    """Create the result of an audit from the outcomes of all reports."""
    payment, surplus, error, _ = trial.surplus(rule)
    gains = surplus - surplus[:, :1] - error
    gains[:, 0] = 0.0
    best = np.arange(len(gains)), np.argmax(gains, axis=1)
    order = np.argsort(trial.report, axis=1, kind="stable")
    epsilon, sold, off = (
        np.take_along_axis(column, order, axis=1)
        for column in (trial.epsilon, trial.sold, trial.sold_error)
    )
    off = off * np.divide(epsilon, sold, out=np.zeros_like(off), where=epsilon > 0)
    rise = np.max(np.diff(epsilon) - off[:, 1:] - off[:, :-1], axis=1, initial=0.0)
    columns = {
        "sensitivity": trial.report[:, 0],
        "epsilon": trial.epsilon[:, 0],
        "payment": payment[:, 0],
        "payment_error": trial.rent_error[:, 0],
        "surplus": surplus[:, 0],
        "max_gain": gains[best],
        "best_misreport": trial.report[best],
        "max_rise": np.where(rise > rounding * epsilon.max(axis=1), rise, 0.0),
    }
    tolerance = rounding * float(np.abs(payment).max(initial=0.0))
    if pairs is not None:
        pairs["share"] = (pairs["max_gain"] / pairs["surplus"]).where(pairs["surplus"] > tolerance)
    table = pd.DataFrame(columns, index=pd.Index(ids, name="id"))
    return IncentiveAudit(table, n_sellers, gains.shape[1] - 1, tolerance, pairs)


def _pair(
    tried: Callable[[int, Floats, Mapping[int, float]], _Trial],
    rule: PaymentRule | None,
    grids: dict[int, Floats],
) -> dict[str, Any]:
    """Return the best joint misreport of two sellers on grids that begin with the truth."""
    (i, firsts), (j, seconds) = grids.items()
    sums = np.zeros((2, firsts.size, seconds.size))  # surpluses and their errors
    for k, lie in enumerate(seconds.tolist()):
        sums[:, :, k] += np.array(tried(i, firsts, {j: lie} if k else {}).surplus(rule))[1::2, 0]
    for k, lie in enumerate(firsts.tolist()):
        sums[:, k] += np.array(tried(j, seconds, {i: lie} if k else {}).surplus(rule))[1::2, 0]
    gains = sums[0] - sums[0, 0, 0] - sums[1] - sums[1, 0, 0]
    gains[0, 0] = 0.0
    a, b = np.unravel_index(int(np.argmax(gains)), gains.shape)
    best = {"max_gain": gains[a, b], "first_report": firsts[a], "second_report": seconds[b]}
    return {"surplus": sums[0, 0, 0], **best}
