"""What was found in a market and its variants, in sentences made from the numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from convexmarket.lab.kinds.variants.figures import flat_pieces
from convexmarket.lab.kinds.variants.run import SOLVED, VariantsResult
from convexmarket.lab.problem.declared import MarketTable
from convexmarket.lab.report.parts import select, short
from convexmarket.lab.report.words import count, equals, format_percent, listing, share

__all__ = [
    "CLOSE",
    "LIMITS",
    "Scene",
    "at_equal",
    "bought_words",
    "compared_words",
    "failure_words",
    "group_words",
    "incentive_words",
    "ironing_words",
    "key_words",
    "objective_words",
    "payment_per_seller",
    "quoted",
    "span_words",
]

#: Swept keys that limit what a single seller may be asked for.
LIMITS = ("constraints.cap", "constraints.max_epsilon")
#: What the papers call the weight of a term.
_GREEK = {"spread": "μ", "noise": "σ", "payments": "γ"}

#: Relative differences below this are called none.
_SAME = 1e-4
#: Relative differences between curves that interpolation does not tell from none.
CLOSE = 2e-3


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

    @cached_property
    def curves(self) -> list[str]:
        """The variants with a sweep of which two points or more have an answer."""
        return [name for name in self.swept if len(self.curve(name)) > 1]

    @cached_property
    def tables(self) -> dict[str, MarketTable]:
        """What each variant states; of a sweep, at its first value."""
        return {item.name: item.markets[0] for item in self.result.problem.variants}

    @cached_property
    def one_error(self) -> bool:
        """Whether all variants measure spread and noise alike, so that errors can be compared."""
        errors = [
            {label: term for label, term in table.objective.items() if not term.builds.pays}
            for table in self.tables.values()
        ]
        return all(error == errors[0] for error in errors)

    @cached_property
    def limits(self) -> list[str]:
        """The curves that tighten a limit on single sellers of the same market."""
        names = [name for name in self.curves if self.swept[name] in LIMITS]
        same = [name for name in names if self.differ(names[0], name) <= {"constraints"}]
        return same if len(same) > 1 else []

    def differ(self, first: str, second: str) -> set[str]:
        """Return the parts of the market in which two variants differ."""
        left, right = self.tables[first], self.tables[second]
        parts = ("sellers", "prior", "objective", "constraints")
        return {part for part in parts if getattr(left, part) != getattr(right, part)}

    def curve(self, name: str) -> pd.DataFrame:
        """Return the answered points of one variant, in the order of what is swept."""
        return select(self.solved, variant=name).sort_values("value")


def quoted(name: str) -> str:
    """Write a variant's name."""
    return f"“{name}”"


def key_words(key: str) -> str:
    """Return what a swept key is called in sentences and on axes."""
    *_, table, last = key.split(".")
    if last == "weight":
        return " ".join(filter(None, ["weight", _GREEK.get(table), "of", table]))
    return {"cap": "cap k", "max_epsilon": "largest ε allowed"}.get(last, last)


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
            _range_words(rows, "epsilon_max", "The largest guarantee sold", "ε = "),
            _range_words(rows, "expected_payments", "The sum of expected payments"),
            _range_words(rows, "error", "The error") if scene.one_error else "",
        ]
    ).strip()


def _range_words(rows: pd.DataFrame, column: str, subject: str, symbol: str = "") -> str:
    low, *_, high = (row for _, row in rows.sort_values(column).iterrows())
    if high[column] <= low[column] + _SAME * abs(low[column]):
        return f"{subject} is {symbol}{short(low[column])} in every variant."
    return (
        f"{subject} ranges from {symbol}{short(low[column])} in {quoted(low.variant)} to "
        f"{symbol}{short(high[column])} in {quoted(high.variant)}."
    )


