"""Reports of problem files of kind "market"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from convexmarket.report import Report, compare, escape_markdown, format_number
from convexmarket.report.figures import bars, lines
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import ZERO_WEIGHT
from convexmarket.studies.study_page import finish

#: A DataFrame. The type is Any, because pandas does not declare the types of columns.
Frame = Any
#: Names of the models: the mechanism, the papers' baseline, and the mechanism with Lambda chosen
#: within the privacy sold.
MECHANISM, NAIVE, CHARGED = "mechanism", "naive", "charged tuning"
#: Relative difference of errors below which interpolated errors are treated as equal.
CLOSE = 0.002
_WORDS = {
    "objective": "objective",
    "error": "error",
    "expected_payments": "expected payment",
    "n_effective": "effective number of sellers",
    "epsilon_max": "largest ε sold",
    "share": "weight of “{group}”",
}


def _draw_sold(report: Report, sold: Frame, **options: Any) -> None:
    figure = lines(sold, "sensitivity", "epsilon", ylabel="ε sold", **options)
    report.add(figure, "Privacy sold by each seller against its sensitivity", name="sold")


def learning_report(problem: Any, runs: Runs) -> Report:
    """Return the report of a market with a learner."""
    report, sellers = Report(problem.title, settings=runs.facts), runs.tables["sellers"]
    if "choices" in runs.tables:
        _regression(report, runs, problem.units)
        offers = sellers[sellers.marked]
    else:
        _classification(report, runs)
        offers = sellers[sellers.model == MECHANISM]
    gammas = sorted(set(offers.gamma))
    few = {gammas[0], gammas[len(gammas) // 2], gammas[-1]}
    sold = offers[offers.gamma.isin(few) & (offers.epsilon > 0)].sort_values("gamma", kind="stable")
    sold = sold.assign(series=[f"γ = {format_number(gamma)}" for gamma in sold.gamma])
    _draw_sold(report, sold, hue="series", panels="scenario", log="y", joined=False)
    finish(report, runs)
    return report


def _classification(report: Report, runs: Runs) -> None:
    facts, curve, key = runs.facts, runs.tables["curve"], list(runs.keys["curve"])
    honest = CHARGED if CHARGED in set(curve.model) else MECHANISM
    shown, baseline = curve[curve.model == honest], facts["baseline_error"]
    draws: Frame = runs.tables["draws"].merge(curve[[*key, "payments"]], on=key)
    draws["error"] = draws.test_error + draws.gamma * draws.payments
    errors = draws.pivot(index=["scenario", "gamma", "draw"], columns="model", values="error")
    point: Any = shown.iloc[shown.gamma.nunique() // 2]
    at_middle = (
        f"At γ = {format_number(point.gamma)} ({point.scenario} sensitivities), "
        f"{point.n_bought:,} of {facts['rows']['train']:,} sellers sell for "
        f"{format_number(point.payments)}. The test error is {point.error_mean:.1%} for the model, "
        f"{baseline:.1%} without privacy, and {facts['one_class_error']:.1%} for predictions of "
        "the more common class."
    )
    if NAIVE in errors:
        _against_naive(report, errors[[honest, NAIVE]].dropna())
        report.add(at_middle)
    else:
        report.headline(at_middle)
    low, high = curve.error_mean - curve.error_std, curve.error_mean + curve.error_std
    style: dict[str, Any] = {"hue": "model", "panels": "scenario", "low": "low", "high": "high"}
    style |= {"levels": {"without privacy": baseline}, "log": "x", "ylabel": "test error"}
    axes = {"error": ("gamma", "γ, weight of payments"), "frontier": ("payments", "total payments")}
    for name, (x, words) in axes.items():
        bands = curve.assign(low=low, high=high)
        caption = f"Test error against {words}. Bands: one standard deviation over noise draws."
        report.add(lines(bands, x, "error_mean", xlabel=words, **style), caption, name=name)
    columns = ["n_bought", "payments", "error_mean", "error_std", "overall_mean", "guarantee_max"]
    report.add(
        shown[["scenario", "gamma", *columns]],
        f"Payments, test error and largest guarantee at every γ; model: {honest}",
        name="tradeoff",
        keys=["scenario", "gamma"],
        formats=dict.fromkeys(["error_mean", "error_std", "overall_mean"], ".4f"),
    )


def _against_naive(report: Report, errors: Frame) -> None:
    model, naive = errors.columns
    verdicts = errors.groupby(["scenario", "gamma"]).apply(
        lambda rows: compare(rows[model], rows[naive]).verdict
    )
    means = errors.groupby("draw").mean()
    how = " with Λ chosen within the privacy sold" if model == CHARGED else ""
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
    unit, scale, key = units.label, units.per_label, list(runs.keys["curve"])
    constant = runs.facts["constant_rmse"] * scale
    trivial = f"an RMSE of {format_number(constant)} {unit}"
    curve: Frame = runs.tables["curve"].copy()
    curve["series"] = [f"λ = {format_number(value)}" for value in curve.regularization]
    curve["low"] = np.sqrt((curve.loss_mean - curve.loss_std).clip(0))
    curve["high"] = np.sqrt(curve.loss_mean + curve.loss_std)
    curve[["rmse", "low", "high", "uniform_rmse"]] *= scale
    points = curve.set_index(["scenario", "series", "gamma"])
    better, useful = points.rmse < points.uniform_rmse, points.rmse < constant
    mean = 1 - np.exp(np.log(points.rmse / points.uniform_rmse).mean())
    report.headline(
        f"The expected test RMSE of the market is {mean:.0%} lower than that of one price for all "
        f"(geometric mean of {len(curve)} points, exact; lower at {better.sum()}). The released "
        f"model predicts better than the mean of the public rows, {trivial}, at {useful.sum()} of "
        f"{len(curve)} points; the smallest expected RMSE of the market is "
        f"{format_number(curve.rmse.min())} {unit}."
    )
    report.claim("At equal payments, the market predicts better than a uniform price", holds=better)
    report.claim(
        "The released model predicts better than the mean of the public rows",
        holds=useful,
        detail=f"That mean has {trivial}.",
    )
    plain = runs.tables["baselines"].rmse.min() * scale
    figure = lines(
        curve, "payments", "rmse", hue="series", panels="scenario", log="x", low="low",
        high="high", ylabel=f"test RMSE ({unit})",
        levels={"mean of the public rows": constant, "without privacy": plain},
    )  # fmt: skip
    caption = (
        "Expected test RMSE against payments, one point per γ. Bands: one standard deviation of "
        "the squared error over draws of the noise."
    )
    report.add(figure, caption, name="tradeoff")
    columns = [*key, "n_bought", "payments", "epsilon_mean", "rmse", "uniform_rmse", "bound"]
    caption = f"Purchases and errors ({unit}) at the λ with the best public bound"
    report.add(curve.loc[curve.marked, columns], caption, name="purchases", keys=key)


def variants_report(problem: Any, runs: Runs) -> Report:
    """Return the report of a market and its variants."""
    report, tables = Report(problem.title, settings=runs.facts), dict[str, Frame](runs.tables)
    table, groups, sellers = tables["runs"], tables["groups"], tables["sellers"]
    is_swept, is_solved = table.value.notna(), table.status == "solved"
    curves = table[is_swept & is_solved]
    findings = [*_at_equal_payments(problem, curves), _comparison(problem, tables.get("draws"))]
    report.headline(" ".join(filter(None, findings)) or runs.statements()[0])
    for row in table[~is_solved].head(5).itertuples():
        text = f"“{row.market}” has no answer: {row.status}. {row.message}"
        report.add(escape_markdown(text))
    verdicts = table.dropna(subset=["incentives"]).groupby("market", sort=False).incentives.first()
    report.claim(
        "Truthful prices exist by construction",
        holds=verdicts == "by construction",
        detail="The appendix gives the reason for each variant.",
    )
    if is_swept.any():
        caption = "Error against expected payments at each swept value. Lower errors are better."
        words: dict[str, Any] = {"hue": "market", "log": "x", "xlabel": "expected payments"}
        report.add(lines(curves, "expected_payments", "error", **words), caption, name="curves")
    single = sellers[sellers.value.isna()]
    if len(single):
        size = single.groupby("market").weight.transform("size")
        bought = single[single.weight * size > ZERO_WEIGHT]
        panels = "group" if len(groups) else None
        _draw_sold(report, bought, hue="market", panels=panels, joined=panels is None)
    if len(groups := groups[groups.value.isna()]):
        share = "share of the weight"
        figure = bars(groups, "share_of_weight", "group", hue="market", xlabel=share)
        report.add(figure, "Share of the weight of each group", name="shares")
    few: list[int] = []
    for _, rows in table.groupby("market", sort=False):
        few += sorted({rows.index[place] for place in (0, len(rows) // 2, -1)})
    names = ["market", "value", "status", "n_bought", "n_effective", "eta", "epsilon_max", "error"]
    report.add(
        table.loc[few, [*names, "expected_payments", "payments"]].dropna(axis=1, how="all"),
        "Variants, with the first, middle and last value of each sweep",
        name="variants",
        keys=["market", "value"] if is_swept.any() else ["market"],
    )
    finish(report, runs)
    return report


def _at_equal_payments(problem: Any, curves: Frame) -> Iterator[str]:
    """Compare each curve with the first curve if their objectives differ only in the payments."""
    names = list(curves.market.unique())
    terms = {
        name: {key: part for key, part in table.objective.items() if not part.kind.reports}
        for name, table in problem.middles().items()
    }
    base = curves[curves.market.isin(names[:1])].sort_values("expected_payments")
    for other in names[1:]:
        new = curves[curves.market == other]
        paid = np.log(base.expected_payments), np.log(new.expected_payments)
        if terms[other] == terms[names[0]] and len(base) > 1 and np.all(np.diff(paid[0]) > 0):
            expected = PchipInterpolator(paid[0], base.error, extrapolate=False)(paid[1])
            change = (new.error / expected - 1)[np.isfinite(expected)]
            tie = (change.abs() < CLOSE).all()
            words = f"differ by {change.min():+.1%} to {change.max():+.1%}"
            yield (
                f"At equal expected payments the errors of “{other}” and “{names[0]}” "
                f"{f'differ by less than {CLOSE:.1%}' if tie else words} ({len(change)} of "
                f"{len(new)} points, interpolated)."
            )


def _comparison(problem: Any, draws: Frame) -> str:
    if (pair := problem.run.compare) is None:
        return ""
    texts: list[str] = []
    for quantity in pair.quantities:
        wide = draws.pivot(index="draw", columns="market", values=quantity).dropna()
        if wide.empty:  # a market has failed
            continue
        result = compare(wide[pair.variant], wide[pair.base])
        if len(wide) == 1:  # listed sellers are not drawn
            result = replace(result, low=result.estimate, high=result.estimate)
        noun = _WORDS[quantity].format(group=pair.group)
        subject = f"{'the' if texts else 'The'} {noun} in “{pair.variant}”"
        texts.append(result.sentence(subject, f"that in “{pair.base}”").removesuffix("."))
    if not texts:
        return ""
    (variant,) = (each for each in problem.variants if each.name == pair.variant)
    middle = variant.values[len(variant.values) // 2]
    at = f" at {variant.sweep.key} = {middle:g}" if variant.sweep else ""
    sellers = "over draws of the sellers" if len(draws) > 2 else "for these sellers"
    return f"{'; '.join(texts)}{at}, {sellers}."
