"""Every system call of a writing command fails with every disk error.

The command must end with a typed error in one line and leave the old or the new state. A second
run of the command must succeed.
"""

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import settings

import convexmarket as cm
from convexmarket.errors import ConvexMarketError
from convexmarket.report import figures
from convexmarket.studies.files import load_file
from tests import PROBLEMS
from tests.campaign.reliability.faults import (
    ERRORS,
    LASTING,
    TIDYING,
    Traced,
    calls_on,
    can_trace,
    was_hit,
)
from tests.online.builders import TRAINED_MARKET
from tests.process.failures.builders import PRICE, contents, run, save_nothing

pytestmark = pytest.mark.skipif(not can_trace(), reason="needs strace and permission to trace")

QUICKSTART = PROBLEMS / "quickstart.toml"
SMALL = ["objective.gamma=[0.01]", "objective.mu=[1.0]", "objective.sigma=[0.1]"]
SMALL += ["learner.regularization=[1.0]", "learner.draws=2", "naive.grid=1"]
ROWS = "id,one,two,label\n" + "".join(f"{i},0.{k},0.1,{'yes' if k % 2 else 'no'}\n" for k, i in
                                  enumerate("abcd", start=1))  # fmt: skip


@cache
def a_model(which):
    """Return a cached model, because each fit is charged to an account of the process."""
    X, y = np.array([[0.1], [0.9]]), np.array([0.0, 0.5])
    return cm.PersonalizedRidge().fit(X, y, epsilon=[1.0, 1.0 + (which == "new")])


def save(name):
    """Return a function that saves a model in the child process and exits like a command."""

    def before(_tell):
        try:
            cm.save_model(a_model("new"), name)
        except ConvexMarketError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        sys.exit(0)

    return before


#: Commands with more system calls try one error per call, in turn.
MANY = 60
#: Number of property examples of the profile per tried fault.
EXAMPLES_PER_FAULT = 5
#: This command lists unreadable reports as such and omits pictures.
LEAVES_OUT = ("report --index",)
#: Commands with several steps: quotes and then a file; a closed market and then a report.
SEVERAL_STEPS = ("online quote --csv", "online close")


@dataclass(frozen=True)
class Command:
    """Arguments of a command, a replacement for it, and whether it runs only once."""

    arguments: tuple
    before: object = None
    once: bool = False


