"""Nets of a ball: finite sets of points within a given distance of every point of the ball."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = ["ball_net", "net_size"]

Floats = NDArray[np.float64]


def net_size(n_features: int, data_norm: float, radius: float) -> float:
    """Estimate the number of points of :func:`ball_net`.

    It is the volume of the ball, widened by the net's radius, in cubes of that half-diagonal.

    >>> round(net_size(2, 1.0, 0.5))
    14
    """
    half = n_features / 2.0
    log_volume = half * np.log(np.pi) - gammaln(half + 1.0)
    ratio = (data_norm + radius) * np.sqrt(n_features) / (2.0 * radius)
    return float(np.exp(min(log_volume + n_features * np.log(ratio), 700.0)))


def ball_net(n_features: int, data_norm: float, radius: float) -> Floats:
    """Return points of a ball within a radius of every point of the ball.

    They are the centres of a grid of cubes; centres outside are projected onto the ball.

    Parameters
    ----------
    n_features, data_norm, radius : float
        Dimension and radius of the ball, and half the diagonal of a cube; positive.

    Returns
    -------
    ndarray of shape (n_points, n_features)

    Examples
    --------
    >>> from convexmarket.release import ball_net
    >>> ball_net(1, 1.0, 0.5).shape
    (3, 1)
    """
    side = 2.0 * radius / np.sqrt(n_features)
    steps = int(np.ceil(data_norm / side - 0.5)) if data_norm > side / 2.0 else 0
    axis = side * np.arange(-steps, steps + 1)

    points: Floats = np.zeros((1, 0))
    for _ in range(n_features):  # add a coordinate, and drop points that are too far away
        column = np.tile(axis, len(points))[:, None]
        points = np.hstack([np.repeat(points, len(axis), axis=0), column])
        points = points[np.linalg.norm(points, axis=1) <= data_norm + radius]
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points * np.minimum(1.0, data_norm / np.maximum(norms, data_norm))
