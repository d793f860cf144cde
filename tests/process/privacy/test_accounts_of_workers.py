"""Accounts that are open, across forks and in the worker processes of a search."""

from __future__ import annotations

import os
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed

from convexmarket.errors import BudgetExceededError
from convexmarket.privacy import Guarantee, account, active, admit


def charge(epsilon: float) -> float:
    admit(Guarantee(np.array([epsilon]), 0.0, "a release", "tight", ()), names=pd.Index(["Ann"]))()
    return float(account().spent["Ann"])


def charged_and_warned(epsilon: float) -> tuple[float, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spent = charge(epsilon)
    return spent, [warning.category.__name__ for warning in caught]


def in_a_fork(work) -> int:
    child = os.fork()
    if child == 0:
        try:
            os._exit(work())
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_can_charge_whoever_was_charging_when_it_was_made() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with active._LOCK, opened._rows._lock:
            held.set()
            done.wait(60)

    with account(budget=1.0) as opened:
        charge(0.5)
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(60)
        try:
            # what was spent before counts, and the child says that nobody hears of more
            assert (
                in_a_fork(lambda: charged_and_warned(0.25) != (0.75, ["PrivacyLeakWarning"])) == 0
            )
        finally:
            done.set()
            thread.join()
        assert opened.spent["Ann"] == 0.5


def test_a_worker_says_that_its_account_is_its_own() -> None:
    with account(budget=1.0) as opened:
        found = Parallel(n_jobs=2)(delayed(charged_and_warned)(0.75) for _ in range(2))
        assert all(categories == ["PrivacyLeakWarning"] for _, categories in found)
        assert opened.spent.empty
        with pytest.raises(BudgetExceededError):
            charge(1.25)
