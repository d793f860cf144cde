r"""The audit of ridge regression by output perturbation: how far one row moves the model.

Noise of density proportional to :math:`e^{-r\|z\|}` around two models at a distance d has a loss
of :math:`r\,d` and no more, far out on the line through both. So the mechanism is run on
neighbouring data with the same seed, whose difference is that of the models, noise cancelling; the
neighbours are looked for by a quasi-Newton method on the closed form; and the noise is compared
with its claimed law in differences between seeds. Laplace noise on a lattice is the same with the
sum of absolute differences for the distance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone

from convexmarket.attacks.checks import draw_seeds, published_check, quietly
from convexmarket.attacks.result import AuditCheck, Neighbours, PrivacyAudit, ratios
from convexmarket.learners.base import Domain
from convexmarket.learners.domain import Box, Interval
from convexmarket.learners.granted import Granted
from convexmarket.learners.ridge import PersonalizedRidge
from convexmarket.learners.ridge_noise import OutputPerturbation
from convexmarket.privacy.lattice import discrete_laplace
from convexmarket.privacy.noise import Simulation, gamma_sphere_noise

__all__ = ["audit_ridge"]

Floats = NDArray[np.float64]

#: Groups that the other rows act in, where these are looked for.
WORST_GROUPS = 2
STARTS = 10


def audit_ridge(
    mechanism: PersonalizedRidge,
    X: Floats,
    y: Floats,
    rows: NDArray[np.intp] | None,
    n_rows: int,
    worst_data: bool,
    draws: int,
    confidence: float,
    rng: np.random.Generator,
    *,
    epsilon: ArrayLike | None = None,
) -> PrivacyAudit:
    """Audit the guarantee row by row; see :func:`~convexmarket.audit_privacy`."""
    audit = _RidgeAudit(mechanism, X, y, epsilon)
    model = audit.fit(X, y, draw_seeds(rng, 1)[0])
    claimed = model.guarantee_.epsilon
    if rows is None:
        order = np.argsort(claimed, kind="stable")
        rows = np.unique(order[np.linspace(0, len(X) - 1, min(n_rows, len(X))).astype(int)])
    law, scale = audit.noise_law(model, draws, confidence, rng)
    checks = (law, audit.published(rows))
    found = [audit.worst(row, model.rounding_, worst_data, rng) for row in rows.tolist()]
    measured = np.full(rows.size, np.inf)
    if scale > 0.0 and checks[1].passed:
        measured = np.array([distance * model.noise_rate_ / scale for distance, _ in found])
    worst = int(np.argmax(ratios(measured, claimed[rows])))
    return PrivacyAudit(
        mechanism=model.guarantee_.mechanism,
        method="exact",
        rows=rows,
        claimed=claimed[rows],
        measured=measured,
        delta=model.guarantee_.delta,
        confidence=confidence,
        checks=checks,
        witness=found[worst][1],
    )


class _RidgeAudit:
    """One mechanism on one data set; models are compared on the unit scale."""

    def __init__(
        self, mechanism: PersonalizedRidge, X: Floats, y: Floats, epsilon: ArrayLike | None
    ) -> None:
        self.mechanism, self.X, self.y = mechanism, X, y
        self.granted = Granted.of(X, epsilon, mechanism.epsilon)
        features = mechanism.feature_range
        low, high = (X.min(axis=0), X.max(axis=0)) if features is None else features
        self.low = np.broadcast_to(np.asarray(low, dtype=np.float64), X.shape[1])
        self.width = np.broadcast_to(np.asarray(high, dtype=np.float64), X.shape[1]) - self.low
        targets = mechanism.target_range
        bottom, top = (y.min(), y.max()) if targets is None else targets
        self.bottom, self.top = float(bottom), float(top)

    def order(self, step: float | None) -> int:
        """Return the norm of distances: on a lattice noise is drawn coordinate by coordinate."""
        return 2 if step is None else 1

    def fit(self, X: Floats, y: Floats, seed: int) -> PersonalizedRidge:
        """Release on a data set, with a seed of the mechanism's own noise."""
        model = clone(self.mechanism)
        terms = {"epsilon": self.granted.epsilon, "random_state": Simulation(seed)}
        return quietly(lambda: model.fit(X, y, **terms))[0]

    def unit_model(self, X: Floats, y: Floats, seed: int) -> Floats:
        """Return the released coefficients on the unit scale."""
        return self.fit(X, y, seed).coef_ * self.width * 2.0 / (self.top - self.bottom)

    def noise_law(
        self, model: PersonalizedRidge, draws: int, confidence: float, rng: np.random.Generator
    ) -> tuple[AuditCheck, float]:
        """Test differences of noise against the claimed law; return the scale of the noise."""
        rate, order = model.noise_rate_, self.order(model.rounding_)
        seeds = draw_seeds(rng, 2 * draws)
        released = np.stack([self.unit_model(self.X, self.y, seed) for seed in seeds])
        seen = np.linalg.norm(released[::2] - released[1::2], order, axis=1) * rate
        n_features = self.X.shape[1]
        pairs = np.stack([_unit_noise(model, n_features, rng) for _ in range(40 * draws)])
        expected = np.linalg.norm(pairs[::2] - pairs[1::2], order, axis=1)
        p_value = float(stats.ks_2samp(seen, expected).pvalue)
        size = float(seen.mean() / expected.mean())
        found = (
            f"mean size {size:.3f} of what is claimed, over {2 * draws} releases"
            f" (p-value {p_value:.2g})"
        )
        passed = p_value >= 1.0 - confidence
        error = float(stats.norm.isf((1.0 - confidence) / 2.0) * seen.std() / np.sqrt(draws))
        upper = size + error / float(expected.mean())
        scale = 1.0 if passed else min(1.0, upper)
        return AuditCheck("the noise has the claimed law", passed, found), scale

    def published(self, rows: NDArray[np.intp]) -> AuditCheck:
        """Compare what is published without noise, on neighbours at the domain's corners."""
        corner = np.tile(self.low + 0.5 * self.width, (len(self.X), 1))
        middle = np.full(len(self.X), 0.5 * (self.bottom + self.top))
        pairs = []
        for row in rows[:4].tolist():
            further, higher = corner.copy(), middle.copy()
            further[row], higher[row] = self.low + self.width, self.top
            X, y = self.X.copy(), self.y.copy()
            X[row], y[row] = self.low, self.bottom
            pairs += [(corner, middle, further, higher), (self.X, self.y, X, y)]

        def facts(X: Floats, y: Floats) -> tuple[Any, ...]:
            model = clone(self.mechanism)
            model.fit(X, y, epsilon=self.granted.epsilon, random_state=Simulation(0))
            half = (self.top - self.bottom) / 2.0
            centre = (self.top + self.bottom) / 2.0
            shift = model.intercept_ + model.coef_ @ self.low - centre
            # the intercept follows from the coefficients and the public ranges
            steps = model.noise_rate_, model.rounding_
            return round(float(shift) / half, 9), *steps, model.epsilon_.tolist()

        return published_check("nothing else that is published depends on rows", facts, pairs)

    def worst(
        self, row: int, step: float | None, worst_data: bool, rng: np.random.Generator
    ) -> tuple[float, Neighbours]:
        """Return how far a row moves the model, at most as far as was found, with its witness."""
        plan = self._plan()
        weights = self.granted.spread(plan.weights)
        rest = np.delete(np.arange(len(self.X)), row)
        unit = (self.X - self.low) / self.width
        labels = 2.0 * (self.y - self.bottom) / (self.top - self.bottom) - 1.0
        given = None if worst_data else np.column_stack([unit, labels])[rest]
        pair, others = _search(
            weights[row],
            weights[rest],
            plan.regularization,
            given,
            unit.shape[1] + 1,
            rng,
        )
        rows = np.empty((len(self.X), unit.shape[1] + 1))
        rows[rest] = others
        data = []
        for version in pair:
            rows[row] = version
            X = self.low + self.width * rows[:, :-1]
            y = self.bottom + (self.top - self.bottom) * (rows[:, -1] + 1.0) / 2.0
            data.append((X, np.clip(y, self.bottom, self.top)))
        seed = draw_seeds(rng, 1)[0]
        models = [self.unit_model(X, y, seed) for X, y in data]
        witness = Neighbours(row, *data[0], *data[1], output=None)
        return float(np.linalg.norm(models[0] - models[1], self.order(step))), witness

    def _plan(self) -> OutputPerturbation:
        """Return the plan of the mechanism, which only steers the search."""
        domain = Domain(Box(self.low, self.width), Interval(self.bottom, self.top))
        size, rng = self.X.shape[1], np.random.default_rng(0)
        plan = self.mechanism._plan(self.granted, size, domain, rng)
        assert isinstance(plan, OutputPerturbation)
        return plan


