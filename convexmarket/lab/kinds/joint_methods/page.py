"""The report of the joint problem's methods: who finds the best, and how long it takes."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogLocator, NullLocator

from convexmarket.lab.kinds.joint_methods.claims import (
    AGREE,
    BEST,
    OURS,
    SAME,
    SOLVED,
    starts_ranges,
)
from convexmarket.lab.kinds.joint_methods.run import JointMethodsResult
from convexmarket.lab.report.claims import JOINT_WARNING, claims_section, claims_words
from convexmarket.lab.report.figures import INK, WIDTH, series_style
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import reproduction_section, select, short
from convexmarket.lab.report.words import count, format_number, listing

__all__ = ["joint_methods_report"]

#: Below it an excess is rounding; the figure draws it there.
_FLOOR = 1e-12
_HEADERS = {
    "name": "method",
    "found": f"within {format_number(BEST)} of the best",
    "certified": "proved global",
    "median_excess": "median excess",
    "max_excess": "largest excess",
    "median_time": "median time, × alternating",
    "least_time": "least",
    "most_time": "most",
    "median_seconds": "median seconds",
    "over_bound": "over the lower bound",
    "time_ratio": "time, × alternating",
    "residual": "left to gain",
    "eta": "η",
    "best_eta": "η of the best",
    "regularization": "Λ",
    "convexity": "convexity ratio",
    "inside": "convex for each η",
    "sigma_max_squared": "σ_max(X)²",
    "paper_needs": "2Λμ that A asks for",
    "paper_certifies": "A certifies",
    "exponential_convex": "Λ ≥ λ_conv",
    "n_sellers": "sellers",
    "n_features": "features",
    "starts_range": "range over starts",
    "message": "why",
    "certificate": "what is known",
    "one_point": "instances with one end",
    "largest_range": "largest range of objectives",
    "largest_distance": "largest distance of models",
    "own_range": "largest range over the starts of alternating",
}
_TIMES = (
    "All methods of an instance run one after the other in one job, and times are compared within "
    "an instance only: as multiples of the time of the group's first alternating method."
)


def joint_methods_report(result: JointMethodsResult) -> Report:
    """Describe how the joint problem's methods compare.

    Parameters
    ----------
    result : JointMethodsResult

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    sections = [
        _comparison_section(result),
        _ends_section(result),
        _claims_section(result),
        _failures_section(result),
        _runs_section(result),
        Section("What this does not show", points=result.caveats),
        reproduction_section(result.problem, result.provenance, result.timings),
    ]
    return Report(
        title=result.problem.title,
        summary=_summary(result),
        sections=tuple(section for section in sections if section is not None),
        results=result,
        facts=_facts(result),
        warning=JOINT_WARNING,
    )


def _solved(result: JointMethodsResult) -> pd.DataFrame:
    return select(result.runs, status=SOLVED)


def _facts(result: JointMethodsResult) -> tuple[Fact, ...]:
    solved, instances = _solved(result), result.instances
    inside = int(instances.inside.sum())
    facts = [
        Fact("methods", f"{len(set(result.runs.name))}"),
        Fact("instances", f"{len(instances):,}"),
        Fact("of them convex for each η", f"{inside:,}"),
        Fact("runs solved", f"{len(solved):,} of {len(result.runs):,}"),
    ]
    proved = int((solved.certificate == "global").sum())
    if proved:
        facts.append(Fact("runs proved global", f"{proved:,}"))
    return tuple(facts)


# ---------------------------------------------------------------- the first lines


def _summary(result: JointMethodsResult) -> tuple[str, ...]:
    papers = [claim for claim in result.claims if claim.source != OURS]
    paragraphs = [
        " ".join(result.problem.description.split()),
        *(_group_words(result, group.name) for group in result.problem.groups),
        " ".join(
            f"{claim.says}: {claim.verdict}. {claim.remark}".strip()
            for claim in result.claims
            if claim.source == OURS
        ),
        claims_words(papers) if papers else "",
    ]
    return tuple(text for text in paragraphs if text)


def _group_words(result: JointMethodsResult, group: str) -> str:
    """Say who found the best on a group of instances, and how often."""
    rows = select(_solved(result), group=group)
    instances = len(select(result.instances, group=group))
    where = f"On “{group}” ({count(instances, 'instance')})"
    if rows.empty:
        return f"{where} no method has an answer."
    wins = (rows.excess <= BEST).groupby(rows.name, sort=False).sum()
    counts = [f"“{name}” ({int(times):,})" for name, times in wins.items() if times]
    never = [f"“{name}”" for name, times in wins.items() if not times]
    missed = f", and never by {listing(never)}" if never else ""
    return f"{where} the best, within {format_number(BEST)}, is found by {listing(counts)}{missed}."


