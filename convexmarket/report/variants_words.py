"""What was found in a market and its variants, in sentences made from the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from convexmarket.experiments.variants import SOLVED, VariantsResult
from convexmarket.report.parts import select, short
from convexmarket.report.words import count, format_percent, listing, share

__all__ = [
    "Scene",
    "bought_words",
    "constraint_words",
    "failure_words",
    "group_words",
    "incentive_words",
    "sweep_words",
]

#: Relative differences below this are called none: they are within what a gap leaves open.
_SAME = 1e-4
_GRID = 200


@dataclass(frozen=True)
class Scene:
    """The result with what every sentence asks for."""

    result: VariantsResult

    @cached_property
    def names(self) -> list[str]:
        """The variants, in the order of the file."""
        return [variant.name for variant in self.result.problem.variants]

    @cached_property
    def swept(self) -> dict[str, str]:
        """The swept key of each variant that has one."""
        variants = self.result.problem.variants
        return {item.name: item.sweep.key for item in variants if item.sweep is not None}

    @cached_property
    def solved(self) -> pd.DataFrame:
        """The points that have an answer."""
        return select(self.result.points, status=SOLVED)

    @cached_property
    def single(self) -> pd.DataFrame:
        """Those of variants that are one market each."""
        return self.solved[~self.solved.variant.isin(list(self.swept))]

    @cached_property
    def failed(self) -> pd.DataFrame:
        """The points without an answer."""
        return self.result.points[self.result.points.status != SOLVED]

    def curve(self, name: str) -> pd.DataFrame:
        """Return the answered points of one variant, cheapest first."""
        return select(self.solved, variant=name).sort_values("expected_payments")


def quoted(name: str) -> str:
    """Write a variant's name."""
    return f"“{name}”"


def bought_words(scene: Scene) -> str:
    """Say who buys from the fewest and the most, and what that does to guarantees and payments."""
    rows = scene.single
    if rows.empty:
        return ""
    if len(rows) == 1:
        row = rows.iloc[0]
        return (
            f"{quoted(row.variant)} buys from {share(int(row.n_bought), row.n_sellers, 'seller')}; "
            f"its largest guarantee is ε = {short(row.epsilon_max)} and its expected payments are "
            f"{short(row.expected_payments)}."
        )
    fewest, *_, most = (row for _, row in rows.sort_values("n_effective").iterrows())
    return " ".join(
        [
            f"The weight is most concentrated in {quoted(fewest.variant)}, which buys from "
            f"{share(int(fewest.n_bought), fewest.n_sellers, 'seller')} and counts for as much as "
            f"{short(fewest.n_effective)} equal ones. It is most even in {quoted(most.variant)}: "
            f"{share(int(most.n_bought), most.n_sellers, 'seller')}, as much as "
            f"{short(most.n_effective)} equal ones.",
            _range_words(rows, "epsilon_max", "The largest guarantee sold is ε ="),
            _range_words(rows, "expected_payments", "Expected payments are"),
        ]
    )


def _range_words(rows: pd.DataFrame, column: str, subject: str) -> str:
    low, *_, high = (row for _, row in rows.sort_values(column).iterrows())
    if high[column] <= low[column] * (1 + _SAME):
        return f"{subject} {short(low[column])} in every variant."
    return (
        f"{subject} {short(low[column])} in {quoted(low.variant)} and {short(high[column])} in "
        f"{quoted(high.variant)}."
    )


def constraint_words(scene: Scene) -> str:
    """Say what constraints cost: how much they raise the objective of the first variant."""
    variants = {item.name: item for item in scene.result.problem.variants}
    rows = scene.single
    if len(rows) < 2 or rows.variant.iloc[0] != scene.names[0]:
        return ""
    first = rows.iloc[0]
    base = variants[first.variant].markets[0]
    compared = []
    for row in rows.iloc[1:].itertuples():
        table = variants[str(row.variant)].markets[0]
        same = all(
            getattr(table, part) == getattr(base, part)
            for part in ("sellers", "prior", "objective")
        )
        if same and table.constraints != base.constraints:
            rise = row.objective / first.objective - 1
            words = "the same" if abs(rise) < _SAME else f"{format_percent(rise)} above"
            compared.append(f"{words} in {quoted(str(row.variant))}")
    if not compared:
        return ""
    return (
        f"The price of a constraint is what it does to the objective, which is "
        f"{short(first.objective)} in {quoted(first.variant)}: {listing(compared)}."
    )


