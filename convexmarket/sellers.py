"""Sellers with their ids, reported sensitivities and priors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, Self

import cvxpy as cp
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

import convexmarket.checks as checks
from convexmarket.display import Shown
from convexmarket.errors import DataError, NotSupportedError, ParameterError, SellersError
from convexmarket.priors.prior import Prior, PriorOrPriors, assigned

__all__ = ["PriorOrPriors", "SellerParts", "Sellers"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


class SellerParts(Sized, Protocol):
    """Reports that are stored in several parts."""

    def map_parts(self, work: Callable[[Floats], Any]) -> Sequence[Any]:
        """Apply a function to the reports of each part."""

    def column(self, work: Callable[[Floats], Any], name: str) -> Any:
        """Compute a column with one number per report, stored like the reports."""

    def take(self, positions: Ints) -> tuple[Floats, list[Any]]:
        """Return the reports and ids at positions in ascending order."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Sellers(Shown):
    """The validated and immutable sellers of a market.

    Parameters
    ----------
    sensitivities : array_like, shape (m,), optional
        Reported cost of each seller per unit of privacy lost, in the support of its prior.
    prior : Prior, sequence of m Priors, or mapping from group to Prior, optional
        Commonly known distribution of the sensitivities, which can be a frozen ``scipy.stats``
        distribution.
    ids : sequence, length m, optional
        Distinct names. By default, the index of the pandas columns, or 0 to m - 1.
    virtual_costs : array_like or cvxpy.Parameter, shape (m,), optional
        Virtual costs psi(c_i) >= 0 instead of reports. Payments then cannot be computed.
    groups : array_like or pandas column, length m, optional
        The public group of each seller.

    Pandas columns are matched by their labels, in the order of the first column. The attribute
    ``priors`` contains the distinct priors, and ``parts`` contains reports outside of this process
    (:mod:`convexmarket.partitions`).

    Raises
    ------
    DataError
        If columns do not match.
    SellersError
        If numbers are not finite and >= 0.
    PriorError
        If reports are not in the support of their prior.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> sellers.virtual_costs
    array([0.2, 1.2])
    """

    sensitivities: Floats | None
    priors: tuple[Prior, ...]
    ids: Any
    groups: NDArray[Any] | None
    parts: SellerParts | None
    _costs: Floats | cp.Parameter | None
    _prior_of: Ints  # position of each seller's prior in priors
    _index: pd.Index[Any] | None  # labels of the given columns

    def __init__(
        self,
        sensitivities: ArrayLike | None = None,
        prior: PriorOrPriors | None = None,
        ids: Any = None,
        *,
        virtual_costs: ArrayLike | cp.Parameter | None = None,
        groups: Any = None,
    ) -> None:
        given = virtual_costs if sensitivities is None else sensitivities
        known = sensitivities is not None or prior is not None
        if given is None or (virtual_costs is not None and known):
            raise SellersError(
                "give either sensitivities with a prior, or virtual_costs without a prior; "
                f"got {'neither' if given is None else 'both'}"
            )
        if hasattr(given, "dask"):
            raise SellersError("pass Dask partitions to convexmarket.partitions.sellers")
        name = "virtual_costs" if sensitivities is None else "sensitivities"
        columns: dict[str, Any] = {name: given, "prior": prior, "ids": ids, "groups": groups}
        labelled = {key: checks.labels_of(value) for key, value in columns.items()}
        first = next((key for key, labels in labelled.items() if labels is not None), "")
        index = labelled.get(first)
        if ids is None and index is not None:
            checks.check_distinct(first, index)
        given, prior, ids, groups = checks.aligned(**columns)
        costs = _costs(name, given)
        labels = _groups(groups, costs.size)
        default = None if index is None or checks.is_default(index) else index
        names = checks.distinct_ids(default if ids is None else ids, costs.size)
        if ids is not None and index is not None and labelled["ids"] is None:
            _check_order(index, pd.Index(names), "a column")
        self._set(ids=names, groups=labels, parts=None, _index=index)
        self._set(sensitivities=None, priors=(), _prior_of=None, _costs=costs)
        if sensitivities is not None:
            priors, places = assigned(prior, labels, costs.size)
            self._set(sensitivities=costs, priors=priors, _prior_of=places)
            virtual = np.empty(costs.size)
            for distribution, who in self.by_prior():
                distribution.check_reports(costs[who], partial(self._name, who))
                virtual[who] = distribution.ironed_virtual_cost(costs[who])
            virtual.flags.writeable = False
            self._set(_costs=virtual)

    @classmethod
    def in_parts(cls, parts: SellerParts, prior: Prior) -> Sellers:
        """Create sellers from checked reports in several parts."""
        absent = dict.fromkeys(("sensitivities", "groups", "_costs", "_prior_of", "_index"))
        known = {"parts": parts, "priors": (prior,), "ids": range(len(parts))}
        return object.__new__(cls)._set(**absent, **known)

    @classmethod
    def draw(
        cls,
        n_sellers: int,
        prior: PriorOrPriors,
        random_state: np.random.Generator | int,
        *,
        groups: Any = None,
    ) -> Sellers:
        """Draw sellers with truthful reports from their priors.

        Parameters
        ----------
        n_sellers : int
        prior : Prior, or one for each seller or group
        random_state : int or numpy.random.Generator
        groups : sequence, optional
        """
        checks.check_count("n_sellers", n_sellers)
        priors, places = assigned(prior, _groups(groups, n_sellers), n_sellers)
        rng, drawn = checks.generator_of(random_state), np.empty(n_sellers)
        for distribution, who in _by_prior(priors, places):
            drawn[who] = distribution.sample(who.size, rng)
        each = priors[0] if len(priors) == 1 else [priors[place] for place in places]
        return cls(drawn, each, groups=groups)._set(prior_is_from_reports=False)

    def _set(self, **values: Any) -> Self:
        for name, value in values.items():
            object.__setattr__(self, name, value)
        return self

    @property
    def virtual_costs(self) -> Floats:
        """The virtual costs psi_i(c_i), shape (m,), ironed if the prior is not regular."""
        if self.parts is not None:
            raise NotSupportedError(
                "sellers in partitions support allocate, payments and audit_incentives in markets "
                "of Spread, Noise, Payments, Cap and EtaRange; for other uses, give "
                "Sellers(sensitivities.compute(), prior)"
            )
        if (parameter := self.cost_parameter) is None:
            return self._costs  # type: ignore[return-value]
        if parameter.value is None:
            raise ParameterError(f"the parameter {parameter.name()!r} has no value; set it")
        return _costs("virtual_costs", parameter.value)

    @property
    def cost_parameter(self) -> cp.Parameter | None:
        """The virtual costs if they are a CVXPY parameter, or None."""
        return self._costs if isinstance(self._costs, cp.Parameter) else None

    @cached_property
    def prior_is_from_reports(self) -> bool:
        """Whether a prior is a sample with all reports of its sellers. False after :meth:`draw`."""
        reports = self.sensitivities
        return reports is not None and any(
            who.size > 1 and prior.contains(reports[who]) for prior, who in self.by_prior()
        )

    def prior_of(self, position: int) -> Prior:
        """Return the prior of one seller.

        Parameters
        ----------
        position : int

        Raises
        ------
        SellersError
        """
        if not self.priors:
            raise SellersError("sellers with given virtual costs have no reports to change")
        return self.priors[self._prior_of[_position(position, len(self))]]

    def by_prior(self, positions: Ints | None = None) -> list[tuple[Prior, Ints]]:
        """Return each prior with the indices of its sellers in ``positions`` (by default, all)."""
        places = self._prior_of if positions is None else self._prior_of[positions]
        return _by_prior(self.priors, places)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def identity(self) -> Any:
        """A key that is equal for the same sellers: the ids or, without ids, the virtual costs."""
        return self.virtual_costs.tobytes() if isinstance(self.ids, range) else tuple(self.ids)

    def to_frame(self) -> pd.DataFrame:
        """Return a table of ids, and the known columns sensitivity, virtual_cost and group."""
        columns = {"sensitivity": self.sensitivities, "virtual_cost": self.virtual_costs}
        known = {name: v for name, v in (columns | {"group": self.groups}).items() if v is not None}
        return pd.DataFrame(known, index=pd.Index(self.ids, name="id"))

    def __repr__(self) -> str:
        source = ", ".join(map(repr, self.priors[:3])) + ", ..." * (len(self.priors) > 3)
        several = f"{len(self.priors)} priors: " * (len(self.priors) > 1)
        return f"Sellers({len(self)} sellers, {several}{source or 'virtual costs'})"

    def with_ids(self, ids: pd.Index[Any]) -> Sellers:
        """Replace the ids by checked ids. A default index has no effect."""
        return self if checks.is_default(ids) else copy.copy(self)._set(ids=ids, _index=ids)

    def with_report(self, position: int, sensitivity: float) -> Sellers:
        """Return a copy of the sellers with a different report of one seller.

        Parameters
        ----------
        position : int
        sensitivity : float
        """
        prior, report = self.prior_of(position), _costs("sensitivity", [sensitivity])
        prior.check_reports(report)
        costs = _replaced(self.virtual_costs, position, prior.ironed_virtual_cost(report)[0])
        reports = _replaced(self.sensitivities, position, report[0])
        return copy.copy(self)._set(sensitivities=reports, _costs=costs)

    def with_virtual_cost(self, position: int, virtual_cost: float) -> Sellers:
        """Return a copy without reports and with a different virtual cost of one seller.

        Parameters
        ----------
        position : int
        virtual_cost : float, >= 0, or inf for a seller who sells nothing

        Raises
        ------
        SellersError
        """
        if not checks.as_float(virtual_cost) >= 0:
            raise SellersError(f"virtual_cost must be a number >= 0, or inf, got {virtual_cost!r}")
        costs = _replaced(self.virtual_costs, position, virtual_cost)
        return copy.copy(self)._set(_costs=costs, sensitivities=None, priors=())

    def check_labels(self, name: str, labels: pd.Index[Any] | None) -> None:
        """Raise a DataError if the labels of a column have another order than the sellers."""
        if labels is None or len(labels) != len(self):
            return
        if self._index is None and (isinstance(self.ids, range) or checks.is_default(labels)):
            return  # columns without labels are matched by position
        if self._index is None or not labels.equals(self._index):
            _check_order(labels, pd.Index(self.ids), name, strict=self._index is not None)

    def _name(self, who: Ints, place: int) -> str:
        """Describe the report of the seller at a position in ``who``, for a message."""
        position = int(who[place])
        owner = "" if isinstance(self.ids, range) else f" of {self.ids[position]!r}"
        group = "" if self.groups is None else f" (group {self.groups[[position]].tolist()[0]!r})"
        return f"sensitivities[{position}]{owner}{group}"


