"""The papers' own method (A, Section IV), as the baseline that others are compared with.

For each eta of a grid, projected gradient descent on the weights; then the best of the grid. It
has no guarantee: the best eta may lie between two points of the grid, or beyond it. Here its
answer is given the same certificate as every other, so that its gap says how far off it may be.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.bounds import eta_range
from convexmarket.allocation.eta_search import Cuts
from convexmarket.allocation.formulations import papers_form
from convexmarket.allocation.result import Allocation
from convexmarket.allocation.search import assemble, certify_weights
from convexmarket.allocation.simplex import project_capped_simplex
from convexmarket.checks import check_count, check_positive, checked_numbers
from convexmarket.errors import NotSupportedError, ParameterError, UnattainedOptimumError
from convexmarket.market import Market, StandardForm

__all__ = ["Descent", "descend", "projected_gradient"]


@dataclass(frozen=True, eq=False)
class Descent:
    """Where projected gradient descent stopped, and whether it converged."""

    weights: NDArray[np.float64]
    iterations: int
    converged: bool


def descend(
    form: StandardForm,
    t: float,
    start: NDArray[np.float64],
    step: float,
    max_iterations: int,
    tol: float,
) -> Descent:
    """Minimise ``mu*||a|| + t*psi'a`` over the capped simplex by projected gradient descent.

    A step size of at most ``2/(mu*sqrt(m))`` is sure to descend. It stops when a step changes the
    weights by less than ``tol``, relative to their norm.
    """
    weights = start
    for iteration in range(1, max_iterations + 1):
        norm = np.linalg.norm(weights)
        gradient = (form.mu / norm) * weights + t * form.virtual_costs
        moved = project_capped_simplex(weights - step * gradient, form.max_weight)
        change = np.linalg.norm(moved - weights)
        weights = moved
        if change <= tol * norm:
            return Descent(weights, iteration, True)
    return Descent(weights, max_iterations, False)


def projected_gradient(
    market: Market,
    grid: int | ArrayLike = 50,
    eta_max: float | None = None,
    step: float | None = None,
    max_iterations: int = 1000,
    tol: float = 1e-8,
) -> Allocation:
    """Allocate privacy as the papers do: descent on the weights for each eta of a grid.

    See :func:`allocate`. Descent on one eta starts from the weights of the previous one, the first
    from equal weights. The lower bound holds over all eta > 0 that the market permits, not only on
    the grid, which divides (0, eta_max] or the market's EtaRange evenly where it is a number. Where
    ``eta_max``, the papers' L, is left out, no stationary point of the objective lies above it: it
    is ``sqrt(sigma/(gamma*cheapest))`` with the cost of the cheapest purchase.

    Raises
    ------
    NotSupportedError
        If the market is not of the papers' form, or ``mu = 0`` and no step is given.
    UnattainedOptimumError
        If the infimum is at eta = 0, or nothing on the grid is better than eta = infinity.
    """
    start = time.perf_counter()
    form, sellers = papers_form(market)
    low, high, limit = eta_range(form)
    etas = _grid(form, high, grid, eta_max)
    step = _step(form) if step is None else check_positive("step", step)
    check_count("max_iterations", max_iterations)
    check_positive("tol", tol)
    weights = np.full(form.virtual_costs.size, 1.0 / form.virtual_costs.size)
    found = []
    for eta in etas:
        began = time.perf_counter()
        descent = descend(form, form.gamma * eta, weights, step, max_iterations, tol)
        weights = descent.weights
        status = "converged" if descent.converged else "iteration limit"
        seconds = time.perf_counter() - began
        found.append(certify_weights(form, float(eta), weights, status, seconds))
    points, records = zip(*found, strict=True)
    best = min(points, key=lambda point: point.objective)
    if best.objective >= limit:
        raise UnattainedOptimumError(
            f"nothing on the grid is better than the limit {limit:.10g} at eta = infinity; "
            "give an EtaRange, or a finer grid"
        )
    cuts = Cuts()
    for eta, point in zip(etas, points, strict=True):
        cuts.add(eta, point.cut)
    pieces = pairwise([low, *np.clip(etas, low, high).tolist(), high])
    return assemble(
        form,
        sellers,
        best,
        min(limit, *(cuts.minimum(*piece)[1] for piece in pieces)),
        records,
        method="projected_gradient",
        seconds=time.perf_counter() - start,
        tolerance=tol,
    )


def _grid(
    form: StandardForm, largest: float, grid: int | ArrayLike, eta_max: float | None
) -> NDArray[np.float64]:
    """Return the values of eta to try, increasing."""
    if np.ndim(grid) == 0:
        count = check_count("grid", grid)
        if eta_max is not None:
            high = min(check_positive("eta_max", eta_max), form.eta_high)
        else:
            high = form.eta_high if form.eta_high < np.inf else largest
        low = form.eta_low or high / count
        etas = np.linspace(low, high, count) if count > 1 else np.array([high])
    else:
        if eta_max is not None:
            raise ParameterError("give either the values of eta as grid, or eta_max, not both")
        etas = np.sort(checked_numbers("grid", grid))
    inside = (etas >= form.eta_low * (1 - 1e-9)) & (etas <= form.eta_high * (1 + 1e-9))
    if etas.ndim != 1 or etas.size == 0 or not (etas[0] > 0 and np.isfinite(etas[-1])):
        raise ParameterError("the grid must hold finite numbers > 0; check grid and eta_max")
    if not inside.all():
        raise ParameterError(
            f"grid or eta_max leave the market's EtaRange ({form.eta_low:g}, {form.eta_high:g})"
        )
    return etas


def _step(form: StandardForm) -> float:
    """Return the natural step size, one over the Lipschitz constant of the gradient."""
    if form.mu == 0:
        raise NotSupportedError(
            "mu, the weight of Spread, is 0: the objective is linear in the weights and has "
            "no natural step size; give step, or use the exact solver"
        )
    return float(1.0 / (form.mu * np.sqrt(form.virtual_costs.size)))
