"""A market and variants of it, solved side by side.

A variant that has no answer (its constraints contradict each other, its objective has no minimum,
its solver fails) is a row that says so, and the others go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from convexmarket.allocation import Allocation, allocate, sweep
from convexmarket.errors import AllocationError, ConvexMarketError
from convexmarket.incentives.audit import IncentiveAudit, audit_incentives
from convexmarket.incentives.rules import estimate_payments, payments
from convexmarket.lab.audits import audit_row
from convexmarket.lab.failures import failure_status
from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.measures import DUST, expected_payments, n_bought, without_payments
from convexmarket.lab.problem.declared import MarketTable
from convexmarket.lab.problem.sellers import market_of, read_lists
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.market import Market
from convexmarket.priors import Prior

__all__ = ["SOLVED", "run_variants", "without_dust"]

Floats = NDArray[np.float64]

#: The status of a market that has an answer.
SOLVED = "solved"
BUDGET_KEY = "constraints.budget"
TRUTHFUL = "by construction"
#: Sensitivities at which virtual costs are tabulated.
_CURVE_POINTS = 400

CAVEATS = (
    "The sellers are one draw from the prior (or those of the problem file). Another draw gives "
    "other numbers; how much they differ is not measured here.",
    "Objectives with different terms are in different units: the value of one cannot be compared "
    "with that of another. Guarantees, weights and payments can.",
    "There is no learner here. Spread and noise stand for what a model trained on the purchase "
    "would lose; how well they do so is a matter of the learner, and of its data.",
    "Expected payments are the average, over reports that follow the prior, of what truthful "
    "payments come to. A particular list of sellers is paid more or less.",
)


@dataclass(frozen=True, eq=False)
class Point:
    """One market of a variant."""

    variant: str
    value: float | None
    table: MarketTable
    market: Market

    @property
    def labels(self) -> dict[str, Any]:
        """What a row of a table is about."""
        return {"variant": self.variant, "value": np.nan if self.value is None else self.value}


@dataclass(frozen=True, eq=False)
class Answer:
    """The allocation of a market, or why there is none."""

    status: str
    message: str = ""
    allocation: Allocation | None = None


@dataclass(frozen=True, eq=False)
class Paid:
    """What each seller is paid, how accurate that is, and how it was computed."""

    amounts: Floats
    error: float
    method: str


def run_variants(
    problem: VariantsProblem, progress: Progress | None = None
) -> Result[VariantsProblem]:
    """Solve every variant, pay and audit where the file asks for it.

    Parameters
    ----------
    problem : VariantsProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        The same for the same problem, whatever the number of jobs; timings apart. Its tables:

        points
            One row per variant, and per value of its sweep: variant, value, status, message;
            objective, lower_bound, gap; error (the objective without its payments), spread (the
            Euclidean norm of the weights), noise (1/eta), n_effective (1/spread^2), eta, n_sellers,
            n_bought (weights of a solver's rounding not counted), epsilon_max; expected_payments
            (psi'u(eps)); payments, payments_error and payments_method, where they are computed;
            incentives and reason; method, solver, solves, solve_statuses, seconds.
        sellers
            variant, value, id, group, sensitivity, virtual_cost, weight, epsilon, expected_payment
            and payment of every seller.
        groups
            variant, value, group, sellers, n_bought, share_of_sellers, share_of_weight,
            epsilon_mean, expected_payment_mean and payment_mean (per seller); empty without groups.
        audits
            variant, value, what the audit found, and message where there is no audit.
        virtual_costs
            variant and group where a prior is first used, regular (whether ironing leaves it as it
            is), sensitivity at equidistant quantiles, density (none of a discrete prior), raw and
            ironed virtual cost, of every prior; empty if none is ironed.

    Raises
    ------
    DataError
        If the sellers' file cannot be read, or holds a bad row.
    """
    stages = Stages(progress)
    variants = _points(problem)
    jobs = problem.run.workers
    units = [unit for points in variants for unit in _units(points, problem)]
    found = stages.parallel("allocate", jobs, (delayed(_answers)(unit) for unit in units))
    points = [point for unit in units for point in unit]
    answers: list[Answer] = [answer for unit in found for answer in unit]
    pairs = list(zip(points, answers, strict=True))
    paid = stages.parallel("pay", jobs, (delayed(_pay)(*pair) for pair in pairs))
    audits = _audits(variants, dict(pairs), jobs, stages)
    rows = list(zip(points, answers, paid, strict=True))
    solved = [row for row in rows if row[1].allocation is not None]
    return Result(
        problem=problem,
        tables={
            "points": pd.DataFrame([_point_row(*row) for row in rows]),
            "sellers": _concatenated(_seller_rows(*row) for row in solved),
            "groups": _concatenated(_group_rows(*row) for row in solved),
            "audits": audits,
            "virtual_costs": _virtual_costs(variants),
        },
        certificates=[
            point.labels | answer.allocation.certificate()
            for point, answer in pairs
            if answer.allocation is not None
        ],
        caveats=CAVEATS,
        timings=stages.timings(),
        provenance=provenance_of(problem),
    )


def _points(problem: VariantsProblem) -> list[list[Point]]:
    """Return the markets of every variant."""
    tables = (table for variant in problem.variants for table in variant.markets)
    lists = read_lists(problem, tables)
    return [
        [
            Point(variant.name, value, table, market_of(table, problem.run.seed, lists))
            for value, table in zip(variant.values, variant.markets, strict=True)
        ]
        for variant in problem.variants
    ]


# ----------------------------------------------------------------------------------- allocating


def _units(points: list[Point], problem: VariantsProblem) -> list[list[Point]]:
    """Group the points that one compiled problem can serve: budgets, where nothing else changes."""
    variant = next(v for v in problem.variants if v.name == points[0].variant)
    swept = variant.sweep is not None and variant.sweep.key == BUDGET_KEY
    if swept and not _pays(points[0].market):
        return [points]
    return [[point] for point in points]


def _pays(market: Market) -> bool:
    return any(term.privacy_cost is not None for term in market.terms)


def _answers(points: list[Point]) -> list[Answer]:
    """Solve one market, or several that differ in their budget alone."""
    if len(points) > 1:
        try:
            return [Answer(SOLVED, allocation=found) for found in _swept(points)]
        except AllocationError:
            pass  # which of them it was, each for itself will say
    return [_answer(point) for point in points]


def _swept(points: list[Point]) -> list[Allocation]:
    market, budget = points[0].market, cp.Parameter(nonneg=True, name="budget")
    return sweep(
        market.with_budget(budget),
        budget,
        [float(point.value or 0) for point in points],
        solver=points[0].table.solve.solver,
        gap=points[0].table.solve.gap,
    )


def _answer(point: Point) -> Answer:
    settings = point.table.solve
    try:
        allocation = allocate(point.market, solver=settings.solver, gap=settings.gap)
    except ConvexMarketError as error:
        return Answer(failure_status(error), str(error))
    return Answer(SOLVED, allocation=allocation)


# ------------------------------------------------------------------------------ paying, auditing


def _pay(point: Point, answer: Answer) -> Paid | None:
    """Pay by A's Eq. (8) where that makes the truth the best reply of each seller alone.

    The papers' problem has an exact rule. Another market is solved again for every seller, which
    is done where the file asks for it.
    """
    market, settings = point.market, point.table.payments
    if answer.allocation is None or market.incentives != TRUTHFUL:
        return None
    try:
        if market.form.exact is not None:
            return Paid(payments(market, answer.allocation), 0.0, "exact")
        if settings is None:
            return None
        found = estimate_payments(market, answer.allocation, tol=settings.tol)
    except ConvexMarketError as error:
        return Paid(np.full(len(market.sellers), np.nan), np.nan, f"none: {error}")
    return Paid(found.amounts, float(found.errors.sum()), found.method)


def _audits(
    variants: list[list[Point]], answers: dict[Point, Answer], jobs: int, stages: Stages
) -> pd.DataFrame:
    """Audit each variant whose file asks for it; of a sweep the market in its middle."""
    audited = [points[len(points) // 2] for points in variants]
    audited = [
        point
        for point in audited
        if point.table.audit is not None and answers[point].allocation is not None
    ]
    found = stages.parallel("audit", jobs, (delayed(_audit)(point) for point in audited))
    return pd.DataFrame(
        [
            point.labels | (_audited(audit) if isinstance(audit, IncentiveAudit) else audit)
            for point, audit in zip(audited, found, strict=True)
        ]
    )


def _audit(point: Point) -> IncentiveAudit | dict[str, str]:
    table = point.table.audit
    assert table is not None
    try:
        return audit_incentives(
            point.market, misreports=table.misreports, max_sellers=table.sellers
        )
    except ConvexMarketError as error:
        return {"message": str(error)}


def _audited(audit: IncentiveAudit) -> dict[str, Any]:
    return audit_row(audit) | {"max_rise": audit.max_rise}


# --------------------------------------------------------------------------------- what is found


def _point_row(point: Point, answer: Answer, paid: Paid | None) -> dict[str, Any]:
    market = point.market
    row = point.labels | {
        "status": answer.status,
        "message": answer.message,
        "n_sellers": len(market.sellers),
        "incentives": str(market.incentives),
        "reason": market.incentives.reason,
    }
    found = answer.allocation
    if found is None:
        return row
    spread = float(np.linalg.norm(found.weights))
    return row | {
        "objective": found.objective,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "error": without_payments(market, found),
        "spread": spread,
        "noise": 1.0 / found.eta,
        "n_effective": spread**-2,
        "eta": found.eta,
        "n_bought": n_bought(found.weights),
        "epsilon_max": float(found.epsilon.max()),
        "expected_payments": float(expected_payments(market, found).sum()),
        "payments": np.nan if paid is None else float(paid.amounts.sum()),
        "payments_error": np.nan if paid is None else paid.error,
        "payments_method": None if paid is None else paid.method,
        "method": found.method,
        "solver": found.solver,
        "solves": len(found.solves),
        "solve_statuses": _counted(record.status for record in found.solves) or None,
        "seconds": found.seconds,
    }


def without_dust(sellers: pd.DataFrame) -> pd.DataFrame:
    """Return the sellers of a result where the weights of a solver's rounding buy nothing."""
    if sellers.empty:
        return sellers
    size = sellers.groupby(["variant", "value"], dropna=False).weight.transform("size")
    dust = sellers.weight * size <= DUST
    bought = ["weight", "epsilon", "expected_payment", "payment"]
    return sellers.assign(
        **{name: sellers[name].mask(dust & (sellers[name].notna()), 0.0) for name in bought}
    )


def _counted(statuses: Iterable[str]) -> str:
    return ", ".join(f"{number} {status}" for status, number in Counter(statuses).most_common())


def _seller_rows(point: Point, answer: Answer, paid: Paid | None) -> pd.DataFrame:
    found, sellers = answer.allocation, point.market.sellers
    assert found is not None
    groups = sellers.groups
    return pd.DataFrame(
        point.labels
        | {
            "id": list(sellers.ids),
            "group": "" if groups is None else groups,
            "sensitivity": sellers.sensitivities,
            "virtual_cost": sellers.virtual_costs,
            "weight": found.weights,
            "epsilon": found.epsilon,
            "expected_payment": expected_payments(point.market, found),
            "payment": np.nan if paid is None else paid.amounts,
        }
    )


def _group_rows(point: Point, answer: Answer, paid: Paid | None) -> pd.DataFrame:
    if point.market.sellers.groups is None:
        return pd.DataFrame()
    rows = _seller_rows(point, answer, paid)
    table = rows.groupby("group", sort=False).agg(
        sellers=("id", "size"),
        n_bought=("weight", lambda weights: n_bought(weights, len(rows))),
        share_of_weight=("weight", "sum"),
        epsilon_mean=("epsilon", "mean"),
        expected_payment_mean=("expected_payment", "mean"),
        payment_mean=("payment", "mean"),
    )
    table.insert(2, "share_of_sellers", table.sellers / table.sellers.sum())
    return table.reset_index().assign(**point.labels)[[*point.labels, "group", *table.columns]]


def _virtual_costs(variants: list[list[Point]]) -> pd.DataFrame:
    """Tabulate the virtual costs of every prior once, if any of them is ironed."""
    used: dict[Prior, tuple[str, str]] = {}
    for points in variants:
        priors = points[0].table.priors
        for group, prior in priors.items():
            shared = len(set(priors.values())) == 1
            used.setdefault(prior, (points[0].variant, "" if shared else group))
    if all(prior.is_regular for prior in used):
        return pd.DataFrame()
    levels = np.linspace(0.0005, 0.9995, _CURVE_POINTS)
    return _concatenated(
        _virtual_cost_rows(prior, prior.quantile(levels), *where) for prior, where in used.items()
    )


def _virtual_cost_rows(prior: Prior, c: Floats, variant: str, group: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "variant": variant,
            "group": group,
            "regular": prior.is_regular,
            "sensitivity": c,
            "density": np.nan if prior.is_step else prior.pdf(c),
            "raw": prior.virtual_cost(c),
            "ironed": prior.ironed_virtual_cost(c),
        }
    )


def _concatenated(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
