"""Ctrl-C while the package loads: one line, the exit code, and no traceback."""

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from convexmarket.starting import INTERRUPTED
from tests import ROOT

PATIENCE = 120.0
SCRIPT = "import sys; from convexmarket.cli import main; sys.exit(main())\n"
#: What is loaded when Ctrl-C comes: after the handler, and long before the command begins.
MOMENTS = ("numpy", "cvxpy", "convexmarket.market")


@pytest.fixture(params=["module", "script"])
def command(request, tmp_path):
    """The command, as ``python -m`` starts it, and as an installed script does."""
    if request.param == "module":
        return [sys.executable, "-m", "convexmarket"]
    script = tmp_path / "convexmarket"
    script.write_text(f"#!{sys.executable}\n{SCRIPT}")
    script.chmod(0o755)
    return [str(script)]


def started(command, ignored=False):
    """Start the command so that it tells what it has imported; tests may run in the background."""
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
    """Send SIGINT once a module is imported; return the exit code, what was printed and said."""
    said, mark = b"", f"| {module}\n".encode()
    deadline = time.monotonic() + PATIENCE
    while mark not in said.replace(b" ", b"").replace(b"|", b"| "):
        assert select.select([process.stderr], [], [], deadline - time.monotonic())[0], said
        part = os.read(process.stderr.fileno(), 1 << 16)
        assert part, f"{module} was never imported: {said.decode()[-2000:]}"
        said += part
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=PATIENCE)
    lines = (said + rest).decode().splitlines()
    return process.returncode, out, [line for line in lines if not line.startswith("import time:")]


@pytest.mark.parametrize("module", MOMENTS)
def test_while_it_loads_control_c_ends_it_in_one_line(command, module):
    code, out, said = interrupted_at(started(command), module)
    assert (code, out) == (INTERRUPTED, b"")
    assert said == ["stopped while loading; nothing was done"]


def test_a_job_in_the_background_goes_on(command):
    code, out, said = interrupted_at(started(command, ignored=True), "cvxpy")
    assert (code, said) == (0, [])
    assert out.startswith(b"{")


def test_other_programs_keep_their_own_handling(tmp_path):
    """A program that imports the package, also one of the name of a worker's parent."""
    program = tmp_path / "analysis.py"
    program.write_text(
        "import signal, sys\n"
        "sys.argv[0] = '/usr/bin/convexmarket'\n"
        "import convexmarket\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    process = started([sys.executable, str(program)])
    assert process.communicate(timeout=PATIENCE)[0] == b""
    assert process.returncode == 0
