r"""Noise that is exact on a real machine: whole numbers of steps, drawn with integers alone.

A sampler of real numbers that rounds its results has a pattern of reachable doubles, and adding it
to a value shifts the pattern by that value: the last digits of a sum tell neighbours apart whatever
epsilon is (docs/threat-model.md). Here nothing is rounded after the draw.

**The release.** Let q be a step that is a power of two, :math:`v \in \mathbb R^d` what is computed
from the rows, and t a positive rational, the scale in steps. Then :math:`m_j = \lfloor v_j/q +
\tfrac12\rfloor` in exact arithmetic, :math:`Z_j` are independent with
:math:`P(Z_j = z) \propto e^{-|z|/t}` over the integers, and :math:`q(m_j + Z_j)` is released.

**The guarantee.** If v' is what would be computed from a neighbouring data set and
:math:`\|v - v'\|_1 \le \Delta`, the release is epsilon-differentially private with

.. math:: \varepsilon = \frac{\lceil \Delta/q\rceil + d - 1}{t}
          \;<\; \frac{\Delta/q + d}{t}, \qquad \Delta > 0.

*Proof.* For reals, :math:`|\lfloor a\rfloor - \lfloor b\rfloor| < |a-b| + 1`, so
:math:`\|m - m'\|_1 < \Delta/q + d`. The left side is an integer, so it is at most
:math:`\lceil\Delta/q\rceil + d - 1`. For any integer vector o, the probabilities of
:math:`m + Z = o` and :math:`m' + Z = o` have the ratio
:math:`\prod_j e^{(|o_j - m'_j| - |o_j - m_j|)/t} \le e^{\|m-m'\|_1/t}`. The law of Z is exact: the
sampler of Canonne, Kamath and Steinke draws uniform integers and compares integers, nothing else.
What is released is a function of m + Z: the product with q is exact, as q is a power of two and
:math:`|m_j + Z_j| \le 2^{53}`; larger sums are refused, which again is a function of m + Z. Nothing
in this depends on how v was computed. :math:`\blacksquare`

So Delta has to bound the change of the *computed* values: the real sensitivity, and the floating
point error of the computation twice.

References
----------
Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, Algorithm 2. Mironov,
On Significance of the Least Significant Bits for Differential Privacy.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor, frexp, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_count, check_positives, is_number, row_norms
from convexmarket.errors import DataError, ParameterError
from convexmarket.privacy.discrete import discrete_gaussian, discrete_laplace

__all__ = [
    "check_reach",
    "clipped_steps",
    "lattice_blur",
    "lattice_epsilon",
    "lattice_moves",
    "lattice_release",
    "lattice_scale",
    "lattice_step",
    "whole_steps",
]

Floats = NDArray[np.float64]

LARGEST_FLOAT = 2**53  # up to which every integer is a double
LARGEST_SCALE = 2**45  # in steps: noise beyond half of LARGEST_FLOAT has probability exp(-128)
STEPS = (2.0**-500, 2.0**500)
HALF = Fraction(1, 2)
MOST_STEPS = 2**60  # of one value, as a sum of a few stays below 2**63
LENGTH_ROUNDING = 1e-6  # relative; more than the length of a scaled vector is off by
# Relative: what a handful of roundings to nearest can amount to, and far more.
SLACK = 1e-12


def lattice_step(rounding: Any) -> float:
    """Return the largest power of two that is at most ``rounding``.

    Parameters
    ----------
    rounding : float
        From ``2**-500`` to ``2**500``.

    Returns
    -------
    float

    Raises
    ------
    ParameterError
        If it is out of its range.

    Examples
    --------
    >>> lattice_step(0.001) == 2.0**-10
    True
    """
    if not is_number(rounding) or not STEPS[0] <= rounding <= STEPS[1]:
        raise ParameterError(
            f"rounding must be a step from 2**-500 to 2**500, or None, got {rounding!r}"
        )
    return float(2.0 ** (frexp(float(rounding))[1] - 1))


def lattice_moves(shift: ArrayLike, step: float, n_values: int) -> Floats:
    r"""Bound the number of steps that rounded values move by, in all: whole numbers.

    Parameters
    ----------
    shift : array_like
        Bounds on the sum of the values' changes; nonnegative. A zero says that nothing changes.
    step : float
        A power of two.
    n_values : int
        d, how many values.

    Returns
    -------
    ndarray
        :math:`\lceil\Delta/q\rceil + d - 1`, and 0 where the shift is 0.

    Raises
    ------
    ParameterError
        If a shift is so many steps that doubles no longer count them.

    Examples
    --------
    >>> lattice_moves([0.0, 0.25, 1.0], 0.5, 3)
    array([0., 3., 4.])
    """
    steps = np.asarray(shift, dtype=np.float64) / step  # exact: the step is a power of two
    if not np.all(steps <= LARGEST_SCALE):
        raise ParameterError(
            f"rounding to steps of {step:g} is too fine for values that move by {np.max(shift):g}; "
            f"take a step of {float(np.max(shift)) * 2.0**-40:.2g} or more"
        )
    return np.asarray(np.where(steps > 0, np.ceil(steps) + (n_values - 1), 0.0))


def check_reach(largest: float, step: float) -> None:
    """Refuse a step in which values of this size, with noise, would be too many steps to count.

    Parameters
    ----------
    largest : float
        Public bound on the values' absolute values.
    step : float
        A power of two.

    Raises
    ------
    ParameterError
        If the bound is beyond ``2**52`` steps.

    Examples
    --------
    >>> check_reach(1.0, 2.0**-30)
    """
    if not largest / step <= LARGEST_FLOAT / 2:
        raise ParameterError(
            f"rounding to steps of {step:g} is too fine for values up to {largest:g}; take a step "
            f"of {largest * 2.0**-50:.2g} or more"
        )


def whole_steps(values: ArrayLike, step: float, largest: float) -> NDArray[np.int64]:
    """Round values computed from private rows to whole numbers of steps.

    Every conversion of a private value to an integer is made here, or exactly in
    :func:`lattice_release`. Clamping moves two values no further apart.

    Parameters
    ----------
    values : array_like
        Not a number counts as 0: an error would reveal the rows.
    step : float
        Positive.
    largest : float
        Public bound on the values. They are clamped to it, and to ``2**60`` steps.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> whole_steps([0.9, np.nan, -np.inf], 0.25, 1.0)
    array([ 4,  0, -4])
    """
    reach = min(float(largest), MOST_STEPS * step)
    inside = np.clip(np.nan_to_num(values, nan=0.0, posinf=reach, neginf=-reach), -reach, reach)
    return np.asarray(np.rint(inside / step), dtype=np.int64)


def clipped_steps(vectors: Floats, clip: float, radii: Floats) -> NDArray[np.int64]:
    r"""Clip vectors to a length, scale that length to a radius, and round to whole numbers.

    Parameters
    ----------
    vectors : ndarray of shape (n_rows, n_values)
        A vector with an entry that is not finite counts as 0: an error would reveal the row.
    clip : float
        Longer vectors are shortened to it; positive.
    radii : ndarray of shape (n_rows,)
        At most ``2**60``.

    Returns
    -------
    ndarray of int64, shape (n_rows, n_values)
        Of length at most :math:`r + \sqrt d/2` for the radius r, to a millionth. A row that is
        longer, whatever the arithmetic did, is 0.

    Examples
    --------
    >>> clipped_steps(np.array([[3e200, 4e200], [np.nan, 1.0]]), 1.0, np.array([10.0, 10.0]))
    array([[6, 8],
           [0, 0]])
    """
    finite = np.all(np.isfinite(vectors), axis=1, keepdims=True)
    usable = np.where(finite, vectors, 0.0)
    lengths = np.maximum(row_norms(usable), clip)
    whole = np.rint(usable * (radii / lengths)[:, None])
    longest = (radii + sqrt(vectors.shape[1]) / 2.0) * (1.0 + LENGTH_ROUNDING)
    kept = np.less_equal(np.linalg.norm(whole, axis=1), longest)[:, None]
    return np.asarray(np.where(kept, whole, 0.0), dtype=np.int64)


def lattice_scale(moves: ArrayLike, epsilon: ArrayLike) -> int:
    """Return a whole number of steps, the scale of noise that keeps every epsilon.

    Parameters
    ----------
    moves : array_like of shape (n_rows,)
        What :func:`lattice_moves` bounds, row by row.
    epsilon : array_like of shape (n_rows,)
        What each row may lose; positive where the row moves anything.

    Returns
    -------
    int
        t with ``moves / t <= epsilon``, at most a step and ``1e-12`` of it above the smallest.

    Raises
    ------
    ParameterError
        If it is beyond ``2**45`` steps.

    Examples
    --------
    >>> lattice_scale([3.0, 4.0], [0.5, 1.0])
    7
    """
    moved = np.asarray(moves, dtype=np.float64)
    used = moved > 0
    if not used.any():
        return 1
    needed = moved[used] / np.broadcast_to(epsilon, moved.shape)[used]
    scale = float(np.max(needed)) * (1.0 + SLACK)
    if not scale <= LARGEST_SCALE:
        raise ParameterError(
            f"noise of {scale:.3g} steps is needed, and at most 2**45 = {LARGEST_SCALE:.3g} are "
            "served; use a larger rounding"
        )
    return int(np.ceil(scale))


def lattice_epsilon(moves: ArrayLike, scale: int) -> Floats:
    """Return what each row loses, rounded up.

    Parameters
    ----------
    moves : array_like of shape (n_rows,)
        What :func:`lattice_moves` bounds, row by row.
    scale : int
        Of the noise, in steps.

    Returns
    -------
    ndarray of shape (n_rows,)

    Examples
    --------
    >>> lattice_epsilon([0.0, 3.0], 6).round(9)
    array([0. , 0.5])
    """
    return np.asarray(np.nextafter(np.asarray(moves, dtype=np.float64) / scale, np.inf)) * (
        np.asarray(moves) > 0
    )


def lattice_blur(distance: float, n_values: int, epsilon: float) -> tuple[float, int]:
    r"""Plan a release that hides which of two near vectors was computed.

    Let an ideal vector be private, and the computed one within r of it, whatever it depends on. The
    computed one, released with this noise, costs a row what the ideal one does, and epsilon more.
    *Proof.* For an ideal vector w and a set A let f(w) be the largest probability of A over
    computed vectors within r of w. Two such vectors are 2r apart at most, so f(w) is at most
    :math:`e^\varepsilon` times the probability of A from any of them; and :math:`E f(w)` changes
    with a row as the ideal vector allows. :math:`\blacksquare`

    Parameters
    ----------
    distance : float
        r, in the Euclidean norm; positive, public.
    n_values : int
        n, at least 1.
    epsilon : float
        Positive; what it may cost, in nats.

    Returns
    -------
    step : float
        A power of two for :func:`lattice_release`, at most a sixteenth of :math:`2r/\sqrt n`.
    scale : int
        Of the noise, in steps: :func:`lattice_moves` of :math:`2\sqrt n\,r`, over epsilon. The
        noise of each value has a scale of about :math:`2\sqrt n\,r/\varepsilon`.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Examples
    --------
    >>> step, scale = lattice_blur(1e-7, 4, 0.01)
    >>> bool(lattice_epsilon(lattice_moves(4e-7, step, 4), scale) <= 0.01)
    True
    >>> round(step * scale, 6)
    4.1e-05
    """
    check_positives(distance=distance, epsilon=epsilon)
    apart = 2.0 * sqrt(check_count("n_values", n_values)) * distance * (1.0 + SLACK)
    step = lattice_step(apart / (16.0 * n_values))
    return step, lattice_scale([float(lattice_moves(apart, step, n_values))], [epsilon])


def lattice_release(
    values: ArrayLike,
    step: float,
    scale: Fraction | int,
    rng: np.random.Generator,
    *,
    gaussian: bool = False,
) -> Floats:
    """Round values to the lattice, add exact noise, and return the sums, exactly.

    Parameters
    ----------
    values : array_like of shape (n_values,)
        What was computed from the rows. Not a number counts as 0: an error would reveal the rows.
    step : float
        A power of two, from ``2**-500`` to ``2**500``: see :func:`lattice_step`.
    scale : Fraction or int
        Of the noise, in steps.
    rng : numpy.random.Generator
        Source of the noise; it advances.
    gaussian : bool, default False
        Whether the noise is discrete Gaussian (of a whole scale) and not discrete Laplace.

    Returns
    -------
    ndarray of shape (n_values,)
        Multiples of the step.

    Raises
    ------
    ParameterError
        If an argument is out of its range, or a sum is beyond ``2**53`` steps.
    DataError
        If values are no vector.

    Examples
    --------
    >>> released = lattice_release([0.3, -1.0], 2.0**-20, 2**18, np.random.default_rng(0))
    >>> bool(np.all(released * 2**20 == np.rint(released * 2**20)))
    True
    """
    if lattice_step(step) != step:
        raise ParameterError(f"step must be a power of two, got {step!r}; see lattice_step")
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise DataError(f"values must be a vector, got an array of shape {array.shape}")
    noise = (
        discrete_gaussian(scale, array.size, rng)  # type: ignore[arg-type]
        if gaussian
        else discrete_laplace(scale, array.size, rng)
    )
    exact = Fraction(step)
    sums = [
        floor(Fraction(value) / exact + HALF) + drawn
        for value, drawn in zip(np.nan_to_num(array).tolist(), noise, strict=True)
    ]
    if max(map(abs, sums)) > LARGEST_FLOAT:
        raise ParameterError(
            f"a sum is beyond 2**53 steps of {step:g}, where doubles have gaps; use a larger "
            "rounding"
        )
    return np.array(sums, dtype=np.float64) * step
