"""Online markets on disk.

The benchmarks assert that each quote is stored exactly once. Each step requires five syncs of the
disk, so the table also contains the time of a sync. A sync takes much longer if other programs use
all cores.
"""

import itertools
import os
import time

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.online import OnlinePolicy
from convexmarket.online.online_market import OnlineMarket

N_QUOTES = 2000
POLICY = OnlinePolicy(cm.Uniform(1, 5), 1_000_000, mu=1, sigma=1, gamma=1)
REPORTS = np.random.default_rng(0).uniform(1, 5, N_QUOTES).tolist()


@pytest.fixture
def new_market(tmp_path):
    """Return a function that creates the files of an online market and makes one quote."""
    numbers = itertools.count()

    def make(*_):
        market = OnlineMarket.create(tmp_path / f"{next(numbers)}", POLICY)
        market.quote("first", 2.0)
        return (market,), {}

    return make


def seconds_of_a_sync(folder):
    """Measure the median time to write one page and sync it to disk."""
    times = []
    with (folder / "page").open("wb") as file:
        for _ in range(50):
            file.seek(0)
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return float(np.median(times))


def report(benchmark, market, folder):
    numbers = market.offers()["number"].tolist()
    assert numbers == list(range(1, N_QUOTES + 2))
    benchmark.extra_info["quotes per second"] = round(N_QUOTES / benchmark.stats.stats.median)
    benchmark.extra_info["milliseconds of a sync"] = round(1e3 * seconds_of_a_sync(folder), 3)


def quote_at_once(market, n_processes):
    children = []
    for k in range(n_processes):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for i in range(k, N_QUOTES, n_processes):
                    market.quote(f"s{i}", REPORTS[i])
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    return market


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("n_processes", [1, 2, 4])
def test_quotes_in_single_transactions_are_durable(benchmark, new_market, tmp_path, n_processes):
    """Measure 2,000 durable quotes with a transaction for each quote."""
    market = benchmark.pedantic(
        lambda market: quote_at_once(market, n_processes), setup=new_market, rounds=3
    )
    report(benchmark, market, tmp_path)


@pytest.mark.parametrize("batch", [10, 100])
def test_quotes_in_batches_are_durable(benchmark, new_market, tmp_path, batch):
    """Measure 2,000 durable quotes in transactions of several quotes."""

    def quote(market):
        for _ in market.quote_many(((f"s{i}", c) for i, c in enumerate(REPORTS)), batch):
            pass
        return market

    market = benchmark.pedantic(quote, setup=new_market, rounds=3)
    report(benchmark, market, tmp_path)
