"""The buyer's declared problem, as data: sellers, an objective and constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from convexmarket.arguments import check_nonnegative, check_positive, is_iterable, shown
from convexmarket.errors import ParameterError
from convexmarket.notebook import Shown
from convexmarket.sellers import Sellers
from convexmarket.terms import (
    Cap,
    Constraint,
    EtaRange,
    Form,
    LinearCost,
    Noise,
    Objective,
    Payments,
    PrivacyCost,
    Spread,
    Term,
)
from convexmarket.terms.base import Number, Parameter, Piece
from convexmarket.terms.checks import check_convex
from convexmarket.terms.form import StandardForm
from convexmarket.terms.formula import Written

__all__ = ["Incentives", "Market", "StandardForm", "as_objective", "check_columns"]

#: What every verdict "by construction" takes for granted: a number does not say where it is from.
_GIVEN = (
    "provided that no number given to the pieces (weights, losses, caps, shares, a user's own "
    "data) depends on the reports"
)
#: What such a verdict is about.
_ALONE = "; that is about each seller alone: two who lie together may gain"
_DIFFERENT_COSTS = (
    "the payment terms have different privacy costs, so that what a seller's privacy costs is not "
    "defined"
)


class Incentives(str):
    """Whether truthful prices exist: a verdict, which it equals as a text, with its reason.

    With truthful prices truth is the best reply of each seller alone.

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


def as_objective(given: Objective | Term) -> Objective:
    """Return a term as the objective that it is, and refuse what is neither."""
    objective = 1.0 * given if isinstance(given, Term) else given
    if not isinstance(objective, Objective):
        raise ParameterError(
            f"objective must be a sum of terms such as mu * Spread(), got {shown(given)}"
        )
    return objective


def check_columns(piece: Piece, sellers: Sellers) -> None:
    """Refuse a piece that was made of a column about the sellers in another order."""
    for name, labels in piece.column_labels.items():
        sellers.check_labels(f"{name} of {type(piece).__name__}", labels)


def checked_constraints(
    constraints: Iterable[Constraint], sellers: Sellers
) -> tuple[Constraint, ...]:
    """Return what was given as constraints, after checking that it is, and fits the sellers."""
    if not is_iterable(constraints):
        raise ParameterError(
            f"constraints must be a list such as [Cap(5)], got {shown(constraints)}"
        )
    pieces = tuple(constraints)
    for constraint in pieces:
        if not isinstance(constraint, Constraint):
            raise ParameterError(f"{shown(constraint)} is not a constraint such as Cap(5)")
        constraint.check(len(sellers))
        check_columns(constraint, sellers)
    return pieces


