"""The parts that payments are computed from, each against an oracle of its own."""

from __future__ import annotations

import dataclasses
import importlib
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.curve import OwnReportCurve

module = importlib.import_module("convexmarket.payments")  # not the function of that name
rents = importlib.import_module("convexmarket.rents")

SELLERS = cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0))


def small_market(**changes):
    return cm.Market.standard(SELLERS, **{"mu": 1, "sigma": 1, "gamma": 0.5, **changes})


def quadratic_market(sellers=SELLERS):
    return cm.Market(sellers, cm.Spread() + cm.Noise() + 0.6 * cm.Payments(cm.PowerCost(2)))


# --------------------------------------------------------------------------- quadrature


@pytest.mark.parametrize("n", [3, 6, 11])
def test_a_lobatto_rule_is_exact_as_far_as_it_can_be(n) -> None:
    nodes, weights = module._lobatto(n)
    assert (nodes[0], nodes[-1]) == (-1.0, 1.0)
    assert nodes.size == np.unique(nodes).size == n
    for degree in range(2 * n - 2):
        exact = 2 / (degree + 1) if degree % 2 == 0 else 0.0
        assert weights @ nodes**degree == pytest.approx(exact, abs=1e-12)
    assert abs(weights @ nodes ** (2 * n - 2) - 2 / (2 * n - 1)) > 1e-12


@st.composite
def intervals(draw):
    places = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
    breakpoints = np.unique(draw(st.lists(places, max_size=5)))
    pairs = [sorted(p) for p in draw(st.lists(st.tuples(places, places), min_size=1, max_size=4))]
    return np.array(pairs)[:, 0], np.array(pairs)[:, 1], breakpoints


@given(intervals())
def test_intervals_are_cut_at_the_breakpoints_inside_and_nowhere_else(case) -> None:
    start, end, breakpoints = case
    owner, low, high = module._cut(start, end, breakpoints)
    assert np.all(low <= high)
    for k, (a, b) in enumerate(zip(start, end, strict=True)):
        found = [(x, y) for x, y in zip(low[owner == k], high[owner == k], strict=True) if x < y]
        corners = [a, *(z for z in breakpoints if a < z < b), b]
        assert found == ([] if a == b else list(pairwise(corners)))


@pytest.mark.parametrize("start", [0.3, 0.8])
def test_an_interval_that_ends_before_it_starts_is_empty(start) -> None:
    """Where sales end before the report, nothing is integrated."""
    _, low, high = module._cut(np.array([start]), np.array([0.2]), np.array([0.25, 0.5]))
    np.testing.assert_array_equal(low, high)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-7, 1e-11])
def test_integrals_are_as_good_as_the_tolerance_of_each(tolerance) -> None:
    """Smooth, kinked and with a jump, each in its own interval and to its own tolerance."""
    functions = [np.exp, lambda z: np.abs(z - 0.3), lambda z: np.where(z < 0.7, 2.0, 0.5), np.sqrt]
    low, high = np.array([-1.0, 0.0, 0.0, 0.0]), np.array([2.0, 1.0, 1.0, 4.0])
    exact = np.array([np.exp(2) - np.exp(-1), 0.29, 1.55, 16 / 3])

    def f(k, z):
        return np.choose(k, [function(np.abs(z) if i == 3 else z)
                             for i, function in enumerate(functions)])  # fmt: skip

    found = module._adaptive(f, low, high, np.full(4, tolerance))
    assert np.abs(found - exact).max() <= 30 * tolerance + 1e-11
    mixed = module._adaptive(f, low, high, np.array([1e-3, 1e-11, 1e-3, 1e-3]))
    assert abs(mixed[1] - exact[1]) < 1e-10


def test_an_interval_is_evaluated_within_its_ends_and_at_both_of_them() -> None:
    seen = []

    def f(k, z):
        seen.append((k, z))
        return z**2

    total = module._adaptive(f, np.array([0.1, 3.0]), np.array([0.3, 7.0]), np.full(2, 1e-9))
    np.testing.assert_allclose(total, [(0.3**3 - 0.1**3) / 3, (343 - 27) / 3], rtol=1e-12)
    places = [np.concatenate([z[k == i] for k, z in seen]) for i in (0, 1)]
    assert (places[0].min(), places[0].max()) == (0.1, 0.3)
    assert (places[1].min(), places[1].max()) == (3.0, 7.0)
    assert len(seen) == 2  # a polynomial of this degree is no reason to halve


