"""The papers' method (A, Section IV) as a baseline for other methods.

For each eta of a grid, projected gradient descent computes the weights. The method selects the best
eta of the grid. The result is not certified, because the best eta can lie between two points of the
grid or outside the grid. The error is measured relative to the exact allocation of this market.
"""

import numpy as np

import convexmarket as cm
from convexmarket.allocation.simplex import project_capped_simplex


def descend(market, eta, start, max_iterations=1000, tol=1e-8):
    """Minimise ``mu*||a|| + gamma*eta*psi'a`` by projected gradient descent on the capped simplex.

    The descent stops when a step of length ``1/(mu*sqrt(m))`` changes the weights by less than
    ``tol``, relative to their norm. Return weights, number of steps and whether they converged.
    """
    form, weights = market.standard_form, start
    for iteration in range(1, max_iterations + 1):
        norm = np.linalg.norm(weights)
        gradient = form.mu / norm * weights + form.gamma * eta * form.virtual_costs
        step = gradient / (form.mu * np.sqrt(start.size))
        moved = project_capped_simplex(weights - step, form.max_weight)
        change, weights = np.linalg.norm(moved - weights), moved
        if change <= tol * norm:
            return weights, iteration, True
    return weights, max_iterations, False


def projected_gradient(market, etas):
    """Allocate by the papers' method. Return weights, eta and the relative excess of the objective.

    The first descent starts from equal weights. Later descents start from the previous weights.
    """
    form = market.standard_form
    weights, ends = np.full(form.virtual_costs.size, 1.0 / form.virtual_costs.size), []
    for eta in etas:
        weights, _, _ = descend(market, eta, weights)
        ends.append((form.objective(weights, eta), eta, weights))
    objective, eta, weights = min(ends, key=lambda end: end[0])
    return weights, eta, objective / cm.allocate(market).objective - 1.0
