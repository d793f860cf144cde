"""Distributions of the sellers' sensitivities.

A prior determines the virtual cost psi(c) = c + F(c)/f(c) of a reported sensitivity c in the
buyer's problem (A, Assumption III.1). Truthful payments require a nondecreasing psi. Where psi
decreases, it is *ironed* (Myerson, 1981).
"""

from convexmarket.priors import families, parsing
from convexmarket.priors.families import *
from convexmarket.priors.parsing import *
from convexmarket.priors.prior import Prior

__all__ = [*families.__all__, *parsing.__all__, "Prior"]
