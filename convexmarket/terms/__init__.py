"""The pieces of a market: objective terms and constraints.

An objective is a weighted sum of terms, ``mu * Spread() + sigma * Noise() + gamma * Payments()``.
Each piece has a CVXPY expression in three linked quantities: the weights ``a``, the guarantees
``eps = eta * a`` and ``1/eta``. A user-defined piece is a subclass with that one method.

To add a term to the package, write its class and list it in the ``__all__`` of its module. Methods
on arrays use its shortcuts, such as ``numbers`` (:class:`convexmarket.terms.records.Record`). The
fields of its dataclass determine its table in a problem file.
"""

from convexmarket.terms import constraints, costs, objectives, pieces
from convexmarket.terms.constraints import *
from convexmarket.terms.costs import *
from convexmarket.terms.objectives import *
from convexmarket.terms.pieces import *

__all__ = [*constraints.__all__, *costs.__all__, *objectives.__all__, *pieces.__all__]
