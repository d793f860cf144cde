"""The tests and the package do not use the network."""

import ast
import socket
from pathlib import Path

import pytest

import convexmarket
from tests import parsed

PACKAGE = Path(convexmarket.__file__).parent

#: Modules that open connections or import modules that open connections.
NETWORK = {
    *("aiohttp", "asyncio", "distributed", "dask", "ftplib", "http", "httpx", "imaplib"),
    *("paramiko", "poplib", "pycurl", "requests", "selectors", "smtplib", "socket"),
    *("socketserver", "ssl", "telnetlib", "urllib", "urllib3", "webbrowser", "xmlrpc"),
}
#: Imports that run only if the user requests them.
#: ``--open`` shows a page, ``--dask`` selects a scheduler, and sellers can be a Dask collection.
REQUESTED = {
    ("cli/consoles.py", "webbrowser"),
    ("partitions.py", "dask"),
    ("partitions.py", "distributed"),
}


def imported(source):
    """Return the external packages that a module imports, including nested imports."""
    result = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            result |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            result.add((node.module or "").partition(".")[0])
    return result


def test_a_test_that_connects_to_another_machine_fails():
    with socket.socket() as single, pytest.raises(pytest.fail.Exception, match=r"192\.0\.2\.1"):
        single.connect(("192.0.2.1", 80))


def test_a_test_that_sends_to_another_machine_fails():
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as single,
        pytest.raises(pytest.fail.Exception, match="must not use the network"),
    ):
        single.sendto(b"hello", ("192.0.2.1", 80))


@pytest.mark.parametrize(
    "look_up", [socket.gethostbyname, lambda host: socket.getaddrinfo(host, 80)]
)
def test_a_test_that_looks_up_a_host_name_fails(look_up):
    with pytest.raises(pytest.fail.Exception, match=r"'example\.invalid'"):
        look_up("example.invalid")


def test_connections_to_this_machine_are_allowed():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as single,
    ):
        assert single.getpeername() == server.getsockname()


def test_modules_that_use_the_network_are_detected():
    source = (
        "import os\n\ndef f():\n    from urllib.request import urlopen\n    import socket, json\n"
    )
    assert imported(source) & NETWORK == {"urllib", "socket"}


def test_no_module_uses_the_network():
    result = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in imported(path.read_text()) & NETWORK
    }
    assert result == REQUESTED
