"""What the constraints of a market allow: feasible points, the range of eta, who clashes.

All constraints are convex in the weights and 1/eta together, so the feasible values of 1/eta form
an interval, and a point that a solver left slightly outside is mended by pulling it towards a
point inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.solvers import run_solver
from convexmarket.allocation.views import JointView, numbers
from convexmarket.errors import InfeasibleMarketError, SolverError
from convexmarket.terms import Constraint

__all__ = ["Region", "RegionFinder", "mend", "violations"]

Floats = NDArray[np.float64]

#: Room less than this, relative to constraints of order one, counts as none.
TOLERANCE = 1e-8
#: What is taken for a solver's error: where a set is empty, where a point lies outside.
_SOLVER_ERROR = 1e-6
#: Error of the ends of 1/eta that a solver finds, relative to one plus the end.
_END_ERROR = 1e-8
_SOLVED = (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)


@dataclass(frozen=True, eq=False)
class Region:
    """The feasible set of a market.

    Attributes
    ----------
    low, high : float
        Total privacy eta that the constraints allow; low may be 0 and high may be inf.
    inside : (weights, eta) or None
        A point at which no inequality is active; None where there is none, as with ``Cap(1)``.
    """

    low: float
    high: float
    inside: tuple[Floats, float] | None
    #: Like low and high, but certain not to leave out anything feasible; where they differ.
    outer: tuple[float, float] | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """Total privacy beyond which nothing is feasible for certain."""
        return (self.low, self.high) if self.outer is None else self.outer


class RegionFinder:
    """Finds the region; compiled once, and again with other values of the market's parameters."""

    def __init__(self, view: JointView, solver: str = "CLARABEL") -> None:
        self.view = view
        self.solver = solver
        self._slack = cp.Variable(name="slack")
        n, m = view.scaled_weights.size, view.active.size
        self._largest = cp.Parameter(n, nonneg=True, value=np.full(n, float(m)))
        room: list[cp.Constraint] = [
            view.scaled_weights <= self._largest,
            view.scaled_inverse >= self._slack,
            self._slack <= 1,
        ]
        rest = []
        for piece, items in view.constraints:
            # Who is excluded by a bound of zero is at that bound, which leaves the others room.
            bounds_each = piece.bounds_each and view.active.size > 1
            for item in items:
                if isinstance(item, cp.constraints.Inequality):
                    each = bounds_each and item.shape == view.active.shape
                    own = view.active.astype(float) if each else 1.0
                    room.append(item.expr + self._slack * own <= 0)
                else:
                    rest.append(item)
        self._roomy = cp.Problem(cp.Maximize(self._slack), [*view.simplex, *room, *rest])
        bounds = [*view.simplex, *view.flat_constraints()]
        self._least = cp.Problem(cp.Minimize(view.scaled_inverse), bounds)
        self._most = cp.Problem(cp.Maximize(view.scaled_inverse), bounds)

    def find(self) -> Region:
        """Return the region.

        Raises
        ------
        InfeasibleMarketError
            If it is empty; the message names a smallest set of constraints that clash.
        """
        inside, slack, status = self._roomiest()
        if slack < -_SOLVER_ERROR:
            self._explain(status)
        least = self._bound(self._least, at_unbounded=0.0)
        most = self._bound(self._most, at_unbounded=np.inf)
        least = 0.0 if least < TOLERANCE else least
        given_least, given_most = self._given()
        doubt = [0.0 if end in (0, np.inf) else _END_ERROR * (1 + end) for end in (least, most)]
        outer = max(given_least, least - doubt[0]), min(given_most, most + doubt[1])
        # An end that is given is taken as it is, not as a solver returns it.
        inner = least + doubt[0], most - doubt[1]
        if inner[0] > inner[1]:
            inner = ((least + most) / 2,) * 2
        least = given_least if outer[0] == given_least else inner[0]
        most = given_most if outer[1] == given_most else inner[1]
        low, high = self._eta(most), self._eta(least)
        return Region(min(low, high), high, inside, (self._eta(outer[1]), self._eta(outer[0])))

    def _given(self) -> tuple[float, float]:
        """Return the range that EtaRange leaves to the scaled 1/eta."""
        form, scale = self.view.market.form, self.view.inverse_scale
        most = 1.0 / (form.eta_low * scale) if form.eta_low > 0 else np.inf
        return 1.0 / (form.eta_high * scale), most

    def _eta(self, scaled_inverse: float) -> float:
        """Return the eta of a scaled 1/eta, with the ends of an EtaRange to the last digit."""
        if scaled_inverse == 0:
            return np.inf
        if scaled_inverse == np.inf:
            return 0.0
        eta = 1.0 / (scaled_inverse * self.view.inverse_scale)
        ends = (self.view.market.form.eta_low, self.view.market.form.eta_high)
        return next((end for end in ends if abs(eta - end) <= 1e-12 * end < np.inf), eta)

    def inside(self, support: NDArray[np.bool_]) -> tuple[Floats, float] | None:
        """Return a point without active inequalities, with zeros outside the support, if any."""
        everybody = numbers(self._largest)
        self._largest.value = everybody * support[self.view.active]
        inside, _, _ = self._roomiest()
        self._largest.value = everybody
        return inside

    def _roomiest(self) -> tuple[tuple[Floats, float] | None, float, str]:
        """Return the point with most room, that room (-inf if there is no point) and the status."""
        status = run_solver(self._roomy, self.solver)
        if status not in _SOLVED:
            return None, -np.inf, status
        slack = float(numbers(self._slack))
        if slack <= TOLERANCE:
            return None, slack, status
        weights = np.zeros(self.view.active.size)
        raw = np.clip(numbers(self.view.scaled_weights), 0.0, numbers(self._largest))
        weights[self.view.active] = raw / raw.sum()
        inverse = float(numbers(self.view.scaled_inverse)) * self.view.inverse_scale
        return (weights, 1.0 / inverse), slack, status

    def _bound(self, problem: cp.Problem, at_unbounded: float) -> float:
        status = run_solver(problem, self.solver)
        if status in (cp.UNBOUNDED, cp.UNBOUNDED_INACCURATE):
            return at_unbounded
        if status in _SOLVED:
            return max(float(numbers(self.view.scaled_inverse)), 0.0)
        raise SolverError(
            f"{self.solver} could not find the range of eta that the constraints allow (status "
            f"{status}); bound it with EtaRange(low, high)"
        )

    def _feasible(self, pieces: Sequence[tuple[Constraint, list[cp.Constraint]]]) -> bool:
        items = [item for _, group in pieces for item in group]
        problem = cp.Problem(cp.Minimize(0), [*self.view.simplex, *items])
        return run_solver(problem, self.solver) in _SOLVED

    def _explain(self, status: str) -> None:
        """Raise the error that names a smallest set of constraints without a common point."""
        clash = list(self.view.constraints)
        if self._feasible(clash):
            raise SolverError(
                f"{self.solver} could not decide whether the constraints have a common point "
                f"(status {status}); loosen the tightest of them"
            )
        for piece in list(clash):
            rest = [other for other in clash if other is not piece]
            if not self._feasible(rest):
                clash = rest
        names = ", ".join(repr(piece) for piece, _ in clash)
        excluded = int(np.count_nonzero(~self.view.active))
        others = f"; {excluded} sellers with infinite virtual costs carry no weight" * bool(
            excluded
        )
        if len(clash) == 1:
            raise InfeasibleMarketError(
                f"no weights that sum to one satisfy {names}{others}; loosen it"
            )
        raise InfeasibleMarketError(
            f"these constraints contradict each other: {names}{others}; loosen one of them"
        )


