"""What is to be read off a comparison of releases: who is of use, useless, or not told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.claims import power_fit
from convexmarket.lab.kinds.release_comparison.problem import CirclesData, ReleaseComparisonProblem
from convexmarket.lab.problem.rows import load_rows
from convexmarket.lab.report.parts import select
from convexmarket.lab.result import Result

__all__ = [
    "accounting_ratios",
    "at_the_end",
    "bounded",
    "exponents",
    "linear_against_kernel",
    "main_epsilon",
    "majority",
    "more_is_worse",
    "process_against_others",
    "questions",
    "without_noise",
]

LINEAR = "objective-perturbation"
KEY = ["size", "epsilon"]
_ROUNDING = 1e-12
#: Of these, what theory bounds is the mean error; of others the largest.
_MEAN_IS_BOUNDED = "semi-interactive"


def main_epsilon(problem: ReleaseComparisonProblem) -> float:
    """Return the epsilon that most is said of: the middle one."""
    epsilons = problem.study.epsilons
    return epsilons[(len(epsilons) - 1) // 2]


def questions(problem: ReleaseComparisonProblem) -> int:
    """Return how many test rows there are: every release is asked for all of them."""
    data = problem.data
    return data.n_test if isinstance(data, CirclesData) else load_rows(data).y_test.size


def majority(problem: ReleaseComparisonProblem) -> float:
    """Return the accuracy on test rows of always predicting the more common label."""
    if isinstance(problem.data, CirclesData):
        return -(-problem.data.n_test // 2) / problem.data.n_test  # half of them on either circle
    labels = load_rows(problem.data).y_test
    return float(max(np.mean(labels > 0), np.mean(labels < 0)))


def without_noise(
    result: Result[ReleaseComparisonProblem], size: int, name: str = "accuracy"
) -> float:
    """Return the mean accuracy of the model without noise, at one size."""
    return float(select(result.tables["models"], size=size)[name].mean())


def accounting_ratios(result: Result[ReleaseComparisonProblem]) -> pd.DataFrame:
    """Return by how much the paper's accounting enlarges noise, for releases otherwise the same.

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
        both = select(result.tables["points"], release=paper)[[*key, *columns]].merge(
            select(result.tables["points"], release=tight)[[*key, *columns]],
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


def at_the_end(result: Result[ReleaseComparisonProblem]) -> pd.DataFrame:
    """Return the points at the largest size and the main epsilon that were not refused.

    Each is in one ``group``: "near", which loses no more than is of use; "useless", no better than
    always the commoner label: its mean accuracy is no larger, or no value in its interval is larger
    by what counts as a loss; "vague", better, but with an interval that reaches below; or "far".
    ``n_measured`` is the size from which on it is near.
    """
    study, commoner = result.problem.study, majority(result.problem)
    points = select(
        result.tables["points"],
        size=study.sizes[-1],
        epsilon=main_epsilon(result.problem),
        refused="",
    )
    near = points.lost <= study.useful_loss
    useless = points.accuracy <= commoner + _ROUNDING
    useless |= points.accuracy_high < commoner + study.useful_loss
    vague = points.accuracy_low <= commoner + _ROUNDING
    group = np.select([near, useless, vague], ["near", "useless", "vague"], "far")
    found = points.assign(group=group)
    return found.merge(result.tables["useful"][["release", "epsilon", "n_measured"]], how="left")


def _labels(result: Result[ReleaseComparisonProblem], kind: str) -> list[str]:
    return [release.label for release in result.problem.releases if release.kind == kind]


def _kernel_points(result: Result[ReleaseComparisonProblem]) -> pd.DataFrame:
    """Return the points of the releases of the kernel model that were not refused."""
    linear = result.tables["points"].release.isin(_labels(result, LINEAR))
    return result.tables["points"][~linear & (result.tables["points"].refused == "")]


def process_against_others(result: Result[ReleaseComparisonProblem]) -> pd.DataFrame:
    """Return the error of the release of the function beside the least of the others of the model.

    Returns
    -------
    DataFrame
        One row per size and epsilon where both are known: release, error, best (of the others),
        least (its error).
    """
    points = _kernel_points(result)
    points = points[np.isfinite(points.error)]
    names = _labels(result, "function")
    own = points[points.release == names[0]] if names else points.iloc[:0]
    others = points[~points.release.isin(names)]
    least = others.loc[others.groupby(KEY).error.idxmin()]
    least = least.rename(columns={"release": "best", "error": "least"})
    return own[[*KEY, "release", "error"]].merge(least[[*KEY, "best", "least"]], on=KEY)


def linear_against_kernel(result: Result[ReleaseComparisonProblem]) -> pd.DataFrame:
    """Return the best release of the kernel model beside the best linear one, by accuracy.

    Returns
    -------
    DataFrame
        One row per size and epsilon where both are known: release, accuracy, accuracy_linear.
    """
    linear = select(result.tables["points"], refused="")
    linear = linear[linear.release.isin(_labels(result, LINEAR))]
    best, line = (
        points.loc[points.groupby(KEY).accuracy.idxmax()]
        for points in (_kernel_points(result), linear)
    )
    return best.merge(line, on=KEY, suffixes=("", "_linear"))


def more_is_worse(
    result: Result[ReleaseComparisonProblem], out: pd.DataFrame
) -> list[dict[str, Any]]:
    """Return where more epsilon makes labels worse, of points at which updates ran out."""
    found = []
    for name, rows in out.groupby("release", sort=False):
        own = select(result.tables["points"], size=rows["size"].iloc[0], release=name, refused="")
        best, last = own.nlargest(1, "accuracy").iloc[0], rows.iloc[-1]
        worse = best.accuracy - last.accuracy > result.problem.study.useful_loss
        if best.epsilon < last.epsilon and worse:
            found.append({"best": best.to_dict(), "last": last.to_dict()})
    return found


def bounded(result: Result[ReleaseComparisonProblem]) -> pd.DataFrame:
    """Return the points with a bound, and what was measured of what is bounded."""
    mean = result.tables["points"].release.isin(_labels(result, _MEAN_IS_BOUNDED))
    points = result.tables["points"].assign(
        measured=result.tables["points"].error.where(mean, result.tables["points"].worst)
    )
    return points[np.isfinite(points.measured) & np.isfinite(points.bound)]


def exponents(rows: pd.DataFrame) -> pd.DataFrame:
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
