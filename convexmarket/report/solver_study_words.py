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
        " ".join(result.problem.description.split()),
    )
    return tuple(text for text in paragraphs if text)


def _headline(result: SolverStudyResult, classes: list[str], setting: str) -> str:
    """Say who takes the least time in each class, how much is wrong, and what words mean."""
    tables = {name: _able(ranked(result, name, setting)) for name in classes}
    least = [f"{_name(rows.iloc[0])} ({name})" for name, rows in tables.items() if len(rows)]
    found = f"Least time, class by class: {listing(least)}" if least else "Nothing is solved"
    runs = counted(result.runs)
    wrong = int((runs.outcome == "wrong").sum())
    claims = f"{wrong:,} of {count(len(runs), 'run')} claim an answer and are wrong"
    return (
        f"{found}; {claims if wrong else 'no run claims an answer and is wrong'}. A contender is a "
        "solver with a formulation; times are of a whole first solve, in the shifted geometric "
        "mean; a difference is called one only if the 95% interval of the ratio excludes 1."
    )


def _able(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the solvers that solve something and can be compared on all instances."""
    return table[(table.solver != EXACT) & table.total_s.notna() & (table.solved > 0)]


# ------------------------------------------------------------------------------ who is fastest


def class_words(result: SolverStudyResult, problem_class: str, setting: str) -> str:
    """Say which solver and formulation is fastest in a group, where, and by how much."""
    everyone = ranked(result, problem_class, setting)
    start = f"{problem_class[0].upper()}{problem_class[1:]}: "
    able = [row for _, row in _able(everyone).iterrows()]
    if not able:
        return f"{start}no contender can be called the fastest{_why_none(everyone)}."
    best, rest = able[0], [(row, _ratio(result, row, able[0])) for row in able[1:]]
    slower = next((i for i, (_, ratio) in enumerate(rest) if ratio["low"] > 1.0), len(rest))
    parts = [
        f"{start}{_name(best)} {'takes the least time' if slower else 'is the fastest'}, "
        f"{time_words(best.total_s)}, and solves {_of(best)}{_largest(result, best)}."
    ]
    if slower:
        parts.append(_ties_words(best, rest[:slower]))
    if slower < len(rest):
        row, ratio = rest[slower]
        parts.append(
            f"{'The first that is measurably slower' if slower else 'Next'} is {_name(row)}: it "
            f"takes {_times(ratio)}, and solves {_of(row)}."
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


def _name(row: Any) -> str:
    """Write a contender in a sentence, where its comma must not be one of the sentence."""
    return f"“{contender_name(row.solver, row.formulation)}”"


def _of(row: pd.Series) -> str:
    return share(int(row.solved), int(row.runs), "instance")


def _ties_words(best: pd.Series, ties: list[tuple[pd.Series, Ratio]]) -> str:
    """Name those whose time cannot be told from the least."""
    known = [(row, ratio) for row, ratio in ties if not np.isnan(ratio["low"])]
    words = [f"{_name(row)} ({_tie(row, ratio)})" for row, ratio in known[:_MOST_TIES]]
    if len(known) > _MOST_TIES:
        words.append(f"{len(known) - _MOST_TIES} more")
    parts = [f"No difference from {_name(best)} is shown for {listing(words)}."] if words else []
    if few := len(ties) - len(known):
        parts.append(
            f"With {count(few, 'other')} it has fewer than {FEWEST_PAIRS} solved instances in "
            "common, too few to compare."
        )
    return " ".join(parts)


def _tie(row: pd.Series, ratio: Ratio) -> str:
    words = f"{short(ratio['ratio'])} times as long, {_interval(ratio)}"
    if ratio["high"] < 1.0:
        words += f", where both solve, but it solves only {int(row.solved):,} of {int(row.runs):,}"
    return words


def _exact_words(result: SolverStudyResult, best: pd.Series, exact: pd.Series) -> str:
    ratio, back = _ratio(result, best, exact), _ratio(result, exact, best)
    if np.isnan(ratio["low"]):
        words = f"has too few solved instances in common with {_name(best)} to compare"
    elif ratio["low"] > 1.0:
        words = f"is {short(ratio['ratio'])} times faster ({_interval(ratio)})"
    elif back["low"] > 1.0:
        words = f"takes {_times(back)} as {_name(best)}"
    else:
        words = f"shows no difference in time from {_name(best)}"
    return f"The exact method, which is no solver, {words}, and solves {_of(exact)}."


def _times(ratio: Ratio) -> str:
    return f"{short(ratio['ratio'])} times as long ({_interval(ratio)})"


def _interval(ratio: Ratio) -> str:
    return f"95% interval {short(ratio['low'])} to {short(ratio['high'])}"


def _ratio(result: SolverStudyResult, slow: pd.Series, fast: pd.Series) -> Ratio:
    """Return the paired ratio of two contenders' times over all sizes, whichever comes first."""
    group = select(result.pairs, problem_class=slow.problem_class, setting=slow.setting)
    group = group[group["size"].isna()]
    for one, other, power in ((slow, fast, 1), (fast, slow, -1)):
        row = select(
            group,
            solver=one.solver,
            formulation=one.formulation,
            other_solver=other.solver,
            other_formulation=other.formulation,
        )
        if len(row):
            ratio, low, high = row[["ratio", "low", "high"]].iloc[0].astype(float) ** power
            low, high = (low, high) if power == 1 else (high, low)
            return {"ratio": ratio, "low": low, "high": high, "pairs": int(row.pairs.iloc[0])}
    return {"ratio": np.nan, "low": np.nan, "high": np.nan, "pairs": 0}


def _largest(result: SolverStudyResult, best: pd.Series) -> str:
    """Say who has the least time at the largest size at which some solver solves half."""
    place = {"problem_class": best.problem_class, "setting": best.setting}
    means = select(result.means, **place).merge(result.rates, on=[*place, "size", *CONTENDER])
    means = means[means["size"].notna() & (means.solver != EXACT)]
    able = means[(means.success >= 0.5) & means.total_s.notna()]
    if able["size"].nunique() < 2:
        return ""
    last = able[able["size"] == able["size"].max()]
    first = last.loc[last.total_s.idxmin()]
    who = "" if _name(first) == _name(best) else f" by {_name(first)}"
    beyond = means["size"].max() > first["size"]
    end = "; at larger sizes no solver solves half" if beyond else ""
    return f"; the least time at size {first['size']:,.0f} is {time_words(first.total_s)}{who}{end}"


# -------------------------------------------------------------------------------- what goes wrong


def _broken(result: SolverStudyResult, problem_class: str, setting: str) -> str:
    """Say which contenders break, and where."""
    rows = breaks(select(result.rates, problem_class=problem_class, setting=setting))
    contenders = len(ranked(result, problem_class, setting))
    if rows.empty:
        return "Each contender solves at least half at every size."
    start = f"{len(rows)} of {count(contenders, 'contender')} {_breaks(len(rows))} at some size"
    if len(rows) > _MOST_NAMED:
        kinds = [f"{number} by “{name}”" for name, number in rows.outcome.value_counts().items()]
        return f"{start}: {listing(kinds)}. The table of breaks lists them."
    words = [f"{_name(row)} from {row.size:,.0f} on ({row.outcome})" for row in rows.itertuples()]
    return f"{start}: {listing(words)}."


def _breaks(number: int) -> str:
    return "solves less than half" if number == 1 else "solve less than half"


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
