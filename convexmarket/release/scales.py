r"""How much noise a release needs: from the change of a prediction to an epsilon, and back.

Every release draws noise of some scale s. What a row loses depends on the change of a prediction
when that row is replaced, in units of s; a function from the one to the other is a
:data:`Calibration`. The smallest scale that keeps every row's epsilon is found by a root finder.
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
    epsilon_of_moments,
    gaussian_epsilon,
    gaussian_moments,
    laplace_moments,
    selection_moments,
    update_moments,
)

__all__ = [
    "Calibration",
    "NoiseKind",
    "calibrate",
    "check_count",
    "function_epsilon",
    "interactive_epsilon",
    "non_interactive_epsilon",
    "semi_interactive_epsilon",
]

Floats = NDArray[np.float64]

#: Of the change of a prediction in units of the scale, row by row, the epsilon; increasing.
Calibration: TypeAlias = Callable[[Floats], Floats]

#: Independent Laplace noise in every prediction, or one draw of a Gaussian process.
NoiseKind: TypeAlias = Literal["laplace", "process"]

ROUNDING = 1e-9  # relative; added to every scale, so that rounding never makes noise too small
CONSTANT = 200.0  # of Gupta, Roth and Ullman, Theorem 4.1


def check_count(name: str, value: int) -> int:
    """Return a count of at least one.

    Raises
    ------
    ParameterError
        If it is not one.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ParameterError(f"{name} must be an integer of at least 1, not {value!r}.")
    return int(value)


def interactive_epsilon(max_updates: int, delta: float, accounting: Composition) -> Calibration:
    """Return the calibration of the sparse-vector scheme with so many updates."""
    if accounting == "paper":
        factor = CONSTANT * np.sqrt(max_updates) * np.log(4.0 / delta)
        return lambda shifts: factor * shifts
    return lambda shifts: epsilon_of_moments(max_updates * update_moments(shifts), delta)


def semi_interactive_epsilon(
    n_points: int,
    effective: float,
    delta: float,
    accounting: Composition,
    noise: NoiseKind,
) -> Calibration:
    r"""Return the calibration of noisy predictions at given points.

    Parameters
    ----------
    n_points : int
        T.
    effective : float
        Largest eigenvalue of the points' kernel matrix over R_phi^2, between 1 and T: how many
        predictions move together. Only "tight" uses it.
    delta : float
        With zero, epsilons add.
    accounting : {"tight", "paper"}
    noise : {"laplace", "process"}
    """
    if noise == "process":
        return function_epsilon(delta)
    if accounting == "paper":
        if delta == 0.0:
            return lambda shifts: n_points * shifts
        return lambda shifts: np.asarray(
            np.sqrt(2.0 * n_points * np.log(1.0 / delta)) * shifts
            + n_points * shifts * np.expm1(np.minimum(shifts, 700.0))
        )

    def tight(shifts: Floats) -> Floats:
        # the sum of T changes whose squares add up to ``effective`` of one
        pure = np.sqrt(n_points * effective) * shifts
        if delta == 0.0:
            return np.asarray(pure)
        apart = n_points * laplace_moments(shifts)
        together = gaussian_moments(np.sqrt(effective) * shifts)
        return np.minimum(pure, epsilon_of_moments(np.minimum(apart, together), delta))

    return tight


def non_interactive_epsilon(rounds: int, delta: float, accounting: Composition) -> Calibration:
    """Return the calibration of rounds of a selection and a measurement.

    Selections have the exponent ``|disagreement| / scale``, under "paper" a quarter of it.
    """
    if accounting == "paper":
        return interactive_epsilon(rounds, delta, "paper")

    def tight(shifts: Floats) -> Floats:
        pure = 3.0 * rounds * shifts
        if delta == 0.0:
            return pure
        moments = selection_moments(2.0 * shifts) + laplace_moments(shifts)
        return np.minimum(pure, epsilon_of_moments(rounds * moments, delta))

    return tight


def function_epsilon(delta: float) -> Calibration:
    """Return the calibration of a Gaussian process that is added to the whole function."""
    return lambda shifts: gaussian_epsilon(shifts, delta)


def calibrate(shifts: Floats, sold: Floats, epsilon_of: Calibration) -> tuple[float, Floats]:
    """Return the smallest scale of noise that keeps every row's epsilon, and the epsilons.

    Parameters
    ----------
    shifts : ndarray of shape (n_rows,)
        Change of a prediction when the row is replaced; zero for rows that are not used.
    sold : ndarray of shape (n_rows,)
        What each row may lose; positive for rows that are used.
    epsilon_of : callable

    Returns
    -------
    scale : float
    epsilon : ndarray of shape (n_rows,)
        At most ``sold``; zero for rows that are not used.

    Raises
    ------
    ParameterError
        If no scale does.
    """
    pairs, places = np.unique(np.column_stack([shifts, sold]), axis=0, return_inverse=True)
    used = pairs[:, 0] > 0
    moves, bounds = pairs[used].T

    def log_excess(log_scale: float) -> float:
        epsilon = np.clip(epsilon_of(moves / np.exp(log_scale)), 1e-300, 1e300)
        return float(np.log(np.max(epsilon / bounds)))

    low = high = float(np.log(np.max(moves / bounds)))
    while log_excess(high) > 0:
        high += 2.0
        if high - low > 100.0:
            raise ParameterError(
                "no amount of noise gives this epsilon at this delta: use a larger epsilon or a"
                " larger delta."
            )
    while log_excess(low) <= 0:
        low -= 2.0
        if high - low > 100.0:
            break
    log_scale = high if log_excess(low) <= 0 else brentq(log_excess, low, high, xtol=1e-12)
    scale = float(np.exp(log_scale)) * (1.0 + ROUNDING)
    while np.any(epsilon_of(moves / scale) > bounds):
        scale *= 1.0 + ROUNDING
    epsilon = np.zeros(len(pairs))
    epsilon[used] = epsilon_of(moves / scale)
    return scale, epsilon[places.reshape(-1)]
