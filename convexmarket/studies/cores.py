"""Cores of this machine that timed runs can be bound to."""

from __future__ import annotations

import os
import sys

__all__ = ["can_pin", "usable_cores"]


def can_pin() -> bool:
    """Return whether a process can be bound to a core here."""
    return hasattr(os, "sched_setaffinity")


def usable_cores() -> list[int]:
    """Return the cores that this process may use; one without a number where none can be told."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [-1]
