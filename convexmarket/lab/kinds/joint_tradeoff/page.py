"""The report of the joint problem over gamma: what looking at the data buys, and what it costs.

The words are generated from the results. The first of them is that the joint problem's model is
not private.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from convexmarket.lab.kinds.joint_tradeoff import figures as joint_figures
from convexmarket.lab.kinds.joint_tradeoff.run import JointTradeoffResult
from convexmarket.lab.kinds.joint_tradeoff.words import (
    JOINT,
    NAIVE,
    TWO_STEP,
    against_words,
    answered,
    edge_words,
    ends_words,
    failed_words,
    purchase_words,
    range_words,
    shown_point,
    shown_sellers,
)
from convexmarket.lab.kinds.tradeoff.page import GREEK, KEY
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.report import figures
from convexmarket.lab.report.claims import JOINT_WARNING, claims_section, claims_words
from convexmarket.lab.report.frontier import MISCLASSIFIED, frontier_figures
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import own_data_words, reproduction_section, select, short
from convexmarket.lab.report.words import (
    count,
    equals,
    format_number,
    format_percent,
    listing,
    share,
)

__all__ = ["joint_tradeoff_report"]

HEADERS = GREEK | {
    "payments": "expected payments",
    "error_mean": "test error",
    "error_std": "its std",
    "overall_mean": "overall error",
    "overall_std": "std",
    "message": "why",
    "residual": "first-order residual",
    "starts_spread": "spread of the starts",
    "convexity_ratio": "convexity ratio",
    "binding": "ends of the range of η that decided",
    "expected_payment": "expected payment ψ(c)·ε",
    "validation_overall": "overall error on the validation rows",
}
DIFFERENCES = {
    "other": "compared with",
    "error": "difference in test error",
    "payments": "in expected payments",
    "overall": "in overall error",
    "low": "95% from",
    "high": "to",
    "verdict": "joint is",
}
_EXPECTED = "Expected payments to sellers (money)"


def joint_tradeoff_report(result: JointTradeoffResult) -> Report:
    """Describe a run of the joint problem over gamma.

    Parameters
    ----------
    result : JointTradeoffResult
        What :func:`convexmarket.lab.kinds.joint_tradeoff.run.run_joint_tradeoff` returned.

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    sections = [
        _curve_section(result),
        claims_section(result.claims),
        _looking_section(result),
        _sellers_section(result),
        _certificate_section(result),
        _choice_section(result),
        _failures_section(result),
        Section("What this does not show", points=result.caveats),
        reproduction_section(result.problem, result.provenance, result.timings),
    ]
    return Report(
        title=result.problem.title,
        summary=_summary(result),
        sections=tuple(section for section in sections if section is not None),
        results=result,
        facts=_facts(result),
        warning=JOINT_WARNING,
        of_sellers=isinstance(result.problem.data, OwnTable),
    )


# ---------------------------------------------------------------- the summary


def _facts(result: JointTradeoffResult) -> tuple[Fact, ...]:
    reproduced = sum(claim.verdict == "reproduced" for claim in result.claims)
    facts = [Fact("claims of the papers that came out", f"{reproduced} of {len(result.claims)}")]
    against = select(result.comparisons, other=TWO_STEP)
    if len(against):
        lower = int((against.verdict == "lower").sum())
        facts.append(
            Fact("joint overall error below the private two-step one", f"{lower} of {len(against)}")
        )
    point = shown_point(result)
    if point is not None:
        for model in (JOINT, TWO_STEP):
            row = answered(result, scenario=point[0], gamma=point[1], model=model).iloc[0]
            where = f"{model}, {equals('γ', point[1])}"
            facts.append(Fact(f"test error, {where}", format_percent(row.error_mean)))
    facts.append(Fact("test error without privacy", format_percent(result.baseline_error)))
    facts.append(Fact("differential privacy of the joint model", "none"))
    return tuple(facts)


def _summary(result: JointTradeoffResult) -> tuple[str, ...]:
    words = [
        *own_data_words(result.problem, result.provenance),
        " ".join(result.problem.description.split()),
        claims_words(result.claims),
        against_words(result, TWO_STEP, "the two-step mechanism, the one that is private,"),
        against_words(result, NAIVE, "the naive model"),
        failed_words(result),
    ]
    return tuple(text for text in words if text)


# ---------------------------------------------------------------- the sections


