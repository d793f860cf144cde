"""Long lists of sellers, read as columns by pyarrow: what is plain is checked whole, at once.

Nothing is explained here. Where a file, an id or a number could be wrong, or read in two ways,
there is no answer, and :mod:`convexmarket.lab.lists.reading` reads the rows one by one and says
which is at fault.
"""

from __future__ import annotations

import codecs
import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from convexmarket.data.csv_cells import may_be_guarded
from convexmarket.data.csv_format import separator_of
from convexmarket.data.files import open_regular
from convexmarket.errors import ParameterError
from convexmarket.ids import LONGEST, forms_of
from convexmarket.priors import Prior

__all__ = ["plain_columns", "plain_csv"]

#: Bytes of a file that is worth it; smaller ones are read row by row.
WORTH_IT = 1_000_000
_BLOCK = 1 << 22
_NEWLINE, _RETURN, _QUOTE = (ord(sign) for sign in '\n\r"')


def plain_csv(
    path: str | Path, width: int, columns: tuple[int | None, ...], prior: Prior
) -> pd.DataFrame | None:
    """Return ids, sensitivities and groups of a long CSV file, by line; None where in doubt.

    Parameters
    ----------
    path : path
    width : int
        How many columns the header has.
    columns : tuple of int
        Places of the ids, the sensitivities and the groups; the last may be None.
    prior : Prior
        What the sensitivities are drawn from.
    """
    with open_regular(path) as file:
        if file.seek(0, 2) < WORTH_IT:
            return None
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        beginning = content[:WORTH_IT].decode("utf-8-sig", "replace")
        separator = separator_of(io.StringIO(beginning, newline=""))
        lines = _plain_lines(np.frombuffer(content, dtype=np.uint8), ord(separator))
        names = [str(place) for place in range(width)]
        wanted = [str(place) for place in columns if place is not None]
        kinds = dict.fromkeys(wanted, pa.large_string()) | {wanted[1]: pa.float64()}
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            pyarrow.csv.ReadOptions(column_names=names, skip_rows=1),
            pyarrow.csv.ParseOptions(delimiter=separator),
            pyarrow.csv.ConvertOptions(column_types=kinds, null_values=[], include_columns=wanted),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    texts = [table[name] for name in wanted if name != wanted[1]]
    # Fewer rows than lines: some are blank, or within quotes.
    if table.num_rows != lines - 1 or any(may_be_guarded(text) for text in texts):
        return None
    listed = plain_columns(*(table[name] for name in wanted), prior=prior)
    pa.default_memory_pool().release_unused()  # what finding twin ids took is most of all
    return None if listed is None else listed.set_axis(pd.RangeIndex(2, lines + 1))


def plain_columns(ids: Any, reports: Any, groups: Any = None, *, prior: Prior) -> Any:
    """Return columns of pyarrow as a DataFrame; None where one may hold what is refused."""
    texts = [column for column in (ids, groups) if column is not None]
    kinds = [pa.types.is_string(text.type) or pa.types.is_large_string(text.type) for text in texts]
    if not (len(ids) and all(kinds) and pa.types.is_float64(reports.type)):
        return None
    if ids.null_count or reports.null_count:
        return None
    numbers = reports.to_numpy()
    low, high = prior.support
    within = max(low, 0.0) <= numbers.min() and numbers.max() <= min(high, np.finfo(float).max)
    if not (within and _are_plain(ids) and len(pc.unique(ids)) == len(ids)):
        return None
    columns = {"id": pd.Series(pd.array(ids, dtype="str")), "sensitivity": numbers}
    if groups is not None:
        labels = pc.utf8_trim_whitespace(groups)
        if labels.null_count or not pc.min(pc.utf8_length(labels)).as_py():
            return None
        columns["group"] = labels.dictionary_encode().to_pandas().astype(object)
    return pd.DataFrame(columns, copy=False)


def _plain_lines(content: NDArray[np.uint8], separator: int) -> int:
    """Return how many lines a text has; -1 where readers might see others, or other fields.

    Quotes come in pairs around whole fields, lines end with a newline, and nothing is NUL.
    """
    lines = quotes = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    first = 3 if content[:3].tobytes() == codecs.BOM_UTF8 else 0
    for start in range(first, content.size, _BLOCK):
        block = content[start : start + _BLOCK]
        if block.max() >= 0x80:
            decoder.decode(block.tobytes(), final=start + _BLOCK >= content.size)
        ends = np.flatnonzero(block == _RETURN) + start + 1
        at = np.flatnonzero(block == _QUOTE) + start
        closes = (np.arange(at.size) + quotes) % 2 == 1
        beside = np.where(closes, at + 1, at - 1)
        beside = content[beside[(beside >= first) & (beside < content.size)]]
        plain = (beside == separator) | (beside == _NEWLINE) | (beside == _RETURN)
        if not (block.min() and plain.all() and np.all(content[ends % content.size] == _NEWLINE)):
            return -1
        quotes += at.size
        lines += int(np.count_nonzero(block == _NEWLINE))
    return -1 if quotes % 2 else lines + int(content[-1] != _NEWLINE)


def _are_plain(ids: Any) -> bool:
    """Say whether texts are ids as they stand."""
    text = ids.combine_chunks().cast(pa.large_string())
    offsets, data = (
        np.frombuffer(part, kind)
        for part, kind in zip(text.buffers()[1:], (np.int64, np.uint8), strict=True)
    )
    offsets = offsets[text.offset : text.offset + len(text) + 1]
    lengths, written = np.diff(offsets), data[offsets[0] : offsets[-1]]
    if not lengths.min():
        return False
    if written.min() >= ord(" ") and written.max() < 0x7F:
        ends = data[offsets[:-1]], data[offsets[1:] - 1]
        return bool(lengths.max() <= LONGEST and not any(np.any(end == ord(" ")) for end in ends))
    texts = text.to_numpy(zero_copy_only=False).tolist()
    try:
        return forms_of(texts) == texts
    except ParameterError:
        return False
