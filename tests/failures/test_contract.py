"""What fails or is stopped: an exit code, a line, nothing half-written (docs/failures.md).

Every command, at every moment, is tried in tests/process/failures.
"""

import json
import signal

import pandas as pd
import pytest

from convexmarket import io as writing
from convexmarket.errors import DataError
from convexmarket.lab import write_report
from convexmarket.lab.report import workshop
from convexmarket.lab.report.model import Report, Section, Table
from tests.process.builders import Child, needs_fork
from tests.process.failures.builders import (
    FORMER_CSV,
    FORMER_JSON,
    INTERRUPTED,
    NO_ROOM,
    PRICE,
    at,
    check_one_line,
    contents,
    run,
    stop,
)

COMMAND = ["price", "sellers.csv", *PRICE, "--out", "offers.csv", "--force"]
SELLERS = "id,sensitivity\nAnn,0.03\nBob,0.05\n"


@pytest.fixture
def priced(tmp_path):
    (tmp_path / "sellers.csv").write_text(SELLERS)
    for name in ("offers.csv", "offers.certificate.json"):
        (tmp_path / name).write_text(FORMER_JSON if name.endswith("json") else FORMER_CSV)
    return tmp_path


def check_all_new(folder):
    assert run(COMMAND, folder)[0] == 0
    assert (folder / "offers.csv").read_text().startswith('"id","sensitivity",')
    assert (folder / "offers.certificate.json").read_text().startswith("{")


@needs_fork
@pytest.mark.parametrize(
    ("list_of", "room"),
    [(SELLERS, NO_ROOM), (SELLERS + "Cid,x\n", None)],
    ids=["full disk", "bad list"],
)
def test_an_error_is_one_line_and_changes_nothing(priced, list_of, room):
    (priced / "sellers.csv").write_text(list_of)
    before = contents(priced)
    code, command = run(COMMAND, priced, limit=room)
    assert code == 2
    check_one_line(command.said, "error:", "File too large" if room else "line 4")
    assert contents(priced) == before
    (priced / "sellers.csv").write_text(SELLERS)
    check_all_new(priced)


@needs_fork
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_each_file_former_or_new(priced, number):
    before = contents(priced)
    code, command = stop(COMMAND, priced, at(writing.os, "replace", 2), number)
    now = contents(priced)
    if number == signal.SIGINT:
        assert code == INTERRUPTED
        check_one_line(command.said, "stopped")
        assert now == before
        return
    assert code == -signal.SIGKILL
    check_all_new(priced)
    new = contents(priced)
    assert now["sellers.csv"] == before["sellers.csv"]
    assert now["offers.csv"] in (before["offers.csv"], new["offers.csv"])
    certificate = now["offers.certificate.json"]
    assert certificate == before["offers.certificate.json"] or json.loads(certificate)


# ------------------------------------------------------------------------------- reports


def report(title):
    table = Table("offers", "Offers", pd.DataFrame({"payment": [1.0, 2.0]}))
    return Report(title, ("A page.",), (Section("All", tables=(table,)),), {})


@pytest.fixture
def here(tmp_path):
    write_report(report("former"), tmp_path / "target")
    return tmp_path


@needs_fork
def test_a_report_that_lost_its_place_is_put_back(here):
    before = contents(here)

    def work(tell):
        at(workshop.Path, "rename", 2, after=True)(lambda: (tell("between"), signal.pause()))
        write_report(report("new"), here / "target")

    child = Child(work)
    child.wait_until_it_tells()
    child.kill()
    assert not (here / "target").exists()
    workshop.put_back(here / "target")
    assert contents(here) == before


@needs_fork
@pytest.mark.parametrize("other", ["target-2", "target-2024abcd", "target-"])
def test_a_report_that_lost_its_place_is_not_lost_to_a_namesake(here, other):
    write_report(report("the only copy"), here / other)
    before = contents(here)

    def work(tell):
        at(workshop.Path, "rename", 2, after=True)(lambda: (tell("between"), signal.pause()))
        write_report(report("new"), here / other)

    child = Child(work)
    child.wait_until_it_tells()
    child.kill()
    assert not (here / other).exists()
    write_report(report("former"), here / "target")  # the name that the other begins with
    workshop.put_back(here / other)
    assert contents(here) == before


def test_a_report_that_cannot_be_put_back_at_once_is_put_back_later(here, monkeypatch):
    before = contents(here)
    rename, renames = workshop.Path.rename, []

    def failing(self, target):
        renames.append(self.name)
        if len(renames) > 2:  # of the lock, of the former report
            raise OSError("no more renames")
        return rename(self, target)

    monkeypatch.setattr(workshop.Path, "rename", failing)
    with pytest.raises(DataError, match=r"nor the former one back .*no more renames"):
        write_report(report("new"), here / "target")
    assert renames == ["owner.lock.new", "target", "fresh", "previous"]
    assert not (here / "target").exists()
    monkeypatch.undo()
    workshop.put_back(here / "target")
    assert contents(here) == before


def test_a_workshop_that_could_not_be_removed_is_removed_later(here, monkeypatch):
    """Half of the former report is not put back, and the lock goes last."""
    rmtree = workshop.shutil.rmtree

    def failing(path, **_):
        if path.name == workshop.REST:
            (path / "index.html").unlink()
            raise OSError(5, "Input/output error")
        rmtree(path)

    monkeypatch.setattr(workshop.shutil, "rmtree", failing)
    write_report(report("new"), here / "target")
    monkeypatch.undo()
    now = contents(here / "target")
    (left,) = here.glob(".target-*")
    assert (left / workshop.OWNER).exists()
    (here / "target").rename(here / "elsewhere")
    workshop.put_back(here / "target")
    assert not (here / "target").exists()
    assert not left.exists()
    assert contents(here / "elsewhere") == now


def test_a_workshop_in_use_is_left_alone(here):
    with workshop.workshop(here / "target") as folder:
        (folder / "fresh").mkdir()
        workshop.put_back(here / "target")
        assert folder.is_dir()
        write_report(report("new"), here / "target")
        assert folder.is_dir()
    assert not folder.exists()
