"""Markets that are one convex program in the weights and 1/eta, and sweeps over a parameter of any.

A market is one program where no piece speaks of the guarantees: given guarantees, or a budget in
place of a price of money. What limits the privacy bought then stands in the constraints, and there
is no search over eta.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.branch import Compiled
from convexmarket.allocation.cuts import Linearizer
from convexmarket.allocation.eta_search import Evaluated, check_gap
from convexmarket.allocation.region import TOLERANCE, RegionFinder, mend
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.views import DeclaredMarket, JointView, numbers
from convexmarket.arguments import check_callable, check_instance, shown
from convexmarket.errors import (
    NotSupportedError,
    ParameterError,
    UnattainedOptimumError,
)
from convexmarket.market import Market

__all__ = ["ConvexProgram", "solve_convex", "sweep"]

Floats = NDArray[np.float64]

#: Logarithm by which eta has to change between two values of a parameter to be extrapolated.
_MOVED = 0.004


def _refuse_guarantees(view: JointView) -> None:
    """Refuse a market that is not one convex program."""
    if view.uses_epsilon:
        raise NotSupportedError(
            f"{shown(view.market)} has a term or a bound in the guarantees eps = eta*a, which is "
            "not convex in the weights and 1/eta together; declare it at a fixed eta: "
            "declare(market, eta=...)"
        )


class ConvexProgram(DeclaredMarket):
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
        self.view = view = JointView(market, 1.0 / eta_scale, None)
        _refuse_guarantees(view)
        self._weights = view.quantities.weights
        super().__init__(cp.Minimize(view.objective()), [*view.simplex, *view.flat_constraints()])

    @property
    def eta(self) -> float:
        """Total privacy of the last solve."""
        return 1.0 / float(self.solution(self.view.quantities.inverse_eta))


class _OneProgram(Compiled):
    """A market that is one convex program, compiled: eta is the solver's to choose."""

    def _compile(self) -> None:
        """Declare the program in units of the largest eta that the constraints allow."""
        super()._compile()
        _refuse_guarantees(self.view)
        if not self.view.has_noise:
            raise UnattainedOptimumError(
                "no term depends on how much privacy is bought, so eta is not determined; add "
                "sigma * Noise() with sigma > 0"
            )
        high = self.finder.find().high
        unit = high if high < np.inf else self._natural
        self.view = JointView(self.market, 1.0 / unit, self._parameters)
        self.finder = RegionFinder(self.view, self.solver)
        self.linearizer = Linearizer(self.view)
        self.declare(unit, joint=True)

    def search(
        self,
        gap: float,
        max_solves: int,
        start: float | None,
        progress: Callable[[SolveRecord], None] | None,
    ) -> Allocation:
        """Solve once."""
        began = time.perf_counter()
        self.refresh()
        assert self.problem is not None
        status = self.run(self.problem, f"on {shown(self.market)}")
        if float(numbers(self.view.scaled_inverse)) < TOLERANCE and self.region.high == np.inf:
            raise UnattainedOptimumError(
                "no payment and no constraint limits how much privacy is bought, so the noise term "
                "makes eta run away to infinity; add gamma * Payments(), a Budget, MaxEpsilon, "
                "GivenEpsilon or an EtaRange"
            )
        raw, near = self.problem.weights, self.problem.eta
        proof = self.problem.proof()
        weights, eta = mend(self.view, raw, near, self.region.inside)
        objective = self.view.value(weights, eta)
        cuts = [self.linearizer.cut(raw, near, *proof, balance, True) for balance in (True, False)]
        bound = max(cut.minimum(*self.region.bounds)[1] for cut in cuts)
        seconds = time.perf_counter() - began
        self.records.append(SolveRecord(eta, objective, bound, status, seconds))
        if progress is not None:
            progress(self.records[-1])
        best = Evaluated(weights, eta, objective, cuts[0])
        return self.finish(best, bound, gap, began, "convex_program", "joint")


