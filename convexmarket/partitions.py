"""Sellers and rows in Dask partitions, and offers for lists that do not fit in memory.

Only this optional module imports Dask. Markets and learners map functions over the parts that
:func:`sellers` and :func:`rows` return. Dask repeats the work of a failed worker, so every mapped
function is deterministic.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, pairwise
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.partitioned_sellers import PartedAllocation
from convexmarket.checks import forms_of, shown
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

_HASHES = 1 << 24  # number of id hashes that are compared in one pass
#: File in a folder of offers. Readers of Parquet skip names that begin with an underscore.
CERTIFICATE = "_certificate.json"


def workers(address: str, *, trust_scheduler: bool = False) -> Any:
    """Create a client of Dask workers as a context manager.

    Every process that can connect to a Dask scheduler or worker can run code there. Local workers
    therefore require a TLS certificate that exists only in memory.

    Parameters
    ----------
    address : str
        "local" for one worker per core, or the address of a scheduler.
    trust_scheduler : bool, default False
        Whether a scheduler without TLS is accepted.

    Raises
    ------
    NotSupportedError, ParameterError
        If the package ``cryptography`` is missing, or no trusted scheduler answers.
    """
    if address == "local":
        # Disable the dashboard, which shows task names and logs without a password.
        quiet = {"distributed.scheduler.http.routes": ["distributed.http.health"]}
        try:
            with dask.config.set(quiet):
                return Client(threads_per_worker=1, dashboard_address=None, security=True)
        except ImportError:
            lacking = "local workers need the package cryptography; install convexmarket[dask]"
            raise NotSupportedError(lacking) from None
    if not (trust_scheduler or address.startswith("tls://")):
        raise ParameterError(
            f"dask is {address!r}, which has no TLS: every process that can connect to it can run "
            "code as you; give a tls:// address, or --trust-scheduler on a trusted network"
        )
    before = dask.config.get("scheduler", None)
    try:
        return Client(address, timeout=5)
    except (OSError, ValueError, TypeError) as error:
        dask.config.set(scheduler=before)  # a failed client remains registered as the scheduler
        remedy = "start one with 'dask scheduler', and workers with 'dask worker ADDRESS'"
        why = f"dask is {address!r}, where no scheduler answers ({error}); {remedy}"
        raise ParameterError(why) from None


def sellers(sensitivities: Any, prior: PriorLike, ids: Any = None) -> Sellers:
    """Create sellers whose reports remain in the partitions of a Dask column.

    Markets of these sellers can contain ``Spread``, ``Noise``, ``Payments``, ``Cap`` and
    ``EtaRange``. Weights and payments are also Dask columns.

    Parameters
    ----------
    sensitivities, ids : Dask Series or one-dimensional Array, Dask Series
        Columns in the same partitions. The ids are compared by their hashes in several passes.
    prior : Prior or frozen scipy.stats distribution
        The distribution of all sensitivities.

    Raises
    ------
    SellersError
        If the column is empty, a sensitivity is not in the prior's support, or an id is missing,
        malformed or not distinct. The message contains the first invalid row and its partition.

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
    if sensitivities.ndim != 1 or getattr(sensitivities.dtype, "kind", "O") not in "fiu":
        raise SellersError("sensitivities must be one column of numbers")
    if not hasattr(sensitivities, "map_partitions"):
        sensitivities = dask.dataframe.from_dask_array(sensitivities)
    return Sellers.in_parts(_Column(sensitivities, ids, prior), prior)


