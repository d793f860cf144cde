r"""Objective perturbation: noise in the objective of a linear model, and its exact minimiser.

.. math:: \sum_i a_i \ell(w^\top x_i; y_i) + b'^\top w + \tfrac{\Lambda}{2}\|w\|^2,

with :math:`b' = (2LR/\eta)\,b`, :math:`b` of density proportional to :math:`e^{-\|b\|}`,
:math:`\|x_i\| \le R`, and a loss that is convex, L-Lipschitz and of bounded curvature (Algorithm 1
and Eq. 12 of Anjarlekar, Etesami and Srikant, who take the logistic loss and R = 1). Its guarantee,
and that of the second noise, which hides the distance of the computed minimiser from the exact one,
are derived in :mod:`convexmarket.privacy.accounting`.

**A public rule for Lambda.** With regularization "auto" it is
:math:`2LR\sqrt{n(n+1)}/(\eta W)` for models of norm :math:`W = \frac sR(\eta/n)^{1/4}`, and at
least what keeps the second noise small. The derivation is in docs/theory/objective-perturbation.md.
Where eta is calibrated from Lambda, both follow from one equation with one root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from convexmarket.checks import aligned, check_positives, check_scales
from convexmarket.errors import ParameterError, SolverError
from convexmarket.learners.granted import Granted, Perturbation
from convexmarket.learners.losses import LogisticLoss, Loss
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.learners.partitioned_rows import PartedObjective, PartedRows
from convexmarket.privacy.accounting import (
    Accounting,
    calibrate_eta,
    default_solver_epsilon,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.exact_noise import gamma_sphere_draw, gamma_sphere_error
from convexmarket.privacy.lattice import lattice_blur, lattice_release
from convexmarket.privacy.random_sources import gamma_sphere_log_density

__all__ = [
    "Calibration",
    "ObjectivePerturbation",
    "SecondNoise",
    "objective_perturbation_log_density",
    "public_regularization",
]

Floats = NDArray[np.float64]
Calibration: TypeAlias = Literal["total", "noise"]

ROUNDINGS = 4  # of a coordinate of the first noise after its draw: two products and a quotient
#: Largest default cost of the second noise, as a share of the epsilon granted by a row, ...
LARGEST_SHARE = 0.03
#: ... because rows with a larger cost are dropped, unless their share of the mean exceeds this.
LEAST_OF_MEAN = 0.01
#: Relative margin of eta below the total granted, to allow for rounding.
BELOW = 2.0**-50
UNIT = 2.0**-53
#: Largest deviation of a prediction by the second noise under the rule for Lambda: of margins, and
#: of labels in [-1, 1].
BLUR_OF_MARGINS, BLUR_OF_LABELS = 0.1, 0.003
RANGE = 1e-90, 1e90  # of the rule
NO_NOISE = 1e-6  # Lambda of the rule without noise, per unit of curvature


@dataclass(frozen=True)
class SecondNoise:
    """The tolerance of the solver, and the cost of covering its error; see the learner."""

    tol: Literal["auto"] | float = "auto"
    solver_epsilon: Literal["auto"] | float | None = "auto"

    def check(self) -> None:
        """Raise a ParameterError if a parameter is out of its range."""
        tol, cost = self.tol, self.solver_epsilon
        if tol != "auto":
            (check_positives if cost is None else check_scales)(tol=tol)
        if isinstance(cost, str) and cost != "auto":
            raise ParameterError(f"solver_epsilon must be 'auto', a number or None, got {cost!r}")
        if cost not in ("auto", None):
            check_scales(solver_epsilon=cost)

    def unit(self, n_rows: int, eta: float = np.inf) -> float:
        """Return the tolerance for rows and slopes of size 1, for up to 10,000 features."""
        if not isinstance(self.tol, str):
            return self.tol
        return 1e-12 + UNIT * (8.0 * n_rows + 2e6 / eta)

    def granted(self, granted: Granted) -> Granted:
        """Return the granted epsilons, without rows for which exact noise is too expensive."""
        if self.solver_epsilon != "auto" or not np.isfinite(granted.epsilon).all():
            return granted
        n_rows = granted.positive.size
        least = min(self.unit(n_rows) / LARGEST_SHARE**2, LEAST_OF_MEAN / n_rows)
        worth = np.where(granted.weights() >= least, granted.positive, 0.0)
        return Granted(granted.spread(worth))

    def paid(self, sold: Floats, unit: float) -> float:
        """Return the cost to each row; 0 without a second noise."""
        asking = sold[np.isfinite(sold)]
        if self.solver_epsilon is None or not asking.size:
            return 0.0
        if isinstance(self.solver_epsilon, str):
            return default_solver_epsilon(asking, unit)
        return self.solver_epsilon


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectivePerturbation(Perturbation):
    """Noise in the objective; see the module."""

    eta: float  # sets the first noise; infinity means none
    data_norm: float
    loss: Loss
    tol: float  # largest norm of the gradient at the solver's point
    paid: float  # by each row, for the second noise
    blur: tuple[float, int] | None  # step and scale of the second noise

    @property
    def unit(self) -> float:
        """The scale of the noise in the gradient."""
        return 2.0 * self.loss.lipschitz * self.data_norm / self.eta

    @classmethod
    def of(
        cls,
        weights: Floats,
        sold: Floats,
        regularization: float | str,
        n_features: int,
        *,
        data_norm: float,
        loss: Loss,
        second: SecondNoise,
        accounting: Accounting = "general",
        cap: float | None = None,
        calibration: Calibration = "total",
        norm: float = 1.0,
    ) -> ObjectivePerturbation:
        """Plan the noise for the guarantees sold; ``norm`` is the scale s of the rule."""
        used = weights > 0
        eta = float(np.min(sold[used] / weights[used]))
        tol = unit = second.unit(weights.size, eta)
        paid = second.paid(sold[used], unit)
        if isinstance(second.tol, str):
            tol *= loss.lipschitz * data_norm
        if isinstance(regularization, str):
            regularization = public_regularization(
                weights[used], sold[used] - paid, n_features, data_norm, loss, norm
            )
            if paid:
                seen = BLUR_OF_MARGINS if loss.classifies else BLUR_OF_LABELS
                least = 2.0 * np.sqrt(2.0 * n_features) * data_norm * tol / (seen * paid)
                regularization = max(regularization, float(least))
        terms = (regularization, data_norm, accounting, cap, paid, loss.curvature)
        if calibration == "total":
            eta = calibrate_eta(weights, eta * (1.0 - BELOW), *terms)
        epsilon = np.where(used, objective_perturbation_guarantee(weights, eta, *terms), 0.0)
        if calibration == "total" and np.isfinite(eta):
            epsilon = np.minimum(epsilon, sold)
        noisy, distance = bool(np.isfinite(eta)), tol / regularization
        name = "by objective perturbation"
        if noisy:
            name += ", " + ("exact noise on a lattice" if paid else "noise in plain floating point")
        assumptions = [
            f"the coefficients are the exact minimiser (the gradient norm is at most {tol:g}), or"
            f" are read no finer than {2.0 * distance:.3g}",
            "noise and coefficients, computed in double precision, are treated as real numbers",
        ]
        if paid:
            assumptions = [
                f"the gradient norm is at most {tol:g}; a second noise, exact on a lattice, covers"
                f" the distance of at most {distance:.3g} to the minimiser, for {paid:.3g} of each"
                " row's epsilon",
                "arithmetic follows IEEE 754; log1p, sin, cos and hypot are accurate to two units"
                " in the last place",
                "the solver succeeds on neighbouring data as well; the failure of a fit is not"
                " covered",
            ]
        return cls(
            weights=weights,
            epsilon=epsilon,
            regularization=regularization,
            name=name,
            accounting=accounting,
            assumptions=tuple(assumptions),
            noisy=noisy,
            exact=second.solver_epsilon is not None,
            eta=eta,
            data_norm=data_norm,
            loss=loss,
            tol=tol,
            paid=paid,
            blur=lattice_blur(distance, n_features, paid) if paid else None,
        )

    def release(
        self, X: Floats | PartedRows, y: Floats, rng: np.random.Generator
    ) -> tuple[Floats, dict[str, Any]]:
        """Return the noisy minimiser, and its fitted attributes, or raise a SolverError."""
        weights, n_features = self.weights, X.shape[1]
        if not (used := weights > 0).all():  # a share can round to zero
            X, y, weights = X[used], y[used], weights[used]
        shift = np.zeros(n_features)
        if self.noisy:
            shift = self.unit * gamma_sphere_draw(n_features, rng)
        kind: Any = PartedObjective if isinstance(X, PartedRows) else PerturbedObjective
        objective = kind(X, y, weights, shift, self.regularization, self.loss)
        slack = 0.0
        if self.blur is not None:
            slack = gamma_sphere_error(ROUNDINGS) * float(np.linalg.norm(shift))
        coef, bound = self._minimum(objective, slack)
        step = None
        if self.blur is not None:
            step, bound = self.blur[0], self.tol  # the norm reached depends on the rows
            try:
                coef = lattice_release(coef, *self.blur, rng)
            except ParameterError as error:
                raise SolverError(
                    f"the coefficients cannot be rounded to steps of {step:g}, so nothing is "
                    "released; use a larger eta (buy more privacy), regularization or tol"
                ) from error
        return coef, {
            "eta_": self.eta,
            "regularization_": self.regularization,
            "rounding_": step,
            "gradient_norm_": bound,
            "tol_": self.tol,
            "solver_epsilon_": self.paid,
        }

    def _minimum(self, objective: PerturbedObjective, slack: float) -> tuple[Floats, float]:
        """Return a minimiser and a proven bound, at most ``tol``, on the gradient's norm there."""
        try:
            coef = minimise(objective, self.tol / 2.0)
        except np.linalg.LinAlgError as error:
            raise SolverError(f"Newton's method failed: {error}") from error
        computed, rounding = objective.gradient_norm(coef)
        bound = computed + rounding + slack
        if not bound <= self.tol:
            raise SolverError(
                f"Newton's method stopped at a gradient norm of {computed:.3g}, with a rounding "
                f"error of at most {rounding + slack:.3g}: above tol = {self.tol:g}, so nothing is "
                "released; use a larger regularization, a larger eta if the noise is much larger "
                "than the data, or a larger tol if the rounding error is too large"
            )
        return coef, bound

    def noise_effect(self, second: Floats) -> float:
        """Return the deviation that noise adds to a prediction, at half of the loss's curvature."""
        gradient = self.unit * np.sqrt(second.size + 1.0)
        bent = second * self.loss.curvature / 2.0
        return float(gradient * np.sqrt(np.sum(second / (bent + self.regularization) ** 2)))


