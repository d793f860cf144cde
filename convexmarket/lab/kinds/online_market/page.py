"""The report of an online market that was closed; it is for the buyer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem
from convexmarket.lab.pages import claim_audits
from convexmarket.lab.result import Result
from convexmarket.online.release import model_text
from convexmarket.report import Report, format_number
from convexmarket.report.figures import lines

__all__ = ["begin"]

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
#: Plans whose terms are drawn, at most.
MOST_CURVES = 4


def begin(result: Result[OnlineMarketProblem], report: Report) -> None:
    """Add the finding, figures and tables of an online market."""
    summary, model = result.numbers["summary"], result.numbers["model"]
    realised, planned, counts = summary["realised"], summary["planned"], summary["counts"]
    expected, test = result.problem.buyer.expected_sellers, model["test"]
    simulated = "simulated " if result.numbers["simulated"] else ""
    finding = (
        f"In this {simulated}market {counts['accepted']:,} of {expected:,} expected sellers sold "
        f"η = {format_number(realised['eta'])} for {format_number(realised['payments'])}, "
        f"{realised['eta'] / planned['eta']:.0%} of the privacy planned"
    )
    if test:
        finding += (
            f"; the model misclassifies {test['error']:.1%} of the public rows, the more common "
            f"class {test['error_of_one_class']:.1%}"
        )
    report.headline(f"{finding}.")
    _add_claims(report, result)
    _add_figures(report, result)
    rows = [(w, planned.get(k, np.nan), realised[k]) for k, w in QUANTITIES.items()]
    frame = pd.DataFrame(rows, columns=["quantity", "planned", "realised"])
    caption = "Planned if all came and accepted, and realised"
    report.add(frame, caption, name="comparison", keys=["quantity"])
    if test:
        outcomes = {
            "released model": test,
            "without noise": test.get("without_noise") or {},
            "more common class": {"error": test["error_of_one_class"], "auc": 0.5},
        }
        errors = pd.DataFrame(
            [(n, o["error"], o.get("auc")) for n, o in outcomes.items() if o],
            columns=["model", "error", "auc"],
        ).dropna(axis="columns", how="all")
        caption = f"Errors on {test['rows']:,} public rows; an AUC of 0.5 is guessing"
        report.add(errors, caption, name="errors", keys=["model"])
    coefficients = pd.DataFrame({"feature": model["features"], "coefficient": model["coef"]})
    caption = "Released coefficients; model.json has them in full"
    report.add(coefficients, caption, name="coefficients", keys=["feature"], appendix=True)
    assumptions = "".join(f"\n- {text}" for text in model["assumptions"])
    report.add(
        f"## Guarantee\n\nMechanism: {model['mechanism']}, by the accounting "
        f"“{model['accounting']}”. It assumes:\n{assumptions}\n\nReports, offers and payments "
        "carry no privacy guarantee: do not publish the table of offers.",
        appendix=True,
    )
    report.attach("model.json", model_text(model))


def _add_claims(report: Report, result: Result[OnlineMarketProblem]) -> None:
    offers, excess = result.tables["offers"], result.numbers["model"]["largest_excess_over_sold"]
    claim_audits(report, result.tables["audits"], "plan")
    report.claim(
        "The total guarantee of every seller is at most the guarantee sold",
        holds=bool(excess <= 0),
        detail=f"The largest is ε = {format_number(offers.guarantee.max())}.",
    )


def _add_figures(report: Report, result: Result[OnlineMarketProblem]) -> None:
    offers, planned = result.tables["offers"], result.numbers["summary"]["planned"]
    accepted = offers.status == "accepted"
    totals = [
        offers.assign(value=offers[column].where(accepted, 0.0).cumsum(), panel=panel, whose="sold")
        for column, panel in (("epsilon", "privacy η"), ("payment", "payments"))
    ]
    for key, panel in (("eta", "privacy η"), ("payments", "payments")):
        ends: dict[str, Any] = {"number": [0, planned["sellers"]], "value": [0.0, planned[key]]}
        totals.append(pd.DataFrame(ends).assign(panel=panel, whose="first plan"))
    for panel, stem in (("privacy η", "privacy"), ("payments", "payments")):
        frame = pd.concat(totals).query("panel == @panel")
        report.add(
            lines(frame, "number", "value", hue="whose", xlabel="sellers", ylabel=panel),
            f"Sold after each seller, and expected by the first plan: {panel}",
            alt=f"Two rising lines of {stem} over the sellers who came.",
            name=f"total-{stem}",
        )
    curves = result.tables["curves"]
    plans = sorted(set(curves.plan))
    places = np.linspace(0, len(plans) - 1, min(len(plans), MOST_CURVES)).round().astype(int)
    shown = curves[curves.plan.isin([plans[place] for place in places])]
    report.add(
        lines(
            shown.assign(plan=[f"plan {plan}" for plan in shown.plan]),
            *("sensitivity", "epsilon"),
            hue="plan",
            xlabel="reported sensitivity",
            ylabel="ε offered",
        ),
        "Privacy bought at each report",
        alt="Falling curves of epsilon over the reported sensitivity, one for each plan.",
        name="terms",
    )
