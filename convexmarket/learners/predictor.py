"""A predictor that may be published: kernels at points that are public, and their coefficients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import checked_numbers
from convexmarket.errors import DataError
from convexmarket.learners.kernels import Kernel
from convexmarket.privacy.guarantee import Guarantee

__all__ = ["PublicPredictor", "check_rows"]

Floats = NDArray[np.float64]

TINY = 1e-280  # squared feature norms below this count as zero


@dataclass(frozen=True, eq=False)
class PublicPredictor:
    """A function in the RKHS that was computed from released answers only.

    Parameters
    ----------
    kernel : Kernel
    points : ndarray of shape (n_points, n_features)
        Public points: queried ones, those of a test set, or those of a net.
    coefficients : ndarray of shape (n_points,)
        The function is their combination of the points' kernels.
    guarantee : Guarantee
        Of the release that it belongs to.
    classes : tuple of two labels, optional
        The public label set, where the loss classifies.
    feature_names : tuple of str, optional

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
        """Return the predictions at any rows; this reveals nothing more.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        """
        rows = check_rows(X, self.points.shape[1], self.feature_names)
        return np.asarray(self.kernel(rows, self.points) @ self.coefficients)

    def classify(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row: the second class where the prediction is positive.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)

        Raises
        ------
        DataError
            If the loss does not classify.
        """
        if self.classes is None:
            raise DataError("this predictor fits numbers, not classes; use predict")
        return np.asarray(self.classes)[(self.predict(X) > 0).astype(np.intp)]

    def corrected(
        self, point: Floats, answer: float, max_norm: float, divisor: float | None = None
    ) -> Self:
        r"""Return a function that is nearer to the answer at a point, drawn into a ball.

        If the truth f lies in the ball of radius ``max_norm``, :math:`|f(z) - v| \le x` for the
        answer v and the old function is off by d at z, the squared distance from f falls by
        :math:`(d^2 - x^2)/D` at least. The divisor D is at least k(z, z), the default.
        """
        row = point[None, :]
        square = float(self.kernel.diagonal(row)[0])
        if square <= TINY:  # every function is zero at this point
            return self
        step = (answer - float(self.predict(row)[0])) / (divisor or square)
        points, steps = np.vstack([self.points, row]), np.append(self.coefficients, step)
        moved = replace(self, points=points, coefficients=steps)
        shrunk = min(1.0, max_norm / max(moved.norm, TINY))
        return replace(moved, coefficients=moved.coefficients * shrunk)


def check_rows(X: ArrayLike, n_features: int, names: tuple[str, ...] | None = None) -> Floats:
    """Return rows as a finite matrix with the right columns, or raise a DataError.

    One row may be a vector. A table has columns of the given names, in their order.
    """
    columns = getattr(X, "columns", None)
    if names is not None and columns is not None and tuple(columns) != names:
        raise DataError(
            f"the columns of X are {list(columns)}, but the model was fitted to {list(names)}: "
            "select them in that order"
        )
    rows = np.array(checked_numbers("X", X, DataError, truth_values=True))
    rows = rows[None, :] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise DataError(
            f"X has shape {np.shape(X)}, but the model has {n_features} features; pass a matrix of "
            "that many columns"
        )
    if not np.all(np.isfinite(rows)):
        raise DataError("X holds missing or infinite numbers")
    return rows