@pytest.mark.parametrize("prior", [cm.Uniform(0.0, 8.0), cm.Exponential(1.0)])
def test_the_first_report_at_which_a_test_holds(prior) -> None:
    """Bounded or not, however far beyond the mean, and for each seller its own."""
    where = np.array([0.3, 1.7, 2.5, 6.0 if np.isfinite(prior.support[1]) else 90.0])
    start = np.array([0.2, 0.0, 2.4, 0.5])
    found = module._first_true(lambda who, z: z >= where[who], np.arange(4), start, prior)
    np.testing.assert_allclose(found, where, rtol=1e-13)
    assert np.all(found >= where)
    never = module._first_true(lambda who, z: z < 0, np.arange(4), start, cm.Uniform(0.0, 8.0))
    np.testing.assert_array_equal(never, 8.0)
    few = module._first_true(lambda who, z: z >= where[who], np.array([3, 1]), start[:2], prior)
    np.testing.assert_allclose(few, where[[3, 1]], rtol=1e-13)


class Falls:
    """Guarantees that fall from one to nothing in a distance of each seller's own; see B's u."""

    def __init__(self, distances, falls) -> None:
        self.distances, self.falls, self.asked = np.array(distances), falls, []

    def __call__(self, seller, virtual_costs):
        self.asked.append((seller, 0.5 * virtual_costs))  # psi is twice the report
        return SimpleNamespace(epsilon=self.falls(0.5 * virtual_costs / self.distances[seller]))


@pytest.mark.parametrize(
    ("falls", "integral"),
    [
        (lambda x: np.exp(-x), lambda a, b: np.exp(-a) - np.exp(-b)),
        (lambda x: (1 + x) ** -2.0, lambda a, b: 1 / (1 + a) - 1 / (1 + b)),
        (lambda x: (x < 1).astype(float), lambda a, b: max(min(b, 1.0) - min(a, 1.0), 0.0)),
    ],
    ids=["exponential", "hyperbola", "jump"],
)
@pytest.mark.parametrize("report", [0.0, 1e-9, 0.3])
def test_accuracy_is_relative_to_what_is_paid_within_an_order(falls, integral, report) -> None:
    """Wherever sales end: never to more than the payment, nor to much less than its tenth."""
    distances = [1e4, 3.0, 1.0, 0.2, 1e-2, 3e-5, 1e-7, 1e-9]
    curve, who = Falls(distances, falls), np.arange(8)
    reports, end = np.full(8, report), np.full(8, 2.0)
    least = module._least_payment(curve, cm.Uniform(0.0, 2.0), who, reports, end)
    rents = [d * integral(report / d, 2.0 / d) for d in distances]
    paid = report * falls(report / np.array(distances)) + rents
    assert np.all(least <= paid * (1 + 1e-12))
    assert np.all(least >= paid / 15)


@pytest.mark.parametrize("report", [0.0, 1e-6, 0.3, 1.9])
def test_the_scale_of_accuracy_is_sought_only_where_there_is_more_to_find(report) -> None:
    """What is sold at most to a report, times the distance, must exceed what is known by then."""
    distances = [1e4, 1.7, 0.7, 0.4, 0.1, 1e-2, 1e-4, 1e-6]
    curve, who = Falls(distances, lambda x: np.exp(-x)), np.arange(8)
    reports, end = np.full(8, report), np.full(8, 2.0)
    module._least_payment(curve, cm.Uniform(0.0, 2.0), who, reports, end)
    (_, first), *others = curve.asked
    np.testing.assert_array_equal(first, reports)
    at_report = np.exp(-report / np.array(distances))
    known = 1e-3 * report * at_report
    for k, (seller, z) in enumerate(others):
        most = (z - report) * at_report[seller]
        assert np.all(z > report)
        assert k == 0 or np.all(most > known[seller])
        sold = np.exp(-z / np.array(distances)[seller])
        known[seller] = np.maximum(known[seller], (z - report) * sold)
    asked = np.bincount(np.concatenate([seller for seller, _ in others]), minlength=8)
    assert asked[0] == 1  # half of the way says enough
    if report == 1.9:
        assert asked.max() <= 2  # the report itself is worth more than the rest of the way


# --------------------------------------------------------------------- the exact payments


