"""Alternate measurements of two actions, so that the machine's load affects them equally."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np


def seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def ratio(action: Callable[[], Any], reference: Callable[[], Any], rounds: int) -> float:
    """Return the ratio of the median times of an action and a reference."""
    times = [(seconds(action), seconds(reference)) for _ in range(rounds)]
    custom, other = np.median(times, axis=0)
    return float(custom / other)
