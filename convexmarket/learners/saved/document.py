"""What a saved model says: one document.

The document holds what the guarantee covers and what is public, and nothing else: no noise, no
seed, no diagnostics of the fit, no rows. Its checksum is over a canonical text in which an array
stands for the bytes of its float64 numbers, so that writing a number in another way, or blanks,
changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

__all__ = ["FORMAT", "MOST_ROWS", "VERSION", "Document", "SavedGuarantee", "model_schema"]

Floats: TypeAlias = NDArray[np.float64]

FORMAT: Literal["convexmarket-model"] = "convexmarket-model"
VERSION: Literal[1] = 1
#: Rows that a saved guarantee may speak of; each takes eight bytes again when it is loaded.
MOST_ROWS = 10_000_000
MOST_FEATURES = 10_000_000
#: Of coefficients and points: their products are finite.
LARGEST = 1e150
MOST_DEGREE = 1_000
_INFINITY = "Infinity"


# ------------------------------------------------------------------------------------ arrays


def _numbers(value: Any) -> Floats:
    """Return a list of numbers, or an array of float64, as an array."""
    if isinstance(value, np.ndarray):
        if value.dtype != np.float64:
            raise ValueError(f"an array of float64 was expected, not of {value.dtype}")
        return value
    if not isinstance(value, list) or any(type(item) not in (int, float) for item in value):
        raise ValueError("a list of numbers was expected")
    try:
        return np.array(value, dtype=np.float64)
    except OverflowError:
        raise ValueError("a number is too large for a float") from None


def _vector(value: Any) -> Floats:
    array = _numbers(value)
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise ValueError("a list of finite numbers was expected")
    return _not_too_large(array)


def _not_too_large(array: Floats) -> Floats:
    if np.any(np.abs(array) > LARGEST):
        raise ValueError(f"a number is larger than {LARGEST:g}, and predictions would overflow")
    return array


def _matrix(value: Any) -> Floats:
    if isinstance(value, list):
        rows = [_vector(row) for row in value]
        if len({row.size for row in rows}) > 1:
            raise ValueError("the rows have different lengths")
        value = np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 0)
    array = _numbers(value)
    if array.ndim != 2 or not np.all(np.isfinite(array)):
        raise ValueError("rows of finite numbers were expected")
    return _not_too_large(array) if array.size else np.zeros((0, 0))


def _guarantees(value: Any) -> Floats:
    if isinstance(value, list):
        value = [math.inf if item == _INFINITY else item for item in value]
    array = _numbers(value)
    if array.ndim != 1 or not np.all(array >= 0):
        raise ValueError("a list of nonnegative numbers was expected")
    return array


def _guarantee(value: Any) -> Any:
    return math.inf if value == _INFINITY else value


def _written(value: float) -> float | str:
    return value if math.isfinite(value) else _INFINITY


def _list_of_written(array: Floats) -> list[float | str]:
    return [_written(number) for number in array.tolist()]


def _array(check: Callable[[Any], Floats], items: dict[str, Any], write: Any = None) -> Any:
    """Return the type of an array that is a list in JSON."""
    write = write or (lambda array: array.tolist())
    return Annotated[
        NDArray[np.float64],
        BeforeValidator(check),
        PlainSerializer(write, when_used="json"),
        WithJsonSchema({"type": "array", "items": items}),
    ]


_NUMBER = {"type": "number"}
_EPSILON = {"anyOf": [{"type": "number", "minimum": 0}, {"const": _INFINITY}]}

# mypy does not run _array, and so sees no types in what it returns
Vector: TypeAlias = _array(_vector, _NUMBER)  # type: ignore[valid-type]
Matrix: TypeAlias = _array(_matrix, {"type": "array", "items": _NUMBER})  # type: ignore[valid-type]
Guarantees: TypeAlias = _array(_guarantees, _EPSILON, _list_of_written)  # type: ignore[valid-type]
Epsilon: TypeAlias = Annotated[
    float,
    BeforeValidator(_guarantee),
    Field(ge=0),
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema(_EPSILON),
]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Scalar: TypeAlias = bool | int | Number | str | None
#: Of an estimator; ranges are pairs of numbers, or of numbers per feature.
Parameter: TypeAlias = Scalar | list[Scalar | list[Scalar]]


# ------------------------------------------------------------------------------------- parts


class _Part(BaseModel):
    """A table of the document: nothing but what it names, of just the types it names."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True
    )


