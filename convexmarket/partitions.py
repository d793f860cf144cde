"""Sellers and rows in the partitions of Dask, and the offers of lists that do not fit in memory.

Only this optional module imports Dask. :func:`sellers` and :func:`rows` wrap Dask
collections; markets and learners take what they return, and see it only as parts over which
functions are mapped (:class:`~convexmarket.sellers.SellerParts`,
:class:`~convexmarket.learners.parted.RowParts`). Dask repeats the work of a worker that dies, so
every function that is mapped gives the same result each time.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.allocation.partitioned_sellers import PartedAllocation
from convexmarket.checks import forms_of
from convexmarket.data.columns import ID_NAMES, REPORT_NAMES
from convexmarket.data.files import open_parquet
from convexmarket.data.lists import column_named
from convexmarket.deal import PartedTable, combined_totals, totals_of
from convexmarket.errors import (
    AllocationError,
    DataError,
    NotSupportedError,
    ParameterError,
    SellersError,
)
from convexmarket.incentives.rules import part_payments
from convexmarket.io import sync_folder
from convexmarket.priors.base import Prior, PriorLike, as_prior
from convexmarket.sellers import Sellers

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
#: Small row groups of a file are read together, up to this number of rows.
_ROWS = 1 << 20
_COLUMNS = ("id", "ask")


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


# ------------------------------------------------------------------------------ sellers


def sellers(sensitivities: Any, prior: PriorLike, ids: Any = None) -> Sellers:
    """Return sellers whose reports stay in the partitions of a Dask column.

    :func:`~convexmarket.allocate`, :func:`~convexmarket.payments` and
    :func:`~convexmarket.audit_incentives` accept their markets of ``Spread``, ``Noise``,
    ``Payments``, ``Cap`` and ``EtaRange``. Weights and payments are Dask columns, too.

    Parameters
    ----------
    sensitivities : Dask Series or one-dimensional Array
        For example one column of a Parquet folder. A pass checks it.
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
    reports, names = _parts_of(sensitivities), None
    if ids is not None:
        names = _parts_of(ids) if hasattr(ids, "to_delayed") else []
        if len(names) != len(reports):
            raise SellersError(
                f"ids has {len(names)} partitions, sensitivities {len(reports)}; give columns of "
                "one Dask DataFrame"
            )
    place = "row {1} of partition {0}".format
    return Sellers.in_parts(_Column(reports, names, prior, place, sensitivities), prior)


