"""Define forked processes that report their results and can be killed at any time."""

import gc
import json
import os
import select
import signal
import sqlite3
import time
import traceback

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


class Child:
    """Forked process that runs a function. Its messages can be read when it has ended."""

    def __init__(self, work):
        self.lines = []
        self.reader, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                gc.freeze()  # garbage collection would copy memory pages of the parent
                os.close(self.reader)
                # The write of a short line is atomic.
                work(lambda *reported: os.write(write, (json.dumps(reported) + "\n").encode()))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)

    def wait_for_message(self, times=1):
        for _ in range(times):
            assert select.select([self.reader], [], [], 60)[0], "the child has stopped"
            line = b""
            while not line.endswith(b"\n"):
                byte = os.read(self.reader, 1)
                assert byte, "the child has ended"
                line += byte
            self.lines.append(json.loads(line))

    def kill(self):
        """Kill the process if it is still running, and return its messages."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def end(self):
        """Wait until the process ends, and return its messages."""
        with os.fdopen(self.reader) as pipe:
            self.lines += [json.loads(line) for line in pipe]
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status) or status == 0
        return self.lines


def at_once(works):
    """Run all functions in parallel processes, and return their results."""
    wait, go = os.pipe()

    def begin(work, notify):
        os.close(go)
        os.read(wait, 1)  # blocks until all write ends of the pipe are closed
        notify(work())

    children = [Child(lambda notify, work=work: begin(work, notify)) for work in works]
    os.close(go)
    message = [child.end() for child in children]
    os.close(wait)
    return [line for ((line,),) in message]


def stopping(call, notify, before=True):
    """Wrap a function to send a message before or after the call and then wait for SIGKILL."""

    def stop(*arguments, **options):
        result = None if before else call(*arguments, **options)
        notify("here")
        time.sleep(60)
        return result

    return stop


def check_integrity(path):
    """Check the integrity of an SQLite database on a new connection."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
