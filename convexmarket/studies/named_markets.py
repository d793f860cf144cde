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


def short_digest(*content: Any) -> str:
    """Return a digest of JSON values, equal in every session."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def market_digest(market: Market) -> str:
    """Return a digest of a market: its text, its sellers, and its objective at three points.

    A change of the code of a term changes the values of the objective.
    """
    sellers, rng = market.sellers, np.random.default_rng(0)
    costs = np.asarray(sellers.virtual_costs, dtype=float)
    finite = np.where(np.isfinite(costs), costs, 0.0)
    values = [
        f"{market.objective.value(rng.dirichlet(np.ones(costs.size)), eta, finite):.9e}"
        for eta in (0.5, 1.0, 7.0)
    ]
    numbers = np.asarray(sellers.sensitivities, dtype=float).tobytes() + costs.tobytes()
    return short_digest(repr(market), values, numbers.hex())


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
        single = isinstance(given, Market | str | PathLike) or not is_iterable(given)
        pairs = []
        for place, entry in enumerate([given] if single else given, 1):
            name = entry if isinstance(entry, str) else getattr(entry, "__name__", "<lambda>")
            pairs.append((f"market {place}" if name == "<lambda>" else name, entry))
    entries = dict(pairs)
    if not entries or not all(isinstance(name, str) and name for name in entries):
        raise ParameterError(f"{argument} must be a mapping from names to markets, or a list")
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = min(name for name in names if names.count(name) > 1)
        raise ParameterError(
            f"{argument}: two entries are named {repeated!r}; give a mapping with different names"
        )
    return entries
