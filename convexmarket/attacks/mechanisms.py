"""Audit every learner and release of the package on the Wisconsin breast cancer data."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket import release as releases
from convexmarket.attacks import PrivacyAudit, audit_privacy
from convexmarket.data.datasets import MarketData, wdbc
from convexmarket.errors import ParameterError
from convexmarket.learners import KernelERM, PersonalizedRidge, PrivateLogisticRegression
from convexmarket.privacy import Simulation

__all__ = ["audit_mechanisms"]

Audit = Callable[..., PrivacyAudit]
Jobs = dict[tuple[str, str], Audit]
Progress = Callable[[str, int, int], None]

DRAWS, SLOW_DRAWS = 1_200, 300  # numbers of releases on each data set


def audit_mechanisms(
    seed: int = 0, mechanisms: Collection[str] = (), *, progress: Progress | None = None
) -> pd.DataFrame:
    """Attack the guarantee of every mechanism of the package on the breast cancer data.

    Each line of the table describes a mechanism with one setting, and the audited row with the
    largest ratio of measured loss to claim. ``mechanisms`` selects mechanisms or settings by name.
    """
    market, rng = wdbc(), np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(len(market.X_train), 4.0))
    epsilon = rng.uniform(0.5, 2.0, len(market.X_train))
    jobs = _learners(market, weights * 3_000.0, epsilon) | _releases(market)
    names = list(dict.fromkeys(name for key in jobs for name in key))
    if unknown := [name for name in mechanisms if name not in names]:
        raise ParameterError(f"mechanism {unknown[0]!r} is unknown; give one of {', '.join(names)}")
    chosen = [key for key in jobs if not mechanisms or {*key} & {*mechanisms}]
    rows = []
    for done, (name, settings) in enumerate(chosen, start=1):
        attack, k = jobs[name, settings], list(jobs).index((name, settings))
        audit = attack(random_state=np.random.default_rng([seed, k]))
        worst = audit.to_frame().iloc[int(np.argmax(audit.ratios))].drop("row")
        row = {"mechanism": name, "settings": settings, "method": audit.method, **worst}
        rows.append(row | {"passed": audit.passed, "statement": audit.statement()})
        if progress is not None:
            progress("audits", done, len(chosen))
    return pd.DataFrame(rows)


def _learners(market: MarketData, prices: NDArray[Any], epsilon: NDArray[Any]) -> Jobs:
    rows = market.X_train, market.y_train
    unit = (market.X_train + 1.0) / 2.0, np.asarray(market.y_train, dtype=np.float64)
    output = partial(PersonalizedRidge, 10.0, perturbation="output", fit_intercept=False)
    logistic = partial(PrivateLogisticRegression, 0.01, tol=1e-9)
    models = {
        "accounting sharp": logistic(),
        "accounting paper, as printed": logistic(accounting="paper", calibration="noise"),
        "accounting sharp, solver_epsilon 0.01": logistic(solver_epsilon=0.01),
        "objective perturbation": PersonalizedRidge(),
        "output perturbation": output(),
        "output perturbation, paper": output(sensitivity="paper"),
        "output perturbation, in floating point": output(rounding=None),
        "output perturbation, equal weights": output(weighting="equal"),
    }
    jobs: Jobs = {}
    for settings, model in models.items():
        ridge = isinstance(model, PersonalizedRidge)
        data, granted = (unit, epsilon) if ridge else (rows, prices)
        attack = partial(audit_privacy, model, *data, epsilon=granted, n_rows=3)
        jobs[type(model).__name__, settings] = attack
    return jobs


def _releases(market: MarketData) -> Jobs:
    plane = market.X_train[:, :2]
    plane = plane / max(float(np.linalg.norm(plane, axis=1).max()), 1e-12)
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False).repeat(2)
    corners = np.column_stack([np.cos(angles), np.sin(angles)])
    corner, versions = corners[:1], (corners, np.tile(np.unique(market.y_train)[[0, -1]], 8))

    def of(release: Callable[..., Any], draws: int, *terms: Any, **options: Any) -> Audit:
        def mechanism(rows: NDArray[Any], y: NDArray[Any]) -> Callable[[int], Any]:
            erm = KernelERM("hinge", "linear", regularization=2.0, data_norm=1.0).fit(rows, y)
            # The delta is large enough for frequencies to bound the loss of Gaussian noise.
            given = {"epsilon": 3.0, "delta": 0.01, **options}
            return lambda seed: release(erm, *terms, random_state=Simulation(seed), **given)

        attack = partial(audit_privacy, mechanism, plane, market.y_train, draws=draws)
        return partial(attack, replacements=versions, points=corner)

    test_set = partial(of, releases.TestSetRelease)
    questions = {"max_queries": 1, "max_updates": 1, "threshold": 0.01}
    return {
        ("TestSetRelease", "one point, Laplace"): test_set(DRAWS, corner, noise="laplace"),
        ("TestSetRelease", "one point, process"): test_set(SLOW_DRAWS, corner, noise="process"),
        ("InteractiveRelease", "one question"): of(releases.InteractiveRelease, DRAWS, **questions),
        ("PublicRelease", "one round"): of(releases.PublicRelease, SLOW_DRAWS, rounds=1),
        ("FunctionRelease", "one process"): of(releases.FunctionRelease, SLOW_DRAWS),
    }
