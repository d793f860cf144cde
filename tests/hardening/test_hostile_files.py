"""Commands read only regular files of the expected format. Errors do not quote the files."""

import decimal
import os

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket import partitions
from convexmarket.data.lists import read_list
from convexmarket.data.tables import read_table
from convexmarket.errors import ConvexMarketError
from convexmarket.studies.files.drafts import draft_problem
from tests.cli.builders import invoke
from tests.online.builders import TRAINED_MARKET

PRIOR = cm.Uniform(0, 1)
PRIVATE = "HIV-positive"
PRICE = ["--prior", "uniform:1,5", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def no_table(path):
    path.write_text(f"Ann:x:0:0:{PRIVATE}:/root:/bin/bash\nBob:x:1:1::/:/bin/sh\n")


def headless(path):
    """Write a table without a header, so that its first line contains private cells."""
    path.write_text(f"Ann,{PRIVATE},0.5\nBob,healthy,0.4\n")


def binary(path):
    path.write_bytes(b"\x80\x00" + PRIVATE.encode() + b"\x80")


COMMANDS = {
    "a list": ["price", "f.csv", *PRICE, "--out", "o.csv"],
    "a Parquet list": ["price", "f.parquet", *PRICE, "--out", "o.csv"],
    "a table": ["init", "f.csv"],
    "a Parquet table": ["init", "f.parquet"],
    "a problem file": ["online", "open", "m", "f.toml"],
    "the rows of a market": ["online", "open", "m", "market.toml"],
    "results": ["diff", "f.json", "f.json"],
    "a report": ["report", "f.json"],
    "a ledger": ["ledger", "f.sqlite"],
    "a list of sales": ["ledger", "books.sqlite", "--record", "f.csv"],
}
NAMES = ("f.csv", "f.parquet", "f.toml", "f.json", "f.sqlite", "rows.csv")


@pytest.mark.parametrize("make", [pipe, endless, no_table, headless, binary])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_refuses_files_of_another_format(here, name, make):
    if name == "a table" and make is headless:
        pytest.skip("a draft names its columns after the cells of the first line")
    cm.Ledger.create("books.sqlite").disconnect()
    (here / "market.toml").write_text(TRAINED_MARKET)
    for file in NAMES:
        make(here / file)
    done = invoke(*COMMANDS[name])
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stderr.startswith("error: ")
    assert PRIVATE not in done.stderr
    assert not (here / "m").exists()


# ------------------------------------------------------------------ damaged Parquet

N = 12
FRAMES = {
    "text and floats": {"id": [f"{PRIVATE} {k}" for k in range(N)], "ask": np.arange(N) / N},
    "integers and decimals": {
        "id": np.arange(N) * 10**12,
        "ask": [decimal.Decimal(k) / 16 for k in range(N)],
        "when": pd.date_range("2020", periods=N),
    },
    "integers of 100 bits": {
        "id": [f"{PRIVATE} {k}" for k in range(N)],
        "ask": [decimal.Decimal(10) ** 30 + k for k in range(N)],
    },
}


def readers(path, folder):
    return [
        lambda: read_list(path, PRIOR, sensitivity_column="ask"),
        lambda: draft_problem(path, folder),
        lambda: read_table(path),
        lambda: cm.price(partitions.table(path), prior=PRIOR, objective=cm.Noise(), gamma=1.0),
    ]


def outcome(read):
    try:
        read()
    except ConvexMarketError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", FRAMES)
def test_damaged_parquet_gives_an_error_without_its_contents(tmp_path, name):
    path = tmp_path / "f.parquet"
    pd.DataFrame(FRAMES[name]).to_parquet(path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(40):
        content = bytearray(whole)
        for place in rng.integers(len(content) // 4, len(content), size=3):
            content[place] = rng.integers(256)
        path.write_bytes(content)
        for read in readers(path, tmp_path)[:3]:
            text = outcome(read)
            refused += "cannot be read as Parquet" in text
            assert PRIVATE not in text or "id" in text
    assert refused > 20


@pytest.mark.parametrize(
    "error", [RuntimeError, OverflowError, NotImplementedError, KeyError, TypeError]
)
def test_any_error_of_pyarrow_becomes_a_data_error(tmp_path, monkeypatch, error):
    path = tmp_path / "f.parquet"
    pd.DataFrame(FRAMES["text and floats"]).to_parquet(path)

    def fail(*_, **__):
        raise error(PRIVATE)

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.__init__", fail)
    for read in readers(path, tmp_path):
        assert outcome(read).startswith(f"{path} cannot be read as Parquet ({error.__name__})")
