"""What can be told of a piece before anything is solved: its curvature, and what it reads."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.arguments import shown
from convexmarket.errors import CurvatureError, ParameterError
from convexmarket.terms.base import Constraint, Objective, Quantities, Term
from convexmarket.terms.constraints import (
    Budget,
    Cap,
    EtaRange,
    GivenEpsilon,
    GroupShare,
    MaxEpsilon,
)
from convexmarket.terms.objectives import (
    Losses,
    NegativeEntropy,
    Noise,
    Payments,
    Spread,
    SquaredSpread,
)

__all__ = ["check_convex", "reads_reports"]

#: Pieces of this package: known to be convex, and known by what they do with the reports.
_OURS = (
    Spread,
    SquaredSpread,
    NegativeEntropy,
    Noise,
    Losses,
    Payments,
    Cap,
    MaxEpsilon,
    GivenEpsilon,
    Budget,
    GroupShare,
    EtaRange,
)


def _unknowns(costs: NDArray[np.float64] | cp.Parameter) -> Quantities:
    """Return the quantities as three separate variables: convex in all three is what it takes."""
    m = costs.size
    return Quantities(
        weights=cp.Variable(m, nonneg=True, name="weights"),
        epsilon=cp.Variable(m, nonneg=True, name="epsilon"),
        inverse_eta=cp.Variable(nonneg=True, name="inverse_eta"),
        virtual_costs=costs,  # type: ignore[arg-type]
    )


def check_convex(
    objective: Objective, constraints: tuple[Constraint, ...], costs: NDArray[np.float64]
) -> None:
    """Refuse pieces of a user's own that are not convex in weights, guarantees and 1/eta."""
    if all(
        type(piece) in _OURS for piece in (*(part.term for part in objective.parts), *constraints)
    ):
        return
    quantities = _unknowns(np.where(np.isfinite(costs), costs, 0.0))
    objective.expression(quantities)
    for piece in constraints:
        if type(piece) in _OURS:
            continue
        for item in piece.constraints(quantities):
            if not isinstance(item, cp.Constraint):
                raise ParameterError(
                    f"{shown(piece)} returned {shown(item)}, which is not a CVXPY constraint; "
                    "return a list of comparisons of expressions"
                )
            if not item.is_dcp():
                sides = " and ".join(side.curvature.lower() for side in item.args)
                raise CurvatureError(
                    f"{shown(piece)} is not a convex constraint: in {shown(item, str)} the sides "
                    f"are {sides}"
                )
            if any(variable is quantities.epsilon for variable in item.variables()):
                raise CurvatureError(
                    f"{shown(piece)} constrains epsilon = eta * weights, a product; write it with "
                    "the weights and 1/eta, for example eps <= e as weights <= e * inverse_eta"
                )


def reads_reports(piece: Term | Constraint, m: int) -> bool:
    """Return whether a user's own piece depends on the virtual costs; True if it cannot be seen."""
    if type(piece) in _OURS:
        return False
    costs = cp.Parameter(m, nonneg=True, value=np.ones(m))
    try:
        if isinstance(piece, Term):
            read = piece.expression(_unknowns(costs)).parameters()
        else:
            read = [p for c in piece.constraints(_unknowns(costs)) for p in c.parameters()]
        return any(parameter is costs for parameter in read)
    except Exception:  # numpy functions do not take a parameter
        return True
