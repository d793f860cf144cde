"""Searches over eta: where they look, when they stop, what they keep and what they refuse."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib import metadata

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation import branch, eta_search, search
from convexmarket.allocation.bounds import Candidate, OuterProblem, outer_problem
from convexmarket.allocation.branch import branch_and_bound, finish
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, search_eta
from convexmarket.allocation.formulations import optimal_weights
from convexmarket.allocation.region import Region, RegionFinder
from convexmarket.allocation.result import SolveRecord
from convexmarket.allocation.search import certify_weights, line_search, minimise_certified
from convexmarket.allocation.views import JointView
from convexmarket.market import StandardForm

COSTS = np.array([0.2, 0.4, 1.0])
SELLERS = cm.Sellers(virtual_costs=COSTS)
OBJECTIVE = cm.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments(cm.PowerCost(2))


def market(*constraints, objective=OBJECTIVE):
    return cm.Market(SELLERS, objective, list(constraints))


class Bound(cm.Constraint):
    """A user's own constraints."""

    def __init__(self, build) -> None:
        self.build = build

    def constraints(self, quantities):
        return self.build(quantities)


# ------------------------------------------------------------ branch and bound without a solver


def line(value, slope) -> KeptSpreadCut:
    """The bound value + slope*eta."""
    return KeptSpreadCut(0.0, 0.0, np.array([value]), np.array([slope]), lambda c: c.min(), 0.0)


class Tangents:
    """A market whose optimal value is a known convex function of eta; cuts are its tangents."""

    def __init__(self, value, slope, region, short=0.0, fails=lambda _: False) -> None:
        self.value, self.slope, self.region = value, slope, region
        self.short, self.fails = short, fails
        self.records: list[SolveRecord] = []
        self.asked: list[float] = []

    def solve(self, eta: float) -> Evaluated:
        self.asked.append(eta)
        if self.fails(eta):
            raise cm.SolverError(f"failed at {eta}")
        value, slope = self.value(eta), self.slope(eta)
        cut = line(value - slope * eta - self.short, slope)
        self.records.append(SolveRecord(eta, value, cut(eta), "optimal", 0.0))
        return Evaluated(np.ones(1), eta, value, cut)


def valley(low=0.01, high=100.0, **changes) -> Tangents:
    """eta + 4/eta: 4 at eta = 2."""
    return Tangents(lambda x: x + 4 / x, lambda x: 1 - 4 / x**2, Region(low, high, None), **changes)


@pytest.mark.parametrize("first", [0.05, 1.9, 60.0])
@pytest.mark.parametrize("gap", [0.3, 1e-3, 1e-6])
def test_the_minimum_is_found_within_the_gap_and_no_further(first, gap) -> None:
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


def test_solves_are_counted() -> None:
    for most in (1, 2, 5):
        runner = valley()
        best, bound = search_eta(runner, 0.05, 1e-9, most, None)
        assert len(runner.records) == most
        assert bound <= 4.0 <= best.objective


def test_the_ends_of_the_region_are_optima_too() -> None:
    for low, high, expected in ((3.0, 50.0, 3.0), (0.1, 1.0, 1.0)):
        runner = valley(low, high)
        best, bound = search_eta(runner, 0.9 * low, 1e-6, 200, None)
        value = expected + 4 / expected
        assert best.objective == pytest.approx(value, rel=1e-6)
        assert value * (1 - 1e-6) <= bound <= value * (1 + 1e-12)
        assert all(low <= eta <= high for eta in runner.asked)


def test_one_eta_needs_one_solve() -> None:
    runner = valley(3.0, 3.0)
    best, bound = search_eta(runner, 1.0, 1e-6, 200, None)
    assert runner.asked == [3.0]
    assert (best.eta, bound) == (3.0, pytest.approx(3 + 4 / 3))


def test_where_all_of_the_objective_does_is_fall_a_failing_solver_means_no_optimum() -> None:
    """1 + 1/eta, whose bound stays finite as eta grows."""

    def falling(high=np.inf, fails_at=1e3, **changes):
        return Tangents(
            lambda x: 1 + 1 / x, lambda x: -1 / x**2, Region(1e-3, high, None),
            fails=lambda eta: eta > fails_at, **changes,
        )  # fmt: skip

    with pytest.raises(cm.UnattainedOptimumError, match="eta -> infinity"):
        search_eta(falling(), 1.0, 1e-6, 200, None)
    with pytest.raises(cm.SolverError, match="failed at"):
        search_eta(falling(high=1e6), 1.0, 1e-9, 200, None)


