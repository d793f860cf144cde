"""Rows that another program writes to the database of a ledger."""

import sqlite3

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, DataError
from convexmarket.privacy import Guarantee

RELEASE = "INSERT INTO ledger_releases VALUES (2, 'forged', '', '', 0.0, 'pure', 0.0, '[]', '')"


def guarantee(epsilon):
    return Guarantee(np.asarray(epsilon, dtype=float), 0.0, "a model", "tight", ())


@pytest.fixture
def ledger(tmp_path):
    """Make a ledger in which Ann has 0.5 of 1 left, Bob 0.5 for x alone, and Cyd all of 2."""
    with cm.Ledger.create(tmp_path / "sold.sqlite") as made:
        made.sell(["Ann", "Cyd"], [1.0, 2.0], 0.3)
        made.sell(["Bob"], 0.5, 0.3, release="x")
        made.account(["Ann"], release="first").charge(guarantee([0.5]))
        yield made


@pytest.fixture
def raw(ledger):
    connection = sqlite3.connect(ledger.path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    yield connection
    connection.close()


def test_rows_of_another_program_break_the_seal(ledger, raw):
    ledger.disconnect()
    raw.execute("REPLACE INTO sales VALUES (1, 'Ann', 9.0, 0.3, NULL, NULL, '')")
    with pytest.raises(DataError, match="its rows are not those that were written"):
        ledger.balance()


def test_who_charges_too_much_behind_our_back_leaves_nothing(ledger, raw):
    """The connection is open, so that the seal is not compared; what is left is never negative."""
    raw.execute(RELEASE)
    raw.execute("INSERT INTO charges VALUES (2, 'Cyd', 5.0, 5.0)")
    account = ledger.account(["Cyd"])
    assert account.remaining.tolist() == [0.0]
    with pytest.raises(BudgetExceededError, match=r"'Cyd'.* has spent 5 of epsilon 2"):
        account.charge(guarantee([0.1]))
