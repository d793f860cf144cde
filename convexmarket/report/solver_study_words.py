"""What a solver study found, in words that follow from its numbers.

The exact method is no solver: it is named apart, and what is said of the fastest is said of the
others. A difference in time is called one only if its 95% interval excludes 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.experiments.solver_study import SolverStudyResult
from convexmarket.report.parts import select, short
from convexmarket.report.words import count, format_number, listing, share
from convexmarket.study.measure import EXACT
from convexmarket.study.metrics import CONTENDER, COUNTED, INSTANCE, counted
from convexmarket.study.pairs import FEWEST_PAIRS

__all__ = [
    "breaks",
    "class_words",
    "contender_name",
    "limitations",
    "ranked",
    "reference_words",
    "settings",
    "short_class",
    "summary_words",
    "time_words",
    "wrong_words",
]

Ratio = dict[str, Any]

_SHORT = {"weighted logistic regression": "weighted logistic regr."}
_MOST_NAMED = 4
_MOST_TIES = 2


def contender_name(solver: str, formulation: str) -> str:
    """Write solver and formulation.

    Examples
    --------
    >>> contender_name("CLARABEL", "projection"), contender_name("exact", "exact")
    ('CLARABEL, projection', 'exact')
    """
    return solver if solver == formulation else f"{solver}, {formulation}"


def short_class(name: str) -> str:
    """Write a problem class where there is little room."""
    return _SHORT.get(name, name)


def time_words(seconds: float) -> str:
    """Write a time with its unit.

    Examples
    --------
    >>> time_words(0.0123), time_words(2.5)
    ('12.3 ms', '2.5 s')
    """
    if seconds < 0.1:
        return f"{short(1000 * seconds)} ms"
    return f"{short(seconds)} s"


def settings(result: SolverStudyResult) -> list[str]:
    """Return the settings in which something ran, in the order of the problem file."""
    ran = set(counted(result.runs).setting)
    return [name for name in result.problem.study.settings if name in ran]


def ranked(result: SolverStudyResult, problem_class: str, setting: str) -> pd.DataFrame:
    """Return means and rates of a group's contenders, all sizes together, the fastest first."""
    place = {"problem_class": problem_class, "setting": setting}
    means, rates = (
        table[table["size"].isna()].drop(columns="size")
        for table in (select(result.means, **place), select(result.rates, **place))
    )
    both = means.merge(rates, on=[*place, *CONTENDER], validate="one_to_one")
    return both.sort_values("total_s", kind="stable", ignore_index=True)


def breaks(rates: pd.DataFrame) -> pd.DataFrame:
    """Return where contenders break: the first size at which less than half is solved.

    Parameters
    ----------
    rates : DataFrame
        Of :func:`convexmarket.study.metrics.rates`.

    Returns
    -------
    DataFrame
        One row per class, setting and contender that breaks: size, solved, runs and the most
        frequent other outcome at that size.
    """
    low = rates[rates["size"].notna() & (rates.success < 0.5)]
    key = ["problem_class", "setting", *CONTENDER]
    first = low.sort_values("size", kind="stable").drop_duplicates(key).sort_index()
    others = first[[name.replace(" ", "_") for name in COUNTED[1:]]]
    named = others.set_axis(list(COUNTED[1:]), axis=1)
    outcome = named.idxmax(axis=1) if len(named) else pd.Series(dtype=str)
    return first[[*key, "size", "solved", "runs"]].assign(outcome=outcome).reset_index(drop=True)


