"""The report of a joint problem along a sweep: what changes, what decided it, what is claimed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd

from convexmarket.lab.kinds.joint_sweep import figures
from convexmarket.lab.kinds.joint_sweep.figures import WORDS
from convexmarket.lab.kinds.joint_sweep.run import JointSweepResult
from convexmarket.lab.report.claims import JOINT_WARNING, claims_section, claims_words
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import reproduction_section, short
from convexmarket.lab.report.words import (
    count,
    format_number,
    format_percent,
    format_value,
    listing,
    share,
)

__all__ = ["joint_sweep_report"]

_SHOWN = [
    "objective",
    "eta",
    "two_step_eta",
    "n_bought",
    "weight_variance",
    "two_step_weight_variance",
]
_MODEL = ["train_error", "test_error", "noiseless_test_error", "empirical_loss", "mean_loss"]


def joint_sweep_report(result: JointSweepResult) -> Report:
    """Describe a joint problem along a sweep.

    Parameters
    ----------
    result : JointSweepResult

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    sections = [
        claims_section(result.claims) if result.claims else None,
        _model_section(result),
        _purchase_section(result),
        _eta_section(result),
        _failures_section(result),
        _optimality_section(result),
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


def _solved(result: JointSweepResult) -> pd.DataFrame:
    return result.draws[result.draws.message == ""]


def _free(result: JointSweepResult) -> pd.DataFrame:
    """Return the solves in which eta was to be chosen."""
    fixed = result.points.set_index("point").eta_fixed
    solved = _solved(result)
    return solved[~solved.point.map(fixed).astype(bool)]


def _decided(result: JointSweepResult) -> pd.DataFrame:
    free = _free(result)
    return free[free.binding != ""]


def _facts(result: JointSweepResult) -> tuple[Fact, ...]:
    facts = [
        Fact("points of the sweep", f"{len(result.points)}"),
        Fact("draws at each point", f"{result.problem.sweep.draws}"),
        Fact("joint problems solved", f"{len(_solved(result))} of {len(result.draws)}"),
    ]
    if _ranged(result):
        free = _free(result)
        if len(free):
            facts.append(Fact("η decided by its range", f"{len(_decided(result))} of {len(free)}"))
        else:
            facts.append(Fact("η", "fixed at each point"))
    if result.claims:
        good = sum(claim.verdict == "reproduced" for claim in result.claims)
        facts.append(Fact("claims reproduced", f"{good} of {len(result.claims)}"))
    return tuple(facts)


def _summary(result: JointSweepResult) -> tuple[str, ...]:
    paragraphs = [
        " ".join(result.problem.description.split()),
        _outcome_words(result),
        _eta_words(result),
        claims_words(result.claims) if result.claims else "",
        _failure_words(result),
    ]
    return tuple(text for text in paragraphs if text)


def _outcome_words(result: JointSweepResult) -> str:
    """Say where error and losses begin, are lowest, and end."""
    known = result.points[result.points.solved > 0]
    if len(known) < 2:
        return ""
    parts = [
        _course(known, "test_error", format_percent),
        _course(known, "train_error", format_percent),
        _course(known, "empirical_loss", short),
    ]
    first, last = (format_number(x) for x in (known.x.iloc[0], known.x.iloc[-1]))
    return (
        f"On the horizontal axis: {result.problem.sweep.label}, from {first} to {last}. On the way "
        f"{listing(parts)}; means over {count(result.problem.sweep.draws, 'draw')}."
    )


def _course(points: pd.DataFrame, name: str, write: Callable[[float], str]) -> str:
    values = points[name]
    words = f"the {WORDS[name]} goes from {write(values.iloc[0])} to {write(values.iloc[-1])}"
    lowest = int(values.to_numpy().argmin())
    if 0 < lowest < len(points) - 1:
        where = format_number(points.x.iloc[lowest])
        words += f", with {write(values.iloc[lowest])} at {where} the lowest"
    return words


def _ranged(result: JointSweepResult) -> bool:
    """Return whether eta has a range at any point."""
    return any(p.constraints.eta_range is not None for p in result.problem.sweep.points)


def _eta_words(result: JointSweepResult) -> str:
    """Say in how many solves the range of eta decided the answer."""
    if not _ranged(result):
        return "η has no range here: it is what the objective makes it."
    free, decided = _free(result), _decided(result)
    words = []
    if result.points.eta_fixed.any():
        where = "at every point" if result.points.eta_fixed.all() else "at some points"
        words.append(
            f"η was fixed on purpose {where}: its range has one value. Nothing here says that it "
            "is a good one."
        )
    if len(decided):
        ends = [
            f"the {end} end in {times}"
            for end, name in (("lower", "eta_low"), ("upper", "eta_high"))
            if (times := int(decided.binding.str.contains(name).sum()))
        ]
        words.append(
            f"In {share(len(decided), len(free), 'solve')} the range of η decided the answer: "
            f"{listing(ends)}. There η is the choice of whoever set the range, and another range "
            "would have given another answer."
        )
    elif len(free):
        words.append(f"The range of η decided the answer in none of {count(len(free), 'solve')}.")
    return " ".join(words)


def _failure_words(result: JointSweepResult) -> str:
    failed = result.draws[result.draws.message != ""]
    words = []
    if len(failed):
        words.append(
            f"{share(len(failed), len(result.draws), 'joint problem')} had no answer: "
            f"{'; '.join(failed.message.unique())}."
        )
    missing = [text for text in _solved(result).two_step_message.unique() if text]
    if missing:
        words.append(
            "Weights chosen without looking at the data are missing in places: "
            f"{'; '.join(missing)}."
        )
    return " ".join(words)


# ---------------------------------------------------------------- the sections


def _model_section(result: JointSweepResult) -> Section:
    label = result.problem.sweep.label
    drawn = [
        Figure(
            "errors",
            "Share of rows that the released model misclassifies, on the training and on the test "
            f"rows, and of test rows without its noise, over {label}. The distance of the last two "
            "is what the noise costs. Band: 95% interval of the mean over draws.",
            partial(figures.errors, result.points, label),
            f"Curves of training and test error over {label}. {_outcome_words(result)}",
        ),
        Figure(
            "losses",
            "Logistic loss of the released model on the training rows: weighted by what was "
            f"bought, as the objective counts it, and unweighted, over {label}. Where the first "
            "is small and the second is not, the purchase chose rows that fit. Band: 95% interval.",
            partial(figures.losses, result.points, label),
            "Curves of the weighted and the unweighted loss. The numbers are in the table points.",
        ),
    ]
    return Section(
        "The model",
        (
            "The released model is trained with noise for the weights and η that were chosen. The "
            "model without noise has the same weights: the distance between the two is what the "
            "noise costs, and the rest is what the choice of rows costs.",
        ),
        figures=tuple(drawn) if result.points.solved.any() else (),
        tables=_points_tables(result),
    )


def _purchase_section(result: JointSweepResult) -> Section:
    label = result.problem.sweep.label
    drawn = Figure(
        "purchase",
        f"What is bought over {label}: η, sellers bought from, how much the weights differ, and "
        "the objective. Dashed: the mechanism that chooses weights and η without "
        "looking at the data; where the lines part, looking changes the purchase. Band: 95% "
        "interval of the mean.",
        partial(figures.purchase, result.points, label),
        "Four panels: η, number of sellers, variance of the weights, objective. The numbers are "
        "in the table points.",
    )
    return Section(
        "The purchase",
        (
            "The joint problem prefers rows that its model fits, besides sellers that are cheap "
            "or that granted much. The mechanism of two steps sees prices and guarantees alone, so "
            "that equal sellers have equal weights.",
        ),
        figures=(drawn,) if result.points.solved.any() else (),
        tables=(
            Table(
                "draws",
                "Every point and draw.",
                _draws(result),
                {"x": label, **WORDS},
                rows_shown=10,
                complete=result.draws,
            ),
        ),
    )


def _points_tables(result: JointSweepResult) -> tuple[Table, Table]:
    """List the means, and their standard errors."""
    points, label = result.points, result.problem.sweep.label
    names = [*_SHOWN, *(["expected_payments"] if _pays(result) else []), *_MODEL]
    names = [name for name in names if points[name].notna().any()]
    settings = list(result.problem.sweep.values)
    frame = points[["x", *settings, "solved", *names]]
    for key in settings:
        frame = frame.assign(**{key: [_setting(value) for value in frame[key]]})
    if len(settings) == 1 and result.problem.sweep.axis == "value":
        frame = frame.drop(columns=settings)
    errors = points[["x", *(f"{name}_se" for name in names)]]
    return (
        Table(
            "points",
            "Means over draws at every point.",
            frame,
            {"x": label, "solved": "draws solved", **WORDS},
            {name: ".3f" for name in names if name.endswith("_error")},
            rows_shown=60,
        ),
        Table(
            "standard_errors",
            "Standard errors of these means.",
            errors,
            {"x": label, **{f"{name}_se": WORDS[name] for name in names}},
            rows_shown=60,
        ),
    )


def _setting(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_value(item) for item in value)}]"
    return format_value(value)


