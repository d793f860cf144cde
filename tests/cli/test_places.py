"""Where results go is known to be writable before any work, in every command that writes."""

import errno
import os

import pytest

from convexmarket import deal, ledger
from convexmarket import io as writing
from convexmarket import report as reports
from convexmarket.attacks import mechanisms
from convexmarket.cli import report as report_cli
from convexmarket.errors import ParameterError
from convexmarket.io import check_place
from convexmarket.online import OnlineMarket
from convexmarket.studies import files, solvers
from convexmarket.studies.files import drafts
from convexmarket.studies.files.learning import ClassifierFile
from convexmarket.studies.files.solvers import SolversFile
from tests import PROBLEMS
from tests.cli.builders import invoke

QUICKSTART = str(PROBLEMS / "quickstart.toml")
PRICE = ["--prior", "uniform:0.02,0.10", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]
#: What is given beside the place, the option of the place, and where the work would be done.
COMMANDS = {
    "run": (["run", QUICKSTART], "--out", (ClassifierFile, "perform")),
    "run a study": (
        ["run", str(PROBLEMS / "solver-study.toml"), "--set", "run.jobs=1"],
        "--out",
        (SolversFile, "perform"),
    ),
    "compare": (["compare", QUICKSTART], "--out", (solvers, "compare_solvers")),
    "report": (["report", "one"], "--out", (reports, "read_report")),
    "report --all": (
        ["report", "--all", "--problems", str(PROBLEMS)],
        "--reports",
        (report_cli, "run_file"),
    ),
    "diff": (["diff", "a/one", "b/two"], "--out", (reports, "compare_reports")),
    "price": (["price", "sellers.csv", *PRICE], "--out", (deal, "price")),
    "init": (["init", "sellers.csv"], "--out", (drafts, "draft_problem")),
    "buy": (["buy", "market.toml"], "--out", (files, "load_file")),
    "audit": (["report", "--audit"], "--out", (mechanisms, "audit_mechanisms")),
    "ledger export": (["ledger", "books.sqlite"], "--export", (ledger.Ledger, "__init__")),
    "online quote": (
        ["online", "quote", "m", "--csv", "sellers.csv"],
        "--out",
        (OnlineMarket, "__init__"),
    ),
    "online close": (["online", "close", "m"], "--out", (OnlineMarket, "__init__")),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sellers.csv").write_text("id,sensitivity\nAnn,0.03\nBob,0.05\n")
    return tmp_path


def refused_before_any_work(name, place, monkeypatch):
    """Return the error of a command that cannot write, after a check that no work began.

    Methods of classes are replaced, not the classes: a module that is first imported here would
    keep the replacement.
    """
    arguments, option, (module, work) = COMMANDS[name]

    def never(*_, **__):
        raise AssertionError("it has begun to work")

    monkeypatch.setattr(module, work, never)
    done = invoke(*arguments, option, place)
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: {option} {place}")
    assert "name a place in a folder where you may write" in done.stderr
    return done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_place_where_nothing_can_be_written_is_refused_before_any_work(here, monkeypatch, name):
    words = refused_before_any_work(name, "sellers.csv/deeper/found.csv", monkeypatch)
    assert f"in {here / 'sellers.csv'} (Not a directory)" in words

    def refuse(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(dir))

    monkeypatch.setattr(writing.tempfile, "TemporaryFile", refuse)
    words = refused_before_any_work(name, "new/found.csv", monkeypatch)
    assert f"in {here} (Read-only file system)" in words
    assert [path.name for path in here.iterdir()] == ["sellers.csv"]


def test_a_place_that_can_be_written_is_left_as_it_is(here):
    (here / "mine").mkdir()
    (here / "link").symlink_to("mine")
    for place in ("found.csv", "new/folder/found.csv", "link/found.csv"):
        check_place(here / place)
    check_place(here / "sellers.csv", force=True)
    for place in ("mine", "link", "new", "new/folder"):
        check_place(here / place, folder=True)
    assert sorted(path.name for path in here.rglob("*")) == ["link", "mine", "sellers.csv"]


def test_both_a_report_s_folder_and_the_one_around_it_are_tried(here, monkeypatch):
    """It moves out of the one, and the study's journal is written in the other."""
    (here / "mine").mkdir()
    tried, real = [], writing.tempfile.TemporaryFile
    monkeypatch.setattr(
        writing.tempfile, "TemporaryFile", lambda dir: tried.append(dir) or real(dir=dir)
    )
    check_place(here / "mine", folder=True)
    assert sorted(tried) == [here, here / "mine"]


def test_files_are_no_folders(here):
    with pytest.raises(ParameterError, match=r"^--out .* is a folder; name a file in it"):
        check_place(here, "--out")


def test_a_link_that_leads_nowhere_is_no_folder(here):
    (here / "link").symlink_to("nowhere")
    with pytest.raises(ParameterError, match="nothing can be written in"):
        check_place(here / "link" / "found.csv")
    assert not (here / "nowhere").exists()
