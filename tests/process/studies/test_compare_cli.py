"""Test interrupted and new runs of ``convexmarket compare``."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from convexmarket.cli.experiments import journal_of
from tests import PROBLEMS


@pytest.fixture
def market(tmp_path):
    return shutil.copy(PROBLEMS / "quickstart.toml", tmp_path / "market.toml")


def test_control_c_keeps_the_recorded_runs(market, tmp_path):
    out = tmp_path / "report"
    command = ["compare", str(market), "--sizes", "20,30,40,50", "--classes", "allocation"]
    command += ["--draws", "5", "--out", str(out), "--jobs", "2"]
    code = "from convexmarket.cli import app; app()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # background jobs of a shell ignore SIGINT, and so do their children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        journal = journal_of(out)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and running.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") >= 3:
                break
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)  # Ctrl-C also interrupts workers
        text = running.communicate(timeout=60)[1]
    assert running.returncode == 130, text
    assert "Traceback" not in text
    assert "The same command resumes" in " ".join(text.split())
    assert not (out / "index.html").exists()
    assert len(journal.read_text().splitlines()) >= 3
