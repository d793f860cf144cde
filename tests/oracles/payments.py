"""Payments and rents of 400 markets; a rent is a payment minus the seller's cost.

The spec is that of an allocation. Where payments have no closed form, ``pay`` holds the arguments
of ``estimate_payments``. Then each payment has an error of at most ``errors``, and new payments
must agree within the sum of both errors.
"""

from typing import Any

import numpy as np

import convexmarket as cm
from tests.oracles.allocations import privacy_cost, summary
from tests.oracles.building import market_of
from tests.oracles.store import TOLERANCE, differences


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """Compute the payments of the market of a spec."""
    market = market_of(spec)
    result = cm.allocate(market, **spec["ask"])
    costs = [term["Payments"]["privacy_cost"] for _, term in spec["terms"] if "Payments" in term]
    lost = privacy_cost(costs[0] if costs else {"LinearCost": {}}, result.epsilon)
    borne = np.array(spec["reports"]) * lost
    if "pay" not in spec:
        paid = cm.payments(market, result)
        return {"total": paid.sum(), "payments": summary(paid), "borne": summary(borne)}
    request = {name: spec["pay"][name] for name in ("tol", "sellers", "assume_monotone")}
    estimate = cm.incentives.estimate_payments(market, result, **request)
    return {"payments": estimate.amounts, "errors": estimate.errors, "borne": borne}


def compare(spec: dict[str, Any], stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Compare payments with the stored ones."""
    if "pay" not in spec:
        return differences(stored, new, spec.get("tolerance", TOLERANCE))
    was, now = np.array(stored["payments"]), np.array(new["payments"])
    errors = np.array(stored["errors"]), np.array(new["errors"])
    # The certified gap limits the accuracy of guarantees and thus of costs.
    moved = np.abs(np.array(stored["borne"]) - np.array(new["borne"]))
    far = np.abs(was - now) > errors[0] + errors[1] + 2 * moved + TOLERANCE * was.max()
    loose = errors[1] > np.maximum(2 * errors[0], spec["pay"]["tol"] * was.max())
    lost = moved > spec["sold"] * max(stored["borne"])
    texts = [
        f"payments[{i}]: stored {was[i]!r} +- {errors[0][i]:.1e}, now {now[i]!r} +- "
        f"{errors[1][i]:.1e}"
        for i in np.flatnonzero(far | loose)
    ]
    texts += [
        f"borne[{i}]: stored {stored['borne'][i]!r}, now {new['borne'][i]!r}"
        for i in np.flatnonzero(lost)
    ]
    return texts
