"""The commands ``convexmarket price``, ``init``, ``buy`` and ``ledger``."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from convexmarket.cli import consoles as ui
from convexmarket.errors import DataError, ParameterError

if TYPE_CHECKING:
    from convexmarket.ledger import Ledger

Budget = Annotated[float | None, typer.Option(help="Average total payments, instead of --gamma.")]
Gamma = Annotated[float | None, typer.Option(help="Weight of the payments.")]
GroupColumn = Annotated[ui.Text, typer.Option(help="Column of the sellers' groups.")]
_EMPTY = typer.Option(metavar="TEXT", help='Text of an empty cell, such as "k.A.". Repeatable.')
NaValues = Annotated[list[str] | None, _EMPTY]
_SHOW = typer.Option("--show-cells", help="Show the private text of the first wrong report.")
ShowCells = Annotated[bool, _SHOW]
_SHARE = typer.Option(metavar="GROUP:SHARE", help="Smallest weight of a group. Repeatable.")
AtLeast = Annotated[list[str] | None, _SHARE]
_DASK = typer.Option(help="Dask workers for Parquet (local or an address). --out is a folder.")
_TRUST = typer.Option("--trust-scheduler", help="Use a scheduler without TLS; others can run code.")
_MARKET = Path("market.toml")
Label = Literal["class", "number"]
#: Messages for roles for which no column with a common name was found.
_WITHOUT = {
    "id": "not recognised; sellers are identified by line numbers",
    "report": "not recognised; reports are simulated, and nothing can be bought",
    "label": "not recognised; declare it in the file",
}


def price(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file of ids and reports.")],
    prior: Annotated[str, typer.Option(help="Distribution, such as uniform:0.02,0.10.")],
    target: Annotated[Path, typer.Option("--out", help="CSV or Parquet file for the offers.")],
    mu: Annotated[float | None, typer.Option(help="Weight of the spread. Required.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Weight of the noise. Required.")] = None,
    gamma: Gamma = None,
    budget: Budget = None,
    cap: Annotated[float | None, typer.Option(help="Largest weight / average weight.")] = None,
    id_column: ui.IdColumn = None,
    sensitivity_column: ui.SensitivityColumn = None,
    group_column: GroupColumn = None,
    at_least: AtLeast = None,
    na_values: NaValues = None,
    show_cells: ShowCells = False,
    dask: Annotated[ui.Text, _DASK] = None,
    trust_scheduler: Annotated[bool, _TRUST] = False,
    force: ui.Force = False,
) -> None:
    """Compute an offer to every seller of a list.

    The certificate is stored next to the offers as offers.certificate.json. --mu and --sigma are
    constants of a learner's risk, such as 3.15 and 45.3 for a logistic model with ten features
    (docs/howto/choose.md). --budget bounds the average payments over the prior.
    """
    from convexmarket.checks import check_nonnegative, check_positive
    from convexmarket.deal import certificate_of
    from convexmarket.deal import price as offer
    from convexmarket.io import check_place
    from convexmarket.priors import parse_prior
    from convexmarket.privacy.guarantee import WEAK, odds_in_words
    from convexmarket.terms import Cap, Noise, Spread

    with ui.errors_in_one_line(), ui.err.status("") as status, ExitStack() as stack:
        if (gamma is None) == (budget is None):
            raise ParameterError("give one of --gamma and --budget; a budget determines gamma")
        if mu is None or sigma is None:
            risk = "cm.PrivateLogisticRegression().risk(n_features=10) is 3.15 and 45.3"
            raise ParameterError(
                f"give --mu and --sigma: the weights of spread and noise. {risk}, see "
                "docs/howto/choose.md"
            )
        table: Any = file
        if dask is not None:
            from convexmarket import partitions

            check_place(target, folder=True)
            if target.exists():
                raise ParameterError(f"--out {target} exists; name a new folder for the offers")
            stack.enter_context(partitions.workers(dask, trust_scheduler=trust_scheduler))
            table = partitions.table(file)
        else:
            ui.check_other_place(target, file, "the list of reports", force=force)
            check_place(certificate_of(target), force=force)
        weights = check_nonnegative("mu", mu), check_positive("sigma", sigma)
        deal = offer(
            table,
            prior=parse_prior(prior),
            objective=weights[0] * Spread() + weights[1] * Noise(),
            constraints=[] if cap is None else [Cap(cap)],
            gamma=gamma,
            budget=budget,
            id=id_column,
            ask=sensitivity_column,
            group=group_column,
            at_least=shares_of(at_least, group_column),
            na_values=na_values or (),
            show_cells=show_cells,
            progress=ui.stages(status),
        )
        status.update("auditing ...")
        audit = deal.audit()
        written, totals = deal.write(target, audit=audit, force=force), deal.totals
    ui.say("\n".join(deal.statements()))
    pairs = {} if budget is None else {"budget, met on average over the prior": budget}
    pairs |= {
        "expected payments": totals["expected_payments"],
        "total privacy eta": totals["epsilon"],
        "objective": deal.allocation.objective,
        "relative gap": deal.allocation.gap,
        "sellers audited": len(audit.to_frame()),
        "largest gain of a misreport": audit.max_gain,
        "smallest surplus": audit.min_surplus,
    }
    ui.print_pairs(pairs)
    if (largest := totals["largest_epsilon"]) > WEAK:
        odds = f"a reader who knows all other rows {odds_in_words(largest, 0.0)}"
        ui.say(f"An epsilon of {largest:.4g} is a weak promise: {odds}. Increase gamma.")
    ui.say("\n".join(f"Wrote {path}" for path in written))
    ui.warn_of_reports()


def shares_of(at_least: list[str] | None, group_column: str | None) -> dict[str, float]:
    """Parse the shares of groups in ``--at-least``, which requires ``--group-column``."""
    given = [text.rpartition(":")[::2] for text in at_least or ()]
    try:
        shares = {group: float(share) for group, share in given if group}
    except ValueError:
        shares = {}
    if len(shares) < len(given):
        words = "must be GROUP:SHARE, such as north:0.3, once for each group"
        raise ParameterError(f"--at-least {words}, got {', '.join(at_least or ())}")
    ui.needs("--at-least", at_least, group_column=group_column)
    ui.needs("--group-column", group_column, at_least=at_least)
    return shares


def init(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file with one row per seller.")],
    target: Annotated[Path, typer.Option("--out", help="Problem file to write.")] = _MARKET,
    learns: Annotated[Label | None, typer.Option(help="Type of the labels.")] = None,
    force: ui.Force = False,
) -> None:
    """Write a draft of a problem file for your table.

    The columns of id, report and label are recognised by name. Ranges, categories, classes, the
    prior and the public rows are marked "?" until you declare them.
    """
    from convexmarket.io import check_place, write_together
    from convexmarket.studies.files.drafts import draft_problem
    from convexmarket.studies.files.loading import UNDECLARED

    with ui.errors_in_one_line():
        check_place(target, force=force)
        draft = draft_problem(file, target.absolute().parent, learns)
        write_together({target: draft.text.encode()}, force=force)
    for role, without in _WITHOUT.items():
        ui.say(f"{role}: {draft.roles.get(role, without)}")
    ui.say(f'Wrote {target}\nReplace every "{UNDECLARED}", then run: convexmarket run {target}')


def buy(
    file: Annotated[Path, typer.Argument(help="Problem file with your data.")],
    target: Annotated[Path, typer.Option("--out", help="Folder for the purchase.")],
    budget: Budget = None,
    gamma: Gamma = None,
    settings: ui.Settings = None,
    group_column: GroupColumn = None,
    at_least: AtLeast = None,
    na_values: NaValues = None,
    show_cells: ShowCells = False,
    books: Annotated[ui.File, typer.Option("--ledger", help="Ledger for the sale.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Record the same table again.")] = False,
    force: ui.Force = False,
) -> None:
    """Buy from the sellers of a table, and write offers, a model and a certificate.

    With --ledger, a table is recorded once, because a second model would spend the epsilon twice.
    """
    from convexmarket.data.lists import digest
    from convexmarket.io import check_place
    from convexmarket.ledger import Ledger
    from convexmarket.studies.files import load_file

    with ui.errors_in_one_line(), ui.err.status("buying ...") as status:
        ui.needs("--ledger", books, again=again)
        for name in ("deal.md", "offers.csv", "certificate.json", "model.json"):
            check_place(target / name, force=force)
        problem: Any = load_file(file, settings or [])
        with nullcontext() if books is None else Ledger(books) as ledger:
            options: dict[str, Any] = {"gamma": gamma, "budget": budget, "group": group_column}
            options |= {"at_least": shares_of(at_least, group_column), "show_cells": show_cells}
            options |= {"na_values": na_values or (), "progress": ui.stages(status)}
            deal = problem.buy(**options)
            status.update("writing ...")
            table, code = problem.data.file, digest(problem.place(problem.data.file))
            deal = replace(deal, source={"file": str(table), "sha256": code})
            source = f"sha256:{code}"
            recorded = None if ledger is None else deal.record(ledger, source, again=again)
            deal.write(target, force=force)
    ui.say("\n".join(deal.statements()))
    if recorded is not None:
        ui.say(f"Recorded {recorded:,} sales in {books}, and charged the model to the ledger")
    ui.say(f"Wrote {target / 'deal.md'}")


_TOTALS = ("sold", "spent", "left", "paid")


def ledger_command(
    path: Annotated[Path, typer.Argument(help="A ledger, or the folder of an online market.")],
    create: Annotated[bool, typer.Option("--create", help="Create an empty ledger.")] = False,
    record: Annotated[ui.File, typer.Option(help="List of sales to record.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Record the same list again.")] = False,
    export: Annotated[ui.File, typer.Option(help="Write the balance, as .csv or .json.")] = None,
    backup: Annotated[ui.File, typer.Option(help="Copy the ledger to this file.")] = None,
    as_json: ui.AsJson = False,
    force: ui.Force = False,
) -> None:
    """Show, record, export or copy sold guarantees and the releases that use them.

    A list to record has the columns id, epsilon, and payment or price, and optionally status (all
    accepted). Its sales are recorded together or not at all. docs/ledger.md explains backups.
    """
    from convexmarket.data.lists import read_sales
    from convexmarket.io import check_place
    from convexmarket.ledger import Ledger
    from convexmarket.ledger.seals import source_of

    with ui.errors_in_one_line():
        actions = {"create": create, "record": record, "export": export, "backup": backup}
        for name in actions:
            if actions[name]:
                ui.excludes(f"--{name}", **actions | {name: None}, json=as_json)
        ui.needs("--record", record, again=again)
        ui.needs("--export or --backup", export or backup, force=force)
        if export is not None:
            ui.check_ending(export, "--export")
            ui.check_other_place(export, path, "the ledger itself", "--export", force=force)
        if backup is not None:
            check_place(backup, "--backup", force=force)
        if create:
            Ledger.create(path).disconnect()
            ui.say(f"Created {path}")
            return
        with Ledger(path) as ledger:
            if record is not None:
                if ledger.of_market:
                    raise DataError(
                        f"{ledger.path} belongs to an online market, which records a sale when an "
                        "offer is accepted; record lists in another ledger"
                    )
                table = read_sales(record)
                sold = table["id"].tolist(), table["epsilon"].tolist(), table["price"].tolist()
                sales = ledger.sell(*sold, source=source_of(*sold), again=again)
                ui.say(f"Recorded {sales:,} sales from a list of {len(table):,} sellers")
            elif export is not None:
                ui.write_table(ledger.balance(), export, force=force)
            elif backup is not None:
                ledger.backup(backup, force=force)
                ui.say(f"Wrote {backup}")
            else:
                _show(ledger, as_json)


def _show(ledger: Ledger, as_json: bool) -> None:
    """Print the totals of a ledger, its releases, and the smallest remaining guarantees."""
    balance, releases = ledger.balance(), ledger.releases()
    least = balance.sort_values("left", kind="stable").head(10)
    totals: dict[str, Any] = {"sellers": len(balance), **balance[list(_TOTALS)].sum()}
    totals |= {"composition": ledger.composition, "delta": ledger.delta}
    if as_json:
        listed = {"releases": releases.to_dict("records"), "least_left": least.to_dict("records")}
        ui.print_json(totals | listed)
        return
    ui.print_table("Ledger", [totals], list(totals))
    names = ("name", "mechanism", "sellers", "largest_epsilon", "delta", "time")
    ui.print_table("Releases", releases, names)
    ui.print_table("Sellers with the least epsilon left", least, ("id", *_TOTALS))
