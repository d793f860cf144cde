"""Test mutations of the tables and settings in the problem files of the repository."""

from __future__ import annotations

import copy
import datetime
import json
import math
import tomllib
from functools import cache
from typing import Any

import jsonschema
from hypothesis import strategies as st

from convexmarket.errors import ProblemFileError
from convexmarket.studies.files import OnlineFile, json_schema, parse_file
from tests import ROOT
from tests.campaign.fuzz.running import Target, require
from tests.studies.files.builders import REGRESSION, TRADEOFF

SOURCES = sorted((ROOT / "problems").glob("*.toml")) + sorted((ROOT / "problems").glob("*/*.toml"))
TEXTS = [*(path.read_text(encoding="utf-8") for path in SOURCES), TRADEOFF, REGRESSION]
TABLES = [tomllib.loads(text) for text in TEXTS]

LITERALS = [
    "nan", "-inf", "inf", "1e400", "-1", "0", "0.0", "-0.0", "1e-320", "1e308", "true", "false",
    '""', '"x"', '"\\u0000"', "[]", "{}", "[[]]", "[{}]", "[1, [2, [3]]]", "1979-05-27",
    "1979-05-27T07:32:00Z", "07:32:00", "9" * 30, "9" * 400, "9" * 5000, "0x10", "1_000", '"1"',
    "[nan]", "[1.0, 1.0]", "{a = 1}", "{power = true}", "{power = inf}", '{family = "uniform"}',
    '"\U0001f600"', '"../../etc/passwd"', "[" * 300 + "]" * 300, "2", "1", "[true]", "[1, 2]",
    "-9223372036854775809", '"linear"', '"inf"', "100000", '{family = "scipy", distribution = "x"}',
    '{family = "scipy", distribution = "norm", args = ["a"]}', "1.5", "0.5",
]  # fmt: skip


class Raw(str):
    """Text to be written as TOML without escaping."""


def toml(value: Any) -> str:
    """Write a value as TOML with inline tables."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]"


def document(table: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in table.items())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all entries in a nested value."""
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value[:3]))
    else:
        return [path] if path else []
    result = [path] if path else []
    for key, item in inside:
        result += places(item, (*path, key))
    return result


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


PLACES = [places(table) for table in TABLES]


@cache
def known_keys() -> list[str]:
    keys: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            keys.update(node.get("properties", {}))
            for item in node.values():
                walk(item)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(json_schema())
    return sorted(keys)


@st.composite
def mutated_tables(draw: Any, tables: list[dict[str, Any]] = TABLES) -> str:
    """Draw a problem file and change a few of its entries."""
    table = copy.deepcopy(draw(st.sampled_from(tables)))
    for _ in range(draw(st.integers(0, 4))):
        paths = places(table)
        if not paths:
            break
        *above, key = draw(st.sampled_from(paths))
        holder = at(table, tuple(above))
        match draw(st.integers(0, 7)):
            case 0:
                del holder[key]
            case 1 | 2 | 3:
                holder[key] = Raw(draw(st.sampled_from(LITERALS)))
            case 4:
                value = holder[key]
                if isinstance(value, int | float) and not isinstance(value, bool):
                    factor = draw(st.sampled_from([-1, 0, 0.5, 2, 10, 1e6, 1e-6, 1e300]))
                    holder[key] = type(value)(value * factor) if abs(value) < 1e9 else factor
                elif isinstance(value, list):
                    holder[key] = value + value[:1]
            case 5:
                other = draw(st.sampled_from(tables))
                inside = places(other)
                taken = draw(st.sampled_from(inside))
                holder[key] = copy.deepcopy(at(other, taken))
            case 6:
                if isinstance(holder, dict):
                    holder[draw(st.sampled_from(known_keys()))] = Raw(
                        draw(st.sampled_from(LITERALS))
                    )
            case 7:
                if isinstance(holder, dict):
                    holder[draw(st.text(max_size=6))] = holder[key]
    return document(table)


@cache
def _validator() -> Any:
    return jsonschema.Draft202012Validator(json_schema())


@st.composite
def overridden(draw: Any) -> tuple[str, tuple[str, ...]]:
    """Draw a problem file and settings that override some of its entries."""
    which = draw(st.integers(0, len(TABLES) - 1))
    settings = []
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PLACES[which]))
        key = ".".join(map(str, path))
        if draw(st.integers(0, 3)) == 0:
            key += draw(st.sampled_from([".x", "..", " ", ".", "\n", "=", "[0]", ".0", '"']))
        value = draw(st.one_of(st.sampled_from(LITERALS), st.text(max_size=5)))
        settings.append(f"{key}{draw(st.sampled_from(['=', '=', '=', ' = ', '']))}{value}")
    return TEXTS[which], tuple(settings)


def check_text(text: str, overrides: tuple[str, ...] = ()) -> str:
    """Parse a problem file. If it is accepted, check it against the schema and parse it again."""
    try:
        problem = parse_file(text, overrides, path="fuzz.toml")
    except ProblemFileError as error:
        wanted = ("fuzz.toml: ", "--set ")
        require(str(error).startswith(wanted), "the error does not name the file:", error)
        raise
    require(problem == parse_file(text, overrides, path="fuzz.toml"), "the second parse differs")
    if not overrides:
        faults = [error.message for error in _validator().iter_errors(tomllib.loads(text))]
        require(not faults, "the published schema refuses an accepted file:", faults[:1])
    if isinstance(problem, OnlineFile):  # an online market stores its problem file
        dumped = problem.model_dump_json()
        again = type(problem).model_validate_json(dumped)
        require(again.model_dump_json() == dumped, "a written file is parsed differently")
    return "accepted"


def check_bytes(data: bytes) -> str:
    """Parse bytes as the loader of problem files does."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "refused"
    return check_text(text)


TARGETS = [
    Target("problem tables", mutated_tables(), check_text),
    # 100,000 sellers of a mixture are drawn in four seconds
    Target(
        "problem overrides", overridden(), lambda pair: check_text(*pair), seconds=20.0, weight=20
    ),
]
