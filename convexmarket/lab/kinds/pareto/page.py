"""What the page of a sweep for the frontier shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from typing import Any

from convexmarket.lab.kinds.pareto.problem import ParetoProblem
from convexmarket.lab.kinds.pareto.run import CRITERIA
from convexmarket.lab.report.marks import Curve
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import reports_words
from convexmarket.lab.report.words import equals, format_number
from convexmarket.lab.result import Result

__all__ = ["pareto_report"]

NAMES = {
    "error": "error",
    "expected_payments": "expected payments",
    "epsilon_max": "largest ε",
    "n_bought": "bought from",
    "eta": "η",
}
#: What is drawn over what.
PAIRS = {
    "payments": ("expected_payments", "error"),
    "epsilon": ("epsilon_max", "error"),
    "payments-epsilon": ("expected_payments", "epsilon_max"),
}


def pareto_report(result: Result[ParetoProblem]) -> Report:
    """Describe the frontier of a market."""
    points, keys = result.tables["points"], list(result.problem.axes)
    solved = points[points.status == "solved"]
    best = {
        name: solved.sort_values([name, *(other for other in CRITERIA if other != name)])
        .iloc[0]
        .to_dict()
        for name in CRITERIA
        if len(solved)
    }
    frontier = points[points.efficient]
    failed = points[points.status != "solved"]
    return page(
        "convexmarket.lab.kinds.pareto",
        result,
        facts=[
            ("markets", f"{len(points):,}"),
            ("of them solved", f"{len(solved):,}"),
            ("efficient", f"{len(frontier):,}"),
            *([("largest certified gap", format_number(solved.gap.max()))] if len(solved) else []),
            *(
                (f"least {NAMES[name]}, of all solved", format_number(row[name]))
                for name, row in best.items()
            ),
        ],
        tables=[
            Table(
                "frontier",
                "The efficient points: no other has less of one of the three, and no more of the "
                "others.",
                frontier[[*keys, *CRITERIA, "n_bought", "eta"]],
                NAMES,
            ),
            Table(
                "points",
                "Every point, with its certificate.",
                points,
                NAMES,
                {"objective": ".6g", "lower_bound": ".6g"},
                rows_shown=20,
            ),
            Table("failures", "Points without an answer.", failed[[*keys, "status", "message"]]),
        ],
        figures=[_figure(result, name, x, y) for name, (x, y) in PAIRS.items() if len(solved)],
        keys=keys,
        reports=reports_words(table.sellers for table in result.problem.markets.values()),
        n_solved=len(solved),
        n_failed=len(failed),
        n_efficient=len(frontier),
        best=best,
        edges=_at_edges(result, best),
        place=lambda row: ", ".join(equals(key, row[key]) for key in keys),
    )


def _at_edges(result: Result[ParetoProblem], best: dict[str, dict[Any, Any]]) -> list[str]:
    """Return the swept keys at whose ends lie the points that the page names."""
    named = [best[name] for name in ("error", "expected_payments") if name in best]
    return [
        key
        for key, values in result.problem.axes.items()
        if any(row[key] in (values[0], values[-1]) for row in named)
    ]


def _figure(result: Result[ParetoProblem], name: str, x: str, y: str) -> Figure:
    solved, keys = (
        result.tables["points"][result.tables["points"].status == "solved"],
        list(result.problem.axes),
    )
    curves = keys[1].rpartition(".")[2].replace("_", " ") if len(keys) > 1 else ""
    labels = [equals(curves, value) for value in solved[keys[-1]]] if curves else ""
    positive = bool((solved[[x, y]] > 0).all(axis=None))
    scale = " (log scale)" if positive else ""
    each = f", a curve for each {curves}" if curves else ""
    return Figure(
        name,
        f"{NAMES[y].capitalize()} over {NAMES[x]}{each}. What to see: how much of one is given up "
        "for the other, and where that begins to be dear. Hollow: another market is better.",
        Curve(
            solved.assign(curve=labels, beaten=~solved.efficient),
            x=x,
            y=y,
            hue="curve" if curves else None,
            hollow="beaten",
            log="xy" if positive else "",
            x_label=f"{NAMES[x]}{scale}",
            y_label=f"{NAMES[y].capitalize()}{scale}",
        ),
        f"Curves of {NAMES[y]} over {NAMES[x]}. The numbers are in the table points.",
    )
