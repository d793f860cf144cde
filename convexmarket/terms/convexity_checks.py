"""Checks of user-defined pieces before a market is solved: convex, closed, repeatable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.atom import Atom
from cvxpy.expressions.leaf import Leaf
from numpy.typing import NDArray

from convexmarket.checks import shown
from convexmarket.errors import CurvatureError, ParameterError
from convexmarket.terms.pieces import MIXED_INTEGER, Piece, Quantities

__all__ = ["check_convex"]


def check_convex(pieces: Iterable[Piece], costs: NDArray[np.float64] | cp.Parameter) -> None:
    """Check user-defined pieces, as certificates require.

    Each must be convex in the weights, guarantees and 1/eta, have no other variable, and return
    the same expression each time.
    """
    if not isinstance(costs, cp.Parameter):
        costs = np.where(np.isfinite(costs), costs, 0.0)
    quantities: Any = Quantities.unknown(costs)
    quantities.weights.value = quantities.epsilon.value = np.ones(costs.size) / costs.size
    quantities.inverse_eta.value = 1.0
    known = {id(quantity) for quantity in vars(quantities).values()}
    for piece in pieces:
        if piece.owner().__module__.startswith(__package__):
            continue
        first, second = (piece.sides(quantities) for _ in range(2))
        for expression in first:
            _check_closed(piece, expression, known)
        values = [[_value(side) for side in sides] for sides in (first, second)]
        if len(first) != len(second) or not all(
            np.array_equal(value, other, equal_nan=True)
            for value, other in zip(*values, strict=True)
        ):
            raise ParameterError(
                f"{shown(piece)} has another value each time: it draws random numbers or keeps a "
                "state; fix its data at creation"
            )


def _check_closed(piece: Piece, expression: cp.Expression, known: set[int]) -> None:
    """Check that an expression has no variables but the quantities, and hides no problem."""
    for variable in (each for each in expression.variables() if id(each) not in known):
        if variable.attributes["boolean"] or variable.attributes["integer"]:
            raise CurvatureError(
                f"{shown(piece)} uses the integer variable {variable.name()!r}, {MIXED_INTEGER}"
            )
        raise CurvatureError(
            f"{shown(piece)} uses another variable {variable.name()!r}, but a piece depends on its "
            "quantities alone; write the minimum over the variable as one expression, such as "
            "log_sum_exp or sum_largest"
        )
    if not _is_tree(expression):
        raise CurvatureError(
            f"{shown(piece)} hides a problem inside {type(expression).__name__}, but a piece "
            "depends on its quantities alone; write its optimal value as one expression"
        )


def _is_tree(expression: cp.Expression) -> bool:
    """Test whether an expression consists of atoms and leaves."""
    atoms = isinstance(expression, Atom) and all(map(_is_tree, expression.args))
    return atoms or isinstance(expression, Leaf)


def _value(expression: cp.Expression) -> NDArray[np.float64]:
    """Return the value of an expression at a point; NaN if a parameter has no value."""
    return np.asarray(np.nan if expression.value is None else expression.value, dtype=float)