# ---------------------------------------------------------------- the sections


def _comparison_section(result: JointMethodsResult) -> Section:
    solved = _solved(result)
    groups = [group.name for group in result.problem.groups]
    names = [method.name for method in result.problem.methods]
    jobs = result.problem.run.jobs
    shared = "one job ran at a time" if jobs == 1 else f"{_jobs_words(jobs)} shared the machine"
    figures = []
    if len(solved):
        figures = [
            Figure(
                "excess",
                "How far each method ends above the best objective that any of them found: one dot "
                f"per instance, a bar at the median. {format_number(_FLOOR)} stands for that and "
                "less. Further left is better.",
                partial(
                    strips, solved, groups, names, "excess", "relative excess over the best", _FLOOR
                ),
                "Dots by method, one panel per group of instances. The numbers are in the table "
                "runs.",
            ),
            Figure(
                "times",
                "How long each method takes, as a multiple of the time of the group's first "
                "alternating method on the same instance: one dot per instance, a bar at the "
                "median. Further left is faster.",
                partial(
                    strips,
                    solved,
                    groups,
                    names,
                    "time_ratio",
                    "multiple of the time of alternating",
                ),
                "Dots by method, one panel per group of instances. The numbers are in the table "
                "runs.",
            ),
        ]
    return Section(
        "Who finds the best, and how long it takes",
        (
            "The excess of a method on an instance is the relative difference of its objective to "
            "the best objective that any of the methods found there. “Proved global” counts the "
            "runs whose own lower bound meets their objective.",
            f"{_TIMES} In this run {shared}, so that seconds say less than these ratios.",
        ),
        figures=tuple(figures),
        tables=tuple(
            Table(
                f"group_{number}",
                f"{group}: {_instances_words(select(result.instances, group=group))}.",
                _by_method(select(result.runs, group=group)),
                _HEADERS,
            )
            for number, group in enumerate(groups, start=1)
        ),
    )


def _jobs_words(jobs: int) -> str:
    return "as many jobs as cores" if jobs < 0 else count(jobs, "job")


def _instances_words(instances: pd.DataFrame) -> str:
    """Say how many instances there are, how large, and where they lie."""
    spans = [
        f"{_span(instances[name])} {name.removeprefix('n_')}"
        for name in ("n_sellers", "n_features")
    ]
    inside = int(instances.inside.sum())
    where = "all" if inside == len(instances) else "none" if inside == 0 else f"{inside:,}"
    return (
        f"{count(len(instances), 'instance')} of {listing(spans)}, {where} convex for each η "
        f"(convexity ratio {_span(instances.convexity)}), Λ {_span(instances.regularization)}"
    )


def _span(values: pd.Series) -> str:
    low, high = short(values.min()), short(values.max())
    return low if low == high else f"{low} to {high}"


def _by_method(runs: pd.DataFrame) -> pd.DataFrame:
    """Sum up the runs of a group, a row for each method."""
    rows = []
    for name, own in runs.groupby("name", sort=False):
        solved = select(own, status=SOLVED)
        rows.append(
            {
                "name": name,
                "solved": f"{len(solved)} of {len(own)}",
                "found": int((solved.excess <= BEST).sum()),
                "certified": int((solved.certificate == "global").sum()),
                "median_excess": solved.excess.median(),
                "max_excess": solved.excess.max(),
                "median_time": solved.time_ratio.median(),
                "least_time": solved.time_ratio.min(),
                "most_time": solved.time_ratio.max(),
                "median_seconds": solved.seconds.median(),
            }
        )
    return pd.DataFrame(rows)


