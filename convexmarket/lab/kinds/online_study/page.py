"""The report of the study of online policies: what is lost against hindsight, and to ignorance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.online_study import figures
from convexmarket.lab.kinds.online_study.figures import POLICIES, Series
from convexmarket.lab.kinds.online_study.problem import KNOWING
from convexmarket.lab.kinds.online_study.run import MEASURES, OnlineStudyResult
from convexmarket.lab.kinds.online_study.words import (
    in_quotes,
    main_fraction,
    percent,
    summary_words,
)
from convexmarket.lab.report.claims import claims_section
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import reproduction_section, select
from convexmarket.lab.report.words import equals, listing

__all__ = ["WORDS", "online_study_report"]

#: What the columns are called on the page.
WORDS = {
    "size": "m, expected",
    "fraction": "ξ",
    "arrived": "came",
    "empty": "draws without a purchase",
    "loss": "loss",
    "paid_loss": "loss with the payments made",
    "offline": "loss in hindsight",
    "ratio": "ratio",
    "ratio_low": "ratio, from",
    "ratio_high": "to (95%)",
    "ratio_median": "median ratio, all draws",
    "ratio_limit": "limit for many sellers",
    "regret": "regret",
    "regret_low": "regret, from",
    "regret_high": "to (95%)",
    "eta": "η",
    "n_bought": "sellers bought from",
    "largest_weight": "largest weight",
}
HOW = (
    "Verdicts follow from the numbers. A rise or a fall counts if the 95% interval of the mean "
    "difference, paired over draws, excludes zero. What approaches 1 is tested by the logarithm of "
    "its distance, and has to end within 1% of it. To fall as fast as a power of m, the 95% "
    "interval of the fitted exponent has to end at or below the claimed one; it counts in part if "
    "the interval only contains it."
)
_MOST_CURVES = 4
LIMIT = (
    "For many sellers, and a prior with density at zero, half of the planned loss is spread, a "
    "quarter noise and a quarter payments, and the optimum of ξ·m sellers is ξ^(-1/4) times "
    "that of m. So the ratio tends to ξ^(1/4)·(1/(2·sqrt(ξ)) + 1/(4·ξ) + ξ/4), whatever μ, σ and "
    "γ are."
)


def online_study_report(result: OnlineStudyResult) -> Report:
    """Describe a study of online policies.

    Parameters
    ----------
    result : OnlineStudyResult

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    sections = [
        _loss_section(result),
        _ratio_section(result),
        _fraction_section(result),
        _regret_section(result),
        claims_section(result.claims, HOW) if result.claims else None,
        _rates_section(result),
        _purchases_section(result),
        Section("What this does not show", points=result.caveats),
        reproduction_section(result.problem, result.provenance, result.timings),
    ]
    return Report(
        title=result.problem.title,
        summary=summary_words(result),
        sections=tuple(section for section in sections if section is not None),
        results=result,
        facts=_facts(result),
    )


def _facts(result: OnlineStudyResult) -> tuple[Fact, ...]:
    study = result.problem.study
    facts = [
        Fact("sellers expected", f"{study.sizes[0]:,} to {study.sizes[-1]:,}"),
        Fact("draws of each", f"{study.draws}"),
        Fact("runs without a purchase", f"{int(np.isinf(result.draws.loss).sum()):,}"),
    ]
    last = select(result.points, fraction=main_fraction(result), size=study.sizes[-1])
    for policy in study.policies[:2]:
        ratio = float(last[last.policy == policy].ratio.iloc[0])
        facts.append(Fact(f"above hindsight, {POLICIES[policy]}", percent(ratio - 1)))
    if result.claims:
        good = sum(claim.verdict == "reproduced" for claim in result.claims)
        facts.append(Fact("claims reproduced", f"{good} of {len(result.claims)}"))
    return tuple(facts)


def _curves(result: OnlineStudyResult) -> list[Series]:
    """Return the curves over m: a policy each, or a fraction each of the first policy."""
    study = result.problem.study
    if len(study.fractions) == 1:
        return [(POLICIES[name], select(result.points, policy=name)) for name in study.policies]
    rows = select(result.points, policy=study.policies[0])
    fractions = _few(study.fractions)[::-1]
    return [(equals("ξ", fraction), select(rows, fraction=fraction)) for fraction in fractions]


