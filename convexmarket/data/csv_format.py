"""How a CSV file is written: its encoding, its separator, and what its commas mean."""

from __future__ import annotations

import codecs
import csv
import math
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["FIRST_LINES", "SEPARATORS", "Numbers", "encoding_of", "numbers_in", "separator_of"]

SEPARATORS = ",;\t|"
#: Lines that the separator is told from.
FIRST_LINES = 10
THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+", re.ASCII)


def encoding_of(start: bytes) -> str:
    """Return the encoding that the byte-order mark announces; UTF-8 without one."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    return "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def separator_of(lines: Iterable[str]) -> str:
    """Return the separator that splits the first rows most often, and alike where one does."""
    first = list(islice(lines, FIRST_LINES))

    def fit(separator: str) -> tuple[bool, int]:
        try:
            rows = [row for row in csv.reader(first, delimiter=separator) if any(row)][:2]
        except csv.Error:
            rows = []
        widths = [len(row) for row in rows] or [0]
        return len(set(widths)) == 1 and widths[0] > 1, widths[0]

    return max(SEPARATORS, key=fit)


def numbers_in(texts: pd.Series[Any]) -> pd.Series[float]:
    """Return texts as numbers, NaN where they are not numbers for certain.

    A number is written with the digits 0 to 9. Commas are decimal commas where no number has a
    point, and one of them is not in a place where it could separate thousands.
    """
    if pd.api.types.is_numeric_dtype(texts):
        return pd.to_numeric(texts).astype(float)
    numbers = Numbers()
    numbers.add([str(text) for text in texts])
    return pd.Series(numbers.found(), index=texts.index, dtype=float)


class Numbers:
    """Numbers that are read piece by piece: what their commas mean is known at the end."""

    def __init__(self) -> None:
        self._pieces: list[NDArray[np.float64]] = []
        self._commas: list[NDArray[np.bool_]] = []
        self._has_points = False
        self._has_decimals = False

    def add(self, texts: Sequence[str]) -> None:
        """Read more texts, with their commas as decimal commas."""
        has_comma = np.array(["," in text for text in texts], dtype=bool)
        self._has_points = self._has_points or any("." in text for text in texts)
        self._has_decimals = self._has_decimals or not all(
            THOUSANDS.fullmatch(texts[place].strip())
            for place in np.flatnonzero(has_comma).tolist()
        )
        self._pieces.append(np.array([_number(text.replace(",", ".")) for text in texts], float))
        self._commas.append(has_comma)

    def found(self) -> NDArray[np.float64]:
        """Return all numbers; NaN where a text is none, or may be another."""
        if not self._pieces:
            return np.empty(0)
        numbers, has_comma = np.concatenate(self._pieces), np.concatenate(self._commas)
        if self._has_points or not self._has_decimals:
            numbers[has_comma] = np.nan
        return numbers


def _number(text: str) -> float:
    """Return a number of ASCII digits, without the underscores that Python takes for nothing."""
    if "_" in text or not text.isascii():
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan
