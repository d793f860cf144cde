"""Constraints on weights, guarantees, payments, shares of groups and eta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.checks import aligned, as_float, check_instance, check_positive
from convexmarket.errors import ParameterError
from convexmarket.terms import records
from convexmarket.terms.pieces import Constraint, MarketNumbers, Number, Quantities, value_of
from convexmarket.terms.records import checked, record

__all__ = ["Budget", "Cap", "EffectiveSize", "EtaRange", "GivenEpsilon", "GroupShare"]
__all__ += ["MaxEpsilon", "Moments"]

Floats = NDArray[np.float64]


@record
class Cap(Constraint):
    """Each weight is at most ``k`` times the average: a_i <= k/m (A, Eq. 11).

    ``k`` is a number >= 1, a ``cvxpy.Parameter``, or one number for each seller, with mean >= 1.

    Examples
    --------
    >>> print(Cap(1.2))
    a_i <= 1.2/m
    """

    separable = True
    formula_template = "a_i <= {k}/m"
    k: float | Floats = checked(records.one_or_each, "cap", each=True, example="5")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.k, cp.Parameter) and np.mean(self.k) < 1:
            why = "weights of at most cap/m can only sum to one if cap >= 1; give larger numbers"
            raise ParameterError(f"cap is {np.mean(self.k):g} on average, but {why}, or no cap")

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        return [quantities.weights.size * quantities.weights <= self.k]

    def numbers(self, form: MarketNumbers) -> MarketNumbers:
        limit = value_of(self.k) / form.virtual_costs.size
        return replace(form, max_weight=np.minimum(form.max_weight, limit))


@record
class MaxEpsilon(Constraint):
    """Each guarantee is at most ``epsilon``, a number, a parameter, or one number for each seller.

    Examples
    --------
    >>> print(MaxEpsilon(1.5))
    eps_i <= 1.5
    """

    formula_template = "eps_i <= {epsilon}"
    epsilon: float | Floats = checked(
        records.one_or_each, "the largest epsilon", each=True, example="1.0"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.epsilon, cp.Parameter) and np.max(self.epsilon) == 0:
            raise ParameterError("the largest epsilon is 0 for every seller; give one number > 0")

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        m = quantities.weights.size  # scale the left side to order one
        bound = self.epsilon if np.ndim(self.epsilon) else self.epsilon * np.ones(m)
        return [m * quantities.weights <= (m * bound) * quantities.inverse_eta]

    def numbers(self, form: MarketNumbers) -> MarketNumbers:
        return replace(form, max_epsilon=np.minimum(form.max_epsilon, value_of(self.epsilon)))


@record
class GivenEpsilon(MaxEpsilon):
    """Limits that the sellers have set on their guarantees, a_i*eta <= eps_i (A, Algorithm 1).

    Examples
    --------
    >>> GivenEpsilon([0.5, 1.0, 2.0])
    GivenEpsilon(<3 values in [0.5, 2]>)
    """

    epsilon: Floats = checked(records.one_or_each, "the given epsilon", each=True)


@record
class Budget(Constraint):
    """The expected payments of linear costs are at most ``amount``, a number or cvxpy.Parameter.

    With other pieces, truthful prices may not exist; see :func:`~convexmarket.calibrate_gamma`.

    Examples
    --------
    >>> print(Budget(2.0))
    sum_i psi_i eps_i <= 2
    """

    formula_template = "sum_i psi_i eps_i <= {amount}"
    reports = "budget"
    amount: Number

    def __post_init__(self) -> None:
        if not isinstance(self.amount, cp.Parameter):
            check_positive("the budget", self.amount)
        elif not (self.amount.is_scalar() and self.amount.is_nonneg()):
            raise ParameterError("a budget parameter must be cp.Parameter(nonneg=True)")

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        scale = 1.0 / (float(np.mean(value_of(quantities.virtual_costs))) or 1.0)
        spent = (scale * quantities.virtual_costs) @ quantities.weights
        return [spent <= (scale * self.amount) * quantities.inverse_eta]

    def numbers(self, form: MarketNumbers) -> MarketNumbers:
        return replace(form, budgets=(*form.budgets, self.amount))


@record
class GroupShare(Constraint):
    """Bounds on the total weight of each group, or equal total weights.

    ``groups`` contains the group of each seller. ``at_least`` and ``at_most`` map groups to shares
    in [0, 1]. With ``equal``, all groups have the same share.

    Examples
    --------
    >>> print(GroupShare(["old", "old", "new"], at_least={"new": 0.4}))
    sum_{i in new} a_i >= 0.4
    """

    groups: Any = checked(records.groups, each=True)
    at_least: Mapping[Any, float] = field(default_factory=dict)
    at_most: Mapping[Any, float] = field(default_factory=dict)
    equal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        known = np.unique(self.groups).tolist()
        for name in ("at_least", "at_most"):
            shares = getattr(self, name)
            check_instance(name, shares, Mapping, "shares by group, {'A': 0.2}")
            for group, share in shares.items():
                if group not in known or not 0 <= as_float(share) <= 1:
                    raise ParameterError(
                        f"{name} must be shares in [0, 1] of the groups "
                        f"{', '.join(map(repr, known[:10]))}, got {group!r}: {share!r}"
                    )
            vars(self)[name] = dict(shares)
        if not (self.at_least or self.at_most or self.equal):
            raise ParameterError("no share is bounded; give at_least, at_most or equal=True")

    @property
    def formula(self) -> str:
        shares = [(group, ">=", share) for group, share in self.at_least.items()]
        shares += [(group, "<=", share) for group, share in self.at_most.items()]
        bounds = [f"sum_{{i in {records.named(g)}}} a_i {sign} {x:g}" for g, sign, x in shares]
        bounds += ["sum_{i in g} a_i = sum_{i in h} a_i"] * self.equal
        return ", ".join(bounds[:4] + ["..."] * (len(bounds) > 4))

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        def share(group: Any) -> cp.Expression:
            return (self.groups == group).astype(float) @ quantities.weights

        bounds: list[cp.Constraint] = [share(g) >= low for g, low in self.at_least.items()]
        bounds += [share(g) <= high for g, high in self.at_most.items()]
        names = np.unique(self.groups).tolist()
        return bounds + [share(g) == 1.0 / len(names) for g in names[1:] if self.equal]

    def shadow_prices(self, multipliers: list[Any]) -> Any:
        prices = iter(float(np.sum(each)) for each in multipliers)
        least = {group: -next(prices) for group in self.at_least}
        return {"at_least": least, "at_most": {group: next(prices) for group in self.at_most}}

    @property
    def shares(self) -> tuple[NDArray[np.intp], Floats, Floats]:  # type: ignore[override]
        """Group number of each seller, and smallest and largest share of each group."""
        names, group = np.unique(self.groups, return_inverse=True)
        least = [self.at_least.get(name, 0.0) for name in names.tolist()]
        most = [self.at_most.get(name, 1.0) for name in names.tolist()]
        low, high = (1 / names.size, 1 / names.size) if self.equal else (0.0, 1.0)
        return group, np.maximum(least, low), np.minimum(most, high)


@record
class EtaRange(Constraint):
    """The total privacy bought is between two public numbers, low <= eta <= high.

    A market with mu = sigma = 0, the naive model of the papers, requires this constraint.

    Examples
    --------
    >>> print(EtaRange(0.5, 2.0))
    0.5 <= eta <= 2
    """

    formula_template = "{low} <= eta <= {high}"
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < as_float(self.low) <= as_float(self.high) < np.inf:
            ends = f"[{self.low!r}, {self.high!r}]"
            raise ParameterError(f"eta is in {ends}; give finite numbers with 0 < low <= high")

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        return [self.high * quantities.inverse_eta >= 1, self.low * quantities.inverse_eta <= 1]

    def numbers(self, form: MarketNumbers) -> MarketNumbers:
        low, high = max(form.eta_low, self.low), min(form.eta_high, self.high)
        return replace(form, eta_low=low, eta_high=high)


@record
class Moments(Constraint):
    """Weighted averages of public features match targets: ``|A'a - b| <= tol``, elementwise.

    If b contains the averages of a population, this constraint calibrates survey weights (Deville
    and Sarndal, 1992). A row of ``A``, dense or sparse, contains the k public features of a seller.
    ``b``, shape (k,), contains targets. ``tol``, a number or shape (k,), is the largest deviation.

    Examples
    --------
    >>> print(Moments([[30.0], [40.0], [65.0]], [45.0], tol=1))
    |A'a - b| <= 1
    """

    A: Any = checked(records.matrix, each=True, of="a row of public features for each seller")
    b: Floats = checked(records.vector)
    tol: float | Floats = checked(records.one_or_each, example="0.1", zero=True, default=0.0)
    _unit: Floats = field(init=False)  # largest absolute value of each feature

    def __post_init__(self) -> None:
        if isinstance(self.A, pd.DataFrame):
            matched = aligned(**{"A.T": self.A.T, "b": self.b, "tol": self.tol})
            vars(self).update(b=matched[1], tol=matched[2])
        super().__post_init__()
        k = self.A.shape[1]
        for name in ("b", "tol"):
            if (size := np.size(getattr(self, name))) != k and (name == "b" or size > 1):
                raise ParameterError(f"{name} has {size} entries for {k} columns of A; give {k}")
        largest = abs(sparse.csc_array(self.A)).max(axis=0).toarray().ravel()
        vars(self)["_unit"] = np.where(largest > 0, largest, 1.0)

    @property
    def formula(self) -> str:
        return f"|A'a - b| <= {records.written(self.tol, 'tol')}" if np.any(self.tol) else "A'a = b"

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        off = cp.multiply(1 / self._unit, self.A.T @ quantities.weights - self.b)
        room = np.broadcast_to(self.tol, self._unit.shape) / self._unit
        some = room > 0
        equal = [off[~some] == 0] if not some.all() else []
        return [cp.abs(off[some]) <= room[some], *equal] if some.any() else equal

    def shadow_prices(self, multipliers: list[Any]) -> Any:
        some = np.broadcast_to(self.tol, self._unit.shape) > 0
        prices = np.where(some, 0.0, np.nan)
        prices[some] = multipliers[0] / self._unit[some] if some.any() else 0.0
        return prices if np.ndim(self.tol) else float(prices.sum())


@record
class EffectiveSize(Constraint):
    """The effective size of the weights is at least n: ``1/||a||^2 >= n`` (Kish, 1965).

    An average with weights a is as precise as an equally weighted average of ``1/||a||^2`` rows.

    Examples
    --------
    >>> print(EffectiveSize(2.9))
    1/||a||_2^2 >= 2.9
    """

    formula_template = "1/||a||_2^2 >= {n}"
    n: float = checked(records.in_interval, "the effective size", interval="[1, inf)")

    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        m = quantities.weights.size
        if self.n == m:  # only equal weights are feasible
            return [m * quantities.weights == 1]
        return [cp.norm(np.sqrt(self.n) * quantities.weights) <= 1]

    def shadow_prices(self, multipliers: list[Any]) -> Any:
        return np.nan if np.ndim(multipliers[0]) else -float(multipliers[0]) / (2 * self.n)
