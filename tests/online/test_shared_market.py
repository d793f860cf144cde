"""Test threads that share a market. The folder tests/process tests processes."""

import random
import threading
from dataclasses import asdict

from convexmarket.online.online_market import OnlineMarket
from tests.process.online.builders import check_all_stored, fixed, report_of


def test_threads_can_share_a_market(tmp_path):
    n, offers, errors = 60, [], []
    market = OnlineMarket.create(tmp_path, fixed(1000))

    def work(seed):
        order = list(range(n))
        random.Random(seed).shuffle(order)
        try:
            offers.extend([asdict(market.quote(f"s{i}", report_of(i))) for i in order])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(offers) == 4 * n
    check_all_stored(market, offers, n)
