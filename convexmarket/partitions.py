"""Sellers and rows in the partitions of Dask, and the offers of lists that do not fit in memory.

This optional module is the only one that imports Dask. :func:`sellers` and :func:`rows` wrap Dask
collections; markets and learners take what they return, and see it only as parts over which
functions are mapped (:class:`~convexmarket.sellers.SellerParts`,
:class:`~convexmarket.learners.parted.RowParts`). Dask repeats the work of a worker that dies, so
every function that is mapped gives the same result each time.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.allocation import allocate
from convexmarket.allocation.parted import PartedAllocation
from convexmarket.checks import forms_of
from convexmarket.data.columns import ID_NAMES, REPORT_NAMES
from convexmarket.data.files import open_parquet
from convexmarket.data.lists import column_named
from convexmarket.deal import Clock, audit_summary, statements, versions
from convexmarket.errors import (
    AllocationError,
    DataError,
    NotSupportedError,
    ParameterError,
    SellersError,
)
from convexmarket.incentives.audit import audit_parts
from convexmarket.incentives.rules import part_payments
from convexmarket.io import sync_folder
from convexmarket.market import Market
from convexmarket.priors.base import Prior, PriorLike, as_prior
from convexmarket.sellers import Sellers

try:
    import dask
    import dask.config
    import dask.dataframe
    from distributed import Client
except ImportError:
    raise NotSupportedError("Dask is not installed; install convexmarket[dask]") from None

__all__ = ["price_parts", "rows", "sellers", "workers"]

Floats = NDArray[np.float64]

#: Hashes of ids that are compared at a time.
_HASHES = 1 << 24
#: In a folder of offers; readers of Parquet skip names that begin with an underscore.
CERTIFICATE = "_certificate.json"
#: Small row groups of a file are read together, up to this number of rows.
_ROWS = 1 << 20
_COLUMNS = ("id", "sensitivity")


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
            f"dask is {address!r}, which has no TLS: everybody who can connect to the scheduler or "
            "its workers runs code as you. Give a tls:// address, with certificates in Dask's "
            "configuration, or --trust-scheduler where only trusted users can connect"
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
        If there is no seller, a sensitivity is not a number in the prior's support, or an id is
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
            raise SellersError("there are no sellers in any partition; give at least one")
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
    """Return the number of reports, and the position of the first bad one; -1 if there is none."""
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
        raise DataError("X is no Dask array; of a Dask table, pass X.to_dask_array(lengths=True)")
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


# ---------------------------------------------------------------------- lists of offers


@dataclass(frozen=True)
class _Piece:
    """Row groups of a Parquet file, with the number of its rows before them."""

    path: str
    groups: tuple[int, ...]
    before: int
    columns: tuple[str, str]

    def read(self, *names: str) -> pd.DataFrame:
        """Return the columns "id" and "sensitivity", or one of them."""
        own = [self.columns[_COLUMNS.index(name)] for name in names]
        with open_parquet(self.path) as file:
            table = file.read_row_groups(list(self.groups), columns=own)
            return table.select(own).to_pandas().set_axis(list(names), axis=1)


def _read(name: str, piece: _Piece) -> pd.Series[Any]:
    return piece.read(name)[name]


class _List(_Column):
    """Sellers in row groups of Parquet files, which messages name."""

    def __init__(self, pieces: list[_Piece], prior: Prior) -> None:
        self.pieces = pieces
        ids, reports = (
            [dask.delayed(partial(_read, name), pure=False)(piece) for piece in pieces]
            for name in _COLUMNS
        )
        super().__init__(reports, ids, prior, self._row_of_file)

    def _row_of_file(self, partition: int, row: int) -> str:
        piece = self.pieces[partition]
        return f"{piece.path}: row {piece.before + row + 1}"


def _listed(path: Path, prior: Prior, columns: Callable[[Sequence[str]], tuple[str, str]]) -> _List:
    """Return the sellers of a Parquet file, or of a folder of them, that every worker reads.

    ``columns`` returns, of the names of a file's columns, those of the ids and the sensitivities.
    """
    import pyarrow as pa

    files = [path]
    if path.is_dir():
        files = sorted(one for one in path.glob("*.parquet") if one.name[0] not in "._")
        if not files:
            raise DataError(f"{path} is a folder without Parquet files; give one with *.parquet")
    pieces = []
    for one in files:
        with open_parquet(one) as file:
            names = columns(file.schema_arrow.names)
            kind = file.schema_arrow.field(names[1]).type
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
                raise DataError(f"{one}: the column {names[1]!r} holds {kind}; give numbers")
            sizes = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
        ends = np.cumsum([0, *sizes])
        begin = 0
        for end in range(1, len(sizes) + 1):
            if end == len(sizes) or ends[end + 1] - ends[begin] > _ROWS:
                groups = tuple(range(begin, end))
                pieces.append(_Piece(str(one.absolute()), groups, int(ends[begin]), names))
                begin = end
    if not pieces:
        raise DataError(f"{path} has no rows; give one row per seller")
    return _List(pieces, prior)


def _offer(
    folder: Path, allocation: PartedAllocation, number: int, piece: _Piece
) -> dict[str, float]:
    """Write the offers of one partition, the same on any worker; return their sums and ends."""
    table = piece.read(*_COLUMNS)
    reports = table["sensitivity"].to_numpy(dtype=float)
    weights = allocation.weights_of(reports)
    epsilon = allocation.eta * weights
    paid = part_payments(allocation, reports)
    virtual = np.asarray(allocation.prior.ironed_virtual_cost(reports))
    surplus = paid - reports * epsilon
    table = table.assign(
        virtual_cost=virtual, epsilon=epsilon, weight=weights, payment=paid, surplus=surplus
    )
    hidden = folder / f".{number}.{secrets.token_hex(4)}"
    table.to_parquet(hidden, index=False)
    os.replace(hidden, folder / f"part.{number:06}.parquet")
    return {
        "sellers": len(table),
        "weight": weights.sum(),
        "payments": paid.sum(),
        "expected_payments": (virtual * epsilon)[epsilon > 0].sum(),
        "surplus": surplus.sum(),
        "smallest_surplus": surplus.min(initial=np.inf),
        "epsilon": epsilon.sum(),
        "largest_epsilon": epsilon.max(initial=0.0),
        "sellers_bought_from": np.count_nonzero(epsilon),
    }


def _totals(parts: Sequence[dict[str, float]]) -> dict[str, Any]:
    table = pd.DataFrame(list(parts))
    totals: dict[str, Any] = {str(name): float(part.sum()) for name, part in table.items()}
    totals["smallest_surplus"] = float(table["smallest_surplus"].min())
    totals["largest_epsilon"] = float(table["largest_epsilon"].max())
    counts = ("sellers", "sellers_bought_from")
    return totals | {name: int(totals[name]) for name in counts}


def price_parts(
    reports: str | Path,
    prior: Prior,
    out: str | Path,
    *,
    gamma: float,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    progress: Callable[[str], None] | None = None,
    **wanted: Any,
) -> dict[str, Any]:
    """Make every seller of a long list an offer, with the workers of the present Dask client.

    Parameters are those of :func:`~convexmarket.deal.price_offers`; ``reports`` is a
    Parquet file or a folder of them, and ``out`` a new folder, where all workers need to write.
    It appears when it is complete, with a file for each partition and the certificate, which is
    also returned.

    Raises
    ------
    ParameterError
        If ``out`` exists, or the market cannot be declared.
    DataError, SellersError
        If a file cannot be read or written, a report or an id is missing or wrong, or an id stands
        twice; the message names the file and the row.
    AllocationError
        If a file changed while it was read.
    """
    clock = Clock(progress)
    if os.path.lexists(out):
        raise ParameterError(f"--out {out} is there already; name a new folder for the offers")

    def columns(names: Sequence[str]) -> tuple[str, str]:
        table = pd.DataFrame(columns=list(names), dtype=object)
        return (
            column_named(table, id_column, ID_NAMES, "--id-column"),
            column_named(table, sensitivity_column, REPORT_NAMES, "--sensitivity-column"),
        )

    clock.start("reading")
    parts = _listed(Path(reports), prior, columns)
    wanted = {"cap": None, "eta_range": None} | wanted
    market = Market.standard(Sellers.in_parts(parts, prior), gamma=gamma, **wanted)
    clock.start("allocating")
    allocation: Any = allocate(market)
    clock.start("auditing")  # refuses what cannot be paid before anything is written
    audit = audit_summary(audit_parts(parts, market, allocation))
    clock.start("paying")
    folder = Path(out)
    fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.new")
    try:
        fresh.mkdir(parents=True, mode=0o700)
        sent = dask.delayed(allocation, pure=False, traverse=False)
        write = dask.delayed(partial(_offer, fresh.absolute()), pure=False, traverse=False)
        totals = _totals(dask.compute(*(write(sent, *piece) for piece in enumerate(parts.pieces))))
        if totals["sellers"] != len(parts) or abs(totals.pop("weight") - 1) > 1e-9:
            raise AllocationError("the weights do not sum to one: a file changed during the run")
        clock.stop()
        certificate = {
            "statements": statements(prior, wanted, None, {}, "exact"),
            "optimality": allocation.certificate(),
            "totals": totals,
            "audit": audit,
            "objective": wanted | {"gamma": gamma},
            "prior": prior.to_dict(),
            "input": {"file": str(reports)},
            "versions": versions(),
            "seconds": clock.seconds,
        }
        text = json.dumps(certificate, indent=2, allow_nan=False) + "\n"
        (fresh / CERTIFICATE).write_text(text, encoding="utf-8")
        for left in fresh.glob(".*"):  # by a worker that died
            left.unlink()
        sync_folder(fresh)
        os.rename(fresh, folder)
    except OSError as error:
        raise DataError(f"{folder}: {error.strerror or error}; nothing was written") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    sync_folder(folder.parent)
    return certificate
