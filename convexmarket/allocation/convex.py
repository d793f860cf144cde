"""Markets that are one convex program in the weights and 1/eta: no search over eta.

That is so where no term of the objective uses the guarantees: given guarantees, or a budget in
place of a price of money. What limits the privacy bought then stands in the constraints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.branch import finish
from convexmarket.allocation.cuts import Linearizer
from convexmarket.allocation.eta_search import check_gap
from convexmarket.allocation.region import TOLERANCE, RegionFinder, mend
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.solvers import (
    check_solver,
    run_solver,
    solver_version,
)
from convexmarket.allocation.views import JointView, Subproblem, numbers
from convexmarket.arguments import check_callable, check_instance, shown
from convexmarket.errors import (
    AllocationError,
    NotSupportedError,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.market import Market

__all__ = ["ConvexProgram", "solve_convex", "sweep"]

Floats = NDArray[np.float64]

#: Factor by which parameters may change what is natural for eta before it is scaled anew.
_SAME_SCALE = 1e3


def _joint_view(
    market: Market, inverse_scale: float, parameters: Mapping[int, cp.Parameter] | None
) -> JointView:
    """Return the joint view of a market that is one convex program, or refuse it."""
    view = JointView(market, inverse_scale, parameters)
    if view.uses_epsilon:
        raise NotSupportedError(
            f"{shown(market.objective)} has a term in the guarantees eps = eta*a, which is not "
            "convex in the weights and 1/eta together; declare it at a fixed eta: "
            "declare(market, eta=...)"
        )
    return view


class ConvexProgram(cp.Problem):
    """A whole market as one :class:`cvxpy.Problem` in the weights and 1/eta.

    Made by :func:`convexmarket.declare` without an eta. A ``cvxpy.Parameter`` inside a piece, such
    as the amount of a :class:`Budget`, can be changed between solves without compiling again.

    Attributes
    ----------
    formulation : str
        "joint".
    """

    formulation = "joint"

    def __init__(self, market: Market, eta_scale: float = 1.0) -> None:
        self.view = view = _joint_view(market, 1.0 / eta_scale, None)
        super().__init__(cp.Minimize(view.objective()), [*view.simplex, *view.flat_constraints()])

    @property
    def weights(self) -> Floats:
        """Weights a of the last solve, nonnegative and summing to one, shape (m,)."""
        weights = np.maximum(self.raw_weights, 0.0)
        return weights / weights.sum()

    @property
    def raw_weights(self) -> Floats:
        """Weights of the last solve as the solver left them, shape (m,)."""
        return self._solved(self.view.quantities.weights)

    @property
    def eta(self) -> float:
        """Total privacy of the last solve."""
        return 1.0 / float(self._solved(self.view.quantities.inverse_eta))

    def _solved(self, expression: cp.Expression) -> Floats:
        if expression.value is None:
            raise AllocationError(
                f"the problem has no solution to show (status {self.status}); call solve() first"
            )
        return np.asarray(expression.value, dtype=float)


class _Runner:
    """Solves one compiled program, as often as its parameters change."""

    def __init__(
        self,
        market: Market,
        solver: str,
        options: Mapping[str, Any] | None,
        parameters: Mapping[int, cp.Parameter],
    ) -> None:
        self.market = market
        self.parameters = parameters
        self.solver = check_solver(solver)
        self.version = solver_version(self.solver)
        self.options = options
        self._compile()

    def _compile(self) -> None:
        """Declare the program in units of the largest eta that the constraints allow."""
        self.natural = self._natural_eta()
        view = _joint_view(self.market, 1.0 / self.natural, self.parameters)
        if not view.has_noise:
            raise UnattainedOptimumError(
                "no term depends on how much privacy is bought, so eta is not determined; add "
                "sigma * Noise() with sigma > 0"
            )
        high = RegionFinder(view, self.solver).find().high
        unit = high if high < np.inf else self.natural
        even = view.active / np.count_nonzero(view.active)
        scale = abs(view.value(even, unit))
        self.scale = scale if 0 < scale < np.inf else 1.0
        self.view = _joint_view(self.market, 1.0 / unit, self.parameters)
        self._finder = RegionFinder(self.view, self.solver)
        self._linearizer = Linearizer(self.view)
        self.program = Subproblem(self.view, self._linearizer.kept, self.scale)

    def _natural_eta(self) -> float:
        form = self.market.form
        budgets = tuple(self.parameters.get(id(amount), amount) for amount in form.budgets)
        return replace(form, budgets=budgets).natural_eta

    def solve(self, gap: float, progress: Callable[[SolveRecord], None] | None) -> Allocation:
        start = time.perf_counter()
        if not 1 / _SAME_SCALE < self._natural_eta() / self.natural < _SAME_SCALE:
            self._compile()
        region = self._finder.find()
        status = run_solver(self.program, self.solver, self.options)
        if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            raise SolverError(
                f"{self.solver} {self.version} failed on {shown(self.market)} (status {status}); "
                "try another solver"
            )
        if float(numbers(self.view.scaled_inverse)) < TOLERANCE and region.high == np.inf:
            raise UnattainedOptimumError(
                "no payment and no constraint limits how much privacy is bought, so the noise term "
                "makes eta run away to infinity; add gamma * Payments(), a Budget, MaxEpsilon, "
                "GivenEpsilon or an EtaRange"
            )
        raw, near = self.program.weights, self.program.eta
        weights, eta = mend(self.view, raw, near, region.inside)
        objective = self.view.value(weights, eta)
        proof = self.program.multipliers, self.program.hints
        cuts = [self._linearizer.cut(raw, near, *proof, balance, True) for balance in (True, False)]
        bound = max(cut.minimum(*region.bounds)[1] for cut in cuts)
        seconds = time.perf_counter() - start
        record = SolveRecord(eta, objective, bound, status, seconds)
        if progress is not None:
            progress(record)
        return finish(
            self.view,
            self._finder,
            weights,
            eta,
            bound,
            cuts[0].price,
            (record,),
            gap,
            method="convex_program",
            seconds=seconds,
            formulation="joint",
            solver=self.solver,
            solver_version=self.version,
        )


def solve_convex(
    market: Market,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    solver_options: Mapping[str, Any] | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Allocation:
    """Allocate privacy in a market that is one convex program, with a certificate.

    Parameters and return value are those of :func:`branch_and_bound`; there is one solve.

    Raises
    ------
    NotSupportedError
        If a term of the objective uses the guarantees.
    InfeasibleMarketError, UnattainedOptimumError, SolverError
        If there is no answer.
    """
    check_gap(gap)
    return _Runner(market, solver, solver_options, {}).solve(gap, progress)


def sweep(
    market: Market,
    parameter: cp.Parameter,
    values: Iterable[float],
    *,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    solver_options: Mapping[str, Any] | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> list[Allocation]:
    """Allocate one market for many values of a parameter, compiling it once.

    Parameters
    ----------
    market : Market
        One convex program: without a term in the guarantees.
    parameter : cvxpy.Parameter
        Stands in one of the market's pieces, as in ``Budget(parameter)``. It keeps its own value.
    values : iterable of float
    solver, gap, solver_options, progress
        As in :func:`allocate`.

    Returns
    -------
    list of Allocation
        One for each value, in their order.

    Raises
    ------
    ParameterError
        If the parameter does not stand in the market.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import convexmarket as cm
    >>> budget = cp.Parameter(nonneg=True)
    >>> market = cm.Market(
    ...     cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1)),
    ...     2.0 * cm.Spread() + 1.0 * cm.Noise(),
    ...     [cm.Budget(budget)],
    ... )
    >>> [round(a.objective, 4) for a in cm.sweep(market, budget, [0.5, 1.0, 2.0])]
    [2.1565, 1.7458, 1.4696]
    """
    check_gap(gap)
    check_instance("market", market, Market)
    check_callable("progress", progress)
    if solver_options is not None:
        check_instance("solver_options", solver_options, Mapping, "a dictionary")
    if not isinstance(parameter, cp.Parameter):
        raise ParameterError(f"parameter is {parameter!r}; give the cvxpy.Parameter of a piece")
    try:
        values = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        values = [np.nan]
    if not np.isfinite(values).all():
        raise ParameterError("the values to sweep over must be a list of finite numbers")
    signs: dict[str, Any] = {name: on for name, on in parameter.attributes.items() if on}
    own = cp.Parameter(**signs)
    found, runner = [], None
    for value in values:
        own.value = value
        if runner is None:
            runner = _Runner(market, solver, solver_options, {id(parameter): own})
            if not any(known is own for known in runner.program.parameters()):
                raise ParameterError(
                    f"the parameter {parameter.name()!r} does not stand in {shown(market)}; use "
                    "it in a piece, as in Budget(parameter)"
                )
        found.append(runner.solve(gap, progress))
    return found