@pytest.mark.parametrize(
    ("first", "fails"),
    [
        (10.0, lambda eta: eta < 5),  # below the best eta: it rises
        (1.2, lambda eta: 1.3 < eta < 4),  # between two: beyond the second it rises again
    ],
)
def test_a_solver_that_fails_where_the_objective_rises_is_reported(first, fails) -> None:
    runner = valley(0.0, np.inf, fails=fails)
    with pytest.raises(cm.SolverError, match="failed at"):
        search_eta(runner, first, 1e-12, 200, None)
    assert all(record.eta == first or record.eta > 4 for record in runner.records)


def test_a_constant_error_of_the_solver_does_not_make_the_search_go_on_forever() -> None:
    """Cuts a little below their points cannot be closed by more of them."""
    exact, short = valley(), valley(short=2e-6)
    search_eta(exact, 0.5, 1e-8, 200, None)
    best, bound = search_eta(short, 0.5, 1e-8, 200, None)
    assert best.objective - bound <= 4e-6
    assert len(short.records) <= len(exact.records) + 2


def test_an_objective_that_falls_with_eta_or_towards_zero_has_no_optimum() -> None:
    """Seen by how far the search has got, or by where it stands when solves run out."""
    everywhere = Region(0.0, np.inf, None)
    towards_zero = Tangents(lambda x: x, lambda _: 1.0, everywhere)
    with pytest.raises(cm.UnattainedOptimumError, match=r"eta -> 0; objective .*EtaRange"):
        search_eta(towards_zero, 1.0, 1e-6, 200, None)
    assert len(towards_zero.records) < 60
    for most in (200, 5):
        falls = Tangents(lambda x: 1 + 1 / x, lambda x: -1 / x**2, everywhere)
        with pytest.raises(cm.UnattainedOptimumError, match="eta -> infinity; objective"):
            search_eta(falls, 1.0, 1e-30, most, None)
        assert len(falls.records) <= min(most, 60)


def test_where_cuts_do_not_touch_a_descent_takes_over() -> None:
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


# ------------------------------------------------------------------------------- the descent


class Descent:
    """Counts the solves of log(eta/at)^2 + 1, which are points without a cut."""

    def __init__(self, at) -> None:
        self.at, self.asked = at, []

    def __call__(self, eta):
        self.asked.append(eta)
        return self.point(eta)

    def point(self, eta):
        return Evaluated(np.ones(1), eta, 1 + np.log(eta / self.at) ** 2, line(0.0, 1.0))


EVERYWHERE = Region(0.0, np.inf, None)


@pytest.mark.parametrize("target", [1.3, 3.0, 1 / 3])
def test_a_descent_that_has_found_a_minimum_inside_is_over(target) -> None:
    solve = Descent(target)
    best = eta_search._descend(solve, solve.point(1.0), EVERYWHERE, 1000)
    assert best.eta == pytest.approx(target, rel=1e-4)
    assert len(solve.asked) <= 41
    assert all(0.25 <= eta <= 4 for eta in solve.asked)


def test_a_descent_goes_on_from_the_border_of_where_it_looked() -> None:
    for target in (60.0, 1 / 60.0):
        solve = Descent(target)
        best = eta_search._descend(solve, solve.point(1.0), EVERYWHERE, 1000)
        assert best.eta == pytest.approx(target, rel=1e-4)
        assert len(solve.asked) <= 130


def test_a_descent_without_progress_is_over() -> None:
    solve = Descent(1.0)
    start = solve.point(1.0)
    assert eta_search._descend(solve, start, EVERYWHERE, 1000) is start
    assert len(solve.asked) <= 41


def test_a_descent_keeps_to_the_region_and_to_the_number_of_solves() -> None:
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


# ---------------------------------------------------------------------------- where to split


def test_an_interval_is_split_where_the_cuts_of_its_ends_meet() -> None:
    """The one falls, the other rises; they are equal at 4."""
    cuts = eta_search._Cuts()
    cuts.add(1.0, line(5.0, -0.5))
    cuts.add(9.0, line(1.0, 0.5))
    for where in (1.0, 2.0, 9.0):
        interval = eta_search._Interval(3.0, 1.0, 9.0, where, 2)
        assert eta_search._split_at(interval, cuts) == pytest.approx(4.0, rel=0.01)


