"""Shared and killed processes of a market; tests/process has more such tests."""

import random
import threading
from dataclasses import asdict, astuple

import pytest

from convexmarket.online import OnlinePolicy
from convexmarket.online.online_market import OnlineMarket
from tests.process.builders import Child, needs_fork, stopping
from tests.process.online.builders import (
    BOUGHT,
    check_all_told,
    check_database,
    fixed,
    market_with_offers,
    report_of,
    rows,
)


@needs_fork
@pytest.mark.parametrize("before", [True, False])
def test_a_market_reopens_after_a_kill_during_a_quote(tmp_path, before):
    market = market_with_offers(tmp_path)
    known = rows(market)

    def work(tell):
        OnlinePolicy.quote = stopping(OnlinePolicy.quote, tell, before)
        OnlineMarket(tmp_path).quote("new", BOUGHT)

    child = Child(work)
    child.wait_until_it_tells()
    child.kill()
    with OnlineMarket(tmp_path) as again:
        assert rows(again) == known
        assert [astuple(again.quote(id, BOUGHT)) for id in known] == list(known.values())
        message = again.quote("new", BOUGHT)
        assert astuple(message) == astuple(market.quote("new", BOUGHT))
        assert rows(again) == known | {"new": astuple(message)}
        assert message.number == len(known) + 1
        assert again.ledger.sales()["id"].tolist() == ["s0", "s1", "s2", "s3"]
        check_database(again)


def test_threads_can_share_a_market(tmp_path):
    n, message, wrong = 60, [], []
    market = OnlineMarket.create(tmp_path, fixed(1000))

    def work(seed):
        order = list(range(n))
        random.Random(seed).shuffle(order)
        try:
            message.extend([asdict(market.quote(f"s{i}", report_of(i))) for i in order])
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(message) == 4 * n
    check_all_told(market, message, n)