def _curve_section(result: JointTradeoffResult) -> Section:
    known = answered(result)
    drawn = [
        Figure(
            f"tradeoff_{scenario}",
            f"Test error and expected payments over γ, {scenario} sensitivities. Read the error "
            "from the dashed line up: that is what a model costs that pays nobody and protects "
            "nobody. Band: one standard deviation over noise draws on either side of the mean.",
            partial(figures.tradeoff_curve, rows, result.baseline_error, _EXPECTED),
            f"Two panels over gamma: test error and expected payments. {ends_words(rows)}",
        )
        for scenario, rows in known.groupby("scenario", sort=False)
    ]
    drawn += frontier_figures(
        known.rename(columns={"model": "series", "error_mean": "error"}),
        result.sellers.rename(columns={"model": "series"}),
        MISCLASSIFIED,
        "expected payments (money)",
    )
    if len(known):
        drawn.append(
            Figure(
                "overall_error",
                "Overall error over γ: the model whose line is lowest serves the buyer best. "
                "Band: one standard deviation over noise draws on either side.",
                partial(figures.overall_error, known),
                "Overall error over gamma, one panel per scenario and one line per model. The "
                "numbers are in the table tradeoff.",
            )
        )
    (low, high), grid = result.problem.naive.eta_range, result.problem.naive.grid
    return Section(
        "Error, payments and overall error",
        (
            "γ is the weight of payments in the buyer's objective. The overall error adds γ times "
            "expected payments to the test error. Payments are ψ(c)·ε, what truthful payments "
            "come to on average over reports, for all three models.",
            " ".join(ends_words(rows) for _, rows in known.groupby("scenario", sort=False)),
            "The joint problem chooses model, weights and η together and so looks at the rows; "
            "the two-step mechanism chooses weights and η from the reports alone. The naive model "
            "is the joint problem with μ = σ = 0: it buys everything from the seller that is "
            "cheapest in loss and payment together, and would buy nothing if η were not held at "
            f"one of {count(grid, 'value')} between {short(low)} and {short(high)}. "
            f"{range_words(result)}",
        ),
        figures=tuple(drawn),
        tables=(
            Table(
                "tradeoff",
                "Every model at every γ; std, the standard deviation over noise draws, is that of "
                "both errors. The total guarantee is that of the two-step model; the others have "
                "none.",
                _columns(
                    result.curve,
                    [*KEY, "n_bought", "epsilon_max", "guarantee_max", "payments"],
                    ["error_mean", "overall_mean", "overall_std"],
                ),
                HEADERS,
                dict.fromkeys(("error_mean", "overall_mean", "overall_std"), ".4f"),
                rows_shown=60,
            ),
        ),
    )


def _columns(frame: pd.DataFrame, *names: list[str]) -> pd.DataFrame:
    """Return columns; those that no row has are left out, whole numbers stay whole."""
    found = frame[[name for group in names for name in group if name in frame]]
    return found.astype({"n_bought": "Int64"}) if "n_bought" in found else found


def _looking_section(result: JointTradeoffResult) -> Section:
    against = select(result.comparisons, other=TWO_STEP)
    drawn: tuple[Figure, ...] = ()
    if len(against):
        drawn = (
            Figure(
                "joint_minus_two_step",
                "Overall error of the joint problem minus that of the two-step mechanism, with 95% "
                "intervals, paired over noise draws. Below the line looking at the data pays, "
                "above it costs; an interval across the line tells nothing.",
                partial(joint_figures.differences, against),
                "Points with intervals over gamma. The numbers are in the table comparisons.",
            ),
        )
    private = answered(result, model=TWO_STEP)
    guarantee = ""
    if len(private):
        low, high = float(private.guarantee_max.min()), float(private.guarantee_max.max())
        guarantee = (
            f" The largest total guarantee of a seller is between ε{chr(0xA0)}={chr(0xA0)}"
            f"{short(low)} and {short(high)}, depending on γ."
        )
    return Section(
        "What looking at the data buys, and what it costs",
        (
            "This question is ours and not the papers'. "
            + against_words(result, TWO_STEP, "the two-step mechanism"),
            "What it costs does not show in these numbers. The two-step mechanism has a privacy "
            "guarantee: weights and η depend on the reports alone, and the model is released with "
            f"noise for them.{guarantee} The joint problem has none: {JOINT_WARNING[0].lower()}"
            f"{JOINT_WARNING[1:]} The noise in its released model does not change that.",
            "Nor is it known whether its sellers would tell the truth: the payments of Eq. (8) "
            "presuppose a global optimum for every report, which is not certified for the joint "
            "problem.",
        ),
        figures=drawn,
        tables=(
            Table(
                "comparisons",
                "The joint problem minus the other model, at the same γ; the interval is that of "
                "the overall error.",
                result.comparisons,
                HEADERS | DIFFERENCES,
                dict.fromkeys(("error", "overall", "low", "high"), "+.4f"),
                rows_shown=60,
            ),
        ),
    )


