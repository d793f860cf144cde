"""Transform tables into rows of a ball, with declared public ranges and categories.

A scaler that is fitted to private rows has parameters that depend on these rows. No guarantee
covers these parameters.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype, is_string_dtype
from sklearn.base import BaseEstimator, TransformerMixin

from convexmarket.checks import (
    LARGEST,
    SMALLEST,
    as_float,
    check_choice,
    check_scales,
    is_iterable,
    is_number,
)
from convexmarket.data.csv_rows import numbers_in
from convexmarket.data.lists import refuse
from convexmarket.data.tables import as_frame
from convexmarket.errors import DataError, ParameterError

__all__ = ["OTHER", "Missing", "PublicFeatures"]

Missing: TypeAlias = Literal["error", "middle", "indicator"]
Column: TypeAlias = tuple[float, float] | list[Any]

#: The category of all undeclared values.
OTHER = "other"
WRONG_NUMBER = "is not a number; write 1234.5, and leave the cell of a missing number empty"
#: Factor that keeps rows in the ball despite rounding errors.
INSIDE = 1.0 - 2.0**-48


class PublicFeatures(TransformerMixin, BaseEstimator):
    r"""Transform a table into rows of a ball, with declared public ranges and categories.

    Parameters
    ----------
    columns : mapping of str to pair of floats or list
        Public range or categories of each feature column, in order. A tuple (low, high) is the
        range of a number. A list gives the categories, and ``"other"`` represents all undeclared
        values. Undeclared columns are ignored.
    missing : {"error", "middle", "indicator"}, default "error"
        Treatment of empty cells. If ``"middle"`` or ``"indicator"``, a missing number is replaced
        by the middle of its range, and a missing category by zeros. If ``"indicator"``, a feature
        that is 1 for empty cells is added for each column.
    intercept : bool, default True
        Whether to append a constant feature, which replaces the intercept of a model.
    data_norm : float or None, default 1.0
        Euclidean radius R of the ball that contains every row. If ``None``, every feature is in
        [-1, 1].

    Attributes
    ----------
    n_features_out_ : int
        Number of features of a transformed row.

    Notes
    -----
    A number is transformed to ``2 * (x - low) / (high - low) - 1`` and clipped to [-1, 1]. A
    category is transformed to a one-hot vector. Each column therefore adds at most 1 to the squared
    norm of a row. All features are multiplied by :math:`R / \sqrt{k}`, where k is the number of
    columns, including the intercept. ``fit`` does not use rows. A transformed row depends only on
    the original row. A guarantee for transformed rows therefore covers the original rows. The error
    for an undeclared category reveals that a row contains an undeclared category. If sellers enter
    free text, declare ``"other"`` to accept every category.

    Examples
    --------
    >>> public = PublicFeatures({"age": (18, 100), "smoker": ["no", "yes"]}, missing="indicator")
    >>> patients = pd.DataFrame({"age": [59, None], "smoker": ["yes", "no"]}, index=["Ann", "Bob"])
    >>> public.set_output(transform="pandas").transform(patients).round(3)
         age  age missing  smoker=no  smoker=yes  smoker missing  intercept
    Ann  0.0        0.000      0.000       0.577             0.0      0.577
    Bob  0.0        0.577      0.577       0.000             0.0      0.577
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        missing: Missing = "error",
        intercept: bool = True,
        data_norm: float | None = 1.0,
    ) -> None:
        self.columns = columns
        self.missing = missing
        self.intercept = intercept
        self.data_norm = data_norm

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the declared columns. X and y are not used.

        Raises
        ------
        ParameterError
            If a range or a list of categories is not valid.
        """
        self._check()
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Transform every row of a table into a row in the ball.

        Parameters
        ----------
        X : DataFrame, or a table of Polars or pyarrow, of shape (n_rows, n_columns)
            Table with all declared columns. Undeclared columns are ignored.

        Returns
        -------
        ndarray of shape (n_rows, n_features_out)
            Rows of Euclidean norm at most ``data_norm``.

        Raises
        ------
        DataError
            If a column is missing, or a cell is not a number, has an undeclared category, or is
            empty with ``missing="error"``. The message contains the column and the index of the
            rows, but not the content of cells.
        """
        parts = self._features(X)
        scale = 1.0
        if self.data_norm is not None:
            scale = self.data_norm * INSIDE / np.sqrt(len(self.columns) + self.intercept)
        return parts * scale

    def transform_to_box(self, X: Any) -> NDArray[np.float64]:
        """Transform the rows into features in [0, 1] for ridge regression.

        The parameters, the shape of the result and the errors are as in :meth:`transform`. A number
        is transformed to ``(x - low) / (high - low)``, and a missing number to 0.5.
        """
        rows, numbers = self._features(X), self._numbers()
        rows[:, numbers] = (rows[:, numbers] + 1.0) / 2.0
        return rows

    def _features(self, X: Any) -> NDArray[np.float64]:
        """Compute the features before they are scaled into the ball."""
        self._check()
        table = as_frame(X)
        absent = [name for name in self.columns if name not in table.columns]
        if absent:
            raise DataError(
                f"the table has no column {absent[0]!r}, which is declared as a feature; the "
                f"table has the columns {', '.join(map(repr, table.columns))}"
            )
        parts = [self._part(table[name], name, public) for name, public in self.columns.items()]
        if self.intercept:
            parts.append(np.ones((len(table), 1)))
        return np.column_stack(parts)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the features of a transformed row. The argument is ignored."""
        names: list[str] = []
        for name, public in self.columns.items():
            names += [name] if isinstance(public, tuple) else [f"{name}={word}" for word in public]
            if self.missing == "indicator":
                names.append(f"{name} missing")
        return np.array([*names, *["intercept"] * self.intercept], dtype=object)

    @property
    def n_features_out_(self) -> int:
        """Number of features of a transformed row."""
        return len(self.get_feature_names_out())

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = self.missing != "error"
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _numbers(self) -> NDArray[np.bool_]:
        """Return a mask of the numeric features."""
        mask: list[bool] = []
        for public in self.columns.values():
            mask += [True] if isinstance(public, tuple) else [False] * len(public)
            mask += [False] * (self.missing == "indicator")
        return np.array(mask + [False] * self.intercept)

    def _part(self, cells: pd.Series[Any], name: str, public: Column) -> NDArray[np.float64]:
        """Compute the features of one column, before they are scaled into the ball."""
        is_empty, what = cells.isna(), f"the cell in column {name!r}"
        place = str(cells.index.name or "row")
        if self.missing == "error":
            why = 'is empty; omit such rows, or set missing to "indicator" or "middle"'
            refuse(place, is_empty, why, what)
        empty, filled = is_empty.to_numpy(bool), cells[~is_empty]
        if isinstance(public, tuple):
            low, high = map(float, public)
            if is_string_dtype(filled):
                numbers = numbers_in(filled)  # also reads decimal commas
            else:
                numbers = pd.to_numeric(filled, errors="coerce").astype(np.float64)
            refuse(place, numbers.isna(), WRONG_NUMBER, what)
            # Halve the bounds first, because the width of the range can overflow.
            middle, half = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0
            part = np.zeros(len(cells))
            part[~empty] = (numbers.clip(low, high) - middle) / half
        else:
            _check_types(filled, name, list(public))
            equal = [(cells == word).to_numpy(bool, na_value=False) for word in public]
            part = np.column_stack(equal).astype(np.float64)
            others = ~part.any(axis=1) & ~empty
            if OTHER in public:
                part[others, list(public).index(OTHER)] = 1.0
            why = (
                "is not among the declared categories; declare it as written in the column, or "
                f"declare {OTHER!r} for all undeclared values"
            )
            wrong = pd.Series(others & (OTHER not in public), cells.index)
            refuse(place, wrong, why, what)
        if self.missing == "indicator":
            part = np.column_stack([part, empty])
        return part.astype(np.float64)

    def _check(self) -> None:
        check_choice("missing", self.missing, Missing)
        if self.data_norm is not None:
            check_scales(data_norm=self.data_norm)
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise ParameterError(
                "columns must declare a public range or public categories of each feature: "
                "{'age': (18, 100), 'smoker': "
                f"['no', 'yes']}}, got {self.columns!r:.80}"
            )
        for name, public in self.columns.items():
            if remedy := _fault(public):
                raise ParameterError(f"columns[{name!r}] is {public!r:.200}; {remedy}")


def _check_types(filled: pd.Series[Any], name: str, categories: list[Any]) -> None:
    """Raise an error for a category whose type differs from the type of the cells."""
    numeric = is_numeric_dtype(filled)
    if len(filled) and (numeric or is_string_dtype(filled)):
        for word in categories:
            if word != OTHER and isinstance(word, str) == numeric:
                raise DataError(
                    f"column {name!r} holds {'numbers' if numeric else 'words'}, but its category "
                    f"{word!r} is of another type; declare categories as written in the column"
                )


def _fault(public: object) -> str:
    """Describe how to correct a declaration, or return an empty string if it is valid."""
    if isinstance(public, tuple):
        low, high = map(as_float, public) if len(public) == 2 else (np.nan, np.nan)
        if -LARGEST <= low < high <= LARGEST and high - low >= SMALLEST:
            return ""
        return "a range is a pair (low, high) of numbers of moderate size with low < high"
    if isinstance(public, str) or not is_iterable(public) or not list(public):
        return "give a tuple (low, high), or a list of categories"
    words = list(public)
    if len(words) == 2 and all(map(is_number, words)):
        return f"a range is a tuple, {tuple(words)!r}, which also represents two numeric categories"
    if not all(isinstance(word, Hashable) for word in words):
        return "a category is a word, a number or a truth value"
    return "list each category once" if len(set(words)) < len(words) else ""
