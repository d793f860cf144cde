"""Rents over curves that are known in closed form, so that no market has to be solved."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from scipy.integrate import quad

import convexmarket as cm
from convexmarket.rents import (
    Chords,
    CurvePoint,
    SolvedCurve,
    chord_rent,
    end_of_sales,
    quadrature_rent,
    sales_end_between,
)

SHAPES = {
    "line": (lambda y: max(2.0 - y, 0.0), 2.0),
    "hyperbola": (lambda y: 1.0 / (0.3 + y) ** 2, np.inf),
    "jump": (lambda y: 3.0 - 0.2 * y if y < 0.8 else max(0.9 - 0.3 * y, 0.0), 3.0),
    "constant": (lambda y: 1.5, np.inf),
}

INTEGRALS = {
    "line": lambda y: 2 * min(y, 2.0) - min(y, 2.0) ** 2 / 2,
    "hyperbola": lambda y: 1 / 0.3 - 1 / (0.3 + y),
    "jump": lambda y: (
        3 * min(y, 0.8)
        - 0.1 * min(y, 0.8) ** 2
        + 0.9 * (min(max(y, 0.8), 3.0) - 0.8)
        - 0.15 * (min(max(y, 0.8), 3.0) ** 2 - 0.64)
    ),
    "constant": lambda y: 1.5 * y,
}


@dataclass
class KnownCurve:
    """The answers of a buyer whose optimum falls as given; F' = gamma*sold, bounds off by a gap."""

    shape: str
    gamma: float = 0.7
    gap: float = 0.0
    needed: bool = False
    asked: list = field(default_factory=list)

    def sold(self, y: float) -> float:
        return SHAPES[self.shape][0](y)

    def at(self, seller: int, y: float) -> CurvePoint:
        self.asked.append(y)
        if np.isinf(y):
            end = SHAPES[self.shape][1]
            if self.needed or np.isinf(end):
                return CurvePoint(np.inf, np.inf, 0.0, 0.0)
            value = 5.0 + self.gamma * self.integral(end)
            return CurvePoint(value + self.gap, value, 0.0, 0.0)
        value = 5.0 + self.gamma * self.integral(y)
        sold = self.sold(y)
        return CurvePoint(value + self.gap, value, sold, sold)

    def integral(self, y: float) -> float:
        return INTEGRALS[self.shape](y)


PRIORS = {
    "uniform": cm.Uniform(0.1, 1.0),
    "power": cm.Power(2.5, 1.0),
    "truncated normal": cm.TruncatedNormal(0.5, 0.2, 0.1, 1.0),
    "empirical": cm.EmpiricalPrior([0.15, 0.3, 0.32, 0.5, 0.77, 0.9]),
    "two humps, ironed": cm.Prior.from_scipy(
        scipy.stats.rv_histogram((np.array([8, 1, 6]), np.array([0.1, 0.4, 0.7, 1.0])))()
    ),
}


def place_of(prior, level, low, high) -> float:
    """The report at which the virtual cost reaches a level, by bisection."""
    for _ in range(55):
        middle = 0.5 * (low + high)
        reached = float(prior.ironed_virtual_cost(middle)) >= level
        low, high = (low, middle) if reached else (middle, high)
    return high


def exact_rent(curve, prior, report) -> float:
    """The integral of what is sold over the reports, cut finely at all that may bend or jump."""
    top = prior.support[1]
    bends = [place_of(prior, level, report, top) for level in (0.8, 2.0, 3.0)]
    kinks = np.concatenate((prior.breakpoints, np.nextafter(prior.breakpoints, np.inf), bends))
    cuts = np.unique([*np.linspace(report, top, 60), *kinks[(kinks > report) & (kinks < top)]])
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half, middle = np.diff(cuts) / 2, (cuts[1:] + cuts[:-1]) / 2
    costs = np.asarray(prior.ironed_virtual_cost(middle[:, None] + half[:, None] * nodes))
    sold = np.array([[curve.sold(float(y)) for y in row] for row in costs])
    return float(half @ (sold @ weights))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PRIORS)
