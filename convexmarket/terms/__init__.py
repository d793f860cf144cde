"""The pieces of a market: objective terms and constraints.

An objective is a weighted sum of terms, ``mu * Spread() + sigma * Noise() + gamma * Payments()``.
Each piece has a CVXPY expression in the weights ``a``, the guarantees ``eps = eta * a`` and
``1/eta``. To add one to the package, write its class and list it in ``__all__`` of its module.
"""

from convexmarket.terms import constraints, objectives, pieces
from convexmarket.terms.constraints import *
from convexmarket.terms.objectives import *
from convexmarket.terms.pieces import *

__all__ = [*constraints.__all__, *objectives.__all__, *pieces.__all__]
