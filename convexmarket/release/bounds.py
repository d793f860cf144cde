r"""How far released predictions may be from the model's: the papers' theorems with their constants.

The theorems of Jain and Thakurta say :math:`O(\cdot)`. Whether a release is of use at some n is a
question about the constant, so here it is, for both ways of accounting; the derivations are in
docs/theory.md, section 12. Every function takes the change S of a prediction when one row is
replaced, the norm bound C of the model, and the bound :math:`R_\phi` on features, as numbers: they
answer "from which n on" before there are data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from convexmarket.arguments import check_choice, check_count, check_positives, check_share
from convexmarket.errors import ParameterError
from convexmarket.privacy.composition import Composition
from convexmarket.privacy.guarantee import check_delta
from convexmarket.release.noise import PROCESS_SLACK, noise_scale
from convexmarket.release.scales import (
    MOST_UPDATES,
    NoiseKind,
    function_epsilon,
    interactive_epsilon,
    non_interactive_epsilon,
    selection_factor,
    semi_interactive_epsilon,
)

__all__ = [
    "SemiInteractiveBound",
    "function_error_bound",
    "interactive_error_bound",
    "non_interactive_error_bound",
    "semi_interactive_error_bound",
    "suggest_rounds",
    "suggest_test_size",
    "suggest_updates",
]


@dataclass(frozen=True)
class SemiInteractiveBound:
    """Error of a predictor that was fitted to noisy predictions.

    Parameters
    ----------
    fit : float
        Mean absolute error at the points themselves.
    generalization : float
        What a fresh point of their distribution may add to it.
    """

    fit: float
    generalization: float

    @property
    def total(self) -> float:
        """Mean absolute error at a fresh point."""
        return self.fit + self.generalization


def interactive_error_bound(
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    max_queries: int,
    max_updates: int,
    failure_probability: float = 0.05,
    accounting: Composition = "tight",
) -> float:
    r"""Bound the error of every answer of an interactive release (K, Theorems 3 and 10).

    Parameters
    ----------
    sensitivity : float
        S, change of a prediction when one row is replaced. Positive.
    epsilon, delta : float
        Of the whole release.
    max_queries, max_updates : int
        T and B.
    failure_probability : float, default 0.05
        beta: the bound holds with probability ``1 - failure_probability``, as long as updates last.
    accounting : {"tight", "paper"}, default "tight"

    Returns
    -------
    float
        :math:`5s\log(2T/\beta)` with s the scale of the noise: the threshold and the noise that may
        hide behind it.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Examples
    --------
    >>> S = 2 / (0.1 * 100_000)  # logistic loss, rbf kernel, lambda = 0.1, n = 100,000
    >>> kinds = {"max_queries": 1000, "max_updates": 10}
    >>> round(interactive_error_bound(S, 1.0, 1e-6, **kinds), 3)
    0.339
    >>> round(interactive_error_bound(S, 1.0, 1e-6, **kinds, accounting="paper"), 1)
    101.9
    """
    threshold = _threshold(
        sensitivity, epsilon, delta, max_queries, max_updates, failure_probability, accounting
    )
    return 1.25 * threshold


def suggest_updates(
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    max_queries: int,
    max_norm: float,
    feature_bound: float = 1.0,
    failure_probability: float = 0.05,
    accounting: Composition = "tight",
) -> int:
    r"""Return the smallest B with which updates never run out (K, Theorem 3).

    Every update brings the public model nearer: the squared distance falls by
    :math:`\tau^2/(2R_\phi^2)` at least, and it was :math:`C^2` at most. So there are no more than
    :math:`2R_\phi^2C^2/\tau^2`, where the threshold :math:`\tau` grows with B.

    Parameters
    ----------
    sensitivity, epsilon, delta, max_queries, failure_probability, accounting
        As for :func:`interactive_error_bound`.
    max_norm : float
        C, public bound on the norm of the model.
    feature_bound : float, default 1.0
        R_phi.

    Returns
    -------
    int
        At least 1; with probability ``1 - failure_probability`` no
        :class:`UpdatesExhaustedError` is raised.

    Raises
    ------
    ParameterError
        If an argument is out of its range, or more updates are needed than are ever useful.

    Examples
    --------
    >>> suggest_updates(2e-4, 1.0, 1e-6, max_queries=1000, max_norm=2.6)
    55
    """
    check_positives(max_norm=max_norm, feature_bound=feature_bound)

    def enough(updates: int) -> bool:
        threshold = _threshold(
            sensitivity, epsilon, delta, max_queries, updates, failure_probability, accounting
        )
        return bool(np.sqrt(updates / 2.0) * threshold > feature_bound * max_norm)

    found = _smallest(enough, MOST_UPDATES)
    if found is None:
        raise ParameterError(
            f"epsilon = {epsilon:g} asks for more than {MOST_UPDATES:,} updates, where every "
            "answer is as good as exact; use a smaller epsilon"
        )
    return found


def semi_interactive_error_bound(
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    n_points: int,
    max_norm: float,
    feature_bound: float = 1.0,
    failure_probability: float = 0.05,
    accounting: Composition = "tight",
    noise: NoiseKind | None = None,
) -> SemiInteractiveBound:
    r"""Bound the error of a test-set release's predictor (K, Theorems 5 and 13).

    The loss of an L-Lipschitz loss is off by at most L times that.

    Parameters
    ----------
    sensitivity, epsilon, delta, accounting
        As for :func:`interactive_error_bound`.
    n_points : int
        T, points drawn from the distribution that fresh ones come from.
    max_norm : float
        C, public bound on the norm of the model, and of the fit.
    feature_bound : float, default 1.0
        R_phi.
    failure_probability : float, default 0.05
        Half of it for the noise and half for the draw of the points.
    noise : {"laplace", "process"}, optional
        As for :class:`~convexmarket.TestSetRelease`: by default a process where delta is positive.

    Returns
    -------
    SemiInteractiveBound
        fit: :math:`2\nu\log(2T/\beta)` with :math:`\nu` the scale (the paper's, where points are
        few), or :math:`2\sqrt{Cr/T}` (where they are many, so that their noises average) with
        :math:`r = R_\phi\nu(\ell + \sqrt{\ell^2+4T\ell})` and :math:`\ell = \log(4/\beta)`; for
        "process" :math:`2\nu R_\phi(1+\sqrt{2\log(2/\beta)})`. generalization:
        :math:`\frac{2CR_\phi}{\sqrt T}(1 + \sqrt{\log(2/\beta)/2})`.

    Notes
    -----
    The scale is that for points whose predictions move together; for given points
    :class:`~convexmarket.TestSetRelease` knows how far they do.

    Examples
    --------
    >>> from convexmarket.release import semi_interactive_error_bound
    >>> bound = semi_interactive_error_bound(0.001, 1.0, 1e-6, n_points=200, max_norm=1.0)
    >>> round(bound.fit, 3), round(bound.generalization, 3)
    (0.032, 0.333)
    """
    check_count("n_points", n_points)
    check_share("failure_probability", failure_probability)
    check_positives(max_norm=max_norm, feature_bound=feature_bound)
    if noise is None:
        noise = "laplace" if delta == 0 else "process"
    check_choice("noise", noise, NoiseKind)
    _check_terms(sensitivity, epsilon, delta, accounting, pure=noise == "laplace")
    if noise == "process":
        scale = noise_scale(sensitivity, epsilon, function_epsilon(delta), PROCESS_SLACK)
        fit = 2.0 * scale * (1.0 + np.sqrt(2.0 * np.log(2.0 / failure_probability)))
    else:
        calibration = semi_interactive_epsilon(n_points, float(n_points), delta, accounting)
        scale = noise_scale(sensitivity, epsilon, calibration)
        fit = 2.0 * scale * np.log(2.0 * n_points / failure_probability)
        log = np.log(4.0 / failure_probability)
        sum_of_noise = feature_bound * scale * (log + np.sqrt(log**2 + 4.0 * n_points * log))
        fit = min(fit, 2.0 * np.sqrt(max_norm * sum_of_noise / n_points))
    reach = 2.0 * max_norm * feature_bound / np.sqrt(n_points)
    return SemiInteractiveBound(
        float(fit), float(reach * (1.0 + np.sqrt(np.log(2.0 / failure_probability) / 2.0)))
    )


def suggest_test_size(
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    max_norm: float,
    feature_bound: float = 1.0,
    failure_probability: float = 0.05,
    accounting: Composition = "tight",
    noise: NoiseKind | None = None,
    largest: int = 1_000_000,
) -> int:
    """Return the number of points at which :func:`semi_interactive_error_bound` is smallest.

    Parameters
    ----------
    sensitivity, epsilon, delta, max_norm, feature_bound, failure_probability, accounting, noise
        As for :func:`semi_interactive_error_bound`.
    largest : int, default 1_000_000
        How many public points there are.

    Returns
    -------
    int
        Between 1 and ``largest``.

    Examples
    --------
    >>> from convexmarket.release import suggest_test_size
    >>> suggest_test_size(0.1, 1.0, 0.0, max_norm=1.0, largest=1000)
    17
    """
    check_count("largest", largest)

    def total(n_points: int) -> float:
        return semi_interactive_error_bound(
            sensitivity,
            epsilon,
            delta,
            n_points=n_points,
            max_norm=max_norm,
            feature_bound=feature_bound,
            failure_probability=failure_probability,
            accounting=accounting,
            noise=noise,
        ).total

    return _best_count(total, largest)


def non_interactive_error_bound(
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    rounds: int,
    net_size: float,
    net_radius: float,
    max_norm: float,
    feature_lipschitz: float,
    feature_bound: float = 1.0,
    failure_probability: float = 0.05,
    accounting: Composition = "tight",
) -> float:
    r"""Bound the error of a public release's predictor, everywhere in the ball (K, Theorem 8).

    Parameters
    ----------
    sensitivity, epsilon, delta, accounting
        As for :func:`interactive_error_bound`.
    rounds : int
        B.
    net_size : float
        N, how many points the net has.
    net_radius : float
        nu, how far a point of the ball may be from the net.
    max_norm : float
        C, public bound on the norm of the model.
    feature_lipschitz : float
        L_phi, how far features move apart per distance of points.
    feature_bound : float, default 1.0
        R_phi.
    failure_probability : float, default 0.05
        beta: the bound holds with probability ``1 - failure_probability``.

    Returns
    -------
    float
        :math:`g + 2CL_\phi\nu + \sqrt{x^2 + R_\phi^2C^2/M}`, with s the scale of the noise, M the
        number of models, B + 1, what the noise may be, :math:`x = s\log(2M/\beta)`, and what the
        selection may miss, :math:`g = s\log(2MN/\beta)` (under "paper" four times that). With the
        best B it falls as :math:`n^{-1/2}`; the printed :math:`n^{-2/3}` does not follow.

    Examples
    --------
    >>> from convexmarket.release import non_interactive_error_bound
    >>> bound = non_interactive_error_bound(
    ...     0.001, 1.0, 1e-6, rounds=10, net_size=100, net_radius=0.1,
    ...     max_norm=1.0, feature_lipschitz=1.0,
    ... )
    >>> round(bound, 3)
    0.731
    """
    check_count("rounds", rounds)
    check_share("failure_probability", failure_probability)
    check_positives(
        net_size=net_size,
        net_radius=net_radius,
        max_norm=max_norm,
        feature_lipschitz=feature_lipschitz,
        feature_bound=feature_bound,
    )
    _check_terms(sensitivity, epsilon, delta, accounting, pure=accounting == "tight")
    scale = noise_scale(sensitivity, epsilon, non_interactive_epsilon(rounds, delta, accounting))
    between = 2.0 * max_norm * feature_lipschitz * net_radius
    reach = feature_bound * max_norm
    return non_interactive_error(
        scale, rounds, net_size, between, reach, failure_probability, accounting
    )


def non_interactive_error(
    scale: float,
    rounds: int,
    net_size: float,
    between: float,
    reach: float,
    failure_probability: float,
    accounting: Composition,
) -> float:
    """Return the bound of :func:`non_interactive_error_bound` for a scale of the noise.

    Parameters
    ----------
    between : float
        How much more the models may disagree between points of the net.
    reach : float
        Largest prediction of the model.
    """
    n_models = rounds + 1
    log = np.log(2.0 * n_models / failure_probability)
    noise = scale * log
    missed = scale * (log + np.log(net_size)) / selection_factor(accounting)
    return float(missed + between + np.sqrt(noise**2 + reach**2 / n_models))


def suggest_rounds(
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    net_size: float,
    net_radius: float,
    max_norm: float,
    feature_lipschitz: float,
    feature_bound: float = 1.0,
    failure_probability: float = 0.05,
    accounting: Composition = "tight",
    largest: int = 1_000_000,
) -> int:
    """Return the number of rounds at which :func:`non_interactive_error_bound` is least.

    Parameters
    ----------
    sensitivity, epsilon, delta, net_size, net_radius, max_norm, feature_lipschitz, feature_bound
        As for :func:`non_interactive_error_bound`.
    failure_probability, accounting
        As there.
    largest : int
        The most rounds to think of.

    Returns
    -------
    int
        Between 1 and ``largest``.

    Examples
    --------
    >>> from convexmarket.release import suggest_rounds
    >>> suggest_rounds(
    ...     0.001, 1.0, 1e-6, net_size=100, net_radius=0.1, max_norm=1.0, feature_lipschitz=1.0
    ... )
    8
    """
    check_count("largest", largest)

    def bound(rounds: int) -> float:
        return non_interactive_error_bound(
            sensitivity,
            epsilon,
            delta,
            rounds=rounds,
            net_size=net_size,
            net_radius=net_radius,
            max_norm=max_norm,
            feature_lipschitz=feature_lipschitz,
            feature_bound=feature_bound,
            failure_probability=failure_probability,
            accounting=accounting,
        )

    return _best_count(bound, largest)


def function_error_bound(
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    n_queries: int,
    failure_probability: float = 0.05,
) -> float:
    r"""Bound the error of so many answers of a function release.

    Parameters
    ----------
    sensitivity, epsilon, delta
        As for :func:`interactive_error_bound`.
    n_queries : int
        T, chosen without looking at the answers.
    failure_probability : float, default 0.05

    Returns
    -------
    float
        :math:`s\sqrt{2\log(2T/\beta)}` with s the scale of the noise: Gaussian tails, and no
        factor that grows with T beside them.

    Examples
    --------
    >>> from convexmarket.release import function_error_bound
    >>> round(function_error_bound(0.01, 1.0, 1e-6, n_queries=100), 3)
    0.173
    """
    check_count("n_queries", n_queries)
    check_share("failure_probability", failure_probability)
    _check_terms(sensitivity, epsilon, delta, "tight", pure=False)
    scale = noise_scale(sensitivity, epsilon, function_epsilon(delta), PROCESS_SLACK)
    return float(scale * np.sqrt(2.0 * np.log(2.0 * n_queries / failure_probability)))


def _threshold(
    sensitivity: float,
    epsilon: float,
    delta: float,
    max_queries: int,
    max_updates: int,
    failure_probability: float,
    accounting: Composition,
) -> float:
    check_count("max_queries", max_queries)
    check_count("max_updates", max_updates)
    check_share("failure_probability", failure_probability)
    _check_terms(sensitivity, epsilon, delta, accounting, pure=False)
    scale = noise_scale(sensitivity, epsilon, interactive_epsilon(max_updates, delta, accounting))
    return float(4.0 * scale * np.log(2.0 * max_queries / failure_probability))


def _check_terms(
    sensitivity: float, epsilon: float, delta: float, accounting: Composition, pure: bool
) -> None:
    check_positives(sensitivity=sensitivity, epsilon=epsilon)
    check_delta(delta, positive=not pure)
    check_choice("accounting", accounting, Composition)


def _smallest(enough: Callable[[int], bool], largest: int) -> int | None:
    """Return the smallest count that is enough, if larger ones are; none up to the largest."""
    high = 1
    while not enough(high):
        high *= 2
        if high > largest:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _best_count(value: Callable[[int], float], largest: int) -> int:
    """Return the count of the smallest value: on a coarse grid, then on finer ones around it."""
    low, high = 1, largest
    while True:
        grid = np.unique(np.geomspace(low, high, 60).round().astype(int))
        values = [value(int(count)) for count in grid]
        best = int(np.argmin(values))
        if high - low < 60:
            return int(grid[best])
        low, high = int(grid[max(best - 1, 0)]), int(grid[min(best + 1, len(grid) - 1)])
