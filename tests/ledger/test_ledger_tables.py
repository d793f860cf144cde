"""What the database of a ledger refuses, whoever asks; and markets that had no ledger yet."""

import json
import sqlite3

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, DataError, OfferError
from convexmarket.ledger import tables
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
def test_rows_of_a_ledger_are_neither_changed_nor_removed_nor_replaced(raw, table):
    rows = raw.execute(f"SELECT * FROM {table}").fetchall()
    assert rows
    marks = ", ".join("?" * len(rows[0]))
    for statement in (f"UPDATE {table} SET {TABLES[table]} = 0", f"DELETE FROM {table}"):
        with pytest.raises(sqlite3.IntegrityError, match="rows of a ledger are only added"):
            raw.execute(statement)
    upsert = f"ON CONFLICT DO UPDATE SET {TABLES[table]} = 0"
    for verb, end in (
        ("INSERT", ""),
        ("INSERT OR REPLACE", ""),
        ("INSERT OR IGNORE", ""),
        ("REPLACE", ""),
        ("INSERT", upsert),
    ):
        with pytest.raises(sqlite3.IntegrityError):
            raw.execute(f"{verb} INTO {table} VALUES ({marks}) {end}", rows[0])
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
        ("INSERT INTO sales VALUES (9, 'Ann', 1.0, 1.0, NULL, NULL, '')", "without gaps"),
        ("REPLACE INTO sales VALUES (1, 'Ann', 9.0, 1.0, NULL, NULL, '')", "without gaps"),
        ("INSERT INTO sales VALUES (4, 'Ann', 1.0, 1.0, 'first', NULL, '')", "charged already"),
        (RELEASE.format(2, "'second'", "-0.1"), "CHECK"),
        (RELEASE.format(2, "'second'", "9e999"), "CHECK"),
        (RELEASE.format(2, "''", "0.0"), "CHECK"),
        (RELEASE.format(2, "'first'", "0.0"), "of this name already"),
        (RELEASE.format(3, "'second'", "0.0"), "without gaps"),
        ("REPLACE " + RELEASE.format(1, "'first'", "0.0")[7:], "without gaps"),
        (CHARGE.format("'Cyd'", "-0.1"), "CHECK"),
        (CHARGE.format("'Cyd'", "0.0"), "CHECK"),
        (CHARGE.format("'Cyd'", "NULL"), "NOT NULL"),
        (CHARGE.format("'Ann'", "0.1"), "charged already"),
        ("REPLACE " + CHARGE.format("'Ann'", "0.1")[7:], "charged already"),
        (CHARGE.format("'Cyd'", "2.1"), "beyond what was sold"),
        (CHARGE.format("'Cyd'", "9e999"), "beyond what was sold"),
        (CHARGE.format("'Bob'", "0.1"), "beyond what was sold"),
        (CHARGE.format("'nobody'", "0.1"), "beyond what was sold"),
        ("INSERT INTO charges VALUES (7, 'Cyd', 0.1)", "only the latest"),
        ("INSERT INTO ledgers VALUES (1, 'advanced', 0.5, '')", "a ledger already"),
        ("INSERT INTO ledgers VALUES (2, 'advanced', 0.5, '')", "a ledger already"),
    ],
)
def test_rows_that_contradict_the_books_are_refused(ledger, raw, statement, words):
    before = ledger.balance(), ledger.releases(), ledger.sales()
    with pytest.raises(sqlite3.IntegrityError, match=words):
        raw.execute(statement)
    after = ledger.balance(), ledger.releases(), ledger.sales()
    assert all(one.equals(other) for one, other in zip(before, after, strict=True))


