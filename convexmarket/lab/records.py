"""Results as JSON and back: one rule for every kind of result.

A result is a frozen dataclass of frames, numbers and words. Its type hints say how to read back
what was written, so a new kind of result needs no code here. The way there and back is exact:
floats to the last bit, dtypes, what is missing, and the order of everything.

JSON has no word for NaN and the infinities. In a float column of a frame they are ``null``,
``"Infinity"`` and ``"-Infinity"``; anywhere else they are ``{"float": "NaN"}`` and so on, because
``null`` and the strings may stand for themselves there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from pydantic import BaseModel, ValidationError

from convexmarket.errors import DataError, ParameterError
from convexmarket.lab.provenance import problem_source

__all__ = ["frame_from_json", "frame_to_json", "result_from_json", "result_to_json"]

_DTYPES = re.compile(r"bool|u?int(8|16|32|64)|float(32|64)|str|object")
_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
_FLOATS = ("NaN", "Infinity", "-Infinity")


# ------------------------------------------------------------------------------------- writing


def frame_to_json(name: str, frame: pd.DataFrame) -> dict[str, Any]:
    """Return a frame as its columns, their dtypes and its rows; the index is left out.

    Parameters
    ----------
    name : str
        Of the field, for the error.
    frame : DataFrame
        Its columns hold bools, integers, floats, text, or objects that are plain values.

    Raises
    ------
    ParameterError
        If a column is of another dtype, or its name is not text.
    """
    columns = []
    for column, values in frame.items():
        if not isinstance(column, str) or not _DTYPES.fullmatch(str(values.dtype)):
            raise ParameterError(
                f"{name}: the column {column!r} is of dtype {values.dtype}; name it in text and "
                "make it one of bool, int64, float64, str or object"
            )
        columns.append(_cells(f"{name}.{column}", values))
    return {
        "columns": list(frame.columns),
        "dtypes": [str(dtype) for dtype in frame.dtypes],
        "data": [list(row) for row in zip(*columns, strict=True)],
    }


def _cells(path: str, values: pd.Series) -> list[Any]:
    cells = values.tolist()
    if values.dtype.kind == "f":
        return [None if math.isnan(cell) else _NAMES.get(cell, cell) for cell in cells]
    if str(values.dtype) == "str":
        return [cell if isinstance(cell, str) else None for cell in cells]
    return [_to_json(path, cell, frame_to_json) for cell in cells]


def result_to_json(
    result: Any, frame_to_json: Callable[[str, pd.DataFrame], dict[str, Any]] = frame_to_json
) -> dict[str, Any]:
    """Return every field of a result as what strict JSON can hold.

    Parameters
    ----------
    result : dataclass instance
        What an experiment returned.
    frame_to_json : callable
        Given the name of a field and its frame, returns what stands in its place.

    Returns
    -------
    dict
        By field, in the order of the class.

    Raises
    ------
    ParameterError
        If a field holds what cannot be written such that it comes back.
    """
    return {
        field.name: _to_json(field.name, getattr(result, field.name), frame_to_json)
        for field in fields(result)
    }


def _to_json(path: str, value: Any, frames: Callable[[str, pd.DataFrame], dict[str, Any]]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {"float": _NAMES.get(value, "NaN")}
    if isinstance(value, pd.DataFrame):
        return frames(path, value)
    if isinstance(value, BaseModel):
        return _to_json(path, value.model_dump(mode="json"), frames)
    if is_dataclass(value):
        return {
            field.name: _to_json(f"{path}.{field.name}", getattr(value, field.name), frames)
            for field in fields(value)
        }
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ParameterError(f"{path} has keys that are not text; write them as text")
        return {key: _to_json(f"{path}.{key}", item, frames) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_to_json(f"{path}[{place}]", item, frames) for place, item in enumerate(value)]
    raise ParameterError(
        f"{path} is a {type(value).__name__}, which does not come back from JSON; make it a "
        "number, text, list, mapping, frame or dataclass"
    )


# ------------------------------------------------------------------------------------- reading


def frame_from_json(name: str, written: Mapping[str, Any]) -> pd.DataFrame:
    """Return the frame that :func:`frame_to_json` wrote.

    Raises
    ------
    DataError
        If something does not fit its dtype, or is missing.
    """
    columns, dtypes = columns_of(name, written)
    rows = written.get("data")
    if not isinstance(rows, list) or any(
        not isinstance(row, list) or len(row) != len(columns) for row in rows
    ):
        raise DataError(f"{name}: a row has another number of cells than there are columns")
    if not columns:
        return pd.DataFrame()
    cells: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return pd.DataFrame(
        {
            column: _column(f"{name}.{column}", dtype, values)
            for column, dtype, values in zip(columns, dtypes, cells, strict=True)
        }
    )


def columns_of(name: str, written: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the columns of a written frame and their dtypes.

    Raises
    ------
    DataError
        If they are missing, do not fit each other, or a dtype is none that is written.
    """
    columns, dtypes = written.get("columns"), written.get("dtypes")
    if (
        not isinstance(columns, list)
        or not isinstance(dtypes, list)
        or not len({str(column) for column in columns}) == len(columns) == len(dtypes)
        or not all(isinstance(column, str) for column in columns)
        or not all(isinstance(dtype, str) and _DTYPES.fullmatch(dtype) for dtype in dtypes)
    ):
        raise DataError(f"{name}: columns and dtypes are missing, or do not fit each other")
    return columns, dtypes