def _ends_section(result: JointMethodsResult) -> Section | None:
    ranges = starts_ranges(result.descents, result.instances)
    if ranges.empty:
        return None
    alternating = select(_solved(result), method="alternating")
    rows = []
    for group, own in ranges.groupby("group", sort=False):
        starts = select(alternating, group=group)
        rows.append(
            {
                "group": group,
                "instances": len(own),
                "one_point": int((own.range <= SAME).sum()),
                "largest_range": own.range.max(),
                "largest_distance": own.model_distance.max(),
                "own_range": starts.starts_range[starts.starts > 1].max(),
            }
        )
    restarts = result.problem.run.restarts
    return Section(
        "Whether descents end at one point",
        (
            f"On each instance {restarts} projected gradient descents start from random models "
            "and equal weights, at the η of the best answer. They have one end if their "
            f"objectives lie within {format_number(SAME)} of each other, relative to the lowest. "
            "The distance of two models is relative to the norm of the best.",
            "Alternation starts from no model, from the direction of the class means, and from "
            "random models, and chooses η as it goes. It makes one descent where the problem is "
            "convex for each η, and perhaps a second at another η.",
        ),
        tables=(
            Table(
                "ends",
                "Where descents end, group by group.",
                pd.DataFrame(rows),
                _HEADERS,
            ),
        ),
    )


def _claims_section(result: JointMethodsResult) -> Section | None:
    if not result.claims:
        return None
    how = (
        "Verdicts follow from the numbers: methods agree if their objectives do to "
        f"{format_number(AGREE)}, and descents have one end if theirs do to {format_number(SAME)}, "
        "relative to the best."
    )
    return claims_section(result.claims, how)


def _failures_section(result: JointMethodsResult) -> Section | None:
    failed = result.runs[result.runs.status != SOLVED]
    if failed.empty:
        return None
    kinds = [
        f"{name}: {status} on {count(times, 'instance')}"
        for (name, status), times in Counter(zip(failed.name, failed.status, strict=True)).items()
    ]
    return Section(
        "What has no answer",
        ("A method without an answer counts neither as slow nor as wrong in the figures above.",),
        points=tuple(kinds),
        tables=(
            Table(
                "failures",
                "Runs without an answer.",
                failed[["group", "instance", "name", "status", "seconds", "message"]],
                _HEADERS,
            ),
        ),
    )


def _runs_section(result: JointMethodsResult) -> Section:
    idle = [] if (result.runs.status != SOLVED).any() else ["status", "message"]
    runs = result.runs.drop(columns=["method", *idle])
    runs = runs.replace({"lower_bound": {-np.inf: np.nan}})
    return Section(
        "Every run",
        (
            "What is left to gain is how much the model alone, or the purchase alone, would still "
            "improve the objective, relative to it. Steps are the entries of a method's trace, "
            "which are not the same amount of work for each.",
        ),
        tables=(
            Table(
                "runs",
                "Every method on every instance.",
                runs,
                _HEADERS,
                rows_shown=40,
                complete=result.runs,
            ),
            Table(
                "instances",
                "The instances. The ratio is below 1 where the problem is convex for each η.",
                result.instances,
                _HEADERS,
                rows_shown=20,
            ),
        ),
    )


# ---------------------------------------------------------------- the figure


def strips(
    runs: pd.DataFrame,
    groups: list[str],
    names: list[str],
    column: str,
    label: str,
    floor: float = 0.0,
) -> Drawing:
    """Draw a column of the runs: a row of dots for each method, a panel for each group.

    Parameters
    ----------
    runs : pandas.DataFrame
        Columns group, name and ``column``.
    groups, names : list of str
        In the order of panels and of styles.
    column, label : str
    floor : float
        Smaller values are drawn here.
    """
    present = {group: set(select(runs, group=group).name) for group in groups}
    shown = {g: [name for name in names if name in own] for g, own in present.items() if own}
    rows = [len(own) + 1.0 for own in shown.values()]
    figure = Drawing(figsize=(WIDTH, 0.6 + 0.24 * sum(rows) + 0.2 * len(rows)))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    for axes, (group, own) in zip(panels, shown.items(), strict=True):
        for height, name in enumerate(own):
            values = runs[column][(runs.group == group) & (runs.name == name)].clip(lower=floor)
            look = series_style(names.index(name))
            jitter = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [0.0]
            axes.plot(
                values,
                height + np.asarray(jitter),
                linestyle="",
                marker=look["marker"],
                color=look["color"],
                markersize=4,
                alpha=0.65,
                clip_on=False,
            )
            axes.vlines(values.median(), height - 0.38, height + 0.38, color=INK, lw=1.6, zorder=3)
        axes.set_title(group)
        axes.set_yticks(range(len(own)), own)
        axes.set_ylim(len(own) - 0.45, -0.55)
        axes.set_xscale("log")
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_locator(LogLocator(numticks=9))
        axes.xaxis.set_minor_locator(NullLocator())
    panels[-1].set_xlabel(f"{label} (log scale)")
    return figure
