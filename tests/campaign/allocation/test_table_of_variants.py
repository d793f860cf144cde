"""Compare the optima of variants with brute force. A benchmark writes a table of the results."""

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from tests.allocation.battery import assert_certified, figures
from tests.allocation.builders import Bound, Own

M = 40
RNG = np.random.default_rng(7)
SELLERS = cm.Sellers(RNG.uniform(0.1, 1, M), prior=cm.Uniform(0.1, 1))
ROWS = RNG.normal(size=(M, 3))
GROUPS = np.arange(M) % 4
MEMBERS = np.equal.outer(np.arange(4), GROUPS) * 1.0
SHARES = RNG.dirichlet(np.full(M, 5.0))
SCENARIOS = RNG.exponential(size=(6, M))
HOUSEHOLDS = np.kron(np.eye(M // 4), np.ones((4, 4)))
PAY = cm.Payments() / M
NOISE = M * cm.Noise()
SPREAD = 1.0 * cm.Spread()


def own(g):
    return 0.3 * Own(g)


def information(q):
    return ROWS.T @ cp.diag(q.weights) @ ROWS


#: Objective and constraints of each variant. The first variants use only terms of the package.
VARIANTS = {
    "tiers": (0 * cm.Spread() + NOISE + cm.Payments(cm.terms.TieredCost([1, 3], [0.5])) / M, []),
    "CVaR of eps": (SPREAD + NOISE + PAY + 0.3 * cm.terms.CVaR(0.8), []),
    "CVaR of payments": (SPREAD + NOISE + PAY + 0.3 * cm.terms.CVaR(0.8, "payments"), []),
    "box": (SPREAD + NOISE + cm.terms.RobustCosts("box", 0.3) / M, []),
    "Bertsimas-Sim": (NOISE + SPREAD + cm.terms.RobustCosts("budget", 0.3, 5) / M, []),
    "ellipsoid": (SPREAD + NOISE + cm.terms.RobustCosts("ellipsoid", 0.3) / M, []),
    "minimax fair": (SPREAD + NOISE + PAY + cm.terms.Fairness("minimax", GROUPS), []),
    "largest weight": (1.0 * cm.Spread(np.inf) + NOISE + PAY, []),
    "covariate shift": (1.0 * cm.Spread(reference=SHARES) + NOISE + PAY, []),
    "entropy, shifted": (cm.terms.NegativeEntropy(reference=SHARES) + NOISE + PAY, []),
    "households": (cm.terms.QuadraticSpread(HOUSEHOLDS) + NOISE + PAY, []),
    "squared noise": (SPREAD + 20 * cm.terms.SquaredNoise() + PAY, []),
    "exponential cost": (SPREAD + NOISE + cm.Payments(cm.terms.ExponentialCost()) / M, []),
    "moments": (SPREAD + NOISE + PAY, [cm.terms.Moments(ROWS, ROWS.mean(0) + 0.1, 0.05)]),
    "effective size": (0 * cm.Spread() + NOISE + PAY, [cm.terms.EffectiveSize(20)]),
    "max": (SPREAD + NOISE + PAY + own(lambda q: cp.max(q.epsilon)), []),
    "sum_largest": (SPREAD + NOISE + PAY + own(lambda q: cp.sum_largest(q.epsilon, 5)), []),
    "log_sum_exp": (SPREAD + NOISE + PAY + own(lambda q: cp.log_sum_exp(q.epsilon)), []),
    "abs": (SPREAD + NOISE + PAY + own(lambda q: cp.sum(cp.abs(q.epsilon - 1))), []),
    "norm_inf of moments": (
        SPREAD + NOISE + PAY,
        [Bound(lambda q: [cp.norm_inf(ROWS.T @ q.weights - 0.1) <= 0.05])],
    ),
    "range of weights": (NOISE + PAY + own(lambda q: cp.max(q.weights) - cp.min(q.weights)), []),
    "Gini": (
        SPREAD + NOISE + PAY + own(lambda q: cp.dotsort(q.epsilon, np.linspace(-1, 1, M))),
        [],
    ),
    "Huber": (SPREAD + NOISE + PAY + own(lambda q: cp.sum(cp.huber(q.epsilon - 1, 0.2))), []),
    "worst scenario": (
        NOISE + PAY + own(lambda q: cp.max(SCENARIOS @ q.weights + 9 * q.inverse_eta)),
        [],
    ),
    "Wasserstein": (
        NOISE + PAY + own(lambda q: cp.norm1(cp.cumsum(q.weights) - np.cumsum(SHARES))),
        [],
    ),
    "soft budget": (
        SPREAD + NOISE + own(lambda q: cp.square(cp.pos(q.virtual_costs @ q.epsilon - 3))),
        [],
    ),
    "Nash welfare": (NOISE + PAY + own(lambda q: -cp.sum(cp.log(MEMBERS @ q.weights))), []),
    "E-optimal design": (NOISE + PAY + own(lambda q: -cp.lambda_min(information(q))), []),
    "D-optimal design": (NOISE + PAY + own(lambda q: -cp.log_det(information(q))), []),
    "A-optimal design": (NOISE + PAY + own(lambda q: cp.tr_inv(information(q))), []),
    "leverage": (SPREAD + NOISE + PAY, [Bound(lambda q: [cp.norm(ROWS.T @ q.epsilon) <= 2])]),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_certified(name):
    assert_certified(figures(cm.Market(SELLERS, *VARIANTS[name])))


def lines(objective, constraints):
    """Return the lines of code of a variant: one, and three for each user-defined piece."""
    pieces = [*(part.term for part in objective.parts), *constraints]
    return 1 + 3 * sum(isinstance(piece, Own | Bound) for piece in pieces)
