"""A buyer's job past one memory: from the partitions of a list to those of the offers.

Each row group of the Parquet files, or several small ones, is a partition; it is read by a worker
of Dask in every pass, and never leaves it. What workers write appears under its name only when all
of it is there.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.allocation import allocate
from convexmarket.data.columns import ID_NAMES, REPORT_NAMES
from convexmarket.data.files import open_regular
from convexmarket.data.lists import column_named
from convexmarket.deal import Clock, audit_summary, statements, versions
from convexmarket.errors import AllocationError, DataError, ParameterError
from convexmarket.incentives.audit import audit_parts
from convexmarket.incentives.parted import part_payments
from convexmarket.incentives.rules import payments
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import PartedSellers
from convexmarket.writing import sync_folder

__all__ = ["CERTIFICATE", "price_parts"]

#: Of a folder of offers; readers of Parquet pass over names that begin so.
CERTIFICATE = "_certificate.json"
#: Rows that small row groups of a file are read together up to.
_ROWS = 1 << 20
_COLUMNS = ("id", "sensitivity")


@dataclass(frozen=True)
class _Piece:
    """Row groups of a Parquet file, with the number of its rows before them."""

    path: str
    groups: tuple[int, ...]
    before: int
    columns: tuple[str, str]

    def read(self, columns: Any = None) -> pd.DataFrame:
        """Return ids and sensitivities, or only some of these columns."""
        from pyarrow.parquet import ParquetFile

        wanted = list(_COLUMNS if columns is None else columns)
        own = [self.columns[_COLUMNS.index(name)] for name in wanted]
        with _named(self.path), open_regular(self.path) as file:
            table = ParquetFile(file).read_row_groups(list(self.groups), columns=own)
            return table.select(own).to_pandas().set_axis(wanted, axis=1)


def _read(piece: _Piece, columns: Any = None) -> pd.DataFrame:
    return piece.read(columns)


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Say which file cannot be read."""
    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error).strip()
        raise DataError(f"{path} cannot be read as Parquet: {why}") from None


class _ListedSellers(PartedSellers):
    """Sellers in the row groups of files, which messages name."""

    def __init__(self, pieces: list[_Piece], prior: Prior) -> None:
        from dask.dataframe import from_map

        object.__setattr__(self, "_pieces", pieces)
        meta = pd.DataFrame({"id": pd.Series(dtype=object), "sensitivity": pd.Series(dtype=float)})
        frame = from_map(_read, pieces, meta=meta)
        super().__init__(frame["sensitivity"], prior, frame["id"])

    _pieces: list[_Piece]

    def place(self, partition: int, row: int) -> str:
        """Say where a seller stands."""
        piece = self._pieces[partition]
        return f"{piece.path}: row {piece.before + row + 1}"


