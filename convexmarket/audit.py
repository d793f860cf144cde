"""Audits of incentives: does anyone gain by lying, does anyone lose by taking part.

An audit does not take the theory's word. It solves the market again at every misreport it tries,
computes what the seller would then be paid and what it would then sell, and compares that with
the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.dispatch import allocate, standard_form_of
from convexmarket.errors import ParameterError
from convexmarket.market import Market
from convexmarket.payments import information_rents, last_sale, payments, reports_and_prior
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers

__all__ = [
    "IncentiveAudit",
    "PaymentIdentity",
    "PaymentRule",
    "audit_incentives",
    "check_payment_identity",
    "truthful_payment",
    "virtual_cost_payment",
]

Floats = NDArray[np.float64]

#: A payment rule: from report z, guarantee eps(z), rent (the integral of eps from z to the top of
#: the support) and virtual cost psi(z), each of shape (n,), to payments, shape (n,).
PaymentRule = Callable[[Floats, Floats, Floats, Floats], Floats]


def truthful_payment(report: Floats, epsilon: Floats, rent: Floats, _: Floats) -> Floats:
    """Pay by A's Eq. (8): the cost, and the guarantees sold at every dearer report."""
    return report * epsilon + rent


def virtual_cost_payment(_: Floats, epsilon: Floats, __: Floats, virtual_cost: Floats) -> Floats:
    """Pay ``psi(c) * eps``, as B's Theorem A.3 proposes: right in expectation, not truthful."""
    sold = epsilon > 0
    return np.where(sold, np.where(sold, virtual_cost, 0.0) * epsilon, 0.0)


@dataclass(frozen=True, eq=False)
class IncentiveAudit:
    """What an audit found.

    Attributes
    ----------
    table : DataFrame
        One row per audited seller: id, sensitivity, epsilon, payment, surplus (payment less
        cost, at the truth), max_gain (largest surplus of any misreport tried, less the truthful
        one) and best_misreport.
    n_sellers : int
        Sellers of the market; the table may hold a sample of them.
    n_misreports : int
        Misreports tried per seller.
    tolerance : float
        Gains and losses up to this, in the currency of the payments, count as rounding.
    total_payment, expected_payment : float
        Sum of the truthful payments of all sellers, and sum of psi(c_i)*eps_i, which equals it
        in expectation over the prior (A, Eq. 9).
    """

    table: pd.DataFrame
    n_sellers: int
    n_misreports: int
    tolerance: float
    total_payment: float
    expected_payment: float

    @property
    def max_gain(self) -> float:
        """Largest gain of any audited seller from any misreport tried."""
        return float(self.table["max_gain"].max())

    @property
    def min_surplus(self) -> float:
        """Smallest surplus of any audited seller who tells the truth."""
        return float(self.table["surplus"].min())

    @property
    def is_incentive_compatible(self) -> bool:
        """Whether no misreport gained more than rounding."""
        return self.max_gain <= self.tolerance

    @property
    def is_individually_rational(self) -> bool:
        """Whether nobody lost more than rounding by taking part."""
        return self.min_surplus >= -self.tolerance

    def __repr__(self) -> str:
        return (
            f"IncentiveAudit({len(self.table)} of {self.n_sellers} sellers, "
            f"{self.n_misreports} misreports each: max_gain={self.max_gain:.2e}, "
            f"min_surplus={self.min_surplus:.2e}, tolerance={self.tolerance:.1e})"
        )


