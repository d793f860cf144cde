"""The results of a report as they stand in its results.json, whatever version wrote them.

A comparison must not depend on today's classes of results: the file is read as JSON, and told apart
are only the problem, versions and machine, the frames, and what is left. Files of before the format
had a name, whose frames are lists of rows, are read as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.lab.report.results import FORMAT, RESULTS, read_json
from convexmarket.lab.result import read_frame

__all__ = ["SINGLE_VALUES", "Record", "flatten", "read_record"]

#: The frame of one row that holds whatever is no frame in the file.
SINGLE_VALUES = "single values"
_APART = {"format", "kind", "problem", "provenance", "machine"}
_JOBS = "run.jobs"
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class Record:
    """What one results.json says.

    Attributes
    ----------
    kind : str
        Kind of the problem.
    problem : dict
        The problem, completed by its defaults; key path to value.
    versions : dict
        Versions, machine and number of jobs; key path to value.
    problem_file : dict or None
        Path, text, checksum and overrides of the file that the problem was loaded from.
    frames : dict of str to pandas.DataFrame
        Every table of the results, and :data:`SINGLE_VALUES`.
    """

    kind: str
    problem: dict[str, Any]
    versions: dict[str, Any]
    problem_file: dict[str, Any] | None
    frames: dict[str, pd.DataFrame]


def read_record(path: str | Path) -> Record:
    """Read the results of a report.

    Parameters
    ----------
    path : path
        A report's folder, or its results.json.

    Returns
    -------
    Record

    Raises
    ------
    ParameterError
        If there is no such file.
    NotSupportedError
        If it holds something else than the results of an experiment.
    DataError
        If the file, or a table that it refers to, is damaged.
    """
    file = Path(path, RESULTS) if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ParameterError(f"there is no {file}; name the folder of a report, or its {RESULTS}")
    content = read_json(file)
    try:
        return _record(content, file)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, DataError | ParameterError):
            raise
        raise DataError(
            f"{file} is damaged ({type(error).__name__}: {error}); run the problem again"
        ) from error


def _record(content: Any, file: Path) -> Record:
    kind = _kind(content, file)
    provenance = dict(content["provenance"])
    problem_file = provenance.pop("problem_file", None)
    versions = provenance.pop("versions", None)
    if versions is None:  # older results have them side by side with what the run recorded
        versions = {key: value for key, value in provenance.items() if isinstance(value, str)}
        provenance = {key: value for key, value in provenance.items() if key not in versions}
    versions = dict(flatten({**versions, "machine": content.get("machine", {})}))
    problem = dict(flatten(content["problem"]))
    if _JOBS in problem:  # decides how fast the run is, and not what comes out
        versions[_JOBS] = problem.pop(_JOBS)
    results = {name: value for name, value in content.items() if name not in _APART}
    results = {**results.pop("tables", {}), **results.pop("numbers", {}), **results}
    return Record(
        kind=kind,
        problem=problem,
        versions=versions,
        problem_file=problem_file,
        frames=_frames({**results, "provenance": provenance}, file),
    )


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values one by one, each with the path of its keys.

    Examples
    --------
    >>> dict(flatten({"objective": {"gamma": [0.1, 1.0], "cap": None}}))
    {'objective.gamma[0]': 0.1, 'objective.gamma[1]': 1.0, 'objective.cap': None}
    """
    if isinstance(value, Mapping) and list(value) == ["float"] and str(value["float"]) in _NUMBERS:
        yield path, _NUMBERS[str(value["float"])]
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from flatten(item, f"{path}[{position}]")
    else:
        yield path, value


def _kind(content: Any, file: Path) -> str:
    """Return the kind of the problem, or refuse what holds no results of an experiment."""
    problem = content.get("problem") if isinstance(content, dict) else None
    if isinstance(content, dict) and content.get("kind") == "diff":
        raise NotSupportedError(f"{file} is itself a comparison; compare the reports it is about")
    if not isinstance(problem, dict) or not isinstance(problem.get("kind"), str):
        raise DataError(f"{file} names no kind of problem; is it the {RESULTS} of a report?")
    provenance = content.get("provenance")
    if not isinstance(provenance, dict) or not all(
        isinstance(provenance.get(name) or {}, dict) for name in ("versions", "problem_file")
    ):
        raise DataError(f"{file} does not say where its results come from; run the problem again")
    problem_file = provenance.get("problem_file") or {}
    if not isinstance(problem_file.get("text", ""), str):
        raise DataError(f"{file} is damaged: provenance.problem_file.text is no text")
    overrides = problem_file.get("overrides", [])
    if not isinstance(overrides, list) or not all(isinstance(text, str) for text in overrides):
        raise DataError(f"{file} is damaged: provenance.problem_file.overrides is no list of texts")
    if content.get("format") != FORMAT:
        raise NotSupportedError(
            f"{file} is of the format {content.get('format')!r}, and {FORMAT!r} can be read; "
            "update convexmarket, or run the problem again"
        )
    return str(problem["kind"])


def _frames(results: Mapping[str, Any], file: Path) -> dict[str, pd.DataFrame]:
    """Tell the frames among the results, at any depth, from single values."""
    frames: dict[str, pd.DataFrame] = {}
    single: dict[str, Any] = {}

    def gather(name: str, value: Any) -> None:
        if isinstance(value, Mapping) and "columns" in value and value.keys() & {"data", "parquet"}:
            frames[name] = _spread(read_frame(name, value, file.parent))
        elif isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
            frames[name] = _spread(pd.DataFrame(value, dtype=object))
        elif name == "caveats":
            frames[name] = pd.DataFrame({"text": value})
        elif isinstance(value, Mapping) and value:
            for key, item in value.items():
                gather(f"{name}.{key}", item)
        else:
            single.update(flatten(value, name))

    for name, value in results.items():
        gather(name, value)
    frames[SINGLE_VALUES] = _spread(pd.DataFrame([single], dtype=object))
    return {name: frame for name, frame in frames.items() if not frame.columns.empty}


def _spread(frame: pd.DataFrame) -> pd.DataFrame:
    """Give each value of a cell that holds several its own column, and numbers their dtype."""
    loose = [name for name in frame if frame[name].dtype == object]
    if any(isinstance(cell, list | dict) for name in loose for cell in frame[name]):
        rows = [dict(flatten(row)) for row in frame.to_dict("records")]
        frame = pd.DataFrame(rows, dtype=object)
        loose = list(frame)
    return frame.assign(**{str(name): _typed(frame[name]) for name in loose})


def _typed(column: pd.Series) -> pd.Series:
    """Make a column one of numbers or truth values if that is what its cells are."""
    cells = column.where(column.notna(), None).tolist()
    present = [cell for cell in cells if cell is not None]
    kinds = {type(cell) for cell in present if cell not in _NUMBERS}
    if kinds and kinds <= {int, float}:
        numbers = [_NUMBERS.get(cell, cell) for cell in cells]
        return pd.Series(numbers, column.index, None if kinds == {int} else float)
    if kinds == {bool} and len(present) == len(cells):
        return column.astype(bool)
    return pd.Series(cells, column.index, dtype=object)
