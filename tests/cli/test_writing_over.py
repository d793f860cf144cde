"""No command replaces an existing file without --force, or a folder that is not a report."""

import json

import pytest

from convexmarket.errors import DataError, ParameterError
from convexmarket.io import write_together
from convexmarket.ledger import Ledger
from tests import PROBLEMS
from tests.cli.builders import invoke
from tests.cli.writers import PRICE, WRITERS, a_database
from tests.online.builders import TRAINED_MARKET


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sellers.csv").write_text("id,sensitivity\nAnn,1.1\nBob,2.5\n")
    people = "id,age,label\nAnn,30,yes\nBob,40,no\nCid,50,yes\n"
    (tmp_path / "people.csv").write_text(people)
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
    assert said.startswith("error: --out m/market.sqlite exists; pass --force")
    assert invoke("online", "status", "m").exit_code == 0


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0"])
def test_an_existing_file_is_replaced_with_force_alone(here, command, content):
    (here / "found.csv").write_bytes(content)
    arguments, option = WRITERS[command]
    said = refused(here, *arguments, option, "found.csv")
    assert said == (
        f"error: {option} found.csv exists; pass --force to replace it, or name another file\n"
    )
    if command != "audit":  # it takes long
        done = invoke(*arguments, option, "found.csv", "--force")
        assert done.exit_code == 0, done.output
        assert (here / "found.csv").read_bytes() != content


@pytest.mark.parametrize("name", ["deal.md", "offers.csv", "certificate.json", "model.json"])
def test_what_was_bought_is_replaced_with_force_alone(here, name):
    (here / "sale").mkdir()
    (here / "sale" / name).write_text("precious")
    said = refused(here, "buy", "market.toml", "--out", "sale")
    assert said.startswith(f"error: --out sale/{name} exists; pass --force")


@pytest.mark.parametrize("options", [["--index", "reports"], ["--all", "--problems", PROBLEMS]])
@pytest.mark.parametrize("name", ["index.html", "README.md"])
def test_an_index_of_reports_is_replaced_with_force_alone(here, options, name):
    (here / "reports").mkdir()
    (here / "reports" / name).write_text("precious")
    said = refused(here, "report", *options)
    assert f"reports/{name} exists; pass --force" in said


def test_an_index_of_reports_is_replaced_with_force(here):
    (here / "reports").mkdir()
    (here / "reports" / "README.md").write_text("precious")
    assert invoke("report", "--index", "reports", "--force").exit_code == 0
    assert (here / "reports" / "README.md").read_text() != "precious"


@pytest.mark.parametrize("command", ["run", "compare", "report", "diff"])
@pytest.mark.parametrize(
    "files",
    [
        {"market.sqlite": b"SQLite format 3\0"},
        {"index.html": b"<p>Written by convexmarket", "report.md": b""},
        {"results.json": b"['convexmarket-results/2']"},
    ],
)
def test_a_folder_that_is_not_a_report_is_kept(here, command, files):
    (here / "found").mkdir()
    for name, content in files.items():
        (here / "found" / name).write_bytes(content)
    given = [PROBLEMS / "solver-study.toml"]
    if command == "diff":
        given = ["a/one", "b/two"]
    if command == "report":
        given = [here / "a"]
    given += ["--set", "run.jobs=1"] if command == "run" else []  # nothing is said of the cores
    said = refused(here, command, *given, "--out", "found")
    assert "to replace all of it" in said


def test_a_device_cannot_be_replaced(here):
    said = refused(here, "price", "sellers.csv", *PRICE, "--out", "/dev/null", "--force")
    assert "/dev/null is a device or a pipe" in said


@pytest.mark.parametrize("of", ["ledger", "online"])
def test_a_backup_does_not_replace_the_database_itself(here, of):
    command = ["online", "status"] if of == "online" else ["ledger"]
    path, place = ("m", "m/market.sqlite") if of == "online" else ("books.sqlite", "books.sqlite")
    for option in ([], ["--force"]):
        assert f"{place} exists" in refused(here, *command, path, "--backup", place, *option)
    with pytest.raises(DataError, match="exists"):
        Ledger(path).backup(place, force=True)


def test_an_export_does_not_replace_the_ledger_itself(here):
    a_database(here / "books.csv")
    said = refused(here, "ledger", "books.csv", "--export", "books.csv", "--force")
    assert "--export books.csv is the ledger itself" in said


def test_a_file_that_appears_meanwhile_is_kept(here):
    """The place is looked at again when the files are written."""
    a_database(here / "late.csv")
    contents = {here / "new.json": b"{}", here / "late.csv": json.dumps({}).encode()}
    with pytest.raises(ParameterError, match=r"late\.csv exists"):
        write_together(contents, force=False)
    assert not (here / "new.json").exists()
    assert not [path for path in here.iterdir() if path.name.startswith(".")]
