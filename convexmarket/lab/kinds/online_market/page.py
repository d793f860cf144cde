"""The report of an online market that was closed: what was sold, paid and released.

The words are generated from the results. A report shows reports and payments of single sellers, so
it is for the buyer: it says so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.online_market import figures
from convexmarket.lab.kinds.online_market.market import OnlineMarketResult
from convexmarket.lab.kinds.online_market.words import (
    bought_words,
    came_words,
    cap_words,
    error_words,
    fraction_words,
    kept_words,
    largest_words,
    loss_words,
    optimality_words,
    prior_words,
    rounded,
    unused_words,
    why_words,
)
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import reproduction_section, short
from convexmarket.lab.report.words import (
    count,
    equals,
    format_number,
    format_percent,
    listing,
    share,
)

__all__ = ["online_market_report"]

HEADERS = {
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


def online_market_report(result: OnlineMarketResult) -> Report:
    """Describe an online market that was closed.

    Parameters
    ----------
    result : OnlineMarketResult
        Of :func:`convexmarket.lab.kinds.online_market.market.close_market`, or of a simulation.

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    return Report(
        title=result.problem.title,
        summary=_summary(result),
        sections=(
            _terms_section(result),
            _course_section(result),
            _compared_section(result),
            _model_section(result),
            _guarantee_section(result),
            _audit_section(result),
            _offers_section(result),
            Section("What this does not show", points=result.caveats),
            _origin_section(result),
        ),
        results=result,
        facts=_facts(result),
        model=result.release,
    )


# ---------------------------------------------------------------- the summary


def _facts(result: OnlineMarketResult) -> tuple[Fact, ...]:
    realised, counts = result.summary["realised"], result.summary["counts"]
    expected = result.problem.buyer.expected_sellers
    facts = [
        Fact("sellers quoted", f"{counts['quoted']:,} of {expected:,} expected"),
        Fact("accepted an offer", f"{counts['accepted']:,}"),
        Fact("total privacy sold, η", short(realised["eta"])),
        Fact("paid for it", short(realised["payments"])),
        Fact("largest guarantee, total ε", short(float(result.offers.guarantee.max()))),
    ]
    if result.errors:
        facts.append(Fact("error on public rows", format_percent(result.errors["error"])))
    return tuple(facts)


def _summary(result: OnlineMarketResult) -> tuple[str, ...]:
    words = [
        came_words(result),
        f"{kept_words(result)} {largest_words(result)}",
        error_words(result),
        " ".join(result.problem.description.split()),
    ]
    return tuple(text for text in words if text)


# ---------------------------------------------------------------- the sections


def _after(result: OnlineMarketResult) -> dict[int, int]:
    return dict(zip(result.plans.plan.tolist(), result.plans.after.tolist(), strict=True))


def _terms_section(result: OnlineMarketResult) -> Section:
    after, first = _after(result), result.plans.iloc[0]
    last = float(result.curves.sensitivity.max())
    beyond = int((result.offers.sensitivity > last).sum())
    unseen = (
        f" {count(beyond, 'report')} above {short(last)} {'is' if beyond == 1 else 'are'} to the "
        "right of the picture."
        if beyond
        else ""
    )
    told = " on what earlier sellers reported and sold," if len(after) > 1 else ""
    prose = [
        "Every seller is quoted on arrival. What it is offered depends on its own report, on the "
        f"prior,{told} and on nothing that comes later: a dearer report sells less or as much, and "
        f"{bought_words(result)}{' in the first plan' if len(after) > 1 else ''}. The payment is "
        "the seller's cost and a rent that falls with its report (A, Eq. 8), so that no other "
        "report would earn it more."
    ]
    if len(after) > 1:
        prose.append(
            f"New plans were made after {listing([f'{seen:,}' for seen in after.values() if seen])}"
            f" sellers{why_words(result)}. Whoever comes next is quoted by the new plan; what was "
            "offered before stays."
        )
    bound = (
        " No plan has a smaller loss with expectations in the place of sums than "
        f"{format_number(first.lower_bound, 6)}; the relative gap is "
        f"{format_number(first.gap, 2)}."
        if np.isfinite(first.lower_bound)
        else ""
    )
    prose.append(
        "Under the prior of the problem file a loss of "
        f"{format_number(result.summary['planned']['loss'], 6)} is expected.{bound}"
    )
    return Section(
        "The terms",
        tuple(prose),
        figures=(
            Figure(
                "offer_curves",
                "What a report sells and what is paid for it, under "
                f"{'the one plan' if len(after) == 1 else 'some of the plans'}; every short line "
                f"at the bottom is the report of a seller.{unseen}",
                partial(figures.offer_curves, result.curves, result.offers, after),
                "Two falling curves over the reported sensitivity: privacy bought, and payment. "
                f"Of the first plan, {bought_words(result)}.",
            ),
        ),
        tables=(
            Table(
                "plans",
                f"Every plan. The expected η includes what was sold before{loss_words(result)}",
                _plans(result),
                HEADERS,
                {"gap": ".1e", "payment_error": ".1e"},
            ),
        ),
    )


