"""Commands check their output path before any work and replace files only with --force."""

import errno
import json
import os

import pytest

from convexmarket import deal, ledger
from convexmarket import io as writing
from convexmarket import report as reports
from convexmarket.attacks import mechanisms
from convexmarket.cli import experiments
from convexmarket.errors import ParameterError
from convexmarket.io import write_together
from convexmarket.online import OnlineMarket
from convexmarket.studies import files, solver_study
from convexmarket.studies.files import drafts
from convexmarket.studies.files.learning import ClassifierFile
from convexmarket.studies.files.solvers import SolversFile
from tests import PROBLEMS
from tests.cli.builders import PRICE, WRITERS, a_database, invoke
from tests.online.builders import TRAINED_MARKET

QUICKSTART = str(PROBLEMS / "quickstart.toml")
#: Commands that write folders, and the options that set the path of the folder.
FOLDERS = {
    "run": (["run", QUICKSTART], "--out"),
    "run a study": (["run", PROBLEMS / "solver-study.toml", "--set", "run.jobs=1"], "--out"),
    "compare": (["compare", QUICKSTART], "--out"),
    "report": (["report", "one"], "--out"),
    "report --all": (["report", "--all", "--problems", PROBLEMS], "--reports"),
    "buy": (["buy", "market.toml"], "--out"),
    "online close": (["online", "close", "m"], "--out"),
}
WORK = {
    "run": (ClassifierFile, "perform"),
    "run a study": (SolversFile, "perform"),
    "compare": (solver_study, "compare_solvers"),
    "report": (reports, "read_report"),
    "report --all": (experiments, "run_file"),
    "price": (deal, "price"),
    "init": (drafts, "draft_problem"),
    "buy": (files, "load_file"),
    "audit": (mechanisms, "audit_mechanisms"),
    "ledger export": (ledger.Ledger, "__init__"),
    "online quote": (OnlineMarket, "__init__"),
    "online close": (OnlineMarket, "__init__"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sellers.csv").write_text("id,sensitivity\nAnn,1.1\nBob,2.5\n")
    return tmp_path


@pytest.fixture
def filled(here):
    """Create a folder with a table, a problem file, its rows, a ledger and a market."""
    people = "id,age,label\nAnn,30,yes\nBob,40,no\nCid,50,yes\n"
    (here / "people.csv").write_text(people)
    (here / "market.toml").write_text(TRAINED_MARKET)
    (here / "rows.csv").write_text("id,one,two,label\nAnn,0.1,0.2,yes\nBob,0.2,0.1,no\n")
    a_database(here / "books.sqlite")
    assert invoke("online", "open", "m", "market.toml").exit_code == 0
    return here


def refused_before_any_work(name, place, monkeypatch):
    """Check that a command raises an error for an unwritable path before any work.

    Only methods are replaced, because modules that imported a class keep the original class.
    """
    (arguments, option), (module, work) = (WRITERS | FOLDERS)[name], WORK[name]

    def never(*_, **__):
        raise AssertionError("the command began to work")

    monkeypatch.setattr(module, work, never)
    done = invoke(*arguments, option, place)
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: {option} {place}")
    assert "choose a folder in which you may write" in done.stderr
    return done.stderr


@pytest.mark.parametrize("name", WORK)
def test_an_unwritable_output_is_refused_before_any_work(here, monkeypatch, name):
    words = refused_before_any_work(name, "sellers.csv/deeper/found.csv", monkeypatch)
    assert f"in {here / 'sellers.csv'} (Not a directory)" in words

    def refuse(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(dir))

    monkeypatch.setattr(writing.tempfile, "TemporaryFile", refuse)
    words = refused_before_any_work(name, "new/found.csv", monkeypatch)
    assert f"in {here} (Read-only file system)" in words
    assert [path.name for path in here.iterdir()] == ["sellers.csv"]


# ------------------------------------------------------------------------------- replacing


def files_in(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(folder, *arguments):
    """Check that a command fails without writing a file, and return its error message."""
    before = files_in(folder)
    done = invoke(*arguments)
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert files_in(folder) == before
    return done.stderr


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0"])
def test_an_existing_file_is_replaced_only_with_force(filled, command, content):
    (filled / "found.csv").write_bytes(content)
    arguments, option = WRITERS[command]
    text = refused(filled, *arguments, option, "found.csv")
    assert text == (
        f"error: {option} found.csv exists; pass --force (force=True in Python) to replace it\n"
    )
    if command != "audit":  # an audit is slow
        done = invoke(*arguments, option, "found.csv", "--force")
        assert done.exit_code == 0, done.output
        assert (filled / "found.csv").read_bytes() != content


@pytest.mark.parametrize("command", ["run", "compare", "report"])
@pytest.mark.parametrize(
    "files",
    [
        {"market.sqlite": b"SQLite format 3\0"},
        {"index.html": b"<p>Written by convexmarket", "report.md": b""},
        {"results.json": b"['convexmarket-results/2']"},
    ],
)
def test_a_folder_that_is_not_a_report_is_kept(filled, command, files):
    (filled / "found").mkdir()
    for name, content in files.items():
        (filled / "found" / name).write_bytes(content)
    given = [PROBLEMS / "solver-study.toml"]
    if command == "report":
        given = [filled / "a"]
    given += ["--set", "run.jobs=1"] if command == "run" else []
    text = refused(filled, command, *given, "--out", "found")
    assert "to replace it all" in text


def test_a_device_cannot_be_replaced(filled):
    text = refused(filled, "price", "sellers.csv", *PRICE, "--out", "/dev/null", "--force")
    assert "/dev/null is a device or a pipe" in text


def test_a_file_created_during_the_work_is_kept(filled):
    """The command checks its output path again before it writes files."""
    a_database(filled / "late.csv")
    contents = {filled / "new.json": b"{}", filled / "late.csv": json.dumps({}).encode()}
    with pytest.raises(ParameterError, match=r"late\.csv exists"):
        write_together(contents, force=False)
    assert not (filled / "new.json").exists()
    assert not [path for path in filled.iterdir() if path.name.startswith(".")]
