"""Test that an approximate minimiser can reveal a row, and that a second noise prevents this."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from convexmarket.errors import ParameterError, PrivacyLeakWarning, SolverError
from convexmarket.learners import PersonalizedRidge, PrivateLogisticRegression
from convexmarket.learners.minimiser import minimise
from convexmarket.learners.perturbed import objective_perturbation_log_density
from convexmarket.privacy import Simulation
from convexmarket.privacy.accounting import calibrate_eta, objective_perturbation_guarantee
from convexmarket.privacy.exact_noise import gamma_sphere_draw
from convexmarket.privacy.lattice import lattice_blur
from tests import one_in
from tests.learners.builders import algorithm_1

LAMBDA, TOL = 0.1, 1e-6
ACCOUNTINGS = ["sharp", "paper"]


def sample(seed: int, n_rows: int, n_features: int):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n_rows, n_features)) / np.sqrt(n_features)
    y = np.where(X[:, 0] + 0.2 * rng.standard_normal(n_rows) > 0, 1, -1)
    return X, y, rng.dirichlet(np.ones(n_rows))


LEARNERS = [
    PrivateLogisticRegression(0.05, tol=1e-6),
    PersonalizedRidge(feature_range=(-1.0, 1.0), target_range=(-1.0, 1.0)),
    PersonalizedRidge(1.0, perturbation="output", feature_range=(-1, 1), target_range=(-1, 1)),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=["logistic", "ridge", "output"])
@pytest.mark.parametrize("least", [0.0, 1e-9, 1e-6, 1e-4, 1e-3, 0.1])
def test_no_row_loses_more_than_a_tiny_granted_epsilon(learner, least):
    X, y, _ = sample(3, 100, 2)
    granted = np.r_[np.full(99, 1.0), least]
    fitted = learner.fit(X, y, epsilon=granted, random_state=Simulation(0))
    assert (fitted.guarantee_.epsilon <= granted * (1 + 1e-12)).all()
    X[-1], y[-1] = -X[-1], -y[-1]
    if fitted.guarantee_.epsilon[-1] == 0:  # a row without epsilon must have no effect
        again = learner.fit(X, y, epsilon=granted, random_state=Simulation(0))
        np.testing.assert_array_equal(again.coef_, fitted.coef_)


#: Width of a cell of ``telltale``. The curvature of the objective is at most LAMBDA + 1/4.
#: So moving a point by 1.5 cells changes the gradient by at most 0.9 * TOL.
CELL = 0.6 * TOL / (LAMBDA + 0.25)


def telltale(objective, tolerance):
    """Minimise the objective, and encode the first label in digits below the tolerance."""
    w = minimise(objective, 1e-3 * TOL)
    even = 2.0 * np.floor(w[0] / (2.0 * CELL))
    w[0] = (even + (objective.targets[0] > 0) + 0.5) * CELL
    return w


def decoded_labels(solver_epsilon, label, n_draws):
    """Decode the label of the first row from the coefficients of several fits."""
    X, y, weights = sample(1, 12, 2)
    weights[0] = 0.01
    weights /= weights.sum()
    y[0] = label
    rng = np.random.default_rng(2 + label)
    model = algorithm_1(LAMBDA, "sharp", tol=TOL, solver_epsilon=solver_epsilon)
    message = []
    for _ in range(n_draws):
        coef = model.fit(X, y, epsilon=weights * 10.0, random_state=Simulation(rng)).coef_
        assert model.gradient_norm_ <= TOL
        message.append(1 if np.floor(coef[0] / CELL) % 2 else -1)
    return np.array(message), float(model.epsilon_[0])


def test_a_solver_within_tolerance_can_reveal_a_label(monkeypatch) -> None:
    """Check that the coefficients determine the label of the first row."""
    monkeypatch.setattr("convexmarket.learners.perturbed.minimise", telltale)
    for label in (1, -1):
        message, epsilon = decoded_labels(None, label, 50)
        assert np.all(message == label)
        assert epsilon < 0.15


def test_the_second_noise_hides_the_solver_error(monkeypatch) -> None:
    n_draws = 150
    monkeypatch.setattr("convexmarket.learners.perturbed.minimise", telltale)
    right = 0
    for label in (1, -1):
        message, epsilon = decoded_labels(0.2, label, n_draws)
        right += np.count_nonzero(message == label)
    allowed = stats.binom.isf(1e-4, 2 * n_draws, 1.0 / (1.0 + np.exp(-epsilon)))
    assert right <= allowed < 2 * n_draws


def test_the_error_of_the_solver_is_below_the_stated_resolution(monkeypatch) -> None:
    """Check the distance between the solver's result and the minimiser."""
    X, y, weights = sample(1, 12, 2)
    honest = algorithm_1(LAMBDA, tol=1e-9)
    exact = honest.fit(X, y, epsilon=weights * 10.0, random_state=Simulation(0)).coef_
    monkeypatch.setattr("convexmarket.learners.perturbed.minimise", telltale)
    model = algorithm_1(LAMBDA, tol=TOL)
    moved = np.linalg.norm(
        model.fit(X, y, epsilon=weights * 10.0, random_state=Simulation(0)).coef_ - exact
    )
    assert 0.05 * TOL / LAMBDA < moved <= TOL / LAMBDA
    assert f"digits below {2 * TOL / LAMBDA:.3g} are not read" in str(model.guarantee_)


