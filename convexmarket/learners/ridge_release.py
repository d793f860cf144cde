"""The release that every private ridge regression makes: ask, solve, charge, add noise, publish.

An estimator decides weights and noise from the guarantees alone, its :class:`Plan`; everything else
is here.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from convexmarket.arguments import aligned, checked_numbers, is_number
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.learners.granted import Granted, dense_rows
from convexmarket.learners.parted import PartedRows, RowParts, in_parts, labels_of
from convexmarket.learners.ridge_domain import (
    RANGE_SLACK,
    Domain,
    Range,
    UnitRows,
    check_rows,
    pair_of_bounds,
    per_feature,
    positive_width,
    warn_of_leak,
)
from convexmarket.learners.ridge_lattice import RidgeLattice, ridge_lattice, solve_error
from convexmarket.learners.ridge_math import (
    Matrix,
    Vector,
    ridge_risk_constants,
    solve_ridge,
)
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.active import admit, names_of
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.noise import (
    RandomSource,
    gamma_sphere_noise,
    noise_assumption,
    resolve_generator,
    warn_of_plain_noise,
)
from convexmarket.privacy.sensitivity import Sensitivity, ridge_sensitivity

__all__ = ["Plan", "RidgeRelease", "Rounding"]

Rounding: TypeAlias = Literal["auto"] | float | None

SMALLEST_RATE = 1e-280  # of the noise, which would overflow below it


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a release decides without looking at the data, for the rows that are used.

    Attributes
    ----------
    weights : ndarray of shape (n_used,)
        Of the loss.
    rate : float
        Of the noise; infinity means none.
    epsilon : ndarray of shape (n_used,)
        Guarantee of each row.
    exposure : ndarray of shape (n_used,)
        Largest weight that each row could have, whatever is drawn.
    sold : ndarray of shape (n_used,)
        What each row may lose once the weights are drawn.
    """

    weights: Vector
    rate: float
    epsilon: Vector
    exposure: Vector
    sold: Vector


