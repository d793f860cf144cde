"""Test the solution error, the guarantee and the noise of ridge regression on a lattice."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.learners import ridge_math
from convexmarket.learners.domain import Granted
from convexmarket.learners.ridge_math import row_sum, solve_error, solve_ridge
from convexmarket.privacy import Simulation
from convexmarket.privacy.sensitivity import ridge_norm_bound
from tests.learners.builders import (
    PRIVATE_RIDGES,
    check_lattice_noise,
    neighbours,
    output_ridge,
    ridge_sample,
)


def exact_solution(X, y, weights, alpha):
    """Solve the normal equations exactly by Gauss-Jordan elimination in rational numbers."""
    rows = [[Fraction(value) for value in row] for row in X.tolist()]
    d = len(rows[0])
    shares, labels = [Fraction(w) for w in weights.tolist()], [Fraction(v) for v in y.tolist()]
    table = [
        [sum(w * x[i] * x[j] for w, x in zip(shares, rows, strict=True)) for j in range(d)]
        + [sum(w * x[i] * v for w, x, v in zip(shares, rows, labels, strict=True))]
        for i in range(d)
    ]
    for i in range(d):
        table[i][i] += Fraction(alpha)
    for i in range(d):
        pivot = table[i][i]
        table[i] = [entry / pivot for entry in table[i]]
        for other in range(d):
            if other != i:
                factor = table[other][i]
                table[other] = [a - factor * b for a, b in zip(table[other], table[i], strict=True)]
    return [row[-1] for row in table]


def residual(X, y, weights, alpha, model):
    """Compute half the negative gradient with the floating-point operations of a fit."""
    return row_sum(X, partial(ridge_math._misfit, model), y, weights) - alpha * model


def planned(model, epsilon, d, rng=None):
    """Return the plan of a fit with d features."""
    rng = np.random.default_rng(0) if rng is None else rng
    return model._plan(Granted(epsilon), d, model._domain(d))


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(-5, 3), st.booleans())
def test_no_solution_error_exceeds_its_bound(seed, d, log_alpha, alike) -> None:
    rng = np.random.default_rng(seed)
    n, alpha = int(rng.integers(d, 12)), 10.0**log_alpha
    X, y = rng.random((n, d)), rng.uniform(-1, 1, n)
    if alike:  # nearly equal rows have the largest condition number
        X, y = 1.0 - 1e-9 * X, np.sign(y)
    weights = rng.dirichlet(np.ones(n))
    bound = solve_error(n, d, alpha)
    result, exact = solve_ridge(X, y, weights, alpha), exact_solution(X, y, weights, alpha)
    squared = sum((Fraction(a) - b) ** 2 for a, b in zip(result.tolist(), exact, strict=True))
    assert squared <= Fraction(bound.distance) ** 2
    assert np.linalg.norm(residual(X, y, weights, alpha, result)) <= bound.residual
    assert np.linalg.norm(result) <= bound.norm


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.floats(-2, 2), st.floats(-14, 0))
def test_a_solution_that_passes_the_check_is_within_the_stated_distance(
    seed, d, log_alpha, log_off
) -> None:
    """Check that a perturbed solution is rejected or is within the stated distance."""
    rng = np.random.default_rng(seed)
    X, y, weights = rng.random((6, d)), rng.uniform(-1, 1, 6), rng.dirichlet(np.ones(6))
    alpha = 10.0**log_alpha
    bound = solve_error(6, d, alpha)
    exact = exact_solution(X, y, weights, alpha)
    off = np.array([float(value) for value in exact]) + 10.0**log_off * rng.normal(size=d)
    left = np.linalg.norm(residual(X, y, weights, alpha, off))
    squared = sum((Fraction(a) - b) ** 2 for a, b in zip(off.tolist(), exact, strict=True))
    if left <= bound.residual and np.linalg.norm(off) <= bound.norm:
        assert squared <= Fraction(bound.distance) ** 2
    if squared > Fraction(bound.distance) ** 2:
        assert left > bound.residual or np.linalg.norm(off) > bound.norm


def test_an_inaccurate_solver_is_detected(monkeypatch) -> None:
    X, y, epsilon = ridge_sample(0)
    account = cm.PrivacyAccountant(epsilon)
    monkeypatch.setattr(
        ridge_math, "solve_ridge", lambda *arguments: solve_ridge(*arguments) * (1.0 + 1e-6)
    )
    model = output_ridge(1.0, rounding=1e-9)
    with pytest.raises(SolverError, match="linear algebra"):
        model.fit(X, y, epsilon=epsilon, accountant=account, random_state=Simulation(0))
    # the failure depends on private rows, so the charge remains
    assert np.all(account.spent > 0)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("estimator", PRIVATE_RIDGES)
@given(case=neighbours(), log_step=st.floats(-30, 0))
def test_no_privacy_loss_exceeds_the_guarantee(estimator, case, log_step) -> None:
    """The largest privacy loss is the L1 distance of two models, divided by the noise scale."""
    X, y, X2, y2, row, epsilon, alpha = case
    model = estimator(alpha, rounding=2.0**log_step)
    lattice = planned(model, epsilon, X.shape[1])
    places = []
    for rows, labels in ((X, y), (X2, y2)):
        result = lattice.solve(rows, labels)
        places.append(
            [round(Fraction(value) / Fraction(lattice.step)) for value in result.tolist()]
        )
    steps = sum(abs(a - b) for a, b in zip(*places, strict=True))
    assert Fraction(steps) / lattice.scale <= Fraction(float(lattice.epsilon[row]))
    assert np.all(lattice.epsilon <= epsilon)


def test_the_sensitivity_uses_the_actual_sum_of_the_weights() -> None:
    """Check weights whose sum differs slightly from one."""
    epsilon = ridge_sample(1, 8, 2)[2]
    scales = []
    for total in (1.0, 1.0 + 9e-7):
        model = output_ridge(0.5, weighting=np.full(8, total / 8), rounding=2.0**-40)
        scales.append(planned(model, epsilon, 2).scale)
    assert scales[1] / scales[0] > 1.0 + 8e-7


def test_the_noise_is_discrete_laplace_in_every_coordinate() -> None:
    check_lattice_noise(150)


@pytest.mark.parametrize("d", [1, 3, 10])
def test_the_error_of_exact_noise_equals_its_formula(d) -> None:
    """Compare the root mean squares of the norms of lattice noise and spherical noise."""
    X, y, epsilon = ridge_sample(5, 50, d)
    plain = output_ridge(1.0, rounding=None).fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    exact = output_ridge(1.0, rounding=2.0**-40).fit(
        X, y, epsilon=epsilon, random_state=Simulation(0)
    )
    spherical = np.sqrt(d * (d + 1)) / plain.noise_rate_
    lattice = np.sqrt(2 * d) / exact.noise_rate_
    assert lattice / spherical == pytest.approx(np.sqrt(2 * d / (d + 1)), rel=1e-6)


def test_the_solver_gets_rows_and_labels_exactly_inside_the_box(monkeypatch) -> None:
    X, y, epsilon = ridge_sample(7)
    X[0], X[1], y[:2] = 1.0 + 9e-13, -9e-13, [1.0 + 9e-13, -1.0 - 9e-13]
    seen = []

    def watched(rows, labels, weights, alpha):
        seen.append((rows[:].copy(), labels.copy()))
        return solve_ridge(rows, labels, weights, alpha)

    monkeypatch.setattr(ridge_math, "solve_ridge", watched)
    output_ridge(1.0, rounding=1e-9).fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    ((rows, labels),) = seen
    assert np.array_equal(rows, np.clip(X, 0.0, 1.0))
    assert np.array_equal(labels, np.clip(y, -1.0, 1.0))


@pytest.mark.parametrize(
    ("parameters", "n", "d", "error", "words"),
    [
        ({"rounding": 0.0}, 9, 2, ParameterError, "rounding"),
        ({"rounding": "fine"}, 9, 2, ParameterError, "rounding"),
        ({"rounding": True}, 9, 2, ParameterError, "rounding"),
        ({"rounding": 1e-120}, 9, 2, ParameterError, "too fine for values up to"),
        ({"rounding": 1e-6}, 3, 4, NotSupportedError, "as many rows"),
        ({"rounding": 1e-6, "regularization": 1e-8}, 9, 2, NotSupportedError, "too small"),
    ],
)
@pytest.mark.parametrize("estimator", PRIVATE_RIDGES)
def test_settings_without_a_provable_bound_are_refused(
    estimator, parameters, n, d, error, words
) -> None:
    X, y, epsilon = ridge_sample(8, n, d)
    with pytest.raises(error, match=words):
        estimator(**parameters).fit(X, y, epsilon=epsilon)


@pytest.mark.campaign
def test_expected_losses_equal_a_simulation() -> None:
    """On a coarse lattice, the closed form must include the effect of rounding."""
    X, y, epsilon = ridge_sample(9)
    model = output_ridge(1.0, rounding=2.0**-4)
    expected = cm.learners.expected_loss(model, X, y, X, y, epsilon=epsilon)
    source, losses = Simulation(np.random.default_rng(0)), []
    for _ in range(400):
        model.fit(X, y, epsilon=epsilon, random_state=source)
        losses.append(np.mean((y - model.predict(X)) ** 2))
    assert abs(np.mean(losses) - expected.mean) < 4 * np.std(losses) / 20
    assert np.std(losses) == pytest.approx(expected.std, rel=0.3)


def test_a_row_with_a_tiny_epsilon_does_not_determine_the_noise() -> None:
    """A row with epsilon 1e-17 is dropped, because rounding causes a larger privacy loss."""
    X, y, epsilon = ridge_sample(5, 60, 3)
    model = output_ridge(1.0)
    usual = model.fit(X, y, epsilon=epsilon).noise_rate_
    epsilon[0] = 1e-17
    assert model.fit(X, y, epsilon=epsilon).noise_rate_ > 0.9 * usual
    assert model.epsilon_[0] == 0.0
    assert np.all(model.epsilon_ <= epsilon)


def test_the_guarantee_states_inexact_noise_in_its_first_line() -> None:
    X, y, epsilon = ridge_sample(5, 3, 5)
    with pytest.warns(cm.PrivacyLeakWarning, match="plain floating point"):
        model = output_ridge(1.0).fit(X, y, epsilon=epsilon)
    assert "noise in plain floating point" in str(model.guarantee_).splitlines()[0]
    assert model.rounding_ is None


def test_user_defined_weights_must_be_zero_for_epsilon_zero() -> None:
    X, y, epsilon = ridge_sample(5, 4, 2)
    epsilon[0] = 0.0
    weights = np.full(4, 0.25)
    with pytest.raises(ParameterError, match="weighting is positive in rows that granted"):
        output_ridge(1.0, weighting=weights).fit(X, y, epsilon=epsilon)


def test_lattice_noise_exceeds_its_constant_as_rarely_as_stated():
    """Check the bound that Chebyshev's inequality gives for the squared norm of the noise."""
    d, chance = 4, 0.05
    kappa = cm.privacy.sensitivity.ridge_sensitivity(5.0, d, None, "tight")
    sigma = cm.learners.ridge_risk_constants(5.0, d, 0.1, chance, exact=True)[1]
    mean, variance = 2.0 * d, 20.0 * d
    exceeds = variance / ((sigma / kappa) ** 2 / d - mean) ** 2
    assert chance / 2.0 - 1e-12 <= exceeds <= chance


