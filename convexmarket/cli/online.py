"""Commands of ``convexmarket online`` for a market whose state is stored in a folder."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli import consoles as ui
from convexmarket.errors import ParameterError, ProblemFileError

if TYPE_CHECKING:
    from convexmarket.online.online_market import Offer, OnlineMarket

EXAMPLES = """
[bold]A market from beginning to end[/bold]

  convexmarket online open market problems/online-clinic/market.toml

  convexmarket online quote market --csv problems/online-clinic/arrivals.csv --out offers.csv

  convexmarket online answer market --accept --csv offers.csv

  convexmarket online status market --backup clinic.sqlite

  convexmarket online close market

The market is the file market.sqlite in the folder. Several processes can use it concurrently. \
If a process is killed, all printed offers remain stored, and the command can be repeated.
"""
online_app = typer.Typer(
    help="Run a market whose sellers arrive one by one and are quoted on arrival.",
    epilog=EXAMPLES,
    rich_markup_mode="rich",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the market.")]
SellerId = Annotated[ui.Text, typer.Option("--id", help="Id of one seller.")]


@online_app.command("open")
def open_(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help='Problem file of kind "online".')],
    settings: ui.Settings = None,
) -> None:
    """Check a problem file and the files that it names, and open a market.

    Paths are relative to the problem file. The rows are read when the market closes.
    """
    from convexmarket.online.outcome import planned
    from convexmarket.studies.files import OnlineFile, load_file
    from convexmarket.studies.files.online_file import OwnSellers, open_market

    with ui.errors_in_one_line():
        problem = load_file(file, settings or [])
        if not isinstance(problem, OnlineFile):
            raise ProblemFileError(f'{file}: kind must be "online", got {problem.kind!r}')
        with open_market(problem, folder) as market:
            start, stages = market.policy.start, market.policy.stages
            pairs = {
                "sellers expected": start.expected_sellers,
                "virtual cost at which purchases end": start.plan.cutoff,
                "sensitivity at which purchases end": start.highest_sensitivity,
                "new plans before the end": len(stages),
                "total privacy eta": start.plan.eta,
                "payments, about": planned(start)["payments"],
            }
            ui.print_pairs(pairs)
            if market.policy.opening.plan.eta == 0:
                ui.say(f"Nothing is bought before seller {stages[0] + 1}.")
    if isinstance(problem.data, OwnSellers) and not problem.place(problem.data.file).exists():
        ui.say(f"{problem.data.file} does not exist yet, but closing the market requires it")
    ui.say(f"Opened {folder}")
    ui.warn_of_reports()


@online_app.command()
def quote(
    folder: Folder,
    seller: SellerId = None,
    sensitivity: Annotated[float | None, typer.Option(help="Reported sensitivity.")] = None,
    file: Annotated[ui.File, typer.Option("--csv", help="List of ids and sensitivities.")] = None,
    target: Annotated[ui.File, typer.Option("--out", help="File for the offers.")] = None,
    id_column: ui.IdColumn = None,
    sensitivity_column: ui.SensitivityColumn = None,
    as_json: ui.AsJson = False,
    force: ui.Force = False,
) -> None:
    """Quote the privacy level and the payment for one seller, or for every seller in a list.

    A list is checked before its first seller is quoted. Repeating the command continues an
    interrupted list. If sellers of the list are turned away, the exit code is 3.
    """
    from convexmarket.online.online_market import OnlineMarket
    from convexmarket.online.quote_lists import quote_list
    from convexmarket.studies.progress import ProgressLines

    with ui.errors_in_one_line():
        columns = {"id_column": id_column, "sensitivity_column": sensitivity_column}
        ui.needs("--csv", file, out=target, force=force, **columns)
        if file is None:
            if seller is None or sensitivity is None:
                raise ParameterError("give --id and --sensitivity of a seller, or --csv")
            with OnlineMarket(folder) as market:
                offer = market.quote(seller, sensitivity)
            ui.print_json(asdict(offer)) if as_json else ui.say(_sentence(offer))
            return
        ui.excludes("--csv", id=seller, sensitivity=sensitivity, json=as_json)
        if target is not None:
            ui.check_other_place(target, file, "the list of arrivals", force=force)
        with OnlineMarket(folder) as market:
            progress, expected = ProgressLines(), market.policy.expected_sellers
            offers, repeated, turned_away = quote_list(market, file, **columns, progress=progress)
        pairs = {
            "quoted": len(offers),
            "quoted before, with the same terms": repeated,
            "sellers with an offer": int((offers["epsilon"] > 0).sum()),
            "total epsilon offered": float(offers["epsilon"].sum()),
            "total payments offered": float(offers["payment"].sum()),
            "turned away": turned_away,
        }
        ui.print_pairs(pairs)
        if target is not None:
            ui.write_table(offers, target, force=force)
    if turned_away:
        ui.say(f"{turned_away:,} sellers were turned away: {expected:,} were expected", to=ui.err)
        raise typer.Exit(ui.PARTLY)


@online_app.command()
def answer(
    folder: Folder,
    accept: Annotated[bool | None, typer.Option("--accept/--decline", help="The answer.")] = None,
    seller: SellerId = None,
    file: Annotated[ui.File, typer.Option("--csv", help="List of ids.")] = None,
    id_column: ui.IdColumn = None,
) -> None:
    """Record the answer of a seller, or the same answer for all sellers of a list.

    The list can be the output of quote; sellers without an offer are skipped. The list is checked
    before an answer is recorded. An answer is final, and repeating it has no effect.
    """
    from convexmarket.online.online_market import OnlineMarket
    from convexmarket.online.quote_lists import answer_list
    from convexmarket.studies.progress import ProgressLines

    with ui.errors_in_one_line():
        if accept is None:
            raise ParameterError("give the answer, --accept or --decline")
        ui.needs("--csv", file, id_column=id_column)
        if (file is None) == (seller is None):
            raise ParameterError("give --id of a seller, or --csv with a list of ids")
        given: Any = "accepted" if accept else "declined"
        with OnlineMarket(folder) as market:
            if file is None:
                ui.say(_sentence(*market.answer([str(seller)], given)))
            else:
                number = answer_list(market, file, given, id_column, ProgressLines())
                ui.say(f"{number:,} sellers: {given}")


@online_app.command()
def status(
    folder: Folder,
    as_json: ui.AsJson = False,
    backup: Annotated[ui.File, typer.Option(help="Copy the database to this file.")] = None,
    force: ui.Force = False,
) -> None:
    """Print the numbers of sellers, the sold privacy, payments and plans, or copy the database."""
    from convexmarket.io import check_place
    from convexmarket.online.online_market import OnlineMarket

    with ui.errors_in_one_line():
        ui.needs("--backup", backup, force=force)
        if backup is not None:
            check_place(backup, "--backup", force=force)
        with OnlineMarket(folder) as market:
            if backup is not None:
                market.backup(backup, force=force)
            state = _state_of(market)
    if as_json:
        ui.print_json(state)
        return
    sellers, plans = state["sellers"], state["plans"]
    ui.say(
        f"{state['market']}: the market is {state['state']}; quoted {sellers['quoted']:,} of "
        f"{sellers['expected']:,} expected ({sellers['quoted'] / sellers['expected']:.1%})."
    )
    answers = {k: v for k, v in sellers.items() if k not in ("quoted", "expected")}
    ui.print_pairs(answers | state["totals"])
    ui.print_table(f"Plans, {len(plans)} in all", plans[-12:], list(plans[0]))
    if backup is not None:
        ui.say(f"Wrote {backup}")


@online_app.command()
def close(
    folder: Folder,
    lapse: Annotated[bool, typer.Option("--lapse", help="Decline unanswered offers.")] = False,
    leave_out: Annotated[list[str] | None, typer.Option(help="Omit this seller.")] = None,
    without_model: Annotated[bool, typer.Option("--without-model", help="Train no model.")] = False,
    target: Annotated[ui.File, typer.Option("--out", help="Folder; DIR/report by default.")] = None,
    regularization: Annotated[float | None, typer.Option(help="Lambda of the model.")] = None,
    show: ui.Open = False,
) -> None:
    """Train a model on the sold rows, close the market, and write a report.

    The model is trained once and stored in the market. Later calls only write the report again.
    """
    from convexmarket.online.online_market import OnlineMarket
    from convexmarket.online.release import close_without_model
    from convexmarket.studies.files.online_file import close_market, problem_of

    with ui.errors_in_one_line():
        if without_model:
            others = {"leave_out": leave_out, "out": target, "regularization": regularization}
            ui.excludes("--without-model", **others)
            with OnlineMarket(folder) as market:
                close_without_model(market, lapse=lapse)
            ui.say("The market is closed without a model; the accepted payments remain due.")
            return
        target = target or folder / "report"
        ui.check_report_folder(target)  # fail before the market is closed permanently
        with OnlineMarket(folder) as market:
            options: Any = {"lapse": lapse, "regularization": regularization}
            closed = close_market(market, leave_out=leave_out or (), **options)
            report = problem_of(market).report(closed)
        page = report.write(target)
    ui.say("The model is stored in model.json in the folder of the report.")
    ui.print_report(report, page, show)


def _sentence(offer: Offer) -> str:
    """Describe an offer in a sentence that is addressed to the seller."""
    from convexmarket.report import format_number

    who = f"Seller {offer.id}, number {offer.number:,}, at a sensitivity of {offer.sensitivity:g}"
    if offer.status == "nothing bought":
        return f"{who}: nothing is bought or paid, and the row is not used."
    factor = format_number(math.exp(offer.epsilon)) if offer.epsilon < 700 else "∞"
    answered = "" if offer.status == "offered" else f" The seller has {offer.status}."
    return (
        f"{who}: payment {offer.payment:.6g} for a guarantee of epsilon = {offer.epsilon:.6g}. "
        "Replacing the seller's row changes the probability of each released model by a factor of "
        f"at most exp(epsilon) = {factor}.{answered}"
    )


def _state_of(market: OnlineMarket) -> dict[str, Any]:
    from convexmarket.online.outcome import planned

    counts, start = market.counts(), market.policy.start
    answers = market.offers().groupby("status")
    eta, paid = (answers[name].sum() for name in ("epsilon", "payment"))
    state = "open"
    if market.is_closed:
        state = "closed" if market.released is not None else "closing: close it again"
    elif counts["quoted"] == counts["expected"]:
        state = "full: only answers are accepted"
    names = ("plan", "after", "bought up to", "expected eta", "expected loss")
    plans = []
    for number, after, terms in market.plans():
        made = number, after, terms.highest_sensitivity, terms.plan.eta, terms.plan.objective
        plans.append(dict(zip(names, made, strict=True)))
    totals = {
        "privacy sold, eta": eta.get("accepted", 0.0),
        "privacy in unanswered offers": eta.get("offered", 0.0),
        "privacy planned in all": start.plan.eta,
        "payments promised": paid.get("accepted", 0.0),
        "payments in unanswered offers": paid.get("offered", 0.0),
        "planned total payments, about": planned(start)["payments"],
    }
    folder = str(market.folder)
    return {"market": folder, "state": state, "sellers": counts, "totals": totals, "plans": plans}
