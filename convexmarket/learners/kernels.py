r"""Kernels with public bounds on their features.

The sensitivity of a prediction depends on :math:`R_\phi^2 = \sup_x k(x, x)`, the bound on feature
norms. It must be public: it is given, or follows from the kernel and a public ball of all rows. The
functions are those of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import pairwise_kernels

from convexmarket.checks import (
    LARGEST_ENTRY,
    check_count,
    check_nonnegative,
    check_scales,
    row_norms,
)
from convexmarket.errors import DataError, NotSupportedError, ParameterError

__all__ = ["Kernel", "KernelFunction", "cholesky_features"]

Floats = NDArray[np.float64]

#: A user-defined kernel: a function of two matrices of rows, with a matrix of values.
KernelFunction: TypeAlias = Callable[[Floats, Floats], Floats]

#: Parameters that scikit-learn's function of each name takes.
TAKES: dict[str, tuple[str, ...]] = {
    "linear": (),
    "poly": ("gamma", "degree", "coef0"),
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "cosine": (),
    "chi2": ("gamma",),
}
#: Kernels whose features have norm one, or zero.
UNIT = ("rbf", "laplacian", "cosine", "chi2")
INDEFINITE = ("sigmoid", "additive_chi2")
LARGEST_EXPONENT = 700.0  # of a float
SEMIDEFINITE_SLACK = 1e-6  # relative to the largest squared feature norm
NORM_SLACK = 1e-12  # relative; rows scaled to the bound in floating point may exceed it by rounding


@dataclass(frozen=True)
class Kernel:
    """A positive semidefinite kernel and the public domain of its rows.

    Parameters
    ----------
    name : str or callable
        One of scikit-learn's pairwise kernels, or a function of two matrices of rows.
    gamma : float
        Of "poly", "rbf", "laplacian" and "chi2"; positive.
    degree : int
        Of "poly"; at least 1.
    coef0 : float
        Of "poly"; nonnegative.
    data_norm : float or None
        Public bound on the Euclidean norm of every row.
    stated_bound : float or None
        Public bound on feature norms, where it is stated.

    Raises
    ------
    ParameterError
        If a parameter is out of its range, or nothing bounds the features.
    NotSupportedError
        If the kernel is not positive semidefinite.

    Examples
    --------
    >>> from convexmarket.learners import Kernel
    >>> float(Kernel("poly", degree=2, data_norm=1.0).feature_bound)  # (1 + 1)^2 = 4, its root
    2.0
    """

    name: str | KernelFunction
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0
    data_norm: float | None = None
    stated_bound: float | None = None

    def __post_init__(self) -> None:
        names = tuple(TAKES)
        if isinstance(self.name, str) and self.name in INDEFINITE:
            raise NotSupportedError(
                f"kernel {self.name!r} is not positive semidefinite, so no feature space bounds "
                f"what a row can do; use one of {names}"
            )
        if not callable(self.name) and not (isinstance(self.name, str) and self.name in TAKES):
            raise ParameterError(f"kernel must be callable or one of {names}, got {self.name!r}")
        check_scales(gamma=self.gamma)
        check_count("degree", self.degree)
        check_nonnegative("coef0", self.coef0)
        if self.data_norm is not None:
            check_scales(data_norm=self.data_norm)
        if self.stated_bound is not None:
            check_scales(feature_bound=self.stated_bound)
        elif self.name not in UNIT and (callable(self.name) or self.data_norm is None):
            raise ParameterError(
                f"nothing public bounds the features of kernel {self.name!r}; pass data_norm, a "
                "bound on the Euclidean norm of every row, or feature_bound, one on that of its "
                "features"
            )
        elif not np.isfinite(self.feature_bound):
            raise ParameterError(
                f"the features of kernel {self.name!r} have no finite bound at gamma = "
                f"{self.gamma:g}, degree = {self.degree}, coef0 = {self.coef0:g} and data_norm = "
                f"{self.data_norm:g}; give smaller numbers"
            )

    def __call__(self, X: Floats, Y: Floats) -> Floats:
        """Return the kernel of every row of X with every row of Y, shape (n_x, n_y)."""
        if not len(X) or not len(Y):
            return np.zeros((len(X), len(Y)))
        if callable(self.name):
            return np.asarray(self.name(X, Y), dtype=np.float64)
        if self.name == "rbf":  # by differences: squares lose the digits of rows far from zero
            return np.asarray(np.exp(-self.gamma * cdist(X, Y, "sqeuclidean")))
        parameters = {name: getattr(self, name) for name in TAKES[self.name]}
        return np.asarray(pairwise_kernels(X, Y, metric=self.name, **parameters))

    @property
    def feature_bound(self) -> float:
        """R_phi, a public bound on the norm of every feature vector."""
        if self.stated_bound is not None:
            return float(self.stated_bound)
        if self.name in UNIT:
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
        r"""How far features move apart at most, per distance of rows in the domain.

        Raises
        ------
        NotSupportedError
            If the feature map has no Lipschitz constant, or none is known.
        """
        if self.name == "linear":
            return 1.0
        if self.name == "rbf":
            return float(np.sqrt(2.0 * self.gamma))
        if self.name == "poly" and self.data_norm is not None:
            square, degree = self.data_norm**2, self.degree
            base = self.gamma * square + self.coef0
            slope = degree * self.gamma * base ** (degree - 1)
            if degree > 1:
                slope += degree * (degree - 1) * self.gamma**2 * square * base ** (degree - 2)
            return float(np.sqrt(slope))
        raise NotSupportedError(
            f"the features of kernel {self.name!r} have no known Lipschitz constant, so a net of "
            "points bounds nothing at the points between; use 'rbf', 'linear', or 'poly' with "
            "data_norm"
        )

    def diagonal(self, X: Floats) -> Floats:
        """Return the squared norms of the rows' features, shape (n_rows,)."""
        squares = np.einsum("ij,ij->i", X, X)
        if self.name == "linear":
            return np.asarray(squares)
        if self.name == "poly":
            return np.asarray((self.gamma * squares + self.coef0) ** self.degree)
        if self.name in UNIT:
            return np.where((squares > 0) | (self.name != "cosine"), 1.0, 0.0)
        return np.array([float(self(row[None, :], row[None, :])[0, 0]) for row in X])

    def check_domain(self, X: Floats, what: str) -> None:
        """Refuse rows outside the public domain, where nothing was promised.

        Raises
        ------
        DataError
            If the features of a row are longer than the bound, or a row of kernel "chi2" is
            negative.
        """
        if self.name == "chi2" and np.any(X < 0):
            raise DataError(f"{what} holds negative numbers, but kernel 'chi2' needs histograms")
        if not np.all(np.abs(X) <= LARGEST_ENTRY):  # kernels of such rows depend on rounding
            raise DataError(f"{what} holds rows whose norms overflow; scale them")
        if self.data_norm is not None:
            _refuse_long(row_norms(X), self.data_norm, "data_norm", what)
        norms = np.sqrt(np.maximum(self.diagonal(X), 0.0))
        _refuse_long(norms, self.feature_bound, "the bound on features,", what)


