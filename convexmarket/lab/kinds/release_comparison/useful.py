"""From how many rows on a release is useful: by theory, and by what was measured.

Theory needs no rows. What a bound rests on (the change of a prediction when a row is replaced, the
norms of the model and of features) follows from the problem and n alone, so that n is what a
bisection looks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.errors import NotSupportedError
from convexmarket.lab.kinds.release_comparison.problem import (
    CirclesData,
    FunctionReleaseTable,
    InteractiveReleaseTable,
    NonInteractiveReleaseTable,
    ReleaseComparisonProblem,
    ReleaseStudyTable,
    ReleaseTable,
    SemiInteractiveReleaseTable,
)
from convexmarket.lab.problem.rows import load_rows
from convexmarket.learners import Kernel, KernelERM
from convexmarket.learners.kernel_erm import norm_bound
from convexmarket.learners.losses import loss_of
from convexmarket.release import (
    ErrorBounds,
    net_size,
)
from convexmarket.release.noise import noise_scale
from convexmarket.release.non_interactive import MOST_BYTES
from convexmarket.release.scales import MOST_UPDATES, non_interactive_epsilon
from convexmarket.release.semi_interactive import LARGEST

__all__ = [
    "LARGEST_N",
    "Bound",
    "PublicModel",
    "best_bound",
    "measured_n",
    "most_points",
    "smallest_n",
]

#: Of a number of rows, the smallest error that theory can promise.
Bound: TypeAlias = Callable[[int], float]

#: Where the search for a sufficient number of rows ends.
LARGEST_N = 10**12
#: Rounds that theory may ask for, where memory allows them.
MOST_ROUNDS = 1_000_000
#: Numbers of points or rounds that are tried. Neighbours are so near that the best one's bound is
#: within a thousandth of the best there is.
TRIED = 200
#: Radii of nets that are tried.
RADII = 12
#: Share of the useful error that lies between points of the finest of them; their number counts by
#: its logarithm only.
BETWEEN = 0.05
#: Changes of a prediction so small and so large that one branch of a bound decides.
SMALL, LARGE = 1e-60, 1e60


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
    tol : float
        Error of a fit, in such changes.
    """

    kernel: Kernel
    n_features: int
    data_norm: float
    change: float
    norm_limit: float
    tol: float

    @classmethod
    def of(cls, erm: KernelERM) -> Self:
        """Return what a fitted model with equal weights says about others."""
        loss, kernel = loss_of(erm.loss, erm.huber_threshold), erm.kernel_
        change = 2.0 * loss.lipschitz * kernel.feature_bound**2 / erm.regularization
        limit = norm_bound(loss, kernel, erm.regularization)
        radius = 1.0 if erm.data_norm is None else float(erm.data_norm)
        return cls(kernel, erm.n_features_in_, radius, change, limit, erm.tol)

    def sensitivity(self, n_rows: int) -> float:
        """Return what a row can change in a released prediction, the fits' errors included."""
        return self.change / n_rows * (1.0 + 2.0 * self.tol)

    def norm_bound(self, n_rows: int) -> float:
        """Return the bound on the norm of a fitted model."""
        return self.norm_limit + self.tol * self.change / n_rows / self.kernel.feature_bound

    def reach(self, n_rows: int) -> float:
        """Return the bound on a prediction of a fitted model."""
        return self.kernel.feature_bound * self.norm_bound(n_rows)


def most_points(problem: ReleaseComparisonProblem) -> int:
    """Return how many public points there are, as far as a release takes them."""
    if isinstance(problem.data, CirclesData):
        return LARGEST
    return min(LARGEST, load_rows(problem.data).y_validation.size)


def best_bound(
    release: ReleaseTable,
    public: PublicModel,
    study: ReleaseStudyTable,
    epsilon: float,
    n_queries: int,
    n_points: int,
) -> Bound:
    """Return the smallest error that theory can promise of a release, over the number of rows.

    Noise is proportional to what a row can change, so that every number of updates, points or
    rounds is calibrated once, whatever the number of rows.

    Parameters
    ----------
    release : ReleaseTable
        Its kind, noise and accounting; updates, points and rounds are theory's, as far as this
        toolkit goes.
    public : PublicModel
    study : ReleaseStudyTable
    epsilon : float
    n_queries : int
        Test rows.
    n_points : int
        Public points that a release may use.

    Returns
    -------
    callable
        NaN where theory promises nothing: of objective perturbation, of an interactive release
        with a threshold of its own, and where every net is too large.

    Raises
    ------
    ParameterError
        If no noise gives this epsilon.
    """
    terms = epsilon, study.delta
    match release:
        case FunctionReleaseTable():
            beta = study.failure_probability
            one = ErrorBounds(1.0, *terms, failure_probability=beta).function(n_queries)
            return lambda n_rows: one * public.sensitivity(n_rows)
        case InteractiveReleaseTable(threshold=None):
            return _interactive(release, public, study, epsilon, n_queries)
        case SemiInteractiveReleaseTable():
            return _semi_interactive(release, public, study, epsilon, n_points)
        case NonInteractiveReleaseTable():
            return _non_interactive(release, public, study, epsilon)
    return lambda _: math.nan


