"""Compute offers for lists of sellers as the command line does."""

from __future__ import annotations

from os import PathLike
from typing import Any

import convexmarket as cm


def price_list(
    table: Any,
    prior: Any,
    *,
    mu: float,
    sigma: float,
    cap: float | None = None,
    id: str | None = None,
    **options: Any,
) -> cm.Deal:
    """Compute offers for a table of sellers with the objective of the papers, and ids in "id"."""
    if id is None and not isinstance(table, str | PathLike):
        id = "id"
    objective = mu * cm.Spread() + sigma * cm.Noise()
    limits = [] if cap is None else [cm.Cap(cap)]
    return cm.price(table, prior=prior, objective=objective, constraints=limits, id=id, **options)
