"""The pieces of a market: objective terms, constraints and privacy costs."""

from convexmarket.terms import constraints, objectives, pieces
from convexmarket.terms.constraints import *
from convexmarket.terms.objectives import *
from convexmarket.terms.pieces import *

__all__ = [*constraints.__all__, *objectives.__all__, *pieces.__all__]
