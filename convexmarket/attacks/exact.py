"""Audits by formula: the loss of objective and of output perturbation, and that it applies.

The loss is exact as long as the mechanism is as claimed: a minimiser with noise of the claimed law
and the claimed weights. So the noise of many releases is computed from the data and compared with
that law, and with itself on neighbouring data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from convexmarket.attacks.checks import draw_seeds, law_check, published_check, quietly
from convexmarket.attacks.result import AuditCheck, Neighbours, PrivacyAudit, ratios
from convexmarket.attacks.search import Attack, ObjectiveAttack, OutputAttack
from convexmarket.errors import ParameterError
from convexmarket.learners.density import objective_perturbation_log_density
from convexmarket.learners.domain import Ball, Box, Interval
from convexmarket.learners.granted import Granted, Perturbation
from convexmarket.learners.linear import ObjectiveLearner, PrivateHuberRegressor
from convexmarket.learners.losses import HuberLoss
from convexmarket.learners.minimiser import PerturbedObjective
from convexmarket.learners.perturbed import ObjectivePerturbation
from convexmarket.learners.ridge import PersonalizedRidge
from convexmarket.learners.ridge_math import solve_ridge
from convexmarket.privacy.lattice import discrete_laplace, lattice_blur
from convexmarket.privacy.noise import Simulation, gamma_sphere_noise

__all__ = ["audit_objective", "audit_output"]

Floats = NDArray[np.float64]

REFERENCE = 40  # draws of the claimed law, for each release
#: Relative; two computations of the same noise.
AGREEMENT = 1e-5
#: Of the difference of two computations, in units of the noise: beyond it nothing is tested.
LARGEST_ALLOWED = 0.1
#: Public attributes of fitted learners, which must not depend on rows.
PUBLIC = ("classes_", "data_norm_", "eta_", "noise_rate_", "regularization_", "rounding_")


def audit_objective(
    mechanism: ObjectiveLearner | PersonalizedRidge,
    X: Floats,
    y: NDArray[Any],
    *terms: Any,
    epsilon: ArrayLike | None = None,
) -> PrivacyAudit:
    """Audit objective perturbation row by row; see :func:`~convexmarket.audit_privacy`.

    A ridge regression is the Huber regression on the unit scale that it publishes. Its rows may be
    any of the ball around the box, which makes the attack no weaker.
    """
    granted = mechanism._granted(Granted.of(X, epsilon, mechanism.epsilon))
    if np.isinf(granted.epsilon).any():
        raise ParameterError(
            "epsilon is infinite in some rows, so that there is no noise, and no guarantee to "
            "audit; pass finite numbers"
        )
    if isinstance(mechanism, PersonalizedRidge):
        domain = mechanism._domain(X.shape[1], X, y)
        plan = mechanism._plan(granted, X.shape[1], domain, np.random.default_rng(0))
        assert isinstance(plan, ObjectivePerturbation)
        assert isinstance(plan.loss, HuberLoss)
        X, y = mechanism._checked(X, y, granted, domain)
        mechanism = PrivateHuberRegressor(
            plan.regularization,
            threshold=plan.loss.threshold,
            data_norm=plan.data_norm,
            tol=plan.tol,
        )
    return _ObjectiveAudit(mechanism, X, y, granted).run(*terms)


def audit_output(
    mechanism: PersonalizedRidge,
    X: Floats,
    y: Floats,
    *terms: Any,
    epsilon: ArrayLike | None = None,
) -> PrivacyAudit:
    """Audit output perturbation row by row; see :func:`~convexmarket.audit_privacy`."""
    granted = Granted.of(X, epsilon, mechanism.epsilon)
    return _OutputAudit(mechanism, X, y, granted).run(*terms)


class _ExactAudit(ABC):
    """One mechanism on one data set."""

    def __init__(self, mechanism: Any, X: Floats, y: NDArray[Any], granted: Granted) -> None:
        self.mechanism, self.X, self.y, self.granted = mechanism, X, y, granted
        self.n_features = X.shape[1]
        self.domain = quietly(lambda: mechanism._domain(self.n_features, X, y))[0]
        public = self.domain.labels
        self.labels: NDArray[Any] = np.asarray(
            [public.low, public.high] if isinstance(public, Interval) else public.values
        )
        self.plan: Perturbation = mechanism._plan(
            granted, self.n_features, self.domain, np.random.default_rng(0)
        )
        self.weights = granted.spread(self.plan.weights)

    def run(
        self,
        rows: NDArray[np.intp] | None,
        n_rows: int,
        draws: int,
        confidence: float,
        rng: np.random.Generator,
    ) -> PrivacyAudit:
        """Return the audit of some rows."""
        model = self.fit(self.X, self.y, draw_seeds(rng, 1)[0])
        claim = model.guarantee_
        if rows is None:
            rows = self._spread_rows(claim.epsilon, n_rows)
        published = published_check(self._facts, self._pairs(rows))
        exact, checks = self._without_second_noise(model, draws, confidence, rng)
        if exact is not self:
            model = exact.fit(self.X, self.y, draw_seeds(rng, 1)[0])
        law, scale = exact.noise_law(model, draws, confidence, rng)
        checks = [published, *checks, law, exact.same_noise(model, rows, rng)]
        pairs = [exact.worst(row, model, scale, rng) for row in rows.tolist()]
        certain = scale <= 0.0 or not published.passed
        measured = np.array([np.inf if certain else loss for loss, _ in pairs])
        worst = int(np.argmax(ratios(measured, claim.epsilon[rows])))
        return PrivacyAudit(
            mechanism=claim.mechanism,
            method="exact",
            rows=rows,
            claimed=claim.epsilon[rows],
            measured=measured,
            delta=claim.delta,
            confidence=confidence,
            checks=tuple(checks),
            witness=pairs[worst][1],
        )

    def fit(self, X: Floats, y: NDArray[Any], seed: int) -> Any:
        """Release on a data set, with a seed of the noise."""
        terms = {"epsilon": self.granted.epsilon, "random_state": Simulation(seed)}
        return quietly(lambda: clone(self.mechanism).fit(X, y, **terms))[0]

    def unit(self, X: Floats, y: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return rows and labels in the units of the release."""
        rows, labels = self.mechanism._checked(X, y, self.granted, self.domain)
        return rows, labels

    @abstractmethod
    def noise(self, model: Any, X: Floats, y: NDArray[Any]) -> Floats:
        """Return the noise that explains a released model, in units of the claimed scale."""

    @abstractmethod
    def reference(self, model: Any, count: int, rng: np.random.Generator) -> Floats:
        """Return draws of the claimed law, shape (count, n_features)."""

    @abstractmethod
    def attack(self, model: Any, weights: Floats, scale: float) -> Attack:
        """Return the search for neighbours."""

    @abstractmethod
    def loss_at(self, witness: Neighbours, model: Any, scale: float) -> float:
        """Return the loss between the data sets of a witness."""

    def noise_law(
        self, model: Any, draws: int, confidence: float, rng: np.random.Generator
    ) -> tuple[AuditCheck, float]:
        """Test the law of the noise, and return its scale: one, or less where that is refuted."""
        models = [self.fit(self.X, self.y, seed) for seed in draw_seeds(rng, draws)]
        noises = np.stack([self.noise(each, self.X, self.y) for each in models])
        reference = self.reference(model, REFERENCE * draws, rng)
        return law_check("the noise has the claimed law", noises, reference, confidence)

    def same_noise(
        self, model: Any, rows: NDArray[np.intp], rng: np.random.Generator
    ) -> AuditCheck:
        """Compare the noise of one seed on neighbouring data: audited rows, and some others."""
        name = "rows that were tried enter with their weights, and do not change the noise"
        seed = draw_seeds(rng, 1)[0]
        noise = self.noise(self.fit(self.X, self.y, seed), self.X, self.y)
        allowed = AGREEMENT * (1.0 + float(np.linalg.norm(noise))) + self._rounding(model)
        if allowed > LARGEST_ALLOWED:
            return AuditCheck(name, True, "NOT TESTED: tol is too large relative to the noise")
        order = np.argsort(self.weights, kind="stable")
        tried = np.union1d(rows, order[_spread(order.size, 12)]).tolist()
        wrong, largest = set(), 0.0
        for row in tried:
            for features, label in self._versions(row):
                X, y = _replaced(self.X, row, features), _replaced(self.y, row, label)
                shift = float(np.linalg.norm(self.noise(self.fit(X, y, seed), X, y) - noise))
                largest = max(largest, shift)
                if shift > allowed:
                    wrong.add(row)
        detail = (
            f"{len(tried)} rows, each in several versions: largest difference {largest:.2g} in"
            f" units of the noise's scale, {len(wrong)} rows with too large ones"
        )
        return AuditCheck(name, not wrong, detail)

    def worst(
        self, row: int, model: Any, scale: float, rng: np.random.Generator
    ) -> tuple[float, Neighbours]:
        """Return the largest loss of a row under the search, with its witness."""
        weight, data = float(self.weights[row]), (self.X, self.y)
        if not weight:  # the row is not used: no output tells its versions apart
            return 0.0, Neighbours(row, *data, *data, output=None)
        rest = np.delete(np.arange(len(self.X)), row)
        groups, totals = _groups(self.weights[rest])
        attack = self.attack(model, np.array([weight, weight, *totals]), scale)
        points, labels, output = attack.worst(rng)
        place = np.empty(len(self.X), dtype=np.intp)
        place[rest] = groups + 2
        sides = []
        for version in (0, 1):
            place[row] = version
            sides.append(self._data(points[place], labels[place]))
        witness = Neighbours(row, *sides[0], *sides[1], output=self._output(output))
        return self.loss_at(witness, model, scale), witness

    def _data(self, rows: Floats, labels: Floats) -> tuple[Floats, NDArray[Any]]:
        """Return rows and labels in the units of the data."""
        return rows, labels

    def _output(self, output: Floats) -> Floats | None:
        """Return the output of a witness."""
        return output

    def _rounding(self, model: Any) -> float:
        """Return the largest shift of the noise by the fit's tolerance."""
        return 0.0

    def _without_second_noise(
        self, model: Any, draws: int, confidence: float, rng: np.random.Generator
    ) -> tuple[_ExactAudit, list[AuditCheck]]:
        """Return the audit without a second noise, and the check of that noise."""
        return self, []

    def _spread_rows(self, claimed: Floats, n_rows: int) -> NDArray[np.intp]:
        """Return used rows spread over their claims, and the smallest claim for its weight."""
        used = np.flatnonzero(self.weights > 0)
        order = used[np.argsort(claimed[used], kind="stable")]
        modest = used[np.argmin(claimed[used] / self.weights[used])]
        return np.unique(np.append(order[_spread(order.size, n_rows)], modest))

    def _extremes(self) -> tuple[Floats, Floats]:
        """Return a row in the interior of the domain, and one at its end."""
        domain = self.domain.rows
        if isinstance(domain, Box):
            return domain.low + 0.5 * domain.width, domain.low + domain.width
        assert isinstance(domain, Ball)
        end = np.zeros(self.n_features)
        end[0] = domain.data_norm
        return 0.5 * end, end

    def _versions(self, row: int) -> list[tuple[Floats, Any]]:
        """Return versions of a row with both labels."""
        shapes = [self.X[row], *self._extremes()]
        if isinstance(self.domain.rows, Ball):
            shapes += [self.X[row][::-1], -self.X[row]]
        return [(features, label) for features in shapes for label in self.labels]

    def _pairs(self, rows: NDArray[np.intp]) -> list[tuple[Any, ...]]:
        """Return neighbours at the ends of the domain, and of the data."""
        inner, end = self._extremes()
        low, high = self.labels
        base, labels, pairs = np.tile(inner, (len(self.X), 1)), np.full(len(self.X), low), []
        for row in np.union1d(rows[:3], [np.argmax(self.weights)]).tolist():
            raised, further = _replaced(labels, row, high), _replaced(base, row, end)
            flipped = _replaced(self.y, row, high if self.y[row] == low else low)
            pairs += [
                (base, raised, base, labels),
                (base, raised, further, raised),
                (self.X, self.y, _replaced(self.X, row, end), flipped),
            ]
        return pairs

    def _facts(self, X: Floats, y: NDArray[Any]) -> list[Any]:
        """Return what a fit publishes without noise."""
        model = clone(self.mechanism)
        model.fit(X, y, epsilon=self.granted.epsilon, random_state=Simulation(0))
        # The intercept follows from the coefficients and the public ranges.
        half, middle = 1.0, 0.0
        shift = model.intercept_
        if isinstance(self.domain.rows, Box):
            half, middle = self.domain.labels.half, self.domain.labels.middle
            shift = shift + model.coef_ @ self.domain.rows.low
        values = [np.asarray(getattr(model, name, None)).tolist() for name in PUBLIC]
        return [*values, round(float(shift - middle) / half, 9) + 0.0, model.epsilon_.tolist()]