def _unit_noise(model: PersonalizedRidge, n_features: int, rng: np.random.Generator) -> Floats:
    """Draw noise of the claimed law, in units of one over its rate."""
    if model.rounding_ is None:
        return gamma_sphere_noise(n_features, rng)
    scale = round(1.0 / (model.noise_rate_ * model.rounding_))
    return np.array(discrete_laplace(scale, n_features, rng), dtype=np.float64) / scale


def _search(
    weight: float,
    weights: Floats,
    regularization: float,
    given: Floats | None,
    width: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Return both versions of a row and the others, features in [0, 1] and the label in [-1, 1].

    ``given`` are the others, where they are; else they are looked for, in groups.
    """
    groups: NDArray[np.intp] = np.arange(weights.size)
    totals: Floats = weights
    if given is None and weights.size:
        groups = rng.permutation(np.arange(weights.size) % WORST_GROUPS)
        totals = np.bincount(groups, weights).astype(np.float64)
    count = 0 if given is not None else totals.size
    unit = (weight * np.sqrt(width - 1) / regularization) ** 2  # of squared distances
    best, value = np.zeros((2 + count, width)), -np.inf
    for start in range(STARTS):
        found = minimize(
            _negated_distance,
            _start(2 + count, width, start, rng).ravel(),
            args=(weight, totals, regularization, given, unit),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 400},
        )
        if -found.fun > value:
            value, best = float(-found.fun), _box(found.x.reshape(-1, width))[0]
    corners = best.copy()
    middle = np.append(np.full(width - 1, 0.5), 0.0)
    corners[:2] = np.where(best[:2] > middle, 1.0, 2.0 * middle - 1.0)
    if _distance(corners, weight, totals, regularization, given)[0] >= value * unit:
        best = corners
    return best[:2], given if given is not None else best[2:][groups]


def _start(count: int, width: int, start: int, rng: np.random.Generator) -> Floats:
    """Return free rows: vertices, anything, or opposite labels while the others are null."""
    if start % 3 == 0:
        return 4.0 * rng.choice([-1.0, 1.0], size=(count, width))
    free = rng.normal(size=(count, width))
    if start % 3 == 1:
        free[:2] = 2.0
        free[1, -1] = -2.0
        free[2:, :-1] = -5.0
    return free


def _box(free: Floats) -> tuple[Floats, Floats]:
    """Return rows in their box, and the derivative of the map."""
    inside = expit(free)
    slope = inside * (1.0 - inside)
    scale = np.append(np.ones(free.shape[1] - 1), 2.0)
    return inside * scale - np.append(np.zeros(free.shape[1] - 1), 1.0), slope * scale


def _negated_distance(
    packed: Floats,
    weight: float,
    totals: Floats,
    regularization: float,
    given: Floats | None,
    unit: float,
) -> tuple[float, Floats]:
    """Return minus the squared distance, in units of its own, and the gradient by free rows."""
    count = 2 if given is not None else 2 + totals.size
    rows, slope = _box(packed.reshape(count, -1))
    distance, gradient = _distance(rows, weight, totals, regularization, given)
    return -distance / unit, -(gradient * slope).ravel() / unit


def _distance(
    rows: Floats, weight: float, totals: Floats, regularization: float, given: Floats | None
) -> tuple[float, Floats]:
    """Return the squared distance of both models, and its gradient by the free rows."""
    others = rows[2:] if given is None else given
    X, y = others[:, :-1], others[:, -1]
    base = (X * totals[:, None]).T @ X + regularization * np.eye(rows.shape[1] - 1)
    moment = (totals * y) @ X
    grams = [base + weight * np.outer(r[:-1], r[:-1]) for r in rows[:2]]
    models = [
        np.linalg.solve(gram, moment + weight * r[-1] * r[:-1])
        for gram, r in zip(grams, rows[:2], strict=True)
    ]
    apart = models[0] - models[1]
    gradient = np.zeros_like(rows)
    for version, sign in ((0, 2.0), (1, -2.0)):
        pull = sign * np.linalg.solve(grams[version], apart)
        gradient[version] = _row_gradient(rows[[version]], models[version], pull, weight)[0]
        if given is None:
            gradient[2:] += _row_gradient(others, models[version], pull, totals[:, None])
    return float(apart @ apart), gradient


def _row_gradient(rows: Floats, model: Floats, pull: Floats, weight: Any) -> Floats:
    """Return the derivative of ``pull' model`` by rows, where the model solves its equations."""
    X, y = rows[:, :-1], rows[:, -1:]
    residual = y - (X @ model)[:, None]
    across = (X @ pull)[:, None]
    return weight * np.hstack([residual * pull - across * model, across])
