"""Payments equal an independent quadrature that solves the market at each report."""

import dataclasses
import importlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import AllocationError, NotSupportedError
from tests import one_in
from tests.incentives.builders import (
    PRIORS,
    accuracy_under,
    assert_exact_payments,
    corners,
    draw,
    guarantee,
    prior_of,
    small_market,
)

# Turn NumPy's warnings about NaN and infinity into errors, but not the warnings of SciPy.
pytestmark = pytest.mark.filterwarnings("error:(invalid|divide|overflow):RuntimeWarning")
module = importlib.import_module("convexmarket.incentives.rules")  # the module, not the function
rents = importlib.import_module("convexmarket.incentives.rents")


# --------------------------------------------------------------------- accuracy of 1e-8


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize(
    ("name", "cap"), one_in(4, list(zip(PRIORS, itertools.cycle([None, 2.0]))))
)
def test_payments_equal_quadrature(name, cap):
    """Test the cheapest seller who sells or, under a cap, the most expensive seller who sells."""
    sellers = draw(prior_of(name), 6, seed=3)
    market = cm.Market.standard(sellers, mu=1.5, sigma=1.0, gamma=0.6, cap=cap)
    bought = np.flatnonzero(cm.allocate(market).weights)
    assert_exact_payments(market, bought[[0 if cap is None else -1]], accuracy_under(name))


@pytest.mark.parametrize("n_cheap", one_in(4, [1, 2]))
@pytest.mark.parametrize(
    ("family", "numbers"),
    one_in(
        2,
        [
            (cm.Uniform, (0.0, 1.0)),
            (cm.priors.Exponential, (1.0,)),
            (cm.Beta, (1.0, 1.5, 0.0, 1.2)),
            (cm.priors.Power, (3.0, 1.0)),
            (cm.EmpiricalPrior, (np.linspace(0.004, 1, 12),)),
            (cm.EmpiricalPrior, (np.linspace(0.004, 1, 100),)),
        ],
    ),
)
def test_payments_are_exact_if_the_optimum_jumps_between_branches(family, numbers, n_cheap):
    """At one report, the optimum switches from few cheap sellers to many expensive sellers.

    With two cheap sellers, a cap of one half excludes purchases from a single seller.
    """
    sellers = cm.Sellers([0.005] * n_cheap + [0.5] * 44, family(*numbers))
    market = cm.Market.standard(
        sellers,
        mu=1.5 * n_cheap**0.4,
        sigma=2.5,
        gamma=0.25 / sellers.virtual_costs[-1],
        cap=None if n_cheap == 1 else 23,
    )
    result = corners(market, 0, 0.005, 0.45)  # the guarantee jumps at this report
    drop = max(np.ptp([guarantee(market, 0, z * f) for f in (1 - 1e-9, 1 + 1e-9)]) for z in result)
    assert drop > 0.1 * guarantee(market, 0, 0.005)
    assert_exact_payments(market, [0, n_cheap])


@pytest.mark.parametrize("others", one_in(3, [[], [0.6], [0.6, 1.0]]))
def test_an_indispensable_seller_is_paid_if_psi_is_infinite_at_the_top(others):
    cap = None if not others else (len(others) + 1) / 2
    market = cm.Market.standard(
        cm.Sellers([0.4, *others], cm.Beta(2, 2)), mu=1, sigma=1, gamma=0.5, cap=cap
    )
    assert_exact_payments(market, [0])


# ----------------------------------------------------------------------- contracts


def altered(allocation, **changes):
    return dataclasses.replace(allocation, **changes)


def test_the_allocation_of_another_market_is_refused():
    other = cm.Market.standard(cm.Sellers(virtual_costs=[0.1, 0.2]), mu=1, sigma=1, gamma=1)
    with pytest.raises(AllocationError, match="which has 3 sellers"):
        cm.payments(small_market(), cm.allocate(other))


@pytest.mark.parametrize(
    ("sensitivities", "cap"), [([0.3], None), ([0.3, 0.4], 1.0), ([0.3, 0.4, 0.5], 1.4)]
)
def test_an_indispensable_seller_under_an_unbounded_prior_is_refused(sensitivities, cap):
    sellers = cm.Sellers(sensitivities, cm.priors.Exponential(0.5))
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5, cap=cap)
    with pytest.raises(NotSupportedError, match=r"no largest sensitivity.*bounded support"):
        cm.payments(market, cm.allocate(market))


# -------------------------------------------------------------------------- several priors


def test_the_payment_of_each_seller_uses_the_prior_of_the_seller():
    priors = {"young": cm.Uniform(0.1, 1.0), "old": cm.Beta(2, 2, 0.2, 2.0)}
    groups = ["young", "old", "young", "old"]
    sellers = cm.Sellers([0.3, 0.4, 0.6, 0.5], priors, groups=groups)
    market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5, cap=2)
    paid = assert_exact_payments(market, range(2))
    # Equal reports in different groups have different payments.
    swapped = cm.Sellers([0.3, 0.4, 0.6, 0.5], priors, groups=groups[::-1])
    other = cm.Market.standard(swapped, mu=2, sigma=1, gamma=0.5, cap=2)
    assert abs(cm.payments(other, cm.allocate(other))[0] - paid[0]) > 0.01
    individual = cm.Sellers([0.3, 0.4, 0.6, 0.5], [priors[group] for group in groups])
    same = cm.Market.standard(individual, mu=2, sigma=1, gamma=0.5, cap=2)
    np.testing.assert_array_equal(cm.payments(same, cm.allocate(same)), paid)


