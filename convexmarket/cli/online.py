"""The commands of an online market: ``convexmarket online open``, ``quote``, ``accept`` and so on.

Each command is one step of a market whose state lies in a folder. What a command has said is
stored; a command that was interrupted can be given again.
"""

from __future__ import annotations

import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli.consoles import (
    REPORTS_TELL,
    AsJson,
    Force,
    err,
    errors_in_one_line,
    out,
    print_json,
    progress_bars,
)
from convexmarket.errors import ParameterError, ProblemFileError

if TYPE_CHECKING:
    from convexmarket.online.lists import Answer
    from convexmarket.online.market import Offer


__all__ = ["online_app"]

#: Exit code where all went well but some sellers were turned away.
TURNED_AWAY = 3

EXAMPLES = """
[bold]A market from beginning to end[/bold]

  convexmarket online open market problems/online-clinic/market.toml

  convexmarket online quote market --csv problems/online-clinic/arrivals.csv --out offers.csv

  convexmarket online accept market --csv offers.csv

  convexmarket online status market

  convexmarket online close market

  convexmarket online backup market --out clinic.sqlite

The market is the file market.sqlite in the folder. Several processes may use it at once, and each \
may be killed at any instant: what a command has said is kept, and it can be given again.
"""
OPEN_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online open market problems/online-clinic/market.toml

  convexmarket online open other problems/online-clinic/market.toml --set buyer.gamma=0.02

Files that the problem names are found from where it lies, also later: the rows are read again \
when the market closes.
"""
QUOTE_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online quote market --id p001 --sensitivity 3.1

  convexmarket online quote market --id p001 --sensitivity 3.1 --json

  convexmarket online quote market --csv arrivals.csv --out offers.csv

  convexmarket online quote market --csv survey.csv --id-column patient \
--sensitivity-column "asking price"

A seller is quoted once: asked again with the same report it has the same terms, with another it \
is refused. A list is checked before anybody is quoted; interrupted, give it again and it goes on. \
Where a list has more sellers than are expected, those that fit are quoted, the others are \
counted, and the exit code is 3.
"""
ACCEPT_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online accept market --id p001

  convexmarket online accept market --csv accepted.csv

  convexmarket online quote market --csv arrivals.csv --out offers.csv && \
convexmarket online accept market --csv offers.csv

A file that quote wrote is taken as it is: who was offered nothing is passed over. A list is \
checked before anything is recorded. An answer cannot be taken back; to give it again \
changes nothing.
"""
DECLINE_EXAMPLES = ACCEPT_EXAMPLES.replace("accept", "decline").replace(
    "declineed.csv", "declined.csv"
)
STATUS_EXAMPLES = """
[bold]Example[/bold]

  convexmarket online status market
"""
BACKUP_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online backup market --out backups/clinic.sqlite

  mkdir restored && cp backups/clinic.sqlite restored/market.sqlite

The copy is of one instant, checked, and on disk before the command ends; others may quote \
meanwhile. An earlier backup of this market gives way to it, no other file does. What comes after \
a backup is not in it: before you go on with a restored market, read "Backups" in docs/ledger.md.
"""
CLOSE_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online close market

  convexmarket online close market --lapse --out out/clinic --open

