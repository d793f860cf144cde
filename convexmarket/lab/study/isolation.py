"""Runs in processes of their own, with limits on time and memory."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

from convexmarket.errors import SolverError
from convexmarket.lab.study.cores import usable_cores

__all__ = ["Isolation", "run_isolated"]

_ONE_THREAD = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


#: Seconds that a server has to end a run and itself.
_FAREWELL = 5.0


class Isolation(AbstractContextManager["Isolation"]):
    """A server process, and one run after the other in children of it.

    Use as a context manager, or :meth:`close` it.
    """

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._closed = False
        self._paths = ""

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a job and return how it ended.

        Parameters
        ----------
        job : dict
            What :func:`convexmarket.lab.study.server.perform` takes, and ``seconds``, ``megabytes``
            and ``core`` (-1: anywhere).

        Returns
        -------
        dict
            ``ended``: "finished", "time limit", "memory limit", "crashed", or "error" of an
            exception that is none of the solver's; ``status``: signal or exit code of a crash;
            ``processor``: where it ran; ``log``: the end of what was printed; ``peak_memory_mb``;
            ``result``: what was measured, of a run that finished.

        Raises
        ------
        SolverError
            If the server ends, and another one does so too: no fault of the solver, which runs in
            a child.
        """
        reply = self._ask(job) or self._ask(job)
        if not reply:
            raise SolverError(
                "the process that runs are forked from was ended from outside, twice; is the "
                "memory of the machine full? Take fewer --jobs; what was run is recorded"
            )
        found: dict[str, Any] = json.loads(reply)
        return found

    def _ask(self, job: dict[str, Any]) -> str:
        """Return a server's reply, or nothing if it has ended."""
        if self._closed:
            return ""
        server = self._running()
        assert server.stdin is not None
        assert server.stdout is not None
        reply = ""
        with contextlib.suppress(BrokenPipeError):
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            reply = server.stdout.readline()
        if not reply and self._server is server:
            self._end()
        return reply

    def close(self) -> None:
        """End the server, and a run if there is one; it does so itself when its input ends."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        assert server.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            server.stdin.close()
        try:
            server.wait(_FAREWELL)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def _running(self) -> subprocess.Popen[str]:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        if paths != self._paths:  # a solver of a user's own may lie in a new place
            self._end()
        self._paths = paths
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "convexmarket.lab.study.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": paths},
                text=True,
                start_new_session=True,  # Ctrl-C is for the study, which then closes its servers
            )
        return self._server

    def __exit__(self, *error: object) -> None:
        self.close()


_of_thread = threading.local()
_threads = itertools.count()


def run_isolated(job: dict[str, Any], pin: bool = True) -> dict[str, Any]:
    """Run a job in a server of this thread's own, pinned to a core of this thread.

    The server ends with the process that this is called in.
    """
    if not hasattr(_of_thread, "isolation"):
        _of_thread.isolation = Isolation()
        cores = usable_cores()
        _of_thread.core = cores[next(_threads) % len(cores)]
    core = _of_thread.core if pin else -1
    reply: dict[str, Any] = _of_thread.isolation.run(job | {"core": core})
    return reply | {"core": core, "processor": processor()}


@cache
def processor() -> str:
    """Return the name of this machine's processor, where the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
