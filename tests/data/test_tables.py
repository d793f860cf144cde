"""Tables in files, as people save them."""

import pytest

from convexmarket.data.tables import read_table
from convexmarket.errors import DataError

GERMAN = "Nr.;Alter (Jahre);Preis (€);Ort\r\nP-1;40;0,031;Köln\r\nP-2;;0,047;Ulm\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_spreadsheet_of_another_country_is_read(tmp_path, encoding):
    path = tmp_path / "patienten.csv"
    path.write_bytes(GERMAN.encode(encoding))
    table = read_table(path)
    assert list(table) == ["Nr.", "Alter (Jahre)", "Preis (€)", "Ort"]
    assert table["Preis (€)"].tolist() == [0.031, 0.047]
    assert table["Alter (Jahre)"].isna().tolist() == [False, True]
    assert table["Ort"].tolist() == ["Köln", "Ulm"]


def test_a_comma_that_may_separate_thousands_stays_text(tmp_path):
    path = tmp_path / "asks.csv"
    path.write_text("id;ask\na;1,234\nb;2,345\n")
    assert read_table(path)["ask"].tolist() == ["1,234", "2,345"]


def test_a_file_that_is_not_utf_8_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "patienten.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    with pytest.raises(DataError, match=r"patienten.csv: .*save the file as UTF-8"):
        read_table(path)
