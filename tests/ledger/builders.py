"""Builders and checks of ledgers."""

import numpy as np

import convexmarket as cm
from convexmarket.privacy import Guarantee


def check_many_sellers(folder, n):
    """Check sales, charges and balances of many sellers, in their order of arrival."""
    ids, rng = [f"seller-{k:06d}" for k in range(n)], np.random.default_rng(0)
    sold, prices = rng.uniform(0.5, 2.0, n), rng.uniform(0.0, 1.0, n)
    with cm.Ledger.create(folder / "l") as ledger:
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