class RidgeRelease(RegressorMixin, BaseEstimator):
    """What every estimator here shares: the domain, the fit, the guarantee, the prediction."""

    regularization: float
    max_norm: float | None
    sensitivity: Sensitivity
    feature_range: Range | None
    target_range: tuple[float, float] | None
    rounding: Rounding
    features: PublicFeatures | None
    epsilon: ArrayLike | None

    _mechanism = "ridge regression by output perturbation"

    @abstractmethod
    def _plan(self, granted: Granted, n_features: int, rng: np.random.Generator) -> Plan:
        """Decide weights and noise from the guarantees alone."""

    def _assumptions(self) -> tuple[str, ...]:
        """Say what the guarantee of this estimator rests on, beyond what all share."""
        return ()

    def _kept(self, plan: Plan, lattice: RidgeLattice | None) -> Vector:
        """Return the guarantee of each row, under the noise that is added."""
        return plan.epsilon if lattice is None else lattice.epsilon

    def risk(
        self,
        n_features: int,
        *,
        label_noise: float | None = None,
        failure_probability: float = 0.05,
    ) -> tuple[float, float]:
        """Return (mu, sigma): how spread and noise hurt this learner, for a market's objective.

        Parameters
        ----------
        n_features : int
        label_noise : float, optional
            Standard deviation of the labels' noise, on the unit scale. The constructor's by
            default where there is one, and otherwise 1, which no noise within the labels' range
            exceeds.
        failure_probability : float, default 0.05
            Chance that the bound fails.

        Returns
        -------
        mu, sigma : float
            Of the bound ``mu * ||a|| + sigma / eta`` on the error of the model, on the unit scale
            (:func:`~convexmarket.learners.ridge_risk_constants`).

        Raises
        ------
        ParameterError
            If an argument is out of its range.
        """
        if label_noise is None:
            label_noise = getattr(self, "label_noise", None)
        return ridge_risk_constants(
            self.regularization,
            n_features,
            1.0 if label_noise is None else label_noise,
            failure_probability,
            self.max_norm,
            self.sensitivity,
            exact=self.rounding is not None,
        )

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        epsilon: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        accountant: Account | None = None,
        random_state: RandomSource = None,
    ) -> Self:
        """Solve, add the noise, and keep only what may be published.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
            Rows within ``feature_range``. Rows in partitions
            (:func:`convexmarket.partitions.rows`) stay there, and are read in two passes.
        y : array_like of shape (n_rows,)
            Labels within ``target_range``.
        epsilon : array_like of shape (n_rows,), or float
            What each row granted, or one number for all: nonnegative, in nats, chosen without
            looking at the data. The constructor's by default. A row that granted 0 is not used: it
            is dropped before anything looks at what it holds. Infinity is a row that asks for
            nothing.
        rows : array_like of int, optional
            Positions of the rows in the accountant; all of its rows by default.
        accountant : Account, optional
            Asked before a row is looked at, and charged in full before noise is drawn; by default
            the accounts that are open, :func:`convexmarket.privacy.account`.
        random_state : None or Simulation, default None
            Source of the noise; ``None`` takes a fresh seed from the operating system. It is not
            kept. A :class:`~convexmarket.privacy.Simulation` draws the same noise again, and
            protects nobody. A seed by itself raises a
            :class:`~convexmarket.errors.PrivacyLeakWarning`.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If a parameter or epsilon is out of its range, or an accountant is to pay for a range
            that is read from the private rows.
        DataError
            If the data are malformed or sparse, or a row or a label lies outside its public range.
        BudgetExceededError
            If the accountant refuses.
        NotSupportedError
            If ``rounding`` is a number and the error of the solve has no bound; if rows in
            partitions are fewer than features, or ``regularization`` is too small for them.
        SolverError
            If the solve is not as exact as rounding relies on.
        """
        X, y, epsilon, rows = aligned(
            X=X, y=y, epsilon=self.epsilon if epsilon is None else epsilon, rows=rows
        )
        self._check_parameters()
        if accountant is not None:
            self._refuse_leaks()
        granted = Granted.of(X, epsilon, self.epsilon)
        n_features = self._n_features(X, y)
        rng = resolve_generator(random_state)
        plan = self._plan(granted, n_features, rng)
        if plan.rate < SMALLEST_RATE:
            raise ParameterError(
                f"regularization = {self.regularization!r} and an epsilon of "
                f"{granted.positive.min():g} need noise beyond the range of floating point; use a "
                "larger regularization, or 0 in place of the smallest epsilon"
            )
        lattice = self._lattice(plan, n_features)
        if lattice is None and np.isfinite(plan.rate):
            warn_of_plain_noise("rounding", random_state)
        guarantee = self._guarantee(granted, plan, lattice, random_state)
        charge = admit(guarantee, accountant, rows, names=names_of(X), random_state=random_state)
        unit: UnitRows | PartedRows
        if in_parts(X):
            unit, labels, domain = self._prepare_parts(X, y, granted, lattice is not None)
        else:
            X, labels, domain = self._prepare(*granted.rows(X, y))
            unit = domain.unit_rows(X) if lattice is None else domain.box_rows(X)
        if lattice is None:
            model = solve_ridge(unit, labels, plan.weights, self.regularization)
        else:
            inside = np.clip(labels, -1.0, 1.0)
            model = lattice.solve(unit, inside, plan.weights, self.regularization)
        charge()
        if lattice is not None:
            model = lattice.release(model, rng)
        elif np.isfinite(plan.rate):
            model = model + gamma_sphere_noise(model.size, rng) / plan.rate
        # Only now, so that a failed fit leaves no half of a model behind.
        self.coef_ = domain.half * model / domain.width
        self.intercept_ = float(domain.centre - self.coef_ @ domain.low)
        self.noise_rate_ = plan.rate if lattice is None else 1.0 / (lattice.scale * lattice.step)
        self.rounding_ = None if lattice is None else lattice.step
        self.guarantee_ = guarantee
        self.epsilon_ = guarantee.epsilon
        return self

    def predict(self, X: ArrayLike) -> Vector:
        """Return ``X @ coef_ + intercept_``.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        rows = np.asarray(dense_rows(self, X, box=True, dtype=np.float64, reset=False))
        return np.asarray(rows @ self.coef_ + self.intercept_)

    def _check_parameters(self) -> None:
        """Refuse parameters that are no numbers."""
        for name in ("regularization", "max_norm", "label_noise", "failure_probability"):
            value = getattr(self, name, None)
            if not (is_number(value) or (value is None and name != "regularization")):
                raise ParameterError(f"{name} must be a number, got {value!r}")
        if isinstance(self.rounding, str) and self.rounding != "auto":
            raise ParameterError(f"rounding must be 'auto', a step or None, got {self.rounding!r}")

    def _leaking(self) -> list[str]:
        """Return the ranges that are computed from the private rows."""
        return [name for name in ("feature_range", "target_range") if getattr(self, name) is None]

    def _refuse_leaks(self) -> None:
        """Refuse to charge for what no guarantee covers."""
        if self._leaking():
            raise ParameterError(
                f"{' and '.join(self._leaking())} would be computed from the private rows, which "
                "no guarantee covers and no accountant can charge; pass public ranges"
            )

    def _n_features(self, X: ArrayLike, y: ArrayLike) -> int:
        """Return the number of features, which is public, without a look at values."""
        if self.features is not None:
            return self.features.n_features_out_
        shape = X.shape if hasattr(X, "shape") else checked_numbers("X", X, DataError).shape
        if len(shape) != 2 or 0 in shape:
            self._validated(X, y)  # says what is wrong
            raise DataError(f"X must have rows and columns, not the shape {shape}")
        return int(shape[1])

    def _validated(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, Vector]:
        """Return rows and labels as arrays of finite numbers."""
        checked = dense_rows(self, X, y, box=True, dtype=np.float64, y_numeric=True)
        rows, labels = (np.asarray(one, dtype=np.float64) for one in checked)
        return rows, labels

    def _lattice(self, plan: Plan, n_features: int) -> RidgeLattice | None:
        """Plan exact noise on a lattice, unless there is no noise, or no exact form."""
        if self.rounding is None or np.isinf(plan.rate):
            return None
        rounding = None if isinstance(self.rounding, str) else self.rounding
        if rounding is None and self._inexact(plan.weights.size, n_features):
            return None
        return ridge_lattice(
            rounding,
            self.regularization,
            n_features,
            plan.weights,
            plan.exposure,
            plan.sold,
            self.max_norm,
            self.sensitivity,
        )

    def _inexact(self, n_rows: int, n_features: int) -> bool:
        """Say whether the error of the solve has no bound, so that no exact form exists."""
        try:
            solve_error(n_rows, n_features, self.regularization)
        except NotSupportedError:
            return True
        return False

    def _prepare(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, Vector, Domain]:
        """Return the rows, the labels on the unit scale and the domain."""
        self._check_parameters()
        X, y = self._validated(X, y)
        domain, labels = self._domain(X, y)
        check_rows(domain.unit_rows(X))
        return X, labels, domain

    def _prepare_parts(
        self, X: RowParts, y: ArrayLike, granted: Granted, boxed: bool
    ) -> tuple[PartedRows, Vector, Domain]:
        """Do the same for rows in partitions, which are checked in each pass over them."""
        if self.feature_range is None or self.features is not None:
            raise ParameterError(
                "rows in partitions need a public feature_range, and no features, which are for "
                "tables; pass a range, and transform each partition before"
            )
        corner = np.zeros(X.shape[1])
        told = labels_of(X, y)[granted.used]
        domain, labels = self._domain(
            X, self._validated(np.broadcast_to(corner, (told.size, corner.size)), told)[1]
        )
        return PartedRows(X, granted.used, partial(domain.checked, boxed)), labels, domain

    def _domain(self, X: Any, y: Vector) -> tuple[Domain, Vector]:
        """Return the domain, and the labels on the unit scale."""
        low, width = self._features(X)
        bottom, top = self._targets(y)
        domain = Domain(low, width, (bottom + top) / 2.0, (top - bottom) / 2.0)
        labels = domain.unit_labels(y)
        outside = np.count_nonzero(np.abs(labels) > 1.0 + RANGE_SLACK)
        if outside:
            raise DataError(
                f"{outside} of {y.size} labels lie outside target_range = ({bottom:g}, {top:g}); "
                "pass a wider public range, or clip the labels to it one by one"
            )
        return domain, labels

    def _features(self, X: Matrix) -> tuple[Vector, Vector]:
        """Return low and width of every column."""
        if self.feature_range is None:
            warn_of_leak("feature_range")
            low, high = X.min(axis=0), X.max(axis=0)
            low = np.where(high > low, low, high - 1.0)  # a constant column becomes one
            return low, high - low
        bounds = pair_of_bounds("feature_range", self.feature_range)
        low, high = (per_feature(bound, X.shape[1]) for bound in bounds)
        return low, positive_width("feature_range", low, high)

    def _targets(self, y: Vector) -> tuple[float, float]:
        """Return the public range of the labels."""
        if self.target_range is None:
            warn_of_leak("target_range")
            low, high = float(y.min()), float(y.max())
            return (low, high) if high > low else (low - 1.0, high + 1.0)
        bottom, top = pair_of_bounds("target_range", self.target_range)
        if bottom.ndim or top.ndim:
            raise ParameterError(f"target_range must be two numbers, got {self.target_range!r}")
        positive_width("target_range", bottom, top)
        return float(bottom), float(top)

    def _guarantee(
        self,
        granted: Granted,
        plan: Plan,
        lattice: RidgeLattice | None,
        random_state: RandomSource,
    ) -> Guarantee:
        ranges = "rows and labels lie within feature_range and target_range, which are public"
        if self._leaking():
            ranges = f"VIOLATED: {' and '.join(self._leaking())} computed from the private rows"
        noisy = bool(np.isfinite(plan.rate))
        mechanism = self._mechanism
        arithmetic = (
            "noise and coefficients are real numbers: they are computed in double precision"
        )
        if lattice is not None:
            mechanism += f", exact noise on a lattice of step {lattice.step:g}"
            arithmetic = (
                "arithmetic is that of IEEE 754, rounding to nearest: the noise is exact, and"
                f" covers an error of {lattice.error.distance:.2g} in what it is added to"
            )
        elif noisy:
            mechanism += ", noise in plain floating point"
        assumptions = (
            noise_assumption(random_state, any_noise=noisy),
            ranges,
            *self._assumptions(),
            "epsilon and all parameters were chosen without looking at the data",
            arithmetic,
            "only the coefficients are published, once",
        )
        if self.max_norm is not None:
            assumptions += (
                f"the minimiser without regularisation has norm at most {self.max_norm:g} on this"
                " data set and on every neighbour of it, and that is public",
            )
        return Guarantee(
            epsilon=granted.spread(self._kept(plan, lattice)),
            delta=0.0,
            mechanism=mechanism,
            accounting=f"{self.sensitivity} sensitivity",
            assumptions=assumptions,
        )

    def _kappa(self, n_features: int) -> float:
        """Return how far one row can move the model, per unit of weight."""
        return ridge_sensitivity(self.regularization, n_features, self.max_norm, self.sensitivity)
