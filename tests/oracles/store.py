"""Store the numbers that later versions of the package must reproduce.

A topic is a module of this folder and a file of records in ``data/``. A record is a dictionary:

- ``name``: the name of the record in messages;
- ``quick``: whether the default tests compare the record;
- ``spec``: plain data from which ``answer(spec)`` of the module builds the inputs. This function
  uses only the public API and states every argument;
- ``answer``: the result of ``answer(spec)``, which consists of numbers, texts, lists and
  dictionaries, or ``{"error": class name}``.

If the answers of a topic are not unique, its module has a function ``compare(spec, stored, new)``
that returns a text for each difference. The answers of other topics are compared with
:func:`differences`.
"""

import importlib
import json
import lzma
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from convexmarket.errors import ConvexMarketError, LooseCertificateWarning

__all__ = ["TOPICS", "check", "differences", "failures", "read", "recomputed", "write"]

#: Modules that define ``answer(spec)`` and optionally ``compare(spec, stored, new)``.
TOPICS = ("allocations", "payments", "online", "joint", "learners", "ledgers", "reports")
DATA = Path(__file__).parent / "data"
#: Tolerance relative to a number or to the largest entry of a list.
TOLERANCE = 1e-9

Record = dict[str, Any]


def read(topic: str) -> list[Record]:
    with lzma.open(DATA / f"{topic}.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write(topic: str, records: Iterable[Record]) -> None:
    """Write the records of a topic to a file. Files with equal records have equal bytes."""
    lines = (json.dumps(record, separators=(",", ":"), default=_plain) for record in records)
    text = "".join(f"{line}\n" for line in lines)
    (DATA / f"{topic}.jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def _plain(value: Any) -> Any:
    """Convert NumPy arrays and scalars to Python objects, because JSON stores floats exactly."""
    return value.tolist()


def recomputed(topic: str, spec: Any) -> dict[str, Any]:
    """Compute the answer to a spec, and convert it to the stored form."""
    module = importlib.import_module(f"tests.oracles.{topic}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LooseCertificateWarning)
        try:
            answer = module.answer(spec)
        except ConvexMarketError as error:
            answer = {"error": type(error).__name__}
    return json.loads(json.dumps(answer, default=_plain))


def check(topic: str, record: Record) -> list[str]:
    """Recompute an answer, and return a text for each difference from the stored answer."""
    stored, new = record["answer"], recomputed(topic, record["spec"])
    module = importlib.import_module(f"tests.oracles.{topic}")
    custom: Callable[..., list[str]] | None = getattr(module, "compare", None)
    if custom is None or "error" in stored or "error" in new:
        return differences(stored, new)
    return custom(record["spec"], stored, new)


def failures(topic: str, records: Iterable[Record]) -> list[str]:
    """Compare records with recomputed answers. Return the record names and the differences."""
    return [f"{topic}/{item['name']}: {text}" for item in records for text in check(topic, item)]


def differences(stored: Any, new: Any, tolerance: float = TOLERANCE, at: str = "") -> list[str]:
    """Compare two answers, and return a text for each difference.

    Parameters
    ----------
    stored, new : number, text, None, list or dict
        Lists of numbers are compared as vectors.
    tolerance : float
        Tolerance relative to the stored number, or to the largest entry of a stored list.
    at : str
        Path of the compared part in the answer.
    """
    if isinstance(stored, dict) and isinstance(new, dict):
        if stored.keys() != new.keys():
            return [f"{at or 'answer'}: stored {_short(stored)}, now {_short(new)}"]
        result = [differences(stored[k], new[k], tolerance, f"{at}.{k}".strip(".")) for k in stored]
        return [text for texts in result for text in texts]
    if isinstance(stored, list) and isinstance(new, list) and len(stored) == len(new):
        if not (_numbers(stored) and _numbers(new)):
            pairs = enumerate(zip(stored, new, strict=True))
            result = [differences(a, b, tolerance, f"{at}[{i}]") for i, (a, b) in pairs]
            return [text for texts in result for text in texts]
        return _distances(stored, new, tolerance, at)
    if _numbers([stored, new]):
        return _distances([stored], [new], tolerance, at)
    if type(stored) is not type(new) or stored != new:
        return [f"{at}: stored {_short(stored)}, now {_short(new)}"]
    return []


def _numbers(values: list[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _distances(stored: list[float], new: list[float], tolerance: float, at: str) -> list[str]:
    """Return a text if two vectors differ. NaN equals NaN, and an infinity equals itself."""
    a, b = np.asarray(stored, dtype=float), np.asarray(new, dtype=float)
    with np.errstate(invalid="ignore"):
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    allowed = tolerance * np.max(np.abs(a), initial=0.0, where=np.isfinite(a))
    differ = ~(distance <= allowed)
    if not differ.any():
        return []
    worst = int(np.argmax(np.where(np.isnan(distance), np.inf, distance)))
    place, others = (
        (f"[{worst}]", f", {differ.sum()} of {a.size} differ") if a.size > 1 else ("", "")
    )
    text = f"{distance[worst]:.1e} apart (allowed {allowed:.1e}){others}"
    return [f"{at}{place}: stored {stored[worst]!r}, now {new[worst]!r}; {text}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
