r"""Integers with noise's laws, drawn exactly: from uniform integers, with integers alone.

Nothing is rounded, so every integer has the probability that the law gives it, if uniform integers
are uniform.

The *discrete Laplace* law has probabilities proportional to :math:`e^{-|z|/t}`, and the *discrete
Gaussian* to :math:`e^{-z^2/(2s^2)}`, over all integers. The latter hides what Gaussian noise does:

**Shifts by integers.** Let m, m' be integer vectors, :math:`\|m - m'\| \le \Delta`, and Z
independent discrete Gaussians. *(1)* The moments of the privacy loss between
m + Z and m' + Z are at most :math:`\lambda(\lambda+1)\Delta^2/(2s^2)`, as those of real Gaussian
noise. (Canonne, Kamath and Steinke, Theorem 14: completing the square leaves a sum of
:math:`e^{-(z-c)^2/(2s^2)}` over the integers, which is largest for an integer c, by Poisson's sum.)
*(2)* They are as far apart as with real Gaussian noise of deviation :math:`\sqrt{s^2 - 9}`, up to
a factor :math:`e^{\pm\eta}` of every probability, :math:`\eta < 10^{-70}` for up to a million
coordinates. So a guarantee of real noise of that deviation is one of discrete noise.

*Proof of (2), here.* Release :math:`Y = m + N(0, s^2 - 9)`, and round it at random: take o with a
probability proportional to :math:`e^{-(o-Y)^2/18}` over the integers, coordinate by coordinate. The
normalising sum :math:`\sum_k e^{-(k-y)^2/18}` is :math:`3\sqrt{2\pi}(1 + \theta)`,
:math:`|\theta| \le 2\sum_{k\ge1} e^{-18\pi^2k^2} < 10^{-76}`, by Poisson's sum. The product of
the two densities, integrated over y, is proportional to :math:`e^{-(o-m)^2/(2s^2)}`. So the rounded
number has each probability of m + Z within a factor :math:`(1+\theta)^{\pm2}`, and it is a
function of Y and of randomness that knows no data. :math:`\blacksquare` (Peikert uses the same
sum: An Efficient and Parallel Gaussian Sampler for Lattices, Theorem 3.1.)

References
----------
Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, Algorithms 2 and 3.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_count
from convexmarket.errors import ParameterError

__all__ = [
    "accept_exponential",
    "discrete_gaussian",
    "discrete_gaussian_log_density",
    "discrete_laplace",
    "discrete_laplace_log_density",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST_PART = 2**52  # of the fraction that is the scale, so that products stay below 2**63
LARGEST_DEVIATION = 2**45  # so that the products of an accepted draw do


def discrete_laplace(scale: Fraction | int, size: int, rng: np.random.Generator) -> list[int]:
    r"""Draw independent integers of probability proportional to :math:`e^{-|z|/t}`, exactly.

    Parameters
    ----------
    scale : Fraction or int
        t, positive; numerator and denominator at most ``2**52``.
    size : int
        How many, at least 1.
    rng : numpy.random.Generator
        Source of uniform integers, and of nothing else; it advances.

    Returns
    -------
    list of int

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    References
    ----------
    Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, Algorithm 2.

    Examples
    --------
    >>> draws = discrete_laplace(Fraction(5, 2), 10_000, np.random.default_rng(0))
    >>> round(sum(z * z for z in draws) / len(draws), 1)  # the variance is 12.3
    12.8
    """
    top, bottom = _parts(scale)
    missing, drawn = check_count("size", size), []
    while missing:
        rest = rng.integers(0, top, size=missing)
        rest = rest[_accept_fraction(rest, top, rng)]
        whole = _geometric(len(rest), rng)
        negative = rng.integers(0, 2, size=len(rest))
        # Python's integers from here on: they cannot overflow.
        for low, high, minus in zip(rest.tolist(), whole.tolist(), negative.tolist(), strict=True):
            size_of = (low + top * high) // bottom
            if size_of or not minus:
                drawn.append(-size_of if minus else size_of)
        missing = size - len(drawn)
    return drawn


def discrete_laplace_log_density(value: ArrayLike, scale: Fraction | int) -> Floats:
    r"""Log probability, in nats, of the integers that :func:`discrete_laplace` draws.

    Parameters
    ----------
    value : array_like of int
    scale : Fraction or int
        t, positive.

    Returns
    -------
    ndarray
        :math:`\log\tanh\frac{1}{2t} - |z|/t`.

    Examples
    --------
    >>> float(np.exp(discrete_laplace_log_density(np.arange(-400, 401), 5)).sum().round(12))
    1.0
    """
    top, bottom = _parts(scale)
    rate = bottom / top
    return np.asarray(np.log(np.tanh(rate / 2.0)) - rate * np.abs(np.asarray(value)))


def discrete_gaussian(scale: int, size: int, rng: np.random.Generator) -> list[int]:
    r"""Draw independent integers of probability proportional to :math:`e^{-z^2/(2s^2)}`, exactly.

    Parameters
    ----------
    scale : int
        s, from 1 to ``2**45``: the standard deviation, to within ``1e-7`` of it.
    size : int
        How many, at least 1.
    rng : numpy.random.Generator
        Source of uniform integers, and of nothing else; it advances.

    Returns
    -------
    list of int

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    A discrete Laplace number y of scale s is accepted with probability
    :math:`e^{-(|y|-s)^2/(2s^2)}`. With :math:`||y|-s| = ks + r` that is the product of
    :math:`e^{-k^2/2}`, :math:`e^{-kr/s}` and :math:`e^{-(r/s)^2/2}`.

    References
    ----------
    Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, Algorithm 3.

    Examples
    --------
    >>> draws = discrete_gaussian(10, 10_000, np.random.default_rng(0))
    >>> round(sum(z * z for z in draws) / len(draws))
    100
    """
    _check_deviation(scale)
    missing, drawn = check_count("size", size), []
    while missing:
        tries = discrete_laplace(scale, 2 * missing, rng)  # two in three are accepted
        whole, rest = np.array([divmod(abs(abs(y) - scale), scale) for y in tries]).T
        kept = _accept_fraction(rest, scale, rng, halved_square=True)
        kept[kept] = accept_exponential(whole[kept] * rest[kept], scale, rng)
        kept[kept] = accept_exponential(whole[kept] ** 2, 2, rng)
        drawn += [tries[place] for place in np.flatnonzero(kept)[:missing].tolist()]
        missing = size - len(drawn)
    return drawn


def discrete_gaussian_log_density(value: ArrayLike, scale: int) -> Floats:
    r"""Log probability, in nats, of the integers that :func:`discrete_gaussian` draws.

    Parameters
    ----------
    value : array_like of int
    scale : int
        s, from 1 to ``2**45``.

    Returns
    -------
    ndarray
        :math:`-z^2/(2s^2) - \log(s\sqrt{2\pi}\,\theta)` with
        :math:`\theta = 1 + 2\sum_{k\ge1} e^{-2(\pi ks)^2}`, of which one term is more than enough.

    Examples
    --------
    >>> float(np.exp(discrete_gaussian_log_density(np.arange(-80, 81), 5)).sum().round(12))
    1.0
    """
    _check_deviation(scale)
    total = scale * np.sqrt(2.0 * np.pi) * (1.0 + 2.0 * np.exp(-2.0 * (np.pi * scale) ** 2))
    return np.asarray(-((np.asarray(value) / scale) ** 2) / 2.0 - np.log(total))


def _check_deviation(scale: object) -> None:
    if isinstance(scale, bool) or not isinstance(scale, int) or not 1 <= scale <= LARGEST_DEVIATION:
        raise ParameterError(f"scale must be an integer from 1 to 2**45, got {scale!r}")


def accept_exponential(parts: Integers, whole: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return True with probability ``exp(-part / whole)``, exactly.

    Parameters
    ----------
    parts : ndarray of int64
        Nonnegative.
    whole : int
        Positive, at most ``2**62``.
    rng : numpy.random.Generator
        Source of uniform integers, and of nothing else; it advances.

    Returns
    -------
    ndarray of bool

    Examples
    --------
    >>> accept_exponential(np.array([0, 10**6]), 100, np.random.default_rng(0))
    array([ True, False])
    """
    accepted = _accept_fraction(parts % whole, whole, rng)
    accepted[accepted] = _geometric(int(accepted.sum()), rng) >= (parts // whole)[accepted]
    return accepted


def _accept_fraction(
    parts: Integers, whole: int, rng: np.random.Generator, halved_square: bool = False
) -> NDArray[np.bool_]:
    """Return True with probability ``exp(-part / whole)``, for parts from 0 to the whole.

    In round k of a series the chance to go on is part / (whole * k): the number of the last round
    is odd with the probability that is wanted (von Neumann). With ``halved_square`` the chance to
    go on, and so the exponent, is half the square of part / whole.
    """
    accepted = np.zeros(len(parts), dtype=bool)
    going = np.arange(len(parts))
    round_ = 1
    while len(going):
        on = rng.integers(0, whole, size=len(going)) < parts[going]
        on &= rng.integers(0, round_ * (1 + halved_square), size=len(going)) == 0
        if halved_square:
            on &= rng.integers(0, whole, size=len(going)) < parts[going]
        accepted[going[~on]] = round_ % 2 == 1
        going = going[on]
        round_ += 1
    return accepted


def _parts(scale: Fraction | int) -> tuple[int, int]:
    """Return numerator and denominator of a scale."""
    if isinstance(scale, bool) or not isinstance(scale, (Fraction, int)):
        raise ParameterError(f"scale must be a Fraction or an integer, got {scale!r}")
    top, bottom = scale.numerator, scale.denominator
    if not (0 < top <= LARGEST_PART and bottom <= LARGEST_PART):
        raise ParameterError(f"scale must be positive, with parts of at most 2**52, got {scale!r}")
    return top, bottom


def _geometric(size: int, rng: np.random.Generator) -> Integers:
    """Return how often in a row an event of probability 1/e happens."""
    counts = np.zeros(size, dtype=np.int64)
    going = np.arange(size)
    while len(going):
        going = going[_accept_fraction(np.ones(len(going), dtype=np.int64), 1, rng)]
        counts[going] += 1
    return counts