@pytest.mark.parametrize("distance", [0.0, 0.25])
def test_the_sensitivity_on_the_lattice_equals_its_formula(distance, monkeypatch) -> None:
    """Check that the bound adds the sensitivity, two solution errors and the rounding error."""
    monkeypatch.setattr(
        ridge_math, "solve_error", lambda *_: ridge_math.SolveError(1.0, 1.0, distance)
    )
    epsilon, step = ridge_sample(1, 8, 3)[2], 2.0**-12
    model = output_ridge(1.0, rounding=step)
    lattice = planned(model, epsilon, 3)
    moved = cm.privacy.sensitivity.ridge_sensitivity(1.0, 3) * lattice.weights + 2 * distance
    steps = np.ceil(np.sqrt(3) * moved / step) + 2
    assert lattice.scale == pytest.approx(np.max(steps / epsilon), abs=1.0)
    assert lattice.epsilon * lattice.scale == pytest.approx(steps, rel=1e-12)


def test_a_row_with_a_tiny_weight_is_dropped_without_loss_to_other_rows():
    """Check that a row is dropped because of its tiny weight, although its epsilon is not tiny."""
    sold = np.concatenate((np.full(10, 1.0), np.full(990, 1e-12), [1e-7]))
    learner = output_ridge(10.0, weighting="bound", label_noise=0.1)
    epsilon = learner.promise(sold, 2).epsilon
    assert not epsilon[10:].any()
    assert epsilon[:10].min() > 0.9


@pytest.mark.parametrize("d", [2, 10, 50])
def test_the_bound_covers_the_backward_error_of_cholesky(d):
    """Compare the bound with (3d + 1) u times the trace d (1 + lambda) (Higham, Theorem 10.4)."""
    norm = ridge_norm_bound(100.0, d)
    least = (3 * d + 1) * d * (1 + 100.0) * norm * 2.0**-53
    assert solve_error(d, d, 100.0).residual >= least
