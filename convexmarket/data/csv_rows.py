"""CSV files read as text, with the line that each row begins at.

Any usual separator, encoding and decimal sign is recognised. The file may come from a stranger: no
line and no field can fill the memory, and a file or number that can be read in two ways is refused.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import mmap
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from convexmarket.data.csv_cells import may_be_guarded, unguarded
from convexmarket.data.files import open_regular
from convexmarket.errors import DataError

__all__ = ["SEPARATORS", "csv_rows", "numbers_in", "read_texts"]

SEPARATORS = ",;\t|"
#: Lines that the separator is recognised from.
FIRST_LINES = 10
#: Characters of a line; a table of 10,000 columns has fewer.
LONGEST_LINE = 4_000_000
#: Cells that are kept of a file; each takes some 20 bytes.
MOST_CELLS = 200_000_000
#: Rows that are converted at a time.
PIECE = 100_000
#: Bytes from which pyarrow reads a file; smaller ones are read row by row.
WORTH_IT = 1_000_000
THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+", re.ASCII)
#: Digits, points and commas, perhaps with an exponent.
NUMERIC = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_BLOCK = 1 << 22
_NEWLINE, _RETURN, _QUOTE = (ord(sign) for sign in '\n\r"')


def read_texts(
    path: str | Path,
    choose: Callable[[list[str]], Sequence[str]] | None = None,
    na_values: Sequence[str] = (),
) -> pd.DataFrame:
    """Read columns of a CSV file as text.

    Parameters
    ----------
    path : path
    choose : callable, optional
        From the header to the names of the columns to read; all columns by default.
    na_values : sequence of str, optional
        Texts that mark an empty cell, such as ``"k.A."`` or ``"-"``; blanks around them are
        ignored.

    Returns
    -------
    DataFrame
        Empty cells are empty text. The index holds the line that each row begins at. Blank rows
        are left out.

    Raises
    ------
    DataError
        As :func:`csv_rows`, and if the file is empty or too large to be held in memory.
    """
    rows = csv_rows(path)
    first, header = next(rows, (0, list[str]()))
    if not header:
        raise DataError(f"{path}: the file is empty; give a header and one row per seller")
    names = header if choose is None else list(choose(header))
    places = range(len(header)) if choose is None else [header.index(name) for name in names]
    one_line = first == 1 and not any(sign in name for name in header for sign in "\n\r")
    table = _by_columns(path, len(header), places) if one_line else None
    if table is None:
        table = _by_rows(path, rows, places)
    if na_values:
        table = table.apply(lambda texts: texts.mask(texts.str.strip().isin(list(na_values)), ""))
    return table.set_axis(names, axis=1)


def _by_rows(
    path: str | Path, rows: Iterator[tuple[int, list[str]]], places: Sequence[int]
) -> pd.DataFrame:
    lines, pieces = array("q"), []
    while piece := list(islice(rows, PIECE)):
        lines.extend(line for line, _ in piece)
        if len(lines) * len(places) > MOST_CELLS:
            raise DataError(
                f"{path}: a table that is held in memory has at most {MOST_CELLS:,} cells; leave "
                "away the columns that are not needed"
            )
        pieces.append([pa.array([row[at] for _, row in piece], pa.large_string()) for at in places])
    texts = [
        pa.chunked_array([piece[k] for piece in pieces], pa.large_string())
        for k in range(len(places))
    ]
    return _frame(texts, np.frombuffer(lines, dtype=np.int64))


def _frame(texts: Sequence[Any], lines: Any) -> pd.DataFrame:
    columns = {k: pd.Series(pd.array(text, dtype="str")) for k, text in enumerate(texts)}
    return pd.DataFrame(columns, copy=False).set_axis(pd.Index(lines))


def _by_columns(path: str | Path, width: int, places: Sequence[int]) -> pd.DataFrame | None:
    """Read a long file by pyarrow; None if its rows may be split in another way."""
    with open_regular(path) as file:
        if file.seek(0, 2) < WORTH_IT:
            return None
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        beginning = content[:WORTH_IT].decode("utf-8-sig", "replace")
        separator = separator_of(io.StringIO(beginning, newline=""))
        lines = _plain_lines(np.frombuffer(content, dtype=np.uint8), ord(separator))
        if lines < 0 or lines * len(places) > MOST_CELLS:
            return None
        names = [str(place) for place in range(width)]
        wanted = list(dict.fromkeys(str(place) for place in places))
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            pyarrow.csv.ReadOptions(column_names=names, skip_rows=1),
            pyarrow.csv.ParseOptions(delimiter=separator),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.large_string()), include_columns=wanted
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    # Fewer rows than lines: some are blank, or within quotes.
    if table.num_rows != lines - 1 or pc.any(_blank_rows(table)).as_py():
        return None
    texts = [_unguarded(table[str(place)]) for place in places]
    return _frame(texts, pd.RangeIndex(2, lines + 1))


def _blank_rows(table: Any) -> Any:
    blank = pa.scalar(True)
    for column in table.columns:
        blank = pc.and_(blank, pc.equal(pc.utf8_trim_whitespace(column), ""))
    return blank


def _unguarded(column: Any) -> Any:
    if not may_be_guarded(column):
        return column
    texts = [unguarded(text) for text in column.to_pylist()]
    return pa.chunked_array([texts], pa.large_string())


def _plain_lines(content: NDArray[np.uint8], separator: int) -> int:
    """Return how many lines a text has; -1 where readers might see others, or other fields.

    Quotes come in pairs around whole fields, lines end with a newline, and there are no control
    characters.
    """
    lines = quotes = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    first = 3 if content[:3].tobytes() == codecs.BOM_UTF8 else 0
    for start in range(first, content.size, _BLOCK):
        block = content[start : start + _BLOCK]
        if block.max() >= 0x80:
            decoder.decode(block.tobytes(), final=start + _BLOCK >= content.size)
        ends = np.flatnonzero(block == _RETURN) + start + 1
        at = np.flatnonzero(block == _QUOTE) + start
        closes = (np.arange(at.size) + quotes) % 2 == 1
        beside = np.where(closes, at + 1, at - 1)
        beside = content[beside[(beside >= first) & (beside < content.size)]]
        plain = (beside == separator) | (beside == _NEWLINE) | (beside == _RETURN)
        control = np.isin(block[block < ord(" ")], (ord("\t"), _NEWLINE, _RETURN), invert=True)
        ends_well = content[ends % content.size] == _NEWLINE
        if control.any() or not (plain.all() and ends_well.all()):
            return -1
        quotes += at.size
        lines += int(np.count_nonzero(block == _NEWLINE))
    return -1 if quotes % 2 else lines + int(content[-1] != _NEWLINE)


def csv_rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file as text, the header first, each with its line.

    Rows without a visible character are left out, and so are empty fields beyond the header. The
    separator is the comma, semicolon, tab or bar that fits the header; the encoding is UTF-8, or
    UTF-16 with a byte-order mark. Apostrophes that keep text from being run as a formula are taken
    away, see :mod:`convexmarket.data.csv_cells`.

    Raises
    ------
    DataError
        If the file cannot be read, is not such text, or a row does not fit the header.
    """
    place = f"{path}: line"
    try:
        with open_regular(path) as binary:
            start = binary.read(4)
            binary.seek(0)
            text = io.TextIOWrapper(binary, encoding=encoding_of(start), newline="")
            yield from _fitting(_records(_lines(text, place), place), place)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV file") from None
    except UnicodeError:
        raise DataError(
            f"{path}: it is not UTF-8 text; save the file as UTF-8 (CSV UTF-8 in Excel)"
        ) from None


