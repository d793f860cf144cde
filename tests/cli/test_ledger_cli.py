"""Test the command ``convexmarket ledger``: sales, balances, exports and backups."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.privacy import Guarantee
from tests import PROBLEMS
from tests.cli import builders
from tests.cli.builders import plain

OFFERS = "id,sensitivity,epsilon,payment\nAnn,0.1,1.0,0.5\nBob,0.2,0.25,0.125\nCyd,0.9,0.0,0.0\n"
BOOKS = "sold.sqlite"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to a folder with a list of offers and a ledger."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "offers.csv").write_text(OFFERS)
    done(BOOKS, "--create")
    return tmp_path


def invoke(*arguments):
    return builders.invoke("ledger", *arguments)


def done(*arguments):
    """Run a command successfully, and return its output in one line."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return plain(result.stdout)


def tables(path=BOOKS):
    with cm.Ledger(path) as ledger:
        return [ledger.sales(), ledger.releases(), ledger.charges()]


def refused(*arguments):
    """Check that a command fails without changing the ledger, and return its error."""
    before = tables()
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert all(single.equals(other) for single, other in zip(before, tables(), strict=True))
    return plain(result.stderr)


def charge():
    with cm.Ledger(BOOKS) as ledger:
        guarantee = Guarantee(np.array([0.75]), 0.0, "[red]a model[/red]", "tight", ("it holds",))
        ledger.account(["Ann"], release="=1+1").charge(guarantee)


def test_a_list_of_offers_is_recorded_once(here):
    assert done(BOOKS, "--record", "offers.csv") == "Recorded 2 sales from a list of 3 sellers"
    head, *rows = OFFERS.splitlines()
    Path("copy.csv").write_text("\n".join([head, *reversed(rows)]))
    assert "would count twice" in refused(BOOKS, "--record", "copy.csv")
    done(BOOKS, "--record", "copy.csv", "--again")
    with cm.Ledger(BOOKS) as ledger:
        balance = ledger.balance()
    assert balance[["id", "sold", "paid"]].to_numpy().tolist() == [
        ["Ann", 2.0, 1.0],
        ["Bob", 0.5, 0.25],
    ]


def test_prices_are_recorded_under_ids_without_outer_blanks(here):
    Path("list.csv").write_text("Nr.,ask\n Ann ,0.03\nBob,0.05\n")
    terms = ["--prior", "uniform:0.02,0.10", "--mu", "1", "--sigma", "9", "--gamma", "1"]
    assert builders.invoke("price", "list.csv", *terms, "--out", "prices.csv").exit_code == 0
    text = Path("prices.csv").read_text()
    Path("prices.csv").write_text(text.replace('"Bob"', '" Bob "'))
    done(BOOKS, "--record", "prices.csv")
    with cm.Ledger(BOOKS) as ledger:
        assert ledger.balance()["id"].tolist() == ["Ann", "Bob"]


def test_a_list_with_a_bad_row_records_nothing(here):
    for text, words in [
        ("id,epsilon,payment\nAnn,1,1\nBob,-1,1\n", r"line 3: the cell in column 'epsilon'"),
        ("id,epsilon,payment\nAnn,1,inf\n", r"line 2: the cell in column 'payment'"),
        ("id,epsilon,price\nAnn,much,1\n", r"line 2: the cell in column 'epsilon'"),
        ("id,epsilon,price\nAnn,1,1\nAnn,1,1\n", r"line 3: 'Ann' is the id of an earlier line"),
        ("id,epsilon\nAnn,1\n", r"no column is called 'payment' or 'price'.*Rename"),
        ("id,payment\nAnn,1\n", r"no column is called 'epsilon'.*Rename"),
        ("epsilon,payment\n1,1\n", r"no column is called 'id'.*Rename"),
        ("id,epsilon,payment,status\nA,1,1,accepted\nB,1,1,offered\n", r"line 3: .*'status'"),
        ("id,epsilon,payment\n", r"no seller"),
        ("", r"empty"),
    ]:
        Path("bad.csv").write_text(text)
        assert re.search(words, refused(BOOKS, "--record", "bad.csv")), text