def test_the_limit_is_what_was_sold_for_the_release_and_for_any(raw):
    raw.execute(RELEASE.format(2, "'x'", "0.0"))
    charge = "INSERT INTO charges VALUES (2, ?, ?)"
    for id, left in (("Bob", 0.5), ("Ann", 0.5), ("Cyd", 2.0)):
        with pytest.raises(sqlite3.IntegrityError, match="beyond what was sold"):
            raw.execute(charge, (id, left * (1 + 1e-9)))
        raw.execute(charge, (id, left * (1 + 1e-13)))  # rounding
    with pytest.raises(sqlite3.IntegrityError, match="only the latest"):
        raw.execute("INSERT INTO charges VALUES (1, 'Cyd', 0.1)")


def test_the_limit_of_delta(tmp_path):
    path = tmp_path / "l"
    with cm.Ledger.create(path, delta=1e-6) as ledger:
        ledger.sell(["Ann"], 9.0, 0.0)
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute(RELEASE.format(1, "'a'", "6e-7"))
    raw.execute("INSERT INTO charges VALUES (1, 'Ann', 1.0)")
    raw.execute(RELEASE.format(2, "'b'", "6e-7"))
    with pytest.raises(sqlite3.IntegrityError, match="beyond the delta"):
        raw.execute("INSERT INTO charges VALUES (2, 'Ann', 1.0)")
    raw.close()


def test_under_advanced_composition_the_accountant_decides(tmp_path):
    path = tmp_path / "l"
    with cm.Ledger.create(path, "advanced", 1e-6) as ledger:
        ledger.sell(["Ann"], 1.0, 0.0)
        raw = sqlite3.connect(path, isolation_level=None)
        with pytest.raises(sqlite3.IntegrityError, match="need basic composition"):
            raw.execute("INSERT INTO sales VALUES (2, 'Ann', 1.0, 0.0, 'x', NULL, '')")
        raw.close()


def test_who_charges_too_much_behind_our_back_leaves_nothing(ledger, raw):
    """A program that drops the triggers can write anything; what is left is never negative."""
    raw.execute("DROP TRIGGER charges_refuse")
    raw.execute(RELEASE.format(2, "'forged'", "0.0"))
    raw.execute("INSERT INTO charges VALUES (2, 'Cyd', 5.0)")
    account = ledger.account(["Cyd"])
    assert account.remaining.tolist() == [0.0]
    with pytest.raises(BudgetExceededError, match=r"'Cyd'.* has spent 5 of epsilon 2"):
        account.charge(guarantee([0.1]))


# ------------------------------------------------------------------ markets of version 1

#: The tables as version 1 laid them.
FIRST_TABLES = """
CREATE TABLE markets (number INTEGER PRIMARY KEY CHECK (number = 1),
    expected INTEGER NOT NULL CHECK (expected >= 1), problem TEXT NOT NULL, policy TEXT NOT NULL,
    time TEXT NOT NULL);
CREATE TABLE plans (number INTEGER PRIMARY KEY, after INTEGER NOT NULL UNIQUE,
    policy TEXT NOT NULL, time TEXT NOT NULL);
CREATE TABLE quotes (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    sensitivity REAL NOT NULL CHECK (typeof(sensitivity) = 'real' AND sensitivity >= 0),
    epsilon REAL NOT NULL CHECK (typeof(epsilon) = 'real' AND epsilon >= 0 AND epsilon < 9e999),
    payment REAL NOT NULL CHECK (typeof(payment) = 'real' AND payment >= 0 AND payment < 9e999),
    plan INTEGER NOT NULL REFERENCES plans (number), time TEXT NOT NULL);
CREATE TABLE answers (number INTEGER PRIMARY KEY REFERENCES quotes (number),
    answer TEXT NOT NULL CHECK (answer IN ('accepted', 'declined')), time TEXT NOT NULL);
CREATE TABLE endings (number INTEGER PRIMARY KEY CHECK (number = 1), time TEXT NOT NULL);
CREATE TABLE releases (number INTEGER PRIMARY KEY CHECK (number = 1), release TEXT NOT NULL,
    time TEXT NOT NULL);
"""
FIRST_REFUSALS = {
    "markets": "EXISTS (SELECT 1 FROM markets)",
    "plans": "EXISTS (SELECT 1 FROM endings)",
    "quotes": "EXISTS (SELECT 1 FROM endings) OR EXISTS (SELECT 1 FROM quotes WHERE id = NEW.id)",
    "answers": "EXISTS (SELECT 1 FROM endings) OR NOT EXISTS "
    "(SELECT 1 FROM quotes WHERE number = NEW.number AND epsilon > 0)",
    "endings": "EXISTS (SELECT 1 FROM endings)",
    "releases": "EXISTS (SELECT 1 FROM releases) OR NOT EXISTS (SELECT 1 FROM endings)",
}
POLICY = cm.OnlinePolicy(cm.Uniform(1, 5), 20, mu=1, sigma=1, gamma=1)


