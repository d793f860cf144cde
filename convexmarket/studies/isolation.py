"""Calls in separate processes, with limits on time and memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import IO, Any

import cloudpickle

from convexmarket.errors import SolverError
from convexmarket.studies.cores import usable_cores

__all__ = ["LENGTH", "Isolation", "call_isolated", "read_message", "write_message"]

_ONE_THREAD = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
#: Seconds that a server has to end a call and itself.
_FAREWELL = 5.0
#: Bytes of the length that precedes a message.
LENGTH = 8


def write_message(stream: IO[bytes], message: Any) -> None:
    """Write an object to a pipe, preceded by its length."""
    content = pickle.dumps(message)
    stream.write(len(content).to_bytes(LENGTH, "big") + content)
    stream.flush()


def read_message(stream: IO[bytes]) -> Any:
    """Read the next object of :func:`write_message`; None at the end of the stream."""
    length = stream.read(LENGTH)
    content = stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH else b""
    return pickle.loads(content) if content else None


class Isolation(AbstractContextManager["Isolation"]):
    """A server process that forks one child for each call.

    Use as a context manager, or :meth:`close` it.
    """

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._paths = ""

    def call(
        self,
        function: Callable[..., dict[str, Any]],
        arguments: tuple[Any, ...] = (),
        *,
        time_limit: float | None = None,
        memory_limit: float | None = None,
        core: int = -1,
    ) -> dict[str, Any]:
        """Call a function in a child of the server and return how the call ended.

        Parameters
        ----------
        function : callable
            Called with the arguments and ``ready``, a function that restarts the clock of the time
            limit: what comes before it is preparation.
        arguments : tuple
        time_limit : float, optional
            Seconds, before and again after ``ready``.
        memory_limit : float, optional
            Megabytes of the child.
        core : int, default -1
            The core that the child is bound to; -1 for any.

        Returns
        -------
        dict
            ``ended``: "finished", "time limit", "memory limit", "crashed" or "error" (an
            exception); ``status``: signal or exit code of a crash; ``log``: the end of the output;
            ``peak_memory_mb``; ``result``: the returned value of a call that finished.

        Raises
        ------
        SolverError
            If the server is killed twice.
        """
        job = (cloudpickle.dumps((function, arguments)), time_limit, memory_limit, core)
        reply: dict[str, Any] | None = self._ask(job) or self._ask(job)
        if reply is None:
            raise SolverError(
                "the process that runs are forked from was ended from outside, twice; is the "
                "memory of the machine full? Use fewer jobs; finished runs are recorded"
            )
        return reply

    def _ask(self, job: tuple[Any, ...]) -> Any:
        """Return the server's reply; None if it has ended."""
        if self._closed:
            return None
        server = self._running()
        assert server.stdin is not None
        assert server.stdout is not None
        reply = None
        with contextlib.suppress(BrokenPipeError):
            write_message(server.stdin, job)
            reply = read_message(server.stdout)
        if reply is None and self._server is server:
            self._end()
        return reply

    def close(self) -> None:
        """End the server and its call; the server also ends when its input does."""
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

    def _running(self) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        if paths != self._paths:  # a module of the user's may lie in a new place
            self._end()
        self._paths = paths
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "convexmarket.studies.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": paths},
                start_new_session=True,  # Ctrl-C is for the study, which then closes its servers
            )
        return self._server

    def __exit__(self, *error: object) -> None:
        self.close()


_of_thread = threading.local()
_threads = itertools.count()


def call_isolated(
    function: Callable[..., dict[str, Any]],
    arguments: tuple[Any, ...],
    *,
    time_limit: float | None,
    memory_limit: float | None,
    pin: bool,
) -> dict[str, Any]:
    """Call a function in the server of this thread, pinned to a core of this thread if asked.

    The server ends with the calling process. The reply also names core and processor.
    """
    if not hasattr(_of_thread, "isolation"):
        _of_thread.isolation = Isolation()
        cores = usable_cores()
        _of_thread.core = cores[next(_threads) % len(cores)]
    core = _of_thread.core if pin else -1
    reply: dict[str, Any] = _of_thread.isolation.call(
        function, arguments, time_limit=time_limit, memory_limit=memory_limit, core=core
    )
    return reply | {"core": core, "processor": processor()}


@cache
def processor() -> str:
    """Return the name of this machine's processor, if the system provides it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
