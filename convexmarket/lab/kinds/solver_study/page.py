"""The report of a solver study: who solves what, how fast, and who only says so."""

from __future__ import annotations

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.solver_study.findings import class_words, summary_words
from convexmarket.lab.kinds.solver_study.panels import (
    growth_figure,
    profile_figure,
    split_figure,
)
from convexmarket.lab.kinds.solver_study.run import SolverStudyResult
from convexmarket.lab.kinds.solver_study.words import (
    breaks,
    contender_name,
    limitations,
    ranked,
    reference_words,
    settings,
    time_words,
    wrong_words,
)
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import reproduction_section, select, settings_table
from convexmarket.lab.report.words import listing
from convexmarket.lab.study.measure import EXACT
from convexmarket.lab.study.metrics import CONTENDER, INSTANCE, PARTS, SHIFT, counted

__all__ = ["overview", "solver_study_report"]

_WORDS = {
    "problem_class": "class",
    "total_s": "seconds",
    "relative": "× least",
    "again_ratio": "second / first solve",
    "exponent_low": "from",
    "exponent_high": "to (95%)",
    "low": "from",
    "high": "to (95%)",
    "accuracy": "relative error",
    "peak_memory_mb": "peak memory, MB",
    "breaks_at": "under half solved at",
    "declaration_share": "declaration",
    "compilation_share": "compilation",
    "solver_share": "solver",
    "recovery_share": "recovery",
    "reference": "best known objective",
    "certainty": "known how well",
    "status": "what the solver says",
    "again_status": "of the second solve",
    "again_accuracy": "relative error, second solve",
    "time_limit_s": "time limit, s",
    "ratio": "time ratio",
    "alone": "solved alone",
    "other_alone": "alone by the other",
}
_PER_PAGE = 60
_ALL = 300
HOW = (
    "A contender is a solver with a formulation. Seconds are shifted geometric means of the whole "
    "first solve, from declaration to answer: the geometric mean of the times plus "
    f"{time_words(SHIFT)}, less {time_words(SHIFT)}. They are over the instances that the "
    "contenders of a class share, and a run that does not solve counts as long as its time limit. "
    "A contender that cannot take all instances has no mean. Every run is warmed up: its solver "
    "solves a trivial problem before anything is timed, so that loading libraries is in no time."
)


def solver_study_report(result: SolverStudyResult) -> Report:
    """Describe a solver study.

    Parameters
    ----------
    result : SolverStudyResult

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    sections = [
        _speed_section(result),
        _growth_section(result),
        _wrong_section(result),
        _failures_section(result),
        _split_section(result),
        _pairs_section(result),
        _absent_section(result),
        _runs_section(result),
        Section("What this does not show", points=limitations(result)),
        reproduction_section(result.problem, result.provenance, result.timings),
    ]
    return Report(
        title=result.problem.title,
        summary=summary_words(result),
        sections=tuple(section for section in sections if section is not None),
        results=result,
        facts=_facts(result),
    )


def _facts(result: SolverStudyResult) -> tuple[Fact, ...]:
    runs = counted(result.runs)
    instances = runs[["problem_class", *INSTANCE]].drop_duplicates()
    contenders = runs[["problem_class", *CONTENDER]].drop_duplicates()
    return (
        Fact("problem classes", f"{runs.problem_class.nunique()}"),
        Fact("contenders, all classes", f"{len(contenders):,}"),
        Fact("instances", f"{len(instances):,}"),
        Fact("runs", f"{len(runs):,}"),
        Fact("of them solved", f"{int((runs.outcome == 'solved').sum()):,}"),
        Fact("claimed and wrong", f"{int((runs.outcome == 'wrong').sum()):,}"),
    )


def _with_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Write solver and formulation as one column."""
    names = [contender_name(*pair) for pair in frame[CONTENDER].itertuples(index=False)]
    place = frame.columns.get_loc("solver")
    frame = frame.drop(columns=CONTENDER)
    frame.insert(int(np.asarray(place)), "contender", names)
    return frame


# ------------------------------------------------------------------------------------- sections


def overview(result: SolverStudyResult) -> pd.DataFrame:
    """Return one row per class, setting and contender, the fastest of each group first."""
    runs = counted(result.runs)
    table = pd.concat(
        ranked(result, str(name), setting)
        for setting in settings(result)
        for name in select(runs, setting=setting).problem_class.unique()
    )
    key = ["problem_class", "setting", *CONTENDER]
    fits = select(result.scaling, solve="first")[[*key, "exponent", "low", "high"]]
    fits = fits.rename(columns={"low": "exponent_low", "high": "exponent_high"})
    broken = breaks(result.rates)[[*key, "sizes"]].rename(columns={"sizes": "breaks_at"})
    table = table.merge(fits, how="left", on=key).merge(broken, how="left", on=key)
    table["other"] = table.runs - table.solved - table.wrong
    columns = [*key, "runs", "solved", "wrong", "other", "total_s", "relative"]
    columns += ["again_ratio", "exponent", "exponent_low", "exponent_high", "accuracy"]
    return table[[*columns, "peak_memory_mb", "breaks_at"]]


