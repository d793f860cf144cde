"""Build markets from plain data with the public API.

A dictionary with one entry, such as ``{"Cap": {"k": 5}}`` or ``{"Uniform": [0, 1]}``, describes an
object by its class and its arguments. A market is a dictionary with the keys

- ``reports`` and ``prior`` (a prior, a list, or a dictionary by ``groups``), or ``virtual_costs``;
- ``terms``, a list of pairs (weight, term), and ``constraints``, a list.
"""

from typing import Any

import cvxpy as cp
import numpy as np
from scipy import stats

import convexmarket as cm


class Imbalance(cm.terms.Term):
    """Term of the weights: absolute difference between a weighted average and a target."""

    def __init__(self, feature: list[float], target: float) -> None:
        self.feature, self.target = np.array(feature), target

    def expression(self, quantities):
        return cp.abs(self.feature @ quantities.weights - self.target)


class Curvature(cm.terms.Term):
    """Term of the guarantees: sum of eps_i^2, which is smooth."""

    def expression(self, quantities):
        return cp.sum_squares(quantities.epsilon)


class LargestEpsilon(cm.terms.Term):
    """Term of the guarantees: the largest guarantee, which has kinks."""

    def expression(self, quantities):
        return cp.max(quantities.epsilon)


class Hinge(cm.terms.Term):
    """Term of 1/eta: positive part of 1/eta - free, which has a kink."""

    def __init__(self, free: float) -> None:
        self.free = free

    def expression(self, quantities):
        return cp.pos(quantities.inverse_eta - self.free)


class LargestPair(cm.terms.Constraint):
    """Upper bound on the sum of the two largest weights."""

    def __init__(self, share: float) -> None:
        self.share = share

    def constraints(self, quantities):
        return [cp.sum_largest(quantities.weights, 2) <= self.share]


CLASSES = {
    kind.__name__: kind for kind in (Imbalance, Curvature, LargestEpsilon, Hinge, LargestPair)
}


def built(data: Any) -> Any:
    """Build an object from its description, or all objects in a list or a dictionary."""
    if isinstance(data, list):
        return [built(item) for item in data]
    if not isinstance(data, dict):
        return data
    name = next(iter(data)) if len(data) == 1 else ""
    if name == "Scipy":
        family, *parameters = data[name]
        return cm.priors.Prior.from_scipy(getattr(stats, family)(*parameters))
    kind = CLASSES.get(name) or getattr(cm.terms, name, None) or getattr(cm.priors, name, None)
    if kind is None or not name[0].isupper():
        return {key: built(value) for key, value in data.items()}
    arguments = built(data[name])
    return kind(*arguments) if isinstance(arguments, list) else kind(**arguments)


def sellers_of(spec: dict[str, Any]) -> cm.Sellers:
    """Build the sellers of a market from the description of the market."""
    if "virtual_costs" in spec:
        return cm.Sellers(virtual_costs=spec["virtual_costs"])
    return cm.Sellers(spec["reports"], prior=built(spec["prior"]), groups=spec.get("groups"))


def market_of(spec: dict[str, Any]) -> cm.Market:
    objective = None
    for weight, term in spec["terms"]:
        part = weight * built(term)
        objective = part if objective is None else objective + part
    return cm.Market(sellers_of(spec), objective, built(spec["constraints"]))
