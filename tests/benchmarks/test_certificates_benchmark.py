"""Certificates of the search over eta."""

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from tests.allocation.builders import Own

M = 8
C = np.linspace(0.2, 1.0, M)
ROWS = np.random.default_rng(1).normal(size=(4, M)) / np.sqrt(M)

#: Convex functions of a nonnegative vector, by name.
ATOMS = {
    "abs": lambda v: cp.sum(cp.abs(v - 1)),
    "max": cp.max,
    "min": lambda v: -cp.min(v),
    "maximum": lambda v: cp.sum(cp.maximum(v, C)),
    "pos": lambda v: cp.sum(cp.pos(v - 1)),
    "ptp": cp.ptp,
    "sum_largest": lambda v: cp.sum_largest(v, 2.5),
    "sum_smallest": lambda v: -cp.sum_smallest(v, 3),
    "cvar": lambda v: cp.cvar(v, 0.7),
    "norm1": lambda v: cp.norm1(ROWS @ v - 0.2),
    "norm2": lambda v: cp.norm(v - C),
    "norm_inf": lambda v: cp.norm_inf(v - C),
    "pnorm 1.5": lambda v: cp.pnorm(v, 1.5),
    "pnorm 3": lambda v: cp.pnorm(v, 3),
    "mixed_norm": lambda v: cp.mixed_norm(cp.reshape(v, (2, M // 2), order="F"), 2, 3),
    "tv": cp.tv,
    "std": cp.std,
    "var": cp.var,
    "dotsort": lambda v: cp.dotsort(v, C),
    "lambda_max": lambda v: cp.lambda_max(cp.diag(v)),
    "lambda_sum_largest": lambda v: cp.lambda_sum_largest(cp.diag(v), 2),
    "sigma_max": lambda v: cp.sigma_max(cp.reshape(v, (2, M // 2), order="F")),
    "normNuc": lambda v: cp.normNuc(cp.reshape(v, (2, M // 2), order="F")),
    "cummax": lambda v: cp.sum(cp.cummax(v)),
    "sum_squares": lambda v: cp.sum_squares(v - C),
    "quad_form": lambda v: cp.quad_form(v, np.eye(M) + ROWS.T @ ROWS),
    "quad_over_lin": lambda v: cp.quad_over_lin(v - C, 1 + cp.sum(v)),
    "huber": lambda v: cp.sum(cp.huber(v - 1, 0.3)),
    "entr": lambda v: -cp.sum(cp.entr(v)),
    "kl_div": lambda v: cp.sum(cp.kl_div(v, C)),
    "rel_entr": lambda v: cp.sum(cp.rel_entr(v + 0.1, C)),
    "exp": lambda v: cp.sum(cp.exp(v)),
    "log_sum_exp": lambda v: cp.log_sum_exp(2 * v),
    "logistic": lambda v: cp.sum(cp.logistic(v)),
    "log": lambda v: -cp.sum(cp.log(v + 0.1)),
    "sqrt": lambda v: -cp.sum(cp.sqrt(v)),
    "power 2.5": lambda v: cp.sum(cp.power(v, 2.5)),
    "inv_pos": lambda v: cp.sum(cp.inv_pos(v + 0.2)),
    "geo_mean": lambda v: -cp.geo_mean(v),
    "log_det": lambda v: -cp.log_det(cp.diag(v + 0.3)),
}
#: Arguments of the atoms, by name.
PLACES = {
    "eps": lambda q: q.epsilon,
    "a": lambda q: M * q.weights,
    "s": lambda q: q.inverse_eta * C,
    "mixed": lambda q: (q.epsilon + M * q.weights) / 2 + q.inverse_eta,
}
SELLERS = cm.Sellers(virtual_costs=C)


@pytest.mark.parametrize("atom", ATOMS)
def test_an_atom_as_a_term_is_certified(benchmark, atom):
    """Measure gaps and solves of markets with one of 40 CVXPY atoms as a term."""

    def allocations():
        return {
            place: cm.allocate(
                cm.Market(
                    SELLERS,
                    cm.Spread()
                    + 2.0 * cm.Noise()
                    + 0.5 * cm.Payments()
                    + 0.3 * Own(lambda q, of=of: ATOMS[atom](of(q))),
                ),
                "branch_and_bound",
            )
            for place, of in PLACES.items()
        }

    result = benchmark.pedantic(allocations, rounds=1)
    for place, allocation in result.items():
        benchmark.extra_info[f"gap, {place}"] = allocation.gap
        benchmark.extra_info[f"solves, {place}"] = len(allocation.solves)
        assert allocation.gap <= 1e-6


SPREADS = [cm.Spread(), cm.Spread(3), cm.terms.SquaredSpread(), cm.terms.NegativeEntropy()]
COSTS = [cm.terms.LinearCost(), cm.PowerCost(1.5), cm.PowerCost(2), cm.terms.ExponentialCost()]


def drawn(seed):
    """Draw a feasible market of user-defined terms whose scales differ by up to 10^8."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(3, 9))
    costs = rng.uniform(0.05, 1, m) * 10.0 ** rng.uniform(-2, 2)
    inside = rng.dirichlet(np.full(m, 5.0))
    typical = 10.0 ** rng.uniform(-2, 2)  # sum of the guarantees at a feasible point
    money = 10.0 ** rng.uniform(-4, 4)
    objective = money * SPREADS[rng.integers(4)] + money * typical * rng.exponential() * cm.Noise()
    if paid := rng.random() < 0.7:
        cost = COSTS[rng.integers(4 if typical < 5 else 3)]
        bill = float(costs @ cost(typical * inside))
        objective += money * rng.exponential() / bill * cm.Payments(cost)
    atom = list(ATOMS.values())[rng.integers(len(ATOMS))]
    places = [lambda q: m * q.weights, lambda q: q.epsilon * (m / typical)]
    of = places[rng.integers(2 if paid else 1)]
    if m == M and rng.random() < 0.6:
        objective += 0.3 * money * Own(lambda q: atom(of(q)) / M)
    limits = [cm.EtaRange(typical / 100, typical * 100)] if rng.random() < 0.4 else []
    if rng.random() < 0.4:
        limits.append(cm.Cap(m * float(inside.max()) * rng.uniform(1.0, 2.0) + 1e-3))
    if rng.random() < 0.4 or not paid:
        limits.append(cm.MaxEpsilon(typical * inside * rng.uniform(1.0, 3.0, m)))
    if rng.random() < 0.3:
        limits.append(cm.Budget(float(costs @ inside) * typical * rng.uniform(1.0, 3.0)))
    if rng.random() < 0.3:
        share = float(inside[0]) * rng.uniform(0.5, 1.0)
        limits.append(cm.GroupShare(np.arange(m) == 0, at_least={True: share}))
    return cm.Market(cm.Sellers(virtual_costs=costs), objective, limits)


def best_of_grid(market, around):
    """Compute the minimum of a market, declared as a CVXPY problem, over a grid of eta."""
    m = len(market.sellers)
    a, eta = cp.Variable(m, nonneg=True), cp.Parameter(pos=True, value=around)
    inverse = cp.Parameter(pos=True, value=1 / around)
    quantities = cm.terms.Quantities(a / m, eta * a / m, inverse, market.sellers.virtual_costs)
    even = market.objective.value(np.full(m, 1 / m), around, market.sellers.virtual_costs)
    scale = 1.0 / (abs(even) or 1.0)
    items = [c for piece in market.constraints for c in piece.constraints(quantities)]
    limits = [c for c in items if c.variables()]
    ends = [c for c in items if not c.variables()]
    objective = scale * market.objective.expression(quantities)
    problem = cp.Problem(cp.Minimize(objective), [cp.sum(a) == m, *limits])

    def at(value):
        eta.value, inverse.value = value, 1 / value
        if not all(c.value(tolerance=1e-9) for c in ends):
            return np.inf
        try:
            problem.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
        except cp.error.SolverError:
            return np.inf
        return problem.value / scale if problem.status == cp.OPTIMAL else np.inf

    grid = around * np.concatenate([np.geomspace(1e-4, 1e4, 17), np.geomspace(0.7, 1.4, 9)])
    values = sorted((at(value), value) for value in grid)
    near = values[0][1] * np.geomspace(0.8, 1.25, 9)
    return min(values[0][0], *(at(value) for value in near))


def test_random_markets_equal_the_minimum_over_a_grid(benchmark):
    """Compare the optima of random user-defined markets with the minima over a grid of eta.

    The minimum of the grid is subtracted from the objective and from the bound in the table, and
    the differences are divided by the size of the terms.
    """
    markets = [drawn(seed) for seed in range(300)]
    result = benchmark.pedantic(lambda: [cm.allocate(market) for market in markets], rounds=1)
    scales = [allocation.scale or abs(allocation.objective) for allocation in result]
    best = [best_of_grid(m, each.eta) for m, each in zip(markets, result, strict=True)]
    excess = [(a.objective - b) / s for a, b, s in zip(result, best, scales, strict=True)]
    above = [(a.lower_bound - b) / s for a, b, s in zip(result, best, scales, strict=True)]
    benchmark.extra_info.update(
        markets=len(markets),
        refused=0,  # the benchmark fails if a market raises an error
        solves=float(np.mean([len(allocation.solves) for allocation in result])),
        most=max(len(allocation.solves) for allocation in result),
        loose=sum(allocation.gap > 1e-6 for allocation in result),
        gap=max(allocation.gap for allocation in result),
        excess=max(excess),
        bound=max(above),
    )
    assert max(excess) <= 2e-6
    assert max(above) <= 1e-8
