"""The report of the trade-off experiment: error against payments over gamma, in words and figures.

The words are generated from the results, the caveats included: what is guaranteed, on which
assumptions, and where nothing is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from convexmarket.lab.kinds.tradeoff.run import TradeoffResult
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.report import figures
from convexmarket.lab.report.frontier import MISCLASSIFIED, frontier_figures
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import (
    INCENTIVES,
    audit_section,
    audit_words,
    certificate_section,
    gap_words,
    own_data_words,
    promise_words,
    reproduction_section,
    select,
    short,
)
from convexmarket.lab.report.words import (
    count,
    equals,
    format_number,
    format_percent,
    listing,
    share,
)
from convexmarket.privacy import Accounting

__all__ = ["tradeoff_report"]

MECHANISM = "mechanism"
NAIVE = "naive"
CORRELATED = "correlated"
KEY = ["scenario", "model", "gamma"]
GREEK = {
    "gamma": "γ",
    "mu": "μ",
    "sigma": "σ",
    "regularization": "Λ",
    "eta": "η",
    "epsilon": "ε sold",
    "epsilon_max": "largest ε sold",
    "guarantee": "total guarantee",
    "guarantee_max": "largest total guarantee",
    "virtual_cost": "virtual cost ψ(c)",
    "sensitivity": "sensitivity c",
    "multiplier": "multiplier τ",
    "n_sellers": "sellers",
    "n_bought": "sellers bought from",
}
ACCOUNTING_WORDS: dict[Accounting, str] = {
    "sharp": "bounds what both versions of a row can pull together, and the Jacobian with it",
    "paper": "is ε + 2 log(1 + R² a_max/Λ), Proposition II.2 of the paper",
}


@dataclass(frozen=True)
class Highlight:
    """The point of the curve that the summary speaks about, and what surrounds it."""

    scenario: str
    gamma: float
    row: pd.Series
    n_sellers: int
    n_draws: int


def tradeoff_report(result: TradeoffResult) -> Report:
    """Describe a trade-off run.

    Parameters
    ----------
    result : TradeoffResult
        What :func:`convexmarket.lab.kinds.tradeoff.run.run_tradeoff` returned.

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    point = highlight(result)
    sections = [
        _tradeoff_section(result),
        _overall_section(result),
        _sellers_section(result, point),
        certificate_section(result.certificates, _largest_gap(result, MECHANISM), KEY, GREEK),
        audit_section(result.audits, _largest_payment(result), GREEK),
        _guarantee_section(result),
    ]
    if CORRELATED in set(result.curve.scenario) and point.scenario != CORRELATED:
        sections.append(_correlation_section(result, point))
    sections += [
        _choice_section(result),
        reproduction_section(result.problem, result.provenance, result.timings),
    ]
    return Report(
        title=result.problem.title,
        summary=_summary(result, point),
        sections=tuple(sections),
        results=result,
        facts=_facts(result, point),
        of_sellers=isinstance(result.problem.data, OwnTable),
    )


def highlight(result: TradeoffResult) -> Highlight:
    """Find the mechanism's smallest overall error in the first scenario."""
    scenario = str(result.curve.scenario.iloc[0])
    rows = select(result.curve, scenario=scenario, model=MECHANISM)
    row = rows.sort_values(["overall_mean", "gamma"]).iloc[0]
    offers = select(result.sellers, scenario=scenario, model=MECHANISM, gamma=row.gamma)
    draws = select(result.draws, scenario=scenario, model=MECHANISM, gamma=row.gamma)
    return Highlight(scenario, float(row.gamma), row, len(offers), len(draws))


# ---------------------------------------------------------------- the summary


def _facts(result: TradeoffResult, point: Highlight) -> tuple[Fact, ...]:
    row = point.row
    audits = result.audits
    where = f"at {equals('γ', point.gamma)}"
    return (
        Fact(f"sellers bought from, {where}", f"{int(row.n_bought):,} of {point.n_sellers:,}"),
        Fact(f"total payments, {where}", format_number(row.payments)),
        Fact(f"test error, {where}", format_percent(row.error_mean)),
        Fact("test error without privacy", format_percent(result.baseline_error)),
        Fact("largest certified gap", format_number(_largest_gap(result, MECHANISM), digits=2)),
        Fact(
            "no lie of one seller pays, in the audit",
            "yes" if bool(audits.incentive_compatible.all()) else "no",
        ),
    )


def _summary(result: TradeoffResult, point: Highlight) -> tuple[str, ...]:
    paragraphs = [
        _outcome_words(result, point),
        _privacy_words(point),
        _naive_words(result),
        f"{gap_words(_largest_gap(result, MECHANISM))} "
        f"{audit_words(result.audits, _largest_payment(result))}",
    ]
    if result.problem.description:
        paragraphs.insert(0, " ".join(result.problem.description.split()))
    told = own_data_words(result.problem, result.provenance)
    return tuple(text for text in (*told, *paragraphs) if text)


