"""Test the search over eta on known functions instead of solved markets."""

import numpy as np
import pytest

from convexmarket.allocation.allocation_result import SolveRecord
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, Excluded, search_eta
from convexmarket.errors import SolverError, UnattainedOptimumError

EVERYWHERE = (0.0, np.inf)


def line(value, slope) -> KeptSpreadCut:
    """Return a cut whose lower bound at eta is value + slope*eta."""
    return KeptSpreadCut(0.0, 0.0, np.array([value]), np.array([slope]), lambda c: c.min(), 0.0)


# ---------------------------------------------------------------- whole searches


class Tangents:
    """Market whose optimal value is a known convex function of eta, with its tangents as cuts."""

    def __init__(self, value, slope, ends, short=0.0, fails=lambda _: False):
        self.value, self.slope, self.ends = value, slope, ends
        self.short, self.fails = short, fails
        self.records: list[SolveRecord] = []
        self.evaluated: list[float] = []

    def solve(self, eta: float) -> Evaluated:
        self.evaluated.append(eta)
        if self.fails(eta):
            raise SolverError(f"failed at {eta}")
        value, slope = self.value(eta), self.slope(eta)
        cut = line(value - slope * eta - self.short, slope)
        self.records.append(SolveRecord(eta, value, cut(eta), "optimal", 0.0))
        return Evaluated(np.ones(1), eta, value, cut, abs(value))


def valley(low=0.01, high=100.0, **changes) -> Tangents:
    """Return a market with the optimal value eta + 4/eta, whose minimum is 4 at eta = 2."""
    return Tangents(lambda x: x + 4 / x, lambda x: 1 - 4 / x**2, (low, high), **changes)


@pytest.mark.parametrize("first", [0.05, 1.9, 60.0])
@pytest.mark.parametrize("gap", [0.3, 1e-3, 1e-6])
def test_the_search_stops_as_soon_as_the_gap_is_reached(first, gap):
    runner, records = valley(), []
    best, bound = search_eta(runner, first, gap, 200, records.append)
    assert best.objective == min(record.upper for record in runner.records)
    assert bound <= 4.0 <= best.objective
    assert best.objective - bound <= gap * best.objective
    assert runner.evaluated[0] == pytest.approx(first)
    assert records == runner.records
    assert len(records) <= {0.3: 10, 1e-3: 16, 1e-6: 26}[gap]
    assert len(set(runner.evaluated)) == len(runner.evaluated)
    if len(records) > 1:  # a search with one solve fewer does not reach the gap
        best, bound = search_eta(valley(), first, gap, len(records) - 1, None)
        assert best.objective - bound > 0.9 * gap * best.objective


@pytest.mark.parametrize(
    ("first", "fails"),
    [
        (10.0, lambda eta: eta < 5),  # solves fail at the minimum and at smaller eta
        (1.2, lambda eta: 1.3 < eta < 4),  # solves fail between two solved points
    ],
)
def test_a_solver_failure_near_the_minimum_is_reported(first, fails):
    runner = valley(0.0, np.inf, fails=fails)
    with pytest.raises(SolverError, match="failed at"):
        search_eta(runner, first, 1e-12, 200, None)


def without_minimiser():
    """Return a market with the optimal value 1 + 1/eta, which has no minimiser."""
    return Tangents(lambda x: 1 + 1 / x, lambda x: -1 / x**2, EVERYWHERE)


def test_an_objective_that_decreases_towards_zero_or_infinity_has_no_optimum():
    """The objective is lowest at the outermost evaluated eta, and decreases beyond it."""
    towards_zero = Tangents(lambda x: x, lambda _: 1.0, EVERYWHERE)
    with pytest.raises(UnattainedOptimumError, match=r"eta tends to 0, objective .*EtaRange"):
        search_eta(towards_zero, 1.0, 1e-6, 200, None)
    assert len(towards_zero.records) < 60
    decreasing = without_minimiser()
    with pytest.raises(UnattainedOptimumError, match="eta tends to infinity, objective"):
        search_eta(decreasing, 1.0, 1e-6, 200, None)
    assert len(decreasing.records) <= 60


@pytest.mark.parametrize("most", [1, 2, 5, 20])
def test_an_interrupted_search_returns_a_valid_bound(most):
    """With few solves, the search cannot detect that no optimum exists, but the bound is valid."""
    decreasing = without_minimiser()
    best, bound = search_eta(decreasing, 1.0, 1e-30, most, None)
    assert len(decreasing.records) == most
    assert bound <= 1.0 < best.objective


# ------------------------------------------------------------- proofs of infeasibility


class Bounded(Tangents):
    """Market that is feasible between two bounds on eta, with stub proofs of infeasibility."""

    def __init__(self, low, high, **changes):
        super().__init__(lambda x: x + 4 / x, lambda x: 1 - 4 / x**2, (0.0, np.inf), **changes)
        self.low, self.high = low, high

    def solve(self, eta):
        if eta < self.low:
            return Excluded(0.0, self.near(eta, self.low), ("the floor",))
        if eta > self.high:
            return Excluded(self.near(eta, self.high), np.inf, ("the lid",))
        return super().solve(eta)

    @staticmethod
    def near(eta, wall):
        """Return the geometric mean of eta and a bound, or the bound if it is close to eta."""
        return wall if abs(eta / wall - 1) < 1e-3 else np.sqrt(eta * wall)


@pytest.mark.parametrize("first", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("low", "high", "best"), [(3.0, 50.0, 3.0), (0.1, 1.0, 1.0), (0.5, 9, 2)])
@pytest.mark.parametrize("bounded_by", [Bounded, valley])
def test_a_range_is_searched_to_its_ends(first, low, high, best, bounded_by):
    runner = bounded_by(low, high)
    point, bound = search_eta(runner, first, 1e-4, 200, None)
    assert point.objective == pytest.approx(best + 4 / best, rel=1e-4)
    assert bound <= best + 4 / best
    assert point.objective - bound <= 1e-4 * point.objective


def test_a_time_limit_ends_a_search_with_a_valid_bound():
    runner = valley()
    best, bound = search_eta(runner, 0.05, 1e-9, 200, None, time_limit=0.0)
    assert len(runner.records) == 1
    assert bound <= 4.0 <= best.objective
