"""One optimisation problem in numbers, which a solver study declares, solves and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation import Allocation
from convexmarket.errors import ParameterError
from convexmarket.market import Market

__all__ = ["CLASSES", "Declared", "Family", "Floats", "Instance", "Make", "MarketOf", "numbers"]

Floats = NDArray[np.float64]

#: Every class of subproblems, with its formulations.
CLASSES: dict[str, tuple[str, ...]] = {
    "allocation": ("primal", "dual", "projection", "unscaled"),
    "certified search": ("primal", "dual", "projection"),
    "given guarantees": ("primal", "unscaled"),
    "budget": ("joint", "joint-scaled"),
    "variants": ("primal",),
    "weighted logistic regression": ("primal", "dual", "unscaled"),
    "z-block": ("exponential", "purchase"),
    "ridge": ("primal", "unscaled", "normal", "factor"),
    "semi-interactive fit": ("primal", "diagonal", "quadratic"),
}


def numbers(expression: cp.Expression) -> Floats:
    """Return the value of an expression; NaN without a value."""
    return np.asarray(expression.value, dtype=float)


@dataclass(frozen=True, eq=False)
class Declared:
    """A subproblem in CVXPY, under the rules for parameters.

    The constraints are equations and inequalities, so that the residuals of any point can be
    computed. ``change`` sets the parameters to their second values, and ``answer`` returns the
    solution that the solver left: weights, or a model.
    """

    problem: cp.Problem
    change: Callable[[], None]
    answer: Callable[[], Floats]


def _unknown(_changed: bool) -> Floats | None:
    return None


def _zero(_changed: bool) -> float:
    return 0.0


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem that can be declared in several ways, with parameters that have two values each.

    ``objective`` maps an answer, and whether the parameters have their second values, to the
    objective, ``violation`` an answer to its relative violation of the constraints, and ``exact``
    either value of the parameters to the optimum, or None if no method is known. ``scale`` is the
    least size that errors of the objective are relative to. A problem that is solved by a sequence
    of programs has a ``search``, from formulation, solver and options to an :class:`Allocation`.
    """

    problem_class: str
    declared: Callable[[str], Declared]
    objective: Callable[[Floats, bool], float]
    violation: Callable[[Floats], float]
    exact: Callable[[bool], Floats | None] = _unknown
    scale: Callable[[bool], float] = _zero
    search: Callable[[str, Any, Mapping[str, Any]], Allocation] | None = None

    @property
    def formulations(self) -> tuple[str, ...]:
        """The formulations of its class."""
        return CLASSES[self.problem_class]

    def declare(self, formulation: str) -> Declared:
        """Declare the problem with the first values of its parameters."""
        if formulation not in self.formulations:
            known = ", ".join(self.formulations)
            raise ParameterError(
                f"formulation is {formulation!r}; {self.problem_class} has {known}"
            )
        return self.declared(formulation)


Make = Callable[[int, np.random.Generator], Instance]
MarketOf = Callable[[int, np.random.Generator], Market]


@dataclass(frozen=True, eq=False)
class Family:
    """One subproblem at any size, up to ``largest``, or at ``own_size`` only.

    ``make`` maps a size and a generator to an instance. ``name`` distinguishes subproblems of one
    class in the same problem.
    """

    problem_class: str
    make: Make
    name: str = ""
    own_size: int | None = None
    largest: int | None = None

    @property
    def formulations(self) -> tuple[str, ...]:
        """The formulations of its class."""
        return CLASSES[self.problem_class]

    def sizes(self, wanted: Iterable[int]) -> list[int]:
        """Select the available sizes among the requested ones."""
        if self.own_size is not None:
            return [self.own_size]
        return [size for size in wanted if self.largest is None or size <= self.largest]
