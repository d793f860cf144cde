r"""What sellers are paid whose data were looked at, so that the truth is their best reply.

A's Theorem III.3 pays by Eq. (8) whatever the loss: with the model minimised out, the optimal
objective is a minimum of functions that are affine in one seller's virtual cost, hence concave,
and rents are differences of optima as in :mod:`convexmarket.incentives.rents`. That takes the
*global* optimum at every report. A local one need not sell less the more is asked for it, and then
no payment is truthful: of two reports :math:`z < z'` with :math:`u(z) < u(z')`, the two lies, from
one to the other and back, gain :math:`(z'-z)(u(z')-u(z))` together, whatever is paid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from convexmarket.allocation.result import CertifiedPurchase
from convexmarket.checks import check_count, check_instance, check_share
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.incentives.rents import SolvedCurve
from convexmarket.incentives.rules import PaymentEstimate, method_of, positions_of, reports_of
from convexmarket.joint.dispatch import allocate_jointly
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.result import JointAllocation
from convexmarket.market import Market
from convexmarket.sellers import Sellers

__all__ = ["audit_joint_reports", "joint_payments"]


def joint_payments(
    joint: JointMarket,
    allocation: JointAllocation,
    *,
    tol: float = 1e-4,
    gap: float = 1e-8,
    sellers: ArrayLike | None = None,
) -> PaymentEstimate:
    """Return payments under Eq. (8) for a global optimum, and how far each may be off.

    They were chosen by looking at the data, and leak them.

    Parameters
    ----------
    joint : JointMarket
        Small: it is solved again at other reports of every seller who is paid.
    allocation : JointAllocation
        Its global optimum, with the proof.
    tol : float
        Error at which no further report is solved, relative to the cost of what the seller sells.
    gap : float
        Relative gap of the solves.
    sellers : array_like of int, optional
        Positions of the sellers to be paid; all where left out.

    Returns
    -------
    PaymentEstimate
        Of method "envelope": errors come from the certificates of the solves.

    Raises
    ------
    NotSupportedError
        If an optimum, at the truth or at another report, is not proven global; or if truthful
        payments are not known to exist in the market.
    ParameterError
        If an argument is out of its range, or the allocation is of another market.

    Examples
    --------
    >>> import convexmarket as cm
    >>> reports = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> objective = 2.0 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments()
    >>> X, y = [[0.6, 0.8], [-0.6, 0.2], [0.3, -0.9]], [1, -1, -1]
    >>> joint = cm.JointMarket(cm.Market(reports, objective), X, y, regularization=0.5)
    >>> joint_payments(joint, cm.allocate_jointly(joint)).amounts.round(2)
    array([0.56, 0.47, 0.33])
    """
    check_instance("joint", joint, JointMarket)
    check_instance("allocation", allocation, JointAllocation)
    check_share("tol", tol)
    check_share("gap", gap)
    market = joint.market
    reports = reports_of(market)
    who = positions_of(sellers, reports.size)
    if method_of(market, assume_monotone=False) not in ("exact", "envelope"):
        raise NotSupportedError("joint payments need reports that enter by Payments() only")
    if allocation.weights.size != reports.size:
        raise ParameterError("allocation is of another market; give that of joint")
    _check_global(allocation)
    lost = np.asarray(market.privacy_cost(allocation.epsilon))
    amounts, errors = reports * lost, np.zeros(reports.size)
    curve = _JointCurve(joint, allocation, gap)
    bought = who[lost[who] > 0]
    for prior, place in market.sellers.by_prior(bought):
        own = bought[place]
        rents, errors[own] = curve.rents(prior, own, reports[own], tol * amounts[own])
        amounts[own] += rents
    return PaymentEstimate(
        amounts[who], errors[who], who, "envelope", market.incentives, curve.n_solves
    )


def audit_joint_reports(
    joint: JointMarket,
    solve: Callable[[JointMarket], JointAllocation] = allocate_jointly,
    *,
    misreports: int = 9,
    sellers: ArrayLike | None = None,
) -> pd.DataFrame:
    """Say whether any payments can make the truth the best reply under a joint solver.

    Parameters
    ----------
    joint : JointMarket
    solve : callable
        The solver that is audited, the same at every report.
    misreports : int
        Reports tried beside the truth, spread evenly over the support from half a step above its
        bottom, where privacy may be free.
    sellers : array_like of int, optional
        Positions of the sellers to be tried; all where left out.

    Returns
    -------
    DataFrame
        By id: sensitivity; lower and higher, the two reports at which what is sold contradicts
        every payment most; rise, by how much more is sold at the higher; unavoidable_gain, what
        one of the two lies gains at least, whatever is paid (0 where no pair contradicts).

    Raises
    ------
    ParameterError
        If an argument is not of its kind.

    Examples
    --------
    >>> import convexmarket as cm
    >>> reports = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> objective = 2.0 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments()
    >>> X, y = [[0.6, 0.8], [-0.6, 0.2], [0.3, -0.9]], [1, -1, -1]
    >>> joint = cm.JointMarket(cm.Market(reports, objective), X, y, regularization=0.5)
    >>> bool(audit_joint_reports(joint, misreports=2).unavoidable_gain.max() < 1e-9)
    True
    """
    check_instance("joint", joint, JointMarket)
    check_count("misreports", misreports)
    market = joint.market
    reports = reports_of(market)
    rows = []
    for i in positions_of(sellers, reports.size).tolist():
        prior, own = market.sellers.prior_of(i), float(reports[i])
        low, high = prior.support[0], min(prior.support[1], float(prior.quantile(0.999)))
        tried = np.unique(
            [own, *(low + (high - low) * np.linspace(0.5 / misreports, 1, misreports))]
        )
        sold = np.array(
            [
                float(market.privacy_cost(solve(_changed(joint, other)).epsilon[i]))
                for other in (market.sellers.with_report(i, float(z)) for z in tried)
            ]
        )
        together = (tried[None, :] - tried[:, None]) * (sold[None, :] - sold[:, None])
        a, b = sorted(np.unravel_index(int(together.argmax()), together.shape))
        rows.append(
            (market.sellers.ids[i], own, tried[a], tried[b], sold[b] - sold[a], together.max() / 2)
        )
    columns = ["id", "sensitivity", "lower", "higher", "rise", "unavoidable_gain"]
    return pd.DataFrame(rows, columns=columns).set_index("id")


class _JointCurve(SolvedCurve):
    """The joint optimum as one seller's virtual cost varies, refused where it is not proven."""

    def __init__(self, joint: JointMarket, allocation: JointAllocation, gap: float) -> None:
        super().__init__(joint.market, allocation, gap)  # type: ignore[arg-type]
        self._joint = joint

    def _solve_at(self, sellers: Sellers) -> CertifiedPurchase:
        answer = allocate_jointly(_changed(self._joint, sellers), gap=self._gap)
        _check_global(answer)
        return answer


def _changed(joint: JointMarket, sellers: Sellers) -> JointMarket:
    """Return the problem with other reports."""
    market = Market(sellers, joint.market.objective, joint.market.constraints)
    return replace(joint, market=market)


def _check_global(allocation: JointAllocation) -> None:
    if allocation.status != "global":
        raise NotSupportedError(
            f"an optimum on the way is {allocation.status!r}, and payments at a local one may not "
            "exist; raise mu or the regularization until the problem is convex "
            "(cm.joint.convexity_ratio < 1), or see what audit_joint_reports finds"
        )
