"""A buyer's job: from a list of reported sensitivities to one offer for each seller."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from convexmarket.allocation import allocate
from convexmarket.arguments import check_callable
from convexmarket.data.csv_cells import write_csv
from convexmarket.deal import DRAWS
from convexmarket.errors import DataError, ParameterError
from convexmarket.incentives.audit import IncentiveAudit, audit_incentives
from convexmarket.incentives.calibration import calibrate_gamma
from convexmarket.incentives.rules import payments
from convexmarket.lab.lists.reading import (
    checked_reports,
    digest,
    read_list,
    read_reports,
    trimmed_id,
)
from convexmarket.lab.provenance import versions
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers
from convexmarket.terms import GroupShare, Noise, Payments, Spread
from convexmarket.writing import write_together

__all__ = [
    "Clock",
    "Offers",
    "audit_summary",
    "certificate_of",
    "price_offers",
    "read_reports",
    "statements",
]


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

    def write(self, path: str | Path, *, force: bool = False) -> tuple[Path, Path]:
        """Write the table, and the certificate as JSON next to it: both or neither.

        Only their owner may read new files; those that are replaced keep their mode.

        Parameters
        ----------
        path : path
            CSV is written, or Parquet where it ends in .parquet.
        force : bool, default False
            Whether existing files may be replaced.

        Returns
        -------
        table, certificate : pathlib.Path
            ``offers.csv`` and ``offers.certificate.json``, for example.

        Raises
        ------
        ParameterError
            If a file exists and may not be replaced.
        DataError
            If a file cannot be written; then whatever was there before still is.
        """
        table = Path(path)
        if table.is_dir() or not table.name:
            raise DataError(f"{path} is a folder; name a file in it, such as offers.csv")
        certificate = certificate_of(table)
        write_together(
            {
                table: _parquet(self.table)
                if table.suffix == ".parquet"
                else lambda file: write_csv(self.table, file),
                certificate: lambda file: file.write(
                    json.dumps(self.certificate, indent=2, allow_nan=False) + "\n"
                ),
            },
            private=True,
            force=force,
        )
        return table, certificate


def _parquet(table: pd.DataFrame) -> bytes:
    written = io.BytesIO()
    table.to_parquet(written, index=False)
    return written.getvalue()


def certificate_of(offers: Path) -> Path:
    """Return where the certificate of offers is written: offers.certificate.json, for example."""
    return offers.with_suffix(".certificate.json")


def price_offers(
    reports: pd.DataFrame | str | Path,
    prior: Prior,
    *,
    mu: float,
    sigma: float,
    gamma: float | None = None,
    budget: float | None = None,
    cap: float | None = None,
    eta_range: tuple[float, float] | None = None,
    at_least: Mapping[str, float] | None = None,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    group_column: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Offers:
    """Make every seller of a list an offer.

    Parameters
    ----------
    reports : DataFrame, or path of a CSV file or a Parquet file (.parquet)
        One row per seller, with an id and a reported sensitivity.
    prior : Prior
        The distribution that the sensitivities are drawn from.
    mu, sigma, gamma, cap, eta_range
        The buyer's objective, see :meth:`convexmarket.market.Market.standard`.
    budget : float, optional
        In place of gamma, what payments come to on average over the prior
        (:func:`convexmarket.calibrate_gamma`): no report decides it.
    at_least : mapping of str to float, optional
        The least share of the weight that groups carry.
    id_column, sensitivity_column : str, optional
        Their columns, where they are not called id and sensitivity or something as common.
    group_column : str, optional
        The column of the sellers' groups.
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
    if (gamma is None) == (budget is None):
        raise ParameterError("give gamma or budget, one of the two: the budget decides gamma")
    if at_least and group_column is None:
        raise ParameterError("at_least is about groups: name their column, --group-column")
    clock = Clock(progress)
    clock.start("reading")
    columns = (id_column, sensitivity_column)
    origin: dict[str, Any] = {"file": None, "sha256": None}
    if isinstance(reports, pd.DataFrame):
        listed = checked_reports(reports, *columns, prior, "row", 1, group_column)
    else:
        origin = {"file": str(reports), "sha256": digest(Path(reports))}
        listed = read_list(reports, prior, *columns, trimmed_id, group_column)
    listed = listed.reset_index(drop=True)
    groups = listed["group"].to_numpy() if group_column is not None else None
    quotas = [GroupShare(groups, at_least)] if at_least else []
    sellers = Sellers(listed["sensitivity"].to_numpy(), prior)
    wanted: dict[str, Any] = {"mu": mu, "sigma": sigma, "cap": cap, "eta_range": eta_range}
    weight = 1.0 if gamma is None else gamma
    limits = [*Market.standard(sellers, gamma=weight, **wanted).constraints, *quotas]
    aim = mu * Spread() + sigma * Noise()
    if budget is not None:
        clock.start("calibrating")
        weight = calibrate_gamma(budget, prior, len(listed), aim, limits, draws=DRAWS).gamma
    clock.start("allocating")
    market = Market(sellers, aim + weight * Payments(), limits)
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
        },
        copy=False,
    )
    certificate = {
        "statements": statements(prior, wanted, budget, at_least or {}, allocation.method),
        "optimality": allocation.certificate(),
        "totals": _totals(table),
        "audit": audit_summary(audit),
        "objective": wanted | {"gamma": weight, "budget": budget, "at_least": dict(at_least or {})},
        "prior": prior.to_dict(),
        "input": origin,
        "versions": versions(),
        "seconds": clock.seconds,
    }
    return Offers(table, certificate)


