"""Draw floating-point noise with a proven bound on its distance from an exact draw.

All randomness is drawn as uniform integers. Each coordinate has a relative error of a few
roundings, which a second, discrete noise covers
(:func:`~convexmarket.privacy.lattice.lattice_blur`). The proof and its assumption on the C library
are in docs/theory.md, section 13.
"""

from __future__ import annotations

from math import cos, fsum, hypot, ldexp, log, log1p, pi, sin, sqrt

import numpy as np
from numpy.typing import NDArray

__all__ = ["gamma_sphere_draw", "gamma_sphere_error"]

UNIT = 2.0**-53
DRAW_ROUNDINGS = 64  # the proof requires at least 40
LAST_EXPONENT = 1000
WORD = 62  # bits of a random integer


def gamma_sphere_draw(n_features: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Draw a vector with density proportional to :math:`\exp(-\|b\|)`, up to a proven error."""
    radius, direction = fsum(_exponentials(n_features, rng)), _normals(n_features, rng)
    length = hypot(*direction)
    return np.array([radius * value / length for value in direction])


def gamma_sphere_error(n_roundings: int = 0) -> float:
    """Bound the relative error of a drawn vector and of its coordinates.

    ``n_roundings`` is the number of further roundings of each coordinate, such as a rescaling.
    """
    return (count := (DRAW_ROUNDINGS + n_roundings) * UNIT) / (1.0 - count)


def _exponentials(size: int, rng: np.random.Generator) -> list[float]:
    pairs = zip(_leading_zeros(size, rng), _uniforms(size, rng), strict=True)
    return [zeros * log(2.0) - log1p(-uniform / 2.0) for zeros, uniform in pairs]


def _normals(size: int, rng: np.random.Generator) -> list[float]:
    pairs = (size + 1) // 2
    roots = [sqrt(2.0 * value) for value in _exponentials(pairs, rng)]
    angles = [pi / 4.0 * value for value in _uniforms(pairs, rng)]
    turns = rng.integers(0, 8, size=pairs).tolist()
    normals: list[float] = []
    for root, angle, turn in zip(roots, angles, turns, strict=True):
        first, second = (sin(angle), cos(angle)) if turn & 1 else (cos(angle), sin(angle))
        normals.append(root * (first if turn & 2 else -first))
        normals.append(root * (second if turn & 4 else -second))
    return normals[:size]


def _uniforms(size: int, rng: np.random.Generator) -> list[float]:
    """Draw uniform numbers from the unit interval. All bits of each mantissa are random."""
    exponents = [-53 - min(zeros, LAST_EXPONENT) for zeros in _leading_zeros(size, rng)]
    parts = rng.integers(2**53, 2**54, size=size).tolist()
    return [ldexp((part + 1) // 2, e) for part, e in zip(parts, exponents, strict=True)]


def _leading_zeros(size: int, rng: np.random.Generator) -> list[int]:
    """Count the zeros before the first 1 in each of ``size`` sequences of fair bits."""
    counts = []
    for word in rng.integers(0, 2**WORD, size=size).tolist():
        zeros = WORD - word.bit_length()
        while not word:
            word = int(rng.integers(0, 2**WORD))
            zeros += WORD - word.bit_length()
        counts.append(zeros)
    return counts
