"""Noise of a proven distance from the ideal: what is drawn, and how far it is off.

All randomness is uniform integers. Each coordinate of a drawn vector is within a few roundings,
relative to itself, of an ideal real one's. The remaining difference is an error of the computation,
which a second, discrete noise hides (:func:`~convexmarket.privacy.lattice_blur`). The proof, and
its assumption on the C library, are in docs/theory.md, section 13.
"""

from __future__ import annotations

from math import cos, fsum, hypot, ldexp, log, log1p, pi, sin, sqrt

import numpy as np
from numpy.typing import NDArray

from convexmarket.checks import check_count

__all__ = ["gamma_sphere_draw", "gamma_sphere_error"]

UNIT = 2.0**-53
DRAW_ROUNDINGS = 64  # 40 are counted
LAST_EXPONENT = 1000
WORD = 62  # bits of an integer that are looked at together


def gamma_sphere_draw(n_features: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Draw a vector of density proportional to :math:`\exp(-\|b\|)`, to within a proven distance.

    The generator serves uniform integers, and nothing else. The vector is within
    :func:`gamma_sphere_error` of a vector of real numbers that has the law exactly.
    """
    size = check_count("n_features", n_features)
    radius = fsum(_exponentials(size, rng))
    direction = _normals(size, rng)
    length = hypot(*direction)
    return np.array([radius * value / length for value in direction])


def gamma_sphere_error(n_roundings: int = 0) -> float:
    r"""Bound the distance of a drawn vector from the ideal one, relative to its norm.

    The bound is :math:`\gamma_{64+k}` after k more roundings of each coordinate, such as a product
    with a scale. Each coordinate keeps to it, and so do both vectors' norms.
    """
    return (count := (DRAW_ROUNDINGS + n_roundings) * UNIT) / (1.0 - count)


def _exponentials(size: int, rng: np.random.Generator) -> list[float]:
    """Return independent exponential numbers of mean one."""
    zeros, uniforms = _leading_zeros(size, rng), _uniforms(size, rng)
    return [
        zero * log(2.0) - log1p(-uniform / 2.0)
        for zero, uniform in zip(zeros, uniforms, strict=True)
    ]


def _normals(size: int, rng: np.random.Generator) -> list[float]:
    """Return independent standard normal numbers."""
    pairs = (size + 1) // 2
    roots = [sqrt(2.0 * value) for value in _exponentials(pairs, rng)]
    angles = [pi / 4.0 * value for value in _uniforms(pairs, rng)]
    turns = rng.integers(0, 8, size=pairs).tolist()
    found: list[float] = []
    for root, angle, turn in zip(roots, angles, turns, strict=True):
        first, second = (sin(angle), cos(angle)) if turn & 1 else (cos(angle), sin(angle))
        found.append(root * (first if turn & 2 else -first))
        found.append(root * (second if turn & 4 else -second))
    return found[:size]


def _uniforms(size: int, rng: np.random.Generator) -> list[float]:
    """Return uniform numbers from the unit interval, each to the last bit of its own."""
    zeros = _leading_zeros(size, rng)
    parts = rng.integers(2**53, 2**54, size=size).tolist()
    return [
        ldexp((part + 1) // 2, -53 - min(zero, LAST_EXPONENT))
        for part, zero in zip(parts, zeros, strict=True)
    ]


def _leading_zeros(size: int, rng: np.random.Generator) -> list[int]:
    """Return how many zeros come before the first one, among fair bits."""
    found = []
    for word in rng.integers(0, 2**WORD, size=size).tolist():
        zeros = WORD - word.bit_length()
        while not word:
            word = int(rng.integers(0, 2**WORD))
            zeros += WORD - word.bit_length()
        found.append(zeros)
    return found
