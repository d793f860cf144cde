"""Whole studies: hangs and crashes become rows, and interrupted studies go on."""

import json
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from convexmarket.lab.kinds.solver_study.run import run_solver_study
from convexmarket.lab.problem.loading import load_problem
from convexmarket.lab.study.plan import plan_runs
from tests.lab.kinds.builders import STUBS, outcomes, solver_study_in
from tests.lab.kinds.builders import stubs as plugins_of


@pytest.fixture
def study(tmp_path):
    return partial(solver_study_in, tmp_path, sizes=(20, 40), jobs=2)


@pytest.fixture
def stubs(monkeypatch):
    monkeypatch.syspath_prepend(STUBS)
    return plugins_of


def test_hangs_and_gluttons_are_rows(study, stubs):
    result = run_solver_study(study(["exact"], seconds=1.5), plugins=stubs("Sleeper", "Glutton"))
    assert outcomes(result, solver="SLEEPER") == ["time limit"]
    gluttons = outcomes(result, solver="GLUTTON")
    assert gluttons
    assert set(gluttons) <= {"memory limit", "time limit"}


def test_crashes_and_errors_are_rows(study, stubs):
    """With the usual limit: a busy machine may take more than a second to get that far."""
    result = run_solver_study(study(["CLARABEL"]), plugins=stubs("Suicide", "Quitter"))
    assert outcomes(result, solver="CLARABEL") == ["solved"]
    assert outcomes(result, solver="SUICIDE") == ["crashed"]
    runs = result.tables["runs"]
    assert set(runs[runs.solver == "SUICIDE"].status) == {"SIGSEGV"}
    assert outcomes(result, solver="QUITTER") == ["failed"]


def test_a_fresh_study_forgets_what_was_recorded(study, tmp_path):
    journal = tmp_path / "runs.jsonl"
    run_solver_study(study(["exact"]), journal=journal)
    before = journal.read_bytes()
    run_solver_study(study(["exact"]), journal=journal, fresh=True)
    assert journal.read_bytes() != before
    assert journal.read_bytes().count(b"\n") == before.count(b"\n")


def test_killed_at_any_time_no_finished_run_is_lost_and_none_repeated(study, tmp_path, stubs):
    study(["CLARABEL", "SCS", "ECOS"], more="pin = false\n")
    journal, file = tmp_path / "runs.jsonl", tmp_path / "study.toml"
    program = (
        "import sys; from pathlib import Path\n"
        "from convexmarket.lab import load_problem\n"
        "from convexmarket.lab.kinds.solver_study.run import run_solver_study\n"
        f"run_solver_study(load_problem({str(file)!r}), journal=Path({str(journal)!r}))\n"
    )
    seen = b""
    for wanted in (1, 4, 9):
        with subprocess.Popen([sys.executable, "-c", program]) as running:
            deadline = time.monotonic() + 120
            while running.poll() is None and time.monotonic() < deadline:
                if journal.exists() and journal.read_bytes().count(b"\n") >= wanted:
                    break
                time.sleep(0.01)
            running.send_signal(signal.SIGKILL)
        whole = journal.read_bytes()
        whole = whole[: whole.rfind(b"\n") + 1]
        assert whole.startswith(seen)
        seen = whole
    result = run_solver_study(load_problem(file), journal=journal)
    assert journal.read_bytes().startswith(seen)
    keys = [json.loads(line)["key"] for line in journal.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == len(plan_runs(load_problem(file), {}).runs)
    assert set(result.tables["runs"].key) <= set(keys)
