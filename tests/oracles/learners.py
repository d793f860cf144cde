"""Check guarantees and noise of learners and releases on 200 inputs.

An input describes a learner by its loss, the kind of its noise and the weights of the rows. The
functions :func:`_learner` and :func:`_release` choose the classes of the package. The rows are
deterministic; their cells are multiples of square roots modulo one.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import convexmarket as cm
from convexmarket import learners, release
from convexmarket.privacy import Simulation
from tests.learners.builders import noisy_descent
from tests.oracles.averages import apart_by_chance
from tests.oracles.store import differences

Numbers = dict[str, Any]

PRIMES = np.array([2.0, 3.0, 5.0, 7.0, 11.0, 13.0])
#: Options of the learners, with values for inputs that do not set them.
OBJECTIVE = {"data_norm": 1.0, "calibration": "total", "solver_epsilon": "auto", "tol": 1e-9}
RIDGE = {"max_norm": None, "sensitivity": "tight", "rounding": "auto"}
KERNEL = {
    "loss": "logistic",
    "kernel": "rbf",
    "regularization": 0.1,
    "gamma": 2.0,
    "degree": 2,
    "coef0": 1.0,
    "data_norm": 1.0,
    "tol": 0.01,
}
CHANCES = {"failure_probability": 0.05, "noise_failure_probability": 0.1}


def answer(given: dict[str, Any]) -> Numbers:
    """Compute the exact numbers of an input, and averages over draws under the key "draws"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cm.PrivacyLeakWarning)
        if given["kind"] in ("interactive", "public", "test set", "function"):
            return _released(given)
        return _learned(given)


def points(count: int, features: int, shift: float = 0.0) -> np.ndarray:
    """Return deterministic points of the unit cube."""
    return (np.arange(1, count + 1)[:, None] * np.sqrt(PRIMES[:features]) + shift) % 1.0


def _granted(given: dict[str, Any]) -> np.ndarray:
    """Return the granted epsilon of each row."""
    unit = points(given["rows"], 6)[:, 5]
    step = np.arange(unit.size)
    kinds = {
        "even": np.full(unit.size, 1.5),
        "uneven": 0.3 + 1.7 * unit,
        "zeros": np.where(step % 3 == 0, 0.0, 0.2 + unit),
        "wide": np.geomspace(0.01, 8.0, unit.size),
        "infinite": np.where(step % 4 == 0, np.inf, 0.5 + unit),
    }
    return kinds[given["granted"]]


