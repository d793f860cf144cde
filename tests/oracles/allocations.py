"""Check the allocations and lower bounds of 4,000 markets.

The spec describes a market (:mod:`tests.oracles.building`), and ``ask`` contains the arguments of
``cm.allocate``. If ``exact`` is true, the optimum has a closed form, and all numbers are compared
up to the optional ``tolerance`` of the spec. Otherwise the optimum is known only up to a certified
gap and need not be unique. In this case the objectives and the bounds are compared, and the stated
objective must equal the objective at the new point.
"""

from typing import Any

import numpy as np

import convexmarket as cm
from tests.oracles.building import market_of
from tests.oracles.store import TOLERANCE, differences

#: Largest length of an array that is stored in full. Longer arrays are summarised.
LONGEST = 40


def summary(values: np.ndarray) -> Any:
    """Return a short array, or statistics that identify a long array up to rounding."""
    if values.size <= LONGEST:
        return values
    place = np.arange(values.size)
    return {
        "sum": values.sum(),
        "squares": values @ values,
        "ends": values[[0, 1, -2, -1]],
        "checks": [values @ np.cos(step * place) ** 2 for step in (1.0, 2.3, 0.01)],
    }


def privacy_cost(described: dict[str, Any], eps: np.ndarray) -> np.ndarray:
    """Evaluate the privacy cost u(eps) of a described cost function."""
    ((name, arguments),) = described.items()
    if name == "TieredCost":
        ends, rates = [0.0, *arguments["thresholds"]], np.diff(arguments["slopes"], prepend=0.0)
        steps = zip(rates, ends, strict=True)
        return sum(rate * np.maximum(eps - end, 0.0) for rate, end in steps)
    if name == "ExponentialCost":
        return np.expm1(eps)
    return eps ** (arguments["power"] if name == "PowerCost" else 1.0)


def largest(values: np.ndarray, count: float) -> float:
    """Sum the ``count`` largest entries. A fractional count adds a fraction of the next entry."""
    ordered, whole = np.append(np.sort(values)[::-1], 0.0), int(count)
    return float(ordered[:whole].sum() + (count - whole) * ordered[whole])


def term_value(term: dict[str, Any], a: np.ndarray, eta: float, costs: np.ndarray) -> float:
    """Evaluate the formula of a term without the package."""
    ((name, arguments),) = term.items()
    eps = eta * a
    match name:
        case "Spread":
            target = arguments["reference"]
            return np.linalg.norm(a - (0.0 if target is None else np.array(target)), arguments["p"])
        case "SquaredSpread":
            return a @ a
        case "QuadraticSpread":
            return a @ np.array(arguments["Sigma"]) @ a
        case "NegativeEntropy":
            target = arguments["reference"]
            ratio = a / (1.0 if target is None else np.array(target))
            return np.sum(a * np.log(np.where(a > 0, ratio, 1.0)))
        case "Noise" | "SquaredNoise":
            return eta ** (-1.0 if name == "Noise" else -2.0)
        case "Losses":
            return a @ np.array(arguments["values"])
        case "Payments":
            return costs @ privacy_cost(arguments["privacy_cost"], eps)
        case "CVaR":
            count = max(1.0, round((1 - arguments["level"]) * a.size, 9))
            return largest(eps if arguments["of"] == "epsilon" else costs * eps, count) / count
        case "Fairness":
            groups = np.array(arguments["groups"])
            return max(eps[groups == group].mean() for group in set(arguments["groups"]))
        case "RobustCosts":
            deviation = np.array(arguments["radius"]) * costs * eps
            if arguments["kind"] == "ellipsoid":
                return costs @ eps + np.linalg.norm(deviation)
            return costs @ eps + largest(deviation, arguments["budget"] or a.size)
        case "Imbalance":
            return abs(np.array(arguments["feature"]) @ a - arguments["target"])
        case "Curvature":
            return eps @ eps
        case "LargestEpsilon":
            return eps.max()
        case "Hinge":
            return max(1 / eta - arguments["free"], 0.0)
    raise ValueError(name)


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """Compute the allocation in the market of a spec, and return the numbers to store."""
    market = market_of(spec)
    result = cm.allocate(market, **spec["ask"])
    a, costs = result.weights, market.sellers.virtual_costs
    return {
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "eta": result.eta,
        "n_bought": result.n_bought,
        "weights": summary(a),
        "costs": summary(costs),
        "value": sum(w * term_value(term, a, result.eta, costs) for w, term in spec["terms"]),
        "excess": max(abs(float(a.sum()) - 1), -float(a.min())),
    }


def compare(spec: dict[str, Any], stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Compare an allocation with the stored allocation."""
    tolerance = spec.get("tolerance", TOLERANCE)
    allowed = max(spec["ask"]["gap"], stored["gap"]) * (1 + TOLERANCE)
    scale = abs(stored["objective"])
    slack = tolerance * scale  # allowed rounding error
    above = slack if spec["exact"] else max(tolerance, spec["ask"]["gap"]) * scale
    upper, lower, bound = new["objective"], stored["lower_bound"], new["lower_bound"]
    wrong = {
        "the objective is above the stored objective": not upper <= stored["objective"] + above,
        "the objective is below the stored lower bound": not upper >= lower - slack,
        "the lower bound is above the stored objective": not bound <= stored["objective"] + slack,
        "the gap is too large": not new["gap"] <= allowed,
        "the objective of the weights differs": not abs(new["value"] - upper) <= TOLERANCE * scale,
        "the weights are not on the simplex": not new["excess"] <= TOLERANCE,
    }
    numbers = [(run["objective"], run["lower_bound"], run["gap"]) for run in (stored, new)]
    texts = [f"{text}: stored {numbers[0]}, now {numbers[1]}" for text in wrong if wrong[text]]
    for name in ("costs", *("objective", "eta", "n_bought", "weights") * spec["exact"]):
        texts += differences(stored[name], new[name], tolerance, name)
    return texts