def _outcome_words(result: TradeoffResult, point: Highlight) -> str:
    row = point.row
    spread = ""
    if point.n_draws > 1:
        points = format_number(100 * row.error_std, digits=2)
        spread = f" (standard deviation {points} percentage points)"
    return (
        f"At {equals('γ', point.gamma)}, where the overall error (test error plus γ times "
        f"payments) is smallest, the buyer buys from "
        f"{share(int(row.n_bought), point.n_sellers, 'seller')} and pays "
        f"{format_number(row.payments)} in total. The model trained under the privacy that was "
        f"sold misclassifies {format_percent(row.error_mean)} of the test rows, on average over "
        f"{count(point.n_draws, 'noise draw')}{spread}. The same learner on all rows "
        f"alike, without noise, misclassifies {format_percent(result.baseline_error)}."
    )


def _privacy_words(point: Highlight) -> str:
    sold, total = float(point.row.epsilon_max), float(point.row.guarantee_max)
    if not total > 0:
        return "Nothing is bought, so nobody's row is used and nobody loses privacy."
    accounted = "which the accounting confirms as the total guarantee"
    if total > sold * (1 + 1e-9):
        accounted = f"and the largest total guarantee, accounting included, is {short(total)}"
    return (
        f"The largest privacy guarantee sold there is {equals('ε', sold)}, {accounted}: "
        f"{promise_words(total)}"
    )


def _naive_words(result: TradeoffResult) -> str:
    """Count at how many gammas the mechanism beats the naive model, scenario by scenario."""
    if NAIVE not in set(result.curve.model):
        return ""
    parts = []
    for scenario, rows in result.curve.groupby("scenario", sort=False):
        overall = rows.pivot(index="gamma", columns="model", values="overall_mean").dropna()
        wins = int((overall[MECHANISM] < overall[NAIVE]).sum())
        parts.append(f"at {wins} of {count(len(overall), 'value')} of γ with {scenario}")
    return (
        "The mechanism's overall error is below that of the naive model "
        f"{listing(parts)} sensitivities. The naive model leaves the spread of the "
        "weights and the noise out of its objective (μ = σ = 0); how much privacy it buys was "
        "decided by the values of η that it was allowed."
    )


def _largest_payment(result: TradeoffResult) -> float:
    return float(result.curve.payments.max())


def _largest_gap(result: TradeoffResult, model: str) -> float:
    gaps = pd.to_numeric(select(result.curve, model=model).gap)
    return max(0.0, float(gaps.max()))


# ---------------------------------------------------------------- the sections


def _tradeoff_section(result: TradeoffResult) -> Section:
    drawn, words = [], []
    for scenario, rows in result.curve.groupby("scenario", sort=False):
        words.append(_ends(select(rows, model=MECHANISM), str(scenario)))
        drawn.append(
            Figure(
                f"tradeoff_{scenario}",
                f"Test error and payments over γ, {scenario} sensitivities. A larger γ pays less "
                "and errs more; the distance from the dashed line is what privacy costs in "
                "accuracy. Band: one standard deviation over noise draws on either side of the "
                "mean.",
                partial(figures.tradeoff_curve, rows, result.baseline_error),
                f"Two panels over gamma on a log scale: test error and payments. {words[-1]}",
            )
        )
    drawn += frontier_figures(
        result.curve.rename(columns={"model": "series", "error_mean": "error"}),
        result.sellers.rename(columns={"model": "series"}),
        MISCLASSIFIED,
    )
    return Section(
        "The trade-off between error and payments",
        (
            "γ is the weight of payments in the buyer's objective. With μ and σ unchanged, a "
            "larger γ buys less privacy, pays less, and trains under more noise; here μ and σ are "
            f"chosen anew at each γ. {' '.join(words)}",
        ),
        figures=tuple(drawn),
        tables=(_tradeoff_table(result),),
    )


def _tradeoff_table(result: TradeoffResult) -> Table:
    measured = {
        "error_mean": "test error",
        "error_std": "its std",
        "overall_mean": "overall error",
        "overall_std": "its std",
    }
    return Table(
        "tradeoff",
        "Error, payments and overall error at every γ; std is the standard deviation over noise "
        "draws.",
        result.curve[[*KEY, "n_bought", "payments", *measured]],
        GREEK | measured,
        dict.fromkeys(measured, ".4f"),
    )


