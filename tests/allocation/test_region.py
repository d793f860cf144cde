"""The feasible region: its ends on the safe side, points inside it, and who clashes."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.minorants import Lifted
from convexmarket.allocation.region import Region, RegionFinder, _Clash, mend, violations
from convexmarket.allocation.solvers import run_solver
from convexmarket.allocation.views import JointView, multiplier
from convexmarket.errors import InfeasibleMarketError, ParameterError, SolverError
from tests import one_in
from tests.allocation.brute_force import BruteForce
from tests.allocation.builders import COSTS, NONSENSE, Bound, market


def finder(*constraints, costs=COSTS) -> RegionFinder:
    declared = market(*constraints, costs=costs)
    return RegionFinder(JointView(declared, 1.0 / declared.form.natural_eta), "CLARABEL")


def at_most(largest):
    """A user's own bound on each weight."""
    return Bound(lambda q: [q.weights <= np.asarray(largest, dtype=float)])


def pinned(eta):
    """A user's own piece: just this much in all."""
    return Bound(lambda q: [q.inverse_eta == 1 / eta])


# ------------------------------------------------------------------------ scales


def test_a_natural_eta_is_of_the_order_of_the_constraints():
    assert market().form.natural_eta == 3.0
    assert market(cm.EtaRange(2.0, 8.0)).form.natural_eta == pytest.approx(4.0)
    assert market(cm.MaxEpsilon([0.1, 0.2, 0.6])).form.natural_eta == pytest.approx(0.9)
    mean = (0.2 + 0.4 + 1.0) / 3
    assert market(cm.Budget(0.4)).form.natural_eta == pytest.approx(0.4 / mean)
    assert market(cm.Budget(0.4), cm.MaxEpsilon(0.1)).form.natural_eta == pytest.approx(0.3)
    assert market(cm.Budget(0.4), costs=[0.0, 0.5, np.inf]).form.natural_eta == pytest.approx(0.8)
    both = market(cm.EtaRange(2.0, 16.0), cm.EtaRange(4.0, 8.0), cm.MaxEpsilon(9.0))
    assert both.form.natural_eta == pytest.approx(32**0.5)
    assert market(cm.MaxEpsilon(0.3), cm.MaxEpsilon([0.1, 0.1, 0.4])).form.natural_eta == (
        pytest.approx(0.5)
    )
    # What says nothing of eta does not set its scale.
    assert market(cm.Cap(2.0)).form.natural_eta == 3.0
    assert market(cm.Budget(0.6), costs=np.zeros(3)).form.natural_eta == 3.0


def test_the_scale_of_a_budget_that_is_a_parameter():
    amount = cp.Parameter(nonneg=True, name="what_is_left")
    declared = market(cm.Budget(amount), costs=np.array([0.5, 0.5, 0.5]))
    with pytest.raises(ParameterError, match=r"'what_is_left' has no value.*sweep"):
        _ = declared.form.natural_eta
    for value in (0.25, 4.0):
        amount.value = value
        assert declared.form.natural_eta == pytest.approx(2 * value)
    amount.value = 0.0
    assert declared.form.natural_eta == 3.0


# -------------------------------------------------------------------------- ends


def test_the_bounds_of_a_region_are_the_outer_ones_where_there_are_any():
    assert Region(1.0, 2.0, None).bounds == (1.0, 2.0)
    assert Region(1.0, 2.0, None, (0.9, 2.1)).bounds == (0.9, 2.1)


def test_the_bound_at_an_end_is_near_though_another_seller_gives_way_beyond_it():
    """The multipliers of the end proved nothing beyond it, and a gap of 18 % was left."""
    dear = np.array([0.13, 0.22, 0.51])
    capped = Bound(lambda q: [cp.max(cp.multiply(dear, q.epsilon)) <= 1])
    found = finder(cm.Cap(1.5), capped).find()
    assert found.high == pytest.approx(2 * (1 / dear[1:]).sum(), rel=1e-6)
    assert found.bounds[1] == pytest.approx(found.high, rel=1e-6)


