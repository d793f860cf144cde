"""A buyer's declared problem: sellers, an objective and constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from convexmarket.checks import (
    check_instance,
    check_nonnegative,
    check_positive,
    is_iterable,
    shown,
    warn_user,
)
from convexmarket.display import Shown
from convexmarket.errors import ParameterError, PriorFromReportsWarning
from convexmarket.sellers import Sellers
from convexmarket.terms.constraints import Cap, EtaRange
from convexmarket.terms.costs import LinearCost, PrivacyCost
from convexmarket.terms.form import MarketNumbers, StandardForm
from convexmarket.terms.objectives import Noise, Payments, Spread
from convexmarket.terms.pieces import Constraint, Objective, Piece, Term, check_convex
from convexmarket.terms.records import Written

__all__ = ["Incentives", "Market", "StandardForm", "as_objective"]

#: The conditions of a verdict "by construction": the origin of numbers cannot be checked.
_GIVEN = (
    "provided that no number given to the pieces or the prior (weights, losses, caps, shares, a "
    "sample, a user's own data) depends on the reports"
)
_BY_BUDGET = (
    "reports enter only through the budget, and next to such a spread and noise a more expensive "
    "seller sells no more"
)
_BY_PAYMENTS = (
    "reports enter only through the payments, so a more expensive seller sells no more at the "
    "global minimum (certified up to the gap)"
)
_ALONE = "; this covers each seller alone: two sellers may gain by joint misreports"
_DIFFERENT_COSTS = (
    "the payment terms have different privacy costs, so the cost of a seller's privacy is not "
    "defined"
)
_FROM_REPORTS = (
    "a prior is a sample that contains every report of its sellers: if it was computed from these "
    "reports, each report affects its own price and a misreport may pay; give a prior from other "
    "data, such as past reports"
)


class Incentives(str):
    """Whether truthful prices exist: a verdict, equal to its text, with a ``reason``.

    With truthful prices, a truthful report is the best reply of each seller alone.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> market.incentives, market.incentives.reason[:45]
    ('by construction', 'reports enter only through the payments, so a')
    """

    reason: str

    def __new__(cls, verdict: str, reason: str = "") -> Incentives:
        """Create a verdict with its reason."""
        text = super().__new__(cls, verdict)
        text.reason = reason
        return text


def as_objective(given: Objective | Term) -> Objective:
    """Convert a term to an objective; refuse anything else."""
    objective = 1.0 * given if isinstance(given, Term) else given
    check_instance("objective", objective, Objective, "a sum of terms such as mu * Spread()")
    return objective


def checked_constraints(
    constraints: Iterable[Constraint], sellers: Sellers
) -> tuple[Constraint, ...]:
    """Check the types of constraints, and that they fit the sellers."""
    if not is_iterable(constraints):
        raise ParameterError(
            f"constraints must be a list such as [Cap(5)], got {shown(constraints)}"
        )
    pieces = tuple(constraints)
    for piece in pieces:
        if not isinstance(piece, Constraint):
            raise ParameterError(f"{shown(piece)} is not a constraint such as Cap(5)")
        _check_fit(piece, sellers)
    return pieces


def _check_fit(piece: Piece, sellers: Sellers) -> None:
    """Refuse a piece for another number of sellers, or with pandas labels in another order."""
    piece.check(len(sellers))
    for name, labels in piece.column_labels.items():
        sellers.check_labels(f"{name} of {type(piece).__name__}", labels)


@dataclass(frozen=True, init=False, eq=False)
class Market(Written, Shown):
    """A buyer's problem: the choice of a guarantee for each seller.

    Parameters
    ----------
    sellers : Sellers
    objective : Objective or Term
        Minimised by the buyer, such as ``mu * Spread() + sigma * Noise() + gamma * Payments()``.
    constraints : iterable of Constraint
        For example ``[Cap(5)]``.

    Raises
    ------
    ParameterError
        If an argument has the wrong type or does not fit the number of sellers, or the weight of
        payments is zero.

    Warns
    -----
    PriorFromReportsWarning
        If a prior is a sample that contains the reports of its sellers.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> cm.Market(sellers, cm.Spread() + cm.Noise() + 0.5 * cm.Payments())
    Market(2 sellers, 1 * Spread() + 1 * Noise() + 0.5 * Payments())
    """

    sellers: Sellers
    objective: Objective
    constraints: tuple[Constraint, ...]

    def __init__(
        self, sellers: Sellers, objective: Objective | Term, constraints: Iterable[Constraint] = ()
    ) -> None:
        if not isinstance(sellers, Sellers):  # reports are private: only their type is named
            raise ParameterError(f"sellers must be a Sellers object, got {type(sellers).__name__}")
        objective = as_objective(objective)
        constraints = checked_constraints(constraints, sellers)
        for part in objective.parts:
            _check_fit(part.term, sellers)
            if part.term.privacy_cost is not None and part.is_idle:
                raise ParameterError(
                    "gamma, the weight of Payments, is 0: privacy would be free and the optimal "
                    "amount infinite; give gamma > 0"
                )
        costs = sellers.cost_parameter
        if sellers.parts is None:  # in parts, only pieces of this package are supported
            pieces = (*(part.term for part in objective.parts), *constraints)
            check_convex(pieces, sellers.virtual_costs if costs is None else costs)
        if sellers.prior_is_from_reports:
            warn_user(_FROM_REPORTS, PriorFromReportsWarning)
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
        """Declare the papers' problem (A, Eq. 11): spread, noise, payments and optional limits.

        Parameters
        ----------
        sellers : Sellers
        mu, sigma : float
            Weights of ``Spread()`` and ``Noise()``, >= 0.
        gamma : float
            Weight of ``Payments()``, > 0.
        cap : float, optional
            Largest weight of a seller, as a multiple of the average, as in :class:`Cap`.
        eta_range : (float, float), optional
            Smallest and largest total privacy, as in :class:`EtaRange`.

        Raises
        ------
        ParameterError
            If a number is out of its range, or eta_range is not a pair.

        Examples
        --------
        >>> import convexmarket as cm
        >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
        >>> Market.standard(sellers, mu=2, sigma=1, gamma=0.5, cap=1.5)
        Market(2 sellers, 2 * Spread() + 1 * Noise() + 0.5 * Payments(), [Cap(1.5)])
        """
        mu, sigma = check_nonnegative("mu", mu), check_nonnegative("sigma", sigma)
        gamma = check_positive("gamma", gamma)
        constraints: list[Constraint] = [] if cap is None else [Cap(cap)]
        if eta_range is not None:
            if not (isinstance(eta_range, Sequence) and len(eta_range) == 2):
                raise ParameterError(f"eta_range must be a pair (low, high), got {eta_range!r}")
            constraints.append(EtaRange(*eta_range))
        return cls(sellers, mu * Spread() + sigma * Noise() + gamma * Payments(), constraints)

    @property
    def form(self) -> MarketNumbers:
        """The market in numbers, computed again on each access where a number is a parameter."""
        if (form := vars(self).get("_form")) is None:
            changing = self.sellers.cost_parameter is not None
            form = MarketNumbers(self.sellers.virtual_costs, parametric=changing)
            form = form.plus(self.objective.parts, self.constraints)
            if not form.parametric:
                vars(self)["_form"] = form
        return form

    @property
    def standard_form(self) -> StandardForm | None:
        """The market as A's Eq. (11) in numbers; None if it has another piece."""
        return self.form.standard

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the objective, without their weights."""
        return tuple(part.term for part in self.objective.parts)

    @property
    def privacy_cost(self) -> PrivacyCost:
        """The privacy cost of the payments; linear in a market without payments.

        Raises
        ------
        ParameterError
            If two payment terms have different privacy costs.
        """
        if len(self._costs) > 1:
            raise ParameterError(f"{_DIFFERENT_COSTS}; use one")
        return next(iter(self._costs), LinearCost())

    @property
    def _costs(self) -> list[PrivacyCost]:
        """The distinct privacy costs."""
        given = [term.privacy_cost for term in self.terms if term.privacy_cost is not None]
        return [cost for place, cost in enumerate(given) if cost not in given[:place]]

    @cached_property
    def incentives(self) -> Incentives:
        """Whether guarantees decrease with the seller's report, so that truthful prices exist.

        - "by construction": reports enter only as ``+ psi(c_i) * u(eps_i)`` in the objective, or
          only through a budget next to one spread and noise (docs/theory.md, section 9.4).
        - "not guaranteed": a budget next to other pieces; in examples a misreport pays.
        - "unknown": a user-defined piece reads the virtual costs, or a prior may be computed from
          the reports.

        Joint misreports, and reports in other numbers, as in ``Losses(-20 * reports)``, are not
        covered; :func:`~convexmarket.audit_incentives` tests them.
        """
        pieces = (*self.terms, *self.constraints)
        readers = {piece.reading(len(self.sellers)): piece for piece in reversed(pieces)}
        if "budget" in readers and not self._budget_is_harmless:
            return Incentives(
                "not guaranteed",
                "the budget makes the reports part of a constraint: a higher report reduces what "
                "the buyer can afford, and may raise the seller's guarantee; use calibrate_gamma "
                "to meet a budget next to other terms or constraints truthfully",
            )
        if "unknown" in readers:
            return Incentives(
                "unknown",
                f"{shown(readers['unknown'])} reads the virtual costs, and the effect of a report "
                "on the seller's guarantee is not known; audit_incentives tests it",
            )
        if len(self._costs) > 1:
            return Incentives("unknown", _DIFFERENT_COSTS)
        if not readers.keys() & {"budget", "price"}:
            no_effect = "reports do not enter the problem, so no report changes it"
            return Incentives("by construction", f"{no_effect}, {_GIVEN}")
        if self.sellers.prior_is_from_reports:
            return Incentives("unknown", _FROM_REPORTS)
        where = _BY_BUDGET if "budget" in readers else _BY_PAYMENTS
        return Incentives("by construction", f"{where}, {_GIVEN}{_ALONE}")

    @property
    def _budget_is_harmless(self) -> bool:
        """Whether the pieces next to a budget are a separable spread, or one norm, and noise."""
        parts = self.objective.without_noise.parts
        terms = [part.term for part in parts if not part.is_idle]
        limits = [piece for piece in self.constraints if piece.reports != "budget"]
        separable = all(piece.separable for piece in (*terms, *limits))
        return bool(terms) and (separable or (len(terms) == 1 and terms[0].is_norm and not limits))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per seller: :meth:`Sellers.to_frame`."""
        return self.sellers.to_frame()

    @property
    def formula(self) -> str:
        """The optimisation problem, in one line."""
        where = ["eps = eta a", "sum_i a_i = 1", "a_i >= 0", *map(str, self.constraints)]
        return f"min_{{a, eta}} {self.objective.formula} subject to {', '.join(where)}"

    def __repr__(self) -> str:
        parts = [f"{len(self.sellers)} sellers", repr(self.objective)]
        if self.constraints:
            parts.append(repr(list(self.constraints)))
        return f"Market({', '.join(parts)})"
