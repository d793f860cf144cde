r"""Ridge regression from perturbed statistics, under a guarantee chosen seller by seller.

What is released are noisy sums :math:`A = \sum a_i x_ix_i^\top` and :math:`m = \sum a_i y_ix_i`;
the model solves :math:`(A_+ + \lambda I)\theta = m`, with the positive part of A, and costs nothing
more. On the unit scale, features in [0, 1] and labels in [-1, 1], replacing row i changes the
entries of A on and above its diagonal and those of m by at most :math:`a_i\kappa` in sum,

.. math:: \kappa = \frac{d(d+1)}2 + \frac{5d}4.

Proof: an entry of A off the diagonal changes by 1 at most. Feature j, with values u and v and
labels y and z, changes a diagonal entry and one of m by
:math:`|u^2-v^2| + |uy-vz| \le |u^2-v^2| + u + v`, and for :math:`u \ge v` that is at most
:math:`2 + v - v^2 \le \frac94`. So Laplace noise of rate :math:`\min_i \epsilon_i/(a_i\kappa)`
keeps :math:`\epsilon_i`: here on a lattice, where it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import check_scales
from convexmarket.data.features import PublicFeatures
from convexmarket.learners.granted import Granted
from convexmarket.learners.parted import PartedRows
from convexmarket.learners.ridge_domain import Range
from convexmarket.learners.ridge_lattice import UNIT, UPWARD, RidgeLattice, SolveError, fine_step
from convexmarket.learners.ridge_math import (
    CHUNK,
    Matrix,
    Rows,
    Vector,
    ridge_risk_constants,
    row_sum,
)
from convexmarket.learners.ridge_release import Plan, RidgeRelease
from convexmarket.privacy.lattice import (
    check_reach,
    lattice_epsilon,
    lattice_moves,
    lattice_scale,
    lattice_step,
)
from convexmarket.privacy.sensitivity import ridge_norm_bound

__all__ = ["StatisticsRidge", "statistics_sensitivity"]

LARGEST = 1.01  # entry of the sums, whose weights add up to one


def statistics_sensitivity(n_features: int) -> float:
    """Return how far a row of weight one can move all statistics, in sum."""
    return n_features * (n_features + 1) / 2.0 + 1.25 * n_features


@dataclass(frozen=True, eq=False)
class StatisticsLattice(RidgeLattice):
    """What a release of statistics decides without looking at the data."""

    regularization: float

    def solve(
        self, X: Rows | PartedRows, y: Vector, weights: Vector, regularization: float
    ) -> Vector:
        """Return the statistics: the upper triangle of A, then m."""
        sums = row_sum(X, _statistics, y, weights)
        return np.append(sums[np.triu_indices(X.shape[1])], sums[:, -1])

    def release(self, model: Vector, rng: np.random.Generator) -> Vector:
        """Return the model that solves the noisy equations."""
        noisy = super().release(model, rng)
        d = round((np.sqrt(9.0 + 8.0 * noisy.size) - 3.0) / 2.0)
        second = np.zeros((d, d))
        second[np.triu_indices(d)] = noisy[:-d]
        values, vectors = np.linalg.eigh(second, UPLO="U")
        scaled = (vectors.T @ noisy[-d:]) / (np.maximum(values, 0.0) + self.regularization)
        return np.asarray(vectors @ scaled)


def _statistics(X: Matrix, y: Vector, weights: Vector) -> Matrix:
    """Return A, and m as its last column."""
    weighed = weights[:, None] * X
    return np.column_stack([weighed.T @ X, weighed.T @ y])


class StatisticsRidge(RidgeRelease):
    r"""Ridge regression from sums that keep what was promised to each row.

    The noise does not depend on the regularization, and grows with the square of the number of
    features: for many rows, few features and little regularization.

    Parameters
    ----------
    regularization, feature_range, target_range, features, epsilon
        As for :class:`PersonalizedRidge`, which describes the fitted attributes too; the step of
        the lattice and the rate of the noise are those of the sums.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((20_000, 2))
    >>> y = X @ [0.5, -0.25]
    >>> epsilon = rng.uniform(0.5, 2.0, size=20_000)
    >>> from convexmarket.privacy import Simulation
    >>> model = StatisticsRidge(0.001).fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    >>> model.coef_.round(1), bool(np.all(model.epsilon_ <= epsilon))
    (array([ 0.5, -0.2]), True)
    """

    max_norm = None
    sensitivity = "tight"
    rounding = "auto"
    _mechanism = "ridge regression from perturbed statistics"

    def __init__(
        self,
        regularization: float = 1.0,
        *,
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        features: PublicFeatures | None = None,
        epsilon: ArrayLike | None = None,
    ) -> None:
        self.regularization = regularization
        self.feature_range = feature_range
        self.target_range = target_range
        self.features = features
        self.epsilon = epsilon

    def risk(
        self,
        n_features: int,
        *,
        label_noise: float | None = None,
        failure_probability: float = 0.05,
    ) -> tuple[float, float]:
        r"""Return (mu, sigma): how spread and noise hurt this learner, for a market's objective.

        Parameters
        ----------
        n_features, label_noise, failure_probability
            As for :meth:`PersonalizedRidge.risk`.

        Returns
        -------
        mu, sigma : float
            The model moves by at most :math:`(\|N\|\,\|\theta\| + \|n\|)/\lambda` under noise N of
            A and n of m, which Chebyshev's inequality bounds.
        """
        given = 1.0 if label_noise is None else label_noise
        mu = ridge_risk_constants(self.regularization, n_features, given, failure_probability)[0]
        norm = ridge_norm_bound(self.regularization, n_features)
        count = n_features * (n_features + 3) / 2.0
        square = 2.0 * (2.0 * count + np.sqrt(40.0 * count / failure_probability))
        length = np.sqrt((1.0 + norm**2) * square) / self.regularization
        return mu, float(statistics_sensitivity(n_features) * length)

    def _plan(self, granted: Granted, n_features: int, rng: np.random.Generator) -> Plan:
        check_scales(regularization=self.regularization)
        weights, epsilon = granted.weights(), granted.positive
        used = weights > 0
        kappa = statistics_sensitivity(n_features)
        rate = float(np.min(epsilon[used] / (kappa * weights[used])))
        kept = np.where(used, np.minimum(epsilon, kappa * weights * rate), 0.0)
        return Plan(weights, rate, kept, weights, epsilon)

    def _lattice(self, plan: Plan, n_features: int) -> StatisticsLattice | None:
        if np.isinf(plan.rate):
            return None
        n_rows, count = plan.weights.size, n_features * (n_features + 3) // 2
        chain = min(n_rows, CHUNK) + -(-n_rows // CHUNK) + 4
        error = 2.0 * UNIT * chain  # of an entry: a sum of so many numbers, of total size one
        moved = statistics_sensitivity(n_features) * plan.weights + 2.0 * count * error
        shift = np.where(plan.weights > 0, moved * UPWARD, 0.0)
        step = lattice_step(fine_step(shift, plan.sold, count, LARGEST))
        check_reach(LARGEST, step)
        moves = lattice_moves(shift, step, count)
        scale = lattice_scale(moves, plan.sold)
        kept = np.minimum(lattice_epsilon(moves, scale), plan.sold)
        bound = SolveError(0.0, LARGEST, float(error * np.sqrt(count)))
        return StatisticsLattice(step, scale, kept, bound, self.regularization)