@pytest.mark.parametrize(
    ("constraints", "low", "high"),
    [
        ([], 0.0, np.inf),
        ([cm.Budget(0.6)], 0.0, 3.0),
        ([cm.MaxEpsilon([0.1, 0.2, 0.6])], 0.0, 0.9),
        ([cm.MaxEpsilon([0.1, 0.2, 0.6]), cm.Cap(1.5)], 0.0, 0.6),
        ([cm.Budget(0.07), cm.Cap(1.0)], 0.0, 0.07 * 3 / 1.6),
        ([cm.Budget(0.07), cm.Cap(1.0), cm.EtaRange(0.05, 9.0)], 0.05, 0.07 * 3 / 1.6),
        ([cm.EtaRange(0.3, 7.0), cm.EtaRange(0.5, 9.0)], 0.5, 7.0),
        ([cm.EtaRange(0.3, 0.3), cm.MaxEpsilon(0.2)], 0.3, 0.3),
        ([cm.EtaRange(0.3, 0.7), cm.MaxEpsilon(1e3)], 0.3, 0.7),
    ],
)
def test_nothing_feasible_is_beyond_the_bounds(constraints, low, high):
    """The ends of an EtaRange to the last digit; those that a solver finds on the safe side."""
    region = finder(*constraints).find()
    given = {end for c in constraints if isinstance(c, cm.EtaRange) for end in (c.low, c.high)}
    given |= {0.0, np.inf}
    assert region.bounds[0] <= low <= region.low <= region.high <= high <= region.bounds[1]
    for end, outer, inner in zip(
        (low, high), region.bounds, (region.low, region.high), strict=True
    ):
        if end in given:
            assert outer == inner == end
        else:
            assert outer != inner
            assert outer == pytest.approx(end, rel=1e-6)
            assert inner == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize("constraints", [[pinned(0.3)], [cm.MaxEpsilon(0.1), cm.EtaRange(0.3, 9)]])
def test_where_one_eta_is_left_it_is_in_the_middle_of_the_doubt(constraints):
    region = finder(*constraints).find()
    assert region.low <= region.high
    assert region.low == pytest.approx(0.3, rel=5e-9)
    assert region.high == pytest.approx(0.3, rel=5e-9)
    assert region.bounds[0] <= 0.3 < region.bounds[1]


# ----------------------------------------------------------------- points inside


@pytest.mark.parametrize(
    "constraints",
    [
        [cm.MaxEpsilon(0.5)],
        [cm.MaxEpsilon([0.1, 0.5, 0.6]), cm.EtaRange(1.0, 9.0)],
        [cm.Budget(0.6), cm.Cap(1.5)],
        [cm.EtaRange(1.5, 9.0)],
    ],
)
def test_a_point_with_most_room_keeps_away_from_every_bound(constraints):
    found = finder(*constraints)
    weights, eta = found.find().inside
    assert weights.sum() == pytest.approx(1.0, abs=1e-15)
    assert np.all(violations(found.view, weights, eta) < -1e-3)


def test_a_point_inside_with_nothing_from_some():
    found = finder(cm.MaxEpsilon(0.5), cm.EtaRange(0.2, 9.0))
    for support in ([True, True, False], [False, True, True], [False, False, True]):
        weights, eta = found.inside(np.array(support))
        assert not weights[~np.array(support)].any()
        assert weights.sum() == pytest.approx(1.0, abs=1e-15)
        assert np.all(violations(found.view, weights, eta) < 0)
    # Afterwards everybody may sell again, though one alone could not reach the range.
    tight = finder(cm.MaxEpsilon(0.5), cm.EtaRange(0.7, 9.0))
    assert tight.inside(np.array([True, False, False])) is None
    weights, _ = tight.inside(np.ones(3, dtype=bool))
    assert np.all(weights > 0.1)
    assert tight.inside(np.zeros(3, dtype=bool)) is None


def test_a_point_inside_where_some_cannot_sell():
    costs = np.array([0.2, np.inf, 0.4, 1.0])
    for bound in (cm.Cap(2.5), cm.MaxEpsilon([0.5, 0.5, 0.0, 0.5])):
        found = finder(bound, costs=costs)
        region = found.find()
        weights, eta = region.inside
        able = found.view.active
        assert not weights[~able].any()
        assert np.all(violations(found.view, weights, eta).reshape(-1)[able] < 0)
        assert np.all(found.inside(np.array([True, True, True, False]))[0][[1, 3]] == 0)


def test_a_point_inside_where_one_of_two_sells():
    found = finder(cm.MaxEpsilon([0.5, 0.0]), costs=COSTS[:2])
    weights, eta = found.find().inside
    assert weights.tolist() == [1.0, 0.0]
    assert eta < 0.5


