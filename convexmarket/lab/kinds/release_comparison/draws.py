"""Releases of one kernel model, drawn and measured: what the comparison puts together.

A size and the number of a data set decide the rows, the model and the public points; the label of a
release, an epsilon and the number of a draw decide its noise.
"""

from __future__ import annotations

import math
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.data.datasets import circles
from convexmarket.errors import ConvexMarketError, UpdatesExhaustedError
from convexmarket.lab.kinds.release_comparison.problem import (
    CirclesData,
    FunctionReleaseTable,
    InteractiveReleaseTable,
    NonInteractiveReleaseTable,
    ObjectivePerturbationTable,
    ReleaseComparisonProblem,
    ReleaseTable,
    SemiInteractiveReleaseTable,
)
from convexmarket.lab.kinds.release_comparison.useful import PublicModel
from convexmarket.lab.problem.rows import load_rows
from convexmarket.learners import KernelERM, PrivateLogisticRegression
from convexmarket.privacy import Simulation
from convexmarket.release import (
    ErrorBounds,
    FunctionRelease,
    InteractiveRelease,
    PublicRelease,
    TestSetRelease,
)
from convexmarket.release.noise import laplace_noise
from convexmarket.release.scales import interactive_epsilon

__all__ = ["Found", "Rows", "make_releases", "rows_to_test"]

Floats = NDArray[np.float64]
Rows = list[dict[str, Any]]

# Branches of the seed.
_TRAINING, _TEST, _POINTS, _NOISE = range(4)

MARKS = 60  # numbers of questions at which updates are counted


# ------------------------------------------------------------------------------- rows and one model


def _random(problem: ReleaseComparisonProblem, *key: int) -> np.random.Generator:
    return np.random.default_rng(problem.run.stream(*key))


def _training_rows(problem: ReleaseComparisonProblem, size: int, fit: int) -> tuple[Floats, Floats]:
    data, rng = problem.data, _random(problem, _TRAINING, size, fit)
    if isinstance(data, CirclesData):
        return circles(size, data.noise, data.factor, rng)
    rows = load_rows(data)
    chosen = rng.permutation(rows.y_train.size)[:size]
    return rows.X_train[chosen], rows.y_train[chosen]


def rows_to_test(problem: ReleaseComparisonProblem) -> tuple[Floats, Floats]:
    """Return the test rows and their labels, shape (n_test, n_features) and (n_test,)."""
    data = problem.data
    if isinstance(data, CirclesData):
        return circles(data.n_test, data.noise, data.factor, _random(problem, _TEST))
    rows = load_rows(data)
    return rows.X_test, rows.y_test


def _public_points(
    problem: ReleaseComparisonProblem, n_points: int | None, size: int, fit: int
) -> Floats:
    data = problem.data
    if isinstance(data, CirclesData):
        assert n_points is not None  # the problem file's check
        rng = _random(problem, _POINTS, size, fit)
        return circles(n_points, data.noise, data.factor, rng)[0]
    return load_rows(data).X_validation[:n_points]


@dataclass(frozen=True, eq=False)
class _Fit:
    """One model, and the test rows that all releases of it answer."""

    problem: ReleaseComparisonProblem
    size: int
    fit: int
    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats
    erm: KernelERM
    truth: Floats

    def accuracy(self, predictions: Floats) -> float:
        """Return the share of test rows whose label is the sign of the prediction."""
        return float(np.mean((predictions > 0) == (self.y_test > 0)))


@dataclass(frozen=True, eq=False)
class Found:
    """What one model and its releases come to, as rows of the result's tables.

    Attributes
    ----------
    model : dict
    public : PublicModel
        What theory knows of the model.
    draws, updates : list of dict
    stated : list of dict
        Per epsilon and release: scale, bound, and the error's text if it was refused.
    """

    model: dict[str, Any]
    public: PublicModel
    draws: Rows = field(default_factory=list)
    stated: Rows = field(default_factory=list)
    updates: Rows = field(default_factory=list)


