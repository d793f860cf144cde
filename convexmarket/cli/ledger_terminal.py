"""What the terminal shows of a ledger: totals, releases, and the sellers with the least left."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from convexmarket.errors import ParameterError
from convexmarket.ids import checked_id
from convexmarket.lab.report.terminal import pairs_table
from convexmarket.lab.report.words import format_value
from convexmarket.ledger import Ledger

__all__ = ["ledger_state", "ledger_tables", "seller_state", "seller_tables"]

#: Sellers that are listed.
MOST_SELLERS = 10


def ledger_state(ledger: Ledger) -> dict[str, Any]:
    """Return the totals of a ledger, its releases, and the sellers with the least left."""
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
    """Return how one seller stands, its sales, and what releases took of it.

    Raises
    ------
    ParameterError
        If there is no sale of this seller.
    """
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


def ledger_tables(state: dict[str, Any]) -> list[Table | Text]:
    """Return what :func:`ledger_state` found, as a sentence and tables."""
    return [
        _text(
            f"{state['sellers']:,} sellers sold {format_value(state['sold'])} for "
            f"{format_value(state['paid'])}; {format_value(state['spent'])} is spent, "
            f"{format_value(state['left'])} is left."
        ),
        _pairs("Ledger", state, ("composition", "delta")),
        *_listed(
            "Releases",
            state["releases"],
            ("name", "mechanism", "sellers", "largest_epsilon", "delta", "time"),
        ),
        *_listed(
            "Sellers with the least left",
            state["least_left"],
            ("id", "sold", "spent", "left", "paid"),
        ),
    ]


def seller_tables(state: dict[str, Any]) -> list[Table]:
    """Return what :func:`seller_state` found, as tables."""
    return [
        _pairs(f"Seller {state['id']}", state, ("sold", "spent", "left", "paid")),
        *_listed("Sales", state["sales"], ("epsilon", "price", "release", "time")),
        *_listed("Releases", state["charges"], ("release", "epsilon")),
    ]


def _pairs(title: str, state: dict[str, Any], names: tuple[str, ...]) -> Table:
    return pairs_table(title, ((name, format_value(state[name])) for name in names))


def _listed(title: str, rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[Table]:
    """Return a table in a list; none where it would have no row."""
    if not rows:
        return []
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD)
    numbers = pd.DataFrame(rows, columns=list(names)).select_dtypes("number").columns
    for name in names:
        heading = name.replace("_", " ")
        table.add_column(heading, justify="right" if name in numbers else "left")
    for row in rows:
        table.add_row(*(_minute(row) if name == "time" else _text(row[name]) for name in names))
    return [table]


def _minute(row: dict[str, Any]) -> Text:
    return _text(row["time"][:16].replace("T", " "))


def _text(value: Any) -> Text:
    return Text(format_value(value))
