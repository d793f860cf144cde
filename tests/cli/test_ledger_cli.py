"""The commands of a ledger, as a user meets them."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import convexmarket as cm
from convexmarket import cli
from convexmarket.privacy import Guarantee
from tests import PROBLEMS
from tests.cli import builders
from tests.cli.builders import plain as said

OFFERS = "id,sensitivity,epsilon,payment\nAnn,0.1,1.0,0.5\nBob,0.2,0.25,0.125\nCyd,0.9,0.0,0.0\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to a folder with a list of offers and a ledger."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "offers.csv").write_text(OFFERS)
    assert invoke("sold.sqlite", "--create").exit_code == 0
    return tmp_path


def invoke(*arguments: str):
    return builders.invoke("ledger", *arguments)


def state() -> list[pd.DataFrame]:
    with cm.Ledger("sold.sqlite") as ledger:
        return [ledger.sales(), ledger.releases(), ledger.charges()]


def refused(*arguments: str) -> str:
    """Return the one line that a command ends with when it refuses; the ledger is as before."""
    before = state()
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert all(one.equals(other) for one, other in zip(before, state(), strict=True))
    return said(done.stderr)


def charge(path: str = "sold.sqlite") -> None:
    with cm.Ledger(path) as ledger:
        guarantee = Guarantee(np.array([0.75]), 0.0, "[red]a model[/red]", "tight", ("it holds",))
        ledger.account(["Ann"], release="=1+1").charge(guarantee)


def test_a_list_of_offers_is_recorded_once(here):
    done = invoke("sold.sqlite", "--record", "offers.csv")
    assert said(done.stdout) == "Recorded 2 sales of 3 sellers listed"
    with cm.Ledger("sold.sqlite") as ledger:
        assert ledger.balance()[["id", "sold", "paid"]].to_dict("records") == [
            {"id": "Ann", "sold": 1.0, "paid": 0.5},
            {"id": "Bob", "sold": 0.25, "paid": 0.125},
        ]
    Path("copy.csv").write_text(OFFERS)
    assert "would count twice" in refused("sold.sqlite", "--record", "copy.csv")
    assert invoke("sold.sqlite", "--record", "copy.csv", "--again").exit_code == 0
    with cm.Ledger("sold.sqlite") as ledger:
        assert ledger.balance()["sold"].tolist() == [2.0, 0.5]


def test_what_price_writes_can_be_recorded(here):
    Path("reports.csv").write_text("id,sensitivity\nAnn,0.1\nBob,0.6\nCyd,0.3\n")
    priced = CliRunner().invoke(
        cli.app,
        [
            "price",
            "reports.csv",
            "--prior",
            "uniform:0,1",
            "--mu",
            "1",
            "--sigma",
            "1",
            "--gamma",
            "0.5",
            "--out",
            "o.csv",
        ],
    )
    assert priced.exit_code == 0, priced.output
    assert invoke("sold.sqlite", "--record", "o.csv").exit_code == 0
    offers = pd.read_csv("o.csv").query("epsilon > 0")
    with cm.Ledger("sold.sqlite") as ledger:
        sales = ledger.sales()
    assert sales["id"].tolist() == offers["id"].tolist()
    assert sales["epsilon"].tolist() == offers["epsilon"].tolist()
    assert sales["price"].tolist() == offers["payment"].tolist()


BAD_LISTS = [
    (
        "id,epsilon,payment\nAnn,1,1\nBob,-1,1\n",
        r"line 3: the cell of the column 'epsilon'",
    ),
    (
        "id,epsilon,payment\nAnn,1,inf\n",
        r"line 2: the cell of the column 'payment'",
    ),
    ("id,epsilon,price\nAnn,much,1\n", r"line 2: the cell of the column 'epsilon'"),
    ("id,epsilon,price\nAnn,1,1\nAnn,1,1\n", r"line 3: 'Ann' is the id of an earlier line"),
    ("id,epsilon\nAnn,1\n", r"no column is called 'payment' or 'price'.*--price-column"),
    ("id,payment\nAnn,1\n", r"no column is called 'epsilon'.*--epsilon-column"),
    ("epsilon,payment\n1,1\n", r"no column is called 'id'.*--id-column"),
    ("id,epsilon,payment\n", r"no seller"),
    ("", r"empty"),
]


def test_a_list_with_a_bad_row_records_nothing(here):
    for text, words in BAD_LISTS:
        Path("bad.csv").write_text(text)
        assert re.search(words, refused("sold.sqlite", "--record", "bad.csv"))


def test_columns_may_have_other_names(here):
    Path("o.csv").write_text("who;much;money\nAnn;0,5;1,25\n")
    options = ["--id-column", "who", "--epsilon-column", "much", "--price-column", "money"]
    assert invoke("sold.sqlite", "--record", "o.csv", *options, "--release", "x").exit_code == 0
    (sale,) = state()[0].to_dict("records")
    assert (sale["id"], sale["epsilon"], sale["price"], sale["release"]) == ("Ann", 0.5, 1.25, "x")


def test_show_says_how_a_ledger_stands(here):
    invoke("sold.sqlite", "--record", "offers.csv")
    charge()
    shown = said(invoke("sold.sqlite").stdout)
    for words in (
        "2 1.25 0.75 0.5 0.625 basic 0",
        "[red]a",
        "Ann 1 0.75 0.25 0.5 Bob 0.25 0 0.25 0.125",
    ):
        assert words in shown
    shown = said(invoke("sold.sqlite", "--seller", "Ann").stdout)
    assert "Seller Ann sold spent left paid" in shown
    assert "=1+1 0.75" in shown
    assert "seller 'Dan' has sold nothing" in refused("sold.sqlite", "--seller", "Dan")


def test_show_has_no_headings_over_nothing(here):
    assert invoke("new.sqlite", "--create").exit_code == 0
    shown = said(invoke("new.sqlite").stdout)
    assert "0 0 0 0 0 basic" in shown
    assert "Releases" not in shown
    assert "least left" not in shown


def test_show_is_read_by_programs(here):
    invoke("sold.sqlite", "--record", "offers.csv")
    charge()
    found = json.loads(invoke("sold.sqlite", "--json").stdout)
    assert (found["sold"], found["spent"], found["left"], found["paid"]) == (1.25, 0.75, 0.5, 0.625)
    assert found["releases"][0]["assumptions"] == ["it holds"]
    assert [row["id"] for row in found["least_left"]] == ["Ann", "Bob"]
    found = json.loads(invoke("sold.sqlite", "--seller", "Bob", "--json").stdout)
    assert (found["id"], found["left"], found["charges"]) == ("Bob", 0.25, [])
    assert [sale["release"] for sale in found["sales"]] == [None]


def test_names_do_not_command_the_terminal(here):
    with cm.Ledger("sold.sqlite") as ledger:
        ledger.sell(["[bold]Ann[/bold]"], 1.0, 1.0)
        guarantee = Guarantee(np.array([0.5]), 0.0, "a\x1b[2J model", "tight", ())
        ledger.account(["[bold]Ann[/bold]"]).charge(guarantee)
    shown = invoke("sold.sqlite").stdout
    assert "[bold]Ann[/bold]" in shown
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize("what", ["balance", "sales", "releases", "charges"])
def test_an_export_is_the_whole_table(here, what):
    invoke("sold.sqlite", "--record", "offers.csv")
    charge()
    with cm.Ledger("sold.sqlite") as ledger:
        table = getattr(ledger, what)()
    for name in ("x.csv", "x.json"):
        done = invoke("sold.sqlite", "--what", what, "--export", name)
        assert done.exit_code == 0, done.output
        assert said(done.stdout) == f"Wrote {name}"
    rows = json.loads(Path("x.json").read_text())
    assert [list(row) for row in rows] == [list(table.columns)] * len(table)
    read = pd.read_csv("x.csv")
    assert read.columns.tolist() == table.columns.tolist()
    for column in table.select_dtypes("number"):
        assert read[column].tolist() == table[column].tolist() == [row[column] for row in rows]
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]


def test_no_spreadsheet_runs_what_a_seller_is_called(here):
    ids = ["=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(1)", "Ann"]
    with cm.Ledger("sold.sqlite") as ledger:
        ledger.sell(ids, 1.0, 1.0)
    assert invoke("sold.sqlite", "--export", "x.csv").exit_code == 0
    written = pd.read_csv("x.csv")["id"].tolist()
    assert written == [f"'{id}" for id in ids[:4]] + ["Ann"]
    assert invoke("sold.sqlite", "--export", "x.json").exit_code == 0
    assert [row["id"] for row in json.loads(Path("x.json").read_text())] == ids


def test_exports_that_are_refused(here):
    assert "neither .csv nor .json" in refused("sold.sqlite", "--export", "x.txt")
    Path("x.csv").mkdir()
    assert "x.csv" in refused("sold.sqlite", "--export", "x.csv")
    Path("alias.csv").symlink_to("sold.sqlite")
    export = ["sold.sqlite", "--export", "alias.csv"]
    assert "alias.csv exists; pass --force" in refused(*export)
    assert "is the ledger itself" in refused(*export, "--force")


def test_a_market_s_folder_is_a_ledger(here):
    policy = cm.OnlinePolicy(cm.Uniform(1, 5), 8, mu=1, sigma=10, gamma=0.1)
    with cm.OnlineMarket.create("m", policy) as market:
        market.quote("p1", 1.1)
        epsilon = market.accept("p1").epsilon
    for place in ("m", "m/market.sqlite"):
        found = json.loads(invoke(place, "--json").stdout)
        assert (found["sellers"], found["sold"]) == (1, epsilon)


def test_a_ledger_is_created_as_asked(here):
    done = invoke("a.sqlite", "--create", "--composition", "advanced", "--delta", "1e-6")
    assert said(done.stdout) == "Created a.sqlite"
    with cm.Ledger("a.sqlite") as ledger:
        assert (ledger.composition, ledger.delta) == ("advanced", 1e-6)
    assert "already" in refused("sold.sqlite", "--create")
    assert "delta" in refused("b.sqlite", "--create", "--composition", "advanced")
    assert not Path("b.sqlite").exists()
    assert "there is no ledger in none" in refused("none")
    assert "no SQLite database" in refused("offers.csv")


@pytest.mark.parametrize("option", ["create", "record", "seller", "export", "backup"])
def test_help_teaches_by_examples(option):
    done = invoke("--help")
    assert done.exit_code == 0
    assert f"convexmarket ledger sold.sqlite --{option}" in said(done.stdout)


def test_only_accepted_offers_are_sales(here):
    lines = OFFERS.splitlines()
    states = ["status", "accepted", "offered", "accepted"]
    marked = "\n".join(f"{line},{word}" for line, word in zip(lines, states, strict=True))
    (here / "answers.csv").write_text(marked)
    assert "line 3: the cell of the column 'status'" in refused(
        "sold.sqlite", "--record", "answers.csv"
    )
    (here / "answers.csv").write_text(marked.replace("offered", "accepted"))
    assert invoke("sold.sqlite", "--record", "answers.csv").exit_code == 0


def test_a_market_writes_its_own_sales(here):
    problem = PROBLEMS / "online-clinic" / "market.toml"
    done = CliRunner().invoke(cli.app, ["online", "open", "market", str(problem)])
    assert done.exit_code == 0, done.output
    refusal = invoke("market", "--record", "offers.csv")
    assert refusal.exit_code == 2
    assert "records a sale when an offer is accepted" in said(refusal.stderr)
    with cm.Ledger("market") as ledger:
        assert ledger.of_market
        assert ledger.sales().empty


# ------------------------------------------------------------------ backups


def test_a_backup_can_be_shown_and_replaced(here):
    assert invoke("sold.sqlite", "--record", "offers.csv").exit_code == 0
    for option in ([], ["--force"]):
        done = invoke("sold.sqlite", "--backup", "copies/sold.sqlite", *option)
        assert (done.exit_code, said(done.output)) == (0, "Wrote copies/sold.sqlite")
    with cm.Ledger("copies/sold.sqlite") as ledger:
        assert ledger.sales().equals(state()[0])


@pytest.mark.parametrize("file", ["offers.csv", "sold.sqlite", "other.sqlite", "folder"])
def test_a_backup_over_anything_else_is_refused(here, file):
    cm.Ledger.create("other.sqlite").disconnect()
    Path("folder").mkdir()
    before = Path(file).read_bytes() if file != "folder" else None
    said = refused("sold.sqlite", "--backup", file)
    assert "exists; pass --force" in said or "name a file in it" in said
    assert before is None or Path(file).read_bytes() == before
    assert not list(Path("folder").iterdir())


def test_a_damaged_ledger_is_told_in_a_line(here):
    content = Path("sold.sqlite").read_bytes()
    Path("sold.sqlite").write_bytes(content[: len(content) // 2])
    for command in ([], ["--export", "a.csv"], ["--backup", "b.sqlite"]):
        done = invoke("sold.sqlite", *command)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "sold.sqlite is damaged" in done.stderr
        assert "bring back a backup" in done.stderr
    assert not list(Path().glob("[ab].*"))
