"""What the page of a regression market shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.regression_market.problem import RegressionMarketProblem
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.report import figures
from convexmarket.lab.report.marks import Curve
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import (
    audit_section,
    certificate_section,
    own_data_words,
    select,
    short,
)
from convexmarket.lab.report.words import equals, format_number, listing
from convexmarket.lab.result import Result

__all__ = ["regression_market_report"]

KEY = ["scenario", "gamma", "regularization"]
CORRELATED = "correlated"
#: The terms of Theorem 3.6, and their sum.
TERMS = {
    "bound": "the bound",
    "bias": "bias",
    "labels": "noise of the labels",
    "privacy": "noise for privacy",
}
HEADERS = {
    "gamma": "γ",
    "regularization": "λ",
    "mu": "μ",
    "sigma": "σ",
    "eta": "η, sum of ε",
    "n_sellers": "sellers",
    "n_bought": "sellers bought from",
    "epsilon": "ε sold",
    "epsilon_mean": "ε per person",
    "epsilon_max": "largest ε sold",
    "guarantee": "ε of the model",
    "uniform_epsilon": "ε at one price",
    "virtual_cost": "virtual cost ψ(c)",
    "sensitivity": "sensitivity c",
    "multiplier": "multiplier τ",
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


def regression_market_report(result: Result[RegressionMarketProblem]) -> Report:
    """Describe a market for ridge regression, at the middle gamma and its marked lambda first."""
    curve, units = _in_units(result), result.problem.units
    constant = result.numbers["constant_rmse"] * units.per_label
    baselines = result.tables["baselines"]
    baselines = baselines.assign(rmse=baselines.rmse * units.per_label)
    first = select(curve, scenario=curve.scenario.iloc[0])
    marked = select(first, marked=True).sort_values("gamma")
    point = marked.iloc[len(marked) // 2]
    plain = select(baselines, regularization=point.regularization).rmse.iloc[0]
    payments, gap = float(curve.payments.max()), max(0.0, float(curve.gap.max()))
    audits, offers = result.tables["audits"], select(result.tables["sellers"], marked=True)
    few = _few(sorted(set(offers.gamma)))
    certificate = certificate_section(result.certificates, gap, KEY, HEADERS)
    audit = audit_section(audits, payments, HEADERS)
    honest = bool(audits.incentive_compatible.all() and audits.individually_rational.all())
    n_sellers = int(result.provenance["rows"]["train"])

    def errors(value: float) -> str:
        return f"{format_number(value)} {units.label}"

    def money(value: float) -> str:
        return f"{format_number(value)} {units.money}".strip()

    where = f"{equals('γ', point.gamma)} and {equals('λ', point.regularization)}"
    bought = f"{int(point.n_bought):,} of {n_sellers:,}"
    kept = float(np.max(result.tables["sellers"].guarantee - result.tables["sellers"].epsilon))
    return page(
        "convexmarket.lab.kinds.regression_market",
        result,
        facts=[
            (f"sellers bought from, at {where}", bought),
            ("total payments there", money(point.payments)),
            ("test RMSE there", errors(point.rmse)),
            ("without privacy, same λ", errors(plain)),
            ("predicting a constant", errors(constant)),
            ("no lie of one seller pays and nobody loses, in the audit", "yes" if honest else "no"),
        ],
        tables=[
            *certificate.tables,
            *audit.tables,
            *_tables(result, curve, baselines, ",.0f" if constant >= 1000 else ".4g"),
        ],
        figures=_figures(result, curve, baselines, constant, few),
        of_sellers=isinstance(result.problem.data, OwnTable),
        own=own_data_words(result.problem, result.provenance),
        errors=errors,
        money=money,
        short=short,
        where=where,
        point=point,
        plain=plain,
        constant=constant,
        n_sellers=n_sellers,
        largest_epsilon=float(curve.epsilon_max.max()),
        best=select(first, gamma=point.gamma).sort_values("rmse").iloc[0],
        overall=first.sort_values("rmse").iloc[0],
        one_price=_one_price(curve),
        deviation=_simulation_deviation(curve),
        bought=[_bought(select(offers, scenario=point.scenario, gamma=gamma)) for gamma in few],
        has_correlated=CORRELATED in set(offers.scenario),
        n_worse=int((curve.bound >= result.problem.learner.coef_norm).sum()),
        n_points=len(curve),
        unit_of_money=units.money.removesuffix("s") or "unit",
        audit=audit,
        certificate=certificate,
        kept=kept,
    )


def _in_units(result: Result[RegressionMarketProblem]) -> pd.DataFrame:
    """Return the curve with its errors in the units of the problem, and a name for each lambda."""
    curve = result.tables["curve"].copy()
    curve["simulated_rmse"] = np.sqrt(curve.simulated_loss)
    for column in ("rmse", "rmse_low", "rmse_high", "uniform_rmse", "simulated_rmse"):
        curve[column] *= result.problem.units.per_label
    curve["series"] = [equals("λ", value) for value in curve.regularization]
    return curve


def _few(gammas: list[float]) -> list[float]:
    """Return the ends and the middle."""
    return sorted({gammas[0], gammas[len(gammas) // 2], gammas[-1]})


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


# ----------------------------------------------------------------------------------- figures


def _figures(
    result: Result[RegressionMarketProblem],
    curve: pd.DataFrame,
    baselines: pd.DataFrame,
    constant: float,
    few: list[float],
) -> list[Figure]:
    units, learner = result.problem.units, result.problem.learner
    currency = units.money or "money"
    scenario = str(curve.scenario.iloc[0])
    first = select(curve, scenario=scenario)
    offers = select(result.tables["sellers"], marked=True)
    shown, listed = offers[offers.gamma.isin(few)], listing([short(gamma) for gamma in few])
    paid, error = f"total payments ({currency})", f"test RMSE ({units.label})"
    levels = {"constant prediction": constant}
    priced = first.melt(
        ["series", "payments"], ["rmse", "uniform_rmse"], var_name="buyer", value_name="error"
    ).replace({"buyer": {"rmse": "the market", "uniform_rmse": "one price for all"}})
    terms = first.melt(["series", "gamma"], list(TERMS), var_name="term").replace({"term": TERMS})
    return [
        Figure(
            "tradeoff",
            "Expected test RMSE over total payments, one line per λ and one point per γ: the "
            "lowest line at a sum is the best use of it. Bars: 10% to 90% of "
            f"{learner.draws} simulated releases. Dotted: predicting a constant and, lower, the "
            "regression without privacy at its best λ.",
            Curve(
                curve,
                "payments",
                "rmse",
                x_label=paid,
                y_label=error,
                hue="series",
                panels="scenario",
                log="x",
                wide=True,
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
                log="x",
                wide=True,
                levels=levels,
            ),
            "Two lines over total payments, one panel per lambda. The numbers are in the table "
            "one-price.",
        ),
        Figure(
            "who_is_bought_from",
            f"Privacy sold by each seller against its sensitivity, at γ = {listed} and the λ "
            "marked there. The dearer a seller, the less it sells; where the points reach zero, "
            "or end, nobody dearer is bought from.",
            partial(figures.who_is_bought_from, shown, currency),
            "Scatter of epsilon against sensitivity. The numbers are in the table sellers.",
        ),
        Figure(
            "distributions",
            f"Privacy sold and payments of those bought from ({scenario} sensitivities), at γ = "
            f"{listed} and the λ marked there: bars far to the right are sellers who give up, or "
            "receive, much more than others. Each panel has its own scale.",
            partial(figures.distributions, select(shown, scenario=scenario), currency),
            "Histograms of epsilon and of payments. The numbers are in the table sellers.",
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
                log="x",
                wide=True,
                levels={"the zero model's error": learner.coef_norm},
            ),
            "Three terms and their sum over gamma, one panel per lambda. The numbers are in the "
            "table bound.",
        ),
    ]


# ------------------------------------------------------------------------------------ tables


def _tables(
    result: Result[RegressionMarketProblem],
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
            curve[[*KEY, "marked", *bought]],
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
            curve[[*KEY, *errors]],
            HEADERS | {"rmse": "expected test RMSE"},
            {name: written[name] for name in errors},
            rows_shown=5,
        ),
        Table(
            "one-price",
            f"The market and one price for all, at the same expense; errors in {unit}.",
            curve[[*KEY, *prices]],
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
            curve[[*KEY, "mu", "sigma", "eta", "bias", "labels", "privacy", "bound"]],
            HEADERS,
        ),
    ]
