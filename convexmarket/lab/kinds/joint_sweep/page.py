"""What the page of a joint problem along a sweep shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from convexmarket.lab.claims import CONFIDENCE
from convexmarket.lab.kinds.joint_sweep.problem import JointSweepProblem
from convexmarket.lab.report.claims import JOINT_WARNING
from convexmarket.lab.report.figures import WIDE
from convexmarket.lab.report.marks import Curve
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.words import (
    format_number,
    format_percent,
    format_value,
    listing,
)
from convexmarket.lab.result import Result

__all__ = ["joint_sweep_report"]

#: What each measure is, in words.
WORDS = {
    "objective": "objective",
    "eta": "η",
    "n_bought": "sellers bought from",
    "weight_variance": "variance of the weights",
    "two_step_eta": "η, chosen without the data",
    "two_step_weight_variance": "variance of the weights, chosen without the data",
    "expected_payments": "expected payments",
    "train_error": "training error",
    "test_error": "test error",
    "noiseless_train_error": "training error without noise",
    "noiseless_test_error": "test error without noise",
    "empirical_loss": "weighted loss",
    "mean_loss": "unweighted loss",
    "residual": "residual",
}
PURCHASE = [
    "objective",
    "eta",
    "two_step_eta",
    "n_bought",
    "weight_variance",
    "two_step_weight_variance",
]
#: In a sentence, where it reads otherwise.
TOLD = {
    "n_bought": "number of sellers bought from",
    "expected_payments": "sum of expected payments",
}
MODEL = ["train_error", "test_error", "noiseless_test_error", "empirical_loss", "mean_loss"]
#: Which figure shows a measure.
SHOWN = {"errors": MODEL[:3], "losses": MODEL[3:], "purchase": list(WORDS)}
JOINT, BLIND = "joint problem", "chosen without looking at the data"
BARS = "Error bars: 95% interval of the mean over draws."


def joint_sweep_report(result: Result[JointSweepProblem]) -> Report:
    """Describe a joint problem along a sweep."""
    sweep, points, draws = result.problem.sweep, result.tables["points"], result.tables["draws"]
    solved, failed = draws[draws.message == ""], draws[draws.message != ""]
    solved = solved.astype({"binding": str})
    free = solved[~solved.point.map(points.set_index("point").eta_fixed).astype(bool)]
    decided = free[free.binding != ""]
    ranged = any(point.constraints.eta_range is not None for point in sweep.points)
    facts = [
        ("points of the sweep", f"{len(points)}"),
        ("draws at each point", f"{sweep.draws}"),
        ("joint problems solved", f"{len(solved)} of {len(draws)}"),
    ]
    if ranged and len(free):
        facts.append(("η decided by its range", f"{len(decided)} of {len(free)}"))
    elif ranged:
        facts.append(("η", "fixed at each point"))
    if result.claims:
        good = sum(claim.verdict == "reproduced" for claim in result.claims)
        facts.append(("claims reproduced", f"{good} of {len(result.claims)}"))
    known = points[points.solved > 0]
    # What the first claim is about comes first.
    claimed = [
        claim.measure for claim in result.problem.claims if known[claim.measure].notna().all()
    ]
    told = list(dict.fromkeys([*claimed[:1], "test_error", "train_error", "empirical_loss"]))
    return page(
        "convexmarket.lab.kinds.joint_sweep",
        result,
        facts=facts,
        tables=_tables(result, failed, free if ranged else free[:0]),
        figures=_figures(known, sweep.label) if len(known) else (),
        warning=JOINT_WARNING,
        known=[*known.x],
        courses=[_course(known, name) for name in told] if len(known) else [],
        shows=next(name for name, own in SHOWN.items() if told[0] in own),
        ranged=ranged,
        fixed=int(points.eta_fixed.sum()),
        free=len(free),
        decided=len(decided),
        ends=[
            (name, int(decided.binding.str.contains(end).sum()))
            for name, end in (("lower", "eta_low"), ("upper", "eta_high"))
        ],
        failed=failed,
        missing=[text for text in solved.two_step_message.unique() if text],
        statuses=solved.status.value_counts().items(),
        residual=solved.residual.abs().max(),
        seconds=float(solved.seconds.mean()),
    )


def _course(points: pd.DataFrame, name: str) -> dict[str, str]:
    """Say where a measure begins and ends, and where it is lowest between."""
    values = points[name].to_numpy()
    lowest = int(values.argmin())
    write = format_percent if name.endswith("_error") else format_number
    first, last, least = (write(values[place]) for place in (0, -1, lowest))
    return {
        "what": ("" if name.endswith("eta") else "the ") + TOLD.get(name, WORDS[name]),
        "first": first,
        "last": last,
        "least": least if least not in (first, last) else "",
        "where": format_number(points.x.iloc[lowest]),
    }


# ----------------------------------------------------------------------------------- figures


def _figures(points: pd.DataFrame, label: str) -> list[Figure]:
    wide = points.x.min() > 0 and points.x.max() > WIDE * points.x.min()
    over: dict[str, Any] = {
        "x": "x",
        "y": "mean",
        "low": "low",
        "high": "high",
        "x_label": f"{label} (log scale)" if wide else label,
        "log": "x" if wide else "",
    }
    errors = _curves(points, {name: {"what": WORDS[name]} for name in MODEL[:3]})
    errors[["mean", "low", "high"]] *= 100
    losses = _curves(points, {name: {"what": WORDS[name]} for name in MODEL[3:]})
    bought = _curves(
        points,
        {
            "eta": {"what": "η, total privacy bought", "by": JOINT},
            "two_step_eta": {"what": "η, total privacy bought", "by": BLIND},
            "n_bought": {"what": "Sellers bought from", "by": JOINT},
            "weight_variance": {"what": "Variance of the weights", "by": JOINT},
            "two_step_weight_variance": {"what": "Variance of the weights", "by": BLIND},
            "objective": {"what": "Objective", "by": JOINT},
        },
    )
    panels, eta = "Four", "η, "
    if np.allclose(points.eta, points.x):  # η is the axis, and both curves its diagonal
        bought, panels, eta = bought[~bought.what.str.startswith("η")], "Three", ""
    return [
        Figure(
            "errors",
            "Share of rows that the released model misclassifies, on the training and on the test "
            f"rows, and of test rows without its noise, over {label}. The distance of the last two "
            f"is what the noise costs. {BARS}",
            Curve(errors, hue="what", y_label="Misclassified (%)", **over),
            f"Curves of training and test error over {label}. The numbers are in the table points.",
        ),
        Figure(
            "losses",
            "Logistic loss of the released model on the training rows: weighted by what was "
            f"bought, as the objective counts it, and unweighted, over {label}. Where the first "
            f"is small and the second is not, the purchase chose rows that fit. {BARS}",
            Curve(losses, hue="what", y_label="Logistic loss", wide=True, **over),
            "Curves of the weighted and the unweighted loss. The numbers are in the table points.",
        ),
        Figure(
            "purchase",
            f"What is bought over {label}: {eta}sellers bought from, how much the weights differ, "
            "and the objective. Dashed: the mechanism that chooses weights and η without looking "
            f"at the data; where the lines part, looking changes the purchase. {BARS}",
            Curve(
                bought, hue="by", panels="what", free="y", columns=2, height=2.5, wide=True, **over
            ),
            f"{panels} panels: {eta}number of sellers, variance of the weights, objective. The "
            "numbers are in the table points.",
        ),
    ]


def _curves(points: pd.DataFrame, names: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Return the means of some measures with the 95% intervals of these, one below the other."""
    factor = student.ppf((1 + CONFIDENCE) / 2, np.maximum(points.solved.to_numpy() - 1, 1))
    curves = []
    for name, about in names.items():
        half = points[f"{name}_se"].fillna(0.0) * factor
        mean = points[name]
        curve = pd.DataFrame({"x": points.x, "mean": mean, "low": mean - half, "high": mean + half})
        if mean.notna().any():
            curves.append(curve.assign(**about))
    return pd.concat(curves, ignore_index=True)


