"""What the page of a trade-off shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from convexmarket.lab.kinds.tradeoff.problem import TradeoffProblem
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.report import figures
from convexmarket.lab.report.frontier import MISCLASSIFIED, frontier_figures
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import (
    INCENTIVES,
    audit_section,
    certificate_section,
    own_data_words,
    promise_words,
    select,
    short,
)
from convexmarket.lab.report.words import equals, format_number, format_percent, listing
from convexmarket.lab.result import Result
from convexmarket.privacy import Accounting

__all__ = ["tradeoff_report"]

MECHANISM = "mechanism"
NAIVE = "naive"
CHARGED = "charged tuning"
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
    "general": "is ε + log(1 + R² a/(4Λ)), which holds for every convex loss",
    "paper": "is ε + 2 log(1 + R² a_max/Λ), Proposition II.2 of the paper",
}


@dataclass(frozen=True)
class Highlight:
    """The point of the curve that the page speaks about first, and what surrounds it."""

    scenario: str
    gamma: float
    row: pd.Series
    n_sellers: int
    n_draws: int


def highlight(result: Result[TradeoffProblem]) -> Highlight:
    """Return the mechanism at the middle gamma of the first scenario.

    Two gammas are two buyers, so none is better; the middle one is nobody's choice.
    """
    scenario = str(result.tables["curve"].scenario.iloc[0])
    rows = select(result.tables["curve"], scenario=scenario, model=MECHANISM).sort_values("gamma")
    row = rows.iloc[len(rows) // 2]
    offers = select(result.tables["sellers"], scenario=scenario, model=MECHANISM, gamma=row.gamma)
    draws = select(result.tables["draws"], scenario=scenario, model=MECHANISM, gamma=row.gamma)
    return Highlight(scenario, float(row.gamma), row, len(offers), len(draws))


def tradeoff_report(result: Result[TradeoffProblem]) -> Report:
    """Describe a trade-off run."""
    point, curve = highlight(result), result.tables["curve"]
    certificate = certificate_section(result.certificates, _largest_gap(result), KEY, GREEK)
    audit = audit_section(result.tables["audits"], float(curve.payments.max()), GREEK)
    correlated = select(curve, model=MECHANISM, scenario=CORRELATED, gamma=point.gamma)
    has_correlated = CORRELATED in set(curve.scenario) and point.scenario != CORRELATED
    return page(
        "convexmarket.lab.kinds.tradeoff",
        result,
        facts=_facts(result, point),
        tables=[*certificate.tables, *audit.tables, *_tables(result, point)],
        figures=_figures(result, point),
        of_sellers=isinstance(result.problem.data, OwnTable),
        own=own_data_words(result.problem, result.provenance),
        point=point,
        scenarios=[
            (name, select(rows, model=MECHANISM).sort_values("gamma").to_dict("records"))
            for name, rows in curve.groupby("scenario", sort=False)
        ],
        edges=_at_edges(result),
        charged=_charged(result),
        accounted=float(point.row.guarantee_max) <= float(point.row.epsilon_max) * (1 + 1e-9),
        promise=promise_words(float(point.row.guarantee_max)),
        wins=_wins(result),
        certificate=certificate,
        audit=audit,
        bought=_bought(result, point),
        accounting=ACCOUNTING_WORDS[result.problem.learner.accounting],
        incentives=INCENTIVES,
        has_correlated=has_correlated,
        correlated=correlated.iloc[0].to_dict() if has_correlated and len(correlated) else None,
        short=short,
    )


def _facts(result: Result[TradeoffProblem], point: Highlight) -> list[tuple[str, str]]:
    row, where = point.row, f"at {equals('γ', point.gamma)}"
    no_lie_pays = bool(result.tables["audits"].incentive_compatible.all())
    return [
        (f"sellers bought from, {where}", f"{int(row.n_bought):,} of {point.n_sellers:,}"),
        (f"total payments, {where}", format_number(row.payments)),
        (f"test error, {where}", format_percent(row.error_mean)),
        ("test error without privacy", format_percent(result.numbers["baseline_error"])),
        ("largest certified gap", format_number(_largest_gap(result), digits=2)),
        ("no lie of one seller pays, in the audit", "yes" if no_lie_pays else "no"),
    ]


def _largest_gap(result: Result[TradeoffProblem]) -> float:
    gaps = pd.to_numeric(select(result.tables["curve"], model=MECHANISM).gap)
    return max(0.0, float(gaps.max()))


def _wins(result: Result[TradeoffProblem]) -> list[tuple[str, int, int]]:
    """Count at how many gammas the mechanism beats the naive model, scenario by scenario."""
    if NAIVE not in set(result.tables["curve"].model):
        return []
    found = []
    for scenario, rows in result.tables["curve"].groupby("scenario", sort=False):
        overall = rows.pivot(index="gamma", columns="model", values="overall_mean").dropna()
        wins = int((overall[MECHANISM] < overall[NAIVE]).sum())
        found.append((str(scenario), wins, len(overall)))
    return found


def _charged(result: Result[TradeoffProblem]) -> list[dict[str, Any]]:
    """Compare the errors with a Lambda that is chosen for free and at the sellers' expense."""
    found = []
    for scenario, rows in result.tables["curve"].groupby("scenario", sort=False):
        errors = rows.pivot(index="gamma", columns="model", values="error_mean")
        if CHARGED in errors:
            errors = errors[[MECHANISM, CHARGED]].dropna()
            means = {"free": errors[MECHANISM].mean(), "charged": errors[CHARGED].mean()}
            found.append({"scenario": str(scenario), "of": len(errors), **means})
    return found


