"""Parquet lists give the same offers and errors as CSV lists."""

import numpy as np
import pandas as pd
import pytest

from convexmarket.data.lists import read_list
from convexmarket.errors import DataError, ParameterError
from convexmarket.io import check_place
from convexmarket.priors import Uniform
from tests.lists import price_list

PRIOR = Uniform(0.0, 10.0)


def test_parquet_and_csv_lists_give_the_same_offers(tmp_path):
    frame = pd.DataFrame({"id": [f"s{k}" for k in range(9)], "c": np.arange(1.0, 10.0), "g": "n"})
    frame.to_parquet(tmp_path / "list.parquet")
    frame.to_csv(tmp_path / "list.csv", index=False)
    tables = []
    for name in ("list.parquet", "list.csv"):
        options = {"mu": 1, "sigma": 100, "gamma": 0.1, "group": "g"}
        offers = price_list(tmp_path / name, PRIOR, **options)
        out = tmp_path / f"offers-{name}"
        offers.write(out, force=True)
        with pytest.raises(ParameterError, match="exists; pass --force"):
            check_place(out)
        tables.append(pd.read_parquet(out) if name.endswith("parquet") else pd.read_csv(out))
    pd.testing.assert_frame_equal(*tables, check_dtype=False)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"id": ["a", "a"], "c": [1.0, 2.0]}), r"row 2: 'a' is the id of an earlier"),
        (pd.DataFrame({"id": ["a", "b"], "c": [1.0, 11.0]}), r"row 2: the report is outside"),
        (pd.DataFrame({"id": ["a", "b"], "c": ["1.0", "x"]}), r"row 2: the report is not a num"),
        (pd.DataFrame({"id": ["a", "b"]}), r"no column is called .*sensitivity"),
    ],
)
def test_errors_name_invalid_rows_of_parquet_files(tmp_path, frame, message):
    frame.to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=message):
        read_list(tmp_path / "bad.parquet", PRIOR)


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    (tmp_path / "no.parquet").write_text("id,c\na,1\n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_list(tmp_path / "no.parquet", PRIOR)
