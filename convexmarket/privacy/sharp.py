r"""Compute the sharp guarantee of objective perturbation, which some data sets nearly attain.

Let p be the error of one version of a row at the output. The replacement of a row shifts the noise
by at most :math:`\tau(p) \le 1 + p` per unit of weight (docs/theory.md, section 14). This module
bounds :math:`\tau` for a given :math:`\Lambda` on cells of p, of the norm s of the output, of the
angle phi of the gradient, and of the angle alpha of the row.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

__all__ = ["pull_profile", "sharp_guarantee"]

Floats = NDArray[np.float64]

ERRORS, ANGLES = 240, 320  # numbers of cells of p and phi, which are even so that pi/2 is an edge
FINE = 4  # number of cells of alpha for each cell of phi
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
    low, high, bounds = edges[:-1], edges[1:], cells.bound(edges)
    while True:  # refine the cells of s that determine the bound until they are narrow
        pull = np.minimum(bounds.max(axis=1), 1.0 + cells.errors[1:])
        best = _undominated(pull, cells.curvature)
        deciding = np.isin(np.arange(low.size), bounds[best].argmax(axis=1))
        deciding &= (low > 0) & (high > low * (1.0 + WIDTH)) & np.isfinite(high)
        if not deciding.any():
            return pull[best], cells.curvature[best]
        cuts = np.geomspace(low[deciding], high[deciding], 4, axis=1)
        low = np.concatenate([low[~deciding], cuts[:, :-1].ravel()])
        high = np.concatenate([high[~deciding], cuts[:, 1:].ravel()])
        bounds = np.hstack([bounds[:, ~deciding], *map(cells.bound, cuts)])


class _Cells:
    """Grids of p, phi and alpha for the computation of bounds on tau in cells of p and s."""

    def __init__(self, regularization: float) -> None:
        self.regularization = regularization
        self.errors = np.sin(np.linspace(0.0, np.pi / 2.0, ERRORS + 1)) ** 2  # finer near 0 and 1
        self.margins = -logit(self.errors)
        low, high = self.errors[:-1], self.errors[1:]
        bend = np.maximum(low * (1.0 - low), high * (1.0 - high))
        self.curvature = np.where((low <= 0.5) & (high >= 0.5), 0.25, bend)
        phi = np.linspace(0.0, np.pi, ANGLES + 1)
        self._phi = np.stack([np.cos(phi), np.sin(phi)])
        alpha = np.linspace(0.0, np.pi, FINE * ANGLES + 1)
        self._far_cosine = np.cos(alpha[1:])
        # the last entry, 1, is used for chi = pi, where the maximum is at alpha = pi
        self._near_cosine = np.append(np.maximum(np.cos(alpha[:-1]), 0.0), 1.0)
        acute = self._near_cosine[: FINE * ANGLES // 2 + 1]
        self._decline = acute[:-1] / acute[1:]

    def support(self, s: Floats) -> Floats:
        """Compute upper bounds on S, a maximum over alpha >= chi, shape (s.size, ANGLES + 1)."""
        errors = expit(-s[:, None] * self._far_cosine)
        with np.errstate(divide="ignore", invalid="ignore"):  # small errors are rounded to zero
            growth = errors[:, 1:] / errors[:, :-1]
        # The product of error and cosine first increases in alpha and then decreases. After an
        # angle alpha, it increases if chi is above this value.
        turns = np.arange(growth.shape[1]) - np.searchsorted(self._decline, growth, side="right")
        chi = FINE * np.arange(ANGLES + 1)
        best = np.stack([row.searchsorted(chi) for row in np.maximum.accumulate(turns, axis=1)])
        return np.take_along_axis(errors, best, axis=1) * self._near_cosine[best - chi]

    def bound(self, edges: Floats) -> Floats:
        """Compute upper bounds on tau (-inf in empty cells) in adjacent cells of s."""
        edges = np.clip(edges, 1.0 / FAR, FAR)
        support = (1.0 + SLACK) * self.support(edges)
        half, low, high = ANGLES // 2, slice(None, -1), slice(1, None)
        top, bottom = self.margins[low], self.margins[high]
        out = np.full((ERRORS, edges.size - 1), -np.inf)
        for cell, (near, far) in enumerate(pairwise(edges)):
            # for each alpha the error is monotone in s, so S on a cell is at most S at its ends
            bound, pull = support[cell : cell + 2].max(axis=0), self.regularization * near
            columns = np.repeat(pull <= bound[0], ANGLES)  # cells of possible gradients
            # compare with S at pi/2 - phi
            columns[:half] = pull * self._phi[1, :half] <= bound[half:0:-1]
            # angles alpha of rows whose errors are in a cell of p
            largest = top / np.where(top > 0, near, far)
            least = bottom / np.where(bottom > 0, far, near)
            rows = (least <= 1.0) & (largest >= -1.0)
            cosines = np.clip([largest[rows], least[rows]], -1.0, 1.0)
            alpha_low, alpha_high = np.stack([cosines, np.sqrt(1.0 - cosines**2)], axis=-1)
            phi_low, phi_high = self._phi[:, low][:, columns], self._phi[:, high][:, columns]
            cosine = np.where(phi_low[0] < alpha_high[:, :1], alpha_high @ phi_low, 1.0)
            cosine = np.where(phi_high[0] > alpha_low[:, :1], alpha_low @ phi_high, cosine)
            p_low, p_high = self.errors[low, None][rows], self.errors[high, None][rows]
            first = np.maximum(p_low * cosine, p_high * cosine)
            # add S at pi - phi for the lower end of each cell of phi
            out[rows, cell] = (first + bound[:0:-1][columns]).max(axis=1, initial=-np.inf)
        return out


def _undominated(pull: Floats, curvature: Floats) -> NDArray[np.intp]:
    order = np.lexsort((-curvature, -pull))
    best = np.maximum.accumulate(np.concatenate([[-1.0], curvature[order]]))
    return order[curvature[order] > best[:-1]]
