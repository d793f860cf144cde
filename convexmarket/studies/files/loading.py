"""Reading problem files: syntax, overrides, and errors that name key, value and remedy."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from convexmarket.data.files import read_limited
from convexmarket.errors import ProblemFileError
from convexmarket.studies.files.base import ProblemFile, Source, suggestion
from convexmarket.studies.files.learning import ClassifierFile, RidgeFile, model_of_market
from convexmarket.studies.files.market import VariantsFile
from convexmarket.studies.files.online import OnlineFile
from convexmarket.studies.files.solvers import SolversFile
from convexmarket.studies.solvers import Problem

__all__ = [
    "KINDS",
    "UNDECLARED",
    "json_schema",
    "kind_of",
    "load_file",
    "parse_file",
    "read_text",
    "subproblems_of",
]

#: From the table of a problem file to its model, by kind.
KINDS: dict[str, Callable[[Mapping[str, Any]], type[ProblemFile]]] = {
    "market": model_of_market,
    "online": lambda _table: OnlineFile,
    "solvers": lambda _table: SolversFile,
}
_MODELS = (VariantsFile, ClassifierFile, RidgeFile, OnlineFile, SolversFile)

#: The text of a value that ``convexmarket init`` leaves to the user.
UNDECLARED = "?"
#: How such a value is declared, by its last keys.
_DECLARE = {
    ("data", "features"): 'give the range of a number, [low, high], or categories, ["no", "yes"]',
    ("data", "classes"): 'give the two labels, negative and positive: ["no", "yes"]',
    ("data", "public"): "give the shares of the rows whose owners agreed that they are public",
    ("data", "label"): "give the column that is predicted",
    ("learner", "target_range"): "give the range of the label, [low, high]",
    ("prior",): "give the distribution of the reports, which is common knowledge",
}

#: Bytes of the largest problem file, and dots in a line: the parser needs the square of the latter.
_LARGEST_FILE, _MOST_DOTS = 1_000_000, 10_000
#: Mistakes that an error lists.
_MOST_MISTAKES = 50
#: TOML's words for pydantic's.
_EXPECTED = {
    "tuple_type": "be a list",
    "too_short": "have more entries",
    "too_long": "have fewer entries",
    "model_type": "be a table",
    "model_attributes_type": "be a table",
}


def load_file(path: str | Path, overrides: Iterable[str] = ()) -> ProblemFile:
    """Read and validate a problem file.

    Parameters
    ----------
    path : path of a TOML file
    overrides : iterable of str
        Such as ``"study.sizes=[100]"``: a key path and a TOML value.

    Returns
    -------
    ProblemFile

    Raises
    ------
    ProblemFileError
        If the file cannot be read, is not TOML, or has mistakes: one line for each, with the file,
        the key, the value and the remedy.
    """
    return parse_file(read_text(path), overrides, path=str(path))


def read_text(path: str | Path) -> str:
    """Read a problem file as text.

    Raises
    ------
    ProblemFileError
        If it cannot be read or is not UTF-8 text.
    """
    try:
        return read_limited(path, _LARGEST_FILE).decode("utf-8")
    except OSError as error:
        raise ProblemFileError(f"{path}: {error.strerror}; give a problem file") from None
    except UnicodeDecodeError as error:
        raise ProblemFileError(f"{path}: {error}; a TOML file is UTF-8 text") from None


def kind_of(path: str | Path) -> str:
    """Return the kind that a problem file names; empty if it names none."""
    try:
        return str(_parsed(read_text(path)).get("kind", ""))
    except ValueError as error:
        raise ProblemFileError(f"{path}: not valid TOML: {error}") from None


def parse_file(text: str, overrides: Iterable[str] = (), path: str = "<text>") -> ProblemFile:
    """Validate the text of a problem file; see :func:`load_file`.

    Examples
    --------
    >>> parse_file('kind = "solver"')
    Traceback (most recent call last):
    ...
    convexmarket.errors.ProblemFileError: <text>: kind is 'solver'; did you mean 'solvers'?
    """
    try:
        table = _parsed(text)
    except ValueError as error:
        raise ProblemFileError(f"{path}: not valid TOML: {error}") from None
    overrides = tuple(overrides)
    for override in overrides:
        _override(table, override)
    if "kind" not in table:
        raise ProblemFileError(f"{path}: kind is missing; {suggestion('', KINDS)}")
    if str(table["kind"]) not in KINDS:
        advice = suggestion(str(table["kind"]), KINDS)
        raise ProblemFileError(f"{path}: kind is {_short(table['kind'])}; {advice}")
    source = Source(path, text, overrides, table)
    try:
        if undeclared := list(_undeclared(table)):
            raise ProblemFileError("\n".join(f"{path}: {words}" for words in undeclared))
        model = KINDS[str(table["kind"])](table)
        table = model.completed(table)
        problem = model.model_validate(table)
    except ValidationError as error:
        details = error.errors()
        # An error of a list or table that only repeats that an entry is wrong is left out, and
        # errors of the market in a file that its variants repeat.
        places = {each["loc"] for each in details}
        inside = {place[:k] for place in places for k in range(len(place))}
        inside |= {place for place in places if place[0:1] == ("variants",) and place[2:] in places}
        kept = [each for each in details if each["loc"] not in inside or not each["loc"]]
        mistakes = list(dict.fromkeys(_in_words(table, each) for each in kept))
        lines = [f"{path}: {mistake}" for mistake in mistakes[:_MOST_MISTAKES]]
        if len(mistakes) > _MOST_MISTAKES:
            lines.append(f"{path}: {len(mistakes) - _MOST_MISTAKES} more mistakes")
        raise ProblemFileError("\n".join(lines)) from None
    except RecursionError:
        raise ProblemFileError(f"{path}: its tables are nested too deeply") from None
    problem._source = source
    return problem


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of problem files."""
    models: Any = Union[_MODELS]  # noqa: UP007
    schema = TypeAdapter[Any](models).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def subproblems_of(path: str | Path) -> Problem:
    """Return the subproblems of a problem file, for a comparison of solvers.

    Raises
    ------
    ProblemFileError
        As :func:`load_file`.
    NotSupportedError
        If the file has no subproblems.
    """
    problem = load_file(path)
    assert problem.source is not None
    return Problem(problem.subproblems(), problem.source.sha256)


