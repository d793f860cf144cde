"""Compare the bound on rounding errors of the gradient with eighty-digit arithmetic."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.errors import SolverError
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.privacy import Simulation
from tests.learners.builders import algorithm_1


def exact(values):
    return [Decimal(float(value)) for value in values]


def exact_gradient(objective: PerturbedObjective, w: np.ndarray) -> list[Decimal]:
    """Compute the gradient at the given floats in eighty-digit arithmetic."""
    point, shift = exact(w), exact(objective.shift)
    strength = Decimal(float(objective.regularization))
    total = [s + strength * v for s, v in zip(shift, point, strict=True)]
    for x, sign, weight in zip(objective.X, objective.targets, objective.weights, strict=True):
        row, y, a = exact(x), Decimal(float(sign)), Decimal(float(weight))
        margin = y * sum((u * v for u, v in zip(row, point, strict=True)), Decimal(0))
        decay = (-abs(margin)).exp()
        p = (decay if margin > 0 else Decimal(1)) / (1 + decay)
        total = [t - a * p * y * u for t, u in zip(total, row, strict=True)]
    return total


def true_error_and_norm(objective, w):
    with localcontext() as context:
        context.prec = 80
        true = exact_gradient(objective, w)
        off = [t - c for t, c in zip(true, exact(objective.gradient(w)), strict=True)]
        lengths = (sum((v * v for v in vector), Decimal(0)).sqrt() for vector in (off, true))
        error, norm = lengths
    return error, norm


def instance(rng, n_rows, n_features, size=1.0):
    X = size * rng.standard_normal((n_rows, n_features)) / np.sqrt(n_features)
    signs = rng.choice([-1.0, 1.0], n_rows)
    return X, signs, rng.dirichlet(np.ones(n_rows))


@given(
    seed=st.integers(0, 10**6),
    n_rows=st.sampled_from([1, 3, 17]),
    n_features=st.sampled_from([1, 2, 6]),
    log_size=st.integers(-3, 5),
    log_shift=st.integers(-3, 8),
    log_regularization=st.integers(-6, 3),
    log_point=st.integers(-4, 12),
    solved=st.booleans(),
)
def test_the_bound_holds_at_random_points_and_at_minimisers(
    seed, n_rows, n_features, log_size, log_shift, log_regularization, log_point, solved
) -> None:
    rng = np.random.default_rng(seed)
    size = 10.0**log_size
    X, signs, weights = instance(rng, n_rows, n_features, size)
    shift = 10.0**log_shift * rng.standard_normal(n_features)
    objective = PerturbedObjective(X, signs, weights, shift, 10.0**log_regularization)
    w = 10.0**log_point * rng.standard_normal(n_features)
    if solved:
        w = minimise(objective, 1e-10)
    computed, rounding = objective.gradient_norm(w)
    error, norm = true_error_and_norm(objective, w)
    assert error <= Decimal(rounding)
    assert norm <= Decimal(computed) + Decimal(rounding)
    assert computed == np.linalg.norm(objective.gradient(w))


def cancelling_margin(rng):
    """Return an objective and a point at which the margin is a difference of large numbers."""
    direction = rng.standard_normal(2)
    row = np.array([[direction[1], -direction[0]]]) / np.linalg.norm(direction)
    objective = PerturbedObjective(row, np.ones(1), np.ones(1), np.zeros(2), 1e-12)
    return objective, 1e8 * direction


def cancelling_terms(rng):
    """Return an objective and a point at which the linear and the quadratic term cancel."""
    X, signs, weights = instance(rng, 3, 4, size=1e-6)
    w = rng.standard_normal(4)
    return PerturbedObjective(X, signs, weights, -1e6 * w * (1 + 1e-6), 1e6), w


def few_rows(rng):
    """Return an objective and a point at which few operations cause rounding errors."""
    X, signs, weights = instance(rng, 2, 1)
    return PerturbedObjective(X, signs, weights, np.zeros(1), 1e-9), 0.1 * rng.standard_normal(1)


@pytest.mark.parametrize(
    ("case", "error_at_least", "share"),
    [(cancelling_margin, 1e-11, 0.02), (cancelling_terms, 1e-11, 0.02), (few_rows, 1e-18, 0.004)],
)
def test_each_part_of_the_bound_is_needed(case, error_at_least, share) -> None:
    """Check that the bound is valid, and nearly tight if one source of error dominates."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(40):
        objective, w = case(rng)
        rounding = objective.gradient_norm(w)[1]
        error = float(true_error_and_norm(objective, w)[0])
        ratios.append(error / rounding)
        assert rounding > error_at_least
    assert share < max(ratios) <= 1.0


def test_a_tolerance_below_the_rounding_error_is_refused() -> None:
    rng = np.random.default_rng(0)
    X, y, _ = instance(rng, 30, 3, size=1e6)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1) / 1e7)[:, None]
    model = algorithm_1(1.0, data_norm=1e7)
    with pytest.raises(SolverError, match=r"rounding error.*larger regularization, tol or eta"):
        model.fit(X, y, epsilon=100.0 / len(X), random_state=Simulation(0))
    assert not hasattr(model, "coef_")
    model.set_params(tol=1e-6).fit(X, y, epsilon=1e9 / len(X), random_state=Simulation(0))
    assert model.gradient_norm_ <= 1e-6


@pytest.mark.parametrize(("rounding", "accepted"), [(0.2, False), (0.09, True)])
def test_rounding_counts_against_the_tolerance(monkeypatch, rounding, accepted) -> None:
    tol = 1e-9
    monkeypatch.setattr(
        PerturbedObjective, "gradient_norm", lambda self, w: (0.9 * tol, rounding * tol)
    )
    model = PrivateLogisticRegression(0.1, tol=tol, solver_epsilon=None)
    if accepted:
        model.fit([[0.5], [0.1]], [1, -1], epsilon=5.0, random_state=Simulation(0))
        assert model.gradient_norm_ == pytest.approx((0.9 + rounding) * tol)
    else:
        with pytest.raises(SolverError, match="gradient norm of 9e-10"):
            model.fit([[0.5], [0.1]], [1, -1], epsilon=5.0, random_state=Simulation(0))
