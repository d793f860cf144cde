"""Residuals equal manually computed values and do not depend on the units."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.errors import NotSupportedError
from convexmarket.studies.residuals import kkt_residuals


def two_dimensional():
    """Declare ``min x^2 + y^2`` s.t. ``x + y = 2``, ``x <= 3`` (optimum (1, 1), nu = -2)."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    return cp.Problem(cp.Minimize(x**2 + y**2), [x + y == 2, x <= 3])


def place(problem, values, multipliers):
    for variable, value in zip(problem.variables(), values, strict=True):
        variable.save_value(np.asarray(value))
    for item, value in zip(problem.constraints, multipliers, strict=True):
        item.dual_variables[0].save_value(np.asarray(value))


class TestManualValues:
    @pytest.mark.parametrize(
        ("point", "multipliers", "residuals"),
        [
            ([1.0, 1.0], [-2.0, 0.0], [0.0, 0.0, 0.0, 0.0]),
            # The equation is violated (2.5 instead of 2). The gradient is (2, 3) instead of (2, 2).
            ([1.0, 1.5], [-2.0, 0.0], [0.5 / 2.5, 0.0, 1.0 / 3.0, 2.0 * 0.5 / 3.25]),
            # The inequality is not active, but its multiplier is not zero.
            ([1.0, 1.0], [-2.0, 0.5], [0.0, 0.0, 0.25, 0.5 * 2.0 / 2.0]),
        ],
    )
    def test_residuals_of_a_two_dimensional_program_equal_manually_computed_values(
        self, point, multipliers, residuals
    ):
        problem = two_dimensional()
        place(problem, point, multipliers)
        assert kkt_residuals(problem) == pytest.approx(residuals)

    def test_residuals_include_bounds_of_a_variable(self):
        x = cp.Variable(3, bounds=[0, np.array([1.0, 1.0, np.inf])])
        target = np.array([-1.0, 3.0, 2.0])
        problem = cp.Problem(cp.Minimize(cp.sum_squares(x - target)))
        x.save_value(np.array([0.0, 1.0, 2.0]))
        assert max(kkt_residuals(problem)) == 0.0
        x.save_value(np.array([0.5, 1.0, 2.0]))  # at a distance of 0.5 from the bound
        result = kkt_residuals(problem)
        assert result.gap == pytest.approx(3.0 * 0.5 / (1.5**2 + 4.0))
        assert result.dual == 0.0
        x.save_value(np.array([0.0, 1.5, 1.0]))
        result = kkt_residuals(problem)
        assert result.violation == pytest.approx(0.5 / 1.5)
        assert result.dual > 0.1  # the bounds on the third entry are inactive

    @pytest.mark.parametrize("missing", ["value", "multiplier", "gradient"])
    def test_missing_values_have_infinite_residuals(self, missing):
        x = cp.Variable()
        problem = cp.Problem(cp.Minimize(-cp.log(x)), [x <= 1])
        place(problem, [1.0], [1.0])
        assert max(kkt_residuals(problem)) == 0.0
        if missing == "value":
            x.save_value(np.asarray(np.nan))
        elif missing == "multiplier":
            problem.constraints[0].dual_variables[0].save_value(None)
        else:
            x.value = 0.0
        assert max(kkt_residuals(problem)) == np.inf


def test_unsupported_problems_are_refused():
    cone = cp.Problem(cp.Minimize(0), [cp.SOC(cp.Variable(), cp.Variable(2))])
    integers = cp.Problem(cp.Minimize(cp.sum(cp.Variable(3, boolean=True))))
    for problem in (cone, integers):
        with pytest.raises(NotSupportedError):
            kkt_residuals(problem)


def random_program(rng, unit=1.0, price=1.0):
    """Draw a quadratic program, and scale the units of x and of the objective."""
    n = 5
    root, cost = rng.standard_normal((n, n)), rng.standard_normal(n)
    x = cp.Variable(n, name="x")
    custom = x / unit
    objective = price * (cp.sum_squares(root @ custom) + cost @ custom + 20.0)
    return x, cp.Problem(
        cp.Minimize(objective), [cp.sum(custom) == 1, custom >= -1.0, custom <= 1.0]
    )


class TestConvexPrograms:
    @given(seed=st.integers(0, 2**32 - 1))
    def test_residuals_are_small_only_at_correct_solutions(self, seed):
        x, problem = random_program(np.random.default_rng(seed))
        problem.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
        assert max(kkt_residuals(problem)) < 1e-6
        x.value = x.value + 0.05 * np.array([1.0, -1.0, 0.0, 0.0, 0.0])
        assert max(kkt_residuals(problem)) > 1e-3

    @given(seed=st.integers(0, 2**32 - 1), unit=st.floats(1e-4, 1e4), price=st.floats(1e-4, 1e4))
    def test_residuals_do_not_depend_on_units(self, seed, unit, price):
        x, plain = random_program(np.random.default_rng(seed))
        _, other = random_program(np.random.default_rng(seed), unit, price)
        plain.solve(solver="CLARABEL")
        point = np.asarray(x.value) + 0.01
        multipliers = [item.dual_value for item in plain.constraints]
        place(plain, [point], multipliers)
        place(other, [unit * point], [price * value for value in multipliers])
        first, second = kkt_residuals(plain), kkt_residuals(other)
        for name in ("primal", "violation", "dual", "gap"):
            assert getattr(first, name) == pytest.approx(getattr(second, name), rel=1e-6, abs=1e-12)


def test_a_point_without_a_gradient_is_not_stationary():
    x = cp.Variable(2, name="x")
    whole = cp.sum(x) == 1
    problem = cp.Problem(cp.Minimize(-cp.sum(cp.entr(x))), [whole])
    for at, stationary in (([0.0, 1.0], False), ([0.5, 0.5], True)):
        x.save_value(np.array(at))
        whole.dual_variables[0].save_value(np.asarray(np.log(2.0) - 1.0))
        residuals = kkt_residuals(problem)
        assert residuals.primal == 0.0
        assert residuals.dual == (pytest.approx(0.0, abs=1e-15) if stationary else np.inf)
