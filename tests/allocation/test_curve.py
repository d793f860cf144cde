"""OwnReportCurve agrees with separate allocations of the markets with changed reports."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.exact_solver import solve_exact
from convexmarket.errors import InfeasibleMarketError, UnattainedOptimumError
from convexmarket.market import StandardForm

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

FREE = "virtual cost of 0"


@st.composite
def forms(draw):
    values = draw(
        st.one_of(
            st.lists(st.floats(0.01, 10), min_size=1, max_size=9),
            st.lists(st.sampled_from([0.002, 0.5, 1.0, 100.0]), min_size=1, max_size=9),
            st.builds(lambda c, m: [c] * m, st.floats(0.01, 10), st.integers(1, 9)),
            st.builds(lambda m: [0.002] + [1.0] * m, st.integers(5, 45)),
        )
    )
    psi = np.array(draw(st.permutations(values)))
    m = psi.size
    k = draw(st.sampled_from([None, None, 1.0, 1.01, 1.3, 2.0, m / draw(st.integers(1, m))]))
    decades = st.floats(-1.5, 1.5)
    form = StandardForm(
        virtual_costs=np.append(psi, np.full(draw(st.sampled_from([0, 0, 1])), np.inf)),
        mu=draw(st.sampled_from([0.0, 1.0, 1.0, 1.0])) * 10 ** draw(decades),
        sigma=10 ** draw(decades),
        gamma=10 ** draw(decades),
        max_weight=1.0 if k is None else min(1.0, k / m),
    )
    typical = np.sqrt(form.sigma / form.gamma / psi.mean())
    if draw(st.booleans()):
        eta = typical * 10 ** draw(st.floats(-1.5, 1))
        form = replace(form, eta_low=eta, eta_high=eta * 10 ** draw(st.floats(0, 2)))
    if form.mu > 0 and draw(st.booleans()):
        least = max(typical, 1.1 * form.eta_low) / m
        form = replace(form, max_epsilon=least * 10 ** draw(st.floats(0, 1)))
    return form


def with_cost(form, seller, y):
    psi = form.virtual_costs.copy()
    psi[seller] = y
    return replace(form, virtual_costs=psi)


@st.composite
def changed_reports(draw, count=4):
    """Draw a market, the indices of some sellers, and changed reports of these sellers."""
    form = draw(forms())
    finite = form.virtual_costs[np.isfinite(form.virtual_costs)]
    top = finite.max()
    notable = [0.0, np.inf, *finite, np.nextafter(top, np.inf), 2 * top, 1e3 * top]
    places = draw(st.lists(st.integers(0, finite.size - 1), min_size=1, max_size=count))
    report = st.one_of(st.sampled_from(notable), st.floats(1e-4, 30))
    reports = [draw(report) for _ in places]
    return form, np.array(places), np.array(reports)


def form_with_a_jump(y):
    """Return a form whose optimum jumps in the cheap seller's cost, and reports of two sellers."""
    form = StandardForm(np.array([0.002] + [1.0] * 44), mu=1.5, sigma=2.5, gamma=0.25)
    return form, np.array([0, 1]), np.array([y, y])


def bounded():
    """Return a form with bounded guarantees, and true, tied and extreme reports of a seller."""
    psi = np.array([0.38, 0.46, 0.3, 0.39, 0.42, 0.48])
    form = StandardForm(psi, mu=1.37, sigma=1.46, gamma=0.712, max_epsilon=0.432)
    return form, np.zeros(5, int), np.array([0.38, 0.42, 0.1, 0.7, np.inf])


