"""Data to sell: real and synthetic, split into what is sold, what is public, and what is tested.

A seller's promise rests on public constants, so nothing here computes a scaling from the rows that
are sold. Means and standard deviations come from the public validation rows; projecting a row on
the ball looks at that row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.datasets import load_breast_cancer

from convexmarket.errors import DataError, ParameterError

__all__ = ["MarketData", "correlate", "from_csv", "scale_rows", "synthetic", "wdbc"]

Array = NDArray[np.float64]

TYPICAL_QUANTILE = 0.9  # of the public rows' norms: what is scaled to the bound


@dataclass(frozen=True, eq=False)
class MarketData:
    """A data set in three parts, every row within the ball of radius ``data_norm``.

    Parameters
    ----------
    X_train, y_train : ndarray of shape (n_sellers, n_features) and (n_sellers,)
        What is sold: one row per seller. Labels are -1 or 1 throughout.
    X_validation, y_validation : ndarray
        Public rows, for scaling constants and hyperparameters.
    X_test, y_test : ndarray
        Rows for the final figures.
    feature_names : tuple of str
        One name per column of the X; a constant column is called ``"intercept"``.
    data_norm : float
        The public bound on the Euclidean norm of every row.
    description : str
        Where the rows come from, and how their scaling was made public.
    """

    X_train: Array
    y_train: Array
    X_validation: Array
    y_validation: Array
    X_test: Array
    y_test: Array
    feature_names: tuple[str, ...]
    data_norm: float
    description: str


def scale_rows(X: ArrayLike, data_norm: float = 1.0) -> Array:
    """Project each row on the ball: rows longer than ``data_norm`` are shortened to it.

    Each row is treated alone, so the result keeps every guarantee that the bound is needed for.

    Parameters
    ----------
    X : array_like of shape (n_samples, n_features)
    data_norm : float, default 1.0
        Radius of the ball, positive.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        A copy.

    Raises
    ------
    ParameterError
        If ``data_norm`` is not positive and finite.
    DataError
        If X is not a finite matrix.

    Examples
    --------
    >>> scale_rows([[3.0, 4.0], [0.3, 0.4]])
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    _check_data_norm(data_norm)
    rows = _finite_matrix(X)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * (data_norm / np.maximum(norms, data_norm))


def correlate(sensitivities: ArrayLike, X: ArrayLike, column: int) -> Array:
    """Permute the sensitivities so that they rank as one feature does.

    The seller with the k-th smallest value of the feature gets the k-th smallest sensitivity: how
    Anjarlekar, Etesami and Srikant test robustness to correlations between data and
    sensitivities. Ties are broken by position.

    Parameters
    ----------
    sensitivities : array_like of shape (n_sellers,)
    X : array_like of shape (n_sellers, n_features)
    column : int
        Index of the feature.

    Returns
    -------
    ndarray of shape (n_sellers,)

    Raises
    ------
    ParameterError
        If there is not one sensitivity per row, or no such column.

    Examples
    --------
    >>> correlate([0.3, 0.1, 0.2], [[5.0], [9.0], [7.0]], column=0)
    array([0.1, 0.3, 0.2])
    """
    values = np.asarray(sensitivities, dtype=np.float64)
    rows = _finite_matrix(X)
    if values.shape != (rows.shape[0],):
        raise ParameterError(
            f"sensitivities has shape {values.shape}, but X has {rows.shape[0]} rows."
        )
    if not -rows.shape[1] <= column < rows.shape[1]:
        raise ParameterError(f"column {column} is not one of the {rows.shape[1]} columns of X.")
    correlated = np.empty_like(values)
    correlated[np.argsort(rows[:, column], kind="stable")] = np.sort(values)
    return correlated


def wdbc(
    seed: int | np.random.Generator = 0,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
    data_norm: float = 1.0,
) -> MarketData:
    """Wisconsin breast cancer data: 569 tumours, 30 features, label 1 for a malignant one.

    Parameters
    ----------
    seed : int or numpy.random.Generator, default 0
        Decides the split.
    fractions : (float, float, float), default (0.6, 0.2, 0.2)
        Shares of the rows that are sold, public, and for testing.
    data_norm : float, default 1.0
        Bound on the norm of every row.

    Returns
    -------
    MarketData
        With a constant column for the intercept; see its ``description`` for the scaling.

    Raises
    ------
    ParameterError
        If ``fractions`` are not positive or do not sum to one, or ``data_norm`` is not positive.
    """
    bunch = load_breast_cancer()
    names = tuple(str(name) for name in bunch.feature_names)
    labels = np.where(bunch.target == 0, 1.0, -1.0)
    title = "Wisconsin breast cancer (diagnostic); 1 is malignant"
    return _split_and_scale(bunch.data, labels, names, title, seed, fractions, data_norm)


