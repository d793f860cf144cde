"""Test the distribution and the rounding error of noise, compared with sixty-digit arithmetic."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.privacy.exact_noise import WORD, gamma_sphere_draw, gamma_sphere_error
from tests.privacy.builders import check_gamma_sphere


@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_the_noise_has_the_stated_law(n_features):
    check_gamma_sphere(n_features, 1500, least_p=1e-4, draw=gamma_sphere_draw)


class Recorded:
    """Generator that draws only uniform integers and records the draws."""

    def __init__(self, seed, zero_words=()):
        self._rng, self._zero_words = np.random.default_rng(seed), set(zero_words)
        self.drawn, self._calls = [], 0

    def integers(self, low, high, size=None):
        result = self._rng.integers(low, high, size=size)
        if (low, high) == (0, 2**WORD) and size is not None and self._calls in self._zero_words:
            result[0] = 0  # a zero word has probability 2**-62
        self._calls += 1
        self.drawn.extend(np.atleast_1d(result).tolist())
        return result


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def sine(x):
    """Compute the sine of x < 1 from its power series."""
    term, total, k = x, x, 1
    while abs(term) > Decimal(10) ** -70:
        term *= -x * x / ((k + 1) * (k + 2))
        total, k = total + term, k + 2
    return total


def ideal(drawn, n, fractions):
    """Compute the noise for the given integers in sixty-digit arithmetic."""
    feed, more = iter(drawn), iter(fractions)

    def zeros(size):
        words = [next(feed) for _ in range(size)]
        counts = []
        for word in words:
            count = WORD - word.bit_length()
            while not word:
                word = next(feed)
                count += WORD - word.bit_length()
            counts.append(count)
        return counts

    def uniforms(size):
        exponents = zeros(size)
        parts = [Decimal(next(feed)) + Decimal(next(more)) for _ in range(size)]
        pairs = zip(parts, exponents, strict=True)
        return [part / Decimal(2) ** (54 + exponent) for part, exponent in pairs]

    def exponentials(size):
        whole = zeros(size)
        pairs = zip(whole, uniforms(size), strict=True)
        return [k * Decimal(2).ln() - (1 - u / 2).ln() for k, u in pairs]

    radius, half = sum(exponentials(n)), (n + 1) // 2
    roots = [(2 * e).sqrt() for e in exponentials(half)]
    angles = [PI / 4 * u for u in uniforms(half)]
    normals = []
    for root, angle in zip(roots, angles, strict=True):
        turn, s = next(feed), sine(angle)
        pair = [s, (1 - s * s).sqrt()][:: 1 if turn & 1 else -1]
        signs = [1 if turn & bit else -1 for bit in (2, 4)]
        normals += [root * value * sign for value, sign in zip(pair, signs, strict=True)]
    normals = normals[:n]
    length = sum(v * v for v in normals).sqrt()
    return [radius * v / length for v in normals]


@given(
    n=st.integers(1, 9),
    seed=st.integers(0, 2**32),
    zero_words=st.sets(st.integers(0, 6)),
    fraction=st.sampled_from([0.0, 0.5, 1.0 - 2.0**-53]),
)
def test_every_coordinate_is_within_the_claimed_distance_of_the_ideal(
    n, seed, zero_words, fraction
):
    """The ideal noise uses the 53 random bits of each draw, followed by arbitrary bits."""
    recorded = Recorded(seed, zero_words)
    vector = gamma_sphere_draw(n, recorded)
    with localcontext() as context:
        context.prec = 80
        exact = ideal(recorded.drawn, n, [fraction] * (4 * n + 4))
        for result, wanted in zip(vector.tolist(), exact, strict=True):
            assert abs(Decimal(result) - wanted) <= Decimal(gamma_sphere_error()) * abs(wanted)
