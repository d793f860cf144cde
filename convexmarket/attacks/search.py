r"""The search for the worst neighbours, shared by the mechanisms with a formula for the loss.

**Few numbers.** The loss depends on both versions of the row, on the other rows and, for objective
perturbation, on the output w. A ball is invariant under rotations, so the search takes w on the
first axis and rows in the plane of the first two. In a box features form at most three blocks, and
those of a block are equal. The other rows form two groups of about equal weight, and the rows of a
group are equal. This leaves at most 17 numbers.

**Objective perturbation.** At the output w the loss between two data sets is

.. math:: \frac{\eta}{2LR}(\|v'\| - \|v\|) + \log\det J - \log\det J',

with gradients v and Hessians J of the noiseless objectives at w.

**Output perturbation.** Noise of rate r around two models at the distance d has a largest loss of
:math:`r\,d`. The distance is the sum of absolute differences for noise on a lattice.

Curvatures may jump, so the search is differential evolution, which needs no derivatives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution

from convexmarket.learners.losses import Loss

__all__ = ["Attack", "ObjectiveAttack", "OutputAttack"]

Floats = NDArray[np.float64]

POPULATION = 8  # per variable
GENERATIONS = 400
#: Decimal logarithms of the shortest and the longest output, in units of the largest row.
SHORTEST, LONGEST = -2.0, 2.5
BLOCKS = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Attack(ABC):
    """A search over numbers in [0, 1], of which a candidate is a column.

    Attributes
    ----------
    weights : ndarray of shape (4,)
        Of both versions of the row, which are equal, and of the two groups of other rows.
    regularization : float
    labels : ndarray of shape (2,)
        Lowest and highest label.
    n_features : int
    """

    weights: Floats
    regularization: float
    labels: Floats
    n_features: int

    def worst(self, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Return the worst rows, shape (4, n_features), their labels, and the output."""
        evolve: Any = differential_evolution  # its stubs do not cover vectorized=True
        best = evolve(
            lambda numbers: -self._losses(*self._candidates(numbers)),
            [(0.0, 1.0)] * (1 + 4 * (self._dimensions() + 1)),
            vectorized=True,
            updating="deferred",
            popsize=POPULATION,
            maxiter=GENERATIONS,
            tol=0.0,
            polish=False,
            rng=rng,
        ).x
        x, y, length = self._candidates(best[:, None])
        output = np.zeros(self.n_features)
        output[0] = length[0]
        return self._rows(x[..., 0]), y[:, 0], output

    @abstractmethod
    def _dimensions(self) -> int:
        """Return the numbers of a row, without its label."""

    @abstractmethod
    def _candidates(self, numbers: Floats) -> tuple[Floats, Floats, Floats]:
        """Return points of shape (4, 2 or 3, n_candidates), labels, and lengths of the output."""

    @abstractmethod
    def _rows(self, points: Floats) -> Floats:
        """Return rows of all features."""

    @abstractmethod
    def _losses(self, x: Floats, y: Floats, length: Floats) -> Floats:
        """Return the loss of each candidate."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectiveAttack(Attack):
    """The attack on objective perturbation with rows in a ball.

    Attributes
    ----------
    loss : Loss
    eta, data_norm : float
    """

    loss: Loss
    eta: float
    data_norm: float

    def _dimensions(self) -> int:
        return 2

    def _candidates(self, numbers: Floats) -> tuple[Floats, Floats, Floats]:
        length = 10.0 ** (SHORTEST + (LONGEST - SHORTEST) * numbers[0]) / self.data_norm
        radius, angle, side = np.moveaxis(numbers[1:].reshape(4, 3, -1), 1, 0)
        if self.n_features == 1:
            angle = np.round(2.0 * angle) / 2.0
        radius = self.data_norm * _stretched(radius)
        x = radius * np.cos(2.0 * np.pi * angle)
        if self.loss.classifies:
            y = np.where(side < 0.5, self.labels[0], self.labels[1])
        else:  # by the residual, where the ends of the parabola are the same for all outputs
            slope = 2.0 * side - 1.0
            bent = np.clip(1.6 * slope, -1.0 + 1e-9, 1.0 - 1e-9)
            residual = self.loss.lipschitz * np.where(
                np.abs(slope) > 0.8, 2.0 * np.sign(slope), bent
            )
            y = np.clip(length * x - residual, *self.labels)
        z = radius * np.sin(2.0 * np.pi * angle) * (self.n_features > 1)
        return np.stack([x, z], axis=1), y, length

    def _rows(self, points: Floats) -> Floats:
        rows = np.zeros((4, max(2, self.n_features)))
        rows[:, :2] = points
        return rows[:, : self.n_features]

    def _losses(self, x: Floats, y: Floats, length: Floats) -> Floats:
        _, slopes, curvatures = self.loss.derivatives(length * x[:, 0], y)
        weights = self.weights[:, None]
        pulls = (weights * slopes)[:, None] * x
        bends = weights * curvatures * np.stack([x[:, 0] ** 2, x[:, 1] ** 2, x[:, 0] * x[:, 1]])
        rest = bends[:, 2] + bends[:, 3]
        rest[:2] += self.regularization
        half = self.eta / (2.0 * self.loss.lipschitz * self.data_norm)
        values = []
        for version in (0, 1):
            gradient = pulls[version] + pulls[2] + pulls[3]
            gradient[0] += self.regularization * length
            a, b, c = rest + bends[:, version]
            values.append(np.log(a * b - c * c) - half * np.hypot(*gradient))
        return np.asarray(values[0] - values[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class OutputAttack(Attack):
    """The attack on output perturbation of ridge regression on the unit box.

    Attributes
    ----------
    order : int
        Of the norm of distances.
    """

    order: int

    def _dimensions(self) -> int:
        return min(self.n_features, BLOCKS)

    def _candidates(self, numbers: Floats) -> tuple[Floats, Floats, Floats]:
        points = _stretched(numbers[1:].reshape(4, self._dimensions() + 1, -1))
        low, high = self.labels
        return points[:, :-1], low + (high - low) * points[:, -1], 0.0 * numbers[0]

    def _blocks(self) -> NDArray[np.intp]:
        """Return the block of each feature."""
        return np.arange(self.n_features) * self._dimensions() // self.n_features

    def _rows(self, points: Floats) -> Floats:
        return points[:, self._blocks()]

    def _losses(self, x: Floats, y: Floats, length: Floats) -> Floats:
        roots = np.sqrt(np.bincount(self._blocks()))
        scaled = x * roots[:, None]
        grams = np.einsum("r,rin,rjn->rnij", self.weights, scaled, scaled)
        moments = np.einsum("r,rn,rin->rni", self.weights, y, scaled)
        rest = grams[2] + grams[3] + self.regularization * np.eye(roots.size)
        models = [
            np.linalg.solve(rest + grams[k], (moments[2] + moments[3] + moments[k])[..., None])
            for k in (0, 1)
        ]
        apart = (models[0] - models[1])[..., 0]
        if self.order == 1:
            apart = apart * roots
        return np.asarray(np.linalg.norm(apart, self.order, axis=1))


def _stretched(numbers: Floats) -> Floats:
    """Return numbers in [0, 1] of which an eighth each is exactly 0 and 1."""
    return np.clip(4.0 / 3.0 * numbers - 1.0 / 6.0, 0.0, 1.0)