def test_where_one_cut_is_highest_everywhere_the_place_of_the_bound_is_taken() -> None:
    cuts = eta_search._Cuts()
    cuts.add(1.0, line(5.0, 0.5))
    cuts.add(9.0, line(1.0, 0.5))
    for where, expected in ((1.0, 9**0.05), (3.0, 3.0), (9.0, 9**0.95)):
        interval = eta_search._Interval(3.0, 1.0, 9.0, where, 2)
        assert eta_search._split_at(interval, cuts) == pytest.approx(expected)


# -------------------------------------------------------------------- branch and bound, solved


def test_the_search_begins_at_the_start_that_is_given() -> None:
    for start in (0.7, np.float64(5.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cm.LooseCertificateWarning)
            found = branch_and_bound(market(), start=start, max_solves=1)
        assert found.solves[0].eta == pytest.approx(float(start), rel=1e-6)


def test_a_start_is_taken_up_to_a_million_times_the_usual_one(monkeypatch) -> None:
    seen = []

    def stop(runner, first, gap, max_solves, progress):
        seen.append((first, gap, max_solves, progress))
        raise cm.SolverError("stop")

    monkeypatch.setattr(branch, "search_eta", stop)
    starts = (None, 1e-200, 1e200, 0.01, 7.0)
    for start in starts:
        with pytest.raises(cm.SolverError, match="stop"):
            branch_and_bound(market(), "CLARABEL", 1e-3, 17, start=start, progress=print)
    firsts = [first for first, *_ in seen]
    usual = firsts[0]
    assert usual == branch._first_eta(market(), JointView(market()))
    assert firsts[1:] == [pytest.approx(usual / 1e6), pytest.approx(usual * 1e6), 0.01, 7.0]
    assert all(rest == [1e-3, 17, print] for _, *rest in seen)


@pytest.mark.parametrize("start", [0, -1.0, np.inf, np.nan, "1", [1.0]])
def test_a_start_is_a_finite_number_above_zero(start, monkeypatch) -> None:
    monkeypatch.setattr(branch, "JointView", None)  # refused before any work
    with pytest.raises(cm.ParameterError, match="start is"):
        branch_and_bound(market(), start=start)


@pytest.mark.parametrize("changes", [{"gap": 0}, {"gap": np.inf}, {"max_solves": 0}])
def test_bad_limits_are_refused_before_any_work(changes, monkeypatch) -> None:
    monkeypatch.setattr(branch, "JointView", None)
    with pytest.raises(cm.ParameterError, match=next(iter(changes))):
        branch_and_bound(market(), **changes)
    with pytest.raises(cm.NotSupportedError, match="ABACUS"):
        branch_and_bound(market(), "ABACUS")


def test_a_search_says_where_its_answer_comes_from() -> None:
    seen = []
    found = branch_and_bound(market(), progress=seen.append)
    assert found.solves == tuple(seen)
    assert found.method == "branch_and_bound"
    assert (found.formulation, found.solver, found.tolerance) == ("primal", "CLARABEL", 1e-6)
    assert found.solver_version == metadata.version("clarabel")
    assert found.binding == ()
    assert 0 < sum(record.seconds for record in seen) <= found.seconds < 60
    value = OBJECTIVE.value(found.weights, found.eta, COSTS)
    assert found.objective == pytest.approx(value, rel=1e-12)
    best = min(seen, key=lambda record: record.upper)
    assert best.upper >= found.objective - 1e-12
    for record in seen:
        assert record.status == "optimal"
        assert record.lower <= record.upper * (1 + 1e-9)
        assert record.lower == pytest.approx(record.upper, rel=1e-6)
    # tau/eta: the slope of the objective in the weights, at those who sell
    price = 2 * found.weights + found.eta * COSTS * found.epsilon
    assert found.multiplier == pytest.approx(price[0] / found.eta, rel=1e-3)


def test_options_reach_the_solver_of_a_search() -> None:
    with pytest.raises(cm.SolverError, match=r"CLARABEL .* at eta = .*user_limit.*EtaRange"):
        branch_and_bound(market(), solver_options={"max_iter": 1})


def test_without_noise_the_optimum_is_at_zero_unless_a_range_keeps_it_away() -> None:
    unpaid = cm.SquaredSpread() + 0.5 * cm.Payments(cm.PowerCost(2))
    with pytest.raises(cm.UnattainedOptimumError, match="eta tends to 0"):
        branch_and_bound(market(objective=unpaid))
    found = branch_and_bound(market(cm.EtaRange(1.0, 4.0), objective=unpaid))
    assert found.eta == 1.0
    assert found.binding == ("eta_low",)
    assert found.gap <= 1e-6


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("least", [0.0, np.inf])
def test_an_objective_of_zero_or_beyond_all_numbers_is_no_unit_of_money(least) -> None:
    class Odd(cm.Term):
        def expression(self, quantities):
            given_ = 0.0 if least == 0 else np.exp(709.0)
            return given_ * cp.sum(quantities.epsilon) * (1.0 if least == 0 else 1e3)

    view = JointView(market(objective=1.0 * Odd()))
    runner = branch._Solver(view, EVERYWHERE, 1e3, "CLARABEL", None)
    assert abs(view.value(np.full(3, 1 / 3), 1e3)) == least
    assert runner._scale == 1.0
    small = JointView(market(objective=1e-3 * OBJECTIVE))
    usual = branch._Solver(small, EVERYWHERE, 2.0, "CLARABEL", None)
    even = OBJECTIVE.value(np.full(3, 1 / 3), 2.0, COSTS)
    assert usual._scale == pytest.approx(1e-3 * even)


# ------------------------------------------------------------------- what a search ends with


def ended(weights, eta, bound, *constraints, tolerance=1e-6, price=3.0, objective=OBJECTIVE):
    view = JointView(market(*constraints, objective=objective))
    records = (SolveRecord(1.0, 2.0, 1.5, "optimal", 0.1),)
    return finish(
        view, RegionFinder(view), np.asarray(weights), eta, bound, price, records, tolerance,
        method="branch_and_bound", seconds=0.5, formulation="primal", solver="CLARABEL",
    )  # fmt: skip


def objective_at(weights, eta) -> float:
    return OBJECTIVE.value(np.asarray(weights), eta, COSTS)


POINT = np.array([0.5, 0.3, 0.2])


def test_an_answer_is_the_point_with_its_bound() -> None:
    value = objective_at(POINT, 2.0)
    found = ended(POINT, 2.0, value * (1 - 1e-6))
    np.testing.assert_array_equal(found.weights, POINT)
    assert (found.eta, found.objective) == (2.0, pytest.approx(value))
    assert found.lower_bound == value * (1 - 1e-6)
    assert found.multiplier == 1.5
    assert found.tolerance == 1e-6
    assert found.solves == (SolveRecord(1.0, 2.0, 1.5, "optimal", 0.1),)
    assert (found.method, found.seconds, found.solver) == ("branch_and_bound", 0.5, "CLARABEL")


def test_a_bound_that_is_no_number_is_none() -> None:
    with pytest.warns(cm.LooseCertificateWarning, match="gap of inf, not the 1.0e-06"):
        found = ended(POINT, 2.0, np.nan)
    assert found.lower_bound == -np.inf
    assert found.gap == np.inf


def test_a_bound_above_the_objective_is_a_contradiction_beyond_a_millionth() -> None:
    value = objective_at(POINT, 2.0)
    assert ended(POINT, 2.0, value + 0.9e-6 * value).gap == 0
    with pytest.raises(
        cm.SolverError, match=r"lower bound .* lies above the objective .*conjugate"
    ):
        ended(POINT, 2.0, value + 1.1e-6 * value)
    negative = 5.0 * cm.NegativeEntropy() + OBJECTIVE
    below = negative.value(POINT, 2.0, COSTS)
    assert below < -1
    assert ended(POINT, 2.0, below + 0.9e-6 * -below, objective=negative).gap == 0
    with pytest.raises(cm.SolverError, match="lies above"):
        ended(POINT, 2.0, below + 1.1e-6 * -below, objective=negative)


def test_a_gap_is_warned_of_beyond_ten_times_what_was_asked() -> None:
    value = objective_at(POINT, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cm.LooseCertificateWarning)
        ended(POINT, 2.0, value * (1 - 0.9e-3), tolerance=1e-4)
    with pytest.warns(cm.LooseCertificateWarning, match=r"1\.\de-03, not the 1\.0e-04.*max_solves"):
        ended(POINT, 2.0, value * (1 - 1.05e-3), tolerance=1e-4)


def test_an_end_of_the_range_that_is_as_good_is_taken_exactly() -> None:
    range_ = cm.EtaRange(2.0, 8.0)
    falls = ended(POINT, 2.0 * (1 + 1e-9), 0.9 * objective_at(POINT, 2.0), range_, tolerance=1.0)
    best = (COSTS @ POINT**2) ** (-1 / 3)  # of 1/eta + psi'(eta*a)^2/2
    assert 0.5 < best < 2.0
    assert falls.eta == 2.0
    assert falls.objective == pytest.approx(objective_at(POINT, 2.0), rel=1e-14)
    assert falls.binding == ("eta_low",)
    assert falls.multiplier == pytest.approx(1.5)
    short = cm.EtaRange(0.1, 0.5)
    rises = ended(POINT, 0.5 * (1 - 1e-9), 0.9 * objective_at(POINT, 0.5), short, tolerance=1.0)
    assert (rises.eta, rises.binding) == (0.5, ("eta_high",))
    inside = ended(POINT, best, 0.0, cm.EtaRange(0.1, 8.0), tolerance=1.0)
    assert (inside.eta, inside.binding) == (best, ())
    both = ended(POINT, 2.0, 0.0, cm.EtaRange(2.0, 2.0), tolerance=1.0)
    assert both.binding == ("eta_low", "eta_high")


def test_an_end_of_the_range_that_breaks_another_constraint_is_not_taken() -> None:
    """At the upper end these guarantees would be too large."""
    limit = cm.MaxEpsilon(0.2)
    found = ended(POINT, 0.4, 0.0, cm.EtaRange(0.1, 0.41), limit, tolerance=1.0)
    assert objective_at(POINT, 0.41) < objective_at(POINT, 0.4)
    assert (found.eta, found.binding) == (0.4, ())


def test_traces_are_dropped_below_a_hundred_thousandth_of_the_average() -> None:
    trace = np.array([0.6, 0.4 - 3e-6, 3e-6])
    cleaned = ended(trace, 1.0, 0.0, tolerance=1.0)
    assert cleaned.weights[2] == 0
    assert cleaned.weights.sum() == pytest.approx(1.0, abs=1e-15)
    assert cleaned.objective == pytest.approx(objective_at(cleaned.weights, 1.0), rel=1e-12)
    assert cleaned.n_bought == 2
    kept = np.array([0.6, 0.4 - 3.4e-6, 3.4e-6])
    assert ended(kept, 1.0, 0.0, tolerance=1.0).weights[2] == 3.4e-6


@pytest.mark.parametrize("money", [1.0, 50.0])
def test_traces_are_dropped_where_that_costs_less_than_a_tenth_of_the_gap(money) -> None:
    """Of the seller who would be the best to buy from."""
    trace = np.array([3e-6, 0.6, 0.4 - 3e-6])
    objective = money * OBJECTIVE
    value = objective.value(trace, 1.0, COSTS)
    rest = trace * [0, 1, 1] / trace[1:].sum()
    share = (objective.value(rest, 1.0, COSTS) - value) / value
    assert share > 1e-7
    below, above = 10 * share / 1.05, 10 * share * 1.05
    assert ended(trace, 1.0, value, tolerance=below, objective=objective).weights[0] == 3e-6
    dropped = ended(trace, 1.0, value, tolerance=above, objective=objective)
    np.testing.assert_allclose(dropped.weights, rest, rtol=1e-15)
    assert dropped.objective == pytest.approx(value * (1 + share), rel=1e-14)


def test_who_is_left_without_traces_is_moved_back_into_the_bounds() -> None:
    """Without the trace, a weight at its cap would be above it."""
    trace = np.array([0.6, 0.4 - 3e-6, 3e-6])
    found = ended(trace, 1.0, 0.0, cm.Cap([1.8, 3.0, 3.0]), tolerance=1.0)
    np.testing.assert_allclose(found.weights, [0.6, 0.4, 0.0], rtol=1e-9)
    assert found.weights[2] == 0
    assert found.weights[0] <= 0.6 * (1 + 1e-12)


def test_traces_that_a_constraint_needs_are_kept() -> None:
    """Somebody has to sell a millionth, and who sells nothing cannot be mended."""
    trace = np.array([0.6, 0.4 - 3e-6, 3e-6])
    needed = Bound(lambda q: [1e6 * q.weights[2] >= 2.9])
    found = ended(trace, 1.0, 0.0, needed, tolerance=1.0)
    np.testing.assert_array_equal(found.weights, trace)
    assert found.eta == 1.0
    assert found.objective == pytest.approx(objective_at(trace, 1.0))


# ------------------------------------------------------------------------ the search by chords


def form(psi=(0.2, 0.4, 1.0), **changes) -> StandardForm:
    given_ = {"mu": 1.0, "sigma": 2.0, "gamma": 0.5, "max_weight": 1.0}
    return StandardForm(virtual_costs=np.array(psi, dtype=float), **(given_ | changes))


class Exact:
    """Evaluates V exactly, and notes where."""

    def __init__(self, form_, blur=0.0) -> None:
        self.form, self.blur, self.asked = form_, blur, []

    def evaluate(self, t):
        self.asked.append(t)
        weights = optimal_weights(self.form, t)
        found = certify_weights(self.form, t, weights, "exact", 0.0)
        return replace(found, lower=found.lower - self.blur)


def test_weights_are_judged_at_their_best_eta_wherever_that_is() -> None:
    """Where no noise pays for privacy they stay at the eta that they were found for."""
    for changes, expected in (({"sigma": 0.0}, 1.6), ({"sigma": 0.02}, 0.3), ({}, 3.1)):
        found = certify_weights(form(**changes), 0.8, POINT, "optimal", 0.0)
        assert found.eta == pytest.approx(expected, abs=0.05)
        assert found.objective == pytest.approx(form(**changes).objective(POINT, found.eta))
        nearby = [form(**changes).objective(POINT, found.eta * f) for f in (0.99, 1.01)]
        assert min(nearby) > found.objective or changes == {"sigma": 0.0}


@pytest.mark.parametrize("gap", [0.5, 1e-2, 1e-6])
def test_the_search_by_chords_ends_as_soon_as_the_gap_is_met(gap) -> None:
    seen, exact = [], Exact(form())
    found = minimise_certified(outer_problem(form()), form(), exact, gap, 100, seen.append)
    distance = found.best.objective - found.lower_bound
    assert 0 <= distance <= gap * found.best.objective
    assert found.records == tuple(seen)
    assert len(seen) == len(exact.asked) <= {0.5: 1, 1e-2: 3, 1e-6: 8}[gap]
    if len(seen) > 1:  # one less does not do
        fewer = minimise_certified(
            outer_problem(form()), form(), Exact(form()), gap, len(seen) - 1, None
        )
        assert fewer.best.objective - fewer.lower_bound > gap * fewer.best.objective
        assert len(fewer.records) == len(seen) - 1
    best = cm.allocate(cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5)).objective
    assert found.lower_bound <= best * (1 + 1e-12)
    assert found.best.objective >= best * (1 - 1e-12)


