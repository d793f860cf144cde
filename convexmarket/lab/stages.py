"""The stages of a run: how long each took, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeAlias

from joblib import Parallel

from convexmarket.checks import check_callable

__all__ = ["Progress", "Stages"]

#: Called with the stage, the steps done and the steps in all.
Progress: TypeAlias = Callable[[str, int, int], None]


class Stages:
    """Seconds per stage, and progress within them.

    Attributes
    ----------
    seconds : dict
        Of the stages that are over, by name.
    """

    def __init__(self, progress: Progress | None) -> None:
        check_callable("progress", progress)
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def __call__(self, stage: str, total: int) -> Iterator[Callable[[], None]]:
        """Open a stage; what it gives is to be called after each of its steps."""
        start, done = time.perf_counter(), 0

        def advance() -> None:
            nonlocal done
            done += 1
            if self._progress is not None:
                self._progress(stage, done, total)

        if self._progress is not None:
            self._progress(stage, 0, total)
        yield advance
        self.seconds[stage] = time.perf_counter() - start

    def parallel(self, stage: str, jobs: int, calls: Iterable[Any]) -> list[Any]:
        """Return the results of delayed calls, in their order, shared between so many jobs.

        Raises
        ------
        MemoryError
            Also where a job was ended from outside, as a system does that runs out of memory.
        """
        calls = list(calls)
        results = []
        with self(stage, len(calls)) as advance:
            try:
                for result in Parallel(n_jobs=jobs, return_as="generator")(calls):
                    results.append(result)
                    advance()
            except BrokenProcessPool:
                raise MemoryError("the system ended a parallel job") from None
        return results

    def timings(self) -> dict[str, float]:
        """Return the seconds of every stage, and of all together as ``"total"``."""
        return {**self.seconds, "total": sum(self.seconds.values())}
