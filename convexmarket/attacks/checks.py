"""Statistics of audits: laws of noise, frequencies of events, and what is published beside them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from convexmarket.attacks.result import AuditCheck
from convexmarket.errors import ConvexMarketError, PrivacyLeakWarning

__all__ = [
    "draw_seeds",
    "gamma_sphere_check",
    "loss_of_frequencies",
    "noise_scale",
    "published_check",
    "quietly",
]

Floats = NDArray[np.float64]

LINES = 6  # that directions are projected on, and as many axes


def draw_seeds(rng: np.random.Generator, count: int) -> list[int]:
    """Return seeds for a mechanism's own source of noise."""
    return [int(seed) for seed in rng.integers(0, 2**62, size=count)]


def quietly(fit: Callable[[], Any]) -> tuple[Any, bool]:
    """Run a fit without its warnings, and say whether it warned that private data leak."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit()
    return result, any(issubclass(w.category, PrivacyLeakWarning) for w in caught)


def gamma_sphere_check(noises: Floats, confidence: float) -> AuditCheck:
    """Test whether noise vectors have density proportional to ``exp(-norm)``.

    Three laws are tested by Kolmogorov and Smirnov: that norms are Gamma(n); that directions,
    projected on axes and on fixed random lines, are those of a uniform direction; and that norms
    do not depend on how near a direction is to such a line, or to which end. The error probability
    is shared among all tests.

    Parameters
    ----------
    noises : ndarray of shape (n_draws, n_features)
    confidence : float
    """
    n_features = noises.shape[1]
    norms = np.linalg.norm(noises, axis=1)
    directions = noises / np.maximum(norms, 1e-300)[:, None]
    by_norm = float(stats.kstest(norms, stats.gamma(n_features).cdf).pvalue)
    lines = _lines(n_features)
    cosines = np.clip(directions @ lines.T, -1.0, 1.0).T
    by_direction = [_uniform_p_value(along, n_features) for along in cosines]
    independent = [
        _same_law(norms, part)
        for along in cosines
        for part in (along > 0.0, np.abs(along) > np.median(np.abs(along)))
    ]
    p_values = [by_norm, *by_direction, *independent]
    passed = min(p_values) >= (1.0 - confidence) / len(p_values)
    found = (
        f"mean norm {norms.mean() / n_features:.3f} of what is claimed, over {len(noises)} releases"
        f" (smallest p-values: norms {by_norm:.2g}, {len(by_direction)} projections"
        f" {min(by_direction):.2g}, {len(independent)} comparisons of norms {min(independent):.2g})"
    )
    return AuditCheck("the noise has the claimed law", passed, found)


def _lines(n_features: int) -> Floats:
    """Return unit vectors: the first axes, and as many fixed random lines."""
    count = min(LINES, n_features)
    random = np.random.default_rng(0).normal(size=(LINES, n_features))
    random /= np.linalg.norm(random, axis=1)[:, None]
    return np.vstack([np.eye(n_features)[:count], random if n_features > 1 else random[:0]])


def _uniform_p_value(along: Floats, n_features: int) -> float:
    """Test the cosines of uniform directions with a line."""
    if n_features == 1:  # a sign
        ends = int(np.count_nonzero(along > 0.0))
        return float(stats.binomtest(ends, along.size).pvalue)
    half = (n_features - 1.0) / 2.0
    return float(stats.kstest((along + 1.0) / 2.0, stats.beta(half, half).cdf).pvalue)


def _same_law(norms: Floats, part: NDArray[np.bool_]) -> float:
    """Compare the norms of a part of the draws with those of the others."""
    if part.all() or not part.any():
        return 1.0
    return float(stats.ks_2samp(norms[part], norms[~part]).pvalue)


def noise_scale(norms: Floats, n_features: int, confidence: float) -> float:
    """Return the scale of Gamma(n) norms nearest to one that the draws do not refute.

    One where the noise is as claimed; an upper confidence bound where there is less.
    """
    total = float(norms.sum())
    tail = (1.0 - confidence) / 2.0
    shape = norms.size * n_features
    upper = total / float(stats.gamma(shape).ppf(tail))
    return min(1.0, upper)


def loss_of_frequencies(
    seen: int, draws: int, seen_other: int, draws_other: int, delta: float, confidence: float
) -> float:
    """Return the epsilon that two frequencies of an event prove, at least 0.

    Clopper and Pearson's bounds, each with half of the error probability: the event has
    probability at least ``low`` under one data set and at most ``high`` under the other, so
    epsilon is at least ``log((low - delta) / high)``.
    """
    tail = (1.0 - confidence) / 2.0
    low = float(stats.beta(seen, draws - seen + 1).ppf(tail)) if seen else 0.0
    high = 1.0
    if seen_other < draws_other:
        high = float(stats.beta(seen_other + 1, draws_other - seen_other).ppf(1.0 - tail))
    return float(np.log((low - delta) / high)) if low - delta > high else 0.0


def published_check(
    name: str, publish: Callable[[Floats, NDArray[Any]], Any], pairs: Sequence[tuple[Any, ...]]
) -> AuditCheck:
    """Compare what is published without noise on neighbouring data sets.

    A difference, or a fit that fails on one of them, tells neighbours apart with certainty.

    Parameters
    ----------
    name : str
    publish : callable
        From ``(X, y)`` to what is published beside the noisy vector.
    pairs : sequence of (X, y, X', y')
    """
    for X, y, X_other, y_other in pairs:
        seen = []
        for rows, labels in ((X, y), (X_other, y_other)):
            try:
                facts, leaked = quietly(partial(publish, rows, labels))
            except ConvexMarketError as error:
                facts, leaked = f"{type(error).__name__}: {error}", False
            if leaked:
                return AuditCheck(name, False, "the mechanism says itself that private data leak")
            seen.append(repr(facts))
        if seen[0] != seen[1]:
            return AuditCheck(
                name, False, f"one row changes it from {seen[0]:.100} to {seen[1]:.100}"
            )
    return AuditCheck(name, True, f"the same on {len(pairs)} pairs of neighbours")
