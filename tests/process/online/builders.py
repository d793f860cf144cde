"""Use an online market in forked processes, and check the market after each kill."""

import json
import random
import sqlite3
import time
from collections import Counter
from dataclasses import astuple

import numpy as np

import convexmarket as cm
from convexmarket.errors import ConvexMarketError
from convexmarket.online import AdaptivePolicy, OnlinePolicy
from convexmarket.online.online_market import OnlineMarket
from tests.process.builders import Child, check_integrity

BOUGHT = 1.1


def fixed(expected):
    return OnlinePolicy(cm.Uniform(1, 5), expected, mu=1, sigma=1, gamma=1)


def market_with_offers(folder):
    market = OnlineMarket.create(folder, fixed(20))
    for _ in market.quote_many((f"s{i}", BOUGHT) for i in range(6)):
        pass
    for i in range(4):
        market.accept(f"s{i}")
    return market


def check_database(market):
    market.disconnect()
    check_integrity(market.folder / "market.sqlite")


def report_of(number):
    return 1.0 + (number % 37) / 10


def check_all_stored(market, reported, n):
    """Check that the market stores each reported step exactly once."""
    frame = market.offers()
    assert frame["number"].tolist() == list(range(1, n + 1))
    assert frame["id"].is_unique
    stored = {row["id"]: row for row in frame.drop(columns="plan").to_dict("records")}
    for offer in reported:
        assert offer.items() <= stored[offer["id"]].items() | {("status", offer["status"])}
    assert {offer["id"] for offer in reported} == stored.keys()
    check_database(market)


class Delay:
    """Random delays before kills, adapted so that they are too short as often as too long."""

    def __init__(self, seed):
        self._rng, self._typical = random.Random(seed), 0.004

    def wait(self):
        time.sleep(self._typical * self._rng.uniform(0, 2))

    def was_too_long(self, too_long):
        self._typical *= 0.8 if too_long else 1.25


def rows(market):
    """Read the offers with plain SQL, as tuples in the order of the attributes of Offer."""
    connection = sqlite3.connect(market.folder / "market.sqlite")
    result = connection.execute(
        "SELECT id, quotes.number, sensitivity, epsilon, payment, "
        "coalesce(answer, iif(epsilon > 0, 'offered', 'nothing bought')) "
        "FROM quotes LEFT JOIN answers ON answers.number = quotes.number ORDER BY quotes.number"
    ).fetchall()
    connection.close()
    return {row[0]: row for row in result}


def work_forever(market, seed, notify):
    """Quote, accept, decline and repeat quotes, and report each completed step."""
    rng = random.Random(seed)
    known = {id: row[2] for id, row in rows(market).items()}
    while True:
        kind = rng.random()
        if kind < 0.55 or not known:
            id, report = f"{seed}-{len(known)}", rng.choice([rng.uniform(1, 1.3), 4.0])
            known[id] = report
            notify(*astuple(market.quote(id, report)))
        elif kind < 0.65:
            reports = [(f"{seed}-{len(known)}-{k}", rng.uniform(1, 1.5)) for k in range(3)]
            known.update(reports)
            for offer in market.quote_many(reports, batch=3):
                notify(*astuple(offer))
        elif kind < 0.75:
            id = rng.choice(list(known))
            notify(*astuple(market.quote(id, known[id])))
        else:
            id, answer = rng.choice(list(known)[-8:]), rng.choice([market.accept, market.decline])
            try:
                message = astuple(answer(id))
            except ConvexMarketError:  # the offer has another answer, or its epsilon is 0
                continue
            notify(*message)


