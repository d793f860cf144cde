"""How much a problem file may say: what is larger is refused before anything is made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psutil

__all__ = [
    "COPIES",
    "LONGEST_KEY",
    "LONGEST_TEXT",
    "MOST_ENTRIES",
    "MOST_KEYS",
    "PER_RECORD",
    "PER_SELLER",
    "check_memory",
    "check_text",
    "check_values",
]

#: Keys, tables and lists within one another; the deepest that a schema allows is less than half.
DEEPEST = 20
LONGEST_KEY = 200
LONGEST_TEXT = 20_000
MOST_KEYS = 1_000
MOST_ENTRIES = 100_000
#: TOML asks for integers of 64 bits.
LARGEST_INTEGER = 2**63 - 1

MOST_DIGITS = 1_000

# What a run holds at its peak, in numbers of eight bytes; rounded up from runs that were measured.
#: For every number of the rows.
COPIES = 8
#: For every seller of a market that was allocated, paid and written down.
PER_SELLER = 10
#: For a record of a table, while it is a dict.
PER_RECORD = 100

#: Where a name may begin: bare, or at a quote.
_NAME = re.compile(r"[\w-]+|[\"']")
_DOT = re.compile(r"[ \t]*+\.[ \t]*+")
_DIGITS = re.compile(r"[0-9_]+")


def check_text(text: str) -> None:
    """Refuse TOML that would take long to parse.

    Raises
    ------
    ValueError
        Saying what is too much.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") >= DEEPEST and (found := _deep_key(line)):
            raise ValueError(
                f"line {number} joins more than {DEEPEST} names by dots ({_start(found)})"
            )
        if any(len(digits) >= MOST_DIGITS for digits in _DIGITS.findall(line)):
            raise ValueError(f"line {number} has a number of more than {MOST_DIGITS} digits")


def _deep_key(line: str) -> str:
    """Return the beginning of a key that joins too many names, for which parsers take long.

    Whether a quote opens or closes a name depends on the lines before, so each is tried as the
    beginning of one. Going from right to left, every place is looked at once.
    """
    joined: dict[int, int] = {}  # by the place where a name begins: dots from there on
    closing: dict[str, int] = {}
    for name in reversed(list(_NAME.finditer(line))):
        begin, end = name.span()
        if name[0] in "\"'":
            end = closing.get(name[0], len(line)) + 1
            closing[name[0]] = begin
        dot = _DOT.match(line, end)
        joined[begin] = 1 + joined[dot.end()] if dot and dot.end() in joined else 0
        if joined[begin] >= DEEPEST:
            return line[begin:]
    return ""


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


def check_memory(needs: Mapping[str, float]) -> None:
    """Refuse a run that would hold more than the memory there is, before any of it is drawn.

    Parameters
    ----------
    needs : mapping from str to float
        Numbers of eight bytes that are held at once, by the keys whose product they are.

    Raises
    ------
    ValueError
        Naming the keys that ask for most.
    """
    need, there_are = 8 * sum(needs.values()) / 2**30, _free_memory() / 2**30
    if need > there_are:
        raise ValueError(
            f"{max(needs, key=lambda keys: needs[keys])}: a run would hold about {need:,.1f} GiB "
            f"at once, and {there_are:,.1f} GiB of memory are free; give smaller numbers"
        )


def _free_memory() -> int:
    return int(psutil.virtual_memory().available)
