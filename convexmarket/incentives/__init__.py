"""Payments that make truthful reports the best reply of each seller, and their audits.

Payments follow from the allocation and from rents at other reports (A, Eq. 8). Audits measure the
gains of single and of joint misreports. Calibration chooses the weight of payments for a budget.
"""

from convexmarket.incentives.audit import IncentiveAudit, audit_incentives
from convexmarket.incentives.calibration import GammaCalibration, calibrate_gamma
from convexmarket.incentives.rules import PaymentEstimate, estimate_payments, payments

__all__ = ["GammaCalibration", "IncentiveAudit", "PaymentEstimate", "audit_incentives"]
__all__ += ["calibrate_gamma", "estimate_payments", "payments"]
