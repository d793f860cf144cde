"""The rows that the sellers of an online market own, matched by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.data.csv_format import numbers_in
from convexmarket.errors import DataError
from convexmarket.ids import warn_of_lookalikes
from convexmarket.lab.kinds.online_market.problem import CsvRows, OnlineMarketProblem
from convexmarket.lab.lists.reading import (
    blame,
    checked_ids,
    is_class,
    read_reports,
    report_faults,
)
from convexmarket.lab.problem.classification import InlineData
from convexmarket.lab.problem.rows import load_rows

__all__ = ["MOST_NAMES", "MarketRows", "own_reports", "owned_rows"]

Floats = NDArray[np.float64]

NORM_SLACK = 1e-12  # relative; rows scaled to the bound in floating point may exceed it by rounding
MOST_NAMES = 5  # ids that a message lists


@dataclass(frozen=True, eq=False)
class MarketRows:
    """Private rows by the id of their owner, and public rows to measure a model on.

    Attributes
    ----------
    ids : tuple of str
        Owners of the private rows.
    X, y : ndarray of shape (n, n_features) and (n,)
        The private rows; labels are -1 or 1.
    X_test, y_test : ndarray
        The public rows; none of them where nothing public is at hand.
    feature_names : tuple of str
    classes : tuple of two labels
        What -1 and 1 stand for.
    data_norm : float
        The public bound on the Euclidean norm of every row.
    description : str
        Where the rows come from.
    """

    ids: tuple[str, ...]
    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats
    feature_names: tuple[str, ...]
    classes: tuple[Any, Any]
    data_norm: float
    description: str

    def labels(self, signs: Floats) -> NDArray[Any]:
        """Return the classes that -1 and 1 stand for."""
        return np.asarray(self.classes)[(signs > 0).astype(np.intp)]

    def of(self, ids: Sequence[str]) -> tuple[Floats, Floats]:
        """Return the rows of these owners, in this order.

        Raises
        ------
        DataError
            Naming those who have no row.
        """
        places = pd.Index(self.ids).get_indexer(pd.Index(ids))
        missing = [owner for owner, place in zip(ids, places, strict=True) if place < 0]
        if missing:
            named = ", ".join(missing[:MOST_NAMES]) + (", ..." if len(missing) > MOST_NAMES else "")
            raise DataError(
                f"{len(missing)} of {len(ids)} sellers who accepted have no row ({named}); add "
                "their rows to the data, or leave them out with --leave-out; nothing was trained"
            )
        return self.X[places], self.y[places]


def owned_rows(problem: OnlineMarketProblem) -> MarketRows:
    """Return the rows that a problem names, with their owners.

    Raises
    ------
    DataError
        If a file cannot be read, or holds a bad row; the message names the lines.
    """
    data = problem.data
    if isinstance(data, CsvRows):
        return _from_csv(problem, data)
    rows = load_rows(data)
    public = not isinstance(data, InlineData)  # its rows are all private
    return MarketRows(
        ids=tuple(f"row-{number}" for number in range(rows.y_train.size)),
        X=rows.X_train,
        y=rows.y_train,
        X_test=rows.X_test if public else rows.X_test[:0],
        y_test=rows.y_test if public else rows.y_test[:0],
        feature_names=rows.feature_names,
        classes=(-1, 1),
        data_norm=rows.data_norm,
        description=rows.description if public else "Rows of the problem file.",
    )


def own_reports(problem: OnlineMarketProblem) -> dict[str, float] | None:
    """Return what the sellers of a file report, by id; None where no column of reports is named.

    Raises
    ------
    DataError
        If the file cannot be read, or a report is none, or lies outside the prior's support.
    """
    data = problem.data
    if not isinstance(data, CsvRows) or data.report is None:
        return None
    path = problem.file(data.rows)
    table, place = read_reports(path), f"{path}: line"
    reports = numbers_in(_column(path, table, data.report, "report"))
    for wrong, why in report_faults(reports, problem.prior):
        _refuse(place, table, "the report", wrong, why)
    ids = checked_ids(_column(path, table, data.id, "id"), place)
    return dict(zip(ids, reports.tolist(), strict=True))


def check_public(problem: OnlineMarketProblem) -> None:
    """Check what a market needs before anybody sells: its public rows. Private ones come later.

    Raises
    ------
    DataError
        If the public rows cannot be read, or are not as declared.
    """
    data = problem.data
    if isinstance(data, CsvRows) and data.test is not None:
        _public_rows(problem, data, None)


def _from_csv(problem: OnlineMarketProblem, data: CsvRows) -> MarketRows:
    path = problem.file(data.rows)
    table = read_reports(path)
    names, left_out = _features(path, table, data)
    ids, X, y = _checked(path, table, data, names, data.id)
    X_test, y_test = X[:0], y[:0]
    if data.test is not None:
        X_test, y_test = _public_rows(problem, data, names)
    return MarketRows(
        ids=ids,
        X=X,
        y=y,
        X_test=X_test,
        y_test=y_test,
        feature_names=names,
        classes=data.classes,
        data_norm=data.data_norm,
        description=f"Rows of {data.rows}"
        + (f", and public rows of {data.test}." if data.test else "; no public rows.")
        + f" {left_out}" * bool(left_out),
    )


def _features(path: Path, table: pd.DataFrame, data: CsvRows) -> tuple[tuple[str, ...], str]:
    """Return the columns of features, and in words what was left out."""
    try:
        return data.feature_columns([str(name) for name in table.columns])
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _public_rows(
    problem: OnlineMarketProblem, data: CsvRows, names: Sequence[str] | None
) -> tuple[Floats, Floats]:
    """Return features and labels of the public rows; all other columns where names are left out."""
    assert data.test is not None
    path = problem.file(data.test)
    table = read_reports(path)
    names = names or _features(path, table, data)[0]
    _, X, y = _checked(path, table, data, names, None)
    return X, y


def _checked(
    path: Path,
    table: pd.DataFrame,
    data: CsvRows,
    features: Sequence[str],
    id_column: str | None,
) -> tuple[tuple[str, ...], Floats, Floats]:
    """Return ids, features and labels of a file, or say which lines are wrong and why."""
    place = f"{path}: line"
    lines = table.index.to_numpy()
    refuse, column = partial(_refuse, place, table), partial(_column, path, table)
    ids: tuple[str, ...] = ()
    labels = column(data.label, "label")
    if id_column is not None:
        ids = tuple(checked_ids(column(id_column, "id"), place))
        warn_of_lookalikes(ids, lambda k: f"{place} {lines[k]}: id")
    columns = []
    for name in features:
        numbers = numbers_in(column(name, "features"))
        cell = f"the cell of the column {name!r}"
        refuse(cell, ~np.isfinite(numbers), "is not a finite number")
        columns.append(numbers.to_numpy())
    negative, positive = (is_class(labels, known) for known in data.classes)
    allowed = f"is none of the classes {data.classes[0]!r} and {data.classes[1]!r}"
    refuse(f"the cell of the column {data.label!r}", ~(negative | positive), allowed)
    X = np.column_stack(columns).astype(np.float64)
    norms = np.linalg.norm(X, axis=1)
    refuse(
        "the norm of the row",
        norms > data.data_norm * (1.0 + NORM_SLACK),
        f"is above data_norm = {data.data_norm:g}; scale the rows by public "
        "constants, or declare a larger bound",
    )
    return ids, X, np.where(positive, 1.0, -1.0)


def _refuse(place: str, table: pd.DataFrame, what: str, wrong: Any, why: str) -> None:
    bad = np.flatnonzero(wrong)
    if bad.size:
        raise DataError(blame(place, table.index.to_numpy()[bad], what, why))


def _column(path: Path, table: pd.DataFrame, name: str, key: str) -> pd.Series[Any]:
    if name not in table.columns:
        listed = ", ".join(repr(str(known)) for known in table.columns)
        raise DataError(
            f"{path}: no column is called {name!r}; the columns are {listed}. Say in the "
            f"problem file which one it is (data.{key})"
        )
    return table[name]
