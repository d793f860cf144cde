"""Lists that people keep as CSV files: any of the usual separators, decimal points or commas.

What cannot be read for certain is refused, with the lines at fault, because a wrong number here is
a wrong payment there.
"""

from __future__ import annotations

import csv
import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.errors import DataError
from convexmarket.priors import Prior

__all__ = [
    "ID_NAMES",
    "blame",
    "blank",
    "checked_reports",
    "column_named",
    "digest",
    "numbers_in",
    "read_reports",
]

ID_NAMES = ("id", "seller", "name", "seller_id")
SENSITIVITY_NAMES = ("sensitivity", "cost", "c", "reported_sensitivity")


def read_reports(path: str | Path) -> pd.DataFrame:
    """Read a CSV file as text, whatever its separator and byte-order mark.

    Returns
    -------
    DataFrame
        Every column as text; row k of it is line k + 2 of the file, blank lines included.

    Raises
    ------
    DataError
        If the file cannot be opened, is not UTF-8 or UTF-16 text, or its rows do not fit its
        header.
    """
    try:
        encoding = _encoding(Path(path))
        with open(path, encoding=encoding, newline="") as file:
            separator = _separator(file.readline())
        with warnings.catch_warnings():
            # Rows longer than the header would lose their tail: "0,05" unquoted, for example.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path,
                sep=separator,
                encoding=encoding,
                dtype=str,
                keep_default_na=False,
                skip_blank_lines=False,
                index_col=False,
            )
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV file of sellers") from None
    except UnicodeError as error:
        raise DataError(f"{path}: {error}; save the file as UTF-8") from None
    except pd.errors.EmptyDataError:
        raise DataError(
            f"{path}: the file is empty; give a header and one row per seller"
        ) from None
    except pd.errors.ParserWarning:
        raise DataError(
            f"{path}: rows have more fields than the header; quote the fields that contain the "
            f"separator {separator!r}"
        ) from None
    except pd.errors.ParserError as error:
        raise DataError(f"{path}: {' '.join(str(error).split())}") from None


def _encoding(path: Path) -> str:
    """Return the encoding that the byte-order mark announces; UTF-8 without one."""
    with open(path, "rb") as file:
        mark = file.read(2)
    return "utf-16" if mark in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _separator(header: str) -> str:
    try:
        return csv.Sniffer().sniff(header, delimiters=",;\t|").delimiter
    except csv.Error:  # one column
        return ","


def checked_reports(
    table: pd.DataFrame,
    id_column: str | None,
    sensitivity_column: str | None,
    prior: Prior,
    place: str,
    first: int,
    options: tuple[str, str] = ("--id", "--sensitivity"),
) -> pd.DataFrame:
    """Return ids and sensitivities, or say which rows are wrong and why.

    ``place`` and ``first`` say how rows are counted: "offers.csv: line", from 2. The index of
    what is returned counts in the same way. ``options`` are those that name the columns.
    """
    ids = table[column_named(table, id_column, ID_NAMES, options[0])]
    texts = table[column_named(table, sensitivity_column, SENSITIVITY_NAMES, options[1])]
    nameless = blank(ids)
    empty = nameless & blank(texts)
    ids, texts, nameless = ids[~empty], texts[~empty], nameless[~empty]
    if ids.empty:
        raise DataError("the list has a header and no sellers; give one row per seller")
    numbers = numbers_in(texts)
    low, high = prior.support
    beyond = (
        f"is outside the support [{low:g}, {high:g}] of {prior!r}; correct the report, or give a "
        "prior that covers it"
    )
    checks: list[tuple[pd.Series[Any], pd.Series[bool], str]] = [
        (texts, numbers.isna(), "is not a number"),
        (texts, numbers < 0, "is negative, and a sensitivity is >= 0"),
        (texts, numbers == np.inf, "is not finite"),
        (texts, ~numbers.between(low, high), beyond),
        (ids, nameless, "is no id"),
        (ids, ids.duplicated(), "is the id of an earlier seller; ids must be distinct"),
    ]
    rows = np.flatnonzero(~empty) + first
    for values, wrong, why in checks:
        bad = np.flatnonzero(wrong)
        if bad.size:
            raise DataError(blame(place, rows[bad], values.iloc[bad[0]], why))
    return pd.DataFrame({"id": ids, "sensitivity": numbers}).set_axis(rows)


def blank(values: pd.Series[Any]) -> pd.Series[bool]:
    """Whether entries are missing, or text without a visible character."""
    missing = values.isna()
    if not pd.api.types.is_numeric_dtype(values):
        missing |= values.astype(str).str.strip() == ""
    return missing


def column_named(table: pd.DataFrame, given: str | None, common: Sequence[str], option: str) -> str:
    """Return the name of a column, as given or by one of its common names.

    ``option`` is the one of the command line that gives it.
    """
    names = {str(name).strip().lower(): name for name in reversed(table.columns)}
    for candidate in common if given is None else (given.strip().lower(),):
        if candidate in names:
            return names[candidate]
    listed = ", ".join(repr(str(name)) for name in table.columns)
    sought = " or ".join(map(repr, common)) if given is None else repr(given)
    python = f"{option.strip('-').removesuffix('-column')}_column"
    raise DataError(
        f"no column is called {sought}; the columns are {listed}. Name one of them with {option} "
        f"({python} in Python)"
    )


def numbers_in(texts: pd.Series[Any]) -> pd.Series[float]:
    """Return texts as numbers, NaN where they are not numbers.

    Commas are decimal commas where no number has a point, and one of them is not in a place where
    it could separate thousands.
    """
    numbers = pd.to_numeric(texts, errors="coerce")
    if numbers.isna().any() and not pd.api.types.is_numeric_dtype(texts):
        plain = texts.astype(str).str.strip()
        commas = plain[plain.str.contains(",", regex=False)]
        thousands = commas.str.fullmatch(r"[1-9]\d{0,2}(,\d{3})+")
        if not (plain.str.contains(".", regex=False).any() or thousands.all()):
            numbers = pd.to_numeric(plain.str.replace(",", ".", regex=False), errors="coerce")
    return numbers.astype(float)


def blame(place: str, rows: NDArray[np.intp], value: Any, why: str) -> str:
    """Say which rows are wrong, what the first of them holds, and why that is wrong."""
    more = ""
    if rows.size > 1:
        others = ", ".join(str(row) for row in rows[1:6]) + (", ..." if rows.size > 6 else "")
        more = f" ({rows.size - 1} more: {others})"
    found = repr(value) if isinstance(value, str) else str(value)
    return f"{place} {rows[0]}: {found} {why}{more}"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV file of sellers") from None
