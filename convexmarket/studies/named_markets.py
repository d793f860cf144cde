"""Names and digests of the markets that a study is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from convexmarket.checks import is_iterable
from convexmarket.errors import ParameterError
from convexmarket.market import Market

__all__ = ["market_digest", "named_entries", "short_digest"]


def short_digest(*content: Any) -> str:
    """Return a digest of JSON values, equal in every session."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def market_digest(market: Market) -> str:
    """Return a digest of a market: its text, its sellers, and its objective at three points.

    A change of the code of a term changes the values of the objective.
    """
    sellers, rng = market.sellers, np.random.default_rng(0)
    digest = hashlib.sha256(repr(market).encode())
    digest.update(np.asarray(sellers.sensitivities, dtype=float).tobytes())
    digest.update(np.asarray(sellers.virtual_costs, dtype=float).tobytes())
    costs = np.where(np.isfinite(sellers.virtual_costs), sellers.virtual_costs, 0.0)
    for eta in (0.5, 1.0, 7.0):
        weights = rng.dirichlet(np.ones(len(sellers)))
        digest.update(f"{market.objective.value(weights, eta, costs):.9e}".encode())
    return digest.hexdigest()


def named_entries(argument: str, given: Any) -> dict[str, Any]:
    """Return the entries of a mapping, a list or a single entry by name.

    Raises
    ------
    ParameterError
        If ``given`` is empty, a name is not text, or two entries have the same name.
    """
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        single = isinstance(given, Market | str | PathLike) or callable(given)
        entries = [given] if single or not is_iterable(given) else list(given)
        pairs = [(_name(entry, place), entry) for place, entry in enumerate(entries, 1)]
    names = [name for name, _ in pairs]
    if not pairs or not all(isinstance(name, str) and name for name in names):
        raise ParameterError(f"{argument} must be a mapping from names to markets, or a list")
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ParameterError(
            f"{argument}: two entries are named {sorted(repeated)[0]!r}; give a mapping with "
            "different names"
        )
    return dict(pairs)


def _name(entry: Any, place: int) -> str:
    if isinstance(entry, str):
        return entry
    name = getattr(entry, "__name__", "<lambda>")
    return f"market {place}" if name == "<lambda>" else str(name)