def from_csv(
    path: str | PathLike[str],
    target: str,
    classes: Sequence[Any],
    seed: int | np.random.Generator = 0,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
    data_norm: float = 1.0,
) -> MarketData:
    """Read a table of numbers with one column of labels.

    Parameters
    ----------
    path : str or path
        A CSV file with a header.
    target : str
        Name of the column of labels.
    classes : pair of labels
        The public label set, as read by pandas; the second becomes 1, the first -1.
    seed, fractions, data_norm
        As for :func:`wdbc`.

    Returns
    -------
    MarketData

    Raises
    ------
    DataError
        If the column of labels is missing, a label is none of ``classes``, or another column holds
        anything but finite numbers.
    ParameterError
        If ``classes`` are not two different labels, or as for :func:`wdbc`.
    """
    if len(classes) != 2 or classes[0] == classes[1]:
        raise ParameterError(f"classes must be two different labels, not {classes!r}.")
    table = pd.read_csv(path)
    if target not in table.columns:
        raise DataError(f"{path} has no column {target!r}; it has {', '.join(table.columns)}.")
    unknown = int((~table[target].isin(list(classes))).sum())
    if unknown:
        raise DataError(f"{unknown} labels in column {target!r} of {path} are none of {classes!r}.")
    features = table.drop(columns=target)
    words = [str(name) for name in features.select_dtypes(exclude="number").columns]
    if words:
        raise DataError(f"these columns of {path} are not numbers: {', '.join(words)}.")
    labels = np.where(table[target] == classes[1], 1.0, -1.0)
    names = tuple(str(name) for name in features.columns)
    title = f"{path}; 1 is {classes[1]!r} in column {target!r}"
    return _split_and_scale(
        features.to_numpy(dtype=np.float64), labels, names, title, seed, fractions, data_norm
    )


def synthetic(
    n_sellers: int,
    n_features: int,
    seed: int | np.random.Generator = 0,
    n_validation: int = 500,
    n_test: int = 2000,
    data_norm: float = 1.0,
) -> MarketData:
    """Gaussian inputs labelled by a hyperplane through the origin.

    The coordinates are independent, of mean zero and variance ``data_norm**2 / n_features``, and
    rows outside the ball are projected on it, which changes no label.

    Parameters
    ----------
    n_sellers, n_features : int
        Rows that are sold, and columns; at least 1.
    seed : int or numpy.random.Generator, default 0
        Decides the hyperplane and the rows.
    n_validation, n_test : int
        Public rows and rows for testing.
    data_norm : float, default 1.0
        Bound on the norm of every row.

    Returns
    -------
    MarketData

    Raises
    ------
    ParameterError
        If a number is too small.

    References
    ----------
    Anjarlekar, Etesami and Srikant, Mechanism Design for Heterogeneous Differentially Private
    Data Acquisition for Logistic Regression, Section X.
    """
    if min(n_sellers, n_features) < 1 or min(n_validation, n_test) < 0:
        raise ParameterError(
            "n_sellers and n_features must be at least 1, n_validation and n_test not negative."
        )
    _check_data_norm(data_norm)
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(n_features)
    inputs = rng.standard_normal((n_sellers + n_validation + n_test, n_features))
    labels = np.where(inputs @ normal > 0, 1.0, -1.0)
    rows = scale_rows(inputs * (data_norm / np.sqrt(n_features)), data_norm)
    ends = [n_sellers, n_sellers + n_validation]
    X_train, X_validation, X_test = np.split(rows, ends)
    y_train, y_validation, y_test = np.split(labels, ends)
    return MarketData(
        X_train,
        y_train,
        X_validation,
        y_validation,
        X_test,
        y_test,
        feature_names=tuple(f"x{j}" for j in range(n_features)),
        data_norm=data_norm,
        description=(
            f"Synthetic: Gaussian inputs of variance {data_norm:g}^2/{n_features} per coordinate,"
            f" labelled by a hyperplane through the origin. Rows are projected on the ball of"
            f" radius {data_norm:g}; no constant was computed from any row."
        ),
    )


def _split_and_scale(
    X: Array,
    y: Array,
    names: tuple[str, ...],
    title: str,
    seed: int | np.random.Generator,
    fractions: tuple[float, float, float],
    data_norm: float,
) -> MarketData:
    """Split at random, then scale every part with constants of the public part."""
    _check_data_norm(data_norm)
    X = _finite_matrix(X)
    train, validation, test = _split(X.shape[0], fractions, np.random.default_rng(seed))
    mean, deviation = X[validation].mean(axis=0), X[validation].std(axis=0)
    deviation[deviation == 0] = 1.0
    standardised = np.column_stack([(X - mean) / deviation, np.ones(X.shape[0])])
    typical = np.quantile(np.linalg.norm(standardised[validation], axis=1), TYPICAL_QUANTILE)
    rows = scale_rows(standardised * (data_norm / typical), data_norm)
    return MarketData(
        rows[train],
        y[train],
        rows[validation],
        y[validation],
        rows[test],
        y[test],
        feature_names=(*names, "intercept"),
        data_norm=data_norm,
        description=(
            f"{title}. Features are centred and divided by the mean and standard deviation of the"
            f" {validation.size} public validation rows, a constant 1 is appended, and the row is"
            f" divided by {typical / data_norm:.6g}, which brings {TYPICAL_QUANTILE:.0%} of the"
            f" validation rows into the ball of radius {data_norm:g}. Then each row is projected"
            " on that ball. No constant was computed from the rows that are sold."
        ),
    )


def _split(
    n_rows: int, fractions: tuple[float, float, float], rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    """Return three random index sets, whose sizes follow the fractions."""
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.shape != (3,) or not np.all(shares > 0) or abs(shares.sum() - 1.0) > 1e-9:
        raise ParameterError(f"fractions must be three positive shares of one, not {fractions!r}.")
    ends = np.rint(np.cumsum(shares)[:2] * n_rows).astype(int)
    parts = np.split(rng.permutation(n_rows), ends)
    if min(part.size for part in parts) == 0:
        raise DataError(f"{n_rows} rows are too few to be split by {fractions!r}.")
    return parts


def _check_data_norm(data_norm: float) -> None:
    if not (np.isfinite(data_norm) and data_norm > 0):
        raise ParameterError(f"data_norm must be positive and finite, not {data_norm!r}.")


def _finite_matrix(X: ArrayLike) -> Array:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or not np.all(np.isfinite(rows)):
        raise DataError("X must be a matrix of finite numbers: no missing values, no infinities.")
    return rows