def _interactive(
    release: InteractiveReleaseTable,
    public: PublicModel,
    study: ReleaseStudyTable,
    epsilon: float,
    n_queries: int,
) -> Bound:
    """Return the bound with the fewest updates that last."""
    kinds: dict[str, Any] = {
        "failure_probability": study.failure_probability,
        "accounting": release.accounting,
    }

    @cache
    def one(updates: int) -> float:
        bounds = ErrorBounds(1.0, epsilon, study.delta, **kinds)
        return bounds.interactive(n_queries, updates)

    def bound(n_rows: int) -> float:
        change, reach = public.sensitivity(n_rows), public.reach(n_rows)

        def lasting(updates: int) -> float:
            return 1.25 * reach * math.sqrt(2.0 / updates)  # the bound at such a threshold

        updates = _smallest(lambda count: change * one(count) > lasting(count), MOST_UPDATES)
        # With the most updates there may be, a wider threshold makes them last.
        return max(change * one(updates), lasting(updates))

    return bound


def _semi_interactive(
    release: SemiInteractiveReleaseTable,
    public: PublicModel,
    study: ReleaseStudyTable,
    epsilon: float,
    n_points: int,
) -> Bound:
    """Return the bound with the best number of points.

    At a norm bound C the error of the fit is the smaller of ``steep * change`` and
    ``slow * sqrt(C * change)``; what fresh points add is proportional to C.
    """
    # The process is no wider at more points, so that more are better.
    counts = np.array([n_points]) if release.noise == "process" else _counts(n_points)

    def of(change: float, count: int) -> tuple[float, float]:
        found = ErrorBounds(
            change,
            epsilon,
            study.delta,
            feature_bound=public.kernel.feature_bound,
            failure_probability=study.failure_probability,
            accounting=release.accounting,
        ).semi_interactive(count, release.noise)
        return found.fit, found.generalization

    small = np.array([of(SMALL, int(count)) for count in counts])
    steep, apart = small[:, 0] / SMALL, small[:, 1]
    slow = np.full(len(counts), np.inf)
    if release.noise == "laplace":
        slow = np.array([of(LARGE, int(count))[0] for count in counts]) / math.sqrt(LARGE)

    def bound(n_rows: int) -> float:
        change, norm = public.sensitivity(n_rows), public.norm_bound(n_rows)
        fit = np.minimum(steep * change, slow * math.sqrt(norm * change))
        return float(np.min(fit + norm * apart))

    return bound


def _non_interactive(
    release: NonInteractiveReleaseTable,
    public: PublicModel,
    study: ReleaseStudyTable,
    epsilon: float,
) -> Bound:
    """Return the bound with the best net and number of rounds that memory holds."""
    calibrations: dict[int, float] = {}
    nets = []  # the models' disagreement between points, their number, and numbers of rounds
    for between, size in _nets(release, public, study.useful_error):
        most = min(MOST_ROUNDS, int(MOST_BYTES / (8.0 * size)))
        counts = [*(int(count) for count in _counts(MOST_ROUNDS) if count < most), most]
        nets.append((between, size, counts))
        calibrations |= dict.fromkeys(counts, 0.0)
    for rounds in calibrations:
        epsilon_of = non_interactive_epsilon(rounds, study.delta, release.accounting)
        calibrations[rounds] = noise_scale(1.0, epsilon, epsilon_of)

    def bound(n_rows: int) -> float:
        change, norm = public.sensitivity(n_rows), public.norm_bound(n_rows)
        ends = public.reach(n_rows), 1.0, study.failure_probability, release.accounting
        bounds = ErrorBounds(change, epsilon, study.delta, *ends)
        errors = (
            bounds.on_net(change * calibrations[rounds], rounds, size, norm * between)
            for between, size, counts in nets
            for rounds in counts
        )
        return min(errors, default=math.nan)

    return bound


def _nets(
    release: NonInteractiveReleaseTable, public: PublicModel, error: float
) -> Iterator[tuple[float, float]]:
    """Yield nets that are not too large: what is between points, per norm, and their number."""
    try:
        lipschitz = public.kernel.feature_lipschitz
    except NotSupportedError:
        return
    widest = error / (2.0 * public.norm_limit * lipschitz)
    radii = np.geomspace(BETWEEN * widest, widest, RADII)
    for radius in [release.net_radius] if release.net_radius else radii:
        size = net_size(public.n_features, public.data_norm, radius)
        if size <= release.max_net and 8.0 * size <= MOST_BYTES:
            yield 2.0 * lipschitz * float(radius), size


def _counts(most: int) -> NDArray[np.int_]:
    return np.unique(np.geomspace(1, most, TRIED).round().astype(int))


def _smallest(enough: Callable[[int], bool], largest: int) -> int:
    """Return the smallest number that is enough, if larger ones are, or the largest.

    Exact up to a thousand, and within a thousandth above.
    """
    low, high = 0, largest  # too few, enough
    while high - low > max(1, low // 1000):
        middle = max(low + 1, math.isqrt(max(low, 1) * high))
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def smallest_n(bound: Bound, error: float) -> float:
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
    return float(_smallest(lambda n_rows: bound(n_rows) <= error, LARGEST_N))


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
