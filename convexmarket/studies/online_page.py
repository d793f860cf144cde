"""Statements, figure and report of a closed online market."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.display import axes
from convexmarket.online.release import model_text
from convexmarket.report import Report, compare, format_number
from convexmarket.studies.study_page import finish, with_legend

_QUANTITIES = {"sellers": "sellers quoted", "bought": "sellers bought from", "eta": "total epsilon"}
_QUANTITIES |= {"payments": "payments", "loss": "buyer's loss (A, Eq. 11)"}
_QUANTITIES |= {"paid_loss": "buyer's loss with the payments made"}
_QUANTITIES |= {"largest_epsilon": "largest epsilon sold", "largest_weight": "largest weight"}
_STYLES = ("-", "--", ":", "-.")


def statements(runs: Any) -> list[str]:
    """Summarise the sales and the errors of the model in sentences."""
    facts, draws = runs.facts, runs.tables.get("draws", ())
    if len(draws) > 1:
        sold = compare(draws.eta, draws.planned_eta)
        texts = [sold.sentence("The privacy sold in a simulated market", "that of the plan")]
        if draws.error.notna().all():
            errors = compare(draws.error, draws.error_of_one_class)
            subject = f"The error of the model, {errors.mean_a:.1%} of the public rows,"
            texts.append(errors.sentence(subject, "that of the more common class"))
        return [" ".join(texts)]
    realised, planned, counts = facts["realised"], facts["planned"], facts["counts"]
    text = (
        f"In {'one simulated' if facts['simulated'] else 'this'} market "
        f"{counts['accepted']:,} of {counts['expected']:,} expected sellers sold "
        f"η = {format_number(realised['eta'])} for {format_number(realised['payments'])}, "
        f"{realised['eta'] / planned['eta']:.0%} of the privacy planned"
    )
    if test := facts["model"]["test"]:
        text += "; on the public rows, the error of the model is {error:.1%} and that of the more "
        text = (text + "common class is {error_of_one_class:.1%}").format(**test)
    return [f"{text}."]


def plot(runs: Any, ax: Any = None) -> Any:
    """Plot the privacy offered at each reported sensitivity, with curves for at most four plans."""
    curves, ax = runs.tables["curves"], axes(ax, xlabel="reported sensitivity", ylabel="ε offered")
    plans = curves.plan.unique()
    places = np.linspace(0, len(plans) - 1, len(_STYLES)).round().astype(int)
    for plan, style in zip(plans[np.unique(places)], _STYLES, strict=False):
        curve = curves[curves.plan == plan]
        ax.plot(curve.sensitivity, curve.epsilon, style, label=f"plan {plan}")
    return with_legend(ax)


def fill(report: Report, runs: Any) -> None:
    """Add the finding, claims, figures and tables to a report, and attach the model."""
    facts, model = runs.facts, runs.facts["model"]
    report.headline(statements(runs)[0])
    report.claim(
        "The total guarantee of every seller is at most the guarantee sold",
        holds=bool(model["largest_excess_over_sold"] <= 0),
        detail=f"The largest is ε = {format_number(runs.tables['offers'].guarantee.max())}.",
    )
    report.add(plot(runs).figure, "Privacy bought at each report", name="terms")
    values = pd.DataFrame({name: facts[name] for name in ("planned", "realised")})
    values = values.loc[list(_QUANTITIES)].rename(_QUANTITIES)
    where = ", in the first simulated market" if facts["simulated"] else ""
    caption = f"Planned totals with full participation, and realised totals{where}"
    report.add(values.rename_axis("quantity"), caption, name="comparison", keys=["quantity"])
    text = f"## Guarantee\n\nMechanism: {model['mechanism']}, by the accounting "
    text += "\n- ".join([f"“{model['accounting']}”. It assumes:\n", *model["assumptions"]])
    text += "\n\nReports, offers and payments have no privacy guarantee: do not publish them."
    report.add(text, appendix=True)
    finish(report, runs)
    report.attach("model.json", model_text(model))
