"""Use a ledger in forked processes, and check the ledger after each kill."""

import random
import time

import numpy as np

import convexmarket as cm
from convexmarket.errors import BudgetExceededError
from convexmarket.privacy import Guarantee
from tests.process.builders import Child, check_integrity

MANY = 40


def guarantee(epsilon):
    return Guarantee(np.asarray(epsilon, dtype=float), 0.0, "a model", "tight", ())


def work_forever(path, seed, notify):
    """Record sales and charges of many sellers in each step, and report each completed step."""
    ledger, rng = cm.Ledger(path), random.Random(seed)
    ids = [f"s{k}" for k in range(MANY)]
    for step in range(10_000):
        name = f"{seed}-{step}"
        if rng.random() < 0.5:
            ledger.sell(ids, 0.125, 0.5, source=name)
            notify("sold", name)
        else:
            try:
                ledger.account(ids, release=name).charge(guarantee([0.125] * MANY))
            except BudgetExceededError:
                continue
            notify("charged", name)


def stored(ledger):
    """Check that each stored step contains all sellers, and return the stored steps."""
    sales, charges = ledger.sales(), ledger.charges()
    result = [("sold", name, len(rows)) for name, rows in sales.groupby("source")]
    result += [("charged", name, len(rows)) for name, rows in charges.groupby("release")]
    assert {rows for _, _, rows in result} <= {MANY}
    assert ledger.releases()["name"].nunique() == charges["release"].nunique()
    return {(kind, name) for kind, name, _ in result}


def check_random_kills(path, kills):
    """Start and kill, one after another, processes that sell and charge."""
    ledger = cm.Ledger.create(path)
    rng, known = random.Random(3), set()
    for kill in range(kills):
        child = Child(lambda notify, kill=kill: work_forever(path, kill, notify))
        for _ in range(rng.randint(1, 3)):
            child.wait_for_message()
        time.sleep(rng.uniform(0, 0.04))
        message = {tuple(line) for line in child.kill()}
        now = stored(ledger)
        assert known | message <= now, "a step was lost"
        assert len(now - known - message) <= 1, "more than one step was in progress"
        known = now
        frame = ledger.balance()
        n_sold = sum(kind == "sold" for kind, _ in known)
        assert np.array_equal(frame["sold"], np.full(MANY, 0.125 * n_sold))
        assert np.array_equal(frame["spent"], np.full(MANY, 0.125 * (len(known) - n_sold)))
        assert np.array_equal(frame["left"], frame["sold"] - frame["spent"])
        assert (frame["left"] >= 0).all()
    check_integrity(path)


def check_kills_in_creation(folder, kills):
    """Start and kill several processes that create a ledger."""
    made = 0
    for kill in range(kills):
        path = folder / f"{kill}" / "l"

        def work(notify, path=path):
            notify("begun")
            cm.Ledger.create(path).disconnect()
            notify("made")
            time.sleep(60)

        child = Child(work)
        child.wait_for_message()
        if kill % 2:
            child.wait_for_message()
        else:
            time.sleep(random.Random(kill).uniform(0, 0.02))
        message = child.kill()
        assert path.exists() or ["made"] not in message
        made += path.exists()
        with cm.Ledger(path) if path.exists() else cm.Ledger.create(path) as ledger:
            ledger.sell(["a"], 1.0, 0.0)
            assert len(ledger.sales()) == 1
    assert made >= kills // 2
