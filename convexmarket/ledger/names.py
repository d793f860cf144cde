"""What a ledger calls sellers and releases: what may be a name, and in which form it is stored."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import pandas as pd

from convexmarket.checks import checked_id, forms_of, is_iterable
from convexmarket.errors import ParameterError

__all__ = ["MODEL", "UNNAMED", "check_text", "checked_ids", "checked_release"]

#: What a ledger calls releases itself: those without a name, and the model of an online market.
UNNAMED, MODEL = "unnamed-", "market-model"


def check_text(what: str, text: object) -> None:
    """Raise a ParameterError unless this is text that can be stored."""
    if not isinstance(text, str):
        raise ParameterError(f"{what} of the guarantee must be text, got {text!r}")
    if any(unicodedata.category(c) == "Cs" for c in text):
        raise ParameterError(
            f"{what} of the guarantee is {text!r}, which holds half of a character; leave it away"
        )


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Return the names of sellers as they are stored, in their order."""
    if isinstance(ids, str | pd.DataFrame) or not is_iterable(ids):
        raise ParameterError(f"ids must be a sequence of text, one id per seller, got {ids!r}")
    return forms_of(list(ids))


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
