"""Everything that is computed from the runs of a solver study."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from convexmarket.errors import ParameterError
from convexmarket.lab.study.metrics import counted, means, rates
from convexmarket.lab.study.pairs import pairs
from convexmarket.lab.study.profiles import profiles
from convexmarket.lab.study.scaling import scaling

__all__ = ["Summary", "summarise"]


@dataclass(frozen=True, eq=False)
class Summary:
    """What the runs of a solver study say; a frame of each of the functions of the same names.

    Attributes
    ----------
    rates : DataFrame
        Outcomes: :func:`convexmarket.lab.study.metrics.rates`.
    means : DataFrame
        Costs: :func:`convexmarket.lab.study.metrics.means`.
    profiles : DataFrame
        Performance profiles: :func:`convexmarket.lab.study.profiles.profiles`.
    scaling : DataFrame
        Growth with size: :func:`convexmarket.lab.study.scaling.scaling`.
    pairs : DataFrame
        Contenders two by two: :func:`convexmarket.lab.study.pairs.pairs`.
    """

    rates: pd.DataFrame
    means: pd.DataFrame
    profiles: pd.DataFrame
    scaling: pd.DataFrame
    pairs: pd.DataFrame


def summarise(runs: pd.DataFrame) -> Summary:
    """Compute rates, means, profiles, exponents and pairwise ratios.

    Parameters
    ----------
    runs : DataFrame
        One row per run, with the columns that
        :class:`convexmarket.lab.kinds.solver_study.run.SolverStudyResult` describes.

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
    return Summary(rates(runs), means(runs), profiles(runs), scaling(runs), pairs(runs))
