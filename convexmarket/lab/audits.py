"""What experiments ask of the audit of incentives, and what they keep of it."""

from __future__ import annotations

from typing import Any

from convexmarket.incentives.audit import IncentiveAudit

__all__ = ["MISREPORTS", "audit_row"]

#: Misreports that the audit tries of each seller, next to the kinks of its curve.
MISREPORTS = 17


def audit_row(audit: IncentiveAudit) -> dict[str, Any]:
    """Return an audit as a row of a table."""
    return {
        "sellers_audited": len(audit.to_frame()),
        "max_gain": audit.max_gain,
        "min_surplus": audit.min_surplus,
        "incentive_compatible": audit.is_incentive_compatible,
        "individually_rational": audit.is_individually_rational,
    }
