"""Compute truthful payments, audit incentives, and calibrate the weight of payments to a budget.

Under truthful payments, a truthful report is the best reply of each seller. A payment consists of
the seller's privacy cost and a rent (A, Eq. 8). Audits measure the gains from misreports.
"""

from convexmarket.incentives.audit import IncentiveAudit, audit_incentives
from convexmarket.incentives.calibration import GammaCalibration, calibrate_gamma
from convexmarket.incentives.rules import PaymentEstimate, estimate_payments, payments

__all__ = ["GammaCalibration", "IncentiveAudit", "PaymentEstimate", "audit_incentives"]
__all__ += ["calibrate_gamma", "estimate_payments", "payments"]
