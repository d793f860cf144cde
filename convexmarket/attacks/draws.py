"""Audit mechanisms statistically by the frequencies of events on neighbouring data sets.

An event is a half-space of released numbers. One third of the draws determines the event that best
separates the data sets. Its frequencies in the other draws prove a lower bound on epsilon.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from convexmarket.attacks.audit_result import ROUNDING, AuditCheck, Neighbours, PrivacyAudit
from convexmarket.errors import DataError, ParameterError, PrivacyLeakWarning, ReleaseExhaustedError
from convexmarket.learners.domain import Granted
from convexmarket.learners.private_learner import Learner, unfitted
from convexmarket.privacy.accountant import PrivacyAccountant
from convexmarket.privacy.guarantee import LEAST, Guarantee
from convexmarket.privacy.random_sources import Simulation

__all__ = ["LEAK", "Mechanism", "View", "audit_draws", "audit_learner", "draw_seeds", "quietly"]

Floats = NDArray[np.float64]
#: Function that maps a data set to a function from seeds to releases.
Mechanism = Callable[[Floats, NDArray[Any]], Callable[[int], Any]]
#: Function that maps a release to its published numbers.
View = Callable[[Any], ArrayLike]
Replacements = tuple[ArrayLike, ArrayLike] | None
Rows = tuple[Floats, NDArray[Any]]

PILOT = 0.025  # share of the draws used to choose the two versions of a row
LEAK = "the mechanism warns of a leak of private data"
THRESHOLDS = 40


def draw_seeds(rng: np.random.Generator, count: int) -> list[int]:
    """Draw seeds for the noise of a mechanism."""
    return rng.integers(0, 2**62, size=count).tolist()


def quietly(fit: Callable[[], Any]) -> tuple[Any, bool]:
    """Run a fit without showing warnings. Return the result, and whether it warned of a leak."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit()
    return result, any(issubclass(w.category, PrivacyLeakWarning) for w in caught)


def audit_learner(
    mechanism: Learner,
    X: Floats,
    y: NDArray[Any],
    *terms: Any,
    epsilon: ArrayLike | None = None,
    view: View | None = None,
    replacements: Replacements = None,
) -> PrivacyAudit:
    """Audit a learner by comparing the numbers that it publishes on neighbouring data sets."""
    requested = getattr(mechanism, "epsilon", None) if epsilon is None else epsilon
    granted = Granted.of(X, requested).epsilon
    simulates = "random_state" in signature(mechanism.fit).parameters

    def release(X: Floats, y: NDArray[Any], seed: int) -> Learner:
        source: dict[str, Any] = {"random_state": Simulation(seed)}
        if not simulates:  # draws are not published, so an account with infinite budgets is charged
            source = {"accountant": PrivacyAccountant(np.full(granted.size, np.inf))}
        return unfitted(mechanism).fit(X, y, epsilon=granted, **source)

    options: Any = {"view": view or _published_numbers, "replacements": replacements}
    audit = audit_draws(lambda *data: partial(release, *data), X, y, *terms, **options)
    claimed = quietly(lambda: release(X, y, 0))[0].guarantee_.epsilon
    over = np.count_nonzero(claimed > granted * (1.0 + ROUNDING))
    detail = f"{over} of {granted.size} rows exceed their epsilon"
    check = AuditCheck("the guarantee is at most the granted epsilon", not over, detail)
    return replace(audit, checks=(*audit.checks, check))


def _published_numbers(model: Any) -> Floats:
    """Return the numbers in those attributes of a model that have a name ending in ``_``."""
    public = {name: v for name, v in sorted(vars(model).items()) if name[-1] == "_" != name[0]}
    arrays = [np.asarray(v) for v in public.values() if not isinstance(v, Guarantee)]
    numbers = [array.astype(np.float64).ravel() for array in arrays if array.dtype.kind in "fiub"]
    if not numbers:
        raise ParameterError("the learner has no numbers to attack in attributes such as coef_")
    return np.concatenate(numbers)


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
    view: View | None = None,
    guarantee: Guarantee | None = None,
    replacements: Replacements = None,
) -> PrivacyAudit:
    """Audit a release row by row, as described in :func:`~convexmarket.audit_privacy`."""
    if view is None and points is None:
        raise ParameterError("pass points=, where the release predicts, or view=, a function")
    look = view or partial(_answers, np.asarray(points, dtype=np.float64))

    def draw(data: Rows, count: int) -> Floats:
        release = mechanism(*data)
        made = (quietly(partial(release, seed))[0] for seed in draw_seeds(rng, count))
        return np.stack([np.asarray(look(each), dtype=np.float64).ravel() for each in made])

    first, leaked = quietly(lambda: mechanism(X, y)(draw_seeds(rng, 1)[0]))
    stated = getattr(first, "guarantee", None) or getattr(first, "guarantee_", None)
    claim: Any = stated if guarantee is None else guarantee
    if not isinstance(claim, Guarantee) or claim.epsilon.size != len(X):
        raise ParameterError(
            f"guarantee= or the release must give a Guarantee of {len(X)} rows, got {claim!r:.80}"
        )
    if rows is None:
        rows = np.array([int(np.argmax(claim.epsilon))])
    bounds, witnesses = [], []
    for row in rows.tolist():
        sides = _best_neighbours(draw, X, y, row, replacements, max(20, int(PILOT * draws)))
        samples = [draw(side, draws) for side in sides]
        bounds.append(_lower_bound(samples, claim.delta, confidence))
        witnesses.append(Neighbours(row, *sides[0], *sides[1]))
    losses = np.full(rows.size, np.inf) if leaked else np.array([loss for loss, _ in bounds])
    best = bounds[int(np.argmax(losses / np.maximum(claim.epsilon[rows], LEAST)))][1]
    warned = LEAK if leaked else "the mechanism does not warn of a leak"
    leak = AuditCheck("no public quantity is computed from private rows", not leaked, warned)
    checks = leak, AuditCheck("frequency of the best event", True, best)
    claims = rows, claim.epsilon[rows], losses, claim.delta, confidence
    return PrivacyAudit(claim.mechanism, "statistical", *claims, checks, tuple(witnesses))


