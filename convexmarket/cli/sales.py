"""``convexmarket price``, ``init``, ``buy`` and ``ledger``: offers, purchases, and their books."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli.consoles import (
    AsJson,
    File,
    Force,
    IdColumn,
    SensitivityColumn,
    Settings,
    Text,
    check_ending,
    check_other_place,
    err,
    errors_in_one_line,
    excludes,
    needs,
    print_json,
    print_pairs,
    print_table,
    say,
    stages,
    warn_of_reports,
    write_table,
)
from convexmarket.errors import DataError, ParameterError

if TYPE_CHECKING:
    from convexmarket.ledger import Ledger
    from convexmarket.terms import Constraint

Budget = Annotated[float | None, typer.Option(help="Average payments, in place of --gamma.")]
Gamma = Annotated[float | None, typer.Option(help="Weight of the payments.")]
GroupColumn = Annotated[Text, typer.Option(help="Column of the sellers' groups.")]
_EMPTY = typer.Option(metavar="TEXT", help='Text of an empty cell, such as "k.A.". Repeatable.')
NaValues = Annotated[list[str] | None, _EMPTY]
_SHOW = typer.Option("--show-cells", help="Show the text of the first wrong report: private.")
ShowCells = Annotated[bool, _SHOW]
_SHARE = typer.Option(metavar="GROUP:SHARE", help="Least share of the weight. Repeatable.")
AtLeast = Annotated[list[str] | None, _SHARE]
_RANGE = typer.Option(help="Least and most privacy to buy in total.", metavar="LOW HIGH")
_DASK = typer.Option(help="Parquet in partitions, --out a folder: local, or a Dask scheduler.")
_TRUST = typer.Option("--trust-scheduler", help="Scheduler without TLS: others can run code.")
_MARKET = Path("market.toml")
#: Consequences if no column has a common name of a role.
_WITHOUT = {
    "id": "not recognised; sellers are named by their lines",
    "report": "not recognised; reports would be simulated, and nothing could be bought",
    "label": "not recognised; declare it in the file",
}


#: Description of the label, by the kind of a draft.
Learns = StrEnum("Learns", ["class", "number"])


def price(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file, an id and a report per row.")],
    prior: Annotated[str, typer.Option(help="Distribution, such as uniform:0.02,0.10.")],
    target: Annotated[Path, typer.Option("--out", help="CSV or Parquet file for the offers.")],
    mu: Annotated[float | None, typer.Option(help="Weight of the spread. Required.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Weight of the noise. Required.")] = None,
    gamma: Gamma = None,
    budget: Budget = None,
    cap: Annotated[float | None, typer.Option(help="Largest weight over the average.")] = None,
    eta_range: Annotated[tuple[float, float] | None, _RANGE] = None,
    id_column: IdColumn = None,
    sensitivity_column: SensitivityColumn = None,
    group_column: GroupColumn = None,
    at_least: AtLeast = None,
    na_values: NaValues = None,
    show_cells: ShowCells = False,
    dask: Annotated[Text, _DASK] = None,
    trust_scheduler: Annotated[bool, _TRUST] = False,
    force: Force = False,
) -> None:
    """Make an offer to every seller of a list.

    The certificate comes next to the offers, as offers.certificate.json. A learner's risk
    gives --mu and --sigma: 3.15 and 45.3 for a logistic regression with ten features
    (docs/howto/choose.md). --budget bounds the average payments over the prior.
    """
    from convexmarket.checks import check_nonnegative
    from convexmarket.deal import certificate_of
    from convexmarket.deal import price as offer
    from convexmarket.io import check_place
    from convexmarket.priors import parse_prior
    from convexmarket.privacy.guarantee import WEAK, odds_in_words
    from convexmarket.terms import Cap, EtaRange, Noise, Spread

    with errors_in_one_line(), err.status("") as status, ExitStack() as stack:
        if (gamma is None) == (budget is None):
            raise ParameterError("give one of --gamma and --budget; the budget decides gamma")
        if mu is None or sigma is None:
            raise ParameterError(
                "give --mu and --sigma: the weights of spread and noise. "
                "cm.PrivateLogisticRegression().risk(n_features=10) is 3.15 and 45.3, see "
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
            check_other_place(target, file, "the list of reports", force=force)
            check_place(certificate_of(target), force=force)
        objective = check_nonnegative("mu", mu) * Spread()
        objective += check_nonnegative("sigma", sigma) * Noise()
        limits: list[Constraint] = [] if cap is None else [Cap(cap)]
        if eta_range is not None:
            limits.append(EtaRange(*eta_range))
        deal = offer(
            table,
            prior=parse_prior(prior),
            objective=objective,
            constraints=limits,
            gamma=gamma,
            budget=budget,
            id=id_column,
            ask=sensitivity_column,
            group=group_column,
            at_least=shares_of(at_least),
            na_values=na_values or (),
            show_cells=show_cells,
            progress=stages(status),
        )
        status.update("auditing ...")
        audit = deal.audit()
        status.update("writing ...")
        written, totals = deal.write(target, audit=audit, force=force), deal.totals
    say("\n".join(deal.statements()))
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
    print_pairs(pairs)
    if (largest := totals["largest_epsilon"]) > WEAK:
        say(
            f"An epsilon of {largest:.4g} is a weak promise: a reader with all other rows"
            f" {odds_in_words(largest, 0.0)}. A larger gamma sells less."
        )
    for path in written:
        say(f"Wrote {path}")
    warn_of_reports()


def shares_of(at_least: list[str] | None) -> dict[str, float]:
    """Parse the shares of groups in ``--at-least``."""
    shares: dict[str, float] = {}
    for text in at_least or ():
        group, _, share = text.rpartition(":")
        try:
            number = float(share)
        except ValueError:
            group = ""
        if not group or group in shares:
            words = "must be GROUP:SHARE, such as north:0.3, once for each group"
            raise ParameterError(f"--at-least {words}, got {text!r}")
        shares[group] = number
    return shares


def init(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file with one row per seller.")],
    target: Annotated[Path, typer.Option("--out", help="Problem file to write.")] = _MARKET,
    learns: Annotated[Learns | None, typer.Option(help="What is predicted.")] = None,
    force: Force = False,
) -> None:
    """Write a draft of a problem file for your table.

    Id, report and label are recognised by the names of the columns. Ranges, categories, classes,
    the prior and the public rows are marked "?" until you declare them.
    """
    from convexmarket.io import check_place, write_together
    from convexmarket.studies.files.drafts import draft_problem
    from convexmarket.studies.files.loading import UNDECLARED

    with errors_in_one_line():
        check_place(target, force=force)
        kind: Any = None if learns is None else learns.value
        draft = draft_problem(file, target.absolute().parent, kind)
        write_together({target: draft.text.encode()}, force=force)
    for role, without in _WITHOUT.items():
        say(f"{role}: {draft.roles.get(role, without)}")
    say(f"Wrote {target}")
    say(f'Declare what it marks "{UNDECLARED}", then: convexmarket run {target}')


def buy(
    file: Annotated[Path, typer.Argument(help="Problem file with your data.")],
    target: Annotated[Path, typer.Option("--out", help="Folder for what is bought.")],
    budget: Budget = None,
    gamma: Gamma = None,
    settings: Settings = None,
    group_column: GroupColumn = None,
    at_least: AtLeast = None,
    na_values: NaValues = None,
    show_cells: ShowCells = False,
    books: Annotated[File, typer.Option("--ledger", help="Ledger that records the sale.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Record a table once more.")] = False,
    force: Force = False,
) -> None:
    """Buy from the sellers of a table: offers, a model and a certificate, in a folder.

    The noise is drawn anew each time: a second model spends the guarantees twice, so the sale is
    recorded once for a table.
    """
    from convexmarket.data.lists import digest
    from convexmarket.io import check_place
    from convexmarket.ledger import Ledger
    from convexmarket.studies.files import load_file

    with errors_in_one_line(), err.status("buying ...") as status:
        needs("--ledger", books, again=again)
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
                progress=stages(status),
            )
            status.update("writing ...")
            recorded = None
            if ledger is not None:
                recorded = deal.record(ledger, None if again else f"sha256:{digest(people.path)}")
            deal.write(target, force=force)
    say("\n".join(deal.statements()))
    if recorded is not None:
        say(f"Recorded {recorded:,} sales in {books}, and charged the model to them")
    say(f"Wrote {target / 'deal.md'}")


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
