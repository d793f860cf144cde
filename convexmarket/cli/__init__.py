"""The command line; a sentence on each command stands in its help."""

from __future__ import annotations

import json
import sys
import webbrowser
from collections.abc import Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from convexmarket.cli.compare import COMPARE_EXAMPLES, compare, run_file
from convexmarket.cli.consoles import (
    REPORTS_TELL,
    Force,
    Formats,
    err,
    errors_in_one_line,
    out,
    pairs_table,
    print_finding,
    progress_bars,
)
from convexmarket.cli.diff import DIFF_EXAMPLES, diff_command
from convexmarket.cli.ending import run_to_the_end
from convexmarket.cli.ledger import LEDGER_EXAMPLES, ledger_command
from convexmarket.cli.online import online_app
from convexmarket.cli.own import (
    BUY_EXAMPLES,
    INIT_EXAMPLES,
    AtLeast,
    Budget,
    GroupColumn,
    NaValues,
    ShowCells,
    TrustScheduler,
    buy_command,
    init_command,
    shares_of,
)
from convexmarket.cli.report import REPORT_EXAMPLES, report_command
from convexmarket.errors import ParameterError

__all__ = ["app", "main"]

_PARAMETERS = "--mu 1 --sigma 100 --gamma 0.1"

EXAMPLES = f"""
[bold]Run an experiment[/bold], and look at its report:

  convexmarket run problems/wdbc.toml --open

[bold]Change a part of it[/bold] without editing the file:

  convexmarket run problems/wdbc.toml --set objective.cap=2 --out out/capped

[bold]Buy from people of a table[/bold] of your own:

  convexmarket init patients.csv

  convexmarket buy market.toml --budget 50 --out sale

[bold]Make offers[/bold] to the sellers of a list:

  convexmarket price sellers.csv --prior uniform:0.02,0.10 {_PARAMETERS} --out offers.csv

[bold]Run a market[/bold] whose sellers come one by one:

  convexmarket online open market problems/online-clinic/market.toml

[bold]Keep the books[/bold]: what was sold, and what of it is spent:

  convexmarket ledger sold.sqlite --create && convexmarket ledger sold.sqlite --record offers.csv

[bold]Write a report again[/bold] from its results, without running anything:

  convexmarket report out/wdbc

[bold]See what changed[/bold] from one run to another:

  convexmarket diff out/wdbc out/capped

[bold]Compare solvers[/bold] on the subproblems of problem files:

  convexmarket compare problems/wdbc.toml --sizes 100,1000,10000

[bold]Attack the privacy guarantees[/bold] of every learner and release:

  convexmarket report --audit

[bold]See what a problem file may say[/bold]:

  convexmarket schema
"""

RUN_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket run problems/quickstart.toml

  convexmarket run problems/wdbc.toml --set objective.gamma=[0.001,0.01] --set learner.draws=5

  convexmarket run problems/synthetic.toml --set data.n_sellers=5000 --jobs -1 --out out/big

The report is a folder: index.html opens in any browser, without a network.
"""

PRICE_EXAMPLES = f"""
[bold]Examples[/bold]

  convexmarket price sellers.csv --prior uniform:0.02,0.10 {_PARAMETERS} --out offers.csv

  convexmarket price survey.csv --id-column patient --sensitivity-column "asking price" --cap 5 \
--prior beta:2,5,0,0.1 {_PARAMETERS} --out offers.csv

  convexmarket price sellers.csv --prior uniform:0.02,0.10 --mu 1 --sigma 100 --budget 50 \
--out offers.csv

  convexmarket price sellers.csv --prior uniform:0.02,0.10 {_PARAMETERS} --group-column region \
--at-least north:0.3 --out offers.csv

  convexmarket price sellers.parquet --prior uniform:0.02,0.10 {_PARAMETERS} --dask local \
--out offers.parquet

--mu and --sigma say how much few voices and noise harm the model that will be trained, and their \
ratio whether a little is bought from many (large mu) or more from few (large sigma). A learner's \
risk gives both: 3.15 and 45.3 for a logistic regression with ten features (docs/howto/choose.md).

--budget is met on average over the prior: no report decides gamma, so that truth still pays. \
With --at-least every payment is a search of its own, and --budget takes minutes.

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
app.add_typer(online_app, name="online")


