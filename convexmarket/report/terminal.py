"""What the terminal shows of a result: a table or two; the report has the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from convexmarket.experiments import (
    JointMethodsResult,
    JointSweepResult,
    JointTradeoffResult,
    Offers,
    OnlineMarketResult,
    OnlineStudyResult,
    RegressionMarketResult,
    ReleaseComparisonResult,
    RidgeComparisonResult,
    TradeoffResult,
    VariantsResult,
)
from convexmarket.experiments.joint_methods_claims import BEST
from convexmarket.experiments.solver_study import SolverStudyResult
from convexmarket.report.claims import JOINT_WARNING
from convexmarket.report.online_study_figures import POLICIES
from convexmarket.report.parts import select
from convexmarket.report.release_comparison_words import main_epsilon, without_noise
from convexmarket.report.solver_study import overview
from convexmarket.report.solver_study_words import contender_name, settings, wrong_words
from convexmarket.report.words import format_number, format_percent, format_value
from convexmarket.study.metrics import counted

__all__ = ["offers_summary", "summary"]


@singledispatch
def summary(result: Any) -> list[Table | str]:
    """Return what the terminal shows of a result; the report has the rest."""
    return [_title(result)]


def _title(result: Any) -> str:
    return f"[bold]{escape(result.problem.title)}[/bold]"


def _claims(result: JointTradeoffResult | JointSweepResult | JointMethodsResult) -> list[str]:
    """Return what became of the papers' claims, and what a joint problem does not promise."""
    verdicts = [f"{escape(claim.says)}: {claim.verdict}." for claim in result.claims]
    return [*verdicts, escape(JOINT_WARNING)]


@summary.register
def _tradeoff_summary(result: TradeoffResult) -> list[Table | str]:
    """Return one table for each scenario, and the baseline."""
    baseline = f"Test error without privacy and payments: {result.baseline_error:.1%}."
    return [_title(result), *_curve_tables(result.curve), baseline]


@summary.register
def _joint_tradeoff_summary(result: JointTradeoffResult) -> list[Table | str]:
    """Return one table for each scenario, what became of the claims, and what is not promised."""
    return [_title(result), *_curve_tables(result.curve), *_claims(result)]


