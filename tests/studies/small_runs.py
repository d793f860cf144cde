"""Build small tables of runs for tests with manually computed results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

LIMIT = 60.0


def run(solver: str, size: int = 100, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a run with total times of 1 s and 0.5 s (second solve), updated by ``changes``."""
    row: dict[str, Any] = {"problem_class": "ridge", "problem": "quickstart", "instance": ""}
    row |= {"size": size, "seed": seed, "formulation": "primal", "solver": solver}
    row |= {"setting": "default", "tolerance": 1e-6, "outcome": "solved", "accuracy": 1e-9}
    row |= {"total_s": 1.0, "again_total_s": 0.5, "peak_memory_mb": 200.0, "time_limit_s": LIMIT}
    row |= changes
    parts = {"declaration_s": 0.1, "compilation_s": 0.2, "solver_s": 0.6, "recovery_s": 0.1}
    if row["outcome"] in ("solved", "wrong", "inaccurate"):
        row |= {name: share * row["total_s"] for name, share in parts.items()}
        row |= {"again_solver_s": 0.1, "again_cold_s": 0.4}
    else:
        nothing = dict.fromkeys(
            (*parts, "total_s", "again_total_s", "again_solver_s", "again_cold_s"), np.nan
        )
        row |= {**nothing, "accuracy": np.inf}
    return row


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    """Convert runs to the table of runs that a study returns."""
    return pd.DataFrame(rows)


def only(table: pd.DataFrame, **values: Any) -> Any:
    """Return the only row of a table with the given values."""
    for name, value in values.items():
        table = table[table[name] == value]
    (row,) = table.to_dict("records")
    return row
