"""The pieces a market is declared with: objective terms and constraints.

An objective is a weighted sum of terms and reads as the formula does,
``mu * Spread() + sigma * Noise() + gamma * Payments()``. Every piece knows how to write itself in
CVXPY from the three linked quantities of the problem: the weights ``a``, the guarantees
``eps = eta * a`` and ``1/eta``. A user's own piece is a subclass with that one method.
"""

from convexmarket.terms.base import Constraint, Objective, Quantities, Term, WeightedTerm
from convexmarket.terms.standard import Cap, EtaRange, Noise, Payments, Spread

__all__ = [
    "Cap",
    "Constraint",
    "EtaRange",
    "Noise",
    "Objective",
    "Payments",
    "Quantities",
    "Spread",
    "Term",
    "WeightedTerm",
]
