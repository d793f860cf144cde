"""If a run fails in its process, the failure is recorded and later runs are not affected."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

import convexmarket as cm
from convexmarket.studies.execution import Execution
from convexmarket.studies.measure import measure_run
from convexmarket.studies.subproblems.markets import at_eta
from tests import ROOT
from tests.studies.stub_solvers import Crashing, Growing, Hanging, Parent


def market(size, rng):
    prior = cm.Uniform(1, 5)
    return cm.Market.standard(cm.Sellers(prior.sample(size, rng), prior), mu=1, sigma=1, gamma=1)


def make(size, rng):
    return at_eta(market(size, rng))


def broken(size, rng):
    raise ValueError("no such subproblem")


def call(solver="CLARABEL", make=make, *, time_limit=300.0, **options):
    execution = Execution(time_limit=time_limit, progress=False, **options)
    arguments = (make, 20, (0, 0), "primal", solver, {})
    return execution.run(measure_run, {"run": arguments}, "runs")["run"]


def test_a_run_returns_its_measurements():
    reply = call()
    assert reply["ended"] == "finished"
    assert reply["result"]["status"] == reply["result"]["again_status"] == "optimal"
    assert 0 < reply["peak_memory_mb"] < 1_000


def test_a_hang_ends_at_the_time_limit():
    start = time.monotonic()
    reply = call(Hanging(), time_limit=1.5)
    assert reply["ended"] == "time limit"
    assert "result" not in reply
    assert time.monotonic() - start < 60


def test_a_crash_is_reported_with_its_signal():
    reply = call(Crashing())
    assert (reply["ended"], reply["status"]) == ("crashed", "SIGSEGV")


def test_a_run_ends_at_the_memory_limit():
    reply = call(Growing(), memory_limit=1_000.0)
    assert reply["ended"] == "memory limit"
    assert 1_000 <= reply["peak_memory_mb"] < 2_000


def test_an_error_of_the_package_keeps_its_message():
    reply = call(make=broken)
    assert reply["ended"] == "error"
    assert "no such subproblem" in reply["log"]


def test_a_call_is_reported_as_crashed_if_its_worker_is_killed():
    replies = []
    waiting = threading.Thread(target=lambda: replies.append(call(Hanging())))
    waiting.start()
    while not (sleeping := [each for each in children_of(psutil.Process()) if is_run(each)]):
        time.sleep(0.01)
    sleeping[0].parent().kill()
    waiting.join(60)
    assert replies[0]["ended"] == "crashed"
    assert not psutil.wait_procs(sleeping, timeout=10)[1], "a run outlives its worker"


@pytest.mark.parametrize("options", [{}, {"time_limit": 100.0}], ids=["free", "limited"])
def test_a_market_that_ends_its_worker_has_one_failed_row(options):
    fine = cm.Market.standard(cm.Sellers([0.1, 0.2], cm.Uniform(0, 1)), mu=1, sigma=1, gamma=1)

    def deadly():
        os.kill(os.getppid() if options else os.getpid(), signal.SIGKILL)

    study = cm.Study({"one": fine, "deadly": deadly, "other": fine})
    table = study.run(jobs=2, progress=False, **options).to_frame()
    assert table.status.tolist() == ["solved", "crashed", "solved"]
    assert "its process was killed" in table.message[1]


def test_child_processes_of_a_solver_do_not_block_the_run():
    reply = call(Parent(), time_limit=60.0)
    assert reply["ended"] == "finished"
    left = int(reply["result"]["message"].rpartition(" ")[2])
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and is_alive(left):
        time.sleep(0.01)
    assert not is_alive(left)


def is_alive(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def children_of(process):
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def is_run(process):
    """Check whether a process is a run, which a worker starts in a separate process group."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        return os.getpgid(process.pid) == process.pid
    return False


SLEEPING = """
import sys
sys.path[:0] = [{path!r}]
from tests.process.studies.test_limits import Hanging, call
call(Hanging())
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_no_run_remains_after_a_study_was_terminated(by):
    script = SLEEPING.format(path=str(ROOT))
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # background jobs of a shell ignore SIGINT, and so do their children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as study:
        family = psutil.Process(study.pid)
        while not (runs := [each for each in children_of(family) if is_run(each)]):
            time.sleep(0.01)
        workers = [each.parent() for each in runs]
        os.kill(study.pid if by == signal.SIGKILL else -study.pid, by)
    assert not psutil.wait_procs([*runs, *workers], timeout=10)[1]
