r"""Compute the sharp guarantee of objective perturbation, which some data sets nearly attain.

Let p be the error of one version of a row at the output. The replacement of a row shifts the noise
by at most :math:`\tau(p) \le 1 + p` per unit of weight (docs/theory.md, section 14). This module
bounds :math:`\tau` for a given :math:`\Lambda` on cells of p, of the norm s of the output, of the
angle phi of the gradient, and of the angle alpha of the row.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

__all__ = ["pull_profile", "sharp_guarantee"]

Floats = NDArray[np.float64]

ERRORS, ANGLES = 240, 320  # numbers of cells of p and phi, which are even so that pi/2 is an edge
FINE = 4  # number of cells of alpha for each cell of phi
QUARTER = FINE * ANGLES // 2  # number of cells of alpha up to pi/2
WIDTH = 0.006  # largest relative width of a cell of s that determines the bound
#: Relative margin that covers rounding errors and weights with a sum slightly above 1.
SLACK = 2e-6
FAR = 1e12  # used instead of an infinite s


def sharp_guarantee(weights: Floats, eta: float, curvature: float) -> Floats:
    """Bound the privacy loss of each row in nats, where ``curvature`` is R^2 / Lambda."""
    distinct, place = np.unique(weights, return_inverse=True)  # often all weights are equal
    pull, bend = pull_profile(1.0 / curvature)
    parts = np.array_split(distinct[:, None], 1 + distinct.size // 1_000)
    losses = (part * (0.5 * eta * pull) + np.log1p(part * (curvature * bend)) for part in parts)
    return np.concatenate([loss.max(axis=1) for loss in losses])[place]


@lru_cache(maxsize=256)
def pull_profile(regularization: float) -> tuple[Floats, Floats]:
    """Compute upper bounds on tau and p * (1 - p) on cells of p, with Lambda scaled to R = 1."""
    cells = _Cells(regularization)
    edges = np.concatenate([[0.0], np.geomspace(0.05, 50.0 + 20.0 / regularization, 32), [np.inf]])
    low, high = edges[:-1], edges[1:]
    bounds = cells.bound(low, high)
    while True:  # refine the cells of s that determine the bound until they are narrow
        pull = np.minimum(bounds.max(axis=1), 1.0 + cells.errors[1:])
        best = _undominated(pull, cells.curvature)
        deciding = np.isin(np.arange(low.size), bounds[best].argmax(axis=1))
        deciding &= (low > 0) & (high > low * (1.0 + WIDTH)) & np.isfinite(high)
        if not deciding.any():
            return pull[best], cells.curvature[best]
        cut = np.geomspace(low[deciding], high[deciding], 4, axis=1)
        fresh_low, fresh_high = cut[:, :-1].ravel(), cut[:, 1:].ravel()
        low = np.concatenate([low[~deciding], fresh_low])
        high = np.concatenate([high[~deciding], fresh_high])
        bounds = np.hstack([bounds[:, ~deciding], cells.bound(fresh_low, fresh_high)])


class _Cells:
    """Grids of p, phi and alpha for the computation of bounds on tau in cells of p and s."""

    def __init__(self, regularization: float) -> None:
        self.regularization = regularization
        self.errors = np.sin(np.linspace(0.0, np.pi / 2.0, ERRORS + 1)) ** 2  # finer near 0 and 1
        self.margins = -logit(self.errors)
        low, high = self.errors[:-1], self.errors[1:]
        bend = np.maximum(low * (1.0 - low), high * (1.0 - high))
        self.curvature = np.where((low <= 0.5) & (high >= 0.5), 0.25, bend)
        self.phi = np.linspace(0.0, np.pi, ANGLES + 1)
        directions = np.stack([np.cos(self.phi), np.sin(self.phi)])
        self._phi_low, self._phi_high = directions[:, :-1], directions[:, 1:]
        alpha = np.linspace(0.0, np.pi, FINE * ANGLES + 1)
        self._far_cosine = np.cos(alpha[1:])
        # the last entry, 1, is used for chi = pi, where the maximum is at alpha = pi
        self._near_cosine = np.append(np.maximum(np.cos(alpha[:-1]), 0.0), 1.0)
        self._decline = self._near_cosine[:QUARTER] / self._near_cosine[1 : QUARTER + 1]

    def support(self, s: Floats) -> Floats:
        """Compute upper bounds on S, a maximum over alpha >= chi, shape (s.size, ANGLES + 1)."""
        errors = expit(-s[:, None] * self._far_cosine)
        with np.errstate(divide="ignore", invalid="ignore"):  # small errors are rounded to zero
            growth = errors[:, 1:] / errors[:, :-1]
        # in alpha, the product of error and cosine increases to its maximum and then decreases;
        # it increases after an alpha if chi is above this value
        turns = np.arange(growth.shape[1]) - np.searchsorted(self._decline, growth, side="right")
        chi = FINE * np.arange(ANGLES + 1)
        best = np.stack([row.searchsorted(chi) for row in np.maximum.accumulate(turns, axis=1)])
        return np.take_along_axis(errors, best, axis=1) * self._near_cosine[best - chi]

    def bound(self, low: Floats, high: Floats) -> Floats:
        """Compute upper bounds on tau (-inf in empty cells), of shape (ERRORS, low.size)."""
        near, far = np.maximum(low, 1.0 / FAR)[:, None], np.minimum(high, FAR)[:, None]
        # for each alpha the error is monotone in s, so S on a cell is at most S at its ends
        ends, place = np.unique([near, far], return_inverse=True)
        support = (1.0 + SLACK) * self.support(ends)[place.reshape(2, -1)].max(axis=0)
        half, pull = ANGLES // 2, self.regularization * near
        possible = np.repeat(pull <= support[:, :1], ANGLES, axis=1)  # cells of possible gradients
        # compare with S at pi/2 - phi
        possible[:, :half] = pull * np.sin(self.phi[:half]) <= support[:, half:0:-1]
        # angles alpha of rows whose errors are in a cell of p
        top, bottom = self.margins[:-1], self.margins[1:]
        largest = top / np.where(top > 0, near, far)
        least = bottom / np.where(bottom > 0, far, near)
        reached = (least <= 1.0) & (largest >= -1.0)
        cosines = np.clip([largest, least], -1.0, 1.0)
        alpha = np.stack([cosines, np.sqrt(1.0 - cosines**2)], axis=-1)
        out = np.full((ERRORS, low.size), -np.inf)
        for cell, (rows, columns) in enumerate(zip(reached, possible, strict=True)):
            alpha_low, alpha_high = alpha[:, cell, rows]
            phi_low, phi_high = self._phi_low[:, columns], self._phi_high[:, columns]
            cosine = np.where(phi_low[0] < alpha_high[:, :1], alpha_high @ phi_low, 1.0)
            cosine = np.where(phi_high[0] > alpha_low[:, :1], alpha_low @ phi_high, cosine)
            p_low, p_high = self.errors[:-1, None][rows], self.errors[1:, None][rows]
            # S at pi - phi for the lower end of each cell of phi
            second = support[cell, :0:-1][columns]
            first = np.maximum(p_low * cosine, p_high * cosine)
            out[rows, cell] = (first + second).max(axis=1, initial=-np.inf)
        return out


def _undominated(pull: Floats, curvature: Floats) -> NDArray[np.intp]:
    order = np.lexsort((-curvature, -pull))
    best = np.maximum.accumulate(np.concatenate([[-1.0], curvature[order]]))
    return order[curvature[order] > best[:-1]]
