r"""The privacy loss of objective perturbation at an output, and where it is largest.

At the output w the loss between two data sets is

.. math:: \frac{\eta}{2R}(\|v'\| - \|v\|) + \log\det J - \log\det J',

v and J being gradient and Hessian of the noiseless objectives at w. It is smooth in w and in every
row, so its largest value is looked for by a quasi-Newton method, from many starts, with the rows
kept in their ball by a change of variables. The starts are where theory says that the loss is
large: the two versions of the row opposite to each other and nearly perpendicular to w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

__all__ = ["LossSetting", "WorstCase", "worst_loss"]

Floats = NDArray[np.float64]

STARTS = 12
STARTS_AFTER = 2  # with an earlier case as a third


@dataclass(frozen=True, eq=False)
class LossSetting:
    """The mechanism, and one seller's place in it.

    Attributes
    ----------
    weight : float
        Of the row that differs.
    others : ndarray of shape (n_others,)
        Weights of the other rows.
    eta, regularization, data_norm : float
    """

    weight: float
    others: Floats
    eta: float
    regularization: float
    data_norm: float


@dataclass(frozen=True, eq=False)
class WorstCase:
    """A large loss, and where it is: rows are given as label times features.

    Attributes
    ----------
    loss : float
        In nats.
    output : ndarray of shape (n_features,)
    row, replacement : ndarray of shape (n_features,)
    others : ndarray of shape (n_others, n_features)
    found_at : ndarray
        Where the search ended, in its own coordinates: a start for the next one.
    """

    loss: float
    output: Floats
    row: Floats
    replacement: Floats
    others: Floats
    found_at: Floats


def worst_loss(
    setting: LossSetting,
    n_features: int,
    rng: np.random.Generator,
    others: Floats | None = None,
    before: WorstCase | None = None,
) -> WorstCase:
    """Search for the largest loss over outputs, both versions of the row, and the other rows.

    Parameters
    ----------
    setting : LossSetting
    n_features : int
    rng : Generator
        Of the starts.
    others : ndarray of shape (n_others, n_features), optional
        The other rows, label times features, where these are given; otherwise they are looked for.
    before : WorstCase, optional
        Of a row of another weight: a start that saves others.
    """
    count = setting.others.size if others is None else 0
    starts = [
        _start(setting, n_features, count, rng, number).ravel()
        for number in range(STARTS if before is None else STARTS_AFTER)
    ]
    if before is not None:
        starts.append(before.found_at)
    best, value = starts[0], -np.inf
    for start in starts:
        found = minimize(
            _negated,
            start,
            args=(setting, n_features, others),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 400, "maxfun": 800},
        )
        if -found.fun > value:
            best, value = found.x, float(-found.fun)
    w, rows = _unpacked(best, n_features, setting.data_norm)[:2]
    rest = rows[2:] if others is None else others
    return WorstCase(value * setting.weight * setting.eta, w, rows[0], rows[1], rest, best)


def _start(
    setting: LossSetting, n_features: int, count: int, rng: np.random.Generator, start: int
) -> Floats:
    """Return w, both versions of the row and the others: shape (3 + count, n_features)."""
    towards, across = np.linalg.qr(rng.normal(size=(n_features, min(2, n_features))))[0].T[[0, -1]]
    length = 10.0 ** rng.uniform(-0.5, 2.0) / setting.data_norm
    tilt, reach = rng.uniform(0.0, 0.6), 10.0 ** rng.uniform(0.0, 1.5)
    side = across if n_features > 1 else np.zeros(1)
    pair = np.stack([side - tilt * towards, -side - tilt * towards])
    if start % 4 == 3:  # one version is what the model is most wrong about, the other is not used
        pair[1] = 0.0
    rest = rng.normal(size=(count, n_features)) / np.sqrt(n_features)
    if start % 2:
        rest = rng.uniform(-1, 1, (count, 1)) * side + rng.uniform(-1, 1, (count, 1)) * towards
    noise = rng.normal(size=(2, n_features)) / np.sqrt(n_features)
    return np.vstack([length * towards, reach * (pair + 0.03 * noise), 2.0 * rest])


def _unpacked(
    packed: Floats, n_features: int, data_norm: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return w, the rows in their ball, and what their derivative needs."""
    point = packed.reshape(-1, n_features)
    free = point[1:]
    stretch = np.sqrt(1.0 + np.einsum("ij,ij->i", free, free))[:, None]
    return point[0], data_norm * free / stretch, free, stretch


def _negated(
    packed: Floats, setting: LossSetting, n_features: int, others: Floats | None
) -> tuple[float, Floats]:
    """Return minus the loss, in units of weight times eta, and its gradient."""
    w, rows, free, stretch = _unpacked(packed, n_features, setting.data_norm)
    rest = rows[2:] if others is None else others
    loss, by_w, by_pair, by_rest = _loss(w, rows[0], rows[1], rest, setting)
    by_rows = by_pair if others is not None else np.vstack([by_pair, by_rest])
    along = np.einsum("ij,ij->i", free, by_rows)[:, None]
    by_free = setting.data_norm * (by_rows / stretch - free * along / stretch**3)
    gradient = np.vstack([by_w, by_free]).ravel()
    scale = -1.0 / (setting.weight * setting.eta)
    return scale * loss, scale * gradient


def _loss(
    w: Floats, row: Floats, replacement: Floats, others: Floats, setting: LossSetting
) -> tuple[float, Floats, Floats, Floats]:
    """Return the loss and its gradients by w, by both versions of the row, and by the others."""
    half = setting.eta / (2.0 * setting.data_norm)
    errors = expit(-(others @ w))
    pulls = setting.others * errors
    bends = pulls * (1.0 - errors)
    gradient = setting.regularization * w - pulls @ others
    hessian = (others * bends[:, None]).T @ others
    hessian[np.diag_indices_from(hessian)] += setting.regularization
    loss, by_w, by_pair = 0.0, np.zeros_like(w), []
    by_others = np.zeros_like(others)
    for sign, z in ((1.0, row), (-1.0, replacement)):
        error = float(expit(-(z @ w)))
        pull = setting.weight * error
        bend = pull * (1.0 - error)
        v = gradient - pull * z
        norm = float(np.linalg.norm(v))
        direction = v / norm if norm > 0 else v
        full = hessian + bend * np.outer(z, z)
        inverse = np.linalg.inv(full)
        loss += sign * (float(np.linalg.slogdet(full)[1]) - half * norm)
        reached = others @ inverse
        sway = (2.0 * errors - 1.0) * bends * np.einsum("ij,ij->i", others, reached)
        own = (2.0 * error - 1.0) * bend * float(z @ inverse @ z)
        by_w += sign * (sway @ others + own * z - half * (full @ direction))
        by_pair.append(
            sign * (half * (pull * direction - bend * float(direction @ z) * w))
            + sign * (own * w + 2.0 * bend * (inverse @ z))
        )
        drag = half * (pulls[:, None] * direction - (bends * (others @ direction))[:, None] * w)
        by_others += sign * (drag + sway[:, None] * w + 2.0 * bends[:, None] * reached)
    return loss, by_w, np.stack(by_pair), by_others
