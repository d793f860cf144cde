"""Runs in processes of their own, with limits on time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any, Self

from convexmarket.study.cores import lent_core

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


class Isolation:
    """A server process, and one run after the other in children of it.

    Use as a context manager, or :meth:`close` it.
    """

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a job and return how it ended.

        Parameters
        ----------
        job : dict
            What :func:`convexmarket.study.server.perform` takes, and ``seconds``, ``megabytes``
            and ``core`` (-1: anywhere).

        Returns
        -------
        dict
            ``ended``: "finished", "time limit", "memory limit" or "crashed"; ``status``: signal or
            exit code of a crash; ``log``: the end of what was printed; ``peak_memory_mb``;
            ``result``: what was measured, of a run that finished.
        """
        server = self._running()
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            reply = server.stdout.readline()
        except BrokenPipeError:
            reply = ""
        if not reply:
            self.close()
            return {
                "ended": "crashed",
                "status": "the process that runs are forked from ended",
                "log": "",
                "peak_memory_mb": float("nan"),
            }
        found: dict[str, Any] = json.loads(reply)
        return found

    def close(self) -> None:
        """End the server, and a run if there is one; it does so itself when its input ends."""
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
        if self._server is None:
            paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
            self._server = subprocess.Popen(
                [sys.executable, "-m", "convexmarket.study.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": paths},
                text=True,
                start_new_session=True,  # Ctrl-C is for the study, which then closes its servers
            )
        return self._server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_of_thread = threading.local()


def run_isolated(job: dict[str, Any], pin: bool = True) -> dict[str, Any]:
    """Run a job in a server of this thread's own, pinned to a core that no other run uses.

    The server ends with the process that this is called in.
    """
    if not hasattr(_of_thread, "isolation"):
        _of_thread.isolation = Isolation()
    if not pin:
        reply: dict[str, Any] = _of_thread.isolation.run(job | {"core": -1})
        return reply | {"core": -1}
    with lent_core() as core:
        reply = _of_thread.isolation.run(job | {"core": core})
        return reply | {"core": core}
