"""Run a target on many examples, each in bounded time, and say what happened to it."""

from __future__ import annotations

import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from sklearn.exceptions import NotFittedError

import convexmarket as cm

#: What a caller has to expect; anything else that is raised is a defect.
EXPECTED = (cm.ConvexMarketError, NotFittedError)


class WrongAnswerError(AssertionError):
    """A result that an oracle or an invariant refutes."""


class TooSlow(BaseException):
    """An example took longer than its limit; no ``except Exception`` may swallow it."""


@dataclass(frozen=True)
class Target:
    """Something to fuzz.

    ``check`` returns "accepted" or "refused" in a word, and raises whatever was not expected.
    """

    name: str
    examples: SearchStrategy[Any]
    check: Callable[[Any], str]
    seconds: float = 5.0


@dataclass
class Tally:
    """What happened to the examples of one target, and one example of each kind of failure."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())

    def fail(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        known = self.failures.get(kind)
        if known is None or len(example) < len(known):
            self.failures[kind] = example


def require(condition: Any, *message: Any) -> None:
    """Raise WrongAnswerError unless the condition holds."""
    if not condition:
        raise WrongAnswerError(" ".join(str(part) for part in message))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what computes for longer, by a signal; a busy machine does not count."""

    def ring(number: int, frame: Any) -> None:
        raise TooSlow(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(target: Target, example: Any) -> str:
    """Return what happened to one example; raise what was not expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with time_limit(target.seconds):
                return target.check(example)
        except EXPECTED:
            return "refused"
        except (TypeError, ValueError) as error:
            if from_sklearn(error):
                return "refused"
            raise


def from_sklearn(error: BaseException) -> bool:
    """Whether scikit-learn itself refused the data of an estimator, as all its estimators do."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return any("sklearn/utils/validation" in file for file in files[-4:])


def campaign(target: Target, examples: int, first_seed: int, tally: Tally) -> None:
    """Run a target on so many examples, collecting failures instead of stopping at them."""

    def one(example: Any) -> None:
        try:
            tally.outcomes[outcome(target, example)] += 1
        except (Exception, TooSlow) as error:
            tally.outcomes["failed"] += 1
            tally.fail(kind_of(error), shown(example))

    run = settings(
        max_examples=examples,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(given(target.examples)(one))
    since = time.process_time()
    seed(first_seed)(run)()
    tally.seconds += time.process_time() - since


def kind_of(error: BaseException) -> str:
    """Return what identifies a failure: its type, its words, and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/convexmarket/" in frame.filename] or frames
    last = ours[-1]
    place = f"{last.filename.rpartition('/convexmarket/')[2]}:{last.lineno}"
    words = " ".join(str(error).split())[:90]
    if isinstance(error, WrongAnswerError):
        test = next(f for f in reversed(frames) if f.filename != __file__)
        return f"{test.name}:{test.lineno}: {words[:60]}"
    return f"{type(error).__name__} at {place}: {words}"


def shown(example: Any, limit: int = 3000) -> str:
    """Return an example in words."""
    text = repr(example)
    return text if len(text) <= limit else text[:limit] + "..."
