"""What the page of a trade-off shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.tradeoff.problem import ClassificationTradeoff, RegressionTradeoff
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.report import figures
from convexmarket.lab.report.marks import Curve
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

__all__ = ["at_edges", "curve_figures", "tradeoff_report"]

MECHANISM = "mechanism"
NAIVE = "naive"
CHARGED = "charged tuning"
CORRELATED = "correlated"
MISCLASSIFIED = "test error (share misclassified)"
KEY = ["scenario", "model", "gamma"]
RIDGE_KEY = ["scenario", "gamma", "regularization"]
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
#: The terms of Theorem 3.6, and their sum.
TERMS = {
    "bound": "the bound",
    "bias": "bias",
    "labels": "noise of the labels",
    "privacy": "noise for privacy",
}
HEADERS = GREEK | {
    "regularization": "λ",
    "eta": "η, sum of ε",
    "epsilon_mean": "ε per person",
    "guarantee": "ε of the model",
    "uniform_epsilon": "ε at one price",
    "explained": "share explained",
    "labels": "noise of the labels",
    "privacy": "noise for privacy",
    "expected_objective": "bias + objective, expected",
    "rmse": "test RMSE",
    "uniform_rmse": "test RMSE at one price",
    "simulated_rmse": "simulated",
    "rmse_low": "10% of releases",
    "rmse_high": "90% of releases",
}


def tradeoff_report(result: Result[Any]) -> Report:
    """Describe a trade-off run, at the middle gamma first.

    Two gammas are two buyers, so none is better; the middle one is nobody's choice.
    """
    numbers, sellers = isinstance(result.problem, RegressionTradeoff), result.tables["sellers"]
    curve = _in_units(result) if numbers else result.tables["curve"]
    mechanism, offers, scenario = _spoken_of(curve), _spoken_of(sellers), curve.scenario.iloc[0]
    first = select(mechanism, scenario=scenario).sort_values("gamma")
    point, few = first.iloc[len(first) // 2], _few(sorted(set(curve.gamma)))
    told = (_of_numbers if numbers else _of_classes)(result, curve, point)
    key, headers = (RIDGE_KEY, HEADERS) if numbers else (KEY, GREEK)
    gap = max(0.0, float(pd.to_numeric((curve if numbers else mechanism).gap).max()))
    certificate = certificate_section(result.certificates, gap, key, headers)
    audit = audit_section(result.tables["audits"], float(curve.payments.max()), headers)
    sold = [select(offers, scenario=scenario, gamma=gamma) for gamma in few]
    n_sellers = len(sold[0])
    bought = f"{int(point.n_bought):,} of {n_sellers:,}"
    return page(
        "convexmarket.lab.kinds.tradeoff",
        result,
        facts=[(f"sellers bought from, at {told['where']}", bought), *told.pop("facts")],
        tables=[*certificate.tables, *audit.tables, *told.pop("tables")],
        figures=[
            *told.pop("figures"),
            *_sold_figures(offers[offers.gamma.isin(few)], few, told.pop("at"), scenario),
        ],
        of_sellers=isinstance(result.problem.data, OwnTable),
        own=own_data_words(result.problem, result.provenance),
        numbers=numbers,
        certificate=certificate,
        audit=audit,
        scenario_shown=scenario,
        point=point,
        n_sellers=n_sellers,
        has_correlated=CORRELATED in set(curve.scenario),
        bought=[_bought(one) for one in sold],
        kept=float(np.max(sellers.guarantee - sellers.epsilon)),
        short=short,
        **told,
    )


def _spoken_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the mechanism, or of a regression those at the marked lambda."""
    return frame[frame.model == MECHANISM] if "model" in frame else frame[frame.marked]


