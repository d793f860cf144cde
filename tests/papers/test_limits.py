"""Test the leading order of the loss for many sellers, and curves at equal payments."""

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from problems.papers.limits import CAP, LIMIT, Variants
from tests.papers.separable import loss_limit

MU, SIGMA, GAMMA = 1.3, 0.7, 0.4


def parts(prior, m):
    """Compute the three terms of the optimal loss for sellers at the quantiles of a prior."""
    sellers = cm.Sellers(prior.quantile((np.arange(m) + 0.5) / m), prior=prior)
    result = cm.allocate(cm.Market.standard(sellers, mu=MU, sigma=SIGMA, gamma=GAMMA))
    spread = MU * np.linalg.norm(result.weights)
    return np.array([spread, SIGMA / result.eta, result.objective - spread - SIGMA / result.eta])


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_loss_of_many_sellers_has_the_constant_and_rate_of_the_paper(order):
    exponent = order + 1  # F(c) = (c/2)^exponent, psi(c) = c (1 + 1/exponent)
    top = 2.0 * (1.0 + 1.0 / exponent)
    prior = cm.Uniform(0, 2) if order == 0 else cm.priors.Power(exponent, 2.0)
    density = exponent / top**exponent
    errors = []
    for m in (10**4, 10**6):
        limit = loss_limit(m, MU, SIGMA, GAMMA, density=density, order=order)
        errors.append(np.abs(parts(prior, m) / limit - 1.0).max())
    assert errors[1] < 5e-3
    assert errors[1] < errors[0]
    ratio = limit.sum() / loss_limit(10**4, MU, SIGMA, GAMMA, density=density, order=order).sum()
    assert ratio == pytest.approx(100 ** (-1 / (2 * (order + 2))))
    if order == 0:
        printed = 4 * density**-0.25 * SIGMA**0.25 * MU**0.5 * GAMMA**0.25 / np.sqrt(3)
        assert limit.sum() == pytest.approx(printed / 10**1.5)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_the_last_term_of_e_4_is_xi_and_not_3_xi(share):
    m, prior = 10**6, cm.Uniform(0, 2)
    policy = cm.OnlinePolicy(prior, m, mu=MU, sigma=SIGMA, gamma=GAMMA, rule="algorithm-3")
    came = prior.quantile((np.arange(int(share * m)) + 0.5) / int(share * m))
    loss = cm.online.run_online(policy, came).loss(prior)
    limit = loss_limit(m, MU, SIGMA, GAMMA, density=0.25, share=share)
    assert loss == pytest.approx(limit.sum(), rel=3e-3)
    printed = limit.sum() + 2 * limit[2]
    assert loss < 0.95 * printed


def test_curves_are_compared_at_equal_abscissas():
    x = [1.0, 2.0, 4.0]
    limit = pd.DataFrame({"market": LIMIT, "epsilon_max": x, "objective": 1 / np.array(x)})
    cap = pd.DataFrame({"market": CAP, "epsilon_max": [1.0, 2.0, 3.9, 9.0]})
    cap["objective"] = [1.0, 0.55, 0.3, 0.1]
    runs = pd.concat([limit, cap], ignore_index=True).assign(status="solved")
    change = Variants().change({"runs": runs})
    assert change.iloc[:2].tolist() == pytest.approx([0.0, 0.1])
    assert change.iloc[2] > 0.1
    assert len(change) == 3, "the last point is beyond the curve"
