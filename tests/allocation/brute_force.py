"""Compute optima of markets and of standard forms by brute force."""

import warnings
from functools import cache

import cvxpy as cp
import numpy as np

import convexmarket as cm

ACCURATE = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


class BruteForce:
    """Optimal objective as a function of eta, computed without the package's formulations."""

    def __init__(self, market):
        m = len(market.sellers)
        self.eta = cp.Parameter(pos=True)
        self.inverse = cp.Parameter(pos=True)
        self.scaled = cp.Variable(m, nonneg=True)
        quantities = cm.terms.Quantities(
            weights=self.scaled / m,
            epsilon=self.eta * self.scaled / m,
            inverse_eta=self.inverse,
            virtual_costs=market.sellers.virtual_costs,
        )
        self.bounds, constraints = [], [cp.sum(self.scaled) == m]
        for piece in market.constraints:
            for item in piece.constraints(quantities):
                (constraints if item.variables() else self.bounds).append(item)
        self.problem = cp.Problem(cp.Minimize(market.objective.expression(quantities)), constraints)

    def __call__(self, eta):
        self.eta.value, self.inverse.value = eta, 1 / eta
        if not all(item.value() for item in self.bounds):
            return np.inf
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # warnings of inaccuracy
                self.problem.solve(solver="CLARABEL", **ACCURATE)
        except cp.error.SolverError:
            return np.inf
        solved = self.problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
        return self.problem.value if solved else np.inf

    def minimum(self, around, points=24):
        """Return the minimum over six decades of eta, on a grid refined at its two best points."""
        grid, at = np.geomspace(around * 1e-3, around * 1e3, points + 1), cache(self)
        values = np.array([at(eta) for eta in grid])
        best = values.min()
        for k in np.argsort(values)[:2]:
            low, high = grid[max(k - 1, 0)], grid[min(k + 1, points)]
            for _ in range(4):
                inner = np.geomspace(low, high, 8)
                result = np.array([at(eta) for eta in inner])
                j = int(np.argmin(result))
                best = min(best, result[j])
                low, high = inner[max(j - 1, 0)], inner[min(j + 1, 7)]
        return best


# -------------------------------------------------------------- the papers' form


def project(psi, count, beta, cap):
    """Project -beta*psi on the capped simplex by bisection. Return one row for each beta.

    ``count`` sellers have the cost ``psi`` and receive equal weights. The cost of the last of the
    ceil(1/cap) cheapest sellers is subtracted from all costs, so the threshold is in [-cap, 0] for
    any beta.
    """
    needed = int(np.ceil((1 - 1e-12) / cap))
    marginal = psi[np.searchsorted(np.cumsum(count), min(needed, count.sum()))]
    point = -beta[:, None] * (psi - marginal)
    low, high = np.full((beta.size, 1), -cap), np.zeros((beta.size, 1))
    for _ in range(54):
        middle = 0.5 * (low + high)
        enough = (np.clip(point - middle, 0, cap) @ count)[:, None] >= 1
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    weights = np.clip(point - low, 0, cap)
    return weights / (weights @ count)[:, None]


def values_along(form, psi, count, exponents):
    """Minimise the objective over eta at the projections for beta = 10**exponents."""
    weights = project(psi, count, 10.0**exponents, form.max_weight)
    cost = (weights * psi) @ count
    low, high = max(form.eta_low, 1e-300), min(form.eta_high, 1e300)
    with np.errstate(divide="ignore", invalid="ignore"):
        eta = np.sqrt(form.sigma / form.gamma / cost)
    eta = np.clip(np.where(np.isnan(eta), low, eta), low, high)
    norm = np.sqrt(weights**2 @ count)
    return form.mu * norm + form.sigma / eta + form.gamma * eta * cost


def brute_force(form):
    """Return the minimum objective on a grid of beta that is refined around each local minimum.

    At any eta, the optimal weights are the projection of -beta*psi for some beta in [0, inf].
    """
    finite = form.virtual_costs[np.isfinite(form.virtual_costs)]
    psi, count = np.unique(finite, return_counts=True)
    if psi.size == 1:
        return float(values_along(form, psi, count, np.zeros(1))[0])
    # At the smallest beta, the weights are nearly equal. At the largest, cheap sellers sell.
    first, last = 1e-9 / finite.size / (psi[-1] - psi[0]), 1e4 / np.diff(psi).min()
    exponents = np.linspace(np.log10(first), np.log10(last), 1500)
    values = values_along(form, psi, count, exponents)
    best = float(values.min())
    padded = np.concatenate((values[:1], values, values[-1:]))
    higher = np.maximum(padded[:-2], padded[2:]) > values * (1 + 1e-14)  # excludes plateaus
    dip = (values <= padded[:-2]) & (values <= padded[2:]) & (values <= 1.01 * best) & higher
    for i in np.flatnonzero(dip):
        around = exponents[[max(i - 1, 0), min(i + 1, exponents.size - 1)]]
        for _ in range(4):
            finer = np.linspace(*around, 60)
            result = values_along(form, psi, count, finer)
            k = int(result.argmin())
            best = min(best, float(result[k]))
            around = finer[[max(k - 1, 0), min(k + 1, finer.size - 1)]]
    return best


def least_linear(costs, cap):
    """Minimise costs'a over the capped simplex by raising the cheapest weights to the cap."""
    filled = np.diff(np.minimum(cap * np.arange(costs.size + 1), 1.0))
    return float(np.sort(costs) @ filled)
