"""The papers' method (A, Section IV), as the baseline that other methods are compared with.

For each eta of a grid, projected gradient descent on the weights; then the best of the grid. It
has no guarantee: the best eta may lie between two points of the grid, or beyond it. The exact
allocation of the same market says how far off the answer is.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import convexmarket as cm
from convexmarket.allocation.simplex import project_capped_simplex

Floats = NDArray[np.float64]


class Descent(NamedTuple):
    """Weights at one eta, the number of steps, and whether they converged."""

    weights: Floats
    iterations: int
    converged: bool


class GridAnswer(NamedTuple):
    """The best point of the grid, its excess over the optimum relative to it, and all descents."""

    weights: Floats
    eta: float
    objective: float
    excess: float
    descents: list[Descent]


def descend(
    market: cm.Market,
    eta: float,
    start: Floats,
    step: float | None = None,
    max_iterations: int = 1000,
    tol: float = 1e-8,
) -> Descent:
    """Minimise ``mu*||a|| + gamma*eta*psi'a`` by projected gradient descent on the capped simplex.

    It stops when a step changes the weights by less than ``tol``, relative to their norm. Where
    ``step`` is left out it is ``1/(mu*sqrt(m))``, one over the gradient's Lipschitz constant; steps
    up to twice as long descend.
    """
    form, weights = market.standard_form, start
    step = 1.0 / (form.mu * np.sqrt(start.size)) if step is None else step
    for iteration in range(1, max_iterations + 1):
        norm = np.linalg.norm(weights)
        gradient = form.mu / norm * weights + form.gamma * eta * form.virtual_costs
        moved = project_capped_simplex(weights - step * gradient, form.max_weight)
        change, weights = np.linalg.norm(moved - weights), moved
        if change <= tol * norm:
            return Descent(weights, iteration, True)
    return Descent(weights, max_iterations, False)


def projected_gradient(market: cm.Market, etas: ArrayLike, **options: float) -> GridAnswer:
    """Allocate privacy as the papers do: descent on the weights for each eta of an increasing grid.

    The descent at one eta starts from the weights of the previous one, the first from equal
    weights. ``options`` are those of :func:`descend`.
    """
    form = market.standard_form
    weights = np.full(form.virtual_costs.size, 1.0 / form.virtual_costs.size)
    descents = []
    for eta in np.asarray(etas, dtype=float):
        descents.append(descend(market, float(eta), weights, **options))
        weights = descents[-1].weights
    values = [form.objective(d.weights, eta) for d, eta in zip(descents, etas, strict=True)]
    best, optimum = int(np.argmin(values)), cm.allocate(market).objective
    excess = values[best] / optimum - 1.0
    return GridAnswer(descents[best].weights, float(etas[best]), values[best], excess, descents)
