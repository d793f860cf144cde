"""Compare plans with independent quadrature, the exact solver and brute force."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.exact_solver import solve_exact
from convexmarket.errors import (
    NotSupportedError,
    ParameterError,
    PriorError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.market import StandardForm
from convexmarket.online.atoms import Atoms, cells_of
from convexmarket.online.plan import Buyer, plan
from tests import one_in
from tests.online.builders import (
    CONTINUOUS,
    PRIORS,
    dense_cells,
    expectation,
    policy_of,
    quantile_form,
)

#: Prior with the virtual costs (0.002, 1, ..., 1), for which Eq. (14) has three roots.
THREE_ROOTS = cm.EmpiricalPrior([0.002] + [(44 + 0.002) / 45] * 44)
#: Irregular prior whose ironed virtual cost is inaccurate for the highest 10^-7 of sensitivities.
WIDE = cm.priors.Mixture([1, 3], [cm.priors.LogNormal(0.3, 0.3), cm.priors.LogNormal(0.9, 3.3)])


# ------------------------------------------------------------------------- expectations


@pytest.mark.parametrize("name", one_in(2, CONTINUOUS))
def test_moments_of_margins_equal_dense_quadrature(name):
    """Means of cells give lower bounds on E[v] and E[v^2], and ends of cells give upper bounds."""
    prior = PRIORS[name]()
    fine = dense_cells(prior)
    for level in (0.02, 0.3, 0.9):
        price = float(prior.ironed_virtual_cost(prior.quantile(level)))
        cells = cells_of(prior).refined(20_000, 0.0, price)
        expected = [
            expectation(fine, lambda psi, k=k, p=price: np.maximum(p - psi, 0) ** k) for k in (1, 2)
        ]
        inner, outer = (moments(atoms, price) for atoms in (cells.inner, cells.outer))
        np.testing.assert_allclose(inner, expected, rtol=2e-6)
        assert (inner <= outer * (1 + 1e-12)).all()
        np.testing.assert_allclose(outer, inner, rtol=2e-7)


def moments(atoms, price):
    shape = atoms.shape(np.array([price - atoms.lowest]), np.array([np.inf]))
    return np.array([shape.first[0], shape.second[0]])


# --------------------------------------------------------------------------- the optimum


CASES = [(name, m, cap) for m, cap in ((50, None), (1000, 3.0)) for name in CONTINUOUS]
CASES += [(name, 300, 1.05) for name in ("uniform from 0", "uniform", "power")]


@pytest.mark.parametrize(("name", "m", "cap"), one_in(2, CASES))
def test_the_plan_equals_the_optimum_over_the_prior(name, m, cap):
    """Compare the plan with the exact solution for n equally spaced quantiles of the prior."""
    policy = policy_of(name, m, cap)
    plan = policy.plan
    assert 0 <= plan.gap <= 1e-9
    reference = solve_exact(quantile_form(policy, 20_000))
    assert plan.objective == pytest.approx(reference.objective, rel=2e-5)
    assert plan.eta == pytest.approx(reference.eta, rel=2e-3)
    assert plan.terms.largest == (np.inf if cap is None else cap * plan.eta / m)


@pytest.mark.parametrize("sigma", [0.01, 12.0, 20.2233, 20.2235])
def test_the_best_root_equals_the_optimum_of_the_exact_solver(sigma):
    """Two of the three roots coincide at sigma = 20.22339, near two of the tested values."""
    policy = cm.OnlinePolicy(THREE_ROOTS, 45, mu=3, sigma=sigma, gamma=0.25)
    exact = solve_exact(quantile_form(policy, 45))
    assert policy.plan.objective == pytest.approx(exact.objective, rel=1e-9)
    assert policy.plan.eta == pytest.approx(exact.eta, rel=1e-7)
    assert policy.plan.gap <= 1e-9


def test_the_best_root_is_chosen_for_a_density_with_several_roots():
    """In expectation, Eq. (14) has three roots. The exact solver solves a market of quantiles."""
    expensive = cm.priors.TruncatedNormal(0.97, 0.05, 0.003, 1.0)
    humps = cm.priors.Mixture([1, 44], [cm.Uniform(0.001, 0.003), expensive])
    policy = cm.OnlinePolicy(humps, 45, mu=3, sigma=2.5, gamma=0.25)
    prices = np.geomspace(0.01, 10, 400)
    first, second = (
        np.array([moments(cells_of(humps).inner, price)[k] for price in prices]) for k in (0, 1)
    )
    balance = 2.5 * 0.25 * 45 / 9 * second + second / first - prices
    assert np.count_nonzero(np.diff(np.sign(balance))) == 3
    assert policy.plan.gap <= 1e-9
    reference = solve_exact(quantile_form(policy, 20_000))
    assert policy.plan.objective == pytest.approx(reference.objective, rel=1e-4)


@given(
    samples=st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=25),
    m=st.integers(1, 10**7),
    weights=st.tuples(*[st.floats(-4, 4)] * 3),
    cap=st.none() | st.floats(1.001, 50),
)
def test_the_plan_for_a_sample_equals_the_exact_solution(samples, m, weights, cap):
    mu, sigma, gamma = 10.0 ** np.array(weights)
    try:
        policy = cm.OnlinePolicy(cm.EmpiricalPrior(samples), m, mu, sigma, gamma, cap)
    except SolverError:  # the total epsilon depends on the last digit of the price
        assert mu**2 / m <= 1e-12 * sigma * gamma * max(samples)
        return
    n = len(samples)
    psi = policy.prior.ironed_virtual_cost(np.array(samples))
    form = StandardForm(psi, mu * np.sqrt(n / m), sigma, gamma, min(1.0, (cap or np.inf) / n))
    exact = solve_exact(form)
    assert policy.plan.objective == pytest.approx(exact.objective, rel=1e-8)
    assert policy.plan.lower_bound <= exact.objective * (1 + 1e-9)
    epsilon = policy.quote(samples).epsilon
    # The quotes attain the optimum of the plan.
    value = mu * np.sqrt(m / n) * np.sqrt(epsilon @ epsilon) + sigma
    value = value / (m / n * epsilon.sum()) + gamma * m / n * (psi @ epsilon)
    assert value == pytest.approx(exact.objective, rel=1e-6)
    if cap is not None:
        assert epsilon.max() <= cap * policy.plan.eta / m * (1 + 1e-9)


def test_a_plan_with_an_inaccurate_price_is_refused():
    """A change of the price by one ulp (2e-13) changes a guarantee by 1e-5 of the cap."""
    prior = cm.EmpiricalPrior([1871.0, 89.0, 45.0, 45.0, 495.0, 1052.0, 1704.0, 963.0])
    with pytest.raises(SolverError, match=r"mu=0\.001, .* too many orders of magnitude"):
        cm.OnlinePolicy(prior, 22993, 1e-3, 1e4, 1e4, 2.0)


@given(
    case=st.tuples(st.sampled_from(CONTINUOUS), st.none())
    | st.tuples(st.sampled_from(CONTINUOUS), st.floats(1.01, 20)),
    m=st.integers(1, 10**8),
    weights=st.tuples(*[st.floats(-3, 3)] * 3),
)
def test_no_purchase_has_a_loss_below_the_lower_bound(case, m, weights):
    name, cap = case
    prior = PRIORS[name]()
    policy = cm.OnlinePolicy(prior, m, *10.0 ** np.array(weights), cap)
    plan = policy.plan
    assert plan.lower_bound <= plan.objective
    assert plan.gap <= 1e-8
    form = quantile_form(policy, 20_000)
    rng = np.random.default_rng(0)
    for price in prior.ironed_virtual_cost(prior.quantile(rng.uniform(0.001, 0.999, 5))):
        weights = np.clip(price - form.virtual_costs, 0, None)
        for _ in range(50 if cap else 1):
            weights = np.minimum(weights / weights.sum(), form.max_weight)
        if abs(weights.sum() - 1) > 1e-9:
            continue
        eta = plan.eta * rng.uniform(0.3, 3)
        assert form.objective(weights, eta) >= plan.lower_bound * (1 - 1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize(("name", "cap"), [("beta", None), ("uniform from 0", 3.0)])
def test_plans_do_not_depend_on_the_unit_of_money(name, cap, scale):
    def policy(unit):
        prior = cm.Beta(2, 5, 0, unit) if name == "beta" else cm.Uniform(0, unit)
        return cm.OnlinePolicy(prior, 100, 1.0, 2.0, 0.5 / unit, cap)

    base, scaled = policy(1.0), policy(scale)
    assert scaled.plan.objective == pytest.approx(base.plan.objective, rel=1e-9)
    assert scaled.quote(0.05 * scale).epsilon == pytest.approx(base.quote(0.05).epsilon, rel=1e-6)


# --------------------------------------------------------------------------- Algorithm 3


@given(q=st.floats(1e-3, 1e3), m=st.integers(1, 10**9), weights=st.tuples(*[st.floats(-3, 3)] * 3))
def test_both_rules_agree_for_a_uniform_prior_from_zero(q, m, weights):
    mu, sigma, gamma = 10.0 ** np.array(weights)
    prior = cm.Uniform(0, q)
    paper = cm.OnlinePolicy(prior, m, mu, sigma, gamma, rule="algorithm-3")
    general = cm.OnlinePolicy(prior, m, mu, sigma, gamma)
    if paper.plan.cutoff > 2 * q:  # the price is above all virtual costs
        assert general.plan.objective <= paper.plan.objective * (1 + 1e-12)
        return
    reports = np.linspace(0, min(q, paper.plan.cutoff), 50)
    for expected, printed in zip(general.quote(reports), paper.quote(reports), strict=True):
        np.testing.assert_allclose(expected, printed, rtol=1e-7, atol=1e-9 * printed[0])
    assert paper.plan.objective == pytest.approx(general.plan.objective, rel=1e-9)


def test_algorithm_3_equals_the_printed_formula():
    mu, sigma, gamma, m, q = 2.0, 3.0, 0.5, 1000, 4.0
    policy = cm.OnlinePolicy(cm.Uniform(0, q), m, mu, sigma, gamma, rule="algorithm-3")
    density = 1 / (2 * q)
    cutoff = np.sqrt(mu**2 * gamma / (sigma * m * density))
    c = np.linspace(0, 0.2, 30)
    printed = 2 * np.sqrt(3) * gamma**1.5 * mu * np.maximum(cutoff - gamma * 2 * c, 0)
    printed /= density**1.5 * m**1.5 * cutoff**3.5
    assert printed[0] > 0 == printed[-1]
    np.testing.assert_allclose(policy.quote(c).epsilon, printed, rtol=1e-12)


@pytest.mark.parametrize(
    "prior", [cm.Beta(1, 3), cm.priors.Exponential(0.05), cm.Beta(1, 1, 0, 2)], ids=repr
)
def test_algorithm_3_is_asymptotically_optimal(prior):
    def excess(m):
        paper = cm.OnlinePolicy(prior, m, 1, 1, 1, rule="algorithm-3")
        return paper.plan.objective / cm.OnlinePolicy(prior, m, 1, 1, 1).plan.objective - 1

    assert excess(10**9) <= excess(10**6) + 1e-9
    assert excess(10**9) < 1e-3


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (cm.Uniform(1, 5), "its density at 0 is 0, because its support starts at 1"),
        (cm.priors.Power(3, 1), "tends to 0 or to infinity"),
        (cm.priors.Power(0.5, 1), "tends to 0 or to infinity"),
        (cm.Beta(2, 5), "tends to 0 or to infinity"),
        (cm.priors.LogNormal(0, 1), "tends to 0 or to infinity"),
        (cm.EmpiricalPrior([0.1, 1]), "it is a sample, which has no density"),
    ],
    ids=repr,
)
def test_algorithm_3_refuses_priors_outside_its_assumption(prior, words):
    with pytest.raises(PriorError, match=rf"Assumption IV\.3.*{words}.*rule=\"expectation\""):
        cm.OnlinePolicy(prior, 100, 1, 1, 1, rule="algorithm-3")
    assert cm.OnlinePolicy(prior, 100, 1, 1, 1).plan.eta > 0


# ----------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize("cap", [np.inf, 2.0])
@pytest.mark.parametrize("name", one_in(6, CONTINUOUS))
def test_a_plan_for_later_sellers_is_certified(name, cap):
    """Quotes with another price or scale have a loss of at least the plan's lower bound."""
    prior, buyer = PRIORS[name](), Buyer(1.0, 2.0, 0.5, 1000, cap)
    cells = dense_cells(prior)
    for n, total in ((990, 0.01), (500, 2.0), (10, 0.5)):
        squares = total**2 / 300
        later = plan(prior, buyer, n, total, squares, 1e-7)
        assert later.gap <= 1e-6
        values = []
        for price, scale in np.random.default_rng(0).uniform(0.5, 1.5, (50, 2)):
            terms = replace(
                later.terms, price=later.terms.price * price, scale=later.terms.scale * scale
            )
            sold = terms.epsilon(cells[1])
            eta = total + n * cells[0] @ sold
            sold = np.minimum(sold, cap * eta / 1000)
            eta = total + n * cells[0] @ sold
            norm = np.sqrt(squares + n * cells[0] @ sold**2)
            cost = n * cells[0] @ (np.minimum(cells[1], 1e300) * sold)
            if sold.max() <= cap * eta / 1000 * (1 + 1e-12):
                values.append(buyer.loss(norm, eta, cost))
        assert min(values, default=np.inf) >= later.lower_bound * (1 - 1e-6)