def sweep_words(scene: Scene) -> str:
    """Say what each curve spans, and how the others compare with the first at equal payments."""
    curves = {name: scene.curve(name) for name in scene.swept if len(scene.curve(name)) > 1}
    sentences = [
        f"Along {quoted(name)} expected payments go from {short(rows.expected_payments.iloc[0])} "
        f"to {short(rows.expected_payments.iloc[-1])}, and the error (the objective without "
        f"payments) from {short(rows.error.iloc[0])} to {short(rows.error.iloc[-1])}."
        for name, rows in curves.items()
    ]
    names = list(curves)
    if names:
        sentences += [_compared_words(names[0], other, curves) for other in names[1:]]
    return " ".join(sentences)


def _compared_words(first: str, other: str, curves: dict[str, pd.DataFrame]) -> str:
    """Compare two curves at equal expected payments, between the points by interpolation."""
    known, new = curves[first], curves[other]
    low = max(known.expected_payments.min(), new.expected_payments.min())
    high = min(known.expected_payments.max(), new.expected_payments.max())
    if not high > low * (1 + _SAME):
        return f"{quoted(other)} has no payments in common with {quoted(first)}."
    grid = np.geomspace(low, high, _GRID)
    rise = _error_at(new, grid) / _error_at(known, grid) - 1
    where = f"At equal expected payments, from {short(low)} to {short(high)}, "
    if np.max(np.abs(rise)) < 0.005:
        return f"{where}{quoted(other)} and {quoted(first)} have the same error within 0.5%."
    return (
        f"{where}the error of {quoted(other)} is {_signed(np.min(rise))} to "
        f"{_signed(np.max(rise))} relative to {quoted(first)}, {_signed(np.median(rise))} in the "
        "middle."
    )


def _error_at(curve: pd.DataFrame, payments: np.ndarray) -> np.ndarray:
    logs = np.interp(np.log(payments), np.log(curve.expected_payments), np.log(curve.error))
    return np.exp(logs)


def _signed(change: float) -> str:
    return f"{'+' if change >= 0 else '−'}{format_percent(abs(change))}"


def group_words(scene: Scene) -> str:
    """Say how much of the weight each group carries, variant by variant."""
    groups = scene.result.groups
    groups = groups[groups.variant.isin(scene.single.variant)] if len(groups) else groups
    sentences = []
    for group, rows in groups.groupby("group", sort=False) if len(groups) else []:
        parts = [
            f"{format_percent(weight)} in {quoted(name)}"
            for name, weight in zip(rows.variant, rows.share_of_weight, strict=True)
        ]
        sentences.append(
            f"The group {quoted(str(group))}, {format_percent(float(rows.share_of_sellers.max()))} "
            f"of the sellers, carries this share of the weight: {listing(parts)}."
        )
    return " ".join(sentences)


def failure_words(scene: Scene) -> str:
    """Say which variants have no answer, and why."""
    failed = scene.failed
    if failed.empty:
        return ""
    parts = []
    for (name, status), rows in failed.groupby(["variant", "status"], sort=False):
        where = f" at {count(len(rows), 'value')} of its sweep" if name in scene.swept else ""
        parts.append(f"{quoted(str(name))} is {status}{where} ({rows.message.iloc[0]})")
    return f"No answer: {listing(parts)}."


def incentive_words(scene: Scene) -> str:
    """Say in which variants truthful prices exist, and why not in the others."""
    points = scene.result.points.drop_duplicates(["variant", "incentives", "reason"])
    verdicts = points.groupby(["incentives", "reason"], sort=False)
    if len(verdicts) == 1 and points.incentives.iloc[0] == "by construction":
        return f"Truthful prices exist in every variant: {points.reason.iloc[0]}."
    sentences = []
    for (verdict, reason), rows in verdicts:
        where = listing([quoted(name) for name in dict.fromkeys(rows.variant)])
        subject = {
            "by construction": "Truthful prices exist by construction",
            "not guaranteed": "Truthful prices are not guaranteed",
        }.get(str(verdict), "Whether truthful prices exist is not known")
        sentences.append(f"{subject} in {where}: {reason}.")
    return " ".join(sentences)