def audit_summary(audit: IncentiveAudit) -> dict[str, Any]:
    """Return what an audit found, as plain values for the certificate."""
    return {
        "sellers": audit.n_sellers,
        "sellers_audited": len(audit.to_frame()),
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


def statements(
    prior: Prior,
    wanted: Mapping[str, Any],
    budget: float | None,
    at_least: Mapping[str, float],
    method: str,
) -> list[str]:
    """Say in words what the offers guarantee, and on what that rests."""
    cap, eta_range = wanted["cap"], wanted["eta_range"]
    limit = "" if cap is None else f" with no weight above {cap:g} times the average"
    if eta_range is not None:
        limit += f", eta from {eta_range[0]:g} to {eta_range[1]:g}"
    for group, share in at_least.items():
        limit += f", with at least {share:g} of the weight in the group {group!r}"
    exact = (
        "At the eta given here a dual point with the value lower_bound proves it; other eta are "
        "excluded by the solver's enumeration of all stationary points, not repeated here."
        if method == "exact"
        else "The value lower_bound holds for every eta, and gap says how far it lies below."
    )
    fixed = "mu, sigma, gamma, cap and prior"
    if budget is not None:
        fixed = f"mu, sigma, the budget of {budget:g}, cap and prior"
    if at_least:
        fixed = fixed.replace("cap", "cap, groups")
    said = [
        f"Among all ways to buy privacy{limit}, none has a smaller objective, up to rounding"
        f"{'' if method == 'exact' else ' and the gap'}. {exact}",
        "Every payment is at least the seller's reported sensitivity times its epsilon.",
        "No seller gains, alone, by reporting another sensitivity, whatever the others report, as "
        f"long as {fixed} were fixed before the reports were read. Sellers "
        "who agree on their reports may gain together.",
        f"Expected payments are payments averaged over reports drawn from {prior!r}: the sum of "
        "virtual cost times epsilon estimates the total.",
        "epsilon is the guarantee sold. It holds for a model trained with these weights and with "
        "eta = the sum of epsilon; the learner reports the total, its own share included.",
    ]
    if budget is not None:
        said.append(
            f"gamma follows from the budget, the prior and the number of sellers, and from no "
            f"report: payments come to {budget:g} on average over the prior, not in each market."
        )
    return said


class Clock:
    """Seconds per stage, announced as they start."""

    def __init__(self, announce: Callable[[str], None] | None) -> None:
        check_callable("progress", announce)
        self.seconds: dict[str, float] = {}
        self._announce = announce
        self._stage: str | None = None
        self._since = 0.0

    def start(self, stage: str) -> None:
        """Begin a stage, and end the one before."""
        self.stop()
        self._stage, self._since = stage, time.perf_counter()
        if self._announce is not None:
            self._announce(stage)

    def stop(self) -> None:
        """End the stage."""
        if self._stage is not None:
            self.seconds[self._stage] = time.perf_counter() - self._since
        self._stage = None
