"""Who is fastest in a solver study, and where solvers break: sentences that the numbers bear out.

The exact method is no solver: it is named apart, and what is said of the fastest is said of the
others. A difference in time is called one only if its 95% interval excludes 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.solver_study.run import SolverStudyResult
from convexmarket.lab.kinds.solver_study.words import (
    EVERY,
    breaks,
    quoted,
    ranked,
    refuted_words,
    settings,
    time_words,
    wrong_words,
)
from convexmarket.lab.report.parts import select, short
from convexmarket.lab.report.words import count, listing, share
from convexmarket.lab.study.measure import EXACT
from convexmarket.lab.study.metrics import CONTENDER, SHIFT, counted
from convexmarket.lab.study.pairs import FEWEST_PAIRS

__all__ = ["class_words", "summary_words"]

_Verdict = Literal["fastest", "unclear", "few", "alone", "none"]

_MOST_NAMED = 4
_MOST_TIES = 2


@dataclass(frozen=True)
class _Ratio:
    """The ratio of two contenders' times where both solve, with its 95% interval."""

    ratio: float = np.nan
    low: float = np.nan
    high: float = np.nan

    def __str__(self) -> str:
        interval = f"95% interval {short(self.low)} to {short(self.high)}"
        return f"{short(self.ratio)} times as long, {interval}"


_Compared = list[tuple[pd.Series, _Ratio]]


@dataclass(frozen=True)
class _Standing:
    """The least mean of a group, and how the times of the others compare with it, in order."""

    best: pd.Series
    others: _Compared

    @property
    def quicker(self) -> _Compared:
        return [(row, ratio) for row, ratio in self.others if ratio.high < 1.0]

    @property
    def level(self) -> _Compared:
        return [(row, ratio) for row, ratio in self.others if ratio.low <= 1.0 <= ratio.high]

    @property
    def slower(self) -> _Compared:
        return [(row, ratio) for row, ratio in self.others if ratio.low > 1.0]

    @property
    def incomparable(self) -> _Compared:
        return [(row, ratio) for row, ratio in self.others if np.isnan(ratio.low)]

    @property
    def verdict(self) -> _Verdict:
        """Return "fastest" only if all that can be compared, and the next in rank, are slower."""
        if not self.others:
            return "alone"
        if self.quicker or self.level:
            return "unclear"
        return "few" if np.isnan(self.others[0][1].low) else "fastest"


def _standing(result: SolverStudyResult, everyone: pd.DataFrame) -> _Standing | None:
    """Compare the solvers that solve something with the one of the least mean, if one has any."""
    solvers = everyone[(everyone.solver != EXACT) & (everyone.solved > 0)]
    if not solvers.total_s.notna().any():
        return None
    best, *others = (row for _, row in solvers.iterrows())  # those without a mean come last
    pairs = _pairs(result, best)
    return _Standing(best, [(row, _ratio(pairs, row, best)) for row in others])


def _pairs(result: SolverStudyResult, row: pd.Series) -> pd.DataFrame:
    """Return the paired ratios over all sizes in the group of a contender."""
    pairs = result.pairs[result.pairs["size"].isna()]
    return select(pairs, problem_class=row.problem_class, setting=row.setting)


def _ratio(group: pd.DataFrame, slow: pd.Series, fast: pd.Series) -> _Ratio:
    """Return the paired ratio of two contenders' times, whichever comes first."""
    for one, other, power in ((slow, fast, 1), (fast, slow, -1)):
        row = select(
            group,
            solver=one.solver,
            formulation=one.formulation,
            other_solver=other.solver,
            other_formulation=other.formulation,
        )
        if len(row):
            ratio, *ends = row[["ratio", "low", "high"]].iloc[0].astype(float) ** power
            return _Ratio(ratio, *ends[::power])
    return _Ratio()


# -------------------------------------------------------------------------------------- summary