def main() -> None:
    """Run the command line, and exit with a code that says how it ended."""
    run_to_the_end(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"convexmarket {installed('convexmarket')}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del show


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
    data: Annotated[
        Path | None,
        typer.Option(help="CSV file of rows, in place of the one that the problem file names."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the report.", show_default="out/<file's name>"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Parallel jobs, at most one per core; -1 for all cores.",
            show_default="as the file says",
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False,
    formats: Formats = "",
) -> None:
    """Run the experiment of a problem file and write its report."""
    from convexmarket.io import check_place
    from convexmarket.lab import report_of, run_problem
    from convexmarket.lab.problem.loading import load_problem
    from convexmarket.report.document import check_folder
    from convexmarket.studies.files.loading import KINDS as FILES
    from convexmarket.studies.files.loading import kind_of, load_file, rows_setting

    with errors_in_one_line():
        overrides = [*(settings or []), *([] if jobs is None else [f"run.jobs={jobs}"])]
        load: Any = load_file if kind_of(file) in FILES else load_problem
        problem = load(file, overrides)
        if data is not None:
            problem = load(file, [*overrides, rows_setting(problem, data)])
        if problem.run.workers < problem.run.jobs:
            err.print(
                f"run.jobs is {problem.run.jobs}; as there are {problem.run.workers} cores, so "
                "many jobs run",
                highlight=False,
            )
        target = folder or Path("out", file.stem)
        check_folder(target)
        check_place(target, folder=True)
        if problem.kind in FILES:
            page = run_file(problem, target, formats=formats)
        else:
            with progress_bars() as advance:
                result = run_problem(problem, advance)
            report = report_of(result)
            page = report.write(target, ("md", "html", *formats))
            print_finding(report)
            out.print(f"Ran in {result.timings['total']:.1f} s. The report:", highlight=False)
            out.print(page, highlight=False, soft_wrap=True, markup=False)
    if show:
        webbrowser.open(page.resolve().as_uri())


@app.command(epilog=PRICE_EXAMPLES)
def price(
    file: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with an id and a sensitivity per row.")
    ],
    prior: Annotated[
        str,
        typer.Option(help="Distribution of the sensitivities, such as uniform:0.02,0.10."),
    ],
    offers_file: Annotated[Path, typer.Option("--out", help="CSV or Parquet file for the offers.")],
    mu: Annotated[
        float | None,
        typer.Option(help="Weight of the spread: how much few voices harm the model. Required."),
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Weight of the noise: how much it harms. Required.")
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="Weight of the payments.")] = None,
    budget: Budget = None,
    cap: Annotated[
        float | None, typer.Option(help="Largest weight, in multiples of the average.")
    ] = None,
    eta_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Least and most privacy to buy in total.", metavar="LOW HIGH"),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id-column", help="Column of the ids.", show_default="id, seller, ..."),
    ] = None,
    sensitivity_column: Annotated[
        str | None,
        typer.Option(
            "--sensitivity-column",
            help="Column of the reported sensitivities.",
            show_default="sensitivity, cost, ...",
        ),
    ] = None,
    group_column: GroupColumn = None,
    at_least: AtLeast = None,
    na_values: NaValues = None,
    show_cells: ShowCells = False,
    dask: Annotated[
        str | None,
        typer.Option(
            help="Where Parquet and offers stay in partitions, --out a folder: local, or a Dask "
            "scheduler such as tls://10.0.0.1:8786."
        ),
    ] = None,
    trust_scheduler: TrustScheduler = False,
    force: Force = False,
) -> None:
    """Make an offer to every seller of a list."""
    from convexmarket.deal import certificate_of, price_offers
    from convexmarket.io import check_place
    from convexmarket.priors import parse_prior

    with errors_in_one_line(), err.status("") as status:
        if (gamma is None) == (budget is None):
            raise ParameterError(
                "give one of --gamma and --budget: the weight of a unit of money, or what payments "
                "come to on average, which decides gamma"
            )
        if mu is None or sigma is None:
            raise ParameterError(
                "give --mu and --sigma: how much few voices and noise harm the model that will be "
                "trained. cm.PrivateLogisticRegression().risk(n_features=10) is 3.15 and 45.3, see "
                "docs/howto/choose.md"
            )
        shares = shares_of(at_least)
        if offers_file.exists() and file.exists() and offers_file.samefile(file):
            raise ParameterError(f"--out {offers_file} is the list of reports; name another file")
        if dask is not None:
            if gamma is None or at_least or group_column or na_values or show_cells:
                raise ParameterError(
                    "--dask takes --gamma, and no groups, --na-values or --show-cells; the rest is"
                    " for lists in one memory"
                )
            from convexmarket.partitions import price_parts, workers

            check_place(offers_file, folder=True)
            with workers(dask, trust_scheduler=trust_scheduler):
                certificate = price_parts(
                    file,
                    parse_prior(prior),
                    offers_file,
                    mu=mu,
                    sigma=sigma,
                    gamma=gamma,
                    cap=cap,
                    eta_range=eta_range,
                    id_column=id_column,
                    sensitivity_column=sensitivity_column,
                    progress=lambda stage: status.update(f"{stage} ..."),
                )
            out.print(*certificate_summary(certificate), sep="\n")
            out.print(f"Wrote {offers_file}", highlight=False, soft_wrap=True, markup=False)
            return
        check_place(offers_file, force=force)
        check_place(certificate_of(offers_file), force=force)
        offers = price_offers(
            file,
            parse_prior(prior),
            mu=mu,
            sigma=sigma,
            gamma=gamma,
            budget=budget,
            cap=cap,
            eta_range=eta_range,
            at_least=shares,
            id_column=id_column,
            sensitivity_column=sensitivity_column,
            group_column=group_column,
            na_values=na_values or (),
            show_cells=show_cells,
            progress=lambda stage: status.update(f"{stage} ..."),
        )
        status.update("writing ...")
        written = offers.write(offers_file, force=force)
    out.print(*certificate_summary(offers.certificate), sep="\n")
    for path in written:
        out.print(f"Wrote {path}", highlight=False, soft_wrap=True, markup=False)
    err.print(REPORTS_TELL, highlight=False, soft_wrap=True)