@pytest.mark.parametrize("mu", [0.3, 0.8, 2.0])
def test_sales_end_where_the_market_does_without_the_seller(mu) -> None:
    market = small_market(mu=mu)
    curve = OwnReportCurve(market.standard_form)
    prior, who = SELLERS.prior, np.arange(3)

    def sold(seller, z):
        return curve(np.array([seller]), np.asarray(prior.ironed_virtual_cost([z]))).epsilon[0]

    end = module.last_sale(curve, prior, who, SELLERS.sensitivities)
    for seller in np.flatnonzero(curve.truth):
        assert end[seller] > SELLERS.sensitivities[seller]
        assert sold(seller, end[seller] * (1 - 1e-6)) > 0
        assert end[seller] == 1.0 or sold(seller, end[seller] * (1 + 1e-12)) <= 1e-14


@pytest.mark.parametrize("distance", [1e-2, 1e-6, 1e-10, 1e-13])
def test_a_report_next_to_the_top_earns_a_rent_without_cancellation(distance) -> None:
    """The rent is guarantee times distance there: a difference of objectives has no digits left."""
    top = 1.0
    market = cm.Market.standard(
        cm.Sellers([0.3, top - distance], cm.Uniform(0.1, top)), mu=4, sigma=3, gamma=0.3
    )
    allocation = cm.allocate(market)
    assert allocation.epsilon[1] > 0
    found = cm.payments(market, allocation)[1] - (top - distance) * allocation.epsilon[1]
    curve = OwnReportCurve(market.standard_form)
    who, reports = np.array([1]), np.array([top - distance])
    rent = module.information_rents(curve, market.sellers.prior, who, reports)[0]
    exact = (top - reports[0]) * allocation.epsilon[1]
    assert rent == pytest.approx(exact, rel=2 * distance + 1e-7)
    assert found == pytest.approx(exact, rel=2 * distance + 1e-7, abs=1e-15)


def test_the_errors_of_exact_payments_are_a_share_of_them() -> None:
    market = small_market()
    found = cm.estimate_payments(market, cm.allocate(market))
    np.testing.assert_allclose(found.errors, 1e-10 * found.amounts, rtol=1e-12)
    assert found.n_solves == 0


def test_only_the_sellers_asked_for_are_paid_in_their_order() -> None:
    market = small_market(cap=1.5)
    allocation = cm.allocate(market)
    everyone = cm.payments(market, allocation)
    for who in ([0], [2], [2, 0], [1, 1]):
        found = cm.estimate_payments(market, allocation, sellers=who)
        np.testing.assert_array_equal(found.amounts, everyone[who])
        np.testing.assert_array_equal(found.sellers, who)
    alone = cm.estimate_payments(market, allocation, sellers=2)
    assert alone.amounts.tolist() == [everyone[2]]
    with pytest.raises(cm.ParameterError, match="give positions from 0 to 2"):
        cm.estimate_payments(market, allocation, sellers=[3])
    with pytest.raises(cm.ParameterError, match="give positions from 0 to 2"):
        cm.estimate_payments(market, allocation, sellers=[-1])


def test_sellers_that_are_not_positions_are_refused() -> None:
    """Lists of several lengths are no array at all."""
    market = small_market()
    allocation = cm.allocate(market)
    for sellers in ([[0], [1, 2]], "all", [None], [[0.0]], [True]):
        with pytest.raises(cm.ParameterError, match="give positions from 0 to 2"):
            cm.estimate_payments(market, allocation, sellers=sellers)


def test_what_is_not_a_market_is_not_paid() -> None:
    allocation = cm.allocate(small_market())
    for pay in (cm.payments, cm.estimate_payments):
        with pytest.raises(cm.ParameterError, match=r"market is .*; give a Market"):
            pay(SELLERS, allocation)


def test_who_is_not_bought_from_is_paid_nothing_though_the_optimum_buys_a_little() -> None:
    """An allocation may be a little off; its payments are for what it buys."""
    sellers = cm.Sellers([0.2, 0.5], cm.Uniform(0.1, 1.0))
    market = cm.Market.standard(sellers, mu=np.sqrt(0.6) + 1e-4, sigma=1, gamma=0.5)
    good = cm.allocate(market)
    assert 0 < good.epsilon[1] < 0.01 * good.epsilon[0]
    weights = np.array([1.0, 0.0])
    costs = np.where(weights > 0, sellers.virtual_costs, 0.0)
    objective = market.objective.value(weights, good.eta, costs)
    rough = altered(good, weights=weights, objective=objective)
    assert rough.gap < 1e-3
    assert cm.payments(market, good)[1] > 0
    paid = cm.estimate_payments(market, rough)
    assert (paid.amounts[1], paid.errors[1]) == (0.0, 0.0)


