"""How a solver study is put into words: names, ranks, wrong answers, references and limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.solver_study.run import SolverStudyResult
from convexmarket.lab.report.parts import select, short
from convexmarket.lab.report.words import count, format_number, listing, share
from convexmarket.lab.study.measure import EXACT
from convexmarket.lab.study.metrics import CONTENDER, COUNTED, INSTANCE, counted
from convexmarket.lab.study.pairs import FEWEST_PAIRS

__all__ = [
    "EVERY",
    "breaks",
    "contender_name",
    "limitations",
    "quoted",
    "ranked",
    "reference_words",
    "refuted_words",
    "settings",
    "short_class",
    "time_words",
    "wrong_words",
]

#: What stands for the sizes of a contender that breaks at all of several.
EVERY = "every size"
#: The certainty of a reference that some run has beaten.
REFUTED = "refuted"

_SHORT = {"weighted logistic regression": "weighted logistic regr."}
_MOST_NAMED = 4


def contender_name(solver: str, formulation: str) -> str:
    """Write solver and formulation.

    Examples
    --------
    >>> contender_name("CLARABEL", "projection"), contender_name("exact", "exact")
    ('CLARABEL, projection', 'exact')
    """
    return solver if solver == formulation else f"{solver}, {formulation}"


def quoted(row: Any) -> str:
    """Write a contender in a sentence, where its comma must not be one of the sentence."""
    return f"“{contender_name(row.solver, row.formulation)}”"


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
    """Return where contenders break: the sizes at which less than half is solved.

    Parameters
    ----------
    rates : DataFrame
        Of :func:`convexmarket.lab.study.metrics.rates`.

    Returns
    -------
    DataFrame
        One row per class, setting and contender that breaks: sizes (in words), solved and runs at
        these sizes together, and the most frequent other outcome there.
    """
    key = ["problem_class", "setting", *CONTENDER]
    rows = []
    for contender, own in rates[rates["size"].notna()].groupby(key, sort=False):
        low = own[own.success < 0.5]
        if low.empty:
            continue
        every = len(low) == len(own) > 1
        others = {name: int(low[name.replace(" ", "_")].sum()) for name in COUNTED[1:]}
        rows.append(
            {
                **dict(zip(key, contender, strict=True)),
                "sizes": EVERY if every else listing([f"{size:,.0f}" for size in low["size"]]),
                "solved": int(low.solved.sum()),
                "runs": int(low.runs.sum()),
                "outcome": max(others, key=lambda name: others[name]),
            }
        )
    return pd.DataFrame(rows, columns=[*key, "sizes", "solved", "runs", "outcome"])


# -------------------------------------------------------------------------------- what goes wrong


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
    # Of the solve that is spoken of: another that failed has an infinite error.
    errors = wrong.accuracy.where(wrong.accuracy > wrong.tolerance, wrong.again_accuracy)
    worst = wrong.iloc[int(np.argmax(errors))]
    who = count(len(each), "method" if EXACT in set(wrong.solver) else "solver")
    return (
        f"{who} {'claims' if len(each) == 1 else 'claim'} an answer and "
        f"{'is' if len(each) == 1 else 'are'} wrong: {listing(each)}. The worst: {quoted(worst)} "
        f"on “{worst.problem}” ({worst.problem_class}, setting “{worst.setting}”) at size "
        f"{worst['size']:,} {_claimed(worst)}."
    )


def refuted_words(references: pd.DataFrame) -> str:
    """Name the instances whose reference a run has beaten; nothing if there is none."""
    refuted = references[references.certainty == REFUTED]
    if refuted.empty:
        return ""
    named = [
        f"{row.problem_class}, “{'/'.join(filter(None, (row.problem, row.instance)))}” at size "
        f"{row['size']:,}, seed {row.seed} ({row.message})"
        for _, row in refuted.head(_MOST_NAMED).iterrows()
    ]
    if more := len(refuted) - len(named):
        named.append(f"{more:,} more")
    return (
        f"The reference of {count(len(refuted), 'instance')} is refuted, whether it came from an "
        "exact method or a solver: a run whose residuals are tiny found a better value, which "
        f"takes its place. {'; '.join(named)}."
    )


def reference_words(runs: pd.DataFrame) -> str:
    """Say what objectives are compared with."""
    known = runs.drop_duplicates(["problem_class", *INSTANCE]).certainty
    exact, none, refuted = (int((known == name).sum()) for name in (EXACT, "none", REFUTED))
    close = len(known) - exact - none - refuted
    parts = [f"the exact optimum on {share(exact, len(known), 'instance')}"] if exact else []
    if close:
        parts.append(f"the best that a solver found, at tolerances out of reach, on {close:,}")
    if refuted:
        parts.append(f"a better value that a run found on {refuted:,}, whose reference it refutes")
    if none:
        parts.append(f"nothing on {none:,}, where only residuals decide")
    words = f"Objectives are compared with {'; with '.join(parts)}."
    if close or refuted:
        words += (
            " The column “known how well” says what residuals of the best leave open; where that "
            "is more than the tolerance, only residuals decide."
        )
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
    cpus = machine["cpus"]
    processors = (
        f"One processor ({cpus[0]})"
        if len(cpus) == 1
        else f"{len(cpus)} processors ({listing(cpus)}), between which times do not compare,"
    )
    pinned = (
        "Each run was bound to a core that no other run of a study used at the time."
        if machine["pinned"]
        else "Runs were not bound to a processor core, so that times vary more."
    )
    sessions = int(machine["sessions"])
    if sessions > 1:
        pinned += f" They were made in {sessions} sessions; the machine's load can have differed."
    each = ", ".join(_versions(runs))
    return (
        f"{processors} and one version of each solver"
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