def summary_words(result: SolverStudyResult) -> tuple[str, ...]:
    """Return the paragraphs that are read first, the findings before everything else."""
    first, *others = settings(result)
    classes = [str(name) for name in counted(result.runs).problem_class.unique()]
    findings = [class_words(result, name, first) for name in classes]
    if others:
        findings.append(
            f"This is at the setting “{first}”; the first section says the same of "
            f"{listing([f'“{name}”' for name in others])}."
        )
    paragraphs = (
        _headline(result, classes, first),
        *findings,
        wrong_words(counted(result.runs)),
        refuted_words(result.references),
        " ".join(result.problem.description.split()),
    )
    return tuple(text for text in paragraphs if text)


def _headline(result: SolverStudyResult, classes: list[str], setting: str) -> str:
    """Say who is fastest where that is shown, how much is wrong, and what words mean."""
    standings = {name: _standing(result, ranked(result, name, setting)) for name in classes}
    groups: dict[_Verdict, list[str]] = {}
    for name, standing in standings.items():
        verdict = standing.verdict if standing else "none"
        named = f"{quoted(standing.best)} ({name})" if standing and verdict == "fastest" else name
        groups.setdefault(verdict, []).append(named)
    starts: dict[_Verdict, str] = {
        "fastest": "measurably fastest:",
        "unclear": "no clear fastest in",
        "few": "too few common instances to compare in",
        "alone": "only one contender solves anything in",
        "none": "nothing to compare in",
    }
    found = [f"{start} {listing(groups[key])}" for key, start in starts.items() if key in groups]
    runs = counted(result.runs)
    wrong = int((runs.outcome == "wrong").sum())
    claims = f"{wrong:,} of {count(len(runs), 'run')} claim an answer and are wrong"
    text = "; ".join([*found, claims if wrong else "no run claims an answer and is wrong"])
    return (
        f"{text[0].upper()}{text[1:]}. A contender is a solver with a formulation; times are of a "
        "whole first solve, in the shifted geometric mean; a difference is called one only if the "
        "95% interval of the ratio, where both solve, excludes 1."
    )


# ------------------------------------------------------------------------------ who is fastest


def class_words(result: SolverStudyResult, problem_class: str, setting: str) -> str:
    """Say which solver and formulation is fastest in a group, where, and by how much."""
    everyone = ranked(result, problem_class, setting)
    start = f"{problem_class[0].upper()}{problem_class[1:]}: "
    standing = _standing(result, everyone)
    if standing is None:
        return f"{start}no contender can be called the fastest{_why_none(everyone)}."
    best, verdict = standing.best, standing.verdict
    comparable = " of those that can be compared" if standing.incomparable else ""
    verbs: dict[_Verdict, str] = {
        "fastest": f"is the fastest{comparable}",
        "alone": "is the only contender that solves anything",
    }
    parts = [
        f"{start}{quoted(best)} {verbs.get(verdict, 'takes the least time in the mean')}, "
        f"{time_words(best.total_s)}, and solves {_of(best)}{_largest(result, best)}."
    ]
    if standing.quicker:
        words = [
            f"{quoted(row)} ({ratio}; {_why_behind(row, best)})" for row, ratio in standing.quicker
        ]
        parts.append(f"Measurably faster where both solve: {_few(words)}.")
    if standing.level:
        words = [f"{quoted(row)} ({ratio})" for row, ratio in standing.level]
        parts.append(f"No difference from {quoted(best)} is shown for {_few(words)}.")
    if unknown := len(standing.incomparable):
        parts.append(
            f"With {count(unknown, 'other')}, {quoted(best)} has fewer than {FEWEST_PAIRS} solved "
            "instances in common, too few to compare."
        )
    if standing.slower:
        row, ratio = standing.slower[0]
        parts.append(
            f"{'Next' if verdict == 'fastest' else 'The first that is measurably slower'} is "
            f"{quoted(row)}: it takes {ratio}, and solves {_of(row)}."
        )
    exact = everyone[(everyone.solver == EXACT) & (everyone.solved > 0)]
    if len(exact):
        parts.append(_exact_words(result, best, exact.iloc[0]))
    return " ".join([*parts, _broken(result, problem_class, setting)])


