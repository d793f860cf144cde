"""Sellers and rows in the partitions of Dask, and the offers of lists that do not fit in memory.

Only this optional module imports Dask. Markets and learners see the results of :func:`sellers` and
:func:`rows` only as parts over which functions are mapped. Dask repeats the work of a dead worker,
so every mapped function gives the same result each time.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.partitioned_sellers import PartedAllocation
from convexmarket.checks import forms_of
from convexmarket.data.columns import ID_NAMES, REPORT_NAMES
from convexmarket.data.files import open_parquet
from convexmarket.data.lists import column_named
from convexmarket.deal import Deal, json_of, totals_of
from convexmarket.errors import (
    AllocationError,
    DataError,
    NotSupportedError,
    ParameterError,
    SellersError,
)
from convexmarket.incentives.audit import IncentiveAudit
from convexmarket.incentives.rules import part_payments
from convexmarket.io import sync_folder
from convexmarket.market import Market
from convexmarket.priors.prior import Prior, PriorLike, as_prior
from convexmarket.sellers import Sellers
from convexmarket.terms import Constraint, Objective, Term

try:
    import dask
    import dask.config
    import dask.dataframe
    from distributed import Client
except ImportError:
    raise NotSupportedError("Dask is not installed; install convexmarket[dask]") from None

__all__ = ["rows", "sellers", "table", "workers"]

Floats = NDArray[np.float64]

#: Hashes of ids that are compared at a time.
_HASHES = 1 << 24
#: In a folder of offers; readers of Parquet skip names that begin with an underscore.
CERTIFICATE = "_certificate.json"
_COLUMNS = ("id", "ask")
_NOTHING = pd.DataFrame({"id": pd.Series(dtype=object), "ask": np.zeros(0)})


def workers(address: str, *, trust_scheduler: bool = False) -> Any:
    """Return a client of Dask workers, a context manager.

    Every process that can connect to a scheduler or a worker of Dask runs code as its user. Workers
    on this machine therefore accept connections only with a TLS certificate that is made for them,
    and kept in memory.

    Parameters
    ----------
    address : str
        "local" for one worker per core, or the address of a scheduler.
    trust_scheduler : bool, default False
        Whether a scheduler without TLS is accepted.

    Raises
    ------
    NotSupportedError
        If the package ``cryptography`` is not installed.
    ParameterError
        If the scheduler has no TLS and is not trusted, or cannot be reached.
    """
    if address == "local":
        # The pages of the scheduler show names of tasks and logs, and have no password.
        quiet = {"distributed.scheduler.http.routes": ["distributed.http.health"]}
        try:
            with dask.config.set(quiet):
                return Client(threads_per_worker=1, dashboard_address=None, security=True)
        except ImportError:
            raise NotSupportedError(
                "local workers need the package cryptography; install convexmarket[dask]"
            ) from None
    if not (trust_scheduler or address.startswith("tls://")):
        raise ParameterError(
            f"dask is {address!r}, which has no TLS: every process that can connect to the "
            "scheduler or its workers runs code as you. Give a tls:// address, with "
            "certificates in Dask's configuration, or --trust-scheduler where only trusted users "
            "can connect"
        )
    before = dask.config.get("scheduler", None)
    try:
        return Client(address, timeout=5)
    except (OSError, ValueError, TypeError) as error:
        dask.config.set(scheduler=before)  # a client that fails leaves itself there
        raise ParameterError(
            f"dask is {address!r}, where no scheduler answers ({error}); start one with "
            "'dask scheduler', and workers with 'dask worker ADDRESS'"
        ) from None


def sellers(sensitivities: Any, prior: PriorLike, ids: Any = None) -> Sellers:
    """Return sellers whose reports stay in the partitions of a Dask column.

    :func:`~convexmarket.allocate`, :func:`~convexmarket.payments` and
    :func:`~convexmarket.audit_incentives` accept their markets of ``Spread``, ``Noise``,
    ``Payments``, ``Cap`` and ``EtaRange``. Weights and payments are Dask columns, too.

    Parameters
    ----------
    sensitivities : Dask Series or one-dimensional Array
        Checked in one pass.
    prior : Prior or frozen scipy.stats distribution
        The distribution of all sensitivities.
    ids : Dask Series, optional
        In the same partitions. They are compared by hashes, in a pass for each 16 million of them,
        and 8 bytes of each are sent to this process.

    Raises
    ------
    SellersError
        If the column is empty, a sensitivity is not a number in the prior's support, or an id is
        missing, malformed or not distinct; the message names the first partition and row.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> import convexmarket as cm
    >>> from convexmarket import partitions
    >>> asks = dd.from_pandas(pd.Series([0.1, 0.6, 0.4]), npartitions=2)
    >>> sellers = partitions.sellers(asks, cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    >>> cm.allocate(market).epsilon.compute().round(2).tolist()
    [0.89, 0.37, 0.58]
    """
    prior = as_prior(prior, error=SellersError)
    if np.dtype(object) == sensitivities.dtype or sensitivities.ndim != 1:
        raise SellersError("sensitivities must be one column of numbers")
    if not hasattr(sensitivities, "map_partitions"):
        sensitivities = dask.dataframe.from_dask_array(sensitivities)
    return Sellers.in_parts(_Column(sensitivities, ids, prior, _row_of_partition), prior)


def _row_of_partition(partition: int, row: int) -> str:
    return f"row {row} of partition {partition}"


class _Column:
    """Checked reports and ids in partitions: the storage of :class:`Sellers`."""

    def __init__(
        self, series: Any, ids: Any, prior: Prior, place: Callable[[int, int], str]
    ) -> None:
        self._series, self._reports, self._ids = series, _parts_of(series), None
        low, high = prior.support
        checked = self.map_parts(partial(_first_outside, max(low, 0.0), high))
        self._sizes = [size for size, _ in checked]
        for number, (_, bad) in enumerate(checked):
            if bad >= 0:
                raise SellersError(
                    f"{place(number, bad)} holds no number in the support [{low:g}, {high:g}] of "
                    f"{prior!r}; correct the report, or declare a prior that covers it"
                )
        if not len(self):
            raise SellersError("all partitions are empty; give at least one seller")
        if ids is not None:
            self._ids = _parts_of(ids) if hasattr(ids, "to_delayed") else []
            if len(self._ids) != len(self._reports):
                raise SellersError(
                    f"ids has {len(self._ids)} partitions, sensitivities {len(self._reports)}; "
                    "give columns of one Dask DataFrame"
                )
            for window in range(windows := -(-len(self) // _HASHES)):
                self._check_ids(self._ids, window, windows, place)

    def __len__(self) -> int:
        return sum(self._sizes)

    def map_parts(self, work: Callable[[Floats], Any]) -> Sequence[Any]:
        return _computed(lambda part: work(_numbers(part)), self._reports)

    def column(self, work: Callable[[Floats], Any], name: str) -> Any:
        # A delayed object is sent once to each worker, and not with each partition.
        sent = dask.delayed(work, pure=False, traverse=False)
        return self._series.map_partitions(_row_by_row, sent, name, meta=(name, float))

    def take(self, positions: NDArray[np.intp]) -> tuple[Floats, list[Any]]:
        ends = np.cumsum(self._sizes)
        part = np.searchsorted(ends, positions, side="right")
        rows = {int(k): positions[part == k] - (ends[k] - self._sizes[k]) for k in np.unique(part)}

        def read(parts: list[Any]) -> list[Any]:
            work, some = lambda part, places: part.iloc[places].tolist(), [parts[k] for k in rows]
            return [value for values in _computed(work, some, rows.values()) for value in values]

        reports = np.array(read(self._reports), dtype=float)
        return reports, positions.tolist() if self._ids is None else read(self._ids)

    def _check_ids(
        self, parts: list[Any], window: int, windows: int, place: Callable[[int, int], str]
    ) -> None:
        """Check that the ids with hashes in a window are well-formed and distinct."""
        checked = _computed(partial(_hashes, window, windows), parts)
        for number, (_, row, fault) in enumerate(checked):
            if fault:
                raise SellersError(f"{place(number, row)}: {fault}")
            if row != self._sizes[number]:
                raise SellersError(
                    f"partition {number} has {self._sizes[number]} sellers and {row} ids"
                )
        hashes, counts = np.unique(np.concatenate([x for x, _, _ in checked]), return_counts=True)
        first: dict[Any, str] = {}
        twice = hashes[counts > 1]
        again = _computed(partial(_with_hashes, twice), parts) if twice.size else []
        for number, pairs in enumerate(again):
            for form, row in pairs:
                if form in first:
                    raise SellersError(
                        f"id {form!r} stands for more than one seller, {first[form]} and "
                        f"{place(number, row)}; ids must be distinct"
                    )
                first[form] = place(number, row)


def _parts_of(series: Any) -> list[Any]:
    """Return the partitions of a column, as the user counts them: Dask's optimiser joins some."""
    plan = series.simplify() if hasattr(series, "simplify") else series
    return list(plan.to_delayed(optimize_graph=False))


def _computed(work: Callable[..., Any], *parts: Iterable[Any]) -> Sequence[Any]:
    on_part = dask.delayed(work, pure=False)
    return dask.compute(*(on_part(*part) for part in zip(*parts, strict=True)))


def _numbers(part: Any) -> Floats:
    return np.ascontiguousarray(part.to_numpy(dtype=float, na_value=np.nan))


def _row_by_row(part: Any, work: Callable[[Floats], Any], name: str) -> Any:
    return pd.Series(work(_numbers(part)), index=part.index, name=name)


def _first_outside(low: float, high: float, reports: Floats) -> tuple[int, int]:
    """Return the number of reports, and the position of the first bad one, or -1."""
    bad = ~((reports >= low) & (reports <= high) & (reports < np.inf))
    return reports.size, int(np.argmax(bad)) if bad.any() else -1


def _hashed(part: Any, place: Callable[[int], str]) -> tuple[Sequence[Any], NDArray[np.uint64]]:
    forms = forms_of(part.tolist(), place)
    return forms, pd.util.hash_array(np.array(forms, dtype=object), categorize=False)


def _hashes(window: int, windows: int, part: Any) -> tuple[NDArray[np.uint64], int, str]:
    """Return hashes of ids and the number of ids; or the row of the first bad id, and its fault."""
    rows, nothing = np.flatnonzero(part.isna()).tolist(), np.empty(0, np.uint64)
    if rows:
        return nothing, rows[0], "there is no id"

    def place(row: int) -> str:
        rows.append(row)
        return "id"

    try:
        hashes = _hashed(part, place)[1]
    except ParameterError as error:
        return nothing, rows[-1], str(error)
    return hashes[hashes % np.uint64(windows) == window], hashes.size, ""


def _with_hashes(wanted: NDArray[np.uint64], part: Any) -> list[tuple[Any, int]]:
    forms, hashes = _hashed(part, str)
    return [(forms[row], row) for row in np.flatnonzero(np.isin(hashes, wanted)).tolist()]


def rows(X: Any) -> Any:
    """Return the rows of a Dask array, for a learner that fits them in their partitions.

    Learners by objective perturbation and private ridge regressions accept the result, a
    :class:`~convexmarket.learners.minimiser.RowParts`, as ``X``. Labels and epsilon are
    arrays in memory.

    Parameters
    ----------
    X : Dask array of shape (n_rows, n_features)

    Raises
    ------
    DataError
        If it is not a matrix of numbers with partitions of known lengths.
    """
    if not hasattr(X, "rechunk"):
        raise DataError(
            "X must be a Dask array; of a Dask table, pass X.to_dask_array(lengths=True)"
        )
    if np.isnan(X.shape).any():
        raise DataError("X has partitions of unknown length; pass X.compute_chunk_sizes()")
    if X.ndim != 2 or X.shape[1] == 0 or X.dtype.kind not in "fiub":
        raise DataError(f"X must be a matrix of numbers, got {X.dtype} of shape {X.shape}")
    return _Rows(X.rechunk({1: -1}))


class _Rows:
    """Rows in the partitions of a Dask array."""

    def __init__(self, X: Any) -> None:
        self.shape = int(X.shape[0]), int(X.shape[1])
        self._parts = list(X.to_delayed()[:, 0])
        self._cuts = np.cumsum(X.chunks[0])[:-1]

    def send(self, *columns: NDArray[Any]) -> Any:
        split = zip(*(np.split(column, self._cuts) for column in columns), strict=True)
        return dask.persist(*(dask.delayed(part, pure=False, traverse=False) for part in split))

    def map_parts(self, work: Callable[..., Any], *sent: Any) -> list[Any]:
        return list(_computed(work, self._parts, *sent))


def table(source: Any) -> PartedTable:
    """Return a list of sellers in partitions, for :func:`~convexmarket.price`.

    Parameters
    ----------
    source : Dask DataFrame, or path of a Parquet file or of a folder of Parquet files
        One row per seller, with an id and a report. Workers read files themselves, so the path is
        the same for all of them. Each row group is a partition.

    Raises
    ------
    DataError
        If the path is a folder without Parquet files, or a file cannot be read.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> import convexmarket as cm
    >>> from convexmarket import partitions
    >>> asks = pd.DataFrame({"id": ["Ann", "Bob", "Cem"], "ask": [0.1, 0.6, 0.4]})
    >>> parted = partitions.table(dd.from_pandas(asks, npartitions=2))
    >>> wanted = 2 * cm.Spread() + cm.Noise()
    >>> deal = cm.price(parted, prior=cm.Uniform(0, 1), objective=wanted, gamma=0.5)
    >>> deal.offers["epsilon"].compute().round(2).tolist()
    [0.89, 0.37, 0.58]
    """
    if not isinstance(source, str | PathLike):
        if not hasattr(source, "map_partitions") or source.ndim != 2:
            raise DataError("source must be a Dask DataFrame, or the path of Parquet files")
        return PartedTable(None, source)
    path = Path(source)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.glob("*.parquet") if file.name[0] not in "._")
        if not files:
            raise DataError(f"{path} is a folder without Parquet files; give *.parquet files")
    return PartedTable(str(path), files=files)


