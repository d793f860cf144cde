"""Test the choice of a method, the calls of solvers and the returned allocations."""

import warnings
from dataclasses import replace
from importlib import metadata

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.allocation_result import SolveRecord
from convexmarket.allocation.solver_calls import check_solver, run_solver, solver_version
from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from tests.allocation.builders import PAID, form, market, market_of

# ----------------------------------------------------------------------- methods


ROUTES = {
    "exact": (cm.Spread() + cm.Noise() + cm.Payments(), [cm.Cap(2)]),
    "guarantees": (cm.Spread() + cm.Noise(), [cm.terms.GivenEpsilon([0.5, 1.0, 2.0])]),
    "projections": (cm.Spread() + cm.Noise() + cm.Payments(), [cm.MaxEpsilon([1.0, 2.0, 0.5])]),
    "branch_and_bound": (PAID, []),
}


@pytest.mark.parametrize("method", ROUTES)
def test_auto_chooses_the_fastest_method_that_supports_the_market(method):
    objective, constraints = ROUTES[method]
    records = []
    result = cm.allocate(market(*constraints, objective=objective), progress=records.append)
    assert result.method == ("exact" if method == "guarantees" else method)
    assert result.solves == tuple(records)


@pytest.mark.parametrize("method", ["auto", "exact", "branch_and_bound"])
@pytest.mark.parametrize("start", [0, -1.0, np.inf, np.nan, "1", [1.0], True])
def test_a_start_is_a_finite_number_above_zero(start, method):
    with pytest.raises(
        ParameterError, match=r"start, an eta or the all.* must be a finite number > 0"
    ):
        cm.allocate(market_of(form()), method, start=start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "best"}, "method must be .*one of 'auto', 'exact'.*, got 'best'"),
        ({"method": None}, "method must be .*.*, got None"),
        ({"gap": "a"}, "gap must .*, got 'a'"),
        ({"gap": None}, "gap must be .*.*, got None"),
        ({"gap": 0}, "gap must .*, got 0"),
        ({"progress": 3}, "progress must be a function, or None, got 3"),
        ({"method": "branch_and_bound", "solver": 3}, "solver must be a name such as .* got 3"),
        ({"max_solves": 0}, "max_solves must be a whole number >= 1, got 0"),
        ({"solver_options": 3}, "solver_options must be a dictionary, got 3"),
    ],
)
def test_invalid_arguments_raise_an_error_before_any_work(arguments, message):
    with pytest.raises(ParameterError, match=message):
        cm.allocate(market_of(form()), **arguments)
    with pytest.raises(ParameterError, match="market must be a Market, got 'x'"):
        cm.allocate("x")


# ----------------------------------------------------------------------- solvers


class Stub:
    """Stub of a CVXPY problem that records its calls and returns the given statuses in order."""

    def __init__(self, *answers):
        self.answers, self.calls, self.status = list(answers), [], None

    def variables(self):
        return []

    def solve(self, **options):
        self.calls.append(options)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        warnings.warn("Solution may be inaccurate. Try another solver", stacklevel=1)
        warnings.warn("Power atom with exponent 3 is being approximated", stacklevel=1)
        self.status = answer


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "OSQP"])
def test_tight_tolerances_are_tried_before_the_defaults(solver):
    stub = Stub("user_limit", "optimal")
    assert run_solver(stub, solver, {"verbose": True}) == "optimal"
    tight, custom = stub.calls
    assert tight["solver"] == custom["solver"] == solver
    assert tight["verbose"] is custom["verbose"] is True
    tolerances = [value for name, value in tight.items() if name.startswith(("tol_", "eps_"))]
    assert len(tolerances) in (2, 3)
    assert all(0 < value <= 1e-8 for value in tolerances)
    steps = {"max_step_fraction": 0.5} if solver == "CLARABEL" else {}
    assert custom == {"solver": solver, "verbose": True, "warm_start": False, **steps}
    assert all(v >= 50_000 for name, v in tight.items() if name.startswith("max_iter"))
    assert 0.5 < tight.get("max_step_fraction", 0.9) < 1
    assert tight.get("warm_start") is (False if solver == "CLARABEL" else None)