def altered(allocation, **changes):
    return dataclasses.replace(allocation, **changes)


def test_what_an_allocation_must_be_for_its_market() -> None:
    """The gap, the objective and the guarantees, each just within its limit and just beyond."""
    market = small_market()
    good = cm.allocate(market)
    value = good.objective
    cm.payments(market, altered(good, lower_bound=value * (1 - 0.99e-3)))
    with pytest.raises(cm.AllocationError, match="away from its lower bound"):
        cm.payments(market, altered(good, lower_bound=value * (1 - 1.01e-3)))
    cm.payments(market, altered(good, objective=value * (1 + 0.9e-6)))
    with pytest.raises(cm.AllocationError, match="another one"):
        cm.payments(market, altered(good, objective=value * (1 + 1.1e-6)))
    with pytest.raises(cm.AllocationError, match="another one"):
        cm.payments(market, altered(good, objective=value * (1 - 1.1e-6)))
    largest = good.epsilon.max()
    for share, refused in ((0.009, False), (0.011, True), (-0.011, True)):
        eta = good.eta * (1 + share * largest / good.epsilon.max())
        moved = altered(
            good,
            eta=eta,
            objective=market.objective.value(good.weights, eta, SELLERS.virtual_costs),
        )
        if refused:
            with pytest.raises(cm.AllocationError, match="differ by up to"):
                cm.payments(market, moved)
        else:
            cm.payments(market, moved)


def test_the_optimum_found_again_must_be_the_allocations() -> None:
    good = cm.allocate(quadratic_market(), gap=1e-8)

    def with_objective(objective, gap):
        return altered(good, objective=objective, lower_bound=objective - gap)

    one = with_objective(2.0, 0.01)
    module._check_optimal(one, with_objective(2.019, 0.01))
    module._check_optimal(one, with_objective(1.981, 0.01))
    for objective in (2.021, 1.979):
        with pytest.raises(cm.AllocationError, match="the optimum of this market is"):
            module._check_optimal(one, with_objective(objective, 0.01))
    exact = with_objective(2.0, 0.0)
    module._check_optimal(exact, with_objective(2.0 + 1.9e-9, 0.0))
    with pytest.raises(cm.AllocationError):
        module._check_optimal(exact, with_objective(2.0 + 2.1e-9, 0.0))


# ---------------------------------------------------------------- markets that are solved again


def test_errors_are_measured_by_the_cost_of_a_seller_or_the_average_one() -> None:
    market = quadratic_market()
    allocation = cm.allocate(market, gap=1e-8)
    costs = SELLERS.sensitivities * allocation.epsilon**2
    scales = module._scales(market, allocation)
    assert allocation.n_bought == 3
    np.testing.assert_allclose(scales, np.maximum(costs, costs.mean()), rtol=1e-13)
    assert scales.min() < scales.max()


def test_errors_have_a_scale_where_all_who_sell_ask_for_nothing() -> None:
    sellers = cm.Sellers([0.0, 0.0, 0.6], cm.Uniform(0.0, 1.0))
    market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5, eta_range=(3.0, 3.0))
    allocation = altered(cm.allocate(market), weights=np.array([0.5, 0.5, 0.0]))
    np.testing.assert_allclose(module._scales(market, allocation), 0.2 * 3.0 / 2, rtol=1e-13)


@pytest.fixture
def solves(monkeypatch):
    """The keyword arguments of every market that is solved for payments."""
    seen = []
    solve = module.allocate

    def counted(market, *arguments, **options):
        seen.append((market, options))
        return solve(market, *arguments, **options)

    monkeypatch.setattr(module, "allocate", counted)
    monkeypatch.setattr(rents, "allocate", counted)
    return seen


def test_every_solve_is_counted_and_every_seller_reported(solves) -> None:
    market = quadratic_market()
    allocation = cm.allocate(market, gap=1e-8)
    progress = []
    found = cm.estimate_payments(
        market, allocation, accuracy=0.05, gap=1e-5, progress=lambda *now: progress.append(now)
    )
    assert found.n_solves == len(solves) > 3
    assert {options["gap"] for _, options in solves} == {1e-5}
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert cm.estimate_payments(market, allocation, accuracy=0.05, gap=1e-5).errors.shape == (3,)


