"""Define hostile values, and ordinary values that are combined with hostile values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

import convexmarket as cm

#: Zeros, and floats with extreme exponents.
EXTREMES = [
    0.0, -0.0, 5e-324, 2.3e-308, 1e-300, 1e-160, 1e-30, 1e-16, 1e16, 1e30, 1e154, 1e160, 1e300,
    1.7976931348623157e308,
]  # fmt: skip
NOT_POSITIVE = [0.0, -0.0, -1.0, -1e-300, float("nan"), float("inf"), float("-inf")]
STRANGE: list[Any] = [
    None, True, False, "", "x", "1", "1e400", "\u0000", "\ud7ff\U0001f600", b"1", [], (), {}, [[]],
    [1.0, [2.0]], {"a": 1}, 10**400, -(10**400), 2**64, 1j, Fraction(1, 3), Decimal("0.1"),
    Decimal("NaN"), np.float32(0.5), np.int64(3), np.bool_(True), np.array(1.0), np.array([]),
    np.array([np.nan]), np.array(["a"]), np.array([None]), np.zeros((2, 2)), np.nan, np.inf,
    datetime.date(2020, 2, 29), object, len, float, range(3), {1.0, 2.0}, slice(None),
    np.datetime64("2020-01-01"), "\N{ARABIC-INDIC DIGIT THREE}", [None], ["a", "b"], 0, 1, -1, 2,
]  # fmt: skip

ordinary = st.floats(-3, 3).map(lambda power: float(f"{10**power:.4g}"))
wide = st.floats(-14, 14).map(lambda power: float(f"{10**power:.6g}"))
positive = st.one_of(ordinary, wide, st.sampled_from([x for x in EXTREMES if x > 0]))
number = st.one_of(ordinary, ordinary, st.sampled_from(EXTREMES + NOT_POSITIVE), st.floats())

X = np.array([[0.6, 0.2], [0.3, 0.5], [0.1, 0.7], [0.4, 0.4], [0.5, 0.1], [0.2, 0.3]])
Y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])


def market(reports: Any = (0.1, 0.6, 0.3)) -> cm.Market:
    """Return a market of the papers' form with three sellers by default."""
    return cm.Market.standard(cm.Sellers(reports, cm.Uniform(0, 1)), mu=2, sigma=1, gamma=0.5)


def joint_market() -> cm.JointMarket:
    """Return a joint market for the six rows of ``X``."""
    return cm.JointMarket(market([0.1, 0.6, 0.3, 0.2, 0.4, 0.5]), X, Y, regularization=1.0)