def test_a_ledger_is_shown_as_tables_and_as_json(here):
    empty = done(BOOKS)
    assert "0 0 0 0 0 basic" in empty
    assert "Releases" not in empty
    done(BOOKS, "--record", "offers.csv")
    charge()
    shown = done(BOOKS)
    totals = "2 1.25 0.75 0.5 0.625 basic 0"
    for words in (totals, "[red]a", "Ann 1 0.75 0.25 0.5", "Bob 0.25 0 0.25 0.125"):
        assert words in shown
    state = json.loads(invoke(BOOKS, "--json").stdout)
    assert [state[name] for name in ("sold", "spent", "left", "paid")] == [1.25, 0.75, 0.5, 0.625]
    assert state["releases"][0]["assumptions"] == ["it holds"]
    assert [row["id"] for row in state["least_left"]] == ["Ann", "Bob"]


def test_hostile_names_are_escaped_in_terminals_and_spreadsheets(here):
    ids = ["[bold]Ann[/bold]", "=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(1)"]
    with cm.Ledger(BOOKS) as ledger:
        ledger.sell(ids, 1.0, 1.0)
        guarantee = Guarantee(np.array([0.5]), 0.0, "a\x1b[2J model", "tight", ())
        ledger.account(ids[:1]).charge(guarantee)
    shown = invoke(BOOKS).stdout
    assert ids[0] in shown
    assert "\x1b[2J" not in shown
    done(BOOKS, "--export", "x.csv")
    written = pd.read_csv("x.csv")["id"]
    assert set(written) == {ids[0], *(f"'{id}" for id in ids[1:])}


def test_an_export_contains_the_whole_balance(here):
    done(BOOKS, "--record", "offers.csv")
    charge()
    with cm.Ledger(BOOKS) as ledger:
        table = ledger.balance()
    assert done(BOOKS, "--export", "x.csv") == "Wrote x.csv"
    pd.testing.assert_frame_equal(pd.read_csv("x.csv"), table, check_dtype=False)


def test_invalid_exports_and_backups_are_refused(here):
    Path("x.csv").mkdir()
    assert "x.csv" in refused(BOOKS, "--export", "x.csv")
    Path("alias.csv").symlink_to(BOOKS)
    assert "is the ledger itself" in refused(BOOKS, "--export", "alias.csv", "--force")
    cm.Ledger.create("other.sqlite").disconnect()
    for file in ("offers.csv", BOOKS, "other.sqlite", "x.csv"):
        before = Path(file).read_bytes() if Path(file).is_file() else None
        words = refused(BOOKS, "--backup", file)
        assert "exists; pass --force" in words or "name a file in it" in words
        assert before is None or Path(file).read_bytes() == before
    for options, words in [
        (["--create", "--record", "offers.csv"], "exclude each other"),
        (["--backup", "b.sqlite", "--json"], "--backup and --json exclude each other"),
    ]:
        assert words in refused(BOOKS, *options)


def test_a_ledger_is_created_once(here):
    assert "from an earlier ledger" in refused(BOOKS, "--create")
    assert "there is no ledger in none" in refused("none")
    assert "not an SQLite database" in refused("offers.csv")


def test_the_folder_of_a_market_is_shown_as_a_ledger(here):
    opened = builders.invoke("online", "open", "m", PROBLEMS / "online-clinic" / "market.toml")
    assert opened.exit_code == 0, opened.output
    with cm.OnlineMarket("m") as market:
        market.quote("p1", 2.1)
        epsilon = market.accept("p1").epsilon
    for place in ("m", "m/market.sqlite"):
        state = json.loads(invoke(place, "--json").stdout)
        assert (state["sellers"], state["sold"]) == (1, epsilon)
    refusal = invoke("m", "--record", "offers.csv")
    assert refusal.exit_code == 2
    assert "records a sale when an offer is accepted" in plain(refusal.stderr)


def test_a_backup_is_a_ledger_and_damage_gives_a_one_line_error(here):
    done(BOOKS, "--record", "offers.csv")
    for option in ([], ["--force"]):
        assert done(BOOKS, "--backup", "copies/sold.sqlite", *option) == "Wrote copies/sold.sqlite"
    assert tables("copies/sold.sqlite")[0].equals(tables()[0])
    content = Path(BOOKS).read_bytes()
    Path(BOOKS).write_bytes(content[: len(content) // 2])
    for command in ([], ["--export", "a.csv"], ["--backup", "b.sqlite"]):
        result = invoke(BOOKS, *command)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert "sold.sqlite is damaged" in result.stderr
        assert "restore a backup" in result.stderr
    assert not list(Path().glob("[ab].*"))