def audit_incentives(
    market: Market,
    *,
    rule: PaymentRule = truthful_payment,
    misreports: int = 33,
    max_sellers: int = 200,
    rng: np.random.Generator | None = None,
) -> IncentiveAudit:
    """Try misreports of every seller (or of a sample) and report the largest gain and loss.

    Parameters
    ----------
    market : Market
        Of the standard form, with sellers whose prior is known.
    rule : callable
        Payment rule to audit; Eq. (8) unless said otherwise.
    misreports : int
        Reports tried per seller, spread evenly over the part of the support where it sells, with
        the report at which it ceases to sell tried from both sides and the top of the support.
    max_sellers : int
        Above this number, a random sample of so many sellers is audited.
    rng : numpy.random.Generator, optional
        Draws the sample; a fixed one where left out.

    Returns
    -------
    IncentiveAudit

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    >>> cm.audit_incentives(market).is_incentive_compatible
    True
    """
    if misreports < 2 or max_sellers < 1:
        raise ParameterError(
            f"misreports is {misreports} and max_sellers {max_sellers}; give at least 2 and 1"
        )
    reports, prior = reports_and_prior(market)
    form = standard_form_of(market, "the incentive audit")
    allocation = allocate(market, method="exact")
    paid = payments(market, allocation)
    who = np.arange(reports.size)
    if who.size > max_sellers:
        rng = np.random.default_rng(0) if rng is None else rng
        who = np.sort(rng.choice(who, max_sellers, replace=False))
    truth = reports[who]
    curve = OwnReportCurve(form)
    grid = _misreports(curve, prior, who, truth, misreports)
    seller = np.repeat(who, grid.shape[1])
    epsilon, payment = (
        values.reshape(grid.shape) for values in _terms(curve, prior, seller, grid.ravel(), rule)
    )
    surplus = payment - truth[:, None] * epsilon  # column 0 is the truth
    gains = surplus - surplus[:, :1]
    best = np.argmax(gains, axis=1)
    rows = np.arange(who.size)
    table = pd.DataFrame(
        {
            "id": [market.sellers.ids[i] for i in who],
            "sensitivity": truth,
            "epsilon": epsilon[:, 0],
            "payment": payment[:, 0],
            "surplus": surplus[:, 0],
            "max_gain": gains[rows, best],
            "best_misreport": grid[rows, best],
        }
    )
    return IncentiveAudit(
        table=table,
        n_sellers=reports.size,
        n_misreports=grid.shape[1] - 1,
        tolerance=1e-9 * float(max(np.max(np.abs(payment)), np.finfo(float).tiny)),
        total_payment=float(paid.sum()),
        expected_payment=allocation.eta * form.expected_cost(allocation.weights),
    )


def _terms(
    curve: OwnReportCurve, prior: Prior, seller: NDArray[np.intp], z: Floats, rule: PaymentRule
) -> tuple[Floats, Floats]:
    """Return what each seller sells and is paid when it reports z; arrays of shape (n,)."""
    virtual = np.asarray(prior.ironed_virtual_cost(z))
    epsilon = curve(seller, virtual).epsilon
    return epsilon, rule(z, epsilon, information_rents(curve, prior, seller, z), virtual)


def _misreports(
    curve: OwnReportCurve, prior: Prior, seller: NDArray[np.intp], truth: Floats, count: int
) -> Floats:
    """Return the truth and the misreports to try, shape (n, count + 4)."""
    low, high = prior.support
    ceases = last_sale(curve, prior, seller, np.full(seller.size, low))
    step = 1e-6 * (ceases - low)
    top = np.full(seller.size, high) if np.isfinite(high) else 2.0 * ceases
    # From half a step above the bottom, where a virtual cost may be 0 and privacy free.
    spread = low + (ceases - low)[:, None] * np.linspace(0.5 / count, 1.0, count)
    edges = np.column_stack((ceases - step, np.minimum(ceases + step, top), top))
    return np.column_stack((truth, spread, edges))


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
    prior: Prior,
    n_sellers: int,
    *,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None = None,
    draws: int = 400,
    rng: np.random.Generator,
) -> PaymentIdentity:
    """Draw markets from the prior and compare payments with virtual costs (A, Eq. 9)."""
    sides = np.empty((draws, 2))
    for draw in range(draws):
        sellers = Sellers(prior.sample(n_sellers, rng), prior)
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
