"""The command of a ledger: ``convexmarket ledger``."""

from __future__ import annotations

import json
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from convexmarket.cli.consoles import (
    AsJson,
    Force,
    IdColumn,
    errors_in_one_line,
    excludes,
    needs,
    out,
    print_json,
    rows_table,
    say,
)
from convexmarket.errors import DataError, ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from convexmarket.ledger import Ledger
    from convexmarket.privacy import AccountComposition

__all__ = ["LEDGER_EXAMPLES", "ledger_command"]

LEDGER_EXAMPLES = """
[bold]What was sold, and what of it is spent[/bold]

  convexmarket ledger sold.sqlite --create

  convexmarket ledger sold.sqlite --record offers.csv

  convexmarket ledger sold.sqlite

  convexmarket ledger sold.sqlite --seller p001

  convexmarket ledger sold.sqlite --export balance.csv

  convexmarket ledger sold.sqlite --backup backups/sold.sqlite

A list to record has the columns id, epsilon, and payment or price; with a column status, every \
row must be accepted. All of its sales are recorded, or none. Sales of one seller add up, so a \
file is recorded once unless --again is given.

A backup is a checked copy of one instant; others may charge meanwhile. Before you charge a \
restored ledger, read "Backups" in docs/ledger.md.

An online market keeps its own ledger: give its folder. In Python, train with \
accountant=convexmarket.Ledger("sold.sqlite").account(ids): a fit that would exceed what a seller \
sold is refused before a row is read.
"""
#: Sellers with the least left that are listed.
MOST_SELLERS = 10


class Part(StrEnum):
    """The tables of a ledger."""

    balance = "balance"
    sales = "sales"
    releases = "releases"
    charges = "charges"


class Composition(StrEnum):
    """How guarantees add up."""

    basic = "basic"
    advanced = "advanced"


