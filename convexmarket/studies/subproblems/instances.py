"""One optimisation problem in numbers, which a solver study declares, solves and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation import Allocation
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


def _zero(_: Any) -> float:
    return 0.0


class Declared(NamedTuple):
    """A subproblem in CVXPY, under the rules for parameters.

    The constraints are equations and inequalities, so that the residuals of any point can be
    computed. ``place`` sets the parameters to one of the two values of the instance, and
    ``answer`` returns the solution that the solver left: weights, or a model.
    """

    problem: cp.Problem
    place: Callable[[Any], None]
    answer: Callable[[], Floats]


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem that can be declared in several ways, with parameters that have two ``values``.

    ``declare`` maps a formulation of its class to a declaration, and ``objective`` an answer and a
    value of the parameters to the objective. ``violation`` maps an answer to its relative violation
    of the constraints, and ``exact`` a value to the optimum, or None if no method is known.
    ``scale`` is the least size that errors of the objective are relative to. A problem that is
    solved by a sequence of programs has a ``search``, from formulation, solver and options to an
    :class:`Allocation`.
    """

    problem_class: str
    values: tuple[Any, Any]
    declare: Callable[[str], Declared]
    objective: Callable[[Floats, Any], float]
    exact: Callable[[Any], Floats | None]
    violation: Callable[[Floats], float] = _zero
    scale: Callable[[Any], float] = _zero
    search: Callable[[str, Any, Mapping[str, Any]], Allocation] | None = None


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
    largest: float = np.inf

    @property
    def formulations(self) -> tuple[str, ...]:
        """The formulations of its class."""
        return CLASSES[self.problem_class]

    def sizes(self, wanted: Iterable[int]) -> list[int]:
        """Select the available sizes among the requested ones."""
        if self.own_size is not None:
            return [self.own_size]
        return [size for size in wanted if size <= self.largest]