def make_releases(problem: ReleaseComparisonProblem, size: int, fit: int) -> Found:
    """Fit a model, and make all releases of it.

    Parameters
    ----------
    problem : ReleaseComparisonProblem
    size : int
        Rows of the model.
    fit : int
        Number of the data set of that size.

    Raises
    ------
    SolverError
        If the model cannot be fitted to the tolerance.
    """
    X, y = _training_rows(problem, size, fit)
    X_test, y_test = rows_to_test(problem)
    start = time.perf_counter()
    erm = problem.model.learner().fit(X, y)
    seconds = time.perf_counter() - start
    truth = erm.decision_function(X_test)
    fitted = _Fit(problem, size, fit, X, y, X_test, y_test, erm, truth)
    found = Found(
        {"size": size, "fit": fit, **_measured_model(fitted), "seconds": seconds},
        PublicModel.of(erm),
    )
    for place, epsilon in enumerate(problem.study.epsilons):
        for release in problem.releases:
            _draw(found, fitted, release, epsilon, place)
    return found


def _measured_model(fitted: _Fit) -> dict[str, Any]:
    erm, linear = fitted.erm, math.nan
    for release in fitted.problem.releases:
        if isinstance(release, ObjectivePerturbationTable):
            model = _linear_model(fitted, release)
            model.fit(fitted.X, fitted.y, epsilon=math.inf)
            linear = fitted.accuracy(model.decision_function(fitted.X_test))
            break
    return {
        "accuracy": fitted.accuracy(fitted.truth),
        "linear_accuracy": linear,
        "sensitivity": erm.sensitivity_,
        "norm_bound": erm.norm_bound_,
        "norm": erm.norm_,
        "typical": float(np.median(np.abs(fitted.truth))),
        "rank": len(erm.pivots_),
        "prediction_error": erm.prediction_error_,
    }


# ------------------------------------------------------------------------------------- one release


@dataclass(frozen=True, eq=False)
class _Answers:
    """What a release said of the test rows, and of itself."""

    predictions: Floats
    scale: float = math.nan
    bound: float = math.nan
    counts: tuple[int, ...] = ()  # updates, of an interactive release, after so many questions
    answered: int | None = None


def _draw(found: Found, fitted: _Fit, release: ReleaseTable, epsilon: float, place: int) -> None:
    """Make a release so often as the study says, and add what is found."""
    problem = fitted.problem
    key = {"size": fitted.size, "epsilon": epsilon, "release": release.label}
    stated = {**key, "scale": math.nan, "bound": math.nan, "refused": ""}
    # A release's own number: other releases in the file do not change its noise.
    name = zlib.crc32(release.label.encode())
    for draw in range(problem.study.draws):
        branch = (_NOISE, fitted.size, fitted.fit, place, name, draw)
        seed = problem.run.stream(*branch)
        start = time.perf_counter()
        try:
            answers = _answers(fitted, release, epsilon, seed)
        except ConvexMarketError as error:
            stated["refused"] = str(error)
            break
        seconds = time.perf_counter() - start
        stated |= {"scale": answers.scale, "bound": answers.bound}
        row = {**key, "fit": fitted.fit, "draw": draw, **_measured(fitted, release, answers)}
        found.draws.append({**row, "seconds": seconds})
        if answers.counts and fitted.size == problem.study.sizes[-1]:
            marks = zip(_marks(len(fitted.X_test)), answers.counts, strict=True)
            found.updates.extend({**key, "queries": at, "updates": used} for at, used in marks)
    found.stated.append(stated)


def _measured(fitted: _Fit, release: ReleaseTable, answers: _Answers) -> dict[str, Any]:
    asked = len(fitted.X_test) if answers.answered is None else answers.answered
    distances = np.abs(answers.predictions - fitted.truth)
    if isinstance(release, ObjectivePerturbationTable):  # another model's predictions
        distances = np.full(asked, math.nan)
    return {
        "accuracy": fitted.accuracy(answers.predictions),
        "error": float(distances.mean()),
        "worst": float(distances[:asked].max()),
        "updates": float(answers.counts[-1]) if answers.counts else math.nan,
        "answered": asked,
    }