@dataclass(frozen=True)
class PartedTable:
    """A Dask DataFrame or Parquet files with an id and a report per row."""

    path: str | None
    frame: Any = None
    files: Sequence[Path] = ()

    def deal(
        self,
        prior: Prior,
        objective: Objective | Term,
        constraints: Iterable[Constraint],
        ask: str | None,
        id: str | None,
        stage: Callable[[str], None],
    ) -> PartedDeal:
        """Return the offers to the sellers; ``stage`` is called as a stage starts."""
        stage("reading")
        place = _row_of_partition
        if self.path is None:
            names = _names(self.frame.columns, ask, id)
            frame = self.frame[names].rename(columns=dict(zip(names, _COLUMNS, strict=True)))
        else:
            pieces = [piece for file in self.files for piece in _pieces(file, ask, id)]
            if not pieces:
                raise DataError(f"{self.path} has no rows; give one row per seller")
            frame = dask.dataframe.from_map(_read, pieces, meta=_NOTHING)
            place = partial(_row_of_file, pieces)
        column = _Column(frame["ask"], frame["id"], prior, place)
        market = Market(Sellers.in_parts(column, prior), objective, constraints)
        stage("allocating")
        allocation: Any = allocate(market)
        parts = _parts_of(frame)
        offers = dask.dataframe.from_delayed(
            _on_parts(_offers, allocation, parts), meta=_offers(allocation, _NOTHING),
            verify_meta=False,
        )  # fmt: skip
        origin = {"file": self.path, "sha256": None}
        return PartedDeal(offers, market, allocation, source=origin, parts=parts)