@pytest.mark.parametrize("cap", [None, 1.5])
def test_too_many_free_sellers_raise_an_error(cap):
    free = cm.EmpiricalPrior([0, 0, 0, 1])
    with pytest.raises(UnattainedOptimumError, match="virtual cost"):
        cm.OnlinePolicy(free, 100, mu=0.01, sigma=1, gamma=1, cap=cap)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prior": "uniform"}, "prior is 'uniform', which is not a prior"),
        ({"expected_sellers": 0}, "expected_sellers must be a whole number >= 1, got 0"),
        ({"expected_sellers": 10.0}, "expected_sellers must .*, got 10.0"),
        ({"expected_sellers": True}, "expected_sellers must .*, got True"),
        ({"mu": 0}, "mu must be a finite number > 0, got 0"),
        ({"sigma": -1}, "sigma must .*, got -1"),
        ({"gamma": np.nan}, "gamma must .*, got nan"),
        ({"gamma": "1"}, "gamma must .*, got '1'"),
        ({"mu": np.inf}, "mu must .*, got inf"),
        ({"cap": 1}, "cap, .*, must be a number > 1, got 1"),
        ({"cap": np.inf}, "cap, .*, must be a number > 1, got inf"),
        ({"rule": "algorithm 3"}, "rule must be .*one of 'expectation'.*, got 'algorithm 3'"),
    ],
)
def test_errors_name_invalid_arguments(change, words):
    arguments = {"prior": cm.Uniform(0, 1), "expected_sellers": 10, "mu": 1, "sigma": 1, "gamma": 1}
    with pytest.raises(ParameterError, match=words):
        cm.OnlinePolicy(**{**arguments, **change})


