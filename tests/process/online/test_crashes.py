"""A market whose processes are killed at any instant (SIGKILL): nothing that was told is lost.

Children tell through a pipe what they were told, right after each step. After each kill the
database holds all of it, with the same terms, and at most the step that was under way besides.
"""

import gc
import json
import os
import random
import select
import signal
import sqlite3
import time
import traceback
from collections import Counter
from dataclasses import astuple

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import ConvexMarketError
from convexmarket.online import AdaptivePolicy, OnlinePolicy
from convexmarket.online.market import OnlineMarket

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

BOUGHT = 1.1


def fixed(expected):
    return OnlinePolicy(cm.Uniform(1, 5), expected, mu=1, sigma=1, gamma=1)


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
                # Short lines are written entirely or not at all.
                work(lambda *told: os.write(write, (json.dumps(told) + "\n").encode()))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)

    def wait_until_it_tells(self, times=1):
        for _ in range(times):
            assert select.select([self.heard], [], [], 60)[0], "the child has stopped"
            line = b""
            while not line.endswith(b"\n"):
                byte = os.read(self.heard, 1)
                assert byte, "the child has ended"
                line += byte
            self.lines.append(json.loads(line))

    def kill(self):
        """Kill it, unless it has ended, and return all that it told."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def end(self):
        """Wait for its end and return all that it told."""
        with os.fdopen(self.heard) as pipe:
            self.lines += [json.loads(line) for line in pipe]
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status) or status == 0
        return self.lines


class Delay:
    """Random delays that are too short and too long about as often, on slow computers too."""

    def __init__(self, seed):
        self._rng, self._typical = random.Random(seed), 0.004

    def wait(self):
        time.sleep(self._typical * self._rng.uniform(0, 2))

    def was_too_long(self, too_long):
        self._typical *= 0.8 if too_long else 1.25


def rows(market):
    """Return the offers, read by plain SQL, as tuples in the order of an Offer's attributes."""
    connection = sqlite3.connect(market.folder / "market.sqlite")
    found = connection.execute(
        "SELECT id, quotes.number, sensitivity, epsilon, payment, "
        "coalesce(answer, iif(epsilon > 0, 'offered', 'nothing bought')) "
        "FROM quotes LEFT JOIN answers ON answers.number = quotes.number ORDER BY quotes.number"
    ).fetchall()
    connection.close()
    return {row[0]: row for row in found}


def check_integrity(market):
    market.disconnect()
    connection = sqlite3.connect(market.folder / "market.sqlite")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


# ------------------------------------------------------------------ at random instants


def work_for_ever(market, seed, tell):
    """Quote, accept, decline and ask again; tell each step once it has returned."""
    rng = random.Random(seed)
    known = {id: row[2] for id, row in rows(market).items()}
    while True:
        kind = rng.random()
        if kind < 0.55 or not known:
            id, report = f"{seed}-{len(known)}", rng.choice([rng.uniform(1, 1.3), 4.0])
            known[id] = report
            tell(*astuple(market.quote(id, report)))
        elif kind < 0.65:
            reports = [(f"{seed}-{len(known)}-{k}", rng.uniform(1, 1.5)) for k in range(3)]
            known.update(reports)
            for offer in market.quote_many(reports, batch=3):
                tell(*astuple(offer))
        elif kind < 0.75:
            id = rng.choice(list(known))
            tell(*astuple(market.quote(id, known[id])))
        else:
            id, answer = rng.choice(list(known)[-8:]), rng.choice([market.accept, market.decline])
            try:
                told = astuple(answer(id))
            except ConvexMarketError:  # answered otherwise before, or nothing was bought
                continue
            tell(*told)


