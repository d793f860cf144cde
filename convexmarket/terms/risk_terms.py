"""Terms for worst cases: of sellers, of groups, and of virtual costs."""

from __future__ import annotations

from typing import Any, Literal

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.errors import ParameterError
from convexmarket.terms import fields
from convexmarket.terms.fields import checked, record
from convexmarket.terms.formula import number
from convexmarket.terms.pieces import Quantities, Term

__all__ = ["CVaR", "Fairness", "Of", "RobustCosts"]

Floats = NDArray[np.float64]
Of = Literal["epsilon", "eps", "payments"]
Kind = Literal["box", "budget", "ellipsoid"]
Rule = Literal["minimax"]
Groups = Any


@record
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
    >>> print(cm.Spread() + cm.Noise() + 0.1 * cm.terms.CVaR(0.9))
    ||a||_2 + 1/eta + 0.1 CVaR_0.9(eps)
    """

    level: float = checked(fields.number, interval="[0, 1)")
    of: Of = checked(fields.choice, words=Of, default="epsilon")

    def __post_init__(self) -> None:
        super().__post_init__()
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


@record
class Fairness(Term):
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
    >>> print(cm.Spread() + cm.Noise() + cm.terms.Fairness("minimax", ["a", "a", "b"]))
    ||a||_2 + 1/eta + max_g mean_{i in g} eps_i
    """

    formula_template = "max_g mean_{{i in g}} eps_i"
    kind: Rule = checked(fields.choice, words=Rule)
    groups: Groups = checked(fields.groups, each=True)

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the largest of the averages."""
        _, group, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        each = (1.0 / sizes[group], (group, np.arange(group.size)))
        return cp.max(sparse.csr_array(each) @ quantities.epsilon)


@record
class RobustCosts(Term):
    """The largest expected payments if virtual costs are known up to a radius r_i.

    It is ``sup psi'eps`` over a set of virtual costs, as estimated priors have errors:

    - "box": each deviates by up to r_i, ``(psi + r)'eps`` (Soyster, 1973). With one radius for all
      it is ``(1 + radius) * Payments()``, which leaves prices truthful;
    - "budget": at most ``budget`` of them deviate (Bertsimas and Sim, 2004),
      ``psi'eps + the sum of the budget largest r_i*eps_i``;
    - "ellipsoid": ``sum ((psi_i' - psi_i)/r_i)^2 <= 1`` (Ben-Tal and Nemirovski, 1999),
      ``psi'eps + ||r*eps||``.

    It replaces :class:`Payments`; ``market.incentives`` is "unknown" with it.

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
    >>> print(cm.Spread() + cm.Noise() + 0.1 * cm.terms.RobustCosts("box", 0.2))
    ||a||_2 + 1/eta + 0.1 sum_i (1 + 0.2) psi_i eps_i
    """

    pays = True
    kind: Kind = checked(fields.choice, words=Kind)
    radius: float | Floats = checked(fields.one_or_each, each=True, example="0.1", zero=True)
    budget: float | None = checked(lambda value, _: value, most=True, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "budget":
            fields.number(self.budget, "budget", "(0, inf)")
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
            return costs @ epsilon + cp.sum(off)
        if self.kind == "budget":
            return costs @ epsilon + cp.sum_largest(off, float(self.budget or 0))
        return costs @ epsilon + cp.norm(off)
