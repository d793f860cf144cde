"""Who owns which row and reports what, scenario by scenario."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from convexmarket.data.datasets import correlate
from convexmarket.errors import ProblemFileError
from convexmarket.lab.problem.market import SellersTable
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers

__all__ = ["sellers_by_scenario"]


def sellers_by_scenario(
    table: SellersTable,
    prior: Prior,
    rows: NDArray[np.float64],
    feature_names: Sequence[str],
    seed: np.random.SeedSequence,
) -> dict[str, Sellers]:
    """Return the sellers of each scenario: drawn once, in the order of each.

    Parameters
    ----------
    table : SellersTable
        What the problem file says of the sellers.
    prior : Prior
    rows : ndarray of shape (n_sellers, n_features)
        What is sold.
    feature_names : sequence of str
    seed : SeedSequence
        Of the sensitivities, where the file does not give them.

    Raises
    ------
    ProblemFileError
        If sensitivities do not match the rows, or there is no such feature.
    """
    if table.sensitivities is None:
        drawn = prior.sample(len(rows), np.random.default_rng(seed))
    else:
        drawn = np.array(table.sensitivities)
    if drawn.size != len(rows):
        raise ProblemFileError(
            f"sellers.sensitivities has {drawn.size} entries for {len(rows)} training rows; give "
            "one for each, or leave them out to draw them from the prior"
        )
    reports = {"independent": drawn}
    if "correlated" in table.scenarios:
        column = _column(feature_names, table.correlated_with)
        reports["correlated"] = correlate(drawn, rows, column)
    return {name: Sellers(reports[name], prior) for name in table.scenarios}


def _column(names: Sequence[str], feature: str | int) -> int:
    """Return the position of a feature given by name or position."""
    if isinstance(feature, int) and feature < len(names):
        return feature
    if feature in names:
        return names.index(str(feature))
    raise ProblemFileError(
        f"sellers.correlated_with is {feature!r}; give a position below {len(names)} or one of "
        f"{', '.join(names)}"
    )