def _lines(text: io.TextIOWrapper, place: str) -> Iterator[str]:
    """Yield lines of bounded length without NUL characters."""
    number = 0
    while line := text.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise DataError(f"{place} {number}: it has more than {LONGEST_LINE:,} characters")
        if "\0" in line:
            raise DataError(
                f"{place} {number}: it holds a NUL character, as UTF-16 without a byte-order mark "
                "does; save the file as UTF-8"
            )
        yield line


def _records(lines: Iterator[str], place: str) -> Iterator[tuple[int, list[str], str]]:
    """Yield the line that a row begins at, its fields and the separator, but for blank rows."""
    first = list(islice(lines, FIRST_LINES))
    separator = separator_of(first)
    reader = csv.reader(chain(first, lines), delimiter=separator, strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"{place} {begin}: the row that begins here is not CSV ({error}); check its quotes"
            ) from None
        if "".join(row).strip():
            yield begin, row, separator


def _fitting(
    records: Iterator[tuple[int, list[str], str]], place: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the header with its names in one form, and the rows that fit it."""
    first = next(records, None)
    if first is None:
        return
    begin, row, _ = first
    header = [unicodedata.normalize("NFC", unguarded(name)).strip() for name in row]
    for column, name in enumerate(header):
        if name and name in header[:column]:
            raise DataError(
                f"{place} {begin}: columns {header.index(name) + 1} and {column + 1} have the same "
                "name; rename one of them"
            )
    yield begin, header
    width = len(header)
    for begin, row, separator in records:
        if len(row) > width and not "".join(row[width:]).strip():
            del row[width:]
        if len(row) != width:
            raise DataError(
                f"{place} {begin}: it has {len(row)} fields, and the header has {width}; quote "
                f"the fields that contain the separator {separator!r}, and leave none away"
            )
        yield begin, [unguarded(cell) for cell in row]


def encoding_of(start: bytes) -> str:
    """Return the encoding that the byte-order mark announces; UTF-8 without one."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    return "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def separator_of(lines: Iterable[str]) -> str:
    """Return the separator that splits the first rows most often, and alike where one does."""
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
    """Convert texts to numbers; NaN where a text is not a number for certain.

    A number is written with the digits 0 to 9. Commas are decimal commas if more numbers have a
    comma than a point, and at least one comma is not in a place where it could separate thousands;
    then numbers with a point are NaN, otherwise those with a comma. Cells that hold other text do
    not count.
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
    """Return a number of ASCII digits, without the underscores that Python takes for nothing."""
    if "_" in text or not text.isascii():
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan
