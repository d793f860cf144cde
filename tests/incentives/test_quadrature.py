"""Many integrals at once, first roots, and the integrals of the exact curve."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.incentives import quadrature
from convexmarket.incentives.rents import ExactCurve


@st.composite
def intervals(draw):
    places = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
    breakpoints = np.unique(draw(st.lists(places, max_size=5)))
    pairs = draw(st.lists(st.tuples(places, places), min_size=1, max_size=4))
    return np.array(pairs)[:, 0], np.array(pairs)[:, 1], breakpoints


@given(intervals())
@example((np.array([0.3, 0.8]), np.array([0.2, 0.2]), np.array([0.25, 0.5])))
def test_intervals_are_cut_at_the_breakpoints_inside_and_nowhere_else(case):
    """Nothing is left of one that ends, as sales may, before it starts."""
    start, end, breakpoints = case
    owner, low, high = quadrature.cut(start, end, breakpoints)
    assert np.all(low <= high)
    for k, (a, b) in enumerate(zip(start, end, strict=True)):
        found = [(x, y) for x, y in zip(low[owner == k], high[owner == k], strict=True) if x < y]
        ends = [a, *(z for z in breakpoints if a < z < b), b]
        assert found == ([] if a >= b else list(pairwise(ends)))


@pytest.mark.parametrize("tolerance", [1e-3, 1e-7, 1e-11])
def test_integrals_are_as_good_as_the_tolerance_of_each(tolerance):
    """Smooth, kinked and with a jump, each in its own interval and to its own tolerance."""
    functions = [np.exp, lambda z: np.abs(z - 0.3), lambda z: np.where(z < 0.7, 2.0, 0.5), np.sqrt]
    low, high = np.array([-1.0, 0.0, 0.0, 0.0]), np.array([2.0, 1.0, 1.0, 4.0])
    exact = np.array([np.exp(2) - np.exp(-1), 0.29, 1.55, 16 / 3])

    def f(k, z):
        return np.choose(k, [function(np.abs(z) if i == 3 else z)
                             for i, function in enumerate(functions)])  # fmt: skip

    found, error = quadrature.adaptive(f, low, high, np.full(4, tolerance))
    assert np.all(error <= 30 * tolerance)
    assert np.abs(found - exact).max() <= 30 * tolerance + 1e-11
    mixed, _ = quadrature.adaptive(f, low, high, np.array([1e-3, 1e-11, 1e-3, 1e-3]))
    assert abs(mixed[1] - exact[1]) < 1e-10


def test_an_interval_is_evaluated_within_its_ends_and_at_both_of_them():
    seen = []

    def f(k, z):
        seen.append((k, z))
        return z**2

    total, _ = quadrature.adaptive(f, np.array([0.1, 3.0]), np.array([0.3, 7.0]), np.full(2, 1e-9))
    np.testing.assert_allclose(total, [(0.3**3 - 0.1**3) / 3, (343 - 27) / 3], rtol=1e-12)
    places = [np.concatenate([z[k == i] for k, z in seen]) for i in (0, 1)]
    assert (places[0].min(), places[0].max()) == (0.1, 0.3)
    assert (places[1].min(), places[1].max()) == (3.0, 7.0)
    assert len(seen) == 3  # a polynomial of this degree is no reason to halve


@given(
    level=st.lists(st.floats(-1.0, 4.0), min_size=1, max_size=5),
    start=st.floats(0.0, 0.9),
    shape=st.sampled_from(["line", "steps", "jump to infinity", "flat"]),
)
@example(level=[0.5], start=0.0, shape="flat")
@example(level=[1.0, 3.0], start=0.0, shape="steps")
def test_the_first_report_at_a_level_is_the_first(level, start, shape):
    shapes = {
        "line": lambda z: 3.0 * z,
        "steps": lambda z: np.floor(4.0 * z),
        "jump to infinity": lambda z: np.where(z < 0.6, z, np.inf),
        "flat": lambda z: np.clip(4.0 * z - 1.5, 0.0, 0.5),
    }
    starts = np.full(len(level), start)
    found = quadrature.first_root(
        lambda z, at: shapes[shape](z) - at, np.array(level), starts, 1.0, 1.0
    )
    for wanted, z in zip(level, found, strict=True):
        assert start <= z <= 1.0
        assert shapes[shape](z) >= wanted or z == 1.0
        before = max(start, z - 1e-12)
        assert before == start or shapes[shape](before) < wanted


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("mu", [1.0, 30.0])
@pytest.mark.parametrize(
    "prior",
    [
        cm.Beta(2, 5, 0.02, 0.1),
        cm.priors.LogNormal(-3, 1),
        cm.priors.Mixture([0.5, 0.5], [cm.Uniform(0.02, 0.05), cm.Uniform(0.04, 0.1)]),
    ],
    ids=["smooth", "without a top", "ironed"],
)
def test_integrals_of_many_sellers_are_those_of_each(prior, mu, cap, monkeypatch):
    """Most follow from others, and no integral is asked for twice."""
    reports = prior.sample(1200, np.random.default_rng(5))
    reports[100:110] = reports[100]
    sellers = cm.Sellers(reports, prior)
    market = cm.Market.standard(sellers, mu=mu, sigma=100.0, gamma=0.001, cap=cap)
    curve = ExactCurve(OwnReportCurve(market.form.exact))
    who = np.flatnonzero(curve.curve.truth)
    each, asked = curve._integrals(prior, who, reports[who])[0], []

    def counted(prior, seller, reports):
        asked.extend(seller)
        return each[np.searchsorted(who, seller)], np.zeros(seller.size)

    monkeypatch.setattr(curve, "_integrals", counted)
    found, _ = curve.rents(prior, who, reports[who], np.zeros(who.size))
    paid = reports[who] * curve.curve.truth[who] + each
    assert np.max(np.abs(found - each) / paid) < 2e-10
    assert len(asked) == len(set(asked))
    if isinstance(prior, cm.Beta):
        assert len(asked) < 0.6 * who.size
