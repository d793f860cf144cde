"""Test that damaged databases and symbolic links raise an error."""

import json
import os
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError
from convexmarket.ledger import seals
from tests.ledger.damage import (
    POLICY,
    State,
    build_ledger,
    build_states,
    damaged_copy,
    everything,
    use,
)


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    return build_states(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def market(tmp_path):
    with cm.OnlineMarket.create(tmp_path / "market", POLICY) as made:
        made.quote("Ann", 1.0)
        made.accept("Ann")
        made.quote("Bob", 1.1)
        yield made


def raw(path, *statements):
    """Execute SQL statements on the database without the package."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


# ------------------------------------------------------------------ checks


def test_an_intact_database_works_after_an_interrupted_step(states, tmp_path):
    interrupted = {name for name in states if "hot journal" in name}
    assert len(interrupted) == 2
    for name, state in states.items():
        if name in interrupted:
            with (state.folder / f"{state.name}-journal").open("rb") as journal:
                assert journal.read(4) == bytes.fromhex("d9d505f9")
        folder = shutil.copytree(state.folder, tmp_path / name)
        assert use(State(folder, state.name, state.holds)) is None, name


def test_damaged_copies_raise_an_error_or_keep_their_contents(states, tmp_path):
    """Check a few damaged copies. 3,000 copies are checked in tests/campaign/reliability."""
    kinds = list(states.values())
    for k in range(24):
        rng = np.random.default_rng([3, k])
        state, damage = damaged_copy(kinds[k % len(kinds)], tmp_path / "copy", rng)
        assert use(state) is None, (damage, k)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("quotes", "UPDATE quotes SET payment = 9.0 * payment WHERE number = 1"),
        ("quotes", "UPDATE quotes SET id = CASE id WHEN 'Ann' THEN 'Bob2' ELSE 'Ann2' END"),
        ("answers", "DELETE FROM answers"),
        ("sales", "UPDATE sales SET epsilon = 2 * epsilon"),
        ("sales", "INSERT INTO sales VALUES (2, 'Cyd', 1.0, 1.0, NULL, NULL, '')"),
        ("plans", "UPDATE plans SET policy = CAST(policy AS BLOB)"),
        ("markets", "UPDATE markets SET expected = 601"),
        ("seals", "DELETE FROM seals WHERE number = 4"),
        ("seals", "DROP TABLE seals"),
    ],
)
def test_rows_written_by_another_program_are_detected(market, table, change):
    market.disconnect()
    path = market.folder / "market.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,)
        ).fetchall()
    drops = [f"DROP TRIGGER {name}" for name, _ in triggers]
    raw(path, *drops, *[text for _, text in triggers])
    assert len(market.offers()) == 2  # the tables have not changed
    market.disconnect()
    raw(path, *drops, change, *[text for _, text in triggers])
    for open_ in (lambda: cm.OnlineMarket(market.folder), lambda: cm.Ledger(path), market.offers):
        with pytest.raises(DataError, match=r"market\.sqlite is damaged .*restore a backup"):
            open_()


def test_a_market_damaged_while_open_cannot_be_closed(market):
    raw(market.folder / "market.sqlite", "UPDATE quotes SET epsilon = 2 * epsilon")
    with pytest.raises(DataError, match="is damaged"):
        market.close(lambda accepted: pytest.fail("trained on forged offers"), lapse=True)
    assert market.released is None


def test_an_error_about_damage_quotes_no_cell(tmp_path):
    state = build_ledger(tmp_path / "l", 30)
    path = state.folder / state.name
    content = path.read_bytes().replace(b"positive 7", b"positive\xff7")
    path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged") as error:
        cm.Ledger(path).sales()
    assert "HIV" not in str(error.value)


def test_the_seal_equals_the_sum_of_digests_of_all_rows(market):
    """Check that the incremental seal is correct after every step."""
    path = market.folder / "market.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number, step in enumerate(
            (lambda: market.quote("Cyd", 1.2), lambda: market.accept("Bob"))
        ):
            step()
            assert connection.execute("SELECT max(number) FROM seals").fetchone() == (5 + number,)
            seals.check_whole(connection, path)


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_a_database_of_another_version_is_refused(tmp_path, version):
    state = build_ledger(tmp_path / "l", 3)
    raw(state.folder / state.name, f"PRAGMA user_version = {version}")
    with pytest.raises(DataError, match=f"has tables of version {version}"):
        cm.Ledger(state.folder / state.name)


# ------------------------------------------------------------------ backups


def test_a_backup_contains_the_market_at_the_time_of_the_backup(market, tmp_path):
    backup = tmp_path / "copies" / "market.sqlite"
    expected = everything(market)
    market.backup(str(backup))
    market.quote("Cyd", 1.2)
    assert os.listdir(backup.parent) == ["market.sqlite"]
    assert backup.stat().st_mode & 0o777 == 0o600
    with cm.OnlineMarket(backup.parent) as restored:
        assert everything(restored)["offers"].equals(expected["offers"])
        assert restored.quote("Cyd", 1.2) == market.quote("Cyd", 1.2)
        assert restored.close(lambda accepted: json.dumps(len(accepted)), lapse=True) == "1"


def test_a_backup_is_consistent_during_other_steps(market, tmp_path):
    for k in range(5):
        with cm.OnlineMarket(market.folder) as other:
            stream = other.quote_many([(f"s{j}", 1.2) for j in range(10 * k, 10 * k + 10)], 5)
            next(stream)
            market.backup(tmp_path / "backup", force=k > 0)
            list(stream)
        with cm.Ledger(tmp_path / "backup") as ledger:
            assert ledger.sales()["id"].tolist() == ["Ann"]


def test_a_backup_replaces_a_file_only_with_force(market, tmp_path):
    path = tmp_path / "backup"
    market.backup(path)
    before = path.read_bytes()
    market.quote("Cyd", 1.2)
    with pytest.raises(DataError, match="backup exists; give another file"):
        market.backup(path)
    assert path.read_bytes() == before
    market.backup(path, force=True)
    assert path.read_bytes() != before
    for force in (False, True):
        with pytest.raises(DataError, match="than the database itself"):
            market.backup(market.folder / "market.sqlite", force=force)


def test_a_backup_of_a_damaged_ledger_keeps_the_earlier_backup(tmp_path):
    state, backup = build_ledger(tmp_path / "l", 20), tmp_path / "backup"
    with cm.Ledger(state.folder / state.name) as ledger:
        ledger.backup(backup)
        before = backup.read_bytes()
        raw(ledger.path, "UPDATE sales SET price = 0.0")
        with pytest.raises(DataError, match=r"sold\.sqlite is damaged"):
            ledger.backup(backup, force=True)
        with pytest.raises(ParameterError, match=r"path must .*, got 3"):
            ledger.backup(3)
    assert backup.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["backup", "l"]


# ------------------------------------------------------------------ symbolic links


@pytest.mark.parametrize("end", [".closing", "-journal"])
def test_symbolic_links_are_not_followed(market, tmp_path, end):
    market.disconnect()
    victim = tmp_path / "diary"
    victim.write_bytes(bytes(range(256)))
    beside = market.folder / f"market.sqlite{end}"
    beside.unlink(missing_ok=True)
    beside.symlink_to(victim)

    def close():
        with cm.OnlineMarket(market.folder) as again:
            again.decline("Bob")
            again.close(lambda accepted: "1")

    with pytest.raises(DataError, match=r"is a symbolic link|cannot be opened"):
        close()
    assert victim.read_bytes() == bytes(range(256))
