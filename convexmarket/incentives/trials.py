"""One market at other reports: how it is made anew, and what a seller sells and is paid there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.result import Allocation
from convexmarket.checks import shown
from convexmarket.errors import ParameterError
from convexmarket.incentives.rents import SolvedCurve, doubt_of_sold
from convexmarket.incentives.rules import estimate_payments, reports_of
from convexmarket.market import Market
from convexmarket.priors import Prior

__all__ = [
    "Build",
    "PaymentRule",
    "built_market",
    "terms_of",
    "top_of",
    "truthful_payment",
    "virtual_cost_payment",
]

Floats = NDArray[np.float64]

#: Where a support without a top has to end, misreports go up to this quantile.
_LIKELY = 0.999

#: From the reports of all sellers, shape (m,), to the market that they make.
Build = Callable[[Floats], Market]

#: A payment rule: from report z, privacy cost u(eps(z)) (eps(z) itself where it is linear), rent
#: (the integral of u(eps) from z to the top of the support) and virtual cost psi(z), each of shape
#: (n,), to payments, shape (n,).
PaymentRule = Callable[[Floats, Floats, Floats, Floats], Floats]


def truthful_payment(report: Floats, epsilon: Floats, rent: Floats, _: Floats) -> Floats:
    """Pay by A's Eq. (8): the cost, and the guarantees sold at every dearer report.

    Parameters
    ----------
    report, epsilon, rent, virtual_cost : ndarray
        Of one seller at several reports: the report, what it sells, the integral of what dearer
        reports sell, and the virtual cost. The order matters, the names do not.

    Returns
    -------
    ndarray
        What is paid at each report, in the currency of the reports.

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
    """Pay ``psi(c) * eps``, as B's Theorem A.3 proposes: right in expectation, not truthful.

    Parameters
    ----------
    report, epsilon, rent, virtual_cost : ndarray
        Of one seller at several reports: the report, what it sells, the integral of what dearer
        reports sell, and the virtual cost. The order matters, the names do not.

    Returns
    -------
    ndarray
        What is paid at each report, in the currency of the reports.

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


def built_market(build: Build, reports: Floats) -> Market:
    """Return the market that the reports make, or say why it is none."""
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
    own = built.sellers.sensitivities
    if own is None or not np.allclose(own, reports, rtol=1e-9, atol=0.0):
        raise ParameterError(
            "build returned a market whose sellers do not have the reports it was given; make "
            "them of its argument, as in Sellers(reports, prior=...)"
        )
    return built


def terms_of(market: Market, allocation: Allocation, seller: int, gap: float) -> tuple[float, ...]:
    """Return what a seller reports, its virtual cost, what it sells and what it is paid for it.

    That is eps, u(eps), the payment, and how far the payment and u(eps) may be off.
    """
    curve = SolvedCurve(market, allocation, gap)
    virtual = float(market.sellers.virtual_costs[seller])
    point = curve.at(seller, virtual)
    paid = estimate_payments(market, allocation, gap=gap, sellers=[seller], assume_monotone=True)
    return (
        float(reports_of(market)[seller]),
        virtual,
        point.epsilon,
        point.sold,
        float(paid.amounts[0]),
        float(paid.errors[0]),
        doubt_of_sold(point, virtual, curve.gamma),
    )


def top_of(prior: Prior, truth: float) -> float:
    """Return the top of a support, or a report that is hardly ever exceeded where it has none."""
    high = prior.support[1]
    return high if np.isfinite(high) else max(float(prior.quantile(_LIKELY)), 2.0 * truth)
