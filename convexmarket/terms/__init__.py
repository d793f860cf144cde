"""The pieces a market is declared with: objective terms and constraints.

An objective is a weighted sum of terms and reads as the formula does,
``mu * Spread() + sigma * Noise() + gamma * Payments()``. Every piece knows how to write itself in
CVXPY from the three linked quantities of the problem: the weights ``a``, the guarantees
``eps = eta * a`` and ``1/eta``. A user's own piece is a subclass with that one method.

To add a term to the package is to write its class and to export it here. What methods on arrays
have to know of it, it says itself (``numbers``, and the other shortcuts of
:class:`convexmarket.terms.shortcuts.Defined`); nobody asks for its class. Its table in a problem
file follows from the fields of its dataclass, and their types are the names by which
:mod:`convexmarket.lab.problem.pieces` knows what a file may give.
"""

from convexmarket.terms.base import (
    Constraint,
    Objective,
    Piece,
    Quantities,
    Term,
    WeightedTerm,
)
from convexmarket.terms.constraints import (
    Budget,
    Cap,
    EtaRange,
    GivenEpsilon,
    GroupShare,
    MaxEpsilon,
)
from convexmarket.terms.costs import ExponentialCost, LinearCost, PowerCost, PrivacyCost, TieredCost
from convexmarket.terms.form import Form
from convexmarket.terms.moments import EffectiveSize, Moments
from convexmarket.terms.objectives import (
    Losses,
    NegativeEntropy,
    Noise,
    Payments,
    Spread,
    SquaredNoise,
    SquaredSpread,
)
from convexmarket.terms.quadratic import QuadraticSpread
from convexmarket.terms.risk import CVaR, Fairness, RobustCosts

__all__ = [
    "Budget",
    "CVaR",
    "Cap",
    "Constraint",
    "EffectiveSize",
    "EtaRange",
    "ExponentialCost",
    "Fairness",
    "Form",
    "GivenEpsilon",
    "GroupShare",
    "LinearCost",
    "Losses",
    "MaxEpsilon",
    "Moments",
    "NegativeEntropy",
    "Noise",
    "Objective",
    "Payments",
    "Piece",
    "PowerCost",
    "PrivacyCost",
    "QuadraticSpread",
    "Quantities",
    "RobustCosts",
    "Spread",
    "SquaredNoise",
    "SquaredSpread",
    "Term",
    "TieredCost",
    "WeightedTerm",
]