@dataclass(frozen=True, eq=False, repr=False)
class PartedDeal(Deal):
    """Offers to sellers in partitions; ``parts`` are the delayed tables of ids and reports."""

    parts: Sequence[Any] = ()

    @cached_property
    def totals(self) -> dict[str, float]:
        """As :attr:`Deal.totals`."""
        return _combined(dask.compute(*_on_parts(_totals, self.allocation, self.parts)))

    def write(
        self, path: str | PathLike[str], *, audit: IncentiveAudit | None = None, force: bool = False
    ) -> tuple[Path, ...]:
        """Write a new folder of a file for each partition and the certificate, all at once.

        All workers can write the folder. ``force`` has no effect.

        Raises
        ------
        ParameterError, AllocationError, DataError
            If the folder exists, the table has changed since, or the disk refuses.
        """
        folder = Path(path)
        if os.path.lexists(folder):
            raise ParameterError(f"{folder} exists; name a new folder for the offers")
        fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.new")
        try:
            fresh.mkdir(parents=True, mode=0o700)
            write = partial(_write, fresh.absolute())
            numbers = range(len(self.parts))
            written = dask.compute(*_on_parts(write, self.allocation, self.parts, numbers))
            vars(self)["totals"] = totals = _combined(written)
            unread = totals["sellers"] != self.allocation.n_sellers
            if unread or abs(totals["weight"] - 1) > 1e-9:
                raise AllocationError(
                    "the weights do not sum to one: a file changed during the run; repeat it"
                )
            (fresh / CERTIFICATE).write_bytes(json_of(self.to_dict(audit)))
            for left in fresh.glob(".*"):  # by a worker that died
                left.unlink()
            sync_folder(fresh)
            os.rename(fresh, folder)
        except OSError as error:
            raise DataError(f"{folder}: {error.strerror or error}; nothing was written") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        sync_folder(folder.parent)
        return (folder,)


