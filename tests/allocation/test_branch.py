"""Branch and bound with a solver: where it begins, what it keeps, and what it ends with."""

import warnings
from functools import partial
from importlib import metadata

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.conic import branch_and_bound
from convexmarket.errors import (
    LooseCertificateWarning,
    SolverError,
    UnattainedOptimumError,
)
from tests.allocation import builders
from tests.allocation.builders import COSTS, PAID, Bound

market = partial(builders.market, objective=PAID)


# ---------------------------------------------------------------- whole searches


def test_a_search_records_the_origin_of_its_answer():
    seen = []
    result = branch_and_bound(market(), progress=seen.append)
    assert result.solves == tuple(seen)
    assert result.method == "branch_and_bound"
    assert (result.formulation, result.solver, result.tolerance) == ("primal", "CLARABEL", 1e-6)
    assert result.solver_version == metadata.version("clarabel")
    assert result.binding == ()
    value = PAID.value(result.weights, result.eta, COSTS)
    assert result.objective == pytest.approx(value, rel=1e-12)
    best = min(seen, key=lambda record: record.upper)
    assert best.upper >= result.objective - 1e-12
    for record in seen:
        assert record.status == "optimal"
        assert record.lower <= record.upper * (1 + 1e-9)
        assert record.lower == pytest.approx(record.upper, rel=1e-6)
    # tau/eta: the slope of the objective in the weights, at those who sell
    price = 2 * result.weights + result.eta * COSTS * result.epsilon
    assert result.multiplier == pytest.approx(price[0] / result.eta, rel=1e-3)


def test_without_noise_the_optimum_is_at_zero_unless_a_range_keeps_it_away():
    unpaid = cm.terms.SquaredSpread() + 0.5 * cm.Payments(cm.PowerCost(2))
    with pytest.raises(UnattainedOptimumError, match="eta tends to 0"):
        branch_and_bound(market(objective=unpaid))
    result = branch_and_bound(market(cm.EtaRange(1.0, 4.0), objective=unpaid))
    assert result.eta == 1.0
    assert result.binding == ("eta_low",)
    assert result.gap <= 1e-6


@pytest.mark.parametrize("least", [2.0, 20.0])
def test_a_range_without_an_upper_end_is_entered_from_below(least):
    """At the eta where noise and payments balance, nothing is feasible."""
    objective = cm.Spread() + cm.Noise() + 5.0 * cm.Payments()
    at_least = Bound(lambda q: [q.weights >= least * q.inverse_eta])
    result = cm.allocate(market(at_least, objective=objective))
    np.testing.assert_allclose(result.epsilon, least, rtol=1e-4)
    spent = 5.0 * least * (0.2 + 0.4 + 1.0) + 1 / (3 * least) + 1 / np.sqrt(3)
    assert result.objective == pytest.approx(spent, rel=1e-4)


# --------------------------------------------------------------- where it begins


def test_the_search_begins_at_the_start_that_is_given():
    for start in (0.7, np.float64(5.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LooseCertificateWarning)
            result = branch_and_bound(market(), start=start, max_solves=1)
        assert result.solves[0].eta == pytest.approx(float(start), rel=1e-6)


# ------------------------------------------------------- what a search ends with


def test_traces_are_kept_where_no_point_without_them_is_inside():
    """Half of the weight lies on the three largest, so who is left out breaks that bound."""
    rng = np.random.default_rng(200)
    sellers = cm.Sellers(rng.uniform(0.1, 1, 200), prior=cm.Uniform(0.1, 1))
    bound = Bound(lambda q: [cp.sum_largest(200 * q.weights, 3) <= 7.5])
    objective = 200 * cm.Noise() + (1 / 200) * cm.Payments()
    result = cm.allocate(cm.Market(sellers, objective, [bound]))
    assert np.sort(200 * result.weights)[-3:].sum() <= 7.5 + 1e-9
    assert result.gap <= 1e-6


# ---------------------------------------------------------------------- refusals


def test_options_reach_the_solver_of_a_search():
    with pytest.raises(SolverError, match=r"CLARABEL .* at eta = .*user_limit.*EtaRange"):
        branch_and_bound(market(), solver_options={"max_iter": 1})
