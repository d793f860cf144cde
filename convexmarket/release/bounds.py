r"""Compute bounds on the error of released predictions, with explicit constants.

Jain and Thakurta omit constants in their theorems. Section 12 of docs/theory.md derives the bounds
with constants. The bounds depend only on public numbers, so they can be computed before data are
collected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from convexmarket.checks import check_choice, check_count, check_positives, check_share
from convexmarket.errors import ParameterError
from convexmarket.privacy.composition import Composition
from convexmarket.privacy.guarantee import check_delta
from convexmarket.release.lattice_noise import LAPLACE_SLACK, PROCESS_SLACK, noise_scale
from convexmarket.release.scales import (
    MOST_UPDATES,
    Calibration,
    NoiseKind,
    function_epsilon,
    interactive_epsilon,
    non_interactive_epsilon,
    selection_factor,
    semi_interactive_epsilon,
)


class SemiInteractiveBound(NamedTuple):
    """Bounds on the mean absolute error at fitted points, and on its increase at a fresh point."""

    fit: float
    generalization: float

    @property
    def total(self) -> float:
        """Bound on the mean absolute error at a fresh point."""
        return self.fit + self.generalization


@dataclass(frozen=True)
class ErrorBounds:
    r"""Bounds on the errors of the releases of this package, computed from public numbers.

    Parameters
    ----------
    sensitivity : float
        Positive bound S on the change of a prediction when one row is replaced.
    epsilon, delta : float
        Guarantee of the whole release. Delta can be zero for Laplace noise at given points and for
        rounds on a net.
    max_norm : float, default 1.0
        Public bound C on the norms of the model and of a fit. The bound for interactive answers
        does not depend on C.
    feature_bound : float, default 1.0
        Bound R_phi on the norm of features.
    failure_probability : float, default 0.05
        Largest probability beta that the error exceeds a bound.
    accounting : {"tight", "paper"}, default "tight"

    Raises
    ------
    ParameterError
        If an argument is out of range. All methods can raise this error.

    Examples
    --------
    >>> S = 2 / (0.1 * 100_000)  # logistic loss, rbf kernel, lambda = 0.1, n = 100,000
    >>> bounds = ErrorBounds(S, 1.0, 1e-6, max_norm=2.6)
    >>> round(bounds.interactive(1000, 10), 3), bounds.suggest_updates(1000)
    (0.339, 55)
    >>> round(ErrorBounds(S, 1.0, 1e-6, accounting="paper").interactive(1000, 10), 1)
    101.9
    >>> bound = ErrorBounds(0.001, 1.0, 1e-6).semi_interactive(200)
    >>> round(bound.fit, 3), round(bound.generalization, 3)
    (0.032, 0.333)
    >>> ErrorBounds(0.1, 1.0, 0.0).suggest_test_size(1000)
    17
    >>> bounds, net = ErrorBounds(0.001, 1.0, 1e-6), (100, 0.1, 1.0)
    >>> round(bounds.non_interactive(10, *net), 3), bounds.suggest_rounds(*net)
    (0.731, 8)
    >>> round(ErrorBounds(0.01, 1.0, 1e-6).function(100), 3)
    0.173
    """

    sensitivity: float
    epsilon: float
    delta: float
    max_norm: float = 1.0
    feature_bound: float = 1.0
    failure_probability: float = 0.05
    accounting: Composition = "tight"

    def __post_init__(self) -> None:
        check_positives(sensitivity=self.sensitivity, epsilon=self.epsilon)
        check_positives(max_norm=self.max_norm, feature_bound=self.feature_bound)
        check_share("failure_probability", self.failure_probability)
        check_choice("accounting", self.accounting, Composition)
        check_delta(self.delta)

    def interactive(self, max_queries: int, max_updates: int) -> float:
        r"""Bound the error of every answer of an interactive release (K, Theorems 3 and 10).

        For T = ``max_queries``, the bound is :math:`5s\log(2T/\beta)`, where s is the scale of the
        noise for ``max_updates`` updates. The bound is the sum of the threshold and the largest
        noise, and holds as long as updates remain.

        Parameters
        ----------
        max_queries : int
        max_updates : int
        """
        return 1.25 * self._threshold(max_queries, max_updates)

    def suggest_updates(self, max_queries: int) -> int:
        r"""Compute the smallest number B of updates that suffices for all questions (K, Theorem 3).

        The squared distance of the public model from the true model is at most :math:`C^2`
        initially, and every update decreases it by at least :math:`\tau^2/(2R_\phi^2)`. Therefore,
        at most :math:`2R_\phi^2C^2/\tau^2` updates are needed. The threshold :math:`\tau` increases
        with B.

        Parameters
        ----------
        max_queries : int
            Number T of questions.

        Returns
        -------
        int
            Number of updates, at least 1. With probability ``1 - failure_probability``, no
            :class:`UpdatesExhaustedError` is raised.

        Raises
        ------
        ParameterError
            If more than 10^12 updates are needed.
        """

        def enough(updates: int) -> bool:
            reach = np.sqrt(updates / 2.0) * self._threshold(max_queries, updates)
            return bool(reach > self.feature_bound * self.max_norm)

        high = 1
        while not enough(high):
            high *= 2
            if high > MOST_UPDATES:
                raise ParameterError(
                    f"epsilon = {self.epsilon:g} needs more than {MOST_UPDATES:,} updates; use a"
                    " smaller epsilon"
                )
        between = range(high // 2 + 1, high)
        return between.start + bisect_left(between, True, key=enough)

    def semi_interactive(
        self, n_points: int, noise: NoiseKind | None = None
    ) -> SemiInteractiveBound:
        r"""Bound the error of the predictor of a test-set release (K, Theorems 5 and 13).

        For an L-Lipschitz loss, multiply the bound by L. Half of the failure probability is
        assigned to the noise, and half to the random points.

        Parameters
        ----------
        n_points : int
            Number T of points, which are drawn from the distribution of fresh points.
        noise : {"laplace", "process"}, optional
            See :class:`~convexmarket.TestSetRelease`.

        Returns
        -------
        SemiInteractiveBound
            ``fit`` is :math:`2\nu\log(2T/\beta)` for few points, with the scale :math:`\nu`, as in
            the paper. For many points, the noise averages out, and ``fit`` is :math:`2\sqrt{Cr/T}`
            with :math:`r = R_\phi\nu(\ell + \sqrt{\ell^2+4T\ell})` and
            :math:`\ell = \log(4/\beta)`. For "process", ``fit`` is
            :math:`2\nu R_\phi(1+\sqrt{2\log(2/\beta)})`. ``generalization`` is
            :math:`\frac{2CR_\phi}{\sqrt T}(1 + \sqrt{\log(2/\beta)/2})`.

        Notes
        -----
        The bound assumes the worst case, in which all predictions change equally.
        :class:`~convexmarket.TestSetRelease` computes the scale of the noise for given points.
        """
        check_count("n_points", n_points)
        if noise is None:
            noise = "laplace" if self.delta == 0 else "process"
        check_choice("noise", noise, NoiseKind)
        beta = self.failure_probability
        if noise == "process":
            fit = 2.0 * self._process_scale * (1.0 + np.sqrt(2.0 * np.log(2.0 / beta)))
        else:
            terms = n_points, float(n_points), self.delta, self.accounting
            scale = self._scale(semi_interactive_epsilon(*terms))
            log = np.log(4.0 / beta)
            total = self.feature_bound * scale * (log + np.sqrt(log**2 + 4.0 * n_points * log))
            fit = 2.0 * scale * np.log(2.0 * n_points / beta)
            fit = min(fit, 2.0 * np.sqrt(self.max_norm * total / n_points))
        reach = 2.0 * self.max_norm * self.feature_bound / np.sqrt(n_points)
        fresh = reach * (1.0 + np.sqrt(np.log(2.0 / beta) / 2.0))
        return SemiInteractiveBound(float(fit), float(fresh))

    def suggest_test_size(self, largest: int = 1_000_000, noise: NoiseKind | None = None) -> int:
        """Compute the number of points, at most ``largest``, that minimises the bound on the error.

        Parameters
        ----------
        largest : int
            Largest number of points.
        noise : {"laplace", "process"}, optional
        """
        return _best_count(lambda n_points: self.semi_interactive(n_points, noise).total, largest)

    def non_interactive(
        self, rounds: int, net_size: float, net_radius: float, feature_lipschitz: float
    ) -> float:
        r"""Bound the error of the predictor of a public release in the whole ball (K, Theorem 8).

        Parameters
        ----------
        rounds : int
            Number B of rounds.
        net_size : float
            Number N of points of the net.
        net_radius : float
            Largest distance nu of a point of the ball from the net.
        feature_lipschitz : float
            Lipschitz constant L_phi of the feature map.

        Returns
        -------
        float
            :math:`g + 2CL_\phi\nu + \sqrt{x^2 + R_\phi^2C^2/M}`. Here s is the scale of the noise,
            M = B + 1 the number of models, :math:`x = s\log(2M/\beta)` a bound on the noise, and
            :math:`g = s\log(2MN/\beta)` a bound on the loss by selection (four times as large for
            "paper"). With the best B, the error decreases as :math:`n^{-1/2}`. The paper's proof
            does not yield the stated rate :math:`n^{-2/3}`.
        """
        check_count("rounds", rounds)
        check_positives(
            net_size=net_size, net_radius=net_radius, feature_lipschitz=feature_lipschitz
        )
        check_delta(self.delta, positive=self.accounting == "paper")
        scale = self._scale(non_interactive_epsilon(rounds, self.delta, self.accounting))
        between = 2.0 * self.max_norm * feature_lipschitz * net_radius
        return self.on_net(scale, rounds, net_size, between)

    def on_net(self, scale: float, rounds: int, net_size: float, between: float) -> float:
        """Compute :meth:`non_interactive` for a given scale of the noise.

        ``between`` bounds the increase of the error between the points of the net.
        """
        log = np.log(2.0 * (rounds + 1) / self.failure_probability)
        missed = scale * (log + np.log(net_size)) / selection_factor(self.accounting)
        reach = self.feature_bound * self.max_norm
        return float(missed + between + np.sqrt((scale * log) ** 2 + reach**2 / (rounds + 1)))

    def suggest_rounds(
        self, net_size: float, net_radius: float, feature_lipschitz: float, largest: int = 1_000_000
    ) -> int:
        """Compute the number of rounds, up to ``largest``, with the smallest bound on the error.

        Parameters
        ----------
        net_size, net_radius, feature_lipschitz : float
        largest : int
            Largest number of rounds.
        """
        net = net_size, net_radius, feature_lipschitz
        return _best_count(lambda rounds: self.non_interactive(rounds, *net), largest)

    def function(self, n_queries: int) -> float:
        r"""Bound the error of T = ``n_queries`` answers of a function release.

        The bound is :math:`s\sqrt{2\log(2T/\beta)}`, where s is the scale of the noise. The bound
        requires questions that do not depend on the answers.
        """
        check_count("n_queries", n_queries)
        log = np.log(2.0 * n_queries / self.failure_probability)
        return float(self._process_scale * np.sqrt(2.0 * log))

    def _scale(self, calibration: Calibration, slack: float = LAPLACE_SLACK) -> float:
        return noise_scale(self.sensitivity, self.epsilon, calibration, slack)

    @cached_property
    def _process_scale(self) -> float:
        check_delta(self.delta, positive=True)
        return self._scale(function_epsilon(self.delta), PROCESS_SLACK)

    def _threshold(self, max_queries: int, max_updates: int) -> float:
        check_count("max_queries", max_queries)
        check_count("max_updates", max_updates)
        check_delta(self.delta, positive=True)
        scale = self._scale(interactive_epsilon(max_updates, self.delta, self.accounting))
        return float(4.0 * scale * np.log(2.0 * max_queries / self.failure_probability))


def _best_count(value: Callable[[int], float], largest: int) -> int:
    """Minimise a function of an integer by search on successively finer grids."""
    low, high = 1, check_count("largest", largest)
    while True:
        grid = np.unique(np.geomspace(low, high, 60).round().astype(int))
        values = [value(int(count)) for count in grid]
        best = int(np.argmin(values))
        if high - low < 60:
            return int(grid[best])
        low, high = int(grid[max(best - 1, 0)]), int(grid[min(best + 1, len(grid) - 1)])