def test_a_search_by_chords_that_gets_no_closer_is_given_up() -> None:
    """Bounds that are off by a constant: no number of solves closes the gap."""
    exact = Exact(form(), blur=0.05)
    found = minimise_certified(outer_problem(form()), form(), exact, 1e-9, 500, None)
    assert len(exact.asked) < 40
    assert 0.04 <= found.best.objective - found.lower_bound <= 0.08


def test_free_sellers_are_worth_no_finite_eta_once_the_bound_says_so() -> None:
    """The optimum tends to mu/sqrt(2), and every point found lies above that."""
    endless = form((0.0, 0.0, 4.0), mu=1.0, sigma=1.0)
    outer = outer_problem(endless)
    with pytest.raises(cm.UnattainedOptimumError, match=r"0\.7071067812.*eta -> infinity"):
        minimise_certified(outer, endless, Exact(endless), 1e-9, 100, None)


def test_half_way_is_the_geometric_mean_of_the_ends() -> None:
    outer = OuterProblem(1.0, 0.1, 20.0, ((0.0, 0.0),), 0.1)
    points = [(0.25, 2.0), (4.0, 3.0), (0.9, 2.5), (1.0, 2.6)]
    ask = search._next_point
    assert ask(outer, points, Candidate(0.25, 1.0, 0.25, 4.0), 20.0) == pytest.approx(1.0)
    assert ask(outer, points, Candidate(0.9, 1.0, 0.9, 1.0), 20.0) == pytest.approx(np.sqrt(0.9))
    origin = OuterProblem(1.0, 0.0, 20.0, ((0.0, 0.0),), 0.1)
    assert ask(origin, points, Candidate(0.25, 1.0, 0.0, 0.25), 20.0) == 0.125


