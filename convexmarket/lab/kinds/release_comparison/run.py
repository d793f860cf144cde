"""Releases of a kernel model's predictions, side by side (K).

For every size some data sets are drawn and a model fitted to each; every release is then made from
the same models, with every epsilon, as often as the study says, and answers the test rows in order.
What it loses against the model without noise is measured, and set beside what theory promises.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from convexmarket.errors import ParameterError
from convexmarket.lab.claims import mean_interval
from convexmarket.lab.kinds.release_comparison.draws import Rows, make_releases, rows_to_test
from convexmarket.lab.kinds.release_comparison.problem import (
    CirclesData,
    InteractiveReleaseTable,
    NonInteractiveReleaseTable,
    ReleaseComparisonProblem,
    ReleaseTable,
    SemiInteractiveReleaseTable,
)
from convexmarket.lab.kinds.release_comparison.useful import (
    LARGEST_N,
    PublicModel,
    best_bound,
    measured_n,
    most_points,
    smallest_n,
)
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.release.non_interactive import MOST_BYTES
from convexmarket.release.semi_interactive import LARGEST as MOST_POINTS

__all__ = ["run_release_comparison"]

Floats = NDArray[np.float64]
#: Of one draw, averaged over draws.
MEASURED = ("error", "worst", "updates", "answered")
#: Of one release of one model, the same in all draws.
STATED = ("scale", "bound")

CAVEATS = (
    "Every row has the same weight and the same guarantee: epsilon, with the study's delta; under "
    "objective perturbation delta is 0. A guarantee is of one release; who made all that are "
    "compared here would lose the sum.",
    "Intervals are Student's over fits and draws. The draws of one fit share its rows, and all "
    "share the test rows, so that intervals are too narrow for other test rows.",
    "A loss of accuracy is measured against the kernel model without noise, also for the linear "
    "model of objective perturbation.",
)
EXHAUSTED = (
    "Once the updates of an interactive release are used, its public model answers the remaining "
    "test rows. The bound on its error does not cover these, and they are left out of its largest "
    "error; the mean error and the accuracy are of all."
)
OWN_THRESHOLD = (
    "The guarantee of an interactive release holds with any threshold. With one below theory's, "
    "nothing promises that updates last, so theory names no number of rows for it."
)
MANY_POINTS = (
    "Theory's number of rows for a semi-interactive release goes with the best number of public "
    f"points, of those there are and of the {MOST_POINTS:,} at most that a release takes."
)
LARGE_NET = (
    "Theory's number of rows for a non-interactive release goes with the best net and number of "
    f"rounds that {1e-9 * MOST_BYTES:g} GB hold; a finer net or more rounds would be refused."
)
OF_ONE_SET = (
    "Training rows of a size are drawn from the same data, without repeats. With all of them there "
    "is one model, and the interval tells of the noise only."
)


def run_release_comparison(
    problem: ReleaseComparisonProblem, progress: Progress | None = None
) -> Result[ReleaseComparisonProblem]:
    """Make every release from the same models, and compare what they answer.

    Parameters
    ----------
    problem : ReleaseComparisonProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        The same for the same problem, whatever the number of jobs; seconds apart. A release's rows
        do not depend on which others are listed. Its tables:

        models
            One row per size and fit: accuracy (without noise), linear_accuracy (without noise, of
            the first objective perturbation's model; NaN if there is none), sensitivity (of a
            prediction to one row), norm_bound, norm, typical (median size of a prediction at test
            rows), rank, prediction_error, seconds.
        draws
            One row per size, epsilon, release, fit and draw, unless refused: accuracy, error (mean
            distance from the model's predictions at test rows; NaN of objective perturbation),
            worst (the largest, of an interactive release at rows it answered before updates ran
            out; the bound covers no others), updates (NaN unless interactive), answered (test rows
            before updates ran out, or all), seconds.
        points
            One row per size, epsilon and release: the means of these; accuracy_low and
            accuracy_high (95% interval over fits and draws; NaN of one); scale (of the noise) and
            bound (theory's on ``worst``, of "semi-interactive" on ``error``; NaN of objective
            perturbation), means over fits; lost (accuracy without noise less accuracy); refused
            (the error's text, or nothing; all numbers are NaN then).
        updates
            One row per interactive release, epsilon and number of queries, at the largest size:
            updates (mean over fits and draws), low, high (least and most).
        useful
            One row per epsilon and release: n_bound (from how many rows on theory's bound is at
            most ``useful_error``, within a thousandth, with the best numbers of updates, points and
            rounds that this toolkit takes; NaN if more than 1e12 rows are needed, or theory says
            nothing), least (theory's bound at 1e12 rows; NaN if theory says nothing), n_measured
            (the size of the study from which on ``lost`` is at most ``useful_loss``; NaN if none).

    Raises
    ------
    SolverError
        If a model cannot be fitted to the tolerance.
    """
    stages, study = Stages(progress), problem.study
    places = [(size, fit) for size in study.sizes for fit in range(study.fits)]
    # The largest first, so that no job is left with them at the end.
    found = stages.parallel(
        "releases",
        problem.run.workers,
        (delayed(make_releases)(problem, *at) for at in places[::-1]),
    )[::-1]
    models = pd.DataFrame([each.model for each in found])
    draws = _ordered(problem, [row for each in found for row in each.draws], DRAWS)
    stated = pd.DataFrame([row for each in found for row in each.stated])
    points = _points(problem, models, draws, stated)
    return Result(
        problem=problem,
        tables={
            "models": models,
            "draws": draws,
            "points": points,
            "updates": _updates(problem, [row for each in found for row in each.updates]),
            "useful": _useful(problem, found[0].public, points, stages),
        },
        caveats=_caveats(problem),
        timings=stages.timings(),
        provenance=provenance_of(problem),
    )


# ---------------------------------------------------------------------------------- what is found

KEY = ["size", "epsilon", "release"]
DRAWS = [*KEY, "fit", "draw", "accuracy", *MEASURED, "seconds"]


def _ordered(problem: ReleaseComparisonProblem, rows: Rows, columns: list[str]) -> pd.DataFrame:
    """Return rows in the order of sizes, epsilons, and of the releases in the file."""
    place = {release.label: place for place, release in enumerate(problem.releases)}
    rows = sorted(rows, key=lambda row: (row["size"], row["epsilon"], place[row["release"]]))
    return pd.DataFrame(rows, columns=columns)


def _keys(problem: ReleaseComparisonProblem) -> Iterator[tuple[int, float, str]]:
    for size in problem.study.sizes:
        for epsilon in problem.study.epsilons:
            for release in problem.releases:
                yield size, epsilon, release.label


def _points(
    problem: ReleaseComparisonProblem,
    models: pd.DataFrame,
    draws: pd.DataFrame,
    stated: pd.DataFrame,
) -> pd.DataFrame:
    """Average over fits and draws; numbers of what was refused, in any fit, are missing."""
    without_noise = models.groupby("size").accuracy.mean()
    measured, said = dict(list(draws.groupby(KEY))), dict(list(stated.groupby(KEY)))
    nothing = draws.iloc[:0]
    table = []
    for key in _keys(problem):
        refused = next((text for text in said[key].refused if text), "")
        rows = nothing if refused else measured[key]
        accuracy = mean_interval(rows.accuracy, "accuracy")
        row = dict(zip(KEY, key, strict=True)) | accuracy
        row |= {name: float(rows[name].mean()) for name in MEASURED}
        row |= {name: math.nan if refused else float(said[key][name].mean()) for name in STATED}
        lost = float(without_noise[key[0]]) - accuracy["accuracy"]
        ends = {"lost": lost, "refused": refused, "seconds": float(rows.seconds.mean())}
        table.append({**row, **ends})
    return pd.DataFrame(table)


def _updates(problem: ReleaseComparisonProblem, rows: Rows) -> pd.DataFrame:
    """Average the updates after so many questions."""
    table = pd.DataFrame(rows, columns=["release", "epsilon", "queries", "updates"])
    grouped = table.groupby(["release", "epsilon", "queries"], sort=False).updates
    counted = grouped.agg(updates="mean", low="min", high="max").reset_index()
    place = {release.label: place for place, release in enumerate(problem.releases)}
    counted = counted.assign(place=counted.release.map(place))
    counted = counted.sort_values(["place", "epsilon", "queries"]).drop(columns="place")
    return counted.reset_index(drop=True)


def _useful(
    problem: ReleaseComparisonProblem, public: PublicModel, points: pd.DataFrame, stages: Stages
) -> pd.DataFrame:
    """Say from which n on releases are useful."""
    n_queries = len(rows_to_test(problem)[0])
    pairs = [
        (epsilon, release) for epsilon in problem.study.epsilons for release in problem.releases
    ]
    by_theory = stages.parallel(
        "theory",
        problem.run.workers,
        (
            delayed(_by_theory)(problem, public, release, epsilon, n_queries)
            for epsilon, release in pairs
        ),
    )
    table = []
    for (epsilon, release), theory in zip(pairs, by_theory, strict=True):
        rows = points[(points.epsilon == epsilon) & (points.release == release.label)]
        n_measured = measured_n(problem, rows)
        key = {"epsilon": epsilon, "release": release.label}
        table.append({**key, **theory, "n_measured": n_measured})
    return pd.DataFrame(table)


def _by_theory(
    problem: ReleaseComparisonProblem,
    public: PublicModel,
    release: ReleaseTable,
    epsilon: float,
    n_queries: int,
) -> dict[str, float]:
    study, points = problem.study, most_points(problem)
    try:
        bound = best_bound(release, public, study, epsilon, n_queries, points)
        return {"n_bound": smallest_n(bound, study.useful_error), "least": bound(LARGEST_N)}
    except ParameterError:  # no noise gives this epsilon
        return {"n_bound": math.nan, "least": math.nan}


def _caveats(problem: ReleaseComparisonProblem) -> tuple[str, ...]:
    interactive = [each for each in problem.releases if isinstance(each, InteractiveReleaseTable)]
    more = {
        EXHAUSTED: bool(interactive),
        OWN_THRESHOLD: any(each.threshold is not None for each in interactive),
        MANY_POINTS: any(isinstance(r, SemiInteractiveReleaseTable) for r in problem.releases),
        LARGE_NET: any(isinstance(r, NonInteractiveReleaseTable) for r in problem.releases),
        OF_ONE_SET: not isinstance(problem.data, CirclesData),
    }
    return (*CAVEATS, *(caveat for caveat, holds in more.items() if holds))
