"""The process that calls are forked from: libraries are loaded once, and nothing else happens.

:class:`convexmarket.studies.isolation.Isolation` starts it as ``python -m
convexmarket.studies.server``. It reads one call at a time, forks a child for it, watches the
child's time and memory, and writes how the child ended. A solver that crashes, hangs or exhausts
the memory affects no other process. The end of the input means that the study is gone: the server
kills the child and exits.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback
from typing import IO, Any

import cloudpickle
import psutil

import convexmarket.studies.solvers
import convexmarket.studies.study  # noqa: F401
from convexmarket.studies.isolation import LENGTH, read_message, write_message
from convexmarket.studies.measure import MEGABYTE, maxrss_unit

__all__ = ["main"]

#: Seconds between two measurements of a child's memory.
_INTERVAL = 0.02
#: Bytes of a child's output that are returned, from its end.
_LOG = 2_000
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the input ends."""
    jobs, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # solvers print; the replies have a separate channel
    gc.collect()
    gc.freeze()
    with os.fdopen(jobs, "rb", buffering=0) as requests, os.fdopen(answers, "wb") as replies:
        while (job := read_message(_Whole(requests))) is not None:  # type: ignore[arg-type]
            write_message(replies, _isolated(job, jobs, answers))


class _Whole:
    """An unbuffered stream whose reads return all requested bytes, unless it ends."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Read that many bytes, fewer only at the end."""
        content = b""
        while len(content) < size and (piece := self._stream.read(size - len(content))):
            content += piece
        return content


def _isolated(job: tuple[Any, ...], jobs: int, answers: int) -> dict[str, Any]:
    """Perform a call in a child and return how it ended."""
    receiver, sender = os.pipe()
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            _child(job, sender, (receiver, jobs, answers), log)
        os.close(sender)
        try:
            return _watch(child, receiver, job, jobs) | {"log": _tail(log)}
        finally:
            os.close(receiver)


def _child(job: tuple[Any, ...], sender: int, of_server: tuple[int, ...], log: IO[bytes]) -> None:
    """Perform the call, send its result, and exit without the parent's clean-up."""
    content, _, _, core = job
    channel = os.fdopen(sender, "wb")
    try:
        os.setpgid(0, 0)
        _end_with_server()
        for file in of_server:  # otherwise the end of the server would go unnoticed
            os.close(file)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        if core >= 0:
            os.sched_setaffinity(0, {core})
        function, arguments = cloudpickle.loads(content)
        result = function(*arguments, ready=lambda: write_message(channel, "ready"))
        write_message(channel, {"result": result})
    except MemoryError:
        write_message(channel, {"ended": "memory limit"})
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        write_message(channel, {"ended": "error"})
    finally:
        os._exit(0)


def _end_with_server() -> None:
    """Ask Linux to kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(child: int, receiver: int, job: tuple[Any, ...], jobs: int) -> dict[str, Any]:
    """Wait for a child to end, or kill it at a limit."""
    seconds = math.inf if job[1] is None else job[1]
    largest = math.inf if job[2] is None else job[2] * MEGABYTE
    received, ended, peak = b"", "", 0
    messages: list[Any] = []
    deadline = time.monotonic() + seconds
    while not any(isinstance(message, dict) for message in messages):
        # A process that the child leaves behind may hold the channel open.
        readable = select.select([receiver, jobs], [], [], _INTERVAL)[0]
        if receiver in readable:
            piece = os.read(receiver, 1 << 20)
            received += piece
            arrived, received = _messages(received)
            messages += arrived
            if "ready" in arrived:
                deadline = time.monotonic() + seconds
            if not piece:
                break
        if jobs in readable:  # no second call arrives before the first ends: the study is gone
            os.killpg(child, signal.SIGKILL)
            os._exit(1)
        used = _memory(child)
        peak = max(peak, used)
        if time.monotonic() > deadline:
            ended = "time limit"
        elif used > largest:
            ended = "memory limit"
        if ended:
            os.killpg(child, signal.SIGKILL)
            break
    _, status, usage = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that the call left behind
    reply: dict[str, Any] = {"ended": ended or "finished", "status": ""}
    for message in messages:
        reply |= message if isinstance(message, dict) else {}
    if not ended and os.WIFSIGNALED(status):
        reply |= {"ended": "crashed", "status": signal.Signals(os.WTERMSIG(status)).name}
    elif not ended and "result" not in reply and reply["ended"] == "finished":
        reply |= {"ended": "crashed", "status": f"exit code {os.waitstatus_to_exitcode(status)}"}
    reply["peak_memory_mb"] = max(peak, usage.ru_maxrss * maxrss_unit()) / MEGABYTE
    return reply


def _messages(received: bytes) -> tuple[list[Any], bytes]:
    """Return the complete messages, and the bytes of an incomplete one."""
    messages = []
    while len(received) >= LENGTH:
        end = LENGTH + int.from_bytes(received[:LENGTH], "big")
        if len(received) < end:
            break
        messages.append(pickle.loads(received[LENGTH:end]))
        received = received[end:]
    return messages, received


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