The model is trained once, on the rows of those who accepted, and kept in the market. Closing \
again writes the report again, with the same model: a second one would spend the guarantees twice.
"""

online_app = typer.Typer(
    help="A market whose sellers come one by one, and are quoted on arrival.",
    epilog=EXAMPLES,
    rich_markup_mode="rich",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the market.")]
SellerId = Annotated[str | None, typer.Option("--id", help="Who it is.")]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id-column", help="Column of the ids in the CSV file.", show_default="id, seller, ..."
    ),
]


@online_app.command("open", epilog=OPEN_EXAMPLES)
def open_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the market.")],
    file: Annotated[Path, typer.Argument(help='Problem file of kind "online-market".')],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a value of the file, written as in TOML. Repeatable.",
        ),
    ] = None,
) -> None:
    """Check a problem file and all it names, and open its market."""
    from convexmarket.cli.online_terminal import terms_table
    from convexmarket.lab.kinds.online_market.market import open_market
    from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem, OwnSellers
    from convexmarket.lab.problem.loading import load_problem

    with errors_in_one_line():
        problem = load_problem(file, settings or [])
        if not isinstance(problem, OnlineMarketProblem):
            raise ProblemFileError(
                f'{file}: kind is {problem.kind!r}; an online market needs "online-market"'
            )
        with open_market(problem, folder) as market:
            terms = terms_table(market)
    out.print(terms)
    if isinstance(problem.data, OwnSellers) and not problem.file(problem.data.file).exists():
        out.print(
            f"{problem.data.file} is not there yet; the market needs it to close", markup=False
        )
    out.print(f"Opened {folder}", highlight=False, soft_wrap=True, markup=False)
    err.print(REPORTS_TELL, highlight=False, soft_wrap=True)


@online_app.command(epilog=QUOTE_EXAMPLES)
def quote(
    folder: Folder,
    seller: SellerId = None,
    sensitivity: Annotated[
        float | None,
        typer.Option(help="What the seller reports, per unit of epsilon."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--csv", help="CSV file with an id and a sensitivity per row.")
    ] = None,
    offers_file: Annotated[
        Path | None, typer.Option("--out", help="CSV file for the offers of a list.")
    ] = None,
    id_column: IdColumn = None,
    sensitivity_column: Annotated[
        str | None,
        typer.Option(
            "--sensitivity-column",
            help="Column of the reported sensitivities in the CSV file.",
            show_default="sensitivity, cost, ...",
        ),
    ] = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Quote a seller, or all of a list: what is bought, and what is paid for it."""
    from convexmarket.online.market import OnlineMarket

    with errors_in_one_line():
        if file is not None:
            _with_list(id=seller, sensitivity=sensitivity, json=as_json or None)
            _quote_list(folder, file, offers_file, id_column, sensitivity_column, force)
            return
        _without_list(
            out=offers_file,
            id_column=id_column,
            sensitivity_column=sensitivity_column,
            force=force or None,
        )
        if seller is None or sensitivity is None:
            raise ParameterError(
                "say who is quoted; give --id and --sensitivity, or --csv with a list of both"
            )
        with OnlineMarket(folder) as market:
            offer = market.quote(seller, sensitivity)
    if as_json:
        print_json(asdict(offer))
    else:
        _say(offer)


