r"""Two perturbations of ridge regression: of the model, and of the sums that it is computed from.

**Output perturbation** (PDP-OP, Algorithm 1 of Acharya, Boenisch, Naidu and Ziani). The weighted
ridge solution moves by at most :math:`\kappa w_i` when row i is replaced
(:func:`~convexmarket.privacy.ridge_sensitivity`), and noise of rate
:math:`\min_i \epsilon_i/(\kappa w_i)` is added to it.

**Perturbed statistics.** Noisy second moments A of the features and moments m with the labels give
the model that solves :math:`(A_+ + \lambda I)\theta = m`, with the positive part of A. Replacing
row i changes the sums by at most :math:`w_i` times :func:`statistics_sensitivity`.

Model or sums are rounded to a lattice and get exact discrete noise, which covers the error of their
computation. Proofs and error bounds are in docs/theory/ridge.md, section 7.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import fsum, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.learners.granted import Perturbation
from convexmarket.learners.partitioned_rows import PartedRows
from convexmarket.learners.ridge_math import CHUNK, WELL_CONDITIONED, row_sum, solve_ridge
from convexmarket.privacy.composition import gaussian_shift
from convexmarket.privacy.lattice import (
    check_reach,
    lattice_epsilon,
    lattice_moves,
    lattice_release,
    lattice_scale,
    lattice_step,
)
from convexmarket.privacy.random_sources import gamma_sphere_noise
from convexmarket.privacy.sensitivity import Sensitivity, ridge_norm_bound, ridge_sensitivity

__all__ = [
    "OutputPerturbation",
    "SolveError",
    "StatisticsPerturbation",
    "solve_error",
    "statistics_sensitivity",
]

Floats = NDArray[np.float64]

UNIT = 2.0**-53
SMALL_CHAIN = 10  # roundings of an entry besides those of its sums
NORM_SLACK = 1.01  # ratio of a computed model's norm to the bound on the exact norm
UPWARD = 1.0 + 1e-9  # margin for the roundings of a formula
FINE = 1000
LARGEST = 1.01  # entry of the sums, whose weights add up to one
#: Steps by which the square of a discrete Gaussian exceeds the real one's (docs/theory.md).
NARROWER = 9.0
#: Norm of the model, on the unit scale, assumed in noise effects and rules for lambda.
NORM = 1.0

EXACT = (
    "arithmetic follows IEEE 754, rounding to nearest; the noise is exact, and covers a rounding"
    " error of at most {:.2g}"
)
REAL = "noise and coefficients, computed in double precision, are treated as real numbers"


class SolveError(NamedTuple):
    """Conditions on a computed ridge solution, and its distance from the exact one under them.

    They are the largest computed residual, the largest norm, and the Euclidean distance.
    """

    residual: float
    norm: float
    distance: float


def solve_error(n_rows: int, n_features: int, regularization: float) -> SolveError:
    """Bound the error of the solve of a ridge regression on the unit box.

    A NotSupportedError means fewer rows than features, or too little regularization for a Cholesky
    factorisation.
    """
    d, root = n_features, sqrt(n_features)
    if n_rows < d:
        raise NotSupportedError(
            f"rounding needs as many rows as features, and there are {n_rows} rows of {d} "
            "features; use rounding=None, whose noise is of real numbers"
        )
    norm = NORM_SLACK * ridge_norm_bound(regularization, d)
    chain = _chain(n_rows) + d + SMALL_CHAIN
    solve = (
        d * chain + (3 * d + 1) * d * (1 + regularization) + 1 + regularization
    ) * norm + root * chain
    measure = root * chain * (1.0 + root * norm + regularization * norm)
    distance = 2.0 * UNIT * (solve + 2.0 * measure) / regularization
    if regularization < 1.01 * WELL_CONDITIONED * d or distance > (NORM_SLACK - 1.0) / 2.0 * norm:
        raise NotSupportedError(
            f"regularization = {regularization:g} is too small for {d} features to bound the error "
            "of the solve in double precision; use a larger one, or rounding=None"
        )
    return SolveError(2.0 * UNIT * (solve + measure), norm, distance)


@dataclass(frozen=True, eq=False, kw_only=True)
class OutputPerturbation(Perturbation):
    """Noise on the model itself; see the module."""

    rate: float = np.inf  # scale of the noise; on a lattice, of each coordinate
    step: float | None = None  # step of the lattice; None for noise in floating point
    scale: int = 1  # scale of the noise on the lattice, in steps
    error: SolveError | None = None  # error of the solve, covered by the noise on the lattice

    @classmethod
    def of(
        cls,
        weights: Floats,
        sold: Floats,
        regularization: float,
        n_features: int,
        *,
        rounding: float | str | None,
        max_norm: float | None,
        sensitivity: Sensitivity,
    ) -> OutputPerturbation:
        """Plan the noise for the guarantees sold."""
        used, name, limits = weights > 0, "by output perturbation", REAL
        noisy, error = not np.isinf(sold[used]).all(), None
        noise: dict[str, Any] = {}
        if noisy and rounding is not None:
            try:
                error = solve_error(weights.size, n_features, regularization)
            except NotSupportedError:
                if rounding != "auto":
                    raise
        terms = n_features, max_norm, sensitivity
        if error is not None:
            total = max(1.0, fsum(weights) * UPWARD)  # the problem with weights w/W and lambda/W
            kappa = ridge_sensitivity(regularization / total, *terms) / total * UPWARD
            moved = np.where(used, kappa * weights + 2.0 * error.distance, 0.0)
            shift = sqrt(n_features) * moved * UPWARD
            step_size = None if isinstance(rounding, str) else rounding
            step, scale, epsilon = _lattice(shift, sold, n_features, error.norm, step_size)
            noise = {"rate": 1.0 / (scale * step), "step": step, "scale": scale, "error": error}
            name += f", exact noise on a lattice of step {step:g}"
            limits = EXACT.format(error.distance)
        elif noisy:
            kappa = ridge_sensitivity(regularization, *terms)
            rate = float(np.min(sold[used] / weights[used])) / kappa
            epsilon, noise = np.minimum(weights * kappa * rate, sold), {"rate": rate}
            name += ", noise in plain floating point"
        else:
            epsilon = np.where(used, np.inf, 0.0)
        public = (
            f"the minimiser without regularisation has norm at most {max_norm:g} on this data set "
            "and on every neighbour of it, and that is public"
        ) if max_norm is not None else ""  # fmt: skip
        return cls(
            weights=weights,
            epsilon=epsilon,
            regularization=regularization,
            name=name,
            accounting=f"{sensitivity} sensitivity",
            assumptions=(*filter(None, [public]), limits),
            noisy=noisy,
            exact=error is not None,
            **noise,
        )

    def solve(self, X: Floats | PartedRows, y: Floats) -> Floats:
        """Solve the ridge regression; raise a SolverError if the noise may not cover the error."""
        model = solve_ridge(X, y, self.weights, self.regularization)
        if self.error is None:
            return model
        misfit = row_sum(X, partial(_misfit, model), y, self.weights)
        left = np.linalg.norm(misfit - self.regularization * model)
        if not (left <= self.error.residual and np.linalg.norm(model) <= self.error.norm):
            raise SolverError(
                f"the ridge solve left a residual above the {self.error.residual:.3g} that double "
                "precision should leave: this machine's linear algebra is not what rounding= "
                "relies on. Use a larger regularization, or rounding=None"
            )
        return model

    def release(
        self, X: Floats | PartedRows, y: Floats, rng: np.random.Generator
    ) -> tuple[Floats, dict[str, Any]]:
        """Return the noisy model, and its fitted attributes."""
        model = self.solve(X, y)
        if self.step is not None:
            model = lattice_release(model, self.step, self.scale, rng)
        elif self.noisy:
            model = model + gamma_sphere_noise(model.size, rng) / self.rate
        return model, {
            "noise_rate_": self.rate,
            "regularization_": self.regularization,
            "rounding_": self.step,
        }

    def noise_effect(self, second: Floats) -> float:
        """Return the deviation that noise adds to a prediction."""
        square = 2.0 if self.exact else second.size + 1.0
        return float(np.sqrt(square * second.sum()) / self.rate)


def statistics_sensitivity(n_features: int, *, centred: bool, order: int = 1) -> float:
    r"""Bound the change of all statistics by a row of weight one, attained where centred.

    Without an intercept it is :math:`\frac{d(d+1)}2 + \frac{5d}4` in L1. With an intercept features
    are centred, and it is :math:`\frac{d^2}8 + \frac{9d}8 + 2` in L1 and
    :math:`\sqrt{\frac14\lfloor d^2/4\rfloor + d + 4}` in L2.
    """
    d = n_features
    if order == 2:
        return sqrt((d * d // 4) / 4.0 + d + 4.0)
    return d * d / 8.0 + 9.0 * d / 8.0 + 2.0 if centred else d * (d + 1) / 2.0 + 1.25 * d


@dataclass(frozen=True, eq=False, kw_only=True)
class StatisticsPerturbation(Perturbation):
    """Noise on the sums; see the module."""

    centred: bool  # with the constant 1 as the last feature
    step: float  # of the lattice
    scale: int  # scale of the noise in steps; the deviation of Gaussian noise

    @classmethod
    def of(
        cls,
        weights: Floats,
        sold: Floats,
        regularization: float,
        n_features: int,
        *,
        centred: bool,
        delta: float,
    ) -> StatisticsPerturbation:
        """Plan the noise for the guarantees sold; a delta requires an intercept."""
        count = n_features * (n_features + 3) // 2 + (n_features + 1) * centred
        error = 2.0 * UNIT * (_chain(weights.size) + 4)  # of an entry of a sum of total size one
        if delta and not centred:
            raise ParameterError("delta > 0 needs fit_intercept=True; pass it, or delta=0")
        kappa = statistics_sensitivity(n_features, centred=centred, order=2 if delta else 1)
        moved = kappa * weights + 2.0 * (sqrt(count) if delta else count) * error
        shift, used = np.where(weights > 0, moved * UPWARD, 0.0), weights > 0
        law, accounting, mu = "noise", "tight sensitivity", None
        if delta:
            asking = used & np.isfinite(sold)
            allowed = np.asarray(gaussian_shift(sold[asking], delta))
            least = float(np.max(shift[asking] / allowed)) * min(1.0, float(allowed.min()))
            step = lattice_step(max(least / (FINE * count), LARGEST * 2.0**-48))
            check_reach(LARGEST, step)
            # Rounding adds at most half a step per entry on either side.
            steps = np.where(used, shift / step + sqrt(count), 0.0)
            largest = float(np.max(steps[asking] / allowed))
            scale = int(np.ceil(np.sqrt(largest**2 * UPWARD + NARROWER)))
            epsilon, mu = np.where(used, sold, 0.0), steps / np.sqrt(scale**2 - NARROWER)
            law, accounting = "Gaussian noise", "Gaussian"
        else:
            step, scale, epsilon = _lattice(shift, sold, count, LARGEST, None)
        return cls(
            weights=weights,
            epsilon=epsilon,
            regularization=regularization,
            centred=centred,
            step=step,
            scale=scale,
            delta=delta,
            shift=mu,
            name=f"from perturbed statistics, exact {law} on a lattice of step {step:g}",
            accounting=accounting,
            assumptions=(EXACT.format(error),),
        )

    def sums(self, X: Floats | PartedRows, y: Floats) -> Floats:
        """Return the statistics: the upper triangle of second moments, then moments with labels."""
        sums = row_sum(X, _moments, y, self.weights)
        triangle = sums[np.triu_indices(X.shape[1])]
        return np.append(triangle[: triangle.size - self.centred], sums[:, -1])

    def release(
        self, X: Floats | PartedRows, y: Floats, rng: np.random.Generator
    ) -> tuple[Floats, dict[str, Any]]:
        """Return the model that solves the noisy equations, and its fitted attributes."""
        d = X.shape[1]
        sums = self.sums(X, y)
        noisy = lattice_release(sums, self.step, self.scale, rng, gaussian=self.delta > 0)
        second = np.zeros((d, d))
        corner = np.ones(1) if self.centred else np.zeros(0)
        second[np.triu_indices(d)] = np.append(noisy[:-d], corner)
        values, vectors = np.linalg.eigh(second, UPLO="U")
        scaled = (vectors.T @ noisy[-d:]) / (np.maximum(values, 0.0) + self.regularization)
        return np.asarray(vectors @ scaled), {
            "noise_rate_": 1.0 / (self.scale * self.step),
            "regularization_": self.regularization,
            "rounding_": self.step,
        }

    def noise_effect(self, second: Floats) -> float:
        """Return the deviation that noise adds to a prediction."""
        deviation = self.scale * self.step * (1.0 if self.delta else sqrt(2.0))
        gradient = deviation * sqrt(1.0 + NORM**2)
        return float(gradient * np.sqrt(np.sum(second / (second + self.regularization) ** 2)))


def _lattice(
    shift: Floats, sold: Floats, count: int, largest: float, rounding: float | None
) -> tuple[float, int, Floats]:
    """Return step, scale and the loss of each row, for a number of values of at most a size.

    Without a given step, noise is more than ``FINE * count`` steps, whichever row sets its scale:
    rounding adds at most ``count`` steps to the move of a row.
    """
    if rounding is None:
        exposed = (shift > 0) & np.isfinite(sold)
        granted = sold[exposed]
        scale = float(np.max(shift[exposed] / granted))
        wanted = scale * min(1.0, float(granted.min())) / (FINE * count)
        rounding = max(wanted, scale * 2.0**-40, largest * 2.0**-48)
    step = lattice_step(rounding)
    check_reach(largest, step)
    moves = lattice_moves(shift, step, count)
    whole = lattice_scale(moves, sold)
    return step, whole, np.minimum(lattice_epsilon(moves, whole), sold)


def _chain(n_rows: int) -> int:
    """Return the longest chain of roundings in a sum over rows."""
    return min(n_rows, CHUNK) + -(-n_rows // CHUNK)


def _moments(X: Floats, y: Floats, weights: Floats) -> Floats:
    """Return second moments, and moments with the labels as the last column."""
    weighed = weights[:, None] * X
    return np.column_stack([weighed.T @ X, weighed.T @ y])


def _misfit(model: Floats, X: Floats, y: Floats, weights: Floats) -> Floats:
    return np.asarray(X.T @ (weights * (y - X @ model)))