def certificate_summary(certificate: Mapping[str, Any]) -> list[Table | str]:
    """Return what the terminal shows of offers to sellers, by their certificate."""
    from convexmarket.privacy.guarantee import WEAK, odds_in_words

    totals, optimality = certificate["totals"], certificate["optimality"]
    finding = (
        f"Bought from {totals['sellers_bought_from']:,} of {optimality['n_sellers']:,} sellers "
        f"for {totals['payments']:.6g}, optimal within a relative gap of {optimality['gap']:.1e}."
    )
    budget, audit = certificate["objective"].get("budget"), certificate["audit"]
    pairs = [] if budget is None else [("budget, met on average over the prior", f"{budget:.6g}")]
    pairs += [
        ("expected payments", f"{totals['expected_payments']:.6g}"),
        ("total privacy eta", f"{totals['epsilon']:.6g}"),
        ("largest epsilon", f"{totals['largest_epsilon']:.6g}"),
        ("objective", f"{optimality['objective']:.10g}"),
        ("sellers audited", f"{audit['sellers_audited']:,}"),
        ("largest gain from lying alone", f"{audit['largest_gain_from_misreporting']:.1e}"),
        ("smallest surplus", f"{audit['smallest_surplus']:.4g}"),
    ]
    shown: list[Table | str] = [finding, pairs_table(pairs)]
    if (largest := totals["largest_epsilon"]) > WEAK:
        shown.append(
            f"An epsilon of {largest:.4g} is a weak promise: a reader with all other rows"
            f" {odds_in_words(largest, 0.0)}. A larger gamma sells less."
        )
    return shown


app.command("ledger", epilog=LEDGER_EXAMPLES)(ledger_command)
app.command("init", epilog=INIT_EXAMPLES)(init_command)
app.command("buy", epilog=BUY_EXAMPLES)(buy_command)
app.command("report", epilog=REPORT_EXAMPLES)(report_command)
app.command("diff", epilog=DIFF_EXAMPLES)(diff_command)
app.command(epilog=COMPARE_EXAMPLES)(compare)


@app.command()
def schema(
    file: Annotated[
        Path | None, typer.Option("--out", help="File to write.", show_default="standard output")
    ] = None,
    force: Force = False,
) -> None:
    """Print the JSON Schema of problem files, for editors that complete and check TOML."""
    from convexmarket.io import check_place, write_together
    from convexmarket.studies.files import json_schema

    text = json.dumps(json_schema(), indent=2) + "\n"
    if file is None:
        sys.stdout.write(text)
        return
    with errors_in_one_line():
        check_place(file, force=force)
        write_together({file: text.encode("utf-8")}, force=force)
    out.print(f"Wrote {file}", highlight=False, soft_wrap=True, markup=False)
