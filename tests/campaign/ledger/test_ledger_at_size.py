"""Test a ledger with 100,000 sellers, and many simultaneous charges by two processes."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.privacy import Guarantee
from tests.ledger.test_two_processes import check_one_wins
from tests.process.builders import needs_fork


def test_sales_charges_and_balances_of_many_sellers_are_correct_and_in_order(tmp_path):
    n = 100_000
    ids, rng = [f"seller-{k:06d}" for k in range(n)], np.random.default_rng(0)
    sold, prices = rng.uniform(0.5, 2.0, n), rng.uniform(0.0, 1.0, n)
    with cm.Ledger.create(tmp_path / "l") as ledger:
        assert ledger.sell(ids, sold, prices) == n
        order = rng.permutation(n)
        account = ledger.account([ids[k] for k in order], release="model")
        account.charge(Guarantee(0.5 * sold[order], 0.0, "a model", "tight", ()))
        frame = ledger.balance()
    assert frame["id"].tolist() == ids
    assert np.array_equal(frame["sold"], sold)
    assert np.array_equal(frame["paid"], prices)
    assert np.array_equal(frame["spent"], 0.5 * sold)
    assert np.array_equal(frame["left"], sold - 0.5 * sold)


@needs_fork
@pytest.mark.parametrize("inherited", [False, True])
def test_only_one_of_two_racing_processes_charges_the_budget(tmp_path, inherited):
    check_one_wins(tmp_path / "l", inherited, 50)