def test_chords_enclose_the_rent_and_meet_the_tolerance(name, shape) -> None:
    prior, report = PRIORS[name], 0.3
    exact = exact_rent(KnownCurve(shape), prior, report)
    for tolerance in (1e-1, 1e-3):
        found = chord_rent(KnownCurve(shape), prior, 0, report, tolerance)
        assert abs(found.value - exact) <= found.error + 1e-5
        assert found.error <= tolerance
    rough = chord_rent(KnownCurve(shape, gap=1e-3), prior, 0, report, 1e-2)
    assert abs(rough.value - exact) <= rough.error + 1e-5
    assert rough.error > 0


@pytest.mark.parametrize("gamma", [0.2, 3.0])
def test_an_affine_virtual_cost_needs_the_two_ends_only(gamma) -> None:
    """F differs by gamma*slope times the rent; a gap of F is a gap of the rent over the same."""
    prior, curve = PRIORS["uniform"], KnownCurve("jump", gamma, gap=1e-4)
    found = chord_rent(curve, prior, 0, 0.25, 1e-2)
    low, high = 2 * 0.25 - 0.1, 1.9
    rent = (curve.integral(high) - curve.integral(low)) / 2
    assert found.value == pytest.approx(rent, rel=1e-9)
    assert found.error == pytest.approx(1e-4 / (2 * gamma), rel=1e-6)
    assert np.unique(np.round(curve.asked, 12)).tolist() == pytest.approx([low, high])


def test_the_report_at_the_top_earns_nothing_more() -> None:
    for name in ("uniform", "truncated normal"):
        found = chord_rent(KnownCurve("line"), PRIORS[name], 0, 1.0, 1e-6)
        assert (found.value, found.error) == (0.0, 0.0)
        integral = quadrature_rent(KnownCurve("line"), PRIORS[name], 0, 1.0, 1e-6)
        assert (integral.value, integral.error) == (0.0, 0.0)


def test_solves_stop_where_they_are_told_to() -> None:
    prior = PRIORS["truncated normal"]
    tight = chord_rent(KnownCurve("hyperbola"), prior, 0, 0.2, 1e-12, max_solves=7)
    exact = exact_rent(KnownCurve("hyperbola"), prior, 0.2)
    assert abs(tight.value - exact) <= tight.error
    curve = KnownCurve("hyperbola")
    chord_rent(curve, prior, 0, 0.2, 1e-12, max_solves=7)
    assert len(set(curve.asked)) == 8  # seven cells


@pytest.mark.parametrize("halvings", [1, 4, 10])
def test_sales_end_between_two_reports_that_close_in(halvings) -> None:
    prior = PRIORS["uniform"]
    curve = KnownCurve("line")  # sold up to psi = 2z - 0.1 = 2, beyond the top ...
    assert sales_end_between(curve, prior, 0, 0.2, 0.99, halvings) == (0.99, 0.99)
    curve = KnownCurve("jump")  # ... or never, or to psi = 3
    wide = cm.Uniform(0.0, 4.0)
    low, high = sales_end_between(curve, wide, 0, 0.2, 4.0, halvings)
    assert high - low == pytest.approx(3.8 / 2**halvings)
    assert low <= 1.5 <= high
    assert curve.sold(2 * low) > 1e-9


@pytest.mark.parametrize("report", [0.2, 0.9])
def test_quadrature_of_a_curve_that_ends(report) -> None:
    wide = cm.Uniform(0.0, 4.0)
    for shape in ("line", "jump", "hyperbola"):
        curve = KnownCurve(shape)
        found = quadrature_rent(curve, wide, 0, report, 1e-8)
        assert abs(found.value - exact_rent(curve, wide, report)) <= found.error + 1e-6
        assert found.error < 1e-2


@pytest.mark.parametrize("name", ["two humps, ironed", "empirical"])
def test_quadrature_is_cut_at_the_kinks_of_the_virtual_cost(name) -> None:
    curve = KnownCurve("line")
    found = quadrature_rent(curve, PRIORS[name], 0, 0.2, 1e-6)
    assert found.value == pytest.approx(exact_rent(curve, PRIORS[name], 0.2), abs=3e-5)


