"""Random markets that mix terms and constraints, and a brute force to judge their allocations."""

import warnings

import cvxpy as cp
import numpy as np

import convexmarket as cm

ACCURATE = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
SPREADS = [
    cm.Spread(),
    cm.Spread(1.5),
    cm.Spread(3),
    cm.Spread(np.inf),
    cm.SquaredSpread(),
    cm.NegativeEntropy(),
]
COSTS = [
    cm.LinearCost(),
    cm.PowerCost(1.5),
    cm.PowerCost(2),
    cm.PowerCost(3),
    cm.ExponentialCost(),
]


def positive(rng, size=None):
    return np.exp(rng.normal(size=size)) if size else float(np.exp(rng.normal()))


def random_market(rng):
    """Return a market of two to eight sellers, one or two spreads and up to five constraints."""
    m = int(rng.integers(2, 9))
    if rng.random() < 0.5:
        sellers = cm.Sellers(rng.uniform(0.02, 1, m), prior=cm.Uniform(0.02, 1))
    else:
        sellers = cm.Sellers(virtual_costs=rng.exponential(1, m) + 1e-3)
    chosen = rng.choice(len(SPREADS), rng.integers(1, 3), replace=False)
    objective = sum(positive(rng) * SPREADS[i] for i in chosen) + positive(rng) * cm.Noise()
    if rng.random() < 0.2:
        objective += positive(rng) * cm.Losses(rng.uniform(0, 2, m))
    constraints = []
    if rng.random() < 0.5:
        one = rng.random() < 0.6
        constraints.append(cm.Cap(rng.uniform(1.05, 4) if one else rng.uniform(1.1, 3.6, m)))
    if rng.random() < 0.4:
        one = rng.random() < 0.6
        constraints.append(cm.MaxEpsilon(positive(rng) if one else positive(rng, m)))
    if rng.random() < 0.3:
        constraints.append(cm.Budget(positive(rng)))
    if m > 2 and rng.random() < 0.4:
        groups = np.array(["a", "b"])[np.r_[0, 1, rng.integers(0, 2, m - 2)]]
        share = {"at_least": {"a": rng.uniform(0, 0.5)}} if rng.random() < 0.6 else {"equal": True}
        constraints.append(cm.GroupShare(groups, **share))
    if rng.random() < 0.2:
        constraints.append(cm.EtaRange(0.1, 10))
    limits = cm.Budget, cm.MaxEpsilon, cm.EtaRange
    if not any(isinstance(item, limits) for item in constraints) or rng.random() < 0.7:
        objective += positive(rng) * cm.Payments(COSTS[rng.integers(len(COSTS))])
    return cm.Market(sellers, objective, constraints)


class BruteForce:
    """The optimal objective at any eta, by CVXPY; written from the definition, not the package."""

    def __init__(self, market):
        m = len(market.sellers)
        self.eta = cp.Parameter(pos=True)
        self.inverse = cp.Parameter(pos=True)
        self.scaled = cp.Variable(m, nonneg=True)
        quantities = cm.Quantities(
            weights=self.scaled / m,
            epsilon=self.eta * self.scaled / m,
            inverse_eta=self.inverse,
            virtual_costs=market.sellers.virtual_costs,
        )
        self.bounds, constraints = [], [cp.sum(self.scaled) == m]
        for piece in market.constraints:
            for item in piece.constraints(quantities):
                (constraints if item.variables() else self.bounds).append(item)
        objective = market.objective.expression(quantities)
        self.problem = cp.Problem(cp.Minimize(objective), constraints)

    def __call__(self, eta):
        self.eta.value, self.inverse.value = eta, 1 / eta
        if not all(item.value() for item in self.bounds):
            return np.inf
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # inaccurate: judged by the tests
                self.problem.solve(solver="CLARABEL", **ACCURATE)
        except cp.error.SolverError:
            return np.inf
        solved = self.problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
        return self.problem.value if solved else np.inf

    def minimum(self, around, points=24):
        """Return the smallest value on a grid over six decades of eta, refined at its best."""
        grid = np.geomspace(around * 1e-3, around * 1e3, points + 1)
        values = np.array([self(eta) for eta in grid])
        best = values.min()
        for k in np.argsort(values)[:2]:
            low, high = grid[max(k - 1, 0)], grid[min(k + 1, points)]
            for _ in range(4):
                inner = np.geomspace(low, high, 8)
                found = np.array([self(eta) for eta in inner])
                j = int(np.argmin(found))
                best = min(best, found[j])
                low, high = inner[max(j - 1, 0)], inner[min(j + 1, 7)]
        return best
