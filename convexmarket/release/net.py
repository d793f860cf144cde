"""Nets of a ball: finite sets of points within a given distance of every point of the ball."""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = ["ball_net", "net_size"]

Floats = NDArray[np.float64]


def net_size(n_features: int, data_norm: float, radius: float) -> float:
    """Estimate the number of points of :func:`ball_net`.

    Parameters
    ----------
    n_features : int
        d.
    data_norm : float
        Radius of the ball.
    radius : float
        Largest distance of a point of the ball from the net.

    Returns
    -------
    float
        Volume of the ball, widened by the net's radius, in cubes of that half-diagonal.

    Examples
    --------
    >>> from convexmarket.release import net_size
    >>> round(net_size(2, 1.0, 0.5))
    14
    """
    half = n_features / 2.0
    log_volume = half * np.log(np.pi) - gammaln(half + 1.0)
    ratio = (data_norm + radius) * np.sqrt(n_features) / (2.0 * radius)
    with np.errstate(over="ignore"):
        return float(np.exp(log_volume + n_features * np.log(ratio)))


def ball_net(n_features: int, data_norm: float, radius: float) -> Floats:
    """Return points of a ball within a radius of every point of the ball.

    They are the centres of a grid of cubes; centres outside are projected onto the ball.

    Parameters
    ----------
    n_features : int
        d.
    data_norm : float
        Radius of the ball.
    radius : float
        Half the diagonal of a cube; positive.

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

    def extend(points: Floats, _: int) -> Floats:
        """Add a coordinate, and drop points that are too far away."""
        wider = np.hstack(
            [np.repeat(points, len(axis), axis=0), np.tile(axis, len(points))[:, None]]
        )
        return wider[np.linalg.norm(wider, axis=1) <= data_norm + radius]

    points = reduce(extend, range(n_features), np.zeros((1, 0)))
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points * np.minimum(1.0, data_norm / np.maximum(norms, data_norm))
