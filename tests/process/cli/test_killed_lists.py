"""A command that quotes a list resumes after several kills, and quotes the same offers."""

import random
import time

import pandas as pd

from convexmarket.online import quote_lists
from convexmarket.online.online_market import OnlineMarket
from convexmarket.online.quote_lists import quote_list
from tests.process.builders import Child, needs_fork
from tests.process.online.builders import fixed


@needs_fork
def test_a_killed_list_of_sellers_can_be_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(quote_lists, "TOGETHER", 100)
    check_killed_list(tmp_path, 500)


def check_killed_list(tmp_path, n):
    rng = random.Random(0)
    reports = [rng.uniform(1, 5) for _ in range(n)]
    lines = [f"s{number},{report!r}" for number, report in enumerate(reports)]
    (tmp_path / "long.csv").write_text("\n".join(["id,sensitivity", *lines]) + "\n")
    market = OnlineMarket.create(tmp_path / "m", fixed(n))
    before = market.offers()

    def work(notify):
        def progress(*_):
            notify(1)
            time.sleep(0.001)  # the test can then kill the command

        with OnlineMarket(tmp_path / "m") as opened:
            quote_list(opened, tmp_path / "long.csv", progress=progress)

    for steps in (1, 40, 101, 30):
        child = Child(work)
        child.wait_for_message(steps)
        time.sleep(rng.uniform(0, 0.01))
        known = len(child.kill())
        after = market.offers()
        assert len(after) >= len(before) + known - 1
        pd.testing.assert_frame_equal(after.head(len(before)), before, check_dtype=False)
        before = after
    assert 0 < len(before) < n
    quote_list(market, tmp_path / "long.csv")
    complete = market.offers()
    pd.testing.assert_frame_equal(complete.head(len(before)), before)
    assert complete["id"].tolist() == [f"s{number}" for number in range(n)]
    assert complete["sensitivity"].tolist() == reports