def _by_prior(priors: tuple[Prior, ...], places: Ints) -> list[tuple[Prior, Ints]]:
    """Return each prior with the positions of its sellers in ``places``."""
    if len(priors) < 2:
        return [(prior, np.arange(places.size)) for prior in priors]
    chosen = pd.Series(places)
    groups: dict[int, Ints] = chosen.groupby(chosen).indices  # type: ignore[assignment]
    return [(priors[place], who) for place, who in groups.items()]


def _check_order(
    labels: pd.Index[Any], ids: pd.Index[Any], name: str, strict: bool = False
) -> None:
    """Raise an error if labels are reordered ids or, with ``strict``, differ from the ids."""
    same = not labels.symmetric_difference(ids, sort=False).size
    if not labels.equals(ids) and (same or strict):
        raise DataError(
            f"the labels of {name} are not the sellers' ids in their order; give "
            "column.loc[list(sellers.ids)], or column.to_numpy() if it has the sellers' order"
        )


def _groups(groups: Any, m: int) -> NDArray[Any] | None:
    """Convert the groups of sellers to a read-only array."""
    if groups is None:
        return None
    labels = checks.group_array(groups, SellersError)
    if labels.shape != (m,):
        raise SellersError(
            f"groups has shape {labels.shape} for {m} sellers; give one group for each seller"
        )
    return labels


def _position(position: int, m: int) -> int:
    if not isinstance(position, int | np.integer) or not 0 <= position < m:
        raise SellersError(f"position must be a whole number from 0 to {m - 1}, got {position!r}")
    return int(position)


def _replaced(values: Floats | None, position: int, value: float) -> Floats:
    changed = np.array(values)
    changed[_position(position, changed.size)] = value
    changed.flags.writeable = False
    return changed


def _costs(name: str, values: Any) -> Any:
    """Convert numbers >= 0 to a read-only vector, or check a CVXPY parameter."""
    if isinstance(values, cp.Parameter):
        if values.ndim != 1 or values.size == 0 or not values.is_nonneg():
            raise SellersError(
                f"virtual_costs is a parameter of shape {values.shape}; give cp.Parameter(m, "
                "nonneg=True) for m sellers"
            )
        return values
    costs = checks.checked_numbers(name, values, SellersError)
    if costs.ndim != 1 or costs.size == 0:
        raise SellersError(
            f"{name} has shape {costs.shape}; give one number for each seller, at least one"
        )
    return checks.finite_entries(name, costs, SellersError, least=0.0)