def _curve_tables(curve: pd.DataFrame) -> list[Table | str]:
    """Return errors and payments over gamma, one table for each scenario."""
    tables: list[Table | str] = []
    for scenario, rows in curve.groupby("scenario", sort=False):
        table = Table(title=f"{scenario} sensitivities", title_justify="left", box=SIMPLE_HEAD)
        table.add_column("model", no_wrap=True)
        for name in ("gamma", "payments", "bought", "max eps", "test error", "overall"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows.itertuples(index=False):
            if getattr(row, "message", ""):
                table.add_row(str(row.model), f"{row.gamma:g}", f"[red]{row.status}[/red]")
                continue
            spread = f" ± {row.error_std:.1%}".removesuffix(" ± nan%")  # one draw has none
            table.add_row(
                str(row.model),
                f"{row.gamma:g}",
                f"{row.payments:.4g}",
                f"{row.n_bought:,.0f}",
                f"{row.epsilon_max:.3g}",
                f"{row.error_mean:.1%}{spread}",
                f"{row.overall_mean:.4f}",
            )
        tables.append(table)
    return tables


@summary.register
def _regression_market_summary(result: RegressionMarketResult) -> list[Table | str]:
    """Return one table for each scenario, a star at the lambdas that the bound marks."""
    units = result.problem.units
    tables: list[Table | str] = []
    for scenario, rows in result.curve.groupby("scenario", sort=False):
        table = Table(title=f"{scenario} sensitivities", title_justify="left", box=SIMPLE_HEAD)
        for name in ("gamma", "lambda", "payments", "bought", "mean eps", "RMSE", "explained"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows.assign(rmse=units.per_label * rows.rmse).to_dict("records"):
            table.add_row(
                f"{row['gamma']:g}",
                f"{row['regularization']:g}{'*' if row['marked'] else ' '}",
                format_number(row["payments"]),
                f"{row['n_bought']:,}",
                f"{row['epsilon_mean']:.3g}",
                format_number(row["rmse"]),
                f"{row['explained']:.1%}",
            )
        tables.append(table)
    words = (
        "* marked by the bound, from public things alone. RMSE on the test rows in "
        f"{escape(units.label)}; predicting {result.constant:g} throughout has "
        f"{format_number(result.constant_rmse * units.per_label)}."
    )
    return [_title(result), *tables, words]


_RIDGE_COLUMNS = {
    "pdp_op": "PDP-OP",
    "jorgensen_max": "J. max",
    "jorgensen_mean": "J. mean",
    "nonpersonalized": "same for all",
    "pdp_op_tight": "tight",
    "nonprivate": "not private",
}


@summary.register
def _ridge_comparison_summary(result: RidgeComparisonResult) -> list[Table | str]:
    """Return one table for each sweep: the regularised losses, in the middle of the draws."""
    tables: list[Table | str] = []
    shown = result.cells[result.cells.loss == "reg"]
    for (_, parameter), rows in shown.groupby(["sweep", "parameter"], sort=False):
        table = Table(
            title=f"regularised test loss over {parameter}", title_justify="left", box=SIMPLE_HEAD
        )
        wide = rows.pivot_table(index="value", columns="method", values="mean", sort=False)
        for name in ("value", *_RIDGE_COLUMNS.values()):
            table.add_column(name, justify="right", no_wrap=True)
        for value, losses in wide[list(_RIDGE_COLUMNS)].iterrows():
            table.add_row(f"{value:g}", *(f"{loss:.3g}" for loss in losses))
        tables.append(table)
    words = []
    if len(result.published):
        close, number = int(result.published.close.sum()), len(result.published)
        words = [f"{close} of {number} published figures are within a factor of 1.5 of ours."]
    return [_title(result), *tables, *words]


_VARIANTS_COLUMNS: dict[str, Callable[[Mapping[Any, Any]], str]] = {
    "objective": lambda row: format_number(row["objective"], digits=5),
    "gap": lambda row: f"{row['gap']:.0e}",
    "bought": lambda row: f"{row['n_bought']:,.0f}",
    "max eps": lambda row: format_number(row["epsilon_max"]),
    "payments": lambda row: format_number(row["expected_payments"]),
    "truthful": lambda row: "yes" if row["incentives"] == "by construction" else "?",
}


@summary.register
def _variants_summary(result: VariantsResult) -> list[Table | str]:
    """Return one table with a row for each market, and why some have no answer."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("variant", min_width=12)
    swept = bool(result.points.value.notna().any())
    for name in (["value"] if swept else []) + list(_VARIANTS_COLUMNS):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name) + 1)
    failures = []
    for row in result.points.to_dict("records"):
        labels = [escape(row["variant"]), *([format_number(row["value"])] if swept else [])]
        if row["message"]:
            table.add_row(*labels, f"[red]{row['status']}[/red]")
            failures.append(f"{labels[0]}: {escape(row['message'])}")
        else:
            table.add_row(*labels, *(write(row) for write in _VARIANTS_COLUMNS.values()))
    return [_title(result), table, *failures]


@summary.register
def _joint_methods_summary(result: JointMethodsResult) -> list[Table | str]:
    """Return one table for each group: how often each method found the best, and its time."""
    tables: list[Table | str] = []
    for group, runs in result.runs.groupby("group", sort=False):
        table = Table(title=escape(str(group)), title_justify="left", box=SIMPLE_HEAD)
        table.add_column("method", no_wrap=True)
        for name in ("solved", "best", "excess", "time ratio"):
            table.add_column(name, justify="right", no_wrap=True)
        for method, own in runs.groupby("name", sort=False):
            table.add_row(
                escape(str(method)),
                f"{int(own.objective.notna().sum())} of {len(own)}",
                f"{int((own.excess <= BEST).sum())}",
                format_number(own.excess.max(), digits=2),
                format_number(own.time_ratio.median()),
            )
        tables.append(table)
    return [_title(result), *tables, *_claims(result)]


_SWEEP_COLUMNS: dict[str, Callable[[Mapping[Any, Any]], str]] = {
    "eta": lambda row: format_number(row["eta"]),
    "bought": lambda row: format_number(row["n_bought"]),
    "objective": lambda row: format_number(row["objective"]),
    "train error": lambda row: format_percent(row["train_error"]),
    "test error": lambda row: format_percent(row["test_error"]),
    "loss": lambda row: format_number(row["empirical_loss"]),
    "solved": lambda row: f"{row['solved']} of {row['draws']}",
}


@summary.register
def _joint_sweep_summary(result: JointSweepResult) -> list[Table | str]:
    """Return one table with the means at each point, and the verdicts on the papers' claims."""
    table = Table(box=SIMPLE_HEAD)
    for name in (escape(result.problem.sweep.label), *_SWEEP_COLUMNS):
        table.add_column(name, justify="right")
    for row in result.points.to_dict("records"):
        cells = (write(row) for write in _SWEEP_COLUMNS.values())
        table.add_row(format_number(row["x"]), *cells)
    failures = result.draws.message[result.draws.message != ""].unique()
    return [_title(result), table, *map(escape, failures), *_claims(result)]


_ONLINE_ROWS = {
    "sellers": "sellers quoted",
    "bought": "sellers bought from",
    "eta": "total privacy eta",
    "payments": "payments",
    "loss": "buyer's loss",
    "largest_epsilon": "largest epsilon",
    "largest_weight": "largest weight",
}


@summary.register
def _online_market_summary(result: OnlineMarketResult) -> list[Table | str]:
    """Return what was planned beside what came of it, and the error of the model."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    for name in ("planned", "realised"):
        table.add_column(name, justify="right")
    planned, realised = result.summary["planned"], result.summary["realised"]
    for key, words in _ONLINE_ROWS.items():
        table.add_row(words, format_number(planned[key], 4), format_number(realised[key], 4))
    errors = result.errors
    said = (
        "No error is measured: there are no public rows."
        if errors is None
        else f"Error on {errors['rows']:,} public rows: {errors['error']:.1%}."
    )
    away = result.summary["counts"]["turned away"]
    turned = [f"{away:,} sellers came after the expected number and were turned away."]
    return [_title(result), table, *(turned if away else []), said]


_STUDY_COLUMNS: dict[str, Callable[[Mapping[Any, Any]], str]] = {
    "loss": lambda row: format_number(row["loss"], 4),
    "above hindsight": lambda row: f"{100 * (row['ratio'] - 1):.3g}%",
    "95%": lambda row: " to ".join(
        f"{100 * (row[end] - 1):.3g}%" for end in ("ratio_low", "ratio_high")
    ),
    "bought": lambda row: format_number(row["n_bought"]),
    "nothing": lambda row: f"{row['empty']} of {row['draws']}",
}


@summary.register
def _online_study_summary(result: OnlineStudyResult) -> list[Table | str]:
    """Return one table for each policy, over m or over xi, and the verdicts on the claims."""
    tables: list[Table | str] = []
    study = result.problem.study
    several = len(study.fractions) > 1
    for policy, rows in result.points.groupby("policy", sort=False):
        table = Table(title=POLICIES[str(policy)], title_justify="left", box=SIMPLE_HEAD)
        if several:
            table.title = f"{table.title}, m = {study.sizes[-1]:,}"
            rows = rows[rows["size"] == study.sizes[-1]]
        for name in ("xi" if several else "m", *_STUDY_COLUMNS):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows.to_dict("records"):
            cells = (write(row) for write in _STUDY_COLUMNS.values())
            table.add_row(format_number(row["fraction"]) if several else f"{row['size']:,}", *cells)
        tables.append(table)
    verdicts = [f"{escape(claim.says)}: {claim.verdict}." for claim in result.claims]
    words = "Means are over the draws in which something was bought; “nothing” counts the others."
    return [_title(result), *tables, words, *verdicts]


_SOLVER_COLUMNS: dict[str, Callable[[Mapping[Any, Any]], str]] = {
    "solved": lambda row: f"{row['solved']}/{row['runs']}",
    "wrong": lambda row: f"{row['wrong']}",
    "seconds": lambda row: format_number(row["total_s"]),
    "x least": lambda row: format_number(row["relative"]),
    "again": lambda row: format_value(row["again_ratio"], ".2f"),
    "exponent": lambda row: format_value(row["exponent"], ".2f"),
}
_MOST_CONTENDERS = 12


@summary.register
def _solver_study_summary(result: SolverStudyResult) -> list[Table | str]:
    """Return one table for each problem class at the first setting, and who is wrong.

    The column "again" is the time of the second solve as a share of the first.
    """
    tables: list[Table | str] = []
    rows = overview(result)
    rows = rows[rows.setting == settings(result)[0]]
    for problem_class, own in rows.groupby("problem_class", sort=False):
        table = Table(title=escape(str(problem_class)), title_justify="left", box=SIMPLE_HEAD)
        table.add_column("contender", no_wrap=True)
        for name in _SOLVER_COLUMNS:
            table.add_column(name, justify="right", no_wrap=True)
        for row in own.head(_MOST_CONTENDERS).to_dict("records"):
            cells = (write(row) for write in _SOLVER_COLUMNS.values())
            table.add_row(escape(contender_name(row["solver"], row["formulation"])), *cells)
        tables.append(table)
        if len(own) > _MOST_CONTENDERS:
            tables.append(f"{len(own) - _MOST_CONTENDERS} slower ones are in the report.")
    absent = [f"Not installed: {escape(', '.join(result.absent))}."] if result.absent else []
    return [_title(result), *tables, escape(wrong_words(counted(result.runs))), *absent]


_RELEASE_COLUMNS: dict[str, Callable[[Mapping[Any, Any]], str]] = {
    "accuracy": lambda row: format_percent(row["accuracy"]),
    "lost": lambda row: format_percent(row["lost"]),
    "error": lambda row: format_number(row["error"]),
    "bound": lambda row: format_number(row["bound"]),
    "n measured": lambda row: format_number(row["n_measured"]),
    "n by theory": lambda row: format_number(row["n_bound"]),
}


@summary.register
def _release_comparison_summary(result: ReleaseComparisonResult) -> list[Table | str]:
    """Return one table of all releases, at the largest size and a middle epsilon."""
    size, epsilon = result.problem.study.sizes[-1], main_epsilon(result.problem)
    rows = select(result.points, size=size, epsilon=epsilon)
    rows = rows.merge(select(result.useful, epsilon=epsilon), on=["epsilon", "release"])
    table = Table(
        title=f"{size:,} rows, epsilon = {epsilon:g}", title_justify="left", box=SIMPLE_HEAD
    )
    table.add_column("release")
    for name in _RELEASE_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    refused = []
    for row in rows.to_dict("records"):
        label = escape(row["release"])
        if row["refused"]:
            table.add_row(label, "[red]refused[/red]")
            refused.append(f"{label}: {escape(row['refused'])}")
        else:
            table.add_row(label, *(write(row) for write in _RELEASE_COLUMNS.values()))
    words = (
        f"Accuracy without noise: {format_percent(without_noise(result, size))}. “n” is from how "
        "many rows on a release is of use, as measured at this epsilon and by theory's bound."
    )
    return [_title(result), table, words, *refused]


def offers_summary(offers: Offers) -> Table:
    """Return what the terminal shows of offers to sellers."""
    totals, audit = offers.certificate["totals"], offers.certificate["audit"]
    optimality = offers.certificate["optimality"]
    table = Table(title="Offers", title_justify="left", show_header=False, box=SIMPLE_HEAD)
    table.add_column()
    table.add_column(justify="right")
    for name, value in (
        ("sellers", f"{len(offers.table):,}"),
        ("bought from", f"{totals['sellers_bought_from']:,}"),
        ("total payments", f"{totals['payments']:.6g}"),
        ("expected payments", f"{totals['expected_payments']:.6g}"),
        ("total privacy eta", f"{totals['epsilon']:.6g}"),
        ("largest epsilon", f"{totals['largest_epsilon']:.6g}"),
        ("objective", f"{optimality['objective']:.10g}"),
        ("certified gap", f"{optimality['gap']:.1e}"),
        ("sellers audited", f"{audit['sellers_audited']:,}"),
        (
            "largest gain from lying alone",
            f"{audit['largest_gain_from_misreporting']:.1e}",
        ),
        ("smallest surplus", f"{audit['smallest_surplus']:.4g}"),
    ):
        table.add_row(name, value)
    return table