@pytest.mark.parametrize(
    "arguments",
    [{"gap": 0.0}, {"gap": -1e-6}, {"gap": np.inf}, {"max_solves": 0}, {"max_solves": -3}],
)
def test_a_line_search_refuses_bad_limits_before_any_work(arguments, monkeypatch) -> None:
    monkeypatch.setattr(search, "check_solver", None)
    with pytest.raises(cm.ParameterError, match=next(iter(arguments))):
        line_search(cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5), **arguments)


def test_a_line_search_says_where_its_answer_comes_from() -> None:
    declared = cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5)
    seen = []
    found = line_search(declared, "dual", progress=seen.append)
    exact = cm.allocate(declared)
    assert found.objective == pytest.approx(exact.objective, rel=1e-6)
    assert found.multiplier == pytest.approx(exact.multiplier, rel=1e-3)
    assert found.solves == tuple(seen)
    assert (found.method, found.formulation, found.solver) == ("line_search", "dual", "CLARABEL")
    assert (found.tolerance, found.binding) == (1e-6, ())
    assert found.solver_version == metadata.version("clarabel")
    assert 0 < sum(record.seconds for record in seen) <= found.seconds < 60


def test_what_a_solver_returned_is_named_where_it_is_no_number(monkeypatch) -> None:
    """The status alone would say that all is well."""

    class Problem:
        formulation = "primal"

        @property
        def weights(self):
            raise cm.SolverError("no finite numbers")

    monkeypatch.setattr(search, "run_solver", lambda *_: cp.OPTIMAL)
    with pytest.raises(cm.SolverError) as caught:
        search._solve(Problem(), "ECOS", "2.0", 1.25, None)
    assert str(caught.value) == (
        "ECOS 2.0 failed on the primal formulation at eta = 1.25 (status optimal, but no finite "
        "numbers); try formulation='projection', the best conditioned one, or another solver"
    )


