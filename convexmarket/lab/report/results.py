"""The file results.json of a report: everything that came out, to be read again.

Long frames are not repeated there: the file names the table of the report that holds them, with a
checksum. What one version wrote is read by any other whose results have the same fields; nothing
that is read is run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.data.csv_cells import unguarded, write_csv
from convexmarket.errors import DataError, NotSupportedError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.records import (
    columns_of,
    frame_from_json,
    frame_to_json,
    result_from_json,
    result_to_json,
)
from convexmarket.lab.report.model import Table

__all__ = [
    "FORMAT",
    "RESULTS",
    "is_text",
    "plain",
    "read_frame",
    "read_json",
    "read_results",
    "result_types",
    "write_results",
]

FORMAT = "convexmarket-results/1"
RESULTS = "results.json"
#: Frames with more cells stand in a table of their own.
MOST_CELLS = 5_000
#: Bytes; a file that is larger is not read.
LARGEST_FILE = 500_000_000
TABLE = re.compile(r"tables/[a-z0-9_-]+\.csv")
#: What a cell of a CSV file stands for, by dtype; "text" is text that may be missing.
_READ: dict[str, Callable[[str], Any]] = {
    "float": lambda cell: float(cell) if cell else None,
    "int": int,
    "uint": int,
    "bool": {"True": True, "False": False}.__getitem__,
    "str": unguarded,
    "object": unguarded,
    "text": lambda cell: unguarded(cell) or None,
}


def result_types() -> dict[str, type[Any]]:
    """Return the class of the results of each kind of problem."""
    return {name: kind.result for name, kind in KINDS.items()}


# ------------------------------------------------------------------------------------- writing


def write_results(results: Any, tables: Iterable[Table], folder: Path) -> None:
    """Write ``results.json`` into the folder of a report, next to the tables written there.

    Parameters
    ----------
    results : dataclass instance or mapping
        What an experiment returned; or plain values, which are written as they are.
    tables : iterable of Table
        Of the report, written as ``tables/<name>.csv``.
    folder : pathlib.Path
    """
    if isinstance(results, Mapping):
        content = plain(results)
    else:
        held = {table.name: table.stored for table in tables}
        content = {
            "format": FORMAT,
            "kind": results.problem.kind,
            **result_to_json(
                results, lambda name, frame: _placed(name, frame, held, folder / "tables")
            ),
        }
    (folder / RESULTS).write_text("".join(layout(content)) + "\n", encoding="utf-8", newline="\n")


def _placed(
    name: str, frame: pd.DataFrame, held: Mapping[str, pd.DataFrame], tables: Path
) -> dict[str, Any]:
    """Return a frame, or where it is; a table that would not come back exactly does not do."""
    written = frame_to_json(name, frame)
    if frame.size <= MOST_CELLS:
        return written
    same = [table for table, shown in held.items() if shown.equals(frame)]
    own = f"{name}_all" if name in held else name
    file = tables / f"{[*same, own][0]}.csv"
    added = not same
    if added:
        with open(file, "x", encoding="utf-8", newline="") as written_to:
            write_csv(frame, written_to)
    described = {
        "columns": written["columns"],
        "dtypes": written["dtypes"],
        "missing": list(frame.columns[frame.isna().any() & (frame.dtypes == "str")]),
        "csv": f"{tables.name}/{file.name}",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    try:
        exact = frame_to_json(name, _from_csv(name, described, tables.parent)) == written
    except DataError:
        exact = False
    if exact:
        return described
    if added:
        file.unlink()
    return written


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
    object
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
    >>> result = read_results("reports/wdbc")  # doctest: +SKIP
    >>> result.curve.groupby("model").payments.sum()  # doctest: +SKIP
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
            f"{file} has no key 'format': it was written by an earlier version, or it is not the "
            "result of an experiment; run the problem again"
        )
    if content["format"] != FORMAT:
        raise NotSupportedError(
            f"{file} is of the format {content['format']!r}, and {FORMAT!r} is what can be read; "
            "use the version of convexmarket that wrote it, or run the problem again"
        )
    types = result_types()
    if not isinstance(kind, str) or kind not in types:
        raise NotSupportedError(
            f"{file} is of kind {kind!r}, and only the results of an experiment can be read: "
            f"{', '.join(types)}"
        )
    fields = {name: value for name, value in content.items() if name not in ("format", "kind")}
    try:
        return result_from_json(
            types[kind], fields, lambda name, written: read_frame(name, written, file.parent)
        )
    except DataError as error:
        raise DataError(
            f"{file}: {error}; restore the files of the report, or run the problem again"
        ) from None


def read_json(file: Path) -> Any:
    """Read a JSON file of bounded size; its mistakes become errors that name the file."""
    text = _bytes(file)
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


def _bytes(file: Path) -> bytes:
    """Read a whole file, unless it is larger than any report's."""
    try:
        size = file.stat().st_size
        if size > LARGEST_FILE:
            raise DataError(f"{file} has {size:,} bytes, and at most {LARGEST_FILE:,} are read")
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; give the folder of a report") from None


def read_frame(name: str, written: Mapping[str, Any], folder: Path) -> pd.DataFrame:
    """Return a frame that stands in results.json, or in the table of the folder that it names.

    Raises
    ------
    DataError
        If it is damaged, or its table was changed after it was written.
    """
    if "csv" not in written:
        return frame_from_json(name, written)
    csv = str(written["csv"])
    if not TABLE.fullmatch(csv):
        raise DataError(f"{name}.csv is {csv!r}, which is no table of a report")
    if hashlib.sha256(_bytes(folder / csv)).hexdigest() != written.get("sha256"):
        raise DataError(f"{csv} was changed after {RESULTS} was written: its checksum is another")
    return _from_csv(name, written, folder)


def _readers(
    columns: list[str], dtypes: list[str], missing: list[Any]
) -> Iterator[Callable[[str], Any]]:
    """Yield what turns a cell of each column into what it stands for."""
    for column, dtype in zip(columns, dtypes, strict=True):
        kind = dtype.strip("0123456789")
        yield _READ["text" if column in missing else kind]


def _from_csv(name: str, described: Mapping[str, Any], folder: Path) -> pd.DataFrame:
    """Read a table with the dtypes that it was written with."""
    columns, dtypes = columns_of(name, described)
    missing = described.get("missing") or []
    if not isinstance(missing, list):
        raise DataError(f"{name}.missing is no list of columns")
    try:
        text = pd.read_csv(
            folder / described["csv"], dtype=str, keep_default_na=False, encoding="utf-8"
        )
        if [unguarded(column) for column in text.columns] != columns:
            raise ValueError(f"it has other columns than {name}")
        cells = [
            [read(cell) for cell in text.iloc[:, place]]
            for place, read in enumerate(_readers(columns, dtypes, missing))
        ]
    except (ValueError, KeyError) as error:
        raise DataError(f"{described['csv']}: {error}") from None
    rows = [list(row) for row in zip(*cells, strict=True)]
    return frame_from_json(name, {"columns": columns, "dtypes": dtypes, "data": rows})
