"""Limit the numbers of functions and calls in the main functions, as a measure of overhead."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm

PACKAGE = str(Path(cm.__file__).parent)
PRIOR = cm.Uniform(0.02, 0.10)
OBJECTIVE = cm.Spread() + 100 * cm.Noise()


def costs(sellers=500):
    return np.random.default_rng(0).uniform(0.02, 0.10, sellers)


def standard_market():
    return cm.Market(cm.Sellers(costs(), PRIOR), OBJECTIVE + 0.1 * cm.Payments())


def functions_entered(call):
    """Return the functions of the package that are entered when ``call`` runs a second time."""
    call()
    entered = set()
    sys.setprofile(lambda frame, event, _: event == "call" and entered.add(frame.f_code))
    try:
        call()
    finally:
        sys.setprofile(None)
    return {code for code in entered if code.co_filename.startswith(PACKAGE)}


def test_allocate_enters_at_most_60_functions():
    market = standard_market()
    assert len(functions_entered(lambda: cm.allocate(market))) <= 60  # 73 at commit d0bbf466


def test_payments_enters_at_most_90_functions():
    market = standard_market()
    allocation = cm.allocate(market)
    assert len(functions_entered(lambda: cm.payments(market, allocation))) <= 90  # 126 at d0bbf466


def price(sellers):
    table, caps = pd.DataFrame({"ask": costs(sellers)}), [cm.MaxEpsilon(2)]
    return cm.price(table, ask="ask", prior=PRIOR, objective=OBJECTIVE, gamma=0.1, constraints=caps)


def test_price_with_a_largest_epsilon_makes_at_most_60_000_calls_in_python():
    """Calls in dependencies are counted, too. There were 1,850,000 calls at commit d0bbf466."""
    price(2)  # imports all modules
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"
        if calls > 60_000:
            pytest.fail("more calls than the budget")

    sys.setprofile(count)
    try:
        price(500)
    finally:
        sys.setprofile(None)
