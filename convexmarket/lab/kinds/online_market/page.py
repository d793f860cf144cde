"""What the page of an online market that was closed shows; its words are in ``page.md.j2``.

It shows reports and payments of single sellers, so it is for the buyer: it says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem, OwnSellers
from convexmarket.lab.report.marks import Curve
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import promise_words, short
from convexmarket.lab.report.words import format_number, format_percent
from convexmarket.lab.result import Result
from convexmarket.online.release import model_text

__all__ = ["online_market_report"]

WORDS = {
    "epsilon": "ε offered",
    "virtual_cost": "virtual cost",
    "guarantee": "total ε",
    "highest_sensitivity": "bought up to a sensitivity of",
    "cutoff": "bought below a virtual cost of",
    "after": "after so many sellers",
    "eta": "expected η",
    "objective": "expected loss",
    "payment_error": "largest error of a payment",
    "max_gain": "largest gain from a misreport",
    "min_surplus": "smallest surplus",
    "gap": "relative gap",
    "error": "wrong on public rows",
    "auc": "AUC",
}
QUANTITIES = {
    "sellers": "sellers quoted",
    "bought": "sellers bought from",
    "eta": "total privacy η",
    "payments": "payments",
    "loss": "buyer's loss (A, Eq. 11)",
    "paid_loss": "buyer's loss with the payments made",
    "largest_epsilon": "largest ε sold",
    "largest_weight": "largest weight of a seller",
}
#: Plans whose terms are drawn, more would not be told apart; reports that are drawn.
MOST_CURVES, MOST_REPORTS = 4, 2_000
#: Standard deviations within which 95% of what chance gives lies.
_CHANCE = 1.96


def online_market_report(result: Result[OnlineMarketProblem]) -> Report:
    """Describe an online market that was closed, really or in a simulation."""
    problem, offers, audits = result.problem, result.tables["offers"], result.tables["audits"]
    summary, model = result.numbers["summary"], result.numbers["model"]
    realised, counts = summary["realised"], summary["counts"]
    expected = problem.buyer.expected_sellers
    largest = float(offers.guarantee.max())
    facts = [
        ("sellers quoted", f"{counts['quoted']:,} of {expected:,} expected"),
        ("accepted an offer", f"{counts['accepted']:,}"),
        ("total privacy sold, η", short(realised["eta"])),
        ("paid for it", short(realised["payments"])),
        ("largest guarantee, total ε", short(largest)),
    ]
    if result.numbers["model"]["test"]:
        facts.append(
            ("error on public rows", format_percent(result.numbers["model"]["test"]["error"]))
        )
    weights = offers.weight[offers.status == "accepted"].to_numpy()
    tolerance = float(audits.tolerance.max())
    return page(
        "convexmarket.lab.kinds.online_market",
        result,
        facts=facts,
        tables=_tables(result),
        figures=_figures(result),
        model=model_text(model),
        of_sellers=isinstance(problem.data, OwnSellers),
        expected=expected,
        counts=counts,
        realised=realised,
        planned=summary["planned"],
        limit=summary["weight_limit"],
        largest=largest,
        promise=promise_words(largest),
        test=result.numbers["model"]["test"],
        ranks=_ranks(result.numbers["model"]["test"]),
        excess=model["largest_excess_over_sold"],
        first=result.tables["plans"].iloc[0].to_dict(),
        bounded=bool(np.isfinite(result.tables["plans"].lower_bound.iloc[0])),
        stages=[f"{seen:,}" for seen in result.tables["plans"].after if seen],
        beyond=int((offers.sensitivity > result.tables["curves"].sensitivity.max()).sum()),
        classes=[repr(name) for name in model["classes"]],
        sold=offers.epsilon[offers.epsilon > 0],
        effective=1.0 / float(weights @ weights),
        gain=_rounded(float(audits.max_gain.max()), tolerance),
        surplus=_rounded(float(audits.min_surplus.min()), tolerance),
        truthful=bool(audits.incentive_compatible.all()),
        rational=bool(audits.individually_rational.all()),
    )


def _ranks(test: dict[str, Any] | None) -> str:
    """Say how the model ranks public rows: "better" or "worse" than chance, "like" it, or nothing.

    Chance gives an AUC with mean 1/2 and variance (n + 1)/(12 p q), for p and q rows of n.
    """
    if test is None or test.get("auc") is None:
        return ""
    n, rare = test["rows"], round(test["error_of_one_class"] * test["rows"])
    apart = test["auc"] - 0.5
    if abs(apart) <= _CHANCE * np.sqrt((n + 1) / (12 * rare * (n - rare))):
        return "like"
    return "better" if apart > 0 else "worse"


def _rounded(money: float, tolerance: float) -> str:
    """Write an amount; what is within the tolerance is nothing."""
    if 0 < abs(money) <= tolerance:
        return "zero up to rounding"
    return format_number(money, digits=2)


# ----------------------------------------------------------------------------------- figures


def _figures(result: Result[OnlineMarketProblem]) -> list[Figure]:
    after = dict(
        zip(
            result.tables["plans"].plan.tolist(), result.tables["plans"].after.tolist(), strict=True
        )
    )
    curves = result.tables["curves"][result.tables["curves"].plan.isin(_shown(sorted(after)))]
    names = {plan: f"plan {plan}, after {seen:,} sellers" for plan, seen in after.items()}
    names = names if len(after) > 1 else dict.fromkeys(after, "the terms")
    terms = {"epsilon": "Privacy bought, ε", "payment": "Payment (money)"}
    reports = np.sort(result.tables["offers"].sensitivity)
    reports = reports[reports <= curves.sensitivity.max()]
    panels: dict[str, Any] = {"y": "value", "panels": "what", "free": "y"}
    stages = [seen for seen in after.values() if seen]
    return [
        Figure(
            "offer_curves",
            "What a report sells and what is paid for it, under "
            f"{'the one plan' if len(after) == 1 else 'some of the plans'}; every short line at "
            "the bottom is the report of a seller.",
            Curve(
                pd.concat(
                    pd.DataFrame(
                        {
                            "report": curves.sensitivity,
                            "value": curves[column],
                            "what": title,
                            "plan": curves.plan.map(names),
                        }
                    )
                    for column, title in terms.items()
                ),
                x="report",
                x_label="reported sensitivity c (money per unit of ε)",
                hue="plan",
                rug={"reports of sellers": reports[:: max(1, -(-reports.size // MOST_REPORTS))]},
                **panels,
            ),
            "Two falling curves over the reported sensitivity: privacy bought, and payment.",
        ),
        Figure(
            "running_totals",
            "What was sold and paid after each seller, counting those who accepted, beside "
            "what a plan under the prior of the file expects on average"
            f"{', and where new plans were made' if stages else ''}.",
            Curve(
                _totals(result),
                x="number",
                x_label="sellers who came",
                hue="whose",
                rug={"a new plan": stages} if stages else {},
                **panels,
            ),
            "Two rising staircases over the sellers who came. The ends are in the table "
            "comparison.",
        ),
    ]


def _shown(plans: list[int]) -> list[int]:
    """Return the plans whose terms are drawn: the first, the last, and some between."""
    places = np.linspace(0, len(plans) - 1, min(len(plans), MOST_CURVES)).round().astype(int)
    return [plans[place] for place in places]


def _totals(result: Result[OnlineMarketProblem]) -> pd.DataFrame:
    """Return what was sold and paid after each seller, as stairs, and what was planned."""
    offers, planned = result.tables["offers"], result.numbers["summary"]["planned"]
    sold = (offers.status == "accepted").to_numpy()
    stairs = np.repeat(np.concatenate(([0], offers.number.to_numpy())), 2)[1:]
    frames = []
    for column, key, what in (
        ("epsilon", "eta", "Privacy sold so far, η"),
        ("payment", "payments", "Payments so far (money)"),
    ):
        totals = np.concatenate(([0.0], np.cumsum(np.where(sold, offers[column], 0.0))))
        frames += [
            pd.DataFrame({"number": stairs, "value": np.repeat(totals, 2)[:-1]}).assign(
                whose="sold to sellers who accepted", what=what
            ),
            pd.DataFrame({"number": [0, planned["sellers"]], "value": [0.0, planned[key]]}).assign(
                whose="first plan, if all come and accept", what=what
            ),
        ]
    return pd.concat(frames)


# ------------------------------------------------------------------------------------ tables


def _tables(result: Result[OnlineMarketProblem]) -> list[Table]:
    planned, realised = result.numbers["summary"]["planned"], result.numbers["summary"]["realised"]
    plans = result.tables["plans"].dropna(axis="columns", how="all")
    plans = plans if plans.payment_error.any() else plans.drop(columns="payment_error")
    later = len(plans) > 1 and result.problem.plan.replan
    unpaid = "; the expected loss of a later plan leaves out what was paid before" if later else ""
    return [
        Table(
            "plans",
            f"Every plan. The expected η includes what was sold before{unpaid}.",
            plans,
            WORDS,
            {"gap": ".1e", "payment_error": ".1e"},
        ),
        Table(
            "comparison",
            "Expected if all came and accepted, and realised.",
            pd.DataFrame(
                {"quantity": words, "planned": planned.get(key, np.nan), "realised": realised[key]}
                for key, words in QUANTITIES.items()
            ),
        ),
        *([_errors(result.numbers["model"]["test"])] if result.numbers["model"]["test"] else []),
        Table(
            "coefficients",
            "The released coefficients, noise included; model.json has them in full.",
            pd.DataFrame(
                {
                    "feature": result.numbers["model"]["features"],
                    "coefficient": result.numbers["model"]["coef"],
                }
            ),
            rows_shown=50,
        ),
        Table(
            "audits",
            "Largest gain from any misreport, and smallest surplus of a truthful seller; up "
            "to the tolerance they are rounding.",
            result.tables["audits"],
            WORDS,
            {"max_gain": ".1e", "min_surplus": ".1e", "tolerance": ".1e"},
        ),
        Table(
            "offers",
            "Every offer, in the order of arrival. The surplus is the payment minus the "
            "seller's cost at its report; the total ε is the guarantee of the model that was "
            "released.",
            result.tables["offers"],
            WORDS,
            rows_shown=15,
        ),
    ]


def _errors(test: dict[str, Any]) -> Table:
    rows = {
        "the released model": test,
        "the same without noise": test.get("without_noise", {}),
        "always the more common class": {"error": test["error_of_one_class"], "auc": 0.5},
    }
    frame = pd.DataFrame(
        {"answers": name, "error": of["error"], "auc": of.get("auc")}
        for name, of in rows.items()
        if of
    ).astype({"auc": float})
    return Table(
        "errors",
        f"Errors on {test['rows']:,} public rows, as shares of them. An AUC of 0.5 is guessing.",
        frame if "auc" in test else frame.drop(columns="auc"),
        WORDS,
        {"error": ".3f", "auc": ".3f"},
    )
