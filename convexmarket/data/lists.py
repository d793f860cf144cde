"""Read lists of sellers from CSV files, Parquet files and tables.

For ambiguous values, an error with the line numbers is raised, because a wrong number would lead
to a wrong payment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from convexmarket.checks import forms_of, shown
from convexmarket.data.columns import ID_NAMES, REPORT_NAMES, bare
from convexmarket.data.csv_rows import SEPARATORS, numbers_in, read_texts
from convexmarket.data.files import open_regular
from convexmarket.data.tables import as_frame, read_parquet
from convexmarket.errors import DataError, ParameterError

__all__ = ["Supported", "blame", "blank", "checked_ids", "checked_list", "clipped", "column_named"]
__all__ += ["columns_listed", "digest", "is_class", "read_list", "read_sales", "refuse"]

NO_NUMBER = "is not a number, or is ambiguous; write 1234.5, and use one decimal sign throughout"
#: Argument of :func:`convexmarket.price` for each option of the command line.
_IN_PYTHON = {"--id-column": "id", "--sensitivity-column": "ask", "--group-column": "group"}
#: Key of a problem file for each argument in Python.
_IN_FILES = {"id": "sellers.id", "ask": "sellers.report", "group": "sellers.group"}
EPSILON_NAMES, PRICE_NAMES = ("epsilon", "eps"), ("payment", "price")
#: Largest number of characters of a value that a message quotes.
SHOWN = 60
#: Pattern of ASCII ids in normal form.
_PLAIN = "[!-~]([ -~]{0,198}[!-~])?"


class Supported(Protocol):
    """Interface of a distribution whose support must contain the reports."""

    support: tuple[float, float]


def read_list(
    reports: Any,
    prior: Supported | None,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    group_column: str | None = None,
    *,
    na_values: str | Sequence[str] = (),
    show_cells: bool = False,
) -> pd.DataFrame:
    """Read and check the ids and sensitivities of sellers.

    Parameters
    ----------
    reports : path of a CSV file or a Parquet file (.parquet), or table
        One row per seller. Rows with neither an id nor a sensitivity are omitted.
    prior : Prior or None
        Distribution of the sensitivities, whose support must contain the reports. Pass None if
        sellers have different distributions.
    id_column, sensitivity_column, group_column : str, optional
        Columns of the ids, reports and groups. Common names of ids and reports are recognised.
    na_values : str or sequence of str
        Texts that mark an empty cell of a CSV file, such as ``"k.A."``.
    show_cells : bool
        Whether an error message contains the first wrong report. By default, messages contain only
        line numbers, because reports are private.

    Returns
    -------
    DataFrame
        Table with the columns id and sensitivity, and group if ``group_column`` is given. The index
        contains the number of the first line of each row in the file, or row numbers from 1. Ids of
        a CSV file are in normal form. Other ids are unchanged.

    Raises
    ------
    DataError
        If the file cannot be read, or rows are invalid. The message contains the line numbers.
    """

    def choose(columns: Iterable[Any]) -> list[Any]:
        columns = list(columns)
        names = [
            column_named(columns, id_column, ID_NAMES, "--id-column"),
            column_named(columns, sensitivity_column, REPORT_NAMES, "--sensitivity-column"),
        ]
        if group_column is not None:
            names.append(column_named(columns, group_column, (), "--group-column"))
        return names

    if not isinstance(reports, str | PathLike):
        table, place = as_frame(reports), "row"
        table = table[choose(table.columns)].set_axis(pd.RangeIndex(1, len(table) + 1))
    elif Path(reports).suffix == ".parquet":
        table, place = read_parquet(Path(reports), choose), f"{reports}: row"
    else:
        table, place = read_texts(Path(reports), choose, na_values), f"{reports}: line"
    names = dict(zip(("id", "sensitivity", "group"), table.columns, strict=False))
    table = table.set_axis(list(names), axis=1)
    without_id = blank(table["id"])
    if without_id.any():
        table = table[~(without_id & blank(table["sensitivity"]))]
    how: Any = {"show_cells": show_cells, "is_csv": place.endswith("line")}
    return checked_list(table, prior, place, names, **how)


def checked_list(
    table: pd.DataFrame,
    prior: Supported | None,
    place: str,
    names: Mapping[str, Any],
    *,
    show_cells: bool = False,
    is_csv: bool = False,
) -> pd.DataFrame:
    """Convert the sensitivities of a list to numbers, or raise an error that lists invalid lines.

    ``table`` contains some of the columns id, sensitivity and group. Its index contains the line or
    row numbers of ``place``, such as "rows.csv: line". ``names`` maps its columns to the original
    names.
    """
    if table.empty:
        file = place.removesuffix("line").removesuffix("row")
        raise DataError(f"{file}the list has a header but no sellers; give one row per seller")
    if "group" in names and names["group"] in (names.get("id"), names.get("sensitivity")):
        why = "the column of ids or reports; name another one"
        raise ParameterError(f"the column of groups, {names['group']!r}, is {why}")
    for role, what in {"sensitivity": "the report", "group": "the group"}.items():
        if role in table:
            why = f"is missing (empty or NaN in column {names[role]!r}); fill it in or omit the row"
            missing = blank(table[role]) | (is_csv and table[role].isin(["nan", "NaN"]))
            refuse(place, missing, why, what)
    listed = table.copy()
    if is_csv and "group" in table:  # store each distinct name once
        listed["group"] = table["group"].str.strip().astype("category").astype(object)
    if "sensitivity" in table:
        written = table["sensitivity"]
        if pd.api.types.is_bool_dtype(written):  # the text of a truth value is rejected
            written = written.astype(str)
        listed["sensitivity"] = numbers_in(written)
        cells = table["sensitivity"] if show_cells else None
        for wrong, why in _report_faults(listed["sensitivity"], prior):
            refuse(place, wrong, why, "the report", cells)
    if "id" in table:
        listed["id"] = forms = _forms(table["id"], place)
        refuse(place, blank(forms), f"is not an id (column {names['id']!r})", cells=table["id"])
        if not forms.is_unique:
            why = f"is the id of an earlier seller (column {names['id']!r}); ids must be distinct"
            refuse(place, forms.duplicated(), why, cells=table["id"])
    pa.default_memory_pool().release_unused()  # free the memory of the search
    return listed if is_csv or "id" not in table else listed.assign(id=table["id"])


def _forms(ids: pd.Series[Any], place: str) -> pd.Series[Any]:
    """Compute the normal forms of ids. Blanks around ids are removed in files, not in tables.

    Ids without a visible character are unchanged.
    """
    others = ~blank(ids)
    if isinstance(ids.dtype, pd.StringDtype):
        others &= ~ids.str.fullmatch(_PLAIN)
    if not others.any():
        return ids
    texts = [id.strip() if place != "row" and isinstance(id, str) else id for id in ids[others]]
    lines = ids.index.to_numpy()[others.to_numpy()]
    try:
        checked = forms_of(texts, lambda k: f"{place} {lines[k]}: id")
    except ParameterError as error:
        raise DataError(str(error)) from None
    forms = ids.astype(object)
    forms[others] = list(checked)
    return forms


def checked_ids(ids: pd.Series[Any], place: str) -> pd.Series[Any]:
    """Compute the normal forms of ids. Raise an error with the lines of missing or repeated ids."""
    forms = _forms(ids, place)
    refuse(place, blank(ids), "is not an id", cells=ids)
    why = "is the id of an earlier line; ids must be distinct"
    refuse(place, forms.duplicated(), why, cells=ids)
    return forms


def read_sales(path: str | Path) -> pd.DataFrame:
    """Read the columns id, epsilon, and payment or price from a CSV file of sales.

    The index contains the line numbers, and the column of payments is called price. A DataError
    with line numbers is raised for invalid rows and for offers that were not accepted.
    """
    table, place = read_texts(path), f"{path}: line"
    if table.empty:
        raise DataError(f"{path}: the list has no seller; give one row per seller")
    status = next((name for name in table if str(name).strip().lower() == "status"), None)
    if status is not None:
        open_offers = table[status].str.strip().str.lower() != "accepted"
        why = "is not 'accepted'; list only offers that were accepted"
        refuse(place, open_offers, why, f"the cell in column {status!r}")
    sales = {"id": checked_ids(table[column_named(table, None, ID_NAMES)], place)}
    for name, common in (("epsilon", EPSILON_NAMES), ("price", PRICE_NAMES)):
        texts = table[column_named(table, None, common)]
        sales[name] = numbers_in(texts)
        bad = ~((sales[name] >= 0) & (sales[name] < np.inf))
        refuse(place, bad, "is not a finite number >= 0", f"the cell in column {texts.name!r}")
    return pd.DataFrame(sales)


def _report_faults(
    numbers: pd.Series[float], prior: Supported | None
) -> list[tuple[pd.Series[bool], str]]:
    """Return masks of invalid or ambiguous reports, each with the reason."""
    faults = [
        (numbers.isna(), NO_NUMBER),
        (numbers < 0, "is negative, but a sensitivity must be >= 0"),
        (numbers == np.inf, "is not finite"),
    ]
    if prior is not None:
        low, high = prior.support
        beyond = (
            f"is outside the support [{low:g}, {high:g}] of {prior!r}; correct the report, or give"
            " a prior that covers it"
        )
        faults.append((~numbers.between(low, high), beyond))
    return faults


def blank(values: pd.Series[Any]) -> pd.Series[bool]:
    """Return a mask of the entries that are missing or have no visible character."""
    missing = values.isna()
    if not pd.api.types.is_numeric_dtype(values):
        missing |= values.astype(str).str.strip() == ""
    return missing


def column_named(
    columns: Iterable[Any], given: str | None, common: Sequence[str], option: str = ""
) -> Any:
    """Return the column with the ``given`` name, or a column with a common name."""
    columns = list(columns)
    if not isinstance(given, Hashable):
        python = _IN_PYTHON.get(option, option)
        raise ParameterError(f"{python} must be the name of a column, got {shown(given)}")
    if given is not None and columns.count(given) == 1:
        return given
    for candidate in common if given is None else (bare(given),):
        matches = [name for name in columns if bare(name) == candidate]
        if len(matches) > 1:
            raise DataError(
                f"the columns {' and '.join(map(repr, matches))} are both called {candidate!r}, "
                "apart from case, blanks and points; rename one of them"
            )
        if matches:
            return matches[0]
    sought = " or ".join(map(repr, common)) if given is None and common else repr(given)
    python = _IN_PYTHON.get(option, option)
    in_file = f", {_IN_FILES[python]} in a file" if python in _IN_FILES else ""
    remedy = f"Name one of them as {option}" if option else "Rename one"
    if option.startswith("--"):
        remedy = f"Name one of them with {option} ({python} in Python{in_file})"
    raise DataError(f"no column is called {sought}; {columns_listed(columns)}. {remedy}")


def columns_listed(columns: Iterable[Any]) -> str:
    """Describe the header of a file without its text, because the header can be a private row."""
    names = [str(name) for name in columns]
    if len(names) == 1 and any(separator in names[0] for separator in SEPARATORS):
        return (
            "each line of the file is one quoted cell; import the file into a spreadsheet as "
            "comma-separated text, and save it again"
        )
    return f"the first line has {len(names)} columns with other names"


def is_class(labels: pd.Series[Any], known: str | int | float) -> NDArray[np.bool_]:
    """Return a mask of the labels that equal a class. A numeric class is compared with numbers."""
    if isinstance(known, str):
        return (labels.astype(str).str.strip() == known).to_numpy()
    return (numbers_in(labels) == known).to_numpy()


def blame(place: str, rows: NDArray[np.intp], what: str, why: str) -> str:
    """Compose an error message with the numbers of wrong rows, but without private cells."""
    more = ""
    if rows.size > 1:
        others = ", ".join(str(row) for row in rows[1:6]) + (", ..." if rows.size > 6 else "")
        more = f" ({rows.size - 1} more: {others})"
    return f"{place} {rows[0]}: {what} {why}{more}"


def refuse(place: str, wrong: Any, why: str, what: str = "", cells: Any = None) -> None:
    """Raise an error if the mask ``wrong`` marks rows. With ``cells``, the error quotes a cell."""
    bad = np.flatnonzero(wrong)
    if bad.size:
        cell = [] if cells is None else [clipped(cells.iloc[bad[0]])]
        what = " ".join([what] * bool(what) + cell)
        raise DataError(blame(place, wrong.index.to_numpy()[bad], what, why))


def clipped(value: Any) -> str:
    """Shorten a value for a message."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


def digest(path: Path) -> str:
    """Compute the SHA-256 digest of a file, in hexadecimal."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV file of sellers") from None
