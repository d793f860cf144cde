"""What the page of releases side by side shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.release_comparison.outcome import (
    KEY,
    LINEAR,
    accounting_ratios,
    at_the_end,
    bounded,
    exponents,
    linear_against_kernel,
    main_epsilon,
    majority,
    more_is_worse,
    process_against_others,
    questions,
    without_noise,
)
from convexmarket.lab.kinds.release_comparison.problem import ReleaseComparisonProblem
from convexmarket.lab.kinds.release_comparison.useful import LARGEST_N, most_points
from convexmarket.lab.report.marks import Curve, Dots
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import select
from convexmarket.lab.report.words import equals, format_number, format_percent, listing
from convexmarket.lab.result import Result
from convexmarket.release.non_interactive import MOST_BYTES

__all__ = ["release_comparison_report"]

#: What the columns are called on the page.
WORDS = {
    "size": "n",
    "epsilon": "ε",
    "accuracy_low": "accuracy, from",
    "accuracy_high": "to (95%)",
    "error": "mean error",
    "worst": "largest error",
    "bound": "theory's bound",
    "scale": "scale of the noise",
    "lost": "accuracy lost",
    "n_bound": "n by theory",
    "least": f"theory's bound at n = {format_number(float(LARGEST_N))}",
    "n_measured": "n as measured",
    "linear_accuracy": "accuracy, linear model",
    "prediction_error": "solved to",
    "typical": "median |prediction|",
    "norm_bound": "largest norm",
}
#: The papers' models, and the yardsticks, as headings.
HEADINGS = {
    "interactive": "Interactive",
    "semi-interactive": "Semi-interactive",
    "non-interactive": "Non-interactive",
    "function": "Yardsticks",
    LINEAR: "Yardsticks",
}
SHARES = dict.fromkeys(
    ("accuracy", "accuracy_low", "accuracy_high", "lost", "linear_accuracy"), "z.1%"
)
_MOST_CURVES = 6  # of a panel
_MOST_POINTS = 8  # of a curve of updates
_FAR = 5  # times the updates used: so many allowed are above the panel
_NAME = 34  # characters beside the chart of sizes
INTERVALS = "Error bars: 95% interval of the mean over fits and draws."


def release_comparison_report(result: Result[ReleaseComparisonProblem]) -> Report:
    """Describe a comparison of releases."""
    problem, study = result.problem, result.problem.study
    epsilon, last = main_epsilon(problem), study.sizes[-1]
    end, useful = at_the_end(result), select(result.tables["useful"], epsilon=epsilon)
    ratios, process = accounting_ratios(result), process_against_others(result)
    linear = linear_against_kernel(result)
    known = useful[np.isfinite(useful.n_bound)].sort_values("n_bound")
    late = known[known.n_bound > last]
    rows = select(result.tables["points"], size=last, refused="")
    out = rows[rows.answered < questions(problem)]
    return page(
        "convexmarket.lab.kinds.release_comparison",
        result,
        facts=_facts(result, end, ratios),
        tables=_tables(result, ratios),
        figures=_figures(result),
        quoted=lambda labels: listing([f"“{label}”" for label in labels]),
        epsilon=epsilon,
        last=last,
        reference=without_noise(result, last),
        linear_reference=without_noise(result, last, "linear_accuracy"),
        commoner=majority(problem),
        asked=questions(problem),
        end={name: end[end.group == name].to_dict("records") for name in GROUPS},
        best=next(iter(end.nlargest(1, "accuracy").to_dict("records")), None),
        others={
            value: int((select(result.tables["points"], size=last, epsilon=value).lost
                        <= study.useful_loss).sum())
            for value in dict.fromkeys((study.epsilons[0], study.epsilons[-1]))
            if value != epsilon
        },
        smallest=list(end.release[end.n_measured == study.sizes[0]])
        if len(study.sizes) > 1 else [],
        known=known.to_dict("records"),
        late=list(late.release),
        earlier=list(late.release[late.n_measured <= last]),
        no_n=_no_n(result, useful[useful.n_bound.isna()]),
        ratios=[
            {"paper": paper, "tight": tight, "low": own.ratio.min(), "high": own.ratio.max()}
            for (paper, tight), own in ratios.groupby(["paper", "tight"], sort=False)
        ] if len(ratios) else [],
        process=process,
        process_here=_here(process, last, epsilon),
        linear=linear,
        linear_here=_here(linear, last, epsilon),
        refused=_counts(result.tables["points"], result.tables["points"].refused != ""),
        idle=_counts(rows, rows.updates == 0, len(study.epsilons)),
        out=[(name, own.to_dict("records")) for name, own in out.groupby("release", sort=False)],
        worse=more_is_worse(result, out),
        promised=_by((release.kind, release.label) for release in problem.releases),
        most_points=most_points(problem),
        gigabytes=f"{1e-9 * MOST_BYTES:g} GB",
        LARGEST_N=float(LARGEST_N),
        LINEAR=LINEAR,
    )  # fmt: skip


#: What a release can be at the largest size; see :func:`at_the_end`.
GROUPS = ("near", "far", "vague", "useless")


def _by(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, label in pairs:
        found.setdefault(kind, []).append(label)
    return found


def _here(frame: pd.DataFrame, size: int, epsilon: float) -> dict[Any, Any] | None:
    return next(iter(select(frame, size=size, epsilon=epsilon).to_dict("records")), None)


def _counts(points: pd.DataFrame, some: pd.Series, of: int = 0) -> list[tuple[str, int, int]]:
    """Return of each release with some such points how many, and of how many."""
    return [
        (str(name), len(own), of or int((points.release == name).sum()))
        for name, own in points[some].groupby("release", sort=False)
    ]


def _no_n(result: Result[ReleaseComparisonProblem], rows: pd.DataFrame) -> dict[str, Any]:
    """Return of which releases theory names no n, and what errors remain with those of a kind."""
    kinds = rows.release.map({release.label: release.kind for release in result.problem.releases})
    remaining = [
        {
            "kind": str(kind),
            "releases": list(own.release),
            "low": own.least.min(),
            "high": own.least.max(),
        }
        for kind, own in rows[rows.least.notna()].groupby(kinds, sort=False)
    ]
    return {
        "silent": list(rows.release[rows.least.isna() & (kinds != LINEAR)]),
        "remaining": remaining,
    }


def _facts(
    result: Result[ReleaseComparisonProblem], end: pd.DataFrame, ratios: pd.DataFrame
) -> list[tuple[str, str]]:
    study, n = result.problem.study, len(result.problem.releases)
    at = f"n = {study.sizes[-1]:,}, ε = {format_number(main_epsilon(result.problem))}"
    facts = [
        ("private rows", f"{study.sizes[0]:,} to {study.sizes[-1]:,}"),
        ("accuracy without noise", format_percent(without_noise(result, study.sizes[-1]))),
        (f"of use at {at}", f"{int((end.group == 'near').sum())} of {n}"),
        (f"useless at {at}", f"{int((end.group == 'useless').sum())} of {n}"),
    ]
    if len(ratios):
        largest = format_number(ratios.ratio.max())
        facts.append(("noise of the paper's accounting, against ours", f"up to {largest} times"))
    return facts


# ----------------------------------------------------------------------------------- figures


def _panelled(result: Result[ReleaseComparisonProblem], rows: pd.DataFrame) -> pd.DataFrame:
    """Sort rows into panels by kind of release, of no more curves than a reader can follow."""
    there = set(rows.release)
    places: dict[str, str] = {}
    for heading in dict.fromkeys(HEADINGS.values()):
        labels = [
            release.label
            for release in result.problem.releases
            if HEADINGS[release.kind] == heading and release.label in there
        ]
        for number, label in enumerate(labels):
            places[label] = f"{heading}{' (continued)' * (number >= _MOST_CURVES)}"
    order = list(places)
    rows = rows.sort_values("release", key=lambda s: s.map(order.index), kind="stable")
    return rows.assign(panel=rows.release.map(places))


def _figures(result: Result[ReleaseComparisonProblem]) -> list[Figure]:
    study, epsilon = result.problem.study, main_epsilon(result.problem)
    smaller = study.sizes[(len(study.sizes) - 1) // 2]
    without = result.tables["models"].groupby("size").accuracy.mean()
    known = select(result.tables["points"], refused="")
    known = known.assign(without=known["size"].map(without))
    drawn = _panelled(result, known)
    panels: dict[str, Any] = {
        "hue": "release",
        "panels": "panel",
        "own": True,
        "columns": 2,
        "height": 2.45,
    }
    accuracy: dict[str, Any] = {
        **panels,
        "y": "percent",
        "low": "from",
        "high": "to",
        "log": "x",
        "zero": False,
        "levels": {"always the commoner label": 100 * majority(result.problem)},
        "thin": {"without noise": "reference"},
        "y_label": "accuracy on test rows, %",
    }
    percents = drawn.assign(
        percent=100 * drawn.accuracy,
        **{"from": 100 * drawn.accuracy_low, "to": 100 * drawn.accuracy_high},
        reference=100 * drawn.without,
    )
    figures = []
    over_size = select(percents, epsilon=epsilon)
    if len(over_size):
        figures.append(
            Figure(
                "accuracy-size",
                f"Accuracy over n, {equals('ε', epsilon)}. What to see: noise falls like 1/n, so "
                "curves climb towards the dashed line; how far to the right they do is the price "
                f"of a release's constant. {INTERVALS}",
                Curve(over_size, x="size", x_label="n, private rows (log scale)", **accuracy),
                "Curves of the accuracy over n. The numbers are in the table points.",
            )
        )
    for name, size in (("accuracy-epsilon", study.sizes[-1]), ("accuracy-epsilon-fewer", smaller)):
        over = select(percents, size=size)
        if over.empty or (name == "accuracy-epsilon-fewer" and smaller == study.sizes[-1]):
            continue
        figures.append(
            Figure(
                name,
                f"Accuracy over ε, {equals('n', size)}. What to see: where a curve leaves the line "
                "of the commoner label, the release begins to say something, and where it reaches "
                f"the dashed line, noise costs nothing that can be seen. {INTERVALS}",
                Curve(over, x="epsilon", x_label="ε of the whole release (log scale)", **accuracy),
                "Curves of the accuracy over epsilon. The numbers are in the table points.",
            )
        )
    errors = select(bounded(result), epsilon=epsilon)
    if len(errors):
        useful = study.useful_error
        figures.append(
            Figure(
                "error-size",
                f"Error over n, {equals('ε', epsilon)}, on log scales: measured, and theory's "
                "bound on it, dotted in the same colour. For semi-interactive releases it is the "
                "mean error, for the others the largest over the test rows, as far as updates "
                "last. What to see: parallel lines are theory with the right rate and a generous "
                "constant; exponents are in the table.",
                Curve(
                    _panelled(result, errors), x="size", y="measured", dotted="bound", log="xy",
                    levels={f"of use in theory: {format_number(useful)}": useful},
                    x_label="n, private rows (log scale)",
                    y_label="error of a prediction (log scale)", **panels,
                ),
                "Curves of measured errors and bounds over n. The numbers are in the table points.",
            )
        )  # fmt: skip
    return figures + _needed(result) + _updates(result)


def _needed(result: Result[ReleaseComparisonProblem]) -> list[Figure]:
    """Return from which n on every release is of use, at the ends and in the middle of epsilon."""
    study = result.problem.study
    chosen = dict.fromkeys([study.epsilons[0], main_epsilon(result.problem), study.epsilons[-1]])
    rows = result.tables["useful"][result.tables["useful"].epsilon.isin(list(chosen))]
    if rows[["n_bound", "n_measured"]].isna().all(axis=None):
        return []
    kinds = {"n_bound": "by theory's bound", "n_measured": "as measured"}
    long = rows.melt(["epsilon", "release"], list(kinds), "how", "n")
    drawn = long.assign(
        how=long.how.map(kinds),
        panel=[equals("ε", value) for value in long.epsilon],
        release=[fill(str(name), _NAME) for name in long.release],
        theory=(long.how == "n_bound").astype(int),
    )
    return [
        Figure(
            "sizes-needed",
            "The n from which on a release is of use. What to see: the marks of a row answer "
            "different questions, the hollow one how far predictions can be off, the filled one "
            "how many labels were wrong in this study, which ends at the dotted line; hollow marks "
            "of two accountings of the same release are apart by what the paper's constants cost. "
            "A missing mark: at no n.",
            Dots(
                drawn, x="n", y="release", hue="how", panels="panel", hollow="theory", log="x",
                beside=True, levels={"largest of the study": study.sizes[-1]},
                x_label="n, private rows (log scale)",
            ),
            "Marks of the sizes needed. The numbers are in the table useful.",
        )
    ]  # fmt: skip


def _updates(result: Result[ReleaseComparisonProblem]) -> list[Figure]:
    if result.tables["updates"].empty:
        return []
    epsilons = result.problem.study.epsilons
    few = [epsilons[0], main_epsilon(result.problem), epsilons[-1]]
    rows = result.tables["updates"][result.tables["updates"].epsilon.isin(few)]
    asked = np.unique(rows.queries)
    step = -(-len(asked) // _MOST_POINTS)
    rows = rows[rows.queries.isin(asked[::-1][::step])]
    limits = {
        release.label: release.max_updates
        for release in result.problem.releases
        if release.kind == "interactive"
    }
    allowed = rows.release.map(limits).astype(float)
    used = rows.groupby("release").high.transform("max").clip(lower=1.0)
    drawn = rows.assign(
        allowed=allowed.where(allowed < _FAR * used),
        panel=[f"{name}\n{limits[name]:,} allowed" for name in rows.release],
        curve=[equals("ε", value) for value in rows.epsilon],
    )
    return [
        Figure(
            "updates",
            "Updates used as questions grow, "
            f"{equals('n', result.problem.study.sizes[-1])}; bars: from the fewest to the most of "
            "all fits and draws. What to see: a curve that levels off has learnt the model, one "
            "that reaches the dashed line has run out (above the panel where far more are "
            "allowed), and one that stays at zero has a threshold so wide that nothing is ever "
            "corrected.",
            Curve(
                drawn, x="queries", y="updates", low="low", high="high", hue="curve",
                panels="panel", free="y", columns=3, height=2.6,
                thin={"updates allowed": "allowed"}, x_label="questions asked",
                y_label="updates used",
            ),
            "Curves of the updates used. The numbers are in the table updates.",
        )
    ]  # fmt: skip


# ------------------------------------------------------------------------------------ tables


def _tables(result: Result[ReleaseComparisonProblem], ratios: pd.DataFrame) -> list[Table]:
    study, errors = result.problem.study, bounded(result)
    known = select(result.tables["points"], refused="")
    known = known.sort_values(["size", "epsilon"], ascending=[False, True], kind="stable")
    refused = result.tables["points"][result.tables["points"].refused != ""]
    tables = [
        Table(
            "points",
            "Means over fits and draws; errors are distances from the model's predictions, of "
            "which objective perturbation, another model, has none.",
            known.drop(columns="refused"),
            WORDS,
            SHARES,
            rows_shown=40,
            complete=result.tables["points"],
        ),
        Table(
            "draws",
            "Every fit and draw.",
            result.tables["draws"],
            WORDS,
            {"accuracy": "z.1%"},
            rows_shown=8,
        ),
        Table(
            "useful",
            "The smallest n from which on a release is of use; a dash: at none. The bound at the "
            "largest n considered is what points, nets and rounds leave under little noise.",
            result.tables["useful"],
            WORDS,
            {"n_bound": ",.0f", "n_measured": ",.0f"},
            rows_shown=80,
        ),
        Table(
            "models",
            "Every fit. No guarantee covers these numbers.",
            result.tables["models"],
            WORDS,
            SHARES,
            rows_shown=40,
        ),
    ]
    if len(errors):
        tables.append(
            Table(
                "exponents",
                "Exponents of n, fitted by least squares to the logarithms.",
                exponents(errors),
                {
                    **WORDS,
                    "measured": "exponent, measured",
                    "low": "from",
                    "high": "to (95%)",
                    "bound": "exponent of the bound",
                },
                dict.fromkeys(("measured", "low", "high", "bound"), "z.2f"),
                rows_shown=40,
            )
        )
    if len(ratios):
        tables.append(
            Table(
                "accountings",
                "Scale of the noise: the paper's accounting over the tight one, for "
                "releases otherwise the same; here at the largest n, in the file at every n.",
                select(ratios, size=study.sizes[-1]),
                {
                    **WORDS,
                    "paper": "paper's accounting",
                    "tight": "tight",
                    "ratio": "ratio of scales",
                    "accuracy_paper": "accuracy, paper's",
                    "accuracy_tight": "tight",
                },
                {"accuracy_paper": "z.1%", "accuracy_tight": "z.1%"},
                rows_shown=40,
                complete=ratios,
            )
        )
    if len(result.tables["updates"]):
        tables.append(
            Table(
                "updates",
                "Interactive releases: updates after all questions; means over fits and draws, the "
                "fewest, the most; in the file after fewer questions too.",
                result.tables["updates"].groupby(["release", "epsilon"], sort=False).tail(1),
                {**WORDS, "queries": "questions", "low": "fewest", "high": "most"},
                rows_shown=40,
                complete=result.tables["updates"],
            )
        )
    if len(refused):
        listed = refused.groupby("release", sort=False).agg(
            pairs=("size", "size"),
            n_from=("size", "min"),
            n_to=("size", "max"),
            epsilon_from=("epsilon", "min"),
            epsilon_to=("epsilon", "max"),
            refused=("refused", "first"),
        )
        tables.append(
            Table(
                "refused",
                "Releases that were refused, at how many pairs of n and ε, and in which range.",
                listed.reset_index(),
                {
                    "n_from": "n, from",
                    "n_to": "to",
                    "epsilon_from": "ε, from",
                    "epsilon_to": "to",
                    "refused": "why",
                },
                complete=refused[["release", *KEY, "refused"]],
            )
        )
    return tables
