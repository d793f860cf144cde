"""The normal form of ids, by which sellers and rows are identified everywhere."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from convexmarket.checks import shown
from convexmarket.errors import ParameterError, SellersError

__all__ = ["LONGEST", "checked_id", "distinct_ids", "forms_of"]

#: Characters of an id.
LONGEST = 200


def checked_id(id: Any, what: str = "id") -> str:
    """Compute the normal form of an id: printable text in Unicode form NFC.

    The form of a whole number is its decimal digits, so 1, 1.0 and "1" are the same id.

    Raises
    ------
    ParameterError
        If the value cannot be an id; ``what`` names it in the message.
    """
    if isinstance(id, float) and id.is_integer() and abs(id) < 2**53:
        id = int(id)
    if isinstance(id, int | np.integer) and not isinstance(id, bool) and -(2**63) <= id < 2**64:
        id = str(int(id))
    if not isinstance(id, str):
        raise ParameterError(f"{what} must be text or a whole number, such as 's17', got {_of(id)}")
    form = unicodedata.normalize("NFC", "".join(id))
    if not 1 <= len(form) <= LONGEST:
        raise ParameterError(
            f"{what} {form[:20]!r} has {len(form)} characters; give from 1 to {LONGEST}"
        )
    if form != form.strip():
        raise ParameterError(f"{what} {form!a} begins or ends with a blank; remove it")
    if not form.isprintable():
        bad = next(c for c in form if not c.isprintable())
        raise ParameterError(f"{what} {form!a} contains {bad!a}, which is not printable; remove it")
    return form


def forms_of(ids: Sequence[Any], place: Callable[[int], str] = "ids[{}]".format) -> list[str]:
    """Compute the normal form of each id; ``place`` names the id at a position in a message."""
    try:
        lines = "\n".join(["", *ids, ""])
    except TypeError:  # numbers
        return [checked_id(id, place(k)) for k, id in enumerate(ids)]
    normal = (  # the same checks for all ids at once, which takes a twentieth of the time
        "".join(ids).isprintable()
        and max(map(len, ids), default=0) <= LONGEST
        and not any(bad in lines for bad in ("\n\n", "\n ", " \n"))
        and unicodedata.is_normalized("NFC", lines)
    )
    return list(ids) if normal else [checked_id(id, place(k)) for k, id in enumerate(ids)]


def distinct_ids(ids: Any, m: int) -> Any:
    """Return the ids of m sellers, by default 0 to m - 1.

    Raises
    ------
    SellersError
        If they are not m distinct ids.
    """
    if ids is None:
        return range(m)
    try:
        names = list(ids)
        forms = forms_of(names)
        distinct = len(set(forms))
    except TypeError:
        raise SellersError(f"ids must be a list of text or whole numbers, got {ids!r}") from None
    except ParameterError as error:
        raise SellersError(str(error)) from None
    if len(names) != m:
        raise SellersError(f"{len(names)} ids for {m} sellers; give one for each")
    if distinct != m:
        twice = Counter(forms).most_common(1)[0][0]
        raise SellersError(f"id {twice!r} stands for more than one seller; ids must be distinct")
    return tuple(names)


def _of(id: Any) -> str:
    """Show what is not an id; Python refuses to print integers of thousands of digits."""
    long = isinstance(id, int) and id.bit_length() > 64
    return f"a number of {id.bit_length()} bits" if long else shown(id)