class _Piece(NamedTuple):
    """A row group of a Parquet file, the rows before it, and its columns of ids and reports."""

    path: str
    group: int
    before: int
    names: list[Any]


def _row_of_file(pieces: Sequence[_Piece], partition: int, row: int) -> str:
    piece = pieces[partition]
    return f"{piece.path}: row {piece.before + row + 1}"


def _read(piece: _Piece, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read the columns "id" and "ask" of a piece, or one of them."""
    wanted = list(columns or _COLUMNS)
    names = [piece.names[_COLUMNS.index(name)] for name in wanted]
    with open_parquet(piece.path) as file:
        rows = file.read_row_group(piece.group, columns=names)
        return rows.select(names).to_pandas().set_axis(wanted, axis=1)


def _names(header: Iterable[Any], ask: str | None, id: str | None) -> list[Any]:
    """Return the names of the columns of ids and reports."""
    columns = list(header)
    return [
        column_named(columns, id, ID_NAMES, "--id-column"),
        column_named(columns, ask, REPORT_NAMES, "--sensitivity-column"),
    ]


def _pieces(path: Path, ask: str | None, id: str | None) -> Iterator[_Piece]:
    """Yield the row groups of a file."""
    with open_parquet(path) as file:
        names = _names(file.schema_arrow.names, ask, id)
        kind = file.schema_arrow.field(names[1]).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise DataError(f"{path}: the column {names[1]!r} contains {kind}; give numbers")
        before = 0
        for group in range(file.num_row_groups):
            yield _Piece(str(path.absolute()), group, before, names)
            before += file.metadata.row_group(group).num_rows


def _on_parts(
    work: Callable[..., Any], allocation: PartedAllocation, parts: Sequence[Any], *more: Any
) -> list[Any]:
    """Return delayed results of the work on each part; the allocation is sent to a worker once."""
    sent = dask.delayed(allocation, pure=False, traverse=False)
    on_part = dask.delayed(work, pure=False, traverse=False)
    return [on_part(sent, *each) for each in zip(parts, *more, strict=True)]


def _offers(allocation: PartedAllocation, part: pd.DataFrame) -> pd.DataFrame:
    """Compute the offers of a partition by id, the same on any worker."""
    asks = _numbers(part["ask"])
    weights, paid = allocation.weights_of(asks), part_payments(allocation, asks)
    epsilon = allocation.eta * weights
    offers = part.set_index("id").assign(epsilon=epsilon, weight=weights, payment=paid)
    return offers.assign(surplus=paid - asks * epsilon)


def _totals(allocation: PartedAllocation, part: pd.DataFrame) -> dict[str, float]:
    costs = np.asarray(allocation.prior.ironed_virtual_cost(_numbers(part["ask"])))
    offers = part if "epsilon" in part else _offers(allocation, part)
    return totals_of(offers, costs, offers["epsilon"].to_numpy())


def _combined(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Combine the totals of partitions."""
    ends = {"smallest_surplus": min, "largest_epsilon": max}
    return {name: ends.get(name, sum)(part[name] for part in parts) for name in parts[0]}


def _write(
    folder: Path, allocation: PartedAllocation, part: pd.DataFrame, number: int
) -> dict[str, float]:
    """Write the offers of one partition, and return their totals."""
    offers = _offers(allocation, part)
    hidden = folder / f".{number}.{secrets.token_hex(4)}"
    offers.reset_index().to_parquet(hidden, index=False)
    os.replace(hidden, folder / f"part.{number:06}.parquet")
    return _totals(allocation, offers)
