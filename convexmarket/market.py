"""A buyer's problem, declared by sellers, an objective and constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

import convexmarket.checks as checks
from convexmarket.display import Shown
from convexmarket.errors import ParameterError, PriorFromReportsWarning
from convexmarket.sellers import Sellers
from convexmarket.terms import pieces
from convexmarket.terms.constraints import Cap, EtaRange
from convexmarket.terms.objectives import LinearCost, Noise, Payments, PrivacyCost, Spread
from convexmarket.terms.pieces import Constraint, MarketNumbers, Objective, StandardForm, Term
from convexmarket.terms.records import Written

__all__ = ["Incentives", "Market", "StandardForm", "as_objective"]

_ONLY_BY = {
    "budget": "the budget, and with these terms and constraints a more expensive seller sells no "
    "more",
    "price": "the payments, so a more expensive seller sells no more at the global minimum "
    "(certified up to the gap)",
}
_NO_EFFECT = "no term or constraint depends on the reports"
_GIVEN = (
    ", provided that no number given to the pieces or the prior (weights, losses, caps, shares, a "
    "sample, a user's own data) depends on the reports"
)
_ALONE = "; this covers misreports of single sellers: two sellers can gain by joint misreports"
_BUDGET = (
    "a budget makes the reports part of a constraint, so a higher report can raise the seller's "
    "own guarantee; for truthful prices together with other terms or constraints, replace the "
    "budget by the gamma of calibrate_gamma"
)
_UNKNOWN = (
    "{} reads the virtual costs, and the effect of a report on the seller's guarantee is not "
    "known; audit_incentives tests it"
)
_DIFFERENT_COSTS = "the payment terms have different privacy costs"
_FROM_REPORTS = (
    "a prior is a sample that contains every report of its sellers: if it was computed from these "
    "reports, each report affects its own price and a misreport can be profitable; give a prior "
    "from other data, such as past reports"
)


class Incentives(str):
    """Verdict on the existence of truthful prices: a string with a ``reason``.

    Examples
    --------
    >>> import convexmarket as cm
    >>> market = cm.Market(cm.Sellers(virtual_costs=[0.1, 0.2]), cm.Spread() + cm.Payments())
    >>> market.incentives, market.incentives.reason[:45]
    ('by construction', 'reports enter only through the payments, so a')
    """

    reason: str = ""


def as_objective(given: Objective | Term) -> Objective:
    """Convert a term to an objective, or raise an error for another type."""
    objective = 1.0 * given if isinstance(given, Term) else given
    checks.check_instance("objective", objective, Objective, "a sum of terms such as mu * Spread()")
    return objective


def checked_constraints(given: Iterable[Constraint], sellers: Sellers) -> tuple[Constraint, ...]:
    """Check the types of constraints, and their compatibility with the sellers."""
    checks.check_list("constraints", given, "constraints such as Cap(5)")
    constraints = tuple(given)
    for piece in constraints:
        checks.check_instance("a constraint", piece, Constraint, "a piece such as Cap(5)")
    _check_fit(constraints, sellers)
    return constraints


def _check_fit(declared: Iterable[Constraint | Term], sellers: Sellers) -> None:
    """Check that pieces match the number of sellers and the order of pandas labels."""
    for piece in declared:
        piece.check(len(sellers))
        for name, labels in piece.column_labels.items():
            sellers.check_labels(f"{name} of {type(piece).__name__}", labels)


@dataclass(frozen=True, init=False, eq=False)
class Market(Written, Shown):
    """A buyer's problem of choosing a guarantee for each seller.

    Parameters
    ----------
    sellers : Sellers
    objective : Objective or Term
        Objective to be minimised, such as ``mu * Spread() + sigma * Noise() + gamma * Payments()``.
    constraints : iterable of Constraint, such as ``[Cap(5)]``

    Raises
    ------
    ParameterError, CurvatureError, DataError
        If a piece does not fit the sellers or is not convex, or the weight of payments is zero.

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
    _costs: list[PrivacyCost]

    def __init__(
        self, sellers: Sellers, objective: Objective | Term, constraints: Iterable[Constraint] = ()
    ) -> None:
        if not isinstance(sellers, Sellers):  # reports are private, so show only their type
            raise ParameterError(f"sellers must be a Sellers object, got {type(sellers).__name__}")
        objective, constraints = as_objective(objective), checked_constraints(constraints, sellers)
        vars(self).update(sellers=sellers, objective=objective, constraints=constraints)
        each_cost = dict.fromkeys(term.privacy_cost for term in self.terms)
        vars(self)["_costs"] = [cost for cost in each_cost if cost is not None]
        _check_fit(self.terms, sellers)
        if any(part.is_idle and part.term.privacy_cost for part in objective.parts):
            raise ParameterError(
                "gamma, the weight of Payments, must be > 0, or privacy would be free, got 0"
            )
        if sellers.parts is None:  # sellers in parts support only pieces of this package
            costs = sellers.cost_parameter or sellers.virtual_costs
            pieces.check_convex((*self.terms, *constraints), costs)
        if sellers.prior_is_from_reports:
            checks.warn_user(_FROM_REPORTS, PriorFromReportsWarning)

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
        """Declare the papers' problem (A, Eq. 11) of spread, noise, payments and optional limits.

        Parameters
        ----------
        sellers : Sellers
        mu, sigma, gamma : float
            Weights of ``Spread()`` and ``Noise()``, >= 0, and of ``Payments()``, > 0.
        cap, eta_range : float and (float, float), optional
            See :class:`Cap` and :class:`EtaRange`.

        Raises
        ------
        ParameterError
        """
        objective = checks.check_nonnegative("mu", mu) * Spread()
        objective += checks.check_nonnegative("sigma", sigma) * Noise()
        objective += checks.check_positive("gamma", gamma) * Payments()
        constraints: list[Constraint] = [] if cap is None else [Cap(cap)]
        if eta_range is not None:
            if not (isinstance(eta_range, Sequence) and len(eta_range) == 2):
                raise ParameterError(f"eta_range must be a pair (low, high), got {eta_range!r}")
            constraints.append(EtaRange(*eta_range))
        return cls(sellers, objective, constraints)

    @property
    def form(self) -> MarketNumbers:
        """The numeric form of the market, computed on each access if it depends on parameters."""
        if (form := vars(self).get("_form")) is None:
            psi, changing = self.sellers.virtual_costs, self.sellers.cost_parameter is not None
            numbers = MarketNumbers(psi, parametric=changing)
            form = numbers.plus(self.objective.parts, self.constraints)
            if not form.parametric:
                vars(self)["_form"] = form
        return form

    @property
    def standard_form(self) -> StandardForm | None:
        """The numeric form of A's Eq. (11), or None if the market has other pieces."""
        return self.form.standard

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the objective."""
        return tuple(part.term for part in self.objective.parts)

    @cached_property
    def privacy_cost(self) -> PrivacyCost:
        """The unique privacy cost of the payments, or a linear cost without payments."""
        if len(self._costs) > 1:
            raise ParameterError(f"{_DIFFERENT_COSTS}; use one")
        return self._costs[0] if self._costs else LinearCost()

    @cached_property
    def incentives(self) -> Incentives:
        """Whether a seller's guarantee decreases with its report, so that truthful prices exist.

        The verdict is "by construction", "not guaranteed" or "unknown" (docs/theory.md, 9.4). It
        does not cover joint misreports of several sellers, or numbers computed from reports, such
        as ``Losses(-20 * reports)``.
        """
        declared, m = (*self.terms, *self.constraints), len(self.sellers)
        readers = {piece.reading(m): piece for piece in reversed(declared)}
        way, verdict = next((way for way in _ONLY_BY if way in readers), ""), "unknown"
        if "budget" in readers and not self._budget_is_harmless:
            verdict, reason = "not guaranteed", _BUDGET
        elif "unknown" in readers:
            reason = _UNKNOWN.format(checks.shown(readers["unknown"]))
        elif len(self._costs) > 1:
            reason = _DIFFERENT_COSTS
        elif way and self.sellers.prior_is_from_reports:
            reason = _FROM_REPORTS
        else:
            only = f"reports enter only through {_ONLY_BY[way]}" if way else _NO_EFFECT
            verdict, reason = "by construction", only + _GIVEN + _ALONE * bool(way)
        incentives = Incentives(verdict)
        incentives.reason = reason
        return incentives

    @property
    def _budget_is_harmless(self) -> bool:
        """Whether all pieces except budget and noise are separable, or consist of one norm."""
        terms = [p.term for p in self.objective.without_noise.parts if not p.is_idle]
        limits = [piece for piece in self.constraints if piece.reports != "budget"]
        separable = all(piece.separable for piece in (*terms, *limits))
        return bool(terms) and (separable or (len(terms) == 1 and terms[0].is_norm and not limits))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per seller; see :meth:`Sellers.to_frame`."""
        return self.sellers.to_frame()

    @property
    def formula(self) -> str:
        """The optimisation problem in one line."""
        where = ["eps = eta a", "sum_i a_i = 1", "a_i >= 0", *map(str, self.constraints)]
        return f"min_{{a, eta}} {self.objective.formula} subject to {', '.join(where)}"

    def __repr__(self) -> str:
        limits = [repr(list(self.constraints))] if self.constraints else []
        parts = f"{len(self.sellers)} sellers", repr(self.objective), *limits
        return f"Market({', '.join(parts)})"
