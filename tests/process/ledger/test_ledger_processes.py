"""Several processes use a ledger at once, and are killed at any instant (SIGKILL)."""

import gc
import json
import os
import random
import select
import signal
import sqlite3
import time
import traceback

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, ReleaseChargedError
from convexmarket.ledger import entries
from convexmarket.privacy import Guarantee

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

MANY = 40


def guarantee(epsilon):
    return Guarantee(np.asarray(epsilon, dtype=float), 0.0, "a model", "tight", ())


class Child:
    """A forked process that runs some work; what it tells can be read, also after its death."""

    def __init__(self, work):
        self.lines = []
        self.heard, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                gc.freeze()  # a collection would copy all that the parent has loaded
                os.close(self.heard)
                work(lambda *told: os.write(write, (json.dumps(told) + "\n").encode()))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)

    def wait_until_it_tells(self):
        assert select.select([self.heard], [], [], 60)[0], "the child has stopped"
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self.heard, 1)
            assert byte, "the child has ended"
            line += byte
        self.lines.append(json.loads(line))

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def end(self):
        with os.fdopen(self.heard) as pipe:
            self.lines += [json.loads(line) for line in pipe]
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status) or status == 0
        return self.lines


def at_once(works):
    """Run each work in a process of its own, from the same instant; return what each tells."""
    wait, go = os.pipe()

    def begin(work, tell):
        os.close(go)
        os.read(wait, 1)  # until the last writing end is closed
        tell(work())

    children = [Child(lambda tell, work=work: begin(work, tell)) for work in works]
    os.close(go)
    told = [child.end() for child in children]
    os.close(wait)
    return [line for ((line,),) in told]


def check_integrity(path):
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    raw.close()


@pytest.mark.parametrize("inherited", [False, True])
def test_two_processes_that_charge_the_same_budget_win_once(tmp_path, inherited):
    ledger = cm.Ledger.create(tmp_path / "l")
    for trial in range(8):
        ids = [f"{trial}-a", f"{trial}-b"]
        ledger.sell(ids, 1.0, 0.0)

        def work(ids=ids):
            opened = ledger if inherited else cm.Ledger(tmp_path / "l")
            account = opened.account(ids)
            account.check(guarantee([0.75, 0.75]))  # both may pass this
            try:
                account.charge(guarantee([0.75, 0.75]))
            except BudgetExceededError:
                return False
            return True

        # A check after the other's charge is refused: that is losing as well.
        def lenient(work=work):
            try:
                return work()
            except BudgetExceededError:
                return False

        assert sorted(at_once([lenient, lenient])) == [False, True]
        assert ledger.account(ids).remaining.tolist() == [0.25, 0.25]
    check_integrity(ledger.path)


def test_no_more_is_spent_than_was_sold_however_many_charge(tmp_path):
    ledger = cm.Ledger.create(tmp_path / "l")
    ledger.sell(["a", "b"], [1.0, 9.0], 0.0)

    def work():
        account, won = cm.Ledger(tmp_path / "l").account(["b", "a"]), 0
        for _ in range(6):
            try:
                account.charge(guarantee([0.25, 0.125]))
            except BudgetExceededError:
                continue
            won += 1
        return won

    assert sum(at_once([work] * 3)) == 8
    assert ledger.balance()["left"].tolist() == [0.0, 7.0]
    assert ledger.releases()["name"].tolist() == [f"unnamed-{k}" for k in range(1, 9)]


def test_one_of_two_processes_charges_a_name(tmp_path):
    ledger = cm.Ledger.create(tmp_path / "l")
    ledger.sell(["a"], 9.0, 0.0)

    def work():
        opened, won = cm.Ledger(tmp_path / "l"), []
        for k in range(10):
            try:
                opened.account(["a"], release=f"model {k}").charge(guarantee([0.125]))
            except ReleaseChargedError:
                continue
            won.append(k)
        return won

    one, other = at_once([work, work])
    assert sorted(one + other) == list(range(10))
    assert ledger.account(["a"]).spent.tolist() == [1.25]


def work_for_ever(path, seed, tell):
    """Sell to and charge many sellers at once; tell each step once it has returned."""
    ledger, rng = cm.Ledger(path), random.Random(seed)
    ids = [f"s{k}" for k in range(MANY)]
    for step in range(10_000):
        name = f"{seed}-{step}"
        if rng.random() < 0.5:
            ledger.sell(ids, 0.125, 0.5, source=name)
            tell("sold", name)
        else:
            try:
                ledger.account(ids, release=name).charge(guarantee([0.125] * MANY))
            except BudgetExceededError:
                continue
            tell("charged", name)


