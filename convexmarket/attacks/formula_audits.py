r"""Audit objective and output perturbation by formulas, and test the conditions of the formulas.

The audit computes the noise of many releases from the data. It compares this noise with the claimed
distribution and with the noise on neighbouring data. Under objective perturbation, the privacy loss
at the output w is :math:`\frac{\eta}{2LR}(\|v'\| - \|v\|) + \log\det J - \log\det J'` with
gradients v and Hessians J of the noiseless objectives. For output noise of rate r, the loss is r
times the distance between the models.

By symmetry, it suffices to search for w on the first axis, and for rows of a ball in the plane of
the first two axes. A row in a box has at most three distinct entries. All other rows form two
groups of equal rows.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import differential_evolution
from sklearn.base import clone

from convexmarket.attacks.audit_result import AuditCheck, Neighbours, PrivacyAudit
from convexmarket.attacks.draws import LEAK, draw_seeds, quietly
from convexmarket.errors import ConvexMarketError, ParameterError
from convexmarket.learners.domain import Box, Granted, Interval
from convexmarket.learners.minimiser import PerturbedObjective
from convexmarket.learners.perturbed import ObjectiveLearner, PrivateHuberRegressor
from convexmarket.learners.perturbed import objective_perturbation_log_density as log_density
from convexmarket.learners.ridge import PersonalizedRidge
from convexmarket.learners.ridge_math import solve_ridge
from convexmarket.privacy.lattice import discrete_laplace
from convexmarket.privacy.random_sources import Simulation, gamma_sphere_noise

__all__ = ["audit_by_formula"]

Floats = NDArray[np.float64]
Rows = tuple[Floats, NDArray[Any]]
Check = tuple[AuditCheck, float]

REFERENCE = 40  # number of draws of the claimed distribution for each release
AGREEMENT = 1e-5  # relative tolerance between two computations of the same noise
LARGEST_ALLOWED = 0.1  # largest tolerance of the comparison, in units of the noise
#: Attributes of fitted learners that must not depend on rows.
PUBLIC = ("classes_", "data_norm_", "eta_", "noise_rate_", "regularization_", "rounding_")
SEARCH: dict[str, Any] = {"popsize": 8, "maxiter": 400, "tol": 0.0, "polish": False}
SEARCH |= {"vectorized": True, "updating": "deferred"}
STARTS = 2
SHORTEST, LONGEST = -2.0, 2.5  # decimal logarithms of output lengths in units of 1/data_norm_
BLOCKS, LINES = 3, 6  # largest number of feature blocks, and of axes and projections


def audit_by_formula(
    mechanism: ObjectiveLearner | PersonalizedRidge,
    X: Floats,
    y: NDArray[Any],
    *terms: Any,
    n_rows: int,
    epsilon: ArrayLike | None = None,
) -> PrivacyAudit:
    """Audit a mechanism row by row, as described in :func:`~convexmarket.audit_privacy`."""
    requested = mechanism.epsilon if epsilon is None else epsilon
    granted = mechanism._granted(Granted.of(X, requested))
    if np.isinf(granted.epsilon).any():
        raise ParameterError("epsilon is infinite: no guarantee to audit; give a finite epsilon")
    kind = _OutputAudit if getattr(mechanism, "perturbation", "") == "output" else _ObjectiveAudit
    return kind(mechanism, X, y, granted).run(n_rows, *terms)


class _ObjectiveAudit:
    """Audit of objective perturbation on one data set, with rows in a ball."""

    scale = 1.0  # scale of the noise, relative to the claimed scale
    needed: tuple[str, ...] = ("eta_", "regularization_", "rounding_", "tol_")

    def __init__(self, mechanism: Any, X: Floats, y: NDArray[Any], granted: Granted) -> None:
        self.mechanism, self.X, self.y, self.granted = mechanism, X, y, granted
        self.n_features = X.shape[1]
        self.domain = quietly(lambda: mechanism._domain(self.n_features, X, y))[0]
        public, domain = self.domain.labels, self.domain.rows
        interval = isinstance(public, Interval)
        self.labels = np.asarray([public.low, public.high] if interval else public.values)
        if isinstance(domain, Box):
            low, width = domain.low, domain.width
        else:
            low, width = np.zeros(self.n_features), domain.data_norm * np.eye(self.n_features)[0]
        self.extremes = low + 0.5 * width, low + width  # inside and on the boundary of the domain
        self.plan: Any = mechanism._plan(granted, self.n_features, self.domain)
        self.weights = granted.spread(self.plan.weights)
        self.loss: Any = getattr(self.plan, "loss", None)
        self.spread = np.eye(2, self.n_features)  # embeds points of the search in all features

    def run(
        self,
        n_rows: int,
        rows: NDArray[np.intp] | None,
        draws: int,
        confidence: float,
        rng: np.random.Generator,
    ) -> PrivacyAudit:
        """Audit the given rows or, by default, rows whose epsilons range from small to large."""
        self.model: Any = self.fit(self.X, self.y, draw_seeds(rng, 1)[0])
        if missing := [name for name in self.needed if not hasattr(self.model, name)]:
            cause = f"fit of {type(self.mechanism).__name__} does not set {missing[0]}"
            raise ParameterError(f"{cause}; set it, or pass a function mechanism(X, y)")
        claim = self.model.guarantee_
        if rows is None:  # evenly spaced epsilons, and the smallest ratio of epsilon to weight
            used = np.flatnonzero(self.weights > 0)
            order = used[np.argsort(claim.epsilon[used], kind="stable")]
            modest = used[np.argmin(claim.epsilon[used] / self.weights[used])]
            rows = np.unique(np.append(order[_spread(order.size, n_rows)], modest))
        published = self.published(rows)
        exact, second = self.without_second_noise(rows, draws, confidence, rng)
        data = exact.X, exact.y
        exact.model = exact.fit(*data, draw_seeds(rng, 1)[0])
        noises = np.stack([exact.noise(data, seed) for seed in draw_seeds(rng, draws)])
        reference = exact.reference(REFERENCE * draws, rng)
        law, scale = law_check("the noise has the claimed law", noises, reference, confidence)
        same = exact.same_noise(rows, rng)
        exact.scale = scale or 1.0
        losses, witnesses = zip(*(exact.worst(row, rng) for row in rows.tolist()), strict=True)
        certain = scale <= 0.0 or not published.passed
        measured = np.full(rows.size, np.inf) if certain else np.array(losses)
        claims = rows, claim.epsilon[rows], measured, claim.delta, confidence
        checks = published, *second, law, same
        return PrivacyAudit(claim.mechanism, "exact", *claims, checks, tuple(witnesses))

    def fit(self, X: Floats, y: NDArray[Any], seed: int) -> Any:
        """Fit the mechanism to a data set with the noise of a seed."""
        terms = {"epsilon": self.granted.epsilon, "random_state": Simulation(seed)}
        return quietly(lambda: clone(self.mechanism).fit(X, y, **terms))[0]

    def noise(self, data: Rows, seed: int) -> Floats:
        """Compute the noise of a released model, in units of the claimed scale."""
        checked = self.mechanism._checked(*data, self.granted, self.domain)
        return self._noise(self.fit(*data, seed), *checked)

    def unit_model(self, model: Any) -> tuple[Floats, float]:
        """Return the released numbers on the unit scale, and the intercept without noise."""
        half, box = self.domain.half, self.domain.rows
        coef, level = model.coef_ / half, (model.intercept_ - self.domain.middle) / half
        if isinstance(box, Box):
            coef, level = coef * box.width, level + coef @ (box.low + box.centre * box.width)
            if box.constant:
                return np.append(coef, level / box.constant), 0.0
        return coef, float(level)

    def _noise(self, model: Any, rows: Floats, labels: Floats) -> Floats:
        terms = self.weights, np.zeros(self.n_features), model.regularization_, self.loss
        gradient = PerturbedObjective(rows, labels, *terms).gradient(model.coef_)
        return -model.eta_ / (2.0 * self.loss.lipschitz * model.data_norm_) * gradient

    def reference(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw noise vectors from the claimed distribution, shape (count, n_features)."""
        return np.stack([gamma_sphere_noise(self.n_features, rng) for _ in range(count)])

    def candidates(self, numbers: Floats) -> tuple[Floats, Floats, Floats]:
        """Convert numbers in [0, 1] to the points, labels and output lengths of candidates.

        The points, shape (4, dimensions, n_candidates), are the two versions of the audited row and
        one row for each of the two groups of other rows.
        """
        loss, bounds = self.loss, self.domain.labels.numbers(self.labels)
        length = 10.0 ** (SHORTEST + (LONGEST - SHORTEST) * numbers[0]) / self.model.data_norm_
        radius, angle, side = np.moveaxis(numbers[1:].reshape(4, 3, -1), 1, 0)
        if self.n_features == 1:
            angle = np.round(2.0 * angle) / 2.0
        radius = self.model.data_norm_ * _stretched(radius)
        x = radius * np.cos(2.0 * np.pi * angle)
        if loss.classifies:
            y = np.where(side < 0.5, *bounds)
        else:  # sample the residual, because the kinks of the loss are at fixed residuals
            slope = 2.0 * side - 1.0
            bent = np.clip(1.6 * slope, -1.0 + 1e-9, 1.0 - 1e-9)
            residual = np.where(np.abs(slope) > 0.8, 2.0 * np.sign(slope), bent)
            y = np.clip(length * x - loss.lipschitz * residual, *bounds)
        z = radius * np.sin(2.0 * np.pi * angle) * (self.n_features > 1)
        return np.stack([x, z], axis=1), y, length

    def losses(self, weights: Floats, x: Floats, y: Floats, length: Floats) -> Floats:
        """Compute the privacy loss of each candidate, given the weights of the four points."""
        weights = weights[:, None]
        _, slopes, curvatures = self.loss.derivatives(length * x[:, 0], y)
        pulls = (weights * slopes)[:, None] * x
        bends = weights * curvatures * np.stack([x[:, 0] ** 2, x[:, 1] ** 2, x[:, 0] * x[:, 1]])
        rest = bends[:, 2] + bends[:, 3]
        rest[:2] += self.model.regularization_
        half = self.model.eta_ / self.scale / (2.0 * self.loss.lipschitz * self.model.data_norm_)
        gradients = pulls[:2] + pulls[2] + pulls[3]  # for both versions of the row
        gradients[:, 0] += self.model.regularization_ * length
        a, b, c = rest[:, None] + bends[:, :2]
        values = np.log(a * b - c * c) - half * np.hypot(gradients[:, 0], gradients[:, 1])
        return values[0] - values[1]

    def loss_at(self, witness: Any) -> float:
        """Compute the privacy loss between the two data sets of a witness."""
        model, values = self.model, []
        terms = model.eta_ / self.scale, model.regularization_, model.data_norm_, self.loss
        for X, y in ((witness.X, witness.y), (witness.X_other, witness.y_other)):
            data = X, self.domain.labels.numbers(y), self.weights
            values.append(log_density(witness.output, *data, *terms))
        return values[0] - values[1]

    def data(self, rows: Floats, labels: Floats) -> Rows:
        """Convert rows and labels of the search to the units of the data."""
        interval = isinstance(self.domain.labels, Interval)
        return rows, labels if interval else self.labels[(labels > 0).astype(int)]

    @property
    def rounding(self) -> float:
        """Bound on the change of the computed noise that is due to the tolerance of the fit."""
        pull = self.model.data_norm_ * self.loss.lipschitz
        return float(2.0 * self.model.tol_ * self.granted.epsilon.sum() / pull)

    def without_second_noise(
        self, rows: NDArray[np.intp], draws: int, confidence: float, rng: np.random.Generator
    ) -> tuple[_ObjectiveAudit, list[AuditCheck]]:
        """Return the audit without the second noise, and a check of it on neighbouring data."""
        if not getattr(self.plan, "paid", 0.0):
            return self, []
        plan, mechanism = self.plan, clone(self.mechanism)
        if ridge := isinstance(mechanism, PersonalizedRidge):  # Huber regression on the unit scale
            mechanism = PrivateHuberRegressor(threshold=plan.loss.threshold)
        public = {name: getattr(plan, name) for name in ("regularization", "tol", "data_norm")}
        mechanism.set_params(solver_epsilon=None, calibration="noise", **public)

        def unit(X: Floats, y: NDArray[Any]) -> Rows:
            return self.mechanism._checked(X, y, self.granted, self.domain) if ridge else (X, y)

        terms, blurs = Granted(self.weights * self.model.eta_), []
        first, (step, scale) = _ObjectiveAudit(mechanism, *unit(self.X, self.y), terms), plan.blur
        for k, seed in enumerate(draw_seeds(rng, draws)):
            sides = self._sides(self.X, self.y, rows[k % rows.size])
            side = sides[k // rows.size % len(sides)]
            released, _ = self.unit_model(self.fit(*side, seed))
            blurs.append(released - first.fit(*unit(*side), seed).coef_)
        ideal = _laplace(scale, (REFERENCE * draws, len(released)), rng)
        name = "the second noise has the claimed law, on a lattice"
        check, _ = law_check(name, np.stack(blurs) / (step * scale), ideal, confidence)
        places = released / step
        on_lattice = self.model.rounding_ == step and np.allclose(places, np.rint(places), 1e-12)
        return first, [check._replace(passed=bool(check.passed and on_lattice))]

    def same_noise(self, rows: NDArray[np.intp], rng: np.random.Generator) -> AuditCheck:
        """Check that the noise of a seed does not change if a row of the data is replaced."""
        name, seed = "replacing a row does not change the noise", draw_seeds(rng, 1)[0]
        noise = self.noise((self.X, self.y), seed)
        allowed = AGREEMENT * (1.0 + float(np.linalg.norm(noise))) + self.rounding
        if allowed > LARGEST_ALLOWED:
            return AuditCheck(name, True, "NOT TESTED: tol is too large relative to the noise")
        order = np.argsort(self.weights, kind="stable")
        tried = np.union1d(rows, order[_spread(order.size, 12)]).tolist()
        shifts = []
        for row in tried:
            noises = [self.noise(side, seed) for side in self._sides(self.X, self.y, row)]
            shifts.append(float(np.linalg.norm(np.subtract(noises, noise), axis=1).max()))
        detail = f"largest difference {max(shifts):.2g} of the noise's scale in {len(tried)} rows"
        return AuditCheck(name, max(shifts) <= allowed, detail)

    def worst(self, row: int, rng: np.random.Generator) -> tuple[float, Neighbours]:
        """Search for the largest privacy loss of a row, and return the loss with its witness."""
        weight, data = float(self.weights[row]), (self.X, self.y)
        if not weight:  # no output distinguishes versions of an unused row
            return 0.0, Neighbours(row, *data, *data)
        place = np.argsort(np.argsort(-self.weights, kind="stable"))
        place = (place + 1) // 2 % 2 + 2  # two groups of about equal weight
        place[row] = 0
        weights = np.append([weight, weight], np.bincount(place, self.weights, 4)[2:])

        def loss(numbers: Floats) -> Floats:
            return -self.losses(weights, *self.candidates(numbers))

        evolve: Any = differential_evolution  # SciPy's stubs do not cover vectorized=True
        bounds = [(0.0, 1.0)] * (1 + 4 * (len(self.spread) + 1))
        searches = [evolve(loss, bounds, rng=rng, **SEARCH) for _ in range(STARTS)]
        best = min(searches, key=lambda search: search.fun).x
        x, y, length = self.candidates(best[:, None])
        points, labels = x[..., 0] @ self.spread, y[:, 0]
        sides: list[Any] = [row]
        for version in (0, 1):
            place[row] = version
            sides += self.data(points[place], labels[place])
        sides += [length[0] * np.eye(self.n_features)[0]] * bool(length[0])
        witness = Neighbours(*sides)
        return self.loss_at(witness), witness

    def published(self, rows: NDArray[np.intp]) -> AuditCheck:
        """Check that numbers published without noise are the same on neighbouring data sets."""
        name = "numbers published without noise do not depend on rows"
        flat = np.tile(self.extremes[0], (len(self.X), 1)), np.full(len(self.X), self.labels[0])
        few = np.union1d(rows[:3], [np.argmax(self.weights)]).tolist()
        for (X, y), row in product((flat, (self.X, self.y)), few):
            facts = [self._facts(*side) for side in self._sides(X, y, row)]
            changed = next((each for each in facts if each != facts[0]), "")
            if changed or LEAK in facts:
                detail = f"one row changes the numbers from {facts[0]:.100} to {changed:.100}"
                return AuditCheck(name, False, LEAK if LEAK in facts else detail)
        tried = 2 * len(few) * len(facts)
        return AuditCheck(name, True, f"equal on {tried} data sets that differ in one row")

    def _sides(self, X: Floats, y: NDArray[Any], row: int) -> list[Rows]:
        """Return copies of the data with each combination of features and label for one row."""
        place, versions = np.arange(len(X)) == row, product((X[row], *self.extremes), self.labels)
        return [(np.where(place[:, None], x, X), np.where(place, z, y)) for x, z in versions]

    def _facts(self, X: Floats, y: NDArray[Any]) -> str:
        """Describe the numbers that a fit publishes without noise, or the error of the fit."""
        terms = {"epsilon": self.granted.epsilon, "random_state": Simulation(0)}
        try:
            model, leaked = quietly(lambda: clone(self.mechanism).fit(X, y, **terms))
        except ConvexMarketError as error:
            return f"{type(error).__name__}: {error}"
        values = [np.asarray(getattr(model, name, None)).tolist() for name in PUBLIC]
        values += [round(self.unit_model(model)[1], 9) + 0.0, model.guarantee_.epsilon.tolist()]
        return LEAK if leaked else repr(values)


class _OutputAudit(_ObjectiveAudit):
    """Audit of ridge regression with output perturbation, on the unit scale."""

    rounding = 0.0
    needed = ("noise_rate_", "regularization_", "rounding_")

    def __init__(self, *terms: Any) -> None:
        super().__init__(*terms)
        count = min(self.n_features, BLOCKS)
        self.spread = np.eye(count)[:, np.arange(self.n_features) * count // self.n_features]

    def _noise(self, model: Any, rows: Floats, labels: Floats) -> Floats:
        exact = solve_ridge(rows, labels, self.weights, model.regularization_)
        if model.rounding_ is not None:
            exact = np.rint(exact / model.rounding_) * model.rounding_
        return (self.unit_model(model)[0] - exact) * model.noise_rate_

    def reference(self, count: int, rng: np.random.Generator) -> Floats:
        if self.model.rounding_ is None:
            return super().reference(count, rng)
        scale = round(1.0 / (self.model.noise_rate_ * self.model.rounding_))
        return _laplace(scale, (count, self.n_features), rng)

    def candidates(self, numbers: Floats) -> tuple[Floats, Floats, Floats]:
        points = _stretched(numbers[1:].reshape(4, len(self.spread) + 1, -1))
        return points[:, :-1], 2.0 * points[:, -1] - 1.0, 0.0 * numbers[0]

    def losses(self, weights: Floats, x: Floats, y: Floats, length: Floats) -> Floats:
        roots = np.sqrt(self.spread.sum(axis=1))
        scaled = x * roots[:, None]
        grams = np.einsum("r,rin,rjn->rnij", weights, scaled, scaled)
        moments = np.einsum("r,rn,rin->rni", weights, y, scaled)
        rest = grams[2] + grams[3] + self.model.regularization_ * np.eye(roots.size)
        sums = moments[2] + moments[3] + moments[:2]
        models = np.linalg.solve(rest + grams[:2], sums[..., None])[..., 0]
        apart = models[0] - models[1]
        return np.linalg.norm(apart * roots ** (2 - self.order), self.order, axis=1)

    def loss_at(self, witness: Neighbours) -> float:
        sides = (witness.X, witness.y), (witness.X_other, witness.y_other)
        models = [self.unit_model(self.fit(*side, seed=0))[0] for side in sides]
        distance = float(np.linalg.norm(models[0] - models[1], self.order))
        return distance * self.model.noise_rate_ / self.scale

    def data(self, rows: Floats, labels: Floats) -> Rows:
        box, public = self.domain.rows, self.domain.labels
        y = np.clip(public.middle + public.half * labels, public.low, public.high)
        return np.clip(box.low + box.width * rows, box.low, box.low + box.width), y

    @property
    def order(self) -> int:
        return 2 if self.model.rounding_ is None else 1


def law_check(name: str, noises: Floats, reference: Floats, confidence: float) -> Check:
    """Compare norms and projections of noise vectors with draws of the claimed distribution.

    The claimed distributions are symmetric, so the function also compares the norms of vectors
    with positive projections and the norms of vectors with negative projections.
    The second result bounds the mean norm of the noise, relative to the claimed mean norm. This
    upper confidence bound is one if the distribution is not refuted, and otherwise at most one.
    """
    lines = np.eye(noises.shape[1])[:LINES]
    if noises.shape[1] > 1:
        lines = np.vstack([lines, np.random.default_rng(0).normal(size=(LINES, len(lines.T)))])
    sizes, expected = (np.linalg.norm(vectors, axis=1) for vectors in (noises, reference))
    along = noises @ lines.T
    columns = np.column_stack([sizes, along]), np.column_stack([expected, reference @ lines.T])
    sides = [(sizes[x > 0], sizes[x < 0]) for x in along.T if x.min() < 0 < x.max()]
    p_values = np.append(
        stats.ks_2samp(*columns).pvalue, [stats.ks_2samp(*pair).pvalue for pair in sides]
    )
    passed = bool(p_values.min() >= (1.0 - confidence) / p_values.size)
    size = float(sizes.mean() / expected.mean())
    detail = (
        f"mean size {size:.3f} times the claim, over {len(noises)} releases (smallest p-values:"
        f" sizes {p_values[0]:.2g}, {len(lines)} projections and sides {p_values[1:].min():.2g})"
    )
    error = stats.norm.isf((1.0 - confidence) / 2.0) * sizes.std() / np.sqrt(len(noises))
    scale = 1.0 if passed else min(1.0, size + float(error / expected.mean()))
    return AuditCheck(name, passed, detail), scale


def _laplace(scale: int, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    return discrete_laplace(scale, shape[0] * shape[1], rng).reshape(shape) / scale


def _spread(size: int, count: int) -> NDArray[np.intp]:
    return np.linspace(0, size - 1, min(count, size)).astype(np.intp)


def _stretched(numbers: Floats) -> Floats:
    return np.clip(4.0 / 3.0 * numbers - 1.0 / 6.0, 0.0, 1.0)