def _pays(result: JointSweepResult) -> bool:
    return any(point.pays for point in result.problem.sweep.points)


def _draws(result: JointSweepResult) -> pd.DataFrame:
    """Return the rows of all draws without what none of them has, or what nobody asks for."""
    frame = result.draws.drop(columns="point")
    empty = [name for name in frame if frame[name].isin(["", False]).all()]
    if not _pays(result):
        empty.append("expected_payments")
    return frame.drop(columns=empty).dropna(axis="columns", how="all")


def _eta_section(result: JointSweepResult) -> Section | None:
    if not _ranged(result) or _free(result).empty:
        return None
    free = _free(result)
    ends = pd.DataFrame(
        {
            "x": free.x,
            "solves": 1,
            "lower": free.binding.str.contains("eta_low"),
            "upper": free.binding.str.contains("eta_high"),
            "within": free.binding == "",
        }
    )
    table = ends.groupby("x", sort=False).sum().astype(int).reset_index()
    return Section(
        "What decided η",
        (_eta_words(result),),
        tables=(
            Table(
                "eta_range",
                "How many solves ended at an end of the range of η, and how many within it.",
                table,
                {
                    "x": result.problem.sweep.label,
                    "lower": "at the lower end",
                    "upper": "at the upper end",
                    "within": "within the range",
                },
                rows_shown=60,
            ),
        ),
    )