def _sellers_section(result: JointTradeoffResult) -> Section | None:
    point = shown_point(result)
    if point is None:
        return None
    sellers = shown_sellers(result, point)
    where = f"{equals('γ', point[1])}, {point[0]} sensitivities"
    words = purchase_words(sellers)
    return Section(
        "Who is bought from",
        (
            "In the joint problem a seller's price is its loss under the model at hand plus γ "
            "times η times its virtual cost: rows that the model gets right anyway are cheap, so "
            "that a purchase prefers rows that agree with it. The two-step mechanism sees the "
            "virtual cost alone.",
            f"At {where}: {words}",
        ),
        figures=(
            Figure(
                "purchases",
                f"Weight of each seller against the loss of its row under the joint problem's own "
                f"model, and against its sensitivity ({where}). Where the points of the joint "
                "problem fall to the right in the left panel, it buys rows that its model fits "
                "already.",
                partial(joint_figures.purchases, sellers),
                f"Two scatter plots: {words}",
            ),
        ),
        tables=(
            Table(
                "sellers",
                "Every seller in every purchase; the loss is that under the model which was "
                "trained on the purchase without noise.",
                result.sellers,
                HEADERS,
                rows_shown=10,
            ),
        ),
    )


def _certificate_section(result: JointTradeoffResult) -> Section:
    joint = select(result.candidates, model=JOINT)
    solved = joint[joint.message == ""]
    words = []
    if len(solved):
        statuses = [
            f"{count(number, 'time')} the answer is “{status}”"
            for status, number in solved.status.value_counts().items()
        ]
        words.append(
            f"The joint problem was solved for {share(len(solved), len(joint), 'candidate')}: "
            f"{listing(statuses)}. The largest first-order residual, what the model alone or the "
            "purchase alone could still gain relative to the objective, is "
            f"{format_number(float(solved.residual.max()), 2)}; the starts of one candidate ended "
            f"at most {format_number(float(solved.starts_spread.max()), 2)} apart (relative)."
        )
    known = answered(result, model=JOINT)
    if len(known):
        low = float(known.convexity_ratio.min())
        ratios = " and ".join(dict.fromkeys(map(short, (low, known.convexity_ratio.max()))))
        here = f"between {ratios}" if " and " in ratios else ratios
        words.append(
            "Below a convexity ratio of 1 the problem is known to be convex for a fixed η, and "
            f"the answer is certified. Here it is {here}: no "
            "certificate is to be had, and several starts that agree are evidence, not proof. In "
            "the exponential variables the objective, though not the feasible set, is convex from "
            f"Λ = {short(result.exponential_threshold)} on."
            if low >= 1
            else "Below a convexity ratio of 1 the problem is known to be convex for a fixed η; "
            f"here it is {here}."
        )
    words.append(
        "The two-step allocations carry a lower bound on what any allocation could reach. The "
        "naive model's optimum is global: without spread, noise and cap, its objective is linear "
        "in the weights for every model, so that comparing every seller alone finds it."
        if _naive_alone(result)
        else "The two-step allocations carry a lower bound on what any allocation could reach."
    )
    return Section(
        "The certificate",
        tuple(words),
        tables=(
            Table(
                "certificates",
                "What is known of the optimality of every answer.",
                _columns(
                    result.curve,
                    [*KEY, "status", "objective", "lower_bound", "residual", "starts_spread"],
                    ["convexity_ratio", "binding"],
                ),
                HEADERS,
                {"objective": ".6g", "lower_bound": ".6g", "residual": ".1e"}
                | {"starts_spread": ".1e"},
                rows_shown=60,
            ),
        ),
    )


def _naive_alone(result: JointTradeoffResult) -> bool:
    naive = answered(result, model=NAIVE)
    return bool(len(naive)) and bool((naive.status == "global").all())


def _choice_section(result: JointTradeoffResult) -> Section:
    chosen = ["mu", "sigma", "regularization", "eta", "validation_error"]
    return Section(
        "How parameters were chosen",
        (
            "For every γ and every model, parameters are those with the smallest overall error on "
            "the validation rows: μ, σ and Λ for the joint problem and the two-step mechanism, η "
            "and Λ for the naive model. " + edge_words(result),
        ),
        tables=(
            Table(
                "hyperparameters",
                "What was chosen.",
                _columns(result.curve, [*KEY, *chosen]),
                HEADERS,
                {"validation_error": ".4f"},
                rows_shown=60,
            ),
            Table(
                "candidates",
                "Everything that was tried.",
                result.candidates,
                HEADERS,
                {"validation_error": ".4f", "validation_overall": ".4f"},
                rows_shown=5,
            ),
            Table(
                "draws",
                "Test error of every noise draw.",
                result.draws,
                HEADERS,
                {"test_error": ".4f"},
                rows_shown=5,
            ),
        ),
    )


def _failures_section(result: JointTradeoffResult) -> Section | None:
    failed = result.candidates[result.candidates.message != ""]
    if failed.empty:
        return None
    columns = [*KEY, "mu", "sigma", "regularization", "status", "message"]
    return Section(
        "What has no answer",
        (
            f"{failed_words(result)} The others were chosen from. A row of the curve without an "
            "answer is one where every candidate failed.",
        ),
        tables=(Table("failures", "Candidates without an answer.", failed[columns], HEADERS),),
    )
