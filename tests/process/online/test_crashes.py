"""A market keeps all reported steps if SIGKILL ends its processes at random times.

Child processes report each completed step through a pipe. After each kill, the database contains
all reported steps with the same terms, and at most one step more, which was in progress.
"""

import json
import os
import time

import pytest

from convexmarket.errors import DataError
from convexmarket.online import AdaptivePolicy, OnlinePolicy
from convexmarket.online.online_market import OnlineMarket
from tests.process.builders import Child, needs_fork, stopping
from tests.process.online.builders import (
    BOUGHT,
    check_database,
    check_kills_in_closing,
    check_kills_in_creation,
    check_plans,
    check_random_kills,
    fixed,
    market_with_offers,
    rows,
)

pytestmark = needs_fork


def test_no_reported_step_is_lost_after_random_kills(tmp_path):
    check_random_kills(tmp_path, 80)


def test_a_market_is_complete_or_absent_after_a_kill_during_its_creation(tmp_path):
    check_kills_in_creation(tmp_path, 25)


def test_a_market_closes_with_one_model_after_random_kills(tmp_path):
    check_kills_in_closing(tmp_path, 20)


@pytest.mark.parametrize(
    ("owner", "name", "before"),
    [
        (AdaptivePolicy, "replanned", True),
        (AdaptivePolicy, "replanned", False),  # the plan is computed, but not stored
        (OnlinePolicy, "quote", True),  # the plan is inserted, but not committed
        (OnlinePolicy, "quote", False),
    ],
)
def test_a_plan_is_made_once_after_a_kill(tmp_path, owner, name, before):
    policy = AdaptivePolicy(fixed(50))
    market = OnlineMarket.create(tmp_path, policy)
    for i in range(10):
        market.quote(f"s{i}", BOUGHT)

    def work(notify):
        setattr(owner, name, stopping(getattr(owner, name), notify, before))
        OnlineMarket(tmp_path).quote("next", BOUGHT)

    for _ in range(3):
        child = Child(work)
        child.wait_for_message()
        child.kill()
        assert len(market.plans()) == 1
        assert list(rows(market)) == [f"s{i}" for i in range(10)]
    assert market.quote("next", BOUGHT).number == 11
    assert [plan.after for plan in market.plans()] == [0, 10]
    check_plans(market, policy)
    check_database(market)


@pytest.mark.parametrize(("name", "before"), [("link", True), ("link", False), ("unlink", True)])
def test_a_kill_around_the_creation_of_a_market_leaves_one_market_or_none(tmp_path, name, before):
    def work(notify):
        setattr(os, name, stopping(getattr(os, name), notify, before))
        OnlineMarket.create(tmp_path, fixed(10))

    child = Child(work)
    child.wait_for_message()
    child.kill()
    appeared = (name, before) != ("link", True)
    assert (tmp_path / "market.sqlite").exists() == appeared
    if appeared:
        with pytest.raises(DataError, match="from an earlier market"):
            OnlineMarket.create(tmp_path, fixed(10))
        market = OnlineMarket(tmp_path)
    else:
        market = OnlineMarket.create(tmp_path, fixed(10))
    market.quote("s0", BOUGHT)
    check_database(market)


def test_a_model_is_charged_once_after_a_kill_during_training(tmp_path):
    market = market_with_offers(tmp_path)

    def work(notify):
        def release(accepted):
            notify("training")
            time.sleep(60)
            return '"lost"'

        OnlineMarket(tmp_path).close(release, lapse=True)

    for _ in range(2):
        child = Child(work)
        child.wait_for_message()
        child.kill()
        assert market.is_closed
        assert market.released is None
        assert market.ledger.balance()["left"].tolist() == [0.0] * 4  # the model is charged
        assert len(market.ledger.releases()) == 1
    assert market.counts()["declined"] == 2
    assert market.close(lambda accepted: json.dumps(len(accepted))) == "4"
    assert market.close(None) == "4"
    assert len(market.ledger.releases()) == 1
    check_database(market)
