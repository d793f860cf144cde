"""What the constraints of a market allow: feasible points, the range of eta, who clashes.

All constraints are convex in the weights and 1/eta together (bounds on guarantees by their
perspective), so the feasible values of 1/eta form an interval. How far it reaches at most is
proven, by a least violation that is above zero beyond its end. A point that a solver left slightly
outside is mended by pulling it towards a point inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.minorants import Lifted, Minorants
from convexmarket.allocation.solvers import run_solver
from convexmarket.allocation.views import JointView, fixed_eta, multiplier, numbers
from convexmarket.arguments import shown
from convexmarket.errors import InfeasibleMarketError, SolverError
from convexmarket.terms import Constraint

__all__ = ["Region", "RegionFinder", "imbalance", "mend", "violations"]

Floats = NDArray[np.float64]

#: Room less than this, relative to constraints of order one, counts as none.
TOLERANCE = 1e-8
#: What is taken for a solver's error: where a set is empty, where a point lies outside.
_SOLVER_ERROR = 1e-6
#: How far from an end of 1/eta, relative to one plus the end, a solver finds nothing feasible.
_END_ERROR = 1e-8
#: How far beyond an end it is tried to prove that nothing is feasible, relative to the end.
_STEPS = 1e-9 * 4.0 ** np.arange(15)
#: The first of these steps at which the multipliers of a solve of its own may prove it.
_OWN = 2
#: Parts of the way to a point inside that are tried.
_PARTS = 0.125 ** np.arange(17)
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


class _Clash:
    """Proofs that no weights are feasible at some 1/eta, whatever a solver's multipliers are.

    At a fixed 1/eta the least violation ``min max h(a, eps, s)`` has multipliers y, and
    ``y'h <= 0`` wherever all is well. A minorant of ``y'h`` above zero proves that it is not.
    """

    def __init__(self, view: JointView) -> None:
        self.view = view
        self._minorants = Minorants(view.unknowns)
        self._eta, leaves = fixed_eta(view)
        self._lifted = Lifted(leaves)
        worst = cp.Variable(name="worst")
        self._items: list[list[cp.Constraint]] = []
        for item in view.flat_constraints():
            h = self._lifted(item.expr)
            equal = not isinstance(item, cp.constraints.Inequality)
            self._items.append([h <= worst, -h <= worst] if equal else [h <= worst])
        items = [one for both in self._items for one in both]
        self._problem = cp.Problem(
            cp.Minimize(worst), [*view.simplex, *items, *self._lifted.links, worst >= -1]
        )

    def at(self, scaled_inverse: float, solver: str) -> Callable[[float], float] | None:
        """Return a function of the scaled 1/eta that is above 0 only where nothing is feasible."""
        view = self.view
        eta = 1.0 / (scaled_inverse * view.inverse_scale)
        self._eta.value = eta
        if run_solver(self._problem, solver) not in _SOLVED:
            return None
        weights = np.maximum(numbers(view.quantities.weights), 0.0)
        view.place(weights / weights.sum(), eta)
        hints = self._lifted.hints(1.0)
        const, slopes = 0.0, [np.zeros(unknown.size) for unknown in view.unknowns]
        for item, own in zip(view.flat_constraints(), self._items, strict=True):
            duals = [np.maximum(multiplier(one, 1.0), 0.0) for one in own]  # type: ignore[arg-type]
            dual = duals[0] - duals[1] if len(own) == 2 else duals[0]
            rest, found = self._minorants(item.expr, dual, hints)
            const += rest
            slopes = [mine + other for mine, other in zip(slopes, found, strict=True)]
        per_weight, per_epsilon, per_inverse = slopes
        per_epsilon = per_epsilon[view.active] / (view.active.size * view.inverse_scale)

        def proof(s: float) -> float:
            least = float(np.min(per_weight + per_epsilon / s))
            return const + float(per_inverse.item()) * s + view.active.size * least

        return proof


class RegionFinder:
    """Finds the region; compiled once, and again with other values of the market's parameters."""

    def __init__(self, view: JointView, solver: str) -> None:
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
        rest: list[cp.Constraint] = []
        for piece, items in view.constraints:
            # Who is excluded by a bound of zero is at that bound, which leaves the others room.
            bounds_each = piece.bounds_each and view.active.size > 1
            for item in items:
                bound, cones = view.jointly(item, solver)
                rest += cones
                if isinstance(item, cp.constraints.Inequality):
                    each = bounds_each and item.shape == view.active.shape
                    own = view.active.astype(float) if each else 1.0
                    room.append(bound + self._slack * own <= 0)
                else:
                    rest.append(bound == 0)
        self._roomy = cp.Problem(cp.Maximize(self._slack), [*view.simplex, *room, *rest])
        bounds = [*view.simplex, *self._joint(view.flat_constraints())]
        self._least = cp.Problem(cp.Minimize(view.scaled_inverse), bounds)
        self._most = cp.Problem(cp.Maximize(view.scaled_inverse), bounds)
        self._clash = _Clash(view)
        self._found: tuple[list[NDArray[np.float64]], Region] | None = None

    def _joint(self, items: Sequence[cp.Constraint]) -> list[cp.Constraint]:
        """Return comparisons as constraints on the weights and 1/eta."""
        found: list[cp.Constraint] = []
        for item in items:
            h, cones = self.view.jointly(item, self.solver)
            equal = not isinstance(item, cp.constraints.Inequality)
            found += [h == 0 if equal else h <= 0, *cones]
        return found

    def find(self) -> Region:
        """Return the region, found anew only where a parameter in the constraints has changed.

        Raises
        ------
        InfeasibleMarketError
            If it is empty; the message names a smallest set of constraints that clash.
        """
        values = [np.array(parameter.value) for parameter in self._least.parameters()]
        values.append(np.array(self._given()))
        if self._found is None or not all(map(np.array_equal, values, self._found[0])):
            self._found = values, self._find()
        return self._found[1]

    def _find(self) -> Region:
        if not self.view.constraints:
            return Region(0.0, np.inf, self.inside(np.ones(self.view.active.size, dtype=bool)))
        inside, slack, status = self._roomiest()
        if slack < -_SOLVER_ERROR:
            self._explain(status)
        least = self._end(self._least, at_unbounded=0.0)
        most = self._end(self._most, at_unbounded=np.inf)
        least = 0.0 if least < TOLERANCE else least
        given_least, given_most = self._given()
        doubt = [0.0 if end in (0, np.inf) else _END_ERROR * (1 + end) for end in (least, most)]
        # An end that is given is taken as it is, not as a solver returns it.
        inner = least + doubt[0], most - doubt[1]
        if inner[0] > inner[1]:
            inner = ((least + most) / 2,) * 2
        outer = [given_least, given_most]
        if inner[0] > given_least + 2 * doubt[0]:
            outer[0], given_least = max(given_least, self._proven(least, -1.0)), inner[0]
        if inner[1] < given_most - 2 * doubt[1]:
            outer[1], given_most = min(given_most, self._proven(most, 1.0)), inner[1]
        low, high = self._eta(given_most), self._eta(given_least)
        return Region(min(low, high), high, inside, (self._eta(outer[1]), self._eta(outer[0])))

    def _proven(self, end: float, way: float) -> float:
        """Return the nearest scaled 1/eta beyond an end of which it is proven to be infeasible.

        With it all further ones are, as those that are feasible form an interval.
        """
        first = self._clash.at(end, self.solver)
        for place, step in enumerate(_STEPS):
            beyond = end * (1 + way * step)
            if first is not None and first(beyond) > 0:
                return beyond
            if place < _OWN:
                continue
            # Who is held by another bound at the end may be the first to give way beyond it.
            own = self._clash.at(beyond, self.solver)
            if own is not None and own(beyond) > 0:
                return beyond
        return 0.0 if way < 0 else np.inf

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
        if not self.view.constraints:
            buyable = support & self.view.active
            return buyable / np.count_nonzero(buyable), 1.0 / self.view.inverse_scale
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

    def _end(self, problem: cp.Problem, at_unbounded: float) -> float:
        """Return an end of the scaled 1/eta as the solver finds it."""
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
        items = [item for _, group in pieces for item in self._joint(group)]
        problem = cp.Problem(cp.Minimize(0), [*self.view.simplex, *items])
        status = run_solver(problem, self.solver)
        if status in _SOLVED or status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            return status in _SOLVED
        raise SolverError(
            f"{self.solver} failed to find out whether the constraints have a common point "
            f"(status {status}); try another solver"
        )

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
        names = ", ".join(shown(piece) for piece, _ in clash)
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
        if np.max(violations(view, weights, eta)) > 0:  # another eta is needed too
            # Of which a point far inside has much more than is needed.
            etas = 1.0 / ((1 - (parts := share * _PARTS)) / eta + parts / inside[1])
            left = [float(np.max(violations(view, weights, near))) for near in etas]
            eta = float(etas[np.flatnonzero(np.array(left) <= max(left[0], 0.0))[-1]])
    if worst > (1e-4 if inside is not None else _SOLVER_ERROR) or share > 1e-2:
        raise SolverError(
            f"the solver's point violates a constraint by {worst:.1e} (relative); "
            "try another solver or tighter solver options"
        )
    return weights, eta


def violations(view: JointView, weights: Floats, eta: float) -> Floats:
    """Return how far each inequality is violated, convex in (a, s); below 0 where there is room."""
    view.place(weights, eta)
    s = float(numbers(view.scaled_inverse))
    parts = [
        (s if view.bounds_epsilon(item) else 1.0) * np.ravel(numbers(item.expr))
        for item in view.flat_constraints()
        if isinstance(item, cp.constraints.Inequality)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def imbalance(view: JointView, weights: Floats, eta: float) -> float:
    """Return how far the equations are from being met."""
    view.place(weights, eta)
    parts = [
        np.max(np.abs(numbers(item.expr)), initial=0.0)
        for item in view.flat_constraints()
        if not isinstance(item, cp.constraints.Inequality)
    ]
    return float(max(parts, default=0.0))
