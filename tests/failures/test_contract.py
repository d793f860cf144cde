"""A kill or a failed rename leaves either the former or the new report.

docs/failures.md states this contract. tests/process/failures tests all commands and moments.
"""

import signal

import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.errors import DataError
from convexmarket.report import folders, read_report
from tests.process.builders import Child, needs_fork
from tests.process.failures.builders import at, contents


def write_report(title, folder):
    report = cm.Report(title)
    report.add(pd.DataFrame({"payment": [1.0, 2.0]}), "Offers")
    report.write(folder)


@pytest.fixture
def folder(tmp_path):
    write_report("former", tmp_path / "target")
    return tmp_path


@needs_fork
def test_a_report_is_restored_after_a_kill_between_renames(folder):
    before = contents(folder / "target")

    def work(notify):
        at(folders.os, "replace", 1, after=True)(lambda: (notify("between"), signal.pause()))
        write_report("new", folder / "target")

    child = Child(work)
    child.wait_for_message()
    child.kill()
    assert not (folder / "target").exists()
    (former,) = folder.glob(".target-*/former")
    assert contents(former) == before
    assert read_report(folder / "target").title == "former"
    assert contents(folder / "target") == before
    assert [path.name for path in folder.iterdir()] == ["target"]


def test_the_hidden_folder_of_a_running_process_is_kept(folder):
    with folders.replacing(folder / "target") as fresh:
        folders.put_back(folder / "target")
        assert fresh.is_dir()
    assert [path.name for path in folder.iterdir()] == ["target"]


def test_the_hidden_folder_of_another_report_is_kept(folder):
    other = folder / ".target-2-abcdefgh"
    (other / "former").mkdir(parents=True)
    folders.put_back(folder / "target")
    assert other.is_dir()
    folders.put_back(folder / "target-2")
    assert (folder / "target-2").is_dir()
    assert not other.exists()


def test_a_failed_rename_keeps_the_former_report(folder, monkeypatch):
    before = contents(folder)
    replace = folders.os.replace

    def failing(source, target):
        if source.name == "fresh":
            raise OSError("no more renames")
        replace(source, target)

    monkeypatch.setattr(folders.os, "replace", failing)
    with pytest.raises(DataError, match="no more renames"):
        write_report("new", folder / "target")
    assert contents(folder) == before