def _rows(given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows within the norm bound or the unit cube, and their labels."""
    cube = points(given["rows"], given["features"])
    values = np.cos(3.0 * cube.sum(axis=1)) * 0.8
    if given["kind"] == "ridge":
        return cube, values
    scale = 0.99 * given.get("data_norm", 1.0) / np.sqrt(given["features"])
    if given.get("loss") in ("huber", "absolute"):
        return (2.0 * cube - 1.0) * scale, values
    return (2.0 * cube - 1.0) * scale, np.where(values > 0, 1, -1)


def _learner(given: dict[str, Any], epsilon: np.ndarray) -> Any:
    """Create the learner of an input."""
    ours = {"features": None, "epsilon": None}
    if given["kind"] == "objective":
        options = {name: given.get(name, usual) for name, usual in OBJECTIVE.items()}
        options |= {"regularization": given["regularization"], **ours}
        if given["loss"] == "logistic":
            bound = {"accounting": given.get("accounting", "sharp"), "cap": given.get("cap")}
            return cm.PrivateLogisticRegression(classes=(-1, 1), **bound, **options)
        if given["loss"] == "hinge":
            return learners.PrivateLinearSVC(classes=(-1, 1), width=given["threshold"], **options)
        fitted = {"threshold": given["threshold"], "target_range": (-1.0, 1.0)}
        return learners.PrivateHuberRegressor(**fitted, **options)
    if given["kind"] == "ridge":
        box = {"feature_range": (0.0, 1.0), "target_range": (-1.0, 1.0)}
        box |= {"regularization": given["regularization"], **ours}
        options = {name: given.get(name, usual) for name, usual in RIDGE.items()} | box
        named = given["weighting"] if isinstance(given["weighting"], str) else ""
        plain = {"fit_intercept": False, "perturbation": given.get("perturbation", "output")}
        if plain["perturbation"] == "statistics":
            return cm.PersonalizedRidge(weighting="granted", **plain, **box)
        if named == "none":
            return cm.PersonalizedRidge(weighting="equal", rounding=None, **plain, **box)
        options["weighting"] = {
            "proportional": "granted", "optimal": "bound", "least": "equal"
        }.get(named, given["weighting"])  # fmt: skip
        if named == "given":
            options["weighting"] = np.arange(1.0, len(epsilon) + 1.0)
            options["weighting"] /= options["weighting"].sum()
        noise = {"label_noise": given.get("label_noise"), "failure_probability": 0.05}
        return cm.PersonalizedRidge(**noise, **plain, **options)
    if given["kind"] == "descent":
        options = {name: given[name] for name in ("hidden", "steps", "delta")}
        return noisy_descent()(max_norm=5.0, clip=1.0, classes=(-1, 1), **options)
    if given["kind"] == "search":
        inner = _learner({**OBJECTIVE, **given, "kind": "objective", **INNER}, epsilon)
        held = _rows({**given, "rows": 20})
        grid = {"regularization": [0.5, 1.0, 2.0]}
        options = {"charge": given["charge"], "trials": given["trials"], "epsilon": None}
        return learners.PrivateSearch(inner, grid, validation=held, **options)
    options = {name: given.get(name, usual) for name, usual in KERNEL.items()}
    if options["loss"] == "huber":
        options["loss"] = learners.HuberLoss(0.5)
    return cm.KernelERM(classes=(-1, 1), **options, **ours)


INNER = {"loss": "logistic", "regularization": 1.0}


def _unperturbed(given: dict[str, Any], epsilon: np.ndarray) -> np.ndarray:
    """Fit a learner without noise. Rows have equal weights, except for ridge with given weights."""
    rows, labels = _rows(given)
    if given["kind"] == "ridge":
        weights = np.ones(len(rows))
        if given["weighting"] == "given":
            weights = np.arange(1.0, len(rows) + 1.0)
        elif given["weighting"] == "proportional":
            weights = epsilon if np.isfinite(epsilon).all() else 1.0 * np.isinf(epsilon)
        given = {**given, "weighting": weights / weights.sum(), "perturbation": "output"}
    learner = _learner(given, epsilon)
    free = np.full(len(rows), np.inf)
    if given["kind"] == "ridge":
        free = np.where(given["weighting"] > 0, np.inf, 0.0)
    learner.fit(rows, labels, epsilon=free, random_state=Simulation(0))
    return np.append(learner.coef_, learner.intercept_)


def _learned(given: dict[str, Any]) -> Numbers:
    rows, labels = _rows(given)
    epsilon = _granted(given)
    if given.get("weighting") == "none":  # every row with weight has an infinite epsilon
        epsilon = np.where(epsilon > 0, np.inf, 0.0)
    learner = _learner(given, epsilon)
    numbers: Numbers = {}
    risk: dict[str, Any] = {"failure_probability": 0.05}
    if given["kind"] == "objective":
        risk = {**CHANCES, "max_norm": 2.0}
    elif given["kind"] == "ridge":
        risk["label_noise"] = 0.3
    elif given["kind"] == "kernel":
        risk = {**CHANCES, "n_points": 7}
    if given["kind"] != "search":  # the release uses the learner's defaults
        numbers["risk"] = learner.risk(given["features"], **risk)
    learner.fit(rows, labels, epsilon=epsilon, random_state=Simulation(0))
    numbers["epsilon"] = learner.guarantee_.epsilon
    numbers["delta"] = learner.guarantee_.delta
    if given["kind"] == "kernel":
        for name in ("sensitivity_", "row_sensitivities_", "norm_bound_", "feature_bound_"):
            numbers[name] = getattr(learner, name)
        numbers["predictions"] = learner.decision_function(rows[:10])
        return numbers
    if given["kind"] == "objective":
        numbers |= {"eta": learner.eta_, "rounding": _number(learner.rounding_)}
        numbers["minimum_epsilon"] = learner.solver_epsilon_
    if given["kind"] == "ridge":
        numbers |= {"rate": learner.noise_rate_, "rounding": _number(learner.rounding_)}
    if given["kind"] in ("objective", "ridge") and given.get("weighting") != "optimal":
        numbers["unperturbed"] = centre = _unperturbed(given, epsilon)
    if given["draws"]:
        drawn = []
        for seed in range(given["draws"]):
            learner.fit(rows, labels, epsilon=epsilon, random_state=Simulation(seed))
            drawn.append(np.append(learner.coef_, learner.intercept_))
        numbers["draws"] = _averages(drawn, centre)
    return numbers


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _averages(drawn: list[np.ndarray], centre: np.ndarray) -> Numbers:
    """Compute means over draws of the models and of their distances from a centre."""
    values = np.hstack([drawn, np.abs(np.array(drawn) - centre)])
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return {"mean": values.mean(axis=0), "error": error}


def compare(given: dict[str, Any], stored: Numbers, new: Numbers) -> list[str]:
    """Compare exact numbers, minimisers up to a tolerance, and averages up to random errors."""
    stored, new = dict(stored), dict(new)
    texts = []
    for name, allowed in (("unperturbed", 1e-6), ("predictions", 2.0 * given.get("tol", 0.0))):
        if name in stored and name in new:
            texts += differences(stored.pop(name), new.pop(name), allowed, name)
    if "draws" in stored and "draws" in new:
        texts += apart_by_chance(stored.pop("draws"), new.pop("draws"), "draws")
    return texts + differences(stored, new)


def _release(given: dict[str, Any], model: Any, epsilon: np.ndarray, seed: int) -> Any:
    """Create the release of an input."""
    terms = {"epsilon": epsilon, "delta": given["delta"], "random_state": Simulation(seed)}
    terms |= {"accountant": None, "rows": None}
    if given["kind"] == "function":
        return release.FunctionRelease(model, **terms)
    terms["accounting"] = given["accounting"]
    if given["kind"] == "test set":
        fit = {"noise": given["noise"], "max_norm": 2.0}
        return cm.TestSetRelease(model, _asked(given), **fit, **terms)
    terms["failure_probability"] = 0.05
    if given["kind"] == "public":
        net = {"rounds": given["rounds"], "net_radius": given["net_radius"]}
        return release.PublicRelease(model, **net, **terms)
    counts = {name: given[name] for name in ("max_queries", "max_updates")}
    threshold = {"threshold": given.get("threshold")}
    return cm.InteractiveRelease(model, **counts, **threshold, **terms)


def _bound(given: dict[str, Any], made: Any, model: Any) -> float | tuple[float, float]:
    """Compute the main error bound of a release."""
    if given["kind"] in ("interactive", "public"):
        return made.error_bound
    terms = model.sensitivity_, 1.5, given["delta"]
    if given["kind"] == "function":
        return release.ErrorBounds(*terms, failure_probability=0.05).function(20)
    bounds = release.ErrorBounds(
        *terms, max_norm=2.0, feature_bound=model.feature_bound_, accounting=given["accounting"]
    )
    bound = bounds.semi_interactive(20, given["noise"])
    return bound.fit, bound.generalization


def _asked(given: dict[str, Any]) -> np.ndarray:
    return (2.0 * points(4, given["features"], 0.3) - 1.0) * 0.7


def _released(given: dict[str, Any]) -> Numbers:
    rows, labels = _rows(given)
    epsilon = _granted(given)
    model = _learner({**given, "kind": "kernel"}, epsilon)
    model.fit(rows, labels, epsilon=epsilon, random_state=Simulation(0))
    made = _release(given, model, epsilon, 0)
    numbers: Numbers = {
        "scale": made.scale,
        "epsilon": made.guarantee.epsilon,
        "delta": made.guarantee.delta,
        "error bound": _bound(given, made, model),
    }
    for name in ("threshold", "net_size"):
        if hasattr(made, name):
            numbers[name] = getattr(made, name)
    if given["draws"]:
        truth = model.decision_function(_asked(given))
        drawn = []
        for seed in range(given["draws"]):
            made = _release(given, model, epsilon, seed)
            message = made.noisy_predictions if given["kind"] == "test set" else None
            drawn.append(made.predict(_asked(given)) if message is None else message)
        numbers["draws"] = _averages(drawn, truth)
    return numbers
