"""Load real and synthetic data sets, split into sold rows, public rows and test rows.

Guarantees require public constants, so no scaling constant is computed from the rows that are sold.
Means and standard deviations are computed from the public validation rows, and each row is
projected separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import aligned, check_count, check_nonnegative, check_positive, check_share
from convexmarket.errors import DataError, ParameterError

__all__ = ["MarketData", "RegressionData", "circles", "correlate", "medical", "medical_table"]
__all__ += ["scale_rows", "synthetic", "synthetic_regression", "wdbc"]

Array = NDArray[np.float64]

#: Share of the public rows that lie in the ball without being projected.
_TYPICAL_QUANTILE = 0.9
#: Radius of the ball that is scaled to the unit ball. The outer circle has radius 1.
_CIRCLES_RADIUS = 1.5


@dataclass(frozen=True, eq=False)
class MarketData:
    """A data set in three parts, whose rows are in the ball of radius ``data_norm``.

    Attributes
    ----------
    X_train, y_train : ndarray of shape (n_sellers, n_features) and (n_sellers,)
        Rows that are sold, one per seller. All labels are -1 or 1.
    X_validation, y_validation : ndarray
        Public rows for scaling constants and hyperparameters.
    X_test, y_test : ndarray
        Rows for the final evaluation.
    feature_names : tuple of str
        Names of the columns of X. A constant column is called ``"intercept"``.
    data_norm : float
        The public bound on the Euclidean norm of every row.
    description : str
        Source of the rows, and their public scaling.
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


@dataclass(frozen=True, eq=False)
class RegressionData:
    """A regression problem in two parts, with rows in [0, 1] and labels in [-1, 1].

    See :class:`MarketData` for the attributes.
    """

    X_train: Array
    y_train: Array
    X_test: Array
    y_test: Array
    feature_names: tuple[str, ...]
    description: str


