"""The joint problem as a nonlinear program in CVXPY's nonlinear interface.

Products of variables violate the DCP rules. ``solve(nlp=True)`` accepts such products and passes
derivatives to a local solver. The method requires CVXPY 1.9 and the solver Uno (unopy).
"""

import contextlib
import os

import cvxpy as cp
import numpy as np

#: Uno's methods in the order in which they are tried.
PRESETS = ("ipopt", "filtersqp")


def solve_nonlinear(joint, terms, model, weights, eta):
    """Solve from a starting point. Return model, weights and eta, or None if the solver fails.

    The variables are the model, ``m*a`` and ``eta/eta_start``, and all are of order one.
    """
    m, n = joint.X.shape
    for preset in PRESETS:
        w, scaled = cp.Variable(n), cp.Variable(m, nonneg=True)
        ratio = cp.Variable(pos=True)
        epsilon = (eta / m) * (ratio * scaled)
        length = cp.sum_squares(scaled / m) if terms.squared else cp.norm(scaled / m, 2)
        losses = cp.logistic(-(joint.y[:, None] * joint.X) @ w)
        objective = cp.sum(cp.multiply(scaled, losses)) / m + terms.mu * length
        objective += joint.regularization / 2 * cp.sum_squares(w)
        objective += terms.gamma * (joint.market.sellers.virtual_costs @ epsilon)
        objective += terms.sigma * (cp.power(ratio, -1) / eta)
        limits = [] if terms.cap is None else [scaled <= terms.cap]
        problem = cp.Problem(cp.Minimize(objective), [cp.sum(scaled) == m, *limits])
        inside = np.maximum(weights, 1e-3 / m)
        w.value, scaled.value, ratio.value = model, inside * (m / inside.sum()), 1.0
        failures = (cp.error.SolverError, ValueError, ArithmeticError, LookupError)
        with contextlib.suppress(*failures), _silence():
            problem.solve(nlp=True, preset=preset)
        if problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            bought = np.where(scaled.value < 1e-6, 0.0, scaled.value)
            return w.value, bought / bought.sum(), eta * float(ratio.value)
    return None


@contextlib.contextmanager
def _silence():
    """Suppress the output of the solver, which prints from C++."""
    saved, target = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(target, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(target)
