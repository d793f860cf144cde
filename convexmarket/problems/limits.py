"""How much a problem file may say: what is larger is refused before anything is made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["LONGEST_KEY", "LONGEST_TEXT", "MOST_ENTRIES", "check_text", "check_values"]

#: Keys, tables and lists within one another; the deepest that a schema allows is less than half.
DEEPEST = 20
LONGEST_KEY = 200
LONGEST_TEXT = 20_000
MOST_KEYS = 1_000
MOST_ENTRIES = 100_000
#: TOML asks for integers of 64 bits.
LARGEST_INTEGER = 2**63 - 1

_PART = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
#: Keys joined by dots; the parser takes a time that grows with the square of their number.
_DEEP_KEY = re.compile(rf"(?:{_PART}[ \t]*+\.[ \t]*+){{{DEEPEST}}}{_PART}")
_LONG_NUMBER = re.compile(r"[0-9_]{1000}")


def check_text(text: str) -> None:
    """Refuse TOML that would take long to parse.

    Raises
    ------
    ValueError
        Saying what is too much.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") >= DEEPEST and (found := _DEEP_KEY.search(line)):
            raise ValueError(
                f"line {number} joins more than {DEEPEST} names by dots ({_start(found[0])})"
            )
        if len(line) >= 1_000 and _LONG_NUMBER.search(line):
            raise ValueError(f"line {number} has a number of more than 1000 digits")


def check_values(table: Mapping[str, Any]) -> None:
    """Refuse values that are too deep, too long, too many or too large, wherever they are.

    Raises
    ------
    ValueError
        Naming the key.
    """
    left: list[tuple[str, int, Any]] = [("the file", 0, table)]
    entries = 0
    while left:
        name, depth, value = left.pop()
        if depth > DEEPEST:
            raise ValueError(f"{name} lies in more than {DEEPEST} tables and lists")
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise ValueError(f"{name} has {len(value)} characters; give at most {LONGEST_TEXT}")
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise ValueError(f"{name} is an integer of more than 64 bits")
        if isinstance(value, Mapping | list):
            entries += len(value)
            if entries > MOST_ENTRIES:
                raise ValueError(f"there are more than {MOST_ENTRIES} keys and entries in all")
            left += [(*entry, item) for entry, item in _entries(name, depth, value)]


def _entries(
    name: str, depth: int, value: Mapping[str, Any] | list[Any]
) -> list[tuple[tuple[str, int], Any]]:
    """Return what a table or list holds, each with its name and depth."""
    if isinstance(value, list):
        # Entries are called as their list: a name for each of 100,000 would be longer than they.
        return [((name, depth + 1), item) for item in value]
    if len(value) > MOST_KEYS:
        raise ValueError(f"{name} has {len(value)} keys; give at most {MOST_KEYS}")
    for key in value:
        if len(key) > LONGEST_KEY:
            raise ValueError(f"the key {_start(key)} has {len(key)} characters")
    path = "" if depth == 0 else f"{name}."
    return [((f"{path}{key}", depth + 1), item) for key, item in value.items()]


def _start(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