class _Column:
    """Checked reports and ids in partitions, as storage of :class:`Sellers`."""

    def __init__(self, series: Any, ids: Any, prior: Prior) -> None:
        self._series, self._reports, self._ids = series, _parts_of(series), None
        numbers = range(len(self._reports))
        check = partial(_checked_size, *prior.support, repr(prior))
        self._sizes = _computed(check, self._reports, numbers)
        if not len(self):
            raise SellersError("all partitions are empty; give at least one seller")
        if ids is not None:
            self._ids = _parts_of(ids) if hasattr(ids, "to_delayed") else []
            if len(self._ids) != len(numbers):
                sizes = f"{len(self._ids)} partitions, sensitivities {len(numbers)}"
                raise SellersError(f"ids has {sizes}; give columns of one Dask DataFrame")
            for window in range(windows := -(-len(self) // _HASHES)):
                part_of = partial(_hashes, window, windows)
                hashes = np.concatenate(_computed(part_of, self._ids, numbers, self._sizes))
                values, counts = np.unique(hashes, return_counts=True)
                if (twice := values[counts > 1]).size:
                    parts = _computed(partial(_with_hashes, twice), self._ids, numbers)
                    forms = sorted(chain(*parts), key=itemgetter(0))
                    for (form, place), (following, other) in pairwise(forms):
                        if form == following:
                            name = f"id {form!r} belongs to more than one seller"
                            raise SellersError(f"{name}, {place} and {other}")

    def __len__(self) -> int:
        return sum(self._sizes)

    def map_parts(self, work: Callable[[Floats], Any]) -> Sequence[Any]:
        return _computed(lambda part: work(_numbers(part)), self._reports)

    def column(self, work: Callable[[Floats], Any], name: str) -> Any:
        return self._series.map_partitions(_row_by_row, _sent(work), name, meta=(name, float))

    def take(self, positions: NDArray[np.intp]) -> tuple[Floats, list[Any]]:
        ends = np.cumsum(self._sizes)
        part = np.searchsorted(ends, positions, side="right")
        rows = {int(k): positions[part == k] - (ends[k] - self._sizes[k]) for k in np.unique(part)}

        def read(parts: list[Any]) -> list[Any]:
            work, some = lambda part, places: part.iloc[places].tolist(), [parts[k] for k in rows]
            return [value for values in _computed(work, some, rows.values()) for value in values]

        ids = positions.tolist() if self._ids is None else read(self._ids)
        return np.array(read(self._reports), dtype=float), ids


def _place(partition: int, row: int) -> str:
    return f"row {row} of partition {partition}"


def _parts_of(series: Any) -> list[Any]:
    """Return the partitions of a column, without fusion by the optimiser of Dask."""
    plan = series.simplify() if hasattr(series, "simplify") else series
    return list(plan.to_delayed(optimize_graph=False))


def _sent(value: Any) -> Any:
    """Wrap an object so that Dask sends it once to each worker, not with each partition."""
    return dask.delayed(value, pure=False, traverse=False)


def _computed(work: Callable[..., Any], *parts: Iterable[Any]) -> Sequence[Any]:
    on_part = dask.delayed(work, pure=False)
    return dask.compute(*(on_part(*part) for part in zip(*parts, strict=True)))


def _numbers(part: Any) -> Floats:
    return np.ascontiguousarray(part.to_numpy(dtype=float, na_value=np.nan))


def _row_by_row(part: Any, work: Callable[[Floats], Any], name: str) -> Any:
    return pd.Series(work(_numbers(part)), index=part.index, name=name)


def _checked_size(low: float, high: float, prior: str, part: Any, number: int) -> int:
    """Check that all reports are in the support of the prior, and count the reports."""
    reports = _numbers(part)
    bad = ~((reports >= max(low, 0.0)) & (reports <= high) & (reports < np.inf))
    if bad.any():
        place, what = _place(number, int(np.argmax(bad))), f"the support [{low:g}, {high:g}]"
        raise SellersError(f"{place} contains no number in {what} of {prior}; correct the row")
    return reports.size


def _forms(part: Any, number: int) -> tuple[Sequence[str], NDArray[np.uint64]]:
    """Compute the normal forms of ids, and the hashes of these forms."""
    if (missing := part.isna().to_numpy()).any():
        raise SellersError(f"{_place(number, int(np.argmax(missing)))}: the id is missing")
    try:
        forms = forms_of(part.tolist(), lambda row: f"{_place(number, row)}: id")
    except ParameterError as error:
        raise SellersError(str(error)) from None
    return forms, pd.util.hash_array(np.array(forms, dtype=object), categorize=False)


def _hashes(window: int, windows: int, part: Any, number: int, size: int) -> NDArray[np.uint64]:
    """Compute the hashes of ids, and return the hashes that equal ``window`` modulo ``windows``."""
    hashes = _forms(part, number)[1]
    if hashes.size != size:
        raise SellersError(f"partition {number} has {size} sellers and {hashes.size} ids")
    return hashes[hashes % np.uint64(windows) == window]


def _with_hashes(wanted: NDArray[np.uint64], part: Any, number: int) -> list[tuple[str, str]]:
    """Return the ids with the given hashes, and their positions."""
    forms, hashes = _forms(part, number)
    rows = np.flatnonzero(np.isin(hashes, wanted)).tolist()
    return [(forms[row], _place(number, row)) for row in rows]


def rows(X: Any) -> Any:
    """Wrap the rows of a Dask array for a learner that processes partitions.

    Private linear models accept the result as ``X``. Labels and epsilon are arrays in memory.

    Parameters
    ----------
    X : Dask array of shape (n_rows, n_features)
        Matrix of numbers. A DataError is raised if a partition has an unknown length.
    """
    matrix = hasattr(X, "rechunk") and X.ndim == 2 and X.shape[1] > 0 and X.dtype.kind in "fiub"
    if not matrix or np.isnan(X.shape).any():
        what = "a Dask array, a matrix of numbers, after X.compute_chunk_sizes()"
        raise DataError(f"X must be {what}, got {shown(X)}")
    return _Rows(X.rechunk({1: -1}))


class _Rows:
    """Rows in the partitions of a Dask array."""

    def __init__(self, X: Any) -> None:
        self.shape = int(X.shape[0]), int(X.shape[1])
        self._parts = list(X.to_delayed()[:, 0])
        self._cuts = np.cumsum(X.chunks[0])[:-1]

    def send(self, *columns: NDArray[Any]) -> Any:
        split = zip(*(np.split(column, self._cuts) for column in columns), strict=True)
        return dask.persist(*map(_sent, split))

    def map_parts(self, work: Callable[..., Any], *sent: Any) -> list[Any]:
        return list(_computed(work, self._parts, *sent))


def table(source: Any) -> PartedTable:
    """Create a list of sellers in partitions for :func:`~convexmarket.price`.

    Parameters
    ----------
    source : Dask DataFrame, or path of a Parquet file or of a folder of Parquet files
        One row per seller, with an id and a report. Workers read the files directly. Each row group
        is a partition. A DataError is raised if a file is missing or damaged.
    """
    if isinstance(source, str | PathLike):
        path = Path(source).absolute()
        pieces, empty = [], None
        for file in sorted(path.glob("[!._]*.parquet")) if path.is_dir() else [path]:
            with open_parquet(file) as stored:
                empty = stored.schema_arrow.empty_table().to_pandas(ignore_metadata=True)
                pieces += [(file, group) for group in range(stored.num_row_groups)]
        if not pieces:
            raise DataError(f"{source} has no rows in Parquet files; give one row per seller")
        return PartedTable(dask.dataframe.from_map(_read, pieces, meta=empty), str(source))
    if not hasattr(source, "map_partitions") or source.ndim != 2:
        raise DataError("source must be a Dask DataFrame, or the path of Parquet files")
    return PartedTable(source)


def _read(piece: tuple[Path, int], columns: list[Any] | None = None) -> pd.DataFrame:
    """Read columns of a row group of a file."""
    with open_parquet(piece[0]) as file:
        rows = file.read_row_group(piece[1], columns=columns).to_pandas(ignore_metadata=True)
        return rows if columns is None else rows[columns]


@dataclass(frozen=True)
class PartedTable:
    """A Dask DataFrame with an id and a report per row."""

    frame: Any
    path: str | None = None

    def deal(
        self,
        prior: Prior,
        objective: Objective | Term,
        constraints: Iterable[Constraint],
        ask: str | None,
        id: str | None,
        stage: Callable[[str], None],
    ) -> PartedDeal:
        """Compute the offers to the sellers. ``stage`` is called at the start of each stage."""
        stage("reading")
        header = list(self.frame.columns)
        name = column_named(header, id, ID_NAMES, "--id-column")
        report = column_named(header, ask, REPORT_NAMES, "--sensitivity-column")
        people = sellers(self.frame[report], prior, self.frame[name])
        market = Market(people, objective, constraints)
        stage("allocating")
        allocation: Any = allocate(market)
        frame = self.frame[[name, report]].rename(columns={name: "id", report: "ask"})
        empty = pd.DataFrame({"id": pd.Series(dtype=object), "ask": np.zeros(0)})
        meta = _offers(empty, allocation)
        offers = frame.map_partitions(_offers, _sent(allocation), meta=meta)
        return PartedDeal(offers, market, allocation, source={"file": self.path, "sha256": None})


@dataclass(frozen=True, eq=False, repr=False)
class PartedDeal(Deal):
    """Offers to sellers in partitions, as a Dask DataFrame."""

    @cached_property
    def totals(self) -> dict[str, float]:
        """Totals of the offers; see :attr:`Deal.totals`."""
        return self._total(self.offers)

    def _total(self, offers: Any) -> dict[str, float]:
        """Combine the totals of the partitions."""
        totals = _computed(partial(_totals, self.allocation.prior), _parts_of(offers))
        ends = {"smallest_surplus": min, "largest_epsilon": max}
        return {name: ends.get(name, sum)(part[name] for part in totals) for name in totals[0]}

    def write(
        self, path: str | PathLike[str], *, audit: IncentiveAudit | None = None, force: bool = False
    ) -> tuple[Path, ...]:
        """Write a file for each partition and the certificate to a new folder atomically.

        All workers must be able to write to the folder. An existing folder is never replaced.
        """
        folder = Path(path)
        if os.path.lexists(folder):
            raise ParameterError(f"{folder} exists; name a new folder for the offers")
        fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.new")
        try:
            fresh.mkdir(parents=True, mode=0o700)
            self.offers.reset_index().to_parquet(fresh.absolute(), write_index=False, schema=None)
            written = dask.dataframe.read_parquet(fresh.absolute(), split_row_groups=True)
            vars(self)["totals"] = totals = self._total(written)
            lost = totals["sellers"] != self.allocation.n_sellers
            if lost or abs(totals["weight"] - 1) > 1e-9:
                why = "the weights do not sum to one: a file changed during the run; repeat the run"
                raise AllocationError(why)
            (fresh / CERTIFICATE).write_bytes(json_of(self.to_dict(audit)))
            sync_folder(fresh)
            os.rename(fresh, folder)
        except OSError as error:
            raise DataError(f"{folder}: {error.strerror or error}; nothing was written") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        sync_folder(folder.parent)
        return (folder,)


def _offers(part: pd.DataFrame, allocation: PartedAllocation) -> pd.DataFrame:
    """Compute the offers of a partition by id, with the same result on every worker."""
    asks = _numbers(part["ask"])
    weights, paid = allocation.weights_of(asks), part_payments(allocation, asks)
    epsilon = allocation.eta * weights
    offers = part.set_index("id").assign(epsilon=epsilon, weight=weights, payment=paid)
    return offers.assign(surplus=paid - asks * epsilon)


def _totals(prior: Prior, offers: pd.DataFrame) -> dict[str, float]:
    costs = np.asarray(prior.ironed_virtual_cost(_numbers(offers["ask"])))
    return totals_of(offers, costs, offers["epsilon"].to_numpy())
