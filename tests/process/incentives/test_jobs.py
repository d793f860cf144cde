"""Payments, audits and calibrations by two processes are those of one."""

import numpy as np

import convexmarket as cm
from tests.incentives.builders import spread_market


def test_payments_by_two_processes():
    market = spread_market(cm.Uniform(0.1, 1.0), spread=3.0 * cm.terms.SquaredSpread(), m=4)
    allocation = cm.allocate(market, gap=1e-8)
    seen = []
    found = cm.incentives.estimate_payments(
        market, allocation, sellers=[3, 1], jobs=2, progress=lambda *now: seen.append(now)
    )
    alone = cm.incentives.estimate_payments(market, allocation, sellers=[3, 1])
    assert seen == [(1, 2), (2, 2)]
    assert found.sellers.tolist() == [3, 1]
    np.testing.assert_allclose(found.amounts, alone.amounts, rtol=1e-4)


def test_an_audit_by_two_processes():
    market = spread_market(cm.Uniform(0.1, 1.0), spread=3.0 * cm.terms.SquaredSpread(), m=2)
    one, two = (cm.audit_incentives(market, misreports=2, jobs=jobs) for jobs in (1, 2))
    np.testing.assert_allclose(two.to_frame()["payment"], one.to_frame()["payment"], rtol=1e-4)
    assert two.is_incentive_compatible


def test_a_calibration_by_two_processes():
    one, two = (
        cm.calibrate_gamma(
            3.0,
            cm.Uniform(0.02, 0.1),
            5,
            cm.Spread() + 10.0 * cm.Noise(),
            draws=5,
            random_state=np.random.default_rng(4),
            jobs=jobs,
        )
        for jobs in (1, 2)
    )
    assert one == two
