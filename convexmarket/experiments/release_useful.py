"""From how many rows on a release is useful: by theory, and by what was measured.

Theory needs no rows. What a bound rests on (the change of a prediction when a row is replaced, the
norms of the model and of features) follows from the problem and n alone, so that n is what a
bisection looks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from convexmarket.errors import NotSupportedError
from convexmarket.learners import Kernel, KernelERM
from convexmarket.learners.kernel_erm import norm_bound
from convexmarket.learners.losses import loss_named
from convexmarket.problems.release_comparison import (
    FunctionReleaseTable,
    InteractiveReleaseTable,
    NonInteractiveReleaseTable,
    ReleaseComparisonProblem,
    ReleaseStudyTable,
    ReleaseTable,
    SemiInteractiveReleaseTable,
)
from convexmarket.release import (
    function_error_bound,
    interactive_error_bound,
    net_size,
    non_interactive_error_bound,
    semi_interactive_error_bound,
    suggest_rounds,
    suggest_test_size,
    suggest_updates,
)

__all__ = ["LARGEST_N", "MOST_POINTS", "PublicModel", "best_bound", "measured_n", "smallest_n"]

#: Where the search for a sufficient number of rows ends.
LARGEST_N = 10**12
#: Public points that theory may ask for.
MOST_POINTS = 1_000_000
#: Share of the useful error that may lie between points of a net; their number counts by its
#: logarithm only.
BETWEEN = 0.05


@dataclass(frozen=True)
class PublicModel:
    """What is known of a model before there are rows.

    Parameters
    ----------
    kernel : Kernel
    n_features : int
    data_norm : float
        Radius of the ball that holds the rows.
    change : float
        What replacing one row can change in a prediction, times the number of rows.
    norm_limit : float
        Bound on the norm of an exact minimiser.
    tolerance : float
        Error of a fit, in such changes.
    """

    kernel: Kernel
    n_features: int
    data_norm: float
    change: float
    norm_limit: float
    tolerance: float

    @classmethod
    def of(cls, erm: KernelERM) -> Self:
        """Return what a fitted model with equal weights says about others."""
        loss, kernel = loss_named(erm.loss, erm.huber_threshold), erm.kernel_
        change = 2.0 * loss.lipschitz * kernel.feature_bound**2 / erm.regularization
        limit = norm_bound(loss, kernel, erm.regularization)
        radius = 1.0 if erm.data_norm is None else float(erm.data_norm)
        return cls(kernel, erm.n_features_in_, radius, change, limit, erm.tolerance)

    def sensitivity(self, n_rows: int) -> float:
        """Return what a row can change in a released prediction, the fits' errors included."""
        return self.change / n_rows * (1.0 + 2.0 * self.tolerance)

    def norm_bound(self, n_rows: int) -> float:
        """Return the bound on the norm of a fitted model."""
        return self.norm_limit + self.tolerance * self.change / n_rows / self.kernel.feature_bound


def best_bound(
    release: ReleaseTable,
    public: PublicModel,
    study: ReleaseStudyTable,
    epsilon: float,
    n_queries: int,
    n_rows: int,
) -> float:
    """Return the smallest error that theory can promise of a release.

    Parameters
    ----------
    release : ReleaseTable
        Its kind, noise and accounting; updates, points and rounds are theory's.
    public : PublicModel
    study : ReleaseStudyTable
    epsilon : float
    n_queries, n_rows : int
        Test rows, and rows of the model.

    Returns
    -------
    float
        NaN where theory promises nothing: of objective perturbation, of an interactive release
        with a threshold of its own, and where a net has too many points.
    """
    given = public.sensitivity(n_rows), epsilon, study.delta
    kinds: dict[str, Any] = {"failure": study.failure}
    if isinstance(release, FunctionReleaseTable):
        return function_error_bound(*given, n_queries=n_queries, **kinds)
    kinds["accounting"] = release.accounting
    ball: dict[str, Any] = {
        "norm_bound": public.norm_bound(n_rows),
        "feature_bound": public.kernel.feature_bound,
    }
    match release:
        case InteractiveReleaseTable(threshold=None):
            kinds["max_queries"] = n_queries
            updates = suggest_updates(*given, **(ball | kinds))
            return interactive_error_bound(*given, max_updates=updates, **kinds)
        case SemiInteractiveReleaseTable(noise=noise):
            kinds |= ball | {"noise": noise}
            # The process is no wider at more points, so that more are better.
            points = MOST_POINTS
            if noise == "laplace":
                points = suggest_test_size(*given, **kinds, largest=MOST_POINTS)
            return semi_interactive_error_bound(*given, **kinds, n_points=points).total
        case NonInteractiveReleaseTable():
            net = _net(release, public, study.useful_error)
            if net:
                kinds |= ball | net
                rounds = suggest_rounds(*given, **kinds)
                return non_interactive_error_bound(*given, **kinds, rounds=rounds)
    return math.nan


def _net(
    release: NonInteractiveReleaseTable, public: PublicModel, error: float
) -> dict[str, float]:
    """Return a net with which the error may be reached; nothing if none has few enough points."""
    try:
        lipschitz = public.kernel.feature_lipschitz
    except NotSupportedError:
        return {}
    steepest = 2.0 * public.norm_limit * lipschitz
    finest = release.net_radius or BETWEEN * error / steepest
    coarsest = release.net_radius or error / steepest
    for radius in np.geomspace(finest, coarsest, 50):
        size = net_size(public.n_features, public.data_norm, radius)
        if size <= release.max_net and steepest * radius <= error:
            return {"net_size": size, "net_radius": radius, "feature_lipschitz": lipschitz}
    return {}


def smallest_n(bound: Callable[[int], float], error: float) -> float:
    """Return the smallest number of rows with which a bound is no larger than an error.

    Parameters
    ----------
    bound : callable
        Of a number of rows, an error. Not increasing, but for the small steps of numbers of updates
        and rounds: then it is one of the smallest.
    error : float

    Returns
    -------
    float
        Exact up to a thousand, and within a thousandth above; NaN if :data:`LARGEST_N` rows are
        too few.
    """
    if not bound(LARGEST_N) <= error:
        return math.nan
    low, high = 0, LARGEST_N  # too few, enough
    while high - low > max(1, low // 1000):
        middle = max(low + 1, math.isqrt(max(low, 1) * high))
        low, high = (low, middle) if bound(middle) <= error else (middle, high)
    return float(high)


def measured_n(problem: ReleaseComparisonProblem, points: pd.DataFrame) -> float:
    """Return the size from which on a release loses little, at all larger ones too; or NaN.

    Parameters
    ----------
    problem : ReleaseComparisonProblem
    points : DataFrame
        Rows of one release and epsilon, by increasing size; ``lost`` is NaN where it was refused.
    """
    small = (points.lost <= problem.study.useful_loss).to_numpy()
    since = np.logical_and.accumulate(small[::-1])[::-1]
    return float(points["size"].to_numpy()[since].min()) if since.any() else math.nan
