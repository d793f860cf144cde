"""Define the fixture ``attack``. Every try must end with a typed error or a correct outcome.

``.ci/campaigns reliability`` prints the table of attacks at the end.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable

import pytest

from convexmarket.errors import ConvexMarketError


@pytest.fixture
def attack(record_property):
    """Return a function that runs and counts the tries of an attack and fails on any success.

    The function accepts the ``name`` of the attack and ``tries``, which are pairs of a description
    and a function. The function of a pair returns None for a correct outcome, and otherwise
    describes the failure. An error of convexmarket is a correct outcome.
    """

    def run(name: str, tries: Iterable[tuple[str, Callable[[], str | None]]]) -> None:
        n_tries, failures = 0, []
        for label, attempt in tries:
            n_tries += 1
            try:
                wrong = attempt()
            except ConvexMarketError:
                wrong = None
            except Exception as error:
                wrong = "".join(traceback.format_exception_only(error)).strip()
            if wrong is not None:
                failures.append(f"{label}: {wrong}")
        assert n_tries, f"{name}: nothing was tried"
        record_property("attack", (name, n_tries, len(failures)))
        assert not failures, f"{name}: {len(failures)} of {n_tries}\n" + "\n".join(failures[:10])

    return run


def pytest_terminal_summary(terminalreporter):
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    counts = [
        value for report in reports for key, value in report.user_properties if key == "attack"
    ]
    if counts:
        terminalreporter.section("attacks: tries, failures")
    for name, n_tries, n_failures in counts:
        terminalreporter.line(f"{name:<70} {n_tries:>7} {n_failures:>5}")
