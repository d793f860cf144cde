"""Check the joint solutions of 40 instances: models, weights and eta.

The spec describes a market. ``model`` contains the other arguments of ``JointMarket``, and ``ask``
contains the arguments of ``allocate_jointly``. Objectives are compared with the accuracy ``VALUE``,
because a search stops at a positive gap. Solutions of convex problems are compared with the
accuracy ``POINT``.
"""

from typing import Any

import numpy as np
from scipy import stats

import convexmarket as cm
from tests.oracles.allocations import term_value
from tests.oracles.building import market_of
from tests.oracles.store import differences

#: Relative tolerances of objectives and of solutions.
VALUE, POINT = 1e-7, 1e-3
#: Statuses of solutions, from the weakest to the strongest claim.
STATUSES = ("best of several starts", "global for this eta", "global")


def value(spec: dict[str, Any], w: np.ndarray, a: np.ndarray, eta: float, costs: Any) -> float:
    """Evaluate the joint objective without code of the package."""
    model = spec["model"]
    rows, labels = np.array(model["X"]), np.array(model["y"])
    market = sum(weight * term_value(term, a, eta, costs) for weight, term in spec["terms"])
    fit = a @ np.logaddexp(0.0, -labels * (rows @ w)) + model["regularization"] / 2 * (w @ w)
    noise = 0.0
    if model["noise"] == "worst-case":
        radius = stats.gamma(w.size).ppf(1 - model["failure_probability"])
        noise = 2 * radius * np.linalg.norm(w)
    elif model["noise"] == "realised":
        noise = 2 * np.dot(model["noise_vector"], w)
    return market + fit + noise / eta


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """Solve the joint problem of a spec and return the numbers to store."""
    joint = cm.JointMarket(market_of(spec), **spec["model"])
    request = {name: value for name, value in spec["ask"].items() if name != "progress"}
    result = cm.allocate_jointly(joint, **request)
    a, w = result.weights, result.model
    residuals = None
    if spec["conditions"]:
        residuals = cm.joint.first_order_residuals(joint, w, a, result.eta).largest
    return {
        "status": result.status,
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "residual": result.residual,
        "eta": result.eta,
        "norm": float(np.linalg.norm(w)),
        "model": w,
        "weights": a,
        "value": value(spec, w, a, result.eta, joint.market.sellers.virtual_costs),
        "first_order": residuals,
    }


def compare(spec: dict[str, Any], stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Compare a joint solution with the stored solution."""
    scale = abs(stored["objective"])
    ranks = [STATUSES.index(result["status"]) for result in (stored, new)]
    best, bound, slack = new["objective"], new["lower_bound"], VALUE * scale
    wrong = {
        "objective is above the stored objective": not best <= stored["objective"] + slack,
        "objective is below the stored lower bound": not best >= stored["lower_bound"] - slack,
        "lower bound is above the stored objective": not bound <= stored["objective"] + slack,
        "lower bound is below the stored lower bound": not bound >= stored["lower_bound"] - slack,
        "objective of the solution differs": not abs(new["value"] - best) <= 1e-9 * scale,
        "residual is too large": not new["residual"] <= max(2 * stored["residual"], VALUE),
        "status is weaker": ranks[1] < ranks[0],
    }
    texts = [f"the {text}: stored {stored}, now {new}" for text in wrong if wrong[text]]
    if ranks[0] > 0 and abs(best - stored["objective"]) <= slack:
        for name in ("eta", "norm", "model", "weights"):
            texts += differences(stored[name], new[name], POINT, name)
    if spec["conditions"] and not new["first_order"] <= max(2 * stored["first_order"], 1e-6):
        texts.append(f"first_order: stored {stored['first_order']}, now {new['first_order']}")
    return texts
