"""A market in numbers, for methods that work on arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import InfeasibleMarketError
from convexmarket.terms.costs import LinearCost, PrivacyCost
from convexmarket.terms.pieces import Number, value_of

if TYPE_CHECKING:
    from convexmarket.terms.pieces import Constraint, Piece, Term, WeightedTerm

__all__ = ["MarketNumbers", "StandardForm"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MarketNumbers:
    """A market in numbers. Terms of weight 0 are left out.

    Attributes
    ----------
    virtual_costs : ndarray, shape (m,)
    mu, mu_squared, sigma, gamma : float
        Weights of ``||a||``, ``||a||^2``, 1/eta and ``psi'eps``.
    losses, max_weight, max_epsilon : float or ndarray, shape (m,)
        Losses per unit of weight, largest weight and guarantee (inf without a bound).
    payments : tuple of (float, PrivacyCost)
        Weights of ``psi'u(eps)`` that are not linear, with u.
    eta_low, eta_high : float
        Range of eta, possibly 0 and inf.
    budgets : tuple of float or cvxpy.Parameter
        Each at least ``psi'eps``.
    other_terms, other_constraints : tuple of Term and of Constraint
        Pieces that these numbers cannot express.
    parametric : bool
        Whether a number is a parameter, whose value may change.

    Examples
    --------
    >>> MarketNumbers(np.array([0.2, 0.4]), sigma=2.0, max_weight=0.5).limit(1.0)
    np.float64(0.5)
    """

    virtual_costs: Floats = field(default_factory=lambda: np.zeros(0))
    mu: float = 0.0
    sigma: float = 0.0
    gamma: float = 0.0
    max_weight: float | Floats = 1.0
    eta_low: float = 0.0
    eta_high: float = np.inf
    max_epsilon: float | Floats = np.inf
    mu_squared: float = 0.0
    losses: float | Floats = 0.0
    payments: tuple[tuple[float, PrivacyCost], ...] = ()
    budgets: tuple[Number, ...] = ()
    other_terms: tuple[Term, ...] = ()
    other_constraints: tuple[Constraint, ...] = ()
    parametric: bool = False

    def plus(
        self, parts: Iterable[WeightedTerm] = (), constraints: Iterable[Constraint] = ()
    ) -> MarketNumbers:
        """Add the parts of an objective and constraints."""
        form, changing = self, self.parametric
        for part in parts:
            changing = changing or part.is_parametric or part.term.is_parametric
            if part.value > 0:
                added = part.term.numbers(part.value, form)
                form = added or replace(form, other_terms=(*form.other_terms, part.term))
        for piece in constraints:
            changing = changing or piece.is_parametric
            added = piece.numbers(form)
            form = added or replace(form, other_constraints=(*form.other_constraints, piece))
        return replace(form, parametric=changing)

    @property
    def rest(self) -> tuple[Piece, ...]:
        """The pieces that the numbers cannot express."""
        return self.other_terms + self.other_constraints

    @property
    def standard(self) -> StandardForm | None:
        """The papers' problem (A, Eq. 11); None if the market has another piece."""
        return None if self.is_bounded else self.exact

    @property
    def exact(self) -> StandardForm | None:
        """The papers' problem, possibly with one largest guarantee; None for other markets."""
        others = self.rest or self.mu_squared or self.payments or np.any(self.losses)
        each = np.ndim(self.max_weight) or np.ndim(self.max_epsilon)
        if others or self.budgets or each or not self.gamma or (self.is_bounded and not self.mu):
            return None
        limits = {"max_weight": float(self.max_weight), "max_epsilon": float(self.max_epsilon)}
        numbers = {part.name: getattr(self, part.name) for part in fields(StandardForm)}
        return StandardForm(**numbers | limits)

    @property
    def epsilon_caps(self) -> Floats | None:
        """The largest guarantees, shape (m,), of a market of them, ``Spread(2)`` and ``Noise``."""
        paid = self.payment_terms or self.budgets or self.mu_squared or np.any(self.losses)
        limited = np.min(self.max_weight) < 1 or self.eta_range != (0, np.inf)
        able = np.all(np.isfinite(self.virtual_costs)) and np.max(self.max_epsilon) > 0
        if self.rest or paid or limited or self.sigma == 0 or not (self.is_bounded and able):
            return None
        return np.zeros(self.virtual_costs.size) + self.max_epsilon

    @property
    def is_budgeted(self) -> bool:
        """Whether only a budget limits the total privacy, and every seller has a cost."""
        others = self.rest or self.payment_terms or self.eta_range != (0, np.inf)
        free = np.any(self.virtual_costs == 0) or np.any(np.isfinite(self.max_epsilon))
        return bool(self.budgets and self._has_one_spread and not others and not free)

    @property
    def is_projectable(self) -> bool:
        """Whether projections solve it: one spread or squared spread, and a limit on privacy."""
        others = self.rest or self.payments or self.budgets
        return self._has_one_spread and not others and (self.gamma > 0 or self.is_bounded)

    @property
    def _has_one_spread(self) -> bool:
        return (self.mu > 0) != (self.mu_squared > 0)

    @property
    def eta_range(self) -> tuple[float, float]:
        return self.eta_low, self.eta_high

    @property
    def is_limited(self) -> bool:
        """Whether a limit other than a range of eta exists."""
        others = self.other_constraints or self.budgets or self.is_bounded
        return bool(others or np.min(self.max_weight) < 1)

    @property
    def is_bounded(self) -> bool:
        """Whether every guarantee is bounded."""
        return bool(np.all(np.isfinite(self.max_epsilon)))

    @property
    def payment_terms(self) -> tuple[tuple[float, PrivacyCost], ...]:
        """The payments, including linear ones."""
        linear = ((self.gamma, LinearCost()),) if self.gamma > 0 else ()
        return linear + self.payments

    @property
    def total_gamma(self) -> float:
        """The weight of all payments together."""
        return self.gamma + sum(weight for weight, _ in self.payments)

    @property
    def budget(self) -> float:
        """The smallest budget; inf without one."""
        return min((value_of(amount) for amount in self.budgets), default=np.inf)

    @property
    def active(self) -> NDArray[np.bool_]:
        """Sellers with a finite virtual cost and a bound above zero, shape (m,)."""
        active = np.minimum(self.max_weight, self.max_epsilon) > 0
        active = active & np.isfinite(self.virtual_costs)
        if not active.any():
            raise InfeasibleMarketError(
                "every seller has an infinite virtual cost or a bound of zero; let one sell"
            )
        return active

    def restricted(self) -> tuple[MarketNumbers, NDArray[np.bool_]]:
        """Restrict the numbers to the active sellers; return the mask, too."""
        active = self.active
        vectors: Any = {name: v for name, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **{name: v[active] for name, v in vectors.items()}), active

    def limit(self, eta: float) -> float | Floats:
        """Compute the bound on each weight at an eta."""
        return np.minimum(self.max_weight, self.max_epsilon / eta)

    @property
    def natural_eta(self) -> float:
        """An eta of the order of magnitude in the constraints, to scale 1/eta with."""
        m = self.virtual_costs.size
        ends = [end for end in self.eta_range if 0 < end < np.inf]
        if ends:
            return float(np.exp(np.mean(np.log(ends))))
        costs = self.virtual_costs
        paid = costs[np.isfinite(costs) & (costs > 0)]
        limits = [m * float(np.mean(self.max_epsilon))]
        if paid.size:
            limits.append(self.budget / float(paid.mean()))
        return min([limit for limit in limits if 0 < limit < np.inf], default=float(m))


@dataclass(frozen=True, eq=False)
class StandardForm(MarketNumbers):
    """The papers' problem (A, Eq. 11) in numbers.

    minimise ``mu*||a|| + sigma/eta + gamma*eta*psi'a`` over ``sum a = 1``,
    ``0 <= a <= max_weight``, ``eta*a <= max_epsilon`` and ``eta_low <= eta <= eta_high``.
    """

    max_weight: float = 1.0
    max_epsilon: float = np.inf

    def expected_cost(self, weights: Floats) -> float:
        """Return psi'a, the expected payment per unit of privacy bought."""
        return float(np.where(weights > 0, self.virtual_costs, 0.0) @ weights)  # not 0 * inf

    def objective(self, weights: Floats, eta: float) -> float:
        """Evaluate the objective at weights, shape (m,), and eta > 0."""
        norm = float(np.sqrt(weights @ weights))
        return self.mu * norm + self.sigma / eta + self.gamma * eta * self.expected_cost(weights)
