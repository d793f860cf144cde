"""Generate JSON documents in which an attacker has changed one entry."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


#: Values that replace an entry of a document.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -1e-320, 1e308, -1e308, 2**63, 10**400,
    "", " ", "0", "nan", "Infinity", "x" * 5_000, "a\nb", "\0", "\x1b[2J", "<script>", "=1+1",
    "\u202e", "\u00ad", "../../etc/passwd", "convexmarket", [], [[]], [None], [1.5, "a"], {},
    {"a": 1}, {"float": "NaN"}, {"float": "-Infinity"}, {"columns": [], "dtypes": [], "data": []},
    nested(200),
)  # fmt: skip

Change = Callable[[Any, Any, np.random.Generator], None]


def _replace(parent: Any, key: Any, rng: np.random.Generator) -> None:
    parent[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])


def _remove(parent: Any, key: Any, rng: np.random.Generator) -> None:
    del parent[key]


def _add(parent: Any, key: Any, rng: np.random.Generator) -> None:
    value = copy.deepcopy(parent[key])
    if isinstance(parent, dict):
        parent[f"{key}_"] = value
    else:
        parent.insert(key, value)


CHANGES: tuple[Change, ...] = (_replace, _replace, _remove, _add)


def mutations(document: Any, number: int, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Yield ``number`` changed copies of a document with descriptions of the changes.

    A random descent selects the entry, so all top-level keys are equally likely.
    """
    for _ in range(number):
        changed = copy.deepcopy(document)
        parent, path = changed, []
        while True:
            keys = list(parent) if isinstance(parent, dict) else range(len(parent))
            key = keys[rng.integers(len(keys))]
            path.append(key)
            if not (isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.85):
                break
            parent = parent[key]
        change = CHANGES[rng.integers(len(CHANGES))]
        change(parent, key, rng)
        now = (
            parent[key]
            if key in (parent if isinstance(parent, dict) else range(len(parent)))
            else ""
        )
        yield f"{path} {change.__name__[1:]}: {json.dumps(now)[:60]}", changed
