"""The commands of a ledger: ``convexmarket ledger create``, ``record``, ``show`` and so on."""

from __future__ import annotations

import json
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convexmarket.cli.consoles import AsJson, Force, errors_in_one_line, out, print_json
from convexmarket.errors import DataError, ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from convexmarket.privacy import AccountComposition

__all__ = ["ledger_app"]

EXAMPLES = """
[bold]What was sold, and what of it is spent[/bold]

  convexmarket ledger create sold.sqlite

  convexmarket ledger record sold.sqlite offers.csv

  convexmarket ledger show sold.sqlite

  convexmarket ledger export sold.sqlite --out balance.csv

  convexmarket ledger backup sold.sqlite --out backup.sqlite

An online market keeps its own ledger: give its folder. In Python, train with \
accountant=convexmarket.Ledger("sold.sqlite").account(ids): what would exceed what any seller sold \
is refused before a row is read.
"""
CREATE_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket ledger create sold.sqlite

  convexmarket ledger create sold.sqlite --composition advanced --delta 1e-6

Basic composition adds guarantees up. Advanced composition allows many small releases more, and \
never fewer, for half of a delta. It is settled here, for good.
"""
RECORD_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket price sellers.csv --prior uniform:0.02,0.10 --mu 1 --sigma 100 --gamma 0.1 \
--out offers.csv

  convexmarket ledger record sold.sqlite offers.csv

  convexmarket ledger record sold.sqlite more.csv --release "model 2"

The file has the columns id, epsilon, and payment or price; with a column status, every row must \
be accepted. A market writes its own sales. All of it is recorded, or nothing; who \
sold nothing is left out. Sales of one seller add up, so a file is recorded once, unless --again \
says that it was sold again.
"""
SHOW_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket ledger show sold.sqlite

  convexmarket ledger show market --seller p001

  convexmarket ledger show market/market.sqlite --json
"""
EXPORT_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket ledger export sold.sqlite --out balance.csv

  convexmarket ledger export market --what sales --out sales.json

In CSV, text that a spreadsheet would run as a formula has an apostrophe before it, which our \
readers take off; JSON has it as it is.
"""

BACKUP_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket ledger backup sold.sqlite --out backups/sold.sqlite

  convexmarket ledger show backups/sold.sqlite

