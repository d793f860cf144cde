"""The report of a market and its variants."""

from __future__ import annotations

from typing import Any

import pandas as pd

from convexmarket.lab.kinds.variants.comparing import at_equal, compared
from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.kinds.variants.run import SOLVED, without_dust
from convexmarket.lab.pages import claim_audits, keys_of
from convexmarket.lab.result import Result
from convexmarket.report import Report, escape_markdown, format_number
from convexmarket.report.figures import bars, lines

__all__ = ["begin"]

#: Swept keys that limit what one seller may sell; their curves are compared at equal limits.
LIMITS = ("constraints.max_epsilon", "constraints.cap")
SHORT = format_number


def begin(result: Result[VariantsProblem], report: Report) -> None:
    """Add the finding, figures and tables of a market and its variants."""
    points, problem = result.tables["points"], result.problem
    markets = [table for variant in problem.variants for table in variant.markets]
    if files := {table.sellers.file for table in markets} - {None}:
        report.add(f"The reports come from {escape_markdown(', '.join(map(str, files)))}.")
    solved = points[points.status == SOLVED]
    swept = {item.name: item.sweep.key for item in problem.variants if item.sweep is not None}
    single: Any = solved[~solved.variant.isin(list(swept))]
    curves = [name for name in swept if (solved.variant == name).sum() > 1]
    comparisons = _compare_curves(problem, solved, swept, curves)
    findings = [*comparisons, *_compare_singles(problem, result, single)]
    if findings:
        report.headline(findings[0])
        report.add("\n".join(f"- {escape_markdown(finding)}" for finding in findings[1:]))
    _add_claims(report, result, points)
    for name in curves:
        rows = solved[solved.variant == name]
        report.add(
            lines(rows, "value", "objective", xlabel=swept[name], ylabel="objective"),
            f"Objective of “{name}” over {swept[name]}",
            alt=f"One line of the objective over {swept[name]}.",
            name=f"sweep-{curves.index(name) + 1}",
            appendix=True,
        )
    if curves:
        shown = solved[solved.variant.isin(curves)]
        for x, y, words in (
            ("expected_payments", "error", "error against expected payments"),
            ("epsilon_max", "objective", "objective against the largest ε sold"),
        ):
            report.add(
                lines(shown, x, y, hue="variant", log="x", xlabel=x.replace("_", " ")),
                f"{words.capitalize()}, one point for each swept value. Lower is better.",
                alt=f"Lines of the {words}, one for each variant.",
                name=f"{y}-curves",
            )
    if len(single):
        sellers = without_dust(result.tables["sellers"])
        sold = sellers[sellers.variant.isin(single.variant) & (sellers.epsilon > 0)]
        panels = "group" if (sold.group != "").any() else None
        report.add(
            lines(
                sold, "sensitivity", "epsilon", hue="variant", panels=panels,
                xlabel="sensitivity", ylabel="ε sold", joined=panels is None,
            ),
            "Privacy sold by each seller over its sensitivity",
            alt="Falling lines of epsilon over sensitivity, one for each variant.",
            name="allocations",
        )  # fmt: skip
    groups = result.tables["groups"]
    if len(groups):
        report.add(
            bars(groups, "share_of_weight", "group", hue="variant", xlabel="share of the weight"),
            "Share of the weight of each group",
            alt="Bars of the share of the weight by group and variant.",
            name="groups",
        )
        report.add(groups, "Groups", name="groups", keys=keys_of(groups), rows=len(groups))
    _add_virtual_costs(report, result.tables["virtual_costs"])
    names = ["variant", "value", "status", "n_bought", "n_effective", "eta", "epsilon_max", "error"]
    frame = points[[*names, "expected_payments", "payments"]].dropna(axis=1, how="all")
    report.add(frame, "Variants", name="variants", keys=keys_of(frame), rows=len(frame))
    if len(failed := points[points.status != SOLVED]):
        report.add(failed[["variant", "status", "message"]], "Without an answer", name="failures")


