"""Check guarantees and noise of learners and releases on 200 inputs.

An input describes a learner by its loss, the kind of its noise and the weights of the rows. The
functions :func:`_learner` and :func:`_release` choose the classes of the package. The rows are
deterministic, and their cells are multiples of square roots modulo one.
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
#: Options of the learners, with the defaults for inputs that omit an option.
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


def answer(spec: dict[str, Any]) -> Numbers:
    """Compute the exact numbers of an input, and averages over draws under the key "draws"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cm.PrivacyLeakWarning)
        if spec["kind"] in ("interactive", "public", "test set", "function"):
            return _released(spec)
        return _learned(spec)


def points(count: int, features: int, shift: float = 0.0) -> np.ndarray:
    """Return deterministic points of the unit cube."""
    return (np.arange(1, count + 1)[:, None] * np.sqrt(PRIMES[:features]) + shift) % 1.0


def _granted(spec: dict[str, Any]) -> np.ndarray:
    unit = points(spec["rows"], 6)[:, 5]
    step = np.arange(unit.size)
    kinds = {
        "even": np.full(unit.size, 1.5),
        "uneven": 0.3 + 1.7 * unit,
        "zeros": np.where(step % 3 == 0, 0.0, 0.2 + unit),
        "wide": np.geomspace(0.01, 8.0, unit.size),
        "infinite": np.where(step % 4 == 0, np.inf, 0.5 + unit),
    }
    return kinds[spec["granted"]]


