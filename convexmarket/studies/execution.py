"""Perform the calls of a study in parallel, and record them in a journal to resume the study.

With a time or memory limit, each call is a forked process, so a crash affects only this call.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from os import PathLike
from pathlib import Path
from typing import Any, Self

import psutil
from joblib import cpu_count
from joblib.externals import loky

from convexmarket.checks import check_count, check_instance, check_positives
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.io import sync_folder
from convexmarket.report.folders import lock
from convexmarket.studies.progress import Progress, reporter

Reply = dict[str, Any]
#: Function that a study calls. It can call its argument ``ready`` to restart the clock with a
#: multiple of the time limit.
Function = Callable[..., Reply]

_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "RAYON")}
_KILLED = {"ended": "crashed", "status": "its process was killed, probably for lack of memory"}
#: Seconds until an idle worker ends, and seconds between two measurements of a child's memory.
_IDLE, _INTERVAL = 60, 0.02
_MEGABYTE, _PR_SET_PDEATHSIG = 1e6, 1
#: First bytes of every line of a journal.
_BEGINNING = b'{"key": '


@dataclass(frozen=True)
class Execution:
    """Executor of the calls of a study, with the arguments of :meth:`Study.run`."""

    jobs: int = 1
    time_limit: float | None = None
    memory_limit: float | None = None
    journal: str | PathLike[str] | None = None
    progress: bool | Progress = True

    def __post_init__(self) -> None:
        check_count("jobs", 1 if self.jobs == -1 else self.jobs)
        limits = {"time_limit": self.time_limit, "memory_limit": self.memory_limit}
        check_positives(**{name: limit for name, limit in limits.items() if limit is not None})
        if self.journal is not None:
            check_instance("journal", self.journal, (str, PathLike), "the path of a file")
        if self._limits and not hasattr(os, "fork"):
            raise NotSupportedError(f"{' and '.join(limits)} need Linux or macOS; leave them out")

    @property
    def _limits(self) -> tuple[float, ...]:
        """Time limit (seconds) and memory limit (megabytes) of a call, or () without limits."""
        limits = self.time_limit, self.memory_limit
        return () if limits == (None, None) else tuple(limit or math.inf for limit in limits)

    def run(
        self,
        function: Function,
        calls: Mapping[str, tuple[Any, ...]],
        stage: str,
        decide: Callable[[str, Mapping[str, Reply]], Reply | None] = lambda _key, _replies: None,
    ) -> dict[str, Reply]:
        """Call a function with the arguments of each key, in order. Return the replies by key.

        In a reply, ``ended`` is "finished", "time limit", "memory limit", "crashed" or "error" (for
        an exception). A reply can also contain ``status``, the signal or exit code of a crash;
        ``log``, the text of an exception; and ``result``, the returned value. A recorded call is
        repeated only if it raised an exception. ``decide`` maps a key and the replies so far to a
        reply that makes the call unnecessary, or to None.
        """
        advance = reporter(self.progress)
        with Journal(self.journal) as journal:
            replies = {entry["key"]: entry for entry in journal.records if entry["key"] in calls}
            done = {key for key, reply in replies.items() if reply["ended"] != "error"}
            left = {key: call for key, call in calls.items() if key not in done}
            advance(stage, len(done), len(calls))
            ended = self._perform(function, left, lambda key: decide(key, replies))
            for count, (key, reply) in enumerate(ended, len(done) + 1):
                replies[key] = {"key": key, **reply}
                journal.append(replies[key])
                advance(stage, count, len(calls))
        return {key: replies[key] for key in calls}

    def _perform(
        self,
        function: Function,
        calls: Mapping[str, tuple[Any, ...]],
        known: Callable[[str], Reply | None],
    ) -> Iterator[tuple[str, Reply]]:
        jobs = min(self.jobs if self.jobs > 0 else cpu_count(), max(len(calls), 1))
        if jobs == 1 and not self._limits:
            for key, arguments in calls.items():
                yield key, known(key) or _finished(function, *arguments)
            return
        # Every worker is a separate pool, so a crash affects only this worker.
        free, left, running = [_worker() for _ in range(jobs)], deque(calls), dict[Any, Any]()
        try:
            while left or running:
                while left and free:
                    key = left.popleft()
                    if reply := known(key):
                        yield key, reply
                        continue
                    worker = free.pop()
                    how = (_in_child, *self._limits) if self._limits else (_finished,)
                    running[worker.submit(*how, function, *calls[key])] = key, worker
                for call in loky.wait(running, return_when=loky.FIRST_COMPLETED).done:
                    key, worker = running.pop(call)
                    broken = isinstance(call.exception(), BrokenProcessPool)
                    free.append(_worker() if broken else worker)
                    yield key, _KILLED if broken else call.result()
        finally:
            for worker in [*free, *(each for _, each in running.values())]:
                worker.shutdown(kill_workers=bool(running))


def _worker() -> Any:
    """Start a worker process that ignores Ctrl-C, because the study ends its workers."""
    ignore = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}
    return loky.ProcessPoolExecutor(1, timeout=_IDLE, env=_ONE_THREAD, **ignore)


def ending(reply: Mapping[str, Any]) -> str:
    """Return the last line of the exception of a failed call, or the status of the call."""
    lines = str(reply.get("log", "")).strip().splitlines()
    return "" if reply["ended"] == "finished" else [str(reply.get("status", "")), *lines][-1]


def _finished(function: Function, *arguments: Any) -> Reply:
    result = function(*arguments, ready=lambda _: None)
    return {"ended": "finished", "status": "", "log": "", "result": result}


def _in_child(seconds: float, megabytes: float, function: Function, *arguments: Any) -> Reply:
    """Perform a call in a child process, which is killed at a limit or when the study ends."""
    receiver, sender = Pipe(duplex=False)
    child: Any = get_context("fork").Process(target=_child, args=(sender, function, arguments))
    child.start()
    sender.close()
    reply: Reply = {"ended": "crashed", "status": "", "log": "", "peak_memory_mb": 0.0}
    study, deadline = os.getppid(), time.monotonic() + seconds
    with receiver, suppress(EOFError, OSError):  # the child has crashed
        while reply["ended"] == "crashed" and os.getppid() == study:
            used = 0.0
            with suppress(psutil.Error):
                used = psutil.Process(child.pid).memory_info().rss / _MEGABYTE
            reply["peak_memory_mb"] = max(reply["peak_memory_mb"], used)
            # A process that the child started can keep the channel open.
            if receiver.poll(_INTERVAL):
                message = receiver.recv()
                if isinstance(message, dict):
                    reply |= message
                    break
                deadline = time.monotonic() + message * seconds
            if time.monotonic() > deadline or used > megabytes:
                reply["ended"] = "memory limit" if used > megabytes else "time limit"
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # also kills processes that the call started
    if os.getppid() != study:
        os._exit(1)
    child.kill()
    child.join()
    if reply["ended"] == "crashed":
        code = child.exitcode
        reply["status"] = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return reply


def _child(sender: Any, function: Function, arguments: tuple[Any, ...]) -> None:
    os.setpgid(0, 0)
    if sys.platform == "linux":  # the child is killed when the worker ends
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for output in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    try:
        sender.send({"ended": "finished", "result": function(*arguments, ready=sender.send)})
    except MemoryError:
        sender.send({"ended": "memory limit"})
    except BaseException:
        sender.send({"ended": "error", "log": traceback.format_exc()})


class Journal:
    """An append-only file with one JSON record per line. Without a path, nothing is written.

    An incomplete last line is removed. One study at a time can write a journal, except on Windows.
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self._file: Any = None
        if path is None:
            return
        place = Path(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(place, "a+b")  # noqa: SIM115
        except OSError as error:
            why = f"journal: {path} cannot be written ({error.strerror}); name another file"
            raise ParameterError(why) from None
        try:
            self._open(path)
        except ParameterError:
            self._file.close()
            raise
        sync_folder(place.parent)

    def _open(self, path: Any) -> None:
        if not lock(self._file):
            raise ParameterError(f"journal: another study is writing {path}; name another file")
        self._file.seek(0)
        *whole, rest = self._file.read().split(b"\n")
        valid = rest.startswith(_BEGINNING) or _BEGINNING.startswith(rest)
        with suppress(TypeError, ValueError):
            self.records = [json.loads(line) for line in whole]
            valid = valid and all({"key", "ended"} <= set(record) for record in self.records)
            if valid:
                self._file.truncate(self._file.tell() - len(rest))
                return
        raise ParameterError(f"journal: {path} is not the journal of a study; name another file")

    def append(self, record: dict[str, Any]) -> None:
        """Add a record, and sync it to disk."""
        if self._file is not None:
            line = json.dumps(record, default=lambda value: value.tolist())
            self._file.write((line + "\n").encode())
            self._file.flush()
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()
