"""Nothing looks beyond this machine: not the tests, not the package, not its command line."""

import ast
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import convexmarket
from tests import PROBLEMS

PACKAGE = Path(convexmarket.__file__).parent
PROBLEM = PROBLEMS / "quickstart.toml"

COMMAND_LINE = ("-c", "from convexmarket.cli import main; main()")

#: What opens connections, or calls what does.
NETWORK = {
    *("aiohttp", "asyncio", "distributed", "dask", "ftplib", "http", "httpx", "imaplib"),
    *("paramiko", "poplib", "pycurl", "requests", "selectors", "smtplib", "socket"),
    *("socketserver", "ssl", "telnetlib", "urllib", "urllib3", "webbrowser", "xmlrpc"),
}
#: What users ask for by name: ``--open`` shows a page of theirs, ``--dask`` names a scheduler.
ASKED_FOR = {
    ("cli/__init__.py", "webbrowser"),
    ("cli/compare.py", "webbrowser"),
    ("cli/online.py", "webbrowser"),
    ("experiments/solver_study.py", "distributed"),
}


def imported(source):
    """Return the names of the packages that a module imports from outside, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


# ---------------------------------------------------------------------------- the tests


def test_a_test_that_connects_elsewhere_fails():
    with socket.socket() as one, pytest.raises(pytest.fail.Exception, match=r"192\.0\.2\.1"):
        one.connect(("192.0.2.1", 80))


def test_a_test_that_sends_elsewhere_fails():
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        pytest.raises(pytest.fail.Exception, match="use no network"),
    ):
        one.sendto(b"hello", ("192.0.2.1", 80))


@pytest.mark.parametrize(
    "look_up", [socket.gethostbyname, lambda host: socket.getaddrinfo(host, 80)]
)
def test_a_test_that_looks_up_a_name_fails(look_up):
    with pytest.raises(pytest.fail.Exception, match=r"'example\.invalid'"):
        look_up("example.invalid")


def test_this_machine_may_be_talked_to():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        assert one.getpeername() == server.getsockname()


# -------------------------------------------------------------------------- the package


def test_modules_that_would_use_the_network_are_recognised():
    source = (
        "import os\n\ndef f():\n    from urllib.request import urlopen\n    import socket, json\n"
    )
    assert imported(source) & NETWORK == {"urllib", "socket"}


def test_no_module_uses_the_network():
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in imported(path.read_text()) & NETWORK
    }
    assert found == ASKED_FOR


# ---------------------------------------------------------------------- the command line


def without_network(*command, cwd):
    """Run Python where no network exists, not even the loop to this machine itself."""
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return what runs a command without a network, in a folder of its own."""
    here = tmp_path_factory.mktemp("alone")
    if not shutil.which("unshare") or without_network("-c", "", cwd=here).returncode:
        pytest.skip("this system lets no user make a space without a network")
    return lambda *command: without_network(*command, cwd=here)


def test_a_space_without_a_network_has_none(alone):
    connect = "import socket; socket.create_connection(('127.0.0.1', 80), 1)"
    done = alone("-c", connect)
    assert done.returncode
    assert "Network is unreachable" in done.stderr


def test_a_problem_runs_without_a_network(alone, tmp_path):
    page = tmp_path / "report" / "index.html"
    done = alone(
        *(*COMMAND_LINE, "run", PROBLEM, "--out", page.parent, "--jobs", "2"),
        *("--set", "objective.gamma=[0.01]", "--set", "learner.draws=2"),
    )
    assert done.returncode == 0, done.stderr
    assert page.is_file()


def test_sellers_are_priced_without_a_network(alone, tmp_path):
    (tmp_path / "sellers.csv").write_text("id,sensitivity\na,0.03\nb,0.05\n")
    offers = tmp_path / "offers.csv"
    done = alone(
        *(*COMMAND_LINE, "price", tmp_path / "sellers.csv", "--prior", "uniform:0.02,0.10"),
        *("--mu", "1", "--sigma", "100", "--gamma", "0.001", "--out", offers),
    )
    assert done.returncode == 0, done.stderr
    assert len(offers.read_text().splitlines()) == 3