def mend(
    view: JointView, weights: Floats, eta: float, inside: tuple[Floats, float] | None
) -> tuple[Floats, float]:
    """Return a feasible point close to one that a solver left slightly outside.

    Raises
    ------
    SolverError
        If it is too far outside.
    """
    weights = np.maximum(np.where(view.active, weights, 0.0), 0.0)
    weights = weights / weights.sum()
    share, worst = 0.0, 0.0
    here = violations(view, weights, eta)
    if here.size and here.max() > 0:
        worst = float(here.max())
        if inside is not None:
            there = violations(view, *inside)
            bad = here > 0
            share = float(np.max(here[bad] / (here[bad] - there[bad])))
    if share > 0 and inside is not None:
        weights = (1 - share) * weights + share * inside[0]
        eta = 1.0 / ((1 - share) / eta + share / inside[1])
    if worst > (1e-4 if inside is not None else _SOLVER_ERROR) or share > 1e-2:
        raise SolverError(
            f"the solver's point violates a constraint by {worst:.1e} (relative); "
            "try another solver or tighter solver options"
        )
    return weights, eta


def violations(view: JointView, weights: Floats, eta: float) -> Floats:
    """Return how far each inequality is violated; negative where there is room."""
    view.place(weights, eta)
    parts = [
        np.ravel(numbers(item.expr))
        for item in view.flat_constraints()
        if isinstance(item, cp.constraints.Inequality)
    ]
    return np.concatenate(parts) if parts else np.empty(0)
