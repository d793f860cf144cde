"""What can be told of a user's own pieces before anything is solved: whether they are convex."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import CurvatureError, ParameterError
from convexmarket.terms.base import Constraint, Objective, Piece, Quantities

__all__ = ["check_convex"]


def _is_ours(piece: Piece) -> bool:
    """Say whether the piece is written in this package, whose tests hold that it is convex."""
    return piece.owner().__module__.startswith(__package__ or "convexmarket.terms")


def check_convex(
    objective: Objective, constraints: tuple[Constraint, ...], costs: NDArray[np.float64]
) -> None:
    """Refuse pieces of a user's own that are not convex in weights, guarantees and 1/eta."""
    own_terms = tuple(part for part in objective.parts if not _is_ours(part.term))
    own = [piece for piece in constraints if not _is_ours(piece)]
    if not (own_terms or own):
        return
    quantities = Quantities.unknown(np.where(np.isfinite(costs), costs, 0.0))
    Objective(own_terms).expression(quantities)
    for piece in own:
        for item in piece.constraints(quantities):
            if not isinstance(item, cp.Constraint):
                raise ParameterError(
                    f"{piece!r} returned {item!r}, which is not a CVXPY constraint; return a list "
                    "of comparisons of expressions"
                )
            if not item.is_dcp():
                sides = " and ".join(side.curvature.lower() for side in item.args)
                raise CurvatureError(
                    f"{piece!r} is not a convex constraint: in {item} the sides are {sides}"
                )
            if any(variable is quantities.epsilon for variable in item.variables()):
                raise CurvatureError(
                    f"{piece!r} constrains epsilon = eta * weights, a product; write it with the "
                    "weights and 1/eta, for example eps <= e as weights <= e * inverse_eta"
                )
