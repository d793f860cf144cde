"""What the page of the joint problem's methods shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.joint_methods.claims import (
    AGREE,
    BEST,
    OURS,
    SAME,
    SOLVED,
    starts_ranges,
)
from convexmarket.lab.kinds.joint_methods.compare import FEWEST, SIGNIFICANT, method_pairs, winner
from convexmarket.lab.kinds.joint_methods.problem import JointMethodsProblem
from convexmarket.lab.report.claims import JOINT_WARNING
from convexmarket.lab.report.marks import Dots
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import select, short
from convexmarket.lab.report.words import format_number
from convexmarket.lab.result import Result

__all__ = ["joint_methods_report"]

#: Below it an excess is rounding; the figure draws it there.
FLOOR = 1e-12
#: Whether an instance is convex for each eta, and where that is.
REGIONS = {
    True: "where the problem is convex for each η",
    False: "where the problem is not convex for each η",
}
WORDS = {
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
    "other": "and",
    "shared": "instances of both",
    "alone": "best found by the first alone",
    "other_alone": "by the second alone",
    "faster": "the first is faster",
    "other_faster": "the second is",
}


def joint_methods_report(result: Result[JointMethodsProblem]) -> Report:
    """Describe how the joint problem's methods compare."""
    solved, instances = select(result.tables["runs"], status=SOLVED), result.tables["instances"]
    runs = result.tables["runs"].merge(
        instances[["group", "instance", "inside"]], on=["group", "instance"]
    )
    regions = [
        _region(inside, own) for inside in REGIONS if len(own := select(runs, inside=inside))
    ]
    failed = result.tables["runs"][result.tables["runs"].status != SOLVED]
    proved = int((solved.certificate == "global").sum())
    facts = [
        ("methods", f"{len(set(result.tables['runs'].name))}"),
        ("instances", f"{len(instances):,}"),
        ("of them convex for each η", f"{int(instances.inside.sum()):,}"),
        ("runs solved", f"{len(solved):,} of {len(result.tables['runs']):,}"),
        *([("runs proved global", f"{proved:,}")] if proved else []),
    ]
    return page(
        "convexmarket.lab.kinds.joint_methods",
        result,
        facts=facts,
        tables=_tables(result, solved, failed, regions),
        figures=_figures(solved),
        warning=JOINT_WARNING,
        regions=regions,
        ours=[claim for claim in result.claims if claim.source == OURS],
        papers=[claim for claim in result.claims if claim.source != OURS],
        failures=failed.groupby(["name", "status"], sort=False).size().items(),
        limits={"best": BEST, "agree": AGREE, "same": SAME, "fewest": FEWEST},
        significant=SIGNIFICANT,
    )


def _region(inside: bool, runs: pd.DataFrame) -> dict[str, Any]:
    """Say which method is measurably the best on the instances of a region, and by what."""
    pairs = method_pairs(runs)
    best = winner(pairs)
    own, beaten = select(runs, name=best), select(pairs, ahead=best)
    return {
        "inside": inside,
        "where": REGIONS[inside],
        "pairs": pairs.assign(inside=inside),
        "instances": len(runs.drop_duplicates(["group", "instance"])),
        "best": best,
        "by_finding": len(select(beaten, by="finding")),
        "by_time": len(select(beaten, by="time")),
        "found": int((own.excess <= BEST).sum()),
        "of": len(own),
    }


# ----------------------------------------------------------------------------------- figures


def _figures(solved: pd.DataFrame) -> list[Figure]:
    shown = solved.assign(missed=solved.excess > BEST, excess=solved.excess.clip(lower=FLOOR))
    dots: dict[str, Any] = {"y": "name", "panels": "group", "log": "x", "hollow": "missed"}
    hollow = (
        f"One dot per instance, hollow where the method is not within {format_number(BEST)} of the "
        "best objective that any of them found; a bar at the median."
    )
    alt = "Dots by method, one panel per group of instances. The numbers are in the table runs."
    drawn = {"times": shown[shown.time_ratio.notna()], "excess": shown}
    figures = [
        Figure(
            "times",
            "How long each method takes, as a multiple of the time of the group's first "
            f"alternating method on the same instance. {hollow} Further left is faster.",
            Dots(
                drawn["times"], x="time_ratio",
                x_label="multiple of the time of alternating (log scale)", **dots,
            ),
            alt,
        ),
        Figure(
            "excess",
            "How far each method ends above the best objective that any of them found. "
            f"{format_number(FLOOR)} stands for that and less. {hollow} Further left is better.",
            Dots(
                drawn["excess"], x="excess", x_label="relative excess over the best (log scale)",
                **dots,
            ),
            alt,
        ),
    ]  # fmt: skip
    return [figure for figure in figures if len(drawn[figure.name])]


# ------------------------------------------------------------------------------------ tables


def _tables(
    result: Result[JointMethodsProblem],
    solved: pd.DataFrame,
    failed: pd.DataFrame,
    regions: list[dict[str, Any]],
) -> list[Table]:
    idle = [] if len(failed) else ["status", "message"]
    runs = result.tables["runs"].drop(columns=["method", *idle])
    pairs = pd.concat([region["pairs"] for region in regions])
    pairs = pairs[["inside", *pairs.columns.drop("inside")]]
    tables = [
        Table(
            "pairs",
            "Every two methods on the instances on which both ran.",
            pairs.replace({"ahead": {"": None}, "by": {"": None}}),
            WORDS,
            rows_shown=60,
        ),
        Table(
            "methods",
            "Every method on every group of instances.",
            _by_method(result.tables["runs"]),
            WORDS,
            rows_shown=60,
        ),
        Table("groups", "The groups of instances.", _groups(result.tables["instances"]), WORDS),
        Table("ends", "Where descents end, group by group.", _ends(result, solved), WORDS),
        Table(
            "failures",
            "Runs without an answer.",
            failed[["group", "instance", "name", "status", "seconds", "message"]],
            WORDS,
        ),
        Table(
            "runs",
            "Every method on every instance.",
            runs.replace({"lower_bound": {-np.inf: np.nan}}),
            WORDS,
            rows_shown=40,
            complete=result.tables["runs"],
        ),
        Table(
            "instances",
            "The instances. The ratio is below 1 where the problem is convex for each η.",
            result.tables["instances"],
            WORDS,
            rows_shown=20,
        ),
    ]
    return [table for table in tables if len(table.frame)]


def _groups(instances: pd.DataFrame) -> pd.DataFrame:
    """Say how many instances there are in each group, how large, and where they lie."""
    spans = ["n_sellers", "n_features", "convexity", "regularization"]
    return pd.DataFrame(
        {"group": group, "instances": len(own), "inside": int(own.inside.sum())}
        | {name: _span(own[name]) for name in spans}
        for group, own in instances.groupby("group", sort=False)
    )


def _span(values: pd.Series) -> str:
    low, high = short(values.min()), short(values.max())
    return low if low == high else f"{low} to {high}"


def _by_method(runs: pd.DataFrame) -> pd.DataFrame:
    """Sum up the runs of each method on each group."""
    rows = []
    for (group, name), own in runs.groupby(["group", "name"], sort=False):
        solved = select(own, status=SOLVED)
        rows.append(
            {
                "group": group,
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


def _ends(result: Result[JointMethodsProblem], solved: pd.DataFrame) -> pd.DataFrame:
    alternating = select(solved, method="alternating")
    rows = []
    ranges = starts_ranges(result.tables["descents"], result.tables["instances"])
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
    return pd.DataFrame(rows)
