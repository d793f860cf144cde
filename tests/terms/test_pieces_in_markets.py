"""Compare allocations with each term and constraint with brute force and known solutions."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

import convexmarket as cm
from convexmarket.errors import InfeasibleMarketError, ParameterError
from tests import one_in
from tests.terms.builders import (
    AVERAGES,
    CONSTRAINTS,
    COSTS,
    FEATURES,
    SELLERS,
    SIMILARITY,
    TARGET,
    TERMS,
    M,
    entropy,
)

STANDARD = cm.Spread() + 2.0 * cm.Noise() + 0.5 * cm.Payments()
BASE = cm.Spread() + 0.5 * cm.Payments()
NOISY = cm.Spread() + 2.0 * cm.Noise()
SPREADS = ("distance 2", "distance 3", "distance inf", "divergence", "quadratic")
BILLS = ("tiers", "box", "some off", "ellipsoid")
ADDED = ("worst guarantees", "worst payments", "fairness")


def objective_with(name):
    """Return an objective with the given term, which replaces a standard term where possible."""
    term = TERMS[name][0]
    if name in SPREADS:
        return term + 2.0 * cm.Noise() + 0.5 * cm.Payments()
    if name == "squared noise":
        return BASE + 2.0 * term
    return (NOISY if name in BILLS else STANDARD) + 0.5 * term


def assert_solved(market):
    """Compare the objective and the bound with solutions of CVXPY on a grid of eta."""
    result = cm.allocate(market, method="branch_and_bound", max_solves=40)
    problem = cm.declare(market, eta=1.0)
    assert problem.is_dcp(dpp=True)
    values = []
    for eta in result.eta * np.array([0.1, 0.5, 0.8, 0.95, 1.0, 1.05, 1.25, 2.0, 10.0]):
        problem.eta = eta
        values.append(problem.solve(solver="CLARABEL"))
    assert result.objective == pytest.approx(min(values), rel=1e-5)
    assert result.lower_bound <= min(values) + 1e-6
    return result


def test_noisy_and_costly_rows_get_less_weight():
    """At equal prices, the weights are (level - cost)/variance (paper A, conclusion)."""
    variance, costs = np.array([1.0, 1.0, 2.0, 4.0]), np.array([0.0, 0.3, 0.0, 0.3])
    sellers = cm.Sellers(virtual_costs=np.full(4, 0.2))
    objective = cm.terms.QuadraticSpread(np.diag(variance)) + cm.Noise() + cm.Payments()
    weights = cm.allocate(cm.Market(sellers, objective)).weights
    assert weights == pytest.approx(1 / variance / np.sum(1 / variance), abs=1e-4)
    weights = cm.allocate(cm.Market(sellers, objective + cm.Losses(costs))).weights
    level = 2 * weights[0]
    assert weights == pytest.approx((level - costs) / (2 * variance), abs=1e-4)


@pytest.mark.filterwarnings("ignore::convexmarket.errors.LooseCertificateWarning")
@pytest.mark.parametrize("name", one_in(3, [*SPREADS, "squared noise", *BILLS, *ADDED]))
def test_markets_with_each_term_equal_brute_force(name):
    market = cm.Market(SELLERS, objective_with(name))
    result = assert_solved(market)
    expected = sum(
        part.weight * dict(TERMS.values())[part.term](result.weights, result.eta, COSTS)
        for part in market.objective.parts
    )
    assert result.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["moments", "moments, one exact", "size"])
def test_markets_with_each_constraint_equal_brute_force(name):
    piece, slack = CONSTRAINTS[name]
    free = cm.allocate(cm.Market(SELLERS, STANDARD))
    result = assert_solved(cm.Market(SELLERS, STANDARD, [piece]))
    assert slack(free.weights, free.eta) < -0.01  # the constraint is violated
    assert -1e-6 < slack(result.weights, result.eta) < 1e-4
    assert result.gap <= 1e-6


def test_moments_without_tolerance_hold_exactly():
    result = cm.allocate(cm.Market(SELLERS, STANDARD, [cm.terms.Moments(FEATURES, AVERAGES)]))
    np.testing.assert_allclose(FEATURES.T @ result.weights, AVERAGES, rtol=1e-6)
    with pytest.raises(InfeasibleMarketError, match=r"satisfy Moments\(<5 x 2 entries>"):
        cm.allocate(cm.Market(SELLERS, STANDARD, [cm.terms.Moments(FEATURES, [9, 0], 0)]))


@pytest.mark.filterwarnings("ignore::convexmarket.errors.LooseCertificateWarning")
@pytest.mark.parametrize("name", ["distance 2", "distance 3", "distance inf", "divergence"])
def test_equal_costs_give_the_target_weights(name):
    market = cm.Market(cm.Sellers(virtual_costs=np.ones(M)), objective_with(name))
    result = cm.allocate(market)
    np.testing.assert_allclose(result.weights, TARGET, atol=1e-4)
    assert result.eta == pytest.approx(2.0, rel=1e-3)  # sqrt(sigma/gamma)


# ------------------------------------------------------------------ properties of pieces


@given(raw=st.lists(st.floats(-50, 50), min_size=M, max_size=M), weight=st.floats(1e-3, 1e3))
@example(raw=[1e4, 0, 0, 0, 0], weight=1e-3)
def test_the_minimum_of_the_divergence_is_exact(raw, weight):
    """The gradient at the softmax weights is constant, so they attain the minimum."""
    costs = np.array(raw)
    result = float(cm.terms.NegativeEntropy(TARGET).simplex_minimum(weight, costs))
    a = TARGET * np.exp(-(costs - costs.min()) / weight)
    a /= a.sum()
    assert result == pytest.approx(weight * entropy(a, TARGET) + costs @ a, rel=1e-9, abs=1e-9)
    many = cm.terms.NegativeEntropy(TARGET).simplex_minimum(weight, np.stack([costs, 2 * costs]))
    assert many[0] == pytest.approx(result)


def test_a_spread_with_a_reference_is_not_in_the_standard_form():
    about = cm.Spread(reference=TARGET)
    payments, noise = 0.5 * cm.Payments(), 2.0 * cm.Noise()
    assert cm.Market(SELLERS, about + noise + payments).standard_form is None
    losses = cm.Losses(np.ones(M))
    assert cm.Market(SELLERS, cm.Spread() + losses + noise + payments).form.is_projectable
    for extra in (about, cm.Spread() + about):
        assert not cm.Market(SELLERS, extra + losses + noise + payments).form.is_projectable
        guarantees = [cm.terms.GivenEpsilon(np.ones(M))]
        assert cm.Market(SELLERS, extra + noise, guarantees).form.epsilon_caps is None


def test_a_large_quadratic_spread_is_factored_by_blocks():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(size, max(1, size - 1))) for size in rng.integers(1, 6, 2_000)]
    order = rng.permutation(sum(map(len, rows)))
    blocks = [row @ row.T for row in rows]
    covariance = sparse.block_diag(blocks, format="csr")[order][:, order]
    term = cm.terms.QuadraticSpread(covariance)
    a = rng.dirichlet(np.ones(order.size))
    result = (1.0 * term).value(a, 1.0, np.ones(order.size))
    assert result == pytest.approx(a @ (covariance @ a), rel=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        term.Sigma.data[0] = 9


def test_rounding_does_not_make_a_covariance_indefinite():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 4))
    covariance = rows @ rows.T
    term = cm.terms.QuadraticSpread(covariance + 1e-12 * rng.normal(size=covariance.shape))
    a = np.full(30, 1 / 30)
    assert (1.0 * term).value(a, 1.0, a) == pytest.approx(a @ covariance @ a, rel=1e-9)
    with pytest.raises(ParameterError, match="eigenvalue -1e-07; give"):
        cm.terms.QuadraticSpread(SIMILARITY - 1e-7 * np.eye(M))
