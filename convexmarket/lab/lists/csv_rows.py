"""The rows of a CSV file, one after the other, each with the line that it begins at.

The file may come from a stranger: it is read in one pass, no line and no field can fill the
memory, and what could be read in two ways is refused.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from convexmarket.data.csv_cells import unguarded
from convexmarket.data.csv_format import FIRST_LINES, encoding_of, separator_of
from convexmarket.data.files import open_regular
from convexmarket.errors import DataError

__all__ = ["csv_rows"]

#: Characters of a line; a table of 10,000 columns has fewer.
LONGEST_LINE = 4_000_000


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
