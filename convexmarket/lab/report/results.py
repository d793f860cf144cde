"""The file results.json of a report: everything that came out, to be read again.

Long frames stand in Parquet files beside it: the file names them, with a checksum. What one version
wrote is read by any other whose results have the same fields; nothing that is read is run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.records import (
    columns_of,
    frame_from_json,
    frame_to_json,
    result_from_json,
    result_to_json,
)

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
#: Frames with more cells stand in a file of their own.
MOST_CELLS = 2_000
#: Bytes; a file that is larger is not read.
LARGEST_FILE = 500_000_000
TABLE = re.compile(r"tables/[a-z0-9_-]+\.parquet")


def result_types() -> dict[str, type[Any]]:
    """Return the class of the results of each kind of problem."""
    return {name: kind.result for name, kind in KINDS.items()}


# ------------------------------------------------------------------------------------- writing


def write_results(results: Any, folder: Path) -> None:
    """Write ``results.json`` into the folder of a report, and its long frames beside it.

    Parameters
    ----------
    results : dataclass instance or mapping
        What an experiment returned; or plain values, which are written as they are.
    folder : pathlib.Path
        With a folder ``tables``, for the frames.
    """
    if isinstance(results, Mapping):
        content = plain(results)
    else:
        content = {
            "format": FORMAT,
            "kind": results.problem.kind,
            **result_to_json(results, lambda name, frame: _placed(name, frame, folder)),
        }
    (folder / RESULTS).write_text("".join(layout(content)) + "\n", encoding="utf-8", newline="\n")


def _placed(name: str, frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """Return a frame, or where it is; one that would not come back exactly stands here."""
    written = frame_to_json(name, frame)
    if frame.size <= MOST_CELLS:
        return written
    place = f"tables/{re.sub('[^a-z0-9_-]', '-', name.lower())}.parquet"
    content = BytesIO()
    try:
        frame.to_parquet(content, compression="zstd", compression_level=19, index=False)
        exact = frame_to_json(name, pd.read_parquet(content)) == written
    except (pa.ArrowException, ValueError, ParameterError):  # cells that are lists, for instance
        exact = False
    if not exact:
        return written
    (folder / place).write_bytes(content.getvalue())
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    parts = {key: written[key] for key in ("columns", "dtypes")}
    return {**parts, "parquet": place, "sha256": digest}


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
    """Return a frame that stands in results.json, or in the file of the folder that it names.

    Raises
    ------
    DataError
        If it is damaged, or its file was changed after it was written.
    """
    if "parquet" not in written:
        return frame_from_json(name, written)
    columns, dtypes = columns_of(name, written)
    place = str(written["parquet"])
    if not TABLE.fullmatch(place):
        raise DataError(f"{name}.parquet is {place!r}, which is no table of a report")
    content = _bytes(folder / place)
    if hashlib.sha256(content).hexdigest() != written.get("sha256"):
        raise DataError(f"{place} was changed after {RESULTS} was written: its checksum is another")
    try:
        file = pq.ParquetFile(BytesIO(content))
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        if size > LARGEST_FILE:
            raise ValueError(
                f"unpacked it has {size:,} bytes, and at most {LARGEST_FILE:,} are read"
            )
        frame = file.read().to_pandas()
    except (pa.ArrowException, ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(f"{place}: {error}") from None
    if list(frame.columns) != columns or [str(dtype) for dtype in frame.dtypes] != dtypes:
        raise DataError(f"{place} has other columns than {name}, or of other dtypes")
    return frame
