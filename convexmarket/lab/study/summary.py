"""Everything that is computed from the runs of a solver study."""

from __future__ import annotations

import pandas as pd

from convexmarket.errors import ParameterError
from convexmarket.lab.study.metrics import counted, means, rates
from convexmarket.lab.study.profiles import profiles

__all__ = ["SUMMARIES", "summarise"]

#: What the runs say, in a table of each name: outcomes, costs, performance profiles.
SUMMARIES = {part.__name__: part for part in (rates, means, profiles)}


def summarise(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the table of each of the functions in ``SUMMARIES``, by its name.

    Parameters
    ----------
    runs : DataFrame
        One row per run, with the columns that
        :func:`convexmarket.lab.kinds.solver_study.run.run_solver_study` describes.

    Raises
    ------
    ParameterError
        If no solver supports any of the problems.
    """
    if counted(runs).empty:
        raise ParameterError(
            f"runs: none of the {len(runs)} counts, because no solver supports its problem; name "
            "other solvers or formulations"
        )
    return {name: part(runs) for name, part in SUMMARIES.items()}
