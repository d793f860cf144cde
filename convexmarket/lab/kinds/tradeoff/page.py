"""The report of a trade-off between error and payments."""

from __future__ import annotations

from typing import Any

import pandas as pd

from convexmarket.lab.kinds.tradeoff.problem import RegressionTradeoff
from convexmarket.lab.pages import claim_audits
from convexmarket.lab.result import Result
from convexmarket.report import Report, compare, format_number
from convexmarket.report.figures import lines

__all__ = ["begin"]

MECHANISM, NAIVE, CHARGED = "mechanism", "naive", "charged tuning"
KEY = ["scenario", "model", "gamma"]
SOLD_CAPTION = "Privacy sold by each seller over its sensitivity, at three γ"
SHORT = format_number


def begin(result: Result[Any], report: Report) -> None:
    """Add the finding, figures and tables of a trade-off."""
    if isinstance(result.problem, RegressionTradeoff):
        _begin_regression(result, report)
    else:
        _begin_classification(result, report)
    claim_audits(report, result.tables["audits"], "gamma")


# ----------------------------------------------------------------------------- classification


def _begin_classification(result: Result[Any], report: Report) -> None:
    curve, draws, numbers = result.tables["curve"], result.tables["draws"], result.numbers
    models = list(curve.model.unique())
    honest = CHARGED if CHARGED in models else MECHANISM
    middle = sorted(set(curve.gamma))[curve.gamma.nunique() // 2]
    point = curve[(curve.model == honest) & (curve.gamma == middle)].iloc[0]
    overall = draws.merge(curve[[*KEY, "payments"]], on=KEY)
    overall["error"] = overall.test_error + overall.gamma * overall.payments
    wide = overall.pivot_table(index=["scenario", "gamma", "draw"], columns="model", values="error")
    offered = result.tables["sellers"].query("model == @MECHANISM")
    here = offered[(offered.scenario == point.scenario) & (offered.gamma == middle)]
    at_middle = (
        f"At γ = {SHORT(middle)} ({point.scenario} sensitivities), {(here.epsilon > 0).sum():,} of "
        f"{len(here):,} sellers sell for {SHORT(point.payments)}. The model misclassifies "
        f"{point.error_mean:.1%} of the test rows, and without privacy "
        f"{numbers['baseline_error']:.1%}."
    )
    if NAIVE in models:
        pairs = wide[[honest, NAIVE]].dropna()
        sentence = _compared(pairs, honest)
        verdicts = pairs.groupby(["scenario", "gamma"]).apply(
            lambda rows: compare(rows[honest], rows[NAIVE]).verdict
        )
        counts = verdicts.value_counts()
        listed = [
            f"{noun} at {counts[noun]}" for noun in ("lower", "tie", "higher") if noun in counts
        ]
        report.headline(f"{sentence[:-1]}; {', '.join(listed)} of {len(verdicts)} points.")
        report.add(at_middle)
        if honest != MECHANISM:
            report.add(_compared(wide[[MECHANISM, NAIVE]].dropna(), MECHANISM))
        report.claim(
            "The mechanism has a lower overall error than the naive model at every γ",
            holds=verdicts == "lower",
            source="A, Fig. 2",
            detail="Paired over noise draws at each point; a tie counts against the claim.",
        )
    else:
        report.headline(at_middle)
    curve = curve.assign(
        low=curve.error_mean - curve.error_std, high=curve.error_mean + curve.error_std
    )
    options: dict[str, Any] = {"hue": "model", "panels": "scenario", "low": "low", "high": "high"}
    levels = {"without privacy": numbers["baseline_error"]}
    options |= {"log": "x", "levels": levels, "ylabel": "test error"}
    report.add(
        lines(curve, "gamma", "error_mean", **options, xlabel="γ, weight of payments"),
        "Test error over γ. Bands: one standard deviation over noise draws.",
        alt="Lines of the test error over gamma, one for each model; the errors are in the table "
        "curve.",
        name="error",
    )
    report.add(
        lines(curve, "payments", "error_mean", **options, xlabel="total payments"),
        "Test error over payments, one point for each γ. Lower and further left is better.",
        alt="Lines of the test error over payments, one for each model.",
        name="frontier",
    )
    _add_sold(report, offered)
    shown = ["n_bought", "payments", "error_mean", "error_std", "overall_mean", "guarantee_max"]
    report.add(
        result.tables["curve"][[*KEY, *shown]],
        "Payments, test error and largest guarantee at every γ",
        name="tradeoff",
        keys=KEY,
        formats=dict.fromkeys(["error_mean", "error_std", "overall_mean"], ".4f"),
        rows=len(curve),
    )


def _compared(errors: pd.DataFrame, model: str) -> str:
    """Compare a model with the naive one, paired over noise draws, on average over all points."""
    means = errors.groupby("draw").mean()
    how = " with Λ chosen at the sellers' expense" if model == CHARGED else ""
    subject = f"The overall error of the mechanism{how}"
    return compare(means[model], means[NAIVE]).sentence(subject, "that of the naive model")


# --------------------------------------------------------------------------------- regression


def _begin_regression(result: Result[Any], report: Report) -> None:
    units, curve = result.problem.units, result.tables["curve"].copy()
    errors = ("rmse", "rmse_low", "rmse_high", "uniform_rmse")
    curve[list(errors)] *= units.per_label
    baselines = result.tables["baselines"]
    plain = baselines.assign(rmse=baselines.rmse * units.per_label)
    constant = result.numbers["constant_rmse"] * units.per_label
    best = curve.sort_values("rmse").iloc[0]
    priced = curve.dropna(subset=["uniform_rmse"])
    wins = int((priced.rmse < priced.uniform_rmse).sum())
    smallest = (
        f"the smallest expected test RMSE is {SHORT(best.rmse)} {units.label} at "
        f"γ = {SHORT(best.gamma)} and λ = {SHORT(best.regularization)} ({best.scenario})"
    )
    if len(priced):
        report.headline(
            f"At equal expense the market has a smaller expected test RMSE than one price for all "
            f"at {wins} of {len(priced)} points; {smallest}."
        )
    else:
        report.headline(f"{smallest[0].upper()}{smallest[1:]}.")
    labelled = curve.assign(series=[f"λ = {SHORT(value)}" for value in curve.regularization])
    report.claim(
        "The released model predicts better than a public constant",
        holds=labelled.set_index(["scenario", "series", "gamma"]).rmse < constant,
        detail=f"The constant has an RMSE of {SHORT(constant)} {units.label}.",
    )
    if len(priced):
        report.claim(
            "At equal expense the market predicts better than one price for all",
            holds=priced.set_index(["scenario", "regularization", "gamma"])[
                ["rmse", "uniform_rmse"]
            ]
            .diff(axis=1)
            .uniform_rmse
            > 0,
        )
    report.add(
        lines(
            labelled, "payments", "rmse", hue="series", panels="scenario", low="rmse_low",
            high="rmse_high", log="x", xlabel=f"payments ({units.money or 'money'})",
            ylabel=f"test RMSE ({units.label})",
            levels={"constant": constant, "without privacy": float(plain.rmse.min())},
        ),
        "Expected test RMSE over payments, one point for each γ. Bands: 10 % to 90 % of simulated "
        "releases.",
        alt="Lines of the test error over payments, one for each lambda.",
        name="tradeoff",
    )  # fmt: skip
    sold = result.tables["sellers"]
    _add_sold(report, sold[sold.marked])
    key = ["scenario", "gamma", "regularization"]
    shown = ["marked", "n_bought", "payments", "epsilon_mean", *errors, "bound"]
    report.add(
        curve[[*key, *shown]],
        f"Purchases and errors ({units.label}); marked is the λ with the best public bound",
        name="tradeoff",
        keys=key,
    )
    report.add(plain, f"Test RMSE without noise ({units.label})", name="rmse-without-noise")


def _add_sold(report: Report, offers: pd.DataFrame) -> None:
    """Draw what each seller sells at the ends and the middle of gamma."""
    gammas = sorted(set(offers.gamma))
    few = sorted({gammas[0], gammas[len(gammas) // 2], gammas[-1]})
    sold = offers[offers.gamma.isin(few) & (offers.epsilon > 0)]
    sold = sold.assign(series=[f"γ = {SHORT(gamma)}" for gamma in sold.gamma])
    report.add(
        lines(
            sold.sort_values("gamma"), "sensitivity", "epsilon", hue="series", panels="scenario",
            log="y", xlabel="sensitivity", ylabel="ε sold", joined=False,
        ),
        SOLD_CAPTION,
        alt="Falling points of epsilon over sensitivity, one series for each gamma.",
        name="sold",
    )  # fmt: skip