def market_of_version_1(folder, release=None, ended=False):
    """Write a market with six quotes: four accepted, one declined, one open or lapsed."""
    folder.mkdir()
    raw = sqlite3.connect(folder / "market.sqlite", isolation_level=None)
    raw.executescript(FIRST_TABLES)
    for table, case in FIRST_REFUSALS.items():
        raw.execute(
            f"CREATE TRIGGER {table}_refuse BEFORE INSERT ON {table} BEGIN SELECT CASE "
            f"WHEN {case} THEN RAISE(ABORT, 'refused') END; END"
        )
        for event in ("UPDATE", "DELETE"):
            raw.execute(
                f"CREATE TRIGGER {table}_no_{event.lower()} BEFORE {event} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'rows of a market are only added'); END"
            )
    raw.execute(f"PRAGMA application_id = {tables.APPLICATION}")
    raw.execute("PRAGMA user_version = 1")
    policy = json.dumps(POLICY.to_dict())
    raw.execute("INSERT INTO markets VALUES (1, 20, 'text', ?, '2025-01-01T00:00Z')", (policy,))
    raw.execute("INSERT INTO plans VALUES (1, 0, ?, '2025-01-01T00:00Z')", (policy,))
    for k in range(6):
        row = (k + 1, f"s{k}", 1.0 + k / 20, *POLICY.quote(1.0 + k / 20))
        raw.execute("INSERT INTO quotes VALUES (?, ?, ?, ?, ?, 1, '2025-01-02T00:00Z')", row)
    answers = [(5, "declined"), (4, "accepted"), (1, "accepted"), (2, "accepted"), (3, "accepted")]
    if ended:
        answers.append((6, "declined"))
    for answer in answers:
        raw.execute("INSERT INTO answers VALUES (?, ?, '2025-01-03T00:00Z')", answer)
    if ended:
        raw.execute("INSERT INTO endings VALUES (1, '2025-01-04T00:00Z')")
    if release is not None:
        raw.execute("INSERT INTO releases VALUES (1, ?, '2025-01-05T00:00Z')", (release,))
    raw.close()
    return folder


def version(folder):
    raw = sqlite3.connect(folder / "market.sqlite")
    (found,) = raw.execute("PRAGMA user_version").fetchone()
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()
    return found


def sold(folder):
    return {f"s{k}": POLICY.quote(1.0 + k / 20) for k in range(4)}


def check_sales(folder):
    with cm.Ledger(folder) as ledger:
        sales = ledger.sales()
    found = {row.id: (row.epsilon, row.price) for row in sales.itertuples()}
    assert found == sold(folder)
    assert len(sales) == 4


def test_a_market_of_version_1_goes_on_with_a_ledger(tmp_path):
    folder = market_of_version_1(tmp_path / "m")
    with cm.OnlineMarket(folder) as market:
        assert (market.counts()["accepted"], market.released) == (4, None)
        assert version(folder) == 1  # nobody has written
        check_sales(folder)
        assert version(folder) == 1
        market.accept("s5")
        assert version(folder) == tables.VERSION
        epsilon = POLICY.quote(1.25).epsilon
        assert market.ledger.sales()["id"].tolist() == ["s0", "s1", "s2", "s3", "s5"]
        assert market.ledger.account(["s5"]).budget.tolist() == [epsilon]
        assert market.close(lambda accepted: json.dumps(len(accepted))) == "5"
        assert market.ledger.releases()["name"].tolist() == ["market-model"]
        assert market.ledger.balance()["left"].tolist() == [0.0] * 5


