"""What an online market's plans and offers come to, as tables and totals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.online import OnlineOutcome, OnlinePolicy, audit_quotes
from convexmarket.online.market import MarketPlan
from convexmarket.online.outcome import planned
from convexmarket.priors import Prior

__all__ = [
    "audits_of",
    "comparison",
    "curves_of",
    "offer_rows",
    "plan_rows",
]

CURVE_POINTS = 201
#: How far curves are drawn beyond the last report that sells, relative to where they start.
BEYOND = 1.6


def offer_rows(offers: pd.DataFrame, prior: Prior, guarantees: dict[str, float]) -> pd.DataFrame:
    """Return the offers with what follows from them; weights are those of the training."""
    trained = offers["id"].isin(list(guarantees))
    eta = float(offers["epsilon"][trained].sum())
    reports = offers["sensitivity"].to_numpy()
    return offers[["number", "id", "sensitivity"]].assign(
        virtual_cost=prior.ironed_virtual_cost(reports),
        epsilon=offers["epsilon"],
        payment=offers["payment"],
        surplus=offers["payment"] - reports * offers["epsilon"],
        status=offers["status"],
        plan=offers["plan"],
        weight=np.where(trained, offers["epsilon"] / eta, 0.0),
        guarantee=offers["id"].map(guarantees).fillna(0.0),
    )


def plan_rows(plans: Sequence[MarketPlan]) -> pd.DataFrame:
    """Return one row for each plan."""
    return pd.DataFrame(
        [
            {
                "plan": made.number,
                "after": made.after,
                "cutoff": made.policy.plan.cutoff,
                "highest_sensitivity": made.policy.highest_sensitivity,
                "eta": made.policy.plan.eta,
                "objective": made.policy.plan.objective,
                "lower_bound": made.policy.plan.lower_bound,
                "gap": made.policy.plan.gap,
                "payment_error": made.policy.payment_error,
            }
            for made in plans
        ]
    )


def curves_of(plans: Sequence[MarketPlan]) -> pd.DataFrame:
    """Return the terms of each plan at reports from the cheapest to beyond the last that sells."""
    ends = [made.policy.highest_sensitivity for made in plans]
    low, high = plans[0].policy.support
    last = low + BEYOND * (max([low, *(end for end in ends if np.isfinite(end))]) - low)
    if not last > low:
        last = float(plans[0].policy.prior.quantile(0.5))
    parts = []
    for made, end in zip(plans, ends, strict=True):
        reports = np.linspace(low, min(last, high), CURVE_POINTS)
        if np.isfinite(end):
            reports = np.unique(np.append(reports, end))
        epsilon, payment = made.policy.quote(reports)
        parts.append(
            pd.DataFrame(
                {
                    "plan": made.number,
                    "sensitivity": reports,
                    "epsilon": epsilon,
                    "payment": payment,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def audits_of(plans: Sequence[MarketPlan]) -> pd.DataFrame:
    """Return one audit for each plan: every plan is a menu of terms, fixed before reports."""
    rows = []
    for made in plans:
        audit = audit_quotes(made.policy)
        rows.append(
            {
                "plan": made.number,
                "sellers_audited": audit.n_truths,
                "misreports": audit.n_misreports,
                "max_gain": audit.max_gain,
                "min_surplus": audit.min_surplus,
                "tolerance": audit.tolerance,
                "incentive_compatible": audit.is_incentive_compatible,
                "individually_rational": audit.is_individually_rational,
            }
        )
    return pd.DataFrame(rows)


def comparison(
    offers: pd.DataFrame,
    plans: Sequence[MarketPlan],
    start: OnlinePolicy,
    prior: Prior,
    turned_away: int = 0,
) -> dict[str, Any]:
    """Return what was planned, what came of it, and how many sellers did what.

    Parameters
    ----------
    offers : DataFrame
        As :func:`offer_rows` returns them.
    plans : sequence
        Of the market.
    start : OnlinePolicy
        What the market was planned as.
    prior : Prior
        Whose virtual costs the loss (A, Eq. 11) is taken under.
    turned_away : int
        Sellers who came after the expected number, where that is known.

    Returns
    -------
    dict
        "planned" and "realised" with the keys of :func:`planned`, the latter with paid_loss as
        well; "counts"; "weight_limit", the cap over the number of sellers, or None.
    """
    accepted = (offers["status"] == "accepted").to_numpy()
    epsilon = np.where(accepted, offers["epsilon"], 0.0)
    payment = np.where(accepted, offers["payment"], 0.0)
    outcome = OnlineOutcome(
        sensitivities=offers["sensitivity"].to_numpy(dtype=float),
        epsilon=epsilon,
        payments=payment,
        n_turned_away=turned_away,
        policies=tuple(made.policy for made in plans),
        since=tuple(made.after for made in plans),
        buyer=start.buyer,
    )
    counts = offers["status"].value_counts().to_dict()
    return {
        "planned": planned(start),
        "realised": {
            "sellers": float(len(offers)),
            "bought": float(outcome.n_bought),
            "eta": outcome.eta,
            "payments": float(payment.sum()),
            "loss": outcome.loss(prior),
            "paid_loss": outcome.paid_loss(),
            "largest_epsilon": float(epsilon.max()),
            "largest_weight": float(epsilon.max() / outcome.eta),
        },
        "counts": {"quoted": len(offers)}
        | {status: int(counts.get(status, 0)) for status in ("accepted", "declined")}
        | {"nothing bought": int(counts.get("nothing bought", 0)), "turned away": turned_away},
        "weight_limit": None if start.cap is None else start.cap / start.expected_sellers,
    }
