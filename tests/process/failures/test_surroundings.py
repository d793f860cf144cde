"""Test commands with closed streams, unusual terminals, no home folder or an ASCII locale."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.failures.builders import PRICE, contents

COMMAND = f"{shlex.quote(sys.executable)} -m convexmarket"


def shell(script, folder, **variables):
    """Run commands in a shell, and return the exit code and the output."""
    done = subprocess.run(
        ["bash", "-c", script.replace("convexmarket ", f"{COMMAND} ")],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1", **variables},
        capture_output=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("command", ["schema", "--help"])
def test_a_closed_pipe_ends_the_command_silently(tmp_path, command):
    code, _, err = shell(f"set -o pipefail; convexmarket {command} | true", tmp_path)
    assert (code, err) == (141, "")


def test_output_to_a_full_disk_gives_an_error(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    code, _, err = shell("convexmarket --version > /dev/full", tmp_path)
    assert code == 2
    assert err == "error: standard output: No space left on device\n"


def test_closed_streams_are_tolerated(tmp_path):
    code, text, err = shell(
        "convexmarket ledger s.json --create <&- >&- 2>&- && test -s s.json", tmp_path
    )
    assert (code, text, err) == (0, b"", "")
    assert sorted(contents(tmp_path)) == ["s.json"]


def test_characters_outside_the_locale_are_escaped(tmp_path):
    (tmp_path / "\u2603 sellers.csv").write_text(
        "id,sensitivity\nJosé,0.03\n\u674e\u96f7,0.05\n", encoding="utf-8"
    )
    code, text, err = shell(
        f'convexmarket price *sellers.csv {shlex.join(PRICE)} --out "\u2603 offers.csv"',
        tmp_path,
        LC_ALL="C",
        PYTHONCOERCECLOCALE="0",
        PYTHONUTF8="0",
        PYTHONIOENCODING="ascii",
        TERM="dumb",
        COLUMNS="20",
    )
    assert code == 0, err
    assert text.isascii()
    assert b"Wrote" in text
    assert "José" in (tmp_path / "\u2603 offers.csv").read_text(encoding="utf-8")