def _quote_list(
    folder: Path,
    file: Path,
    offers_file: Path | None,
    id_column: str | None,
    sensitivity_column: str | None,
    force: bool,
) -> None:
    from convexmarket.cli.online_terminal import list_words
    from convexmarket.data.csv_cells import write_csv
    from convexmarket.online.lists import quote_list
    from convexmarket.online.market import OnlineMarket
    from convexmarket.writing import check_place, write_together

    clash = offers_file is not None and offers_file.exists() and file.exists()
    if offers_file is not None and clash and offers_file.samefile(file):
        raise ParameterError(f"--out {offers_file} is the list of arrivals; name another file")
    if offers_file is not None:
        check_place(offers_file, force=force)
    with OnlineMarket(folder) as market, progress_bars() as advance:
        quoted = quote_list(market, file, id_column, sensitivity_column, advance)
        expected = market.policy.expected_sellers
    out.print(list_words(quoted))
    if offers_file is not None:
        write_together(
            {offers_file: lambda file: write_csv(quoted.offers, file)}, private=True, force=force
        )
        out.print(f"Wrote {offers_file}", highlight=False, soft_wrap=True, markup=False)
    if quoted.turned_away:
        err.print(
            f"{quoted.turned_away:,} sellers were turned away: the market stops after the "
            f"{expected:,} it expected",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(TURNED_AWAY)


@online_app.command(epilog=ACCEPT_EXAMPLES)
def accept(
    folder: Folder,
    seller: SellerId = None,
    file: Annotated[Path | None, typer.Option("--csv", help="CSV file with an id per row.")] = None,
    id_column: IdColumn = None,
) -> None:
    """Record that a seller, or all of a list, accepts its offer."""
    _answer(folder, "accepted", seller, file, id_column)


@online_app.command(epilog=DECLINE_EXAMPLES)
def decline(
    folder: Folder,
    seller: SellerId = None,
    file: Annotated[Path | None, typer.Option("--csv", help="CSV file with an id per row.")] = None,
    id_column: IdColumn = None,
) -> None:
    """Record that a seller, or all of a list, declines its offer."""
    _answer(folder, "declined", seller, file, id_column)


def _answer(
    folder: Path, answer: Answer, seller: str | None, file: Path | None, id_column: str | None
) -> None:
    from convexmarket.online.lists import answer_list
    from convexmarket.online.market import OnlineMarket

    with errors_in_one_line():
        if file is not None:
            _with_list(id=seller)
            with OnlineMarket(folder) as market, progress_bars() as advance:
                number = answer_list(market, file, answer, id_column, advance)
            out.print(f"{number:,} sellers: {answer}", highlight=False)
            return
        _without_list(id_column=id_column)
        if seller is None:
            raise ParameterError("say who answers; give --id, or --csv with a list of ids")
        with OnlineMarket(folder) as market:
            offer = market.accept(seller) if answer == "accepted" else market.decline(seller)
    _say(offer)


@online_app.command(epilog=STATUS_EXAMPLES)
def status(folder: Folder, as_json: AsJson = False) -> None:
    """Say how far a market is: sellers, privacy sold, payments, plans."""
    from convexmarket.cli.online_terminal import market_state, status_tables
    from convexmarket.online.market import OnlineMarket

    with errors_in_one_line(), OnlineMarket(folder) as market:
        state = market_state(market)
    if as_json:
        print_json(state)
        return
    out.print(*status_tables(state), sep="\n")


@online_app.command(epilog=BACKUP_EXAMPLES)
def backup(
    folder: Folder,
    file: Annotated[Path, typer.Option("--out", help="File for the copy.")],
    force: Force = False,
) -> None:
    """Copy the market's database, while it is in use."""
    from convexmarket.online.market import OnlineMarket
    from convexmarket.writing import check_place

    with errors_in_one_line():
        check_place(file, force=force)
        with OnlineMarket(folder) as market:
            market.backup(file, force=force)
    out.print(f"Wrote {file}", highlight=False, soft_wrap=True, markup=False)


@online_app.command(epilog=CLOSE_EXAMPLES)
def close(
    folder: Folder,
    lapse: Annotated[
        bool, typer.Option("--lapse", help="Count offers without an answer as declined.")
    ] = False,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Who accepted but gave no row. Repeatable."),
    ] = None,
    without_model: Annotated[
        bool, typer.Option("--without-model", help="Close for good and train nothing.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report.", show_default="DIR/report")
    ] = None,
    regularization: Annotated[
        float | None,
        typer.Option(help="Lambda of the learner.", show_default="as the problem says"),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False,
) -> None:
    """Train on what was sold, close the market for good, and write its report."""
    from convexmarket.lab import build_report, write_report
    from convexmarket.lab.kinds.online_market.market import close_market
    from convexmarket.lab.report.render import check_replaceable
    from convexmarket.lab.report.terminal import summary
    from convexmarket.online.market import OnlineMarket
    from convexmarket.online.release import close_without_model
    from convexmarket.writing import check_place

    target = folder / "report" if report is None else report
    if without_model:
        with errors_in_one_line():
            if leave_out or report or regularization is not None:
                raise ParameterError(
                    "--without-model trains and reports nothing; leave --leave-out, --out and "
                    "--regularization out"
                )
            with OnlineMarket(folder) as market:
                close_without_model(market, lapse=lapse)
        out.print("The market is closed. Nothing was trained; what was accepted is owed.")
        return
    with errors_in_one_line():
        check_replaceable(target.resolve())  # before the market closes for good
        check_place(target, folder=True)
        with OnlineMarket(folder) as market, progress_bars() as advance:
            closed = close_market(
                market,
                lapse=lapse,
                leave_out=leave_out or (),
                regularization=regularization,
                progress=advance,
            )
        told = build_report(closed)
        page = write_report(told, target)
    out.print(*summary(told), sep="\n")
    out.print("The model is model.json next to the report:", highlight=False)
    out.print(page, highlight=False, soft_wrap=True, markup=False)
    if show:
        webbrowser.open(page.resolve().as_uri())


def _without_list(**options: Any) -> None:
    """Refuse options that are about a list, where there is none."""
    for name, value in options.items():
        if value is not None:
            raise ParameterError(
                f"--{name.replace('_', '-')} goes with --csv; give that, or leave it out"
            )


def _with_list(**options: Any) -> None:
    """Refuse options that are about a single seller, where there is a list."""
    for name, value in options.items():
        if value is not None:
            raise ParameterError(f"--{name} and --csv exclude each other; leave one of them out")


def _say(offer: Offer) -> None:
    from convexmarket.cli.online_terminal import offer_words

    out.print(offer_words(offer), highlight=False, soft_wrap=True, markup=False)