def check_told(told, before, after):
    """Check one kill: all that was told is there, and one step at most that was not."""
    model = dict(before)
    for line in told:
        id = line[0]
        if id in model:
            assert tuple(line[:5]) == model[id][:5], "one seller at two terms"
            assert model[id][5] in ("offered", line[5]), "an answer was changed"
        model[id] = tuple(line)
    assert model.keys() <= after.keys(), "an offer was lost"
    for id, row in model.items():
        assert row[:5] == after[id][:5], "the terms have changed"
    unheard = after.keys() - model.keys()
    answered = {id for id, row in model.items() if row[5] != after[id][5]}
    for id in answered:
        assert model[id][5] == "offered", "an answer was lost"
    if unheard:
        # One step under way: a quote, or the batch of three of which none was told, or some.
        assert not answered
        assert len(unheard) == 1 or (len(unheard) <= 3 and len({i[:-2] for i in unheard}) == 1)
    else:
        assert len(answered) <= 1
    return bool(unheard), bool(answered)


def test_killed_at_random_instants(tmp_path):
    # A new plan after every seller at first, and less and less often.
    policy = AdaptivePolicy(fixed(100_000), first=2, growth=1.1)
    market = OnlineMarket.create(tmp_path, policy)
    rng = random.Random(7)
    seen, happened = {}, Counter()
    for kill in range(300):
        # An inherited market opens a connection of its own; every other child opens its own.
        opened = (lambda: market) if kill % 2 else (lambda: OnlineMarket(tmp_path))
        child = Child(lambda tell, opened=opened, k=kill: work_for_ever(opened(), k, tell))
        if kill % 5:
            child.wait_until_it_tells(rng.randint(1, 5))
            time.sleep(rng.choice([0.0, rng.uniform(0, 0.001), rng.uniform(0, 0.005)]))
        else:
            time.sleep(rng.uniform(0, 0.03))  # perhaps while it opens the database
        told = child.kill()
        after = rows(market)
        unheard, answered = check_told(told, seen, after)
        happened.update(told=len(told), unheard=unheard, answered=answered)
        seen = after
        assert [row[1] for row in after.values()] == list(range(1, len(after) + 1))
    assert happened["told"] > 500
    assert happened["unheard"] > 0, "no kill has hit a step"
    for id, row in list(seen.items())[::10]:
        assert astuple(market.quote(id, row[2])) == row
    check_plans(market, policy)
    check_integrity(market)


def check_plans(market, policy):
    """Check that a plan was made at each stage, once, and that it gave the terms after it."""
    frame, plans = market.offers(), market.plans()
    reached = [stage for stage in policy.stages if stage < len(frame)]
    assert [plan.after for plan in plans] == [0, *reached]
    starts = np.array([plan.after for plan in plans])
    expected = np.searchsorted(starts, frame["number"] - 1, side="right")
    assert frame["plan"].tolist() == expected.tolist()
    for plan, sellers in frame.groupby("plan"):
        quote = plans[plan - 1].policy.quote
        for row in sellers.itertuples():
            assert (row.epsilon, row.payment) == quote(row.sensitivity)


# ------------------------------------------------------------------ at chosen instants


def stopping(call, tell, before=True):
    """Return a function that tells and then waits to be killed, before or after its work."""

    def stop(*arguments, **options):
        result = None if before else call(*arguments, **options)
        tell("here")
        time.sleep(60)
        return result

    return stop


@pytest.mark.parametrize(
    ("owner", "name", "before"),
    [
        (AdaptivePolicy, "replanned", True),
        (AdaptivePolicy, "replanned", False),  # the plan is made, but not stored
        (OnlinePolicy, "quote", True),  # the plan is inserted, but not committed
        (OnlinePolicy, "quote", False),
    ],
)
def test_killed_while_a_plan_is_made(tmp_path, owner, name, before):
    policy = AdaptivePolicy(fixed(50), first=3)
    market = OnlineMarket.create(tmp_path, policy)
    for i in range(3):
        market.quote(f"s{i}", BOUGHT)

    def work(tell):
        setattr(owner, name, stopping(getattr(owner, name), tell, before))
        OnlineMarket(tmp_path).quote("s3", BOUGHT)

    for _ in range(3):
        child = Child(work)
        child.wait_until_it_tells()
        child.kill()
        assert len(market.plans()) == 1
        assert list(rows(market)) == ["s0", "s1", "s2"]
    assert market.quote("s3", BOUGHT).number == 4
    assert [plan.after for plan in market.plans()] == [0, 3]
    check_plans(market, policy)
    check_integrity(market)


