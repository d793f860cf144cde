"""Terms of the objective, and the privacy costs of sellers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from convexmarket.checks import as_float, check_choice, check_instance, is_iterable
from convexmarket.errors import ParameterError
from convexmarket.terms import records
from convexmarket.terms.pieces import MarketNumbers, Number, Quantities, Term
from convexmarket.terms.records import Record, checked, record

__all__ = ["CVaR", "ExponentialCost", "Fairness", "LinearCost", "Losses", "NegativeEntropy"]
__all__ += ["Noise", "Payments", "PowerCost", "PrivacyCost", "QuadraticSpread", "RobustCosts"]
__all__ += ["Spread", "SquaredNoise", "SquaredSpread", "TieredCost"]

Floats = NDArray[np.float64]
Of = Literal["eps", "epsilon", "payments"]
Kind = Literal["box", "budget", "ellipsoid"]
Rule = Literal["minimax"]


@record
class Spread(Term):
    """A norm of the weights, ||a||_p, which penalises reliance on few sellers.

    With p = 2, this is the term ``mu * ||a||`` of A, Theorem II.4. With a public ``reference`` q,
    shape (m,), the term is the distance ``||a - q||_p`` from target weights, such as the design
    weights of a survey. p is in [1.01, 40], or inf (the largest weight). A finite p is rounded to a
    fraction with a numerator of at most 1024, so that cones can represent the norm.

    Examples
    --------
    >>> print(Spread(p=3) + Noise())
    ||a||_3 + 1/eta
    """

    p: float = checked(records.in_interval, interval="[1.01, 40]", also=np.inf, default=2)
    reference: Floats | None = checked(records.target, each=True, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["is_smooth"] = self.p < np.inf  # the largest weight has no gradient at ties
        if self.p < np.inf:
            vars(self)["p"] = float(1 / (1 / Fraction(float(self.p))).limit_denominator(1024))

    @property
    def formula(self) -> str:
        return f"||{'a' if self.reference is None else 'a - q'}||_{self.p:g}"

    def expression(self, quantities: Quantities) -> cp.Expression:
        off = quantities.weights if self.reference is None else quantities.weights - self.reference
        if self.p == np.inf:
            return cp.max(off) if self.reference is None else cp.max(cp.abs(off))
        m = quantities.weights.size  # powers of numbers of order one neither overflow nor underflow
        return cp.pnorm(m * off, self.p) / m  # type: ignore[arg-type]

    @property
    def is_norm(self) -> bool:  # type: ignore[override]
        return self.p < np.inf and self.reference is None

    @property
    def adds_to(self) -> str | None:  # type: ignore[override]
        """The field "mu" for the Euclidean norm without a reference, and None otherwise."""
        return "mu" if self.p == 2 and self.reference is None else None

    def simplex_minimum(self, weight: float, costs: Floats) -> Floats | None:
        """Compute the minimum of ``weight * ||a||_p + costs'a`` over the simplex by its dual.

        The dual maximises tau subject to ``||(tau - costs)_+||_q <= weight``, where 1/p + 1/q = 1.
        """
        if self.reference is not None:
            return None
        q = 1.0 if self.p == np.inf else float(self.p / (self.p - 1))
        least = costs.min(axis=-1)
        scaled = (costs - least[..., None]) / weight  # margins <= 1, so powers do not overflow
        tau = _level(scaled, q)
        # The norm grows at least as fast as tau, so the corrected tau is feasible.
        excess = _dual_norm(tau, scaled, q)[0] - 1.0
        return np.asarray(least + weight * (tau - np.maximum(excess, 0.0)))


def _level(costs: Floats, q: float) -> Floats:
    """Solve ``||(tau - costs)_+||_q = 1`` for tau <= 1, if the smallest cost is 0."""
    if q == 1.0:  # the norm is piecewise linear
        total = np.sort(np.minimum(costs, 1.0), axis=-1).cumsum(axis=-1)
        return ((1.0 + total) / np.arange(1, costs.shape[-1] + 1)).min(axis=-1)
    tau = np.ones(costs.shape[:-1])  # the start of Newton's method
    for _ in range(200):
        norm, slope = _dual_norm(tau, costs, q)
        step = np.maximum((norm - 1.0) / slope, 0.0)
        tau = tau - step
        if (step <= 4e-16).all():
            break
    return tau


def _dual_norm(tau: Floats, costs: Floats, q: float) -> tuple[Floats, Floats]:
    """Compute the norm ``||(tau - costs)_+||_q`` and, for q > 1, its derivative, at least 1."""
    margin = np.maximum(tau[..., None] - costs, 0.0)
    norm = (margin**q).sum(axis=-1) ** (1.0 / q)
    slope = (margin ** (q - 1)).sum(axis=-1) / norm ** (q - 1)
    return norm, np.maximum(slope, 1.0)


@record
class SquaredSpread(Term):
    """The square of the Euclidean norm of the weights, ||a||^2 (A, Eq. 17).

    Examples
    --------
    >>> print(3 * SquaredSpread() + Noise())
    3 ||a||_2^2 + 1/eta
    """

    formula_template = "||a||_2^2"
    adds_to = "mu_squared"
    separable = True

    def expression(self, quantities: Quantities) -> cp.Expression:
        return cp.sum_squares(quantities.weights)

    def simplex_minimum(self, weight: float, costs: Floats) -> Floats:
        """Compute the minimum of ``weight * ||a||^2 + costs'a`` over the simplex by its dual."""
        least = costs.min(axis=-1)
        scaled = (costs - least[..., None]) / (2 * weight)
        tau = _level(scaled, 1.0)
        margin = np.maximum(tau[..., None] - scaled, 0.0)
        return np.asarray(least + weight * (2 * tau - (margin**2).sum(axis=-1)))


