"""The buyer's declared problem, as data: sellers, an objective and constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from convexmarket.arguments import check_nonnegative, check_positive, is_iterable, shown
from convexmarket.errors import ParameterError
from convexmarket.sellers import Sellers
from convexmarket.terms import (
    Budget,
    Cap,
    Constraint,
    EtaRange,
    LinearCost,
    NegativeEntropy,
    Noise,
    Objective,
    Payments,
    PrivacyCost,
    Spread,
    SquaredSpread,
    Term,
)
from convexmarket.terms.checks import check_convex, reads_reports

__all__ = ["Incentives", "Market", "StandardForm"]

#: What every verdict "by construction" takes for granted: a number does not say where it is from.
_GIVEN = (
    "provided that no number given to the pieces (weights, losses, caps, shares, a user's own "
    "data) depends on the reports"
)


@dataclass(frozen=True)
class StandardForm:
    """The papers' problem (A, Eq. 11) in numbers.

    minimise ``mu*||a|| + sigma/eta + gamma*eta*psi'a`` over ``sum a = 1``,
    ``0 <= a <= max_weight`` and ``eta_low <= eta <= eta_high``.
    """

    virtual_costs: NDArray[np.float64]
    mu: float
    sigma: float
    gamma: float
    max_weight: float = 1.0
    eta_low: float = 0.0
    eta_high: float = np.inf

    def expected_cost(self, weights: NDArray[np.float64]) -> float:
        """Return psi'a, the expected payment per unit of privacy bought."""
        with np.errstate(invalid="ignore"):
            cost = float(self.virtual_costs @ weights)
        if np.isnan(cost):  # 0 * inf: a seller at psi = +inf, who is not bought from
            used = weights > 0
            cost = float(self.virtual_costs[used] @ weights[used])
        return cost

    def objective(self, weights: NDArray[np.float64], eta: float) -> float:
        """Evaluate the objective at weights, shape (m,), and eta > 0."""
        norm = float(np.sqrt(weights @ weights))
        return self.mu * norm + self.sigma / eta + self.gamma * eta * self.expected_cost(weights)


class Incentives(str):
    """Whether truthful prices exist: a verdict, which it equals as a text, with its reason.

    Attributes
    ----------
    reason : str
        One sentence.
    """

    __slots__ = ("reason",)
    reason: str

    def __new__(cls, verdict: str, reason: str) -> Incentives:
        """Return the verdict as a text that carries its reason."""
        text = super().__new__(cls, verdict)
        text.reason = reason
        return text

    def __reduce__(self) -> tuple[type[Incentives], tuple[str, str]]:
        """Keep the reason in copies and pickles."""
        return Incentives, (str(self), self.reason)


