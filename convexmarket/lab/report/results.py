"""The file results.json of a report: everything that came out, to be read again.

Files of one format are read; nothing that is read is run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import FloatSchema

from convexmarket.errors import DataError, NotSupportedError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.result import Result, read_bytes, result_from_json, result_to_json

__all__ = [
    "FORMAT",
    "RESULTS",
    "is_ours",
    "is_text",
    "plain",
    "read_json",
    "read_results",
    "results_schema",
    "write_results",
]

FORMAT = "convexmarket-results/2"
#: Of reports whose results are plain values, unless they name a format.
VALUES = "convexmarket-values/1"
RESULTS = "results.json"


# ------------------------------------------------------------------------------------- writing


def write_results(results: Any, folder: Path) -> None:
    """Write ``results.json`` into the folder of a report, and its long frames beside it.

    Parameters
    ----------
    results : Result or mapping
        What an experiment returned; or plain values, which are written as they are.
    folder : pathlib.Path
        With a folder ``tables``, for the frames.
    """
    if isinstance(results, Mapping):
        content = {"format": VALUES, **plain(results)}
    else:
        content = {
            "format": FORMAT,
            "kind": results.problem.kind,
            **result_to_json(results, folder),
        }
    (folder / RESULTS).write_text("".join(layout(content)) + "\n", encoding="utf-8", newline="\n")


def is_ours(folder: Path) -> bool:
    """Check whether a folder holds the ``results.json`` of a report, damaged or not."""
    file = folder / RESULTS
    if not file.is_file():
        return False
    with open(file, "rb") as content:
        return b'"format": "convexmarket-' in content.read(100)


def plain(value: Any) -> Any:
    """Turn results into what strict JSON can hold.

    Arrays and frames become lists, not-a-number becomes null, and an infinity becomes the string
    "Infinity" or "-Infinity", because JSON has no number for it.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, pd.DataFrame):
        return [plain(row) for row in value.to_dict(orient="records")]
    if isinstance(value, np.ndarray | pd.Series):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def layout(value: Any, indent: str = "") -> Iterator[str]:
    """Yield JSON text: a line for every entry of an object, and for every row of a list of rows.

    Rows stand in one line each, whatever they hold, so that files stay short and two of them can be
    compared line by line.
    """
    deeper = indent + " "
    if isinstance(value, dict) and value:
        for number, (key, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}\n{deeper}{_compact(key)}: "
            yield from layout(item, deeper)
        yield f"\n{indent}}}"
    elif isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        for number, item in enumerate(value):
            yield f"{',' if number else '['}\n{deeper}{_compact(item)}"
        yield f"\n{indent}]"
    else:
        yield _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# ------------------------------------------------------------------------------------- reading


def read_results(path: str | Path) -> Any:
    """Read the results of an experiment from its report.

    Parameters
    ----------
    path : path
        The folder of a report, or the ``results.json`` in it.

    Returns
    -------
    Result
        What :func:`convexmarket.lab.run_problem` returned when the report was written,
        exactly. Lists and tuples within free values, such as certificates, come back as lists.

    Raises
    ------
    DataError
        If there is no such file, or it is damaged, or a table was changed after it was written.
    NotSupportedError
        If the file is of another format, or holds something else than an experiment's results.

    Examples
    --------
    >>> result = read_results("out/wdbc")  # doctest: +SKIP
    >>> result.tables["curve"].groupby("model").payments.sum()  # doctest: +SKIP
    """
    file = Path(path)
    file = file / RESULTS if file.is_dir() else file
    content = read_json(file)
    if not isinstance(content, dict):
        raise DataError(f"{file} holds no results: a JSON object was expected")
    kind = content.get("kind")
    if kind == "diff":
        raise NotSupportedError(
            f"{file} is a comparison of two runs, which is not rendered again; run 'convexmarket "
            "diff' on the two"
        )
    if "format" not in content:
        raise NotSupportedError(
            f"{file} has no key 'format': it is not the result of an "
            "experiment; run the problem again"
        )
    if content["format"] != FORMAT:
        raise NotSupportedError(
            f"{file} is of the format {content['format']!r}, and {FORMAT!r} is what can be read; "
            "use the version of convexmarket that wrote it, or run the problem again"
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise NotSupportedError(
            f"{file} is of kind {kind!r}, and only the results of an experiment can be read: "
            f"{', '.join(KINDS)}"
        )
    try:
        written = {name: part for name, part in content.items() if name not in ("format", "kind")}
        return result_from_json(KINDS[kind].problem, written, file.parent)
    except DataError as error:
        raise DataError(
            f"{file}: {error}; restore the files of the report, or run the problem again"
        ) from None


def read_json(file: Path) -> Any:
    """Read a JSON file of bounded size; its mistakes become errors that name the file."""
    text = read_bytes(file)
    try:
        content = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not valid JSON ({error}); is it a report's?") from None
    if b"\\u" in text and not is_text(json.dumps(content, ensure_ascii=False)):
        raise DataError(f"{file} holds half of a character (a lone surrogate); is it a report's?")
    return content


def is_text(value: str) -> bool:
    """Say whether a string can be written as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# ----------------------------------------------------------------------------------- the schema


class _WithInfinities(GenerateJsonSchema):
    """The schema of problems as results.json holds them: some numbers may be infinite."""

    def float_schema(self, schema: FloatSchema) -> JsonSchemaValue:
        """Return the schema of a float."""
        number = super().float_schema(schema)
        if not schema.get("allow_inf_nan"):
            return number
        word = {
            "type": "object",
            "properties": {"float": {"enum": ["NaN", "Infinity", "-Infinity"]}},
        }
        return {"anyOf": [number, word | {"required": ["float"], "additionalProperties": False}]}


def results_schema() -> dict[str, Any]:
    """Return the JSON Schema that every ``results.json`` of an experiment follows."""
    problems = reduce(or_, (kind.problem for kind in KINDS.values()))
    one = Result[Annotated[problems, Field(discriminator="kind")]]  # type: ignore[valid-type]
    schema = TypeAdapter(one).json_schema(mode="serialization", schema_generator=_WithInfinities)
    tags = {"format": {"const": FORMAT}, "kind": {"enum": list(KINDS)}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": RESULTS,
        "description": "What an experiment of convexmarket returned.",
        "properties": {**tags, **schema["properties"]},
        "required": [*tags, *schema["properties"]],
    }