class _ObjectiveAudit(_ExactAudit):
    """Objective perturbation with rows in a ball."""

    mechanism: ObjectiveLearner

    def noise(self, model: Any, X: Floats, y: NDArray[Any]) -> Floats:
        loss, (rows, labels) = self.mechanism._loss(), self.unit(X, y)
        terms = self.weights, np.zeros(self.n_features), model.regularization_, loss
        gradient = PerturbedObjective(rows, labels, *terms).gradient(model.coef_)
        return -model.eta_ / (2.0 * loss.lipschitz * model.data_norm_) * gradient

    def reference(self, model: Any, count: int, rng: np.random.Generator) -> Floats:
        return np.stack([gamma_sphere_noise(self.n_features, rng) for _ in range(count)])

    def attack(self, model: Any, weights: Floats, scale: float) -> Attack:
        return ObjectiveAttack(
            weights=weights,
            regularization=model.regularization_,
            labels=self.domain.labels.numbers(self.labels),
            n_features=self.n_features,
            loss=self.mechanism._loss(),
            eta=model.eta_ / (scale or 1.0),
            data_norm=model.data_norm_,
        )

    def loss_at(self, witness: Neighbours, model: Any, scale: float) -> float:
        assert witness.output is not None
        terms = self.weights, model.eta_ / (scale or 1.0), model.regularization_, model.data_norm_
        values = [
            objective_perturbation_log_density(
                witness.output, X, self.domain.labels.numbers(y), *terms, self.mechanism._loss()
            )
            for X, y in ((witness.X, witness.y), (witness.X_other, witness.y_other))
        ]
        return values[0] - values[1]

    def _data(self, rows: Floats, labels: Floats) -> tuple[Floats, NDArray[Any]]:
        if isinstance(self.domain.labels, Interval):
            return rows, labels
        return rows, self.labels[(labels > 0).astype(int)]

    def _rounding(self, model: Any) -> float:
        pull = model.data_norm_ * self.mechanism._loss().lipschitz
        return float(2.0 * model.tol_ * self.granted.epsilon.sum() / pull)

    def _without_second_noise(
        self, model: Any, draws: int, confidence: float, rng: np.random.Generator
    ) -> tuple[_ExactAudit, list[AuditCheck]]:
        if self.mechanism.solver_epsilon is None:
            return self, []
        plain = clone(self.mechanism).set_params(
            solver_epsilon=None,
            calibration="noise",
            regularization=model.regularization_,
            tol=model.tol_,
        )
        first = _ObjectiveAudit(plain, self.X, self.y, Granted(self.weights * model.eta_))
        distance = model.tol_ / model.regularization_
        step, scale = lattice_blur(distance, self.n_features, model.solver_epsilon_)
        data, seeds = (self.X, self.y), draw_seeds(rng, draws)
        blurs = [self.fit(*data, seed).coef_ - first.fit(*data, seed).coef_ for seed in seeds]
        count = REFERENCE * draws
        ideal = np.array(discrete_laplace(scale, count * self.n_features, rng), dtype=np.float64)
        name = "the second noise has the claimed law, on a lattice"
        check, _ = law_check(
            name, np.stack(blurs) / (step * scale), ideal.reshape(count, -1) / scale, confidence
        )
        on_lattice = model.rounding_ == step and np.all(model.coef_ % step == 0)
        passed = bool(check.passed and on_lattice)
        return first, [AuditCheck(name, passed, f"{check.detail}; step {step:.3g}")]