def _compare_curves(
    problem: VariantsProblem, solved: pd.DataFrame, swept: dict[str, str], curves: list[str]
) -> list[str]:
    """Compare the first curve with the others: limits at equal guarantees, others at equal pay."""
    limits = sorted((n for n in curves if swept[n] in LIMITS), key=lambda n: LIMITS.index(swept[n]))
    pairs = []
    if len(limits) > 1:
        pairs += [(limits[0], n, "epsilon_max", "objective") for n in limits[1:]]
    if _same_error(problem):
        pairs += [(curves[0], name, "expected_payments", "error") for name in curves[1:]]
    found = []
    for first, other, equal, column in pairs:
        base, new = (solved[solved.variant == name] for name in (first, other))
        rows = at_equal(base, new, equal, column)
        words = {"epsilon_max": "largest ε sold"}.get(equal, equal.replace("_", " "))
        what, at = compared(rows), f"At equal {words}"
        if what["how"] == "apart":
            found.append(f"“{first}” and “{other}” have no {words} in common.")
        elif what["how"] == "same":
            found.append(
                f"{at} “{other}” and “{first}” tie: their {column} differs by at most "
                f"{what['within']:.1%} ({what['n']} of {what['of']} points, interpolated)."
            )
        else:
            low, high = what["lowest"]["change"], what["highest"]["change"]
            found.append(
                f"{at} the {column} of “{other}” differs from that of “{first}” by {low:+z.1%} to "
                f"{high:+z.1%} ({what['n']} of {what['of']} points, interpolated)."
            )
    return found


def _same_error(problem: VariantsProblem) -> bool:
    """Return whether all variants measure spread and noise by the same terms."""
    errors = [
        {
            label: term
            for label, term in variant.markets[0].objective.items()
            if not term.builds.pays
        }
        for variant in problem.variants
    ]
    return all(error == errors[0] for error in errors)


def _compare_singles(
    problem: VariantsProblem, result: Result[VariantsProblem], single: Any
) -> list[str]:
    """Compare variants that are one market each, first by groups, then by objectives."""
    found, groups = list[str](), result.tables["groups"]
    if len(groups):
        shares = groups.pivot_table(index="group", columns="variant", values="share_of_weight")
        group = (shares.max(axis=1) - shares.min(axis=1)).idxmax()
        share = shares.T[group].sort_values()
        found.append(
            f"The group “{group}” carries {share.iloc[0]:.1%} of the weight in “{share.index[0]}” "
            f"and {share.iloc[-1]:.1%} in “{share.index[-1]}”."
        )
    if len(single) < 2:
        return found
    markets = {variant.name: variant.markets[0] for variant in problem.variants}
    first, *others = single.itertuples()
    base = markets[first.variant]
    for row in others:
        market = markets[row.variant]
        same = all(
            getattr(base, p) == getattr(market, p) for p in ("sellers", "prior", "objective")
        )
        if same:
            change = (row.objective - first.objective) / abs(first.objective)
            found.append(
                f"The constraints of “{row.variant}” change the objective by {change:+.2%} "
                f"compared with “{first.variant}”."
            )
    for column, words in (("epsilon_max", "largest ε sold"), ("expected_payments", "payment")):
        values = single.set_index("variant")[column].sort_values()
        found.append(
            f"The {words} is between {SHORT(values.iloc[0])} in “{values.index[0]}” and "
            f"{SHORT(values.iloc[-1])} in “{values.index[-1]}”."
        )
    return found


def _add_claims(report: Report, result: Result[VariantsProblem], points: pd.DataFrame) -> None:
    verdicts = points.groupby("variant", sort=False).incentives.first()
    report.claim(
        "Truthful prices exist by construction",
        holds=verdicts == "by construction",
        detail="The table points gives the reason for each variant.",
    )
    claim_audits(report, result.tables["audits"], "variant")


def _add_virtual_costs(report: Report, curves: pd.DataFrame) -> None:
    """Draw raw and ironed virtual costs; near the top of a support both may grow without bound."""
    if curves.empty:
        return
    prior = curves.variant.where(curves.group == "", curves.variant + ", " + curves.group)
    long = curves.assign(prior=prior).melt(
        ["prior", "sensitivity"], ["raw", "ironed"], var_name="cost", value_name="psi"
    )
    top = 1.3 * long.groupby("prior").psi.transform(lambda values: values.quantile(0.9))
    report.add(
        lines(
            long[long.psi <= top], "sensitivity", "psi", hue="cost", panels="prior",
            ylabel="virtual cost ψ",
        ),
        "Virtual costs, raw and ironed. Where the ironed one is flat, sellers are treated alike.",
        alt="The raw curve falls in places; the ironed one is flat there.",
        name="virtual-costs",
    )  # fmt: skip