def test_no_point_is_inside_where_an_inequality_holds_for_everybody_with_equality():
    assert finder(cm.Cap(1.0)).find().inside is None
    assert finder(cm.EtaRange(2.0, 2.0)).find().inside is None
    alone = finder(cm.Cap(1.0), costs=np.array([0.3])).find()
    assert alone.inside is None
    assert (alone.low, alone.high) == (0.0, np.inf)
    # A user's own bound of zero is not known to be one that excludes.
    costs = np.array([0.2, np.inf, 0.4])
    assert finder(at_most([0.9, 0.0, 0.9]), costs=costs).find().inside is None
    assert finder(at_most([0.9, 0.1, 0.9]), costs=costs).find().inside is not None


# ----------------------------------------------------------------------- clashes


@pytest.mark.parametrize(
    ("constraints", "named", "innocent"),
    [
        ([cm.MaxEpsilon(0.1), cm.EtaRange(0.31, 9.0)], ["MaxEpsilon", "EtaRange"], []),
        (
            [cm.Budget(5.0), cm.MaxEpsilon(0.1), cm.Cap(2.0), cm.EtaRange(0.31, 9.0)],
            ["MaxEpsilon", "EtaRange"],
            ["Budget", "Cap"],
        ),
        ([cm.Budget(0.1), cm.EtaRange(2.0, 9.0), cm.Cap(1.2)], ["Budget", "EtaRange"], []),
        ([cm.Cap(2.0), at_most([0.3, 0.3, 0.3])], ["Bound"], ["Cap"]),
        ([cm.Cap(2.0), pinned(0.3), pinned(0.4)], ["Bound"], ["Cap"]),
    ],
)
def test_a_smallest_set_that_clashes_is_named(constraints, named, innocent):
    with pytest.raises(InfeasibleMarketError) as raised:
        finder(*constraints).find()
    words = str(raised.value)
    assert all(name in words for name in named)
    assert not any(name in words for name in innocent)
    assert "infinite" not in words
    alone = "no weights that sum to one satisfy" in words
    assert alone == (len(constraints) == 2 and named == ["Bound"])
    assert ("these constraints contradict each other" in words) != alone


def test_those_who_cannot_sell_are_mentioned_in_a_clash():
    costs = np.array([0.2, np.inf, 0.4, np.inf])
    with pytest.raises(InfeasibleMarketError, match="; 2 sellers with infinite virtual costs"):
        finder(cm.Cap(1.9), costs=costs).find()
    finder(cm.Cap(2.0), costs=costs).find()


def test_a_solver_that_fails_is_not_taken_for_an_empty_region(monkeypatch):
    found = finder(cm.MaxEpsilon(0.5))
    monkeypatch.setattr(found, "_roomiest", lambda: (None, -np.inf, "user_limit"))
    with pytest.raises(SolverError, match=r"could not decide .* \(status user_limit\)"):
        found.find()
    found = finder(cm.MaxEpsilon(0.5))
    monkeypatch.setattr("convexmarket.allocation.region.run_solver", lambda *_: "user_limit")
    with pytest.raises(SolverError, match=r"range of eta .* \(status user_limit\)"):
        found._end(found._least, at_unbounded=0.0)


def test_a_solver_that_fails_at_a_feasible_market_is_named_not_the_constraints(monkeypatch):
    """Whether it fails always, or only where it is asked who clashes."""
    declared = market(cm.MaxEpsilon(0.5), cm.Cap(2.0))
    for failing in (0, 1):
        answers = iter(["infeasible"] * failing)
        monkeypatch.setattr(
            "convexmarket.allocation.region.run_solver",
            lambda *_, answers=answers: next(answers, "SolverError: crashed"),
        )
        with pytest.raises(SolverError, match=r"CLARABEL .*SolverError: crashed"):
            cm.allocate(declared, "branch_and_bound")


#: Bounds on guarantees whose perspectives take every kind of cone, more than one of each.
CONES = {
    "a 3-norm": lambda e: cp.pnorm(e, 3) <= 0.8,
    "norms of rows": lambda e: cp.max(cp.norm(cp.vstack([e, 2 * e - 1]), axis=1)) <= 1.5,
    "cubes": lambda e: cp.sum(cp.power(e, 3)) <= 0.5,
    "roots": lambda e: cp.sqrt(e[:2] + 0.1) >= 0.6,
    "exponentials": lambda e: cp.exp(e) <= np.array([2.0, 3.0, 2.5]),
    "the largest": lambda e: cp.sum_largest(e, 1.5) <= 0.9,
    "a matrix": lambda e: cp.lambda_max(cp.diag(e) + 0.1) <= 0.9,
    "a line": lambda e: e <= 0.7,
}


