"""A market and variants of it, solved side by side: one :class:`convexmarket.Study`.

A variant that has no answer (its constraints contradict each other, its objective has no minimum,
its solver fails) is a row that says so, and the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.problem.declared import MarketTable
from convexmarket.lab.problem.sellers import market_of, read_lists
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.studies.study import DUST, Study

__all__ = ["SOLVED", "run_variants", "without_dust"]

Floats = NDArray[np.float64]

#: The status of a market that has an answer.
SOLVED = "solved"
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
            One row per variant, and per value of its sweep: variant, value, and the columns of the
            runs of :meth:`convexmarket.Study.run`.
        sellers
            variant, value, and the columns of its sellers.
        groups
            variant, value, group, sellers, n_bought, share_of_sellers, share_of_weight,
            epsilon_mean, expected_payment_mean and payment_mean (per seller); empty without groups.
        audits
            variant, value, and the columns of its audits.
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
    points = [point for variant in variants for point in variant]
    runs = _studied(
        points,
        problem,
        stages,
        "allocate and pay",
        lambda table: (table.solve, table.payments),
        lambda table: {
            "payments": "exact" if table.payments is None else "all",
            "tol": 1e-2 if table.payments is None else table.payments.tol,
            "audits": "none",
        },
    )
    solved = set(runs["runs"].index[runs["runs"].status == SOLVED])
    middle = [variant[len(variant) // 2] for variant in variants]
    audited = [
        point if point.table.audit is not None and points.index(point) in solved else None
        for point in middle
    ]
    audits = _studied(
        [point for point in audited if point is not None],
        problem,
        stages,
        "audit",
        lambda table: (table.solve, table.audit),
        lambda table: {
            "payments": "none",
            "audits": "all",
            "audit_sellers": table.audit.sellers,
            "misreports": table.audit.misreports,
        },
    )
    sellers = runs["sellers"]
    return Result(
        problem=problem,
        tables={
            "points": runs["runs"],
            "sellers": sellers,
            "groups": _groups(sellers),
            "audits": audits["audits"],
            "virtual_costs": _virtual_costs(variants),
        },
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


def _studied(
    points: list[Point],
    problem: VariantsProblem,
    stages: Stages,
    stage: str,
    alike: Callable[[MarketTable], Any],
    options: Callable[[Any], dict[str, Any]],
) -> dict[str, pd.DataFrame]:
    """Study markets, those with the same options together; name variant and value in each row."""
    together: dict[str, list[int]] = {}
    for place, point in enumerate(points):
        together.setdefault(repr(alike(point.table)), []).append(place)
    parts: dict[str, list[pd.DataFrame]] = {"runs": [], "sellers": [], "audits": []}
    with stages(stage, len(points)) as advance:
        for places in together.values():
            table = points[places[0]].table
            runs = Study({str(place): points[place].market for place in places}).run(
                **options(table),
                solver=table.solve.solver,
                gap=table.solve.gap,
                jobs=problem.run.workers,
                progress=lambda _stage, done, _total: advance() if done else None,
            )
            for name, rows in runs.tables.items():
                parts[name].append(rows)
    tables = {}
    for name, frames in parts.items():
        rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"market": []})
        order = rows.pop("market").astype(int).to_numpy()
        labels = [(points[place].variant, points[place].value) for place in order]
        rows.insert(0, "variant", [variant for variant, _ in labels])
        rows.insert(1, "value", np.array([value for _, value in labels], dtype=float))
        tables[name] = rows.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)
    return tables


def _groups(sellers: pd.DataFrame) -> pd.DataFrame:
    """Return what each group sells in each market; empty without groups."""
    tables = []
    place: Any
    for place, rows in sellers.groupby(["variant", "value"], dropna=False, sort=False):
        if (rows.group != "").any():
            bought = rows.weight * len(rows) > DUST
            table = (
                rows.assign(bought=bought)
                .groupby("group", sort=False)
                .agg(
                    sellers=("id", "size"),
                    n_bought=("bought", "sum"),
                    share_of_weight=("weight", "sum"),
                    epsilon_mean=("epsilon", "mean"),
                    expected_payment_mean=("expected_payment", "mean"),
                    payment_mean=("payment", "mean"),
                )
            )
            table.insert(1, "share_of_sellers", table.sellers / table.sellers.sum())
            table = table.reset_index()
            table.insert(0, "variant", place[0])
            table.insert(1, "value", place[1])
            tables.append(table)
    return _concatenated(tables)


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