# ------------------------------------------------------------------------------------ tables


def _tables(
    result: Result[JointSweepProblem], failed: pd.DataFrame, free: pd.DataFrame
) -> list[Table]:
    points, sweep = result.tables["points"], result.problem.sweep
    words = {"x": sweep.label, **WORDS}
    pays = any(point.pays for point in sweep.points)
    names = [*PURCHASE, *(["expected_payments"] if pays else []), *MODEL]
    names = [name for name in names if points[name].notna().any()]
    swept = list(sweep.values)
    means = points[["x", *swept, "solved", *names]]
    means = means.assign(**{key: [*map(_setting, means[key])] for key in swept})
    if len(swept) == 1 and sweep.axis == "value":
        means = means.drop(columns=swept)
    draws = result.tables["draws"].drop(columns=["point", *([] if pays else ["expected_payments"])])
    draws = draws.drop(columns=[name for name in draws if draws[name].isin(["", False]).all()])
    ends = pd.DataFrame(
        {
            "x": free.x,
            "solves": 1,
            "lower": free.binding.str.contains("eta_low"),
            "upper": free.binding.str.contains("eta_high"),
            "within": free.binding == "",
        }
    )
    tables = [
        Table(
            "points",
            "Means over draws at every point.",
            means,
            words | {"solved": "draws solved"},
            {name: ".3f" for name in names if name.endswith("_error")},
            rows_shown=60,
        ),
        Table(
            "standard_errors",
            "Standard errors of these means.",
            points[["x", *(f"{name}_se" for name in names)]],
            words | {f"{name}_se": WORDS[name] for name in names},
            rows_shown=60,
        ),
        Table(
            "draws",
            "Every point and draw.",
            draws.dropna(axis="columns", how="all"),
            words,
            rows_shown=10,
            complete=result.tables["draws"],
        ),
        Table(
            "eta_range",
            "How many solves ended at an end of the range of η, and how many within it.",
            ends.groupby("x", sort=False).sum().astype(int).reset_index(),
            words
            | {"lower": "at the lower end", "upper": "at the upper end"}
            | {"within": "within the range"},
            rows_shown=60,
        ),
        Table(
            "failures",
            "Joint problems without an answer.",
            failed[["x", "draw", "status", "message"]],
            words | {"message": "why"},
        ),
        Table(
            "certificates",
            "What is known of every joint allocation, and the objective of each start.",
            _certificates(result.certificates),
            words,
            {"objective": ".6g", "lower_bound": ".6g"},
            rows_shown=10,
        ),
    ]
    return [table for table in tables if len(table.frame)]


def _setting(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_value(item) for item in value)}]"
    return format_value(value)


def _certificates(certificates: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(certificates)
    if frame.empty:
        return frame
    frame["starts"] = [
        ", ".join(format_number(value, digits=8) for value in values) for values in frame.starts
    ]
    frame["binding"] = [listing(ends) or None for ends in frame.binding]
    return frame.drop(columns=["point", "seconds"]).dropna(axis="columns", how="all")
