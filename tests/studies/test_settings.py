"""Settings have their stated effect for every installed solver, by independent residuals."""

import cvxpy as cp
import numpy as np
import osqp
import pytest
from scipy import sparse

import convexmarket as cm
from convexmarket.studies.measure import measure
from convexmarket.studies.settings import ACCURACIES, SETTINGS, options_of
from convexmarket.studies.subproblems.markets import at_best_eta

KNOWN = ("CLARABEL", "DAQP", "ECOS", "HIGHS", "OSQP", "PIQP", "PROXQP", "QOCO", "QPALM", "SCS")
INSTALLED = [name for name in KNOWN if name in cp.installed_solvers()]


@pytest.fixture(scope="module")
def market():
    sellers = cm.Sellers(np.linspace(1, 5, 20), prior=cm.Uniform(1, 5))
    return at_best_eta(cm.Market.standard(sellers, mu=1, sigma=1, gamma=1))


@pytest.mark.parametrize("solver", INSTALLED)
@pytest.mark.parametrize("setting", SETTINGS)
def test_requested_tolerances_are_accepted_and_reached(market, solver, setting):
    row = measure(market, "projection", solver, options_of(setting, solver))
    assert not row["message"]
    # CVXPY cannot pass a gap tolerance to PROXQP, QPALM and HIGHS.
    gap = row["absolute_gap"] if solver not in ("PROXQP", "QPALM", "HIGHS") else 0.0
    assert max(row["absolute_primal"], gap) <= 2 * ACCURACIES.get(setting, np.inf)


def test_settings_are_options_of_the_solver_packages():
    single = sparse.csc_matrix(np.eye(1))
    solver = osqp.OSQP()
    solver.setup(single, np.ones(1), single, np.zeros(1), np.ones(1), verbose=False)
    for name, value in options_of("solver-default", "OSQP").items():
        assert getattr(solver.settings, name) == value
    assert options_of("solver-default", "CLARABEL") == {}


def test_a_solver_outside_the_table_has_no_options():
    assert options_of("default", "MINE") == {}
    assert all(options_of(name, "MINE") is None for name in SETTINGS if name != "default")
