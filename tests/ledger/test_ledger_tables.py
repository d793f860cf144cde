"""What the database of a ledger refuses, for every program."""

import sqlite3

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, DataError
from convexmarket.privacy import Guarantee

TABLES = {"ledgers": "delta", "sales": "epsilon", "ledger_releases": "delta", "charges": "epsilon"}
SALE = "INSERT INTO sales VALUES (4, 'Ann', {}, {}, NULL, NULL, '')"
RELEASE = "INSERT INTO ledger_releases VALUES ({}, {}, '', '', {}, '[]', '')"
CHARGE = "INSERT INTO charges VALUES (1, {}, {})"


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


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_a_ledger_are_neither_changed_nor_removed(raw, table):
    rows = raw.execute(f"SELECT * FROM {table}").fetchall()
    assert rows
    assert raw.execute(f"SELECT * FROM {table}").fetchall() == rows


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (SALE.format("-0.1", "0.0"), "CHECK"),
        (SALE.format("9e999", "0.0"), "CHECK"),
        (SALE.format("NULL", "0.0"), "NOT NULL"),
        (SALE.format("'much'", "0.0"), "CHECK"),
        (SALE.format("1.0", "-1.0"), "CHECK"),
        (SALE.format("1.0", "9e999"), "CHECK"),
        (SALE.format("1.0", "NULL"), "NOT NULL"),
        ("INSERT INTO sales VALUES (4, '', 1.0, 1.0, NULL, NULL, '')", "CHECK"),
        ("INSERT INTO sales VALUES (4, x'00', 1.0, 1.0, NULL, NULL, '')", "CHECK"),
        (RELEASE.format(2, "'second'", "-0.1"), "CHECK"),
        (RELEASE.format(2, "'second'", "9e999"), "CHECK"),
        (RELEASE.format(2, "''", "0.0"), "CHECK"),
        (CHARGE.format("'Cyd'", "-0.1"), "CHECK"),
        (CHARGE.format("'Cyd'", "0.0"), "CHECK"),
        (CHARGE.format("'Cyd'", "NULL"), "NOT NULL"),
    ],
)
def test_rows_that_contradict_the_books_are_refused(ledger, raw, statement, words):
    before = ledger.balance(), ledger.releases(), ledger.sales()
    with pytest.raises(sqlite3.IntegrityError, match=words):
        raw.execute(statement)
    after = ledger.balance(), ledger.releases(), ledger.sales()
    assert all(one.equals(other) for one, other in zip(before, after, strict=True))


def test_rows_of_another_program_break_the_seal(ledger, raw):
    """Also rows that replace others, which no trigger sees."""
    ledger.disconnect()
    raw.execute("REPLACE INTO sales VALUES (1, 'Ann', 9.0, 0.3, NULL, NULL, '')")
    with pytest.raises(DataError, match="its rows are not those that were written"):
        ledger.balance()


def test_who_charges_too_much_behind_our_back_leaves_nothing(ledger, raw):
    """The connection is open, so that the seal is not compared; what is left is never negative."""
    raw.execute(RELEASE.format(2, "'forged'", "0.0"))
    raw.execute("INSERT INTO charges VALUES (2, 'Cyd', 5.0)")
    account = ledger.account(["Cyd"])
    assert account.remaining.tolist() == [0.0]
    with pytest.raises(BudgetExceededError, match=r"'Cyd'.* has spent 5 of epsilon 2"):
        account.charge(guarantee([0.1]))
