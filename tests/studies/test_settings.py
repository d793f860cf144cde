"""Settings mean what they say: of every solver that is installed, with our own arithmetic."""

import cvxpy as cp
import numpy as np
import osqp
import pytest
from scipy import sparse

import convexmarket as cm
from convexmarket.studies.matrices import MatrixProblem, returned_point
from convexmarket.studies.measure import measure
from convexmarket.studies.settings import ACCURACIES, SETTINGS, options_of
from convexmarket.studies.subproblems.families import at_best_eta

KNOWN = ("CLARABEL", "DAQP", "ECOS", "HIGHS", "OSQP", "PIQP", "PROXQP", "QOCO", "QPALM", "SCS")
INSTALLED = [name for name in KNOWN if name in cp.installed_solvers()]


@pytest.fixture(scope="module")
def market():
    sellers = cm.Sellers(np.linspace(1, 5, 20), prior=cm.Uniform(1, 5))
    return at_best_eta(cm.Market.standard(sellers, mu=1, sigma=1, gamma=1))


@pytest.mark.parametrize("solver", INSTALLED)
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_is_asked_for_is_taken_and_reached(market, solver, setting):
    row = measure(market, "projection", solver, options_of(setting, solver))
    assert not row["message"]
    # To a gap, PROXQP, QPALM and HIGHS cannot be held through CVXPY.
    gap = row["absolute_gap"] if solver not in ("PROXQP", "QPALM", "HIGHS") else 0.0
    assert max(row["absolute_primal"], gap) <= 2 * ACCURACIES.get(setting, np.inf)


def test_the_settings_of_solvers_are_those_of_their_packages():
    one = sparse.csc_matrix(np.eye(1))
    solver = osqp.OSQP()
    solver.setup(one, np.ones(1), one, np.zeros(1), np.ones(1), verbose=False)
    for name, value in options_of("solver-default", "OSQP").items():
        assert getattr(solver.settings, name) == value
    assert options_of("solver-default", "CLARABEL") == {}


def test_of_a_solver_that_is_not_in_the_table_nothing_is_known():
    assert options_of("default", "MINE") == {}
    assert all(options_of(name, "MINE") is None for name in SETTINGS if name != "default")


# ------------------------------------------------------------------------------ residuals


def _programs():
    x, c = cp.Variable(5), np.random.default_rng(0).normal(size=5)
    whole = [cp.sum(x) == 1]
    return {
        "quadratic": cp.Problem(cp.Minimize(cp.sum_squares(x - c)), [*whole, x >= 0]),
        "second-order": cp.Problem(
            cp.Minimize(cp.norm(x) + 0.1 * (c @ x)), [*whole, x >= 0, cp.norm(x[:2]) <= 0.3]
        ),
        "exponential": cp.Problem(
            cp.Minimize(cp.sum(cp.logistic(cp.multiply(c, x))) + cp.sum_squares(x)), whole
        ),
    }


def _solved(problem, solver):
    data, chain, inverse = problem.get_problem_data(solver, solver_opts={})
    raw = chain.solve_via_data(problem, data)
    matrices = MatrixProblem.of(data, getattr(chain.solver, "EXP_CONE_ORDER", None))
    return matrices, *returned_point(chain.solver, raw, inverse[-1])


@pytest.mark.parametrize("kind", ["quadratic", "second-order", "exponential"])
def test_residuals_vanish_at_the_optimum_and_there_only(kind):
    problem, taken = _programs()[kind], []
    for solver in INSTALLED:
        if kind != "quadratic" and solver not in ("CLARABEL", "ECOS", "SCS"):
            continue
        matrices, x, y = _solved(problem, solver)
        taken.append(solver)
        assert max(matrices.residuals(x, y)) < 1e-4
        assert matrices.residuals(x + 0.1, y)[0] > 0.01
        assert matrices.residuals(x, y + 0.1)[1] > 0.01
    assert len(taken) >= 3


def test_residuals_are_those_of_qpsolvers():
    qpsolvers = pytest.importorskip("qpsolvers")
    matrices, x, y = _solved(_programs()["quadratic"], "OSQP")
    x, y, split = x + 0.01, y - 0.02, matrices.zero
    assert (y[split:] < 0).any(), "qpsolvers does not look at signs"
    problem = qpsolvers.Problem(
        matrices.P, matrices.q, matrices.A[split:].tocsc(), matrices.b[split:],
        matrices.A[:split].tocsc(), matrices.b[:split],
    )  # fmt: skip
    theirs = qpsolvers.Solution(
        problem, x=x, y=y[:split], z=y[split:], z_box=np.empty(0), found=True
    )
    primal, dual, gap = matrices.residuals(x, y)
    assert primal == pytest.approx(theirs.primal_residual())
    assert dual == pytest.approx(max(theirs.dual_residual(), -y[split:].min()))
    assert gap == pytest.approx(theirs.duality_gap())
