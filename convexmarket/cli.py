"""The command line: ``convexmarket run``, ``price`` and ``schema``."""

from __future__ import annotations

import json
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatch
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from convexmarket.errors import ConvexMarketError, ParameterError
from convexmarket.experiments import (
    JointMethodsResult,
    JointSweepResult,
    JointTradeoffResult,
    Offers,
    RegressionMarketResult,
    RidgeComparisonResult,
    TradeoffResult,
    VariantsResult,
    price_offers,
    run_problem,
)
from convexmarket.experiments.joint_methods_claims import BEST
from convexmarket.experiments.provenance import package_version
from convexmarket.priors import parse_prior
from convexmarket.problems import json_schema, load_problem
from convexmarket.report import write_report
from convexmarket.report.claims import JOINT_WARNING
from convexmarket.report.words import format_number, format_percent

__all__ = ["app", "main"]

_PARAMETERS = "--mu 1 --sigma 100 --gamma 0.001"

EXAMPLES = f"""
[bold]Run an experiment[/bold], and look at its report:

  convexmarket run problems/wdbc.toml --open

[bold]Change a part of it[/bold] without editing the file:

  convexmarket run problems/wdbc.toml --set objective.cap=2 --out reports/capped

[bold]Make offers[/bold] to the sellers of a list:

  convexmarket price sellers.csv --prior uniform:0.02,0.10 {_PARAMETERS} --out offers.csv

[bold]See what a problem file may say[/bold]:

  convexmarket schema
"""

RUN_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket run problems/quickstart.toml

  convexmarket run problems/wdbc.toml --set objective.gamma=[0.001,0.01] --set learner.draws=5

  convexmarket run problems/synthetic.toml --set data.n_sellers=5000 --jobs -1 --out reports/big

The report is a folder: index.html opens in any browser, without a network.
"""

PRICE_EXAMPLES = f"""
[bold]Examples[/bold]

  convexmarket price sellers.csv --prior uniform:0.02,0.10 {_PARAMETERS} --out offers.csv

  convexmarket price survey.csv --id patient --sensitivity "asking price" --cap 5 \
--prior beta:2,5,0,0.1 {_PARAMETERS} --out offers.csv

The file needs a header; separators and decimal commas are recognised. Next to offers.csv comes \
offers.certificate.json: what is guaranteed, and what that rests on.
"""

app = typer.Typer(
    name="convexmarket",
    help="Markets in private data: whom to buy how much privacy from, and what to pay for it.",
    epilog=EXAMPLES,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
out = Console()
err = Console(stderr=True)


def main() -> None:
    """Run the command line."""
    app()


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Turn the package's own errors into a message and exit code 2; others are bugs and pass."""
    try:
        yield
    except ConvexMarketError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
    else:
        return
    err.print(f"[bold red]error:[/bold red] [red]{escape(message)}[/red]", soft_wrap=True)
    raise typer.Exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del show


@app.command()
def version() -> None:
    """Show the version."""
    out.print(f"convexmarket {package_version()}", highlight=False)


@app.command(epilog=RUN_EXAMPLES)
def run(
    file: Annotated[Path, typer.Argument(help="Problem file, such as problems/wdbc.toml.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a value of the file, written as in TOML. Repeatable.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the report.", show_default="reports/<file's name>"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Parallel jobs, -1 for all cores.", show_default="as the file says"),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False,
) -> None:
    """Run the experiment of a problem file and write its report."""
    with _errors_in_one_line():
        overrides = [*(settings or []), *([] if jobs is None else [f"run.jobs={jobs}"])]
        problem = load_problem(file, overrides)
        with _progress_bars() as advance:
            result = run_problem(problem, advance)
        page = write_report(result, folder or Path("reports", file.stem))
    out.print(*_summary(result), sep="\n")
    out.print(f"Ran in {result.timings['total']:.1f} s. The report:", highlight=False)
    out.print(page, highlight=False, soft_wrap=True, markup=False)
    if show:
        webbrowser.open(page.resolve().as_uri())


@app.command(epilog=PRICE_EXAMPLES)
def price(
    file: Annotated[Path, typer.Argument(help="CSV file with an id and a sensitivity per row.")],
    prior: Annotated[
        str,
        typer.Option(help="Distribution of the sensitivities: uniform:0.02,0.10, beta:2,5, ..."),
    ],
    mu: Annotated[float, typer.Option(help="Weight of the spread of the weights.")],
    sigma: Annotated[float, typer.Option(help="Weight of the noise.")],
    gamma: Annotated[float, typer.Option(help="Weight of the payments.")],
    offers_file: Annotated[Path, typer.Option("--out", help="CSV file for the offers.")],
    cap: Annotated[
        float | None, typer.Option(help="Largest weight, in multiples of the average.")
    ] = None,
    eta_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Least and most privacy to buy in total.", metavar="LOW HIGH"),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column of the ids.", show_default="id, seller, ...")
    ] = None,
    sensitivity_column: Annotated[
        str | None,
        typer.Option(
            "--sensitivity",
            help="Column of the reported sensitivities.",
            show_default="sensitivity, cost, ...",
        ),
    ] = None,
) -> None:
    """Make an offer to every seller of a CSV file."""
    with _errors_in_one_line(), err.status("") as status:
        if offers_file.exists() and file.exists() and offers_file.samefile(file):
            raise ParameterError(f"--out {offers_file} is the list of reports; name another file")
        offers = price_offers(
            file,
            parse_prior(prior),
            mu=mu,
            sigma=sigma,
            gamma=gamma,
            cap=cap,
            eta_range=eta_range,
            id_column=id_column,
            sensitivity_column=sensitivity_column,
            progress=lambda stage: status.update(f"{stage} ..."),
        )
        status.update("writing ...")
        written = offers.write(offers_file)
    out.print(_offers_summary(offers))
    for path in written:
        out.print(f"Wrote {path}", highlight=False, soft_wrap=True, markup=False)


