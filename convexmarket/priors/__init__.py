"""Priors: the distributions, common knowledge, that sellers' sensitivities are drawn from.

A prior turns a reported sensitivity c into the virtual cost psi(c) = c + F(c)/f(c) that the buyer
weighs (A, Assumption III.1). Truthful payments need a guarantee that never grows with the report,
hence a psi that never falls; where a prior's psi does fall, it is *ironed* (Myerson, 1981).

Both operations are read off one curve. Buying from everybody whose sensitivity is at most c costs
R(q) = q * F^-1(q) at q = F(c), since each of them can pretend to be c, and psi(c) = dR/dq. Ironing
replaces R by its convex hull, and psi by the slope of that hull: an isotonic regression of slopes,
weighted by probability.

The curve of a continuous prior is smooth, that of a sample (:class:`EmpiricalPrior`) piecewise
linear. Named families know their psi in closed form or by stable logarithms; any other continuous
``scipy.stats`` distribution enters through :meth:`Prior.from_scipy`.
"""

from convexmarket.priors.base import Prior
from convexmarket.priors.empirical import EmpiricalPrior
from convexmarket.priors.families import (
    Beta,
    Exponential,
    Gamma,
    LogNormal,
    Power,
    TruncatedNormal,
    Uniform,
)
from convexmarket.priors.mixture import Mixture
from convexmarket.priors.parsing import parse_prior, prior_from_dict

__all__ = [
    "Beta",
    "EmpiricalPrior",
    "Exponential",
    "Gamma",
    "LogNormal",
    "Mixture",
    "Power",
    "Prior",
    "TruncatedNormal",
    "Uniform",
    "parse_prior",
    "prior_from_dict",
]