def _refuse_long(norms: Floats, bound: float, name: str, what: str) -> None:
    too_long = np.count_nonzero(~(norms <= bound * (1.0 + NORM_SLACK)))
    if too_long:
        raise DataError(
            f"{too_long} of {norms.size} rows of {what} exceed {name} = {bound:g}; project each "
            "row on the ball with convexmarket.datasets.scale_rows, or state a larger public "
            "bound"
        )


def cholesky_features(
    kernel: Kernel, X: Floats, weights: Floats, tol: float
) -> tuple[NDArray[np.intp], Floats, Floats]:
    r"""Factor the kernel matrix, pivot by pivot, until what is left out is small.

    The factorisation stops when the residuals r, the squared distances of the rows' features from
    the span of the pivots', have :math:`\sum_i a_i\sqrt{r_i}` below ``tol``, or drown in rounding.

    Returns
    -------
    pivots : ndarray of shape (rank,)
        Rows whose features span the others'.
    features : ndarray of shape (n_rows, rank)
        G, with :math:`GG^\top` the kernel matrix up to the residuals. Rows ``pivots`` of it are
        lower triangular.
    residuals : ndarray of shape (n_rows,)
        Diagonal of the difference, which is positive semidefinite.

    Raises
    ------
    NotSupportedError
        If the kernel turns out not to be positive semidefinite.
    """
    residuals = np.maximum(kernel.diagonal(X), 0.0)
    largest = float(residuals.max(initial=0.0))
    floor = 4.0 * np.finfo(np.float64).eps * largest
    slack = SEMIDEFINITE_SLACK * largest
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
        excess = np.abs(column) - np.sqrt(residuals[pivot] * residuals)
        if abs(column[pivot] - residuals[pivot]) > slack or np.any(excess > slack):
            raise NotSupportedError(
                "the kernel is not positive semidefinite on these rows, beyond rounding; use "
                "another, or scale the rows"
            )
        column /= np.sqrt(residuals[pivot])
        column[pivots] = 0.0
        features[:, rank] = column
        residuals = np.maximum(residuals - column**2, 0.0)
        residuals[pivot] = 0.0
        pivots.append(pivot)
    return np.array(pivots, dtype=np.intp), features[:, : len(pivots)].copy(), residuals