def _ends(rows: pd.DataFrame, scenario: str) -> str:
    """Say what happens from the smallest gamma to the largest."""
    rows = rows.sort_values("gamma")
    low, high = rows.iloc[0], rows.iloc[-1]
    if len(rows) == 1:
        return (
            f"With {scenario} sensitivities, the mechanism pays {short(low.payments)} at "
            f"{equals('γ', low.gamma)}, with a test error of {format_percent(low.error_mean)}."
        )
    return (
        f"With {scenario} sensitivities, from {equals('γ', low.gamma)} to "
        f"{equals('γ', high.gamma)} the mechanism's payments go from {short(low.payments)} to "
        f"{short(high.payments)}, and its test error from {format_percent(low.error_mean)} to "
        f"{format_percent(high.error_mean)}."
    )


def _overall_section(result: TradeoffResult) -> Section:
    prose = [
        "The overall error adds γ times payments to the test error: it is what a buyer pays in "
        "all who values money at γ. It compares models at the same γ; at two different γ it "
        "compares two different buyers."
    ]
    if NAIVE in set(result.curve.model):
        (low, high), grid = result.problem.naive.eta_range, result.problem.naive.grid
        prose.append(
            "The naive model is degenerate by design. Without the terms for spread and noise its "
            "objective only falls as less is bought, so its optimum is to buy nothing; it buys "
            f"something because η is held at one of {count(grid, 'value')} between "
            f"{short(low)} and {short(high)}, the one that the validation rows like best. That "
            "range, and not an optimum, decided its answer; another range would give another "
            "comparison."
        )
    figure = Figure(
        "overall_error",
        "Overall error over γ: the model whose line is lowest serves the buyer best. Band: one "
        "standard deviation over noise draws on either side.",
        partial(figures.overall_error, result.curve),
        "Overall error over gamma on a log scale, one panel per scenario and one line per model. "
        "The numbers are in the table tradeoff.",
    )
    return Section("Overall error", tuple(prose), figures=(figure,))