def ledger_command(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A ledger, or an online market's folder or database."),
    ],
    create: Annotated[bool, typer.Option("--create", help="Make a ledger without sales.")] = False,
    composition: Annotated[
        Composition | None,
        typer.Option(help="With --create: how guarantees add up.", show_default="basic"),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="With --create: probability with which what was sold may be exceeded.",
            show_default="0",
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Record the sales of a list.")
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(help="With --record: the only release that may use it.", show_default="any"),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="With --record: also a file recorded before.")
    ] = False,
    id_column: IdColumn = None,
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
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a table, as .csv or .json.")
    ] = None,
    what: Annotated[
        Part | None, typer.Option(help="With --export: which table.", show_default="balance")
    ] = None,
    backup: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Copy the ledger, while it is in use.")
    ] = None,
    seller: Annotated[str | None, typer.Option(help="Show one seller.", metavar="ID")] = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Show, record, export or copy what was sold to whom, and what releases have spent of it."""
    from convexmarket.io import check_place
    from convexmarket.ledger import Ledger

    with errors_in_one_line():
        actions = {"create": create, "record": record, "export": export, "backup": backup}
        chosen = [f"--{name}" for name, value in actions.items() if value]
        if len(chosen) > 1:
            raise ParameterError(f"{' and '.join(chosen)} exclude each other; give one of them")
        needs("--create", create, composition=composition, delta=delta)
        needs(
            "--record",
            record,
            release=release,
            again=again,
            id_column=id_column,
            epsilon_column=epsilon_column,
            price_column=price_column,
        )
        needs("--export", export, what=what)
        needs("--export or --backup", export or backup, force=force)
        if chosen:
            excludes(chosen[0], seller=seller, json=as_json)
        if export is not None and export.suffix.lower() not in (".csv", ".json"):
            raise ParameterError(f"--export {export} is neither .csv nor .json; name such a file")
        for name, file in (("--export", export), ("--backup", backup)):
            if file is not None:
                check_place(file, name, force=force)
        if create:
            kind: AccountComposition = "advanced" if composition == "advanced" else "basic"
            Ledger.create(path, kind, delta or 0.0).disconnect()
            say(f"Created {path}")
            return
        with Ledger(path) as ledger:
            if record is not None:
                names = id_column, epsilon_column, price_column
                _record(ledger, record, release, again, names)
            elif export is not None:
                _export(ledger, export, (what or Part.balance).value, force)
            elif backup is not None:
                ledger.backup(backup, force=force)
                say(f"Wrote {backup}")
            else:
                _show(ledger, seller, as_json)


def _record(
    ledger: Ledger,
    file: Path,
    release: str | None,
    again: bool,
    columns: tuple[str | None, str | None, str | None],
) -> None:
    from convexmarket.data.lists import digest, read_sales

    if ledger.of_market:
        raise DataError(
            f"{ledger.path} is an online market's, which records a sale when an offer is accepted;"
            " record lists in another ledger"
        )
    table = read_sales(file, *columns)
    source = None if again else f"sha256:{digest(file)}"
    sold = table["id"].tolist(), table["epsilon"].to_numpy(), table["price"].to_numpy()
    sales = ledger.sell(*sold, release=release, source=source)
    say(f"Recorded {sales:,} sales of {len(table):,} sellers listed")


def _export(ledger: Ledger, file: Path, part: str, force: bool) -> None:
    """Write a table of the ledger, at once or not at all."""
    from convexmarket.data.csv_cells import write_csv
    from convexmarket.io import write_together
    from convexmarket.report.results import plain

    if file.exists() and file.samefile(ledger.path):
        raise ParameterError(f"--export {file} is the ledger itself; name another file")
    table: pd.DataFrame = getattr(ledger, part)()
    if file.suffix.lower() == ".csv":
        if "assumptions" in table:
            table = table.assign(assumptions=["; ".join(each) for each in table["assumptions"]])
        text = StringIO()
        write_csv(table, text)
        content = text.getvalue()
    else:
        rows = plain(table.to_dict("records"))
        content = json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_together({file: content.encode()}, private=True, force=force)
    say(f"Wrote {file}")


def _show(ledger: Ledger, seller: str | None, as_json: bool) -> None:
    state = ledger_state(ledger) if seller is None else seller_state(ledger, seller)
    if as_json:
        print_json(state)
        return
    out.print(*(_ledger_tables if seller is None else _seller_tables)(state), sep="\n")


def ledger_state(ledger: Ledger) -> dict[str, Any]:
    """Compute the totals of a ledger, its releases, and the sellers with the least left."""
    balance, releases = ledger.balance(), ledger.releases()
    least = balance.sort_values("left", kind="stable").head(MOST_SELLERS)
    return {
        "composition": ledger.composition,
        "delta": ledger.delta,
        "sellers": len(balance),
        **{name: float(balance[name].sum()) for name in ("sold", "spent", "left", "paid")},
        "releases": releases.to_dict("records"),
        "least_left": least.to_dict("records"),
    }


def seller_state(ledger: Ledger, id: str) -> dict[str, Any]:
    """Collect the balance of one seller, its sales, and the releases that used them.

    Raises
    ------
    ParameterError
        If there is no sale of this seller.
    """
    from convexmarket.checks import checked_id

    id = checked_id(id)
    balance, sales, charges = ledger.balance(), ledger.sales(), ledger.charges()
    row = balance[balance["id"] == id]
    if row.empty:
        raise ParameterError(f"seller {id!r} has sold nothing; check the id")
    return {
        **{str(name): value for name, value in row.iloc[0].items()},
        "sales": sales[sales["id"] == id].drop(columns="id").to_dict("records"),
        "charges": charges[charges["id"] == id].drop(columns="id").to_dict("records"),
    }


def _ledger_tables(state: dict[str, Any]) -> list[Table]:
    releases = ("name", "mechanism", "sellers", "largest_epsilon", "delta", "time")
    totals = ("sellers", "sold", "spent", "left", "paid", "composition", "delta")
    least = ("id", "sold", "spent", "left", "paid")
    return [
        rows_table("Ledger", [state], totals),
        *_listed("Releases", state["releases"], releases),
        *_listed("Sellers with the least left", state["least_left"], least),
    ]


def _seller_tables(state: dict[str, Any]) -> list[Table]:
    return [
        rows_table(f"Seller {state['id']}", [state], ("sold", "spent", "left", "paid")),
        *_listed("Sales", state["sales"], ("epsilon", "price", "release", "time")),
        *_listed("Releases", state["charges"], ("release", "epsilon")),
    ]


def _listed(title: str, rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[Table]:
    """Return a table in a list; an empty list where it would have no row."""
    return [rows_table(title, rows, names)] if rows else []
