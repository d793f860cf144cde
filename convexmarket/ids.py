"""Ids of sellers: what may be one, in which form they are compared, and which look alike."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from convexmarket.arguments import warn_user
from convexmarket.errors import ConfusableIdsWarning, ParameterError, SellersError

__all__ = ["LONGEST", "checked_id", "distinct_ids", "forms_of", "warn_of_lookalikes"]

#: Characters of an id.
LONGEST = 200
#: What is not seen, though it counts as printable: fillers, an empty pattern of braille, selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
#: By characters of ASCII, what many fonts draw like them: of Greek, Cyrillic and Latin, and signs.
#: No character of ASCII stands for another: A1, AI, Al and al are four ids.
_DRAWN_LIKE = {
    "A": "\u0391\u0410", "B": "\u0392\u0412", "C": "\u0421", "E": "\u0395\u0415",
    "H": "\u0397\u041d", "I": "\u0399\u0406\u04c0", "J": "\u037f\u0408", "K": "\u039a\u041a",
    "M": "\u039c\u041c", "N": "\u039d", "O": "\u039f\u041e", "P": "\u03a1\u0420", "Q": "\u051a",
    "S": "\u0405", "T": "\u03a4\u0422", "W": "\u051c", "X": "\u03a7\u0425", "Y": "\u03a5\u0423",
    "Z": "\u0396", "a": "\u03b1\u0430\u0251", "c": "\u0441", "d": "\u0501", "e": "\u0435",
    "g": "\u0261", "h": "\u04bb", "i": "\u03b9\u0456\u0269", "j": "\u03f3\u0458",
    "k": "\u03ba\u043a", "l": "\u04cf\u01c0", "o": "\u03bf\u043e", "p": "\u03c1\u0440",
    "q": "\u051b", "s": "\u0455", "u": "\u03c5", "v": "\u03bd", "w": "\u051d",
    "x": "\u03c7\u0445", "y": "\u03b3\u0443", "3": "\u0417",
    "-": "\u2010\u2013\u2014\u2212", "'": "\u2018\u2019\u02bc\u2032",
}  # fmt: skip
_ALIKE = str.maketrans({other: one for one, others in _DRAWN_LIKE.items() for other in others})

#: What stands in a message for the id at a position.
Place = Callable[[int], str]


def checked_id(id: str, what: str = "id") -> str:
    """Return an id in the form that is stored, NFC, or raise a ParameterError.

    ``what`` is what the message calls it.
    """
    if not isinstance(id, str):
        raise ParameterError(f"{what} must be text, such as 's17', got {id!r}")
    form = unicodedata.normalize("NFC", id)
    if not form or len(form) > LONGEST:
        raise ParameterError(
            f"{what} {form[:20]!r} has {len(form)} characters; give from 1 to {LONGEST}"
        )
    if form != form.strip():
        raise ParameterError(f"{what} {form!r} begins or ends with a blank; leave it away")
    if not form.isprintable() or _UNSEEN.search(form):
        bad = next(c for c in form if not c.isprintable() or _UNSEEN.match(c))
        if unicodedata.category(bad) == "Zs":
            why = "looks like a blank; write a blank"
        else:
            why = "cannot be seen; leave it away"
        raise ParameterError(f"{what} {form!a} holds {bad!a}, which {why}")
    return form


def forms_of(ids: Sequence[Any], place: Place = "ids[{}]".format) -> Sequence[Any]:
    """Return ids in the form in which they are compared: texts in NFC, anything else as it is.

    Parameters
    ----------
    ids : sequence of length n
    place : callable
        What a message calls the id at a position.

    Raises
    ------
    ParameterError
        If a text can be no id.
    """
    texts = [id for id in ids if isinstance(id, str)]
    if _are_forms(texts):
        return ids
    return [checked_id(id, place(k)) if isinstance(id, str) else id for k, id in enumerate(ids)]


def _are_forms(texts: Sequence[str]) -> bool:
    """Say whether :func:`checked_id` returns each of these as it is; it takes far longer."""
    lines = "\n".join(["", *texts, ""])
    return (
        "".join(texts).isprintable()
        and max(map(len, texts), default=0) <= LONGEST
        and not any(bad in lines for bad in ("\n\n", "\n ", " \n"))
        and (
            lines.isascii()
            or (unicodedata.is_normalized("NFC", lines) and not _UNSEEN.search(lines))
        )
    )


def warn_of_lookalikes(ids: Sequence[Any], place: Place = "ids[{}]".format) -> None:
    """Warn once, and name a pair, if two different ids of a list look the same.

    They do where the forms NFKD are equal but for characters that are drawn alike. Texts of ASCII
    are not compared with one another.

    Parameters
    ----------
    ids : sequence of length n
        As :func:`forms_of` returns them; one may stand several times.
    place : callable
        What a message calls the id at a position.
    """
    texts = [id for id in ids if isinstance(id, str)]
    lines = "\n".join(texts)
    if lines.isascii():
        return
    looks = unicodedata.normalize("NFKD", lines).translate(_ALIKE).split("\n")
    if len(set(looks)) == len(set(texts)):
        return
    positions = [k for k, id in enumerate(ids) if isinstance(id, str)]
    first: dict[str, int] = {}
    for k, look in zip(positions, looks, strict=True):
        other = first.setdefault(look, k)
        if ids[other] != ids[k]:
            warn_user(
                f"{place(k)} {ids[k]!a} looks like {place(other)} {ids[other]!a}, and they count as"
                " two sellers; if they are one, write its id in one way",
                ConfusableIdsWarning,
            )
            return


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
        raise SellersError(f"ids must be a list of names or numbers, got {ids!r}") from None
    except ParameterError as error:
        raise SellersError(str(error)) from None
    if len(names) != m:
        raise SellersError(f"{len(names)} ids for {m} sellers; give one for each")
    if distinct != m:
        twice = Counter(forms).most_common(1)[0][0]
        raise SellersError(f"id {twice!r} stands for more than one seller; ids must be distinct")
    warn_of_lookalikes(forms)
    return tuple(names)
