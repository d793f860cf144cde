"""Test the measurements of a run: times, objectives, residuals and failures."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL

from convexmarket.errors import ParameterError
from convexmarket.studies.measure import EXACT, measure, measure_reference
from convexmarket.studies.subproblems.markets import Declared, Instance


def bowl(*, broken=0.0, exact=True, answer=None, lower=None):
    """Declare ``min ||x - target||^2`` s.t. ``x <= 1``, with a given answer and violation."""
    targets = np.array([0.5, 3.0]), np.array([0.25, 2.0])

    def declared(_formulation):
        x, target = cp.Variable(2, name="x"), cp.Parameter(2)
        constraints = [x <= 1] + ([] if lower is None else [x >= lower])
        problem = cp.Problem(cp.Minimize(cp.sum_squares(x - target)), constraints)

        def place(value):
            target.value = value

        def returned():
            if isinstance(answer, Exception):
                raise answer
            return np.asarray(x.value if answer is None else answer)

        return Declared(problem, place, returned)

    best = (lambda value: np.array([value[0], 1.0])) if exact else lambda _: None
    return Instance(
        "variants", targets, declared, lambda x, value: float(np.sum((x - value) ** 2)), best,
        lambda _: broken,
    )  # fmt: skip


class Exhausted(CLARABEL):
    """Solver that raises a MemoryError."""

    def name(self):
        return "EXHAUSTED"

    def solve_via_data(self, *arguments, **options):
        raise MemoryError


def test_the_exact_method_is_measured_and_is_the_reference():
    row = measure(bowl(), EXACT, EXACT, {})
    assert (row["objective"], row["again_objective"]) == (4.0, 1.0)
    assert measure_reference(bowl())["doubt"] == 0.0


def test_the_most_accurate_solve_is_the_reference_without_an_exact_method():
    assert measure(bowl(exact=False), EXACT, EXACT, {})["status"] == "unsupported"
    row = measure_reference(bowl(exact=False))
    assert row["objective"] == pytest.approx(4.0, rel=1e-9)
    assert row["certainty"].startswith("gap ")
    assert 0 < row["doubt"] < 1e-8


def test_an_instance_without_an_accurate_solve_has_no_reference():
    row = measure_reference(bowl(exact=False, lower=2.0))
    assert (row["status"], row["certainty"]) == ("error", "none")
    assert row["message"] == "no accurate solve"


@pytest.mark.parametrize("error", [ParameterError("no space"), ZeroDivisionError("no space")])
def test_a_point_without_an_answer_is_not_feasible(error):
    row = measure(bowl(answer=error), "primal", "CLARABEL", {})
    assert row["status"] == "optimal"
    assert row["message"] == "no answer can be computed from the point: no space"
    assert row["violation"] == np.inf
    assert np.isnan(row["objective"])
    assert row["dual_residual"] < 1e-6


def test_a_lack_of_memory_is_not_a_status_of_the_solver():
    with pytest.raises(MemoryError):
        measure(bowl(), "primal", Exhausted(), {})


def test_both_solves_are_measured():
    row = measure(bowl(), "primal", "CLARABEL", {})
    assert row["objective"] == pytest.approx(4.0)
    assert row["again_objective"] == pytest.approx(1.0)
    parts = ("declaration", "compilation", "solver", "recovery")
    assert row["total_s"] == pytest.approx(sum(row[f"{part}_s"] for part in parts))
    assert row["again_total_s"] == pytest.approx(sum(row[f"again_{part}_s"] for part in parts[1:]))


def test_seconds_are_clock_differences(monkeypatch):
    clock = itertools.count(1e6)
    monkeypatch.setattr("convexmarket.studies.measure.time.perf_counter", lambda: next(clock))
    row = measure(bowl(), "primal", "CLARABEL", {})
    seconds = [value for name, value in row.items() if name.endswith("_s")]
    assert 0 <= min(seconds) <= max(seconds) < 1e5
