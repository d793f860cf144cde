"""The audit of any mechanism that can be run many times: how often neighbours can be told apart.

A third of the draws choose an event that is likely under one data set and unlikely under the
other: a threshold on the linear statistic that separates them best. The others count it. What the
counts prove is a lower bound on epsilon, and no more: a mechanism that passes may still leak in a
way that no linear statistic shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.attacks.checks import draw_seeds, loss_of_frequencies, quietly
from convexmarket.attacks.result import AuditCheck, Neighbours, PrivacyAudit, ratios
from convexmarket.errors import DataError, ParameterError, ReleaseExhaustedError
from convexmarket.privacy.guarantee import Guarantee

__all__ = ["Mechanism", "audit_draws"]

Floats = NDArray[np.float64]

#: From a data set to releases by seed.
Mechanism = Callable[[Floats, NDArray[Any]], Callable[[int], Any]]

#: Share of the draws that are spent on each version of a row, to find the two that differ most.
PILOT = 0.025
THRESHOLDS = 40


def audit_draws(
    mechanism: Mechanism,
    X: Floats,
    y: NDArray[Any],
    rows: NDArray[np.intp] | None,
    draws: int,
    confidence: float,
    rng: np.random.Generator,
    *,
    points: ArrayLike | None = None,
    view: Callable[[Any], ArrayLike] | None = None,
    guarantee: Guarantee | None = None,
    replacements: tuple[ArrayLike, ArrayLike] | None = None,
) -> PrivacyAudit:
    """Audit one row at a time; see :func:`~convexmarket.audit_privacy`."""
    look = _looker(view, points)
    seed = draw_seeds(rng, 1)[0]
    first, leaked = quietly(lambda: mechanism(X, y)(seed))
    claim = guarantee or getattr(first, "guarantee", None) or getattr(first, "guarantee_", None)
    if guarantee is not None and not isinstance(guarantee, Guarantee):
        raise ParameterError(
            f"guarantee must be a Guarantee with one epsilon per row, got {guarantee!r:.80}: "
            "Guarantee(np.full(len(X), 1.0), delta=0.0, mechanism='a sum', accounting='exact', "
            "assumptions=())"
        )
    if not isinstance(claim, Guarantee):
        raise ParameterError(
            f"a {type(first).__name__} states no guarantee; pass guarantee=, what it claims"
        )
    if claim.epsilon.size != len(X):
        raise ParameterError(f"the guarantee covers {claim.epsilon.size} rows, and X has {len(X)}")
    if rows is None:
        rows = np.array([int(np.argmax(claim.epsilon))])
    found = []
    for row in rows.tolist():
        versions = _versions(X, y, row, replacements)
        pair = _best_neighbours(mechanism, look, X, y, row, versions, draws, rng)
        sides = ((pair.X, pair.y), (pair.X_other, pair.y_other))
        samples = [_draw(mechanism(*side), look, draws, rng) for side in sides]
        found.append((*_lower_bound(samples, claim.delta, confidence), pair))
    measured = np.array([np.inf if leaked else loss for loss, _, _ in found])
    worst = int(np.argmax(ratios(measured, claim.epsilon[rows])))
    said = "the mechanism says itself that private data leak" if leaked else "it says nothing else"
    checks = (
        AuditCheck("no public quantity is read from private rows", not leaked, said),
        AuditCheck("how often the best event was seen", True, found[worst][1]),
    )
    return PrivacyAudit(
        mechanism=claim.mechanism,
        method="statistical",
        rows=rows,
        claimed=claim.epsilon[rows],
        measured=measured,
        delta=claim.delta,
        confidence=confidence,
        checks=checks,
        witness=found[worst][2],
    )


def _looker(
    view: Callable[[Any], ArrayLike] | None, points: ArrayLike | None
) -> Callable[[Any], Floats]:
    """Return how a release is turned into a vector."""
    if view is not None:
        return lambda release: np.asarray(view(release), dtype=np.float64).ravel()
    if points is None:
        raise ParameterError(
            "pass points=, the questions that releases are asked, or view=, a function from a "
            "release to the numbers it publishes"
        )
    questions = np.asarray(points, dtype=np.float64)

    def answers(release: Any) -> Floats:
        try:
            given = np.asarray(release.predict(questions), dtype=np.float64)
        except ReleaseExhaustedError as error:  # where it stops is an answer as well
            given = np.zeros(len(questions))
            given[: len(error.answers)] = error.answers
            return np.append(given, len(error.answers))
        return np.append(given, len(questions))

    return answers


def _draw(
    release: Callable[[int], Any],
    look: Callable[[Any], Floats],
    draws: int,
    rng: np.random.Generator,
) -> Floats:
    return np.stack([look(quietly(partial(release, s))[0]) for s in draw_seeds(rng, draws)])


Version = tuple[Floats, Any]


def _best_neighbours(
    mechanism: Mechanism,
    look: Callable[[Any], Floats],
    X: Floats,
    y: NDArray[Any],
    row: int,
    versions: list[Version],
    draws: int,
    rng: np.random.Generator,
) -> Neighbours:
    """Return the two versions of a row whose releases differ most in a few draws."""
    few = max(20, int(PILOT * draws))
    sides, samples = [], []
    for features, label in versions:
        X_side, y_side = X.copy(), y.copy()
        X_side[row], y_side[row] = features, label
        try:
            samples.append(_draw(mechanism(X_side, y_side), look, few, rng))
        except DataError:  # outside the mechanism's domain, so no neighbour
            continue
        sides.append((X_side, y_side))
    best, found = -1.0, None
    for first, second in combinations(range(len(sides)), 2):
        here, there = samples[first], samples[second]
        shift = np.abs(here.mean(axis=0) - there.mean(axis=0))
        spread = np.maximum(np.sqrt(here.var(axis=0) + there.var(axis=0)), 1e-12 * shift)
        apart = float(np.linalg.norm(shift / np.where(spread > 0, spread, 1.0)))
        if apart > best:
            best, found = apart, (first, second)
    if found is None:
        raise DataError("no replacement of a row was accepted; give data whose rows differ")
    (X_one, y_one), (X_other, y_other) = (sides[place] for place in found)
    return Neighbours(row, X_one, y_one, X_other, y_other, output=None)


def _versions(
    X: Floats,
    y: NDArray[Any],
    row: int,
    replacements: tuple[ArrayLike, ArrayLike] | None,
) -> list[Version]:
    """Return what a row may be: itself, and what is given, or made of the other rows."""
    if replacements is not None:
        features, given = np.asarray(replacements[0], dtype=np.float64), np.asarray(replacements[1])
        if features.ndim != 2 or features.shape[1] != X.shape[1] or len(given) != len(features):
            raise ParameterError(
                f"replacements must be rows of {X.shape[1]} features, and a label for each"
            )
        return [(X[row], y[row]), *zip(features, given, strict=True)]
    labels = np.unique(y)[[0, -1]]
    norms = np.linalg.norm(X, axis=1)
    longest = X[int(np.argmax(np.where(np.arange(len(X)) == row, -1.0, norms)))]
    across = X[int(np.argmin(X @ X[row]))]
    rows = [X[row], -X[row], np.zeros_like(X[row]), longest, across]
    versions = [(features, label) for features in rows for label in np.unique(labels)]
    own = (X[row], y[row])
    return [own, *(v for v in versions if not (np.array_equal(v[0], own[0]) and v[1] == own[1]))]


def _lower_bound(pair: list[Floats], delta: float, confidence: float) -> tuple[float, str]:
    """Return the epsilon that the best event proves, and what was seen of it."""
    third = len(pair[0]) // 3
    learn, count = [sample[:third] for sample in pair], [sample[third:] for sample in pair]
    centre = (learn[0].mean(axis=0) + learn[1].mean(axis=0)) / 2.0
    spread = learn[0].var(axis=0) + learn[1].var(axis=0)
    apart = learn[0].mean(axis=0) - learn[1].mean(axis=0)
    # a direction without noise tells the two apart at once, so it must not be divided away
    direction = apart / np.maximum(spread, 1e-12 * float(spread.max()) or 1.0)
    scores = [[(sample - centre) @ direction for sample in part] for part in (learn, count)]
    every = np.sort(np.concatenate(scores[0]))
    cuts = np.unique(every[np.linspace(0, every.size - 1, THRESHOLDS).astype(int)])
    # one bound for each order of the data sets, each with half of the error probability
    each = 1.0 - (1.0 - confidence) / 2.0
    best, words = 0.0, "no event was more likely under one data set"
    for first, sign in ((0, 1.0), (1, -1.0)):
        tries = [
            (_proved(scores[0], first, sign, cut, delta, each)[0], cut) for cut in cuts.tolist()
        ]
        cut = max(tries)[1]
        loss, seen, seen_other = _proved(scores[1], first, sign, cut, delta, each)
        if loss > best:
            total = len(count[0])
            best = loss
            words = f"{seen} of {total} under one data set, {seen_other} of {total} under the other"
    return best, words


def _proved(
    scores: list[Floats], first: int, sign: float, cut: float, delta: float, confidence: float
) -> tuple[float, int, int]:
    """Return what the event beyond a cut proves, and how often it was seen."""
    here, there = scores[first], scores[1 - first]
    seen = int(np.count_nonzero(sign * here >= sign * cut))
    seen_other = int(np.count_nonzero(sign * there >= sign * cut))
    loss = loss_of_frequencies(seen, here.size, seen_other, there.size, delta, confidence)
    return loss, seen, seen_other
