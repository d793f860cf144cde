"""Ctrl-C during the import of the package prints one line without a traceback."""

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from convexmarket.cli.consoles import INTERRUPTED
from tests import ROOT

PATIENCE = 120.0
#: Ctrl-C is sent during the imports of these modules, after the handler is installed.
MOMENTS = ("numpy", "cvxpy", "convexmarket.market")


COMMAND = [sys.executable, "-m", "convexmarket"]


def started(command, ignored=False):
    """Start a command that prints its imports. It ignores SIGINT if ``ignored`` is true."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL
    return subprocess.Popen(
        [*command, "schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": path},
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
    )


def interrupted_at(process, module):
    """Send SIGINT during the import of a module. Return the exit code, stdout and stderr."""
    text, mark = b"", f"| {module}\n".encode()
    deadline = time.monotonic() + PATIENCE
    while mark not in text.replace(b" ", b"").replace(b"|", b"| "):
        assert select.select([process.stderr], [], [], deadline - time.monotonic())[0], text
        part = os.read(process.stderr.fileno(), 1 << 16)
        assert part, f"{module} was never imported: {text.decode()[-2000:]}"
        text += part
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=PATIENCE)
    lines = (text + rest).decode().splitlines()
    return process.returncode, out, [line for line in lines if not line.startswith("import time:")]


@pytest.mark.parametrize("module", MOMENTS)
def test_control_c_while_loading_prints_one_line(module):
    code, out, text = interrupted_at(started(COMMAND), module)
    assert (code, out) == (INTERRUPTED, b"")
    assert text == ["stopped while loading; nothing was done"]


def test_a_background_job_ignores_control_c():
    code, out, text = interrupted_at(started(COMMAND, ignored=True), "cvxpy")
    assert (code, text) == (0, [])
    assert out.startswith(b"{")


def test_importing_the_package_keeps_the_signal_handler():
    program = (
        "import signal, convexmarket, convexmarket.cli\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    process = started([sys.executable, "-c", program])
    assert process.communicate(timeout=PATIENCE)[0] == b""
    assert process.returncode == 0
