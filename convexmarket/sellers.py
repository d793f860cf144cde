"""Who sells: ids, reported sensitivities and the prior, or priors, they are drawn from."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import cvxpy as cp
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.arguments import (
    aligned,
    as_float,
    check_count,
    check_distinct,
    generator_of,
    is_default,
    is_iterable,
    labels_of,
    where_no_number,
)
from convexmarket.errors import (
    DataError,
    NotSupportedError,
    ParameterError,
    PriorError,
    SellersError,
)
from convexmarket.ids import forms_of
from convexmarket.notebook import Shown
from convexmarket.priors import Prior

__all__ = ["PartedSellers", "PriorOrPriors", "Sellers"]

#: One prior for all, one for each seller, or one for each group.
PriorOrPriors: TypeAlias = Prior | Iterable[Prior] | Mapping[Any, Prior]

#: Hashes of ids in partitions that are compared at a time.
_HASHES = 1 << 24


@dataclass(frozen=True, init=False, eq=False)
class Sellers(Shown):
    """The sellers of a market; validated and immutable.

    Parameters
    ----------
    sensitivities : array_like, shape (m,), or Dask Series or Array, optional
        Reported cost of each seller per unit of privacy lost, in its prior's support. Those in the
        partitions of a Dask collection stay there (:class:`PartedSellers`).
    prior : Prior, sequence of m Priors, or mapping from group to Prior, optional
        The distribution that the sensitivities are drawn from, common knowledge: one for all, one
        for each seller, or one for each of the ``groups``. Required with ``sensitivities``.
    ids : sequence, length m, optional
        A distinct id for each seller: printable text or whole numbers. The attribute keeps the ids
        as given; two are equal if their normal forms (:mod:`convexmarket.ids`) are. By default the
        index of the pandas columns given, else 0, 1, ..., m - 1.
    virtual_costs : array_like or cvxpy.Parameter, shape (m,), optional
        psi(c_i) >= 0, instead of sensitivities and prior. Allocation works with these alone;
        payments do not, because they depend on the prior. A ``cvxpy.Parameter(m, nonneg=True)``
        stands for those of many related markets (:func:`~convexmarket.sweep`).
    groups : array_like or pandas column, length m, optional
        The group of each seller, which everybody sees.

    pandas columns are matched by their labels, whatever their order: the sellers stand in the
    order of the first.

    Attributes
    ----------
    virtual_costs : ndarray, shape (m,)
        psi_i(c_i), each by its own prior, ironed where that is not regular; what the allocation
        sees. Of a parameter its value at present.
    priors : tuple of Prior
        The distinct priors; empty where only virtual costs are known.
    prior : Prior or None
        The one prior that all sellers share; None where there are several, or none.
    groups : ndarray, shape (m,), or None

    Raises
    ------
    DataError
        If columns have different labels, or cannot be matched for certain.
    SellersError
        If there is no seller, lengths differ, ids repeat, a value cannot be an id, a number
        is not a finite number >= 0, or a seller has no prior.
    PriorError
        If a sensitivity lies outside the support of its prior.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> sellers.virtual_costs
    array([0.2, 1.2])
    >>> young_and_old = {"young": cm.Uniform(0, 1), "old": cm.Uniform(0.5, 1)}
    >>> cm.Sellers([0.1, 0.6], young_and_old, groups=["young", "old"]).virtual_costs
    array([0.2, 0.7])
    """

    sensitivities: NDArray[np.float64] | None
    priors: tuple[Prior, ...]
    ids: Any = field(repr=False)
    groups: NDArray[Any] | None
    _costs: NDArray[np.float64] | cp.Parameter = field(repr=False)
    _prior_of: NDArray[np.intp] | None = field(repr=False)  # place in priors, if there are several
    _index: pd.Index[Any] | None = field(repr=False)  # labels of the columns it was made of

    def __new__(cls, sensitivities: Any = None, *_: Any, **__: Any) -> Sellers:
        """Return sellers in memory, or in partitions where the sensitivities are."""
        parted = cls is Sellers and hasattr(sensitivities, "to_delayed")
        return object.__new__(PartedSellers if parted else cls)

    def __init__(
        self,
        sensitivities: ArrayLike | None = None,
        prior: PriorOrPriors | None = None,
        ids: Any = None,
        *,
        virtual_costs: ArrayLike | cp.Parameter | None = None,
        groups: Any = None,
    ) -> None:
        if (sensitivities is None) == (virtual_costs is None):
            raise SellersError(
                "give either sensitivities with their prior, or virtual_costs; got "
                + ("neither" if sensitivities is None else "both")
            )
        if virtual_costs is not None and prior is not None:
            raise SellersError("virtual_costs already contain the prior; leave prior out")
        columns = {
            "sensitivities": sensitivities,
            "virtual_costs": virtual_costs,
            "prior": prior,
            "ids": ids,
            "groups": groups,
        }
        index = _index(columns, named=ids is not None)
        sensitivities, virtual_costs, prior, ids, groups = aligned(**columns)
        reports = None if sensitivities is None else _costs("sensitivities", sensitivities)
        costs = _given_costs(virtual_costs) if reports is None else reports
        labels = _groups(groups, costs.size)
        priors, prior_of = ((), None) if reports is None else _priors(prior, labels, reports.size)
        names = None if index is None or is_default(index) else index
        object.__setattr__(self, "ids", _ids(names if ids is None else ids, costs.size))
        if ids is not None and labels_of(ids) is None and index is not None:
            _check_order(index, pd.Index(self.ids))
        object.__setattr__(self, "_index", index)
        object.__setattr__(self, "groups", labels)
        object.__setattr__(self, "priors", priors)
        object.__setattr__(self, "_prior_of", prior_of)
        object.__setattr__(self, "sensitivities", reports)
        object.__setattr__(self, "_costs", costs if reports is None else self._virtual(reports))

    @classmethod
    def draw(
        cls,
        n_sellers: int,
        prior: PriorOrPriors,
        random_state: np.random.Generator | int,
        *,
        groups: Any = None,
    ) -> Sellers:
        """Draw sellers who report the truth, each from its own prior.

        Raises
        ------
        ParameterError
            If n_sellers is not a whole number >= 1.

        Examples
        --------
        >>> import convexmarket as cm
        >>> cm.Sellers.draw(3, cm.Uniform(0, 1), random_state=0).sensitivities.round(2)
        array([0.64, 0.27, 0.04])
        """
        check_count("n_sellers", n_sellers)
        priors, prior_of = _priors(prior, _groups(groups, n_sellers), n_sellers)
        rng = generator_of(random_state)
        drawn = np.empty(n_sellers)
        for one, who in _parts(priors, prior_of, np.arange(n_sellers)):
            drawn[who] = one.sample(who.size, rng)
        each = priors[0] if prior_of is None else [priors[place] for place in prior_of]
        return cls(drawn, each, groups=groups)

    @property
    def virtual_costs(self) -> NDArray[np.float64]:
        """psi_i(c_i), shape (m,)."""
        if isinstance(self._costs, np.ndarray):
            return self._costs
        if self._costs.value is None:
            raise ParameterError(
                f"the parameter {self._costs.name()!r} has no value; set its value, or use sweep"
            )
        return _costs("virtual_costs", self._costs.value)

    @property
    def cost_parameter(self) -> cp.Parameter | None:
        """What stands for the virtual costs, if a parameter does."""
        return None if isinstance(self._costs, np.ndarray) else self._costs

    def with_parameter(self, parameter: cp.Parameter, own: cp.Parameter) -> Sellers:
        """Return the sellers with another parameter in place of their virtual costs', if so."""
        if self._costs is not parameter:
            return self
        changed = copy.copy(self)
        object.__setattr__(changed, "_costs", own)
        return changed

    @property
    def prior(self) -> Prior | None:
        """The one prior that all sellers share; None where there are several, or none."""
        return self.priors[0] if len(self.priors) == 1 else None

    def prior_of(self, position: int) -> Prior:
        """Return the prior of one seller."""
        self._check_reports_known()
        place = _position(position, len(self))
        return self.priors[0 if self._prior_of is None else self._prior_of[place]]

    def by_prior(
        self, positions: NDArray[np.intp] | None = None
    ) -> list[tuple[Prior, NDArray[np.intp]]]:
        """Return each distinct prior with the places, within ``positions``, of its sellers.

        Parameters
        ----------
        positions : ndarray of int, shape (n,), optional
            Some sellers; all of them where left out, so that places are positions.
        """
        everyone = np.arange(len(self)) if positions is None else positions
        return _parts(self.priors, self._prior_of, everyone)

    def __len__(self) -> int:
        return int(self._costs.size)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per seller, by its id: sensitivity, virtual_cost and group, as known."""
        known = {
            "sensitivity": self.sensitivities,
            "virtual_cost": self.virtual_costs,
            "group": self.groups,
        }
        columns = {name: column for name, column in known.items() if column is not None}
        return pd.DataFrame(columns, index=pd.Index(self.ids, name="id"))

    def __repr__(self) -> str:
        source = ", ".join(map(repr, self.priors[:3])) or "virtual costs"
        if len(self.priors) > 1:
            more = ", ..." if len(self.priors) > 3 else ""
            source = f"{len(self.priors)} priors: {source}{more}"
        return f"Sellers({len(self)} sellers, {source})"

    def with_report(self, position: int, sensitivity: float) -> Sellers:
        """Return the same sellers, one of them reporting another sensitivity."""
        prior = self.prior_of(position)
        report = _costs("sensitivity", [sensitivity])
        prior.check_reports(report)
        changed = self.with_virtual_cost(position, float(prior.ironed_virtual_cost(report)[0]))
        for name in ("priors", "_prior_of"):
            object.__setattr__(changed, name, getattr(self, name))
        reports = _replaced(self.sensitivities, position, float(report[0]))
        object.__setattr__(changed, "sensitivities", reports)
        return changed

    def with_virtual_cost(self, position: int, virtual_cost: float) -> Sellers:
        """Return the same sellers by their virtual costs alone, one of which is another.

        At +inf the seller is out of the market.

        Raises
        ------
        SellersError
            If the virtual cost is negative or not a number.
        """
        if not as_float(virtual_cost) >= 0:
            raise SellersError(f"virtual_cost must be a number >= 0, or inf, got {virtual_cost!r}")
        changed = copy.copy(self)
        costs = _replaced(self.virtual_costs, position, virtual_cost)
        for name, value in (
            ("_costs", costs),
            ("sensitivities", None),
            ("priors", ()),
            ("_prior_of", None),
        ):
            object.__setattr__(changed, name, value)
        return changed

    def check_labels(self, name: str, labels: pd.Index[Any] | None) -> None:
        """Refuse labels of a column about the sellers that say another order than theirs.

        Parameters
        ----------
        name : str
            What the column is called.
        labels : pandas.Index or None
            Its labels; None, and labels of another number, are no column about the sellers.

        Raises
        ------
        DataError
            If the column is about others, or in another order, or that cannot be told.
        """
        if labels is None or len(labels) != len(self):
            return
        own = pd.Index(self.ids) if self._index is None else self._index
        by_position = self._index is None and (isinstance(self.ids, range) or is_default(labels))
        if by_position or labels.equals(own) or labels.equals(pd.Index(self.ids)):
            return
        if self._index is None and own.symmetric_difference(labels, sort=False).size:
            return  # names were given, and the labels are not about these
        raise DataError(
            f"the labels of {name} are not the sellers' ids in their order; give it by id, as in "
            "column.loc[list(sellers.ids)], or column.to_numpy() if it has the sellers' order"
        )

    def _check_reports_known(self) -> None:
        if self.sensitivities is None:
            raise SellersError("sellers known by their virtual costs have no reports to change")

    def _virtual(self, reports: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the virtual costs of the reports, each checked against its own prior."""
        costs = np.empty(reports.size)
        for prior, who in _parts(self.priors, self._prior_of, np.arange(reports.size)):
            try:
                prior.check_reports(reports[who])
            except PriorError:
                low, high = prior.support
                outside = who[~((reports[who] >= low) & (reports[who] <= high))]
                raise PriorError(
                    f"{outside.size} of {who.size} sensitivities are not in the support [{low:g}, "
                    f"{high:g}] of {prior!r}; the first is {self._named(outside[0])}. "
                    "Correct the reports, or declare a prior that covers them"
                ) from None
            costs[who] = prior.ironed_virtual_cost(reports[who])
        costs.flags.writeable = False
        return costs

    def _named(self, position: int) -> str:
        """Say which seller it is, and no more of it than its id and its group."""
        name = "" if isinstance(self.ids, range) else f" of {self.ids[position]!r}"
        group = "" if self.groups is None else f" (group {self.groups.tolist()[position]!r})"
        return f"sensitivities[{position}]{name}{group}"


