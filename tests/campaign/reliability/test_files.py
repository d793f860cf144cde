"""Test attacks by other users on files and reports."""

import os
import stat
from functools import partial
from itertools import product

import pandas as pd
import pytest

import convexmarket as cm
from tests.cli.builders import WRITERS, a_database, invoke
from tests.online.builders import TRAINED_MARKET


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sellers.csv").write_text("id,sensitivity\nAnn,1.1\nBob,2.5\n")
    (tmp_path / "market.toml").write_text(TRAINED_MARKET.replace("= 8", "= 5000"))
    (tmp_path / "rows.csv").write_text("id,one,two,label\nAnn,0.1,0.2,yes\nBob,0.2,0.1,no\n")
    a_database(tmp_path / "books.sqlite")
    assert invoke("online", "open", "m", "market.toml").exit_code == 0
    return tmp_path


def write_report(table, name, folder, *formats):
    report = cm.Report("A report")
    report.add(table, name=name)
    report.write(folder, formats)


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