def _undeclared(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a sentence for every key that ``convexmarket init`` left open."""
    for key, value in table.items():
        here = (*path, key)
        if isinstance(value, Mapping):
            yield from _undeclared(value, here)
        elif value == UNDECLARED:
            known = next((end for end in _DECLARE if here[: len(end)] == end), ())
            advice = _DECLARE.get(known, "see the comment in the file")
            yield f"{'.'.join(here)} is {UNDECLARED!r}, which is not declared yet; {advice}"


def _parsed(text: str) -> dict[str, Any]:
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise ValueError(f"a line has more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its lists and tables are nested too deeply") from None


def _override(table: dict[str, Any], setting: str) -> None:
    """Replace one value of the parsed file, in place."""
    key, equals, value = setting.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise ProblemFileError(
            f"--set {setting}; write KEY=VALUE, such as --set objective.gamma=[0.001,0.01]"
        )
    try:
        parsed = _parsed(f"value = {value}")
    except ValueError:
        parsed = {}
    if parsed.keys() != {"value"}:
        raise ProblemFileError(
            f"--set {key}: {_short(value.strip())} is not a TOML value; write numbers as 0.01, "
            "lists as [0.001,0.01], and text in double quotes: "
            f"--set '{key}=\"{value.strip()[:60]}\"'"
        )
    for depth, part in enumerate(path[:-1], start=1):
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ProblemFileError(
                f"--set {key}: {'.'.join(path[:depth])} is not a table, so it has no keys to set"
            )
    table[path[-1]] = parsed["value"]


def _in_words(table: Mapping[str, Any], detail: ErrorDetails) -> str:
    """Return one of pydantic's errors as key path, value and remedy."""
    path = _path(table, detail["loc"], detail["type"] == "missing") or "the file"
    context, given = detail.get("ctx", {}), detail["input"]
    match detail["type"]:
        case "missing":
            return f"{path} is missing"
        case "value_error":
            words = str(context["error"])
            words = words if len(words) <= 1_000 else f"{words[:997]}..."
            return f"{path}: {words}" if detail["loc"] else words
        case "literal_error" if isinstance(given, str):
            known = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            return f"{path} is {given!r}; {suggestion(given, known)}"
        case "union_tag_invalid":
            key, known = context["discriminator"].strip("'"), context["expected_tags"]
            remedy = suggestion(context["tag"], known.replace("'", "").split(", "))
            return f"{path}.{key} is {context['tag']!r}; {remedy}"
        case "union_tag_not_found":
            return f"{path}.{context['discriminator'].strip(chr(39))} is missing"
    expected = _EXPECTED.get(detail["type"]) or detail["msg"].partition("should ")[2]
    return f"{path} must {expected or 'be valid'}, got {_short(given)}"


def _path(table: Any, location: tuple[int | str, ...], missing: bool) -> str:
    """Return a key path such as ``study.sizes[1]``; steps that name a model are left out.

    The last key may be ``missing`` in the table.
    """
    text, here = "", table
    for place, step in enumerate(location):
        known = step in here if isinstance(here, Mapping) else isinstance(step, int)
        if not known and not (missing and place == len(location) - 1):
            continue
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            here = None
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
