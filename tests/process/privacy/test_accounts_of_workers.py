"""Test open privacy accounts in forked processes and in the workers of a search."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed

from convexmarket.errors import BudgetExceededError
from convexmarket.privacy import Guarantee, account, reserve


def charge(epsilon: float) -> float:
    reserve(
        Guarantee(np.array([epsilon]), 0.0, "a release", "tight", ()), names=pd.Index(["Ann"])
    )()
    return float(account().spent["Ann"])


def charged_and_warned(epsilon: float) -> tuple[float, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spent = charge(epsilon)
    return spent, [warning.category.__name__ for warning in caught]


def test_a_fork_gives_a_warning_that_its_charges_are_separate() -> None:
    with account(budget=1.0) as opened:
        charge(0.5)
        child = os.fork()
        if child == 0:
            try:
                os._exit(charged_and_warned(0.25) != (0.75, ["PrivacyLeakWarning"]))
            finally:
                os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert opened.spent["Ann"] == 0.5


def test_a_worker_gives_a_warning_that_its_account_is_separate() -> None:
    with account(budget=1.0) as opened:
        result = Parallel(n_jobs=2)(delayed(charged_and_warned)(0.75) for _ in range(2))
        assert all("PrivacyLeakWarning" in categories for _, categories in result)
        assert opened.spent.empty
        with pytest.raises(BudgetExceededError):
            charge(1.25)