def second_noises(solver_epsilon, n_draws, n_features=3):
    X, y, weights = sample(2, 15, n_features)
    drawn = []
    for seed in range(n_draws):
        fitted = [
            algorithm_1(LAMBDA, tol=TOL, solver_epsilon=paid)
            .fit(X, y, epsilon=weights * 10.0, random_state=Simulation(seed))
            .coef_
            for paid in (solver_epsilon, None)
        ]
        drawn.append(fitted[0] - fitted[1])
    return np.array(drawn)


@pytest.mark.campaign
def test_the_second_noise_has_the_claimed_law() -> None:
    """Check that the second noise has a Laplace law and is independent of the first noise."""
    paid, n_draws = 0.5, 250
    drawn = second_noises(paid, n_draws)
    scale = 2 * np.sqrt(3) * TOL / (LAMBDA * paid)
    laplace = stats.laplace(scale=scale).cdf
    assert stats.kstest(drawn.ravel(), laplace).pvalue > 1e-2
    for wrong in (scale / 2, 2 * scale):  # the sample is large enough to reject a wrong scale
        assert stats.kstest(drawn.ravel(), stats.laplace(scale=wrong).cdf).pvalue < 1e-12
    first = [gamma_sphere_draw(3, np.random.default_rng(seed)) for seed in range(n_draws)]
    for single, other in combinations([*drawn.T, *np.transpose(first)], 2):
        assert abs(stats.spearmanr(single, other).statistic) < 4 / np.sqrt(n_draws)


def test_floating_point_noise_gives_a_warning_and_is_stated_first() -> None:
    X, y, weights = sample(2, 15, 3)
    with pytest.warns(
        PrivacyLeakWarning, match="with solver_epsilon=None, noise is drawn in plain"
    ):
        model = PrivateLogisticRegression(solver_epsilon=None).fit(X, y, epsilon=1.0 + weights)
    assert "plain floating point" in str(model.guarantee_).splitlines()[0]
    exact = PrivateLogisticRegression().fit(X, y, epsilon=1.0 + weights).guarantee_
    assert "exact noise on a lattice" in str(exact).splitlines()[0]


def test_only_the_coefficients_of_a_default_fit_depend_on_the_rows() -> None:
    fitted = []
    for row in ([0.0, 0.0, 0.0], [1.0, 0.0, 0.0]):
        X = np.zeros((20, 3))
        X[0] = row
        model = PrivateLogisticRegression(1.0).fit(X, np.ones(20), epsilon=1.0)
        fitted.append(
            {name: str(message) for name, message in vars(model).items() if name != "coef_"}
        )
    assert fitted[0] == fitted[1]


@pytest.mark.parametrize("solver_epsilon", one_in(3, [0.02, 0.5, 3.0]))
def test_the_worst_residual_nearly_exhausts_the_guarantee(solver_epsilon) -> None:
    """Compute the densities of a published coefficient for two data sets by quadrature.

    The errors of the solver have opposite signs for these neighbouring data sets.
    """
    gradient_norm, strength, eta = 0.5, 1.0, 2000.0
    y, weights = [1, 1], [1e-6, 1 - 1e-6]
    step, scale = lattice_blur(gradient_norm / strength, 1, solver_epsilon)
    rate = 1.0 / (step * scale)
    grid = np.linspace(0.385, 0.425, 4001)  # an interval that contains the minimisers
    published = np.linspace(-60.0 / rate, 60.0 / rate, 41)
    densities = []
    for row, side in ((1.0, 1.0), (-1.0, -1.0)):
        exact = np.exp(
            [
                objective_perturbation_log_density([w], [[row], [1.0]], y, weights, eta, strength)
                for w in grid
            ]
        )
        assert integrate.trapezoid(exact, grid) == pytest.approx(1.0, abs=1e-5)
        off = published[:, None] - grid - side * gradient_norm / strength
        blurred = np.exp(-rate * np.abs(off)) * rate / 2
        densities.append(np.log(integrate.trapezoid(blurred * exact, grid, axis=1)))
    worst = np.abs(densities[0] - densities[1]).max()
    promised = objective_perturbation_guarantee(
        weights, eta, strength, solver_epsilon=solver_epsilon
    )[0]
    rounded_up = solver_epsilon / 8
    assert promised - 0.004 - rounded_up < worst <= promised
    assert worst > promised - solver_epsilon


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
def test_used_rows_are_charged_for_both_noises(accounting) -> None:
    X, y, weights = sample(0, 10, 2)
    weights[3] = 0.0
    weights /= weights.sum()
    model = algorithm_1(LAMBDA, accounting=accounting, solver_epsilon=0.25).fit(
        X, y, epsilon=weights * 20.0, random_state=Simulation(0)
    )
    exact = objective_perturbation_guarantee(weights, 20.0, LAMBDA, accounting=accounting)
    used = weights > 0
    assert model.epsilon_[used] == pytest.approx(exact[used] + 0.25, rel=1e-14)
    assert np.array_equal(model.epsilon_[~used], [0.0])