@record
class QuadraticSpread(Term):
    """A quadratic form of the weights, ``a' Sigma a``, such as the variance of an average.

    Sigma, shape (m, m), is public, symmetric and positive semidefinite. An example is the
    covariance of the sellers' rows. Diagonal blocks of a sparse matrix are factored separately.

    Examples
    --------
    >>> print(QuadraticSpread([[1.0, 0.5], [0.5, 1.0]]) + Noise())
    a'Sigma a + 1/eta
    """

    formula_template = "a'Sigma a"
    Sigma: Any = checked(records.matrix, each=True, of="a row and a column for each seller")
    _factor: sparse.csr_array = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["_factor"] = _factor(sparse.csr_array(self.Sigma))

    def expression(self, quantities: Quantities) -> cp.Expression:
        return cp.sum_squares(self._factor @ quantities.weights)


def _factor(Sigma: sparse.csr_array) -> sparse.csr_array:
    """Factor Sigma as ``F'F``, where the rows of F are scaled eigenvectors of the blocks."""
    largest = float(abs(Sigma).max())
    if len(set(Sigma.shape)) > 1 or not 0 < largest >= 1e9 * abs(Sigma - Sigma.T).max():
        raise ParameterError(
            f"Sigma of shape {Sigma.shape} is zero, not square or not symmetric; give a symmetric "
            "matrix, such as (Sigma + Sigma.T)/2"
        )
    whole = sparse.csr_array((Sigma + Sigma.T) / 2)
    label = connected_components(whole, directed=False)[1]
    order = np.argsort(label, kind="stable")  # sellers sorted by block
    blocks = [
        np.linalg.eigh(whole[members][:, members].toarray())
        for members in np.split(order, np.cumsum(np.bincount(label))[:-1])
    ]
    eigenvalues = np.concatenate([block.eigenvalues for block in blocks])
    if eigenvalues.min() < -1e-9 * eigenvalues.max():
        raise ParameterError(
            f"Sigma has the eigenvalue {eigenvalues.min():g}; give a positive semidefinite matrix, "
            "such as a covariance"
        )
    parts = [sparse.coo_array(block.eigenvectors.T) for block in blocks]
    vectors = sparse.block_diag(parts, format="csr")
    some = eigenvalues > 1e-15 * eigenvalues.max()
    scaled = sparse.diags_array(np.sqrt(eigenvalues[some])) @ vectors[some]
    return sparse.csr_array(scaled[:, np.argsort(order)])


