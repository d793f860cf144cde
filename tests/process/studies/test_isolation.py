"""Runs in processes of their own: what misbehaves becomes a reply, and the next run is as good."""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

import convexmarket as cm
from convexmarket.errors import SolverError
from convexmarket.studies.isolation import Isolation, usable_cores
from convexmarket.studies.measure import measure_run
from convexmarket.studies.subproblems.markets import at_best_eta
from tests import ROOT
from tests.studies.stub_solvers import Glutton, Parent, Pinned, Quitter, Sleeper, Suicide


def market(size, rng):
    prior = cm.Uniform(1, 5)
    return cm.Market.standard(cm.Sellers(prior.sample(size, rng), prior), mu=1, sigma=1, gamma=1)


def make(size, rng):
    return at_best_eta(market(size, rng))


def broken(size, rng):
    raise ValueError("no such subproblem")


def job(solver="CLARABEL", make=make):
    return measure_run, (make, 20, (0, 0), "primal", solver, {})


@pytest.fixture(scope="module")
def isolation():
    with Isolation() as result:
        yield result


def test_a_run_comes_back_with_what_was_measured(isolation):
    reply = isolation.call(*job())
    assert reply["ended"] == "finished"
    result = reply["result"]
    assert result["status"] == result["again_status"] == "optimal"
    assert result["total_s"] == pytest.approx(
        sum(result[f"{part}_s"] for part in ("declaration", "compilation", "solver", "recovery"))
    )
    assert 0 < reply["peak_memory_mb"] < 1_000
    assert result["dual_residual"] < 1e-3


def test_the_reference_is_exact_where_it_can_be(isolation):
    result = isolation.call(*job("reference"))["result"]
    assert result["certainty"] == "exact"
    assert result["objective"] == pytest.approx(isolation.call(*job())["result"]["objective"])


def test_a_hang_ends_at_the_time_limit(isolation):
    start = time.monotonic()
    reply = isolation.call(*job(Sleeper()), time_limit=1.5)
    assert reply["ended"] == "time limit"
    assert "result" not in reply
    assert time.monotonic() - start < 60


def test_a_crash_is_told_by_its_signal(isolation):
    reply = isolation.call(*job(Suicide()))
    assert (reply["ended"], reply["status"]) == ("crashed", "SIGSEGV")


def test_a_glutton_ends_at_the_memory_limit(isolation):
    reply = isolation.call(*job(Glutton()), memory_limit=1_000.0)
    assert reply["ended"] == "memory limit"
    assert 1_000 <= reply["peak_memory_mb"] < 2_000


def test_an_error_of_the_solver_is_its_status(isolation):
    result = isolation.call(*job(Quitter()))["result"]
    assert result["status"] == "error"
    assert "I do not feel like it" in result["message"]


def test_a_solver_that_cannot_is_unsupported(isolation):
    assert isolation.call(*job("OSQP"))["result"]["status"] == "unsupported"


def test_an_error_of_ours_is_told_in_its_words(isolation):
    reply = isolation.call(*job(make=broken))
    assert reply["ended"] == "error"
    assert "no such subproblem" in reply["log"]


def test_after_all_that_runs_are_as_before(isolation):
    assert isolation.call(*job())["result"]["status"] == "optimal"


def test_a_server_that_is_killed_is_replaced_once_in_a_run():
    isolation = Isolation()
    isolation.call(*job())
    isolation._server.kill()
    assert isolation.call(*job())["ended"] == "finished"
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
    assert "was killed twice" in failed[0]
    isolation.close()


def test_what_a_solver_leaves_behind_does_not_hold_the_run(isolation):
    reply = isolation.call(*job(Parent()), time_limit=20.0)
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
        isolation.call(*job(Sleeper()), time_limit=3600.0)
    except SolverError as error:
        failed.append(str(error))


def test_closing_ends_a_run():
    isolation = Isolation()
    isolation.call(*job())
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
from convexmarket.studies.isolation import Isolation
from tests.process.studies.test_isolation import Sleeper, job
isolation = Isolation()
isolation.call(*job())
print(isolation._server.pid, flush=True)
isolation.call(*job(Sleeper()))
"""


def test_nothing_is_left_of_a_study_that_was_killed():
    script = SLEEPING.format(path=str(ROOT))
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as study:
        server = psutil.Process(int(study.stdout.readline()))
        while not server.children():
            time.sleep(0.01)
        family = [server, *server.children()]
        study.send_signal(signal.SIGKILL)
    assert not psutil.wait_procs(family, timeout=10)[1]


@pytest.mark.skipif(usable_cores()[0] < 0, reason="this system binds no process to a core")
def test_a_run_is_pinned_to_its_core(isolation):
    core = usable_cores()[-1]
    reply = isolation.call(*job(Pinned()), core=core)
    assert f"on cores [{core}]" in reply["result"]["message"]