def _few(values: Sequence[float]) -> list[float]:
    """Return some of the values, evenly spaced and with the last, as many as a figure shows."""
    step = max(1, -(-len(values) // _MOST_CURVES))
    return list(values)[::-1][::step][::-1]


def _drawn(result: OnlineStudyResult) -> list[Series]:
    """Return the curves that have a point."""
    return [(name, rows) for name, rows in _curves(result) if np.isfinite(rows.loss).any()]


def _whose(result: OnlineStudyResult) -> str:
    study = result.problem.study
    if len(study.fractions) == 1:
        return ""
    return f" of {in_quotes(study.policies[0])}, by the fraction ξ that comes"


def _loss_section(result: OnlineStudyResult) -> Section:
    curves, several = _drawn(result), len(result.problem.study.fractions) > 1
    offline = [("optimum in hindsight", rows) for _, rows in (curves if several else curves[:1])]
    goes = "falls towards a bound above zero" if result.floor else "falls along a straight line"
    drawn = Figure(
        "loss",
        f"The loss{_whose(result)}, over the number m of sellers expected, both on log scales. "
        f"What to see: it {goes}, and how far it stays above the optimum in hindsight (dashed). "
        "Error bars: 95% interval of the mean over draws; hollow: some draws bought nothing.",
        partial(figures.loss_over_m, curves, offline, result.floor),
        "Curves of the loss over m. The numbers are in the table losses.",
    )
    return Section(
        "The loss",
        (
            "The loss is A's Eq. (11): the spread of the weights, the noise, and the price of the "
            "privacy bought, at the virtual costs of the true prior. With the payments that were "
            "made in their place it is much the same, because payments are virtual costs in "
            "expectation.",
        ),
        figures=(drawn,) if curves else (),
        tables=(_points_table(result),),
    )


def _means(result: OnlineStudyResult, *names: str) -> pd.DataFrame:
    """Return some columns of the points, after those that say what they are of."""
    frame = result.points.assign(policy=[POLICIES[name] for name in result.points.policy])
    place = ["policy", "fraction", "size", "arrived", "empty"]
    if len(result.problem.study.fractions) == 1:
        place = ["policy", "size", "empty"]
    return frame[[*place, *(name for name in names if frame[name].notna().any())]]


def _points_table(result: OnlineStudyResult) -> Table:
    names = ("loss", "loss_low", "loss_high", "paid_loss", "offline")
    return Table(
        "losses",
        "Mean losses over the draws in which something was bought; of the optimum in hindsight, "
        "over all draws.",
        _means(result, *names),
        {**WORDS, "loss_low": "loss, from", "loss_high": "to (95%)"},
        rows_shown=60,
    )


def _ratios_table(result: OnlineStudyResult) -> Table:
    names = ["ratio", "ratio_low", "ratio_high", "ratio_median", "ratio_limit"]
    if len(result.problem.study.fractions) == 1:
        names.remove("ratio_limit")
    names += ["regret", "regret_low", "regret_high"]
    return Table(
        "ratios",
        "Mean ratios over the draws in which something was bought. The median counts draws without "
        "a purchase as infinite.",
        _means(result, *names),
        WORDS,
        dict.fromkeys(names[:4], ".5f"),
        rows_shown=60,
    )


def _ratio_section(result: OnlineStudyResult) -> Section | None:
    curves = _drawn(result)
    if not curves:
        return None
    drawn = Figure(
        "ratio",
        f"The competitive ratio{_whose(result)}, less 1, over m, both on log scales: the share by "
        "which the loss exceeds that of the optimum in hindsight. What to see: a straight line "
        "downwards is a power of m; a level line is a loss that does not go away. Error bars: 95% "
        "interval of the mean; one that reaches zero leaves the figure. Hollow: some draws bought "
        "nothing.",
        partial(figures.excess_over_m, curves),
        "Curves of the competitive ratio less 1 over m. The numbers are in the table ratios.",
    )
    return Section(
        "Against hindsight",
        (
            "The optimum in hindsight is the exact optimum of a buyer who knows every report, of "
            "the same sellers, before it offers anything. No quote on arrival can do better.",
        ),
        figures=(drawn,),
        tables=(_ratios_table(result),),
    )


def _fraction_section(result: OnlineStudyResult) -> Section | None:
    study = result.problem.study
    if len(study.fractions) < 2:
        return None
    sizes = _few(study.sizes)
    panels = []
    for policy in study.policies[:3]:
        rows = select(result.points, policy=policy)
        series = [
            (equals("m", size), select(rows, size=size).sort_values("fraction"))
            for size in sizes
            if np.isfinite(select(rows, size=size).ratio).any()
        ]
        if series:
            panels.append((POLICIES[policy], series))
    if not panels:
        return None
    drawn = Figure(
        "fractions",
        "The competitive ratio over the fraction ξ of the expected sellers who come. What to see: "
        "how fast it rises as fewer come, and that curves of many sellers lie on each other: the "
        "price of a wrong number of sellers does not grow with m. Dotted: where the ratio goes as "
        "m grows. Error bars: 95% interval of the mean; hollow: some draws bought nothing.",
        partial(figures.ratio_over_xi, panels),
        "Curves of the competitive ratio over ξ. The numbers are in the table ratios.",
    )
    return Section(
        "When fewer come",
        (
            "What was promised stays as it is. With ξ·m sellers about ξ times the planned privacy "
            "is bought: the noise is 1/ξ times as large, the spread of the weights 1/sqrt(ξ) "
            "times, and the payments are ξ times what was planned. The optimum in hindsight "
            "would have bought more from each.",
            *((LIMIT,) if result.points.ratio_limit.notna().any() else ()),
        ),
        figures=(drawn,),
    )


def _regret_section(result: OnlineStudyResult) -> Section | None:
    known = select(result.points, fraction=main_fraction(result))
    names = [name for name in result.problem.study.policies if name in KNOWING]
    if not names:
        return None
    series = [
        (f"{POLICIES[name]}, against {POLICIES[KNOWING[name]]}", select(known, policy=name))
        for name in names
    ]
    series = [(name, rows) for name, rows in series if np.isfinite(rows.regret).any()]
    drawn = Figure(
        "regret",
        "Regret over m: by which share the loss of a policy that does not know the prior exceeds "
        "that of the same policy when it does, on the same sellers. What to see: regret that falls "
        "is ignorance that goes away, level regret is a guess that is never corrected. Error bars: "
        "95% interval of the mean, paired over draws; one that reaches zero leaves the figure.",
        partial(figures.regret_over_m, series),
        "Curves of the regret over m. The numbers are in the table ratios.",
    )
    missing = [POLICIES[name] for name in names if known[known.policy == name].regret.isna().all()]
    prose = (
        "A policy that learns takes the reports of earlier sellers for the prior, never that of "
        "the seller it quotes."
    )
    if missing:
        prose += f" There is no regret to draw of {listing(missing)}: nothing was bought."
    return Section(
        "What it costs not to know the prior", (prose,), figures=(drawn,) if series else ()
    )


def _rates_section(result: OnlineStudyResult) -> Section:
    fits = result.fits.assign(policy=[POLICIES[name] for name in result.fits.policy])
    fits = fits[fits.n_points > 1]
    if len(result.problem.study.fractions) == 1:
        fits = fits.drop(columns="fraction")
    return Section(
        "How fast",
        (
            "The exponents are those of straight lines through the logarithms of the means over "
            "the logarithm of m, by least squares, at the sizes where something was bought in "
            "every draw. The interval is the regression's, from the scatter of the means around "
            "the line. The last column is the slope between the last two sizes alone: where it "
            "differs from the fitted one, the line is a curve.",
        ),
        tables=(
            Table(
                "exponents",
                "Fitted exponents of m.",
                fits,
                {
                    "fraction": "ξ",
                    "slope": "exponent",
                    "low": "from",
                    "high": "to (95%)",
                    "last": "last two sizes",
                    "n_points": "sizes",
                },
                dict.fromkeys(("slope", "low", "high", "last"), ".3f"),
                rows_shown=60,
            ),
        ),
    )


def _purchases_section(result: OnlineStudyResult) -> Section:
    draws = result.draws.assign(policy=[POLICIES[name] for name in result.draws.policy])
    draws = draws.drop(columns=[name for name in MEASURES if draws[name].isna().all()])
    return Section(
        "What is bought",
        (
            "A small share of the sellers sells anything: the cheapest. Seconds are those of the "
            "plan and of all quotes, on average.",
        ),
        tables=(
            Table(
                "purchases",
                "Means over the draws in which something was bought; seconds over all.",
                _means(result, "eta", "n_bought", "largest_weight", "payments", "seconds"),
                WORDS,
                rows_shown=80,
            ),
            Table(
                "draws",
                "Every policy and draw.",
                draws,
                WORDS,
                rows_shown=8,
                complete=result.draws,
            ),
        ),
    )