def _at_edges(result: Result[TradeoffProblem]) -> list[tuple[str, int, int]]:
    """Count how often a chosen hyperparameter lies at an end of its list."""
    rows, problem = select(result.tables["curve"], model=MECHANISM), result.problem
    lists = {
        "mu": problem.objective.mu,
        "sigma": problem.objective.sigma,
        "regularization": problem.learner.regularization,
    }
    found = [
        (GREEK[name], int(rows[name].isin([min(values), max(values)]).sum()), len(rows))
        for name, values in lists.items()
        if len(values) > 1
    ]
    return [one for one in found if one[1]]


def _bought(result: Result[TradeoffProblem], point: Highlight) -> list[dict[str, Any]]:
    """Return for a few gammas how many are bought from, and up to which sensitivity."""
    found = []
    for gamma in _few_gammas(result, point):
        offers = select(
            result.tables["sellers"], scenario=point.scenario, model=MECHANISM, gamma=gamma
        )
        sold = offers[offers.epsilon > 0]
        dearest = float(sold.sensitivity.max()) if len(sold) else None
        found.append({"gamma": gamma, "bought": len(sold), "of": len(offers), "dearest": dearest})
    return found


# ----------------------------------------------------------------------------------- figures


def _few_gammas(result: Result[TradeoffProblem], point: Highlight) -> list[float]:
    """Choose at most three gammas: the ends, and the summary's one or the middle."""
    gammas = sorted(set(result.tables["curve"].gamma))
    if len(gammas) <= 3:
        return gammas
    inner = point.gamma if gammas[0] < point.gamma < gammas[-1] else gammas[len(gammas) // 2]
    return [gammas[0], inner, gammas[-1]]


def _figures(result: Result[TradeoffProblem], point: Highlight) -> list[Figure]:
    few = _few_gammas(result, point)
    offers = select(result.tables["sellers"], model=MECHANISM)
    offers = offers[offers.gamma.isin(few)]
    shown = listing([short(gamma) for gamma in few])
    return [
        *(
            Figure(
                f"tradeoff_{scenario}",
                f"Test error and payments over γ, {scenario} sensitivities. A larger γ pays less "
                "and errs more; the distance from the dashed line is what privacy costs in "
                "accuracy. Band: one standard deviation over noise draws on either side of the "
                "mean.",
                partial(figures.tradeoff_curve, rows, result.numbers["baseline_error"]),
                "Two panels over gamma on a log scale: test error and payments. The numbers are "
                "in the table tradeoff.",
            )
            for scenario, rows in result.tables["curve"].groupby("scenario", sort=False)
        ),
        *frontier_figures(
            result.tables["curve"].rename(columns={"model": "series", "error_mean": "error"}),
            result.tables["sellers"].rename(columns={"model": "series"}),
            MISCLASSIFIED,
        ),
        Figure(
            "overall_error",
            "Overall error over γ: the model whose line is lowest serves the buyer best. Band: "
            "one standard deviation over noise draws on either side.",
            partial(figures.overall_error, result.tables["curve"]),
            "Overall error over gamma on a log scale, one panel per scenario and one line per "
            "model. The numbers are in the table tradeoff.",
        ),
        Figure(
            "who_is_bought_from",
            f"Privacy sold by each seller against its sensitivity, at γ = {shown}. The dearer a "
            "seller, the less it sells; where the points reach zero, or end, nobody dearer is "
            "bought from.",
            partial(figures.who_is_bought_from, offers),
            "Scatter of epsilon against sensitivity. The numbers are in the table sellers.",
        ),
        Figure(
            "distributions",
            f"Privacy sold and payments, of the sellers bought from ({point.scenario} "
            f"sensitivities) at γ = {shown}: bars far to the right are sellers who give up, or "
            "receive, much more than others. Each panel has its own scale.",
            partial(figures.distributions, select(offers, scenario=point.scenario)),
            "Histograms of epsilon and of payments. The numbers are in the table sellers.",
        ),
    ]


# ------------------------------------------------------------------------------------ tables


def _tables(result: Result[TradeoffProblem], point: Highlight) -> list[Table]:
    measured = {
        "error_mean": "test error",
        "error_std": "its std",
        "overall_mean": "overall error",
        "overall_std": "its std",
    }
    chosen = [*KEY, "mu", "sigma", "regularization", "eta", "validation_error"]
    return [
        Table(
            "tradeoff",
            "Error, payments and overall error at every γ; std is the standard deviation over "
            "noise draws.",
            result.tables["curve"][[*KEY, "n_bought", "payments", *measured]],
            GREEK | measured,
            dict.fromkeys(measured, ".4f"),
        ),
        _sellers_table(result, point),
        Table(
            "hyperparameters",
            "What was chosen, and the largest guarantee that came of it.",
            result.tables["curve"][[*chosen, "epsilon_max", "guarantee_max"]],
            GREEK,
            {"validation_error": ".4f"},
        ),
        Table(
            "draws",
            "Test error of every noise draw.",
            result.tables["draws"],
            GREEK,
            {"test_error": ".4f"},
            rows_shown=10,
        ),
    ]


def _sellers_table(result: Result[TradeoffProblem], point: Highlight) -> Table:
    """List every offer; those of the summary's point come first, cheapest seller first."""
    frame = result.tables["sellers"]
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
