"""Run one example of a target in bounded time and classify its outcome."""

from __future__ import annotations

import faulthandler
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy
from sklearn.exceptions import NotFittedError

import convexmarket as cm

#: Errors that a caller must expect. All other exceptions are defects.
EXPECTED = (cm.ConvexMarketError, NotFittedError)
#: Time limit in seconds after which a hang in compiled code ends the process with a traceback.
HANG = 600.0


class WrongAnswerError(AssertionError):
    """Raised when a result contradicts an oracle or an invariant."""


class TooSlow(BaseException):
    """Raised when an example exceeds its time limit. ``except Exception`` does not catch it."""


@dataclass(frozen=True)
class Target:
    """Function ``check`` to fuzz, with the Hypothesis strategy for its examples.

    ``check`` returns "accepted" or "refused", and does not catch unexpected errors. An example can
    take at most ``seconds``. ``weight`` multiplies the number of examples.
    """

    name: str
    examples: SearchStrategy[Any]
    check: Callable[[Any], str]
    seconds: float = 5.0
    weight: int = 1


def require(condition: Any, *message: Any) -> None:
    """Raise WrongAnswerError if the condition does not hold."""
    if not condition:
        raise WrongAnswerError(" ".join(str(part) for part in message))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the computation by a signal when its CPU time exceeds a limit."""

    def ring(number: int, frame: Any) -> None:
        raise TooSlow(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    faulthandler.dump_traceback_later(HANG, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(target: Target, example: Any) -> str:
    """Return the outcome of one example, or raise an unexpected error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with time_limit(target.seconds):
                return target.check(example)
        except TooSlow as error:
            raise WrongAnswerError(error) from None
        except EXPECTED:
            return "refused"
        except (TypeError, ValueError) as error:
            if from_sklearn(error):
                return "refused"
            raise


def from_sklearn(error: BaseException) -> bool:
    """Check whether scikit-learn's validation of arguments raised an error."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return any("sklearn/utils/validation" in file for file in files[-4:])
