"""Test commands without a network."""

import shutil
import subprocess
import sys

import pytest

from tests import PROBLEMS

COMMAND_LINE = ("-c", "from convexmarket.cli import main; main()")


def without_network(*command, cwd):
    """Run Python in a namespace without network interfaces, not even the loopback interface."""
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a function that runs a command without a network in a new folder."""
    here = tmp_path_factory.mktemp("alone")
    if not shutil.which("unshare") or without_network("-c", "", cwd=here).returncode:
        pytest.skip("users cannot create a network namespace on this system")
    return lambda *command: without_network(*command, cwd=here)


def test_the_namespace_has_no_network(alone):
    connect = "import socket; socket.create_connection(('127.0.0.1', 80), 1)"
    done = alone("-c", connect)
    assert done.returncode
    assert "Network is unreachable" in done.stderr


def test_a_problem_runs_without_a_network(alone, tmp_path):
    page = tmp_path / "report" / "index.html"
    done = alone(
        *(*COMMAND_LINE, "run", PROBLEMS / "quickstart.toml", "--out", page.parent, "--jobs", "2"),
        *("--set", "objective.gamma=[0.01]", "--set", "learner.draws=2"),
        *("--set", "objective.sigma=[0.1]", "--set", "naive.grid=1"),
    )
    assert done.returncode == 0, done.stderr
    assert page.is_file()
