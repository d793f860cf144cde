"""A command whose system calls fail one after the other, through ``strace``."""

import contextlib
import os
import re
import select
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from tests.process.failures.builders import PATIENCE, Forked

STRACE = shutil.which("strace")
#: System calls that create or change files and folders.
CALLS = (
    "openat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "rename", "link", "unlink",
    "unlinkat", "rmdir", "mkdir", "chmod", "fchmod", "chown", "flock", "sendfile",
)  # fmt: skip
#: Calls that a cleanup needs.
TIDYING = ("unlink", "unlinkat", "rmdir")
#: Calls that may keep failing; other calls are also needed for the error message.
LASTING = ("pwrite64", "fsync", "fdatasync", "link", "mkdir")
ERRORS = ("ENOSPC", "EIO", "EROFS", "EINTR")
CALL = re.compile(r"^(?:\d+ +)?(\w+)\(")


def can_trace():
    """Check whether strace is installed and may trace a child process."""
    if STRACE is None:
        return False
    return subprocess.run([STRACE, "-o", os.devnull, "true"], capture_output=True).returncode == 0


class Traced(Forked):
    """A command that strace traces from its first step.

    Parameters
    ----------
    arguments, folder, before : as for Forked
    inject : sequence of str
        Faults for strace to inject, such as ``write:error=EIO:when=3``.
    """

    def __init__(self, arguments, folder, before=None, inject=()):
        gate, go = os.pipe()

        def wait(tell):
            os.close(go)
            os.read(gate, 1)
            os.close(gate)
            if before is not None:
                before(tell)

        super().__init__(arguments, folder, wait)
        os.close(gate)
        self.log = Path(f"{folder}.strace")
        options = [option for each in inject for option in ("-e", f"inject={each}")]
        self._strace = subprocess.Popen(
            [STRACE, "-f", "-y", "-qq", "-s", "0", "-o", self.log, "-e", f"trace={','.join(CALLS)}",
             *options, "-p", str(self.pid)],
            stderr=subprocess.PIPE,
        )  # fmt: skip
        self._wait_for_strace()
        os.write(go, b".")
        os.close(go)

    def _wait_for_strace(self):
        status = Path(f"/proc/{self.pid}/status")
        for _ in range(int(PATIENCE / 0.002)):
            if "TracerPid:\t0\n" not in status.read_text():
                return
            select.select([], [], [], 0.002)
        raise AssertionError("strace did not attach")

    def end(self):
        code = super().end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._strace.wait(PATIENCE)
        self._strace.stderr.close()
        return code


def calls_on(folder, log):
    """Return the calls of a log that concern a folder, as pairs (name, index among that name)."""
    result, counts = [], Counter()
    for line in log.read_text(errors="replace").splitlines():
        call = CALL.match(line)
        if call:
            counts[call[1]] += 1
            if Path(folder).name in line:
                result.append((call[1], counts[call[1]]))
    return result


def was_hit(folder, log):
    """Check whether an injected fault hit a call that concerns the folder."""
    return any(
        "(INJECTED)" in line and Path(folder).name in line
        for line in log.read_text(errors="replace").splitlines()
    )