def test_an_endless_price_ends_where_next_to_nothing_is_sold() -> None:
    prior = cm.Exponential(0.4)
    end = end_of_sales(KnownCurve("line"), prior, 0, 0.1)
    doubled = (end - 0.1) / prior.mean
    assert np.log2(doubled) == pytest.approx(round(np.log2(doubled)), abs=1e-9)
    assert float(prior.ironed_virtual_cost(end)) >= 2.0
    before = 0.1 + (end - 0.1) / 2
    assert end == 0.1 + prior.mean or float(prior.ironed_virtual_cost(before)) < 2.0
    with pytest.raises(cm.NotSupportedError, match="cannot do without"):
        end_of_sales(KnownCurve("line", needed=True), prior, 0, 0.1)
    with pytest.raises(cm.NotSupportedError, match="cannot do without"):
        end_of_sales(KnownCurve("constant"), prior, 0, 0.1)
    assert end_of_sales(KnownCurve("constant"), PRIORS["uniform"], 0, 0.1) == 1.0


def test_what_may_be_sold_beyond_the_end_is_in_the_error() -> None:
    prior, gap = cm.Exponential(0.4), 1e-3
    found = chord_rent(KnownCurve("line", gap=gap), prior, 0, 0.1, 1e-2)
    clean = chord_rent(KnownCurve("line"), prior, 0, 0.1, 1e-2)
    exact = quad(lambda z: max(2 - float(prior.ironed_virtual_cost(z)), 0), 0.1, 2.0,
                 points=[1.0], limit=200)[0]  # fmt: skip
    assert abs(found.value - exact) <= found.error
    assert abs(clean.value - exact) <= clean.error + 1e-9
    assert found.error >= gap / 0.7  # the optimum without the seller is known no better


# ------------------------------------------------------------------------------- cells


def chords(shape="hyperbola", name="truncated normal", start=0.3, end=1.0, **options) -> Chords:
    gap = options.pop("gap", 0.0)
    return Chords(KnownCurve(shape, gap=gap), PRIORS[name], 0, start, end, **options)


@pytest.mark.parametrize("name", PRIORS)
def test_the_table_rises_from_the_first_report_to_the_last(name) -> None:
    made = chords(name=name)
    assert (made.z[0], made.z[-1]) == (0.3, 1.0)
    assert np.all(np.diff(made.z) > 0)
    assert np.all(made.y[1:] >= made.y[:-1])
    np.testing.assert_allclose(
        made.y, PRIORS[name].ironed_virtual_cost(made.z), rtol=1e-9, atol=1e-9
    )
    affine = PRIORS[name].virtual_cost_slope is not None
    assert made.z.size == 2 if affine else made.z.size > 30_000
    if not affine:
        kinks = PRIORS[name].breakpoints
        kinks = kinks[(kinks >= 0.3) & (kinks < 1.0)]
        assert np.isin(kinks, made.z).all()
        assert np.isin(np.nextafter(kinks, np.inf), made.z).all()
        firsts = made.z[[cell.first for cell in made.cells]]
        if kinks.size <= 8:
            assert np.isin(kinks[kinks > 0.3], firsts).all()


def test_cells_adjoin_and_splitting_lowers_what_can_be_lowered() -> None:
    made = chords()
    reducible = [made.reducible]
    for _ in range(12):
        assert made.split()
        assert all(a.last == b.first for a, b in pairwise(made.cells))
        assert (made.cells[0].first, made.cells[-1].last) == (0, made.z.size - 1)
        reducible.append(made.reducible)
    assert reducible[-1] < 0.05 * reducible[0]
    assert made.value == pytest.approx(sum(cell.value for cell in made.cells))
    assert made.error == pytest.approx(sum(cell.error for cell in made.cells))
    assert made.reducible == pytest.approx(sum(cell.reducible for cell in made.cells))


def test_the_worst_cell_is_split() -> None:
    made = chords("jump", "truncated normal")
    for _ in range(6):
        worst = max(made.cells, key=lambda cell: cell.reducible)
        before = list(made.cells)
        made.split()
        gone = [cell for cell in before if cell not in made.cells]
        assert gone == [worst]