def check_stored(reported, before, after):
    """Check after a kill that the market stores all reported steps and at most one other step."""
    model = dict(before)
    for line in reported:
        id = line[0]
        if id in model:
            assert tuple(line[:5]) == model[id][:5], "a seller has two offers"
            assert model[id][5] in ("offered", line[5]), "an answer was changed"
        model[id] = tuple(line)
    assert model.keys() <= after.keys(), "an offer was lost"
    for id, row in model.items():
        assert row[:5] == after[id][:5], "the terms have changed"
    extra = after.keys() - model.keys()
    answered = {id for id, row in model.items() if row[5] != after[id][5]}
    for id in answered:
        assert model[id][5] == "offered", "an answer was lost"
    if extra:
        # One step was in progress: a quote, or a batch of quotes that was partly reported.
        assert not answered
        assert len(extra) == 1 or (len(extra) <= 3 and len({i[:-2] for i in extra}) == 1)
    else:
        assert len(answered) <= 1
    return bool(extra), bool(answered)


def check_plans(market, policy):
    """Check that each stage has exactly one plan, which determines the terms of its offers."""
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


def check_random_kills(folder, kills):
    """Start and kill, one after another, processes that work in one market."""
    policy = AdaptivePolicy(fixed(100_000))
    market = OnlineMarket.create(folder, policy)
    rng = random.Random(7)
    seen, tally = {}, Counter()
    for kill in range(kills):
        # Half of the children inherit an open market, and must open a new connection.
        opened = (lambda: market) if kill % 2 else (lambda: OnlineMarket(folder))
        child = Child(lambda notify, opened=opened, k=kill: work_forever(opened(), k, notify))
        if kill % 5:
            child.wait_for_message(rng.randint(1, 5))
            time.sleep(rng.choice([0.0, rng.uniform(0, 0.001), rng.uniform(0, 0.005)]))
        else:
            time.sleep(rng.uniform(0, 0.03))  # the kill can occur while the database is opened
        message = child.kill()
        after = rows(market)
        extra, answered = check_stored(message, seen, after)
        tally.update(reported=len(message), extra=extra, answered=answered)
        seen = after
        assert [row[1] for row in after.values()] == list(range(1, len(after) + 1))
    assert tally["reported"] > kills
    assert tally["extra"] > 0, "no process was killed during a step"
    for id, row in list(seen.items())[::10]:
        assert astuple(market.quote(id, row[2])) == row
    check_plans(market, policy)
    check_database(market)


def check_kills_in_creation(parent, kills):
    """Start and kill several processes that create a market."""
    delay = Delay(3)
    made = 0
    policy = fixed(10)
    for kill in range(kills):
        folder = parent / f"{kill}"

        def work(notify, folder=folder):
            OnlineMarket.create(folder, policy, "text")
            notify("made")

        child = Child(work)
        delay.wait()
        message = child.kill()
        exists = (folder / "market.sqlite").exists()
        delay.was_too_long(bool(message))
        assert exists or not message
        made += exists
        market = OnlineMarket(folder) if exists else OnlineMarket.create(folder, policy, "text")
        assert market.problem == "text"
        assert market.quote("s0", BOUGHT).number == 1
        market.disconnect()
    assert 0 < made < kills, "all kills were too early, or too late"


def check_kills_in_closing(parent, kills):
    """Start and kill several processes that close a market."""
    delay = Delay(5)
    tally = Counter()
    for kill in range(kills):
        market = market_with_offers(parent / f"{kill}")

        def work(notify, market=market, kill=kill):
            notify("begun")
            message = market.close(lambda accepted: json.dumps([kill, len(accepted)]), lapse=True)
            notify("released", message)

        child = Child(work)
        child.wait_for_message()
        delay.wait()
        message = child.kill()[1:]
        delay.was_too_long(bool(message))
        stored = market.released
        counts = market.counts()
        assert counts["accepted"] == 4
        # One step closes the market and lets open offers lapse.
        assert counts["declined"] == (2 if market.is_closed else 0)
        assert not message or message == [["released", stored]]
        assert stored in (None, json.dumps([kill, 4]))
        tally[market.is_closed, stored is not None] += 1
        again = market.close(lambda accepted: '"another"', lapse=True)
        assert again == (stored or '"another"') == market.close(None)
        check_database(market)
    assert tally[False, False], "all kills were too late"
    assert tally[True, True], "all kills were too early"
