"""What a run returned, whatever its kind: it becomes JSON, and comes back to the last bit.

Pydantic writes and reads it by its fields. Three things JSON has no word for:

- a frame is its columns, dtypes and rows; a long one stands in a Parquet file, whose checksum is
  kept, and so does a long list of certificates, whose cells are then JSON;
- NaN and the infinities are ``null``, ``"Infinity"`` and ``"-Infinity"`` in a float column of a
  frame, and ``{"float": "NaN"}`` and so on anywhere else, where null and text stand for themselves;
- tuples in free values come back as lists.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticSerializationError

from convexmarket.data.files import read_limited
from convexmarket.errors import DataError, ParameterError
from convexmarket.lab.claims import Claim
from convexmarket.lab.problem.base import ProblemModel
from convexmarket.lab.provenance import problem_source

__all__ = ["Result", "read_bytes", "result_from_json", "result_to_json"]

#: Frames with more cells stand in a file of their own.
MOST_CELLS = 2_000
#: Bytes; a file that is larger is not read.
LARGEST_FILE = 500_000_000

_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
_FLOATS = ("NaN", "Infinity", "-Infinity")
_DTYPES = r"^(bool|u?int(8|16|32|64)|float(32|64)|str|object)$"
#: What the cells of a column may be, by the kind of its dtype.
_CELLS: dict[str, TypeAdapter[list[Any]]] = {
    "b": TypeAdapter(list[bool]),
    "f": TypeAdapter(list[float | Literal["Infinity", "-Infinity"] | None]),
    "i": TypeAdapter(list[int]),
    "u": TypeAdapter(list[int]),
    "s": TypeAdapter(list[str | None]),
    "o": TypeAdapter(list[Any]),
}


class _Columns(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    columns: list[str]
    dtypes: list[Annotated[str, Field(pattern=_DTYPES)]]


class Rows(_Columns):
    """A frame, row by row.

    In a column of floats, NaN is null and the infinities are "Infinity" and "-Infinity"; in a
    column of text, null is missing.
    """

    data: list[list[Any]]


class RowsElsewhere(_Columns):
    """A long frame, in a file of its own, and the checksum of that."""

    parquet: Annotated[str, Field(pattern=r"^tables/[a-z0-9_-]+\.parquet$")]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


Frame = Annotated[
    Annotated[Rows, Tag("here")] | Annotated[RowsElsewhere, Tag("elsewhere")],
    Discriminator(
        lambda frame: "elsewhere" if isinstance(frame, dict) and "parquet" in frame else "here"
    ),
]
_FRAME: TypeAdapter[Rows | RowsElsewhere] = TypeAdapter(Frame)
_CERTIFICATES = TypeAdapter(list[dict[str, Any]])


# -------------------------------------------------------------------------------------- frames


def _write_frames(
    frames: Mapping[str, pd.DataFrame], info: SerializationInfo
) -> dict[str, Rows | RowsElsewhere]:
    return {name: _placed(name, frame, info.context) for name, frame in frames.items()}


def _placed(name: str, frame: pd.DataFrame, folder: Path | None) -> Rows | RowsElsewhere:
    """Return a frame, or where it is; one that would not come back exactly stands here."""
    rows = _rows(name, frame)
    if folder is None or frame.size <= MOST_CELLS:
        return rows
    place = f"tables/{re.sub('[^a-z0-9_-]', '-', name.lower())}.parquet"
    packed = BytesIO()
    try:
        # Without dictionaries and statistics, which cost more here than they save.
        frame.to_parquet(
            packed,
            index=False,
            compression="zstd",
            compression_level=19,
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,
        )
        exact = _rows(name, pd.read_parquet(packed)) == rows
    except (pa.ArrowException, ValueError, ParameterError):  # cells that are lists, for instance
        exact = False
    if not exact:
        return rows
    content = packed.getvalue()
    (folder / place).write_bytes(content)
    return RowsElsewhere(
        columns=rows.columns,
        dtypes=rows.dtypes,
        parquet=place,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _rows(name: str, frame: pd.DataFrame) -> Rows:
    """Return a frame as its columns, their dtypes and its rows; the index is left out."""
    columns = []
    for column, values in frame.items():
        if not isinstance(column, str) or not re.match(_DTYPES, str(values.dtype)):
            raise ParameterError(
                f"{name}: the column {column!r} is of dtype {values.dtype}; name it in text and "
                "make it one of bool, int64, float64, str or object"
            )
        cells = values.tolist()
        if values.dtype.kind == "f":
            cells = [None if math.isnan(cell) else _NAMES.get(cell, cell) for cell in cells]
        elif str(values.dtype) == "str":
            cells = [cell if isinstance(cell, str) else None for cell in cells]
        elif str(values.dtype) == "object":
            cells = [_plain(f"{name}.{column}", cell) for cell in cells]
        columns.append(cells)
    return Rows.model_construct(
        columns=list(frame.columns),
        dtypes=[str(dtype) for dtype in frame.dtypes],
        data=[list(row) for row in zip(*columns, strict=True)],
    )


def _read_frames(written: Any, info: ValidationInfo) -> dict[str, pd.DataFrame]:
    if not isinstance(written, dict):
        raise DataError("tables: Input should be an object")
    return {name: read_frame(name, rows, info.context) for name, rows in written.items()}


def _write_certificates(
    certificates: list[dict[str, Any]], info: SerializationInfo
) -> list[dict[str, Any]] | RowsElsewhere:
    names = dict.fromkeys(name for one in certificates for name in one)
    columns = {
        name: [json.dumps(_plain(name, one[name])) if name in one else None for one in certificates]
        for name in names
    }
    placed = _placed("certificates", pd.DataFrame(columns, dtype="str"), info.context)
    return placed if isinstance(placed, RowsElsewhere) else certificates


def _read_certificates(written: Any, info: ValidationInfo) -> list[dict[str, Any]]:
    if isinstance(written, list):
        return _CERTIFICATES.validate_python(written)
    frame = read_frame("certificates", written, info.context)
    try:
        return [
            {str(name): _restored(json.loads(cell)) for name, cell in row.items() if cell == cell}
            for row in frame.to_dict("records")
        ]
    except (ValueError, TypeError) as error:
        raise DataError(f"certificates: a cell is no JSON: {error}") from None


def read_frame(name: str, written: Any, folder: Path | None) -> pd.DataFrame:
    """Return the frame that stands here, or in the file of the folder that is named.

    Raises
    ------
    DataError
        If it is damaged, or its file was changed after it was written.
    """
    try:
        rows = _FRAME.validate_python(written)
    except ValidationError as error:
        raise DataError(f"{name}.{_first(error)}") from None
    if not len(set(rows.columns)) == len(rows.columns) == len(rows.dtypes):
        raise DataError(f"{name}: columns and dtypes do not fit each other")
    if isinstance(rows, RowsElsewhere):
        return _unpacked(name, rows, folder)
    if any(len(row) != len(rows.columns) for row in rows.data):
        raise DataError(f"{name}: a row has another number of cells than there are columns")
    cells = zip(*rows.data, strict=True) if rows.data else [()] * len(rows.columns)
    columns = zip(rows.columns, rows.dtypes, cells, strict=True) if rows.columns else ()
    return pd.DataFrame(
        {column: _column(f"{name}.{column}", dtype, values) for column, dtype, values in columns}
    )


def _column(path: str, dtype: str, cells: Any) -> pd.Series:
    try:
        cells = _CELLS[dtype[0]].validate_python(list(cells), strict=True)
        if dtype.startswith("float"):
            cells = [math.nan if cell is None else float(cell) for cell in cells]
        if dtype != "object":
            return pd.Series(cells, dtype=dtype)
    except (ValidationError, OverflowError):
        raise DataError(f"{path}: a cell is no {dtype}") from None
    values = pd.Series(index=range(len(cells)), dtype=object)
    values[:] = [_restored(cell) for cell in cells]  # which takes lists for cells
    return values


def _unpacked(name: str, rows: RowsElsewhere, folder: Path | None) -> pd.DataFrame:
    if folder is None:
        raise DataError(f"{name}: its rows are in a file of a report; read it from its folder")
    content = read_bytes(folder / rows.parquet)
    if hashlib.sha256(content).hexdigest() != rows.sha256:
        raise DataError(f"{rows.parquet} was changed after its checksum was written")
    try:
        file = pq.ParquetFile(BytesIO(content))
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        if size > LARGEST_FILE:
            raise DataError(
                f"{rows.parquet}: unpacked it has {size:,} bytes, and at most {LARGEST_FILE:,} are "
                "read"
            )
        frame = file.read().to_pandas()
    except Exception as error:  # pyarrow raises errors of a dozen types, which may quote cells
        if isinstance(error, DataError):
            raise
        raise DataError(f"{rows.parquet} cannot be read ({type(error).__name__})") from None
    if list(frame.columns) != rows.columns or [str(kind) for kind in frame.dtypes] != rows.dtypes:
        raise DataError(f"{rows.parquet} has other columns than {name}, or of other dtypes")
    return frame


def read_bytes(file: Path) -> bytes:
    """Read a whole file, unless it is larger than any report's."""
    try:
        return read_limited(file, LARGEST_FILE)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; give the folder of a report") from None