The copy is of one instant, checked, and on disk before the command ends; others may charge \
meanwhile. An earlier backup of this ledger gives way to it, no other file does. What comes after \
a backup is not in it: before you charge a restored ledger, read "Backups" in docs/ledger.md.
"""

ledger_app = typer.Typer(
    help="What was sold to whom, and what releases have spent of it.",
    epilog=EXAMPLES,
    rich_markup_mode="rich",
    no_args_is_help=True,
)

Place = Annotated[
    Path, typer.Argument(metavar="PATH", help="A ledger, or an online market's folder or database.")
]


class Part(StrEnum):
    """What of a ledger is exported."""

    balance = "balance"
    sales = "sales"
    releases = "releases"
    charges = "charges"


class Composition(StrEnum):
    """How guarantees add up."""

    basic = "basic"
    advanced = "advanced"


@ledger_app.command(epilog=CREATE_EXAMPLES)
def create(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File for the ledger.")],
    composition: Annotated[
        Composition, typer.Option(help="How the guarantees of several releases add up.")
    ] = Composition.basic,
    delta: Annotated[
        float, typer.Option(help="Probability with which what was sold may be exceeded.")
    ] = 0.0,
) -> None:
    """Make a ledger without sales."""
    from convexmarket.ledger import Ledger

    with errors_in_one_line():
        kind: AccountComposition = "advanced" if composition is Composition.advanced else "basic"
        Ledger.create(path, kind, delta).disconnect()
    _say(f"Created {path}")


@ledger_app.command(epilog=RECORD_EXAMPLES)
def record(
    path: Place,
    file: Annotated[Path, typer.Argument(help="CSV file with id, epsilon and payment per row.")],
    release: Annotated[
        str | None, typer.Option(help="The only release that may use it.", show_default="any")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Record a file that was recorded before.")
    ] = False,
    id_column: Annotated[
        str | None,
        typer.Option("--id-column", help="Column of the ids.", show_default="id, seller, ..."),
    ] = None,
    epsilon_column: Annotated[
        str | None,
        typer.Option("--epsilon-column", help="Column of what was sold.", show_default="epsilon"),
    ] = None,
    price_column: Annotated[
        str | None,
        typer.Option(
            "--price-column", help="Column of what is paid.", show_default="payment, price"
        ),
    ] = None,
) -> None:
    """Write down what the sellers of a list sold: all of it, or nothing."""
    from convexmarket.data.lists import digest, read_sales
    from convexmarket.ledger import Ledger

    with errors_in_one_line(), Ledger(path) as ledger:
        if ledger.of_market:
            raise DataError(
                f"{path} is an online market's, which writes a sale when an offer is accepted:"
                " record lists in a ledger of their own"
            )
        table = read_sales(file, id_column, epsilon_column, price_column)
        source = None if again else f"sha256:{digest(file)}"
        columns = table["id"].tolist(), table["epsilon"].to_numpy(), table["price"].to_numpy()
        sales = ledger.sell(*columns, release=release, source=source)
    _say(f"Recorded {sales:,} sales of {len(table):,} sellers listed")


@ledger_app.command(epilog=SHOW_EXAMPLES)
def show(
    path: Place,
    seller: Annotated[str | None, typer.Option(help="Show one seller.", metavar="ID")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what was sold, what is spent, by which releases, and who has the least left."""
    from convexmarket.cli.ledger_terminal import (
        ledger_state,
        ledger_tables,
        seller_state,
        seller_tables,
    )
    from convexmarket.ledger import Ledger

    with errors_in_one_line(), Ledger(path) as ledger:
        state = ledger_state(ledger) if seller is None else seller_state(ledger, seller)
    if as_json:
        print_json(state)
        return
    out.print(*(ledger_tables if seller is None else seller_tables)(state), sep="\n")


@ledger_app.command(epilog=EXPORT_EXAMPLES)
def export(
    path: Place,
    file: Annotated[Path, typer.Option("--out", help="File to write, .csv or .json.")],
    what: Annotated[Part, typer.Option(help="What of the ledger.")] = Part.balance,
    force: Force = False,
) -> None:
    """Write a table of the ledger, at once or not at all."""
    from convexmarket.ledger import Ledger
    from convexmarket.writing import check_place, write_together

    with errors_in_one_line():
        if file.suffix.lower() not in (".csv", ".json"):
            raise ParameterError(f"--out {file} is neither .csv nor .json; name such a file")
        is_csv = file.suffix.lower() == ".csv"
        check_place(file, force=force)
        with Ledger(path) as ledger:
            if file.exists() and file.samefile(ledger.path):
                raise ParameterError(f"--out {file} is the ledger itself; name another file")
            table = getattr(ledger, what.value)()
        text = _csv(table) if is_csv else _json(table)
        write_together({file: text.encode()}, private=True, force=force)
    _say(f"Wrote {file}")


@ledger_app.command(epilog=BACKUP_EXAMPLES)
def backup(
    path: Place,
    file: Annotated[Path, typer.Option("--out", help="File for the copy.")],
    force: Force = False,
) -> None:
    """Copy the ledger, while it is in use."""
    from convexmarket.ledger import Ledger
    from convexmarket.writing import check_place

    with errors_in_one_line():
        check_place(file, force=force)
        with Ledger(path) as ledger:
            ledger.backup(file, force=force)
    _say(f"Wrote {file}")


def _csv(table: pd.DataFrame) -> str:
    from convexmarket.data.csv_cells import write_csv

    if "assumptions" in table:
        table = table.assign(assumptions=["; ".join(each) for each in table["assumptions"]])
    text = StringIO()
    write_csv(table, text)
    return text.getvalue()


def _json(table: pd.DataFrame) -> str:
    from convexmarket.lab.report.results import plain

    rows = plain(table.to_dict("records"))
    return json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _say(text: str) -> None:
    out.print(text, highlight=False, soft_wrap=True, markup=False)
