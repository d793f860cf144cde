"""Read CSV and Parquet tables that common programs write."""

import numpy as np
import pandas as pd
import pytest

from convexmarket.data.tables import read_parquet, read_table
from convexmarket.errors import DataError

GERMAN = "Nr.;Alter (Jahre);Preis (€);Ort\r\nP-1;40;0,031;Köln\r\nP-2;;0,047;Ulm\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_spreadsheet_of_another_locale_is_read(tmp_path, encoding):
    path = tmp_path / "patienten.csv"
    path.write_bytes(GERMAN.encode(encoding))
    table = read_table(path)
    assert list(table) == ["Nr.", "Alter (Jahre)", "Preis (€)", "Ort"]
    assert table["Preis (€)"].tolist() == [0.031, 0.047]
    assert table["Alter (Jahre)"].isna().tolist() == [False, True]
    assert table["Ort"].tolist() == ["Köln", "Ulm"]


def test_a_comma_that_could_separate_thousands_is_kept_as_text(tmp_path):
    path = tmp_path / "asks.csv"
    path.write_text("id;ask\na;1,234\nb;2,345\n")
    assert read_table(path)["ask"].tolist() == ["1,234", "2,345"]


def test_points_that_could_separate_thousands_are_refused_next_to_decimal_commas(tmp_path):
    path = tmp_path / "asks.csv"
    path.write_text("id;ask;x\na;1.034;0,5\nb;;0,75\n")
    with pytest.raises(DataError, match="column 2: it has points, but others have decimal commas"):
        read_table(path)
    path.write_text("id;ask;x\na;1.034;0.5\nb;;0.75\n")
    assert read_table(path)["ask"].iloc[0] == 1.034


def test_a_file_that_is_not_utf_8_is_refused_with_a_remedy(tmp_path):
    path = tmp_path / "patienten.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    with pytest.raises(DataError, match=r"patienten.csv: .*save the file as UTF-8"):
        read_table(path)


def test_integers_remain_integers_and_empty_cells_are_missing(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('id,x,y,word,\n1,2,0.5,"\'=a",7\n3,,7,,8\n')
    table = read_table(path)
    assert table["id"].tolist() == [1, 3]
    assert table["id"].dtype == "int64"
    assert table["x"].isna().tolist() == [False, True]
    assert table["y"].tolist() == [0.5, 7.0]
    assert table["word"].tolist()[0] == "=a"
    assert table["word"].isna().tolist() == [False, True]
    assert list(table) == ["id", "x", "y", "word"]


def test_damaged_parquet_gives_an_error_without_its_contents(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "table.parquet"
    frame = pd.DataFrame({"id": [f"secret{k}" for k in range(50)], "c": rng.random(50)})
    whole = frame.to_parquet()
    text = []
    for _ in range(150):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        for read in (read_table, lambda path: read_parquet(path, lambda names: names[:2])):
            try:
                read(path)
            except DataError as error:
                text.append(str(error).removeprefix(str(path)))
    assert len(text) > 50
    assert not any("secret" in words or len(words) > 100 for words in text)
