"""The commands for a table of your own: ``convexmarket init`` and ``convexmarket buy``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convexmarket.cli.consoles import Force, err, errors_in_one_line, out
from convexmarket.errors import ParameterError

if TYPE_CHECKING:
    from convexmarket.lab.problem.drafts import Learnt

__all__ = [
    "BUY_EXAMPLES",
    "INIT_EXAMPLES",
    "AtLeast",
    "Budget",
    "GroupColumn",
    "NaValues",
    "ShowCells",
    "TrustScheduler",
    "buy_command",
    "init_command",
    "shares_of",
]

INIT_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket init patients.csv

  convexmarket init costs.parquet --learns number --out costs.toml

Which column is the id, the report and the label is guessed from the names, and written with \
comments that say what each key means. Ranges, categories, classes, the prior and the public rows \
are for you to declare: the file marks them "?", and is refused until they are.
"""
BUY_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket init patients.csv && convexmarket run market.toml

  convexmarket buy market.toml --budget 50 --out sale

  convexmarket ledger books.sqlite --create && convexmarket buy market.toml --budget 50 --out sale \
--ledger books.sqlite

  convexmarket buy market.toml --gamma 0.002 --set learner.regularization=[0.03] --out sale

  convexmarket buy market.toml --budget 50 --group-column region --at-least north:0.3 --out sale

The folder holds offers.csv, model.json (convexmarket.load_model), certificate.json and deal.md, \
which says what was bought and what that guarantees. The noise is drawn anew each time: a second \
model spends the guarantees twice, so the sale is recorded once for a table.
"""

#: What becomes of a table in which no name tells which column has a role.
WITHOUT = {
    "id": "not found by its name; sellers are called by their lines",
    "report": "not found by its name; reports would be simulated, and nothing could be bought",
    "label": "not found by its name; yours to declare",
}

Budget = Annotated[
    float | None,
    typer.Option(help="What payments come to, on average over the prior; in place of --gamma."),
]
GroupColumn = Annotated[
    str | None, typer.Option("--group-column", help="Column of the sellers' groups.")
]
NaValues = Annotated[
    list[str] | None,
    typer.Option(
        "--na-values", metavar="TEXT", help='Text of an empty cell, such as "k.A.". Repeatable.'
    ),
]
ShowCells = Annotated[
    bool,
    typer.Option("--show-cells", help="Show the text of the first wrong report, which is private."),
]
TrustScheduler = Annotated[
    bool,
    typer.Option(
        "--trust-scheduler",
        help="Use a Dask scheduler without TLS: all who can connect to it run code as you.",
    ),
]
AtLeast = Annotated[
    list[str] | None,
    typer.Option(
        "--at-least",
        metavar="GROUP:SHARE",
        help="Least share of the weight that a group carries. Repeatable.",
    ),
]


class Learns(StrEnum):
    """What a draft is about."""

    a_class = "class"
    a_number = "number"


def shares_of(at_least: list[str] | None) -> dict[str, float]:
    """Return shares by group, as ``--at-least`` names them."""
    shares: dict[str, float] = {}
    for text in at_least or ():
        group, colon, share = text.rpartition(":")
        try:
            number = float(share)
        except ValueError:
            colon = ""
        if not (group and colon):
            raise ParameterError(f"--at-least must be GROUP:SHARE, such as north:0.3, got {text!r}")
        if group in shares:
            raise ParameterError(f"--at-least names the group {group!r} twice")
        shares[group] = number
    return shares


def init_command(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file with one row per seller.")],
    target: Annotated[Path, typer.Option("--out", help="Problem file to write.")] = Path(
        "market.toml"
    ),
    learns: Annotated[
        Learns | None, typer.Option(help="What is predicted.", show_default="as the label is")
    ] = None,
    force: Force = False,
) -> None:
    """Write a problem file for a table of your own, to be completed by you."""
    from convexmarket.io import check_place, write_together
    from convexmarket.lab.problem.drafts import draft_problem
    from convexmarket.studies.files.loading import UNDECLARED

    with errors_in_one_line():
        check_place(target, force=force)
        wanted: Learnt | None = None if learns is None else learns.value
        draft = draft_problem(file, target.absolute().parent, wanted)
        write_together({target: draft.text.encode()}, force=force)
    for role, without in WITHOUT.items():
        _say(f"{role}: {draft.roles.get(role, without)}")
    _say(f"Wrote {target}")
    _say(f'Declare what it marks "{UNDECLARED}", then: convexmarket run {target}')


def buy_command(
    file: Annotated[Path, typer.Argument(help="Problem file with data of your own.")],
    target: Annotated[Path, typer.Option("--out", help="Folder for what is bought.")],
    budget: Budget = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="Weight of the payments.", show_default="as the file says"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a value of the file, written as in TOML. Repeatable.",
        ),
    ] = None,
    group_column: GroupColumn = None,
    at_least: AtLeast = None,
    na_values: NaValues = None,
    show_cells: ShowCells = False,
    books: Annotated[
        Path | None, typer.Option("--ledger", help="Ledger that the sale is recorded in.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Record a table that was recorded before.")
    ] = False,
    force: Force = False,
) -> None:
    """Buy from the people of a table: offers, a model and what proves them, in a folder."""
    from contextlib import nullcontext

    from convexmarket.data.lists import digest
    from convexmarket.io import check_place
    from convexmarket.ledger import Ledger
    from convexmarket.studies.files import load_file

    with errors_in_one_line(), err.status("buying ...") as status:
        if again and books is None:
            raise ParameterError("--again goes with --ledger; leave it out")
        for name in ("deal.md", "offers.csv", "certificate.json", "model.json"):
            check_place(target / name, force=force)
        problem = load_file(file, settings or [])
        with nullcontext() if books is None else Ledger(books) as ledger:
            deal, people = problem.buy(
                gamma=gamma,
                budget=budget,
                group=group_column,
                at_least=shares_of(at_least),
                na_values=na_values or (),
                show_cells=show_cells,
                progress=lambda stage: status.update(f"{stage} ..."),
            )
            status.update("writing ...")
            recorded = None
            if ledger is not None:
                source = f"sha256:{digest(people.path)}"
                recorded = deal.record(ledger, None if again else source)
            deal.report(target)
    for sentence in deal.statements():
        _say(sentence)
    test = people.parts["test"]
    labels = test[people.data.label]
    score = "R²" if people.classes is None else "accuracy"
    one = 0.0 if people.data.classes is None else labels.value_counts(normalize=True).max()
    _say(
        f"On {len(test):,} public rows the model has {score} {deal.model.score(test, labels):.3f}; "
        f"one answer for all would have {one:.3f}."
    )
    if recorded is not None:
        _say(f"Recorded {recorded:,} sales in {books}, and charged the model to them")
    _say(f"Wrote {target / 'deal.md'}")


def _say(text: str) -> None:
    out.print(text, highlight=False, soft_wrap=True, markup=False)
