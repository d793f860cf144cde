"""What the terminal shows of an online market: its terms, an offer, a list, how far it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from convexmarket.lab.report.terminal import pairs_table
from convexmarket.lab.report.words import count, format_number
from convexmarket.online.lists import QuotedList
from convexmarket.online.market import Offer, OnlineMarket
from convexmarket.online.record import highest_sensitivity, planned, start_of

__all__ = ["list_words", "market_state", "offer_words", "status_tables", "terms_table"]

#: New plans that are listed one by one; the latest of more.
MOST_PLANS = 12


def terms_table(market: OnlineMarket) -> Table:
    """Return what a new market promises and expects."""
    policy = market.policy
    start = start_of(policy)
    expected, plan = planned(start), start.plan
    cheapest = start.support[0]
    rows = [
        ("sellers expected", f"{start.expected_sellers:,}"),
        ("nothing is bought from a virtual cost of", format_number(plan.cutoff)),
        ("the largest sensitivity bought from is", format_number(highest_sensitivity(start))),
        ("largest guarantee", format_number(expected["largest_epsilon"])),
        ("paid for it", format_number(start.quote(cheapest).payment)),
        ("if all come and accept, and the prior is right:", ""),
        ("  sellers bought from, about", format_number(round(expected["bought"]))),
        ("  total privacy eta", format_number(expected["eta"], 4)),
        ("  payments, about", format_number(expected["payments"], 4)),
        ("  buyer's loss", format_number(expected["loss"], 4)),
        ("  largest weight", format_number(expected["largest_weight"])),
        ("new plans on the way", f"{len(policy.stages):,}"),
    ]
    if policy.opening.plan.eta == 0:
        rows.append(("nothing is bought before seller", f"{policy.stages[0] + 1:,}"))
    return pairs_table("Terms", rows)


def offer_words(offer: Offer) -> str:
    """Return an offer in a sentence or two, as one would tell it to the seller."""
    who = f"Seller {offer.id}, number {offer.number:,}, at a sensitivity of {offer.sensitivity:g}"
    if offer.status == "nothing bought":
        return f"{who}: nothing is bought, nothing is paid, and the row is not used."
    factor = format_number(math.exp(offer.epsilon)) if offer.epsilon < 700 else "∞"
    answer = "" if offer.status == "offered" else f" The seller has {offer.status}."
    return (
        f"{who}: payment {offer.payment:.6g} for a guarantee of epsilon = {offer.epsilon:.6g}. "
        "With any other row in its place, no released model would be more than exp(epsilon) = "
        f"{factor} times as likely or as unlikely.{answer}"
    )


def list_words(quoted: QuotedList) -> Table:
    """Return what became of a list of arrivals."""
    bought = quoted.offers["epsilon"] > 0
    rows = [
        ("quoted", f"{len(quoted.offers):,}"),
        ("of them before, at the same terms", f"{quoted.repeated:,}"),
        ("offered something", f"{int(bought.sum()):,}"),
        ("privacy offered to them", format_number(float(quoted.offers["epsilon"].sum()), 4)),
        ("payments offered to them", format_number(float(quoted.offers["payment"].sum()), 4)),
        ("turned away", f"{quoted.turned_away:,}"),
    ]
    return pairs_table("Offers", rows)


def market_state(market: OnlineMarket) -> dict[str, Any]:
    """Return how far a market is, and its plans."""
    counts, plans, start = market.counts(), market.plans(), start_of(market.policy)
    totals = market.offers().groupby("status")[["epsilon", "payment"]].sum()
    totals = totals.reindex(["accepted", "offered"], fill_value=0.0)
    state = "open"
    if market.is_closed:
        state = "closed" if market.released is not None else "closing: close it again"
    elif counts["quoted"] == counts["expected"]:
        state = "full: answers are taken, no more sellers"
    return {
        "market": str(market.folder),
        "state": state,
        "sellers": counts,
        "eta": {
            "sold": totals["epsilon"]["accepted"],
            "offered": totals["epsilon"]["offered"],
            "planned": start.plan.eta,
        },
        "payments": {
            "promised": totals["payment"]["accepted"],
            "offered": totals["payment"]["offered"],
            "planned": planned(start)["payments"],
        },
        "plans": [
            {
                "plan": made.number,
                "after": made.after,
                "bought up to": highest_sensitivity(made.policy),
                "expected eta": made.policy.plan.eta,
                "expected loss": made.policy.plan.objective,
            }
            for made in plans
        ],
    }


def status_tables(state: Mapping[str, Any]) -> list[Table | str]:
    """Return what :func:`market_state` found, as a sentence and tables."""
    sellers, eta, payments, plans = (
        state[name] for name in ("sellers", "eta", "payments", "plans")
    )
    share = sellers["quoted"] / sellers["expected"]
    rows = [
        ("accepted", f"{sellers['accepted']:,}"),
        ("declined", f"{sellers['declined']:,}"),
        ("unanswered", f"{sellers['offered']:,}"),
        ("nothing bought", f"{sellers['nothing bought']:,}"),
        ("privacy sold, eta", format_number(eta["sold"], 4)),
        ("  and in unanswered offers", format_number(eta["offered"], 4)),
        ("  planned in all", format_number(eta["planned"], 4)),
        ("payments promised", format_number(payments["promised"], 4)),
        ("  and in unanswered offers", format_number(payments["offered"], 4)),
        ("  planned in all, about", format_number(payments["planned"], 4)),
    ]
    shown: list[Table | str] = [
        f"{state['market']}: the market is {state['state']}; quoted {sellers['quoted']:,} of "
        f"{sellers['expected']:,} expected ({share:.1%}).",
        pairs_table("", rows),
    ]
    table = Table(title="Plans", title_justify="left", box=SIMPLE_HEAD)
    for name in plans[0]:
        table.add_column(name, justify="right")
    for plan in plans[-MOST_PLANS:]:
        number, after, *values = plan.values()
        cells = (
            format_number(value, digits) for value, digits in zip(values, (3, 4, 4), strict=True)
        )
        table.add_row(str(number), count(after, "seller"), *cells)
    shown.append(table)
    if len(plans) > MOST_PLANS:
        shown.append(f"The latest {MOST_PLANS} of {len(plans)} plans.")
    if np.isnan(plans[-1]["bought up to"]):
        shown.append("The latest plan buys nothing more: enough was sold.")
    return shown
