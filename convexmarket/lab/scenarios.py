"""Who owns which row and reports what, scenario by scenario."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from convexmarket.data.datasets import MarketData, correlate
from convexmarket.errors import ProblemFileError
from convexmarket.lab.problem.classification import ClassificationMarket
from convexmarket.lab.problem.market import SellersTable
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.problem.people import REPORTED, People, read_people
from convexmarket.lab.problem.rows import load_rows
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers

__all__ = ["classification_rows", "sellers_by_scenario"]


def classification_rows(problem: ClassificationMarket) -> tuple[MarketData, People | None]:
    """Return the rows of a market, and whose they are where the file is the user's own."""
    if isinstance(problem.data, OwnTable):
        people = read_people(problem)
        return people.classification(), people
    return load_rows(problem.data), None


def sellers_by_scenario(
    table: SellersTable,
    prior: Prior,
    rows: NDArray[np.float64],
    feature_names: Sequence[str],
    seed: np.random.SeedSequence,
    people: People | None = None,
) -> dict[str, Sellers]:
    """Return the sellers of each scenario: drawn once, in the order of each.

    Sellers who say themselves what they report are the one scenario "reported".

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
    people : People, optional
        Whose the rows are, where the data are the user's own.

    Raises
    ------
    ProblemFileError
        If sensitivities do not match the rows, or there is no such feature.
    """
    ids = None if people is None else people.ids
    if people is not None and people.reports is not None:
        return {REPORTED: Sellers(people.reports, prior, ids)}
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
    return {name: Sellers(reports[name], prior, ids) for name in table.scenarios}


def _column(names: Sequence[str], feature: str | int) -> int:
    """Return the position of a feature given by name or position."""
    if isinstance(feature, int) and feature < len(names):
        return feature
    if feature in names:
        return names.index(str(feature))
    raise ProblemFileError(
        f"sellers.correlated_with must be a position below {len(names)} or one of "
        f"{', '.join(names)}, got {feature!r}"
    )
