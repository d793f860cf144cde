"""No command writes over what is not of its own kind, nor among a market's files."""

import json
import sqlite3
from itertools import product

import pytest

import convexmarket as cm
from convexmarket.deal import price_offers
from convexmarket.errors import ParameterError
from convexmarket.writing import JSON, check_place, kind_of, write_together
from tests import PROBLEMS
from tests.cli.builders import invoke
from tests.cli.writers import CSV_OR_JSON, FOREIGN, PRICE, WRITERS, a_database, a_model
from tests.online.builders import TRAINED_MARKET


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sellers.csv").write_text("id,sensitivity\nAnn,1.1\nBob,2.5\n")
    (tmp_path / "market.toml").write_text(TRAINED_MARKET)
    (tmp_path / "rows.csv").write_text("id,one,two,label\nAnn,0.1,0.2,yes\nBob,0.2,0.1,no\n")
    a_database(tmp_path / "books.sqlite")
    assert invoke("online", "open", "m", "market.toml").exit_code == 0
    return tmp_path


def files_in(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(here, *arguments):
    """Return what a command says that writes nothing."""
    before = files_in(here)
    done = invoke(*arguments)
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert files_in(here) == before
    return done.stderr


def test_a_list_of_offers_does_not_destroy_the_market(here):
    said = refused(here, "online", "quote", "m", "--csv", "sellers.csv", "--out", "m/market.sqlite")
    assert "m/market.sqlite lies in the folder of an online market" in said
    assert invoke("online", "status", "m").exit_code == 0


def test_offers_do_not_destroy_a_ledger(here):
    said = refused(here, "price", "sellers.csv", *PRICE, "--out", "books.sqlite")
    assert said == (
        "error: --out books.sqlite is an SQLite database, and a CSV table would take its place; "
        "name another file, or give --force\n"
    )
    assert invoke("ledger", "show", "books.sqlite").exit_code == 0


@pytest.mark.parametrize("command", WRITERS)
def test_what_is_of_another_kind_stays(here, command):
    names = ("found.csv", "found.json") if command in CSV_OR_JSON else ("found.csv",)
    for kind, name in product(FOREIGN, names):
        (here / name).unlink(missing_ok=True)
        FOREIGN[kind](here / name)
        assert kind_of(here / name) == kind
        arguments, option = WRITERS[command]
        said = refused(here, *arguments, option, name)
        assert f"{option} {name} is {kind}, and " in said
        assert said.endswith("name another file, or give --force\n")


@pytest.mark.parametrize("command", WRITERS)
def test_a_market_s_folder_is_its_own(here, command):
    (here / "inside").symlink_to("m")
    arguments, option = WRITERS[command]
    for place in ("m/found.csv", "inside/found.csv"):
        said = refused(here, *arguments, option, place)
        assert f"{place} lies in the folder of an online market" in said


def test_what_belongs_to_a_database_is_not_written(here):
    """A file of such a name is taken for the database's, and what it holds is applied to it."""
    for end in ("-journal", "-wal", "-shm", ".turns", ".closing"):
        place = f"books.sqlite{end}"
        (here / place).unlink(missing_ok=True)
        said = refused(here, "price", "sellers.csv", *PRICE, "--out", place)
        assert "belongs to the database books.sqlite" in said


@pytest.mark.parametrize("command", ["run", "compare", "report", "diff"])
def test_a_report_is_not_put_into_a_market_s_folder(here, command):
    given = ["a/one", "b/two"] if command == "diff" else [PROBLEMS / "solver-study.toml"]
    given += ["--set", "run.jobs=1"] if command == "run" else []  # nothing is said of the cores
    said = refused(here, command, *given, "--out", "m/found")
    assert "--out m/found lies in the folder of an online market" in said
    assert not (here / "m" / "found").exists()


def test_a_certificate_takes_no_other_file_s_place(here):
    a_database(here / "offers.certificate.json")
    said = refused(here, "price", "sellers.csv", *PRICE, "--out", "offers.csv")
    assert "--out offers.certificate.json is an SQLite database, and JSON would" in said


def test_a_device_is_no_file(here):
    said = refused(here, "price", "sellers.csv", *PRICE, "--out", "/dev/null", "--force")
    assert "/dev/null is a device or a pipe" in said


@pytest.mark.parametrize("former", ["", "id;epsilon\nAnn;0,5\n", '\ufeffid,x\n"a,\nb",2\n'])
def test_a_table_takes_a_table_s_place(here, former):
    (here / "found.csv").write_text(former, encoding="utf-8")
    assert invoke("price", "sellers.csv", *PRICE, "--out", "found.csv").exit_code == 0
    assert invoke("ledger", "export", "books.sqlite", "--out", "found.csv").exit_code == 0
    assert invoke("price", "sellers.csv", *PRICE, "--out", "found.csv").exit_code == 0


def test_json_takes_json_s_place(here):
    for what in ("balance", "sales", "balance"):
        arguments = ["ledger", "export", "books.sqlite", "--what", what, "--out", "found.json"]
        assert invoke(*arguments).exit_code == 0
    assert invoke("schema", "--out", "found.json").exit_code == 0


def test_force_is_asked_for_and_does_it(here):
    for place in ("books.csv", "m/found.csv"):
        a_database(here / place)
        done = invoke("price", "sellers.csv", *PRICE, "--out", place, "--force")
        assert done.exit_code == 0, done.output
        assert kind_of(here / place) == "a CSV table"
    assert invoke("online", "status", "m").exit_code == 0


def test_a_large_table_is_known_by_its_beginning(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("id,sensitivity\n" + "Zoë,1.5\n" * 3_000, encoding="utf-8")
    assert kind_of(path) == "a CSV table"


def test_python_s_writers_refuse_as_well(here):
    a_database(here / "model.npz")
    with pytest.raises(ParameterError, match=r"model\.npz is an SQLite database, and a saved"):
        cm.save_model(a_model(), here / "model.npz")
    (here / "notes.json").write_text("{}")
    with pytest.raises(ParameterError, match=r"notes\.json is JSON, and JSON of the format"):
        cm.save_model(a_model(), here / "notes.json")
    offers = price_offers(here / "sellers.csv", cm.Uniform(1, 5), mu=1, sigma=100, gamma=0.001)
    with pytest.raises(ParameterError, match="an SQLite database"):
        offers.write(here / "books.sqlite")
    assert not (here / "books.certificate.json").exists()
    with sqlite3.connect(here / "books.sqlite") as database:
        database.execute("SELECT 1 FROM sqlite_master")


def test_a_model_takes_a_model_s_place(tmp_path):
    for name in ("model.npz", "model.json"):
        for _ in range(2):
            cm.save_model(a_model(), tmp_path / name)
        cm.load_model(tmp_path / name)


def test_what_appeared_meanwhile_stays(here):
    """The place is looked at again when the files are there."""
    a_database(here / "late.csv")
    with pytest.raises(ParameterError, match="an SQLite database, and JSON would"):
        write_together({here / "new.json": b"{}", here / "late.csv": json.dumps({}).encode()})
    assert not (here / "new.json").exists()
    assert not [path for path in here.iterdir() if path.name.startswith(".")]


def test_a_comparison_takes_the_former_one_s_place(tmp_path):
    """Also one that says what format it has; a report's results say more, and stay."""
    place = tmp_path / "found.json"
    for former in ('["former"]', '{"format": "convexmarket-diff/1"}', "{}"):
        place.write_text(former)
        check_place(place, "--out", kind=JSON)
        write_together({place: b'{"format": "convexmarket-diff/1"}'})
    place.write_text('{\n "format": "convexmarket-results/1"}')
    with pytest.raises(ParameterError, match="JSON of the format 'convexmarket-results'"):
        check_place(place, "--out", kind=JSON)
