"""Tables of problem files: immutable, exactly typed, described by their docstrings."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    model_validator,
)

from convexmarket.errors import NotSupportedError
from convexmarket.priors import Prior, prior_from_dict

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from pydantic_core import CoreSchema

    from convexmarket.deal import Deal
    from convexmarket.report import Report
    from convexmarket.studies.progress import Progress
    from convexmarket.studies.runs import Runs
    from convexmarket.studies.subproblems.families import Family

__all__ = [
    "LONGEST_TEXT",
    "MOST_ENTRIES",
    "Column",
    "Count",
    "FileName",
    "Name",
    "Nonnegative",
    "Positive",
    "Positives",
    "PriorTable",
    "ProblemFile",
    "Range",
    "RunTable",
    "Seed",
    "Share",
    "Source",
    "Table",
    "WideRange",
    "listed_once",
    "suggestion",
]

#: Characters of a text, and entries of a list, in a problem file.
LONGEST_TEXT, MOST_ENTRIES = 20_000, 100_000

Positive = Annotated[float, Field(gt=0)]
Nonnegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(min_length=1, max_length=60)]
Column = Annotated[str, Field(min_length=1, max_length=200)]
FileName = Annotated[str, Field(min_length=1, max_length=500)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Words = Annotated[str, Field(max_length=5_000)]

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


#: Unknown keys of a table that an error names.
_MOST_KEYS = 5


def listed_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse an entry that is listed twice."""
    if len(set(values)) < len(values):
        raise ValueError("an entry is listed twice; list each once")
    return values


def suggestion(given: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the closest known one, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(given, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(map(repr, names))}"


def _ordered(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("the range is empty; give [low, high] with low <= high")
    return ends


def _wide(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] >= ends[1]:
        raise ValueError("the range has no width; give [low, high] with low < high")
    return ends


# TOML has arrays and no tuples, so these fields are not strict about their container.
Positives = Annotated[
    tuple[Positive, ...],
    Field(strict=False, min_length=1, max_length=100),
    AfterValidator(listed_once),
]
Range = Annotated[tuple[Positive, Positive], Field(strict=False), AfterValidator(_ordered)]
WideRange = Annotated[tuple[float, float], Field(strict=False), AfterValidator(_wide)]


class Table(BaseModel):
    """A table of a problem file: immutable, exactly typed, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",  # p = inf is not null
    )

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, given: Any) -> Any:
        unknown = (
            [key for key in given if key not in cls.model_fields]
            if isinstance(given, Mapping)
            else []
        )
        if unknown:
            words = [
                f"{str(key)[:60]!r} is not a known key; {suggestion(str(key), cls.model_fields)}"
                for key in unknown[:_MOST_KEYS]
            ]
            more = len(unknown) - _MOST_KEYS
            raise ValueError("; ".join(words) + (f"; {more} more unknown keys" if more > 0 else ""))
        return given

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        described = handler.resolve_ref_schema(schema)
        meanings = _meanings(cls)
        described["description"] = inspect.getdoc(cls).partition("\n\n")[0].replace("\n", " ")  # type: ignore[union-attr]
        for key, entry in described.get("properties", {}).items():
            if key in meanings:
                entry["description"] = meanings[key]
        return schema


def _meanings(cls: type[Table]) -> dict[str, str]:
    """Return the descriptions of fields in the section Attributes of a docstring, and its bases."""
    meanings: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        _, _, section = (inspect.cleandoc(each.__doc__ or "")).partition("Attributes\n----------\n")
        for names, _, text in re.findall(
            r"^([\w, ]+) : (.*)\n((?:    .*\n?)+)", section + "\n", flags=re.M
        ):
            for name in names.split(", "):
                meanings[name] = " ".join(text.split())
    return meanings


@dataclass(frozen=True)
class Source:
    """The file of a problem.

    Attributes
    ----------
    path, text : str
    overrides : tuple of str
        The ``key=value`` settings that replaced parts of it.
    table : dict
        The parsed text, with the overrides.
    """

    path: str
    text: str
    overrides: tuple[str, ...] = ()
    table: dict[str, Any] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def _some_job(jobs: int) -> int:
    if jobs == 0:
        raise ValueError("0 jobs cannot run; give a number >= 1, or -1 for all cores")
    return jobs


class RunTable(Table):
    """How a problem is run.

    Attributes
    ----------
    seed : int
        Seed of every draw.
    jobs : int
        Parallel jobs, at most one per core; -1 for all cores. Results do not depend on it.
    """

    seed: Seed = 0
    jobs: Annotated[int, Field(ge=-1, le=1_024), AfterValidator(_some_job)] = 2

    @property
    def workers(self) -> int:
        """Processes that work at a time."""
        cores = int(joblib.cpu_count())
        return cores if self.jobs == -1 else min(max(self.jobs, 1), cores)

    def stream(self, *purpose: int) -> np.random.SeedSequence:
        """Return the branch of the seed for a purpose."""
        return np.random.SeedSequence(self.seed, spawn_key=purpose)


class ProblemFile(Table):
    """What every problem file states.

    Attributes
    ----------
    kind : str
        What the file describes.
    title : str
        Title of the report.
    description : str
        The experiment in a few sentences.
    notes : list of str
        Remarks that the report repeats.
    """

    kind: str
    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: Words = ""
    notes: Annotated[tuple[Words, ...], Field(strict=False, max_length=100)] = ()

    _source: Source | None = PrivateAttr(default=None)

    if TYPE_CHECKING:  # every kind has one
        run: RunTable

    #: Whether the journal of a finished run is kept.
    keeps_journal: ClassVar[bool] = False

    @classmethod
    def completed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Return the parsed table with the entries that other entries imply."""
        return table

    @property
    def source(self) -> Source | None:
        """The file that the problem was loaded from, if any."""
        return self._source

    def perform(
        self,
        load: Callable[[Path], Any],
        *,
        journal: str | PathLike[str] | None = None,
        progress: bool | Progress = True,
    ) -> Runs:
        """Run the problem.

        Parameters
        ----------
        load : callable
            From the path of another file to its subproblems; kind "solvers" alone needs it.
        journal : path, optional
            File that records what is finished; the same call resumes from it.
        progress : bool or callable
            As of :meth:`convexmarket.Study.run`.

        Returns
        -------
        Runs
        """
        raise NotImplementedError

    def subproblems(self) -> list[Family]:
        """Return the optimisation problems of the file, for a comparison of solvers."""
        raise NotSupportedError(
            f"a file of kind {self.kind!r} has no subproblems; give one of kind 'market'"
        )

    def buy(self, **options: Any) -> tuple[Deal, Any]:
        """Buy from the sellers of a user's table."""
        raise NotSupportedError(
            "nothing is bought from this file; give one of kind 'market' with a learner"
        )

    def report(self, runs: Runs) -> Report:
        """Return the report of runs."""
        return runs.report(self.title)

    def place(self, name: str) -> Path:
        """Return the path of a file that the problem names, relative to the problem file."""
        folder = Path(self._source.path).parent if self._source else Path()
        return folder / name
