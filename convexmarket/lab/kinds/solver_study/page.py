"""What the page of a solver study shows; its words are in ``page.md.j2``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem
from convexmarket.lab.kinds.solver_study.standing import (
    Standing,
    breaks,
    choice,
    contender_name,
    settings,
    standing,
    worst_claim,
)
from convexmarket.lab.report.marks import Curve, Dots, Profile, Tiles
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import select, settings_table
from convexmarket.lab.report.words import format_number
from convexmarket.lab.result import Result
from convexmarket.studies.measure import EXACT
from convexmarket.studies.metrics import CONTENDER, INSTANCE, PARTS, SHIFT, counted, seconds
from convexmarket.studies.pairs import FEWEST_PAIRS
from convexmarket.studies.solvers import UNKNOWN

__all__ = ["solver_study_report"]

#: What the columns are called on the page.
WORDS = {
    "problem_class": "class",
    "total_s": "seconds",
    "relative": "× least",
    "again_ratio": "second / first solve",
    "warm_ratio": "solver's part, warm / cold start",
    "again_total_s": "seconds, second solve",
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
    "success": "share solved",
    "success_low": "from",
    "success_high": "to (95%)",
    "wrong_rate": "share wrong",
    "wrong_rate_low": "from",
    "wrong_rate_high": "to (95%)",
}
CHANGED = {
    "formulation": "another formulation, same solver",
    "solver": "another solver, same formulation",
}
COMPUTED = ["excess", "primal_residual", "violation", "dual_residual", "gap"]
#: What can become of a contender at a size, and up to which factor of the least time it is fast.
KINDS, FAST = ("fast", "slower", "wrong", "unsolved"), 2.0
RUN = ["problem_class", "setting", *CONTENDER, *INSTANCE]
SHARES = [f"{part}_share" for part in PARTS]
BEST = "Of each solver, its formulation of the least mean"


def solver_study_report(result: Result[SolverStudyProblem]) -> Report:
    """Describe a solver study."""
    runs, ran = counted(result.tables["runs"]), settings(result)
    wrong = runs[runs.outcome == "wrong"]
    failed = runs[~runs.outcome.isin(["solved", "wrong"])]
    instances = runs.drop_duplicates(["problem_class", *INSTANCE])
    standings = {setting: _standings(result, setting) for setting in ran}
    decides, broken = choice(result.tables["means"]), breaks(result.tables["rates"])
    return page(
        "convexmarket.lab.kinds.solver_study",
        result,
        facts=[
            ("problem classes", f"{runs.problem_class.nunique()}"),
            ("contenders, all classes", f"{len(_distinct(runs, CONTENDER)):,}"),
            ("instances", f"{len(instances):,}"),
            ("runs", f"{len(runs):,}"),
            ("of them solved", f"{int((runs.outcome == 'solved').sum()):,}"),
            ("claimed and wrong", f"{len(wrong):,}"),
            ("without an answer", f"{len(failed):,}"),
        ],
        tables=_tables(result, standings, decides, broken, wrong, failed),
        figures=_figures(result, standings, decides),
        runs=runs,
        ran=ran,
        files={
            kind: {name: _file_name(result, kind, name) for name in ran}
            for kind in ("glance", "time-profile", "accuracy-profile", "growth")
        },
        standings=standings,
        decided={name: _decided(select(decides, setting=name)) for name in ran},
        verdicts=_verdicts(standings[ran[0]]),
        unsupported=len(result.tables["runs"]) - len(runs),
        unknown=runs[runs.options == UNKNOWN].groupby("setting").solver.unique().to_dict(),
        n_wrong=len(wrong),
        n_failed=len(failed),
        solved=int((runs.outcome == "solved").sum()),
        wrong_by=_wrong_by(runs),
        worst=worst_claim(wrong) if len(wrong) else None,
        exact_is_wrong=EXACT in set(wrong.solver),
        has_exact=EXACT in set(runs.solver),
        failures=[f"{n:,} “{name}”" for name, n in failed.outcome.value_counts().items()],
        references=_references(instances),
        refuted=result.tables["references"][
            result.tables["references"].certainty == "refuted"
        ].to_dict("records"),
        breaking={name: len(select(broken, setting=name)) for name in ran},
        contenders={name: len(_distinct(select(runs, setting=name), CONTENDER)) for name in ran},
        machine=result.numbers["machine"],
        versions=_versions(runs),
        limits=[_time(limit) for limit in sorted(set(runs.time_limit_s))],
        FEWEST_PAIRS=FEWEST_PAIRS,
        SHIFT=_time(SHIFT),
        EXACT=EXACT,
        time=_time,
    )


def _time(value: float) -> str:
    """Write a time with its unit.

    Examples
    --------
    >>> _time(0.0123), _time(2.5)
    ('12.3 ms', '2.5 s')
    """
    return f"{format_number(1000 * value)} ms" if value < 0.1 else f"{format_number(value)} s"


def _distinct(runs: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    return runs[["problem_class", *columns]].drop_duplicates()


def _standings(result: Result[SolverStudyProblem], setting: str) -> list[Standing]:
    names = select(counted(result.tables["runs"]), setting=setting).problem_class.unique()
    return [standing(result, str(name), setting) for name in names]


def _decided(decides: pd.DataFrame) -> dict[str, Any] | None:
    """Return in how many classes formulation or solver changes the time more, and by how much."""
    if decides.empty:
        return None
    factors = decides.pivot(index="problem_class", columns="changed", values="factor")
    means = np.exp(np.log(factors).mean())
    more = {
        "formulation": int((factors.formulation > factors.solver).sum()),
        "solver": int((factors.solver > factors.formulation).sum()),
    }
    first = max(more, key=lambda name: more[name])
    other = next(name for name in more if name != first)
    return {
        "first": first,
        "other": other,
        "classes": more[first],
        "of": len(factors),
        "factor": float(means[first]),
        "other_factor": float(means[other]),
    }


def _verdicts(standings: list[Standing]) -> dict[str, list[str]]:
    """Group the classes by what can be said of the fastest."""
    groups: dict[str, list[str]] = {}
    for one in standings:
        fastest = one.best is not None and one.verdict == "fastest"
        named = f"“{one.best['name']}” ({one.problem_class})" if fastest and one.best else ""
        groups.setdefault(one.verdict, []).append(named or one.problem_class)
    return groups


def _wrong_by(runs: pd.DataFrame) -> list[str]:
    wrong = runs[runs.outcome == "wrong"]
    return [
        f"{solver} in {len(own):,} of {int((runs.solver == solver).sum()):,} runs"
        for solver, own in wrong.groupby("solver", sort=False)
    ]


def _references(instances: pd.DataFrame) -> dict[str, int]:
    """Count the instances by what their objectives are compared with."""
    known = instances.certainty
    found = {name: int((known == name).sum()) for name in (EXACT, "refuted", "none")}
    return {**found, "close": len(known) - sum(found.values()), "all": len(known)}


def _versions(runs: pd.DataFrame) -> list[str]:
    known = runs[runs.solver_version.fillna("").astype(str) != ""]
    pairs = known[["solver", "solver_version"]].drop_duplicates()
    return [f"{solver} {version}" for solver, version in pairs.itertuples(index=False)]


# ----------------------------------------------------------------------------------- figures


def _file_name(result: Result[SolverStudyProblem], figure: str, setting: str) -> str:
    """Name the file of a figure by its setting, also where two settings differ in capitals only."""
    slugs = [re.sub(r"[^a-z0-9]+", "-", name.lower()) for name in settings(result)]
    place = settings(result).index(setting)
    number = f"-{place + 1}" if slugs.count(slugs[place]) > 1 else ""
    return f"{figure}-{slugs[place]}{number}"


def _by_solver(result: Result[SolverStudyProblem], frame: pd.DataFrame) -> pd.DataFrame:
    """Put solvers in one order in all figures, so that each keeps its colour; exact is last."""
    named = [name for name in result.problem.study.solvers if name != EXACT]
    others = sorted(set(frame.solver) - {*named, EXACT})
    order = [*named, *others, EXACT]
    return frame.sort_values("solver", key=lambda s: s.map(order.index), kind="stable")


def _figures(
    result: Result[SolverStudyProblem],
    standings: dict[str, list[Standing]],
    decides: pd.DataFrame,
) -> list[Figure]:
    figures = []
    if len(decides):
        named = decides.assign(changed=decides.changed.map(CHANGED))
        figures.append(
            Figure(
                "choice",
                "By which factor the mean time of a first solve changes if one thing changes and "
                "the other stays: a dot is the geometric mean over all pairs of a class, a line "
                "goes from the least pair to the largest. What to see: the class in which it "
                "pays to reformulate is where blue lies to the right of orange. A run that does "
                "not solve counts as long as its time limit.",
                Dots(
                    named, x="factor", y="problem_class", hue="changed", panels="setting",
                    low="low", high="high", log="x", x_label="slower over faster (log scale)",
                    y_label="Factor between two contenders",
                ),
                "Dots with ranges, two for each problem class. The numbers are in the table "
                "choice.",
            )
        )  # fmt: skip
    for setting, groups in standings.items():
        figures += _of_setting(result, setting, groups)
    return figures + _split(result)


def _of_setting(
    result: Result[SolverStudyProblem], setting: str, standings: list[Standing]
) -> list[Figure]:
    """Return means, profiles and growth under one setting, one panel for each class."""
    runs = select(counted(result.tables["runs"]), setting=setting)
    table = pd.concat([group.everyone for group in standings], ignore_index=True)
    best = table.drop_duplicates(["problem_class", "solver"])[["problem_class", *CONTENDER]]
    panels: dict[str, Any] = {"hue": "solver", "panels": "problem_class"}
    small: dict[str, Any] = {**panels, "columns": 2, "height": 2.3}
    drawn: list[tuple[str, str, Tiles | Profile | Curve, str]] = [
        (
            "glance",
            f"Every contender at every size, setting “{setting}”: by which factor its mean time of "
            f"a first solve exceeds the least at that size; “fast” is up to {FAST:g}. Wrong: a run "
            "claims an answer that is not one; unsolved: a run ends without an answer; blank: the "
            "solver cannot take the problem. What to see: whether colours follow columns, which "
            "are solvers, or rows, which are formulations.",
            Tiles(
                _by_solver(result, _glance(runs)), x="size", y="formulation", hue="solver",
                panels="problem_class", kind="kind", kinds=KINDS, words="words",
                x_label="size",
            ),
            "A matrix of tiles, one panel per problem class. The numbers are in the tables "
            "overview and rates.",
        )
    ]  # fmt: skip
    for of, says in (
        (
            "time",
            f"Performance profiles of time, setting “{setting}”: the share of the instances that a "
            "contender solves within so many times the time of the fastest solver on each. What to "
            "see: high at the left is fast, high at the right is reliable; a curve that stays "
            "below 100% does not solve all.",
        ),
        (
            "accuracy",
            f"Accuracy, setting “{setting}”: the share of the instances that are answered with at "
            "most this relative error, whatever the solver says of its answer. What to see: a "
            "curve that rises to the right of the dotted tolerance has answers that are not what "
            "was asked for.",
        ),
    ):
        steps = select(result.tables["profiles"], of=of, setting=setting).merge(best)
        if steps.empty:
            continue
        time = of == "time"
        tolerance = {"tolerance": float(runs.tolerance.max())}
        drawn.append(
            (
                f"{of}-profile",
                f"{says} {BEST}; lines that coincide show as one inside another, and a marker "
                "stands where a line reaches its last share.",
                Profile(
                    _by_solver(result, steps), x="tau", y="share", log="x", **small,
                    levels={} if time else tolerance,
                    x_label="× the fastest solver's time (log scale)"
                    if time else "relative error (log scale)",
                    y_label="instances solved" if time else "instances answered",
                ),
                f"Step curves of {of}, one panel per problem class. The table overview has means.",
            )
        )  # fmt: skip
    growth = _by_solver(result, _growth(runs).merge(best))
    limit = float(runs.time_limit_s.max())
    drawn.append(
        (
            "growth",
            f"Time of a first solve over the size, setting “{setting}”, both on log scales: "
            "geometric means of the solved runs, and bars from the least to the most. What to see: "
            "a steeper line is overtaken at some size. Hollow: some runs did not solve, for "
            "whatever reason; a line ends where none did. Where less than half did is in the table "
            f"breaks. {BEST}.",
            Curve(
                growth, x="size", y="seconds", low="low", high="high", hollow="missed",
                log="xy", **small, levels={f"time limit, {_time(limit)}": limit},
                x_label="size (log scale)", y_label="seconds (log scale)",
            ),
            "Lines of time over size, one panel per problem class. The table overview has means.",
        )
    )  # fmt: skip
    return [
        Figure(_file_name(result, name, setting), caption, mark, alt)
        for name, caption, mark, alt in drawn
    ]


def _glance(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per contender and size: wrong, unsolved, or how far from the least time."""
    key = ["problem_class", *CONTENDER, "size"]
    times = np.log(seconds(runs).where(lambda s: np.isfinite(s)))
    marked = runs.assign(log=times, bad=runs.outcome == "wrong", out=runs.outcome != "solved")
    found = marked.groupby(key, sort=False).agg(
        log=("log", "mean"), wrong=("bad", "any"), unsolved=("out", "any")
    ).reset_index()  # fmt: skip
    solved = found.log.where(~found.unsolved & (found.solver != EXACT))
    least = solved.groupby([found.problem_class, found["size"]]).transform("min")
    factor = pd.Series(np.exp(found.log - least))
    found["kind"] = np.select(
        [found.wrong, found.unsolved, ~(factor > FAST)], ["wrong", "unsolved", "fast"], "slower"
    )
    shown = factor.map(lambda f: "" if np.isnan(f) else f"{f:.1f}" if f < 9.95 else f"{f:.0f}")
    found["words"] = np.select([found.wrong, found.unsolved], ["×", "–"], shown)
    return found


