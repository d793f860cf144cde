"""The rows that the sellers of an online market own, matched by their ids."""

from __future__ import annotations

from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem, OwnSellers
from convexmarket.lab.problem.classification import InlineData
from convexmarket.lab.problem.people import SOLD, check_file, read_people, read_public
from convexmarket.lab.problem.rows import load_rows
from convexmarket.online.release import MarketRows

__all__ = ["check_public", "owned_rows"]


def owned_rows(problem: OnlineMarketProblem) -> MarketRows:
    """Return the rows that a problem names, with their owners.

    Raises
    ------
    DataError
        If a file cannot be read, or holds a bad row; the message names the lines.
    """
    data = problem.data
    if isinstance(data, OwnSellers):
        people = read_people(problem)
        X, y = people.signed_rows(SOLD)
        return MarketRows(
            people.ids,
            X,
            y,
            *(people.signed_rows("test") if data.test else (X[:0], y[:0])),
            feature_names=people.feature_names,
            data_norm=data.data_norm,
            description=people.description,
            classes=data.classes,
            reports=people.reports,
            features=people.features,
        )
    rows = load_rows(data)
    public = not isinstance(data, InlineData)  # its rows are all private
    return MarketRows(
        ids=[f"row-{number}" for number in range(rows.y_train.size)],
        X=rows.X_train,
        y=rows.y_train,
        X_test=rows.X_test if public else rows.X_test[:0],
        y_test=rows.y_test if public else rows.y_test[:0],
        feature_names=rows.feature_names,
        data_norm=rows.data_norm,
        description=rows.description if public else "Rows of the problem file.",
    )


def check_public(problem: OnlineMarketProblem) -> None:
    """Check the public rows of a market, and the file of private rows if it exists already.

    Raises
    ------
    DataError
        If a file cannot be read, or is not as declared.
    """
    if isinstance(problem.data, OwnSellers):
        read_public(problem)
        check_file(problem)
