"""Test that every formulation of a subproblem has the optimum of an exact method."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import NotSupportedError
from convexmarket.studies.residuals import kkt_residuals
from convexmarket.studies.subproblems import models
from convexmarket.studies.subproblems.markets import at_eta, budget, guarantees
from convexmarket.studies.subproblems.models import fit, logistic, ridge, z_block
from convexmarket.studies.subproblems.problem_classes import CLASSES
from tests.allocation.brute_force import ACCURATE

TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
PRIOR = cm.Uniform(0.02, 0.1)
BASE = cm.Spread() + 100.0 * cm.Noise()
SQUARED = 20.0 * cm.terms.SquaredSpread()


def market(rng, objective, *constraints, size=30):
    return cm.Market(cm.Sellers(PRIOR.sample(size, rng), PRIOR), objective, list(constraints))


def rows_of(rng, size):
    X = rng.standard_normal((size, 3))
    return X / np.linalg.norm(X, axis=1).max(), np.where(rng.random(size) < 0.6, 1.0, -1.0)


def some_logistic(rng, size=25):
    X, y = rows_of(rng, size)
    return logistic(X, y, rng.dirichlet(np.ones(size)), 0.1, 0.1 * rng.standard_normal((2, 3)))


def some_ridge(rng, size=25):
    X, y = rows_of(rng, size)
    labels = y + 0.1 * rng.standard_normal((2, size))
    return ridge(X, labels, rng.dirichlet(np.ones(size)), 0.1)


def some_fit(rng):
    X, y = rows_of(rng, 40)
    rows = SimpleNamespace(X_train=X, y_train=y, X_test=X[:20], data_norm=1.0)
    return models.draw_fit(rows, 0.01, 25, rng)


def some_z_block(rng, *constraints, spread=SQUARED, size=25):
    X, y = rows_of(rng, size)
    bought = market(rng, spread + 10 * cm.Noise() + 0.1 * cm.Payments(), *constraints, size=size)
    return z_block(cm.JointMarket(bought, X, y, regularization=0.05))


PAID = BASE + 0.001 * cm.Payments()
MAKERS = {
    "papers": lambda rng: at_eta(market(rng, PAID, cm.Cap(5))),
    "papers without a cap": lambda rng: at_eta(market(rng, PAID)),
    "guarantees": lambda rng: guarantees(rng.uniform(0.01, 1.0, 30), 1.0, 1.0),
    "squared": lambda rng: at_eta(market(rng, PAID + cm.terms.SquaredSpread(), cm.MaxEpsilon(2.0))),
    "cubic": lambda rng: at_eta(
        market(rng, cm.Spread(3) + 100 * cm.Noise() + 0.001 * cm.Payments(cm.PowerCost(2)))
    ),
    "budget": lambda rng: budget(market(rng, BASE, cm.Cap(2), cm.Budget(5.0))),
    "logistic": some_logistic,
    "ridge": some_ridge,
    "fit": some_fit,
    "z-block": some_z_block,
    "z-block of a norm": lambda rng: some_z_block(rng, spread=1.0 * cm.Spread()),
    "z-block with a cap": lambda rng: some_z_block(rng, cm.Cap(2), cm.EtaRange(5, 6)),
}
DECLARED = [
    pytest.param(make, formulation, id=f"{name}, {formulation}")
    for name, make in MAKERS.items()
    for formulation in CLASSES[make(np.random.default_rng(0)).problem_class]
]


def solve(declared, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests check the solutions
        declared.problem.solve(**(options or TIGHT))
    return declared.answer()


def check(instance, formulation, tolerance=1e-7):
    """Compare answers for two parameter values with exact answers or with answers of CLARABEL."""
    first = CLASSES[instance.problem_class][0]
    declared, other = instance.declare(formulation), instance.declare(first)
    assert declared.problem.is_dcp(dpp=True)
    answers, programs = [], []
    for value in instance.values:
        declared.place(value)
        other.place(value)
        answer, best = solve(declared), instance.exact(value)
        programs.append(declared.problem._cache.param_prog)
        assert max(kkt_residuals(declared.problem, instance.scale(value))) < 1e-3
        if best is None:
            best = solve(other, solver="CLARABEL", **ACCURATE)
        else:
            assert instance.violation(best) <= 1e-10
            assert answer == pytest.approx(best, abs=1e-3 * np.abs(best).max())
        optimum = instance.objective(best, value)
        size = max(abs(optimum), instance.scale(value))
        assert abs(instance.objective(answer, value) - optimum) <= tolerance * size
        assert instance.violation(answer) <= 10 * tolerance
        answers.append(answer)
    assert programs[0] is programs[1], "a new value must not cause a second compilation"
    return answers


@pytest.mark.parametrize(("make", "formulation"), DECLARED)
def test_every_declaration_has_the_exact_optimum_for_two_parameter_values(make, formulation):
    instance = make(np.random.default_rng(3))
    first, second = check(instance, formulation)
    assert not np.allclose(first, second, rtol=1e-6)


# ------------------------------------------------------------------------------ the markets


def test_the_second_eta_lies_in_the_range_of_the_market():
    free = market(np.random.default_rng(0), PAID)
    eta = cm.allocate(free).eta
    for low, high, change in ((0.5, 1.0, 1 / 1.25), (1.0, 2.0, 1.25), (0.5, 2.0, 1.25)):
        bounded = cm.Market(free.sellers, PAID, [cm.EtaRange(low * eta, high * eta)])
        first, second = at_eta(bounded).values
        assert second == pytest.approx(change * first)


@pytest.mark.parametrize("objective", [PAID, PAID + SQUARED])
def test_an_infeasible_eta_is_refused(objective):
    with pytest.raises(NotSupportedError, match="fewer than two values of eta"):
        at_eta(market(np.random.default_rng(0), objective, cm.EtaRange(2.0, 2.0)))


# ------------------------------------------------------------------------------- the models


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["zero weights", "duplicates", "one row", "one label", "wide"]),
    st.sampled_from([("logistic", each) for each in CLASSES["weighted logistic regression"]]
                    + [("ridge", each) for each in CLASSES["ridge"]]),
)  # fmt: skip
def test_models_of_degenerate_data_are_solved(seed, kind, declared):
    rng = np.random.default_rng(seed)
    size = {"one row": 1, "wide": 2}.get(kind, 12)
    X, y = rows_of(rng, size)
    weights = rng.dirichlet(np.ones(size))
    if kind == "zero weights":
        weights[: size // 2] = 0.0
        weights /= weights.sum()
    elif kind == "duplicates":
        X, y = np.repeat(X[:3], 4, axis=0), np.repeat(y[:3], 4)
    elif kind == "one label":
        y = np.ones(size)
    if declared[0] == "logistic":
        instance = logistic(X, y, weights, 0.1, 0.1 * rng.standard_normal((2, 3)))
    else:
        instance = ridge(X, np.array([y, y + 0.1]), weights, 0.1)
    check(instance, declared[1])


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1.0), st.booleans())
def test_the_exact_fit_satisfies_the_optimality_conditions(seed, bound, repeated):
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((15, 2))
    points = np.tile(points[:5], (3, 1)) if repeated else points
    kernel = np.exp(-((points[:, None] - points) ** 2).sum(axis=2) / 2)
    p = rng.standard_normal(15)
    values, norm = np.split(fit(kernel, np.array([p, p]), bound).exact(p), [15])
    # Stationarity: K (p - f) = nu f. If the norm is below the bound, nu = 0.
    assert norm[0] <= bound * (1 + 1e-12)
    binds = norm[0] >= bound * (1 - 1e-12)
    nu = values @ (p - values) / bound**2 if binds else 0.0
    assert nu >= 0
    size = np.abs(kernel).sum(axis=1).max() * np.abs(p).max()
    assert kernel @ (p - values) == pytest.approx(nu * values, abs=1e-12 * size)


def test_sellers_who_cannot_sell_have_no_weight_in_a_z_block():
    instance = some_z_block(np.random.default_rng(10), cm.Cap([2, 2, 0, 2]), size=4)
    for formulation in CLASSES["z-block"]:
        check(instance, formulation)
    assert np.flatnonzero(instance.exact(instance.values[0])).tolist() == [0, 1, 3]


def test_z_blocks_without_a_known_optimum_are_refused():
    with pytest.raises(NotSupportedError, match="linearised at the optimal weights"):
        some_z_block(np.random.default_rng(0), spread=1.0 * cm.Spread(p=np.inf))


def test_the_classifier_of_a_market_is_perturbed_for_the_sold_privacy(monkeypatch):
    trained = {}

    def logistic(X, y, weights, regularization, noise):
        trained.update(X=X, weights=weights, noise=noise)

    monkeypatch.setattr(models, "logistic", logistic)
    monkeypatch.setattr(models, "gamma_sphere_noise", lambda size, rng: np.ones(size))
    X, y = rows_of(np.random.default_rng(1), 40)
    rows = SimpleNamespace(X_train=X, y_train=y, data_norm=0.7)
    sold = market(np.random.default_rng(0), cm.Spread() + 10 * cm.Noise() + 0.1 * cm.Payments())
    models.draw_logistic(rows, sold, 0.1, np.random.default_rng(0))
    bought = cm.allocate(sold)
    assert (trained["noise"] == 2 * 0.7 / bought.eta).all()
    assert 0 < len(trained["X"]) < 30
    np.testing.assert_array_equal(trained["weights"], bought.weights[bought.weights > 0])


def test_the_objective_and_the_optimum_for_two_guarantees_are_correct():
    instance = guarantees(np.array([1.0, 3.0]), 1.0, 2.0)
    assert instance.objective(np.array([0.5, 0.5, 0.25]), instance.values[0]) == pytest.approx(
        0.5**0.5 + 0.5
    )
    first, second = instance.exact(instance.values[0]), instance.exact(instance.values[1])
    assert first[1::-1] == pytest.approx(second[:2])
    assert (first[:2] <= first[2] * np.array([1.0, 3.0]) + 1e-12).all()