def _plans(result: OnlineMarketResult) -> pd.DataFrame:
    """Return the plans without columns that say nothing."""
    plans = result.plans.dropna(axis="columns", how="all")
    return plans if plans.payment_error.any() else plans.drop(columns="payment_error")


def _course_section(result: OnlineMarketResult) -> Section:
    planned, realised = result.summary["planned"], result.summary["realised"]
    eta, paid = realised["eta"] / planned["eta"], realised["payments"] / planned["payments"]
    words = (
        f"At the end {format_percent(eta)} of the planned privacy was sold, for "
        f"{format_percent(paid)} of the planned payments."
    )
    return Section(
        "How it went",
        (words, fraction_words(result)),
        figures=(
            Figure(
                "running_totals",
                "What was sold and paid after each seller, counting those who accepted, beside "
                "what a plan under the prior of the file expects on average"
                f"{', and where new plans were made' if len(result.plans) > 1 else ''}.",
                partial(figures.running_totals, result.offers, planned, _after(result)),
                f"Two rising staircases over the sellers who came. {words}",
            ),
        ),
    )


def _compared_section(result: OnlineMarketResult) -> Section:
    summary = result.summary
    planned, realised = summary["planned"], summary["realised"]
    rows = [
        {"quantity": words, "planned": planned.get(key, np.nan), "realised": realised[key]}
        for key, words in QUANTITIES.items()
    ]
    ratio = planned["eta"] / realised["eta"]
    norm = "The loss is μ‖a‖ + σ/η + γ times the expected payments ψ(c)·ε."
    return Section(
        "Planned and realised",
        (
            "A plan is made of expectations. What came is one draw of the sellers, and of their "
            f"answers. {norm} {prior_words(result)}",
            f"Weights are shares of what was sold, {cap_words(summary, ratio)}",
        ),
        tables=(
            Table(
                "comparison",
                "What was to be expected if all came and accepted, and what came of it.",
                pd.DataFrame(rows),
            ),
        ),
    )


def _model_section(result: OnlineMarketResult) -> Section:
    model = result.model
    negative, positive = model["classes"]
    table = pd.DataFrame({"feature": model["features"], "coefficient": model["coef"]})
    return Section(
        "The model that was released",
        (
            f"Logistic regression with {equals('Λ', model['regularization'])} on "
            f"{count(model['sellers'], 'row')}, each weighted by its share of what was sold. It "
            f"says {positive!r} where the sum of coefficients times features is above zero, and "
            f"{negative!r} elsewhere. It is trained once: closing the market again gives this "
            "model again, because another one would spend the same guarantees twice. "
            f"{unused_words(model['rows_not_used'])} {model['data']}",
            error_words(result),
        ),
        tables=(
            Table(
                "coefficients",
                "The released coefficients, noise included; model.json has them in full.",
                table,
                rows_shown=50,
            ),
        ),
    )


