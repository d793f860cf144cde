"""Several processes use one ledger and are killed by SIGKILL at random times."""

import time

import pytest

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, ReleaseChargedError
from convexmarket.ledger import book
from tests.process.builders import Child, at_once, check_integrity, needs_fork, stopping
from tests.process.ledger.builders import check_kills_in_creation, check_random_kills, guarantee

pytestmark = needs_fork


def test_concurrent_charges_never_exceed_the_sold_privacy(tmp_path):
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


def test_only_one_of_two_processes_charges_a_release_name(tmp_path):
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

    single, other = at_once([work, work])
    assert sorted(single + other) == list(range(10))
    assert ledger.account(["a"]).spent.tolist() == [1.25]


def test_a_ledger_is_consistent_after_kills_during_sales_and_charges(tmp_path):
    check_random_kills(tmp_path / "l", 25)


def test_a_ledger_is_complete_or_absent_after_a_kill_during_its_creation(tmp_path):
    check_kills_in_creation(tmp_path, 20)


def test_a_charge_is_complete_or_absent_after_a_kill(tmp_path):
    ledger = cm.Ledger.create(tmp_path / "l")
    ledger.sell(["a", "b"], 1.0, 0.0)

    def work(notify):
        book.now = stopping(book.now, notify, before=False)
        cm.Ledger(tmp_path / "l").account(["a", "b"], release="m").charge(guarantee([1.0, 1.0]))

    for _ in range(2):
        child = Child(work)
        child.wait_for_message()
        child.kill()
        assert ledger.releases().empty
        assert ledger.account(["a", "b"]).spent.tolist() == [0.0, 0.0]
    ledger.account(["a", "b"], release="m").charge(guarantee([1.0, 1.0]))
    check_integrity(ledger.path)


def test_a_charge_remains_after_a_kill_before_the_publication(tmp_path):
    """A release that users have possibly seen remains charged and cannot be repeated."""
    ledger = cm.Ledger.create(tmp_path / "l")
    ledger.sell(["a"], 1.0, 0.0)

    def work(notify):
        cm.Ledger(tmp_path / "l").account(["a"], release="m").charge(guarantee([0.5]))
        notify("charged")
        time.sleep(60)  # the program would draw noise and publish a model here

    child = Child(work)
    child.wait_for_message()
    child.kill()
    assert ledger.account(["a"]).spent.tolist() == [0.5]
    with pytest.raises(ReleaseChargedError, match="'m' was charged on"):
        ledger.account(["a"], release="m").charge(guarantee([0.5]))
    ledger.account(["a"], release="m, again").charge(guarantee([0.5]))
    assert ledger.account(["a"]).remaining.tolist() == [0.0]
