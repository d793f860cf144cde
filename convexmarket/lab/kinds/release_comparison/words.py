"""What the comparison of releases found, in words that follow from its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.release_comparison.problem import CirclesData, ReleaseComparisonProblem
from convexmarket.lab.kinds.release_comparison.run import ReleaseComparisonResult
from convexmarket.lab.kinds.release_comparison.useful import LARGEST_N, most_points
from convexmarket.lab.problem.rows import load_rows
from convexmarket.lab.report.parts import select
from convexmarket.lab.report.words import (
    count,
    equals,
    format_number,
    format_percent,
    listing,
    share,
)
from convexmarket.release.non_interactive import MOST_BYTES

__all__ = [
    "HEADINGS",
    "accounting_ratios",
    "kernel_points",
    "main_epsilon",
    "majority",
    "promises",
    "questions",
    "quoted",
    "summary_words",
    "undecided",
    "updates_words",
    "useless",
    "without_noise",
]

#: The papers' models, and the yardsticks, as headings.
HEADINGS = {
    "interactive": "Interactive",
    "semi-interactive": "Semi-interactive",
    "non-interactive": "Non-interactive",
    "function": "Yardsticks",
    "objective-perturbation": "Yardsticks",
}
LINEAR = "objective-perturbation"
_ROUNDING = 1e-12

_PROMISES = {
    "interactive": (
        "all answers to {questions} questions, and the public model, together, whatever the "
        "questions are, also where they follow from earlier answers. The threshold is free: it "
        "changes errors and not privacy"
    ),
    "semi-interactive": (
        "the predictions at public points that do not depend on the private rows, together. The "
        "function fitted to them reveals nothing more, and answers any number of questions"
    ),
    "non-interactive": (
        "all rounds of choosing a point and measuring there, together. The predictor that comes of "
        "them may be published, and answers any number of questions"
    ),
    "function": (
        "the whole prediction function, with a Gaussian process added: any number of answers, also "
        "to questions that follow from earlier ones"
    ),
    LINEAR: (
        "the coefficients of a linear model, which may be published. Nothing but the exact "
        "minimiser keeps this promise"
    ),
}


def quoted(labels: Any) -> str:
    """Join names of releases as a sentence does."""
    return listing([f"“{label}”" for label in labels])


def main_epsilon(problem: ReleaseComparisonProblem) -> float:
    """Return the epsilon that most is said of: the middle one."""
    epsilons = problem.study.epsilons
    return epsilons[(len(epsilons) - 1) // 2]


def questions(problem: ReleaseComparisonProblem) -> int:
    """Return how many test rows there are: every release is asked for all of them."""
    data = problem.data
    return data.n_test if isinstance(data, CirclesData) else load_rows(data).y_test.size


def majority(problem: ReleaseComparisonProblem) -> float:
    """Return the accuracy on test rows of whoever always says the commoner label."""
    if isinstance(problem.data, CirclesData):
        return -(-problem.data.n_test // 2) / problem.data.n_test  # half of them on either circle
    labels = load_rows(problem.data).y_test
    return float(max(np.mean(labels > 0), np.mean(labels < 0)))


def without_noise(result: ReleaseComparisonResult, size: int, name: str = "accuracy") -> float:
    """Return the mean accuracy of the model without noise, at one size."""
    return float(select(result.models, size=size)[name].mean())


def useless(result: ReleaseComparisonResult, points: pd.DataFrame) -> pd.Series:
    """Say of points whether they are no better than always the commoner label.

    They are not if the mean accuracy is no larger, or if no value in its interval is larger by what
    counts as a loss.
    """
    commoner = majority(result.problem)
    highest = commoner + result.problem.study.useful_loss
    return (points.accuracy <= commoner + _ROUNDING) | (points.accuracy_high < highest)


def undecided(result: ReleaseComparisonResult, points: pd.DataFrame) -> pd.Series:
    """Say of points whether they are better, but with an interval that reaches below."""
    reaches = points.accuracy_low <= majority(result.problem) + _ROUNDING
    return reaches & ~useless(result, points)


def kernel_points(result: ReleaseComparisonResult) -> pd.DataFrame:
    """Return the points of the releases of the kernel model that were not refused."""
    linear = [release.label for release in result.problem.releases if release.kind == LINEAR]
    return result.points[~result.points.release.isin(linear) & (result.points.refused == "")]


def accounting_ratios(result: ReleaseComparisonResult) -> pd.DataFrame:
    """Return by how much the paper's accounting enlarges noise, for releases alike in all else.

    Returns
    -------
    DataFrame
        One row per pair, size and epsilon: paper and tight (labels), size, epsilon, ratio (of the
        scales), and the accuracies.
    """
    releases = result.problem.releases
    pairs = [
        (paper.label, tight.label)
        for tight in releases
        for paper in releases
        if _without_accounting(paper) == _without_accounting(tight)
        and getattr(tight, "accounting", "") == "tight"
        and getattr(paper, "accounting", "") == "paper"
    ]
    key, columns = ["size", "epsilon"], ["scale", "accuracy"]
    frames = []
    for paper, tight in pairs:
        both = select(result.points, release=paper)[[*key, *columns]].merge(
            select(result.points, release=tight)[[*key, *columns]],
            on=key,
            suffixes=("_paper", "_tight"),
        )
        ratio = both.scale_paper / both.scale_tight
        both = both.assign(paper=paper, tight=tight, ratio=ratio)
        frames.append(both[["paper", "tight", *key, "ratio", "accuracy_paper", "accuracy_tight"]])
    found = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"ratio": []})
    return found[np.isfinite(found.ratio.astype(float))]


def _without_accounting(release: Any) -> dict[str, Any]:
    return {**release.model_dump(exclude={"label", "accounting"})}


# --------------------------------------------------------------------------------------- summary


def summary_words(result: ReleaseComparisonResult) -> tuple[str, ...]:
    """Return the paragraphs that are read first, the finding before everything else."""
    paragraphs = [
        _finding(result),
        _theory_words(result),
        _accounting_words(result),
        _process_words(result),
        _linear_words(result),
        " ".join(result.problem.description.split()),
        _refused_words(result),
    ]
    return tuple(text for text in paragraphs if text)


def _at_the_end(result: ReleaseComparisonResult) -> pd.DataFrame:
    """Return the points at the largest size and the main epsilon that were not refused."""
    size, epsilon = result.problem.study.sizes[-1], main_epsilon(result.problem)
    points = select(result.points, size=size, epsilon=epsilon)
    return points[points.refused == ""]


def _where(result: ReleaseComparisonResult) -> str:
    size, epsilon = result.problem.study.sizes[-1], main_epsilon(result.problem)
    return f"{count(size, 'row')} and {equals('ε', epsilon)}"


def _finding(result: ReleaseComparisonResult) -> str:
    """Say which releases keep the accuracy of the model, lose some, may or do say nothing."""
    study, points = result.problem.study, _at_the_end(result)
    reference = without_noise(result, study.sizes[-1])
    words = (
        f"With {_where(result)} the model without noise labels {format_percent(reference)} of the "
        "test rows right."
    )
    near = points.lost <= study.useful_loss
    empty = useless(result, points) & ~near
    vague = undecided(result, points) & ~near
    if not near.any():
        words += f" No release comes within {_loss(study.useful_loss)} of that."
    groups = (
        (near, f"Within {_loss(study.useful_loss)} of that: {{}}."),
        (~near & ~empty & ~vague, "More is lost by {}."),
        (vague, "Not told apart from the commoner label by so few draws: {}."),
        (
            empty,
            "Useless, not or hardly better than always saying the commoner label "
            f"({format_percent(majority(result.problem))}): {{}}.",
        ),
    )
    for chosen, sentence in groups:
        rows = points[chosen]
        if len(rows):
            words += f" {sentence.format(listing([_with_size(result, row) for row in _of(rows)]))}"
    return words + _other_epsilons(result)


def _other_epsilons(result: ReleaseComparisonResult) -> str:
    """Say how many releases keep the accuracy at the smallest and the largest epsilon."""
    study, middle = result.problem.study, main_epsilon(result.problem)
    ends = [value for value in (study.epsilons[0], study.epsilons[-1]) if value != middle]
    if not ends:
        return ""
    parts = []
    for epsilon in dict.fromkeys(ends):
        points = select(result.points, size=study.sizes[-1], epsilon=epsilon)
        parts.append(f"{int((points.lost <= study.useful_loss).sum())} at {equals('ε', epsilon)}")
    releases = count(len(result.problem.releases), "release")
    return f" Of {releases}, as close come {listing(parts)}."


def _of(rows: pd.DataFrame) -> list[Any]:
    return list(rows.itertuples())


def _loss(accuracy: float) -> str:
    """Write a difference of accuracies."""
    return f"{format_number(100 * accuracy)} points"


def _with_size(result: ReleaseComparisonResult, row: Any) -> str:
    """Name a release, its accuracy, and from which size on it loses little."""
    words = f"“{row.release}” ({format_percent(row.accuracy)}"
    found = select(result.useful, release=row.release, epsilon=row.epsilon).n_measured
    if len(found) and np.isfinite(found.iloc[0]):
        first = int(found.iloc[0])
        words += f"; from {equals('n', first)} on"
    return f"{words})"


def _theory_words(result: ReleaseComparisonResult) -> str:
    """Say from which n on theory's bounds promise something, and where they do not in the study."""
    study, epsilon = result.problem.study, main_epsilon(result.problem)
    rows = select(result.useful, epsilon=epsilon)
    known = rows[np.isfinite(rows.n_bound)].sort_values("n_bound")
    if known.empty:
        return _without_n(result, rows).strip()
    parts = [f"{format_number(float(row.n_bound))} with “{row.release}”" for row in _of(known)]
    words = (
        f"For predictions off by at most {format_number(study.useful_error)}, theory's bounds ask "
        f"at {equals('ε', epsilon)} for n of {listing(parts)}."
    )
    words += _without_n(result, rows[rows.n_bound.isna()])
    last = study.sizes[-1]
    late = known[known.n_bound > last]
    if late.empty:
        return f"{words} The study goes up to {equals('n', last)}."
    words += (
        f" For {quoted(late.release)} theory promises nothing of the kind up to "
        f"{equals('n', last)}, where the study ends."
    )
    earlier = late[late.n_measured <= last]
    if len(earlier):
        words += (
            f" Measured, {quoted(earlier.release)} {'is' if len(earlier) == 1 else 'are'} of use "
            "there all the same: bounds are for the worst case, and labels need less."
        )
    return words