def objective_words(scene: Scene) -> str:
    """Say what another constraint, or another prior, does to the objective of the first variant."""
    rows = scene.single
    if len(rows) < 2 or rows.variant.iloc[0] != scene.names[0]:
        return ""
    first = rows.iloc[0]
    constrained, others = [], []
    for row in rows.iloc[1:].itertuples():
        parts = scene.differ(first.variant, str(row.variant))
        words = (
            f"{_change_words(row.objective / first.objective - 1)} in {quoted(str(row.variant))}"
        )
        if parts == {"constraints"}:
            constrained.append(words)
        elif parts and parts <= {"sellers", "prior"}:
            others.append(words)
    return " ".join(
        f"{subject}: it is {short(first.objective)} in {quoted(first.variant)}, {listing(changes)}."
        for subject, changes in (
            ("What a constraint costs the buyer is what it adds to the objective", constrained),
            ("Another prior changes the objective", others),
        )
        if changes
    )


def _change_words(change: float) -> str:
    """Write a relative change of something."""
    if abs(change) < _SAME:
        return f"within {_SAME:.2%} of that"
    size = format_percent(abs(change)) if abs(change) >= 1e-3 else f"{abs(change):.2%}"
    return f"{size} {'more' if change > 0 else 'less'}"


def span_words(scene: Scene) -> str:
    """Say what each curve spans."""
    sentences = []
    for name in scene.curves:
        first, *_, last = (row for _, row in scene.curve(name).iterrows())
        sentences.append(
            f"Along {quoted(name)} ({key_words(scene.swept[name])} from {short(first.value)} to "
            f"{short(last.value)}) expected payments go from {short(first.expected_payments)} to "
            f"{short(last.expected_payments)}, and the error from {short(first.error)} to "
            f"{short(last.error)}."
        )
    return " ".join(sentences)


def compared_words(scene: Scene) -> str:
    """Compare curves: at equal expected payments, and limits at equal largest guarantees."""
    first, *others = scene.curves or [""]
    sentences = [
        _compared(scene, first, other, "expected_payments", "error")
        for other in others
        if scene.one_error
    ]
    if scene.limits:
        *caps, best = sorted(scene.limits, key=lambda name: LIMITS.index(scene.swept[name]))
        sentences += [_compared(scene, best, cap, "epsilon_max", "objective") for cap in caps]
    return " ".join(sentences)


_EQUAL = {"expected_payments": "expected payments", "epsilon_max": "largest guarantees"}


def _compared(scene: Scene, first: str, other: str, equal: str, column: str) -> str:
    """Say how far one curve is above or below another."""
    rows = at_equal(scene.curve(first), scene.curve(other), equal, column).dropna()
    if rows.empty:
        return f"{quoted(other)} has no {_EQUAL[equal]} in common with {quoted(first)}."
    subject = f"At equal {_EQUAL[equal]} the {column} of {quoted(other)} is"
    low, high = rows.change.min(), rows.change.max()
    if max(abs(low), abs(high)) < CLOSE:
        closest = format_percent(max(1e-3, math.ceil(1e3 * max(abs(low), abs(high))) / 1e3))
        return f"{subject} that of {quoted(first)}, within {closest} in all {len(rows)} points."
    worst = equals(key_words(scene.swept[other]), float(rows.value.iloc[rows.change.argmax()]))
    if low > -CLOSE:
        return (
            f"{subject} up to {format_percent(high)} above that of {quoted(first)}, the most at "
            f"{worst}."
        )
    return (
        f"{subject} between {format_percent(-low)} below and {format_percent(max(0, high))} above "
        f"that of {quoted(first)}, the most at {worst}."
    )


