"""The commands of an online market: ``convexmarket online open``, ``quote``, ``answer`` and others.

Each command is one step of a market whose state lies in a folder. Printed offers are stored, and
an interrupted command can be given again.
"""

from __future__ import annotations

import math
import webbrowser
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from convexmarket.cli.consoles import (
    REPORTS_TELL,
    AsJson,
    Force,
    IdColumn,
    SensitivityColumn,
    Settings,
    err,
    errors_in_one_line,
    excludes,
    needs,
    out,
    pairs_table,
    print_finding,
    print_json,
    progress_bars,
    rows_table,
    say,
)
from convexmarket.errors import ParameterError, ProblemFileError

if TYPE_CHECKING:
    from convexmarket.online.lists import Answer, QuotedList
    from convexmarket.online.market import Offer, OnlineMarket


__all__ = ["online_app"]

#: Exit code of a list of which some sellers were turned away.
TURNED_AWAY = 3
#: Plans that ``status`` lists, the latest ones.
MOST_PLANS = 12

EXAMPLES = """
[bold]A market from beginning to end[/bold]

  convexmarket online open market problems/online-clinic/market.toml

  convexmarket online quote market --csv problems/online-clinic/arrivals.csv --out offers.csv

  convexmarket online answer market --accept --csv offers.csv

  convexmarket online status market --backup clinic.sqlite

  convexmarket online close market

The market is the file market.sqlite in the folder. Several processes may use it at once, and each \
may be killed at any instant: printed offers are stored, and a command can be given again.
"""
OPEN_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online open market problems/online-clinic/market.toml

  convexmarket online open other problems/online-clinic/market.toml --set buyer.gamma=0.02

Files that the problem names are relative to it, also later: the rows are read again when the \
market closes.
"""
QUOTE_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online quote market --id p001 --sensitivity 3.1 --json

  convexmarket online quote market --csv arrivals.csv --out offers.csv

  convexmarket online quote market --csv survey.csv --id-column patient \
--sensitivity-column "asking price"

A seller is quoted once: the same report has the same terms, and another report is refused. A \
list is checked before its first seller is quoted; an interrupted list continues when it is given \
again. A list may have more sellers than the market expects: the others are counted, and the exit \
code is 3.
"""
ANSWER_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online answer market --accept --id p001

  convexmarket online answer market --decline --csv declined.csv

  convexmarket online answer market --accept --csv offers.csv

A file of offers is taken as quote wrote it: sellers without an offer are skipped. A list is \
checked before anything is recorded. An answer is final; giving it again changes nothing.
"""
STATUS_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online status market --json

  convexmarket online status market --backup backups/clinic.sqlite

  mkdir restored && cp backups/clinic.sqlite restored/market.sqlite

The backup is a checked copy of one instant; others may quote meanwhile. Before you continue with \
a restored market, read "Backups" in docs/ledger.md.
"""
CLOSE_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket online close market

  convexmarket online close market --lapse --out out/clinic --open