COMMANDS = {
    "run": Command(("run", QUICKSTART, "--out", "target")),
    "run, a new report": Command(("run", QUICKSTART, "--out", "new")),
    "report": Command(("report", "reports/one", "--out", "target")),
    "report in place": Command(("report", "target")),
    "report --index": Command(("report", "--index", "reports")),
    "price": Command(("price", "sellers.csv", *PRICE, "--out", "offers.csv")),
    "price, a new list": Command(("price", "sellers.csv", *PRICE, "--out", "new.csv")),
    "schema": Command(("schema", "--out", "schema.json")),
    "save_model": Command((), save("model.json")),
    "ledger create": Command(("ledger", "new.sqlite", "--create"), once=True),
    "ledger record": Command(("ledger", "sold.sqlite", "--record", "sold.csv"), once=True),
    "ledger export": Command(("ledger", "sold.sqlite", "--export", "out.csv")),
    "online open": Command(("online", "open", "n", "market.toml"), once=True),
    "online quote": Command(("online", "quote", "m", "--id", "d", "--sensitivity", "1.2")),
    "online quote --csv": Command(
        ("online", "quote", "m", "--csv", "arrivals.csv", "--out", "q.csv")
    ),
    "online accept": Command(("online", "answer", "m", "--accept", "--id", "b")),
    "online close": Command(("online", "close", "m", "--lapse")),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return a folder with the files of all commands; problems return stored results."""
    folder = tmp_path_factory.mktemp("faults") / "prepared"
    folder.mkdir()
    a_model("new")
    problem = load_file(QUICKSTART, SMALL)
    runs = problem.perform(progress=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "saved", save_nothing)
        patch.setattr(type(problem), "perform", lambda *_, **__: runs)
        for name in ("reports/one", "reports/two", "target"):
            problem.report(runs).write(folder / name)
        (folder / "target" / "report.md").write_text("the former report\n")
        (folder / "sellers.csv").write_text("id,sensitivity\nAnn,0.03\nBob,0.05\n")
        (folder / "arrivals.csv").write_text("id,sensitivity\na,1.1\nd,1.3\n")
        (folder / "sold.csv").write_text("id,epsilon,payment\na,0.5,1.0\nb,0.25,2.0\n")
        (folder / "market.toml").write_text(TRAINED_MARKET)
        (folder / "rows.csv").write_text(ROWS)
        (folder / "offers.csv").write_text("id,x\nformer,1\n")
        (folder / "out.csv").write_text("id,x\nformer,1\n")
        for name in ("offers.certificate.json", "schema.json", "found.json"):
            (folder / name).write_text('["the former"]\n')
        cm.save_model(a_model("former"), folder / "model.json")
        for arguments in (
            ("report", "--index", "reports"),
            ("ledger", "sold.sqlite", "--create"),
            ("online", "open", "m", "market.toml"),
            *(("online", "quote", "m", "--id", i, "--sensitivity", "1.1") for i in "abc"),
            ("online", "answer", "m", "--accept", "--id", "a"),
            ("online", "answer", "m", "--accept", "--id", "c"),
        ):
            code, command = run(arguments, folder)
            assert code == 0, command.said
        yield folder


#: Suffixes of the files that SQLite keeps next to a database.
BESIDE = ("-journal", ".closing")


def state(folder):
    """Return the visible state: files without times, and row counts of databases."""
    result = {}
    for name, content in contents(folder).items():
        if name.endswith(BESIDE):
            continue
        if name.endswith(".sqlite"):
            content = stored_in(folder / name)
        elif name.endswith("certificate.json") and content.startswith(b"{"):
            content = json.loads(content)
            content["seconds"] = content["optimality"]["seconds"] = 0
        elif "m/report/" in name and content is not None:
            content = "written"  # contains times and fresh noise
        result[name] = content
    return result


def stored_in(path):
    """Return the row counts of a database; opening it replays its journal."""
    with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: database.execute(f"SELECT count(*) FROM {name}").fetchone() for (name,) in names
        }


def is_hidden(name):
    return "/." in f"/{name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_failing_system_call_leaves_the_old_or_the_new_state(name, prepared, tmp_path, attack):
    command = COMMANDS[name]
    old = state(prepared)

    def copy(number):
        return shutil.copytree(prepared, tmp_path / f"try-{number:05}-here")

    clean = copy(0)
    traced = Traced(command.arguments, clean, command.before)
    assert traced.end() == 0, traced.said
    calls, new = calls_on(clean, traced.log), state(clean)
    assert calls
    shutil.rmtree(clean)

    def attempt(number, call, nth, error):
        here = copy(number)
        inject = f"{call}:error={error}:when={nth}"
        traced = Traced(command.arguments, here, command.before, [inject])
        code = traced.end()
        try:
            if not was_hit(here, traced.log):
                return None
            return wrong(here, code, traced.said, call)
        finally:
            traced.log.unlink()
            shutil.rmtree(here)

    def wrong(here, code, said, call):
        result = state(here)
        left = {path for path in result if is_hidden(path)}
        seen = {path: content for path, content in result.items() if not is_hidden(path)}
        if code not in (0, 2) or "Traceback" in said:
            return f"code {code}: {said[-300:]}"
        if code == 2 and not (said.startswith("error: ") and said.count("\n") == 1):
            return f"said {said!r}"
        if code == 0 and seen != new and name not in LEAVES_OUT:
            return f"code 0, and not the new state: {changed(seen, new)}"
        if not is_between(seen) and (name, code) != (*LEAVES_OUT, 0):
            return f"code {code}, {said!r}: neither old nor new: {changed(seen, old)}"
        if left and code != 0 and call not in (*TIDYING, "openat"):  # removing a folder opens it
            return f"left {sorted(left)[:3]}"
        again, process = run(command.arguments, here, command.before)
        if again != 0 and not (command.once and again == 2):
            return f"given again, code {again}: {process.said}"
        result = state(here)
        if call not in TIDYING and any(map(is_hidden, result)):
            return "what was left stays when the command is given again"
        seen = {path: content for path, content in result.items() if not is_hidden(path)}
        return None if seen == new else f"given again: {changed(seen, new)}"

    def is_between(seen):
        """Check whether a state is the old one, the new one, or an intermediate step."""
        if name in SEVERAL_STEPS:
            return all(
                seen.get(path) in (old.get(path), new.get(path), "written")
                or path.endswith(".sqlite")
                for path in {*seen, *old, *new}
            )
        strip = {path: content for path, content in seen.items() if content is not None}
        return any(
            strip == {path: content for path, content in whole.items() if content is not None}
            for whole in (old, new)
        )

    def changed(seen, other):
        paths = {*seen, *other}
        return sorted(path for path in paths if seen.get(path, 0) != other.get(path, 0))[:5]

    faults = [(*call, error) for call in calls for error in ERRORS]
    if len(calls) > MANY:
        faults = [(*call, ERRORS[place % len(ERRORS)]) for place, call in enumerate(calls)]
    faults += [(call, f"{nth}+", "ENOSPC") for call, nth in calls if call in LASTING]
    most = min(len(faults), settings.default.max_examples // EXAMPLES_PER_FAULT)
    drawn = sorted(np.random.default_rng().choice(len(faults), most, replace=False))
    tries = [
        (" ".join(map(str, faults[number])), partial(attempt, number + 1, *faults[number]))
        for number in drawn
    ]
    attack(f"a system call fails: {name}", tries)