@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(1, 6),
    log_eta=st.floats(0, 5),
    regularization=st.sampled_from([1e-3, 0.03, 0.3, 5.0]),
    share=st.floats(0.0, 1.2),
    accounting=st.sampled_from(ACCOUNTINGS),
)
def test_calibrated_totals_equal_the_granted_epsilon(
    seed, n_rows, log_eta, regularization, share, accounting
) -> None:
    """Check that a larger eta would exceed the granted epsilon of a row."""
    weights = np.append(np.random.default_rng(seed).dirichlet(np.ones(n_rows)), 0.0)
    eta = 10.0**log_eta
    smallest = weights[weights > 0].min() * eta
    paid = share * smallest

    def total(candidate):
        return objective_perturbation_guarantee(
            weights, candidate, regularization, accounting=accounting, solver_epsilon=paid
        )[weights > 0]

    sold = (weights * eta)[weights > 0]
    try:
        calibrated = calibrate_eta(
            weights, eta, regularization, accounting=accounting, solver_epsilon=paid
        )
    except ParameterError:
        assert np.any(total(1e-9 * eta) > sold * (1 - 1e-6))
        return
    assert np.all(total(calibrated) <= sold)
    assert calibrated == eta or np.any(total(calibrated * (1 + 1e-9) + 1e-9 * eta) > sold)


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
def test_a_calibrated_model_keeps_the_granted_epsilon(accounting) -> None:
    X, y, weights = sample(0, 10, 2)
    sold = 1000.0 * weights
    totals = []
    for paid in (None, 0.9 * float(sold.min()) if accounting == "sharp" else 0.5):
        model = PrivateLogisticRegression(
            1.0, accounting=accounting, calibration="total", solver_epsilon=paid
        ).fit(X, y, epsilon=weights * 1000.0, random_state=Simulation(0))
        assert np.all(model.epsilon_ <= sold)
        totals.append(model.eta_)
    assert totals[1] < totals[0]


def test_a_solver_epsilon_above_the_smallest_guarantee_is_refused() -> None:
    X, y, _ = sample(0, 4, 2)
    terms = {"epsilon": [7.0, 2.0, 1.0, 0.0]}
    model = PrivateLogisticRegression(1.0)
    with pytest.raises(ParameterError, match=r"solver_epsilon = 1 .* smaller value"):
        model.set_params(solver_epsilon=1.0).fit(X, y, **terms)
    with pytest.raises(ParameterError, match=r"is too small.*solver_epsilon = 0\.999"):
        model.set_params(solver_epsilon=0.999, accounting="paper").fit(X, y, **terms)
    model.set_params(solver_epsilon=0.5, accounting="sharp").fit(X, y, **terms)
    assert np.all(model.epsilon_ <= [7.0, 2.0, 1.0, 0.0])


@pytest.mark.parametrize("paid", [0.0, -0.1, np.inf, np.nan, True, "little"])
def test_an_invalid_solver_epsilon_is_refused(paid) -> None:
    with pytest.raises(ParameterError, match="solver_epsilon"):
        algorithm_1(solver_epsilon=paid).fit([[0.5], [0.1]], [1, -1], epsilon=1.0 / 2)


def test_the_rounding_of_the_first_noise_counts_against_the_tolerance() -> None:
    """Noise of norm 1e5 has a rounding error of 1e-9, which is above the default tolerance."""
    X, y, _ = sample(0, 10, 2)
    model = algorithm_1(10.0, solver_epsilon=0.1)
    with pytest.raises(SolverError, match="nothing is released"):
        model.fit(X, y, epsilon=1e-6 / len(X), random_state=Simulation(0))
    coarse = model.set_params(tol=1e-5).fit(X, y, epsilon=1e-6 / len(X), random_state=Simulation(0))
    shift = 2e6 * np.linalg.norm(gamma_sphere_draw(2, np.random.default_rng(0)))
    assert 60 * 2.0**-53 * shift < coarse.gradient_norm_ <= 1e-5