def _without_n(result: ReleaseComparisonResult, rows: pd.DataFrame) -> str:
    """Say of which releases theory names no n, and what keeps it from doing so."""
    kinds = rows.release.map({release.label: release.kind for release in result.problem.releases})
    silent = rows[rows.least.isna() & (kinds != LINEAR)]
    words = f" Theory names no n for {quoted(silent.release)}." if len(silent) else ""
    limits = {
        "semi-interactive": f"with {count(most_points(result.problem), 'public point')}, the most "
        "that a release can take here, ",
        "non-interactive": f"with the nets and rounds that {1e-9 * MOST_BYTES:g} GB hold, ",
    }
    for kind, own in rows[rows.least.notna()].groupby(kinds, sort=False):
        low, high = (format_number(value) for value in (own.least.min(), own.least.max()))
        words += (
            f" For {quoted(own.release)} no n up to {format_number(float(LARGEST_N))} suffices: "
            f"{limits.get(str(kind), '')}errors of {low if low == high else f'{low} to {high}'} "
            "remain possible."
        )
    return words


def _accounting_words(result: ReleaseComparisonResult) -> str:
    """Say how much noise the tight accounting saves."""
    ratios = accounting_ratios(result)
    if ratios.empty:
        return ""
    parts = []
    for (paper, tight), rows in ratios.groupby(["paper", "tight"], sort=False):
        low, high = (format_number(value) for value in (rows.ratio.min(), rows.ratio.max()))
        span = low if low == high else f"{low} to {high}"
        parts.append(f"{span} times for “{paper}” against “{tight}”")
    return (
        "For the same promise, the paper's accounting takes more noise than the tight one: "
        f"{listing(parts)}, over the sizes and ε of the study."
    )