def public_regularization(
    weights: ArrayLike,
    sold: ArrayLike,
    n_features: int,
    data_norm: float,
    loss: Loss,
    norm: float,
) -> float:
    """Return the Lambda of the public rule; ``norm`` is the scale s, for rows of norm 1."""
    shares, bounds = np.asarray(weights, dtype=np.float64), np.asarray(sold, dtype=np.float64)
    if np.all(shares == shares[0]):  # the smallest guarantee decides
        shares, bounds = shares[:1], np.array([bounds.min()])
    bent = loss.curvature * data_norm**2
    if np.isinf(bounds).all() or not np.all(bounds > 0):  # no noise, or no sufficient noise
        return float(np.clip(NO_NOISE * bent, *RANGE))
    goal = np.log(2.0 * loss.lipschitz * data_norm**2 / norm)
    goal += np.log(n_features * (n_features + 1.0)) / 2.0 + np.log(n_features) / 4.0
    sizes = np.log(bent) + np.log(shares)

    def excess(log_regularization: float) -> float:
        lost = np.logaddexp(0.0, sizes - log_regularization)
        eta = float(np.min((bounds - lost) / shares))
        return log_regularization + 1.25 * np.log(eta) - goal if eta > 0.0 else -1.0

    low = goal - 1.25 * float(np.log(np.min(bounds / shares)))
    # Here eta is at least half of its largest value.
    half = np.max(sizes - np.log(np.expm1(np.minimum(bounds, 500.0) / 2.0)))
    root = brentq(excess, low - 1e-3, max(float(half), low + 2.0), xtol=1e-7)
    return float(np.clip(np.exp(np.clip(root, *np.log(RANGE))), *RANGE))


