"""What the study of online policies found, in words that follow from its numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.online_study.figures import POLICIES
from convexmarket.lab.kinds.online_study.problem import KNOWING
from convexmarket.lab.kinds.online_study.run import OnlineStudyResult
from convexmarket.lab.report.claims import claims_words
from convexmarket.lab.report.parts import select
from convexmarket.lab.report.words import count, equals, format_number, listing, share

__all__ = ["in_quotes", "main_fraction", "percent", "summary_words"]


def percent(value: float) -> str:
    """Write a share in percent, with three digits however small it is."""
    return "–" if np.isnan(value) else f"{format_number(100 * value)}%"


def in_quotes(policy: str) -> str:
    """Return what a policy is called."""
    return f"“{POLICIES[policy]}”"


def main_fraction(result: OnlineStudyResult) -> float:
    """Return the fraction that most is said of: the largest."""
    return max(result.problem.study.fractions)


def summary_words(result: OnlineStudyResult) -> tuple[str, ...]:
    """Return the paragraphs that are read first, the finding before everything else."""
    paragraphs = [
        _fraction_words(result),
        _regret_words(result),
        _finding(result),
        _floor_words(result),
        " ".join(result.problem.description.split()),
        _empty_words(result),
        claims_words(result.claims) if result.claims else "",
    ]
    return tuple(text for text in paragraphs if text)


def _finding(result: OnlineStudyResult) -> str:
    """Say what is lost against hindsight, at the smallest and the largest m."""
    known = select(result.points, fraction=main_fraction(result))
    parts = []
    for policy in result.problem.study.policies:
        rows = known[(known.policy == policy) & np.isfinite(known.ratio)]
        if rows.empty:
            parts.append(f"{in_quotes(policy)} bought nothing in any draw")
            continue
        ends = [rows.iloc[0], *([rows.iloc[-1]] if len(rows) > 1 else [])]
        at = [f"{percent(row.ratio - 1)} with {_size(row)}" for row in ends]
        last = ends[-1]
        parts.append(
            f"the loss of {in_quotes(policy)} is larger by {' and '.join(at)} (95% interval "
            f"{percent(last.ratio_low - 1)} to {percent(last.ratio_high - 1)})"
        )
    words = listing(parts)
    if len(result.problem.study.fractions) > 1:
        words += f", where {equals('ξ', main_fraction(result))}"
    return (
        f"Against a buyer who knows all reports beforehand, {words}; means over "
        f"{count(result.problem.study.draws, 'draw')}."
    )


def _size(point: pd.Series) -> str:
    """Name the size of a point, and say if its mean is not over all draws."""
    words = equals("m", int(point["size"]))
    if point["empty"]:
        words += f" (over the {point.draws - point['empty']} draws that bought something)"
    return words


def _fraction_words(result: OnlineStudyResult) -> str:
    """Say what becomes of the ratio when fewer come, for the most sellers."""
    study = result.problem.study
    if len(study.fractions) < 2:
        return ""
    size = study.sizes[-1]
    parts = []
    for policy in study.policies:
        rows = select(result.points, policy=policy, size=size)
        rows = rows[np.isfinite(rows.ratio)].sort_values("fraction", ascending=False)
        ratios = [
            f"{format_number(row.ratio)} at {equals('ξ', row.fraction)}"
            for _, row in rows.iterrows()
        ]
        if ratios:
            parts.append(f"{listing(ratios)} with {in_quotes(policy)}")
    if not parts:
        return ""
    return (
        f"Where a fraction ξ of {equals('m', size)} comes, the loss divided by that of the optimum "
        f"of those who came is {'; '.join(parts)}."
    )


def _regret_words(result: OnlineStudyResult) -> str:
    known = select(result.points, fraction=main_fraction(result))
    parts = []
    for policy in result.problem.study.policies:
        if policy not in KNOWING:
            continue
        rows = known[(known.policy == policy) & np.isfinite(known.regret)]
        if rows.empty:
            continue
        ends = [rows.iloc[0], rows.iloc[-1]] if len(rows) > 1 else [rows.iloc[0]]
        at = [f"{percent(row.regret)} with {_size(row)}" for row in ends]
        parts.append(f"{in_quotes(policy)} has a regret of {' and '.join(at)}")
    if not parts:
        return ""
    return (
        f"{listing(parts)[:1].upper()}{listing(parts)[1:]}: the mean of how much a loss is above "
        "that of the same policy with the true prior, on the same sellers."
    )


def _floor_words(result: OnlineStudyResult) -> str:
    """Say where the loss goes when privacy is never free."""
    if result.floor == 0:
        return ""
    known = select(result.points, fraction=main_fraction(result))
    rows = known[(known.policy == result.problem.study.policies[0]) & np.isfinite(known.loss)]
    words = (
        f"No loss can be below {format_number(result.floor)}, 2·sqrt(σ·γ·ψ) for the smallest "
        "virtual cost ψ, so the loss does not vanish as more sellers are expected."
    )
    if rows.empty:
        return words
    last = rows.iloc[-1]
    words += f" It is {format_number(last.loss, 4)} with {equals('m', int(last['size']))}"
    fit = result.fits[
        (result.fits.policy == last.policy)
        & (result.fits.fraction == last.fraction)
        & (result.fits["of"] == "loss above the floor")
    ]
    if len(fit) and np.isfinite(fit.low.iloc[0]):
        line = fit.iloc[0]
        words += (
            f", and what lies above falls like m to the power {line.slope:.2f} (95% interval "
            f"{line.low:.2f} to {line.high:.2f})"
        )
    return f"{words}."


def _empty_words(result: OnlineStudyResult) -> str:
    """Say where nothing was bought, which no mean can show."""
    points = result.points[result.points["empty"] > 0]
    if points.empty:
        return f"Something was bought in {share(len(result.draws), len(result.draws), 'run')}."
    parts = []
    for policy, rows in points.groupby("policy", sort=False):
        runs = int(rows["empty"].sum())
        whole = int((result.draws.policy == policy).sum())
        largest = int(rows["size"].max())
        parts.append(f"{in_quotes(str(policy))} in {runs:,} of {whole:,} (m up to {largest:,})")
    return (
        f"Nothing at all was bought by {listing(parts)}: then there is no model, and the loss is "
        "infinite. These runs are counted in the tables; means are over the others, and so is "
        "everything that is fitted to means, which uses only sizes without such runs. The median "
        "ratio includes them."
    )
