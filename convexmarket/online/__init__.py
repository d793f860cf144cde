"""The online market: sellers arrive one by one and receive a quote on arrival (A, section V).

A policy computes a plan from the prior of the sellers (:mod:`convexmarket.online.plan`). The plan
determines the guarantee and payment for each report (:mod:`convexmarket.online.curves`).
:class:`OnlineMarket` stores the state of a real market in a database.
"""

from convexmarket.online.online_market import Offer, OnlineMarket
from convexmarket.online.outcome import OnlineOutcome, audit_quotes, run_online
from convexmarket.online.plan import Buyer, Plan
from convexmarket.online.policy import AdaptivePolicy, OnlinePolicy, Quote, policy_from_dict

__all__ = [
    "AdaptivePolicy",
    "Buyer",
    "Offer",
    "OnlineMarket",
    "OnlineOutcome",
    "OnlinePolicy",
    "Plan",
    "Quote",
    "audit_quotes",
    "policy_from_dict",
    "run_online",
]
