"""Reading problem files: syntax, overrides, the schema, and errors that name the key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    ValidationError,
)
from pydantic_core import ErrorDetails

from convexmarket.data.files import read_limited
from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.problem.base import ProblemModel, ProblemSource, TableModel

__all__ = [
    "UNDECLARED",
    "load_problem",
    "parse_problem",
]

#: Dots in a line of TOML: the parser takes time in proportion to the square of a long key.
MOST_DOTS = 10_000


#: A problem file holds a few numbers; anything larger is not one.
LARGEST_FILE = 1_000_000
#: Mistakes that an error lists.
MOST_MISTAKES = 50

#: What stands for a value that only the user can declare.
UNDECLARED = "?"
_SEE = "see the comment in the file"
#: How it is declared, by the beginning of its key.
_DECLARE = {
    ("data", "features"): 'give the range of a number, [low, high], or categories, ["no", "yes"]',
    ("data", "classes"): 'give the two labels, negative and positive: ["no", "yes"]',
    ("data", "public"): "give the shares of the rows whose owners agreed that they are public",
    ("data", "label"): "give the column that is predicted",
    ("learner", "target_range"): "give the range of the label, [low, high]",
    ("prior",): "give the distribution of the reports that everybody knows",
}

#: What TOML calls the types that pydantic names in Python's words.
_EXPECTED = {
    "tuple_type": "be a list",
    "too_short": "have more entries",
    "too_long": "have fewer entries",
    "model_type": "be a table",
    "model_attributes_type": "be a table",
}


def load_problem(path: str | Path, overrides: Iterable[str] = ()) -> ProblemModel:
    """Read and validate a problem file.

    Parameters
    ----------
    path : path of a TOML file
    overrides : iterable of str
        ``"objective.gamma=[0.001, 0.01]"`` and the like: a key path and a TOML value, which
        replaces what the file says.

    Returns
    -------
    Problem

    Raises
    ------
    ProblemFileError
        If the file cannot be read, is not TOML, or does not follow the schema. There is one line
        for each mistake: the file, the key path, what was found and what is allowed.
    """
    try:
        data = read_limited(path, LARGEST_FILE)
    except OSError as error:
        raise ProblemFileError(f"{path}: {error.strerror}; give a problem file") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemFileError(f"{path}: {error}; a TOML file is UTF-8 text") from None
    return parse_problem(text, overrides, path=str(path))


def parse_problem(text: str, overrides: Iterable[str] = (), path: str = "<text>") -> ProblemModel:
    """Validate the text of a problem file; see :func:`load_problem`.

    Examples
    --------
    >>> parse_problem('kind = "online-marke"')
    Traceback (most recent call last):
    ...
    convexmarket.errors.ProblemFileError: <text>: kind is 'online-marke'; did you mean 'online-market'?
    """
    source = ProblemSource(path, text, tuple(overrides))
    try:
        table = _parsed(text)
    except ValueError as error:
        raise ProblemFileError(f"{path}: not valid TOML: {error}") from None
    learner = table.get("learner")
    if isinstance(learner, dict) and ":" in str(learner.get("name", "")):
        raise ProblemFileError(
            f"{path}: learner.name is {_short(learner['name'])}; a file names no code, as it may "
            "come from a stranger: name a learner of your own on the command line, --set "
            "'learner.name=\"module:Class\"'"
        )
    for override in source.overrides:
        _override(table, override)
    if "kind" not in table:
        raise ProblemFileError(f"{path}: kind is missing; give one of {_listed(KINDS)}")
    kind = KINDS.get(str(table["kind"]))
    if kind is None:
        advice = _suggestion(str(table["kind"]), KINDS)
        raise ProblemFileError(f"{path}: kind is {_short(table['kind'])}; {advice}")
    try:
        undeclared = list(_undeclared(table))
    except RecursionError:
        raise ProblemFileError(f"{path}: its tables lie too deep in one another") from None
    if undeclared:
        raise ProblemFileError("\n".join(f"{path}: {words}" for words in undeclared))
    try:
        problem = kind.parse(table)
    except ValidationError as error:
        details = _innermost(error)
        lines = [f"{path}: {_in_words(kind.problem, detail)}" for detail in details[:MOST_MISTAKES]]
        if len(details) > MOST_MISTAKES:
            lines.append(f"{path}: {len(details) - MOST_MISTAKES} more mistakes")
        raise ProblemFileError("\n".join(lines)) from None
    problem._source = source
    return problem


def _parsed(text: str) -> dict[str, Any]:
    """Parse TOML, or raise a ValueError."""
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):  # it takes their square
        raise ValueError(f"a line has more than {MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its lists and tables lie too deep in one another") from None


def _undeclared(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield for every key that ``convexmarket init`` left open what has to be declared."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _undeclared(value, (*path, key))
        elif value == UNDECLARED:
            known = next((end for end in _DECLARE if (*path, key)[: len(end)] == end), None)
            yield (
                f"{_dotted([*path, key])} is {UNDECLARED!r}: it is still to be declared; "
                f"{_DECLARE.get(known or (), _SEE)}"
            )


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


def _innermost(error: ValidationError) -> list[ErrorDetails]:
    """Leave out errors about a list that only say again that one of its entries is wrong."""
    details = error.errors()
    inside = {detail["loc"][:depth] for detail in details for depth in range(len(detail["loc"]))}
    return [detail for detail in details if detail["loc"] not in inside or not detail["loc"]]


def _in_words(model: Any, detail: ErrorDetails) -> str:
    """Return one of pydantic's errors as: key path, what was found, what is allowed."""
    keys, table = _resolve(model, detail["loc"])
    path = _dotted(keys) or "the file"
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            known = [] if table is None else list(table.model_fields)
            return f"{path} is not a known key; {_suggestion(str(keys[-1]), known)}"
        case "missing":
            return f"{path} is missing"
        case "union_tag_invalid":
            allowed = context["expected_tags"].replace("'", "").split(", ")
            key = f"{path}.{context['discriminator'].strip(chr(39))}"
            return f"{key} is {context['tag']!r}; {_suggestion(context['tag'], allowed)}"
        case "union_tag_not_found":
            return f"{path}.{context['discriminator'].strip(chr(39))} is missing"
        case "value_error":
            words = str(context["error"])
            return f"{path}: {words if len(words) <= 1_000 else f'{words[:997]}...'}"
        case "literal_error" if isinstance(detail["input"], str):
            allowed = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            return f"{path} is {detail['input']!r}; {_suggestion(detail['input'], allowed)}"
    expected = _EXPECTED.get(detail["type"]) or detail["msg"].partition("should ")[2]
    return f"{path} must {expected or 'be valid'}, got {_short(detail['input'])}"


