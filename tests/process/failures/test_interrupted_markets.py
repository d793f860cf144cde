"""Test online markets after errors, interrupts and full disks (docs/failures.md)."""

import json
import shutil
import signal

import pandas as pd
import pytest

import convexmarket as cm
from convexmarket import io as writing
from convexmarket.ledger import store
from convexmarket.ledger.store import Store
from convexmarket.report import document, figures
from convexmarket.studies.progress import ProgressLines
from tests.online.builders import TRAINED_MARKET
from tests.process.failures.builders import (
    FORMER_CSV,
    INTERRUPTED,
    at,
    check_one_line,
    contents,
    run,
    save_nothing,
    stop,
)

PROBLEM = TRAINED_MARKET.replace("sellers = 8", "sellers = 4")
ROWS = "id,one,two,label\na,0.5,0.5,yes\nb,-0.5,0.1,no\nc,0.3,-0.2,yes\nd,-0.1,-0.6,no\n"
ARRIVALS = "id,sensitivity\na,1.1\nb,1.5\nc,1.6\nd,4.9\n"
SIGNALS = [signal.SIGINT, signal.SIGKILL]
CODES = {signal.SIGINT: INTERRUPTED, signal.SIGKILL: -signal.SIGKILL}
QUOTE_LIST = ["online", "quote", "m", "--csv", "arrivals.csv", "--out", "offers.csv"]


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    monkeypatch.setattr(figures, "saved", save_nothing)


def done(folder, *arguments):
    code, command = run(["online", *arguments], folder)
    assert code == 0, command.stderr
    return command


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    (folder / "market.toml").write_text(PROBLEM)
    (folder / "rows.csv").write_text(ROWS)
    (folder / "arrivals.csv").write_text(ARRIVALS)
    done(folder, "open", "m", "market.toml")
    return folder


@pytest.fixture
def here(prepared, tmp_path):
    """Return a folder with an open market without quotes."""
    return shutil.copytree(prepared, tmp_path / "here")


@pytest.fixture(scope="module")
def sold(prepared, tmp_path_factory):
    folder = shutil.copytree(prepared, tmp_path_factory.mktemp("sold") / "here")
    done(folder, "quote", "m", "--csv", "arrivals.csv")
    offers = state(folder)
    for owner in offers.index[offers["status"] == "offered"]:
        done(folder, "answer", "m", "--accept", "--id", owner)
    return folder


def state(folder):
    """Return a dictionary of the offers of a market, by the ids of the sellers."""
    with cm.OnlineMarket(folder / "m") as market:
        offers: pd.DataFrame = market.offers()
    return offers.set_index("id")


def hidden(folder):
    return [path for path in contents(folder) if "/." in f"/{path}"]


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_open_leaves_a_complete_market_or_no_market(here, number):
    before = contents(here)
    arguments = ["online", "open", "new", "market.toml"]
    code, command = stop(arguments, here, at(store, "sync"), number)
    assert code == CODES[number]
    if number == signal.SIGINT:
        check_one_line(command.stderr, "stopped")
        assert {path for path in contents(here) if path not in before} <= {"new"}
        assert not hidden(here)
    assert not (here / "new" / "market.sqlite").exists()
    done(here, "open", "new", "market.toml")
    done(here, "status", "new")


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_list_of_quotes_can_be_continued(here, number):
    def moment(notify):
        ProgressLines.__call__ = lambda *_: notify()

    code, command = stop(QUOTE_LIST, here, moment, number)
    assert code == CODES[number]
    if number == signal.SIGINT:
        check_one_line(command.stderr, "stopped")
    remaining = state(here)
    assert remaining.index.tolist() == ["a", "b", "c", "d"][: len(remaining)]
    assert not (here / "offers.csv").exists()
    done(here, *QUOTE_LIST[1:])
    after = state(here)
    assert after["epsilon"].tolist()[: len(remaining)] == remaining["epsilon"].tolist()
    assert after.index.tolist() == ["a", "b", "c", "d"]
    assert pd.read_csv(here / "offers.csv")["id"].tolist() == ["a", "b", "c", "d"]
    assert not hidden(here)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", ["quote", "accept", "decline"])
def test_an_interrupted_step_is_stored_completely_or_not_at_all(here, command, number):
    arguments = ["online", "answer", "m", "--id", "a", f"--{command}"]
    if command == "quote":
        arguments = ["online", "quote", "m", "--id", "a", "--sensitivity", "1.1"]
    else:
        done(here, "quote", "m", "--id", "a", "--sensitivity", "1.1")
    code, _ = stop(arguments, here, at(Store, "writing"), number)
    assert code == CODES[number]
    statuses = state(here)["status"].tolist()
    assert statuses == ([] if command == "quote" else ["offered"])
    done(here, *arguments[1:])
    text = {"quote": "offered", "accept": "accepted", "decline": "declined"}[command]
    assert state(here)["status"].tolist() == [text]


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_close_can_be_repeated_and_gives_one_model(sold, tmp_path, number):
    here = shutil.copytree(sold, tmp_path / "here")
    arguments = ["online", "close", "m", "--lapse"]
    code, command = stop(arguments, here, at(document, "keep_access"), number)
    assert code == CODES[number]
    if number == signal.SIGINT:
        check_one_line(command.stderr, "stopped")
        assert not hidden(here)
    assert not (here / "m" / "report").exists()
    with cm.OnlineMarket(here / "m") as market:
        remaining = market.released
    done(here, *arguments[1:])
    assert (here / "m" / "report" / "model.json").read_text() == remaining
    assert not hidden(here)