# --------------------------------------------------------------------- the exact payments


def test_payments_follow_the_given_allocation_and_not_the_optimum():
    """Payments for a slightly suboptimal allocation use the guarantees of this allocation."""
    sellers = cm.Sellers([0.2, 0.5], cm.Uniform(0.1, 1.0))
    market = cm.Market.standard(sellers, mu=np.sqrt(0.6) + 1e-4, sigma=1, gamma=0.5)
    optimal = cm.allocate(market)
    assert 0 < optimal.epsilon[1] < 0.01 * optimal.epsilon[0]
    weights = np.array([1.0, 0.0])
    costs = np.where(weights > 0, sellers.virtual_costs, 0.0)
    objective = market.objective.value(weights, optimal.eta, costs)
    rough = altered(optimal, weights=weights, objective=objective)
    assert rough.gap < 1e-3
    assert cm.payments(market, optimal)[1] > 0
    paid = cm.incentives.estimate_payments(market, rough)
    assert (paid.amounts[1], paid.errors[1]) == (0.0, 0.0)


def test_payments_check_the_allocation_within_tolerances():
    """Test gaps, objectives and guarantees slightly below and above the tolerances."""
    market = small_market()
    optimal = cm.allocate(market)
    value = optimal.objective
    cm.payments(market, altered(optimal, lower_bound=value * (1 - 0.99e-3)))
    with pytest.raises(AllocationError, match="has a gap of"):
        cm.payments(market, altered(optimal, lower_bound=value * (1 - 1.01e-3)))
    cm.payments(market, altered(optimal, objective=value * (1 + 0.9e-6)))
    with pytest.raises(AllocationError, match="allocate this market"):
        cm.payments(market, altered(optimal, objective=value * (1 + 1.1e-6)))
    with pytest.raises(AllocationError, match="allocate this market"):
        cm.payments(market, altered(optimal, objective=value * (1 - 1.1e-6)))
    largest = optimal.epsilon.max()
    for share, refused in ((0.009, False), (0.011, True), (-0.011, True)):
        eta = optimal.eta * (1 + share * largest / optimal.epsilon.max())
        moved = altered(
            optimal,
            eta=eta,
            objective=market.objective.value(optimal.weights, eta, market.sellers.virtual_costs),
        )
        if refused:
            with pytest.raises(AllocationError, match="differ by up to"):
                cm.payments(market, moved)
        else:
            cm.payments(market, moved)


# ------------------------------------------------------- markets without closed-form payments


def test_payments_need_no_solve_for_a_seller_who_sells_nothing():
    sellers = cm.Sellers([0.99, 0.05, 0.06], cm.Uniform(0.0, 1.0))
    objective = 0.5 * cm.terms.SquaredSpread() + cm.Noise() + 0.6 * cm.Payments()
    market = cm.Market(sellers, objective)
    allocation = cm.allocate(market, gap=1e-8)
    assert allocation.n_bought == 2
    result = cm.incentives.estimate_payments(market, allocation)
    assert (result.amounts[0], result.errors[0]) == (0.0, 0.0)
    assert np.all(result.amounts[1:] > 0)
    single = cm.incentives.estimate_payments(market, allocation, sellers=[0])
    assert (single.amounts.tolist(), single.n_solves) == ([0.0], 1)


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_payments_by_quadrature_satisfy_the_requested_error(tol):
    """The square root of the gap bounds the error of the guarantees and is less than ``tol``."""
    sellers = cm.Sellers([0.25, 0.45, 0.7], cm.Uniform(0.2, 0.85))
    limited = cm.Market(sellers, 8 * cm.Spread() + 0.5 * cm.Noise(), [cm.Budget(2.4)])
    result = cm.incentives.estimate_payments(limited, cm.allocate(limited, gap=1e-8), tol=tol)
    assert result.method == "quadrature"
    assert result.errors.max() <= tol * result.amounts.max()


@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@given(
    st.sampled_from([name for name in PRIORS if "mixture" not in name]),
    st.integers(3, 9),
    st.integers(0, 10**6),
    st.floats(-1, 1),
    st.sampled_from([None, 1.6, 3.0]),
)
def test_payments_of_random_markets_equal_quadrature(name, m, seed, exponent, cap):
    market = cm.Market.standard(
        draw(prior_of(name), m, seed), mu=10**exponent, sigma=1.0, gamma=0.6, cap=cap
    )
    bought = np.flatnonzero(cm.allocate(market).weights)
    assert_exact_payments(market, bought[[seed % bought.size]])
