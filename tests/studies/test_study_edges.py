"""What a run becomes where the problem, the point or the system gives less than is usual."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.studies import isolation
from convexmarket.studies.kkt import kkt_residuals
from convexmarket.studies.measure import measure, measure_reference
from convexmarket.studies.subproblems.base import Instance
from convexmarket.studies.subproblems.markets import FixedEtaInstance, PapersInstance


class Distance(Instance):
    """``min (x - 2)^2`` under ``x <= 1``, with an answer and a first bound of one's choice."""

    problem_class = "distance"
    formulations = ("primal",)

    def __init__(self, answer=None, lower=None):
        self.given, self.lower = answer, lower

    def declare(self, formulation):
        x = cp.Variable(1, name="x")
        self.target = cp.Parameter(1, value=[2.0])
        below = [] if self.lower is None else [x >= self.lower]
        return cp.Problem(cp.Minimize(cp.sum_squares(x - self.target)), [x <= 1, *below])

    def change(self, problem):
        self.target.value = np.array([3.0])

    def answer(self, problem):
        if isinstance(self.given, Exception):
            raise self.given
        return np.asarray(problem.var_dict["x"].value if self.given is None else self.given)

    def objective(self, answer, changed):
        return float((answer[0] - (3.0 if changed else 2.0)) ** 2)

    def violation(self, answer):
        return 0.0


class Exhausted(cp.reductions.solvers.conic_solvers.clarabel_conif.CLARABEL):
    """A solver that finds no memory."""

    def name(self):
        return "EXHAUSTED"

    def solve_via_data(self, *arguments, **options):
        raise MemoryError


# ------------------------------------------------------------------------------- residuals


def test_a_constraint_of_numbers_alone_needs_no_multiplier():
    x = cp.Variable(name="x")
    bound = x >= 1
    problem = cp.Problem(cp.Minimize(x**2), [bound, cp.Constant(1.0) <= 2.0])
    x.save_value(np.asarray(1.0))
    bound.dual_variables[0].save_value(np.asarray(2.0))
    assert kkt_residuals(problem).largest == 0.0


def test_numbers_that_break_a_constraint_of_their_own_are_a_violation():
    x = cp.Variable(name="x")
    problem = cp.Problem(cp.Minimize((x - 1) ** 2), [cp.Constant(3.0) <= 2.0])
    x.save_value(np.asarray(1.0))
    assert kkt_residuals(problem).violation == pytest.approx(1 / 3)


def test_an_objective_without_a_slope_has_no_stationary_point_there():
    x = cp.Variable(2, name="x")
    whole = cp.sum(x) == 1
    problem = cp.Problem(cp.Minimize(-cp.sum(cp.entr(x))), [whole])
    for at, stationary in (([0.0, 1.0], False), ([0.5, 0.5], True)):
        x.save_value(np.array(at))
        whole.dual_variables[0].save_value(np.asarray(np.log(2.0) - 1.0))
        found = kkt_residuals(problem)
        assert found.primal == 0.0
        assert found.dual == (pytest.approx(0.0, abs=1e-15) if stationary else np.inf)


# ------------------------------------------------------------------------------------ runs


@pytest.mark.parametrize("error", [ParameterError("no room"), ZeroDivisionError("no room")])
def test_a_point_without_an_answer_is_not_feasible_and_says_why(error):
    row = measure(Distance(error), "primal", "CLARABEL", {})
    assert row["status"] == "optimal"
    assert row["message"] == "the point gives no answer: no room"
    assert row["violation"] == np.inf
    assert np.isnan(row["objective"])
    assert row["dual_residual"] < 1e-6


def test_an_answer_that_is_no_number_is_not_feasible():
    row = measure(Distance([np.nan]), "primal", "CLARABEL", {})
    assert row["violation"] == np.inf
    assert np.isnan(row["objective"])


def test_a_lack_of_memory_is_not_a_status_of_the_solver():
    with pytest.raises(MemoryError):
        measure(Distance(), "primal", Exhausted(), {})


def test_an_instance_that_no_solver_comes_near_has_no_reference():
    found = measure_reference(Distance(lower=2.0))
    assert (found["status"], found["certainty"]) == ("error", "none")
    assert found["message"] == "no solver is near"
    assert measure_reference(Distance(lower=0.0))["doubt"] < 1e-8


# ------------------------------------------------------------------------------ the system


def test_each_thread_has_a_core_of_the_process(monkeypatch):
    monkeypatch.setattr(isolation, "usable_cores", lambda: [3, 5])
    monkeypatch.setattr(isolation.Isolation, "call", lambda self, *call, core, **limits: {})
    ready = threading.Barrier(2)

    def core(pin):
        return isolation.call_isolated(print, (), time_limit=1.0, memory_limit=None, pin=pin)[
            "core"
        ]

    def cores(_):
        first = core(True)
        ready.wait()
        return [first, core(True), core(False)]

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(cores, range(2))) == [[3, 3, -1], [5, 5, -1]]


def test_a_server_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(isolation, "_FAREWELL", 0.1)
    deaf = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"], stdin=subprocess.PIPE
    )
    server = isolation.Isolation()
    server._server = deaf
    server.close()
    assert deaf.returncode < 0
    server.close()  # and once more, when there is none


# ------------------------------------------------------------------------------- instances


def test_a_variable_of_whole_numbers_has_no_residuals():
    x = cp.Variable(name="count", integer=True)
    x.save_value(np.asarray(1.0))
    with pytest.raises(NotSupportedError, match="count is declared integer; residuals are known"):
        kkt_residuals(cp.Problem(cp.Minimize(x**2), [x >= 1]))


@pytest.mark.parametrize("kind", [FixedEtaInstance, lambda market: PapersInstance(market, 1.0)])
def test_a_market_whose_eta_is_given_has_nothing_to_change(kind):
    objective = cm.Spread() + cm.Noise() + cm.Payments()
    market = cm.Market(cm.Sellers(virtual_costs=[0.1, 0.4]), objective, [cm.EtaRange(1.0, 1.0)])
    with pytest.raises(NotSupportedError, match="leaves eta no room; a study changes it"):
        kind(market)