@record
class NegativeEntropy(Term):
    """The negative entropy of the weights, sum a_i log a_i. At the optimum, every seller sells.

    With a positive reference q of sum one, the term is the Kullback-Leibler divergence
    ``sum a_i log(a_i/q_i)`` from target weights, such as shares in a population (Shimodaira, 2000).

    Examples
    --------
    >>> print(NegativeEntropy([0.5, 0.5]) + Noise())
    sum_i a_i log (a_i/q_i) + 1/eta
    """

    reference: Floats | None = checked(records.target, each=True, positive=True, default=None)
    separable = True
    is_smooth = False  # near 0, rounding errors of weights change the gradient considerably

    @property
    def formula(self) -> str:
        return f"sum_i a_i log {'a_i' if self.reference is None else '(a_i/q_i)'}"

    def expression(self, quantities: Quantities) -> cp.Expression:
        if self.reference is None:
            return -cp.sum(cp.entr(quantities.weights))
        return cp.sum(cp.rel_entr(quantities.weights, self.reference))

    def simplex_minimum(self, weight: float, costs: Floats) -> Floats | None:
        """Compute ``-weight * log sum q_i exp(-costs_i/weight)``, with q = 1 by default."""
        if self.reference is not None and costs.shape[-1] != self.reference.size:
            return None  # costs of a subset of the sellers
        return np.asarray(-weight * logsumexp(-costs / weight, axis=-1, b=self.reference))


@record
class Noise(Term):
    """The reciprocal of the total privacy bought, the term ``sigma/eta`` of A, Theorem II.4.

    Examples
    --------
    >>> print(Spread() + 4 * Noise() + Payments())
    ||a||_2 + 4/eta + sum_i psi_i eps_i
    """

    formula_template = "1/eta"
    adds_to = "sigma"

    def expression(self, quantities: Quantities) -> cp.Expression:
        return quantities.inverse_eta


@record
class SquaredNoise(Term):
    """The square of 1/eta, which is proportional to the variance of Laplace noise.

    Examples
    --------
    >>> print(Spread() + 2 * SquaredNoise())
    ||a||_2 + 2/eta^2
    """

    formula_template = "1/eta^2"

    def expression(self, quantities: Quantities) -> cp.Expression:
        return cp.square(quantities.inverse_eta)


@record
class Losses(Term):
    """The weighted losses of a model on the sellers' rows, or other costs per unit of weight.

    Examples
    --------
    >>> print(Spread() + Noise() + 2 * Losses([0.3, 0.0, 0.0]))
    ||a||_2 + 1/eta + 2 sum_i l_i a_i
    """

    formula_template = "sum_i l_i a_i"
    values: Floats = checked(records.vector, "losses", each=True)

    def expression(self, quantities: Quantities) -> cp.Expression:
        return self.values @ quantities.weights

    def numbers(self, weight: float, form: MarketNumbers) -> MarketNumbers:
        return replace(form, losses=form.losses + weight * self.values)


class PrivacyCost(Record):
    """A function u such that a seller with sensitivity c has the privacy cost ``c * u(eps)``.

    A subclass defines :meth:`expression`, which is elementwise convex, increasing and 0 at 0.

    Examples
    --------
    >>> import cvxpy as cp
    >>> class Cubed(PrivacyCost):
    ...     def expression(self, epsilon):
    ...         return cp.power(epsilon, 3)
    >>> Cubed()([1.0, 2.0])
    array([1., 8.])
    """

    definition = "expression"
    _argument = "(eps_i)"
    #: Whether u(eps) = eps.
    is_linear: bool = False

    @abstractmethod
    def expression(self, epsilon: cp.Expression) -> cp.Expression:
        """Return u(eps), elementwise, as a convex CVXPY expression.

        Parameters
        ----------
        epsilon : cvxpy.Expression
        """

    def __call__(self, epsilon: ArrayLike) -> Floats:
        """Evaluate u elementwise at numbers eps >= 0."""
        value = np.asarray(epsilon, dtype=float)
        at = value if self.is_linear else self.expression(cp.Constant(value.ravel())).value
        return np.array(at, dtype=float).reshape(value.shape)

    def priced(self, costs: Any, epsilon: cp.Expression) -> cp.Expression:
        """Return ``costs'u(eps)``, scaled for a solver."""
        return costs @ self.expression(epsilon)

    def derivatives(self, epsilon: Floats) -> tuple[Floats, Floats] | None:
        """Compute u'(eps) and u''(eps) at positive guarantees, or return None if unknown."""
        return None


@record
class PowerCost(PrivacyCost):
    """The power cost u(eps) = eps ** power, where ``power`` is at least 1.

    Examples
    --------
    >>> PowerCost(2)([0.5, 2.0])
    array([0.25, 4.  ])
    """

    formula_template = "eps_i^{power}"
    power: float = checked(records.in_interval, interval="[1, inf)")

    @property
    def is_linear(self) -> bool:  # type: ignore[override]
        return self.power == 1

    def expression(self, epsilon: cp.Expression) -> cp.Expression:
        return epsilon if self.power == 1 else cp.power(epsilon, float(self.power))

    def derivatives(self, epsilon: Floats) -> tuple[Floats, Floats]:
        p = self.power
        if p == 1:
            return np.ones_like(epsilon), np.zeros_like(epsilon)
        with np.errstate(divide="ignore"):  # infinite at 0 for p < 2
            return p * epsilon ** (p - 1), p * (p - 1) * epsilon ** (p - 2)