The model is trained once, on the rows of the sellers who accepted, and kept in the market. \
Closing again writes the report again, with the same model: a second one would spend the \
guarantees twice.
"""

online_app = typer.Typer(
    help="Run a market whose sellers come one by one and are quoted on arrival.",
    epilog=EXAMPLES,
    rich_markup_mode="rich",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the market.")]
SellerId = Annotated[str | None, typer.Option("--id", help="Id of one seller.")]


@online_app.command("open", epilog=OPEN_EXAMPLES)
def open_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the market.")],
    file: Annotated[Path, typer.Argument(help='Problem file of kind "online-market".')],
    settings: Settings = None,
) -> None:
    """Check a problem file and the files that it names, and open its market."""
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
            out.print(_terms_table(market))
    if isinstance(problem.data, OwnSellers) and not problem.file(problem.data.file).exists():
        say(f"{problem.data.file} is not there yet; the market needs it to close")
    say(f"Opened {folder}")
    err.print(REPORTS_TELL, highlight=False, soft_wrap=True)


@online_app.command(epilog=QUOTE_EXAMPLES)
def quote(
    folder: Folder,
    seller: SellerId = None,
    sensitivity: Annotated[
        float | None, typer.Option(help="Reported sensitivity, per unit of epsilon.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--csv", help="CSV file with an id and a sensitivity per row.")
    ] = None,
    offers_file: Annotated[
        Path | None, typer.Option("--out", help="CSV file for the offers of a list.")
    ] = None,
    id_column: IdColumn = None,
    sensitivity_column: SensitivityColumn = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Quote a seller or a list: the privacy that is bought, and its payment."""
    from convexmarket.online.market import OnlineMarket

    with errors_in_one_line():
        if file is not None:
            excludes("--csv", id=seller, sensitivity=sensitivity, json=as_json)
            _quote_list(folder, file, offers_file, id_column, sensitivity_column, force)
            return
        needs("--csv", None, out=offers_file, id_column=id_column, force=force)
        needs("--csv", None, sensitivity_column=sensitivity_column)
        if seller is None or sensitivity is None:
            raise ParameterError("give --id and --sensitivity of a seller, or --csv with a list")
        with OnlineMarket(folder) as market:
            offer = market.quote(seller, sensitivity)
    if as_json:
        print_json(asdict(offer))
    else:
        say(_sentence(offer))


def _quote_list(
    folder: Path,
    file: Path,
    offers_file: Path | None,
    id_column: str | None,
    sensitivity_column: str | None,
    force: bool,
) -> None:
    from convexmarket.data.csv_cells import write_csv
    from convexmarket.io import check_place, write_together
    from convexmarket.online.lists import quote_list
    from convexmarket.online.market import OnlineMarket

    if offers_file is not None:
        if offers_file.exists() and file.exists() and offers_file.samefile(file):
            raise ParameterError(f"--out {offers_file} is the list of arrivals; name another file")
        check_place(offers_file, force=force)
    with OnlineMarket(folder) as market, progress_bars() as advance:
        quoted = quote_list(market, file, id_column, sensitivity_column, advance)
        expected = market.policy.expected_sellers
    out.print(_list_table(quoted))
    if offers_file is not None:
        write_together(
            {offers_file: lambda file: write_csv(quoted.offers, file)}, private=True, force=force
        )
        say(f"Wrote {offers_file}")
    if quoted.turned_away:
        err.print(
            f"{quoted.turned_away:,} sellers were turned away: the market stops after the "
            f"{expected:,} sellers that it expected",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(TURNED_AWAY)


@online_app.command(epilog=ANSWER_EXAMPLES)
def answer(
    folder: Folder,
    accept: Annotated[
        bool | None, typer.Option("--accept/--decline", help="The answer.", show_default=False)
    ] = None,
    seller: SellerId = None,
    file: Annotated[Path | None, typer.Option("--csv", help="CSV file with an id per row.")] = None,
    id_column: IdColumn = None,
) -> None:
    """Record the answer of a seller, or one answer of all sellers of a list."""
    from convexmarket.online.lists import answer_list
    from convexmarket.online.market import OnlineMarket

    with errors_in_one_line():
        if accept is None:
            raise ParameterError("give the answer, --accept or --decline")
        given: Answer = "accepted" if accept else "declined"
        if file is not None:
            excludes("--csv", id=seller)
            with OnlineMarket(folder) as market, progress_bars() as advance:
                number = answer_list(market, file, given, id_column, advance)
            say(f"{number:,} sellers: {given}")
            return
        needs("--csv", None, id_column=id_column)
        if seller is None:
            raise ParameterError("give --id of a seller, or --csv with a list of ids")
        with OnlineMarket(folder) as market:
            offer = market.accept(seller) if accept else market.decline(seller)
    say(_sentence(offer))


@online_app.command(epilog=STATUS_EXAMPLES)
def status(
    folder: Folder,
    as_json: AsJson = False,
    backup: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Copy the market's database, while it is in use."),
    ] = None,
    force: Force = False,
) -> None:
    """Print the sellers, privacy sold, payments and plans of a market."""
    from convexmarket.io import check_place
    from convexmarket.online.market import OnlineMarket

    with errors_in_one_line():
        needs("--backup", backup, force=force)
        if backup is not None:
            check_place(backup, "--backup", force=force)
        with OnlineMarket(folder) as market:
            if backup is not None:
                market.backup(backup, force=force)
            state = market_state(market)
    if as_json:
        print_json(state)
        return
    out.print(*_status_tables(state), sep="\n")
    if backup is not None:
        say(f"Wrote {backup}")


