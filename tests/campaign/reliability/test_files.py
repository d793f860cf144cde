"""Attacks on files and reports: overwriting, loss, access by others, spreadsheet formulas."""

import csv
import io
import os
import stat
from functools import lru_cache, partial
from itertools import product

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.data.csv_rows import read_texts
from tests.cli.builders import WRITERS, a_database, invoke
from tests.lists import price_list
from tests.online.builders import TRAINED_MARKET

DATABASES = ("m/market.sqlite", "m/market.sqlite-journal", "books.sqlite", "books.sqlite-journal")
SIGNS = "=+-@＝＋－＠\t\r"
SEPARATORS = ",;\t"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sellers.csv").write_text("id,sensitivity\nAnn,1.1\nBob,2.5\n")
    (tmp_path / "market.toml").write_text(TRAINED_MARKET.replace("= 8", "= 5000"))
    (tmp_path / "rows.csv").write_text("id,one,two,label\nAnn,0.1,0.2,yes\nBob,0.2,0.1,no\n")
    a_database(tmp_path / "books.sqlite")
    assert invoke("online", "open", "m", "market.toml").exit_code == 0
    return tmp_path


def keeps(here, arguments, place):
    """Return a problem if a command changes a file or does not end with an error, else None."""
    path = here / place
    before = path.read_bytes() if path.exists() else None
    done = invoke(*arguments, place)
    after = path.read_bytes() if path.exists() else None
    if before is None and after is not None:
        path.unlink()
    elif after != before:
        path.write_bytes(before)
    if after != before:
        return f"exit code {done.exit_code}, and it was replaced"
    return None if done.exit_code == 2 else f"exit code {done.exit_code}"


def test_commands_refuse_to_overwrite_database_files(here, attack):
    def attempt(name, place):
        arguments, option = WRITERS[name]
        return keeps(here, [*arguments, option], place)

    cases = product(sorted(WRITERS), DATABASES)
    attack(
        "a database or its folder is overwritten", ((str(c), partial(attempt, *c)) for c in cases)
    )


def write_report(table, name, folder, *formats):
    report = cm.Report("A report")
    report.add(table, name=name)
    report.write(folder, ("md", "html", *formats))


def is_formula(cell):
    return cell.strip('" ').startswith(tuple(SIGNS))


def cells_in(text, separator):
    return [cell for row in csv.reader(io.StringIO(text), delimiter=separator) for cell in row]


def hostile_names(number):
    drawn = np.random.default_rng()
    letters = np.array(list(f"{SIGNS},;|'\" x1\n"))
    for _ in range(number):
        yield "".join(drawn.choice(letters, drawn.integers(1, 9))).strip() or "x"


def test_names_in_tables_are_never_formulas(here, attack):
    """Table cells of a report may contain any text."""

    @lru_cache(maxsize=1)
    def written(name):
        table = pd.DataFrame({"number": [1.5], "name": [name], "after": [name]})
        write_report(table, "names", here / "report", "csv")
        return (here / "report" / "tables" / "names.csv").read_text(encoding="utf-8")

    def attempt(name, separator):
        text = written(name)
        result = list(filter(is_formula, cells_in(text, separator)))
        torn = len(text.splitlines()) != 2
        return f"formulas: {result}" if result else ("torn rows" if torn else None)

    cases = [(name, s) for name in hostile_names(500) for s in SEPARATORS]
    attack("a name in a table is a formula, or breaks a row",
           ((str(c), partial(attempt, *c)) for c in cases))  # fmt: skip


def test_ids_in_offers_are_kept_and_never_formulas(here, attack):
    """Ids survive a round trip through offers and the package's reader."""
    ids = sorted({" ".join(name.split()) for name in hostile_names(1_000)} - {""})
    table = pd.DataFrame({"id": ids, "sensitivity": np.linspace(1.1, 4.9, len(ids))})
    offers = price_list(table, cm.Uniform(1, 5), mu=1, sigma=100, gamma=0.001)
    path, _ = offers.write(here / "offers.csv")
    text, back = path.read_text(encoding="utf-8"), read_texts(path)["id"].tolist()
    bad = {
        separator: list(filter(is_formula, cells_in(text, separator))) for separator in SEPARATORS
    }

    def attempt(place, separator):
        if back[place] != ids[place]:
            return f"comes back as {back[place]!r}"
        bare = ids[place].lstrip("'")
        return "a formula" if any(bare in cell for cell in bad[separator]) else None

    cases = product(range(len(ids)), SEPARATORS)
    attack("an id in offers is a formula, or another id",
           ((repr((ids[p], s)), partial(attempt, p, s)) for p, s in cases))  # fmt: skip


def test_private_files_are_created_unreadable_to_others_and_keep_their_mode(here, attack):
    os.umask(0o022)
    table = pd.DataFrame({"id": ["Ann"], "sensitivity": [0.5]})
    writers = {
        "offers.csv": [*WRITERS["price"][0], "--out", "offers.csv", "--force"],
        "quotes.csv": [*WRITERS["online quote"][0], "--out", "quotes.csv", "--force"],
        "balance.csv": ["ledger", "books.sqlite", "--export", "balance.csv", "--force"],
        **{f"report/{name}": None for name in ("results.json", "index.html", "report.md",
                                               "tables/sellers.csv", "tables/sellers.tex")},
    }  # fmt: skip

    def attempt(name, mode):
        path = here / name
        if mode is None and path.exists() and not name.startswith("report"):
            path.unlink()
        if mode is not None:
            path.chmod(mode)
        if writers[name] is None:
            write_report(table, "sellers", here / "report", "csv", "tex")
        else:
            assert invoke(*writers[name]).exit_code == 0
        result = stat.S_IMODE(path.stat().st_mode)
        return None if result == (mode or 0o600) else f"{result:o}"

    cases = product(writers, (None, 0o600, 0o640, 0o400))
    attack("a private file is readable, or its mode is lost",
           ((str(c), partial(attempt, *c)) for c in cases))  # fmt: skip