@pytest.mark.parametrize(
    "arguments",
    [
        ["open", "new", "market.toml"],
        ["quote", "m", "--id", "a", "--sensitivity", "1.1"],
        QUOTE_LIST[1:],
    ],
    ids=lambda arguments: arguments[0] + str(len(arguments)),
)
def test_a_full_disk_keeps_stored_steps(here, arguments):
    before = contents(here)
    code, command = run(["online", *arguments], here, limit=600)
    assert code == 2
    check_one_line(command.stderr, "error:")
    assert state(here).empty
    assert not hidden(here)
    new = contents(here).keys() - before.keys()
    assert not {path for path in new if "journal" not in path and path != "new"}
    done(here, *arguments)


def test_a_full_disk_while_closing_keeps_the_model_and_names_a_remedy(sold, tmp_path):
    here = shutil.copytree(sold, tmp_path / "here")

    def patch(_notify):
        def full(*_arguments):
            raise OSError(28, "No space left on device")

        document.keep_access = full

    code, command = run(["online", "close", "m", "--lapse"], here, patch)
    assert code == 2
    check_one_line(command.stderr, "error:", "No space left on device")
    with cm.OnlineMarket(here / "m") as market:
        remaining = market.released
    done(here, "close", "m", "--lapse")
    assert (here / "m" / "report" / "model.json").read_text() == remaining


def test_the_exit_code_indicates_refused_sellers(here):
    (here / "arrivals.csv").write_text(ARRIVALS + "e,2.0\nf,2.0\n")
    code, command = run(QUOTE_LIST, here)
    assert code == 3
    check_one_line(command.stderr, "2 sellers were turned away")
    assert len(state(here)) == 4
    assert len(pd.read_csv(here / "offers.csv")) == 4


def test_an_error_prints_one_line_and_changes_nothing(here):
    before = contents(here)
    for arguments in (
        ["open", "m", "market.toml"],
        ["quote", "m", "--id", "a", "--sensitivity", "99"],
        ["quote", "m", "--csv", "none.csv"],
        ["answer", "m", "--accept", "--id", "nobody"],
        ["answer", "m", "--decline", "--csv", "none.csv"],
        ["close", "m"],
        ["status", "nowhere"],
    ):
        code, command = run(["online", *arguments], here)
        assert code == 2, arguments
        check_one_line(command.stderr, "error:")
    after = contents(here)
    database = "m/market.sqlite"
    assert {path for path in after if not path.startswith(database)} == {
        path for path in before if not path.startswith(database)
    }
    assert after[database] == before[database]
    assert not hidden(here)


# ---------------------------------------------------------------------------------- ledgers

OFFERS = "id,epsilon,payment\na,0.5,1.0\nb,0.25,2.0\n"
LEDGER = {
    "create": (["new.sqlite", "--create"], at(store, "sync")),
    "record": (["sold.sqlite", "--record", "offers.csv"], at(Store, "writing")),
    "export": (["sold.sqlite", "--export", "out.csv", "--force"], at(writing.os, "fsync")),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    (folder / "offers.csv").write_text(OFFERS)
    (folder / "out.csv").write_text(FORMER_CSV)
    code, command = run(["ledger", "sold.sqlite", "--create"], folder)
    assert code == 0, command.stderr
    return folder


def shown(folder, name="sold.sqlite"):
    code, command = run(["ledger", name, "--json"], folder)
    assert code == 0, command.stderr
    return json.loads(command.out)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", LEDGER)
def test_an_interrupted_ledger_step_is_stored_completely_or_not_at_all(
    kept, tmp_path, name, number
):
    here = shutil.copytree(kept, tmp_path / "here")
    arguments, moment = LEDGER[name]
    before = shown(here)
    code, command = stop(["ledger", *arguments], here, moment, number)
    assert code == CODES[number]
    if number == signal.SIGINT:
        check_one_line(command.stderr, "stopped")
        assert not hidden(here)
    assert shown(here) == before
    assert (here / "out.csv").read_text() == FORMER_CSV
    assert not (here / "new.sqlite").exists()
    code, command = run(["ledger", *arguments], here)
    assert code == 0, command.stderr
    if name == "record":
        assert shown(here) != before
    if name == "create":
        shown(here, "new.sqlite")


@pytest.mark.parametrize("name", LEDGER)
def test_a_full_disk_does_not_change_a_ledger(kept, tmp_path, name):
    here = shutil.copytree(kept, tmp_path / "here")
    before = shown(here)
    code, command = run(["ledger", *LEDGER[name][0]], here, limit=5)
    assert code == 2
    check_one_line(command.stderr, "error:")
    assert shown(here) == before
    assert (here / "out.csv").read_text() == FORMER_CSV
    assert not hidden(here)