def _few(gammas: list[float]) -> list[float]:
    """Return the ends and the middle."""
    return sorted({gammas[0], gammas[len(gammas) // 2], gammas[-1]})


def _bought(offers: pd.DataFrame) -> dict[str, Any]:
    """Return from how many is bought, and up to which sensitivity."""
    sold = offers[offers.epsilon > 0]
    dearest = float(sold.sensitivity.max()) if len(sold) else None
    return {
        "gamma": float(offers.gamma.iloc[0]),
        "bought": len(sold),
        "of": len(offers),
        "dearest": dearest,
    }


def _sold_figures(
    offers: pd.DataFrame, few: list[float], where: tuple[str, str], scenario: str
) -> list[Figure]:
    """Draw who sells what at a few gammas, in all scenarios and in one."""
    listed, (also, currency) = listing([short(gamma) for gamma in few]), where
    return [
        Figure(
            "who_is_bought_from",
            f"Privacy sold by each seller against its sensitivity, at γ = {listed}{also}. The "
            "dearer a seller, the less it sells; where the points reach zero, or end, nobody "
            "dearer is bought from.",
            partial(figures.who_is_bought_from, offers, currency),
            "Scatter of epsilon against sensitivity. The numbers are in the table sellers.",
        ),
        Figure(
            "distributions",
            f"Privacy sold and payments, of the sellers bought from ({scenario} sensitivities) at "
            f"γ = {listed}{also}: bars far to the right are sellers who give up, or receive, much "
            "more than others. Each panel has its own scale.",
            partial(figures.distributions, select(offers, scenario=scenario), currency),
            "Histograms of epsilon and of payments. The numbers are in the table sellers.",
        ),
    ]


# ------------------------------------------------------------------- a learner of classes


def _of_classes(
    result: Result[ClassificationTradeoff], curve: pd.DataFrame, point: pd.Series[Any]
) -> dict[str, Any]:
    problem, mechanism, where = result.problem, _spoken_of(curve), equals("γ", point.gamma)
    there = {name: point[name] for name in KEY}
    correlated = select(mechanism, scenario=CORRELATED, gamma=point.gamma)
    no_lie_pays = bool(result.tables["audits"].incentive_compatible.all())
    gap = max(0.0, float(pd.to_numeric(mechanism.gap).max()))
    return {
        "at": ("", "money"),
        "facts": [
            (f"total payments, at {where}", format_number(point.payments)),
            (f"test error, at {where}", format_percent(point.error_mean)),
            ("test error without privacy", format_percent(result.numbers["baseline_error"])),
            ("largest certified gap", format_number(gap, digits=2)),
            ("no lie of one seller pays, in the audit", "yes" if no_lie_pays else "no"),
        ],
        "tables": _tables(result, point),
        "figures": curve_figures(
            curve,
            result.numbers["baseline_error"],
            "The distance from the dashed line is what privacy costs in accuracy.",
            "total payments",
        ),
        "where": where,
        "one_class": result.numbers.get("one_class_error"),
        "n_draws": len(select(result.tables["draws"], **there)),
        "scenarios": [
            (name, rows.sort_values("gamma").to_dict("records"))
            for name, rows in mechanism.groupby("scenario", sort=False)
        ],
        "edges": at_edges(problem, mechanism),
        "n_chosen": len(mechanism),
        "charged": _charged(result),
        "accounted": float(point.guarantee_max) <= float(point.epsilon_max) * (1 + 1e-9),
        "promise": promise_words(float(point.guarantee_max)),
        "wins": _wins(result),
        "accounting": ACCOUNTING_WORDS[problem.learner.accounting],
        "incentives": INCENTIVES,
        "correlated": None
        if correlated.empty or point.scenario == CORRELATED
        else correlated.iloc[0].to_dict(),
    }


def _wins(result: Result[ClassificationTradeoff]) -> list[tuple[str, int, int]]:
    """Count at how many gammas the mechanism beats the naive model, scenario by scenario."""
    if NAIVE not in set(result.tables["curve"].model):
        return []
    found = []
    for scenario, rows in result.tables["curve"].groupby("scenario", sort=False):
        overall = rows.pivot(index="gamma", columns="model", values="overall_mean").dropna()
        wins = int((overall[MECHANISM] < overall[NAIVE]).sum())
        found.append((str(scenario), wins, len(overall)))
    return found


def _charged(result: Result[ClassificationTradeoff]) -> list[dict[str, Any]]:
    """Compare the errors with a Lambda that is chosen for free and at the sellers' expense."""
    found = []
    for scenario, rows in result.tables["curve"].groupby("scenario", sort=False):
        errors = rows.pivot(index="gamma", columns="model", values="error_mean")
        if CHARGED in errors:
            errors = errors[[MECHANISM, CHARGED]].dropna()
            means = {"free": errors[MECHANISM].mean(), "charged": errors[CHARGED].mean()}
            found.append({"scenario": str(scenario), "of": len(errors), **means})
    return found


def at_edges(problem: Any, rows: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Count how often a chosen hyperparameter lies at the low and at the high end of its list."""
    objective, learner = problem.objective, problem.learner
    lists = {"mu": objective.mu, "sigma": objective.sigma, "regularization": learner.regularization}
    found = []
    for name, values in lists.items():
        lowest, highest = (int((rows[name] == end(values)).sum()) for end in (min, max))
        if len(values) > 1 and lowest + highest:
            found.append((GREEK[name], lowest, highest))
    return found


def curve_figures(curve: pd.DataFrame, baseline: float, note: str, paid: str) -> list[Figure]:
    """Draw error and payments over gamma, the frontier, and the overall error."""
    return [
        *(
            Figure(
                f"tradeoff_{scenario}",
                f"Test error and {paid} over γ, {scenario} sensitivities. {note} Band: one "
                "standard deviation over noise draws on either side of the mean.",
                partial(
                    figures.tradeoff_curve,
                    rows,
                    baseline,
                    f"{paid[:1].upper()}{paid[1:]} to sellers (money)",
                ),
                f"Two panels over gamma on a log scale: test error and {paid}. The numbers are in "
                "the table tradeoff.",
            )
            for scenario, rows in curve.groupby("scenario", sort=False)
        ),
        *(
            Figure(
                f"frontier_{scenario}",
                f"{MISCLASSIFIED.capitalize()} against {paid} (money), {scenario} sensitivities. "
                "One point per γ, joined in the order of γ. Further left is cheaper, lower is more "
                "accurate.",
                partial(figures.frontier, rows, MISCLASSIFIED, f"{paid} (money)"),
                f"Lines of {MISCLASSIFIED} against {paid} (money), with a point for every gamma. "
                "The numbers are in the table tradeoff.",
            )
            for scenario, rows in curve.groupby("scenario", sort=False)
        ),
        Figure(
            "overall_error",
            "Overall error over γ: the model whose line is lowest serves the buyer best. Band: "
            "one standard deviation over noise draws on either side.",
            partial(figures.overall_error, curve),
            "Overall error over gamma on a log scale, one panel per scenario and one line per "
            "model. The numbers are in the table tradeoff.",
        ),
    ]


def _tables(result: Result[ClassificationTradeoff], point: pd.Series[Any]) -> list[Table]:
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


def _sellers_table(result: Result[ClassificationTradeoff], point: pd.Series[Any]) -> Table:
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


# ------------------------------------------------------------------- a learner of numbers


def _of_numbers(
    result: Result[RegressionTradeoff], curve: pd.DataFrame, point: pd.Series[Any]
) -> dict[str, Any]:
    units, learner = result.problem.units, result.problem.learner
    constant = result.numbers["constant_rmse"] * units.per_label
    baselines = result.tables["baselines"]
    baselines = baselines.assign(rmse=baselines.rmse * units.per_label)
    first = select(curve, scenario=point.scenario)
    plain = select(baselines, regularization=point.regularization).rmse.iloc[0]
    audits = result.tables["audits"]
    honest = bool(audits.incentive_compatible.all() and audits.individually_rational.all())

    def errors(value: float) -> str:
        return f"{format_number(value)} {units.label}"

    def money(value: float) -> str:
        return f"{format_number(value)} {units.money}".strip()

    where = f"{equals('γ', point.gamma)} and {equals('λ', point.regularization)}"
    return {
        "at": (" and the λ marked there", units.money or "money"),
        "facts": [
            ("total payments there", money(point.payments)),
            ("test RMSE there", errors(point.rmse)),
            ("without privacy, same λ", errors(plain)),
            ("predicting a constant", errors(constant)),
            ("no lie of one seller pays and nobody loses, in the audit", "yes" if honest else "no"),
        ],
        "tables": _ridge_tables(result, curve, baselines, ",.0f" if constant >= 1000 else ".4g"),
        "figures": _ridge_figures(result, curve, baselines, constant),
        "errors": errors,
        "money": money,
        "where": where,
        "plain": plain,
        "constant": constant,
        "largest_epsilon": float(curve.epsilon_max.max()),
        "best": select(first, gamma=point.gamma)
        .sort_values(["rmse", "marked"], ascending=[True, False])
        .iloc[0],
        "overall": first.sort_values("rmse").iloc[0],
        "one_price": _one_price(curve),
        "deviation": _simulation_deviation(curve),
        "n_worse": int((curve.bound >= learner.coef_norm).sum()),
        "n_points": len(curve),
        "unit_of_money": units.money.removesuffix("s") or "unit",
    }


def _in_units(result: Result[RegressionTradeoff]) -> pd.DataFrame:
    """Return the curve with its errors in the units of the problem, and a name for each lambda."""
    curve = result.tables["curve"].copy()
    curve["simulated_rmse"] = np.sqrt(curve.simulated_loss)
    for column in ("rmse", "rmse_low", "rmse_high", "uniform_rmse", "simulated_rmse"):
        curve[column] *= result.problem.units.per_label
    curve["series"] = [equals("λ", value) for value in curve.regularization]
    return curve


def _one_price(curve: pd.DataFrame) -> dict[str, Any] | None:
    """Compare with one price for all, at the same expense; None where there is no such price."""
    rows = curve.dropna(subset=["uniform_rmse"])
    if rows.empty:
        return None
    return {
        "wins": int((rows.rmse < rows.uniform_rmse).sum()),
        "of": len(rows),
        "ratio": float((rows.uniform_epsilon / rows.epsilon_mean).median()),
    }


def _simulation_deviation(curve: pd.DataFrame) -> float:
    """Return the largest distance of a simulated loss from the exact one, in standard errors."""
    return float(((curve.simulated_loss - curve.loss_mean).abs() / curve.simulated_error).max())


def _ridge_figures(
    result: Result[RegressionTradeoff],
    curve: pd.DataFrame,
    baselines: pd.DataFrame,
    constant: float,
) -> list[Figure]:
    units, learner = result.problem.units, result.problem.learner
    currency = units.money or "money"
    scenario = str(curve.scenario.iloc[0])
    first = select(curve, scenario=scenario)
    paid, error = f"total payments ({currency})", f"test RMSE ({units.label})"
    levels: dict[str, float] = {"constant prediction": constant}
    wide: dict[str, Any] = {"log": "x", "wide": True}
    priced = first.melt(
        ["series", "payments"], ["rmse", "uniform_rmse"], var_name="buyer", value_name="error"
    ).replace({"buyer": {"rmse": "the market", "uniform_rmse": "one price for all"}})
    terms = first.melt(["series", "gamma"], list(TERMS), var_name="term").replace({"term": TERMS})
    return [
        Figure(
            "tradeoff",
            "Expected test RMSE over total payments, one line per λ and one point per γ: the "
            "lowest line at a sum is the best use of it. Bars: 10% to 90% of "
            f"{learner.draws} simulated releases. Dotted: predicting a constant, and the "
            "regression without privacy at its best λ.",
            Curve(
                curve,
                "payments",
                "rmse",
                x_label=paid,
                y_label=error,
                hue="series",
                panels="scenario",
                **wide,
                low="rmse_low",
                high="rmse_high",
                levels=levels | {"without privacy": float(baselines.rmse.min())},
            ),
            "Lines of the test error over total payments, one panel per scenario. The numbers are "
            "in the table tradeoff.",
        ),
        Figure(
            "one_price",
            f"Test RMSE of the market and of one price for all, over total payments ({scenario} "
            "sensitivities). Above the dotted line the constant predicts better.",
            Curve(
                priced,
                "payments",
                "error",
                x_label=paid,
                y_label=error,
                hue="buyer",
                panels="series",
                **wide,
                levels=levels,
            ),
            "Two lines over total payments, one panel per lambda. The numbers are in the table "
            "one-price.",
        ),
        Figure(
            "bound",
            f"Theorem 3.6 for what was bought ({scenario} sensitivities): three terms and their "
            "sum. Where the sum lies above the dotted line, the bound promises less than the zero "
            "model keeps.",
            Curve(
                terms,
                "gamma",
                "value",
                x_label="γ, weight of payments",
                y_label="‖θ* − θ̂‖, at most",
                hue="term",
                panels="series",
                **wide,
                levels={"the zero model's error": learner.coef_norm},
            ),
            "Three terms and their sum over gamma, one panel per lambda. The numbers are in the "
            "table bound.",
        ),
    ]


def _ridge_tables(
    result: Result[RegressionTradeoff],
    curve: pd.DataFrame,
    baselines: pd.DataFrame,
    spec: str,
) -> list[Table]:
    unit = result.problem.units.label
    bought = ["n_bought", "payments", "epsilon_mean", "epsilon_max", "rmse", "explained"]
    errors = ["rmse", "simulated_rmse", "rmse_low", "rmse_high"]
    prices = ["payments", "epsilon_mean", "rmse", "uniform_epsilon", "uniform_rmse"]
    written = dict.fromkeys([*errors, "uniform_rmse"], spec)
    return [
        Table(
            "tradeoff",
            f"What is bought, what it costs and how well it predicts; errors in {unit}. Marked is "
            "the λ with the best public bound.",
            curve[[*RIDGE_KEY, "marked", *bought]],
            HEADERS,
            {"explained": ".1%", "rmse": spec},
        ),
        Table(
            "baselines",
            f"Test RMSE of the same regression on all rows alike, without noise, in {unit}.",
            baselines,
            HEADERS,
            {"rmse": spec},
        ),
        Table(
            "simulation",
            "The expected error in closed form, the same from simulated releases, and the error "
            f"that 10% and 90% of these stay below; in {unit}.",
            curve[[*RIDGE_KEY, *errors]],
            HEADERS | {"rmse": "expected test RMSE"},
            {name: written[name] for name in errors},
            rows_shown=5,
        ),
        Table(
            "one-price",
            f"The market and one price for all, at the same expense; errors in {unit}.",
            curve[[*RIDGE_KEY, *prices]],
            HEADERS,
            {name: written[name] for name in ("rmse", "uniform_rmse")},
        ),
        Table(
            "sellers",
            "Offers to sellers at the λ marked for each γ; the surplus is the payment minus the "
            "seller's cost.",
            select(result.tables["sellers"], marked=True).drop(columns="marked"),
            HEADERS,
            rows_shown=15,
            complete=result.tables["sellers"],
        ),
        Table(
            "choices",
            "What the bound promises for every λ before reports are known: its bias, and that with "
            "the objective in the market at the prior's quantiles.",
            result.tables["choices"],
            HEADERS,
        ),
        Table(
            "bound",
            "The terms of the bound for what was bought.",
            curve[[*RIDGE_KEY, "mu", "sigma", "eta", "bias", "labels", "privacy", "bound"]],
            HEADERS,
        ),
    ]
