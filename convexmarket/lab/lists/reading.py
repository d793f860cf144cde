"""Lists that people keep as CSV files: any of the usual separators, decimal points or commas.

What cannot be read for certain is refused, with the lines at fault, because a wrong number here is
a wrong payment there.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.data.columns import ID_NAMES, REPORT_NAMES
from convexmarket.data.csv_format import SEPARATORS, Numbers, numbers_in
from convexmarket.data.files import open_parquet, open_regular
from convexmarket.errors import DataError, ParameterError
from convexmarket.ids import checked_id, forms_of
from convexmarket.lab.lists.csv_rows import csv_rows
from convexmarket.lab.lists.fast_lists import plain_columns, plain_csv
from convexmarket.priors import Prior

__all__ = [
    "blame",
    "blank",
    "checked_ids",
    "checked_reports",
    "column_named",
    "columns_listed",
    "digest",
    "is_class",
    "read_list",
    "read_reports",
    "report_faults",
    "trimmed_id",
]

NO_NUMBER = "is not a number, or may be another; write 1234.5, and one decimal sign throughout"
#: Cells of a table that is held in memory, in which each takes some 60 bytes.
MOST_CELLS = 50_000_000
#: Rows that are read at a time where a list is not held as text.
PIECE = 100_000
#: Characters of a value that a message shows.
SHOWN = 60


def read_reports(path: str | Path) -> pd.DataFrame:
    """Read a CSV file as text, whatever its separator and byte-order mark.

    Returns
    -------
    DataFrame
        Every column as text; the index holds the line of the file that each row begins at. Blank
        rows are left out.

    Raises
    ------
    DataError
        If the file cannot be opened, is too large to be held in memory, is not UTF-8 or UTF-16
        text, or its rows do not fit its header.
    """
    rows = csv_rows(path)
    _, header = _header(rows, path)
    lines: list[int] = []
    columns: list[list[str]] = [[] for _ in header]
    for number, (line, row) in enumerate(rows, start=1):
        if number * len(header) > MOST_CELLS:
            raise DataError(
                f"{path}: line {line}: a table that is held in memory has at most {MOST_CELLS:,} "
                "cells; leave away the columns that are not needed"
            )
        lines.append(line)
        for column, field in zip(columns, row, strict=True):
            column.append(field)
    table = pd.DataFrame(dict(enumerate(columns)), index=lines, dtype=object)
    return table.set_axis(header, axis=1)


def read_list(
    path: str | Path,
    prior: Prior,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    form_of: Callable[[str], str] = checked_id,
    group_column: str | None = None,
) -> pd.DataFrame:
    """Read ids and sensitivities from a file of any length, and check them.

    Parameters
    ----------
    path : path of a CSV file, or of a Parquet file (.parquet)
    prior : Prior
        What the sensitivities are drawn from.
    id_column, sensitivity_column : str, optional
        Their columns, where they are not called id and sensitivity or something as common.
    form_of : callable
        Gives the form of an id that is kept; ids of the same form are the same id. Raises a
        ParameterError where there is none.
    group_column : str, optional
        The column of the sellers' groups.

    Returns
    -------
    DataFrame
        Columns id and sensitivity, and group where its column was named; the index holds the line
        of the file that each row begins at, or the row of a Parquet file, from 1.

    Raises
    ------
    DataError
        If the file cannot be read, or rows are wrong; the message names their lines.
    """
    if Path(path).suffix == ".parquet":
        return _parquet_list(path, prior, (id_column, sensitivity_column, group_column))
    place = f"{path}: line"
    rows = csv_rows(path)
    _, header = _header(rows, path)
    frame = pd.DataFrame(columns=header, dtype=object)
    id_at = header.index(column_named(frame, id_column, ID_NAMES, "--id-column"))
    report_at = header.index(
        column_named(frame, sensitivity_column, REPORT_NAMES, "--sensitivity-column")
    )
    group_at = None
    if group_column is not None:
        group_at = header.index(column_named(frame, group_column, (), "--group-column"))
    plain = plain_csv(path, len(header), (id_at, report_at, group_at), prior)
    if plain is not None:
        return plain
    lines, numbers = array("q"), Numbers()
    ids: list[str] = []
    groups: list[str] = []
    filled = (
        (line, row[id_at], row[report_at], "" if group_at is None else row[group_at])
        for line, row in rows
        if row[id_at].strip() or row[report_at].strip()
    )
    while piece := list(islice(filled, PIECE)):
        lines.extend(line for line, *_ in piece)
        ids.extend(_form(text, form_of, f"{place} {line}") for line, text, *_ in piece)
        numbers.add([text for _, _, text, _ in piece])
        if group_at is not None:  # few names, each kept once
            groups.extend(sys.intern(text.strip()) for *_, text in piece)
    columns = {"id": pd.Series(ids, dtype="str"), "sensitivity": numbers.found()}
    if group_at is not None:
        columns["group"] = pd.Series(groups, dtype=object)
    listed = pd.DataFrame(columns).set_axis(np.frombuffer(lines, dtype=np.int64))
    _check(listed, prior, place, lambda line: _field(path, line, id_at))
    return listed


def _parquet_list(
    path: str | Path, prior: Prior, named: tuple[str | None, str | None, str | None]
) -> pd.DataFrame:
    """Read ids, sensitivities and groups from a Parquet file."""
    with open_parquet(path) as parquet:
        frame = pd.DataFrame(columns=parquet.schema_arrow.names, dtype=object)
        common = (ID_NAMES, REPORT_NAMES, ())
        options = ("--id-column", "--sensitivity-column", "--group-column")
        wanted = [
            column_named(frame, name, usual, option)
            for name, usual, option in zip(named, common, options, strict=True)
            if usual or name is not None
        ]
        table = parquet.read(columns=wanted)
        plain = plain_columns(*(table[name] for name in wanted), prior=prior)
        rows = table.to_pandas() if plain is None else plain
    if plain is not None:
        return plain.set_axis(pd.RangeIndex(1, len(plain) + 1))
    id_column, report_column, *rest = wanted
    group_column = rest[0] if rest else None
    return checked_reports(rows, id_column, report_column, prior, f"{path}: row", 1, group_column)


def trimmed_id(text: str) -> str:
    """Return an id without blanks around it, in the form that is kept."""
    return checked_id(text.strip())


def _header(rows: Iterator[tuple[int, list[str]]], path: str | Path) -> tuple[int, list[str]]:
    for found in rows:
        return found
    raise DataError(f"{path}: the file is empty; give a header and one row per seller")


def _form(text: str, form_of: Callable[[str], str], place: str) -> str:
    """Return the form of an id that is kept; one without a visible character is none."""
    if not text.strip():
        return ""
    try:
        return form_of(text)
    except ParameterError as error:
        raise DataError(f"{place}: {error}") from None


def _field(path: str | Path, line: int, column: int) -> str:
    """Return a field as it is in the file, for a message about it."""
    return next((row[column] for at, row in csv_rows(path) if at == line), "")


def checked_reports(
    table: pd.DataFrame,
    id_column: str | None,
    sensitivity_column: str | None,
    prior: Prior,
    place: str,
    first: int,
    group_column: str | None = None,
) -> pd.DataFrame:
    """Return ids and sensitivities, and groups, or say which rows are wrong and why.

    ``place`` and ``first`` say how rows are counted: "offers.csv: line", from 2. The index of
    what is returned counts in the same way.
    """
    ids = table[column_named(table, id_column, ID_NAMES, "--id-column")]
    reports = table[column_named(table, sensitivity_column, REPORT_NAMES, "--sensitivity-column")]
    rows = np.arange(first, first + len(table))
    empty = (blank(ids) & blank(reports)).to_numpy()
    ids, reports, rows = ids[~empty], reports[~empty], rows[~empty]

    def named(k: int) -> str:
        return f"{place} {rows[k]}: id"

    try:
        forms = forms_of(ids.tolist(), named)
    except ParameterError as error:
        raise DataError(str(error)) from None
    ids = ids.set_axis(rows)
    listed = pd.DataFrame({"id": forms, "sensitivity": numbers_in(reports)}).set_axis(rows)
    if group_column is not None:
        groups = table[column_named(table, group_column, (), "--group-column")]
        listed["group"] = groups[~empty].to_numpy()
    _check(listed, prior, place, ids.__getitem__)
    return listed.assign(id=ids)


def checked_ids(ids: pd.Series[Any], place: str) -> pd.Series[Any]:
    """Return ids as a market keeps them, or say which lines hold none, or one twice.

    The index counts the lines; ``place`` is what it counts in, such as "rows.csv: line".
    """

    def kept(line: Any, text: str) -> str:
        try:
            return checked_id(text)
        except ParameterError as error:
            raise DataError(f"{place} {line}: {error}") from None

    known = pd.Series([kept(*item) for item in ids.items()], index=ids.index, dtype=object)
    twice = np.flatnonzero(known.duplicated())
    if twice.size:
        why = "is the id of an earlier line; ids must be distinct"
        lines = ids.index.to_numpy()[twice]
        raise DataError(blame(place, lines, clipped(known.iloc[twice[0]]), why))
    return known


def _check(
    listed: pd.DataFrame,
    prior: Prior,
    place: str,
    id_of: Callable[[int], Any],
) -> None:
    """Refuse a list without sellers, or with wrong rows; ``id_of`` finds an id as it was written.

    It is looked for only then, because a long list does not keep it.
    """
    if listed.empty:
        raise DataError("the list has a header and no sellers; give one row per seller")
    twice = "is the id of an earlier seller; ids must be distinct"
    checks = [("the report", *fault) for fault in report_faults(listed["sensitivity"], prior)]
    checks += [
        ("", blank(listed["id"]), "is no id"),
        ("", listed["id"].duplicated(), twice),
    ]
    if "group" in listed:
        checks.append(("the group", blank(listed["group"]), "is missing"))
    rows = listed.index.to_numpy()
    for what, wrong, why in checks:
        bad = np.flatnonzero(wrong)
        if bad.size:
            named = what or clipped(id_of(int(rows[bad[0]])))
            raise DataError(blame(place, rows[bad], named, why))


def report_faults(numbers: pd.Series[float], prior: Prior) -> list[tuple[pd.Series[bool], str]]:
    """Return what may be wrong with reports: which are, and why."""
    low, high = prior.support
    beyond = (
        f"is outside the support [{low:g}, {high:g}] of {prior!r}; correct the report, or give a "
        "prior that covers it"
    )
    return [
        (numbers.isna(), NO_NUMBER),
        (numbers < 0, "is negative, and a sensitivity is >= 0"),
        (numbers == np.inf, "is not finite"),
        (~numbers.between(low, high), beyond),
    ]


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
    for candidate in common if given is None else (given.strip().lower(),):
        found = [name for name in table.columns if str(name).strip().lower() == candidate]
        if len(found) > 1:
            raise DataError(
                f"the columns {' and '.join(map(repr, found))} are both called {candidate!r} but "
                "for case and blanks; rename one of them"
            )
        if found:
            return found[0]
    sought = " or ".join(map(repr, common)) if given is None else repr(given)
    python = option.removeprefix("--").replace("-", "_")
    raise DataError(
        f"no column is called {sought}; {columns_listed(table.columns)}. Name one of them with "
        f"{option} ({python} in Python)"
    )


def columns_listed(columns: Iterable[Any]) -> str:
    """Describe the header of a file for a message.

    Names are not quoted: without a header, the first line is the row of a person.
    """
    names = [str(name) for name in columns]
    if len(names) == 1 and any(separator in names[0] for separator in SEPARATORS):
        return (
            "each line of the file is one quoted cell; in a spreadsheet, import it as text that "
            "commas separate, and save it again"
        )
    return f"the first line has {len(names)} columns of other names"


def is_class(labels: pd.Series[Any], known: str | int | float) -> NDArray[np.bool_]:
    """Say which labels are this class: as numbers if it is one, else as they are written."""
    if isinstance(known, str):
        return (labels.astype(str).str.strip() == known).to_numpy()
    return (numbers_in(labels) == known).to_numpy()


def blame(place: str, rows: NDArray[np.intp], what: str, why: str) -> str:
    """Say which rows are wrong, what of them, and why.

    What a cell holds is private and is never said; ``what`` is an id, or the name of a column.
    """
    more = ""
    if rows.size > 1:
        others = ", ".join(str(row) for row in rows[1:6]) + (", ..." if rows.size > 6 else "")
        more = f" ({rows.size - 1} more: {others})"
    return f"{place} {rows[0]}: {what} {why}{more}"


def clipped(value: Any) -> str:
    """Return a value as a message shows it."""
    found = repr(value) if isinstance(value, str) else str(value)
    return found if len(found) <= SHOWN else f"{found[:SHOWN]}... ({len(found)} characters)"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV file of sellers") from None
