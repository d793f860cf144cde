"""A malformed or ambiguous CSV list raises an error that gives the line number."""

import csv
import io
import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.data import csv_rows as reading
from convexmarket.data import lists
from convexmarket.data.csv_cells import unguarded
from convexmarket.data.csv_rows import LONGEST_ROW, numbers_in, read_texts
from convexmarket.data.lists import read_list
from convexmarket.data.tables import read_table
from convexmarket.errors import DataError
from convexmarket.priors import Uniform

PRIOR = Uniform(0.0, 10.0)


def file_with(folder, content, encoding="utf-8"):
    path = folder / "list.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


def read_content(folder, content, encoding="utf-8"):
    return read_list(file_with(folder, content, encoding), PRIOR)


def error_message(folder, content, encoding="utf-8"):
    with pytest.raises(DataError) as caught:
        read_content(folder, content, encoding)
    message = str(caught.value)
    assert len(message) < 1_000
    return message


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("id,c\na,1.5\nb,2\n", "utf-8"),
        ("id,c\na,1.5\nb,2\n", "utf-8-sig"),
        ("id,c\na,1.5\nb,2\n", "utf-16"),
        ("\ufeffid,c\na,1.5\nb,2\n", "utf-16-be"),
        ("\ufeffid,c\na,1.5\nb,2\n", "utf-16-le"),
        ("id,c\ra,1.5\rb,2\r", "utf-8"),
        ("id,c\r\na,1.5\r\nb,2", "utf-8"),
        ("\n\nid;c\n\n a ;1,5\n;\n  \nb;2\n\n", "utf-8"),
        ("id|c|\na|1.5|\nb|2|\n", "utf-8"),
        ('"id"\t"c"\n"a"\t"1.5"\n"b"\t"2"\n', "utf-8"),
        ('id;"what, and, why";c\na;x;1.5\nb;y, z;2\n', "utf-8"),
        (" ID , C \na, 1.5 \nb,2e0\n", "utf-8"),
    ],
)
def test_unambiguous_lists_are_read(tmp_path, content, encoding):
    result = read_content(tmp_path, content, encoding)
    assert result["id"].tolist() == ["a", "b"]
    assert result["sensitivity"].tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id,c\na,1\n".encode("utf-16-le"), "line 1: it holds a NUL character, as UTF-16 without"),
        ("id,c\na,1\n".encode("utf-16-be"), "NUL character"),
        (b"id,c\na,1\nb\x00,2\n", "line 3: it holds a NUL character"),
        (b"id,c\na,\xff1\n", "save the file as UTF-8"),
        ("id,c\n", "no sellers"),
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
        ("id,c,c\na,1,2\n", "line 1: columns 2 and 3 have the same name"),
        ("id,ID,c\na,b,1\n", "'id' and 'ID' are both called 'id'"),
        ("id,c\na,1\nb\n", "line 3: it has 1 fields, and the header has 2"),
        ("id,c\na,1\nb,2,3\n", "line 3: it has 3 fields, and the header has 2"),
        ('id,c\na,1\n"b,2\nc,3\n', "it has 1 fields, and the header has 2"),
        ("id,c\na,1.5,,\nb,2, \n", "line 2: it has 4 fields, and the header has 2"),
        ('note,id,c\n"x\ny",a,1\n"x\ny\nz",b,oops\n', "line 4: the report is not a number"),
        ("id,c\na,1\nb,NaN\n", "line 3: the report is missing (empty or NaN in column 'c')"),
        ("id,c\na,1\n a,2\n", "line 3: ' a' is the id of an earlier seller"),
        ("id,c\ncaf\u00e9,1\ncafe\u0301,2\n", "line 3: 'cafe\u0301' is the id of an earlier"),
        ("id,c\na\u202eb,1\n", r"line 2: id 'a\u202eb' contains '\u202e', which is not printable"),
        ("id,c\na\u200bb,1\n", "which is not printable"),
        ("id,c\na\x1b[31m,1\n", "which is not printable"),
        ("id,c\n\ufeffa,1\n", "which is not printable"),
        (f"id,c\n{'a' * 201},1\n", "has 201 characters; give from 1 to 200"),
        (f"id,c\na,{'1' * 100_000}x\n", "line 2: the report is not a number"),
        (f"id,c\n{'a' * 200_000},1\n", "has 200000 characters; give from 1 to 200"),
    ],
)
def test_malformed_lists_are_refused(tmp_path, content, words):
    assert words in error_message(tmp_path, content)


@pytest.mark.parametrize(
    "text",
    ["1_000", "\u0663", "\uff11", "0x10", "nan", "NaN", "", "1,234", "1.234,5", "1,2,3", "5\u00a0",
     "1e", "--1", "$5", "5 5", "true"],
)  # fmt: skip
def test_ambiguous_numbers_are_refused(tmp_path, text):
    assert "line 3: " in error_message(tmp_path, f'id;c\na;1\nb;"{text}"\n')
    assert np.isnan(numbers_in(pd.Series(["1", text]))[1])


