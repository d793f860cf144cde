"""Priors: commonly known distributions of the sellers' sensitivities.

A prior turns a reported sensitivity c into the virtual cost psi(c) = c + F(c)/f(c) of the buyer's
problem (A, Assumption III.1). Truthful payments need a guarantee that does not grow with the
report, hence a nondecreasing psi; a psi that falls somewhere is *ironed* (Myerson, 1981).

Buying from all sellers with a sensitivity of at most c costs R(q) = q * F^-1(q) at q = F(c), and
psi(c) = dR/dq. Ironing replaces R by its convex hull, and psi by the slope of the hull: an isotonic
regression of slopes, weighted by probability.
"""

from convexmarket.priors import families, parsing
from convexmarket.priors.empirical import EmpiricalPrior
from convexmarket.priors.families import *
from convexmarket.priors.mixture import Mixture
from convexmarket.priors.parsing import *
from convexmarket.priors.prior import Prior

__all__ = [*families.__all__, *parsing.__all__, "EmpiricalPrior", "Mixture", "Prior"]
