"""What was found in a market and its variants, in sentences made from the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from convexmarket.experiments.variants import SOLVED, VariantsResult
from convexmarket.report.parts import select, short
from convexmarket.report.words import count, equals, format_percent, listing, share

__all__ = [
    "Scene",
    "bought_words",
    "constraint_words",
    "failure_words",
    "group_words",
    "incentive_words",
    "key_words",
    "sweep_words",
]

#: Relative differences below this are called none: they are within what a gap leaves open.
_SAME = 1e-4
#: Relative differences between curves that interpolation does not tell from none.
_CLOSE = 0.01


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
        """Return the answered points of one variant, in the order of what is swept."""
        return select(self.solved, variant=name).sort_values("value")


def quoted(name: str) -> str:
    """Write a variant's name."""
    return f"“{name}”"


def key_words(key: str) -> str:
    """Return what a swept key is called in sentences and on axes."""
    *_, table, last = key.split(".")
    words = {"cap": "cap k", "max_epsilon": "largest ε allowed"}
    return f"weight of {table}" if last == "weight" else words.get(last, last)


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
    names = [name for name in scene.swept if len(scene.curve(name)) > 1]
    sentences = []
    for name in names:
        first, *_, last = (row for _, row in scene.curve(name).iterrows())
        sentences.append(
            f"Along {quoted(name)} ({key_words(scene.swept[name])} from {short(first.value)} to "
            f"{short(last.value)}) expected payments go from {short(first.expected_payments)} to "
            f"{short(last.expected_payments)}, and the error from {short(first.error)} to "
            f"{short(last.error)}."
        )
    if names:
        sentences.insert(0, "The error is the objective without payments: spread and noise.")
    sentences += [_compared_words(scene, names[0], other) for other in names[1:]]
    return " ".join(sentences)


def _compared_words(scene: Scene, first: str, other: str) -> str:
    """Compare the points of a curve with the first one at equal payments, by interpolation."""
    known = scene.curve(first).sort_values("expected_payments")
    new = scene.curve(other)
    new = new[new.expected_payments.between(*known.expected_payments.iloc[[0, -1]])]
    if new.empty:
        return f"{quoted(other)} has no payments in common with {quoted(first)}."
    at_equal = np.interp(
        np.log(new.expected_payments), np.log(known.expected_payments), np.log(known.error)
    )
    rise = (new.error / np.exp(at_equal) - 1).to_numpy()
    subject = (
        f"At equal expected payments ({quoted(first)} interpolated between its points) the error "
        f"of {quoted(other)}"
    )
    if np.max(np.abs(rise)) < _CLOSE:
        return f"{subject} is the same, within {format_percent(max(1e-3, np.max(np.abs(rise))))}."
    worst = equals(key_words(scene.swept[other]), float(new.value.iloc[int(np.argmax(rise))]))
    return (
        f"{subject} is {_signed(np.min(rise))} to {_signed(np.max(rise))} relative to it, the most "
        f"at {worst}."
    )


def _signed(change: float) -> str:
    """Write a relative change; less than a tenth of a percent is none."""
    if abs(change) < 5e-4:
        return "0%"
    return f"{'+' if change > 0 else '−'}{format_percent(abs(change))}"


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
