"""The reports of files of kind "market": a headline, figures, two tables, and an appendix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from convexmarket.report import Report, compare, escape_markdown, format_number
from convexmarket.report.figures import bars, lines
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import DUST

__all__ = [
    *("CHARGED", "MECHANISM", "NAIVE", "SHARE"),
    *("change_at_equal", "learning_report", "variants_report"),
]

#: A DataFrame: its columns have known types.
Frame = Any
#: The names of the models: the mechanism, the papers' baseline, and the mechanism with Lambda
#: chosen within the privacy that was sold.
MECHANISM, NAIVE, CHARGED = "mechanism", "naive", "charged tuning"
#: The beginning of the names of columns with the weight of a group.
SHARE = "weight of "
#: Relative differences between interpolated curves that count as a tie.
CLOSE = 2e-3


def _appendix(report: Report, runs: Runs) -> None:
    """Add the caveats, and the tables that the page does not show."""
    caveats = (f"- {escape_markdown(text)}" for text in runs.facts["caveats"])
    report.add("\n".join(caveats), appendix=True)
    for name, table in runs.tables.items():
        if len(table):
            caption = name.replace("_", " ").capitalize()
            name, keys = name.replace("_", "-"), runs.keys[name]
            report.add(table, caption, name=name, keys=keys, rows=15, appendix=True)


def _claim_audits(report: Report, audits: Frame, label: Sequence[str]) -> None:
    """Claim that no seller gains by a misreport, and none loses; ``label`` names markets."""
    if "max_gain" not in audits or (audits := audits.dropna(subset=["max_gain"])).empty:
        return
    audits = audits.set_index(list(label))
    report.claim(
        "No seller gains from any misreport",
        holds=audits.incentive_compatible.astype(bool),
        detail=f"The largest gain is {audits.max_gain.max():.1e}.",
    )
    report.claim(
        "No truthful seller loses",
        holds=audits.individually_rational.astype(bool),
        detail=f"The smallest surplus is {format_number(audits.min_surplus.min())}.",
    )


def _draw_sold(report: Report, sold: Frame, **options: Any) -> None:
    figure = lines(sold, "sensitivity", "epsilon", ylabel="ε sold", **options)
    caption = "Privacy sold by each seller over its sensitivity"
    alt = "Falling points of epsilon over sensitivity, one series for each market."
    report.add(figure, caption, name="sold", alt=alt)


# ---------------------------------------------------------------------------- with a learner


def learning_report(problem: Any, runs: Runs) -> Report:
    """Return the report of a market with a learner."""
    report = Report(problem.title, settings=runs.facts)
    if "choices" in runs.tables:
        _regression(report, runs, problem.units)
        offers = runs.tables["sellers"].query("marked")
    else:
        _classification(report, runs)
        offers = runs.tables["sellers"].query("model == @MECHANISM")
    gammas = sorted(set(offers.gamma))
    few = {gammas[0], gammas[len(gammas) // 2], gammas[-1]}
    sold = offers[offers.gamma.isin(few) & (offers.epsilon > 0)].sort_values("gamma")
    sold = sold.assign(series=[f"γ = {format_number(gamma)}" for gamma in sold.gamma])
    _draw_sold(report, sold, hue="series", panels="scenario", log="y", joined=False)
    if (data := problem.data).source in ("csv", "parquet"):
        origin = f"are the column “{data.report}” of “{data.file}”"
        rows = runs.facts["rows"].items()
        counts = ", ".join(f"{number:,} for {part}" for part, number in rows if part != "train")
        text = f"The reports {origin if data.report else 'are simulated'}. Public rows, which are "
        report.add(escape_markdown(f"{text}not bought: {counts}."))
    label = [key for key in runs.keys["audits"] if key != "model"]
    _claim_audits(report, runs.tables["audits"], label)
    _appendix(report, runs)
    return report


def _classification(report: Report, runs: Runs) -> None:
    tables: Any = runs.tables
    facts, key = runs.facts, list(runs.keys["curve"])
    curve, draws = tables["curve"], tables["draws"]
    honest = CHARGED if CHARGED in set(curve.model) else MECHANISM
    gammas = sorted(set(curve.gamma))
    point = curve[(curve.model == honest) & (curve.gamma == gammas[len(gammas) // 2])].iloc[0]
    at_middle = (
        f"At γ = {format_number(point.gamma)} ({point.scenario} sensitivities), "
        f"{point.n_bought:,} of {facts['rows']['train']:,} sellers sell for "
        f"{format_number(point.payments)}. The model misclassifies {point.error_mean:.1%} of the "
        f"test rows, and {facts['baseline_error']:.1%} without privacy; one class for all is wrong "
        f"on {facts['one_class_error']:.1%}."
    )
    overall = draws.merge(curve[[*key, "payments"]], on=key)
    overall["error"] = overall.test_error + overall.gamma * overall.payments
    wide = overall.pivot_table(index=["scenario", "gamma", "draw"], columns="model", values="error")
    if NAIVE in wide:
        _against_naive(report, wide[[honest, NAIVE]].dropna())
        report.add(at_middle)
    else:
        report.headline(at_middle)
    bands = curve.assign(
        low=curve.error_mean - curve.error_std, high=curve.error_mean + curve.error_std
    )
    options: dict[str, Any] = {"hue": "model", "panels": "scenario", "low": "low", "high": "high"}
    options |= {"log": "x", "ylabel": "test error"}
    options["levels"] = {"without privacy": facts["baseline_error"]}
    for name, x, words in (
        ("error", "gamma", "γ, weight of payments"),
        ("frontier", "payments", "total payments"),
    ):
        figure = lines(bands, x, "error_mean", xlabel=words, **options)
        caption = f"Test error over {words}. Bands: one standard deviation over noise draws."
        report.add(figure, caption, name=name, alt=f"Test error over {words}, by model.")
    shown = ["n_bought", "payments", "error_mean", "error_std", "overall_mean", "guarantee_max"]
    report.add(
        curve[[*key, *shown]],
        "Payments, test error and largest guarantee at every γ",
        name="tradeoff",
        keys=key,
        formats=dict.fromkeys(["error_mean", "error_std", "overall_mean"], ".4f"),
        rows=len(curve),
    )


def _against_naive(report: Report, errors: Frame) -> None:
    """Compare a model with the naive one, paired over draws: at each point, and on average."""
    model, naive = errors.columns
    verdicts = errors.groupby(["scenario", "gamma"]).apply(
        lambda rows: compare(rows[model], rows[naive]).verdict
    )
    means = errors.groupby("draw").mean()
    how = " with Λ chosen within what was sold" if model == CHARGED else ""
    subject = f"The overall error of the mechanism{how}"
    words = compare(means[model], means[naive]).sentence(subject, "that of the naive model")
    counts = verdicts.value_counts()
    listed = [f"{word} at {counts[word]}" for word in ("lower", "tie", "higher") if word in counts]
    report.headline(f"{words[:-1]}; {', '.join(listed)} of {len(verdicts)} points.")
    report.claim(
        "The mechanism has a lower overall error than the naive model at every γ",
        holds=verdicts == "lower",
        source="A, Fig. 2",
        detail="Paired over noise draws at each point; a tie counts against the claim.",
    )


def _regression(report: Report, runs: Runs, units: Any) -> None:
    key = list(runs.keys["curve"])
    curve: Any = runs.tables["curve"].copy()
    errors = ["rmse", "rmse_low", "rmse_high", "uniform_rmse"]
    curve[errors] *= units.per_label
    plain = runs.tables["baselines"].rmse.min() * units.per_label
    constant = runs.facts["constant_rmse"] * units.per_label
    curve["series"] = [f"λ = {format_number(value)}" for value in curve.regularization]
    best, labelled = (
        curve.loc[curve.rmse.idxmin()],
        curve.set_index(["scenario", "series", "gamma"]),
    )
    report.headline(
        f"The smallest expected test RMSE is {format_number(best.rmse)} {units.label} at γ = "
        f"{format_number(best.gamma)} and {best.series} ({best.scenario}), and that of the mean "
        f"of the public rows {format_number(constant)}, which the model exceeds at "
        f"{(curve.rmse > constant).sum()} of {len(curve)} points."
    )
    priced = labelled.dropna(subset=["uniform_rmse"])
    report.claim(
        "At equal expense the market predicts better than one price",
        holds=priced.rmse < priced.uniform_rmse if len(priced) else None,
    )
    report.claim(
        "The released model predicts better than the mean of the public rows",
        holds=labelled.rmse < constant,
        detail=f"That mean has an RMSE of {format_number(constant)} {units.label}.",
    )
    options: dict[str, Any] = {"hue": "series", "panels": "scenario", "log": "x"}
    options |= {"low": "rmse_low", "high": "rmse_high"}
    options["levels"] = {"mean of the public rows": constant, "without privacy": plain}
    options |= {"xlabel": f"payments ({units.money or 'money'})"}
    report.add(
        lines(curve, "payments", "rmse", ylabel=f"test RMSE ({units.label})", **options),
        "Expected test RMSE over payments, one point for each γ. Bands: 10 % to 90 % of simulated "
        "releases.",
        name="tradeoff",
        alt="Lines of the test error over payments, one for each lambda.",
    )
    shown = ["marked", "n_bought", "payments", "epsilon_mean", *errors, "bound"]
    caption = f"Purchases and errors ({units.label}); marked is the λ with the best public bound"
    report.add(curve[[*key, *shown]], caption, name="purchases", keys=key)


# ------------------------------------------------------------------------- without a learner


def variants_report(problem: Any, runs: Runs) -> Report:
    """Return the report of a market and its variants."""
    report = Report(problem.title, settings=runs.facts)
    tables: Any = runs.tables
    table, groups = tables["runs"], tables["groups"]
    solved = table[table.status == "solved"]
    swept = [each.name for each in problem.variants if each.sweep is not None]
    curves = solved[solved.market.isin([n for n in swept if (solved.market == n).sum() > 1])]
    single = solved[~solved.market.isin(swept)]
    groups = groups[groups.market.isin(single.market)]
    draws = tables.get("draws")
    findings = [*_of_curves(problem, curves), *_of_singles(problem, single, groups, draws)]
    files = {market.sellers.file for each in problem.variants for market in each.markets} - {None}
    findings += [f"The reports come from {name}." for name in sorted(files)]
    findings += [
        f"“{row.market}” has no answer: {row.status}. {row.message}"
        for row in table[table.status != "solved"].head(5).itertuples()
    ]
    report.headline(findings[0] if findings else runs.statements()[0])
    if len(findings) > 1:
        report.add("\n".join(f"- {escape_markdown(each)}" for each in findings[1:8]))
    verdicts = table.dropna(subset=["incentives"]).groupby("market", sort=False).incentives.first()
    report.claim(
        "Truthful prices exist by construction",
        holds=verdicts == "by construction",
        detail="The table of runs gives the reason for each variant.",
    )
    _claim_audits(report, tables["audits"], ["market"])
    if len(curves):
        caption = "Error over expected payments, one point for each swept value. Lower is better."
        figure = lines(curves, "expected_payments", "error", hue="market", log="x")
        report.add(figure, caption, name="curves", alt="Lines of the error over payments.")
    if len(single):
        sellers = tables["sellers"]
        sizes = sellers.groupby(["market", "value"], dropna=False).weight.transform("size")
        bought = sellers.market.isin(single.market) & (sellers.weight * sizes > DUST)
        panels = "group" if len(groups) else None
        _draw_sold(report, sellers[bought], hue="market", panels=panels, joined=panels is None)
    if len(groups):
        figure = bars(groups, "share_of_weight", "group", hue="market")
        alt = "Bars of the share of the weight by group and variant."
        report.add(figure, "Share of the weight of each group", name="shares", alt=alt)
    if len(tables["virtual_costs"]):
        _draw_costs(report, tables["virtual_costs"])
    names = ["market", "value", "status", "n_bought", "n_effective", "eta", "epsilon_max", "error"]
    report.add(
        table[[*names, "expected_payments", "payments"]].dropna(axis=1, how="all"),
        "Variants",
        name="variants",
        keys=[name for name in ("market", "value") if table[name].notna().any()],
        rows=len(table),
    )
    _appendix(report, runs)
    return report


def change_at_equal(base: Frame, other: Frame, x: str, y: str) -> Any:
    """Return the relative difference of y between two curves at the points of the second.

    The first curve is interpolated in x, monotonely and on a logarithmic scale; missing values are
    outside its range.
    """
    known = base[base[x] > 0].sort_values(x).drop_duplicates(x)
    if len(known) < 2:
        return pd.Series(np.nan, index=other.index)
    curve = PchipInterpolator(np.log(known[x]), known[y], extrapolate=False)
    there = pd.Series(curve(np.log(other[x].where(other[x] > 0))), index=other.index)
    return (other[y] - there) / there.abs()


def _of_curves(problem: Any, curves: Frame) -> list[str]:
    """Compare each curve with the first at equal payments, if all minimise the same error."""
    errors = [
        {label: term for label, term in each.markets[0].objective.items() if not term.kind.pays}
        for each in problem.variants
    ]
    names = list(curves.market.unique()) if all(each == errors[0] for each in errors) else []
    findings = []
    for other in names[1:]:
        base, new = (curves[curves.market == name] for name in (names[0], other))
        change = change_at_equal(base, new, "expected_payments", "error")
        known = change.dropna()
        known = known.where(known.abs() >= CLOSE, 0.0)  # below it interpolation decides
        words = f"differs from that of “{names[0]}” by {known.min():+.1%} to {known.max():+.1%}"
        if not known.any():
            words = f"and that of “{names[0]}” tie, within {CLOSE:.1%}"
        if len(known):
            findings.append(
                f"At equal expected payments the error of “{other}” {words} ({len(known)} of "
                f"{len(change)} points, interpolated)."
            )
    return findings


def _of_singles(problem: Any, single: Frame, groups: Frame, draws: Frame | None) -> list[str]:
    """Compare the first variant with the one that differs most, over draws of the sellers.

    The quantity is the weight of a group, or the largest epsilon without groups. Variants with the
    same objective are also compared by its value.
    """
    if len(single) < 2:
        return []
    first, *others = single.market
    listed = single.set_index("market").assign(draw=0)
    if len(groups):
        shares = groups.pivot_table("share_of_weight", "market", "group", "sum")
        listed = listed.join(shares.add_prefix(SHARE))
    listed = listed.reset_index()
    values = (listed if draws is None else draws).pivot(index="draw", columns="market")

    def sentence(column: str, words: str, other: str) -> str:
        a, b = values[column][other], values[column][first]
        if draws is not None:
            return compare(a, b).sentence(f"{words} in “{other}”", f"that in “{first}”")
        sizes = [f"{format_number(each.iloc[0])} in “{each.name}”" for each in (a, b)]
        return f"{words} is {sizes[0]} and {sizes[1]}, for these sellers."

    def change(column: str) -> Any:
        return (values[column][others].mean() - values[column][first].mean()).abs()

    columns = {
        f"{SHARE}{group}": f"The weight of the group “{group}”" for group in set(groups.group)
    }
    columns = columns or {"epsilon_max": "The largest ε sold"}
    column = max(sorted(columns), key=lambda name: change(name).max())
    other = change(column).idxmax()
    findings = [sentence(column, columns[column], other)]
    terms = [each.markets[0].objective for each in problem.variants if each.name in (first, other)]
    if terms[0] == terms[1]:
        findings.append(sentence("objective", "The objective", other))
    return findings


def _draw_costs(report: Report, costs: Frame) -> None:
    """Draw virtual costs up to where they begin to grow without bound."""
    prior = costs.market.where(costs.group == "", costs.market + ", " + costs.group)
    long = costs.assign(prior=prior).melt(
        ["prior", "sensitivity"], ["raw", "ironed"], var_name="cost", value_name="psi"
    )
    top = 1.3 * long.groupby("prior").psi.transform(lambda values: values.quantile(0.9))
    report.add(
        lines(long[long.psi <= top], "sensitivity", "psi", hue="cost", panels="prior"),
        "Virtual costs, raw and ironed. Where the ironed one is flat, sellers are treated alike.",
        name="costs",
        alt="The raw curve falls in places; the ironed one is flat there.",
    )