def _process_words(result: ReleaseComparisonResult) -> str:
    """Say how the release of the function does against all others of the kernel model."""
    names = [release.label for release in result.problem.releases if release.kind == "function"]
    points = kernel_points(result)
    points = points[np.isfinite(points.error)]
    others = points[~points.release.isin(names)]
    if not names or others.empty:
        return ""
    own = points[points.release == names[0]].set_index(["size", "epsilon"])
    least = others.loc[others.groupby(["size", "epsilon"]).error.idxmin()]
    least = least.set_index(["size", "epsilon"]).reindex(own.index)
    known = np.isfinite(least.error)
    if not known.any():
        return ""
    wins = int((own.error < least.error)[known].sum())
    place = (result.problem.study.sizes[-1], main_epsilon(result.problem))
    words = (
        f"“{names[0]}”, a Gaussian process added to the whole function, has the smallest mean "
        "error of all releases of the kernel model at "
        f"{share(wins, int(known.sum()), 'pair')} of n and ε."
    )
    if place in own.index and np.isfinite(least.error.get(place, np.nan)):
        error, best = own.error[place], least.loc[place]
        than = "less than" if error < best.error else "more than"
        words += (
            f" With {_where(result)} its predictions are off by {format_number(error)}, {than} the "
            f"{format_number(best.error)} of “{best.release}”, the best of the others."
        )
    return words


