"""The process that runs are forked from: libraries loaded once, nothing else.

Started by :class:`convexmarket.lab.study.isolation.Isolation` as ``python -m
convexmarket.lab.study.server``. It reads one job per line, forks a child for it, watches the
child's time and memory, and writes one line about how it ended. A solver that crashes, hangs or
eats the memory takes no other process with it. When its input ends, the process that started it is
gone: it kills the child and leaves.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from typing import IO, Any

import psutil

from convexmarket.allocation.solvers import solver_version
from convexmarket.lab.study.families import build_instance
from convexmarket.lab.study.measure import EXACT, REFERENCE, measure, measure_reference, warm_up
from convexmarket.lab.study.plugins import load_plugin

__all__ = ["main", "perform"]

#: Seconds between two looks at a child's memory.
_INTERVAL = 0.02
#: How much of what a solver printed is kept, from its end.
_LOG = 2_000
_PR_SET_PDEATHSIG = 1
_MEGABYTE = 1e6


def main() -> None:
    """Serve until the input ends."""
    jobs, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # solvers print; the replies have a channel of their own
    gc.collect()
    gc.freeze()
    with os.fdopen(jobs) as lines, os.fdopen(answers, "w") as replies:
        for line in lines:
            replies.write(json.dumps(_isolated(json.loads(line), jobs, answers)) + "\n")
            replies.flush()


def perform(job: dict[str, Any]) -> dict[str, Any]:
    """Build the instance of a job and measure it; in the process of the caller.

    Parameters
    ----------
    job : dict
        ``problem`` (path, text, overrides), ``problem_class``, ``instance``, ``size``, ``seed``,
        ``formulation``, ``solver``, ``plugin`` ("module:Class" or ""), ``options``.
    """
    instance = build_instance(job)
    solver = load_plugin(job["plugin"])() if job["plugin"] else job["solver"]
    if job["solver"] not in (EXACT, REFERENCE):
        warm_up(solver)
    _say({"ready": True}, job)
    before = psutil.Process().memory_info().rss
    if job["solver"] == REFERENCE:
        row = measure_reference(instance)
    else:
        row = measure(instance, job["formulation"], solver, job["options"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _maxrss_unit()
    row["solver_version"] = "" if job["solver"] in (EXACT, REFERENCE) else _version(job)
    row["added_memory_mb"] = max(0.0, peak - before) / _MEGABYTE
    return row


def _version(job: dict[str, Any]) -> str:
    return "" if job["plugin"] else solver_version(job["solver"])


def _maxrss_unit() -> int:
    return 1 if sys.platform == "darwin" else 1024


def _say(message: dict[str, Any], job: dict[str, Any]) -> None:
    """Write a line to the watching process, if there is one."""
    if "channel" in job:
        os.write(job["channel"], (json.dumps(message) + "\n").encode())


def _isolated(job: dict[str, Any], jobs: int, answers: int) -> dict[str, Any]:
    """Run a job in a child and return how it ended."""
    receiver, sender = os.pipe()
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            _child(job | {"channel": sender}, (receiver, jobs, answers), log)
        os.close(sender)
        try:
            return _watch(child, receiver, job, jobs) | {"log": _tail(log)}
        finally:
            os.close(receiver)


def _child(job: dict[str, Any], of_server: tuple[int, ...], log: IO[bytes]) -> None:
    """Do the work, say what came of it, and end without the cleaning up of the parent."""
    code = 1
    try:
        os.setpgid(0, 0)
        _end_with_server()
        for file in of_server:  # or nobody would notice that the server is gone
            os.close(file)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        if job["core"] >= 0:
            os.sched_setaffinity(0, {job["core"]})
        _say({"result": perform(job)}, job)
        code = 0
    except MemoryError:
        _say({"ended": "memory limit"}, job)
    except BaseException:  # none of a solver while it solves: those are its status
        os.write(2, traceback.format_exc().encode())
        _say({"ended": "error"}, job)
    finally:
        os._exit(code)


def _end_with_server() -> None:
    """Ask Linux to kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(child: int, receiver: int, job: dict[str, Any], jobs: int) -> dict[str, Any]:
    """Wait for a child to end, or end it."""
    heard, ended, peak = b"", "", 0
    deadline = time.monotonic() + job["seconds"]  # to build the instance; then anew
    open_channel = True
    while open_channel:
        readable = select.select([receiver, jobs], [], [], _INTERVAL)[0]
        if receiver in readable:
            piece = os.read(receiver, 65536)
            open_channel = bool(piece)
            if b'"ready"' in piece:
                deadline = time.monotonic() + job["seconds"]
            heard += piece
            # A solver may have left a process that holds the channel.
            open_channel = open_channel and not (b'"result"' in heard and heard.endswith(b"\n"))
        if jobs in readable:  # nobody sends a second job before the first has ended
            os.killpg(child, signal.SIGKILL)
            os._exit(1)
        used = _memory(child)
        peak = max(peak, used)
        if time.monotonic() > deadline:
            ended = "time limit"
        elif used > job["megabytes"] * _MEGABYTE:
            ended = "memory limit"
        if ended:
            os.killpg(child, signal.SIGKILL)
            break
    _, status, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a solver left behind
    reply: dict[str, Any] = {"ended": ended or "finished", "status": ""}
    for line in heard.splitlines():
        with contextlib.suppress(ValueError):  # of a child that was killed while it wrote
            reply |= json.loads(line)
    if not ended and os.WIFSIGNALED(status):
        reply |= {"ended": "crashed", "status": signal.Signals(os.WTERMSIG(status)).name}
    elif not ended and "result" not in reply and reply["ended"] == "finished":
        reply |= {"ended": "crashed", "status": f"exit code {os.waitstatus_to_exitcode(status)}"}
    reply["peak_memory_mb"] = max(peak, usage.ru_maxrss * _maxrss_unit()) / _MEGABYTE
    return reply


def _memory(child: int) -> int:
    try:
        return int(psutil.Process(child).memory_info().rss)
    except psutil.Error:
        return 0


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG))
    return log.read().decode(errors="replace").strip()


if __name__ == "__main__":
    main()
