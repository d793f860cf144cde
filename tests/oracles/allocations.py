"""Allocations of 4,000 markets, with their bounds.

The spec is that of :mod:`tests.oracles.building`, with the arguments of ``cm.allocate`` under
``ask``. Where ``exact`` is true the optimum has a closed form, and all numbers are compared.
Elsewhere the optimum is known up to a certified gap, and may not be unique: the objectives and the
bounds must agree, and the new point must have the objective that is claimed for it.
"""

from typing import Any

import numpy as np

import convexmarket as cm
from tests.oracles.building import market_of
from tests.oracles.store import TOLERANCE, differences

#: Weights of more sellers than this are stored as summaries.
LISTED = 40


def summary(values: np.ndarray) -> Any:
    """Return an array, or what identifies a long one up to rounding."""
    if values.size <= LISTED:
        return values
    place = np.arange(values.size)
    return {
        "sum": values.sum(),
        "squares": values @ values,
        "ends": values[[0, 1, -2, -1]],
        "checks": [values @ np.cos(step * place) ** 2 for step in (1.0, 2.3, 0.01)],
    }


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """Allocate the market of a spec."""
    market = market_of(spec)
    found = cm.allocate(market, **spec["ask"])
    costs = market.sellers.virtual_costs
    paid = found.weights > 0
    return {
        "objective": found.objective,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "eta": found.eta,
        "n_bought": found.n_bought,
        "weights": summary(found.weights),
        "cost": float(costs[paid] @ found.epsilon[paid]),
        "costs": summary(costs),
        "value": market.objective.value(found.weights, found.eta, costs),
        "excess": max(abs(float(found.weights.sum()) - 1), -float(found.weights.min())),
    }


def compare(spec: dict[str, Any], stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Compare an allocation with the stored one."""
    scale = abs(stored["objective"])
    rounding = TOLERANCE * scale
    allowed = max(spec["ask"]["gap"], stored["gap"], TOLERANCE) * (1 + TOLERANCE)
    texts = differences(stored["costs"], new["costs"], at="costs")
    texts += [
        f"{text}; stored {stored['objective']!r} over {stored['lower_bound']!r}, now "
        f"{new['objective']!r} over {new['lower_bound']!r}"
        for text, wrong in {
            "the objective is above the stored one": new["objective"]
            > stored["objective"] + rounding,
            "the objective is below the stored bound": new["objective"]
            < stored["lower_bound"] - rounding,
            "the bound is above the stored objective": new["lower_bound"]
            > stored["objective"] + rounding,
            "the gap is larger": not new["gap"] <= allowed,
            "the point has another objective": not abs(new["value"] - new["objective"]) <= rounding,
            "the weights are not on the simplex": not new["excess"] <= TOLERANCE,
        }.items()
        if wrong
    ]
    if spec["exact"]:
        for name in ("objective", "eta", "weights", "cost", "n_bought"):
            texts += differences(stored[name], new[name], at=name)
    return texts