@app.command()
def schema(
    file: Annotated[
        Path | None, typer.Option("--out", help="File to write.", show_default="standard output")
    ] = None,
) -> None:
    """Print the JSON Schema of problem files, for editors that complete and check TOML."""
    text = json.dumps(json_schema(), indent=2) + "\n"
    if file is None:
        sys.stdout.write(text)
        return
    with _errors_in_one_line():
        file.write_text(text, encoding="utf-8")
    out.print(f"Wrote {file}", highlight=False, soft_wrap=True, markup=False)


@contextmanager
def _progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar for each stage of a run, on standard error."""
    columns = (
        TextColumn("{task.description:<18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bars:
        tasks = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield advance


@singledispatch
def _summary(result: Any) -> list[Table | str]:
    """Return what the terminal shows of a result; the report has the rest."""
    return [f"[bold]{escape(result.problem.title)}[/bold]"]


@_summary.register
def _tradeoff_summary(result: TradeoffResult) -> list[Table | str]:
    """Return one table for each scenario, and the baseline."""
    baseline = f"Test error without privacy and payments: {result.baseline_error:.1%}."
    return [_title(result), *_curve_tables(result.curve), baseline]


@_summary.register
def _joint_tradeoff_summary(result: JointTradeoffResult) -> list[Table | str]:
    """Return one table for each scenario, what became of the claims, and what is not promised."""
    claims = [f"{escape(claim.says)}: {claim.verdict}." for claim in result.claims]
    return [_title(result), *_curve_tables(result.curve), *claims, escape(JOINT_WARNING)]


def _title(result: Any) -> str:
    return f"[bold]{escape(result.problem.title)}[/bold]"


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
            table.add_row(
                str(row.model),
                f"{row.gamma:g}",
                f"{row.payments:.4g}",
                f"{row.n_bought:,.0f}",
                f"{row.epsilon_max:.3g}",
                f"{row.error_mean:.1%} ± {row.error_std:.1%}",
                f"{row.overall_mean:.4f}",
            )
        tables.append(table)
    return tables


@_summary.register
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
    title = f"[bold]{escape(result.problem.title)}[/bold]"
    words = (
        "* marked by the bound, from public things alone. RMSE on the test rows in "
        f"{escape(units.label)}; predicting {result.constant:g} throughout has "
        f"{format_number(result.constant_rmse * units.per_label)}."
    )
    return [title, *tables, words]


_RIDGE_COLUMNS = {
    "pdp_op": "PDP-OP",
    "jorgensen_max": "J. max",
    "jorgensen_mean": "J. mean",
    "nonpersonalized": "same for all",
    "pdp_op_tight": "tight",
    "nonprivate": "not private",
}


@_summary.register
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
    return [f"[bold]{escape(result.problem.title)}[/bold]", *tables, *words]


_VARIANTS_COLUMNS: dict[str, Callable[[Mapping[Any, Any]], str]] = {
    "objective": lambda row: format_number(row["objective"], digits=5),
    "gap": lambda row: f"{row['gap']:.0e}",
    "bought": lambda row: f"{row['n_bought']:,.0f}",
    "max eps": lambda row: format_number(row["epsilon_max"]),
    "payments": lambda row: format_number(row["expected_payments"]),
    "truthful": lambda row: "yes" if row["incentives"] == "by construction" else "?",
}


@_summary.register
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
    return [f"[bold]{escape(result.problem.title)}[/bold]", table, *failures]


@_summary.register
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
    claims = [f"{escape(claim.says)}: {claim.verdict}." for claim in result.claims]
    return [_title(result), *tables, *claims, escape(JOINT_WARNING)]


_SWEEP_COLUMNS: dict[str, Callable[[Mapping[Any, Any]], str]] = {
    "eta": lambda row: format_number(row["eta"]),
    "bought": lambda row: format_number(row["n_bought"]),
    "objective": lambda row: format_number(row["objective"]),
    "train error": lambda row: format_percent(row["train_error"]),
    "test error": lambda row: format_percent(row["test_error"]),
    "loss": lambda row: format_number(row["empirical_loss"]),
    "solved": lambda row: f"{row['solved']} of {row['draws']}",
}


@_summary.register
def _joint_sweep_summary(result: JointSweepResult) -> list[Table | str]:
    """Return one table with the means at each point, and the verdicts on the papers' claims."""
    table = Table(box=SIMPLE_HEAD)
    for name in (escape(result.problem.sweep.label), *_SWEEP_COLUMNS):
        table.add_column(name, justify="right")
    for row in result.points.to_dict("records"):
        cells = (write(row) for write in _SWEEP_COLUMNS.values())
        table.add_row(format_number(row["x"]), *cells)
    failures = result.draws.message[result.draws.message != ""].unique()
    claims = [f"{escape(claim.says)}: {claim.verdict}." for claim in result.claims]
    title = f"[bold]{escape(result.problem.title)}[/bold]"
    return [title, table, *map(escape, failures), *claims]


def _offers_summary(offers: Offers) -> Table:
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
        ("largest gain from a misreport", f"{audit['largest_gain_from_misreporting']:.1e}"),
        ("smallest surplus", f"{audit['smallest_surplus']:.4g}"),
    ):
        table.add_row(name, value)
    return table