def _answers(
    fitted: _Fit, release: ReleaseTable, epsilon: float, seed: np.random.SeedSequence
) -> _Answers:
    """Make a release once, and let it answer the test rows."""
    study, erm, X_test = fitted.problem.study, fitted.erm, fitted.X_test
    sold = (erm, epsilon, study.delta)
    # What the bounds are stated in: the fits' errors are part of it.
    change = float(erm.row_sensitivities_.max())
    match release:
        case InteractiveReleaseTable():
            return _interactive(fitted, release, epsilon, seed)
        case SemiInteractiveReleaseTable(noise=noise, accounting=accounting):
            points = _public_points(fitted.problem, release.n_points, fitted.size, fitted.fit)
            kinds: dict[str, Any] = {"noise": noise, "accounting": accounting}
            source = Simulation(seed)
            at_points = TestSetRelease(erm, points, *sold[1:], **kinds, random_state=source)
            bound = ErrorBounds(
                change,
                *sold[1:],
                erm.norm_bound_,
                erm.feature_bound_,
                study.failure_probability,
                accounting,
            ).semi_interactive(len(points), noise)
            return _Answers(at_points.predict(X_test), at_points.scale, bound.total)
        case NonInteractiveReleaseTable():
            public = PublicRelease(
                *sold,
                rounds=release.rounds,
                net_radius=release.net_radius,
                max_net=release.max_net,
                failure_probability=study.failure_probability,
                accounting=release.accounting,
                random_state=Simulation(seed),
            )
            return _Answers(public.predict(X_test), public.scale, public.error_bound)
        case FunctionReleaseTable():
            whole = FunctionRelease(*sold, random_state=Simulation(seed))
            beta = study.failure_probability
            bounds = ErrorBounds(change, *sold[1:], failure_probability=beta)
            worst = bounds.function(len(X_test))
            return _Answers(whole.predict(X_test), whole.scale, worst)
        case ObjectivePerturbationTable():
            model = _linear_model(fitted, release)
            model.fit(fitted.X, fitted.y, epsilon=epsilon, random_state=Simulation(seed))
            return _Answers(model.decision_function(X_test))


def _linear_model(fitted: _Fit, release: ObjectivePerturbationTable) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(
        release.regularization,
        data_norm=fitted.problem.model.data_norm,
        accounting=release.accounting,
    )


def _marks(n_queries: int) -> NDArray[np.int_]:
    """Return the numbers of questions at which updates are counted; the last is of all."""
    return np.unique(np.linspace(1, n_queries, min(n_queries, MARKS)).round().astype(int))


def _interactive(
    fitted: _Fit, table: InteractiveReleaseTable, epsilon: float, seed: np.random.SeedSequence
) -> _Answers:
    """Ask for the test rows in order; without updates the public model answers."""
    study, X_test = fitted.problem.study, fitted.X_test
    threshold = table.threshold
    if threshold is not None:  # in scales of the noise, which is known before it is drawn
        sold = np.full(len(fitted.erm.row_sensitivities_), epsilon)
        needed = interactive_epsilon(table.max_updates, study.delta, table.accounting)
        threshold *= laplace_noise(fitted.erm, sold, needed, study.delta).scale
    release = InteractiveRelease(
        fitted.erm,
        epsilon,
        study.delta,
        max_queries=len(X_test),
        max_updates=table.max_updates,
        failure_probability=study.failure_probability,
        accounting=table.accounting,
        threshold=threshold,
        random_state=Simulation(seed),
    )
    answers: list[float] = []
    counts = []
    for part in np.split(X_test, _marks(len(X_test))[:-1]):
        try:
            answers.extend(release.predict(part))
        except UpdatesExhaustedError as error:
            answers.extend(error.answers)
        counts.append(release.spent.updates)
    predictions = release.predictor.predict(X_test)
    predictions[: len(answers)] = answers
    return _Answers(predictions, release.scale, release.error_bound, tuple(counts), len(answers))