def _column(path: str, dtype: str, cells: Sequence[Any]) -> pd.Series:
    if dtype == "object":
        values = pd.Series(index=range(len(cells)), dtype=object)
        values[:] = [_restored(cell) for cell in cells]
        return values
    if dtype.startswith("float"):
        for cell in cells:
            if cell not in (None, *_FLOATS[1:]):
                _check(path, cell, float)
        return pd.Series([math.nan if cell is None else float(cell) for cell in cells], dtype=dtype)
    kind = {"bool": bool, "str": str}.get(dtype, int)
    for cell in cells:
        if not (cell is None and kind is str):
            _check(path, cell, kind)
    try:
        return pd.Series(list(cells), dtype=dtype)
    except OverflowError:
        raise DataError(f"{path}: a number is too large for {dtype}") from None


def result_from_json(
    kind: type[Any],
    written: Mapping[str, Any],
    frame_from_json: Callable[[str, Mapping[str, Any]], pd.DataFrame] = frame_from_json,
) -> Any:
    """Return the result that :func:`result_to_json` wrote.

    Parameters
    ----------
    kind : type
        The class of the result.
    written : mapping
        Its fields.
    frame_from_json : callable
        Given the name of a field and what was written in its place, returns the frame.

    Raises
    ------
    DataError
        If a field is missing, unknown, or holds something else than its type hint says.
    """
    result = _dataclass("", kind, written, frame_from_json)
    described = result.provenance.get("problem_file")
    if described is not None:
        result.problem._source = problem_source(described)
    return result


def _dataclass(path: str, kind: type[Any], written: Any, frames: Callable[..., Any]) -> Any:
    _check(path or "the results", written, dict)
    known = get_type_hints(kind)
    hints = {field.name: known[field.name] for field in fields(kind)}
    for wrong, verb in ((hints.keys() - written, "missing"), (written.keys() - hints, "unknown")):
        if wrong:
            names = ", ".join(repr(f"{path}.{name}".strip(".")) for name in sorted(wrong))
            raise DataError(f"{names}: {verb} in the results of this version of convexmarket")
    return kind(
        **{
            name: _from_json(f"{path}.{name}".strip("."), hint, written[name], frames)
            for name, hint in hints.items()
        }
    )


def _from_json(path: str, hint: Any, written: Any, frames: Callable[..., Any]) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        if written is None and NoneType in inner:
            return None
        hint = next(kind for kind in inner if kind is not NoneType)
        return _from_json(path, hint, written, frames)
    if hint is pd.DataFrame:
        _check(path, written, dict)
        return frames(path, written)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return _model(path, hint, written)
    if is_dataclass(hint):
        return _dataclass(path, hint, written, frames)  # type: ignore[arg-type]
    if origin in (tuple, list):
        _check(path, written, list)
        entries = [
            _from_json(f"{path}[{place}]", inner[0], item, frames)
            for place, item in enumerate(written)
        ]
        return tuple(entries) if origin is tuple else entries
    if origin is dict:
        _check(path, written, dict)
        return {
            key: _from_json(f"{path}.{key}", inner[1], item, frames)
            for key, item in written.items()
        }
    value = _restored(written)
    if origin is np.ndarray:
        _check(path, value, list)
        return np.array([_check(path, number, float) for number in value])
    if origin is Literal:
        if value not in inner:
            raise DataError(f"{path} is {value!r}, which is none of {', '.join(map(repr, inner))}")
        return value
    return value if hint is Any else _check(path, value, hint)


def _model(path: str, kind: type[BaseModel], written: Any) -> BaseModel:
    """Validate a table of a problem; by way of text, because only JSON has lists for tuples."""
    try:
        return kind.model_validate_json(json.dumps(_restored(written)))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([path, *map(str, first["loc"])])
        raise DataError(f"{where}: {first['msg']}") from None


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and value.get("float") in _FLOATS:
            return float(value["float"])
        return {key: _restored(item) for key, item in value.items()}
    return [_restored(item) for item in value] if isinstance(value, list) else value


def _check(path: str, value: Any, kind: type[Any]) -> Any:
    """Return a value if it is of this type; a bool is no number, and an integer is a float."""
    if kind is float and type(value) is int and abs(value) < 2**1023:
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise DataError(f"{path} is {repr(value)[:60]}, which is no {kind.__name__}")
    return value
