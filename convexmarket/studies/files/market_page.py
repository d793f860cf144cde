"""The reports of files of kind "market": a finding, three figures, two tables, and an appendix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from convexmarket.report import Report, compare, escape_markdown, format_number
from convexmarket.report.figures import bars, lines
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import DUST

__all__ = ["change_at_equal", "learning_report", "variants_report"]

#: A DataFrame: its columns have known types.
Frame = Any
#: Relative differences between interpolated curves that count as a tie.
CLOSE = 2e-3
#: Swept keys that limit the sales of each seller.
LIMITS = ("constraints.max_epsilon", "constraints.cap")
MECHANISM, NAIVE, CHARGED = "mechanism", "naive", "charged tuning"
SOLD = " with Λ chosen within what was sold"
FREE = " with Λ chosen on validation rows, a choice that no guarantee covers,"


def _draw(report: Report, figure: Any, caption: str, name: str, alt: str) -> None:
    report.add(figure, caption, name=name, alt=alt)


def _finish(report: Report, runs: Runs, names: Iterable[str]) -> None:
    """Add caveats, and tables that the page does not show."""
    report.add(
        "\n".join(f"- {escape_markdown(text)}" for text in runs.facts["caveats"]), appendix=True
    )
    for name in names:
        table = runs.tables[name]
        if len(table) and name not in [each.name for each in report.tables]:
            caption = name.replace("_", " ").capitalize()
            report.add(
                table,
                caption,
                name=name.replace("_", "-"),
                keys=runs.keys[name],
                rows=15,
                appendix=True,
            )


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


def _draw_sold(report: Report, offers: Frame) -> None:
    """Draw the sales of each seller at the ends and the middle of gamma."""
    gammas = sorted(set(offers.gamma))
    few = sorted({gammas[0], gammas[len(gammas) // 2], gammas[-1]})
    sold = offers[offers.gamma.isin(few) & (offers.epsilon > 0)].sort_values("gamma")
    sold = sold.assign(series=[f"γ = {format_number(gamma)}" for gamma in sold.gamma])
    options: dict[str, Any] = {"hue": "series", "panels": "scenario", "log": "y", "joined": False}
    figure = lines(sold, "sensitivity", "epsilon", xlabel="sensitivity", ylabel="ε sold", **options)
    caption = "Privacy sold by each seller over its sensitivity, at three γ"
    alt = "Falling points of epsilon over sensitivity, one series for each gamma."
    _draw(report, figure, caption, "sold", alt)


# ---------------------------------------------------------------------------- with a learner


def learning_report(problem: Any, runs: Runs) -> Report:
    """Return the report of a market with a learner."""
    report = Report(problem.title, settings=runs.facts)
    if "choices" in runs.tables:
        _regression(report, runs, problem.units)
    else:
        _classification(report, runs)
    if (data := problem.data).source in ("csv", "parquet"):
        column = f"are the column “{data.report}” of “{data.file}”"
        counts = ", ".join(
            f"{number:,} for {part}"
            for part, number in runs.facts["rows"].items()
            if part != "train"
        )
        origin = column if data.report else "are simulated"
        text = f"The reports {origin}. Public rows, which are not bought: {counts}."
        report.add(escape_markdown(text))
    label = ["scenario", "gamma", *(["regularization"] if "choices" in runs.tables else [])]
    _claim_audits(report, runs.tables["audits"], label)
    _finish(report, runs, runs.tables)
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
        verdicts, headline = _against_naive(wide, honest, SOLD if honest == CHARGED else "")
        counts = verdicts.value_counts()
        listed = [
            f"{word} at {counts[word]}" for word in ("lower", "tie", "higher") if word in counts
        ]
        report.headline(f"{headline[:-1]}; {', '.join(listed)} of {len(verdicts)} points.")
        report.add(at_middle)
        if honest != MECHANISM:
            report.add(_against_naive(wide, MECHANISM, FREE)[1])
        report.claim(
            "The mechanism has a lower overall error than the naive model at every γ",
            holds=verdicts == "lower",
            source="A, Fig. 2",
            detail="Paired over noise draws at each point; a tie counts against the claim.",
        )
    else:
        report.headline(at_middle)
    ends = {"low": curve.error_mean - curve.error_std, "high": curve.error_mean + curve.error_std}
    options: dict[str, Any] = {"hue": "model", "panels": "scenario", "low": "low", "high": "high"}
    options |= {"log": "x", "ylabel": "test error"}
    options["levels"] = {"without privacy": facts["baseline_error"]}
    _draw(
        report,
        lines(
            curve.assign(**ends), "gamma", "error_mean", xlabel="γ, weight of payments", **options
        ),
        "Test error over γ. Bands: one standard deviation over noise draws.",
        "error",
        "Lines of the test error over gamma, one for each model; the errors are in the table.",
    )
    _draw(
        report,
        lines(curve.assign(**ends), "payments", "error_mean", xlabel="total payments", **options),
        "Test error over payments, one point for each γ. Lower and further left is better.",
        "frontier",
        "Lines of the test error over payments, one for each model.",
    )
    _draw_sold(report, tables["sellers"].query("model == @MECHANISM"))
    shown = ["n_bought", "payments", "error_mean", "error_std", "overall_mean", "guarantee_max"]
    report.add(
        curve[[*key, *shown]],
        "Payments, test error and largest guarantee at every γ",
        name="tradeoff",
        keys=key,
        formats=dict.fromkeys(["error_mean", "error_std", "overall_mean"], ".4f"),
        rows=len(curve),
    )


def _against_naive(errors: Frame, model: str, how: str) -> tuple[Any, str]:
    """Compare a model with the naive one, paired over draws: at each point, and on average."""
    pairs = errors[[model, NAIVE]].dropna()
    verdicts = pairs.groupby(["scenario", "gamma"]).apply(
        lambda rows: compare(rows[model], rows[NAIVE]).verdict
    )
    means = pairs.groupby("draw").mean()
    subject = f"The overall error of the mechanism{how}"
    words = compare(means[model], means[NAIVE]).sentence(subject, "that of the naive model")
    return verdicts, words


def _regression(report: Report, runs: Runs, units: Any) -> None:
    key = list(runs.keys["curve"])
    curve: Any = runs.tables["curve"].copy()
    errors = ["rmse", "rmse_low", "rmse_high", "uniform_rmse"]
    curve[errors] *= units.per_label
    plain = runs.tables["baselines"].rmse.min() * units.per_label
    constant = runs.facts["constant_rmse"] * units.per_label
    curve["series"] = [f"λ = {format_number(value)}" for value in curve.regularization]
    best, priced = curve.loc[curve.rmse.idxmin()], curve.dropna(subset=["uniform_rmse"])
    smallest = (
        f"the smallest expected test RMSE is {format_number(best.rmse)} {units.label} at γ = "
        f"{format_number(best.gamma)} and {best.series} ({best.scenario}), and that of the mean "
        f"of the public rows {format_number(constant)}, which the model exceeds at "
        f"{(curve.rmse > constant).sum()} of {len(curve)} points"
    )
    labelled = priced.set_index(["scenario", "series", "gamma"])
    cheaper = labelled.rmse < labelled.uniform_rmse
    if len(priced):
        smallest = (
            "at equal expense the market has a smaller expected test RMSE than one price for all "
            f"at {cheaper.sum()} of {len(cheaper)} points; {smallest}"
        )
        report.claim("At equal expense the market predicts better than one price", holds=cheaper)
    report.headline(f"{smallest[0].upper()}{smallest[1:]}.")
    report.claim(
        "The released model predicts better than the mean of the public rows",
        holds=curve.set_index(["scenario", "series", "gamma"]).rmse < constant,
        detail=f"That mean has an RMSE of {format_number(constant)} {units.label}.",
    )
    _draw(
        report,
        lines(
            curve,
            "payments",
            "rmse",
            hue="series",
            panels="scenario",
            low="rmse_low",
            high="rmse_high",
            log="x",
            xlabel=f"payments ({units.money or 'money'})",
            ylabel=f"test RMSE ({units.label})",
            levels={"mean of the public rows": constant, "without privacy": plain},
        ),
        "Expected test RMSE over payments, one point for each γ. Bands: 10 % to 90 % of simulated "
        "releases.",
        "tradeoff",
        "Lines of the test error over payments, one for each lambda.",
    )
    _draw_sold(report, runs.tables["sellers"].query("marked"))
    shown = ["marked", "n_bought", "payments", "epsilon_mean", *errors, "bound"]
    report.add(
        curve[[*key, *shown]],
        f"Purchases and errors ({units.label}); marked is the λ with the best public bound",
        name="tradeoff",
        keys=key,
    )


# ------------------------------------------------------------------------- without a learner


def variants_report(problem: Any, runs: Runs) -> Report:
    """Return the report of a market and its variants."""
    report = Report(problem.title, settings=runs.facts)
    tables: Any = runs.tables
    table, groups = tables["runs"], tables["groups"]
    solved = table[table.status == "solved"]
    swept = {each.name: each.sweep.key for each in problem.variants if each.sweep is not None}
    curves = [name for name in swept if (solved.market == name).sum() > 1]
    single = solved[~solved.market.isin(list(swept))]
    findings = [*_of_curves(problem, solved, swept, curves), *_of_singles(problem, single, groups)]
    files = {market.sellers.file for each in problem.variants for market in each.markets} - {None}
    if files:
        findings.append(f"The reports come from {', '.join(map(str, files))}.")
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
    _draw_variants(report, solved[solved.market.isin(curves)], single, tables)
    names = ["market", "value", "status", "n_bought", "n_effective", "eta", "epsilon_max", "error"]
    report.add(
        table[[*names, "expected_payments", "payments"]].dropna(axis=1, how="all"),
        "Variants",
        name="variants",
        keys=[name for name in ("market", "value") if table[name].notna().any()],
        rows=len(table),
    )
    _finish(report, runs, tables)
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


def _of_curves(problem: Any, solved: Frame, swept: dict[str, str], curves: list[str]) -> list[str]:
    """Compare curves: limits at equal guarantees, others with the first at equal payments."""
    limits = sorted((n for n in curves if swept[n] in LIMITS), key=lambda n: LIMITS.index(swept[n]))
    pairs = [(limits[0], name, "epsilon_max", "objective") for name in limits[1:]]
    errors = [
        {label: term for label, term in each.markets[0].objective.items() if not term.builds.pays}
        for each in problem.variants
    ]
    if all(error == errors[0] for error in errors):
        pairs += [(curves[0], name, "expected_payments", "error") for name in curves[1:]]
    findings = []
    for first, other, x, y in pairs:
        base, new = (solved[solved.market == name] for name in (first, other))
        change = change_at_equal(base, new, x, y)
        known = change.dropna()
        where = "largest ε sold" if x == "epsilon_max" else x.replace("_", " ")
        points = f"({len(known)} of {len(change)} points, interpolated)"
        if known.empty:
            findings.append(f"“{first}” and “{other}” have no {where} in common.")
        elif known.abs().max() < CLOSE:
            findings.append(
                f"At equal {where} the {y} of “{other}” and “{first}” tie, within {CLOSE:.1%} "
                f"{points}."
            )
        else:
            known = known.where(known.abs() >= CLOSE, 0.0)  # below it interpolation decides
            words = [f"{known.min():+.1%}" if known.min() else "0", f"{known.max():+.1%}"]
            findings.append(
                f"At equal {where} the {y} of “{other}” differs from that of “{first}” by "
                f"{words[0]} to {words[1]} {points}."
            )
    return findings


def _of_singles(problem: Any, single: Frame, groups: Frame) -> list[str]:
    """Compare variants without a sweep: groups, the cost of constraints, and extremes."""
    findings = []
    if len(groups):
        table = groups[groups.market.isin(single.market)] if len(single) else groups
        shares = table.pivot_table(index="group", columns="market", values="share_of_weight")
        group = (shares.max(axis=1) - shares.min(axis=1)).idxmax()
        share = shares.T[group].sort_values()
        findings.append(
            f"The group “{group}” carries {share.iloc[0]:.1%} of the weight in “{share.index[0]}” "
            f"and {share.iloc[-1]:.1%} in “{share.index[-1]}”."
        )
    if len(single) < 2:
        return findings
    markets = {each.name: each.markets[0] for each in problem.variants}
    rows = list(single.itertuples())
    base = markets[rows[0].market]
    for row in rows[1:]:
        market = markets[row.market]
        if all(getattr(base, p) == getattr(market, p) for p in ("sellers", "prior", "objective")):
            change = (row.objective - rows[0].objective) / abs(rows[0].objective)
            findings.append(
                f"The constraints of “{row.market}” change the objective by {change:+.2%} compared "
                f"with “{rows[0].market}”."
            )
    for column, words in (("epsilon_max", "largest ε sold"), ("expected_payments", "payment")):
        values = single.set_index("market")[column].sort_values()
        findings.append(
            f"The {words} is between {format_number(values.iloc[0])} in “{values.index[0]}” and "
            f"{format_number(values.iloc[-1])} in “{values.index[-1]}”."
        )
    return findings


def _draw_variants(report: Report, curves: Frame, single: Frame, tables: Any) -> None:
    """Draw curves, the sales of each seller, groups and virtual costs."""
    if len(curves):
        for x, y, words in (
            ("expected_payments", "error", "error over expected payments"),
            ("epsilon_max", "objective", "objective over the largest ε sold"),
        ):
            figure = lines(curves, x, y, hue="market", log="x", xlabel=x.replace("_", " "))
            caption = f"{words.capitalize()}, one point for each swept value. Lower is better."
            _draw(report, figure, caption, f"{y}-curves", f"Lines of the {words}, by variant.")
    sellers = tables["sellers"]
    if len(single):
        sizes = sellers.groupby(["market", "value"], dropna=False).weight.transform("size")
        bought = sellers.market.isin(single.market) & (sellers.weight * sizes > DUST)
        sold = sellers[bought]
        panels = "group" if (sold.group != "").any() else None
        options: dict[str, Any] = {"hue": "market", "panels": panels, "joined": panels is None}
        figure = lines(
            sold, "sensitivity", "epsilon", xlabel="sensitivity", ylabel="ε sold", **options
        )
        caption = "Privacy sold by each seller over its sensitivity"
        alt = "Falling lines of epsilon over sensitivity, one for each variant."
        _draw(report, figure, caption, "allocations", alt)
    groups = tables["groups"][tables["groups"].market.isin(single.market)]
    if len(groups):
        figure = bars(
            groups, "share_of_weight", "group", hue="market", xlabel="share of the weight"
        )
        alt = "Bars of the share of the weight by group and variant."
        _draw(report, figure, "Share of the weight of each group", "groups", alt)
    costs = tables["virtual_costs"]
    if len(costs):  # near the top of a support a virtual cost may grow without bound
        prior = costs.market.where(costs.group == "", costs.market + ", " + costs.group)
        long = costs.assign(prior=prior).melt(
            ["prior", "sensitivity"], ["raw", "ironed"], var_name="cost", value_name="psi"
        )
        top = 1.3 * long.groupby("prior").psi.transform(lambda values: values.quantile(0.9))
        long = long[long.psi <= top]
        options = {"hue": "cost", "panels": "prior", "ylabel": "virtual cost ψ"}
        _draw(
            report,
            lines(long, "sensitivity", "psi", **options),
            "Virtual costs, raw and ironed. Where the ironed one is flat, sellers are treated "
            "alike.",
            "virtual-costs",
            "The raw curve falls in places; the ironed one is flat there.",
        )