@online_app.command(epilog=CLOSE_EXAMPLES)
def close(
    folder: Folder,
    lapse: Annotated[
        bool, typer.Option("--lapse", help="Count offers without an answer as declined.")
    ] = False,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="A seller who accepted but gave no row. Repeatable."),
    ] = None,
    without_model: Annotated[
        bool, typer.Option("--without-model", help="Close for good and train nothing.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report.", show_default="DIR/report")
    ] = None,
    regularization: Annotated[
        float | None,
        typer.Option(help="Lambda of the learner.", show_default="as in the problem file"),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False,
) -> None:
    """Train on the rows that were sold, close the market for good, and write its report."""
    from convexmarket.io import check_place
    from convexmarket.lab import report_of
    from convexmarket.lab.kinds.online_market.market import close_market
    from convexmarket.online.market import OnlineMarket
    from convexmarket.online.release import close_without_model
    from convexmarket.report.document import check_folder

    with errors_in_one_line():
        if without_model:
            trained = {"leave_out": leave_out, "out": report, "regularization": regularization}
            excludes("--without-model", **trained)
            with OnlineMarket(folder) as market:
                close_without_model(market, lapse=lapse)
            say("The market is closed. No model was trained; accepted payments are owed.")
            return
        target = folder / "report" if report is None else report
        check_folder(target)  # before the market closes for good
        check_place(target, folder=True)
        with OnlineMarket(folder) as market, progress_bars() as advance:
            closed = close_market(
                market,
                lapse=lapse,
                leave_out=leave_out or (),
                regularization=regularization,
                progress=advance,
            )
        written = report_of(closed)
        page = written.write(target)
    print_finding(written)
    say("The model is model.json next to the report:")
    say(str(page))
    if show:
        webbrowser.open(page.resolve().as_uri())


def _terms_table(market: OnlineMarket) -> Table:
    """Return the terms of a new market and its expected results."""
    from convexmarket.online.outcome import planned
    from convexmarket.report import format_number

    policy, start = market.policy, market.policy.start
    expected, plan = planned(start), start.plan
    rows = [
        ("sellers expected", f"{start.expected_sellers:,}"),
        ("nothing is bought from a virtual cost of", format_number(plan.cutoff)),
        ("the largest sensitivity bought from is", format_number(start.highest_sensitivity)),
        ("largest guarantee", format_number(expected["largest_epsilon"])),
        ("paid for it", format_number(start.quote(start.support[0]).payment)),
        ("if all come and accept, and the prior is right:", ""),
        ("  sellers bought from, about", format_number(round(expected["bought"]))),
        ("  total privacy eta", format_number(expected["eta"], 4)),
        ("  payments, about", format_number(expected["payments"], 4)),
        ("  buyer's loss", format_number(expected["loss"], 4)),
        ("  largest weight", format_number(expected["largest_weight"])),
        ("new plans on the way", f"{len(policy.stages):,}"),
    ]
    if policy.opening.plan.eta == 0:
        rows.append(("nothing is bought before seller", f"{policy.stages[0] + 1:,}"))
    return pairs_table(rows, "Terms")