def _growth(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the geometric mean of the times of solved runs, and how many did not solve."""
    times = seconds(runs)
    solved = np.isfinite(times)
    logs = runs.assign(log=np.log(times.where(solved)), missed=~solved)
    groups = logs.groupby(["problem_class", *CONTENDER, "size"], sort=False)
    sizes = groups.agg(
        log=("log", "mean"), low=("log", "min"), high=("log", "max"), missed=("missed", "sum")
    ).reset_index()
    ends = {name: np.exp(sizes[name]) for name in ("low", "high")}
    return sizes.assign(seconds=np.exp(sizes.log), **ends)


def _split(result: Result[SolverStudyProblem]) -> list[Figure]:
    """Return the split of the first setting, with each solver's best formulation that solves."""
    setting = settings(result)[0]
    means = select(result.tables["means"][result.tables["means"]["size"].isna()], setting=setting)
    best = means[means.solver_share.notna()].sort_values("total_s", kind="stable")
    best = best.drop_duplicates(["problem_class", "solver"])
    if best.empty:
        return []
    order = list(means.problem_class.unique())
    best = best.sort_values("problem_class", key=lambda s: s.map(order.index), kind="stable")
    names = [contender_name(*pair) for pair in best[CONTENDER].itertuples(index=False)]
    parts = best.assign(contender=names).melt(
        ["problem_class", "contender"], SHARES, "part", "share"
    )
    parts["part"] = parts.part.str.removesuffix("_share")
    return [
        Figure(
            "split",
            f"What the time of a first solve is spent on, setting “{setting}”, as shares, with the "
            "best formulation of each solver, the fastest first. What to see: where the solver's "
            "own part is small, another solver hardly changes the total, and a formulation that "
            "compiles faster does.",
            Dots(
                parts, x="share", y="contender", hue="part", panels="problem_class",
                x_label="share of the time of a first solve, mean over solved runs",
            ),
            "Dots, four per contender. The numbers are in the table split.",
        )
    ]  # fmt: skip


# ------------------------------------------------------------------------------------ tables


def _with_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Write solver and formulation as one column."""
    names = [contender_name(*pair) for pair in frame[CONTENDER].itertuples(index=False)]
    place = int(np.asarray(frame.columns.get_loc("solver")))
    frame = frame.drop(columns=CONTENDER)
    frame.insert(place, "contender", names)
    return frame


def _overview(result: Result[SolverStudyProblem], ranked: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return one row per class, setting and contender, the fastest of each group first."""
    table = pd.concat(ranked)
    key = ["problem_class", "setting", *CONTENDER]
    broken = breaks(result.tables["rates"])[[*key, "sizes"]].rename(columns={"sizes": "breaks_at"})
    table = table.merge(broken, how="left", on=key)
    table["other"] = table.runs - table.solved - table.wrong
    columns = [*key, "runs", "solved", "wrong", "other", "total_s", "relative"]
    columns += ["again_ratio", "accuracy", "peak_memory_mb", "breaks_at"]
    return _with_names(table[columns])


def _tables(
    result: Result[SolverStudyProblem],
    standings: dict[str, list[Standing]],
    decides: pd.DataFrame,
    broken: pd.DataFrame,
    wrong: pd.DataFrame,
    failed: pd.DataFrame,
) -> list[Table]:
    rates = [f"{name}{end}" for name in ("success", "wrong_rate") for end in ("", "_low", "_high")]
    means = result.tables["means"][result.tables["means"]["size"].isna()]
    unsupported = result.tables["runs"][result.tables["runs"].outcome == "unsupported"]
    listed = unsupported.groupby(["problem_class", *CONTENDER, "message"], sort=False).size()
    claims = [*RUN, "status", "objective", "reference", "certainty", *COMPUTED]
    claims += ["again_status", "again_accuracy", "tolerance", "message"]
    ends = [*RUN, "outcome", "status", "again_status", "message", "time_limit_s", "peak_memory_mb"]
    tables = [
        Table(
            "choice",
            "Factors between the mean times of two contenders that differ in one thing: geometric "
            "mean, least and largest of the pairs.",
            decides,
            {**WORDS, "low": "least", "high": "largest"},
            dict.fromkeys(("factor", "low", "high"), ".2f"),
        ),
        Table(
            "overview",
            "Every contender in every class, the least seconds first; other: neither solved nor "
            "wrong; second / first solve: the time of solving again with changed numbers, as a "
            "share of the first; relative error: the median, of the exact "
            "method mostly zero by definition.",
            _overview(result, (group.everyone for of in standings.values() for group in of)),
            WORDS,
            {
                "again_ratio": ".2f",
                "accuracy": ".1e",
                "peak_memory_mb": ",.0f",
            },
            rows_shown=300,
        ),
        Table(
            "rates",
            "Shares solved and wrong, with Wilson's 95% intervals; a dash for the size: all sizes "
            "together.",
            result.tables["rates"],
            WORDS,
            {"size": ",.0f", **dict.fromkeys(rates, ".2f")},
        ),
        Table(
            "breaks",
            "The sizes at which a contender solves less than half, and what most of the other runs "
            "there came to.",
            _with_names(broken),
            {**WORDS, "outcome": "main outcome"},
            rows_shown=60,
        ),
        Table(
            "wrong",
            "Every run whose solver claims an answer and is wrong: what it says, and what we "
            "compute.",
            _with_names(wrong[claims]) if len(wrong) else wrong,
            WORDS,
            {
                "objective": ".8g",
                "reference": ".8g",
                **dict.fromkeys((*COMPUTED, "again_accuracy", "tolerance"), ".1e"),
            },
            rows_shown=60,
        ),
        Table(
            "failures",
            "Every run that ends so, and what the solver says.",
            _with_names(failed[ends]) if len(failed) else failed,
            WORDS,
            {"peak_memory_mb": ",.0f"},
        ),
        Table(
            "split",
            "Shares of the time of a first solve, means over solved runs; and the second solve "
            "with changed numbers.",
            _with_names(
                means[["problem_class", "setting", *CONTENDER, *SHARES, "again_total_s",
                       "again_ratio", "warm_ratio"]]
            ),
            WORDS,
            {**dict.fromkeys(SHARES, ".0%"), "again_ratio": ".2f", "warm_ratio": ".2f"},
            rows_shown=60,
        ),
        Table(
            "unsupported",
            "What cannot be run.",
            _with_names(listed.reset_index(name="combinations")),
            {**WORDS, "message": "why"},
            rows_shown=60,
        ),
        Table(
            "runs",
            "Every run with all that was measured, and every combination that cannot be run.",
            result.tables["runs"],
            WORDS,
            rows_shown=10,
        ),
        settings_table("machine", "The machine.", result.numbers["machine"]),
    ]  # fmt: skip
    return [table for table in tables if len(table.frame)]
