"""Base classes and types for the tables of problem files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import joblib
import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from convexmarket.checks import check_count
from convexmarket.deal import Deal
from convexmarket.errors import NotSupportedError
from convexmarket.priors import Prior, prior_from_dict
from convexmarket.report import Report, escape_markdown
from convexmarket.report.results import plain
from convexmarket.studies.runs import Runs
from convexmarket.studies.subproblems.problem_classes import Family

#: Largest numbers of characters in a text and of entries in a list of a problem file.
LONGEST_TEXT, MOST_ENTRIES = 20_000, 100_000
#: Limits of an error message: mistakes, unknown keys of each table, and characters of a mistake.
_MOST_MISTAKES, _MOST_KEYS, _LONGEST_WORDS = 50, 5, 1_000


def listed_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Raise an error if a list contains equal entries, or tables with equal names."""
    if len({getattr(value, "name", value) for value in values}) < len(values):
        raise ValueError("an entry is listed twice; list each entry once")
    return values


def _some_jobs(number: int) -> int:
    return number if number == -1 else check_count("the number of jobs, if not -1,", number)


T = TypeVar("T")
Positive = Annotated[float, Field(gt=0)]
Nonnegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Integer = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Name = Annotated[str, Field(min_length=1, max_length=60)]
Column = Annotated[str, Field(min_length=1, max_length=200)]
FileName = Annotated[str, Field(min_length=1, max_length=500)]
Words = Annotated[str, Field(max_length=5_000)]

# TOML has arrays but no tuples, so these fields also accept lists.
Several = Annotated[
    tuple[T, ...], Field(strict=False, min_length=1, max_length=200), AfterValidator(listed_once)
]
Many = Annotated[tuple[T, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)]

ARGUMENT: Any = {"type": ["number", "boolean", "string", "array"], "maxItems": 2}
ARGUMENT["maxLength"] = LONGEST_TEXT
_PRIOR = {
    "type": "object",
    "description": "Distribution of the sensitivities, given by its family and parameters.",
    "properties": {"family": {"type": "string", "maxLength": 60}},
    "required": ["family"],
    "examples": [{"family": "uniform", "low": 0.02, "high": 0.1}],
}
PriorTable = Annotated[
    Prior,
    PlainValidator(prior_from_dict),
    PlainSerializer(Prior.to_dict, when_used="json"),
    WithJsonSchema(_PRIOR),
]


def suggestion(given: str, known: Iterable[str]) -> str:
    """Suggest the known name that is closest to an unknown name, or list all known names."""
    names = list(known)
    if close := difflib.get_close_matches(given, names, n=1):
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(map(repr, names))}"


def refuse_unknown(given: Iterable[Any], known: Iterable[str]) -> None:
    """Raise a ValueError if a table contains unknown keys."""
    names = list(known)
    if unknown := [str(key) for key in given if key not in names][:_MOST_KEYS]:
        lines = (f"{key[:60]!r} is not a known key; {suggestion(key, names)}" for key in unknown)
        raise ValueError("; ".join(lines))


