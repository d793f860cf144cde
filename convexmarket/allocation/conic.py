"""Solve any market at a given eta by a conic solver, with a cut or a proof of infeasibility.

Every solve gives a cut, which is a lower bound at every eta (:mod:`convexmarket.allocation.cuts`).
After a failed solve, the violation of the constraints is minimised. Its multipliers prove that all
larger or all smaller eta are infeasible (docs/theory.md, section 9).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.cuts import Linearizer
from convexmarket.allocation.eta_search import (
    FOR_TRACES,
    Evaluated,
    Excluded,
    allocation_of,
    first_look,
    search_eta,
)
from convexmarket.allocation.minorants import Computed
from convexmarket.allocation.prices import pricing_of
from convexmarket.allocation.simplex import ROUNDING
from convexmarket.allocation.solver_calls import SOLVED, check_solver, run_solver, solver_version
from convexmarket.allocation.views import FixedEta, MarketExpressions, multiplier, numbers
from convexmarket.checks import shown
from convexmarket.errors import SolverError
from convexmarket.market import Market

__all__ = ["Conic"]

Floats = NDArray[np.float64]

#: Weights below this fraction of the average weight can be artefacts of the solver.
_TRACE = 1e-5
#: A problem is compiled again if its unit exceeds the objective by more than this factor.
_SAME = 1e3
#: A lower bound that exceeds the objective by more than this relative amount must be wrong.
_CONTRADICTION = 1e-6
#: Largest slack of a constraint of order one that is treated as zero.
_NO_SLACK = 1e-8
#: Largest violations that are repaired, without and with a known strictly feasible point.
_SOLVER_ERROR, _REPAIRABLE = 1e-6, 1e-4
#: Weight of violated equations, and the violation of an equation that is treated as zero.
_EQUATIONS, _EQUAL = 100.0, 1e-7
#: Smallest fractions of the sum of multipliers at which an error names, and a proof uses, a piece.
_NAMED, _NOISE = 1e-3, 1e-7


class Conic:
    """A market at the current values of its parameters, compiled once for a solver."""

    def __init__(
        self, market: Market, solver: str = "CLARABEL", options: Mapping[str, Any] | None = None
    ) -> None:
        self.market, self.options, self.solver = market, options, check_solver(solver)
        self.form, self.version = market.form, solver_version(self.solver)
        self.ends, self.records = self.form.eta_range, list[SolveRecord]()
        self.view = MarketExpressions(market, 1.0 / self.form.natural_eta)
        self.linearizer = Linearizer(self.view)
        self.problem: FixedEta | None = None
        self._inside: Floats | None = None
        self._multipliers: dict[float, list[Floats | None]] = {}

    def declare(self, eta: float) -> FixedEta:
        """Return the CVXPY problem for a given eta, with its objective scaled to order one."""
        size = self.view.size(self.view.active / np.count_nonzero(self.view.active), eta)
        scale = size if 0 < size < np.inf else 1.0
        if self.problem is None or scale < self.problem.scale / _SAME:
            self.problem = FixedEta(self.view, eta, scale, kinks=True)
        self.problem.parameter.value = eta
        return self.problem

    @cached_property
    def _violation(self) -> tuple[cp.Problem, list[list[cp.Constraint]], FixedEta]:
        """The program that minimises the violation of the constraints, and its copies of them.

        The last entry is the declaration to which the copies belong. The violation of a bound
        ``G(eps) <= 0`` is measured as ``s*G(a/s)``, with s = 1/eta (docs/theory.md, section 9).
        """
        view, market = self.view, self.problem or self.declare(self.form.natural_eta)
        worst, off = cp.Variable(name="worst"), cp.Variable(nonneg=True, name="off")
        unit = Computed(lambda: market.eta * view.inverse_scale, pos=True)
        copies = list[list[cp.Constraint]]()
        for item, copy in zip(view.flat_constraints(), market.copies, strict=True):
            h, allowed = copy.expr, unit * worst if view.bounds_epsilon(item) else worst
            equal = not isinstance(item, cp.constraints.Inequality)
            copies.append([h <= off, -h <= off] if equal else [h <= allowed])
        items = [each for both in copies for each in both]
        items += [*view.simplex, *market.links, worst >= -1.0]
        unequal = all(len(both) == 1 for both in copies)  # a large unused weight causes failures
        cost = worst if unequal else worst + _EQUATIONS * off
        return cp.Problem(cp.Minimize(cost), items), copies, market

    def inside(self, eta: float) -> Floats | None:
        """Compute the weights with the smallest violation; return None if the solver fails.

        If the market is feasible, the smallest violation is minus the largest slack.
        """
        program, _, market = self._violation
        market.parameter.value = eta
        if run_solver(program, self.solver) not in SOLVED:
            return None
        return _restricted(numbers(self.view.quantities.weights), self.view.active)

    def proof(self, eta: float) -> Excluded | None:
        """Prove that eta and all larger or all smaller values are infeasible, or return None."""
        view, duals, shares = self.view, list[Floats](), dict[str, float]()
        if (weights := self.inside(eta)) is None:
            return None
        _, copies, market = self._violation
        owners = [shown(piece) for piece, items in view.constraints for _ in items]
        for name, item, solved in zip(owners, view.flat_constraints(), copies, strict=True):
            above, *below = (np.maximum(multiplier(each, 1.0), 0.0) for each in solved)  # type: ignore[arg-type]
            duals.append(above - sum(below))
            unit = eta * view.inverse_scale if view.bounds_epsilon(item) else 1.0
            shares[name] = shares.get(name, 0.0) + unit * float(np.sum(np.abs(duals[-1])))
        total, n, point = sum(shares.values()), view.scaled_weights.size, weights[view.active]
        # A bound holds for any multipliers, so multipliers that are solver errors can be omitted.
        large = [d * (shares[x] > _NOISE * total) for x, d in zip(owners, duals, strict=True)]
        flat, sold, _ = self.linearizer.bounds(point, eta, large, market.hints(1.0), ())
        # Times eta/eta', a bound on the guarantees at eta' is affine in the weights and 1/eta'.
        level = float(flat[0] + (flat[2 : 2 + n] + eta * sold[2 + n :]).min())
        noise = float(flat[1] + eta * sold[0])
        if not level + noise / eta > ROUNDING * (abs(level) + abs(noise) / eta):
            return None
        names = [name for name, share in shares.items() if share > _NAMED * total]
        if excluded := int(np.count_nonzero(~view.active)):
            names.append(f"{excluded} sellers with infinite virtual costs, which need zero weight")
        end, low, high = -noise / level if level else 0.0, 0.0, np.inf
        if end > 0:
            low, high = (end, high) if level > 0 else (low, end)
        return Excluded(low, high, tuple(names))

    def solve(self, eta: float) -> Evaluated | Excluded:
        """Compute a feasible point at eta and a cut, or prove that no point is feasible at eta."""
        start, problem = time.perf_counter(), self.declare(eta)
        status = run_solver(problem, self.solver, self.options)
        if status not in SOLVED:
            excluded = self.proof(eta) if self.view.constraints else None
            if excluded is not None:
                return excluded
            raise SolverError(
                f"{self.solver} {self.version} failed at eta = {eta:.10g} (status {status}); try "
                "another solver, or bound eta with EtaRange(low, high)"
            )
        raw = problem.weights
        self._multipliers[eta], hints = problem.proof()
        cut = self.linearizer.cut(raw, eta, self._multipliers[eta], hints)
        point = self.evaluated(self.repaired(raw, eta), eta, cut)
        seconds = time.perf_counter() - start
        self.records.append(SolveRecord(eta, point.objective, cut(eta), status, seconds))
        return point

    def evaluated(self, weights: Floats, eta: float, cut: Any = None) -> Evaluated:
        """Evaluate the objective at a point."""
        parts = self.view.parts(weights, eta)
        return Evaluated(weights, eta, sum(parts), cut, sum(map(abs, parts)) or 1.0)

    def repaired(
        self, weights: Floats, eta: float, support: NDArray[np.bool_] | None = None
    ) -> Floats:
        """Make slightly infeasible weights feasible by averaging with a strictly feasible point."""
        support = self.view.active if support is None else support
        weights = _restricted(weights, support)
        here = self._violations(weights, eta)
        if (worst := float(np.max(here, initial=0.0))) == 0:
            return weights
        if self._inside is None or np.max(self._violations(self._inside, eta)) > -_NO_SLACK:
            self._inside = self.inside(eta)
        inside = weights if self._inside is None else _restricted(self._inside, support)
        there = self._violations(inside, eta)
        strictly = float(np.max(there)) <= -_NO_SLACK
        if worst > (_REPAIRABLE if strictly else _SOLVER_ERROR):
            raise SolverError(
                f"the solver's point violates a constraint by {worst:.1e} (relative); "
                "try another solver or tighter solver options"
            )
        bad = here > 0
        share = float(np.max(here[bad] / (here[bad] - there[bad]))) if strictly else 0.0
        return (1 - share) * weights + share * inside

    def _violations(self, weights: Floats, eta: float) -> Floats:
        """Compute the signed violations of all constraints."""
        view, violations = self.view, [np.empty(0)]
        view.place(weights, eta)
        for item in view.flat_constraints():
            unit = float(numbers(view.scaled_inverse)) if view.bounds_epsilon(item) else 1.0
            h = unit * np.ravel(numbers(item.expr))
            unequal = isinstance(item, cp.constraints.Inequality)
            violations.append(h if unequal else np.abs(h) - _EQUAL)
        return np.concatenate(violations)

    def search(self, gap: float, start: float | None, *limits: Any) -> Allocation:
        """Search over eta, with a certificate and the limits of :func:`search_eta`.

        The gap of the result can exceed ``gap`` because of the limits or the accuracy of the
        solver. The lower bound is always valid.
        """
        first = first_look(self.form, start)
        whole = self.view.program()  # the optimal eta of this program starts the search
        if whole and run_solver(cp.Problem(*whole), self.solver, self.options) in SOLVED:
            # CVXPY has no value of 1/eta if no piece depends on eta.
            inverse = self.view.quantities.inverse_eta.value
            if inverse is not None and inverse * self.form.natural_eta > _NO_SLACK:
                first = float(np.clip(1.0 / inverse, *self.ends))
        best, bound = search_eta(self, first, gap, *limits)
        best = self._without_traces(best, gap)
        if bound > best.objective + _CONTRADICTION * best.scale:
            raise SolverError(
                f"the lower bound {bound:.10g} exceeds the objective {best.objective:.10g}: "
                "the solver's multipliers or a user-defined simplex_minimum is wrong; "
                "try another solver"
            )
        allocation = allocation_of(best, bound, self, self.market, "branch_and_bound", gap)
        eta, given, step = best.eta, iter(self._multipliers[best.eta]), 1e-4
        duals = [[next(given) for _ in items] for _, items in self.view.constraints]
        slope = (best.cut(eta * (1 + step)) - best.cut(eta * (1 - step))) / (2 * step * eta)
        pricing = pricing_of(self.market, allocation, duals[: len(self.market.constraints)], slope)
        how: Any = {"solver": self.solver, "solver_version": self.version, "pricing": pricing}
        return replace(allocation, formulation="primal", **how)

    def _without_traces(self, best: Evaluated, gap: float) -> Evaluated:
        """Set the tiny weights of interior-point methods to zero if the gap increases little."""
        support = best.weights * best.weights.size >= _TRACE
        with suppress(SolverError):
            weights = self.repaired(best.weights, best.eta, support)
            clean = self.evaluated(weights, best.eta, best.cut)
            after, before = (self._violations(x, best.eta) for x in (weights, best.weights))
            feasible = np.max(after, initial=0.0) <= np.max(before, initial=ROUNDING)
            if feasible and clean.objective <= best.objective + FOR_TRACES * gap * best.aim:
                return clean
        return best


def _restricted(weights: Floats, support: NDArray[np.bool_]) -> Floats:
    weights = np.maximum(np.where(support, weights, 0.0), 0.0)
    return weights / weights.sum()