@pytest.mark.parametrize(
    "error",
    [cp.error.SolverError("no"), SolverError("no"), ValueError("no"), ZeroDivisionError("no")],
)
def test_an_exception_of_a_solver_becomes_a_status(error):
    assert run_solver(Stub(error, error), "SCS") == f"{type(error).__name__}: no"
    assert run_solver(Stub(error, "optimal"), "SCS") == "optimal"
    with pytest.raises(KeyboardInterrupt):
        run_solver(Stub(KeyboardInterrupt()), "SCS")


def test_an_atom_that_fails_to_compile_with_values_is_solved():
    """CVXPY cannot compile sum_largest with a fractional k if the argument has a value."""
    x = cp.Variable(4, nonneg=True, value=np.ones(4))
    problem = cp.Problem(cp.Minimize(cp.sum_largest(x - 1, 2.5)), [cp.sum(x) == 4])
    assert run_solver(problem, "CLARABEL") == "optimal"
    assert problem.value == pytest.approx(0.0, abs=1e-7)


def test_solver_names_ignore_case_and_versions_come_from_the_packages():
    assert check_solver("clarabel") == check_solver("CLARABEL") == "CLARABEL"
    with pytest.raises(NotSupportedError, match=r"'ABACUS' is not installed; .*CLARABEL.*, "):
        check_solver("ABACUS")
    with pytest.raises(NotSupportedError, match="solver None is not installed"):
        check_solver(None)
    assert solver_version("CLARABEL") == metadata.version("clarabel")
    assert solver_version("SCIPY") == metadata.version("scipy")
    assert solver_version("ABACUS") == "unknown"
    assert solver_version("HIGHS") == metadata.version("highspy")


# ----------------------------------------------------------------------- results


def test_an_allocation_contains_its_certificate():
    records = (SolveRecord(1.0, 3.0, 2.0, "optimal", 0.5),)
    result = cm.Allocation(
        np.array([0.25, 0.0, 0.75]), 2.0, -4.0, -5.0, 0.3, "line_search", 1.5, None, "dual",
        "ECOS", "2.0", 1e-6, records, ("eta_low",),
    )  # fmt: skip
    np.testing.assert_allclose(result.epsilon, [0.5, 0.0, 1.5])
    assert not result.epsilon.flags.writeable
    assert not result.weights.flags.writeable
    assert result.gap == 0.25
    assert result.n_bought == 2
    assert result.certificate() == {
        "objective": -4.0, "lower_bound": -5.0, "gap": 0.25, "eta": 2.0, "multiplier": 0.3,
        "n_sellers": 3, "n_bought": 2, "method": "line_search", "formulation": "dual",
        "solver": "ECOS", "solver_version": "2.0", "tolerance": 1e-6, "binding": ["eta_low"],
        "seconds": 1.5, "solves": [vars(records[0])], "prices": [],
    }  # fmt: skip
    frame = result.to_frame()
    assert frame.index.tolist() == [0, 1, 2]
    assert replace(result, ids=["x", "y", "z"]).to_frame().index.tolist() == ["x", "y", "z"]
    assert frame["epsilon"].tolist() == [0.5, 0.0, 1.5]
    above = cm.Allocation(np.array([1.0]), 1.0, 2.0, 2.5, 0.0, "exact", 0.0)
    assert above.gap == 0.0


def test_an_unknown_solver_is_refused_even_if_the_method_needs_no_solver():
    with pytest.raises(NotSupportedError, match="'CLARABELLE' is not installed; use one of"):
        cm.allocate(market_of(form()), solver="CLARABELLE")


@pytest.mark.parametrize("method", ["auto", "branch_and_bound"])
def test_a_market_without_eta_has_an_allocation(method):
    free = cm.Market(cm.Sellers(virtual_costs=[0.1, 0.2, 0.3]), cm.Spread())
    np.testing.assert_allclose(cm.allocate(free, method).weights, 1 / 3, rtol=1e-6)
