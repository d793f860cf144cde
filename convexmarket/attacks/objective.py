"""The audit of objective perturbation: a formula, and that it applies.

The loss at an output is exact as long as the mechanism is what it says: a minimiser under noise of
the claimed law, with the claimed weights. So the noise of many releases is worked out backwards
and compared with that law, and with itself on neighbouring data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.base import clone

from convexmarket.attacks.checks import (
    draw_seeds,
    gamma_sphere_check,
    noise_scale,
    published_check,
    quietly,
)
from convexmarket.attacks.lipschitz_loss import worst_on_a_line
from convexmarket.attacks.logistic_loss import LossSetting, WorstCase, worst_loss
from convexmarket.attacks.result import AuditCheck, Neighbours, PrivacyAudit, ratios
from convexmarket.errors import ParameterError
from convexmarket.learners.density import objective_perturbation_log_density
from convexmarket.learners.domain import Interval
from convexmarket.learners.granted import Granted
from convexmarket.learners.linear import ObjectiveLearner, PrivateHuberRegressor
from convexmarket.learners.losses import HuberLoss, LogisticLoss
from convexmarket.learners.minimiser import PerturbedObjective
from convexmarket.learners.perturbed import ObjectivePerturbation
from convexmarket.learners.ridge import PersonalizedRidge
from convexmarket.privacy.lattice import discrete_laplace, lattice_blur
from convexmarket.privacy.noise import Simulation

__all__ = ["audit_objective", "audit_objective_ridge"]

Floats = NDArray[np.float64]

#: Dimensions in which the worst rows are looked for: more add nothing.
WORST_DIMENSIONS = 4
#: Groups that the other rows act in, where these are looked for.
WORST_GROUPS = 8
#: Relative; two computations of the same noise.
AGREEMENT = 1e-5
#: Of the difference of two computations, in units of the noise: beyond it nothing is tested.
LARGEST_ALLOWED = 0.1


def audit_objective(
    mechanism: ObjectiveLearner,
    X: Floats,
    y: NDArray[Any],
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
    if not (worst_data or isinstance(mechanism._loss(), LogisticLoss)):
        raise ParameterError("others='given' is for the logistic loss; use others='worst'")
    granted = mechanism._granted(Granted.of(X, epsilon, mechanism.epsilon))
    if np.isinf(granted.epsilon).any():
        raise ParameterError(
            "epsilon is infinite in some rows, so that there is no noise, and no guarantee to "
            "audit; pass finite numbers"
        )
    audit = _ObjectiveAudit(mechanism, X, y, granted)
    model = audit.fit(X, y, draw_seeds(rng, 1)[0])
    claim, claimed = model.guarantee_, model.guarantee_.epsilon
    if rows is None:
        rows = _telling_rows(claimed, audit.weights, n_rows)
    checks = [audit.published(rows)]
    if mechanism.solver_epsilon is not None:
        # the second noise is tested by itself, and what it hides without it, at the same eta
        exact = clone(mechanism).set_params(
            solver_epsilon=None,
            calibration="noise",
            regularization=model.regularization_,
            tol=model.tol_,
        )
        first = _ObjectiveAudit(exact, X, y, Granted(audit.weights * model.eta_))
        checks.append(audit.second_noise(first, draws, confidence, rng))
        audit, model = first, first.fit(X, y, draw_seeds(rng, 1)[0])
    law, scale = audit.noise_law(draws, confidence, rng)
    if not checks[0].passed:
        scale = 0.0
    checks += [law, audit.same_noise(rows, rng)]
    found = [audit.worst(row, model, worst_data, scale, rng) for row in rows.tolist()]
    measured = np.array([loss if scale > 0.0 else np.inf for loss, _ in found])
    worst = int(np.argmax(ratios(measured, claimed[rows])))
    return PrivacyAudit(
        mechanism=claim.mechanism,
        method="exact",
        rows=rows,
        claimed=claimed[rows],
        measured=measured,
        delta=claim.delta,
        confidence=confidence,
        checks=tuple(checks),
        witness=found[worst][1],
    )


def audit_objective_ridge(
    mechanism: PersonalizedRidge,
    X: Floats,
    y: NDArray[Any],
    *terms: Any,
    epsilon: ArrayLike | None = None,
) -> PrivacyAudit:
    """Audit the Huber regression on the unit scale that a ridge regression publishes.

    Its rows may be any of the ball that the box lies in, which is no weaker an attack.
    """
    granted = mechanism._granted(Granted.of(X, epsilon, mechanism.epsilon))
    domain = mechanism._domain(X.shape[1], X, y)
    plan = mechanism._plan(granted, X.shape[1], domain, np.random.default_rng(0))
    if not isinstance(plan, ObjectivePerturbation):
        raise ParameterError("epsilon is infinite in some rows; pass finite numbers")
    assert isinstance(plan.loss, HuberLoss)
    inner = PrivateHuberRegressor(
        plan.regularization,
        threshold=plan.loss.threshold,
        data_norm=plan.data_norm,
        tol=plan.tol,
    )
    rows, labels = mechanism._checked(X, y, granted, domain)
    return audit_objective(inner, rows, labels, *terms, epsilon=granted.epsilon)


def _telling_rows(claimed: Floats, weights: Floats, n_rows: int) -> NDArray[np.intp]:
    """Return used rows spread over the sizes of their claims, and the one that claims least."""
    used = np.flatnonzero(weights > 0)
    order = used[np.argsort(claimed[used], kind="stable")]
    spread = order[np.linspace(0, order.size - 1, min(n_rows, order.size)).astype(int)]
    with np.errstate(divide="ignore"):
        modest = used[np.argmax(weights[used] / claimed[used])]
    return np.unique(np.append(spread, modest))


class _ObjectiveAudit:
    """One mechanism on one data set."""

    def __init__(
        self,
        mechanism: ObjectiveLearner,
        X: Floats,
        y: NDArray[Any],
        granted: Granted,
    ) -> None:
        self.mechanism = mechanism
        self.X, self.y, self.epsilon = X, y, granted.epsilon
        self.weights = granted.spread(granted.weights())
        self.loss = mechanism._loss()
        public = mechanism
        if getattr(mechanism, "classes", ()) is None:
            public = clone(mechanism).set_params(classes=tuple(np.unique(y)[[0, -1]]))
        self.domain = public._labels(y)
        self.labels = np.asarray(
            [self.domain.low, self.domain.high]
            if isinstance(self.domain, Interval)
            else self.domain.values
        )
        self.before: WorstCase | None = None

    def fit(self, X: Floats, y: NDArray[Any], seed: int) -> ObjectiveLearner:
        """Release on a data set, with a seed of the mechanism's own noise."""
        model = clone(self.mechanism)
        terms = {"epsilon": self.epsilon, "random_state": Simulation(seed)}
        return quietly(lambda: model.fit(X, y, **terms))[0]

    def noise(self, model: ObjectiveLearner, X: Floats, y: NDArray[Any]) -> Floats:
        """Return the noise that explains a released model, in units of the claimed scale."""
        objective = PerturbedObjective(
            X,
            self.targets(y),
            self.weights,
            np.zeros(X.shape[1]),
            model.regularization_,
            self.loss,
        )
        per_unit = model.eta_ / (2.0 * self.loss.lipschitz * model.data_norm_)
        return -per_unit * objective.gradient(model.coef_)

    def targets(self, y: NDArray[Any]) -> Floats:
        """Return labels as the loss takes them."""
        return self.domain.numbers(y)

    def noise_law(
        self, draws: int, confidence: float, rng: np.random.Generator
    ) -> tuple[AuditCheck, float]:
        """Test the law of the noise, and return its scale: one, or less where that is refuted."""
        noises = np.stack(
            [
                self.noise(self.fit(self.X, self.y, seed), self.X, self.y)
                for seed in draw_seeds(rng, draws)
            ]
        )
        law = gamma_sphere_check(noises, confidence)
        if law.passed:
            return law, 1.0
        return law, noise_scale(np.linalg.norm(noises, axis=1), noises.shape[1], confidence)

    def same_noise(self, rows: NDArray[np.intp], rng: np.random.Generator) -> AuditCheck:
        """Compare the noise of one seed on neighbouring data: audited rows, and some others."""
        name = "rows that were tried enter with their weights, and do not change the noise"
        seed = draw_seeds(rng, 1)[0]
        reference = self.noise(self.fit(self.X, self.y, seed), self.X, self.y)
        allowed = AGREEMENT * (1.0 + float(np.linalg.norm(reference))) + self._rounding()
        if allowed > LARGEST_ALLOWED:
            return AuditCheck(name, True, "NOT TESTED: tol is too large beside the noise")
        order = np.argsort(self.weights, kind="stable")
        spread = order[np.linspace(0, order.size - 1, min(12, order.size)).astype(int)]
        tried = np.union1d(rows, spread).tolist()
        wrong, largest = set(), 0.0
        for row in tried:
            for features, label in self._versions(row):
                X, y = self.X.copy(), self.y.copy()
                X[row], y[row] = features, label
                other = self.noise(self.fit(X, y, seed), X, y)
                shift = float(np.linalg.norm(other - reference))
                largest = max(largest, shift)
                if shift > allowed:
                    wrong.add(row)
        found = (
            f"{len(tried)} rows, each in several versions: largest difference {largest:.2g} in"
            f" units of the noise's scale, {len(wrong)} rows with too large ones"
        )
        return AuditCheck(name, not wrong, found)

    def _versions(self, row: int) -> list[tuple[Floats, Any]]:
        """Return what a row may be instead: with both labels, itself, mirrored, reversed, null."""
        own = self.X[row]
        shapes = (own, -own, own[::-1], np.zeros_like(own))
        return [(features, label) for features in shapes for label in self.labels][1:]

    def _rounding(self) -> float:
        """Return what the fit's tolerance may shift the noise by."""
        model = self.fit(self.X, self.y, 0)
        pull = model.data_norm_ * self.loss.lipschitz
        return float(2.0 * model.tol_ * self.epsilon.sum() / pull)

    def second_noise(
        self,
        first: _ObjectiveAudit,
        draws: int,
        confidence: float,
        rng: np.random.Generator,
    ) -> AuditCheck:
        """Test the noise that hides the minimiser: releases by one seed, with it and without."""
        model = self.fit(self.X, self.y, draw_seeds(rng, 1)[0])
        distance = model.tol_ / model.regularization_
        step, scale = lattice_blur(distance, self.X.shape[1], model.solver_epsilon_)
        noises = [
            self.fit(self.X, self.y, seed).coef_ - first.fit(self.X, self.y, seed).coef_
            for seed in draw_seeds(rng, draws)
        ]
        found = np.ravel(noises) / (step * scale)
        ideal = np.array(discrete_laplace(scale, 50 * found.size, rng), dtype=np.float64) / scale
        p_value = float(stats.ks_2samp(found, ideal).pvalue)
        on_lattice = model.rounding_ == step and np.all(model.coef_ % step == 0)
        return AuditCheck(
            "the second noise has the claimed law, on a lattice",
            bool(on_lattice and p_value > 1.0 - confidence),
            f"p-value {p_value:.3g} of {found.size} coordinates; step {step:.3g}",
        )

    def published(self, rows: NDArray[np.intp]) -> AuditCheck:
        """Compare what is published without noise, on neighbours at the domain's corners."""
        low, high = self.labels
        norm = float(self.mechanism.data_norm or np.linalg.norm(self.X, axis=1).max())
        corner = np.zeros_like(self.X)
        corner[:, 0] = 0.5 * norm
        all_low = np.full(len(self.X), low)
        pairs = []
        for row in np.union1d(rows[:3], [np.argmax(self.weights)]).tolist():
            one, longer, flipped = all_low.copy(), corner.copy(), self.y.copy()
            one[row], longer[row, 0] = high, norm
            flipped[row] = high if self.y[row] == low else low
            further = self.X.copy()
            further[row] = longer[row]
            pairs += [
                (corner, one, corner, all_low),
                (corner, one, longer, one),
                (self.X, self.y, further, flipped),
            ]

        def facts(X: Floats, y: NDArray[Any]) -> tuple[Any, ...]:
            model = clone(self.mechanism)
            model.fit(X, y, epsilon=self.epsilon, random_state=Simulation(0))
            domain = np.asarray(getattr(model, "classes_", self.labels))
            return domain.tolist(), model.data_norm_, model.eta_, model.epsilon_.tolist()

        return published_check("nothing else that is published depends on rows", facts, pairs)

    def worst(
        self,
        row: int,
        model: ObjectiveLearner,
        worst_data: bool,
        scale: float,
        rng: np.random.Generator,
    ) -> tuple[float, Neighbours]:
        """Return the largest loss found for a row, with its witness."""
        if not self.weights[row]:  # not used: no output tells its versions apart
            same = (self.X, self.y)
            return 0.0, Neighbours(row, *same, *same, output=None)
        n_features = self.X.shape[1]
        eta, norm = model.eta_ / (scale or 1.0), model.data_norm_
        rest = np.delete(np.arange(len(self.X)), row)
        setting = LossSetting(
            float(self.weights[row]), self.weights[rest], eta, model.regularization_, norm
        )
        if not isinstance(self.loss, LogisticLoss):
            ends = self.targets(self.labels)
            found = worst_on_a_line(setting, self.loss, ends, row, n_features)
            labelled = [
                self.labels[(side == ends[1]).astype(int)] for side in (found.y, found.y_other)
            ]
            witness = replace(found, y=labelled[0], y_other=labelled[1])
            return self._loss_at(witness, eta, model), witness
        if worst_data:
            groups, totals = _groups(self.weights[rest])
            few = LossSetting(setting.weight, totals, eta, model.regularization_, norm)
            case = worst_loss(few, min(n_features, WORST_DIMENSIONS), rng, None, self.before)
            others = case.others[groups]
        else:
            others = self.targets(self.y)[rest, None] * self.X[rest]
            case = worst_loss(setting, n_features, rng, others, self.before)
        self.before = case if worst_data else None  # other rows stay: another problem each time
        witness = self._witness(row, rest, case, others)
        return self._loss_at(witness, eta, model), witness

    def _witness(
        self, row: int, rest: NDArray[np.intp], case: WorstCase, others: Floats
    ) -> Neighbours:
        """Return two data sets with labels of the public set: z = yx with y the second label."""
        X = np.zeros_like(self.X)
        X[rest, : others.shape[1]] = others
        X_other = X.copy()
        X[row, : case.row.size] = case.row
        X_other[row, : case.replacement.size] = case.replacement
        labels = np.full(len(X), self.labels[1])
        output = np.zeros(X.shape[1])
        output[: case.output.size] = case.output
        return Neighbours(row, X, labels, X_other, labels.copy(), output)

    def _loss_at(self, witness: Neighbours, eta: float, model: ObjectiveLearner) -> float:
        """Evaluate the loss at the witness, by the density of the released model."""
        output = np.zeros(self.X.shape[1]) if witness.output is None else witness.output
        values = [
            objective_perturbation_log_density(
                output,
                X,
                self.targets(y),
                self.weights,
                eta,
                model.regularization_,
                model.data_norm_,
                self.loss,
            )
            for X, y in ((witness.X, witness.y), (witness.X_other, witness.y_other))
        ]
        return values[0] - values[1]


def _groups(weights: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Deal rows into groups of about equal total weight; return each row's group, and totals."""
    count = min(WORST_GROUPS, weights.size)
    groups = np.empty(weights.size, dtype=np.intp)
    totals = np.zeros(count)
    for row in np.argsort(-weights, kind="stable"):
        groups[row] = totals.argmin()
        totals[groups[row]] += weights[row]
    return groups, totals
