"""The pieces of a market: objective terms and constraints.

An objective is a weighted sum of terms, ``mu * Spread() + sigma * Noise() + gamma * Payments()``.
Each piece has a CVXPY expression in three linked quantities: the weights ``a``, the guarantees
``eps = eta * a`` and ``1/eta``. A user-defined piece is a subclass with that one method.

To add a term to the package, write its class and export it here. Methods on arrays use its
shortcuts, such as ``numbers`` (:class:`convexmarket.terms.formula.Defined`). The fields of its
dataclass determine its table in a problem file.
"""

from convexmarket.terms.constraints import (
    Budget,
    Cap,
    EffectiveSize,
    EtaRange,
    GivenEpsilon,
    GroupShare,
    MaxEpsilon,
    Moments,
)
from convexmarket.terms.costs import ExponentialCost, LinearCost, PowerCost, PrivacyCost, TieredCost
from convexmarket.terms.form import MarketNumbers
from convexmarket.terms.objectives import (
    Losses,
    NegativeEntropy,
    Noise,
    Payments,
    QuadraticSpread,
    Spread,
    SquaredNoise,
    SquaredSpread,
)
from convexmarket.terms.pieces import (
    Constraint,
    Objective,
    Piece,
    Quantities,
    Term,
    WeightedTerm,
)
from convexmarket.terms.risk_terms import CVaR, Fairness, RobustCosts

__all__ = [
    "Budget",
    "CVaR",
    "Cap",
    "Constraint",
    "EffectiveSize",
    "EtaRange",
    "ExponentialCost",
    "Fairness",
    "GivenEpsilon",
    "GroupShare",
    "LinearCost",
    "Losses",
    "MarketNumbers",
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