def _guarantee_section(result: OnlineMarketResult) -> Section:
    model = result.model
    seed = (
        " In this simulation the seed is that of the problem file, so whoever knows the file "
        "knows the noise."
        if result.simulated
        else ""
    )
    return Section(
        "What is guaranteed, and on which assumptions",
        points=(
            "Privacy of the model: each seller's ε holds for the released coefficients, replacing "
            f"that seller's row by any other. Mechanism: {model['mechanism']}, by the "
            f"“{model['accounting']}” accounting. {kept_words(result)}",
            f"That assumes: {'; '.join(model['assumptions'])}.{seed}",
            "Incentives: truth is each seller's best reply to its own terms, which are fixed "
            "before it reports, fall with the report and pay by Eq. (8); this needs neither a "
            "correct prior nor an optimal plan. Where plans follow from earlier reports, it is "
            "about each seller alone. It assumes that a seller cannot choose when to "
            "come, comes once, and can misstate its sensitivity but not its row.",
            "Participation: every offer pays at least the reported sensitivity times ε, so a "
            "truthful seller does not lose by accepting.",
            optimality_words(result),
            "Reports, offers and payments carry no privacy guarantee.",
        ),
    )


def _audit_section(result: OnlineMarketResult) -> Section:
    audits = result.audits
    gain, surplus = float(audits.max_gain.max()), float(audits.min_surplus.min())
    tolerance = float(audits.tolerance.max())
    menus = "The terms were" if len(audits) == 1 else f"The terms of {len(audits)} plans were"
    lying = (
        "and finds nothing to gain from lying"
        if bool(audits.incentive_compatible.all())
        else "and finds that lying pays"
    )
    losing = (
        "nobody loses by accepting"
        if bool(audits.individually_rational.all())
        else "accepting can cost a seller"
    )
    return Section(
        "The audit of incentives",
        (
            f"{menus} tried out: sellers over the whole support, each with many misreports. The "
            f"audit looks at the quotes themselves {lying}: the largest gain is "
            f"{rounded(gain, tolerance)}; {losing}: the smallest surplus is "
            f"{rounded(surplus, tolerance)}.",
        ),
        tables=(
            Table(
                "audits",
                "Largest gain from any misreport, and smallest surplus of a truthful seller; up "
                "to the tolerance they are rounding.",
                audits,
                HEADERS,
                {"max_gain": ".1e", "min_surplus": ".1e", "tolerance": ".1e"},
            ),
        ),
    )


def _origin_section(result: OnlineMarketResult) -> Section:
    section = reproduction_section(result.problem, result.provenance, result.timings)
    if result.simulated:
        return section
    words = (
        "A market happens once: its sellers came when they came, and the noise in its model came "
        "from a fresh seed that nobody kept. The database of the market has every step with its "
        "time, and from it this report can be written again, with the same model."
    )
    return replace(section, heading="Where this comes from", prose=(words,))


def _offers_section(result: OnlineMarketResult) -> Section:
    offers = result.offers
    sold = offers[offers.epsilon > 0]
    accepted = offers[offers.status == "accepted"]
    weights = accepted.weight.to_numpy()
    effective = 1.0 / float(weights @ weights)
    return Section(
        "The offers, one by one",
        (
            f"{share(len(sold), len(offers), 'seller').capitalize()} were offered something, "
            f"between {equals('ε', float(sold.epsilon.min()))} and "
            f"{equals('ε', float(sold.epsilon.max()))}. The rows of those who accepted weigh as "
            f"much as {short(effective)} equal ones.",
            "Privacy: this table, and results.json, hold what each seller reported and was paid. "
            "They are the buyer's, for its books, and not covered by any guarantee: do not publish "
            "them with the model.",
        ),
        tables=(
            Table(
                "offers",
                "Every offer, in the order of arrival. The surplus is the payment minus the "
                "seller's cost at its report; the total ε is the guarantee of the model that was "
                "released.",
                offers,
                HEADERS,
                rows_shown=15,
            ),
        ),
    )