def put(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a value in nested tables at a key path such as ``objective.cap``."""
    *path, last = (part.strip() for part in key.split("."))
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ValueError(f"{key}: {part} is not a table, so it has no keys to set")
    table[last] = value


class Table(BaseModel):
    """Base class of tables, which are immutable and strictly typed and reject unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and cls.model_config["extra"] == "forbid":
            refuse_unknown(given, cls.model_fields)
        return given


@dataclass(frozen=True)
class Source:
    """Path and text of a problem file. ``table`` is the parsed text after all overrides."""

    path: str
    text: str
    overrides: tuple[str, ...] = ()
    table: dict[str, Any] = field(default_factory=dict)


class RunTable(Table):
    """Options for running a problem."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of all random draws."""
    jobs: Annotated[int, Field(ge=-1, le=1_024), AfterValidator(_some_jobs)] = 2
    """Number of parallel jobs, at most one per core, or -1 for all cores; no effect on results."""

    @property
    def workers(self) -> int:
        """Number of parallel processes."""
        cores = int(joblib.cpu_count())
        return min(self.jobs, cores) if self.jobs > 0 else cores

    def stream(self, *purpose: int) -> np.random.SeedSequence:
        """Return the seed sequence for the given spawn key."""
        return np.random.SeedSequence(self.seed, spawn_key=purpose)


class ProblemFile(Table):
    """Base class of problem files."""

    kind: str
    """Kind of the problem."""
    title: Annotated[str, Field(min_length=1, max_length=200)]
    """Title of the report."""
    description: Words = ""
    """Description of the experiment in a few sentences."""
    notes: Many[Words] = ()
    """Remarks to include in the report."""
    run: RunTable = RunTable()

    _source: Source | None = PrivateAttr(default=None)

    #: Whether the journal of a finished run is kept.
    keeps_journal: ClassVar[bool] = False

    @property
    def source(self) -> Source | None:
        """Path and text of the problem file, if any."""
        return self._source

    def perform(self, load: Any = None, *, journal: Any = None, progress: Any = True) -> Runs:
        """Run the problem.

        ``load`` maps the path of another file to its subproblems and is required for the kind
        "solvers". The other arguments are those of :meth:`convexmarket.Study.run`.
        """
        options = {"jobs": self.run.workers, "journal": journal, "progress": progress}
        return self._performed(load, options)

    def _performed(self, load: Any, options: dict[str, Any]) -> Runs:
        raise NotImplementedError

    def subproblems(self) -> list[Family]:
        """Return the optimisation problems of the file for a comparison of solvers."""
        raise NotSupportedError(f"kind {self.kind!r} has no subproblems; give one of kind 'market'")

    def buy(self, **options: Any) -> Deal:
        """Buy from the sellers of a user's table."""
        raise NotSupportedError("buying requires a problem file of kind 'market' with a learner")

    def report(self, runs: Runs) -> Report:
        """Return the report of runs. Its settings contain the text and the values of the file."""
        report, source = self._page(runs), self._source
        report.question = " ".join(self.description.split())
        for note in self.notes:
            report.add(escape_markdown(note), appendix=True)
        if source is not None:
            stored = {n: plain(getattr(source, n)) for n in ("path", "text", "overrides")}
            report.settings |= {"problem": plain(source.table), "problem file": stored}
        return report

    def _page(self, runs: Runs) -> Report:
        return runs.report(self.title)

    def place(self, name: str) -> Path:
        """Resolve a path that is relative to the folder of the problem file."""
        return Path(self._source.path if self._source else "").parent / name


def mistakes(table: Mapping[str, Any], error: ValidationError) -> list[str]:
    """List the mistakes in a parsed table as lines with key path, value and remedy."""
    details = error.errors()
    # If an entry has an error, the error of the list that contains the entry is omitted.
    inside = {each["loc"][:k] for each in details for k in range(1, len(each["loc"]))}
    texts = [_in_words(table, each) for each in details if each["loc"] not in inside]
    lines = (line[:_LONGEST_WORDS] for text in texts for line in text.splitlines())
    return list(dict.fromkeys(lines))[:_MOST_MISTAKES]


def _in_words(table: Mapping[str, Any], detail: Any) -> str:
    kind, context, given = detail["type"], detail.get("ctx", {}), detail["input"]
    path = _path(table, detail["loc"], kind == "missing")
    if kind == "value_error":
        return f"{path}: {context['error']}" if path else str(context["error"])
    path, expected = path or "the file", context.get("expected", "")
    if kind.startswith("union_tag"):
        path, expected = f"{path}.{context['discriminator'][1:-1]}", context.get("expected_tags")
        given = context.get("tag")
    if kind in ("missing", "union_tag_not_found"):
        return f"{path} is missing"
    if isinstance(given, str) and (known := re.findall(r"'(.*?)'", expected)):
        return f"{path} is {given!r}; {suggestion(given, known)}"
    text = re.sub(r"^\w+ should", "must", detail["msg"]).replace("valid tuple", "list")
    text = re.sub("valid dictionary.*", "table", text).partition(" after validation")[0]
    return f"{path} {text}, got {given!r:.60}"


def _path(table: Any, location: tuple[int | str, ...], missing: bool) -> str:
    """Format a key path such as ``study.sizes[1]``, without the names of models.

    If ``missing`` is true, the last key is absent from the table.
    """
    text, here = "", table
    for place, step in enumerate(location):
        is_entry = isinstance(step, int) and isinstance(here, list) and step < len(here)
        if is_entry or (isinstance(here, Mapping) and step in here):
            here = here[step]
        elif not missing or place < len(location) - 1:
            continue
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text