def _sentence(offer: Offer) -> str:
    """Describe an offer as one would to the seller."""
    from convexmarket.report import format_number

    who = f"Seller {offer.id}, number {offer.number:,}, at a sensitivity of {offer.sensitivity:g}"
    if offer.status == "nothing bought":
        return f"{who}: nothing is bought, nothing is paid, and the row is not used."
    factor = format_number(math.exp(offer.epsilon)) if offer.epsilon < 700 else "∞"
    answered = "" if offer.status == "offered" else f" The seller has {offer.status}."
    return (
        f"{who}: payment {offer.payment:.6g} for a guarantee of epsilon = {offer.epsilon:.6g}. "
        "With any other row in its place, no released model would be more than exp(epsilon) = "
        f"{factor} times as likely or as unlikely.{answered}"
    )


def _list_table(quoted: QuotedList) -> Table:
    """Return the counts and totals of a quoted list."""
    from convexmarket.report import format_number

    offers = quoted.offers
    rows = [
        ("quoted", f"{len(offers):,}"),
        ("of them before, at the same terms", f"{quoted.repeated:,}"),
        ("offered something", f"{int((offers['epsilon'] > 0).sum()):,}"),
        ("privacy offered to them", format_number(float(offers["epsilon"].sum()), 4)),
        ("payments offered to them", format_number(float(offers["payment"].sum()), 4)),
        ("turned away", f"{quoted.turned_away:,}"),
    ]
    return pairs_table(rows, "Offers")


def market_state(market: OnlineMarket) -> dict[str, Any]:
    """Collect the counts, totals and plans of a market."""
    from convexmarket.online.outcome import planned

    counts, start = market.counts(), market.policy.start
    totals = market.offers().groupby("status")[["epsilon", "payment"]].sum()
    totals = totals.reindex(["accepted", "offered"], fill_value=0.0)
    state = "open"
    if market.is_closed:
        state = "closed" if market.released is not None else "closing: close it again"
    elif counts["quoted"] == counts["expected"]:
        state = "full: answers are taken, no more sellers"
    return {
        "market": str(market.folder),
        "state": state,
        "sellers": counts,
        "eta": {
            "sold": totals["epsilon"]["accepted"],
            "offered": totals["epsilon"]["offered"],
            "planned": start.plan.eta,
        },
        "payments": {
            "promised": totals["payment"]["accepted"],
            "offered": totals["payment"]["offered"],
            "planned": planned(start)["payments"],
        },
        "plans": [
            {
                "plan": made.number,
                "after": made.after,
                "bought up to": made.policy.highest_sensitivity,
                "expected eta": made.policy.plan.eta,
                "expected loss": made.policy.plan.objective,
            }
            for made in market.plans()
        ],
    }


def _status_tables(state: Mapping[str, Any]) -> list[Table | str]:
    """Return the state of a market as a sentence and tables."""
    from convexmarket.report import format_number

    sellers, plans = state["sellers"], state["plans"]
    share = sellers["quoted"] / sellers["expected"]
    rows = [(name, f"{sellers[name]:,}") for name in ("accepted", "declined")]
    rows.append(("unanswered", f"{sellers['offered']:,}"))
    rows.append(("nothing bought", f"{sellers['nothing bought']:,}"))
    for title, sold, planned in (
        ("privacy sold, eta", state["eta"]["sold"], "planned in all"),
        ("payments promised", state["payments"]["promised"], "planned in all, about"),
    ):
        part = state["eta" if "eta" in title else "payments"]
        rows += [
            (title, format_number(sold, 4)),
            ("  and in unanswered offers", format_number(part["offered"], 4)),
            (f"  {planned}", format_number(part["planned"], 4)),
        ]
    shown: list[Table | str] = [
        f"{state['market']}: the market is {state['state']}; quoted {sellers['quoted']:,} of "
        f"{sellers['expected']:,} expected ({share:.1%}).",
        pairs_table(rows),
        rows_table("Plans", plans[-MOST_PLANS:], list(plans[0])),
    ]
    if len(plans) > MOST_PLANS:
        shown.append(f"The latest {MOST_PLANS} of {len(plans)} plans.")
    if math.isnan(plans[-1]["bought up to"]):
        shown.append("The latest plan buys nothing more: enough was sold.")
    return shown
