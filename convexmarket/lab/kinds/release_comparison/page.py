"""The report of releases side by side: what each loses, what theory promised, from which n on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from convexmarket.lab.claims import power_fit
from convexmarket.lab.kinds.release_comparison import figures
from convexmarket.lab.kinds.release_comparison.figures import Panel
from convexmarket.lab.kinds.release_comparison.run import ReleaseComparisonResult
from convexmarket.lab.kinds.release_comparison.useful import LARGEST_N
from convexmarket.lab.kinds.release_comparison.words import (
    HEADINGS,
    accounting_ratios,
    main_epsilon,
    majority,
    promises,
    questions,
    summary_words,
    updates_words,
    useless,
    without_noise,
)
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import reproduction_section, select
from convexmarket.lab.report.words import equals, format_number, format_percent

__all__ = ["release_comparison_report"]

_WORDS = {
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
_SHARES = dict.fromkeys(
    ("accuracy", "accuracy_low", "accuracy_high", "lost", "linear_accuracy"), "z.1%"
)
#: What is measured is set beside a bound of the same thing.
_MEAN_IS_BOUNDED = "semi-interactive"
_MOST_CURVES = 6  # of a panel
_MOST_PANELS = 3  # side by side
_INTERVALS = "Error bars: 95% interval of the mean over fits and draws."


def release_comparison_report(result: ReleaseComparisonResult) -> Report:
    """Describe a comparison of releases.

    Parameters
    ----------
    result : ReleaseComparisonResult

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    sections = [
        _accuracy_section(result),
        _useful_section(result),
        _error_section(result),
        _accounting_section(result),
        _updates_section(result),
        _promise_section(result),
        _refused_section(result),
        _models_section(result),
        Section("What this does not show", points=result.caveats),
        reproduction_section(result.problem, result.provenance, result.timings),
    ]
    return Report(
        title=result.problem.title,
        summary=summary_words(result),
        sections=tuple(section for section in sections if section is not None),
        results=result,
        facts=_facts(result),
    )


def _facts(result: ReleaseComparisonResult) -> tuple[Fact, ...]:
    study, epsilon = result.problem.study, main_epsilon(result.problem)
    last = select(result.points, size=study.sizes[-1], epsilon=epsilon)
    at = f"n = {study.sizes[-1]:,}, ε = {format_number(epsilon)}"
    known = last[last.refused == ""]
    near = known.lost <= study.useful_loss
    empty = useless(result, known) & ~near
    facts = [
        Fact("private rows", f"{study.sizes[0]:,} to {study.sizes[-1]:,}"),
        Fact("accuracy without noise", format_percent(without_noise(result, study.sizes[-1]))),
        Fact(f"of use at {at}", f"{int(near.sum())} of {len(last)}"),
        Fact(f"useless at {at}", f"{int(empty.sum())} of {len(last)}"),
    ]
    ratios = accounting_ratios(result)
    if len(ratios):
        largest = format_number(ratios.ratio.max())
        facts.append(
            Fact("noise of the paper's accounting, against ours", f"up to {largest} times")
        )
    return tuple(facts)


def _panels(result: ReleaseComparisonResult, rows_of: Callable[[str], pd.DataFrame]) -> list[Panel]:
    """Return panels by kind of release, with what there is to draw of each release."""
    curves: dict[str, list[figures.Curve]] = {}
    for release in result.problem.releases:
        rows = rows_of(release.label)
        if len(rows):
            curves.setdefault(HEADINGS[release.kind], []).append((release.label, rows))
    panels: list[Panel] = []
    for heading in dict.fromkeys(HEADINGS.values()):
        several = curves.get(heading, [])
        for start in range(0, len(several), _MOST_CURVES):
            more = " (continued)" if start else ""
            panels.append((f"{heading}{more}", several[start : start + _MOST_CURVES]))
    return panels


def _known(result: ReleaseComparisonResult, **place: object) -> pd.DataFrame:
    """Return the points of some place that were not refused."""
    return select(result.points, refused="", **place)


# ------------------------------------------------------------------------------------- sections