@pytest.mark.parametrize("text", ["1e400", "inf", "Infinity"])
def test_infinite_numbers_are_refused(tmp_path, text):
    assert "line 2: the report is not finite" in error_message(tmp_path, f"id;c\na;{text}\n")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,5", "k.A.", "2,25"], [1.5, np.nan, 2.25]),
        (["1,5", "2,25", "2.5"], [1.5, 2.25, np.nan]),
        (["1.5", "2.25", "2,5"], [1.5, 2.25, np.nan]),
        (["1,5", "2.5"], [np.nan, 2.5]),
        (["1,500", "2.5", "-"], [np.nan, 2.5, np.nan]),
    ],
)
def test_an_invalid_cell_does_not_change_other_numbers_of_a_column(cells, numbers):
    np.testing.assert_array_equal(numbers_in(pd.Series(cells)), numbers)


def test_errors_name_invalid_cells_and_show_them_only_on_request(tmp_path):
    rows = "".join(f"s{k};0,{k + 1}\n" for k in range(8))
    path = tmp_path / "list.csv"
    path.write_text(f"id;c\n{rows}x;k.A.\n")
    with pytest.raises(DataError, match="line 10: the report is not a number") as hidden:
        read_list(path, PRIOR)
    assert "k.A." not in str(hidden.value)
    assert "more" not in str(hidden.value)
    with pytest.raises(DataError, match=r"line 10: the report 'k\.A\.' is not a number"):
        read_list(path, PRIOR, show_cells=True)


def test_na_values_mark_empty_cells(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text("id;c\na;0,5\n - ; k.A. \nb;1,5\n")
    sellers = read_list(path, PRIOR, na_values=["-", "k.A."])
    assert sellers["sensitivity"].tolist() == [0.5, 1.5]
    table = read_table(path, na_values=["k.A."])
    assert table["c"].isna().tolist() == [False, True, False]


def test_an_overlong_row_is_refused(tmp_path):
    words = error_message(tmp_path, 'id,c\n"' + "," * (3 * LONGEST_ROW))
    assert f"a row has more than {LONGEST_ROW:,} bytes" in words


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_devices_and_folders_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", "/dev/zero"):
        for read in (read_texts, lists.digest):
            with pytest.raises(DataError, match="is a pipe or a device"):
                read(path)
    with pytest.raises(DataError, match=r"[Dd]irectory|device"):
        read_texts(tmp_path)


def test_a_table_with_too_many_cells_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_CELLS", 5)
    with pytest.raises(DataError, match="a table that is held in memory has at most 5"):
        read_texts(file_with(tmp_path, "id,c\na,1\nb,2\nc,3\n"))


FIELD = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\r ,;\t|\"'"))


@given(st.lists(st.tuples(FIELD, FIELD), max_size=8), st.sampled_from(",;\t|"))
def test_the_index_of_a_row_is_its_first_line_number(tmp_path_factory, rows, separator):
    text, expected = io.StringIO(newline=""), []
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["one", "two"])
    for row in rows:
        before = text.getvalue().replace("\r\n", "\n").replace("\r", "\n").count("\n")
        writer.writerow(row)
        if "".join(row).strip():
            expected.append((before + 1, list(row)))
    path = tmp_path_factory.getbasetemp() / "drawn.csv"
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    read = read_texts(path)
    assert read.columns.tolist() == ["one", "two"]
    assert list(zip(read.index, read.to_numpy().tolist(), strict=True)) == expected


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.sampled_from([",", "."]))
def test_numbers_are_read_with_either_decimal_sign(tmp_path_factory, values, sign):
    rows = [f"s{number};{str(value).replace('.', sign)}" for number, value in enumerate(values)]
    path = tmp_path_factory.getbasetemp() / "numbers.csv"
    path.write_text("id;c\n" + "\n;\n".join(rows), encoding="utf-8")
    table = read_list(path, PRIOR)
    assert table["sensitivity"].tolist() == values
    assert table.index.tolist() == list(range(2, 2 + 2 * len(values), 2))


#: Strings that CSV readers split or join in different ways.
AMBIGUOUS = ['"', '""', ",", ";", "\n", "\r\n", "\r", " ", "'=", "'", "\u00a0", "é", "e\u0301"]
AMBIGUOUS += ["a", "1.5"]
CELLS = st.lists(st.sampled_from(AMBIGUOUS), max_size=3).map("".join)


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2) | st.lists(CELLS, min_size=1, max_size=4)),
    st.sampled_from([",", ";"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["id{}c", '"id"{}"c"', "\ufeffid{}c", "\nid{}c"]),
    st.booleans(),
)
def test_a_file_is_read_as_the_csv_module_reads_it(
    tmp_path_factory, body, separator, newline, header, ended
):
    lines = [header.format(separator), *(separator.join(row) for row in body)]
    text = newline.join(lines) + newline * ended
    path = tmp_path_factory.getbasetemp() / "drawn.csv"
    path.write_bytes(text.encode())
    reader = csv.reader(
        io.StringIO(text.lstrip("\ufeff"), newline=""), delimiter=separator, strict=True
    )
    try:
        rows = [row for row in reader if "".join(row).strip()]
    except csv.Error:
        rows = []  # invalid CSV can be read or refused
    if any(len(row) != 2 for row in rows):
        with pytest.raises(DataError):
            read_texts(path)
    elif rows:
        expected = [[unguarded(cell) for cell in row] for row in rows[1:]]
        assert read_texts(path).to_numpy().tolist() == expected


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.csv"
    path.write_bytes(b"id,c\n" + content)
    try:
        result = read_list(path, PRIOR)
    except DataError:
        return
    assert result["id"].is_unique
    assert result["sensitivity"].between(0, 10).all()