class Features(_Part):
    """The columns that a model expects."""

    count: Annotated[int, Field(ge=1, le=MOST_FEATURES)]
    names: list[str] | None

    @model_validator(mode="after")
    def _as_many_names(self) -> Features:
        if self.names is not None and len(self.names) != self.count:
            raise ValueError(f"{len(self.names)} names for {self.count} features")
        if self.names is not None and len(set(self.names)) < self.count:
            raise ValueError("two features have the same name")
        return self


class Labels(_Part):
    """The two labels, and the NumPy type that predictions have."""

    dtype: Annotated[
        str, Field(pattern=r"^(bool|u?int(8|16|32|64)|float(16|32|64)|str|object|tuple)$")
    ]
    values: Annotated[list[bool | int | Number | str], Field(min_length=2, max_length=2)]

    @model_validator(mode="after")
    def _different(self) -> Labels:
        if self.values[0] == self.values[1]:
            raise ValueError(f"both labels are {self.values[0]!r:.40}")
        return self


class LinearModel(_Part):
    """Coefficients of the features."""

    form: Literal["linear"] = "linear"
    coefficients: Vector
    intercept: Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class SavedKernel(_Part):
    """A named kernel, and the public domain of its rows."""

    name: str
    gamma: Number
    degree: Annotated[int, Field(le=MOST_DEGREE)]
    coef0: Number
    data_norm: Number | None
    stated_bound: Number | None


class KernelModel(_Part):
    """Coefficients of the kernels at public points."""

    form: Literal["kernel"] = "kernel"
    kernel: SavedKernel
    points: Matrix
    coefficients: Vector


class SavedGuarantee(_Part):
    """What was promised: of all rows, and of each where that was asked for.

    What single sellers sold is covered by no guarantee, and a price that they agreed to can be read
    from it. Therefore it is written only where the caller asks for it.
    """

    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    largest_epsilon: Epsilon
    epsilon: Guarantees | None = None
    delta: Annotated[float, Field(ge=0, le=1)]
    mechanism: str
    accounting: str
    assumptions: list[str]

    @model_validator(mode="after")
    def _of_all_rows(self) -> SavedGuarantee:
        if self.epsilon is not None:
            if self.epsilon.size != self.rows:
                raise ValueError(f"epsilon has {self.epsilon.size} numbers for {self.rows} rows")
            if float(self.epsilon.max()) != self.largest_epsilon:
                raise ValueError("largest_epsilon is not the largest number of epsilon")
        return self


class Document(_Part):
    """A released model, ready to be published."""

    format: Literal["convexmarket-model"] = FORMAT
    version: Literal[1] = VERSION
    kind: str
    parameters: dict[str, Parameter]
    features: Features
    labels: Labels | None
    model: Annotated[LinearModel | KernelModel, Field(discriminator="form")]
    guarantee: SavedGuarantee
    versions: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _printable(cls, found: Any) -> Any:
        """Refuse control characters, which a terminal would obey, in any text."""
        if any(not text.isprintable() for text in _texts(found)):
            raise ValueError("a text holds control characters, which are refused")
        return found

    @model_validator(mode="after")
    def _fits(self) -> Document:
        size = self.model.coefficients.size
        if isinstance(self.model, LinearModel):
            if size != self.features.count:
                raise ValueError(f"{size} coefficients for {self.features.count} features")
        elif self.model.points.shape != (size, self.features.count if size else 0):
            raise ValueError(
                f"points of shape {self.model.points.shape} for {size} coefficients and"
                f" {self.features.count} features"
            )
        return self

    def checksum(self) -> str:
        """Return the SHA-256 of everything that the document says, in hexadecimal digits."""
        canonical = json.dumps(
            _canonical(self.model_dump()),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=True,
            allow_nan=False,
        )
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def _texts(found: Any) -> Iterator[str]:
    """Go through all texts of a document, names of entries included."""
    waiting = [found]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, BaseModel):
            waiting.append(dict(one))
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            waiting += one


def _canonical(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        content = np.ascontiguousarray(value, dtype="<f8").tobytes()
        return {"shape": value.shape, "sha256": hashlib.sha256(content).hexdigest()}
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return _written(value) if isinstance(value, float) else value


def model_schema() -> dict[str, Any]:
    """Return the JSON Schema of saved models, which a ``.json`` file follows.

    Returns
    -------
    dict

    Examples
    --------
    >>> model_schema()["title"]
    'A released model'
    """
    schema = Document.model_json_schema(mode="serialization")
    checksum = {
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "SHA-256 of everything else, see convexmarket.learners.saved.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "A released model",
        "properties": {**schema["properties"], "sha256": checksum},
        "required": [*schema["properties"], "sha256"],
    }