def test_the_gap_follows_the_accuracy_within_limits(solves) -> None:
    """Irregular priors, whose sellers' guarantees are as good as a root of it, get the smallest."""
    market = quadratic_market()
    allocation = cm.allocate(market, gap=1e-9)
    gaps, nobody = [], np.array([], dtype=int)
    for accuracy in (0.3, 1e-5, 1e-6, 1e-13):
        solves.clear()
        cm.estimate_payments(market, allocation, accuracy=accuracy, sellers=nobody)
        gaps.append(solves[0][1]["gap"])
    money = allocation.objective / 0.6
    scale = (SELLERS.sensitivities * allocation.epsilon**2).mean()
    assert gaps[0] == 1e-6
    assert gaps[1:3] == pytest.approx([0.1 * a * scale / money for a in (1e-5, 1e-6)], rel=1e-6)
    assert gaps[3] == 1e-9
    ironed = cm.Beta(2, 0.5, 0.1, 1.0)
    assert not ironed.is_regular
    market = quadratic_market(cm.Sellers([0.2, 0.5, 0.7], ironed))
    allocation = cm.allocate(market, gap=1e-8)
    solves.clear()
    cm.estimate_payments(market, allocation, accuracy=0.3, sellers=nobody)
    assert solves[0][1]["gap"] == 1e-9


def test_one_ironed_prior_among_regular_ones_gets_the_smallest_gap(solves) -> None:
    priors = [cm.Uniform(0.1, 1.0), cm.Beta(2, 0.5, 0.1, 1.0), cm.Uniform(0.1, 1.0)]
    market = quadratic_market(cm.Sellers([0.2, 0.5, 0.7], priors))
    allocation = cm.allocate(market, gap=1e-8)
    solves.clear()
    cm.estimate_payments(market, allocation, accuracy=0.3, sellers=np.array([], dtype=int))
    assert [options["gap"] for _, options in solves] == [1e-9]


@pytest.mark.parametrize("name", ["accuracy", "gap"])
def test_accuracy_and_gap_lie_strictly_between_zero_and_one(name) -> None:
    market = quadratic_market()
    allocation = cm.allocate(market, gap=1e-8)
    for value in (0.0, 1.0, -0.1, 1.5):
        with pytest.raises(cm.ParameterError, match=f"{name} is {value}"):
            cm.estimate_payments(market, allocation, **{name: value})


def test_what_reports_do_not_change_is_paid_to_those_who_sell() -> None:
    """An unbounded price is no matter where its owner sells nothing."""
    sellers = cm.Sellers([0.2, 0.5], [cm.Uniform(0.1, 1.0), cm.Exponential(1.0)])
    limits = [cm.MaxEpsilon([0.5, 0.0])]
    market = cm.Market(sellers, cm.Spread() + cm.Noise(), limits)
    allocation = cm.allocate(market)
    found = cm.estimate_payments(market, allocation)
    assert found.amounts.tolist() == [1.0 * allocation.epsilon[0], 0.0]
    assert cm.estimate_payments(market, allocation, sellers=[1]).errors.shape == (1,)


def test_a_payment_that_is_known_to_a_percent_is_made(monkeypatch) -> None:
    """The refusal compares each error with one percent of its own scale."""
    market = quadratic_market()
    allocation = cm.allocate(market, gap=1e-8)
    allowed = 0.01 * module._scales(market, allocation)
    for shares in ([0.99] * 3, [0.5, 1.01, 0.9], [1.5, 0.1, 1.2]):
        errors = allowed * shares
        estimate = cm.PaymentEstimate(
            np.ones(3), errors, np.arange(3), "envelope", market.incentives, 0
        )
        monkeypatch.setattr(module, "estimate_payments", lambda *_, found=estimate: found)
        many = int(np.count_nonzero(errors > allowed))
        if many:
            words = f"^{many} payments are not known .* of seller {int(np.argmax(errors))} "
            with pytest.raises(cm.AllocationError, match=words):
                cm.payments(market, allocation)
        else:
            assert cm.payments(market, allocation) is estimate.amounts