def _few_gammas(result: TradeoffResult, point: Highlight) -> list[float]:
    """Choose at most three gammas: the ends, and the summary's one or the middle."""
    gammas = sorted(set(result.curve.gamma))
    if len(gammas) <= 3:
        return gammas
    inner = point.gamma if gammas[0] < point.gamma < gammas[-1] else gammas[len(gammas) // 2]
    return [gammas[0], inner, gammas[-1]]


def _sellers_section(result: TradeoffResult, point: Highlight) -> Section:
    few = _few_gammas(result, point)
    offers = select(result.sellers, model=MECHANISM)
    offers = offers[offers.gamma.isin(few)]
    shown = listing([short(gamma) for gamma in few])
    bought = Figure(
        "who_is_bought_from",
        f"Privacy sold by each seller against its sensitivity, at γ = {shown}. The dearer a "
        "seller, the less it sells; where the points reach zero, or end, nobody dearer is bought "
        "from.",
        partial(figures.who_is_bought_from, offers),
        "Scatter of epsilon against sensitivity: " + _bought_words(result, point, few),
    )
    spread = Figure(
        "distributions",
        f"Privacy sold and payments, of the sellers bought from ({point.scenario} "
        f"sensitivities) at γ = {shown}: bars far to the right are "
        "sellers who give up, or receive, much more than others. Each panel has its own scale.",
        partial(figures.distributions, select(offers, scenario=point.scenario)),
        "Histograms of epsilon and of payments. " + _bought_words(result, point, few),
    )
    return Section(
        "Who was bought from",
        (
            "A seller with a larger sensitivity has a larger virtual cost, the price of its "
            "privacy to the buyer, and sells less privacy; above a threshold, nothing. Who "
            "sells nothing is paid nothing, and its row is not used. μ and σ are chosen anew at "
            "each γ, so the curves of two γ may cross. " + _bought_words(result, point, few),
        ),
        figures=(bought, spread),
        tables=(_sellers_table(result, point),),
    )


def _bought_words(result: TradeoffResult, point: Highlight, gammas: Sequence[float]) -> str:
    """Say for a few gammas how many are bought from, and up to which sensitivity."""
    parts = []
    for gamma in gammas:
        offers = select(result.sellers, scenario=point.scenario, model=MECHANISM, gamma=gamma)
        bought = offers[offers.epsilon > 0]
        where = f"at {equals('γ', gamma)}, {share(len(bought), len(offers), 'seller')}"
        if len(bought):
            where += f", up to a sensitivity of {short(float(bought.sensitivity.max()))}"
        parts.append(where)
    text = "; ".join(parts)
    return f"With {point.scenario} sensitivities: {text}."


def _sellers_table(result: TradeoffResult, point: Highlight) -> Table:
    """List every offer; those of the summary's point come first, cheapest seller first."""
    frame = result.sellers
    elsewhere = ~(
        (frame.scenario == point.scenario)
        & (frame.model == MECHANISM)
        & (frame.gamma == point.gamma)
    )
    order = frame.assign(elsewhere=elsewhere, place=range(len(frame)))
    order["place"] = order.place.where(order.elsewhere, 0)
    order["cost"] = order.sensitivity.where(~order.elsewhere, 0.0)
    order = order.sort_values(["elsewhere", "place", "cost"], kind="stable")
    return Table(
        "sellers",
        f"Offers to sellers, first those at {equals('γ', point.gamma)} ({point.scenario}, "
        f"{MECHANISM}) by increasing sensitivity. The surplus is the payment minus the seller's "
        "cost.",
        order.drop(columns=["elsewhere", "place", "cost"]),
        GREEK,
        rows_shown=20,
        complete=frame,
    )


def _guarantee_section(result: TradeoffResult) -> Section:
    points = [*_privacy_points(result), INCENTIVES]
    if NAIVE in set(result.curve.model):
        points.append(
            "The naive model carries the same privacy guarantee for what it bought. It has no "
            "guarantee of being a sensible purchase."
        )
    if result.problem.data.source == "inline":
        points.append(
            "The sellers' own rows also serve as validation and test rows here: the errors are "
            "those on training rows."
        )
    return Section(
        "What is guaranteed, and on which assumptions", points=(*points, *result.caveats)
    )


def _privacy_points(result: TradeoffResult) -> list[str]:
    learner, norm = result.problem.learner, result.problem.data.data_norm
    total = "The noise was chosen so that the total is at most what was sold."
    if learner.calibration == "noise":
        total = (
            "The noise was set by what was sold, so the total can be larger than that; the "
            "table of offers lists both."
        )
    return [
        "Privacy of the model: each seller's total guarantee holds for the released model, "
        f"replacing that seller's row by any other. The accounting is {learner.accounting!r}: it "
        f"{ACCOUNTING_WORDS[learner.accounting]}. {total}",
        f"It assumes that the bound on the norm of every row ({short(norm)}) "
        "and the set of labels are public and not read off the sold data; that weights and η are "
        "chosen without looking at the data; and that one noise draw is released. A second, exact "
        "noise, whose share is part of the total, covers how far the computed model is from the "
        "minimiser, and the rounding. The draws of "
        "this page are for comparison: releasing all of them would add up their guarantees, and "
        "so would releasing models for several γ.",
        "Payments carry no privacy guarantee: they depend on the reported sensitivities, and so "
        "reveal something about them to whoever sees the payments.",
    ]


def _correlation_section(result: TradeoffResult, point: Highlight) -> Section:
    rows = select(result.curve, model=MECHANISM, scenario=CORRELATED, gamma=point.gamma)
    compared = ""
    if len(rows):
        row, other = rows.iloc[0], point.row
        compared = (
            f" At {equals('γ', point.gamma)} the test error is {format_percent(row.error_mean)} "
            f"with correlated sensitivities and {format_percent(other.error_mean)} with "
            f"{point.scenario} ones; payments are {short(row.payments)} and "
            f"{short(other.payments)}."
        )
    feature = result.problem.sellers.correlated_with
    name = f"the feature {feature!r}" if isinstance(feature, str) else f"feature {feature}"
    return Section(
        "Sensitivities correlated with the data",
        (
            "In the correlated scenario the seller with the k-th smallest sensitivity owns the "
            f"row with the k-th smallest value of {name}, so that buying from cheap sellers "
            f"selects rows.{compared}",
            "Truthfulness does not suffer: it concerns reports alone. Privacy does. The weights, "
            "η and the payments are functions of the sensitivities, and where these go with the "
            "data, publishing any of them tells something about the rows. The guarantee of the "
            "model is conditional on them: it says what the model adds to what they already "
            "reveal, and nothing bounds what they reveal.",
        ),
    )


def _choice_section(result: TradeoffResult) -> Section:
    columns = [*KEY, "mu", "sigma", "regularization", "eta", "validation_error"]
    return Section(
        "Hyperparameters and noise draws",
        (
            "For every γ, μ, σ and Λ are those with the smallest overall error on the validation "
            "split; η follows from the allocation.",
        ),
        tables=(
            Table(
                "hyperparameters",
                "What was chosen, and the largest guarantee that came of it.",
                result.curve[[*columns, "epsilon_max", "guarantee_max"]],
                GREEK,
                {"validation_error": ".4f"},
            ),
            Table(
                "draws",
                "Test error of every noise draw.",
                result.draws,
                GREEK,
                {"test_error": ".4f"},
                rows_shown=10,
            ),
        ),
    )