def test_without_the_envelope_the_ends_bound_the_rent() -> None:
    """Upper and lower sums: half the width times the drop, around the mean of the ends."""
    made = chords(envelope=False, solved=np.array([0.5, 0.8]))
    assert [float(made.z[cell.first]) for cell in made.cells] == [0.3, 0.5, 0.8]
    for cell, (a, b) in zip(made.cells, [(0.3, 0.5), (0.5, 0.8), (0.8, 1.0)], strict=True):
        left, right = (
            made._curve.sold(float(PRIORS["truncated normal"].ironed_virtual_cost(z)))
            for z in (a, b)
        )
        assert cell.value == pytest.approx((b - a) * (left + right) / 2, rel=1e-9)
        assert cell.error == pytest.approx((b - a) * (left - right) / 2, rel=1e-9)
        assert cell.reducible == cell.error


def test_on_an_ironed_interval_there_is_one_answer() -> None:
    prior = PRIORS["two humps, ironed"]
    low, high = prior.breakpoints[:2]
    assert np.ptp(prior.ironed_virtual_cost([low, high])) < 1e-12
    made = chords(name="two humps, ironed", start=low, end=high)
    assert made.error == 0
    sold = made._curve.sold(float(prior.ironed_virtual_cost(low)))
    assert made.value == pytest.approx((high - low) * sold, rel=1e-9)
    assert not made.split()


def test_the_doubt_about_what_is_sold_is_a_root_of_the_gap() -> None:
    """With an elasticity of one the objective rises by spent/2 * (relative move)^2."""
    made = chords(gap=0.02)
    y, sold = float(made.y[0]), made.point(0).sold
    spent = 0.7 * y * sold
    assert made.doubt(0) == pytest.approx(sold * np.sqrt(2 * 0.02 / spent))
    assert chords().doubt(0) == 0
    unpaid = chords(gap=0.02)
    unpaid._curve.gamma = 0.0
    upper = unpaid.point(0).upper
    assert unpaid.doubt(0) == pytest.approx(sold * np.sqrt(2 * 0.02 / upper))


def test_roughness_is_one_at_a_jump_and_little_where_sales_fall_evenly() -> None:
    even, jump = chords("line"), chords("jump")
    end = int(np.searchsorted(even.y, 1.9))
    middle = end // 2
    assert even._roughness(0, middle, end) == 0.05
    assert even._roughness(0, 0, 0) == 1.0
    assert jump._roughness(0, int(np.searchsorted(jump.y, 0.8)), end) > 0.5
    curved = chords("hyperbola")
    left, centre, right = (curved.point(k).sold for k in (0, middle, end))
    share = (left - centre) / (left - right)
    line = (curved.y[middle] - curved.y[0]) / (curved.y[end] - curved.y[0])
    assert curved._roughness(0, middle, end) == pytest.approx(min(1.0, 2 * abs(share - line)))


# ------------------------------------------------------------------- markets that are solved


def test_a_market_is_solved_once_at_each_cost_and_not_at_the_truth() -> None:
    market = cm.Market.standard(
        cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0)), mu=1, sigma=1, gamma=0.5
    )
    allocation = cm.allocate(market)
    curve = SolvedCurve(market, allocation, gap=1e-8)
    own = float(market.sellers.virtual_costs[1])
    point = curve.at(1, own)
    assert curve.n_solves == 0
    assert (point.upper, point.lower) == (allocation.objective, allocation.lower_bound)
    assert point.epsilon == point.sold == allocation.epsilon[1]
    first = curve.at(1, 1.1)
    assert curve.at(1, 1.1) is first
    assert curve.n_solves == 1
    changed = cm.Market(market.sellers.with_virtual_cost(1, 1.1), market.objective)
    assert first.upper == pytest.approx(cm.allocate(changed).objective, rel=1e-12)
    assert curve.at(0, 1.1).epsilon != first.epsilon
    assert curve.n_solves == 2
    gone = curve.at(1, np.inf)
    assert gone.sold == 0
    assert np.isfinite(gone.upper)


def test_whom_a_market_needs_makes_it_infinitely_dear() -> None:
    market = cm.Market.standard(
        cm.Sellers([0.2, 0.5], cm.Uniform(0.1, 1.0)), mu=1, sigma=1, gamma=0.5, cap=1
    )
    curve = SolvedCurve(market, cm.allocate(market), gap=1e-8)
    gone = curve.at(0, np.inf)
    assert (gone.upper, gone.lower, gone.epsilon, gone.sold) == (np.inf, np.inf, 0.0, 0.0)