def _rows(spec: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows within the norm bound or the unit cube, and their labels."""
    cube = points(spec["rows"], spec["features"])
    values = np.cos(3.0 * cube.sum(axis=1)) * 0.8
    if spec["kind"] == "ridge":
        return cube, values
    scale = 0.99 * spec.get("data_norm", 1.0) / np.sqrt(spec["features"])
    if spec.get("loss") in ("huber", "absolute"):
        return (2.0 * cube - 1.0) * scale, values
    return (2.0 * cube - 1.0) * scale, np.where(values > 0, 1, -1)


def _learner(spec: dict[str, Any], epsilon: np.ndarray) -> Any:
    defaults = {"features": None, "epsilon": None}
    if spec["kind"] == "objective":
        options = {name: spec.get(name, usual) for name, usual in OBJECTIVE.items()}
        options |= {"regularization": spec["regularization"], **defaults}
        if spec["loss"] == "logistic":
            bound = {"accounting": spec.get("accounting", "sharp"), "cap": spec.get("cap")}
            return cm.PrivateLogisticRegression(classes=(-1, 1), **bound, **options)
        if spec["loss"] == "hinge":
            return learners.PrivateLinearSVC(classes=(-1, 1), width=spec["threshold"], **options)
        fitted = {"threshold": spec["threshold"], "target_range": (-1.0, 1.0)}
        return learners.PrivateHuberRegressor(**fitted, **options)
    if spec["kind"] == "ridge":
        box = {"feature_range": (0.0, 1.0), "target_range": (-1.0, 1.0)}
        box |= {"regularization": spec["regularization"], **defaults}
        options = {name: spec.get(name, usual) for name, usual in RIDGE.items()} | box
        named = spec["weighting"] if isinstance(spec["weighting"], str) else ""
        plain = {"fit_intercept": False, "perturbation": spec.get("perturbation", "output")}
        if plain["perturbation"] == "statistics":
            return cm.PersonalizedRidge(weighting="granted", **plain, **box)
        if named == "none":
            return cm.PersonalizedRidge(weighting="equal", rounding=None, **plain, **box)
        options["weighting"] = {
            "proportional": "granted", "optimal": "bound", "least": "equal"
        }.get(named, spec["weighting"])  # fmt: skip
        if named == "given":
            options["weighting"] = np.arange(1.0, len(epsilon) + 1.0)
            options["weighting"] /= options["weighting"].sum()
        noise = {"label_noise": spec.get("label_noise"), "failure_probability": 0.05}
        return cm.PersonalizedRidge(**noise, **plain, **options)
    if spec["kind"] == "descent":
        options = {name: spec[name] for name in ("hidden", "steps", "delta")}
        return noisy_descent()(max_norm=5.0, clip=1.0, classes=(-1, 1), **options)
    if spec["kind"] == "search":
        inner = _learner({**OBJECTIVE, **spec, "kind": "objective", **INNER}, epsilon)
        validation = _rows({**spec, "rows": 20})
        grid = {"regularization": [0.5, 1.0, 2.0]}
        options = {"charge": spec["charge"], "trials": spec["trials"], "epsilon": None}
        return learners.PrivateSearch(inner, grid, validation=validation, **options)
    options = {name: spec.get(name, usual) for name, usual in KERNEL.items()}
    if options["loss"] == "huber":
        options["loss"] = learners.HuberLoss(0.5)
    return cm.KernelERM(classes=(-1, 1), **options, **defaults)


INNER = {"loss": "logistic", "regularization": 1.0}


def _unperturbed(spec: dict[str, Any], epsilon: np.ndarray) -> np.ndarray:
    """Return the coefficients and the intercept of a fit without noise."""
    rows, labels = _rows(spec)
    if spec["kind"] == "ridge":
        weights = np.ones(len(rows))
        if spec["weighting"] == "given":
            weights = np.arange(1.0, len(rows) + 1.0)
        elif spec["weighting"] == "proportional":
            weights = epsilon if np.isfinite(epsilon).all() else 1.0 * np.isinf(epsilon)
        spec = {**spec, "weighting": weights / weights.sum(), "perturbation": "output"}
    learner = _learner(spec, epsilon)
    free = np.full(len(rows), np.inf)
    if spec["kind"] == "ridge":
        free = np.where(spec["weighting"] > 0, np.inf, 0.0)
    learner.fit(rows, labels, epsilon=free, random_state=Simulation(0))
    return np.append(learner.coef_, learner.intercept_)


def _learned(spec: dict[str, Any]) -> Numbers:
    rows, labels = _rows(spec)
    epsilon = _granted(spec)
    if spec.get("weighting") == "none":  # make each positive epsilon infinite
        epsilon = np.where(epsilon > 0, np.inf, 0.0)
    learner = _learner(spec, epsilon)
    numbers: Numbers = {}
    risk: dict[str, Any] = {"failure_probability": 0.05}
    if spec["kind"] == "objective":
        risk = {**CHANCES, "max_norm": 2.0}
    elif spec["kind"] == "ridge":
        risk["label_noise"] = 0.3
    elif spec["kind"] == "kernel":
        risk = {**CHANCES, "n_points": 7}
    if spec["kind"] != "search":  # the risk of a search is that of the learner
        numbers["risk"] = learner.risk(spec["features"], **risk)
    learner.fit(rows, labels, epsilon=epsilon, random_state=Simulation(0))
    numbers["epsilon"] = learner.guarantee_.epsilon
    numbers["delta"] = learner.guarantee_.delta
    if spec["kind"] == "kernel":
        for name in ("sensitivity_", "row_sensitivities_", "norm_bound_", "feature_bound_"):
            numbers[name] = getattr(learner, name)
        numbers["predictions"] = learner.decision_function(rows[:10])
        return numbers
    if spec["kind"] == "objective":
        numbers |= {"eta": learner.eta_, "rounding": _number(learner.rounding_)}
        numbers["minimum_epsilon"] = learner.solver_epsilon_
    if spec["kind"] == "ridge":
        numbers |= {"rate": learner.noise_rate_, "rounding": _number(learner.rounding_)}
    if spec["kind"] in ("objective", "ridge") and spec.get("weighting") != "optimal":
        numbers["unperturbed"] = centre = _unperturbed(spec, epsilon)
    if spec["draws"]:
        drawn = []
        for seed in range(spec["draws"]):
            learner.fit(rows, labels, epsilon=epsilon, random_state=Simulation(seed))
            drawn.append(np.append(learner.coef_, learner.intercept_))
        numbers["draws"] = _averages(drawn, centre)
    return numbers


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _averages(drawn: list[np.ndarray], centre: np.ndarray) -> Numbers:
    """Average the models, and their absolute differences from a centre, over the draws."""
    values = np.hstack([drawn, np.abs(np.array(drawn) - centre)])
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return {"mean": values.mean(axis=0), "error": error}


def compare(spec: dict[str, Any], stored: Numbers, new: Numbers) -> list[str]:
    """Compare numbers exactly, minimisers up to a tolerance, and averages up to random errors."""
    stored, new = dict(stored), dict(new)
    texts = []
    for name, allowed in (("unperturbed", 1e-6), ("predictions", 2.0 * spec.get("tol", 0.0))):
        if name in stored and name in new:
            texts += differences(stored.pop(name), new.pop(name), allowed, name)
    if "draws" in stored and "draws" in new:
        texts += apart_by_chance(stored.pop("draws"), new.pop("draws"), "draws")
    return texts + differences(stored, new)


def _release(spec: dict[str, Any], model: Any, epsilon: np.ndarray, seed: int) -> Any:
    terms = {"epsilon": epsilon, "delta": spec["delta"], "random_state": Simulation(seed)}
    terms |= {"accountant": None, "rows": None}
    if spec["kind"] == "function":
        return release.FunctionRelease(model, **terms)
    terms["accounting"] = spec["accounting"]
    if spec["kind"] == "test set":
        fit = {"noise": spec["noise"], "max_norm": 2.0}
        return cm.TestSetRelease(model, _queries(spec), **fit, **terms)
    terms["failure_probability"] = 0.05
    if spec["kind"] == "public":
        net = {"rounds": spec["rounds"], "net_radius": spec["net_radius"]}
        return release.PublicRelease(model, **net, **terms)
    counts = {name: spec[name] for name in ("max_queries", "max_updates")}
    threshold = {"threshold": spec.get("threshold")}
    return cm.InteractiveRelease(model, **counts, **threshold, **terms)


def _bound(spec: dict[str, Any], created: Any, model: Any) -> float | tuple[float, float]:
    """Compute the error bound of a release, or the two error bounds of a test set release."""
    if spec["kind"] in ("interactive", "public"):
        return created.error_bound
    terms = model.sensitivity_, 1.5, spec["delta"]
    if spec["kind"] == "function":
        return release.ErrorBounds(*terms, failure_probability=0.05).function(20)
    bounds = release.ErrorBounds(
        *terms, max_norm=2.0, feature_bound=model.feature_bound_, accounting=spec["accounting"]
    )
    bound = bounds.semi_interactive(20, spec["noise"])
    return bound.fit, bound.generalization


def _queries(spec: dict[str, Any]) -> np.ndarray:
    return (2.0 * points(4, spec["features"], 0.3) - 1.0) * 0.7


def _released(spec: dict[str, Any]) -> Numbers:
    rows, labels = _rows(spec)
    epsilon = _granted(spec)
    model = _learner({**spec, "kind": "kernel"}, epsilon)
    model.fit(rows, labels, epsilon=epsilon, random_state=Simulation(0))
    created = _release(spec, model, epsilon, 0)
    numbers: Numbers = {
        "scale": created.scale,
        "epsilon": created.guarantee.epsilon,
        "delta": created.guarantee.delta,
        "error bound": _bound(spec, created, model),
    }
    for name in ("threshold", "net_size"):
        if hasattr(created, name):
            numbers[name] = getattr(created, name)
    if spec["draws"]:
        truth = model.decision_function(_queries(spec))
        drawn = []
        for seed in range(spec["draws"]):
            created = _release(spec, model, epsilon, seed)
            message = created.noisy_predictions if spec["kind"] == "test set" else None
            drawn.append(created.predict(_queries(spec)) if message is None else message)
        numbers["draws"] = _averages(drawn, truth)
    return numbers