def _linear_words(result: ReleaseComparisonResult) -> str:
    """Compare the best release of the kernel model with objective perturbation."""
    names = [release.label for release in result.problem.releases if release.kind == LINEAR]
    kernels = kernel_points(result)
    linear = result.points[result.points.release.isin(names) & (result.points.refused == "")]
    if linear.empty or kernels.empty:
        return ""
    key = ["size", "epsilon"]
    best = kernels.loc[kernels.groupby(key).accuracy.idxmax()].merge(
        linear.loc[linear.groupby(key).accuracy.idxmax()], on=key, suffixes=("", "_linear")
    )
    ahead = best.accuracy > best.accuracy_linear
    words = (
        f"A linear model by objective perturbation is behind the best release of the "
        f"{_kernel_name(result)} at {share(int(ahead.sum()), len(best), 'pair')} of n and ε."
    )
    size, epsilon = result.problem.study.sizes[-1], main_epsilon(result.problem)
    for row in _of(select(best, size=size, epsilon=epsilon)):
        gained = row.accuracy - row.accuracy_linear
        words += (
            f" With {_where(result)} it is right on {format_percent(row.accuracy_linear)} "
            f"({format_percent(without_noise(result, size, 'linear_accuracy'))} without noise), "
            f"and “{row.release}” on {format_percent(row.accuracy)}: {_loss(abs(gained))} "
            f"{'won' if gained > 0 else 'lost'} by the kernel."
        )
    return words


def _kernel_name(result: ReleaseComparisonResult) -> str:
    return f"{result.problem.model.kernel} kernel's model"


def _refused_words(result: ReleaseComparisonResult) -> str:
    """Say which releases there are none of, at some size and epsilon."""
    refused = result.points[result.points.refused != ""]
    if refused.empty:
        return ""
    parts = [
        f"“{name}” at {share(len(rows), int((result.points.release == name).sum()), 'pair')}"
        for name, rows in refused.groupby("release", sort=False)
    ]
    return f"Refused: {listing(parts)} of n and ε; the table of refusals says why."


def updates_words(result: ReleaseComparisonResult) -> tuple[str, ...]:
    """Say which interactive releases ran out of updates, and which made none, at the largest n."""
    study, asked = result.problem.study, questions(result.problem)
    rows = select(result.points, size=study.sizes[-1], refused="")
    words = [
        "Only an update costs privacy, and all that are allowed are paid for in advance. An answer "
        "without one is that of the public model, which is zero everywhere at first: a release "
        "that makes no update has said nothing at all."
    ]
    idle = rows[rows.updates == 0]
    if len(idle):
        found = [
            f"“{name}” at {share(len(own), len(study.epsilons), 'value')} of ε"
            for name, own in idle.groupby("release", sort=False)
        ]
        words.append(f"With {count(study.sizes[-1], 'row')} no update is made by {listing(found)}.")
    out = rows[rows.answered < asked]
    if len(out):
        found = []
        for name, own in out.groupby("release", sort=False):
            after = [
                f"{format_number(row.answered)} at {equals('ε', row.epsilon)}" for row in _of(own)
            ]
            found.append(f"“{name}” after {listing(after)}")
        words.append(
            f"Updates run out before all {asked:,} questions are answered: "
            f"{'; '.join(found)} (means)."
        )
    return (*words, *_worse_words(result, out))


def _worse_words(result: ReleaseComparisonResult, out: pd.DataFrame) -> list[str]:
    """Say where more epsilon makes labels worse, because updates run out sooner."""
    parts = []
    for name, rows in out.groupby("release", sort=False):
        own = select(result.points, size=rows["size"].iloc[0], release=name, refused="")
        best, last = own.nlargest(1, "accuracy").iloc[0], rows.iloc[-1]
        if best.epsilon < last.epsilon and (
            best.accuracy - last.accuracy > result.problem.study.useful_loss
        ):
            parts.append(
                f"“{name}” is right on {format_percent(best.accuracy)} at "
                f"{equals('ε', best.epsilon)} and on {format_percent(last.accuracy)} at "
                f"{equals('ε', last.epsilon)}"
            )
    if not parts:
        return []
    return [
        f"More ε is not always better: {'; '.join(parts)}. The threshold shrinks with the noise, "
        "so that more disagreements are found worth an update, and the few that are allowed are "
        "gone sooner."
    ]


# -------------------------------------------------------------------------------------- promises


def promises(problem: ReleaseComparisonProblem) -> tuple[str, ...]:
    """Say what each kind of release promises every private row."""
    by_kind: dict[str, list[str]] = {}
    for release in problem.releases:
        by_kind.setdefault(release.kind, []).append(release.label)
    asked = f"{questions(problem):,}"
    found = []
    for kind, labels in by_kind.items():
        delta = 0.0 if kind == LINEAR else problem.study.delta
        terms = f"ε with {equals('δ', delta)}"
        covered = _PROMISES[kind].format(questions=asked)
        found.append(f"{quoted(labels)}: {terms} for {covered}.")
    return tuple(found)
