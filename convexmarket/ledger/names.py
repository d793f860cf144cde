"""Names of sellers and of releases: what may be one, and in which form it is stored."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import pandas as pd

from convexmarket.arguments import is_iterable
from convexmarket.errors import ParameterError

__all__ = ["MODEL", "UNNAMED", "check_text", "checked_id", "checked_ids", "checked_release"]

_LONGEST = 200
#: Controls, halves of characters, ends of lines, invisible marks, what has no look of its own.
_UNFIT = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
#: Letters and marks that are not seen either: fillers, an empty pattern of braille, selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)

#: What a ledger calls releases itself: those without a name, and the model of an online market.
UNNAMED, MODEL = "unnamed-", "market-model"


def checked_id(id: str, what: str = "id") -> str:
    """Return a name in the form that is stored, or raise a ParameterError.

    ``what`` is what the message calls it.
    """
    if not isinstance(id, str):
        raise ParameterError(f"{what} is {id!r}; give text, such as 's17'")
    form = unicodedata.normalize("NFC", id)
    if not form or len(form) > _LONGEST:
        raise ParameterError(
            f"{what} {form[:20]!r} has {len(form)} characters; give from 1 to {_LONGEST}"
        )
    if form != form.strip():
        raise ParameterError(f"{what} {form!r} begins or ends with a blank; leave it away")
    for c in form:
        if unicodedata.category(c) in _UNFIT or _UNSEEN.match(c):
            raise ParameterError(
                f"{what} {form!a} holds {c!a}, which cannot be seen; leave it away"
            )
        if unicodedata.category(c) == "Zs" and c != " ":
            raise ParameterError(
                f"{what} {form!a} holds {c!a}, which looks like a blank; write a blank"
            )
    return form


def check_text(what: str, text: object) -> None:
    """Raise a ParameterError unless this is text that can be stored."""
    if not isinstance(text, str):
        raise ParameterError(f"{what} of the guarantee is {text!r}; give text")
    if any(unicodedata.category(c) == "Cs" for c in text):
        raise ParameterError(
            f"{what} of the guarantee is {text!r}, which holds half of a character; leave it away"
        )


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Return the names of sellers as they are stored, in their order."""
    if isinstance(ids, str | pd.DataFrame) or not is_iterable(ids):
        raise ParameterError(f"ids is {ids!r}; give a sequence of text, one id per seller")
    return [checked_id(id) for id in ids]


def checked_release(name: str) -> str:
    """Return the name of a release as it is stored, or raise a ParameterError."""
    form = checked_id(name, "release")
    for reserved in (UNNAMED, MODEL):
        if form.startswith(reserved):
            raise ParameterError(
                f"release {form!r} begins with {reserved!r}, as the ledger calls releases itself; "
                "give another name"
            )
    return form
