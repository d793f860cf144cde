"""The command line. Each command reads its input, calls a function, and prints the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version as installed
from typing import Annotated

import typer

from convexmarket.cli.consoles import run_to_the_end, say
from convexmarket.cli.experiments import compare_command, diff_command, report_command, run
from convexmarket.cli.online import online_app
from convexmarket.cli.sales import buy, init, ledger_command, price

__all__ = ["app", "main"]

_PRICE = "--prior uniform:0.02,0.10 --mu 1 --sigma 100 --gamma 0.1"
#: Examples in the help of each command.
_EXAMPLES: dict[Callable[..., None], list[str]] = {
    run: [
        "run problems/quickstart.toml --open",
        "run problems/wdbc.toml --set objective.gamma=[0.001,0.01] --set learner.draws=5",
    ],
    compare_command: [
        "compare problems/wdbc.toml --sizes 100,1000,10000",
        "compare allocation ridge --solvers exact,CLARABEL,SCS",
    ],
    price: [
        f"price sellers.csv {_PRICE} --out offers.csv",
        f"price sellers.parquet {_PRICE} --dask local --out offers.parquet",
    ],
    init: ["init patients.csv", "init costs.parquet --learns number --out costs.toml"],
    buy: ["buy market.toml --budget 50 --out sale --ledger books.sqlite"],
    ledger_command: [
        "ledger sold.sqlite --create",
        "ledger sold.sqlite --record offers.csv",
        "ledger sold.sqlite --export balance.csv",
        "ledger sold.sqlite --backup backups/sold.sqlite",
    ],
    report_command: ["report out/wdbc --formats csv,tex", "report --all --force", "report --audit"],
    diff_command: ["diff out/wdbc out/capped --tolerance 1e-6 --exit-code"],
}


def _epilog(lines: list[str]) -> str:
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  convexmarket {line}" for line in lines)])


app = typer.Typer(
    name="convexmarket",
    help="Compute offers to sellers of private data, train private models, and run experiments.",
    epilog=_epilog([lines[0] for lines in _EXAMPLES.values()]),
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(online_app, name="online")
for command, lines in _EXAMPLES.items():
    app.command(lines[0].split()[0], epilog=_epilog(lines))(command)


def main() -> None:
    """Run the command line, and exit with one of the codes in docs/failures.md."""
    run_to_the_end(app)


def _show(wanted: bool) -> None:
    if wanted:
        say(f"convexmarket {installed('convexmarket')}")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_show, is_eager=True, help="Show the version.")


@app.callback()
def _options(version: Annotated[bool, _VERSION] = False) -> None:
    del version


@app.command()
def schema() -> None:
    """Print the JSON Schema of problem files for editors that complete and check TOML."""
    from convexmarket.studies.files import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
