"""What sellers are paid so that truth is their best reply, and audits of that.

Payments follow from the allocation (A, Eq. 8), rents from the reports that might have been. What
misreports would have gained, alone or in pairs, is audited, and the weight of payments that meets a
budget is calibrated.
"""

from convexmarket.incentives.audit import (
    CoalitionAudit,
    IncentiveAudit,
    PaymentIdentity,
    audit_incentives,
    check_payment_identity,
    truthful_payment,
    virtual_cost_payment,
)
from convexmarket.incentives.calibration import GammaCalibration, calibrate_gamma
from convexmarket.incentives.rules import PaymentEstimate, estimate_payments, payments

__all__ = [
    "CoalitionAudit",
    "GammaCalibration",
    "IncentiveAudit",
    "PaymentEstimate",
    "PaymentIdentity",
    "audit_incentives",
    "calibrate_gamma",
    "check_payment_identity",
    "estimate_payments",
    "payments",
    "truthful_payment",
    "virtual_cost_payment",
]
