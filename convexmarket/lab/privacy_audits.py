"""Every private learner and release on one data set, each under attack."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.attacks import PrivacyAudit, audit_privacy
from convexmarket.data.datasets import MarketData, wdbc
from convexmarket.errors import ParameterError
from convexmarket.learners import (
    KernelERM,
    PersonalizedRidge,
    PrivateLogisticRegression,
)
from convexmarket.privacy import Simulation
from convexmarket.release import (
    FunctionRelease,
    InteractiveRelease,
    PublicRelease,
    TestSetRelease,
)

__all__ = ["MechanismAudit", "audit_mechanisms", "audit_table"]

Floats = NDArray[np.float64]

REGULARIZATION = 0.01
ETA = 3_000.0
#: Of releases; large enough for frequencies to say something about Gaussian noise.
DELTA = 0.01
#: Releases are drawn so often on each of two data sets.
DRAWS = 1_200
SLOW_DRAWS = 300  # where each release calibrates its noise for long


@dataclass(frozen=True, eq=False)
class MechanismAudit:
    """An audit, what was audited in words, and how long it took.

    Attributes
    ----------
    name, settings : str
    audit : PrivacyAudit
    seconds : float
    """

    name: str
    settings: str
    audit: PrivacyAudit
    seconds: float


def audit_mechanisms(
    seed: int = 0,
    advance: Callable[[str, int, int], None] | None = None,
    data: MarketData | None = None,
    mechanisms: Collection[str] = (),
    found: Callable[[MechanismAudit], None] | None = None,
) -> list[MechanismAudit]:
    """Audit every mechanism of the package on the rows that are sold.

    Parameters
    ----------
    seed : int, default 0
        Of weights, guarantees, starts and noise.
    advance : callable, optional
        Told the stage, how much is done and how much there is.
    data : MarketData, optional
        The Wisconsin breast-cancer data by default.
    mechanisms : collection of str, optional
        Names of learners and releases, such as "PersonalizedRidge"; all by default.
    found : callable, optional
        Told each audit as soon as it is done.

    Returns
    -------
    list of MechanismAudit

    Raises
    ------
    ParameterError
        If a name is none of the mechanisms'.
    """
    market = wdbc() if data is None else data
    X, y = market.X_train, market.y_train
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(len(X), 4.0))
    epsilon = rng.uniform(0.5, 2.0, len(X))
    jobs = [
        *_logistic_jobs(X, y, weights),
        *_ridge_jobs(X, y, epsilon),
        *_release_jobs(X, y),
    ]
    names = list(dict.fromkeys(name for name, _, _ in jobs))
    if unknown := [name for name in mechanisms if name not in names]:
        raise ParameterError(f"mechanism {unknown[0]!r} is none of {', '.join(names)}")
    chosen = [k for k, (name, _, _) in enumerate(jobs) if name in (mechanisms or names)]
    audits = []
    for done, k in enumerate(chosen):
        if advance is not None:
            advance("audits", done, len(chosen))
        name, settings, job = jobs[k]
        start = time.perf_counter()
        audit = job(np.random.default_rng([seed, k]))
        audits.append(MechanismAudit(name, settings, audit, time.perf_counter() - start))
        if found is not None:
            found(audits[-1])
    return audits


def audit_table(audits: list[MechanismAudit]) -> pd.DataFrame:
    """Return one line for each mechanism: the row whose loss came nearest to its claim."""
    lines = []
    for one in audits:
        frame = one.audit.to_frame()
        worst = frame.iloc[int(np.argmax(frame["ratio"]))]
        lines.append(
            {
                "mechanism": one.name,
                "settings": one.settings,
                "method": one.audit.method,
                "rows": len(frame),
                "claimed": worst["claimed"],
                "measured": worst["measured"],
                "ratio": worst["ratio"],
                "delta": one.audit.delta,
                "confidence": one.audit.confidence,
                "passed": one.audit.passed,
                "seconds": one.seconds,
            }
        )
    return pd.DataFrame(lines)


Job = tuple[str, str, Callable[[np.random.Generator], PrivacyAudit]]


def _logistic_jobs(X: Floats, y: NDArray[Any], weights: Floats) -> list[Job]:
    name = "PrivateLogisticRegression"
    variants: list[tuple[str, dict[str, Any], Any]] = [
        ("accounting sharp", {}, "worst"),
        (
            "accounting paper, as printed",
            {"accounting": "paper", "calibration": "noise"},
            "worst",
        ),
        ("accounting sharp, the other rows as they are", {}, "given"),
        ("accounting sharp, minimum_epsilon 0.01", {"minimum_epsilon": 0.01}, "worst"),
    ]

    def job(options: dict[str, Any], others: Any) -> Callable[[np.random.Generator], PrivacyAudit]:
        learner = PrivateLogisticRegression(REGULARIZATION, tol=1e-9, **options)
        return lambda rng: audit_privacy(
            learner, X, y, others=others, epsilon=weights * ETA, n_rows=3, random_state=rng
        )

    return [(name, settings, job(options, others)) for settings, options, others in variants]


def _ridge_jobs(X: Floats, y: NDArray[Any], epsilon: Floats) -> list[Job]:
    rows, labels = (X + 1.0) / 2.0, np.asarray(y, dtype=np.float64)
    output = partial(PersonalizedRidge, perturbation="output", fit_intercept=False)

    def job(learner: Any, **options: Any) -> Callable[[np.random.Generator], PrivacyAudit]:
        return lambda rng: audit_privacy(
            learner, rows, labels, epsilon=epsilon, n_rows=3, random_state=rng, **options
        )

    return [
        ("PersonalizedRidge", "alpha 10, tight", job(output(10.0))),
        ("PersonalizedRidge", "alpha 1, tight", job(output(1.0))),
        ("PersonalizedRidge", "alpha 10, paper", job(output(10.0, sensitivity="paper"))),
        ("PersonalizedRidge", "alpha 10, in floating point", job(output(10.0, rounding=None))),
        ("NonPersonalizedRidge", "alpha 10", job(output(10.0, weighting="equal"))),
    ]


def _release_jobs(X: Floats, y: NDArray[Any]) -> list[Job]:
    plane = X[:, :2] / max(float(np.linalg.norm(X[:, :2], axis=1).max()), 1e-12)
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
    corners = np.column_stack([np.cos(angles), np.sin(angles)])
    replacements = np.repeat(corners, 2, axis=0), np.tile(np.unique(y)[[0, -1]], len(corners))
    points = corners[:1]

    def job(
        make: Callable[..., Any], draws: int = DRAWS
    ) -> Callable[[np.random.Generator], PrivacyAudit]:
        def mechanism(rows: Floats, labels: NDArray[Any]) -> Callable[[int], Any]:
            erm = KernelERM("hinge", "linear", regularization=2.0, data_norm=1.0)
            erm.fit(rows, labels)
            return lambda seed: make(erm, epsilon=3.0, random_state=Simulation(seed))

        return lambda rng: audit_privacy(
            mechanism,
            plane,
            y,
            points=points,
            replacements=replacements,
            draws=draws,
            random_state=rng,
        )

    return [
        (
            "TestSetRelease",
            "one point, Laplace",
            job(
                lambda erm, **terms: TestSetRelease(
                    erm, points, delta=DELTA, noise="laplace", **terms
                )
            ),
        ),
        (
            "TestSetRelease",
            "one point, process",
            job(
                lambda erm, **terms: TestSetRelease(
                    erm, points, delta=DELTA, noise="process", **terms
                ),
                SLOW_DRAWS,
            ),
        ),
        (
            "InteractiveRelease",
            "one question",
            job(
                lambda erm, **terms: InteractiveRelease(
                    erm, delta=DELTA, max_queries=1, max_updates=1, threshold=0.01, **terms
                )
            ),
        ),
        (
            "PublicRelease",
            "one round",
            job(
                lambda erm, **terms: PublicRelease(erm, delta=DELTA, rounds=1, **terms), SLOW_DRAWS
            ),
        ),
        (
            "FunctionRelease",
            "one process",
            job(lambda erm, **terms: FunctionRelease(erm, delta=DELTA, **terms), SLOW_DRAWS),
        ),
    ]
