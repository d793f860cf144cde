"""A buyer's job: from a list of reported sensitivities to one offer for each seller.

The list is a CSV file as people have them: any of the usual separators, with a byte-order mark or
without, numbers with a decimal point or comma. What cannot be read for certain is refused, with
the lines at fault, because a wrong number here is a wrong payment there.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.allocation import allocate
from convexmarket.audit import IncentiveAudit, audit_incentives
from convexmarket.errors import DataError
from convexmarket.experiments.provenance import versions
from convexmarket.market import Market
from convexmarket.payments import payments
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers

__all__ = ["Offers", "price_offers", "read_reports"]

ID_NAMES = ("id", "seller", "name", "seller_id")
SENSITIVITY_NAMES = ("sensitivity", "cost", "c", "reported_sensitivity")


@dataclass(frozen=True, eq=False)
class Offers:
    """One offer for each seller, and the certificate of all of them.

    Attributes
    ----------
    table : DataFrame
        Columns id, sensitivity, virtual_cost, epsilon, weight, payment and surplus, one row per
        seller in the order of the reports. ``surplus`` is payment minus reported cost.
    certificate : dict
        What proves the offers: optimality, totals, audit, parameters and origin; plain values.
    """

    table: pd.DataFrame
    certificate: dict[str, Any]

    def write(self, path: str | Path) -> tuple[Path, Path]:
        """Write the table as CSV, and the certificate as JSON next to it: both or neither.

        Returns
        -------
        table, certificate : pathlib.Path
            ``offers.csv`` and ``offers.certificate.json``, for example.

        Raises
        ------
        DataError
            If a file cannot be written; then whatever was there before still is.
        """
        table = Path(path)
        certificate = table.with_suffix(".certificate.json")
        _write_together(
            {
                table: lambda file: self.table.to_csv(file, index=False, lineterminator="\n"),
                certificate: lambda file: file.write(
                    json.dumps(self.certificate, indent=2, allow_nan=False) + "\n"
                ),
            }
        )
        return table, certificate


def price_offers(
    reports: pd.DataFrame | str | Path,
    prior: Prior,
    *,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None = None,
    eta_range: tuple[float, float] | None = None,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Offers:
    """Make every seller of a list an offer.

    Parameters
    ----------
    reports : DataFrame or path of a CSV file
        One row per seller, with an id and a reported sensitivity.
    prior : Prior
        The distribution that the sensitivities are drawn from.
    mu, sigma, gamma, cap, eta_range
        The buyer's objective, see :meth:`convexmarket.market.Market.standard`.
    id_column, sensitivity_column : str, optional
        Their columns, where they are not called id and sensitivity or something as common.
    progress : callable, optional
        Called with the name of each stage as it starts.

    Returns
    -------
    Offers

    Raises
    ------
    DataError
        If the list cannot be read, or holds a bad row; the message names the lines.
    ParameterError, AllocationError
        If the market cannot be declared, or has no optimum.

    Examples
    --------
    >>> from convexmarket.priors import Uniform
    >>> reports = pd.DataFrame({"id": ["Ann", "Bob"], "sensitivity": [0.1, 0.6]})
    >>> offers = price_offers(reports, Uniform(0, 1), mu=1, sigma=1, gamma=0.5)
    >>> offers.table[["id", "epsilon", "payment", "surplus"]].round(3)
        id  epsilon  payment  surplus
    0  Ann    3.162    1.142    0.826
    1  Bob    0.000    0.000    0.000
    """
    clock = _Clock(progress)
    clock.start("reading")
    columns = (id_column, sensitivity_column)
    origin: dict[str, Any] = {"file": None, "sha256": None}
    if isinstance(reports, pd.DataFrame):
        listed = _checked(reports, *columns, prior, "row", 1)
    else:
        origin = {"file": str(reports), "sha256": _digest(Path(reports))}
        listed = _checked(read_reports(reports), *columns, prior, f"{reports}: line", 2)
    clock.start("allocating")
    sellers = Sellers(listed["sensitivity"].to_numpy(), prior, listed["id"].tolist())
    objective: dict[str, Any] = {
        "mu": mu,
        "sigma": sigma,
        "gamma": gamma,
        "cap": cap,
        "eta_range": eta_range,
    }
    market = Market.standard(sellers, **objective)
    allocation = allocate(market)
    clock.start("paying")
    paid = payments(market, allocation)
    clock.start("auditing")
    audit = audit_incentives(market)
    clock.stop()
    table = pd.DataFrame(
        {
            "id": listed["id"],
            "sensitivity": listed["sensitivity"],
            "virtual_cost": sellers.virtual_costs,
            "epsilon": allocation.epsilon,
            "weight": allocation.weights,
            "payment": paid,
            "surplus": paid - listed["sensitivity"].to_numpy() * allocation.epsilon,
        }
    )
    certificate = {
        "statements": _statements(prior, cap, eta_range),
        "optimality": allocation.certificate(),
        "totals": _totals(table),
        "audit": _audit_summary(audit),
        "objective": objective,
        "prior": prior.to_dict(),
        "input": origin,
        "versions": versions(),
        "seconds": clock.seconds,
    }
    return Offers(table, certificate)


def read_reports(path: str | Path) -> pd.DataFrame:
    """Read a CSV file as text, whatever its separator and byte-order mark.

    Returns
    -------
    DataFrame
        Every column as text; row k of it is line k + 2 of the file, blank lines included.

    Raises
    ------
    DataError
        If the file cannot be opened, is not UTF-8 or UTF-16 text, or its rows do not fit its
        header.
    """
    try:
        encoding = _encoding(Path(path))
        with open(path, encoding=encoding, newline="") as file:
            separator = _separator(file.readline())
        with warnings.catch_warnings():
            # Rows longer than the header would lose their tail: "0,05" unquoted, for example.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path,
                sep=separator,
                encoding=encoding,
                dtype=str,
                keep_default_na=False,
                skip_blank_lines=False,
                index_col=False,
            )
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV file of sellers") from None
    except UnicodeError as error:
        raise DataError(f"{path}: {error}; save the file as UTF-8") from None
    except pd.errors.EmptyDataError:
        raise DataError(
            f"{path}: the file is empty; give a header and one row per seller"
        ) from None
    except pd.errors.ParserWarning:
        raise DataError(
            f"{path}: rows have more fields than the header; quote the fields that contain the "
            f"separator {separator!r}"
        ) from None
    except pd.errors.ParserError as error:
        raise DataError(f"{path}: {' '.join(str(error).split())}") from None


def _encoding(path: Path) -> str:
    """Return the encoding that the byte-order mark announces; UTF-8 without one."""
    with open(path, "rb") as file:
        mark = file.read(2)
    return "utf-16" if mark in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _separator(header: str) -> str:
    try:
        return csv.Sniffer().sniff(header, delimiters=",;\t|").delimiter
    except csv.Error:  # one column
        return ","


def _checked(
    table: pd.DataFrame,
    id_column: str | None,
    sensitivity_column: str | None,
    prior: Prior,
    place: str,
    first: int,
) -> pd.DataFrame:
    """Return ids and sensitivities, or say which rows are wrong and why.

    ``place`` and ``first`` say how rows are counted: "offers.csv: line", from 2.
    """
    ids = table[_column(table, "id", id_column, ID_NAMES)]
    texts = table[_column(table, "sensitivity", sensitivity_column, SENSITIVITY_NAMES)]
    nameless = _blank(ids)
    empty = nameless & _blank(texts)
    ids, texts, nameless = ids[~empty], texts[~empty], nameless[~empty]
    if ids.empty:
        raise DataError("the list has a header and no sellers; give one row per seller")
    numbers = _numbers(texts)
    low, high = prior.support
    beyond = (
        f"is outside the support [{low:g}, {high:g}] of {prior!r}; correct the report, or give a "
        "prior that covers it"
    )
    checks: list[tuple[pd.Series[Any], pd.Series[bool], str]] = [
        (texts, numbers.isna(), "is not a number"),
        (texts, numbers < 0, "is negative, and a sensitivity is >= 0"),
        (texts, numbers == np.inf, "is not finite"),
        (texts, ~numbers.between(low, high), beyond),
        (ids, nameless, "is no id"),
        (ids, ids.duplicated(), "is the id of an earlier seller; ids must be distinct"),
    ]
    rows = np.flatnonzero(~empty) + first
    for values, wrong, why in checks:
        bad = np.flatnonzero(wrong)
        if bad.size:
            raise DataError(_blame(place, rows[bad], values.iloc[bad[0]], why))
    return pd.DataFrame({"id": ids, "sensitivity": numbers}).reset_index(drop=True)


def _blank(values: pd.Series[Any]) -> pd.Series[bool]:
    """Whether entries are missing, or text without a visible character."""
    blank = values.isna()
    if not pd.api.types.is_numeric_dtype(values):
        blank |= values.astype(str).str.strip() == ""
    return blank


def _column(table: pd.DataFrame, what: str, given: str | None, common: Sequence[str]) -> str:
    """Return the name of a column, as given or by one of its common names."""
    names = {str(name).strip().lower(): name for name in reversed(table.columns)}
    for candidate in common if given is None else (given.strip().lower(),):
        if candidate in names:
            return names[candidate]
    listed = ", ".join(repr(str(name)) for name in table.columns)
    sought = " or ".join(map(repr, common)) if given is None else repr(given)
    raise DataError(
        f"no column is called {sought}; the columns are {listed}. Name one of them with --{what} "
        f"({what}_column in Python)"
    )


def _numbers(texts: pd.Series[Any]) -> pd.Series[float]:
    """Return texts as numbers, NaN where they are none.

    Commas are decimal commas where no number has a point, and one of them is not in a place where
    it could separate thousands.
    """
    numbers = pd.to_numeric(texts, errors="coerce")
    if numbers.isna().any() and not pd.api.types.is_numeric_dtype(texts):
        plain = texts.astype(str).str.strip()
        commas = plain[plain.str.contains(",", regex=False)]
        thousands = commas.str.fullmatch(r"[1-9]\d{0,2}(,\d{3})+")
        if not (plain.str.contains(".", regex=False).any() or thousands.all()):
            numbers = pd.to_numeric(plain.str.replace(",", ".", regex=False), errors="coerce")
    return numbers.astype(float)


def _blame(place: str, rows: NDArray[np.intp], value: Any, why: str) -> str:
    more = ""
    if rows.size > 1:
        others = ", ".join(str(row) for row in rows[1:6]) + (", ..." if rows.size > 6 else "")
        more = f" ({rows.size - 1} more: {others})"
    found = repr(value) if isinstance(value, str) else str(value)
    return f"{place} {rows[0]}: {found} {why}{more}"


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV file of sellers") from None


def _audit_summary(audit: IncentiveAudit) -> dict[str, Any]:
    return {
        "sellers": audit.n_sellers,
        "sellers_audited": len(audit.table),
        "misreports_per_seller": audit.n_misreports,
        "largest_gain_from_misreporting": audit.max_gain,
        "smallest_surplus": audit.min_surplus,
        "tolerance": audit.tolerance,
        "incentive_compatible": audit.is_incentive_compatible,
        "individually_rational": audit.is_individually_rational,
    }


def _totals(table: pd.DataFrame) -> dict[str, float]:
    return {
        "payments": float(table["payment"].sum()),
        "expected_payments": float(
            (table["virtual_cost"] * table["epsilon"])[table["epsilon"] > 0].sum()
        ),
        "surplus": float(table["surplus"].sum()),
        "epsilon": float(table["epsilon"].sum()),
        "largest_epsilon": float(table["epsilon"].max()),
        "sellers_bought_from": int((table["epsilon"] > 0).sum()),
    }


def _statements(
    prior: Prior, cap: float | None, eta_range: tuple[float, float] | None
) -> list[str]:
    """Say in words what the offers guarantee, and on what that rests."""
    limit = "" if cap is None else f" with no weight above {cap:g} times the average"
    if eta_range is not None:
        limit += f", eta from {eta_range[0]:g} to {eta_range[1]:g}"
    return [
        f"Among all ways to buy privacy{limit}, none has a smaller objective, up to rounding. "
        "At the eta given here a dual point with the value lower_bound proves it; other eta are "
        "excluded by the solver's enumeration of all stationary points, not repeated here.",
        "Every payment is at least the seller's reported sensitivity times its epsilon.",
        "No seller gains by reporting another sensitivity, whatever the others report, as long as "
        "mu, sigma, gamma, cap and prior were fixed before the reports were read.",
        f"Expected payments are payments averaged over reports drawn from {prior!r}: the sum of "
        "virtual cost times epsilon estimates the total.",
        "epsilon is the guarantee sold. It holds for a model trained with these weights and with "
        "eta = the sum of epsilon; the learner reports the total, its own share included.",
    ]


class _Clock:
    """Seconds per stage, announced as they start."""

    def __init__(self, announce: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self._announce = announce
        self._stage: str | None = None
        self._since = 0.0

    def start(self, stage: str) -> None:
        self.stop()
        self._stage, self._since = stage, time.perf_counter()
        if self._announce is not None:
            self._announce(stage)

    def stop(self) -> None:
        if self._stage is not None:
            self.seconds[self._stage] = time.perf_counter() - self._since
        self._stage = None


def _write_together(writers: Mapping[Path, Callable[[Any], Any]]) -> None:
    """Write several files so that all of them appear, or none of them changes."""
    mark = secrets.token_hex(4)
    fresh = {path: path.with_name(f".{path.name}.{mark}.new") for path in writers}
    former = {path: path.with_name(f".{path.name}.{mark}.old") for path in writers}
    replaced: list[Path] = []
    try:
        for path, write in writers.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(fresh[path], "x", encoding="utf-8", newline="") as file:
                write(file)
        for path in writers:
            if path.is_file():
                os.replace(path, former[path])
            replaced.append(path)
            os.replace(fresh[path], path)
    except BaseException as error:
        for path in replaced:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            if former[path].exists():
                os.replace(former[path], path)
        if isinstance(error, OSError):
            raise DataError(f"{error.filename}: {error.strerror}; nothing was written") from error
        raise
    finally:
        for path in [*fresh.values(), *former.values()]:
            path.unlink(missing_ok=True)