def objective_perturbation_log_density(
    w: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    eta: float,
    regularization: float,
    data_norm: float = 1.0,
    loss: Loss | None = None,
) -> float:
    r"""Compute the log density of the released model at w, given the data.

    The privacy loss at w between two data sets is the difference of two such values. The model is
    the exact minimiser, without a second noise (``solver_epsilon``).

    Parameters
    ----------
    w : array_like of shape (n_features,)
        Point of evaluation.
    X, y, weights : array_like of shapes (n_sellers, n_features), (n_sellers,), (n_sellers,)
        Rows of norm at most ``data_norm`` (not checked), labels as numbers, weights of the loss.
    eta, regularization, data_norm : float
        Parameter of the noise, Lambda and R; positive and finite.
    loss : Loss, optional
        Logistic by default.

    Returns
    -------
    float
        :math:`\log h(b(w)) + n\log\frac{\eta}{2LR} + \log\det J(w)`, in nats: h is the density of
        the noise, b(w) the noise for which w is the minimiser, which is the gradient of the
        noiseless objective at w up to sign and scale, and J the Hessian of that objective.

    Examples
    --------
    >>> data = dict(X=[[1.0], [0.5]], y=[1, -1], weights=[0.5, 0.5], eta=4.0, regularization=1.0)
    >>> round(objective_perturbation_log_density([0.0], **data), 6)
    -0.104818
    """
    X, y, weights = aligned(X=X, y=y, weights=weights)
    point, rows, labels, shares = (np.asarray(v, dtype=np.float64) for v in (w, X, y, weights))
    loss = LogisticLoss() if loss is None else loss
    none = np.zeros_like(point)
    objective = PerturbedObjective(rows, labels, shares, none, regularization, loss)
    per_unit = eta / (2.0 * loss.lipschitz * data_norm)
    noise_norm = per_unit * float(np.linalg.norm(objective.gradient(point)))
    density = gamma_sphere_log_density(noise_norm, point.size)
    log_volume = float(np.linalg.slogdet(objective.hessian(point))[1])
    return density + point.size * float(np.log(per_unit)) + log_volume
