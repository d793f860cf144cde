"""Check payments and privacy costs in 400 markets.

A spec has the keys of a spec in :mod:`tests.oracles.allocations`. If the payments have no closed
form, ``pay`` contains the arguments of ``estimate_payments``. In this case ``errors`` bounds the
error of each payment, and new payments must agree with stored payments within the sum of the two
errors.
"""

from typing import Any

import numpy as np

import convexmarket as cm
from tests.oracles.allocations import privacy_cost, summary
from tests.oracles.building import market_of
from tests.oracles.store import TOLERANCE, differences


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """Compute the payments and costs in the market of a spec."""
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
    """Compare payments and costs with the stored numbers."""
    if "pay" not in spec:
        return differences(stored, new, spec.get("tolerance", TOLERANCE))
    was, now = np.array(stored["payments"]), np.array(new["payments"])
    errors = np.array(stored["errors"]), np.array(new["errors"])
    # The certified gap limits the accuracy of guarantees and of costs.
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