@record
class LinearCost(PowerCost):
    """The linear cost u(eps) = eps (A, section II).

    Examples
    --------
    >>> LinearCost()([0.5, 2.0])
    array([0.5, 2. ])
    """

    formula_template = "eps_i"
    power: float = field(default=1.0, init=False)


@record
class ExponentialCost(PrivacyCost):
    """The cost u(eps) = exp(eps) - 1, the largest relative increase of an adversary's odds.

    Examples
    --------
    >>> ExponentialCost()([0.0, 1.0]).round(3)
    array([0.   , 1.718])
    """

    formula_template = "(exp(eps_i) - 1)"

    def expression(self, epsilon: cp.Expression) -> cp.Expression:
        return cp.exp(epsilon) - 1

    def priced(self, costs: Any, epsilon: cp.Expression) -> cp.Expression:
        if isinstance(costs, cp.Expression):
            return super().priced(costs, epsilon)
        paid = costs > 0  # entries of the sum are of order one
        return cp.sum(cp.exp(epsilon[paid] + np.log(costs[paid]))) - costs.sum()

    def __call__(self, epsilon: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.expm1(np.asarray(epsilon, dtype=float))

    def derivatives(self, epsilon: Floats) -> tuple[Floats, Floats]:
        return (self(epsilon) + 1.0,) * 2


@record
class TieredCost(PrivacyCost):
    """A piecewise linear cost, such as a contract tariff, where ``u'(eps) = slopes[k]`` in tier k.

    The slopes are > 0 and nondecreasing. The thresholds are the ends of all tiers except the last.

    Examples
    --------
    >>> TieredCost([1.0, 3.0], [1.0])([0.5, 2.0])
    array([0.5, 4. ])
    """

    slopes: Sequence[float]
    thresholds: Sequence[float] = ()

    def __post_init__(self) -> None:
        given = self.slopes, self.thresholds
        slopes, ends = (tuple(map(as_float, x)) if is_iterable(x) else () for x in given)
        finite = all(0 < number < np.inf for number in slopes + ends)
        rising = sorted(slopes) == list(slopes) and sorted(set(ends)) == list(ends)
        if not finite or not rising or len(slopes) != len(ends) + 1:
            raise ParameterError(
                "slopes must be finite, > 0 and nondecreasing; thresholds (one fewer) must be > "
                f"0 and increasing, got {self.slopes!r} and {self.thresholds!r}"
            )
        vars(self).update(slopes=slopes, thresholds=ends)

    @property
    def _rises(self) -> list[tuple[float, float]]:
        return list(zip(np.diff(self.slopes).tolist(), self.thresholds, strict=True))

    @property
    def formula(self) -> str:
        rises = "".join(f" + {rise:g} (eps_i - {end:g})_+" for rise, end in self._rises)
        return f"({self.slopes[0]:g} eps_i{rises})"

    def expression(self, epsilon: cp.Expression) -> cp.Expression:
        rises = (rise * cp.pos(epsilon - end) for rise, end in self._rises)
        return sum(rises, self.slopes[0] * epsilon)


@record
class Payments(Term):
    """The expected payments, sum_i psi(c_i) u(eps_i), with a privacy cost u (A, Eq. 9; B, Eq. 10).

    Examples
    --------
    >>> print(Spread() + Noise() + 0.1 * Payments(LinearCost()))
    ||a||_2 + 1/eta + 0.1 sum_i psi_i eps_i
    """

    reports = "price"
    privacy_cost: PrivacyCost = field(default_factory=LinearCost)

    def __post_init__(self) -> None:
        check_instance("privacy_cost", self.privacy_cost, PrivacyCost, "a cost like LinearCost()")

    @property
    def formula(self) -> str:
        return f"sum_i psi_i {self.privacy_cost.formula}"

    def expression(self, quantities: Quantities) -> cp.Expression:
        return quantities.virtual_costs @ self.privacy_cost.expression(quantities.epsilon)

    def weighted(self, weight: Number, quantities: Quantities) -> cp.Expression:
        return self.privacy_cost.priced(weight * quantities.virtual_costs, quantities.epsilon)

    def numbers(self, weight: float, form: MarketNumbers) -> MarketNumbers:
        if self.privacy_cost.is_linear:
            return replace(form, gamma=form.gamma + weight)
        return replace(form, payments=(*form.payments, (weight, self.privacy_cost)))


@record
class CVaR(Term):
    """Average of the largest fraction ``1 - level`` of guarantees (Rockafellar and Uryasev, 2000).

    With ``of="payments"``, the expected payments psi_i*eps_i are averaged. Level 0 yields the
    average over all sellers. Levels from ``1 - 1/m`` to below 1 yield the largest value.

    Examples
    --------
    >>> print(Spread() + Noise() + 0.1 * CVaR(0.9))
    ||a||_2 + 1/eta + 0.1 CVaR_0.9(eps)
    """

    level: float = checked(records.in_interval, interval="[0, 1)")
    of: Of = checked(check_choice, choices=Of, default="eps")

    @property
    def formula(self) -> str:
        return f"CVaR_{self.level:g}({'psi ' * (self.of == 'payments')}eps)"

    def expression(self, quantities: Quantities) -> cp.Expression:
        payments = cp.multiply(quantities.virtual_costs, quantities.epsilon)
        risk = payments if self.of == "payments" else quantities.epsilon
        k = max(1.0, round((1.0 - self.level) * risk.size, 9))
        return cp.sum_largest(risk, k) / k


@record
class Fairness(Term):
    """The largest of the groups' average guarantees ("minimax" fairness, after Rawls).

    Examples
    --------
    >>> print(Spread() + Noise() + Fairness("minimax", ["a", "a", "b"]))
    ||a||_2 + 1/eta + max_g mean_{i in g} eps_i
    """

    formula_template = "max_g mean_{{i in g}} eps_i"
    kind: Rule = checked(check_choice, choices=Rule)
    groups: Any = checked(records.groups, each=True)

    def expression(self, quantities: Quantities) -> cp.Expression:
        _, group, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        each = (1.0 / sizes[group], (group, np.arange(group.size)))
        return cp.max(sparse.csr_array(each) @ quantities.epsilon)


@record
class RobustCosts(Term):
    """The largest expected payments if virtual costs have errors up to ``r_i = radius_i * psi_i``.

    - "box": every cost can deviate by up to r_i, so the term is ``(psi + r)'eps`` (Soyster, 1973);
    - "budget": at most ``budget`` costs can deviate, so the term is ``psi'eps`` plus the sum of the
      ``budget`` largest ``r_i*eps_i`` (Bertsimas and Sim, 2004);
    - "ellipsoid": the deviations are in the ellipsoid with half-axes r_i, so the term is
      ``psi'eps + ||r*eps||`` (Ben-Tal and Nemirovski, 1999).

    ``radius`` is a number >= 0, or one number for each seller. Use this term instead of
    :class:`Payments`. With this term, ``market.incentives`` is "unknown".

    Examples
    --------
    >>> print(Spread() + Noise() + 0.1 * RobustCosts("box", 0.2))
    ||a||_2 + 1/eta + 0.1 sum_i (1 + 0.2) psi_i eps_i
    """

    kind: Kind = checked(check_choice, choices=Kind)
    radius: float | Floats = checked(records.one_or_each, each=True, example="0.1", zero=True)
    budget: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "budget":
            records.in_interval("budget", self.budget, "(0, inf)")
        elif self.budget is not None:
            raise ParameterError(f"budget is {self.budget!r}; only the kind 'budget' needs one")

    @property
    def formula(self) -> str:
        r = records.written(self.radius, "r_i")
        if self.kind == "box":
            return f"sum_i (1 + {r}) psi_i eps_i"
        paid = f"{r} psi_i eps_i"
        worst = f"largest_{self.budget:g} ({paid})" if self.budget else f"|| {paid} ||_2"
        return f"(sum_i psi_i eps_i + {worst})"

    def expression(self, quantities: Quantities) -> cp.Expression:
        payments = cp.multiply(quantities.virtual_costs, quantities.epsilon)
        off = cp.multiply(np.broadcast_to(self.radius, payments.shape), payments)
        if self.kind == "budget":
            return cp.sum(payments) + cp.sum_largest(off, min(float(self.budget or 0), off.size))
        return cp.sum(payments) + (cp.sum(off) if self.kind == "box" else cp.norm(off))
