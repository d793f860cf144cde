"""The search over eta without a solver: cuts by place, where it looks, when it stops."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.allocation import eta_search
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, search_eta
from convexmarket.allocation.region import Region
from convexmarket.allocation.result import SolveRecord
from convexmarket.errors import ParameterError, SolverError, UnattainedOptimumError

EVERYWHERE = Region(0.0, np.inf, None)


def line(value, slope) -> KeptSpreadCut:
    """The bound value + slope*eta."""
    return KeptSpreadCut(0.0, 0.0, np.array([value]), np.array([slope]), lambda c: c.min(), 0.0)


# ---------------------------------------------------------------- whole searches


class Tangents:
    """A market whose optimal value is a known convex function of eta; cuts are its tangents."""

    def __init__(self, value, slope, region, short=0.0, fails=lambda _: False):
        self.value, self.slope, self.region = value, slope, region
        self.short, self.fails = short, fails
        self.records: list[SolveRecord] = []
        self.asked: list[float] = []

    def solve(self, eta: float) -> Evaluated:
        self.asked.append(eta)
        if self.fails(eta):
            raise SolverError(f"failed at {eta}")
        value, slope = self.value(eta), self.slope(eta)
        cut = line(value - slope * eta - self.short, slope)
        self.records.append(SolveRecord(eta, value, cut(eta), "optimal", 0.0))
        return Evaluated(np.ones(1), eta, value, cut)


def valley(low=0.01, high=100.0, **changes) -> Tangents:
    """eta + 4/eta: 4 at eta = 2."""
    return Tangents(lambda x: x + 4 / x, lambda x: 1 - 4 / x**2, Region(low, high, None), **changes)


@pytest.mark.parametrize("first", [0.05, 1.9, 60.0])
@pytest.mark.parametrize("gap", [0.3, 1e-3, 1e-6])
def test_the_minimum_is_found_within_the_gap_and_no_further(first, gap):
    runner, seen = valley(), []
    best, bound = search_eta(runner, first, gap, 200, seen.append)
    assert best.objective == min(record.upper for record in runner.records)
    assert bound <= 4.0 <= best.objective
    assert best.objective - bound <= gap * best.objective
    assert runner.asked[0] == pytest.approx(first)
    assert seen == runner.records
    assert len(seen) <= {0.3: 10, 1e-3: 16, 1e-6: 26}[gap]
    assert len(set(runner.asked)) == len(runner.asked)
    if len(seen) > 1:  # one less does not do
        best, bound = search_eta(valley(), first, gap, len(seen) - 1, None)
        assert best.objective - bound > 0.9 * gap * best.objective


def test_solves_are_counted():
    for most in (1, 2, 5):
        runner = valley()
        best, bound = search_eta(runner, 0.05, 1e-9, most, None)
        assert len(runner.records) == most
        assert bound <= 4.0 <= best.objective


def test_the_ends_of_the_region_are_optima_too():
    for low, high, expected in ((3.0, 50.0, 3.0), (0.1, 1.0, 1.0)):
        runner = valley(low, high)
        best, bound = search_eta(runner, 0.9 * low, 1e-6, 200, None)
        value = expected + 4 / expected
        assert best.objective == pytest.approx(value, rel=1e-6)
        assert value * (1 - 1e-6) <= bound <= value * (1 + 1e-12)
        assert all(low <= eta <= high for eta in runner.asked)


def test_one_eta_needs_one_solve():
    runner = valley(3.0, 3.0)
    best, bound = search_eta(runner, 1.0, 1e-6, 200, None)
    assert runner.asked == [3.0]
    assert (best.eta, bound) == (3.0, pytest.approx(3 + 4 / 3))


def test_where_all_of_the_objective_does_is_fall_a_failing_solver_means_no_optimum():
    """1 + 1/eta, whose bound stays finite as eta grows."""

    def falling(high=np.inf, fails_at=1e3, **changes):
        return Tangents(
            lambda x: 1 + 1 / x, lambda x: -1 / x**2, Region(1e-3, high, None),
            fails=lambda eta: eta > fails_at, **changes,
        )  # fmt: skip

    with pytest.raises(UnattainedOptimumError, match="eta -> infinity"):
        search_eta(falling(), 1.0, 1e-6, 200, None)
    with pytest.raises(SolverError, match="failed at"):
        search_eta(falling(high=1e6), 1.0, 1e-9, 200, None)


@pytest.mark.parametrize(
    ("first", "fails"),
    [
        (10.0, lambda eta: eta < 5),  # below the best eta: it rises
        (1.2, lambda eta: 1.3 < eta < 4),  # between two: beyond the second it rises again
    ],
)
def test_a_solver_that_fails_where_the_objective_rises_is_reported(first, fails):
    runner = valley(0.0, np.inf, fails=fails)
    with pytest.raises(SolverError, match="failed at"):
        search_eta(runner, first, 1e-12, 200, None)
    assert all(record.eta == first or record.eta > 4 for record in runner.records)


def test_a_constant_error_of_the_solver_does_not_make_the_search_go_on_forever():
    """Cuts a little below their points cannot be closed by more of them."""
    exact, short = valley(), valley(short=2e-6)
    search_eta(exact, 0.5, 1e-8, 200, None)
    best, bound = search_eta(short, 0.5, 1e-8, 200, None)
    assert best.objective - bound <= 4e-6
    assert len(short.records) <= len(exact.records) + 2


@pytest.mark.parametrize("patience", [5, 20])
def test_solves_that_get_no_closer_end_a_search_with_patience(patience):
    """Without it, a larger error than rounding means cuts that do not touch: descend."""
    coarse, endless, exact = valley(short=0.01), valley(short=0.01), valley()
    best, bound = search_eta(coarse, 0.5, 1e-8, 200, None, patience)
    assert patience < len(coarse.records) <= patience + 15
    assert 0.01 <= best.objective - bound <= 0.016
    search_eta(endless, 0.5, 1e-8, 200, None)
    assert len(endless.records) > 60
    best, bound = search_eta(exact, 0.5, 1e-8, 200, None, patience)
    assert best.objective - bound <= 1e-8 * best.objective


def falls_forever():
    """Return 1 + 1/eta, which no eta minimises."""
    return Tangents(lambda x: 1 + 1 / x, lambda x: -1 / x**2, EVERYWHERE)


def test_an_objective_that_falls_with_eta_or_towards_zero_has_no_optimum():
    """Seen by how far the search has got."""
    towards_zero = Tangents(lambda x: x, lambda _: 1.0, EVERYWHERE)
    with pytest.raises(UnattainedOptimumError, match=r"eta -> 0; objective .*EtaRange"):
        search_eta(towards_zero, 1.0, 1e-6, 200, None)
    assert len(towards_zero.records) < 60
    falls = falls_forever()
    with pytest.raises(UnattainedOptimumError, match="eta -> infinity; objective"):
        search_eta(falls, 1.0, 1e-30, 200, None)
    assert len(falls.records) <= 60


@pytest.mark.parametrize("most", [1, 2, 5, 20])
def test_a_search_that_is_stopped_claims_no_more_than_it_has_proven(most):
    """It has not seen that there is no optimum; the gap is open, and the bound holds."""
    falls = falls_forever()
    best, bound = search_eta(falls, 1.0, 1e-30, most, None)
    assert len(falls.records) == most
    assert bound <= 1.0 < best.objective


def test_where_cuts_do_not_touch_a_descent_takes_over():
    """Cuts that prove 1 and no more, of an objective of at least 2: no split raises the bound."""

    class Flat(Tangents):
        def solve(self, eta):
            return replace(super().solve(eta), cut=line(1.0, 0.0))

    def solver() -> Flat:
        return Flat(lambda x: 2 + np.log(x / 3) ** 2, lambda _: 0.0, Region(0.1, 40.0, None))

    runner = solver()
    best, bound = search_eta(runner, 10.0, 1e-6, 120, None)
    assert best.objective == pytest.approx(2.0, rel=1e-9)
    assert best.eta == pytest.approx(3.0, rel=1e-4)
    assert bound == 1.0
    assert 10 < len(runner.records) <= 120
    few = solver()
    search_eta(few, 10.0, 1e-6, 18, None)
    assert len(few.records) <= 19


# --------------------------------------------------------------- where it begins


def test_the_start_is_moved_well_inside():
    inside = eta_search.move_inside
    assert inside(5.0, Region(2.0, 2.0, None)) == 2.0
    assert inside(3.0, Region(1.0, 16.0, None)) == pytest.approx(3.0)
    assert inside(0.1, Region(1.0, 16.0, None)) == pytest.approx(16**0.05)
    assert inside(99.0, Region(1.0, 16.0, None)) == pytest.approx(16**0.95)
    assert inside(1.0, Region(2.0, np.inf, None)) == 3.0
    assert inside(7.0, Region(2.0, np.inf, None)) == 7.0
    assert inside(7.0, Region(0.0, 3.0, None)) == 2.0
    assert inside(1e-9, Region(0.0, 3.0, None)) == 1e-9
    assert inside(1e9, Region(0.0, np.inf, None)) == 1e9


# ------------------------------------------------------------------- the descent


class Descent:
    """Counts the solves of log(eta/at)^2 + 1, which are points without a cut."""

    def __init__(self, at):
        self.at, self.asked = at, []

    def __call__(self, eta):
        self.asked.append(eta)
        return self.point(eta)

    def point(self, eta):
        return Evaluated(np.ones(1), eta, 1 + np.log(eta / self.at) ** 2, line(0.0, 1.0))


@pytest.mark.parametrize("target", [1.3, 3.0, 1 / 3])
def test_a_descent_that_has_found_a_minimum_inside_is_over(target):
    solve = Descent(target)
    best = eta_search._descend(solve, solve.point(1.0), EVERYWHERE, 1000)
    assert best.eta == pytest.approx(target, rel=1e-4)
    assert len(solve.asked) <= 41
    assert all(0.25 <= eta <= 4 for eta in solve.asked)


def test_a_descent_goes_on_from_the_border_of_where_it_looked():
    for target in (60.0, 1 / 60.0):
        solve = Descent(target)
        best = eta_search._descend(solve, solve.point(1.0), EVERYWHERE, 1000)
        assert best.eta == pytest.approx(target, rel=1e-4)
        assert len(solve.asked) <= 130


def test_a_descent_without_progress_is_over():
    solve = Descent(1.0)
    start = solve.point(1.0)
    assert eta_search._descend(solve, start, EVERYWHERE, 1000) is start
    assert len(solve.asked) <= 41


def test_a_descent_keeps_to_the_region_and_to_the_number_of_solves():
    solve = Descent(60.0)
    best = eta_search._descend(solve, solve.point(1.0), Region(0.5, 2.0, None), 45)
    assert best.eta == pytest.approx(2.0, rel=1e-4)
    assert all(0.5 <= eta <= 2 for eta in solve.asked)
    assert len(solve.asked) <= 46
    solve = Descent(60.0)
    start = solve.point(1.0)
    assert eta_search._descend(solve, start, EVERYWHERE, 0) is start
    assert solve.asked == []
    eta_search._descend(solve, start, EVERYWHERE, 3)
    assert 1 <= len(solve.asked) <= 4
    last = Descent(60.0)
    assert eta_search._descend(last, start, EVERYWHERE, 1).eta > 1
    assert 1 <= len(last.asked) <= 2


# ------------------------------------------------------------ intervals and cuts


def test_halves_have_a_length():
    assert eta_search._halves(1.0, 4.0, 2.0) == [(1.0, 2.0), (2.0, 4.0)]
    assert eta_search._halves(1.0, 4.0, 1.0) == [(1.0, 4.0)]
    assert eta_search._halves(1.0, 4.0, 4.0) == [(1.0, 4.0)]
    assert eta_search._halves(2.0, 2.0, 2.0) == []


def cut(place, value=1.0) -> KeptSpreadCut:
    """A bound that is highest at a place: value - |log(eta/place)|-like, here a line and noise."""
    costs, slopes = np.array([value - 2.0]), np.array([1.0 / place])
    return KeptSpreadCut(0.0, place, costs, slopes, lambda c: float(c.min()), 0.0)


def test_cuts_are_kept_by_place_and_the_nearest_are_asked():
    cuts, places = eta_search.Cuts(), [4.0, 1.0, 8.0, 2.0, 16.0, 0.5]
    made = {place: cut(place) for place in places}
    for place in places:
        cuts.add(place, made[place])
    assert cuts.places == sorted(places)
    assert len(cuts) == 6
    assert cuts.near(2.0, 4.0) == [made[p] for p in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)]
    assert cuts.near(0.5, 0.5) == [made[p] for p in (0.5, 1.0, 2.0)]
    assert cuts.near(9.0, 9.0) == [made[p] for p in (4.0, 8.0, 16.0)]
    assert cuts.near(99.0, 99.0) == [made[p] for p in (8.0, 16.0)]
    assert cuts.at(3.0) == max(one(3.0) for one in made.values() if one in cuts.near(3.0, 3.0))


def test_the_neighbours_of_an_eta_are_blended_by_its_logarithm():
    solved = {1.0: cut(1.0), 4.0: cut(4.0, 2.0), 16.0: cut(16.0, 5.0)}
    mixed = eta_search._between(solved, 8.0)
    assert mixed.noise == pytest.approx(10.0)
    assert mixed.costs[0] == pytest.approx(1.5)
    assert eta_search._between(solved, 2.0).noise == pytest.approx(2.5)
    assert eta_search._between(solved, 1.0) is None
    assert eta_search._between(solved, 16.0) is None


@given(st.floats(-3, 3), st.floats(0.1, 4), st.floats(0, 1))
def test_an_interval_is_split_inside_and_not_next_to_an_end(low, width, share):
    low, high = 10**low, 10 ** (low + width)
    cuts = eta_search.Cuts()
    for place in (low, high):
        cuts.add(place, cut(place))
    interval = eta_search._Interval(0.0, low, high, low * (high / low) ** share, 2)
    eta = eta_search._split_at(interval, cuts)
    assert 0.05 - 1e-9 <= np.log(eta / low) / np.log(high / low) <= 0.95 + 1e-9


def test_an_open_interval_is_split_by_strides():
    cuts = eta_search.Cuts()
    for where, expected in ((1.0, 3.0), (5.0, 5.0), (99.0, 8.0), (np.inf, 8.0)):
        found = eta_search._split_at(eta_search._Interval(0.0, 2.0, np.inf, where, 0), cuts)
        assert found == expected
    for where, expected in ((0.0, 3.0), (5.0, 5.0), (11.9, 8.0)):
        found = eta_search._split_at(eta_search._Interval(0.0, 0.0, 12.0, where, 0), cuts)
        assert found == expected


def test_an_interval_is_split_where_the_cuts_of_its_ends_meet():
    """The one falls, the other rises; they are equal at 4."""
    cuts = eta_search.Cuts()
    cuts.add(1.0, line(5.0, -0.5))
    cuts.add(9.0, line(1.0, 0.5))
    for where in (1.0, 2.0, 9.0):
        interval = eta_search._Interval(3.0, 1.0, 9.0, where, 2)
        assert eta_search._split_at(interval, cuts) == pytest.approx(4.0, rel=0.01)


def test_where_one_cut_is_highest_everywhere_the_place_of_the_bound_is_taken():
    cuts = eta_search.Cuts()
    cuts.add(1.0, line(5.0, 0.5))
    cuts.add(9.0, line(1.0, 0.5))
    for where, expected in ((1.0, 9**0.05), (3.0, 3.0), (9.0, 9**0.95)):
        interval = eta_search._Interval(3.0, 1.0, 9.0, where, 2)
        assert eta_search._split_at(interval, cuts) == pytest.approx(expected)


# ------------------------------------------------------------------------ limits


def test_the_search_gives_up_far_from_where_it_began():
    eta_search._check_attained(0.9e24, 1.0, 1.0, 0.0)
    eta_search._check_attained(1.1e-24, 1.0, 1.0, 0.0)
    with pytest.raises(UnattainedOptimumError, match="infinity"):
        eta_search._check_attained(1.1e24, 1.0, 1.0, 0.0)
    with pytest.raises(UnattainedOptimumError, match="eta -> 0"):
        eta_search._check_attained(0.9e-24, 1.0, 1.0, 0.0)


@pytest.mark.parametrize("gap", [0, -1e-6, np.inf, np.nan, "1e-6", True - 1])
def test_a_gap_is_a_positive_number(gap):
    with pytest.raises(ParameterError, match=r"gap must be .*got"):
        eta_search.check_gap(gap)


@pytest.mark.parametrize("count", [0, -1, 1.5, "3"])
def test_solves_are_counted_from_one(count):
    eta_search.check_gap(1e-300, 1)
    eta_search.check_gap(0.5, np.int64(2))
    with pytest.raises(ParameterError, match=r"max_solves must be a whole number >= 1"):
        eta_search.check_gap(1e-6, count)
