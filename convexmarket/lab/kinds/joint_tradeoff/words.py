"""Words of the report on the joint problem over gamma."""

from __future__ import annotations

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.joint_tradeoff.run import JointTradeoffResult
from convexmarket.lab.report.parts import select, short
from convexmarket.lab.report.words import count, equals, format_percent, listing, share

__all__ = [
    "JOINT",
    "NAIVE",
    "TWO_STEP",
    "against_words",
    "answered",
    "edge_words",
    "ends_words",
    "failed_words",
    "purchase_words",
    "range_words",
    "shown_point",
    "shown_sellers",
]

JOINT, TWO_STEP, NAIVE = "joint", "two-step", "naive"


def answered(result: JointTradeoffResult, **values: str | float) -> pd.DataFrame:
    """Return the rows of the curve that have an answer."""
    return select(result.curve.dropna(subset=["overall_mean"]), **values)


def shown_point(result: JointTradeoffResult) -> tuple[str, float] | None:
    """Return the scenario and the gamma whose purchases are shown: the first, and the middle."""
    sellers = result.sellers
    if sellers.empty:
        return None
    for scenario, rows in sellers.groupby("scenario", sort=False):
        gammas = [set(select(rows, model=model).gamma) for model in (JOINT, TWO_STEP)]
        both = sorted(map(float, set.intersection(*gammas)))
        if both:
            return str(scenario), both[len(both) // 2]
    return None


def against_words(result: JointTradeoffResult, other: str, name: str) -> str:
    """Count at how many gammas the joint model's overall error is below another's, and above."""
    against = select(result.comparisons, other=other)
    if against.empty:
        return ""
    parts = []
    for scenario, rows in against.groupby("scenario", sort=False):
        found = rows.verdict.value_counts()
        lower, higher = int(found.get("lower", 0)), int(found.get("higher", 0))
        parts.append(
            f"at {lower} of {count(len(rows), 'value')} of γ with {scenario} sensitivities, and "
            f"above it at {higher}"
        )
    return (
        f"The joint problem's overall error (test error plus γ times expected payments) is below "
        f"that of {name} {'; '.join(parts)}. Elsewhere the noise draws do not tell them apart."
    )


def failed_words(result: JointTradeoffResult) -> str:
    """Count the candidates without an answer, if there are any."""
    failed = int((result.candidates.message != "").sum())
    if not failed:
        return ""
    return f"{share(failed, len(result.candidates), 'candidate')} failed; they are listed below."


def ends_words(rows: pd.DataFrame) -> str:
    """Say what happens from the smallest gamma to the largest, of the joint model."""
    joint = select(rows, model=JOINT).sort_values("gamma")
    if joint.empty:
        return ""
    low, high = joint.iloc[0], joint.iloc[-1]
    if len(joint) == 1:
        return (
            f"With {low.scenario} sensitivities the joint problem pays {short(low.payments)} at "
            f"{equals('γ', low.gamma)}, with a test error of {format_percent(low.error_mean)}."
        )
    return (
        f"With {low.scenario} sensitivities, from {equals('γ', low.gamma)} to "
        f"{equals('γ', high.gamma)} the joint problem's payments go from {short(low.payments)} to "
        f"{short(high.payments)}, and its test error from {format_percent(low.error_mean)} to "
        f"{format_percent(high.error_mean)}."
    )


def range_words(result: JointTradeoffResult) -> str:
    """Say where a range of eta, and not an optimum, decided."""
    naive = answered(result, model=NAIVE)
    ends = [abs(np.log(naive.eta / end)) < 1e-9 for end in result.problem.naive.eta_range]
    words = "That range, and not an optimum, decided its answer"
    if len(naive):
        at_end = int((ends[0] | ends[1]).sum())
        words += f"; at {share(at_end, len(naive), 'point')} it is an end of the range"
    words += "."
    others = answered(result)
    others = others[others.model != NAIVE]
    bound = others[others.binding.fillna("") != ""]
    if len(bound):
        words += (
            f" Of the other models' {count(len(others), 'answer')}, {len(bound)} lie at an end of "
            "objective.eta_range, which decided them too."
        )
    return words


def shown_sellers(result: JointTradeoffResult, point: tuple[str, float]) -> pd.DataFrame:
    """Return the sellers of the joint and the two-step purchase; losses are the joint model's."""
    at = select(result.sellers, scenario=point[0], gamma=point[1])
    losses = select(at, model=JOINT).set_index("id").loss
    pair = at[at.model.isin([JOINT, TWO_STEP])]
    return pair.assign(loss=pair.id.map(losses))


def purchase_words(sellers: pd.DataFrame) -> str:
    """Say of a few purchases from whom they are, and how well their rows are fitted."""
    parts = []
    for model, rows in sellers.groupby("model", sort=False):
        bought = rows[rows.weight > 0]
        parts.append(
            f"the {model} purchase is from {share(len(bought), len(rows), 'seller')}, with a "
            f"largest ε of {short(float(rows.epsilon.max()))}; weighted with it, the mean loss is "
            f"{short(float(np.dot(rows.weight, rows.loss)))} and label 1 has "
            f"{format_percent(float(rows.weight[rows.label == 1].sum()))} of the weight"
        )
    first = sellers[sellers.model == JOINT]
    everybody = (
        f"Over all rows alike the mean loss is {short(float(first.loss.mean()))}, and "
        f"{format_percent(float((first.label == 1).mean()))} have label 1."
    )
    text = "; ".join(parts)
    return f"{text}. {everybody}"


def edge_words(result: JointTradeoffResult) -> str:
    """Say how often the joint problem's choice is at an end of the list of candidates."""
    known = answered(result, model=JOINT)
    if known.empty:
        return ""
    parts = []
    for name, symbol, values in (
        ("mu", "μ", result.problem.objective.mu),
        ("sigma", "σ", result.problem.objective.sigma),
        ("regularization", "Λ", result.problem.learner.regularization),
    ):
        lowest, highest = (int((known[name] == end(values)).sum()) for end in (min, max))
        if len(values) > 1 and lowest + highest:
            parts.append(f"of {symbol} at {lowest} (smallest) and {highest} (largest)")
    if not parts:
        return "No choice for the joint problem lies at an end of its list of candidates."
    return (
        f"Of the joint problem's {count(len(known), 'answer')} an end of the list of candidates "
        f"was chosen {listing(parts)}; a longer list might do better there."
    )
