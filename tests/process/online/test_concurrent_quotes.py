"""Several processes and threads quote offers in one market at the same time."""

import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import asdict

import pytest

from convexmarket.errors import DataError, MarketClosedError, OfferError
from convexmarket.online import AdaptivePolicy
from convexmarket.online.online_market import OnlineMarket
from tests.process.builders import at_once, needs_fork
from tests.process.online.builders import BOUGHT, check_all_stored, fixed, report_of

pytestmark = needs_fork


def joined(parts):
    return list(itertools.chain.from_iterable(parts))


@pytest.mark.parametrize("inherited", [False, True])
def test_four_processes_can_quote_the_same_sellers(tmp_path, inherited):
    n = 60
    market = OnlineMarket.create(tmp_path, AdaptivePolicy(fixed(1000)))

    def work(seed):
        opened = market if inherited else OnlineMarket(tmp_path)
        order = list(range(n))
        random.Random(seed).shuffle(order)
        return [asdict(opened.quote(f"s{i}", report_of(i))) for i in order]

    message = at_once([lambda seed=seed: work(seed) for seed in range(4)])
    assert [len(part) for part in message] == [n] * 4
    check_all_stored(market, joined(message), n)
    reached = [stage for stage in market.policy.stages if stage < n]
    assert [plan.after for plan in market.plans()] == [0, *reached]


def test_backups_during_quotes_contain_an_earlier_state(tmp_path):
    market = OnlineMarket.create(tmp_path / "market", fixed(1000))

    def work(k):
        opened = OnlineMarket(tmp_path / "market")
        if k:
            return [asdict(opened.quote(f"{k}, {i}", report_of(i))) for i in range(40)]
        result = []
        for i in range(15):
            opened.backup(tmp_path / str(i % 5) / "market.sqlite", force=True)
            with OnlineMarket(tmp_path / str(i % 5)) as copy:
                result.append(copy.offers().to_dict("records"))
        return result

    backups, *message = at_once([lambda k=k: work(k) for k in range(4)])
    check_all_stored(market, joined(message), 120)
    whole = market.offers().to_dict("records")
    assert [whole[: len(part)] for part in backups] == backups
    assert [len(part) for part in backups] == sorted(len(part) for part in backups)


def test_a_race_quotes_exactly_the_expected_number_of_sellers(tmp_path):
    expected = 50
    market = OnlineMarket.create(tmp_path, fixed(expected))

    def one_by_one(k):
        opened, message, late = OnlineMarket(tmp_path), [], 0
        for i in range(30):
            try:
                message.append(asdict(opened.quote(f"{k}-{i}", BOUGHT)))
            except MarketClosedError:
                late += 1
        return message, late

    def in_batches(k):
        message = []
        try:
            for offer in OnlineMarket(tmp_path).quote_many(
                ((f"{k}-{i}", BOUGHT) for i in range(30)), batch=7
            ):
                message.append(asdict(offer))
        except MarketClosedError:
            pass
        return message, 30 - len(message)

    works = [one_by_one, one_by_one, in_batches, in_batches]
    results = at_once([lambda k=k, work=work: work(k) for k, work in enumerate(works)])
    message = [offer for part, _ in results for offer in part]
    assert len(message) == expected
    assert sum(late for _, late in results) == 4 * 30 - expected
    check_all_stored(market, message, expected)


def test_simultaneous_answers_store_exactly_one_answer(tmp_path):
    n = 40
    market = OnlineMarket.create(tmp_path, fixed(n))
    for _ in market.quote_many((f"s{i}", BOUGHT) for i in range(n)):
        pass

    def work(name):
        answer, message = getattr(OnlineMarket(tmp_path), name), []
        for i in range(n):
            try:
                message.append(answer(f"s{i}").status)
            except OfferError:
                message.append(None)
        return message

    names = ["accept", "decline", "accept", "decline"]
    message = at_once([lambda name=name: work(name) for name in names])
    final = market.offers()["status"].tolist()
    for i, status in enumerate(final):
        assert Counter(part[i] for part in message) == {status: 2, None: 2}


def test_a_race_creates_one_market(tmp_path):
    def work(k):
        made = []
        for round in range(10):
            try:
                OnlineMarket.create(tmp_path / f"m{round}", fixed(10), f"{k}")
                made.append(round)
            except DataError as error:
                if "from an earlier market" not in str(error):
                    raise
        return made

    message = at_once([lambda k=k: work(k) for k in range(4)])
    assert sorted(joined(message)) == list(range(10))
    for k, rounds in enumerate(message):
        for round in rounds:
            assert OnlineMarket(tmp_path / f"m{round}").problem == f"{k}"


def test_simultaneous_closes_release_one_model(tmp_path):
    market = OnlineMarket.create(tmp_path, fixed(10))
    market.quote("s0", BOUGHT)
    market.accept("s0")

    def work(k):
        def release(accepted):
            (tmp_path / f"trained-{k}").write_text("")
            time.sleep(0.05)
            return json.dumps(k)

        return OnlineMarket(tmp_path).close(release)

    message = at_once([lambda k=k: work(k) for k in range(4)])
    (trained,) = tmp_path.glob("trained-*")
    winner = trained.name.removeprefix("trained-")
    assert message == [winner] * 4
    assert market.released == winner


def test_a_market_can_be_closed_during_quotes(tmp_path):
    market = OnlineMarket.create(tmp_path, fixed(10_000))
    market.quote("first", BOUGHT)

    def quote(k):
        opened, message = OnlineMarket(tmp_path), []
        for i in range(10_000):
            try:
                message.append(asdict(opened.quote(f"{k}-{i}", 4.0 if i % 2 else BOUGHT)))
            except MarketClosedError:
                return message
        raise AssertionError("never closed")

    def close():
        opened = OnlineMarket(tmp_path)
        while opened.counts()["quoted"] < 60:
            time.sleep(0.001)
        return opened.close(lambda accepted: json.dumps(opened.counts()["quoted"]), lapse=True)

    works = [lambda k=k: quote(k) for k in range(3)]
    *message, released = at_once([*works, close])
    counts = market.counts()
    assert counts["offered"] == 0
    assert counts["quoted"] == int(released) == 1 + sum(len(part) for part in message)
    first = asdict(market.quote("first", BOUGHT))
    check_all_stored(market, [first, *joined(message)], counts["quoted"])


def test_a_fork_waits_for_the_step_of_another_thread(tmp_path):
    """Without waiting, the exit of a child process would roll back a transaction of its parent."""
    market = OnlineMarket.create(tmp_path, fixed(10))
    under_way, ended = threading.Event(), []

    def step():
        with market._store.writing() as connection:
            market._quote(connection, "s0", BOUGHT)
            under_way.set()
            time.sleep(0.2)
            ended.append(True)

    thread = threading.Thread(target=step)
    thread.start()
    under_way.wait()
    pid = os.fork()
    if pid == 0:
        same = bool(ended) and market.quote("s0", BOUGHT).number == 1
        os._exit(0 if same and market.quote("s1", BOUGHT).number == 2 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    assert market.quote("s2", BOUGHT).number == 3
    assert market.offers()["id"].tolist() == ["s0", "s1", "s2"]


def test_a_child_does_not_close_the_connection_of_its_parent(tmp_path):
    market = OnlineMarket.create(tmp_path, fixed(10))
    market.quote("s0", BOUGHT)
    pid = os.fork()
    if pid == 0:
        market.disconnect()
        os._exit(0 if market.quote("s1", BOUGHT).number == 2 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert market.quote("s2", BOUGHT).number == 3