def _answers(questions: Floats, release: Any) -> Floats:
    """Return the predictions of a release, padded with zeros, and the number of predictions."""
    try:
        answers = release.predict(questions)
    except ReleaseExhaustedError as error:
        answers = error.answers
    values = np.zeros(len(questions) + 1)
    values[: len(answers)], values[-1] = answers, len(answers)
    return values


def _best_neighbours(
    draw: Callable[[Any, int], Floats],
    X: Floats,
    y: NDArray[Any],
    row: int,
    replacements: Replacements,
    few: int,
) -> list[Rows]:
    """Return two data sets that differ in one row, with the largest difference in ``few`` draws."""
    norms = np.linalg.norm(X, axis=1)
    norms[row] = -1.0
    made = [X[row], -X[row], np.zeros_like(X[row]), X[norms.argmax()], X[(X @ X[row]).argmin()]]
    versions: list[tuple[Any, Any]] = list(product(made, np.unique(y)[[0, -1]]))
    if replacements is not None:
        features, labels = (np.asarray(part) for part in replacements)
        if features.ndim != 2 or features.shape[1] != X.shape[1] or len(labels) != len(features):
            raise ParameterError(f"replacements must be rows of {X.shape[1]} features, and labels")
        versions = [(X[row], y[row]), *zip(features, labels, strict=True)]
    sides, samples = [], []
    for version in versions:
        side = X.copy(), y.copy()
        side[0][row], side[1][row] = version
        with suppress(DataError):  # skip versions outside the domain of the mechanism
            samples.append(draw(side, few))
            sides.append(side)
    if len(sides) < 2:
        raise DataError("the mechanism accepts no replacement of a row; pass other replacements")

    def distance(pair: tuple[int, int]) -> float:
        here, there = (samples[place] for place in pair)
        shift = np.abs(here.mean(axis=0) - there.mean(axis=0))
        spread = np.maximum(np.sqrt(here.var(axis=0) + there.var(axis=0)), 1e-12 * shift)
        return float(np.linalg.norm(shift / np.where(spread > 0, spread, 1.0)))

    return [sides[k] for k in max(combinations(range(len(sides)), 2), key=distance)]


def _lower_bound(pair: list[Floats], delta: float, confidence: float) -> tuple[float, str]:
    """Compute a lower bound on epsilon from an event, and describe how often the event occurs."""
    third = len(pair[0]) // 3
    learn, count = [sample[:third] for sample in pair], [sample[third:] for sample in pair]
    centre = (learn[0].mean(axis=0) + learn[1].mean(axis=0)) / 2.0
    spread = learn[0].var(axis=0) + learn[1].var(axis=0)
    apart = learn[0].mean(axis=0) - learn[1].mean(axis=0)
    # A direction without noise separates the data sets completely, so its weight is limited.
    direction = apart / np.maximum(spread, 1e-12 * float(spread.max()) or 1.0)
    scores = [[(sample - centre) @ direction for sample in part] for part in (learn, count)]
    every = np.sort(np.concatenate(scores[0]))
    cuts = np.unique(every[np.linspace(0, every.size - 1, THRESHOLDS).astype(int)])

    def proved(scores: list[Floats], sign: int, cut: float) -> tuple[float, int, int]:
        here, there = (int(np.sum(sign * side >= sign * cut)) for side in scores[::sign])
        # The bound for each order of the data sets uses half of the error probability.
        sizes, each = [side.size for side in scores[::sign]], 1.0 - (1.0 - confidence) / 2.0
        return loss_of_frequencies(here, sizes[0], there, sizes[1], delta, each), here, there

    best, words = 0.0, "no event was significantly more frequent on one data set"
    for sign in (1, -1):
        cut = max((proved(scores[0], sign, cut)[0], cut) for cut in cuts.tolist())[1]
        loss, here, there = proved(scores[1], sign, cut)
        if loss > best:
            total, best = len(count[0]), loss
            words = f"{here} of {total} on one data set, {there} of {total} on the other"
    return best, words


def loss_of_frequencies(
    count: int, draws: int, other_count: int, other_draws: int, delta: float, confidence: float
) -> float:
    """Bound epsilon from below by the frequencies of an event in two samples (Clopper-Pearson)."""
    tail = (1.0 - confidence) / 2.0
    low = float(stats.beta.ppf(tail, count, draws - count + 1)) if count else 0.0
    high = 1.0
    if other_count < other_draws:
        high = float(stats.beta.isf(tail, other_count + 1, other_draws - other_count))
    return float(np.log((low - delta) / high)) if low - delta > high else 0.0