class _Column:
    """Checked reports and ids in partitions: the storage of :class:`Sellers`."""

    def __init__(
        self,
        reports: list[Any],
        ids: list[Any] | None,
        prior: Prior,
        place: Callable[[int, int], str],
        series: Any = None,
    ) -> None:
        self._reports, self._ids, self._place, self._series = reports, ids, place, series
        low, high = prior.support
        found = self.map_parts(partial(_checked, max(low, 0.0), high))
        self._sizes = [size for size, _ in found]
        for number, (_, bad) in enumerate(found):
            if bad >= 0:
                raise SellersError(
                    f"{place(number, bad)} holds no number in the support [{low:g}, {high:g}] of "
                    f"{prior!r}; correct the report, or declare a prior that covers it"
                )
        if not len(self):
            raise SellersError("all partitions are empty; give at least one seller")
        if ids is not None:
            self._check_ids(ids)

    def __len__(self) -> int:
        return sum(self._sizes)

    def map_parts(self, work: Callable[[Floats], Any]) -> Sequence[Any]:
        return _computed(partial(_on_reports, work), self._reports)

    def column(self, work: Callable[[Floats], Any], name: str) -> Any:
        # A delayed object is sent once to each worker, and not with each partition.
        sent = dask.delayed(work, pure=False, traverse=False)
        return self._series.map_partitions(_row_by_row, sent, name, meta=(name, float))

    def take(self, positions: NDArray[np.intp]) -> tuple[Floats, list[Any]]:
        ends = np.cumsum(self._sizes)
        part = np.searchsorted(ends, positions, side="right")
        own = {int(k): positions[part == k] - (ends[k] - self._sizes[k]) for k in np.unique(part)}

        def read(parts: list[Any]) -> list[Any]:
            found = _computed(_rows_at, [(parts[k], places) for k, places in own.items()])
            return [value for some in found for value in some]

        reports = np.array(read(self._reports), dtype=float)
        return reports, positions.tolist() if self._ids is None else read(self._ids)

    def _check_ids(self, parts: list[Any]) -> None:
        windows = -(-len(self) // _HASHES)
        for window in range(windows):
            found = _computed(partial(_hashes, window, windows), parts)
            for number, (_, row, fault) in enumerate(found):
                if fault:
                    raise SellersError(f"{self._place(number, row)}: {fault}")
                if row != self._sizes[number]:
                    raise SellersError(
                        f"partition {number} has {self._sizes[number]} sellers and {row} ids"
                    )
            hashes = np.sort(np.concatenate([part for part, _, _ in found]))
            twice = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
            first: dict[Any, str] = {}
            again = _computed(partial(_with_hashes, twice), parts) if twice.size else []
            for number, pairs in enumerate(again):
                for form, row in pairs:
                    place = self._place(number, row)
                    if form in first:
                        raise SellersError(
                            f"id {form!r} stands for more than one seller, {first[form]} and "
                            f"{place}; ids must be distinct"
                        )
                    first[form] = place


def _parts_of(series: Any) -> list[Any]:
    """Return the partitions of a column, as the user counts them: Dask's optimiser joins some."""
    plan = series.simplify() if hasattr(series, "simplify") else series
    return list(plan.to_delayed(optimize_graph=False))


def _computed(work: Callable[[Any], Any], parts: Sequence[Any]) -> Sequence[Any]:
    return dask.compute(*(dask.delayed(work, pure=False)(part) for part in parts))


def _rows_at(part: tuple[Any, NDArray[np.intp]]) -> list[Any]:
    column, places = part
    return column.iloc[places].tolist()


def _numbers(part: Any) -> Floats:
    return np.ascontiguousarray(part.to_numpy(dtype=float, na_value=np.nan))


def _on_reports(work: Callable[[Floats], Any], part: Any) -> Any:
    return work(_numbers(part))


def _row_by_row(part: Any, work: Callable[[Floats], Any], name: str) -> Any:
    return pd.Series(work(_numbers(part)), index=part.index, name=name)


def _checked(low: float, high: float, reports: Floats) -> tuple[int, int]:
    """Return the number of reports, and the position of the first bad one, or -1."""
    bad = ~((reports >= low) & (reports <= high) & (reports < np.inf))
    return reports.size, int(np.argmax(bad)) if bad.any() else -1


def _hashed(part: Any, place: Callable[[int], str]) -> tuple[Sequence[Any], NDArray[np.uint64]]:
    forms = forms_of(part.tolist(), place)
    return forms, pd.util.hash_array(np.array(forms, dtype=object), categorize=False)


def _hashes(window: int, windows: int, part: Any) -> tuple[NDArray[np.uint64], int, str]:
    """Return hashes of ids and the number of ids; or the row of the first bad id, and its fault."""
    nothing, rows = np.empty(0, np.uint64), np.flatnonzero(part.isna()).tolist()
    if rows:
        return nothing, rows[0], "there is no id"

    def place(row: int) -> str:
        rows.append(row)
        return "id"

    try:
        _, hashes = _hashed(part, place)
    except ParameterError as error:
        return nothing, rows[-1], str(error)
    return hashes[hashes % np.uint64(windows) == window], hashes.size, ""


def _with_hashes(wanted: NDArray[np.uint64], part: Any) -> list[tuple[Any, int]]:
    forms, hashes = _hashed(part, str)
    return [(forms[row], row) for row in np.flatnonzero(np.isin(hashes, wanted)).tolist()]


# --------------------------------------------------------------------------------- rows


def rows(X: Any) -> Any:
    """Return the rows of a Dask array, for a learner that fits them in their partitions.

    Learners by objective perturbation and private ridge regressions accept the result, a
    :class:`~convexmarket.learners.parted.RowParts`, as ``X``. Labels and epsilon are arrays in
    memory.

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
        return dask.persist(*(dask.delayed(one, pure=False, traverse=False) for one in split))

    def map_parts(self, work: Callable[..., Any], *sent: Any) -> list[Any]:
        each = zip(self._parts, *sent, strict=True)
        on_part = dask.delayed(work, pure=False)
        return list(dask.compute(*(on_part(*part) for part in each)))


# ------------------------------------------------------------------------------- tables


def table(source: Any) -> PartedTable:
    """Return a list of sellers in partitions, for :func:`~convexmarket.price`.

    Parameters
    ----------
    source : Dask DataFrame, or path of a Parquet file or of a folder of Parquet files
        One row per seller, with an id and a report. Workers read files themselves, so the path is
        the same for all of them. Small row groups of a file form one partition.

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
    if isinstance(source, str | PathLike):
        return _Files(Path(source))
    if not hasattr(source, "map_partitions") or source.ndim != 2:
        raise DataError("source must be a Dask DataFrame, or the path of Parquet files")
    return _Table(source)


class _Table:
    """A Dask DataFrame with an id and a report per row."""

    path: str | None = None

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def sellers(self, prior: Prior, ask: str | None, id: str | None) -> Sellers:
        names = _names(self._frame.columns, ask, id)
        frame = self._frame[list(names)].rename(columns=dict(zip(names, _COLUMNS, strict=True)))
        self._frames = _parts_of(frame)
        return sellers(frame["ask"], prior, ids=frame["id"])

    def offers(self, allocation: PartedAllocation) -> Any:
        """Return a lazy table of the offers, indexed by id."""
        nothing = pd.DataFrame({"id": pd.Series(dtype=object), "ask": np.zeros(0)})
        parts = self._on_parts(_offers_of, allocation)
        return dask.dataframe.from_delayed(
            parts, meta=_with_numbers(nothing, *np.zeros((4, 0))).set_index("id"), verify_meta=False
        )

    def totals(self, allocation: PartedAllocation) -> Sequence[dict[str, float]]:
        return dask.compute(*self._on_parts(_totals_of, allocation))

    def write(
        self,
        folder: Path,
        allocation: PartedAllocation,
        document: Callable[[dict[str, float]], bytes],
    ) -> None:
        """Write one file for each partition and the certificate; the folder appears complete."""
        if os.path.lexists(folder):
            raise ParameterError(f"{folder} exists; name a new folder for the offers")
        fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.new")
        try:
            fresh.mkdir(parents=True, mode=0o700)
            written = self._on_parts(partial(_write, fresh.absolute()), allocation, numbered=True)
            totals = combined_totals(dask.compute(*written))
            unread = totals["sellers"] != allocation.n_sellers
            if unread or abs(totals["weight"] - 1) > 1e-9:
                raise AllocationError(
                    "the weights do not sum to one: a file changed during the run; repeat it"
                )
            (fresh / CERTIFICATE).write_bytes(document(totals))
            for left in fresh.glob(".*"):  # by a worker that died
                left.unlink()
            sync_folder(fresh)
            os.rename(fresh, folder)
        except OSError as error:
            raise DataError(f"{folder}: {error.strerror or error}; nothing was written") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        sync_folder(folder.parent)

    def _on_parts(
        self, work: Callable[..., Any], allocation: PartedAllocation, numbered: bool = False
    ) -> list[Any]:
        """Return delayed results of ``work`` on each partition."""
        # The allocation is sent once to each worker.
        sent = dask.delayed(allocation, pure=False, traverse=False)
        on_part = dask.delayed(work, pure=False, traverse=False)
        parts = enumerate(self._frames)
        return [on_part(sent, frame, *([k] if numbered else [])) for k, frame in parts]


class _Files(_Table):
    """Parquet files with an id and a report per row; errors name the file and the row."""

    def __init__(self, path: Path) -> None:
        self.path: str | None = str(path)
        self._files = [path]
        if path.is_dir():
            self._files = sorted(
                file for file in path.glob("*.parquet") if file.name[0] not in "._"
            )
            if not self._files:
                raise DataError(f"{path} is a folder without Parquet files; give *.parquet files")

    def sellers(self, prior: Prior, ask: str | None, id: str | None) -> Sellers:
        self._pieces = [piece for file in self._files for piece in _pieces(file, ask, id)]
        if not self._pieces:
            raise DataError(f"{self.path} has no rows; give one row per seller")
        ids, reports = (
            [dask.delayed(partial(_column, name), pure=False)(piece) for piece in self._pieces]
            for name in _COLUMNS
        )
        self._frames = [dask.delayed(_whole, pure=False)(piece) for piece in self._pieces]
        return Sellers.in_parts(_Column(reports, ids, prior, self._place), prior)

    def _place(self, partition: int, row: int) -> str:
        piece = self._pieces[partition]
        return f"{piece.path}: row {piece.before + row + 1}"


@dataclass(frozen=True)
class _Piece:
    """Row groups of a Parquet file, with the number of its rows before them."""

    path: str
    groups: tuple[int, ...]
    before: int
    columns: tuple[str, str]

    def read(self, *names: str) -> pd.DataFrame:
        """Return the columns "id" and "ask", or one of them."""
        columns = [self.columns[_COLUMNS.index(name)] for name in names]
        with open_parquet(self.path) as file:
            rows = file.read_row_groups(list(self.groups), columns=columns)
            return rows.select(columns).to_pandas().set_axis(list(names), axis=1)


def _column(name: str, piece: _Piece) -> pd.Series[Any]:
    return piece.read(name)[name]


def _whole(piece: _Piece) -> pd.DataFrame:
    return piece.read(*_COLUMNS)


def _names(header: Iterable[str], ask: str | None, id: str | None) -> tuple[str, str]:
    """Return the names of the columns of ids and reports."""
    columns = list(header)
    return (
        column_named(columns, id, ID_NAMES, "--id-column"),
        column_named(columns, ask, REPORT_NAMES, "--sensitivity-column"),
    )


def _pieces(path: Path, ask: str | None, id: str | None) -> Iterator[_Piece]:
    """Yield the row groups of a file, small ones together."""
    import pyarrow as pa

    with open_parquet(path) as file:
        names = _names(file.schema_arrow.names, ask, id)
        kind = file.schema_arrow.field(names[1]).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise DataError(f"{path}: the column {names[1]!r} contains {kind}; give numbers")
        sizes = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    ends = np.cumsum([0, *sizes])
    begin = 0
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or ends[end + 1] - ends[begin] > _ROWS:
            groups = tuple(range(begin, end))
            yield _Piece(str(path.absolute()), groups, int(ends[begin]), names)
            begin = end


def _with_numbers(
    frame: pd.DataFrame, epsilon: Floats, weight: Floats, payment: Floats, surplus: Floats
) -> pd.DataFrame:
    return frame.assign(epsilon=epsilon, weight=weight, payment=payment, surplus=surplus)


def _offered(allocation: PartedAllocation, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the offers of a partition, the same on any worker."""
    asks = _numbers(frame["ask"])
    weights = allocation.weights_of(asks)
    epsilon, paid = allocation.eta * weights, part_payments(allocation, asks)
    return _with_numbers(frame, epsilon, weights, paid, paid - asks * epsilon)


def _offers_of(allocation: PartedAllocation, frame: pd.DataFrame) -> pd.DataFrame:
    return _offered(allocation, frame).set_index("id")


def _sums(allocation: PartedAllocation, offers: pd.DataFrame) -> dict[str, float]:
    costs = np.asarray(allocation.prior.ironed_virtual_cost(_numbers(offers["ask"])))
    return totals_of(offers, costs, offers["epsilon"].to_numpy())


def _totals_of(allocation: PartedAllocation, frame: pd.DataFrame) -> dict[str, float]:
    return _sums(allocation, _offered(allocation, frame))


def _write(
    folder: Path, allocation: PartedAllocation, frame: pd.DataFrame, number: int
) -> dict[str, float]:
    """Write the offers of one partition, and return their totals."""
    offers = _offered(allocation, frame)
    hidden = folder / f".{number}.{secrets.token_hex(4)}"
    offers.to_parquet(hidden, index=False)
    os.replace(hidden, folder / f"part.{number:06}.parquet")
    return _sums(allocation, offers)
