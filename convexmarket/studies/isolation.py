"""Calls in separate processes, with limits on time and memory; on Linux and macOS.

A server process loads the libraries once and forks a child for each call. A solver that crashes,
hangs or exhausts the memory affects no other process. The server ends when its input does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

import cloudpickle
import psutil

from convexmarket.errors import SolverError

__all__ = ["Isolation", "call_isolated", "usable_cores"]

Reply = dict[str, Any]
#: A pickled function with its arguments, seconds, megabytes and core; None and -1 for no limit.
Job = tuple[bytes, float | None, float | None, int]

MEGABYTE = 1e6
_THREADS = ("OPENBLAS", "OMP", "MKL", "RAYON", "NUMEXPR")
#: Seconds after which a server that has not ended is killed.
_FAREWELL = 5.0
#: Seconds between two measurements of a child's memory.
_INTERVAL = 0.02
#: Number of bytes returned from the end of a child's output.
_LOG = 2_000
_PR_SET_PDEATHSIG = 1


def usable_cores() -> list[int]:
    """Return the cores that this process may use; -1 where processes cannot be bound to cores."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return [-1] * (os.cpu_count() or 1)


class Isolation(AbstractContextManager["Isolation"]):
    """A server process that forks one child for each call; a context manager."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._paths = ""

    def call(
        self,
        function: Callable[..., Reply],
        arguments: tuple[Any, ...] = (),
        *,
        time_limit: float | None = None,
        memory_limit: float | None = None,
        core: int = -1,
    ) -> Reply:
        """Call a function in a child of the server; return the result and the kind of ending.

        The function is called with the arguments and ``ready``, which restarts the clock of the
        time limit (seconds; the memory limit is in megabytes). In the reply, ``ended`` is
        "finished", "time limit", "memory limit", "crashed" or "error" (an exception), ``status``
        the signal or exit code of a crash, ``log`` the end of the output, and ``result`` the
        returned value; ``peak_memory_mb`` is measured.

        Raises
        ------
        SolverError
            If the server is killed twice.
        """
        job = (cloudpickle.dumps((function, arguments)), time_limit, memory_limit, core)
        reply = self._ask(job) or self._ask(job)
        if reply is None:
            raise SolverError(
                "the server process of the runs was killed twice; the memory may be full. Use "
                "fewer jobs; finished runs are recorded"
            )
        return reply

    def _ask(self, job: Job) -> Reply | None:
        """Return the server's reply; None if the server has ended."""
        if self._closed:
            return None
        server, reply = self._running(), None
        with suppress(OSError, EOFError):
            self._jobs.send(job)
            reply = self._replies.recv()
        if reply is None and self._server is server:
            self._end()
        return reply

    def close(self) -> None:
        """End the server and its call."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._jobs.close()
            try:
                server.wait(_FAREWELL)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        if paths != self._paths:  # the import path may have changed
            self._end()
        self._paths = paths
        if self._server is None:
            jobs, self._jobs = Pipe(duplex=False)
            self._replies, replies = Pipe(duplex=False)
            threads = {f"{name}_NUM_THREADS": "1" for name in _THREADS}
            self._server = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()"],
                stdin=jobs.fileno(),
                stdout=replies.fileno(),
                env={**os.environ, **threads, "PYTHONPATH": paths},
                start_new_session=True,  # the study handles Ctrl-C and closes its servers
            )
            jobs.close()
            replies.close()
        return self._server

    def __exit__(self, *error: object) -> None:
        self.close()


_of_thread = threading.local()
_threads = itertools.count()


def call_isolated(
    function: Callable[..., Reply], arguments: Any, *, pin: bool, **limits: Any
) -> Reply:
    """Call a function in the server of this thread, on a core of this thread if asked.

    The server ends with the calling process. The reply also names core and processor.
    """
    if not hasattr(_of_thread, "isolation"):
        _of_thread.isolation = Isolation()
        cores = usable_cores()
        _of_thread.core = cores[next(_threads) % len(cores)]
    core = _of_thread.core if pin else -1
    reply: Reply = _of_thread.isolation.call(function, arguments, core=core, **limits)
    return reply | {"core": core, "processor": processor()}


@cache
def processor() -> str:
    """Return the name of this machine's processor, from the system or from Python."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# ------------------------------------------------------------------------- in the server


def serve() -> None:
    """Perform calls until the input ends."""
    jobs, replies = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # solvers print; replies use a separate channel
    gc.collect()
    gc.freeze()
    with suppress(EOFError):
        while True:
            replies.send(_perform(jobs.recv(), jobs, replies))


def _perform(job: Job, jobs: Connection, replies: Connection) -> Reply:
    receiver, sender = Pipe(duplex=False)
    with tempfile.TemporaryFile() as log, receiver:
        child = os.fork()
        if child == 0:
            _child(job, sender, (receiver, jobs, replies), log)
        sender.close()
        reply = _watch(child, receiver, job, jobs)
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG))
        return reply | {"log": log.read().decode(errors="replace").strip()}


def _child(job: Job, sender: Connection, of_server: tuple[Connection, ...], log: IO[bytes]) -> None:
    """Perform the call, send its result, and exit without the parent's clean-up."""
    content, _, _, core = job
    try:
        os.setpgid(0, 0)
        if sys.platform == "linux":  # the child is killed when the server ends
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for channel in of_server:  # an open copy would hide the end of the server
            channel.close()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        if core >= 0:
            os.sched_setaffinity(0, {core})
        function, arguments = cloudpickle.loads(content)
        result = function(*arguments, ready=lambda: sender.send("ready"))
        sender.send({"result": result})
    except MemoryError:
        sender.send({"ended": "memory limit"})
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        sender.send({"ended": "error"})
    finally:
        os._exit(0)


def _watch(child: int, receiver: Connection, job: Job, jobs: Connection) -> Reply:
    """Wait for a child to end, or kill it at a limit."""
    seconds, megabytes = (math.inf if limit is None else limit for limit in job[1:3])
    reply: Reply = {"ended": "crashed", "status": ""}
    peak, deadline = 0.0, time.monotonic() + seconds
    while True:
        # A process started by the child may still hold the channel open.
        readable = wait([receiver, jobs], _INTERVAL)
        if receiver in readable:
            try:
                message = receiver.recv()
            except (EOFError, OSError):
                break
            if message != "ready":
                reply |= {"ended": "finished"} | message
                break
            deadline = time.monotonic() + seconds
        if jobs in readable:  # input before the end of a call: the study has ended
            os.killpg(child, signal.SIGKILL)
            os._exit(1)
        used = 0.0
        with suppress(psutil.Error):
            used = psutil.Process(child).memory_info().rss / MEGABYTE
        peak = max(peak, used)
        if time.monotonic() > deadline or used > megabytes:
            reply["ended"] = "memory limit" if used > megabytes else "time limit"
            os.killpg(child, signal.SIGKILL)
            break
    _, status, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that the call started
    if reply["ended"] == "crashed":
        code = os.waitstatus_to_exitcode(status)
        reply["status"] = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    unit = 1 if sys.platform == "darwin" else 1024
    return reply | {"peak_memory_mb": max(peak, usage.ru_maxrss * unit / MEGABYTE)}
