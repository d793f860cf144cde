"""Audits of every learner and release of the package on the Wisconsin breast-cancer data."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.attacks import PrivacyAudit, audit_privacy
from convexmarket.data.datasets import MarketData, wdbc
from convexmarket.errors import ParameterError
from convexmarket.learners import KernelERM, PersonalizedRidge, PrivateLogisticRegression
from convexmarket.privacy import Simulation
from convexmarket.release import (
    FunctionRelease,
    InteractiveRelease,
    PublicRelease,
    TestSetRelease,
)

__all__ = ["audit_mechanisms"]

Floats = NDArray[np.float64]
Job = tuple[str, str, Callable[[np.random.Generator], PrivacyAudit]]

#: Delta of the releases, large enough for frequencies to bound Gaussian noise.
_DELTA = 0.01


def audit_mechanisms(
    seed: int = 0,
    mechanisms: Collection[str] = (),
    *,
    without: Collection[str] = (),
    data: MarketData | None = None,
    draws: int = 1_200,
    slow_draws: int = 300,
    progress: Callable[[str, int, int], None] | None = None,
) -> pd.DataFrame:
    """Attack the guarantee of every mechanism of the package.

    Parameters
    ----------
    seed : int, default 0
        Seed of weights, guarantees, starts and noise.
    mechanisms : collection of str, optional
        Names of learners and releases, such as "PersonalizedRidge"; all by default.
    without : collection of str, optional
        Settings that are left out.
    data : MarketData, optional
        The Wisconsin breast-cancer data by default.
    draws, slow_draws : int
        Releases drawn on each of two data sets; ``slow_draws`` where each calibrates its noise.
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    DataFrame
        One line per mechanism and settings: claimed, measured and ratio of the row with the largest
        ratio; rows, delta, confidence, passed, statement and seconds.

    Raises
    ------
    ParameterError
        If a name is unknown.
    """
    market = wdbc() if data is None else data
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(len(market.X_train), 4.0))
    epsilon = rng.uniform(0.5, 2.0, len(market.X_train))
    jobs = [
        *_learner_jobs(market, weights * 3_000.0, epsilon),
        *_release_jobs(market, draws, slow_draws),
    ]
    names = list(dict.fromkeys(name for name, _, _ in jobs))
    if unknown := [name for name in mechanisms if name not in names]:
        raise ParameterError(f"mechanism {unknown[0]!r} is unknown; give one of {', '.join(names)}")
    chosen = [
        k
        for k, (name, settings, _) in enumerate(jobs)
        if name in (mechanisms or names) and settings not in without
    ]
    rows = []
    for done, k in enumerate(chosen, start=1):
        name, settings, job = jobs[k]
        start = time.perf_counter()
        audit = job(np.random.default_rng([seed, k]))
        frame = audit.to_frame()
        worst = frame.iloc[int(np.argmax(frame["ratio"]))]
        rows.append(
            {
                "mechanism": name,
                "settings": settings,
                "method": audit.method,
                "rows": len(frame),
                **{column: worst[column] for column in ("claimed", "measured", "ratio")},
                "delta": audit.delta,
                "confidence": audit.confidence,
                "passed": audit.passed,
                "statement": audit.statement(),
                "seconds": time.perf_counter() - start,
            }
        )
        if progress is not None:
            progress("audits", done, len(chosen))
    return pd.DataFrame(rows)


def _audit(
    mechanism: Any, X: Floats, y: NDArray[Any], rng: np.random.Generator, **options: Any
) -> PrivacyAudit:
    return audit_privacy(mechanism, X, y, random_state=rng, **options)


def _learner_jobs(market: MarketData, prices: Floats, epsilon: Floats) -> list[Job]:
    X, y = market.X_train, market.y_train
    logistic = partial(PrivateLogisticRegression, 0.01, tol=1e-9)
    output = partial(PersonalizedRidge, perturbation="output", fit_intercept=False)

    def of_logistic(learner: Any) -> Callable[..., PrivacyAudit]:
        return partial(_audit, learner, X, y, epsilon=prices, n_rows=3)

    def of_ridge(learner: Any) -> Callable[..., PrivacyAudit]:
        rows, labels = (X + 1.0) / 2.0, np.asarray(y, dtype=np.float64)
        return partial(_audit, learner, rows, labels, epsilon=epsilon, n_rows=3)

    paper = logistic(accounting="paper", calibration="noise")
    blurred = logistic(solver_epsilon=0.01)
    name = "PrivateLogisticRegression"
    return [
        (name, "accounting sharp", of_logistic(logistic())),
        (name, "accounting paper, as printed", of_logistic(paper)),
        (name, "accounting sharp, solver_epsilon 0.01", of_logistic(blurred)),
        ("PersonalizedRidge", "objective perturbation", of_ridge(PersonalizedRidge())),
        ("PersonalizedRidge", "alpha 10, tight", of_ridge(output(10.0))),
        ("PersonalizedRidge", "alpha 1, tight", of_ridge(output(1.0))),
        ("PersonalizedRidge", "alpha 10, paper", of_ridge(output(10.0, sensitivity="paper"))),
        ("PersonalizedRidge", "alpha 10, in floating point", of_ridge(output(10.0, rounding=None))),
        ("NonPersonalizedRidge", "alpha 10", of_ridge(output(10.0, weighting="equal"))),
    ]


def _release_jobs(market: MarketData, draws: int, slow_draws: int) -> list[Job]:
    plane = market.X_train[:, :2]
    plane = plane / max(float(np.linalg.norm(plane, axis=1).max()), 1e-12)
    y = market.y_train
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
    corners = np.column_stack([np.cos(angles), np.sin(angles)])
    given: dict[str, Any] = {
        "replacements": (np.repeat(corners, 2, axis=0), np.tile(np.unique(y)[[0, -1]], 8)),
        "points": corners[:1],
    }

    def of(make: Callable[..., Any], draws: int, **terms: Any) -> Callable[..., PrivacyAudit]:
        def mechanism(rows: Floats, labels: NDArray[Any]) -> Callable[[int], Any]:
            erm = KernelERM("hinge", "linear", regularization=2.0, data_norm=1.0)
            erm.fit(rows, labels)
            options = {"delta": _DELTA, "epsilon": 3.0, **terms}
            return lambda seed: make(erm, random_state=Simulation(seed), **options)

        return partial(_audit, mechanism, plane, y, draws=draws, **given)

    def test_set(erm: KernelERM, **terms: Any) -> TestSetRelease:
        return TestSetRelease(erm, corners[:1], **terms)

    questions = {"max_queries": 1, "max_updates": 1, "threshold": 0.01}
    return [
        ("TestSetRelease", "one point, Laplace", of(test_set, draws, noise="laplace")),
        ("TestSetRelease", "one point, process", of(test_set, slow_draws, noise="process")),
        ("InteractiveRelease", "one question", of(InteractiveRelease, draws, **questions)),
        ("PublicRelease", "one round", of(PublicRelease, slow_draws, rounds=1)),
        ("FunctionRelease", "one process", of(FunctionRelease, slow_draws)),
    ]
