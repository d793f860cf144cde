"""Payments that make truthful reports the best reply of each seller, and their audits.

A payment consists of the seller's privacy cost and a rent (A, Eq. 8). Audits measure the gains of
misreports of single sellers and of pairs. Calibration computes the weight of payments for a budget.
"""

from convexmarket.incentives.audit import IncentiveAudit, audit_incentives
from convexmarket.incentives.calibration import GammaCalibration, calibrate_gamma
from convexmarket.incentives.rules import PaymentEstimate, estimate_payments, payments

__all__ = ["GammaCalibration", "IncentiveAudit", "PaymentEstimate", "audit_incentives"]
__all__ += ["calibrate_gamma", "estimate_payments", "payments"]
