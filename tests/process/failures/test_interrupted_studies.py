"""An interrupted solver study writes no partial report and repeats no recorded run."""

import json
import signal

import pytest

from convexmarket.studies.execution import Journal
from tests import PROBLEMS
from tests.process.failures.builders import INTERRUPTED, check_one_line, contents, run, stop

QUICKSTART = PROBLEMS / "quickstart.toml"
STUDY = ["compare", QUICKSTART, "--classes", "allocation", "--formulations", "primal"]
STUDY += ["--solvers", "CLARABEL", "--sizes", "5,6", "--draws", "1", "--jobs", "1"]
ONLINE = ["run", PROBLEMS / "online-wdbc.toml", "--set", "simulation.draws=2", "--jobs", "1"]


def after_the_first_run(notify):
    """Notify the parent when the first run is on disk."""
    append = Journal.append

    def reported(self, record):
        append(self, record)
        notify()

    Journal.append = reported


@pytest.mark.parametrize("study", [STUDY, ONLINE], ids=["solvers", "online"])
def test_a_stopped_study_writes_no_report_and_prints_how_to_resume(tmp_path, study):
    """test_compare_cli and test_compare_solvers also test that a study resumes after SIGKILL."""
    study = [*study, "--out", "study"]
    code, command = stop(study, tmp_path, after_the_first_run, signal.SIGINT)
    assert code == INTERRUPTED
    check_one_line(command.stderr, "The same command resumes")
    journal = tmp_path / "study.runs.jsonl"
    assert set(contents(tmp_path)) == {"study.runs.jsonl"}
    before = journal.read_bytes()
    assert len([json.loads(line) for line in before.splitlines()]) == 1
    stopped_on_full_disk(study, tmp_path, before)


def stopped_on_full_disk(study, folder, before):
    """Check that a study prints one line and keeps its records if the journal cannot grow."""

    def patch(_notify):
        def full(self, record):
            self._file.write(b'{"key": "cut')
            self._file.flush()
            raise OSError(28, "No space left on device")

        Journal.append = full

    code, command = run(study, folder, patch)
    assert code == 2
    check_one_line(command.stderr, "error:", "No space left on device")
    with Journal(folder / "study.runs.jsonl"):
        pass
    assert (folder / "study.runs.jsonl").read_bytes() == before