def _failures_section(result: JointSweepResult) -> Section | None:
    failed = result.draws[result.draws.message != ""]
    if failed.empty:
        return None
    table = Table(
        "failures",
        "Joint problems without an answer.",
        failed[["x", "draw", "status", "message"]],
        {"x": result.problem.sweep.label, "message": "why"},
    )
    prose = "They are left out of the means. A claim is checked on the draws without a gap."
    return Section("What has no answer", (prose,), tables=(table,))


def _optimality_section(result: JointSweepResult) -> Section:
    solved = _solved(result)
    if solved.empty:
        return Section("How good the answers are", ("There is no answer to judge.",))
    by_status = ", ".join(
        f"“{status}” {number:,}" for status, number in solved.status.value_counts().items()
    )
    certificates = pd.DataFrame(result.certificates)
    certificates["starts"] = [
        ", ".join(format_number(value, digits=8) for value in values)
        for values in certificates.starts
    ]
    certificates["binding"] = [listing(ends) or None for ends in certificates.binding]
    return Section(
        "How good the answers are",
        (
            f"By status: {by_status}. “global” is proven by a lower bound; “global for this eta” "
            "means that the problem is convex once η is given; “best of several starts” is the "
            f"best of {count(result.problem.joint.starts, 'descent')} and no proof. The residual "
            "is what the model alone, or weights and η alone, could still improve, relative to "
            f"the objective: at most {format_number(solved.residual.abs().max(), digits=2)}. A "
            f"joint problem took {format_number(float(solved.seconds.mean()), digits=2)} seconds "
            "on average.",
        ),
        tables=(
            Table(
                "certificates",
                "What is known of every joint allocation, and the objective of each start.",
                certificates.drop(columns=["point", "seconds"]).dropna(axis="columns", how="all"),
                {"x": result.problem.sweep.label, **WORDS},
                {"objective": ".6g", "lower_bound": ".6g"},
                rows_shown=10,
            ),
        ),
    )