# ------------------------------------------------------------------------------------- results

Problem = TypeVar("Problem", bound=ProblemModel)
Frames = Annotated[
    dict[str, pd.DataFrame],
    PlainValidator(_read_frames, json_schema_input_type=dict[str, Rows | RowsElsewhere]),
    PlainSerializer(_write_frames, return_type=dict[str, Rows | RowsElsewhere]),
]


Certificates = Annotated[
    list[dict[str, Any]],
    PlainValidator(_read_certificates, json_schema_input_type=list[dict[str, Any]] | RowsElsewhere),
    PlainSerializer(_write_certificates, return_type=list[dict[str, Any]] | RowsElsewhere),
]


@dataclass(frozen=True, eq=False)
class Result(Generic[Problem]):
    """What a run returned.

    Attributes
    ----------
    problem : Problem
    tables : dict of str to DataFrame
        Tidy frames, which the kind's ``run`` describes.
    numbers : dict of str to object
        What is no frame: numbers, text, and mappings and lists of them.
    claims : tuple of Claim
        Of the papers, with their verdicts.
    certificates : list of dict
    caveats : tuple of str
        What the numbers do not show.
    timings : dict of str to float
        Seconds of each stage.
    provenance : dict
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    problem: Problem
    tables: Frames
    numbers: dict[str, Any] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    certificates: Certificates = field(default_factory=list)
    caveats: tuple[str, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)


def result_to_json(result: Result[Any], folder: Path | None = None) -> dict[str, Any]:
    """Return a result as what strict JSON can hold.

    Parameters
    ----------
    result : Result
    folder : pathlib.Path, optional
        With a folder ``tables``, for long frames.

    Raises
    ------
    ParameterError
        If something in it would not come back.
    """
    try:
        written = _of(type(result.problem)).dump_python(result, context=folder)
    except PydanticSerializationError as error:
        raise error.__cause__ or error from None
    return {
        name: value if name == "tables" else _plain(name, value) for name, value in written.items()
    }


def result_from_json(
    problem: type[ProblemModel], written: Any, folder: Path | None = None
) -> Result[Any]:
    """Return the result that :func:`result_to_json` wrote, of this class of problem.

    Raises
    ------
    DataError
        If something is missing, unknown or damaged.
    """
    try:  # as text, because only JSON has lists for tuples
        result = _of(problem).validate_json(json.dumps(_restored(written)), context=folder)
    except ValidationError as error:
        raise DataError(_first(error)) from None
    if (described := result.provenance.get("problem_file")) is not None:
        result.problem._source = problem_source(described)
    return result


def _of(problem: type[ProblemModel]) -> TypeAdapter[Any]:
    return TypeAdapter(Result[problem])  # type: ignore[valid-type]


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":  # a DataError of our own
        return str(first["ctx"]["error"])
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _plain(path: str, value: Any) -> Any:
    """Return a value as strict JSON can hold it."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": _NAMES.get(value, "NaN")}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ParameterError(f"{path} has keys that are not text; write them as text")
        return {key: _plain(f"{path}.{key}", item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{path}[{place}]", item) for place, item in enumerate(value)]
    raise ParameterError(
        f"{path} is a {type(value).__name__}, which does not come back from JSON; make it a "
        "number, text, list or mapping"
    )


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and value.get("float") in _FLOATS:
            return float(value["float"])
        return {key: _restored(item) for key, item in value.items()}
    return [_restored(item) for item in value] if isinstance(value, list) else value