def _accuracy_section(result: ReleaseComparisonResult) -> Section:
    sizes, epsilon = result.problem.study.sizes, main_epsilon(result.problem)
    smaller = sizes[(len(sizes) - 1) // 2]
    drawn = [
        _over_epsilon(result, "accuracy-epsilon", sizes[-1]),
        _over_epsilon(result, "accuracy-epsilon-fewer", smaller) if smaller < sizes[-1] else None,
        _over_size(result, epsilon),
    ]
    shown = _known(result).sort_values(["size", "epsilon"], ascending=[False, True], kind="stable")
    return Section(
        "What is left of the accuracy",
        (
            "Every release answers the same questions, the test rows, from the same fitted models. "
            "Where updates run out, the remaining test rows are labelled by the public model, "
            "which costs nothing. “Accuracy lost” is that of the model without noise less that of "
            "the release.",
        ),
        figures=tuple(figure for figure in drawn if figure is not None),
        tables=(
            Table(
                "points",
                "Means over fits and draws; errors are distances from the model's predictions, of "
                "which objective perturbation, another model, has none.",
                shown.drop(columns="refused"),
                _WORDS,
                _SHARES,
                rows_shown=40,
                complete=result.points,
            ),
            Table(
                "draws",
                "Every fit and draw.",
                result.draws,
                _WORDS,
                {"accuracy": "z.1%"},
                rows_shown=8,
            ),
        ),
    )


def _over_epsilon(result: ReleaseComparisonResult, name: str, size: int) -> Figure | None:
    rows = _known(result, size=size)
    panels = _panels(result, lambda label: select(rows, release=label))
    if not panels:
        return None
    return Figure(
        name,
        f"Accuracy over ε, {equals('n', size)}. What to see: where a curve leaves the line of the "
        "commoner label, the release begins to say something, and where it reaches the dashed "
        f"line, noise costs nothing that can be seen. {_INTERVALS}",
        partial(
            figures.accuracy_over_epsilon,
            panels,
            without_noise(result, size),
            majority(result.problem),
        ),
        "Curves of the accuracy over epsilon. The numbers are in the table points.",
    )


def _over_size(result: ReleaseComparisonResult, epsilon: float) -> Figure | None:
    rows = _known(result, epsilon=epsilon)
    panels = _panels(result, lambda label: select(rows, release=label))
    if not panels:
        return None
    without = result.models.groupby("size")[["accuracy"]].mean().reset_index()
    return Figure(
        "accuracy-size",
        f"Accuracy over n, {equals('ε', epsilon)}. What to see: noise falls like 1/n, so curves "
        "climb towards the dashed line; how far to the right they do is the price of a release's "
        f"constant. {_INTERVALS}",
        partial(figures.accuracy_over_size, panels, without, majority(result.problem)),
        "Curves of the accuracy over n. The numbers are in the table points.",
    )


def _useful_section(result: ReleaseComparisonResult) -> Section:
    study = result.problem.study
    middle = main_epsilon(result.problem)
    chosen = list(dict.fromkeys([study.epsilons[0], middle, study.epsilons[-1]]))[:_MOST_PANELS]
    panels = [(equals("ε", value), select(result.useful, epsilon=value)) for value in chosen]
    shown = [rows[["n_bound", "n_measured"]].notna().any(axis=None) for _, rows in panels]
    drawn = Figure(
        "sizes-needed",
        "From which n on a release is of use. What to see: the marks of a row answer different "
        "questions, the hollow one how far predictions can be off, the filled one how many labels "
        "were wrong in this study; hollow marks of two accountings of the same release are "
        "apart by what the paper's constants cost. A missing mark: at no n.",
        partial(figures.sizes_needed, panels, (study.sizes[0], study.sizes[-1])),
        "Marks of the sizes needed. The numbers are in the table useful.",
    )
    return Section(
        "From which n on",
        (
            "By theory: the smallest n at which none of the "
            f"{questions(result.problem):,} answers is further than "
            f"{format_number(study.useful_error)} from the model's (for non-interactive releases: "
            "no prediction in the ball; for semi-interactive releases: predictions on average), "
            f"except with probability {format_number(study.failure_probability)}, with the numbers "
            "of updates, points and rounds that are best at that n, of those that a release can "
            "be made with. As measured: the smallest n of the study from which on the loss of "
            "accuracy stays within "
            f"{format_number(100 * study.useful_loss)} points, with the numbers of the problem "
            "file. Objective perturbation, which releases another model, has no such bound, and an "
            "interactive release with a threshold of its own may run out of updates before it "
            "holds. Nor is anything promised where every net would be too large.",
        ),
        figures=(drawn,) if any(shown) else (),
        tables=(
            Table(
                "useful",
                "From which n on; a dash: at none. The bound at the largest n that is thought of "
                "is what points, nets and rounds leave when there is little noise.",
                result.useful,
                _WORDS,
                {"n_bound": ",.0f", "n_measured": ",.0f"},
                rows_shown=80,
            ),
        ),
    )


def _bounded(result: ReleaseComparisonResult) -> pd.DataFrame:
    """Return the points with a bound, and what was measured of what is bounded."""
    kinds = {release.label: release.kind for release in result.problem.releases}
    mean = result.points.release.map(kinds) == _MEAN_IS_BOUNDED
    points = result.points.assign(measured=result.points.error.where(mean, result.points.worst))
    return points[np.isfinite(points.measured) & np.isfinite(points.bound)]


def _error_section(result: ReleaseComparisonResult) -> Section | None:
    rows = _bounded(result)
    if rows.empty:
        return None
    epsilon = main_epsilon(result.problem)
    middle = select(rows, epsilon=epsilon)
    panels = _panels(result, lambda label: select(middle, release=label))
    drawn = Figure(
        "error-size",
        f"Error over n, {equals('ε', epsilon)}, on log scales: measured, and theory's bound on it, "
        "dotted in the same colour. For semi-interactive releases it is the mean error, for the "
        "others the largest over the test rows, as far as updates last. What to see: parallel "
        "lines are theory with the right rate and a generous constant; exponents are in the table.",
        partial(figures.error_over_size, panels, result.problem.study.useful_error),
        "Curves of measured errors and bounds over n. The numbers are in the table points.",
    )
    return Section(
        "Errors against theory",
        (
            "The bounds are those of K's theorems with their constants worked out, for the numbers "
            "of updates, points and rounds of the problem file. A bound above the largest "
            "prediction says nothing. Those of interactive releases cover answers while updates "
            "last. A release that says zero everywhere is off by the model's own predictions and "
            "no more, while noise can exceed them: a small error is not yet a right label.",
        ),
        figures=(drawn,) if panels else (),
        tables=(
            Table(
                "exponents",
                "Exponents of n, fitted by least squares to the logarithms.",
                _exponents(rows),
                {
                    **_WORDS,
                    "measured": "exponent, measured",
                    "low": "from",
                    "high": "to (95%)",
                    "bound": "exponent of the bound",
                },
                dict.fromkeys(("measured", "low", "high", "bound"), "z.2f"),
                rows_shown=40,
            ),
        ),
    )


def _exponents(rows: pd.DataFrame) -> pd.DataFrame:
    """Fit powers of n to measured errors and to bounds, of every release and epsilon."""
    table = []
    for (release, epsilon), own in rows.groupby(["release", "epsilon"], sort=False):
        fit = power_fit(own["size"], own.measured)
        table.append(
            {
                "release": release,
                "epsilon": epsilon,
                "measured": fit.slope,
                "low": fit.low,
                "high": fit.high,
                "bound": power_fit(own["size"], own.bound).slope,
                "sizes": fit.n_points,
            }
        )
    return pd.DataFrame(table).sort_values(["epsilon"], kind="stable")


def _accounting_section(result: ReleaseComparisonResult) -> Section | None:
    ratios = accounting_ratios(result)
    if ratios.empty:
        return None
    return Section(
        "The paper's accounting, and ours",
        (
            "Both promise the same. The paper's adds up the answers of a release by composition "
            "theorems; the tight one bounds the moments of the privacy loss and takes the smallest "
            "noise that they allow. The two accuracies say whether that decides if a "
            "release is of use.",
        ),
        tables=(
            Table(
                "accountings",
                "Scale of the noise under the paper's accounting over that under the tight one, of "
                "releases alike in all else; here at the largest n, in the file at all.",
                select(ratios, size=result.problem.study.sizes[-1]),
                {
                    **_WORDS,
                    "paper": "paper's accounting",
                    "tight": "tight",
                    "ratio": "ratio of scales",
                    "accuracy_paper": "accuracy, paper's",
                    "accuracy_tight": "tight",
                },
                {"accuracy_paper": "z.1%", "accuracy_tight": "z.1%"},
                rows_shown=40,
                complete=ratios,
            ),
        ),
    )


def _updates_section(result: ReleaseComparisonResult) -> Section | None:
    if result.updates.empty:
        return None
    limits = {
        release.label: release.max_updates
        for release in result.problem.releases
        if release.kind == "interactive"
    }
    epsilons = result.problem.study.epsilons
    few = list(dict.fromkeys([epsilons[0], main_epsilon(result.problem), epsilons[-1]]))
    panels: list[Panel] = []
    for label in dict.fromkeys(result.updates.release):
        rows = select(result.updates, release=label)
        curves = [(equals("ε", value), select(rows, epsilon=value)) for value in few]
        panels.append((str(label), curves))
    drawn = Figure(
        "updates",
        f"Updates used as questions grow, {equals('n', result.problem.study.sizes[-1])}; shaded: "
        "from the fewest to the most of all fits and draws. What to see: a curve that levels off "
        "has learnt the model, one that reaches the dashed line has run out (above the panel where "
        "far more are allowed), and one that stays at zero has a threshold so wide that nothing is "
        "ever corrected.",
        partial(figures.updates_over_questions, panels, [limits[name] for name, _ in panels]),
        "Curves of the updates used. The numbers are in the table updates.",
    )
    return Section(
        "Updates of the interactive releases",
        updates_words(result),
        figures=(drawn,),
        tables=(
            Table(
                "updates",
                "Updates after all questions: means over fits and draws, the fewest, the most; in "
                "the file after fewer questions too.",
                result.updates.groupby(["release", "epsilon"], sort=False).tail(1),
                {**_WORDS, "queries": "questions", "low": "fewest", "high": "most"},
                rows_shown=40,
                complete=result.updates,
            ),
        ),
    )


def _promise_section(result: ReleaseComparisonResult) -> Section:
    problem = result.problem
    return Section(
        "What is promised",
        (
            "Replacing any one private row changes the probability of whatever is released by at "
            "most a factor exp(ε), and an addition of δ. Each release keeps this by itself; two of "
            "the same rows add up, and so do the draws of this study, whose seeds are in the "
            "problem file: the page measures releases and is none.",
            "It rests on a public bound "
            f"of {format_number(problem.model.data_norm)} on the norm of every row, private or "
            "asked about; on a public set of labels; on the kernel, its parameters and the "
            "regularisation being chosen without looking at the private rows; and on noise whose "
            "seed nobody knows. Releases of the kernel model's predictions need a minimiser found "
            f"to within {format_number(problem.model.tol)} sensitivities, which their noise "
            "covers. Numbers are computed in double precision.",
        ),
        points=promises(problem),
    )


def _refused_section(result: ReleaseComparisonResult) -> Section | None:
    refused = result.points[result.points.refused != ""]
    if refused.empty:
        return None
    listed = refused.groupby("release", sort=False).agg(
        pairs=("size", "size"),
        n_from=("size", "min"),
        n_to=("size", "max"),
        epsilon_from=("epsilon", "min"),
        epsilon_to=("epsilon", "max"),
        refused=("refused", "first"),
    )
    return Section(
        "What was refused",
        (
            "A release that cannot keep its promise, or would need more than a machine has, is "
            "refused before any noise is drawn. The reason is the error's own words at the first "
            "pair of n and ε; at others its numbers may differ.",
        ),
        tables=(
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
                complete=refused[["release", "size", "epsilon", "refused"]],
            ),
        ),
    )


def _models_section(result: ReleaseComparisonResult) -> Section:
    return Section(
        "The models without noise",
        (
            f"One model for every n and fit, asked {questions(result.problem):,} questions. The "
            "sensitivity is how far any prediction moves at most when one row is replaced; noise "
            "is proportional to it, and matters by how it compares with the median prediction.",
        ),
        tables=(
            Table(
                "models",
                "Every fit. No guarantee covers these numbers.",
                result.models,
                _WORDS,
                _SHARES,
                rows_shown=40,
            ),
        ),
    )
