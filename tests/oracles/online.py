"""Check the plans and quotes of 60 online policies, some of which are adaptive.

The key ``policy`` contains the arguments of a policy. If the key ``adaptive`` contains arguments of
``AdaptivePolicy``, the ``reports`` arrive one after another. ``tolerance`` contains the accuracies
of the stored minimum and of the stored minimiser.
"""

from typing import Any

import numpy as np

import convexmarket as cm
from tests.oracles.building import built
from tests.oracles.store import TOLERANCE, differences


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """Compute the plan of a policy and the quotes for the reports in a spec."""
    policy = cm.OnlinePolicy(built(spec["prior"]), **spec["policy"])
    plan, reports = policy.plan, np.array(spec["reports"])
    result = {"objective": plan.objective, "eta": plan.eta, "cutoff": plan.cutoff}
    if spec["policy"]["rule"] == "expectation":
        result["lower_bound"] = plan.lower_bound
    if "adaptive" in spec:
        options = {name: spec["adaptive"][name] for name in ("replan", "learn", "trust_guess")}
        outcome = cm.run_online(cm.online.AdaptivePolicy(policy, **options), reports)
        epsilon, payments = outcome.epsilon, outcome.payments
    else:
        epsilon, payments = policy.quote(reports)
    return {**result, "epsilon": epsilon, "payments": payments}


def compare(spec: dict[str, Any], stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Compare the plan and the quotes of a policy with the stored numbers."""
    texts = differences(stored["objective"], new["objective"], spec["tolerance"][0], "objective")
    for name in ("eta", "cutoff", "epsilon", "payments"):
        texts += differences(stored[name], new[name], spec["tolerance"][1], name)
    if "lower_bound" in stored:
        slack = max(spec["tolerance"][0], TOLERANCE) * stored["objective"]
        bound, best = new["lower_bound"], min(stored["objective"], new["objective"])
        if not best - 2 * slack <= bound <= best + slack:
            texts.append(f"lower_bound: {bound!r} for the objective {best!r}")
    return texts
