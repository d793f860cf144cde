"""Long lists are read as columns: the same as row by row, or not at all."""

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convexmarket.data import csv_cells, csv_rows
from convexmarket.data.csv_cells import write_csv
from convexmarket.data.lists import read_list
from convexmarket.deal import price_offers
from convexmarket.errors import DataError, ParameterError
from convexmarket.priors import Uniform
from convexmarket.writing import check_place

PRIOR = Uniform(0.0, 10.0)
NASTY = ['"', '""', ",", ";", "\n", "\r\n", "\r", " ", "'=", "'", "\0", "\u00a0", "é", "e\u0301"]
PIECES = [*NASTY, "a", "b1", "1.5", "2", "0,5", "nan", "inf", "1_0", "-0", "-1", "11", "٣", '"x"']

cells = st.lists(st.sampled_from(PIECES), max_size=3).map("".join)
#: Mostly in order, so that many are read.
rows = st.tuples(
    st.integers(0, 99).map("s{}".format) | cells, st.sampled_from(["1.5", "2"]) | cells
)


def both(path, worth_it, **options):
    """Return what is read row by row, or None, and what is read with columns first."""
    found = []
    for least in (10**9, worth_it):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_rows, "WORTH_IT", least)
            try:
                found.append(read_list(path, PRIOR, trim=True, **options))
            except DataError as error:
                found.append(str(error))
    return found


@given(
    st.lists(rows, max_size=6),
    st.sampled_from([",", ";"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["id{}c", '"id"{}"c"', "\ufeffid{}c", "\nid{}c"]),
    st.booleans(),
)
@example([('"a"b', "1")], ",", "\n", "id{}c", True)
@example([('"a,"b"', "1"), ('"x"', "2")], ",", "\n", "id{}c", True)
def test_columns_are_what_rows_are(tmp_path_factory, body, separator, newline, header, ended):
    lines = [header.format(separator), *(separator.join(row) for row in body)]
    path = tmp_path_factory.getbasetemp() / "fast.csv"
    path.write_bytes((newline.join(lines) + newline * ended).encode())
    careful, fast = both(path, 1)
    if isinstance(careful, str):
        assert fast == careful
    else:
        pd.testing.assert_frame_equal(fast, careful, check_index_type=False)


@pytest.mark.parametrize("names", ["s{}", "Zoë {}", "x'{}"])
def test_plain_lists_are_read_as_columns(tmp_path, monkeypatch, names):
    frame = pd.DataFrame({"g": "north", "id": map(names.format, range(9)), "c": np.arange(9.0)})
    path = tmp_path / "plain.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        write_csv(frame, file)
    careful, _ = both(path, 1, group_column="g")
    monkeypatch.setattr(csv_rows, "WORTH_IT", 1)
    monkeypatch.setattr(csv_rows, "_BLOCK", 7)  # fields and characters across the ends of blocks
    monkeypatch.setattr(csv_rows, "_by_rows", None)  # rows are not read
    found = read_list(path, PRIOR, group_column="g")
    pd.testing.assert_frame_equal(found, careful, check_index_type=False)


TEXTS = ["=1", "a\tb", 'q"', "x; =1", "'=1", "a-b", "＝1", "O'Neil", "", "\u00a0=1", "y,\x1c'@z"]


def test_long_tables_are_written_like_short_ones(monkeypatch):
    table = pd.DataFrame(
        {
            "=id": pd.Series(TEXTS, dtype="str"),
            "x": [0.1, np.nan, 1e-300, 1e22, np.inf, *np.arange(6.0)],
            "n": np.arange(11),
        }
    )
    texts = []
    for piece in (100, 4):
        monkeypatch.setattr(csv_cells, "PIECE", piece)
        file = io.StringIO()
        write_csv(table, file)
        texts.append(file.getvalue())
    short, long = (pd.read_csv(io.StringIO(text), keep_default_na=False) for text in texts)
    pd.testing.assert_frame_equal(
        short.assign(x=pd.to_numeric(short["x"])), long.assign(x=pd.to_numeric(long["x"]))
    )


def test_parquet_is_priced_as_csv(tmp_path):
    frame = pd.DataFrame({"id": [f"s{k}" for k in range(9)], "c": np.arange(1.0, 10.0), "g": "n"})
    frame.to_parquet(tmp_path / "list.parquet")
    frame.to_csv(tmp_path / "list.csv", index=False)
    tables = []
    for name in ("list.parquet", "list.csv"):
        wanted = {"mu": 1, "sigma": 100, "gamma": 0.1, "group_column": "g"}
        offers = price_offers(tmp_path / name, PRIOR, **wanted)
        out = tmp_path / f"offers-{name}"
        offers.write(out, force=True)
        with pytest.raises(ParameterError, match="exists; pass --force"):
            check_place(out)
        tables.append(pd.read_parquet(out) if name.endswith("parquet") else pd.read_csv(out))
    pd.testing.assert_frame_equal(*tables, check_dtype=False)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (pd.DataFrame({"id": ["a", "a"], "c": [1.0, 2.0]}), r"row 2: 'a' is the id of an earlier"),
        (pd.DataFrame({"id": ["a", "b"], "c": [1.0, 11.0]}), r"row 2: the report is outside"),
        (pd.DataFrame({"id": ["a", "b"], "c": ["1.0", "x"]}), r"row 2: the report is not a num"),
        (pd.DataFrame({"id": ["a", "b"]}), r"no column is called .*sensitivity"),
    ],
)
def test_bad_rows_of_parquet_are_named(tmp_path, frame, why):
    frame.to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=why):
        read_list(tmp_path / "bad.parquet", PRIOR)


def test_what_is_no_parquet_is_refused(tmp_path):
    (tmp_path / "no.parquet").write_text("id,c\na,1\n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_list(tmp_path / "no.parquet", PRIOR)