def test_algorithm_3_refuses_a_cap():
    with pytest.raises(NotSupportedError, match=r'cap is 2.*rule="expectation"'):
        cm.OnlinePolicy(cm.Uniform(0, 1), 10, 1, 1, 1, cap=2, rule="algorithm-3")


@pytest.mark.parametrize(
    ("prior", "m", "mu", "sigma", "gamma", "cap"),
    [
        (cm.priors.Power(0.00216, 1), 204946, 2.449e-4, 29.58, 2095.7, 1.2665),
        (cm.priors.Power(0.00379, 1), 1587, 1.0, 1.0, 1.0, 1.956),
        (cm.priors.LogNormal(7.28, 0.138), 10**8, 1e-7, 100, 0.02, None),
        (cm.EmpiricalPrior([516.21, 575.25, 3030.78]), 102, 1.94e-8, 20.4, 5.6e8, None),
        (cm.EmpiricalPrior([1e-83, 1.0]), 10, 1.0, 1.0, 1.0, None),
        (cm.priors.LogNormal(0, 1), 185934, 1.6319e-3, 1.0, 1.0, 1.01),
        # Almost all sellers sell, so the price is 10^5 to 10^14 times a typical virtual cost.
        (cm.priors.Exponential(220), 815, 0.0038, 2.6e-4, 0.039, 1 + 1.1e-6),
        (cm.priors.LogNormal(-2.35, 0.565), 36, 0.795, 2.1e-3, 584.0, 1 + 1.6e-8),
        (WIDE, 31299, 1e5, 0.09, 1e-3, 1 + 8.6e-8),
    ],
    ids=str,
)
def test_extreme_parameters_give_a_valid_bound_or_an_error(prior, m, mu, sigma, gamma, cap):
    """The bound is at most the loss of equal purchases from the cheapest sellers."""
    try:
        plan = cm.OnlinePolicy(prior, m, mu, sigma, gamma, cap).plan
    except SolverError:
        return
    shares = np.linspace(1 / (cap or m), 1.0, 400) if cap else np.geomspace(1e-6, 1.0, 400)
    if prior.is_step:
        shares = np.array([1 / prior.size, 1.0])
    top = prior.quantile(shares)
    simple = mu / np.sqrt(shares * m) + 2 * np.sqrt(sigma * gamma * top)
    assert plan.lower_bound <= simple.min() * (1 + 1e-9)
    assert plan.lower_bound <= plan.objective


def test_moments_of_a_few_distant_costs_do_not_contain_the_rounding_errors_of_long_sums():
    costs, masses = np.arange(60.0), 0.5 ** np.arange(1.0, 61.0)
    shape = Atoms(costs, masses).shape(np.array([59.0]), np.array([5.0]))
    assert shape.share == pytest.approx(masses[55:].sum(), rel=1e-12, abs=0)
