"""The calls of a study: in parallel, with limits, recorded in a journal, resumed from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from os import PathLike
from typing import Any

import joblib

from convexmarket.checks import check_jobs, check_positive
from convexmarket.errors import NotSupportedError, SolverError
from convexmarket.studies.isolation import call_isolated, usable_cores
from convexmarket.studies.journal import Journal
from convexmarket.studies.progress import Progress, reporter

__all__ = ["Execution", "Reply", "Task"]

Reply = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """One call of a study.

    Attributes
    ----------
    function : callable
        Called with the arguments and ``ready``, a callable that marks the end of the preparation;
        returns a dict of plain values.
    arguments : tuple
    patience : float
        Factor of the time limit.
    """

    function: Callable[..., Reply]
    arguments: tuple[Any, ...]
    patience: float = 1.0


def _undecided(_key: str, _replies: Mapping[str, Reply]) -> Reply | None:
    return None


@dataclass(frozen=True)
class Execution:
    """Execution of the calls of a study, by the arguments of :meth:`Study.run`.

    With a limit of time or memory each call runs in a separate process, bound to a core if ``pin``.
    """

    jobs: int = 1
    time_limit: float | None = None
    memory_limit: float | None = None
    journal: str | PathLike[str] | None = None
    progress: bool | Progress = True
    pin: bool = False

    def __post_init__(self) -> None:
        check_jobs(self.jobs)
        for name in ("time_limit", "memory_limit"):
            if (limit := getattr(self, name)) is not None:
                check_positive(name, limit)
        if self._isolated and not hasattr(os, "fork"):
            raise NotSupportedError(
                "limits of time and memory need fork; run on Linux or macOS, or leave out "
                "time_limit and memory_limit"
            )

    @property
    def _isolated(self) -> bool:
        return not (self.time_limit is None and self.memory_limit is None)

    def run(
        self,
        tasks: Mapping[str, Task],
        stage: str,
        decide: Callable[[str, Mapping[str, Reply]], Reply | None] = _undecided,
    ) -> dict[str, Reply]:
        """Perform the calls without a record, in order, and return the replies by key.

        A call that ended in an exception is performed again. ``decide`` maps a key and the replies
        so far to a reply that makes the call unnecessary, or None.
        """
        advance = reporter(self.progress)
        with Journal(self.journal) as journal:
            replies = {entry["key"]: entry for entry in journal.records if entry["key"] in tasks}
            done = {key for key, reply in replies.items() if reply["ended"] != "error"}
            left = [key for key in tasks if key not in done]
            advance(stage, len(done), len(tasks))
            calls = (
                joblib.delayed(self._perform)(key, tasks[key], decide(key, replies)) for key in left
            )
            for count, (key, reply) in enumerate(self._parallel(calls), len(done) + 1):
                replies[key] = {"key": key, **reply}
                journal.append(replies[key])
                advance(stage, count, len(tasks))
        return {key: replies[key] for key in tasks}

    def _parallel(self, calls: Iterator[Any]) -> Iterator[tuple[str, Reply]]:
        cores = len(usable_cores())
        parallel = joblib.Parallel(
            min(self.jobs, cores) if self.jobs > 0 else cores,
            backend="threading" if self._isolated else "loky",
            batch_size=1,
            pre_dispatch="n_jobs",
            return_as="generator_unordered",
        )
        try:
            yield from parallel(calls)
        except BrokenProcessPool:
            raise SolverError(
                "the system ended a worker process, as it does when memory runs out; use fewer "
                "jobs, or set memory_limit"
            ) from None

    def _perform(self, key: str, task: Task, known: Reply | None) -> tuple[str, Reply]:
        if known is not None:
            return key, known
        if not self._isolated:
            result = task.function(*task.arguments, ready=lambda: None)
            return key, {"ended": "finished", "status": "", "log": "", "result": result}
        limit = None if self.time_limit is None else task.patience * self.time_limit
        return key, call_isolated(
            task.function,
            task.arguments,
            pin=self.pin,
            time_limit=limit,
            memory_limit=self.memory_limit,
        )
