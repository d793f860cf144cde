"""Affine minorants are valid for any hints and tight for correct hints."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.minorants import _SUPPORT, Lifted, Minorants
from tests import one_in
from tests.allocation.atoms import KINKS, OTHERS
from tests.allocation.brute_force import ACCURATE
from tests.allocation.builders import FALSE_VALUES

pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow"),  # huge hints overflow
    pytest.mark.filterwarnings("ignore:Solution may be inaccurate"),
    pytest.mark.filterwarnings("ignore:pnorm with p"),
]

M = 12
ALL = {**KINKS, **OTHERS}
PLAIN = Lifted({}, kinks=False)
seeds = st.integers(0, 2**32 - 1)


def unknown():
    return cp.Variable(M, nonneg=True)


def points(rng, n=12):
    """Draw interior points, corners, distant points, and points with zeros or ties."""
    result = [rng.exponential(size=M) for _ in range(n)]
    result += [rng.exponential(size=M) * (rng.random(M) < 0.5) for _ in range(n // 2)]
    result += [np.ones(M), np.eye(M)[rng.integers(M)] * M, np.zeros(M), 1e3 * rng.random(M)]
    return [*result, np.round(rng.exponential(size=M))]


def solved(expression, x, costs):
    """Return the minimum of an expression plus linear costs over a simplex, and the lifting."""
    lifted = Lifted({})
    copy = lifted(expression)
    problem = cp.Problem(cp.Minimize(copy + costs @ x), [cp.sum(x) == M, *lifted.links])
    problem.solve(solver="CLARABEL", **ACCURATE)
    x.value = np.maximum(x.value, 1e-12)
    return problem.value, lifted


def minorant(expression, x, hints):
    """Return the constant and the slopes of the minorant at the current value of x."""
    const, (slope,) = Minorants([x])(expression, 1.0, hints)
    return const, slope


def assert_below(expression, x, affine, rng):
    """Check that an affine function is a lower bound on the expression at random points."""
    const, slope = affine
    assert np.isfinite(slope).all()
    for point in points(rng):
        x.value = point
        value = expression.value
        assert const + slope @ point <= value + 1e-9 * (1 + abs(value))


# ------------------------------------------------------------------- validity for any hints


@given(st.sampled_from(sorted(ALL)), seeds)
def test_the_minorant_is_below_the_expression_for_any_hints_at_any_point(name, seed):
    rng, x = np.random.default_rng(seed), unknown()
    expression = PLAIN(ALL[name](x))
    _, lifted = solved(expression, x, 0.5 * rng.normal(size=M))
    best, right = x.value, [np.asarray(link.dual_value, dtype=float) for link in lifted.links]
    for change in (lambda _, dual: dual, *FALSE_VALUES.values()):
        for link, dual in zip(lifted.links, right, strict=True):
            link.dual_variables[0].save_value(change(rng, dual))
        for start in (best, rng.exponential(size=M)):
            for hints in ({}, lifted.hints(1.0)):
                x.value = start
                assert_below(expression, x, minorant(expression, x, hints), rng)


BY_AXIS = {
    "max": cp.max,
    "norm1": cp.norm1,
    "norm_inf": cp.norm_inf,
    "norm": lambda matrix, axis: cp.norm(matrix, 2, axis=axis),
    "min": lambda matrix, axis: -cp.min(matrix, axis=axis),
    "sum_squares": cp.sum_squares,
    "log_sum_exp": cp.log_sum_exp,
    "cummax": cp.cummax,
}


@given(
    st.sampled_from(sorted(BY_AXIS)),
    st.sampled_from([(3, 4), (4, 3), (2, 6), (6, 2), (1, 12), (12, 1)]),
    st.sampled_from([0, 1]),
    st.booleans(),
    seeds,
)
def test_atoms_along_an_axis_have_valid_minorants(name, shape, axis, with_hints, seed):
    """The entries have random weights, so a swap of two entries is detected."""
    rng, x = np.random.default_rng(seed), unknown()
    matrix = cp.reshape(x - rng.exponential(size=M), shape, order="F")
    atom = BY_AXIS[name](matrix, axis=axis)
    expression = PLAIN(cp.sum(cp.multiply(rng.exponential(size=atom.shape), atom)))
    lifted = Lifted({})
    lifted(expression)
    for link in lifted.links:
        link.dual_variables[0].save_value(rng.normal(size=link.shape))
    x.value = rng.exponential(size=M)
    result = minorant(expression, x, lifted.hints(1.0) if with_hints else {})
    assert_below(expression, x, result, rng)


# -------------------------------------------------------------------- tightness with correct hints

#: Compositions whose minorants are not tight, because a tangent replaces the inner atom.
WITHIN = ["abs of squares", "max of squares", "sum_largest of squares", "min of roots"]


@pytest.mark.parametrize("name", one_in(4, KINKS))
def test_correct_hints_prove_the_optimum(name):
    for seed in range(4):
        rng, x = np.random.default_rng(seed), unknown()
        expression, costs = PLAIN(KINKS[name](x)), 0.3 * rng.normal(size=M)
        best, lifted = solved(expression, x, costs)
        const, slope = minorant(expression, x, lifted.hints(1.0))
        bound = const + M * (slope + costs).min()
        assert bound == pytest.approx(best, abs=(1e-4 if name in WITHIN else 1e-7) * (1 + M))
        assert bound <= best + 1e-8


def test_every_supported_kinked_atom_is_tested():
    names = set()

    def walk(expression):
        names.add(type(expression).__name__)
        for argument in expression.args:
            walk(argument)

    for build in KINKS.values():
        walk(PLAIN(build(unknown())))
    # Two of these names exist only in other versions of CVXPY. test_attained.py tests SuppFuncAtom.
    assert set(_SUPPORT) - names <= {"SumLargest", "Pnorm", "SuppFuncAtom"}


def is_smooth(name):
    lifted = Lifted({})
    lifted(PLAIN(OTHERS[name](unknown())))
    return not lifted.links


@pytest.mark.parametrize("name", filter(is_smooth, OTHERS))
def test_the_minorant_of_a_smooth_expression_is_its_tangent(name):
    rng, x = np.random.default_rng(1), unknown()
    expression = PLAIN(OTHERS[name](x))
    x.value = point = rng.exponential(size=M)
    const, slope = minorant(expression, x, {})
    assert const + slope @ point == pytest.approx(expression.value, rel=1e-9, abs=1e-12)
    step = 1e-6 * rng.normal(size=M)  # the step is too small to cross a kink
    values = []
    for sign in (1, -1):
        x.value = point + sign * step
        values.append(expression.value)
    assert values[0] - values[1] == pytest.approx(2 * slope @ step, rel=1e-4, abs=1e-10)


def test_a_sum_of_squares_along_an_axis_is_supported_in_a_term():
    class Largest(cm.Term):
        def expression(self, quantities):
            matrix = cp.reshape(quantities.epsilon, (3, 4), order="F")
            return cp.max(cp.sum_squares(matrix, axis=0))

    sellers = cm.Sellers(np.linspace(0.1, 0.6, M), cm.Uniform(0, 1))
    objective = cm.Spread() + 10 * cm.Noise() + 0.5 * Largest() + cm.Payments()
    assert cm.allocate(cm.Market(sellers, objective)).gap < 1e-6
