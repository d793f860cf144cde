"""Joint allocations of several buyers are certified, feasible and match brute force."""

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import InfeasibleMarketError, NotSupportedError, ParameterError
from convexmarket.terms import SquaredNoise
from tests import one_in
from tests.allocation.builders import Own

REPORTS = np.array([0.1, 0.3, 0.6])
SELLERS = cm.Sellers(REPORTS, prior=cm.Uniform(0, 1))


def buyer(sigma, gamma=0.1, extra=None, *constraints):
    objective = cm.Spread() + sigma * cm.Noise()
    if gamma:
        objective += gamma * cm.Payments()
    return cm.Market(SELLERS, objective + extra if extra else objective, constraints)


def at_fixed_eta(markets, limit, etas):
    """Return the optimum of a joint declaration at given eta, or inf if it is infeasible."""
    parts = [cm.declare(market, eta) for market, eta in zip(markets, etas, strict=True)]
    sold = sum(part.quantities.epsilon for part in parts)
    constraints = [item for part in parts for item in part.constraints]
    together = cp.Problem(
        cp.Minimize(sum(part.objective.args[0] for part in parts)), [*constraints, sold <= limit]
    )
    value = together.solve(solver="CLARABEL")
    return np.inf if value is None else value


CASES = {
    "limits that do not bind": ([buyer(1.0), buyer(3.0)], 10.0),
    "sold out": ([buyer(1.0), buyer(3.0)], 0.5),
    "individual limits": ([buyer(1.0), buyer(3.0)], np.array([0.2, 1.0, 3.0])),
    "caps, and a bound of one buyer": (
        [buyer(1.0, 0.1, None, cm.Cap(1.5)), buyer(3.0, 0.1, None, cm.MaxEpsilon(0.4))],
        0.8,
    ),
    "a seller without sales": ([buyer(1.0), buyer(3.0)], np.array([0.5, 0.3, 0.0])),
    "no payments": ([buyer(1.0, 0.0), buyer(3.0, 0.0)], 1.0),
    "a budget": ([buyer(1.0, 0.1, None, cm.Budget(0.3)), buyer(3.0)], np.array([0.5, 1.0, 2.0])),
    "infeasible at first": (
        [buyer(1.0, 0.1, None, cm.Cap(1.2)), buyer(3.0, 0.1, None, cm.Cap(1.5))],
        np.array([0.2, 1.0, 3.0]),
    ),
    "terms with kinks": (
        [buyer(1.0, 0.2, Own(lambda q: cp.max(q.epsilon))), buyer(3.0, 0.1, SquaredNoise())],
        0.7,
    ),
}


def is_certified(markets, limit):
    """Compute a joint allocation, and check its constraints, prices and objectives."""
    result = cm.allocate_together(markets, [cm.MaxEpsilon(limit)])
    assert np.all(result.epsilon <= np.asarray(limit) * (1 + 1e-12))
    assert np.all(result.prices >= 0)
    for market, allocation in zip(markets, result.allocations, strict=True):
        value = market.objective.value(
            allocation.weights, allocation.eta, market.sellers.virtual_costs
        )
        assert allocation.objective == pytest.approx(value, rel=1e-9)
        costs = market.sellers.virtual_costs
        quantities = cm.terms.Quantities.at(allocation.weights, allocation.eta, costs)
        for piece in market.constraints:
            for item in piece.constraints(quantities):
                assert np.all(item.violation() <= 1e-7)
    assert result.objective == pytest.approx(sum(a.objective for a in result.allocations))
    return result


@pytest.mark.parametrize("name", one_in(4, CASES))
def test_joint_allocations_are_certified_in_few_solves(name):
    """Compare the objective with the optimum of a joint declaration at the resulting eta."""
    markets, limit = CASES[name]
    result = is_certified(markets, limit)
    assert result.gap <= 1e-6
    assert result.n_solves <= 60
    etas = [allocation.eta for allocation in result.allocations]
    assert result.objective == pytest.approx(at_fixed_eta(markets, limit, etas), rel=1e-6)