def at_equal(known: pd.DataFrame, new: pd.DataFrame, equal: str, column: str) -> pd.DataFrame:
    """Compare the points of one curve with another curve at the same abscissa.

    Parameters
    ----------
    known, new : pandas.DataFrame
        The curves; ``known`` is interpolated, monotonely and on logarithmic scales.
    equal : str
        The column in which they are made equal; positive.
    column : str
        The column that is compared; positive.

    Returns
    -------
    pandas.DataFrame
        One row for each point of ``new``: variant, value, the two columns, ``there`` (the other
        curve at the same abscissa) and ``change`` (relative to it); missing outside its range.
    """
    known = known.sort_values(equal).drop_duplicates(equal)
    rows = new[["variant", "value", equal, column]].copy()
    if len(known) < 2:
        return rows.assign(there=np.nan, change=np.nan)
    curve = PchipInterpolator(np.log(known[equal]), np.log(known[column]), extrapolate=False)
    rows["there"] = np.exp(curve(np.log(rows[equal])))
    rows["change"] = rows[column] / rows.there - 1
    return rows


def group_words(scene: Scene) -> str:
    """Say how much of the weight each group carries and what it is paid, variant by variant."""
    groups = scene.result.groups
    groups = groups[groups.variant.isin(scene.single.variant)] if len(groups) else groups
    column, paid = payment_per_seller(scene)
    sentences = []
    for group, rows in groups.groupby("group", sort=False) if len(groups) else []:
        parts = [
            f"{format_percent(weight)} and {short(payment)} in {quoted(name)}"
            for name, weight, payment in zip(
                rows.variant, rows.share_of_weight, rows[column], strict=True
            )
        ]
        sentences.append(
            f"The group {quoted(str(group))}, {format_percent(float(rows.share_of_sellers.max()))} "
            f"of the sellers, has this share of the weight and {paid}: {listing(parts)}."
        )
    return " ".join(sentences)


def payment_per_seller(scene: Scene) -> tuple[str, str]:
    """Return the column of payments per seller of a group, and its name.

    They are the payments where all are computed, else what these are on average over the prior.
    """
    groups = scene.result.groups
    known = len(groups) > 0 and bool(groups.payment_mean.notna().all())
    kind = "payment" if known else "expected payment"
    return f"{kind.replace(' ', '_')}_mean", f"{kind} per seller"


def ironing_words(scene: Scene) -> str:
    """Say which priors are ironed, where, and what that does to the sellers there."""
    curves = scene.result.virtual_costs
    if curves.empty:
        return ""
    sentences = []
    for (variant, group), rows in curves[~curves.regular].groupby(["variant", "group"], sort=False):
        where = quoted(str(variant)) + (f" ({group})" if group else "")
        pieces = listing([f"{short(low)} to {short(high)}" for low, high in flat_pieces(rows)])
        sentences.append(
            f"The prior of {where} is not regular. Ironing makes its virtual cost flat from c = "
            f"{pieces}, an interval of {format_percent(_flat_share(rows))} of the population"
            f"{_pooled_words(scene, str(variant), str(group), rows)}."
        )
    return " ".join(sentences)


def _flat_share(rows: pd.DataFrame) -> float:
    """Return the share of the population on flat pieces; rows are equidistant quantiles."""
    c = rows.sensitivity
    return float(sum(c.between(*piece).sum() - 1 for piece in flat_pieces(rows)) / len(rows))


def _pooled_words(scene: Scene, variant: str, group: str, rows: pd.DataFrame) -> str:
    """Say how many of these sellers are on a flat piece, and what they all sell."""
    if variant not in set(scene.solved.variant):
        return ""
    levels = [float(rows.ironed[rows.sensitivity == low].iloc[0]) for low, _ in flat_pieces(rows)]
    sellers = select(scene.result.sellers, variant=variant)
    sellers = select(sellers, group=group) if group else sellers
    pools = [sellers[np.isclose(sellers.virtual_cost, level, rtol=1e-6)] for level in levels]
    sizes = [
        f"the {count(len(pool), 'seller')} in it sell ε = {short(pool.epsilon.mean())} each"
        for pool in pools
        if len(pool)
    ]
    return f": {listing(sizes)}" if sizes else ""


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