class _OutputAudit(_ExactAudit):
    """Output perturbation of ridge regression; models are compared on the unit scale."""

    mechanism: PersonalizedRidge

    def unit_model(self, model: Any) -> Floats:
        """Return released coefficients on the unit scale."""
        return np.asarray(model.coef_ * self.domain.rows.width / self.domain.labels.half)

    def noise(self, model: Any, X: Floats, y: NDArray[Any]) -> Floats:
        exact = solve_ridge(*self.unit(X, y), self.weights, model.regularization_)
        if model.rounding_ is not None:
            exact = np.rint(exact / model.rounding_) * model.rounding_
        return (self.unit_model(model) - exact) * model.noise_rate_

    def reference(self, model: Any, count: int, rng: np.random.Generator) -> Floats:
        if model.rounding_ is None:
            return np.stack([gamma_sphere_noise(self.n_features, rng) for _ in range(count)])
        scale = round(1.0 / (model.noise_rate_ * model.rounding_))
        drawn = discrete_laplace(scale, count * self.n_features, rng)
        return np.array(drawn, dtype=np.float64).reshape(count, -1) / scale

    def attack(self, model: Any, weights: Floats, scale: float) -> Attack:
        return OutputAttack(
            weights=weights,
            regularization=model.regularization_,
            labels=np.array([-1.0, 1.0]),
            n_features=self.n_features,
            order=self._order(model),
        )

    def loss_at(self, witness: Neighbours, model: Any, scale: float) -> float:
        sides = (witness.X, witness.y), (witness.X_other, witness.y_other)
        models = [self.unit_model(self.fit(*side, seed=0)) for side in sides]
        distance = float(np.linalg.norm(models[0] - models[1], self._order(model)))
        return distance * model.noise_rate_ / (scale or 1.0)

    def _order(self, model: Any) -> int:
        """Return the norm of distances: on a lattice each coordinate has its noise."""
        return 2 if model.rounding_ is None else 1

    def _data(self, rows: Floats, labels: Floats) -> tuple[Floats, NDArray[Any]]:
        box, public = self.domain.rows, self.domain.labels
        y = np.clip(public.middle + public.half * labels, public.low, public.high)
        return np.clip(box.low + box.width * rows, box.low, box.low + box.width), y

    def _output(self, output: Floats) -> None:
        return None  # the loss is the supremum over outputs


def _replaced(values: NDArray[Any], row: int, value: Any) -> NDArray[Any]:
    """Return a copy with another value in a row."""
    copy = values.copy()
    copy[row] = value
    return copy


def _spread(size: int, count: int) -> NDArray[np.intp]:
    """Return positions spread evenly."""
    return np.linspace(0, size - 1, min(count, size)).astype(np.intp)


def _groups(weights: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Deal rows into two groups of about equal weight; return each row's group, and totals."""
    groups, totals = np.zeros(weights.size, dtype=np.intp), np.zeros(2)
    for row in np.argsort(-weights, kind="stable"):
        groups[row] = totals.argmin()
        totals[groups[row]] += weights[row]
    return groups, totals
