"""Statistics of audits: laws of noise, frequencies of events, and released values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from convexmarket.attacks.audit_result import AuditCheck
from convexmarket.errors import ConvexMarketError, PrivacyLeakWarning

__all__ = ["draw_seeds", "law_check", "loss_of_frequencies", "published_check", "quietly"]

Floats = NDArray[np.float64]

LINES = 6  # number of projections, and of axes
LEAK = "the mechanism warns that private data leak"


def draw_seeds(rng: np.random.Generator, count: int) -> list[int]:
    """Return seeds for the noise of a mechanism."""
    return rng.integers(0, 2**62, size=count).tolist()


def quietly(fit: Callable[[], Any]) -> tuple[Any, bool]:
    """Run a fit without its warnings; return its result, and whether it warned of a leak."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit()
    return result, any(issubclass(w.category, PrivacyLeakWarning) for w in caught)


def law_check(
    name: str, noises: Floats, reference: Floats, confidence: float
) -> tuple[AuditCheck, float]:
    """Compare noise vectors, one per line, with draws of the claimed law.

    Norms, and projections on the first axes and on fixed random lines, are compared by Kolmogorov
    and Smirnov's test. The second result is one if the law is not refuted, and otherwise an upper
    confidence bound on the relative size of the noise, at most one.
    """
    n_features = noises.shape[1]
    lines = np.eye(n_features)[:LINES]
    if n_features > 1:
        lines = np.vstack([lines, np.random.default_rng(0).normal(size=(LINES, n_features))])
    sizes, expected = (np.linalg.norm(vectors, axis=1) for vectors in (noises, reference))
    pairs = [(sizes, expected), *((noises @ line, reference @ line) for line in lines)]
    p_values = [float(stats.ks_2samp(*pair).pvalue) for pair in pairs]
    passed = min(p_values) >= (1.0 - confidence) / len(p_values)
    size = float(sizes.mean() / expected.mean())
    detail = (
        f"mean size {size:.3f} of the claimed one, over {len(noises)} releases (smallest p-values:"
        f" sizes {p_values[0]:.2g}, {len(lines)} projections {min(p_values[1:]):.2g})"
    )
    error = stats.norm.isf((1.0 - confidence) / 2.0) * sizes.std() / np.sqrt(len(noises))
    scale = 1.0 if passed else min(1.0, size + float(error / expected.mean()))
    return AuditCheck(name, passed, detail), scale


def loss_of_frequencies(
    count: int, draws: int, other_count: int, other_draws: int, delta: float, confidence: float
) -> float:
    """Compute the epsilon proven by two frequencies of an event, at least 0.

    By Clopper and Pearson, the event has probability at least ``low`` under one data set and at
    most ``high`` under the other, so epsilon is at least ``log((low - delta) / high)``.
    """
    tail = (1.0 - confidence) / 2.0
    low = float(stats.beta.ppf(tail, count, draws - count + 1)) if count else 0.0
    high = 1.0
    if other_count < other_draws:
        high = float(stats.beta.isf(tail, other_count + 1, other_draws - other_count))
    return float(np.log((low - delta) / high)) if low - delta > high else 0.0


def published_check(
    facts: Callable[[Floats, NDArray[Any]], Any], pairs: Sequence[tuple[Any, ...]]
) -> AuditCheck:
    """Compare the facts published without noise on neighbouring data sets (X, y, X', y').

    A difference, or a failed fit on one of them, distinguishes neighbours with certainty.
    """
    name = "nothing else that is published depends on rows"
    for pair in pairs:
        sides = []
        for data in (pair[:2], pair[2:]):
            try:
                published, leaked = quietly(partial(facts, *data))
            except ConvexMarketError as error:
                published, leaked = f"{type(error).__name__}: {error}", False
            if leaked:
                return AuditCheck(name, False, LEAK)
            sides.append(repr(published))
        if sides[0] != sides[1]:
            detail = f"one row changes it from {sides[0]:.100} to {sides[1]:.100}"
            return AuditCheck(name, False, detail)
    return AuditCheck(name, True, f"the same on {len(pairs)} pairs of neighbours")