def test_a_ledger_brings_a_market_of_version_1_up_to_date(tmp_path):
    folder = market_of_version_1(tmp_path / "m")
    with cm.Ledger(folder / "market.sqlite") as ledger:
        ledger.account(["s1", "s0"]).charge(guarantee([0.001, 0.002]))
        assert version(folder) == tables.VERSION
        assert ledger.balance().set_index("id")["spent"].tolist() == [0.002, 0.001, 0.0, 0.0]
    check_sales(folder)


@pytest.mark.parametrize(
    ("release", "spent"), [('{"coef": [1.5]}', True), ('{"model": null}', False), (None, False)]
)
def test_a_model_of_version_1_has_used_all_that_was_bought_for_it(tmp_path, release, spent):
    folder = market_of_version_1(tmp_path / "m", release, ended=True)
    for writing in (False, True):
        with cm.Ledger(folder) as ledger:
            if writing:
                ledger.sell([], [], [])
                assert version(folder) == tables.VERSION
            frame = ledger.balance()
            assert np.array_equal(frame["spent"], frame["sold"] * spent)
            assert np.array_equal(frame["left"], frame["sold"] * (not spent))
            assert ledger.releases()["name"].tolist() == ["market-model"] * spent
    with cm.OnlineMarket(folder) as market:
        assert market.released == release
        if release is None:
            assert market.close(lambda accepted: json.dumps(len(accepted))) == "4"
            assert market.ledger.balance()["left"].tolist() == [0.0] * 4


def test_a_market_of_version_1_that_may_not_be_written_can_be_read(tmp_path):
    folder = market_of_version_1(tmp_path / "m")
    with cm.Ledger(folder) as ledger, cm.OnlineMarket(folder) as market:
        for store in (ledger._store, market._store):
            store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(DataError, match="may not be written"):
            ledger.account(["s0"]).charge(guarantee([0.001]))
        with pytest.raises(DataError, match="may not be written"):
            market.accept("s5")
        ledger.account(["s0"]).check(guarantee([0.001]))
        assert market.offer("s5").status == "offered"
        check_sales(folder)
        with pytest.raises(OfferError, match="never quoted"):
            market.offer("who")
    assert version(folder) == 1


def test_an_upgrade_that_fails_leaves_version_1(tmp_path, monkeypatch):
    folder = market_of_version_1(tmp_path / "m")
    monkeypatch.setattr("convexmarket.ledger.markets._CHARGES", "INSERT INTO nowhere VALUES (1)")
    with cm.OnlineMarket(folder) as market:
        with pytest.raises(DataError, match="refused a step"):
            market.accept("s5")
        assert version(folder) == 1
        monkeypatch.undo()
        assert market.accept("s5").status == "accepted"
    assert version(folder) == tables.VERSION


def test_an_old_program_that_is_still_open_cannot_sell_past_the_ledger(tmp_path):
    """Its answers are sales, and a model that it trained without a charge is not stored."""
    folder = market_of_version_1(tmp_path / "m")
    old = sqlite3.connect(folder / "market.sqlite", isolation_level=None)
    with cm.Ledger(folder) as ledger:
        ledger.sell([], [], [])
        old.execute("INSERT INTO answers VALUES (6, 'accepted', '')")
        assert ledger.sales()["id"].tolist() == ["s0", "s1", "s2", "s3", "s5"]
        old.execute("INSERT INTO endings VALUES (1, '')")
        with pytest.raises(sqlite3.IntegrityError, match="the release is not charged"):
            old.execute("INSERT INTO releases VALUES (1, '1', '')")
    old.close()