@pytest.mark.parametrize("name", one_in(4, CONES))
def test_a_bound_on_guarantees_has_the_ends_that_a_grid_finds(name):
    region = finder(Bound(lambda q: [CONES[name](q.epsilon)])).find()
    e = cp.Parameter(3, nonneg=True)
    bound = CONES[name](e)

    def holds(at):
        e.value = at
        return bool(bound.value(tolerance=1e-9))

    def end(sense):
        x = cp.Variable(3, nonneg=True)
        return cp.Problem(sense(cp.sum(x)), [CONES[name](x)]).solve(solver="CLARABEL")

    least, most = end(cp.Minimize), end(cp.Maximize)
    if most < np.inf:
        assert region.high == pytest.approx(most, rel=1e-5)
    assert region.low == pytest.approx(least, rel=1e-5, abs=1e-5)
    weights, eta = region.inside
    assert holds(eta * weights)
    for weights in np.random.default_rng(0).dirichlet(np.full(3, 0.5), 200):
        for eta in np.geomspace(0.05, 20, 12):
            if holds(eta * weights):
                assert region.bounds[0] <= eta <= region.bounds[1]


@given(
    st.sampled_from(sorted(CONES)),
    st.sampled_from(sorted(NONSENSE)),
    st.floats(-3, 3),
    st.integers(0, 2**32 - 1),
)
def test_nonsense_proves_no_feasible_eta_infeasible(name, kind, log_eta, seed):
    """With multipliers and hints of a wrong solver, at any eta, also far from the ends."""
    rng = np.random.default_rng(seed)
    declared = market(Bound(lambda q: [CONES[name](q.epsilon)]), cm.Cap(2.0))
    view = JointView(declared)
    brute = BruteForce(declared)
    say = NONSENSE[kind]

    def wrong(item, scale):
        right = multiplier(item, scale)
        return None if right is None else say(rng, right)

    def wrong_hints(lifted, scale):
        said = hints(lifted, scale)
        return {k: [None if d is None else say(rng, d) for d in ds] for k, ds in said.items()}

    hints = Lifted.hints
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore", invalid="ignore"):
        patch.setattr("convexmarket.allocation.region.multiplier", wrong)
        patch.setattr(Lifted, "hints", wrong_hints)
        proof = _Clash(view).at(float(np.exp(log_eta)), "CLARABEL")
        if proof is None:
            return
        for eta in np.geomspace(0.05, 20, 15):
            if np.isfinite(brute(eta)):
                assert not proof(1 / eta) > 1e-9


@pytest.mark.parametrize(
    ("piece", "low", "high"),
    [
        (cm.MaxEpsilon([0.5, 0.6, 0.7]), 0.0, 1.8),
        (Bound(lambda q: [cp.sum(q.epsilon) == 1.8]), 1.8, 1.8),
        (Bound(lambda q: [cp.sum(q.epsilon) >= 1.2, cp.max(q.epsilon) <= 0.6]), 1.2, 1.8),
    ],
)
def test_right_multipliers_prove_just_what_is_infeasible(piece, low, high):
    clash = _Clash(JointView(market(piece)))
    for end, beyond in ((low, 0.999), (high, 1.001)):
        if end > 0:
            proof = clash.at(1 / (beyond * end), "CLARABEL")
            assert proof(1 / (beyond * end)) > 0
            assert proof(1 / low if low else 10.0) <= 1e-6 >= proof(1 / high)


# ----------------------------------------------------------------------- mending


def test_a_mended_point_is_the_nearest_on_the_way_inside():
    view = JointView(market(cm.Cap(1.2), cm.MaxEpsilon(0.8)), 1.0)
    inside = (np.array([0.3, 0.3, 0.4]), 1.0)
    outside = np.array([0.4 + 1e-5, 0.4 + 2e-5, 0.2 - 3e-5])
    weights, eta = mend(view, outside, 1.9, inside)
    share = 2e-5 / (0.1 + 2e-5)  # of the two beyond their bound, the one that is further out
    np.testing.assert_allclose(weights, (1 - share) * outside + share * inside[0], atol=1e-14)
    assert eta == pytest.approx(1.9, rel=1e-12)  # which neither bound needs changed
    assert violations(view, weights, eta).max() == pytest.approx(0.0, abs=1e-15)


