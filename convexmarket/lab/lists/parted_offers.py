"""A buyer's job for lists that do not fit in memory: from Parquet files to files of offers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from convexmarket.allocation import allocate
from convexmarket.data.columns import ID_NAMES, REPORT_NAMES
from convexmarket.errors import ParameterError
from convexmarket.incentives.audit import audit_parts
from convexmarket.lab.lists.offers import Clock, audit_summary, statements
from convexmarket.lab.lists.reading import column_named
from convexmarket.lab.provenance import versions
from convexmarket.market import Market
from convexmarket.partitions import listed, write_offers
from convexmarket.priors import Prior

__all__ = ["price_parts"]


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

    Parameters
    ----------
    reports : path
        A Parquet file, or a folder of them, that all workers can read.
    prior, gamma, id_column, sensitivity_column, progress
        As for :func:`~convexmarket.lab.lists.offers.price_offers`.
    out : path
        The folder of offers, which must not exist.
    **wanted
        mu, sigma, cap and eta_range, see :meth:`convexmarket.market.Market.standard`.

    Returns
    -------
    dict
        The certificate.

    Raises
    ------
    DataError, SellersError
        As for :func:`~convexmarket.partitions.listed`.
    ParameterError, AllocationError
        If the market cannot be declared, has no optimum, or ``out`` exists.
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
    sellers = listed(reports, prior, columns)
    wanted = {"cap": None, "eta_range": None} | wanted
    market = Market.standard(sellers, gamma=gamma, **wanted)
    clock.start("allocating")
    allocation: Any = allocate(market)
    assert sellers.parts is not None
    clock.start("auditing")  # refuses what cannot be paid before anything is written
    audit = audit_summary(audit_parts(sellers.parts, market, allocation))
    clock.start("paying")

    def certificate(totals: dict[str, Any]) -> dict[str, Any]:
        clock.stop()
        return {
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

    return write_offers(sellers, allocation, out, certificate)