def _profiles(result: SolverStudyResult, of: str) -> tuple[Figure, ...]:
    drawn = (profile_figure(result, setting, of) for setting in settings(result))
    return tuple(figure for figure in drawn if figure is not None)


def _speed_section(result: SolverStudyResult) -> Section:
    runs = counted(result.runs)
    later = [
        f"Setting “{setting}”. {class_words(result, str(name), setting)}"
        for setting in settings(result)[1:]
        for name in select(runs, setting=setting).problem_class.unique()
    ]
    return Section(
        "Who is fast, and who can be relied on",
        (HOW,),
        tuple(later),
        _profiles(result, "time"),
        (
            Table(
                "overview",
                "Every contender in every class, the least seconds first; other: neither solved "
                "nor wrong; second / first solve: the time of solving again with changed numbers, "
                "as a share of the first; exponent: of the size; relative error: the median, of "
                "the exact method mostly zero by definition.",
                _with_names(overview(result)),
                _WORDS,
                {
                    "again_ratio": ".2f",
                    "accuracy": ".1e",
                    "peak_memory_mb": ",.0f",
                    **dict.fromkeys(("exponent", "exponent_low", "exponent_high"), ".2f"),
                },
                rows_shown=_ALL,
            ),
            Table(
                "rates",
                "Shares solved and wrong, with Wilson's 95% intervals; a dash for the size: all "
                "sizes together.",
                result.rates,
                {
                    **_WORDS,
                    "success": "share solved",
                    "success_low": "from",
                    "success_high": "to (95%)",
                    "wrong_rate": "share wrong",
                    "wrong_rate_low": "from",
                    "wrong_rate_high": "to (95%)",
                },
                {"size": ",.0f", **dict.fromkeys(_RATES, ".2f")},
                rows_shown=_PER_PAGE // 2,
            ),
        ),
    )


_RATES = tuple(
    f"{name}{end}" for name in ("success", "wrong_rate") for end in ("", "_low", "_high")
)


def _growth_section(result: SolverStudyResult) -> Section:
    broken = breaks(result.rates)
    tables = [
        Table(
            "exponents",
            "Fitted exponents of the size, of the first solve and of solving again.",
            _with_names(result.scaling),
            _WORDS,
            dict.fromkeys(("exponent", "low", "high"), ".2f"),
            rows_shown=_PER_PAGE // 2,
        )
    ]
    if len(broken):
        tables.append(
            Table(
                "breaks",
                "The sizes at which a contender solves less than half, and what most of the other "
                "runs there came to.",
                _with_names(broken),
                {**_WORDS, "outcome": "main outcome"},
                {},
                rows_shown=_PER_PAGE,
            )
        )
    return Section(
        "How time grows, and where contenders break",
        (
            "An exponent is the slope of a straight line through the logarithms of time and size, "
            "by least squares over the solved runs; every problem has a line of its own with the "
            "common slope. The interval is Student's, from the scatter around the lines; with two "
            "sizes there is none.",
        ),
        figures=tuple(growth_figure(result, setting) for setting in settings(result)),
        tables=tuple(tables),
    )


_COMPUTED = ["excess", "primal_residual", "violation", "dual_residual", "gap"]
_RUN = ["problem_class", "setting", *CONTENDER, *INSTANCE]
_NO_EVIDENCE = (
    " The exact method returns no multipliers: of its five numbers the residuals of equations and "
    "of the dual and the gap are zero by definition, which is no evidence of its accuracy."
)


def _wrong_section(result: SolverStudyResult) -> Section:
    runs = counted(result.runs)
    wrong = runs[runs.outcome == "wrong"]
    columns = [*_RUN, "status", "objective", "reference", "certainty", *_COMPUTED]
    columns += ["again_status", "again_accuracy"]
    table = Table(
        "wrong",
        "Every run whose solver claims an answer and is wrong: what it says, and what we compute.",
        _with_names(wrong[[*columns, "tolerance", "message"]]),
        _WORDS,
        {
            "objective": ".8g",
            "reference": ".8g",
            **dict.fromkeys((*_COMPUTED, "again_accuracy", "tolerance"), ".1e"),
        },
        rows_shown=_PER_PAGE,
    )
    return Section(
        "Who says “optimal” and is not",
        (
            wrong_words(runs),
            "The relative error of an answer is the largest of five numbers that we compute from "
            "the returned point and multipliers: the excess of the objective over the best known, "
            "the residual of equations, the violation of inequalities, the residual of the dual, "
            "and the gap between them." + (_NO_EVIDENCE if EXACT in set(runs.solver) else ""),
        ),
        figures=_profiles(result, "accuracy"),
        tables=(table,) if len(wrong) else (),
    )