def wrong_words(runs: pd.DataFrame) -> str:
    """Say which solvers claim an answer and are wrong, how often, and give an example."""
    wrong = runs[runs.outcome == "wrong"]
    if wrong.empty:
        return (
            f"No solver claims an answer that our own residuals refute, in {len(runs):,} runs: "
            "what was called solved is solved to the tolerance of the setting."
        )
    each = [
        f"{solver} in {len(own):,} of {int((runs.solver == solver).sum()):,} runs"
        for solver, own in wrong.groupby("solver", sort=False)
    ]
    errors = wrong[["accuracy", "again_accuracy"]].max(axis=1)
    worst = wrong.iloc[int(np.argmax(errors))]
    return (
        f"{count(len(each), 'solver')} {'claims' if len(each) == 1 else 'claim'} an answer and "
        f"{'is' if len(each) == 1 else 'are'} wrong: {listing(each)}. The worst: {_name(worst)} on "
        f"“{worst.problem}” ({worst.problem_class}, setting “{worst.setting}”) at size "
        f"{worst['size']:,} {_claimed(worst)}."
    )


def reference_words(runs: pd.DataFrame) -> str:
    """Say what objectives are compared with."""
    known = runs.drop_duplicates(["problem_class", *INSTANCE]).certainty
    exact, none = int((known == EXACT).sum()), int((known == "none").sum())
    close = len(known) - exact - none
    parts = [f"the exact optimum on {share(exact, len(known), 'instance')}"] if exact else []
    if close:
        parts.append(f"the best that a solver found, at tolerances out of reach, on {close:,}")
    if none:
        parts.append(f"nothing on {none:,}, where only residuals decide")
    words = f"Objectives are compared with {'; with '.join(parts)}."
    if close:
        words += " The column “known how well” says what residuals of the best leave open."
    return words


def _claimed(run: pd.Series) -> str:
    """Say what the solver says of the first solve that is wrong, and what we compute."""
    second = run.accuracy <= run.tolerance
    prefix = "again_" if second else ""
    status = run[f"{prefix}status"]
    says = f"says “{status}”{' of the solve with changed numbers' if second else ''}"
    if status.startswith(("infeasible", "unbounded")):
        best = format_number(run[f"{prefix}reference"], 6)
        return f"{says}, and there is a feasible point with objective {best}"
    error, allowed = (format_number(x, 2) for x in (run[f"{prefix}accuracy"], run.tolerance))
    return f"{says}, and the relative error that we compute is {error}, where {allowed} is allowed"


# --------------------------------------------------------------------------- what it does not show


def limitations(result: SolverStudyResult) -> tuple[str, ...]:
    """Say what the study cannot show, from how it was run."""
    runs, machine = result.runs, result.machine
    sizes, limits = sorted(set(runs["size"])), sorted(set(runs.time_limit_s))
    seeds = runs.seed.nunique()
    pinned = (
        "Each run had a processor core to itself."
        if machine["pinned"]
        else "Runs were not bound to a processor core, so that times vary more."
    )
    sessions = int(machine["sessions"])
    if sessions > 1:
        pinned += f" They were made in {sessions} sessions; the machine's load can have differed."
    each = ", ".join(_versions(runs))
    return (
        f"One machine ({machine['cpu']}) and one version of each solver"
        f"{f' ({each})' if each else ''}. Ratios on another can differ. {pinned}",
        f"{count(seeds, 'seed')} and sizes {format_number(sizes[0])} to {format_number(sizes[-1])}"
        ". Intervals are over instances, not over machines; a bootstrap of few pairs is narrower "
        f"than it should be, and below {FEWEST_PAIRS} pairs there is none. With many pairs of "
        "contenders, some 95% intervals miss the truth.",
        f"A run was stopped after {listing([time_words(limit) for limit in limits])}. In means a "
        "run that does not solve counts as long as that, so that the limit is part of the mean.",
        "On small problems CVXPY's work is most of the total; so fitted exponents are below those "
        "of the solver alone.",
        *result.caveats,
    )


def _versions(runs: pd.DataFrame) -> list[str]:
    known = runs[runs.solver_version.fillna("").astype(str) != ""]
    pairs = known[["solver", "solver_version"]].drop_duplicates()
    return [f"{solver} {version}" for solver, version in pairs.itertuples(index=False)]
