"""Numbers and counts as a reader wants them, in prose, in tables and on axes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

__all__ = [
    "MISSING",
    "count",
    "equals",
    "escape_markdown",
    "fine_percent",
    "format_number",
    "format_percent",
    "format_value",
    "listing",
    "printable",
    "share",
]

MISSING = "–"
NO_BREAK = "\N{NO-BREAK SPACE}"
MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
BLANKS = re.compile(r"[ \t\r\n\u2028\u2029]+")  # a no-break space is not one of them
MARKDOWN_BLOCK = re.compile(r"^(#+|[+=-]|\d+(?=[.)]))(?=[.)]?(?:[ =-]|$))")
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: float | int | None, digits: int = 3) -> str:
    """Write a number with so many significant digits, without trailing zeros.

    Examples
    --------
    >>> format_number(1234567), format_number(0.0012345), format_number(1234.5)
    ('1,234,567', '0.00123', '1,234')
    >>> print(format_number(2.5e-9), format_number(float("nan")), format_number(float("inf")))
    2.5 × 10⁻⁹ – ∞
    """
    if value is None or math.isnan(value):
        return MISSING
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    exponent = int(power)
    if -4 <= exponent < 6:
        decimals = max(0, digits - 1 - exponent)
        return _trimmed(f"{value:,.{decimals}f}")
    power = f"10{str(exponent).translate(SUPERSCRIPTS)}"
    mantissa = _trimmed(mantissa)
    return power if mantissa == "1" else f"{mantissa}{NO_BREAK}×{NO_BREAK}{power}"


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def equals(symbol: str, value: float) -> str:
    """Write what a symbol stands for, on one line.

    Examples
    --------
    >>> equals("γ", 0.001).split()
    ['γ', '=', '0.001']
    """
    return f"{symbol}{NO_BREAK}={NO_BREAK}{format_number(value)}"


def format_percent(share: float | None) -> str:
    """Write a share in percent, with one decimal.

    Examples
    --------
    >>> format_percent(0.0425)
    '4.2%'
    """
    return MISSING if share is None or math.isnan(share) else f"{100 * share:z.1f}%"


def fine_percent(share: float) -> str:
    """Write a share in percent, with three digits however small it is.

    Examples
    --------
    >>> fine_percent(0.000012345)
    '0.00123%'
    """
    return MISSING if math.isnan(share) else f"{format_number(100 * share)}%"


def format_value(value: Any, spec: str = "") -> str:
    """Write one cell of a table; what is missing becomes a dash.

    Examples
    --------
    >>> format_value(0.5, ".3f"), format_value(True), format_value(None), format_value("Ann")
    ('0.500', 'yes', '–', 'Ann')
    """
    if value is None or value is pd.NA or value is pd.NaT:
        return MISSING
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if spec and math.isfinite(value):
            return format(value, spec)
        return format_number(value, digits=4)
    return str(value)


def printable(text: str) -> str:
    r"""Put U+FFFD for what is no text.

    A terminal obeys control characters, XML forbids them, and some turn around what follows.

    Examples
    --------
    >>> printable("Ann\x1b[31m")
    'Ann�[31m'
    """
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_markdown(value: Any) -> str:
    """Escape text so that Markdown shows it as it is, unless a template calls it safe."""
    if isinstance(value, Markup):
        return value
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = printable(BLANKS.sub(" ", text).strip(" "))
    text = MARKDOWN_SPECIAL.sub(r"\\\1", text)
    return MARKDOWN_BLOCK.sub(_escape_block_start, text)


def _escape_block_start(match: re.Match[str]) -> str:
    """Keep a paragraph from being a heading, a rule or a list: '# x', '---', '- x', '1. x'."""
    mark = match[1]
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def count(number: int, noun: str) -> str:
    """Write how many there are of something whose plural ends in s.

    Examples
    --------
    >>> count(1, "seller"), count(1200, "seller"), count(0, "noise draw")
    ('1 seller', '1,200 sellers', '0 noise draws')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share(part: int, whole: int, noun: str) -> str:
    """Write how many of all there are; all of them, if so.

    Examples
    --------
    >>> share(3, 5, "seller"), share(5, 5, "seller")
    ('3 of 5 sellers', 'all 5 sellers')
    >>> share(2, 2, "seller"), share(1, 1, "seller")
    ('both sellers', 'the only seller')
    """
    if part < whole:
        return f"{part:,} of {count(whole, noun)}"
    return {1: f"the only {noun}", 2: f"both {noun}s"}.get(whole, f"all {count(whole, noun)}")


def listing(items: Sequence[str]) -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
