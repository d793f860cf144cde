r"""Calibrate the noise of releases.

The privacy loss of a row depends on the change of a prediction when that row is replaced, in units
of the scale of the noise. A :data:`Calibration` is a function from this change to an epsilon. A
root finder computes the smallest scale at which the epsilon of every row is at most its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.errors import ParameterError
from convexmarket.privacy.composition import (
    Composition,
    advanced_composition,
    epsilon_of_moments,
    gaussian_epsilon,
    moments,
    update_moments,
)

Floats = NDArray[np.float64]

#: Increasing function that maps the change of a prediction, in units of the scale, to epsilon.
Calibration: TypeAlias = Callable[[Floats], Floats]

#: Kind of noise: independent Laplace noise in every prediction, or one draw of a Gaussian process.
NoiseKind: TypeAlias = Literal["laplace", "process"]

#: Largest width of the interval in which the logarithm of the scale is searched.
LARGEST_LOG = 100.0
#: Upper bound on the change of a prediction and on epsilon. The reciprocal is the lower bound.
EXTREME = 1e150
ROUNDING = 1e-9  # relative increase of every scale that covers rounding errors
MOST_UPDATES = 10**12
CONSTANT = 200.0  # constant of Gupta, Roth and Ullman, Theorem 4.1


def interactive_epsilon(max_updates: int, delta: float, accounting: Composition) -> Calibration:
    """Return the calibration of the sparse-vector scheme for a number of updates."""
    if max_updates > MOST_UPDATES:
        raise ParameterError(
            f"max_updates must be at most {MOST_UPDATES:,}, got {max_updates:,}; for more "
            "updates, rounding errors dominate"
        )

    def tight(shifts: Floats) -> Floats:
        return epsilon_of_moments(max_updates * update_moments(shifts), delta)

    return tight if accounting == "tight" else _published(max_updates, delta, tight)


def semi_interactive_epsilon(
    n_points: int, effective: float, delta: float, accounting: Composition
) -> Calibration:
    """Return the calibration of T predictions with independent noise at given points.

    ``effective`` is the largest eigenvalue of the kernel matrix divided by R_phi^2, from 1 to T.
    Only "tight" depends on this number.
    """
    if accounting == "paper":
        if delta == 0.0:
            return lambda shifts: n_points * shifts
        return lambda shifts: advanced_composition(shifts, n_points, delta)

    def tight(shifts: Floats) -> Floats:
        # largest sum of T changes if the sum of their squares is ``effective * shift**2``
        pure = np.sqrt(n_points * effective) * shifts
        if delta == 0.0:
            return np.asarray(pure)
        apart = n_points * moments("pure", shifts)
        together = moments("gaussian", np.sqrt(effective) * shifts)
        return np.minimum(pure, epsilon_of_moments(np.minimum(apart, together), delta))

    return tight


def non_interactive_epsilon(rounds: int, delta: float, accounting: Composition) -> Calibration:
    """Return the calibration of rounds that each consist of a selection and a measurement.

    The exponent of a selection is ``|difference| / scale``, or a quarter of this ratio for "paper".
    """
    sharpness = selection_factor(accounting)

    def tight(shifts: Floats) -> Floats:
        pure = (2.0 * sharpness + 1.0) * rounds * shifts
        if delta == 0.0:
            return pure
        each = moments("gaussian", sharpness * shifts) + moments("pure", shifts)
        return np.minimum(pure, epsilon_of_moments(rounds * each, delta))

    return tight if accounting == "tight" else _published(rounds, delta, tight)


def selection_factor(accounting: Composition) -> float:
    """Return the factor by which ``|difference| / scale`` is multiplied in a selection."""
    return 0.25 if accounting == "paper" else 1.0


def function_epsilon(delta: float) -> Calibration:
    """Return the calibration of the noise of a Gaussian process."""
    return lambda shifts: gaussian_epsilon(shifts, delta)


def _published(count: int, delta: float, proven: Calibration) -> Calibration:
    factor = CONSTANT * np.sqrt(count) * np.log(4.0 / delta)
    return lambda shifts: np.maximum(factor * shifts, proven(shifts))


def calibrate(shifts: Floats, sold: Floats, epsilon_of: Calibration) -> tuple[float, Floats]:
    """Compute the smallest scale at which no row exceeds its epsilon, and the actual epsilons.

    For each row, ``shifts`` contains the change of a prediction when the row is replaced, which is
    zero for unused rows. ``sold`` contains the permitted epsilon, which is positive for used rows.
    """
    pairs, places = np.unique(np.column_stack([shifts, sold]), axis=0, return_inverse=True)
    used = pairs[:, 0] > 0
    moves, bounds = pairs[used].T
    if not np.all((pairs[used] > 1.0 / EXTREME) & (pairs[used] < EXTREME)):
        raise ParameterError(
            f"epsilon from {bounds.min():g} to {bounds.max():g} needs noise beyond the range of "
            f"floating point, for changes from {moves.min():g} to {moves.max():g}; use "
            "another epsilon, or leave out the rows with the smallest epsilon"
        )
    # Few rows determine the scale, so repeatedly add the row that exceeds its epsilon most.
    ratios = np.log(moves) - np.log(bounds)
    deciding = [int(np.argmax(ratios))]
    scale = 0.0
    while True:
        decided = _smallest_scale(moves[deciding], bounds[deciding], epsilon_of) * (1.0 + ROUNDING)
        scale = max(decided, scale * (1.0 + ROUNDING))
        # Process a thousand rows at a time, because the tables of moments are large.
        pieces = np.array_split(moves / scale, max(1, len(moves) // 1000))
        priced = np.concatenate([epsilon_of(piece) for piece in pieces])
        worst = int(np.argmax(priced / bounds))
        if priced[worst] <= bounds[worst]:
            break
        deciding.append(worst)
    epsilon = np.zeros(len(pairs))
    # The epsilon of a used row is positive, even if the computed value rounds to zero.
    epsilon[used] = np.maximum(priced, np.minimum(bounds, np.finfo(np.float64).tiny))
    return scale, epsilon[places.reshape(-1)]


def _smallest_scale(moves: Floats, bounds: Floats, epsilon_of: Calibration) -> float:
    """Compute the smallest scale at which all epsilons are within their bounds."""

    def excess(log_scale: float) -> float:
        share = float((epsilon_of(moves / np.exp(log_scale)) / bounds).max())
        return float(np.log(min(max(share, 1e-100), 1e100)))

    low = high = float(np.max(np.log(moves) - np.log(bounds)))
    while excess(high) > 0:
        high += 2.0
        if high - low > LARGEST_LOG:
            raise ParameterError(
                "no scale of noise achieves this epsilon and delta; use a larger epsilon or delta"
            )
    while excess(low) <= 0:
        low -= 2.0
        if high - low > LARGEST_LOG:
            return float(np.exp(high))
    return float(np.exp(brentq(excess, low, high, xtol=1e-12)))