class PartedSellers(Sellers):
    """Sellers in the partitions of a Dask collection; they stay where they are.

    ``Sellers(series, prior=...)`` gives them, for one column of a Parquet folder, for example.
    :func:`~convexmarket.allocate`, :func:`~convexmarket.payments` and
    :func:`~convexmarket.audit_incentives` serve their markets of ``Spread``, ``Noise``,
    ``Payments``, ``Cap`` and ``EtaRange``; weights and payments stay there, too.

    Parameters
    ----------
    sensitivities : Dask Series or one-dimensional Array
    prior : Prior
        What they are drawn from, one for all.
    ids : Dask Series, optional
        In the same partitions. That they are distinct is checked by hashes: a pass over the ids for
        each 16 million of them, 8 bytes of each to the process that asks.

    Raises
    ------
    SellersError
        If there is no seller, a sensitivity is no number or not in the prior's support, or an id
        is missing, none or not distinct; the message names the first partition and row at fault.
    """

    def __init__(
        self,
        sensitivities: Any = None,
        prior: PriorOrPriors | None = None,
        ids: Any = None,
        *,
        virtual_costs: Any = None,
        groups: Any = None,
    ) -> None:
        if virtual_costs is not None or groups is not None or not isinstance(prior, Prior):
            raise SellersError(
                "sellers in partitions have sensitivities, one prior for all, and ids; the rest "
                "is for memory; give sensitivities.compute()"
            )
        if np.dtype(object) == sensitivities.dtype or sensitivities.ndim != 1:
            raise SellersError("sensitivities must be one column of numbers")
        if not hasattr(sensitivities, "map_partitions"):
            import dask.dataframe

            sensitivities = dask.dataframe.from_dask_array(sensitivities)
        known = {"sensitivities": sensitivities, "priors": (prior,), "ids": ids, "n_passes": 0}
        for name, value in (known | dict.fromkeys(("groups", "_prior_of", "_index"))).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_parts", _parts_of(sensitivities))
        found = self.each_part(partial(_checked, prior.support))
        object.__setattr__(self, "_sizes", [size for size, _ in found])
        for number, (_, bad) in enumerate(found):
            if bad >= 0:
                low, high = prior.support
                raise SellersError(
                    f"{self.place(number, bad)} holds no number in the support [{low:g}, {high:g}] "
                    f"of {prior!r}; correct the report, or declare a prior that covers it"
                )
        if not len(self):
            raise SellersError("there are no sellers in any partition; give at least one")
        if ids is not None:
            self._check_ids(ids, self._sizes)

    n_passes: int
    _parts: list[Any]
    _sizes: list[int]

    def __len__(self) -> int:
        return sum(self._sizes)

    @property
    def virtual_costs(self) -> NDArray[np.float64]:
        """In no one memory."""
        raise NotSupportedError(
            "sellers in partitions are for allocate, payments and audit_incentives in markets of "
            "Spread, Noise, Payments, Cap and EtaRange; for anything else have them in memory: "
            "Sellers(sensitivities.compute(), prior)"
        )

    @property
    def cost_parameter(self) -> None:
        """None stands for the virtual costs."""
        return None

    def with_parameter(self, parameter: cp.Parameter, own: cp.Parameter) -> Sellers:
        """Return the sellers, who hold no parameter."""
        return self

    def check_labels(self, name: str, labels: pd.Index[Any] | None) -> None:
        """Accept any labels: pieces with a column about the sellers are for memory."""

    def place(self, partition: int, row: int) -> str:
        """Say where a seller stands."""
        return f"row {row} of partition {partition}"

    def each_part(self, work: Callable[[NDArray[np.float64]], Any]) -> Sequence[Any]:
        """Return what the work gives for the sensitivities of each partition; one pass.

        The work gives the same each time: Dask does again what dies with a worker.
        """
        object.__setattr__(self, "n_passes", self.n_passes + 1)
        return _computed(partial(_on_reports, work), self._parts)

    def chosen(self, positions: NDArray[np.intp]) -> tuple[NDArray[np.float64], list[Any]]:
        """Return the reports and ids of some sellers, by their positions in ascending order.

        Only the partitions that they are in are read. Positions are ids where none were given.
        """
        ends = np.cumsum(self._sizes)
        part = np.searchsorted(ends, positions, side="right")
        own = {int(k): positions[part == k] - (ends[k] - self._sizes[k]) for k in np.unique(part)}

        def read(parts: list[Any]) -> list[Any]:
            found = _computed(_rows, [(parts[k], rows) for k, rows in own.items()])
            return [value for some in found for value in some]

        reports = np.array(read(self._parts), dtype=float)
        return reports, positions.tolist() if self.ids is None else read(_parts_of(self.ids))

    def each_row(self, work: Any, name: str) -> Any:
        """Return a Dask Series of what the work gives for sensitivities, computed where they are.

        The work is sent once to each worker, however many partitions there are.
        """
        import dask

        sent = dask.delayed(work, pure=False, traverse=False)
        return self.sensitivities.map_partitions(_row_by_row, sent, name, meta=(name, float))  # type: ignore[union-attr]

    def _check_ids(self, ids: Any, sizes: list[int]) -> None:
        parts = _parts_of(ids) if hasattr(ids, "to_delayed") else []
        if len(parts) != len(sizes):
            raise SellersError(
                f"ids has {len(parts)} partitions, sensitivities {len(sizes)}; give columns of one "
                "Dask DataFrame"
            )
        windows = -(-sum(sizes) // _HASHES)
        for window in range(windows):
            found = _computed(partial(_hashes, window, windows), parts)
            for number, (one, size) in enumerate(zip(found, sizes, strict=True)):
                if one.fault:
                    raise SellersError(f"{self.place(number, one.row)}: {one.fault}")
                if one.row != size:
                    raise SellersError(f"partition {number} has {size} sellers and {one.row} ids")
            hashes = np.concatenate([one.hashes for one in found])
            hashes.sort()
            twice = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
            if twice.size:
                self._refuse_twice(_computed(partial(_with_hashes, twice), parts))

    def _refuse_twice(self, found: Sequence[list[tuple[Any, int]]]) -> None:
        first: dict[Any, str] = {}
        for number, some in enumerate(found):
            for form, row in some:
                place = self.place(number, row)
                if form in first:
                    raise SellersError(
                        f"id {form!r} stands for more than one seller, {first[form]} and {place}; "
                        "ids must be distinct"
                    )
                first[form] = place


def _parts_of(series: Any) -> list[Any]:
    """Return the partitions of a column, of which nothing else is read, as the user counts them.

    Dask's own optimisation may join several.
    """
    plan = series.simplify() if hasattr(series, "simplify") else series
    return list(plan.to_delayed(optimize_graph=False))


def _computed(work: Callable[[Any], Any], parts: Sequence[Any]) -> Sequence[Any]:
    import dask

    return dask.compute(*(dask.delayed(work, pure=False)(part) for part in parts))


def _rows(part: tuple[Any, NDArray[np.intp]]) -> list[Any]:
    column, rows = part
    return column.iloc[rows].tolist()


def _numbers(part: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(part.to_numpy(dtype=float, na_value=np.nan))


def _on_reports(work: Callable[[NDArray[np.float64]], Any], part: Any) -> Any:
    return work(_numbers(part))


def _row_by_row(part: Any, work: Callable[[NDArray[np.float64]], Any], name: str) -> Any:
    return pd.Series(work(_numbers(part)), index=part.index, name=name)


def _checked(support: tuple[float, float], reports: NDArray[np.float64]) -> tuple[int, int]:
    """Return how many sellers a partition has, and the first without a report; -1 if all have."""
    bad = ~((reports >= max(support[0], 0.0)) & (reports <= support[1]) & (reports < np.inf))
    return reports.size, int(np.argmax(bad)) if bad.any() else -1


@dataclass(frozen=True)
class _Hashes:
    """Hashes of the ids of a partition, and how many there are; or which row is at fault."""

    hashes: NDArray[np.uint64]
    row: int
    fault: str = ""


def _hashed(part: Any) -> tuple[Sequence[Any], NDArray[np.uint64]]:
    forms = forms_of(part.tolist())
    return forms, pd.util.hash_array(np.array(forms, dtype=object), categorize=False)


def _hashes(window: int, windows: int, part: Any) -> _Hashes:
    missing = np.flatnonzero(part.isna())
    if missing.size:
        return _Hashes(np.empty(0, np.uint64), int(missing[0]), "there is no id")
    try:
        _, hashes = _hashed(part)
    except ParameterError:
        return _fault(part)
    return _Hashes(hashes[hashes % np.uint64(windows) == window], hashes.size)


def _fault(part: Any) -> _Hashes:
    """Return the first of some ids that is none."""
    for row, name in enumerate(part):
        try:
            forms_of([name], lambda _: "id")
        except ParameterError as error:
            return _Hashes(np.empty(0, np.uint64), row, str(error))
    raise AssertionError("all ids are ids")


def _with_hashes(wanted: NDArray[np.uint64], part: Any) -> list[tuple[Any, int]]:
    forms, hashes = _hashed(part)
    return [(forms[row], row) for row in np.flatnonzero(np.isin(hashes, wanted)).tolist()]


def _index(columns: Mapping[str, Any], named: bool) -> pd.Index[Any] | None:
    """Return the labels of the first pandas column; without names they have to be distinct."""
    for name, value in columns.items():
        labels = labels_of(value)
        if labels is not None:
            if not named:
                check_distinct(name, labels)
            return labels
    return None


def _check_order(labels: pd.Index[Any], ids: pd.Index[Any]) -> None:
    """Refuse a column that is labelled by the ids, in another order than theirs."""
    if not labels.equals(ids) and not labels.symmetric_difference(ids, sort=False).size:
        raise DataError(
            "a column is labelled by the ids, in another order than ids has; give the sellers' "
            "columns all with labels, or put it in order first: column.loc[ids]"
        )


def _parts(
    priors: tuple[Prior, ...], prior_of: NDArray[np.intp] | None, positions: NDArray[np.intp]
) -> list[tuple[Prior, NDArray[np.intp]]]:
    """Return the priors of some sellers, each with its sellers' places among ``positions``."""
    if prior_of is None:
        return [(prior, np.arange(positions.size)) for prior in priors]
    own = prior_of[positions]
    order = np.argsort(own, kind="stable")
    kinds, first = np.unique(own[order], return_index=True)
    places = np.split(order, first[1:]) if kinds.size else []
    return [(priors[kind], place) for kind, place in zip(kinds, places, strict=True)]


def _priors(
    given: PriorOrPriors | None, groups: NDArray[Any] | None, m: int
) -> tuple[tuple[Prior, ...], NDArray[np.intp] | None]:
    """Return the distinct priors, and each seller's place among them if there are several."""
    if given is None:
        raise SellersError(
            "sensitivities need the prior they are drawn from, for example "
            "prior=Uniform(0.02, 0.10); without one, give virtual_costs"
        )
    if isinstance(given, Prior):
        return (given,), None
    if isinstance(given, str) or not is_iterable(given):
        raise SellersError(
            f"prior is {given!r}, which is not a prior; give one such as "
            "Uniform(0.02, 0.10), or Prior.from_scipy(frozen distribution); or one for each "
            "seller, or a mapping from group to prior"
        )
    if isinstance(given, Mapping):
        each = _by_group(given, groups)
    else:
        each = list(given)
        if len(each) != m:
            raise SellersError(f"{len(each)} priors for {m} sellers; give one for each, or one")
        for position, prior in enumerate(each):
            _check_prior(f"prior[{position}]", prior)
    place = {prior: number for number, prior in enumerate(dict.fromkeys(each))}
    if len(place) == 1:
        return tuple(place), None
    return tuple(place), np.array([place[prior] for prior in each], dtype=np.intp)


def _by_group(given: Mapping[Any, Prior], groups: NDArray[Any] | None) -> list[Prior]:
    """Return the prior of each seller from its group."""
    if groups is None:
        raise SellersError(
            "prior is a mapping from group to prior, but groups is missing; give the group of "
            "each seller, groups=[...]"
        )
    for group, prior in given.items():
        _check_prior(f"prior[{group!r}]", prior)
    names = groups.tolist()
    for position, name in enumerate(names):
        if name not in given:
            raise SellersError(
                f"groups[{position}] is {name!r}, but prior has no such group; it has "
                f"{', '.join(map(repr, list(given)[:10]))}"
            )
    return [given[name] for name in names]


def _check_prior(name: str, prior: object) -> None:
    if not isinstance(prior, Prior):
        raise SellersError(
            f"{name} is {prior!r}, which is not a prior; give one such as Uniform(0.02, 0.10), or "
            "Prior.from_scipy(frozen distribution)"
        )


def _groups(groups: Any, m: int) -> NDArray[Any] | None:
    """Return the group of each seller, read-only."""
    if groups is None:
        return None
    try:
        labels = np.array(groups)
    except ValueError:  # lists of several lengths
        labels = np.empty((0, 0))
    if labels.shape != (m,):
        raise SellersError(
            f"groups has shape {labels.shape} for {m} sellers; give one group for each"
        )
    labels.flags.writeable = False
    return labels


def _position(position: int, m: int) -> int:
    """Return the place of one seller."""
    whole = isinstance(position, int | np.integer) and not isinstance(position, bool)
    if not whole or not 0 <= position < m:
        raise SellersError(f"position must be a whole number from 0 to {m - 1}, got {position!r}")
    return int(position)


def _replaced(
    values: NDArray[np.float64] | None, position: int, value: float
) -> NDArray[np.float64]:
    changed = np.array(values)
    changed[_position(position, changed.size)] = value
    changed.flags.writeable = False
    return changed


def _given_costs(given: ArrayLike | cp.Parameter | None) -> NDArray[np.float64] | cp.Parameter:
    """Return virtual costs that are checked, or a parameter that takes no others."""
    if not isinstance(given, cp.Parameter):
        return _costs("virtual_costs", given)
    if given.ndim != 1 or given.size == 0 or not given.is_nonneg():
        raise SellersError(
            f"virtual_costs is a parameter of shape {given.shape}; give cp.Parameter(m, "
            "nonneg=True) for m sellers"
        )
    return given


def _costs(name: str, values: ArrayLike | None) -> NDArray[np.float64]:
    """Return ``values`` as a read-only vector of finite numbers >= 0."""
    try:
        costs = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise SellersError(f"{name} must be numbers: {where_no_number(values)}") from None
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
    try:
        names = list(ids)
        forms = forms_of(names)
        distinct = len(set(forms))
    except TypeError:
        raise SellersError(f"ids must be a list of text or whole numbers, got {ids!r}") from None
    except ParameterError as error:
        raise SellersError(str(error)) from None
    if len(names) != m:
        raise SellersError(f"{len(names)} ids for {m} sellers; give one for each")
    if distinct != m:
        twice = Counter(forms).most_common(1)[0][0]
        raise SellersError(f"id {twice!r} stands for more than one seller; ids must be distinct")
    return tuple(names)