@dataclass(frozen=True, init=False, eq=False)
class Market:
    """A buyer's problem: whom to buy how much privacy from.

    Parameters
    ----------
    sellers : Sellers
    objective : Objective or Term
        To be minimised, for example ``mu * Spread() + sigma * Noise() + gamma * Payments()``.
    constraints : iterable of Constraint
        For example ``[Cap(5)]``.

    Raises
    ------
    ParameterError
        If an argument is not of its kind or does not fit the number of sellers, or payments are
        weighted with zero.
    CurvatureError
        If a piece is not convex; the message names it and the curvature that CVXPY found.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 1.0 * cm.Spread() + 1.0 * cm.Noise() + 0.5 * cm.Payments())
    >>> market
    Market(2 sellers, 1 * Spread() + 1 * Noise() + 0.5 * Payments())
    """

    sellers: Sellers
    objective: Objective
    constraints: tuple[Constraint, ...]

    def __init__(
        self,
        sellers: Sellers,
        objective: Objective | Term,
        constraints: Iterable[Constraint] = (),
    ) -> None:
        if not isinstance(sellers, Sellers):
            raise ParameterError(f"sellers must be a Sellers object, got {type(sellers).__name__}")
        if isinstance(objective, Term):
            objective = 1.0 * objective
        if not isinstance(objective, Objective):
            raise ParameterError(
                f"objective must be a sum of terms such as mu * Spread(), got {shown(objective)}"
            )
        if not is_iterable(constraints):
            raise ParameterError(
                f"constraints must be a list such as [Cap(5)], got {shown(constraints)}"
            )
        constraints = tuple(constraints)
        for constraint in constraints:
            if not isinstance(constraint, Constraint):
                raise ParameterError(f"{shown(constraint)} is not a constraint such as Cap(5)")
            constraint.check(len(sellers))
        for part in objective.parts:
            part.term.check(len(sellers))
            if isinstance(part.term, Payments) and part.weight == 0:
                raise ParameterError(
                    "gamma, the weight of Payments, is 0: privacy would be free and the buyer "
                    "would want infinitely much; give gamma > 0"
                )
        check_convex(objective, constraints, sellers.virtual_costs)
        object.__setattr__(self, "sellers", sellers)
        object.__setattr__(self, "objective", objective)
        object.__setattr__(self, "constraints", constraints)

    @classmethod
    def standard(
        cls,
        sellers: Sellers,
        *,
        mu: float,
        sigma: float,
        gamma: float,
        cap: float | None = None,
        eta_range: tuple[float, float] | None = None,
    ) -> Market:
        """Declare the papers' problem (A, Eq. 11): spread, noise, payments and perhaps a cap."""
        mu, sigma = check_nonnegative("mu", mu), check_nonnegative("sigma", sigma)
        gamma = check_positive("gamma", gamma)
        constraints: list[Constraint] = []
        if cap is not None:
            constraints.append(Cap(cap))
        if eta_range is not None:
            if not (isinstance(eta_range, Sequence) and len(eta_range) == 2):
                raise ParameterError(f"eta_range is {eta_range!r}; give a pair (low, high)")
            constraints.append(EtaRange(*eta_range))
        return cls(sellers, mu * Spread() + sigma * Noise() + gamma * Payments(), constraints)

    @cached_property
    def standard_form(self) -> StandardForm | None:
        """The market as A's Eq. (11) in numbers; None where it has another piece."""
        known_terms = all(
            (type(term) is Spread and term.is_euclidean)
            or type(term) is Noise
            or (type(term) is Payments and term.is_linear)
            for term in self.terms
        )
        known_constraints = all(
            (type(item) is Cap and np.ndim(item.k) == 0) or type(item) is EtaRange
            for item in self.constraints
        )
        gamma = self.objective.weight_of(Payments)
        if not (known_terms and known_constraints and gamma > 0):
            return None
        caps = [
            float(item.k) / len(self.sellers) for item in self.constraints if isinstance(item, Cap)
        ]
        ranges = [item for item in self.constraints if isinstance(item, EtaRange)]
        return StandardForm(
            virtual_costs=self.sellers.virtual_costs,
            mu=self.objective.weight_of(Spread),
            sigma=self.objective.weight_of(Noise),
            gamma=gamma,
            max_weight=min([1.0, *caps]),
            eta_low=max([0.0, *(item.low for item in ranges)]),
            eta_high=min([np.inf, *(item.high for item in ranges)]),
        )

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the objective, without their weights."""
        return tuple(part.term for part in self.objective.parts)

    @property
    def privacy_cost(self) -> PrivacyCost:
        """What losing privacy costs the sellers: that of the payments, linear where there are none.

        Raises
        ------
        ParameterError
            If two payment terms disagree about it.
        """
        costs = [term.privacy_cost for term in self.terms if isinstance(term, Payments)]
        if any(cost != costs[0] for cost in costs):
            raise ParameterError(
                "the payment terms have different privacy costs, so that what a seller's privacy "
                "costs is not defined; use one"
            )
        return costs[0] if costs else LinearCost()

    @cached_property
    def incentives(self) -> Incentives:
        """Whether each seller sells less the more it asks for, so that truthful prices exist.

        "by construction": reports enter only as ``+ psi(c_i) * u(eps_i)`` in the objective, whose
        global minimum then has eps_i nonincreasing in c_i; or only through a budget beside one
        spread and noise (docs/theory.md, section 9.4, has both proofs). "not guaranteed": a budget
        beside anything else, where examples are known of a seller that gains by lying. "unknown":
        a user's own piece reads them. Numbers computed from the reports, as in
        ``Losses(-20 * reports)``, are not seen here. The audit settles it for given reports, with
        ``build`` also where there are such numbers.
        """
        if any(type(item) is Budget for item in self.constraints):
            return self._incentives_under_a_budget()
        pieces: tuple[Term | Constraint, ...] = (*self.terms, *self.constraints)
        reading = [piece for piece in pieces if reads_reports(piece, len(self.sellers))]
        if reading:
            return Incentives(
                "unknown",
                f"{shown(reading[0])} reads the virtual costs, and what that does to a seller's "
                "guarantee as a function of its report is not known; audit_incentives tries it",
            )
        payments = [term for term in self.terms if isinstance(term, Payments)]
        if any(term.privacy_cost != payments[0].privacy_cost for term in payments):
            return Incentives(
                "unknown",
                "the payment terms have different privacy costs, so that what a "
                "seller's privacy costs is not defined",
            )
        if not payments:
            return Incentives(
                "by construction",
                f"reports do not enter the problem, so no report changes it, {_GIVEN}",
            )
        return Incentives(
            "by construction",
            "reports enter only through the payments, so a dearer seller sells no more at the "
            f"global minimum (certified up to the gap), {_GIVEN}",
        )

    def _incentives_under_a_budget(self) -> Incentives:
        """Return the verdict on a market whose budget reads the reports."""
        terms = [part.term for part in self.objective.parts if part.weight > 0]
        spreads = [term for term in terms if type(term) is not Noise]
        limits = [item for item in self.constraints if type(item) is not Budget]
        separable = all(type(term) in (SquaredSpread, NegativeEntropy) for term in spreads)
        norms = [t.p for t in spreads if type(t) is Spread and t.reference is None]
        if (separable and spreads and all(type(item) is Cap for item in limits)) or (
            len(spreads) == len(norms) == 1 and norms[0] < np.inf and not limits
        ):
            return Incentives(
                "by construction",
                "reports enter only through the budget, and beside such a spread and noise alone a "
                f"dearer seller sells no more, {_GIVEN}",
            )
        return Incentives(
            "not guaranteed",
            "the budget puts the reports into a constraint: a seller that asks for more makes the "
            "buyer poorer, who may then buy more of it; the truthful way to meet a budget beside "
            "other terms or constraints is calibrate_gamma",
        )

    def __repr__(self) -> str:
        parts = [f"{len(self.sellers)} sellers", repr(self.objective)]
        if self.constraints:
            parts.append(repr(list(self.constraints)))
        return f"Market({', '.join(parts)})"