def solve_convex(
    market: Market,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    solver_options: Mapping[str, Any] | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Allocation:
    """Allocate privacy in a market that is one convex program by one solve; see :func:`allocate`.

    Raises
    ------
    NotSupportedError
        If a piece uses the guarantees.
    """
    check_gap(gap)
    return _OneProgram(market, solver, solver_options).search(gap, 1, None, progress)


def sweep(
    market: Market,
    parameter: cp.Parameter,
    values: Iterable[ArrayLike],
    *,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    max_solves: int = 200,
    solver_options: Mapping[str, Any] | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> list[Allocation]:
    """Allocate one market, of any kind, for many values of a parameter, compiling it once.

    Each search over eta begins where the last optima point to. Several threads may sweep one market
    at once.

    Parameters
    ----------
    market : Market
    parameter : cvxpy.Parameter
        Stands in one of the market's pieces, as in ``Budget(parameter)``, ``Cap(parameter)`` or
        ``Payments() * parameter``, or in a piece of your own. It keeps its own value.
    values : iterable of float or array_like
        Of the parameter's shape.
    solver, gap, max_solves, solver_options, progress
        As in :func:`allocate`.

    Returns
    -------
    list of Allocation
        One for each value, in their order.

    Raises
    ------
    ParameterError
        If the parameter does not stand in the market, or cannot have one of the values.
    InfeasibleMarketError, UnattainedOptimumError, SolverError
        If there is no answer for one of the values.

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
    check_gap(gap, max_solves)
    check_instance("market", market, Market)
    check_callable("progress", progress)
    if solver_options is not None:
        check_instance("solver_options", solver_options, Mapping, "a dictionary")
    check_instance("parameter", parameter, cp.Parameter, "the cvxpy.Parameter of a piece")
    signs: dict[str, Any] = {name: on for name, on in parameter.attributes.items() if on}
    own = cp.Parameter(parameter.shape, **signs)
    given = _checked_values(own, values)
    found: list[Allocation] = []
    compiled: Compiled | None = None
    for value in given:
        own.value = value
        if compiled is None:
            compiled = _compiled(market, parameter, own, solver, solver_options)
        start = _expected_eta(given, found)
        found.append(compiled.search(gap, max_solves, start, progress))
    return found


def _expected_eta(values: Sequence[Floats], found: Sequence[Allocation]) -> float | None:
    """Return where the next optimum may be: further along, where the last two are apart."""
    if not found:
        return None
    last, k = found[-1].eta, len(found)
    if k == 1 or values[0].ndim or values[k - 1] == values[k - 2]:
        return last
    place = np.array([float(value) for value in values[k - 2 : k + 1]])
    place = np.log(place) if np.all(place > 0) else place
    moved, ahead = float(np.log(last / found[-2].eta)), np.diff(place)
    step = np.clip(moved * ahead[1] / ahead[0], -2.0, 2.0) if abs(moved) > _MOVED else 0.0
    return last * float(np.exp(step))


def _checked_values(parameter: cp.Parameter, values: Iterable[ArrayLike]) -> list[Floats]:
    """Return what the parameter is to be, one after the other."""
    try:
        given = [np.asarray(value, dtype=float) for value in values]
    except (TypeError, ValueError, OverflowError):
        given = [np.array(np.nan)]
    if not all(np.isfinite(value).all() for value in given):
        raise ParameterError("the values to sweep over must be a list of finite numbers")
    for value in given:
        try:
            parameter.value = value
        except ValueError as error:
            raise ParameterError(f"the parameter cannot be {value}: {error}") from error
    return given


def _compiled(
    market: Market,
    parameter: cp.Parameter,
    own: cp.Parameter,
    solver: str,
    options: Mapping[str, Any] | None,
) -> Compiled:
    """Return the market compiled with a parameter of our own in place of the user's."""
    own_market = market.with_parameter(parameter, own)
    parameters = {id(parameter): own, id(own): own}
    view = JointView(own_market, 1.0, parameters)
    expressions = [*(e for _, _, e in view.terms), *(c.expr for c in view.flat_constraints())]
    if not any(known is own for e in expressions for known in e.parameters()):
        raise ParameterError(
            f"the parameter {parameter.name()!r} does not stand in {shown(market)}; use it in a "
            "piece, as in Budget(parameter)"
        )
    kind = Compiled if view.uses_epsilon else _OneProgram
    return kind(own_market, solver, options, parameters)
