"""Terms for worst cases: of sellers, of groups, and of virtual costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.checks import as_float, check_choice
from convexmarket.errors import ParameterError
from convexmarket.terms.base import Quantities, Term
from convexmarket.terms.formula import number
from convexmarket.terms.values import ByValue, brief, checked_groups, one_or_each

__all__ = ["CVaR", "Fairness", "Of", "RobustCosts"]

Floats = NDArray[np.float64]
Of = Literal["epsilon", "eps", "payments"]
Kind = Literal["box", "budget", "ellipsoid"]
Rule = Literal["minimax"]
Groups = Any


@dataclass(frozen=True)
class CVaR(Term):
    """The average of the worst ``1 - level`` of the sellers: a conditional value at risk.

    ``min over t of t + sum (x_i - t)_+ / ((1 - level)*m)`` (Rockafellar and Uryasev, 2000), with
    x_i the guarantee eps_i or the expected payment psi_i*eps_i of a seller. It limits the loss of
    privacy, or the share of the money, of a few sellers.

    Parameters
    ----------
    level : float
        In [0, 1): 0 is the average over all sellers; from ``1 - 1/m`` on it is the largest value.
    of : {"epsilon", "payments"}
        The quantity x; "eps" is "epsilon". Payments read the reports.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.Payments() + 0.1 * cm.terms.CVaR(0.5)
    >>> cm.allocate(cm.Market(sellers, objective)).weights.round(3)
    array([0.402, 0.356, 0.242])
    """

    level: float
    of: Of = "epsilon"

    def __post_init__(self) -> None:
        if not 0 <= as_float(self.level) < 1:
            raise ParameterError(
                "level must be a number in [0, 1), such as 0.9 for the worst tenth, got "
                f"{self.level!r}"
            )
        check_choice("of", self.of, Of)
        if self.of == "eps":
            object.__setattr__(self, "of", "epsilon")

    @property
    def formula(self) -> str:
        """The risk measure with its level."""
        return f"CVaR_{self.level:g}({'psi ' * (self.of == 'payments')}eps)"

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the mean of the k largest, k = (1 - level)*m, which need not be an integer."""
        risk = quantities.epsilon
        if self.of == "payments":
            risk = cp.multiply(quantities.virtual_costs, risk)
        k = max(1.0, round((1.0 - self.level) * risk.size, 9))
        return cp.sum_largest(risk, k) / k


@dataclass(frozen=True, eq=False, repr=False)
class Fairness(ByValue, Term):
    """The largest average guarantee of any group: ``max over g of mean over i in g of eps_i``.

    It reduces the loss of privacy of the group with the largest (minimax fairness, after Rawls).

    Parameters
    ----------
    kind : {"minimax"}
        The largest mean of a group counts.
    groups : array_like or pandas column, length m
        The group of each seller, public.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> fairness = cm.terms.Fairness("minimax", ["a", "a", "b"])
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.Payments() + fairness
    >>> cm.allocate(cm.Market(sellers, objective)).weights.round(3)
    array([0.36 , 0.307, 0.333])
    """

    formula_template = "max_g mean_{{i in g}} eps_i"
    each_seller = ("groups", "groups")
    kind: Rule
    groups: Groups

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, Rule)
        object.__setattr__(self, "groups", checked_groups(self.groups)[0])

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the largest of the averages."""
        _, group, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        each = (1.0 / sizes[group], (group, np.arange(group.size)))
        return cp.max(sparse.csr_array(each) @ quantities.epsilon)

    def __repr__(self) -> str:
        return f"Fairness({self.kind!r}, {np.unique(self.groups).size} groups)"


@dataclass(frozen=True, eq=False, repr=False)
class RobustCosts(ByValue, Term):
    """The largest expected payments if virtual costs are known up to a radius r_i.

    It is ``sup psi'eps`` over a set of virtual costs, as estimated priors have errors:

    - "box": each deviates by up to r_i, ``(psi + r)'eps`` (Soyster, 1973). With one radius for all
      it is ``(1 + radius) * Payments()``, which leaves prices truthful;
    - "budget": at most ``budget`` of them deviate (Bertsimas and Sim, 2004),
      ``psi'eps + the sum of the budget largest r_i*eps_i``;
    - "ellipsoid": ``sum ((psi_i' - psi_i)/r_i)^2 <= 1`` (Ben-Tal and Nemirovski, 1999),
      ``psi'eps + ||r*eps||``.

    It replaces :class:`Payments`, but truthful prices are not known to exist with it:
    ``market.incentives`` is "unknown".

    Parameters
    ----------
    kind : {"box", "budget", "ellipsoid"}
        The set of costs.
    radius : float or array_like, shape (m,)
        Relative: ``r_i = radius_i * psi_i``, with numbers >= 0.
    budget : float, optional
        For "budget": the number of costs that deviate, from 0 (exclusive) to m; a fraction counts
        for one cost.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.Spread() + cm.Noise() + 0.1 * cm.terms.RobustCosts("box", 0.2)
    >>> cm.allocate(cm.Market(sellers, objective)).weights.round(3)
    array([0.602, 0.382, 0.015])
    """

    pays = True
    each_seller = ("radius", "radius")
    at_most_all = ("budget", "budget")

    kind: Kind
    radius: float | Floats
    budget: float | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, Kind)
        radius = one_or_each("radius", self.radius, "0.1", zero=True)
        object.__setattr__(self, "radius", radius)
        if self.kind == "budget":
            if not 0 < as_float(self.budget) < np.inf:
                raise ParameterError(
                    "budget must be the number of costs that deviate, finite and > 0, got "
                    f"{self.budget!r}"
                )
        elif self.budget is not None:
            raise ParameterError(
                f"budget is {self.budget!r}, which the kind {self.kind!r} does not use; leave it "
                'out, or give the kind "budget"'
            )

    @property
    def formula(self) -> str:
        """The largest payments over the virtual costs in the set."""
        r = number(self.radius, "r_i")
        if self.kind == "box":
            return f"sum_i (1 + {r}) psi_i eps_i"
        worst = "|| " if self.kind == "ellipsoid" else f"largest_{self.budget:g} ("
        close = " ||_2" if self.kind == "ellipsoid" else ")"
        return f"(sum_i psi_i eps_i + {worst}{r} psi_i eps_i{close})"

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the payments plus the largest increase in the set."""
        epsilon, costs = quantities.epsilon, quantities.virtual_costs
        radius = cp.multiply(np.broadcast_to(self.radius, epsilon.shape), costs)
        off = cp.multiply(radius, epsilon)
        if self.kind == "box":
            worst = cp.sum(off)
        elif self.kind == "budget":
            worst = cp.sum_largest(off, float(self.budget or 0))
        else:
            worst = cp.norm(off)
        return costs @ epsilon + worst

    def __repr__(self) -> str:
        budget = "" if self.budget is None else f", budget={self.budget!r}"
        return f"RobustCosts({self.kind!r}, {brief(self.radius)}{budget})"
