"""Rows in a ball whose radius is public: checked, and never longer than it once they are let in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.checks import row_norms, warn_user
from convexmarket.errors import DataError, PrivacyLeakWarning

__all__ = ["bounded_rows"]

#: Relative; rows scaled to the bound in floating point may exceed it by rounding. In single
#: precision a norm is off by half a rounding per feature, and a handful more.
NORM_SLACK = 1e-12
SINGLE_PRECISION = 2.0**-23
DOUBLE_PRECISION = 2.0**-52


def bounded_rows(X: NDArray[Any], data_norm: float | None) -> tuple[NDArray[np.float64], float]:
    """Return rows in double precision, none longer than the bound, and the bound.

    A row that exceeds it by the rounding of its own precision is scaled back, by itself.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Finite, of single or double precision.
    data_norm : float or None
        The public bound on every row's Euclidean norm. ``None`` takes the largest norm, with a
        :class:`~convexmarket.errors.PrivacyLeakWarning`.

    Returns
    -------
    rows : ndarray of shape (n_rows, n_features)
    data_norm : float

    Raises
    ------
    DataError
        If a row is longer.

    Examples
    --------
    >>> rows = bounded_rows(np.array([[0.6, 0.8 + 1e-8]], dtype=np.float32), 1.0)[0]
    >>> bool(0.999999 < np.linalg.norm(rows) <= 1.0)
    True
    """
    slack = NORM_SLACK
    if X.dtype == np.float32:
        slack = (X.shape[1] + 8) * SINGLE_PRECISION
    X = np.asarray(X, dtype=np.float64)
    norms = row_norms(X)
    if data_norm is None:
        warn_user(
            "data_norm was computed from the private rows, so no guarantee covers it: pass a public"
            " bound, and project the rows on it with convexmarket.datasets.scale_rows.",
            PrivacyLeakWarning,
        )
        return X, float(norms.max()) or 1.0
    too_long = np.count_nonzero(~(norms <= data_norm * (1.0 + slack)))
    if too_long:
        raise DataError(
            f"{too_long} of {X.shape[0]} rows are longer than data_norm = {data_norm:g}; project "
            "each row on the ball with convexmarket.datasets.scale_rows, or pass a larger public "
            "bound"
        )
    over = norms > data_norm
    if over.any():
        X = X.copy()
        below = 1.0 - (X.shape[1] + 16) * DOUBLE_PRECISION  # more than the roundings of all this
        X[over] *= (data_norm * below / norms[over])[:, None]
    return X, float(data_norm)