def _resolve(
    model: Any, location: tuple[int | str, ...]
) -> tuple[list[int | str], type[TableModel] | None]:
    """Return the key path of an error, and the table that its last key belongs to.

    Where a table is one of several kinds, pydantic's location holds the name of the kind too,
    which is not in the file.
    """
    path: list[int | str] = []
    owner: type[TableModel] | None = model
    here: Any = model
    for step in location:
        tables = _tables_in(here)
        if len(tables) > 1:  # the step is the name of a kind
            here = next(
                (table for table in tables if step in _kinds_of(table) | {table.__name__}), None
            )
            continue
        path.append(step)
        owner = tables[0] if tables else None
        here = _entry(owner, step) if owner else _member(here)
    if path and owner and len(_tables_in(here)) > 1:  # the error is about which kind it is
        owner = None
    return path, owner


def _kinds_of(table: type[TableModel]) -> set[Any]:
    """Return the names of the kind of a table: what its literal fields can be."""
    literals = (field.annotation for field in table.model_fields.values())
    return {name for kind in literals if get_origin(kind) is Literal for name in get_args(kind)}


def _tables_in(annotation: Any) -> list[type[TableModel]]:
    """Return the tables that an annotation allows, itself or as one of several."""
    annotation = _bare(annotation)
    members = get_args(annotation) if get_origin(annotation) in (UnionType, Union) else [annotation]
    members = [_bare(member) for member in members]
    return [item for item in members if isinstance(item, type) and issubclass(item, TableModel)]


def _entry(table: type[TableModel], key: int | str) -> Any:
    """Return the annotation of a table's key."""
    whole = table.completed_as
    field = (whole and whole.model_fields.get(str(key))) or table.model_fields.get(str(key))
    return field.annotation if field else None


def _member(annotation: Any) -> Any:
    """Return the annotation of what a list or a table of free keys holds."""
    annotation = _bare(annotation)
    members = get_args(annotation)
    if get_origin(annotation) is tuple:
        return members[0]
    return members[1] if get_origin(annotation) is dict else None


def _bare(annotation: Any) -> Any:
    """Return an annotation without what ``Annotated`` adds to it."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _dotted(keys: list[int | str]) -> str:
    """Return a key path as one writes it, ``objective.gamma[1]``."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def _suggestion(found: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(found, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {_listed(known)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