def test_a_point_inside_is_left_alone_and_without_one_only_rounding_is_mended():
    view = JointView(market(cm.Cap([1.2, 3.0, 3.0])))
    kept, same = mend(view, np.array([0.3, 0.3, 0.4]), 5.0, (np.array([0.2, 0.4, 0.4]), 2.0))
    np.testing.assert_allclose(kept, [0.3, 0.3, 0.4])
    assert same == 5.0
    with pytest.raises(SolverError, match="violates a constraint by"):
        mend(view, np.array([0.4 + 1e-5, 0.3, 0.3 - 1e-5]), 2.0, None)
    mend(view, np.array([0.4 + 1e-8, 0.3, 0.3 - 1e-8]), 2.0, None)


def test_one_over_eta_is_mended_too():
    view = JointView(market(cm.MaxEpsilon(1.0)))
    inside = (np.full(3, 1 / 3), 1.5)
    weights, eta = mend(view, np.full(3, 1 / 3), 3.0 + 1e-4, inside)
    assert eta == pytest.approx(3.0, rel=1e-9)
    np.testing.assert_allclose(weights, 1 / 3)


def test_a_point_far_inside_moves_eta_no_further_than_it_has_to():
    """The room of a bound in a and 1/eta has an end, but 1/eta has none."""
    bound = Bound(lambda q: [cp.quad_over_lin(q.weights, q.inverse_eta) <= 2.0])
    view = finder(bound).view
    even = np.full(3, 1 / 3)
    weights, eta = mend(view, even, 6.0 * (1 + 1e-9), (even, 1e-9))
    assert np.max(violations(view, weights, eta)) <= 0
    assert eta == pytest.approx(6.0, rel=1e-8)
    found = cm.allocate(market(bound, objective=cm.Noise() + 1e-3 * cm.Payments()))
    assert found.gap <= 1e-6
    assert found.eta * found.weights @ found.weights == pytest.approx(2.0, rel=1e-5)


def test_what_is_left_of_sellers_who_cannot_sell_is_dropped():
    view = JointView(market(cm.Cap(3.0), costs=np.array([0.2, np.inf, 0.4])), 1.0)
    weights, eta = mend(view, np.array([0.75, 0.2, 0.25]), 2.0, None)
    assert weights.tolist() == [0.75, 0.0, 0.25]
    assert eta == 2.0
    weights, _ = mend(view, np.array([1.0, 0.0, -1e-9]), 2.0, None)
    assert weights.tolist() == [1.0, 0.0, 0.0]


def test_how_far_outside_may_be_mended():
    view = JointView(market(cm.Cap([1.2, 3.0, 3.0])), 1.0)
    near, far = (np.array([0.4 + x / 3, 0.3, 0.3 - x / 3]) for x in (0.9e-4, 1.1e-4))
    inside = (np.array([0.2, 0.4, 0.4]), 2.0)
    assert mend(view, near, 2.0, inside)[0][0] == pytest.approx(0.4, abs=1e-12)
    with pytest.raises(SolverError, match=r"by 1\.1e-04 \(relative\)"):
        mend(view, far, 2.0, inside)
    # A point that is hardly inside would be followed too far.
    beyond = np.array([0.4 + 1e-5, 0.3, 0.3 - 1e-5])
    for share in (0.9e-2, 1.1e-2):
        room = 1e-5 / share - 1e-5
        hardly = (np.array([0.4 - room, 0.3, 0.3 + room]), 2.0)
        if share < 1e-2:
            assert mend(view, beyond, 2.0, hardly)[0][0] == pytest.approx(0.4, abs=1e-12)
        else:
            with pytest.raises(SolverError, match="violates a constraint"):
                mend(view, beyond, 2.0, hardly)


def test_no_inequalities_are_violated_where_there_are_none():
    view = JointView(market(), 1.0)
    assert violations(view, np.full(3, 1 / 3), 1.0).size == 0
    weights, eta = mend(view, np.array([0.2, 0.2, 0.4]), 5.0, None)
    np.testing.assert_allclose(weights, [0.25, 0.25, 0.5])
    assert eta == 5.0


def test_the_region_is_solved_for_again_only_where_a_limit_has_changed(monkeypatch):
    limit, solved = cp.Parameter(nonneg=True, value=0.5), []
    view = JointView(market(cm.MaxEpsilon(limit)), parameters={id(limit): limit})
    monkeypatch.setattr(
        "convexmarket.allocation.region.run_solver",
        lambda *given: solved.append(given) or run_solver(*given),
    )
    compiled = RegionFinder(view, "CLARABEL")
    first = compiled.find()
    n_solves = len(solved)
    assert compiled.find() is first
    assert len(solved) == n_solves > 0
    limit.value = 1.0
    assert compiled.find().high == pytest.approx(2 * first.high, rel=1e-6)