def test_killed_while_a_market_is_made(tmp_path):
    delay = Delay(3)
    made = 0
    policy = fixed(10)
    for kill in range(50):
        folder = tmp_path / f"{kill}"

        def work(tell, folder=folder):
            OnlineMarket.create(folder, policy, "text")
            tell("made")

        child = Child(work)
        delay.wait()
        told = child.kill()
        exists = (folder / "market.sqlite").exists()
        delay.was_too_long(bool(told))
        assert exists or not told
        made += exists
        market = OnlineMarket(folder) if exists else OnlineMarket.create(folder, policy, "text")
        assert market.problem == "text"
        assert market.quote("s0", BOUGHT).number == 1
        market.disconnect()
    assert 0 < made < 50, "all kills were too early, or too late"


@pytest.mark.parametrize(("name", "before"), [("link", True), ("link", False), ("unlink", True)])
def test_killed_around_the_instant_that_a_market_appears(tmp_path, name, before):
    def work(tell):
        setattr(os, name, stopping(getattr(os, name), tell, before))
        OnlineMarket.create(tmp_path, fixed(10))

    child = Child(work)
    child.wait_until_it_tells()
    child.kill()
    appeared = (name, before) != ("link", True)
    assert (tmp_path / "market.sqlite").exists() == appeared
    if appeared:
        with pytest.raises(cm.DataError, match="already"):
            OnlineMarket.create(tmp_path, fixed(10))
        market = OnlineMarket(tmp_path)
    else:
        market = OnlineMarket.create(tmp_path, fixed(10))
    market.quote("s0", BOUGHT)
    check_integrity(market)


# ------------------------------------------------------------------ while it is closed


def market_with_offers(folder):
    market = OnlineMarket.create(folder, fixed(20))
    for _ in market.quote_many((f"s{i}", BOUGHT) for i in range(6)):
        pass
    for i in range(4):
        market.accept(f"s{i}")
    return market


def test_killed_while_the_model_is_trained(tmp_path):
    market = market_with_offers(tmp_path)

    def work(tell):
        def release(accepted):
            tell("training")
            time.sleep(60)
            return '"lost"'

        OnlineMarket(tmp_path).close(release, lapse=True)

    for _ in range(2):
        child = Child(work)
        child.wait_until_it_tells()
        child.kill()
        assert market.is_closed
        assert market.released is None
    assert market.counts()["declined"] == 2
    assert market.close(lambda accepted: json.dumps(len(accepted))) == "4"
    assert market.close(None) == "4"
    check_integrity(market)


def test_killed_at_random_instants_of_closing(tmp_path):
    delay = Delay(5)
    happened = Counter()
    for kill in range(40):
        market = market_with_offers(tmp_path / f"{kill}")

        def work(tell, market=market, kill=kill):
            tell("begun")
            told = market.close(lambda accepted: json.dumps([kill, len(accepted)]), lapse=True)
            tell("released", told)

        child = Child(work)
        child.wait_until_it_tells()
        delay.wait()
        told = child.kill()[1:]
        delay.was_too_long(bool(told))
        stored = market.released
        counts = market.counts()
        assert counts["accepted"] == 4
        # The end of quoting and the lapse of offers are one step.
        assert counts["declined"] == (2 if market.is_closed else 0)
        assert not told or told == [["released", stored]]
        assert stored in (None, json.dumps([kill, 4]))
        happened[market.is_closed, stored is not None] += 1
        again = market.close(lambda accepted: '"another"', lapse=True)
        assert again == (stored or '"another"') == market.close(None)
        check_integrity(market)
    assert happened[False, False], "all kills were too late"
    assert happened[True, True], "all kills were too early"