@pytest.mark.parametrize("seed", one_in(9, range(9)))
def test_random_buyers_are_certified_in_few_solves(seed):
    """Costs, weights, constraints and numbers of buyers are random. Some buyers do not pay."""
    rng = np.random.default_rng([43, seed])
    m = int(rng.integers(3, 7))
    sellers = cm.Sellers(rng.uniform(0, 1, m), prior=cm.Uniform(0, 1))
    groups = np.arange(m) % 2
    rules = [
        cm.Cap(rng.uniform(1.3, 2)),
        cm.MaxEpsilon(rng.uniform(0.1, 1)),
        cm.Budget(rng.uniform(0.1, 2)),
        cm.GroupShare(groups, at_least={0: rng.uniform(0.2, 0.6)}),
        cm.EtaRange(0.05, rng.uniform(0.3, 3)),
    ]
    markets = []
    for _ in range(int(rng.integers(2, 4))):
        mu, sigma, gamma = 10.0 ** rng.uniform([-0.5, -1, -1.5], [0.5, 0.7, 0.5])
        objective = mu * cm.Spread() + sigma * cm.Noise()
        if rng.random() < 0.7:
            objective += gamma * cm.Payments()
        markets.append(cm.Market(sellers, objective, rng.permutation(rules)[:1]))
    limit = 10.0 ** rng.uniform(-0.7, 0.7, m)
    result = is_certified(markets, limit)
    assert result.gap <= 1e-6
    assert result.n_solves <= 60
    etas = np.array([allocation.eta for allocation in result.allocations])
    for _ in range(5):
        other = etas * np.exp(rng.normal(0, 0.1, etas.size))
        try:
            value = at_fixed_eta(markets, limit, other)
        except ParameterError:  # eta is outside an EtaRange
            continue
        assert value >= result.lower_bound * (1 - 1e-8)


def test_a_single_buyer_gets_the_allocation_of_its_market():
    result = cm.allocate_together([buyer(2.0)], [cm.MaxEpsilon(0.3)])
    separate = cm.allocate(buyer(2.0, 0.1, None, cm.MaxEpsilon(0.3)))
    assert result.objective == pytest.approx(separate.objective, rel=1e-6)
    assert "1 buyers" in repr(result)
    with pytest.raises(NotSupportedError, match="not defined for an allocation of"):
        cm.payments(buyer(2.0), result.allocations[0])


def market_of(reports):
    return cm.Market(cm.Sellers(reports, prior=cm.Uniform(0, 1)), cm.Spread() + cm.Noise())


@pytest.mark.parametrize(
    ("markets", "constraints", "message"),
    [
        ([], [cm.MaxEpsilon(1.0)], "must be a list of Market"),
        (3, [cm.MaxEpsilon(1.0)], "must be a list of Market"),
        ([buyer(1.0), None], [cm.MaxEpsilon(1.0)], "must be a list of Market"),
        ([buyer(1.0), market_of([0.1, 0.2])], [cm.MaxEpsilon(1.0)], "the same sellers"),
        ([buyer(1.0), market_of(REPORTS / 2)], [cm.MaxEpsilon(1.0)], "one Sellers.*or give ids"),
        ([buyer(1.0)], [], r"the shared constraints are \[\]; give a limit"),
        ([buyer(1.0)], [cm.MaxEpsilon(1.0), cm.Cap(2)], "such as"),
        ([buyer(1.0)], [cm.MaxEpsilon([1.0, 2.0])], "2 entries for 3 sellers"),
    ],
)
def test_errors_name_the_wrong_argument(markets, constraints, message):
    with pytest.raises(ParameterError, match=message):
        cm.allocate_together(markets, constraints)


def test_a_shared_limit_that_is_too_small_raises_an_error():
    market = buyer(1.0, 0.1, None, cm.EtaRange(1.0, 2.0))
    with pytest.raises(InfeasibleMarketError, match="raise the shared limit"):
        cm.allocate_together([market, market], [cm.MaxEpsilon(0.5)])
