r"""Draw exact integer noise, and add it to values that are rounded to a lattice.

With floating-point noise, the last digits of a noisy value can reveal the value at any epsilon
(Mironov). Therefore, values are rounded to multiples of a step q, a power of two, and exact integer
noise is added (Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy,
Algorithms 2 and 3). Suppose that replacing a row changes the *computed* values by :math:`\Delta` in
L1, including floating-point errors. For d values and discrete Laplace noise of scale t, the epsilon
is then :math:`(\lceil\Delta/q\rceil + d - 1)/t` (docs/theory.md, section 12).
"""

from __future__ import annotations

from itertools import count
from math import frexp, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_count, check_positives, is_number, row_norms
from convexmarket.errors import ParameterError

__all__ = ["accept_exponential", "check_reach", "clipped_steps", "discrete_gaussian"]
__all__ += ["discrete_laplace", "lattice_blur", "lattice_epsilon", "lattice_moves"]
__all__ += ["lattice_release", "lattice_scale", "lattice_step", "whole_steps"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST_SCALE = 2**45  # largest noise scale in steps, so that products are below 2**63
LARGEST_FLOAT = 2**53  # all smaller integers are exact as floats
STEPS = (2.0**-500, 2.0**500)
MOST_STEPS = 2**60  # largest number of steps of a value, so that sums are below 2**63
LENGTH_ROUNDING, SLACK = 1e-6, 1e-12  # bounds on rounding errors of lengths and quotients


def discrete_laplace(scale: int, size: int, rng: np.random.Generator) -> Integers:
    r"""Draw integers with probability exactly proportional to :math:`e^{-|z|/t}` at scale t."""
    drawn, missing = [np.zeros(0, dtype=np.int64)], size
    while missing:
        rest = rng.integers(0, scale, size=missing)
        rest = rest[_accept_fraction(rest, scale, rng)]
        values = rest + scale * _geometric(len(rest), rng)
        negative = rng.integers(0, 2, size=len(rest)) == 1
        drawn.append(np.where(negative, -values, values)[(values > 0) | ~negative])
        missing -= len(drawn[-1])
    return np.concatenate(drawn)


def discrete_gaussian(scale: int, size: int, rng: np.random.Generator) -> Integers:
    r"""Draw integers with probability exactly proportional to :math:`e^{-z^2/(2s^2)}`.

    The scale s is the standard deviation up to a relative error of ``1e-7``. A discrete Laplace
    number y of scale s is accepted with probability :math:`e^{-(|y|-s)^2/(2s^2)}`. With
    :math:`||y|-s| = ks + r`, this probability is the product of :math:`e^{-k^2/2}`,
    :math:`e^{-kr/s}` and :math:`e^{-(r/s)^2/2}`.
    """
    drawn, missing = [np.zeros(0, dtype=np.int64)], size
    while missing:
        tries = discrete_laplace(scale, 2 * missing, rng)  # about two of three draws are accepted
        whole, rest = np.divmod(np.abs(np.abs(tries) - scale), scale)
        accepted = _accept_fraction(rest, scale, rng, halved_square=True)
        accepted[accepted] = accept_exponential(whole[accepted] * rest[accepted], scale, rng)
        accepted[accepted] = accept_exponential(whole[accepted] ** 2, 2, rng)
        drawn.append(tries[accepted][:missing])
        missing -= len(drawn[-1])
    return np.concatenate(drawn)


def accept_exponential(parts: Integers, whole: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return True with probability exactly ``exp(-part / whole)``, for parts >= 0."""
    accepted = _accept_fraction(parts % whole, whole, rng)
    accepted[accepted] = _geometric(int(accepted.sum()), rng) >= (parts // whole)[accepted]
    return accepted


def _accept_fraction(
    parts: Integers, whole: int, rng: np.random.Generator, halved_square: bool = False
) -> NDArray[np.bool_]:
    """Return True with probability exactly ``exp(-part / whole)``, for parts from 0 to ``whole``.

    A series of rounds continues after round k with probability part / (whole * k). The number of
    the last round is odd with the required probability (von Neumann). With ``halved_square``, the
    exponent is half the square of part / whole.
    """
    accepted, going = np.zeros(len(parts), dtype=bool), np.arange(len(parts))
    for round_ in count(1):
        on = parts[going] > (rng.integers(0, whole, size=len(going)) if whole > 1 else 0)
        if round_ > 1 or halved_square:
            on &= rng.integers(0, round_ * (1 + halved_square), size=len(going)) == 0
        if halved_square:
            on &= rng.integers(0, whole, size=len(going)) < parts[going]
        accepted[going[~on]] = round_ % 2 == 1
        going = going[on]
        if not len(going):
            break
    return accepted


def _geometric(size: int, rng: np.random.Generator) -> Integers:
    """Draw numbers of successes before the first failure, for success probability 1/e."""
    counts, going = np.zeros(size, dtype=np.int64), np.arange(size)
    while len(going):
        going = going[_accept_fraction(np.ones(len(going), dtype=np.int64), 1, rng)]
        counts[going] += 1
    return counts


def lattice_step(rounding: Any) -> float:
    """Round a step, between 2**-500 and 2**500, down to a power of two."""
    if not is_number(rounding) or not STEPS[0] <= rounding <= STEPS[1]:
        raise ParameterError(
            f"rounding must be a step from 2**-500 to 2**500, or None, got {rounding!r}"
        )
    return float(2.0 ** (frexp(float(rounding))[1] - 1))


def lattice_moves(shift: ArrayLike, step: float, n_values: int) -> Floats:
    """Bound the L1 change of rounded values, in steps, given the L1 change before rounding."""
    steps = np.asarray(shift, dtype=np.float64) / step  # exact, because the step is a power of two
    if not np.all(steps <= LARGEST_SCALE):
        raise ParameterError(
            f"steps of {step:g} are too fine for values that change by {np.max(shift):g}; use a"
            " coarser rounding"
        )
    return np.where(steps > 0, np.ceil(steps) + (n_values - 1), 0.0)


def lattice_scale(moves: ArrayLike, epsilon: ArrayLike) -> int:
    """Compute a noise scale, in whole steps, that satisfies the epsilon of every row."""
    moved = np.asarray(moves, dtype=np.float64)
    used = moved > 0
    needed = moved[used] / np.broadcast_to(epsilon, moved.shape)[used]
    scale = float(np.max(needed, initial=0.0)) * (1.0 + SLACK)
    if not scale <= LARGEST_SCALE:
        raise ParameterError(
            f"the noise needs a scale of {scale:.3g} steps, above 2**45; use a coarser rounding"
        )
    return max(int(np.ceil(scale)), 1)


def lattice_epsilon(moves: ArrayLike, scale: int) -> Floats:
    """Compute the privacy loss of each row, ``moves / scale``, rounded up."""
    moved = np.asarray(moves, dtype=np.float64)
    return np.where(moved > 0, np.nextafter(moved / scale, np.inf), 0.0)


def lattice_blur(distance: float, n_values: int, epsilon: float) -> tuple[float, int]:
    """Choose the step and scale of lattice noise that hides errors at a cost of ``epsilon``.

    ``distance`` bounds the Euclidean norm of the errors (docs/theory.md, section 13).
    """
    check_positives(distance=distance, epsilon=epsilon)
    apart = 2.0 * sqrt(check_count("n_values", n_values)) * distance * (1.0 + SLACK)
    step = lattice_step(apart / (16.0 * n_values))
    return step, lattice_scale([float(lattice_moves(apart, step, n_values))], [epsilon])


def check_reach(largest: float, step: float) -> None:
    """Raise an error if a step is too fine for values up to ``largest``."""
    if not largest / step <= LARGEST_FLOAT / 2:
        raise ParameterError(
            f"steps of {step:g} are too fine for values up to {largest:g}; use a coarser rounding"
        )


def whole_steps(values: ArrayLike, step: float, largest: float = np.inf) -> Integers:
    """Clip private values to a public bound, and round them to whole steps, with halves up.

    Rounding halves up keeps the integers of values that are k steps apart at most k apart. NaN is
    replaced by 0, because raising an error would reveal information about the rows.
    """
    reach = min(float(largest), MOST_STEPS * step)
    inside = np.clip(np.nan_to_num(values, nan=0.0, posinf=reach, neginf=-reach), -reach, reach)
    steps = inside / step
    below = np.floor(steps)
    return np.asarray(below + (steps - below >= 0.5), dtype=np.int64)


def clipped_steps(vectors: Floats, clip: float, radii: Floats) -> Integers:
    r"""Clip vectors to length ``clip``, scale this length to a radius, and round to integers.

    The length of each result is at most :math:`r + \sqrt d/2` for the radius r, up to a relative
    error of a millionth. A vector is replaced by 0 if it is not finite or its result is longer.
    """
    usable = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    lengths = np.maximum(row_norms(usable), clip)
    whole = np.rint(usable * (radii / lengths)[:, None])
    longest = (radii + sqrt(vectors.shape[1]) / 2.0) * (1.0 + LENGTH_ROUNDING)
    short = np.less_equal(np.linalg.norm(whole, axis=1), longest)[:, None]
    return np.asarray(np.where(short, whole, 0.0), dtype=np.int64)


def lattice_release(
    values: ArrayLike, step: float, scale: int, rng: np.random.Generator, *, gaussian: bool = False
) -> Floats:
    """Round values to multiples of a step, and add exact noise with this scale in steps."""
    if lattice_step(step) != step:
        raise ParameterError(f"step must be a power of two, got {step!r}; see lattice_step")
    draw, whole = discrete_gaussian if gaussian else discrete_laplace, whole_steps(values, step)
    sums = whole + draw(scale, whole.size, rng).reshape(whole.shape)
    if np.abs(sums).max(initial=0) > LARGEST_FLOAT:
        raise ParameterError(f"a value exceeds 2**53 steps of {step:g}; use a coarser rounding")
    return np.asarray(sums * step, dtype=np.float64)