def test_a_failing_solver_is_named_with_the_eta_it_failed_at() -> None:
    declared = cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5)
    eta = np.sqrt(2.0 / (0.5 * COSTS.mean()))  # the lowest that can be optimal
    with pytest.raises(cm.SolverError, match=f"dual formulation at eta = {eta:.6g}"):
        line_search(declared, "dual", solver_options={"max_iter": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = line_search(declared, solver="clarabel", max_solves=1)
    assert found.solver == "CLARABEL"
    assert len(found.solves) == 1
    assert found.solves[0].eta == pytest.approx(eta)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 3, 0, 4, 1, 2]])
@pytest.mark.parametrize("cap", [1.0, 0.3, 1 / 6])
def test_costs_are_lowered_whatever_their_order(cap, order) -> None:
    """The marginal price is at most that of the n cheapest, who carry all, plus mu*cap*sqrt(m)."""
    psi = np.array([0.1, 0.2, 0.3, 0.5, 80.0, 1e6])[order]
    lowered = search._relevant_costs(form(psi, mu=3.0, max_weight=cap), 0.7)
    dearest = {1.0: 0.1, 0.3: 0.5, 1 / 6: 1e6}[cap]
    ceiling = 2 * (dearest + 3.0 * min(1.0, cap * np.sqrt(6)) / 0.7)
    np.testing.assert_allclose(lowered, np.minimum(psi, ceiling), rtol=1e-12)


def test_a_market_is_given_to_a_solver_without_units() -> None:
    """Costs relative to their mean, money relative to the size of V; nothing but a unit is lost."""
    for money, cap in ((1.0, 1.0), (1e5, 0.5)):
        market_ = form(mu=3.0 * money, gamma=0.5 * money, max_weight=cap)
        scaled, unit = search._dimensionless(market_, 0.8)
        plain = scaled.standard_form
        assert plain.virtual_costs.mean() == pytest.approx(1.0)
        assert plain.mu / np.sqrt(3) + 0.8 * unit == pytest.approx(1.0)
        assert (plain.gamma, plain.sigma) == (1.0, 0.0)
        assert plain.max_weight == pytest.approx(cap)
        for t in (0.8 * money, 3.0 * money):
            np.testing.assert_allclose(
                optimal_weights(plain, t * unit), optimal_weights(market_, t), atol=1e-9
            )
    free, unit = search._dimensionless(form((0.0, 0.0)), 0.8)
    assert np.all(free.standard_form.virtual_costs == 0)
    assert np.isfinite(unit)