@dataclass(frozen=True, init=False, eq=False)
class Market(Written, Shown):
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
    DataError
        If a piece was made of a pandas column whose labels are not those of the sellers.
    CurvatureError
        If a piece is not convex; the message names it and the curvature that CVXPY found.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 1.0 * cm.Spread() + 1.0 * cm.Noise() + 0.5 * cm.Payments())
    >>> market
    Market(2 sellers, 1 * Spread() + 1 * Noise() + 0.5 * Payments())
    >>> print(market.objective)
    ||a||_2 + 1/eta + 0.5 sum_i psi_i eps_i
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
        objective = as_objective(objective)
        constraints = checked_constraints(constraints, sellers)
        for part in objective.parts:
            part.term.check(len(sellers))
            check_columns(part.term, sellers)
            if part.term.privacy_cost is not None and part.is_idle:
                raise ParameterError(
                    "gamma, the weight of Payments, is 0: privacy would be free and the buyer "
                    "would want infinitely much; give gamma > 0"
                )
        costs = sellers.cost_parameter
        if sellers.parts is None:  # in parts, only pieces of this package are supported
            check_convex(objective, constraints, sellers.virtual_costs if costs is None else costs)
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
        """Declare the papers' problem (A, Eq. 11): spread, noise, payments and perhaps a cap.

        Raises
        ------
        ParameterError
            If mu or sigma is negative, gamma is not positive, or eta_range is not a pair.
        """
        mu, sigma = check_nonnegative("mu", mu), check_nonnegative("sigma", sigma)
        gamma = check_positive("gamma", gamma)
        constraints: list[Constraint] = []
        if cap is not None:
            constraints.append(Cap(cap))
        if eta_range is not None:
            if not (isinstance(eta_range, Sequence) and len(eta_range) == 2):
                raise ParameterError(f"eta_range must be a pair (low, high), got {eta_range!r}")
            constraints.append(EtaRange(*eta_range))
        return cls(sellers, mu * Spread() + sigma * Noise() + gamma * Payments(), constraints)

    @property
    def form(self) -> Form:
        """What the market amounts to in numbers; read anew where a weight is a parameter."""
        form = self._form
        return self._read_form() if form.parametric else form

    @cached_property
    def _form(self) -> Form:
        return self._read_form()

    def _read_form(self) -> Form:
        changing = self.sellers.cost_parameter is not None
        form = Form(self.sellers.virtual_costs, parametric=changing)
        return form.plus(self.objective.parts, self.constraints)

    @property
    def standard_form(self) -> StandardForm | None:
        """The market as A's Eq. (11) in numbers; None where it has another piece."""
        return self.form.standard

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
        costs = [term.privacy_cost for term in self.terms if term.privacy_cost is not None]
        if any(cost != costs[0] for cost in costs):
            raise ParameterError(f"{_DIFFERENT_COSTS}; use one")
        return costs[0] if costs else LinearCost()

    def with_budget(self, amount: Number) -> Market:
        """Return the market with another amount in its budgets, a number or a parameter."""
        changed = [piece.with_budget(amount) for piece in self.constraints]
        return Market(self.sellers, self.objective, changed)

    def with_parameter(self, parameter: Parameter, own: Parameter) -> Market:
        """Return the market with another parameter in place of one, where its pieces show it."""
        parts = tuple(part.with_parameter(parameter, own) for part in self.objective.parts)
        constraints = [piece.with_parameter(parameter, own) for piece in self.constraints]
        return Market(self.sellers.with_parameter(parameter, own), Objective(parts), constraints)

    @cached_property
    def incentives(self) -> Incentives:
        """Whether each seller sells less the more it asks for, so that truthful prices exist.

        With these truth is the best reply of each seller alone; two who lie together may gain, and
        ``audit_incentives(market, coalitions=100)`` says how much.

        "by construction": reports enter only as ``+ psi(c_i) * u(eps_i)`` in the objective, whose
        global minimum then has eps_i nonincreasing in c_i; or only through a budget beside one
        spread and noise (docs/theory.md, section 9.4, has both proofs). "not guaranteed": a budget
        beside anything else, where examples are known of a seller that gains by lying. "unknown":
        a user's own piece reads them. Numbers computed from the reports, as in
        ``Losses(-20 * reports)``, are not seen here. The audit settles it for given reports, with
        ``build`` also where there are such numbers.
        """
        m, pieces = len(self.sellers), (*self.terms, *self.constraints)
        readers = {piece.reading(m): piece for piece in reversed(pieces)}  # the first of a kind
        if "budget" in readers:
            return self._incentives_under_a_budget()
        if "unknown" in readers:
            return Incentives(
                "unknown",
                f"{shown(readers['unknown'])} reads the virtual costs, and what that does to a "
                "seller's guarantee as a function of its report is not known; audit_incentives "
                "tries it",
            )
        try:
            _ = self.privacy_cost
        except ParameterError:
            return Incentives("unknown", _DIFFERENT_COSTS)
        if "price" not in readers:
            return Incentives(
                "by construction",
                f"reports do not enter the problem, so no report changes it, {_GIVEN}",
            )
        return Incentives(
            "by construction",
            "reports enter only through the payments, so a dearer seller sells no more at the "
            f"global minimum (certified up to the gap), {_GIVEN}{_ALONE}",
        )

    def _incentives_under_a_budget(self) -> Incentives:
        """Return the verdict on a market whose budget reads the reports."""
        objective = self.objective.without_noise
        terms = [part.term for part in objective.parts if not part.is_idle]
        limits = [piece for piece in self.constraints if piece.reports != "budget"]
        separable = all(piece.separable for piece in (*terms, *limits))
        norm = len(terms) == 1 and terms[0].is_norm and not limits
        if terms and (separable or norm):
            return Incentives(
                "by construction",
                "reports enter only through the budget, and beside such a spread and noise alone a "
                f"dearer seller sells no more, {_GIVEN}{_ALONE}",
            )
        return Incentives(
            "not guaranteed",
            "the budget puts the reports into a constraint: a seller that asks for more makes the "
            "buyer poorer, who may then buy more of it; the truthful way to meet a budget beside "
            "other terms or constraints is calibrate_gamma",
        )

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
