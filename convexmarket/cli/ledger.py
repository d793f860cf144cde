"""``convexmarket ledger``: the guarantees sold, and the releases that spent them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli.consoles import (
    AsJson,
    File,
    Force,
    IdColumn,
    Text,
    check_ending,
    errors_in_one_line,
    excludes,
    needs,
    print_json,
    print_table,
    say,
    write_table,
)
from convexmarket.errors import DataError, ParameterError

if TYPE_CHECKING:
    from convexmarket.ledger import Ledger

#: Number of sellers in the list of the smallest remaining guarantees.
_MOST_SELLERS = 10
_TOTALS = ("sold", "spent", "left", "paid")
Part = StrEnum("Part", ["balance", "sales", "releases", "charges"])


def _option(help: str) -> Any:
    return typer.Option(help=f"With {help}")


def ledger_command(
    path: Annotated[Path, typer.Argument(help="A ledger, or the folder of an online market.")],
    create: Annotated[bool, typer.Option("--create", help="Make a ledger without sales.")] = False,
    record: Annotated[File, typer.Option(help="List whose sales are recorded.")] = None,
    release: Annotated[Text, _option("--record: the only release that may use it.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also a file recorded before.")] = False,
    id_column: IdColumn = None,
    epsilon_column: Annotated[Text, typer.Option(help="Column of what was sold.")] = None,
    price_column: Annotated[Text, typer.Option(help="Column of what is paid.")] = None,
    export: Annotated[File, typer.Option(help="Write a table, as .csv or .json.")] = None,
    what: Annotated[Part | None, _option("--export: which table; the balance.")] = None,
    backup: Annotated[File, typer.Option(help="Copy the ledger, while it is in use.")] = None,
    seller: Annotated[Text, typer.Option(help="Show one seller.", metavar="ID")] = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Show, record, export or copy the guarantees sold and the releases that spent them.

    A list to record has the columns id, epsilon, and payment or price; with a column status, every
    row must be accepted. All of its sales are recorded, or none. A file is recorded once unless
    --again is given. docs/ledger.md explains how a backup is restored.
    """
    from convexmarket.data.lists import digest, read_sales
    from convexmarket.io import check_place
    from convexmarket.ledger import Ledger

    with errors_in_one_line():
        actions = {"create": create, "record": record, "export": export, "backup": backup}
        chosen = [name for name, value in actions.items() if value]
        for name in chosen:
            excludes(f"--{name}", **actions | {name: None}, seller=seller, json=as_json)
        names = {
            "id_column": id_column, "epsilon_column": epsilon_column, "price_column": price_column,
        }  # fmt: skip
        needs("--record", record, release=release, again=again, **names)
        needs("--export", export, what=what)
        needs("--export or --backup", export or backup, force=force)
        if export is not None:
            check_ending(export, "--export")
        if file := export or backup:
            check_place(file, f"--{chosen[0]}", force=force)
        if create:
            Ledger.create(path).disconnect()
            say(f"Created {path}")
            return
        with Ledger(path) as ledger:
            if record is not None:
                if ledger.of_market:
                    raise DataError(
                        f"{ledger.path} is an online market's, which records a sale when an offer "
                        "is accepted; record lists in another ledger"
                    )
                table = read_sales(record, **names)
                source = None if again else f"sha256:{digest(record)}"
                sold = table["id"].tolist(), table["epsilon"].to_numpy(), table["price"].to_numpy()
                sales = ledger.sell(*sold, release=release, source=source)
                say(f"Recorded {sales:,} sales of {len(table):,} sellers listed")
            elif export is not None:
                _export(ledger, export, (what or Part.balance).value, force)
            elif backup is not None:
                ledger.backup(backup, force=force)
                say(f"Wrote {backup}")
            else:
                _show(ledger, as_json) if seller is None else _show_seller(ledger, seller, as_json)


def _export(ledger: Ledger, file: Path, part: str, force: bool) -> None:
    if file.exists() and file.samefile(ledger.path):
        raise ParameterError(f"--export {file} is the ledger itself; name another file")
    table = getattr(ledger, part)()
    if "assumptions" in table and file.suffix.lower() == ".csv":
        table = table.assign(assumptions=["; ".join(each) for each in table["assumptions"]])
    write_table(table, file, force=force)


def _show(ledger: Ledger, as_json: bool) -> None:
    """Print the totals of a ledger, its releases, and the smallest remaining guarantees."""
    balance, releases = ledger.balance(), ledger.releases()
    least = balance.sort_values("left", kind="stable").head(_MOST_SELLERS)
    totals: dict[str, Any] = {"sellers": len(balance)}
    totals |= {name: float(balance[name].sum()) for name in _TOTALS}
    totals |= {"composition": ledger.composition, "delta": ledger.delta}
    if as_json:
        listed = {"releases": releases.to_dict("records"), "least_left": least.to_dict("records")}
        print_json(totals | listed)
        return
    print_table("Ledger", [totals], list(totals))
    names = ("name", "mechanism", "sellers", "largest_epsilon", "delta", "time")
    print_table("Releases", releases, names)
    print_table("Sellers with the least left", least, ("id", *_TOTALS))


def _show_seller(ledger: Ledger, id: str, as_json: bool) -> None:
    """Print the balance of one seller, its sales, and the releases that used them."""
    from convexmarket.checks import checked_id

    id = checked_id(id)
    tables = {"balance": ledger.balance(), "sales": ledger.sales(), "charges": ledger.charges()}
    tables = {name: table[table["id"] == id] for name, table in tables.items()}
    if tables["balance"].empty:
        raise ParameterError(f"seller {id!r} has sold nothing; check the id")
    if as_json:
        (balance,) = tables.pop("balance").to_dict("records")
        listed = {name: t.drop(columns="id").to_dict("records") for name, t in tables.items()}
        print_json(balance | listed)
        return
    print_table(f"Seller {id}", tables["balance"], _TOTALS)
    print_table("Sales", tables["sales"], ("epsilon", "price", "release", "time"))
    print_table("Releases", tables["charges"], ("release", "epsilon"))
