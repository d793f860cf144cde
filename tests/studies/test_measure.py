"""One measured run: what is timed, what is looked at, and what a solver's failure becomes."""

import cvxpy as cp
import numpy as np
import pytest

from convexmarket.studies.measure import EXACT, measure, measure_reference, warm_up
from convexmarket.studies.subproblems.base import Instance


class Bowl(Instance):
    """``min ||x - target||^2`` under ``x <= 1``; an answer that tells what it breaks."""

    problem_class = "bowl"
    formulations = ("primal",)

    def __init__(self, broken=0.0, exact=True):
        self.broken, self.knows = broken, exact

    def declare(self, formulation):
        x, target = cp.Variable(2, name="x"), cp.Parameter(2, name="target", value=[0.5, 3.0])
        return cp.Problem(cp.Minimize(cp.sum_squares(x - target)), [x <= 1])

    def change(self, problem):
        problem.param_dict["target"].value = np.array([0.25, 2.0])

    def answer(self, problem):
        return np.asarray(problem.var_dict["x"].value)

    def objective(self, answer, changed):
        return float(np.sum((answer - ([0.25, 2.0] if changed else [0.5, 3.0])) ** 2))

    def violation(self, answer):
        return self.broken

    def exact(self, changed):
        return np.array([0.25 if changed else 0.5, 1.0]) if self.knows else None


def test_both_solves_are_measured():
    row = measure(Bowl(), "primal", "CLARABEL", {})
    assert row["objective"] == pytest.approx(4.0)
    assert row["again_objective"] == pytest.approx(1.0)
    assert row["iterations"] > 0
    parts = ("declaration", "compilation", "solver", "recovery")
    assert row["total_s"] == pytest.approx(sum(row[f"{part}_s"] for part in parts))
    assert row["again_total_s"] == pytest.approx(sum(row[f"again_{part}_s"] for part in parts[1:]))


def test_an_answer_that_breaks_what_the_problem_does_not_say_is_a_violation():
    assert measure(Bowl(0.25), "primal", "CLARABEL", {})["violation"] == 0.25


def test_options_reach_the_solver_and_its_limit_is_its_status():
    row = measure(Bowl(), "primal", "CLARABEL", {"max_iter": 1})
    assert row["status"] in ("user_limit", "error")


def test_a_wrong_option_is_an_error_of_the_run():
    row = measure(Bowl(), "primal", "CLARABEL", {"no_such_option": 1})
    assert row["status"] == "error"
    assert "no_such_option" in row["message"]


def test_the_exact_method_is_measured_alike_and_is_the_reference():
    row = measure(Bowl(), EXACT, EXACT, {})
    assert (row["objective"], row["again_objective"]) == (4.0, 1.0)
    assert measure_reference(Bowl())["doubt"] == 0.0


def test_without_an_exact_method_the_tightest_solve_is_the_reference():
    assert measure(Bowl(exact=False), EXACT, EXACT, {})["status"] == "unsupported"
    found = measure_reference(Bowl(exact=False))
    assert found["objective"] == pytest.approx(4.0, rel=1e-9)
    assert found["certainty"].startswith("gap ")
    assert 0 < found["doubt"] < 1e-8


def test_warming_up_never_fails():
    for solver in [*cp.installed_solvers(), "NONESUCH"]:
        warm_up(solver)
