"""Read CSV files as text, with the line number of each row.

The reader detects the usual separators, encodings and decimal signs. Files can be untrusted.
Therefore, the sizes of lines and tables are limited, and ambiguous files and numbers are rejected.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from convexmarket.checks import check_list
from convexmarket.data.csv_cells import may_be_guarded, unguarded
from convexmarket.data.files import open_regular
from convexmarket.errors import DataError

__all__ = ["MOST_CELLS", "SEPARATORS", "numbers_in", "read_texts"]

SEPARATORS = ",;\t|"
#: Number of lines used to detect the separator.
FIRST_LINES = 10
#: Largest number of bytes of a row, which is sufficient for 10,000 columns.
LONGEST_ROW = 4_000_000
#: Largest number of cells of a table in memory. A cell uses about 20 bytes.
MOST_CELLS = 200_000_000
THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+", re.ASCII)
#: Pattern of texts that can be numbers: a sign, digits, points, commas and an exponent.
NUMERIC = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
#: Patterns of cells with a decimal comma, and of numbers whose points can separate thousands.
_COMMA, _POINTS = r"^[ \t]*[+-]?[\d.]+,(\d\d?|\d{4,})[ \t]*$", r"\s*[1-9]\d{0,2}(\.\d{3})+\s*"
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_LINE_END = "\r\n|\r|\n"


def read_texts(
    path: str | Path,
    choose: Callable[[list[str]], Sequence[str]] | None = None,
    na_values: str | Sequence[str] = (),
    most_rows: int | None = None,
) -> pd.DataFrame:
    """Read columns of a CSV file as text.

    The separator is the comma, semicolon, tab or bar that best fits the first lines. The encoding
    is UTF-8, or UTF-16 or UTF-32 with a byte-order mark. Apostrophes that protect text from
    spreadsheets are removed; see :mod:`convexmarket.data.csv_cells`.

    Parameters
    ----------
    path : path
    choose : callable, optional
        Function from the header to the names of the columns to read.
    na_values : str or sequence of str, optional
        Texts that mark an empty cell, such as ``"k.A."``. Surrounding blanks are ignored.
    most_rows : int, optional
        Largest number of rows to return. By default, all rows are returned.

    Returns
    -------
    DataFrame
        Table of text, without blank rows. An empty cell is the empty string. The index contains the
        number of the first line of each row.

    Raises
    ------
    DataError
        If the file cannot be read, is not UTF-8 text, is empty, is too large for memory, has rows
        of different lengths, or has decimal commas next to points that can separate thousands.
    """
    na_values = [na_values] if isinstance(na_values, str) else na_values
    check_list("na_values", na_values, "texts such as 'k.A.'")
    content = _content(path)
    header, separator, lines, start = _header(content, path)
    names = header if choose is None else list(choose(header))
    table, rows = _rows(content, start, len(header), separator, path)
    if table.num_rows * len(names) > MOST_CELLS:
        raise DataError(
            f"{path}: a table that is held in memory has at most {MOST_CELLS:,} cells; omit "
            "columns that are not needed"
        )
    filled, places = _not_blank(table, lines + rows)
    columns = {}
    others = table.columns if separator == ";" else ()
    has_commas = any(pc.any(pc.match_substring_regex(each, _COMMA)).as_py() for each in others)
    for k, name in enumerate(names):
        column = table.column(header.index(name))
        column = column if filled is None else column.filter(filled)
        if may_be_guarded(column):
            texts = [unguarded(text) for text in column.to_pylist()]
            column = pa.chunked_array([texts], pa.large_string())
        cells = pd.Series(pd.array(column, dtype="str"))
        if na_values:
            cells = cells.mask(cells.str.strip().isin(list(na_values)), "")
        seen = cells[cells.str.strip() != ""] if has_commas else cells[:0]
        if seen.size and seen.str.fullmatch(_POINTS).all():
            why = "it has points, but others have decimal commas; write 1.234 as 1234 or as 1,2340"
            raise DataError(f"{path}: column {header.index(name) + 1}: {why}")
        columns[k] = cells
    frame = pd.DataFrame(columns, copy=False).set_axis(places).set_axis(names, axis=1)
    return frame if most_rows is None else frame.head(most_rows)


def _content(path: str | Path) -> bytes:
    """Return the content of a file as UTF-8 bytes without a byte-order mark."""
    try:
        with open_regular(path) as file:
            content = file.read()
        for mark, encoding in _MARKS.items():
            if content.startswith(mark):
                content = content.decode(encoding).encode("utf-8")
                break
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV file") from None
    except UnicodeError:
        raise _not_utf8(path) from None
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for place in range(0, len(content), LONGEST_ROW):
            decoder.decode(content[place : place + LONGEST_ROW])
        decoder.decode(b"", final=True)
    except UnicodeError:
        raise _not_utf8(path) from None
    if (place := content.find(b"\0")) >= 0:
        line = 1 + len(re.findall(_LINE_END.encode(), content[:place]))
        raise DataError(
            f"{path}: line {line}: it holds a NUL character, as UTF-16 without a byte-order mark "
            "does; save the file as UTF-8"
        )
    return content.removeprefix(codecs.BOM_UTF8)


def _not_utf8(path: str | Path) -> DataError:
    return DataError(f"{path}: it is not UTF-8 text; save the file as UTF-8 (CSV UTF-8 in Excel)")


def _header(content: bytes, path: str | Path) -> tuple[list[str], str, int, int]:
    """Return the column names, the separator, and the number of lines and bytes of the header."""
    text = content[:LONGEST_ROW].decode("utf-8", "ignore")
    first = io.StringIO(text, newline="")
    separator = separator_of(first)
    first.seek(0)
    passed: list[str] = []

    def lines() -> Iterable[str]:
        for line in first:
            passed.append(line)
            yield line

    try:
        rows = csv.reader(lines(), delimiter=separator)
        row = next((row for row in rows if "".join(row).strip()), None)
    except csv.Error as error:
        raise DataError(f"{path}: line 1: the header is not CSV ({error})") from None
    if row is None:
        raise DataError(f"{path}: the file is empty; give a header and one row per seller")
    length = len("".join(passed).encode())
    if content.startswith(codecs.BOM_UTF8, length):  # pyarrow would remove this character
        raise DataError(
            f"{path}: line {len(passed) + 1}: it begins with a byte-order mark, which is not "
            "printable; remove it"
        )
    header = [unicodedata.normalize("NFC", unguarded(name)).strip() for name in row]
    for column, name in enumerate(header):
        if name and name in header[:column]:
            raise DataError(
                f"{path}: line {len(passed)}: columns {header.index(name) + 1} and {column + 1} "
                "have the same name; rename one of them"
            )
    return header, separator, len(passed), length


def _rows(
    content: bytes, start: int, width: int, separator: str, path: str | Path
) -> tuple[Any, NDArray[np.int64]]:
    """Parse all rows after the header as text, and return them with row numbers from 1."""
    misfits: list[Any] = []
    blank: list[int] = []

    def judge(row: Any) -> str:
        if row.text.strip(f"{separator} \t"):
            misfits.append(row)
            return "error"
        blank.append(row.number)
        return "skip"

    names = [str(place) for place in range(width)]
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(pa.py_buffer(content).slice(start)),
            pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=LONGEST_ROW),
            pyarrow.csv.ParseOptions(
                delimiter=separator,
                newlines_in_values=True,
                ignore_empty_lines=False,
                invalid_row_handler=judge,
            ),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string())),
        )
        rows = np.arange(1, 1 + table.num_rows + len(blank))
        return table, np.delete(rows, np.subtract(blank, 1, dtype=np.intp)) if blank else rows
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            empty = pa.table({name: pa.array([], pa.large_string()) for name in names})
            return empty, np.arange(0)
        if not misfits:
            raise DataError(
                f"{path}: a row has more than {LONGEST_ROW:,} bytes; check the quotes of the file"
            ) from None
    reader = csv.reader(
        io.StringIO(content[start:].decode(errors="replace"), newline=""), delimiter=separator
    )
    for _ in islice(reader, misfits[0].number - 1):
        pass
    line = 1 + len(re.findall(_LINE_END.encode(), content[:start])) + reader.line_num
    raise DataError(
        f"{path}: line {line}: it has {misfits[0].actual_columns} fields, and the header has "
        f"{width}; quote the fields that contain the separator {separator!r}, and check the quotes"
    )


def _not_blank(table: Any, lines: NDArray[np.int64]) -> tuple[Any, pd.Index[int]]:
    """Return a mask of the nonblank rows (None if no row is blank), and their line numbers."""
    blank, breaks = pa.scalar(True), np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        blank = pc.and_(blank, pc.equal(pc.utf8_trim_whitespace(column), ""))
        if pc.any(pc.match_substring_regex(column, "[\r\n]")).as_py():
            breaks += pc.count_substring_regex(column, _LINE_END).to_numpy()
    if breaks.any():
        lines = lines + np.append(0, breaks.cumsum()[:-1])
    if not pc.any(blank).as_py():
        return None, pd.Index(lines)
    filled = pc.invert(blank)
    return filled, pd.Index(lines[filled.to_numpy()])


def separator_of(lines: Iterable[str]) -> str:
    """Choose the separator that best splits the first rows into equal numbers of cells."""
    first = list(islice(lines, FIRST_LINES))

    def fit(separator: str) -> tuple[bool, int]:
        try:
            rows = [row for row in csv.reader(first, delimiter=separator) if any(row)][:2]
        except csv.Error:
            rows = []
        widths = [len(row) for row in rows] or [0]
        return len(set(widths)) == 1 and widths[0] > 1, widths[0]

    return max(SEPARATORS, key=fit)


def numbers_in(texts: pd.Series[Any]) -> pd.Series[float]:
    """Convert texts to numbers. Ambiguous and non-numeric texts become NaN.

    A number is written with the digits 0 to 9. Commas are decimal commas if more numbers have a
    comma than a point, and at least one comma cannot separate thousands. In that case, numbers with
    a point become NaN. Otherwise, numbers with a comma become NaN.
    """
    if pd.api.types.is_numeric_dtype(texts):
        return pd.to_numeric(texts).astype(float)
    try:
        column = pa.array(texts.astype("str"), pa.large_string())
        if pc.any(pc.match_substring(column, ",")).as_py():
            raise pa.ArrowInvalid
        numbers = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, UnicodeError):
        cells = [str(text).strip(" \t") for text in texts]
        numbers = np.array([_number(cell.replace(",", ".")) for cell in cells], float)
        numeric = [place for place, cell in enumerate(cells) if NUMERIC.fullmatch(cell)]
        commas = [place for place in numeric if "," in cells[place]]
        points = [place for place in numeric if "." in cells[place]]
        decimal = not all(THOUSANDS.fullmatch(cells[place]) for place in commas)
        numbers[points if decimal and len(points) < len(commas) else commas] = np.nan
    return pd.Series(numbers, index=texts.index, dtype=float)


def _number(text: str) -> float:
    """Parse a number in ASCII digits. Return NaN for other texts, such as "1_000"."""
    if "_" in text or not text.isascii():
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan
