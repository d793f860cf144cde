r"""Kernels with public bounds on the norms of features, and predictors that can be published.

The bound on feature norms, :math:`R_\phi^2 = \sup_x k(x, x)`, must be public. It is computed from
the kernel and a public ball that contains all rows. Kernels are defined as in scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.preprocessing import normalize

from convexmarket.checks import (
    LARGEST_ENTRY,
    check_count,
    check_nonnegative,
    check_scales,
    checked_numbers,
)
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.learners.domain import Ball
from convexmarket.privacy.guarantee import Guarantee

Floats = NDArray[np.float64]

#: Names of the kernels in scikit-learn.
NAMES = ("linear", "poly", "rbf", "laplacian", "cosine")
#: Kernels whose feature norms depend on the rows. The features of other kernels have norm 1 or 0.
UNBOUNDED = ("linear", "poly")
LARGEST_EXPONENT = 700.0  # largest exponent without overflow
TINY = 1e-280  # squared norms of features below this number are treated as zero


@dataclass(frozen=True)
class Kernel:
    """A positive semidefinite kernel and the public domain of the rows.

    Parameters
    ----------
    name, gamma, degree, coef0
        Name and parameters in scikit-learn: "linear", "poly", "rbf", "laplacian" or "cosine".
    data_norm : float or None
        Public bound on the Euclidean norm of every row.

    Examples
    --------
    >>> from convexmarket.learners import Kernel
    >>> float(Kernel("poly", degree=2, data_norm=1.0).feature_bound)  # (1 + 1)^2 = 4, its root
    2.0
    """

    name: str
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0
    data_norm: float | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name in NAMES):
            raise ParameterError(f"kernel must be one of {NAMES}, got {self.name!r:.80}")
        check_scales(gamma=self.gamma)
        check_count("degree", self.degree)
        check_nonnegative("coef0", self.coef0)
        if self.data_norm is not None:
            check_scales(data_norm=self.data_norm)
        elif self.name in UNBOUNDED:
            raise ParameterError(
                f"the features of kernel {self.name!r} have no known public bound; pass "
                "data_norm, a bound on the Euclidean norm of every row"
            )
        if not np.isfinite(self.feature_bound):
            raise ParameterError(f"the features of {self!r} have no finite bound; scale the rows")

    def __call__(self, X: Floats, Y: Floats) -> Floats:
        """Compute the kernel matrix of X and Y, shape (n_x, n_y)."""
        if not len(X) or not len(Y):
            return np.zeros((len(X), len(Y)))
        if self.name == "rbf":  # differences avoid cancellation for rows far from zero
            return np.asarray(np.exp(-self.gamma * cdist(X, Y, "sqeuclidean")))
        if self.name == "laplacian":
            return np.asarray(np.exp(-self.gamma * cdist(X, Y, "cityblock")))
        if self.name == "cosine":
            X, Y = normalize(X), normalize(Y)
        products = np.asarray(X @ Y.T)
        return (
            (self.gamma * products + self.coef0) ** self.degree if self.name == "poly" else products
        )

    @property
    def feature_bound(self) -> float:
        """Public bound R_phi on the norm of every feature vector."""
        if self.name not in UNBOUNDED:
            return 1.0
        assert self.data_norm is not None
        if self.name == "linear":
            return float(self.data_norm)
        square = float(self.gamma * float(self.data_norm) ** 2 + self.coef0)
        if square > 1.0 and self.degree * np.log(square) > LARGEST_EXPONENT:
            return float("inf")
        return float(np.sqrt(square**self.degree))

    @property
    def feature_lipschitz(self) -> float:
        """Lipschitz constant of the feature map on the domain.

        Raises
        ------
        NotSupportedError
            If no constant is known for the kernel.
        """
        if self.name == "linear":
            return 1.0
        if self.name == "rbf":
            return float(np.sqrt(2.0 * self.gamma))
        if self.name == "poly":
            assert self.data_norm is not None
            square, degree = self.data_norm**2, self.degree
            base = self.gamma * square + self.coef0
            slope = degree * self.gamma * base ** (degree - 1)
            if degree > 1:
                slope += degree * (degree - 1) * self.gamma**2 * square * base ** (degree - 2)
            return float(np.sqrt(slope))
        raise NotSupportedError(
            f"the features of kernel {self.name!r} have no known Lipschitz constant, so a net of "
            "points gives no bound between the points; use 'rbf', 'linear' or 'poly'"
        )

    def diagonal(self, X: Floats) -> Floats:
        """Compute the squared feature norm of each row, shape (n_rows,)."""
        squares = np.asarray(np.einsum("ij,ij->i", X, X))
        if self.name == "linear":
            return squares
        if self.name == "poly":
            return np.asarray((self.gamma * squares + self.coef0) ** self.degree)
        return np.where((squares > 0) | (self.name != "cosine"), 1.0, 0.0)

    def check_domain(self, X: Floats, what: str) -> None:
        """Check that rows are in the public domain.

        Raises
        ------
        DataError
        """
        if not np.all(np.abs(X) <= LARGEST_ENTRY):  # kernel values would be rounding errors
            raise DataError(f"{what} has rows whose norms overflow; scale these rows")
        if self.data_norm is not None:
            Ball(self.data_norm).rows(X, f"rows of {what}")


def cholesky_features(
    kernel: Kernel, X: Floats, weights: Floats, tol: float
) -> tuple[NDArray[np.intp], Floats, Floats]:
    r"""Compute a pivoted Cholesky factorisation until the residuals are small.

    Return the pivots, the features G of shape (n_rows, rank), and r, the diagonal of the kernel
    matrix minus :math:`GG^\top`. The pivot rows of G are lower triangular. The factorisation
    stops when :math:`\sum_i a_i\sqrt{r_i}` is at most ``tol`` or r consists of rounding errors.
    """
    residuals = np.maximum(kernel.diagonal(X), 0.0)
    floor = 4.0 * np.finfo(np.float64).eps * float(residuals.max(initial=0.0))
    features = np.empty((len(X), 16), order="F")
    pivots: list[int] = []
    while len(pivots) < len(X):
        pivot = int(np.argmax(residuals))
        if residuals[pivot] <= floor or weights @ np.sqrt(residuals) <= tol:
            break
        rank = len(pivots)
        if rank == features.shape[1]:
            features = np.concatenate([features, np.empty_like(features)], axis=1)
        column = kernel(X, X[pivot : pivot + 1])[:, 0]
        column -= features[:, :rank] @ features[pivot, :rank]
        column /= np.sqrt(residuals[pivot])
        column[pivots] = 0.0
        features[:, rank] = column
        residuals = np.maximum(residuals - column**2, 0.0)
        residuals[pivot] = 0.0
        pivots.append(pivot)
    return np.array(pivots, dtype=np.intp), features[:, : len(pivots)].copy(), residuals


@dataclass(frozen=True, eq=False)
class PublicPredictor:
    """A function in the RKHS that is computed only from released answers.

    Parameters
    ----------
    kernel, points, coefficients
        The function is the sum of ``coefficients[i] * kernel(x, points[i])``. Points are public.
    guarantee : Guarantee
        Guarantee of the release.
    classes, feature_names : tuples, optional
        The public label set of a classifier, and the column names of a table.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, (200, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> import convexmarket as cm
    >>> erm = cm.KernelERM(regularization=0.1, data_norm=1.0).fit(X, y)
    >>> release = cm.release.PublicRelease(erm, 1.0, 1e-6, rounds=5, net_radius=0.2)
    >>> release.predictor.predict(X[:1]).shape
    (1,)
    """

    kernel: Kernel
    points: Floats
    coefficients: Floats
    guarantee: Guarantee
    classes: tuple[Any, Any] | None = None
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("points", "coefficients"):
            values = np.array(getattr(self, name), dtype=np.float64, order="C")
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @property
    def norm(self) -> float:
        """Norm of the function in the RKHS."""
        square = float(self.coefficients @ self.predict(self.points))
        return float(np.sqrt(max(square, 0.0)))

    def predict(self, X: ArrayLike) -> Floats:
        """Compute the prediction for each row of X."""
        rows = check_rows(X, self.points.shape[1], self.feature_names)
        return np.asarray(self.kernel(rows, self.points) @ self.coefficients)

    def classify(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row, the second class where the prediction is positive.

        Raises
        ------
        DataError
            If the predictor has no classes.
        """
        if self.classes is None:
            raise DataError("this predictor has no classes; use predict")
        return np.asarray(self.classes)[(self.predict(X) > 0).astype(np.intp)]

    def corrected(
        self, point: Floats, answer: float, max_norm: float, divisor: float | None = None
    ) -> Self:
        r"""Move the function towards the answer at a point, and project the result onto a ball.

        Let the true function f be in the ball of radius ``max_norm``. Let d be the error of the old
        function at the point z, and x a bound on the error of the answer. If ``divisor`` D is at
        least k(z, z), the default, the squared distance from f falls by at least (d^2 - x^2)/D.
        """
        row = point[None, :]
        square = float(self.kernel.diagonal(row)[0])
        if square <= TINY:  # all functions in the RKHS vanish at this point
            return self
        step = (answer - float(self.predict(row)[0])) / (divisor or square)
        points, steps = np.vstack([self.points, row]), np.append(self.coefficients, step)
        moved = replace(self, points=points, coefficients=steps)
        shrunk = min(1.0, max_norm / max(moved.norm, TINY))
        return replace(moved, coefficients=moved.coefficients * shrunk)


def check_rows(X: ArrayLike, n_features: int, names: tuple[str, ...] | None = None) -> Floats:
    """Convert rows to a finite matrix with the right columns, or raise a DataError.

    A vector is treated as one row. The columns of a table must have the given names in this order.
    """
    columns = getattr(X, "columns", None)
    if names is not None and columns is not None and tuple(columns) != names:
        raise DataError(f"the columns of X are {list(columns)}; select {list(names)} in that order")
    rows = np.array(checked_numbers("X", X, DataError, truth_values=True))
    rows = rows[None, :] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise DataError(f"X has shape {np.shape(X)}, but the model has {n_features} features")
    if not np.all(np.isfinite(rows)):
        raise DataError("X contains missing or infinite numbers")
    return rows