def _why_none(everyone: pd.DataFrame) -> str:
    solvers = everyone[everyone.solver != EXACT]
    if solvers.empty:
        return ": only the exact method ran"
    if not (solvers.solved > 0).any():
        return f": none of {count(int(solvers.runs.sum()), 'run')} is solved"
    return ": no instance was given to all"


def _of(row: pd.Series) -> str:
    return share(int(row.solved), int(row.runs), "instance")


def _few(words: Sequence[str]) -> str:
    """List the first of them, and count the rest."""
    more = len(words) - _MOST_TIES
    return listing([*words[:_MOST_TIES], *([f"{more} more"] if more > 0 else [])])


def _why_behind(row: pd.Series, best: pd.Series) -> str:
    """Say why a contender has not the least mean, though it is faster where both solve."""
    if np.isnan(row.total_s):
        return "it cannot take all instances, so that it has no mean"
    if row.solved < min(best.solved, row.runs):
        return f"its mean is {time_words(row.total_s)}, as it solves only {_of(row)}"
    return (
        f"its mean is {time_words(row.total_s)}, as means add {time_words(SHIFT)} to every time "
        "and count what is not solved"
    )


def _exact_words(result: SolverStudyResult, best: pd.Series, exact: pd.Series) -> str:
    ratio = _ratio(_pairs(result, best), best, exact)
    if np.isnan(ratio.low):
        words = f"has too few solved instances in common with {quoted(best)} to compare"
    elif ratio.low <= 1.0 <= ratio.high:
        words = f"shows no difference in time from {quoted(best)} ({ratio})"
    else:
        faster = "faster" if ratio.low > 1.0 else "slower"
        words = f"is {faster} where both solve ({quoted(best)} takes {ratio})"
    return f"The exact method, which is no solver, {words}, and solves {_of(exact)}."


def _largest(result: SolverStudyResult, best: pd.Series) -> str:
    """Say who has the least time at the largest size at which some solver solves half."""
    place = {"problem_class": best.problem_class, "setting": best.setting}
    means = select(result.means, **place).merge(result.rates, on=[*place, "size", *CONTENDER])
    means = means[means["size"].notna() & (means.solver != EXACT)]
    half = means[means.success >= 0.5]
    able = half[half.total_s.notna()]
    if able["size"].nunique() < 2:
        return ""
    last = able[able["size"] == able["size"].max()]
    first = last.loc[last.total_s.idxmin()]
    who = "" if quoted(first) == quoted(best) else f" by {quoted(first)}"
    beyond = means["size"].max() > half["size"].max()
    end = "; at larger sizes no solver solves half" if beyond else ""
    return f"; the least mean at size {first['size']:,.0f} is {time_words(first.total_s)}{who}{end}"


# ---------------------------------------------------------------------------- where they break


def _broken(result: SolverStudyResult, problem_class: str, setting: str) -> str:
    """Say which contenders break, and at which sizes."""
    rates = select(result.rates, problem_class=problem_class, setting=setting)
    rows, contenders = breaks(rates), len(rates[CONTENDER].drop_duplicates())
    if rows.empty:
        return "Each contender solves at least half at every size."
    start = (
        f"{len(rows)} of {count(contenders, 'contender')} "
        f"{'solves' if len(rows) == 1 else 'solve'} less than half at some size"
    )
    if len(rows) > _MOST_NAMED:
        always = int((rows.sizes == EVERY).sum())
        start += f", {always} of them at every size" * bool(always)
        kinds = [f"{number} by “{name}”" for name, number in rows.outcome.value_counts().items()]
        return f"{start}: {listing(kinds)}. The table of breaks lists them."
    words = [f"{quoted(row)} at {row.sizes} ({row.outcome})" for row in rows.itertuples()]
    return f"{start}: {listing(words)}."
