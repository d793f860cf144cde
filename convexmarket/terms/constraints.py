"""Constraints on weights, guarantees, payments, shares of groups and eta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.checks import as_float, check_positive
from convexmarket.errors import ParameterError
from convexmarket.terms.base import Constraint, Number, Quantities, value_of
from convexmarket.terms.form import Form
from convexmarket.terms.formula import named
from convexmarket.terms.values import ByValue, brief, checked_groups, one_or_each

__all__ = ["Budget", "Cap", "EtaRange", "GivenEpsilon", "GroupShare", "MaxEpsilon"]

Floats = NDArray[np.float64]


_TOO_SMALL = (
    "m weights of at most cap/m can only sum to one if cap >= 1; give a number >= 1, or leave the "
    "cap out"
)


@dataclass(frozen=True, eq=False, repr=False)
class Cap(ByValue, Constraint):
    """The largest weight is at most ``k`` times the average: a_i <= k/m (A, Eq. 11).

    Parameters
    ----------
    k : float, array_like of shape (m,), or cvxpy.Parameter
        At least 1 for all sellers (``k = 1`` makes the weights equal), or one number >= 0 for each
        seller, at least 1 on average.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.Payments()
    >>> market = cm.Market(sellers, objective, [cm.Cap(1.2)])
    >>> cm.allocate(market).weights.round(3)
    array([0.4, 0.4, 0.2])
    """

    separable = True
    formula_template = "a_i <= {k}/m"
    each_seller = ("k", "cap")
    k: float | Floats

    def __post_init__(self) -> None:
        if isinstance(self.k, Real) and not self.k >= 1:
            raise ParameterError(f"cap is {self.k!r}, but {_TOO_SMALL}")
        k = one_or_each("cap", self.k, "5", parameter=True)
        if not isinstance(k, cp.Parameter) and np.mean(k) < 1:
            raise ParameterError(f"the mean of cap is {np.mean(k):g}, but {_TOO_SMALL}")
        object.__setattr__(self, "k", k)

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return m*a_i <= k, whose entries are of order one."""
        m = quantities.weights.size
        return [m * quantities.weights <= self.k]

    def numbers(self, form: Form) -> Form:
        """Lower the largest weight."""
        own = value_of(self.k) / form.virtual_costs.size
        return replace(form, max_weight=np.minimum(form.max_weight, own))

    def __repr__(self) -> str:
        return f"Cap(k={brief(self.k)})"


