"""What every learner's trade-off has in common: markets that are bought in, audited and told of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from convexmarket.allocation import Allocation, allocate
from convexmarket.incentives.audit import audit_incentives
from convexmarket.incentives.rules import payments
from convexmarket.lab.audits import MISREPORTS, audit_row
from convexmarket.lab.problem.base import RunTable
from convexmarket.lab.stages import Stages
from convexmarket.market import Market
from convexmarket.privacy import Guarantee
from convexmarket.sellers import Sellers

__all__ = [
    "Measured",
    "Plan",
    "Purchase",
    "Row",
    "audited",
    "bought",
    "curve_of",
    "market_of",
    "seeds",
    "told_of",
]

Floats = NDArray[np.float64]

#: The branch of the seed that noise is drawn from; that of the sensitivities is 0.
_NOISE = 1


@dataclass(frozen=True)
class Plan:
    """What a buyer asks for: weights of its objective, constraints, and what a table calls it.

    ``marks`` are columns of tables besides, ``promised`` what is known before any report.
    """

    labels: dict[str, Any]
    gamma: float
    mu: float
    sigma: float
    cap: float | None
    eta_range: tuple[float, float] | None
    marks: dict[str, bool] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Purchase:
    """A plan in the market of a scenario, its optimum and what it pays."""

    scenario: str
    plan: Plan
    market: Market
    allocation: Allocation
    payments: Floats

    @property
    def labels(self) -> dict[str, Any]:
        """What a row of a table is about."""
        return {"scenario": self.scenario} | self.plan.labels


@dataclass(frozen=True, eq=False)
class Row:
    """A purchase that is reported: what was measured of it, and what each seller is guaranteed."""

    purchase: Purchase
    measured: dict[str, Any]
    guarantee: Floats

    def of_sellers(self) -> pd.DataFrame:
        """Return an offer for each seller."""
        market, allocation = self.purchase.market, self.purchase.allocation
        reports = np.asarray(market.sellers.sensitivities)
        return pd.DataFrame(
            self.purchase.labels
            | self.purchase.plan.marks
            | {
                "id": list(market.sellers.ids),
                "sensitivity": reports,
                "virtual_cost": market.sellers.virtual_costs,
                "weight": allocation.weights,
                "epsilon": allocation.epsilon,
                "guarantee": self.guarantee,
                "payment": self.purchase.payments,
                "surplus": self.purchase.payments - reports * allocation.epsilon,
            }
        )


@dataclass(frozen=True, eq=False)
class Measured:
    """What came of the purchases: those that are reported, certified and audited, and the rest."""

    rows: list[Row]
    certified: list[Purchase]
    audited: list[Purchase]
    tables: dict[str, pd.DataFrame]
    numbers: dict[str, Any]
    caveats: tuple[str, ...]
    provenance: dict[str, Any]


def seeds(run: RunTable, draws: int) -> list[np.random.SeedSequence]:
    """Return a seed for each noise draw."""
    return [run.stream(_NOISE, draw) for draw in range(draws)]


def told_of(guarantee: Guarantee) -> dict[str, Any]:
    """Return what a page says of a guarantee, the rows' epsilon apart."""
    names = ("mechanism", "accounting", "assumptions")
    return {"guarantee": {name: getattr(guarantee, name) for name in names}}


def market_of(plan: Plan, sellers: Sellers) -> Market:
    """Declare the market of a plan."""
    return Market.standard(
        sellers,
        mu=plan.mu,
        sigma=plan.sigma,
        gamma=plan.gamma,
        cap=plan.cap,
        eta_range=plan.eta_range,
    )


def bought(markets: dict[str, Sellers], plans: list[Plan], stages: Stages) -> list[Purchase]:
    """Allocate and pay under every plan, scenario by scenario."""
    purchases = []
    with stages("allocate and pay", len(markets) * len(plans)) as advance:
        for scenario, sellers in markets.items():
            for plan in plans:
                market = market_of(plan, sellers)
                allocation = allocate(market)
                paid = payments(market, allocation)
                purchases.append(Purchase(scenario, plan, market, allocation, paid))
                advance()
    return purchases


def audited(purchases: list[Purchase], workers: int, stages: Stages) -> pd.DataFrame:
    """Audit the incentives of some purchases.

    Incentives concern reports alone, and scenarios permute the same reports: markets that differ
    in nothing else are audited once.
    """
    markets = {_reports_of(purchase): purchase.market for purchase in purchases}
    calls = (delayed(audit_incentives)(one, misreports=MISREPORTS) for one in markets.values())
    found = dict(zip(markets, stages.parallel("audit", workers, calls), strict=True))
    return pd.DataFrame(
        [purchase.labels | audit_row(found[_reports_of(purchase)]) for purchase in purchases]
    )


def _reports_of(purchase: Purchase) -> tuple[bytes, float, float, float]:
    """Return what the incentives of a market depend on, the sellers' names apart."""
    reports, plan = np.sort(np.asarray(purchase.market.sellers.sensitivities)), purchase.plan
    return reports.tobytes(), plan.mu, plan.sigma, plan.gamma


def curve_of(rows: list[Row]) -> pd.DataFrame:
    """Return a row for every purchase that is reported."""
    return pd.DataFrame([_curve_row(row) for row in rows])


def _curve_row(row: Row) -> dict[str, Any]:
    purchase, allocation = row.purchase, row.purchase.allocation
    return (
        purchase.labels
        | purchase.plan.marks
        | {
            "mu": purchase.plan.mu,
            "sigma": purchase.plan.sigma,
            "eta": allocation.eta,
            "n_bought": allocation.n_bought,
            "payments": float(purchase.payments.sum()),
        }
        | row.measured
        | {
            "objective": allocation.objective,
            "lower_bound": allocation.lower_bound,
            "gap": allocation.gap,
            "epsilon_max": float(allocation.epsilon.max()),
        }
    )
