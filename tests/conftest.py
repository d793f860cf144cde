"""Set the groups of tests and the numbers of examples, and forbid network access."""

import functools
import gc
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from typer.main import get_command

TESTS = Path(__file__).parent
#: Groups of tests that do not run by default. The name of a group is the name of its folder.
GROUPS = ("process", "page", "campaign")
#: Number of Hypothesis examples of a property test in each profile.
EXAMPLES = {"quick": 5, "ci": 25, "campaign": 200}
PROFILE_OF = {"process": "ci", "page": "ci", "campaign": "campaign"}
#: Duration of the default group in minutes on two cores, with ``-n auto``.
MINUTES = "2 to 3"

for profile, count in EXAMPLES.items():
    fresh = profile == "campaign"
    settings.register_profile(
        profile,
        max_examples=count,
        stateful_step_count=20,
        deadline=None,  # processes share a core
        derandomize=not fresh,
        print_blob=fresh,
        suppress_health_check=[HealthCheck.too_slow],
    )


def pytest_configure(config):
    """Load the Hypothesis profile of the first group in ``-m``."""
    group = config.option.markexpr.partition(" ")[0]
    settings.load_profile(PROFILE_OF.get(group, "quick"))
    if group not in PROFILE_OF:  # nested workers would import libraries again
        os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")


def pytest_report_header(config):
    """Print the duration of the default group, unless the user selects files or another group."""
    if config.option.file_or_dir or config.option.markexpr.partition(" ")[0] in PROFILE_OF:
        return None
    return f"default group: about {MINUTES} minutes on two cores with -n auto"


def pytest_ignore_collect(collection_path, config):
    """Skip the folders that contain no tests of the groups in ``-m``."""
    if collection_path.parent != TESTS:
        return None
    folder, request = collection_path.name, config.option.markexpr
    named = request.split(" or ")
    # The campaign also runs tests in other folders: cases that one_in omits, and property tests.
    elsewhere = set(named) <= {"process", "page"} and folder not in named
    elsewhere = elsewhere and collection_path.is_dir()
    return True if elsewhere or f"not {folder}" in request.split(" and ") else None


@pytest.hookimpl(tryfirst=True)  # this hook must run before -m selects tests
def pytest_collection_modifyitems(items):
    """Mark the tests in the folder of a group with the name of the group."""
    for item in items:
        if item.path.is_relative_to(TESTS):
            folder = item.path.relative_to(TESTS).parts[0]
            if folder in GROUPS:
                item.add_marker(folder)


@pytest.fixture(scope="session", autouse=True)
def commands_built_once():
    """Cache the commands, because Typer rebuilds them from the signatures at every call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(get_command), raising=False)
        yield


class SharedWorker:
    """Worker that several studies share, because a new worker needs seconds to import libraries."""

    idle: ClassVar[list[Any]] = []

    def __init__(self, start):
        self._worker = self.idle.pop() if self.idle else start()
        self.submit = self._worker.submit

    def shutdown(self, kill_workers):
        if kill_workers:
            self._worker.shutdown(kill_workers=True)
        else:
            self.idle.append(self._worker)


@pytest.fixture(scope="session", autouse=True)
def workers_shared_by_studies(request):
    """Share workers between the studies of the default group, whose tests are not forked."""
    from convexmarket.studies import execution  # the controller of pytest-xdist starts without it

    with pytest.MonkeyPatch.context() as patch:
        if "not process" in request.config.option.markexpr:  # forked tests cannot share workers
            patch.setattr(execution, "_IDLE", 3600)
            patch.setattr(execution, "_worker", functools.partial(SharedWorker, execution._worker))
        yield
    for worker in SharedWorker.idle:
        worker.shutdown()


def pytest_collection_finish():
    """Exclude tests and libraries from the collection of garbage, because they are never freed."""
    gc.freeze()


gc.set_threshold(50_000)


# Tests run in parallel, so each process and its children use one core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

#: Hosts to which browser drivers and local Dask clusters connect.
THIS_MACHINE = {"127.0.0.1", "::1", "localhost"}
CONNECTIONS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
NETWORK = CONNECTIONS | LOOKUPS


def refuse_the_network(event, arguments):
    """Raise an error if a test, a doctest or a forked child connects to another machine.

    Sockets whose addresses are file names are allowed.
    """
    if event not in NETWORK:
        return
    host = arguments[0]
    if event in CONNECTIONS:
        host = arguments[1][0] if isinstance(arguments[1], tuple) else None
    if isinstance(host, bytes):
        host = host.decode()
    if isinstance(host, str) and host and host not in THIS_MACHINE:
        pytest.fail(f"{event} of {host!r}: tests and tested code must not use the network")


sys.addaudithook(refuse_the_network)
