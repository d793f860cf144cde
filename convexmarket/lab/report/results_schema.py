"""The JSON Schema of results.json, one for all kinds of results.

It follows from the type hints of the result classes, as reading does, and from the models of the
problem files.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import FloatSchema

from convexmarket.lab.kinds import KINDS
from convexmarket.lab.report.results import FORMAT, TABLE, result_types

__all__ = ["results_schema"]

_TYPES = {str: "string", bool: "boolean", int: "integer", NoneType: "null", dict: "object"}
_NOT_FINITE = {"$ref": "#/$defs/NotFinite"}
_FRAME_PARTS = {
    "columns": {"type": "array", "items": {"type": "string"}},
    "dtypes": {"type": "array", "items": {"type": "string"}},
}
_DEFINITIONS: dict[str, Any] = {
    "NotFinite": {
        "type": "object",
        "description": "A float that JSON has no word for.",
        "properties": {"float": {"enum": ["NaN", "Infinity", "-Infinity"]}},
        "required": ["float"],
        "additionalProperties": False,
    },
    "Rows": {
        "type": "object",
        "description": "A frame, row by row. In a column of floats, NaN is null and the infinities "
        'are "Infinity" and "-Infinity"; in a column of text, null is missing.',
        "properties": {
            **_FRAME_PARTS,
            "data": {"type": "array", "items": {"type": "array"}},
        },
        "required": ["columns", "dtypes", "data"],
        "additionalProperties": False,
    },
    "RowsElsewhere": {
        "type": "object",
        "description": "A long frame, in a file of its own, and the checksum of that.",
        "properties": {
            **_FRAME_PARTS,
            "parquet": {"type": "string", "pattern": f"^{TABLE.pattern}$"},
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        },
        "required": ["columns", "dtypes", "parquet", "sha256"],
        "additionalProperties": False,
    },
    "Frame": {"oneOf": [{"$ref": "#/$defs/Rows"}, {"$ref": "#/$defs/RowsElsewhere"}]},
}


class _WithInfinities(GenerateJsonSchema):
    """The schema of problems as results.json holds them: some numbers may be infinite."""

    def float_schema(self, schema: FloatSchema) -> JsonSchemaValue:
        """Return the schema of a float."""
        number = super().float_schema(schema)
        return {"anyOf": [number, _NOT_FINITE]} if schema.get("allow_inf_nan") else number


def results_schema() -> dict[str, Any]:
    """Return the JSON Schema that every ``results.json`` of an experiment follows.

    The key ``kind`` says which of the results' schemas holds.
    """
    problems: list[type[BaseModel]] = [kind.problem for kind in KINDS.values()]
    references, shared = models_json_schema(
        [(problem, "serialization") for problem in problems], schema_generator=_WithInfinities
    )
    by_model = {problem: references[problem, "serialization"] for problem in problems}
    types = result_types()
    results = {kind.__name__: _result(name, kind, by_model) for name, kind in types.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "results.json",
        "description": "What an experiment of convexmarket returned.",
        "oneOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in types.values()],
        "discriminator": {
            "propertyName": "kind",
            "mapping": {name: f"#/$defs/{kind.__name__}" for name, kind in types.items()},
        },
        "$defs": {**results, **_DEFINITIONS, **shared["$defs"]},
    }


def _result(name: str, kind: type[Any], problems: dict[type[BaseModel], Any]) -> dict[str, Any]:
    schema = _schema(kind, problems)
    tags = {"format": {"const": FORMAT}, "kind": {"const": name}}
    return {
        **schema,
        "properties": {**tags, **schema["properties"]},
        "required": [*tags, *schema["required"]],
    }


def _schema(hint: Any, problems: dict[type[BaseModel], Any]) -> dict[str, Any]:
    """Return the schema of what is written for a type hint."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return {"anyOf": [_schema(kind, problems) for kind in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if hint is pd.DataFrame:
        return {"$ref": "#/$defs/Frame"}
    if hint in problems:
        return dict(problems[hint])
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        names = [field.name for field in fields(hint)]
        return {
            "type": "object",
            "properties": {name: _schema(hints[name], problems) for name in names},
            "required": names,
            "additionalProperties": False,
        }
    if hint is float:
        return {"anyOf": [{"type": "number"}, _NOT_FINITE]}
    if origin is np.ndarray:
        return {"type": "array", "items": _schema(float, problems)}
    if origin in (tuple, list):
        return {"type": "array", "items": _schema(inner[0], problems)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(inner[1], problems)}
    return {} if hint is Any else {"type": _TYPES[hint]}