@dataclass(frozen=True, eq=False, repr=False)
class MaxEpsilon(ByValue, Constraint):
    """Each guarantee has a largest epsilon: eps_i <= e_i.

    Parameters
    ----------
    epsilon : float, array_like of shape (m,), or cvxpy.Parameter
        e > 0 for all sellers, or one number >= 0 for each.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.Payments()
    >>> market = cm.Market(sellers, objective, [cm.MaxEpsilon(1.5)])
    >>> cm.allocate(market).epsilon.round(3)
    array([1.5  , 1.311, 0.601])
    """

    formula_template = "eps_i <= {epsilon}"
    each_seller = ("epsilon", "the largest epsilon")
    epsilon: float | Floats

    def __post_init__(self) -> None:
        given = one_or_each("the largest epsilon", self.epsilon, "1.0", parameter=True)
        if not isinstance(given, cp.Parameter) and np.max(given) == 0:
            raise ParameterError("the largest epsilon is 0 for every seller; let one sell")
        object.__setattr__(self, "epsilon", given)

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return m*a_i <= m*e_i/eta, whose left side is of order one."""
        m = quantities.weights.size
        bound = self.epsilon if np.ndim(self.epsilon) else self.epsilon * np.ones(m)
        return [m * quantities.weights <= (m * bound) * quantities.inverse_eta]

    def numbers(self, form: Form) -> Form:
        """Lower the largest guarantee."""
        return replace(form, max_epsilon=np.minimum(form.max_epsilon, value_of(self.epsilon)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({brief(self.epsilon)})"


class GivenEpsilon(MaxEpsilon):
    """Guarantees that the sellers have granted: a_i*eta <= eps_i (A, Algorithm 1; B, Eq. 3).

    Parameters
    ----------
    epsilon : array_like, shape (m,)
        The granted epsilon of each seller, >= 0.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> given = cm.terms.GivenEpsilon([0.5, 1.0, 2.0])
    >>> cm.allocate(cm.Market(sellers, cm.Spread() + cm.Noise(), [given])).epsilon.round(3)
    array([0.5, 1. , 2. ])
    """

    def __post_init__(self) -> None:
        """Check the guarantees."""
        if np.ndim(self.epsilon) != 1:
            raise ParameterError(
                "the given epsilon must be a vector with one for each seller, or MaxEpsilon(1.0) "
                f"for one bound on all, got {self.epsilon!r}"
            )
        super().__post_init__()


@dataclass(frozen=True, repr=False)
class Budget(Constraint):
    """The expected payments have an upper bound: psi'eps <= amount.

    This constraint contains the reports, so that a seller may gain by lying. The truthful way to
    meet a budget is :func:`convexmarket.calibrate_gamma`.

    Parameters
    ----------
    amount : float or cvxpy.Parameter
        In the currency of the sensitivities, > 0. For a parameter see :func:`convexmarket.sweep`.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, cm.Spread() + cm.Noise(), [cm.Budget(2.0)])
    >>> allocation = cm.allocate(market)
    >>> float((sellers.virtual_costs @ allocation.epsilon).round(3))
    2.0
    """

    formula_template = "sum_i psi_i eps_i <= {amount}"
    reports = "budget"
    amount: Number

    def __repr__(self) -> str:
        return f"Budget({brief(self.amount)})"

    def __post_init__(self) -> None:
        if isinstance(self.amount, cp.Parameter):
            if not (self.amount.is_scalar() and self.amount.is_nonneg()):
                raise ParameterError("a budget parameter must be cp.Parameter(nonneg=True)")
            return
        check_positive("the budget", self.amount)

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return psi'a <= amount/eta, linear in the weights and 1/eta."""
        mean = float(np.mean(value_of(quantities.virtual_costs)))
        scale = 1.0 / mean if mean > 0 else 1.0
        spent = (scale * quantities.virtual_costs) @ quantities.weights
        return [spent <= (scale * self.amount) * quantities.inverse_eta]

    def numbers(self, form: Form) -> Form:
        """Add a budget."""
        return replace(form, budgets=(*form.budgets, self.amount))

    def with_budget(self, amount: Number) -> Budget:
        """Replace the amount."""
        return replace(self, amount=amount)