def stored(ledger):
    """Return the steps that are stored; each covers all sellers or none."""
    sales, charges = ledger.sales(), ledger.charges()
    found = [("sold", name, len(rows)) for name, rows in sales.groupby("source")]
    found += [("charged", name, len(rows)) for name, rows in charges.groupby("release")]
    assert {rows for _, _, rows in found} <= {MANY}
    assert ledger.releases()["name"].nunique() == charges["release"].nunique()
    return {(kind, name) for kind, name, _ in found}


def test_killed_at_random_instants_of_selling_and_charging(tmp_path):
    path = tmp_path / "l"
    ledger = cm.Ledger.create(path)
    rng, known = random.Random(3), set()
    for kill in range(25):
        child = Child(lambda tell, kill=kill: work_for_ever(path, kill, tell))
        for _ in range(rng.randint(1, 3)):
            child.wait_until_it_tells()
        time.sleep(rng.uniform(0, 0.04))
        told = {tuple(line) for line in child.kill()}
        now = stored(ledger)
        assert known | told <= now, "a step was lost"
        assert len(now - known - told) <= 1, "more than one step was under way"
        known = now
        frame = ledger.balance()
        n_sold = sum(kind == "sold" for kind, _ in known)
        assert np.array_equal(frame["sold"], np.full(MANY, 0.125 * n_sold))
        assert np.array_equal(frame["spent"], np.full(MANY, 0.125 * (len(known) - n_sold)))
        assert np.array_equal(frame["left"], frame["sold"] - frame["spent"])
        assert (frame["left"] >= 0).all()
    check_integrity(path)


def stopping(call, tell):
    def stop(*arguments):
        result = call(*arguments)
        tell("here")
        time.sleep(60)
        return result

    return stop


def test_killed_in_the_middle_of_a_charge(tmp_path):
    ledger = cm.Ledger.create(tmp_path / "l")
    ledger.sell(["a", "b"], 1.0, 0.0)

    def work(tell):
        entries.now = stopping(entries.now, tell)  # asked when the account has agreed
        cm.Ledger(tmp_path / "l").account(["a", "b"], release="m").charge(guarantee([1.0, 1.0]))

    for _ in range(2):
        child = Child(work)
        child.wait_until_it_tells()
        child.kill()
        assert ledger.releases().empty
        assert ledger.account(["a", "b"]).spent.tolist() == [0.0, 0.0]
    ledger.account(["a", "b"], release="m").charge(guarantee([1.0, 1.0]))
    check_integrity(ledger.path)


def test_killed_between_the_charge_and_the_publication(tmp_path):
    """What may have been seen stays charged: the same release cannot be made twice."""
    ledger = cm.Ledger.create(tmp_path / "l")
    ledger.sell(["a"], 1.0, 0.0)

    def work(tell):
        cm.Ledger(tmp_path / "l").account(["a"], release="m").charge(guarantee([0.5]))
        tell("charged")
        time.sleep(60)  # noise would be drawn here, and a model published

    child = Child(work)
    child.wait_until_it_tells()
    child.kill()
    assert ledger.account(["a"]).spent.tolist() == [0.5]
    with pytest.raises(ReleaseChargedError, match="'m' was charged on"):
        ledger.account(["a"], release="m").charge(guarantee([0.5]))
    ledger.account(["a"], release="m, again").charge(guarantee([0.5]))
    assert ledger.account(["a"]).remaining.tolist() == [0.0]


def test_killed_while_a_ledger_is_made(tmp_path):
    made = 0
    for kill in range(20):
        path = tmp_path / f"{kill}" / "l"

        def work(tell, path=path):
            tell("begun")
            cm.Ledger.create(path).disconnect()
            tell("made")
            time.sleep(60)

        child = Child(work)
        child.wait_until_it_tells()
        if kill % 2:
            child.wait_until_it_tells()
        else:
            time.sleep(random.Random(kill).uniform(0, 0.02))
        told = child.kill()
        assert path.exists() or ["made"] not in told
        made += path.exists()
        with cm.Ledger(path) if path.exists() else cm.Ledger.create(path) as ledger:
            ledger.sell(["a"], 1.0, 0.0)
            assert len(ledger.sales()) == 1
    assert made >= 10
