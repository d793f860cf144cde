r"""Where the privacy loss of objective perturbation is largest, for any loss: on a line.

Nothing is lost by rows of one dimension: where two versions of a row pull in opposite directions
and one of them bends the objective, both halves of the general bound are attained at once. On the
line :math:`w = tu` the loss is a formula in t, looked at for all corners that rows and labels may
have, ever finer around its largest value, as slopes and curvatures may jump.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from convexmarket.attacks.logistic_loss import LossSetting
from convexmarket.attacks.result import Neighbours
from convexmarket.learners.losses import Loss

__all__ = ["worst_on_a_line"]

Floats = NDArray[np.float64]

POINTS = 1001
ZOOMS = 12


def worst_on_a_line(
    setting: LossSetting, loss: Loss, labels: Floats, place: int, n_features: int
) -> Neighbours:
    """Return the worst neighbours and output found.

    Parameters
    ----------
    setting : LossSetting
    loss : Loss
    labels : ndarray of shape (2,)
        The ends of the public labels, as numbers that the loss takes.
    place : int
        Position of the row that differs, whose neighbours hold such labels.
    n_features : int
    """
    norm = setting.data_norm
    reach = 4.0 * (1.0 + float(np.abs(labels).max()) + loss.lipschitz) / norm
    chosen: tuple[tuple[float, float], ...] = ()
    best, where = -np.inf, 0.0
    for corners in product(product((-norm, norm), labels), repeat=3):
        centre, width = 0.0, reach
        for _ in range(ZOOMS):
            grid = centre + width * np.linspace(-1.0, 1.0, POINTS)
            losses = _losses(grid, setting, loss, corners)
            centre, width = float(grid[losses.argmax()]), width / 100.0
            if losses.max() > best:
                best, chosen, where = float(losses.max()), corners, centre
    count = setting.others.size + 1
    features = np.full(count, chosen[2][0])
    targets = np.full(count, chosen[2][1])
    versions = []
    for x, y in chosen[:2]:
        features[place], targets[place] = x, y
        rows = np.zeros((count, n_features))
        rows[:, 0] = features
        versions.append((rows, targets.copy()))
    output = np.zeros(n_features)
    output[0] = where
    return Neighbours(place, *versions[0], *versions[1], output)


def _losses(
    w: Floats, setting: LossSetting, loss: Loss, corners: tuple[tuple[float, float], ...]
) -> Floats:
    """Return the privacy loss at each output; the other rows are alike."""
    half = setting.eta / (2.0 * loss.lipschitz * setting.data_norm)
    pulls, bends = [], []
    weights = (setting.weight, setting.weight, float(setting.others.sum()))
    for weight, (x, y) in zip(weights, corners, strict=True):
        _, slopes, curvatures = loss.derivatives(w * x, np.full_like(w, y))
        pulls.append(weight * x * slopes)
        bends.append(weight * x * x * curvatures)
    rest, bent = setting.regularization * w + pulls[2], setting.regularization + bends[2]
    shift = np.abs(rest + pulls[1]) - np.abs(rest + pulls[0])
    return np.asarray(half * shift + np.log(bent + bends[0]) - np.log(bent + bends[1]))