@example(bounded())
@example(form_with_a_jump(0.0257))
@example(form_with_a_jump(0.0259))
@given(changed_reports())
def test_each_point_equals_the_solution_of_the_changed_market(case):
    form, places, reports = case
    try:
        points = OwnReportCurve(form)(places, reports)
    except UnattainedOptimumError as error:
        assert FREE in str(error)  # noqa: PT017 - both outcomes are valid
        refused = 0
        for seller, y in zip(places, reports, strict=True):
            try:
                solve_exact(with_cost(form, seller, y))
            except UnattainedOptimumError:
                refused += 1
            except InfeasibleMarketError:
                pass
        assert refused
        return
    for seller, y, epsilon, value, level in zip(
        places, reports, points.epsilon, points.value, points.level, strict=True
    ):
        changed = with_cost(form, seller, y)
        try:
            result = solve_exact(changed)
        except InfeasibleMarketError:
            assert (y, value, level) == (np.inf, np.inf, np.inf)
            continue
        # The curve stores costs relative to the smallest cost of the market.
        # A report that is 10**k times smaller than this cost loses k digits.
        tolerance = 1e-11 + 1e-15 * form.virtual_costs.min() / max(y, 1e-300)
        assert value == pytest.approx(result.objective, rel=tolerance, abs=1e-300)
        if form.mu == 0:  # the solution may not be unique
            assert epsilon <= form.max_weight * result.eta * (1 + tolerance)
            continue
        expected = pytest.approx(result.epsilon[seller], rel=1e-6, abs=1e-7 * result.eta)
        if epsilon != expected:
            assert is_at_a_jump(changed, seller, epsilon)
            continue
        t = form.gamma * result.eta
        bought = changed.virtual_costs[result.weights > 0].max()
        beyond = changed.virtual_costs[result.weights == 0]
        assert level >= bought * (1 - 1e-9)
        assert beyond.size == 0 or level <= beyond.min() * (1 + 1e-9) + 1e-9 * form.mu / t


def is_at_a_jump(form, seller, epsilon):
    """Check whether a guarantee lies between the guarantees at slightly lower and higher costs."""
    costs = (form.virtual_costs[seller] * factor for factor in (1 - 1e-9, 1 + 1e-9))
    below, above = (solve_exact(with_cost(form, seller, cost)).epsilon[seller] for cost in costs)
    return above * (1 - 1e-6) <= epsilon <= below * (1 + 1e-6) and below > above * (1 + 1e-6)


@given(changed_reports(count=1), st.lists(st.floats(1e-3, 20), min_size=2, max_size=12))
def test_guarantees_decrease_and_values_increase_with_the_report(case, reports):
    form, places, _ = case
    reports = np.sort(reports)
    try:
        points = OwnReportCurve(form)(np.repeat(places, reports.size), reports)
    except UnattainedOptimumError as error:
        assert FREE in str(error)  # noqa: PT017
        return
    rounding = 1e-7 * points.epsilon[:-1] + 1e-9 * points.epsilon.max()
    assert np.all(np.diff(points.epsilon) <= rounding)
    assert np.all(np.diff(points.value) >= -1e-13 * points.value[1:])


@given(changed_reports(count=1), st.floats(0.05, 5))
def test_the_slope_of_the_value_is_gamma_times_epsilon(case, y):
    """Check the envelope theorem in integral form, which also holds at jumps and kinks."""
    form, places, _ = case
    nodes, weights = np.polynomial.legendre.leggauss(4)
    # A kink or a jump causes an error in only one of the many short panels.
    edges = np.linspace(y, 1.5 * y, 401)
    half = 0.5 * np.diff(edges)
    z = (edges[:-1, None] + half[:, None] * (nodes + 1)).ravel()
    curve = OwnReportCurve(form)
    inside = curve(np.repeat(places, z.size), z).epsilon.reshape(-1, nodes.size)
    ends = curve(np.repeat(places, 2), edges[[0, -1]])
    increase = form.gamma * float(inside @ weights @ half)
    panel = form.gamma * half[0] * (ends.epsilon[0] - ends.epsilon[1])
    rounding = 1e-12 * ends.value[1]
    assert abs(ends.value[1] - ends.value[0] - increase) <= 2.01 * panel + rounding


def test_an_indispensable_seller_with_infinite_cost_sells_the_minimum():
    single = StandardForm(np.array([1.0]), 1.0, 1.0, 1.0)
    bounded = StandardForm(np.array([1.0, 2.0]), 1.0, 1.0, 1.0, 0.6, eta_low=5.0, eta_high=9.0)
    for form, least in ((single, 0.0), (bounded, 5 * 0.4)):
        curve = OwnReportCurve(form)
        assert curve.needs_each
        points = curve(np.array([0, 0]), np.array([1e12, np.inf]))
        assert points.epsilon[1] == pytest.approx(least)
        assert points.value[1] == np.inf
        assert points.epsilon[0] == pytest.approx(least, abs=1e-5)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_a_report_of_zero_is_refused(mu):
    form = StandardForm(np.array([1.0, 2.0, 3.0]), mu, 1.0, 1.0)
    with pytest.raises(UnattainedOptimumError, match=r"free.*EtaRange"):
        OwnReportCurve(form)(np.array([1]), np.array([0.0]))
    bounded = replace(form, eta_low=1.0, eta_high=7.0)
    points = OwnReportCurve(bounded)(np.array([1]), np.array([0.0]))
    assert points.epsilon == pytest.approx([7.0])
