"""Who sells: ids, reported sensitivities and the prior they are drawn from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.errors import SellersError
from convexmarket.priors import Prior

__all__ = ["Sellers"]


@dataclass(frozen=True, init=False, eq=False)
class Sellers:
    """The sellers of a market; validated and immutable.

    Parameters
    ----------
    sensitivities : array_like, shape (m,), optional
        Reported cost of each seller per unit of privacy lost, in the prior's support.
    prior : Prior, optional
        The distribution that the sensitivities are drawn from, common knowledge. Required with
        ``sensitivities``.
    ids : sequence, length m, optional
        A distinct name for each seller; 0, 1, ..., m - 1 where left out.
    virtual_costs : array_like, shape (m,), optional
        psi(c_i) >= 0, instead of sensitivities and prior. Allocation works with these alone;
        payments do not, because they depend on the prior.

    Attributes
    ----------
    virtual_costs : ndarray, shape (m,)
        psi(c_i), ironed where the prior is not regular; what the allocation sees.

    Raises
    ------
    SellersError
        If there is no seller, lengths differ, ids repeat, or a value is not a finite number >= 0.
    PriorError
        If a sensitivity lies outside the prior's support.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> sellers.virtual_costs
    array([0.2, 1.2])
    """

    sensitivities: NDArray[np.float64] | None
    prior: Prior | None
    ids: Any = field(repr=False)
    virtual_costs: NDArray[np.float64]

    def __init__(
        self,
        sensitivities: ArrayLike | None = None,
        prior: Prior | None = None,
        ids: Any = None,
        *,
        virtual_costs: ArrayLike | None = None,
    ) -> None:
        if (sensitivities is None) == (virtual_costs is None):
            raise SellersError(
                "give either sensitivities with their prior, or virtual_costs; got "
                + ("neither" if sensitivities is None else "both")
            )
        if virtual_costs is not None:
            if prior is not None:
                raise SellersError("virtual_costs already contain the prior; leave prior out")
            reports = None
            costs = _costs("virtual_costs", virtual_costs)
        else:
            if prior is None:
                raise SellersError(
                    "sensitivities need the prior they are drawn from, for example "
                    "prior=Uniform(0.02, 0.10); without one, give virtual_costs"
                )
            if not isinstance(prior, Prior):
                raise SellersError(
                    f"prior is {prior!r}, which is not a prior; give one such as "
                    "Uniform(0.02, 0.10), or Prior.from_scipy(frozen distribution)"
                )
            reports = _costs("sensitivities", sensitivities)
            prior.check_reports(reports)
            costs = np.asarray(prior.ironed_virtual_cost(reports), dtype=float)
            costs.flags.writeable = False
        object.__setattr__(self, "sensitivities", reports)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "virtual_costs", costs)
        object.__setattr__(self, "ids", _ids(ids, costs.size))

    def __len__(self) -> int:
        return int(self.virtual_costs.size)

    def __repr__(self) -> str:
        source = "virtual costs" if self.prior is None else repr(self.prior)
        return f"Sellers({len(self)} sellers, {source})"

    def with_report(self, position: int, sensitivity: float) -> Sellers:
        """Return the same sellers, one of them reporting another sensitivity."""
        if self.sensitivities is None:
            raise SellersError("sellers known by their virtual costs have no reports to change")
        reports = self.sensitivities.copy()
        reports[position] = sensitivity
        return Sellers(reports, self.prior, self.ids)


def _costs(name: str, values: ArrayLike | None) -> NDArray[np.float64]:
    """Return ``values`` as a read-only vector of finite numbers >= 0."""
    try:
        costs = np.array(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise SellersError(f"{name} must be numbers: {error}") from None
    if costs.ndim != 1 or costs.size == 0:
        raise SellersError(
            f"{name} has shape {costs.shape}; give one number for each of at least one seller"
        )
    # One pass over a million sellers: NaN and infinities fail the comparison as well.
    if not (costs.min() >= 0 and costs.max() < np.inf):
        first = int(np.argmin((costs >= 0) & (costs < np.inf)))
        raise SellersError(
            f"{name}[{first}] is {costs[first]}; every entry must be a finite number >= 0"
        )
    costs.flags.writeable = False
    return costs


def _ids(ids: Any, m: int) -> Any:
    """Return the sellers' names, checked to be m and distinct."""
    if ids is None:
        return range(m)
    names = list(ids)
    if len(names) != m:
        raise SellersError(f"{len(names)} ids for {m} sellers; give one for each")
    if len(set(names)) != m:
        twice = Counter(names).most_common(1)[0][0]
        raise SellersError(f"id {twice!r} stands for more than one seller; ids must be distinct")
    return tuple(names)