@dataclass(frozen=True, eq=False, repr=False)
class GroupShare(ByValue, Constraint):
    """Bounds on the share of each group in the weight, or equal shares.

    Parameters
    ----------
    groups : array_like or pandas column, length m
        The group of each seller.
    at_least, at_most : mapping from group to share, optional
        Shares in [0, 1].
    equal : bool
        All groups carry the same share.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.Payments()
    >>> market = cm.Market(sellers, objective, [cm.GroupShare(["a", "a", "b"], equal=True)])
    >>> cm.allocate(market).weights.round(3)
    array([0.305, 0.195, 0.5  ])
    """

    each_seller = ("groups", "groups")
    groups: Any = field(repr=False)
    at_least: Mapping[Any, float] = field(default_factory=dict)
    at_most: Mapping[Any, float] = field(default_factory=dict)
    equal: bool = False

    def __post_init__(self) -> None:
        groups, known = checked_groups(self.groups)
        for name in ("at_least", "at_most"):
            shares = getattr(self, name)
            if not isinstance(shares, Mapping):
                raise ParameterError(
                    f"{name} must be shares by group, {{'A': 0.2}}, got {shares!r}"
                )
            for group, share in shares.items():
                if group not in known:
                    raise ParameterError(
                        f"{name} names the group {group!r}, which no seller is in; the groups are "
                        f"{', '.join(map(repr, known[:10]))}"
                    )
                if not 0 <= as_float(share) <= 1:
                    raise ParameterError(f"{name}[{group!r}] is {share!r}; a share is in [0, 1]")
            object.__setattr__(self, name, dict(shares))
        if not (self.at_least or self.at_most or self.equal):
            raise ParameterError(
                "the group share has no bound; give at_least, at_most or equal=True"
            )
        object.__setattr__(self, "groups", groups)

    @property
    def formula(self) -> str:
        """The bounds on the shares; at most four are written."""
        lower = [f"sum_{{i in {named(g)}}} a_i >= {low:g}" for g, low in self.at_least.items()]
        upper = [f"sum_{{i in {named(g)}}} a_i <= {high:g}" for g, high in self.at_most.items()]
        equal = ["sum_{i in g} a_i = sum_{i in h} a_i"] * self.equal
        bounds = lower + upper + equal
        return ", ".join(bounds[:4] + ["..."] * (len(bounds) > 4))

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return the bounds on the shares of the groups, linear in the weights."""

        def share(group: Any) -> cp.Expression:
            return (self.groups == group).astype(float) @ quantities.weights

        found: list[cp.Constraint] = [share(g) >= low for g, low in self.at_least.items()]
        found += [share(g) <= high for g, high in self.at_most.items()]
        if self.equal:
            known = checked_groups(self.groups)[1]
            found += [share(g) == 1.0 / len(known) for g in known[1:]]
        return found

    def shadow_prices(self, multipliers: list[Any]) -> Any:
        """Return the prices of the shares, by group."""
        prices = iter(float(np.sum(each)) for each in multipliers)
        return {
            "at_least": {group: -next(prices) for group in self.at_least},
            "at_most": {group: next(prices) for group in self.at_most},
        }

    @property
    def shares(self) -> tuple[NDArray[np.intp], Floats, Floats]:
        """The group of each seller by its number, and the least and the most share of each."""
        names, group = np.unique(self.groups, return_inverse=True)
        least, most = np.zeros(names.size), np.ones(names.size)
        for bounds, given in ((least, self.at_least), (most, self.at_most)):
            for name, share in given.items():
                bounds[names == name] = share
        if self.equal:
            least, most = np.maximum(least, 1 / names.size), np.minimum(most, 1 / names.size)
        return group, least, most

    def __repr__(self) -> str:
        said = {"at_least": self.at_least, "at_most": self.at_most, "equal": self.equal}
        shares = ", ".join(f"{name}={value!r}" for name, value in said.items() if value)
        return f"GroupShare({shares})"


@dataclass(frozen=True)
class EtaRange(Constraint):
    """The total privacy bought lies between two public numbers, low <= eta <= high.

    It replaces the papers' grid over eta, and makes a degenerate market well posed (the papers'
    naive model, mu = sigma = 0). :attr:`Allocation.binding` lists an active bound.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.Payments()
    >>> market = cm.Market(sellers, objective, [cm.EtaRange(0.5, 2.0)])
    >>> cm.allocate(market).binding
    ('eta_high',)
    """

    formula_template = "{low} <= eta <= {high}"
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < as_float(self.low) <= as_float(self.high) < np.inf:
            raise ParameterError(
                f"eta range is ({self.low!r}, {self.high!r}); give two finite numbers with "
                "0 < low <= high"
            )

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return 1 <= high/eta and low/eta <= 1."""
        return [
            self.high * quantities.inverse_eta >= 1,
            self.low * quantities.inverse_eta <= 1,
        ]

    def numbers(self, form: Form) -> Form:
        """Narrow the range of eta."""
        low, high = max(form.eta_low, self.low), min(form.eta_high, self.high)
        return replace(form, eta_low=low, eta_high=high)
