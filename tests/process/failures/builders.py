"""Run commands in forked processes, which need not import the package again.

Each command has separate streams, a working directory, signals and an exit code, as in a shell.
"""

import contextlib
import io
import multiprocessing.util
import os
import resource
import select
import signal
import sys
import time
import traceback
from pathlib import Path

from joblib.externals.loky import reusable_executor

from convexmarket import cli

#: Time limit of each command, in seconds.
PATIENCE = 120.0
CRASHED = 99
INTERRUPTED = 130
NO_ROOM = 300  # bytes, less than the size of every file of a command
#: Contents of files before a command replaces them.
FORMER_CSV, FORMER_JSON = "id,the former\nAnn,1\n", '["the former"]\n'
PRICE = ["--prior", "uniform:0.02,0.10", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]


class Forked:
    """A running or finished command.

    Parameters
    ----------
    arguments : iterable of str
    folder : Path
        The working directory.
    before : callable, optional
        Called in the process before the command, with a function that notifies the parent and
        waits for a signal.
    limit : int, optional
        Largest size of a file in bytes, which simulates a full disk.
    """

    def __init__(self, arguments, folder, before=None, limit=None):
        self.out, self.err = b"", b""
        out, err, moment = os.pipe(), os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._child(list(map(str, arguments)), folder, before, limit, out[1], err[1], moment[1])
        for _, end in (out, err, moment):
            os.close(end)
        self._out, self._err, self._moment = out[0], err[0], moment[0]

    def _child(self, arguments, folder, before, limit, out, err, moment):
        code = CRASHED
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for old, new in ((nothing, 0), (out, 1), (err, 2)):
                os.dup2(old, new)
            for name, number in (("stdout", 1), ("stderr", 2)):
                stream = io.TextIOWrapper(os.fdopen(number, "wb"), write_through=True)
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)
            os.chdir(folder)
            os.environ["COLUMNS"] = "200"
            sys.argv = ["convexmarket", *arguments]
            reusable_executor._executor = None  # the workers belong to the parent
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            def notify():
                os.write(moment, b".")
                time.sleep(PATIENCE)

            if before is not None:
                before(notify)
            cli.main()
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                multiprocessing.util._exit_function()  # Python calls this at exit
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def wait_for_message(self):
        """Wait for the message of the command. Return False if it ends without a message."""
        return bool(select.select([self._moment], [], [], PATIENCE)[0]) and bool(
            os.read(self._moment, 1)
        )

    def send(self, number):
        os.kill(self.pid, number)

    def end(self):
        """Wait until the command ends. Return its exit code, or minus the number of the signal."""
        ends = {self._out: "out", self._err: "err"}
        while ends:
            for end in select.select(list(ends), [], [], PATIENCE)[0] or ends.copy():
                result = os.read(end, 1 << 16)
                setattr(self, ends[end], getattr(self, ends[end]) + result)
                if not result:
                    os.close(end)
                    del ends[end]
        os.close(self._moment)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    @property
    def stderr(self):
        return self.err.decode()


def run(arguments, folder, before=None, limit=None):
    """Run a command to its end, and return the exit code and the process."""
    command = Forked(arguments, folder, before, limit)
    return command.end(), command


def stop(arguments, folder, before, number):
    """Send a signal to a command after its message, and return the exit code and the process."""
    command = Forked(arguments, folder, before)
    came = command.wait_for_message()
    command.send(number if came else signal.SIGKILL)
    code = command.end()
    assert came, command.stderr
    return code, command


def contents(folder):
    """Return all files in a folder, including hidden files and empty folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(Path(folder).rglob("*"))
    }


def check_one_line(stderr, *words):
    """Check that standard error contains one line from the package and no traceback."""
    assert "Traceback" not in stderr
    assert len(stderr.splitlines()) == 1, stderr
    for word in words:
        assert word in stderr


def at(module, name, call=1, after=False):
    """Return a hook that notifies the parent and waits when the command calls a function."""

    def before(notify):
        real, left = getattr(module, name), [call]

        def replaced(*arguments, **named):
            left[0] -= 1
            if left[0] == 0 and not after:
                notify()
            done = real(*arguments, **named)
            if left[0] == 0 and after:
                notify()
            return done

        setattr(module, name, replaced)

    return before


def save_nothing(figure, kind, name):
    """Replace ``figures.saved``, because drawing is slow."""
    return b"<svg>" + b" " * NO_ROOM + b"</svg>"
