"""What every problem file is made of: types, tables that forbid unknown keys, a source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import joblib
import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    WithJsonSchema,
    field_validator,
)

from convexmarket.lab.problem.meanings import meaning
from convexmarket.priors import Prior, prior_from_dict

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


__all__ = [
    "EtaRange",
    "Nonnegative",
    "Nonnegatives",
    "Positive",
    "Positives",
    "PriorTable",
    "ProblemModel",
    "ProblemSource",
    "RunTable",
    "Seed",
    "Share",
    "SolverName",
    "TableModel",
    "low_under_high",
    "without_repeats",
]


Positive = Annotated[float, Field(gt=0)]
Nonnegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
SolverName = Annotated[str, Field(min_length=1, max_length=60)]
# TOML has arrays and no tuples, so these fields alone are not strict about their container.
Positives = Annotated[tuple[Positive, ...], Field(strict=False, min_length=1, max_length=100)]
Nonnegatives = Annotated[tuple[Nonnegative, ...], Field(strict=False, min_length=1, max_length=100)]

PriorTable = Annotated[
    Prior,
    PlainValidator(prior_from_dict),
    PlainSerializer(lambda prior: prior.to_dict()),
    WithJsonSchema(
        {
            "type": "object",
            "description": "Distribution of the sensitivities: its family and its parameters.",
            "properties": {"family": {"type": "string", "maxLength": 60}},
            "required": ["family"],
            "examples": [{"family": "uniform", "low": 0.02, "high": 0.1}],
        }
    ),
]


def low_below_high(eta_range: tuple[float, float]) -> tuple[float, float]:
    if eta_range[0] > eta_range[1]:
        raise ValueError("the range is empty; give [low, high] with low <= high")
    return eta_range


def low_under_high(target_range: tuple[float, float]) -> tuple[float, float]:
    """Refuse a range without width."""
    if target_range[0] >= target_range[1]:
        raise ValueError("the range has no width; give [low, high] with low < high")
    return target_range


def without_repeats(values: tuple[float, ...]) -> tuple[float, ...]:
    """Refuse a value that is listed twice."""
    if len(set(values)) < len(values):
        raise ValueError("a value is listed twice; list each once")
    return values


EtaRange = Annotated[tuple[Positive, Positive], Field(strict=False), AfterValidator(low_below_high)]


class TableModel(BaseModel):
    """A table of a problem file: immutable, exactly typed, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",  # p = inf is not null
    )

    #: The table that says what the entries of this one may hold, where they are only parts of it.
    completed_as: ClassVar[type[TableModel] | None] = None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        for key, described in handler.resolve_ref_schema(schema).get("properties", {}).items():
            if "description" not in described and (words := meaning(cls.__name__, key)):
                described["description"] = words
        return schema


@dataclass(frozen=True)
class ProblemSource:
    """Where a problem came from, for its provenance.

    Attributes
    ----------
    path : str
        The file, as it was named.
    text : str
        What it held.
    overrides : tuple of str
        The ``key=value`` settings that replaced parts of it.
    """

    path: str
    text: str
    overrides: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class RunTable(TableModel):
    """How to run: the seed of every draw, and the number of parallel jobs (-1: all cores).

    There are never more jobs than cores, whatever a file asks for; results do not depend on it.
    """

    seed: Seed = 0
    jobs: Annotated[int, Field(ge=-1, le=1_024)] = 2

    @property
    def workers(self) -> int:
        """How many processes work at a time: as many as asked for, and at most one per core."""
        cores = int(joblib.cpu_count())
        return cores if self.jobs == -1 else min(self.jobs, cores)

    def stream(self, *purpose: int) -> np.random.SeedSequence:
        """Return the seed's branch for one purpose: what else is drawn does not change it."""
        return np.random.SeedSequence(self.seed, spawn_key=purpose)

    @field_validator("jobs")
    @classmethod
    def _some_job(cls, jobs: int) -> int:
        if jobs == 0:
            raise ValueError("no job would do the work; give a number >= 1, or -1 for all cores")
        return jobs


Words = Annotated[str, Field(max_length=5_000)]


class ProblemModel(TableModel):
    """What every problem file says, whatever its kind."""

    kind: str
    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: Words = ""
    notes: Annotated[tuple[Words, ...], Field(strict=False, max_length=100)] = ()

    _source: ProblemSource | None = PrivateAttr(default=None)

    if TYPE_CHECKING:  # every kind has one, the last of its tables
        run: RunTable

    @property
    def source(self) -> ProblemSource | None:
        """The file that the problem was loaded from, if any."""
        return self._source

    def place(self, name: str) -> Path:
        """Return the path of a file that the problem names, relative to the problem file."""
        folder = Path(self.source.path).parent if self.source else Path()
        return folder / name
