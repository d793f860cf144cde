"""Runs in processes of their own: what misbehaves becomes a reply, and the next run is as good."""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from convexmarket.errors import SolverError
from convexmarket.lab.study.cores import can_pin, usable_cores
from convexmarket.lab.study.isolation import Isolation
from tests import ROOT
from tests.lab.kinds.builders import STUDIED


def job(solver="CLARABEL", plugin="", **changes):
    return {
        "problem": {"path": "sellers.toml", "text": STUDIED, "overrides": []},
        "problem_class": "allocation",
        "instance": "",
        "size": 20,
        "seed": [0, 0],
        "formulation": "primal",
        "solver": solver,
        "plugin": f"tests.lab.study.stub_solvers:{plugin}" if plugin else "",
        "options": {},
        "seconds": 30.0,
        "megabytes": 4_000.0,
        "core": -1,
    } | changes


@pytest.fixture(scope="module")
def isolation():
    with Isolation() as found:
        yield found


def test_a_run_comes_back_with_what_was_measured(isolation):
    reply = isolation.run(job())
    assert reply["ended"] == "finished"
    found = reply["result"]
    assert found["status"] == found["again_status"] == "optimal"
    assert found["total_s"] == pytest.approx(
        sum(found[f"{part}_s"] for part in ("declaration", "compilation", "solver", "recovery"))
    )
    assert 0 <= found["added_memory_mb"] < reply["peak_memory_mb"] < 1_000
    assert found["dual_residual"] < 1e-3


def test_the_reference_is_exact_where_it_can_be(isolation):
    found = isolation.run(job("reference"))["result"]
    assert found["certainty"] == "exact"
    assert found["objective"] == pytest.approx(isolation.run(job())["result"]["objective"])


def test_a_hang_ends_at_the_time_limit(isolation):
    start = time.monotonic()
    reply = isolation.run(job(plugin="Sleeper", seconds=1.5))
    assert reply["ended"] == "time limit"
    assert "result" not in reply
    assert time.monotonic() - start < 60


def test_a_crash_is_told_by_its_signal(isolation):
    reply = isolation.run(job(plugin="Suicide"))
    assert (reply["ended"], reply["status"]) == ("crashed", "SIGSEGV")


def test_a_glutton_ends_at_the_memory_limit(isolation):
    reply = isolation.run(job(plugin="Glutton", megabytes=1_000.0))
    assert reply["ended"] == "memory limit"
    assert 1_000 <= reply["peak_memory_mb"] < 2_000


def test_an_error_of_the_solver_is_its_status(isolation):
    found = isolation.run(job(plugin="Quitter"))["result"]
    assert found["status"] == "error"
    assert "I do not feel like it" in found["message"]


def test_a_solver_that_cannot_is_unsupported(isolation):
    assert isolation.run(job("OSQP"))["result"]["status"] == "unsupported"


def test_an_error_of_ours_is_told_in_its_words(isolation):
    reply = isolation.run(job(problem_class="none such"))
    assert reply["ended"] == "error"
    assert "no subproblem 'none such'" in reply["log"]


def test_after_all_that_runs_are_as_before(isolation):
    assert isolation.run(job())["result"]["status"] == "optimal"


def test_a_server_that_is_killed_is_replaced_once_in_a_run():
    isolation = Isolation()
    isolation.run(job())
    isolation._server.kill()
    assert isolation.run(job())["ended"] == "finished"
    failed = []
    waiting = threading.Thread(target=run_and_fail, args=(isolation, failed))
    waiting.start()
    for _ in range(2):
        while not (isolation._server and children_of(isolation._server.pid)):
            time.sleep(0.01)
        family = [psutil.Process(isolation._server.pid), *children_of(isolation._server.pid)]
        family[0].kill()
        assert not psutil.wait_procs(family, timeout=10)[1], "a run outlives its server"
    waiting.join(30)
    assert "ended from outside, twice" in failed[0]
    isolation.close()


def test_what_a_solver_leaves_behind_does_not_hold_the_run(isolation):
    reply = isolation.run(job(plugin="Parent", seconds=20.0))
    assert reply["ended"] == "finished"
    left = int(reply["result"]["message"].rpartition(" ")[2])
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and lives(left):
        time.sleep(0.01)
    assert not lives(left)


def lives(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def children_of(pid):
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def run_and_fail(isolation, failed):
    try:
        isolation.run(job(plugin="Sleeper", seconds=3600.0))
    except SolverError as error:
        failed.append(str(error))


def test_closing_ends_a_run():
    isolation = Isolation()
    isolation.run(job())
    server = isolation._server.pid
    waiting = threading.Thread(target=run_and_fail, args=(isolation, []))
    waiting.start()
    while not children_of(server):
        time.sleep(0.01)
    running = children_of(server)
    isolation.close()
    waiting.join(30)
    assert not waiting.is_alive()
    assert not psutil.wait_procs(running, timeout=10)[1]


SLEEPING = """
import sys
sys.path[:0] = [{path!r}]
from convexmarket.lab.study.isolation import Isolation
isolation = Isolation()
isolation.run({first!r})
print(isolation._server.pid, flush=True)
isolation.run({endless!r})
"""


def test_nothing_is_left_of_a_study_that_was_killed():
    script = SLEEPING.format(path=str(ROOT), first=job(), endless=job(plugin="Sleeper"))
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as study:
        server = psutil.Process(int(study.stdout.readline()))
        while not server.children():
            time.sleep(0.01)
        family = [server, *server.children()]
        study.send_signal(signal.SIGKILL)
    assert not psutil.wait_procs(family, timeout=10)[1]


@pytest.mark.skipif(not can_pin(), reason="this system binds no process to a core")
def test_a_run_is_pinned_to_its_core(isolation):
    core = usable_cores()[-1]
    reply = isolation.run(job(plugin="Pinned", core=core))
    assert f"on cores [{core}]" in reply["result"]["message"]
