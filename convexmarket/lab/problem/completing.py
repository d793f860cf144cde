"""Complete tables from a base and what is to be different, for files that state several at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails

from convexmarket.priors import Prior

__all__ = ["merged", "plain", "refusal", "with_value"]


def plain(value: Any) -> Any:
    """Return a validated table as what the file said."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Prior):
        return value.to_dict()
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def merged(
    base: Mapping[str, Any], changes: Mapping[str, Any], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the base with the changes made, key by key; ``false`` removes an entry."""
    result = dict(base)
    for key, value in changes.items():
        here, known = (*path, key), base.get(key)
        if value is False:
            if key not in base:
                raise refusal(here, value, f"there is no {'.'.join(here)} to remove")
            del result[key]
        elif (
            isinstance(known, Mapping) and isinstance(value, Mapping) and _alike(here, known, value)
        ):
            result[key] = merged(known, value, here)
        else:
            result[key] = value
    return result


def _alike(path: tuple[str, ...], old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a change is about some keys of a table, and not in the place of it."""
    replaced = path in (("sellers",), ("prior",)) or path[-1] == "privacy_cost"
    return not replaced and new.get("term", old.get("term")) == old.get("term")


def with_value(
    table: Mapping[str, Any], path: str, value: Any, named_by: tuple[str, ...] = ("sweep", "key")
) -> dict[str, Any]:
    """Return a copy of nested tables in which the key at a path has this value.

    Parameters
    ----------
    table : mapping
    path : str
        Keys, joined by dots.
    value : object
    named_by : tuple of str
        Where the file names the path, for the error if there is no such table.
    """
    key, dot, rest = path.partition(".")
    if not dot:
        return {**table, key: value}
    inner = table.get(key, {})
    if not isinstance(inner, Mapping):
        raise refusal(named_by, path, f"{key} is not a table, so {path} is no key")
    return {**table, key: with_value(inner, rest, value, named_by)}


def refusal(path: tuple[str | int, ...], found: Any, words: str) -> ValidationError:
    """Return an error about one key, to be raised while a table is validated."""
    detail = InitErrorDetails(
        type="value_error", loc=path, input=found, ctx={"error": ValueError(words)}
    )
    return ValidationError.from_exception_data("problem", [detail])