def scale_rows(X: ArrayLike, data_norm: float = 1.0) -> Array:
    """Project each row onto the ball of radius ``data_norm`` around the origin.

    Each row is projected independently of all other rows, so guarantees that require the bound
    remain valid.

    Parameters
    ----------
    X : array_like of shape (n_samples, n_features)
    data_norm : float
        Radius of the ball, positive.

    Examples
    --------
    >>> scale_rows([[3.0, 4.0], [0.3, 0.4]])
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    check_positive("data_norm", data_norm)
    rows = _finite_matrix(X)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * (data_norm / np.maximum(norms, data_norm))


def correlate(sensitivities: ArrayLike, X: ArrayLike, column: int) -> Array:
    """Permute sensitivities so that their ranks equal the ranks of one feature.

    Anjarlekar, Etesami and Srikant use this permutation to test robustness to correlations between
    data and sensitivities. Ties are broken by position.

    Parameters
    ----------
    sensitivities : array_like of shape (n_sellers,)
    X : array_like of shape (n_sellers, n_features)
    column : int
        Index of the feature.

    Raises
    ------
    ParameterError
        If the numbers of sensitivities and rows differ, or the column does not exist.

    Examples
    --------
    >>> correlate([0.3, 0.1, 0.2], [[5.0], [9.0], [7.0]], column=0)
    array([0.1, 0.3, 0.2])
    """
    sensitivities, X = aligned(sensitivities=sensitivities, X=X)
    values = np.asarray(sensitivities, dtype=np.float64)
    rows = _finite_matrix(X)
    if values.shape != (rows.shape[0],):
        raise ParameterError(
            f"sensitivities has shape {values.shape}, but X has {rows.shape[0]} rows"
        )
    if not -rows.shape[1] <= column < rows.shape[1]:
        raise ParameterError(f"column {column} is not one of the {rows.shape[1]} columns of X")
    correlated = np.empty_like(values)
    correlated[np.argsort(rows[:, column], kind="stable")] = np.sort(values)
    return correlated


def wdbc(
    random_state: int | np.random.Generator = 0,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
    data_norm: float = 1.0,
) -> MarketData:
    """Load the Wisconsin breast cancer data (569 tumours, 30 features, label 1 if malignant).

    Parameters
    ----------
    random_state : int or numpy.random.Generator
        Seed or generator of the random split.
    fractions : (float, float, float)
        Shares of the sold, public and test rows.
    data_norm : float
        Bound on the norm of every row.

    Returns
    -------
    MarketData
        Data with a constant column for the intercept. ``description`` states the scaling.

    Raises
    ------
    ParameterError
        If ``fractions`` are not positive or do not sum to one, or ``data_norm`` is not positive.
    """
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    names = tuple(str(name) for name in bunch.feature_names)
    X, y = bunch.data, np.where(bunch.target == 0, 1.0, -1.0)
    check_positive("data_norm", data_norm)
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.shape != (3,) or not np.all(shares > 0) or abs(shares.sum() - 1.0) > 1e-9:
        raise ParameterError(f"fractions must be three numbers > 0 with sum one, got {fractions!r}")
    ends = np.rint(np.cumsum(shares)[:2] * y.size).astype(int)
    train, validation, test = np.split(
        np.random.default_rng(random_state).permutation(y.size), ends
    )
    if min(train.size, validation.size, test.size) == 0:
        raise ParameterError(f"{y.size} rows are too few for the fractions {fractions!r}")
    mean, deviation = X[validation].mean(axis=0), X[validation].std(axis=0)
    deviation[deviation == 0] = 1.0
    standardised = np.column_stack([(X - mean) / deviation, np.ones(y.size)])
    norms = np.linalg.norm(standardised[validation], axis=1)
    typical = np.quantile(norms, _TYPICAL_QUANTILE)
    rows = scale_rows(standardised * (data_norm / typical), data_norm)
    return MarketData(
        *(rows[train], y[train], rows[validation], y[validation], rows[test], y[test]),
        feature_names=(*names, "intercept"),
        data_norm=data_norm,
        description=(
            "Wisconsin breast cancer (diagnostic); 1 is malignant. Features are centred and divided"
            f" by the mean and standard deviation of the {validation.size} public validation rows,"
            f" a constant 1 is appended, and the row is divided by {typical / data_norm:.6g}, which"
            f" brings {_TYPICAL_QUANTILE:.0%} of the validation rows into the ball of radius"
            f" {data_norm:g}. Then each row is projected onto this ball. No constant was computed"
            " from the rows that are sold."
        ),
    )


def circles(
    n_rows: int,
    noise: float = 0.15,
    factor: float = 0.4,
    random_state: int | np.random.Generator = 0,
) -> tuple[Array, Array]:
    """Draw points near two concentric circles; the two classes are not linearly separable.

    Parameters
    ----------
    n_rows : int
        At least 1. Half of the rows lie on each circle.
    noise : float
        Standard deviation in each coordinate, relative to the radius of the outer circle.
    factor : float
        Radius of the inner circle divided by the radius of the outer circle, in [0, 1).
    random_state : int or numpy.random.Generator
        Seed or generator of the rows.

    Returns
    -------
    X : ndarray of shape (n_rows, 2)
        Rows of ``sklearn.datasets.make_circles``, divided by 1.5 and projected onto the unit ball.
    y : ndarray of shape (n_rows,)
        1 for the inner circle, and -1 for the outer circle.

    Raises
    ------
    ParameterError
        If an argument is out of range.

    Examples
    --------
    >>> X, y = circles(4, noise=0.0, random_state=1)
    >>> np.linalg.norm(X, axis=1).round(3), y
    (array([0.667, 0.667, 0.267, 0.267]), array([-1., -1.,  1.,  1.]))
    """
    check_count("n_rows", n_rows)
    check_nonnegative("noise", noise)
    if not 0 <= factor < 1:
        raise ParameterError(f"factor must be at least 0 and below 1, got {factor!r}")
    state = np.random.RandomState(np.random.default_rng(random_state).bit_generator)
    from sklearn.datasets import make_circles

    X, inner = make_circles(n_rows, noise=noise, factor=factor, random_state=state)
    return scale_rows(X / _CIRCLES_RADIUS), np.where(inner == 1, 1.0, -1.0)


def synthetic(
    n_sellers: int,
    n_features: int,
    random_state: int | np.random.Generator = 0,
    n_validation: int = 500,
    n_test: int = 2000,
    data_norm: float = 1.0,
) -> MarketData:
    """Draw Gaussian inputs labelled by a hyperplane through the origin (A, section X).

    The coordinates are independent with mean zero and variance ``data_norm**2 / n_features``. Rows
    outside the ball are projected onto it. The projection does not change labels.

    Parameters
    ----------
    n_sellers, n_features : int
        Numbers of sold rows and of columns. At least 1.
    random_state : int or numpy.random.Generator
        Seed or generator of the hyperplane and the rows.
    n_validation, n_test : int
        Numbers of public rows and of test rows.
    data_norm : float
        Bound on the norm of every row.

    Raises
    ------
    ParameterError
        If a number is out of range.
    """
    if min(n_sellers, n_features) < 1 or min(n_validation, n_test) < 0:
        raise ParameterError(
            "n_sellers and n_features must be at least 1, and n_validation and n_test nonnegative"
        )
    check_positive("data_norm", data_norm)
    rng = np.random.default_rng(random_state)
    normal = rng.standard_normal(n_features)
    inputs = rng.standard_normal((n_sellers + n_validation + n_test, n_features))
    labels = np.where(inputs @ normal > 0, 1.0, -1.0)
    rows = scale_rows(inputs * (data_norm / np.sqrt(n_features)), data_norm)
    ends = [n_sellers, n_sellers + n_validation]
    X_train, X_validation, X_test = np.split(rows, ends)
    y_train, y_validation, y_test = np.split(labels, ends)
    return MarketData(
        *(X_train, y_train, X_validation, y_validation, X_test, y_test),
        feature_names=tuple(f"x{j}" for j in range(n_features)),
        data_norm=data_norm,
        description=(
            f"Synthetic: Gaussian inputs of variance {data_norm:g}^2/{n_features} per coordinate,"
            f" labelled by a hyperplane through the origin. Rows are projected onto the ball of"
            f" radius {data_norm:g}; no constant was computed from any row."
        ),
    )


#: Public ranges of the medical data. The ranges do not depend on the rows.
MEDICAL_RANGES = {
    "age": (18.0, 64.0),
    "bmi": (15.0, 55.0),
    "children": (0.0, 5.0),
    "charges": (1_000.0, 65_000.0),
}
#: Public categories of the medical data, with one feature for each category.
MEDICAL_CATEGORIES = {
    "sex": ("female", "male"),
    "smoker": ("no", "yes"),
    "region": ("northeast", "northwest", "southeast", "southwest"),
}


def medical_table() -> pd.DataFrame:
    """Load the published medical cost data of 1,338 persons and their yearly charges.

    The columns are age, sex, bmi, children, smoker, region and charges (US dollars). Source: Brett
    Lantz, Machine Learning with R, 2013; Database Contents License 1.0.
    """
    source = resources.files("convexmarket") / "data" / "insurance.csv"
    with source.open("r", encoding="utf-8") as file:
        return pd.read_csv(file)


def medical(
    train_fraction: float = 0.8,
    random_state: int | np.random.Generator = 0,
) -> RegressionData:
    """Load the medical cost data with 12 features, and the yearly charges as labels.

    Numeric features and labels are scaled to [0, 1]. Each category has one column, and a constant
    column represents the intercept (Acharya, Boenisch, Naidu and Ziani, section 4).

    Parameters
    ----------
    train_fraction : float
        Share of sold rows, in (0, 1).
    random_state : int or numpy.random.Generator
        Seed or generator of the random split.

    Examples
    --------
    >>> data = medical()
    >>> data.X_train.shape, data.X_test.shape
    ((1070, 12), (268, 12))
    """
    table = medical_table()
    unit = {
        name: (table[name] - low) / (high - low) for name, (low, high) in MEDICAL_RANGES.items()
    }
    labels = unit.pop("charges").to_numpy(dtype=np.float64)
    columns = {name: values.to_numpy(dtype=np.float64) for name, values in unit.items()}
    for name, values in MEDICAL_CATEGORIES.items():
        columns |= {f"{name} {value}": (table[name] == value).to_numpy(float) for value in values}
    columns["intercept"] = np.ones(labels.size)
    scaling = ", ".join(
        f"{name} {low:g} to {high:g}" for name, (low, high) in MEDICAL_RANGES.items()
    )
    return _in_two_parts(
        np.column_stack(list(columns.values())),
        labels,
        tuple(columns),
        "Medical cost personal data (Lantz, 2013): yearly charges of 1,338 persons. Scaled to"
        f" [0, 1] by public ranges: {scaling}; one column per category, and a constant.",
        train_fraction,
        random_state,
    )


def synthetic_regression(
    n_rows: int = 100,
    n_features: int = 30,
    random_state: int | np.random.Generator = 0,
    train_fraction: float = 0.8,
    label_noise: float = 0.0,
) -> RegressionData:
    r"""Draw uniform rows labelled by a linear model of norm one (Acharya et al., section 4).

    Labels are :math:`x^\top\theta^*/\sqrt d`, with :math:`\theta^*` uniform on the unit sphere.

    Parameters
    ----------
    n_rows, n_features : int
        Total number of rows, at least 2, and number of columns d, at least 1.
    random_state : int or numpy.random.Generator
        Seed or generator of the model, the rows and the split.
    train_fraction : float
        Share of sold rows, in (0, 1).
    label_noise : float
        Standard deviation of the noise in the labels, which are then clipped to [-1, 1].
    """
    check_count("n_rows", n_rows, 2)
    check_count("n_features", n_features)
    check_nonnegative("label_noise", label_noise)
    rng = np.random.default_rng(random_state)
    model = rng.standard_normal(n_features)
    model /= np.linalg.norm(model) * np.sqrt(n_features)
    rows = rng.random((n_rows, n_features))
    labels = np.clip(rows @ model + label_noise * rng.standard_normal(n_rows), -1.0, 1.0)
    return _in_two_parts(
        rows,
        labels,
        tuple(f"x{j}" for j in range(n_features)),
        f"Synthetic: rows are uniform in [0, 1]^{n_features}, and labels follow a linear model of"
        f" norm 1/sqrt({n_features}) with noise of standard deviation {label_noise:g}.",
        train_fraction,
        rng,
    )


def _finite_matrix(X: ArrayLike) -> Array:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or not np.all(np.isfinite(rows)):
        raise DataError("X must be a matrix of finite numbers, without missing values")
    return rows


def _in_two_parts(
    X: Array,
    y: Array,
    names: tuple[str, ...],
    description: str,
    train_fraction: float,
    seed: int | np.random.Generator,
) -> RegressionData:
    """Split the rows at random into sold rows and test rows."""
    check_share("train_fraction", train_fraction)
    n_train = int(np.clip(round(train_fraction * y.size), 1, y.size - 1))
    order = np.random.default_rng(seed).permutation(y.size)
    train, test = order[:n_train], order[n_train:]
    return RegressionData(X[train], y[train], X[test], y[test], names, description)
