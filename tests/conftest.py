"""What every test runs under: no network, no deadlines, and in CI the same examples each time."""

import os
import sys

import pytest
from hypothesis import settings

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# Tests run side by side: a process takes one core. What they start inherits it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

#: Where a browser's driver, or a cluster on this machine, is looked for.
THIS_MACHINE = {"127.0.0.1", "::1", "localhost"}
CONNECTIONS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}


def refuse_the_network(event, arguments):
    """Fail a test, a doctest or a forked child that looks beyond this machine.

    Names of files, which local sockets have for addresses, lead nowhere else.
    """
    if event in CONNECTIONS and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in LOOKUPS:
        host = arguments[0]
    else:
        return
    if isinstance(host, bytes):
        host = host.decode()
    if isinstance(host, str) and host and host not in THIS_MACHINE:
        pytest.fail(f"{event} of {host!r}: tests, and what they test, use no network")


sys.addaudithook(refuse_the_network)
