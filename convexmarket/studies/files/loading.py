"""Reading and validation of problem files."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Union

from pydantic import TypeAdapter, ValidationError

from convexmarket.data.files import read_limited
from convexmarket.errors import ProblemFileError
from convexmarket.studies.files.file_tables import ProblemFile, Source, mistakes, put, suggestion
from convexmarket.studies.files.learning import ClassifierFile, RidgeFile
from convexmarket.studies.files.market_file import VariantsFile
from convexmarket.studies.files.online_file import OnlineFile
from convexmarket.studies.files.solvers import SolversFile
from convexmarket.studies.solver_study import Problem
from convexmarket.studies.subproblems.problem_classes import CLASSES

#: Models of problem files by kind, except the models of markets with a learner.
KINDS: Any = {"market": VariantsFile, "online": OnlineFile, "solvers": SolversFile}
#: Placeholder for an undeclared value in the drafts of ``convexmarket init``.
UNDECLARED = "?"
#: Largest size of a problem file in bytes, and largest number of dots in a line of the file.
_LARGEST_FILE, _MOST_DOTS = 1_000_000, 10_000


def load_file(path: str | Path, overrides: Iterable[str] = ()) -> ProblemFile:
    """Read and validate a problem file.

    Parameters
    ----------
    path : path of a TOML file
    overrides : iterable of str
        Key paths and their TOML values, such as ``"study.sizes=[100]"``.

    Raises
    ------
    ProblemFileError
        If the file cannot be read or contains mistakes. The message has one line per mistake.
    """
    try:
        text = read_limited(path, _LARGEST_FILE).decode("utf-8")
    except OSError as error:
        raise ProblemFileError(f"{path}: {error.strerror}; give a problem file") from None
    except UnicodeDecodeError as error:
        raise ProblemFileError(f"{path}: {error}; a TOML file is UTF-8 text") from None
    return parse_file(text, overrides, path=str(path))


def parse_file(text: str, overrides: Iterable[str] = (), path: str = "<text>") -> ProblemFile:
    """Validate the text of a problem file; see :func:`load_file`.

    Examples
    --------
    >>> parse_file('kind = "solver"')
    Traceback (most recent call last):
    ...
    convexmarket.errors.ProblemFileError: <text>: kind is 'solver'; did you mean 'solvers'?
    """
    overrides = tuple(overrides)
    try:
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            raise ValueError(f"a line has more than {_MOST_DOTS} dots")
        table = tomllib.loads(text)
        for override in overrides:
            _override(table, override)
        kind, learner = str(table.get("kind", "")), table.get("learner")
        model = KINDS.get(kind)
        if kind == "market" and learner is not None:
            is_ridge = isinstance(learner, dict) and learner.get("name") == "PersonalizedRidge"
            model = RidgeFile if is_ridge else ClassifierFile
        if model is None:
            what = f"is {table['kind']!r:.60}" if "kind" in table else "is missing"
            wrong = [f"kind {what}; {suggestion(kind, KINDS)}"]
        elif undeclared := list(_undeclared(table)):
            remedy = f"is {UNDECLARED!r}; replace it as the comments in the file explain"
            wrong = [f"the value of {', '.join(undeclared)} {remedy}"]
        else:
            problem: ProblemFile = model.model_validate(table)
            problem._source = Source(path, text, overrides, table)
            return problem
    except ProblemFileError:
        raise
    except ValidationError as error:
        wrong = mistakes(table, error)
    except RecursionError:
        wrong = ["the lists and tables of the file are nested too deeply"]
    except ValueError as error:
        wrong = [f"not valid TOML: {error}"]
    raise ProblemFileError("\n".join(f"{path}: {line}" for line in wrong))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of problem files."""
    models: Any = Union[VariantsFile, ClassifierFile, RidgeFile, OnlineFile, SolversFile]  # noqa: UP007
    schema = TypeAdapter[Any](models).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def subproblems_of(path: str | Path) -> Problem:
    """Return the subproblems of a problem file for a comparison of solvers."""
    if not Path(path).exists():
        known = suggestion(Path(path).name, CLASSES)
        raise ProblemFileError(f"{path} is neither a file nor a problem class; {known}")
    problem: Any = load_file(path)
    digest = hashlib.sha256(problem.source.text.encode()).hexdigest()
    return Problem(problem.subproblems(), digest)


def _undeclared(table: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of every undeclared key in a draft of ``convexmarket init``."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _undeclared(value, f"{path}{key}.")
        elif value == UNDECLARED:
            yield f"{path}{key}"


def _override(table: dict[str, Any], setting: str) -> None:
    key, _, value = setting.partition("=")
    try:
        parsed = tomllib.loads(f"value = {value}")
        if parsed.keys() != {"value"} or not all(part.strip() for part in key.split(".")):
            raise ValueError("two values, or no key")
    except (ValueError, RecursionError):
        raise ProblemFileError(
            f"--set {key}: {value.strip()!r:.60} is not a TOML value; write KEY=VALUE, numbers as "
            "0.01, lists as [0.001,0.01], and text in double quotes: --set "
            f"'{key}=\"{value.strip()[:60]}\"'"
        ) from None
    try:
        put(table, key, parsed["value"])
    except ValueError as error:
        raise ProblemFileError(f"--set {error}") from None