def price_parts(
    reports: str | Path,
    prior: Prior,
    out: str | Path,
    *,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None = None,
    eta_range: tuple[float, float] | None = None,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Make every seller of a long list an offer, with the workers of the present Dask client.

    Parameters
    ----------
    reports : path
        A Parquet file, or a folder of them, that all workers can read.
    out : path
        The folder of offers, which all workers can write to; it appears all at once, with a file
        for each partition and the certificate, or not at all.
    prior, mu, sigma, gamma, cap, eta_range, id_column, sensitivity_column, progress
        As for :func:`~convexmarket.deal.price_offers`.

    Returns
    -------
    dict
        The certificate.

    Raises
    ------
    DataError, SellersError
        If a file cannot be read, a report or an id is missing or wrong, or an id stands twice; the
        message names file and row.
    ParameterError, AllocationError
        If the market cannot be declared, has no optimum, or ``out`` is there already.
    """
    folder, clock = Path(out), Clock(progress)
    if os.path.lexists(folder):
        raise ParameterError(f"--out {folder} is there already; name a new folder for the offers")
    clock.start("reading")
    pieces = _pieces(Path(reports), id_column, sensitivity_column)
    sellers = _ListedSellers(pieces, prior)
    wanted: dict[str, Any] = {"mu": mu, "sigma": sigma, "cap": cap, "eta_range": eta_range}
    market = Market.standard(sellers, gamma=gamma, **wanted)
    clock.start("allocating")
    allocation = allocate(market)
    payments(market, allocation)  # refuses what cannot be paid before anything is written
    clock.start("auditing")
    audit = audit_summary(audit_parts(market, allocation))
    fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.new")
    clock.start("paying")
    try:
        fresh.mkdir(parents=True, mode=0o700)
        totals = _totals(_offers(allocation, fresh, pieces))
        if totals["sellers"] != len(sellers) or abs(totals.pop("weight") - 1) > 1e-9:
            raise AllocationError(
                f"the weights do not sum to one: {reports} has changed while it was read"
            )
        clock.stop()
        certificate = {
            "statements": statements(prior, wanted, None, {}, "exact"),
            "optimality": allocation.certificate(),
            "totals": totals,
            "audit": audit,
            "objective": wanted | {"gamma": gamma},
            "prior": prior.to_dict(),
            "input": {"file": str(reports), "partitions": len(pieces)},
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


def _pieces(path: Path, id_column: str | None, report_column: str | None) -> list[_Piece]:
    """Return the partitions of a list; only the ends of the files are read."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    files = [path]
    if path.is_dir():
        files = sorted(one for one in path.glob("*.parquet") if one.name[0] not in "._")
        if not files:
            raise DataError(f"{path} is a folder without Parquet files; give one with *.parquet")
    found = []
    for one in files:
        with _named(one), open_regular(one) as file:
            about = ParquetFile(file)
            names = pd.DataFrame(columns=about.schema_arrow.names, dtype=object)
            columns = (
                column_named(names, id_column, ID_NAMES, "--id-column"),
                column_named(names, report_column, REPORT_NAMES, "--sensitivity-column"),
            )
            kind = about.schema_arrow.field(columns[1]).type
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
                raise DataError(f"{one}: the column {columns[1]!r} holds {kind}; give numbers")
            rows = [about.metadata.row_group(k).num_rows for k in range(about.num_row_groups)]
        ends = np.cumsum([0, *rows])
        begin = 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or ends[end + 1] - ends[begin] > _ROWS:
                groups = tuple(range(begin, end))
                found.append(_Piece(str(one.absolute()), groups, int(ends[begin]), columns))
                begin = end
    if not found:
        raise DataError(f"{path} has no rows; give one row per seller")
    return found


def _offers(allocation: Any, folder: Path, pieces: list[_Piece]) -> list[NDArray[np.float64]]:
    """Write the offers of all partitions, each by a worker; return their sums."""
    import dask

    sent = dask.delayed(allocation, pure=False, traverse=False)
    one = dask.delayed(partial(_offer, folder.absolute()), pure=False, traverse=False)
    return list(dask.compute(*(one(sent, number, piece) for number, piece in enumerate(pieces))))


def _offer(folder: Path, allocation: Any, number: int, piece: _Piece) -> NDArray[np.float64]:
    """Write the offers of one partition; the same on any worker, however often."""
    table = piece.read()
    reports = table["sensitivity"].to_numpy(dtype=float)
    weights = allocation.weights_of(reports)
    epsilon = allocation.eta * weights
    paid = part_payments(allocation, reports)
    virtual = np.asarray(allocation.prior.ironed_virtual_cost(reports))
    table = table.assign(
        virtual_cost=virtual,
        epsilon=epsilon,
        weight=weights,
        payment=paid,
        surplus=paid - reports * epsilon,
    )
    hidden = folder / f".{number}.{secrets.token_hex(4)}"
    table.to_parquet(hidden, index=False)
    os.replace(hidden, folder / f"part.{number:06}.parquet")
    expected = float((virtual * epsilon)[epsilon > 0].sum())
    surplus = table["surplus"]
    added = len(table), weights.sum(), paid.sum(), expected, surplus.sum(), epsilon.sum()
    ends = epsilon.max(initial=0.0), surplus.min() if len(table) else np.inf
    return np.array([*added, np.count_nonzero(epsilon), *ends])


def _totals(parts: list[NDArray[np.float64]]) -> dict[str, Any]:
    sums = np.sum(parts, axis=0).tolist()
    return {
        "sellers": int(sums[0]),
        "weight": sums[1],
        "payments": sums[2],
        "expected_payments": sums[3],
        "surplus": sums[4],
        "smallest_surplus": float(min(part[8] for part in parts)),
        "epsilon": sums[5],
        "largest_epsilon": float(max(part[7] for part in parts)),
        "sellers_bought_from": int(sums[6]),
    }
