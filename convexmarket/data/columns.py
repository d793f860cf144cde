"""Determine the roles of columns. Columns that describe the sale are not features.

Guarantees require weights that do not depend on the private rows. Weights are computed from the
reports, so a report must not be a feature.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from convexmarket.errors import DataError, ParameterError

__all__ = ["ID_NAMES", "REPORT_NAMES", "Role", "bare", "feature_columns", "roles_of"]

Role: TypeAlias = Literal["id", "report", "group", "quota"]

#: Names of id columns that are recognised only as whole names, not as words in a longer name.
_WHOLE = ("patient", "person", "subject", "customer", "user", "client", "nr", "no")
#: Common names of the columns of ids and of reports, in the order of preference.
ID_NAMES = ("id", "seller", "name", "seller_id", *_WHOLE)
REPORT_NAMES = ("ask", "asking", "report", "reported_sensitivity", "sensitivity", "cost", "c")
#: Common names of columns that describe the sale.
_NAMES: dict[Role, tuple[str, ...]] = {
    "id": ID_NAMES,
    "report": (*REPORT_NAMES, "costs", "reported", "price", "epsilon"),
    "group": ("group", "groups"),
    "quota": ("quota", "quotas"),
}


def roles_of(columns: Sequence[str], **named: str | None) -> dict[str, Role]:
    """Map each column that describes the sale to its role.

    ``named`` maps roles to columns. Other roles are recognised by common names, ignoring case.

    Examples
    --------
    >>> roles_of(["age", "Ask", "id"]), roles_of(["age", "c", "price"], report="price")
    ({'Ask': 'report', 'id': 'id'}, {'price': 'report'})
    """
    roles_of: dict[str, Role] = {}
    for column in columns:
        for role, common in _NAMES.items():
            given = named.get(role)
            if column == given or (given is None and _is_called(column, common)):
                roles_of[column] = role
    return roles_of


def _is_called(column: str, common: tuple[str, ...]) -> bool:
    """Test whether the name of a column, or a word in the name, is a common name.

    A single letter is recognised only if it is the whole name.
    """
    name = bare(column)
    words = {word for word in re.split(r"[^a-z0-9]+", name) if len(word) > 1}.difference(_WHOLE)
    return name in common or not words.isdisjoint(common)


def bare(column: object) -> str:
    """Return the name of a column in lower case, without outer blanks and points."""
    return str(column).strip(" .\t\r\n").lower()


def feature_columns(
    columns: Sequence[str],
    target: str,
    features: Sequence[str] | None = None,
    **named: str | None,
) -> tuple[str, ...]:
    """Return the names of the feature columns of a table.

    By default, all columns are features, except the label and the columns of the sale.

    Raises
    ------
    DataError
        If the table contains only the label and columns of the sale.
    ParameterError
        If a feature is the label, an id or a report, or the label is a column of the sale.

    Examples
    --------
    >>> feature_columns(["id", "age", "sensitivity", "ill"], "ill")
    ('age',)
    """
    for role in ("report", "id", "group"):
        if target == named.get(role):
            raise ParameterError(f"the label {target!r} is the column of {role}s; name another one")
    report, id = named.get("report"), named.get("id")
    for column in features or ():
        why = {target: "the label", id: "the column of ids"}.get(column)
        if column == report or (report is None and bare(column) in REPORT_NAMES):
            why = "the sellers' report (unless you name another column as the reports), on which "
            why += "weights and payments depend, so no guarantee covers a model with this feature"
        if why is not None:
            raise ParameterError(f"the feature {column!r} is {why}; omit it from features")
    if features is not None:
        return tuple(features)
    others = [column for column in columns if column != target]
    roles = roles_of(others, **named)
    features = tuple(column for column in others if column not in roles)
    if not features:
        raise DataError(f"the table has no feature column, only {', '.join(map(repr, columns))}")
    return features