def _failures_section(result: SolverStudyResult) -> Section | None:
    runs = counted(result.runs)
    failed = runs[~runs.outcome.isin(["solved", "wrong"])]
    if failed.empty:
        return None
    counts = [f"{number:,} “{name}”" for name, number in failed.outcome.value_counts().items()]
    columns = [*_RUN, "outcome", "status", "again_status", "message"]
    return Section(
        "Failures and limits",
        (
            f"Of {len(runs):,} runs, {len(failed):,} end without an answer that the solver stands "
            f"by: {listing(counts)}. “Inaccurate” and “failed” are the solver's own words for it; "
            "the limits are the study's.",
        ),
        tables=(
            Table(
                "failures",
                "Every run that ends so, and what the solver says.",
                _with_names(failed[[*columns, "time_limit_s", "peak_memory_mb"]]),
                _WORDS,
                {"peak_memory_mb": ",.0f"},
                rows_shown=_PER_PAGE // 2,
            ),
        ),
    )


def _split_section(result: SolverStudyResult) -> Section:
    drawn = split_figure(result)
    parts = [f"{part}_share" for part in PARTS]
    columns = ["problem_class", "setting", *CONTENDER, *parts, "again_total_s", "again_ratio"]
    table = result.means[result.means["size"].isna()][columns]
    return Section(
        "Where the time goes",
        (
            "Declaring the problem and compiling it for the solver is CVXPY's work; recovery takes "
            "the answer back to the variables. Solving again after a change of parameters needs no "
            "declaration and little compilation: the last columns say what that saves.",
        ),
        figures=() if drawn is None else (drawn,),
        tables=(
            Table(
                "split",
                "Shares of the time of a first solve, means over solved runs; and the second solve "
                "with changed numbers.",
                _with_names(table),
                {**_WORDS, "again_total_s": "seconds, second solve"},
                {**dict.fromkeys(parts, ".0%"), "again_ratio": ".2f"},
                rows_shown=_PER_PAGE,
            ),
        ),
    )


def _pairs_section(result: SolverStudyResult) -> Section:
    return Section(
        "Contenders two by two",
        (
            "The ratio is the geometric mean of the time of the first over that of the second, on "
            "the instances that both solve; below 1 the first is faster. The interval is a "
            "bootstrap over these instances (BCa, with a fixed seed). A difference is called one "
            "only if it excludes 1.",
        ),
        tables=(
            Table(
                "pairs",
                "Every two contenders of a class; a dash for the size: all sizes together.",
                result.pairs,
                _WORDS,
                {"size": ",.0f", **dict.fromkeys(("alone", "other_alone"), ".0%")},
                rows_shown=_PER_PAGE // 2,
            ),
        ),
    )


def _absent_section(result: SolverStudyResult) -> Section | None:
    unsupported = result.runs[result.runs.outcome == "unsupported"]
    if unsupported.empty and not result.absent:
        return None
    prose = []
    if result.absent:
        prose.append(f"Named in the problem file and not installed here: {listing(result.absent)}.")
    tables = []
    if len(unsupported):
        prose.append(
            f"{len(unsupported):,} runs count nowhere, because the solver cannot take the problem; "
            "the table says why."
        )
        key = ["problem_class", *CONTENDER, "message"]
        listed = unsupported.groupby(key, sort=False).size().reset_index(name="runs")
        tables.append(
            Table(
                "unsupported",
                "What cannot be run.",
                _with_names(listed),
                {**_WORDS, "message": "why"},
                rows_shown=_PER_PAGE,
            )
        )
    return Section("What did not take part", tuple(prose), tables=tuple(tables))


def _runs_section(result: SolverStudyResult) -> Section:
    return Section(
        "Every run",
        (
            "Each run is a process of its own, with its limits of time and memory. "
            f"{reference_words(counted(result.runs))}",
        ),
        tables=(
            Table("runs", "Every run, with all that was measured.", result.runs, _WORDS, {}, 10),
            settings_table("machine", "The machine.", result.machine),
        ),
    )