def test_a_seller_who_sells_nothing_costs_no_solve(solves) -> None:
    sellers = cm.Sellers([0.99, 0.05, 0.06], cm.Uniform(0.0, 1.0))
    objective = 0.5 * cm.SquaredSpread() + cm.Noise() + 0.6 * cm.Payments()
    market = cm.Market(sellers, objective)
    allocation = cm.allocate(market, gap=1e-8)
    assert allocation.n_bought == 2
    progress = []
    found = cm.estimate_payments(
        market, allocation, gap=1e-8, progress=lambda *now: progress.append(now)
    )
    assert progress == [(1, 2), (2, 2)]
    assert (found.amounts[0], found.errors[0]) == (0.0, 0.0)
    assert np.all(found.amounts[1:] > 0)
    assert found.n_solves == len(solves)
    alone = cm.estimate_payments(market, allocation, gap=1e-8, sellers=[0])
    assert (alone.amounts.tolist(), alone.n_solves) == ([0.0], 1)


def test_money_has_no_unit_where_markets_are_solved_again() -> None:
    """In another currency: the same payments, from as many solves."""
    found = []
    for unit in (1.0, 1e-3, 1e3):
        sellers = cm.Sellers(np.array([0.2, 0.5]) * unit, cm.Beta(2, 2, 0.1 * unit, unit))
        market = cm.Market(sellers, cm.SquaredSpread() + cm.Noise() + 0.6 / unit * cm.Payments())
        allocation = cm.allocate(market, gap=1e-9)
        found.append(cm.estimate_payments(market, allocation, accuracy=1e-3))
        allowed = 1e-3 * module._scales(market, allocation)
        assert np.all(found[-1].errors <= 1.01 * allowed)
        np.testing.assert_allclose(found[-1].amounts / unit, found[0].amounts, rtol=2e-3)
    assert len({one.n_solves for one in found}) == 1


@pytest.mark.parametrize("term", [cm.Spread(), cm.SquaredSpread()])
def test_a_seller_whose_virtual_cost_is_infinite_is_paid_nothing(term) -> None:
    sellers = cm.Sellers([0.2, 0.5, 1.0], cm.Beta(2, 2, 0.1, 1.0))
    assert sellers.virtual_costs[2] == np.inf
    market = cm.Market(sellers, term + cm.Noise() + 0.6 * cm.Payments())
    allocation = cm.allocate(market, gap=1e-8)
    paid = cm.payments(market, allocation)
    assert paid[2] == 0
    assert np.all(paid[:2] > [0.2, 0.5] * allocation.epsilon[:2])


def test_under_a_budget_what_is_sold_is_integrated() -> None:
    """Reports enter by the budget, so that objectives say nothing; there is no price of money."""
    limited = cm.Market(SELLERS, cm.Spread() + cm.Noise(), [cm.Budget(0.5)])
    assert limited.incentives == "by construction"
    nobody = np.array([], dtype=int)
    found = cm.estimate_payments(limited, cm.allocate(limited, gap=1e-8), sellers=nobody)
    assert (found.method, found.n_solves) == ("quadrature", 1)


def test_a_bound_that_is_found_again_replaces_a_poorer_one() -> None:
    market = quadratic_market()
    good = cm.allocate(market, gap=1e-8)
    poor = altered(good, lower_bound=good.objective * (1 - 9e-4))
    errors = [cm.estimate_payments(market, a, sellers=[0]).errors[0] for a in (good, poor)]
    assert errors[1] <= 1.5 * errors[0] + 1e-9


@pytest.mark.parametrize("gamma", [0.5, 1e-3, 30.0])
def test_rents_beside_a_huge_spread_keep_their_digits(gamma) -> None:
    """All weights are equal then, and the objective is 10^9 times what is paid."""
    m, sigma = 3, 1.0
    market = small_market(mu=1e9, sigma=sigma, gamma=gamma)
    paid = cm.payments(market, cm.allocate(market))
    costs = SELLERS.virtual_costs
    for seller in range(m):
        others = costs.sum() - costs[seller]
        scale = np.sqrt(sigma * m / gamma) / m  # eps(z) = scale / sqrt(others + psi(z))
        sold = scale / np.sqrt(others + costs[seller])
        rent = scale * (np.sqrt(others + 1.9) - np.sqrt(others + costs[seller]))
        expected = SELLERS.sensitivities[seller] * sold + rent
        assert paid[seller] == pytest.approx(expected, rel=1e-8)
