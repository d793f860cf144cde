"""Results of allocations, with their certificates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.checks import warn_user
from convexmarket.display import Shown
from convexmarket.errors import LooseCertificateWarning

__all__ = ["Allocation", "CertifiedPurchase", "SolveRecord", "Together"]


@dataclass(frozen=True)
class SolveRecord:
    """Record of a solve of the market at a fixed eta.

    Attributes
    ----------
    eta : float
    upper, lower : float
        Objective of the feasible point at ``eta``, and a proven lower bound on the optimal value
        there, for any output of the solver.
    status : str
        Status of the solver.
    seconds : float
        Wall time of this solve.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> record = cm.allocate(market, method='branch_and_bound').solves[0]
    >>> record.status, record.lower <= record.upper
    ('optimal', True)
    """

    eta: float
    upper: float
    lower: float
    status: str
    seconds: float


class CertifiedPurchase:
    """Weights and eta of a purchase, its objective, and a lower bound on the optimal objective."""

    weights: NDArray[np.float64]
    eta: float
    objective: float
    lower_bound: float
    scale: float | None = None

    @cached_property
    def epsilon(self) -> NDArray[np.float64]:
        """The guarantees eps_i = eta * a_i, shape (m,)."""
        epsilon = self.eta * self.weights
        epsilon.flags.writeable = False
        return epsilon

    @property
    def gap(self) -> float:
        """Relative distance between the objective and its lower bound; inf if no bound is known."""
        if np.isnan(self.lower_bound):
            return np.inf
        scale = self.scale or max(abs(self.objective), np.finfo(float).tiny)
        return max(0.0, (self.objective - self.lower_bound) / scale)

    @property
    def n_bought(self) -> int:
        """Number of sellers with a positive weight."""
        return int(np.count_nonzero(self.weights))

    def warn_if_loose(self, gap: float, reason: str) -> None:
        """Issue a warning at the user's line if the gap is larger than requested."""
        if self.gap > gap:
            warn_user(
                f"the certificate leaves a relative gap of {self.gap:.1e}, larger than the "
                f"requested {gap:.1e}: {reason}",
                LooseCertificateWarning,
            )


@dataclass(frozen=True, eq=False)
class Allocation(Shown, CertifiedPurchase):
    """The guarantees to buy from all sellers, with a certificate.

    Attributes
    ----------
    weights : ndarray, shape (m,)
        a_i >= 0, summing to one.
    eta : float
        Total privacy bought, sum of ``epsilon``.
    objective, lower_bound : float
        The buyer's objective at this point, and a lower bound on it at all feasible points, up to
        rounding. In a search, weak duality and cuts prove the bound for all eta. In the exact
        method, a dual point proves the bound at ``eta``, and all stationary points are enumerated
        to cover other eta (docs/theory.md, 3.3).
    multiplier : float
        lambda of A, Eq. (13)-(14): tau/eta with tau the multiplier of ``sum a = 1``.
    method : str
        As in :func:`allocate`: "exact", "projections", "branch_and_bound" or "line_search".
    seconds : float
        Wall time of the whole allocation.
    scale : float or None
        Sum of the absolute weighted terms, to which the gap is relative; if None, the gap is
        relative to the absolute objective.
    formulation, solver, solver_version, tolerance
        Settings of a numerical method; None if they do not apply.
    solves : tuple of SolveRecord
        One record for each solve of a search; empty for the exact method.
    binding : tuple of str
        Classes of binding constraints, such as "Budget"; "eta_low" and "eta_high" for the binding
        ends of an :class:`EtaRange`.
    ids : sequence, shape (m,), or None
    pricing : callable or None
        Computes :attr:`prices`.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> allocation = cm.allocate(market)
    >>> allocation.epsilon.round(2), allocation.gap < 1e-9
    (array([1.23, 0.69, 0.  ]), True)
    """

    weights: NDArray[np.float64]
    eta: float
    objective: float
    lower_bound: float
    multiplier: float
    method: str = "exact"
    seconds: float = 0.0
    scale: float | None = None
    formulation: str | None = None
    solver: str | None = None
    solver_version: str | None = None
    tolerance: float | None = None
    solves: tuple[SolveRecord, ...] = ()
    binding: tuple[str, ...] = ()
    ids: Any = field(default=None, repr=False)
    pricing: Callable[[], tuple[Any, ...]] | None = field(default=None, repr=False)

    @cached_property
    def prices(self) -> tuple[Any, ...]:
        """Shadow prices of the constraints, in the order of the market; empty if they are unknown.

        A price is the rate at which the optimal objective falls as the bound of the constraint is
        raised. It is one number, or one for each seller, group or tolerance. An :class:`EtaRange`
        has prices of low and high; the prices of a user-defined constraint are the multipliers of
        its comparisons. Undetermined prices are NaN, and all prices of projections with shares.
        """
        return () if self.pricing is None else self.pricing()

    def __post_init__(self) -> None:
        self.weights.flags.writeable = False

    def certificate(self) -> dict[str, Any]:
        """Return the certificate as plain values for JSON."""
        names = "objective lower_bound gap eta multiplier n_bought method formulation solver"
        names += " solver_version tolerance seconds"
        return {name: getattr(self, name) for name in names.split()} | {
            "n_sellers": int(self.weights.size),
            "binding": list(self.binding),
            "prices": [_plain(price) for price in self.prices],
            "solves": [vars(record) for record in self.solves],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return a table with the weight and the epsilon of each seller, indexed by id."""
        ids = range(self.weights.size) if self.ids is None else self.ids
        columns = {"weight": self.weights, "epsilon": self.epsilon}
        return pd.DataFrame(columns, index=pd.Index(ids, name="id"))

    def __repr__(self) -> str:
        return (
            f"Allocation(eta={self.eta:.6g}, objective={self.objective:.10g}, gap={self.gap:.1e}, "
            f"bought {self.n_bought} of {self.weights.size}, method={self.method!r})"
        )


@dataclass(frozen=True, eq=False)
class Together(CertifiedPurchase):
    """Purchases of several buyers from the same sellers.

    Attributes
    ----------
    allocations : tuple of Allocation
        Allocation of each buyer, without a lower bound.
    objective, lower_bound : float
        Sum of the objectives of all buyers, and a lower bound on it.
    prices : ndarray, shape (m,)
        Price of a unit of each seller's privacy; 0 if its limit does not bind.
    n_solves : int
        Number of convex programs solved by a solver, without repairs of slightly infeasible points.
    scale : float
        Sum of the absolute weighted terms, to which the gap is relative.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.1)
    >>> cm.allocate_together([market, market], [cm.MaxEpsilon(1.5)]).gap < 1e-6
    True
    """

    allocations: tuple[Allocation, ...]
    objective: float
    lower_bound: float
    prices: NDArray[np.float64]
    n_solves: int
    seconds: float
    scale: float

    @property
    def epsilon(self) -> NDArray[np.float64]:
        """The total guarantee that each seller sells, shape (m,)."""
        return np.sum([allocation.epsilon for allocation in self.allocations], axis=0)

    def __repr__(self) -> str:
        values = f"objective={self.objective:.10g}, gap={self.gap:.1e}, {self.n_solves} solves"
        return f"Together({len(self.allocations)} buyers, {values})"


def _plain(price: Any) -> Any:
    """Return a price as plain values for JSON."""
    if isinstance(price, dict):
        return {str(name): _plain(each) for name, each in price.items()}
    if isinstance(price, list | tuple):
        return [_plain(each) for each in price]
    return np.asarray(price, dtype=float).tolist()
