"""Determine the roles of columns. Columns that describe the sale are not features.

Guarantees require weights that do not depend on the private rows. Weights are computed from the
reports, so a report must not be a feature.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from convexmarket.errors import DataError, ParameterError

__all__ = ["ID_NAMES", "REPORT_NAMES", "Role", "feature_columns", "refuse_reports", "roles_of"]

Role: TypeAlias = Literal["id", "report", "group", "quota"]

ID_NAMES = ("id", "seller", "name", "seller_id")
REPORT_NAMES = ("sensitivity", "cost", "c", "reported_sensitivity", "report", "ask")
#: Common names of columns that describe the sale.
_NAMES: dict[Role, tuple[str, ...]] = {
    "id": ID_NAMES,
    "report": (*REPORT_NAMES, "costs", "reported", "asking", "price", "epsilon"),
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
    name = column.strip().lower()
    words = re.split(r"[^a-z0-9]+", name)
    return name in common or any(len(word) > 1 and word in common for word in words)


def refuse_reports(features: Sequence[str], **named: str | None) -> None:
    """Raise an error if a feature that the user named is a report."""
    given = named.get("report")
    for column in features:
        if column == given or (given is None and column.strip().lower() in REPORT_NAMES):
            raise ParameterError(
                f"the feature {column!r} is the sellers' report, on which weights and payments "
                "depend, so no guarantee covers a model with this feature; omit it from features, "
                "or name another column as the reports (report)"
            )


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
        If a feature is the label column or a report.

    Examples
    --------
    >>> feature_columns(["id", "age", "sensitivity", "ill"], "ill")
    ('age',)
    """
    if features is not None:
        if target in features:
            raise ParameterError(f"the feature {target!r} is the label; omit it from features")
        refuse_reports(features, **named)
        return tuple(features)
    others = [column for column in columns if column != target]
    roles = roles_of(others, **named)
    features = tuple(column for column in others if column not in roles)
    if not features:
        raise DataError(f"the table has no feature column, only {', '.join(map(repr, columns))}")
    return features
